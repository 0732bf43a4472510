//! TiKV's Raft Engine.

use std::path::Path;

use raft_engine::{Config, Engine, LogBatch};

use super::entry::{Codec, entry, show_all};
use super::{Append, RaftStore, STATE_KEY};
use crate::Result;
use crate::plan::Settings;

struct Original {
    engine: Engine,
    sync: bool,
}

pub(super) fn setup(_: &Settings) -> String {
    "defaults: files of 128 MiB, recycled; batches compressed with LZ4 from 8 KiB on".into()
}

pub(super) fn open(dir: &Path, settings: &Settings) -> Result<Box<dyn RaftStore>> {
    let config = Config { dir: dir.to_string_lossy().into_owned(), ..Config::default() };
    Ok(Box::new(Original { engine: Engine::open(config)?, sync: settings.sync }))
}

impl RaftStore for Original {
    fn append(&self, appends: &[Append<'_>]) -> Result<()> {
        let mut batch = LogBatch::default();
        for append in appends {
            batch.add_entries::<Codec>(append.group, &[entry(append.index, append.entry)])?;
            batch.put(append.group, STATE_KEY.to_vec(), append.state.to_vec())?;
        }
        self.engine.write(&mut batch, self.sync)?;
        Ok(())
    }

    fn fetch(&self, group: u64, begin: u64, end: u64, show: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let mut entries = Vec::new();
        self.engine.fetch_entries_to::<Codec>(group, begin, end, None, &mut entries)?;
        show_all(&entries, show)
    }

    fn state(&self, group: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.engine.get(group, STATE_KEY))
    }

    fn compact(&self, group: u64, index: u64) -> Result<()> {
        self.engine.compact_to(group, index);
        Ok(())
    }

    fn reclaim(&self) -> Result<()> {
        self.engine.purge_expired_files()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.engine);
        Ok(())
    }
}
