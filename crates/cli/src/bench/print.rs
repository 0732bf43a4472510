//! Figures for people.

use super::outcome::{Figures, Outcome};
use super::tally::Tally;
use crate::columns::Columns;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes::{Bytes, Count};

/// The columns of the table of benchmarks.
pub(super) const HEAD: [&str; 9] =
    ["benchmark", "operations", "seconds", "ops/s", "MB/s", "p50 µs", "p99 µs", "p99.9 µs", "max µs"];

/// A table of the benchmarks, then the run as a whole.
pub(crate) fn print(out: &mut Output, figures: &Figures) -> Result<(), Failure> {
    table(&figures.outcomes).lines("").iter().try_for_each(|line| out.line(line))?;
    for outcome in &figures.outcomes {
        if outcome.tally.missing > 0 && outcome.tally.found > 0 {
            let (name, found) = (&outcome.work.name, Count(outcome.tally.found));
            out.line(format_args!("{name}: {found} found, {} not there", Count(outcome.tally.missing)))?;
        }
    }
    out.line("")?;
    run(figures).lines("").iter().try_for_each(|line| out.line(line))?;
    if let Some((benchmark, wrong)) = &figures.wrong {
        out.line("")?;
        out.line(format_args!("WRONG ANSWER in {benchmark}: {wrong}"))?;
    }
    Ok(())
}

fn table(outcomes: &[Outcome]) -> Columns {
    let mut columns = Columns::with_head(&HEAD);
    for outcome in outcomes {
        columns.row(row(outcome.work.name.clone(), outcome, &outcome.tally));
        if let Some(beside) = &outcome.beside {
            columns.row(row(format!("  {}", beside.words), outcome, &beside.tally));
        }
    }
    columns
}

fn row(name: String, outcome: &Outcome, tally: &Tally) -> Vec<String> {
    let mut row = vec![name];
    row.extend(cells(outcome, tally));
    row
}

/// What stands behind the name, see [`HEAD`]. What is done once has a time, and nothing else.
pub(super) fn cells(outcome: &Outcome, tally: &Tally) -> Vec<String> {
    let mut cells = vec![Count(tally.operations).to_string(), format!("{:.3}", outcome.time.as_secs_f64())];
    if outcome.work.is_single {
        return cells;
    }
    cells.push(Count(outcome.per_second(tally.operations) as u64).to_string());
    cells.push(short(outcome.per_second(tally.bytes) / 1e6));
    for quantile in [0.5, 0.99, 0.999, 1.0] {
        cells.push(short(tally.latency.value_at_quantile(quantile) as f64 / 1e3));
    }
    cells
}

/// Three digits, or the whole number if it has more: `0.123`, `4.56`, `78.9`, `12345`.
pub(super) fn short(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number < 0.9995 => format!("{number:.3}"),
        number if number < 9.995 => format!("{number:.2}"),
        number if number < 99.95 => format!("{number:.1}"),
        number => format!("{number:.0}"),
    }
}

/// What the run as a whole cost: pairs of a name and words.
pub(super) fn whole_run(figures: &Figures) -> Vec<(&'static str, String)> {
    let (end, usage) = (&figures.end, &figures.usage);
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    let mut rows = vec![("user bytes", Bytes(end.user_bytes).to_string())];
    let per_user_byte = |bytes| match figures.per_user_byte(bytes) {
        Some(factor) => format!(" ({factor:.2} per user byte)"),
        None => String::new(),
    };
    let written = end.written_bytes();
    rows.push(("written", format!("{}{}", Bytes(written), per_user_byte(written))));
    for &(cause, bytes) in &end.written {
        if bytes > 0 {
            rows.push((cause, format!("{}{}", Bytes(bytes), per_user_byte(bytes))));
        }
    }
    rows.push(("writers held back", format!("{:.3} s", end.stall.as_secs_f64())));
    let on_disk: Vec<String> = end
        .on_disk
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(kind, bytes)| format!("{kind} {}", Bytes(*bytes)))
        .collect();
    rows.push(("on disk", format!("{} ({})", Bytes(end.disk_bytes()), on_disk.join(", "))));
    rows.push(match (figures.bytes_per_live_byte(), end.space_amplification) {
        (Some(factor), _) => ("bytes on disk per live byte", format!("{factor:.2}")),
        (None, Some(factor)) => ("bytes on disk per live byte", format!("about {factor:.2}, as the store estimates")),
        (None, None) => ("bytes on disk per live byte", "unknown".to_owned()),
    });
    rows.push((
        "processor",
        format!(
            "{:.2} s user, {:.2} s system in {:.2} s",
            usage.user_seconds,
            usage.system_seconds,
            figures.time.as_secs_f64()
        ),
    ));
    let anonymous = known(figures.peak_anonymous_bytes);
    rows.push(("peak memory", format!("{} resident, {anonymous} anonymous", known(usage.peak_rss_bytes))));
    rows.push((
        "device",
        format!(
            "{} written, {} without what was deleted in time; {} read",
            known(usage.io.write_bytes),
            known(usage.io.net_write_bytes()),
            known(usage.io.read_bytes)
        ),
    ));
    rows.extend(end.words.iter().cloned());
    rows
}

fn run(figures: &Figures) -> Columns {
    let mut columns = Columns::default();
    let rows = whole_run(figures);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, words) in rows {
        columns.row(vec![format!("{name:<width$}  {words}")]);
    }
    columns
}
