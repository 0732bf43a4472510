//! A report: what was compared on which machine, every run's figures, and what they come to. Kept as JSON lines, shown
//! as Markdown and as a page of plots; whatever is shown is computed from the lines.

mod case;
pub mod machine;
mod markdown;
mod median;
mod number;
mod page;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::compare::Comparison;
use crate::plan::Settings;
use crate::schedule::Outcome;

pub use markdown::markdown;
pub use median::Spread;
pub use page::page;

/// What holds for all runs of a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    /// The arguments that ask for it again.
    pub command: String,
    /// The day, UTC.
    pub date: String,
    /// Processor, memory, kernel, file system.
    pub machine: String,
    /// The commit of Esker, `+` if there were changes since.
    pub commit: String,
    /// The compiler, and the flags for every engine.
    pub build: String,
    /// What every engine got alike.
    pub settings: Settings,
    /// Names, the reference first.
    pub engines: Vec<String>,
    /// What was done about the page cache.
    pub page_cache: String,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Report {
    /// What holds for all runs.
    pub head: Head,
    /// The runs, in order.
    pub outcomes: Vec<Outcome>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    Head(Head),
    Run(Outcome),
}

impl Head {
    /// Looks around.
    ///
    /// # Errors
    /// `/proc` is not what it should be.
    pub fn of(comparison: &Comparison, directory: &Path) -> Result<Self> {
        let page_cache = match (&comparison.cgroup, comparison.cold) {
            (Some(cgroup), cold) => format!(
                "limited by a memory cgroup of {} for each run{}",
                crate::sizes::print(cgroup.bytes_max() as f64),
                if cold { ", and dropped for the store's files (POSIX_FADV_DONTNEED) before each phase that reads" } else { "" }
            ),
            (None, true) => "cold: before each phase that reads, the store is closed, its files are dropped from the page \
                             cache (POSIX_FADV_DONTNEED), and it is opened again; from there on the phase warms what it \
                             reads, without a limit"
                .into(),
            (None, false) => "hot: not limited, not dropped".into(),
        };
        Ok(Self {
            command: machine::command(),
            date: machine::today(),
            machine: machine::describe(directory)?,
            commit: machine::commit(),
            build: machine::build(),
            settings: comparison.settings.clone(),
            engines: comparison.engines.clone(),
            page_cache,
        })
    }
}

impl Report {
    /// One line for the head, one for each run.
    ///
    /// # Errors
    /// None in practice.
    pub fn json_lines(&self) -> Result<String> {
        let mut lines = serde_json::to_string(&Kept::Head(self.head.clone()))? + "\n";
        for outcome in &self.outcomes {
            let mut outcome = outcome.clone();
            // Where it ran is nobody's concern, and gone.
            outcome.plan.directory = "store".into();
            lines += &(serde_json::to_string(&Kept::Run(outcome))? + "\n");
        }
        Ok(lines)
    }

    /// What [`json_lines`](Self::json_lines) wrote.
    ///
    /// # Errors
    /// It is not that.
    pub fn read(lines: &str) -> Result<Self> {
        let (mut head, mut outcomes) = (None, Vec::new());
        for line in lines.lines() {
            match serde_json::from_str(line)? {
                Kept::Head(found) => head = Some(found),
                Kept::Run(outcome) => outcomes.push(outcome),
            }
        }
        Ok(Self { head: head.ok_or("the file has no line with the head of a report")?, outcomes })
    }
}
