//! Three kinds of figure, each a grid of small panels.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::super::Spread;
use super::super::number::{short, time};
use crate::{Result, sizes};

const COLUMNS: usize = 4;
const PANEL_WIDTH: u32 = 325;
const ROW_HEIGHT: u32 = 19;
const LEGEND_HEIGHT: u32 = 30;
const NAME_WIDTH: u32 = 92;

/// Colours that differ for the colour-blind, too (Okabe and Ito 2008), and a few more for engines beyond eight.
const COLOURS: [(&[&str], RGBColor); 14] = [
    (&["esker", "esker-raft"], RGBColor(0, 114, 178)),
    (&["esker-inline"], RGBColor(86, 180, 233)),
    (&["esker-at-write"], RGBColor(0, 50, 110)),
    (&["esker-mmap"], RGBColor(110, 90, 200)),
    (&["rocksdb", "rocksdb-raft"], RGBColor(213, 94, 0)),
    (&["rocksdb-blob", "raft-engine"], RGBColor(230, 159, 0)),
    (&["fjall"], RGBColor(0, 158, 115)),
    (&["fjall-blob"], RGBColor(120, 200, 150)),
    (&["lmdb"], RGBColor(204, 121, 167)),
    (&["redb"], RGBColor(90, 90, 90)),
    (&["badger"], RGBColor(150, 110, 60)),
    (&["cask"], RGBColor(160, 160, 160)),
    (&["candystore"], RGBColor(240, 228, 66)),
    (&["emdb"], RGBColor(190, 60, 60)),
];

/// The same colour in all reports and builds, whichever engines they compare.
fn colour(engine: &str) -> RGBColor {
    let found = COLOURS.iter().find(|(engines, _)| engines.contains(&engine));
    found.map_or(BLACK, |(_, colour)| *colour)
}

/// One bar.
pub(super) struct Row {
    pub(super) engine: &'static str,
    pub(super) spread: Spread,
}

/// Bars of one quantity, one for each engine.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
    pub(super) print: fn(f64) -> String,
}

/// Three quantiles of one engine.
pub(super) struct Mark {
    pub(super) engine: &'static str,
    pub(super) values: [f64; 3],
}

/// Quantiles of all engines, in nanoseconds.
pub(super) struct Dots {
    pub(super) title: String,
    pub(super) marks: Vec<Mark>,
}

/// One engine's line: where, and the speed there.
pub(super) type Line = (&'static str, Vec<(f64, Spread)>);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A grid for `count` panels of `height`, and `draw` for each.
fn grid(
    count: usize,
    height: u32,
    above: u32,
    draw: impl FnOnce(&Area<'_>, &[Area<'_>]) -> Result<()>,
) -> Result<String> {
    let columns = COLUMNS.min(count.max(1));
    let rows = count.div_ceil(columns).max(1);
    let mut svg = String::new();
    {
        let size = (PANEL_WIDTH * columns as u32, height * rows as u32 + above);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let (legend, body) = root.split_vertically(above);
        draw(&legend, &body.split_evenly((rows, columns)))?;
        root.present().map_err(drawing)?;
    }
    Ok(svg)
}

fn drawing(error: impl std::fmt::Display) -> Box<dyn std::error::Error + Send + Sync> {
    format!("drawing a plot: {error}").into()
}

fn names(area: &Area<'_>, engines: impl Iterator<Item = &'static str>) -> Result<()> {
    for (place, engine) in engines.enumerate() {
        let style = ("sans-serif", 12).into_font().color(&BLACK);
        area.draw_text(engine, &style, (2, 27 + place as i32 * ROW_HEIGHT as i32)).map_err(drawing)?;
    }
    Ok(())
}

fn title(area: &Area<'_>, text: &str) -> Result<()> {
    let style = ("sans-serif", 14).into_font().style(FontStyle::Bold).color(&BLACK);
    area.draw_text(text, &style, (2, 5)).map_err(drawing)
}

/// Horizontal bars with whiskers, each panel with a scale of its own from 0 on.
pub(super) fn bars(panels: &[Panel]) -> Result<String> {
    let most = panels.iter().map(|panel| panel.rows.len()).max().unwrap_or(0) as u32;
    grid(panels.len(), 34 + most * ROW_HEIGHT, 0, |_, areas| {
        panels.iter().zip(areas).try_for_each(|(panel, area)| bar_panel(panel, area))
    })
}

fn bar_panel(panel: &Panel, area: &Area<'_>) -> Result<()> {
    title(area, &panel.title)?;
    names(area, panel.rows.iter().map(|row| row.engine))?;
    let most = panel.rows.iter().map(|row| row.spread.greatest).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    // The rest is for the number behind the longest bar.
    let width = f64::from(PANEL_WIDTH - NAME_WIDTH - 64);
    let x = |value: f64| NAME_WIDTH as i32 + (value / most * width).round() as i32;
    for (place, row) in panel.rows.iter().enumerate() {
        let top = 26 + place as i32 * ROW_HEIGHT as i32;
        let bar = Rectangle::new(
            [(x(0.0), top), (x(row.spread.median).max(x(0.0) + 1), top + 13)],
            colour(row.engine).filled(),
        );
        area.draw(&bar).map_err(drawing)?;
        let (least, greatest) = (x(row.spread.least), x(row.spread.greatest));
        let whisker = vec![
            vec![(least, top + 6), (greatest, top + 6)],
            vec![(least, top + 3), (least, top + 10)],
            vec![(greatest, top + 3), (greatest, top + 10)],
        ];
        for line in whisker {
            area.draw(&PathElement::new(line, BLACK.stroke_width(1))).map_err(drawing)?;
        }
        let style = ("sans-serif", 12).into_font().color(&RGBColor(60, 60, 60));
        let number = (panel.print)(row.spread.median);
        area.draw_text(&number, &style, (greatest.max(x(row.spread.median)) + 5, top + 1)).map_err(drawing)?;
    }
    Ok(())
}

/// Quantiles on a logarithmic scale, which the panels of a figure share.
pub(super) fn dots(panels: &[Dots]) -> Result<String> {
    let most = panels.iter().map(|panel| panel.marks.len()).max().unwrap_or(0) as u32;
    let values =
        || panels.iter().flat_map(|panel| panel.marks.iter().flat_map(|mark| mark.values)).map(|value| value.max(1.0));
    let (least, greatest) = (values().fold(f64::MAX, f64::min), values().fold(1.0, f64::max));
    let decades = (least.log10().floor(), greatest.log10().ceil().max(least.log10().floor() + 1.0));
    grid(panels.len(), 54 + most * ROW_HEIGHT, 0, |_, areas| {
        panels.iter().zip(areas).try_for_each(|(panel, area)| dot_panel(panel, area, decades, most))
    })
}

fn dot_panel(panel: &Dots, area: &Area<'_>, (first, last): (f64, f64), rows: u32) -> Result<()> {
    title(area, &panel.title)?;
    names(area, panel.marks.iter().map(|mark| mark.engine))?;
    let width = f64::from(PANEL_WIDTH - NAME_WIDTH - 26);
    let x = |value: f64| NAME_WIDTH as i32 + ((value.max(1.0).log10() - first) / (last - first) * width).round() as i32;
    let bottom = 28 + (rows * ROW_HEIGHT) as i32;
    for decade in first as i32..=last as i32 {
        let at = 10_f64.powi(decade);
        area.draw(&PathElement::new(vec![(x(at), 24), (x(at), bottom)], RGBColor(225, 225, 225).stroke_width(1)))
            .map_err(drawing)?;
        if (decade - first as i32) % 2 == 0 {
            let style = ("sans-serif", 11).into_font().color(&RGBColor(110, 110, 110));
            area.draw_text(&time(at), &style, (x(at) - 12, bottom + 3)).map_err(drawing)?;
        }
    }
    for (place, mark) in panel.marks.iter().enumerate() {
        let middle = 33 + place as i32 * ROW_HEIGHT as i32;
        let colour = colour(mark.engine);
        let [left, centre, right] = mark.values.map(x);
        area.draw(&PathElement::new(vec![(left, middle), (right, middle)], colour.stroke_width(2))).map_err(drawing)?;
        for (at, radius) in [(left, 4), (centre, 3), (right, 2)] {
            area.draw(&Circle::new((at, middle), radius, colour.filled())).map_err(drawing)?;
        }
    }
    Ok(())
}

/// A line for each engine, both axes logarithmic.
pub(super) fn lines(panels: Vec<(String, Vec<Line>)>) -> Result<String> {
    let mut engines: Vec<&str> = Vec::new();
    for (engine, _) in panels.iter().flat_map(|(_, lines)| lines) {
        if !engines.contains(engine) {
            engines.push(engine);
        }
    }
    grid(panels.len(), 250, LEGEND_HEIGHT, |legend, areas| {
        for (place, engine) in engines.iter().enumerate() {
            let x = 8 + place as i32 * 118;
            legend.draw(&Rectangle::new([(x, 10), (x + 14, 18)], colour(engine).filled())).map_err(drawing)?;
            let style = ("sans-serif", 13).into_font().color(&BLACK);
            legend.draw_text(engine, &style, (x + 19, 8)).map_err(drawing)?;
        }
        panels.iter().zip(areas).try_for_each(|((name, lines), area)| line_panel(name, lines, area))
    })
}

fn line_panel(name: &str, lines: &[Line], area: &Area<'_>) -> Result<()> {
    let points = || lines.iter().flat_map(|(_, line)| line);
    let bounds = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| (least.min(value), most.max(value)))
    };
    let (left, right) = bounds(&mut points().map(|(at, _)| *at));
    let (low, high) = bounds(&mut points().flat_map(|(_, speed)| [speed.least, speed.greatest]));
    if left > right || low > high {
        return Ok(());
    }
    let mut chart = ChartBuilder::on(area)
        .caption(name, ("sans-serif", 14).into_font().style(FontStyle::Bold))
        .margin(6)
        .x_label_area_size(22)
        .y_label_area_size(46)
        .build_cartesian_2d((left * 0.8..right * 1.25).log_scale(), (low * 0.7..high * 1.4).log_scale())
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(228, 228, 228))
        .x_labels(5)
        .y_labels(5)
        .label_style(("sans-serif", 11))
        .x_label_formatter(&|bytes| sizes::print(*bytes))
        .y_label_formatter(&|speed| format!("{}B", short(*speed)))
        .draw()
        .map_err(drawing)?;
    for (engine, line) in lines {
        let colour = colour(engine);
        let path = line.iter().map(|(at, speed)| (*at, speed.median));
        chart.draw_series(LineSeries::new(path, colour.stroke_width(2)).point_size(3)).map_err(drawing)?;
        for (at, speed) in line {
            let whisker = vec![(*at, speed.least), (*at, speed.greatest)];
            chart.draw_series([PathElement::new(whisker, colour.stroke_width(1))]).map_err(drawing)?;
        }
    }
    Ok(())
}
