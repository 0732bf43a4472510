//! Manifests that are another store's, or this one's as it was once: by them, tables that were written since pass for what a crash has left.

use std::path::PathBuf;

use esker::env::sim::SimDisk;
use esker::{Db, ErrorKind, IngestOptions, Options, SstFileWriter, WriteOptions};
use esker_torture::model::{Model, contents};

use super::{is_manifest, without_compactions};

/// Copies of a manifest.
type Copies = Vec<(PathBuf, Vec<u8>)>;

fn manifests(disk: &SimDisk) -> Copies {
    let paths = disk.paths().into_iter().filter(|path| is_manifest(path));
    paths.filter_map(|path| Some((path.clone(), disk.file_bytes(&path)?))).collect()
}

/// A store with `flushes` tables, and a write behind them; and its manifest as it was after each, from the beginning.
fn left(id: u64, flushes: u8, is_closed: bool, options: &Options) -> (SimDisk, Model, Vec<Copies>) {
    let disk = SimDisk::new();
    (0..id).for_each(|_| disk.env().entropy.fill(&mut [0; 8]));
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let mut copies = vec![manifests(&disk)];
    for n in 0..flushes {
        db.put([n], [n; 100]).unwrap();
        db.put("newest", [n]).unwrap();
        db.flush_cf(&db.default_column_family()).unwrap();
        copies.push(manifests(&disk));
    }
    db.put("last", "write").unwrap();
    let expected = contents(&db).unwrap();
    if is_closed {
        db.close().unwrap();
        return (disk, expected, copies);
    }
    let left = disk.after_process_death();
    std::mem::forget(db);
    (left, expected, copies)
}

/// Goal: by a manifest that does not know the tables beside it, no store is opened, which would remove them; a check tells, and a repair finds all
/// that there is. Method: the manifest of each earlier moment, of this store and of another that has had the same life, but for what it wrote.
#[test]
fn a_manifest_that_does_not_know_the_tables_beside_it_is_refused() {
    let options = without_compactions();
    for is_closed in [false, true] {
        let (disk, expected, own) = left(1, 3, is_closed, &options);
        let (_, _, others) = left(2, 3, is_closed, &options);
        let older = own.iter().take(3).map(|copies| ("own", copies));
        for (of, copies) in older.chain([("another's", &others[0])]) {
            let (disk, what) = (disk.after_process_death(), format!("closed: {is_closed}, {of}"));
            let [(manifest, bytes)] = &copies[..] else { panic!("{what}: {copies:?}") };
            assert_ne!(disk.file_bytes(manifest).as_ref(), Some(bytes));
            disk.overwrite(manifest, bytes.clone());
            let before = disk.paths();
            let refused = [
                Db::open_with_env("/store", options.clone(), disk.env()).map(drop),
                Db::open_read_only_with_env("/store", options.clone(), disk.env()).map(drop),
            ];
            for refused in refused {
                let error = refused.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
                assert_eq!(error.path(), Some(&**manifest), "{what}: {error}");
            }
            assert_eq!(disk.paths(), before, "{what}");
            let check = Db::check_store_with_env("/store", options.clone(), disk.env(), &mut |_| {}).unwrap();
            let is_told = check.errors.iter().any(|error| error.path() == Some(&**manifest));
            assert!(is_told, "{what}: {:?}", check.errors);
            Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
            let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
            assert!(contents(&db).unwrap() == expected, "{what}");
        }
    }
}

/// Goal: a manifest of another store that names as many tables, of the same numbers, is refused, and a repair goes by the tables and logs themselves.
#[test]
fn a_manifest_of_another_store_has_no_say_in_a_repair() {
    let options = without_compactions();
    for is_closed in [false, true] {
        let (disk, expected, own) = left(1, 3, is_closed, &options);
        let (_, _, others) = left(2, 3, is_closed, &options);
        let ([(manifest, bytes)], [(same, foreign)]) = (&own[3][..], &others[3][..]) else { panic!("{own:?}") };
        assert!(manifest == same && bytes.len() == foreign.len() && bytes != foreign);
        disk.overwrite(manifest, foreign.clone());
        let error = Db::open_with_env("/store", options.clone(), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
        let is_told = report.damage.iter().any(|error| error.to_string().contains("the manifest is another store's"));
        assert!(is_told && !report.had_manifest && report.lost_tables == 0, "{report:?}");
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        assert!(contents(&db).unwrap() == expected, "closed: {is_closed}: {report:?}");
    }
}

/// Goal: tables that a crash has left, of which the manifest knows nothing, keep no store from being opened: of a copy, which has no log, neither.
/// Method: what opens one, and flushes beside a write that it logs, or one past the log, which takes numbers, too, or takes a file in, dies after each
/// operation.
#[test]
fn what_a_crash_has_left_beside_a_manifest_keeps_nobody_out() {
    let options = without_compactions();
    for is_copy in [false, true] {
        let (disk, _, _) = left(1, 2, false, &options);
        if is_copy {
            let logs = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|of| of == "log"));
            logs.for_each(|path| disk.env().files.remove(&path).unwrap());
        }
        disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
        let mut outside =
            SstFileWriter::create_with_env("/outside/1.sst", &options.families["default"], disk.env()).unwrap();
        outside.put([10], "outside").unwrap();
        outside.finish().unwrap();
        let live = |disk: &SimDisk| -> esker::Result<()> {
            let db = Db::open_with_env("/store", options.clone(), disk.env())?;
            let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
            for n in 10..12u8 {
                for past_the_log in 0..5 {
                    db.put_cf(&db.default_column_family(), [n, past_the_log], [n; 100], &unlogged)?;
                }
                db.put([n], [n; 100])?;
                db.ingest(&db.default_column_family(), &["/outside/1.sst"], &IngestOptions::default())?;
                db.flush_cf(&db.default_column_family())?;
            }
            db.put("last", "write")?;
            db.close()
        };
        let healthy = disk.after_process_death();
        live(&healthy).unwrap();
        for at in 0..healthy.op_count() {
            let dying = disk.after_process_death();
            dying.die_after(at);
            live(&dying).unwrap_err();
            let opened = Db::open_with_env("/store", options.clone(), dying.after_process_death().env());
            assert!(opened.is_ok(), "copy: {is_copy}, died at {at}: {:?}", opened.err());
        }
    }
}
