//! What a log was when it was closed is there when it is opened, or it is damage: no crash tears the end of a log that was closed in order.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::{Path, PathBuf};

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_raft_log::{Check, ErrorKind, FilterOptions, LogBatch, Options, RaftLog, RecoveryMode, Result, Verdict};

const NOTE: &str = "/log/CLOSED";
const APPEND: &str = "/log/0000000000000001.raftlog";
const REWRITE: &str = "/log/0000000000000001.rewrite";

fn options() -> Options {
    Options { compress_from_bytes: 0, recovery_threads: 1, file_bytes: 256 << 10, ..Options::default() }
}

fn open(disk: &SimDisk, options: &Options) -> Result<RaftLog> {
    RaftLog::open_with_env("/log", options.clone(), disk.env())
}

fn mode(recovery_mode: RecoveryMode) -> Options {
    Options { recovery_mode, ..options() }
}

fn check(disk: &SimDisk) -> Check {
    RaftLog::check_with_env("/log", &options(), &disk.env(), &mut |_, _| {}).unwrap()
}

fn fill(log: &RaftLog, first: u64, count: u64) {
    for index in first..first + count {
        let mut batch = LogBatch::new();
        batch.add_entries(1, index, [vec![1 + index as u8 % 200; 400]]).unwrap();
        log.write(&mut batch, true).unwrap();
    }
}

/// Entries 1 to 30 in the rewrite queue, 31 to 60 in the append queue, each in one file of some 13 KiB.
fn closed() -> SimDisk {
    let disk = SimDisk::new();
    let log = open(&disk, &options()).unwrap();
    fill(&log, 1, 30);
    log.move_on(None).unwrap();
    fill(&log, 31, 30);
    log.close().unwrap();
    disk
}

/// The last file of each queue.
fn last_files(disk: &SimDisk) -> [PathBuf; 2] {
    let last = |ending: &str| {
        let paths = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == ending));
        paths.max().unwrap()
    };
    [last("raftlog"), last("rewrite")]
}

fn damaged(whole: &SimDisk, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> SimDisk {
    let disk = whole.after_process_death();
    let mut bytes = disk.file_bytes(path).unwrap();
    change(&mut bytes);
    disk.overwrite(path, bytes);
    disk
}

fn remove(disk: &SimDisk, path: impl AsRef<Path>) {
    disk.env().files.remove(path.as_ref()).unwrap();
    disk.env().files.sync_dir(Path::new("/log")).unwrap();
}

/// Goal: one lost sector of a closed log is damage, wherever it lies and however many batches follow, and takes none of them without a word.
#[test]
fn a_lost_sector_of_a_closed_log_is_damage() {
    let whole = closed();
    for path in last_files(&whole) {
        let length = whole.file_bytes(&path).unwrap().len();
        assert!(length > 10 << 10, "{}", path.display());
        for sector in (0..length).step_by(512) {
            let what = format!("{} at {sector}", path.display());
            let disk = damaged(&whole, &path, |bytes| bytes[sector..length.min(sector + 512)].fill(0));
            let before = disk.file_bytes(&path);
            for mode in [mode(RecoveryMode::TolerateTail), mode(RecoveryMode::AbsoluteConsistency)] {
                let error = open(&disk, &mode).unwrap_err();
                assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)), "{what}: {error}");
            }
            assert_eq!(disk.file_bytes(&path), before, "{what}: nothing is cut");
            let found = check(&disk);
            assert!(!found.is_sound() && found.torn.is_empty(), "{what}: {found:?}");
            let log = open(&disk, &mode(RecoveryMode::TolerateAny)).unwrap();
            assert_eq!(log.recovery().cuts.len(), 1, "{what}");
            assert_eq!(log.recovery().cuts[0].path, path, "{what}");
            drop(log);
            // What was tolerated once is no damage any more.
            assert!(check(&disk).is_sound(), "{what}");
            assert!(open(&disk, &options()).unwrap().recovery().cuts.is_empty(), "{what}");
        }
    }
}

/// Goal: so is an end that is missing, in whatever batch it is cut, and a file with nothing in it.
#[test]
fn a_closed_log_that_is_cut_short_is_damaged() {
    let whole = closed();
    for path in last_files(&whole) {
        let length = whole.file_bytes(&path).unwrap().len();
        let ends = (length - 900..length).step_by(7).chain([0, 40, 69, 69 + 450]);
        for end in ends {
            let disk = damaged(&whole, &path, |bytes| bytes.truncate(end));
            assert_eq!(open(&disk, &options()).unwrap_err().kind(), ErrorKind::Corruption, "{end} of {length}");
            assert!(!check(&disk).is_sound(), "{end} of {length}");
            // As a crash leaves it, there is nothing to tell it from.
            remove(&disk, NOTE);
            open(&disk, &options()).unwrap();
        }
    }
}

/// Goal: what the next life adds has no say: its end may be torn, what was there before may not, whether or not it was closed again.
#[test]
fn the_end_of_the_next_life_may_be_torn() {
    let disk = closed();
    let length = disk.file_bytes(&last_files(&disk)[0]).unwrap().len();
    let log = open(&disk, &options()).unwrap();
    fill(&log, 61, 3);
    let left = disk.after_process_death();
    let path = &last_files(&left)[0];
    let whole = left.file_bytes(path).unwrap();
    left.overwrite(path, [&whole[..length + 500], &[0; 3000]].concat());
    assert_eq!((check(&left).is_sound(), check(&left).torn.len()), (true, 1));
    assert_eq!(open(&left.after_process_death(), &options()).unwrap().last_index(1), Some(61));
    left.overwrite(path, [&whole[..length - 500], &[0; 500], &whole[length..]].concat());
    assert_eq!(open(&left, &options()).unwrap_err().kind(), ErrorKind::Corruption);
    log.close().unwrap();
    let longer = disk.file_bytes(path).unwrap();
    disk.overwrite(path, longer[..longer.len() - 100].to_vec());
    assert_eq!(open(&disk, &options()).unwrap_err().kind(), ErrorKind::Corruption, "closed again");
}

/// Goal: files that are given up, written over and followed by others are not missed, wherever the next life ends.
#[test]
fn files_that_are_given_up_are_not_missed() {
    let small = Options { file_bytes: 2 << 10, purge_threshold_bytes: 8 << 10, ..options() };
    let live = |disk: &SimDisk| -> Result<u64> {
        let log = open(disk, &small)?;
        let mut last = log.last_index(1).unwrap_or(0);
        for round in 0..3 {
            for index in last + 1..=last + 12 {
                let mut batch = LogBatch::new();
                batch.add_entries(1, index, [vec![index as u8; 300]])?;
                log.write(&mut batch, true)?;
            }
            last += 12;
            log.compact_to(1, last - 2)?;
            if round == 1 {
                log.move_on(None)?;
                log.rewrite_again()?;
            }
            log.purge()?;
        }
        log.close().map(|()| last)
    };
    let begin = || {
        let disk = SimDisk::new();
        let last = live(&disk).unwrap();
        (disk, last)
    };
    let (healthy, last) = begin();
    let begun = healthy.op_count();
    live(&healthy).unwrap();
    for op in begun..healthy.op_count() {
        let (disk, _) = begin();
        disk.die_after(op);
        let _ = live(&disk);
        let images = [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: op }];
        for image in
            images.map(|survivors| disk.after_power_loss(survivors)).into_iter().chain([disk.after_process_death()])
        {
            assert!(check(&image).is_sound(), "dead after {op}");
            let log = open(&image, &small).unwrap_or_else(|error| panic!("dead after {op}: {error}"));
            assert!(log.last_index(1) >= Some(last), "dead after {op}");
            drop(log);
            live(&image).unwrap();
        }
    }
}

/// Goal: where files are gone and their numbers begin anew, nothing is asked of those that get them; nor where an open dies on the way there.
#[test]
fn numbers_that_begin_anew_are_not_those_that_were_closed() {
    for op in 0.. {
        let disk = SimDisk::new();
        let log = open(&disk, &options()).unwrap();
        fill(&log, 1, 60);
        log.close().unwrap();
        remove(&disk, APPEND);
        remove(&disk, REWRITE);
        disk.die_after(disk.op_count() + op);
        let died = match open(&disk, &mode(RecoveryMode::TolerateAny)) {
            Ok(log) => {
                let mut batch = LogBatch::new();
                batch.add_entries(1, 1, [[7; 400]]).unwrap();
                log.write(&mut batch, true).is_err()
            }
            Err(_) => true,
        };
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: op }] {
            let left = disk.after_power_loss(survivors);
            let is_left = |path: &PathBuf| path.extension().is_some();
            if left.file_bytes(Path::new(NOTE)).is_some() {
                assert!(!left.paths().iter().any(is_left), "dead after {op}: it went before the first file came");
                assert_eq!(open(&left, &options()).unwrap_err().kind(), ErrorKind::Corruption, "dead after {op}");
                remove(&left, NOTE);
            }
            let log = open(&left, &options()).unwrap_or_else(|error| panic!("dead after {op}: {error}"));
            assert_eq!(log.recovery().cuts, [], "dead after {op}");
        }
        if !died {
            return;
        }
    }
}

/// Goal: a note that nobody can read does not come to hold for files that begin anew, nor does one that lies in the other directory.
#[test]
fn no_note_is_left_where_numbers_begin_anew() {
    for (dir, name) in [("/log", "CLOSED"), ("/spill", "CLOSED")] {
        let (disk, options) = (closed(), Options { spill_dir: Some("/spill".into()), ..options() });
        disk.env().files.create_dir_all(Path::new("/spill")).unwrap();
        let note = Path::new(dir).join(name);
        if dir == "/log" {
            assert!(disk.flip_bit(&note, 100));
        } else {
            disk.env().files.rename(Path::new(NOTE), &note).unwrap();
        }
        last_files(&disk).iter().for_each(|path| remove(&disk, path));
        let log = open(&disk, &options).unwrap();
        assert!(disk.file_bytes(&note).is_none(), "{dir}");
        drop(log);
    }
}

/// Goal: an open that tolerates any damage may die at any of its operations: the next finds the same damage, or none.
#[test]
fn a_tolerant_open_that_dies_leaves_no_note_of_what_it_cut() {
    let whole = closed();
    let begin = || damaged(&whole, &last_files(&whole)[0], |bytes| bytes[6 << 10..(6 << 10) + 512].fill(0));
    for op in 0.. {
        let disk = begin();
        disk.die_after(disk.op_count() + op);
        let opened = open(&disk, &mode(RecoveryMode::TolerateAny)).is_ok();
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: op }] {
            let left = disk.after_power_loss(survivors);
            match open(&left, &options()) {
                Ok(_) => assert!(opened || left.file_bytes(Path::new(NOTE)).is_none(), "dead after {op}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "dead after {op}: {error}");
                    assert!(!opened && left.file_bytes(Path::new(NOTE)).is_some(), "dead after {op}");
                    drop(open(&left, &mode(RecoveryMode::TolerateAny)).unwrap());
                    drop(open(&left, &options()).unwrap());
                }
            }
        }
        if opened && !disk.is_dead() {
            return;
        }
    }
}

/// Goal: a note that is damaged itself keeps nobody from the log; it is told, and the next close writes it anew.
#[test]
fn a_damaged_note_is_told_and_keeps_nobody_out() {
    let whole = closed();
    let note = whole.file_bytes(Path::new(NOTE));
    for at in 0..note.as_ref().unwrap().len() {
        let disk = whole.after_process_death();
        assert!(disk.flip_bit(Path::new(NOTE), at as u64 * 8 + 2));
        let found = check(&disk);
        assert_eq!((found.is_sound(), found.errors.len(), found.errors[0].path()), (false, 1, Some(Path::new(NOTE))));
        open(&disk, &mode(RecoveryMode::AbsoluteConsistency)).unwrap_err();
        let log = open(&disk, &options()).unwrap();
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(60)));
        log.close().unwrap();
        assert!(check(&disk).is_sound());
        assert_eq!(disk.file_bytes(Path::new(NOTE)), note);
    }
}

/// Goal: the note costs what it must: none is written that says what one does already, and where there is no room the log is closed all the same.
#[test]
fn a_note_is_written_where_there_is_something_to_note() {
    let disk = closed();
    let log = open(&disk, &options()).unwrap();
    disk.set_tracing(true);
    log.close().unwrap();
    assert!(disk.trace().iter().all(|line| !line.contains("CLOSED")), "{:?}", disk.trace());
    let log = open(&disk, &options()).unwrap();
    fill(&log, 61, 1);
    let before = disk.file_bytes(Path::new(NOTE));
    disk.set_capacity(Some(0));
    log.close().unwrap();
    assert_eq!(disk.file_bytes(Path::new(NOTE)), before, "it holds all the same");
    assert!(disk.paths().iter().all(|path| !path.ends_with("CLOSED.new")));
    assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(61));
}

/// Goal: whoever closes a log that could not be closed in order is told, however often.
#[test]
fn a_close_that_failed_is_told_again() {
    let disk = SimDisk::new();
    let log = open(&disk, &options()).unwrap();
    let mut batch = LogBatch::new();
    batch.add_entries(1, 1, [[1; 400]]).unwrap();
    log.write(&mut batch, false).unwrap();
    disk.fail_from(disk.op_count(), Fault::Eio);
    let error = log.close().unwrap_err();
    disk.heal();
    for _ in 0..2 {
        let again = log.close().unwrap_err();
        assert_eq!((again.kind(), again.to_string()), (error.kind(), error.to_string()));
    }
}

/// Goal: of a file out of which items were taken nothing is missing, wherever that ends.
#[test]
fn a_log_that_items_were_taken_out_of_is_sound() {
    let discard = &mut |_, _, _| Ok(Verdict::Discard);
    let whole = closed();
    for op in 0.. {
        let disk = whole.after_process_death();
        disk.die_after(disk.op_count() + op);
        let done = RaftLog::filter("/log", &options(), &disk.env(), &FilterOptions::default(), discard).is_ok();
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: op }] {
            let left = disk.after_power_loss(survivors);
            let log = open(&left, &options()).unwrap_or_else(|error| panic!("dead after {op}: {error}"));
            assert!(!done || log.is_empty(), "dead after {op}");
        }
        if done && !disk.is_dead() {
            return;
        }
    }
}
