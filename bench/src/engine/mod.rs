//! The one trait that every engine is seen through, and the list of engines.

mod canary;
mod candystore;
mod cask;
mod emdb;
mod esker;
mod fjall;
mod lmdb;
mod null;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::path::Path;

use crate::Result;
use crate::data::{Data, Key};
use crate::plan::Settings;
use crate::raft::{self, OpenRaft};

/// A key and its new value.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Whose value.
    pub key: Key,
    /// The value.
    pub value: Vec<u8>,
}

/// An open store. All calls may be made from any number of threads at once, except `close`.
///
/// Values are handed to a closure, so that an engine which can lend its own memory need not copy.
pub trait Engine: Send + Sync {
    /// Whether scans are in key order and may begin anywhere. If not, they show everything, from no matter where, and there
    /// are no ranges.
    fn is_ordered(&self) -> bool {
        true
    }

    /// Sets all of `batch`, all or nothing. Never more than one pair where the registry says [`Open::Single`].
    ///
    /// # Errors
    /// The engine's own.
    fn put(&self, batch: &[Pair]) -> Result<()>;

    /// Removes a key.
    ///
    /// # Errors
    /// The engine's own.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Shows the value of a key, or that it has none.
    ///
    /// # Errors
    /// The engine's own.
    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Whether a key is there; by the cheapest call that the engine has for it.
    ///
    /// # Errors
    /// The engine's own.
    fn exists(&self, key: &[u8]) -> Result<bool>;

    /// Shows entries from `from` on in key order until `show` says `false`.
    ///
    /// # Errors
    /// The engine's own.
    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// Shows keys from `from` on in order until `show` says `false`; reads no value where the engine can help it.
    ///
    /// # Errors
    /// The engine's own.
    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()>;

    /// Flushes, and waits until the engine has no work left, as far as it can tell.
    ///
    /// # Errors
    /// The engine's own.
    fn settle(&self) -> Result<()>;

    /// Closes it in order.
    ///
    /// # Errors
    /// The engine's own.
    fn close(self: Box<Self>) -> Result<()>;
}

/// An engine that can be asked for by name.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its package in the lock file, where the version is read.
    pub(crate) package: &'static str,
    pub(crate) open: Open,
    /// How it is set up, for the report.
    pub setup: fn(&Settings) -> String,
}

/// How to open one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Open {
    /// In this process.
    Here(fn(&Path, &Settings, &Data) -> Result<Box<dyn Engine>>),
    /// In this process, and several keys cannot be written all or nothing: it is left out of batches.
    Single(fn(&Path, &Settings, &Data) -> Result<Box<dyn Engine>>),
    /// In this process, a Raft log.
    Raft(OpenRaft),
    /// By a program of its own that speaks [`crate::plan`]'s lines.
    Elsewhere,
}

/// All key-value engines of this build.
const ENGINES: &[Entry] = &[
    Entry {
        name: "esker",
        about: "Esker, values of min_blob_bytes and more in blob files (Separation::AtFlush)",
        package: "esker",
        open: Open::Here(|dir, settings, _| esker::open(dir, settings, ::esker::Separation::AtFlush)),
        setup: esker::setup,
    },
    Entry {
        name: "esker-at-write",
        about: "Esker, values of min_blob_bytes and more in blob files as they are written (Separation::AtWrite)",
        package: "esker",
        open: Open::Here(|dir, settings, _| esker::open(dir, settings, ::esker::Separation::AtWrite)),
        setup: esker::setup,
    },
    Entry {
        name: "esker-inline",
        about: "Esker, all values with their keys (Separation::Off)",
        package: "esker",
        open: Open::Here(|dir, settings, _| esker::open(dir, settings, ::esker::Separation::Off)),
        setup: esker::setup_inline,
    },
    Entry {
        name: "esker-mmap",
        about: "Esker, values of min_blob_bytes and more in blob files (Separation::AtFlush), all files mapped",
        package: "esker",
        open: Open::Here(|dir, settings, _| esker::open_mapped(dir, settings)),
        setup: esker::setup_mapped,
    },
    Entry {
        name: "cask",
        about: "Esker's Cask: a hash index over append-only files; no key order",
        package: "esker",
        open: Open::Here(|dir, settings, _| cask::open(dir, settings)),
        setup: cask::setup,
    },
    Entry {
        name: "candystore",
        about: "CandyStore: a hash table on disk, mapped, over append-only files; no key order, no batches",
        package: "candystore",
        open: Open::Single(|dir, settings, _| candystore::open(dir, settings)),
        setup: candystore::setup,
    },
    Entry {
        name: "emdb",
        about: "emdb: a hash index in memory over one append-only file; no key order, no batches",
        package: "emdb",
        open: Open::Single(|dir, settings, _| emdb::open(dir, settings)),
        setup: emdb::setup,
    },
    #[cfg(feature = "rocksdb")]
    Entry {
        name: "rocksdb",
        about: "RocksDB, all values with their keys",
        package: "librocksdb-sys",
        open: Open::Here(|dir, settings, _| rocksdb::open(dir, settings, false)),
        setup: rocksdb::setup,
    },
    #[cfg(feature = "rocksdb")]
    Entry {
        name: "rocksdb-blob",
        about: "RocksDB with BlobDB, values of min_blob_bytes and more in blob files",
        package: "librocksdb-sys",
        open: Open::Here(|dir, settings, _| rocksdb::open(dir, settings, true)),
        setup: rocksdb::setup_blob,
    },
    Entry {
        name: "fjall",
        about: "Fjall, all values with their keys",
        package: "fjall",
        open: Open::Here(|dir, settings, _| fjall::open(dir, settings, false)),
        setup: fjall::setup,
    },
    Entry {
        name: "fjall-blob",
        about: "Fjall with key-value separation",
        package: "fjall",
        open: Open::Here(|dir, settings, _| fjall::open(dir, settings, true)),
        setup: fjall::setup_blob,
    },
    Entry {
        name: "redb",
        about: "redb: copy-on-write B+-tree",
        package: "redb",
        open: Open::Here(|dir, settings, _| redb::open(dir, settings)),
        setup: redb::setup,
    },
    Entry {
        name: "lmdb",
        about: "LMDB through heed: memory-mapped copy-on-write B+-tree",
        package: "lmdb-master-sys",
        open: Open::Here(|dir, settings, _| lmdb::open(dir, settings)),
        setup: lmdb::setup,
    },
    Entry {
        name: "badger",
        about: "Badger v4 (Go), values of min_blob_bytes and more in the value log",
        package: "",
        open: Open::Elsewhere,
        setup: |_| String::new(),
    },
    Entry {
        name: "null",
        about: "stores nothing and answers from the generator: what the harness itself costs",
        package: "esker-compare",
        open: Open::Here(|_, _, data| Ok(null::open(data))),
        setup: |_| "no store at all".into(),
    },
    Entry {
        name: "canary-lost-put",
        about: "Esker, but one put in 5,000 is lost: must be caught",
        package: "esker",
        open: Open::Here(|dir, settings, _| canary::open(dir, settings, canary::Lie::LostPut)),
        setup: esker::setup,
    },
    Entry {
        name: "canary-stale-key",
        about: "Esker, but updates of one key in 50 are dropped: must be caught",
        package: "esker",
        open: Open::Here(|dir, settings, _| canary::open(dir, settings, canary::Lie::StaleKey)),
        setup: esker::setup,
    },
    Entry {
        name: "canary-flipped-bit",
        about: "Esker, but one value in 1,000 has a bit flipped: must be caught",
        package: "esker",
        open: Open::Here(|dir, settings, _| canary::open(dir, settings, canary::Lie::FlippedBit)),
        setup: esker::setup,
    },
    Entry {
        name: "canary-skipped-key",
        about: "Esker, but ranges and scans leave out one entry in 1,000: must be caught",
        package: "esker",
        open: Open::Here(|dir, settings, _| canary::open(dir, settings, canary::Lie::SkippedKey)),
        setup: esker::setup,
    },
    Entry {
        name: "canary-lost-delete",
        about: "Esker, but one delete in 50 does not happen: must be caught",
        package: "esker",
        open: Open::Here(|dir, settings, _| canary::open(dir, settings, canary::Lie::LostDelete)),
        setup: esker::setup,
    },
];

impl Entry {
    /// All engines of this build: key-value stores, then Raft logs.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        ENGINES.iter().chain(raft::ENGINES)
    }

    /// The engine of that name.
    ///
    /// # Errors
    /// There is none; the names that there are.
    pub fn find(name: &str) -> Result<&'static Self> {
        Self::all().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<_> = Self::all().map(|entry| entry.name).collect();
            let hint = if cfg!(feature = "rocksdb") { "" } else { " (rocksdb needs --features rocksdb)" };
            format!("there is no engine {name:?}{hint}; there are {}", names.join(", ")).into()
        })
    }

    /// How to open it, if it is a Raft log.
    pub(crate) fn raft(&self) -> Option<OpenRaft> {
        if let Open::Raft(open) = self.open { Some(open) } else { None }
    }

    /// Whether it is a Raft log.
    pub fn is_raft(&self) -> bool {
        self.raft().is_some()
    }

    /// Whether one of its writes has one key: several would not be all or nothing.
    pub fn is_single(&self) -> bool {
        matches!(self.open, Open::Single(_))
    }

    /// Whether it runs in a program of its own.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.open, Open::Elsewhere)
    }

    /// Opens the store in `dir`, making it where there is none.
    ///
    /// # Errors
    /// The engine's own.
    pub fn open(&self, dir: &Path, settings: &Settings, data: &Data) -> Result<Box<dyn Engine>> {
        match self.open {
            Open::Here(open) | Open::Single(open) => open(dir, settings, data),
            Open::Raft(_) => Err(format!("{} is a Raft log", self.name).into()),
            Open::Elsewhere => Err(format!("{} does not run in this process", self.name).into()),
        }
    }

    /// Its version, from the lock file that this build was made with.
    pub fn version(&self) -> String {
        let name = format!("name = \"{}\"", self.package);
        let mut lines = include_str!("../../Cargo.lock").lines().skip_while(|line| *line != name);
        let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
        version.map_or_else(|| "?".into(), |version| version.trim_matches('"').to_owned())
    }
}
