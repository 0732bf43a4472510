//! The answers: a map of maps.

use std::collections::BTreeMap;

use esker::{ColumnFamily, Db, MergeOperator, ReadOptions, Result};

use crate::orders::is_within;

/// Key and value of one column family.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write, as a store and a model take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Sets a key of a family.
    Put(String, Vec<u8>, Vec<u8>),
    /// Removes a key of a family.
    Delete(String, Vec<u8>),
    /// Merges an operand into a key of a family.
    Merge(String, Vec<u8>, Vec<u8>),
    /// Removes the keys of a family from one on and before another.
    DeleteRange(String, Vec<u8>, Vec<u8>),
}

impl Op {
    /// Family and key; of a range the first one.
    pub fn place(&self) -> (&String, &Vec<u8>) {
        match self {
            Self::Put(family, key, _)
            | Self::Delete(family, key)
            | Self::Merge(family, key, _)
            | Self::DeleteRange(family, key, _) => (family, key),
        }
    }

    /// Whether it is about this key.
    pub fn touches(&self, family: &String, key: &Vec<u8>) -> bool {
        match self {
            Self::DeleteRange(of, begin, end) => of == family && is_within(family, key, begin, end),
            op => op.place() == (family, key),
        }
    }
}

/// What a store should hold, by name of column family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    /// See the type.
    pub families: BTreeMap<String, Contents>,
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self { families: BTreeMap::from([("default".to_owned(), Contents::new())]) }
    }

    /// Takes the operations of a batch. Those of families that do not exist are ignored.
    pub fn apply(&mut self, batch: &[Op]) {
        for op in batch {
            match op {
                Op::Put(family, key, value) => {
                    if let Some(contents) = self.families.get_mut(family) {
                        contents.insert(key.clone(), value.clone());
                    }
                }
                Op::Delete(family, key) => {
                    if let Some(contents) = self.families.get_mut(family) {
                        contents.remove(key);
                    }
                }
                Op::Merge(family, key, operand) => {
                    if let Some(contents) = self.families.get_mut(family) {
                        let merged = append(contents.get(key).map(Vec::as_slice), &[operand]);
                        contents.insert(key.clone(), merged);
                    }
                }
                Op::DeleteRange(family, begin, end) => {
                    if let Some(contents) = self.families.get_mut(family) {
                        contents.retain(|key, _| !is_within(family, key, begin, end));
                    }
                }
            }
        }
    }
}

/// What the merge operators of [`options`](crate::options) make of a value: all joined by commas.
fn append(existing: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
    existing.into_iter().chain(operands.iter().copied()).collect::<Vec<_>>().join(&b","[..])
}

/// As [`esker::StringAppendOperator`], but that it keeps operands apart until the value is known.
#[derive(Debug)]
pub struct AppendApart;

impl MergeOperator for AppendApart {
    fn name(&self) -> &'static str {
        "torture.AppendApart"
    }

    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(append(existing, operands))
    }
}

/// Everything a family holds, by iterating forward.
///
/// # Errors
/// As the store's.
pub fn forward(db: &Db, family: &ColumnFamily, options: &ReadOptions) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut iterator = db.iter_cf(family, options)?;
    let mut entries = Vec::new();
    iterator.seek_to_first()?;
    while iterator.valid() {
        entries.push((iterator.key().to_vec(), iterator.value()?.to_vec()));
        iterator.next()?;
    }
    Ok(entries)
}

/// Everything a family holds, by iterating backward; in ascending order.
///
/// # Errors
/// As the store's.
pub fn backward(db: &Db, family: &ColumnFamily, options: &ReadOptions) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut iterator = db.iter_cf(family, options)?;
    let mut entries = Vec::new();
    iterator.seek_to_last()?;
    while iterator.valid() {
        entries.push((iterator.key().to_vec(), iterator.value()?.to_vec()));
        iterator.prev()?;
    }
    entries.reverse();
    Ok(entries)
}

/// Everything a store holds.
///
/// # Errors
/// As the store's.
pub fn contents(db: &Db) -> Result<Model> {
    let mut model = Model::default();
    for family in db.column_families() {
        let entries = forward(db, &family, &ReadOptions::default())?;
        model.families.insert(family.name().to_owned(), entries.into_iter().collect());
    }
    Ok(model)
}
