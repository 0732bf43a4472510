//! A plan of reclaim tells what reclaim does then: how much it writes and frees, each way of freeing space.

use esker::env::sim::SimDisk;
use esker::{Db, Options, ReclaimMode, ReclaimPlan, Reclaimed, Separation};
use esker_torture::model::Contents;
use esker_torture::numbered::{assert_sound, contents, files, key};

use super::holes::{large_garbage, large_options};
use super::{garbage, options, value};

/// What a plan tells who has the store open for reading only, as `esker gc --dry-run` has, and what is done then.
fn told_and_done(disk: &SimDisk, options: &Options, part: f64) -> (ReclaimPlan, Reclaimed) {
    let plan = told(disk, options, part);
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let done = db.reclaim(&db.default_column_family(), part).unwrap();
    assert_sound(&db, "after reclaim");
    db.close().unwrap();
    (plan, done)
}

fn told(disk: &SimDisk, options: &Options, part: f64) -> ReclaimPlan {
    let db = Db::open_read_only_with_env("/store", options.clone(), disk.env()).unwrap();
    let plan = db.reclaim_plan(&db.default_column_family(), part).unwrap();
    db.close().unwrap();
    plan
}

fn tables(disk: &SimDisk) -> u64 {
    files(disk, "sst").len() as u64
}

/// `done` wrote what was told, within what the docs of [`ReclaimPlan`] allow where there were so many tables.
#[track_caller]
fn assert_written(plan: &ReclaimPlan, done: &Reclaimed, tables: u64) {
    let off = plan.written_bytes().abs_diff(done.written_bytes);
    assert!(off <= plan.table_bytes / 10 + 1024 * tables, "off by {off}: {plan:#?} {done:?}");
}

#[track_caller]
fn assert_nothing_is_left(disk: &SimDisk, options: &Options, part: f64) {
    let plan = told(disk, options, part);
    let picked = plan.files.iter().filter(|file| file.is_picked || file.punched_bytes > 0).count();
    assert_eq!((plan.passes, plan.freed_bytes, plan.written_bytes(), picked), (0, 0, 0, 0), "{plan:?}");
}

/// Goal: of values that are copied, every pass of many and what it frees is told, and of each blob file whether it is emptied.
#[test]
fn a_plan_tells_what_copying_costs_and_frees() {
    for part in [0.0, 0.1, 0.3, 0.4, 1.0] {
        let disk = SimDisk::new();
        let options = options(ReclaimMode::Manual);
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let expected = garbage(&db);
        db.close().unwrap();
        let tables = tables(&disk);
        let (plan, done) = told_and_done(&disk, &options, part);
        assert_eq!((plan.passes, plan.punched_bytes, plan.comes_home), (done.passes, 0, false), "{part}");
        assert_eq!(plan.freed_bytes, done.bytes_before - done.bytes_after, "{part}");
        assert!((part > 0.3 || plan.passes > 1) && (part < 1.0 || plan.passes == 0), "{part}: {plan:?}");
        assert_written(&plan, &done, plan.passes * tables);
        let is_there = |number: u64| disk.file_bytes(format!("/store/{number:06}.blob").as_ref()).is_some();
        assert!(plan.files.iter().all(|file| is_there(file.number) != file.is_picked), "{part}: {plan:?}");
        assert_nothing_is_left(&disk, &options, part);
        assert!(contents(&Db::open_with_env("/store", options, disk.env()).unwrap()) == expected);
    }
}

/// Goal: what holes free is told, that nothing is written for it, and what is copied nevertheless: what is garbage in spite of them.
#[test]
fn a_plan_tells_what_holes_free() {
    for (within, part) in [(false, 0.5), (true, 0.5), (false, 0.0), (true, 0.1)] {
        let disk = SimDisk::new();
        let expected = large_garbage(&disk);
        let options = large_options(ReclaimMode::Manual, within);
        let (tables, blobs) = (tables(&disk), files(&disk, "blob"));
        let (plan, done) = told_and_done(&disk, &options, part);
        assert!(plan.punched_bytes > 350_000 && plan.punched_bytes == done.punched_bytes, "{plan:?} {done:?}");
        assert_eq!(plan.files.iter().map(|file| file.punched_bytes).sum::<u64>(), plan.punched_bytes);
        assert_eq!((plan.passes, part < 0.5), (done.passes, plan.passes > 0), "{part}");
        let (told, freed) = (plan.punched_bytes + plan.freed_bytes, done.bytes_before - done.bytes_after);
        assert!(told.abs_diff(freed) <= 4096 * blobs.len() as u64, "{told} {freed} {plan:?}");
        assert_written(&plan, &done, plan.passes * tables);
        assert!(part < 0.5 || (files(&disk, "blob") == blobs && done.written_bytes == 0));
        assert_nothing_is_left(&disk, &options, part);
        assert_eq!(self::told(&disk, &options, part).punched_bytes, 0, "holes that are there are not made again");
        assert!(contents(&Db::open_with_env("/store", options, disk.env()).unwrap()) == expected);
    }
}

/// Goal: no hole is foretold where none is made, and copies take its place: where that is switched off, and in a file with a second name.
#[test]
fn a_plan_tells_of_no_hole_that_is_not_made() {
    for is_shared in [false, true] {
        let disk = SimDisk::new();
        large_garbage(&disk);
        let options = Options { punch_holes: is_shared, ..large_options(ReclaimMode::Manual, true) };
        if is_shared {
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            db.checkpoint("/copy").unwrap();
            db.close().unwrap();
        }
        let (plan, done) = told_and_done(&disk, &options, 0.1);
        assert_eq!((plan.punched_bytes, done.punched_bytes, plan.passes), (0, 0, done.passes));
        assert!(plan.files.iter().all(|file| file.is_shared == is_shared));
        assert_eq!(plan.freed_bytes, done.bytes_before - done.bytes_after);
        assert!(plan.freed_bytes > 350_000, "{plan:?}");
    }
}

/// Goal: whole files that nothing names any more, as a process leaves them that dies while somebody reads them, are told; the next open removes them.
#[test]
fn a_plan_tells_of_files_that_nothing_names() {
    let disk = SimDisk::new();
    let options = options(ReclaimMode::Manual);
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let expected = garbage(&db);
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    db.reclaim(&db.default_column_family(), 0.0).unwrap();
    let held = db.reclaim_plan(&db.default_column_family(), 0.0).unwrap();
    assert_eq!(held.leftover_bytes, 0, "who reads them is known");
    let disk = disk.after_process_death();
    let taken =
        || -> u64 { ["sst", "blob"].iter().flat_map(|kind| files(&disk, kind)).map(|path| length(&disk, &path)).sum() };
    let before = taken();
    let (plan, done) = told_and_done(&disk, &options, 0.0);
    assert!(held.held_bytes > 100_000 && plan.leftover_bytes >= held.held_bytes, "{held:?} {plan:?}");
    assert_eq!((plan.leftover_bytes, plan.passes, done.passes), (before - taken(), 0, 0));
    assert_eq!(told(&disk, &options, 0.0).leftover_bytes, 0);
    assert!(contents(&Db::open_with_env("/store", options, disk.env()).unwrap()) == expected);
}

fn length(disk: &SimDisk, path: &std::path::Path) -> u64 {
    disk.env().files.metadata(path).unwrap().len
}

/// Goal: files that only a log leads to are no leftovers.
#[test]
fn a_plan_takes_nothing_for_left_over_that_a_log_leads_to() {
    let disk = SimDisk::new();
    let mut options = options(ReclaimMode::Manual);
    options.families.get_mut("default").unwrap().separation = Separation::AtWrite;
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    (0..50).for_each(|n| db.put(key(n), value(n, 0)).unwrap());
    let disk = disk.after_process_death();
    assert!(!files(&disk, "blob").is_empty());
    let plan = told(&disk, &options, 0.0);
    assert_eq!(plan.leftover_bytes, 0);
    assert!(plan.unflushed_bytes > 0, "{plan:?}");
}

/// Goal: what lies hidden is told of as not compacted, at most so much, and is nothing that a pass would free, nor does; once it is compacted, it is.
#[test]
fn a_plan_tells_hidden_garbage_from_what_passes_free() {
    let disk = SimDisk::new();
    let mut options = options(ReclaimMode::Manual);
    // Nothing is compacted by itself.
    options.families.get_mut("default").unwrap().level0_compaction_trigger = 8;
    let put = |db: &Db, keys: std::ops::Range<u32>, round| {
        keys.for_each(|n| db.put(key(n), value(n, round)).unwrap());
        db.flush().unwrap();
    };
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    put(&db, 0..150, 0);
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    put(&db, 50..100, 1);
    db.close().unwrap();
    let (hidden, done) = told_and_done(&disk, &options, 0.0);
    assert_eq!((hidden.passes, done.passes, done.bytes_before), (0, 0, done.bytes_after));
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    let (plan, done) = told_and_done(&disk, &options, 0.0);
    assert_eq!(plan.freed_bytes, done.bytes_before - done.bytes_after);
    assert!(plan.freed_bytes > 50 * 200 && plan.freed_bytes <= hidden.not_compacted_bytes, "{hidden:?} {plan:?}");
    assert_eq!(told(&disk, &options, 0.0).not_compacted_bytes, 0);
}

/// Goal: where a family falls back, what comes home, and what tables are written again for that, is told, however little of the blob files is garbage: with
/// room for all at once, and for a part at a time.
#[test]
fn a_plan_tells_what_values_that_come_home_cost_and_free() {
    let written = [0, 14, 16].map(|tenths| {
        let disk = SimDisk::new();
        let mut options = options(ReclaimMode::Manual);
        let family = options.families.get_mut("default").unwrap();
        (family.target_file_bytes, family.level_base_bytes) = (16 << 10, 256 << 10);
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let mut expected = Contents::new();
        for (round, step) in [(0, 1), (1, 3)] {
            for n in (0..3000).step_by(step) {
                db.put(key(n), value(n, round)).unwrap();
                expected.insert(key(n), value(n, round));
            }
            db.compact_range(&db.default_column_family(), None, None).unwrap();
        }
        let live = db.stats().families[0].blob_live_bytes;
        db.close().unwrap();
        options.families.get_mut("default").unwrap().separation = Separation::FallBack;
        options.max_disk_bytes = if tenths == 0 { 0 } else { live * tenths / 10 + (1 << 20) };
        let (plan, done) = told_and_done(&disk, &options, 1.0);
        assert!(plan.comes_home && plan.files.iter().all(|file| file.is_picked) && plan.punched_bytes == 0, "{plan:?}");
        assert_eq!((plan.copied_bytes, done.bytes_after), (live, 0));
        assert_eq!(plan.freed_bytes, done.bytes_before);
        let off = plan.written_bytes().abs_diff(done.written_bytes);
        let part = if tenths == 0 { 10 } else { 5 };
        assert!(off <= done.written_bytes / part, "off by {off} {tenths}: {plan:?} {done:?}");
        assert!(plan.passes == done.passes || (tenths > 0 && plan.passes < done.passes), "{plan:?} {done:?}");
        assert!(files(&disk, "blob").is_empty());
        assert_nothing_is_left(&disk, &options, 1.0);
        assert!(contents(&Db::open_with_env("/store", options, disk.env()).unwrap()) == expected);
        plan.written_bytes()
    });
    assert!(written[1..].iter().all(|bytes| *bytes > written[0] * 3 / 2), "tables are written more often: {written:?}");
}
