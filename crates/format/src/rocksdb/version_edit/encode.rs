//! From edits to bytes, in RocksDB's order.

use super::{BlobFileAddition, BlobFileGarbage, TableMeta, VersionEdit, WalAddition, custom_tag, tag, wal_tag};
use crate::varint::{put_prefixed, put_u32, put_u64};

impl VersionEdit {
    /// Appends the edit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, tag::DB_ID, self.db_id.as_deref().map(str::as_bytes));
        put_bytes(out, tag::COMPARATOR, self.comparator.as_deref().map(str::as_bytes));
        put_number(out, tag::LOG_NUMBER, self.log_number.map(|number| number.get()));
        put_number(out, tag::PREV_LOG_NUMBER, self.prev_log_number.map(|number| number.get()));
        put_number(out, tag::NEXT_FILE_NUMBER, self.next_file_number);
        put_number(out, tag::MAX_COLUMN_FAMILY, self.max_column_family.map(u64::from));
        put_number(out, tag::MIN_LOG_NUMBER_TO_KEEP, self.min_log_number_to_keep.map(|number| number.get()));
        put_number(out, tag::LAST_SEQUENCE, self.last_sequence.map(|sequence| sequence.get()));
        for (level, key) in &self.compact_cursors {
            put_u32(out, tag::COMPACT_CURSOR);
            put_u32(out, *level);
            put_prefixed(out, key);
        }
        for (level, number) in &self.deleted_files {
            put_u32(out, tag::DELETED_FILE);
            put_u32(out, *level);
            put_u64(out, number.get());
        }
        for (level, meta) in &self.new_files {
            put_table(out, *level, meta);
        }
        for addition in &self.blob_additions {
            put_blob_addition(out, addition);
        }
        for garbage in &self.blob_garbage {
            put_blob_garbage(out, *garbage);
        }
        for addition in &self.wal_additions {
            put_wal_addition(out, *addition);
        }
        if let Some(number) = self.wal_deletion {
            put_bytes(out, tag::WAL_DELETION, Some(&varint(number.get())));
        }
        for log in &self.durable_logs {
            let mut bytes = varint(log.number.get());
            put_u64(&mut bytes, log.bytes);
            put_bytes(out, tag::DURABLE_LOG, Some(&bytes));
        }
        put_number(out, tag::COLUMN_FAMILY, (self.column_family != 0).then_some(u64::from(self.column_family)));
        put_bytes(out, tag::COLUMN_FAMILY_ADD, self.column_family_add.as_deref().map(str::as_bytes));
        if self.column_family_drop {
            put_u32(out, tag::COLUMN_FAMILY_DROP);
        }
        put_number(out, tag::IN_ATOMIC_GROUP, self.atomic_group_remaining.map(u64::from));
        put_bytes(out, tag::FULL_HISTORY_TS_LOW, self.full_history_ts_low.as_deref());
        put_bytes(
            out,
            tag::TIMESTAMPS_PERSISTED,
            self.timestamps_persisted.map(u8::from).as_ref().map(std::slice::from_ref),
        );
    }
}

fn put_table(out: &mut Vec<u8>, level: u32, meta: &TableMeta) {
    put_u32(out, tag::NEW_FILE_4);
    put_u32(out, level);
    put_u64(out, meta.number.get());
    put_u64(out, meta.file_bytes);
    put_prefixed(out, &meta.smallest);
    put_prefixed(out, &meta.largest);
    put_u64(out, meta.smallest_sequence.get());
    put_u64(out, meta.largest_sequence.get());

    let mut field = |tag, is_written: bool, bytes: &[u8]| put_bytes(out, tag, is_written.then_some(bytes));
    field(custom_tag::OLDEST_ANCESTOR_TIME, true, &varint(meta.oldest_ancestor_time));
    field(custom_tag::FILE_CREATION_TIME, true, &varint(meta.file_creation_time));
    field(custom_tag::EPOCH_NUMBER, meta.epoch_number != 0, &varint(meta.epoch_number));
    let has_checksum = !meta.file_checksum_func_name.is_empty();
    field(custom_tag::FILE_CHECKSUM, has_checksum, &meta.file_checksum);
    field(custom_tag::FILE_CHECKSUM_FUNC_NAME, has_checksum, meta.file_checksum_func_name.as_bytes());
    // At most 3.
    field(custom_tag::PATH_ID, meta.path_id != 0, &[meta.path_id as u8]);
    field(custom_tag::TEMPERATURE, meta.temperature != 0, &[meta.temperature]);
    field(custom_tag::MARKED_FOR_COMPACTION, meta.marked_for_compaction, &[1]);
    let oldest_blob_file = meta.oldest_blob_file.unwrap_or_default().get();
    field(custom_tag::OLDEST_BLOB_FILE, oldest_blob_file != 0, &varint(oldest_blob_file));
    if let Some((first, second)) = meta.unique_id {
        let (first, second) = (first.to_le_bytes(), second.to_le_bytes());
        field(custom_tag::UNIQUE_ID, true, [first, second].as_flattened());
    }
    let compensated_bytes = meta.compensated_range_deletion_bytes;
    field(custom_tag::COMPENSATED_RANGE_DELETION_BYTES, compensated_bytes != 0, &varint(compensated_bytes));
    field(custom_tag::TAIL_BYTES, meta.tail_bytes != 0, &varint(meta.tail_bytes));
    field(custom_tag::TIMESTAMPS_PERSISTED, meta.timestamps_stripped, &[0]);
    field(custom_tag::MIN_TIMESTAMP, !meta.min_timestamp.is_empty(), &meta.min_timestamp);
    field(custom_tag::MAX_TIMESTAMP, !meta.max_timestamp.is_empty(), &meta.max_timestamp);
    put_u32(out, custom_tag::END);
}

fn put_blob_addition(out: &mut Vec<u8>, addition: &BlobFileAddition) {
    put_u32(out, tag::BLOB_FILE_ADDITION);
    put_u64(out, addition.number.get());
    put_u64(out, addition.total_count);
    put_u64(out, addition.total_bytes);
    put_prefixed(out, addition.checksum_method.as_bytes());
    put_prefixed(out, &addition.checksum_value);
    // No custom fields.
    put_u32(out, 0);
}

fn put_blob_garbage(out: &mut Vec<u8>, garbage: BlobFileGarbage) {
    put_u32(out, tag::BLOB_FILE_GARBAGE);
    put_u64(out, garbage.number.get());
    put_u64(out, garbage.count);
    put_u64(out, garbage.bytes);
    // No custom fields.
    put_u32(out, 0);
}

fn put_wal_addition(out: &mut Vec<u8>, addition: WalAddition) {
    let mut bytes = varint(addition.number.get());
    if let Some(synced_bytes) = addition.synced_bytes {
        put_u32(&mut bytes, wal_tag::SYNCED_BYTES);
        put_u64(&mut bytes, synced_bytes);
    }
    put_u32(&mut bytes, wal_tag::END);
    put_bytes(out, tag::WAL_ADDITION, Some(&bytes));
}

fn put_number(out: &mut Vec<u8>, tag: u32, number: Option<u64>) {
    if let Some(number) = number {
        put_u32(out, tag);
        put_u64(out, number);
    }
}

fn put_bytes(out: &mut Vec<u8>, tag: u32, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        put_u32(out, tag);
        put_prefixed(out, bytes);
    }
}

fn varint(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, number);
    out
}
