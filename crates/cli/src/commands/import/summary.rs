//! What an import did, for people and for machines.

use std::time::Duration;

use serde_json::{Value, json};

use super::loader::Loaded;
use super::read_back::ReadBack;
use super::target::Cost;
use super::tree::Tree;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes::{Bytes, Count, plural, rate};

/// Figures of one import.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    loaded: Loaded,
    time: Duration,
    skipped: u64,
    failed: u64,
    bytes_on_disk: u64,
    write_amplification: Option<f64>,
    read_back: Option<&'a ReadBack>,
}

impl<'a> Summary<'a> {
    /// `time` is that of load and flush.
    pub(crate) fn new(
        loaded: Loaded,
        time: Duration,
        tree: &Tree,
        cost: Cost,
        read_back: Option<&'a ReadBack>,
    ) -> Self {
        Self {
            loaded,
            time,
            skipped: tree.skipped,
            failed: tree.problems.count,
            bytes_on_disk: cost.bytes_on_disk,
            write_amplification: cost.write_amplification,
            read_back,
        }
    }

    pub(crate) fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let Loaded { entries, bytes } = self.loaded;
        out.line(format_args!(
            "imported   {}, {} in {:.1} s ({}/s)",
            plural(entries, "key", "keys"),
            Bytes(bytes),
            self.time.as_secs_f64(),
            Bytes(rate(bytes, self.time)),
        ))?;
        if self.skipped > 0 {
            let skipped = Count(self.skipped);
            out.line(format_args!("skipped    {skipped}: no regular files or directories, or the store itself"))?;
        }
        if self.failed > 0 {
            out.line(format_args!("not read   {}", plural(self.failed, "file or directory", "files or directories")))?;
        }
        match self.write_amplification {
            Some(factor) => out.line(format_args!(
                "on disk    {}, {factor:.2} bytes written per byte imported",
                Bytes(self.bytes_on_disk)
            ))?,
            None => out.line(format_args!("on disk    {}", Bytes(self.bytes_on_disk)))?,
        }
        match self.read_back {
            Some(check) => print_read_back(out, check),
            None => out.line("read back  nothing"),
        }
    }

    pub(crate) fn object(&self) -> Value {
        json!({
            "keys": self.loaded.entries,
            "bytes": self.loaded.bytes,
            "seconds": self.time.as_secs_f64(),
            "bytes_per_second": rate(self.loaded.bytes, self.time),
            "skipped": self.skipped,
            "not_read": self.failed,
            "bytes_on_disk": self.bytes_on_disk,
            "write_amplification": self.write_amplification,
            "read_back": self.read_back.map(|check| json!({
                "equal": check.equal,
                "changed": check.changed,
                "expired": check.expired,
                "differing": check.differing,
                "named": check.named,
                "bytes": check.bytes,
                "seconds": check.time.as_secs_f64(),
                "bytes_per_second": rate(check.bytes, check.time),
            })),
        })
    }
}

fn print_read_back(out: &mut Output, check: &ReadBack) -> Result<(), Failure> {
    out.line(format_args!(
        "read back  {} equal to their files, {} in {:.1} s ({}/s)",
        plural(check.equal, "key", "keys"),
        Bytes(check.bytes),
        check.time.as_secs_f64(),
        Bytes(rate(check.bytes, check.time)),
    ))?;
    if check.changed > 0 {
        let keys = plural(check.changed, "key", "keys");
        out.line(format_args!("changed    {keys} whose files changed meanwhile: not compared"))?;
    }
    if check.expired > 0 {
        let keys = plural(check.expired, "key", "keys");
        out.line(format_args!("expired    {keys} whose time was over before they were read back: not compared"))?;
    }
    if check.differing > 0 {
        out.line(format_args!("DIFFERENT  {}", plural(check.differing, "key", "keys")))?;
    }
    check.named.iter().try_for_each(|name| out.line(format_args!("           {name}")))
}
