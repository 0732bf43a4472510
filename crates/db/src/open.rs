//! Opening: directory → manifest → version → replay, through the same `apply` that writes use.
//!
//! - O1: everything is read and accepted before the first byte is written: what cannot be opened stays as it was.
//! - O2: recovery writes new files only, and they count all at once when CURRENT is replaced. Before that the store is
//!   what it was; after it, the logs and the old manifest are superfluous. One exception: blob files that were not ended are, which
//!   takes nothing from them that the logs lead to ([`pointers`]).
//! - O4: where the disk has no room for tables of what the logs hold, that stays in memory, and the logs stay, cut where they ended and durable, until
//!   there is.
//! - O3: files that no manifest names are removed last, and only those whose names Esker and RocksDB give. What an earlier attempt has left
//!   goes before the next one writes the same again, or attempts that fail would fill the disk.
//!
//! Cost: one read of the manifest, the ends of all tables (several at a time), and the logs twice: once to check them, once to replay them.

mod before;
mod files;
pub(crate) mod foreign;
mod left_out;
pub(crate) mod mend;
mod pointers;
mod prepared;
mod replay;
mod tables;
mod too_old;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_env::beside::Beside;
use esker_env::metered::{Limits, Meter, Metered};
use esker_env::{Env, Lock, durable};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::version_edit::VersionEdit;
use esker_log::{copying, distrust};

use self::before::Before;
pub(crate) use self::before::Memtables;
pub(crate) use self::files::{BALLAST, is_half_made, is_unreadable, superfluous_bytes};
use self::left_out::Sieve;
pub(crate) use self::left_out::{LeftOut, is_of_a_file};
pub(crate) use self::pointers::has_lost_sector;
pub(crate) use self::tables::check_place;
use crate::counters::Counters;
use crate::family::{Family, Generation, View};
use crate::options::{FamilyOptions, Options, OptionsInFile, Orders};
use crate::reclaim::{Trash, limit_of};
use crate::store::{Installer, Parts, Store, check_next_file};
use crate::version::{
    ManifestWriter, Recovered, RecoveredFamily, current_manifest, manifest_state, recover, write_new,
};
use crate::write::Lead;
use crate::{Error, ErrorKind, Result};

/// What open found in the write-ahead logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Logs read.
    pub wal_files: u64,
    /// Batches replayed.
    pub batches: u64,
    /// Bytes behind the point where the logs ended torn. After a power loss, no write among them was acknowledged as synced; damage
    /// that looks like what a power loss leaves is told from it only in a store that was closed.
    pub dropped_bytes: u64,
    /// Where the logs ended, if a crash tore the record there.
    pub torn_at: Option<(PathBuf, u64)>,
    /// Bytes passed over in `SkipCorrupt` mode.
    pub skipped_bytes: u64,
}

/// An open store with the right to its directory.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    /// `None` when open for reading only: what is read holds the share of the directory itself.
    pub(crate) lock: Option<Box<dyn Lock>>,
    /// Nothing, but for [`open_what_is_whole`].
    pub(crate) left_out: LeftOut,
}

/// Opens for reading and writing.
pub(crate) fn open(dir: &Path, options: Options, env: Env) -> Result<Opened> {
    options.validate()?;
    let dir = &*env.files.absolute(dir)?;
    foreign::refuse(&env, dir)?;
    let exists = files::store_exists(&env, dir)?;
    if exists && options.error_if_exists {
        let reason = "there is a store already, and error_if_exists is set";
        return Err(Error::new(ErrorKind::Conflict, reason).with_path(dir));
    }
    if !exists {
        let logs_dir = options.wal_dir.as_deref().map(|logs_dir| env.files.absolute(logs_dir)).transpose()?;
        files::may_create(&env, dir, options.create_if_missing, logs_dir.as_deref())?;
        durable::create_dir(&*env.files, dir)?;
    }
    let lock_path = dir.join(FileName::Lock.to_string());
    let lock = env.files.lock(&lock_path).map_err(|error| locked(error.into(), dir))?;
    let logs_dir = logs_dir(dir, &options, &env)?;
    // As the OPTIONS file is to have it: for whoever comes from another directory.
    let options = Options { wal_dir: logs_dir.clone(), ..options };
    let (env, lock) = match logs_dir {
        Some(logs_dir) => {
            files::check_logs_dir(&env, dir, &logs_dir)?;
            durable::create_dir(&*env.files, &logs_dir)?;
            let of_logs = lock_logs(&logs_dir, &env)?;
            (with_logs(dir, &logs_dir, env), Box::new(Both(lock, of_logs)) as Box<dyn Lock>)
        }
        None => (env, lock),
    };
    // Somebody else may have made it, or begun to repair it, before this handle had the lock.
    let exists_now = files::store_exists(&env, dir)?;
    if !exists {
        if !exists_now {
            options.wal_dir.as_deref().map_or(Ok(()), |logs_dir| files::refuse_logs_before(&env, logs_dir))?;
            create(dir, &env, default_order(&options))?;
        } else if options.error_if_exists {
            let reason = "somebody else has just made a store here, and error_if_exists is set";
            return Err(Error::new(ErrorKind::Conflict, reason).with_path(dir));
        }
    }
    let limits = Limits {
        bytes: limit_of(options.max_disk_bytes),
        ballast_bytes: options.ballast_bytes,
        ballast_name: files::BALLAST.to_string(),
        need: files::need,
    };
    let (files, meter) = Metered::over(env.files.clone(), dir, &limits)?;
    let trash = Trash::new(files.clone());
    let recovered = recover(&*files, dir)?;
    let before = Before::nothing(&options);
    let env = Env { files, ..env };
    let store = read(dir, options, env, recovered, &before, trash, Some(meter), &mut Sieve::refusing())?;
    let logs = replay::Logs::check(&store)?;
    begin_writing(&store, &logs)?;
    Ok(Opened { store: Arc::new(store.with_recovery(logs.found)), lock: Some(lock), left_out: LeftOut::default() })
}

/// The directory that the logs are in, if that is not the store's. See [`Options::wal_dir`].
fn logs_dir(dir: &Path, options: &Options, env: &Env) -> Result<Option<PathBuf>> {
    let Some(logs_dir) = &options.wal_dir else { return Ok(None) };
    let logs_dir = env.files.absolute(logs_dir)?;
    // By another name, perhaps.
    let identity = |path: &Path| env.files.metadata(path).ok().map(|found| found.identity);
    let is_same = logs_dir == dir || identity(dir).is_some_and(|of_dir| identity(&logs_dir) == Some(of_dir));
    Ok((!is_same).then_some(logs_dir))
}

fn lock_logs(logs_dir: &Path, env: &Env) -> Result<Box<dyn Lock>> {
    let lock_path = logs_dir.join(FileName::Lock.to_string());
    env.files.lock(&lock_path).map_err(|error| locked(error.into(), logs_dir))
}

/// The right to the directory of the logs, for who does not open the store; `None` if that is the store's, or not there.
pub(crate) fn lock_logs_of(dir: &Path, options: &Options, env: &Env) -> Result<Option<Box<dyn Lock>>> {
    match logs_dir(dir, options, env)? {
        Some(logs_dir) if durable::is_there(&*env.files, &logs_dir)? => lock_logs(&logs_dir, env).map(Some),
        _ => Ok(None),
    }
}

fn with_logs(dir: &Path, logs_dir: &Path, env: Env) -> Env {
    let is_log = |name: &str| matches!(FileName::parse(name), Some(FileName::Wal(_)));
    Env { files: Beside::over(env.files.clone(), dir, logs_dir, is_log), ..env }
}

/// What a store in `dir` that is read finds its files by. Nothing else may have been wrapped around `env` for it.
pub(crate) fn env_of(dir: &Path, options: &Options, env: Env) -> Result<Env> {
    let dir = &*env.files.absolute(dir)?;
    match logs_dir(dir, options, &env)? {
        Some(logs_dir) => {
            files::check_logs_dir(&env, dir, &logs_dir)?;
            Ok(with_logs(dir, &logs_dir, env))
        }
        None => Ok(env),
    }
}

/// The right to the store's directory, and to that of its logs.
#[derive(Debug)]
#[expect(dead_code, reason = "held until they are dropped")]
struct Both(Box<dyn Lock>, Box<dyn Lock>);

impl Lock for Both {}

/// Opens for reading only: keeps no writer out, writes nothing, and sees the store as it is now.
pub(crate) fn open_read_only(dir: &Path, options: Options, env: Env) -> Result<Opened> {
    let env = env_of(dir, &options, env)?;
    read_only(dir, options, env)
}

/// The same by what [`env_of`] gave.
pub(crate) fn read_only(dir: &Path, options: Options, env: Env) -> Result<Opened> {
    let before = Before::nothing(&options);
    read_steady(dir, options, env, &before, Sieve::refusing)
}

/// Opens the store again that `store`, open for reading only, has: as it is now.
pub(crate) fn catch_up(store: &Store) -> Result<Opened> {
    store.check_open()?;
    if !store.read_only {
        let reason = "the store is open for writing, and shows all that is written; only a handle that is open for reading only catches up";
        return Err(Error::invalid_argument(reason).with_path(&store.dir));
    }
    read_steady(&store.dir, (**store.options()).clone(), store.env.clone(), &Before::of(store), Sieve::refusing)
}

/// The same, to check what is left of a store with damage: without the files and the logs that are not whole. It has to have a manifest.
pub(crate) fn open_what_is_whole(dir: &Path, options: Options, env: Env) -> Result<Opened> {
    let before = Before::nothing(&options);
    read_steady(dir, options, env, &before, Sieve::leaving_out)
}

/// The same by the manifest `number`, which holds `recovered`, of a store whose CURRENT names none that can be read: nobody opens it for writing.
pub(crate) fn open_what_is_whole_by(
    dir: &Path,
    options: Options,
    env: Env,
    number: FileNumber,
    recovered: Recovered,
) -> Result<Opened> {
    let share = share(&env, dir)?;
    let before = Before::nothing(&options);
    let mut opened = read_whole(dir, options, env, recovered, &before, share, Sieve::leaving_out())?;
    opened.left_out.manifest = Some(number);
    Ok(opened)
}

/// Reads a store as it is at one moment, whatever a writer does meanwhile. What was read `before` of it is not read again.
fn read_steady(dir: &Path, options: Options, env: Env, before: &Before, sieve: fn() -> Sieve) -> Result<Opened> {
    options.validate()?;
    let dir = &*env.files.absolute(dir)?;
    foreign::refuse(&env, dir)?;
    if !files::store_exists(&env, dir)? {
        files::may_create(&env, dir, false, None)?;
        return Err(files::no_store(dir));
    }
    // Before anything is read: a hole that comes later would be in what is read now (`reclaim/punch.rs` H6).
    let share = share(&env, dir)?;
    // A writer may take away, between two of these reads, what its manifest no longer needs. It always changes the
    // manifest first: if that is as it was before, it names nothing that was missed. But a log may have been due to go before: while a
    // family writes nothing, the manifest says no later than it must from which log on that needs any.
    // What looks damaged or torn may be an append that is under way, or a log that went on between two reads of it: it is believed once
    // another attempt finds the same.
    let mut attempts = READ_ONLY_ATTEMPTS;
    let mut suspected = None;
    loop {
        let manifest = manifest_state(&*env.files, dir)?;
        let logs = files::logs_in(&env, dir)?;
        let opened = recover(&*env.files, dir).and_then(|recovered| {
            read_whole(dir, options.clone(), env.clone(), recovered, before, share.clone(), sieve())
        });
        // A repair that has begun meanwhile says so before it changes anything.
        if !files::store_exists(&env, dir)? {
            return Err(files::no_store(dir));
        }
        attempts -= 1;
        let is_same_manifest = manifest_state(&*env.files, dir)? == manifest;
        let logs_now = files::logs_in(&env, dir)?;
        // A listing may have a log and not the one before it, if both were begun meanwhile.
        let was_missed = |store: &Store| {
            let read = &store.state.lock().wals;
            let is_between = |&last| logs_now.range(..last).any(|log| !logs.contains(log) && !read.contains_key(log));
            read.keys().next_back().is_some_and(is_between)
        };
        let is_as_before = is_same_manifest
            && logs.is_subset(&logs_now)
            && !opened.as_ref().is_ok_and(|opened| was_missed(&opened.store));
        let suspect = Suspect::of(&opened);
        let is_sure = suspect.is_none() || suspect == suspected;
        match opened {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Busy) && attempts > 0 => {}
            opened if is_as_before && (is_sure || attempts == 0) => return opened,
            _ if attempts > 0 => {}
            _ => {
                let reason = "the store changes faster than it can be read; try again";
                return Err(Error::new(ErrorKind::Busy, reason).with_path(dir));
            }
        }
        if !is_sure {
            env.clock.sleep(TURN);
        }
        suspected = suspect;
    }
}

/// How often a store that is being written is read before it is given up.
const READ_ONLY_ATTEMPTS: usize = 10;
/// A writer that lost its processor in the midst of an append has it back after so long, as a rule.
const TURN: Duration = Duration::from_millis(10);

/// What may be damage, or the work of a writer just now.
#[derive(PartialEq, Eq)]
enum Suspect {
    Refused(String),
    Lost { torn_at: Option<(PathBuf, u64)>, skipped_bytes: u64, left_out: Vec<String> },
}

impl Suspect {
    fn of(opened: &Result<Opened>) -> Option<Self> {
        match opened {
            Ok(opened) => {
                let Recovery { torn_at, skipped_bytes, .. } = &opened.store.recovery;
                let left_out: Vec<_> = opened.left_out.damage.iter().map(Error::to_string).collect();
                (torn_at.is_some() || *skipped_bytes > 0 || !left_out.is_empty()).then(|| Self::Lost {
                    torn_at: torn_at.clone(),
                    skipped_bytes: *skipped_bytes,
                    left_out,
                })
            }
            Err(error) => (error.kind() == ErrorKind::Corruption).then(|| Self::Refused(error.to_string())),
        }
    }
}

/// The directory, shared with all who must not find holes in it. `None` where the system has no such lock: the writer cannot have it either,
/// and makes none.
pub(crate) fn share(env: &Env, dir: &Path) -> Result<Option<Arc<dyn Lock>>> {
    match env.files.share_dir(dir) {
        Ok(share) => Ok(Some(share.into())),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_whole(
    dir: &Path,
    options: Options,
    env: Env,
    recovered: Recovered,
    before: &Before,
    share: Option<Arc<dyn Lock>>,
    mut sieve: Sieve,
) -> Result<Opened> {
    let trash = Trash::sharing(env.files.clone(), share);
    let mut store = read(dir, options, env, recovered, before, trash, None, &mut sieve)?;
    // Held until the logs are replayed: see `before` C4.
    let mut known = before.memtables.as_ref().and_then(|memtables| Some((memtables, memtables.lock_for(&store)?)));
    // Should they not be readable, who reads all of them says so.
    if let Some((memtables, extent)) = &mut known
        && let Ok(Some(recovery)) = replay::unchanged(&store, extent)
    {
        memtables.show_in(&store);
        extent.publish_in(&store);
        store.memtables = Some((*memtables).clone());
        return Ok(Opened { store: Arc::new(store.with_recovery(recovery)), lock: None, left_out: sieve.left_out() });
    }
    let trail = known.as_ref().map(|(_, extent)| extent.trail);
    let mut recovery = Recovery::default();
    let mut memtables = None;
    if let Some(logs) = sieve.pass(replay::Logs::check_from(&store, trail))? {
        for (&id, family) in store.families.load().iter() {
            logs.pointers.show_to(id, &family.view.load(), &store.trash);
        }
        memtables = Some(logs.replay_for_readers(&store, known)?);
        recovery = logs.found;
    }
    store.memtables = memtables;
    Ok(Opened { store: Arc::new(store.with_recovery(recovery)), lock: None, left_out: sieve.left_out() })
}

fn locked(error: Error, dir: &Path) -> Error {
    match error.kind() {
        ErrorKind::Busy => {
            let reason = "the store is open elsewhere; close it there, or open it for reading only";
            Error::new(ErrorKind::Busy, reason).with_path(dir).with_source(error)
        }
        _ => error,
    }
}

/// An empty store: an identity, a manifest with nothing in it, and CURRENT.
fn create(dir: &Path, env: &Env, order: Order) -> Result<()> {
    files::remove_failed_creation(env, dir)?;
    let files = &*env.files;
    let db_id = new_identity(env);
    let temporary = dir.join(FileName::Temporary(FileNumber::new(1)).to_string());
    files.write_atomically(&dir.join(FileName::Identity.to_string()), &temporary, db_id.as_bytes())?;
    let edit = VersionEdit {
        db_id: Some(db_id),
        comparator: Some(order.name().to_owned()),
        log_number: Some(FileNumber::new(0)),
        next_file_number: Some(2),
        last_sequence: Some(SequenceNumber::new(0)),
        ..VersionEdit::default()
    };
    write_new(files, dir, FileNumber::new(1), &[edit])?;
    Ok(())
}

/// 128 random bits, as RocksDB prints its identities: a version-4 UUID.
fn new_identity(env: &Env) -> String {
    let mut bits = [0u8; 16];
    env.entropy.fill(&mut bits);
    let n = (u128::from_be_bytes(bits) & !(0xf000 << 64) & !(0xc000 << 48)) | (0x4000 << 64) | (0x8000 << 48);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        n >> 96,
        (n >> 80) & 0xffff,
        (n >> 64) & 0xffff,
        (n >> 48) & 0xffff,
        n & 0xffff_ffff_ffff
    )
}

/// 20 characters of 0-9A-Z, as RocksDB's session ids.
pub(crate) fn new_session(env: &Env) -> String {
    let mut bits = [0u8; 20];
    env.entropy.fill(&mut bits);
    let digit = |byte: u8| char::from_digit(u32::from(byte) % 36, 36).unwrap_or('0').to_ascii_uppercase();
    bits.into_iter().map(digit).collect()
}

/// Everything but the logs, of the store that a manifest says is `recovered`, and the range deletions that its tables have. Writes nothing. Without
/// a meter, nothing will be written later either.
#[expect(clippy::too_many_arguments, reason = "each is a thing of its own, and there are two callers")]
fn read(
    dir: &Path,
    options: Options,
    env: Env,
    recovered: Recovered,
    before: &Before,
    trash: Arc<Trash>,
    meter: Option<Arc<Meter>>,
    sieve: &mut Sieve,
) -> Result<Store> {
    let listing = files::Listing::of(&env, dir)?;
    let in_file = listing.options(&env, dir, &recovered).map_err(files::what_helps);
    let in_file = match sieve.pass_unless(|error| is_of_a_file(error) || files::is_unreadable(error), in_file)? {
        Some(in_file) => in_file,
        None => listing.options_but_newest(&env, dir, &recovered)?.0,
    };
    let first_log = first_log(&recovered);
    listing.check_logs(&env, dir, &in_file, first_log, logs_dir(dir, &options, &env)?.as_deref())?;
    prepared::refuse(&env, dir, listing.logs_kept_before(first_log, recovered.log_number_min, in_file.allows_2pc))?;
    sieve.pass(too_old::refuse(&env, dir, &listing, &recovered))?;
    let cache = before.cache.clone();
    let db_id = if recovered.db_id.is_empty() { listing.identity(&env, dir)? } else { recovered.db_id.clone() };
    let next_file = recovered.next_file_number.max(listing.highest_number + 1);
    check_next_file(next_file, dir)?;
    // The next number is the new log's, so that memtables can say from the start that they need none before it.
    let wal_number = FileNumber::new(next_file);
    let open_files = before.files.of_store(&db_id);
    let opener = files::Opener { env: &env, dir, trash: &trash, before: &open_files, mmap_reads: options.mmap_reads };
    let chosen = |family| family_options(&options, &in_file, family).map_err(|error| error.with_path(dir));
    let chosen: Vec<_> = recovered.families.values().map(chosen).collect::<Result<_>>()?;
    let mut tables = tables::open_all(&opener, &cache, &recovered, &options, sieve)?;
    let session_id: Arc<str> = new_session(&env).into();
    let mut families = BTreeMap::new();
    for ((&id, family), chosen) in recovered.families.iter().zip(chosen) {
        let version = opener.version(id, family, &chosen, &mut tables, sieve)?;
        families.insert(id, Family::new(id, family.name.clone(), chosen, version, wal_number, session_id.clone()));
    }
    let Some(default_family) = families.get(&0).cloned() else {
        return Err(Error::new(ErrorKind::Corruption, "the manifest drops the default column family").with_path(dir));
    };
    let wals = listing.logs_from(first_log).collect();
    let mut store = Store::new(Parts {
        session_id,
        env,
        dir: dir.to_owned(),
        options,
        foreign_options: in_file.foreign,
        db_id,
        cache,
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
        has_stray_blobs: listing.has_blobs_besides(&recovered),
        first_unnamed: recovered.next_file_number,
        read_only: meter.is_none(),
        meter,
    });
    if let Some(reader) = &before.blob_reader {
        store.blobs = reader.clone();
    }
    Ok(store)
}

/// See [`Options::of_store`].
pub(crate) fn kept_options(dir: &Path, env: &Env) -> Result<Options> {
    let dir = &*env.files.absolute(dir)?;
    if !files::store_exists(env, dir)? {
        return OptionsInFile::default().foreign.kept();
    }
    let mut attempts = READ_ONLY_ATTEMPTS;
    loop {
        attempts -= 1;
        let listing = files::Listing::of(env, dir)?;
        // What is said of the store is all that is asked for.
        match listing.options(env, dir, &Recovered::default()) {
            // A writer has written it anew meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && attempts > 0 => {}
            in_file => return in_file.map_err(files::what_helps)?.foreign.kept().map_err(|error| error.with_path(dir)),
        }
    }
}

/// The first log that some family needs.
pub(crate) fn first_log(recovered: &Recovered) -> FileNumber {
    let needed = recovered.families.values().map(|family| family.log_number).min().unwrap_or_default();
    needed.max(recovered.log_number_min)
}

/// That of the default family of a new store.
fn default_order(options: &Options) -> Order {
    options.families.get("default").map(FamilyOptions::order).unwrap_or_default()
}

/// What the caller says of a family; else what the store's OPTIONS file says; else the defaults.
fn family_options(options: &Options, in_file: &OptionsInFile, family: &RecoveredFamily) -> Result<FamilyOptions> {
    let given = options.families.get(&family.name);
    // Every manifest says it; a repair may have none.
    let is = match (&*family.comparator, given) {
        ("", Some(given)) => given.comparator.name().to_owned(),
        ("", None) => in_file.comparator(&family.name).unwrap_or_else(|| Order::BYTEWISE.name().to_owned()),
        (name, _) => name.to_owned(),
    };
    match given {
        Some(given) if given.comparator.name() == is => Ok(given.clone()),
        Some(given) => {
            let (name, said) = (&family.name, given.comparator.name());
            let reason = format!(
                "option comparator of column family {name:?} says {said:?}, but its keys are ordered by {is:?}: name that one"
            );
            Err(Error::invalid_argument(reason))
        }
        None => {
            let comparator = Orders::of(options).named(&is)?.comparator();
            let kept = in_file.family(&family.name, &options.merge_operators);
            Ok(FamilyOptions { comparator, ..kept.unwrap_or_else(|| Ok(FamilyOptions::default()))? })
        }
    }
}

/// Replays the logs into tables, begins a new log and a new manifest, and makes that the store (O2).
fn begin_writing(store: &Store, logs: &replay::Logs) -> Result<()> {
    files::remove_leftovers(store, logs)?;
    store.room.take_over_ballast();
    let first_new_number = store.next_file_number() - 1;
    let Begun { wal, kept, manifest } = begin_store(store, logs, first_new_number).inspect_err(|_| {
        // While CURRENT names the old manifest, what was written since is nobody's. What cannot be removed now, the next open removes.
        if current_manifest(&*store.env.files, &store.dir).is_ok_and(|current| current.get() < first_new_number) {
            files::remove_numbered_from(store, first_new_number);
        }
    })?;
    let mut installer = store.installer.lock();
    store.take_manifest(&mut installer, manifest);
    store.write_options_file(&mut installer)?;
    drop(installer);
    copying::remove_mark(&*store.env.files, &store.dir)?;
    {
        let mut state = store.state.lock();
        store.sealed_wal_bytes.store(kept.values().sum(), Ordering::Relaxed);
        state.to_flush.extend(store.families.load().keys().filter(|_| !kept.is_empty()));
        state.wals = kept;
        state.wals.insert(wal, 0);
    }
    store.note_all_versions();
    store.families.load().values().for_each(|family| store.refresh_delay(family));
    files::remove_superfluous(store)?;
    if distrust::is_warned(&*store.env.files, &store.dir)? {
        distrust::trust_again(&*store.env.files, &store.dir)?;
    }
    store.refresh_memory();
    store.room.begin_ballast();
    store.refresh_rates();
    Ok(())
}

/// What recovery made.
struct Begun {
    wal: FileNumber,
    /// Logs that stay (O4), and their lengths.
    kept: BTreeMap<FileNumber, u64>,
    manifest: ManifestWriter,
}

/// Writes what the logs hold, a log and a manifest, and makes that the store. Files that are new are numbered from `first_new_number` on.
fn begin_store(store: &Store, logs: &replay::Logs, first_new_number: u64) -> Result<Begun> {
    store.refresh_room();
    take_over_blobs(store, logs)?;
    // What comes now leaves that much for a new one.
    store.room.note_manifest(files::manifest_bytes(store)?);
    let kept = match write_recovered(store, logs) {
        Ok(()) => BTreeMap::new(),
        Err(error) if error.kind() == ErrorKind::Exhausted && logs.can_stay(store)? => {
            keep_recovered(store, logs, first_new_number)?
        }
        Err(error) => return Err(error),
    };
    let wal = store.commit.exclusive(|lead| -> Result<FileNumber> {
        let path = store.path_of(&FileName::Wal(lead.wal_number));
        lead.wal = Some(store.create_log(lead.wal_number, &path)?);
        lead.order.expect_spare(store.spare_due_at());
        lead.last_sequence = store.visible();
        // Whoever closes it leaves what RocksDB reads: it does not look for blob files that only logs lead to.
        lead.unlogged = !kept.is_empty();
        lead.reload(&store.families.load());
        store.refresh_wal_bytes_max();
        Ok(lead.wal_number)
    })?;
    let edits = store.state_edits(store.installer.lock().family_id_max);
    let manifest = write_new(&*store.env.files, &store.dir, store.new_file_number(), &edits)?;
    Ok(Begun { wal, kept, manifest })
}

fn take_over_blobs(store: &Store, logs: &replay::Logs) -> Result<()> {
    let families = store.families.load();
    for (id, edit) in logs.pointers.take_over(store)? {
        let Some(family) = families.get(&id) else { continue };
        let view = family.view.load_full();
        let version = Arc::new(view.version.apply(&edit)?);
        family.view.store(Arc::new(View { version, ..View::clone(&view) }));
    }
    Ok(())
}

fn write_recovered(store: &Store, logs: &replay::Logs) -> Result<()> {
    let before: Vec<_> =
        store.families.load().values().map(|family| (family.clone(), family.view.load_full())).collect();
    let written = write_tables(store, logs);
    if written.is_err() {
        for (family, view) in before {
            let active = Generation::new(family.order, view.active.first_wal());
            family.view.store(Arc::new(View { active, ..View::clone(&view) }));
        }
    }
    written
}

/// See O4.
fn keep_recovered(store: &Store, logs: &replay::Logs, first_new_number: u64) -> Result<BTreeMap<FileNumber, u64>> {
    // What there was room for, some of it would be twice.
    files::remove_numbered_from(store, first_new_number);
    let wal = store.commit.exclusive(|lead| lead.wal_number);
    let families = store.families.load();
    for family in families.values() {
        let first = store.log_numbers.get(&family.id).copied().unwrap_or_default();
        let view = family.view.load_full();
        family.view.store(Arc::new(View { active: Generation::new(family.order, first), ..View::clone(&view) }));
    }
    let last = logs.replay(store, |family| {
        keep_in_memory(family, family.view.load().active.first_wal());
        Ok(())
    })?;
    store.publish(store.visible().max(last));
    families.values().for_each(|family| keep_in_memory(family, wal));
    logs.keep(store)
}

/// Seals what was replayed of a family; what comes next needs the log `first_wal`, and those after it.
fn keep_in_memory(family: &Family, first_wal: FileNumber) {
    let view = family.view.load_full();
    let (active, mut sealed) = (view.active.next(first_wal), view.sealed.clone());
    if !view.active.memtable.is_empty() {
        sealed.insert(0, view.active.clone());
    }
    family.view.store(Arc::new(View { active, sealed, version: view.version.clone() }));
}

/// Replays the logs into tables.
fn write_tables(store: &Store, logs: &replay::Logs) -> Result<()> {
    let last = logs.replay(store, |family| flush_recovered(store, family))?;
    store.publish(store.visible().max(last));
    store.families.load().values().try_for_each(|family| flush_recovered(store, family))
}

/// Turns what was replayed of a family into tables of its version, which no manifest names yet.
fn flush_recovered(store: &Store, family: &Arc<Family>) -> Result<()> {
    let view = family.view.load_full();
    if view.active.memtable.is_empty() {
        return Ok(());
    }
    let edit = crate::flush::write_files(store, family, std::slice::from_ref(&view.active))?;
    edit.give_epochs(&view.version);
    let version = Arc::new(view.version.apply(&edit)?);
    let active = view.active.next(view.active.first_wal());
    family.view.store(Arc::new(View { active, sealed: Vec::new(), version }));
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
