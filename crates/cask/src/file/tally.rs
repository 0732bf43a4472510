//! What is known of the records of a file, added up while it is read.

use esker_format::cask::hint::Entry;

use super::Expiry;

/// Sums over records.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) records: u64,
    pub(crate) version_max: u64,
    pub(crate) tombstones: u64,
    pub(crate) tombstone_bytes: u64,
    pub(crate) expiry: Expiry,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        self.records += 1;
        self.version_max = self.version_max.max(entry.version);
        if entry.is_tombstone {
            self.tombstones += 1;
            self.tombstone_bytes += entry.record_bytes;
        }
        if let Some(expires_at) = entry.expires_at {
            self.expiry.add(expires_at, entry.record_bytes);
        }
    }
}
