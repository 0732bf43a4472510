//! Axes: from numbers to places, and which numbers are written beside them.

use crate::bench::print::short;
use crate::sizes::Bytes;

/// Marks on an axis, at most: upwards, and along the time.
const TICKS: f64 = 5.0;
const TIME_TICKS: f64 = 8.0;
/// The finest share that is told from all: 1 in 10 million.
pub(super) const NINES_MAX: f64 = 7.0;

/// What numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    PerSecond,
    Bytes,
    Micros,
}

/// How numbers become places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// From 0 to this.
    Linear(f64),
    /// From one power of ten to another.
    Decades(i32, i32),
    /// Shares of all, as the power of ten of what is left: 0.99 is 2. From 0 to this.
    Percentiles(f64),
}

/// One axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) unit: Unit,
    pub(super) scale: Scale,
}

impl Axis {
    /// From 0 to at least `most`.
    pub(super) fn linear(label: &'static str, unit: Unit, most: f64) -> Self {
        Self { label, unit, scale: Scale::Linear(if most > 0.0 { most } else { 1.0 }) }
    }

    /// Powers of ten around `least` and `most`.
    pub(super) fn decades(label: &'static str, unit: Unit, least: f64, most: f64) -> Self {
        let low = least.max(1e-3).log10().floor() as i32;
        let high = (most.max(1e-3).log10().ceil() as i32).max(low + 1);
        Self { label, unit, scale: Scale::Decades(low, high) }
    }

    /// As far as `count` operations can tell.
    pub(super) fn percentiles(label: &'static str, count: u64) -> Self {
        let nines = (count.max(10) as f64).log10().min(NINES_MAX);
        Self { label, unit: Unit::PerSecond, scale: Scale::Percentiles(nines) }
    }

    /// Where `value` lies, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear(most) => value / most,
            Scale::Decades(low, high) => {
                (value.max(f64::MIN_POSITIVE).log10() - f64::from(low)) / f64::from(high - low)
            }
            Scale::Percentiles(nines) => value / nines,
        };
        place.clamp(0.0, 1.0)
    }

    /// What is written beside the axis: values and their names.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear(most) => {
                let step = match self.unit {
                    Unit::Bytes => (most / TICKS).log2().ceil().exp2(),
                    Unit::Seconds => round_step(most / TIME_TICKS),
                    _ => round_step(most / TICKS),
                };
                let count = (most / step + 1e-9).floor() as u32;
                (0..=count).map(|index| f64::from(index) * step).map(|value| (value, self.name(value))).collect()
            }
            Scale::Decades(low, high) => {
                (low..=high).map(|power| 10f64.powi(power)).map(|value| (value, self.name(value))).collect()
            }
            Scale::Percentiles(nines) => {
                let mut ticks = vec![(0.5f64.log10().abs(), "50 %".to_owned())];
                for power in 1..=nines as usize {
                    let share = match power {
                        1 => "90 %".to_owned(),
                        2 => "99 %".to_owned(),
                        more => format!("99.{} %", "9".repeat(more - 2)),
                    };
                    ticks.push((power as f64, share));
                }
                ticks
            }
        }
    }

    /// `value` with its unit.
    pub(super) fn name(&self, value: f64) -> String {
        match self.unit {
            Unit::Seconds => format!("{} s", plain(value)),
            Unit::Bytes => Bytes(value as u64).to_string().replace(".0 ", " "),
            Unit::PerSecond => match value {
                value if value >= 1e6 => format!("{} M", plain(value / 1e6)),
                value if value >= 1e3 => format!("{} k", plain(value / 1e3)),
                value => plain(value),
            },
            Unit::Micros => match value {
                value if value >= 1e6 => format!("{} s", plain(value / 1e6)),
                value if value >= 1e3 => format!("{} ms", plain(value / 1e3)),
                value if value >= 1.0 => format!("{} µs", plain(value)),
                value => format!("{} ns", plain(value * 1e3)),
            },
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|&round| round >= step * 0.999).unwrap_or(step)
}

/// Three digits, or all before the point, without zeroes at the end.
fn plain(value: f64) -> String {
    let text = short(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round_numbers_with_units() {
        let linear = |unit, most| names(Axis::linear("", unit, most));
        assert_eq!(linear(Unit::PerSecond, 1.2e6), ["0", "500 k", "1 M"]);
        assert_eq!(linear(Unit::Seconds, 0.9), ["0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s"]);
        assert_eq!(linear(Unit::Seconds, 57.0), ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]);
        assert_eq!(linear(Unit::Bytes, 3e6), ["0 B", "1 MiB", "2 MiB"]);
        assert_eq!(
            names(Axis::decades("", Unit::Micros, 0.5, 2e3)),
            ["100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]
        );
        assert_eq!(names(Axis::percentiles("", 2000)), ["50 %", "90 %", "99 %", "99.9 %"]);
    }

    #[test]
    fn places_lie_within_the_axis() {
        let axis = Axis::decades("", Unit::Micros, 1.0, 100.0);
        assert_eq!((axis.place(1.0), axis.place(10.0), axis.place(1e9), axis.place(0.0)), (0.0, 0.5, 1.0, 0.0));
        assert_eq!(Axis::linear("", Unit::Bytes, 0.0).place(0.0), 0.0);
    }
}
