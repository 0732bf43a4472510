use std::path::Path;

use esker_env::FileSystem;
use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_format::rocksdb::log::{HEADER_BYTES, Reader};

use super::*;

const PATH: &str = "/000001.log";

fn writer(disk: &SimDisk) -> LogWriter {
    let writer = LogWriter::new(disk.create(Path::new(PATH)).unwrap());
    disk.sync_dir(Path::new("/")).unwrap();
    writer
}

fn records(disk: &SimDisk) -> Vec<(u64, Vec<u8>)> {
    let bytes = disk.file_bytes(Path::new(PATH)).unwrap();
    let mut reader = Reader::new(&bytes, None);
    let mut records = Vec::new();
    while let Some(record) = reader.next() {
        let (offset, record) = record.unwrap();
        records.push((offset, record.to_vec()));
    }
    records
}

#[test]
fn records_are_read_back_from_where_append_said_they_begin() {
    let disk = SimDisk::new();
    let mut writer = writer(&disk);
    let mut expected = Vec::new();
    // Steps by which every way to end a block is met: some bytes left, just a header, too little for one.
    for index in 0..3000usize {
        let record = vec![index as u8; index % 1013];
        let (head, tail) = record.split_at(record.len() / 3);
        expected.push((writer.append(&[head, &[], tail]).unwrap(), record));
    }
    let large = vec![9; 3 * BLOCK_BYTES];
    expected.push((writer.append(&[&large]).unwrap(), large));
    assert_eq!(records(&disk), expected);
    assert_eq!(writer.len(), disk.file_bytes(Path::new(PATH)).unwrap().len() as u64);
}

#[test]
fn no_append_begins_with_padding_and_records_in_place_are_those_that_are_copied() {
    let (copied, in_place) = (SimDisk::new(), SimDisk::new());
    let (mut copying, mut placing) = (writer(&copied), writer(&in_place));
    in_place.set_tracing(true);
    for index in 0..400usize {
        let record = vec![index as u8 | 1; index * 7919 % 70_000];
        copying.append(&[&record]).unwrap();
        placing.append_all([&record[..]]).unwrap();
        assert_eq!(copying.len(), placing.len());
        let left = BLOCK_BYTES - placing.len() as usize % BLOCK_BYTES;
        assert!(left >= HEADER_BYTES, "{left} bytes are left of the block");
        // Whatever comes, the end of a block is met with every number of bytes left.
        let filler = vec![3; (left + BLOCK_BYTES - 2 * HEADER_BYTES - index % 9) % BLOCK_BYTES];
        copying.append(&[&filler]).unwrap();
        placing.append_all([&filler[..]]).unwrap();
    }
    assert!(copied.file_bytes(Path::new(PATH)) == in_place.file_bytes(Path::new(PATH)));
    assert_eq!(in_place.trace().len(), 800, "one append each");
    assert_eq!(records(&in_place).len(), 800);
}

#[test]
fn a_group_is_one_append() {
    let disk = SimDisk::new();
    let mut writer = writer(&disk);
    let before = disk.op_count();
    writer.append_all([&b"a"[..], b"bc", b""]).unwrap();
    assert_eq!(disk.op_count(), before + 1);
    writer.append_all([]).unwrap();
    assert_eq!(disk.op_count(), before + 1);
    let offset = writer.stage(&[b"staged"]);
    assert_eq!(writer.append(&[b"last"]).unwrap(), offset + 7 + 6);
    assert_eq!(disk.op_count(), before + 2);
    let payloads: Vec<_> = records(&disk).into_iter().map(|(_, record)| record).collect();
    assert_eq!(payloads, [&b"a"[..], b"bc", b"", b"staged", b"last"]);
}

#[test]
fn a_failed_append_leaves_nothing_and_the_next_one_follows() {
    for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite { kept_bytes: 40_000 }] {
        let disk = SimDisk::new();
        let mut writer = writer(&disk);
        writer.append(&[b"before"]).unwrap();
        let len = writer.len();
        disk.fail_at(disk.op_count(), fault);
        writer.stage(&[b"staged"]);
        let error = writer.append(&[&vec![7; 100_000]]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted), "{error}");
        assert_eq!(writer.len(), len);
        assert_eq!(disk.file_bytes(Path::new(PATH)).unwrap().len() as u64, len);
        writer.append(&[b"after"]).unwrap();
        writer.sync().unwrap();
        let disk = disk.after_power_loss(Survivors::Nothing);
        let payloads: Vec<_> = records(&disk).into_iter().map(|(_, record)| record).collect();
        assert_eq!(payloads, [b"before".to_vec(), b"after".to_vec()]);
    }
}

#[test]
fn a_full_disk_is_exhausted() {
    let disk = SimDisk::new();
    let mut writer = writer(&disk);
    disk.set_capacity(Some(8192));
    let error = writer.append(&[&vec![7; 100_000]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    writer.append(&[b"small"]).unwrap();
    assert_eq!(records(&disk), [(0, b"small".to_vec())]);
}

#[test]
fn what_cannot_be_cut_off_breaks_the_writer() {
    let disk = SimDisk::new();
    let mut writer = writer(&disk);
    writer.append(&[b"before"]).unwrap();
    disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes: 3 });
    disk.fail_at(disk.op_count() + 1, Fault::Eio);
    assert_eq!(writer.append(&[b"lost"]).unwrap_err().kind(), ErrorKind::ReadOnly);
    let before = disk.op_count();
    assert_eq!(writer.append(&[b"later"]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(writer.append_all([]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(disk.op_count(), before, "a broken writer leaves the file alone");
}

#[test]
fn a_failed_sync_breaks_the_writer() {
    let disk = SimDisk::new();
    let mut writer = writer(&disk);
    writer.append(&[b"before"]).unwrap();
    disk.fail_at(disk.op_count(), Fault::Eio);
    let error = writer.sync().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.path().is_some());
    let before = disk.op_count();
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(writer.append(&[b"later"]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(disk.op_count(), before, "a failed sync is never retried");
}
