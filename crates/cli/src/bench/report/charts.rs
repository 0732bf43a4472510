//! Which plots there are.

use std::time::Duration;

use super::axis::{Axis, NINES_MAX, Unit};
use super::plot::Plot;
use crate::bench::outcome::{Figures, Outcome};
use crate::bench::samples::Sample;
use crate::bench::store::Parts;

/// Width and height of a plot beside another.
const HALF: (f64, f64) = (520.0, 240.0);
/// Width and height of one by itself.
const WHOLE: (f64, f64) = (1064.0, 300.0);
/// Steps of a throughput curve, at most: more would be narrower than its line.
const STEPS_MAX: usize = 160;
/// A share of time that writers were held back from which on it is shown.
const STALL_SHOWN: f64 = 0.01;

/// Between two samples of a benchmark.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: f64,
    to: f64,
    per_second: f64,
    /// Share of the writers' time.
    stalled: f64,
}

/// Operations per second over time, and when writers were held back.
pub(super) fn throughput(figures: &Figures, index: usize, outcome: &Outcome) -> String {
    let samples: Vec<&Sample> = figures.samples.of(index).collect();
    let steps = steps(&samples, outcome);
    let most = steps.iter().map(|step| step.per_second).fold(0.0, f64::max);
    let x = Axis::linear("time", Unit::Seconds, steps.last().map_or(0.0, |step| step.to));
    let mut plot = Plot::new(x, Axis::linear("operations per second", Unit::PerSecond, most * 1.05), HALF.0, HALF.1);
    for step in steps.iter().filter(|step| step.stalled > STALL_SHOWN) {
        let words = format!("writers held back {:.0} % of the time", step.stalled * 100.0);
        plot.band(step.from, step.to, "stall", step.stalled.clamp(0.15, 0.9), &words);
    }
    let corners = |step: &Step| [(step.from, step.per_second), (step.to, step.per_second)];
    let line: Vec<(f64, f64)> = steps.iter().flat_map(corners).collect();
    let area: Vec<(f64, f64, f64)> = line.iter().map(|&(x, y)| (x, 0.0, y)).collect();
    plot.area(&area, "faint");
    plot.line(&line, "series-0");
    plot.finish(&format!("{}: operations per second over time", outcome.work.name))
}

/// For how long writers were held back in a benchmark, all threads together.
pub(super) fn stall(figures: &Figures, index: usize) -> Duration {
    let mut stalls = figures.samples.of(index).map(|sample| sample.stall);
    let first = stalls.next().unwrap_or_default();
    stalls.last().unwrap_or(first).saturating_sub(first)
}

fn steps(samples: &[&Sample], outcome: &Outcome) -> Vec<Step> {
    let stride = samples.len().div_ceil(STEPS_MAX).max(1);
    let Some(begin) = samples.first().map(|sample| sample.at) else { return Vec::new() };
    let last = samples.len() - 1;
    let chosen: Vec<&&Sample> = samples
        .iter()
        .enumerate()
        .filter(|(at, _)| at % stride == 0 || *at == last)
        .map(|(_, sample)| sample)
        .collect();
    let mut steps = Vec::new();
    for pair in chosen.windows(2) {
        let [before, after] = pair else { continue };
        let time = (after.at - before.at).as_secs_f64();
        let operations = after.operations.saturating_sub(before.operations) as f64;
        // After the last operation comes a moment in which the run looks on.
        if time <= 0.0 || (operations == 0.0 && after.at - begin > outcome.time) {
            continue;
        }
        let threads = outcome.threads + outcome.beside.as_ref().map_or(0, |beside| beside.threads);
        let stalled = after.stall.saturating_sub(before.stall).as_secs_f64() / (time * threads as f64);
        let (from, to) = ((before.at - begin).as_secs_f64(), (after.at - begin).as_secs_f64());
        steps.push(Step { from, to, per_second: operations / time, stalled: stalled.min(1.0) });
    }
    steps
}

/// The time that each share of the operations stayed below.
pub(super) fn latency(outcome: &Outcome) -> String {
    let histogram = &outcome.tally.latency;
    let x = Axis::percentiles("share of the operations that took no longer", histogram.len());
    let (least, most) = (outcome.micros_at(0.0), outcome.micros_at(1.0));
    let y = Axis::decades("time of an operation", Unit::Micros, least, most);
    let mut plot = Plot::new(x, y, HALF.0, HALF.1);
    let last = (histogram.len().max(10) as f64).log10().min(NINES_MAX);
    let line: Vec<(f64, f64)> = (0..=200)
        .map(|step| last * f64::from(step) / 200.0)
        .map(|nines| (nines, outcome.micros_at(1.0 - 10f64.powf(-nines))))
        .collect();
    let area: Vec<(f64, f64, f64)> = line.iter().map(|&(x, y)| (x, 0.0, y)).collect();
    plot.area(&area, "faint");
    plot.line(&line, "series-0");
    for (quantile, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")] {
        let (nines, micros) = (-(1.0f64 - quantile).log10(), outcome.micros_at(quantile));
        if nines <= last {
            plot.point(nines, micros, "series-0", &format!("{name} {}", y.name(micros)));
        }
    }
    plot.finish(&format!("{}: latency by percentile", outcome.work.name))
}

/// Bytes written so far, by cause.
pub(super) fn written(figures: &Figures) -> String {
    stacked(figures, "bytes written since the run began", |sample| &sample.written)
}

/// Bytes on the disk, by kind of file.
pub(super) fn space(figures: &Figures) -> String {
    stacked(figures, "bytes on disk", |sample| &sample.on_disk)
}

/// Layers one above the other, over the whole run, with the benchmarks as stripes behind.
fn stacked(figures: &Figures, label: &'static str, layers: impl Fn(&Sample) -> &Parts) -> String {
    let samples = figures.samples.all();
    let most = samples
        .iter()
        .map(|sample| layers(sample).iter().map(|(_, bytes)| bytes).sum::<u64>())
        .max()
        .unwrap_or_default();
    let end = samples.last().map_or(0.0, |sample| sample.at.as_secs_f64());
    let x = Axis::linear("time", Unit::Seconds, end);
    let mut plot = Plot::new(x, Axis::linear(label, Unit::Bytes, most as f64 * 1.05), WHOLE.0, WHOLE.1);
    let mut sums: Vec<(f64, u64)> = samples.iter().map(|sample| (sample.at.as_secs_f64(), 0)).collect();
    let count = samples.first().map_or(0, |sample| layers(sample).len());
    for layer in 0..count {
        let mut points = Vec::with_capacity(samples.len());
        for ((at, sum), sample) in sums.iter_mut().zip(samples) {
            let lower = *sum;
            *sum += layers(sample).get(layer).map_or(0, |(_, bytes)| *bytes);
            points.push((*at, lower as f64, *sum as f64));
        }
        plot.area(&points, &format!("series-{layer}"));
    }
    for (index, name) in figures.names.iter().enumerate() {
        let mut of = figures.samples.of(index).map(|sample| sample.at.as_secs_f64());
        let Some(from) = of.next() else { continue };
        let to = of.last().unwrap_or(from);
        plot.band(from, to, "benchmark", 1.0, name);
        plot.mark(from);
        plot.heading(from, to, name);
    }
    plot.finish(label)
}
