//! Blob files: header, records, footer.

use esker_format::DecodeError;
use esker_format::compression::{Compression, decompress};
use esker_format::limits::VALUE_BYTES_MAX;
use esker_format::rocksdb::blob::{
    BlobFileHeader, BlobFooter, BlobIndex, BlobRecordHeader, FOOTER_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES,
};

use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// Prints a blob file, record after record: each says where the next begins, so the first whose header is damaged is
/// the last.
pub(crate) fn dump(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let compression = match BlobFileHeader::decode(&source.read(0, HEADER_BYTES)?) {
        Ok(header) => {
            let fields = vec![
                Field::plain("family", header.column_family_id),
                Field::plain("compression", header.compression.name()),
            ];
            report.note(0, "header", fields)?;
            header.compression
        }
        Err(error) => return report.damage(0, &error),
    };
    let mut offset = HEADER_BYTES as u64;
    let mut count = 0;
    while offset < source.bytes && !report.is_over() {
        if source.bytes - offset == FOOTER_BYTES as u64
            && let Ok(footer) = BlobFooter::decode(&source.read(offset, FOOTER_BYTES)?)
        {
            report.note(offset, "footer", vec![Field::plain("count", footer.blob_count)])?;
            if footer.blob_count != count {
                let reason = format!("{}, but {count} records are before it", footer.blob_count);
                report.damage(offset, &DecodeError::corrupt("blob count", 4, reason))?;
            }
            return Ok(());
        }
        let header = match BlobRecordHeader::decode(&source.read(offset, RECORD_HEADER_BYTES)?) {
            Ok(header) => header,
            Err(error) => return report.damage(offset, &error),
        };
        let end = header.record_bytes().and_then(|bytes| offset.checked_add(bytes));
        let Some(end) = end.filter(|&end| end <= source.bytes) else {
            return report.damage(offset, &DecodeError::corrupt("value length", 8, "runs past the end of the file"));
        };
        record(source, offset, &header, compression, report)?;
        (offset, count) = (end, count + 1);
    }
    if report.is_over() {
        return Ok(());
    }
    // Where the writer died before it was done.
    report.note(offset, "end: there is no footer", Vec::new())
}

/// The lengths in `header` lie within the file.
fn record(
    source: &Source,
    offset: u64,
    header: &BlobRecordHeader,
    compression: Compression,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let key_offset = offset + RECORD_HEADER_BYTES as u64;
    let key = source.read(key_offset, header.key_bytes as usize)?;
    if report.keys_only() {
        return report.keyed(offset, "blob", &key, Vec::new());
    }
    let stored = source.read(key_offset + header.key_bytes, header.value_bytes as usize)?;
    let mut value = Vec::new();
    let unpacked = header.check(&key, &stored).and_then(|()| match compression {
        Compression::None => Ok(()),
        packed => decompress(packed, &stored, &mut value, VALUE_BYTES_MAX),
    });
    match unpacked {
        Ok(()) => {
            let value = if compression == Compression::None { &stored } else { &value };
            let fields = vec![Field::plain("stored_bytes", header.value_bytes), Field::bytes("value", value)];
            report.keyed(offset, "blob", &key, fields)
        }
        Err(error) => report.damage(offset, &error),
    }
}

/// What a blob index says; its bytes, if it says nothing.
pub(crate) fn index_fields(raw: &[u8]) -> Vec<Field> {
    match BlobIndex::decode(raw) {
        Ok(index) => vec![
            Field::plain("file", index.file.get()),
            Field::plain("value_offset", index.offset),
            Field::plain("stored_bytes", index.bytes),
            Field::plain("compression", index.compression.name()),
        ],
        Err(_) => vec![Field::bytes("blob_index", raw)],
    }
}
