//! One plot as inline SVG. Colours are classes, so that the page's style sheet decides them, for light and dark.

use std::fmt::Write;

use super::axis::Axis;
use super::escape;

/// Room around the plotted area for what is written beside it.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 40.0;

/// A plot that is being drawn: what comes later lies on top.
#[derive(Debug)]
pub(super) struct Plot {
    x: Axis,
    y: Axis,
    width: f64,
    height: f64,
    body: String,
}

/// `write!` into a `String` cannot fail.
macro_rules! draw {
    ($to:expr, $($words:tt)*) => { let _ = write!($to, $($words)*); };
}

impl Plot {
    pub(super) fn new(x: Axis, y: Axis, width: f64, height: f64) -> Self {
        Self { x, y, width, height, body: String::new() }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.height - BOTTOM - self.y.place(value) * (self.height - TOP - BOTTOM)
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    /// A stripe over the whole height, `strength` from 0 to 1.
    pub(super) fn band(&mut self, from: f64, to: f64, class: &str, strength: f64, title: &str) {
        let (left, right) = (self.x(from), self.x(to));
        let (width, height) = ((right - left).max(0.5), self.bottom() - TOP);
        draw!(
            self.body,
            r#"<rect class="{class}" x="{left:.1}" y="{TOP}" width="{width:.1}" height="{height:.1}" opacity="{strength:.2}"><title>{}</title></rect>"#,
            escape(title)
        );
    }

    /// Words at the top of a stripe, if they fit into it.
    pub(super) fn heading(&mut self, from: f64, to: f64, words: &str) {
        let (left, right) = (self.x(from), self.x(to));
        // About the width of a letter at the size of the style sheet.
        if right - left >= words.chars().count() as f64 * 6.5 {
            let middle = (left + right) / 2.0;
            draw!(self.body, r#"<text class="heading" x="{middle:.1}" y="{:.1}">{}</text>"#, TOP - 7.0, escape(words));
        }
    }

    /// A vertical line.
    pub(super) fn mark(&mut self, at: f64) {
        let (x, bottom) = (self.x(at), self.bottom());
        draw!(self.body, r#"<line class="mark" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/>"#);
    }

    /// A line through points.
    pub(super) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let path = self.path(points.iter().copied());
        draw!(self.body, r#"<polyline class="line {class}" points="{path}"/>"#);
    }

    /// What lies between two lines over the same places: `(x, lower, upper)`.
    pub(super) fn area(&mut self, points: &[(f64, f64, f64)], class: &str) {
        let upper = points.iter().map(|&(x, _, upper)| (x, upper));
        let lower = points.iter().rev().map(|&(x, lower, _)| (x, lower));
        let path = self.path(upper.chain(lower));
        draw!(self.body, r#"<polygon class="area {class}" points="{path}"/>"#);
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points {
            draw!(path, "{:.1},{:.1} ", self.x(x), self.y(y));
        }
        path
    }

    /// A point with its value beside it.
    pub(super) fn point(&mut self, x: f64, y: f64, class: &str, words: &str) {
        let (at_x, at_y) = (self.x(x), self.y(y));
        // To the left where there is no room to the right.
        let (anchor, offset) = if at_x > self.width * 0.75 { ("end", -6.0) } else { ("start", 6.0) };
        draw!(
            self.body,
            r#"<circle class="point {class}" cx="{at_x:.1}" cy="{at_y:.1}" r="3"/><text class="value" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
            at_x + offset,
            at_y - 6.0,
            escape(words)
        );
    }

    /// The whole, with axes. `title` is for those who cannot see it.
    pub(super) fn finish(self, title: &str) -> String {
        let (width, height) = (self.width, self.height);
        let mut svg = format!(r#"<svg viewBox="0 0 {width} {height}" role="img" aria-label="{}">"#, escape(title));
        let right = width - RIGHT;
        for (value, name) in self.y.ticks() {
            let y = self.y(value);
            draw!(
                svg,
                r#"<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{name}</text>"#,
                LEFT - 6.0,
                y + 4.0
            );
        }
        svg.push_str(&self.body);
        for (value, name) in self.x.ticks() {
            let x = self.x(value);
            draw!(
                svg,
                r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{name}</text>"#,
                self.bottom(),
                self.bottom() + 4.0,
                self.bottom() + 17.0
            );
        }
        draw!(
            svg,
            r#"<line class="axis" x1="{LEFT}" x2="{right}" y1="{0:.1}" y2="{0:.1}"/><text class="label" x="{1:.1}" y="{2:.1}" text-anchor="end">{3}</text><text class="label" x="2" y="11">{4}</text></svg>"#,
            self.bottom(),
            right,
            height - 4.0,
            self.x.label,
            self.y.label
        );
        svg
    }
}
