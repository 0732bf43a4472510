//! A fork of a Raft log is one moment of it, and shares nothing with it that either changes.

use std::path::{Path, PathBuf};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::raft::{ErrorKind, FileId, Options, Queue};
use esker::{LogBatch, RaftLog};
use esker_torture::crash::images;
use esker_torture::hooked::{Call, Meanwhile};
use esker_torture::raft::{Contents, contents};

fn options() -> Options {
    Options { file_bytes: 2048, purge_threshold_bytes: 4096, recovery_threads: 1, ..Options::default() }
}

fn open(disk: &SimDisk, dir: &str, options: Options) -> esker::Result<RaftLog> {
    RaftLog::open_with_env(dir, options, disk.env())
}

fn write(log: &RaftLog, count: u64) {
    let mut batch = LogBatch::new();
    for _ in 0..count {
        let next = log.last_index(1).map_or(1, |last| last + 1);
        batch.add_entries(1, next, [[next as u8; 300]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
}

fn name(dir: &str, queue: Queue, sequence: u64) -> PathBuf {
    Path::new(dir).join(FileId::new(queue, sequence).to_string())
}

/// Goal: a file that is written to when the fork is made, and ends before it is copied, is not shared.
/// Method: the log goes on to its next file when the fork's first is made.
#[test]
fn a_file_that_ends_while_a_fork_is_made_is_not_shared() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let log = RaftLog::open_with_env("/log", options(), meanwhile.env(&disk)).unwrap();
    write(&log, 20);
    let (moment, last) = (contents(&log).unwrap(), log.stats().append.last_file);
    let other = log.clone();
    meanwhile.before(
        |call| matches!(call, Call::Create(path) if path.starts_with("/fork") && path.extension().is_some()),
        move || {
            write(&other, 10);
            assert!(other.stats().append.last_file > last);
        },
    );
    let made = log.fork("/fork").unwrap();
    assert!(meanwhile.is_done());
    assert!(made.copied.contains(&name("/fork", Queue::Append, last)), "{made:?}");
    let fork =
        open(&disk, "/fork", Options { file_bytes: 1 << 20, purge_threshold_bytes: 1 << 20, ..options() }).unwrap();
    assert_eq!(contents(&fork).unwrap(), moment);
    write(&fork, 20);
    fork.close().unwrap();
    let found = contents(&log).unwrap();
    drop(log);
    assert_eq!(contents(&open(&disk, "/log", options()).unwrap()).unwrap(), found);
}

/// Goal: what a fork has is there when it is first opened, or it is damage: a file of it that somebody did not copy along, or one that is cut short.
#[test]
fn a_fork_that_lacks_something_is_damaged() {
    let disk = SimDisk::new();
    let log = open(&disk, "/log", options()).unwrap();
    write(&log, 20);
    log.move_on(Some(2)).unwrap();
    write(&log, 20);
    let moment = contents(&log).unwrap();
    let made = log.fork("/fork").unwrap();
    drop(log);
    let files: Vec<&PathBuf> = made.linked.iter().chain(&made.copied).collect();
    assert!(files.len() > 4, "{made:?}");
    for path in files {
        let image = disk.after_process_death();
        image.env().files.remove(path).unwrap();
        let opened = open(&image, "/fork", options()).map(drop).map_err(|error| error.kind());
        assert_eq!(opened, Err(ErrorKind::Corruption), "without {}", path.display());
    }
    for path in &made.copied {
        let image = disk.after_process_death();
        let mut raw = image.file_bytes(path).unwrap();
        raw.pop();
        image.overwrite(path, raw);
        let opened = open(&image, "/fork", options()).map(drop).map_err(|error| error.kind());
        assert_eq!(opened, Err(ErrorKind::Corruption), "{} a byte shorter", path.display());
    }
    assert_eq!(contents(&open(&disk, "/fork", options()).unwrap()).unwrap(), moment);
}

/// Goal: whoever else has a name for the last file keeps what it held: it is written to only once it has one name.
#[test]
fn a_last_file_with_another_name_is_not_written_to() {
    let disk = SimDisk::new();
    let log = open(&disk, "/log", options()).unwrap();
    write(&log, 8);
    log.move_on(Some(1)).unwrap();
    let moment = contents(&log).unwrap();
    let stats = log.stats();
    let last = [(Queue::Append, stats.append.last_file), (Queue::Rewrite, stats.rewrite.last_file)];
    // As a killed process leaves it: with more bytes than batches.
    let disk = disk.after_process_death();
    let files = disk.env().files;
    files.create_dir_all(Path::new("/other")).unwrap();
    for (queue, sequence) in last {
        files.link(&name("/log", queue, sequence), &name("/other", queue, sequence)).unwrap();
    }
    let before = last.map(|(queue, sequence)| disk.file_bytes(&name("/other", queue, sequence)));
    let log = open(&disk, "/log", options()).unwrap();
    write(&log, 8);
    log.move_on(None).unwrap();
    drop(log);
    let after = last.map(|(queue, sequence)| disk.file_bytes(&name("/other", queue, sequence)));
    assert!(before == after && before.iter().all(Option::is_some));
    let log = open(&disk, "/log", options()).unwrap();
    assert_eq!(log.last_index(1), Some(16));
    for (index, bytes) in &moment[&1].entries {
        assert_eq!(log.entry(1, *index).unwrap().as_ref(), Some(bytes));
    }
}

/// A log with files of both queues, and what it holds.
fn scene() -> (SimDisk, RaftLog, Contents) {
    let disk = SimDisk::new();
    let log = open(&disk, "/log", options()).unwrap();
    write(&log, 24);
    log.move_on(Some(1)).unwrap();
    let moment = contents(&log).unwrap();
    (disk, log, moment)
}

/// What is in `/fork` is all of `moment`, or no log, or an empty one. Says whether it was refused.
fn is_refused(disk: &SimDisk, moment: &Contents, done: bool, what: &str) -> bool {
    let check = RaftLog::check_with_env("/fork", &options(), &disk.env(), &mut |_, _| {}).map(drop);
    match open(disk, "/fork", options()) {
        Ok(fork) => {
            let found = contents(&fork).unwrap();
            assert!(found == *moment || found.is_empty() && !done, "{what}: a part of it");
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
            assert!(error.to_string().contains("fork") && !done && check.is_err(), "{what}: {error}");
            true
        }
    }
}

/// Goal: a fork that was not finished does not pass for a log: whatever its last operation was, or the one that failed, its directory is refused,
/// or there is nothing in it, or all; and the next fork takes its place.
#[test]
fn a_fork_is_refused_until_it_is_whole() {
    let (disk, log, moment) = scene();
    let first = disk.op_count();
    let made = log.fork("/fork").unwrap();
    assert!(made.linked.len() > 1 && made.copied.len() == 2, "{made:?}");
    let ops = disk.op_count() - first;
    let mut refused = 0;
    for n in 0..=ops {
        let (disk, log, _) = scene();
        disk.die_after(first + n);
        let done = log.fork("/fork").is_ok();
        assert_eq!(done, n == ops);
        for image in images(&disk, n) {
            let what = format!("died at operation {n} of {ops}, {}", image.name);
            if is_refused(&image.disk, &moment, done, &what) {
                refused += 1;
                let log = open(&image.disk, "/log", options()).unwrap();
                log.fork("/fork").unwrap();
                let again = image.disk.after_power_loss(Survivors::Nothing);
                assert!(!is_refused(&again, &moment, true, &what));
            }
        }
        let (disk, log, _) = scene();
        disk.fail_at(first + n, Fault::Eio);
        let done = log.fork("/fork").is_ok();
        for image in images(&disk, n) {
            is_refused(&image.disk, &moment, done, &format!("operation {n} of {ops} failed, {}", image.name));
        }
        if !done && log.sync().is_ok() {
            // Where only making it durable that it is whole failed, it is.
            let again = log.fork("/fork").map(drop).map_err(|error| error.kind());
            assert!(again.is_ok() || n + 1 == ops && again == Err(ErrorKind::InvalidArgument), "{n}: {again:?}");
        }
    }
    assert!(refused > 20, "{refused}");
}

/// Goal: a fork that is given up has the right to its directory until the name that stands for it is gone: who comes in between would have it
/// by a name that is taken away, and the next by another.
#[test]
fn a_fork_that_is_given_up_lets_nobody_in_by_a_name_that_goes() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let log = RaftLog::open_with_env("/log", options(), meanwhile.env(&disk)).unwrap();
    disk.overwrite(Path::new("/fork/of somebody else"), Vec::new());
    let lock = Path::new("/fork/LOCK");
    let (there, other) = (disk.clone(), disk.clone());
    meanwhile.before(
        move |call| call == Call::Other(lock) && there.file_bytes(lock).is_some(),
        move || {
            let taken = other.env().files.lock(lock).map(drop).map_err(|error| error.kind());
            assert_eq!(taken, Err(std::io::ErrorKind::WouldBlock));
        },
    );
    assert_eq!(log.fork("/fork").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(meanwhile.is_done() && disk.file_bytes(lock).is_none());
}
