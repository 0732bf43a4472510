//! Copies and repairs of a Cask that die or fail on the way: neither harms what they read, and a half-made copy is no store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::env::{Env, Thread, Threads};
use esker::{Cask, CaskOptions, ErrorKind, Result};
use esker_torture::cask::{Past, contents, options, run, steps, verified};
use esker_torture::crash::{FAULTS, Replay, Tally, disk, images, kill, power_losses};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::seeds;
use fastrand::Rng;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

const FILE: &str = "cask_copies";

/// A way to make a copy.
type Copy = fn(&Cask) -> Result<()>;
const COPIES: [(&str, Copy); 2] = [
    ("checkpoint", |cask| cask.checkpoint("/copy").map(drop)),
    ("backup", |cask| cask.backup("/copy", &mut |_| {}).map(drop)),
];

fn open(disk: &SimDisk, dir: &str, options: &CaskOptions) -> Result<Cask> {
    Cask::open_with_env(dir, CaskOptions { create_if_missing: false, ..options.clone() }, disk.env())
}

/// A store whose process has died, with files of all kinds.
struct Source {
    disk: SimDisk,
    options: CaskOptions,
    past: Past,
}

impl Source {
    fn new(seed: u64, count: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let (options, disk) = (options(&mut random), disk(seed));
        let steps = steps(&mut random, count);
        let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let mut past = Past::new(&disk);
        run(&cask, &steps, &mut past).unwrap();
        Self { disk: disk.after_process_death(), options, past }
    }

    /// The same disk, with the store open.
    fn open(&self) -> (SimDisk, Cask) {
        let disk = self.disk.after_process_death();
        let cask = open(&disk, "/store", &self.options).unwrap();
        (disk, cask)
    }

    /// The operations of a copy.
    fn operations(&self, copy: Copy) -> std::ops::Range<u64> {
        let (disk, cask) = self.open();
        let first = disk.op_count();
        copy(&cask).unwrap();
        first..disk.op_count()
    }

    /// What is at the copy's place is whole, or no store. Whether it is whole.
    fn verify_copy(&self, disk: &SimDisk, what: &str) -> bool {
        let copy = match open(disk, "/copy", &self.options) {
            Ok(copy) => copy,
            Err(error) => {
                let is_unfinished = || error.to_string().contains("was not finished here");
                let is_typed = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::InvalidArgument => true,
                    ErrorKind::Corruption => is_unfinished(),
                    _ => false,
                };
                assert!(is_typed, "{what}: the copy: {error}");
                return false;
            }
        };
        verified(&copy, &self.past, &self.past.acknowledged)
            .unwrap_or_else(|wrong| panic!("{what}: the copy: {wrong}"));
        assert!(copy.recovery().damage.is_empty(), "{what}: {:?}", copy.recovery());
        assert!(copy.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
        true
    }

    fn verify_source(&self, cask: &Cask, promised: &std::collections::BTreeSet<usize>, what: &str) {
        verified(cask, &self.past, promised).unwrap_or_else(|wrong| panic!("{what}: the source: {wrong}"));
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: the source: {:?}", check.errors);
    }
}

/// Goal: wherever a copy dies, its source is what it was, and what lies at its place is all of it or no store; and a copy that was said to
/// be there survives power loss.
#[test]
fn a_copy_dies_at_every_operation() {
    let test = "a_copy_dies_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        let replay = Replay { file: FILE, test, seed };
        let source = Source::new(900 + seed, 40);
        for (name, copy) in COPIES {
            let ops = source.operations(copy);
            for n in ops.start..=ops.end {
                let (disk, cask) = source.open();
                kill(&disk, n);
                let is_done = copy(&cask).is_ok();
                assert_eq!(is_done, n == ops.end, "{replay}: {name}, operation {n}");
                for image in images(&disk, n) {
                    let what = format!("{replay}: {name} died at operation {n}, {}", image.name);
                    let promised = source.past.promised(image.promise);
                    let store = open(&image.disk, "/store", &source.options);
                    let store = store.unwrap_or_else(|error| panic!("{what}: {error}"));
                    source.verify_source(&store, promised, &what);
                    let is_whole = source.verify_copy(&image.disk, &what);
                    assert!(is_whole || !is_done, "{what}: the copy is lost");
                    tally.image();
                }
            }
        }
    }
}

/// Goal: what says that a copy is unfinished does not outlive it, or a store that loses its manifest later would be taken for what a copy left.
#[test]
fn a_finished_copy_is_not_called_unfinished() {
    let mark = Path::new("/copy/UNFINISHED-COPY");
    let source = Source::new(960, 10);
    for (name, copy) in COPIES {
        let (disk, cask) = source.open();
        copy(&cask).unwrap();
        let disk = disk.after_power_loss(Survivors::Nothing);
        assert!(disk.file_bytes(mark).is_none(), "{name}");
        // One that an earlier version left.
        disk.env().files.create(mark).unwrap();
        disk.env().files.sync_dir("/copy".as_ref()).unwrap();
        open(&disk, "/copy", &source.options).unwrap().close().unwrap();
        assert!(disk.after_power_loss(Survivors::Nothing).file_bytes(mark).is_none(), "{name}, opened");
    }
}

/// Goal: while a backup is brought up to date, it is a backup at every moment: wherever that dies or fails, what was in the earlier one is
/// there, and the next attempt makes it whole.
#[test]
fn a_backup_that_is_brought_up_to_date_is_one_at_every_moment() {
    let test = "a_backup_that_is_brought_up_to_date_is_one_at_every_moment";
    let tally = Tally::new(test);
    for seed in seeds(1) {
        let replay = Replay { file: FILE, test, seed };
        let mut source = Source::new(930 + seed, 30);
        let (disk, cask) = source.open();
        cask.backup("/copy", &mut |_| ()).unwrap();
        let earlier = source.past.acknowledged.clone();
        source.past = source.past.seen_from(&disk);
        run(&cask, &steps(&mut Rng::with_seed(seed), 20), &mut source.past).unwrap();
        drop(cask);
        source.disk = disk.after_process_death();
        let update = |cask: &Cask| cask.backup("/copy", &mut |_| ()).map(drop);
        let ops = source.operations(update);
        for n in ops.clone() {
            for fault in FAULTS.map(Some).into_iter().chain([None]) {
                let what = format!("{replay}: operation {n} of the update, {fault:?}");
                let (disk, cask) = source.open();
                match fault {
                    None => kill(&disk, n),
                    Some(fault) => disk.fail_at(n, fault),
                }
                let is_done = update(&cask).is_ok();
                for image in images(&disk, n) {
                    let what = format!("{what}, {}", image.name);
                    let copy = Cask::open_read_only_with_env("/copy", source.options.clone(), image.disk.env());
                    let copy = copy.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let promised = if is_done { &source.past.acknowledged } else { &earlier };
                    verified(&copy, &source.past, promised).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                    assert!(copy.recovery().damage.is_empty(), "{what}: {:?}", copy.recovery());
                    tally.image();
                    let store = open(&image.disk, "/store", &source.options).unwrap();
                    update(&store).unwrap_or_else(|error| panic!("{what}: again: {error}"));
                    let promised = source.past.promised(image.promise);
                    let copy = open(&image.disk, "/copy", &source.options).unwrap();
                    verified(&copy, &source.past, promised).unwrap_or_else(|wrong| panic!("{what}: again: {wrong}"));
                }
            }
        }
    }
}

/// Goal: a backup whose manifest is in its place, and may not be durably so, is not taken for the one that there is.
#[test]
fn a_backup_that_may_not_be_durable_is_not_built_upon() {
    let root = |disk: &SimDisk| disk.file_bytes("/copy/MANIFEST".as_ref());
    let update = |cask: &Cask| cask.backup("/copy", &mut |_| ()).map(drop);
    let mut met = 0;
    for seed in seeds(2) {
        let mut source = Source::new(970 + seed, 30);
        let (disk, cask) = source.open();
        update(&cask).unwrap();
        let earlier = source.past.acknowledged.clone();
        source.past = source.past.seen_from(&disk);
        run(&cask, &steps(&mut Rng::with_seed(seed), 20), &mut source.past).unwrap();
        cask.compact().unwrap();
        drop(cask);
        source.disk = disk.after_process_death();
        for n in source.operations(update) {
            let (disk, cask) = source.open();
            disk.die_after(n);
            let _ = update(&cask);
            drop(cask);
            let left = disk.after_process_death();
            if root(&left) == root(&disk.after_power_loss(Survivors::Nothing)) {
                continue;
            }
            met += 1;
            let once_more = |disk: &SimDisk| update(&open(disk, "/store", &source.options)?);
            let healthy = left.after_process_death();
            let begun = healthy.op_count();
            once_more(&healthy).unwrap();
            for m in begun..=healthy.op_count() {
                let disk = left.after_process_death();
                disk.die_after(m);
                let _ = once_more(&disk);
                for image in power_losses(&disk, m) {
                    let what = format!("seed {seed}: died at {n}, and at {m}, {}", image.name);
                    let copy = Cask::open_read_only_with_env("/copy", source.options.clone(), image.disk.env());
                    let copy = copy.unwrap_or_else(|error| panic!("{what}: {error}"));
                    verified(&copy, &source.past, &earlier).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                    assert!(copy.recovery().damage.is_empty(), "{what}: {:?}", copy.recovery());
                }
            }
        }
    }
    assert!(met > 0, "every manifest was durable at once");
}

/// Goal: a backup beside writers names nothing that a power loss may take from its store: it can be brought up to date afterwards.
#[test]
fn a_backup_is_never_ahead_of_a_store_that_lost_what_was_not_synced() {
    let options = CaskOptions { create_if_missing: true, background_jobs: 0, stripes: 2, ..CaskOptions::default() };
    for survivors in [Survivors::Nothing, Survivors::Sample { seed: 7 }, Survivors::Everything] {
        let disk = SimDisk::new();
        let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        for n in 0..20 {
            cask.put([n], [n; 100]).unwrap();
        }
        let mut n = 100;
        let mut write = |_| {
            n += 1;
            cask.put([n], [n; 100]).unwrap();
        };
        cask.backup("/backup", &mut write).unwrap();
        let image = disk.after_power_loss(survivors);
        let cask = open(&image, "/store", &options).unwrap();
        cask.put("more", "value").unwrap();
        cask.backup("/backup", &mut |_| {}).unwrap_or_else(|error| panic!("{survivors:?}: {error}"));
        assert!(contents(&open(&image, "/backup", &options).unwrap()).unwrap() == contents(&cask).unwrap());
    }
}

/// Goal: a call of the disk that fails while a copy is made is told as what it is, or made up for; the source goes on, another copy
/// can be made, and what lies at the place of the first is all of it or no store.
#[test]
fn every_call_of_a_copy_may_fail() {
    let test = "every_call_of_a_copy_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let source = Source::new(920 + seed, 40);
        for (name, copy) in COPIES {
            for n in source.operations(copy) {
                for fault in FAULTS {
                    let what = format!("{replay}: {name}, operation {n} fails with {fault:?}");
                    one_failed_copy(&source, copy, n, fault, &what);
                    tally.fault();
                }
            }
        }
    }
}

fn one_failed_copy(source: &Source, copy: Copy, n: u64, fault: Fault, what: &str) {
    let (disk, cask) = source.open();
    disk.fail_at(n, fault);
    let copied = copy(&cask);
    if let Err(error) = &copied {
        let is_typed = matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted | ErrorKind::ReadOnly);
        assert!(is_typed, "{what}: {error}");
    }
    source.verify_source(&cask, &source.past.acknowledged, what);
    // Only who no longer knows what is durable takes no writes.
    if cask.stats().background_error.is_none_or(|error| error.kind() != ErrorKind::ReadOnly) {
        cask.put("afterwards", "goes on").unwrap_or_else(|error| panic!("{what}: {error}"));
        cask.delete("afterwards").unwrap();
        match copy(&cask) {
            Ok(()) => assert!(source.verify_copy(&disk, what), "{what}: the copy made again is not whole"),
            Err(error) => {
                let is_refused = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::InvalidArgument);
                let is_whole = is_refused && source.verify_copy(&disk, what);
                assert!(is_whole, "{what}: the copy made again: {error}");
            }
        }
    }
    drop(cask);
    for survivors in [Survivors::Nothing, Survivors::Sample { seed: n }] {
        let image = disk.after_power_loss(survivors);
        let cask = open(&image, "/store", &source.options).unwrap_or_else(|error| panic!("{what}: {error}"));
        source.verify_source(&cask, &source.past.durable, what);
        let is_whole = source.verify_copy(&image, what);
        assert!(is_whole || copied.is_err(), "{what}, then power loss: the copy is lost");
    }
    let is_whole = source.verify_copy(&disk, what);
    assert!(is_whole || copied.is_err(), "{what}: the copy is not whole");
}

/// A store with a damaged record, whose repair dies or fails.
struct Patient {
    disk: SimDisk,
    options: CaskOptions,
    /// Its data files, by path.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// The one that is damaged.
    damaged: PathBuf,
    /// What a repair that nothing disturbs makes of it.
    cured: Contents,
    ops: u64,
}

impl Patient {
    /// Every other one has lost its manifest.
    fn new(seed: u64) -> Self {
        let Source { disk, options, past } = Source::new(seed, 60);
        let cask = open(&disk, "/store", &options).unwrap();
        let healthy = contents(&cask).unwrap();
        cask.close().unwrap();
        // No name is on its way any more: without a manifest, one that goes may bring a key back.
        let disk = disk.after_power_loss(Survivors::Everything);
        let is_data = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "data");
        let paths: Vec<PathBuf> = disk.paths().into_iter().filter(is_data).collect();
        let bytes = |path: &PathBuf| disk.file_bytes(path).unwrap();
        let damaged = paths.iter().max_by_key(|path| bytes(path).len()).unwrap().clone();
        disk.flip_bit(&damaged, bytes(&damaged).len() as u64 / 2 * 8 + 3);
        if seed % 2 == 1 {
            disk.overwrite(Path::new("/store/MANIFEST"), b"no longer what it was".to_vec());
        }
        let files = paths.iter().map(|path| (path.clone(), bytes(path))).collect();
        let mut patient = Self { ops: 0, cured: Contents::new(), disk, options, files, damaged };
        let disk = patient.disk.after_process_death();
        let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
        assert_eq!((report.put_aside.len(), report.missing.len()), (1, 0), "{report:?}");
        patient.ops = disk.op_count();
        patient.cured = patient.contents(&disk).unwrap();
        let is_missing = |entry: &(&Vec<u8>, &Vec<u8>)| patient.cured.get(entry.0) != Some(entry.1);
        assert!(healthy.iter().filter(is_missing).count() <= 1, "one record is damaged: {:?}", past.keys.len());
        patient
    }

    fn contents(&self, disk: &SimDisk) -> Result<Contents> {
        contents(&open(disk, "/store", &self.options)?)
    }

    /// No data file is gone.
    fn verify_files(&self, disk: &SimDisk, what: &str) {
        for (path, bytes) in &self.files {
            let places = [path.clone(), path.with_extension("damaged")];
            let is_there = places.iter().any(|place| disk.file_bytes(place).as_ref() == Some(bytes));
            assert!(is_there, "{what}: {} is gone", path.display());
        }
    }

    /// It is cured, and stays so when it is opened; what was damaged is kept aside.
    fn verify_cured(&self, disk: &SimDisk, what: &str) {
        for attempt in ["first", "second"] {
            let found = self.contents(disk).unwrap_or_else(|error| panic!("{what}: {attempt} open: {error}"));
            assert!(found == self.cured, "{what}: {attempt} open: something else than without");
            let aside = disk.file_bytes(&self.damaged.with_extension("damaged"));
            assert!(aside.as_ref() == self.files.get(&self.damaged), "{what}: {attempt} open: nothing is aside");
        }
    }

    /// A repair of it makes what one does that nothing disturbs.
    fn verify_cure(&self, disk: &SimDisk, what: &str) {
        Cask::repair_with_env("/store", &disk.env()).unwrap_or_else(|error| panic!("{what}: again: {error}"));
        self.verify_cured(disk, what);
    }
}

/// Goal: a repair that died can be run again, wherever it died, and makes what it would have made; no data file is lost meanwhile, nor
/// if somebody opens the store in between.
#[test]
fn a_repair_dies_at_every_operation() {
    let test = "a_repair_dies_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        let replay = Replay { file: FILE, test, seed };
        let patient = Patient::new(940 + seed);
        for n in 0..=patient.ops {
            let disk = patient.disk.after_process_death();
            kill(&disk, n);
            let is_done = Cask::repair_with_env("/store", &disk.env()).is_ok();
            assert_eq!(is_done, n == patient.ops, "{replay}: operation {n}");
            for image in images(&disk, n) {
                let what = format!("{replay}: died at operation {n} of the repair, {}", image.name);
                patient.verify_files(&image.disk, &what);
                if is_done {
                    patient.verify_cured(&image.disk, &what);
                }
                let opened = image.disk.after_process_death();
                if open(&opened, "/store", &patient.options).is_err() {
                    patient.verify_files(&opened, &format!("{what}, then not opened"));
                }
                patient.verify_cure(&opened, &format!("{what}, then opened"));
                patient.verify_cure(&image.disk, &what);
                tally.image();
            }
        }
    }
}

/// Goal: the same for a repair that fails at any call.
#[test]
fn every_call_of_a_repair_may_fail() {
    let test = "every_call_of_a_repair_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let patient = Patient::new(960 + seed);
        for n in 0..patient.ops {
            for fault in FAULTS {
                let what = format!("{replay}: operation {n} of the repair fails with {fault:?}");
                let disk = patient.disk.after_process_death();
                disk.fail_at(n, fault);
                let repaired = Cask::repair_with_env("/store", &disk.env());
                let after_power_loss = disk.after_power_loss(Survivors::Sample { seed: n });
                for disk in [&disk, &after_power_loss] {
                    patient.verify_files(disk, &what);
                }
                match repaired {
                    Ok(_) => patient.verify_cured(&disk, &what),
                    Err(error) => {
                        let is_typed =
                            matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted | ErrorKind::ReadOnly);
                        assert!(is_typed, "{what}: {error}");
                    }
                }
                patient.verify_cure(&disk, &what);
                patient.verify_cure(&after_power_loss, &format!("{what}, then power loss"));
                tally.fault();
            }
        }
    }
}

/// Threads that never run what they are given.
#[derive(Debug)]
struct Idle;

impl Thread for Idle {
    fn join(&mut self) -> bool {
        true
    }
}

impl Threads for Idle {
    fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> esker::env::Result<Box<dyn Thread>> {
        Ok(Box::new(Idle))
    }
}

/// Goal: a copy waits for the files of its moment alone, however fast others end meanwhile.
/// Method: whenever one is sealed, writes end another.
#[test]
fn a_copy_waits_for_no_file_that_ended_later() {
    const PATIENCE: u32 = 100;
    let disk = SimDisk::new();
    let writer: Arc<OnceLock<Cask>> = Arc::default();
    let ended = Arc::new(AtomicU32::new(0));
    let (meanwhile, count) = (writer.clone(), ended.clone());
    let files = Hooked::new(disk.env().files, move |call| {
        let is_hint = |path: &Path| path.starts_with("/store") && path.to_string_lossy().ends_with(".hint.new");
        if let (Call::Create(path), Some(cask)) = (call, meanwhile.get())
            && is_hint(path)
            && count.fetch_add(1, Ordering::Relaxed) < PATIENCE
        {
            for n in 0..6 {
                cask.put(format!("later{n}"), [b'x'; 900]).unwrap();
            }
        }
        Ok(())
    });
    let env = Env { files: Arc::new(files), threads: Arc::new(Idle), ..disk.env() };
    let options = CaskOptions {
        create_if_missing: true,
        stripes: 2,
        file_bytes: 4 << 10,
        open_threads: 0,
        ..CaskOptions::default()
    };
    let cask = Cask::open_with_env("/store", options.clone(), env).unwrap();
    cask.put("key", "value").unwrap();
    writer.set(cask.clone()).unwrap();
    cask.checkpoint("/copy").unwrap();
    assert!(ended.load(Ordering::Relaxed) < PATIENCE);
    assert_eq!(open(&disk, "/copy", &options).unwrap().get("key").unwrap().unwrap(), b"value");
}
