//! `esker torture STORE --minutes N`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::Answer;
use crate::failure::{Failure, one_line, path_text};
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::plural;
use crate::torture::{self, Choice, Report, Request, child};

/// Kill processes that write, and see that nothing is lost
///
/// Starts processes that write to stores in STORE, which must be empty or not exist, kills them with -9 at random moments, opens what they
/// leave, and compares it with what they had acknowledged, which this process keeps. Exit code 1 if anything is lost,
/// wrong, or back: then the store is kept, and a command that repeats the run is printed.
#[derive(Debug, Args)]
pub(crate) struct Torture {
    /// Where stores are made; removed at the end, unless something is wrong
    store: PathBuf,

    /// How long
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,

    /// Which engine's stores [default: all three, in turn]
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    /// Of a Db, let all large values go to blob files as they are written, instead of now and then
    #[arg(long)]
    at_write: bool,

    /// Chooses operations, options and moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// A directory on a small file system, which every third round fills up; without stores of an earlier run
    #[arg(long, value_name = "DIR")]
    full_disk: Option<PathBuf>,

    /// Be the process that is killed
    #[arg(long, hide = true)]
    child: bool,

    /// What the child's options are chosen by
    #[arg(long, hide = true, default_value_t = 0)]
    choice: u64,

    /// How many operations each of the child's threads has done
    #[arg(long, hide = true)]
    done: Vec<u64>,
}

impl Torture {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        if self.child {
            let kind = self.kind.unwrap_or(Kind::Db);
            let (path, seed) = (&self.store, self.seed);
            let choice = Choice { random: self.choice, at_write: self.at_write };
            child::run(&child::Start { kind, path, seed, choice, done: self.done })?;
            return Ok(Answer::Yes);
        }
        let time = Duration::try_from_secs_f64(self.minutes * 60.0)
            .map_err(|error| Failure::new(format_args!("--minutes {}: {error}", self.minutes)))?;
        let request = Request {
            path: self.store,
            kinds: self.kind.map_or_else(|| vec![Kind::Db, Kind::Cask, Kind::Raft], |kind| vec![kind]),
            time,
            seed: self.seed,
            at_write: self.at_write,
            full_disk: self.full_disk,
        };
        let bar = Line::new();
        let report = torture::run(&request, &mut |report| bar.tell(&summary(report)))?;
        drop(bar);
        out.line(summary(&report))?;
        if request.full_disk.is_none() {
            out.line("no full disk in the rotation: give a directory on a small file system with --full-disk")?;
        }
        let Some((what, path)) = report.failure else { return Ok(Answer::Yes) };
        out.line(one_line(&format!("WRONG: {what}")))?;
        out.line(format_args!("the store is kept: {}", path_text(&path)))?;
        let kind = self.kind.map(|kind| format!(" --kind {}", torture::name(kind))).unwrap_or_default();
        let at_write = if self.at_write { " --at-write" } else { "" };
        let full_disk = request.full_disk.map(|dir| format!(" --full-disk {}", path_text(&dir))).unwrap_or_default();
        let (minutes, seed) = (self.minutes, self.seed);
        let again = format!("esker torture DIR --minutes {minutes} --seed {seed}{kind}{at_write}{full_disk}");
        out.line(format_args!("again: {again}"))?;
        Ok(Answer::No)
    }
}

fn summary(report: &Report) -> String {
    format!(
        "{} killed, {} of them while opening, {} on a full disk; {} acknowledged and found, {} under way and kept, {} compared",
        plural(report.kills, "process", "processes"),
        report.kills_in_open,
        report.full_disks,
        plural(report.acknowledged, "operation", "operations"),
        report.in_flight_kept,
        plural(report.compared, "value", "values"),
    )
}

/// A line on stderr that is written over, if a person looks at it.
struct Line(indicatif::ProgressBar);

impl Line {
    fn new() -> Self {
        let target = indicatif::ProgressDrawTarget::stderr();
        let bar = indicatif::ProgressBar::with_draw_target(None, target);
        if let Ok(style) = indicatif::ProgressStyle::with_template("{elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn tell(&self, message: &str) {
        self.0.set_message(message.to_owned());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
