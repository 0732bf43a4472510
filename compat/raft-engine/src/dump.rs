//! What is written in files, item by item, alive or not.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileKind};
use esker_format::raft::entries::Packing;
use esker_format::raft::file_header::FileHeader;
use esker_format::raft::file_name::{FileId as EskerFileId, FileName};
use esker_format::raft::item::{Action, Items};
use esker_format::raft::log_batch::{BatchHeader, HEADER_BYTES, checked};
use esker_format::zeroes::is_zero;

use crate::engine::{FileBlockHandle, FileId};
use crate::env::{DefaultFileSystem, FileSystem};
use crate::{Command, Error, Result, bridge};

/// How entries are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionType {
    /// Not.
    None = 0,
    /// LZ4.
    Lz4 = 1,
}

/// Where an entry lies.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct EntryIndex {
    /// Its index.
    pub index: u64,
    /// The entries of its batch, with their checksum.
    pub entries: Option<FileBlockHandle>,
    /// How they are compressed.
    pub compression_type: CompressionType,
    /// Where it begins in them, unpacked.
    pub entry_offset: u32,
    /// How long it is.
    pub entry_len: u32,
}

impl Default for EntryIndex {
    fn default() -> Self {
        Self { index: 0, entries: None, compression_type: CompressionType::None, entry_offset: 0, entry_len: 0 }
    }
}

/// Those of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryIndexes(pub Vec<EntryIndex>);

/// What is done to a key.
#[derive(Debug, PartialEq, Eq, Copy, Clone)]
pub enum OpType {
    /// It gets a value.
    Put = 1,
    /// It loses it.
    Del = 2,
}

/// A key, and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// What.
    pub op_type: OpType,
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// The file.
    pub file_id: Option<FileId>,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogItem {
    /// Its group.
    pub raft_group_id: u64,
    /// What it does.
    pub content: LogItemContent,
}

/// What an item does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItemContent {
    /// It adds entries.
    EntryIndexes(EntryIndexes),
    /// It does something to the whole group.
    Command(Command),
    /// It does something to a key.
    Kv(KeyValue),
}

/// Reads items from files, oldest first. After an error it goes on with the next file.
#[derive(Debug)]
pub struct LogItemReader<F = DefaultFileSystem> {
    env: Env,
    files: VecDeque<(EskerFileId, PathBuf)>,
    open: Option<Open>,
    items: VecDeque<LogItem>,
    of: std::marker::PhantomData<fn() -> F>,
}

/// The file that is being read.
#[derive(Debug)]
struct Open {
    id: EskerFileId,
    path: PathBuf,
    bytes: Vec<u8>,
    header: FileHeader,
    offset: usize,
}

fn corrupt(path: &Path, offset: usize, reason: impl std::fmt::Display) -> Error {
    Error::Corruption(format!("{} at byte {offset}: {reason}", path.display()))
}

impl<F: FileSystem> LogItemReader<F> {
    pub(crate) fn new(path: &Path, files: Arc<F>) -> Result<Self> {
        let env = bridge::env(files);
        let metadata = env.files.metadata(path).map_err(|error| Error::InvalidArgument(error.to_string()))?;
        let id = |name: &str| match FileName::parse(name) {
            Some(FileName::Log(id)) => Some(id),
            _ => None,
        };
        let mut files: Vec<(EskerFileId, PathBuf)> = if metadata.kind == FileKind::Directory {
            let names = env.files.list(path).map_err(esker_raft_log::Error::from)?;
            names.into_iter().filter_map(|entry| Some((id(&entry.name)?, path.join(&entry.name)))).collect()
        } else {
            let found = path.file_name().and_then(|name| id(name.to_str()?));
            let found = found.ok_or_else(|| Error::InvalidArgument(format!("not a log file: {}", path.display())))?;
            vec![(found, path.to_owned())]
        };
        files.sort_by_key(|(id, _)| *id);
        Ok(Self { env, files: files.into(), open: None, items: VecDeque::new(), of: std::marker::PhantomData })
    }

    fn step(&mut self) -> Result<Option<LogItem>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            if let Some(open) = &mut self.open {
                match open.batch() {
                    Ok(Some(items)) => {
                        self.items = items;
                        continue;
                    }
                    ended => {
                        self.open = None;
                        ended?;
                    }
                }
            }
            let Some((id, path)) = self.files.pop_front() else { return Ok(None) };
            let bytes = self.env.files.read(&path).map_err(esker_raft_log::Error::from)?;
            let header = FileHeader::decode(&bytes).map_err(|error| corrupt(&path, 0, error))?;
            self.open = Some(Open { id, path, bytes, header, offset: header.len_bytes() });
        }
    }
}

impl<F: FileSystem> Iterator for LogItemReader<F> {
    type Item = Result<LogItem>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl Open {
    /// The items of the next batch; `None` at the end, or where zeroes follow.
    fn batch(&mut self) -> Result<Option<VecDeque<LogItem>>> {
        if let Some(past) = (self.offset as u64).checked_rem(self.header.alignment).filter(|past| *past > 0) {
            let padding = (self.header.alignment - past) as usize;
            let zeroes = self.bytes.get(self.offset..self.offset.saturating_add(padding));
            if zeroes.is_some_and(is_zero) {
                self.offset += padding;
            }
        }
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        if is_zero(rest) {
            return Ok(None);
        }
        let damaged = |error: esker_format::DecodeError| corrupt(&self.path, self.offset, error);
        let Some(head) = rest.first_chunk::<HEADER_BYTES>() else {
            return Err(corrupt(&self.path, self.offset, "a batch ends within its header"));
        };
        let header = BatchHeader::decode(head).map_err(damaged)?;
        let Some(batch) = usize::try_from(header.len).ok().and_then(|len| rest.get(..len)) else {
            return Err(corrupt(&self.path, self.offset, "a batch goes on behind the end"));
        };
        let block = batch.get(header.items_offset as usize..).unwrap_or_default();
        let salt = self.header.version.salt(self.id.sequence);
        let mut items = Items::new(checked("items", block, salt).map_err(damaged)?).map_err(damaged)?;
        let mut found = VecDeque::new();
        while let Some(item) = items.read().map_err(damaged)? {
            found.push_back(LogItem { raft_group_id: item.group, content: self.content(&header, &item.action) });
        }
        self.offset += batch.len();
        Ok(Some(found))
    }

    fn content(&self, header: &BatchHeader, action: &Action<'_>) -> LogItemContent {
        let id = FileId::from(self.id);
        let kv = |op_type, key: &[u8], value: Option<&[u8]>| {
            let (key, value) = (key.to_vec(), value.map(<[u8]>::to_vec));
            LogItemContent::Kv(KeyValue { op_type, key, value, file_id: Some(id) })
        };
        match action {
            Action::Clean => LogItemContent::Command(Command::Clean),
            Action::Compact { index } => LogItemContent::Command(Command::Compact { index: *index }),
            Action::Put { key, value } => kv(OpType::Put, key, Some(value)),
            Action::Delete { key } => kv(OpType::Del, key, None),
            Action::Entries(entries) => {
                let stored = header.entries();
                let (offset, len) = (self.offset as u64 + stored.start, (stored.end - stored.start) as usize);
                let block = FileBlockHandle { id, offset, len };
                let compression_type =
                    if header.packing == Packing::None { CompressionType::None } else { CompressionType::Lz4 };
                let indexes = entries.ranges().zip(entries.first_index..).map(|(range, index)| EntryIndex {
                    index,
                    entries: Some(block),
                    compression_type,
                    entry_offset: range.start,
                    entry_len: range.end - range.start,
                });
                LogItemContent::EntryIndexes(EntryIndexes(indexes.collect()))
            }
        }
    }
}
