//! Everything that writes to a store, and everything that looks at it, in one history: what other tests try one by one may go wrong
//! where two meet.

use std::path::PathBuf;

use esker::env::sim::{ReadFault, SimDisk, Survivors};
use esker::{
    Backups, Change, ColumnFamily, Db, DbIterator, ErrorKind, IngestOptions, Options, ReadOptions, Snapshot,
    SstFileWriter, TransactionOptions, WriteOptions,
};
use esker_torture::crash::{FAULTS, Tally, disk, images};
use esker_torture::model::{Contents, Model, Op, backward, contents, forward};
use esker_torture::orders::{self, comparator_of};
use esker_torture::reads::{self, Entries};
use esker_torture::workload::{Ledger, batch, key, may_transact, range, to_batch, value};
use esker_torture::{each_seed, options};
use fastrand::Rng;

const FAMILIES: [&str; 3] = ["default", "reversed", "by_length"];

struct Run<'a> {
    tally: &'a Tally,
    random: Rng,
    background_jobs: usize,
    disk: SimDisk,
    options: Options,
    db: Option<Db>,
    /// What holds now; `ledger` says how it came from `start`.
    model: Model,
    start: Model,
    ledger: Ledger,
    snapshots: Vec<(Snapshot, Model)>,
    /// With the names of their families.
    iterators: Vec<(String, DbIterator, Entries)>,
    reader: Option<Db>,
    /// Files and copies that were made.
    made: u32,
}

impl<'a> Run<'a> {
    fn new(seed: u64, background_jobs: usize, tally: &'a Tally) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options::store_anywhere(&mut random, &FAMILIES, background_jobs);
        let disk = disk(seed);
        disk.env().files.create_dir_all("/made".as_ref()).unwrap();
        let db = Some(Db::open_with_env("/store", options.clone(), disk.env()).unwrap());
        let (model, start) = (Model::new(), Model::new());
        let (snapshots, iterators, ledger) = Default::default();
        Self {
            tally,
            random,
            background_jobs,
            disk,
            options,
            db,
            model,
            start,
            ledger,
            snapshots,
            iterators,
            reader: None,
            made: 0,
        }
    }

    fn db(&self) -> Db {
        self.db.clone().unwrap()
    }

    fn any_family(&mut self) -> ColumnFamily {
        let families = self.db().column_families();
        families[self.random.usize(..families.len())].clone()
    }

    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        format!("/made/{}.sst", self.made).into()
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..36 => self.write(),
            36..42 => self.transact(),
            42..47 => self.write_if(),
            47..52 => self.ingest(),
            52..54 => self.load(),
            54..60 => self.snapshots(),
            60..66 => self.read(),
            66..72 => self.iterators(),
            72..79 => self.flush(),
            79..84 => self.compact(),
            84..87 => self.reclaim(),
            87..89 => self.set_options(),
            89..92 => self.come_and_go(),
            92 | 93 => self.reader(),
            94 => self.copy(),
            95 => self.close(),
            96 | 97 => self.die(),
            _ => self.lose_power(),
        }
    }

    fn wrote(&mut self, ops: Vec<Op>, is_durable: bool) {
        self.model.apply(&ops);
        self.ledger.batches.push(ops);
        self.ledger.acknowledged = self.ledger.batches.len();
        if is_durable {
            self.ledger.durable = self.ledger.acknowledged;
        }
    }

    /// All of it is durable.
    fn settle(&mut self) {
        self.db().sync_wal().unwrap();
        self.start = self.model.clone();
        self.ledger = Ledger::default();
    }

    fn write(&mut self) {
        let ops = batch(&mut self.random, &FAMILIES);
        let sync = self.random.u8(..8) == 0;
        let db = self.db();
        db.write(to_batch(&db, &ops).unwrap(), &WriteOptions { sync, ..WriteOptions::default() }).unwrap();
        self.wrote(ops, sync);
    }

    /// A transaction sees what it has written, above what was there.
    fn transact(&mut self) {
        let ops: Vec<Op> = (0..3).flat_map(|_| batch(&mut self.random, &FAMILIES)).collect();
        let ops: Vec<Op> = ops.into_iter().filter(|op| may_transact(std::slice::from_ref(op))).collect();
        let db = self.db();
        let locking = self.random.bool();
        let mut transaction = db.transaction_with(&TransactionOptions { locking, ..TransactionOptions::default() });
        let mut seen = self.model.clone();
        for op in &ops {
            let (name, key) = op.place();
            let Some(family) = db.column_family(name) else { continue };
            let found = transaction.get_cf(&family, key).unwrap();
            assert_eq!(found.as_deref(), seen.families[name].get(key).map(Vec::as_slice), "{key:?} in a transaction");
            match op {
                Op::Put(_, key, value) => transaction.put_cf(&family, key, value),
                Op::Delete(_, key) => transaction.delete_cf(&family, key),
                Op::Merge(_, key, operand) => transaction.merge_cf(&family, key, operand),
                Op::DeleteRange(..) => unreachable!("a transaction has no ranges"),
            }
            .unwrap();
            seen.apply(std::slice::from_ref(op));
        }
        if self.random.u8(..4) > 0 {
            transaction.commit(&WriteOptions::default()).unwrap();
            self.wrote(ops, false);
        }
    }

    fn write_if(&mut self) {
        let family = self.any_family();
        let (name, key, value) = (family.name().to_owned(), key(&mut self.random), value(&mut self.random));
        let before = self.model.families[&name].get(&key).cloned();
        let (db, options) = (self.db(), WriteOptions::default());
        let expected = before.clone().unwrap_or_default();
        let (is_done, op) = match self.random.u8(..4) {
            0 => {
                let is_done = db.put_if_absent(&family, &key, &value, &options).unwrap();
                assert_eq!(is_done, before.is_none(), "put_if_absent {key:?}");
                (is_done, Op::Put(name, key, value))
            }
            1 => {
                let is_done = db.compare_and_set(&family, &key, &expected, &value, &options).unwrap();
                assert_eq!(is_done, before.is_some(), "compare_and_set {key:?}");
                (is_done, Op::Put(name, key, value))
            }
            2 => {
                let is_done = db.compare_and_delete(&family, &key, &expected, &options).unwrap();
                assert_eq!(is_done, before.is_some(), "compare_and_delete {key:?}");
                (is_done, Op::Delete(name, key))
            }
            _ => {
                let found = db.update(&family, &key, &options, |_| Change::Put(value.clone())).unwrap();
                assert_eq!(found.as_deref(), before.as_deref(), "update {key:?}");
                (true, Op::Put(name, key, value))
            }
        };
        if is_done {
            self.wrote(vec![op], false);
        }
    }

    /// Files with entries of all kinds: a later one's are newer.
    fn ingest(&mut self) {
        let family = self.any_family();
        let (mut paths, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..self.random.usize(1..=3) {
            let path = self.new_path();
            let mut file = SstFileWriter::create_with_env(&path, &family.options(), self.disk.env()).unwrap();
            let name = || family.name().to_owned();
            if self.random.u8(..3) == 0 {
                let (begin, end) = range(&mut self.random, family.name());
                file.delete_range(&begin, &end).unwrap();
                taken.push(Op::DeleteRange(name(), begin, end));
            }
            let keys: Contents = (0..5).map(|_| (key(&mut self.random), value(&mut self.random))).collect();
            for (key, value) in orders::entries(family.name(), &keys) {
                taken.push(
                    match self.random.u8(..4) {
                        0 => file.delete(&key).map(|()| Op::Delete(name(), key)),
                        1 => file.merge(&key, &value).map(|()| Op::Merge(name(), key, value)),
                        _ => file.put(&key, &value).map(|()| Op::Put(name(), key, value)),
                    }
                    .unwrap(),
                );
            }
            file.finish().unwrap();
            paths.push(path);
        }
        let how = IngestOptions { move_files: self.random.bool(), verify: self.random.bool() };
        self.db().ingest(&family, &paths, &how).unwrap();
        self.wrote(taken, true);
    }

    /// What is written while a load is under way is older.
    fn load(&mut self) {
        let family = self.any_family();
        let mut load = self.db().bulk_load(&family).unwrap();
        let keys: Contents = (0..8).map(|_| (key(&mut self.random), value(&mut self.random))).collect();
        let mut loaded = Vec::new();
        for (key, value) in orders::entries(family.name(), &keys) {
            load.put(&key, &value).unwrap();
            loaded.push(Op::Put(family.name().to_owned(), key, value));
        }
        self.write();
        load.finish().unwrap();
        self.wrote(loaded, true);
    }

    fn snapshots(&mut self) {
        if self.snapshots.len() < 4 && self.random.u8(..3) > 0 {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        } else if !self.snapshots.is_empty() {
            let index = self.random.usize(..self.snapshots.len());
            self.snapshots.swap_remove(index);
        }
    }

    /// The present, or a snapshot and what held then.
    fn a_moment(&mut self, family: &ColumnFamily) -> (ReadOptions, Contents) {
        let mut options =
            ReadOptions { look_ahead_bytes: [0, 1 << 20][self.random.usize(..2)], ..ReadOptions::default() };
        if self.snapshots.is_empty() || self.random.bool() {
            return (options, self.model.families[family.name()].clone());
        }
        let (snapshot, model) = &self.snapshots[self.random.usize(..self.snapshots.len())];
        options.snapshot = Some(snapshot.clone());
        (options, model.families[family.name()].clone())
    }

    fn read(&mut self) {
        let family = self.any_family();
        let (options, expected) = self.a_moment(&family);
        let db = self.db();
        reads::check(&mut self.random, &db, &family, &options, &expected);
    }

    /// One that was opened some steps ago shows what held then, and what holds now once it is refreshed.
    fn iterators(&mut self) {
        if self.iterators.len() < 3 && self.random.bool() {
            let family = self.any_family();
            let (options, expected) = self.a_moment(&family);
            let expected = orders::entries(family.name(), &expected);
            assert!(forward(&self.db(), &family, &options).unwrap() == expected, "forward");
            assert!(backward(&self.db(), &family, &options).unwrap() == expected, "backward");
            let iterator = self.db().iter_cf(&family, &options).unwrap();
            self.iterators.push((family.name().to_owned(), iterator, expected));
        } else if !self.iterators.is_empty() {
            let index = self.random.usize(..self.iterators.len());
            let (name, mut iterator, expected) = self.iterators.swap_remove(index);
            let wanted = key(&mut self.random);
            iterator.seek(&wanted).unwrap();
            for (key, value) in
                &expected[expected.partition_point(|(key, _)| comparator_of(&name).compare(key, &wanted).is_lt())..]
            {
                assert!(
                    iterator.valid() && iterator.key() == key && iterator.value().unwrap() == *value,
                    "{key:?} later"
                );
                iterator.next().unwrap();
            }
            assert!(!iterator.valid(), "an entry that was not there");
        }
    }

    fn flush(&mut self) {
        let family = self.any_family();
        if self.random.bool() {
            return self.db().flush_cf(&family).unwrap();
        }
        self.db().flush().unwrap();
        self.ledger.durable = self.ledger.acknowledged;
    }

    fn compact(&mut self) {
        let family = self.any_family();
        let (begin, end) = range(&mut self.random, family.name());
        let is_part = self.random.bool();
        self.db().compact_range(&family, is_part.then_some(&begin[..]), is_part.then_some(&end[..])).unwrap();
    }

    fn reclaim(&mut self) {
        let family = self.any_family();
        self.db().reclaim(&family, [0.0, 0.05, 0.5][self.random.usize(..3)]).unwrap();
    }

    fn set_options(&mut self) {
        let family = self.any_family();
        let changed = options::changed(&mut self.random, &family.options());
        self.db().set_options(&family, |now| *now = changed.clone()).unwrap();
    }

    fn come_and_go(&mut self) {
        let name = FAMILIES[self.random.usize(1..3)];
        self.settle();
        // What they show of a family that is dropped is not looked at.
        self.snapshots.clear();
        if let Some(family) = self.db().column_family(name) {
            self.db().drop_column_family(&family).unwrap();
            self.model.families.remove(name);
            let mut late =
                to_batch(&self.db(), &[Op::Put("default".to_owned(), b"late".to_vec(), Vec::new())]).unwrap();
            if late.put_cf(&family, b"late", b"").is_ok() {
                self.db().write(late, &WriteOptions::default()).unwrap_err();
            }
        } else {
            self.db().create_column_family(name, self.options.families[name].clone()).unwrap();
            self.model.families.insert(name.to_owned(), Contents::new());
        }
        self.start = self.model.clone();
    }

    /// Another process looks, and again.
    fn reader(&mut self) {
        let reader = match self.reader.take() {
            Some(reader) => reader.catch_up().unwrap(),
            None => Db::open_read_only_with_env("/store", self.options.clone(), self.disk.env()).unwrap(),
        };
        assert!(contents(&reader).unwrap() == self.model, "a reader");
        self.reader = Some(reader);
    }

    /// A copy is what the store is, and durable.
    fn copy(&mut self) {
        self.made += 1;
        let target = format!("/made/copy{}", self.made);
        if self.random.bool() {
            self.db().checkpoint(&target).unwrap();
        } else {
            let set = Backups::open_with_env("/made/set", self.disk.env()).unwrap();
            let made = set.create(&self.db(), &mut |_| {}).unwrap();
            set.restore(made.info.id, &target, &mut |_| {}).unwrap();
            set.keep_newest(2).unwrap();
        }
        let disk = self.disk.after_power_loss(Survivors::Nothing);
        let copy = Db::open_with_env(&target, Options { wal_dir: None, ..self.options.clone() }, disk.env()).unwrap();
        assert!(contents(&copy).unwrap() == self.model, "a copy");
        let check = copy.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "a copy: {:?}", check.errors);
    }

    /// Everybody who looks at the store goes. It opens with other options, repaired now and then.
    fn again(&mut self, disk: SimDisk) -> Model {
        self.tally.image();
        (self.snapshots, self.iterators, self.reader, self.db) = Default::default();
        self.disk = disk;
        let store = options::store(&mut self.random, &FAMILIES, self.background_jobs);
        let random = &mut self.random;
        let families = self.options.families.iter().map(|(name, now)| (name.clone(), options::changed(random, now)));
        self.options = Options { families: families.collect(), wal_dir: self.options.wal_dir.take(), ..store };
        if self.random.u8(..4) == 0 {
            Db::repair_with_env("/store", self.options.clone(), self.disk.env()).unwrap();
        }
        let db = Db::open_with_env("/store", self.options.clone(), self.disk.env()).unwrap();
        let found = contents(&db).unwrap();
        self.db = Some(db);
        found
    }

    fn close(&mut self) {
        (self.snapshots, self.iterators) = Default::default();
        self.db.take().unwrap().close().unwrap();
        let disk = self.disk.after_power_loss(Survivors::Nothing);
        assert!(self.again(disk) == self.model, "after a close, and a power loss");
        self.settle();
    }

    fn die(&mut self) {
        let left = self.disk.after_process_death();
        assert!(self.again(left) == self.model, "after the death of the process");
        self.settle();
    }

    fn lose_power(&mut self) {
        let seed = self.random.u64(..);
        let survivors = [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed }];
        let left = self.disk.after_power_loss(survivors[self.random.usize(..3)]);
        let found = self.again(left);
        let kept = self.ledger.prefix(&self.start, &found, self.ledger.durable);
        assert!(kept.is_some(), "after a power loss: none of the states since what was durable");
        self.model = found;
        self.settle();
    }

    /// A call of the disk fails while something is done: nothing was written, or the store takes no more writes and may have taken this one.
    fn fail(&mut self) {
        let (family, db) = (self.any_family(), self.db());
        let within = [4, 12, 40][self.random.usize(..3)];
        let n = self.disk.op_count() + self.random.u64(..within);
        let fault = FAULTS[self.random.usize(..FAULTS.len())];
        match self.random.u8(..3) {
            0 => self.disk.fail_at(n, fault),
            1 => self.disk.fail_next_sync(n, fault),
            _ => self.disk.fail_read_at(self.disk.read_count() + self.random.u64(..within), ReadFault::Eio),
        }
        let mut ops = Vec::new();
        let roll = self.random.u8(..10);
        let done = match roll {
            0..4 => {
                ops = batch(&mut self.random, &FAMILIES);
                let options = WriteOptions { sync: roll < 2, ..WriteOptions::default() };
                to_batch(&db, &ops).and_then(|batch| db.write(batch, &options))
            }
            4 => {
                let (key, value) = (key(&mut self.random), value(&mut self.random));
                let mut load = db.bulk_load(&family);
                let put = load.as_mut().map_or(Ok(()), |load| load.put(&key, &value));
                ops.push(Op::Put(family.name().to_owned(), key, value));
                load.and_then(|load| put.and_then(|()| load.finish().map(drop)))
            }
            5 => db.flush(),
            6 => db.sync_wal(),
            7 => db.compact_range(&family, None, None),
            8 => db.reclaim(&family, 0.0).map(drop),
            _ => {
                let changed = options::changed(&mut self.random, &family.options());
                db.set_options(&family, |now| *now = changed.clone())
            }
        };
        self.disk.heal();
        if done.is_err() {
            self.tally.fault();
        }
        match done {
            Ok(()) => self.wrote(ops, [0, 1, 4, 5, 6].contains(&roll)),
            Err(error) if error.kind() == ErrorKind::ReadOnly => self.ledger.batches.push(ops),
            Err(error) => assert!(contents(&db).unwrap() == self.model, "after {error}"),
        }
        drop((family, db));
        if self.db().stats().background_error.is_none() {
            return;
        }
        let mut left: Vec<_> = images(&self.disk, n).collect();
        let image = left.swap_remove(self.random.usize(..left.len()));
        let found = self.again(image.disk);
        let kept = self.ledger.prefix(&self.start, &found, self.ledger.least(image.promise));
        assert!(kept.is_some(), "after a failure and {}: none of the states since what was promised", image.name);
        self.model = found;
        self.settle();
    }

    fn finish(mut self) {
        let db = self.db();
        assert!(contents(&db).unwrap() == self.model, "at the end");
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{:?}", check.errors);
        self.close();
    }
}

fn run(seed: u64, background_jobs: usize, fails_in_100: u8, tally: &Tally) {
    let mut run = Run::new(seed, background_jobs, tally);
    for _ in 0..200 {
        if run.random.u8(..100) < fails_in_100 { run.fail() } else { run.step() }
    }
    run.finish();
}

/// Goal: whatever writes and whatever looks meet in a history, all answers are those of a map, and a power loss leaves one of its states.
#[test]
fn histories_of_everything_answer_as_a_map_does() {
    let tally = Tally::new("histories_of_everything_answer_as_a_map_does");
    each_seed(40, |seed| run(seed, 0, 0, &tally));
}

/// The same where calls of the disk fail: none of it takes back what was acknowledged, or leaves what was refused.
#[test]
fn histories_of_everything_in_which_calls_fail_answer_as_a_map_does() {
    let tally = Tally::new("histories_of_everything_in_which_calls_fail_answer_as_a_map_does");
    each_seed(20, |seed| run(seed, 0, 15, &tally));
}

/// The same with real background threads.
#[test]
fn histories_of_everything_beside_background_threads_answer_as_a_map_does() {
    let tally = Tally::new("histories_of_everything_beside_background_threads_answer_as_a_map_does");
    each_seed(8, |seed| run(seed, 2, 0, &tally));
}
