//! The hint of a data file while the store opens: read once from front to back, then asked for single entries.
//!
//! Cost: three quarters of a byte of memory for each entry; an entry is found again by a binary search and sixteen
//! entries on average. The data file is not touched.

use std::sync::Arc;

use esker_env::{Access, Env, Mapping};
use esker_format::cask::FileName;
use esker_format::cask::hint::{Block, Entries, Entry, Footer, Mark};
use esker_format::cask::record::{self, FIRST_OFFSET};

use crate::Result;
use crate::file::DataFile;

/// Entries between two places from which reading can begin.
const MARK_EVERY: usize = 32;

/// A hint whose footer fits its data file.
pub(super) struct Hint {
    raw: Raw,
    salt: u32,
    block_bytes: usize,
    /// By ascending offset, each with the place in the hint where the next entry begins.
    marks: Vec<(Mark, usize)>,
}

enum Raw {
    Mapped(Arc<dyn Mapping>),
    Read(Vec<u8>),
}

impl Raw {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Read(bytes) => bytes,
        }
    }
}

impl Hint {
    /// `None`: there is no hint, or it is another file's.
    pub(super) fn open(env: &Env, data: &DataFile, record_count: u64) -> Result<Option<Self>> {
        let path = data.path.with_file_name(FileName::Hint(data.number).name());
        let file = match env.files.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        file.advise(Access::Sequential);
        let raw = match file.map().unwrap_or_default() {
            Some(mapping) => Raw::Mapped(mapping),
            None => Raw::Read(env.files.read(&path)?),
        };
        let Ok(footer) = Footer::decode(raw.bytes()) else { return Ok(None) };
        let fits = footer.number == data.number
            && footer.salt == data.salt
            && footer.data_bytes == data.end()
            && footer.record_count == record_count;
        let Some(block_bytes) = usize::try_from(footer.block_bytes).ok().filter(|_| fits) else { return Ok(None) };
        Ok(Some(Self { raw, salt: data.salt, block_bytes, marks: Vec::new() }))
    }

    /// Hands out every entry, in order. `false`: a block does not check out, or an entry does not fit; what was handed out until then is
    /// of no use.
    pub(super) fn read_all(&mut self, data_bytes: u64, mut take: impl FnMut(&Entry<'_>) -> Result<()>) -> Result<bool> {
        let Some(blocks) = self.raw.bytes().get(..self.block_bytes) else { return Ok(false) };
        let mut rest = blocks;
        let mut end = FIRST_OFFSET;
        while !rest.is_empty() {
            let Ok((block, bytes)) = Block::decode(rest, self.salt) else { return Ok(false) };
            rest = rest.get(bytes..).unwrap_or_default();
            let payload_end = blocks.len() - rest.len();
            let mut entries = block.entries();
            for index in 0.. {
                if index % MARK_EVERY == 0 {
                    let mark = entries.mark();
                    self.marks.push((mark, payload_end.saturating_sub(mark.bytes_left)));
                }
                match entries.next() {
                    None => break,
                    Some(Ok(entry)) if fits(&entry, end, data_bytes) => {
                        end = entry.offset + entry.record_bytes;
                        take(&entry)?;
                    }
                    Some(_) => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// The entry for the record at `offset`, of those that were handed out.
    pub(super) fn entry(&self, offset: u64) -> Option<Entry<'_>> {
        let after = self.marks.partition_point(|(mark, _)| mark.offset <= offset);
        self.since_mark(after.checked_sub(1)?).find(|entry| entry.offset == offset)
    }

    /// All that were handed out.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.marks.len()).flat_map(|index| self.since_mark(index))
    }

    /// Up to the next mark.
    fn since_mark(&self, index: usize) -> impl Iterator<Item = Entry<'_>> {
        let rest = |(mark, at): &(Mark, usize)| {
            let rest = self.raw.bytes().get(*at..at.checked_add(mark.bytes_left)?)?;
            Some(Entries::from_mark(*mark, rest))
        };
        let entries = self.marks.get(index).and_then(rest);
        entries.into_iter().flat_map(|entries| entries.take(MARK_EVERY)).filter_map(std::result::Result::ok)
    }
}

/// Whether an entry names a record that lies between two places of its data file.
fn fits(entry: &Entry<'_>, from: u64, to: u64) -> bool {
    let end = entry.offset.checked_add(entry.record_bytes);
    entry.version > 0
        && entry.offset >= from
        && entry.record_bytes >= record::record_bytes(entry.key.len(), 0, false)
        && end.is_some_and(|end| end <= to)
}
