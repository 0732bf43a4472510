//! Several backups of one ordered store in one directory; and checks, of these and of the store.

use esker::{Check, Result};

use crate::db::Db;
use crate::error::{Failure, attempt, give, hand_out};
use crate::memory::{Out, Text};
use crate::options::DbOptions;

/// A directory with several backups of one store, each a whole store as it was at its moment: a set of generations, which share what is the same in them.
#[derive(Debug)]
pub struct Backups(esker::Backups);

/// A generation of a set of backups.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct BackupInfo {
    /// Its number in the set.
    id: u64,
    /// When it was made, in seconds since 1970-01-01 UTC by the clock of that machine. 0: the file that says so is damaged.
    unix_seconds: u64,
    /// The last sequence number in it. 0 as above.
    sequence: u64,
    /// Tables and blob files in it.
    files: u64,
    /// Their bytes.
    bytes: u64,
    /// Bytes of those that no other generation has: about what its deletion frees.
    bytes_of_its_own: u64,
}

impl From<&esker::BackupInfo> for BackupInfo {
    fn from(info: &esker::BackupInfo) -> Self {
        Self {
            id: info.id,
            unix_seconds: info.unix_seconds.unwrap_or_default(),
            sequence: info.sequence.unwrap_or_default(),
            files: info.files,
            bytes: info.bytes,
            bytes_of_its_own: info.bytes_of_its_own,
        }
    }
}

/// The first that is wrong, if something is.
fn sound(check: Check) -> Result<()> {
    check.errors.into_iter().next().map_or(Ok(()), Err)
}

/// The set in the directory `path`, which may be empty or missing. It holds nothing; any number of processes may have it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_open(path: Text, backups: Out<Option<Box<Backups>>>) -> Failure {
    hand_out(backups, || Ok(Backups(esker::Backups::open(path.path()?)?)))
}

/// Makes a new generation of everything that is written now. What earlier ones have is shared with them by hard links; the rest is copied, read back and
/// checked. Durable when it returns; `Busy` if somebody else changes the set just now, `Conflict` if it is another store's.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_create(backups: &Backups, db: &Db, info: Out<BackupInfo>) -> Failure {
    give(info, || Ok((&backups.0.create(&db.db, &mut |_| ())?.info).into()))
}

/// Writes what is known of the generations, the oldest first, the first `max` of them, to `infos`; `count` says how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_list(
    backups: &Backups,
    infos: Out<BackupInfo>,
    max: usize,
    count: Out<usize>,
) -> Failure {
    give(count, || {
        let found = backups.0.list()?;
        found.iter().take(max).enumerate().for_each(|(at, info)| infos.put_at(at, info.into()));
        Ok(found.len())
    })
}

/// Reads and checks every byte of a generation: `Corruption`, with the first damage, if it is not whole. `options` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_check(backups: &Backups, id: u64, options: Option<&DbOptions>) -> Failure {
    attempt(|| sound(backups.0.check(id, crate::db::options_of(options), &mut |_| ())?))
}

/// Makes a store in the directory `target`, empty or missing, that is what a generation is, with files of its own, which are read back and checked.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_restore(backups: &Backups, id: u64, target: Text) -> Failure {
    attempt(|| backups.0.restore(id, target.path()?, &mut |_| ()).map(drop))
}

/// Deletes a generation. Others keep what they share with it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_delete(backups: &Backups, id: u64) -> Failure {
    attempt(|| backups.0.delete(id))
}

/// Deletes all generations but the `count` newest; `deleted` says how many those were.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_keep_newest(backups: &Backups, count: usize, deleted: Out<usize>) -> Failure {
    give(deleted, || Ok(backups.0.keep_newest(count)?.len()))
}

/// Frees a set's handle; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_backups_free(backups: Option<Box<Backups>>) {
    drop(backups);
}

/// Reads and checks every byte of an open store: `Corruption`, with the first damage, if it is not whole. Reads and writes go on.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_check(db: &Db) -> Failure {
    attempt(|| sound(db.db.check(&mut |_| ())?))
}

/// The same of a store that nobody has open, in the directory `path`, and of what keeps it from being opened. Nothing is written. `options` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_check_store(path: Text, options: Option<&DbOptions>) -> Failure {
    attempt(|| sound(esker::Db::check_store(path.path()?, crate::db::options_of(options), &mut |_| ())?))
}
