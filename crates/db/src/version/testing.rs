//! Versions of tables as others write them, for tests.

use esker_format::rocksdb::order::Order;
use std::path::Path;
use std::sync::Arc;

use esker_env::sim::SimDisk;
use esker_format::checksum::{ChecksumKind, block_checksum};
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::blob_refs::{self, BlobRefs};
use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::version_edit::TableMeta;

use super::{Edit, TableFile};
use crate::Db;
use crate::options::FamilyOptions;
use crate::range_deletions::{Fragments, RangeDeletion};
use crate::store::Store;
use crate::table::{Table, TableIdentity, TableOptions, TableWriter};

/// User key, sequence number, and a value, or none of a deletion.
pub(crate) type Entry<'a> = (&'a str, u64, Option<&'a str>);

/// A table of these entries, in the order of internal keys.
pub(crate) fn table(store: &Store, epoch_number: u64, entries: &[Entry<'_>]) -> Arc<TableFile> {
    pointing_table(store, epoch_number, entries, &BlobRefs::new())
}

/// The same with a range deletion from one key on and before another.
pub(crate) fn ranged_table(
    store: &Store,
    epoch_number: u64,
    entries: &[Entry<'_>],
    (begin, end, sequence): (&str, &str, u64),
) -> Arc<TableFile> {
    let (begin, end) = (begin.as_bytes().into(), end.as_bytes().into());
    let range = RangeDeletion { begin, end, sequence: SequenceNumber::new(sequence) };
    write_with(
        store,
        epoch_number,
        with_kinds(entries),
        &BlobRefs::new(),
        None,
        &Fragments::of(Order::BYTEWISE, [&range]),
    )
}

/// The same with entries of any kind: user key, sequence number, kind and value.
pub(crate) fn table_of_kinds(
    store: &Store,
    epoch_number: u64,
    entries: &[(&str, u64, ValueKind, &[u8])],
) -> Arc<TableFile> {
    let entries =
        entries.iter().map(|(user_key, sequence, kind, value)| (internal(user_key, *sequence, *kind), value.to_vec()));
    write(store, epoch_number, entries, &BlobRefs::new(), None)
}

/// Has an entry of the first block of a table be of the kind that `byte` is; returns where the next block begins.
pub(crate) fn change_kind(
    disk: &SimDisk,
    path: &Path,
    (user_key, sequence, kind): (&str, u64, ValueKind),
    byte: u8,
) -> usize {
    let mut file = disk.file_bytes(path).unwrap();
    let sum = |file: &[u8], end: usize| block_checksum(ChecksumKind::Xxh3, &file[..end], file[end]).to_le_bytes();
    let end = (0..file.len() - 5).find(|&end| file[end + 1..end + 5] == sum(&file, end)).unwrap();
    let key = internal(user_key, sequence, kind);
    let at = file[..end].windows(key.len()).position(|window| window == key).unwrap();
    file[at + user_key.len()] = byte;
    let checksum = sum(&file, end);
    file[end + 1..end + 5].copy_from_slice(&checksum);
    disk.overwrite(path, file);
    end + 5
}

/// The same of one that says that it points into blob files.
pub(crate) fn pointing_table(
    store: &Store,
    epoch_number: u64,
    entries: &[Entry<'_>],
    refs: &BlobRefs,
) -> Arc<TableFile> {
    write(store, epoch_number, with_kinds(entries), refs, refs.keys().next().copied())
}

fn with_kinds(entries: &[Entry<'_>]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    entries.iter().map(|(user_key, sequence, value)| {
        let kind = if value.is_some() { ValueKind::Value } else { ValueKind::Deletion };
        (internal(user_key, *sequence, kind), value.unwrap_or_default().as_bytes().to_vec())
    })
}

/// The same of pointers into blob files, of which the table itself says nothing.
pub(crate) fn table_of_pointers(
    store: &Store,
    epoch_number: u64,
    entries: &[(&str, u64, BlobIndex)],
) -> Arc<TableFile> {
    let oldest = entries.iter().map(|(.., index)| index.file).min();
    let entries = entries.iter().map(|(user_key, sequence, index)| {
        let mut value = Vec::new();
        index.encode(&mut value);
        (internal(user_key, *sequence, ValueKind::BlobIndex), value)
    });
    write(store, epoch_number, entries, &BlobRefs::new(), oldest)
}

pub(crate) fn internal(user_key: &str, sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut key = Vec::new();
    internal_key::append(&mut key, user_key.as_bytes(), SequenceNumber::new(sequence), kind);
    key
}

pub(crate) fn write(
    store: &Store,
    epoch_number: u64,
    entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    refs: &BlobRefs,
    oldest_blob_file: Option<FileNumber>,
) -> Arc<TableFile> {
    write_with(store, epoch_number, entries, refs, oldest_blob_file, &Fragments::default())
}

fn write_with(
    store: &Store,
    epoch_number: u64,
    entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    refs: &BlobRefs,
    oldest_blob_file: Option<FileNumber>,
    ranges: &Fragments,
) -> Arc<TableFile> {
    let number = store.new_file_number();
    let path = store.path_of(&FileName::Table(number));
    let identity = TableIdentity {
        column_family_id: 0,
        column_family_name: "default".to_owned(),
        creation_time: 0,
        oldest_key_time: 0,
        db_id: String::new(),
        session_id: String::new(),
    };
    let options = TableOptions::of(&FamilyOptions::default());
    let mut writer = TableWriter::create(&*store.env.files, &path, number, &options, &identity).unwrap();
    entries.for_each(|(key, value)| writer.add(&key, &value).unwrap());
    writer.add_range_deletions(ranges).unwrap();
    if !refs.is_empty() {
        writer.set_user_property(blob_refs::PROPERTY, blob_refs::encode(refs));
    }
    let summary = writer.finish().unwrap();
    let meta = TableMeta {
        number,
        oldest_blob_file,
        file_bytes: summary.file_bytes,
        smallest: summary.smallest,
        largest: summary.largest,
        smallest_sequence: summary.smallest_sequence,
        largest_sequence: summary.largest_sequence,
        tail_bytes: summary.tail_bytes,
        epoch_number,
        ..TableMeta::default()
    };
    let file = store.open_sealed(&path).unwrap();
    let table = Table::open(file, summary.file_bytes, &Order::BYTEWISE.into(), store.cache.clone()).unwrap();
    TableFile::new(meta, table, path, store.trash.clone())
}

/// Puts tables into a store, with entries up to `last`.
pub(crate) fn install(db: &Db, added: Vec<(usize, Arc<TableFile>)>, last: u64) {
    let store = db.store();
    store.publish(SequenceNumber::new(last));
    let family = store.family(0).unwrap();
    store.install(&family, Edit { added, ..Edit::default() }, &[]).map_err(|failed| failed.error).unwrap();
}
