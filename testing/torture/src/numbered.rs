//! A store with one family, of keys by number: what tests of its space share.

use std::path::PathBuf;

use esker::env::sim::SimDisk;
use esker::{Db, ReadOptions};
use fastrand::Rng;

use crate::model::{Contents, forward};
use crate::noise::fill;

/// What a blob record takes besides its key and its value.
pub const RECORD_HEADER_BYTES: u64 = 32;

/// The key of this number; they follow each other as their numbers do.
pub fn key(n: u32) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// What key `n` gets in a round, in so many bytes: nothing that compression makes small.
pub fn noise(n: u32, round: u32, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    fill(&mut Rng::with_seed(u64::from(n) << 32 | u64::from(round)), &mut value);
    value
}

/// What the default family holds.
///
/// # Panics
/// If it cannot be read.
pub fn contents(db: &Db) -> Contents {
    forward(db, &db.default_column_family(), &ReadOptions::default()).unwrap().into_iter().collect()
}

/// A check finds nothing.
///
/// # Panics
/// If it does.
pub fn assert_sound(db: &Db, what: &str) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
}

/// The files whose names end so.
pub fn files(disk: &SimDisk, extension: &str) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}
