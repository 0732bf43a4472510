//! The tables that a manifest names, opened side by side: each waits for the disk three or four times, and there may be
//! thousands.
//!
//! Without background threads one thread opens them, one after the other, in the order of the manifest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use esker_env::{FileSystem, durable, open_sealed};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::TableMeta;
use parking_lot::Mutex;

use super::before::OpenFiles;
use super::files::{Opener, missing};
use super::left_out::Sieve;
use crate::cache::BlockCache;
use crate::options::{LEVEL_COUNT, Options, Orders};
use crate::reclaim::Trash;
use crate::table::Table;
use crate::version::{Recovered, TableFile};
use crate::{Error, ErrorKind, Result};

/// Threads that open tables, the caller's included. More wait for the disk at once; few disks gain by it.
const THREADS_MAX: usize = 8;
/// Tables that are worth a thread.
const TABLES_PER_THREAD: usize = 16;

/// By number.
pub(super) type OpenTables = BTreeMap<FileNumber, Arc<TableFile>>;

/// What the threads share.
struct Job {
    files: Arc<dyn FileSystem>,
    mmap_reads: bool,
    dir: PathBuf,
    trash: Arc<Trash>,
    cache: Arc<BlockCache>,
    orders: Orders,
    /// Those that are open already.
    before: Arc<OpenFiles>,
    tables: Vec<TableMeta>,
    next: AtomicUsize,
    /// Whether the first that fails ends the work.
    refuses: bool,
    failed: AtomicBool,
    done: Mutex<Vec<(usize, Result<Arc<TableFile>>)>>,
}

/// Opens all tables of all families, but those that are open `before`.
///
/// # Errors
/// The first in the order of the manifest, among those that were met: `Corruption`, `UnsupportedFormat`, or the system's.
pub(super) fn open_all(
    opener: &Opener<'_>,
    cache: &Arc<BlockCache>,
    recovered: &Recovered,
    options: &Options,
    sieve: &mut Sieve,
) -> Result<OpenTables> {
    let Opener { env, dir, trash, before, mmap_reads } = *opener;
    let mut tables = Vec::new();
    for ((level, _), meta) in recovered.families.values().flat_map(|family| &family.tables) {
        check_place(dir, *level, meta)?;
        tables.push(meta.clone());
    }
    let new_count = tables.iter().filter(|meta| !before.has_table(meta.number)).count();
    let wanted = if options.background_jobs > 0 { (new_count / TABLES_PER_THREAD).min(THREADS_MAX - 1) } else { 0 };
    let job = Arc::new(Job {
        files: env.files.clone(),
        mmap_reads,
        dir: dir.to_owned(),
        trash: trash.clone(),
        cache: cache.clone(),
        orders: Orders::of(options),
        before: before.clone(),
        tables,
        next: AtomicUsize::new(0),
        refuses: sieve.refuses(),
        failed: AtomicBool::new(false),
        done: Mutex::default(),
    });
    let mut threads = Vec::new();
    for index in 0..wanted {
        let theirs = job.clone();
        // Fewer threads than wanted do the same work.
        if let Ok(thread) = env.threads.spawn(&format!("esker-open-{index}"), Box::new(move || theirs.work())) {
            threads.push(thread);
        }
    }
    job.work();
    // All of them are waited for, whatever became of the first.
    let panicked = threads.iter_mut().filter_map(|thread| (!thread.join()).then_some(())).count();
    if panicked > 0 {
        let reason = "a thread that opened tables ended by a panic; report it";
        return Err(Error::new(ErrorKind::Io, reason).with_path(dir));
    }
    let mut done = std::mem::take(&mut *job.done.lock());
    done.sort_by_key(|(index, _)| *index);
    let number_of = |index: usize| job.tables.get(index).map(|meta| meta.number).unwrap_or_default();
    let mut tables = OpenTables::new();
    for (index, opened) in done {
        let number = number_of(index);
        let opened = sieve.pass_file(FileName::Table(number), opened)?;
        tables.extend(opened.map(|opened| (number, opened)));
    }
    Ok(tables)
}

/// Refuses a table that a manifest puts where Esker has no place.
pub(crate) fn check_place(dir: &Path, level: u32, meta: &TableMeta) -> Result<()> {
    if (level as usize) < LEVEL_COUNT && meta.path_id == 0 {
        return Ok(());
    }
    let reason = format!(
        "the manifest puts {} into level {level} and path {}; Esker has levels 0..{LEVEL_COUNT} and one path",
        FileName::Table(meta.number),
        meta.path_id
    );
    Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(dir))
}

impl Job {
    fn work(&self) {
        while !self.failed.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(meta) = self.tables.get(index) else { return };
            let opened = match self.before.table(&*self.files, meta) {
                Some(open) => Ok(open),
                None => self.open(meta),
            };
            if opened.is_err() && self.refuses {
                self.failed.store(true, Ordering::Relaxed);
            }
            self.done.lock().push((index, opened));
        }
    }

    fn open(&self, meta: &TableMeta) -> Result<Arc<TableFile>> {
        let legacy = self.dir.join(FileName::LegacyTable(meta.number).to_string());
        let path = if durable::is_there(&*self.files, &legacy)? {
            legacy
        } else {
            self.dir.join(FileName::Table(meta.number).to_string())
        };
        let file = open_sealed(&*self.files, &path, self.mmap_reads).map_err(Error::from);
        let newest = Some(meta.largest_sequence);
        let table =
            file.and_then(|file| Table::open_as(file, meta.file_bytes, &self.orders, newest, self.cache.clone()));
        let table = table.map_err(|error| missing(error, &path))?;
        table.expect_to_be(meta)?;
        // At once: the indexes of all of them together may be more than there is memory for.
        table.watch();
        Ok(TableFile::of_watched(meta.clone(), table, path, self.trash.clone()))
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::version::recover;
    use crate::{Db, FamilyOptions};

    /// Goal: a limit of memory holds while a store is being opened: indexes and filters of tables that were opened go for those of others.
    #[test]
    fn tables_keep_to_their_share_of_memory_while_they_are_opened() {
        const LIMIT: u64 = 8 << 10;
        let (disk, dir) = (SimDisk::new(), Path::new("/store"));
        let family = FamilyOptions { bloom_bits_per_key: 64.0, target_file_bytes: 4 << 10, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
        let db = Db::open_with_env(dir, options.clone(), disk.env()).unwrap();
        for table in 0..20u32 {
            for n in 0..100u32 {
                db.put([n.to_be_bytes(), table.to_be_bytes()].concat(), "value").unwrap();
            }
            db.flush().unwrap();
        }
        let all_bytes = db.stats().memory.index_filter_bytes;
        assert!(all_bytes > LIMIT, "{all_bytes}");
        let table_count = db.stats().families[0].levels.iter().map(|level| level.files).sum::<usize>();
        db.close().unwrap();

        let env = disk.env();
        let recovered = recover(&*env.files, dir).unwrap();
        let cache = Arc::new(BlockCache::within_limit(LIMIT));
        let (trash, before) = (Trash::new(env.files.clone()), Arc::default());
        let opener = Opener { env: &env, dir, trash: &trash, before: &before, mmap_reads: false };
        let tables = open_all(&opener, &cache, &recovered, &options, &mut Sieve::refusing()).unwrap();
        let kept_bytes: u64 = tables.values().map(|file| file.table.memory_bytes() as u64).sum();
        assert_eq!(tables.len(), table_count);
        assert!(kept_bytes > 0 && kept_bytes <= LIMIT * 3 / 4, "{kept_bytes} of {all_bytes}");
    }
}
