//! What a pass of reclaim holds in memory: the same, however much there is to do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker::{Compression, Db, EventKind, FamilyOptions, JobKind, Listener, Options, ReclaimMode, Separation};
use esker_torture::numbered::{key, noise};

/// The system's allocator, which knows how much is out, and how much ever was.
struct Measured;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; the bookkeeping neither allocates nor unwinds.
unsafe impl GlobalAlloc for Measured {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on: `at` came from `alloc`, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static MEASURED: Measured = Measured;

/// A kind of reclaim, and how long the values are that it is for.
struct Kind {
    job: JobKind,
    mode: ReclaimMode,
    value_bytes: usize,
    /// What a pass may hold beside what it leaves in memory: buffers of the files that it reads and writes.
    held_kib_max: usize,
    run: fn(&Db) -> esker::Result<()>,
}

const KINDS: [Kind; 5] = [
    Kind {
        job: JobKind::Relocation,
        mode: ReclaimMode::Manual,
        value_bytes: 250,
        held_kib_max: 736,
        run: |db| db.reclaim(&db.default_column_family(), 0.0).map(drop),
    },
    Kind {
        job: JobKind::Sweep,
        mode: ReclaimMode::Auto,
        value_bytes: 250,
        held_kib_max: 480,
        run: Db::wait_for_compact,
    },
    Kind {
        job: JobKind::FallBack,
        mode: ReclaimMode::Manual,
        value_bytes: 250,
        held_kib_max: 112,
        run: |db| {
            db.set_separation(&db.default_column_family(), Separation::FallBack)?;
            db.reclaim(&db.default_column_family(), 0.0).map(drop)
        },
    },
    Kind { job: JobKind::Punch, mode: ReclaimMode::Auto, value_bytes: 10_000, held_kib_max: 400, run: Db::flush },
    Kind {
        job: JobKind::DeleteFiles,
        mode: ReclaimMode::Manual,
        value_bytes: 250,
        held_kib_max: 24,
        run: |db| db.delete_files_in_range(&db.default_column_family(), None, None).map(drop),
    },
];

fn open(dir: &Path, mode: ReclaimMode, listeners: Vec<Listener>) -> Db {
    let family = FamilyOptions {
        write_buffer_bytes: 1 << 20,
        min_blob_size: 100,
        blob_file_bytes: 256 << 10,
        blob_compression: Compression::None,
        target_file_bytes: 16 << 10,
        ..FamilyOptions::default()
    };
    let options = Options {
        create_if_missing: true,
        punch_holes: true,
        background_jobs: 0,
        reclaim_mode: mode,
        cache_bytes: 0,
        listeners,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    };
    Db::open(dir, options).unwrap()
}

/// What each store holds, garbage included.
const BYTES: usize = 4 << 20;

/// The most that a pass holds at a time, but for what stays: what tables and blob files have in memory.
fn most_held(kind: &Kind) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), ReclaimMode::Manual, Vec::new());
    // Every second value is garbage.
    let count = (BYTES / kind.value_bytes * 2 / 3) as u32;
    for round in 0..2 {
        for n in (0..count).step_by(1 + round as usize) {
            // Each file has some from everywhere.
            db.put(key(n * 7919 % count), noise(n, round, kind.value_bytes)).unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
    assert!(db.stats().families[0].blob_files > 12, "{:?}: {:?}", kind.job, db.stats());
    db.close().unwrap();
    let (job, runs) = (kind.job, Arc::new(AtomicUsize::new(0)));
    let count_runs = runs.clone();
    let listener = Listener::new(move |event| {
        if let EventKind::JobEnded { job: ended, outcome: Ok(_), .. } = event.kind {
            count_runs.fetch_add(usize::from(ended.kind == job), Ordering::Relaxed);
        }
    });
    let db = open(dir.path(), kind.mode, vec![listener]);
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    (kind.run)(&db).unwrap();
    let most = MOST.load(Ordering::Relaxed);
    let after = HELD.load(Ordering::Relaxed);
    assert!(runs.load(Ordering::Relaxed) > 0, "{:?}: {:?}", kind.job, db.stats());
    most - after.max(before)
}

/// Goal (B9): a pass holds its buffers and nothing else, however many files and records there are.
#[test]
fn a_pass_holds_no_more_than_its_buffers() {
    for kind in &KINDS {
        let most = most_held(kind);
        assert!(most <= kind.held_kib_max << 10, "{:?}: {most} bytes were held", kind.job);
    }
}
