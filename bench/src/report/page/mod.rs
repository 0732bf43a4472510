//! The report as a page of plots: one file, nothing to load, the same figures as the tables.

mod plots;

use std::fmt::Write;

use self::plots::{Dots, Mark, Panel, Row};
use super::case::Case;
use super::number::{per, short, time};
use super::{Report, Spread};
use crate::data::KEY_BYTES;
use crate::plan::{Phase, Whole};
use crate::workload::Workload;
use crate::{Result, sizes};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;color:#222;background:#fff;max-width:1320px;margin:2rem auto;\
                     padding:0 1rem}h1{font-size:1.6rem}h2{margin-top:2.6rem;border-top:1px solid #ddd;padding-top:1rem}\
                     figure{margin:1rem 0}figcaption{color:#555}svg{max-width:100%;height:auto}dt{font-weight:600}\
                     dd{margin:0 0 .3rem}code{font-size:.85em;overflow-wrap:anywhere}";

/// The whole page.
///
/// # Errors
/// None in practice: drawing into memory.
pub fn page(report: &Report) -> Result<String> {
    let mut page = String::new();
    write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Esker and its peers</title><style>{STYLE}</style>"
    )?;
    head(&mut page, report)?;
    by_size(&mut page, report)?;
    for case in report.cases() {
        draw_case(&mut page, case)?;
    }
    page += "</html>\n";
    Ok(page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn head(page: &mut String, report: &Report) -> Result<()> {
    let head = &report.head;
    let memory = sizes::print(head.settings.memory_bytes as f64);
    let blobs = sizes::print(head.settings.min_blob_bytes as f64);
    let durability = if head.settings.sync { "every write survives power loss" } else { "writes survive the process" };
    write!(page, "<h1>Esker and its peers</h1><dl>")?;
    let facts = [
        ("Made by", format!("<code>{}</code>, {}, commit {}", escaped(&head.command), head.date, head.commit)),
        ("Machine", escaped(&head.machine)),
        ("Memory", format!("{memory} for caches and write buffers; values separated from {blobs} on")),
        ("Durability", durability.into()),
        ("Page cache", escaped(&head.page_cache)),
        ("Bars", "median of the rounds; the line across goes from the least to the greatest".into()),
    ];
    for (name, fact) in facts {
        write!(page, "<dt>{name}</dt><dd>{fact}</dd>")?;
    }
    page.push_str("</dl>");
    Ok(())
}

fn figure(page: &mut String, caption: &str, svg: &str) -> Result<()> {
    Ok(write!(page, "<figure>{svg}<figcaption>{}</figcaption></figure>", escaped(caption))?)
}

/// Speed over the size of values: one panel for each workload, one line for each engine.
fn by_size(page: &mut String, report: &Report) -> Result<()> {
    let cases = report.cases();
    let mut threads: Vec<_> = cases.iter().map(|case| case.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    for threads in threads {
        let cases: Vec<_> = cases.iter().copied().filter(|case| case.threads == threads).collect();
        let (Some(plan), true) = (cases.first().and_then(Case::plan), cases.len() > 1) else { continue };
        let panels = plan.workloads.iter().enumerate().map(|(number, workload)| {
            let line = |engine: &'static str| {
                let at = |case: &Case<'_>| {
                    let speed =
                        case.phase(engine, number, |phase| phase.user_bytes as f64 / phase.seconds.max(1e-9))?;
                    Some((case.value_bytes as f64, speed))
                };
                cases.iter().filter_map(at).collect::<Vec<_>>()
            };
            let engines = shown(report).map(|engine| (engine, line(engine))).filter(|(_, line)| !line.is_empty());
            (workload.name().to_owned(), engines.collect())
        });
        write!(page, "<h2>By size of value, {threads} thread{}</h2>", if threads == 1 { "" } else { "s" })?;
        figure(
            page,
            "Bytes of keys and values per second over the size of values, both logarithmic.",
            &plots::lines(panels.collect())?,
        )?;
    }
    Ok(())
}

/// Engines with plots: the harness alone would only stretch the scales.
fn shown(report: &Report) -> impl Iterator<Item = &'static str> + use<'_> {
    let entries = report.head.engines.iter().filter(|engine| *engine != "null");
    entries.filter_map(|engine| crate::engine::Entry::find(engine).ok().map(|entry| entry.name))
}

fn draw_case(page: &mut String, case: Case<'_>) -> Result<()> {
    let Some(plan) = case.plan() else { return Ok(()) };
    let size = sizes::print(case.value_bytes as f64);
    let s = if case.threads == 1 { "" } else { "s" };
    let data = sizes::print((plan.num * (case.value_bytes + KEY_BYTES) as u64) as f64);
    write!(page, "<h2>Values of {size}, {} thread{s}: {data} of data</h2>", case.threads)?;
    let rows = |of: &dyn Fn(&str) -> Option<Spread>| -> Vec<Row> {
        let row = |engine: &'static str| Some(Row { engine, spread: of(engine)? });
        shown(case.report).filter_map(row).collect()
    };
    let panels = |of: fn(&Phase) -> f64, print: fn(f64) -> String, better: &str| -> Vec<Panel> {
        let panel = |(number, workload): (usize, &Workload)| Panel {
            title: format!("{}, {better}", workload.name()),
            rows: rows(&|engine| case.phase(engine, number, of)),
            print,
        };
        plan.workloads.iter().enumerate().map(panel).filter(|panel| !panel.rows.is_empty()).collect()
    };
    let speed = panels(Phase::operations_per_second, short, "op/s");
    figure(page, "Operations per second of wall time: longer is better.", &plots::bars(&speed)?)?;
    let cpu = panels(|phase| phase.cost.cpu_seconds / phase.operations.max(1) as f64 * 1e9, time, "CPU");
    figure(
        page,
        "Processor time per operation, background work and settling included: shorter is better.",
        &plots::bars(&cpu)?,
    )?;
    let latency = plan.workloads.iter().enumerate().map(|(number, workload)| {
        let marks = |engine: &'static str| {
            let at = |of: fn(&Phase) -> f64| case.phase(engine, number, of).map(|spread| spread.median);
            let points =
                [|p: &Phase| p.latency.p50 as f64, |p: &Phase| p.latency.p99 as f64, |p: &Phase| p.latency.p999 as f64];
            Some(Mark { engine, values: [at(points[0])?, at(points[1])?, at(points[2])?] })
        };
        Dots { title: workload.name().to_owned(), marks: shown(case.report).filter_map(marks).collect() }
    });
    let latency: Vec<_> = latency.filter(|dots| !dots.marks.is_empty()).collect();
    figure(
        page,
        "Latency: p50, p99 and p99.9, logarithmic; of a write, a read, a range, 100 entries of a full scan.",
        &plots::dots(&latency)?,
    )?;
    let whole = |title: &str, of: fn(&Whole) -> f64, print: fn(f64) -> String| Panel {
        title: title.into(),
        rows: rows(&|engine| case.whole(engine, of)),
        print,
    };
    let wholes = [
        whole(
            "device bytes written per user byte",
            |run| per(run.cost.written_net_bytes(), run.user_written_bytes),
            short,
        ),
        whole("on disk per live byte", |run| per(run.disk_bytes, run.live_bytes), short),
        whole("CPU seconds", |run| run.cost.cpu_seconds, short),
        whole("anonymous memory, peak", |run| run.anonymous_peak_bytes as f64, sizes::print),
    ];
    figure(page, "The whole run, settled: shorter is better.", &plots::bars(&wholes)?)
}
