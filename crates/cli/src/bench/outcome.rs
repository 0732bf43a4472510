//! Figures: of each benchmark, and of the run as a whole.

use std::time::Duration;

use esker::Stats;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::benchmark::Benchmark;
use super::fault::Wrong;
use super::plan::Plan;
use super::process::Usage;
use super::samples::{Samples, causes, kinds};
use super::tally::Tally;

/// One benchmark that was run to its end.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) benchmark: Benchmark,
    pub(super) threads: u64,
    pub(super) time: Duration,
    pub(super) tally: Tally,
    /// What the writer beside the readers did.
    pub(super) writer: Option<Tally>,
}

impl Outcome {
    pub(super) fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// The time below which that share of all operations stayed, in microseconds.
    pub(super) fn micros_at(&self, quantile: f64) -> f64 {
        self.tally.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    fn object(&self) -> Value {
        let Tally { operations, bytes, found, missing, .. } = self.tally;
        json!({
            "name": self.benchmark.name(),
            "threads": self.threads,
            "operations": operations,
            "seconds": self.time.as_secs_f64(),
            "operations_per_second": self.per_second(operations),
            "bytes": bytes,
            "bytes_per_second": self.per_second(bytes),
            "found": found,
            "missing": missing,
            "latency_micros": latency(&self.tally.latency),
            "writer": self.writer.as_ref().map(|writer| json!({
                "operations": writer.operations,
                "operations_per_second": self.per_second(writer.operations),
                "bytes": writer.bytes,
                "latency_micros": latency(&writer.latency),
            })),
        })
    }
}

fn latency(histogram: &Histogram<u64>) -> Value {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    json!({
        "mean": histogram.mean() / 1e3,
        "p50": at(0.5),
        "p99": at(0.99),
        "p99_9": at(0.999),
        "max": histogram.max() as f64 / 1e3,
    })
}

/// A whole run.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(super) store: String,
    pub(super) plan: Plan,
    /// The column family's options and the store's, as far as they may be chosen.
    pub(super) options: Value,
    pub(super) outcomes: Vec<Outcome>,
    /// The benchmark that read a wrong value, and which.
    pub(super) wrong: Option<(Benchmark, Wrong)>,
    pub(super) samples: Samples,
    pub(super) time: Duration,
    pub(super) stats: Stats,
    pub(super) usage: Usage,
    pub(super) peak_anonymous_bytes: Option<u64>,
    /// Keys and values that are in the store, before compression; `None` if that is not known.
    pub(super) live_bytes: Option<u64>,
}

impl Figures {
    /// Bytes on the disk per live byte, both of them as far as they are known.
    pub(super) fn bytes_per_live_byte(&self) -> Option<f64> {
        let live = self.live_bytes.filter(|&bytes| bytes > 0)?;
        Some(self.stats.on_disk.total_bytes() as f64 / live as f64)
    }

    /// `bytes` per byte that was given to the store in this run.
    pub(super) fn per_user_byte(&self, bytes: u64) -> Option<f64> {
        let user = self.stats.written.user_bytes;
        (user > 0).then(|| bytes as f64 / user as f64)
    }

    /// Whether every answer was.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_none()
    }

    /// Everything but what happened between beginning and end.
    pub(crate) fn object(&self) -> Value {
        let written = &self.stats.written;
        json!({
            "store": self.store,
            "plan": self.plan.object(),
            "options": self.options,
            "benchmarks": self.outcomes.iter().map(Outcome::object).collect::<Vec<Value>>(),
            "wrong": self.wrong.as_ref().map(|(benchmark, wrong)| json!({
                "benchmark": benchmark.name(),
                "key": crate::encoding::hex(&wrong.key),
                "what": wrong.fault.to_string(),
            })),
            "run": {
                "seconds": self.time.as_secs_f64(),
                "user_bytes": written.user_bytes,
                "written_bytes": causes(written).into_iter().map(under_score).collect::<serde_json::Map<_, _>>(),
                "write_amplification": self.stats.write_amplification(),
                "stall_seconds": self.stats.stall_micros as f64 / 1e6,
                "on_disk_bytes": kinds(&self.stats.on_disk).into_iter().map(under_score).collect::<serde_json::Map<_, _>>(),
                "live_bytes": self.live_bytes,
                "bytes_on_disk_per_live_byte": self.bytes_per_live_byte(),
                "space_amplification": self.stats.space_amplification(),
                "cpu_seconds": { "user": self.usage.user_seconds, "system": self.usage.system_seconds },
                "peak_rss_bytes": self.usage.peak_rss_bytes,
                "peak_anonymous_bytes": self.peak_anonymous_bytes,
                "device": self.usage.io.object(),
                "flushes": self.stats.flushes,
                "compactions": self.stats.compactions,
                "cache_hits": self.stats.cache.hits,
                "cache_misses": self.stats.cache.misses,
            },
        })
    }
}

/// `flush, tables` as the name of a field: `flush_tables`.
fn under_score((name, bytes): (&str, u64)) -> (String, Value) {
    (name.replace(", ", "_").replace(' ', "_"), bytes.into())
}
