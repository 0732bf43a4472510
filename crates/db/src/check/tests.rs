//! What a check finds, and what it goes by where not all of a store can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use esker_env::FileSystem;
use esker_env::sim::SimDisk;
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::HEADER_BYTES;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::{BlobFileGarbage, VersionEdit};
use esker_log::ledger::Usage;

use super::{Check, WithoutCurrent};
use crate::{Db, Error, ErrorKind, FamilyOptions, Options, ReadOptions, Result, Separation, WriteOptions};

const DIR: &str = "/store";
/// Of a table.
const FOOTER_BYTES: usize = 53;

type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Goal (B10): a manifest that counts what lives as garbage is found out, file by file.
#[test]
fn a_check_notices_garbage_that_is_none() {
    let family = FamilyOptions { separation: Separation::AtFlush, min_blob_size: 100, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let disk = SimDisk::new();
    let open = || Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let db = open();
    for file in 0..3u8 {
        (0..4u8).for_each(|n| db.put([file, n], vec![n; 1000]).unwrap());
        db.flush().unwrap();
    }
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    let store = db.store();
    let view = store.family(0).unwrap().view.load_full();
    let one_of_each =
        |(number, usage): (_, Usage)| BlobFileGarbage { number, count: 1, bytes: usage.bytes / usage.count };
    let wrong: Vec<_> = view.version.ledger().iter().map(one_of_each).take(2).collect();
    let edit = VersionEdit { blob_garbage: wrong.clone(), ..VersionEdit::default() };
    assert!(store.record(&mut store.installer.lock(), edit).is_ok());
    let expected: BTreeSet<_> = wrong.iter().map(|garbage| store.path_of(&FileName::Blob(garbage.number))).collect();
    drop((view, db));
    let check = open().check(&mut |_| {}).unwrap();
    let found: BTreeSet<_> = check.errors.iter().filter_map(|error| error.path().map(Path::to_owned)).collect();
    assert!(found == expected && check.errors.len() == 2, "{check:?}");
}

fn with(separation: Separation) -> Options {
    let family = FamilyOptions {
        separation,
        min_blob_size: 100,
        level0_compaction_trigger: 10,
        write_buffer_bytes: 64 << 10,
        ..FamilyOptions::default()
    };
    let families = ["default", "second"].map(|name| (name.to_owned(), family.clone())).into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

/// Of two families, three tables each, with blob files, and a log.
fn written(separation: Separation) -> (SimDisk, Db) {
    let (disk, options) = (SimDisk::new(), with(separation));
    let db = Db::open_with_env(DIR, options.clone(), disk.env()).unwrap();
    let second = db.create_column_family("second", options.families["second"].clone()).unwrap();
    for file in 0..4u8 {
        for family in [&db.default_column_family(), &second] {
            for n in 0..4u8 {
                let value = vec![n; 40 + 60 * usize::from(n)];
                db.put_cf(family, [file, n], value, &WriteOptions::default()).unwrap();
            }
        }
        if file < 3 {
            db.flush().unwrap();
        }
    }
    (disk, db)
}

/// The same, closed.
fn scene() -> (SimDisk, Contents) {
    let (disk, db) = written(Separation::AtFlush);
    let expected = contents(&db).unwrap();
    db.close().unwrap();
    (disk, expected)
}

fn contents(db: &Db) -> Result<Contents> {
    let mut found = Contents::new();
    for name in ["default", "second"] {
        let family = db.column_family(name).ok_or_else(|| Error::invalid_argument("a family is gone"))?;
        let mut entries = db.iter_cf(&family, &ReadOptions::default())?;
        entries.seek_to_first()?;
        while entries.valid() {
            found.insert((name.to_owned(), entries.key().to_vec()), entries.value()?.to_vec());
            entries.next()?;
        }
    }
    Ok(found)
}

fn plain() -> Options {
    Options { background_jobs: 0, ..Options::default() }
}

fn check(disk: &SimDisk) -> Result<Check> {
    Db::check_store_with_env(DIR, plain(), disk.env(), &mut |_| {})
}

fn named(disk: &SimDisk, part: &str) -> Vec<PathBuf> {
    let mut found = disk.paths();
    found.retain(|path| path.to_string_lossy().contains(part));
    found.sort();
    found
}

fn read(disk: &SimDisk) -> Result<Contents> {
    contents(&Db::open_read_only_with_env(DIR, plain(), disk.env())?)
}

fn flip(disk: &SimDisk, path: &Path, at: usize, flipped: u8) {
    let mut bytes = disk.file_bytes(path).unwrap();
    bytes[at] ^= flipped;
    disk.overwrite(path, bytes);
}

/// Goal: whatever byte rots of what leads to a store's files, it is told as damage, with the file's name, by an open and by a check that goes on to
/// read all tables; and it costs nothing: a repair brings everything back.
#[test]
fn a_rotten_byte_of_what_leads_to_the_data_is_told_and_mended() {
    let (whole, expected) = scene();
    let table_count = named(&whole, ".sst").len() as u64;
    let sound = check(&whole).unwrap();
    assert!(sound.errors.is_empty() && sound.tables == table_count && sound.without_current.is_none(), "{sound:?}");
    let (mut refused, mut without) = (BTreeMap::<String, u32>::new(), 0);
    let files = [named(&whole, "CURRENT"), named(&whole, "MANIFEST"), named(&whole, "OPTIONS"), named(&whole, ".sst")];
    for path in files.iter().filter_map(|files| files.last()) {
        let (name, bytes) = (path.file_name().unwrap().to_string_lossy(), whole.file_bytes(path).unwrap());
        let first = if name.ends_with(".sst") { bytes.len() - FOOTER_BYTES } else { 0 };
        for at in first..bytes.len() {
            let flipped = if at % 3 == 0 { 0xff } else { 1 << (at % 8) };
            let what = format!("byte {at} of {name}, {flipped:#x}");
            let disk = whole.after_process_death();
            flip(&disk, path, at, flipped);
            let before: Vec<_> = disk.paths().iter().map(|path| disk.file_bytes(path)).collect();
            let (read, check) = (read(&disk), check(&disk).unwrap_or_else(|error| panic!("{what}: {error}")));
            assert!(before == disk.paths().iter().map(|path| disk.file_bytes(path)).collect::<Vec<_>>(), "{what}");
            if let Err(error) = &read {
                let kind = error.kind();
                // A number of the options may ask for fewer levels than there are.
                assert!(kind == ErrorKind::Corruption || name.starts_with("OPTIONS"), "{what}: {error}");
                let is_named = error.to_string().contains(&*name) || error.to_string().contains("CURRENT");
                assert!(is_named, "{what}: {error}");
                assert!(check.errors.iter().any(|told| told.to_string() == error.to_string()), "{what}: {check:?}");
                *refused.entry(name.clone().into_owned()).or_default() += 1;
            }
            // An option may be another one now, and nothing tells; nor of two versions of a footer that are read alike.
            assert!(read.is_err() || read.unwrap() == expected, "{what}");
            let is_table = name.ends_with(".sst");
            assert!(check.errors.len() == 1 || name.starts_with("OPTIONS") || is_table, "{what}: {check:?}");
            assert_eq!(
                check.tables,
                table_count - u64::from(is_table && !check.errors.is_empty()),
                "{what}: {check:?}"
            );
            if let Some(left) = &check.without_current {
                without += 1;
                assert!(left.has_lost_nothing(), "{what}: {left:?}");
            }
            Db::repair_with_env(DIR, plain(), disk.env()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(self::read(&disk).unwrap() == expected, "{what}");
        }
    }
    assert!(refused.len() == 4 && refused.values().all(|&count| count > 15) && without > 50, "{refused:?}, {without}");
}

/// Goal: whatever byte rots of a blob file's header, which no checksum covers, it is told as damage of that file, and costs no value: whether a table or a log
/// points there, and without a manifest, too.
#[test]
fn a_rotten_byte_of_a_blob_files_header_is_told_and_mended() {
    let closed = scene();
    let (disk, db) = written(Separation::AtWrite);
    let at_write = (disk.after_process_death(), contents(&db).unwrap());
    for ((whole, expected), has_manifest) in [(&closed, true), (&at_write, true), (&closed, false)] {
        if !has_manifest {
            let gone = [named(whole, "CURRENT"), named(whole, "MANIFEST")].concat();
            gone.iter().for_each(|path| whole.env().files.remove(path).unwrap());
        }
        let path = &named(whole, ".blob").pop().unwrap();
        // Without a manifest, a family that nobody knows may be one.
        let bytes = (0..HEADER_BYTES).filter(|at| has_manifest || !(8..12).contains(at));
        for at in bytes {
            let flipped = if at % 3 == 0 { 0xff } else { 1 << (at % 8) };
            let what = format!("byte {at} of {}, {flipped:#x}, {has_manifest}", path.display());
            let disk = whole.after_process_death();
            flip(&disk, path, at, flipped);
            let error = read(&disk).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
            let check = check(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let is_told = check.errors.iter().any(|error| error.path() == Some(path));
            assert!(is_told && check.unsupported.is_empty(), "{what}: {check:?}");
            let report = Db::repair_with_env(DIR, plain(), disk.env());
            let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.lost_values == 0 && report.lost_log_bytes == 0, "{what}: {report:?}");
            assert!(read(&disk).unwrap() == *expected, "{what}");
            assert_eq!(self::check(&disk).unwrap().errors.len(), 0, "{what}");
        }
    }
}

/// Goal: a header that nothing tells to be rotten may be a newer version's: an open refuses it and says both.
#[test]
fn a_blob_file_that_may_be_newer_says_so() {
    let (disk, _) = scene();
    let path = named(&disk, ".blob").remove(0);
    // Version 2, and what follows is no record of version 1.
    flip(&disk, &path, 4, 3);
    flip(&disk, &path, HEADER_BYTES, 1);
    let error = read(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
    assert!(error.path() == Some(&path) && error.reason().contains("or its header is damaged"), "{error}");
}

fn options_with(disk: &SimDisk, change: impl Fn(String) -> String) {
    let path = named(disk, "OPTIONS").pop().unwrap();
    let text = String::from_utf8(disk.file_bytes(&path).unwrap()).unwrap();
    disk.overwrite(&path, change(text).into_bytes());
}

/// The file without what it says of tables, which a file need not have.
fn without_tables(text: String) -> String {
    let mut is_of_tables = false;
    let mut kept = text.lines().filter(|line| {
        is_of_tables = if line.starts_with('[') { line.starts_with("[TableOptions") } else { is_of_tables };
        !is_of_tables
    });
    kept.by_ref().map(|line| format!("{line}\n")).collect()
}

/// Goal: a rotten byte in the name of a family is told by all who read the options, and no family loses them unseen; a repair takes what is said of it from the older
/// file. That a crash came between manifest and file is no damage.
#[test]
fn a_rotten_name_of_a_family_in_the_options_is_damage() {
    let (whole, expected) = scene();
    // Two files, both with what was chosen.
    Db::open_with_env(DIR, plain(), whole.env()).unwrap().close().unwrap();
    for has_tables in [true, false] {
        let whole = whole.after_process_death();
        if !has_tables {
            options_with(&whole, without_tables);
        }
        let path = named(&whole, "OPTIONS").pop().unwrap();
        let text = String::from_utf8(whole.file_bytes(&path).unwrap()).unwrap();
        let name_at = text.find("[CFOptions \"second\"]").unwrap() + "[CFOptions \"".len();
        for (at, flipped) in (name_at..name_at + "second".len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            let what = format!("byte {at}, {flipped:#x}, {has_tables}");
            let disk = whole.after_process_death();
            flip(&disk, &path, at, flipped);
            let error = read(&disk).unwrap_err();
            assert!(error.path() == Some(&path) && error.to_string().contains("repair the store"), "{what}: {error}");
            let told = Db::open_with_env(DIR, plain(), disk.env()).unwrap_err();
            assert_eq!(told.to_string(), error.to_string(), "{what}");
            let check = check(&disk).unwrap();
            assert!(check.errors.len() == 1 && check.errors[0].to_string() == error.to_string(), "{what}: {check:?}");
            let report = Db::repair_with_env(DIR, plain(), disk.env()).unwrap();
            let older = named(&whole, "OPTIONS").remove(0);
            let is_told =
                |error: &Error| error.path() == Some(&path) && error.reason().contains(&*older.to_string_lossy());
            assert!(report.damage.len() == 1 && is_told(&report.damage[0]), "{what}: {report:?}");
            let db = Db::open_with_env(DIR, plain(), disk.env()).unwrap();
            let second = db.column_family("second").unwrap();
            assert_eq!(second.options().min_blob_size, 100, "{what}");
            assert!(contents(&db).unwrap() == expected, "{what}");
        }
    }
    for other in ["2nd", "third"] {
        let disk = whole.after_process_death();
        options_with(&disk, |text| without_tables(text).replace("\"second\"", &format!("{other:?}")));
        assert!(read(&disk).unwrap() == expected && check(&disk).unwrap().errors.is_empty(), "{other}");
    }
}

/// Goal: where the newest OPTIONS file cannot be read, a repair takes the newest that can, and says which; where none can, that it takes the defaults.
#[test]
fn a_repair_takes_the_newest_options_that_are_whole() {
    let (whole, expected) = scene();
    for _ in 0..2 {
        Db::open_with_env(DIR, plain(), whole.env()).unwrap().close().unwrap();
    }
    // As after a process that died before the oldest went.
    let options = named(&whole, "OPTIONS");
    let oldest = Path::new(DIR).join(FileName::Options(FileNumber::new(1)).to_string());
    whole.env().files.create(&oldest).unwrap().append(&[&whole.file_bytes(&options[0]).unwrap()]).unwrap();
    let options = named(&whole, "OPTIONS");
    assert_eq!(options.len(), 3, "{options:?}");
    for damaged in 1..=3 {
        let disk = whole.after_process_death();
        for path in options.iter().rev().take(damaged) {
            let bytes = disk.file_bytes(path).unwrap();
            disk.overwrite(path, bytes[..bytes.len() / 2].to_vec());
        }
        let report = Db::repair_with_env(DIR, plain(), disk.env()).unwrap();
        let [error] = &report.damage[..] else { panic!("{report:?}") };
        let expected_words = match options.iter().rev().nth(damaged) {
            Some(path) => format!("the options of {} count instead", path.display()),
            None => "all options that are not given are the defaults".to_owned(),
        };
        assert!(
            error.path() == options.last().map(|path| &**path) && error.reason().contains(&expected_words),
            "{error}"
        );
        let db = Db::open_with_env(DIR, plain(), disk.env()).unwrap();
        let second = db.column_family("second").unwrap();
        let min_blob_size = if damaged < 3 { 100 } else { FamilyOptions::default().min_blob_size };
        assert_eq!(second.options().min_blob_size, min_blob_size, "{damaged}");
        assert!(contents(&db).unwrap() == expected, "{damaged}");
    }
}

/// Goal: where only CURRENT is lost, the manifest that it named says all that it says otherwise.
#[test]
fn without_current_the_whole_manifest_is_what_a_check_goes_by() {
    let (disk, expected) = scene();
    disk.remove(Path::new("/store/CURRENT")).unwrap();
    let manifest = named(&disk, "MANIFEST").remove(0);
    let found = check(&disk).unwrap();
    assert!(found.errors.len() == 1 && found.errors[0].to_string().contains("no CURRENT"), "{found:?}");
    assert_eq!(found.without_current.and_then(|without| without.manifest), Some(manifest));
    assert!(found.orphans.is_empty() && found.tables == 6 && found.blob_files == 6, "{:?}", found.orphans);
    let table = named(&disk, ".sst").remove(0);
    disk.remove(&table).unwrap();
    let found = check(&disk).unwrap();
    assert!(found.errors.len() == 2 && found.errors[1].path() == Some(&table), "{found:?}");
    let left = disk.after_process_death();
    Db::repair_with_env(DIR, plain(), left.env()).unwrap();
    assert_eq!(read(&left).unwrap().len(), expected.len() - 4);
}

/// Goal: without any manifest each file is read by itself: each damage is told once, at its place, and what a repair will not get back.
#[test]
fn without_a_manifest_each_damage_is_told_once() {
    let (disk, _) = scene();
    let manifest = named(&disk, "MANIFEST").remove(0);
    flip(&disk, &manifest, 40, 4);
    let whole = check(&disk).unwrap();
    assert!(whole.errors.len() == 1 && whole.errors[0].path() == Some(&manifest), "{whole:?}");
    assert_eq!((whole.tables, whole.blob_files, whole.recovery.batches), (6, 6, 8), "{whole:?}");
    assert_eq!(whole.without_current, Some(WithoutCurrent::default()));

    let (tables, blobs) = (named(&disk, ".sst"), named(&disk, ".blob"));
    let (log, options) = (named(&disk, ".log").remove(0), named(&disk, "OPTIONS").pop().unwrap());
    flip(&disk, &tables[0], 20, 4);
    let footer_at = disk.file_bytes(&tables[1]).unwrap().len() - FOOTER_BYTES;
    flip(&disk, &tables[1], footer_at + 41, 2);
    flip(&disk, &blobs[2], 90, 4);
    disk.remove(&blobs[3]).unwrap();
    flip(&disk, &log, 20, 4);
    let section = disk.file_bytes(&options).unwrap().windows(3).position(|bytes| bytes == b"[DB").unwrap();
    flip(&disk, &options, section + 1, 4);
    let found = check(&disk).unwrap();
    let damaged = [&manifest, &tables[0], &tables[1], &blobs[2], &blobs[3], &log, &options];
    let told: BTreeSet<_> = found.errors.iter().filter_map(Error::path).collect();
    assert!(told == damaged.into_iter().map(PathBuf::as_path).collect(), "{:#?}", found.errors);
    assert_eq!(found.errors.len(), damaged.len(), "{:#?}", found.errors);
    assert_eq!((found.tables, found.blob_files), (4, 4), "{found:?}");
    let left = found.without_current.unwrap();
    // Its only block.
    assert_eq!((left.lost_tables, left.lost_blocks), (1, 1), "{left:?}");
    assert!(left.lost_values > 0 && left.lost_log_bytes > 0 && !left.has_lost_nothing(), "{left:?}");
    let done = Db::repair_with_env(DIR, plain(), disk.env()).unwrap();
    let lost = (done.lost_tables, done.lost_blocks, done.lost_values, done.lost_log_bytes);
    assert_eq!((left.lost_tables, left.lost_blocks, left.lost_values, left.lost_log_bytes), lost, "{done:?}");
}

/// Goal: blob files that were not ended, as of a process that died, are no damage where logs lead to them.
#[test]
fn without_a_manifest_a_blob_file_that_only_a_log_knows_is_no_damage() {
    let (disk, db) = written(Separation::AtWrite);
    std::mem::forget(db);
    let disk = disk.after_process_death();
    let manifest = named(&disk, "MANIFEST").remove(0);
    flip(&disk, &manifest, 40, 4);
    let found = check(&disk).unwrap();
    assert_eq!(found.errors.len(), 1, "{:#?}", found.errors);
    assert!(found.without_current.is_some_and(|left| left.has_lost_nothing()));
    // What the log leads to is read.
    let blob = named(&disk, ".blob").pop().unwrap();
    flip(&disk, &blob, 30 + 32 + 2 + 10, 4);
    let found = check(&disk).unwrap();
    assert!(found.errors.len() == 2 && found.errors[1].path() == Some(&blob), "{:#?}", found.errors);
}

/// Goal: names alone make no store that could be damaged.
#[test]
fn files_that_only_have_names_of_a_store_are_none() {
    let disk = SimDisk::new();
    disk.env().files.create_dir_all(Path::new(DIR)).unwrap();
    disk.env().files.create(Path::new("/store/000007.sst")).unwrap();
    assert_eq!(check(&disk).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
