//! Locks of keys, which transactions hold until they end.
//!
//! - K1: a key is held by one transaction alone, or shared by any number of them.
//! - K2: those who wait have a key in the order in which they came, and nobody overtakes them. But who shares it and wants it alone comes first:
//!   before that one has ended, no other could have it alone.
//! - K3: nobody begins to wait who would wait for itself, round whatever corners. Who holds what, and who waits for whom, is looked at in one
//!   moment, with all shards locked; and only who begins to wait can close a circle: whoever is served waited for no one any more, and those behind
//!   it wait for it as they did before (K2: those behind one that comes first wait for it already, as it shares what they want). Who waits for a key waits for
//!   all who have it: the first in line cannot have it beside them (K4), and all others wait for that one. So who is in line need not be asked for.
//! - K4: a key passes on in the moment in which it is let go, or in which one who waited for it gives up. So who was served may find that out late, but never in vain.
//!
//! Cost: of a key that nobody else wants a hash, a short lock of one shard of [`LOCK_SHARDS`], and some 100 bytes and the key as long as it is held; who must wait
//! locks all shards once, and looks at those who hold it, at whom these wait for, and so on, however many wait.
//!
//! Source: Gray and Reuter, "Transaction Processing", 1992, chapters 7 and 8 (modes, queues, waits-for graph).

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::LOCK_SHARDS;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, give_way};

/// So often who must wait lets others have its processor before it sleeps: a commit that is not synced takes microseconds, and to be woken takes longer.
const LOOKS: usize = 16;

/// How a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// With others who only read it.
    Shared,
    /// By nobody else.
    Alone,
}

/// Why a key cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Those who have it wait for who wants it.
    Deadlock,
    /// They kept it for too long.
    TimedOut,
}

/// A family and a key of it.
type Name = Arc<[u8]>;
type Shard = HashMap<Name, Lock>;

/// All locks of a store.
#[derive(Default)]
pub(crate) struct Locks {
    shards: Shards,
    /// What those wait for who do; of those who were just served perhaps still that. Locked after shards.
    waits: Mutex<BTreeMap<u64, Name>>,
    owners: AtomicU64,
    hasher: RandomState,
}

struct Shards(Box<[Mutex<Shard>]>);

impl Default for Shards {
    fn default() -> Self {
        Self((0..LOCK_SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").finish_non_exhaustive()
    }
}

/// Of one key.
struct Lock {
    held: Held,
    line: VecDeque<Arc<Waiter>>,
}

enum Held {
    Alone(u64),
    /// By none: nobody has it.
    Shared(Vec<u64>),
}

struct Waiter {
    owner: u64,
    mode: Mode,
    /// Whether it has what it waited for. Changed under the shard's lock.
    is_served: AtomicBool,
    news: Condvar,
}

impl Lock {
    const fn free() -> Self {
        Self { held: Held::Shared(Vec::new()), line: VecDeque::new() }
    }

    /// Whether those who have it leave it to `owner`, too.
    fn admits(&self, owner: u64, mode: Mode) -> bool {
        match &self.held {
            Held::Alone(by) => *by == owner,
            Held::Shared(by) => mode == Mode::Shared || by.iter().all(|by| *by == owner),
        }
    }

    fn is_shared_by(&self, owner: u64) -> bool {
        matches!(&self.held, Held::Shared(by) if by.contains(&owner))
    }

    fn give(&mut self, owner: u64, mode: Mode) {
        match (&mut self.held, mode) {
            (Held::Shared(by), Mode::Shared) => by.push(owner),
            _ => self.held = Held::Alone(owner),
        }
    }

    /// Gives it to `owner`, if that has not to wait.
    fn try_give(&mut self, owner: u64, mode: Mode) -> bool {
        let is_due = self.line.is_empty() || self.is_shared_by(owner);
        let is_given = is_due && self.admits(owner, mode);
        if is_given {
            self.give(owner, mode);
        }
        is_given
    }

    fn let_go(&mut self, owner: u64) {
        match &mut self.held {
            Held::Alone(by) if *by == owner => self.held = Held::Shared(Vec::new()),
            Held::Alone(_) => {}
            Held::Shared(by) => by.retain(|by| *by != owner),
        }
    }

    /// Gives it to those who wait, as far as they can have it (K4).
    fn serve(&mut self) {
        while let Some(first) = self.line.front().filter(|first| self.admits(first.owner, first.mode)).cloned() {
            self.line.pop_front();
            self.give(first.owner, first.mode);
            first.is_served.store(true, Ordering::Release);
            first.news.notify_one();
        }
    }

    fn is_free(&self) -> bool {
        self.line.is_empty() && matches!(&self.held, Held::Shared(by) if by.is_empty())
    }

    /// Where in line `owner` has to wait.
    fn place_of(&self, owner: u64) -> usize {
        if self.is_shared_by(owner) { 0 } else { self.line.len() }
    }

    /// Those that have it, but for `owner`: whom it waits for if it is in line, itself or through those before it (K3).
    fn holders_but(&self, owner: u64) -> impl Iterator<Item = u64> {
        let (alone, shared): (_, &[u64]) = match &self.held {
            Held::Alone(by) => (Some(*by), &[]),
            Held::Shared(by) => (None, by),
        };
        alone.into_iter().chain(shared.iter().copied()).filter(move |other| *other != owner)
    }
}

impl Locks {
    /// Who may take locks, and holds none yet. It waits `patience` for one at most.
    pub(crate) fn holder(self: &Arc<Self>, patience: Duration) -> Holder {
        let owner = self.owners.fetch_add(1, Ordering::Relaxed);
        Holder { locks: self.clone(), owner, patience, held: HashMap::new(), name: Vec::new() }
    }

    /// Below the number of shards.
    fn shard_of(&self, name: &[u8]) -> usize {
        (self.hasher.hash_one(name) % LOCK_SHARDS as u64) as usize
    }

    #[expect(clippy::indexing_slicing, reason = "`shard_of` is below their number")]
    fn shard(&self, name: &[u8]) -> MutexGuard<'_, Shard> {
        self.shards.0[self.shard_of(name)].lock()
    }

    #[expect(clippy::indexing_slicing, reason = "`shard_of` is below their number")]
    fn take(&self, owner: u64, name: &Name, mode: Mode, patience: Duration) -> Result<(), Refused> {
        if self.shard(name).entry(name.clone()).or_insert_with(Lock::free).try_give(owner, mode) {
            return Ok(());
        }
        let mut shards: Vec<_> = self.shards.0.iter().map(Mutex::lock).collect();
        let at = self.shard_of(name);
        let lock = shards[at].entry(name.clone()).or_insert_with(Lock::free);
        if lock.try_give(owner, mode) {
            return Ok(());
        }
        let (place, ahead) = (lock.place_of(owner), lock.holders_but(owner).collect());
        if self.lead_to(owner, ahead, &shards) {
            return Err(Refused::Deadlock);
        }
        let waiter = Arc::new(Waiter { owner, mode, is_served: AtomicBool::new(false), news: Condvar::new() });
        if let Some(lock) = shards[at].get_mut(name) {
            lock.line.insert(place, waiter.clone());
        }
        self.waits.lock().insert(owner, name.clone());
        drop(shards);
        let is_soon = || {
            give_way();
            waiter.is_served.load(Ordering::Acquire)
        };
        if !patience.is_zero() && (0..LOOKS).any(|_| is_soon()) {
            self.waits.lock().remove(&owner);
            return Ok(());
        }
        let mut shard = self.shard(name);
        // Nothing wakes it but the news, and the end of its patience.
        while !waiter.is_served.load(Ordering::Relaxed) {
            if waiter.news.wait_for(&mut shard, patience).timed_out() {
                break;
            }
        }
        self.waits.lock().remove(&owner);
        if waiter.is_served.load(Ordering::Relaxed) {
            return Ok(());
        }
        change(&mut shard, name, |lock| lock.line.retain(|other| !Arc::ptr_eq(other, &waiter)));
        Err(Refused::TimedOut)
    }

    /// Whether one of `ahead` waits for `owner`, or for one who does.
    #[expect(clippy::indexing_slicing, reason = "`shard_of` is below their number")]
    fn lead_to(&self, owner: u64, mut ahead: Vec<u64>, shards: &[MutexGuard<'_, Shard>]) -> bool {
        let waits = self.waits.lock();
        let mut seen = BTreeSet::new();
        while let Some(other) = ahead.pop() {
            if other == owner {
                return true;
            }
            let wanted = waits.get(&other).filter(|_| seen.insert(other));
            let Some(lock) = wanted.and_then(|name| shards[self.shard_of(name)].get(name)) else { continue };
            // Who was served and has not yet woken up is in no line.
            if lock.line.iter().any(|waiter| waiter.owner == other) {
                ahead.extend(lock.holders_but(other));
            }
        }
        false
    }
}

/// Changes the lock of `name`, serves who can have it then, and forgets it if nobody is left.
fn change(shard: &mut Shard, name: &Name, act: impl FnOnce(&mut Lock)) {
    let Entry::Occupied(mut entry) = shard.entry(name.clone()) else { return };
    let lock = entry.get_mut();
    act(lock);
    lock.serve();
    if lock.is_free() {
        entry.remove();
    }
}

/// What one transaction has locked, until this is dropped.
pub(crate) struct Holder {
    locks: Arc<Locks>,
    owner: u64,
    patience: Duration,
    held: HashMap<Name, Mode>,
    /// Of the key that was asked for last; kept for its memory.
    name: Vec<u8>,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("owner", &self.owner).field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl Holder {
    /// Has `key` of the family with the id `family` locked at least so from now on. Waits for it if it must.
    ///
    /// # Errors
    /// It is as it was before.
    pub(crate) fn lock(&mut self, family: u32, key: &[u8], mode: Mode) -> Result<(), Refused> {
        self.name.clear();
        self.name.extend_from_slice(&family.to_le_bytes());
        self.name.extend_from_slice(key);
        let known = self.held.get_key_value(&*self.name).map(|(name, &mode)| (name.clone(), mode));
        let name = match known {
            Some((_, held)) if held >= mode => return Ok(()),
            Some((name, _)) => name,
            None => Name::from(&*self.name),
        };
        self.locks.take(self.owner, &name, mode, self.patience)?;
        self.held.insert(name, mode);
        Ok(())
    }

    /// How many keys it has locked.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        for name in self.held.keys() {
            change(&mut self.locks.shard(name), name, |lock| lock.let_go(self.owner));
        }
    }
}

// By its path, which is the same for who compiles this file from elsewhere.
#[cfg(test)]
#[path = "locks/tests.rs"]
mod tests;
