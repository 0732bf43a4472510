//! Opening: directory → manifest → files → key directory.
//!
//! - O1: nothing is written before the manifest was read and accepted.
//! - O2: the manifest is the truth: a data file that it does not name was never finished, or is done with, and goes; one that
//!   it names and that is not there, or is shorter than it says, is an error.
//! - O3: sealed files are read by their hints; where a hint is missing or bad, the data file itself is read, and the hint written anew.
//!   Files that were open are read to where a crash cut them.
//! - O4: the order in which records are met does not matter: of each key the highest version wins (`load.rs`, `settle.rs`).
//! - O5: whoever had the store before may have died and left the manifest's name, and others that came or went, to the system alone. They are
//!   durable before a file goes, or takes a record, on the manifest's word.

mod files;
mod gather;
mod hint;
mod load;
mod settle;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Access, Env, FileSystem, Lock, durable};
use esker_format::cask::manifest::{MAGIC, Manifest};
use esker_format::cask::record::{FIRST_OFFSET, VERSION_MAX};
use esker_format::cask::{FileName, FileNumber};
use esker_format::file_name::FileName as DbFileName;
use esker_log::copying::{UNFINISHED, remove_mark};
use esker_log::distrust;

use crate::file::{ActiveFile, DataFile, FileTable};
use crate::keydir::KeyDir;
use crate::manifest::{self, Installer};
use crate::options::{CaskDamage, CaskOptions};
use crate::store::{Parts, Store};
use crate::{Error, ErrorKind, Result};

pub(crate) use files::Opened as OpenedFile;
pub(crate) use load::Loader;

/// No store whose next version is higher is written to. More than follow it nobody gives out in a life, at a thousand million a second in two
/// years: so no write need look.
pub(crate) const NEXT_VERSION_MAX: u64 = VERSION_MAX - (1 << 56);

/// What an open found, beside the data.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CaskRecovery {
    /// Files whose last records a crash had cut off, or what looks the same: what the manifest knew to be durable was not in them.
    pub torn_files: Vec<PathBuf>,
    /// Hints that were missing or bad, so that the data file was read. Unless the store was opened for reading only, or the data file is
    /// damaged, or there is no room, they are written anew.
    pub bad_hints: Vec<PathBuf>,
    /// Bytes that are no records, by file. What was in them is lost. A key that can still be told, such as that of a record with one
    /// flipped bit, is not answered by an older version (see `damaged_keys`); of one that cannot, as where a whole block of the disk is
    /// gone, an older version may show through, or a deleted one come back: that is there only with
    /// [`CaskDamage::Serve`](crate::CaskDamage::Serve).
    pub damage: Vec<(PathBuf, Range<u64>)>,
    /// Keys whose newest record was in there, as far as it still says: reads of them fail with `Corruption` until they are written or
    /// deleted anew, here or in a later life of the store, or [`Cask::repair`](crate::Cask::repair) goes back to what was before.
    /// Of files with a hint, all is known, and no key of theirs is in this list: it is told when it is read.
    pub damaged_keys: Vec<Vec<u8>>,
    /// Records read, dead ones included.
    pub records: u64,
}

/// An open store, and the right to its directory.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) lock: Option<Box<dyn Lock>>,
}

/// Whether there is a Cask in `dir`.
pub(crate) fn is_store(env: &Env, dir: &Path) -> Result<bool> {
    let path = dir.join(FileName::Manifest.name());
    let file = match env.files.open(&path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory) => {
            return Ok(false);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut magic = [0; MAGIC.len()];
    Ok(file.read_at(0, &mut magic)? == MAGIC.len() && magic == MAGIC)
}

pub(crate) fn open(dir: &Path, options: CaskOptions, env: Env) -> Result<Opened> {
    options.validate()?;
    let is_there = is_store(&env, dir)?;
    if !is_there {
        refuse_other_store(&env, dir)?;
        if !options.create_if_missing {
            return Err(no_store(dir));
        }
        refuse_strangers(&env, dir)?;
        durable::create_dir(&*env.files, dir)?;
    }
    let lock = lock(&env, dir)?;
    let found = manifest::read(&*env.files, dir)?;
    if let Some(manifest) = &found {
        // Names that came or went (O5).
        env.files.sync_dir(dir)?;
        remove_mark(&*env.files, dir)?;
        write_distrusted_anew(&*env.files, dir, manifest)?;
    }
    if found.is_none() {
        refuse_other_store(&env, dir)?;
        refuse_strangers(&env, dir)?;
        create(&env, dir, &options)?;
    } else if options.error_if_exists {
        let reason = "there is a store, and error_if_exists is set";
        return Err(Error::new(ErrorKind::Conflict, reason).with_path(dir));
    }
    let store = read(dir, options, env, false)?;
    Ok(Opened { store: Arc::new(store), lock: Some(lock) })
}

/// Opens for reading only: takes no lock, writes nothing.
pub(crate) fn open_read_only(dir: &Path, options: CaskOptions, env: Env) -> Result<Opened> {
    /// A writer may take files away between two reads; its manifest changes first.
    const ATTEMPTS_MAX: usize = 10;
    options.validate()?;
    for _ in 0..ATTEMPTS_MAX {
        let Some(before) = manifest::read(&*env.files, dir)? else {
            refuse_other_store(&env, dir)?;
            return Err(no_store(dir));
        };
        let opened = read(dir, options.clone(), env.clone(), true);
        if manifest::read(&*env.files, dir)?.as_ref() == Some(&before) {
            return Ok(Opened { store: Arc::new(opened?), lock: None });
        }
    }
    Err(Error::new(ErrorKind::Busy, "the store changes faster than it can be read; try again").with_path(dir))
}

pub(crate) fn no_store(dir: &Path) -> Error {
    let reason = "there is no store; create one with create_if_missing";
    Error::new(ErrorKind::NotFound, reason).with_path(dir)
}

pub(crate) fn lock(env: &Env, dir: &Path) -> Result<Box<dyn Lock>> {
    env.files.lock(&dir.join(FileName::Lock.name())).map_err(|error| {
        if error.kind() != std::io::ErrorKind::WouldBlock {
            return error.into();
        }
        let reason = "the store is open elsewhere; close it there, or open it for reading only";
        Error::new(ErrorKind::Busy, reason).with_path(dir).with_source(error)
    })
}

/// A directory of another kind of store, or a Cask that lost its manifest, is not made a new store of.
fn refuse_other_store(env: &Env, dir: &Path) -> Result<()> {
    let names = names_in(env, dir)?;
    refuse_unfinished(env, dir)?;
    if names.iter().any(|name| matches!(FileName::parse(name), Some(FileName::Data(_)))) {
        let reason = "there are data files of a Cask, but no manifest; rebuild it with a repair, or restore a backup";
        return Err(Error::new(ErrorKind::Corruption, reason).with_path(dir));
    }
    if DbFileName::are_of_a_store(names.iter().map(String::as_str)) {
        let reason = "there is a store of the ordered engine or of RocksDB; open it with Db, or repair it if it has lost its CURRENT";
        return Err(Error::invalid_argument(reason).with_path(dir));
    }
    for name in names {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        let reason = match (FileName::parse(&name), extension) {
            (Some(FileName::Manifest), _) => "there is a file MANIFEST that no Cask has written",
            (_, Some("raftlog" | "rewrite")) => "there is a Raft log; open it with RaftLog",
            _ => continue,
        };
        return Err(Error::invalid_argument(reason).with_path(dir));
    }
    Ok(())
}

/// Nor is one made among files of others: whoever lists them next takes all for one store's. What a creation that died has left is none, and a log
/// that [`DbFileName::are_of_a_store`] lets pass is an application's.
fn refuse_strangers(env: &Env, dir: &Path) -> Result<()> {
    let is_harmless = |name: &String| {
        *name == durable::OF_THE_FILE_SYSTEM
            || matches!(FileName::parse(name), Some(FileName::Lock | FileName::ManifestTemporary))
            || matches!(DbFileName::parse(name), Some(DbFileName::Wal(_)))
    };
    let Some(stranger) = names_in(env, dir)?.into_iter().find(|name| !is_harmless(name)) else { return Ok(()) };
    let reason = format!("is no store and holds {stranger:?}; give an empty or a new directory");
    Err(Error::invalid_argument(reason).with_path(dir))
}

/// The names in a directory; none if it is not there.
fn names_in(env: &Env, dir: &Path) -> Result<Vec<String>> {
    match env.files.list(dir) {
        Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unless_directory(dir, error)),
    }
}

/// What the system says of `dir`, in a user's words where it is a file.
pub(crate) fn unless_directory(dir: &Path, error: esker_env::Error) -> Error {
    if error.kind() != std::io::ErrorKind::NotADirectory {
        return error.into();
    }
    Error::invalid_argument("a store is a directory, and this is none; give another path").with_path(dir)
}

/// What a copy that died has left is no store, nor can it be made one: it lacks what was still to be copied. Only where there is no manifest.
pub(crate) fn refuse_unfinished(env: &Env, dir: &Path) -> Result<()> {
    let mark = dir.join(UNFINISHED);
    if !durable::is_there(&*env.files, &mark)? {
        return Ok(());
    }
    let reason =
        "a checkpoint or backup was not finished here: this is no store; make it again, into the same directory";
    Err(Error::corruption(&mark, 0, reason))
}

/// After a failed sync, files that were open may show what is not on the disk (see [`distrust`]). A sealed one was synced.
fn write_distrusted_anew(fs: &dyn FileSystem, dir: &Path, manifest: &Manifest) -> Result<()> {
    if !distrust::is_warned(fs, dir)? {
        return Ok(());
    }
    for file in manifest.files.iter().filter(|file| file.state.is_open()) {
        let path = dir.join(FileName::Data(file.number).name());
        // One that is missing is the open's to judge.
        if durable::is_there(fs, &path)? {
            distrust::write_anew(fs, &path)?;
        }
    }
    distrust::trust_again(fs, dir)
}

/// An empty store: a manifest that names no file.
fn create(env: &Env, dir: &Path, options: &CaskOptions) -> Result<()> {
    let mut store_id = [0; 16];
    env.entropy.fill(&mut store_id);
    let keep_versions = keep_versions(options, 0);
    let manifest = Manifest { store_id, keep_versions, next_file: 1, next_version: 1, files: Vec::new() };
    manifest::write(&*env.files, dir, &manifest)
}

/// How many versions the store keeps from now on, if it kept `so_far`; 0 stands for not said.
fn keep_versions(options: &CaskOptions, so_far: u16) -> u16 {
    // In range, so it fits.
    let wanted = u16::try_from(options.keep_versions).unwrap_or(u16::MAX);
    if wanted > 0 { wanted } else { so_far.max(1) }
}

fn read(dir: &Path, mut options: CaskOptions, env: Env, is_read_only: bool) -> Result<Store> {
    let Some(mut found) = manifest::read(&*env.files, dir)? else { return Err(no_store(dir)) };
    let kept_so_far = found.keep_versions;
    found.keep_versions = keep_versions(&options, kept_so_far);
    options.keep_versions = found.keep_versions.into();
    let mut seed = [0; 8];
    env.entropy.fill(&mut seed);
    let opened = files::open_all(&env, dir, &found, is_read_only)?;
    let loader = Loader::new(KeyDir::new(u64::from_le_bytes(seed)), opened, options.keep_versions, !is_read_only);
    let load::Loaded { keydir, files, recovery, version_max, key_count, suspects, uncertain, hintless } =
        load::load(loader, &env, options.open_threads)?;
    if let (CaskDamage::Refuse, Some((path, at))) = (options.damage, uncertain) {
        let reason = "bytes that are no records do not say for certain which keys they were of, so that older values might be shown for \
                      the newest; restore a backup, run a repair, or open the store with CaskDamage::Serve";
        return Err(Error::corruption(&path, at, reason));
    }
    let next_version = suspects.next_version(found.next_version.max(version_max.saturating_add(1)));
    if next_version > NEXT_VERSION_MAX && !is_read_only {
        let reason = "manifest or data files say that next to no version can follow their own; restore a backup";
        return Err(Error::new(ErrorKind::Exhausted, reason).with_path(dir));
    }
    let installer = Installer::new(env.files.clone(), dir, &found);
    let table = files.iter().fold(FileTable::default(), |table, file| table.with(file.data.clone()));
    let dir = dir.to_owned();
    let store = Store::new(Parts {
        env,
        dir,
        options,
        keydir,
        files: table,
        next_version,
        key_count,
        installer,
        recovery,
        suspects,
        hintless,
        is_read_only,
    });
    if !is_read_only {
        store.reserve.begin();
        if found.keep_versions != kept_so_far {
            store.note(store.install(&mut store.installer.lock(), &[], &[]))?;
        }
        remove_orphans(&store, &found)?;
        reopen_unsealed(&store, &files)?;
    }
    Ok(store)
}

/// Removes what the manifest does not name (O2).
fn remove_orphans(store: &Store, manifest: &Manifest) -> Result<()> {
    let named = |number: FileNumber| manifest.files.binary_search_by_key(&number, |file| file.number).is_ok();
    let mut removed = false;
    for entry in store.env.files.list(&store.dir)? {
        let is_orphan = match FileName::parse(&entry.name) {
            Some(FileName::Data(number) | FileName::Hint(number)) => !named(number),
            Some(FileName::HintTemporary(_) | FileName::ManifestTemporary) => true,
            _ => false,
        };
        if is_orphan {
            store.env.files.remove(&store.dir.join(&entry.name))?;
            removed = true;
        }
    }
    // A number may be given again: the name must be gone by then.
    if removed { Ok(store.env.files.sync_dir(&store.dir)?) } else { Ok(()) }
}

/// Files that were open go on being written, as many as there are stripes; the others wait to be sealed.
fn reopen_unsealed(store: &Store, files: &[OpenedFile]) -> Result<()> {
    let mut stripes = store.stripes.iter();
    for file in files.iter().filter(|file| file.state.is_open()) {
        let data = &file.data;
        let append = store.env.files.reopen(&data.path, data.end())?;
        // What was cut off must not come back behind what is written now. A process that died between the two leaves nothing to cut, and an end that
        // the manifest may know for durable: so of every file. One that nothing is written to costs its close no sync in turn.
        append.sync().inspect_err(|_| {
            // Should that fail too, the error that is told is the worse one.
            let _ = distrust::warn(&*store.env.files, &store.dir);
        })?;
        let room = store.file_room();
        let has_room = !data.is_damaged() && data.end() < room && !is_slow(store, files, data);
        let stripe = if has_room { stripes.next() } else { None };
        let is_reserved = has_room && stripe.is_none() && data.end() == FIRST_OFFSET;
        let synced = data.end();
        let active = if stripe.is_some() || is_reserved {
            crate::seal::preallocate(&*append, room)?;
            append.advise(Access::Random);
            Arc::new(ActiveFile::new(Arc::new(data.with_window(append.window()?)), append, room, synced))
        } else {
            Arc::new(ActiveFile::new(data.clone(), append, data.end(), synced))
        };
        store.add_file(&store.installer.lock(), active.data.clone());
        store.unsealed.lock().push(active.clone());
        match stripe {
            Some(mut stripe) => stripe.file = Some(active),
            None if is_reserved => store.state.lock().reserved.push(active),
            None => store.retire(active),
        }
    }
    Ok(())
}

/// What [`Store::retire_slow`] ends, as far as it can be told by what others have taken since: lives of a store may be short.
fn is_slow(store: &Store, files: &[OpenedFile], data: &DataFile) -> bool {
    let later = files.iter().map(|file| &file.data).filter(|other| other.number > data.number);
    data.dead_len() > 0 && later.map(|other| other.end()).sum::<u64>() >= store.round_bytes()
}

#[cfg(test)]
mod tests;
