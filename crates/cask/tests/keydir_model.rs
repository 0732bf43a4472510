//! The key directory over a model of locks and atomics: shuttle runs thousands of schedules.
//!
//! The rooms under test are compiled a second time here, over [`sync`] below and with tables of a few slots. Around them stands what the
//! store has around them, made small: the lock of a key, which a writer and a merge hold while they change its slot, and a table of files that
//! a merge changes as `reclaim/install.rs` does.
//!
//! Shuttle's atomics are in one order for all threads. That the weaker orders of real ones suffice is argued in `table.rs` (Q3) and
//! `arena.rs` (M2); Miri, which knows weak memory, runs `keydir/tests`.

#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::cask::FileNumber;
use shuttle::thread;

mod sync {
    use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard, atomic};

    pub(crate) const SHARD_COUNT: usize = 4;
    /// Ten slots, or the numbers of forty segments.
    pub(crate) const SEGMENT_WORDS: usize = 20;
    pub(crate) const FIRST_CHUNK_SEGMENTS: u64 = 4;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap()
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap()
        }
    }

    /// There are none in the model.
    #[derive(Debug)]
    pub(crate) struct Words;

    impl Words {
        pub(crate) const fn new(_: usize) -> Option<Self> {
            None
        }

        pub(crate) const fn words(&self) -> &[atomic::AtomicU64] {
            &[]
        }
    }

    /// Who finds a shard locked sleeps at the second look.
    pub(crate) fn rest(attempts: &mut u32) -> bool {
        *attempts += 1;
        shuttle::thread::yield_now();
        *attempts < 2
    }
}

#[path = "."]
#[expect(dead_code, reason = "a part of another crate's source")]
mod keydir {
    #[path = "../src/keydir/arena.rs"]
    mod arena;
    #[path = "../src/keydir/directory.rs"]
    mod directory;
    #[path = "../src/keydir/held.rs"]
    mod held;
    #[path = "../src/keydir/shard.rs"]
    mod shard;
    #[path = "../src/keydir/slot.rs"]
    mod slot;
    #[path = "../src/keydir/table.rs"]
    mod table;

    pub(crate) use directory::{KeyDir, KeyHash};
    pub(crate) use slot::{Place, Slot};
    pub(crate) const SHARD_SHIFT: u32 = directory::SHARD_SHIFT;

    /// The hash that chooses this shard and tag.
    pub(crate) const fn hash_of(shard: u64, tag: u32) -> KeyHash {
        KeyHash((shard << SHARD_SHIFT) | tag as u64)
    }
}

use keydir::{KeyDir, KeyHash, Place, Slot, hash_of};
use sync::Mutex;

/// In how many random schedules each model runs, and in how many with few, well chosen preemptions.
const SCHEDULES: usize = 700;

fn check(schedule: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(schedule.clone(), SCHEDULES);
    shuttle::check_pct(schedule, SCHEDULES, 3);
}

fn place(file: u32, offset: u32) -> Place {
    Place { file: FileNumber::new(file).unwrap(), offset }
}

/// A slot whose two words say the same, so that halves of two are noticed.
fn slot(hash: KeyHash, number: u32) -> Slot {
    Slot::new(hash.tag(), place(1, number), number.into())
}

fn insert(keydir: &KeyDir, hash: KeyHash, number: u32) {
    keydir.lock(hash.shard()).insert(slot(hash, number));
}

/// The number in the slot of a key.
fn number(keydir: &KeyDir, hash: KeyHash) -> Option<u32> {
    let candidates = keydir.newest(hash);
    let mut slots = candidates.iter();
    let first = slots.next()?;
    assert!(slots.next().is_none(), "two slots of one key");
    assert_eq!(first.bytes(), Some(first.place().offset.into()), "half of one slot and half of another");
    Some(first.place().offset)
}

/// Goal (Q1 to Q3, M1): a reader finds its key in every schedule, whole and never older than before, while its slot is replaced, others come and go
/// before it, the table grows and shrinks, and another shard fills the memory that this one gives back.
#[test]
fn in_no_schedule_does_a_reader_miss_its_key_or_see_half_a_slot() {
    check(|| {
        let keydir = Arc::new(KeyDir::new(1));
        let key = hash_of(1, 1 << 30);
        insert(&keydir, key, 1);
        let reader = {
            let keydir = keydir.clone();
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..3 {
                    let now = number(&keydir, key);
                    assert!(now >= Some(last), "{now:?} after {last}");
                    last = now.unwrap();
                }
            })
        };
        let other = {
            let keydir = keydir.clone();
            thread::spawn(move || {
                // Slots with the reader's tag, in memory that may have been the reader's shard's a moment ago.
                let foreign: Vec<Slot> = (0..6).map(|_| Slot::new(key.tag(), place(2, 77), 78)).collect();
                keydir.lock(2).settle(&foreign);
                keydir.lock(2).settle(&[]);
            })
        };
        let around: Vec<KeyHash> = (1..9).map(|n| hash_of(1, n << 26)).collect();
        around.iter().for_each(|hash| insert(&keydir, *hash, 9));
        assert!(keydir.replace(key, place(1, 1), slot(key, 2)));
        for hash in around {
            assert!(keydir.remove(hash, place(1, 9)).is_some());
        }
        reader.join().unwrap();
        other.join().unwrap();
        assert_eq!(number(&keydir, key), Some(2));
    });
}

/// Goal (T1, W5): who has seen one change of a batch sees all others of it from then on, whatever order it looks in, and so does who waited for it.
#[test]
fn in_no_schedule_does_a_batch_come_apart() {
    check(|| {
        let keydir = Arc::new(KeyDir::new(1));
        let keys = [hash_of(2, 5), hash_of(0, 5), hash_of(3, 5)];
        for key in keys {
            insert(&keydir, key, 1);
        }
        let readers: Vec<_> = [[0, 1, 2], [2, 1, 0]]
            .into_iter()
            .map(|order| {
                let keydir = keydir.clone();
                thread::spawn(move || {
                    let mut last = 0;
                    for index in order {
                        let now = number(&keydir, keys[index]).unwrap();
                        assert!(now >= last, "a batch came apart: {now} after {last}");
                        last = now;
                    }
                })
            })
            .collect();
        let batches: Vec<_> = [2, 3]
            .into_iter()
            .map(|to| {
                let keydir = keydir.clone();
                thread::spawn(move || {
                    let mut held = keydir.hold(keys.into_iter());
                    for key in keys {
                        let now = held.change(key, |shard| {
                            // As under the locks of keys: whoever is later goes on from what it finds.
                            let found = (1..to).find(|from| shard.replace(place(1, *from), slot(key, to)));
                            found.is_some()
                        });
                        assert!(now || to == 2, "the later of two found neither value");
                    }
                    held.release();
                })
            })
            .collect();
        for thread in readers.into_iter().chain(batches) {
            thread.join().unwrap();
        }
        let last: Vec<_> = keys.iter().map(|key| number(&keydir, *key)).collect();
        assert_eq!(last, [Some(3); 3]);
    });
}

/// What a record holds: its key's value. Files are never written after they were made, so a map will do.
type Files = BTreeMap<u32, BTreeMap<u32, u32>>;

/// A store, made small: one key, records of it in files, the table of files as readers see it.
struct Store {
    keydir: KeyDir,
    key_lock: Mutex<()>,
    files: Mutex<Arc<Files>>,
}

const KEY: KeyHash = hash_of(1, 7);

impl Store {
    fn change_files(&self, change: impl FnOnce(&mut Files)) {
        let mut files = self.files.lock();
        let mut changed = (**files).clone();
        change(&mut changed);
        *files = Arc::new(changed);
    }

    /// As `read.rs` does it: directory, then the table, and again if the file is gone.
    fn get(&self) -> Option<u32> {
        loop {
            let slot = self.keydir.newest(KEY).iter().next()?;
            let files = self.files.lock().clone();
            if let Some(file) = files.get(&slot.place().file.get()) {
                return Some(file[&slot.place().offset]);
            }
        }
    }

    /// As `write.rs` does it: look up, append, put the slot in place, all under the lock of the key.
    fn put(&self, file: u32, value: u32) {
        let _at_rest = self.key_lock.lock();
        let now = self.keydir.all(KEY).iter().next();
        self.change_files(|files| {
            files.entry(file).or_default().insert(value, value);
        });
        let new = Slot::new(KEY.tag(), place(file, value), 1);
        match now {
            Some(now) => assert!(self.keydir.replace(KEY, now.place(), new)),
            None => self.keydir.lock(KEY.shard()).insert(new),
        }
    }

    fn delete(&self) {
        let _at_rest = self.key_lock.lock();
        if let Some(now) = self.keydir.all(KEY).iter().next() {
            assert!(self.keydir.remove(KEY, now.place()).is_some());
        }
    }

    /// As `reclaim` does it: copy what lives without a lock, show the new file, move the slot if it still points to the original (R1),
    /// take the old file out.
    fn merge(&self, from: u32, to: u32) {
        let now = self.keydir.newest(KEY).iter().next();
        let Some(from_place) = now.map(|slot| slot.place()).filter(|place| place.file.get() == from) else { return };
        let copied = self.files.lock()[&from][&from_place.offset];
        self.change_files(|files| drop(files.insert(to, BTreeMap::from([(copied, copied)]))));
        let at_rest = self.key_lock.lock();
        let is_there = self.keydir.all(KEY).iter().any(|slot| slot.place() == from_place);
        if is_there {
            assert!(self.keydir.replace(KEY, from_place, Slot::new(KEY.tag(), place(to, copied), 1)));
        }
        drop(at_rest);
        self.change_files(|files| drop(files.remove(&from)));
    }
}

/// Goal (R1, B1, B2): in no schedule does a merge take a newer put back, bring a deleted key back, or leave a reader without a value that
/// was there all the time; and what a reader sees only goes forward.
#[test]
fn in_no_schedule_does_a_merge_undo_a_write_or_hide_a_value() {
    check(|| {
        let store = Arc::new(Store { keydir: KeyDir::new(1), key_lock: Mutex::default(), files: Mutex::default() });
        store.put(1, 1);
        let spawn = |work: fn(&Store)| {
            let store = store.clone();
            thread::spawn(move || work(&store))
        };
        let threads = [
            spawn(|store| store.merge(1, 2)),
            spawn(|store| store.put(3, 5)),
            spawn(|store| {
                let (first, second) = (store.get(), store.get());
                assert!(first.is_some() && second >= first, "{second:?} after {first:?}");
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(store.get(), Some(5), "the newer put is lost");
        let threads = [spawn(|store| store.merge(3, 4)), spawn(Store::delete)];
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(store.get(), None, "a deleted key came back");
    });
}
