//! Transactions of an ordered store.

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

/// The value of `key`: what the transaction gave it, else what it had when that began. NULL if it has none.
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
