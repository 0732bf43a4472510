//! A reader that catches up with a store, again and again: each of its handles shows one moment, the one at which it was made, and all of it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    ColumnFamily, Db, ErrorKind, FamilyOptions, IngestOptions, Options, ReadOptions, Separation, Snapshot,
    SstFileWriter, WriteBatch, WriteOptions,
};
use esker_torture::crash::disk;
use esker_torture::hooked::{Call, Meanwhile};
use esker_torture::model::{Model, contents};
use esker_torture::workload::{batch, key, to_batch, value};
use esker_torture::{each_seed, options, orders, reads};
use fastrand::Rng;

const FAMILIES: [&str; 3] = ["default", "reversed", "by_length"];

/// Handles that are kept; a new one takes the place of any.
const HANDLES_MAX: usize = 5;

/// A handle for reading, and what it shows for good.
struct Reader {
    db: Db,
    model: Model,
    /// Made when it was, too.
    snapshot: Snapshot,
}

impl Reader {
    fn new(db: Db, model: &Model, what: &str) -> Self {
        assert!(contents(&db).unwrap() == *model, "{what}");
        Self { snapshot: db.snapshot(), db, model: model.clone() }
    }
}

struct Run {
    random: Rng,
    disk: SimDisk,
    options: Options,
    /// `None` only while it is opened again.
    writer: Option<Db>,
    model: Model,
    readers: Vec<Reader>,
    files: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options::store_anywhere(&mut random, &FAMILIES, 0);
        let disk = disk(seed);
        let writer = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let mut run =
            Self { random, disk, options, writer: Some(writer), model: Model::new(), readers: Vec::new(), files: 0 };
        run.open_reader("at first");
        run
    }

    fn open_reader(&mut self, what: &str) {
        let db = Db::open_read_only_with_env("/store", self.options.clone(), self.disk.env()).unwrap();
        self.readers = vec![Reader::new(db, &self.model, what)];
    }

    fn db(&self) -> Db {
        self.writer.clone().unwrap()
    }

    fn any_family(&mut self) -> ColumnFamily {
        let families = self.db().column_families();
        families[self.random.usize(..families.len())].clone()
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..45 => self.write(),
            45..65 => self.catch_up(),
            65..73 => self.look_at_one(),
            73..78 => self.db().flush().unwrap(),
            78..81 => {
                let family = self.any_family();
                self.db().compact_range(&family, None, None).unwrap();
            }
            81..83 => self.reclaim(),
            83..87 => self.come_and_go(),
            87..90 => self.bring(),
            90..92 => self.delete_files(),
            92..95 => self.write_in_vain(),
            95..97 => self.reopen(),
            97 => self.die(),
            98 => self.lose_power(),
            _ => self.go_back(),
        }
    }

    fn write(&mut self) {
        let ops = batch(&mut self.random, &FAMILIES);
        let options = WriteOptions { sync: self.random.u8(..8) == 0, ..WriteOptions::default() };
        self.db().write(to_batch(&self.db(), &ops).unwrap(), &options).unwrap();
        self.model.apply(&ops);
    }

    fn catch_up(&mut self) {
        let from = self.random.usize(..self.readers.len());
        let db = self.readers[from].db.catch_up().unwrap();
        let reader = Reader::new(db, &self.model, "caught up");
        if self.readers.len() < HANDLES_MAX {
            self.readers.push(reader);
        } else {
            let place = self.random.usize(..HANDLES_MAX);
            self.readers[place] = reader;
        }
    }

    fn look_at_one(&mut self) {
        let at = self.random.usize(..self.readers.len());
        let Reader { db, model, snapshot } = &self.readers[at];
        assert!(contents(db).unwrap() == *model, "an older handle");
        let families = db.column_families();
        let family = &families[self.random.usize(..families.len())];
        let snapshot = self.random.bool().then(|| snapshot.clone());
        let options = ReadOptions { snapshot, fill_cache: self.random.bool(), ..ReadOptions::default() };
        reads::check(&mut self.random, db, family, &options, &model.families[family.name()]);
    }

    fn reclaim(&mut self) {
        let family = self.any_family();
        if self.random.bool() {
            let modes = [Separation::Off, Separation::AtFlush, Separation::AtWrite, Separation::FallBack];
            self.db().set_separation(&family, modes[self.random.usize(..4)]).unwrap();
        } else {
            self.db().reclaim(&family, [0.0, 0.2, 0.5][self.random.usize(..3)]).unwrap();
        }
    }

    fn come_and_go(&mut self) {
        let name = FAMILIES[self.random.usize(1..3)];
        let db = self.db();
        if let Some(family) = db.column_family(name) {
            db.drop_column_family(&family).unwrap();
            self.model.families.remove(name);
        }
        if self.random.u8(..4) > 0 {
            db.create_column_family(name, self.options.families[name].clone()).unwrap();
            self.model.families.insert(name.to_owned(), Default::default());
        }
    }

    /// Files from outside, or a sorted load.
    fn bring(&mut self) {
        let (db, family) = (self.db(), self.any_family());
        let entries: std::collections::BTreeMap<_, _> =
            (0..self.random.usize(1..20)).map(|_| (key(&mut self.random), value(&mut self.random))).collect();
        let entries = orders::entries(family.name(), &entries);
        if self.random.bool() {
            self.files += 1;
            let path = PathBuf::from(format!("/brought-{}.sst", self.files));
            let options = &self.options.families[family.name()];
            let mut file = SstFileWriter::create_with_env(&path, options, self.disk.env()).unwrap();
            entries.iter().for_each(|(key, value)| file.put(key, value).unwrap());
            file.finish().unwrap();
            let options = IngestOptions { move_files: self.random.bool(), ..IngestOptions::default() };
            db.ingest(&family, &[path], &options).unwrap();
        } else {
            let mut load = db.bulk_load(&family).unwrap();
            entries.iter().for_each(|(key, value)| load.put(key, value).unwrap());
            // Its sequence numbers lie far ahead of what is written meanwhile.
            self.write();
            if self.random.bool() {
                self.catch_up();
            }
            load.finish().unwrap();
        }
        self.model.families.get_mut(family.name()).unwrap().extend(entries);
    }

    /// Which keys go with the files, the writer says.
    fn delete_files(&mut self) {
        let family = self.any_family();
        let (begin, end) = (key(&mut self.random), key(&mut self.random));
        if orders::comparator_of(family.name()).compare(&begin, &end).is_lt() {
            self.db().delete_files_in_range(&family, Some(&begin), Some(&end)).unwrap();
            self.model = contents(&self.db()).unwrap();
        }
    }

    /// An append fails, midway perhaps; who catches up meanwhile must not mind.
    fn write_in_vain(&mut self) {
        let kept_bytes = self.random.usize(..300);
        let faults = [Fault::NoSpace, Fault::Eio, Fault::EioAfter, Fault::ShortWrite { kept_bytes }];
        let fault = faults[self.random.usize(..4)];
        self.disk.fail_at(self.disk.op_count() + self.random.u64(..3), fault);
        let ops = batch(&mut self.random, &FAMILIES);
        let written = to_batch(&self.db(), &ops).and_then(|batch| self.db().write(batch, &WriteOptions::default()));
        self.disk.heal();
        match written {
            Ok(()) => self.model.apply(&ops),
            Err(error) if matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::Io) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
                self.writer.take().unwrap().close().unwrap_err();
                self.open_writer();
                self.model = contents(&self.db()).unwrap();
            }
        }
    }

    fn open_writer(&mut self) {
        self.writer = Some(Db::open_with_env("/store", self.options.clone(), self.disk.env()).unwrap());
    }

    fn reopen(&mut self) {
        self.writer.take().unwrap().close().unwrap();
        if self.random.bool() {
            self.catch_up();
        }
        self.open_writer();
    }

    /// The process of the writer dies. The disk is another one from then on, so the first reader sees what it left, and goes on from there.
    fn die(&mut self) {
        let db = self.writer.take().unwrap();
        self.disk = self.disk.after_process_death();
        std::mem::forget(db);
        self.open_reader("after a death");
        self.open_writer();
    }

    fn lose_power(&mut self) {
        let db = self.writer.take().unwrap();
        self.disk = self.disk.after_power_loss(Survivors::Sample { seed: self.random.u64(..) });
        std::mem::forget(db);
        let before = Db::open_read_only_with_env("/store", self.options.clone(), self.disk.env()).unwrap();
        self.open_writer();
        self.model = contents(&self.db()).unwrap();
        self.readers = vec![Reader::new(before, &self.model, "after a power loss")];
    }

    /// The store is restored from a copy, and other files come to the same names.
    fn go_back(&mut self) {
        let copy = |disk: &SimDisk| -> Vec<_> {
            let paths = disk.paths().into_iter().filter(|path| path.starts_with("/store") || path.starts_with("/logs"));
            paths.map(|path| (disk.file_bytes(&path).unwrap(), path)).collect()
        };
        self.writer.take().unwrap().close().unwrap();
        let (files, model) = (copy(&self.disk), self.model.clone());
        self.open_writer();
        for _ in 0..self.random.usize(1..4) {
            self.write();
        }
        self.db().flush().unwrap();
        self.catch_up();
        self.writer.take().unwrap().close().unwrap();
        for (_, path) in copy(&self.disk) {
            self.disk.env().files.remove(&path).unwrap();
        }
        for (bytes, path) in files {
            self.disk.overwrite(&path, bytes);
        }
        self.model = model;
        self.open_writer();
        for _ in 0..self.random.usize(1..4) {
            self.write();
        }
        self.db().flush().unwrap();
        self.catch_up();
    }

    fn finish(mut self) {
        self.catch_up();
        for Reader { db, model, .. } in &self.readers {
            assert!(contents(db).unwrap() == *model, "at the end");
        }
        self.writer.take().unwrap().close().unwrap();
        for Reader { db, model, .. } in std::mem::take(&mut self.readers) {
            assert!(contents(&db).unwrap() == model, "after the writer");
            db.close().unwrap();
        }
        assert!(self.disk.env().files.claim_dir("/store".as_ref()).is_ok(), "nobody shares the directory any more");
    }
}

/// Goal: whatever the writer does between two of them, a handle that has caught up shows what an open would, and older ones what they did.
#[test]
fn handles_that_catch_up_show_each_moment_as_a_map_does() {
    each_seed(150, |seed| {
        let mut run = Run::new(seed);
        (0..120).for_each(|_| run.step());
        run.finish();
    });
}

/// Goal: a record whose append fails, though all of it got there, is taken back by its writer; who has seen it meanwhile goes on seeing it, and nobody
/// else does, though the next record comes to its place and has its sequence number.
#[test]
fn a_record_that_was_seen_and_taken_back_is_shown_to_nobody_else() {
    let disk = SimDisk::new();
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    let meanwhile = Meanwhile::default();
    let writer = Db::open_with_env("/store", options.clone(), meanwhile.env(&disk)).unwrap();
    writer.put("a", "1").unwrap();
    let first = Db::open_read_only_with_env("/store", options, disk.env()).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let (from, to) = (first.clone(), seen.clone());
    let is_it =
        |call: Call<'_>| matches!(call, Call::Truncate(path) if path.extension().is_some_and(|found| found == "log"));
    meanwhile.before(is_it, move || *to.lock().unwrap() = Some(from.catch_up().unwrap()));
    disk.fail_at(disk.op_count(), Fault::EioAfter);
    assert_eq!(writer.put("b", "1").unwrap_err().kind(), ErrorKind::Io);
    disk.heal();
    assert!(meanwhile.is_done());
    let seen = seen.lock().unwrap().take().unwrap();
    let none = seen.catch_up().unwrap();
    writer.put("b", "2").unwrap();
    let [of_first, of_seen, of_none] = [&first, &seen, &none].map(|db| db.catch_up().unwrap());
    let b = |db: &Db| db.get("b").unwrap().map(|value| value.to_vec());
    assert_eq!([&first, &seen, &none].map(b), [None, Some(b"1".to_vec()), None]);
    for next in [&of_first, &of_seen, &of_none] {
        assert_eq!((b(next), next.iter().unwrap().entries().count()), (Some(b"2".to_vec()), 2));
    }
}

/// Goal: beside a writer who writes and flushes all the time, on the real system, each handle is one moment, no older than the one before it.
#[test]
fn handles_that_catch_up_beside_a_writer_show_one_moment_each() {
    const HANDLES: u64 = 200;
    let place = tempfile::tempdir().unwrap();
    for separation in [Separation::Off, Separation::AtFlush, Separation::AtWrite] {
        let path = place.path().join(format!("{separation:?}"));
        let family =
            FamilyOptions { separation, min_blob_size: 100, write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
        let options = Options {
            create_if_missing: true,
            families: [("default".to_owned(), family.clone()), ("second".to_owned(), family.clone())].into(),
            background_jobs: 1,
            ..Options::default()
        };
        let db = Db::open(&path, options.clone()).unwrap();
        let second = db.create_column_family("second", family).unwrap();
        let set = |n: u64| {
            let mut batch = WriteBatch::new();
            let number = format!("{n:0500}");
            batch.put("number", &number).unwrap();
            batch.put_cf(&second, "number", &number).unwrap();
            batch.put_cf(&second, n.to_be_bytes(), &number).unwrap();
            db.write(batch, &WriteOptions::default()).unwrap();
        };
        set(0);
        let first = Db::open_read_only(&path, options).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            let asked = is_over.clone();
            let (db, set) = (&db, &set);
            scope.spawn(move || {
                for n in (1..).take_while(|_| !asked.load(Ordering::Relaxed)) {
                    set(n);
                    if n % 1000 == 0 {
                        db.flush().unwrap();
                    }
                }
            });
            let number = |db: &Db, family: &ColumnFamily| -> u64 {
                let value = db.get_cf(family, "number", &ReadOptions::default()).unwrap().unwrap();
                std::str::from_utf8(&value).unwrap().parse().unwrap()
            };
            let check = |db: &Db| {
                let second = db.column_family("second").unwrap();
                let n = number(db, &db.default_column_family());
                assert_eq!(n, number(db, &second));
                for (key, is_there) in [(n, true), (n / 2, true), (n + 1, false)] {
                    let is = db.exists_cf(&second, key.to_be_bytes(), &ReadOptions::default()).unwrap();
                    assert_eq!(is, is_there, "{key} at {n}");
                }
                n
            };
            // However this ends, the writer does.
            let _end = End(&is_over);
            let (mut last, n) = (0, check(&first));
            let mut kept = vec![(first, n)];
            for _ in 0..HANDLES {
                let from = &kept.last().unwrap().0;
                let next = from.catch_up();
                if next.as_ref().is_err_and(|error| error.kind() == ErrorKind::Busy) {
                    continue;
                }
                let next = next.unwrap();
                let n = check(&next);
                assert!(n >= last, "{n} after {last}");
                last = n;
                kept.push((next, n));
                if kept.len() > 4 {
                    let (oldest, n) = kept.remove(0);
                    assert_eq!(check(&oldest), n);
                }
            }
            assert!(last > 0);
        });
    }
}

/// Says that it is over when it goes.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
