//! For the tests of this room and of reclaim.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_env::sim::SimDisk;

use super::Plan;
use crate::family::Family;
use crate::version::Version;
use crate::{Compression, Db, FamilyOptions, Options, ReclaimMode, Snapshot};

/// Values go to blob files as they are, and nothing comes down before there is much of it.
pub(crate) fn separated() -> FamilyOptions {
    FamilyOptions {
        min_blob_size: 100,
        blob_compression: Compression::None,
        level0_compaction_trigger: 20,
        ..FamilyOptions::default()
    }
}

/// A store that reclaims nothing by itself.
pub(crate) fn open(disk: &SimDisk, family: FamilyOptions) -> Db {
    let families = [("default".to_owned(), family)].into();
    let reclaim_mode = ReclaimMode::Manual;
    let options = Options { create_if_missing: true, background_jobs: 0, reclaim_mode, families, ..Options::default() };
    Db::open_with_env("/db", options, disk.env()).unwrap()
}

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

/// What takes a table of a level to the next.
pub(crate) fn down(family: &Arc<Family>, version: &Arc<Version>, level: usize, index: usize) -> Arc<Plan> {
    Arc::new(super::pick::plan(family, version, level, level + 1, vec![version.level(level)[index].clone()]).unwrap())
}
