//! An open or a close of a Cask at which a call of the disk fails: it is said, nothing is lost, and the next one succeeds. And an open
//! beside somebody who writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::env::{Env, Thread, Threads};
use esker::{Cask, CaskBatch, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_format::cask::manifest::Manifest;
use esker_format::cask::record::{Record, VERSION_MAX};
use esker_torture::cask::{Op, Past, Step, contents, options, run, steps, verified};
use esker_torture::crash::{FAULTS, Replay, Tally, disk, kept_by_reopening, power_losses};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::seeds;
use fastrand::Rng;

const FILE: &str = "cask_reopen";

fn open(disk: &SimDisk, options: &CaskOptions) -> esker::Result<Cask> {
    Cask::open_with_env("/store", options.clone(), disk.env())
}

/// What a store was left as, and steps for those who go on.
struct Left {
    disk: SimDisk,
    options: CaskOptions,
    past: Past,
    next_steps: Vec<Step>,
    /// Everything that is found is on the disk.
    is_on_disk: bool,
}

impl Left {
    /// By the power, with a torn file, by the death of the process, or by a close.
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(1100 + seed);
        let (options, disk) = (options(&mut random), disk(seed / 3));
        let (mut steps, mut next_steps) = (steps(&mut random, 40), steps(&mut random, 12));
        // What a loss of power can tear; and longer ones, for the place of what it has torn.
        steps.extend((0..6).map(|n| unsynced(n, 500)));
        if seed < 3 {
            next_steps = (6..18).map(|n| unsynced(n, 1300)).collect();
        }
        let cask = open(&disk, &options).unwrap();
        let mut past = Past::new(&disk);
        run(&cask, &steps, &mut past).unwrap();
        let disk = match seed % 3 {
            0 => {
                let images = (0..).map(|seed| disk.after_power_loss(Survivors::Sample { seed }));
                let is_torn = |image: &SimDisk| {
                    let cask = open(&image.after_process_death(), &options).unwrap();
                    !cask.recovery().torn_files.is_empty()
                };
                let torn = images.take(100).find(is_torn);
                assert!(torn.is_some() || seed >= 3, "no loss of power tears a file");
                // Of some seeds all is durable.
                torn.unwrap_or_else(|| disk.after_power_loss(Survivors::Nothing))
            }
            1 => disk.after_process_death(),
            _ => {
                cask.close().unwrap();
                past.all_durable();
                disk.after_process_death()
            }
        };
        let mut past = past.seen_from(&disk);
        if seed.is_multiple_of(3) {
            // What the power took is not promised any more.
            past = past.of_next_life(&contents(&open(&disk.after_process_death(), &options).unwrap()).unwrap());
            past.all_durable();
        }
        Self { disk, options, past, next_steps, is_on_disk: seed % 3 != 1 }
    }

    /// The same disk, for one more life.
    fn copy(&self) -> SimDisk {
        self.disk.after_process_death()
    }
}

fn unsynced(n: u8, bytes: usize) -> Step {
    let value = [&[b'z', n][..], &vec![n; bytes]].concat();
    Step::One(Op { key: vec![b'a' + n % 6], value: Some(value), ttl: None }, false)
}

fn synced(n: u8, bytes: usize) -> Step {
    match unsynced(n, bytes) {
        Step::One(op, _) => Step::One(op, true),
        other => other,
    }
}

fn is_typed(error: &esker::Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted)
}

/// Goal: whatever call of an open fails, the store is as it was for the next open; and what goes on from there, what was durable before
/// included, survives a loss of power.
#[test]
fn every_call_of_an_open_may_fail() {
    let test = "every_call_of_an_open_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let left = Left::new(seed);
        let healthy = left.copy();
        let cask = open(&healthy, &left.options).unwrap();
        let (ops, reads) = (healthy.op_count(), healthy.read_count());
        let found = contents(&cask).unwrap();
        drop(cask);
        for (n, fault) in (0..ops).flat_map(|n| FAULTS.map(|fault| (n, fault))) {
            let what = format!("{replay}: operation {n} of the open fails with {fault:?}");
            let disk = left.copy();
            disk.fail_at(n, fault);
            if let Err(error) = open(&disk, &left.options) {
                assert!(is_typed(&error), "{what}: {error}");
            }
            let cask = open(&disk, &left.options).unwrap_or_else(|error| panic!("{what}, then again: {error}"));
            // What a dead process left unsynced may go with a failed sync.
            let is_less = !left.is_on_disk && disk.has_evicted();
            let there =
                verified(&cask, &left.past, &left.past.durable).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            assert!(is_less || there == found, "{what}: something else is there");
            go_on(&left, cask, &disk, n, &what);
            tally.fault();
        }
        for n in 0..reads {
            let what = format!("{replay}: read {n} of the open fails");
            let disk = left.copy();
            disk.fail_read_at(n, ReadFault::Eio);
            match open(&disk, &left.options) {
                Ok(cask) => assert!(contents(&cask).unwrap() == found, "{what}: something else is there"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}"),
            }
            let cask = open(&disk, &left.options).unwrap_or_else(|error| panic!("{what}, then again: {error}"));
            assert!(contents(&cask).unwrap() == found, "{what}, then again: something else is there");
            tally.fault();
        }
    }
}

/// Goal: what a dead process has left to the system alone, names and all, is durable before the next one takes files away or writes to them:
/// wherever the first dies, and then the second, what either promised survives the power that goes after it.
#[test]
fn a_life_after_a_death_builds_on_nothing_that_the_power_takes() {
    let test = "a_life_after_a_death_builds_on_nothing_that_the_power_takes";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let mut random = Rng::with_seed(1300 + seed);
        let options = CaskOptions { stripes: 1 + (seed % 2) as usize, ..options(&mut random) };
        // The merge of the end has something to give back.
        let first_life = [(0..8).map(|n| unsynced(n, 300)).collect(), vec![Step::Compact]].concat();
        let second_life = [synced(20, 100)];
        let live = |disk: &SimDisk, steps: &[Step], past: &mut Past| run(&open(disk, &options)?, steps, past);
        let healthy = disk(seed);
        live(&healthy, &first_life, &mut Past::new(&healthy)).unwrap();
        for n in 0..healthy.op_count() {
            let first = disk(seed);
            first.die_after(n);
            let mut left = Past::new(&first);
            let _ = live(&first, &first_life, &mut left);
            for m in (n % 2..).step_by(2) {
                let second = first.after_process_death();
                second.die_after(m);
                let mut past = left.seen_from(&second);
                let ended = live(&second, &second_life, &mut past);
                for image in power_losses(&second, n ^ m << 8) {
                    let what = format!("{replay}: died at operation {n}, then at {m}, then {}", image.name);
                    let cask = open(&image.disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(cask.recovery().damage.is_empty(), "{what}: {:?}", cask.recovery());
                    let past = past.seen_from(&image.disk);
                    verified(&cask, &past, &past.durable).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                    tally.image();
                }
                if !second.is_dead() {
                    ended.unwrap_or_else(|error| panic!("{replay}: died at operation {n}: {error}"));
                    break;
                }
            }
        }
    }
}

/// Another life, at the end of which the power goes.
fn go_on(left: &Left, cask: Cask, disk: &SimDisk, n: u64, what: &str) {
    let mut past = left.past.seen_from(disk).of_next_life(&contents(&cask).unwrap());
    if !left.is_on_disk {
        cask.sync().unwrap();
    }
    past.all_durable();
    run(&cask, &left.next_steps, &mut past).unwrap_or_else(|error| panic!("{what}, then again: {error}"));
    drop(cask);
    for image in power_losses(disk, n) {
        let what = format!("{what}, then again, then {}", image.name);
        let cask = open(&image.disk, &left.options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(cask.recovery().damage.is_empty(), "{what}: {:?}", cask.recovery());
        verified(&cask, &past, &past.durable).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    }
}

/// Goal: a close that fails says so and loses nothing that was acknowledged, nor, when the power goes, anything that was durable; one that
/// does not has made everything durable; and the store can be opened again in any case.
#[test]
fn every_call_of_a_close_may_fail() {
    let test = "every_call_of_a_close_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let left = Left::new(seed);
        let play = |disk: &SimDisk| {
            let mut past = left.past.seen_from(disk);
            let cask = open(disk, &left.options).unwrap();
            run(&cask, &left.next_steps, &mut past).unwrap();
            (cask, past)
        };
        let healthy = left.copy();
        let (cask, _) = play(&healthy);
        let first = healthy.op_count();
        cask.close().unwrap();
        // The last of them is after all that a close does.
        for (n, fault) in (first..=healthy.op_count()).flat_map(|n| FAULTS.map(|fault| (n, fault))) {
            let what = format!("{replay}: operation {n} fails with {fault:?}, in a close");
            let is_whole = one_failed_close(&left, play, n, fault, &what);
            assert!(is_whole || n < healthy.op_count(), "{what}: nothing failed");
            tally.fault();
        }
    }
}

/// Whether it was closed all the same.
fn one_failed_close(left: &Left, play: impl Fn(&SimDisk) -> (Cask, Past), n: u64, fault: Fault, what: &str) -> bool {
    let disk = left.copy();
    let (cask, mut past) = play(&disk);
    disk.fail_at(n, fault);
    let closed = cask.close();
    disk.heal();
    match &closed {
        Ok(()) => past.all_durable(),
        Err(error) => assert!(is_typed(error) || error.kind() == ErrorKind::ReadOnly, "{what}: {error}"),
    }
    for image in power_losses(&disk, n) {
        let what = format!("{what}, then {}", image.name);
        let cask = open(&image.disk, &left.options).unwrap_or_else(|error| panic!("{what}: {error}"));
        verified(&cask, &past, &past.durable).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    }
    let cask = open(&disk, &left.options).unwrap_or_else(|error| panic!("{what}, then opened: {error}"));
    let kept = past.promised(kept_by_reopening(&disk));
    let found = verified(&cask, &past, kept).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    // What it builds on must be on the disk, though the system has said once that it is not.
    let mut past = past.of_next_life(&found);
    cask.sync().unwrap();
    past.all_durable();
    drop(cask);
    let image = disk.after_power_loss(Survivors::Nothing);
    let cask =
        open(&image, &left.options).unwrap_or_else(|error| panic!("{what}, then opened, then power loss: {error}"));
    verified(&cask, &past, &past.durable)
        .unwrap_or_else(|wrong| panic!("{what}, then opened, then power loss: {wrong}"));
    closed.is_ok()
}

/// Counts those that are started.
#[derive(Debug)]
struct Counted {
    threads: Arc<dyn Threads>,
    started: Arc<AtomicUsize>,
}

impl Threads for Counted {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> esker::env::Result<Box<dyn Thread>> {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.threads.spawn(name, work)
    }
}

/// Goal: a store of so many records that several threads settle them is what one thread makes of it: overwritten keys, deleted ones and
/// those with a history included.
#[test]
fn threads_settle_a_large_store_as_one_does() {
    // From 262,144 records on there is work for two.
    let (keys, again, gone) = (200_000u32, 50_000u32, 20_000u32);
    let disk = SimDisk::new();
    let options = CaskOptions {
        create_if_missing: true,
        stripes: 1,
        file_bytes: 16 << 20,
        keep_versions: 2,
        merge_garbage_ratio: 1.0,
        background_jobs: 0,
        open_threads: 0,
        ..CaskOptions::default()
    };
    let cask = open(&disk, &options).unwrap();
    let write = |from: u32, until: u32, value: Option<&[u8]>| {
        for first in (from..until).step_by(1000) {
            let mut batch = CaskBatch::new();
            for key in first..until.min(first + 1000) {
                match value {
                    Some(value) => batch.put(key.to_le_bytes(), value).unwrap(),
                    None => batch.delete(key.to_le_bytes()).unwrap(),
                }
            }
            cask.write(&batch, &CaskWriteOptions::default()).unwrap();
        }
    };
    write(0, keys, Some(b"one"));
    write(0, again, Some(b"two"));
    write(again - gone / 2, again + gone / 2, None);
    cask.close().unwrap();
    let mut found = Vec::new();
    for open_threads in [0, 2] {
        let started = Arc::new(AtomicUsize::new(0));
        let env = disk.env();
        let env = Env { threads: Arc::new(Counted { threads: env.threads.clone(), started: started.clone() }), ..env };
        let options = CaskOptions { open_threads, ..options.clone() };
        let cask = Cask::open_with_env("/store", options, env).unwrap();
        // One beside the caller to read the files, and one to settle what they hold.
        assert_eq!(started.load(Ordering::Relaxed), if open_threads == 0 { 0 } else { 2 });
        assert!(cask.recovery().records > 1 << 18);
        assert_eq!(cask.len(), u64::from(keys - gone));
        for key in (0..keys).step_by(7) {
            let history = cask.history(key.to_le_bytes()).unwrap();
            let values: Vec<&[u8]> = history.iter().map(|(_, value)| &**value).collect();
            let is_gone = (again - gone / 2..again + gone / 2).contains(&key);
            let wanted: &[&[u8]] = if is_gone {
                &[]
            } else if key < again {
                &[b"two", b"one"]
            } else {
                &[b"one"]
            };
            assert_eq!(values, wanted, "key {key}, {open_threads} threads");
        }
        let stats = cask.stats();
        found.push((stats.keys, stats.records, stats.bytes, stats.dead_records, stats.dead_bytes, stats.tombstones));
        cask.close().unwrap();
    }
    assert_eq!(found[0], found[1]);
}

/// Goal: a store that is being made is there or not, whichever call fails or is the last: the next open makes it, or finds it.
#[test]
fn every_call_of_a_creation_may_fail() {
    let create = |disk: &SimDisk| {
        let cask = Cask::open_with_env(
            "/store",
            CaskOptions { create_if_missing: true, ..CaskOptions::default() },
            disk.env(),
        )?;
        cask.put("key", "value")?;
        cask.close()
    };
    let healthy = SimDisk::new();
    create(&healthy).unwrap();
    for n in 0..healthy.op_count() {
        for fault in FAULTS.map(Some).into_iter().chain([None]) {
            let what = format!("operation {n} of a creation, {fault:?}");
            let disk = SimDisk::new();
            match fault {
                Some(fault) => disk.fail_at(n, fault),
                None => disk.die_after(n),
            }
            if let Err(error) = create(&disk) {
                let is_typed = matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted | ErrorKind::ReadOnly);
                assert!(is_typed, "{what}: {error}");
            }
            let lives = [disk.after_process_death(), disk.after_power_loss(Survivors::Sample { seed: n })];
            for disk in lives {
                create(&disk).unwrap_or_else(|error| panic!("{what}: again: {error}"));
                let cask = Cask::open_with_env("/store", CaskOptions::default(), disk.env()).unwrap();
                assert_eq!((cask.get("key").unwrap().as_deref(), cask.len()), (Some(&b"value"[..]), 1), "{what}");
                assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
            }
        }
    }
}

/// Opens the store in `dir` for reading, and does `action` before the `nth` call by which its first data file is read or mapped. What is read;
/// whether it was done; whether the file was mapped before.
fn read_while(dir: &Path, nth: usize, action: impl Fn() + Send + Sync + 'static) -> (Cask, bool, bool) {
    let (count, mapped, is_done) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(false)));
    let (maps, done) = (Arc::clone(&mapped), Arc::clone(&is_done));
    let hook = move |call: Call<'_>| {
        if matches!(call, Call::Read(path) | Call::Map(path) if path.ends_with("000001.data")) {
            let mut done = done.lock().unwrap();
            if count.fetch_add(1, Ordering::Relaxed) == nth {
                action();
                *done = true;
            }
            maps.fetch_or(!*done && matches!(call, Call::Map(_)), Ordering::Relaxed);
        }
        Ok(())
    };
    let env = Env { files: Arc::new(Hooked::new(Env::os().files, hook)), ..Env::os() };
    let options = CaskOptions { open_threads: 0, ..CaskOptions::default() };
    let cask = Cask::open_read_only_with_env(dir, options, env).unwrap_or_else(|error| panic!("call {nth}: {error}"));
    let is_done = *is_done.lock().unwrap();
    (cask, is_done, mapped.load(Ordering::Relaxed))
}

/// Goal: whoever opens a store for reading beside its writer reads the file that is being written and does not map it: the writer may cut it to
/// its last record at any moment, after which the process that touches what was mapped behind that is ended by the system.
#[test]
fn a_file_that_its_writer_cuts_is_read_and_not_mapped() {
    let options = CaskOptions { create_if_missing: true, stripes: 1, background_jobs: 0, ..CaskOptions::default() };
    for seals in [false, true] {
        for nth in 0.. {
            let what = format!("before call {nth}, sealed: {seals}");
            let dir = tempfile::tempdir().unwrap();
            let writer = Arc::new(Cask::open(dir.path(), options.clone()).unwrap());
            for n in 0..50u8 {
                writer.put([n], [n + 1; 100]).unwrap();
            }
            let path = dir.path().join("000001.data");
            let raw = std::fs::read(&path).unwrap();
            let end = raw.iter().rposition(|&byte| byte != 0).unwrap() + 1;
            assert!(raw.len() >= end + (64 << 10), "{what}: there is something to cut off");
            let sealer = Arc::clone(&writer);
            let (reader, is_done, is_mapped) = read_while(dir.path(), nth, move || {
                if seals {
                    sealer.compact().unwrap();
                } else {
                    let file = std::fs::File::options().write(true).open(&path).unwrap();
                    file.set_len(end as u64).unwrap();
                }
            });
            assert!(!is_mapped, "{what}: a file that is being written was mapped");
            assert!(reader.recovery().damage.is_empty(), "{what}: {:?}", reader.recovery());
            for n in 0..50u8 {
                assert_eq!(reader.get([n]).unwrap().unwrap(), [n + 1; 100], "{what}");
            }
            if !is_done {
                assert!(nth >= 2, "{what}: its head is read, and all of it");
                break;
            }
        }
    }
}

/// Goal: a sync of an open that fails, of a file that a crash had cut off, is not forgotten: what the next life calls durable is.
#[test]
fn a_torn_file_whose_sync_failed_is_written_anew() {
    let options = CaskOptions { create_if_missing: true, background_jobs: 0, stripes: 1, ..CaskOptions::default() };
    let disk = SimDisk::new();
    let cask = open(&disk, &options).unwrap();
    cask.put("unsynced", "x").unwrap();
    disk.die_within(disk.op_count(), 0..500);
    assert!(cask.put("torn", [7; 2000]).is_err());
    drop(cask);
    let torn = disk.after_process_death();
    let healthy = torn.after_process_death();
    drop(open(&healthy, &options).unwrap());
    let mut failures = 0;
    for n in 0..healthy.op_count() {
        let disk = torn.after_process_death();
        disk.fail_at(n, Fault::Eio);
        failures += usize::from(open(&disk, &options).is_err());
        let cask = open(&disk, &options).unwrap();
        assert_eq!(cask.get("unsynced").unwrap().unwrap(), b"x", "operation {n} failed");
        cask.sync().unwrap();
        let image = disk.after_power_loss(Survivors::Nothing);
        let cask = open(&image, &options).unwrap();
        assert!(cask.get("unsynced").unwrap().is_some(), "operation {n} failed, then a sync, then power loss");
    }
    assert!(failures > 1, "{failures}");
}

fn one_stripe() -> CaskOptions {
    let (create_if_missing, background_jobs, stripes, file_bytes) = (true, 0, 1, 4 << 10);
    CaskOptions { create_if_missing, background_jobs, stripes, file_bytes, ..CaskOptions::default() }
}

/// Goal: a store that has used all versions takes no more writes, which nobody could read.
#[test]
fn a_store_that_has_used_all_versions_takes_no_writes() {
    let disk = SimDisk::new();
    let cask = open(&disk, &one_stripe()).unwrap();
    cask.put("key", "value").unwrap();
    cask.close().unwrap();
    let path = Path::new("/store/000001.data");
    let mut raw = disk.file_bytes(path).unwrap();
    let salt = u32::from_le_bytes(raw[16..20].try_into().unwrap());
    let last = Record::decode(&raw[32..]).unwrap();
    let mut record = Vec::new();
    Record { version: VERSION_MAX, ..last }.encode(salt, &mut record).unwrap();
    raw.truncate(32);
    raw.extend_from_slice(&record);
    disk.overwrite(path, raw);
    let error = open(&disk, &one_stripe()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    let cask = Cask::open_read_only_with_env("/store", one_stripe(), disk.env()).unwrap();
    assert_eq!(cask.get("key").unwrap().unwrap(), b"value");

    // Nor one whose manifest says that it has so few left that the next life might use them up.
    let disk = SimDisk::new();
    open(&disk, &one_stripe()).unwrap().put("key", "value").unwrap();
    let path = Path::new("/store/MANIFEST");
    let manifest = Manifest::decode(&disk.file_bytes(path).unwrap()).unwrap();
    disk.overwrite(path, Manifest { next_version: VERSION_MAX, ..manifest }.encode());
    assert_eq!(open(&disk, &one_stripe()).map(drop).unwrap_err().kind(), ErrorKind::Exhausted);
    let cask = Cask::open_read_only_with_env("/store", one_stripe(), disk.env()).unwrap();
    assert_eq!(cask.get("key").unwrap().unwrap(), b"value");
}

/// Goal: a file that cannot be mapped is read no more often for much damage than for little.
#[test]
fn damage_that_a_hint_passes_over_is_read_once() {
    let reads = [1, 3].map(|damaged| {
        let options = CaskOptions { file_bytes: 64 << 10, ..one_stripe() };
        let disk = SimDisk::new();
        let cask = open(&disk, &options).unwrap();
        (0..10u8).for_each(|n| assert!(cask.put([n], [n; 900]).is_ok()));
        cask.close().unwrap();
        let path = Path::new("/store/000001.data");
        (0..damaged).for_each(|n| assert!(disk.flip_bit(path, 8 * (32 + 921 * 2 * n + 500))));
        // Seals the file, whose hint lacks these records.
        let cask = open(&disk, &options).unwrap();
        let _ = cask.compact();
        cask.close().unwrap();
        let reads = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&reads);
        let files = Hooked::new(disk.env().files, move |call| match call {
            Call::Map(path) => Err(esker::env::Error::new("mapping", path, std::io::ErrorKind::OutOfMemory.into())),
            Call::Read(read) => {
                count.fetch_add(u64::from(read == path), Ordering::Relaxed);
                Ok(())
            }
            _ => Ok(()),
        });
        let env = Env { files: Arc::new(files), ..disk.env() };
        let cask = Cask::open_with_env("/store", options, env).unwrap();
        assert_eq!(cask.recovery().damage.len() as u64, damaged);
        reads.load(Ordering::Relaxed)
    });
    assert_eq!(reads[0], reads[1]);
}

/// Goal: what is deleted stays so when more versions are kept from now on.
#[test]
fn versions_that_were_deleted_stay_so_when_more_are_kept() {
    let options = CaskOptions { keep_versions: 1, merge_garbage_ratio: 0.3, ..one_stripe() };
    let disk = SimDisk::new();
    let cask = open(&disk, &options).unwrap();
    cask.put("k", "a").unwrap();
    for n in 0..5u8 {
        cask.put([b'c', n], [n; 900]).unwrap();
    }
    cask.delete("k").unwrap();
    cask.put("k", "b").unwrap();
    // Files of garbage, the deletion among them, which are merged; that with the first version is not worth it.
    for n in 0..40u8 {
        cask.put("often", [n; 900]).unwrap();
    }
    assert!(cask.stats().merges > 0);
    cask.close().unwrap();
    let cask = open(&disk, &CaskOptions { keep_versions: 3, ..options }).unwrap();
    let history: Vec<_> = cask.history("k").unwrap().into_iter().map(|(_, value)| value.to_vec()).collect();
    assert_eq!(history, [b"b"]);
}

/// Goal: files that cannot be mapped are read.
#[test]
fn files_that_cannot_be_mapped_are_read() {
    let disk = SimDisk::new();
    let files = Hooked::new(disk.env().files, |call| match call {
        Call::Map(path) => Err(esker::env::Error::new("mapping", path, std::io::ErrorKind::OutOfMemory.into())),
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    for life in 0..2u8 {
        let cask = Cask::open_with_env("/store", one_stripe(), env.clone()).unwrap();
        for n in 0..10u8 {
            cask.put([life, n], [n; 900]).unwrap();
        }
        assert!(cask.stats().sealed_files > 1 && cask.stats().background_error.is_none(), "{:?}", cask.stats());
        assert_eq!(cask.get([life, 0]).unwrap().unwrap(), [0; 900]);
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        cask.close().unwrap();
    }
}

/// A store of one life with two stripes, which died before its second file had a record.
fn with_an_empty_file() -> SimDisk {
    let live = |disk: &SimDisk| {
        let options = CaskOptions { stripes: 2, ..one_stripe() };
        let cask = open(disk, &options).unwrap();
        for stripe in 0..2 {
            let to = CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
            if cask.put_with([stripe as u8], "value", &to).is_err() {
                break;
            }
        }
        disk.op_count()
    };
    let healthy = SimDisk::new();
    let disk = SimDisk::new();
    disk.die_after(live(&healthy) - 1);
    live(&disk);
    let disk = disk.after_process_death();
    assert_eq!(disk.file_bytes(Path::new("/store/000002.data")).map(|bytes| bytes.iter().any(|b| *b != 0)), Some(true));
    disk
}

/// Goal: a file that stood ready when the process died is written like any other; one with a damaged head is not written.
#[test]
fn a_file_that_stood_ready_takes_what_others_take() {
    for is_damaged in [false, true] {
        let disk = with_an_empty_file();
        if is_damaged {
            assert!(disk.flip_bit(Path::new("/store/000002.data"), 20));
        }
        let cask = open(&disk, &one_stripe()).unwrap();
        for n in 0..10u8 {
            cask.put([b'k', n], [n; 900]).unwrap();
        }
        let stats = cask.stats();
        assert_eq!((stats.records, stats.files), (11, if is_damaged { 4 } else { 3 }), "{stats:?}");
        assert_eq!(stats.damaged_files, u64::from(is_damaged));
        if is_damaged {
            assert_eq!(disk.file_bytes(Path::new("/store/000002.data")).unwrap().len(), 32);
        }
    }
}
