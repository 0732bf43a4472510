//! What an open does with damage: it refuses the store; or, only for a check, goes on without what is damaged, and says what that is.

use std::collections::BTreeSet;

use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;

use crate::{Error, ErrorKind, Result};

/// What a store was opened without.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftOut {
    /// Why.
    pub(crate) damage: Vec<Error>,
    /// The tables and blob files among it. A table goes by [`FileName::Table`], however it is called.
    pub(crate) files: BTreeSet<FileName>,
    /// The manifest that was read, where that is not for CURRENT to say.
    pub(crate) manifest: Option<FileNumber>,
}

impl LeftOut {
    /// Whether all tables are there.
    pub(crate) fn has_no_table(&self) -> bool {
        !self.files.iter().any(|name| matches!(name, FileName::Table(_)))
    }
}

/// Lets through what is whole.
#[derive(Debug)]
pub(super) struct Sieve {
    /// `None` where damage is refused.
    left_out: Option<LeftOut>,
}

impl Sieve {
    pub(super) fn refusing() -> Self {
        Self { left_out: None }
    }

    pub(super) fn leaving_out() -> Self {
        Self { left_out: Some(LeftOut::default()) }
    }

    pub(super) fn refuses(&self) -> bool {
        self.left_out.is_none()
    }

    /// `None` for what is damaged and left out.
    pub(super) fn pass<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        self.pass_unless(is_of_a_file, result)
    }

    /// The same, where what `may_be_left_out` can be left out.
    pub(super) fn pass_unless<T>(
        &mut self,
        may_be_left_out: impl FnOnce(&Error) -> bool,
        result: Result<T>,
    ) -> Result<Option<T>> {
        match (result, &mut self.left_out) {
            (Ok(whole), _) => Ok(Some(whole)),
            (Err(error), Some(left_out)) if may_be_left_out(&error) => {
                left_out.damage.push(error);
                Ok(None)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The same, of a file.
    pub(super) fn pass_file<T>(&mut self, name: FileName, result: Result<T>) -> Result<Option<T>> {
        let passed = self.pass(result)?;
        if let (None, Some(left_out)) = (&passed, &mut self.left_out) {
            left_out.files.insert(name);
        }
        Ok(passed)
    }

    pub(super) fn has_left_out(&self, name: &FileName) -> bool {
        self.left_out.as_ref().is_some_and(|left_out| left_out.files.contains(name))
    }

    pub(super) fn left_out(self) -> LeftOut {
        self.left_out.unwrap_or_default()
    }
}

/// Whether others may be whole: what a check lists and goes on.
pub(crate) fn is_of_a_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io)
}
