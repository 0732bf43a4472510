//! Values that are handed out without a copy.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::file::DataFile;

/// Values up to this length are copied: that costs less than counting a reference, which besides is one place in memory that all
/// who read from one file would write to.
const SHORT_BYTES_MAX: usize = 112;

/// A value. It dereferences to `[u8]`, and shares the mapping of the data file that it lies in, where it lies in one, is
/// not packed and has more than 112 bytes; otherwise it has its own bytes.
///
/// Cost: 128 bytes of memory; cloning copies these or counts a reference. A value that shares a mapping keeps the data file's disk space taken,
/// even after a merge has removed the file: copy what is kept for long with [`into_vec`](Self::into_vec).
#[derive(Clone, Default)]
pub struct CaskValue(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Empty,
    Short(Short),
    /// The range can be lent by the file.
    Shared(Arc<DataFile>, Range<u64>),
    Owned(Arc<Vec<u8>>),
}

/// Bytes of its own. Whole words: so it is moved in pieces that a processor finds again in what it has just stored, which it does not
/// in pieces that begin elsewhere; that would cost more than the copy.
#[derive(Clone)]
#[repr(align(8))]
struct Short {
    bytes: [u8; SHORT_BYTES_MAX],
    /// How many of them there are.
    len: u8,
}

impl CaskValue {
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::default() } else { Self(Source::Owned(Arc::new(bytes))) }
    }

    /// A copy, if it is short.
    #[inline]
    pub(crate) fn short(bytes: &[u8]) -> Option<Self> {
        // At most 112.
        let mut short = Short { bytes: [0; SHORT_BYTES_MAX], len: bytes.len() as u8 };
        short.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(Source::Short(short)))
    }

    /// `range` is one that the file can lend, now and so for ever (F2).
    pub(crate) fn shared(file: &Arc<DataFile>, range: Range<u64>) -> Self {
        if range.is_empty() { Self::default() } else { Self(Source::Shared(Arc::clone(file), range)) }
    }

    /// The bytes as a vector. Copies them unless this is the only holder of bytes of its own.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Source::Owned(bytes) => Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec()),
            source => source.bytes().to_vec(),
        }
    }
}

impl Source {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Short(short) => short.bytes.get(..usize::from(short.len)).unwrap_or_default(),
            // It was lent when the value was made, so the default is never taken.
            Self::Shared(file, range) => file.slice(range.clone()).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Deref for CaskValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for CaskValue {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for CaskValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CaskValue").field(&&**self).finish()
    }
}

impl From<CaskValue> for Vec<u8> {
    fn from(value: CaskValue) -> Self {
        value.into_vec()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for CaskValue {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for CaskValue {}
