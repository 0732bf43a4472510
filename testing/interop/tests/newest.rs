//! Esker and RocksDB's newest release on the same directories: opened in place, changed, and given back.

use std::path::Path;

use esker::{Compression, Db, FamilyOptions, IngestOptions, SstFileWriter};
use esker_format::DecodeError;
use esker_format::rocksdb::table::{
    BlockHandle, COMPRESSION_DICTIONARY, FOOTER_BYTES, Footer, INDEX, IndexType, MetaIndex, PROPERTIES, TRAILER_BYTES,
    TableProperties, unpack,
};
use esker_interop::contents::{Contents, Families, assert_esker_finds_no_damage, assert_esker_holds, must};
use esker_interop::directory;
use esker_interop::newest::{self, CASES, Case};
use esker_interop::workload::{self, Numbers};

/// Reading it without a trace, opening it in place, changing it, giving it back, and so once more.
fn assert_round_trip(store: &Path, case: &Case, mut expected: Families) {
    let name = case.name;
    let before = directory::bytes(store);
    let reader = must(&format!("{name}: opening read-only"), Db::open_read_only(store, newest::known()));
    assert_esker_holds(&reader, &expected);
    drop(reader);
    directory::assert_unchanged(&before, &directory::bytes(store));

    let mut numbers = Numbers::new(13);
    for _ in 0..2 {
        let db = must(&format!("{name}: opening in place"), Db::open(store, newest::known()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
        workload::change(&db, &mut expected, &mut numbers);
        must("flushing", db.flush());
        assert_esker_holds(&db, &expected);
        workload::compact(&db);
        // The last of it stays in the log, for RocksDB to replay.
        workload::write(&db, &mut expected, &mut numbers, 10);
        must("closing", db.close());

        newest::assert_finds(&newest::open(store, case, true), case, &expected);
        let db = newest::open(store, case, false);
        newest::write(&db, case, &mut expected, &mut numbers, 300, 2000);
        newest::compact(&db);
        newest::write(&db, case, &mut expected, &mut numbers, 50, 2000);
        newest::assert_finds(&db, case, &expected);
    }
    let db = must(&format!("{name}: opening again"), Db::open(store, newest::known()));
    assert_esker_holds(&db, &expected);
    assert_esker_finds_no_damage(&db);
}

/// Format version, names of meta blocks, properties, and the index of a table.
type Told = (u32, MetaIndex, TableProperties, Vec<u8>);

/// What the tables of a store say of themselves.
fn tables(store: &Path) -> Vec<Told> {
    let files = directory::bytes(store);
    let tables = files.iter().filter(|(name, _)| name.ends_with(".sst")).map(|(_, raw)| raw);
    let told = |raw: &Vec<u8>| -> Result<Told, DecodeError> {
        let footer = Footer::decode(&raw[raw.len() - FOOTER_BYTES..], raw.len() as u64)?;
        let block = |handle: Option<BlockHandle>| {
            let at = handle.unwrap_or_default();
            let stored = &raw[at.offset as usize..][..at.bytes as usize + TRAILER_BYTES];
            unpack(footer.checksum, None, stored, at.offset)
        };
        let meta = MetaIndex::decode(&block(Some(footer.meta_index))?)?;
        let properties = TableProperties::decode(&block(meta.get(PROPERTIES))?)?;
        let index = block(footer.index.or_else(|| meta.get(INDEX)))?;
        Ok((footer.format_version, meta, properties, index))
    };
    tables.map(|raw| must("reading a table", told(raw))).collect()
}

/// Shown, not assumed: the store is what the case is for.
fn assert_is(store: &Path, case: &Case) {
    let tables = tables(store);
    let all = |is: &dyn Fn(&Told) -> bool| {
        assert!(tables.len() > 1 && tables.iter().all(is), "{}: RocksDB made something else", case.name);
    };
    let blob_files = directory::count(store, ".blob");
    match case.name {
        "defaults" => all(&|table| table.0 == 7 && table.2.compression == "BuiltinV2;04;"),
        "dictionaries" => all(&|table| table.1.get(COMPRESSION_DICTIONARY).is_some()),
        "partitions" => all(&|table| table.2.index_type() == Ok(IndexType::TwoLevel)),
        // A flag that tells how to search.
        "uniform indexes" => {
            assert!(tables.iter().any(|table| table.3.last().is_some_and(|flags| flags & 0x20 != 0)), "{}", case.name);
        }
        name if name.starts_with("keys apart") => {
            all(&|table| table.2.number("rocksdb.separate.key.value.in.data.block") == Some(1));
        }
        name if name.starts_with("format ") => all(&|table| name.ends_with(&table.0.to_string())),
        name if name.starts_with("blobs") || name == "values past the log" => assert!(blob_files > 1, "{name}"),
        _ => {}
    }
}

/// Goal: whatever options of RocksDB's made a store, Esker takes it over, and RocksDB takes it back.
#[test]
fn stores_go_from_one_to_the_other_and_back() {
    for (seed, case) in CASES.iter().enumerate() {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        println!("{}", case.name);
        let expected = newest::fill(&store, case, seed as u64, 3000, 100_000);
        assert_is(&store, case);
        assert_round_trip(&store, case, expected);
    }
}

/// Goal: what RocksDB leaves when its process dies is taken over as well.
/// Method: the files are copied while the store is open.
#[test]
fn stores_that_were_not_closed_are_taken_over() {
    for (seed, case) in CASES.iter().enumerate() {
        let directory = must("making a directory", tempfile::tempdir());
        let (store, left) = (directory.path().join("store"), directory.path().join("left"));
        let mut expected = newest::fill(&store, case, 100 + seed as u64, 600, 2000);
        let db = newest::open(&store, case, false);
        newest::write(&db, case, &mut expected, &mut Numbers::new(seed as u64), 200, 2000);
        must("flushing the log", db.flush_wal(true));
        // Nothing comes and goes beside the copy.
        db.cancel_all_background_work(true);
        must("making a directory", std::fs::create_dir(&left));
        for (name, bytes) in directory::bytes(&store) {
            must("copying a store", std::fs::write(left.join(name), bytes));
        }
        drop(db);
        println!("{}", case.name);
        assert_round_trip(&left, case, expected);
    }
}

/// Goal: tables that were written outside of a store are taken in by the other.
#[test]
fn each_takes_in_what_the_other_wrote() {
    let case = &CASES[0];
    let directory = must("making a directory", tempfile::tempdir());
    let (store, theirs, ours) =
        (directory.path().join("store"), directory.path().join("theirs.sst"), directory.path().join("ours.sst"));
    let mut expected = newest::fill(&store, case, 7, 1000, 2000);
    let contents = expected.get_mut("default").expect("a family that every store has");
    let some = |step: usize, with: &str| -> Contents {
        (0..900)
            .step_by(step)
            .map(|n| (format!("key/{n:08}").into_bytes(), format!("{with} {n}").into_bytes()))
            .collect()
    };

    let options = newest::options(case);
    let mut writer = rocksdb::SstFileWriter::create(&options);
    must("creating a table by RocksDB", writer.open(&theirs));
    for (key, value) in some(7, "theirs") {
        must("putting", writer.put(&key, &value));
        contents.insert(key, value);
    }
    must("finishing", writer.finish());
    let db = must("opening", Db::open(&store, newest::known()));
    must("ingesting", db.ingest(&db.default_column_family(), &[&theirs], &IngestOptions::default()));
    must("closing", db.close());

    let family = FamilyOptions { compression: Compression::Lz4, ..FamilyOptions::default() };
    let mut writer = must("creating a table", SstFileWriter::create(&ours, &family));
    for (key, value) in some(5, "ours") {
        must("putting", writer.put(&key, &value));
        contents.insert(key, value);
    }
    must("finishing", writer.finish());
    let db = newest::open(&store, case, false);
    must("taking in by RocksDB", db.ingest_external_file(vec![&ours]));
    newest::assert_finds(&db, case, &expected);
    drop(db);
    assert_round_trip(&store, case, expected);
}
