//! Memory that the machine really has.
//!
//! A virtual machine may give free memory back to its host (free page reporting). Whoever takes it again waits for the host: 4.5 ms
//! for 2 MiB were seen, as long as an engine needs to fill them. That is no engine's doing, hits first whoever comes first, and lasts
//! until the memory has been used once. So it is used once before each run.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::Result;

/// Fills and frees so many bytes of the page cache, by a file in `dir` that is gone afterwards.
///
/// # Errors
/// The file cannot be written or removed.
pub fn up(dir: &Path, bytes: u64) -> Result<()> {
    let path = dir.join("memory");
    let mut file = File::create(&path)?;
    let block = vec![1; 1 << 20];
    for _ in 0..bytes.div_ceil(1 << 20) {
        file.write_all(&block)?;
    }
    drop(file);
    Ok(fs::remove_file(path)?)
}
