//! Tables and blob files that one piece of background work writes, before any version names them.
//!
//! - O1: entries come in internal key order; a user key is never split over two tables.
//! - O2: every file is synced when it is finished; the directory is synced by install.
//! - O3: until the files are handed over ([`OutputFiles::finish`], [`Complete::hand_over`]), dropping this removes them: a failed job
//!   leaves nothing behind.
//! - O4: of work that keeps to ranges of keys, no blob file has values of two ranges, nor has a table below level 0 keys of two.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use esker_env::AppendFile;
use esker_format::compression::Compression;
use esker_format::file_name::FileName;
use esker_format::limits;
use esker_format::rocksdb::blob::{BlobIndex, accounted_bytes};
use esker_format::rocksdb::blob_refs::{self, BlobRefs};
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::version_edit::TableMeta;
use esker_log::pacer::{Class, GiveWay, Pieces};

use crate::Result;
use crate::blob::{BlobFile, BlobWriter, Course};
use crate::compaction::{Fate, Levels};
use crate::entry;
use crate::events::FileChanges;
use crate::family::{Family, Generation};
use crate::ingest::{Newcomer, Syncer};
use crate::operands::{Fold, has_operands};
use crate::options::{FamilyOptions, Separation};
use crate::range_deletions::Fragments;
use crate::reclaim::{Ends, Incoming, Reserved, Sizes, Trash};
use crate::store::Store;
use crate::table::{Table, TableIdentity, TableOptions, TableWriter};
use crate::version::{BlobHandle, Edit, TableFile};

/// Memory for a record is kept for the next one up to this size, and given back beyond.
const RECORD_BYTES_KEPT: usize = 1 << 20;
/// Written before the device is made to begin with it, where that is done beside the writing thread.
const SYNC_BYTES: u64 = 32 << 20;
/// Of an index, when its table ends: a quarter of what a block can be, which no key and value take it beyond.
const INDEX_BYTES_MAX: usize = limits::BLOCK_BYTES_MAX / 4;

/// Of background work, which has the store for as long as it takes.
pub(crate) type Outputs<'a> = OutputFiles<&'a Store, &'a Family>;

/// See the module's head.
pub(crate) struct OutputFiles<S: Deref<Target = Store>, F: Deref<Target = Family>> {
    store: S,
    family: F,
    /// Those of the family when the work began: what a file is said to be, all of it is.
    options: Arc<FamilyOptions>,
    /// Set for a sorted load: what is in its first table was written at this number, in the second at the next.
    load_from: Option<SequenceNumber>,
    /// The same: what it is counted with.
    incoming: Option<Incoming>,
    /// Syncs beside this thread, if there is one.
    syncer: Option<Syncer>,
    /// What the work was reckoned to write, as far as it did not yet.
    reserved: Option<Arc<Reserved>>,
    /// Bytes written since the open files were last synced.
    unsynced_bytes: u64,
    /// Tables of a load that are whole.
    newcomers: Vec<Newcomer>,
    /// See O4.
    ends: Ends,
    /// Range deletions of the keys from the end of the last table on.
    range_deletions: Fragments,
    level: usize,
    /// That of a table whose place they take; 0 as long as it is not known.
    epoch: u64,
    /// At what size its tables end. Of a load chosen once: the number of a key of a load is that of the table which it was to go to.
    table_bytes_max: u64,
    /// How long an index is when its table ends, in level 0, too: with very long keys, one that were only full by its bytes could have an index
    /// beyond what a block can be.
    index_bytes_max: usize,
    table_options: TableOptions,
    identity: TableIdentity,
    /// Where values go that are with their keys, if they are large enough.
    separates: bool,
    table: Option<OpenTable>,
    blob: Option<BlobWriter>,
    tables: Vec<(usize, Arc<TableFile>)>,
    blobs: Vec<Arc<BlobHandle>>,
    created: Created,
    index: Vec<u8>,
    internal: Vec<u8>,
    record: Vec<u8>,
    course: Course,
    pieces: Pieces,
    /// Set for work that callers come before.
    give_way: Option<GiveWay>,
    /// Set for work that keeps to a pace, as whose bytes what it writes counts; and so many were asked for.
    class: Option<Class>,
    paced_bytes: u64,
    /// See [`FIRST_LOG_PROPERTY`].
    first_log: Option<FileNumber>,
    table_bytes: u64,
    blob_bytes: u64,
}

struct OpenTable {
    writer: TableWriter,
    number: FileNumber,
    oldest_blob_file: Option<FileNumber>,
    blob_refs: Tally,
    older_versions: u64,
    /// Whether its last entry is an operand.
    ends_in_operand: bool,
}

/// Bytes by blob file: neighbours in a table point each into another, of dozens or hundreds.
#[derive(Default)]
struct Tally {
    /// Each file has one place, of a power of two of them: its number, and what was added since it came there.
    recent: Vec<(u64, u64)>,
    /// How many gave their place to another since there are so many.
    evicted: usize,
    all: BlobRefs,
}

const TALLY_PLACES_MIN: usize = 64;
const TALLY_PLACES_MAX: usize = 4096;

impl Tally {
    fn add(&mut self, file: FileNumber, bytes: u64) {
        if self.evicted >= self.recent.len() {
            self.grow();
        }
        let mask = self.recent.len() - 1;
        let Some(place) = self.recent.get_mut(file.get() as usize & mask) else { return };
        if place.0 == file.get() {
            // What a damaged table says of lengths may be anything.
            place.1 = place.1.saturating_add(bytes);
            return;
        }
        let before = std::mem::replace(place, (file.get(), bytes));
        if before.1 > 0 {
            self.evicted += 1;
            self.settle(before);
        }
    }

    /// Makes more places, if there are not so many that memory would wait for them.
    #[cold]
    fn grow(&mut self) {
        self.evicted = 0;
        let places = (self.recent.len() * 4).clamp(TALLY_PLACES_MIN, TALLY_PLACES_MAX);
        for place in std::mem::replace(&mut self.recent, vec![(0, 0); places]) {
            self.settle(place);
        }
    }

    fn settle(&mut self, (file, bytes): (u64, u64)) {
        if bytes > 0 {
            let sum = self.all.entry(FileNumber::new(file)).or_insert(0);
            *sum = sum.saturating_add(bytes);
        }
    }

    fn finish(mut self) -> BlobRefs {
        for place in std::mem::take(&mut self.recent) {
            self.settle(place);
        }
        self.all
    }
}

/// Where the value of an entry lies, if that is in a blob file.
#[inline(always)]
pub(crate) fn reference(key: &InternalKey<'_>, value: &[u8]) -> Result<Option<BlobIndex>> {
    if key.kind != ValueKind::BlobIndex {
        return Ok(None);
    }
    entry::pointer(key.user_key, value).map(Some)
}

/// How tables of a level of the family are compressed, as its tree is now.
fn compression_at(family: &Family, options: &FamilyOptions, level: usize) -> Compression {
    if options.is_compressed_evenly() {
        return options.compression;
    }
    let version = family.view.load().version.clone();
    options.compression_at(level, Levels::of(&version, options).base, version.deepest_level())
}

impl<S: Deref<Target = Store>, F: Deref<Target = Family>> OutputFiles<S, F> {
    pub(crate) fn new(store: S, family: F, level: usize, separates: bool) -> Self {
        let now = store.env.clock.unix_seconds();
        let store_trash = store.trash.clone();
        let options = Arc::clone(&family.options());
        Self {
            options: Arc::clone(&options),
            load_from: None,
            incoming: None,
            syncer: None,
            reserved: None,
            unsynced_bytes: 0,
            newcomers: Vec::new(),
            ends: Ends::default(),
            range_deletions: Fragments::default(),
            level,
            epoch: 0,
            table_bytes_max: family.table_bytes(),
            index_bytes_max: INDEX_BYTES_MAX,
            table_options: TableOptions {
                compression: compression_at(&family, &options, level),
                ..TableOptions::of(&options)
            },
            identity: TableIdentity {
                column_family_id: family.id,
                column_family_name: family.name.clone(),
                creation_time: now,
                oldest_key_time: now,
                db_id: store.db_id.clone(),
                session_id: store.session_id.to_string(),
            },
            separates: separates && options.separation.moves_out(),
            store,
            family,
            table: None,
            blob: None,
            tables: Vec::new(),
            blobs: Vec::new(),
            created: Created { trash: store_trash, paths: Vec::new() },
            index: Vec::new(),
            internal: Vec::new(),
            record: Vec::new(),
            course: Course::default(),
            pieces: Pieces::default(),
            give_way: None,
            class: None,
            paced_bytes: 0,
            first_log: None,
            table_bytes: 0,
            blob_bytes: 0,
        }
    }

    /// Those that hold for all that it writes.
    pub(crate) fn options(&self) -> &Arc<FamilyOptions> {
        &self.options
    }

    /// The same for a sorted load, each key once. With `syncer`, files are synced beside this thread.
    pub(crate) fn loading(store: S, family: F, first: SequenceNumber, separates: bool, syncer: Option<Syncer>) -> Self {
        let mut outputs = Self::new(store, family, 1, separates);
        outputs.table_options.compression = outputs.options.compression_of_loads();
        outputs.load_from = Some(first);
        outputs.first_log = Some(outputs.family.view.load().first_log());
        outputs.incoming = Some(Incoming::to(&outputs.family));
        outputs.syncer = syncer;
        outputs
    }

    /// The same for work, or a part of it, that will write what `reserved` counts.
    pub(crate) fn sharing(mut self, reserved: Arc<Reserved>) -> Self {
        self.reserved = Some(reserved);
        self
    }

    /// The same, keeping to the ranges of keys that `ends` has the ends of (O4).
    pub(crate) fn by_range(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }

    /// The same, with files synced beside this thread where the store has threads, and the system one more: else they are synced here.
    pub(crate) fn syncing_beside(mut self) -> Self {
        if self.store.background_jobs > 0 {
            self.syncer = Syncer::start(&self.store.env).ok();
        }
        self
    }

    /// The same for work on what is in tables already, giving way to callers: not for a flush, which memory waits for.
    pub(crate) fn giving_way(self) -> Self {
        let first_log = Some(self.family.view.load().first_log());
        Self { give_way: Some(GiveWay::default()), first_log, ..self }
    }

    /// The same, at the pace of this class: of tables, and in a flush of values, too. Those that others move, they ask for themselves.
    pub(crate) fn at_the_pace_of(self, class: Class) -> Self {
        Self { class: Some(class), ..self }
    }

    /// Waits until what was written may have been, unless the store is closed meanwhile.
    fn keep_pace(&mut self) {
        let Some(class) = self.class else { return };
        let open_blob_bytes = self.blob.as_ref().map_or(0, BlobWriter::file_bytes);
        let blobs = if class == Class::Flush { self.blob_bytes + open_blob_bytes } else { 0 };
        let written = (self.table_bytes + self.open_table_bytes() + blobs).max(self.paced_bytes);
        let bytes = written - std::mem::replace(&mut self.paced_bytes, written);
        self.store.pacer.request_while(class, bytes, &mut || self.store.check_open().is_ok());
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// `bytes` of what was reserved are in files now.
    fn note_written(&mut self, bytes: u64) -> Result<()> {
        if let Some(reserved) = &self.reserved {
            reserved.note_written(bytes);
        }
        if self.load_from.is_none() { self.sync_ahead(bytes) } else { Ok(()) }
    }

    /// An entry of `bytes`, or its value, was worked on.
    #[inline]
    fn note_work(&mut self, bytes: u64) {
        if self.load_from.is_none() && self.pieces.is_done_after(bytes) {
            self.end_piece();
        }
    }

    fn end_piece(&mut self) {
        self.keep_pace();
        if let Some(give_way) = &mut self.give_way
            // Who is held back waits for this.
            && !self.store.is_delayed()
            && !self.store.room.is_awaited()
        {
            give_way.give_way(&self.store.env);
        }
        self.store.make_wanted_log();
    }

    /// Waits until there is room for `bytes` more of a load.
    pub(crate) fn let_in(&mut self, bytes: u64) -> Result<()> {
        let Some(incoming) = &self.incoming else { return Ok(()) };
        let open_blob_bytes = self.blob.as_ref().map_or(0, BlobWriter::file_bytes);
        let (tables, blobs) = (self.table_bytes + self.open_table_bytes(), self.blob_bytes + open_blob_bytes);
        // What was let in before is in the files.
        incoming.set(Sizes { tables, blobs, promised: 0 });
        self.reserved = None;
        self.reserved = Some(Arc::new(self.store.let_in(incoming, bytes)?));
        incoming.set(Sizes { tables, blobs, promised: bytes });
        Ok(())
    }

    /// The sequence number that the next key of a load has: its table's. Ends the table if it is full.
    pub(crate) fn load_sequence(&mut self) -> Result<SequenceNumber> {
        if self.table_is_full() {
            self.finish_table(None)?;
        }
        let first = self.load_from.unwrap_or_default();
        Ok(SequenceNumber::new(first.get() + self.newcomers.len() as u64))
    }

    /// Bytes of the table being written, so far.
    pub(crate) fn open_table_bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| table.writer.file_bytes())
    }

    fn table_is_full(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.writer.file_bytes() >= self.table_bytes_max)
            || self.index_is_full()
    }

    fn index_is_full(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.writer.index_bytes() >= self.index_bytes_max)
    }

    /// Says that entries of `user_key` come next: ends what belongs to the range before it (O4).
    #[inline]
    pub(crate) fn come_to(&mut self, user_key: &[u8]) -> Result<()> {
        if !self.ends.passes(user_key) {
            return Ok(());
        }
        if self.level > 0 {
            self.finish_table(Some(user_key))?;
        }
        self.finish_blob()
    }

    /// The same, with these range deletions, of keys that come.
    pub(crate) fn with_range_deletions(self, range_deletions: Fragments) -> Self {
        Self { range_deletions, ..self }
    }

    /// Adds an entry that survived.
    pub(crate) fn add(&mut self, key: &InternalKey<'_>, internal: &[u8], value: &[u8]) -> Result<()> {
        if self.separates && key.kind == ValueKind::Value && self.goes_to_blob(value) {
            return self.add_separated(key, value);
        }
        match reference(key, value)? {
            Some(index) => self.add_reference(key, internal, value, &index),
            None => self.add_entry(key.user_key, internal, value, None),
        }
    }

    /// Adds an entry that survived; its value, `index`, leads to a blob file.
    pub(crate) fn add_reference(
        &mut self,
        key: &InternalKey<'_>,
        internal: &[u8],
        value: &[u8],
        index: &BlobIndex,
    ) -> Result<()> {
        let reference = (index.file, accounted_bytes(index, key.user_key.len()));
        self.add_entry(key.user_key, internal, value, Some(reference))
    }

    fn goes_to_blob(&self, value: &[u8]) -> bool {
        self.options.belongs_in_blob(value.len())
    }

    /// Whether values that move go to their keys, large ones, too.
    fn brings_back(&self) -> bool {
        self.options.separation == Separation::FallBack
    }

    /// Adds an entry whose value lies in `blob` and shall not stay there: it goes where the family's values go now.
    pub(crate) fn add_moved(&mut self, key: &InternalKey<'_>, index: &BlobIndex, blob: &BlobFile) -> Result<()> {
        if !self.brings_back() && blob.compression() == self.options.blob_compression {
            let (mut record, mut course) = (std::mem::take(&mut self.record), std::mem::take(&mut self.course));
            let stored = course.read_stored(blob, key.user_key, index, &mut record);
            let added =
                stored.and_then(|stored| self.add_to_blob(key, |writer| writer.add_stored(key.user_key, stored)));
            if record.capacity() <= RECORD_BYTES_KEPT {
                self.record = record;
            }
            self.course = course;
            return added;
        }
        // Where that is nowhere, the read says so.
        if let Ok(extent) = blob.extent(key.user_key, index) {
            self.course.pass(blob, &extent);
        }
        let value = blob.read(key.user_key, index)?;
        if !self.brings_back() && self.goes_to_blob(&value) {
            return self.add_separated(key, &value);
        }
        let mut internal = Vec::with_capacity(key.user_key.len() + internal_key::TAG_BYTES);
        internal_key::append(&mut internal, key.user_key, key.sequence, ValueKind::Value);
        self.add_entry(key.user_key, &internal, &value, None)
    }

    /// Whether large values go to blob files.
    pub(crate) fn separates(&self) -> bool {
        self.separates
    }

    /// Adds an entry whose value goes to a blob file and is packed as the family's are.
    pub(crate) fn add_packed(&mut self, key: &InternalKey<'_>, stored: &[u8]) -> Result<()> {
        self.add_to_blob(key, |writer| writer.add_stored(key.user_key, stored))
    }

    fn add_separated(&mut self, key: &InternalKey<'_>, value: &[u8]) -> Result<()> {
        self.add_to_blob(key, |writer| writer.add(key.user_key, value))
    }

    fn add_to_blob(
        &mut self,
        key: &InternalKey<'_>,
        add: impl FnOnce(&mut BlobWriter) -> Result<BlobIndex>,
    ) -> Result<()> {
        let writer = match &mut self.blob {
            Some(writer) => writer,
            empty => {
                let _guest = if self.load_from.is_some() { Some(self.store.enter()?) } else { None };
                let number = self.store.new_file_number();
                let path = self.store.path_of(&FileName::Blob(number));
                let (files, options) = (&*self.store.env.files, &self.options);
                let writer = BlobWriter::create(files, &path, number, self.family.id, options.blob_compression)?;
                self.created.paths.push(path);
                empty.insert(writer)
            }
        };
        let before = writer.appended_bytes();
        let index = add(writer)?;
        let written = writer.appended_bytes() - before;
        let full = writer.file_bytes() >= self.family.blob_file_bytes().min(self.ends.blob_file_bytes());
        let mut encoded = std::mem::take(&mut self.index);
        encoded.clear();
        index.encode(&mut encoded);
        let mut internal = std::mem::take(&mut self.internal);
        internal.clear();
        internal_key::append(&mut internal, key.user_key, key.sequence, ValueKind::BlobIndex);
        let reference = (index.file, accounted_bytes(&index, key.user_key.len()));
        let added = self.add_entry(key.user_key, &internal, &encoded, Some(reference));
        (self.index, self.internal) = (encoded, internal);
        added?;
        self.note_work(written);
        self.note_written(written)?;
        if full { self.finish_blob() } else { Ok(()) }
    }

    fn add_entry(
        &mut self,
        user_key: &[u8],
        internal: &[u8],
        value: &[u8],
        reference: Option<(FileNumber, u64)>,
    ) -> Result<()> {
        // In level 0 each table is one more that is asked for every key.
        let is_full = if self.level > 0 { self.table_is_full() } else { self.index_is_full() };
        if is_full && !self.ends_with(user_key) {
            self.finish_table(Some(user_key))?;
        }
        self.note_work((internal.len() + value.len()) as u64);
        let is_older_version = self.ends_with(user_key);
        if self.table.is_none() {
            self.table = Some(self.begin_table()?);
        }
        let Some(table) = &mut self.table else { return Ok(()) };
        // What operands are to be merged with does not go for a newer version.
        table.older_versions += u64::from(is_older_version && !table.ends_in_operand);
        table.ends_in_operand = ValueKind::from_u8(internal_key::tag(internal) as u8).is_some_and(has_operands);
        table.writer.add(internal, value)?;
        if let Some((file, bytes)) = reference {
            table.oldest_blob_file = Some(table.oldest_blob_file.map_or(file, |oldest| oldest.min(file)));
            table.blob_refs.add(file, bytes);
        }
        Ok(())
    }

    fn begin_table(&mut self) -> Result<OpenTable> {
        let _guest = if self.load_from.is_some() { Some(self.store.enter()?) } else { None };
        let number = self.store.new_file_number();
        let path = self.store.path_of(&FileName::Table(number));
        let files = &*self.store.env.files;
        let writer = TableWriter::create(files, &path, number, &self.table_options, &self.identity)?;
        self.created.paths.push(path);
        let (oldest_blob_file, blob_refs, older_versions, ends_in_operand) = (None, Tally::default(), 0, false);
        Ok(OpenTable { writer, number, oldest_blob_file, blob_refs, older_versions, ends_in_operand })
    }

    /// Whether the last entry of the open table has this user key.
    fn ends_with(&self, user_key: &[u8]) -> bool {
        self.table.as_ref().is_some_and(|table| table.writer.last_user_key() == Some(user_key))
    }

    /// Ends the table being written; those that follow take the place of one of `level` and of that epoch, which has these range deletions.
    pub(crate) fn begin_place_of(&mut self, level: usize, epoch: u64, range_deletions: Fragments) -> Result<()> {
        self.finish_last_table()?;
        (self.level, self.epoch, self.range_deletions) = (level, epoch, range_deletions);
        self.table_options.compression = compression_at(&self.family, &self.options, level);
        Ok(())
    }

    /// Has those that follow be of about one size, if they hold `bytes` together: split where they are full, they would leave a small one for each table
    /// whose place they take, again and again.
    pub(crate) fn split_evenly(&mut self, bytes: u64) {
        let most = self.family.table_bytes().max(1);
        self.table_bytes_max = bytes.div_ceil(bytes.div_ceil(most).max(1));
    }

    /// The same at the end of all keys, where range deletions without keys may be left.
    fn finish_last_table(&mut self) -> Result<()> {
        if self.table.is_none() && !self.range_deletions.is_empty() {
            self.table = Some(self.begin_table()?);
        }
        self.finish_table(None)
    }

    /// Ends the table being written before entries of the user key `next`, which begin a new one, with what is left of range deletions: from there on;
    /// `None` if no more come.
    pub(crate) fn finish_table(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some(mut open) = self.table.take() else { return Ok(()) };
        if !self.range_deletions.is_empty() {
            let of_table = match next {
                Some(next) => self.range_deletions.take_before(next),
                None => std::mem::take(&mut self.range_deletions),
            };
            open.writer.add_range_deletions(&of_table)?;
        }
        let mut older_versions = Vec::new();
        esker_format::varint::put_u64(&mut older_versions, open.older_versions);
        open.writer.set_user_property(OLDER_VERSIONS_PROPERTY, older_versions);
        if let Some(first_log) = self.first_log {
            let mut raw = Vec::new();
            esker_format::varint::put_u64(&mut raw, first_log.get());
            open.writer.set_user_property(FIRST_LOG_PROPERTY, raw);
        }
        let blob_refs = open.blob_refs.finish();
        if !blob_refs.is_empty() {
            open.writer.set_user_property(blob_refs::PROPERTY, blob_refs::encode(&blob_refs));
        }
        let (summary, written) = open.writer.finish_unsynced()?;
        self.sync(written)?;
        let path = self.store.path_of(&FileName::Table(open.number));
        let file = self.store.open_sealed(&path)?;
        let table = Table::open(file, summary.file_bytes, &self.table_options.order.into(), self.store.cache.clone())?;
        let meta = TableMeta {
            number: open.number,
            file_bytes: summary.file_bytes,
            smallest: summary.smallest,
            largest: summary.largest,
            smallest_sequence: summary.smallest_sequence,
            largest_sequence: summary.largest_sequence,
            tail_bytes: summary.tail_bytes,
            oldest_blob_file: open.oldest_blob_file,
            oldest_ancestor_time: self.identity.oldest_key_time,
            file_creation_time: self.identity.creation_time,
            epoch_number: self.epoch,
            unique_id: table.properties().unique_id(),
            ..TableMeta::default()
        };
        self.table_bytes += summary.file_bytes;
        if let Some(reserved) = &self.reserved {
            reserved.note_written(summary.file_bytes);
        }
        if self.load_from.is_some() {
            // Nothing else would give memory back before all of the load is taken in.
            table.watch();
            self.newcomers.push(Newcomer { meta, table, path });
            return Ok(());
        }
        self.tables.push((self.level, TableFile::new(meta, table, path, self.store.trash.clone())));
        Ok(())
    }

    fn finish_blob(&mut self) -> Result<()> {
        let Some(writer) = self.blob.take() else { return Ok(()) };
        let (file_bytes, appended) = (writer.file_bytes(), writer.appended_bytes());
        let (addition, written) = writer.finish_unsynced()?;
        if let Some(reserved) = &self.reserved {
            reserved.note_written(file_bytes - appended);
        }
        self.sync(written)?;
        let path = self.store.path_of(&FileName::Blob(addition.number));
        let file = BlobFile::open(self.store.open_sealed(&path)?, addition.number, self.family.id)?;
        self.blob_bytes += file_bytes;
        self.blobs.push(BlobHandle::new(addition, file, path, self.store.trash.clone()));
        Ok(())
    }

    /// Syncs a file that is whole (O2): beside this thread, or here.
    fn sync(&self, file: Arc<dyn AppendFile>) -> Result<()> {
        match &self.syncer {
            Some(syncer) => syncer.sync(file),
            None => Ok(file.sync()?),
        }
    }

    /// Has the device begin with what was written, so that little is left to wait for at the end. `bytes` were added since the
    /// last call. Nothing without a thread to do it.
    pub(crate) fn sync_ahead(&mut self, bytes: u64) -> Result<()> {
        let Some(syncer) = &self.syncer else { return Ok(()) };
        self.unsynced_bytes += bytes;
        if self.unsynced_bytes < SYNC_BYTES {
            return Ok(());
        }
        self.unsynced_bytes = 0;
        let open = [self.blob.as_ref().map(BlobWriter::file), self.table.as_ref().map(|open| open.writer.file())];
        open.into_iter().flatten().try_for_each(|file| syncer.sync(file))
    }

    /// Finishes what is open and hands all files over.
    pub(crate) fn finish(self) -> Result<Finished> {
        Ok(self.complete()?.hand_over())
    }

    /// Finishes what is open.
    pub(crate) fn complete(mut self) -> Result<Complete> {
        self.finish_last_table()?;
        self.finish_blob()?;
        self.keep_pace();
        self.syncer.take().map_or(Ok(()), Syncer::finish)?;
        let edit = Edit { added: self.tables, blobs: self.blobs, ..Edit::default() };
        let (newcomers, table_bytes, blob_bytes) = (self.newcomers, self.table_bytes, self.blob_bytes);
        let sizes = Sizes { tables: table_bytes, blobs: blob_bytes, promised: 0 };
        let incoming = self.incoming.inspect(|incoming| incoming.set(sizes));
        Ok(Complete { files: Finished { edit, newcomers, table_bytes, blob_bytes, incoming }, created: self.created })
    }
}

/// Files that are removed unless they are handed over (O3).
#[derive(Debug)]
struct Created {
    trash: Arc<Trash>,
    paths: Vec<PathBuf>,
}

impl Drop for Created {
    fn drop(&mut self) {
        for path in std::mem::take(&mut self.paths) {
            self.trash.add(path);
        }
    }
}

/// Files that are whole and synced, and go unless they are handed over.
#[derive(Debug)]
pub(crate) struct Complete {
    files: Finished,
    created: Created,
}

impl Complete {
    pub(crate) fn hand_over(mut self) -> Finished {
        self.created.paths.clear();
        self.files
    }
}

/// Files that are whole and synced.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Adds them.
    pub(crate) edit: Edit,
    /// Tables of a load, which have no place in a version yet.
    pub(crate) newcomers: Vec<Newcomer>,
    pub(crate) table_bytes: u64,
    pub(crate) blob_bytes: u64,
    /// Counts a load until it is taken in.
    pub(crate) incoming: Option<Incoming>,
}

impl Store {
    /// Installs an edit; if that fails and the manifest cannot name its files, they are removed. Work on a family that
    /// was dropped meanwhile is discarded without an error.
    pub(crate) fn install_or_discard(
        &self,
        family: &Family,
        edit: Edit,
        flushed: &[Arc<Generation>],
    ) -> Result<FileChanges> {
        let (tables, blobs) = (edit.new_tables(), edit.blobs.clone());
        let failure = match self.install(family, edit, flushed) {
            Ok(changes) => return Ok(changes),
            Err(failure) => failure,
        };
        if failure.files_are_orphans {
            discard(&tables, &blobs, flushed);
        }
        if family.is_dropped() { Ok(FileChanges::default()) } else { Err(failure.error) }
    }
}

/// Files of an edit that is not installed go; those that came with the memtables are still theirs.
pub(crate) fn discard(tables: &[Arc<TableFile>], blobs: &[Arc<BlobHandle>], flushed: &[Arc<Generation>]) {
    tables.iter().for_each(|table| table.mark_obsolete());
    let is_written = |blob: &Arc<BlobHandle>| flushed.iter().any(|flushed| flushed.blobs.has(blob.number()));
    blobs.iter().filter(|blob| !is_written(blob)).for_each(|blob| blob.mark_obsolete());
}

/// Table property with the number of entries whose key has a newer one in the table: what some snapshot asked for, and
/// what a rewrite may drop once it is gone. RocksDB ignores it.
pub(crate) const OLDER_VERSIONS_PROPERTY: &str = "esker.older_versions";

/// Table property with the number of a log, of a table that was made of others, or loaded: what earlier logs hold of its family was in tables
/// before. The numbers of its entries do not tell: those of a load are far ahead, those in the deepest level are gone. A table of a flush has none,
/// since its entries do tell. For a repair without a manifest. RocksDB ignores it.
pub(crate) const FIRST_LOG_PROPERTY: &str = "esker.first_log";

/// Drives a sorted run, from where it stands up to the user key `end`, through a sieve, and its operands through a fold, into outputs: what flush
/// and compaction have in common.
pub(crate) fn pour(
    input: &mut dyn crate::iterate::InternalIterator,
    end: Option<&[u8]>,
    sieve: &mut crate::compaction::Sieve<'_>,
    fold: &mut Fold<'_>,
    mut each: impl FnMut(&InternalKey<'_>, &[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut timeless = Vec::new();
    // The single deletion right before, while it is undecided.
    let mut undecided = Vec::new();
    while input.valid() {
        let (internal, value) = (input.key(), input.value());
        let key = entry::key_of(input)?;
        if end.is_some_and(|end| !sieve.order().is_before(key.user_key, end)) {
            break;
        }
        let fate = sieve.fate(&key, value).map_err(|error| entry::located(error, input.place()))?;
        if !undecided.is_empty() {
            let is_cancelled = fate == Fate::Dropped && matches!(key.kind, ValueKind::Value | ValueKind::BlobIndex);
            if !is_cancelled || internal_key::user_key(&undecided) != key.user_key {
                pour_undecided(&undecided, &mut each)?;
            }
            undecided.clear();
        }
        if fold.takes(&key, value, fate, sieve, &mut each)? {
            input.next()?;
            continue;
        }
        match fate {
            Fate::Dropped => {}
            Fate::Undecided => undecided.extend_from_slice(internal),
            Fate::Kept => each(&key, internal, value).map_err(|error| entry::located(error, input.place()))?,
            Fate::Timeless => {
                let key = InternalKey { sequence: SequenceNumber::new(0), ..key };
                timeless.clear();
                internal_key::append(&mut timeless, key.user_key, key.sequence, key.kind);
                each(&key, &timeless, value).map_err(|error| entry::located(error, input.place()))?;
            }
        }
        input.next()?;
    }
    if !undecided.is_empty() {
        pour_undecided(&undecided, &mut each)?;
    }
    fold.finish(sieve, &mut each)
}

/// Passes a single deletion on that cancels nothing in its run (S6 of the sieve).
#[cold]
fn pour_undecided(internal: &[u8], each: &mut impl FnMut(&InternalKey<'_>, &[u8], &[u8]) -> Result<()>) -> Result<()> {
    let key = InternalKey::decode(internal).map_err(|error| entry::unreadable_key(internal, error))?;
    each(&key, internal, b"")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use esker_env::sim::SimDisk;

    use super::*;
    use crate::options::Options;
    use crate::{Db, FamilyOptions};

    /// Goal: files that share a place keep their sums, and lengths of damaged entries do not overflow.
    #[test]
    fn bytes_are_added_up_by_file_whatever_place_they_share() {
        let (mut tally, mut expected) = (Tally::default(), BlobRefs::default());
        for n in 0..10_000u64 {
            let (file, bytes) = (FileNumber::new(1 + n * n % 2999), 33 + n);
            tally.add(file, bytes);
            *expected.entry(file).or_insert(0) += bytes;
        }
        assert_eq!(tally.finish(), expected);
        let (mut tally, file) = (Tally::default(), FileNumber::new(5));
        for bytes in [u64::MAX, 40, u64::MAX] {
            tally.add(file, bytes);
            tally.add(FileNumber::new(file.get() + TALLY_PLACES_MAX as u64), 1);
        }
        assert_eq!(tally.finish().get(&file), Some(&u64::MAX));
    }

    /// Goal: nobody who writes waits for a device because all threads are at work. Method: one is, and a log is asked for; then somebody loads.
    #[test]
    fn whoever_is_at_work_makes_the_log_that_is_asked_for() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let (store, family) = (db.store(), db.store().family(0).unwrap());
        let has_made_one = |mut outputs: OutputFiles<_, _>| {
            store.wants_log.store(true, Ordering::Relaxed);
            for n in 0..100u32 {
                let (sequence, kind) = (SequenceNumber::new(1), ValueKind::Value);
                let key = InternalKey { user_key: &n.to_be_bytes(), sequence, kind };
                let mut internal = Vec::new();
                internal_key::append(&mut internal, key.user_key, key.sequence, key.kind);
                outputs.add(&key, &internal, &[7; 1000]).unwrap();
            }
            store.state.lock().spare_log.is_some()
        };
        let first = SequenceNumber::new(1);
        assert!(!has_made_one(OutputFiles::loading(store.clone(), family.clone(), first, true, None)));
        assert!(has_made_one(OutputFiles::new(store.clone(), family, 1, true)));
    }

    /// W4 of `reclaim/room.rs`: what is in files and what is still counted for them is never less than what will be written.
    #[test]
    fn what_was_reserved_counts_until_it_is_in_a_file() {
        let family = FamilyOptions { min_blob_size: 1, blob_file_bytes: 3 << 20, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let store = db.store();
        let (family, before) = (store.family(0).unwrap(), store.room.used());
        let (count, value) = (10_000u64, [7; 1000]);
        let wanted = count * value.len() as u64;
        let mut outputs =
            OutputFiles::new(store.clone(), family, 1, true).sharing(Arc::new(store.room.reserve(wanted)));
        for n in 0..count {
            let key =
                InternalKey { user_key: &n.to_be_bytes(), sequence: SequenceNumber::new(1), kind: ValueKind::Value };
            let mut internal = Vec::new();
            internal_key::append(&mut internal, key.user_key, key.sequence, key.kind);
            outputs.add(&key, &internal, &value).unwrap();
            let promised = store.room.used() - before + store.room.reserved_bytes();
            assert!(promised >= wanted, "{promised} after {n} of {wanted}");
        }
        outputs.finish().unwrap();
        assert_eq!(store.room.reserved_bytes(), 0, "nothing of it is left");
    }

    /// Goal: what a table says of logs covers nothing that is in memory only, and all that is in tables; a flush says nothing.
    #[test]
    fn tables_made_of_others_say_before_which_log_all_is_in_tables() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let (store, family) = (db.store(), db.store().family(0).unwrap());
        let said = |mut outputs: OutputFiles<_, _>| {
            let key = InternalKey { user_key: b"k", sequence: SequenceNumber::new(1), kind: ValueKind::Value };
            let mut internal = Vec::new();
            internal_key::append(&mut internal, key.user_key, key.sequence, key.kind);
            outputs.add(&key, &internal, b"value").unwrap();
            let finished = outputs.finish().unwrap();
            let tables = finished.edit.added.iter().map(|(_, table)| &table.table);
            let mut tables = tables.chain(finished.newcomers.iter().map(|newcomer| &newcomer.table));
            tables.next().unwrap().properties().number(FIRST_LOG_PROPERTY)
        };
        let log = || db.store().state.lock().wals.keys().next_back().unwrap().get();
        for _ in 0..2 {
            let logged_in = log();
            db.put("z", "value").unwrap();
            let made = || OutputFiles::new(store.clone(), family.clone(), 1, true).giving_way();
            let loaded =
                || OutputFiles::loading(store.clone(), family.clone(), SequenceNumber::new(1 << 28), true, None);
            assert_eq!((said(made()), said(loaded())), (Some(logged_in), Some(logged_in)));
            db.flush().unwrap();
            assert!(log() > logged_in);
            assert_eq!((said(made()), said(loaded())), (Some(log()), Some(log())));
        }
        assert_eq!(said(OutputFiles::new(store.clone(), family, 0, true)), None);
    }

    /// Goal: no index grows beyond what a block can be, however long keys are and tables may be.
    #[test]
    fn a_table_ends_once_its_index_is_long() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let store = db.store();
        for level in [1, 0] {
            let mut outputs = OutputFiles::new(store.clone(), store.family(0).unwrap(), level, true);
            outputs.index_bytes_max = 100 << 10;
            for n in 0..100u8 {
                // Long where the next differs from them, too, so that no separator is short.
                let mut user_key = vec![b'k'; 5_000];
                user_key.push(n);
                let key = InternalKey { user_key: &user_key, sequence: SequenceNumber::new(1), kind: ValueKind::Value };
                let mut internal = Vec::new();
                internal_key::append(&mut internal, key.user_key, key.sequence, key.kind);
                outputs.add(&key, &internal, b"value").unwrap();
            }
            assert_eq!(outputs.finish().unwrap().edit.new_tables().len(), 5, "level {level}");
        }
    }

    /// Goal: indexes of tables that are not taken in yet give way, too: the cache keeps its share, and who reads beside the load has what it reads
    /// in memory. Method: keys so long that an index has as much of them as the table.
    #[test]
    fn a_load_keeps_to_the_limit_of_memory() {
        let limit = 1 << 20;
        let family = FamilyOptions { compression: Compression::None, ..FamilyOptions::default() };
        let family = FamilyOptions { target_file_bytes: 64 << 10, ..family };
        let families = [("default".to_owned(), family)].into();
        let options = Options {
            create_if_missing: true,
            background_jobs: 0,
            memory_limit: limit,
            families,
            ..Options::default()
        };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let key = |first: u8, n: u16| [&[first; 5000][..], &n.to_be_bytes()].concat();
        for n in 0..2 {
            db.put(key(b'a', n), "read beside the load").unwrap();
            db.flush().unwrap();
        }
        let read = || (0..2).for_each(|n| assert!(db.get(key(b'a', n)).unwrap().is_some()));
        let mut load = db.bulk_load(&db.default_column_family()).unwrap();
        for n in 0..800 {
            load.put(key(b'b', n), "value").unwrap();
            if n % 10 == 0 {
                read();
            }
        }
        let reads = db.stats().table_read_calls;
        (0..10).for_each(|_| read());
        assert_eq!(db.stats().table_read_calls, reads);
        // Memtables count as a quarter of the limit; indexes and filters have three quarters of the rest.
        let left = db.stats().cache.capacity_bytes;
        assert!(left >= limit / 8, "{left} bytes are left for blocks");
        load.finish().unwrap();
        assert_eq!(db.count_cf(&db.default_column_family(), &crate::ReadOptions::default()).unwrap(), 802);
    }

    /// Goal (N2 of `ingest`): each table of a load has one number for all its keys, though the disk becomes small meanwhile, at whatever key.
    #[test]
    fn tables_of_a_load_have_one_number_each_while_the_disk_fills() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let (store, family) = (db.store(), db.store().family(0).unwrap());
        let first = SequenceNumber::new(100);
        let mut outputs = OutputFiles::loading(store.clone(), family.clone(), first, true, None);
        for n in 0..2000u32 {
            let sequence = outputs.load_sequence().unwrap();
            if n == 1000 {
                assert!(outputs.open_table_bytes() > 64 << 10);
                family.set_file_bytes_max(64 << 10);
            }
            let key = InternalKey { user_key: &n.to_be_bytes(), sequence, kind: ValueKind::Value };
            let mut internal = Vec::new();
            internal_key::append(&mut internal, key.user_key, key.sequence, key.kind);
            let value: Vec<u8> =
                (0..1000).map(|at| (n.wrapping_mul(2_654_435_761) >> (at % 24)) as u8 ^ at as u8).collect();
            outputs.add(&key, &internal, &value).unwrap();
        }
        let finished = outputs.finish().unwrap();
        for (number, newcomer) in (first.get()..).zip(&finished.newcomers) {
            let meta = &newcomer.meta;
            let sequences = (meta.smallest_sequence.get(), meta.largest_sequence.get());
            assert_eq!(sequences, (number, number), "of {} tables", finished.newcomers.len());
        }
    }
}
