//! Transactions of an ordered store.

use std::time::Duration;

use esker::TransactionOptions;

use crate::db::Db;
use crate::error::{Failure, attempt, give};
use crate::family::Family;
use crate::memory::{Out, Slice};
use crate::value::{Value, boxed};
use crate::write::write_options;

/// Reads of one moment, and writes that take effect together if no other write came to what was read. One thread at a time.
#[derive(Debug)]
pub struct Transaction(esker::Transaction);

/// Begins a transaction, which sees the store as it is now.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_transaction(db: &Db) -> Box<Transaction> {
    Box::new(Transaction(db.db.transaction()))
}

/// Begins a transaction that locks what it reads and writes until it ends, so that others of this kind wait for it instead of beginning again. A call that
/// has waited `lock_timeout_ms` milliseconds for a key is `Busy`; 0 waits for nobody, 1000 is a common choice. One that would wait for itself, round
/// whatever corners, is a `Conflict`: free the transaction, so that the others go on, and begin again.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_locking_transaction(db: &Db, lock_timeout_ms: u64) -> Box<Transaction> {
    let lock_timeout = Duration::from_millis(lock_timeout_ms);
    Box::new(Transaction(db.db.transaction_with(&TransactionOptions { locking: true, lock_timeout })))
}

/// The value of `key`: what the transaction gave it, else what it had when that began; if it locks, what it has now. NULL if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_get(
    transaction: &mut Transaction,
    family: Option<&Family>,
    key: Slice,
    value: Out<Option<Box<Value>>>,
) -> Failure {
    give(value, || {
        let (transaction, key) = (&mut transaction.0, key.bytes()?);
        let found = match family {
            None => transaction.get(key),
            Some(family) => transaction.get_cf(&family.0, key),
        };
        Ok(boxed(found?))
    })
}

/// As `esker_transaction_get`, of a key that is going to be written: a transaction that locks has it alone from here on.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_get_for_update(
    transaction: &mut Transaction,
    family: Option<&Family>,
    key: Slice,
    value: Out<Option<Box<Value>>>,
) -> Failure {
    give(value, || {
        let (transaction, key) = (&mut transaction.0, key.bytes()?);
        let found = match family {
            None => transaction.get_for_update(key),
            Some(family) => transaction.get_for_update_cf(&family.0, key),
        };
        Ok(boxed(found?))
    })
}

/// Sets `key` to `value`, if it commits.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_put(
    transaction: &mut Transaction,
    family: Option<&Family>,
    key: Slice,
    value: Slice,
) -> Failure {
    attempt(|| {
        let (transaction, key, value) = (&mut transaction.0, key.bytes()?, value.bytes()?);
        match family {
            None => transaction.put(key, value),
            Some(family) => transaction.put_cf(&family.0, key, value),
        }
    })
}

/// Removes `key`, if it commits.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_delete(
    transaction: &mut Transaction,
    family: Option<&Family>,
    key: Slice,
) -> Failure {
    attempt(|| {
        let (transaction, key) = (&mut transaction.0, key.bytes()?);
        match family {
            None => transaction.delete(key),
            Some(family) => transaction.delete_cf(&family.0, key),
        }
    })
}

/// Merges `operand` into the value of `key`, if it commits; that reads nothing.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_merge(
    transaction: &mut Transaction,
    family: Option<&Family>,
    key: Slice,
    operand: Slice,
) -> Failure {
    attempt(|| {
        let (transaction, key, operand) = (&mut transaction.0, key.bytes()?, operand.bytes()?);
        match family {
            None => transaction.merge(key, operand),
            Some(family) => transaction.merge_cf(&family.0, key, operand),
        }
    })
}

/// Remembers what was written up to now, above what it remembers already.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_set_save_point(transaction: &mut Transaction) {
    transaction.0.set_save_point();
}

/// Takes back what was written since the last save point, and forgets that. `NotFound`: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_rollback_to_save_point(transaction: &mut Transaction) -> Failure {
    attempt(|| transaction.0.rollback_to_save_point())
}

/// Forgets the last save point; all stays as it was written. `NotFound`: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_pop_save_point(transaction: &mut Transaction) -> Failure {
    attempt(|| transaction.0.pop_save_point())
}

/// Makes what was written take effect, all at once, and frees the transaction, whatever it returns. `Conflict`: another write came to what was read;
/// nothing was written, begin again. `flags` as those of `esker_db_put`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_commit(transaction: Box<Transaction>, flags: u32) -> Failure {
    attempt(|| transaction.0.commit(&write_options(flags)?))
}

/// Frees a transaction that is not committed, which changes nothing; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transaction_free(transaction: Option<Box<Transaction>>) {
    drop(transaction);
}
