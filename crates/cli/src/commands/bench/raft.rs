//! `esker bench STORE --kind raft`: the options of raft-engine's stress tool, under its names and with its defaults.

use std::fmt;
use std::time::Duration;

use clap::Args;
use esker::RaftLog;
use esker::raft::Options;
use serde_json::{Value, json};

use super::{Bench, NUM};
use crate::Answer;
use crate::bench::{self, RaftPlan, ValueSizes};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::parse_bytes;

/// For how long, unless told otherwise.
const TIME: Duration = Duration::from_secs(60);
/// Groups in all, and in a write, unless told otherwise or the threads make it more or fewer.
const GROUPS: u64 = 5;
const HEADING: &str = "Raft logs";

/// What only a Raft log can do. All of them are absent unless chosen, so that they can be refused elsewhere.
#[derive(Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(super) struct RaftChoices {
    /// Groups [default: 5, or one for each thread]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    regions: Option<u64>,

    /// Threads that append, each to groups of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1024))]
    write_threads: Option<u64>,

    /// Threads that read the newest entries [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1024))]
    read_threads: Option<u64>,

    /// Writes a second of each thread [default: 0, as many as it can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    write_ops_per_thread: Option<u64>,

    /// Reads a second of each thread [default: 0, as many as it can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    read_ops_per_thread: Option<u64>,

    /// Bytes of an entry: SIZE, uniform:MIN:MAX, or SIZE:WEIGHT,SIZE:WEIGHT… [default: 1KiB]
    #[arg(long, value_name = "SIZES", value_parser = ValueSizes::parse)]
    entry_size: Option<ValueSizes>,

    /// Entries of each group in a write [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    write_entry_count: Option<u64>,

    /// Groups in a write [default: 5, or all that a thread has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    write_region_count: Option<u64>,

    /// Do not wait until writes survive power loss
    #[arg(long, conflicts_with = "sync")]
    write_without_sync: bool,

    /// Entries of a group that its writer keeps [default: 0, all of them]
    #[arg(long, value_name = "N")]
    compact_count: Option<u64>,

    /// Which part of a group is kept when purging asks to compact it [default: 0.5]
    #[arg(long, value_name = "PART", value_parser = part)]
    force_compact_factor: Option<f64>,

    /// Seconds between purges; 0 for none [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    purge_interval: Option<Duration>,

    /// Size of a file [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    target_file_size: Option<u64>,

    /// How long the append queue may get before it is purged [default: 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    purge_threshold: Option<u64>,

    /// How long the rewrite queue may get before it is rewritten [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    purge_rewrite_threshold: Option<u64>,

    /// How much of it must be dead for that [default: 0.6]
    #[arg(long, value_name = "PART", value_parser = ratio)]
    purge_rewrite_garbage_ratio: Option<f64>,

    /// How much of the log one group may pin before its entries are moved on [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    group_quota: Option<u64>,

    /// Entries of a write are compressed from so many bytes on; 0 for never [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    compression_threshold: Option<u64>,

    /// Whether purged files are written over [default: true]
    #[arg(long, value_name = "BOOL")]
    recycle: Option<bool>,
}

impl RaftChoices {
    /// Refuses what was chosen for another kind of store.
    pub(super) fn refuse(&self, kind: Kind) -> Result<(), Failure> {
        let chosen = [
            ("regions", self.regions.is_some()),
            ("write-threads", self.write_threads.is_some()),
            ("read-threads", self.read_threads.is_some()),
            ("write-ops-per-thread", self.write_ops_per_thread.is_some()),
            ("read-ops-per-thread", self.read_ops_per_thread.is_some()),
            ("entry-size", self.entry_size.is_some()),
            ("write-entry-count", self.write_entry_count.is_some()),
            ("write-region-count", self.write_region_count.is_some()),
            ("write-without-sync", self.write_without_sync),
            ("compact-count", self.compact_count.is_some()),
            ("force-compact-factor", self.force_compact_factor.is_some()),
            ("purge-interval", self.purge_interval.is_some()),
            ("target-file-size", self.target_file_size.is_some()),
            ("purge-threshold", self.purge_threshold.is_some()),
            ("purge-rewrite-threshold", self.purge_rewrite_threshold.is_some()),
            ("purge-rewrite-garbage-ratio", self.purge_rewrite_garbage_ratio.is_some()),
            ("group-quota", self.group_quota.is_some()),
            ("compression-threshold", self.compression_threshold.is_some()),
            ("recycle", self.recycle.is_some()),
        ];
        refuse(&chosen, kind)
    }

    fn options(&self) -> Options {
        let default = Options::default();
        Options {
            file_bytes: self.target_file_size.unwrap_or(default.file_bytes),
            purge_threshold_bytes: self.purge_threshold.unwrap_or(default.purge_threshold_bytes),
            purge_rewrite_threshold_bytes: self.purge_rewrite_threshold,
            purge_rewrite_garbage_ratio: self
                .purge_rewrite_garbage_ratio
                .unwrap_or(default.purge_rewrite_garbage_ratio),
            group_quota_bytes: self.group_quota,
            compress_from_bytes: self
                .compression_threshold
                .map_or(default.compress_from_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            recycle_files: self.recycle.unwrap_or(default.recycle_files),
            ..default
        }
    }
}

fn refuse(chosen: &[(&str, bool)], kind: Kind) -> Result<(), Failure> {
    match chosen.iter().find(|(_, is_chosen)| *is_chosen) {
        Some((name, _)) => Err(Failure::new(format_args!("--{name} means nothing to {kind}"))),
        None => Ok(()),
    }
}

impl Bench {
    pub(super) fn run_raft(self, out: &mut Output) -> Result<Answer, Failure> {
        self.refuse_on_raft()?;
        let plan = self.raft_plan();
        plan.check()?;
        self.expect_report()?;
        if !self.use_existing && std::fs::read_dir(&self.store).is_ok_and(|mut names| names.next().is_some()) {
            let path = self.store.display();
            return Err(Failure::new(format_args!(
                "{path}: there is something in it; name a directory that is not there yet, or add --use-existing"
            )));
        }
        if self.use_existing {
            RaftLog::inspect(&self.store, &Options::default())?;
        }
        let options = self.raft.options();
        let described = describe(&options);
        let log = RaftLog::open(&self.store, options)?;
        let figures = bench::run_raft(&plan, &log, described)?;
        self.tell(out, &figures, log.close())
    }

    /// Refuses what only the other kinds know. What has a default is taken for chosen if it differs.
    fn refuse_on_raft(&self) -> Result<(), Failure> {
        let chosen = [
            ("benchmarks", self.benchmarks.is_some()),
            ("num", self.num != NUM),
            ("reads", self.reads.is_some()),
            ("value-size", self.value_size != ValueSizes::Fixed(100)),
            ("key-size", self.key_size != 16),
            ("threads", self.threads != 1),
            ("batch", self.batch != 1),
            ("distribution", self.distribution.is_some()),
            ("compression, or another option of column families,", self.choices.is_any()),
            ("cache-bytes", self.cache_bytes.is_some()),
            ("write-buffer-bytes", self.write_buffer_bytes.is_some()),
            ("background-jobs", self.background_jobs != 2),
            ("nexts", self.nexts != 10),
        ];
        refuse(&chosen, Kind::Raft)
    }

    fn raft_plan(&self) -> RaftPlan {
        let raft = &self.raft;
        let purge_interval = raft.purge_interval.unwrap_or(Duration::from_secs(10));
        let (write_threads, read_threads) = (raft.write_threads.unwrap_or(1), raft.read_threads.unwrap_or(0));
        let groups = raft.regions.unwrap_or(GROUPS.max(write_threads).max(read_threads));
        RaftPlan {
            time: self.seconds.unwrap_or(TIME),
            groups,
            write_threads,
            read_threads,
            write_rate: raft.write_ops_per_thread.filter(|&calls| calls > 0),
            read_rate: raft.read_ops_per_thread.filter(|&calls| calls > 0),
            entry_sizes: raft.entry_size.clone().unwrap_or(ValueSizes::Fixed(1 << 10)),
            batch_entries: raft.write_entry_count.unwrap_or(10),
            batch_groups: raft.write_region_count.unwrap_or((groups / write_threads.max(1)).clamp(1, GROUPS)),
            sync: !raft.write_without_sync,
            compact_count: raft.compact_count.filter(|&count| count > 0),
            force_compact_factor: raft.force_compact_factor.unwrap_or(0.5),
            purge_interval: (!purge_interval.is_zero()).then_some(purge_interval),
            seed: self.seed,
            use_existing: self.use_existing,
        }
    }
}

/// The options that may be chosen, as an object.
fn describe(options: &Options) -> Value {
    json!({
        "kind": "raft",
        "file_bytes": options.file_bytes,
        "purge_threshold_bytes": options.purge_threshold_bytes,
        "purge_rewrite_threshold_bytes": options.purge_rewrite_threshold_bytes,
        "purge_rewrite_garbage_ratio": options.purge_rewrite_garbage_ratio,
        "group_quota_bytes": options.group_quota_bytes,
        "compress_from_bytes": options.compress_from_bytes,
        "recycle_files": options.recycle_files,
    })
}

/// A number that `holds`.
fn number(text: &str, holds: impl Fn(f64) -> bool, words: impl fmt::Display) -> Result<f64, String> {
    text.parse().ok().filter(|number| holds(*number)).ok_or_else(|| format!("write {words}"))
}

fn part(text: &str) -> Result<f64, String> {
    number(text, |part| part > 0.0 && part < 1.0, "a number between 0 and 1")
}

fn ratio(text: &str) -> Result<f64, String> {
    number(text, |part| (0.0..=1.0).contains(&part), "a number from 0 to 1")
}

fn interval(text: &str) -> Result<Duration, String> {
    number(text, |seconds| (0.0..1e9).contains(&seconds), "a number of seconds").map(Duration::from_secs_f64)
}
