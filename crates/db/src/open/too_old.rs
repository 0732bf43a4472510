//! A manifest that does not know the files beside it: an older copy of the store's own, one without its end, or another store's. It reads well, and
//! by it, what was written since would pass for what a crash has left, and be removed.
//!
//! After a crash there may be tables with numbers that the manifest has not given yet. What they hold is in a log that it needs, then: that log is
//! there, or one begun since which the manifest knew, or the first that is goes on where the manifest ends. Where there is no write in any log, nobody
//! wrote: the store is a copy, or what was going on needed no log.
//!
//! Cost: where there are such tables and no such log, the beginning of one.

use std::path::Path;

use esker_env::Env;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::write_batch;
use esker_log::scan::{RecoveryMode, Scanner};

use super::files::Listing;
use crate::version::{Recovered, current_manifest};
use crate::{Error, ErrorKind, Result};

/// Refuses the store in `dir` if its manifest, which says that it is `recovered`, does not fit what lies there.
///
/// # Errors
/// `Corruption` with the manifest's path. As the file system's.
pub(super) fn refuse(env: &Env, dir: &Path, listing: &Listing, recovered: &Recovered) -> Result<()> {
    let is_newer = |name: &&FileName| match name {
        FileName::Table(number) | FileName::LegacyTable(number) => number.get() >= recovered.next_file_number,
        _ => false,
    };
    let Some(newer) = listing.names.iter().find(is_newer) else { return Ok(()) };
    // The last that a flush has begun. Earlier ones go when no family has something in them, which no edit says.
    let needed = recovered.families.values().map(|family| family.log_number).max().unwrap_or_default();
    let mut logs = listing.logs_from(FileNumber::new(0)).peekable();
    let is_known = |number: FileNumber| number >= needed && number.get() < recovered.next_file_number;
    if logs.peek().is_none() || logs.any(|(number, _)| is_known(number)) {
        return Ok(());
    }
    let mut firsts = listing
        .logs_from(needed)
        .map(|(number, _)| first_sequence(env, &dir.join(FileName::Wal(number).to_string()), number));
    let first = firsts.find_map(Result::transpose).transpose()?;
    if first.is_none_or(|first| first <= recovered.last_sequence.get().saturating_add(1)) {
        return Ok(());
    }
    let reason = format!(
        "the manifest is older than what lies beside it, has lost its end, or is another store's: it needs {}, which is not there, and has yet to give \
         the number of {newer}; put the right one back, or repair the store",
        FileName::Wal(needed)
    );
    let manifest = FileName::Manifest(current_manifest(&*env.files, dir)?);
    Err(Error::corruption(&dir.join(manifest.to_string()), 0, reason))
}

/// The number of the first write in a log that can be read.
fn first_sequence(env: &Env, path: &Path, number: FileNumber) -> Result<Option<u64>> {
    let mut scanner = match Scanner::open(&*env.files, path, RecoveryMode::SkipCorrupt, true, number.get() as u32) {
        // A writer took it away meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        scanner => scanner?,
    };
    while let Some((_, batch)) = scanner.next()? {
        match write_batch::header(batch) {
            Ok(header) if header.count > 0 => return Ok(Some(header.sequence.get())),
            _ => {}
        }
    }
    Ok(None)
}
