//! A bar on stderr while something long goes on, if a person looks at it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TEMPLATE: &str =
    "{msg} {wide_bar} {percent:>3}% {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// Counts bytes. Draws nothing unless stderr is a terminal, and leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Something of `total_bytes` begins; 0 where only the first [`set`](Self::set) says how much it is.
    pub(crate) fn begin(doing: &'static str, total_bytes: u64) -> Self {
        // Of 0 bytes all would be done.
        let length = Some(total_bytes).filter(|total| *total > 0);
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(doing);
        Self(bar)
    }

    /// Something whose end is not known begins.
    pub(crate) fn begin_endless(doing: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} {binary_bytes} {binary_bytes_per_sec} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(doing);
        Self(bar)
    }

    /// `bytes` more are done.
    pub(crate) fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// `done_bytes` of `total_bytes` are done.
    pub(crate) fn set(&self, done_bytes: u64, total_bytes: u64) {
        self.0.set_length(total_bytes);
        self.0.set_position(done_bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_before_it_is_known_how_much_there_is() {
        let bar = Progress::begin("checking", 0);
        assert_eq!(bar.0.length(), None);
        bar.set(1, 2);
        assert_eq!((bar.0.length(), bar.0.position()), (Some(2), 1));
    }
}
