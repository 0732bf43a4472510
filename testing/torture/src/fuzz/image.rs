//! Directories of real stores, and what a fuzzer makes of them.
//!
//! An input names a store and a list of edits, six bytes each: a file, what to do, where, with what. Most edits leave other bytes
//! where they were, so that checksums can be made good afterwards: with the second bit of the flags, whatever the engine's own
//! checksums cover checks out, and its logic meets nonsense that only a broken writer could have written.

use std::ops::Range;
use std::path::{Path, PathBuf};

use esker::env::FileSystem;
use esker::env::sim::SimDisk;
use esker_format::cask::{data_file, hint, manifest, record};
use esker_format::checksum::{crc32c, crc32c_extend, mask};
use esker_format::compression::{self, Compression};
use esker_format::raft::file_header::FileHeader;
use esker_format::raft::log_batch::{BatchHeader, HEADER_BYTES};
use esker_format::raft::{crc32, file_name};
use esker_format::rocksdb::blob::{BlobFooter, BlobRecordHeader};
use esker_format::rocksdb::block::{BlockLayout, IndexCursor};
use esker_format::rocksdb::log::{Fragment, next_fragment};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::table::{BlockChecksum, BlockHandle, Footer, MetaIndex, TableProperties};

/// Bytes of an edit.
const EDIT_BYTES: usize = 6;
/// Edits of one input: more find nothing that these do not.
const EDITS_MAX: usize = 24;
/// Longest run of zeroes kept at the end of a file: preallocated space is all alike.
const ZEROES_KEPT: usize = 512;
/// Length of a block of a log.
const LOG_BLOCK_BYTES: usize = 32 << 10;

/// A checksum in a file: what it covers, where it stands, how it is made.
struct Seal {
    covers: Range<usize>,
    at: usize,
    rule: Rule,
}

enum Rule {
    /// CRC-32C, masked.
    Masked,
    /// CRC-32C, begun from a salt.
    Salted(u32),
    /// CRC-32 of zip, with a salt.
    Zip(u32),
    /// The trailer of a table's block at this offset.
    Block(BlockChecksum, u64),
}

/// What edits made of a file: nothing, nothing that is left, or other bytes.
type Touched = Option<Option<Vec<u8>>>;

/// A store, and where its checksums are.
pub(super) struct Image {
    disk: SimDisk,
    files: Vec<(PathBuf, Vec<u8>, Vec<Seal>)>,
}

/// What an input asks for beside its edits.
pub(super) struct Wish {
    /// Which store: any number.
    pub(super) image: u8,
    /// Bit 0: how strictly to open; bit 1: checksums are made good; bits 2 and 3: for the engine.
    pub(super) flags: u8,
}

/// The wish at the front of an input, and its edits.
pub(super) fn read(bytes: &[u8]) -> Option<(Wish, &[u8])> {
    let (&[image, flags], edits) = bytes.split_first_chunk::<2>()?;
    Some((Wish { image, flags }, edits))
}

impl Image {
    /// The store that `disk` holds now.
    pub(super) fn new(disk: &SimDisk) -> Self {
        let disk = disk.after_process_death();
        let mut files = Vec::new();
        for path in disk.paths() {
            let mut bytes = disk.file_bytes(&path).unwrap_or_default();
            let written = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(written + ZEROES_KEPT);
            disk.overwrite(&path, bytes.clone());
            files.push((path, bytes));
        }
        let salts: Vec<(PathBuf, u32)> = files
            .iter()
            .filter_map(|(path, bytes)| Some((path.clone(), data_file::DataFileHeader::decode(bytes).ok()?.salt)))
            .collect();
        let with_seals = |(path, bytes): (PathBuf, Vec<u8>)| {
            let salt = salts.iter().find(|(data, _)| data.file_stem() == path.file_stem());
            let seals = seals(&path, &bytes, salt.map_or(0, |(_, salt)| *salt));
            (path, bytes, seals)
        };
        Self { files: files.into_iter().map(with_seals).collect(), disk }
    }

    /// How many files there are, and how many checksums were found in them.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.files.len(), self.files.iter().map(|(_, _, seals)| seals.len()).sum())
    }

    /// How many files `edits` leaves with other bytes, and in how many of them every checksum holds once made good.
    #[cfg(test)]
    fn disturbed(&self, edits: &[u8]) -> (usize, usize) {
        let disk = self.edited(edits, false);
        let is_whole = |bytes: &[u8], seals: &[Seal]| {
            let mut good = bytes.to_vec();
            seals.iter().for_each(|seal| seal.make_good(&mut good));
            good == bytes
        };
        let changed = self.files.iter().filter(|(path, bytes, _)| disk.file_bytes(path).as_ref() != Some(bytes));
        let made_good = self.edited(edits, true);
        let whole = self
            .files
            .iter()
            .filter(|(path, _, seals)| made_good.file_bytes(path).is_some_and(|bytes| is_whole(&bytes, seals)));
        (changed.count(), whole.count())
    }

    /// The files whose names end like this.
    pub(super) fn files<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let wanted = move |path: &Path| path.to_string_lossy().ends_with(end);
        self.files.iter().filter(move |(path, ..)| wanted(path)).map(|(_, bytes, _)| bytes.as_slice())
    }

    /// How long each file is.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.files.iter().map(|(_, bytes, _)| bytes.len())
    }

    /// A disk with the store after `edits`.
    pub(super) fn edited(&self, edits: &[u8], make_good: bool) -> SimDisk {
        let disk = self.disk.after_process_death();
        let mut touched: Vec<Touched> = vec![None; self.files.len()];
        let mut rest = edits;
        for _ in 0..EDITS_MAX {
            let Some((edit, behind)) = rest.split_first_chunk::<EDIT_BYTES>() else { break };
            rest = self.edit(*edit, behind, &mut touched);
        }
        for ((path, _, seals), touched) in self.files.iter().zip(touched) {
            match touched {
                None => {}
                Some(None) => disk.remove(path).expect("it is there"),
                Some(Some(mut bytes)) => {
                    if make_good {
                        seals.iter().for_each(|seal| seal.make_good(&mut bytes));
                    }
                    disk.overwrite(path, bytes);
                }
            }
        }
        disk
    }

    /// Does one edit; returns what of the input is left behind it.
    fn edit<'a>(&self, edit: [u8; EDIT_BYTES], rest: &'a [u8], touched: &mut [Touched]) -> &'a [u8] {
        let [file, what, low, high, first, second] = edit;
        let index = usize::from(file) % self.files.len();
        let Some((_, original, _)) = self.files.get(index) else { return rest };
        let mut bytes = touched[index].take().unwrap_or_else(|| Some(original.clone())).unwrap_or_default();
        let at = usize::from(u16::from_le_bytes([low, high])) % (bytes.len() + 1);
        let mut rest = rest;
        let mut put = |at: usize, new: &[u8]| bytes.iter_mut().skip(at).zip(new).for_each(|(to, from)| *to = *from);
        match what % 16 {
            0..4 => put(at, &[first]),
            4 => put(at, &[first, second]),
            5 => put(at, &u32::from_le_bytes([first, second, first, second]).to_le_bytes()),
            6 => put(
                at,
                &super::EDGES[usize::from(first) % super::EDGES.len()].to_le_bytes()[..usize::from(second % 8) + 1],
            ),
            7 => put(at, &vec![0; usize::from(second) * 4]),
            8 => bytes.truncate(at),
            9 => bytes.extend_from_slice(&vec![first; usize::from(second)]),
            10 => {
                let copied: Vec<u8> =
                    original.iter().skip(usize::from(first) * 16).take(usize::from(second)).copied().collect();
                put(at, &copied);
            }
            11 => {
                let other = &self.files[usize::from(first) % self.files.len()].1;
                bytes = other.clone();
            }
            12 => {
                touched[index] = Some(None);
                return rest;
            }
            13 => {
                let (new, behind) = rest.split_at(usize::from(first).min(rest.len()));
                put(at, new);
                rest = behind;
            }
            14 => {
                let (new, behind) = rest.split_at(usize::from(first).min(rest.len()));
                bytes.splice(at..at, new.iter().copied());
                rest = behind;
            }
            _ => drop(bytes.drain(at..(at + usize::from(first)).min(bytes.len()))),
        }
        touched[index] = Some(Some(bytes));
        rest
    }
}

impl Seal {
    fn make_good(&self, bytes: &mut [u8]) {
        let Some(covered) = bytes.get(self.covers.clone()) else { return };
        let crc = match self.rule {
            Rule::Masked => mask(crc32c(covered)),
            Rule::Salted(salt) => crc32c_extend(salt, covered),
            Rule::Zip(salt) => crc32(covered) ^ salt,
            Rule::Block(checksum, offset) => {
                let Ok(kind) = Compression::from_u8(bytes.get(self.at - 1).copied().unwrap_or(0)) else { return };
                let [_, crc @ ..] = checksum.trailer(covered, kind, offset);
                u32::from_le_bytes(crc)
            }
        };
        bytes.iter_mut().skip(self.at).zip(crc.to_le_bytes()).for_each(|(to, from)| *to = from);
    }
}

/// Where the checksums of a file are, by its name.
fn seals(path: &Path, bytes: &[u8], salt: u32) -> Vec<Seal> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let masked = |covers, at| Seal { covers, at, rule: Rule::Masked };
    match name.rsplit('.').next().unwrap_or_default() {
        "log" => log_seals(bytes),
        "sst" => table_seals(bytes),
        "blob" => blob_seals(bytes, masked),
        "data" => data_seals(bytes, salt),
        "hint" => hint_seals(bytes, salt),
        "raftlog" | "rewrite" => raft_seals(name, bytes),
        "MANIFEST" => {
            let at = bytes.len().saturating_sub(4);
            let is_cask = bytes.starts_with(&manifest::MAGIC);
            is_cask.then_some(Seal { covers: 0..at, at, rule: Rule::Salted(0) }).into_iter().collect()
        }
        _ if name.starts_with("MANIFEST-") => log_seals(bytes),
        _ => Vec::new(),
    }
}

fn log_seals(bytes: &[u8]) -> Vec<Seal> {
    let mut seals = Vec::new();
    for (index, block) in bytes.chunks(LOG_BLOCK_BYTES).enumerate() {
        let base = index * LOG_BLOCK_BYTES;
        let mut at = 0;
        while let Fragment::Whole { next, .. } = next_fragment(block, at, None) {
            seals.push(Seal { covers: base + at + 6..base + next, at: base + at, rule: Rule::Masked });
            at = next;
        }
    }
    seals
}

/// A block of a table: where it lies, and what it unpacks to.
pub(super) type Block = (BlockHandle, Vec<u8>);

/// The blocks of a table: metaindex, index, and the others.
pub(super) fn table_blocks(bytes: &[u8]) -> Option<(Footer, Vec<Block>)> {
    let footer = Footer::decode(bytes, bytes.len() as u64).ok()?;
    let read = |handle: BlockHandle| -> Option<Block> {
        let end = handle.offset as usize + handle.stored_bytes(bytes.len() as u64).ok()?;
        let (data, kind) = footer.checksum.verify(bytes.get(handle.offset as usize..end)?, handle.offset).ok()?;
        let mut out = Vec::new();
        compression::decompress(kind, data, &mut out, 1 << 20).ok()?;
        Some((handle, out))
    };
    let mut blocks = vec![read(footer.meta_index)?, read(footer.index?)?];
    let meta = MetaIndex::decode(&blocks[0].1).ok()?;
    let properties = TableProperties::decode(&read(meta.get("rocksdb.properties")?)?.1).ok()?;
    let index = blocks[1].1.clone();
    let mut cursor = IndexCursor::new(BlockLayout::parse(&index).ok()?, properties.index_format(Order::BYTEWISE));
    cursor.seek_to_first(&index).ok()?;
    while cursor.valid() {
        blocks.push(read(cursor.handle(&index).ok()?)?);
        cursor.next(&index).ok()?;
    }
    let others: Vec<BlockHandle> = meta.entries().map(|(_, handle)| handle).collect();
    blocks.extend(others.into_iter().filter_map(read));
    Some((footer, blocks))
}

fn table_seals(bytes: &[u8]) -> Vec<Seal> {
    let Some((footer, blocks)) = table_blocks(bytes) else { return Vec::new() };
    let seal = |(handle, _): Block| {
        let (start, end) = (handle.offset as usize, (handle.offset + handle.bytes) as usize);
        Seal { covers: start..end, at: end + 1, rule: Rule::Block(footer.checksum, handle.offset) }
    };
    blocks.into_iter().map(seal).collect()
}

fn blob_seals(bytes: &[u8], masked: impl Fn(Range<usize>, usize) -> Seal) -> Vec<Seal> {
    let (mut seals, mut at) = (Vec::new(), 30);
    while let Some(header) = bytes.get(at..).and_then(|raw| BlobRecordHeader::decode(raw).ok()) {
        let Some(end) = header.record_bytes().map(|len| at + len as usize).filter(|&end| end <= bytes.len()) else {
            break;
        };
        seals.extend([masked(at..at + 24, at + 24), masked(at + 32..end, at + 28)]);
        at = end;
    }
    if bytes.get(at..).is_some_and(|raw| BlobFooter::decode(raw).is_ok()) {
        seals.push(masked(at..at + 28, at + 28));
    }
    seals
}

fn data_seals(bytes: &[u8], salt: u32) -> Vec<Seal> {
    let mut seals = vec![Seal { covers: 0..28, at: 28, rule: Rule::Salted(0) }];
    let mut at = data_file::HEADER_BYTES;
    while let Some(found) = bytes.get(at..).and_then(|raw| record::Record::decode(raw).ok()) {
        let end = at + found.bytes() as usize;
        seals.push(Seal { covers: at + 4..end, at, rule: Rule::Salted(salt) });
        at = end;
    }
    seals
}

fn hint_seals(bytes: &[u8], salt: u32) -> Vec<Seal> {
    let Some(blocks) = bytes.len().checked_sub(hint::FOOTER_BYTES) else { return Vec::new() };
    let mut seals = vec![Seal { covers: blocks..bytes.len() - 4, at: bytes.len() - 4, rule: Rule::Salted(0) }];
    let mut at = 0;
    while let Some((_, count)) = bytes.get(at..blocks).and_then(|raw| hint::Block::decode(raw, salt).ok()) {
        seals.push(Seal { covers: at + 4..at + count, at, rule: Rule::Salted(salt) });
        at += count;
    }
    seals
}

fn raft_seals(name: &str, bytes: &[u8]) -> Vec<Seal> {
    let Ok(header) = FileHeader::decode(bytes) else { return Vec::new() };
    let Some(file_name::FileName::Log(file)) = file_name::FileName::parse(name) else { return Vec::new() };
    let (mut seals, mut at) = (Vec::new(), header.len_bytes());
    while let Some(batch) = bytes
        .get(at..)
        .and_then(|raw| raw.first_chunk::<HEADER_BYTES>())
        .and_then(|raw| BatchHeader::decode(raw).ok())
        .filter(|batch| (at as u64).saturating_add(batch.len) <= bytes.len() as u64)
    {
        for (range, salt) in [(batch.entries(), 0), (batch.items(), header.version.salt(file.sequence))] {
            if range.end - range.start > 4 {
                let (start, end) = (at + range.start as usize, at + range.end as usize - 4);
                seals.push(Seal { covers: start..end, at: end, rule: Rule::Zip(salt) });
            }
        }
        at += batch.len as usize;
    }
    seals
}

#[cfg(test)]
mod tests {
    use super::super::open::images;

    /// Goal: the checksums of every kind of file are found, hold as the engine wrote them, and are made good after an edit.
    #[test]
    fn checksums_are_found_hold_and_are_made_good() {
        for (kind, least) in [("open_db", 30), ("open_cask", 60), ("open_raft_log", 40)] {
            for image in images(kind) {
                let (files, seals) = image.counts();
                assert!(seals >= least, "{kind}: {seals} checksums in {files} files");
                assert_eq!(image.disturbed(&[]), (0, files), "{kind}: as the engine wrote them");
                for file in 0..files as u8 {
                    let (changed, whole) = image.disturbed(&[file, 0, 70, 0, 0xa5, 0]);
                    assert!(changed <= 1);
                    assert_eq!(whole, files, "{kind}: file {file}, made good");
                }
            }
        }
    }
}
