//! `esker families STORE`

use std::path::PathBuf;

use clap::Args;
use esker::{BytewiseComparator, Comparator};
use serde_json::json;

use crate::Answer;
use crate::columns::Columns;
use crate::encoding::escaped;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes::{Bytes, Count};
use crate::stores::{find_family, open_read_only, separation_name};

/// List column families, their sizes, and where their values live
///
/// Which of them have a merge operator, or keys in another order than that of bytes, is said below.
///
/// Entries are keys, older versions of them that are not compacted away yet, and deletions. Separation and the rest are what `--separation` and its
/// neighbours chose for what is written from now on.
#[derive(Debug, Args)]
pub(crate) struct Families {
    /// The store's directory
    store: PathBuf,

    /// Print an object a line
    #[arg(long)]
    json: bool,
}

impl Families {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let db = open_read_only(&self.store)?;
        let mut columns =
            Columns::with_head(&["family", "id", "entries", "tables", "table bytes", "blob bytes", "separation"]);
        let mut others: Vec<String> = Vec::new();
        for family in db.stats().families {
            let tables: usize = family.levels.iter().map(|level| level.files).sum();
            let blob_bytes = family.blob_live_bytes + family.blob_garbage_bytes;
            let found = find_family(&db, &family.name)?;
            let options = found.options();
            let separation = separation_name(found.separation());
            if self.json {
                out.json(&json!({
                    "name": family.name,
                    "id": family.id,
                    "entries": family.entries,
                    "tables": tables,
                    "table_bytes": family.table_bytes(),
                    "blob_files": family.blob_files,
                    "blob_bytes": blob_bytes,
                    "comparator": options.comparator.name(),
                    "merge_operator": options.merge_operator.as_ref().map(|operator| operator.option_text()),
                    "separation": separation,
                    "min_blob_size": options.min_blob_size,
                    "compression": options.compression.name(),
                    "blob_compression": options.blob_compression.name(),
                }))?;
            } else {
                columns.row(vec![
                    escaped(family.name.as_bytes()),
                    family.id.to_string(),
                    Count(family.entries).to_string(),
                    Count(tables as u64).to_string(),
                    Bytes(family.table_bytes()).to_string(),
                    Bytes(blob_bytes).to_string(),
                    separation,
                ]);
                if options.comparator.name() != BytewiseComparator.name() {
                    let name = escaped(family.name.as_bytes());
                    others.push(format!("{name} is ordered by {}", options.comparator.name()));
                }
                if let Some(operator) = &options.merge_operator {
                    let name = escaped(family.name.as_bytes());
                    others.push(format!("{name} has the merge operator {}", operator.option_text()));
                }
            }
        }
        if !self.json {
            columns.lines("").iter().chain(&others).try_for_each(|line| out.line(line))?;
        }
        Ok(Answer::Yes)
    }
}
