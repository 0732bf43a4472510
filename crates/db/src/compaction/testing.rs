//! For the tests of this room.

use std::collections::BTreeMap;

use crate::{Db, Snapshot};

pub(super) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// All that a snapshot sees, or whoever reads now.
pub(super) fn contents(db: &Db, snapshot: Option<&Snapshot>) -> Contents {
    let options = crate::ReadOptions { snapshot: snapshot.cloned(), ..Default::default() };
    let mut iter = db.iter_cf(&db.default_column_family(), &options).unwrap();
    let mut found = Contents::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        found.insert(iter.key().to_vec(), iter.value().unwrap().to_vec());
        iter.next().unwrap();
    }
    found
}
