//! What a thread knows of its groups: what each holds now, and what a death may leave of its writes.

use esker_torture::noise;
use esker_torture::raft::{Contents, Group, Ledger, Op, apply};
use fastrand::Rng;

/// Threads that write.
pub(super) const WRITERS: u64 = 3;
/// Groups of each of them.
pub(super) const GROUPS: u64 = 4;
/// Keys of a group.
const KEYS: u8 = 7;

/// Group `n` of a thread: those of all threads lie among each other.
pub(super) fn group(owner: usize, n: u64) -> u64 {
    1 + n * WRITERS + owner as u64
}

/// Whose group it is.
pub(super) fn owner_of(group: u64) -> usize {
    ((group - 1) % WRITERS) as usize
}

pub(super) fn any_group(random: &mut Rng) -> u64 {
    random.u64(1..=GROUPS * WRITERS)
}

/// A key; the first of all is the empty one.
pub(super) fn any_key(random: &mut Rng) -> Vec<u8> {
    match random.u8(..KEYS) {
        0 => Vec::new(),
        n => vec![b'k', n],
    }
}

/// What write `serial` puts at an index of a group, or under a key of it: its number, then what only it has.
pub(super) fn value(group: u64, at: u64, serial: u32, len: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(u64::from(serial) << 32 | at << 8 | group);
    let mut value = serial.to_le_bytes().to_vec();
    value.resize(len, random.u8(..));
    let end = len.max(4);
    if let Some(rest) = value.get_mut(4 + (end - 4) / 3..) {
        noise::fill(&mut random, rest);
    }
    value
}

/// Whether somebody wrote this there.
pub(super) fn is_whole(group: u64, at: u64, found: &[u8]) -> bool {
    let serial = found.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    found.len() < 4 || found == value(group, at, serial, found.len())
}

/// Where a key stands, for [`value`].
pub(super) fn place_of(key: &[u8]) -> u64 {
    key.last().map_or(1 << 20, |n| (1 << 20) + u64::from(*n))
}

/// What of it are the groups of a thread.
pub(super) fn part(contents: &Contents, owner: usize) -> Contents {
    contents.iter().filter(|(id, _)| owner_of(**id) == owner).map(|(id, group)| (*id, group.clone())).collect()
}

/// In words: of each group, by which writes its entries and keys were put.
pub(super) fn summary(contents: &Contents) -> String {
    let of = |(id, Group { entries, keys }): (&u64, &Group)| {
        let span = entries.keys().next().zip(entries.keys().next_back());
        let by = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let (entries, keys): (Vec<u32>, Vec<u32>) =
            (entries.values().map(by).collect(), keys.values().map(by).collect());
        format!("group {id}: entries {span:?} of {entries:?}, keys of {keys:?}; ")
    };
    contents.iter().map(of).collect()
}

/// What is known of the groups of one thread.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Of this life.
    pub(super) ledger: Ledger,
    pub(super) now: Contents,
    /// Writes so far, in all lives.
    pub(super) serial: u32,
}

impl Known {
    /// A write was done.
    pub(super) fn did(&mut self, ops: Vec<Op>, sync: bool) {
        apply(&mut self.now, &ops);
        self.ledger.batches.push(ops);
        self.ledger.acknowledged = self.ledger.batches.len();
        if sync {
            self.note_durable();
        }
    }

    /// One may have been, and is the last.
    pub(super) fn may_have_done(&mut self, ops: Vec<Op>) {
        self.ledger.batches.push(ops);
    }

    /// All that is done survives the loss of power.
    pub(super) fn note_durable(&mut self) {
        self.ledger.durable = self.ledger.acknowledged;
    }

    /// Another life begins, with this: whoever opened the log has made it durable.
    pub(super) fn begin_life(&mut self, found: Contents) {
        self.ledger = Ledger { durable: 1, ..Ledger::found(&found) };
        self.now = found;
    }
}
