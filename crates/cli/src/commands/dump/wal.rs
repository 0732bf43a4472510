//! Write-ahead logs: batches, and the operations in them.

use esker_format::DecodeError;
use esker_format::compression::unpack_frame;
use esker_format::limits::BATCH_BYTES_MAX;
use esker_format::rocksdb::internal_key::ValueKind;
use esker_format::rocksdb::log::{Assembler, BLOCK_BYTES, Fragment, next_fragment};
use esker_format::rocksdb::write_batch::{self, Record};

use super::blob::index_fields;
use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// Prints the batches of a log. `log_number` tells its records from those of the file's former life.
pub(crate) fn dump(source: &Source, log_number: Option<u32>, report: &mut Report<'_>) -> Result<(), Failure> {
    records(source, log_number, report, batch)
}

/// Prints a record that begins at an offset of the file.
pub(crate) type Visit = fn(u64, &[u8], &mut Report<'_>) -> Result<(), Failure>;

/// Hands the records of a log to `visit`, one block of the log and one record in memory at a time.
pub(crate) fn records(
    source: &Source,
    log_number: Option<u32>,
    report: &mut Report<'_>,
    visit: Visit,
) -> Result<(), Failure> {
    let mut assembler = Assembler::new();
    let mut record_offset = 0;
    let mut block_offset = 0;
    let (mut is_packed, mut unpacked) = (false, Vec::new());
    while block_offset < source.bytes && !report.is_over() {
        let block = source.read(block_offset, BLOCK_BYTES)?;
        let mut at = 0;
        while !report.is_over() {
            let offset = block_offset + at as u64;
            match next_fragment(&block, at, log_number) {
                Fragment::Whole { kind, payload, next, .. } => {
                    let payload = block.get(payload).unwrap_or_default();
                    let mut pushed = assembler.push(kind, payload);
                    if let Err(error) = &pushed {
                        report.damage(offset, error)?;
                        // A piece that begins a record is good, whatever was wrong with those before it.
                        if kind.begins() {
                            pushed = assembler.push(kind, payload);
                        }
                    }
                    if kind.begins() {
                        record_offset = offset;
                    }
                    if pushed == Ok(true) && !is_packed {
                        visit(record_offset, assembler.record(), report)?;
                    } else if pushed == Ok(true) {
                        match unpack_frame(assembler.record(), &mut unpacked, BATCH_BYTES_MAX) {
                            Ok(()) => visit(record_offset, &unpacked, report)?,
                            Err(error) => report.damage(record_offset, &in_record(error))?,
                        }
                    }
                    at = next;
                }
                Fragment::Ignored { next } => at = next,
                Fragment::Packed { next } => {
                    is_packed = true;
                    report.note(offset, "records are packed by Zstandard", Vec::new())?;
                    at = next;
                }
                Fragment::EndOfBlock => break,
                Fragment::Zeroes => {
                    // What follows in another block does not go with what was begun.
                    if assembler.is_within() {
                        torn_record(record_offset, &mut assembler, report)?;
                    }
                    report.note(offset, "zeroes", vec![Field::plain("bytes", block.len() - at)])?;
                    break;
                }
                Fragment::Torn => {
                    report.note(offset, "torn", vec![Field::plain("bytes", block.len() - at)])?;
                    break;
                }
                Fragment::StaleRecycled => {
                    return report.note(offset, "end: records of another log follow", Vec::new());
                }
                Fragment::Damaged { end, reason } => {
                    report.damage(block_offset, &reason)?;
                    assembler.drop_begun();
                    at = end.max(at + 1);
                }
            }
        }
        block_offset += BLOCK_BYTES as u64;
    }
    if assembler.is_within() && !report.is_over() {
        torn_record(record_offset, &mut assembler, report)?;
    }
    Ok(())
}

fn torn_record(offset: u64, assembler: &mut Assembler, report: &mut Report<'_>) -> Result<(), Failure> {
    report.note(offset, "torn record", vec![Field::plain("bytes", assembler.drop_begun())])
}

fn batch(offset: u64, bytes: &[u8], report: &mut Report<'_>) -> Result<(), Failure> {
    match write_batch::header(bytes) {
        Ok(header) => {
            let fields = vec![
                Field::plain("sequence", header.sequence.get()),
                Field::plain("count", header.count),
                Field::plain("bytes", bytes.len()),
            ];
            report.note(offset, "batch", fields)?;
        }
        // Where in the file the byte is depends on fragments; the record's own offset is where to look.
        Err(error) => return report.damage(offset, &in_record(error)),
    }
    for record in write_batch::records(bytes) {
        match record {
            Ok(record) => operation(offset, &record, report)?,
            Err(error) => report.damage(offset, &in_record(error))?,
        }
    }
    Ok(())
}

/// The error, told of the record as a whole.
pub(crate) fn in_record(error: DecodeError) -> DecodeError {
    let reason = format!("{} (byte {} of the record)", error.reason, error.offset);
    DecodeError { offset: 0, reason: reason.into(), ..error }
}

fn operation(offset: u64, record: &Record<'_>, report: &mut Report<'_>) -> Result<(), Failure> {
    let family = Field::plain("family", record.cf);
    let value = |name| Field::bytes(name, record.value);
    let (what, fields) = match record.kind {
        ValueKind::Value => ("put", vec![family, value("value")]),
        ValueKind::Merge => ("merge", vec![family, value("operand")]),
        ValueKind::RangeDeletion => ("delete_range", vec![family, value("end")]),
        ValueKind::BlobIndex => {
            let mut fields = vec![family];
            fields.extend(index_fields(record.value));
            ("put_blob_index", fields)
        }
        ValueKind::Deletion => ("delete", vec![family]),
        ValueKind::SingleDeletion => ("single_delete", vec![family]),
        kind => return report.note(offset, &format!("{kind:?}"), vec![Field::bytes("key", record.key)]),
    };
    report.keyed(offset, what, record.key, fields)
}
