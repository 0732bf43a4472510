//! `/proc/self`: processor time and I/O of all threads of this process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Result;
use crate::plan::Cost;

/// Processor time so far.
///
/// # Errors
/// `/proc` is not what it should be.
pub(super) fn cpu_seconds_now() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, second field, may contain spaces; it ends with the last parenthesis. utime and stime are fields 14, 15.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Everything so far.
///
/// # Errors
/// `/proc` is not what it should be.
pub fn cost_now() -> Result<Cost> {
    let io = fs::read_to_string("/proc/self/io")?;
    let field = |name: &str| -> Result<u64> {
        let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(line.ok_or("/proc/self/io lacks a field")?.trim().parse()?)
    };
    Ok(Cost {
        cpu_seconds: cpu_seconds_now()?,
        written_gross_bytes: field("write_bytes")?,
        cancelled_bytes: field("cancelled_write_bytes")?,
        read_bytes: field("read_bytes")?,
    })
}

/// Blocks of the device that everything in `dir` takes, in bytes: holes are not counted, nor what Esker keeps of a short disk in a temporary file.
///
/// # Errors
/// The directory cannot be listed. Files that go away meanwhile count as nothing.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "dbtmp") {
            continue;
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        bytes += if metadata.is_dir() { disk_bytes(&path)? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}
