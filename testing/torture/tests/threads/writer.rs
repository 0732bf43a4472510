//! A thread that writes, and reads its own back at any moment.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use esker::{
    ColumnFamily, Db, ErrorKind, FamilyOptions, IngestOptions, ReadOptions, Result, Snapshot, SstFileWriter,
    WriteBatch, WriteOptions,
};
use esker_torture::model::forward;
use fastrand::Rng;

use super::ledger::{KEYS, Ledger, Op, PLACES, Place, State, Write, key, parse, value};
use super::life::Life;
use super::views::{Viewer, Walk};

/// Snapshots and iterators that are held at once, of each.
const HELD: usize = 3;

/// A snapshot, and what it shows.
struct Seen {
    snapshot: Snapshot,
    state: State,
    /// How often the thread's own family had been dropped.
    drops: u32,
}

/// See the module's head.
pub(super) struct Writer<'a> {
    viewer: Viewer<'a>,
    ledger: &'a mut Ledger,
    random: Rng,
    own_options: FamilyOptions,
    own: Option<ColumnFamily>,
    drops: u32,
    seen: Vec<Seen>,
    walks: Vec<Walk>,
    /// What became of the last write is unknown: there will be no other.
    is_over: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        life: &'a Life,
        db: &'a Db,
        owner: u8,
        ledger: &'a mut Ledger,
        own_options: FamilyOptions,
        random: Rng,
    ) -> Self {
        let (viewer, own) = (Viewer { life, db, owner }, db.column_family(&Place::Own.family(owner)));
        let (seen, walks) = (Vec::new(), Vec::new());
        Self { viewer, ledger, random, own_options, own, drops: 0, seen, walks, is_over: false }
    }

    /// So many steps, or until nothing can be written any more.
    pub(super) fn work(mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            if self.is_over {
                break;
            }
        }
        for walk in std::mem::take(&mut self.walks) {
            self.viewer.life.accepted(walk.finish(self.viewer), "walking to the end");
        }
        while !self.seen.is_empty() {
            self.look_back();
            self.seen.pop();
        }
        PLACES.into_iter().for_each(|place| self.compare(place));
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..45 => self.write(),
            45..52 => self.write_if(),
            52..55 => self.load(),
            55..56 => self.replace_own(),
            56..57 => {
                if self.viewer.life.accepted(self.viewer.db.flush(), "flushing").is_some() {
                    self.ledger.note_durable();
                }
            }
            57..58 => {
                if self.viewer.life.accepted(self.viewer.db.sync_wal(), "syncing").is_some() {
                    self.ledger.note_log_durable();
                }
            }
            58..76 => self.read(),
            76..82 => self.look(),
            82..88 => self.look_back(),
            _ => self.walk_on(),
        }
    }

    fn any_place(&mut self) -> Place {
        PLACES[self.random.usize(..PLACES.len())]
    }

    fn family(&self, place: Place) -> Option<ColumnFamily> {
        match place {
            Place::Own => self.own.clone(),
            _ => self.viewer.db.column_family(&place.family(self.viewer.owner)),
        }
    }

    /// Writes down that a write comes, of so many operations; returns its number.
    fn begin(&mut self, place: Place, ops: Vec<Op>) -> u32 {
        self.ledger.serial += 1;
        let serial = self.ledger.serial;
        self.ledger.of_mut(place).begin(Write { serial, ops });
        serial
    }

    /// Writes down what became of it. Whether it was done.
    fn end<T>(&mut self, place: Place, done: Result<T>, doing: &str) -> Option<T> {
        let life = self.viewer.life;
        match done {
            Ok(said) => {
                self.ledger.of_mut(place).finish();
                life.done[usize::from(self.viewer.owner)].store(self.ledger.logged.done(), Ordering::Release);
                Some(said)
            }
            Err(error) => {
                life.accept(&error, doing);
                if life.disk.is_dead() || error.kind() == ErrorKind::ReadOnly {
                    self.is_over = true;
                } else {
                    self.ledger.of_mut(place).take_back();
                }
                None
            }
        }
    }

    fn any_op(&mut self, place: Place) -> Op {
        let place = match place {
            Place::First | Place::Second if self.random.bool() => Place::First,
            Place::First | Place::Second => Place::Second,
            place => place,
        };
        let n = self.random.u16(..KEYS);
        if self.random.u8(..4) == 0 { Op::Delete(place, n) } else { Op::Put(place, n) }
    }

    /// A batch of one operation, or of some, in places that share a log.
    fn write(&mut self) {
        let place = self.any_place();
        if self.family(place).is_none() {
            return self.make_own();
        }
        let count = if self.random.u8(..5) == 0 { self.random.usize(2..8) } else { 1 };
        let ops: Vec<Op> = (0..count).map(|_| self.any_op(place)).collect();
        let serial = self.begin(place, ops.clone());
        let batch = self.batch(&ops, serial).expect("families that are there");
        let disable_wal = place == Place::Unlogged;
        let sync = !disable_wal && self.random.u8(..6) == 0;
        let done = self.viewer.db.write(batch, &WriteOptions { sync, disable_wal });
        if self.end(place, done, "writing").is_some() && sync {
            self.ledger.note_log_durable();
        }
    }

    fn batch(&self, ops: &[Op], serial: u32) -> Result<WriteBatch> {
        let (mut batch, owner) = (WriteBatch::new(), self.viewer.owner);
        let family = |place| self.family(place).expect("a family that is there");
        for op in ops {
            match *op {
                Op::Put(place, n) => batch.put_cf(&family(place), key(owner, n), self.value(n, serial))?,
                Op::Delete(place, n) => batch.delete_cf(&family(place), key(owner, n))?,
                Op::Drop => {}
            }
        }
        Ok(batch)
    }

    fn value(&self, n: u16, serial: u32) -> Vec<u8> {
        value(self.viewer.owner, n, serial, self.viewer.life.value_bytes)
    }

    /// A write that depends on what is there.
    fn write_if(&mut self) {
        let (place, n) = (if self.random.bool() { Place::First } else { Place::Second }, self.random.u16(..KEYS));
        let (viewer, family) = (self.viewer, self.family(place).expect("a family that nobody drops"));
        let held = self.ledger.logged.now().get(&(place, n)).copied();
        // One that is not there is expected now and then.
        let expected =
            if self.random.u8(..4) == 0 { self.random.u32(1..=self.ledger.serial + 1) } else { held.unwrap_or(0) };
        let (way, sync) = (self.random.u8(..3), self.random.u8(..6) == 0);
        let changes = if way == 0 { held.is_none() } else { held == Some(expected) };
        let op = if way == 2 { Op::Delete(place, n) } else { Op::Put(place, n) };
        let serial = if changes { self.begin(place, vec![op]) } else { 0 };
        let (key, old, new) = (key(viewer.owner, n), self.value(n, expected), self.value(n, serial));
        let options = WriteOptions { sync, ..WriteOptions::default() };
        let done = match way {
            0 => viewer.db.put_if_absent(&family, key, new, &options),
            1 => viewer.db.compare_and_set(&family, key, old, new, &options),
            _ => viewer.db.compare_and_delete(&family, key, old, &options),
        };
        let is_unknown = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io);
        if let Some(said) = self.viewer.life.accepted(done.clone(), "writing on a condition") {
            assert_eq!(
                said, changes,
                "{}: a condition of key {n} of thread {} in {place:?}",
                viewer.life, viewer.owner
            );
        }
        if !changes {
            return;
        }
        if is_unknown {
            viewer.life.accept(&done.expect_err("it failed"), "writing on a condition");
            self.is_over = true;
        } else if self.end(place, done, "writing on a condition").is_some() && sync {
            self.ledger.note_log_durable();
        }
    }

    fn make_own(&mut self) {
        let name = Place::Own.family(self.viewer.owner);
        let made = self.viewer.db.create_column_family(&name, self.own_options.clone());
        let is_unknown = made.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnly);
        self.own = self.viewer.life.accepted(made, "making a family");
        self.is_over |= is_unknown || self.own.is_none() && self.viewer.life.disk.is_dead();
    }

    /// The family of its own goes, and comes again.
    fn replace_own(&mut self) {
        let Some(family) = self.own.clone() else { return self.make_own() };
        self.begin(Place::Own, vec![Op::Drop]);
        let dropped = self.viewer.db.drop_column_family(&family);
        if self.end(Place::Own, dropped, "dropping a family").is_some() {
            self.ledger.own.note_durable();
            self.drops += 1;
            self.make_own();
        }
    }

    /// Many keys of its own at once, past the log: into the family of its own, or among keys of others.
    fn load(&mut self) {
        let place = [Place::First, Place::Second, Place::Own, Place::Own][self.random.usize(..4)];
        let Some(family) = self.family(place) else { return self.make_own() };
        let numbers: Vec<u16> = (0..KEYS).filter(|_| self.random.bool()).collect();
        let serial = self.begin(place, numbers.iter().map(|n| Op::Put(place, *n)).collect());
        let (as_file, move_files, verify) = (self.random.bool(), self.random.bool(), self.random.bool());
        let pairs = numbers.iter().map(|n| (key(self.viewer.owner, *n), self.value(*n, serial)));
        let done = if as_file {
            self.ingest(&family, serial, pairs, &IngestOptions { move_files, verify })
        } else {
            self.load_pairs(&family, pairs)
        };
        if self.end(place, done, "loading").is_some() {
            // What is in the log is durable before what comes in past it.
            self.ledger.note_log_durable();
        }
    }

    fn load_pairs(&self, family: &ColumnFamily, mut pairs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        let mut load = self.viewer.db.bulk_load(family)?;
        pairs.try_for_each(|(key, value)| load.put(key, value))?;
        load.finish().map(drop)
    }

    fn ingest(
        &self,
        family: &ColumnFamily,
        serial: u32,
        pairs: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
        options: &IngestOptions,
    ) -> Result<()> {
        let Viewer { life, db, owner } = self.viewer;
        let path = PathBuf::from(format!("/outside/{}-{owner}-{serial}.sst", life.number));
        let mut pairs = pairs.peekable();
        if pairs.peek().is_none() {
            return Ok(());
        }
        life.env().files.create_dir_all(Path::new("/outside"))?;
        let mut file = SstFileWriter::create_with_env(&path, &family.options(), life.env())?;
        pairs.try_for_each(|(key, value)| file.put(key, value))?;
        file.finish()?;
        db.ingest(family, &[path], options).map(drop)
    }

    /// What it has written is there.
    fn read(&mut self) {
        let place = self.any_place();
        if let Some(family) = self.family(place) {
            let state = self.ledger.of(place).now();
            self.viewer.look_at(&family, place, state, None, &mut self.random);
        }
    }

    /// Takes a snapshot, or an iterator, and lets one of before go.
    fn look(&mut self) {
        if self.random.bool() {
            if self.seen.len() == HELD {
                self.seen.swap_remove(self.random.usize(..HELD));
            }
            let (snapshot, state) = (self.viewer.db.snapshot(), self.ledger.now());
            self.seen.push(Seen { snapshot, state, drops: self.drops });
            return;
        }
        let place = self.any_place();
        let Some(family) = self.family(place) else { return };
        if self.walks.len() == HELD {
            self.walks.swap_remove(self.random.usize(..HELD));
        }
        let state = self.ledger.of(place).now();
        let walk = Walk::begin(self.viewer, &family, place, state, None, self.random.bool());
        self.walks.extend(self.viewer.life.accepted(walk, "beginning to walk"));
    }

    /// A snapshot shows what it showed.
    fn look_back(&mut self) {
        let place = self.any_place();
        let Some(seen) = self.seen.last() else { return };
        let is_there = place != Place::Own || seen.drops == self.drops;
        let Some(family) = self.family(place).filter(|_| is_there) else { return };
        let (viewer, snapshot) = (self.viewer, Some(seen.snapshot.clone()));
        if self.random.bool() {
            viewer.look_at(&family, place, &seen.state, snapshot, &mut self.random);
            return;
        }
        let walk = Walk::begin(viewer, &family, place, &seen.state, snapshot, self.random.bool());
        viewer.life.accepted(walk.and_then(|walk| walk.finish(viewer)), "walking through a snapshot");
    }

    /// An iterator shows what comes next.
    fn walk_on(&mut self) {
        if self.walks.is_empty() {
            return;
        }
        let index = self.random.usize(..self.walks.len());
        let went = self.walks[index].go_on(self.viewer, self.random.usize(1..10));
        if self.viewer.life.accepted(went, "walking") != Some(false) {
            self.walks.swap_remove(index);
        }
    }

    /// All that is there is what was written.
    fn compare(&self, place: Place) {
        let Viewer { life, db, owner } = self.viewer;
        let Some(family) = self.family(place) else { return };
        let all = forward(db, &family, &ReadOptions::default());
        // A write of which nobody knows may be there, or may still come.
        let Some(all) = life.accepted(all, "reading all").filter(|_| !self.is_over) else { return };
        let own = all.iter().filter_map(|(key, value)| Some((parse(key).filter(|(of, _)| *of == owner)?.1, value)));
        let found: Vec<_> = own.map(|(n, value)| (n, life.serial_of(owner, n, value, "reading all"))).collect();
        let expected = super::views::entries(self.ledger.of(place).now(), place);
        assert!(expected == found, "{life}: thread {owner} has {found:?} in {place:?}, not {expected:?}");
    }
}
