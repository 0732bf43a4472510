//! What a repair needs of an open: a store without tables, and the logs through the same replay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FileSystem};
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::log_note::LogNote;
use esker_format::rocksdb::write_batch::{self, Record};
use esker_log::scan::{LogEnd, RecoveryMode, Scanner};

use super::pointers::is_needed;
use super::replay::{Logs, check_batch, missing_bytes};
use super::{Recovery, family_options, files, new_identity, new_session, prepared};
use crate::cache::BlockCache;
use crate::counters::Counters;
use crate::family::Family;
use crate::options::Options;
use crate::reclaim::Trash;
use crate::store::{Installer, Parts, Store};
use crate::version::{Edit, Recovered, Version};
use crate::write::{Lead, apply};
use crate::{Error, ErrorKind, Result};

/// A store of the families of `recovered`, without its tables; with the blob files of `blobs`. New files are numbered from
/// `next_file` on. Writes nothing.
///
/// Options that cannot be read are those of the newest older file that can, or else the defaults; why they cannot, and which that is, goes to `damage`.
pub(crate) fn store_to_mend(
    dir: &Path,
    options: Options,
    env: Env,
    recovered: &Recovered,
    mut blobs: BTreeMap<u32, Edit>,
    next_file: u64,
    damage: &mut Vec<Error>,
) -> Result<Store> {
    let listing = files::Listing::of(&env, dir)?;
    let in_file = match listing.options(&env, dir, recovered) {
        Err(error) if files::is_unreadable(&error) => {
            let (in_file, from) = listing.options_but_newest(&env, dir, recovered)?;
            let instead = from.map_or_else(
                || "no older one can be read, so all options that are not given are the defaults".to_owned(),
                |path| format!("the options of {} count instead", path.display()),
            );
            damage.push(error.with_advice(instead));
            in_file
        }
        read => read?,
    };
    let first_log = super::first_log(recovered);
    listing.check_logs(&env, dir, &in_file, first_log, super::logs_dir(dir, &options, &env)?.as_deref())?;
    prepared::refuse(&env, dir, listing.logs_kept_before(first_log, recovered.log_number_min, in_file.allows_2pc))?;
    let session_id: Arc<str> = new_session(&env).into();
    let wal_number = FileNumber::new(next_file);
    let mut families = BTreeMap::new();
    for (&id, family) in &recovered.families {
        let chosen = family_options(&options, &in_file, family)?;
        let version = Version::empty(chosen.order()).apply(&blobs.remove(&id).unwrap_or_default())?;
        families.insert(id, Family::new(id, family.name.clone(), chosen, version, wal_number, session_id.clone()));
    }
    let Some(default_family) = families.get(&0).cloned() else {
        return Err(Error::new(ErrorKind::Corruption, "the default column family is not there").with_path(dir));
    };
    let identity = if recovered.db_id.is_empty() { listing.identity(&env, dir)? } else { recovered.db_id.clone() };
    let db_id = if identity.is_empty() { new_identity(&env) } else { identity };
    let trash = Trash::new(env.files.clone());
    let wals = listing.logs_from(first_log).collect();
    Ok(Store::new(Parts {
        meter: None,
        session_id,
        env,
        dir: dir.to_owned(),
        // A repair is not the store's program.
        options: Options { wal_recovery: RecoveryMode::PointInTime, keep_space_options: false, ..options },
        foreign_options: in_file.foreign,
        db_id,
        cache: Arc::new(BlockCache::new(0)),
        counters: Counters::default(),
        trash,
        log_numbers: recovered.families.iter().map(|(&id, family)| (id, family.log_number)).collect(),
        durable_logs: recovered.durable_logs.range(first_log..).map(|(&log, &bytes)| (log, bytes)).collect(),
        last_sequence: recovered.last_sequence,
        next_file: next_file + 1,
        lead: Lead::new(wal_number, recovered.last_sequence),
        installer: Installer { manifest: None, family_id_max: recovered.family_id_max, options_files: Vec::new() },
        default_family,
        families,
        wals,
        has_stray_blobs: true,
        first_unnamed: next_file,
        read_only: false,
    }))
}

/// Replays the logs as an open would. If it would refuse them, every batch that is whole, also behind the damage and where values
/// of it are lost, but for records that are not `kept`. `full` is called with a family whose memtable is full.
pub(crate) fn replay_all(
    store: &Store,
    damage: &mut Vec<Error>,
    kept: impl Fn(&Record<'_>) -> Result<bool>,
    mut full: impl FnMut(&Store, &Arc<Family>) -> Result<()>,
) -> Result<(Recovery, SequenceNumber)> {
    let logs = match Logs::check(store) {
        Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
            damage.push(error);
            let wanted = |log, _, record: &Record<'_>| Ok(is_needed(store, log, record) && kept(record)?);
            return replay_wanted(store, wanted, full);
        }
        read => read?,
    };
    let last = logs.replay(store, |family| full(store, family))?;
    Ok((logs.found, last))
}

/// Reads the logs as an open would; `damage` takes the first of each. Returns what is in them, and how they end.
pub(crate) fn check_logs(store: &Store, damage: &mut Vec<Error>) -> Result<Recovery> {
    let first = match Logs::check(store) {
        Err(error) if error.kind() == ErrorKind::Corruption => error,
        read => {
            return read.map(|logs| logs.found);
        }
    };
    let wals = store.state.lock().wals.clone();
    let paths = wals.keys().map(|number| (number, store.path_of(&FileName::Wal(*number))));
    // Which may be in another directory.
    let others = paths.filter(|(_, path)| first.path().and_then(Path::file_name) != path.file_name());
    let others = others.map(|(number, path)| check_log(store, *number, &path)).collect::<Result<Vec<_>>>()?;
    damage.push(first);
    damage.extend(others.into_iter().flatten());
    Ok(replay_wanted(store, |_, _, _| Ok(false), |_, _| Ok(()))?.0)
}

/// The first damage of a log by itself.
fn check_log(store: &Store, number: FileNumber, path: &Path) -> Result<Option<Error>> {
    let files = &*store.env.files;
    let mut scanner = Scanner::open(files, path, RecoveryMode::PointInTime, true, number.get() as u32)?;
    loop {
        let read =
            scanner.next().and_then(|read| read.map(|(offset, batch)| check_batch(path, offset, batch)).transpose());
        match read {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Corruption => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
    }
}

/// The blob files that logs point to.
pub(crate) fn blob_files_in_logs(store: &Store) -> Result<BTreeSet<FileNumber>> {
    let mut found = BTreeSet::new();
    for number in store.state.lock().wals.clone().keys() {
        let path = store.path_of(&FileName::Wal(*number));
        let mut scanner =
            Scanner::open(&*store.env.files, &path, RecoveryMode::SkipCorrupt, true, number.get() as u32)?;
        while let Some((_, batch)) = scanner.next()? {
            let records = write_batch::records(batch).map_while(std::result::Result::ok);
            let pointers = records.filter(|record| record.kind == ValueKind::BlobIndex);
            found.extend(pointers.filter_map(|record| Some(BlobIndex::decode(record.value).ok()?.file)));
        }
    }
    Ok(found)
}

/// Replays all logs: every batch that is whole, and of it every record that is `wanted`, given with its log and its sequence
/// number; what the manifest says is durable of them and is missing counts as skipped. Where they point to is the caller's to find out. `full` is called with a family whose memtable is full.
pub(crate) fn replay_wanted(
    store: &Store,
    mut wanted: impl FnMut(FileNumber, u64, &Record<'_>) -> Result<bool>,
    mut full: impl FnMut(&Store, &Arc<Family>) -> Result<()>,
) -> Result<(Recovery, SequenceNumber)> {
    let (mut found, mut last) = (Recovery::default(), SequenceNumber::new(0));
    let (files, families, wals) = (&*store.env.files, store.families.load_full(), store.state.lock().wals.clone());
    for number in wals.keys() {
        let path = store.path_of(&FileName::Wal(*number));
        let mut scanner = Scanner::open(files, &path, RecoveryMode::SkipCorrupt, true, number.get() as u32)?;
        while let Some((offset, batch)) = scanner.next()? {
            let first = match check_batch(&path, offset, batch) {
                Ok(batch) => batch.sequence,
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    found.skipped_bytes = found.skipped_bytes.saturating_add(batch.len() as u64);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if LogNote::of_batch(batch).is_some() {
                continue;
            }
            found.batches += 1;
            let counted = write_batch::records(batch).map_while(std::result::Result::ok).filter(Record::is_counted);
            for (sequence, record) in (first..).zip(counted) {
                last = last.max(SequenceNumber::new(sequence));
                let Some(family) = families.get(&record.cf) else { continue };
                if !wanted(*number, sequence, &record)? {
                    continue;
                }
                let view = family.view.load_full();
                apply(&view.active.memtable, SequenceNumber::new(sequence), &record)?;
                if view.active.memtable.allocated_bytes() as u64 >= family.options().write_buffer_bytes {
                    full(store, family)?;
                }
            }
        }
        found.wal_files += 1;
        let missing = match scanner.end() {
            LogEnd::Clean { offset } | LogEnd::Torn { offset, .. } => missing_bytes(store, *number, offset),
            LogEnd::NotReached => 0,
        };
        found.skipped_bytes = found.skipped_bytes.saturating_add(scanner.skipped_bytes().max(missing));
    }
    let gone = store.durable_logs.keys().filter(|number| !wals.contains_key(number));
    let gone = gone.map(|&number| missing_bytes(store, number, 0));
    found.skipped_bytes = gone.fold(found.skipped_bytes, u64::saturating_add);
    Ok((found, last))
}

/// The column families that the logs of a directory write to, as far as they can be read.
pub(crate) fn families_in_logs(
    files: &dyn FileSystem,
    dir: &Path,
    names: &BTreeSet<FileName>,
) -> Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for name in names {
        let FileName::Wal(number) = name else { continue };
        let path = dir.join(name.to_string());
        let mut scanner = Scanner::open(files, &path, RecoveryMode::SkipCorrupt, true, number.get() as u32)?;
        while let Some((_, batch)) = scanner.next()? {
            let records = write_batch::records(batch).map_while(std::result::Result::ok);
            found.extend(records.filter(|record| record.is_counted()).map(|record| record.cf));
        }
    }
    Ok(found)
}
