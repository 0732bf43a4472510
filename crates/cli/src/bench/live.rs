//! A line on stderr that says how a benchmark goes, if a person looks at it.

use std::cell::Cell;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::sizes::Count;

/// Parts of the bar.
const STEPS: u64 = 1000;

/// Between two lines that differ: numbers that change faster cannot be read.
const INTERVAL: Duration = Duration::from_millis(250);

/// Draws nothing unless stderr is a terminal, and leaves nothing behind.
#[derive(Debug)]
pub(super) struct Live {
    bar: ProgressBar,
    /// Operations and time when it was last shown.
    shown: Cell<(u64, Duration)>,
}

impl Live {
    pub(super) fn begin(name: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{prefix:16} {wide_bar} {percent:>3}% {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(name.to_owned());
        Self { bar, shown: Cell::new((0, Duration::ZERO)) }
    }

    /// So much is done, from 0 to 1, by so many operations in that time.
    pub(super) fn show(&self, fraction: f64, operations: u64, time: Duration) {
        if time.saturating_sub(self.shown.get().1) < INTERVAL {
            return;
        }
        let (operations_before, time_before) = self.shown.replace((operations, time));
        let rate = |operations: u64, time: Duration| Count((operations as f64 / time.as_secs_f64().max(1e-6)) as u64);
        let now = rate(operations.saturating_sub(operations_before), time.saturating_sub(time_before));
        self.bar.set_position((fraction * STEPS as f64) as u64);
        self.bar.set_message(format!("{now} ops/s now, {} on average", rate(operations, time)));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
