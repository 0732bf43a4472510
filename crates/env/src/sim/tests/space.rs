//! Room on the disk.

use super::*;

fn available(disk: &SimDisk) -> u64 {
    disk.space(Path::new("/store")).unwrap().available
}

#[test]
fn an_append_that_does_not_fit_leaves_the_part_that_does() {
    let disk = store();
    disk.set_capacity(Some(8192));
    let file = create(&disk, "a", &[1; 5000]);
    assert_eq!(available(&disk), 0);
    let error = file.append(&[&[2; 5000]]).unwrap_err();
    assert!(error.is_exhausted());
    assert_eq!((file.len(), error.offset()), (8192, Some(8192)));
    file.truncate(5000).unwrap();
    file.append(&[&[2; 3192]]).unwrap();
    assert_eq!(disk.space(Path::new("/store")).unwrap().total, 8192);
    disk.set_capacity(None);
    file.append(&[&[2; 5000]]).unwrap();
}

#[test]
fn less_capacity_than_used_is_a_full_disk_that_can_still_be_emptied() {
    let disk = store();
    let file = create(&disk, "a", &[1; 9000]);
    disk.set_capacity(Some(4096));
    assert_eq!(available(&disk), 0);
    file.append(&[&[1; 3000]]).unwrap();
    assert!(file.append(&[&[1; 1000]]).is_err());
    drop(file);
    disk.remove(&path("a")).unwrap();
    assert_eq!(available(&disk), 4096);
}

#[test]
fn a_nameless_file_takes_up_space_until_its_last_handle_goes() {
    let disk = store();
    disk.set_capacity(Some(1 << 20));
    let file = create(&disk, "a", &[1; 4096]);
    let reader = disk.open(&path("a")).unwrap();
    disk.remove(&path("a")).unwrap();
    drop(file);
    assert_eq!(available(&disk), (1 << 20) - 4096);
    drop(reader);
    assert_eq!(available(&disk), 1 << 20);
}

#[test]
fn reserved_blocks_are_there_when_the_disk_is_full() {
    let disk = store();
    disk.set_capacity(Some(16_384));
    let file = create(&disk, "a", b"");
    assert!(file.preallocate(20_000).unwrap_err().is_exhausted());
    assert!(file.preallocate(8192).unwrap());
    let other = create(&disk, "b", b"");
    assert!(other.append(&[&[1; 9000]]).is_err());
    assert_eq!(other.len(), 8192);
    file.append(&[&[1; 8192]]).unwrap();
    assert_eq!(disk.metadata(&path("a")).unwrap().allocated, 8192);
}

#[test]
fn a_preallocated_file_dies_with_zeroes_behind_what_was_appended() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    file.preallocate(2000).unwrap();
    file.append(&[b"yz"]).unwrap();
    assert_eq!((file.len(), disk.metadata(&path("a")).unwrap().len), (3, 2000));
    let padded = |bytes: &[u8], len| [bytes, &vec![0; len - bytes.len()]].concat();
    let dead = disk.after_process_death();
    assert_eq!(dead.read(&path("a")).unwrap(), padded(b"xyz", 2000));
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"x");
    let lengths = outcomes(&disk, |disk| disk.metadata(&path("a")).unwrap().len);
    assert_eq!(lengths, [1, 512, 1024, 1536, 2000], "the old length, the new one, and what a sector's boundary leaves");
    file.sync().unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), padded(b"xyz", 2000));
    let left = disk.after_power_loss(Survivors::Nothing);
    assert_eq!(left.metadata(&path("a")).unwrap().allocated, 4096);
    left.reopen(&path("a"), 3).unwrap().append(&[b"!"]).unwrap();
    assert_eq!(left.read(&path("a")).unwrap(), b"xyz!");
    let behind = dead.reopen(&path("a"), 2000).unwrap();
    behind.append(&[b"!"]).unwrap();
    assert_eq!(dead.read(&path("a")).unwrap(), [padded(b"xyz", 2000).as_slice(), b"!"].concat());
}

#[test]
fn sealing_counts_fails_and_gives_back_what_was_preallocated() {
    let disk = store();
    let file = create_durable(&disk, "a", &[1; 1000]);
    file.preallocate(1 << 20).unwrap();
    file.append(&[&[2; 100]]).unwrap();
    file.sync().unwrap();
    let (before, allocated) = (disk.op_count(), disk.metadata(&path("a")).unwrap().allocated);
    disk.fail_at(before, Fault::Eio);
    file.seal().unwrap_err();
    assert_eq!((disk.op_count(), allocated), (before + 1, 1 << 20));
    file.seal().unwrap();
    let found = disk.metadata(&path("a")).unwrap();
    assert_eq!((file.len(), found.len, found.allocated), (1100, 1100, 4096));
    assert_eq!(disk.after_power_loss(Survivors::Nothing).metadata(&path("a")).unwrap().len, 1 << 20);
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap()[..1100], *file_bytes(&disk, "a"));
    file.sync().unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap().len(), 1100);
}

#[test]
fn a_process_that_dies_within_an_append_leaves_a_part_of_it_without_its_first_bytes() {
    let (disk, bytes) = (store(), *b"0123456789abcdef");
    let file = create_durable(&disk, "a", b"x");
    file.preallocate(20).unwrap();
    disk.die_within(disk.op_count(), 2..12);
    file.append(&[&bytes[..3], &bytes[3..]]).unwrap_err();
    file.append(&[b"never"]).unwrap_err();
    let left = disk.after_process_death();
    assert_eq!(left.read(&path("a")).unwrap(), b"x\0\0\0\0\0\0\0\089ab\0\0\0\0\0\0\0");
    let grown = left.reopen(&path("a"), 1).unwrap();
    left.die_within(left.op_count(), 2..4096 + 12);
    grown.append(&[&[7; 9000]]).unwrap_err();
    let page = [&b"x"[..], &[7; 4095]].concat();
    assert_eq!(left.after_process_death().read(&path("a")).unwrap(), page, "no copy, no gap, whole pages");
}

#[test]
fn only_whole_blocks_of_a_punched_range_are_given_back() {
    let disk = store();
    let file = create_durable(&disk, "a", &[1; 20_000]);
    assert_eq!(disk.metadata(&path("a")).unwrap().allocated, 20_480);
    disk.punch_hole(&path("a"), 4095..12_287).unwrap();
    assert_eq!(disk.metadata(&path("a")).unwrap().allocated, 16_384);
    disk.punch_hole(&path("a"), 4096..12_288).unwrap();
    assert_eq!(disk.metadata(&path("a")).unwrap().allocated, 12_288);
    disk.punch_hole(&path("a"), 12_288..1 << 20).unwrap();
    assert_eq!(disk.metadata(&path("a")).unwrap().allocated, 4096);
    file.append(&[&[1; 400]]).unwrap();
    assert_eq!(disk.metadata(&path("a")).unwrap().allocated, 8192, "the last block is needed again");
}
