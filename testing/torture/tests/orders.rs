//! Orders of a program's own: chosen once, known by their names from then on, and asked by whatever looks at keys.

use std::cmp::Ordering;

use esker::env::sim::{SimDisk, Survivors};
use esker::{
    Backups, BytewiseComparator, Comparator, Compression, Db, ErrorKind, FamilyOptions, IngestOptions, Options,
    ReadOptions, ReverseBytewiseComparator, SstFileWriter, WriteBatch, WriteOptions,
};
use esker_torture::model::{backward, forward};
use esker_torture::orders::ByLength;

fn in_order(comparator: &'static dyn Comparator) -> FamilyOptions {
    FamilyOptions { comparator, level_base_bytes: 64 << 10, target_file_bytes: 4 << 10, ..FamilyOptions::default() }
}

fn with(family: FamilyOptions) -> Options {
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

fn open(disk: &SimDisk, options: &Options) -> esker::Result<Db> {
    Db::open_with_env("/store", options.clone(), disk.env())
}

fn keys(db: &Db) -> Vec<Vec<u8>> {
    let family = db.default_column_family();
    let all = forward(db, &family, &ReadOptions::default()).unwrap();
    assert!(backward(db, &family, &ReadOptions::default()).unwrap() == all);
    all.into_iter().map(|(key, _)| key).collect()
}

fn sorted(comparator: &dyn Comparator, mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    keys.sort_by(|a, b| comparator.compare(a, b));
    keys
}

/// 300 keys of one to four bytes, in tables, in the log, and in both.
fn fill(db: &Db) -> Vec<Vec<u8>> {
    let key = |n: u32| n.pow(3).to_string().into_bytes();
    for n in 0..300 {
        db.put(key(n), vec![b'v'; 100]).unwrap();
        if n % 90 == 60 {
            db.flush().unwrap();
        }
    }
    (0..300).map(key).collect()
}

/// Goal: a store keeps the order that it was made in, whoever opens it: by name, without being told; another is refused before anything is touched.
#[test]
fn a_store_has_the_order_that_it_was_made_in() {
    let orders: [&'static dyn Comparator; 3] = [&BytewiseComparator, &ReverseBytewiseComparator, &ByLength];
    for comparator in orders {
        let disk = SimDisk::new();
        let db = open(&disk, &with(in_order(comparator))).unwrap();
        let expected = sorted(comparator, fill(&db));
        assert_eq!(keys(&db), expected);
        db.close().unwrap();
        for other in orders.into_iter().filter(|other| other.name() != comparator.name()) {
            let before = disk.op_count();
            let error = open(&disk, &with(in_order(other))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!([comparator.name(), other.name()].iter().all(|name| error.to_string().contains(name)), "{error}");
            assert_eq!(disk.op_count(), before);
        }
        let known = Options { families: [].into(), comparators: vec![&ByLength], ..with(FamilyOptions::default()) };
        let db = open(&disk, &known).unwrap();
        assert_eq!(db.default_column_family().options().comparator.name(), comparator.name());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_eq!(keys(&db), expected);
        let error =
            db.set_options(&db.default_column_family(), |now| now.comparator = &Another).unwrap_err().to_string();
        assert!(error.contains("comparator"), "{error}");
        let reader = Db::open_read_only_with_env("/store", known.clone(), disk.env()).unwrap();
        assert_eq!(keys(&reader), expected);
    }
}

struct Another;

impl Comparator for Another {
    fn name(&self) -> &str {
        "test.Another"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// Goal: who does not have a store's order is told its name, whatever he is about; he can still copy it.
#[test]
fn an_order_that_nobody_has_is_named() {
    let disk = SimDisk::new();
    disk.env().files.create_dir_all("/made".as_ref()).unwrap();
    let options = with(in_order(&ByLength));
    let db = open(&disk, &options).unwrap();
    let expected = sorted(&ByLength, fill(&db));
    db.flush().unwrap();
    let backups = Backups::open_with_env("/made/set", disk.env()).unwrap();
    let id = backups.create(&db, &mut |_| {}).unwrap().info.id;
    db.close().unwrap();
    let without = Options { background_jobs: 0, ..Options::default() };
    let is_named = |error: esker::Error| {
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
        assert!(error.to_string().contains("torture.ByLength") && error.to_string().contains("comparators"), "{error}");
    };
    is_named(open(&disk, &without).unwrap_err());
    is_named(Db::open_read_only_with_env("/store", without.clone(), disk.env()).unwrap_err());
    is_named(Db::repair_with_env("/store", without.clone(), disk.env()).unwrap_err());
    backups.restore(id, "/made/copy", &mut |_| {}).unwrap();
    is_named(backups.check(id, without, &mut |_| {}).unwrap_err());
    let check = backups.check(id, options.clone(), &mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
    let disk = disk.after_power_loss(Survivors::Nothing);
    let copy = Db::open_with_env("/made/copy", options.clone(), disk.env()).unwrap();
    assert_eq!(keys(&copy), expected);
}

/// Goal: a repair finds the order where the manifest is whole, where it is gone and tables say it, and where a table's own word is lost.
#[test]
fn a_repair_goes_by_the_order_that_files_say() {
    for (loses_manifest, loses_properties) in [(false, false), (true, false), (false, true)] {
        let disk = SimDisk::new();
        let options = with(in_order(&ReverseBytewiseComparator));
        let db = open(&disk, &options).unwrap();
        let expected = sorted(&ReverseBytewiseComparator, fill(&db));
        db.flush().unwrap();
        db.close().unwrap();
        let files = disk.env().files;
        let names = files.list("/store".as_ref()).unwrap().into_iter().map(|entry| entry.name);
        for name in names.collect::<Vec<_>>() {
            let path = format!("/store/{name}");
            if loses_manifest && (name.starts_with("MANIFEST") || name == "CURRENT") {
                files.remove(path.as_ref()).unwrap();
            } else if loses_properties && name.ends_with(".sst") {
                let mut bytes = disk.file_bytes(path.as_ref()).unwrap();
                let name = b"rocksdb.ReverseBytewiseComparator";
                let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
                bytes[at] ^= 1;
                disk.overwrite(path.as_ref(), bytes);
            }
        }
        let known = Options { families: [].into(), ..options.clone() };
        let repair = Db::repair_with_env("/store", known.clone(), disk.env()).unwrap();
        assert_eq!(repair.lost_blocks, 0, "{repair:?}");
        let db = open(&disk, &known).unwrap();
        assert_eq!(keys(&db), expected, "without manifest {loses_manifest}, properties {loses_properties}");
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}

/// Goal: where no table says it, the options of who repairs do, or those that the store was opened with last.
#[test]
fn a_repair_without_tables_goes_by_options() {
    let reversed = with(in_order(&ReverseBytewiseComparator));
    let unnamed = || Options { families: [].into(), ..with(FamilyOptions::default()) };
    for options in [reversed.clone(), unnamed()] {
        let disk = SimDisk::new();
        let db = open(&disk, &reversed).unwrap();
        db.put("a", "1").unwrap();
        db.put("b", "2").unwrap();
        drop(db);
        let files = disk.env().files;
        let names = files.list("/store".as_ref()).unwrap().into_iter().map(|entry| entry.name);
        for name in names.filter(|name| name.starts_with("MANIFEST") || name == "CURRENT") {
            files.remove(format!("/store/{name}").as_ref()).unwrap();
        }
        Db::repair_with_env("/store", options, disk.env()).unwrap();
        assert_eq!(keys(&open(&disk, &unnamed()).unwrap()), [b"b".to_vec(), b"a".to_vec()]);
    }
}

/// Goal: ranges go by the order of their family, whoever names them; one that ends before it begins is refused, and nothing is written of its batch.
#[test]
fn a_range_goes_by_the_order_of_its_family() {
    let disk = SimDisk::new();
    let db = open(&disk, &with(in_order(&ReverseBytewiseComparator))).unwrap();
    let family = db.default_column_family();
    let all = sorted(&ReverseBytewiseComparator, fill(&db));
    db.delete_range("8", "3").unwrap();
    let left: Vec<_> = all.iter().filter(|key| key[..] > b"8"[..] || key[..] <= b"3"[..]).cloned().collect();
    assert!(left.len() < all.len() && keys(&db) == left);
    let is_refused = |result: esker::Result<()>| {
        let error = result.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("Reverse"), "{error}");
    };
    is_refused(db.delete_range("3", "8"));
    is_refused(db.delete_range_cf(&family, "3", "8", &WriteOptions::default()));
    is_refused(WriteBatch::new().delete_range_cf(&family, "3", "8"));
    // A batch alone does not know the family.
    let mut batch = WriteBatch::new();
    batch.put("new", "value").unwrap();
    batch.delete_range("3", "8").unwrap();
    is_refused(db.write(batch, &WriteOptions::default()));
    assert!(keys(&db) == left);
    let mut batch = WriteBatch::new();
    batch.delete_range_cf(&family, "3", "1").unwrap();
    db.write(batch, &WriteOptions::default()).unwrap();
    let left: Vec<_> = left.into_iter().filter(|key| key[..] > b"3"[..] || key[..] <= b"1"[..]).collect();
    assert!(keys(&db) == left);
    db.compact_range(&family, Some(b"8"), Some(b"2")).unwrap();
    assert!(keys(&db) == left);
    is_refused(db.count_cf(&family, &ReadOptions::default().with_prefix("9")).map(drop));
}

/// Goal: of the tables that go unread, none has a key outside of the range, as its family orders them.
#[test]
fn files_that_go_with_a_range_lie_within_it() {
    let disk = SimDisk::new();
    // Several tables.
    let family = FamilyOptions { compression: Compression::None, ..in_order(&ReverseBytewiseComparator) };
    let db = open(&disk, &with(family)).unwrap();
    let (family, all) = (db.default_column_family(), fill(&db));
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.delete_files_in_range(&family, Some(b"3"), Some(b"8")).unwrap(), 0);
    assert!(db.delete_files_in_range(&family, Some(b"8"), Some(b"3")).unwrap() > 0);
    let left = keys(&db);
    let outside: Vec<_> = all.iter().filter(|key| key[..] > b"8"[..] || key[..] < b"3"[..]).collect();
    assert!(left.len() < all.len() && outside.iter().all(|key| left.contains(key)));
}

/// Goal: a file is taken in by a family of its order only.
#[test]
fn a_file_is_of_one_order() {
    let disk = SimDisk::new();
    let db = open(&disk, &with(in_order(&ByLength))).unwrap();
    let mut file = SstFileWriter::create_with_env("/own", &in_order(&ByLength), disk.env()).unwrap();
    file.put("b", "1").unwrap();
    file.put("aa", "2").unwrap();
    let error = file.put("c", "3").unwrap_err();
    assert!(error.to_string().contains("torture.ByLength"), "{error}");
    file.finish().unwrap();
    let mut file = SstFileWriter::create_with_env("/others", &FamilyOptions::default(), disk.env()).unwrap();
    file.put("a", "1").unwrap();
    file.finish().unwrap();
    let (family, how) = (db.default_column_family(), IngestOptions::default());
    let error = db.ingest(&family, &["/others"], &how).unwrap_err();
    assert!(error.to_string().contains("leveldb.BytewiseComparator"), "{error}");
    db.ingest(&family, &["/own"], &how).unwrap();
    assert_eq!(keys(&db), [b"b".to_vec(), b"aa".to_vec()]);
    let mut load = db.bulk_load(&family).unwrap();
    load.put("z", "3").unwrap();
    load.put("ab", "4").unwrap();
    load.put("y", "4").unwrap_err();
    load.finish().unwrap();
    assert_eq!(keys(&db), [b"z".to_vec(), b"b".to_vec(), b"ab".to_vec(), b"aa".to_vec()]);
}
