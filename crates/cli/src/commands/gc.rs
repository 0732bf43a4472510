//! `esker gc STORE`

use std::path::PathBuf;

use clap::Args;
use esker::{ColumnFamily, Db, Options, ReclaimMode, ReclaimPlan};
use serde_json::{Value, json};

use crate::Answer;
use crate::columns::Columns;
use crate::encoding::escaped;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::{Bytes, plural};
use crate::stores::{find_family, open_read_only, open_with, refuse_other};

/// Take back the space that overwritten and deleted values leave in blob files, by copying the living out of them
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// The store's directory
    store: PathBuf,

    /// Only say who holds the garbage, and what would be copied and freed; the store is not written to
    #[arg(long)]
    dry_run: bool,

    /// Empty blob files of which at least this part is garbage, from 0 to 1
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
        let db = if self.dry_run {
            open_read_only(&self.store)?
        } else {
            refuse_other(&self.store)?;
            // By hand only: what is done is what is told.
            open_with(&self.store, Options { reclaim_mode: ReclaimMode::Manual, ..Options::of_store(&self.store)? })?
        };
        let families = match &self.family {
            Some(name) => vec![find_family(&db, name)?],
            None => db.column_families(),
        };
        for family in families {
            let plan = db.reclaim_plan(&family, self.min_garbage)?;
            if self.dry_run {
                self.explain(out, &family, &plan)?;
            } else {
                self.collect(out, &db, &family)?;
            }
        }
        db.close()?;
        Ok(Answer::Yes)
    }

    fn explain(&self, out: &mut Output, family: &ColumnFamily, plan: &ReclaimPlan) -> Result<(), Failure> {
        if self.json {
            return out.json(&object(family, plan));
        }
        out.line(format_args!("column family {}", escaped(family.name().as_bytes())))?;
        let mut columns = Columns::with_head(&["  blob file", "live", "garbage", "garbage %", ""]);
        for file in &plan.files {
            let percent = file.garbage_bytes as f64 * 100.0 / file.bytes.max(1) as f64;
            columns.row(vec![
                format!("  {:06}", file.number),
                Bytes(file.live_bytes).to_string(),
                Bytes(file.garbage_bytes).to_string(),
                format!("{percent:.1}"),
                file_notes(file),
            ]);
        }
        columns.lines("").iter().try_for_each(|line| out.line(line))?;
        let (copied, freed) = (Bytes(plan.copied_bytes), Bytes(plan.freed_bytes));
        out.line(format_args!(
            "  would copy {copied} and free {freed}, rewriting {} of tables",
            Bytes(plan.table_bytes)
        ))?;
        out.line(format_args!(
            "  not yet compacted: values of {} lie above others, and may overwrite as much there; see `esker compact`",
            Bytes(plan.not_compacted_bytes)
        ))?;
        if plan.snapshots > 0 {
            let snapshots = plural(plan.snapshots as u64, "snapshot", "snapshots");
            out.line(format_args!("  {snapshots} may hold older values"))?;
        }
        let shared: u64 = plan.files.iter().filter(|file| file.is_shared).map(|file| file.bytes).sum();
        if shared > 0 {
            out.line(format_args!("  checkpoints share {} of blob files, and keep them", Bytes(shared)))?;
        }
        if plan.held_bytes > 0 {
            out.line(format_args!("  readers keep {} of files that the store is done with", Bytes(plan.held_bytes)))?;
        }
        Ok(())
    }

    fn collect(&self, out: &mut Output, db: &Db, family: &ColumnFamily) -> Result<(), Failure> {
        let done = db.reclaim(family, self.min_garbage)?;
        if self.json {
            return out.json(&json!({
                "name": family.name(),
                "passes": done.passes,
                "bytes_before": done.bytes_before,
                "bytes_after": done.bytes_after,
            }));
        }
        out.line(format_args!(
            "{}: {} of blob files before, {} after, in {}",
            escaped(family.name().as_bytes()),
            Bytes(done.bytes_before),
            Bytes(done.bytes_after),
            plural(done.passes, "pass", "passes")
        ))
    }
}

fn file_notes(file: &esker::BlobFileUse) -> String {
    let mut notes = Vec::new();
    if file.is_picked {
        notes.push("to be emptied".to_owned());
    }
    if file.hole_bytes > 0 {
        notes.push(format!("{} are holes", Bytes(file.hole_bytes)));
    }
    if file.is_shared {
        notes.push("shared with a checkpoint".to_owned());
    }
    notes.join(", ")
}

fn object(family: &ColumnFamily, plan: &ReclaimPlan) -> Value {
    let file = |file: &esker::BlobFileUse| {
        json!({
            "number": file.number,
            "bytes": file.bytes,
            "live_bytes": file.live_bytes,
            "garbage_bytes": file.garbage_bytes,
            "hole_bytes": file.hole_bytes,
            "is_shared": file.is_shared,
            "is_picked": file.is_picked,
        })
    };
    json!({
        "name": family.name(),
        "files": plan.files.iter().map(file).collect::<Vec<Value>>(),
        "copied_bytes": plan.copied_bytes,
        "freed_bytes": plan.freed_bytes,
        "table_bytes": plan.table_bytes,
        "not_compacted_bytes": plan.not_compacted_bytes,
        "snapshots": plan.snapshots,
        "is_earlier_state_held": plan.is_earlier_state_held,
        "held_bytes": plan.held_bytes,
    })
}
