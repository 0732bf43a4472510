//! `esker gc STORE`

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use esker::{BlobFileUse, ColumnFamily, Db, Error, ErrorKind, Options, ReclaimMode, ReclaimPlan};
use serde_json::{Value, json};

use crate::Answer;
use crate::columns::Columns;
use crate::encoding::escaped;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::{Bytes, plural};
use crate::stores::{self, find_family, open_with, refuse_other, why_not};

/// What another process keeps is in its memory.
const NOT_SEEN: &str = "not seen: what a process that has the store open keeps for its snapshots and iterators\n\
                        (for `esker gc` it has to close the store; a program can call Db::reclaim itself)";

/// Take back the space that overwritten and deleted values leave in blob files: by holes, if the store makes any, and by copying the living out of the files.
/// Values of a column family that falls back come home
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// The store's directory
    store: PathBuf,

    /// Only say who holds the garbage, and what would be written and freed; the store is not written to, and may be open elsewhere
    #[arg(long)]
    dry_run: bool,

    /// Empty blob files of which at least this part is garbage, from 0 to 1; holes come first
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    min_garbage: f64,

    /// Column family; all of them if not given
    #[arg(long = "cf", value_name = "NAME")]
    family: Option<String>,

    /// Print an object for each column family
    #[arg(long)]
    json: bool,
}

impl Gc {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let reason = match Kind::of(&self.store) {
            Some(Kind::Cask) => {
                "this command does not work on a Cask, which has no blob files; `esker compact` takes its space back, and \
                 `esker stats` says how much is dead"
            }
            Some(Kind::Raft) => {
                "this command does not work on a Raft log, which has no blob files; `esker raft purge` gives up what nobody needs"
            }
            Some(Kind::Db) | None => "",
        };
        if !reason.is_empty() {
            return Err(Failure::new(format_args!("{}: {reason}", self.store.display())));
        }
        refuse_other(&self.store)?;
        // By hand only: what is done is what is told.
        let options = Options { reclaim_mode: ReclaimMode::Manual, ..stores::options_of(&self.store)? };
        let db = match self.dry_run {
            true => Db::open_read_only(&self.store, options).map_err(|error| why_not(&self.store, error))?,
            false => open_with(&self.store, options).map_err(is_open_elsewhere)?,
        };
        let families = match &self.family {
            Some(name) => vec![find_family(&db, name)?],
            None => db.column_families(),
        };
        let mut leftover_bytes = 0;
        for family in families {
            if self.dry_run {
                let plan = db.reclaim_plan(&family, self.min_garbage)?;
                leftover_bytes = plan.leftover_bytes;
                self.explain(out, &family, &plan)?;
            } else {
                self.collect(out, &db, &family)?;
            }
        }
        if leftover_bytes > 0 {
            let bytes = Bytes(leftover_bytes);
            self.note(
                out,
                format_args!(
                    "left over: files of {bytes} that nothing names any more go when the store is opened for writing"
                ),
            )?;
        }
        if self.dry_run {
            self.note(out, format_args!("{NOT_SEEN}"))?;
        }
        db.close()?;
        Ok(Answer::Yes)
    }

    /// What is no family's, for people.
    fn note(&self, out: &mut Output, note: fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.json { Ok(()) } else { out.line(note) }
    }

    fn explain(&self, out: &mut Output, family: &ColumnFamily, plan: &ReclaimPlan) -> Result<(), Failure> {
        if self.json {
            return out.json(&object(family, plan));
        }
        out.line(format_args!("column family {}", escaped(family.name().as_bytes())))?;
        if !plan.files.is_empty() {
            files(plan).iter().try_for_each(|line| out.line(line))?;
        }
        self.steps(plan).iter().chain(&beside(plan)).try_for_each(|line| out.line(format_args!("  {line}")))
    }

    /// What would be done, the cheapest first.
    fn steps(&self, plan: &ReclaimPlan) -> Vec<String> {
        let passes = plural(plan.passes, "pass", "passes");
        let [punched, copied, freed] = [plan.punched_bytes, plan.copied_bytes, plan.freed_bytes].map(Bytes);
        let [tables, written] = [plan.table_bytes, plan.written_bytes()].map(Bytes);
        let mut steps = Vec::new();
        if plan.punched_bytes > 0 {
            steps.push(format!("holes: would free {punched}, and write nothing"));
        }
        if plan.passes > 0 && plan.comes_home {
            let step = "would remove all blob files, which take";
            steps.push(format!("falls back: {step} {freed}, and write {written} of tables, {copied} of it values that come home, in {passes}"));
        } else if plan.passes > 0 {
            let step = "would free";
            steps.push(format!(
                "copies: {step} {freed}, and write {written}: {copied} of values, {tables} of tables, in {passes}"
            ));
        }
        if plan.files.is_empty() {
            steps.push("no blob files".to_owned());
        } else if steps.is_empty() {
            steps.push(format!("nothing to do: less than {} of each blob file is garbage", self.min_garbage));
        }
        steps
    }

    fn collect(&self, out: &mut Output, db: &Db, family: &ColumnFamily) -> Result<(), Failure> {
        let done = db.reclaim(family, self.min_garbage)?;
        if self.json {
            return out.json(&json!({
                "name": family.name(),
                "passes": done.passes,
                "punched_bytes": done.punched_bytes,
                "written_bytes": done.written_bytes,
                "bytes_before": done.bytes_before,
                "bytes_after": done.bytes_after,
            }));
        }
        let [before, after, punched, written] =
            [done.bytes_before, done.bytes_after, done.punched_bytes, done.written_bytes].map(Bytes);
        let holes = if done.punched_bytes > 0 { format!("{punched} became holes, ") } else { String::new() };
        let passes = plural(done.passes, "pass", "passes");
        let name = escaped(family.name().as_bytes());
        out.line(format_args!(
            "{name}: {before} of blob files before, {after} after; {holes}{written} written in {passes}"
        ))
    }
}

/// What to do when the store is not to be had.
fn is_open_elsewhere(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Busy => {
            Failure::new(format_args!("{error}. `--dry-run` does, and a program that has it open can call Db::reclaim"))
        }
        _ => error.into(),
    }
}

/// The blob files, in columns, with what is to be said of each.
fn files(plan: &ReclaimPlan) -> Vec<String> {
    let mut columns = Columns::with_head(&["  blob file", "live", "garbage", "garbage %"]);
    for file in &plan.files {
        let percent = file.garbage_bytes as f64 * 100.0 / file.bytes.max(1) as f64;
        columns.row(vec![
            format!("  {:06}", file.number),
            Bytes(file.live_bytes).to_string(),
            Bytes(file.garbage_bytes).to_string(),
            format!("{percent:.1}"),
        ]);
    }
    let notes = std::iter::once(String::new()).chain(plan.files.iter().map(file_notes));
    columns
        .lines("")
        .into_iter()
        .zip(notes)
        .map(|(line, note)| format!("{line}  {note}").trim_end().to_owned())
        .collect()
}

/// Who holds what no pass would free.
fn beside(plan: &ReclaimPlan) -> Vec<String> {
    let mut lines = Vec::new();
    if plan.not_compacted_bytes > 0 {
        let bytes = Bytes(plan.not_compacted_bytes);
        lines.push(format!(
            "not yet compacted: up to {bytes} may be garbage, too, under what lies above it; `esker compact` finds out"
        ));
    }
    if plan.unflushed_bytes > 0 {
        lines.push(format!("not yet flushed: {} of entries, which are not looked at", Bytes(plan.unflushed_bytes)));
    }
    let shared: u64 = plan.files.iter().filter(|file| file.is_shared).map(|file| file.bytes).sum();
    if shared > 0 {
        lines.push(format!(
            "checkpoints share {} of blob files: these take their space until both let go of them",
            Bytes(shared)
        ));
    }
    lines
}

fn file_notes(file: &BlobFileUse) -> String {
    let mut notes = Vec::new();
    if file.hole_bytes > 0 {
        notes.push(format!("{} are holes", Bytes(file.hole_bytes)));
    }
    if file.punched_bytes > 0 {
        notes.push(format!("{} to become holes", Bytes(file.punched_bytes)));
    }
    if file.is_picked {
        notes.push("to be emptied".to_owned());
    }
    if file.is_shared {
        notes.push("shared with a checkpoint".to_owned());
    }
    notes.join(", ")
}

fn object(family: &ColumnFamily, plan: &ReclaimPlan) -> Value {
    let file = |file: &BlobFileUse| {
        json!({
            "number": file.number,
            "bytes": file.bytes,
            "live_bytes": file.live_bytes,
            "garbage_bytes": file.garbage_bytes,
            "hole_bytes": file.hole_bytes,
            "punched_bytes": file.punched_bytes,
            "is_shared": file.is_shared,
            "is_picked": file.is_picked,
        })
    };
    json!({
        "name": family.name(),
        "files": plan.files.iter().map(file).collect::<Vec<Value>>(),
        "comes_home": plan.comes_home,
        "punched_bytes": plan.punched_bytes,
        "passes": plan.passes,
        "copied_bytes": plan.copied_bytes,
        "freed_bytes": plan.freed_bytes,
        "table_bytes": plan.table_bytes,
        "not_compacted_bytes": plan.not_compacted_bytes,
        "unflushed_bytes": plan.unflushed_bytes,
        "leftover_bytes": plan.leftover_bytes,
    })
}
