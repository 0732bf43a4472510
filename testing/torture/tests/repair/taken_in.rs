//! Tables from outside, which have no time of their own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use esker::env::FileSystem;
use esker::env::sim::SimDisk;
use esker::{AsideReason, Db, IngestOptions, Options, SstFileWriter};
use esker_torture::model::contents;
use esker_torture::seeds;
use fastrand::Rng;

use super::{is_manifest, take_in, without_compactions};

/// Takes in a file that deletes a range, and puts one key.
fn take_in_range(disk: &SimDisk, db: &Db, options: &Options, range: (&[u8], &[u8]), put: Option<&[u8]>) {
    if range.0 >= range.1 && put.is_none() {
        return;
    }
    disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
    let path = PathBuf::from(format!("/outside/{}.sst", disk.op_count()));
    let mut writer = SstFileWriter::create_with_env(&path, &options.families["default"], disk.env()).unwrap();
    if range.0 < range.1 {
        writer.delete_range(range.0, range.1).unwrap();
    }
    if let Some(key) = put {
        writer.put(key, "put").unwrap();
    }
    writer.finish().unwrap();
    db.ingest(&db.default_column_family(), &[path], &IngestOptions::default()).unwrap();
}

/// Goal: without a manifest, what was taken in hides what there was before, be that flushed or not, and is hidden by what came later.
#[test]
fn what_was_taken_in_is_as_old_as_it_was_also_without_a_manifest() {
    let mut told = 0;
    for seed in seeds(40) {
        let (mut random, options, disk) = (Rng::with_seed(600 + seed), without_compactions(), SimDisk::new());
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let key = |random: &mut Rng| vec![b'k', random.u8(b'a'..b'm')];
        let value = |random: &mut Rng, n: u32| (random.u8(..4) > 0).then(|| n.to_le_bytes().to_vec());
        for n in 0..random.u32(5..40) {
            match random.u8(..10) {
                0 => db.flush().unwrap(),
                1..=2 => {
                    let entries = (0..random.usize(1..5)).map(|_| (key(&mut random), value(&mut random, n))).collect();
                    take_in(&disk, &db, &options, entries);
                }
                3 => {
                    let (begin, end) = (key(&mut random), key(&mut random));
                    let put = random.bool().then(|| key(&mut random));
                    take_in_range(
                        &disk,
                        &db,
                        &options,
                        (&begin.clone().min(end.clone()), &begin.max(end)),
                        put.as_deref(),
                    );
                }
                _ => match value(&mut random, n) {
                    Some(value) => db.put(key(&mut random), value).unwrap(),
                    None => db.delete(key(&mut random)).unwrap(),
                },
            }
        }
        let expected = contents(&db).unwrap();
        let left = disk.after_process_death();
        if seed % 2 == 0 {
            db.close().unwrap();
        }
        let left = if seed % 2 == 0 { disk.after_process_death() } else { left };
        for how in ["no manifest", "rotten"] {
            let what = format!("seed {seed}, {how}");
            let disk = left.after_process_death();
            for path in disk.paths().iter().filter(|path| is_manifest(path)) {
                match how {
                    "rotten" => drop(disk.flip_bit(path, 8 * 60 + 3)),
                    _ => disk.remove(path).unwrap(),
                }
            }
            let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
            assert!(!report.had_manifest, "{what}");
            told += report.damage.iter().filter(|error| error.to_string().contains("taken in")).count();
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            assert!(contents(&db).unwrap() == expected, "{what}: {:?}", report.damage);
            for (key, value) in &expected.families["default"] {
                assert_eq!(db.get(key).unwrap().as_deref(), Some(&**value), "{what}: {key:?}");
            }
            assert!(db.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
        }
    }
    assert!(told > 0, "no table of unknown age was merged with others");
}

/// Goal: a table that was taken in and has lost what it says of itself is as old as the manifest says.
#[test]
fn a_table_that_was_taken_in_and_lost_its_properties_keeps_its_age() {
    let (options, disk) = (without_compactions(), SimDisk::new());
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    db.put("key", "old").unwrap();
    db.put("gone", "there").unwrap();
    db.flush().unwrap();
    take_in(&disk, &db, &options, [(b"gone".to_vec(), None), (b"key".to_vec(), Some(b"new".to_vec()))].into());
    db.close().unwrap();
    let find = |path: &PathBuf| {
        let bytes = disk.file_bytes(path)?;
        let at = bytes.windows(9).position(|part| part == b"sst_file.")?;
        (path.starts_with("/store")).then(|| (path.clone(), at as u64))
    };
    let (table, at) = disk.paths().iter().find_map(find).unwrap();
    assert!(disk.flip_bit(&table, 8 * (at + 3)));
    let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
    assert!(report.had_manifest && !report.damage.is_empty(), "{report:?}");
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for round in ["repaired", "compacted"] {
        assert_eq!(db.get("key").unwrap().unwrap()[..], *b"new", "{round}");
        assert!(db.get("gone").unwrap().is_none(), "{round}");
        let found = contents(&db).unwrap();
        let expected: BTreeMap<Vec<u8>, Vec<u8>> = [(b"key".to_vec(), b"new".to_vec())].into();
        assert_eq!(found.families["default"], expected, "{round}");
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
}

/// Goal: without a manifest, a table from outside, which does not say of which family it is, is laid over no other: it is put aside, and that
/// is told. Where there is but one family, it is that one's, and that is told, too.
#[test]
fn a_table_of_an_unknown_family_hides_nothing_of_another() {
    for has_another in [true, false] {
        let (options, disk) = (without_compactions(), SimDisk::new());
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        db.put("key", "default").unwrap();
        let family = match has_another {
            true => db.create_column_family("other", options.families["default"].clone()).unwrap(),
            false => db.default_column_family(),
        };
        db.put_cf(&family, "else", "other", &Default::default()).unwrap();
        db.flush().unwrap();
        disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
        let mut writer =
            SstFileWriter::create_with_env("/outside/1.sst", &options.families["default"], disk.env()).unwrap();
        writer.put("key", "outside").unwrap();
        writer.finish().unwrap();
        db.ingest(&family, &["/outside/1.sst"], &IngestOptions::default()).unwrap();
        db.close().unwrap();
        for path in disk.paths().iter().filter(|path| is_manifest(path)) {
            disk.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
        assert!(report.damage.iter().any(|error| error.to_string().contains("of which column family")), "{report:?}");
        assert_eq!(report.lost_tables, u64::from(has_another), "{report:?}");
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let expected = if has_another { "default" } else { "outside" };
        assert_eq!(db.get("key").unwrap().as_deref(), Some(expected.as_bytes()), "{report:?}");
        if has_another {
            let unused = report.put_aside.iter().find(|file| file.reason == AsideReason::Unused).unwrap();
            let family = db.column_family("other").unwrap();
            db.ingest(&family, &[&unused.path], &IngestOptions::default()).unwrap();
            assert_eq!(db.get_cf(&family, "key", &Default::default()).unwrap().as_deref(), Some(&b"outside"[..]));
        }
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}
