use std::collections::BTreeMap;

use esker_env::sim::SimDisk;
use fastrand::Rng;

use super::*;
use crate::options::{Options, Separation, TransactionOptions};

const TTL: Duration = Duration::from_secs(1000);
const UNSYNCED: WriteOptions = WriteOptions { sync: false, disable_wal: false };

fn open(disk: &SimDisk, separation: Separation) -> Db {
    let family =
        FamilyOptions { separation, min_blob_size: 100, write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family.with_ttl(TTL))].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    Db::open_with_env("/store", options, disk.env()).unwrap()
}

fn living(db: &Db) -> TtlFamily {
    db.with_ttl(&db.default_column_family(), TTL).unwrap()
}

fn later(disk: &SimDisk, seconds: u64) {
    disk.clock().advance(Duration::from_secs(seconds));
}

fn forward(family: &TtlFamily) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut walk, mut met) = (family.iter(&ReadOptions::default()).unwrap(), BTreeMap::new());
    walk.seek_to_first().unwrap();
    while walk.valid() {
        met.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.next().unwrap();
    }
    assert!(walk.key().is_empty() && walk.value().is_empty());
    met
}

fn backward(family: &TtlFamily) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut walk, mut met) = (family.iter(&ReadOptions::default()).unwrap(), BTreeMap::new());
    walk.seek_to_last().unwrap();
    while walk.valid() {
        met.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.prev().unwrap();
    }
    met
}

fn compact(db: &Db) {
    db.compact_range(&db.default_column_family(), None, None).unwrap();
}

/// How many keys the store has, expired or not.
fn stored(db: &Db) -> u64 {
    db.count_cf(&db.default_column_family(), &ReadOptions::default()).unwrap()
}

/// Goal: a value is there to its last second and not after, whichever way it is looked for; a compaction lets go of it then, and not before.
#[test]
fn a_value_is_there_to_its_last_second() {
    for separation in [Separation::AtFlush, Separation::AtWrite, Separation::Off] {
        let disk = SimDisk::new();
        let db = open(&disk, separation);
        let family = living(&db);
        let (short, long) = (b"v".to_vec(), vec![7; 500]);
        family.put("a", &short).unwrap();
        family.put("b", &long).unwrap();
        family.put("c", "").unwrap();
        let is_there = |is: bool| {
            assert_eq!(family.get("a").unwrap().as_deref(), is.then_some(&*short));
            assert_eq!(family.exists("b").unwrap(), is);
            let all = family.multi_get(["b", "none", "a", "c"]).unwrap();
            let all: Vec<_> = all.into_iter().map(|value| value.unwrap().map(|value| value.to_vec())).collect();
            assert_eq!(all[1], None);
            assert_eq!(all[0].as_ref(), is.then_some(&long));
            assert_eq!(all[3].as_deref(), is.then_some(&b""[..]));
            assert_eq!((forward(&family).len(), backward(&family).len()), if is { (3, 3) } else { (0, 0) });
        };
        assert_eq!(family.time_to_live("a").unwrap(), Some(TTL));
        later(&disk, 999);
        compact(&db);
        is_there(true);
        later(&disk, 1);
        assert_eq!(family.time_to_live("a").unwrap(), Some(Duration::ZERO));
        compact(&db);
        is_there(true);
        later(&disk, 1);
        assert_eq!(family.time_to_live("a").unwrap(), None);
        is_there(false);
        // Whoever looks past this sees it, until a compaction has come by.
        assert_eq!(stored(&db), 3);
        compact(&db);
        assert_eq!(stored(&db), 0);
        is_there(false);
    }
}

/// Goal: what is told to live longer or shorter does; whoever reads with another time to live sees it move so much.
#[test]
fn a_value_may_have_a_time_of_its_own() {
    let disk = SimDisk::new();
    let db = open(&disk, Separation::AtFlush);
    let family = living(&db);
    family.put_for("short", "1", Duration::from_millis(9_001), &UNSYNCED).unwrap();
    family.put_for("long", "2", Duration::from_secs(5000), &UNSYNCED).unwrap();
    assert_eq!(family.time_to_live("short").unwrap(), Some(Duration::from_secs(10)));
    later(&disk, 10);
    assert!(family.exists("short").unwrap());
    later(&disk, 1);
    assert!(!family.exists("short").unwrap());
    later(&disk, 4989);
    compact(&db);
    assert_eq!(forward(&family).into_keys().collect::<Vec<_>>(), [b"long"]);
    let shorter = db.with_ttl(&db.default_column_family(), Duration::from_secs(999)).unwrap();
    assert!(family.exists("long").unwrap() && !shorter.exists("long").unwrap());

    for refused in [Duration::ZERO, Duration::from_secs(1 << 31), Duration::MAX] {
        assert_eq!(db.with_ttl(&db.default_column_family(), refused).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let error = family.put_for("k", "v", refused, &UNSYNCED).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    // Written, as its time would have to say, after 2038.
    let error = family.put_for("k", "v", Duration::from_secs(1_000_000_000), &UNSYNCED).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("2038"), "{error}");
    assert!(!family.exists("k").unwrap());
}

/// Goal: what has expired is no value to who changes a key by it, in an update, a batch, a transaction.
#[test]
fn what_has_expired_is_absent_to_who_decides_by_it() {
    let disk = SimDisk::new();
    let db = open(&disk, Separation::AtWrite);
    let family = living(&db);
    assert!(family.put_if_absent("lock", "ann", &UNSYNCED).unwrap());
    assert!(!family.put_if_absent("lock", "bob", &UNSYNCED).unwrap());
    assert_eq!(family.get("lock").unwrap().as_deref(), Some(&b"ann"[..]));
    later(&disk, 1001);
    assert!(family.put_if_absent("lock", "bob", &UNSYNCED).unwrap());
    assert_eq!(family.get("lock").unwrap().as_deref(), Some(&b"bob"[..]));
    let append = |had: Option<&[u8]>| Change::Put([had.unwrap_or(b"none"), b"!"].concat());
    assert_eq!(family.update("lock", &UNSYNCED, append).unwrap().as_deref(), Some(&b"bob"[..]));
    assert_eq!(family.get("lock").unwrap().as_deref(), Some(&b"bob!"[..]));
    later(&disk, 1001);
    assert_eq!(family.update("lock", &UNSYNCED, append).unwrap(), None);
    assert_eq!(family.get("lock").unwrap().as_deref(), Some(&b"none!"[..]));
    family.delete("lock", &UNSYNCED).unwrap();
    assert!(!family.exists("lock").unwrap());

    let mut batch = WriteBatch::new();
    family.put_in(&mut batch, "x", [1; 300]).unwrap();
    family.put_in(&mut batch, "y", "2").unwrap();
    db.write(batch, &UNSYNCED).unwrap();
    let mut transaction = db.transaction_with(&TransactionOptions::default());
    let x = family.live("x", transaction.get("x").unwrap()).unwrap();
    assert_eq!(x.as_deref(), Some(&[1; 300][..]));
    transaction.put("z", family.stamp("3").unwrap()).unwrap();
    transaction.commit(&UNSYNCED).unwrap();
    later(&disk, 600);
    family.put("y", "again").unwrap();
    later(&disk, 401);
    assert_eq!(forward(&family), [(b"y".to_vec(), b"again".to_vec())].into());
    assert_eq!(family.live("x", db.get("x").unwrap()).unwrap(), None);
    let stored = |key: &str| db.get(key).unwrap().unwrap();
    assert_eq!(family.live_in("x", &stored("x")).unwrap(), None);
    assert_eq!(family.live_in("y", &stored("y")).unwrap(), Some(&b"again"[..]));
    assert_eq!(family.live_in("y", b"!").unwrap_err().kind(), ErrorKind::Corruption);
}

/// Goal: what carries no time is told as damage, by key, and never shown or dropped; what cannot carry one is refused.
#[test]
fn what_carries_no_time_is_neither_shown_nor_dropped() {
    let disk = SimDisk::new();
    let db = open(&disk, Separation::AtFlush);
    let family = living(&db);
    family.put("a", "1").unwrap();
    for plain in ["", "abc", "\x01\x02\x03\x04\x05", "\0\0\0\0"] {
        db.put("b", plain).unwrap();
        let mut walk = family.iter(&ReadOptions::default()).unwrap();
        let decided = family.update("b", &UNSYNCED, |_| Change::Delete);
        let failures = [
            family.get("b").map(drop),
            family.exists("b").map(drop),
            family.time_to_live("b").map(drop),
            family.multi_get(["a", "b"]).unwrap().pop().unwrap().map(drop),
            decided.map(drop),
            walk.seek("b"),
        ];
        for failure in failures {
            let error = failure.unwrap_err();
            assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("key \"b\""), "{error}");
        }
        assert!(!walk.valid());
        later(&disk, 5000);
        compact(&db);
        assert_eq!(db.get("b").unwrap().as_deref(), Some(plain.as_bytes()));
    }
    assert!(!family.exists("a").unwrap());
    let operator: std::sync::Arc<dyn crate::MergeOperator> = std::sync::Arc::new(crate::PutOperator);
    let merging = FamilyOptions { merge_operator: Some(operator), ..FamilyOptions::default() };
    let merging = db.create_column_family("merging", merging).unwrap();
    let error = db.with_ttl(&merging, TTL).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("\"merging\""), "{error}");
    let both = (*merging.options()).clone().with_ttl(TTL);
    let error = db.create_column_family("both", both).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("merge_operator"), "{error}");
}

/// Goal: walks in both directions, and from any key, show what has not expired, and nothing else, whatever was flushed and compacted.
/// Method: random puts with times of their own, beside a model of what is left.
#[test]
fn walks_pass_over_what_has_expired() {
    let disk = SimDisk::new();
    let db = open(&disk, Separation::AtFlush);
    let family = living(&db);
    let mut random = Rng::with_seed(3);
    let mut model: BTreeMap<Vec<u8>, (Vec<u8>, u64)> = BTreeMap::new();
    let mut now = 0;
    for round in 0..400 {
        let (key, lives) = (vec![random.u8(b'a'..=b'p')], random.u64(1..3000));
        let value = vec![round as u8; random.usize(0..300)];
        family.put_for(&key, &value, Duration::from_secs(lives), &UNSYNCED).unwrap();
        model.insert(key, (value, now + lives));
        let passes = random.u64(0..200);
        later(&disk, passes);
        now += passes;
        match random.u8(..20) {
            0 => db.flush().unwrap(),
            1 => compact(&db),
            _ => {}
        }
        let left: BTreeMap<_, _> = model
            .iter()
            .filter(|(_, (_, ends))| *ends >= now)
            .map(|(key, (value, _))| (key.clone(), value.clone()))
            .collect();
        assert_eq!(forward(&family), left, "round {round}");
        assert_eq!(backward(&family), left, "round {round}");
        let (from, mut walk) = ([random.u8(b'a'..=b'q')], family.iter(&ReadOptions::default()).unwrap());
        walk.seek(from).unwrap();
        let expected = left.range(from.to_vec()..).next();
        assert_eq!(walk.valid().then(|| walk.key().to_vec()), expected.map(|(key, _)| key.clone()));
        walk.seek_for_prev(from).unwrap();
        let expected = left.range(..=from.to_vec()).next_back();
        assert_eq!(walk.valid().then(|| walk.value().to_vec()), expected.map(|(_, value)| value.clone()));
    }
    assert!(stored(&db) < 17 && !model.is_empty());
}
