//! Where mutation begins: pieces of real stores, a few KiB for each target.
//!
//! `cargo run -p esker-torture --example seeds` writes them to `fuzz/seeds`, where they are committed.

use std::path::PathBuf;

use esker_format::compression::{self, Compression};
use esker_format::raft::closed::{Closed, QueueEnd};
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::block::{BlockCursor, BlockLayout};
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::log::Reader;
use esker_format::rocksdb::{blob_refs, filter};

use super::image::{Image, table_blocks};
use super::open::images;

/// Longest seed: what is longer is cut.
const SEED_BYTES_MAX: usize = 4 << 10;
/// Most seeds of a target.
const SEEDS_MAX: usize = 12;

/// The directory of all seeds.
pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

/// The committed seeds of a target, in order.
///
/// # Panics
/// If there are none.
pub fn committed(target: &str) -> Vec<Vec<u8>> {
    let dir = directory().join(target);
    let listing = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = listing.map(|entry| entry.expect("a directory that lists").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file that reads")).collect()
}

/// The seeds of a target, made from fresh stores.
pub fn make(target: &str) -> Vec<Vec<u8>> {
    let (db, cask, raft) = (images("open_db"), images("open_cask"), images("open_raft_log"));
    let mut seeds = match target {
        "varint" => vec![vec![5], b"\x80\x01\x03abc\xff\xff\x03\0\0\0\0\0\0\0\0".to_vec(), vec![0xff; 11]],
        "compression" => compressed(),
        "file_names" => names(),
        "rocksdb_log" => [all(db, ".log"), manifests(db)].concat(),
        "rocksdb_write_batch" => all(db, ".log").iter().flat_map(|log| records(log)).collect(),
        "rocksdb_internal_key" => vec![b"key\x01\x07\0\0\0\0\0\0".to_vec(), b"\x03abcabd".to_vec(), vec![0xff; 12]],
        "rocksdb_version_edit" => manifests(db).iter().flat_map(|log| records(log)).collect(),
        "rocksdb_blob" => blobs(db),
        "rocksdb_options_file" => options_files(db),
        "rocksdb_block" => blocks(db).map(|block| [&b"target-12345"[..], &block].concat()).collect(),
        "rocksdb_index_block" => index_blocks(db),
        "rocksdb_filter" => filters(),
        "rocksdb_footer" => all(db, ".sst").iter().map(|table| table[table.len() - 53..].to_vec()).collect(),
        "rocksdb_meta_blocks" => meta_blocks(db),
        "raft_file_header" => all(raft, ".raftlog").iter().map(|file| file[..69].to_vec()).collect(),
        "raft_closed" => vec![Closed { append: end(7, 4096), rewrite: end(2, 69) }.encode()],
        "raft_log_batch" => all(raft, "log").iter().map(|file| file[69.min(file.len())..].to_vec()).collect(),
        "raft_items" => vec![golden_items()],
        "raft_entries" => vec![b"\xce\0\0\0\x7f\x0a\x011\x12\xc8\x01z\x01\0\xafPzzzzz".to_vec(), vec![7; 100]],
        "cask_data_file" => all(cask, ".data").iter().map(|file| file[..32].to_vec()).collect(),
        "cask_record" => all(cask, ".data").iter().map(|file| file[32..].to_vec()).collect(),
        "cask_hint" => hints(cask),
        "cask_manifest" => all(cask, "MANIFEST"),
        _ => images(target).iter().zip(0..).flat_map(|(image, index)| edits(image, index)).collect(),
    };
    seeds.retain(|seed| !seed.is_empty());
    seeds.iter_mut().for_each(|seed| seed.truncate(SEED_BYTES_MAX));
    seeds.sort();
    seeds.dedup();
    let stride = seeds.len().div_ceil(SEEDS_MAX).max(1);
    seeds.into_iter().step_by(stride).collect()
}

fn end(sequence: u64, bytes: u64) -> QueueEnd {
    QueueEnd { first: 1, sequence, bytes }
}

fn all(images: &[Image], end: &str) -> Vec<Vec<u8>> {
    images.iter().flat_map(|image| image.files(end)).map(<[u8]>::to_vec).collect()
}

fn manifests(images: &[Image]) -> Vec<Vec<u8>> {
    (1..20).flat_map(|number| all(images, &format!("MANIFEST-{number:06}"))).collect()
}

fn options_files(images: &[Image]) -> Vec<Vec<u8>> {
    (1..30).flat_map(|number| all(images, &format!("OPTIONS-{number:06}"))).collect()
}

fn records(log: &[u8]) -> Vec<Vec<u8>> {
    let (mut reader, mut records) = (Reader::new(log, None), Vec::new());
    while let Some(Ok((_, record))) = reader.next() {
        records.push(record.to_vec());
    }
    records
}

fn compressed() -> Vec<Vec<u8>> {
    let kinds = Compression::ALL;
    let raw = b"gravel and sand, gravel and sand, gravel and sand".repeat(8);
    let packed = |kind| {
        let mut out = Vec::new();
        compression::compress(kind, &raw, &mut out).expect("short");
        out
    };
    kinds.into_iter().zip(0u8..).map(|(kind, byte)| [vec![byte], packed(kind)].concat()).collect()
}

fn names() -> Vec<Vec<u8>> {
    let names = [
        "000012.log",
        "000012.sst",
        "000012.blob",
        "MANIFEST-000005",
        "CURRENT",
        "OPTIONS-000007",
        "IDENTITY",
        "LOCK",
        "0000000000000001.raftlog",
        "0000000000000001.rewrite",
        "000012.data",
        "000012.hint",
    ];
    names.map(|name| name.as_bytes().to_vec()).into()
}

fn blobs(images: &[Image]) -> Vec<Vec<u8>> {
    let mut index = Vec::new();
    BlobIndex { file: FileNumber::new(7), offset: 62, bytes: 300, compression: Compression::Zstd }.encode(&mut index);
    let files = all(images, ".blob");
    let parts =
        files.iter().flat_map(|file| [file[..30].to_vec(), file[30..62].to_vec(), file[file.len() - 32..].to_vec()]);
    parts.chain([index]).collect()
}

fn blocks(images: &[Image]) -> impl Iterator<Item = Vec<u8>> {
    let tables = all(images, ".sst");
    tables.into_iter().filter_map(|table| table_blocks(&table)).flat_map(|(_, blocks)| blocks).map(|(_, block)| block)
}

fn index_blocks(images: &[Image]) -> Vec<Vec<u8>> {
    let indexes = all(images, ".sst").into_iter().filter_map(|table| Some(table_blocks(&table)?.1.swap_remove(1).1));
    indexes.flat_map(|index| (0..8u8).map(move |format| [&[format][..], b"target-12345", &index].concat())).collect()
}

fn filters() -> Vec<Vec<u8>> {
    let mut builder = filter::FilterBuilder::new(10.0).expect("ten bits are enough for a filter");
    (0..100u32).for_each(|key| builder.add(&key.to_be_bytes()));
    vec![[b"key-12345".to_vec(), builder.finish()].concat(), vec![40; 60]]
}

fn meta_blocks(images: &[Image]) -> Vec<Vec<u8>> {
    let is_meta = |block: &[u8]| {
        let Ok(layout) = BlockLayout::parse(block) else { return false };
        let mut cursor = BlockCursor::new(layout);
        cursor.seek_to_first(block).is_ok() && cursor.key().is_ascii() && cursor.key().len() > 10
    };
    let refs = blob_refs::encode(&[(FileNumber::new(3), 900), (FileNumber::new(9), 70_000)].into());
    blocks(images).filter(|block| is_meta(block)).chain([refs]).collect()
}

/// Items of each kind, as raft-engine 0.4.2 wrote them.
fn golden_items() -> Vec<u8> {
    b"\x05\x07\x01\x02\xac\x02\x0a\x14\x07\x03\x01\x05state\x01S\x09\x02\x02\x80\x01\x07\x03\x02\x04gone\xe8\x07\x02\x01"
        .to_vec()
}

fn hints(images: &[Image]) -> Vec<Vec<u8>> {
    let files = all(images, ".hint");
    let parts = files
        .iter()
        .flat_map(|file| [file.clone(), file[..file.len() - 48].to_vec(), file[file.len() - 48..].to_vec()]);
    parts.collect()
}

/// An edit of each kind in each file, in pairs, with and without good checksums.
fn edits(image: &Image, index: u8) -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![index, 0]];
    for (file, len) in (0u8..).zip(image.lengths()) {
        let [low, high] = ((len / 2).min(usize::from(u16::MAX)) as u16).to_le_bytes();
        for (what, flags) in [(0, 2), (6, 2), (8, 0), (13, 2)] {
            let mut seed = vec![index, flags + (file % 4) * 4, file, what, low, high, 9, 3];
            seed.extend_from_slice(&[file.wrapping_add(1), 2, high, low, 0x80, 1]);
            seeds.push(seed);
        }
    }
    seeds
}
