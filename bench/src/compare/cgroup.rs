//! A limit on memory and page cache together, by a memory cgroup that the user may divide (version 1 or 2).

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// A cgroup in which one is made for each run.
#[derive(Debug, Clone)]
pub struct Cgroup {
    parent: PathBuf,
    bytes_max: u64,
}

/// A child of it; goes when dropped, after its process.
#[derive(Debug)]
pub(super) struct Limit(PathBuf);

impl Cgroup {
    /// Runs get `bytes_max` of memory, page cache included, in children of `parent`.
    pub fn new(parent: &Path, bytes_max: u64) -> Self {
        Self { parent: parent.to_owned(), bytes_max }
    }

    /// What a run may use.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Puts a process into a child of its own.
    pub(super) fn limit(&self, process: u32) -> Result<Limit> {
        let dir = self.parent.join(format!("esker-compare-{process}"));
        let say = |what: &str| format!("{what} the cgroup {}", dir.display());
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", say("making")))?;
        let limit = Limit(dir.clone());
        let is_v2 = self.parent.join("cgroup.controllers").exists();
        let field = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(dir.join(field), self.bytes_max.to_string())
            .map_err(|error| format!("{}: {error}", say("limiting")))?;
        fs::write(dir.join("cgroup.procs"), process.to_string())
            .map_err(|error| format!("{}: {error}", say("entering")))?;
        Ok(limit)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // An empty cgroup that stays behind harms nobody.
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_enters_a_limited_child_of_either_version() {
        for (version, field) in [(1, "memory.limit_in_bytes"), (2, "memory.max")] {
            let parent = tempfile::tempdir().unwrap();
            if version == 2 {
                fs::write(parent.path().join("cgroup.controllers"), "memory").unwrap();
            }
            let limit = Cgroup::new(parent.path(), 4096).limit(77).unwrap();
            let dir = parent.path().join("esker-compare-77");
            assert_eq!(fs::read_to_string(dir.join(field)).unwrap(), "4096");
            assert_eq!(fs::read_to_string(dir.join("cgroup.procs")).unwrap(), "77");
            drop(limit);
        }
    }
}
