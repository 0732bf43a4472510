//! Snapshots: sequence numbers that compaction must keep readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::SequenceNumber;
use parking_lot::Mutex;

/// The sequence numbers that some snapshot holds.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList(Mutex<BTreeMap<SequenceNumber, usize>>);

impl SnapshotList {
    /// Takes a snapshot of what `now` returns. It is read under the list's lock: a compaction that has listed the
    /// snapshots before this one is registered cannot have inputs newer than it.
    pub(crate) fn take(self: &Arc<Self>, now: impl FnOnce() -> SequenceNumber) -> Snapshot {
        let mut held = self.0.lock();
        let sequence = now();
        *held.entry(sequence).or_insert(0) += 1;
        Snapshot(Arc::new(Held { sequence, list: self.clone() }))
    }

    /// Held sequence numbers, ascending, each once.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.0.lock().keys().copied().collect()
    }

    /// How many snapshots are held.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }
}

#[derive(Debug)]
struct Held {
    sequence: SequenceNumber,
    list: Arc<SnapshotList>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.list.0.lock();
        if let Some(count) = held.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.sequence);
            }
        }
    }
}

/// The store as it was at one moment, all column families together. Cheap to clone; the moment is held until the last
/// clone is dropped, and with it every version of every key that was current then.
#[derive(Debug, Clone)]
pub struct Snapshot(Arc<Held>);

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
