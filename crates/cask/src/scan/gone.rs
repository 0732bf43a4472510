//! Keys whose newest version has expired, where older ones are kept: those are not shown either, as `get` finds nothing.
//!
//! - N1: of a key, the newest is the record of the highest version that was not dead when the scan began; the directory is not asked, which
//!   may be further already.
//!
//! Cost: nothing where one version is kept, or nothing expires. Else a pass over the files with records that expire; and if some have
//! expired, one over all of them, and memory for the keys of these.

use std::collections::{HashMap, HashSet};

use esker_format::cask::record::Record;

use super::chunk::Extent;
use crate::Result;
use crate::file::{Step, Walk};

/// The keys of which nothing is shown by a scan of these at `now`.
pub(super) fn find(extents: &[Extent], now: u64) -> Result<HashSet<Vec<u8>>> {
    let mut newest: HashMap<Vec<u8>, u64> = HashMap::new();
    for extent in extents.iter().filter(|extent| extent.file.expires()) {
        each(extent, |record| {
            if record.is_expired(now) {
                let version = newest.entry(record.key.to_vec()).or_default();
                *version = record.version.max(*version);
            }
        })?;
    }
    if newest.is_empty() {
        return Ok(HashSet::new());
    }
    // Those that something newer took the place of are not gone.
    for extent in extents {
        each(extent, |record| {
            if newest.get(record.key).is_some_and(|version| *version < record.version) {
                newest.remove(record.key);
            }
        })?;
    }
    Ok(newest.into_keys().collect())
}

/// Every record that was not dead and is no deletion. What is damaged the scan itself will tell.
fn each(extent: &Extent, mut take: impl FnMut(&Record<'_>)) -> Result<()> {
    let mut dead = extent.file.dead_cursor(extent.dead_len);
    let bytes = extent.file.bytes(0..extent.end)?;
    let mut walk = Walk::new(&bytes, extent.file.salt);
    loop {
        match walk.step() {
            Step::Record { offset, record, .. } if !record.is_tombstone && !dead.is_dead(offset) => take(&record),
            Step::Record { .. } | Step::Damage(_) => {}
            Step::End { .. } => return Ok(()),
        }
    }
}
