//! A slot: where a record is, and enough of its key's hash to pass others by.

use esker_format::cask::FileNumber;

/// 16 bytes for each record that the directory knows.
///
/// | bytes | field  | meaning                                                                             |
/// |------:|--------|-------------------------------------------------------------------------------------|
/// |     4 | tag    | the low 32 bits of the key's hash                                                   |
/// |     4 | file   | number of its file; the two highest bits are the flags; number 0 is an empty slot   |
/// |     4 | offset | where the record begins in its file                                                 |
/// |     4 | bytes  | how long it is; `u32::MAX` stands for that and more                                 |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    tag: u32,
    file: u32,
    offset: u32,
    bytes: u32,
}

/// An older version, kept for history.
const OLD: u32 = 1 << 31;
/// A deletion: in the directory only while a store is being opened.
const TOMBSTONE: u32 = 1 << 30;

/// Where a record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) file: FileNumber,
    pub(crate) offset: u32,
}

impl Slot {
    pub(crate) const EMPTY: Self = Self { tag: 0, file: 0, offset: 0, bytes: 0 };

    /// For a record of `bytes` at `place`; the file's number is not 0.
    #[inline]
    pub(crate) fn new(tag: u32, place: Place, bytes: u64) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { tag, file: place.file.get(), offset: place.offset, bytes }
    }

    /// As it lies in memory: tag and file, offset and length.
    #[inline]
    pub(super) const fn words(self) -> [u64; 2] {
        [self.tag as u64 | (self.file as u64) << 32, self.offset as u64 | (self.bytes as u64) << 32]
    }

    /// What [`words`](Self::words) made of it.
    #[inline]
    pub(super) const fn from_words([first, second]: [u64; 2]) -> Self {
        Self { tag: first as u32, file: (first >> 32) as u32, offset: second as u32, bytes: (second >> 32) as u32 }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.file == 0
    }

    #[inline]
    pub(crate) const fn tag(&self) -> u32 {
        self.tag
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        let file = FileNumber::new(self.file & FileNumber::MAX.get()).unwrap_or_default();
        Place { file, offset: self.offset }
    }

    /// `None` if the record is so long that only its head says how long.
    #[inline]
    pub(crate) const fn bytes(&self) -> Option<u64> {
        if self.bytes == u32::MAX { None } else { Some(self.bytes as u64) }
    }

    #[inline]
    pub(crate) const fn is_old(&self) -> bool {
        self.file & OLD != 0
    }

    #[inline]
    pub(crate) const fn is_tombstone(&self) -> bool {
        self.file & TOMBSTONE != 0
    }

    #[inline]
    pub(crate) const fn with_old(mut self, old: bool) -> Self {
        self.file = if old { self.file | OLD } else { self.file & !OLD };
        self
    }

    #[inline]
    pub(crate) const fn with_tombstone(mut self) -> Self {
        self.file |= TOMBSTONE;
        self
    }
}
