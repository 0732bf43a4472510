//! Iterators: from sorted runs of internal keys to what the user sees.
//!
//! memtables, tables of level 0 and levels → [`MergingIterator`] → [`walk`], which hides what is older, deleted or newer
//! than the reader's snapshot → [`DbIterator`], which reads the values, those [`ahead`] too, where that
//! is worth it [beside](aide) the walk.

mod ahead;
mod aide;
mod internal;
mod level;
mod merging;
mod pace;
mod stretch;
mod visible;
mod walk;

pub(crate) use aide::Aide;
pub(crate) use internal::{Bounds, InternalIterator};
pub(crate) use level::LevelIterator;
pub(crate) use merging::MergingIterator;
pub(crate) use pace::Walks;
pub use visible::{DbIterator, Entries};
