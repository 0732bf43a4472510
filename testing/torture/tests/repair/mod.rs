//! Repair: a store without damage stays what it is; one that lost its manifest comes back whole; of one with any damage, what is whole
//! is kept, nothing is made up, and what was lost is told. Whatever is not used any more is still there.
//!
//! - `damage`: a bit of any file, or all of it, and none;
//! - `manifest`: what is lost, rotten or cut there;
//! - `other_manifests`: those of another store, or of an earlier moment;
//! - `logs`: what was logged once and has lost its number since;
//! - `values`: values in blob files that are lost, and what was there before them;
//! - `mess`: anything, several times;
//! - `strangers`: tables under names that are not theirs;
//! - `taken_in`: tables from outside, which have no time of their own;
//! - `deaths`: repairs that die, or fail, and what is durable when one ends.

mod damage;
mod deaths;
mod logs;
mod manifest;
mod mess;
mod other_manifests;
mod strangers;
mod taken_in;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use esker::env::sim::SimDisk;
use esker::{Db, DbRepair, FamilyOptions, IngestOptions, Options, Result, SstFileWriter};
use esker_torture::model::{Model, Op, contents};
use esker_torture::options;
use esker_torture::workload::{Ledger, Step, run, steps};
use fastrand::Rng;

const FAMILIES: [&str; 2] = ["default", "reversed"];

/// A store that somebody left, and what was in it.
struct Scene {
    options: Options,
    disk: SimDisk,
    expected: Model,
    /// Everything that was put or merged, by family and key, in order.
    history: BTreeMap<(String, Vec<u8>), Vec<Op>>,
    /// Keys of the default family that a file which was taken in deleted.
    deleted_past_logs: BTreeSet<Vec<u8>>,
}

fn open(disk: &SimDisk, options: &Options) -> Result<Db> {
    let db = Db::open_with_env("/store", options.clone(), disk.env())?;
    if db.column_family("reversed").is_none() {
        db.create_column_family("reversed", options.families["reversed"].clone())?;
    }
    Ok(db)
}

/// Takes a file in; what that changes.
fn take_in(disk: &SimDisk, db: &Db, options: &Options, entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Vec<Op> {
    if entries.is_empty() {
        return Vec::new();
    }
    disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
    let path = PathBuf::from(format!("/outside/{}.sst", disk.op_count()));
    let mut writer = SstFileWriter::create_with_env(&path, &options.families["default"], disk.env()).unwrap();
    for (key, value) in &entries {
        match value {
            Some(value) => writer.put(key, value).unwrap(),
            None => writer.delete(key).unwrap(),
        }
    }
    writer.finish().unwrap();
    db.ingest(&db.default_column_family(), &[path], &IngestOptions::default()).unwrap();
    let op = |(key, value)| match value {
        Some(value) => Op::Put("default".to_owned(), key, value),
        None => Op::Delete("default".to_owned(), key),
    };
    entries.into_iter().map(op).collect()
}

impl Scene {
    /// `is_closed`: by its owner, else by the death of the process.
    fn new(seed: u64, count: usize, is_closed: bool) -> Self {
        Self::with_ingests(seed, count, is_closed, 0)
    }

    /// The same, with `ingests` files between, which hide and delete what was there before.
    fn with_ingests(seed: u64, count: usize, is_closed: bool, ingests: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options::store(&mut random, &FAMILIES, 0);
        let steps: Vec<Step> = steps(&mut random, &FAMILIES, count);
        let disk = SimDisk::new();
        // Each store has ids of its own.
        (0..seed).for_each(|_| disk.env().entropy.fill(&mut [0; 8]));
        let db = open(&disk, &options).unwrap();
        let (mut ledger, mut deleted_past_logs) = (Ledger::default(), BTreeSet::new());
        let (rest, parts) = (steps.len() % (ingests + 1), steps.len() / (ingests + 1));
        run(&db, &steps[..rest + parts], &mut ledger).unwrap();
        for ingest in 0..ingests {
            let ops = ledger.batches.iter().flatten();
            let keys = ops.map(Op::place).filter(|(family, _)| *family == "default").map(|(_, key)| key.clone());
            let keys: BTreeSet<Vec<u8>> = keys.filter(|_| random.u8(..4) == 0).collect();
            let value = |_| (random.u8(..4) > 0).then(|| vec![random.u8(..); random.usize(1..40)]);
            let values: Vec<Option<Vec<u8>>> = keys.iter().map(value).collect();
            let taken_in = take_in(&disk, &db, &options, keys.into_iter().zip(values).collect());
            deleted_past_logs.extend(taken_in.iter().filter_map(|op| match op {
                Op::Delete(_, key) => Some(key.clone()),
                Op::Put(..) | Op::Merge(..) | Op::DeleteRange(..) => None,
            }));
            ledger.batches.push(taken_in);
            let from = rest + (ingest + 1) * parts;
            run(&db, &steps[from..from + parts], &mut ledger).unwrap();
        }
        let expected = contents(&db).unwrap();
        let mut history: BTreeMap<_, Vec<Op>> = BTreeMap::new();
        for op in ledger.batches.into_iter().flatten().filter(|op| !matches!(op, Op::Delete(..) | Op::DeleteRange(..)))
        {
            let (family, key) = op.place();
            history.entry((family.clone(), key.clone())).or_default().push(op);
        }
        let disk = if is_closed {
            db.close().unwrap();
            disk
        } else {
            let left = disk.after_process_death();
            std::mem::forget(db);
            left
        };
        Self { options, disk, expected, history, deleted_past_logs }
    }

    fn has(&self, family: &str, key: &[u8]) -> bool {
        self.expected.families.get(family).is_some_and(|pairs| pairs.contains_key(key))
    }

    /// The same disk once more.
    fn again(&self) -> SimDisk {
        self.disk.after_process_death()
    }

    /// Its files, without the lock.
    fn files(&self) -> Vec<PathBuf> {
        let in_store = |path: &PathBuf| path.starts_with("/store") && !path.ends_with("LOCK");
        self.disk.paths().into_iter().filter(in_store).collect()
    }

    fn repair(&self, disk: &SimDisk) -> Result<DbRepair> {
        Db::repair_with_env("/store", self.options.clone(), disk.env())
    }

    /// What the store holds now; it is without damage, and nothing in it was made up.
    fn found(&self, disk: &SimDisk, what: &str) -> Model {
        let db = Db::open_with_env("/store", self.options.clone(), disk.env())
            .unwrap_or_else(|error| panic!("{what}: a repaired store does not open: {error}"));
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
        let mut found = contents(&db).unwrap_or_else(|error| panic!("{what}: {error}"));
        found.families.entry("reversed".to_owned()).or_default();
        for (family, pairs) in &found.families {
            for (key, value) in pairs {
                assert!(self.may_be(family, key, value), "{what}: {family} has a value of {key:?} that nobody wrote");
            }
        }
        db.close().unwrap();
        found
    }

    /// Whether `value` is one that was put for the key, or operands that were merged into such a one or into nothing: some of those that came
    /// after it, in order.
    fn may_be(&self, family: &str, key: &[u8], value: &[u8]) -> bool {
        let written = self.history.get(&(family.to_owned(), key.to_vec())).map_or(&[][..], Vec::as_slice);
        // How much of the value is made by the end of each operation, in any way.
        let mut made: BTreeSet<usize> = BTreeSet::new();
        for op in written {
            let (Op::Put(_, _, piece) | Op::Merge(_, _, piece)) = op else { continue };
            let mut more = BTreeSet::new();
            if value.starts_with(piece) {
                more.insert(piece.len());
            }
            if matches!(op, Op::Merge(..)) {
                let next = |&end: &usize| value[end..].strip_prefix(b",").is_some_and(|rest| rest.starts_with(piece));
                more.extend(made.iter().filter(|end| next(end)).map(|end| end + 1 + piece.len()));
            }
            made.extend(more);
        }
        made.contains(&value.len())
    }
}

fn has_lost(report: &DbRepair) -> bool {
    report.lost_blocks + report.lost_values + report.lost_log_bytes > 0 || !report.damage.is_empty()
}

/// P1: every byte of every table, blob file and log is still in the directory, or in the folder.
fn assert_nothing_is_thrown_away(before: &SimDisk, files: &[PathBuf], after: &SimDisk, what: &str) {
    let kept: Vec<(PathBuf, Vec<u8>)> = after
        .paths()
        .into_iter()
        .filter(|path| path.starts_with("/store"))
        .filter_map(|path| Some((path.clone(), after.file_bytes(&path)?)))
        .collect();
    let is_of_data = |path: &&PathBuf| {
        path.extension().and_then(|extension| extension.to_str()).is_some_and(|e| ["sst", "blob", "log"].contains(&e))
    };
    for path in files.iter().filter(is_of_data) {
        let Some(bytes) = before.file_bytes(path) else { continue };
        let is_there = kept.iter().any(|(_, kept)| *kept == bytes);
        assert!(is_there, "{what}: {} is nowhere any more", path.display());
    }
}

/// As [`Scene::found`], for a store whose families may have lost their names.
fn scene_contents(scene: &Scene, disk: &SimDisk, what: &str) -> Model {
    let mut options = scene.options.clone();
    // With its name it lost its merge operator, which both families may have.
    options.families.insert("repaired-1".to_owned(), scene.options.families["reversed"].clone());
    let db = Db::open_with_env("/store", options, disk.env()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    let mut found = contents(&db).unwrap();
    // A lookup ends at the first table that has the key, a scan looks at all.
    for (name, pairs) in &found.families {
        let family = db.column_family(name).unwrap();
        let known = scene.history.keys().map(|(_, key)| key);
        for key in known.collect::<BTreeSet<_>>() {
            let value = db.get_cf(&family, key, &Default::default()).unwrap();
            assert_eq!(value.as_deref(), pairs.get(key).map(|value| &**value), "{what}: {name}, {key:?}");
        }
    }
    if !found.families.contains_key("repaired-1") {
        found.families.entry("reversed".to_owned()).or_default();
    }
    found
}

/// Where the records of a manifest end.
fn ends_of_edits(manifest: &[u8]) -> Vec<usize> {
    let (mut ends, mut at) = (Vec::new(), 0);
    while let Some(&[_, _, _, _, low, high, _]) = manifest.get(at..).and_then(<[u8]>::first_chunk) {
        at += 7 + usize::from(u16::from_le_bytes([low, high]));
        ends.push(at);
    }
    ends
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
}

/// Tables stay as they are written.
fn without_compactions() -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        level0_compaction_trigger: 100,
        level0_slowdown_trigger: 200,
        level0_stop_trigger: 300,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}
