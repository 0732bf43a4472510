//! What is garbage is known to the byte, and is never too much.

use esker::ReclaimMode;
use esker::env::sim::SimDisk;
use esker_torture::model::Contents;
use esker_torture::numbered::{RECORD_HEADER_BYTES, assert_sound, files, key};

use super::{BLOB_FILE_BYTES, open, value};

/// Goal (B10): the ledger is exact: through overwrites, deletions, reclaim and reopening it says of what lives just what
/// the living take: header, key and value of each.
#[test]
fn b10_the_ledger_is_exact_through_reclaim_and_reopening() {
    let disk = SimDisk::new();
    let mut random = fastrand::Rng::with_seed(10);
    let mut expected = Contents::new();
    for round in 0..5 {
        let mode = if round % 2 == 0 { ReclaimMode::Auto } else { ReclaimMode::Manual };
        let db = open(&disk, mode);
        for _ in 0..1500 {
            let n = random.u32(..500);
            if random.u8(..5) == 0 {
                db.delete(key(n)).unwrap();
                expected.remove(&key(n));
            } else {
                let value = value(random.u32(..1000), round);
                db.put(key(n), &value).unwrap();
                expected.insert(key(n), value);
            }
        }
        let family = db.default_column_family();
        db.compact_range(&family, None, None).unwrap();
        let stats = db.stats().families[0].clone();
        let record = |(key, value): (&Vec<u8>, &Vec<u8>)| RECORD_HEADER_BYTES + (key.len() + value.len()) as u64;
        assert_eq!(stats.blob_live_bytes, expected.iter().map(record).sum::<u64>(), "round {round}");
        let on_disk: u64 =
            files(&disk, "blob").iter().map(|path| disk.file_bytes(path).unwrap().len() as u64 - 62).sum();
        assert_eq!(stats.blob_live_bytes + stats.blob_garbage_bytes, on_disk, "round {round}");
        assert_sound(&db, "each round");
        db.close().unwrap();
    }
}

/// Goal: blob files never take more than the bound allows for what lives, by more than one of them, while data are
/// overwritten at random ten times over.
#[test]
fn space_stays_within_its_bound_through_ten_overwrites() {
    const KEYS: u32 = 2000;
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Auto);
    let mut random = fastrand::Rng::with_seed(7);
    let live = |n: u32| RECORD_HEADER_BYTES + (key(n).len() + value(n, 0).len()) as u64;
    let live: u64 = (0..KEYS).map(live).sum();
    for n in 0..KEYS {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    let mut worst = 0.0f64;
    for put in 0..KEYS * 10 {
        let n = random.u32(..KEYS);
        db.put(key(n), value(n, 0)).unwrap();
        if put % 50 == 0 {
            let blob_bytes = db.stats().on_disk.blob_bytes;
            worst = worst.max(blob_bytes as f64 / live as f64);
            let bound = live * 13 / 10 + BLOB_FILE_BYTES;
            assert!(blob_bytes <= bound, "after {put} puts: {blob_bytes} bytes for {live} that live ({worst:.2})");
        }
    }
    assert!(db.stats().relocations > 3, "{}", db.stats().relocations);
    assert_sound(&db, "in the end");
}
