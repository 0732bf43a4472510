//! Reading a file from front to back: which batches are whole, what they do, and how the file ends.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use esker_env::os::prefetch;
use esker_env::{Access, FileSystem, Mapping};
use esker_format::raft::closed::NAME;
use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_header::{self, FileHeader, Version};
use esker_format::raft::file_name::{FileId, Queue};
use esker_format::raft::item::{Action, Item, Items};
use esker_format::raft::log_batch::{BatchHeader, CHECKSUM_BYTES, HEADER_BYTES, checked, signed_with};
use esker_format::zeroes::is_zero;
use esker_format::{DecodeError, DecodeErrorKind};

use super::changes::{Changes, Gatherer};
use super::files::Found;
use crate::group::Marker;
use crate::queue::FIRST_SEQUENCE;
use crate::{Error, ErrorKind, Result};

/// What a device writes whole or not at all (env's fault model).
const SECTOR_BYTES: usize = 512;

/// Zeroes that are read behind what was written to a preallocated file: more than padding, and than what tells that nothing was written.
const ZEROES_KEPT: usize = 64 << 10;

/// How a file ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With its last batch.
    Whole,
    /// With zeroes, or a batch of the file's earlier life, where a batch would begin: preallocated or recycled, and not
    /// written to, or not to the end.
    Unwritten,
    /// With bytes that are no batch.
    Torn(Error),
    /// With a batch that was written to its end and is another now, which no crash does.
    Rotten(Error),
}

/// Who may write to a log while its files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The log is locked.
    Nobody,
    /// Whoever has it open: files may be cut, which ends a process that touches what is gone of a mapping, and written over.
    Anybody,
}

/// A file's bytes.
#[derive(Debug)]
pub(crate) enum Source {
    Mapped(Arc<dyn Mapping>),
    /// Without zeroes at its end, but for [`ZEROES_KEPT`]; and how long it is.
    Read(Vec<u8>, u64),
}

impl Source {
    /// The file at `path`, mapped or copied.
    pub(crate) fn open(files: &dyn FileSystem, path: &Path, beside: Beside) -> Result<Self> {
        match beside {
            Beside::Nobody => Self::map(files, path),
            Beside::Anybody => Self::read(files, path).map_err(given_up),
        }
    }

    fn map(files: &dyn FileSystem, path: &Path) -> Result<Self> {
        let file = files.open(path)?;
        file.advise(Access::Sequential);
        match file.map() {
            Ok(Some(mapping)) => Ok(Self::Mapped(mapping)),
            _ => Ok(Self::read(files, path)?),
        }
    }

    fn read(files: &dyn FileSystem, path: &Path) -> esker_env::Result<Self> {
        files.read_written(path, ZEROES_KEPT).map(|(bytes, len)| Self::Read(bytes, len))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Read(bytes, _) => bytes,
        }
    }

    /// How long the file is.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.bytes().len() as u64,
            Self::Read(_, len) => *len,
        }
    }
}

/// Why a file of a log that somebody has open cannot be had: it was listed, so one that is not found was given up since.
pub(crate) fn given_up(error: esker_env::Error) -> Error {
    let error = Error::from(error);
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    error
        .while_doing("the log gave the file up while it was read; look again, or when the log is closed")
        .with_kind(ErrorKind::Io)
}

/// Some batches of a file, in order.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: FileId,
    pub(crate) changes: Changes,
    /// Part of an atomic group; then it is one batch.
    pub(crate) marker: Option<Marker>,
    /// The files of the atomic group that it belongs to, once that is known.
    pub(crate) atomic: Option<(u64, u64)>,
}

/// What a file holds.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// `None` if the header is no header.
    pub(crate) header: Option<FileHeader>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) batches: u64,
    /// Entries and keys in a file of the rewrite queue, dead ones too, and what says that some are gone.
    pub(crate) rewritten: u64,
    /// Where the last whole batch ends.
    pub(crate) valid_len: u64,
    pub(crate) file_len: u64,
    pub(crate) ending: Ending,
}

/// How to scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// How many workers will do what batches say.
    pub(crate) workers: usize,
    /// Whether the entries of every batch are checked, not only those of the file's last one: in files that were never synced as a whole.
    pub(crate) entries: bool,
    /// Whether the file may have had another life: what did not reach the disk of it is not zeroes then.
    pub(crate) may_be_recycled: bool,
    /// The first file of the queue: of what is recycled, no file with its earlier number is there.
    pub(crate) first: u64,
    pub(crate) beside: Beside,
}

impl How {
    /// For a file of a queue with `first` and `last` files: the first number that there was is only there while no file was given up.
    pub(crate) fn of(found: &Found, queue: &[Found], workers: usize, beside: Beside) -> Self {
        let first = queue.first().map_or(found.id, |first| first.id).sequence;
        let (entries, may_be_recycled) =
            (queue.last().is_some_and(|last| last.id == found.id), first != FIRST_SEQUENCE);
        Self { workers, entries, may_be_recycled, first, beside }
    }
}

/// One batch in a file.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) header: BatchHeader,
    pub(crate) items: &'a [u8],
}

/// Walks over the batches of a file.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    header: FileHeader,
    salt: u32,
    how: How,
    pub(crate) offset: usize,
    /// What the last batch does.
    pub(crate) items: Vec<Item<'a>>,
}

/// What a walk met.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Batch(usize, Batch<'a>),
    End,
    Unwritten,
    Torn(DecodeError),
    Rotten(DecodeError),
}

impl<'a> Walk<'a> {
    pub(crate) fn new(bytes: &'a [u8], header: FileHeader, id: FileId, how: How) -> Self {
        let salt = header.version.salt(id.sequence);
        Self { bytes, header, salt, how, offset: header.len_bytes(), items: Vec::new() }
    }

    pub(crate) fn step(&mut self) -> Step<'a> {
        loop {
            let rest = self.bytes.get(self.offset..).unwrap_or_default();
            if rest.is_empty() {
                return Step::End;
            }
            match self.batch(rest) {
                Ok(batch) => {
                    let at = self.offset;
                    self.offset += batch.header.len as usize;
                    self.prefetch();
                    return Step::Batch(at, batch);
                }
                Err(_) if self.skips_padding(rest) => {}
                Err(error) => {
                    // The front of what is appended at once is written last, and never zero.
                    let front = rest.get(..esker_env::COMMIT_BYTES.min(rest.len())).unwrap_or_default();
                    if is_zero(front) {
                        return Step::Unwritten;
                    }
                    let error = error.at_base(self.offset as u64);
                    match self.earlier_life(rest) {
                        // Behind batches of its own there is nothing that could be missed.
                        Some(number) if self.is_at_start() && number >= self.how.first => {
                            return Step::Rotten(of_another(error, number));
                        }
                        Some(_) => return Step::Unwritten,
                        None => {}
                    }
                    return if self.is_rotten(rest) { Step::Rotten(error) } else { Step::Torn(error) };
                }
            }
        }
    }

    /// Asks for the next batch's items: between those of one batch and of the next lie entries, which nobody looks at.
    fn prefetch(&self) {
        let next = self.bytes.get(self.offset..).unwrap_or_default();
        let Some(Ok(header)) = next.first_chunk().map(BatchHeader::decode) else { return };
        let items = header.items();
        if let Some(items) = next.get(items.start as usize..next.len().min(items.end as usize)) {
            prefetch(items);
        }
    }

    /// Whether what is no batch was one: with another byte in its header, of a sector that is not missing, it still is; or the next
    /// follows where it says, and none of its sectors is missing.
    #[cold]
    fn is_rotten(&mut self, rest: &'a [u8]) -> bool {
        self.is_one_byte_from_whole(rest) || !self.how.may_be_recycled && self.is_followed(rest)
    }

    fn is_followed(&mut self, rest: &'a [u8]) -> bool {
        let Some(length) = rest.first_chunk().and_then(|head| usize::try_from(u64::from_be_bytes(*head) >> 8).ok())
        else {
            return false;
        };
        let Some(next) = rest.get(length..).filter(|_| length > 0) else { return false };
        let (from, to) = (self.offset, self.offset + length);
        let first_sector = from - from % SECTOR_BYTES;
        let is_missing = |sector: usize| {
            let end = (sector + SECTOR_BYTES).min(self.bytes.len());
            self.bytes.get(sector.max(from)..end).is_some_and(is_zero)
        };
        !(first_sector..to).step_by(SECTOR_BYTES).any(is_missing) && self.batch(next).is_ok()
    }

    fn is_one_byte_from_whole(&mut self, rest: &'a [u8]) -> bool {
        let Some(head) = rest.first_chunk::<HEADER_BYTES>() else { return false };
        // The front of a header that goes on in the next sector may never have reached the disk, which is no rot. Zeroes are there then,
        // in a recycled file too: they go ahead of what is written over.
        let front = SECTOR_BYTES - self.offset % SECTOR_BYTES;
        let start = if head.get(..front).is_some_and(is_zero) { front } else { 0 };
        // Nor may the sector that it goes on in.
        let behind = rest.get(front..rest.len().min(front + SECTOR_BYTES)).filter(|_| front < HEADER_BYTES);
        let end = if behind.is_some_and(is_zero) { front } else { HEADER_BYTES };
        for at in start..end {
            let mut other = *head;
            for _ in u8::MIN..u8::MAX {
                if let Some(byte) = other.get_mut(at) {
                    *byte = byte.wrapping_add(1);
                }
                // Most lengths are out of the question, and saying why takes time.
                let length = u64::from_be_bytes(other.first_chunk().copied().unwrap_or_default()) >> 8;
                if length <= rest.len() as u64
                    && BatchHeader::decode(&other).is_ok_and(|header| self.batch_of(header, rest).is_ok())
                {
                    return true;
                }
            }
        }
        false
    }

    fn is_at_start(&self) -> bool {
        self.offset <= self.header.len_bytes()
    }

    /// The earlier number with which the file had the batch that is there, before it was recycled.
    fn earlier_life(&self, rest: &[u8]) -> Option<u64> {
        let header = BatchHeader::decode(rest.first_chunk()?).ok()?;
        let Range { start, end } = header.items();
        let items = rest.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
        let salt =
            signed_with(items).filter(|salt| self.header.version != Version::V1 && (1..self.salt).contains(salt))?;
        Some(salt.into())
    }

    /// Goes to the next aligned place, if there are only zeroes before it.
    fn skips_padding(&mut self, rest: &[u8]) -> bool {
        let Ok(alignment) = usize::try_from(self.header.alignment) else { return false };
        if alignment == 0 || self.offset.is_multiple_of(alignment) {
            return false;
        }
        let padding = alignment - self.offset % alignment;
        let is_padded = rest.get(..padding).is_some_and(is_zero);
        if is_padded {
            self.offset += padding;
        }
        is_padded
    }

    #[inline]
    fn batch(&mut self, rest: &'a [u8]) -> std::result::Result<Batch<'a>, DecodeError> {
        let Some(head) = rest.first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::corrupt("batch header", 0, format!("{} bytes are too few", rest.len())));
        };
        self.batch_of(BatchHeader::decode(head)?, rest)
    }

    #[inline]
    fn batch_of(&mut self, header: BatchHeader, rest: &'a [u8]) -> std::result::Result<Batch<'a>, DecodeError> {
        let Some(whole) = usize::try_from(header.len).ok().and_then(|len| rest.get(..len)) else {
            let reason = format!("{}, and nothing was written behind {} of them", header.len, rest.len());
            return Err(DecodeError::corrupt("batch length", 0, reason));
        };
        let part = |range: Range<u64>| whole.get(range.start as usize..range.end as usize).unwrap_or_default();
        let at_items = |error: DecodeError| error.at_base(header.items_offset);
        let items = checked("items", part(header.items()), self.salt).map_err(at_items)?;
        let block = part(header.entries());
        if self.how.entries && !block.is_empty() {
            checked("entries", block, 0).map_err(|error| error.at_base(HEADER_BYTES as u64))?;
        }
        self.check_items(&header, items, block).map_err(at_items)?;
        Ok(Batch { header, items })
    }

    /// Every item reads, and entries lie within their block.
    #[inline]
    fn check_items(
        &mut self,
        header: &BatchHeader,
        items: &'a [u8],
        block: &[u8],
    ) -> std::result::Result<(), DecodeError> {
        self.items.clear();
        let mut reader = Items::new(items)?;
        while let Some(item) = reader.read()? {
            self.items.push(item);
        }
        // How they are packed is under no checksum.
        let stored = block.split_last_chunk::<CHECKSUM_BYTES>().map_or(&[][..], |(stored, _)| stored);
        let held = match header.packing {
            Packing::None => stored.len(),
            Packing::Lz4 => entries::raw_bytes(stored)?,
        };
        if reader.entries_end() as usize > held {
            let reason = format!("{}, the entries have {held} bytes", reader.entries_end());
            return Err(DecodeError::corrupt("entry end", 0, reason));
        }
        Ok(())
    }
}

/// That a batch is of the file `number`, which is there as well.
fn of_another(error: DecodeError, number: u64) -> DecodeError {
    let reason = format!(
        "it is of the file with the number {number}, which is there, too: this is a copy under another name; give it back what it was"
    );
    DecodeError { reason: reason.into(), ..error }
}

/// Scans a whole file.
///
/// # Errors
/// Only if the file cannot be read, or its version is not known.
pub(crate) fn scan(files: &dyn FileSystem, found: &Found, how: How) -> Result<Scanned> {
    let source = Arc::new(Source::open(files, &found.path, how.beside)?);
    let bytes = source.bytes();
    let file_len = source.len();
    let head = bytes.get(..file_header::LEN_BYTES_MAX.min(bytes.len())).unwrap_or_default();
    let header = match FileHeader::decode(head) {
        Ok(header) => header,
        Err(error) if error.kind == DecodeErrorKind::Unsupported => {
            return Err(Error::decode(&found.path, 0, "reading a file's header", error));
        }
        Err(error) => {
            let error = Error::decode(&found.path, 0, "reading a file's header", error);
            let ending = not_before_closed(found, 0, without_header(bytes, error));
            let segments = Vec::new();
            return Ok(Scanned { header: None, segments, batches: 0, rewritten: 0, valid_len: 0, file_len, ending });
        }
    };
    let mut walk = Walk::new(bytes, header, found.id, how);
    let mut segments = Segments {
        file: found.id,
        workers: how.workers,
        done: Vec::new(),
        gatherer: Gatherer::default(),
        rewritten: 0,
    };
    // The batch before, until it is known whether another follows.
    let mut held: Option<(usize, Batch<'_>)> = None;
    let mut held_items = Vec::new();
    let (mut batches, mut valid_len) = (0, walk.offset as u64);
    let mut ending = loop {
        match walk.step() {
            Step::Batch(offset, batch) => {
                if let Some((offset, _)) = held.replace((offset, batch)) {
                    segments.add(offset, &held_items);
                }
                std::mem::swap(&mut held_items, &mut walk.items);
                batches += 1;
                valid_len = walk.offset as u64;
            }
            Step::End => break Ending::Whole,
            Step::Unwritten => break Ending::Unwritten,
            Step::Torn(error) => break Ending::Torn(Error::decode(&found.path, 0, "reading a batch", error)),
            Step::Rotten(error) => break Ending::Rotten(Error::decode(&found.path, 0, "reading a batch", error)),
        }
    };
    if let Some((offset, batch)) = held {
        match check_entries(bytes, offset, &batch.header) {
            Ok(()) => segments.add(offset, &held_items),
            Err(error) => {
                let error = error.at_base((offset + HEADER_BYTES) as u64);
                ending = Ending::Rotten(Error::decode(&found.path, 0, "reading a file's last batch", error));
                (batches, valid_len) = (batches - 1, offset as u64);
            }
        }
    }
    let ending = not_before_closed(found, valid_len, ending);
    let rewritten = segments.rewritten;
    Ok(Scanned { header: Some(header), segments: segments.end(), batches, rewritten, valid_len, file_len, ending })
}

/// What is wrong with a file whose whole batches end at `valid_len`, if there were more when the log was closed (N1).
pub(crate) fn lost_since_closed(found: &Found, valid_len: u64) -> Option<String> {
    let bytes = found.closed_bytes;
    (valid_len < bytes)
        .then(|| {
            format!(
                "no batch is whole from here on, though the log was closed with {bytes} bytes of them, according to the file {NAME} in its \
                 directory; remove that if files were shortened or restored on purpose"
            )
        })
}

/// No crash takes what a log was closed with.
fn not_before_closed(found: &Found, valid_len: u64, ending: Ending) -> Ending {
    match (lost_since_closed(found, valid_len), ending) {
        (Some(reason), Ending::Torn(error)) => Ending::Rotten(error.while_doing(reason)),
        (Some(reason), Ending::Whole | Ending::Unwritten) => {
            Ending::Rotten(Error::corruption(&found.path, valid_len, reason))
        }
        (_, ending) => ending,
    }
}

/// How a file ends whose header is none. It gets its blocks, then its header, and that is durable before anything follows: a
/// crash leaves zeroes, or a part of the header before nothing else.
pub(crate) fn without_header(bytes: &[u8], error: Error) -> Ending {
    if is_zero(bytes.get(..esker_env::COMMIT_BYTES).unwrap_or(bytes)) {
        Ending::Unwritten
    } else if bytes.get(file_header::LEN_BYTES_MAX..).is_none_or(is_zero) {
        Ending::Torn(error)
    } else {
        Ending::Rotten(error)
    }
}

/// Whether the entries of the batch at `offset` are what was written.
fn check_entries(bytes: &[u8], offset: usize, header: &BatchHeader) -> std::result::Result<(), DecodeError> {
    let range = header.entries();
    if range.is_empty() {
        return Ok(());
    }
    let batch = bytes.get(offset..).unwrap_or_default();
    checked("entries", batch.get(range.start as usize..range.end as usize).unwrap_or_default(), 0).map(drop)
}

/// Entries and keys that an item puts; what takes any away is one, too.
fn count_of(item: &Item<'_>) -> u64 {
    match &item.action {
        Action::Entries(entries) => entries.count,
        Action::Put { .. } | Action::Delete { .. } => u64::from(!item.is_internal()),
        Action::Compact { .. } | Action::Clean => 1,
    }
}

struct Segments<'a> {
    file: FileId,
    workers: usize,
    done: Vec<Segment>,
    gatherer: Gatherer<'a>,
    /// See [`Scanned::rewritten`].
    rewritten: u64,
}

impl<'a> Segments<'a> {
    fn add(&mut self, offset: usize, items: &[Item<'a>]) {
        // Only the rewrite queue has atomic groups.
        let is_rewritten = self.file.queue == Queue::Rewrite;
        let marker = if is_rewritten { items.iter().find_map(Item::atomic_marker) } else { None };
        if is_rewritten {
            self.rewritten += items.iter().map(count_of).sum::<u64>();
        }
        if marker.is_some() {
            self.end_segment(None);
        }
        self.gatherer.add(self.file, offset as u64, items);
        if marker.is_some() {
            self.end_segment(marker);
        }
    }

    fn end_segment(&mut self, marker: Option<Marker>) {
        // A marker counts, whatever else is in its batch.
        if marker.is_some() || !self.gatherer.is_empty() {
            let changes = self.gatherer.take(self.workers);
            self.done.push(Segment { file: self.file, changes, marker, atomic: None });
        }
    }

    fn end(mut self) -> Vec<Segment> {
        self.end_segment(None);
        self.done
    }
}

#[cfg(test)]
mod tests {
    use std::mem::discriminant;

    use esker_env::Env;

    use super::*;
    use crate::open::files::list;
    use crate::{LogBatch, Options, RaftLog, RecoveryMode};

    /// Goal: of a preallocated file what was written takes memory, and wherever it is torn, no more is told of it, nor less, than with all zeroes there.
    #[test]
    fn zeroes_behind_what_was_written_take_no_memory_and_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = RaftLog::open(dir.path(), Options { recycle_files: false, ..Options::default() }).unwrap();
        for index in 1..=5u8 {
            let mut batch = LogBatch::new();
            batch.add_entries(7, index.into(), [vec![index; usize::from(index) * 300]]).unwrap();
            batch.put(7, b"zeroes", &[0; 700]).unwrap();
            log.write(&mut batch, true).unwrap();
        }
        log.close().unwrap();
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        let files = Env::os().files;
        let listing = list(&*files, &[dir.path().to_owned()]).unwrap();
        let found = &listing.append[0];
        let written = std::fs::read(&found.path).unwrap();
        let whole = written.len() + (1 << 20);
        let mut endings = std::collections::HashSet::new();
        for torn in (0..=written.len()).step_by(29).chain([written.len()]) {
            let mut bytes = written[..torn].to_vec();
            bytes.resize(whole, 0);
            std::fs::write(&found.path, bytes).unwrap();
            let [read, mapped] = [Beside::Anybody, Beside::Nobody].map(|beside| {
                let scanned = scan(&*files, found, How::of(found, &listing.append, 1, beside)).unwrap();
                let Scanned { batches, valid_len, file_len, ending, .. } = scanned;
                (batches, valid_len, file_len, discriminant(&ending))
            });
            assert_eq!(read, mapped, "torn at {torn}");
            endings.insert(read.3);
            let source = Source::open(&*files, &found.path, Beside::Anybody).unwrap();
            assert_eq!(source.len(), whole as u64);
            assert!(source.bytes().len() <= torn + ZEROES_KEPT, "torn at {torn}: {}", source.bytes().len());
        }
        assert!(endings.len() > 1);
    }

    /// As the original does: of each file the last batch's entries are looked at, too.
    #[test]
    fn rot_in_the_entries_of_an_old_files_last_batch_is_noticed_when_opening() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { file_bytes: 1 << 10, compress_from_bytes: 0, ..Options::default() };
        let log = RaftLog::open(dir.path(), options.clone()).unwrap();
        for index in 1..=5 {
            let mut batch = LogBatch::new();
            batch.add_entries(7, index, [[index as u8; 700]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        drop(log);
        let old = dir.path().join("0000000000000001.raftlog");
        let mut bytes = std::fs::read(&old).unwrap();
        let at = bytes.windows(9).position(|entry| entry == [2; 9]).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&old, bytes).unwrap();
        let error = RaftLog::open(dir.path(), options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let options = Options { recovery_mode: RecoveryMode::TolerateAny, ..options };
        let log = RaftLog::open(dir.path(), options).unwrap();
        assert_eq!(log.recovery().cuts.len(), 1);
        assert_eq!((log.first_index(7), log.last_index(7)), (Some(3), Some(5)), "there is a gap where the batch was");
    }

    /// Whatever is put, deleted and cleaned in a file, in whatever order: of the puts that are left out, none was the last word.
    #[test]
    fn keys_have_after_an_open_what_they_had_before() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let dir = tempfile::tempdir().unwrap();
            let options =
                Options { recovery_threads: 1 + seed as usize % 3, recycle_files: false, ..Options::default() };
            let mut log = RaftLog::open(dir.path(), options.clone()).unwrap();
            for _ in 0..3 {
                for _ in 0..30 {
                    let mut batch = LogBatch::new();
                    for _ in 0..random.usize(1..6) {
                        let (group, key) = (random.u64(1..4), [b'k', random.u8(0..3)]);
                        match random.u32(..10) {
                            0 => batch.clean(group),
                            1 | 2 => batch.delete(group, &key),
                            3 => batch.put(group, b"other", &[random.u8(..)]).unwrap(),
                            _ => batch.put(group, &key, &vec![random.u8(..); random.usize(..9)]).unwrap(),
                        }
                    }
                    log.write(&mut batch, false).unwrap();
                }
                let held = |log: &RaftLog| (1..4).map(|group| log.keys(group, None, None)).collect::<Vec<_>>();
                let (groups, keys) = (log.groups(), held(&log));
                drop(log);
                log = RaftLog::open(dir.path(), options.clone()).unwrap();
                assert_eq!((log.groups(), held(&log)), (groups, keys), "seed {seed}");
            }
        }
    }
}
