//! Snapshots: sequence numbers that compaction must keep readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::SequenceNumber;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The sequence numbers that some snapshot holds.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList {
    held: Mutex<BTreeMap<SequenceNumber, usize>>,
    /// Whether the oldest one went since somebody last asked.
    oldest_went: AtomicBool,
}

impl SnapshotList {
    /// Takes a snapshot of what `now` returns. It is read under the list's lock: a compaction that has listed the
    /// snapshots before this one is registered cannot have inputs newer than it.
    pub(crate) fn take(self: &Arc<Self>, now: impl FnOnce() -> SequenceNumber) -> Snapshot {
        let mut held = self.held.lock();
        let sequence = now();
        *held.entry(sequence).or_insert(0) += 1;
        Snapshot(Arc::new(Held { sequence, list: self.clone() }))
    }

    /// Held sequence numbers, ascending, each once.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.held.lock().keys().copied().collect()
    }

    /// What every snapshot sees, those to come too: up to the oldest one, or everything while there is none.
    pub(crate) fn oldest(&self) -> SequenceNumber {
        self.held.lock().keys().next().copied().unwrap_or(SequenceNumber::MAX)
    }

    /// Whether the oldest snapshot went since the last call.
    pub(crate) fn take_oldest_went(&self) -> bool {
        self.oldest_went.load(Ordering::Acquire) && self.oldest_went.swap(false, Ordering::AcqRel)
    }

    /// How many snapshots are held.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().values().sum()
    }
}

#[derive(Debug)]
struct Held {
    sequence: SequenceNumber,
    list: Arc<SnapshotList>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.list.held.lock();
        if let Some(count) = held.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.sequence);
                if held.keys().next().is_none_or(|oldest| *oldest > self.sequence) {
                    self.list.oldest_went.store(true, Ordering::Release);
                }
            }
        }
    }
}

/// The store as it was at one moment, all column families together. Cheap to clone; the moment is held until the last
/// clone is dropped, and with it every version of every key that was current then.
#[derive(Clone)]
pub struct Snapshot(Arc<Held>);

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The sequence number of the last write that it sees.
    pub fn sequence(&self) -> u64 {
        self.0.sequence.get()
    }

    /// Whether it is held in `list`, where compaction sees it.
    pub(crate) fn is_of(&self, list: &Arc<SnapshotList>) -> bool {
        Arc::ptr_eq(&self.0.list, list)
    }

    pub(crate) fn number(&self) -> SequenceNumber {
        self.0.sequence
    }
}
