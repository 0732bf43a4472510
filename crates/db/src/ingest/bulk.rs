//! Sorted pairs go straight into tables and blob files: one pass, no log, no memtable, one edit at the end.
//!
//! `put → batch → (threads) pack → (a thread) tables and blob files → (another) sync`; in the calling thread where there are
//! no others. Blocks of tables are packed by the thread that writes.
//!
//! - K1: keys ascend, each once; whoever breaks that gets an error, and what was put before stays as it is.
//! - K2: after a failure nothing more is taken, and [`BulkLoad::finish`] fails: what is not whole is not installed.
//! - K3: a load that comes late (N2) writes its tables again, under new numbers; its blob files are as they were.
//!
//! Cost: one copy of each pair, compression and checksum once; memory for twice [`BATCHES_MAX`] batches a packing thread, beside the
//! open files' buffers. The device is kept busy from the start (see [`Syncer`]).

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use esker_env::Thread;
use esker_format::compression::Compression;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};
use parking_lot::Mutex;

use super::batch::{Batch, Step, pack_all};
use super::install::{LoadSequence, Outcome};
use super::sst_file::check_next;
use super::{Brought, Newcomer, Syncer};
use crate::family::Family;
use crate::iterate::InternalIterator;
use crate::output::{Finished, OutputFiles};
use crate::reclaim::Sizes;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Keys and values that are handed over together, in bytes.
const BATCH_BYTES: u64 = 1 << 20;
/// Batches between two threads.
const BATCHES_MAX: usize = 2;
/// Threads that pack; more of them wait for the one that writes.
const PACKERS_MAX: usize = 4;

/// A load of sorted pairs into a column family: see [`Db::bulk_load`](crate::Db::bulk_load).
///
/// Nothing of it can be seen before [`finish`](Self::finish); dropped without, it leaves nothing. A child that is forked meanwhile may drop it, which does
/// nothing there; else it is refused as `Closed`.
pub struct BulkLoad {
    store: Arc<Store>,
    family: Arc<Family>,
    /// The sequence number of the first table.
    first: LoadSequence,
    batch: Batch,
    last_key: Vec<u8>,
    loaded: Loaded,
    writer: Writer,
}

/// What a [`BulkLoad`] brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Keys, those that were deleted too.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Tables.
    pub tables: usize,
    /// Blob files.
    pub blob_files: usize,
    /// Bytes of both.
    pub file_bytes: u64,
    /// The sequence number from which on reads see all of it.
    pub sequence: u64,
}

/// Who writes the files.
enum Writer {
    /// The caller.
    Here(Box<Sink>),
    /// A thread.
    Beside(Beside),
    /// Nobody any more (K2).
    Failed(Error),
}

/// Writes batches into files.
struct Sink {
    outputs: OutputFiles<Arc<Store>, Arc<Family>>,
    internal: Vec<u8>,
}

/// Threads that pack, and one with a [`Sink`].
struct Beside {
    /// To those that pack, in turn; or to the one that writes, where nothing is packed. Empty once nothing more comes.
    queues: Vec<SyncSender<Step>>,
    turn: usize,
    /// Batches that were written, for their memory.
    spare: Receiver<Batch>,
    threads: Vec<Box<dyn Thread>>,
    result: Arc<Mutex<Option<Result<Finished>>>>,
}

impl Sink {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        self.outputs.let_in(batch.file_bytes())?;
        for (user_key, value, kind, is_packed) in batch.entries() {
            if is_packed {
                let sequence = self.outputs.load_sequence()?;
                self.outputs.add_packed(&InternalKey { user_key, sequence, kind }, value)?;
            } else {
                add(&mut self.outputs, &mut self.internal, user_key, kind, value)?;
            }
        }
        self.outputs.sync_ahead(batch.raw_bytes())
    }
}

/// Adds a key under the number of its table.
fn add<S: Deref<Target = Store>, F: Deref<Target = Family>>(
    outputs: &mut OutputFiles<S, F>,
    internal: &mut Vec<u8>,
    user_key: &[u8],
    kind: ValueKind,
    value: &[u8],
) -> Result<()> {
    let sequence = outputs.load_sequence()?;
    internal.clear();
    internal_key::append(internal, user_key, sequence, kind);
    outputs.add(&InternalKey { user_key, sequence, kind }, internal, value)
}

impl Beside {
    fn start(store: &Arc<Store>, family: &Arc<Family>, first: SequenceNumber) -> Result<Self> {
        let (emptied, spare) = channel();
        let syncer = Syncer::start(&store.env)?;
        let outputs = OutputFiles::loading(store.clone(), family.clone(), first, true, Some(syncer));
        let options = Arc::clone(outputs.options());
        let packs = outputs.separates() && options.blob_compression != Compression::None;
        let sink = Sink { outputs, internal: Vec::new() };
        let mut beside = Self { queues: Vec::new(), turn: 0, spare, threads: Vec::new(), result: Arc::default() };
        let mut packed = Vec::new();
        for _ in 0..if packs { store.background_jobs.min(PACKERS_MAX) } else { 0 } {
            let (queue, batches) = sync_channel::<Step>(BATCHES_MAX);
            let (to, from) = sync_channel(BATCHES_MAX);
            let options = Arc::clone(&options);
            let work = move || pack_all(&options, &batches, &to);
            beside.threads.push(store.env.threads.spawn("esker-pack", Box::new(work))?);
            beside.queues.push(queue);
            packed.push(from);
        }
        let told = Arc::clone(&beside.result);
        let work: Box<dyn FnOnce() + Send> = if packed.is_empty() {
            let (queue, batches) = sync_channel::<Step>(BATCHES_MAX);
            beside.queues.push(queue);
            Box::new(move || *told.lock() = write_all(sink, || batches.recv().ok().map(Ok), &emptied))
        } else {
            let mut turns = (0..packed.len()).cycle();
            let next = move || packed.get(turns.next()?)?.recv().ok();
            Box::new(move || *told.lock() = write_all(sink, next, &emptied))
        };
        beside.threads.push(store.env.threads.spawn("esker-load", work)?);
        Ok(beside)
    }

    fn end(&mut self) {
        self.queues.clear();
        for mut thread in self.threads.drain(..) {
            // That it panicked shows in what is missing of its work.
            let _ = thread.join();
        }
    }

    /// Waits for the end of all threads and says what came of it.
    fn join(&mut self) -> Result<Finished> {
        self.end();
        let ended = || Err(Error::new(ErrorKind::Io, "a thread that loads ended by a panic; report it"));
        self.result.lock().take().unwrap_or_else(ended)
    }

    fn send(&mut self, step: Step) -> Result<()> {
        let turn = self.turn;
        self.turn = (turn + 1) % self.queues.len().max(1);
        match self.queues.get(turn).map(|queue| queue.send(step)) {
            Some(Ok(())) => Ok(()),
            // The threads end early only by a failure.
            _ => {
                Err(self.join().err().unwrap_or_else(|| Error::new(ErrorKind::Io, "the threads that load have ended")))
            }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes what `next` has, in order. `None` if the load was given up.
fn write_all(
    mut sink: Sink,
    mut next: impl FnMut() -> Option<Result<Step>>,
    spare: &Sender<Batch>,
) -> Option<Result<Finished>> {
    loop {
        let mut batch = match next()? {
            Ok(Some(batch)) => batch,
            Ok(None) => return Some(sink.outputs.finish()),
            Err(error) => return Some(Err(error)),
        };
        if let Err(error) = sink.write(&batch) {
            return Some(Err(error));
        }
        batch.clear();
        // Nobody may want it any more.
        let _ = spare.send(batch);
    }
}

impl BulkLoad {
    pub(crate) fn begin(store: &Arc<Store>, family: &Arc<Family>) -> Result<Self> {
        store.check_takes_writes()?;
        let first = store.take_load_sequence()?;
        let writer = if store.background_jobs == 0 {
            let outputs = OutputFiles::loading(store.clone(), family.clone(), first.get(), true, None);
            Writer::Here(Box::new(Sink { outputs, internal: Vec::new() }))
        } else {
            Writer::Beside(Beside::start(store, family, first.get())?)
        };
        let (store, family) = (store.clone(), family.clone());
        let (batch, last_key, loaded) = (Batch::default(), Vec::new(), Loaded::default());
        Ok(Self { store, family, first, batch, last_key, loaded, writer })
    }

    /// Adds `key` with `value`. Keys come in ascending order, each once.
    ///
    /// # Errors
    /// - `InvalidArgument`: the key does not follow the one before, which is named, or key or value is too long. It is left out, and the
    ///   load may go on.
    /// - `Exhausted`, `Io`, `ReadOnly`, `Closed`: some pair before this one could not be written; the load has failed.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), value.as_ref(), ValueKind::Value)
    }

    /// Adds that `key` is gone.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), &[], ValueKind::Deletion)
    }

    /// What was put so far; tables and files are counted at the end.
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    fn add(&mut self, key: &[u8], value: &[u8], kind: ValueKind) -> Result<()> {
        self.check_here()?;
        check_next(self.family.order, (self.loaded.entries > 0).then_some(&*self.last_key), key, value)?;
        let pair_bytes = (key.len() + value.len()) as u64;
        if !self.batch.is_empty() && self.batch.raw_bytes() + pair_bytes > BATCH_BYTES {
            self.hand_over()?;
        }
        self.batch.add(key, value, kind);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.loaded.entries += 1;
        self.loaded.bytes += pair_bytes;
        Ok(())
    }

    /// In a process that was forked since it began, the files, and the threads that write them, are the parent's.
    fn check_here(&mut self) -> Result<()> {
        self.store.check_here().inspect_err(|error| {
            std::mem::forget(std::mem::replace(&mut self.writer, Writer::Failed(error.clone())));
        })
    }

    /// Gives the batch to whoever writes.
    fn hand_over(&mut self) -> Result<()> {
        let written = self.store.check_takes_writes().and_then(|()| match &mut self.writer {
            Writer::Here(sink) => {
                let written = sink.write(&self.batch);
                self.batch.clear();
                written
            }
            Writer::Beside(beside) => {
                let next = beside.spare.try_recv().unwrap_or_default();
                beside.send(Some(std::mem::replace(&mut self.batch, next)))
            }
            Writer::Failed(error) => Err(error.clone()),
        });
        written.inspect_err(|error| self.writer = Writer::Failed(error.clone()))
    }

    /// Completes the files and has the family take them in, all at once: durable, and seen by every later read.
    ///
    /// Cost: waits for the device to have the last of it; writers wait for one sync of the manifest, and for a flush if they have just
    /// written into the range.
    ///
    /// # Errors
    /// - What made the load fail, then or now: nothing was loaded, and the files go.
    /// - `Conflict`: the column family was dropped meanwhile.
    /// - `ReadOnly`: the manifest could not be synced; whether all was loaded or nothing, the next open knows.
    pub fn finish(mut self) -> Result<Loaded> {
        self.check_here()?;
        if !self.batch.is_empty() {
            self.hand_over()?;
        }
        let finished = match std::mem::replace(&mut self.writer, Writer::Failed(given_up())) {
            Writer::Here(sink) => sink.outputs.finish(),
            Writer::Beside(mut beside) => beside.send(None).and_then(|()| beside.join()),
            Writer::Failed(error) => Err(error),
        };
        let finished = finished.map_err(|error| error.while_doing("loading sorted pairs"))?;
        self.install(finished)
    }

    fn install(mut self, finished: Finished) -> Result<Loaded> {
        let (store, family) = (&self.store, &self.family);
        // Counted until it is in a version, or gone.
        let Finished { edit, mut newcomers, table_bytes, blob_bytes, incoming } = finished;
        let mut _written_again = None;
        let (mut file_bytes, table_count) = (table_bytes + blob_bytes, newcomers.len());
        let blob_paths = edit.blobs.iter().map(|blob| store.path_of(&FileName::Blob(blob.number())));
        let mut blobs = Brought { store, paths: blob_paths.collect() };
        let mut tables = Brought { store, paths: paths_of(&newcomers) };
        let _guest = store.enter()?;
        let sequence = loop {
            if newcomers.is_empty() {
                break store.visible().get();
            }
            let is_named = || {
                blobs.paths.clear();
                tables.paths.clear();
            };
            match store.take_in(family, newcomers, &edit.blobs, Some(self.first.get()), is_named)? {
                Outcome::TakenIn(ingested) => break ingested.sequence,
                Outcome::Late(late) => {
                    self.first = store.take_load_sequence()?;
                    let finished = renumber(store, family, self.first.get(), &late)?;
                    (newcomers, file_bytes) = (finished.newcomers, file_bytes + finished.table_bytes);
                    tables = Brought { store, paths: paths_of(&newcomers) };
                    if let Some(incoming) = &incoming {
                        incoming.set(Sizes { blobs: blob_bytes, ..Sizes::default() });
                    }
                    _written_again = finished.incoming;
                }
            }
        };
        store.counters.ingested_bytes.add(file_bytes);
        store.counters.user_bytes.add(self.loaded.bytes);
        Ok(Loaded { tables: table_count, blob_files: edit.blobs.len(), file_bytes, sequence, ..self.loaded })
    }
}

impl Drop for BulkLoad {
    fn drop(&mut self) {
        // Nobody has asked.
        let _ = self.check_here();
    }
}

fn paths_of(newcomers: &[Newcomer]) -> Vec<PathBuf> {
    newcomers.iter().map(|table| table.path.clone()).collect()
}

/// See K3.
fn renumber(store: &Store, family: &Family, first: SequenceNumber, late: &[Newcomer]) -> Result<Finished> {
    let mut outputs = OutputFiles::loading(store, family, first, false, None);
    let mut internal = Vec::new();
    for newcomer in late {
        outputs.let_in(newcomer.meta.file_bytes)?;
        let mut entries = newcomer.table.iter(false);
        entries.seek_to_first()?;
        while entries.valid() {
            store.check_open()?;
            let key = InternalKey::decode(entries.key())
                .map_err(|error| Error::decode(&newcomer.path, 0, "reading a table that was just loaded", error))?;
            add(&mut outputs, &mut internal, key.user_key, key.kind, entries.value())?;
            entries.next()?;
        }
    }
    outputs.finish()
}

fn given_up() -> Error {
    Error::new(ErrorKind::Io, "the load was finished")
}

impl fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoad").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}
