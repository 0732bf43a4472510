use std::path::Path;
use std::sync::Arc;

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_env::{Access, Mapping, ReadFile};
use esker_format::compression::Compression;
use esker_format::rocksdb::blob::{BlobIndex, HEADER_BYTES};
use esker_format::rocksdb::internal_key::FileNumber;
use parking_lot::Mutex;

use super::{ActiveBlob, BlobFile, BlobWriter, Course};
use crate::{Error, ErrorKind, Result};

const PATH: &str = "/000007.blob";
const KINDS: [Compression; 4] = [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn written(disk: &SimDisk, kind: Compression, values: &[(Vec<u8>, Vec<u8>)]) -> Vec<BlobIndex> {
    let files = disk.env().files;
    let mut writer = BlobWriter::create(&*files, Path::new(PATH), FileNumber::new(7), 3, kind).unwrap();
    let indexes: Vec<_> = values.iter().map(|(key, value)| writer.add(key, value).unwrap()).collect();
    let bytes = writer.file_bytes();
    let addition = writer.finish().unwrap();
    assert_eq!(addition.total_count, values.len() as u64);
    assert_eq!(addition.total_bytes + 30, bytes);
    assert_eq!(disk.file_bytes(Path::new(PATH)).unwrap().len() as u64, bytes + 32);
    indexes
}

fn open(disk: &SimDisk) -> Result<Arc<BlobFile>> {
    BlobFile::open(disk.env().files.open(Path::new(PATH))?, FileNumber::new(7), 3)
}

fn values() -> Vec<(Vec<u8>, Vec<u8>)> {
    let sizes = [0usize, 1, 100, 5_000, 200_000, 128 << 10];
    let value = |size: usize| (0..size).map(|at| (at / 7) as u8).collect();
    sizes.iter().enumerate().map(|(n, &size)| (vec![n as u8; n * 3], value(size))).collect()
}

#[test]
fn values_of_all_sizes_read_back_with_each_compression() {
    for kind in KINDS {
        let disk = SimDisk::new();
        let values = values();
        let indexes = written(&disk, kind, &values);
        let file = open(&disk).unwrap();
        for ((key, value), index) in values.iter().zip(&indexes) {
            assert_eq!(file.read(key, index).unwrap(), value[..], "{kind:?}");
        }
        assert_eq!(file.check(false).unwrap().blobs, values.len() as u64);
    }
}

/// Goal: values that are taken in order are those that each would be by itself, whatever the order, with few reads where they follow each other;
/// and damage or a failed read of one is no matter of its neighbours (C2 of the course).
#[test]
fn values_taken_in_order_come_in_few_reads() {
    let disk = SimDisk::new();
    let value = |n: u32| vec![n as u8; if n.is_multiple_of(50) { 40_000 } else { 300 + n as usize % 700 }];
    let values: Vec<_> = (0..500).map(|n: u32| (n.to_be_bytes().to_vec(), value(n))).collect();
    let indexes = written(&disk, Compression::Lz4, &values);
    let taken = |order: &[usize], disk: &SimDisk| {
        let (file, mut course, mut record) = (open(disk).unwrap(), Course::default(), Vec::new());
        let before = disk.read_count();
        let mut stored = |&n: &usize| {
            let stored = course.read_stored(&file, &values[n].0, &indexes[n], &mut record)?;
            let mut alone = Vec::new();
            assert_eq!(stored, file.read_stored(&values[n].0, &indexes[n], &mut alone)?, "{n}");
            Ok(())
        };
        let results: Vec<Result<()>> = order.iter().map(&mut stored).collect();
        // Half of them the comparison's own.
        (results, disk.read_count() - before - order.len() as u64)
    };
    let ascending: Vec<usize> = (0..500).filter(|n| n % 3 > 0).collect();
    let (results, reads) = taken(&ascending, &disk);
    assert!(results.iter().all(Result::is_ok));
    assert!(reads < ascending.len() as u64 / 4, "{reads} reads of {}", ascending.len());
    let mixed: Vec<usize> = (0..500).map(|n| n * 211 % 500).collect();
    assert!(taken(&mixed, &disk).0.iter().all(Result::is_ok));
    disk.flip_bit(Path::new(PATH), indexes[100].offset * 8 + 3);
    let (results, _) = taken(&(0..500).collect::<Vec<_>>(), &disk);
    let bad: Vec<usize> = results.iter().enumerate().filter(|(_, result)| result.is_err()).map(|(n, _)| n).collect();
    assert_eq!(bad, [100]);
}

#[test]
fn a_pointer_that_is_off_is_an_error() {
    let disk = SimDisk::new();
    let values = values();
    let indexes = written(&disk, Compression::None, &values);
    let file = open(&disk).unwrap();
    let index = indexes[2];
    let key = &values[2].0;
    for wrong in [
        BlobIndex { offset: index.offset + 1, ..index },
        BlobIndex { offset: 5, ..index },
        BlobIndex { offset: u64::MAX, ..index },
        BlobIndex { bytes: index.bytes + 1, ..index },
        BlobIndex { bytes: u64::MAX, ..index },
        BlobIndex { file: FileNumber::new(8), ..index },
        BlobIndex { compression: Compression::Lz4, ..index },
    ] {
        let error = file.read(key, &wrong).unwrap_err();
        assert_eq!(error.path(), Some(Path::new(PATH)), "{error}");
    }
    assert!(file.read(b"other", &index).is_err());
    assert!(file.read(&[9; 6], &index).is_err(), "a key of the same length");
}

#[test]
fn every_flipped_bit_is_detected() {
    for kind in [Compression::None, Compression::Lz4] {
        let disk = SimDisk::new();
        let values = [(b"one".to_vec(), vec![1; 40]), (b"two".to_vec(), b"2".to_vec())];
        let indexes = written(&disk, kind, &values);
        let bits = disk.file_bytes(Path::new(PATH)).unwrap().len() as u64 * 8;
        for bit in 0..bits {
            disk.flip_bit(Path::new(PATH), bit);
            let mut noticed = false;
            match open(&disk) {
                Err(_) => noticed = true,
                Ok(file) => {
                    noticed |= file.check(false).is_err();
                    for ((key, value), index) in values.iter().zip(&indexes) {
                        match file.read(key, index) {
                            Ok(read) => assert_eq!(read, value[..], "bit {bit}"),
                            Err(_) => noticed = true,
                        }
                    }
                }
            }
            assert!(noticed, "{kind:?}: bit {bit} flipped, and nobody noticed");
            disk.flip_bit(Path::new(PATH), bit);
        }
    }
}

#[test]
fn a_file_without_its_end_is_refused() {
    let disk = SimDisk::new();
    written(&disk, Compression::None, &values());
    let bytes = disk.file_bytes(Path::new(PATH)).unwrap();
    for len in [0, 29, 61, bytes.len() - 1, bytes.len() / 2] {
        disk.overwrite(Path::new(PATH), bytes[..len].to_vec());
        assert!(open(&disk).is_err(), "{len} bytes");
    }
}

#[test]
fn records_of_every_length_pass_a_check_and_damage_to_any_fails_it() {
    let disk = SimDisk::new();
    // Headers and bodies across the chunks that a check reads, and a record longer than one.
    let value = |n: usize| vec![n as u8; [1_000, 32_700, 3, 600_000][n % 4]];
    let values: Vec<_> = (0..40).map(|n| (format!("key {n}").into_bytes(), value(n))).collect();
    let indexes = written(&disk, Compression::None, &values);
    let read = open(&disk).unwrap().check(false).unwrap();
    assert_eq!((read.blobs, read.bytes), (40, disk.file_bytes(Path::new(PATH)).unwrap().len() as u64));
    for index in &indexes {
        let bit = (index.offset + index.bytes - 1) * 8;
        disk.flip_bit(Path::new(PATH), bit);
        let error = open(&disk).unwrap().check(false).unwrap_err();
        assert!(error.offset().is_some_and(|offset| offset < index.offset), "{error}");
        disk.flip_bit(Path::new(PATH), bit);
    }
    open(&disk).unwrap().check(false).unwrap();
}

/// Goal: a hole costs a look at its record, and what was read behind it is not read again.
#[test]
fn a_check_of_a_file_with_holes_reads_each_part_once() {
    let disk = SimDisk::new();
    let values: Vec<_> = (0..50).map(|n: u8| (vec![n], vec![7; 2_000])).collect();
    let indexes = written(&disk, Compression::None, &values);
    let mut bytes = disk.file_bytes(Path::new(PATH)).unwrap();
    let punched: Vec<_> = indexes.iter().skip(1).step_by(2).collect();
    for index in &punched {
        let start = (index.offset as usize).next_multiple_of(512);
        bytes[start..start + 512].fill(0);
    }
    disk.overwrite(Path::new(PATH), bytes);
    let file = open(&disk).unwrap();
    let before = disk.read_count();
    let checked = file.check(true).unwrap();
    assert_eq!((checked.blobs, checked.passed_over.len()), (50, punched.len()));
    // All at once; of each record with a hole, its header and the sector that is one.
    assert!(disk.read_count() - before <= 1 + 2 * punched.len() as u64, "{} reads", disk.read_count() - before);
}

#[test]
fn a_count_that_is_off_fails_a_check() {
    let disk = SimDisk::new();
    written(&disk, Compression::None, &values());
    let mut bytes = disk.file_bytes(Path::new(PATH)).unwrap();
    let footer = bytes.len() - 32;
    bytes.truncate(footer);
    bytes.extend_from_slice(&esker_format::rocksdb::blob::BlobFooter { blob_count: 5 }.encode());
    disk.overwrite(Path::new(PATH), bytes);
    let error = open(&disk).unwrap().check(false).unwrap_err();
    assert_eq!(error.offset(), Some(footer as u64), "{error}");
}

#[test]
fn a_value_moves_to_another_file_as_it_is_stored() {
    let disk = SimDisk::new();
    let raw = vec![b'v'; 10_000];
    let mut stored = Vec::new();
    esker_format::compression::compress(Compression::Zstd, &raw, &mut stored).unwrap();
    let files = disk.env().files;
    let mut writer = BlobWriter::create(&*files, Path::new(PATH), FileNumber::new(7), 3, Compression::Zstd).unwrap();
    let index = writer.add_stored(b"key", &stored).unwrap();
    writer.finish().unwrap();
    assert_eq!(open(&disk).unwrap().read(b"key", &index).unwrap(), raw);
}

#[test]
fn a_writer_that_failed_once_stays_failed() {
    let large = vec![1; 1 << 20];
    for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite { kept_bytes: 100 }] {
        let disk = SimDisk::new();
        let files = disk.env().files;
        let mut writer =
            BlobWriter::create(&*files, Path::new(PATH), FileNumber::new(7), 3, Compression::None).unwrap();
        writer.add(b"a", b"small").unwrap();
        disk.fail_at(disk.op_count(), fault);
        assert!(writer.add(b"b", &large).is_err());
        assert!(writer.add(b"c", &large).is_err());
        assert!(writer.finish().is_err());
        assert!(open(&disk).is_err());
    }
}

#[test]
fn a_file_is_whole_after_power_loss_once_it_is_finished() {
    let disk = SimDisk::new();
    let indexes = written(&disk, Compression::Lz4, &values());
    disk.env().files.sync_dir(Path::new("/")).unwrap();
    let disk = disk.after_power_loss(esker_env::sim::Survivors::Nothing);
    let file = open(&disk).unwrap();
    for ((key, value), index) in values().iter().zip(&indexes) {
        assert_eq!(file.read(key, index).unwrap(), value[..]);
    }
}

#[test]
fn many_threads_read_one_file() {
    let disk = SimDisk::new();
    let values = values();
    let indexes = written(&disk, Compression::Lz4, &values);
    let file = open(&disk).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for ((key, value), index) in values.iter().zip(&indexes).cycle().take(60) {
                    assert_eq!(file.read(key, index).unwrap(), value[..]);
                }
            });
        }
    });
}

#[test]
fn a_mapped_file_lends_its_values_and_outlives_its_handle() {
    for kind in [Compression::None, Compression::Lz4] {
        let (disk, values) = (SimDisk::new(), values());
        let indexes = written(&disk, kind, &values);
        let file = esker_env::open_sealed(&*disk.env().files, Path::new(PATH), true).unwrap();
        let blobs = BlobFile::open(file, FileNumber::new(7), 3).unwrap();
        let read: Vec<_> =
            values.iter().zip(&indexes).map(|((key, _), index)| blobs.read(key, index).unwrap()).collect();
        drop(blobs);
        for ((_, value), read) in values.iter().zip(read) {
            assert_eq!(read, value[..]);
            assert_eq!(read.clone().within(3..40), value[3.min(value.len())..40.min(value.len())]);
            assert_eq!(&read.into_vec(), value);
        }
    }
}

/// Goal: a sync counts for the bytes that it found, never for those that came in the place of what was taken back.
#[test]
fn a_sync_of_what_was_taken_back_counts_for_nothing() {
    let disk = SimDisk::new();
    let env = disk.env();
    let path = Path::new("/000007.blob");
    let number = FileNumber::new(7);
    let mut blob = ActiveBlob::create(&*env.files, path, number, 0, Compression::None).unwrap();
    env.files.sync_dir(Path::new("/")).unwrap();
    blob.append(&[b"kept"], 1, 4).unwrap();
    let before = blob.held();
    blob.append(&[b"taken back"], 1, 10).unwrap();
    let under_way = blob.due_sync(1).unwrap();
    assert!(blob.due_sync(1).is_none(), "nothing came since");
    blob.take_back(before, &Error::invalid_argument("the log is full")).unwrap();
    under_way.run().unwrap();
    blob.append(&[b"others, 10"], 1, 10).unwrap();
    blob.sync().unwrap();
    let syncs = disk.op_count();
    blob.sync().unwrap();
    assert_eq!(disk.op_count(), syncs, "nothing is left to sync");
    let survivor = disk.after_power_loss(Survivors::Nothing);
    let bytes = survivor.file_bytes(path).unwrap();
    assert!(bytes[HEADER_BYTES..].starts_with(b"keptothers, 10"), "{:?}", &bytes[HEADER_BYTES..]);
}

/// Goal: a sync takes along what came since it was asked for, which is not to come back once it was taken back (A7).
#[test]
fn what_a_sync_took_along_is_durably_gone_once_it_was_taken_back() {
    let disk = SimDisk::new();
    let env = disk.env();
    let path = Path::new("/000007.blob");
    let mut blob = ActiveBlob::create(&*env.files, path, FileNumber::new(7), 0, Compression::None).unwrap();
    env.files.sync_dir(Path::new("/")).unwrap();
    blob.append(&[b"kept"], 1, 4).unwrap();
    let (before, under_way) = (blob.held(), blob.pending_sync());
    blob.append(&[b"taken back"], 1, 10).unwrap();
    under_way.run().unwrap();
    blob.take_back(before, &Error::invalid_argument("the log is full")).unwrap();
    blob.append(&[b"others, 10"], 1, 10).unwrap();
    let bytes = disk.after_power_loss(Survivors::Nothing).file_bytes(path).unwrap();
    assert_eq!(&bytes[HEADER_BYTES..], b"kept");
    // What no sync reached costs none.
    let syncs = disk.op_count();
    blob.take_back(before, &Error::invalid_argument("the log is full")).unwrap();
    assert_eq!(disk.op_count(), syncs + 1, "the cut alone");
}

#[test]
fn a_sync_that_fails_leaves_unknown_what_is_durable() {
    let disk = SimDisk::new();
    let env = disk.env();
    let path = Path::new("/000007.blob");
    let mut blob = ActiveBlob::create(&*env.files, path, FileNumber::new(7), 0, Compression::None).unwrap();
    blob.append(&[b"value"], 1, 5).unwrap();
    let sync = blob.due_sync(5).unwrap();
    disk.fail_at(disk.op_count(), Fault::Eio);
    assert_eq!(sync.run().unwrap_err().kind(), ErrorKind::ReadOnly);
    // The system says that all is well from now on. It is not: neither the leader nor the end of the file may believe it.
    let later = disk.op_count();
    assert_eq!(blob.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(sync.run().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(disk.op_count(), later, "a sync that failed is not repeated");
    assert_eq!(blob.end().unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// A file that remembers how it was said to be read.
#[derive(Debug)]
struct Advised {
    file: Arc<dyn ReadFile>,
    advice: Mutex<Vec<Access>>,
}

impl ReadFile for Advised {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> esker_env::Result<u64> {
        self.file.len()
    }
    fn identity(&self) -> esker_env::Result<(u64, u64)> {
        self.file.identity()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> esker_env::Result<usize> {
        self.file.read_at(offset, buffer)
    }
    fn map(&self) -> esker_env::Result<Option<Arc<dyn Mapping>>> {
        Ok(None)
    }
    fn advise(&self, access: Access) {
        self.advice.lock().push(access);
    }
}

#[test]
fn files_are_read_here_and_there_while_they_grow_too() {
    let disk = SimDisk::new();
    written(&disk, Compression::None, &values());
    let (path, number) = (Path::new(PATH), FileNumber::new(7));
    let advised = || Arc::new(Advised { file: disk.env().files.open(path).unwrap(), advice: Mutex::default() });
    let (growing, sealed) = (advised(), advised());
    BlobFile::growing(growing.clone(), path, number, Compression::None, HEADER_BYTES as u64);
    BlobFile::open(sealed.clone(), number, 3).unwrap();
    for file in [growing, sealed] {
        assert_eq!(*file.advice.lock(), [Access::Random]);
    }
}
