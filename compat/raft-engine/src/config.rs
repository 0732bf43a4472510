//! The original's configuration, with its defaults and the names that it has in files.

use std::path::PathBuf;

use esker_raft_log::Options;
use num_traits::{FromPrimitive, ToPrimitive};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use strum::IntoEnumIterator;

use crate::{Error, ReadableSize, Result};

/// What opening makes of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryMode {
    /// Any damage is an error.
    AbsoluteConsistency,
    /// The last file may end torn.
    #[serde(alias = "tolerate-corrupted-tail-records", rename(serialize = "tolerate-corrupted-tail-records"))]
    TolerateTailCorruption,
    /// Any file is cut where it is damaged.
    TolerateAnyCorruption,
}

/// Version of files.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Version {
    /// 1.
    #[default]
    V1 = 1,
    /// 2: salted checksums.
    V2 = 2,
}

impl Version {
    /// Whether files of this version can be recycled.
    pub fn has_log_signing(&self) -> bool {
        *self == Self::V2
    }
}

impl ToPrimitive for Version {
    fn to_i64(&self) -> Option<i64> {
        self.to_u64().and_then(|version| version.try_into().ok())
    }

    fn to_u64(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl FromPrimitive for Version {
    fn from_i64(version: i64) -> Option<Self> {
        Self::from_u64(version.try_into().ok()?)
    }

    fn from_u64(version: u64) -> Option<Self> {
        Self::iter().find(|known| *known as u64 == version)
    }
}

impl IntoEnumIterator for Version {
    type Iterator = std::array::IntoIter<Self, 2>;

    fn iter() -> Self::Iterator {
        [Self::V1, Self::V2].into_iter()
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", *self as u64)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_u64(*self as u64)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let version = u64::deserialize(deserializer)?;
        Self::from_u64(version).ok_or_else(|| de::Error::custom(format!("format version {version}; 1 and 2 are known")))
    }
}

/// How an engine is opened. See [`Options`] for what each means to Esker.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(default, rename_all = "kebab-case")]
pub struct Config {
    /// The directory.
    pub dir: String,
    /// Where files go when it is full.
    pub spill_dir: Option<String>,
    /// What opening makes of damage.
    pub recovery_mode: RecoveryMode,
    /// Not used: files are mapped.
    pub recovery_read_block_size: ReadableSize,
    /// Threads that read files when opening.
    pub recovery_threads: usize,
    /// Entries are compressed from this size on; 0 is never.
    pub batch_compression_threshold: ReadableSize,
    /// Not used: there is one way to compress.
    pub compression_level: Option<usize>,
    /// Not used, as in the original.
    pub bytes_per_sync: Option<ReadableSize>,
    /// Version of new files.
    pub format_version: Version,
    /// Size at which the next file is begun.
    pub target_file_size: ReadableSize,
    /// The append queue is purged from this size on.
    pub purge_threshold: ReadableSize,
    /// The rewrite queue is rewritten from this size on.
    pub purge_rewrite_threshold: Option<ReadableSize>,
    /// How much of the rewrite queue must be dead before that.
    pub purge_rewrite_garbage_ratio: f64,
    /// Not used: the index has one record for a batch, not for an entry.
    pub memory_limit: Option<ReadableSize>,
    /// Whether purged files are written over.
    pub enable_log_recycle: bool,
    /// Whether files are made for that when opening.
    pub prefill_for_recycle: bool,
    /// How many bytes of them.
    pub prefill_limit: Option<ReadableSize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: String::new(),
            spill_dir: None,
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            recovery_read_block_size: ReadableSize::kb(16),
            recovery_threads: 4,
            batch_compression_threshold: ReadableSize::kb(8),
            compression_level: None,
            bytes_per_sync: None,
            format_version: Version::V2,
            target_file_size: ReadableSize::mb(128),
            purge_threshold: ReadableSize::gb(10),
            purge_rewrite_threshold: None,
            purge_rewrite_garbage_ratio: 0.6,
            memory_limit: None,
            enable_log_recycle: true,
            prefill_for_recycle: false,
            prefill_limit: None,
        }
    }
}

impl Config {
    /// Refuses what cannot be, and fills in what was left open.
    ///
    /// # Errors
    /// [`Error::Other`] in the cases where the original has one.
    pub fn sanitize(&mut self) -> Result<()> {
        let refuse = |reason: &str| Err(Error::Other(reason.into()));
        if self.purge_threshold.0 < self.target_file_size.0 {
            return refuse("purge-threshold < target-file-size");
        }
        let default = (self.purge_threshold.0 / 10).max(self.target_file_size.0);
        self.purge_rewrite_threshold.get_or_insert(ReadableSize(default));
        self.recovery_read_block_size.0 = self.recovery_read_block_size.0.max(512);
        self.recovery_threads = self.recovery_threads.max(1);
        if self.enable_log_recycle && !self.format_version.has_log_signing() {
            return refuse("format version 1 doesn't support log recycle, use 2 or above");
        }
        if !self.enable_log_recycle && self.prefill_for_recycle {
            return refuse("prefill is not allowed when log recycle is disabled");
        }
        self.prefill_limit = self.prefill_for_recycle.then(|| self.prefill_limit.unwrap_or(self.purge_threshold));
        Ok(())
    }

    fn file_bytes(&self) -> u64 {
        self.target_file_size.0.max(1 << 10)
    }

    /// Half as many files again as `limit` has room for, as the original makes them.
    fn prefill_bytes(&self, limit: u64) -> u64 {
        let file_bytes = self.file_bytes();
        ((limit / file_bytes).saturating_mul(3) / 2).saturating_mul(file_bytes)
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            spill_dir: self.spill_dir.as_ref().map(PathBuf::from),
            recovery_mode: match self.recovery_mode {
                RecoveryMode::AbsoluteConsistency => esker_raft_log::RecoveryMode::AbsoluteConsistency,
                RecoveryMode::TolerateTailCorruption => esker_raft_log::RecoveryMode::TolerateTail,
                RecoveryMode::TolerateAnyCorruption => esker_raft_log::RecoveryMode::TolerateAny,
            },
            recovery_threads: self.recovery_threads.min(esker_raft_log::RECOVERY_THREADS_MAX),
            compress_from_bytes: usize::try_from(self.batch_compression_threshold.0).unwrap_or(usize::MAX),
            format_version: match self.format_version {
                Version::V1 => esker_raft_log::Version::V1,
                Version::V2 => esker_raft_log::Version::V2,
            },
            file_bytes: self.file_bytes(),
            purge_threshold_bytes: self.purge_threshold.0.max(1 << 10),
            purge_rewrite_threshold_bytes: self.purge_rewrite_threshold.map(|size| size.0),
            // Beyond what there is, the original rewrites always or never; never, too, where it is no number.
            purge_rewrite_garbage_ratio: Some(self.purge_rewrite_garbage_ratio)
                .filter(|ratio| !ratio.is_nan())
                .map_or(1.0, |ratio| ratio.clamp(0.0, 1.0)),
            recycle_files: self.enable_log_recycle,
            prefill_bytes: self.prefill_limit.map_or(0, |size| self.prefill_bytes(size.0)),
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_defaults_are_those_of_the_original() {
        let text = serde_json::to_value(Config::default()).unwrap();
        assert_eq!(text["recovery-mode"], "tolerate-corrupted-tail-records");
        assert_eq!(text["target-file-size"], "128MiB");
        assert_eq!(text["format-version"], 2);
        let mut read: Config = serde_json::from_value(serde_json::json!({
            "recovery-mode": "tolerate-tail-corruption", "target-file-size": "1MB", "purge-threshold": "3MB",
            "format-version": 1, "enable-log-recycle": false,
        }))
        .unwrap();
        read.sanitize().unwrap();
        assert_eq!(read.purge_rewrite_threshold, Some(ReadableSize::mb(1)));
        read.enable_log_recycle = true;
        assert!(read.sanitize().is_err());
        assert_eq!(serde_json::from_value::<Config>(text).unwrap(), Config::default());
    }

    #[test]
    fn versions_are_numbers_as_in_the_original() {
        assert_eq!(Version::iter().map(|version| version.to_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(
            (-1..4).map(Version::from_i64).collect::<Vec<_>>(),
            [None, None, Some(Version::V1), Some(Version::V2), None]
        );
    }

    #[test]
    fn half_as_many_files_again_are_made_ahead() {
        let (target_file_size, prefill_for_recycle) = (ReadableSize::mb(2), true);
        let mut config = Config { target_file_size, prefill_for_recycle, ..Config::default() };
        for (limit, files) in [(1, 0), (2, 1), (6, 4), (9, 6)] {
            config.prefill_limit = Some(ReadableSize::mb(limit));
            config.sanitize().unwrap();
            assert_eq!(config.options().prefill_bytes, files * config.target_file_size.0, "{limit}");
        }
        config.prefill_limit = Some(ReadableSize(u64::MAX));
        assert_eq!(config.options().prefill_bytes, u64::MAX);
    }

    #[test]
    fn any_part_of_garbage_is_taken_as_the_original_takes_it() {
        for (ratio, taken) in [(-1.0, 0.0), (0.3, 0.3), (7.5, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0)] {
            let mut config = Config { purge_rewrite_garbage_ratio: ratio, ..Config::default() };
            config.sanitize().unwrap();
            let options = config.options();
            options.validate().unwrap();
            assert_eq!(options.purge_rewrite_garbage_ratio, taken);
        }
    }
}
