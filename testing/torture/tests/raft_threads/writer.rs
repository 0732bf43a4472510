//! A thread that writes, and reads its own back at any moment.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use esker::RaftLog;
use esker::raft::{EntryCodec, ErrorKind, Refusal, Result};
use esker_torture::raft::{Contents, Group, Op, apply, encode};
use fastrand::Rng;

use super::ledger::{GROUPS, Known, any_group, any_key, group, is_whole, place_of, value};
use super::life::Life;

/// Entries of a group, and bytes of them, beyond which some go.
const KEPT_ENTRIES: usize = 60;
const KEPT_BYTES: usize = 64 << 10;

/// Entries as they are.
struct Plain;

impl EntryCodec for Plain {
    type Entry = Vec<u8>;

    fn index(_: &Vec<u8>) -> u64 {
        0
    }

    fn encode(entry: &Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
        out.extend(entry);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

/// See the module's head.
pub(super) struct Writer<'a> {
    pub(super) life: &'a Life,
    pub(super) log: &'a RaftLog,
    pub(super) owner: usize,
    pub(super) known: &'a mut Known,
    pub(super) random: Rng,
    /// What became of the last write is unknown: there will be no other.
    pub(super) is_over: bool,
}

impl Writer<'_> {
    /// So many steps, or until nothing can be written any more.
    pub(super) fn work(mut self, steps: usize) {
        for _ in 0..steps {
            self.life.flow();
            self.step();
            if self.is_over {
                return;
            }
        }
        (0..GROUPS).for_each(|n| self.compare(group(self.owner, n)));
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..48 => drop(self.write()),
            48..52 => self.compact(),
            52..56 => self.delete_range(),
            56..59 => {
                if self.life.attempted("syncing", || self.log.sync()).is_some() {
                    self.known.note_durable();
                }
            }
            59..62 => {
                let id = self.any_own();
                self.compare(id);
            }
            62..90 => self.read(),
            _ => self.scan_another(),
        }
    }

    fn any_own(&mut self) -> u64 {
        group(self.owner, self.random.u64(..GROUPS))
    }

    fn held(&self, id: u64) -> Group {
        self.known.now.get(&id).cloned().unwrap_or_default()
    }

    /// Writes down what became of a write. Whether it was done.
    fn end<T>(&mut self, ops: Vec<Op>, sync: bool, done: Result<T>) -> Option<T> {
        match done {
            Ok(said) => {
                self.known.did(ops, sync);
                let done = &self.life.done[self.owner];
                done.store(self.known.ledger.acknowledged, Ordering::Release);
                Some(said)
            }
            Err(error) => {
                if self.life.disk.is_dead() || error.kind() == ErrorKind::ReadOnly {
                    self.known.may_have_done(ops);
                    self.is_over = true;
                }
                None
            }
        }
    }

    /// A batch of one change, or of some, which its groups take. Whether it was written.
    pub(super) fn write(&mut self) -> bool {
        self.known.serial += 1;
        let count = if self.random.u8(..4) == 0 { self.random.usize(2..7) } else { 1 };
        let mut after = self.known.now.clone();
        let ops: Vec<Op> = (0..count).map(|_| self.any_op(&mut after)).collect();
        let sync = self.random.u8(..6) == 0;
        let mut batch = encode(&ops).expect("a batch");
        let as_it_was = batch.clone();
        let done = self.life.attempt("writing", || self.log.write(&mut batch, sync));
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exhausted) {
            assert!(batch == as_it_was, "{}: a batch that was refused is another", self.life);
        }
        self.end(ops, sync, done).is_some()
    }

    fn any_op(&mut self, after: &mut Contents) -> Op {
        let id = self.any_own();
        let there = after.get(&id).cloned().unwrap_or_default();
        let (first, next) = match there.entries.keys().next().zip(there.entries.keys().next_back()) {
            Some((first, last)) => (*first, last + 1),
            None => {
                let begin = self.random.u64(1..200);
                (begin, begin)
            }
        };
        let bytes: usize = there.entries.values().map(Vec::len).sum();
        let op = match self.random.u8(..24) {
            _ if there.entries.len() > KEPT_ENTRIES || bytes > KEPT_BYTES => {
                Op::Compact(id, first + self.random.u64(1..next - first + 2))
            }
            0 => Op::Clean(id),
            1..3 => Op::Compact(id, first + self.random.u64(0..next - first + 3)),
            3..7 => {
                let key = any_key(&mut self.random);
                let bytes_max = if self.random.u8(..20) == 0 { self.life.value_bytes } else { 50 };
                let value = value(id, place_of(&key), self.known.serial, self.random.usize(..=bytes_max));
                Op::Put(id, key, value)
            }
            7..9 => Op::Delete(id, any_key(&mut self.random)),
            roll => {
                let back = if roll < 12 { self.random.u64(0..=next - first) } else { 0 };
                Op::Entries(id, next - back, self.any_entries(id, next - back))
            }
        };
        apply(after, std::slice::from_ref(&op));
        op
    }

    /// One entry, some, or now and then far more than a file has room for.
    fn any_entries(&mut self, id: u64, begin: u64) -> Vec<Vec<u8>> {
        let (count, bytes_max) = match self.random.u8(..60) {
            0 => {
                let bytes = (3 * self.life.options.file_bytes as usize).clamp(10_000, 300_000);
                let count = self.random.usize(1..8);
                (count, 2 * bytes / count)
            }
            1..16 => (self.random.usize(2..6), self.life.value_bytes),
            16..20 => (self.random.usize(10..50), 60),
            _ => (1, self.life.value_bytes),
        };
        let serial = self.known.serial;
        let entries =
            (begin..begin + count as u64).map(|index| value(id, index, serial, self.random.usize(..=bytes_max)));
        entries.collect()
    }

    /// Those before an index go.
    fn compact(&mut self) {
        let id = self.any_own();
        let held = self.held(id);
        let first = held.entries.keys().next().copied().unwrap_or(1);
        let index = first + self.random.u64(..held.entries.len() as u64 + 3);
        let goes = held.entries.range(..index).count() as u64;
        let done = self.life.attempt("compacting", || self.log.compact_to(id, index));
        if let Some(said) = self.end(vec![Op::Compact(id, index)], false, done) {
            assert_eq!(said, goes, "{}: entries of group {id} before {index}", self.life);
        }
    }

    /// Keys of a range go.
    fn delete_range(&mut self) {
        let id = self.any_own();
        let (from, to) = (any_key(&mut self.random), any_key(&mut self.random));
        let (from, to) = (self.random.bool().then_some(from), self.random.bool().then_some(to));
        let is_within = |key: &Vec<u8>| from.iter().all(|from| key >= from) && to.iter().all(|to| key < to);
        let held = self.held(id).keys.into_keys();
        let ops: Vec<Op> = held.filter(is_within).map(|key| Op::Delete(id, key)).collect();
        let (count, sync) = (ops.len(), self.random.u8(..6) == 0);
        let done =
            self.life.attempt("deleting keys", || self.log.delete_range(id, from.as_deref(), to.as_deref(), sync));
        if let Some(said) = self.end(ops, sync, done) {
            assert_eq!(said, count, "{}: keys of group {id} from {from:?} to {to:?}", self.life);
        }
    }

    /// What it has written is there.
    fn read(&mut self) {
        let id = self.any_own();
        let held = self.held(id);
        let (life, log) = (self.life, self.log);
        let key = any_key(&mut self.random);
        assert_eq!(log.get(id, &key).as_deref(), held.keys.get(&key).map(Vec::as_slice), "{life}: key {key:?} of {id}");
        let span = held.entries.keys().next().copied().zip(held.entries.keys().next_back().copied());
        assert_eq!(log.first_index(id).zip(log.last_index(id)), span, "{life}: the indexes of group {id}");
        let Some((first, last)) = span else { return };
        let begin = self.random.u64(first.saturating_sub(2)..=last + 2);
        let end = begin + self.random.u64(1..=last + 3 - begin);
        match self.random.u8(..3) {
            0 => {
                let Some(found) = life.attempted("getting", || log.entry(id, begin)) else {
                    return;
                };
                assert!(found.as_ref() == held.entries.get(&begin), "{life}: entry {begin} of group {id}");
            }
            way => {
                let bytes_max = self.random.bool().then(|| self.random.usize(..20_000));
                let read = || match way {
                    1 => log.entries(id, begin, end, bytes_max),
                    _ => {
                        let mut found = Vec::new();
                        log.fetch::<Plain>(id, begin, end, bytes_max, &mut found).map(|_| found)
                    }
                };
                self.compare_range(id, &held, begin..end, bytes_max, read);
            }
        }
    }

    /// What `read` finds of some entries is what there is of them.
    fn compare_range(
        &self,
        id: u64,
        held: &Group,
        wanted: std::ops::Range<u64>,
        bytes_max: Option<usize>,
        read: impl FnOnce() -> Result<Vec<Vec<u8>>>,
    ) {
        let (life, what) = (self.life, format!("entries {wanted:?} of group {id}"));
        if !wanted.clone().all(|index| held.entries.contains_key(&index)) {
            let refused = read().map_err(|error| (error.kind(), Refusal::of(&error).is_some()));
            let is_refused = refused.as_ref().is_err_and(|said| *said == (ErrorKind::NotFound, true));
            return assert!(is_refused, "{life}: {what}: {refused:?}");
        }
        let Some(found) = life.attempted("reading", read) else {
            return;
        };
        let mut left = bytes_max.unwrap_or(usize::MAX);
        let fits = |(n, bytes): &(usize, &Vec<u8>)| {
            let fits = *n == 0 || bytes.len() <= left;
            left = left.saturating_sub(bytes.len());
            fits
        };
        let expected: Vec<_> =
            held.entries.range(wanted).map(|(_, bytes)| bytes).enumerate().take_while(fits).collect();
        assert!(
            found.iter().eq(expected.into_iter().map(|(_, bytes)| bytes)),
            "{life}: {what}, of {bytes_max:?} bytes"
        );
    }

    /// Whatever it is, somebody wrote what a group holds.
    fn scan_another(&mut self) {
        let (life, log, id) = (self.life, self.log, any_group(&mut self.random));
        let count = self.random.usize(1..30);
        for (key, value) in log.keys(id, None, None) {
            assert!(is_whole(id, place_of(&key), &value), "{life}: key {key:?} of group {id}");
        }
        let Some((first, last)) = log.first_index(id).zip(log.last_index(id)) else {
            return;
        };
        // Its owner goes on meanwhile.
        if last < first {
            return;
        }
        let mut next = first;
        let shown = life.attempt_unless(
            "scanning",
            || {
                log.for_each_entry(id, first, last + 1, |index, bytes| {
                    assert!(index == next && is_whole(id, index, bytes), "{life}: entry {index} of group {id}");
                    next += 1;
                    if next - first < count as u64 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })
            },
            |error| error.kind() == ErrorKind::NotFound && Refusal::of(error).is_some(),
        );
        assert!(shown.is_none_or(|shown| shown == next - first), "{life}: of group {id}, {shown:?} were shown");
    }

    /// All that a group holds is what was written.
    fn compare(&self, id: u64) {
        let (life, log, held) = (self.life, self.log, self.held(id));
        let keys: Vec<_> =
            log.keys(id, None, None).into_iter().map(|(key, value)| (key.into_vec(), value.to_vec())).collect();
        assert!(keys.into_iter().eq(held.keys.clone()), "{life}: the keys of group {id}");
        let span = held.entries.keys().next().copied().zip(held.entries.keys().next_back().copied());
        assert_eq!(log.first_index(id).zip(log.last_index(id)), span, "{life}: the indexes of group {id}");
        if let Some((first, last)) = span {
            let read = || log.entries(id, first, last + 1, None);
            self.compare_range(id, &held, first..last + 1, None, read);
        }
    }
}
