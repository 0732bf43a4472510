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

/// Goal: what lies together is not written again for scans of before, however many there were until somebody could see to it.
#[test]
fn many_scans_have_all_there_is_brought_together_once() {
    let disk = SimDisk::new();
    let mut options = Options { max_space_amp: 4.0, cache_bytes: 0, ..options(ReclaimMode::Auto) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 4 << 20);
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let mut order: Vec<u32> = (0..56).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    let mut expected = Contents::new();
    for some in order.chunks(4) {
        for &n in some {
            db.put(key(n), value(n, 0).repeat(6)).unwrap();
            expected.insert(key(n), value(n, 0).repeat(6));
        }
        db.flush().unwrap();
    }
    (0..40).for_each(|_| assert!(contents(&db) == expected));
    db.put(key(0), &expected[&key(0)]).unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().relocations, 1);
    assert!(contents(&db) == expected);
}

/// Goal: a family falls back beside a writer, whoever does it, with room for its values twice, or less: puts get on, the limit holds, and in the end
/// there is no blob file.
#[test]
fn a_family_falls_back_beside_a_writer() {
    let keys = 6000;
    let live: u64 = (0..keys).map(|n| value(n, 0).len() as u64 + 50).sum();
    for (jobs, tenths) in [(0, 15), (0, 20), (1, 40), (2, 40), (3, 40)] {
        // What logs, memtables and whole blocks take is much beside so little.
        let max_disk_bytes = live * tenths / 10 + (1 << 20);
        let disk = SimDisk::new();
        let mut options = Options { background_jobs: jobs, max_disk_bytes, ..options(ReclaimMode::Auto) };
        let family = options.families.get_mut("default").unwrap();
        (family.target_file_bytes, family.level_base_bytes) = (16 << 10, 256 << 10);
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let mut order: Vec<u32> = (0..keys).collect();
        fastrand::Rng::with_seed(9).shuffle(&mut order);
        let mut expected = Contents::new();
        let mut put = |n: u32, round: u32| {
            let result = db.put(key(n), value(n, round));
            result.unwrap_or_else(|error| panic!("{jobs} jobs, key {n}: {error}, {:?}", db.stats()));
            expected.insert(key(n), value(n, round));
        };
        order.iter().for_each(|n| put(*n, 0));
        db.set_separation(&db.default_column_family(), Separation::FallBack).unwrap();
        order.iter().for_each(|n| put(*n, 0));
        order.iter().step_by(3).for_each(|n| put(*n, 1));
        db.wait_for_compact().unwrap_or_else(|error| panic!("{jobs} jobs: {error}, {:?}", db.stats()));
        assert_eq!((db.stats().families[0].blob_files, files(&disk, "blob").len()), (0, 0), "{jobs} jobs");
        assert!(db.stats().on_disk.total_bytes() <= max_disk_bytes, "{jobs} jobs");
        assert!(contents(&db) == expected, "{jobs} jobs");
        assert_sound(&db, "without blob files");
    }
}

/// Goal: a family that is dropped while somebody reclaims, compacts or waits ends that, whichever way its values are kept.
#[test]
fn a_drop_ends_what_somebody_does_by_hand() {
    for separation in [Separation::AtFlush, Separation::FallBack] {
        let db = open(&SimDisk::new(), ReclaimMode::Manual);
        for _ in 0..8 {
            let family = db.create_column_family("passing", (*db.default_column_family().options()).clone()).unwrap();
            for n in 0..400 {
                db.put_cf(&family, key(n * 7 % 400), value(n, 0), &Default::default()).unwrap();
            }
            db.set_separation(&family, separation).unwrap();
            let (done, is_done) = std::sync::mpsc::channel();
            let (other, its) = (db.clone(), family.clone());
            std::thread::spawn(move || {
                let _ = other.reclaim(&its, 0.0);
                let _ = other.compact_range(&its, None, None);
                let _ = other.delete_files_in_range(&its, None, None);
                done.send(other.wait_for_compact()).unwrap();
            });
            std::thread::yield_now();
            db.drop_column_family(&family).unwrap();
            is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends").unwrap();
        }
        assert!(db.stats().background_error.is_none());
    }
}
