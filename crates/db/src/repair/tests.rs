use std::path::{Path, PathBuf};

use esker_env::sim::SimDisk;
use esker_format::rocksdb::version_edit::{TableMeta, VersionEdit};

use crate::open::tests::edit_manifest;
use crate::options::Options;
use crate::{AsideReason, Db, ErrorKind, FamilyOptions};

/// Goal: a table that a manifest names for two families is that of one: the store opens again, and this is told.
#[test]
fn a_table_is_that_of_one_family() {
    let (disk, options, _) = without_ids(|edit| {
        if edit.column_family == 1 {
            let tables = edit.new_files.clone();
            edit.new_files.extend(tables.into_iter().map(|(level, table)| (level + 1, table)));
        }
    });
    let open = || Db::open_with_env("/db", options.clone(), disk.env());
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Corruption);
    let report = Db::repair_with_env("/db", options.clone(), disk.env()).unwrap();
    assert!(report.damage.iter().any(|error| error.to_string().contains("in two levels")), "{report:?}");
    let db = open().unwrap();
    let found = db.get_cf(&db.column_family("another").unwrap(), "c", &Default::default()).unwrap();
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
}

/// Goal: a table is told from another by its id, be that of as many bytes: an open refuses it, and a repair of two that were swapped finds both.
#[test]
fn a_table_of_the_same_length_is_another_by_its_id() {
    let (disk, options, tables) = flushed();
    let [one, other, ..] = &tables[..] else { panic!("{tables:?}") };
    let [bytes, of_other] = [one, other].map(|path| disk.file_bytes(path).unwrap());
    assert_eq!(bytes.len(), of_other.len());
    disk.overwrite(one, of_other);
    disk.overwrite(other, bytes);
    let open = || Db::open_with_env("/db", options.clone(), disk.env());
    let error = open().unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("by their ids"), "{error}");
    let report = Db::repair_with_env("/db", options.clone(), disk.env()).unwrap();
    assert_eq!((report.lost_tables, report.tables, report.damage.len()), (0, 3, 2), "{report:?}");
    let db = open().unwrap();
    assert!(["a", "b"].iter().all(|key| db.get(key).unwrap().is_some()));
}

/// Goal: a table lies where it says that it lies, though another, which cannot say what it is any more, has its name.
#[test]
fn a_table_is_found_beside_one_that_has_its_name_and_cannot_say_what_it_is() {
    let (disk, options, tables) = flushed();
    let [one, other, ..] = &tables[..] else { panic!("{tables:?}") };
    let [mut rotten, of_other] = [one, other].map(|path| disk.file_bytes(path).unwrap());
    let at = rotten.windows(12).position(|part| part == b"riginal.file").unwrap();
    rotten[at] ^= 1;
    disk.overwrite(one, of_other);
    disk.overwrite(other, rotten);
    let report = Db::repair_with_env("/db", options.clone(), disk.env()).unwrap();
    assert_eq!((report.lost_tables, report.tables), (1, 2), "{report:?}");
    let db = Db::open_with_env("/db", options, disk.env()).unwrap();
    assert_eq!(["a", "b"].map(|key| db.get(key).unwrap().is_some()), [false, true]);
}

/// Two tables of the default family and one of another, of as many bytes each.
fn flushed() -> (SimDisk, Options, Vec<PathBuf>) {
    let (disk, options) =
        (SimDisk::new(), Options { create_if_missing: true, background_jobs: 0, ..Options::default() });
    let db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
    let other = db.create_column_family("another", FamilyOptions::default()).unwrap();
    for (family, key) in [(&db.default_column_family(), "a"), (&db.default_column_family(), "b"), (&other, "c")] {
        db.put_cf(family, key, "value", &Default::default()).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let is_table = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    let tables = disk.paths().into_iter().filter(is_table).collect();
    (disk, options, tables)
}

/// The same, and the manifest gives no ids of them.
fn without_ids(change: impl Fn(&mut VersionEdit)) -> (SimDisk, Options, Vec<PathBuf>) {
    let (disk, options, tables) = flushed();
    let forget = |meta: &mut TableMeta| assert!(meta.unique_id.take().is_some(), "{meta:?}");
    edit_manifest(&disk, |edit| {
        edit.new_files.iter_mut().for_each(|(_, meta)| forget(meta));
        change(edit);
    });
    (disk, options, tables)
}

/// Goal: also where the manifest has no ids of its tables, as of an older release, another table in the place of one is none of the store's: of
/// another family, another number, or another length. One that is as the manifest says is whole without an id.
#[test]
fn without_ids_another_table_is_told_by_what_it_says_of_itself() {
    let (disk, options, tables) = without_ids(|_| {});
    assert_eq!(tables.len(), 3);
    let report = Db::repair_with_env("/db", options.clone(), disk.env()).unwrap();
    assert!(report.damage.is_empty() && report.tables == 3, "{report:?}");
    for (place, from) in [(0, 2), (2, 0), (0, 1), (1, 0)] {
        let (disk, options, tables) = without_ids(|_| {});
        disk.overwrite(&tables[place], disk.file_bytes(&tables[from]).unwrap());
        let report = Db::repair_with_env("/db", options.clone(), disk.env()).unwrap();
        assert_eq!((report.lost_tables, report.tables), (1, 2), "{place} {from}: {report:?}");
        let is_told =
            |error: &crate::Error| error.path() == Some(&tables[place]) && error.kind() == ErrorKind::Corruption;
        assert!(report.damage.iter().any(is_told), "{report:?}");
        let lost = Path::new("/db/lost").join(tables[place].file_name().unwrap());
        assert!(
            report.put_aside.iter().any(|file| file.path == lost && file.reason == AsideReason::Unused),
            "{report:?}"
        );
        let db = Db::open_with_env("/db", options, disk.env()).unwrap();
        let other = db.column_family("another").unwrap();
        let found =
            |family: &crate::ColumnFamily, key: &str| db.get_cf(family, key, &Default::default()).unwrap().is_some();
        for (n, key) in ["a", "b", "c"].into_iter().enumerate() {
            let default = db.default_column_family();
            assert_eq!(found(&default, key), n < 2 && n != place, "{place} {from} {key}");
            assert_eq!(found(&other, key), n == 2 && n != place, "{place} {from} {key}");
        }
    }
}
