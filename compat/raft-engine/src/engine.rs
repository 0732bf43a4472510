//! The original's engine.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use esker_env::os::Origin;
use esker_format::raft::file_name::FileName;
use esker_raft_log::{ErrorKind, Listener, Options, Queue, RaftLog};
use protobuf::Message;

use crate::dump::LogItemReader;
use crate::env::{DefaultFileSystem, FileSystem};
use crate::log_batch::{Codec, parse};
use crate::{Command, Config, Error, LogBatch, MessageExt, Result, bridge, perf};

/// Number of a file, unique in its queue.
pub type FileSeq = u64;

/// One of the two sequences of files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogQueue {
    /// What users write.
    Append = 0,
    /// What was moved on.
    Rewrite = 1,
}

impl From<Queue> for LogQueue {
    fn from(queue: Queue) -> Self {
        match queue {
            Queue::Append => Self::Append,
            Queue::Rewrite => Self::Rewrite,
        }
    }
}

/// A file.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct FileId {
    /// Its queue.
    pub queue: LogQueue,
    /// Its number.
    pub seq: FileSeq,
}

/// By freshness: what was moved on is older than anything that was not.
impl Ord for FileId {
    fn cmp(&self, other: &Self) -> Ordering {
        let age = |file: &Self| (std::cmp::Reverse(file.queue as u8), file.seq);
        age(self).cmp(&age(other))
    }
}

impl PartialOrd for FileId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FileId {
    /// A file of `queue`.
    pub fn new(queue: LogQueue, seq: FileSeq) -> Self {
        Self { queue, seq }
    }
}

impl From<esker_raft_log::FileId> for FileId {
    fn from(file: esker_raft_log::FileId) -> Self {
        Self { queue: file.queue.into(), seq: file.sequence }
    }
}

/// Where a batch lies.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct FileBlockHandle {
    /// The file.
    pub id: FileId,
    /// Where in it.
    pub offset: u64,
    /// How long it is.
    pub len: usize,
}

/// Told of what happens to files.
pub trait EventListener: Sync + Send {
    /// A file was created.
    fn post_new_log_file(&self, _file_id: FileId) {}
    /// A batch was written.
    fn on_append_log_file(&self, _handle: FileBlockHandle) {}
    /// A batch is visible.
    fn post_apply_memtables(&self, _file_id: FileId) {}
    /// The oldest file that must not be purged yet.
    fn first_file_not_ready_for_purge(&self, _queue: LogQueue) -> Option<FileSeq> {
        None
    }
    /// Files up to this one were purged.
    fn post_purge(&self, _file_id: FileId) {}
}

struct Bridge(Arc<dyn EventListener>);

impl Listener for Bridge {
    fn file_created(&self, file: esker_raft_log::FileId) {
        self.0.post_new_log_file(file.into());
    }

    fn batch_appended(&self, file: esker_raft_log::FileId, offset: u64, bytes: u64) {
        self.0.on_append_log_file(FileBlockHandle { id: file.into(), offset, len: bytes as usize });
    }

    fn batch_applied(&self, file: esker_raft_log::FileId) {
        self.0.post_apply_memtables(file.into());
    }

    fn oldest_needed(&self, queue: Queue) -> Option<u64> {
        self.0.first_file_not_ready_for_purge(queue.into())
    }

    fn purged(&self, file: esker_raft_log::FileId) {
        self.0.post_purge(file.into());
    }
}

/// What [`Engine::fork`] made.
#[derive(Debug, Default)]
pub struct CopyDetails {
    /// Files of the copy's own.
    pub copied: Vec<String>,
    /// Files that both share. They are linked, not symlinked: each log may remove its name.
    pub symlinked: Vec<String>,
}

/// What an [`Engine`]'s second parameter may be.
pub trait PipeLog: Sized {}

/// The one that there is: files of a file system. It is never made.
#[derive(Debug)]
pub struct FilePipeLog<F>(PhantomData<fn() -> F>);

impl<F: FileSystem> PipeLog for FilePipeLog<F> {}

/// Gives files up on demand.
#[derive(Debug)]
pub struct PurgeManager<P> {
    log: RaftLog,
    files: PhantomData<fn() -> P>,
}

impl<P: PipeLog> PurgeManager<P> {
    /// As [`Engine::purge_expired_files`].
    ///
    /// # Errors
    /// As there.
    pub fn purge_expired_files(&self) -> Result<Vec<u64>> {
        Ok(self.log.purge()?)
    }

    /// Moves on what files of the append queue up to `watermark`, or all, hold. There are no steps to exit after: it is done
    /// as a whole, and what `exit_after_step` says is not looked at.
    ///
    /// # Panics
    /// If that fails, as the original does. [`RaftLog::move_on`] returns the error.
    #[expect(clippy::expect_used, reason = "the original returns nothing")]
    pub fn must_rewrite_append_queue(&self, watermark: Option<FileSeq>, _exit_after_step: Option<u64>) {
        self.log.move_on(watermark).expect("the append queue can be moved on");
    }

    /// Moves what the rewrite queue holds to new files of it.
    ///
    /// # Panics
    /// If that fails, as the original does. [`RaftLog::rewrite_again`] returns the error.
    #[expect(clippy::expect_used, reason = "the original returns nothing")]
    pub fn must_rewrite_rewrite_queue(&self) {
        self.log.rewrite_again().expect("the rewrite queue can be rewritten");
    }

    /// Gives up all files that nobody needs.
    ///
    /// # Panics
    /// If that fails, as the original does. [`RaftLog::purge_stale`] returns the error.
    #[expect(clippy::expect_used, reason = "the original returns nothing")]
    pub fn must_purge_all_stale(&self) {
        self.log.purge_stale().expect("files that nobody needs can go");
    }
}

/// So many files in a row of which a file system keeps nothing: those before them are forgotten, too. The original asks as often.
const FORGOTTEN_MIN: u64 = 100;

/// Whether files of a log are in a directory.
fn holds_files(dir: &Path) -> std::io::Result<bool> {
    let names = std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.collect::<std::io::Result<Vec<_>>>()?;
    Ok(names.iter().any(|name| matches!(name.to_str().and_then(FileName::parse), Some(FileName::Log(_)))))
}

/// One log for many Raft groups. A child that is forked while it is open is refused what can be refused, as [`RaftLog`] says.
#[derive(Debug)]
pub struct Engine<F = DefaultFileSystem, P = FilePipeLog<F>> {
    log: RaftLog,
    dir: String,
    purge: PurgeManager<P>,
    /// Where it was opened: what the log has no error for is refused elsewhere, too, where the original has one.
    origin: Origin,
    files: PhantomData<fn() -> F>,
}

impl Engine<DefaultFileSystem, FilePipeLog<DefaultFileSystem>> {
    /// Opens the log in `cfg.dir`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(cfg: Config) -> Result<Self> {
        Self::open_with_listeners(cfg, Vec::new())
    }

    /// The same with listeners.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_with_listeners(cfg: Config, listeners: Vec<Arc<dyn EventListener>>) -> Result<Self> {
        Self::open_with(cfg, Arc::new(DefaultFileSystem), listeners)
    }

    /// Groups with a gap in their entries, with the last index before it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such directory; if a file cannot be read.
    pub fn consistency_check(path: &Path) -> Result<Vec<(u64, u64)>> {
        Self::consistency_check_with_file_system(path, Arc::new(DefaultFileSystem))
    }

    /// Takes out of the files of the log in `path`, or of one queue, what `script` says. See [`esker_raft_script`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no log, or the script does not compile; what the script or a file says.
    #[cfg(feature = "scripting")]
    pub fn unsafe_repair(path: &Path, queue: Option<LogQueue>, script: String) -> Result<()> {
        Self::unsafe_repair_with_file_system(path, queue, script, Arc::new(DefaultFileSystem))
    }

    /// What is written in the files of a log, or in one of them, item by item.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is nothing to read.
    pub fn dump(path: &Path) -> Result<LogItemReader<DefaultFileSystem>> {
        Self::dump_with_file_system(path, Arc::new(DefaultFileSystem))
    }
}

impl<F: FileSystem> Engine<F, FilePipeLog<F>> {
    /// The same on a file system of the caller's own.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_with_file_system(cfg: Config, file_system: Arc<F>) -> Result<Self> {
        Self::open_with(cfg, file_system, Vec::new())
    }

    /// The same with listeners, too.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_with(mut cfg: Config, file_system: Arc<F>, listeners: Vec<Arc<dyn EventListener>>) -> Result<Self> {
        cfg.sanitize()?;
        if cfg.dir.is_empty() {
            // A setting that was forgotten: no reason to make a log wherever the process happens to be. The original cannot either.
            let reason = "the log has no directory: `dir` is empty";
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, reason).into());
        }
        let listeners = listeners.into_iter().map(|listener| Arc::new(Bridge(listener)) as Arc<dyn Listener>).collect();
        let log = RaftLog::open_with(&cfg.dir, cfg.options(), bridge::env(Arc::clone(&file_system)), listeners)?;
        let purge = PurgeManager { log: log.clone(), files: PhantomData };
        let engine = Self { log, dir: cfg.dir, purge, origin: Origin::here(), files: PhantomData };
        engine.forget_metadata(&*file_system);
        Ok(engine)
    }

    /// Takes away what the file system keeps about files that are gone, in either directory, back to [`FORGOTTEN_MIN`] in a row of which it
    /// keeps nothing. What cannot be taken away is in nobody's way: it is tried again by the next open.
    fn forget_metadata(&self, files: &F) {
        let dirs: Vec<&Path> =
            std::iter::once(Path::new(&self.dir)).chain(self.log.options().spill_dir.as_deref()).collect();
        for queue in [Queue::Append, Queue::Rewrite] {
            let first = self.log.queue_stats(queue).first_file;
            let mut forgotten = 0;
            for sequence in (1..first).rev() {
                let name = esker_raft_log::FileId::new(queue, sequence).to_string();
                let kept = dirs.iter().map(|dir| dir.join(&name)).filter(|path| files.exists_metadata(path));
                let kept: Vec<_> = kept.collect();
                forgotten = if kept.is_empty() { forgotten + 1 } else { 0 };
                if forgotten >= FORGOTTEN_MIN {
                    break;
                }
                // One that recovery left alone is a file still.
                for path in kept.iter().filter(|path| !path.exists()) {
                    let _ = files.delete_metadata(path);
                }
            }
        }
    }

    /// Makes a copy of the log of `source`, which must not be open. A log that is open is forked by
    /// [`RaftLog::fork`](esker_raft_log::RaftLog::fork).
    ///
    /// # Errors
    /// What the original says: recycling is on, any corruption is tolerated; that there is no log, of which the original makes an empty
    /// copy; or that a file could not be made.
    pub fn fork<T: AsRef<Path>>(source: &Config, fs: Arc<F>, target: T) -> std::result::Result<CopyDetails, String> {
        if source.enable_log_recycle {
            return Err("enable_log_recycle should be false".to_owned());
        }
        if source.recovery_mode == crate::RecoveryMode::TolerateAnyCorruption {
            return Err("recovery_mode shouldn't be TolerateAnyCorruption".to_owned());
        }
        let dirs = std::iter::once(&source.dir).chain(&source.spill_dir);
        if !dirs.map(Path::new).any(|dir| holds_files(dir).unwrap_or(false)) {
            return Err(format!("there is no log in {}", source.dir));
        }
        let engine = Self::open_with_file_system(source.clone(), fs).map_err(|error| error.to_string())?;
        let made = engine.log.fork(target).map_err(|error| error.to_string())?;
        let names = |paths: Vec<std::path::PathBuf>| paths.iter().map(|path| path.display().to_string()).collect();
        Ok(CopyDetails { copied: names(made.copied), symlinked: names(made.linked) })
    }

    /// [`consistency_check`](Engine::consistency_check) on a file system of the caller's own.
    ///
    /// # Errors
    /// As there.
    pub fn consistency_check_with_file_system(path: &Path, file_system: Arc<F>) -> Result<Vec<(u64, u64)>> {
        if !path.exists() {
            return Err(Error::InvalidArgument(format!("there is no directory {}", path.display())));
        }
        if !holds_files(path).map_err(Error::Io)? {
            return Ok(Vec::new());
        }
        let env = bridge::env(file_system);
        let check = RaftLog::check_with_env(path, &Options::default(), &env, &mut |_, _| {})?;
        // Gaps come in the order of the files: a group's first counts.
        let mut first = std::collections::BTreeMap::new();
        for gap in &check.gaps {
            first.entry(gap.group).or_insert(gap.last_before);
        }
        Ok(first.into_iter().collect())
    }

    /// [`unsafe_repair`](Engine::unsafe_repair) on a file system of the caller's own.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "scripting")]
    pub fn unsafe_repair_with_file_system(
        path: &Path,
        queue: Option<LogQueue>,
        script: String,
        file_system: Arc<F>,
    ) -> Result<()> {
        crate::filter::run(path, queue, script, &bridge::env(file_system))
    }

    /// [`dump`](Engine::dump) on a file system of the caller's own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is nothing to read.
    pub fn dump_with_file_system(path: &Path, file_system: Arc<F>) -> Result<LogItemReader<F>> {
        LogItemReader::new(path, file_system)
    }
}

impl<F: FileSystem, P: PipeLog> Engine<F, P> {
    /// Esker's own face of the log.
    pub fn as_raft_log(&self) -> &RaftLog {
        &self.log
    }

    /// Writes a batch; returns its bytes.
    ///
    /// # Errors
    /// Where the original panics too: a gap, an index below the first, a failed sync.
    pub fn write(&self, log_batch: &mut LogBatch, sync: bool) -> Result<usize> {
        let (written, times) = self.log.write_timed(&mut log_batch.0, sync);
        perf::wrote(&times);
        Ok(written?)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// If a sync failed, now or before.
    pub fn sync(&self) -> Result<()> {
        Ok(self.log.sync()?)
    }

    fn check_here(&self) -> Result<()> {
        let reason = "the log is open in the process that this one was forked from";
        if self.origin.is_here() { Ok(()) } else { Err(esker_raft_log::Error::new(ErrorKind::Closed, reason).into()) }
    }

    /// A key's message.
    ///
    /// # Errors
    /// If it is none of this type; in a process that was forked since the log was opened.
    pub fn get_message<S: Message>(&self, region_id: u64, key: &[u8]) -> Result<Option<S>> {
        self.check_here()?;
        match self.log.get(region_id, key) {
            Some(value) => Ok(Some(parse(&value)?)),
            None => Ok(None),
        }
    }

    /// A key's value.
    pub fn get(&self, region_id: u64, key: &[u8]) -> Option<Vec<u8>> {
        self.log.get(region_id, key).map(|value| value.to_vec())
    }

    /// Shows the messages of a range of keys until told to stop; those that are not of this type are left out.
    ///
    /// # Errors
    /// In a process that was forked since the log was opened.
    pub fn scan_messages<S, C>(
        &self,
        region_id: u64,
        start_key: Option<&[u8]>,
        end_key: Option<&[u8]>,
        reverse: bool,
        mut callback: C,
    ) -> Result<()>
    where
        S: Message,
        C: FnMut(&[u8], S) -> bool,
    {
        self.scan_raw_messages(region_id, start_key, end_key, reverse, |key, value| {
            parse(value).map_or(true, |message| callback(key, message))
        })
    }

    /// The same as bytes. The log is not locked meanwhile.
    ///
    /// # Errors
    /// In a process that was forked since the log was opened.
    pub fn scan_raw_messages<C>(
        &self,
        region_id: u64,
        start_key: Option<&[u8]>,
        end_key: Option<&[u8]>,
        reverse: bool,
        mut callback: C,
    ) -> Result<()>
    where
        C: FnMut(&[u8], &[u8]) -> bool,
    {
        self.check_here()?;
        let mut keys = self.log.keys(region_id, start_key, end_key);
        if reverse {
            keys.reverse();
        }
        for (key, value) in &keys {
            if !callback(key, value) {
                break;
            }
        }
        Ok(())
    }

    /// One entry.
    ///
    /// # Errors
    /// If its bytes are damaged.
    pub fn get_entry<M: MessageExt>(&self, region_id: u64, log_idx: u64) -> Result<Option<M::Entry>> {
        let mut found = None;
        self.log.with_entry(region_id, log_idx, |bytes| found = Some(parse(bytes)))?;
        Ok(found.transpose()?)
    }

    /// Appends entries `begin..end` to `vec`, as many as have `max_size` bytes but one at least; says how many.
    ///
    /// # Errors
    /// [`Error::EntryCompacted`], [`Error::EntryNotFound`]; a group that is not there has no entries.
    pub fn fetch_entries_to<M: MessageExt>(
        &self,
        region_id: u64,
        begin: u64,
        end: u64,
        max_size: Option<usize>,
        vec: &mut Vec<M::Entry>,
    ) -> Result<usize> {
        match self.log.fetch::<Codec<M>>(region_id, begin, end, max_size, vec) {
            Err(error) => match Error::from(error) {
                Error::EntryNotFound if !self.log.contains(region_id) => Ok(0),
                other => Err(other),
            },
            fetched => Ok(fetched?),
        }
    }

    /// Index of a group's first entry.
    pub fn first_index(&self, region_id: u64) -> Option<u64> {
        self.log.first_index(region_id)
    }

    /// Index of a group's last entry.
    pub fn last_index(&self, region_id: u64) -> Option<u64> {
        self.log.last_index(region_id)
    }

    /// Removes entries before `index`; says by how many the first index went up, to `index` where none are left. As in the original, a failure is no
    /// error here: none are removed.
    pub fn compact_to(&self, region_id: u64, index: u64) -> u64 {
        let Some(first) = self.log.first_index(region_id).filter(|first| *first < index) else { return 0 };
        let mut batch = LogBatch::default();
        batch.add_command(region_id, Command::Compact { index });
        if self.write(&mut batch, false).is_err() {
            return 0;
        }
        self.log.first_index(region_id).unwrap_or(index).saturating_sub(first)
    }

    /// All groups.
    pub fn raft_groups(&self) -> Vec<u64> {
        self.log.groups()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Gives up files; returns groups to be compacted.
    ///
    /// # Errors
    /// If nothing can be moved, or a sync failed.
    pub fn purge_expired_files(&self) -> Result<Vec<u64>> {
        Ok(self.log.purge()?)
    }

    /// The first and the last file of a queue.
    pub fn file_span(&self, queue: LogQueue) -> (u64, u64) {
        let queue = if queue == LogQueue::Append { Queue::Append } else { Queue::Rewrite };
        let stats = self.log.queue_stats(queue);
        (stats.first_file, stats.last_file)
    }

    /// Bytes that all files hold. The original takes each for as long as a file may be.
    pub fn get_used_size(&self) -> usize {
        let bytes = |queue| self.log.queue_stats(queue).bytes;
        (bytes(Queue::Append) + bytes(Queue::Rewrite)) as usize
    }

    /// Where the log lies.
    pub fn path(&self) -> &str {
        &self.dir
    }

    /// Gives files up on demand.
    pub fn purge_manager(&self) -> &PurgeManager<P> {
        &self.purge
    }
}
