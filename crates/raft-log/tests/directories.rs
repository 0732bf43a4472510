//! A log in two directories, and one that lost a file: nothing of it is left out without a word.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_env::{AppendFile, DirEntry, Env, FileSystem, Lock, Metadata, ReadFile, Space};
use esker_raft_log::{Check, ErrorKind, FilterOptions, LogBatch, Options, RaftLog, RecoveryMode, Result, Verdict};

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
fn an_only_file_without_a_header_goes_durably_before_it_is_begun_again() {
    let disk = SimDisk::new();
    drop(open(&disk, &options()).unwrap());
    // As if the log had not been closed.
    disk.env().files.remove(Path::new("/log/CLOSED")).unwrap();
    disk.overwrite(&file("/log", 1), Vec::new());
    disk.set_tracing(true);
    let log = open(&disk, &options()).unwrap();
    let trace = disk.trace();
    let at = |what: &str| trace.iter().position(|line| line.ends_with(what)).unwrap();
    let (removed, created) = (at("remove /log/0000000000000001.raftlog"), at("create /log/0000000000000001.raftlog"));
    assert!(trace[removed..created].iter().any(|line| line.ends_with("sync_dir /log")), "{trace:?}");
    assert_eq!(log.last_index(1), None);
}

/// The same where the file before it takes its place.
#[test]
fn a_last_file_without_a_header_goes_durably_before_the_one_before_it_is_gone_on_with() {
    let disk = three_files();
    disk.env().files.remove(Path::new("/log/CLOSED")).unwrap();
    disk.overwrite(&file("/log", 3), Vec::new());
    let log = open(&disk, &options()).unwrap();
    assert_eq!((log.last_index(1), log.stats().append.last_file), (Some(6), 2));
    let image = disk.after_power_loss(Survivors::Nothing);
    assert_eq!(image.file_bytes(&file("/log", 3)), None);
    write(&log, 7);
    write(&log, 8);
    assert_eq!(open(&disk.after_process_death(), &options()).unwrap().last_index(1), Some(8));
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
    for spelled in ["/log", "/log/", "/log/.", "/spill/../log"] {
        let disk = three_files();
        let options = Options { spill_dir: Some(spelled.into()), ..options() };
        let mut keep = |_, _, _| Ok(Verdict::Keep);
        for error in [
            open(&disk, &options).map(drop).unwrap_err(),
            check(&disk, &options).map(drop).unwrap_err(),
            RaftLog::inspect_with_env("/log", &options, &disk.env()).map(drop).unwrap_err(),
            RaftLog::filter("/log", &options, &disk.env(), &FilterOptions::default(), &mut keep).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{spelled}: {error}");
        }
    }
}

/// Goal: the paths are compared, not their spelling, whether there is a directory already or not.
#[test]
fn a_log_does_not_spill_to_its_own_directory_by_another_name() {
    let place = tempfile::tempdir().unwrap();
    let (dir, other) = (place.path().join("r"), place.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    let spelled = [other.join("../r"), place.path().join("link")];
    std::os::unix::fs::symlink("r", &spelled[1]).unwrap();
    let open = |spill: &Path| {
        let options = Options { spill_dir: Some(spill.to_owned()), ..options() };
        RaftLog::open(&dir, options.clone())
            .and_then(|log| log.close())
            .and_then(|()| RaftLog::check(&dir, &options, &mut |_, _| {}).map(drop))
    };
    for _ in 0..2 {
        for spill in &spelled {
            let error = open(spill).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&**spill)), "{error}");
        }
        RaftLog::open(&dir, Options { spill_dir: None, ..options() }).unwrap().close().unwrap();
    }
    open(&other).unwrap();
}

/// Goal: nothing is changed of a log whose damaged file cannot be cut: it is as it was for whoever sees to that.
#[test]
fn what_cannot_be_written_to_is_found_before_the_note_of_a_close_goes() {
    let machine = Machine::new();
    let log = machine.open(&options());
    (1..=8).for_each(|index| write(&log, index));
    log.close().unwrap();
    for number in 1..=3 {
        let path = file("/log", number);
        let whole = machine.main.file_bytes(&path).unwrap();
        machine.main.overwrite(&path, whole[..whole.len() - 100].to_vec());
        let bytes = |machine: &Machine| {
            machine.main.paths().into_iter().map(|path| machine.main.file_bytes(&path)).collect::<Vec<_>>()
        };
        let before = (machine.main.paths(), bytes(&machine));
        machine.reopen_refuses.store(1, Ordering::Relaxed);
        let any = Options { recovery_mode: RecoveryMode::TolerateAny, ..options() };
        let error = RaftLog::open_with_env("/log", any.clone(), machine.env()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!((machine.main.paths(), bytes(&machine)), before);
        machine.reopen_refuses.store(0, Ordering::Relaxed);
        machine.main.overwrite(&path, whole);
    }
}

/// A directory with a file's name stands where that would be made.
#[test]
fn a_directory_in_place_of_a_file_is_refused() {
    for name in ["0000000000000003.raftlog", "0000000000000001.rewrite", "0000000000000009.raftlog.reserved"] {
        let disk = three_files();
        let path = Path::new("/log").join(name);
        let _ = disk.env().files.remove(&path);
        disk.env().files.create_dir_all(&path).unwrap();
        let before = disk.paths();
        let any = Options { recovery_mode: RecoveryMode::TolerateAny, ..options() };
        for error in [open(&disk, &any).map(drop).unwrap_err(), check(&disk, &any).map(drop).unwrap_err()] {
            assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)), "{error}");
            assert!(error.reason().contains("is a directory"), "{error}");
        }
        assert_eq!(disk.paths(), before);
    }
}

/// A purge of raft-engine's that a power loss cut short leaves files before a gap, too, so opening a log that was killed goes on; it is not passed
/// over in silence.
#[test]
fn files_before_a_lost_one_are_told() {
    let disk = three_files();
    disk.env().files.remove(&file("/log", 2)).unwrap();
    disk.env().files.remove(Path::new("/log/CLOSED")).unwrap();
    let found = check(&disk, &options()).unwrap();
    assert_eq!(found.inspection.stale, [file("/log", 1)]);
    assert!(!found.is_sound());
    let absolute = Options { recovery_mode: RecoveryMode::AbsoluteConsistency, ..options() };
    let error = open(&disk, &absolute).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*file("/log", 1))));
    let log = open(&disk, &options()).unwrap();
    assert_eq!((log.recovery().stale.len(), log.first_index(1)), (1, Some(7)));
}

#[test]
fn a_log_begins_in_no_directory_of_another_store() {
    let none = Options { spill_dir: None, ..options() };
    for (options, dir) in [(&none, "/log"), (&options(), "/log"), (&options(), "/spill")] {
        // What is left of a Db is a Db's, too: a log among it would keep a repair away.
        let of_a_db = ["CURRENT", "MANIFEST-000004", "000012.sst", "000012.ldb", "000012.blob", "OPTIONS-000007"];
        for name in of_a_db.into_iter().chain(["MANIFEST", "000007.data"]) {
            let disk = SimDisk::new();
            for made in ["/log", "/spill"] {
                disk.env().files.create_dir_all(Path::new(made)).unwrap();
            }
            put(&disk, &Path::new(dir).join(name), b"something");
            let before = disk.paths();
            let opened = open(&disk, options).map(drop).map_err(|error| error.kind());
            assert_eq!(opened, Err(ErrorKind::InvalidArgument), "{dir} {name}");
            assert_eq!(disk.paths(), before, "{dir} {name}: nothing was made");
        }
    }
    // One that is there is opened, whatever else is.
    let disk = three_files();
    put(&disk, Path::new("/log/CURRENT"), b"something");
    assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(8));
    // Which says nothing of the other directory, unless files of the log are there, too.
    let disk = three_files();
    put(&disk, Path::new("/spill/CURRENT"), b"something");
    let before = disk.paths();
    let error = open(&disk, &options()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(Path::new("/spill"))));
    assert_eq!(disk.paths(), before, "nothing was made");
    move_to_spill(&disk, "0000000000000002.raftlog");
    assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(8));
}

/// Goal: a dated log of an application's is no store; where the log is there already, nothing of what may be anybody's keeps it from being opened.
#[test]
fn files_that_may_be_an_applications_keep_no_log_away() {
    for dir in ["/log", "/spill"] {
        let disk = SimDisk::new();
        disk.env().files.create_dir_all(Path::new(dir)).unwrap();
        put(&disk, &Path::new(dir).join("20240101.log"), b"something");
        open(&disk, &options()).unwrap().close().unwrap();
    }
    let disk = three_files();
    for name in ["20240101.log", "IDENTITY", "OPTIONS-000007"] {
        put(&disk, &Path::new("/spill").join(name), b"something");
        assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(8), "{name}");
    }
    // Beside a store's own files a log is a store's.
    let disk = SimDisk::new();
    disk.env().files.create_dir_all(Path::new("/log")).unwrap();
    put(&disk, Path::new("/log/000012.log"), b"something");
    put(&disk, Path::new("/log/IDENTITY"), b"something");
    assert_eq!(open(&disk, &options()).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn only_a_lock_that_is_held_is_said_to_be_held() {
    let disk = SimDisk::new();
    let log = open(&disk, &options()).unwrap();
    let error = open(&disk, &options()).unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("another process"), "{error}");
    assert!(error.to_string().contains("close it there"), "{error}");
    log.close().unwrap();
    disk.env().files.remove(Path::new("/log/LOCK")).unwrap();
    disk.env().files.create_dir_all(Path::new("/log/LOCK")).unwrap();
    let error = open(&disk, &options()).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && !error.to_string().contains("another process"), "{error}");
}

/// Goal: a handle in a program's own `Debug`, or in a log of one, is a few words.
#[test]
fn a_handle_shows_its_path_and_not_all_that_is_within() {
    let disk = SimDisk::new();
    let log = open(&disk, &options()).unwrap();
    write(&log, 1);
    assert_eq!(format!("{log:?}"), r#"RaftLog { path: "/log", .. }"#);
}

#[test]
fn where_there_is_no_log_none_begins_unless_that_is_wanted() {
    let wanted = Options { create_if_missing: false, ..options() };
    let disk = SimDisk::new();
    assert_eq!(open(&disk, &wanted).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.paths().is_empty());
    open(&disk, &options()).unwrap().close().unwrap();
    open(&disk, &wanted).unwrap();
    let disk = three_files();
    assert_eq!(open(&disk, &wanted).unwrap().last_index(1), Some(8));
}

/// What another log has spilled, and a directory that is named like a file, are no log at a wrong path.
#[test]
fn a_log_has_something_in_its_own_directory() {
    let disk = three_files();
    let wanted = Options { create_if_missing: false, ..options() };
    put(&disk, &file("/spill", 4), b"RAFT-LOG");
    let wrong = |options: &Options| RaftLog::open_with_env("/wrong", options.clone(), disk.env()).map(drop);
    disk.env().files.create_dir_all(&file("/wrong", 1)).unwrap();
    let before = disk.paths();
    for options in [&wanted, &Options { spill_dir: None, ..wanted.clone() }] {
        assert_eq!(wrong(options).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
    assert_eq!(disk.paths(), before, "nothing was made");
    // All of its files may have been spilled.
    for number in 1..=3 {
        move_to_spill(&disk, &format!("{number:016}.raftlog"));
    }
    disk.env().files.remove(&file("/spill", 4)).unwrap();
    move_to_spill(&disk, "0000000000000001.rewrite");
    assert_eq!(open(&disk, &wanted).unwrap().last_index(1), Some(8));
}

fn move_to_spill(disk: &SimDisk, name: &str) {
    let bytes = disk.file_bytes(&Path::new("/log").join(name)).unwrap();
    put(disk, &Path::new("/spill").join(name), &bytes);
    disk.env().files.remove(&Path::new("/log").join(name)).unwrap();
}

/// The last file of a queue is given up by nobody: where it is gone since the log was closed, so is what was acknowledged.
#[test]
fn a_last_file_that_is_gone_is_damage() {
    for name in ["0000000000000003.raftlog", "0000000000000001.rewrite"] {
        let disk = three_files();
        move_to_spill(&disk, name);
        let alone = |recovery_mode| Options { spill_dir: None, recovery_mode, ..options() };
        let before = disk.paths();
        for mode in [RecoveryMode::AbsoluteConsistency, RecoveryMode::TolerateTail] {
            let error = open(&disk, &alone(mode)).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*Path::new("/log").join(name))));
            assert!(error.to_string().contains("CLOSED"), "{error}");
        }
        assert_eq!(disk.paths(), before, "nothing is made, nor the note taken away");
        let found = check(&disk, &alone(RecoveryMode::TolerateTail)).unwrap();
        assert_eq!((found.is_sound(), found.inspection.missing.len()), (false, 1), "{found:?}");
        let other = disk.after_process_death();
        let log = open(&disk, &options()).unwrap();
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(8)));
        assert!(log.recovery().missing.is_empty() && check(&disk, &options()).unwrap().is_sound());
        // Whoever tolerates that goes on with what is there, and is told once.
        let log = open(&other, &alone(RecoveryMode::TolerateAny)).unwrap();
        assert_eq!(log.recovery().missing, [Path::new("/log").join(name)]);
        let next = log.last_index(1).unwrap() + 1;
        write(&log, next);
        drop(log);
        let log = open(&other, &alone(RecoveryMode::TolerateTail)).unwrap();
        assert_eq!((log.last_index(1), log.recovery().missing.len()), (Some(next), 0));
    }
}

/// A file that is needed is given up by nobody who wrote nothing: where one is gone since the log was closed, from the middle or from the front, so
/// is what was acknowledged.
#[test]
fn a_needed_file_that_is_gone_is_damage() {
    for numbers in [&[2][..], &[1], &[1, 2]] {
        let disk = three_files();
        numbers.iter().for_each(|number| move_to_spill(&disk, &format!("{number:016}.raftlog")));
        let last = numbers[numbers.len() - 1];
        let alone = |recovery_mode| Options { spill_dir: None, recovery_mode, ..options() };
        let before = disk.paths();
        assert_eq!(open(&disk, &alone(RecoveryMode::AbsoluteConsistency)).unwrap_err().kind(), ErrorKind::Corruption);
        let error = open(&disk, &alone(RecoveryMode::TolerateTail)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*file("/log", last))), "{error}");
        assert!(error.to_string().contains("CLOSED"), "{error}");
        assert_eq!(disk.paths(), before, "nothing is made, nor the note taken away");
        let found = check(&disk, &alone(RecoveryMode::TolerateTail)).unwrap();
        assert_eq!((found.is_sound(), &found.inspection.missing), (false, &vec![file("/log", last)]), "{found:?}");
        let other = disk.after_process_death();
        let log = open(&disk, &options()).unwrap();
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(8)));
        assert!(log.recovery().missing.is_empty() && check(&disk, &options()).unwrap().is_sound());
        let log = open(&other, &alone(RecoveryMode::TolerateAny)).unwrap();
        assert_eq!(log.recovery().missing, [file("/log", last)]);
        drop(log);
        let log = open(&other, &alone(RecoveryMode::TolerateTail)).unwrap();
        assert!(log.recovery().missing.is_empty());
    }
}

/// Goal: that the end of a queue cannot be looked at does not make nothing of a needed file that is gone.
#[test]
fn where_the_end_cannot_be_looked_at_nothing_is_said_to_be_there() {
    let (machine, options) = (Machine::new(), options());
    let log = machine.open(&options);
    (1..=5).for_each(|index| write(&log, index));
    machine.main.set_capacity(Some(0));
    (6..=8).for_each(|index| write(&log, index));
    machine.main.set_capacity(None);
    log.close().unwrap();
    assert_eq!(files_in(&machine, "/spill", ".raftlog"), 1);
    let found = || RaftLog::check_with_env("/log", &options, &machine.env(), &mut |_, _| {});
    machine.main.env().files.remove(&file("/log", 1)).unwrap();
    assert_eq!(found().unwrap().inspection.missing, [file("/log", 1)]);
    machine.spill_is_dead.store(true, Ordering::Relaxed);
    assert_eq!(found().unwrap_err().kind(), ErrorKind::Io);
}

/// What nobody needs may go without a word: raft-engine gives it up and writes nothing. So may anything once something was written.
#[test]
fn files_that_nobody_needs_are_not_missed() {
    let remove = |disk: &SimDisk, number| disk.env().files.remove(&file("/log", number)).unwrap();
    let disk = three_files();
    let log = open(&disk, &options()).unwrap();
    log.compact_to(1, 5).unwrap();
    log.close().unwrap();
    remove(&disk, 1);
    let other = disk.after_process_death();
    remove(&other, 2);
    assert_eq!(open(&other, &options()).unwrap_err().path(), Some(&*file("/log", 2)));
    let log = open(&disk, &options()).unwrap();
    assert_eq!((log.first_index(1), log.last_index(1), log.recovery().missing.len()), (Some(5), Some(8), 0));
    drop(log);
    let disk = three_files();
    let log = open(&disk, &options()).unwrap();
    write(&log, 9);
    let left = disk.after_process_death();
    remove(&left, 1);
    let log = open(&left, &options()).unwrap();
    assert_eq!((log.last_index(1), log.recovery().missing.len()), (Some(9), 0));
}

/// Where all is gone but the note, no empty log takes the place of what was acknowledged.
#[test]
fn a_log_of_which_only_the_note_is_left_is_damaged() {
    let disk = three_files();
    (1..=3).for_each(|number| move_to_spill(&disk, &format!("{number:016}.raftlog")));
    move_to_spill(&disk, "0000000000000001.rewrite");
    let alone = |recovery_mode| Options { spill_dir: None, recovery_mode, ..options() };
    let before = disk.paths();
    for mode in [RecoveryMode::AbsoluteConsistency, RecoveryMode::TolerateTail] {
        let error = open(&disk, &alone(mode)).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*file("/log", 3))));
        assert!(error.to_string().contains("CLOSED"), "{error}");
    }
    assert_eq!(disk.paths(), before, "nothing is made, nor the note taken away");
    let found = check(&disk, &alone(RecoveryMode::TolerateTail)).unwrap();
    assert_eq!((found.is_sound(), found.inspection.missing.len()), (false, 2), "{found:?}");
    let other = disk.after_process_death();
    assert_eq!(open(&disk, &options()).unwrap().last_index(1), Some(8));
    // Who wants a new log says so.
    assert!(open(&other, &alone(RecoveryMode::TolerateAny)).unwrap().is_empty());
    disk.env().files.remove(Path::new("/log/CLOSED")).unwrap();
    assert!(open(&disk, &alone(RecoveryMode::TolerateTail)).unwrap().is_empty());
}

/// Items are not taken out of a part of a log that passes for all of it.
#[test]
fn a_filter_takes_no_part_of_a_log_for_the_whole() {
    let disk = three_files();
    move_to_spill(&disk, "0000000000000003.raftlog");
    let alone = |recovery_mode| Options { spill_dir: None, recovery_mode, ..options() };
    let mut discard = |_, _, _| Ok(Verdict::Discard);
    let before = disk.paths();
    let error = RaftLog::filter(
        "/log",
        &alone(RecoveryMode::TolerateTail),
        &disk.env(),
        &FilterOptions::default(),
        &mut discard,
    )
    .unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*file("/log", 3))));
    assert_eq!(disk.paths(), before);
    RaftLog::filter("/log", &alone(RecoveryMode::TolerateAny), &disk.env(), &FilterOptions::default(), &mut discard)
        .unwrap();
    assert!(open(&disk, &alone(RecoveryMode::TolerateTail)).unwrap().is_empty());
}

/// Two disks, one for each of the log's directories; and a process that may run out of descriptors.
#[derive(Debug)]
struct Machine {
    main: SimDisk,
    spill: SimDisk,
    files: [Arc<dyn FileSystem>; 2],
    out_of_descriptors: AtomicBool,
    /// No name in the second one can be made durable.
    spill_fails: AtomicBool,
    /// What creating a file in the second one, and opening the note in the first, fails with, if it does.
    spill_refuses: AtomicI32,
    note_refuses: AtomicI32,
    /// What opening a file of any of the two to append to it fails with, if it does.
    reopen_refuses: AtomicI32,
    /// The second one answers nothing, but for making files and saying that it did not.
    spill_is_dead: AtomicBool,
    /// What changing a name in the second one fails with, if it does.
    spill_keeps: AtomicI32,
    /// Is written to and closed once the first one was listed.
    closes: Mutex<Option<RaftLog>>,
}

impl Machine {
    fn new() -> Arc<Self> {
        let (main, spill) = (SimDisk::new(), SimDisk::new());
        let files = [main.env().files, spill.env().files];
        let (out_of_descriptors, spill_fails, spill_refuses, note_refuses) = Default::default();
        let (reopen_refuses, spill_is_dead, spill_keeps, closes) = Default::default();
        Arc::new(Self {
            main,
            spill,
            files,
            out_of_descriptors,
            spill_fails,
            spill_refuses,
            note_refuses,
            reopen_refuses,
            spill_is_dead,
            spill_keeps,
            closes,
        })
    }

    fn open(self: &Arc<Self>, options: &Options) -> RaftLog {
        RaftLog::open_with_env("/log", options.clone(), self.env()).unwrap()
    }

    fn env(self: &Arc<Self>) -> Env {
        Env { files: Arc::<Self>::clone(self), ..self.main.env() }
    }

    fn at(&self, path: &Path) -> &dyn FileSystem {
        &*self.files[usize::from(path.starts_with("/spill"))]
    }

    fn alive(&self, path: &Path) -> esker_env::Result<&dyn FileSystem> {
        if self.spill_is_dead.load(Ordering::Relaxed) && path.starts_with("/spill") {
            return Err(esker_env::Error::new("asking", path, std::io::Error::from_raw_os_error(5)));
        }
        Ok(self.at(path))
    }

    /// Where names can be changed.
    fn yielding(&self, path: &Path) -> esker_env::Result<&dyn FileSystem> {
        if path.starts_with("/spill") {
            refused(&self.spill_keeps, path)?;
        }
        self.alive(path)
    }

    fn descriptor(&self, path: &Path) -> esker_env::Result<&dyn FileSystem> {
        if self.out_of_descriptors.load(Ordering::Relaxed) {
            let emfile = std::io::Error::from_raw_os_error(24);
            return Err(esker_env::Error::new("opening", path, emfile));
        }
        Ok(self.at(path))
    }
}

fn refused(errno: &AtomicI32, path: &Path) -> esker_env::Result<()> {
    match errno.load(Ordering::Relaxed) {
        0 => Ok(()),
        errno => Err(esker_env::Error::new("opening", path, std::io::Error::from_raw_os_error(errno))),
    }
}

impl FileSystem for Machine {
    fn create(&self, path: &Path) -> esker_env::Result<Arc<dyn AppendFile>> {
        if path.starts_with("/spill") {
            refused(&self.spill_refuses, path)?;
        }
        let made = self.descriptor(path)?.create(path);
        self.alive(path).and(made)
    }
    fn reopen(&self, path: &Path, len: u64) -> esker_env::Result<Arc<dyn AppendFile>> {
        refused(&self.reopen_refuses, path)?;
        self.descriptor(path)?.reopen(path, len)
    }
    fn recycle(&self, from: &Path, to: &Path) -> esker_env::Result<Arc<dyn AppendFile>> {
        if self.descriptor(to).is_err() {
            self.rename(from, to)?;
        }
        self.yielding(to)?;
        self.descriptor(to)?.recycle(from, to)
    }
    fn open(&self, path: &Path) -> esker_env::Result<Arc<dyn ReadFile>> {
        if path.ends_with("CLOSED") {
            refused(&self.note_refuses, path)?;
        }
        self.descriptor(path)?.open(path)
    }
    fn list(&self, dir: &Path) -> esker_env::Result<Vec<DirEntry>> {
        let listed = self.descriptor(dir)?.list(dir);
        if dir == Path::new("/log")
            && let Some(log) = self.closes.lock().unwrap().take()
        {
            (9..=16).for_each(|index| write(&log, index));
            log.close().unwrap();
        }
        listed
    }
    fn metadata(&self, path: &Path) -> esker_env::Result<Metadata> {
        let found = self.alive(path)?.metadata(path)?;
        let disk = u64::from(path.starts_with("/spill"));
        Ok(Metadata { identity: (disk, found.identity.1), ..found })
    }
    fn create_dir_all(&self, dir: &Path) -> esker_env::Result<()> {
        self.at(dir).create_dir_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> esker_env::Result<()> {
        self.yielding(from)?.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> esker_env::Result<()> {
        self.at(from).link(from, to)
    }
    fn remove(&self, path: &Path) -> esker_env::Result<()> {
        self.yielding(path)?.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> esker_env::Result<()> {
        self.at(dir).remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> esker_env::Result<()> {
        if self.spill_fails.load(Ordering::Relaxed) && dir.starts_with("/spill") {
            return Err(esker_env::Error::new("syncing", dir, std::io::Error::from_raw_os_error(5)));
        }
        self.descriptor(dir)?.sync_dir(dir)
    }
    fn punch_hole(&self, path: &Path, range: Range<u64>) -> esker_env::Result<()> {
        self.at(path).punch_hole(path, range)
    }
    fn space(&self, path: &Path) -> esker_env::Result<Space> {
        self.alive(path)?.space(path)
    }
    fn lock(&self, path: &Path) -> esker_env::Result<Box<dyn Lock>> {
        self.descriptor(path)?.lock(path)
    }
}

/// A batch of so many bytes.
fn try_write(log: &RaftLog, index: u64, bytes: usize) -> Result<usize> {
    let mut batch = LogBatch::new();
    batch.add_entries(1, index, [vec![index as u8; bytes]]).unwrap();
    log.write(&mut batch, true)
}

/// Files of either queue that lie in `dir`.
fn files_in(machine: &Machine, dir: &str, queue: &str) -> usize {
    let names = machine.at(Path::new(dir)).list(Path::new(dir)).unwrap();
    names.iter().filter(|entry| entry.name.ends_with(queue)).count()
}

/// Writes go on in the directory that has room, whichever that is: for users' batches, which cross the end of what was preallocated, and for
/// what is moved on.
#[test]
fn a_full_spill_directory_is_left_for_the_other_once_that_has_room() {
    for recycle_files in [false, true] {
        let machine = Machine::new();
        let options = Options { file_bytes: 64 << 10, recycle_files, ..options() };
        let log = machine.open(&options);
        let mut next = 1;
        let mut write = |bytes: usize| {
            let done = try_write(&log, next, bytes);
            next += u64::from(done.is_ok());
            done.map(|_| next - 1)
        };
        write(30 << 10).unwrap();
        machine.main.set_capacity(Some(0));
        while files_in(&machine, "/spill", ".raftlog") == 0 {
            write(30 << 10).unwrap();
        }
        // Still in the file that was preallocated.
        machine.spill.set_capacity(Some(0));
        write(10 << 10).unwrap();
        let error = write(70 << 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert_eq!(files_in(&machine, "/log", ".raftlog"), 1, "a failed write adds no file");
        machine.main.set_capacity(None);
        let last = write(70 << 10).unwrap();
        assert!(files_in(&machine, "/log", ".raftlog") > 1);
        assert_eq!(log.entries(1, 1, last + 1, None).unwrap().len() as u64, last);
        // The same for the rewrite queue.
        machine.main.set_capacity(Some(0));
        machine.spill.set_capacity(None);
        log.move_on(Some(1)).unwrap();
        assert_eq!(files_in(&machine, "/spill", ".rewrite"), 1);
        machine.spill.set_capacity(Some(0));
        machine.main.set_capacity(None);
        log.move_on(None).unwrap();
        assert_eq!(log.entries(1, 1, last + 1, None).unwrap().len() as u64, last);
        drop(log);
        machine.spill.set_capacity(None);
        let log = machine.open(&options);
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(last)));
    }
}

/// A file that waits in the other directory has its blocks: it is written over before any is given up.
#[test]
fn a_file_that_waits_in_the_other_directory_is_written_over_for_want_of_room() {
    let machine = Machine::new();
    let options = Options { file_bytes: 64 << 10, ..options() };
    let log = machine.open(&options);
    for index in 1..=9 {
        try_write(&log, index, 30 << 10).unwrap();
    }
    log.compact_to(1, 9).unwrap();
    // The tail goes to the spill directory, then files of the main one wait.
    machine.main.set_capacity(Some(0));
    try_write(&log, 10, 70 << 10).unwrap();
    assert_eq!(files_in(&machine, "/spill", ".raftlog"), 1);
    log.compact_to(1, 10).unwrap();
    log.purge().unwrap();
    let waiting = log.stats().recycled_files;
    assert!(waiting > 1);
    machine.spill.set_capacity(Some(0));
    for index in 11..=14 {
        try_write(&log, index, 30 << 10).unwrap();
    }
    assert!(log.stats().recycled_files > 0, "not all were given up");
    assert_eq!(log.entries(1, 10, 15, None).unwrap().len(), 5);
}

/// Where the other directory takes no file, waiting ones beside the full one go for a write, as if it were not there.
#[test]
fn a_spill_directory_that_refuses_keeps_no_write_from_the_room_of_waiting_files() {
    for errno in [30, 5] {
        let (machine, options) = (Machine::new(), Options { file_bytes: 64 << 10, ..options() });
        let log = machine.open(&options);
        for index in 1..=12 {
            try_write(&log, index, 30 << 10).unwrap();
        }
        log.compact_to(1, 13).unwrap();
        log.purge().unwrap();
        let waiting = log.stats().recycled_files;
        assert!(waiting > 1);
        machine.main.set_capacity(Some(used_bytes(&machine.main)));
        machine.spill_refuses.store(errno, Ordering::Relaxed);
        try_write(&log, 13, 70 << 10).unwrap();
        assert!(log.stats().recycled_files < waiting);
        assert_eq!(log.entry(1, 13).unwrap().unwrap().len(), 70 << 10);
    }
}

/// Nor from the room that there is beside the full file, where it is less than a whole file takes.
#[test]
fn a_spill_directory_that_refuses_keeps_no_write_from_little_room() {
    for errno in [30, 5, 2] {
        let machine = Machine::new();
        let options = Options { file_bytes: 64 << 10, recycle_files: false, ..options() };
        let log = machine.open(&options);
        (1..=3).for_each(|index| assert!(try_write(&log, index, 30 << 10).is_ok()));
        machine.main.set_capacity(Some(used_bytes(&machine.main) + (40 << 10)));
        machine.spill_refuses.store(errno, Ordering::Relaxed);
        try_write(&log, 4, 30 << 10).unwrap();
        assert_eq!(log.stats().append.last_file, 2);
        // That there is no more is told as such.
        assert_eq!(try_write(&log, 5, 30 << 10).unwrap_err().kind(), ErrorKind::Exhausted);
        drop(log);
        assert_eq!(machine.open(&options).last_index(1), Some(4));
    }
}

/// Goal: a spill directory that dies and answers nothing any more keeps a log with a full disk from writing only as long as that is full; an empty
/// file that it may have made all the same harms none of what is written then.
#[test]
fn a_spill_directory_that_dies_ends_no_log() {
    for (moves, recycle_files) in [(false, false), (false, true), (true, false)] {
        let machine = Machine::new();
        let options = Options { file_bytes: 64 << 10, recycle_files, ..options() };
        let log = machine.open(&options);
        let mut next = 1;
        let mut write = |bytes: usize| {
            let done = try_write(&log, next, bytes);
            next += u64::from(done.is_ok());
            done.map(|_| next - 1)
        };
        write(30 << 10).unwrap();
        machine.main.set_capacity(Some(0));
        machine.spill_is_dead.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(write(70 << 10).unwrap_err().kind(), ErrorKind::Exhausted);
        }
        assert_eq!(files_in(&machine, "/spill", ".raftlog"), 1);
        if moves {
            // The same for the rewrite queue.
            log.move_on(None).unwrap_err();
        }
        machine.main.set_capacity(None);
        let mut last = 0;
        for _ in 0..6 {
            last = write(30 << 10).unwrap();
        }
        if moves {
            log.move_on(None).unwrap();
        }
        let found = RaftLog::check_with_env("/log", &options, &machine.env(), &mut |_, _| {}).unwrap();
        assert!(found.is_sound(), "{found:?}");
        drop(log);
        machine.spill_is_dead.store(false, Ordering::Relaxed);
        let log = machine.open(&options);
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(last)));
        assert_eq!((log.recovery().cuts.len(), log.recovery().stale.len()), (0, 0));
        assert_eq!(log.entries(1, 1, last + 1, None).unwrap().len() as u64, last);
        assert_eq!(files_in(&machine, "/spill", ".raftlog"), 0);
    }
}

/// Writes until the next file is begun; says what the last index is.
fn fill_file(log: &RaftLog, last: &mut u64) -> u64 {
    let begun = log.stats().append.last_file;
    while log.stats().append.last_file == begun {
        *last += 1;
        try_write(log, *last, 30 << 10).unwrap();
    }
    *last
}

/// Goal: nor does one that dies, or takes no changes any more, while a file waits there to be written over, or to lose its name.
#[test]
fn a_spill_directory_that_dies_with_a_waiting_file_ends_no_log() {
    for (dies, is_shared) in [(true, false), (false, false), (true, true), (false, true)] {
        let machine = Machine::new();
        let options = Options { file_bytes: 64 << 10, ..options() };
        let log = machine.open(&options);
        let mut last = 0;
        let mut write_file = || fill_file(&log, &mut last);
        machine.main.set_capacity(Some(used_bytes(&machine.main)));
        write_file();
        machine.main.set_capacity(None);
        let first = write_file();
        log.compact_to(1, first).unwrap();
        log.purge().unwrap();
        assert_eq!((log.stats().recycled_files, files_in(&machine, "/spill", ".raftlog")), (2, 1));
        // That in the log's own directory comes first.
        write_file();
        assert_eq!((log.stats().recycled_files, files_in(&machine, "/spill", ".raftlog")), (1, 1));
        if is_shared {
            machine.spill.env().files.link(&file("/spill", 2), Path::new("/spill/fork")).unwrap();
        }
        machine.spill_is_dead.store(dies, Ordering::Relaxed);
        machine.spill_keeps.store(if dies { 0 } else { 30 }, Ordering::Relaxed);
        for _ in 0..2 {
            write_file();
        }
        assert_eq!(log.stats().recycled_files, 1, "it waits on");
        machine.spill_is_dead.store(false, Ordering::Relaxed);
        machine.spill_keeps.store(0, Ordering::Relaxed);
        let last = write_file();
        assert_eq!(log.stats().recycled_files, 0);
        assert_eq!(log.entries(1, first, last + 1, None).unwrap().len() as u64, last + 1 - first);
        drop(log);
        let log = machine.open(&options);
        assert_eq!((log.last_index(1), log.recovery().stale.len()), (Some(last), 0));
    }
}

/// Goal: nor does one that dies while a file waits there to be removed: what waits behind it makes room where it is wanted, all else is given up, each
/// purge says what cannot be removed, and once the directory answers again it goes by itself.
#[test]
fn a_spill_directory_that_dies_with_a_file_to_be_removed_keeps_nothing_else() {
    for (dies, closes) in [(true, false), (false, false), (true, true)] {
        let machine = Machine::new();
        // Without recycling, so that all that is given up is to be removed.
        let options = Options { file_bytes: 64 << 10, recycle_files: false, ..options() };
        let log = machine.open(&options);
        let mut last = 0;
        let mut write_file = || fill_file(&log, &mut last);
        let mut batch = LogBatch::new();
        batch.put(2, b"key", b"value").unwrap();
        log.write(&mut batch, true).unwrap();
        // A file of each queue in the spill directory, files of users' batches behind.
        machine.main.set_capacity(Some(used_bytes(&machine.main)));
        write_file();
        log.move_on(None).unwrap();
        log.rewrite_again().unwrap();
        let there = [".raftlog", ".rewrite"].map(|queue| files_in(&machine, "/spill", queue));
        assert!(there.iter().all(|count| *count > 0), "{there:?}");
        machine.main.set_capacity(None);
        let first = (0..4).map(|_| write_file()).last().unwrap();
        log.compact_to(1, first).unwrap();
        machine.spill_is_dead.store(dies, Ordering::Relaxed);
        machine.spill_keeps.store(if dies { 0 } else { 30 }, Ordering::Relaxed);
        // Nobody needs what was moved.
        batch.put(2, b"key", b"value").unwrap();
        log.write(&mut batch, true).unwrap();
        let oldest = log.stats().append.first_file;
        log.purge_stale().unwrap_err();
        let stats = log.stats();
        assert!(stats.append.first_file > oldest && stats.recycled_files > 1, "{oldest} {stats:?}");
        // There is nothing to be given up any more.
        for _ in 0..3 {
            let error = log.purge().unwrap_err();
            assert!(error.path().is_some_and(|path| path.starts_with("/spill")), "{error}");
        }
        machine.main.set_capacity(Some(used_bytes(&machine.main)));
        let last = write_file();
        machine.main.set_capacity(None);
        // Or the next file is begun there, where that can be.
        assert!(!dies || log.stats().recycled_files < stats.recycled_files, "they make room");
        if closes {
            log.close().unwrap();
        }
        machine.spill_is_dead.store(false, Ordering::Relaxed);
        machine.spill_keeps.store(0, Ordering::Relaxed);
        if !closes {
            log.purge().unwrap();
            assert_eq!((log.stats().recycled_files, files_in(&machine, "/spill", ".rewrite")), (0, 0));
            let given_up = 1..log.stats().append.first_file;
            let is_there = |number| machine.spill.env().files.metadata(&file("/spill", number)).is_ok();
            assert!(!given_up.into_iter().any(is_there));
        }
        drop(log);
        let log = machine.open(&options);
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(first), Some(last)));
        assert_eq!(log.entries(1, first, last + 1, None).unwrap().len() as u64, last + 1 - first);
        assert_eq!(log.get(2, b"key").as_deref(), Some(&b"value"[..]));
        assert!(closes || log.recovery().stale.is_empty(), "{:?}", log.recovery().stale);
    }
}

/// Goal: an empty file that such a directory made all the same harms nobody either once those that it stood beside are given up, whether the log
/// was closed then or never, or before that one was made only. One that the note knows of is missed.
#[test]
fn an_empty_file_before_the_first_is_none_unless_it_was_needed() {
    for (noted, closed_before, is_sound) in
        [(true, false, true), (false, false, true), (false, true, true), (true, true, true), (true, false, false)]
    {
        let machine = Machine::new();
        let options = Options { file_bytes: 64 << 10, recycle_files: false, ..options() };
        let mut log = machine.open(&options);
        let mut last = 1;
        try_write(&log, last, 30 << 10).unwrap();
        let note = Path::new("/log/CLOSED");
        let mut noted_before = None;
        if closed_before {
            log.close().unwrap();
            noted_before = machine.main.file_bytes(note);
            log = machine.open(&options);
        }
        machine.main.set_capacity(Some(0));
        machine.spill_is_dead.store(is_sound, Ordering::Relaxed);
        assert_eq!(try_write(&log, 2, 70 << 10).is_err(), is_sound);
        last += u64::from(!is_sound);
        assert_eq!(files_in(&machine, "/spill", ".raftlog"), 1);
        machine.main.set_capacity(None);
        while log.stats().append.last_file < 5 {
            last += 1;
            try_write(&log, last, 30 << 10).unwrap();
        }
        let first = if is_sound { 3 } else { 2 };
        let mut needed = 1;
        while log.stats().append.first_file < first {
            needed += 1;
            log.compact_to(1, needed).unwrap();
            log.purge().unwrap();
        }
        assert_eq!(log.stats().append.first_file, first);
        log.close().unwrap();
        machine.spill_is_dead.store(false, Ordering::Relaxed);
        if !is_sound {
            machine.spill.overwrite(&file("/spill", 2), Vec::new());
        }
        if !noted {
            // As if it were killed.
            machine.main.env().files.remove(note).unwrap();
            noted_before.into_iter().for_each(|bytes| put(&machine.main, note, &bytes));
        }
        let what = format!("{noted} {closed_before} {is_sound}");
        let found = RaftLog::check_with_env("/log", &options, &machine.env(), &mut |_, _| {}).unwrap();
        assert_eq!(found.is_sound(), is_sound, "{what}: {found:?}");
        for mode in [RecoveryMode::AbsoluteConsistency, RecoveryMode::TolerateTail] {
            let options = Options { recovery_mode: mode, ..options.clone() };
            let opened = RaftLog::open_with_env("/log", options, machine.env());
            assert_eq!(
                opened.as_ref().err().map(|error| error.kind()),
                (!is_sound).then_some(ErrorKind::Corruption),
                "{what}"
            );
            if let Ok(log) = opened {
                assert_eq!((log.first_index(1), log.last_index(1)), (Some(needed), Some(last)), "{what}");
                assert!(log.recovery().stale.is_empty() && log.recovery().missing.is_empty(), "{what}");
                assert_eq!(files_in(&machine, "/spill", ".raftlog"), 0, "{what}");
            }
        }
    }
}

/// Goal: files that wait to be written over are not given up for a log that will write no more, though its sync failed for want of room.
#[test]
fn a_sync_that_fails_for_want_of_room_gives_up_no_files() {
    let waiting = || {
        let disk = SimDisk::new();
        let log = open(&disk, &options()).unwrap();
        (1..=20).for_each(|index| write(&log, index));
        log.compact_to(1, 20).unwrap();
        log.purge().unwrap();
        write(&log, 21);
        (disk, log)
    };
    let mut ended = 0;
    for op in 0.. {
        let (disk, log) = waiting();
        let before = log.stats();
        assert!(before.recycled_files > 2);
        let begun = disk.op_count();
        disk.fail_at(begun + op, Fault::NoSpace);
        let done = try_write(&log, 22, 300);
        let after = log.stats();
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
            ended += 1;
            assert!(after.recycled_files + 1 >= before.recycled_files, "{op}: but for the one that was taken");
        }
        if done.is_ok() && disk.op_count() <= begun + op {
            assert!(after.append.last_file > before.append.last_file, "the write began a file");
            break;
        }
    }
    assert!(ended > 0);
}

/// Goal: who looks at a log that is closed meanwhile sees no damage: the note that is read is older than the files.
#[test]
fn a_check_beside_a_close_finds_no_damage() {
    let (machine, options) = (Machine::new(), options());
    let log = machine.open(&options);
    (1..=8).for_each(|index| write(&log, index));
    log.close().unwrap();
    *machine.closes.lock().unwrap() = Some(machine.open(&options));
    let found = RaftLog::check_with_env("/log", &options, &machine.env(), &mut |_, _| {}).unwrap();
    assert!(machine.closes.lock().unwrap().is_none());
    assert!(found.is_sound(), "{found:?}");
    assert_eq!(machine.open(&options).last_index(1), Some(16));
}

/// Goal: a note that cannot be read now does not come to hold for an end that was cut off meanwhile.
#[test]
fn a_note_that_cannot_be_read_goes_with_what_is_cut() {
    let (machine, options) = (Machine::new(), options());
    let log = machine.open(&options);
    (1..=8).for_each(|index| write(&log, index));
    log.close().unwrap();
    let last = file("/log", 3);
    let bytes = machine.main.file_bytes(&last).unwrap();
    machine.main.overwrite(&last, bytes[..bytes.len() - 100].to_vec());
    machine.note_refuses.store(5, Ordering::Relaxed);
    let log = machine.open(&options);
    assert_eq!((log.last_index(1), log.recovery().cuts.len()), (Some(7), 1));
    // As if it were killed now, and the note could be read again.
    let left = machine.main.after_process_death();
    assert_eq!(left.file_bytes(Path::new("/log/CLOSED")), None);
    assert_eq!(open(&left, &Options { spill_dir: None, ..options }).unwrap().last_index(1), Some(7));
}

/// What files take of the disk.
fn used_bytes(disk: &SimDisk) -> u64 {
    let files = disk.env().files;
    disk.paths().iter().filter_map(|path| files.metadata(path).ok()).map(|found| found.allocated).sum()
}

/// A note that cannot be read is as good as a damaged one; one that could be with a descriptor is not passed over.
#[test]
fn a_note_that_cannot_be_read_keeps_nobody_out() {
    let (machine, options) = (Machine::new(), options());
    let log = machine.open(&options);
    (1..=8).for_each(|index| write(&log, index));
    log.close().unwrap();
    let open = |mode| {
        let options = Options { recovery_mode: mode, ..options.clone() };
        RaftLog::open_with_env("/log", options, machine.env())
    };
    let check = || RaftLog::check_with_env("/log", &options, &machine.env(), &mut |_, _| {});
    machine.note_refuses.store(24, Ordering::Relaxed);
    assert_eq!(open(RecoveryMode::TolerateTail).unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(check().unwrap_err().kind(), ErrorKind::Exhausted);
    for errno in [5, 13] {
        machine.note_refuses.store(errno, Ordering::Relaxed);
        assert!(!check().unwrap().is_sound());
        open(RecoveryMode::AbsoluteConsistency).unwrap_err();
        assert_eq!(open(RecoveryMode::TolerateTail).unwrap().last_index(1), Some(8));
    }
}

/// Goal: a process that is out of descriptors when a file is full writes nothing, and goes on when it has some again; so does it where
/// files wait to be written over, of which it keeps all but the one that it was about to take.
#[test]
fn a_log_outlives_a_lack_of_descriptors() {
    for (spill, waiting) in [(false, false), (true, false), (false, true), (true, true)] {
        let machine = Machine::new();
        let mut options = options();
        options.spill_dir.take_if(|_| !spill);
        let log = machine.open(&options);
        (1..=20).for_each(|index| write(&log, index));
        if waiting {
            log.compact_to(1, 20).unwrap();
            log.purge().unwrap();
        }
        let (before, last) = (log.stats(), log.last_index(1).unwrap());
        assert_eq!(before.recycled_files > 1, waiting);
        machine.out_of_descriptors.store(true, Ordering::Relaxed);
        let mut written = last;
        let error = loop {
            match try_write(&log, written + 1, 300) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        for _ in 0..3 {
            assert_eq!(try_write(&log, written + 1, 300).unwrap_err().kind(), ErrorKind::Exhausted);
            assert_eq!(log.purge_stale().unwrap_err().kind(), ErrorKind::Exhausted);
        }
        let after = log.stats();
        assert_eq!((after.write_error, after.append.last_file), (None, before.append.last_file));
        assert!(after.recycled_files + 1 >= before.recycled_files, "they are of no use here");
        machine.out_of_descriptors.store(false, Ordering::Relaxed);
        (written + 1..=written + 8).for_each(|index| write(&log, index));
        log.purge().unwrap();
        drop(log);
        let log = machine.open(&options);
        assert_eq!((log.last_index(1), log.recovery().stale.len()), (Some(written + 8), 0));
    }
}

/// Goal: a directory that holds nothing of a file that could not be begun has no say in whether the log goes on.
#[test]
fn a_spill_directory_that_fails_keeps_no_failure_of_the_other() {
    let (machine, options) = (Machine::new(), options());
    let log = machine.open(&options);
    (1..=3).for_each(|index| write(&log, index));
    machine.main.set_capacity(Some(0));
    machine.spill.set_capacity(Some(0));
    machine.spill_fails.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        assert_eq!(try_write(&log, 4, 3000).unwrap_err().kind(), ErrorKind::Exhausted);
    }
    machine.main.set_capacity(None);
    write(&log, 4);
    assert_eq!(log.last_index(1), Some(4));
}
