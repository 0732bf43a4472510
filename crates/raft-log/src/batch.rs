//! What is written at once: entries, commands, keys of any number of groups. All of it counts, or nothing.
//!
//! Entries and items are encoded as they come, so that writing a batch moves bytes and nothing else.

use std::cell::{Cell, RefCell};
use std::fmt;

use esker_format::limits::TooLarge;
use esker_format::raft::entries::{self, ENTRIES_BYTES_MAX, PACKED_BYTES_MAX, Packing};
use esker_format::raft::item::{self, ATOMIC_GROUP_KEY, Action, AtomicStatus, Item, Items};
use esker_format::raft::log_batch::{BatchHeader, CHECKSUM_BYTES, HEADER_BYTES};
use esker_format::raft::{crc32, crc32_extend};
use esker_format::varint;

use crate::{Error, ErrorKind, Refusal, Result};

/// Longest key or value: what fits a batch whose entries have a 31-bit length comfortably fits here too.
pub const KEY_VALUE_BYTES_MAX: usize = ENTRIES_BYTES_MAX;
/// What a batch keeps of its memory for the next use.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// What a thread keeps of the memory of batches that are gone: so many buffers, and no larger ones.
const SPARES_MAX: usize = 6;
const SPARE_BYTES_MAX: usize = 128 << 10;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// One for [`LogBatch::ends`], and no larger one either.
    static SPARE_ENDS: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

/// A buffer that an earlier batch of this thread is done with, or a new one: users make a batch for each write, and growing its
/// memory again costs a tenth of that.
fn spare() -> Vec<u8> {
    let kept = SPARES.try_with(|spares| spares.try_borrow_mut().ok()?.pop());
    kept.ok().flatten().unwrap_or_default()
}

fn give_back(mut buffer: Vec<u8>) {
    if !(1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    // A thread that is ending keeps nothing.
    let _ = SPARES.try_with(|spares| {
        if let Ok(mut spares) = spares.try_borrow_mut()
            && spares.len() < SPARES_MAX
        {
            spares.push(buffer);
        }
    });
}

/// How entries of one type are told apart and put into bytes, for those who do not store bytes. The type may be another crate's, such as the
/// `Entry` of [raft](https://docs.rs/raft), since the codec is a type of its own.
///
/// ```
/// # mod esker { pub mod raft { pub use esker_raft_log::*; } }
/// use esker::raft::{EntryCodec, Error, ErrorKind, LogBatch, Options, RaftLog, Refusal, Result};
///
/// struct Entry { index: u64, term: u64 }
///
/// struct Codec;
///
/// impl EntryCodec for Codec {
///     type Entry = Entry;
///
///     fn index(entry: &Entry) -> u64 {
///         entry.index
///     }
///
///     fn encode(entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
///         out.extend([entry.index, entry.term].map(u64::to_le_bytes).as_flattened());
///         Ok(())
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Entry> {
///         let (words, []) = bytes.as_chunks() else { return Err(Error::new(ErrorKind::Corruption, "an entry is cut")) };
///         match words {
///             [index, term] => Ok(Entry { index: u64::from_le_bytes(*index), term: u64::from_le_bytes(*term) }),
///             _ => Err(Error::new(ErrorKind::Corruption, "an entry has two words")),
///         }
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path();
/// let log = RaftLog::open(path, Options::default())?;
/// let mut batch = LogBatch::new();
/// batch.add::<Codec>(7, &[Entry { index: 1, term: 1 }, Entry { index: 2, term: 1 }])?;
/// log.write(&mut batch, true)?;
/// let mut entries = Vec::new();
/// log.fetch::<Codec>(7, 1, 3, None, &mut entries)?;
/// assert_eq!(entries.len(), 2);
/// // What a `Storage` of the raft crate calls `Compacted` and `Unavailable`:
/// log.compact_to(7, 2)?;
/// let compacted = log.fetch::<Codec>(7, 1, 3, None, &mut entries).unwrap_err();
/// assert!(matches!(Refusal::of(&compacted), Some(Refusal::Compacted { .. })));
/// let unavailable = log.fetch::<Codec>(7, 2, 9, None, &mut entries).unwrap_err();
/// assert!(matches!(Refusal::of(&unavailable), Some(Refusal::Missing { .. })));
/// # Ok::<(), esker_raft_log::Error>(())
/// ```
pub trait EntryCodec {
    /// The entry.
    type Entry;

    /// Its index.
    fn index(entry: &Self::Entry) -> u64;

    /// Appends its bytes.
    ///
    /// # Errors
    /// Whatever keeps it from being encoded; nothing is written then.
    fn encode(entry: &Self::Entry, out: &mut Vec<u8>) -> Result<()>;

    /// Reads it back.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    fn decode(bytes: &[u8]) -> Result<Self::Entry>;
}

/// A batch of changes to any number of groups. Empty again once it was written.
#[derive(Clone, PartialEq, Eq)]
pub struct LogBatch {
    entries: Vec<u8>,
    items: Vec<u8>,
    item_count: u64,
    /// Where the entries of the item being added end; kept for its memory.
    ends: Vec<u32>,
}

/// Not what it does: how many items it has, and how long its entries are together.
impl fmt::Debug for LogBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries_bytes = self.entries.len();
        f.debug_struct("LogBatch").field("items", &self.item_count).field("entries_bytes", &entries_bytes).finish()
    }
}

impl Default for LogBatch {
    fn default() -> Self {
        let ends = SPARE_ENDS.try_with(Cell::take).unwrap_or_default();
        Self { entries: spare(), items: spare(), item_count: 0, ends }
    }
}

impl Drop for LogBatch {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.items));
        give_back(std::mem::take(&mut self.entries));
        if (1..=SPARE_BYTES_MAX / size_of::<u32>()).contains(&self.ends.capacity()) {
            self.ends.clear();
            let _ = SPARE_ENDS.try_with(|spare| spare.set(std::mem::take(&mut self.ends)));
        }
    }
}

impl LogBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for so many bytes of entries.
    pub fn with_capacity(entries_bytes: usize) -> Self {
        let mut batch = Self::default();
        batch.entries.reserve(entries_bytes.min(KEPT_BYTES_MAX));
        batch
    }

    /// Adds entries with consecutive indexes from `first_index` on. Entries of the group from there on that were
    /// written before are replaced.
    ///
    /// # Errors
    /// `InvalidArgument` if the entries of the batch would exceed 2 GiB ([`Refusal::Full`]), or an index 2⁶⁴. The batch is as it was then.
    pub fn add_entries<B: AsRef<[u8]>>(
        &mut self,
        group: u64,
        first_index: u64,
        entries: impl IntoIterator<Item = B>,
    ) -> Result<()> {
        self.add_with(group, first_index, |batch| {
            for entry in entries {
                let entry = entry.as_ref();
                batch.check_room(entry.len())?;
                batch.entries.extend_from_slice(entry);
                batch.end_entry()?;
            }
            Ok(())
        })
    }

    /// The same for entries of a type.
    ///
    /// # Errors
    /// As [`add_entries`](Self::add_entries), if their indexes are not consecutive, and what the codec says.
    pub fn add<C: EntryCodec>(&mut self, group: u64, entries: &[C::Entry]) -> Result<()> {
        let Some(first_index) = entries.first().map(C::index) else { return Ok(()) };
        self.add_with(group, first_index, |batch| {
            for (entry, index) in entries.iter().zip(first_index..=u64::MAX) {
                if C::index(entry) != index {
                    let reason = format!("the entry behind {} has index {}", index.wrapping_sub(1), C::index(entry));
                    return Err(Error::invalid_argument(reason));
                }
                C::encode(entry, &mut batch.entries)?;
                batch.check_room(0)?;
                batch.end_entry()?;
            }
            Ok(())
        })
    }

    /// Adds what `fill` puts into `entries` and `ends`, or nothing.
    fn add_with(&mut self, group: u64, first_index: u64, fill: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let before = self.entries.len();
        self.ends.clear();
        let filled = fill(self).and_then(|()| match first_index.checked_add(self.ends.len() as u64) {
            Some(_) => Ok(()),
            None => Err(Error::invalid_argument(format!("no index follows 2^64 - 1: {first_index} is too high"))),
        });
        if filled.is_err() {
            self.entries.truncate(before);
        } else if !self.ends.is_empty() {
            item::put_entries(&mut self.items, group, first_index, self.ends.iter().copied());
            self.item_count += 1;
        }
        filled
    }

    fn check_room(&self, more_bytes: usize) -> Result<()> {
        let bytes = self.entries.len().saturating_add(more_bytes);
        if bytes <= ENTRIES_BYTES_MAX {
            return Ok(());
        }
        Err(Refusal::Full { bytes: bytes as u64 }.into_error(ErrorKind::InvalidArgument))
    }

    fn end_entry(&mut self) -> Result<()> {
        let end = u32::try_from(self.entries.len()).map_err(|_| Error::invalid_argument("the batch is too long"))?;
        self.ends.push(end);
        Ok(())
    }

    /// Removes the entries of `group` before `index`.
    pub fn compact(&mut self, group: u64, index: u64) {
        item::put_compact(&mut self.items, group, index);
        self.item_count += 1;
    }

    /// Removes `group`, its entries and its keys.
    pub fn clean(&mut self, group: u64) {
        item::put_clean(&mut self.items, group);
        self.item_count += 1;
    }

    /// Gives `key` of `group` a value.
    ///
    /// # Errors
    /// `InvalidArgument` for the one key that the format keeps for itself, `__\x01`, and for more than 2 GiB.
    pub fn put(&mut self, group: u64, key: &[u8], value: &[u8]) -> Result<()> {
        if key == ATOMIC_GROUP_KEY {
            return Err(Error::invalid_argument("the key __\\x01 is reserved"));
        }
        TooLarge::check("key", key.len(), KEY_VALUE_BYTES_MAX).map_err(too_large)?;
        TooLarge::check("value", value.len(), KEY_VALUE_BYTES_MAX).map_err(too_large)?;
        item::put_put(&mut self.items, group, key, value);
        self.item_count += 1;
        Ok(())
    }

    /// Takes the value of `key` of `group` away.
    pub fn delete(&mut self, group: u64, key: &[u8]) {
        item::put_delete(&mut self.items, group, key);
        self.item_count += 1;
    }

    pub(crate) fn mark_atomic(&mut self, atomic_group: u64, status: AtomicStatus) {
        item::put_atomic_marker(&mut self.items, atomic_group, status);
        self.item_count += 1;
    }

    /// Moves everything from `other` behind what is here.
    ///
    /// # Errors
    /// `Exhausted` if the entries of both exceed 2 GiB; both are as they were then.
    pub fn merge(&mut self, other: &mut Self) -> Result<()> {
        if let Err(error) = self.check_room(other.entries.len()) {
            return Err(error.with_kind(ErrorKind::Exhausted));
        }
        let shift = self.entries.len() as u32;
        let items = std::mem::take(&mut other.items);
        let mut reader = Items::of_body(&items, other.item_count);
        while let Some(item) = reader.read().map_err(damaged)? {
            match item.action {
                Action::Entries(entries) => {
                    self.ends.clear();
                    self.ends.extend(entries.ranges().map(|range| range.end.saturating_add(shift)));
                    item::put_entries(&mut self.items, item.group, entries.first_index, self.ends.iter().copied());
                    self.item_count += 1;
                }
                other => self.add_action(item.group, &other),
            }
        }
        self.entries.append(&mut other.entries);
        other.items = items;
        other.clear();
        Ok(())
    }

    /// Puts what is no entries behind what is here, as another batch had it.
    fn add_action(&mut self, group: u64, action: &Action<'_>) {
        match action {
            Action::Entries(_) => return,
            Action::Clean => item::put_clean(&mut self.items, group),
            Action::Compact { index } => item::put_compact(&mut self.items, group, *index),
            Action::Put { key, value } => item::put_put(&mut self.items, group, key, value),
            Action::Delete { key } => item::put_delete(&mut self.items, group, key),
        }
        self.item_count += 1;
    }

    /// Puts an item of a batch behind what is here; the batch's entries are in `block`, unpacked.
    pub(crate) fn add_item(&mut self, item: &Item<'_>, block: &[u8]) -> Result<()> {
        let Action::Entries(entries) = &item.action else {
            self.add_action(item.group, &item.action);
            return Ok(());
        };
        let bytes = entries.ranges().map(|range| block.get(range.start as usize..range.end as usize));
        let bytes = bytes.collect::<Option<Vec<_>>>().ok_or_else(|| {
            Error::new(ErrorKind::Corruption, format!("entries of group {} go beyond their batch", item.group))
        })?;
        self.add_entries(item.group, entries.first_index, bytes)
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.items.clear();
        self.item_count = 0;
        self.entries.shrink_to(KEPT_BYTES_MAX);
        self.items.shrink_to(KEPT_BYTES_MAX);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.item_count == 0
    }

    /// How many changes are in it.
    pub(crate) fn item_count(&self) -> u64 {
        self.item_count
    }

    /// How many bytes it takes in the log if it does not compress, within ten.
    pub fn approximate_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { HEADER_BYTES + self.entries.len() + self.items.len() + 2 * CHECKSUM_BYTES + 2 }
    }

    /// As it is written; leaves the batch empty. Entries of at least `compress_from` bytes are compressed, if that helps;
    /// 0 is never.
    pub(crate) fn encode(&mut self, compress_from: usize) -> Encoded {
        let mut plain = std::mem::take(&mut self.entries);
        let items = std::mem::take(&mut self.items);
        let item_count = std::mem::take(&mut self.item_count);
        let mut packing = Packing::None;
        let mut other = spare();
        if compress_from > 0 && plain.len() >= compress_from && plain.len() <= PACKED_BYTES_MAX {
            let packed = entries::pack(&plain, &mut other).unwrap_or(false);
            if packed && other.len() < plain.len() {
                packing = Packing::Lz4;
                std::mem::swap(&mut plain, &mut other);
            }
        }
        let mut middle = spare();
        if !plain.is_empty() {
            middle.extend_from_slice(&crc32(&plain).to_le_bytes());
        }
        let count_at = middle.len();
        varint::put_u64(&mut middle, item_count);
        let count = middle.get(count_at..).unwrap_or_default();
        let items_crc = crc32_extend(crc32(count), &items);
        let header = BatchHeader::of(packing, plain.len(), count.len() + items.len());
        Encoded { header, head: header.encode(), entries: plain, middle, items, item_count, items_crc, spare: other }
    }

    /// Takes the memory of an encoded batch back, and what is in it too if it is to be `kept`.
    pub(crate) fn take_back(&mut self, encoded: Encoded, kept: bool) {
        let Encoded { header, entries, middle, items, item_count, spare, .. } = encoded;
        let (plain, other) = if header.packing == Packing::Lz4 { (spare, entries) } else { (entries, spare) };
        [other, middle].into_iter().for_each(give_back);
        give_back(std::mem::replace(&mut self.entries, plain));
        give_back(std::mem::replace(&mut self.items, items));
        self.item_count = item_count;
        if !kept {
            self.clear();
        }
    }
}

/// A batch as it is written, but for the salt of the file that it goes to.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) header: BatchHeader,
    head: [u8; HEADER_BYTES],
    entries: Vec<u8>,
    /// The entries' checksum and the count of items.
    middle: Vec<u8>,
    items: Vec<u8>,
    item_count: u64,
    items_crc: u32,
    spare: Vec<u8>,
}

impl Encoded {
    pub(crate) fn len(&self) -> u64 {
        self.header.len
    }

    pub(crate) fn items(&self) -> Items<'_> {
        Items::of_body(&self.items, self.item_count)
    }

    /// Whether all that it says takes something away.
    pub(crate) fn only_frees(&self) -> bool {
        let (mut items, mut frees) = (self.items(), true);
        while let Ok(Some(item)) = items.read() {
            frees &= matches!(item.action, Action::Compact { .. } | Action::Clean | Action::Delete { .. });
        }
        frees
    }

    /// The last four bytes in a file with this salt.
    pub(crate) fn tail(&self, salt: u32) -> [u8; CHECKSUM_BYTES] {
        (self.items_crc ^ salt).to_le_bytes()
    }

    /// All the bytes before them.
    pub(crate) fn parts(&self) -> [&[u8]; 4] {
        [&self.head, &self.entries, &self.middle, &self.items]
    }
}

fn too_large(error: TooLarge) -> Error {
    Error::invalid_argument(error.to_string()).with_source(error)
}

/// A batch holds what it encoded itself: this is never seen.
pub(crate) fn damaged(error: esker_format::DecodeError) -> Error {
    Error::new(ErrorKind::Corruption, format!("a batch in memory: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch that raft-engine 0.4.2 wrote as the first of file 1, version 2.
    const GOLDEN: &[u8] = b"\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\0\x28\x0a\x03300\x12\x03one\x0a\x03301\x12\x03two\x86\x5a\x4f\x57\
        \x05\x07\x01\x02\xac\x02\x0a\x14\x07\x03\x01\x05state\x01S\x09\x02\x02\x80\x01\x07\x03\x02\x04gone\xe8\x07\x02\x01\x93\xff\x1f\x45";

    struct Indexes;

    impl EntryCodec for Indexes {
        type Entry = u64;

        fn index(entry: &u64) -> u64 {
            *entry
        }

        fn encode(entry: &u64, out: &mut Vec<u8>) -> Result<()> {
            out.extend(entry.to_le_bytes());
            Ok(())
        }

        fn decode(_: &[u8]) -> Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn an_index_that_none_can_follow_is_refused() {
        let mut batch = LogBatch::new();
        for entries in [&[u64::MAX][..], &[u64::MAX - 1, u64::MAX], &[u64::MAX, 0], &[u64::MAX, u64::MAX]] {
            assert_eq!(batch.add::<Indexes>(1, entries).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert!(batch.is_empty());
        }
        batch.add::<Indexes>(1, &[u64::MAX - 1]).unwrap();
    }

    fn sample() -> LogBatch {
        let mut batch = LogBatch::new();
        batch.add_entries(7, 300, [b"\x0a\x03300\x12\x03one", b"\x0a\x03301\x12\x03two"]).unwrap();
        batch.put(7, b"state", b"S").unwrap();
        batch.compact(9, 128);
        batch.delete(7, b"gone");
        batch.clean(1000);
        batch
    }

    fn bytes(batch: &mut LogBatch, salt: u32) -> Vec<u8> {
        let encoded = batch.encode(0);
        let bytes = [&encoded.parts().concat()[..], &encoded.tail(salt)].concat();
        assert_eq!(bytes.len() as u64, encoded.len());
        bytes
    }

    #[test]
    fn a_batch_is_the_originals_bytes() {
        assert_eq!(bytes(&mut sample(), 1), GOLDEN);
    }

    #[test]
    fn merged_batches_are_one_batch() {
        let mut first = LogBatch::new();
        first.add_entries(7, 300, [b"\x0a\x03300\x12\x03one", b"\x0a\x03301\x12\x03two"]).unwrap();
        let mut second = LogBatch::new();
        second.add_entries(8, 1, [b"entry"]).unwrap();
        second.put(8, b"k", b"v").unwrap();
        first.merge(&mut second).unwrap();
        assert!(second.is_empty());
        let mut whole = LogBatch::new();
        whole.add_entries(7, 300, [b"\x0a\x03300\x12\x03one", b"\x0a\x03301\x12\x03two"]).unwrap();
        whole.add_entries(8, 1, [b"entry"]).unwrap();
        whole.put(8, b"k", b"v").unwrap();
        assert_eq!(bytes(&mut first, 0), bytes(&mut whole, 0));
    }

    #[test]
    fn what_is_refused_leaves_the_batch_as_it_was() {
        struct Text;
        impl EntryCodec for Text {
            type Entry = (u64, String);
            fn index(entry: &Self::Entry) -> u64 {
                entry.0
            }
            fn encode(entry: &Self::Entry, out: &mut Vec<u8>) -> Result<()> {
                out.extend_from_slice(entry.1.as_bytes());
                Ok(())
            }
            fn decode(_: &[u8]) -> Result<Self::Entry> {
                Err(Error::invalid_argument("not needed"))
            }
        }
        let mut batch = sample();
        let entries = [(5, "five".to_owned()), (7, "seven".to_owned())];
        assert_eq!(batch.add::<Text>(7, &entries).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(batch.add_entries(7, u64::MAX, [b"a", b"b"]).is_err());
        assert!(batch.put(7, b"__\x01", b"").is_err());
        // Zeroes that nobody reads: they take no memory.
        let full = batch.add_entries(7, 302, [&b"a"[..], &vec![0; ENTRIES_BYTES_MAX]]).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::InvalidArgument);
        assert!(matches!(Refusal::of(&full), Some(Refusal::Full { bytes }) if bytes > ENTRIES_BYTES_MAX as u64));
        batch.add_entries(7, 1, std::iter::empty::<&[u8]>()).unwrap();
        batch.add::<Text>(7, &[]).unwrap();
        assert_eq!(bytes(&mut batch, 1), GOLDEN);
    }

    /// What a file says of the format's own key is nobody's, whatever its value: a move of it would be refused, and with it every purge.
    #[test]
    fn the_formats_own_key_is_passed_over_whatever_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = crate::RaftLog::open(dir.path(), crate::Options::default()).unwrap();
        for value in [&b""[..], b"\x02", b"\x03", b"no status"] {
            let mut batch = LogBatch::new();
            batch.put(1, b"key", value).unwrap();
            item::put_put(&mut batch.items, 1, ATOMIC_GROUP_KEY, value);
            item::put_put(&mut batch.items, 2, ATOMIC_GROUP_KEY, value);
            item::put_delete(&mut batch.items, 3, ATOMIC_GROUP_KEY);
            batch.item_count += 3;
            log.write(&mut batch, false).unwrap();
            for _ in 0..2 {
                assert_eq!((log.groups(), log.keys(1, None, None).len()), (vec![1], 1), "{value:?}");
                log.close().unwrap();
                log = crate::RaftLog::open(dir.path(), crate::Options::default()).unwrap();
            }
            log.move_on(None).unwrap();
        }
    }

    #[test]
    fn entries_that_do_not_compress_stay_plain() {
        let mut batch = LogBatch::new();
        let noise: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        batch.add_entries(1, 1, [fastrand::Rng::with_seed(1).u128(..).to_le_bytes()]).unwrap();
        assert_eq!(batch.encode(1).header.packing, Packing::None);
        batch.add_entries(1, 1, [vec![0; 20_000], noise]).unwrap();
        assert_eq!(batch.clone().encode(1).header.packing, Packing::Lz4);
        assert_eq!(batch.clone().encode(50_000).header.packing, Packing::None);
        assert_eq!(batch.encode(0).header.packing, Packing::None);
    }

    /// Goal: a batch for each write takes no memory anew: what those before it had, but for much.
    #[test]
    fn a_batch_has_the_memory_of_one_that_is_gone() {
        let make = |entries: u64| {
            let mut batch = LogBatch::new();
            let before = [batch.entries.capacity(), batch.items.capacity(), batch.ends.capacity()];
            assert_eq!(batch, LogBatch { entries: Vec::new(), items: Vec::new(), item_count: 0, ends: Vec::new() });
            batch.add_entries(1, 1, (0..entries).map(|_| [7])).unwrap();
            before
        };
        make(10);
        assert!(make(2 * SPARE_BYTES_MAX as u64).iter().all(|bytes| *bytes >= 10));
        assert_eq!(make(10), [0; 3], "that was much");
    }
}
