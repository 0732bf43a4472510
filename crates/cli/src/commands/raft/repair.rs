//! `esker raft repair STORE`
//!
//! - R1: nothing is thrown away unseen: a file that will be cut is copied first, under a name that no log knows, which it gets when it is whole and durable.
//! - R2: groups are changed through the log's own batches, synced: a crash leaves each change whole or absent.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use esker::raft::{Check as Found, Cut, Inspection, LogBatch, Lost, RecoveryMode};
use esker::{ErrorKind, RaftLog};
use serde_json::{Value, json};

use super::script::ByScript;
use super::{LogArgument, cut_object, gap_object, gap_text, left_out_text, lost_object, lost_text, unmended_text};
use crate::Answer;
use crate::failure::{Failure, path_text};
use crate::output::Output;
use crate::sizes::{Bytes, plural};

/// What is behind the name of a copy of a damaged file.
const COPY_SUFFIX: &str = "damaged";

/// What is behind it until the copy is whole.
const COPYING_SUFFIX: &str = "damaged.copying";

/// Cut damaged files where the damage begins, and bring groups into a state that they can go on from
///
/// Files are cut as they must be for the log to open again; a copy of each is kept beside it, with `.damaged` behind its name.
/// Groups whose entries were in what is cut may have lost them: see `esker raft check`, and the other replicas. Entries that
/// are damaged where nothing is cut are named at the end, with the options that drop them: exit code 1 while there are any. So is what no
/// repair mends: entries that are missing, and files that are left out. What is refused changes nothing. The log must not be open.
///
/// With --script, as raft-engine's own tool does it: files that items go out of are written anew, without what is behind damage in them. Each
/// stays beside the new one, with `.before` behind its name. Files without such items are left as they are, damage and all. Exit code 1 if
/// anything is wrong with the log afterwards. A script that fails changes nothing. What it prints goes to the standard error.
#[derive(Debug, Args)]
#[command(after_long_help = esker_raft_script::FUNCTIONS)]
pub(crate) struct Repair {
    #[command(flatten)]
    log: LogArgument,

    /// Drop these groups, their entries and their keys
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    drop_group: Vec<u64>,

    /// Drop the entries of a group from this index on
    #[arg(long, value_name = "GROUP:INDEX", value_delimiter = ',')]
    truncate: Vec<GroupIndex>,

    /// Drop the entries of a group before this index
    #[arg(long, value_name = "GROUP:INDEX", value_delimiter = ',')]
    compact: Vec<GroupIndex>,

    #[command(flatten)]
    by_script: ByScript,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Print an object: missing, cuts, dropped, truncated, compacted, lost, gaps, left_out; with --script: files, groups, damaged
    #[arg(long)]
    json: bool,
}

/// A group and an index of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupIndex {
    group: u64,
    index: u64,
}

impl FromStr for GroupIndex {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(group, index)| Some((group.parse().ok()?, index.parse().ok()?)));
        let (group, index) = parsed.ok_or("write it as GROUP:INDEX, such as 7:300")?;
        Ok(Self { group, index })
    }
}

/// What changed, or would.
#[derive(Debug, Default)]
struct Done {
    /// Files that a close wrote down and that are gone.
    missing: Vec<PathBuf>,
    cuts: Vec<Cut>,
    copies: Vec<PathBuf>,
    dropped: Vec<u64>,
    /// Group, and how many entries.
    truncated: Vec<(u64, u64)>,
    compacted: Vec<(u64, u64)>,
    /// What a check finds afterwards.
    left: Found,
    /// Damage that took nothing that is alive.
    dead_damages: u64,
}

impl Repair {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        self.log.expect()?;
        if let Some(script) = self.by_script.script() {
            return self.by_script.run(&self.log, script, self.dry_run, self.json, out);
        }
        let found = self.log.inspect()?;
        let groups: Vec<u64> = found.groups.iter().map(|group| group.group).collect();
        self.refuse_unknown(&groups)?;
        self.refuse_unreadable(&found)?;
        let mut done = Done { missing: found.missing, cuts: found.cuts, ..Done::default() };
        if self.dry_run {
            done.dropped = self.drop_group.clone();
            for &GroupIndex { group, index } in &self.truncate {
                let span = found.groups.iter().find(|one| one.group == group);
                done.truncated
                    .push((group, span.map_or(0, |span| entries_from(span.first_index, span.last_index, index))));
            }
            for &GroupIndex { group, index } in &self.compact {
                let span = found.groups.iter().find(|one| one.group == group);
                done.compacted
                    .push((group, span.map_or(0, |span| entries_before(span.first_index, span.last_index, index))));
            }
        } else {
            self.mend(&mut done)?;
        }
        done.left = self.check()?;
        let is_dead = done.left.lost.is_empty() && !self.dry_run;
        done.dead_damages = if is_dead { done.left.errors.len() as u64 } else { 0 };
        if self.json {
            out.json(&done.object(self.dry_run))?
        } else {
            done.print(out, self.dry_run)?
        }
        Ok(if done.left.lost.is_empty() { Answer::Yes } else { Answer::No })
    }

    fn check(&self) -> Result<Found, Failure> {
        let options = self.log.options(RecoveryMode::TolerateAny);
        Ok(RaftLog::check(&self.log.store, &options, &mut |_, _| {})?)
    }

    /// A wrong number should not pass for work done.
    fn refuse_unknown(&self, groups: &[u64]) -> Result<(), Failure> {
        let indexed = self.truncate.iter().chain(&self.compact).map(|one| one.group);
        match self.drop_group.iter().copied().chain(indexed).find(|group| !groups.contains(group)) {
            Some(group) => Err(Failure::new(format_args!("{}: there is no group {group}", self.log.store.display()))),
            None => Ok(()),
        }
    }

    /// An entry that will be the last of its group is written again ([`truncate`]): it can be read, or nothing is changed.
    fn refuse_unreadable(&self, found: &Inspection) -> Result<(), Failure> {
        if self.truncate.is_empty() {
            return Ok(());
        }
        let lost = self.check()?.lost;
        for &GroupIndex { group, index } in self.truncate.iter().filter(|one| !self.drop_group.contains(&one.group)) {
            let span = found.groups.iter().find(|one| one.group == group);
            let gone = span.map_or(0, |span| entries_from(span.first_index, span.last_index, index));
            let is_last = |one: &&Lost| {
                one.group == group
                    && index.checked_sub(1).is_some_and(|last| (one.first_index..=one.last_index).contains(&last))
            };
            if let Some(lost) = lost.iter().find(is_last).filter(|_| gone > 0) {
                let left = format!("--truncate {group}:{index} leaves an entry as the last that is damaged");
                return Err(Failure::new(format_args!("{left}; {}", lost_text(lost))));
            }
        }
        Ok(())
    }

    fn mend(&self, done: &mut Done) -> Result<(), Failure> {
        // Whoever has it open must not be cut: the lock is held from here on, but for the moment between two opens.
        let probe = RaftLog::open(&self.log.store, self.log.options(RecoveryMode::AbsoluteConsistency));
        match probe {
            Ok(log) => log.close()?,
            // One of whose files is newer was refused by the look at it before: this is the note of a close.
            Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat) => {}
            Err(error) => return Err(error.into()),
        }
        for cut in &done.cuts {
            done.copies.push(copy(&cut.path)?);
        }
        let log = self.log.open(self.log.options(RecoveryMode::TolerateAny))?;
        for &group in &self.drop_group {
            let mut batch = LogBatch::new();
            batch.clean(group);
            log.write(&mut batch, true)?;
            done.dropped.push(group);
        }
        for &GroupIndex { group, index } in &self.truncate {
            done.truncated.push((group, truncate(&log, group, index)?));
        }
        for &GroupIndex { group, index } in &self.compact {
            done.compacted.push((group, log.compact_to(group, index)?));
        }
        log.sync()?;
        Ok(log.close()?)
    }
}

fn entries_from(first: Option<u64>, last: Option<u64>, index: u64) -> u64 {
    let (Some(first), Some(last)) = (first, last) else { return 0 };
    last.saturating_add(1).saturating_sub(index.max(first))
}

fn entries_before(first: Option<u64>, last: Option<u64>, index: u64) -> u64 {
    let (Some(first), Some(last)) = (first, last) else { return 0 };
    index.min(last.saturating_add(1)).saturating_sub(first)
}

/// Drops the entries from `index` on: the one before is written again, and an entry that is written replaces all behind it.
fn truncate(log: &RaftLog, group: u64, index: u64) -> Result<u64, Failure> {
    let (first, last) = (log.first_index(group), log.last_index(group));
    let gone = entries_from(first, last, index);
    if gone == 0 {
        return Ok(0);
    }
    let mut batch = LogBatch::new();
    match index.checked_sub(1).filter(|&before| Some(before) >= first) {
        Some(before) => {
            let entry = log.entry(group, before)?.ok_or_else(|| {
                Failure::new(format_args!("{}: group {group} has no entry {before}", log.path().display()))
            })?;
            batch.add_entries(group, before, [entry])?;
        }
        None => batch.compact(group, last.unwrap_or_default().saturating_add(1)),
    }
    log.write(&mut batch, true)?;
    Ok(gone)
}

/// Copies a file beside itself (R1), whole or not at all. One that was copied before is copied again, under the next name.
fn copy(path: &Path) -> Result<PathBuf, Failure> {
    let (target, copying) = (free_name(path)?, with_suffix(path, COPYING_SUFFIX));
    let copied = copy_whole(path, &copying, &target);
    if copied.is_err() {
        // What cannot be removed is the next repair's to write over; why it is there matters more.
        let _ = std::fs::remove_file(&copying);
    }
    copied.map(|()| target).map_err(|error| Failure::io("copying", path, &error))
}

/// A name for a copy that nothing has yet.
fn free_name(path: &Path) -> Result<PathBuf, Failure> {
    let numbered = (1u32..).map(|number| format!("{COPY_SUFFIX}-{number}"));
    let mut names = std::iter::once(COPY_SUFFIX.to_owned()).chain(numbered).map(|suffix| with_suffix(path, &suffix));
    names
        .find(|name| name.symlink_metadata().is_err())
        .ok_or_else(|| Failure::new(format_args!("{}: there are too many copies of it", path.display())))
}

/// Copies a file to `copying`, and gives that the name `to` once it is durable.
fn copy_whole(path: &Path, copying: &Path, to: &Path) -> io::Result<()> {
    // Of a repair that was killed; what is written to is a file of this one.
    match std::fs::remove_file(copying) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    std::fs::copy(path, copying)?;
    File::open(copying)?.sync_all()?;
    std::fs::rename(copying, to)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

impl Done {
    fn print(&self, out: &mut Output, is_dry: bool) -> Result<(), Failure> {
        let would = if is_dry { "would be " } else { "" };
        for path in &self.missing {
            out.line(format_args!("{}: it is not there, and what it held is lost", path_text(path)))?;
        }
        for cut in &self.cuts {
            let (path, bytes) = (path_text(&cut.path), Bytes(cut.bytes));
            out.line(format_args!("{path}: {would}cut at byte {}, {bytes} behind it", cut.offset))?;
        }
        for path in &self.copies {
            out.line(format_args!("kept a copy: {}", path_text(path)))?;
        }
        for group in &self.dropped {
            out.line(format_args!("group {group}: {would}dropped"))?;
        }
        for (group, count) in &self.truncated {
            let entries = plural(*count, "entry", "entries");
            out.line(format_args!("group {group}: {entries} {would}dropped from the end"))?;
        }
        for (group, count) in &self.compacted {
            let entries = plural(*count, "entry", "entries");
            out.line(format_args!("group {group}: {entries} {would}dropped from the front"))?;
        }
        for lost in &self.left.lost {
            out.line(lost_text(lost))?;
        }
        for path in &self.left.inspection.stale {
            out.line(left_out_text(path))?;
        }
        for gap in &self.left.gaps {
            out.line(gap_text(gap))?;
        }
        if self.dead_damages > 0 {
            let damages = plural(self.dead_damages, "damage", "damages");
            out.line(format_args!("{damages} left, in what nobody needs; `esker raft purge --all` gives it up"))?;
        }
        if let Some(unmended) = unmended_text(&self.left) {
            return out.line(unmended);
        }
        let is_nothing = self.missing.is_empty()
            && self.cuts.is_empty()
            && self.dropped.is_empty()
            && self.truncated.is_empty()
            && self.compacted.is_empty()
            && self.left.lost.is_empty()
            && self.dead_damages == 0;
        if is_nothing { out.line("nothing to repair") } else { Ok(()) }
    }

    fn object(&self, is_dry: bool) -> Value {
        let counted = |all: &[(u64, u64)]| -> Vec<Value> {
            all.iter().map(|(group, entries)| json!({ "group": group, "entries": entries })).collect()
        };
        json!({
            "dry_run": is_dry,
            "missing": self.missing.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "cuts": self.cuts.iter().map(cut_object).collect::<Vec<Value>>(),
            "copies": self.copies.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
            "dropped": self.dropped,
            "truncated": counted(&self.truncated),
            "compacted": counted(&self.compacted),
            "lost": self.left.lost.iter().map(lost_object).collect::<Vec<Value>>(),
            "gaps": self.left.gaps.iter().map(gap_object).collect::<Vec<Value>>(),
            "left_out": self.left.inspection.stale.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        })
    }
}
