//! Giving space back: files that nothing names any more.

mod trash;

pub(crate) use trash::Trash;
