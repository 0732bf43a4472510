//! Background work that fails: what it costs those who write, what becomes of its claims, and who is told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use esker::env::sim::{Fault, SimDisk};
use esker::env::{Env, Result as EnvResult, Thread, Threads};
use esker::{Db, ErrorKind, FamilyOptions, Options, Separation};
use esker_torture::hooked::{Call, Hooked};

fn options(background_jobs: usize) -> Options {
    let family = FamilyOptions {
        separation: Separation::Off,
        level0_compaction_trigger: 2,
        target_file_bytes: 16 << 10,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// Two tables in level 0 that meet, of which the first has a flipped bit.
fn damaged(disk: &SimDisk) -> Db {
    let db = Db::open_with_env("/store", options(0), disk.env()).unwrap();
    for key in 0..100u8 {
        db.put([key], [key; 100]).unwrap();
    }
    db.flush().unwrap();
    let table = disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "sst")).unwrap();
    assert!(disk.flip_bit(&table, 100 * 8));
    db.put([0], "again").unwrap();
    db.flush().unwrap();
    db
}

/// Goal: damage that a compaction meets refuses no write and is met once, not again and again, until there is something
/// new to compact or somebody asks; all the while `stats` tells of it.
#[test]
fn a_compaction_that_meets_damage_rests_and_refuses_no_write() {
    let disk = SimDisk::new();
    let db = damaged(&disk);
    let stats = db.stats();
    assert_eq!(stats.resting_compactions, 1);
    assert_eq!(stats.background_error.map(|error| error.kind()), Some(ErrorKind::Corruption));
    for n in 0..10u8 {
        db.put([n], "goes on").unwrap();
    }
    db.create_column_family("second", FamilyOptions::default()).unwrap();
    let reads = disk.read_count();
    // Looks for work, and finds nothing new.
    db.compact_range(&db.column_family("second").unwrap(), None, None).unwrap();
    assert_eq!(disk.read_count(), reads, "nobody reads the damaged table again");
    let error = db.compact_range(&db.default_column_family(), None, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "whoever asks is told again: {error}");
    assert_eq!(db.stats().resting_compactions, 1);
    db.flush().unwrap();
    db.close().unwrap();
}

/// Goal: once somebody has waited for compactions, none is due; damage that keeps one from being done is told every time.
#[test]
fn who_waits_for_compactions_finds_none_left_or_hears_of_damage() {
    let disk = SimDisk::new();
    let small = FamilyOptions { write_buffer_bytes: 64 << 10, ..options(0).families["default"].clone() };
    let options = Options { families: [("default".to_owned(), small)].into(), ..options(2) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for n in 0..20_000u32 {
        db.put((n.wrapping_mul(0x9e37_79b9)).to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    let (family, compactions) = (&db.stats().families[0], db.stats().compactions);
    assert!(family.levels[0].files < 2 && family.pending_compaction_bytes == 0 && compactions > 0, "{family:?}");
    db.clone().close().unwrap();
    assert_eq!(db.wait_for_compact().unwrap_err().kind(), ErrorKind::Closed);

    let disk = SimDisk::new();
    let db = damaged(&disk);
    for _ in 0..2 {
        assert_eq!(db.wait_for_compact().unwrap_err().kind(), ErrorKind::Corruption);
    }
    db.put("goes", "on").unwrap();
}

/// Goal: without background threads, a compaction that fails refuses no write; a flush that fails does.
#[test]
fn only_a_flush_that_fails_refuses_a_write() {
    let small = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        write_buffer_count_max: 2,
        ..options(0).families["default"].clone()
    };
    let options = Options { families: [("default".to_owned(), small)].into(), ..options(0) };
    let count_ops = |n: Option<u64>| {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        if let Some(n) = n {
            disk.fail_at(n, Fault::NoSpace);
        }
        disk.set_tracing(true);
        let mut refused = 0;
        for n in 0..10_000u32 {
            refused += u32::from(db.put((n % 500).to_be_bytes(), [7; 100]).is_err());
        }
        assert!(db.stats().compactions > 0);
        (refused, disk.trace())
    };
    let (_, trace) = count_ops(None);
    let creations: Vec<&String> =
        trace.iter().filter(|line| line.contains("create") && line.contains(".sst")).collect();
    let index = |line: &str| line.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
    let refusals: Vec<u32> = creations.iter().map(|line| count_ops(Some(index(line))).0).collect();
    assert!(refusals.contains(&0), "a compaction's failure: {refusals:?}");
    assert!(refusals.iter().any(|&refused| refused > 0), "a flush's failure: {refusals:?}");
}

/// Goal: a log that was begun in vain does not stay.
#[test]
fn a_log_that_could_not_be_begun_goes() {
    let healthy = SimDisk::new();
    let rotate = |disk: &SimDisk, fails_at: Option<u64>| {
        let db = Db::open_with_env("/store", options(0), disk.env()).unwrap();
        db.put("key", "value").unwrap();
        if let Some(n) = fails_at {
            disk.fail_at(n, Fault::Eio);
        }
        let flushed = db.flush();
        (db, flushed)
    };
    healthy.set_tracing(true);
    let _ = rotate(&healthy, None);
    let trace = healthy.trace();
    let created = trace.iter().rposition(|line| line.contains("create") && line.contains(".log")).unwrap();
    let first = trace[created].split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
    let steps: Vec<&str> = trace[created + 1..created + 5].iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(steps, ["preallocate", "sync_dir", "append", "seal"], "the note of the log before is its first record");
    for step in 1..4 {
        let disk = SimDisk::new();
        let (db, flushed) = rotate(&disk, Some(first + step));
        assert_eq!(flushed.unwrap_err().kind(), ErrorKind::Io);
        db.flush().unwrap();
        let logs = disk.paths().iter().filter(|path| path.extension().is_some_and(|e| e == "log")).count();
        assert_eq!((logs, db.stats().wal_files), (1, 1));
    }
}

/// The machine of `disk`, where no table can be made without a panic from when the second one is set.
fn without_tables(disk: &SimDisk) -> (Env, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let files = Hooked::new(disk.env().files, move |call| {
        let is_table = matches!(call, Call::Create(path) if path.extension().is_some_and(|found| found == "sst"));
        assert!(!is_table || !is_armed.load(Ordering::Relaxed), "no table today");
        Ok(())
    });
    (Env { files: Arc::new(files), ..disk.env() }, armed)
}

/// Goal: a panic in background work is told to whoever waits for it and to `stats`, and keeps nobody from closing.
#[test]
fn a_panic_in_the_background_is_an_error_and_close_returns() {
    for background_jobs in [0, 1, 3] {
        let disk = SimDisk::new();
        let (env, armed) = without_tables(&disk);
        let db = Db::open_with_env("/store", options(background_jobs), env).unwrap();
        db.put("before", "x").unwrap();
        db.flush().unwrap();
        db.put("key", "value").unwrap();
        armed.store(true, Ordering::Relaxed);
        let error = db.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("no table today"), "{error}");
        assert!(db.stats().background_error.is_some());
        assert_eq!(db.put("after", "x").unwrap_err().kind(), ErrorKind::ReadOnly);
        assert!(db.get("key").unwrap().is_some(), "reads go on");
        assert_eq!(db.close().unwrap_err().kind(), ErrorKind::ReadOnly);
        let db = Db::open_with_env("/store", options(background_jobs), disk.env()).unwrap();
        assert!(db.get("before").unwrap().is_some() && db.get("key").unwrap().is_some());
        db.close().unwrap();
    }
}

/// Goal: the same for a compaction by hand, which runs in the caller's thread: its claims are given back.
#[test]
fn a_panic_in_a_compaction_by_hand_is_an_error() {
    let disk = SimDisk::new();
    let (env, armed) = without_tables(&disk);
    let mut options = options(2);
    options.families.insert("default".to_owned(), FamilyOptions::default());
    let db = Db::open_with_env("/store", options, env).unwrap();
    for value in ["one", "two"] {
        db.put("key", value).unwrap();
        db.flush().unwrap();
    }
    armed.store(true, Ordering::Relaxed);
    let error = db.compact_range(&db.default_column_family(), None, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// Threads that begin their work when they are waited for.
#[derive(Debug, Default)]
struct Late;

struct LateThread(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for LateThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LateThread")
    }
}

impl Thread for LateThread {
    fn join(&mut self) -> bool {
        if let Some(work) = self.0.lock().unwrap().take() {
            work();
        }
        true
    }
}

impl Threads for Late {
    fn spawn(&self, _: &str, work: Box<dyn FnOnce() + Send>) -> EnvResult<Box<dyn Thread>> {
        Ok(Box::new(LateThread(Mutex::new(Some(work)))))
    }
}

/// Goal: what a family was made with holds after a death right behind the call, though no thread has done anything yet.
#[test]
fn options_of_a_new_family_survive_a_death_before_any_background_work() {
    let disk = SimDisk::new();
    let env = Env { threads: Arc::new(Late), ..disk.env() };
    let db = Db::open_with_env("/store", options(1), env).unwrap();
    for n in 0..5u64 {
        let family = FamilyOptions { min_blob_size: 100 + n, level_count: 5, ..FamilyOptions::default() };
        db.create_column_family(&format!("family{n}"), family).unwrap();
    }
    let disk = disk.after_process_death();
    std::mem::forget(db);
    let db = Db::open_with_env("/store", Options { background_jobs: 0, ..Options::default() }, disk.env()).unwrap();
    for n in 0..5u64 {
        let family = db.column_family(&format!("family{n}")).unwrap();
        assert_eq!((family.options().min_blob_size, family.options().level_count), (100 + n, 5));
    }
}
