//! Who may write where: stripes, which have the files, and the locks of keys.
//!
//! - L1: a stripe is a file that is being written, and the one thread that writes it. A write holds its stripe from before it is given
//!   a version until its slots are in place. So versions ascend within a file, and while all stripes are held no write is half done.
//! - L2: whoever changes the slots of a key holds the key's lock. So versions of a key ascend in the order in which they take effect,
//!   whichever files they are in. Keys share 1,024 locks by their hash.
//! - L3: first one stripe (or all, by ascending index), then locks of keys by ascending index. Who has the lock of a key asks for no stripe.
//! - L4: a thread keeps to the stripe that it wrote to last, and leaves it for one that is free when another writer holds it. So after the
//!   first few writes each thread has a stripe for itself, as long as there are as many: the end of its file and its counters stay in the
//!   cache of one processor. What writers share then is the next version, the key's lock and the key's shard; and the list of dead records of
//!   a file, where they replace what another has written.
//!
//! L4 was measured against stripes chosen by the key's hash, where each write fetches some ten lines from another processor's cache: two
//! threads on two processors put 1.2 times what one does then.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_format::cask::FileNumber;
use parking_lot::{Mutex, MutexGuard};

use crate::file::ActiveFile;
use crate::keydir::KeyHash;

/// More than writers are likely to be at once; their memory fits into a processor's second cache.
const KEY_LOCK_COUNT: usize = 1 << 10;

thread_local! {
    /// The stripe that this thread wrote to last, in whatever store (L4).
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// See L1. On cache lines of its own, so that stripes do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    active: Mutex<StripeState>,
    /// See [`CaskStats::user_bytes`](crate::CaskStats::user_bytes). Like what follows, changed under this stripe's lock alone.
    user_bytes: AtomicU64,
    /// See [`CaskStats::appended_bytes`](crate::CaskStats::appended_bytes).
    appended_bytes: AtomicU64,
}

/// What a stripe's lock guards.
#[derive(Debug, Default)]
pub(crate) struct StripeState {
    /// `None` until the first write.
    pub(crate) file: Option<Arc<ActiveFile>>,
    /// Framed records of a batch; empty in between, kept for its memory.
    pub(crate) buffer: Vec<u8>,
    /// The file that was seen to have dead records, and how much all stripes had written when it first was.
    pub(crate) seen: Option<(FileNumber, u64)>,
}

/// A stripe that is the caller's to write to.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    pub(crate) state: MutexGuard<'a, StripeState>,
    stripe: &'a Stripe,
}

impl Writing<'_> {
    /// A write of that many bytes, which became a record of `record_bytes`.
    #[inline]
    pub(crate) fn count_written(&self, user_bytes: u64, record_bytes: u64) {
        add(&self.stripe.user_bytes, user_bytes);
        add(&self.stripe.appended_bytes, record_bytes);
    }
}

/// Nobody else adds: a load and a store cost less than an atomic addition.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// A store's stripes: one at least.
#[derive(Debug)]
pub(crate) struct Stripes {
    first: Stripe,
    others: Box<[Stripe]>,
    /// How many wait until they hold all. Who finds its stripe taken meanwhile stays: it will be free in a moment, and the next is not.
    gathering: AtomicUsize,
}

impl Stripes {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            first: Stripe::default(),
            others: (1..count).map(|_| Stripe::default()).collect(),
            gathering: AtomicUsize::new(0),
        }
    }

    /// The stripe at `index`, counted round.
    #[inline]
    fn at(&self, index: usize) -> &Stripe {
        let index = index % (1 + self.others.len());
        index.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }

    fn all(&self) -> impl Iterator<Item = &Stripe> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// A stripe for one write (L4), or the one that is `wanted`, counted round.
    #[inline]
    pub(crate) fn lock(&self, wanted: Option<usize>) -> Writing<'_> {
        // A thread that is ending has no locals left.
        let index = wanted.unwrap_or_else(|| LAST.try_with(Cell::get).unwrap_or_default());
        let stripe = self.at(index);
        match stripe.active.try_lock() {
            Some(state) => Writing { state, stripe },
            None if wanted.is_some() => Writing { state: stripe.active.lock(), stripe },
            None => self.lock_another(index, stripe),
        }
    }

    /// The next one that is free; if none is, this one, which is at `index`.
    #[cold]
    fn lock_another<'a>(&'a self, index: usize, stripe: &'a Stripe) -> Writing<'a> {
        let others = if self.gathering.load(Ordering::Relaxed) == 0 { self.others.len() } else { 0 };
        for next in (1..=others).map(|ahead| index.wrapping_add(ahead)) {
            let stripe = self.at(next);
            if let Some(state) = stripe.active.try_lock() {
                let _ = LAST.try_with(|last| last.set(next));
                return Writing { state, stripe };
            }
        }
        Writing { state: stripe.active.lock(), stripe }
    }

    /// All of them: no write is half done.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, StripeState>> {
        self.gathering.fetch_add(1, Ordering::Relaxed);
        let all = self.iter().collect();
        self.gathering.fetch_sub(1, Ordering::Relaxed);
        all
    }

    /// Those that nobody holds, one after the other.
    pub(crate) fn free(&self) -> impl Iterator<Item = MutexGuard<'_, StripeState>> {
        self.all().filter_map(|stripe| stripe.active.try_lock())
    }

    /// One after the other, each locked when its turn comes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MutexGuard<'_, StripeState>> {
        self.all().map(|stripe| stripe.active.lock())
    }

    /// Bytes of users, and those of their records.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.sum(|stripe| &stripe.user_bytes), self.sum(|stripe| &stripe.appended_bytes))
    }

    fn sum(&self, counter: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.all().map(|stripe| counter(stripe).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct KeyLock {
    lock: Mutex<()>,
    /// Keys of this lock that have a value, less those that had when the store was opened, modulo 2⁶⁴. Changed under the lock alone. So
    /// whoever adds all of them up counts of each share what it was at some moment, and never less than nothing.
    key_count: AtomicU64,
}

/// See L2.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    all: Box<[KeyLock; KEY_LOCK_COUNT]>,
}

impl KeyLocks {
    pub(crate) fn new() -> Self {
        Self { all: Box::new([(); KEY_LOCK_COUNT].map(|()| KeyLock::default())) }
    }

    #[inline]
    fn at(&self, hash: KeyHash) -> (usize, &KeyLock) {
        let index = hash.shard() % KEY_LOCK_COUNT;
        let [first, ..] = &*self.all;
        (index, self.all.get(index).unwrap_or(first))
    }

    /// Says that the key's lock will be asked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        esker_env::os::prefetch_lines::<1, _>(std::slice::from_ref(self.at(hash).1));
    }

    /// The key's slots stay as they are, but for the caller.
    #[inline]
    pub(crate) fn lock(&self, hash: KeyHash) -> MutexGuard<'_, ()> {
        self.at(hash).1.lock.lock()
    }

    /// So many keys more have a value, or fewer, of which this is one. It is locked.
    #[inline]
    pub(crate) fn count_keys(&self, hash: KeyHash, more: i64) {
        add(&self.at(hash).1.key_count, more as u64);
    }

    /// See [`KeyLock::key_count`].
    pub(crate) fn key_count(&self) -> u64 {
        self.all.iter().map(|lock| lock.key_count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// The same for many keys.
    pub(crate) fn lock_all(&self, hashes: impl Iterator<Item = KeyHash>) -> Vec<MutexGuard<'_, ()>> {
        let mut locks: Vec<_> = hashes.map(|hash| self.at(hash)).collect();
        locks.sort_unstable_by_key(|(index, _)| *index);
        locks.dedup_by_key(|(index, _)| *index);
        locks.into_iter().map(|(_, lock)| lock.lock.lock()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_of(stripes: &Stripes, writing: &Writing<'_>) -> usize {
        stripes.all().position(|stripe| std::ptr::eq(stripe, writing.stripe)).unwrap()
    }

    /// Goal: who finds a stripe taken moves to a free one and stays there (L4).
    #[test]
    fn a_thread_leaves_a_stripe_that_is_taken_and_keeps_the_next() {
        std::thread::spawn(|| {
            let stripes = Stripes::new(3);
            let first = stripes.lock(None);
            assert_eq!(index_of(&stripes, &first), 0);
            let second = stripes.lock(None);
            assert_eq!(index_of(&stripes, &second), 1);
            drop((first, second));
            assert_eq!(index_of(&stripes, &stripes.lock(None)), 1);
            // A store with fewer stripes has one for it as well.
            let one = Stripes::new(1);
            assert_eq!(index_of(&one, &one.lock(None)), 0);
            assert_eq!(index_of(&one, &one.lock(Some(7))), 0);
            let _taken = stripes.lock(Some(1));
            let _next = stripes.lock(Some(2));
            assert_eq!(index_of(&stripes, &stripes.lock(None)), 0);
        })
        .join()
        .unwrap();
    }

    /// Goal: keys of one lock are locked once by a batch.
    #[test]
    fn keys_of_one_lock_do_not_wait_for_each_other() {
        let locks = KeyLocks::new();
        let dir = crate::keydir::KeyDir::new(1);
        let hashes: Vec<_> = (0..30_000u32).map(|n| dir.hash(&n.to_le_bytes())).collect();
        assert_eq!(locks.lock_all(hashes.iter().copied()).len(), KEY_LOCK_COUNT);
    }
}
