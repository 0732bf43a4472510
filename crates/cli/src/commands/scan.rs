//! `esker scan STORE`

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::Answer;
use crate::cask_entries::CaskEntries;
use crate::encoding::{Form, escaped, hex};
use crate::failure::Failure;
use crate::output::Output;
use crate::ranges::RangeArguments;
use crate::stores::{FamilyArgument, is_cask, open_cask_read_only, open_read_only};

/// Print entries in the order of their keys; those of a Cask in the order of its files
///
/// One line each: key, tab, value. What is not printable is escaped as \xNN, and a backslash as \\, so that no two
/// entries print alike. With --raw, keys and values are printed as they are between the same tabs and line feeds,
/// which tell them apart only where they have none of their own. Of a Cask with damage, all that can be read is printed; what cannot be read
/// is told, with exit code 1.
#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// The store's directory
    store: PathBuf,

    #[command(flatten)]
    range: RangeArguments,

    /// From the last key to the first
    #[arg(long)]
    reverse: bool,

    /// Print keys only; values in blob files are not read
    #[arg(long)]
    keys: bool,

    /// Print at most so many entries
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    #[command(flatten)]
    family: FamilyArgument,

    /// Keys are given, and keys and values printed, in hexadecimal
    #[arg(long, conflicts_with_all = ["raw", "json"])]
    hex: bool,

    /// Print keys and values as they are
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    /// Print an object a line: key_hex, value_hex; expires_at, in seconds since 1970, where a Cask's value has an end
    #[arg(long)]
    json: bool,
}

impl Scan {
    fn form(&self) -> Form {
        match (self.hex, self.raw, self.json) {
            (true, _, _) => Form::Hex,
            (_, true, _) => Form::Raw,
            (_, _, true) => Form::Json,
            _ => Form::Text,
        }
    }

    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let form = self.form();
        if is_cask(&self.store) {
            return self.run_cask(form, out);
        }
        let db = open_read_only(&self.store)?;
        let family = self.family.find(&db)?;
        let options = self.range.read_options(&family, self.hex)?;
        let mut entries = db.iter_cf(&family, &options)?;
        if self.reverse {
            entries.seek_to_last()?
        } else {
            entries.seek_to_first()?
        }
        let mut left = self.limit.unwrap_or(u64::MAX);
        while entries.valid() && left > 0 && !out.is_closed() {
            if self.keys {
                print(out, form, entries.key(), None, None)?;
            } else {
                let value = entries.value()?;
                print(out, form, entries.key(), Some(&value), None)?;
            }
            left -= 1;
            if self.reverse { entries.prev()? } else { entries.next()? }
        }
        Ok(Answer::Yes)
    }

    fn run_cask(self, form: Form, out: &mut Output) -> Result<Answer, Failure> {
        if self.reverse {
            return Err(Failure::new("--reverse needs keys in order; a Cask has none"));
        }
        self.family.refuse_on_cask()?;
        let prefix = self.range.cask_prefix(self.hex)?;
        let cask = open_cask_read_only(&self.store)?;
        let mut entries = CaskEntries::of(&cask)?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 && !out.is_closed() && entries.advance()? {
            if !entries.key().starts_with(&prefix) {
                continue;
            }
            let expires_at = if self.json { entries.expires_at()? } else { None };
            let value = if self.keys { None } else { entries.value()? };
            if self.keys || value.is_some() {
                print(out, form, entries.key(), value.as_deref(), expires_at)?;
                left -= 1;
            }
        }
        Ok(entries.answer())
    }
}

fn print(
    out: &mut Output,
    form: Form,
    key: &[u8],
    value: Option<&[u8]>,
    expires_at: Option<u64>,
) -> Result<(), Failure> {
    let encode = match form {
        Form::Raw => {
            out.bytes(key)?;
            if let Some(value) = value {
                out.bytes(b"\t")?;
                out.bytes(value)?;
            }
            return out.bytes(b"\n");
        }
        Form::Json => {
            let mut object = json!({ "key_hex": hex(key) });
            if let Some(value) = value {
                object["value_hex"] = hex(value).into();
            }
            if let Some(at) = expires_at {
                object["expires_at"] = at.into();
            }
            return out.json(&object);
        }
        Form::Text => escaped,
        Form::Hex => hex,
    };
    match value {
        Some(value) => out.line(format_args!("{}\t{}", encode(key), encode(value))),
        None => out.line(encode(key)),
    }
}
