//! A reader that opens a store beside its writer, who goes on at any moment meanwhile: it sees what there was at one moment, all of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use esker::env::Env;
use esker::env::sim::SimDisk;
use esker::{Compression, Db, FamilyOptions, Options, ReclaimMode, RecoveryMode, Separation, WriteOptions};
use esker_torture::hooked::{Call, Hooked, Meanwhile};

fn options(separation: Separation) -> Options {
    let family = FamilyOptions {
        separation,
        min_blob_size: 200,
        write_buffer_bytes: 64 << 10,
        blob_file_bytes: 64 << 10,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        reclaim_mode: ReclaimMode::Manual,
        families: [("default".to_owned(), family.clone()), ("second".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == "log")
}

fn logs(disk: &SimDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| is_log(path)).collect()
}

/// Opens for reading what is on `disk`, and does `action` before the `nth` call that is about a log; whether it came to that.
fn open_while(
    disk: &SimDisk,
    options: Options,
    nth: usize,
    action: impl FnOnce() + Send + 'static,
) -> (esker::Result<Db>, bool) {
    let (meanwhile, count) = (Meanwhile::default(), AtomicUsize::new(0));
    let is_it = move |call: Call<'_>| is_log(call.path()) && count.fetch_add(1, Ordering::Relaxed) == nth;
    meanwhile.before(is_it, action);
    (Db::open_read_only_with_env("/store", options, meanwhile.env(disk)), meanwhile.is_done())
}

/// The keys of entry number `n`, and on; each has a value of its own.
fn put(db: &Db, numbers: std::ops::Range<u32>, value_bytes: usize) {
    for n in numbers {
        db.put(n.to_be_bytes(), vec![n as u8; value_bytes]).unwrap();
    }
}

/// How many entries there are: those written first, all of them readable.
fn count(db: &Db, value_bytes: usize) -> u32 {
    let mut count = 0;
    for (n, entry) in (0u32..).zip(db.iter().unwrap().entries()) {
        let (key, value) = entry.unwrap_or_else(|error| panic!("entry {n}: {error}"));
        assert_eq!(key, n.to_be_bytes(), "no entry is there without those before it");
        assert!(value.len() == value_bytes && value.iter().all(|&byte| byte == n as u8));
        count += 1;
    }
    count
}

/// Goal: what is written to the log meanwhile is shown whole or not at all: no pointer without its value.
#[test]
fn what_is_written_while_a_reader_opens_is_whole_or_absent() {
    const BYTES: usize = 3000;
    for nth in 0.. {
        let disk = SimDisk::new();
        let db = Arc::new(Db::open_with_env("/store", options(Separation::AtWrite), disk.env()).unwrap());
        put(&db, 0..5, BYTES);
        let writer = Arc::clone(&db);
        // Less than fills the blob file: a flush would change the manifest, upon which all is read again.
        let action = move || put(&writer, 5..15, BYTES);
        let (reader, is_done) = open_while(&disk, options(Separation::AtWrite), nth, action);
        let found = count(&reader.unwrap_or_else(|error| panic!("call {nth}: {error}")), BYTES);
        assert!([5, 15].contains(&found), "call {nth}: {found}");
        if !is_done {
            assert!(nth > 4, "there were {nth} calls");
            return;
        }
    }
}

/// Keeps tables from being made.
#[derive(Default)]
struct Held {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Held {
    fn env(self: &Arc<Self>, disk: &SimDisk) -> Env {
        let held = Arc::clone(self);
        let files = Hooked::new(disk.env().files, move |call| {
            if matches!(call, Call::Create(path) if path.extension().is_some_and(|found| found == "sst")) {
                drop(held.changed.wait_while(held.is_over.lock().unwrap(), |is_over| !*is_over).unwrap());
            }
            Ok(())
        });
        Env { files: Arc::new(files), ..disk.env() }
    }
}

/// Lets tables be made again when it goes.
struct Hold(Arc<Held>);

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.is_over.lock().unwrap() = true;
        self.0.changed.notify_all();
    }
}

/// Goal: a log is not shown without the end of the one before it, though it was there, made ahead of time, before anything was read.
/// Method: the writer fills one log and goes on in the next; no flush changes the manifest meanwhile, upon which all would be read again.
#[test]
fn a_log_that_is_begun_while_a_reader_opens_does_not_come_without_the_one_before() {
    const BYTES: usize = 1000;
    for nth in 0.. {
        let (disk, held) = (SimDisk::new(), Arc::new(Held::default()));
        let with_jobs = Options { background_jobs: 1, ..options(Separation::Off) };
        let db = Arc::new(Db::open_with_env("/store", with_jobs, held.env(&disk)).unwrap());
        // Before the store, whose close waits for its threads.
        let hold = Hold(held);
        put(&db, 0..40, BYTES);
        let begun = Instant::now();
        while logs(&disk).len() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the next log is made at half of the first");
            std::thread::sleep(Duration::from_millis(1));
        }
        let writer = Arc::clone(&db);
        let action = move || {
            let next = (40..200).find(|&n| {
                put(&writer, n..n + 1, BYTES);
                writer.stats().wal_files > 1
            });
            let next = next.expect("the log is full") + 1;
            put(&writer, next..next + 5, BYTES);
        };
        let (reader, is_done) = open_while(&disk, options(Separation::Off), nth, action);
        let found = reader.map(|reader| count(&reader, BYTES));
        drop(hold);
        let found = found.unwrap_or_else(|error| panic!("call {nth}: {error}"));
        assert!(found >= 40, "call {nth}: {found}");
        if !is_done {
            assert!(nth > 4, "there were {nth} calls");
            return;
        }
    }
}

/// Goal: that a log goes, or is written over as another one, between any two steps of an open is not the reader's concern: the manifest
/// did not need it, though it did not say so for a family that writes nothing.
#[test]
fn a_log_that_goes_while_a_reader_opens_is_not_missed() {
    const BYTES: usize = 100;
    for is_recycled in [false, true] {
        for nth in 0.. {
            let disk = SimDisk::new();
            let options = Options { recycled_logs_max: usize::from(is_recycled), ..options(Separation::Off) };
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            let second = db.create_column_family("second", options.families["second"].clone()).unwrap();
            put(&db, 0..20, BYTES);
            let log = logs(&disk).remove(0);
            let bytes = disk.file_bytes(&log).unwrap();
            db.flush().unwrap();
            put(&db, 20..40, BYTES);
            let synced = WriteOptions { sync: true, ..WriteOptions::default() };
            db.put_cf(&second, "key", "value", &synced).unwrap();
            let image = disk.after_process_death();
            // The edit is in the manifest, the log is not gone yet.
            image.overwrite(&log, bytes);
            let files = image.env().files;
            let action = move || {
                if !is_recycled {
                    return files.remove(&log).unwrap();
                }
                let file = files.recycle(&log, &log.with_file_name("000099.log")).unwrap();
                file.append(&[&[0; 512]]).unwrap();
            };
            let (reader, is_done) = open_while(&image, options, nth, action);
            let reader = reader.unwrap_or_else(|error| panic!("recycled: {is_recycled}, call {nth}: {error}"));
            assert_eq!(count(&reader, BYTES), 40, "recycled: {is_recycled}, call {nth}");
            let second = reader.column_family("second").unwrap();
            assert!(reader.get_cf(&second, "key", &Default::default()).unwrap().is_some());
            if !is_done {
                assert!(nth > 4, "there were {nth} calls");
                break;
            }
        }
    }
}

const MODES: [RecoveryMode; 4] = [
    RecoveryMode::AbsoluteConsistency,
    RecoveryMode::TolerateTornTail,
    RecoveryMode::PointInTime,
    RecoveryMode::SkipCorrupt,
];

/// The entries of a store that a healthy writer is writing to.
fn count_undamaged(reader: esker::Result<Db>, value_bytes: usize, what: &str) -> u32 {
    let reader = reader.unwrap_or_else(|error| panic!("{what}: {error}"));
    let recovery = reader.stats().recovery;
    assert_eq!((&recovery.torn_at, recovery.dropped_bytes, recovery.skipped_bytes), (&None, 0, 0), "{what}");
    count(&reader, value_bytes)
}

/// Goal: an append that the reader sees half of is no damage, in no mode.
/// Method: the rest of it comes once the reader has read the log, before it looks at anything else.
#[test]
fn an_append_that_is_seen_in_part_is_no_damage() {
    const BYTES: usize = 150;
    for mode in MODES {
        for kept_bytes in [1, 7, 20, 100, 149] {
            let disk = SimDisk::new();
            let options = Options { wal_recovery: mode, ..options(Separation::Off) };
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            put(&db, 0..5, BYTES);
            let log = logs(&disk).remove(0);
            let before = disk.file_bytes(&log).unwrap();
            put(&db, 5..6, BYTES);
            let image = disk.after_process_death();
            let whole = image.file_bytes(&log).unwrap();
            let begun = whole.iter().zip(&before).position(|(new, old)| new != old).unwrap();
            let mut half = before;
            half[begun..begun + kept_bytes].copy_from_slice(&whole[begun..begun + kept_bytes]);
            image.overwrite(&log, half);

            let (was_read, disk) = (AtomicUsize::new(0), image.clone());
            let files = Hooked::new(image.env().files, move |call| {
                match call {
                    Call::Read(path) if path == log => drop(was_read.fetch_add(1, Ordering::Relaxed)),
                    call if !is_log(call.path()) && was_read.load(Ordering::Relaxed) > 0 => {
                        disk.overwrite(&log, whole.clone());
                    }
                    _ => {}
                }
                Ok(())
            });
            let env = Env { files: Arc::new(files), ..image.env() };
            let reader = Db::open_read_only_with_env("/store", options, env);
            assert_eq!(count_undamaged(reader, BYTES, &format!("{mode:?}, {kept_bytes} bytes")), 6);
        }
    }
}

/// Goal: a log that goes on while it is read is neither damaged nor torn, in no mode.
/// Method: before any step the writer goes on from one block of the log into the next; the reader may hold the first, with its end empty.
#[test]
fn a_log_that_goes_on_into_its_next_block_is_no_damage() {
    const BYTES: usize = 1000;
    for mode in MODES {
        for nth in 0.. {
            let disk = SimDisk::new();
            let options = Options { wal_recovery: mode, ..options(Separation::Off) };
            let db = Arc::new(Db::open_with_env("/store", options.clone(), disk.env()).unwrap());
            put(&db, 0..5, BYTES);
            let writer = Arc::clone(&db);
            let (reader, is_done) = open_while(&disk, options, nth, move || put(&writer, 5..40, BYTES));
            let found = count_undamaged(reader, BYTES, &format!("{mode:?}, call {nth}"));
            assert!([5, 40].contains(&found), "{mode:?}, call {nth}: {found}");
            if !is_done {
                assert!(nth > 4, "there were {nth} calls");
                break;
            }
        }
    }
}

/// Goal: no log is shown without the one before it, though a listing of the directory had only the later one: both were begun meanwhile.
#[test]
fn a_log_that_a_listing_has_missed_is_not_left_out() {
    let disk = SimDisk::new();
    let options = options(Separation::Off);
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let second = db.create_column_family("second", options.families["second"].clone()).unwrap();
    for n in 0..3u32 {
        db.put_cf(&second, n.to_be_bytes(), "value", &WriteOptions::default()).unwrap();
        if n < 2 {
            put(&db, 0..1, 10);
            db.flush_cf(&db.column_family("default").unwrap()).unwrap();
        }
    }
    let logs = logs(&disk);
    assert_eq!(logs.len(), 3, "the second family needs all of them");
    let name = |log: &PathBuf| log.file_name().unwrap().to_str().unwrap().to_owned();
    // The first listing comes before either, the second while both are begun.
    let unseen = Mutex::new(vec![vec![name(&logs[1])], vec![name(&logs[1]), name(&logs[2])]]);
    let files = Hooked::new(disk.env().files, |_| Ok(())).with_sight(move |entries| {
        let unseen = unseen.lock().unwrap().pop().unwrap_or_default();
        entries.retain(|entry| !unseen.contains(&entry.name));
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let reader = Db::open_read_only_with_env("/store", options, env).unwrap();
    let second = reader.column_family("second").unwrap();
    for n in 0..3u32 {
        let value = reader.get_cf(&second, n.to_be_bytes(), &Default::default()).unwrap();
        assert!(value.is_some(), "entry {n}");
    }
}
