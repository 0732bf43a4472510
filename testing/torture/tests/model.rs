//! Same answers as a map, whatever the options: random operations on a simulated disk.

use esker::env::sim::SimDisk;
use esker::{ColumnFamily, Db, Options, ReadOptions, Snapshot, WriteOptions};
use esker_torture::crash::disk;
use esker_torture::model::{Contents, Model, backward, contents, forward};
use esker_torture::orders::{self, comparator_of};
use esker_torture::workload::{batch, key, may_transact, to_batch, transact};
use esker_torture::{each_seed, options, reads};
use fastrand::Rng;

const FAMILIES: [&str; 3] = ["default", "reversed", "by_length"];

struct Run {
    random: Rng,
    disk: SimDisk,
    options: Options,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn new(seed: u64, background_jobs: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options::store_anywhere(&mut random, &FAMILIES, background_jobs);
        let disk = disk(seed);
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        Self { random, disk, options, db: Some(db), model: Model::new(), snapshots: Vec::new() }
    }

    fn db(&self) -> Db {
        self.db.clone().unwrap()
    }

    fn any_family(&mut self) -> ColumnFamily {
        let families = self.db().column_families();
        families[self.random.usize(..families.len())].clone()
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..55 => self.write(),
            55..72 => self.get(),
            72..78 => self.walk(),
            78..80 => self.read_every_way(),
            80..84 => self.scan_whole(),
            84..89 => self.snapshots(),
            89..92 => self.db().flush().unwrap(),
            92 => self.compact(),
            93 => self.reclaim(),
            94..97 => self.come_and_go(),
            _ => self.reopen(),
        }
    }

    fn write(&mut self) {
        let ops = batch(&mut self.random, &FAMILIES);
        let options = WriteOptions { sync: self.random.u8(..8) == 0, ..WriteOptions::default() };
        if self.random.u8(..4) == 0 && may_transact(&ops) {
            transact(&self.db(), &ops, &options).unwrap();
        } else {
            self.db().write(to_batch(&self.db(), &ops).unwrap(), &options).unwrap();
        }
        self.model.apply(&ops);
    }

    /// The present, or a snapshot and what held then.
    fn a_moment(&mut self, family: &str) -> (ReadOptions, Contents) {
        let mut options = ReadOptions { fill_cache: self.random.bool(), ..ReadOptions::default() };
        if self.snapshots.is_empty() || self.random.bool() {
            return (options, self.model.families[family].clone());
        }
        let (snapshot, model) = &self.snapshots[self.random.usize(..self.snapshots.len())];
        options.snapshot = Some(snapshot.clone());
        (options, model.families.get(family).cloned().unwrap_or_default())
    }

    fn get(&mut self) {
        let family = self.any_family();
        let (options, expected) = self.a_moment(family.name());
        for _ in 0..5 {
            let key = key(&mut self.random);
            let found = self.db().get_cf(&family, &key, &options).unwrap();
            assert_eq!(found.as_deref(), expected.get(&key).map(Vec::as_slice), "get {key:?}");
            assert_eq!(self.db().exists_cf(&family, &key, &options).unwrap(), expected.contains_key(&key));
        }
    }

    fn scan_whole(&mut self) {
        let family = self.any_family();
        let (options, expected) = self.a_moment(family.name());
        let expected = orders::entries(family.name(), &expected);
        assert!(forward(&self.db(), &family, &options).unwrap() == expected, "forward");
        assert!(backward(&self.db(), &family, &options).unwrap() == expected, "backward");
    }

    fn read_every_way(&mut self) {
        let family = self.any_family();
        let (options, expected) = self.a_moment(family.name());
        let db = self.db();
        reads::check(&mut self.random, &db, &family, &options, &expected);
    }

    /// A random walk within random bounds.
    fn walk(&mut self) {
        let family = self.any_family();
        let (mut options, expected) = self.a_moment(family.name());
        options.lower_bound = self.random.bool().then(|| key(&mut self.random));
        options.upper_bound = self.random.bool().then(|| key(&mut self.random));
        let expected = reads::within(family.name(), &expected, &options);
        let order = comparator_of(family.name());
        options.look_ahead_bytes = [0, 700, 1 << 20][self.random.usize(..3)];
        let mut iterator = self.db().iter_cf(&family, &options).unwrap();
        let mut at: Option<usize> = None;
        let asks_one_in = self.random.u8(1..=3);
        for _ in 0..12 {
            let wanted = key(&mut self.random);
            match self.random.u8(..10) {
                0 => {
                    iterator.seek_to_first().unwrap();
                    at = (!expected.is_empty()).then_some(0);
                }
                1 => {
                    iterator.seek_to_last().unwrap();
                    at = expected.len().checked_sub(1);
                }
                2 => {
                    iterator.seek(&wanted).unwrap();
                    at = Some(expected.partition_point(|(k, _)| order.compare(k, &wanted).is_lt()))
                        .filter(|&i| i < expected.len());
                }
                3 => {
                    iterator.seek_for_prev(&wanted).unwrap();
                    at = expected.partition_point(|(k, _)| order.compare(k, &wanted).is_le()).checked_sub(1);
                }
                4..7 => {
                    iterator.prev().unwrap();
                    at = at.and_then(|i| i.checked_sub(1));
                }
                _ => {
                    iterator.next().unwrap();
                    at = at.map(|i| i + 1).filter(|&i| i < expected.len());
                }
            }
            assert_eq!(iterator.valid(), at.is_some());
            if let Some((key, value)) = at.map(|i| &expected[i]) {
                assert_eq!(iterator.key(), key);
                if self.random.u8(..asks_one_in) == 0 {
                    assert!(iterator.value().unwrap() == *value, "value of {key:?}");
                }
            }
        }
    }

    fn snapshots(&mut self) {
        if self.snapshots.len() < 4 && self.random.bool() {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        } else if !self.snapshots.is_empty() {
            let index = self.random.usize(..self.snapshots.len());
            self.snapshots.swap_remove(index);
        }
    }

    fn compact(&mut self) {
        let family = self.any_family();
        let (begin, end) = (key(&mut self.random), key(&mut self.random));
        let begin = self.random.bool().then_some(begin);
        let end = self.random.bool().then_some(end);
        self.db().compact_range(&family, begin.as_deref(), end.as_deref()).unwrap();
    }

    fn reclaim(&mut self) {
        let family = self.any_family();
        if self.random.bool() {
            let seed = self.random.u64(..);
            self.db().set_options(&family, |now| *now = options::changed(&mut Rng::with_seed(seed), now)).unwrap();
        } else {
            self.db().reclaim(&family, [0.0, 0.2, 0.5][self.random.usize(..3)]).unwrap();
        }
    }

    fn come_and_go(&mut self) {
        let name = FAMILIES[self.random.usize(1..3)];
        // A dropped family's keys are gone from every snapshot's view of the new one of that name.
        match self.db().column_family(name) {
            Some(family) if self.random.u8(..3) == 0 => {
                self.db().drop_column_family(&family).unwrap();
                self.model.families.remove(name);
                self.snapshots.clear();
            }
            Some(_) => {}
            None => {
                self.db().create_column_family(name, self.options.families[name].clone()).unwrap();
                self.model.families.insert(name.to_owned(), Contents::new());
                self.snapshots.clear();
            }
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        let closes = self.random.bool();
        if closes {
            db.close().unwrap();
        } else {
            // The process dies: nothing that was written may be lost.
            self.disk = self.disk.after_process_death();
            std::mem::forget(db);
        }
        let mut options = self.options.clone();
        if self.random.bool() {
            // What the OPTIONS file says holds.
            options.families.clear();
        }
        let db = Db::open_with_env("/store", options, self.disk.env()).unwrap();
        assert!(contents(&db).unwrap() == self.model, "after reopen");
        self.db = Some(db);
    }

    fn finish(mut self) {
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{:?}", check.errors);
        assert!(contents(&db).unwrap() == self.model, "at the end");
        db.close().unwrap();
        let options = Options { families: Default::default(), ..self.options.clone() };
        let db = Db::open_read_only_with_env("/store", options, self.disk.env()).unwrap();
        assert!(contents(&db).unwrap() == self.model, "read-only");
    }
}

fn run(seed: u64, background_jobs: usize) {
    let mut run = Run::new(seed, background_jobs);
    for _ in 0..120 {
        run.step();
    }
    run.finish();
}

/// Goal: no options and no order of operations change an answer.
/// Method: a thousand seeds, each with random options, 120 random operations, the last of them a full comparison.
#[test]
fn a_thousand_random_histories_answer_as_a_map_does() {
    each_seed(1000, |seed| run(seed, 0));
}

/// The same with real background threads, so that flushes and compactions fall at any moment.
#[test]
fn random_histories_with_background_threads_answer_as_a_map_does() {
    each_seed(60, |seed| run(1_000_000 + seed, 2));
}
