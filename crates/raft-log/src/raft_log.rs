//! The public surface: a handle to an open log.

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, Thread};
use parking_lot::Mutex;

use crate::listener::Listener;
use crate::open::{Recovery, open_store};
use crate::options::Options;
use crate::store::{Store, elsewhere};
use crate::{Error, LogBatch, Result};

/// One log for any number of Raft groups: entries in order, and keys with values, for each.
///
/// A handle: clone it and use it from as many threads as you like. The last one that is dropped closes the log.
///
/// A log belongs to the process that opened it. A child that is forked while it is open may drop or [`close`](Self::close) its handle, which
/// does nothing, or run another program. What it reads or writes otherwise is refused as `Closed`. It must not ask for anything that has no error
/// to tell. Relative paths are resolved when the log is opened. The directories must
/// not be moved or replaced until it is closed: it goes on to write and remove files by their paths.
#[derive(Clone)]
pub struct RaftLog {
    pub(crate) store: Arc<Store>,
    /// Ends with the last handle, not with the last holder of the store.
    _end: Arc<End>,
}

/// Not what is within: that is a log's whole state, with the index of every group.
impl std::fmt::Debug for RaftLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RaftLog").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Closes the log when the last handle goes.
struct End {
    store: Arc<Store>,
    purger: Mutex<Option<Box<dyn Thread>>>,
    /// The process that opened it. In a child that was forked since, nothing of it may be touched: the files are the parent's.
    process: u32,
}

impl End {
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Err(elsewhere(&self.store.dir));
        }
        *self.store.closing.lock() = true;
        self.store.wake.notify_all();
        // Another close waits until this one is over.
        let mut purger = self.purger.lock();
        if let Some(mut purger) = purger.take() {
            purger.join();
        }
        self.store.close()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_forked() {
            // Nor does what they hold end here: a lock may be one that another thread of the parent held.
            std::mem::forget((self.store.clone(), self.purger.get_mut().take()));
            return;
        }
        // Who wants to know of a failure calls `close`.
        let _ = self.close();
    }
}

impl RaftLog {
    /// Opens the log in `dir`, which is created if it does not exist, unless [`Options::create_if_missing`] is false.
    ///
    /// # Errors
    /// - `InvalidArgument`: an option is out of range, `spill_dir` is `dir`, or one of them is the directory of a Db or a Cask; nothing was touched.
    /// - `NotFound`: there is no log, and `create_if_missing` is not set; nothing was made.
    /// - `Busy`: another process has the log open.
    /// - `Corruption`: the files are damaged in a way that [`Options::recovery_mode`] does not tolerate; nothing was changed.
    /// - `UnsupportedFormat`: a file was written by a newer version; nothing was changed.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_with(dir, options, Env::os(), Vec::new())
    }

    /// The same on another machine, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_env(dir: impl AsRef<Path>, options: Options, env: Env) -> Result<Self> {
        Self::open_with(dir, options, env, Vec::new())
    }

    /// The same with listeners.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        dir: impl AsRef<Path>,
        mut options: Options,
        env: Env,
        listeners: Vec<Arc<dyn Listener>>,
    ) -> Result<Self> {
        options.validate()?;
        let dir = env.files.absolute(dir.as_ref())?;
        options.spill_dir = options.spill_dir.map(|dir| env.files.absolute(&dir)).transpose()?;
        let store = Arc::new(open_store(&dir, options, env, listeners)?);
        let purger = match store.options.purge_interval {
            Some(interval) => {
                let purging = Arc::clone(&store);
                let work = Box::new(move || purging.purge_until_closed(interval));
                Some(store.env.threads.spawn("esker-purge", work).map_err(Error::from)?)
            }
            None => None,
        };
        let process = std::process::id();
        let end = Arc::new(End { store: Arc::clone(&store), purger: Mutex::new(purger), process });
        Ok(Self { store, _end: end })
    }

    /// Ends the log: what was written is synced, files are cut to what they hold, and a file `CLOSED` notes how much that is, so that the next open
    /// tells damage from a crash's work. Writes fail from now on, on all handles, and so do reads of
    /// entries; what was read of the index and of keys still is. The log can be opened again when this returns, or when the last read ends
    /// that was begun before.
    ///
    /// # Errors
    /// If what was written could not be made durable; again, if it is called again. `Closed` in a process that was forked since the log was
    /// opened: nothing is touched.
    pub fn close(&self) -> Result<()> {
        self._end.close()
    }

    /// Where the log lies.
    pub fn path(&self) -> &Path {
        &self.store.dir
    }

    /// How it was opened.
    pub fn options(&self) -> &Options {
        &self.store.options
    }

    /// What opening found.
    pub fn recovery(&self) -> &Recovery {
        &self.store.recovery
    }

    /// Removes the keys of `group` from `from` up to but not including `to`; returns how many those were.
    /// Keys that are put at the same time may stay.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete_range(&self, group: u64, from: Option<&[u8]>, to: Option<&[u8]>, sync: bool) -> Result<usize> {
        self.store.check_here()?;
        let keys = self.keys(group, from, to);
        let mut batch = LogBatch::new();
        keys.iter().for_each(|(key, _)| batch.delete(group, key));
        self.write(&mut batch, sync)?;
        Ok(keys.len())
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::ErrorKind;

    /// Goal: a child that was forked drops or closes what it got, and the parent's files and its lock stay as they are.
    #[test]
    fn what_a_forked_child_closes_is_its_parents() {
        let disk = SimDisk::new();
        let mut log = RaftLog::open_with_env("/log", Options::default(), disk.env()).unwrap();
        let mut batch = LogBatch::new();
        batch.add_entries(1, 1, ["entry"]).unwrap();
        log.write(&mut batch, false).unwrap();
        let before = disk.op_count();
        Arc::get_mut(&mut log._end).unwrap().process ^= 1;
        assert_eq!(log.close().unwrap_err().kind(), ErrorKind::Closed);
        drop(log);
        assert_eq!(disk.op_count(), before);
        let again = RaftLog::open_with_env("/log", Options::default(), disk.env());
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Busy);
    }
}
