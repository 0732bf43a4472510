//! The order of a repair: read all, write what has to be written, put files in their places, make that the store.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileSystem, durable};
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::{self, FileNumber, ValueKind};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::version_edit::TableMeta;
use esker_format::rocksdb::write_batch::Record;
use esker_log::distrust;

use super::blobs::Blobs;
use super::flushed::Flushed;
use super::place::{Extent, Place, places};
use super::rewrite::{Age, Rewritten, Run, readable, rewrite};
use super::survey::{Survey, distinct_names};
use super::tables::{Contents, Source, date, family_of};
use super::{AsideReason, DbRepair, aside};
use crate::cache::BlockCache;
use crate::family::{Family, Generation, View};
use crate::open::mend;
use crate::operands::has_operands;
use crate::options::{Options, Orders};
use crate::store::Store;
use crate::table::{Table, TableCheck};
use crate::version::{
    BlobHandle, Edit, Garbage, Recovered, RecoveredFamily, TableFile, Version, prepare_new, set_current,
};
use crate::{Error, ErrorKind, Result};

/// See the module's head.
pub(super) struct Workshop {
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) env: Env,
    pub(super) survey: Survey,
    pub(super) report: DbRepair,
    /// The manifest of a repair that died.
    begun: Option<FileNumber>,
    /// What is known of files that will not be used.
    why: BTreeMap<FileName, AsideReason>,
    /// What a repair is refused for; only where nothing is to be repaired ([`look`](super::outlook)).
    pub(super) refusals: Option<Vec<Error>>,
}

/// What tables are read with.
pub(super) struct Bench<'a> {
    pub(super) files: &'a dyn FileSystem,
    pub(super) dir: &'a Path,
    pub(super) cache: Arc<BlockCache>,
    pub(super) orders: Orders,
    /// The names of the orders of families' keys, as a manifest says.
    pub(super) comparators: BTreeMap<u32, String>,
    pub(super) blobs: &'a Blobs,
}

/// Takes a memtable of a family, with where values are and what is lost.
pub(super) type TakeRun<'a> = dyn FnMut(&Store, &Arc<Family>, Run, &mut Blobs, &mut DbRepair) -> Result<()> + 'a;

/// A family on its way to its version.
#[derive(Default)]
struct Parts {
    tables: Vec<(usize, Arc<TableFile>)>,
    refs: BTreeMap<FileNumber, Garbage>,
}

impl Parts {
    fn point_to(&mut self, refs: &BTreeMap<FileNumber, Garbage>) {
        for (number, sum) in refs {
            self.refs.entry(*number).or_default().add(sum.count, sum.bytes);
        }
    }

    fn take(&mut self, rewritten: Rewritten) {
        self.point_to(&rewritten.refs);
        self.tables.extend(rewritten.tables);
    }
}

fn unless_refused<T>(refusals: &mut Option<Vec<Error>>, result: Result<T>) -> Result<Option<T>> {
    match (result, refusals) {
        (Err(error), Some(refusals)) if error.kind() == ErrorKind::UnsupportedFormat => {
            refusals.push(error);
            Ok(None)
        }
        (result, _) => result.map(Some),
    }
}

impl Workshop {
    pub(super) fn open(dir: &Path, options: Options, env: Env, begun: Option<FileNumber>) -> Result<Self> {
        let mut survey = Survey::of(&*env.files, dir, begun)?;
        let damage = std::mem::take(&mut survey.damage);
        let report = DbRepair { had_manifest: survey.manifest.is_some(), damage, ..DbRepair::default() };
        let (dir, why, refusals) = (dir.to_owned(), BTreeMap::new(), None);
        Ok(Self { dir, options, env, survey, report, begun, why, refusals })
    }

    /// To look at what a repair would find, which writes nothing.
    pub(super) fn to_look(dir: &Path, options: Options, env: Env, survey: Survey) -> Self {
        let (report, why, refusals) = (DbRepair::default(), BTreeMap::new(), Some(Vec::new()));
        Self { dir: dir.to_owned(), options, env, survey, report, begun: None, why, refusals }
    }

    /// `None` for what a repair is refused for, where nothing is to be repaired.
    pub(super) fn unless_refused<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        unless_refused(&mut self.refusals, result)
    }

    pub(super) fn run(mut self) -> Result<DbRepair> {
        let files = self.env.files.clone();
        let mut blobs = Blobs::read(&*files, &self.dir, &self.survey, &mut self.report.damage)?;
        for (number, _) in blobs.iter().filter(|(_, blob)| blob.sound.is_none()) {
            // One that no manifest knows yet has no end, and that is as it should be.
            let reason = if self.survey.names_blob(number) { AsideReason::Damaged } else { AsideReason::Replaced };
            self.why.insert(FileName::Blob(number), reason);
        }
        let mut sources = self.tables(&blobs)?;
        let recovered = self.recovered(&blobs, &sources)?;
        let mut store = self.store(&recovered, &blobs)?;
        let first_new = store.next_file_number() - 1;
        // What one that died has left stays behind its mark.
        let manifest = self.begun.unwrap_or(FileNumber::new(first_new));
        aside::mark(&*files, &self.dir, manifest)?;
        let built = match self.build(&mut store, &mut blobs, &mut sources, first_new) {
            Ok(built) => built,
            Err(error) => {
                // What cannot be removed, the next repair puts aside.
                let _ = self.remove_new(first_new);
                return Err(error);
            }
        };
        self.install(&store, manifest, &built)?;
        let (recovered, put_aside) = aside::finish(&*files, &self.dir, &self.why)?;
        self.report.put_aside = put_aside;
        self.report.describe(&recovered);
        Ok(self.report)
    }

    /// Removes what this repair wrote, which no manifest names yet, and then its mark.
    fn remove_new(&self, first_new: u64) -> Result<()> {
        let files = &*self.env.files;
        for entry in files.list(&self.dir)? {
            let number = FileName::parse(&entry.name).and_then(|name| name.number());
            if number.is_some_and(|number| number.get() >= first_new) {
                files.remove(&self.dir.join(&entry.name))?;
            }
        }
        if self.begun.is_none() {
            files.sync_dir(&self.dir)?;
            files.remove(&self.dir.join(aside::UNFINISHED))?;
        }
        Ok(())
    }

    /// All tables that count, by family.
    pub(super) fn tables(&mut self, blobs: &Blobs) -> Result<BTreeMap<u32, Vec<Source>>> {
        let (files, cache) = (self.env.files.clone(), Arc::new(BlockCache::new(0)));
        let families = self.survey.manifest.iter().flat_map(|manifest| &manifest.families);
        let bench = Bench {
            files: &*files,
            dir: &self.dir,
            cache,
            orders: Orders::of(&self.options),
            comparators: families.map(|(&id, family)| (id, family.comparator.clone())).collect(),
            blobs,
        };
        let wanted = self.survey.tables(&*files, &self.dir, &mut self.report)?;
        for of in self.survey.manifest.iter().flat_map(|manifest| manifest.families.values()) {
            let is_dead = |number| of.ledger.get(number).is_some_and(|usage| usage.is_dead());
            for number in of.blobs.keys().filter(|number| blobs.get(**number).is_none() && !is_dead(**number)) {
                let path = self.dir.join(FileName::Blob(*number).to_string());
                let reason = "the manifest names this file, but it is not there";
                self.report.damage.push(Error::corruption(&path, 0, reason));
            }
        }
        let mut sources: BTreeMap<u32, Vec<Source>> = BTreeMap::new();
        let mut strangers = Vec::new();
        for wanted in wanted {
            let name = wanted.name;
            let (damage, lost_blocks) = (&mut self.report.damage, &mut self.report.lost_blocks);
            let vetted = bench.vet(wanted, damage, lost_blocks);
            let Some(vetted) = unless_refused(&mut self.refusals, vetted)? else { continue };
            match vetted {
                Ok((None, source)) => strangers.push((name, source)),
                Ok((Some(family), _)) if self.survey.hints.dropped.contains(&family) => {}
                Ok((Some(family), source)) => {
                    self.why.insert(name, source.reason());
                    sources.entry(family).or_default().push(source);
                }
                Err(reason) => {
                    self.report.lost_tables += 1;
                    self.why.insert(name, reason);
                }
            }
        }
        if !strangers.is_empty() {
            self.take_in(strangers, blobs, &mut sources)?;
        }
        sources.values_mut().try_for_each(|of_family| date(of_family))?;
        Ok(sources)
    }

    /// Tables that do not say of which family they are: where there is only one, they are its own.
    fn take_in(
        &mut self,
        strangers: Vec<(FileName, Source)>,
        blobs: &Blobs,
        sources: &mut BTreeMap<u32, Vec<Source>>,
    ) -> Result<()> {
        let hints = &self.survey.hints;
        let is_alone = hints.family_id_max == 0 && self.ids(blobs, sources.keys().copied().collect())?.len() == 1;
        for (name, source) in strangers {
            let reason = match is_alone {
                true => "nothing says of which column family the table is; it is taken for one of the only one",
                false => {
                    "nothing says of which column family the table is: it is put aside; `Db::ingest` takes it in where it belongs"
                }
            };
            self.report.damage.push(Error::corruption(&source.path, 0, reason));
            if is_alone {
                self.why.insert(name, source.reason());
                sources.entry(0).or_default().push(source);
            } else {
                self.report.lost_tables += 1;
            }
        }
        Ok(())
    }

    /// All families of which anything but a manifest knows, besides those of `ids`.
    fn ids(&self, blobs: &Blobs, mut ids: BTreeSet<u32>) -> Result<BTreeSet<u32>> {
        ids.insert(0);
        ids.extend(blobs.iter().filter_map(|(_, blob)| blob.family));
        ids.extend(mend::families_in_logs(&*self.env.files, &self.dir, &self.survey.names)?);
        Ok(ids)
    }

    /// What the manifest says of the store with these tables, or would say. In which order keys lie, tables know best: the manifest may be one that
    /// RocksDB's own repair made.
    pub(super) fn recovered(&self, blobs: &Blobs, sources: &BTreeMap<u32, Vec<Source>>) -> Result<Recovered> {
        let mut recovered = self.recovered_without_orders(blobs, sources.keys().copied().collect())?;
        for (id, family) in &mut recovered.families {
            let mut whole = sources.get(id).into_iter().flatten().filter(|source| source.is_readable());
            if let Some(order) = whole.next().map(|source| source.order)
                && whole.all(|source| source.order == order)
            {
                order.name().clone_into(&mut family.comparator);
            }
        }
        Ok(recovered)
    }

    fn recovered_without_orders(&self, blobs: &Blobs, ids: BTreeSet<u32>) -> Result<Recovered> {
        let mut recovered = Recovered::default();
        if let Some(manifest) = &self.survey.manifest {
            let of = |family: &RecoveredFamily| RecoveredFamily {
                name: family.name.clone(),
                comparator: family.comparator.clone(),
                log_number: family.log_number,
                ..RecoveredFamily::default()
            };
            recovered.families = manifest.families.iter().map(|(&id, family)| (id, of(family))).collect();
            recovered.db_id.clone_from(&manifest.db_id);
            recovered.family_id_max = manifest.family_id_max;
            recovered.last_sequence = manifest.last_sequence;
            recovered.next_file_number = manifest.next_file_number;
            recovered.log_number_min = manifest.log_number_min;
            recovered.durable_logs.clone_from(&manifest.durable_logs);
            return Ok(recovered);
        }
        let hints = &self.survey.hints;
        let mut ids = self.ids(blobs, ids)?;
        ids.extend(hints.families.keys());
        recovered.family_id_max = hints.family_id_max.max(ids.last().copied().unwrap_or(0));
        ids.retain(|id| *id == 0 || !hints.dropped.contains(id));
        let mut names = self.names_in_tables()?;
        names.extend(hints.families.clone());
        for (id, name) in distinct_names(&ids, names) {
            recovered.families.insert(id, RecoveredFamily { name, ..RecoveredFamily::default() });
        }
        recovered.db_id.clone_from(&hints.db_id);
        recovered.last_sequence = hints.last_sequence;
        recovered.next_file_number = hints.next_file_number;
        Ok(recovered)
    }

    /// Names of families, as tables say them.
    fn names_in_tables(&self) -> Result<BTreeMap<u32, String>> {
        let mut names = BTreeMap::new();
        for name in &self.survey.names {
            if !matches!(name, FileName::Table(_)) {
                continue;
            }
            let file = self.env.files.open(&self.dir.join(name.to_string()))?;
            let file_bytes = file.len()?;
            if let Ok(table) = Table::open(file, file_bytes, &Orders::any(), Arc::new(BlockCache::new(0)))
                && let Some(id) = family_of(table.properties())
                && !table.properties().column_family_name.is_empty()
            {
                names.insert(id, table.properties().column_family_name.clone());
            }
        }
        Ok(names)
    }

    pub(super) fn store(&mut self, recovered: &Recovered, blobs: &Blobs) -> Result<Store> {
        let next_file = recovered.next_file_number.max(self.survey.highest_number + 1);
        if next_file > FileNumber::MAX.get() / 2 {
            let reason = format!("a file has number {next_file}, which leaves too few for new ones; move it away");
            return Err(Error::new(ErrorKind::Corruption, reason).with_path(&self.dir));
        }
        // For the logs: where they point into files that are whole, all is well.
        let trash = crate::reclaim::Trash::new(self.env.files.clone());
        let mut registered: BTreeMap<u32, Edit> = BTreeMap::new();
        for (_, blob) in blobs.iter() {
            let (Some(family), Some(sound)) = (blob.family, &blob.sound) else { continue };
            let handle = BlobHandle::new(sound.addition.clone(), sound.file.clone(), blob.path.clone(), trash.clone());
            if sound.addition.total_count > 0 {
                registered.entry(family).or_default().blobs.push(handle);
            }
        }
        let (dir, options, env) = (&self.dir, self.options.clone(), self.env.clone());
        mend::store_to_mend(dir, options, env, recovered, registered, next_file, &mut self.report.damage)
    }

    /// Files for every family, all of them durable.
    fn build(
        &mut self,
        store: &mut Store,
        blobs: &mut Blobs,
        sources: &mut BTreeMap<u32, Vec<Source>>,
        first_new: u64,
    ) -> Result<Vec<(Arc<Family>, Arc<Version>)>> {
        let mut from_logs: Vec<(u32, Rewritten)> = Vec::new();
        self.replay(store, blobs, sources, &mut |store, family, run, blobs, report| {
            from_logs.push((family.id, rewrite(store, family, blobs, vec![run], 0, true, report)?));
            Ok(())
        })?;
        let mut built = Vec::new();
        for (&id, family) in store.families.load().iter() {
            let mut of_family = sources.remove(&id).unwrap_or_default();
            let logged = from_logs.iter().filter(|(from, _)| *from == id).map(|(_, rewritten)| rewritten);
            let by_level = match self.survey.manifest.is_some() {
                true => self.by_level(store, family, blobs, &of_family, logged.clone())?,
                false => None,
            };
            let version = match by_level {
                Some(version) => version,
                None => {
                    of_family.extend(logged.flat_map(as_sources));
                    self.by_keys(store, family, blobs, &of_family)?
                }
            };
            built.push((family.clone(), Arc::new(version)));
        }
        self.make_durable(first_new, built.iter().map(|(_, version)| &**version))?;
        Ok(built)
    }

    /// Gives the logs to `take`, a memtable of a family after the other. Without a manifest, `sources` tell what of them is in tables.
    pub(super) fn replay(
        &mut self,
        store: &Store,
        blobs: &mut Blobs,
        sources: &BTreeMap<u32, Vec<Source>>,
        take: &mut TakeRun<'_>,
    ) -> Result<()> {
        let report = &mut self.report;
        let blobs = RefCell::new(blobs);
        let mut damage = Vec::new();
        let mut flush = |store: &Store, family: &Arc<Family>| -> Result<()> {
            let view = family.view.load_full();
            if view.active.memtable.is_empty() {
                return Ok(());
            }
            let run = Run::of_memtable(Age::of(FileNumber::MAX), &view.active.memtable);
            take(store, family, run, &mut blobs.borrow_mut(), report)?;
            let active = Generation::new(family.order, view.active.first_wal());
            family.view.store(Arc::new(View { active, ..View::clone(&view) }));
            Ok(())
        };
        // Before a file takes its first value, those in the others of its family are durable (P3 of `open/pointers.rs`).
        let mut newest: BTreeMap<u32, FileNumber> = BTreeMap::new();
        let notice = |_: FileNumber, _: u64, record: &Record<'_>| -> Result<bool> {
            if let Some(index) = pointer_of(record)? {
                let newest = newest.entry(record.cf).or_default();
                *newest = index.file.max(*newest);
            }
            Ok(false)
        };
        mend::replay_wanted(store, notice, |_, _| Ok(()))?;
        // A value that was never there was never acknowledged: what came before it counts (P1 there).
        let is_unwritten = |blobs: &Blobs, record: &Record<'_>, index: &BlobIndex| -> Result<bool> {
            let is_in_doubt = newest.get(&record.cf).is_some_and(|newest| *newest <= index.file);
            Ok(is_in_doubt
                && !blobs.is_readable(record.cf, record.key, index)?
                && blobs.may_be_unwritten(record.key, index)?)
        };
        let unwritten_bytes = Cell::new(0);
        let skips = |record: &Record<'_>| {
            unwritten_bytes.set(unwritten_bytes.get() + (record.key.len() + record.value.len()) as u64);
            Ok(false)
        };
        let (found, last) = if self.survey.manifest.is_some() {
            let kept = |record: &Record<'_>| match pointer_of(record)? {
                Some(index) if is_unwritten(&blobs.borrow(), record, &index)? => skips(record),
                _ => Ok(true),
            };
            mend::replay_all(store, &mut damage, kept, &mut flush)?
        } else {
            let of_families = sources.iter().map(|(&family, of)| (family, Flushed::of(of, &store.db_id)));
            let mut flushed: BTreeMap<u32, Flushed<'_>> = of_families.collect();
            let wanted = |log: FileNumber, sequence: u64, record: &Record<'_>| -> Result<bool> {
                let mut flushed = flushed.get_mut(&record.cf);
                if record.kind == ValueKind::RangeDeletion {
                    return Ok(!flushed.is_some_and(|flushed| flushed.hides_of_range(log, record.key, record.value)));
                }
                if let Some(flushed) = flushed.as_mut().filter(|_| has_operands(record.kind))
                    && flushed.has_taken(record.key, sequence)?
                {
                    return Ok(false);
                }
                let blobs = blobs.borrow();
                let index = match pointer_of(record)? {
                    Some(index) if !blobs.is_readable(record.cf, record.key, &index)? => index,
                    _ => return Ok(!flushed.map_or(Ok(false), |flushed| flushed.hides(log, record.key))?),
                };
                // Where a record is in tables already, its value may have moved, or be gone for good reason.
                if flushed.as_ref().is_some_and(|flushed| flushed.has(log, sequence)) {
                    return Ok(false);
                }
                // The same of one that may have come to the bottom, where numbers are no more.
                let may_be_hidden = flushed.as_mut().map_or(Ok(false), |flushed| flushed.may_hide(record.key))?;
                if may_be_hidden || is_unwritten(&blobs, record, &index)? {
                    return skips(record);
                }
                Ok(true)
            };
            mend::replay_wanted(store, wanted, &mut flush)?
        };
        let families = store.families.load_full();
        for family in families.values() {
            flush(store, family)?;
        }
        store.publish(store.visible().max(last));
        report.damage.extend(damage);
        report.log_batches = found.batches;
        // Of a log that the next one says was whole, what lay behind its end is no loss.
        let dropped_bytes = if found.torn_at.is_some() { found.dropped_bytes } else { 0 };
        report.lost_log_bytes = dropped_bytes.saturating_add(found.skipped_bytes).saturating_add(unwritten_bytes.get());
        Ok(())
    }

    /// The version with all tables where the manifest has them (P3); `None` if that does not fit any more.
    fn by_level<'a>(
        &mut self,
        store: &Store,
        family: &Arc<Family>,
        blobs: &mut Blobs,
        sources: &[Source],
        logged: impl Iterator<Item = &'a Rewritten>,
    ) -> Result<Option<Version>> {
        let mut parts = Parts::default();
        let before = self.report.clone();
        // Level 0 keeps its order: that of epochs, if all tables have one.
        let by_epoch = sources.iter().all(|source| source.epoch > 0);
        for source in sources {
            let (level, first) = (source.level.unwrap_or(0), parts.tables.len());
            match &source.contents {
                Contents::Whole(table) => {
                    parts.point_to(&source.refs);
                    parts.tables.push((level, table_file(store, source, table)));
                }
                _ => {
                    let runs = vec![source.run()?];
                    parts.take(rewrite(store, family, blobs, runs, level, false, &mut self.report)?);
                }
            }
            let made = parts.tables.iter().skip(first);
            made.for_each(|(_, table)| table.set_epoch(if by_epoch { source.epoch } else { 0 }));
        }
        let newest = sources.iter().map(|source| source.epoch).max().unwrap_or(0);
        for (rewritten, later) in logged.zip(1..) {
            parts.point_to(&rewritten.refs);
            rewritten.tables.iter().for_each(|(_, table)| {
                table.set_epoch(if by_epoch { newest.saturating_add(later) } else { 0 });
            });
            parts.tables.extend(rewritten.tables.iter().cloned());
        }
        match version(store, family.order, blobs, parts) {
            Ok(version) => Ok(Some(version)),
            Err(error) if error.kind() == ErrorKind::Corruption => {
                // All of it is done again.
                self.report = before;
                self.report.damage.push(error.with_path(&self.dir));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The version with every table where its keys and its age allow (P4).
    fn by_keys(
        &mut self,
        store: &Store,
        family: &Arc<Family>,
        blobs: &mut Blobs,
        sources: &[Source],
    ) -> Result<Version> {
        let deepest = family.options().level_count.saturating_sub(1);
        let extents: Vec<Extent> = sources.iter().map(extent).collect();
        let mut parts = Parts::default();
        for place in places(family.order, &extents) {
            let (level, indexes) = match place {
                Place::Deepest(index) => (deepest, vec![index]),
                Place::Newest(indexes) => (0, indexes),
                Place::Merged(indexes) => {
                    let of = || indexes.iter().filter_map(|&index| sources.get(index));
                    let undated = of().filter(|source| source.is_undated && indexes.len() > 1);
                    self.report.damage.extend(undated.map(|source| {
                        let reason = "nothing says when this table was taken in; what it has counts as newer than what the tables \
                            have that have lower numbers";
                        Error::corruption(&source.path, 0, reason)
                    }));
                    let runs = of().map(Source::run).collect::<Result<_>>()?;
                    parts.take(rewrite(store, family, blobs, runs, deepest, false, &mut self.report)?);
                    continue;
                }
            };
            for source in indexes.into_iter().filter_map(|index| sources.get(index)) {
                if let Contents::Whole(table) = &source.contents {
                    parts.point_to(&source.refs);
                    parts.tables.push((level, table_file(store, source, table)));
                }
            }
        }
        version(store, family.order, blobs, parts)
    }

    /// Makes those files durable that were there before and that no manifest named (P7).
    fn make_durable<'a>(&self, first_new: u64, versions: impl Iterator<Item = &'a Version>) -> Result<()> {
        let files = &*self.env.files;
        // With their ids: a table that was renamed may have the number of one that was named.
        let mut named = BTreeMap::new();
        for of in self.survey.manifest.iter().flat_map(|manifest| manifest.families.values()) {
            named.extend(of.tables.iter().map(|((_, number), meta)| (*number, meta.unique_id)));
            named.extend(of.blobs.keys().map(|number| (*number, None)));
        }
        let mut doubtful = BTreeMap::new();
        let mut add = |number: FileNumber, id, path: &Path| {
            if number.get() < first_new && named.get(&number) != Some(&id) {
                doubtful.insert(number, path.to_owned());
            }
        };
        for version in versions {
            version.tables().for_each(|(_, file)| add(file.number(), file.meta.unique_id, file.table.path()));
            version.blobs().iter().for_each(|(number, blob)| add(*number, None, blob.file.path()));
        }
        let is_distrusted = distrust::is_warned(files, &self.dir)?;
        for path in doubtful.values() {
            if is_distrusted {
                distrust::write_anew(files, path)?;
                continue;
            }
            match files.reopen(path, files.metadata(path)?.len) {
                Ok(file) => file.sync().inspect_err(|_| {
                    // Should that fail too, the error that is told is the worse one.
                    let _ = distrust::warn(files, &self.dir);
                })?,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => distrust::write_anew(files, path)?,
                Err(error) => return Err(error.into()),
            }
        }
        // Their names are with the manifest's.
        Ok(())
    }

    /// Makes the versions the store (P2).
    fn install(&self, store: &Store, manifest: FileNumber, built: &[(Arc<Family>, Arc<Version>)]) -> Result<()> {
        let files = &*store.env.files;
        // No log of the store as it was is needed.
        let first_log = store.new_file_number();
        let parts: Vec<_> =
            built.iter().map(|(family, version)| (family.clone(), version.clone(), first_log)).collect();
        let mut installer = store.installer.lock();
        if !self.survey.has(&FileName::Identity) {
            let temporary = store.path_of(&FileName::Temporary(manifest));
            files.write_atomically(&store.path_of(&FileName::Identity), &temporary, store.db_id.as_bytes())?;
        }
        store.write_options_file(&mut installer)?;
        let edits = store.edits_of(&parts, installer.family_id_max);
        // CURRENT never named it.
        let path = store.path_of(&FileName::Manifest(manifest));
        if durable::is_there(files, &path)? {
            files.remove(&path)?;
        }
        prepare_new(files, &self.dir, manifest, &edits)?;
        set_current(files, &self.dir, manifest)
    }
}

fn table_file(store: &Store, source: &Source, table: &Arc<Table>) -> Arc<TableFile> {
    // Where it is placed by its sequence numbers, it is ordered by them.
    let meta = TableMeta { epoch_number: 0, ..source.meta.clone() };
    TableFile::new(meta, table.clone(), source.path.clone(), store.trash.clone())
}

/// Tables that logs were made to, as others.
fn as_sources(rewritten: &Rewritten) -> impl Iterator<Item = Source> + '_ {
    rewritten.tables.iter().map(|(_, file)| Source {
        number: file.number(),
        path: file.table.path().to_owned(),
        order: file.table.order(),
        level: None,
        epoch: 0,
        meta: file.meta.clone(),
        refs: rewritten.refs.clone(),
        contents: Contents::Whole(file.table.clone()),
        logs: None,
        is_undated: false,
        checked: TableCheck::default(),
        lost_values: 0,
    })
}

fn extent(source: &Source) -> Extent {
    let meta = &source.meta;
    let user_key = |key: &[u8]| internal_key::user_key(key).to_vec();
    Extent {
        keys: user_key(&meta.smallest)..=user_key(&meta.largest),
        sequences: (!source.is_undated).then(|| meta.smallest_sequence.get()..=meta.largest_sequence.get()),
        blobs: source.refs.keys().copied().collect(),
        is_broken: !matches!(source.contents, Contents::Whole(_)),
    }
}

/// A version of these tables and the blob files that they point to: the rest of those is garbage.
fn version(store: &Store, order: Order, blobs: &Blobs, parts: Parts) -> Result<Version> {
    let mut edit = Edit { added: parts.tables, ..Edit::default() };
    for (number, live) in parts.refs {
        let blob = blobs.get(number).and_then(|blob| Some((&blob.path, blob.sound.as_ref()?)));
        let Some((path, sound)) = blob else {
            let reason = format!("tables point to blob file {number}, which cannot be used; report it");
            return Err(Error::new(ErrorKind::Corruption, reason));
        };
        let total = &sound.addition;
        let dead = total.total_count.checked_sub(live.count).zip(total.total_bytes.checked_sub(live.bytes));
        let Some((count, bytes)) = dead else {
            let reason = "tables point to more than there is in it";
            return Err(Error::corruption(path, 0, reason));
        };
        let handle = BlobHandle::new(total.clone(), sound.file.clone(), path.clone(), store.trash.clone());
        edit.blobs.push(handle);
        if count > 0 || bytes > 0 {
            edit.garbage.insert(number, Garbage { count, bytes });
        }
    }
    Version::empty(order).apply(&edit)
}

/// Where a record of a log has its value, if that is elsewhere and can be read.
fn pointer_of(record: &Record<'_>) -> Result<Option<BlobIndex>> {
    if record.kind == ValueKind::BlobIndex { readable(record.key, record.value) } else { Ok(None) }
}
