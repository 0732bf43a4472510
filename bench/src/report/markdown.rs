//! The report as a page. Figures are medians of the rounds; ratios are taken within a round, then their median.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Report, Spread};
use crate::data::KEY_BYTES;
use crate::plan::{Phase, Whole};
use crate::schedule::Outcome;
use crate::sizes;
use crate::workload::Workload;

/// The whole page.
pub fn markdown(report: &Report) -> String {
    let mut page = String::new();
    head(&mut page, report);
    let cases: BTreeSet<(usize, u64)> =
        report.outcomes.iter().map(|outcome| (outcome.plan.value_bytes, outcome.plan.threads)).collect();
    for (value_bytes, threads) in cases {
        Case { report, value_bytes, threads }.print(&mut page);
    }
    page
}

/// Adds a line. Writing to a string cannot fail, so nothing is lost with the result.
macro_rules! line {
    ($page:expr, $($format:tt)*) => {{ let _ = writeln!($page, $($format)*); }};
}

fn head(page: &mut String, report: &Report) {
    let head = &report.head;
    let settings = &head.settings;
    line!(page, "# Esker and its peers\n");
    line!(page, "Made by `{}`; no figure is typed by hand. How to read it: [README](../README.md).\n", head.command);
    line!(page, "- date: {}; Esker at commit {}", head.date, head.commit);
    line!(page, "- machine: {}", head.machine);
    line!(page, "- build: {}", head.build);
    line!(
        page,
        "- memory: {} for caches and write buffers together; values are separated from {} on, by the engines that can",
        sizes::print(settings.memory_bytes as f64),
        sizes::print(settings.min_blob_bytes as f64)
    );
    let durability =
        if settings.sync { "every write survives power loss" } else { "writes survive the process, not power loss" };
    line!(page, "- durability: {durability}");
    line!(page, "- page cache: {}", head.page_cache);
    line!(
        page,
        "- every value read was compared with what must be there, and after a reopening every entry was read again\n"
    );
    line!(page, "| engine | version | set-up |\n|---|---|---|");
    for engine in &head.engines {
        if let Some(outcome) = report.outcomes.iter().find(|outcome| outcome.plan.engine == *engine) {
            line!(page, "| {engine} | {} | {} |", outcome.whole.version, outcome.whole.setup);
        }
    }
}

/// One value size and one number of threads.
struct Case<'a> {
    report: &'a Report,
    value_bytes: usize,
    threads: u64,
}

impl<'a> Case<'a> {
    fn outcomes(&self, engine: &'a str) -> impl Iterator<Item = &'a Outcome> + use<'a> {
        let (value_bytes, threads) = (self.value_bytes, self.threads);
        let is_mine = move |outcome: &&Outcome| {
            let plan = &outcome.plan;
            plan.engine == engine && plan.value_bytes == value_bytes && plan.threads == threads
        };
        self.report.outcomes.iter().filter(is_mine)
    }

    fn phases(&self, engine: &'a str, number: usize) -> impl Iterator<Item = (u32, &'a Phase)> + use<'a> {
        self.outcomes(engine).filter_map(move |outcome| Some((outcome.round, outcome.phases.get(number)?)))
    }

    /// Speed against the reference's in the same round.
    fn ratio(&self, engine: &'a str, number: usize) -> Option<Spread> {
        let reference = self.report.head.engines.first()?;
        let speeds: Vec<(u32, f64)> =
            self.phases(reference, number).map(|(round, phase)| (round, phase.operations_per_second())).collect();
        Spread::of(self.phases(engine, number).filter_map(|(round, phase)| {
            let (_, speed) = speeds.iter().find(|(of, speed)| *of == round && *speed > 0.0)?;
            (phase.operations > 0).then(|| phase.operations_per_second() / speed)
        }))
    }

    fn print(&self, page: &mut String) {
        let engines = &self.report.head.engines;
        let Some(first) = engines.iter().find_map(|engine| self.outcomes(engine).next()) else { return };
        let plan = &first.plan;
        let size = sizes::print(self.value_bytes as f64);
        let s = if self.threads == 1 { "" } else { "s" };
        line!(page, "\n## Values of {size}, {} thread{s}\n", self.threads);
        line!(
            page,
            "{} keys of {KEY_BYTES} B, {} of data, {} operations a phase, {} put{} a write, ranges of {}.\n",
            plan.num,
            sizes::print((plan.num * (self.value_bytes + KEY_BYTES) as u64) as f64),
            plan.reads,
            plan.batch,
            if plan.batch == 1 { "" } else { "s" },
            plan.range_entries
        );
        self.overview(page, &plan.workloads);
        for (number, workload) in plan.workloads.iter().enumerate() {
            self.workload(page, number, *workload);
        }
        self.wholes(page);
    }

    fn overview(&self, page: &mut String, workloads: &[Workload]) {
        let reference = self.report.head.engines.first().map_or("", String::as_str);
        line!(page, "Speed as a multiple of {reference}'s, median (least–greatest of the rounds):\n");
        let names: Vec<_> = workloads.iter().map(|workload| workload.name()).collect();
        line!(page, "| engine | {} |\n|---|{}", names.join(" | "), "---:|".repeat(names.len()));
        for engine in &self.report.head.engines {
            let cells: Vec<_> = (0..workloads.len())
                .map(|number| {
                    self.ratio(engine, number).map_or_else(
                        || "–".to_owned(),
                        |ratio| format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.greatest),
                    )
                })
                .collect();
            line!(page, "| {engine} | {} |", cells.join(" | "));
        }
    }

    fn workload(&self, page: &mut String, number: usize, workload: Workload) {
        let unit = match workload {
            Workload::Scan | Workload::ScanKeys => "; latency of 100 entries",
            Workload::Range => "; operations are entries, latency is of a whole range",
            _ => "",
        };
        line!(page, "\n**{}**{unit}\n", workload.name());
        line!(
            page,
            "| engine | op/s | MB/s | settle s | p50 | p99 | p99.9 | max | CPU s per million | written per user byte, gross | net | read per user byte |"
        );
        line!(page, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
        for engine in &self.report.head.engines {
            let median = |of: fn(&Phase) -> f64| {
                Spread::of(self.phases(engine, number).map(|(_, phase)| of(phase))).map_or(0.0, |spread| spread.median)
            };
            let max = self.phases(engine, number).map(|(_, phase)| phase.latency.max).max().unwrap_or(0);
            if median(|phase| phase.operations as f64) == 0.0 {
                continue;
            }
            line!(
                page,
                "| {engine} | {} | {:.1} | {:.2} | {} | {} | {} | {} | {:.2} | {} | {} | {} |",
                grouped(median(Phase::operations_per_second)),
                median(|phase| phase.user_bytes as f64 / phase.seconds.max(1e-9) / 1e6),
                median(|phase| phase.settle_seconds),
                time(median(|phase| phase.latency.p50 as f64)),
                time(median(|phase| phase.latency.p99 as f64)),
                time(median(|phase| phase.latency.p999 as f64)),
                time(max as f64),
                median(|phase| phase.cost.cpu_seconds / phase.operations.max(1) as f64 * 1e6),
                multiple(median(|phase| phase.cost.written_gross_bytes as f64 / phase.user_bytes.max(1) as f64)),
                multiple(median(|phase| phase.cost.written_net_bytes() as f64 / phase.user_bytes.max(1) as f64)),
                multiple(median(|phase| phase.cost.read_bytes as f64 / phase.user_bytes.max(1) as f64)),
            );
        }
    }

    fn wholes(&self, page: &mut String) {
        line!(page, "\n**the whole run**, settled\n");
        line!(
            page,
            "| engine | written per user byte written, gross | net | read per user byte read | on disk per live byte | CPU s | peak resident | of it anonymous |"
        );
        line!(page, "|---|---:|---:|---:|---:|---:|---:|---:|");
        for engine in &self.report.head.engines {
            let median = |of: fn(&Whole) -> f64| {
                Spread::of(self.outcomes(engine).map(|outcome| of(&outcome.whole))).map_or(0.0, |spread| spread.median)
            };
            line!(
                page,
                "| {engine} | {} | {} | {} | {} | {:.1} | {} | {} |",
                multiple(median(|run| run.cost.written_gross_bytes as f64 / run.user_written_bytes.max(1) as f64)),
                multiple(median(|run| run.cost.written_net_bytes() as f64 / run.user_written_bytes.max(1) as f64)),
                multiple(median(|run| run.cost.read_bytes as f64 / run.user_read_bytes.max(1) as f64)),
                multiple(median(|run| run.disk_bytes as f64 / run.live_bytes.max(1) as f64)),
                median(|run| run.cost.cpu_seconds),
                sizes::print(median(|run| run.rss_peak_bytes as f64)),
                sizes::print(median(|run| run.anonymous_peak_bytes as f64)),
            );
        }
    }
}

/// `1,234,567`.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes for each byte.
fn multiple(number: f64) -> String {
    if number == 0.0 { "0".into() } else { format!("{number:.2}") }
}

/// Nanoseconds, in the unit that leaves few digits.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}
