//! Writes that take effect together.

use esker::WriteBatch;

use crate::error::{Failure, attempt};
use crate::family::Family;
use crate::memory::Slice;

/// Puts, deletions and merges of any column families, all of which take effect together or not at all. Later operations on a key win.
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

/// Removes `key`, which was put at most once since it was last removed. See `esker_db_single_delete`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_single_delete(batch: &mut Batch, family: Option<&Family>, key: Slice) -> Failure {
    attempt(|| {
        let key = key.bytes()?;
        match family {
            None => batch.0.single_delete(key),
            Some(family) => batch.0.single_delete_cf(&family.0, key),
        }
    })
}

/// Removes all keys from `begin` on and before `end`: those that are there, and those that earlier operations of the batch put. See
/// `esker_db_delete_range`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_delete_range(
    batch: &mut Batch,
    family: Option<&Family>,
    begin: Slice,
    end: Slice,
) -> Failure {
    attempt(|| {
        let (begin, end) = (begin.bytes()?, end.bytes()?);
        match family {
            None => batch.0.delete_range(begin, end),
            Some(family) => batch.0.delete_range_cf(&family.0, begin, end),
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

/// Remembers what is in it now, above what it remembers already.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_set_save_point(batch: &mut Batch) {
    batch.0.set_save_point();
}

/// Takes out what came since the last save point, and forgets that. `NotFound`: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_rollback_to_save_point(batch: &mut Batch) -> Failure {
    attempt(|| batch.0.rollback_to_save_point())
}

/// Forgets the last save point; the batch stays as it is. `NotFound`: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_pop_save_point(batch: &mut Batch) -> Failure {
    attempt(|| batch.0.pop_save_point())
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
