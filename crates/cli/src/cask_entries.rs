//! Going through the keys of a Cask, each with its newest value: damage is told, and what lies behind it is shown all the same.

use esker::{Cask, CaskScan, Error, ErrorKind};

use crate::Answer;
use crate::failure::{Failure, warn};
use crate::sizes::plural;

/// Damages that are told one by one.
const TOLD_MAX: u64 = 10;

/// See the module's head.
pub(crate) struct CaskEntries<'a> {
    cask: &'a Cask,
    scan: CaskScan,
    damages: u64,
}

impl<'a> CaskEntries<'a> {
    pub(crate) fn of(cask: &'a Cask) -> Result<Self, Failure> {
        Ok(Self { cask, scan: cask.scan()?, damages: 0 })
    }

    /// Goes to the next entry that can be read.
    pub(crate) fn advance(&mut self) -> Result<bool, Failure> {
        loop {
            match self.scan.advance() {
                Ok(true) if !self.is_newest()? => {}
                Ok(is_there) => return Ok(is_there),
                Err(error) => self.pass(error)?,
            }
        }
    }

    /// A scan shows all versions that are kept.
    fn is_newest(&mut self) -> Result<bool, Failure> {
        if self.cask.options().keep_versions == 1 {
            return Ok(true);
        }
        match self.cask.history(self.scan.key()) {
            Ok(versions) => Ok(versions.first().is_some_and(|(newest, _)| *newest == self.scan.version())),
            Err(error) => self.pass(error).map(|()| false),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// The value; `None` if it is damaged.
    pub(crate) fn value(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match self.scan.pinned_value() {
            Ok(value) => Ok(Some(value.into_vec())),
            Err(error) => self.pass(error).map(|()| None),
        }
    }

    fn pass(&mut self, error: Error) -> Result<(), Failure> {
        if error.kind() != ErrorKind::Corruption {
            return Err(error.into());
        }
        self.damages += 1;
        if self.damages <= TOLD_MAX {
            warn(error);
        }
        Ok(())
    }

    /// Whether everything could be read; says how much could not.
    pub(crate) fn answer(&self) -> Answer {
        if self.damages == 0 {
            return Answer::Yes;
        }
        let damages = plural(self.damages, "place", "places");
        warn(format_args!("{damages} could not be read: see `esker check`, `esker repair`"));
        Answer::No
    }
}
