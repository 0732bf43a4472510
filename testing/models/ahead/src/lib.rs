//! What reads ahead of a walk (`ahead`, `stretch`) and beside it (`aide`), compiled a second time over shuttle's locks and atomics.
//! Below it stands a blob file that tells who read and unpacked what; above it, a walk that goes as an iterator does, but where it turns to
//! what is coming is told, not found out.

// Where a tool compiles all targets, it makes a test of this library, too, whatever the manifest says: of nothing, then.
#![cfg(not(test))]

mod blob;
mod iterate;
mod sync;

pub use blob::{Deed, Side, Step};
pub use iterate::{Store, Walk};

/// Of each value: two are worth waking somebody up for.
const VALUE_BYTES: u64 = 40 << 10;

/// Nothing fails here but by a panic.
#[derive(Debug)]
pub(crate) struct Error;
pub(crate) type Result<T> = std::result::Result<T, Error>;

mod pinned {
    /// A value, by its number.
    #[derive(Clone, Default)]
    pub(crate) struct PinnedSlice(pub(crate) Option<u64>);

    impl PinnedSlice {
        pub(crate) fn len(&self) -> usize {
            1
        }

        pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
            None
        }
    }
}

mod cache {
    pub(crate) struct Block;

    impl Block {
        pub(crate) fn leave(_: Vec<u8>) {}
    }
}

mod family {
    use std::sync::Arc;

    use esker_format::rocksdb::internal_key::FileNumber;

    use crate::blob::BlobFile;
    use crate::iterate::pace::Walks;

    #[derive(Default)]
    pub(crate) struct Family {
        pub(crate) walks: Walks,
    }

    #[derive(Default)]
    pub(crate) struct View(pub(crate) Arc<BlobFile>);

    impl View {
        pub(crate) fn blob(&self, _: FileNumber) -> Option<&Arc<BlobFile>> {
            Some(&self.0)
        }
    }
}

mod read {
    use esker_format::rocksdb::blob::BlobIndex;

    use crate::Result;
    use crate::family::View;
    use crate::pinned::PinnedSlice;

    #[derive(Clone, Default)]
    pub(crate) struct BlobReader;

    impl BlobReader {
        pub(crate) fn counts(&self) -> &Self {
            self
        }

        pub(crate) fn add(&self, _values: u64, _bytes: u64, _reads: u64) {}

        pub(crate) fn read_at(&self, view: &View, _key: &[u8], index: &BlobIndex) -> Result<PinnedSlice> {
            Ok(view.0.read(index.offset))
        }

        pub(crate) fn value_len_at(&self, _: &View, _key: &[u8], index: &BlobIndex) -> Result<u64> {
            Ok(index.bytes)
        }
    }
}

mod operands {
    use esker_format::rocksdb::internal_key::ValueKind;

    use crate::Result;
    use crate::family::{Family, View};
    use crate::pinned::PinnedSlice;
    use crate::read::BlobReader;

    pub(crate) struct Reader<'a> {
        pub(crate) family: &'a Family,
        pub(crate) view: &'a View,
        pub(crate) blobs: &'a BlobReader,
    }

    impl Reader<'_> {
        pub(crate) fn value(&self, _key: &[u8], _: ValueKind, _: PinnedSlice) -> Result<PinnedSlice> {
            unreachable!("all are pointers that decode")
        }

        pub(crate) fn value_len(&self, _key: &[u8], _: ValueKind, _: &PinnedSlice) -> Result<u64> {
            unreachable!("all are pointers that decode")
        }
    }
}
