//! What goes on in a store, told as it happens: jobs of the background, memtables that are full, writers that are held back, failures.
//!
//! Told on the thread that it happens on, never under the lock of the store's state, so a listener may read. It may hold the lead of the commit
//! queue, or the manifest. Cost without a listener: a look at an empty list for each job and each memtable, none for a read or a put.

use std::any::Any;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use parking_lot::Mutex;

use crate::family::Family;
use crate::store::Store;
use crate::version::{BlobHandle, TableFile};
use crate::{Error, Result};

/// A program that is told of [`Event`]s ([`Options::listeners`](crate::Options::listeners)).
///
/// It is called by the thread on which the event happens, so be brief: a job waits for it, or writers do. It may read the store. What waits
/// for background work ([`Db::flush`](crate::Db::flush), [`Db::wait_for_compact`](crate::Db::wait_for_compact)) would wait for itself, as would a
/// write, or [`Db::close`](crate::Db::close). A panic in it is caught, and has no effect on the store.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
///
/// # extern crate esker_db as esker;
/// use esker::{EventKind, Listener, Options};
///
/// let compactions = Arc::new(AtomicU64::new(0));
/// let counted = compactions.clone();
/// let listener = Listener::new(move |event| {
///     if let EventKind::JobEnded { outcome: Err(error), job, .. } = &event.kind {
///         eprintln!("{job} failed: {error}");
///     } else if matches!(event.kind, EventKind::JobEnded { .. }) {
///         counted.fetch_add(1, Ordering::Relaxed);
///     }
/// });
/// let options = Options { listeners: vec![listener, Listener::lines(std::io::stderr())], ..Options::default() };
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct Listener(Arc<Tell>);

type Tell = dyn Fn(&Event<'_>) + Send + Sync;

impl Listener {
    /// One that `tell` is called for.
    pub fn new(tell: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// One that writes each event to `writer` as a line for people, and flushes it. What cannot be written is left out.
    pub fn lines(writer: impl Write + Send + 'static) -> Self {
        let writer = Mutex::new(writer);
        Self::new(move |event| {
            let line = format!("{event}\n");
            let mut writer = writer.lock();
            let _ = writer.write_all(line.as_bytes()).and_then(|()| writer.flush());
        })
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener(..)")
    }
}

/// Something that happened. `Display` is one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event<'a> {
    /// When, since the store was opened. Events of several threads may be told in another order than this.
    pub at: Duration,
    /// What.
    pub kind: EventKind<'a>,
}

/// See [`Event`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// A job of the background begins; also one that a call asked for ([`Db::compact_range`](crate::Db::compact_range) and its like).
    JobBegan(&'a Job),
    /// A job has ended: what it changed is what readers see, and durable; or it failed, and changed nothing. What can be tried again is.
    JobEnded {
        /// As it began.
        job: &'a Job,
        /// How long it took.
        elapsed: Duration,
        /// What it changed, or why not. A job that had nothing to do any more, as its family was dropped, changed nothing.
        outcome: std::result::Result<&'a FileChanges, &'a Error>,
    },
    /// Files were taken in by [`Db::ingest`](crate::Db::ingest) or a [`BulkLoad`](crate::BulkLoad).
    TakenIn {
        /// Of which column family.
        column_family: &'a str,
        /// Which.
        changes: &'a FileChanges,
    },
    /// A memtable takes no more writes, and waits to be flushed. The writers that wait for the next one go on after this.
    MemtableSealed {
        /// Of which column family.
        column_family: &'a str,
        /// Its memory.
        bytes: u64,
    },
    /// From now on writers are held to so many bytes a second, as compactions or flushes fall behind; `None`: not any more.
    WriteRate(Option<u64>),
    /// A writer waited, and goes on or fails.
    Waited {
        /// For what.
        cause: WaitCause,
        /// How long.
        waited: Duration,
    },
    /// The store takes no more writes until it is opened again, for this reason. Told once.
    ReadOnly(&'a Error),
}

/// What a writer may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitCause {
    /// A flush, as there are [`write_buffer_count_max`](crate::FamilyOptions::write_buffer_count_max) memtables of a family.
    Flush,
    /// Space, which reclaim was to give back.
    Space,
}

/// Work that changes the files of a column family.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Job {
    /// 1, 2, 3 … since the store was opened.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// For which column family.
    pub column_family: String,
    /// The uppermost level that it takes tables from; `None` of a flush, and where tables stay in their levels.
    pub level: Option<usize>,
    /// The level that its tables go to; `None` where they stay in their levels.
    pub output_level: Option<usize>,
    /// Memtables of a flush, tables of other jobs that it reads.
    pub inputs: usize,
    /// Their bytes.
    pub input_bytes: u64,
    /// Blob files that it moves living values out of, or makes holes in.
    pub blob_files: usize,
}

/// See [`Job`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobKind {
    /// Memtables become a table of level 0, their large values blob files.
    Flush,
    /// Tables are merged.
    Compaction,
    /// Tables go to the next level as they are.
    Move,
    /// Reclaim: all tables are written again, and what lives moves out of blob files with much garbage.
    Sweep,
    /// Reclaim: the same for one range of keys.
    Window,
    /// Reclaim: the tables that point into blob files with much garbage are written again, in their place.
    Relocation,
    /// Values of a family that falls back come home to its tables.
    FallBack,
    /// Reclaim: dead pages of blob files become holes.
    Punch,
    /// [`Db::delete_files_in_range`](crate::Db::delete_files_in_range).
    DeleteFiles,
}

/// What a version of a column family has that the one before did not, and the other way round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileChanges {
    /// Files that came. A table that changed its level is here, too.
    pub added: Vec<ChangedFile>,
    /// Files that are not the family's any more. They go from the disk once nobody reads them. A table that changed its level is here, too.
    pub dropped: Vec<ChangedFile>,
    /// Bytes of blob files that have become garbage.
    pub garbage_bytes: u64,
    /// Bytes of blob files that have become holes.
    pub punched_bytes: u64,
}

/// A table or a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedFile {
    /// The number in its name.
    pub number: u64,
    /// Its level; `None` of a blob file.
    pub level: Option<usize>,
    /// Bytes of a table; of a blob file, those of its values with their headers and keys.
    pub bytes: u64,
}

impl Job {
    /// Over `tables`, which stay in their levels, as far as one can tell from that.
    pub(crate) fn over<'a>(
        id: u64,
        kind: JobKind,
        family: &Family,
        tables: impl Iterator<Item = &'a Arc<TableFile>>,
    ) -> Self {
        let mut job = Self {
            id,
            kind,
            column_family: family.name.clone(),
            level: None,
            output_level: None,
            inputs: 0,
            input_bytes: 0,
            blob_files: 0,
        };
        for table in tables {
            job.inputs += 1;
            job.input_bytes = job.input_bytes.saturating_add(table.meta.file_bytes);
        }
        job
    }
}

impl ChangedFile {
    pub(crate) fn table(level: usize, table: &TableFile) -> Self {
        Self { number: table.number().get(), level: Some(level), bytes: table.meta.file_bytes }
    }

    pub(crate) fn blob(blob: &BlobHandle) -> Self {
        Self { number: blob.number().get(), level: None, bytes: blob.addition.total_bytes }
    }

    /// Its name in the store's directory.
    pub fn name(&self) -> String {
        let number = FileNumber::new(self.number);
        let name = if self.level.is_some() { FileName::Table(number) } else { FileName::Blob(number) };
        name.to_string()
    }
}

/// Counts jobs, and knows when the store was opened.
#[derive(Debug)]
pub(crate) struct Events {
    opened: Duration,
    jobs: AtomicU64,
}

impl Events {
    pub(crate) fn new(opened: Duration) -> Self {
        Self { opened, jobs: AtomicU64::new(0) }
    }
}

impl Store {
    /// Tells all who listen.
    pub(crate) fn tell(&self, kind: EventKind<'_>) {
        if !self.options().listeners.is_empty() {
            self.tell_of(self.env.clock.monotonic(), kind);
        }
    }

    /// The same of what happened at `moment`, by the store's clock.
    pub(crate) fn tell_of(&self, moment: Duration, kind: EventKind<'_>) {
        let event = Event { at: moment.saturating_sub(self.events.opened), kind };
        for listener in &self.options().listeners {
            // The hook of panics has told it; the store goes on.
            let _: std::result::Result<(), Box<dyn Any + Send>> =
                catch_unwind(AssertUnwindSafe(|| (listener.0)(&event)));
        }
    }

    /// Runs a job, and tells that it begins and how it ends.
    pub(crate) fn run_job(
        &self,
        job: impl FnOnce(u64) -> Job,
        run: impl FnOnce() -> Result<FileChanges>,
    ) -> Result<FileChanges> {
        if self.options().listeners.is_empty() {
            return run();
        }
        let job = job(self.events.jobs.fetch_add(1, Ordering::Relaxed) + 1);
        let began = self.env.clock.monotonic();
        self.tell(EventKind::JobBegan(&job));
        let result = run();
        let elapsed = self.env.clock.monotonic().saturating_sub(began);
        self.tell(EventKind::JobEnded { job: &job, elapsed, outcome: result.as_ref() });
        result
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:10.3} s  {}", self.at.as_secs_f64(), self.kind)
    }
}

impl fmt::Display for EventKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobBegan(job) => write!(f, "{job} begins"),
            Self::JobEnded { job, elapsed, outcome } => {
                write!(f, "{job} ")?;
                match outcome {
                    Ok(changes) => write!(f, "ended after {}: {changes}", Millis(*elapsed)),
                    Err(error) => write!(f, "failed after {}: {error}", Millis(*elapsed)),
                }
            }
            Self::TakenIn { column_family, changes } => write!(f, "files taken into {column_family:?}: {changes}"),
            Self::MemtableSealed { column_family, bytes } => {
                write!(f, "memtable of {column_family:?} sealed, {}", Kib(*bytes))
            }
            Self::WriteRate(Some(rate)) => write!(f, "writers are held to {} a second", Kib(*rate)),
            Self::WriteRate(None) => f.write_str("writers are not held back any more"),
            Self::Waited { cause, waited } => {
                let cause = match cause {
                    WaitCause::Flush => "a flush",
                    WaitCause::Space => "space",
                };
                write!(f, "a writer waited {} for {cause}", Millis(*waited))
            }
            Self::ReadOnly(error) => write!(f, "the store is read-only from now on: {error}"),
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} of {:?}", self.id, self.kind, self.column_family)?;
        match (self.level, self.output_level) {
            (Some(from), Some(to)) => write!(f, ", level {from} to {to}")?,
            (None, Some(to)) => write!(f, " to level {to}")?,
            _ => {}
        }
        let input = if self.kind == JobKind::Flush { "memtable" } else { "table" };
        write!(f, ", {} of {}", Counted(self.inputs, input), Kib(self.input_bytes))?;
        if self.blob_files > 0 {
            write!(f, ", {}", Counted(self.blob_files, "blob file"))?;
        }
        Ok(())
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Move => "move",
            Self::Sweep => "sweep",
            Self::Window => "window",
            Self::Relocation => "relocation",
            Self::FallBack => "fall-back",
            Self::Punch => "punch",
            Self::DeleteFiles => "deletion of files",
        })
    }
}

impl fmt::Display for FileChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        let mut part = |f: &mut fmt::Formatter<'_>, what: fmt::Arguments<'_>| {
            let comma = if std::mem::take(&mut is_first) { "" } else { ", " };
            write!(f, "{comma}{what}")
        };
        for (sign, files) in [('+', &self.added), ('-', &self.dropped)] {
            for (kind, is_table) in [("table", true), ("blob file", false)] {
                let of_kind = || files.iter().filter(|file| file.level.is_some() == is_table);
                let bytes = of_kind().fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
                if of_kind().next().is_some() {
                    part(f, format_args!("{sign}{} of {}", Counted(of_kind().count(), kind), Kib(bytes)))?;
                }
            }
        }
        for (what, bytes) in [("garbage", self.garbage_bytes), ("holes", self.punched_bytes)] {
            if bytes > 0 {
                part(f, format_args!("{} of {what}", Kib(bytes)))?;
            }
        }
        if is_first { f.write_str("nothing changed") } else { Ok(()) }
    }
}

/// How many there are, of what.
struct Counted(usize, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        write!(f, "{count} {what}{}", if *count == 1 { "" } else { "s" })
    }
}

struct Kib(u64);

impl fmt::Display for Kib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.0.div_ceil(1024))
    }
}

struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_one() {
        let column_family = "f".to_owned();
        let (kind, level, output_level) = (JobKind::Flush, None, Some(0));
        let flush = Job { id: 1, kind, column_family, level, output_level, inputs: 1, input_bytes: 1, blob_files: 0 };
        assert_eq!(flush.to_string(), "#1 flush of \"f\" to level 0, 1 memtable of 1 KiB");
        let sweep = Job { kind: JobKind::Sweep, output_level: None, inputs: 2, blob_files: 1, ..flush };
        assert_eq!(sweep.to_string(), "#1 sweep of \"f\", 2 tables of 1 KiB, 1 blob file");
        let file = |level| ChangedFile { number: 1, level, bytes: 1 };
        let (added, dropped) = (vec![file(Some(0))], vec![file(None), file(None)]);
        let changes = FileChanges { added, dropped, ..FileChanges::default() };
        assert_eq!(changes.to_string(), "+1 table of 1 KiB, -2 blob files of 1 KiB");
    }
}
