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
fn reserved_blocks_without_bytes_are_given_back_by_a_power_loss() {
    let disk = store();
    create_durable(&disk, "a", b"x").preallocate(1 << 20).unwrap();
    let left = disk.after_power_loss(Survivors::Everything);
    assert_eq!(left.metadata(&path("a")).unwrap().allocated, 4096);
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
