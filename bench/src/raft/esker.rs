//! Esker's RaftLog.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker::RaftLog;
use esker::raft::{LogBatch, Options};

use super::entry::{Codec, entry, show_all};
use super::{Append, RaftStore, STATE_KEY};
use crate::Result;
use crate::plan::Settings;
use crate::sizes;

struct Esker {
    log: RaftLog,
    sync: bool,
    /// The canary's: how many entries it has seen.
    seen: Option<AtomicU64>,
}

pub(super) fn setup(_: &Settings) -> String {
    let cache = sizes::print(Options::default().cache_bytes as f64);
    format!(
        "defaults: files of 128 MiB, recycled; batches compressed with LZ4 from 8 KiB on; {cache} for batches that were read"
    )
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn RaftStore>> {
    Ok(Box::new(Esker { log: RaftLog::open(dir, Options::default())?, sync: settings.sync, seen: None }))
}

pub(super) fn open_canary(dir: &Path, settings: &Settings) -> Result<Box<dyn RaftStore>> {
    let log = RaftLog::open(dir, Options::default())?;
    Ok(Box::new(Esker { log, sync: settings.sync, seen: Some(AtomicU64::new(0)) }))
}

impl RaftStore for Esker {
    fn append(&self, appends: &[Append<'_>]) -> Result<()> {
        let mut batch = LogBatch::new();
        for append in appends {
            let mut entry = entry(append.index, append.entry);
            if self.seen.as_ref().is_some_and(|seen| seen.fetch_add(1, Relaxed).is_multiple_of(1_000)) {
                entry.value.iter_mut().take(1).for_each(|byte| *byte ^= 4);
            }
            batch.add::<Codec>(append.group, &[entry])?;
            batch.put(append.group, STATE_KEY, append.state)?;
        }
        self.log.write(&mut batch, self.sync)?;
        Ok(())
    }

    fn fetch(&self, group: u64, begin: u64, end: u64, show: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let mut entries = Vec::new();
        self.log.fetch::<Codec>(group, begin, end, None, &mut entries)?;
        show_all(&entries, show)
    }

    fn state(&self, group: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.log.get(group, STATE_KEY).map(|state| state.to_vec()))
    }

    fn compact(&self, group: u64, index: u64) -> Result<()> {
        self.log.compact_to(group, index)?;
        Ok(())
    }

    fn reclaim(&self) -> Result<()> {
        self.log.purge()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.close()?)
    }
}
