//! The footer of a table, and whether one that cannot be read, or leads nowhere, is rotten.
//!
//! Before format version 6 no checksum covers it, so one rotten byte may read as a version or a checksum that only a later RocksDB has. What it
//! leads to tells: where another byte would lead to a metaindex and an index whose checksums hold, that byte is rotten. Where none does, it
//! may be either, and the error says so.
//!
//! Cost: nothing for a footer that is read; some milliseconds, and a read of metaindex and index, for one that is not.

use std::path::Path;

use esker_env::ReadFile;
use esker_format::checksum::ChecksumKind;
use esker_format::compression::Compression;
use esker_format::rocksdb::block::{BlockLayout, IndexCursor, IndexFormat};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::table::{
    BlockChecksum, BlockHandle, FOOTER_BYTES, FORMAT_VERSION_MIN, Footer, INDEX, MetaIndex, PROPERTIES, TRAILER_BYTES,
    unpack,
};
use esker_format::{DecodeError, DecodeErrorKind};

use super::open::unpack_properties;
use crate::{Error, Result};

const DOING: &str = "reading the footer of a table";
const ROTTEN: &str = "with one byte of it changed back it leads to a whole index, so it is rotten; repair the store, or restore it from a backup";
const ROTTEN_OR_NEWER: &str =
    "a newer RocksDB wrote the table, or its footer is damaged: open the store with that, or restore it from a backup";

/// The footer at the end of `tail`, the end of the table in `file`.
///
/// # Errors
/// - `Corruption`: it is damaged.
/// - `UnsupportedFormat`: it is of another kind or version, and not because of one rotten byte.
pub(super) fn read(file: &dyn ReadFile, path: &Path, tail: &[u8], file_bytes: u64) -> Result<Footer> {
    let error = match Footer::decode(tail, file_bytes) {
        Ok(footer) => return Ok(footer),
        Err(error) => error,
    };
    let is_newer = error.kind == DecodeErrorKind::Unsupported;
    if mended(file, tail, file_bytes).is_some() {
        let error = DecodeError { kind: DecodeErrorKind::Corrupt, ..error };
        return Err(Error::decode(path, 0, DOING, error).with_advice(ROTTEN));
    }
    let error = Error::decode(path, 0, DOING, error);
    Err(if is_newer { error.with_advice(ROTTEN_OR_NEWER) } else { error })
}

/// The footer at the end of a damaged table, whose last bytes are `tail`: as it stands, or with one byte as it was.
///
/// # Errors
/// What decoding it as it stands said.
pub(super) fn salvage(file: &dyn ReadFile, tail: &[u8], file_bytes: u64) -> std::result::Result<Footer, DecodeError> {
    let found = Footer::decode(tail, file_bytes);
    if found.as_ref().is_ok_and(|footer| leads_to_an_index(file, footer, tail, file_bytes)) {
        return found;
    }
    mended(file, tail, file_bytes).map_or(found, Ok)
}

/// The footer with one byte as it was, if that leads to an index.
fn mended(file: &dyn ReadFile, tail: &[u8], file_bytes: u64) -> Option<Footer> {
    let candidates = Footer::one_byte_off(tail, file_bytes);
    candidates.into_iter().find(|footer| leads_to_an_index(file, footer, tail, file_bytes))
}

/// Whether metaindex and index are where `footer` says, right before other blocks, and their checksums hold.
fn leads_to_an_index(file: &dyn ReadFile, footer: &Footer, tail: &[u8], file_bytes: u64) -> bool {
    let end = file_bytes.saturating_sub(FOOTER_BYTES as u64);
    // Every writer puts the metaindex last. Looked at first, it spares a read of what many a wrong byte would lead to.
    if footer.meta_index.end() != Some(end) {
        return false;
    }
    let block = |handle| stored(file, footer.checksum, handle, end);
    let Some(meta) = block(footer.meta_index)
        .and_then(|stored| unpack(footer.checksum, None, &stored, footer.meta_index.offset).ok())
        .and_then(|block| MetaIndex::decode(&block).ok())
    else {
        return false;
    };
    let Some(index) = footer.index.or_else(|| meta.get(INDEX)) else { return false };
    let mut next = meta.entries().map(|(_, handle)| handle.offset).chain([footer.meta_index.offset]);
    if !next.any(|next| index.end() == Some(next)) {
        return false;
    }
    let unpacked = |at: BlockHandle| unpack(footer.checksum, None, &block(at)?, at.offset).ok();
    let properties =
        meta.get(PROPERTIES).and_then(|at| unpack_properties(footer.checksum, &block(at)?, at.offset).ok());
    // Only handles are looked at: in whichever order their keys are.
    let format = properties.map(|properties| properties.index_format(Order::BYTEWISE));
    // Without properties, as for whoever salvages a table.
    let by_default = IndexFormat { delta_encoded: true, user_keys: true, first_keys: false, order: Order::BYTEWISE };
    unpacked(index).is_some_and(|block| is_index(&block, format.unwrap_or(by_default), index.offset))
        && !may_be_of_version_1(format, tail)
}

/// Whether `block` leads to blocks one after another, all before `end`: where there are no checksums, nothing else tells.
fn is_index(block: &[u8], format: IndexFormat, end: u64) -> bool {
    let Ok(layout) = BlockLayout::parse(block) else { return false };
    let (mut cursor, mut last) = (IndexCursor::new(layout, format), 0);
    let mut step = cursor.seek_to_first(block);
    while step.is_ok() && cursor.valid() {
        let Ok(handle) = cursor.handle(block) else { return false };
        let ends_at = handle.end().filter(|ends_at| handle.offset >= last && *ends_at <= end);
        let Some(ends_at) = ends_at else { return false };
        last = ends_at;
        step = cursor.next(block);
    }
    step.is_ok() && last > 0
}

/// A block as it is stored; `None` if it cannot be read, or has a checksum though it is of a table without.
fn stored(file: &dyn ReadFile, checksum: BlockChecksum, handle: BlockHandle, end: u64) -> Option<Vec<u8>> {
    let mut stored = vec![0; handle.stored_bytes(end).ok()?];
    file.read_exact_at(handle.offset, &mut stored).ok()?;
    (!has_unsaid_checksum(checksum, &stored, handle.offset)).then_some(stored)
}

/// Whether a block of a table that claims to have no checksums has one: whoever writes none writes what all blocks at this place would have.
pub(super) fn has_unsaid_checksum(checksum: BlockChecksum, stored: &[u8], offset: u64) -> bool {
    let [_, none @ ..] = checksum.trailer(&[], Compression::None, offset);
    checksum.kind == ChecksumKind::None
        && stored.last_chunk::<TRAILER_BYTES>().is_none_or(|[_, found @ ..]| *found != none)
}

/// Whether the table claims to be older than what is read, which has the same checksums, and its index, by its properties, is none that is newer.
fn may_be_of_version_1(format: Option<IndexFormat>, tail: &[u8]) -> bool {
    let is_older = Footer::claimed_version(tail).is_some_and(|version| version < FORMAT_VERSION_MIN);
    is_older && format.is_none_or(|format| !format.delta_encoded && !format.user_keys)
}
