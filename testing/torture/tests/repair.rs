//! Repair: a store without damage stays what it is; one that lost its manifest comes back whole; of one with any damage, what is whole
//! is kept, nothing is made up, and what was lost is told. Whatever is not used any more is still there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use esker::env::FileSystem;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    AsideReason, Db, DbRepair, ErrorKind, FamilyOptions, IngestOptions, Options, PutAside, Result, Separation,
    SstFileWriter, WriteBatch,
};
use esker_torture::crash::{FAULTS, Replay, Tally, images, kill, power_losses};
use esker_torture::model::{Model, Op, contents};
use esker_torture::workload::{Ledger, Step, run, steps};
use esker_torture::{options, seeds};
use fastrand::Rng;

const FILE: &str = "repair";
const FAMILIES: [&str; 2] = ["default", "second"];

/// A store that somebody left, and what was in it.
struct Scene {
    options: Options,
    disk: SimDisk,
    expected: Model,
    /// Every value that a key ever had.
    history: BTreeSet<(String, Vec<u8>, Vec<u8>)>,
}

fn open(disk: &SimDisk, options: &Options) -> Result<Db> {
    let db = Db::open_with_env("/store", options.clone(), disk.env())?;
    if db.column_family("second").is_none() {
        db.create_column_family("second", options.families["second"].clone())?;
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
        let db = open(&disk, &options).unwrap();
        let mut ledger = Ledger::default();
        let (rest, parts) = (steps.len() % (ingests + 1), steps.len() / (ingests + 1));
        run(&db, &steps[..rest + parts], &mut ledger).unwrap();
        for ingest in 0..ingests {
            let ops = ledger.batches.iter().flatten();
            let keys = ops.filter_map(|op| match op {
                Op::Put(family, key, _) | Op::Delete(family, key) if family == "default" => Some(key.clone()),
                _ => None,
            });
            let keys: BTreeSet<Vec<u8>> = keys.filter(|_| random.u8(..4) == 0).collect();
            let value = |_| (random.u8(..4) > 0).then(|| vec![random.u8(..); random.usize(1..40)]);
            let values: Vec<Option<Vec<u8>>> = keys.iter().map(value).collect();
            ledger.batches.push(take_in(&disk, &db, &options, keys.into_iter().zip(values).collect()));
            let from = rest + (ingest + 1) * parts;
            run(&db, &steps[from..from + parts], &mut ledger).unwrap();
        }
        let expected = contents(&db).unwrap();
        let ops = ledger.batches.into_iter().flatten();
        let history = ops.filter_map(|op| match op {
            Op::Put(family, key, value) => Some((family, key, value)),
            Op::Delete(..) => None,
        });
        let history = history.collect();
        let disk = if is_closed {
            db.close().unwrap();
            disk
        } else {
            let left = disk.after_process_death();
            std::mem::forget(db);
            left
        };
        Self { options, disk, expected, history }
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
        found.families.entry("second".to_owned()).or_default();
        for (family, pairs) in &found.families {
            for (key, value) in pairs {
                let is_known = self.history.contains(&(family.clone(), key.clone(), value.clone()));
                assert!(is_known, "{what}: {family} has a value of {key:?} that nobody wrote");
            }
        }
        db.close().unwrap();
        found
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

/// Goal: a repair of a store without damage changes no answer, whether it was closed or its process died; nor does the next.
#[test]
fn a_store_without_damage_stays_what_it_is() {
    for seed in seeds(24) {
        let is_closed = seed % 2 == 0;
        let scene = Scene::new(seed, 120, is_closed);
        let disk = scene.again();
        for round in ["first", "second"] {
            let what = format!("seed {seed}, {round}");
            let before = disk.after_process_death();
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.had_manifest && !has_lost(&report), "{what}: {report:?}");
            assert!(report.put_aside.iter().all(|file| file.reason != AsideReason::Damaged), "{what}: {report:?}");
            assert_nothing_is_thrown_away(&before, &scene.files(), &disk, &what);
            assert!(scene.found(&disk, &what) == scene.expected, "{what}");
        }
    }
}

/// Goal: without CURRENT, without any manifest, and with one that is cut or rotten, tables, blob files and logs make the same store.
#[test]
fn a_lost_manifest_is_made_again() {
    let (mut merged, mut from_logs) = (0, 0);
    for seed in seeds(24) {
        let scene = Scene::new(100 + seed, 150, seed % 3 > 0);
        let manifests: Vec<PathBuf> = scene.files().into_iter().filter(|path| is_manifest(path)).collect();
        for how in ["no CURRENT", "no manifest", "neither", "cut", "rotten"] {
            let what = format!("seed {seed}, {how}");
            let disk = scene.again();
            let files = disk.env().files;
            if how == "no CURRENT" || how == "neither" {
                files.remove("/store/CURRENT".as_ref()).unwrap();
            }
            for path in &manifests {
                let bytes = disk.file_bytes(path).unwrap();
                match how {
                    "no manifest" | "neither" => files.remove(path).unwrap(),
                    "cut" => disk.overwrite(path, bytes[..bytes.len() * 2 / 3].to_vec()),
                    "rotten" => {
                        disk.flip_bit(path, 8 * 60 + 3);
                    }
                    _ => {}
                }
            }
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            merged += report.rewritten_entries;
            from_logs += report.log_batches;
            assert_eq!(report.lost_blocks + report.lost_values + report.lost_log_bytes, 0, "{what}: {report:?}");
            let mut expected = scene.expected.clone();
            // Only the manifest knows a family without entries, or its name if that is nowhere else.
            expected.families.entry("second".to_owned()).or_default();
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("second".to_owned(), nameless);
            }
            assert!(found == expected, "{what}");
        }
    }
    assert!(merged > 0 && from_logs > 0, "nothing was merged, or came from a log: nothing was shown");
}

/// As [`Scene::found`], for a store whose families may have lost their names.
fn scene_contents(scene: &Scene, disk: &SimDisk, what: &str) -> Model {
    let db = Db::open_with_env("/store", scene.options.clone(), disk.env()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    let mut found = contents(&db).unwrap();
    // A lookup ends at the first table that has the key, a scan looks at all.
    for (name, pairs) in &found.families {
        let family = db.column_family(name).unwrap();
        let known = scene.history.iter().map(|(_, key, _)| key);
        for key in known.collect::<BTreeSet<_>>() {
            let value = db.get_cf(&family, key, &Default::default()).unwrap();
            assert_eq!(value.as_deref(), pairs.get(key).map(|value| &**value), "{what}: {name}, {key:?}");
        }
    }
    if !found.families.contains_key("repaired-1") {
        found.families.entry("second".to_owned()).or_default();
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

/// Goal: a manifest that lost its end between two edits reads well, and is not believed where the files know better. Where they do not (only
/// a flush of one family is lost, and what another one needs is there), what it does not know of is put aside, and that is told.
#[test]
fn a_manifest_that_ends_early_without_a_trace_is_not_believed() {
    let (mut cuts, mut believed) = (0, 0);
    for seed in seeds(8) {
        let scene = Scene::new(400 + seed, 150, true);
        let path = scene.files().into_iter().find(|path| is_manifest(path)).unwrap();
        let bytes = scene.again().file_bytes(&path).unwrap();
        for end in ends_of_edits(&bytes) {
            let disk = scene.again();
            disk.overwrite(&path, bytes[..end].to_vec());
            let what = format!("seed {seed}, {end} of {} bytes", bytes.len());
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut expected = scene.expected.clone();
            expected.families.entry("second".to_owned()).or_default();
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("second".to_owned(), nameless);
            }
            if found != expected {
                let is_kept = |file: &PutAside| {
                    file.reason == AsideReason::Unused && file.path.extension().is_some_and(|of| of == "sst")
                };
                assert!(report.put_aside.iter().any(is_kept), "{what}: {report:?}");
                believed += 1;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 5 && believed * 8 < cuts.max(16), "{believed} of {cuts}");
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
}

/// Goal: one flipped bit anywhere, in any file: the repaired store opens and is sound, nothing in it was made up, and if anything is not as
/// it was, the report says that something was lost. What CURRENT, manifest, OPTIONS and IDENTITY say is not needed.
#[test]
fn any_flipped_bit_is_mended_or_told() {
    let test = "any_flipped_bit_is_mended_or_told";
    let tally = Tally::new(test);
    let mut salvaged = BTreeMap::new();
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let scene = Scene::with_ingests(200 + seed, 60, seed % 2 == 0, if seed % 3 == 0 { 3 } else { 0 });
        for path in scene.files() {
            let bits = scene.disk.file_bytes(&path).unwrap().len() as u64 * 8;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_data = [".sst", ".blob", ".log"].iter().any(|end| name.ends_with(end));
            // Some places of each file, others with each seed, and its last bytes.
            let step = (bits / 23).max(1);
            for bit in (seed * 37 % step..bits).step_by(usize::try_from(step).unwrap()).chain(bits.checked_sub(9)) {
                let what = format!("{replay}: bit {bit} of {name} flipped");
                let disk = scene.again();
                // What was preallocated and never written is not on the device.
                if !disk.flip_bit(&path, bit) {
                    continue;
                }
                tally.fault();
                let before = disk.after_process_death();
                let report = match scene.repair(&disk) {
                    Ok(report) => report,
                    // A bit that makes it look like what only a later version writes.
                    Err(error) if error.kind() == ErrorKind::UnsupportedFormat => continue,
                    Err(error) => panic!("{what}: {error}"),
                };
                assert_nothing_is_thrown_away(&before, &scene.files(), &disk, &what);
                let mut found = scene_contents(&scene, &disk, &what);
                if let Some(nameless) = found.families.remove("repaired-1") {
                    found.families.insert("second".to_owned(), nameless);
                }
                for (family, pairs) in &found.families {
                    for (key, value) in pairs {
                        let is_known = scene.history.contains(&(family.clone(), key.clone(), value.clone()));
                        assert!(is_known, "{what}: {family} has a value of {key:?} that nobody wrote");
                    }
                }
                if found == scene.expected {
                    continue;
                }
                assert!(is_data, "{what}: nothing of it is data, yet answers changed");
                assert!(has_lost(&report), "{what}: answers changed, and nothing is said: {report:?}");
                let kept: usize = found.families.values().map(BTreeMap::len).sum();
                let kind = name.rsplit('.').next().unwrap_or_default().to_owned();
                let most: &mut usize = salvaged.entry(kind).or_default();
                *most = (*most).max(kept);
            }
        }
    }
    assert!(salvaged.values().all(|&kept| kept > 0), "of some kind of file nothing was ever kept: {salvaged:?}");
}

/// Goal: any file may be missing.
#[test]
fn a_missing_file_costs_what_was_in_it() {
    for seed in seeds(8) {
        let scene = Scene::new(300 + seed, 80, seed % 2 == 0);
        for path in scene.files() {
            let what = format!("seed {seed}: without {}", path.display());
            let disk = scene.again();
            disk.env().files.remove(&path).unwrap();
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = scene_contents(&scene, &disk, &what);
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".sst") || name.ends_with(".blob") {
                assert!(found == scene.expected || has_lost(&report), "{what}: nothing is said: {report:?}");
            } else if !name.ends_with(".log") && !name.starts_with("MANIFEST") {
                assert!(found == scene.expected, "{what}");
            }
        }
    }
}

/// Goal: of a key whose newest value is lost, no older one shows.
#[test]
fn a_lost_value_does_not_uncover_an_older_one() {
    let scene = Scene::new(1, 0, true);
    let mut options = scene.options.clone();
    for family in options.families.values_mut() {
        family.separation = esker::Separation::AtFlush;
        family.min_blob_size = 100;
        family.blob_compression = esker::Compression::None;
        family.level0_compaction_trigger = 10;
        family.level0_slowdown_trigger = 20;
        family.level0_stop_trigger = 30;
    }
    let disk = scene.again();
    let db = open(&disk, &options).unwrap();
    for value in [b"older", b"newer"] {
        db.put("key", value.repeat(100)).unwrap();
        db.put("other", value.repeat(100)).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let mut blobs: Vec<PathBuf> =
        disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "blob")).collect();
    blobs.sort();
    // The first record is that of "key".
    assert!(disk.flip_bit(blobs.last().unwrap(), 8 * 100));
    let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
    assert_eq!(report.lost_values, 1, "{report:?}");
    assert_eq!(
        (report.lost_keys[0].family.as_str(), report.lost_keys[0].key.as_slice()),
        ("default", b"key".as_slice())
    );
    let db = open(&disk, &options).unwrap();
    assert!(db.get("key").unwrap().is_none());
    assert_eq!(db.get("other").unwrap().unwrap()[..], b"newer".repeat(100));
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
}

/// Goal: nor where the newest value was only logged: with the manifest and without, and what else was in its batch is there.
#[test]
fn a_lost_value_of_a_log_does_not_uncover_an_older_one() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let families =
        [("default".to_owned(), FamilyOptions { blob_compression: esker::Compression::None, ..family })].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    for (has_manifest, is_gone) in [(true, false), (false, false), (true, true), (false, true)] {
        let what = format!("manifest: {has_manifest}, file gone: {is_gone}");
        let disk = SimDisk::new();
        let db = open(&disk);
        db.put("key", b"older".repeat(100)).unwrap();
        db.put("other", "older").unwrap();
        db.flush().unwrap();
        let mut batch = WriteBatch::new();
        batch.put("key", b"newer".repeat(100)).unwrap();
        batch.put("other", "newer").unwrap();
        db.write(batch, &Default::default()).unwrap();
        db.put("third", b"third".repeat(100)).unwrap();
        db.sync_wal().unwrap();
        let left = disk.after_process_death();
        std::mem::forget(db);
        let is_blob = |path: &PathBuf| path.extension().is_some_and(|of| of == "blob");
        let newest = left.paths().into_iter().filter(is_blob).max().unwrap();
        match is_gone {
            true => left.remove(&newest).unwrap(),
            false => assert!(left.flip_bit(&newest, 8 * 100), "{what}"),
        }
        for path in left.paths().iter().filter(|path| !has_manifest && (is_manifest(path) || path.ends_with("CURRENT")))
        {
            left.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
        assert_eq!(report.had_manifest, has_manifest, "{what}");
        let lost: Vec<&[u8]> = report.lost_keys.iter().map(|lost| lost.key.as_slice()).collect();
        assert_eq!(
            lost,
            if is_gone { vec![b"key".as_slice(), b"third"] } else { vec![b"key".as_slice()] },
            "{what}: {report:?}"
        );
        let db = open(&left);
        assert!(db.get("key").unwrap().is_none(), "{what}");
        assert_eq!(db.get("other").unwrap().unwrap()[..], *b"newer", "{what}");
        let third = (!is_gone).then(|| b"third".repeat(100));
        assert_eq!(db.get("third").unwrap().map(|value| value.to_vec()), third, "{what}");
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
    }
}

/// Goal: what a log has of a value that has moved since, while another family's writes kept the log, takes nothing from the tables; nor does a
/// value that a power loss kept from ever being there.
#[test]
fn a_log_that_was_kept_takes_no_value_that_is_in_tables() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let family = FamilyOptions { blob_compression: esker::Compression::None, ..family };
    let families = [("default".to_owned(), family.clone())].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    for has_moved in [true, false] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let (of_values, other) =
            (db.default_column_family(), db.create_column_family("other", family.clone()).unwrap());
        db.put_cf(&other, "small", "stays in memory", &Default::default()).unwrap();
        for round in 0..2 {
            (0..20 - round * 10).for_each(|n| db.put(format!("key {n}"), [round; 500]).unwrap());
        }
        db.compact_range(&of_values, None, None).unwrap();
        let kept = disk.paths().iter().filter(|path| path.extension().is_some_and(|of| of == "log")).count();
        assert!(kept > 0);
        let left = if has_moved {
            db.reclaim(&of_values, 0.1).unwrap();
            disk.after_process_death()
        } else {
            db.put("key 15", [9; 5000]).unwrap();
            disk.after_process_death()
        };
        std::mem::forget(db);
        if !has_moved {
            let is_blob = |path: &PathBuf| path.extension().is_some_and(|of| of == "blob");
            let newest = left.paths().into_iter().filter(is_blob).max().unwrap();
            let mut bytes = vec![0; 1000];
            left.env().files.open(&newest).unwrap().read_at(0, &mut bytes).unwrap();
            left.overwrite(&newest, bytes);
        }
        for path in left.paths().iter().filter(|path| is_manifest(path) || path.ends_with("CURRENT")) {
            left.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
        let db = Db::open_with_env("/store", options.clone(), left.env()).unwrap();
        for n in 0..20 {
            let value = [u8::from(n < 10); 500];
            assert_eq!(
                db.get(format!("key {n}")).unwrap().as_deref(),
                Some(&value[..]),
                "{has_moved}, {n}: {report:?}"
            );
        }
        assert!(report.lost_keys.is_empty(), "{has_moved}: {report:?}");
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}

/// Goal: nor where the value has sectors of zeroes, as one has that a power loss kept from being written: in a file before the newest all are durable.
#[test]
fn a_lost_value_with_zeroes_does_not_uncover_an_older_one() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let family = FamilyOptions { blob_compression: esker::Compression::None, blob_file_bytes: 64 << 10, ..family };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    for has_manifest in [true, false] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        // So much that several files may be written before their memtable is flushed.
        (0..1000).for_each(|n| db.put(format!("many {n}"), [5; 3000]).unwrap());
        db.put("key", b"older".repeat(100)).unwrap();
        db.flush().unwrap();
        let flushes = db.stats().flushes;
        let newer = [b"newer".repeat(100), vec![0; 3000]].concat();
        db.put("key", newer).unwrap();
        let blobs = |disk: &SimDisk| -> Vec<PathBuf> {
            disk.paths().into_iter().filter(|path| path.extension().is_some_and(|of| of == "blob")).collect()
        };
        let damaged = blobs(&disk).into_iter().max().unwrap();
        (0..40).for_each(|n| db.put(format!("other {n}"), [7; 3000]).unwrap());
        assert_eq!(db.stats().flushes, flushes);
        let left = disk.after_process_death();
        std::mem::forget(db);
        assert!(blobs(&left).into_iter().max() > Some(damaged.clone()));
        assert!(left.flip_bit(&damaged, 8 * 100));
        for path in left.paths().iter().filter(|path| !has_manifest && (is_manifest(path) || path.ends_with("CURRENT")))
        {
            left.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
        let lost: Vec<&[u8]> = report.lost_keys.iter().map(|lost| lost.key.as_slice()).collect();
        assert_eq!(lost, [b"key"], "{has_manifest}: {report:?}");
        let db = Db::open_with_env("/store", options.clone(), left.env()).unwrap();
        assert!(db.get("key").unwrap().is_none(), "{has_manifest}");
        assert!((0..40).all(|n| db.get(format!("other {n}")).unwrap().as_deref() == Some(&[7; 3000][..])));
    }
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

/// Goal: without a manifest, what was taken in hides what there was before, be that flushed or not, and is hidden by what came later.
#[test]
fn what_was_taken_in_is_as_old_as_it_was_also_without_a_manifest() {
    let mut told = 0;
    for seed in seeds(40) {
        let (mut random, options, disk) = (Rng::with_seed(600 + seed), without_compactions(), SimDisk::new());
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let key = |random: &mut Rng| vec![b'k', random.u8(b'a'..b'm')];
        let value = |random: &mut Rng, n: u32| (random.u8(..4) > 0).then(|| n.to_le_bytes().to_vec());
        for n in 0..random.u32(5..40) {
            match random.u8(..10) {
                0 => db.flush().unwrap(),
                1..=3 => {
                    let entries = (0..random.usize(1..5)).map(|_| (key(&mut random), value(&mut random, n))).collect();
                    take_in(&disk, &db, &options, entries);
                }
                _ => match value(&mut random, n) {
                    Some(value) => db.put(key(&mut random), value).unwrap(),
                    None => db.delete(key(&mut random)).unwrap(),
                },
            }
        }
        let expected = contents(&db).unwrap();
        let left = disk.after_process_death();
        if seed % 2 == 0 {
            db.close().unwrap();
        }
        let left = if seed % 2 == 0 { disk.after_process_death() } else { left };
        for how in ["no manifest", "rotten"] {
            let what = format!("seed {seed}, {how}");
            let disk = left.after_process_death();
            for path in disk.paths().iter().filter(|path| is_manifest(path)) {
                match how {
                    "rotten" => drop(disk.flip_bit(path, 8 * 60 + 3)),
                    _ => disk.remove(path).unwrap(),
                }
            }
            let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
            assert!(!report.had_manifest, "{what}");
            told += report.damage.iter().filter(|error| error.to_string().contains("taken in")).count();
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            assert!(contents(&db).unwrap() == expected, "{what}: {:?}", report.damage);
            for (key, value) in &expected.families["default"] {
                assert_eq!(db.get(key).unwrap().as_deref(), Some(&**value), "{what}: {key:?}");
            }
            assert!(db.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
        }
    }
    assert!(told > 0, "no table of unknown age was merged with others");
}

/// Goal: a table that was taken in and has lost what it says of itself is as old as the manifest says.
#[test]
fn a_table_that_was_taken_in_and_lost_its_properties_keeps_its_age() {
    let (options, disk) = (without_compactions(), SimDisk::new());
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    db.put("key", "old").unwrap();
    db.put("gone", "there").unwrap();
    db.flush().unwrap();
    take_in(&disk, &db, &options, [(b"gone".to_vec(), None), (b"key".to_vec(), Some(b"new".to_vec()))].into());
    db.close().unwrap();
    let find = |path: &PathBuf| {
        let bytes = disk.file_bytes(path)?;
        let at = bytes.windows(9).position(|part| part == b"sst_file.")?;
        (path.starts_with("/store")).then(|| (path.clone(), at as u64))
    };
    let (table, at) = disk.paths().iter().find_map(find).unwrap();
    assert!(disk.flip_bit(&table, 8 * (at + 3)));
    let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
    assert!(report.had_manifest && !report.damage.is_empty(), "{report:?}");
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for round in ["repaired", "compacted"] {
        assert_eq!(db.get("key").unwrap().unwrap()[..], *b"new", "{round}");
        assert!(db.get("gone").unwrap().is_none(), "{round}");
        let found = contents(&db).unwrap();
        let expected: BTreeMap<Vec<u8>, Vec<u8>> = [(b"key".to_vec(), b"new".to_vec())].into();
        assert_eq!(found.families["default"], expected, "{round}");
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
}

/// Stores in need of repair, by what happened to them.
fn wrecks(seed: u64) -> Vec<(&'static str, Scene)> {
    ["intact", "no manifest", "damaged"]
        .into_iter()
        .map(|how| {
            let scene = Scene::new(400 + seed, 50, true);
            let files = scene.disk.env().files;
            for path in scene.files() {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                match how {
                    "no manifest" if name.starts_with("MANIFEST") || name == "CURRENT" => files.remove(&path).unwrap(),
                    "damaged" if name.ends_with(".sst") || name.ends_with(".blob") => {
                        scene.disk.flip_bit(&path, 8 * 45);
                    }
                    _ => {}
                }
            }
            files.sync_dir("/store".as_ref()).unwrap();
            (how, scene)
        })
        .collect()
}

/// Goal: a repair may die at each of its operations. Until it is run again the store is what it was or does not open; then it is what it would have
/// become, and nothing was thrown away on the way.
#[test]
fn a_repair_that_dies_can_be_run_again() {
    let test = "a_repair_that_dies_can_be_run_again";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        for (how, scene) in wrecks(seed) {
            let healthy = scene.again();
            let first = healthy.op_count();
            scene.repair(&healthy).unwrap();
            let ops = healthy.op_count();
            let expected = scene_contents(&scene, &healthy, how);
            for n in first..ops {
                let disk = scene.again();
                kill(&disk, n);
                assert!(scene.repair(&disk).is_err());
                for image in images(&disk, n) {
                    let replay = Replay { file: FILE, test, seed };
                    let what = format!("{replay}: {how}, died at {n} in {first}..{ops}, {}", image.name);
                    tally.image();
                    let looked_at = image.disk.after_process_death();
                    if how == "intact"
                        && let Ok(db) = open(&looked_at, &scene.options)
                    {
                        assert!(contents(&db).unwrap() == scene.expected, "{what}: it opens as something else");
                    }
                    scene.repair(&image.disk).unwrap_or_else(|error| panic!("{what}, run again: {error}"));
                    assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &image.disk, &what);
                    assert!(scene_contents(&scene, &image.disk, &what) == expected, "{what}, run again");
                }
            }
        }
    }
}

/// Goal: a repair that made its manifest current, and perhaps not durably so, has not moved what the one before names until it is.
#[test]
fn a_repair_that_may_not_be_durable_is_not_built_upon() {
    let test = "a_repair_that_may_not_be_durable_is_not_built_upon";
    let tally = Tally::new(test);
    let current = |disk: &SimDisk| disk.file_bytes("/store/CURRENT".as_ref());
    let mut met = 0;
    for (how, scene) in seeds(4).flat_map(wrecks) {
        // A folder that is there need not be made, nor its name made durable.
        let files = scene.disk.env().files;
        files.create_dir_all("/store/lost".as_ref()).unwrap();
        ["/store/lost/one", "/store/lost/two"].iter().for_each(|path| drop(files.create(path.as_ref()).unwrap()));
        ["/store/lost", "/store"].iter().for_each(|path| files.sync_dir(path.as_ref()).unwrap());
        let healthy = scene.again();
        let first = healthy.op_count();
        scene.repair(&healthy).unwrap();
        let expected = scene_contents(&scene, &healthy, how);
        for n in first..healthy.op_count() {
            let disk = scene.again();
            disk.die_after(n);
            let _ = scene.repair(&disk);
            let left = disk.after_process_death();
            if current(&left) == current(&disk.after_power_loss(Survivors::Nothing)) {
                continue;
            }
            met += 1;
            let healthy = left.after_process_death();
            let begun = healthy.op_count();
            scene.repair(&healthy).unwrap();
            for m in begun..=healthy.op_count() {
                let disk = left.after_process_death();
                disk.die_after(m);
                let _ = scene.repair(&disk);
                for image in power_losses(&disk, m) {
                    let what = format!("{how}, died at {n}, and at {m}, {}", image.name);
                    tally.image();
                    scene.repair(&image.disk).unwrap_or_else(|error| panic!("{what}, run again: {error}"));
                    assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &image.disk, &what);
                    assert!(scene_contents(&scene, &image.disk, &what) == expected, "{what}");
                }
            }
        }
    }
    assert!(met > 0, "every CURRENT was durable at once");
}

/// Goal: whatever call fails, the repair can be run again.
#[test]
fn a_repair_that_fails_can_be_run_again() {
    let test = "a_repair_that_fails_can_be_run_again";
    let tally = Tally::new(test);
    for (how, scene) in wrecks(7) {
        let healthy = scene.again();
        let first = healthy.op_count();
        scene.repair(&healthy).unwrap();
        let ops = healthy.op_count();
        let expected = scene_contents(&scene, &healthy, how);
        for (n, fault) in (first..ops).flat_map(|n| FAULTS.map(|fault| (n, fault))) {
            let what = format!("{how}: operation {n} in {first}..{ops} fails with {fault:?}");
            tally.fault();
            let disk = scene.again();
            disk.fail_at(n, fault);
            if scene.repair(&disk).is_err() {
                scene.repair(&disk).unwrap_or_else(|error| panic!("{what}, run again: {error}"));
            }
            assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &disk, &what);
            assert!(scene_contents(&scene, &disk, &what) == expected, "{what}");
        }
    }
}

/// Goal: between the new manifest and the last file that is moved, nobody opens the store: an open removes what it does not know.
#[test]
fn a_half_repaired_store_does_not_open() {
    let (_, scene) = wrecks(3).remove(1);
    let healthy = scene.again();
    healthy.set_tracing(true);
    let first = healthy.op_count();
    scene.repair(&healthy).unwrap();
    let trace = healthy.trace();
    let moved = trace.iter().position(|line| line.contains("rename") && line.contains("/lost/")).unwrap();
    let at: u64 = trace[moved].split(' ').next().unwrap().parse().unwrap();
    assert!(at > first);
    let disk = scene.again();
    disk.die_after(at);
    scene.repair(&disk).unwrap_err();
    let disk = disk.after_process_death();
    for read_only in [false, true] {
        let error = match read_only {
            true => Db::open_read_only_with_env("/store", scene.options.clone(), disk.env()).unwrap_err(),
            false => Db::open_with_env("/store", scene.options.clone(), disk.env()).unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains("repair"), "{error}");
    }
    scene.repair(&disk).unwrap();
    scene_contents(&scene, &disk, "run again");
}

/// Goal: what is no store is not made one, and what somebody has open is left alone.
#[test]
fn only_a_store_that_nobody_has_open_is_repaired() {
    let scene = Scene::new(5, 20, true);
    let disk = scene.again();
    let db = open(&disk, &scene.options).unwrap();
    assert_eq!(scene.repair(&disk).unwrap_err().kind(), ErrorKind::Busy);
    db.close().unwrap();
    disk.env().files.create_dir_all("/empty".as_ref()).unwrap();
    for path in ["/empty", "/none"] {
        let before = disk.op_count();
        let error = Db::repair_with_env(path, Options::default(), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(disk.op_count(), before);
    }
}

/// Goal: what a repair keeps is durable when it ends, though who wrote it died before it had synced it, or was told that the sync failed.
/// Method: the owner dies at each of its syncs, or is told so; with its manifest and without; the power goes right after the repair.
#[test]
fn what_a_repair_keeps_survives_a_power_loss() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 200, ..FamilyOptions::default() };
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, ..family };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env());
    let life = |disk: &SimDisk| {
        let Ok(db) = open(disk) else { return };
        for n in 0..12u8 {
            // After a failure nothing is promised; what is there counts.
            let _ = db.put([n], vec![n; 1000]).and_then(|()| db.put([n, n], [n; 50]));
            let _ = if n % 4 == 3 { db.flush() } else { Ok(()) };
        }
        std::mem::forget(db);
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    life(&healthy);
    let trace = healthy.trace();
    let syncs = trace.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let syncs = syncs.filter(|words| words[1] == "sync" && (words[2].contains(".blob") || words[2].contains(".sst")));
    let syncs: Vec<u64> = syncs.map(|words| words[0].parse().unwrap()).collect();
    assert!(syncs.len() >= 6, "{trace:#?}");
    let cases = syncs.iter().flat_map(|n| [(n, false, false), (n, false, true), (n, true, false), (n, true, true)]);
    for (&n, is_told, has_manifest) in cases {
        let what = format!("operation {n}, told: {is_told}, manifest: {has_manifest}");
        let disk = SimDisk::new();
        if is_told {
            disk.fail_at(n, Fault::Eio)
        } else {
            disk.die_after(n)
        }
        life(&disk);
        let disk = disk.after_process_death();
        let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST") || path.ends_with("CURRENT");
        for path in disk.paths().iter().filter(|path| !has_manifest && is_manifest(path)) {
            disk.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), disk.env());
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((report.had_manifest, report.lost_values), (has_manifest, 0), "{what}: {report:?}");
        let expected = contents(&open(&disk.after_process_death()).unwrap()).unwrap();
        let sampled = (0..5).map(|seed| Survivors::Sample { seed });
        for survivors in sampled.chain([Survivors::Nothing]) {
            let left = open(&disk.after_power_loss(survivors));
            let db = left.unwrap_or_else(|error| panic!("{what}, {survivors:?}: {error}"));
            let check = db.check(&mut |_| {}).unwrap();
            assert!(check.errors.is_empty(), "{what}, {survivors:?}: {:?}", check.errors);
            assert!(contents(&db).unwrap() == expected, "{what}, {survivors:?}");
        }
    }
}
