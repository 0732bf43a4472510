//! A log in two directories, and one that lost a file: nothing of it is left out without a word.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::{Path, PathBuf};

use esker_env::sim::{SimDisk, Survivors};
use esker_raft_log::{Check, ErrorKind, LogBatch, Options, RaftLog, RecoveryMode, Result, Verdict};

fn options() -> Options {
    Options {
        spill_dir: Some("/spill".into()),
        file_bytes: 1 << 10,
        compress_from_bytes: 0,
        recovery_threads: 1,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: &Options) -> Result<RaftLog> {
    RaftLog::open_with_env("/log", options.clone(), disk.env())
}

fn check(disk: &SimDisk, options: &Options) -> Result<Check> {
    RaftLog::check_with_env("/log", options, &disk.env(), &mut |_, _| {})
}

fn write(log: &RaftLog, index: u64) {
    let mut batch = LogBatch::new();
    batch.add_entries(1, index, [vec![index as u8; 300]]).unwrap();
    log.write(&mut batch, true).unwrap();
}

fn file(dir: &str, number: u64) -> PathBuf {
    Path::new(dir).join(format!("{number:016}.raftlog"))
}

/// Entries 1 to 8 of a group in files 1 to 3.
fn three_files() -> SimDisk {
    let disk = SimDisk::new();
    let log = open(&disk, &options()).unwrap();
    (1..=8).for_each(|index| write(&log, index));
    assert_eq!(log.stats().append.last_file, 3);
    log.close().unwrap();
    disk
}

fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let files = disk.env().files;
    let file = files.create(path).unwrap();
    file.append(&[bytes]).unwrap();
    file.sync().unwrap();
    files.sync_dir(path.parent().unwrap()).unwrap();
}

/// A removal that a power loss undid, of a file that had not got its header: the one with its number in the other directory is the log's.
#[test]
fn a_file_without_a_header_gives_way_to_the_one_with_its_number_elsewhere() {
    for (dir, other) in [("/log", "/spill"), ("/spill", "/log")] {
        for number in 1..=3 {
            for left in [&[][..], &[0; 2000], b"RAFT-LOG"] {
                let disk = three_files();
                let kept = disk.file_bytes(&file("/log", number)).unwrap();
                if dir == "/spill" {
                    put(&disk, &file("/spill", number), &kept);
                    disk.env().files.remove(&file("/log", number)).unwrap();
                }
                put(&disk, &file(other, number), left);
                let found = check(&disk, &options()).unwrap();
                assert!(found.is_sound() && found.inspection.stale.is_empty(), "{dir} {number}: {found:?}");
                let log = open(&disk, &options()).unwrap();
                assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(8)), "{dir} {number}");
                assert!(log.recovery().stale.is_empty());
                drop(log);
                let disk = disk.after_power_loss(Survivors::Nothing);
                assert_eq!(disk.file_bytes(&file(other, number)), None, "{dir} {number}: it would come back in a gap");
                assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(8));
            }
        }
    }
}

#[test]
fn two_files_with_one_number_are_damage() {
    let disk = three_files();
    let bytes = disk.file_bytes(&file("/log", 2)).unwrap();
    put(&disk, &file("/spill", 2), &bytes);
    for mode in [RecoveryMode::AbsoluteConsistency, RecoveryMode::TolerateTail, RecoveryMode::TolerateAny] {
        let error = open(&disk, &Options { recovery_mode: mode, ..options() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let text = error.to_string();
        assert!(text.contains("/log/0000000000000002") && text.contains("/spill/0000000000000002"), "{text}");
    }
    assert_eq!(check(&disk, &options()).unwrap_err().kind(), ErrorKind::Corruption);
}

/// What takes the place of a file that is removed may lie in the other directory: the removal is durable first.
#[test]
fn a_last_file_without_a_header_goes_durably_before_it_is_begun_again() {
    let disk = three_files();
    disk.overwrite(&file("/log", 3), Vec::new());
    disk.set_tracing(true);
    let log = open(&disk, &options()).unwrap();
    let trace = disk.trace();
    let at = |what: &str| trace.iter().position(|line| line.ends_with(what)).unwrap();
    let (removed, created) = (at("remove /log/0000000000000003.raftlog"), at("create /log/0000000000000003.raftlog"));
    assert!(trace[removed..created].iter().any(|line| line.ends_with("sync_dir /log")), "{trace:?}");
    assert_eq!(log.last_index(1), Some(6));
}

/// Numbers that no log reaches are nobody's files, up to them there is no overflow.
#[test]
fn the_highest_numbers_are_told_from_files_of_a_log() {
    let disk = three_files();
    let last = (1 << 63) - 1;
    for number in [u64::MAX, u64::MAX - 1, 1 << 63] {
        put(&disk, &file("/log", number), b"RAFT-LOG");
        put(&disk, &Path::new("/log").join(format!("{number:016}.raftlog.reserved")), &[]);
    }
    let prefilled = Options { prefill_bytes: 4 << 10, ..options() };
    let log = open(&disk, &prefilled).unwrap();
    assert_eq!((log.last_index(1), log.recovery().stale.len()), (Some(8), 0));
    drop(log);
    let bytes = disk.file_bytes(&file("/log", 3)).unwrap();
    let disk = SimDisk::new();
    disk.env().files.create_dir_all(Path::new("/log")).unwrap();
    put(&disk, &file("/log", last), &bytes[..69]);
    let log = open(&disk, &options()).unwrap();
    (1..=2).for_each(|index| write(&log, index));
    assert_eq!(log.entries(1, 1, 3, None).unwrap().len(), 2);
    let mut batch = LogBatch::new();
    batch.add_entries(1, 3, [vec![3; 2000]]).unwrap();
    log.write(&mut batch, true).unwrap();
    batch.add_entries(1, 4, [[4]]).unwrap();
    assert_eq!(log.write(&mut batch, true).unwrap_err().kind(), ErrorKind::Corruption);
    log.close().unwrap();
    assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(3));
}

#[test]
fn a_log_does_not_spill_to_its_own_directory() {
    for spelled in ["/log", "/log/", "/log/."] {
        let disk = three_files();
        let options = Options { spill_dir: Some(spelled.into()), ..options() };
        let mut keep = |_, _, _| Ok(Verdict::Keep);
        for error in [
            open(&disk, &options).map(drop).unwrap_err(),
            check(&disk, &options).map(drop).unwrap_err(),
            RaftLog::inspect_with_env("/log", &options, &disk.env()).map(drop).unwrap_err(),
            RaftLog::filter("/log", &options, &disk.env(), None, &mut keep).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{spelled}: {error}");
        }
    }
}

/// A purge of raft-engine's that a power loss cut short leaves files before a gap, too, so opening goes on; it is not passed over in silence.
#[test]
fn files_before_a_lost_one_are_told() {
    let disk = three_files();
    disk.env().files.remove(&file("/log", 2)).unwrap();
    let found = check(&disk, &options()).unwrap();
    assert_eq!(found.inspection.stale, [file("/log", 1)]);
    assert!(!found.is_sound());
    let absolute = Options { recovery_mode: RecoveryMode::AbsoluteConsistency, ..options() };
    let error = open(&disk, &absolute).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*file("/log", 1))));
    let log = open(&disk, &options()).unwrap();
    assert_eq!((log.recovery().stale.len(), log.first_index(1)), (1, Some(7)));
}
