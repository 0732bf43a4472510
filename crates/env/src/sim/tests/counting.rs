//! Operations, reads, and their failures.

use super::*;

#[test]
fn every_change_is_an_operation_and_nothing_else_is() {
    let disk = SimDisk::new();
    disk.set_tracing(true);
    disk.create_dir_all(&path("sub")).unwrap();
    disk.create_dir_all(&path("sub")).unwrap();
    let file = disk.create(&path("a")).unwrap();
    file.append(&[b"abc", b"def"]).unwrap();
    file.sync().unwrap();
    file.truncate(4).unwrap();
    file.preallocate(10).unwrap();
    file.seal().unwrap();
    disk.reopen(&path("a"), 4).unwrap();
    disk.reopen(&path("a"), 3).unwrap();
    disk.rename(&path("a"), &path("b")).unwrap();
    disk.link(&path("b"), &path("c")).unwrap();
    disk.punch_hole(&path("b"), 0..4096).unwrap();
    disk.remove(&path("b")).unwrap();
    disk.remove_dir(&path("sub")).unwrap();
    disk.sync_dir(Path::new("/store")).unwrap();
    drop(disk.lock(&path("LOCK")).unwrap());
    drop(disk.lock(&path("LOCK")).unwrap());
    assert!(disk.create(&path("c")).is_err());
    let expected = [
        "0 create_dir /store",
        "1 create_dir /store/sub",
        "2 create /store/a",
        "3 append /store/a 6 bytes",
        "4 sync /store/a",
        "5 truncate /store/a to 4",
        "6 preallocate /store/a to 10",
        "7 seal /store/a",
        "8 truncate /store/a to 3",
        "9 rename /store/a to /store/b",
        "10 link /store/b as /store/c",
        "11 punch_hole /store/b 0..4096",
        "12 remove /store/b",
        "13 remove_dir /store/sub",
        "14 sync_dir /store",
        "15 create /store/LOCK",
        "16 create /store/c",
    ];
    assert_eq!(disk.trace(), expected);
    assert_eq!(disk.op_count(), 17);
    let reads = disk.read_count();
    disk.read(&path("c")).unwrap();
    disk.list(Path::new("/store")).unwrap();
    assert_eq!((disk.read_count() - reads, disk.op_count()), (4, 17), "open, len, read_at; list");
    assert_eq!((disk.after_process_death().op_count(), disk.after_process_death().trace().len()), (0, 0));
}

#[test]
fn a_dead_machine_does_nothing_more() {
    let disk = store();
    let file = create(&disk, "a", b"x");
    let reader = disk.open(&path("a")).unwrap();
    disk.die_after(disk.op_count() + 1);
    file.append(&[b"y"]).unwrap();
    assert!(disk.is_dead());
    let ops = disk.op_count();
    let errors = [
        file.append(&[b"z"]).unwrap_err(),
        file.sync().unwrap_err(),
        file.truncate(0).unwrap_err(),
        reader.len().unwrap_err(),
        reader.read_at(0, &mut [0]).unwrap_err(),
        reader.map().unwrap_err(),
        disk.create(&path("b")).unwrap_err(),
        disk.open(&path("a")).unwrap_err(),
        disk.list(Path::new("/store")).unwrap_err(),
        disk.metadata(&path("a")).unwrap_err(),
        disk.create_dir_all(Path::new("/store")).unwrap_err(),
        disk.remove(&path("a")).unwrap_err(),
        disk.sync_dir(Path::new("/store")).unwrap_err(),
        disk.space(Path::new("/store")).unwrap_err(),
        disk.lock(&path("LOCK")).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.io().raw_os_error() == Some(5)), "{errors:?}");
    assert_eq!(disk.op_count(), ops);
    assert_eq!(disk.file_bytes(&path("a")).unwrap(), b"xy");
    let next = disk.after_process_death();
    assert_eq!(next.read(&path("a")).unwrap(), b"xy");
}

#[test]
fn the_chosen_operation_fails_once_and_does_nothing() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    let fail_next = |fault| disk.fail_at(disk.op_count(), fault);
    fail_next(Fault::Eio);
    assert_eq!(file.append(&[b"y"]).unwrap_err().io().raw_os_error(), Some(5));
    fail_next(Fault::NoSpace);
    assert!(file.append(&[b"y"]).unwrap_err().is_exhausted());
    fail_next(Fault::NoSpace);
    assert!(disk.create(&path("b")).unwrap_err().is_exhausted());
    fail_next(Fault::Eio);
    assert!(disk.rename(&path("a"), &path("b")).is_err());
    fail_next(Fault::ShortWrite { kept_bytes: 3 });
    assert_eq!(disk.remove(&path("a")).unwrap_err().io().raw_os_error(), Some(5));
    disk.fail_at(disk.op_count() + 1, Fault::Eio);
    file.append(&[b"y"]).unwrap();
    assert!(file.truncate(0).is_err());
    assert_eq!(disk.file_bytes(&path("a")).unwrap(), b"xy");
    assert_eq!(names(&disk), ["a"]);
}

#[test]
fn a_short_write_leaves_what_it_was_told_to() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes: 4 });
    let error = file.append(&[b"abc", b"def"]).unwrap_err();
    assert!(error.is_exhausted());
    assert_eq!((error.offset(), file.len()), (Some(5), 5));
    assert_eq!(disk.file_bytes(&path("a")).unwrap(), b"xabcd");
    file.truncate(1).unwrap();
    disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes: 99 });
    assert!(file.append(&[b"abc"]).is_err());
    assert_eq!(disk.file_bytes(&path("a")).unwrap(), b"xabc");
}

#[test]
fn the_chosen_read_fails_once() {
    let disk = store();
    create(&disk, "a", b"x");
    let reader = disk.open(&path("a")).unwrap();
    disk.fail_read_at(disk.read_count() + 1, ReadFault::Eio);
    let mut byte = [0];
    assert!(reader.read_at(0, &mut byte).is_ok());
    assert_eq!(reader.read_at(0, &mut byte).unwrap_err().io().raw_os_error(), Some(5));
    assert!(reader.read_at(0, &mut byte).is_ok());
}

#[test]
fn an_operation_that_fails_afterwards_is_done() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    let fail_next = || disk.fail_at(disk.op_count(), Fault::EioAfter);
    let is_eio = |error: crate::Error| assert_eq!(error.io().raw_os_error(), Some(5), "{error}");
    fail_next();
    is_eio(file.append(&[b"yz"]).unwrap_err());
    assert_eq!(file_bytes(&disk, "a"), b"xyz");
    fail_next();
    is_eio(file.sync().unwrap_err());
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"xyz");
    fail_next();
    is_eio(disk.rename(&path("a"), &path("b")).unwrap_err());
    fail_next();
    is_eio(disk.create(&path("c")).unwrap_err());
    assert_eq!(names(&disk), ["b", "c"]);
    fail_next();
    is_eio(disk.sync_dir(Path::new("/store")).unwrap_err());
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), ["b", "c"]);
    fail_next();
    is_eio(disk.remove(&path("c")).unwrap_err());
    fail_next();
    is_eio(file.truncate(1).unwrap_err());
    // One that fails anyway says why, and the next is not touched.
    fail_next();
    assert_eq!(disk.remove(&path("c")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    file.append(&[b"!"]).unwrap();
    assert_eq!(file_bytes(&disk, "b"), b"x!");
}

#[test]
fn a_lasting_fault_lasts_until_it_is_healed_and_spares_reads() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    disk.fail_from(disk.op_count() + 1, Fault::NoSpace);
    file.append(&[b"y"]).unwrap();
    for _ in 0..3 {
        assert!(file.append(&[b"z"]).unwrap_err().is_exhausted());
        assert!(disk.create(&path("b")).unwrap_err().is_exhausted());
        assert_eq!(disk.read(&path("a")).unwrap(), b"xy");
    }
    disk.heal();
    file.append(&[b"z"]).unwrap();
    assert_eq!(file_bytes(&disk, "a"), b"xyz");
}

#[test]
fn the_chosen_read_returns_a_flipped_bit_once() {
    let disk = store();
    create(&disk, "a", b"xyz");
    let reader = disk.open(&path("a")).unwrap();
    let mut bytes = [0; 3];
    disk.fail_read_at(disk.read_count(), ReadFault::FlippedBit { bit: 24 + 9 });
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"x{z");
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"xyz");
    disk.fail_read_at(disk.read_count(), ReadFault::FlippedBit { bit: 0 });
    assert_eq!(reader.map().unwrap().unwrap().bytes(), b"yyz");
    // A read without bytes is as it was, and leaves the next alone.
    disk.fail_read_at(disk.read_count(), ReadFault::FlippedBit { bit: 0 });
    assert_eq!(reader.len().unwrap(), 3);
    reader.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"xyz");
}

#[test]
fn a_crash_forgets_the_schedule() {
    let disk = store();
    create_durable(&disk, "a", b"x");
    disk.fail_at(0, Fault::Eio);
    disk.fail_read_at(0, ReadFault::Eio);
    disk.die_after(0);
    for next in [disk.after_power_loss(Survivors::Everything), disk.after_process_death()] {
        assert_eq!(next.read(&path("a")).unwrap(), b"x");
        next.remove(&path("a")).unwrap();
    }
}
