//! From bytes to edits.

use super::{
    BlobFileAddition, BlobFileGarbage, DurableLog, PATH_ID_MAX, TableMeta, UNKNOWN_CHECKSUM_FUNC_NAME, VersionEdit,
    WalAddition, custom_tag, tag, wal_tag,
};
use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::rocksdb::internal_key::{FileNumber, InternalKey, SEEK_KIND_TAG, SequenceNumber, TAG_BYTES};

impl VersionEdit {
    /// Reads an edit, whoever wrote it.
    ///
    /// Allocates no more than the edit's own bytes.
    ///
    /// # Errors
    /// Corrupt if a field does not decode; unsupported if it is not known and may not be ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let mut edit = Self::default();
        while !cursor.is_empty() {
            edit.read_field(&mut cursor)?;
        }
        Ok(edit)
    }

    fn read_field(&mut self, cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
        let offset = cursor.offset();
        match cursor.varint32("tag")? {
            tag::DB_ID => self.db_id = Some(string(cursor, "database id")?),
            tag::COMPARATOR => self.comparator = Some(string(cursor, "comparator")?),
            tag::LOG_NUMBER => self.log_number = Some(file_number(cursor, "log number")?),
            tag::PREV_LOG_NUMBER => self.prev_log_number = Some(file_number(cursor, "previous log number")?),
            tag::NEXT_FILE_NUMBER => self.next_file_number = Some(file_number(cursor, "next file number")?.get()),
            tag::LAST_SEQUENCE => self.last_sequence = Some(sequence(cursor, "last sequence")?),
            tag::MAX_COLUMN_FAMILY => self.max_column_family = Some(cursor.varint32("max column family")?),
            tag::MIN_LOG_NUMBER_TO_KEEP => {
                self.min_log_number_to_keep = Some(file_number(cursor, "min log number to keep")?);
            }
            tag::COMPACT_CURSOR => {
                let level = cursor.varint32("level of a compact cursor")?;
                self.compact_cursors.push((level, internal_key(cursor, "compact cursor")?));
            }
            tag::DELETED_FILE => {
                let level = cursor.varint32("level of a deleted file")?;
                self.deleted_files.push((level, file_number(cursor, "number of a deleted file")?));
            }
            form @ (tag::NEW_FILE | tag::NEW_FILE_2 | tag::NEW_FILE_3 | tag::NEW_FILE_4) => {
                self.read_table(cursor, form)?;
            }
            tag::COLUMN_FAMILY => self.column_family = cursor.varint32("column family")?,
            tag::COLUMN_FAMILY_ADD => self.column_family_add = Some(string(cursor, "name of a column family")?),
            tag::COLUMN_FAMILY_DROP => self.column_family_drop = true,
            tag::IN_ATOMIC_GROUP => self.atomic_group_remaining = Some(cursor.varint32("rest of an atomic group")?),
            tag::BLOB_FILE_ADDITION | tag::BLOB_FILE_ADDITION_OLD => self.blob_additions.push(blob_addition(cursor)?),
            tag::BLOB_FILE_GARBAGE | tag::BLOB_FILE_GARBAGE_OLD => self.blob_garbage.push(blob_garbage(cursor)?),
            tag::WAL_ADDITION_OLD => self.wal_additions.push(wal_addition(cursor)?),
            tag::WAL_ADDITION => self.wal_additions.push(inside(cursor, "added log", wal_addition)?),
            tag::WAL_DELETION_OLD => self.wal_deletion = Some(file_number(cursor, "deleted log")?),
            tag::WAL_DELETION => {
                self.wal_deletion = Some(inside(cursor, "deleted log", |inner| file_number(inner, "deleted log"))?);
            }
            tag::DURABLE_LOG => {
                let read = |inner: &mut Cursor<'_>| {
                    let number = file_number(inner, "durable log")?;
                    Ok(DurableLog { number, bytes: inner.varint64("durable bytes of a log")? })
                };
                self.durable_logs.push(inside(cursor, "durable log", read)?);
            }
            tag::FULL_HISTORY_TS_LOW => {
                let timestamp = cursor.prefixed("full history timestamp low")?;
                if timestamp.is_empty() {
                    return Err(DecodeError::corrupt("full history timestamp low", offset, "is empty"));
                }
                self.full_history_ts_low = Some(timestamp.to_vec());
            }
            tag::TIMESTAMPS_PERSISTED => self.timestamps_persisted = Some(byte(cursor, "timestamps persisted")? == 1),
            other if other & tag::IGNORABLE != 0 => {
                cursor.prefixed("field of a later release")?;
            }
            other => {
                return Err(DecodeError::unsupported("tag", offset, format!("fields with tag {other} are not known")));
            }
        }
        Ok(())
    }

    fn read_table(&mut self, cursor: &mut Cursor<'_>, form: u32) -> Result<(), DecodeError> {
        let level = cursor.varint32("level of a table")?;
        let mut meta = TableMeta { number: file_number(cursor, "number of a table")?, ..TableMeta::default() };
        if form == tag::NEW_FILE_3 {
            let offset = cursor.offset();
            meta.path_id = path_id(cursor.varint32("path id")?, offset)?;
        }
        meta.file_bytes = cursor.varint64("size of a table")?;
        meta.smallest = internal_key(cursor, "smallest key")?;
        meta.largest = internal_key(cursor, "largest key")?;
        if form == tag::NEW_FILE {
            // Unknown: no sequence number excludes the table from anything.
            (meta.smallest_sequence, meta.largest_sequence) = (SequenceNumber::MAX, SequenceNumber::new(0));
        } else {
            meta.smallest_sequence = sequence(cursor, "smallest sequence")?;
            meta.largest_sequence = sequence(cursor, "largest sequence")?;
        }
        if form == tag::NEW_FILE_4 {
            while self.read_custom_field(cursor, &mut meta)? {}
            if meta.file_checksum_func_name.is_empty() {
                // Of no use to anyone.
                meta.file_checksum.clear();
            }
        }
        self.new_files.push((level, meta));
        Ok(())
    }

    /// False: that was the last.
    fn read_custom_field(&mut self, cursor: &mut Cursor<'_>, meta: &mut TableMeta) -> Result<bool, DecodeError> {
        let offset = cursor.offset();
        let tag = cursor.varint32("custom tag")?;
        if tag == custom_tag::END {
            return Ok(false);
        }
        let number = |cursor: &mut Cursor<'_>, field| inside(cursor, field, |inner| inner.varint64(field));
        match tag {
            custom_tag::MARKED_FOR_COMPACTION => {
                meta.marked_for_compaction = byte(cursor, "marked for compaction")? == 1
            }
            custom_tag::MIN_LOG_NUMBER_TO_KEEP => {
                let field = "min log number to keep";
                let number = inside(cursor, field, |inner| inner.u64(field))?;
                self.min_log_number_to_keep = Some(checked_file_number(number, field, offset)?);
            }
            custom_tag::OLDEST_BLOB_FILE => {
                let number = inside(cursor, "oldest blob file", |inner| file_number(inner, "oldest blob file"))?;
                meta.oldest_blob_file = (number.get() != 0).then_some(number);
            }
            custom_tag::OLDEST_ANCESTOR_TIME => meta.oldest_ancestor_time = number(cursor, "oldest ancestor time")?,
            custom_tag::FILE_CREATION_TIME => meta.file_creation_time = number(cursor, "file creation time")?,
            custom_tag::EPOCH_NUMBER => meta.epoch_number = number(cursor, "epoch number")?,
            custom_tag::FILE_CHECKSUM => meta.file_checksum = cursor.prefixed("checksum of a table")?.to_vec(),
            custom_tag::FILE_CHECKSUM_FUNC_NAME => {
                let name = string(cursor, "name of a checksum function")?;
                meta.file_checksum_func_name = if name == UNKNOWN_CHECKSUM_FUNC_NAME { String::new() } else { name };
            }
            custom_tag::TEMPERATURE => meta.temperature = byte(cursor, "temperature")?,
            custom_tag::MIN_TIMESTAMP => meta.min_timestamp = cursor.prefixed("lowest timestamp")?.to_vec(),
            custom_tag::MAX_TIMESTAMP => meta.max_timestamp = cursor.prefixed("highest timestamp")?.to_vec(),
            custom_tag::UNIQUE_ID => {
                let read = |inner: &mut Cursor<'_>| Ok((inner.u64("unique id")?, inner.u64("unique id")?));
                meta.unique_id = Some(inside(cursor, "unique id", read)?).filter(|&id| id != (0, 0));
            }
            custom_tag::COMPENSATED_RANGE_DELETION_BYTES => {
                meta.compensated_range_deletion_bytes = number(cursor, "compensated range deletions")?;
            }
            custom_tag::TAIL_BYTES => meta.tail_bytes = number(cursor, "bytes after the last data block")?,
            custom_tag::TIMESTAMPS_PERSISTED => meta.timestamps_stripped = byte(cursor, "timestamps persisted")? != 1,
            custom_tag::PATH_ID => meta.path_id = path_id(u32::from(byte(cursor, "path id")?), offset)?,
            other => ignore(cursor, other, custom_tag::UNIGNORABLE, offset)?,
        }
        Ok(true)
    }
}

fn blob_addition(cursor: &mut Cursor<'_>) -> Result<BlobFileAddition, DecodeError> {
    let addition = BlobFileAddition {
        number: file_number(cursor, "number of a blob file")?,
        total_count: cursor.varint64("count of blobs")?,
        total_bytes: cursor.varint64("bytes of blobs")?,
        checksum_method: string(cursor, "checksum method of a blob file")?,
        checksum_value: cursor.prefixed("checksum of a blob file")?.to_vec(),
    };
    ignore_blob_fields(cursor)?;
    Ok(addition)
}

fn blob_garbage(cursor: &mut Cursor<'_>) -> Result<BlobFileGarbage, DecodeError> {
    let garbage = BlobFileGarbage {
        number: file_number(cursor, "number of a blob file")?,
        count: cursor.varint64("count of garbage")?,
        bytes: cursor.varint64("bytes of garbage")?,
    };
    ignore_blob_fields(cursor)?;
    Ok(garbage)
}

/// Reads over custom fields of which none is known.
fn ignore_blob_fields(cursor: &mut Cursor<'_>) -> Result<(), DecodeError> {
    loop {
        let offset = cursor.offset();
        match cursor.varint32("custom tag")? {
            0 => return Ok(()),
            other => ignore(cursor, other, custom_tag::UNIGNORABLE, offset)?,
        }
    }
}

fn ignore(cursor: &mut Cursor<'_>, tag: u32, unignorable: u32, offset: u64) -> Result<(), DecodeError> {
    if tag & unignorable != 0 {
        return Err(DecodeError::unsupported("custom tag", offset, format!("fields with tag {tag} are not known")));
    }
    cursor.prefixed("custom field of a later release").map(|_| ())
}

fn wal_addition(cursor: &mut Cursor<'_>) -> Result<WalAddition, DecodeError> {
    let mut addition = WalAddition { number: file_number(cursor, "added log")?, synced_bytes: None };
    loop {
        let offset = cursor.offset();
        match cursor.varint32("tag of an added log")? {
            wal_tag::END => return Ok(addition),
            wal_tag::SYNCED_BYTES => addition.synced_bytes = Some(cursor.varint64("synced bytes of a log")?),
            other => {
                let reason = format!("fields with tag {other} are not known");
                return Err(DecodeError::unsupported("tag of an added log", offset, reason));
            }
        }
    }
}

/// What `read` makes of the bytes that a length goes before. As RocksDB, does not mind what is left of them.
fn inside<'a, T>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let bytes = cursor.prefixed(field)?;
    let start = cursor.offset() - bytes.len() as u64;
    read(&mut Cursor::new(bytes)).map_err(|error| error.at_base(start))
}

/// The one byte that a length of one goes before.
fn byte(cursor: &mut Cursor<'_>, field: &'static str) -> Result<u8, DecodeError> {
    let offset = cursor.offset();
    match cursor.prefixed(field)? {
        &[byte] => Ok(byte),
        bytes => Err(DecodeError::corrupt(field, offset, format!("{} bytes, one is needed", bytes.len()))),
    }
}

fn string(cursor: &mut Cursor<'_>, field: &'static str) -> Result<String, DecodeError> {
    let offset = cursor.offset();
    let bytes = cursor.prefixed(field)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(DecodeError::unsupported(field, offset, "is not UTF-8")),
    }
}

fn path_id(id: u32, offset: u64) -> Result<u32, DecodeError> {
    if id > PATH_ID_MAX {
        return Err(DecodeError::corrupt("path id", offset, format!("{id}, at most {PATH_ID_MAX} is possible")));
    }
    Ok(id)
}

fn file_number(cursor: &mut Cursor<'_>, field: &'static str) -> Result<FileNumber, DecodeError> {
    let offset = cursor.offset();
    checked_file_number(cursor.varint64(field)?, field, offset)
}

fn checked_file_number(number: u64, field: &'static str, offset: u64) -> Result<FileNumber, DecodeError> {
    if number > FileNumber::MAX.get() {
        return Err(DecodeError::corrupt(field, offset, format!("{number} is wider than 62 bits")));
    }
    Ok(FileNumber::new(number))
}

fn sequence(cursor: &mut Cursor<'_>, field: &'static str) -> Result<SequenceNumber, DecodeError> {
    let offset = cursor.offset();
    let number = cursor.varint64(field)?;
    if number > SequenceNumber::MAX.get() {
        return Err(DecodeError::corrupt(field, offset, format!("{number} is wider than 56 bits")));
    }
    Ok(SequenceNumber::new(number))
}

/// Where a range deletion is cut off at the edge of a table, RocksDB puts a kind that no entry has, so that the bound sorts before entries with its
/// number: `kTypeMaxValid`, one more than the highest that its version knows (0x18 in 7.8, 0x1a in 11.8). For that stands [`SEEK_KIND_TAG`] here.
fn internal_key(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Vec<u8>, DecodeError> {
    let mut key = cursor.prefixed(field)?.to_vec();
    let start = cursor.offset() - key.len() as u64;
    if let Some([kind, ..]) = key.last_chunk_mut::<TAG_BYTES>()
        && (SEEK_KIND_TAG..0x80).contains(kind)
    {
        *kind = SEEK_KIND_TAG;
    }
    InternalKey::decode(&key).map_err(|error| DecodeError { field, ..error.at_base(start) })?;
    Ok(key)
}
