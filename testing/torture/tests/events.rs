//! What listeners are told: all of it, once, and true; and that it costs the store nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use esker::env::sim::{Fault, SimDisk};
use esker::{
    Compression, Db, Event, EventKind, FamilyOptions, FileChanges, IngestOptions, JobKind, Listener, Options,
    Separation, SstFileWriter, WaitCause, WriteOptions,
};
use esker_torture::numbered::{key, noise};

/// What was told, put together.
#[derive(Debug, Default)]
struct Told {
    /// Name and level of all files that there should be.
    files: BTreeSet<(String, Option<usize>)>,
    /// Ids of jobs that began.
    begun: BTreeSet<u64>,
    /// Those that did not end yet.
    running: BTreeSet<u64>,
    /// Kinds of those that ended well.
    kinds: Vec<JobKind>,
    /// Errors of those that did not.
    errors: Vec<String>,
    read_only: Vec<String>,
    sealed: usize,
    taken_in: usize,
    punched_bytes: u64,
    waits: Vec<WaitCause>,
    lines: String,
}

impl Told {
    fn change(&mut self, changes: &FileChanges) {
        for file in &changes.dropped {
            assert!(self.files.remove(&(file.name(), file.level)), "{file:?} was never told of");
        }
        for file in &changes.added {
            assert!(self.files.insert((file.name(), file.level)) && file.bytes > 0, "{file:?}");
        }
        self.punched_bytes += changes.punched_bytes;
    }

    fn hear(&mut self, event: &Event<'_>) {
        let line = event.to_string();
        assert!(!line.contains('\n') && line.contains(" s  "), "{line}");
        self.lines += &format!("{line}\n");
        match &event.kind {
            EventKind::JobBegan(job) => {
                assert!(self.begun.insert(job.id) && self.running.insert(job.id), "{job}");
                assert_eq!(job.inputs == 0, job.kind == JobKind::Punch, "{job}");
            }
            EventKind::JobEnded { job, outcome, .. } => {
                assert!(self.running.remove(&job.id), "{job}");
                match outcome {
                    Ok(changes) => {
                        self.kinds.push(job.kind);
                        self.change(changes);
                    }
                    Err(error) => self.errors.push(error.to_string()),
                }
            }
            EventKind::TakenIn { changes, .. } => {
                self.taken_in += 1;
                self.change(changes);
            }
            EventKind::MemtableSealed { bytes, .. } => {
                assert!(*bytes > 0);
                self.sealed += 1;
            }
            EventKind::Waited { cause, .. } => self.waits.push(*cause),
            EventKind::ReadOnly(error) => self.read_only.push(error.to_string()),
            _ => {}
        }
    }

    fn has(&self, kind: JobKind) -> bool {
        self.kinds.contains(&kind)
    }
}

fn options(background_jobs: usize, separation: Separation) -> (Options, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let heard = told.clone();
    let listener = Listener::new(move |event| {
        // What fails here would be caught where it is told.
        let mut told = heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| told.hear(event)));
        if result.is_err() {
            told.errors.push(format!("wrong: {event}"));
        }
    });
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        separation,
        min_blob_size: 100,
        blob_file_bytes: 128 << 10,
        blob_compression: Compression::None,
        target_file_bytes: 16 << 10,
        level_base_bytes: 64 << 10,
        level0_compaction_trigger: 2,
        ..FamilyOptions::default()
    };
    let options = Options {
        create_if_missing: true,
        background_jobs,
        punch_holes: true,
        families: [("default".to_owned(), family)].into(),
        listeners: vec![listener],
        ..Options::default()
    };
    (options, told)
}

/// Names of tables and blob files in the directory.
fn in_directory(disk: &SimDisk) -> BTreeSet<String> {
    let is_file = |path: &Path| path.parent() == Some(Path::new("/store"));
    let names = disk.paths().into_iter().filter(|path| is_file(path));
    let names = names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    names.filter(|name| name.ends_with(".sst") || name.ends_with(".blob")).collect()
}

/// Goal: whoever puts together what was told of files has those that there are, in their levels, whatever made them: flushes, merges, moves,
/// all ways of reclaim, files taken in, ranges deleted, values come home. Every job that begins ends, and is told once. With and
/// without threads.
#[test]
fn what_was_told_of_files_is_what_there_is() {
    let kinds = [
        (Separation::AtFlush, 700, 0),
        (Separation::AtFlush, 800, 0),
        (Separation::AtWrite, 9000, 0),
        (Separation::Off, 700, 0),
        (Separation::AtFlush, 700, 2),
    ];
    let mut seen: Vec<JobKind> = Vec::new();
    for (separation, value_bytes, background_jobs) in kinds {
        let disk = SimDisk::new();
        let (mut options, told) = options(background_jobs, separation);
        if value_bytes == 800 {
            // Room for a few ranges of keys.
            let family = options.families.get_mut("default").unwrap();
            (family.write_buffer_bytes, family.blob_file_bytes, family.target_file_bytes) =
                (512 << 10, 64 << 10, 32 << 10);
            (family.level_base_bytes, family.level0_compaction_trigger) = (256 << 20, 4);
        }
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let family = db.default_column_family();
        let count = 1_000_000 / value_bytes as u32;
        for n in 0..8 * count {
            // In order, some tables meet nothing on their way down.
            let is_in_order = separation == Separation::Off;
            let at = if is_in_order {
                n / 6
            } else {
                noise(n, 0, 4).iter().fold(0u32, |sum, &byte| sum << 8 | u32::from(byte)) % count
            };
            db.put(key(at), noise(at, n, value_bytes)).unwrap();
        }
        db.flush().unwrap();
        db.compact_range(&family, None, None).unwrap();
        let mut writer = SstFileWriter::create_with_env("/in.sst", &FamilyOptions::default(), disk.env()).unwrap();
        for n in count..count + 200 {
            writer.put(key(n), noise(n, 0, 50)).unwrap();
        }
        writer.finish().unwrap();
        db.ingest(&family, &[Path::new("/in.sst")], &IngestOptions::default()).unwrap();
        for n in count..count + 10 {
            db.put(key(n), "newer").unwrap();
        }
        db.flush().unwrap();
        db.delete_files_in_range(&family, Some(&key(count)), None).unwrap();
        db.reclaim(&family, 0.05).unwrap();
        db.set_separation(&family, Separation::FallBack).unwrap();
        db.wait_for_compact().unwrap();
        let stats = db.stats();
        db.close().unwrap();
        let told = told.lock().unwrap();
        assert!(told.errors.is_empty() && told.read_only.is_empty(), "{:?}\n{}", told.errors, told.lines);
        assert!(told.running.is_empty() && told.begun.iter().copied().eq(1..=told.begun.len() as u64));
        let names: BTreeSet<String> = told.files.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, in_directory(&disk), "{}", told.lines);
        for level in &stats.families[0].levels {
            let count = told.files.iter().filter(|(_, at)| *at == Some(level.level)).count();
            assert_eq!(count, level.files, "level {}", level.level);
        }
        let count = |kind: JobKind| told.kinds.iter().filter(|done| **done == kind).count() as u64;
        assert_eq!((count(JobKind::Flush), count(JobKind::Punch)), (stats.flushes, stats.punches));
        assert_eq!(count(JobKind::Move), stats.trivial_moves);
        assert_eq!(told.punched_bytes, stats.punched_bytes);
        assert!(told.sealed as u64 >= stats.flushes && told.taken_in == 1);
        seen.extend(&told.kinds);
    }
    for kind in [
        JobKind::Flush,
        JobKind::Compaction,
        JobKind::Move,
        JobKind::Sweep,
        JobKind::Window,
        JobKind::Relocation,
        JobKind::FallBack,
        JobKind::Punch,
        JobKind::DeleteFiles,
    ] {
        assert!(seen.contains(&kind), "{kind} was never seen");
    }
}

/// Goal: a job that fails is told with its error, and changed nothing; whichever call of a flush it is that fails. A failed sync is told as the
/// end of writing, once.
#[test]
fn what_fails_is_told_with_its_error() {
    let (mut failed_jobs, mut made_read_only) = (0, 0);
    for at in 0.. {
        let disk = SimDisk::new();
        let (options, told) = options(0, Separation::AtFlush);
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        db.put("key", [1; 500]).unwrap();
        let before = disk.op_count();
        disk.fail_at(before + at, Fault::Eio);
        let result = db.flush();
        if disk.op_count() <= before + at {
            break;
        }
        let synced = WriteOptions { sync: true, ..WriteOptions::default() };
        let refused = (0..2).filter(|_| db.put_cf(&db.default_column_family(), "key", "value", &synced).is_err());
        let refused = refused.count();
        let told = told.lock().unwrap();
        assert!(told.running.is_empty(), "{at}: {}", told.lines);
        if let Err(error) = result {
            // Before the job began, in it, or once it was done.
            assert_eq!(
                told.errors.len(),
                usize::from(!told.begun.is_empty() && !told.has(JobKind::Flush)),
                "{at}: {error}"
            );
            assert_eq!(told.files.is_empty(), !told.has(JobKind::Flush), "{at}: {error}");
            failed_jobs += told.errors.len();
        }
        assert_eq!(told.read_only.len(), usize::from(refused > 0), "{at}: {}", told.lines);
        made_read_only += told.read_only.len();
    }
    assert!(failed_jobs > 5 && made_read_only > 0, "{failed_jobs} and {made_read_only}");
}

/// Goal: a listener that panics harms nobody: others are told, and the store goes on, with and without threads.
#[test]
fn a_listener_that_panics_harms_nobody() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let (mut options, told) = options(background_jobs, Separation::AtFlush);
        options.listeners.insert(0, Listener::new(|_| std::panic::resume_unwind(Box::new("a listener"))));
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        for n in 0..2000 {
            db.put(key(n % 200), noise(n, 0, 500)).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
        assert!(db.stats().background_error.is_none());
        assert_eq!(db.get(key(199)).unwrap().as_deref(), Some(&noise(1999, 0, 500)[..]));
        db.close().unwrap();
        let told = told.lock().unwrap();
        assert!(told.has(JobKind::Flush) && told.running.is_empty() && told.sealed > 1);
    }
}

/// Goal: a listener may read the store while it is told, from whatever thread that is.
#[test]
fn a_listener_may_read() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let (mut options, told) = options(background_jobs, Separation::AtFlush);
        let db: Arc<Mutex<Option<Db>>> = Arc::default();
        let (opened, read) = (db.clone(), Arc::new(Mutex::new(0)));
        let count = read.clone();
        options.listeners.push(Listener::new(move |_| {
            let db = opened.lock().unwrap().clone();
            if let Some(db) = db {
                assert!(db.get(key(0)).unwrap().is_some() && db.iter().unwrap().seek_to_first().is_ok());
                assert!(db.stats().families.len() == 1);
                *count.lock().unwrap() += 1;
            }
        }));
        let handle = Db::open_with_env("/store", options, disk.env()).unwrap();
        handle.put(key(0), "first").unwrap();
        *db.lock().unwrap() = Some(handle.clone());
        for n in 0..2000 {
            handle.put(key(n % 200), noise(n, 0, 500)).unwrap();
        }
        handle.flush().unwrap();
        handle.wait_for_compact().unwrap();
        drop(db.lock().unwrap().take());
        let told = told.lock().unwrap();
        let events = told.lines.lines().count();
        assert!(*read.lock().unwrap() > 20, "{events} events");
    }
}

/// Goal: who waits for space is told, with a limit that everything fits into once garbage is gone.
#[test]
fn who_waits_is_told() {
    let disk = SimDisk::new();
    let (mut options, told) = options(2, Separation::AtWrite);
    options.max_disk_bytes = 4 << 20;
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for n in 0..8000u32 {
        db.put(key(n.wrapping_mul(7919) % 1000), noise(n, 0, 1000)).unwrap();
    }
    assert!(db.stats().stall_micros == 0 || !told.lock().unwrap().waits.is_empty());
    let told = told.lock().unwrap();
    assert!(told.waits.contains(&WaitCause::Space), "{}", told.lines);
}
