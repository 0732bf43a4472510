//! Which blob files can be used as they are, and what can be read in the others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{FileSystem, ReadFile};
use esker_format::compression::Compression;
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::{BlobFileHeader, BlobIndex, HEADER_BYTES};
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::BlobFileAddition;

use super::survey::{Survey, is_damage};
use crate::blob::BlobFile;
use crate::open::has_lost_sector;
use crate::{Error, Result};

/// Blob files by number.
#[derive(Debug, Default)]
pub(super) struct Blobs(BTreeMap<FileNumber, FoundBlob>);

/// One of them.
#[derive(Debug)]
pub(super) struct FoundBlob {
    pub(super) path: PathBuf,
    /// What its header says.
    pub(super) family: Option<u32>,
    /// If all of it is in order.
    pub(super) sound: Option<Sound>,
    file: Arc<dyn ReadFile>,
    file_bytes: u64,
    /// The same file, for values that are packed so: what the header says may be lost.
    readers: RefCell<Vec<(Compression, Arc<BlobFile>)>>,
}

#[derive(Debug)]
pub(super) struct Sound {
    pub(super) file: Arc<BlobFile>,
    pub(super) addition: BlobFileAddition,
}

impl Blobs {
    /// Reads all of them.
    pub(super) fn read(files: &dyn FileSystem, dir: &Path, survey: &Survey, damage: &mut Vec<Error>) -> Result<Self> {
        let mut found = BTreeMap::new();
        for name in &survey.names {
            let FileName::Blob(number) = *name else { continue };
            let path = dir.join(name.to_string());
            let file = files.open(&path)?;
            let file_bytes = file.len()?;
            let mut raw = [0; HEADER_BYTES];
            let got = file.read_at(0, &mut raw)?;
            let header = raw.get(..got).and_then(|raw| BlobFileHeader::decode(raw).ok());
            let family = header.map(|header| header.column_family_id);
            // All pointers say how values are packed, and one that is unknown is refused by itself.
            let is_packing_known = || true;
            let opened = match survey.said_of_blob(number) {
                Some((family, said)) => BlobFile::open_as(file.clone(), said, family, is_packing_known),
                None => BlobFile::open_pointed_to(file.clone(), number, family.unwrap_or(0), is_packing_known),
            };
            // Holes in what is dead are no damage, and whether it is dead is not known yet.
            let checked = opened.and_then(|opened| {
                opened.check(true)?;
                Ok(opened)
            });
            let sound = match checked {
                Ok(file) => Some(Sound { addition: file.addition(), file }),
                Err(error) if is_damage(&error) => {
                    if survey.names_blob(number) {
                        damage.push(error);
                    }
                    None
                }
                Err(error) => return Err(error),
            };
            let readers = RefCell::default();
            found.insert(number, FoundBlob { path, family, sound, file, file_bytes, readers });
        }
        Ok(Self(found))
    }

    /// One that was just written.
    pub(super) fn add(
        &mut self,
        sound: Arc<BlobFile>,
        addition: BlobFileAddition,
        family: u32,
        files: &dyn FileSystem,
    ) -> Result<()> {
        let (path, number) = (sound.path().to_owned(), addition.number);
        let (file, file_bytes) = (files.open(&path)?, sound.file_bytes());
        let sound = Some(Sound { file: sound, addition });
        let found = FoundBlob { path, family: Some(family), sound, file, file_bytes, readers: RefCell::default() };
        self.0.insert(number, found);
        Ok(())
    }

    pub(super) fn get(&self, number: FileNumber) -> Option<&FoundBlob> {
        self.0.get(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FileNumber, &FoundBlob)> {
        self.0.iter().map(|(&number, blob)| (number, blob))
    }

    /// Whether the value of `user_key` can be read, and from a file that stays.
    pub(super) fn is_whole(&self, family: u32, user_key: &[u8], index: &BlobIndex) -> Result<bool> {
        let of_family = self.get(index.file).filter(|blob| blob.family == Some(family));
        let Some(sound) = of_family.and_then(|blob| blob.sound.as_ref()) else { return Ok(false) };
        match sound.file.read(user_key, index) {
            Ok(_) => Ok(true),
            Err(error) if is_damage(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the value of `user_key` can be read, from whatever file.
    pub(super) fn is_readable(&self, family: u32, user_key: &[u8], index: &BlobIndex) -> Result<bool> {
        Ok(self.is_whole(family, user_key, index)? || self.reader(user_key, index)?.is_some())
    }

    /// Whether a power loss may have kept the value that `index` points to from ever being there, so that it was never acknowledged (P2 of
    /// `open/pointers.rs`).
    pub(super) fn may_be_unwritten(&self, user_key: &[u8], index: &BlobIndex) -> Result<bool> {
        let Some(blob) = self.get(index.file) else { return Ok(false) };
        let start = index.record_offset(user_key.len()).unwrap_or(index.offset);
        let end = index.offset.saturating_add(index.bytes);
        Ok(end > blob.file_bytes || has_lost_sector(&blob.reader(index), start, end)?)
    }

    /// A file that is not in order, or whose header is not that of its values, for the value that `index` points to, if that can be read.
    pub(super) fn reader(&self, user_key: &[u8], index: &BlobIndex) -> Result<Option<Arc<BlobFile>>> {
        let Some(blob) = self.get(index.file) else { return Ok(None) };
        let reader = blob.reader(index);
        match reader.read(user_key, index) {
            Ok(_) => Ok(Some(reader)),
            Err(error) if is_damage(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl FoundBlob {
    fn reader(&self, index: &BlobIndex) -> Arc<BlobFile> {
        let mut readers = self.readers.borrow_mut();
        if let Some((_, reader)) = readers.iter().find(|(compression, _)| *compression == index.compression) {
            return reader.clone();
        }
        let reader = BlobFile::growing(self.file.clone(), &self.path, index.file, index.compression, self.file_bytes);
        readers.push((index.compression, reader.clone()));
        reader
    }
}
