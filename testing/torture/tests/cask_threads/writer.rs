//! A thread that writes keys that only it writes, and reads them at any moment: by itself, by scan, beside the store and in copies.

use std::collections::BTreeMap;

use esker::{Cask, CaskOptions, Error, ErrorKind, Result};
use esker_torture::cask::{Past, Step, steps, take};
use fastrand::Rng;

use super::life::{Ending, Life};
use super::{Contents, beginning};

/// Steps in each life.
const STEPS: usize = 500;

/// Versions and values by key.
type Seen = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// See the module's head.
pub(super) struct Writer<'a> {
    pub(super) life: &'a Life,
    pub(super) cask: &'a Cask,
    pub(super) owner: u8,
    pub(super) past: &'a mut Past,
    pub(super) random: Rng,
}

impl Writer<'_> {
    /// All steps, or until it is not known what became of one.
    pub(super) fn work(mut self) {
        for (n, step) in self.steps().into_iter().enumerate() {
            self.fill_disk(n);
            if !self.take(&step) {
                return;
            }
            let time = self.life.time.read().unwrap();
            self.look();
            drop(time);
        }
    }

    /// One of the threads sees to it that there is no room for a quarter of its steps.
    fn fill_disk(&self, step: usize) {
        match (self.life.ending, self.owner) {
            (Ending::FullDisk(room), 0) if step == STEPS / 4 => self.life.leave(room),
            (Ending::FullDisk(_), 0) if step == STEPS / 2 => self.life.disk.set_capacity(None),
            _ => {}
        }
    }

    /// Of keys and values that are nobody else's.
    fn steps(&mut self) -> Vec<Step> {
        let mut steps = steps(&mut self.random, STEPS);
        let ops = steps.iter_mut().flat_map(|step| match step {
            Step::One(op, _) => std::slice::from_mut(op).iter_mut(),
            Step::Batch(ops, _) => ops.iter_mut(),
            _ => [].iter_mut(),
        });
        for op in ops {
            op.key.insert(0, self.owner);
            if let Some(value) = &mut op.value {
                value.splice(0..0, format!("{} ", self.life.number).into_bytes());
            }
        }
        steps
    }

    /// Whether it is known what became of it.
    fn take(&mut self, step: &Step) -> bool {
        let (number, life) = (self.past.count, self.life);
        let done = if let Step::Wait(_) = step {
            let _time = life.time.write().unwrap();
            take(self.cask, step, self.past)
        } else {
            let _time = life.time.read().unwrap();
            take(self.cask, step, self.past)
        };
        let promises_nothing =
            matches!(&done, Err(error) if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted));
        let is_unknown = life.disk.is_dead() || promises_nothing;
        let is_done = life.accepted(done, "taking a step").is_some();
        if !is_done && !is_unknown {
            self.past.strike(number);
        }
        is_done || !is_unknown
    }

    fn look(&mut self) {
        match self.random.u8(..100) {
            0..2 => self.look_at_all(self.cask, "reading all"),
            2..4 => self.look_beside(),
            4 => self.look_at_copy(),
            5..20 => self.look_at_many(),
            _ => {
                let keys: Vec<_> = self.past.keys.keys().collect();
                if let Some(key) = self.random.choice(keys) {
                    self.expect(key, self.cask.get(key), &self.past.now(), "reading");
                }
            }
        }
    }

    fn look_at_many(&mut self) {
        let keys: Vec<_> = self.past.keys.keys().filter(|_| self.random.u8(..8) == 0).collect();
        let found = self.life.accepted(self.cask.multi_get(&keys), "reading many").into_iter().flatten();
        let now = self.past.now();
        keys.iter().zip(found).for_each(|(key, found)| self.expect(key, found, &now, "reading many"));
    }

    fn expect(&self, key: &[u8], found: Result<Option<impl AsRef<[u8]>>>, now: &Contents, doing: &str) {
        let Some(found) = self.life.accepted(found, doing) else { return };
        let (found, expected) = (found.as_ref().map(AsRef::as_ref), now.get(key).map(|value| &value[..]));
        let Self { life, owner, .. } = self;
        let (is, should_be) = (found.map(beginning), expected.map(beginning));
        assert!(found == expected, "{life}: {doing}: {key:?} of {owner}: {is:?}, not {should_be:?}");
    }

    /// Whatever else is in it, of the thread's keys there is what it wrote.
    fn look_at_all(&self, cask: &Cask, doing: &str) {
        let Some(mut found) = self.life.accepted(self.scan(cask), doing) else { return };
        let now = self.past.now();
        for key in self.past.keys.keys() {
            self.expect(key, Ok(found.remove(key).map(|(_, value)| value)), &now, doing);
        }
        assert!(found.is_empty(), "{}: {doing}: {:?} were never written", self.life, found.keys());
    }

    /// The newest values of the thread's keys, and their versions.
    fn scan(&self, cask: &Cask) -> Result<Seen> {
        let (mut found, mut scan) = (Seen::new(), cask.scan()?);
        while scan.advance()? {
            if scan.key()[0] == self.owner {
                let (key, version) = (scan.key().to_vec(), scan.version());
                let value = scan.value()?.to_vec();
                let newest = found.entry(key).or_default();
                *newest = (version, value).max(std::mem::take(newest));
            }
        }
        Ok(found)
    }

    fn reading_options(&self) -> CaskOptions {
        CaskOptions { create_if_missing: false, ..self.life.options.clone() }
    }

    /// Opens the store a second time, for reading.
    fn look_beside(&self) {
        let opened = Cask::open_read_only_with_env("/store", self.reading_options(), self.life.env());
        // It changes too fast to be read.
        if opened.as_ref().is_err_and(|error: &Error| error.kind() == ErrorKind::Busy) {
            return;
        }
        let beside = self.life.accepted(opened, "opening beside");
        // What a failed sync took from memory is not there for another process.
        if let Some(beside) = beside.filter(|_| !self.life.disk.has_evicted()) {
            self.look_at_all(&beside, "reading beside");
        }
    }

    /// One copy of a kind for each thread in a life; backups are brought up to date in the next.
    fn look_at_copy(&self) {
        let life = self.life;
        let (checkpoint, backup) = (format!("/point{}-{}", life.number, self.owner), format!("/backup{}", self.owner));
        let (path, copied) = if life.disk.paths().iter().any(|path| path.starts_with(&checkpoint)) {
            let copied = self.cask.backup(&backup, &mut |_| {});
            (backup, copied)
        } else {
            let copied = self.cask.checkpoint(&checkpoint);
            (checkpoint, copied)
        };
        if life.accepted(copied, "copying").is_none() || life.disk.has_evicted() {
            return;
        }
        let opened = Cask::open_read_only_with_env(&path, self.reading_options(), life.env());
        let Some(copy) = life.accepted(opened, "opening a copy") else { return };
        if let Some(check) = life.accepted(copy.check(&mut |_| {}), "checking a copy") {
            assert!(life.has_trouble() || check.errors.is_empty(), "{life}: a copy: {:?}", check.errors);
        }
        self.look_at_all(&copy, "reading a copy");
    }
}
