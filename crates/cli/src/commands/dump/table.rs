//! Tables: footer, properties, and the entries of each block.

use esker_format::DecodeError;
use esker_format::compression::Dictionary;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout, IndexCursor, IndexFormat, put_together};
use esker_format::rocksdb::internal_key::{InternalKey, ValueKind};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::table::{
    BlockChecksum, BlockHandle, COMPRESSION_DICTIONARY, FOOTER_BYTES, Footer, INDEX, IndexType, MetaIndex, PROPERTIES,
    RANGE_DELETIONS, TableProperties, unpack,
};
use esker_format::varint;

use super::blob::index_fields;
use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// A table whose footer could be read.
struct Blocks<'a> {
    source: &'a Source,
    checksum: BlockChecksum,
    dictionary: Option<Dictionary>,
    index_format: IndexFormat,
    is_two_level: bool,
}

/// Prints a table, as far as its footer and index lead.
pub(crate) fn dump(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let tail_offset = source.bytes.saturating_sub(FOOTER_BYTES as u64);
    let footer = match Footer::decode(&source.read(tail_offset, FOOTER_BYTES)?, source.bytes) {
        Ok(footer) => footer,
        Err(error) => return report.damage(0, &error),
    };
    let fields = vec![
        Field::plain("format_version", footer.format_version),
        Field::plain("checksum", format!("{:?}", footer.checksum.kind)),
    ];
    report.note(tail_offset, "footer", fields)?;
    let (checksum, index_format) = (footer.checksum, IndexFormat::default());
    let mut blocks = Blocks { source, checksum, dictionary: None, index_format, is_two_level: false };
    let meta_index = blocks.decode(footer.meta_index, report, MetaIndex::decode)?.unwrap_or_default();
    for (name, handle) in meta_index.entries() {
        let name = String::from_utf8_lossy(name);
        report.note(
            handle.offset,
            "meta_block",
            vec![Field::quoted("name", &name), Field::plain("bytes", handle.bytes)],
        )?;
    }
    if let Some(handle) = meta_index.get(PROPERTIES) {
        blocks.properties(handle, report)?;
    }
    if let Some(handle) = meta_index.get(COMPRESSION_DICTIONARY) {
        blocks.dictionary = blocks.block(handle, report)?.map(Dictionary::new);
    }
    match footer.index.or_else(|| meta_index.get(INDEX)) {
        Some(index) => blocks.index(index, blocks.is_two_level, report)?,
        None => report.damage(footer.meta_index.offset, &DecodeError::corrupt("metaindex", 0, "names no index"))?,
    }
    // In a block of their own, which no index points to.
    match meta_index.get(RANGE_DELETIONS) {
        Some(handle) if !report.is_over() => blocks.entries(handle, "range_deletions", report),
        _ => Ok(()),
    }
}

impl Blocks<'_> {
    /// The raw bytes of a block, if its checksum holds.
    fn block(&self, handle: BlockHandle, report: &mut Report<'_>) -> Result<Option<Vec<u8>>, Failure> {
        let stored_bytes = match handle.stored_bytes(self.source.bytes) {
            Ok(bytes) => bytes,
            Err(error) => return report.damage(0, &error).map(|()| None),
        };
        let stored = self.source.read(handle.offset, stored_bytes)?;
        match unpack(self.checksum, self.dictionary.as_ref(), &stored, handle.offset) {
            Ok(raw) => Ok(Some(raw)),
            Err(error) => report.damage(handle.offset, &error).map(|()| None),
        }
    }

    fn decode<T>(
        &self,
        handle: BlockHandle,
        report: &mut Report<'_>,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, Failure> {
        let Some(raw) = self.block(handle, report)? else { return Ok(None) };
        match decode(&raw) {
            Ok(decoded) => Ok(Some(decoded)),
            Err(error) => report.damage(handle.offset, &in_block(error)).map(|()| None),
        }
    }

    fn properties(&mut self, handle: BlockHandle, report: &mut Report<'_>) -> Result<(), Failure> {
        let Some(properties) = self.decode(handle, report, TableProperties::decode)? else { return Ok(()) };
        // Nothing is searched for.
        self.index_format = properties.index_format(Order::BYTEWISE);
        match properties.index_type() {
            Ok(index_type) => self.is_two_level = index_type == IndexType::TwoLevel,
            Err(error) => report.damage(handle.offset, &in_block(error))?,
        }
        for (name, value) in properties.entries() {
            let field = property_value(name, &value);
            report.note(handle.offset, "property", vec![Field::quoted("name", name), field])?;
        }
        Ok(())
    }

    /// Follows an index to its blocks, and with `is_top` through the indexes between.
    fn index(&self, handle: BlockHandle, is_top: bool, report: &mut Report<'_>) -> Result<(), Failure> {
        let Some(raw) = self.block(handle, report)? else { return Ok(()) };
        let mut cursor = match BlockLayout::parse(&raw) {
            Ok(layout) => IndexCursor::new(layout, self.index_format),
            Err(error) => return report.damage(handle.offset, &in_block(error)),
        };
        let mut moved = cursor.seek_to_first(&raw);
        while !report.is_over() {
            if let Err(error) = moved {
                return report.damage(handle.offset, &in_block(error));
            }
            if !cursor.valid() {
                break;
            }
            match cursor.handle(&raw) {
                Ok(found) if is_top => self.index(found, false, report)?,
                Ok(found) => self.entries(found, "block", report)?,
                Err(error) => report.damage(handle.offset, &in_block(error))?,
            }
            moved = cursor.next(&raw);
        }
        Ok(())
    }

    /// Prints a block of entries, called `what`.
    fn entries(&self, handle: BlockHandle, what: &str, report: &mut Report<'_>) -> Result<(), Failure> {
        let Some(raw) = self.block(handle, report)? else { return Ok(()) };
        let raw = match put_together(raw) {
            Ok(raw) => raw,
            Err(error) => return report.damage(handle.offset, &in_block(error)),
        };
        let sizes = vec![Field::plain("bytes", handle.bytes), Field::plain("raw_bytes", raw.len())];
        report.note(handle.offset, what, sizes)?;
        let mut cursor = match BlockLayout::parse(&raw) {
            Ok(layout) => BlockCursor::new(layout),
            Err(error) => return report.damage(handle.offset, &in_block(error)),
        };
        let mut moved = cursor.seek_to_first(&raw);
        while !report.is_over() {
            if let Err(error) = moved {
                return report.damage(handle.offset, &in_block(error));
            }
            if !cursor.valid() {
                break;
            }
            match InternalKey::decode(cursor.key()) {
                Ok(key) => entry(handle.offset, &key, cursor.value(&raw), report)?,
                Err(error) => report.damage(handle.offset, &in_block(error))?,
            }
            moved = cursor.next(&raw);
        }
        Ok(())
    }
}

/// Most properties are varints. Those that are text are longer than one byte or told by their names.
fn property_value(name: &str, raw: &[u8]) -> Field {
    let number = varint::get_u64(raw).filter(|&(_, bytes)| bytes == raw.len()).map(|(number, _)| number);
    match (number, std::str::from_utf8(raw)) {
        (Some(number), _) if !name.starts_with("rocksdb.block.based.table.") => Field::plain("value", number),
        (_, Ok(text)) if !text.contains(char::is_control) => Field::quoted("value", text),
        _ => Field::bytes("value", raw),
    }
}

/// The error, told of the block as a whole: its offset is in the block's raw bytes, not in the file.
fn in_block(error: DecodeError) -> DecodeError {
    let reason = format!("{} (byte {} of the unpacked block)", error.reason, error.offset);
    DecodeError { offset: 0, reason: reason.into(), ..error }
}

fn entry(offset: u64, key: &InternalKey<'_>, value: &[u8], report: &mut Report<'_>) -> Result<(), Failure> {
    let sequence = Field::plain("sequence", key.sequence.get());
    let (what, fields) = match key.kind {
        ValueKind::Value => ("put", vec![sequence, Field::bytes("value", value)]),
        ValueKind::Deletion => ("delete", vec![sequence]),
        ValueKind::SingleDeletion => ("single_delete", vec![sequence]),
        ValueKind::Merge => ("merge", vec![sequence, Field::bytes("operand", value)]),
        ValueKind::RangeDeletion => ("delete_range", vec![sequence, Field::bytes("end", value)]),
        ValueKind::BlobIndex => {
            let mut fields = vec![sequence];
            fields.extend(index_fields(value));
            ("blob", fields)
        }
        kind => return report.keyed(offset, &format!("{kind:?}"), key.user_key, vec![sequence]),
    };
    report.keyed(offset, what, key.user_key, fields)
}
