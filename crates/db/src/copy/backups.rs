//! The public surface of sets of backups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileKind, FileSystem, Lock, Metadata};
use esker_format::file_name::FileName;
use esker_log::copying::refuse_file;

use super::generation::Made;
use super::label::Label;
use super::restore;
use super::set::{Names, Set, dir_of};
use super::{Copied, CopyProgress};
use crate::check::{Check, CheckProgress};
use crate::db::Db;
use crate::open::share;
use crate::options::Options;
use crate::{Error, ErrorKind, Result};

/// A directory with several backups of one store, each as the store was at its moment: a set of generations.
///
/// Each is a directory of its own in it, `000001`, `000002` and so on, and a whole store: RocksDB and [`Db::open_read_only`] open it as it is. They
/// share what is the same in them by hard links; where the file system has none, each has copies. To write to one, [`restore`](Self::restore) it: a
/// generation that is opened for writing is changed, if not what others share with it, and cannot be restored any more. What damages a file on
/// the device damages it in all generations that share it: for more than one copy of something, make more than one set.
///
/// A set is for one store and all that it was restored to, in any order. Any number of handles, in any processes, may be there; one at a time
/// changes the set. This handle holds nothing, neither memory nor a file.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// use esker_db::{Backups, Db, Options};
///
/// let db = Db::open(dir.join("store"), Options { create_if_missing: true, ..Options::default() })?;
/// db.put("key", "value")?;
/// let backups = Backups::open(dir.join("backups"))?;
/// let made = backups.create(&db, &mut |_| ())?;
/// db.put("key", "another")?;
/// backups.create(&db, &mut |_| ())?;
/// backups.keep_newest(30)?;
/// assert_eq!(backups.list()?.len(), 2);
///
/// backups.restore(made.info.id, dir.join("then"), &mut |_| ())?;
/// let then = Db::open(dir.join("then"), Options::default())?;
/// assert_eq!(then.get("key")?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), esker_db::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Backups {
    dir: PathBuf,
    env: Env,
}

/// A generation of a set of backups.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number in the set.
    pub id: u64,
    /// When it was made, in seconds since 1970-01-01 UTC by the clock of that machine. `None`: the file that says so is damaged;
    /// [`check`](Backups::check) tells.
    pub unix_seconds: Option<u64>,
    /// The last sequence number in it: every write up to it is there. `None` as above.
    pub sequence: Option<u64>,
    /// Tables and blob files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those that no other generation has: about what [`delete`](Backups::delete) frees.
    pub bytes_of_its_own: u64,
}

/// What came of [`Backups::create`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NewBackup {
    /// The generation.
    pub info: BackupInfo,
    /// What was done for it: `kept` files are shared with earlier generations, and `copied_bytes` were written.
    pub copied: Copied,
    /// What of earlier generations was found damaged, or could not be read, while it was looked for what they have of this one. It is in them
    /// still, and not in this one, which has the store's files in place of those. [`check`](Backups::check) finds all that there is.
    pub damaged: Vec<Error>,
}

impl Backups {
    /// The set in `path`: a directory of generations, an empty one, or none yet. Nothing is written, nor held.
    ///
    /// # Errors
    /// - `InvalidArgument`: there is something that is no set's: a store, a file.
    /// - `Io`: it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with_env(path, Env::os())
    }

    /// As [`open`](Self::open), on another machine.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_env(path: impl AsRef<Path>, env: Env) -> Result<Self> {
        let dir = env.files.absolute(path.as_ref())?;
        refuse_file(&*env.files, &dir)?;
        Names::read(&*env.files, &dir)?;
        Ok(Self { dir, env })
    }

    /// The directory of the set.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes a new generation, of everything that is written now, in all column families at once. Its id follows that of the newest there
    /// is. What earlier generations have is shared with them; each file that they lack is copied, read back, and all checksums in it are
    /// checked. Writes go on meanwhile.
    ///
    /// A file of an earlier generation is shared only if it has byte for byte what the store has, so no damage is handed on, and a store that went back to an earlier state and on from
    /// there shares what it still has and no more. What was found damaged is in the answer.
    ///
    /// Cost: a flush, as [`Db::checkpoint`]; reads all tables and blob files of the store, and what the set has of them; writes what it lacks, and reads
    /// that again. The store keeps what it would remove until it is done.
    ///
    /// # Durability
    /// When it returns, the generation survives power loss. After an error, or a death at whatever moment, the earlier generations are
    /// what they were, and the new one is whole or not there; what is left of it goes with the next call that changes the set.
    ///
    /// # Errors
    /// - `Conflict`: the set is another store's.
    /// - `Busy`: somebody else changes the set just now.
    /// - `InvalidArgument`: there is something in the directory that is no set's.
    /// - `Corruption`: a file of the store is damaged: repair it, or restore an earlier generation.
    /// - `Exhausted`: there is no room; nothing is left of what was made. `Io`, `ReadOnly`, `Closed`; what made a flush fail.
    pub fn create(&self, db: &Db, progress: &mut dyn FnMut(CopyProgress)) -> Result<NewBackup> {
        let store = db.store();
        let mut set = Set::make(&*store.env.files, &self.dir)?;
        let (id, Made { copied, unix_seconds, damaged }) = set.create(store, progress)?;
        let info = BackupInfo {
            id,
            unix_seconds: Some(unix_seconds),
            sequence: Some(copied.sequence),
            files: copied.files,
            bytes: copied.bytes,
            bytes_of_its_own: copied.copied_bytes,
        };
        Ok(NewBackup { info, copied, damaged })
    }

    /// All generations, the oldest first. Keeps nobody out, writes nothing.
    ///
    /// Cost: a look at each file's name and length, and one small file of each generation.
    ///
    /// # Errors
    /// `InvalidArgument`: there is something in the directory that is no set's. `Io`.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let files = &*self.env.files;
        let mut found = Vec::new();
        // Of how many generations a file is.
        let mut owners: BTreeMap<Identity, u64> = BTreeMap::new();
        for id in Names::read(files, &self.dir)?.ids {
            let dir = dir_of(&self.dir, id);
            let label = Label::read(files, &dir);
            match (data_of(files, &dir), label) {
                // It was deleted meanwhile.
                (Err(error), _) if error.kind() == ErrorKind::NotFound => {}
                (Err(error), _) => return Err(error),
                (_, Err(error)) if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
                    return Err(error);
                }
                (Ok(data), label) => {
                    data.iter().for_each(|file| *owners.entry(file.identity).or_default() += 1);
                    found.push((id, label.ok(), data));
                }
            }
        }
        let infos = found.into_iter().map(|(id, label, data)| {
            let its_own = data.iter().filter(|file| owners.get(&file.identity) == Some(&1));
            BackupInfo {
                id,
                unix_seconds: label.as_ref().map(|label| label.unix_seconds),
                sequence: label.as_ref().map(|label| label.sequence),
                files: data.len() as u64,
                bytes: data.iter().map(|file| file.len).sum(),
                bytes_of_its_own: its_own.map(|file| file.len).sum(),
            }
        });
        Ok(infos.collect())
    }

    /// Deletes a generation. Others keep what they share with it.
    ///
    /// # Durability
    /// When it returns, it does not come back. After an error, or a death at whatever moment, it is whole or not there; what is left of it goes
    /// with the next call that changes the set.
    ///
    /// # Errors
    /// - `NotFound`: there is no such generation, or no set.
    /// - `Busy`: somebody has it open, restores it, or changes the set just now.
    /// - `InvalidArgument`: there is something in it, or in the set, that Esker and RocksDB do not put there; nothing was removed.
    /// - `Io`.
    pub fn delete(&self, id: u64) -> Result<()> {
        let mut set = Set::take(&*self.env.files, &self.dir)?;
        set.clear()?;
        set.delete(id)
    }

    /// Deletes all generations but the `count` newest, the oldest first; returns which. See [`delete`](Self::delete).
    ///
    /// # Errors
    /// As [`delete`](Self::delete), with the first that could not be deleted: those before it are.
    pub fn keep_newest(&self, count: usize) -> Result<Vec<u64>> {
        let mut set = Set::take(&*self.env.files, &self.dir)?;
        set.clear()?;
        let superfluous = set.ids().len().saturating_sub(count);
        let ids: Vec<u64> = set.ids().iter().copied().take(superfluous).collect();
        ids.iter().try_for_each(|&id| set.delete(id))?;
        Ok(ids)
    }

    /// Reads and checks every byte of a generation, as [`Db::check_store`] does. Keeps no [`create`](Self::create) out, writes nothing.
    ///
    /// # Errors
    /// `NotFound`: there is no such generation. As [`Db::check_store`]; damage is in the answer.
    pub fn check(&self, id: u64, options: Options, progress: &mut dyn FnMut(CheckProgress)) -> Result<Check> {
        let (dir, _share) = self.begin_reading(id)?;
        let mut check = Db::check_store_with_env(&dir, options, self.env.clone(), progress)?;
        match Label::read(&*self.env.files, &dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check.errors.push(error.with_kind(ErrorKind::Corruption));
            }
            Err(error) if error.kind() == ErrorKind::Corruption => check.errors.push(error),
            label => _ = label?,
        }
        Ok(check)
    }

    /// Makes a store in `target`, an empty directory or none, that is what this generation is, with files of its own. Each is read back, and
    /// all checksums in it are checked. The store goes on from there by itself, in the same set if it is wanted. Keeps no
    /// [`create`](Self::create) out, and writes nothing to the set.
    ///
    /// A sector that a value in a blob file has lost looks like a hole to this, and is told when that value is read; [`check`](Self::check)
    /// tells such before. What is left of a damaged generation can be had, too: copy its directory, and [repair](Db::repair) that.
    ///
    /// Of logs in a directory of their own ([`Options::wal_dir`]) none is in a generation; those that an earlier life of the store left there are not touched, and
    /// keep it from being opened with that directory until somebody moves them.
    ///
    /// Cost: reads all files of the generation, and the copies of them.
    ///
    /// # Durability
    /// When it returns, the store survives power loss. Before, `target` is no store, and after an error it is as it was.
    ///
    /// # Errors
    /// - `NotFound`: there is no such generation.
    /// - `Corruption`: it is damaged.
    /// - `Conflict`: it was opened for writing since it was made.
    /// - `InvalidArgument`: `target` holds something, or lies in the set. `Busy`: somebody else makes a copy there.
    /// - `Exhausted`, `Io`.
    pub fn restore(&self, id: u64, target: impl AsRef<Path>, progress: &mut dyn FnMut(CopyProgress)) -> Result<Copied> {
        let target = self.env.files.absolute(target.as_ref())?;
        // By whatever name.
        let identity = |dir: &Path| self.env.files.metadata(dir).ok().map(|found| found.identity);
        let set = identity(&self.dir);
        let lies_in_it = set.is_some() && target.ancestors().any(|above| identity(above) == set);
        if target.starts_with(&self.dir) || lies_in_it {
            let reason = "it lies in the set of backups; choose a directory elsewhere";
            return Err(Error::invalid_argument(reason).with_path(&target));
        }
        let (dir, _share) = self.begin_reading(id)?;
        restore::restore(&*self.env.files, &dir, &target, progress)
    }

    /// Where a generation is, which nobody deletes as long as it is shared.
    fn begin_reading(&self, id: u64) -> Result<(PathBuf, Option<Arc<dyn Lock>>)> {
        let dir = Names::read(&*self.env.files, &self.dir)?.find(&self.dir, id)?;
        let share = share(&self.env, &dir)?;
        Ok((dir, share))
    }
}

/// Device and inode.
type Identity = (u64, u64);

/// What the file system knows of the tables and blob files in `dir`.
fn data_of(files: &dyn FileSystem, dir: &Path) -> Result<Vec<Metadata>> {
    let is_data = |name: &str| {
        matches!(FileName::parse(name), Some(FileName::Table(_) | FileName::LegacyTable(_) | FileName::Blob(_)))
    };
    let data = files.list(dir)?.into_iter().filter(|entry| entry.kind == FileKind::File && is_data(&entry.name));
    data.map(|entry| Ok(files.metadata(&dir.join(&entry.name))?)).collect()
}
