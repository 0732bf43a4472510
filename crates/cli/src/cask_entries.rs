//! Going through the keys of a Cask, each with its newest value: damage is told, and what lies behind it is shown all the same.

use std::collections::HashSet;
use std::path::PathBuf;

use esker::{Cask, CaskScan, CaskValue, Error, ErrorKind};

use crate::Answer;
use crate::failure::{Failure, warn};
use crate::sizes::plural;

/// Damages that are told one by one.
const TOLD_MAX: usize = 10;

/// See the module's head.
pub(crate) struct CaskEntries<'a> {
    cask: &'a Cask,
    scan: CaskScan,
    /// Where damage was met: a record that is read again is not told again.
    damages: HashSet<(Option<PathBuf>, Option<u64>)>,
    /// Keys with a damaged version that were shown.
    shown: HashSet<Vec<u8>>,
    /// What is shown instead of the scan's value.
    newest: Option<CaskValue>,
}

impl<'a> CaskEntries<'a> {
    pub(crate) fn of(cask: &'a Cask) -> Result<Self, Failure> {
        Ok(Self { cask, scan: cask.scan()?, damages: HashSet::new(), shown: HashSet::new(), newest: None })
    }

    /// Goes to the next entry that can be read.
    pub(crate) fn advance(&mut self) -> Result<bool, Failure> {
        loop {
            self.newest = None;
            match self.scan.advance() {
                Ok(true) if !self.is_shown()? => {}
                Ok(is_there) => return Ok(is_there),
                Err(error) => self.pass(error)?,
            }
        }
    }

    /// A scan shows all versions that are kept; here, a key is shown once.
    fn is_shown(&mut self) -> Result<bool, Failure> {
        if self.cask.options().keep_versions == 1 {
            return Ok(true);
        }
        match self.cask.history(self.scan.key()) {
            Ok(versions) => Ok(versions.first().is_some_and(|(newest, _)| *newest == self.scan.version())),
            Err(error) if error.kind() == ErrorKind::Corruption => self.is_shown_beside_damage(),
            Err(error) => Err(error.into()),
        }
    }

    /// A history with damage does not say which version is the newest, but `get` finds it: it is shown at the first version that is met.
    fn is_shown_beside_damage(&mut self) -> Result<bool, Failure> {
        let key = self.scan.key();
        if self.shown.contains(key) {
            return Ok(false);
        }
        match self.cask.get(key) {
            Ok(Some(value)) => {
                self.shown.insert(key.to_vec());
                self.newest = Some(value);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => self.pass(error).map(|()| false),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.scan.key()
    }

    /// When its time is over, in seconds since 1970, if it has an end. Before [`value`](Self::value).
    pub(crate) fn expires_at(&mut self) -> Result<Option<u64>, Failure> {
        let at = match &self.newest {
            Some(_) => self.cask.expires_at(self.scan.key()),
            None => self.scan.expires_at(),
        };
        // Where the record is damaged, its value says so.
        at.or_else(|error| self.pass(error).map(|()| None))
    }

    /// The value; `None` if it is damaged.
    pub(crate) fn value(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if let Some(value) = self.newest.take() {
            return Ok(Some(value.into_vec()));
        }
        match self.scan.pinned_value() {
            Ok(value) => Ok(Some(value.into_vec())),
            Err(error) => self.pass(error).map(|()| None),
        }
    }

    fn pass(&mut self, error: Error) -> Result<(), Failure> {
        if error.kind() != ErrorKind::Corruption {
            return Err(error.into());
        }
        let place = (error.path().map(PathBuf::from), error.offset());
        if self.damages.insert(place) && self.damages.len() <= TOLD_MAX {
            warn(error);
        }
        Ok(())
    }

    /// Whether everything could be read; says how much could not.
    pub(crate) fn answer(&self) -> Answer {
        if self.damages.is_empty() {
            return Answer::Yes;
        }
        let damages = plural(self.damages.len() as u64, "place", "places");
        warn(format_args!("{damages} could not be read: see `esker check`, `esker repair`"));
        Answer::No
    }
}
