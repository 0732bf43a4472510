//! What a user may choose.

use std::path::PathBuf;
use std::time::Duration;

use esker_format::raft::file_header::Version;
use esker_format::raft::file_name::Queue;

use crate::{Error, Result};

/// Smallest file that is rotated away.
const FILE_BYTES_MIN: u64 = 1 << 10;
/// Most threads of recovery.
pub const RECOVERY_THREADS_MAX: usize = 256;

/// What opening makes of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RecoveryMode {
    /// Any damage is an error, and so are files before a gap in the numbers, which a power loss may leave of a purge of
    /// raft-engine's, but of one of Esker's only a directory that gives up no file while the other is full. Zeroes behind the last batch are not damage: a crash leaves them.
    AbsoluteConsistency,
    /// The last file of a queue may end torn, as a crash leaves it, behind what was there when the log was closed last: it is cut there. Other
    /// damage is an error.
    #[default]
    TolerateTail,
    /// Any file is cut where it is damaged, and the log goes on with the next, and without files that are gone since it was closed. Groups
    /// may have lost entries.
    TolerateAny,
}

/// How a Raft log is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Begin a log if there is none. Default true, as raft-engine does it: a replica whose path is not mounted, or is misspelled, then begins an
    /// empty one, and forgets what it voted for. Set it to false for whoever should have a log.
    pub create_if_missing: bool,

    /// Where new files go when the log's directory is full, as they go back when this one is: another one. Default none. Created if it does not
    /// exist.
    pub spill_dir: Option<PathBuf>,

    /// What opening makes of damage. Default [`RecoveryMode::TolerateTail`].
    pub recovery_mode: RecoveryMode,

    /// Threads that read files when opening. Default 4; 1 uses the caller's. Range 1..=256.
    pub recovery_threads: usize,

    /// Entries of a batch are compressed from this many bytes on. Default 8 KiB. Any number; 0 is never.
    /// Costs about 2 ns a byte, on the writer's thread.
    pub compress_from_bytes: usize,

    /// Version of new files. Default 2. Version 1 is for programs older than raft-engine 0.3; it has no recycling.
    pub format_version: Version,

    /// Size at which a file is ended and the next begun, in bytes. Default 128 MiB. Range 1 KiB..=`purge_threshold_bytes`; one of the append queue takes
    /// as much of the disk from the start, where there is room. Twice a 128th of it, 16 KiB to 1 MiB each and at most a 64th of the disk, is kept in each directory for what frees on a full disk.
    pub file_bytes: u64,

    /// [`purge`](crate::RaftLog::purge) moves old entries on while the append queue is longer than this, in bytes.
    /// Default 10 GiB; not less than `file_bytes`.
    pub purge_threshold_bytes: u64,

    /// The same for the rewrite queue. Default none: a tenth of `purge_threshold_bytes`, at least `file_bytes`.
    pub purge_rewrite_threshold_bytes: Option<u64>,

    /// How much of the rewrite queue must be dead before it is rewritten. Default 0.6. Range 0..=1.
    pub purge_rewrite_garbage_ratio: f64,

    /// Memory for batches that were read, unpacked, in bytes. Default 32 MiB. Any number; 0 is none. It is filled with what is read, one batch of
    /// eight where files are mapped; then what comes again soon comes in. Besides, each thread that reads keeps its last batch, up to 64 KiB, so that its entries may be asked for one by one.
    pub cache_bytes: usize,

    /// How many bytes of the log one group may pin before its old entries are moved on, asked or not. Default none. Any number; files count as a whole,
    /// so less than `file_bytes` moves on whatever is not in the last one.
    pub group_quota_bytes: Option<u64>,

    /// How often a thread of the log's own purges. Default none: only when called.
    pub purge_interval: Option<Duration>,

    /// Whether purged files are written over rather than removed. Default true; needs version 2.
    pub recycle_files: bool,

    /// How many bytes of files are made for recycling when the log is opened. Default 0.
    pub prefill_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            spill_dir: None,
            recovery_mode: RecoveryMode::default(),
            recovery_threads: 4,
            compress_from_bytes: 8 << 10,
            format_version: Version::V2,
            file_bytes: 128 << 20,
            purge_threshold_bytes: 10 << 30,
            purge_rewrite_threshold_bytes: None,
            purge_rewrite_garbage_ratio: 0.6,
            cache_bytes: 32 << 20,
            group_quota_bytes: None,
            purge_interval: None,
            recycle_files: true,
            prefill_bytes: 0,
        }
    }
}

impl Options {
    /// Refuses what is out of range. `open` does so before it touches a file.
    ///
    /// # Errors
    /// `InvalidArgument` naming the option.
    pub fn validate(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::invalid_argument(reason));
        if self.file_bytes < FILE_BYTES_MIN {
            return refuse(format!("file_bytes is {}, at least {FILE_BYTES_MIN} are needed", self.file_bytes));
        }
        if self.purge_threshold_bytes < self.file_bytes {
            return refuse(format!(
                "purge_threshold_bytes is {}, less than file_bytes ({})",
                self.purge_threshold_bytes, self.file_bytes
            ));
        }
        if !(1..=RECOVERY_THREADS_MAX).contains(&self.recovery_threads) {
            return refuse(format!("recovery_threads is {}, not 1..={RECOVERY_THREADS_MAX}", self.recovery_threads));
        }
        if !(0.0..=1.0).contains(&self.purge_rewrite_garbage_ratio) {
            return refuse(format!("purge_rewrite_garbage_ratio is {}", self.purge_rewrite_garbage_ratio));
        }
        if self.recycle_files && self.format_version == Version::V1 {
            return refuse("recycle_files needs format version 2: version 1 cannot tell old bytes".to_owned());
        }
        if self.prefill_bytes > 0 && !self.recycle_files {
            return refuse("prefill_bytes needs recycle_files".to_owned());
        }
        if self.purge_interval.is_some_and(|interval| interval.is_zero()) {
            return refuse("purge_interval is zero".to_owned());
        }
        Ok(())
    }

    /// How long the rewrite queue may get.
    pub(crate) fn rewrite_threshold(&self) -> u64 {
        let default = (self.purge_threshold_bytes / 10).max(self.file_bytes);
        self.purge_rewrite_threshold_bytes.unwrap_or(default)
    }

    /// How many files of a queue, in use or waiting to be written over, are kept: half as many again as the
    /// threshold holds.
    pub(crate) fn recycle_capacity(&self, queue: Queue) -> usize {
        if !self.recycle_files {
            return 0;
        }
        let threshold = match queue {
            Queue::Append => self.purge_threshold_bytes,
            Queue::Rewrite => self.rewrite_threshold(),
        };
        let files = (threshold / self.file_bytes.max(1)).saturating_mul(3) / 2;
        usize::try_from(files.min(u64::from(u32::MAX))).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused() {
        let wrong: [fn(&mut Options); 8] = [
            |options| options.file_bytes = 10,
            |options| options.purge_threshold_bytes = 1 << 20,
            |options| options.recovery_threads = 0,
            |options| options.purge_rewrite_garbage_ratio = f64::NAN,
            |options| options.purge_rewrite_garbage_ratio = 1.5,
            |options| options.format_version = Version::V1,
            |options| (options.prefill_bytes, options.recycle_files) = (1, false),
            |options| options.purge_interval = Some(Duration::ZERO),
        ];
        Options::default().validate().unwrap();
        for change in wrong {
            let mut options = Options::default();
            change(&mut options);
            assert!(options.validate().is_err(), "{options:?}");
        }
    }
}
