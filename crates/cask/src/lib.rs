//! Esker's hash engine: append-only files, and a directory of their keys in memory that costs some 20 bytes a key.
//!
//! For point reads and writes of keys in no order. The public surface is [`Cask`]; `ARCHITECTURE.md` at the top of the repository
//! is the map of the rooms, `esker_format::cask` says what is on the disk.
//!
//! | room              | what it is for                                                          |
//! |-------------------|-------------------------------------------------------------------------|
//! | `cask`            | the public surface, in one place                                        |
//! | `store`           | what the rooms share, and the order of its locks                        |
//! | `keydir`          | key → record, 16 bytes a slot                                           |
//! | `file`            | one data file: reading, appending, its dead records, telling torn from rotten |
//! | `write`, `read`   | the two short paths                                                     |
//! | `scan`            | everything, sequentially, as of its start                               |
//! | `seal`, `manifest`| files begin and end; **install**, the one way to change which there are |
//! | `reclaim`         | merging: pick, run, install                                             |
//! | `open`            | manifest → hints → directory                                            |
//! | `stripe`          | which file a thread writes to, and the locks of keys                    |
//! | `suspects`        | keys whose newest record is damaged                                     |
//! | `background`      | threads that seal and merge                                             |
//! | `sync`            | what the directory's model has others of                                |
//! | `check`, `repair`, `backup`, `stats` | what is wrong, mending it, copies, what there is     |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod background;
mod backup;
mod batch;
mod cask;
mod check;
mod file;
mod keydir;
mod manifest;
mod open;
mod options;
mod read;
mod reclaim;
mod repair;
mod room;
mod scan;
mod seal;
mod stats;
mod store;
mod stripe;
mod suspects;
mod sync;
mod value;
mod write;

pub use backup::{CaskCopied, CaskCopyProgress};
pub use batch::CaskBatch;
pub use cask::Cask;
pub use check::{CaskCheck, CaskCheckProgress};
pub use esker_format::compression::Compression;
pub use esker_log::{Error, ErrorKind, Result};
pub use open::CaskRecovery;
pub use options::{CaskDamage, CaskOptions, CaskWriteOptions};
pub use repair::CaskRepair;
pub use scan::CaskScan;
pub use stats::CaskStats;
pub use value::CaskValue;
