//! Families change how they keep values, and where these lie, while the store is open.

use esker::env::sim::SimDisk;
use esker::{Db, Options, ReclaimMode, Separation};
use esker_torture::model::Contents;
use esker_torture::numbered::{assert_sound, contents, files, key};

use super::{open, options, value};

/// Goal: a family that falls back has no blob file left when it was compacted, keeps doing so when it is reopened, and
/// separates again when it is told to; a family that only stops leaves what is there.
#[test]
fn families_stop_separating_fall_back_and_begin_again_while_open() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Auto);
    let mut expected = garbage_auto(&db);
    let family = db.default_column_family();
    let blobs = db.stats().families[0].blob_files;
    db.set_separation(&family, Separation::Off).unwrap();
    let mut put = |db: &Db, n: u32, round: u32| {
        db.put(key(n), value(n, round)).unwrap();
        expected.insert(key(n), value(n, round));
        expected.clone()
    };
    put(&db, 2, 20);
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.stats().families[0].blob_files, blobs, "what is there stays, and nothing comes");
    db.set_separation(&family, Separation::FallBack).unwrap();
    let expected = put(&db, 3, 20);
    db.compact_range(&family, None, None).unwrap();
    assert_eq!((db.stats().families[0].blob_files, files(&disk, "blob").len()), (0, 0));
    assert!(contents(&db) == expected);
    db.close().unwrap();
    let options = Options { families: Default::default(), ..options(ReclaimMode::Auto) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let family = db.default_column_family();
    assert_eq!(family.separation(), Separation::FallBack, "as the OPTIONS file says");
    put(&db, 4, 20);
    db.flush().unwrap();
    assert_eq!(files(&disk, "blob").len(), 0);
    db.set_separation(&family, Separation::AtFlush).unwrap();
    // So many that compaction meets every table.
    (0..600).step_by(5).for_each(|n| drop(put(&db, n, 20)));
    let expected = put(&db, 5, 20);
    db.compact_range(&family, None, None).unwrap();
    let stats = db.stats().families[0].clone();
    assert!(stats.blob_files > 0 && stats.blob_live_bytes > 100_000, "values find their way back: {stats:?}");
    assert!(contents(&db) == expected);
    assert_sound(&db, "in the end");
}

/// As [`garbage`], whatever becomes of the garbage.
fn garbage_auto(db: &Db) -> Contents {
    let mut expected = Contents::new();
    for n in 0..600 {
        db.put(key(n), value(n, 0)).unwrap();
        expected.insert(key(n), value(n, 0));
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    expected
}

/// Goal: what scans find here and there is brought together, in key order, once they have read as much as that costs; answers stay.
#[test]
fn scans_have_scattered_values_brought_together() {
    let disk = SimDisk::new();
    let mut options = Options { max_space_amp: 4.0, ..options(ReclaimMode::Auto) };
    options.families.get_mut("default").unwrap().separation = Separation::AtWrite;
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let mut order: Vec<u32> = (0..600).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    order.into_iter().for_each(|n| db.put(key(n), value(n, 0)).unwrap());
    let scan = || {
        let before = db.stats().blob_read_calls;
        let found = contents(&db);
        let calls = db.stats().blob_read_calls - before;
        // Background work looks at what there is to do.
        db.put(key(0), value(0, 0)).unwrap();
        db.flush().unwrap();
        (calls, found)
    };
    let (before, expected) = scan();
    assert_eq!(db.stats().relocations, 0, "one scan is not worth it");
    for _ in 0..24 {
        scan();
    }
    let (after, found) = scan();
    assert!(found == expected && db.stats().relocations > 0, "{:?}", db.stats());
    assert!(after * 5 < before, "{after} reads instead of {before}");
    let passes = db.stats().relocations;
    for _ in 0..16 {
        scan();
    }
    assert_eq!(db.stats().relocations, passes, "what lies together is left alone");
    assert_sound(&db, "brought together");
}
