//! In place of blob files: values that tell who read and unpacked them.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use esker_format::rocksdb::blob::BlobIndex;

use crate::Result;
use crate::pinned::PinnedSlice;

/// Who does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The thread of whoever asks for values.
    Walk,
    /// The thread beside it.
    Aide,
}

shuttle::thread_local! {
    pub(crate) static SIDE: std::cell::Cell<Side> = const { std::cell::Cell::new(Side::Walk) };
}

/// What is done with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Its record comes from the disk.
    Read,
    /// It is taken out of that.
    Unpack,
}

/// Who, what, and with which value.
pub type Step = (Side, Deed, u64);

/// All values.
#[derive(Default)]
pub(crate) struct BlobFile {
    /// What was begun, in the order in which it was.
    pub(crate) steps: Mutex<Vec<Step>>,
    /// Steps that end by a panic, once each.
    pub(crate) panics: Mutex<Vec<Step>>,
}

impl BlobFile {
    fn step(&self, deed: Deed, value: u64) {
        let step = (SIDE.with(std::cell::Cell::get), deed, value);
        self.steps.lock().unwrap().push(step);
        shuttle::thread::yield_now();
        let panics = self.panics.lock().unwrap().extract_if(.., |of| *of == step).count();
        if panics > 0 {
            // Without a word on the screen.
            std::panic::resume_unwind(Box::new(step));
        }
    }

    pub(crate) fn read(&self, value: u64) -> PinnedSlice {
        self.step(Deed::Read, value);
        self.step(Deed::Unpack, value);
        PinnedSlice(Some(value))
    }

    pub(crate) fn is_memory(&self) -> bool {
        false
    }

    pub(crate) fn extent(&self, _key: &[u8], index: &BlobIndex) -> Result<Range<u64>> {
        Ok(index.offset..index.offset + index.bytes)
    }
}

pub(crate) struct Fetched {
    pub(crate) id: usize,
    file: Arc<BlobFile>,
}

impl Fetched {
    pub(crate) fn take(&self, key: &[u8], index: &BlobIndex) -> Result<PinnedSlice> {
        assert_eq!(key, index.offset.to_be_bytes(), "the key of another value");
        self.file.step(Deed::Unpack, index.offset);
        Ok(PinnedSlice(Some(index.offset)))
    }

    pub(crate) fn recycle(self) {}
}

#[derive(Default)]
pub(crate) struct Announced;

pub(crate) struct Onward {
    #[expect(dead_code, reason = "nothing is announced here")]
    pub(crate) forward: bool,
    #[expect(dead_code, reason = "nothing is announced here")]
    pub(crate) values: usize,
}

#[derive(Default)]
pub(crate) struct BlobBatch {
    wanted: Vec<(Arc<BlobFile>, u64, usize)>,
}

impl BlobBatch {
    pub(crate) fn add(&mut self, file: &Arc<BlobFile>, extent: Range<u64>, id: usize) {
        self.wanted.push((file.clone(), extent.start, id));
    }

    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.wanted.len() as u64 * crate::VALUE_BYTES
    }

    pub(crate) fn lies_together(&self) -> bool {
        true
    }

    pub(crate) fn forget(&mut self) {
        self.wanted.clear();
    }

    pub(crate) fn arrange(&mut self) {}

    pub(crate) fn fetch(&self, mut take: impl FnMut(Fetched)) -> u64 {
        for (file, value, id) in &self.wanted {
            file.step(Deed::Read, *value);
            take(Fetched { id: *id, file: file.clone() });
        }
        1
    }

    pub(crate) fn will_read(&self) {}

    pub(crate) fn announce(&self, _: &mut Announced, _: Onward) {}
}
