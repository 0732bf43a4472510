//! What was preallocated, lent as memory.

use super::*;
use crate::Window;

const SECTOR: usize = 512;

/// A durable file of two sectors that is preallocated, and its window.
fn lent(disk: &SimDisk) -> (Arc<dyn AppendFile>, Arc<dyn Window>) {
    disk.lend_windows(true);
    let file = disk.create(&path("file")).unwrap();
    file.preallocate(16 * SECTOR as u64).unwrap();
    file.append(&[&[b'o'; 2 * SECTOR]]).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("/store")).unwrap();
    let window = file.window().unwrap().unwrap();
    (file, window)
}

#[test]
fn a_window_shows_what_was_appended_and_nothing_else() {
    let disk = store();
    let (file, window) = lent(&disk);
    let old = window.appended(1000..1024).unwrap();
    assert_eq!(window.appended(1000..1025), None);
    file.append(&[b"new"]).unwrap();
    assert_eq!(window.appended(1022..1027).unwrap(), b"oonew");
    assert_eq!((old, window.appended(0..u64::MAX)), (&[b'o'; 24][..], None));
    // Behind what was preallocated there is no memory.
    file.append(&[&[b'n'; 15 * SECTOR]]).unwrap();
    assert_eq!(window.appended(8190..8192).unwrap(), b"nn");
    assert_eq!(window.appended(8190..8193), None);
    disk.remove(&path("file")).unwrap();
    drop(file);
    assert_eq!(window.appended(1024..1027).unwrap(), b"new");
}

#[test]
fn a_window_shows_what_is_left_after_a_failed_sync() {
    let mut seen = [false; 2];
    for seed in 0..20 {
        let disk = store();
        disk.evict_after_failed_syncs(Some(seed));
        let (file, window) = lent(&disk);
        file.append(&[b"new"]).unwrap();
        assert_eq!(window.appended(1022..1027).unwrap(), b"oonew");
        disk.fail_at(disk.op_count(), Fault::Eio);
        file.sync().unwrap_err();
        let shown = window.appended(1022..1027).unwrap();
        assert_eq!(shown, &disk.file_bytes(&path("file")).unwrap()[1022..1027]);
        seen[usize::from(shown == b"oonew")] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn there_is_no_window_unless_asked_for_nor_without_preallocation() {
    let disk = store();
    let file = create(&disk, "file", b"bytes");
    file.preallocate(100).unwrap();
    assert!(file.window().unwrap().is_none());
    disk.lend_windows(true);
    let file = create(&disk, "other", b"bytes");
    assert!(file.window().unwrap().is_none());
    file.preallocate(100).unwrap();
    assert!(file.window().unwrap().is_some());
    file.seal().unwrap();
    assert!(file.window().unwrap().is_none());
}

#[test]
fn who_may_be_reading_keeps_a_file_from_being_cut() {
    let disk = store();
    let (file, _window) = lent(&disk);
    assert_eq!(kind(file.truncate(1000)), std::io::ErrorKind::InvalidInput);
    file.truncate(1024).unwrap();
    assert_eq!(file_bytes(&disk, "file").len(), 1024);
}

#[test]
fn what_is_appended_to_a_sealed_file_is_not_shown_and_may_be_cut() {
    let disk = store();
    let (file, window) = lent(&disk);
    file.seal().unwrap();
    file.append(&[b"behind"]).unwrap();
    assert_eq!((window.appended(1000..1024).unwrap(), window.appended(1000..1025)), (&[b'o'; 24][..], None));
    assert_eq!(kind(file.truncate(1000)), std::io::ErrorKind::InvalidInput);
    file.truncate(1024).unwrap();
    file.append(&[b"again"]).unwrap();
    file.truncate(1024).unwrap();
    assert_eq!(file_bytes(&disk, "file").len(), 1024);
    // A window that was lent anew shows what came meanwhile.
    file.append(&[b"new"]).unwrap();
    file.preallocate(16 * SECTOR as u64).unwrap();
    let again = file.window().unwrap().unwrap();
    assert_eq!(again.appended(1024..1027).unwrap(), b"new");
    assert_eq!(kind(file.truncate(1024)), std::io::ErrorKind::InvalidInput);
}

/// Each sector of an append that was not synced survives or not; all of it does when only the process dies.
#[test]
fn unsynced_sectors_of_a_mapped_file_survive_in_any_order() {
    let disk = store();
    let (file, _window) = lent(&disk);
    file.append(&[&[b'n'; 2 * SECTOR]]).unwrap();
    let firsts = |disk: &SimDisk| {
        let bytes = file_bytes(disk, "file");
        [0, 2, 3].map(|sector| bytes[sector * SECTOR])
    };
    assert_eq!(outcomes(&disk, firsts), [*b"o\0\0", *b"o\0n", *b"on\0", *b"onn"]);
    assert_eq!(firsts(&disk.after_process_death()), *b"onn");
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, firsts), [*b"onn"]);
}

#[test]
fn a_failed_append_to_a_mapped_file_moves_no_end_and_leaves_what_got_in() {
    let disk = store();
    let (file, window) = lent(&disk);
    disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes: 700 });
    assert!(file.append(&[&[b'x'; 1000]]).is_err());
    assert_eq!((file.len(), window.appended(1024..1025)), (1024, None));
    file.append(&[b"new"]).unwrap();
    let found = |disk: &SimDisk| file_bytes(disk, "file")[1024..1726].to_vec();
    let wanted = [b"new".to_vec(), vec![b'x'; 697], vec![0; 2]].concat();
    assert_eq!((found(&disk), found(&disk.after_process_death())), (wanted.clone(), wanted.clone()));
    assert_eq!(window.appended(1024..1027).unwrap(), b"new");
    assert_eq!(found(&disk.after_power_loss(Survivors::Nothing)), [0; 702]);
    file.sync().unwrap();
    assert_eq!(found(&disk.after_power_loss(Survivors::Nothing)), wanted);
    file.seal().unwrap();
    assert_eq!(file_bytes(&disk, "file").len(), 1027);
}
