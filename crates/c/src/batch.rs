//! Writes that take effect together.

use esker::WriteBatch;

use crate::error::{Failure, attempt};
use crate::family::Family;
use crate::memory::Slice;

/// Puts, deletes and merges of any column families, all of which take effect together or not at all. Later operations on a key win.
#[derive(Debug, Default)]
pub struct Batch(pub(crate) WriteBatch);

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_create() -> Box<Batch> {
    Box::default()
}

/// Sets `key` to `value`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_put(batch: &mut Batch, family: Option<&Family>, key: Slice, value: Slice) -> Failure {
    attempt(|| {
        let (key, value) = (key.bytes()?, value.bytes()?);
        match family {
            None => batch.0.put(key, value),
            Some(family) => batch.0.put_cf(&family.0, key, value),
        }
    })
}

/// Removes `key`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_delete(batch: &mut Batch, family: Option<&Family>, key: Slice) -> Failure {
    attempt(|| {
        let key = key.bytes()?;
        match family {
            None => batch.0.delete(key),
            Some(family) => batch.0.delete_cf(&family.0, key),
        }
    })
}

/// Merges `operand` into the value of `key`, by the family's merge operator.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_merge(batch: &mut Batch, family: Option<&Family>, key: Slice, operand: Slice) -> Failure {
    attempt(|| {
        let (key, operand) = (key.bytes()?, operand.bytes()?);
        match family {
            None => batch.0.merge(key, operand),
            Some(family) => batch.0.merge_cf(&family.0, key, operand),
        }
    })
}

/// How many operations it has.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_count(batch: &Batch) -> u32 {
    batch.0.count()
}

/// Takes all of them out.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_clear(batch: &mut Batch) {
    batch.0.clear();
}

/// Frees a batch; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_free(batch: Option<Box<Batch>>) {
    drop(batch);
}
