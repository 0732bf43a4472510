//! What is done to an engine. Each workload divides its work among threads so that no two touch the same key.

mod crew;
mod read;
mod scan;
mod write;

pub(crate) use scan::salt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::data::Data;
use crate::engine::Engine;
use crate::measure::Latencies;
use crate::model::Model;
use crate::plan::Plan;

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Puts every key once, in an order that is random in key space.
    Load,
    /// Puts keys again, with new values, in another order.
    Update,
    /// Deletes one key in ten of those that `--reads` visits.
    Delete,
    /// Gets keys, drawn at random.
    ReadRandom,
    /// Gets keys that were never put, drawn at random.
    ReadMissing,
    /// Asks whether keys are there, drawn at random; half of them are not.
    Exists,
    /// Seeks a random key and reads `--range-entries` from there.
    Range,
    /// Reads every entry in key order; each thread a part of the key space.
    Scan,
    /// The same without values.
    ScanKeys,
    /// Raft logs: every group gets its entries in order, `--batch` groups in one write, with the state of each.
    Append,
    /// Raft logs: reads `--range-entries` entries of a random group from a random index on.
    Fetch,
    /// Raft logs: opens what is there.
    Reopen,
}

impl Workload {
    /// Whether it changes the store.
    pub fn writes(self) -> bool {
        matches!(self, Self::Load | Self::Update | Self::Delete | Self::Append)
    }

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::ReadRandom => "readrandom",
            Self::ReadMissing => "readmissing",
            Self::Exists => "exists",
            Self::Range => "range",
            Self::Scan => "scan",
            Self::ScanKeys => "scankeys",
            Self::Append => "append",
            Self::Fetch => "fetch",
            Self::Reopen => "reopen",
        }
    }
}

/// What the threads of a phase share.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// Keys and values.
    pub data: &'a Data,
    /// What must be there.
    pub model: &'a Model,
    /// For ranges, the keys that are there, in order, by the eight bytes that order follows from.
    pub order: &'a [u64],
    /// Sizes and counts.
    pub plan: &'a Plan,
    /// Tells this phase's order from that of others.
    pub salt: u64,
    /// Whether answers are compared. Only the `null` engine gets away without.
    pub checked: bool,
}

/// What a phase, or one thread of it, did.
#[derive(Debug)]
pub struct Done {
    /// Operations; entries, for scans.
    pub operations: u64,
    /// Bytes of keys and values, put or got.
    pub user_bytes: u64,
    /// How long they took.
    pub latencies: Latencies,
}

impl Done {
    pub(crate) fn nothing() -> Result<Self> {
        Ok(Self { operations: 0, user_bytes: 0, latencies: Latencies::new()? })
    }
}

/// Does it.
///
/// # Errors
/// The engine failed, or answered wrong.
pub fn run(work: &Work<'_>, workload: Workload) -> Result<Done> {
    match workload {
        Workload::Load => crew::run(work, write::load),
        Workload::Update => crew::run(work, write::update),
        Workload::Delete => crew::run(work, write::delete),
        Workload::ReadRandom => crew::run(work, read::random),
        Workload::ReadMissing => crew::run(work, read::missing),
        Workload::Exists => crew::run(work, read::exists),
        Workload::Range => crew::run(work, scan::ranges),
        Workload::Scan => scan::counted(work, scan::entries),
        Workload::ScanKeys => scan::counted(work, scan::keys),
        Workload::Append | Workload::Fetch | Workload::Reopen => Err("this is work for Raft logs".into()),
    }
}
