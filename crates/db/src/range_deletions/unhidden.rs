//! A sorted run without the entries that range deletions hide.
//!
//! - U1: what it stands on is hidden by none of them.
//! - U2: whole stretches of a table that is older than what hides them are skipped by a search, others entry by entry.
//!
//! Cost: a comparison for each entry where the answer for its key is known from the one before, else what [`Covers`] costs.

use std::path::Path;
use std::sync::Arc;

use super::Covers;
use super::cover::Known;
use crate::Result;
use crate::entry;
use crate::iterate::InternalIterator;
use crate::pinned::PinnedSlice;

/// See the module's head.
pub(crate) struct Unhidden {
    inner: Box<dyn InternalIterator>,
    covers: Arc<Covers>,
    known: Known,
}

impl Unhidden {
    /// `inner`, without what `covers` hide.
    pub(crate) fn new(inner: Box<dyn InternalIterator>, covers: Arc<Covers>) -> Self {
        Self { inner, covers, known: Known::default() }
    }

    /// Restores U1 after a move, going on in its direction.
    fn pass_hidden(&mut self, forward: bool) -> Result<()> {
        let mut is_skipped = false;
        while self.inner.valid() {
            let key = entry::key_of(&*self.inner)?;
            let cover = self.covers.at(key.user_key, &mut self.known);
            if key.sequence >= cover {
                return Ok(());
            }
            let bounds = self.known.bounds();
            // Where keys of a damaged table are out of order, a second skip might lead back.
            let may_skip = !std::mem::replace(&mut is_skipped, false);
            if may_skip && self.inner.skip(cover, bounds, forward)? {
                is_skipped = true;
            } else if forward {
                self.inner.next()?;
            } else {
                self.inner.prev()?;
            }
        }
        Ok(())
    }
}

impl InternalIterator for Unhidden {
    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()?;
        self.pass_hidden(true)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last()?;
        self.pass_hidden(false)
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek(target)?;
        self.pass_hidden(true)
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.inner.seek_for_prev(target)?;
        self.pass_hidden(false)
    }

    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.pass_hidden(true)
    }

    fn prev(&mut self) -> Result<()> {
        self.inner.prev()?;
        self.pass_hidden(false)
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn pinned_value(&self) -> PinnedSlice {
        self.inner.pinned_value()
    }

    fn place(&self) -> Option<(&Path, Option<u64>)> {
        self.inner.place()
    }
}
