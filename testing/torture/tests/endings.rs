//! A thread that ends may read and write in the destructors of what it kept, when what the engines keep for a thread is gone.

use std::cell::Cell;
use std::sync::Arc;

use esker::env::sim::SimDisk;
use esker::raft::Options as RaftOptions;
use esker::{
    Cask, CaskOptions, Compression, Db, FamilyOptions, LogBatch, Options, RaftLog, Separation, WriteBatch, WriteOptions,
};

/// Called when it is dropped.
struct Last(Box<dyn Fn()>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0();
    }
}

thread_local! {
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
}

/// Runs `calls` in a thread, and once more when all that they have left there is gone: locals are dropped in the reverse order of their
/// first use. A panic then ends the process.
fn twice_in_a_thread(calls: impl Fn() + Send + Sync + 'static) {
    let calls = Arc::new(calls);
    let first = calls.clone();
    let thread = std::thread::spawn(move || {
        LAST.set(Some(Last(Box::new(move || calls()))));
        first();
    });
    thread.join().unwrap();
}

/// Compresses well, but takes a table of what was seen.
fn text(salt: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * at / 7 + salt) as u8 % 16).collect()
}

#[test]
fn a_thread_that_ends_reads_and_writes_a_db() {
    let kinds = [
        (Compression::None, Separation::AtFlush),
        (Compression::Snappy, Separation::AtWrite),
        (Compression::Lz4, Separation::AtWrite),
        (Compression::Zstd, Separation::AtFlush),
    ];
    for (compression, separation) in kinds {
        let family = FamilyOptions {
            separation,
            compression,
            blob_compression: compression,
            min_blob_size: 1000,
            write_buffer_bytes: 1 << 20,
            ..FamilyOptions::default()
        };
        let options = Options {
            create_if_missing: true,
            background_jobs: 0,
            cache_bytes: 0,
            families: [("default".to_owned(), family)].into(),
            ..Options::default()
        };
        let db = Db::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        let lengths = [20, 2000, 70_000];
        for (key, bytes) in lengths.into_iter().enumerate() {
            db.put([key as u8], text(key, bytes)).unwrap();
        }
        db.flush().unwrap();
        twice_in_a_thread(move || {
            for (key, bytes) in lengths.into_iter().enumerate() {
                assert_eq!(*db.get([key as u8]).unwrap().unwrap(), text(key, bytes));
            }
            assert!(db.get("absent").unwrap().is_none());
            let many = db.multi_get((0..3).map(|key| [key])).unwrap();
            assert!(many.iter().all(|found| found.as_ref().unwrap().is_some()));
            let entries = db.iter().unwrap().entries();
            assert!(entries.count() >= lengths.len());
            db.put("new", text(7, 2000)).unwrap();
            let mut batch = WriteBatch::new();
            batch.put("another", text(8, 20)).unwrap();
            db.write(batch, &WriteOptions::default()).unwrap();
            assert_eq!(*db.get("new").unwrap().unwrap(), text(7, 2000));
            db.flush().unwrap();
            assert_eq!(*db.get("another").unwrap().unwrap(), text(8, 20));
        });
    }
}

#[test]
fn a_thread_that_ends_reads_and_writes_a_cask() {
    for compression in [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let options = CaskOptions {
            create_if_missing: true,
            background_jobs: 0,
            file_bytes: 1 << 20,
            compression,
            ..CaskOptions::default()
        };
        let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        twice_in_a_thread(move || {
            for bytes in [20, 2000, 70_000] {
                cask.put("key", text(7, bytes)).unwrap();
                assert_eq!(cask.get("key").unwrap().unwrap(), text(7, bytes));
            }
            cask.compact().unwrap();
            assert_eq!(cask.get("key").unwrap().unwrap(), text(7, 70_000));
        });
    }
}

#[test]
fn a_thread_that_ends_reads_and_writes_a_raft_log() {
    let options = RaftOptions { compress_from_bytes: 1, recovery_threads: 1, ..RaftOptions::default() };
    let log = RaftLog::open_with_env("/log", options, SimDisk::new().env()).unwrap();
    twice_in_a_thread(move || {
        let next = log.last_index(1).map_or(1, |last| last + 1);
        for (index, bytes) in (next..).zip([20, 2000, 70_000]) {
            let mut batch = LogBatch::new();
            batch.add_entries(1, index, &[text(7, bytes)]).unwrap();
            log.write(&mut batch, true).unwrap();
            assert_eq!(log.entry(1, index).unwrap().unwrap(), text(7, bytes));
        }
        assert_eq!(log.entries(1, next, next + 3, None).unwrap().len(), 3);
    });
}
