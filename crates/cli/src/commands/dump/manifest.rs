//! Manifests: what changed in a store, edit by edit.

use esker_format::rocksdb::internal_key::{FileNumber, InternalKey, is_end_of_range};
use esker_format::rocksdb::version_edit::{TableMeta, VersionEdit};

use super::report::{Field, Report};
use super::source::Source;
use super::wal::{in_record, records};
use crate::failure::Failure;

/// Prints the edits of a manifest.
pub(crate) fn dump(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    records(source, None, report, |offset, record, report| match VersionEdit::decode(record) {
        Ok(edit) => print(offset, &edit, report),
        Err(error) => report.damage(offset, &in_record(error)),
    })
}

fn print(offset: u64, edit: &VersionEdit, report: &mut Report<'_>) -> Result<(), Failure> {
    report.entry(offset, "edit", head(edit))?;
    for (level, number) in &edit.deleted_files {
        let fields = vec![Field::plain("number", number.get()), Field::plain("level", *level)];
        report.note(offset, "remove_table", fields)?;
    }
    for (level, table) in &edit.new_files {
        report.note(offset, "add_table", added(*level, table))?;
    }
    for blob in &edit.blob_additions {
        let mut fields = vec![
            Field::plain("number", blob.number.get()),
            Field::plain("count", blob.total_count),
            Field::plain("bytes", blob.total_bytes),
        ];
        if !blob.checksum_method.is_empty() {
            fields.push(Field::plain("checksum_method", blob.checksum_method.as_str()));
            fields.push(Field::bytes("checksum", &blob.checksum_value));
        }
        report.note(offset, "add_blob_file", fields)?;
    }
    for garbage in &edit.blob_garbage {
        let fields = vec![
            Field::plain("number", garbage.number.get()),
            Field::plain("count", garbage.count),
            Field::plain("bytes", garbage.bytes),
        ];
        report.note(offset, "blob_garbage", fields)?;
    }
    for wal in &edit.wal_additions {
        let mut fields = vec![Field::plain("number", wal.number.get())];
        fields.extend(wal.synced_bytes.map(|bytes| Field::plain("synced_bytes", bytes)));
        report.note(offset, "add_wal", fields)?;
    }
    for log in &edit.durable_logs {
        let fields = vec![Field::plain("number", log.number.get()), Field::plain("bytes", log.bytes)];
        report.note(offset, "durable_log", fields)?;
    }
    Ok(())
}

fn head(edit: &VersionEdit) -> Vec<Field> {
    let mut fields = vec![Field::plain("family", edit.column_family)];
    let number = |number: FileNumber| number.get();
    let numbers = [
        ("log_number", edit.log_number.map(number)),
        ("prev_log_number", edit.prev_log_number.map(number)),
        ("next_file_number", edit.next_file_number),
        ("last_sequence", edit.last_sequence.map(|sequence| sequence.get())),
        ("max_column_family", edit.max_column_family.map(u64::from)),
        ("min_log_number_to_keep", edit.min_log_number_to_keep.map(number)),
        ("atomic_group_remaining", edit.atomic_group_remaining.map(u64::from)),
        ("wal_deletion", edit.wal_deletion.map(number)),
    ];
    let texts = [("add_family", &edit.column_family_add), ("comparator", &edit.comparator), ("db_id", &edit.db_id)];
    for (name, text) in texts {
        fields.extend(text.as_ref().map(|text| Field::quoted(name, text)));
    }
    if edit.column_family_drop {
        fields.push(Field::plain("drop_family", true));
    }
    for (name, number) in numbers {
        fields.extend(number.map(|number| Field::plain(name, number)));
    }
    fields
}

fn added(level: u32, table: &TableMeta) -> Vec<Field> {
    let mut fields = vec![
        Field::plain("number", table.number.get()),
        Field::plain("level", level),
        Field::plain("bytes", table.file_bytes),
        bound("smallest", &table.smallest),
        bound("largest", &table.largest),
        Field::plain("smallest_sequence", table.smallest_sequence.get()),
        Field::plain("largest_sequence", table.largest_sequence.get()),
    ];
    // Only a range deletion reaches to that key, and not over it: the next table may begin there.
    if is_end_of_range(&table.largest) {
        fields.push(Field::plain("largest_is_excluded", true));
    }
    fields.extend(table.oldest_blob_file.map(|number| Field::plain("oldest_blob_file", number.get())));
    for (name, number) in [
        ("epoch_number", table.epoch_number),
        ("file_creation_time", table.file_creation_time),
        ("oldest_ancestor_time", table.oldest_ancestor_time),
        ("compensated_range_deletion_bytes", table.compensated_range_deletion_bytes),
    ] {
        if number != 0 {
            fields.push(Field::plain(name, number));
        }
    }
    fields
}

/// The user key of a bound; all of it if it is no internal key.
fn bound(name: &'static str, internal: &[u8]) -> Field {
    Field::bytes(name, InternalKey::decode(internal).map_or(internal, |key| key.user_key))
}
