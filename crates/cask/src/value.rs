//! Values that are handed out without a copy.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use arrayvec::ArrayVec;
use esker_format::shown::Shown;

use crate::file::DataFile;

/// Values up to this length are copied: that costs less than counting a reference, which besides is one place in memory that all
/// who read from one file would write to.
const SHORT_BYTES_MAX: usize = 112;

/// A value. It dereferences to `[u8]`, and shares the mapping of the data file that it lies in, where it lies in one, is
/// not packed and has more than 112 bytes; otherwise it has its own bytes.
///
/// Cost: 120 bytes of memory; cloning copies these or counts a reference. A value that shares a mapping keeps the data file's disk space taken,
/// even after a merge has removed the file: copy what is kept for long with [`into_vec`](Self::into_vec).
///
/// Where a sync has failed, the system may drop what it could not write and show what the disk has, in values that are held, too, of records
/// that were not durable. Nothing but a copy of each of these when it is read would prevent that, which every read would pay for; one that is read
/// after the failure was checked when it was.
#[derive(Clone, Default)]
pub struct CaskValue(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Empty,
    Short(ArrayVec<u8, SHORT_BYTES_MAX>),
    /// The range can be lent by the file.
    Shared(Arc<DataFile>, Range<u64>),
    Owned(Arc<Vec<u8>>),
}

impl CaskValue {
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::default() } else { Self(Source::Owned(Arc::new(bytes))) }
    }

    /// Becomes a copy of `value`, in place, if that is short. Whether it did.
    #[inline(always)]
    pub(crate) fn copy_short(&mut self, value: &[u8]) -> bool {
        self.0 = Source::Short(ArrayVec::new());
        let Source::Short(copy) = &mut self.0 else { return false };
        copy.try_extend_from_slice(value).is_ok()
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
            Self::Short(bytes) => bytes,
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
        f.debug_tuple("CaskValue").field(&Shown(self)).finish()
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

const _: () = assert!(size_of::<CaskValue>() <= 120, "what its doc says");
