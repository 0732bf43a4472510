use esker_format::rocksdb::order::Order;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_env::sim::SimDisk;
use esker_format::rocksdb::internal_key::{InternalKey, SequenceNumber, ValueKind};

use super::*;
use crate::compaction::Sieve;
use crate::iterate::InternalIterator;
use crate::memtable::Memtable;
use crate::output::pour;
use crate::pinned::PinnedSlice;
use crate::{Db, ErrorKind, FamilyOptions, Options, Separation, WriteBatch, WriteOptions};

const V: ValueKind = ValueKind::Value;
const M: ValueKind = ValueKind::Merge;
const D: ValueKind = ValueKind::Deletion;
const S: ValueKind = ValueKind::SingleDeletion;
const B: ValueKind = ValueKind::BlobIndex;

/// How a run is poured.
#[derive(Clone)]
struct Run<'a> {
    operator: Option<Operator>,
    snapshots: &'a [u64],
    /// Whether something deeper may hold the keys.
    deeper: bool,
    bytes_max: usize,
}

impl Run<'_> {
    /// What comes out of a run of keys of one letter, in words. The value that pointers lead to is `blob`.
    fn pour(&self, entries: &[(&str, u64, ValueKind, &str)]) -> String {
        let run = Memtable::default();
        for &(key, sequence, kind, value) in entries {
            run.add(SequenceNumber::new(sequence), kind, key.as_bytes(), value.as_bytes());
        }
        let snapshots: Vec<_> = self.snapshots.iter().map(|&s| SequenceNumber::new(s)).collect();
        let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| self.deeper).at_the_bottom(!self.deeper);
        let blob = |_: &[u8], _: &[u8]| Ok(Some(PinnedSlice::from_vec(b"blob".to_vec())));
        let mut fold = Fold::new(self.operator.clone(), blob).within(self.bytes_max);
        let mut input = Arc::new(run).iter();
        input.seek_to_first().unwrap();
        let mut poured = Vec::new();
        let each = |key: &InternalKey<'_>, internal: &[u8], value: &[u8]| {
            assert_eq!(InternalKey::decode(internal).unwrap(), *key);
            let (user_key, value) = (String::from_utf8_lossy(key.user_key), String::from_utf8_lossy(value));
            let kind = match key.kind {
                M => "+",
                V => "=",
                B => "->",
                _ => "x",
            };
            poured.push(format!("{user_key}{}{kind}{value}", key.sequence.get()));
            Ok(())
        };
        pour(&mut input, None, &mut sieve, &mut fold, each).unwrap();
        poured.join(" ")
    }
}

fn joining() -> Option<Operator> {
    Some(Arc::new(StringAppendOperator::new("").unwrap()))
}

/// Merges values as [`StringAppendOperator`] without a delimiter does, and no operands.
fn joining_apart() -> Option<Operator> {
    struct Apart;
    impl MergeOperator for Apart {
        fn name(&self) -> &'static str {
            "test.Apart"
        }
        fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
            Some([existing.unwrap_or_default(), &operands.concat()].concat())
        }
    }
    Some(Arc::new(Apart))
}

/// OP1 to OP3, S7: what flush and compaction leave of operands, by what lies among them, below and beside.
#[test]
fn a_run_leaves_as_few_operands_as_it_may() {
    let flush = Run { operator: joining(), snapshots: &[], deeper: true, bytes_max: 1000 };
    assert_eq!(flush.pour(&[("a", 9, M, "2"), ("a", 8, M, "1")]), "a9+12");
    assert_eq!(flush.pour(&[("a", 9, M, "2"), ("a", 8, M, "1"), ("b", 7, M, "0")]), "a9+12 b7+0");
    assert_eq!(flush.pour(&[("a", 9, M, "2"), ("a", 8, V, "1"), ("a", 7, V, "0")]), "a9=12");
    assert_eq!(flush.pour(&[("a", 9, M, "2"), ("a", 8, D, ""), ("a", 7, V, "0")]), "a9=2", "it hides what lies deeper");
    assert_eq!(flush.pour(&[("a", 9, V, "3"), ("a", 8, M, "2"), ("a", 7, V, "1")]), "a9=3");
    assert_eq!(flush.pour(&[("a", 9, D, ""), ("a", 8, M, "2"), ("b", 7, M, "1")]), "a9x b7+1");
    // Once it cancels the value below, what is older would show.
    assert_eq!(flush.pour(&[("a", 9, M, "3"), ("a", 8, M, "2"), ("a", 7, S, "")]), "a9+23 a7x");

    let deepest = Run { deeper: false, ..flush };
    assert_eq!(deepest.pour(&[("a", 9, M, "2"), ("a", 8, M, "1")]), "a0=12");
    assert_eq!(deepest.pour(&[("a", 9, M, "2"), ("a", 8, D, "")]), "a0=2");
    assert_eq!(deepest.pour(&[("a", 9, M, "2"), ("b", 8, V, "1"), ("c", 7, M, "0")]), "a0=2 b0=1 c0=0");

    // A snapshot keeps what it sees, and the newer ones apart from it.
    let entries = [("a", 9, M, "5"), ("a", 8, M, "4"), ("a", 6, M, "3"), ("a", 5, M, "2"), ("a", 4, V, "1")];
    for (snapshot, left) in
        [(9, "a0=12345"), (7, "a9+45 a0=123"), (5, "a9+345 a0=12"), (4, "a9+2345 a0=1"), (3, "a9=12345")]
    {
        assert_eq!(Run { snapshots: &[snapshot], ..deepest.clone() }.pour(&entries), left, "snapshot {snapshot}");
    }
    assert_eq!(Run { snapshots: &[5, 7], ..deepest.clone() }.pour(&entries), "a9+45 a6+3 a0=12");
    // Nothing is below the oldest of them, but something older than the snapshot would have been.
    assert_eq!(Run { snapshots: &[5], ..deepest.clone() }.pour(&[("a", 9, M, "2"), ("a", 8, M, "1")]), "a9=12");

    let apart = Run { operator: joining_apart(), snapshots: &[], deeper: true, bytes_max: 1000 };
    assert_eq!(apart.pour(&[("a", 9, M, "2"), ("a", 8, M, "1")]), "a9+2 a8+1");
    assert_eq!(apart.pour(&[("a", 9, M, "2"), ("a", 8, M, "1"), ("a", 7, V, "0")]), "a9=012");
    let apart = Run { snapshots: &[8], deeper: false, ..apart };
    assert_eq!(apart.pour(&[("a", 9, M, "2"), ("a", 8, M, "1"), ("a", 7, V, "0")]), "a9+2 a0=01");

    let nobody = Run { operator: None, snapshots: &[], deeper: false, bytes_max: 1000 };
    assert_eq!(nobody.pour(&[("a", 9, M, "2"), ("a", 8, M, "1"), ("a", 7, V, "0")]), "a9+2 a8+1 a0=0");
    assert_eq!(nobody.pour(&[("a", 9, V, "2"), ("a", 8, M, "1"), ("a", 7, V, "0")]), "a0=2");
    struct Panics;
    impl MergeOperator for Panics {
        fn name(&self) -> &'static str {
            "test.Panics"
        }
        fn full_merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
            panic!("as it may")
        }
        fn partial_merge(&self, _: &[u8], _: &[&[u8]]) -> Option<Vec<u8>> {
            panic!("as it may")
        }
    }
    let panics = Run { operator: Some(Arc::new(Panics)), ..nobody.clone() };
    assert_eq!(panics.pour(&[("a", 9, M, "2"), ("a", 8, M, "1"), ("a", 7, V, "0")]), "a9+2 a8+1 a0=0");
    let refuses = Run { operator: Some(Arc::new(Moody::new(false))), ..nobody };
    assert_eq!(refuses.pour(&[("a", 9, M, "2"), ("a", 8, M, "1"), ("a", 7, V, "0")]), "a9+2 a8+1 a0=0");
}

/// FO2: operands beyond what is held are merged in parts, and none is lost; FO3: a value in a blob file counts as overwritten.
#[test]
fn what_is_held_of_a_key_is_bounded() {
    let entries: Vec<_> = (0..20).map(|n| ("a", 100 - n, M, "1234567890")).chain([("a", 1, V, "x")]).collect();
    let run = Run { operator: joining(), snapshots: &[], deeper: true, bytes_max: 60 };
    let poured = run.pour(&entries);
    let parts: Vec<&str> = poured.split(' ').collect();
    assert!(parts.len() > 3 && parts.last().unwrap().contains("=x1234567890"), "{poured}");
    assert_eq!(poured.matches("1234567890").count(), 20);
    let apart = Run { operator: joining_apart(), ..run };
    assert_eq!(apart.pour(&entries).matches("1234567890").count(), 20);

    let mut sieve = Sieve::new(Order::BYTEWISE, &[], |_| true);
    let mut index = Vec::new();
    esker_format::rocksdb::blob::BlobIndex {
        file: esker_format::rocksdb::internal_key::FileNumber::new(7),
        offset: 100,
        bytes: 4,
        compression: crate::Compression::None,
    }
    .encode(&mut index);
    let run = Memtable::default();
    run.add(SequenceNumber::new(9), M, b"a", b"+");
    run.add(SequenceNumber::new(8), B, b"a", &index);
    let mut input = Arc::new(run).iter();
    input.seek_to_first().unwrap();
    let mut fold = Fold::new(joining(), |_, _| Ok(Some(PinnedSlice::from_vec(b"blob".to_vec()))));
    let mut poured = Vec::new();
    pour(&mut input, None, &mut sieve, &mut fold, |key, _, value| {
        poured.push((key.kind, value.to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(poured, [(V, b"blob+".to_vec())]);
    let garbage = sieve.into_garbage();
    assert_eq!(garbage.values().map(|garbage| garbage.count).collect::<Vec<_>>(), [1]);
}

/// Joins with a comma, while it is willing.
struct Moody(AtomicBool);

impl Moody {
    fn new(is_willing: bool) -> Self {
        Self(AtomicBool::new(is_willing))
    }
}

impl MergeOperator for Moody {
    fn name(&self) -> &'static str {
        "test.Moody"
    }

    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.load(Ordering::Relaxed).then(|| StringAppendOperator::default().full_merge(key, existing, operands))?
    }
}

fn open(disk: &SimDisk, operator: Option<Operator>, given: Vec<Operator>) -> Db {
    let mut options =
        Options { create_if_missing: true, background_jobs: 0, merge_operators: given, ..Options::default() };
    if let Some(operator) = operator {
        let (separation, min_blob_size) = (Separation::AtFlush, 100);
        let merge_operator = Some(operator);
        let family = FamilyOptions { merge_operator, separation, min_blob_size, ..FamilyOptions::default() };
        options.families.insert("default".to_owned(), family);
    }
    Db::open_with_env("/db", options, disk.env()).unwrap()
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn whole(db: &Db) -> std::result::Result<Pairs, ErrorKind> {
    let entries = db.iter().unwrap().entries();
    entries
        .map(|entry| entry.map(|(key, value)| (key, value.to_vec())))
        .collect::<crate::Result<_>>()
        .map_err(|e| e.kind())
}

fn settle(db: &Db) {
    db.flush().unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
}

/// OP3: whoever lacks the operator, or has one that refuses, is told by a read of the key alone; nothing is lost, whatever is merged and moved
/// meanwhile; and the store still knows the name.
#[test]
fn operands_outlive_those_who_cannot_merge_them() {
    let disk = SimDisk::new();
    let willing: Operator = Arc::new(Moody::new(true));
    let db = open(&disk, Some(willing.clone()), Vec::new());
    let long = vec![b'v'; 200];
    db.put("kept", "value").unwrap();
    db.put("list", &long).unwrap();
    settle(&db);
    db.merge("list", "one").unwrap();
    db.flush().unwrap();
    db.merge("list", "two").unwrap();
    db.merge("new", "three").unwrap();
    db.close().unwrap();

    let expected = vec![
        (b"kept".to_vec(), b"value".to_vec()),
        (b"list".to_vec(), [&long[..], b",one,two"].concat()),
        (b"new".to_vec(), b"three".to_vec()),
    ];
    for round in 0..3 {
        // Nobody knows that operator here.
        let db = open(&disk, None, Vec::new());
        let error = db.get("list").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
        assert!(error.to_string().contains("merge_operator"), "{error}");
        assert!(db.exists("list").unwrap() && db.value_len("list").is_err());
        assert_eq!(db.multi_get(["kept", "new"]).unwrap().iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
        assert_eq!(db.get("kept").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!((db.iter().unwrap().entries().count().min(1), whole(&db)), (1, Err(ErrorKind::UnsupportedFormat)));
        let error = db.merge("list", "four").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let mut batch = WriteBatch::new();
        batch.put("kept", "other").unwrap();
        batch.merge("list", "four").unwrap();
        assert_eq!(db.write(batch, &WriteOptions::default()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let mut iterator = db.iter().unwrap();
        iterator.seek("list").unwrap();
        assert!(iterator.valid() && iterator.value().is_err());
        iterator.next().unwrap();
        assert_eq!(iterator.key(), b"new", "it goes on");
        drop(iterator);
        if round > 0 {
            settle(&db);
        }
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{:?}", check.errors);
        db.close().unwrap();

        let moody: Operator = Arc::new(Moody::new(false));
        let db = open(&disk, None, vec![moody]);
        assert_eq!(db.get("list").unwrap_err().kind(), ErrorKind::Corruption);
        settle(&db);
        assert_eq!(whole(&db), Err(ErrorKind::Corruption));
        db.close().unwrap();
    }
    // The store finds it by its name.
    let db = open(&disk, None, vec![Arc::new(MaxOperator), willing]);
    assert_eq!(whole(&db).unwrap(), expected);
    settle(&db);
    assert_eq!(whole(&db).unwrap(), expected);
    db.close().unwrap();
    // All was merged: nobody needs to know how.
    let db = open(&disk, None, Vec::new());
    assert_eq!(whole(&db).unwrap(), expected);
    let tables = |db: &Db| {
        let version = db.store().family(0).unwrap().view.load().version.clone();
        version.tables().map(|(_, table)| table.table.properties().merge_operand_count).sum::<u64>()
    };
    assert_eq!(tables(&db), 0);
}

/// Goal: tables with operands come to rest: what a rewrite would leave as it is is not rewritten again and again.
#[test]
fn operands_that_nobody_can_merge_do_not_keep_the_store_busy() {
    let disk = SimDisk::new();
    let db = open(&disk, Some(Arc::new(Moody::new(false))), Vec::new());
    for _ in 0..3 {
        db.put("key", "value").unwrap();
        db.merge("key", "operand").unwrap();
        settle(&db);
    }
    let files =
        || disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "sst")).collect::<Vec<_>>();
    db.wait_for_compact().unwrap();
    let before = files();
    db.wait_for_compact().unwrap();
    assert_eq!(files(), before);
    assert_eq!(db.get("key").unwrap_err().kind(), ErrorKind::Corruption);
}

/// Goal: RocksDB's own operators are there without being named, from what the OPTIONS file says.
#[test]
fn a_store_names_rocksdbs_own_operators() {
    let disk = SimDisk::new();
    let db = open(&disk, Some(Arc::new(UInt64AddOperator)), Vec::new());
    for n in [3u64, 4] {
        db.merge("n", n.to_le_bytes()).unwrap();
    }
    db.close().unwrap();
    let db = open(&disk, None, Vec::new());
    db.merge("n", 5u64.to_le_bytes()).unwrap();
    assert_eq!(db.get("n").unwrap().as_deref(), Some(&12u64.to_le_bytes()[..]));
    // What is chosen by what is there is atomic beside merges, too.
    let default = db.default_column_family();
    assert!(!db.put_if_absent(&default, "n", "", &WriteOptions::default()).unwrap());
    assert!(db.compare_and_delete(&default, "n", 12u64.to_le_bytes(), &WriteOptions::default()).unwrap());
    assert!(!db.exists("n").unwrap());
}

/// Goal: what a single deletion went with leaves operands as if it had not been.
#[test]
fn operands_above_a_spent_single_deletion_become_a_value() {
    let deepest = Run { operator: joining(), snapshots: &[], deeper: false, bytes_max: 1000 };
    assert_eq!(deepest.pour(&[("a", 9, M, "2"), ("a", 8, S, "")]), "a0=2");
    assert_eq!(deepest.pour(&[("a", 9, M, "2"), ("a", 8, S, ""), ("a", 7, V, "1")]), "a0=2");
}

mod stores;
