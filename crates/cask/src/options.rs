//! What a user may choose. No option changes the format; all may change on reopen. The manifest remembers one: `keep_versions`.

use std::fmt::Display;
use std::time::Duration;

use esker_format::compression::Compression;

use crate::{Error, Result};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A write looks at every version of its key; the manifest has 16 bits for the number.
const KEEP_VERSIONS_MAX: usize = 1000;
/// About a century: more is a mistake.
const TTL_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// What an open makes of damage of which it is not certain which keys it was of.
///
/// Sealed files whose hints are good say of every record whose it is, and so does a record in which one bit is flipped, unless its value is longer
/// than 64 KiB and has the bit, or it would take longer than some tens of milliseconds to find (of one with a long key and value, or of many
/// that follow each other): then reads of that key fail, and the store is opened in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CaskDamage {
    /// The open fails with `Corruption`, and says where the damage is: an older value might be shown for the newest otherwise, or a key
    /// that was deleted. [`Cask::repair`](crate::Cask::repair) goes back to what is left.
    #[default]
    Refuse,
    /// What is left is served. Reads of keys that the damage seems to be of fail; if its keys are damaged, too, the real ones have their older
    /// values. [`Cask::recovery`](crate::Cask::recovery) tells of it.
    Serve,
}

/// Options of a store.
#[derive(Debug, Clone)]
pub struct CaskOptions {
    /// Make a store if there is none. Default `false`.
    pub create_if_missing: bool,

    /// Refuse a store that is there already. Default `false`.
    pub error_if_exists: bool,

    /// Writers that can be at work at once, each with a file of its own. Default 8. Range 1..=64.
    /// A thread keeps to the stripe that it wrote to last, and leaves it for a free one when it finds it taken: with as many as threads that
    /// write, each soon has its own. Each that was written to takes a data file's disk space while the store is
    /// open, and once that is three quarters full, the next one's.
    pub stripes: usize,

    /// Size at which a data file is sealed and the next one begun, in bytes, at most. Default 64 MiB. Range 4 KiB..=2 GiB.
    /// A small store's are smaller: a stripe's share of what the store has, and 4 MiB at least. They are preallocated, so a small store takes little
    /// room, and have a 16th of the disk at most (or 64 KiB): as much is left for a merge, besides a 16th of this (16 KiB to 4 MiB) for deletions and a 128th (16 KiB to
    /// 1 MiB) for what gives their space back, each a 64th of the disk at most. Larger means fewer files; smaller means that space returns in smaller steps. A larger batch or value gets a file of its own.
    pub file_bytes: u64,

    /// Versions of each key that can be read back, the newest included. Default 0: as many as the store kept when it was opened for
    /// writing last, so that who knows nothing of it drops no history; 1 in a new store, and where a repair found no manifest. Range 0..=1,000.
    /// [`Cask::options`](crate::Cask::options) tells the number. With fewer than before, older versions go with the next merges; where none were
    /// kept before, what merges have not met yet is shown as history, too, versions whose time was over when they were replaced among it. Where the time of an older one is over and a merge has taken it, the next open may show one that it had pushed out.
    /// Each further version costs a slot of the directory (about 19 bytes of memory) and stays on disk; a write then
    /// reads the versions that the key has. See [`Cask::history`](crate::Cask::history).
    pub keep_versions: usize,

    /// What an open makes of damage of which it is not certain which keys it was of. Default [`CaskDamage::Refuse`].
    pub damage: CaskDamage,

    /// How long a value lives that was written without a time to live. Default `None`: for ever.
    /// Range 1 s..=100 years, counted in whole seconds, by the system's clock.
    pub default_ttl: Option<Duration>,

    /// How values are packed, one by one. Default none. A packed value is read with one copy, a plain one with none.
    pub compression: Compression,

    /// Smallest value that is packed, in bytes. Default 512: below, little is gained. One that does not get smaller is stored plain.
    pub compression_bytes_min: usize,

    /// Check the CRC of a record whenever its value is read. Default `true`: costs some 10 ns for 100 bytes, and what the
    /// processor takes to read the value once. `false` trusts memory and disk until a sync fails; lengths and keys are compared in any case.
    pub verify_reads: bool,

    /// Make what was written survive power loss so often, in milliseconds, whoever asks. Default 0: only where a write or
    /// [`Cask::sync`](crate::Cask::sync) asks. Range 0..=86,400,000. Needs `background_jobs`.
    pub sync_interval_ms: u64,

    /// Share of a file that must be dead before it is merged. Default 0.5: twice the live bytes on disk at most, besides the
    /// files that are being written (one for each stripe in use), and about one byte rewritten for each byte written. Range 0.01..=1.0; smaller means less space and more rewriting.
    pub merge_garbage_ratio: f64,

    /// How often files are looked at for merging when nothing else wakes the merge, in milliseconds. Default 5,000.
    /// Range 10..=86,400,000.
    pub merge_interval_ms: u64,

    /// Bytes that a merge moves between two looks at its pace, in bytes. Default 1 MiB. Range 4 KiB..=1 GiB.
    pub merge_batch_bytes: u64,

    /// How fast merges may go, in bytes read per second. Default 0: as fast as they can. Range 0..=1 TiB.
    pub merge_bytes_per_second: u64,

    /// Threads for sealing, syncing and merging. Default 2: one that seals and syncs, one that merges. Range 0..=2. With 0, all of it
    /// is done by whoever makes it necessary, and `sync_interval_ms` and the merge's interval do nothing.
    pub background_jobs: usize,

    /// Threads that read files while the store opens. Default 4. Range 0..=64; 0 is the calling thread alone.
    pub open_threads: usize,
}

impl Default for CaskOptions {
    fn default() -> Self {
        Self {
            create_if_missing: false,
            error_if_exists: false,
            stripes: 8,
            file_bytes: 64 * MIB,
            keep_versions: 0,
            damage: CaskDamage::Refuse,
            default_ttl: None,
            compression: Compression::None,
            compression_bytes_min: 512,
            verify_reads: true,
            sync_interval_ms: 0,
            merge_garbage_ratio: 0.5,
            merge_interval_ms: 5000,
            merge_batch_bytes: MIB,
            merge_bytes_per_second: 0,
            background_jobs: 2,
            open_threads: 4,
        }
    }
}

fn in_range<T: PartialOrd + Display>(name: &str, value: T, least: T, most: T) -> Result<()> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("option {name} is {value}, must be in {least}..={most}")))
}

impl CaskOptions {
    /// Refuses what is out of range. Called by every open before the first file is touched.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first option out of its range, and the range.
    pub fn validate(&self) -> Result<()> {
        const DAY_MS: u64 = 86_400_000;
        in_range("stripes", self.stripes, 1, 64)?;
        in_range("file_bytes", self.file_bytes, 4 * KIB, 2 * GIB)?;
        in_range("keep_versions", self.keep_versions, 0, KEEP_VERSIONS_MAX)?;
        if let Some(ttl) = self.default_ttl {
            validate_ttl("option default_ttl", ttl)?;
        }
        in_range("sync_interval_ms", self.sync_interval_ms, 0, DAY_MS)?;
        in_range("merge_garbage_ratio", self.merge_garbage_ratio, 0.01, 1.0)?;
        in_range("merge_interval_ms", self.merge_interval_ms, 10, DAY_MS)?;
        in_range("merge_batch_bytes", self.merge_batch_bytes, 4 * KIB, GIB)?;
        in_range("merge_bytes_per_second", self.merge_bytes_per_second, 0, GIB << 10)?;
        in_range("background_jobs", self.background_jobs, 0, 2)?;
        in_range("open_threads", self.open_threads, 0, 64)?;
        if self.sync_interval_ms > 0 && self.background_jobs == 0 {
            return Err(Error::invalid_argument(
                "option sync_interval_ms needs a thread: set background_jobs to at least 1",
            ));
        }
        if self.compression == Compression::Lz4hc {
            return Err(Error::invalid_argument(
                "option compression is Lz4hc, which can be read but not written; choose None, Snappy, Zlib, Lz4 or Zstd",
            ));
        }
        Ok(())
    }
}

/// Refuses times to live that seconds or a clock cannot hold.
pub(crate) fn validate_ttl(what: &str, ttl: Duration) -> Result<()> {
    if ttl >= Duration::from_secs(1) && ttl <= TTL_MAX {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{what} is {ttl:?}, must be from 1 s to 100 years")))
}

/// Options of one write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaskWriteOptions {
    /// Whether `Ok` means that the write survives power loss, not only the death of the process. Default `false`.
    /// Costs one `fdatasync`, shared by all who write to the same stripe at the time; with `keep_versions` above 1, one for each stripe that
    /// was written to since its last.
    pub sync: bool,

    /// How long the value lives. Default `None`: as [`CaskOptions::default_ttl`] says. Range 1 s..=100 years; part of a second counts as a whole one.
    /// Not for batches, whose operations say so themselves.
    pub ttl: Option<Duration>,

    /// Which stripe's file takes the write, counted round where there are fewer. Default `None`: the thread's own, see
    /// [`CaskOptions::stripes`]. Values that will die together leave files that a merge copies little from, if they have a stripe for themselves.
    pub stripe: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range() {
        CaskOptions::default().validate().unwrap();
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let refused = |options: CaskOptions| options.validate().unwrap_err().to_string();
        let error = refused(CaskOptions { stripes: 0, ..CaskOptions::default() });
        assert!(error.contains("stripes is 0, must be in 1..=64"), "{error}");
        let error = refused(CaskOptions { merge_garbage_ratio: f64::NAN, ..CaskOptions::default() });
        assert!(error.contains("merge_garbage_ratio"), "{error}");
        let error = refused(CaskOptions { default_ttl: Some(Duration::ZERO), ..CaskOptions::default() });
        assert!(error.contains("default_ttl"), "{error}");
        let error = refused(CaskOptions { sync_interval_ms: 5, background_jobs: 0, ..CaskOptions::default() });
        assert!(error.contains("background_jobs"), "{error}");
        let error = refused(CaskOptions { compression: Compression::Lz4hc, ..CaskOptions::default() });
        assert!(error.contains("Lz4hc"), "{error}");
    }
}
