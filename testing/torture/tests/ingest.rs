//! Files that come in from outside, and sorted loads: the same answers as a map, all or nothing at every crash, and nothing
//! left behind by a call that failed. Each is one batch to the ledger of a workload.

use std::collections::BTreeMap;
use std::path::PathBuf;

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    Db, ErrorKind, IngestOptions, Options, ReadOptions, Result, Separation, Snapshot, SstFileWriter, WriteOptions,
};
use esker_torture::crash::{faults, may_end_writes};
use esker_torture::model::{Model, Op, backward, contents, forward};
use esker_torture::workload::{self, Ledger, Step, batch, key, value};
use esker_torture::{each_seed, options, orders, seeds};
use fastrand::Rng;

const FAMILIES: [&str; 2] = ["default", "reversed"];

/// Keys of one file, in order; `None` deletes.
type File = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What happens to a store.
#[derive(Debug, Clone)]
enum Deed {
    Step(Step),
    /// Files for a family, moved or copied, and whether every byte is checked.
    Ingest(String, Vec<File>, IngestOptions),
    /// A sorted load, into a family.
    Load(String, File),
}

impl Deed {
    fn random(random: &mut Rng) -> Self {
        let family = || FAMILIES[0].to_owned();
        match random.u8(..12) {
            0..7 => Self::Step(workload::steps(random, &FAMILIES, 1).remove(0)),
            7..10 => {
                let count = random.usize(1..=3);
                let options = IngestOptions { move_files: random.bool(), verify: random.u8(..4) > 0 };
                let name = FAMILIES[random.usize(..2)].to_owned();
                Self::Ingest(name, (0..count).map(|_| file(random, 6)).collect(), options)
            }
            10 => Self::Load(family(), file(random, 30)),
            _ => Self::Load(FAMILIES[1].to_owned(), file(random, 4)),
        }
    }

    /// What it does to a map.
    fn ops(&self) -> Option<Vec<Op>> {
        let op = |family: &str, (key, value): (&Vec<u8>, &Option<Vec<u8>>)| match value {
            Some(value) => Op::Put(family.to_owned(), key.clone(), value.clone()),
            None => Op::Delete(family.to_owned(), key.clone()),
        };
        match self {
            Self::Step(_) => None,
            Self::Ingest(family, files, _) => Some(files.iter().flatten().map(|entry| op(family, entry)).collect()),
            Self::Load(family, file) => Some(file.iter().map(|entry| op(family, entry)).collect()),
        }
    }
}

/// Up to `count_max` keys: scattered, or all within a few that lie together.
fn file(random: &mut Rng, count_max: usize) -> File {
    let count = random.usize(1..=count_max);
    let narrow = random.bool();
    let from = random.u8(10..50);
    let any_key = |random: &mut Rng| match narrow {
        true => format!("key{:02}{}", from + random.u8(..3), random.u8(..5)).into_bytes(),
        false => key(random),
    };
    let entry = |random: &mut Rng| (any_key(random), (random.u8(..4) > 0).then(|| value(random)));
    (0..count).map(|_| entry(random)).collect()
}

/// Where files are written that a store takes in.
struct Outside {
    disk: SimDisk,
    written: usize,
}

impl Outside {
    fn new(disk: &SimDisk) -> Self {
        disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
        Self { disk: disk.clone(), written: 0 }
    }

    fn write(&mut self, options: &Options, family: &str, file: &File) -> Result<PathBuf> {
        self.written += 1;
        let path = PathBuf::from(format!("/outside/{}.sst", self.written));
        let mut writer = SstFileWriter::create_with_env(&path, &options.families[family], self.disk.env())?;
        for (key, value) in orders::entries(family, file) {
            match value {
                Some(value) => writer.put(&key, value)?,
                None => writer.delete(&key)?,
            }
        }
        writer.finish()?;
        Ok(path)
    }
}

fn perform(db: &Db, options: &Options, outside: &mut Outside, deed: &Deed, ledger: &mut Ledger) -> Result<()> {
    let Some(ops) = deed.ops() else {
        let Deed::Step(step) = deed else { return Ok(()) };
        return workload::run(db, std::slice::from_ref(step), ledger);
    };
    ledger.batches.push(ops);
    match deed {
        Deed::Step(_) => {}
        Deed::Ingest(family, files, chosen) => {
            let handle = db.column_family(family).unwrap();
            let written: Result<Vec<PathBuf>> = files.iter().map(|file| outside.write(options, family, file)).collect();
            let ingested = db.ingest(&handle, &written?, chosen)?;
            assert_eq!(ingested.levels.len(), files.len());
        }
        Deed::Load(family, file) => {
            let mut load = db.bulk_load(&db.column_family(family).unwrap())?;
            for (key, value) in orders::entries(family, file) {
                match value {
                    Some(value) => load.put(&key, &value)?,
                    None => load.delete(&key)?,
                }
            }
            assert_eq!(load.finish()?.entries, file.len() as u64);
        }
    }
    // Both are durable when they return, and with them all that was written before.
    ledger.acknowledged = ledger.batches.len();
    ledger.durable = ledger.acknowledged;
    Ok(())
}

fn open(disk: &SimDisk, options: &Options) -> Result<Db> {
    let db = Db::open_with_env("/store", options.clone(), disk.env())?;
    if db.column_family("reversed").is_none() {
        db.create_column_family("reversed", options.families["reversed"].clone())?;
    }
    Ok(db)
}

fn start() -> Model {
    let mut model = Model::new();
    model.families.insert("reversed".to_owned(), Default::default());
    model
}

fn scene(seed: u64, count: usize) -> (Options, Vec<Deed>) {
    let mut random = Rng::with_seed(seed);
    let options = options::store(&mut random, &FAMILIES, 0);
    let deeds = (0..count).map(|_| Deed::random(&mut random)).collect();
    (options, deeds)
}

struct Run {
    random: Rng,
    disk: SimDisk,
    options: Options,
    db: Option<Db>,
    outside: Outside,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn new(seed: u64, background_jobs: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options::store(&mut random, &FAMILIES, background_jobs);
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        let outside = Outside::new(&disk);
        Self { random, disk, options, db: Some(db), outside, model: start(), snapshots: Vec::new() }
    }

    fn db(&self) -> Db {
        self.db.clone().unwrap()
    }

    fn step(&mut self) {
        let db = self.db();
        match self.random.u8(..100) {
            0..40 => {
                let deed = Deed::random(&mut self.random);
                let mut ledger = Ledger::default();
                perform(&db, &self.options, &mut self.outside, &deed, &mut ledger).unwrap();
                ledger.batches.iter().for_each(|batch| self.model.apply(batch));
            }
            40..60 => {
                let ops = batch(&mut self.random, &FAMILIES);
                db.write(workload::to_batch(&db, &ops).unwrap(), &Default::default()).unwrap();
                self.model.apply(&ops);
            }
            60..80 => self.read(),
            80..90 => self.snapshot(),
            90..94 => {
                let family = db.column_family(FAMILIES[self.random.usize(..2)]).unwrap();
                let modes = [Separation::Off, Separation::AtFlush, Separation::FallBack];
                db.set_separation(&family, modes[self.random.usize(..3)]).unwrap();
            }
            94..96 => {
                let family = db.column_family(FAMILIES[self.random.usize(..2)]).unwrap();
                db.reclaim(&family, 0.2).unwrap();
            }
            _ => self.reopen(),
        }
    }

    fn read(&mut self) {
        let name = FAMILIES[self.random.usize(..2)];
        let mut options = ReadOptions::default();
        let mut expected = self.model.families[name].clone();
        if !self.snapshots.is_empty() && self.random.bool() {
            let (snapshot, model) = &self.snapshots[self.random.usize(..self.snapshots.len())];
            options.snapshot = Some(snapshot.clone());
            expected = model.families[name].clone();
        }
        let (db, family) = (self.db(), self.db().column_family(name).unwrap());
        let keys: Vec<Vec<u8>> =
            (0..8).map(|_| key(&mut self.random)).chain(expected.keys().take(5).cloned()).collect();
        for (key, found) in keys.iter().zip(db.multi_get_cf(&family, &keys, &options).unwrap()) {
            assert_eq!(found.unwrap().as_deref(), expected.get(key).map(Vec::as_slice), "multi_get of {key:?}");
            let got = db.get_cf(&family, key, &options).unwrap();
            assert_eq!(got.as_deref(), expected.get(key).map(Vec::as_slice), "get of {key:?}");
        }
        let expected = orders::entries(name, &expected);
        assert!(forward(&db, &family, &options).unwrap() == expected, "forward");
        assert!(backward(&db, &family, &options).unwrap() == expected, "backward");
    }

    fn snapshot(&mut self) {
        if self.snapshots.len() < 3 && self.random.bool() {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        } else if !self.snapshots.is_empty() {
            self.snapshots.swap_remove(self.random.usize(..self.snapshots.len()));
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        if self.random.bool() {
            db.close().unwrap();
        } else {
            self.disk = self.disk.after_process_death();
            self.outside.disk = self.disk.clone();
            std::mem::forget(db);
        }
        let db = open(&self.disk, &self.options).unwrap();
        assert!(contents(&db).unwrap() == self.model, "after reopen");
        self.db = Some(db);
    }

    fn finish(mut self) {
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{:?}", check.errors);
        let stats = db.stats();
        assert!(stats.background_error.is_none(), "{:?}", stats.background_error);
        assert!(contents(&db).unwrap() == self.model, "at the end");
        db.close().unwrap();
    }
}

fn run(seed: u64, background_jobs: usize) {
    let mut run = Run::new(seed, background_jobs);
    for _ in 0..70 {
        run.step();
    }
    run.finish();
}

/// Goal: files and loads, among writes, snapshots, compactions and reopens, answer as if they had been written.
#[test]
fn what_comes_in_as_files_answers_as_a_map_does() {
    each_seed(300, |seed| run(seed, 0));
}

/// The same with compactions and flushes in progress at any moment.
#[test]
fn what_comes_in_beside_background_threads_answers_as_a_map_does() {
    each_seed(25, |seed| run(2_000_000 + seed, 2));
}

/// Opens what a crash left and compares it with what was promised; then writes over all of it, which must win.
fn verify(disk: &SimDisk, options: &Options, ledger: &Ledger, least: usize, what: &str) {
    let db = open(disk, options).unwrap_or_else(|error| panic!("{what}: open: {error}"));
    let found = contents(&db).unwrap_or_else(|error| panic!("{what}: reading: {error}"));
    assert!(ledger.prefix(&start(), &found, least).is_some(), "{what}: the answers are those of no prefix");
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    for (name, contents) in &found.families {
        let family = db.column_family(name).unwrap();
        for key in contents.keys() {
            db.put_cf(&family, key, "newer than all", &Default::default()).unwrap();
            let got = db.get_cf(&family, key, &ReadOptions::default()).unwrap();
            assert_eq!(got.as_deref(), Some(&b"newer than all"[..]), "{what}: what was written after is hidden");
        }
    }
    db.close().unwrap();
}

/// Goal: wherever the machine dies, what came in is there as a whole or not at all, and there once it was acknowledged; nothing
/// that was acknowledged as durable is lost, and nothing written before is missing from below it.
#[test]
fn files_and_loads_are_whole_or_absent_after_death_before_every_operation() {
    for seed in seeds(5) {
        let (options, deeds) = scene(700 + seed, 24);
        let play = |disk: &SimDisk, ledger: &mut Ledger| -> Result<()> {
            let mut outside = Outside { disk: disk.clone(), written: 0 };
            disk.env().files.create_dir_all("/outside".as_ref())?;
            let db = open(disk, &options)?;
            deeds.iter().try_for_each(|deed| perform(&db, &options, &mut outside, deed, ledger))?;
            db.close()
        };
        let healthy = SimDisk::new();
        play(&healthy, &mut Ledger::default()).unwrap();
        let ops = healthy.op_count();
        for n in (seed % 2..ops).step_by(2) {
            let disk = SimDisk::new();
            disk.die_after(n);
            let mut ledger = Ledger::default();
            let _ = play(&disk, &mut ledger);
            let what = |image: &str| format!("ESKER_SEED={seed}, died before operation {n} of {ops}, {image}");
            let after = disk.after_process_death();
            verify(&after, &options, &ledger, ledger.acknowledged, &what("process death"));
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                let image = disk.after_power_loss(survivors);
                verify(&image, &options, &ledger, ledger.durable, &what(&format!("{survivors:?}")));
            }
        }
    }
}

fn count(disk: &SimDisk, extension: &str) -> usize {
    let is_there =
        |path: &&PathBuf| path.starts_with("/store") && path.extension().is_some_and(|found| found == extension);
    disk.paths().iter().filter(is_there).count()
}

fn live_files(db: &Db) -> (usize, usize) {
    let families = db.stats().families;
    let tables = families.iter().flat_map(|family| &family.levels).map(|level| level.files).sum();
    (tables, families.iter().map(|family| family.blob_files).sum())
}

/// Goal: a call of the disk that fails while files come in takes nothing in, leaves no file behind in the store, and the
/// store goes on, unless what failed was a sync of the log or the manifest.
#[test]
fn a_failed_call_takes_nothing_in_and_leaves_nothing_behind() {
    for seed in seeds(4) {
        let (options, deeds) = scene(800 + seed, 14);
        let healthy = SimDisk::new();
        healthy.set_tracing(true);
        let (db, mut outside) = (open(&healthy, &options).unwrap(), Outside::new(&healthy));
        let first = healthy.op_count();
        for deed in &deeds {
            perform(&db, &options, &mut outside, deed, &mut Ledger::default()).unwrap();
        }
        let ops = healthy.op_count();
        for (n, fault) in faults(&healthy, first..ops).filter(|(_, fault)| *fault != Fault::EioAfter) {
            one_fault(seed, &options, &deeds, n, fault);
        }
    }
}

fn one_fault(seed: u64, options: &Options, deeds: &[Deed], n: u64, fault: Fault) {
    let what = format!("ESKER_SEED={seed}, operation {n} fails with {fault:?}");
    let disk = SimDisk::new();
    disk.set_tracing(true);
    let (db, mut outside) = (open(&disk, options).unwrap(), Outside::new(&disk));
    disk.fail_at(n, fault);
    let mut ledger = Ledger::default();
    let mut is_read_only = false;
    for deed in deeds {
        let before = ledger.batches.len();
        let Err(error) = perform(&db, options, &mut outside, deed, &mut ledger) else { continue };
        match error.kind() {
            ErrorKind::Exhausted | ErrorKind::Io => ledger.batches.truncate(before),
            _ => {
                is_read_only = true;
                break;
            }
        }
    }
    let found = contents(&db).unwrap_or_else(|error| panic!("{what}: reading goes on: {error}"));
    assert!(
        ledger.prefix(&start(), &found, ledger.acknowledged).is_some(),
        "{what}: the answers are those of no prefix"
    );
    for survivors in [Survivors::Nothing, Survivors::Everything] {
        let image = disk.after_power_loss(survivors);
        verify(&image, options, &ledger, ledger.durable, &format!("{what}, then power loss {survivors:?}"));
    }
    assert!(!is_read_only || may_end_writes(&disk, n), "{what}: no more writes");
    if !is_read_only {
        // A memtable may have begun a blob file for a value that could not be appended: the next value takes it. What
        // memtables point to becomes the version's; the next work takes along what could not be removed at once.
        for family in db.column_families() {
            let written = db.put_cf(&family, "~last", vec![7; 1000], &WriteOptions::default());
            // What failed behind the last deed is told to whoever writes next.
            if let Err(error) = written {
                assert!(error.kind() == ErrorKind::ReadOnly && may_end_writes(&disk, n), "{what}: {error}");
                return;
            }
        }
        db.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
        db.compact_range(&db.default_column_family(), None, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((count(&disk, "sst"), count(&disk, "blob")), live_files(&db), "{what}: files that nobody names");
    }
}
