//! Version edits: the records of a manifest. Each says what changed in one column family.
//!
//! An edit is fields until it ends, each a tag (varint32) and what the table says. Numbers are varints; "bytes" have their
//! length before them; keys are internal keys.
//!
//! |  tag | field                  | then                                                                               |
//! |-----:|------------------------|------------------------------------------------------------------------------------|
//! |    1 | comparator             | bytes: name                                                                        |
//! |    2 | log number             | number: logs before it are of no use to the column family                          |
//! |    3 | next file number       | number                                                                             |
//! |    4 | last sequence          | number                                                                             |
//! |    5 | compact cursor         | level, key                                                                         |
//! |    6 | deleted file           | level, number                                                                      |
//! |    7 | new file, 1st form     | level, number, size, smallest key, largest key                                     |
//! |    9 | previous log number    | number                                                                             |
//! |   10 | min log number to keep | number: logs before it are of no use to anyone                                     |
//! |  100 | new file, 2nd form     | as 1st, smallest sequence, largest sequence                                        |
//! |  102 | new file, 3rd form     | as 2nd, with a path id after the number                                            |
//! |  103 | new file, 4th form     | as 2nd, then custom fields                                                         |
//! |  200 | column family          | id; without it the edit is about 0                                                 |
//! |  201 | column family added    | bytes: name                                                                        |
//! |  202 | column family dropped  |                                                                                    |
//! |  203 | max column family      | id                                                                                 |
//! |  300 | in atomic group        | how many edits of the group follow                                                 |
//! |  400 | blob file added        | number, count, size, bytes: checksum method, bytes: checksum, custom fields        |
//! |  401 | blob file garbage      | number, count, size, custom fields                                                 |
//! | 8193 | database id            | bytes                                                                              |
//! | 8194, 8195 | 400, 401         | written by RocksDB 6.12 to 6.15                                                    |
//! | 8196, 8197 | log added, log deleted | as the next, without a length before                                         |
//! | 8198 | full history timestamp low | bytes                                                                          |
//! | 8199 | log added              | bytes: number, then 2 and the synced size if known, then 1                         |
//! | 8200 | log deleted            | bytes: number                                                                      |
//! | 8201 | timestamps persisted   | bytes: one, 0 or 1                                                                 |
//! | 1694507009 | log durable      | bytes: number, how much of it is durable. Esker's own                              |
//!
//! Other tags with bit 13 are followed by bytes and ignored; any other tag is unsupported. The last of the table is such a one to
//! RocksDB. Its own 8199 says the same, but a RocksDB that does not keep account of logs (its default) aborts where it finds one and is open
//! for reading only: up to 11.1 at least, `DBImpl::Recover` would then append a deletion of that record.
//!
//! A custom field of a table is a tag and bytes; tag 1 alone ends them. Unknown ones are ignored unless bit 6 is set.
//!
//! | tag | custom field of a table            | bytes                       | written when                |
//! |----:|------------------------------------|-----------------------------|-----------------------------|
//! |   2 | marked for compaction              | 1                           | it is                       |
//! |   3 | min log number to keep, of the edit | u64 LE                     | never, see tag 10           |
//! |   4 | oldest blob file                   | number                      | there is one                |
//! |   5 | oldest ancestor time               | number                      | always                      |
//! |   6 | file creation time                 | number                      | always                      |
//! |   7 | checksum of the file               | checksum                    | its function is known       |
//! |   8 | name of its function               | name                        | it is known                 |
//! |   9 | temperature                        | one byte                    | not 0                       |
//! | 10, 11 | lowest, highest timestamp       | timestamp                   | not empty                   |
//! |  12 | unique id                          | two u64 LE                  | there is one                |
//! |  13 | epoch number                       | number                      | not 0                       |
//! |  14 | compensated range deletions, bytes | number                      | not 0                       |
//! |  15 | bytes after the last data block    | number                      | not 0                       |
//! |  16 | timestamps persisted               | one byte, 0 or 1            | they are not                |
//! |  65 | path id                            | one byte                    | not 0                       |
//!
//! A custom field of a blob file is the same, but tag 0 ends them, and none is known.
//!
//! What is written, RocksDB 6.18 and every later release reads; fields newer than the reader are ignored by it.
//!
//! Source: RocksDB `db/version_edit.h`, `db/version_edit.cc`, `db/blob/blob_file_addition.cc`,
//! `db/blob/blob_file_garbage.cc`, `db/wal_edit.cc`.

use crate::rocksdb::internal_key::{FileNumber, SequenceNumber};

mod decode;
mod encode;

/// What changed. Empty by default: nothing did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionEdit {
    /// The id of the store.
    pub db_id: Option<String>,
    /// The name of the column family's order.
    pub comparator: Option<String>,
    /// Logs before this one are of no use to the column family.
    pub log_number: Option<FileNumber>,
    /// Of LevelDB; always 0 today.
    pub prev_log_number: Option<FileNumber>,
    /// No file has this number or a higher one.
    pub next_file_number: Option<u64>,
    /// Nothing in tables has a higher one.
    pub last_sequence: Option<SequenceNumber>,
    /// No column family ever had a higher id.
    pub max_column_family: Option<u32>,
    /// Logs before this one are of no use to any column family.
    pub min_log_number_to_keep: Option<FileNumber>,
    /// Where round-robin compaction goes on: level and internal key.
    pub compact_cursors: Vec<(u32, Vec<u8>)>,
    /// Tables that go, with their level.
    pub deleted_files: Vec<(u32, FileNumber)>,
    /// Tables that come, with their level.
    pub new_files: Vec<(u32, TableMeta)>,
    /// The column family that all of it is about.
    pub column_family: u32,
    /// It comes, under this name.
    pub column_family_add: Option<String>,
    /// It goes.
    pub column_family_drop: bool,
    /// The edit counts only together with that many after it (and those before it that said so).
    pub atomic_group_remaining: Option<u32>,
    /// Blob files that come.
    pub blob_additions: Vec<BlobFileAddition>,
    /// Garbage in blob files, on top of what there was.
    pub blob_garbage: Vec<BlobFileGarbage>,
    /// Logs that come or were synced.
    pub wal_additions: Vec<WalAddition>,
    /// Logs before this one were deleted.
    pub wal_deletion: Option<FileNumber>,
    /// Logs of a store that was closed.
    pub durable_logs: Vec<DurableLog>,
    /// History before this timestamp is gone.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// Whether user-defined timestamps reach tables. Only beside `comparator`.
    pub timestamps_persisted: Option<bool>,
}

/// A table, as the manifest knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableMeta {
    /// Its number.
    pub number: FileNumber,
    /// In which of the store's directories it is, at most 3.
    pub path_id: u32,
    /// Its length.
    pub file_bytes: u64,
    /// The lowest internal key.
    pub smallest: Vec<u8>,
    /// The highest internal key.
    pub largest: Vec<u8>,
    /// The lowest sequence number.
    pub smallest_sequence: SequenceNumber,
    /// The highest sequence number.
    pub largest_sequence: SequenceNumber,
    /// Somebody asked for its compaction.
    pub marked_for_compaction: bool,
    /// The lowest number of a blob file that it points into.
    pub oldest_blob_file: Option<FileNumber>,
    /// When the oldest thing in it was written, in Unix seconds; 0 if unknown.
    pub oldest_ancestor_time: u64,
    /// When it was made, in Unix seconds; 0 if unknown.
    pub file_creation_time: u64,
    /// In level 0 the higher is the newer; 0 if unknown.
    pub epoch_number: u64,
    /// The checksum of the file, by the function below.
    pub file_checksum: Vec<u8>,
    /// The name of that function; empty if there is no checksum.
    pub file_checksum_func_name: String,
    /// RocksDB's id of it, in its internal form.
    pub unique_id: Option<(u64, u64)>,
    /// How often it is wanted, in RocksDB's scale; 0 if unknown.
    pub temperature: u8,
    /// Index, filter and everything else after the last data block; 0 if unknown.
    pub tail_bytes: u64,
    /// How much the range deletions in it hide in the next level.
    pub compensated_range_deletion_bytes: u64,
    /// Keys had timestamps, which the table lacks.
    pub timestamps_stripped: bool,
    /// The lowest user-defined timestamp; empty if there is none.
    pub min_timestamp: Vec<u8>,
    /// The highest user-defined timestamp; empty if there is none.
    pub max_timestamp: Vec<u8>,
}

/// A blob file that comes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobFileAddition {
    /// Its number.
    pub number: FileNumber,
    /// How many blobs it has.
    pub total_count: u64,
    /// Their bytes, with their headers and keys.
    pub total_bytes: u64,
    /// The name of the function below; may be empty.
    pub checksum_method: String,
    /// The checksum of the file.
    pub checksum_value: Vec<u8>,
}

/// Blobs that nothing points to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobFileGarbage {
    /// The file that they are in.
    pub number: FileNumber,
    /// How many.
    pub count: u64,
    /// Their bytes, with their headers and keys.
    pub bytes: u64,
}

/// A log that RocksDB keeps account of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalAddition {
    /// Its number.
    pub number: FileNumber,
    /// How much of it was synced, if the edit says so.
    pub synced_bytes: Option<u64>,
}

/// A log that Esker closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurableLog {
    /// Its number.
    pub number: FileNumber,
    /// Where its last record ends: all before that is durable.
    pub bytes: u64,
}

/// The tags of the first table above.
mod tag {
    pub(super) const COMPARATOR: u32 = 1;
    pub(super) const LOG_NUMBER: u32 = 2;
    pub(super) const NEXT_FILE_NUMBER: u32 = 3;
    pub(super) const LAST_SEQUENCE: u32 = 4;
    pub(super) const COMPACT_CURSOR: u32 = 5;
    pub(super) const DELETED_FILE: u32 = 6;
    pub(super) const NEW_FILE: u32 = 7;
    pub(super) const PREV_LOG_NUMBER: u32 = 9;
    pub(super) const MIN_LOG_NUMBER_TO_KEEP: u32 = 10;
    pub(super) const NEW_FILE_2: u32 = 100;
    pub(super) const NEW_FILE_3: u32 = 102;
    pub(super) const NEW_FILE_4: u32 = 103;
    pub(super) const COLUMN_FAMILY: u32 = 200;
    pub(super) const COLUMN_FAMILY_ADD: u32 = 201;
    pub(super) const COLUMN_FAMILY_DROP: u32 = 202;
    pub(super) const MAX_COLUMN_FAMILY: u32 = 203;
    pub(super) const IN_ATOMIC_GROUP: u32 = 300;
    pub(super) const BLOB_FILE_ADDITION: u32 = 400;
    pub(super) const BLOB_FILE_GARBAGE: u32 = 401;
    pub(super) const IGNORABLE: u32 = 1 << 13;
    pub(super) const DB_ID: u32 = IGNORABLE + 1;
    pub(super) const BLOB_FILE_ADDITION_OLD: u32 = IGNORABLE + 2;
    pub(super) const BLOB_FILE_GARBAGE_OLD: u32 = IGNORABLE + 3;
    pub(super) const WAL_ADDITION_OLD: u32 = IGNORABLE + 4;
    pub(super) const WAL_DELETION_OLD: u32 = IGNORABLE + 5;
    pub(super) const FULL_HISTORY_TS_LOW: u32 = IGNORABLE + 6;
    pub(super) const WAL_ADDITION: u32 = IGNORABLE + 7;
    pub(super) const WAL_DELETION: u32 = IGNORABLE + 8;
    pub(super) const TIMESTAMPS_PERSISTED: u32 = IGNORABLE + 9;
    /// An `e` above all that RocksDB counts up to.
    pub(super) const DURABLE_LOG: u32 = 0x6500_0000 + IGNORABLE + 1;
}

/// The tags of the second table above.
mod custom_tag {
    pub(super) const END: u32 = 1;
    pub(super) const MARKED_FOR_COMPACTION: u32 = 2;
    pub(super) const MIN_LOG_NUMBER_TO_KEEP: u32 = 3;
    pub(super) const OLDEST_BLOB_FILE: u32 = 4;
    pub(super) const OLDEST_ANCESTOR_TIME: u32 = 5;
    pub(super) const FILE_CREATION_TIME: u32 = 6;
    pub(super) const FILE_CHECKSUM: u32 = 7;
    pub(super) const FILE_CHECKSUM_FUNC_NAME: u32 = 8;
    pub(super) const TEMPERATURE: u32 = 9;
    pub(super) const MIN_TIMESTAMP: u32 = 10;
    pub(super) const MAX_TIMESTAMP: u32 = 11;
    pub(super) const UNIQUE_ID: u32 = 12;
    pub(super) const EPOCH_NUMBER: u32 = 13;
    pub(super) const COMPENSATED_RANGE_DELETION_BYTES: u32 = 14;
    pub(super) const TAIL_BYTES: u32 = 15;
    pub(super) const TIMESTAMPS_PERSISTED: u32 = 16;
    pub(super) const UNIGNORABLE: u32 = 1 << 6;
    pub(super) const PATH_ID: u32 = UNIGNORABLE + 1;
}

/// The tags in a [`WalAddition`].
mod wal_tag {
    pub(super) const END: u32 = 1;
    pub(super) const SYNCED_BYTES: u32 = 2;
}

/// What RocksDB writes for the name of no function.
const UNKNOWN_CHECKSUM_FUNC_NAME: &str = "Unknown";
/// A store has at most four directories: two bits beside a file number.
const PATH_ID_MAX: u32 = 3;

#[cfg(test)]
mod tests;
