//! The report as a page. Figures are medians of the rounds; ratios are taken within a round, then their median.

use std::fmt::Write;

use super::case::Case;
use super::number::{grouped, multiple, per, time};
use super::{Report, Spread};
use crate::data::KEY_BYTES;
use crate::plan::{Phase, Whole};
use crate::sizes;
use crate::workload::Workload;

/// The whole page.
pub fn markdown(report: &Report) -> String {
    let mut page = String::new();
    head(&mut page, report);
    for case in report.cases() {
        case.print(&mut page);
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

impl Case<'_> {
    fn print(&self, page: &mut String) {
        let Some(plan) = self.plan() else { return };
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
            Workload::Append | Workload::Fetch => "; operations are entries, latency is of a whole write or fetch",
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
            let median =
                |of: fn(&Phase) -> f64| self.phase(engine, number, of).map_or(f64::NAN, |spread| spread.median);
            let Some(Spread { greatest: max, .. }) = self.phase(engine, number, |phase| phase.latency.max as f64)
            else {
                continue;
            };
            line!(
                page,
                "| {engine} | {} | {:.1} | {:.2} | {} | {} | {} | {} | {:.2} | {} | {} | {} |",
                grouped(median(Phase::operations_per_second)),
                median(|phase| phase.user_bytes as f64 / phase.seconds.max(1e-9) / 1e6),
                median(|phase| phase.settle_seconds),
                time(median(|phase| phase.latency.p50 as f64)),
                time(median(|phase| phase.latency.p99 as f64)),
                time(median(|phase| phase.latency.p999 as f64)),
                time(max),
                median(|phase| phase.cost.cpu_seconds / phase.operations.max(1) as f64 * 1e6),
                multiple(median(|phase| per(phase.cost.written_gross_bytes, phase.user_bytes))),
                multiple(median(|phase| per(phase.cost.written_net_bytes(), phase.user_bytes))),
                multiple(median(|phase| per(phase.cost.read_bytes, phase.user_bytes))),
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
            let median = |of: fn(&Whole) -> f64| self.whole(engine, of).map_or(f64::NAN, |spread| spread.median);
            line!(
                page,
                "| {engine} | {} | {} | {} | {} | {:.1} | {} | {} |",
                multiple(median(|run| per(run.cost.written_gross_bytes, run.user_written_bytes))),
                multiple(median(|run| per(run.cost.written_net_bytes(), run.user_written_bytes))),
                multiple(median(|run| per(run.cost.read_bytes, run.user_read_bytes))),
                multiple(median(|run| per(run.disk_bytes, run.live_bytes))),
                median(|run| run.cost.cpu_seconds),
                sizes::print(median(|run| run.rss_peak_bytes as f64)),
                sizes::print(median(|run| run.anonymous_peak_bytes as f64)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cost, Plan, Settings};
    use crate::report::Head;
    use crate::schedule::Outcome;

    #[test]
    fn what_nothing_was_done_for_has_no_ratio() {
        let settings = Settings { memory_bytes: 64 << 20, min_blob_bytes: 256, background_jobs: 2, sync: false };
        let plan = Plan {
            engine: "null".into(),
            directory: "store".into(),
            settings: settings.clone(),
            num: 1,
            reads: 1,
            value_bytes: 100,
            batch: 1,
            range_entries: 1,
            groups: 1,
            keep_entries: 0,
            threads: 1,
            seconds_max: 0,
            seed: 1,
            workloads: Vec::new(),
            cold: false,
        };
        let whole = Whole {
            user_written_bytes: 1_000,
            user_read_bytes: 0,
            live_bytes: 0,
            disk_bytes: 4_096,
            rss_peak_bytes: 0,
            anonymous_peak_bytes: 0,
            cost: Cost { cpu_seconds: 0.0, written_gross_bytes: 2_000, cancelled_bytes: 500, read_bytes: 8_192 },
            version: "1".into(),
            setup: String::new(),
        };
        let head = Head {
            command: String::new(),
            date: String::new(),
            machine: String::new(),
            commit: String::new(),
            build: String::new(),
            settings,
            engines: vec!["null".into()],
            page_cache: String::new(),
        };
        let page = markdown(&Report { head, outcomes: vec![Outcome { round: 0, plan, phases: Vec::new(), whole }] });
        assert!(page.contains("| null | 2.00 | 1.50 | – | – | 0.0 |"), "{page}");
    }
}
