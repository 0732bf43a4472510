//! Bodies of the fuzz targets: one for each format, one for each engine's open. Whatever bytes come, they return.
//!
//! `tests/fuzz.rs` runs them over the committed seeds and thousands of mutations of these, the same on every machine; libFuzzer
//! drives the same bodies for hours (`fuzz/README.md`).
//!
//! - Z1: a body panics only if the code under test broke its word: decoders return a value or an error, and what they accepted,
//!   encoded again and decoded again, is the same.
//! - Z2: a format that checks itself by a checksum is tried twice: with the bytes as they are, and with the checksum made good, so
//!   that what lies behind it is reached.
//! - Z3: bodies keep nothing between calls but what a thread's own buffers hold.

mod cask;
mod image;
mod open;
mod raft;
mod rocksdb;
pub mod seeds;
mod shared;
mod table;

use fastrand::Rng;

/// One of them.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of the program under `fuzz/targets`, of its directory of seeds.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Whether a call takes a whole store: some thousand times as long as another's.
    pub is_open: bool,
}

macro_rules! targets {
    ($($name:literal => $body:path, $is_open:literal;)*) => {
        /// All there are.
        pub const TARGETS: &[Target] = &[$(Target { name: $name, run: $body, is_open: $is_open }),*];
    };
}

targets! {
    "varint" => shared::varint, false;
    "compression" => shared::compression, false;
    "file_names" => shared::file_names, false;
    "rocksdb_log" => rocksdb::log, false;
    "rocksdb_write_batch" => rocksdb::write_batch, false;
    "rocksdb_internal_key" => rocksdb::internal_key, false;
    "rocksdb_version_edit" => rocksdb::version_edit, false;
    "rocksdb_blob" => rocksdb::blob, false;
    "rocksdb_options_file" => rocksdb::options_file, false;
    "rocksdb_block" => table::block, false;
    "rocksdb_index_block" => table::index_block, false;
    "rocksdb_filter" => table::filter, false;
    "rocksdb_footer" => table::footer, false;
    "rocksdb_meta_blocks" => table::meta_blocks, false;
    "raft_file_header" => raft::file_header, false;
    "raft_closed" => raft::closed, false;
    "raft_log_batch" => raft::log_batch, false;
    "raft_items" => raft::items, false;
    "raft_entries" => raft::entries, false;
    "cask_data_file" => cask::data_file, false;
    "cask_record" => cask::record, false;
    "cask_hint" => cask::hint, false;
    "cask_manifest" => cask::manifest, false;
    "open_db" => open::db, true;
    "open_cask" => open::cask, true;
    "open_raft_log" => open::raft_log, true;
}

/// Runs the target of that name. For the programs of libFuzzer.
///
/// # Panics
/// If the target does, or there is none.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("no fuzz target is called {name}")).run.to_owned()(bytes);
}

/// `seed`, changed in a few places: bits, bytes, interesting numbers, pieces moved, doubled, cut out, or taken from `other`.
pub fn mutate(random: &mut Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 << random.u32(0..4) {
        mutate_once(random, &mut bytes, other);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

/// Longest input that mutation makes: longer ones find nothing that these do not.
const BYTES_MAX: usize = 80 << 10;

/// Numbers at which lengths, counts and offsets turn over.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, (1 << 56) - 1, 1 << 62, i64::MAX as u64, u64::MAX];

fn mutate_once(random: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.usize(..=bytes.len());
    let piece = at..(at + random.usize(..=24)).min(bytes.len());
    match random.u8(..10) {
        0..3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.u8(..8);
            }
        }
        3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0x7f, 0x80, 0xff, random.u8(..)][random.usize(..6)];
            }
        }
        4 => {
            let edge = EDGES[random.usize(..EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.usize(..4)];
            bytes.iter_mut().skip(at).zip(&edge[..width]).for_each(|(byte, edge)| *byte = *edge);
        }
        5 => bytes.truncate(at),
        6 => drop(bytes.drain(piece)),
        7 => {
            let copied = bytes[piece].to_vec();
            let to = random.usize(..=bytes.len());
            bytes.splice(to..to, copied);
        }
        8 => {
            let from = random.usize(..=other.len());
            let until = (from + random.usize(..=64)).min(other.len());
            bytes.splice(piece, other[from..until].iter().copied());
        }
        _ => {
            let noise: Vec<u8> = (0..random.usize(..8)).map(|_| random.u8(..)).collect();
            bytes.splice(at..at, noise);
        }
    }
}
