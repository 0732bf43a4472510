//! The benchmarks, under the names that `db_bench` and YCSB gave them.

use clap::ValueEnum;

use super::choose::Distribution;
use super::plan::Plan;
use crate::kind::Kind;

/// One benchmark. The comments are its help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Benchmark {
    /// Put every key once, in ascending order
    FillSeq,
    /// Put every key once, in random order
    FillRandom,
    /// As fillrandom, each write synced; a thousandth of the keys
    FillSync,
    /// Put every key once more, in another random order
    Overwrite,
    /// Get keys at random
    ReadRandom,
    /// Get keys that are not there
    ReadMissing,
    /// Step through keys and values, upwards
    ReadSeq,
    /// Step through keys and values, downwards
    ReadReverse,
    /// Seek to random keys and step on by --nexts
    SeekRandom,
    /// Step through keys without their values
    ScanKeys,
    /// Go through keys and values in no order, each thread through all of them; on a Cask
    Scan,
    /// Ask whether random keys are there
    Exists,
    /// Delete half of the keys, in random order
    DeleteRandom,
    /// Delete half of the keys, --range-keys that follow each other at a time, in random order; on a Db
    DeleteRange,
    /// As readrandom, while one more thread puts random keys
    ReadWhileWriting,
    /// Get two random keys and put them, in a transaction, again if another thread came in between; on a Db
    RandomTransaction,
    /// As randomtransaction, but a thread locks its keys and others wait for it; on a Db
    RandomLocking,
    /// Merge into random keys what is to be their value, by the merge operator put; on a Db
    MergeRandom,
    /// 50 % get, 50 % put
    YcsbA,
    /// 95 % get, 5 % put
    YcsbB,
    /// Get only
    YcsbC,
    /// 95 % get of mostly new keys, 5 % put of new keys
    YcsbD,
    /// 95 % scan of 1 to 100 keys, 5 % put of new keys
    YcsbE,
    /// 50 % get, 50 % get then put
    YcsbF,
    /// Write the memtables out
    Flush,
    /// Move everything to the deepest level; on a Cask, merge all files
    Compact,
    /// Wait until flush and compaction have nothing to do
    WaitForCompaction,
    /// As readrandom without the store: what the measuring itself costs
    Null,
}

/// Shares of the operations of a YCSB workload, in percent. What is left are gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shares {
    pub(super) update: u64,
    pub(super) insert: u64,
    pub(super) scan: u64,
    pub(super) read_modify_write: u64,
}

impl Benchmark {
    /// Its name on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What it is, in a few words.
    pub(super) fn description(self) -> String {
        self.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// Why it cannot be run on a store of that kind; `None` if it can.
    pub(super) fn refusal(self, kind: Kind) -> Option<&'static str> {
        match (kind, self) {
            (Kind::Cask, Self::ReadSeq | Self::ReadReverse | Self::SeekRandom | Self::YcsbE) => {
                Some("needs keys in order, and a Cask has none; see scan")
            }
            (Kind::Cask, Self::Flush | Self::WaitForCompaction) => {
                Some("needs memtables and tables, which a Cask has not")
            }
            (Kind::Cask, Self::DeleteRange) => Some("needs keys in order, and a Cask has none; see deleterandom"),
            (Kind::Cask, Self::RandomTransaction | Self::RandomLocking) => {
                Some("needs transactions, and a Cask has none; see ycsbf")
            }
            (Kind::Cask, Self::MergeRandom) => Some("needs a merge operator, and a Cask has none; see overwrite"),
            (Kind::Db, Self::Scan) => Some("works on a Cask; on a Db, readseq goes through everything"),
            (Kind::Raft, _) => Some("works on a Db or a Cask, not on a Raft log"),
            _ => None,
        }
    }

    /// Whether it does something once, for which neither threads nor operations are counted.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::Flush | Self::Compact | Self::WaitForCompaction)
    }

    /// How many operations it has, and whether it may go on beyond them until its time is over.
    pub(super) fn operations(self, plan: &Plan) -> (u64, bool) {
        let num = plan.num;
        match self {
            Self::FillSeq | Self::FillRandom | Self::Overwrite => (num, false),
            Self::FillSync => ((num / 1000).max(1), false),
            Self::DeleteRandom => (num.div_ceil(2), false),
            Self::DeleteRange => (plan.ranges().div_ceil(2), false),
            Self::Flush | Self::Compact | Self::WaitForCompaction => (1, false),
            _ => (plan.reads, true),
        }
    }

    /// Whether new keys come behind all others.
    pub(super) fn inserts(self) -> bool {
        self.shares().insert > 0
    }

    /// Whether keys are put of which nobody knows afterwards which they were.
    pub(super) fn scatters(self) -> bool {
        let shares = self.shares();
        matches!(self, Self::ReadWhileWriting | Self::RandomTransaction | Self::RandomLocking | Self::MergeRandom)
            || shares.update + shares.read_modify_write > 0
    }

    /// Which keys it asks for, unless told otherwise.
    pub(super) fn distribution(self) -> Distribution {
        match self {
            Self::YcsbD => Distribution::Latest,
            Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbE | Self::YcsbF => Distribution::Zipfian,
            _ => Distribution::Uniform,
        }
    }

    pub(super) fn shares(self) -> Shares {
        match self {
            Self::YcsbA => Shares { update: 50, ..Shares::default() },
            Self::YcsbB => Shares { update: 5, ..Shares::default() },
            Self::YcsbD => Shares { insert: 5, ..Shares::default() },
            Self::YcsbE => Shares { insert: 5, scan: 95, ..Shares::default() },
            Self::YcsbF => Shares { read_modify_write: 50, ..Shares::default() },
            _ => Shares::default(),
        }
    }
}
