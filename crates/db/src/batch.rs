//! A batch of writes that take effect together. Its bytes are RocksDB's `WriteBatch`, so that the log gets a copy of them.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::write_batch;

use crate::entry::Key;
use crate::family::ColumnFamily;
use crate::{Error, ErrorKind, Result};

/// Puts, deletes, of ranges too, and merges, of any column families, that become visible and durable all together or not at all.
/// Within a batch, later operations on a key win.
#[derive(Clone, Default)]
pub struct WriteBatch {
    raw: write_batch::WriteBatch,
    /// Whether something in it is of another column family than the default one.
    names_families: bool,
    /// Whether it has what not every family takes: operands, and ranges of keys.
    needs_check: bool,
    /// The session of the store whose handles named families: another store has other families under the same numbers.
    session: Option<Arc<str>>,
    /// To where it can go back, the newest last.
    save_points: Vec<SavePoint>,
}

/// What a batch was.
#[derive(Debug, Clone, Copy)]
struct SavePoint {
    raw: write_batch::Mark,
    names_families: bool,
    needs_check: bool,
    has_session: bool,
}

/// Not the operations: how many, and how long they are.
impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatch").field("count", &self.count()).field("len_bytes", &self.len_bytes()).finish()
    }
}

impl WriteBatch {
    /// Without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value` in the default column family. Cost: one copy of both.
    ///
    /// # Errors
    /// `InvalidArgument`: the key is longer than 8 MiB, the value than 3 GiB, or the batch has 2^32 - 1 operations; it is as before.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        refuse(self.raw.put(0, key.as_ref(), value.as_ref()))
    }

    /// Sets `key` to `value` in `family`.
    ///
    /// # Errors
    /// As [`put`](Self::put), and `InvalidArgument` if the batch has operations of families of another store.
    pub fn put_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.bind(&family.0.session)?;
        self.names_families |= family.id() != 0;
        refuse(self.raw.put(family.id(), key.as_ref(), value.as_ref()))
    }

    /// Removes `key` from the default column family; no error if it is not there.
    ///
    /// # Errors
    /// `InvalidArgument`, as [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        refuse(self.raw.delete(0, key.as_ref()))
    }

    /// Removes `key` from `family`; no error if it is not there.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.bind(&family.0.session)?;
        self.names_families |= family.id() != 0;
        refuse(self.raw.delete(family.id(), key.as_ref()))
    }

    /// Removes `key` from the default column family, which was put at most once since it was last removed: a deletion that goes with the
    /// put that it cancels, as soon as they meet (as RocksDB's `SingleDelete`).
    /// A key that was put twice since, or merged, may show an older value again; mix it neither with these nor with other deletions of the same key.
    ///
    /// # Errors
    /// `InvalidArgument`, as [`put`](Self::put).
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        refuse(self.raw.single_delete(0, key.as_ref()))
    }

    /// The same in `family`. See [`single_delete`](Self::single_delete).
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.bind(&family.0.session)?;
        self.names_families |= family.id() != 0;
        refuse(self.raw.single_delete(family.id(), key.as_ref()))
    }

    /// Removes all keys of the default column family from `begin` on and before `end`: those that are there, and those that earlier operations
    /// of the batch put. Nothing if they are equal. See [`Db::delete_range_cf`](crate::Db::delete_range_cf). Where that family has another
    /// [comparator](crate::FamilyOptions::comparator), name it by [`delete_range_cf`](Self::delete_range_cf): a batch alone takes keys to lie by their bytes.
    ///
    /// # Errors
    /// `InvalidArgument`: `begin` comes after `end`; as [`put`](Self::put) for both keys.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range_id(0, Order::BYTEWISE, begin.as_ref(), end.as_ref())
    }

    /// The same in `family`. See [`delete_range`](Self::delete_range).
    ///
    /// # Errors
    /// As [`delete_range`](Self::delete_range) and [`put_cf`](Self::put_cf).
    pub fn delete_range_cf(
        &mut self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.bind(&family.0.session)?;
        self.delete_range_id(family.id(), family.0.order, begin.as_ref(), end.as_ref())
    }

    pub(crate) fn delete_range_id(&mut self, family_id: u32, order: Order, begin: &[u8], end: &[u8]) -> Result<()> {
        match order.compare(begin, end) {
            Ordering::Less => {
                self.needs_check = true;
                self.names_families |= family_id != 0;
                refuse(self.raw.delete_range(family_id, begin, end))
            }
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(descends(order, begin, end)),
        }
    }

    /// Merges `operand` into the value of `key` in the default column family, by its [merge operator](crate::MergeOperator).
    ///
    /// # Errors
    /// As [`put`](Self::put), `operand` being the value.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.needs_check = true;
        refuse(self.raw.merge(0, key.as_ref(), operand.as_ref()))
    }

    /// Merges `operand` into the value of `key` in `family`, by its [merge operator](crate::MergeOperator).
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf), `operand` being the value.
    pub fn merge_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.bind(&family.0.session)?;
        self.names_families |= family.id() != 0;
        self.needs_check = true;
        refuse(self.raw.merge(family.id(), key.as_ref(), operand.as_ref()))
    }

    /// Operations in it.
    pub fn count(&self) -> u32 {
        self.raw.count()
    }

    /// Its size in the log, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.raw.len_bytes()
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Takes all operations out, keeping the memory.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.names_families = false;
        self.needs_check = false;
        self.session = None;
        self.save_points.clear();
    }

    /// Remembers how it is now, above what it remembers already.
    pub fn set_save_point(&mut self) {
        let Self { names_families, needs_check, .. } = *self;
        let has_session = self.session.is_some();
        self.save_points.push(SavePoint { raw: self.raw.mark(), names_families, needs_check, has_session });
    }

    /// Takes out what came since the last [save point](Self::set_save_point), and forgets that.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        let SavePoint { raw, names_families, needs_check, has_session } = self.last_save_point()?;
        self.raw.rewind(raw);
        (self.names_families, self.needs_check) = (names_families, needs_check);
        // Once it has one, that stays.
        self.session.take_if(|_| !has_session);
        Ok(())
    }

    /// Forgets the last [save point](Self::set_save_point); the batch stays as it is.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.last_save_point().map(drop)
    }

    fn last_save_point(&mut self) -> Result<SavePoint> {
        self.save_points.pop().ok_or_else(|| Error::new(ErrorKind::NotFound, "no save point was set"))
    }

    /// Adds the operations of `other` after its own.
    ///
    /// # Errors
    /// `InvalidArgument`: together they are too many, or they name families of two stores.
    pub fn append(&mut self, other: &Self) -> Result<()> {
        if let Some(session) = &other.session {
            self.bind(session)?;
        }
        self.names_families |= other.names_families;
        self.needs_check |= other.needs_check;
        refuse(self.raw.append(&other.raw))
    }

    /// From now on it is for the store of this session only.
    #[inline]
    fn bind(&mut self, session: &Arc<str>) -> Result<()> {
        match &self.session {
            Some(bound) if Arc::ptr_eq(bound, session) => Ok(()),
            None => {
                self.session = Some(session.clone());
                Ok(())
            }
            Some(_) => Err(Error::invalid_argument("a batch cannot name column families of two stores")),
        }
    }

    /// Whether the store of this session has the families that it names.
    #[inline]
    pub(crate) fn is_for(&self, session: &Arc<str>) -> bool {
        self.session.as_ref().is_none_or(|bound| Arc::ptr_eq(bound, session))
    }

    /// Sets `key` to `value` in the family of that id.
    pub(crate) fn put_id(&mut self, family_id: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.names_families |= family_id != 0;
        refuse(self.raw.put(family_id, key, value))
    }

    pub(crate) fn set_names_families(&mut self, names_families: bool) {
        self.names_families = names_families;
    }

    pub(crate) fn names_families(&self) -> bool {
        self.names_families
    }

    pub(crate) fn needs_check(&self) -> bool {
        self.needs_check
    }

    pub(crate) fn raw(&self) -> &write_batch::WriteBatch {
        &self.raw
    }

    pub(crate) fn raw_mut(&mut self) -> &mut write_batch::WriteBatch {
        &mut self.raw
    }
}

fn refuse(result: std::result::Result<(), write_batch::TooLarge>) -> Result<()> {
    result.map_err(|error| Error::invalid_argument(error.to_string()).with_source(error))
}

/// That a range of keys begins behind its end.
pub(crate) fn descends(order: Order, begin: &[u8], end: &[u8]) -> Error {
    let (begin, end, name) = (Key(begin), Key(end), order.name());
    Error::invalid_argument(format!(
        "a range of keys cannot begin at {begin} and end before {end}, which comes first in the order {name:?}"
    ))
}
