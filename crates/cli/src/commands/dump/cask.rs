//! Files of a Cask: data files, hints, the manifest.

use esker_format::DecodeError;
use esker_format::cask::data_file::{DataFileHeader, HEADER_BYTES};
use esker_format::cask::hint::{Block, Footer};
use esker_format::cask::manifest::{FileState, Manifest};
use esker_format::cask::record::{HEAD_BYTES, Record, checksum_holds, peek_bytes};
use esker_format::compression::{Compression, decompress};
use esker_format::limits::VALUE_BYTES_MAX;
use esker_format::zeroes::is_zero;

use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// Prints a data file, record after record: each says where the next begins, so the first that does not is the last.
pub(crate) fn data(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let header = match DataFileHeader::decode(&source.read(0, HEADER_BYTES)?) {
        Ok(header) => header,
        Err(error) => return report.damage(0, &error),
    };
    let fields = vec![Field::plain("number", header.number.get()), Field::plain("clean_as_of", header.clean_as_of)];
    report.note(0, "header", fields)?;
    let mut offset = HEADER_BYTES as u64;
    while offset < source.bytes && !report.is_over() {
        let left = source.bytes - offset;
        let head = source.read(offset, HEAD_BYTES)?;
        if is_zero(&head) {
            return report.note(offset, "zeroes", vec![Field::plain("bytes", left)]);
        }
        let Some(bytes) = peek_bytes(&head).filter(|&bytes| bytes <= left) else {
            return report.damage(offset, &DecodeError::corrupt("record", 0, "no record begins like this"));
        };
        let raw = source.read(offset, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        if checksum_holds(&raw, header.salt) {
            record(offset, &raw, report)?;
        } else {
            report.damage(offset, &DecodeError::corrupt("crc", 0, "is not that of the record"))?;
        }
        offset += bytes;
    }
    Ok(())
}

fn record(offset: u64, raw: &[u8], report: &mut Report<'_>) -> Result<(), Failure> {
    let record = match Record::decode(raw) {
        Ok(record) => record,
        Err(error) => return report.damage(offset, &error),
    };
    let mut fields = vec![Field::plain("version", record.version)];
    if record.is_continued {
        fields.push(Field::plain("continued", true));
    }
    if record.is_tombstone {
        return report.keyed(offset, "delete", record.key, fields);
    }
    if let Some(expires_at) = record.expires_at {
        fields.push(Field::plain("expires_at", expires_at));
    }
    let mut unpacked = Vec::new();
    let value = match record.compression {
        Compression::None => record.value,
        packed => match decompress(packed, record.value, &mut unpacked, VALUE_BYTES_MAX) {
            Ok(()) => &unpacked,
            Err(error) => return report.damage(offset, &error),
        },
    };
    fields.push(Field::bytes("value", value));
    report.keyed(offset, "put", record.key, fields)
}

/// Prints a hint, entry by entry.
pub(crate) fn hint(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let raw = source.read_all()?;
    let footer = match Footer::decode(&raw) {
        Ok(footer) => footer,
        Err(error) => return report.damage(0, &error),
    };
    let end = usize::try_from(footer.block_bytes).unwrap_or(usize::MAX).min(raw.len());
    let mut at = 0;
    while at < end && !report.is_over() {
        let rest = raw.get(at..end).unwrap_or_default();
        let (block, bytes) = match Block::decode(rest, footer.salt) {
            Ok(found) => found,
            Err(error) => return report.damage(at as u64, &error),
        };
        for entry in block.entries() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return report.damage(at as u64, &error),
            };
            let what = if entry.is_tombstone { "delete" } else { "put" };
            let fields = vec![
                Field::plain("version", entry.version),
                Field::plain("record_offset", entry.offset),
                Field::plain("record_bytes", entry.record_bytes),
            ];
            report.keyed(at as u64, what, entry.key, fields)?;
        }
        at += bytes.max(1);
    }
    let fields = vec![
        Field::plain("number", footer.number.get()),
        Field::plain("data_bytes", footer.data_bytes),
        Field::plain("records", footer.record_count),
    ];
    report.note(footer.block_bytes, "footer", fields)
}

/// Prints which files make up a store.
pub(crate) fn manifest(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let manifest = match Manifest::decode(&source.read_small()?) {
        Ok(manifest) => manifest,
        Err(error) => return report.damage(0, &error),
    };
    let fields = vec![
        Field::bytes("store_id", &manifest.store_id),
        Field::plain("keep_versions", manifest.keep_versions),
        Field::plain("next_file", manifest.next_file),
        Field::plain("next_version", manifest.next_version),
    ];
    report.note(0, "manifest", fields)?;
    for file in &manifest.files {
        let mut fields = vec![
            Field::plain("number", file.number.get()),
            Field::plain("salt", file.salt),
            Field::plain("clean_as_of", file.clean_as_of),
        ];
        match file.state {
            FileState::Open { durable_bytes } => {
                fields.extend([Field::plain("state", "open"), Field::plain("durable_bytes", durable_bytes)]);
            }
            FileState::Sealed { data_bytes, record_count } => fields.extend([
                Field::plain("state", "sealed"),
                Field::plain("data_bytes", data_bytes),
                Field::plain("records", record_count),
            ]),
        }
        report.entry(0, "file", fields)?;
    }
    Ok(())
}
