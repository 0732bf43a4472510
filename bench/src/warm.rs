//! Memory that the machine really has.
//!
//! A virtual machine may give free memory back to its host (free page reporting). Whoever takes it again waits for the host: 4.5 ms
//! for 2 MiB were seen, as long as an engine needs to fill them. That is no engine's doing, hits first whoever comes first, and lasts
//! until the memory has been used once. So it is used once before each run.

use std::io::Write;
use std::path::Path;

use crate::Result;

/// Fills and frees so many bytes of the page cache, by a file in `dir` that has no name: it is gone afterwards, also if the disk fills up.
///
/// # Errors
/// The file cannot be made or written.
pub fn up(dir: &Path, bytes: u64) -> Result<()> {
    let mut file = tempfile::tempfile_in(dir)?;
    let block = vec![1; 1 << 20];
    for _ in 0..bytes.div_ceil(1 << 20) {
        file.write_all(&block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_user_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("memory"), "mine").unwrap();
        up(dir.path(), 1 << 20).unwrap();
        assert_eq!(std::fs::read(dir.path().join("memory")).unwrap(), b"mine");
    }
}
