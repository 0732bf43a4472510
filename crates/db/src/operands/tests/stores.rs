//! Operands where other rooms have to do with them: tables that RocksDB divided, repairs, limits to space.

use std::sync::Arc;

use esker_env::sim::SimDisk;
use esker_format::rocksdb::blob_refs::BlobRefs;
use esker_format::rocksdb::internal_key::ValueKind;

use crate::version::testing::{install, internal, write};
use crate::{Compression, Db, FamilyOptions, Options, StringAppendOperator};

fn text(value: Option<crate::PinnedSlice>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn family() -> FamilyOptions {
    FamilyOptions { merge_operator: Some(Arc::new(StringAppendOperator::default())), ..FamilyOptions::default() }
}

fn options(family: FamilyOptions) -> Options {
    let families = [("default".to_owned(), family.clone()), ("other".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

/// Goal: RocksDB may divide a key between two tables of a level: an operand in the one, what it is to be merged with in the other.
#[test]
fn a_key_in_two_tables_of_a_level_is_read_from_both() {
    let db = Db::open_with_env("/db", options(family()), SimDisk::new().env()).unwrap();
    let table = |entries: &[(&str, u64, ValueKind, &str)]| {
        let entries = entries.iter();
        let entries = entries.map(|&(key, at, kind, value)| (internal(key, at, kind), value.as_bytes().to_vec()));
        write(db.store(), 1, entries, &BlobRefs::new(), None)
    };
    let newer = table(&[("a", 3, ValueKind::Value, "-"), ("k", 9, ValueKind::Merge, "m")]);
    let older = table(&[("k", 5, ValueKind::Value, "base"), ("z", 6, ValueKind::Value, "-")]);
    install(&db, vec![(6, newer), (6, older)], 9);
    assert_eq!(text(db.get("k").unwrap()).as_deref(), Some("base,m"));
    let walked: Vec<_> = db.iter().unwrap().entries().map(|entry| text(Some(entry.unwrap().1)).unwrap()).collect();
    assert_eq!(walked, ["-", "base,m", "-"]);
}

/// What "k" has once a store has lost its manifest and was repaired.
fn repaired(fill: impl FnOnce(&Db)) -> Option<String> {
    let disk = SimDisk::new();
    let options = options(family());
    let db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
    db.create_column_family("other", family()).unwrap();
    fill(&db);
    drop(db);
    let disk = disk.after_process_death();
    let is_lost = |path: &std::path::PathBuf| path.to_string_lossy().contains("MANIFEST") || path.ends_with("CURRENT");
    disk.paths().iter().filter(|path| is_lost(path)).for_each(|path| disk.env().files.remove(path).unwrap());
    Db::repair_with_env("/db", options.clone(), disk.env()).unwrap();
    let db = Db::open_with_env("/db", options, disk.env()).unwrap();
    text(db.get("k").unwrap())
}

/// Goal: a log that another family keeps has operands that tables have merged already: a repair takes them once.
#[test]
fn a_repair_takes_no_operand_twice_and_none_for_what_was_made_of_it() {
    let found = repaired(|db| {
        let (default, other) = (db.default_column_family(), db.column_family("other").unwrap());
        db.put("a", "a").unwrap();
        let snapshot = db.snapshot();
        db.put("k", "base").unwrap();
        db.flush().unwrap();
        db.put_cf(&other, "x", "x", &Default::default()).unwrap();
        db.merge("k", "m").unwrap();
        db.flush_cf(&default).unwrap();
        db.compact_range(&default, None, None).unwrap();
        assert_eq!(text(db.get("k").unwrap()).as_deref(), Some("base,m"));
        drop(snapshot);
    });
    assert_eq!(found.as_deref(), Some("base,m"), "a value of an operand's number");
    let found = repaired(|db| {
        let (default, other) = (db.default_column_family(), db.column_family("other").unwrap());
        db.put("k", "base").unwrap();
        db.flush().unwrap();
        db.merge("k", "1").unwrap();
        // The log goes on with another, the memtable does not.
        db.flush_cf(&other).unwrap();
        db.put_cf(&other, "y", "y", &Default::default()).unwrap();
        db.flush_cf(&other).unwrap();
        db.put_cf(&other, "x", "x", &Default::default()).unwrap();
        db.merge("k", "2").unwrap();
        db.flush_cf(&default).unwrap();
    });
    assert_eq!(found.as_deref(), Some("base,1,2"), "an operand of several");
    // What is in no table yet counts.
    let found = repaired(|db| {
        db.put("k", "base").unwrap();
        db.flush().unwrap();
        db.merge("k", "1").unwrap();
        db.merge("k", "2").unwrap();
    });
    assert_eq!(found.as_deref(), Some("base,1,2"), "only in the log");
}

/// Small files, within 128 MiB.
fn within_a_limit(trigger: usize) -> Options {
    let family = FamilyOptions {
        min_blob_size: 1000,
        write_buffer_bytes: 1 << 20,
        blob_compression: Compression::None,
        blob_file_bytes: 1 << 20,
        level0_compaction_trigger: trigger,
        level0_slowdown_trigger: 6,
        level0_stop_trigger: 8,
        ..family()
    };
    Options { max_disk_bytes: 128 << 20, max_space_amp: 3.0, ..options(family) }
}

/// Goal: small operands of small values are compacted beside large values, though the disk has no room for these again.
#[test]
fn counters_are_compacted_beside_large_values() {
    let left_in_level_0 = |merges: bool| {
        let db = Db::open_with_env("/db", within_a_limit(4), SimDisk::new().env()).unwrap();
        (0..7000u32).for_each(|n| db.put(n.to_be_bytes(), vec![n as u8; 10_000]).unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        for _ in 0..12 {
            for n in 0..8000 {
                let key = format!("counter {n}");
                if merges { db.merge(key, "1") } else { db.put(key, "1") }.unwrap();
            }
            db.flush().unwrap();
            db.wait_for_compact().unwrap();
        }
        db.store().family(0).unwrap().view.load().version.level(0).len()
    };
    let (puts, merges) = (left_in_level_0(false), left_in_level_0(true));
    assert!(merges <= puts + 1, "{puts} tables with puts, {merges} with merges");
}

/// Goal: operands of large values are merged as far as there is room for these, and what there is no room for fails nothing, and stays right.
#[test]
fn large_values_are_merged_as_far_as_there_is_room() {
    let db = Db::open_with_env("/db", within_a_limit(2), SimDisk::new().env()).unwrap();
    (0..16u8).for_each(|n| db.put([n], vec![n; 4 << 20]).unwrap());
    (0..5000u32).for_each(|n| db.put(n.to_be_bytes(), vec![n as u8; 1500]).unwrap());
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    for round in 1..=6 {
        (0..16u8).for_each(|n| db.merge([n], "1").unwrap());
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
        for n in 0..16u8 {
            let value = db.get([n]).unwrap().unwrap();
            let (before, operands) = value.split_at(4 << 20);
            assert!(before.iter().all(|byte| *byte == n) && *operands == *b",1".repeat(round), "round {round}, {n}");
        }
    }
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
}

/// OP4: memtables of one log that an open on a full disk keeps are in tables all at once, so that nothing of the log is taken twice, wherever their flush
/// dies.
#[test]
fn operands_that_a_full_disk_kept_in_memory_are_taken_once() {
    let open = |disk: &SimDisk, write_buffer_bytes| {
        let compression = Compression::None;
        let family = FamilyOptions { write_buffer_bytes, compression, ..family() };
        Db::open_with_env("/db", options(family), disk.env()).unwrap()
    };
    let disk = SimDisk::new();
    let db = open(&disk, 4 << 20);
    (0..3000).for_each(|n| db.merge(format!("key {}", n % 7), format!("{n:0>150}")).unwrap());
    let contents = |db: &Db| -> Vec<_> {
        let entries = db.iter().unwrap().entries();
        entries.map(|entry| entry.map(|(key, value)| (key, value.to_vec())).unwrap()).collect()
    };
    let expected = contents(&db);
    db.close().unwrap();
    let mut died = 0;
    for n in 0.. {
        let disk = disk.after_process_death();
        disk.set_capacity(Some(64 << 20));
        let space = disk.env().files.space("/db".as_ref()).unwrap();
        disk.set_capacity(Some(space.total - space.available + (128 << 10)));
        let db = open(&disk, 64 << 10);
        assert!(db.store().family(0).unwrap().view.load().sealed.len() > 1, "several share the log");
        assert!(contents(&db) == expected, "kept");
        disk.set_capacity(None);
        disk.die_after(disk.op_count() + n);
        let is_over = db.flush().is_ok();
        std::mem::forget(db);
        assert!(contents(&open(&disk.after_process_death(), 64 << 10)) == expected, "operation {n}");
        if is_over {
            break;
        }
        died += 1;
    }
    assert!(died > 5, "{died}");
}
