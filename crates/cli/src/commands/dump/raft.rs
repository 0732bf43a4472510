//! Files of a Raft log: batches, and what they do.

use esker_format::DecodeError;
use esker_format::raft::entries::{Packing, unpack};
use esker_format::raft::file_header::{FileHeader, LEN_BYTES_MAX};
use esker_format::raft::file_name::FileId;
use esker_format::raft::item::{Action, Entries, Item, Items};
use esker_format::raft::log_batch::{BatchHeader, HEADER_BYTES, checked};
use esker_format::zeroes::is_zero;

use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// What to print of a file, and how to read it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// Which file it is; if that is not known, its checksums are taken to be salted as the first batch's.
    pub(crate) id: Option<FileId>,
    /// Only these groups; all if there are none.
    pub(crate) groups: &'a [u64],
    /// It is the last of its queue: it may end with anything.
    pub(crate) is_last: bool,
}

/// Prints a file batch by batch. Each says where the next begins, so the first that is damaged is the last.
pub(crate) fn dump(source: &Source, wanted: Wanted<'_>, report: &mut Report<'_>) -> Result<(), Failure> {
    let header = match FileHeader::decode(&source.read(0, LEN_BYTES_MAX)?) {
        Ok(header) => header,
        Err(error) => return report.damage(0, &error),
    };
    let fields = vec![Field::plain("version", header.version.as_u64()), Field::plain("alignment", header.alignment)];
    report.note(0, "header", fields)?;
    let mut salt = wanted.id.map(|id| header.version.salt(id.sequence));
    let mut offset = header.len_bytes() as u64;
    while offset < source.bytes && !report.is_over() {
        match read(source, offset, salt) {
            Ok(batch) => {
                salt = Some(batch.salt);
                print(offset, &batch, wanted, report)?;
                offset += batch.header.len;
            }
            Err(Miss::Failed(failure)) => return Err(failure),
            Err(Miss::Damaged(error)) => match padding(source, offset, header.alignment)? {
                Some(next) => offset = next,
                None => return end(source, offset, &error, wanted, report),
            },
        }
    }
    Ok(())
}

/// A batch whose items hold.
struct Batch {
    header: BatchHeader,
    raw: Vec<u8>,
    salt: u32,
}

impl Batch {
    fn part(&self, range: std::ops::Range<u64>) -> &[u8] {
        self.raw.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}

/// Why there is no batch.
enum Miss {
    Failed(Failure),
    Damaged(DecodeError),
}

impl From<Failure> for Miss {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<DecodeError> for Miss {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error)
    }
}

/// The batch at `offset`.
fn read(source: &Source, offset: u64, salt: Option<u32>) -> Result<Batch, Miss> {
    let raw = source.read(offset, HEADER_BYTES)?;
    let Some(head) = raw.first_chunk::<HEADER_BYTES>() else {
        return Err(DecodeError::corrupt("batch header", 0, format!("{} bytes are too few", raw.len())).into());
    };
    let header = BatchHeader::decode(head)?;
    if header.len > source.bytes - offset {
        let reason = format!("{}, {} are left", header.len, source.bytes - offset);
        return Err(DecodeError::corrupt("batch length", 0, reason).into());
    }
    let mut batch = Batch { header, raw: source.read(offset, header.len as usize)?, salt: 0 };
    let items = batch.part(header.items());
    let salt = salt.unwrap_or_else(|| own_salt(items));
    checked("items", items, salt).map_err(|error| error.at_base(header.items_offset))?;
    batch.salt = salt;
    Ok(batch)
}

/// What the checksum of an item block is salted with, if the block is right.
fn own_salt(items: &[u8]) -> u32 {
    items
        .split_last_chunk::<4>()
        .map_or(0, |(body, stored)| u32::from_le_bytes(*stored) ^ esker_format::raft::crc32(body))
}

/// The next place where a batch may begin, if there are only zeroes before it.
fn padding(source: &Source, offset: u64, alignment: u64) -> Result<Option<u64>, Failure> {
    if alignment == 0 || offset.is_multiple_of(alignment) {
        return Ok(None);
    }
    let next = offset.next_multiple_of(alignment);
    let Ok(count) = usize::try_from(next - offset) else { return Ok(None) };
    let is_padding = next <= source.bytes && is_zero(&source.read(offset, count)?);
    Ok(is_padding.then_some(next))
}

/// There is no batch at `offset`.
fn end(
    source: &Source,
    offset: u64,
    error: &DecodeError,
    wanted: Wanted<'_>,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let left = vec![Field::plain("bytes", source.bytes - offset)];
    match (is_zero(&source.read(offset, HEADER_BYTES)?), wanted.is_last) {
        (true, _) => report.note(offset, "zeroes", left),
        (false, true) => report.note(offset, "end: no batch follows", left),
        (false, false) => report.damage(offset, error),
    }
}

fn print(offset: u64, batch: &Batch, wanted: Wanted<'_>, report: &mut Report<'_>) -> Result<(), Failure> {
    let header = &batch.header;
    let block = batch.part(header.items());
    let read = Items::new(block.get(..block.len().saturating_sub(4)).unwrap_or_default());
    let mut items = match read {
        Ok(items) => items,
        Err(error) => return report.damage(offset + header.items_offset, &error),
    };
    if wanted.groups.is_empty() {
        let packing = match header.packing {
            Packing::None => "none",
            Packing::Lz4 => "lz4",
        };
        let fields = vec![
            Field::plain("items", items.left()),
            Field::plain("bytes", header.len),
            Field::plain("packing", packing),
        ];
        report.note(offset, "batch", fields)?;
    }
    let entries = match unpacked(batch) {
        Ok(entries) => entries,
        Err(error) => return report.damage(offset, &error),
    };
    loop {
        match items.read() {
            Ok(Some(item)) if wanted.groups.is_empty() || wanted.groups.contains(&item.group) => {
                self::item(offset, &item, &entries, report)?;
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) => return report.damage(offset + header.items_offset, &error),
        }
    }
}

/// The bytes of all entries.
fn unpacked(batch: &Batch) -> Result<Vec<u8>, DecodeError> {
    let block = batch.part(batch.header.entries());
    if block.is_empty() {
        return Ok(Vec::new());
    }
    let base = |error: DecodeError| error.at_base(HEADER_BYTES as u64);
    let block = checked("entries", block, 0).map_err(base)?;
    match batch.header.packing {
        Packing::None => Ok(block.to_vec()),
        Packing::Lz4 => {
            let mut raw = Vec::new();
            unpack(block, &mut raw).map(|()| raw).map_err(base)
        }
    }
}

fn item(offset: u64, item: &Item<'_>, entries: &[u8], report: &mut Report<'_>) -> Result<(), Failure> {
    let group = || Field::plain("group", item.group);
    if let Some((atomic, status)) = item.atomic_marker() {
        let status = format!("{status:?}").to_lowercase();
        return report.note(offset, "atomic", vec![Field::plain("number", atomic), Field::plain("part", status)]);
    }
    match &item.action {
        Action::Entries(found) => print_entries(offset, item.group, found, entries, report),
        Action::Clean => report.entry(offset, "clean", vec![group()]),
        Action::Compact { index } => report.entry(offset, "compact", vec![group(), Field::plain("index", *index)]),
        Action::Put { key, value } => report.keyed(offset, "put", key, vec![group(), Field::bytes("value", value)]),
        Action::Delete { key } => report.keyed(offset, "delete", key, vec![group()]),
    }
}

/// Which entries there are; one by one, unless only keys are asked for.
fn print_entries(
    offset: u64,
    group: u64,
    found: &Entries<'_>,
    entries: &[u8],
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    if report.keys_only() {
        let fields = vec![
            Field::plain("group", group),
            Field::plain("first", found.first_index),
            Field::plain("count", found.count),
        ];
        return report.entry(offset, "entries", fields);
    }
    for (range, index) in found.ranges().zip(found.first_index..) {
        let Some(bytes) = entries.get(range.start as usize..range.end as usize) else {
            return report.damage(offset, &DecodeError::corrupt("entry end", 0, "lies behind the entries"));
        };
        let fields = vec![Field::plain("group", group), Field::plain("index", index), Field::bytes("value", bytes)];
        report.entry(offset, "entry", fields)?;
    }
    Ok(())
}
