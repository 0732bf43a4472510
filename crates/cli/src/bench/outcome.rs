//! Figures: of each benchmark, and of the run as a whole.

use std::time::Duration;

use esker::OnDisk;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::benchmark::Benchmark;
use super::fault::Wrong;
use super::process::Usage;
use super::samples::Samples;
use super::store::{Picture, parts_on_disk};
use super::tally::Tally;

/// Names and what they are.
pub(super) type Facts = Vec<(&'static str, String)>;

/// What was done, whatever it was done to.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) name: String,
    /// A few words about it.
    pub(super) about: String,
    /// See [`Benchmark::is_single`].
    pub(super) is_single: bool,
}

impl From<Benchmark> for Work {
    fn from(benchmark: Benchmark) -> Self {
        Self { name: benchmark.name(), about: benchmark.description(), is_single: benchmark.is_single() }
    }
}

/// What other threads did at the same time.
#[derive(Debug)]
pub(super) struct Beside {
    /// Its row: `its writer`.
    pub(super) words: &'static str,
    /// Its field: `writer`.
    pub(super) field: &'static str,
    pub(super) threads: u64,
    pub(super) tally: Tally,
}

/// One benchmark that was run to its end.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) work: Work,
    pub(super) threads: u64,
    pub(super) time: Duration,
    pub(super) tally: Tally,
    pub(super) beside: Option<Beside>,
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
        let mut object = json!({
            "name": self.work.name,
            "threads": self.threads,
            "operations": operations,
            "seconds": self.time.as_secs_f64(),
            "operations_per_second": self.per_second(operations),
            "bytes": bytes,
            "bytes_per_second": self.per_second(bytes),
            "found": found,
            "missing": missing,
            "latency_micros": latency(&self.tally.latency),
            "writer": Value::Null,
        });
        if let (Some(Beside { field, threads, tally, .. }), Some(object)) = (&self.beside, object.as_object_mut()) {
            let beside = json!({
                "threads": threads,
                "operations": tally.operations,
                "operations_per_second": self.per_second(tally.operations),
                "bytes": tally.bytes,
                "latency_micros": latency(&tally.latency),
            });
            object.insert((*field).to_owned(), beside);
        }
        object
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
    /// What was asked for, as an object.
    pub(super) plan: Value,
    /// The same in words.
    pub(super) facts: Facts,
    /// The store's options, as far as they may be chosen.
    pub(super) options: Value,
    /// What all benchmarks are called, those that were not reached too.
    pub(super) names: Vec<String>,
    pub(super) outcomes: Vec<Outcome>,
    /// The benchmark that read a wrong value, and which.
    pub(super) wrong: Option<(String, Wrong)>,
    pub(super) samples: Samples,
    pub(super) time: Duration,
    /// The store when all was done.
    pub(super) end: Picture,
    pub(super) usage: Usage,
    pub(super) peak_anonymous_bytes: Option<u64>,
    /// Keys and values that are in the store, before compression; `None` if that is not known.
    pub(super) live_bytes: Option<u64>,
}

impl Figures {
    /// Bytes on the disk per live byte, both of them as far as they are known.
    pub(super) fn bytes_per_live_byte(&self) -> Option<f64> {
        let live = self.live_bytes.filter(|&bytes| bytes > 0)?;
        Some(self.end.disk_bytes() as f64 / live as f64)
    }

    /// `bytes` per byte that was given to the store in this run.
    pub(super) fn per_user_byte(&self, bytes: u64) -> Option<f64> {
        let user = self.end.user_bytes;
        (user > 0).then(|| bytes as f64 / user as f64)
    }

    /// What a closed store takes up is what the run left: an open one preallocates.
    pub(crate) fn left_on_disk(&mut self, on_disk: &OnDisk) {
        self.end.on_disk = parts_on_disk(on_disk);
    }

    /// Whether every answer was.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_none()
    }

    /// Everything but what happened between beginning and end.
    pub(crate) fn object(&self) -> Value {
        let end = &self.end;
        let mut object = json!({
            "store": self.store,
            "plan": self.plan,
            "options": self.options,
            "benchmarks": self.outcomes.iter().map(Outcome::object).collect::<Vec<Value>>(),
            "wrong": self.wrong.as_ref().map(|(benchmark, wrong)| json!({
                "benchmark": benchmark,
                "key": wrong.spot.text(),
                "what": wrong.fault.to_string(),
            })),
            "run": {
                "seconds": self.time.as_secs_f64(),
                "user_bytes": end.user_bytes,
                "written_bytes": end.written.iter().map(under_score).collect::<serde_json::Map<_, _>>(),
                "write_amplification": self.per_user_byte(end.written_bytes()),
                "stall_seconds": end.stall.as_secs_f64(),
                "on_disk_bytes": end.on_disk.iter().map(under_score).collect::<serde_json::Map<_, _>>(),
                "live_bytes": self.live_bytes,
                "bytes_on_disk_per_live_byte": self.bytes_per_live_byte(),
                "space_amplification": end.space_amplification,
                "cpu_seconds": { "user": self.usage.user_seconds, "system": self.usage.system_seconds },
                "peak_rss_bytes": self.usage.peak_rss_bytes,
                "peak_anonymous_bytes": self.peak_anonymous_bytes,
                "device": self.usage.io.object(),
            },
        });
        if let Some(run) = object.get_mut("run").and_then(Value::as_object_mut) {
            run.extend(end.counts.iter().map(under_score));
        }
        object
    }
}

/// `flush, tables` as the name of a field: `flush_tables`.
fn under_score((name, count): &(&str, u64)) -> (String, Value) {
    (name.replace(", ", "_").replace(' ', "_"), (*count).into())
}
