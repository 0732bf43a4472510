//! Items that are taken out of a closed log: what stays of the files, and what is only asked.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::{Path, PathBuf};

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_raft_log::{Error, ErrorKind, FilterOptions, LogBatch, Offered, Options, Queue, RaftLog, Verdict};

const KEEPING: FilterOptions<'_> = FilterOptions { queue: None, kept_suffix: Some(".before"), dry_run: false };

fn options() -> Options {
    Options { compress_from_bytes: 0, recovery_threads: 1, file_bytes: 2 << 10, ..Options::default() }
}

fn open(disk: &SimDisk) -> RaftLog {
    RaftLog::open_with_env("/log", options(), disk.env()).unwrap()
}

/// Groups 1 and 2 with twenty entries each, a batch of both at a time, in several files.
fn closed() -> SimDisk {
    let disk = SimDisk::new();
    let log = open(&disk);
    for index in 1..=20u64 {
        let mut batch = LogBatch::new();
        for group in [1, 2] {
            batch.add_entries(group, index, [vec![index as u8; 200]]).unwrap();
        }
        log.write(&mut batch, true).unwrap();
    }
    log.close().unwrap();
    disk
}

fn files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().filter_map(|path| Some((path.clone(), disk.file_bytes(&path)?))).collect()
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == "raftlog")
}

fn discard_second(_: Queue, group: u64, _: Offered) -> Result<Verdict, Error> {
    Ok(if group == 2 { Verdict::Discard } else { Verdict::Keep })
}

/// Goal: whatever fails of a filter, a file that stays has no second name, but where another may have taken its place.
#[test]
fn a_filter_that_fails_leaves_no_second_name_of_what_stays() {
    let whole = closed();
    let before = files(&whole);
    let mut failed = 0;
    for op in 0.. {
        let disk = whole.after_process_death();
        disk.fail_at(disk.op_count() + op, Fault::Eio);
        let Err(error) = RaftLog::filter("/log", &options(), &disk.env(), &KEEPING, &mut discard_second) else { break };
        let after = files(&disk);
        let is_there = |path: &str| after.iter().any(|(found, _)| found.to_str() == Some(path));
        for stays in before.iter().filter(|file| is_log(&file.0) && after.contains(file)) {
            let path = stays.0.to_str().unwrap();
            let is_renamed = error.reason().contains("renaming");
            let is_in_doubt = is_renamed && error.path().and_then(Path::to_str) == Some(&format!("{path}.filtered"));
            assert_eq!(is_there(&format!("{path}.before")), is_in_doubt, "operation {op}: {error}: {path}");
            failed += 1;
        }
    }
    assert!(failed > 100, "{failed}");
}

/// Goal: wherever a filter dies, a file that it changed is there as it was, durably; and it can be done again.
#[test]
fn a_file_that_is_to_be_kept_is_there_wherever_a_filter_dies() {
    let whole = closed();
    let before = files(&whole);
    for op in 0.. {
        let disk = whole.after_process_death();
        disk.die_after(disk.op_count() + op);
        let done = RaftLog::filter("/log", &options(), &disk.env(), &KEEPING, &mut discard_second).is_ok();
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: op }] {
            let left = disk.after_power_loss(survivors);
            for (path, bytes) in before.iter().filter(|(path, _)| is_log(path)) {
                let kept = PathBuf::from(format!("{}.before", path.display()));
                let is_there =
                    left.file_bytes(path).as_ref() == Some(bytes) || left.file_bytes(&kept).as_ref() == Some(bytes);
                assert!(is_there, "dead after {op}: {}", path.display());
            }
            RaftLog::filter("/log", &options(), &left.env(), &KEEPING, &mut discard_second).unwrap();
            let log = open(&left);
            assert_eq!((log.groups(), log.last_index(1)), (vec![1], Some(20)), "dead after {op}");
        }
        if done && !disk.is_dead() {
            return;
        }
    }
}

/// Goal: who is only asked what would go touches nothing, nor keeps anybody out.
#[test]
fn what_would_go_is_told_and_nothing_is_done() {
    let disk = closed();
    let log = open(&disk);
    let (before, operations) = (files(&disk), disk.op_count());
    let how = FilterOptions { dry_run: true, ..KEEPING };
    let told = RaftLog::filter("/log", &options(), &disk.env(), &how, &mut discard_second).unwrap();
    assert!(files(&disk) == before && disk.op_count() == operations);
    log.close().unwrap();
    let done = RaftLog::filter("/log", &options(), &disk.env(), &KEEPING, &mut discard_second).unwrap();
    assert!(done.len() > 3, "{done:?}");
    assert!(told.iter().map(|file| &file.path).eq(done.iter().map(|file| &file.path)));
    for (path, bytes) in done.iter().filter_map(|file| before.iter().find(|(path, _)| *path == file.path)) {
        assert_eq!(disk.file_bytes(Path::new(&format!("{}.before", path.display()))).as_ref(), Some(bytes));
    }
}

/// Goal: entries that cannot be read go where they are to go, and are an error where they are to stay; what is behind damage goes with it, told.
#[test]
fn damaged_entries_may_go_and_may_not_stay() {
    let whole = closed();
    let file = PathBuf::from("/log/0000000000000002.raftlog");
    let damaged = |at: usize| {
        let disk = whole.after_process_death();
        let mut bytes = disk.file_bytes(&file).unwrap();
        bytes[at] ^= 0x10;
        disk.overwrite(&file, bytes);
        disk
    };
    // Within the entries of its first batch.
    let disk = damaged(100);
    let before = files(&disk);
    let error = RaftLog::filter("/log", &options(), &disk.env(), &KEEPING, &mut discard_second).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*file)));
    assert!(files(&disk) == before, "nothing is changed");
    let mut discard_both = |_, _, item: Offered| match item {
        Offered::Entries { first, .. } if first < 10 => Ok(Verdict::Discard),
        _ => Ok(Verdict::Keep),
    };
    RaftLog::filter("/log", &options(), &disk.env(), &KEEPING, &mut discard_both).unwrap();
    assert!(RaftLog::check_with_env("/log", &options(), &disk.env(), &mut |_, _| {}).unwrap().is_sound());
    assert_eq!(open(&disk).first_index(1), Some(10));

    // The length of its last batch but one.
    let length = whole.file_bytes(&file).unwrap().len();
    let batch = 2 * 200 + 40;
    let disk = damaged(length - 2 * batch);
    let done = RaftLog::filter("/log", &options(), &disk.env(), &KEEPING, &mut discard_second).unwrap();
    let cuts: Vec<_> = done.iter().filter_map(|file| file.cut.as_ref()).collect();
    assert_eq!(cuts.len(), 1);
    assert_eq!((&cuts[0].path, cuts[0].offset + cuts[0].bytes), (&file, length as u64));
}
