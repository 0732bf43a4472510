//! Logs that no family needs any more, and RocksDB keeps: those with a transaction that was prepared, and neither committed nor
//! rolled back when all else in them was flushed. Esker has no such transactions: a store that waits for the end of one is refused, or
//! the log would go, and with it what was promised to whoever prepared it.
//!
//! Cost: one read of logs that lie below the first that is needed; as a rule there is none.

use std::path::Path;

use esker_env::Env;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, ValueKind};
use esker_format::rocksdb::write_batch;
use esker_log::scan::{RecoveryMode, Scanner};

use crate::{Error, ErrorKind, Result};

/// Refuses a store of whose `logs` one has a prepared transaction.
///
/// # Errors
/// `UnsupportedFormat` with the log and the place.
pub(super) fn refuse(env: &Env, dir: &Path, logs: impl Iterator<Item = FileNumber>) -> Result<()> {
    for number in logs {
        let path = dir.join(FileName::Wal(number).to_string());
        // What is damaged otherwise nobody needs.
        let mut scanner = Scanner::open(&*env.files, &path, RecoveryMode::SkipCorrupt, true, number.get() as u32)?;
        while let Some((offset, batch)) = scanner.next()? {
            let mut records = write_batch::records(batch).map_while(std::result::Result::ok);
            if records.any(|record| begins_prepared(record.kind)) {
                let reason = "the log holds a prepared transaction, which Esker does not have; commit it or roll it back \
                              with RocksDB, and flush, first";
                return Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(&path).with_offset(offset));
            }
        }
    }
    Ok(())
}

const fn begins_prepared(kind: ValueKind) -> bool {
    matches!(kind, ValueKind::BeginPrepare | ValueKind::BeginPersistedPrepare | ValueKind::BeginUnprepare)
}
