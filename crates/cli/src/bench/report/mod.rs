//! The figures of a run as one page: HTML with its style and plots in it, without scripts and without anything from
//! elsewhere, so that it can be kept, sent and read as it is.

mod axis;
mod charts;
mod plot;

use std::fmt::Write;
use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use super::outcome::{Figures, Outcome};
use super::print::{HEAD, cells, short, whole_run};
use super::samples::Sample;
use super::store::Parts;
use crate::failure::Failure;
use crate::sizes::{Bytes, Count};

const STYLE: &str = include_str!("style.css");

/// Whether a page can be written to `path`. Changes nothing that is there.
pub(crate) fn expect(path: &Path) -> Result<(), Failure> {
    let is_new = path.symlink_metadata().is_err();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let tried = opened.and_then(|_| if is_new { std::fs::remove_file(path) } else { Ok(()) });
    tried.map_err(|error| Failure::io("writing", path, &error))
}

/// Writes the page to `path`, in place of what is there.
pub(crate) fn write(figures: &Figures, path: &Path) -> Result<(), Failure> {
    std::fs::write(path, page(figures)).map_err(|error| Failure::io("writing", path, &error))
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `write!` into a `String` cannot fail.
macro_rules! add {
    ($to:expr, $($words:tt)*) => { let _ = write!($to, $($words)*); };
}

fn page(figures: &Figures) -> String {
    let mut page = String::with_capacity(1 << 16);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    add!(page, "<title>esker bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n");
    head(&mut page, figures);
    summary(&mut page, figures);
    page.push_str("<h2>The run</h2>\n");
    run(&mut page, figures);
    page.push_str("<h2>Each benchmark</h2>\n");
    for (index, outcome) in figures.outcomes.iter().enumerate() {
        card(&mut page, figures, index, outcome);
    }
    let version = env!("CARGO_PKG_VERSION");
    add!(page, "<footer>esker {version}; every answer was checked. MB are 10⁶ bytes, MiB 2²⁰.</footer>\n");
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// What was measured, and with what.
fn head(page: &mut String, figures: &Figures) {
    add!(
        page,
        "<header>\n<h1>esker bench</h1>\n<p class=\"store\">{}</p>\n<ul class=\"facts\">\n",
        escape(&figures.store)
    );
    let mut fact = |name: &str, value: &str| {
        add!(page, "<li><span>{}</span> {}</li>\n", escape(name), escape(value));
    };
    figures.facts.iter().for_each(|(name, value)| fact(name, value));
    for (name, value) in figures.options.as_object().into_iter().flatten() {
        let value = match value.as_u64() {
            Some(bytes) if name.ends_with("bytes") || name.ends_with("size") => Bytes(bytes).to_string(),
            _ => value.to_string().replace('"', ""),
        };
        fact(&name.replace('_', " "), &value);
    }
    page.push_str("</ul>\n");
    if let Some((benchmark, wrong)) = &figures.wrong {
        let wrong = escape(&wrong.to_string());
        add!(page, "<p class=\"wrong\">Wrong answer in {benchmark}: {wrong}</p>\n");
    }
    page.push_str("</header>\n");
}

/// The table of all benchmarks.
fn summary(page: &mut String, figures: &Figures) {
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for name in HEAD {
        add!(page, "<th>{name}</th>");
    }
    page.push_str("</tr></thead>\n");
    page.push_str("<tbody>\n");
    for (index, outcome) in figures.outcomes.iter().enumerate() {
        let name = &outcome.work.name;
        add!(page, "<tr><th><a href=\"#b{index}\" title=\"{}\">{name}</a></th>", escape(&outcome.work.about));
        for cell in cells(outcome, &outcome.tally) {
            add!(page, "<td>{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

/// What the run as a whole cost, with the plots over all of it.
fn run(page: &mut String, figures: &Figures) {
    page.push_str("<section class=\"card\">\n<h3>Bytes written, by cause</h3>\n");
    let per_user_byte = |bytes| figures.per_user_byte(bytes).map(|factor| format!(", {factor:.2} per user byte"));
    legend(page, figures, |sample| &sample.written, &figures.end.written, per_user_byte);
    page.push_str(&charts::written(figures));
    page.push_str("\n</section>\n<section class=\"card\">\n<h3>Space on disk</h3>\n");
    legend(page, figures, |sample| &sample.on_disk, &figures.end.on_disk, |_| None);
    page.push_str(&charts::space(figures));
    page.push_str("\n</section>\n<section class=\"card\">\n<h3>Cost</h3>\n<dl>\n");
    for (name, words) in whole_run(figures) {
        add!(page, "<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(&words));
    }
    page.push_str("</dl>\n</section>\n");
}

/// What the colours mean. A layer that was never there has no place in it.
fn legend(
    page: &mut String,
    figures: &Figures,
    of: impl Fn(&Sample) -> &Parts,
    end: &Parts,
    note: impl Fn(u64) -> Option<String>,
) {
    let was_there = |layer: usize| {
        figures.samples.all().iter().any(|sample| of(sample).get(layer).is_some_and(|(_, bytes)| *bytes > 0))
    };
    page.push_str("<ul class=\"legend\">\n");
    for (index, (name, bytes)) in end.iter().enumerate().filter(|(index, _)| was_there(*index)) {
        let note = note(*bytes).unwrap_or_default();
        let bytes = Bytes(*bytes);
        add!(page, "<li><i class=\"series-{index}\"></i>{name} <span>{bytes}{note} at the end</span></li>\n");
    }
    page.push_str("</ul>\n");
}

/// One benchmark: throughput and latency side by side.
fn card(page: &mut String, figures: &Figures, index: usize, outcome: &Outcome) {
    let name = &outcome.work.name;
    let what = escape(&outcome.work.about);
    add!(page, "<section class=\"card\" id=\"b{index}\">\n<h3>{name} <span>{what}</span></h3>\n<p>");
    if outcome.work.is_single {
        add!(page, "<b>{}</b> seconds", short(outcome.time.as_secs_f64()));
    } else {
        let rate = |operations| Count(outcome.per_second(operations) as u64);
        add!(page, "<b>{}</b> operations per second, ", rate(outcome.tally.operations));
        add!(page, "<b>{}</b> MB/s", short(outcome.per_second(outcome.tally.bytes) / 1e6));
        if let Some(beside) = &outcome.beside {
            add!(page, "; {} <b>{}</b> per second", beside.words, rate(beside.tally.operations));
        }
    }
    let stall = charts::stall(figures, index);
    if stall > Duration::ZERO {
        let seconds = short(stall.as_secs_f64());
        add!(page, ", <i class=\"swatch\"></i>writers held back for <b>{seconds}</b> seconds");
    }
    page.push_str("</p>\n");
    if !outcome.work.is_single {
        page.push_str("<div class=\"pair\">\n");
        page.push_str(&charts::throughput(figures, index, outcome));
        page.push_str(&charts::latency(outcome));
        page.push_str("\n</div>\n");
    }
    page.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
