//! `esker raft repair STORE --script FILE`
//!
//! - S1: nothing is thrown away unseen: a file that items go out of stays beside the one that takes its place, under a name that no log knows.
//! - S2: a script that fails changes nothing.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use esker::RaftLog;
use esker::env::Env;
use esker::raft::{FilterOptions, Options, Queue, RecoveryMode};
use esker_raft_script::{Discarded, Filtered, Script};
use serde_json::{Value, json};

use super::{LogArgument, cut_object};
use crate::Answer;
use crate::failure::{Failure, path_text};
use crate::output::Output;
use crate::sizes::{Bytes, plural};

/// What is behind the name of a file as it was.
pub(crate) const KEPT_SUFFIX: &str = ".before";

/// Which items a script is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Queues {
    Append,
    Rewrite,
    All,
}

/// Mending by a script.
#[derive(Debug, Args)]
pub(super) struct ByScript {
    /// Do nothing but ask this script about every item, and take out what it says; see below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["drop_group", "truncate", "compact"])]
    script: Option<PathBuf>,

    /// Which queue's items the script is asked about
    #[arg(long, value_enum, default_value = "all", requires = "script")]
    queue: Queues,
}

impl ByScript {
    /// The script, if there is to be one.
    pub(super) fn script(&self) -> Option<&Path> {
        self.script.as_deref()
    }

    /// Asks `script` about the log, and takes out what it says, unless that is only to be told.
    pub(super) fn run(
        &self,
        log: &LogArgument,
        script: &Path,
        is_dry: bool,
        json: bool,
        out: &mut Output,
    ) -> Result<Answer, Failure> {
        let script = read(script)?;
        let queue = match self.queue {
            Queues::Append => Some(Queue::Append),
            Queues::Rewrite => Some(Queue::Rewrite),
            Queues::All => None,
        };
        let how = FilterOptions { queue, kept_suffix: Some(KEPT_SUFFIX), dry_run: is_dry };
        let options = log.options(RecoveryMode::TolerateTail);
        let filtered = script.filter(&log.store, &options, &Env::os(), &how)?;
        let wrong = if is_dry { None } else { wrong(&log.store, &options)? };
        let told = Told { filtered: &filtered, is_dry, wrong: wrong.as_deref() };
        if json {
            out.json(&told.object())?
        } else {
            told.print(out)?
        }
        Ok(if wrong.is_none() { Answer::Yes } else { Answer::No })
    }
}

/// Reads a script that has something to say.
fn read(path: &Path) -> Result<Script, Failure> {
    let source = std::fs::read_to_string(path).map_err(|error| Failure::io("--script: reading", path, &error))?;
    let script = Script::new(path_text(path), source)?.with_print(say);
    if script.is_empty() {
        return Err(Failure::new(format_args!(
            "{}: the script has none of the functions that are asked; see `esker raft repair --help`",
            path.display()
        )));
    }
    Ok(script)
}

/// What a script prints goes where it does not mix with the answer.
fn say(text: &str) {
    use std::io::Write;
    // Without a stderr there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What a check finds in the log, if it finds anything.
fn wrong(store: &Path, options: &Options) -> Result<Option<String>, Failure> {
    let found = RaftLog::check(store, options, &mut |_, _| {})?;
    let count = found.errors.len() + found.gaps.len() + found.inspection.stale.len();
    Ok((!found.is_sound()).then(|| plural(count as u64, "damage", "damages")))
}

/// What is told of it.
struct Told<'a> {
    filtered: &'a Filtered,
    is_dry: bool,
    wrong: Option<&'a str>,
}

impl Told<'_> {
    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let would = if self.is_dry { "would be " } else { "" };
        for (group, discarded) in &self.filtered.groups {
            out.line(format_args!("group {group}: {} {would}discarded", items(discarded)))?;
        }
        for file in &self.filtered.files {
            let path = path_text(&file.path);
            if let Some(cut) = &file.cut {
                out.line(format_args!("{path}: {would}cut at byte {}, {} behind it", cut.offset, Bytes(cut.bytes)))?;
            }
            match &file.kept {
                Some(kept) => out.line(format_args!("{path}: written anew; kept as it was: {}", path_text(kept)))?,
                None => out.line(format_args!("{path}: {would}written anew"))?,
            }
        }
        if self.filtered.files.is_empty() {
            out.line("the script keeps everything")?;
        }
        match self.wrong {
            Some(damages) => out.line(format_args!("{damages} left; see `esker raft check`")),
            None => Ok(()),
        }
    }

    fn object(&self) -> Value {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let files = self.filtered.files.iter().map(|file| {
            json!({
                "path": text(&file.path),
                "kept": file.kept.as_deref().map(text),
                "cut": file.cut.as_ref().map(cut_object),
            })
        });
        let groups = self.filtered.groups.iter().map(|(group, discarded)| {
            json!({
                "group": group,
                "entries": discarded.entries,
                "earlier_entries": discarded.earlier,
                "commands": discarded.commands,
            })
        });
        json!({
            "dry_run": self.is_dry,
            "files": files.collect::<Vec<Value>>(),
            "groups": groups.collect::<Vec<Value>>(),
            "damaged": self.wrong.is_some(),
        })
    }
}

/// What went of a group, in words.
fn items(discarded: &Discarded) -> String {
    let mut words = Vec::new();
    if discarded.entries > 0 {
        words.push(plural(discarded.entries, "entry", "entries"));
    }
    if discarded.earlier > 0 {
        words.push(format!("{} before an item", plural(discarded.earlier, "entry", "entries")));
    }
    if discarded.commands > 0 {
        words.push(plural(discarded.commands, "command", "commands"));
    }
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}
