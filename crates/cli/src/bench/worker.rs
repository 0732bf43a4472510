//! One thread of a benchmark: takes operations, does them, checks what it reads, and notes how long each took.
//!
//! The time of an operation is that from the end of the one before, so that the clock is read once for each; choosing
//! the key and making or checking the value are part of it (`null` shows what they cost).

use std::ops::Range;
use std::time::Instant;

use esker::ErrorKind;

use super::benchmark::{Benchmark, Shares};
use super::cursor::Cursor;
use super::fault::{Fault, Stop, Wrong};
use super::keys::Key;
use super::known::Expectation;
use super::random::Random;
use super::scan::Scan;
use super::shared::Shared;
use super::tally::Tally;
use super::values::Generations;

/// The most keys that a scan of YCSB E takes.
const SCAN_KEYS_MAX: u64 = 100;

/// What is done to a key that is written.
#[derive(Debug, Clone, Copy)]
enum Change {
    Put,
    Delete,
    /// And those that follow it in its range.
    DeleteRange,
}

/// A thread's own things.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) shared: &'a Shared<'a>,
    thread: u64,
    random: Random,
    pub(super) key: Key,
    /// Where a range ends.
    end: Key,
    value: Vec<u8>,
    cursor: Option<Cursor>,
    scan: Option<Scan>,
    shares: Shares,
    pub(super) tally: Tally,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, thread: u64) -> Result<Self, Stop> {
        Ok(Self {
            shared,
            thread,
            random: Random::new(shared.plan.seed ^ shared.salt, thread),
            key: Key::new(shared.plan.key_bytes),
            end: Key::new(shared.plan.key_bytes),
            value: Vec::new(),
            cursor: None,
            scan: None,
            shares: shared.benchmark.shares(),
            tally: Tally::new()?,
        })
    }

    /// Takes and does operations until there are none.
    pub(super) fn run(mut self) -> Result<Tally, Stop> {
        let slot = self.shared.slot(self.thread);
        let mut before = Instant::now();
        while let Some(mut ranks) = self.shared.take(before) {
            while !ranks.is_empty() {
                self.tally.operations += self.step(&mut ranks)?;
                let now = Instant::now();
                self.tally.record(now - before);
                before = now;
                if let Some(slot) = slot {
                    slot.set(self.tally.operations);
                }
            }
        }
        Ok(self.tally)
    }

    /// Puts keys at random until the others are done.
    pub(super) fn write_until_stopped(mut self) -> Result<Tally, Stop> {
        let mut before = Instant::now();
        while !self.shared.is_stopped() {
            let number = self.random.below(self.shared.known.space());
            self.put(number)?;
            self.tally.operations += 1;
            let now = Instant::now();
            self.tally.record(now - before);
            before = now;
        }
        Ok(self.tally)
    }

    /// Does the first of `ranks`, or as many as go together, and takes them off. Returns how many that were.
    #[inline]
    fn step(&mut self, ranks: &mut Range<u64>) -> Result<u64, Stop> {
        match self.shared.benchmark {
            Benchmark::FillSeq | Benchmark::FillRandom | Benchmark::FillSync | Benchmark::Overwrite => {
                return self.write(ranks, Change::Put);
            }
            Benchmark::DeleteRandom => return self.write(ranks, Change::Delete),
            Benchmark::DeleteRange => return self.write(ranks, Change::DeleteRange),
            Benchmark::ReadRandom | Benchmark::ReadWhileWriting => self.get_chosen()?,
            Benchmark::ReadMissing => self.get_missing()?,
            Benchmark::Exists => self.ask()?,
            Benchmark::ReadSeq => self.walk(false, true)?,
            Benchmark::ScanKeys if self.shared.target.has_order() => self.walk(false, false)?,
            Benchmark::ScanKeys => self.scan(false)?,
            Benchmark::Scan => self.scan(true)?,
            Benchmark::ReadReverse => self.walk(true, true)?,
            Benchmark::SeekRandom => self.scan_chosen(self.shared.plan.nexts)?,
            Benchmark::YcsbA
            | Benchmark::YcsbB
            | Benchmark::YcsbC
            | Benchmark::YcsbD
            | Benchmark::YcsbE
            | Benchmark::YcsbF => self.mixed()?,
            Benchmark::RandomTransaction => self.transact(false)?,
            Benchmark::RandomLocking => self.transact(true)?,
            Benchmark::MergeRandom => self.merge()?,
            Benchmark::Flush => self.shared.target.db()?.0.flush()?,
            Benchmark::Compact => self.shared.target.compact()?,
            Benchmark::WaitForCompaction => self.wait()?,
            Benchmark::Null => self.nothing()?,
        }
        ranks.start += 1;
        Ok(1)
    }

    /// Writes the keys of the first ranks, as many as go together, and takes them off.
    #[inline]
    fn write(&mut self, ranks: &mut Range<u64>, change: Change) -> Result<u64, Stop> {
        let shared = self.shared;
        let count = shared.batch.min(ranks.end - ranks.start);
        if count == 1 {
            let number = shared.order.number(ranks.start);
            ranks.start += 1;
            match change {
                Change::Put => self.put(number)?,
                Change::Delete => self.delete(number)?,
                Change::DeleteRange => self.delete_range(number)?,
            }
            return Ok(1);
        }
        let mut batch = shared.target.batch();
        for rank in ranks.by_ref().take(count as usize) {
            let number = shared.order.number(rank);
            match change {
                Change::Put => {
                    self.make_value(number);
                    batch.put(self.key.of(number), &self.value)?;
                }
                Change::Delete => batch.delete(self.key.of(number))?,
                Change::DeleteRange => {
                    let end = shared.plan.range_end(number);
                    batch.delete_range(self.key.of(number), self.end.of(end))?;
                    self.tally.bytes += shared.plan.key_bytes as u64;
                }
            }
            self.tally.bytes += shared.plan.key_bytes as u64;
        }
        shared.target.write(batch)?;
        Ok(count)
    }

    #[inline]
    fn put(&mut self, number: u64) -> Result<(), Stop> {
        self.make_value(number);
        self.tally.bytes += self.shared.plan.key_bytes as u64;
        Ok(self.shared.target.put(self.key.of(number), &self.value)?)
    }

    fn delete(&mut self, number: u64) -> Result<(), Stop> {
        self.tally.bytes += self.shared.plan.key_bytes as u64;
        Ok(self.shared.target.delete(self.key.of(number))?)
    }

    /// Deletes the range that begins at `number`.
    fn delete_range(&mut self, number: u64) -> Result<(), Stop> {
        let shared = self.shared;
        let end = shared.plan.range_end(number);
        self.tally.bytes += 2 * shared.plan.key_bytes as u64;
        shared.target.delete_range(self.key.of(number), self.end.of(end))
    }

    /// The value that the key of `number` is to get, and its bytes counted.
    #[inline]
    fn make_value(&mut self, number: u64) {
        self.shared.values.write(number, self.shared.generation, &mut self.value);
        self.tally.bytes += self.value.len() as u64;
    }

    /// The number of a key to ask for.
    #[inline]
    fn choose(&mut self) -> u64 {
        let count = self.shared.frontier.acknowledged();
        self.shared.chooser.choose(&mut self.random, count)
    }

    #[inline]
    fn get_chosen(&mut self) -> Result<(), Stop> {
        let number = self.choose();
        self.get(number)
    }

    fn get(&mut self, number: u64) -> Result<(), Stop> {
        // Before the read: what is acknowledged meanwhile need not be seen.
        let expected = self.expect(number, self.shared.frontier.acknowledged());
        let shared = self.shared;
        let found = shared.target.get(self.key.of(number))?;
        self.check(number, found.as_deref(), expected)
    }

    fn get_missing(&mut self) -> Result<(), Stop> {
        let (number, shared) = (self.choose(), self.shared);
        let key = self.key.missing(number);
        if shared.target.get(key)?.is_some() {
            return Err(Stop::Wrong(Wrong::key(key, Fault::Unexpected)));
        }
        self.tally.missing += 1;
        Ok(())
    }

    fn ask(&mut self) -> Result<(), Stop> {
        let (number, shared) = (self.choose(), self.shared);
        let expected = self.expect(number, shared.frontier.acknowledged());
        let exists = shared.target.exists(self.key.of(number))?;
        self.check_existence(number, exists, expected)
    }

    /// The next entry of this thread's walk through the store, which begins anew at its end.
    fn walk(&mut self, is_backward: bool, with_values: bool) -> Result<(), Stop> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => {
                let (space, threads) = (self.shared.known.space(), self.shared.plan.threads);
                let part = self.thread + u64::from(is_backward);
                let begin = (u128::from(space) * u128::from(part) / u128::from(threads)) as u64;
                Cursor::begin(self, begin, is_backward)?
            }
        };
        if !cursor.valid() {
            cursor.check_end(self)?;
            cursor = Cursor::begin(self, if is_backward { cursor.end() } else { 0 }, is_backward)?;
        }
        if cursor.valid() {
            cursor.check_entry(self, with_values)?;
            cursor.advance()?;
        } else {
            // An empty store: there is nothing to walk through.
            cursor.check_end(self)?;
            self.shared.stop();
        }
        self.cursor = Some(cursor);
        Ok(())
    }

    /// The next entry of this thread's walk in no order, which begins anew at its end.
    fn scan(&mut self, with_values: bool) -> Result<(), Stop> {
        let mut scan = match self.scan.take() {
            Some(scan) => scan,
            None => Scan::begin(self)?,
        };
        if !scan.step(self, with_values)? {
            scan = Scan::begin(self)?;
            if !scan.step(self, with_values)? {
                // An empty store: there is nothing to go through.
                self.shared.stop();
            }
        }
        self.scan = Some(scan);
        Ok(())
    }

    /// Seeks to a key and steps on.
    fn scan_chosen(&mut self, nexts: u64) -> Result<(), Stop> {
        let number = self.choose();
        let mut cursor = Cursor::begin(self, number, false)?;
        for step in 0..=nexts {
            if step > 0 {
                cursor.advance()?;
            }
            if !cursor.valid() {
                return cursor.check_end(self);
            }
            cursor.check_entry(self, true)?;
        }
        Ok(())
    }

    fn mixed(&mut self) -> Result<(), Stop> {
        let Shares { update, insert, scan, read_modify_write } = self.shares;
        let mut dice = self.random.below(100);
        let mut falls_in = |share: u64| {
            let hit = dice < share;
            dice = dice.wrapping_sub(share);
            hit
        };
        if falls_in(insert) {
            let number = self.shared.frontier.take();
            self.put(number)?;
            self.shared.frontier.acknowledge(number);
            Ok(())
        } else if falls_in(update) {
            let number = self.choose();
            self.put(number)
        } else if falls_in(scan) {
            let keys = 1 + self.random.below(SCAN_KEYS_MAX);
            self.scan_chosen(keys - 1)
        } else if falls_in(read_modify_write) {
            let number = self.choose();
            self.get(number)?;
            self.put(number)
        } else {
            self.get_chosen()
        }
    }

    fn merge(&mut self) -> Result<(), Stop> {
        let (number, shared) = (self.choose(), self.shared);
        self.make_value(number);
        self.tally.bytes += shared.plan.key_bytes as u64;
        shared.target.merge(self.key.of(number), &self.value)
    }

    fn transact(&mut self, locking: bool) -> Result<(), Stop> {
        let (mut numbers, shared) = ([self.choose(), self.choose()], self.shared);
        // In one order, so that nobody waits for who waits for it.
        numbers.sort_unstable();
        loop {
            let (mut transaction, options) = shared.target.transaction(locking)?;
            for number in numbers {
                let expected = self.expect(number, shared.frontier.acknowledged());
                let found = transaction.get_for_update(self.key.of(number))?;
                self.check(number, found.as_deref(), expected)?;
            }
            for number in numbers {
                self.make_value(number);
                self.tally.bytes += shared.plan.key_bytes as u64;
                transaction.put(self.key.of(number), &self.value)?;
            }
            match transaction.commit(options) {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                committed => return Ok(committed?),
            }
        }
    }

    /// All of a get but the store: the value is made here.
    fn nothing(&mut self) -> Result<(), Stop> {
        let (number, generation) = (self.choose(), self.shared.generation);
        std::hint::black_box(self.key.of(number));
        std::hint::black_box(self.expect(number, self.shared.frontier.acknowledged()));
        let mut value = std::mem::take(&mut self.value);
        self.shared.values.write(number, generation, &mut value);
        let expected = Expectation { oldest: Some(generation), may_exist: true };
        let checked = self.check(number, Some(std::hint::black_box(&value)), expected);
        self.value = value;
        checked
    }

    fn wait(&self) -> Result<(), Stop> {
        let (db, ..) = self.shared.target.db()?;
        Ok(db.wait_for_compact()?)
    }

    /// What is right for a key, when all new keys below `acknowledged` were there.
    #[inline]
    pub(super) fn expect(&self, number: u64, acknowledged: u64) -> Expectation {
        let shared = self.shared;
        if number >= shared.frontier.base() && shared.benchmark.inserts() {
            let oldest = (number < acknowledged).then_some(shared.generation);
            return Expectation { oldest, may_exist: true };
        }
        shared.known.expect(number)
    }

    /// Refuses a wrong answer; counts a right one.
    #[inline]
    pub(super) fn check(&mut self, number: u64, found: Option<&[u8]>, expected: Expectation) -> Result<(), Stop> {
        if let Some(value) = found {
            let generations =
                Generations { oldest: expected.oldest.unwrap_or_default(), newest: self.shared.generation };
            if let Err(fault) = self.shared.values.check(number, value, generations) {
                return Err(self.wrong(number, fault));
            }
            self.tally.bytes += value.len() as u64;
        }
        self.check_existence(number, found.is_some(), expected)
    }

    /// As [`check`](Self::check), without a value.
    #[inline]
    pub(super) fn check_existence(&mut self, number: u64, exists: bool, expected: Expectation) -> Result<(), Stop> {
        self.tally.bytes += self.shared.plan.key_bytes as u64;
        if exists {
            self.tally.found += 1;
            return if expected.may_exist { Ok(()) } else { Err(self.wrong(number, Fault::Unexpected)) };
        }
        self.tally.missing += 1;
        if expected.oldest.is_none() { Ok(()) } else { Err(self.wrong(number, Fault::Missing)) }
    }

    #[cold]
    pub(super) fn wrong(&mut self, number: u64, fault: Fault) -> Stop {
        Stop::Wrong(Wrong::key(self.key.of(number), fault))
    }
}
