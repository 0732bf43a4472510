//! Merge operators: a write that brings an *operand*, of which the key's value is made when somebody reads it, or a compaction comes by.
//!
//! | room       | what it does                                                                            |
//! |------------|-----------------------------------------------------------------------------------------|
//! | [`known`]  | RocksDB's own operators, and how an OPTIONS file names one                              |
//! | [`gather`] | reads: the operands of a key, down to what they are merged with                         |
//! | [`fold`]   | flush and compaction: operands become the value, or fewer operands                      |
//!
//! - OP1: an operand hides nothing. What is older than it counts, down to the first value or deletion of its key; that ends the list, as does
//!   the absence of anything older. A reader merges all that it sees, the oldest first.
//! - OP2: operands are merged ahead of a read only among entries between which no snapshot lies, and with no value only if nothing deeper can hold the key.
//! - OP3: who has no operator, or one that refuses, loses nothing: operands stay as they are, and whoever reads the key is told.
//! - OP4: an operand is never both in a table and in a log that is replayed: taken twice, it would count twice, where a value would only be written
//!   twice. Memtables end with their log, and those that share one are flushed by one edit (FL2 of [`flush`](crate::flush)); a copy's logs begin behind its tables.
//!
//! Source: RocksDB's merge operators, whose entries, log records and names these are.

mod fold;
mod gather;
mod known;

use std::fmt;
use std::sync::Arc;

pub use known::{BytesXorOperator, MaxOperator, PutOperator, StringAppendOperator, UInt64AddOperator};

pub(crate) use fold::Fold;
pub(crate) use gather::{Reader, has_operands, merge};
pub(crate) use known::{is_said, named};

/// What a program makes of a value and the operands that were [merged](crate::Db::merge) into it
/// ([`FamilyOptions::merge_operator`](crate::FamilyOptions::merge_operator)).
///
/// ```
/// # fn main() -> esker_db::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("esker-merge-{}", std::process::id()));
/// use std::sync::Arc;
/// use esker_db::{Db, FamilyOptions, MergeOperator, Options};
///
/// /// The longest of all.
/// struct Longest;
///
/// impl MergeOperator for Longest {
///     fn name(&self) -> &str {
///         "example.Longest"
///     }
///     fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
///         existing.into_iter().chain(operands.iter().copied()).max_by_key(|bytes| bytes.len()).map(<[u8]>::to_vec)
///     }
///     fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
///         self.full_merge(key, None, operands)
///     }
/// }
///
/// let family = FamilyOptions { merge_operator: Some(Arc::new(Longest)), ..FamilyOptions::default() };
/// let families = [("default".to_owned(), family)].into();
/// let options = Options { create_if_missing: true, families, ..Options::default() };
/// let db = Db::open(&dir, options)?;
/// db.merge("word", "esker")?;
/// db.merge("word", "os")?;
/// assert_eq!(db.get("word")?.as_deref(), Some(&b"esker"[..]));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// It is asked by threads that read and by those that flush and compact, by several at once, and may be asked of the same operands any number of
/// times: it answers by nothing but what it is given. It must not write to the store that asks it, nor wait for who does. A panic reaches who reads the
/// key; flushes and compactions leave operands at which it panics as they are.
pub trait MergeOperator: Send + Sync + 'static {
    /// Its name, which the store keeps: RocksDB's name of the same operator where it has one. It does not change as long as operands that
    /// this operator understands are in a store.
    fn name(&self) -> &str;

    /// The value that `key` has: `existing` is what it had before, if it had any, `operands` are what was merged into that, the oldest first, one at
    /// least. `None` if that cannot be told: who reads the key gets `Corruption`, and the operands stay.
    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// One operand that does to every value what `operands` do one after the other, the oldest first, of which there are two or more. `None`, as by
    /// default, if there is no such: all are kept until the value is known.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }

    /// What the OPTIONS file says: the name, or for an operator with options of its own `{id=NAME;option=value;}`.
    fn option_text(&self) -> String {
        self.name().to_owned()
    }
}

impl dyn MergeOperator {
    /// RocksDB's own operator of that name or nickname (`uint64add`, `StringAppendOperator`), or with options, as an OPTIONS file has it:
    /// `{id=StringAppendOperator;delimiter=|;}`. `None` if there is none.
    pub fn named(text: &str) -> Option<Arc<Self>> {
        named(text, &[])
    }
}

impl fmt::Debug for dyn MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeOperator({})", self.option_text())
    }
}

/// An operator that somebody may share.
pub(crate) type Operator = Arc<dyn MergeOperator>;

#[cfg(test)]
mod tests;
