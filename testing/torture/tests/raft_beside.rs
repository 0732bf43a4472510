//! What is said of a Raft log by who looks at it while another process has it open.

use std::path::PathBuf;

use esker::env::Env;
use esker::env::sim::SimDisk;
use esker::raft::{Check, ErrorKind, Inspection, Options, Result};
use esker::{LogBatch, RaftLog};
use esker_torture::hooked::{Call, Hooked, Meanwhile};

fn options() -> Options {
    Options { file_bytes: 4 << 10, purge_threshold_bytes: 16 << 10, recovery_threads: 1, ..Options::default() }
}

/// A log with more than `files` files, and the next index of its group.
fn scene(disk: &SimDisk, files: u64) -> (RaftLog, u64) {
    let log = RaftLog::open_with_env("/log", options(), disk.env()).unwrap();
    let next = write_until(&log, 1, files + 1);
    (log, next)
}

/// Writes entries from `next` on until the append queue ends with this file.
fn write_until(log: &RaftLog, mut next: u64, last_file: u64) -> u64 {
    while log.stats().append.last_file < last_file {
        let mut batch = LogBatch::new();
        batch.add_entries(1, next, [[7; 500]]).unwrap();
        log.write(&mut batch, false).unwrap();
        next += 1;
    }
    next
}

fn check(env: &Env) -> Result<Check> {
    RaftLog::check_with_env("/log", &options(), env, &mut |_, _| {})
}

fn inspect(env: &Env) -> Result<Inspection> {
    RaftLog::inspect_with_env("/log", &options(), env)
}

/// Goal: nobody maps a file that its writer may cut: the system ends a process that touches what is gone of it.
#[test]
fn who_only_looks_maps_no_file() {
    let disk = SimDisk::new();
    let (log, _) = scene(&disk, 3);
    let files = Hooked::new(disk.env().files, |call| {
        assert!(!matches!(call, Call::Map(_)), "{call:?}");
        Ok(())
    });
    let env = Env { files: std::sync::Arc::new(files), ..disk.env() };
    assert!(check(&env).unwrap().is_sound());
    assert_eq!(inspect(&env).unwrap().files.len(), 5);
    drop(log);
}

/// Goal: a file that is given up, and written over, while it is read is neither damaged nor a reason to say that there is no log.
/// Method: that happens between opening it and reading it, to the first of those that go, so that another is not found at all, or to the last.
#[test]
fn a_file_that_goes_while_it_is_looked_at_is_no_damage() {
    for looks in [|env: &Env| check(env).map(drop), |env: &Env| inspect(env).map(drop)] {
        for (number, gone) in [(1, 2), (3, 3)] {
            let [read, gone] = [number, gone].map(|number| PathBuf::from(format!("/log/{number:016}.raftlog")));
            let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
            let (log, next) = scene(&disk, 3);
            meanwhile.before(
                move |call| call == Call::Read(&read),
                move || {
                    log.compact_to(1, next).unwrap();
                    log.purge().unwrap();
                    assert_eq!((log.stats().append.first_file, log.stats().recycled_files), (4, 3));
                    write_until(&log, next, 8);
                },
            );
            let error = looks(&meanwhile.env(&disk)).unwrap_err();
            assert!(meanwhile.is_done());
            assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*gone)), "{error}");
            assert!(error.to_string().contains("gave the file up while it was read"), "{error}");
            assert!(check(&disk.env()).unwrap().is_sound());
        }
    }
}
