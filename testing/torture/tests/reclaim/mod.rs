//! Space comes back, and nothing else changes.
//!
//! - `moves`: what is moved stays what it is: the classes of bugs that key-value separation brought to other systems (design, section 10:
//!   B1 to B4, B8 and B9), with crashes and faults at every operation;
//! - `ledger`: what is garbage is known to the byte, and is never too much (B10);
//! - `foretold`: a plan tells what is done then;
//! - `holes`: dead pages are given back where they lie;
//! - `modes`: families change how they keep values while the store is open;
//! - `small`: small files are merged, with crashes and faults at every operation, too;
//! - `everywhere`: the other kinds die at every operation, and every call of theirs fails;
//! - `windows`: passes over one range of keys, beside writers and readers, with crashes and faults in the midst of them;
//! - `bound`: a store, a limit and a full disk;
//! - `limit`: the same of any options, while they change.
//!
//! Where each kind of reclaim dies and fails, at every operation:
//!
//! | kind                                       | by                                                                    |
//! |--------------------------------------------|-----------------------------------------------------------------------|
//! | values are relocated, or come home         | `moves`                                                               |
//! | small files are merged                     | `small`                                                               |
//! | sweep, gathering, holes, files of a range  | `everywhere`                                                          |
//! | windows                                    | the engine's own tests of compaction; here among writes, in `windows` |

mod bound;
mod everywhere;
mod foretold;
mod holes;
mod ledger;
mod limit;
mod modes;
mod moves;
mod small;
mod windows;

use esker::env::sim::SimDisk;
use esker::{Compression, Db, FamilyOptions, Options, ReclaimMode};
use esker_torture::model::Contents;
use esker_torture::numbered::{key, noise};

const BLOB_FILE_BYTES: u64 = 64 << 10;

fn options(mode: ReclaimMode) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        min_blob_size: 100,
        blob_file_bytes: BLOB_FILE_BYTES,
        blob_compression: Compression::None,
        target_file_bytes: 4 << 10,
        level_base_bytes: 16 << 10,
        level_multiplier: 4,
        level0_compaction_trigger: 2,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        punch_holes: true,
        background_jobs: 0,
        reclaim_mode: mode,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, mode: ReclaimMode) -> Db {
    Db::open_with_env("/store", options(mode), disk.env()).unwrap()
}

/// What a key gets in a round: a few hundred bytes.
fn value(n: u32, round: u32) -> Vec<u8> {
    noise(n, round, 200 + (n as usize * 37) % 300)
}

/// Several blob files, tables in several levels, and garbage: every third key was overwritten, every seventh deleted.
fn garbage(db: &Db) -> Contents {
    let mut expected = Contents::new();
    for n in 0..600 {
        db.put(key(n), value(n, 0)).unwrap();
        expected.insert(key(n), value(n, 0));
    }
    let family = db.default_column_family();
    db.compact_range(&family, None, None).unwrap();
    for n in (0..600).step_by(3) {
        db.put(key(n), value(n, 1)).unwrap();
        expected.insert(key(n), value(n, 1));
    }
    for n in (0..600).step_by(7) {
        db.delete(key(n)).unwrap();
        expected.remove(&key(n));
    }
    db.compact_range(&family, None, None).unwrap();
    assert!(db.stats().families[0].blob_garbage_bytes > BLOB_FILE_BYTES / 2);
    expected
}
