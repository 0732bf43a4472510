//! Stores with range deletions as RocksDB leaves them: Esker writes all else, and they are put into its tables and logs afterwards.

use esker_format::rocksdb::order::Order;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_format::compression::Compression;
use esker_format::file_name::FileName;
use esker_format::rocksdb::block::BlockBuilder;
use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::table::{FOOTER_BYTES, Footer, MetaIndex, PROPERTIES, RANGE_DELETIONS, TableProperties};
use esker_format::rocksdb::version_edit::TableMeta;
use fastrand::Rng;

use crate::Db;
use crate::open::tests::{DIR, edit_manifest, open, options, write_log};
use crate::operands::{MergeOperator, StringAppendOperator};
use crate::options::{FamilyOptions, Options, Separation};
use crate::range_deletions::{RangeDeletion, widen};
use crate::table::{TableIdentity, TableOptions, TableWriter};

/// What is there, and since when.
type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table file with these range deletions besides what it has.
fn with_ranges(table: &[u8], ranges: &[RangeDeletion]) -> Vec<u8> {
    let footer = Footer::decode(&table[table.len() - FOOTER_BYTES..], table.len() as u64).unwrap();
    let part =
        |at: esker_format::rocksdb::table::BlockHandle| &table[at.offset as usize..(at.offset + at.bytes) as usize];
    let mut meta = MetaIndex::decode(part(footer.meta_index)).unwrap();
    let mut properties = TableProperties::decode(part(meta.get(PROPERTIES).unwrap())).unwrap();
    let mut out = table[..footer.meta_index.offset as usize].to_vec();
    let mut add = |block: &[u8]| {
        let offset = out.len() as u64;
        out.extend_from_slice(block);
        out.extend_from_slice(&footer.checksum.trailer(block, Compression::None, offset));
        esker_format::rocksdb::table::BlockHandle { offset, bytes: block.len() as u64 }
    };
    let mut sorted: Vec<_> = ranges.iter().collect();
    sorted.sort_by(|a, b| a.begin.cmp(&b.begin).then(b.sequence.cmp(&a.sequence)));
    let mut block = BlockBuilder::new(1);
    for range in sorted {
        let mut key = Vec::new();
        internal_key::append(&mut key, &range.begin, range.sequence, ValueKind::RangeDeletion);
        block.add(&key, &range.end);
        properties.entry_count += 1;
        properties.deletion_count += 1;
        properties.range_deletion_count += 1;
        properties.raw_key_bytes += key.len() as u64;
        properties.raw_value_bytes += range.end.len() as u64;
    }
    meta.insert(RANGE_DELETIONS, add(block.finish()));
    meta.insert(PROPERTIES, add(&properties.encode()));
    let meta_index = add(&meta.encode());
    let end = out.len() as u64;
    out.extend_from_slice(&Footer { meta_index, ..footer }.encode(end));
    out
}

/// What the manifest says of a table, as RocksDB has it: it reaches as far as its ranges.
fn reaching(meta: &mut TableMeta, ranges: &[RangeDeletion]) {
    widen(Order::BYTEWISE, &mut meta.smallest, &mut meta.largest, ranges);
    for range in ranges {
        meta.largest_sequence = meta.largest_sequence.max(range.sequence);
        let none = meta.smallest_sequence == SequenceNumber::default();
        meta.smallest_sequence = if none { range.sequence } else { meta.smallest_sequence.min(range.sequence) };
    }
}

fn chosen(random: &mut Rng) -> Options {
    options(FamilyOptions {
        separation: [Separation::Off, Separation::AtFlush][random.usize(..2)],
        min_blob_size: 100,
        merge_operator: Some(Arc::new(StringAppendOperator::default())),
        write_buffer_bytes: 64 << 10,
        target_file_bytes: 8 << 10,
        level0_compaction_trigger: 100,
        level0_slowdown_trigger: 200,
        level0_stop_trigger: 300,
        ..FamilyOptions::default()
    })
}

fn key(random: &mut Rng) -> Vec<u8> {
    format!("{:03}", random.u32(..300)).into_bytes()
}

/// Merges nothing, as where RocksDB knows of the range deletions between.
struct Later;

impl MergeOperator for Later {
    fn name(&self) -> &'static str {
        "StringAppendOperator"
    }

    fn full_merge(&self, _key: &[u8], _existing: Option<&[u8]>, _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

fn put(db: &Db, model: &mut Model, random: &mut Rng, count: usize) {
    for _ in 0..count {
        let (key, value) = (key(random), vec![random.u8(..); random.usize(..300)]);
        match random.u8(..8) {
            0 => {
                db.delete(&key).unwrap();
                model.remove(&key);
            }
            1..3 => {
                db.merge(&key, &value).unwrap();
                let merged = match model.get(&key) {
                    Some((_, before)) => [before, &b","[..], &value].concat(),
                    None => value,
                };
                model.insert(key, (db.store().visible().get(), merged));
            }
            _ => {
                db.put(&key, &value).unwrap();
                model.insert(key, (db.store().visible().get(), value));
            }
        }
    }
}

fn range(random: &mut Rng, sequence: u64) -> RangeDeletion {
    let (begin, end) = (key(random), key(random));
    RangeDeletion { begin: begin.into(), end: end.into(), sequence: SequenceNumber::new(sequence) }
}

fn hide(model: &mut Model, range: &RangeDeletion) {
    let is_hidden = |key: &[u8], since: u64| *range.begin <= *key && *key < *range.end && since < range.sequence.get();
    model.retain(|key, (since, _)| !is_hidden(key, *since));
}

/// The number of the next entry, which another key than those of the model takes.
fn take_number(db: &Db) -> u64 {
    db.put(b"~", b"").unwrap();
    db.store().visible().get()
}

fn contents(db: &Db) -> Contents {
    let mut found = Contents::new();
    let mut entries = db.iter().unwrap();
    entries.seek_to_first().unwrap();
    while entries.valid() {
        found.insert(entries.key().to_vec(), entries.value().unwrap().to_vec());
        entries.next().unwrap();
    }
    found.remove(&b"~"[..]);
    for (key, value) in &found {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    found
}

/// A store with range deletions in tables of level 0, in a table of their own, and in the log; and what is in it.
fn store(disk: &SimDisk, options: &Options, random: &mut Rng) -> Contents {
    let (mut model, mut in_tables) = (Model::new(), BTreeMap::<FileNumber, Vec<RangeDeletion>>::new());
    let mut writing = options.clone();
    writing.families.get_mut("default").unwrap().merge_operator = Some(Arc::new(Later));
    let db = open(disk, &writing).unwrap();
    put(&db, &mut model, random, 400);
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    for _ in 0..random.usize(1..4) {
        let mut ranges = Vec::new();
        for _ in 0..random.usize(1..4) {
            put(&db, &mut model, random, 30);
            let range = range(random, take_number(&db));
            hide(&mut model, &range);
            ranges.push(range);
        }
        put(&db, &mut model, random, 30);
        db.flush().unwrap();
        let version = db.store().family(0).unwrap().view.load().version.clone();
        in_tables.insert(version.level(0).iter().map(|table| table.meta.number).max().unwrap(), ranges);
    }
    let mut alone = Vec::new();
    for _ in 0..random.usize(..3) {
        alone.push(range(random, take_number(&db)));
        hide(&mut model, alone.last().unwrap());
    }
    db.flush().unwrap();
    // After all tables, and before the logs.
    let number = FileNumber::new(900);
    let mut sequence = db.store().visible().get();
    db.close().unwrap();
    let mut lengths = BTreeMap::new();
    let path = |number| Path::new(DIR).join(FileName::Table(number).to_string());
    for (number, ranges) in &in_tables {
        let table = with_ranges(&disk.file_bytes(&path(*number)).unwrap(), ranges);
        lengths.insert(*number, table.len() as u64);
        disk.overwrite(&path(*number), table);
    }
    let identity = TableIdentity { column_family_name: "default".to_owned(), ..TableIdentity::default() };
    let files = disk.env().files;
    let table = &TableOptions::default();
    TableWriter::create(&*files, &path(number), number, table, &identity).unwrap().finish().unwrap();
    let table = with_ranges(&disk.file_bytes(&path(number)).unwrap(), &alone);
    let mut meta = TableMeta { number, file_bytes: table.len() as u64, ..TableMeta::default() };
    disk.overwrite(&path(number), table);
    reaching(&mut meta, &alone);
    edit_manifest(disk, |edit| {
        edit.next_file_number = edit.next_file_number.map(|_| 902);
        for (_, meta) in &mut edit.new_files {
            if let Some(ranges) = in_tables.get(&meta.number) {
                meta.file_bytes = lengths[&meta.number];
                reaching(meta, ranges);
            }
        }
        let has_newest = edit.new_files.iter().any(|(_, meta)| Some(&meta.number) == in_tables.keys().max());
        if has_newest && !alone.is_empty() {
            meta.epoch_number = edit.new_files.iter().map(|(_, meta)| meta.epoch_number).max().unwrap() + 1;
            edit.new_files.push((0, meta.clone()));
        }
    });
    let mut batches = Vec::new();
    for _ in 0..random.usize(..6) {
        sequence += 1;
        if random.bool() {
            let range = range(random, sequence);
            hide(&mut model, &range);
            batches.push((sequence, [&[0xf, 3][..], &range.begin, &[3], &range.end].concat()));
        } else {
            let key = key(random);
            batches.push((sequence, [&[1, 3][..], &key, &[1, b'x']].concat()));
            model.insert(key, (sequence, b"x".to_vec()));
        }
    }
    let batches: Vec<_> = batches.iter().map(|(sequence, raw)| (*sequence, 1, raw.as_slice())).collect();
    write_log(disk, 901, &batches);
    disk.env().files.sync_dir(Path::new(DIR)).unwrap();
    model.into_iter().map(|(key, (_, value))| (key, value)).collect()
}

fn assert_holds(db: &Db, expected: &Contents, what: &str) {
    assert!(contents(db) == *expected, "{what}");
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
}

/// A reader and a writer see what RocksDB would, whatever is merged then, and what is written after.
#[test]
fn range_deletions_hide_what_they_hid() {
    for seed in 0..60 {
        let (mut random, disk) = (Rng::with_seed(seed), SimDisk::new());
        let options = chosen(&mut random);
        let mut expected = store(&disk, &options, &mut random);
        let reader = Db::open_read_only_with_env(DIR, options.clone(), disk.env()).unwrap();
        assert_holds(&reader, &expected, &format!("seed {seed}, read only"));
        drop(reader);
        let db = open(&disk, &options).unwrap();
        assert_holds(&db, &expected, &format!("seed {seed}"));
        for _ in 0..100 {
            let (key, value) = (key(&mut random), vec![random.u8(..); random.usize(..300)]);
            db.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_holds(&db, &expected, &format!("seed {seed}, merged"));
        assert!(!db.store().family(0).unwrap().view.load().version.has_range_deletions());
        db.close().unwrap();
        assert_holds(&open(&disk, &options).unwrap(), &expected, &format!("seed {seed}, again"));
    }
}

/// O2: whatever an open dies of, the next one sees the same.
#[test]
fn an_open_that_ends_amid_range_deletions_is_made_up_for() {
    for seed in 0..3 {
        let (mut random, disk) = (Rng::with_seed(seed), SimDisk::new());
        let options = chosen(&mut random);
        let expected = store(&disk, &options, &mut random);
        for n in 0.. {
            let what = format!("seed {seed}, operation {n}");
            let dying = disk.after_process_death();
            dying.die_after(n);
            let died = open(&dying, &options).is_err();
            for (disk, how) in [
                (dying.after_process_death(), "its process died"),
                (dying.after_power_loss(Survivors::Sample { seed: n }), "the power went"),
            ] {
                let db = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, {how}: {error}"));
                assert_holds(&db, &expected, &format!("{what}, {how}"));
            }
            let failing = disk.after_process_death();
            failing.fail_from(n, [Fault::Eio, Fault::NoSpace][n as usize % 2]);
            drop(open(&failing, &options));
            failing.heal();
            assert_holds(&open(&failing, &options).unwrap(), &expected, &what);
            if !died {
                break;
            }
        }
    }
}

/// Goal: a repair keeps what is hidden hidden, with a manifest and without.
#[test]
fn a_repair_keeps_range_deletions() {
    for (seed, has_manifest) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let (mut random, disk) = (Rng::with_seed(seed), SimDisk::new());
        let options = chosen(&mut random);
        let expected = store(&disk, &options, &mut random);
        if !has_manifest {
            let files = disk.env().files;
            let names = files.list(Path::new(DIR)).unwrap();
            let manifest = names.iter().find(|name| name.name.starts_with("MANIFEST")).unwrap();
            files.remove(&Path::new(DIR).join(&manifest.name)).unwrap();
        }
        Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap();
        assert_holds(&open(&disk, &options).unwrap(), &expected, &format!("seed {seed}, manifest: {has_manifest}"));
    }
}

/// RD2: in a level a table of RocksDB's reaches as far as its range deletions, up to the first key of the next one, which is found there.
#[test]
fn a_table_reaches_no_further_than_its_last_key() {
    let (disk, options) = (SimDisk::new(), options(FamilyOptions { target_file_bytes: 8 << 10, ..Default::default() }));
    let db = open(&disk, &options).unwrap();
    let mut random = Rng::with_seed(1);
    // Twice, or what there is would be moved down as it is.
    for n in [100..400u32, 100..400].into_iter().flatten() {
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(100).collect();
        db.put(n.to_string(), value).unwrap();
        if n == 399 {
            db.flush().unwrap();
        }
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let mut expected = contents(&db);
    let (version, sequence) = (db.store().family(0).unwrap().view.load().version.clone(), db.store().visible());
    let [first, second, ..] = version.level(version.deepest_level()) else { panic!("one table") };
    let range = RangeDeletion { begin: b"110"[..].into(), end: second.smallest().into(), sequence };
    expected.retain(|key, _| **key < *range.begin || *range.end <= **key);
    assert!(second.smallest() > &b"120"[..] && expected.contains_key(second.smallest()));
    let (number, path) = (first.number(), first.table.path().to_owned());
    db.close().unwrap();
    let table = with_ranges(&disk.file_bytes(&path).unwrap(), std::slice::from_ref(&range));
    edit_manifest(&disk, |edit| {
        for (_, meta) in edit.new_files.iter_mut().filter(|(_, meta)| meta.number == number) {
            meta.file_bytes = table.len() as u64;
            reaching(meta, std::slice::from_ref(&range));
        }
    });
    disk.overwrite(&path, table);
    for open in [Db::open_read_only_with_env, Db::open_with_env] {
        assert_holds(&open(DIR, options.clone(), disk.env()).unwrap(), &expected, "");
    }
}

/// RD1: a file that RocksDB took in has an operand and a range deletion over it, of one number: what is older is hidden from the operand.
#[test]
fn an_operand_of_the_number_of_its_range_deletion_shows() {
    let (disk, options) = (
        SimDisk::new(),
        options(FamilyOptions {
            merge_operator: Some(Arc::new(StringAppendOperator::default())),
            ..Default::default()
        }),
    );
    let db = open(&disk, &options).unwrap();
    db.put("k", "old").unwrap();
    db.put("z", "z").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let from = Path::new("/in.sst");
    let mut writer = crate::SstFileWriter::create_with_env(from, &FamilyOptions::default(), disk.env()).unwrap();
    writer.merge("k", "m").unwrap();
    writer.finish().unwrap();
    let (number, sequence) = (FileNumber::new(900), SequenceNumber::new(db.store().visible().get() + 1));
    db.close().unwrap();
    let range = |sequence| RangeDeletion { begin: b"a"[..].into(), end: b"y"[..].into(), sequence };
    let table = with_ranges(&disk.file_bytes(from).unwrap(), &[range(SequenceNumber::default())]);
    let path = Path::new(DIR).join(FileName::Table(number).to_string());
    let identity = TableIdentity { column_family_name: "default".to_owned(), ..TableIdentity::default() };
    let empty = TableOptions::default();
    TableWriter::create(&*disk.env().files, &path, number, &empty, &identity).unwrap().finish().unwrap();
    let mut meta = TableMeta { number, file_bytes: table.len() as u64, ..TableMeta::default() };
    disk.overwrite(&path, table);
    reaching(&mut meta, &[range(sequence)]);
    let mut is_added = false;
    edit_manifest(&disk, |edit| {
        edit.next_file_number = edit.next_file_number.map(|_| 902);
        edit.last_sequence = edit.last_sequence.map(|_| sequence);
        if !edit.new_files.is_empty() && !std::mem::replace(&mut is_added, true) {
            meta.epoch_number = edit.new_files.iter().map(|(_, meta)| meta.epoch_number).max().unwrap() + 1;
            edit.new_files.push((0, meta.clone()));
        }
    });
    disk.env().files.sync_dir(Path::new(DIR)).unwrap();
    let reader = Db::open_read_only_with_env(DIR, options.clone(), disk.env()).unwrap();
    assert_eq!(reader.get("z").unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap()).as_deref(), Some("z"));
    assert_eq!(reader.get("k").unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap()).as_deref(), Some("m"));
}
