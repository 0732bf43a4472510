//! The memtable's skip list, its arena and its fingers, and the locks of transactions, compiled a second time over shuttle's atomics and locks. A
//! library, so that the unit tests within these files are not compiled along.

// Where a tool compiles all targets, it makes a test of this library, too, whatever the manifest says: of nothing, then.
#![cfg(not(test))]

#[path = "../../../crates/db/src/memtable/arena.rs"]
mod arena;
#[path = "../../../crates/db/src/memtable/fingers.rs"]
mod fingers;
#[path = "../../../crates/db/src/transaction/locks.rs"]
#[expect(dead_code, reason = "a part of another crate's source")]
mod locks;
#[path = "../../../crates/db/src/memtable/skip_list.rs"]
#[expect(dead_code, reason = "a part of another crate's source")]
mod skip_list;

use std::sync::Arc;
use std::time::Duration;

use skip_list::SkipList;

/// So few that fingers are made, and made again, within a schedule.
const TALL_MIN: usize = 1;
/// So few that keys meet in one.
const LOCK_SHARDS: usize = 2;

/// The faces of `parking_lot` and of the standard library, as far as they are used, on shuttle's.
mod sync {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread::yield_now as give_way;

    pub(crate) use super::patience::Condvar;
}

mod patience;

/// The locks of a store's transactions.
#[derive(Debug, Default)]
pub struct Locks(Arc<locks::Locks>);

/// What one transaction has locked.
#[derive(Debug)]
pub struct Holder(locks::Holder);

impl Locks {
    /// Who waits for as long as it takes.
    pub fn holder(&self) -> Holder {
        Holder(self.0.holder(patience::ENDLESS))
    }

    /// Who gives up after so many turns of others, however many of them that is.
    pub fn impatient(&self, turns: u8) -> Holder {
        Holder(self.0.holder(Duration::from_nanos(turns.into())))
    }

    /// Whether nobody holds any of the first `keys`.
    pub fn are_free(&self, keys: u8) -> bool {
        let mut holder = Holder(self.0.holder(Duration::ZERO));
        (0..keys).all(|key| holder.lock(key, true))
    }
}

impl Holder {
    /// Locks `key`. `false` if that would wait for itself, or it gave up.
    pub fn lock(&mut self, key: u8, is_alone: bool) -> bool {
        let mode = if is_alone { locks::Mode::Alone } else { locks::Mode::Shared };
        self.0.lock(0, &[key], mode).is_ok()
    }
}

/// The list, as far as its schedules look at it.
#[derive(Debug, Default)]
pub struct List(SkipList);

impl List {
    /// Adds `key`, with a value that tells of it.
    pub fn insert(&self, key: u64) {
        self.0.insert(&key.to_be_bytes(), 0, &(!key).to_be_bytes());
    }

    /// All keys, in the order in which a reader meets them.
    pub fn keys(&self) -> Vec<u64> {
        std::iter::successors(self.0.first(), |entry| entry.next()).map(key_of).collect()
    }

    /// The first key not before `key`.
    pub fn first_at_or_after(&self, key: u64) -> Option<u64> {
        self.0.first_at_or_after(&target(key)).map(key_of)
    }

    /// The last key not after `key`.
    pub fn last_at_or_before(&self, key: u64) -> Option<u64> {
        self.0.last_at_or_before(&target(key)).map(key_of)
    }
}

fn target(key: u64) -> Vec<u8> {
    [key.to_be_bytes(), [0; 8]].concat()
}

/// The key of an entry that is whole.
fn key_of(entry: skip_list::Entry<'_>) -> u64 {
    let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let (key, value) = (number(entry.key().first_chunk()), number(entry.value().first_chunk()));
    assert_eq!(
        (entry.key().len(), entry.value().len(), key),
        (16, 8, !value),
        "an entry that was not written to its end"
    );
    key
}
