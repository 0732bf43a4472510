//! Sealed files that are read as memory: no system call and no copy for what the page cache holds.
//!
//! - M1: only files that never change again, see [`Mapping`]. What that costs when the disk fails or a stranger truncates the
//!   file: the process, by `SIGBUS`. It is for those who ask for it.

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::{Access, FileSystem, Mapping, ReadFile, Result};

/// Opens the sealed file at `path` for reading; through a mapping if `mapped` is set and the system has one to give.
///
/// # Errors
/// As [`FileSystem::open`].
pub fn open_sealed(files: &dyn FileSystem, path: &Path, mapped: bool) -> Result<Arc<dyn ReadFile>> {
    let file = files.open(path)?;
    if !mapped {
        return Ok(file);
    }
    // A process has only so many mappings: whoever gets none reads.
    match file.map() {
        Ok(Some(mapping)) => Ok(Arc::new(MappedFile { file, mapping, kept: OnceLock::new() })),
        Ok(None) | Err(_) => Ok(file),
    }
}

/// A file and its bytes.
#[derive(Debug)]
struct MappedFile {
    file: Arc<dyn ReadFile>,
    mapping: Arc<dyn Mapping>,
    /// Goes last: nothing is mapped any more then.
    kept: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl ReadFile for MappedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn identity(&self) -> Result<(u64, u64)> {
        self.file.identity()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.mapping.bytes().get(start..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn memory(&self, range: Range<u64>) -> Option<&[u8]> {
        self.mapping.bytes().get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    fn keep(&self, what: Arc<dyn Any + Send + Sync>) {
        let _ = self.kept.set(what);
    }

    fn map(&self) -> Result<Option<Arc<dyn Mapping>>> {
        Ok(Some(self.mapping.clone()))
    }

    fn advise(&self, access: Access) {
        self.file.advise(access);
        self.mapping.advise(access);
    }

    fn will_read(&self, range: Range<u64>) {
        self.file.will_read(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn a_mapped_file_answers_as_the_file_does_and_lends_what_it_has() {
        let disk = SimDisk::new();
        let files = &*disk.env().files;
        let path = Path::new("/sealed");
        disk.overwrite(path, b"0123456789".to_vec());
        let (read, mapped) = (open_sealed(files, path, false).unwrap(), open_sealed(files, path, true).unwrap());
        assert_eq!(read.memory(0..1), None);
        for offset in 0..12 {
            for count in 0..12 {
                let (mut of_read, mut of_mapped) = ([0; 12], [0; 12]);
                let counts = (
                    read.read_at(offset, &mut of_read[..count]).unwrap(),
                    mapped.read_at(offset, &mut of_mapped[..count]).unwrap(),
                );
                assert_eq!((counts.0, of_read), (counts.1, of_mapped));
                let is_there = offset + count as u64 <= 10;
                let expected = is_there.then(|| &of_read[..count]);
                assert_eq!(mapped.memory(offset..offset + count as u64), expected);
            }
        }
        assert_eq!(mapped.memory(u64::MAX - 1..u64::MAX), None);
        assert_eq!(open_sealed(files, Path::new("/none"), true).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
