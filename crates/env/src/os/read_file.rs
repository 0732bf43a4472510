//! Reading.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::map::OsMapping;
use crate::{Access, Error, Mapping, ReadFile, ReadRequest, Result};

/// A file open for reading.
#[derive(Debug)]
pub(super) struct OsReadFile {
    file: File,
    path: PathBuf,
}

impl OsReadFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // The system opens directories too, and says so only when they are read.
        if file.metadata()?.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        Ok(Self { file, path: path.to_owned() })
    }

    fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::new(doing, &self.path, source)
    }
}

impl ReadFile for OsReadFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(|source| self.error("measuring", source))?;
        Ok(metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        let mut rest = buffer;
        while !rest.is_empty() {
            let place = offset.saturating_add(done as u64);
            match self.file.read_at(rest, place) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    rest = rest.get_mut(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error("reading", error).at(place)),
            }
        }
        Ok(done)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        // In the order of their places, which is kindest to readahead; the caller's order stays.
        let mut by_place: Vec<&mut ReadRequest<'_>> = requests.iter_mut().collect();
        by_place.sort_unstable_by_key(|request| request.offset);
        for request in by_place {
            request.result = self.read_exact_at(request.offset, request.buffer);
        }
    }

    fn map(&self) -> Result<Option<Arc<dyn Mapping>>> {
        // A file too large for the address space is read instead.
        let Ok(len) = usize::try_from(self.len()?) else {
            return Ok(None);
        };
        match OsMapping::new(&self.file, len) {
            Ok(mapping) => Ok(Some(Arc::new(mapping))),
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
            Err(error) => Err(self.error("mapping", error)),
        }
    }

    #[cfg(target_os = "linux")]
    fn advise(&self, access: Access) {
        use rustix::fs::{Advice, fadvise};
        let advice = match access {
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
        };
        // A hint: reads work without it.
        let _ = fadvise(&self.file, 0, None, advice);
    }

    #[cfg(not(target_os = "linux"))]
    fn advise(&self, _: Access) {}
}
