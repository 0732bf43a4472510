//! Values that go to a blob file as they are written ([`Separation::AtWrite`]): packed by whoever writes them, appended by the
//! leader for the whole group, and replaced by pointers in what the log and the memtables get.
//!
//! - V1: values come before the pointers to them into their file, which has them before the log gets the batch. Both are on the disk before a
//!   write that asked for it returns; they are synced at once, by two threads, so a power loss may leave either of them alone.
//! - V2: each memtable has blob files of its own, so that its flush can make them the version's. One of each partition takes values
//!   at a time; at `blob_file_bytes` it is ended, and the next begun.
//! - V3: values of a group that is not logged are taken back (A2 of [`crate::blob`]'s active file).
//! - V4: when an ended log is made durable, all values that it points to were before (W4).
//! - V5: before a blob file takes its first value, all values in the others are durable. So what a power loss may take was
//!   logged no earlier than the first pointer to the newest file, and recovery looks at no other values.
//! - V6: all values of a file are packed as its header says (RocksDB refuses others). Those that were packed before `blob_compression` was
//!   changed, and come after it, the leader packs again.
//!
//! Two kinds of values are not separated here but at the flush: what is written without the log, which could not tell of it, and
//! what little a synced write brings: it would wait for the sync of a second file, which takes longer than writing it twice.
//!
//! Cost: values are packed outside of all locks, and neither packed nor plain ones are copied on the way to the file.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::compression::{Compression, compress, decompress};
use esker_format::file_name::FileName;
use esker_format::limits;
use esker_format::rocksdb::blob::{BlobIndex, BlobRecordHeader, RECORD_HEADER_BYTES};
use esker_format::rocksdb::internal_key::{FileNumber, ValueKind};
use esker_format::rocksdb::write_batch::Records;

use super::{Active, Lead, Request, Stage, dropped};
use crate::batch::{WriteBatch, descends};
use crate::blob::{ActiveBlob, ActiveBlobs, BlobSync, Held};
use crate::entry::Key;
use crate::family::{Family, Generation};
use crate::options::{BlobPartition, FamilyOptions, Separation, WriteOptions};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Memory of packed values that a thread keeps for its next write.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// And descriptions of so many of them.
const PIECES_KEPT_MAX: usize = 1024;
/// Batches no larger than this are kept for the next group.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// A memtable may point to values of this part of what lives in the family's blob files, before it is flushed for their sake:
/// only then does anybody know what of them is garbage. That is a tenth of what `max_space_amp` allows above it by default: with an eighth in place of this part
/// passes chose worse files, and wrote 2.6 and 2.8 bytes in place of 2.5 and 2.6 for each of values of 32 and 16 KiB.
const UNFLUSHED_PART: u64 = 32;
/// But to no more than so many times `blob_file_bytes`: recovery has to look at the pointers to them.
const UNFLUSHED_FILES_MAX: u64 = 64;
/// After so many bytes, a background thread begins to bring them to the device: what is left for the end of a file is little, then.
const SYNCED_BYTES: u64 = 32 << 20;

/// Values of a synced write stay with their keys if they are no longer, together with those. Synced puts a second, here and in a blob
/// file (`esker bench --benchmarks fillrandom --sync`, two cores, a sync of 85 µs): of 1 KiB 10,600 and 4,100 by one thread, 45,300 and
/// 35,100 by 16; of 4 KiB 10,400 and 4,200, 34,300 and 32,400; of 16 KiB 6,300 and 3,400, but 15,500 and 23,400.
const SYNCED_BATCH_BYTES_MAX: usize = 8 << 10;

/// The values of a batch that go to blob files.
#[derive(Debug, Default)]
pub(super) struct Values {
    pieces: Vec<Piece>,
    /// Header and key of each record.
    fronts: Vec<u8>,
    /// Encoded pointers, once the leader knows them.
    indexes: Vec<u8>,
}

/// One value.
#[derive(Debug)]
struct Piece {
    /// Which of the batch's records it belongs to.
    place: usize,
    family: u32,
    partition: u8,
    /// Of `fronts`.
    front: Range<usize>,
    stored: Stored,
    /// Its bytes in the file, without header and key.
    stored_bytes: u64,
    compression: Compression,
    /// Of `indexes`. Empty while there is none.
    index: Range<usize>,
}

/// Where the bytes are that go to the file.
#[derive(Debug)]
enum Stored {
    /// In the batch, as they are.
    Plain,
    Packed(Vec<u8>),
}

/// What the values of a group were appended to, and what was there before.
#[derive(Debug, Default)]
pub(super) struct Appended(Vec<Append>);

#[derive(Debug)]
struct Append {
    generation: Arc<Generation>,
    partition: u8,
    before: Held,
    bytes: u64,
}

thread_local! {
    /// Memory for packed values.
    static PACKED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Memory for the rest of them.
    static SPARE: Cell<Values> = const { Cell::new(Values::new()) };
}

/// Whose file a value goes to: family and partition.
type Home = (u32, u8);

impl Piece {
    fn home(&self) -> Home {
        (self.family, self.partition)
    }
}

impl Values {
    const fn new() -> Self {
        Self { pieces: Vec::new(), fronts: Vec::new(), indexes: Vec::new() }
    }

    /// Without values, with memory of this thread's last.
    fn spare() -> Self {
        // A thread that is ending has none.
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// Adds the value of `key`, that of the record at `place` of the batch, as `options` say.
    fn add(&mut self, place: usize, family: u32, options: &FamilyOptions, key: &[u8], value: &[u8]) -> Result<()> {
        let partition = options.blob_partition.as_ref().map_or(Ok(0), |choice| choice.of(key, value))?;
        let compression = options.blob_compression;
        let stored = match compression {
            Compression::None => Stored::Plain,
            kind => {
                // A thread that is ending has none.
                let mut packed = PACKED.try_with(Cell::take).unwrap_or_default();
                compress(kind, value, &mut packed).map_err(|error| Error::invalid_argument(error.to_string()))?;
                Stored::Packed(packed)
            }
        };
        let bytes = match &stored {
            Stored::Plain => value,
            Stored::Packed(packed) => packed,
        };
        let start = self.fronts.len();
        self.fronts.extend_from_slice(&BlobRecordHeader::of(key, bytes).encode());
        self.fronts.extend_from_slice(key);
        let (front, stored_bytes) = (start..self.fronts.len(), bytes.len() as u64);
        self.pieces.push(Piece { place, family, partition, front, stored, stored_bytes, compression, index: 0..0 });
        Ok(())
    }

    fn front(&self, piece: &Piece) -> &[u8] {
        self.fronts.get(piece.front.clone()).unwrap_or_default()
    }

    fn index(&self, piece: &Piece) -> Option<&[u8]> {
        self.indexes.get(piece.index.clone()).filter(|index| !index.is_empty())
    }

    /// Says where the values of a family and partition will be, if the first of them begins at `end` of `file`; returns how many
    /// that are, and where they end.
    fn place(&mut self, home: Home, file: FileNumber, end: u64) -> Held {
        let mut held = Held { end, count: 0 };
        for piece in self.pieces.iter_mut().filter(|piece| piece.home() == home) {
            let offset = held.end + piece.front.len() as u64;
            let index = BlobIndex { file, offset, bytes: piece.stored_bytes, compression: piece.compression };
            let start = self.indexes.len();
            index.encode(&mut self.indexes);
            piece.index = start..self.indexes.len();
            held = Held { end: offset + piece.stored_bytes, count: held.count + 1 };
        }
        held
    }

    /// Keeps memory for this thread's next write.
    fn recycle(mut self) {
        let packed = self.pieces.drain(..).find_map(|piece| match piece.stored {
            Stored::Packed(packed) if packed.capacity() <= KEPT_BYTES_MAX => Some(packed),
            _ => None,
        });
        if let Some(packed) = packed {
            let _ = PACKED.try_with(|kept| kept.set(packed));
        }
        self.fronts.clear();
        self.indexes.clear();
        if self.fronts.capacity() + self.indexes.capacity() <= SPARE_BYTES_MAX
            && self.pieces.capacity() <= PIECES_KEPT_MAX
        {
            let _ = SPARE.try_with(|kept| kept.set(self));
        }
    }
}

impl Request {
    /// Bytes of the batch as the user gave it.
    pub(crate) fn user_bytes(&self) -> usize {
        self.user_bytes
    }

    /// What it writes.
    pub(crate) fn records(&self) -> Records<'_> {
        self.batch.raw().records()
    }

    /// Whether it only deletes.
    pub(crate) fn only_deletes(&self) -> bool {
        let deletes = |kind| matches!(kind, ValueKind::Deletion | ValueKind::SingleDeletion | ValueKind::RangeDeletion);
        self.records().all(|record| record.is_ok_and(|record| deletes(record.kind)))
    }

    /// `batch`, without values that go elsewhere.
    fn plain(batch: WriteBatch, options: WriteOptions) -> Self {
        Self { user_bytes: batch.len_bytes(), batch, options, values: None, stage: Stage::Logged, asked: None }
    }

    /// See V6: packs what goes to the files of `home` as `kind`.
    fn pack_as(&mut self, home: Home, kind: Compression) -> Result<()> {
        let Some(values) = &mut self.values else { return Ok(()) };
        let mut records = self.batch.raw().records().enumerate();
        let differs = |piece: &&mut Piece| piece.home() == home && piece.compression != kind;
        for piece in values.pieces.iter_mut().filter(differs) {
            let invalid = |reason: String| Error::invalid_argument(reason).while_doing("packing a value again");
            let (mut raw, mut packed) = (Vec::new(), Vec::new());
            let value = match &piece.stored {
                Stored::Packed(packed) => {
                    decompress(piece.compression, packed, &mut raw, limits::VALUE_BYTES_MAX)
                        .map_err(|error| invalid(error.to_string()))?;
                    raw.as_slice()
                }
                Stored::Plain => {
                    let record = records.find(|(place, _)| *place == piece.place);
                    record.and_then(|(_, record)| record.ok()).map_or(&[][..], |record| record.value)
                }
            };
            compress(kind, value, &mut packed)
                .map_err(|error| invalid(format!("{error}; blob_compression was changed meanwhile, try again")))?;
            if let Some((header, key)) = values
                .fronts
                .get_mut(piece.front.clone())
                .and_then(|front| front.split_at_mut_checked(RECORD_HEADER_BYTES))
            {
                header.copy_from_slice(&BlobRecordHeader::of(key, &packed).encode());
            }
            (piece.stored_bytes, piece.compression) = (packed.len() as u64, kind);
            piece.stored = Stored::Packed(packed);
        }
        Ok(())
    }

    /// What of it goes to the files of `home`, piece by piece.
    fn parts_for<'a>(&'a self, home: Home, parts: &mut Vec<&'a [u8]>) {
        let Some(values) = &self.values else { return };
        let mut records = self.batch.raw().records().enumerate();
        for piece in values.pieces.iter().filter(|piece| piece.home() == home) {
            parts.push(values.front(piece));
            match &piece.stored {
                Stored::Packed(packed) => parts.push(packed),
                Stored::Plain => {
                    let record = records.find(|(place, _)| *place == piece.place);
                    parts.push(record.and_then(|(_, record)| record.ok()).map_or(&[], |record| record.value));
                }
            }
        }
    }

    /// Puts pointers into the batch where values went elsewhere.
    fn point(&mut self, spare: &mut WriteBatch) -> Result<()> {
        let Some(values) = &self.values else { return Ok(()) };
        let mut pieces = values.pieces.iter().peekable();
        let pointer = |place: usize| pieces.next_if(|piece| piece.place == place).and_then(|p| values.index(p));
        let pointed = self.batch.raw().point(spare.raw_mut(), pointer);
        pointed.map_err(|error| Error::invalid_argument(error.to_string()).with_source(error))?;
        spare.set_names_families(self.batch.names_families());
        std::mem::swap(&mut self.batch, spare);
        Ok(())
    }

    /// The batch, for its memory.
    pub(super) fn into_batch(self) -> WriteBatch {
        if let Some(values) = self.values {
            values.recycle();
        }
        self.batch
    }
}

/// Whether a value of `family` goes to a blob file as it is written, with a batch of so many bytes.
fn goes_to_blob(family: &Family, options: WriteOptions, value_bytes: usize, batch_bytes: usize) -> bool {
    let stays_in_log = options.sync && batch_bytes <= SYNCED_BATCH_BYTES_MAX && !family.partitions();
    family.separation() == Separation::AtWrite
        && !options.disable_wal
        && !stays_in_log
        && family.belongs_in_blob(value_bytes)
}

impl Store {
    /// Packs those values of `batch` that go to blob files as they are written.
    ///
    /// # Errors
    /// `InvalidArgument`: a family that it names is not there, or what [`BlobPartition`] says.
    pub(super) fn prepare(&self, batch: WriteBatch, options: WriteOptions) -> Result<Request> {
        if batch.needs_check() {
            self.check_suits(&batch)?;
        }
        if !self.may_separate(&batch)? {
            return Ok(Request::plain(batch, options));
        }
        let families = self.families.load();
        let mut values = Values::spare();
        for (place, record) in batch.raw().records().enumerate() {
            let record = record.map_err(|error| Error::invalid_argument(error.to_string()))?;
            if record.kind == ValueKind::Value
                && let Some(family) = families.get(&record.cf)
                && goes_to_blob(family, options, record.value.len(), batch.len_bytes())
            {
                values.add(place, family.id, &family.options(), record.key, record.value)?;
            }
        }
        let values = (!values.pieces.is_empty()).then_some(values);
        Ok(Request { values, ..Request::plain(batch, options) })
    }

    /// Refuses operands of a family in which nobody could merge them, and ranges that end before they begin.
    fn check_suits(&self, batch: &WriteBatch) -> Result<()> {
        let families = self.families.load();
        for record in batch.raw().records() {
            let record = record.map_err(|error| Error::invalid_argument(error.to_string()))?;
            let family = families.get(&record.cf).ok_or_else(|| dropped(record.cf))?;
            if record.kind == ValueKind::Merge && family.merge_operator.is_none() {
                let (key, family) = (Key(record.key), &family.name);
                return Err(Error::invalid_argument(format!(
                    "merging into key {key}: column family {family:?} has no merge operator; open the store with \
                     FamilyOptions::merge_operator or Options::merge_operators"
                )));
            }
            if record.kind == ValueKind::RangeDeletion && family.order.is_before(record.value, record.key) {
                return Err(descends(family.order, record.key, record.value));
            }
        }
        Ok(())
    }

    /// Whether one of the families that `batch` writes to has values that go to blob files at once. All of them must be there.
    fn may_separate(&self, batch: &WriteBatch) -> Result<bool> {
        let separates = |family: &Family| family.separation() == Separation::AtWrite;
        if !batch.names_families() {
            return Ok(separates(&self.default_family));
        }
        let families = self.families.load();
        let mut may_separate = false;
        for record in batch.raw().records() {
            let id = record.map_err(|error| Error::invalid_argument(error.to_string()))?.cf;
            may_separate |= separates(families.get(&id).ok_or_else(|| dropped(id))?);
        }
        Ok(may_separate)
    }

    /// A put whose value goes to a blob file and is packed from where it is; `None` if another way is due.
    ///
    /// # Errors
    /// `InvalidArgument`: key or value are too long.
    pub(super) fn prepare_put(
        &self,
        family: &Family,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
        mut batch: WriteBatch,
    ) -> Result<std::result::Result<Request, WriteBatch>> {
        if value.len() > limits::VALUE_BYTES_MAX || !goes_to_blob(family, options, value.len(), key.len() + value.len())
        {
            return Ok(Err(batch));
        }
        // Looked at once: the batch will have no value, which a change meanwhile must not call for.
        let now = family.options();
        if now.blob_compression == Compression::None {
            return Ok(Err(batch));
        }
        // In place of the value there is nothing: a pointer comes there.
        batch.put_id(family.id, key, &[])?;
        let mut values = Values::spare();
        values.add(0, family.id, &now, key, value)?;
        let user_bytes = batch.len_bytes() + value.len();
        Ok(Ok(Request { batch, options, values: Some(values), user_bytes, stage: Stage::Logged, asked: None }))
    }

    /// Appends the values of the group to the active blob files of their families, and puts pointers into the batches.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: nothing was appended.
    /// - `ReadOnly`: a blob file cannot be cut, or a sync failed.
    pub(super) fn store_values(&self, lead: &mut Lead, group: &mut [Request]) -> Result<Appended> {
        let mut appended = Appended::default();
        if group.iter().all(|request| request.values.is_none()) {
            return Ok(appended);
        }
        // What a family would get that was dropped since stays in the log, where nobody looks for it.
        for active in &lead.actives {
            let goes_there = |values: &Values| values.pieces.iter().any(|piece| piece.family == active.family.id);
            if !group.iter().any(|request| request.values.as_ref().is_some_and(goes_there)) {
                continue;
            }
            if let Err(error) = self.append_values(active, group, &mut appended) {
                return Err(self.take_back(appended, error));
            }
        }
        for request in group {
            if let Err(error) = request.point(&mut lead.spare) {
                return Err(self.take_back(appended, error));
            }
            if lead.spare.len_bytes() > SPARE_BYTES_MAX {
                lead.spare = WriteBatch::new();
            }
        }
        Ok(appended)
    }

    /// Appends what of the group belongs to one family; `appended` gets what came where.
    fn append_values(&self, active: &Active, group: &mut [Request], appended: &mut Appended) -> Result<()> {
        let (family, blobs) = (&active.family, &active.generation.blobs);
        let mut places = blobs.active();
        let mut due = 0u16;
        let pieces = group.iter().filter_map(|request| request.values.as_ref()).flat_map(|values| &values.pieces);
        pieces.filter(|piece| piece.family == family.id).for_each(|piece| due |= 1 << piece.partition);
        for partition in (0..BlobPartition::COUNT_MAX).filter(|partition| due & 1 << partition != 0) {
            self.make_place(active, &mut places, partition)?;
        }
        while due != 0 {
            // Those without a value come last, in the order in which they were begun (V5).
            let waiting = places.iter().filter(|(partition, _)| due & 1 << **partition != 0);
            let next = waiting.min_by_key(|(_, blob)| (blob.held().count == 0, blob.reader().number()));
            let Some(partition) = next.map(|(partition, _)| *partition) else {
                return Err(Error::new(ErrorKind::Io, "there is no blob file"));
            };
            due &= !(1 << partition);
            self.append_to(active, &mut places, partition, group, appended)?;
        }
        Ok(())
    }

    /// Sees to it that the partition has a file that takes values.
    fn make_place(&self, active: &Active, places: &mut ActiveBlobs, partition: u8) -> Result<()> {
        let blobs = &active.generation.blobs;
        let kind = active.family.options().blob_compression;
        let is_full = |blob: &ActiveBlob| {
            blob.has_footer()
                || blob.held().end >= active.family.blob_file_bytes()
                || blob.reader().compression() != kind
        };
        if places.get(&partition).is_some_and(is_full) {
            blobs.end(places, partition).map_err(|error| self.fail_if_unknown(error))?;
        }
        if places.contains_key(&partition) {
            return Ok(());
        }
        let (blob, path) = self.begin_blob(active, kind)?;
        blobs.begin(places, partition, blob, path, &self.trash);
        Ok(())
    }

    fn append_to(
        &self,
        active: &Active,
        places: &mut ActiveBlobs,
        partition: u8,
        group: &mut [Request],
        appended: &mut Appended,
    ) -> Result<()> {
        let (family, generation) = (&active.family, &active.generation);
        let is_fresh = |blob: &ActiveBlob| blob.held().count == 0;
        if places.get(&partition).is_some_and(is_fresh) {
            for other in places.values_mut().filter(|blob| !is_fresh(blob)) {
                other.sync().map_err(|error| self.fail_if_unknown(error))?;
            }
        }
        let Some(blob) = places.get_mut(&partition) else { return Ok(()) };
        let (before, home) = (blob.held(), (family.id, partition));
        group.iter_mut().try_for_each(|request| request.pack_as(home, blob.reader().compression()))?;
        let mut after = before;
        for values in group.iter_mut().filter_map(|request| request.values.as_mut()) {
            let placed = values.place(home, blob.reader().number(), after.end);
            after = Held { end: placed.end, count: after.count + placed.count };
        }
        let mut parts = Vec::with_capacity(2 * group.len());
        group.iter().for_each(|request| request.parts_for(home, &mut parts));
        let bytes = after.end - before.end;
        debug_assert_eq!(bytes, parts.iter().map(|part| part.len() as u64).sum::<u64>());
        blob.append(&parts, after.count - before.count, bytes).map_err(|error| self.fail_if_unknown(error))?;
        generation.blobs.add_bytes(bytes);
        appended.0.push(Append { generation: generation.clone(), partition, before, bytes });
        self.counters.write_blob_bytes.add(bytes);
        if self.background_jobs > 0
            && let Some(sync) = blob.due_sync(SYNCED_BYTES)
        {
            self.ask_for_sync(sync);
        }
        if after.end >= family.blob_file_bytes() && active.has_enough_blobs() {
            self.has_full.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn ask_for_sync(&self, sync: BlobSync) {
        let mut state = self.state.lock();
        state.blob_syncs.retain(|waiting| !waiting.is_of_same(&sync));
        state.blob_syncs.push(sync);
        drop(state);
        self.changed.notify_all();
    }

    /// Begins the next blob file of a memtable. Its name is durable before anything points to it.
    fn begin_blob(&self, active: &Active, compression: Compression) -> Result<(ActiveBlob, PathBuf)> {
        let number = self.new_file_number();
        let path = self.path_of(&FileName::Blob(number));
        let (files, id) = (&*self.env.files, active.family.id);
        let begun = ActiveBlob::create(files, &path, number, id, compression);
        let named = begun.and_then(|blob| Ok(files.sync_dir(&self.dir).map(|()| blob)?));
        match named {
            Ok(blob) => Ok((blob, path)),
            Err(error) => {
                // Nothing points to it, nor will.
                self.trash.add(path);
                Err(error)
            }
        }
    }

    /// Cuts off the values of a group that is not logged, because of `error` (V3). Returns the error that the group gets.
    pub(super) fn take_back(&self, appended: Appended, error: Error) -> Error {
        if error.kind() == ErrorKind::ReadOnly {
            // The log may have the group after all: then its values are where they should be.
            return error;
        }
        for Append { generation, partition, before, bytes } in appended.0 {
            generation.blobs.take_bytes(bytes);
            if let Some(blob) = generation.blobs.active().get_mut(&partition)
                && let Err(worse) = blob.take_back(before, &error)
            {
                return self.fail_if_unknown(worse);
            }
        }
        error
    }

    /// Ends the blob files of memtables that are about to be sealed.
    pub(super) fn end_blobs(&self, lead: &Lead, sealing: &BTreeSet<u32>) -> Result<()> {
        for active in &lead.actives {
            if sealing.contains(&active.family.id) {
                let blobs = &active.generation.blobs;
                blobs.end_all(&mut blobs.active()).map_err(|error| self.fail_if_unknown(error))?;
            }
        }
        Ok(())
    }

    /// A blob file of which nobody knows what it holds makes the store read-only (A3).
    pub(super) fn fail_if_unknown(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::ReadOnly {
            self.fail(&error);
        }
        error
    }
}

/// Syncs of the values that logged pointers lead to, as far as they are due (V1).
pub(super) fn unsynced_values(lead: &Lead) -> Vec<BlobSync> {
    let filled = lead.actives.iter().filter(|active| !active.generation.blobs.is_empty());
    let of_file = |blob: &ActiveBlob| Some(blob.pending_sync()).filter(BlobSync::is_due);
    filled
        .flat_map(|active| active.generation.blobs.active().values().filter_map(of_file).collect::<Vec<_>>())
        .collect()
}

impl Active {
    /// Whether its memtable should be flushed for the sake of the blob files that it points to.
    pub(super) fn has_enough_blobs(&self) -> bool {
        let bytes = self.generation.blobs.bytes();
        if bytes == 0 {
            return false;
        }
        let file_bytes = self.family.blob_file_bytes();
        let live_bytes = self.family.view.load().version.ledger().total().live_bytes();
        let most = (live_bytes / UNFLUSHED_PART).clamp(file_bytes, file_bytes.saturating_mul(UNFLUSHED_FILES_MAX));
        bytes >= most
    }
}

const _: () = assert!(RECORD_HEADER_BYTES == 32, "a front is a header and a key");
