//! Writes entries: in batches, small ones together, a large one alone; or, where they are sorted, as one load.

use std::time::Duration;

use esker::{BulkLoad, Error, ErrorKind};

use super::target::{Batch, Target, needs_cask};
use crate::failure::Failure;
use crate::sizes::Count;

/// Entries on their way into a store. Holds at most one batch, which is as long as asked for, or as its only value.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    way: Way<'a>,
    /// What was taken.
    loaded: Loaded,
    /// Entries of it that the store has.
    written: u64,
}

#[derive(Debug)]
enum Way<'a> {
    Batches {
        target: &'a Target,
        sync: bool,
        batch_bytes: u64,
        batch: Batch,
    },
    /// All at once, at the end.
    Sorted(BulkLoad),
}

/// What is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) entries: u64,
    /// Of keys and values.
    pub(crate) bytes: u64,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(target: &'a Target, sync: bool, batch_bytes: u64) -> Self {
        let way = Way::Batches { target, sync, batch_bytes, batch: target.batch() };
        Self { way, loaded: Loaded::default(), written: 0 }
    }

    /// For entries that come in the order of their keys.
    pub(crate) fn sorted(load: BulkLoad) -> Self {
        Self { way: Way::Sorted(load), loaded: Loaded::default(), written: 0 }
    }

    /// Whether everything is written at the end, or nothing.
    pub(crate) fn is_sorted(&self) -> bool {
        matches!(self.way, Way::Sorted(_))
    }

    /// Writes the batch if an entry of `bytes` has no room in it. Apart from [`put`](Self::put) for callers that tell what is wrong with an entry
    /// from what befalls those before it.
    pub(crate) fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        match &mut self.way {
            Way::Batches { target, sync, batch_bytes, batch } if batch.bytes() + bytes > *batch_bytes => {
                write(target, batch, *sync)?;
                self.written = self.loaded.entries;
            }
            Way::Batches { .. } | Way::Sorted(_) => {}
        }
        Ok(())
    }

    /// Takes an entry, for so long if that is said. It is written with its batch, by this call's successors.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Result<(), Error> {
        let bytes = (key.len() + value.len()) as u64;
        self.make_room(bytes)?;
        match &mut self.way {
            Way::Sorted(_) if ttl.is_some() => return Err(needs_cask()),
            Way::Sorted(load) => load.put(key, value)?,
            Way::Batches { target, batch, .. } => batch.put(target, key, value, ttl)?,
        }
        self.loaded.entries += 1;
        self.loaded.bytes += bytes;
        Ok(())
    }

    /// Writes the batch if it is full. Apart from [`put`](Self::put) so that the caller can let go of a large value first.
    pub(crate) fn write_if_full(&mut self) -> Result<(), Error> {
        match &mut self.way {
            Way::Batches { target, sync, batch_bytes, batch } if batch.bytes() >= *batch_bytes => {
                write(target, batch, *sync)?;
                self.written = self.loaded.entries;
            }
            Way::Batches { .. } | Way::Sorted(_) => {}
        }
        Ok(())
    }

    /// Writes what is left.
    pub(crate) fn finish(self) -> Result<Loaded, Failure> {
        let written = self.written;
        let finished = match self.way {
            Way::Batches { target, sync, mut batch, .. } => write(target, &mut batch, sync),
            Way::Sorted(load) => load.finish().map(drop),
        };
        finished.map(|()| self.loaded).map_err(|error| stopped(&error, written))
    }

    /// Why the import ends here.
    pub(crate) fn stopped(&self, error: &Error) -> Failure {
        stopped(error, self.written)
    }
}

/// Why an import ended when the store had `written` of its entries.
pub(super) fn stopped(error: &Error, written: u64) -> Failure {
    let came_in = match written {
        0 => "nothing is imported".to_owned(),
        1 => "1 entry is imported".to_owned(),
        entries => format!("{} entries are imported", Count(entries)),
    };
    // What cannot be taken now will not be taken then.
    let again = match error.kind() {
        ErrorKind::InvalidArgument => "",
        _ => "; the import can be run again",
    };
    Failure::new(format_args!("{error}; {came_in}{again}"))
}

fn write(target: &Target, batch: &mut Batch, sync: bool) -> Result<(), Error> {
    if batch.is_empty() {
        return Ok(());
    }
    target.write(std::mem::replace(batch, target.batch()), sync)
}
