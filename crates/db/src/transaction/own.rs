//! What a transaction made of a key.

use std::ops::Range;

use crate::Result;
use crate::batch::WriteBatch;
use crate::family::Family;
use crate::operands;
use crate::pinned::PinnedSlice;

/// What was put, deleted or merged last, as places in the batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    base: Base,
    /// The oldest first.
    operands: Vec<Range<usize>>,
}

/// What the operands are merged into.
#[derive(Debug, Clone, Default)]
enum Base {
    /// What the store has.
    #[default]
    Stored,
    Value(Range<usize>),
    Nothing,
}

impl Own {
    /// It was put.
    pub(super) fn value(place: Range<usize>) -> Self {
        Self { base: Base::Value(place), operands: Vec::new() }
    }

    /// It was deleted.
    pub(super) fn nothing() -> Self {
        Self { base: Base::Nothing, operands: Vec::new() }
    }

    /// Another operand was merged into it.
    pub(super) fn merge(&mut self, place: Range<usize>) {
        self.operands.push(place);
    }

    /// The last of these was not.
    pub(super) fn take_operand(&mut self) {
        self.operands.pop();
    }

    /// Whether the store has to be asked for the value.
    pub(super) fn needs_stored(&self) -> bool {
        matches!(self.base, Base::Stored)
    }

    /// Whether the key has a value.
    pub(super) fn is_there(&self) -> bool {
        !self.operands.is_empty() || !matches!(self.base, Base::Nothing)
    }

    /// The value of `key`, if it has one; `stored` is asked for that of the store where it is needed.
    ///
    /// # Errors
    /// As `stored`'s; as a read of operands.
    pub(super) fn read(
        &self,
        batch: &WriteBatch,
        family: &Family,
        key: &[u8],
        stored: impl FnOnce() -> Result<Option<PinnedSlice>>,
    ) -> Result<Option<PinnedSlice>> {
        let bytes = |place: &Range<usize>| batch.raw().bytes().get(place.clone()).unwrap_or_default();
        let base = match &self.base {
            Base::Stored => stored()?,
            Base::Value(place) => Some(PinnedSlice::from_vec(bytes(place).to_vec())),
            Base::Nothing => None,
        };
        if self.operands.is_empty() {
            return Ok(base);
        }
        let operands: Vec<_> = self.operands.iter().map(bytes).collect();
        operands::merge(family, key, base.as_deref(), &operands).map(Some)
    }
}
