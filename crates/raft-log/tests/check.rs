//! A log is looked at from outside: what is in it, and what is wrong with it.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::{Path, PathBuf};

use esker_raft_log::{Check, ErrorKind, LogBatch, Options, RaftLog};
use tempfile::TempDir;

fn options() -> Options {
    Options { file_bytes: 2 << 10, purge_threshold_bytes: 8 << 10, compress_from_bytes: 900, ..Options::default() }
}

/// Forty batches of groups 1 to 4 in several files, some packed, and a key.
fn loaded() -> (TempDir, RaftLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = RaftLog::open(dir.path(), options()).unwrap();
    let mut batch = LogBatch::new();
    for round in 0..40u64 {
        for group in 1..=4 {
            let entry = format!("{group}-{round}-").repeat(20 * (round % 3) as usize + 1);
            batch.add_entries(group, 1 + round, [entry]).unwrap();
        }
        batch.put(4, b"state", &round.to_le_bytes()).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    (dir, log)
}

fn check(dir: &Path) -> Check {
    RaftLog::check(dir, &options(), &mut |_, _| {}).unwrap()
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(ending));
    files.sort();
    files
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_sound_log_is_read_to_its_end_while_it_is_open() {
    let (dir, log) = loaded();
    log.compact_to(2, 30).unwrap();
    let found = check(dir.path());
    assert!(found.is_sound() && found.torn.is_empty(), "{found:?}");
    assert_eq!((found.batches, found.entries), (41, 160));
    let groups: Vec<_> = found.inspection.groups.iter().map(|one| (one.group, one.first_index, one.entries)).collect();
    assert_eq!(groups, [(1, Some(1), 40), (2, Some(30), 11), (3, Some(1), 40), (4, Some(1), 40)]);
    assert_eq!((found.inspection.groups[3].keys, found.inspection.groups[3].last_index), (1, Some(40)));
    assert!(found.inspection.files.len() > 3);
    // The lock is free for whoever has it, and nothing was cut or added.
    log.write(&mut LogBatch::new(), true).unwrap();
    log.close().unwrap();
}

#[test]
fn a_log_that_was_moved_on_is_sound_although_its_rewrite_queue_has_gaps() {
    let (dir, log) = loaded();
    log.move_on(None).unwrap();
    let mut batch = LogBatch::new();
    for group in 1..=4 {
        batch.add_entries(group, 41, vec![b"x"; 20]).unwrap();
        batch.compact(group, 50);
    }
    log.write(&mut batch, false).unwrap();
    log.move_on(None).unwrap();
    log.close().unwrap();
    let found = check(dir.path());
    assert!(found.is_sound(), "{found:?}");
    assert_eq!(found.inspection.groups[0].first_index, Some(50));
    assert_eq!(found.inspection.groups[0].rewritten_entries, 11);
}

#[test]
fn every_flipped_byte_of_a_file_in_the_middle_is_damage() {
    let (dir, log) = loaded();
    log.close().unwrap();
    let path = files(dir.path(), ".raftlog").remove(1);
    let bytes = std::fs::read(&path).unwrap();
    // Version and alignment lie before the first checksum: another version is refused, alignment pads nothing here.
    let unchecked = 53..69;
    for offset in (0..bytes.len()).step_by(7).filter(|offset| !unchecked.contains(offset)) {
        flip(&path, offset);
        let found = check(dir.path());
        assert!(!found.errors.is_empty(), "byte {offset}");
        assert_eq!(found.errors[0].path(), Some(&*path), "byte {offset}");
        flip(&path, offset);
    }
    assert!(check(dir.path()).is_sound());
}

#[test]
fn a_torn_end_is_told_and_is_no_damage() {
    let (dir, log) = loaded();
    log.close().unwrap();
    // As if it had not been closed.
    std::fs::remove_file(dir.path().join("CLOSED")).unwrap();
    let path = files(dir.path(), ".raftlog").pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let found = check(dir.path());
    assert!(found.is_sound());
    assert_eq!((found.torn.len(), &found.torn[0].path), (1, &path));
    assert_eq!(found.batches, 39);
}

/// However long the note is, no more of it is read than there can be.
#[test]
fn a_note_that_is_far_too_long_is_told_as_damaged() {
    let (dir, log) = loaded();
    log.close().unwrap();
    let path = dir.path().join("CLOSED");
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let found = check(dir.path());
    assert_eq!((found.errors.len(), found.errors[0].path()), (1, Some(&*path)));
}

#[test]
fn entries_missing_in_the_middle_are_a_gap() {
    let (dir, log) = loaded();
    log.close().unwrap();
    // The second file becomes one with a header and nothing behind it.
    let path = files(dir.path(), ".raftlog").remove(1);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..69]).unwrap();
    let found = check(dir.path());
    assert_eq!(found.gaps.len(), 4, "{:?}", found.gaps);
    assert!(found.gaps[0].first_behind > found.gaps[0].last_before + 1 && !found.is_sound());
}

#[test]
fn nothing_is_made_where_there_is_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let error = RaftLog::inspect(dir.path(), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(RaftLog::inspect(dir.path().join("no"), &options()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
