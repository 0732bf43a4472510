//! Blob files: header, records, footer.

use esker_format::DecodeError;
use esker_format::compression::{Compression, decompress};
use esker_format::limits::VALUE_BYTES_MAX;
use esker_format::rocksdb::blob::holes::{behind_hole, has_hole};
use esker_format::rocksdb::blob::{
    BlobFileHeader, BlobFooter, BlobIndex, BlobRecordHeader, FOOTER_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES,
};

use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// A file that has records.
struct BlobFile<'a> {
    source: &'a Source,
    /// How values are packed, if the header says so.
    compression: Option<Compression>,
    /// Of a file that was finished.
    footer: Option<BlobFooter>,
    records_end: u64,
}

/// Prints a blob file, record after record: each says where the next begins, so the first whose header is damaged is
/// the last. They need no header of the file, which no checksum covers, but to be unpacked. Reclaim makes holes in files that are finished: what lies behind one is printed, too.
pub(crate) fn dump(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(compression) = header(source, report)? else { return Ok(()) };
    let footer_at = source.bytes.saturating_sub(FOOTER_BYTES as u64).max(HEADER_BYTES as u64);
    let footer = BlobFooter::decode(&source.read(footer_at, FOOTER_BYTES)?).ok();
    let records_end = if footer.is_some() { footer_at } else { source.bytes };
    let file = BlobFile { source, compression, footer, records_end };
    let mut offset = HEADER_BYTES as u64;
    let (mut count, mut is_counted) = (0, true);
    while offset < file.records_end && !report.is_over() {
        match file.header(offset)? {
            Ok((header, end)) => {
                file.record(offset, &header, report)?;
                (offset, count) = (end, count + 1);
            }
            // They follow what was written, as long as somebody writes.
            Err(_) if file.footer.is_none() && source.is_zero_from(offset)? => {
                report.note(offset, "zeroes", vec![Field::plain("bytes", source.bytes - offset)])?;
                break;
            }
            Err(error) => {
                let Some(next) = file.behind_hole(offset)? else { return report.damage(offset, &error) };
                report.note(offset, "hole", vec![Field::plain("bytes", next - offset)])?;
                // How many records were in it, it does not say.
                (offset, is_counted) = (next, false);
            }
        }
    }
    if report.is_over() {
        return Ok(());
    }
    let Some(footer) = file.footer else {
        // Where the writer died before it was done.
        return report.note(offset, "end: there is no footer", Vec::new());
    };
    report.note(offset, "footer", vec![Field::plain("count", footer.blob_count)])?;
    if is_counted && footer.blob_count != count {
        let reason = format!("{}, but {count} records are before it", footer.blob_count);
        report.damage(offset, &DecodeError::corrupt("blob count", 4, reason))?;
    }
    Ok(())
}

/// Prints the header, and returns how values are packed, if it says so. `None` if it is damaged, and no record follows.
fn header(source: &Source, report: &mut Report<'_>) -> Result<Option<Option<Compression>>, Failure> {
    let raw = source.read(0, HEADER_BYTES)?;
    let header = match BlobFileHeader::decode(&raw) {
        Ok(header) => header,
        Err(error) => {
            report.damage(0, &error)?;
            let next = source.read(HEADER_BYTES as u64, RECORD_HEADER_BYTES)?;
            return Ok(BlobRecordHeader::decode(&next).ok().map(|_| BlobFileHeader::compression_in(&raw)));
        }
    };
    let fields =
        vec![Field::plain("family", header.column_family_id), Field::plain("compression", header.compression.name())];
    report.note(0, "header", fields)?;
    Ok(Some(Some(header.compression)))
}

impl BlobFile<'_> {
    /// The header of the record at `offset`, and where the record ends, which is within the file.
    fn header(&self, offset: u64) -> Result<Result<(BlobRecordHeader, u64), DecodeError>, Failure> {
        let raw = self.source.read(offset, RECORD_HEADER_BYTES)?;
        Ok(BlobRecordHeader::decode(&raw).and_then(|header| {
            let end = header.record_bytes().and_then(|bytes| offset.checked_add(bytes));
            let end = end.filter(|&end| end <= self.records_end);
            let end = end.ok_or_else(|| DecodeError::corrupt("value length", 8, "runs past the end of the file"))?;
            Ok((header, end))
        }))
    }

    /// Where records go on behind a hole at `offset`, if there is one.
    fn behind_hole(&self, offset: u64) -> Result<Option<u64>, Failure> {
        if self.footer.is_none() {
            return Ok(None);
        }
        behind_hole(offset, self.records_end, |offset, out| {
            out.copy_from_slice(&self.source.read(offset, out.len())?);
            Ok(())
        })
    }

    /// Prints a record, or that its value has a hole: then it is dead.
    fn record(&self, offset: u64, header: &BlobRecordHeader, report: &mut Report<'_>) -> Result<(), Failure> {
        let key_offset = offset + RECORD_HEADER_BYTES as u64;
        let key = self.source.read(key_offset, header.key_bytes as usize)?;
        if report.keys_only() {
            return report.keyed(offset, "blob", &key, Vec::new());
        }
        let value_offset = key_offset + header.key_bytes;
        let stored = self.source.read(value_offset, header.value_bytes as usize)?;
        let mut value = Vec::new();
        let unpacked = header.check(&key, &stored).and_then(|()| match self.compression {
            None | Some(Compression::None) => Ok(()),
            Some(packed) => decompress(packed, &stored, &mut value, VALUE_BYTES_MAX),
        });
        match unpacked {
            Ok(()) => {
                let field = match self.compression {
                    None => Field::bytes("stored", &stored),
                    Some(Compression::None) => Field::bytes("value", &stored),
                    Some(_) => Field::bytes("value", &value),
                };
                report.keyed(offset, "blob", &key, vec![Field::plain("stored_bytes", header.value_bytes), field])
            }
            Err(_) if self.footer.is_some() && has_hole(value_offset, &stored) => {
                report.keyed(offset, "hole", &key, vec![Field::plain("stored_bytes", header.value_bytes)])
            }
            Err(error) => report.damage(offset, &error),
        }
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
