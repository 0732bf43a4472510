use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::sim::SimDisk;
use fastrand::Rng;

use super::*;
use crate::options::{FamilyOptions, Options, ReadOptions, Separation};
use crate::{Db, Snapshot};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values begin with a letter that says what becomes of them.
fn filter() -> CompactionFilter {
    CompactionFilter::new(|candidate| match candidate.value().unwrap().first() {
        Some(b'r') => FilterDecision::Remove,
        Some(b's') => FilterDecision::Change(b"shorter".to_vec()),
        Some(b'l') => FilterDecision::Change([candidate.value().unwrap(), b"longer"].concat()),
        Some(b'p') => panic!("as asked"),
        _ => FilterDecision::Keep,
    })
}

fn options(separation: Separation, filter: Option<CompactionFilter>) -> Options {
    let family = FamilyOptions {
        separation,
        min_blob_size: 100,
        write_buffer_bytes: 64 << 10,
        target_file_bytes: 4 << 10,
        level0_compaction_trigger: 3,
        compaction_filter: filter,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

fn contents(db: &Db, snapshot: Option<&Snapshot>) -> Contents {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let entries = db.iter_cf(&db.default_column_family(), &options).unwrap().entries();
    entries.map(|entry| entry.map(|(key, value)| (key, value.to_vec())).unwrap()).collect()
}

/// What a value is once it was filtered, or before that.
fn may_be(written: &[u8], found: Option<&[u8]>) -> bool {
    let is_as_written = found == Some(written);
    match written.first() {
        Some(b'r') => is_as_written || found.is_none(),
        Some(b's') => is_as_written || found == Some(b"shorter"),
        _ => is_as_written,
    }
}

fn filtered(written: &Contents) -> Contents {
    let kept = written.iter().filter(|(_, value)| value.first() != Some(&b'r'));
    let changed = kept.map(|(key, value)| {
        (key.clone(), if value.first() == Some(&b's') { b"shorter".to_vec() } else { value.clone() })
    });
    changed.collect()
}

/// CF1 to CF4: nothing older comes to light, snapshots keep what they see, blob files are counted rightly, and whatever a compaction by hand has come by is filtered.
#[test]
fn what_a_filter_lets_go_of_is_gone_and_nothing_else() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        if panic.payload_as_str() != Some("as asked") {
            eprintln!("{panic}");
        }
    }));
    for seed in 0..40 {
        let (mut random, disk) = (Rng::with_seed(seed), SimDisk::new());
        let separation = [Separation::Off, Separation::AtFlush, Separation::AtWrite][random.usize(..3)];
        let options = options(separation, Some(filter()));
        let db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
        let (mut written, mut snapshots) = (Contents::new(), Vec::new());
        for step in 0..40 {
            for _ in 0..random.usize(1..60) {
                let key = format!("{:03}", random.u32(..200)).into_bytes();
                if random.u8(..6) == 0 {
                    db.delete(&key).unwrap();
                    written.remove(&key);
                } else {
                    let kind = *random.choice(b"rrslpkk").unwrap();
                    let value = [&[kind][..], &vec![random.u8(..); 7 + random.usize(..300)]].concat();
                    db.put(&key, &value).unwrap();
                    written.insert(key, value);
                }
            }
            match random.u8(..8) {
                0..3 => db.flush().unwrap(),
                3 => db.compact_range(&db.default_column_family(), None, None).unwrap(),
                4 => snapshots.push((db.snapshot(), contents(&db, None))),
                5 => snapshots.truncate(1),
                6 => drop(db.reclaim(&db.default_column_family(), 0.1).unwrap()),
                _ => {}
            }
            let found = contents(&db, None);
            let keys = written.keys().chain(found.keys());
            for key in keys {
                let found = found.get(key).map(Vec::as_slice);
                let is_right = written.get(key).map_or(found.is_none(), |written| may_be(written, found));
                assert!(is_right, "seed {seed}, step {step}: {key:?} is {found:?}");
            }
            for (snapshot, before) in &snapshots {
                assert!(contents(&db, Some(snapshot)) == *before, "seed {seed}, step {step}: a snapshot");
            }
        }
        snapshots.clear();
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "seed {seed}: {:?}", check.errors);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert!(contents(&db, None) == filtered(&written), "seed {seed}, in the end");
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "seed {seed}: {:?}", check.errors);
    }
    std::panic::set_hook(hook);
}

/// Goal: what was written before there was a filter is shown to it, too, though there is nothing else to do with it.
#[test]
fn a_compaction_by_hand_shows_all_there_is() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/db", options(Separation::AtFlush, None), disk.env()).unwrap();
    let mut written = Contents::new();
    for n in 0..500u32 {
        let value = [&[b"rsk"[n as usize % 3]][..], &vec![7; 7 + n as usize % 200]].concat();
        db.put(n.to_be_bytes(), &value).unwrap();
        written.insert(n.to_be_bytes().to_vec(), value);
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    let db = Db::open_with_env("/db", options(Separation::AtFlush, Some(filter())), disk.env()).unwrap();
    assert!(contents(&db, None) == written);
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert!(contents(&db, None) == filtered(&written));
}

/// Goal: what is not compacted otherwise is, once it is old: and is written again no sooner than that.
#[test]
fn an_old_table_is_shown_to_the_filter() {
    let (disk, asked) = (SimDisk::new(), Arc::new(AtomicU64::new(0)));
    let counter = asked.clone();
    let filter = CompactionFilter::new(move |candidate| {
        counter.fetch_add(1, Ordering::Relaxed);
        if candidate.key() == b"0007" { FilterDecision::Remove } else { FilterDecision::Keep }
    });
    let mut options = options(Separation::AtFlush, Some(filter));
    options.families.get_mut("default").unwrap().periodic_compaction_seconds = 3600;
    let db = Db::open_with_env("/db", options, disk.env()).unwrap();
    for n in 0..1000u32 {
        db.put(format!("{n:04}"), vec![7; n as usize % 200]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.put("0007", "again").unwrap();
    db.flush().unwrap();
    let before = asked.swap(0, Ordering::Relaxed);
    assert!(before >= 1000);
    disk.clock().advance(std::time::Duration::from_secs(3599));
    db.wait_for_compact().unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), db.exists("0007").unwrap()), (0, true));
    disk.clock().advance(std::time::Duration::from_secs(2));
    db.wait_for_compact().unwrap();
    assert!(!db.exists("0007").unwrap());
    let after = asked.swap(0, Ordering::Relaxed);
    assert!((1000..1010).contains(&after), "{after} values were shown");
    db.wait_for_compact().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// Goal: a filter that answers with what is there makes no garbage: for that it would be asked again, and so on.
#[test]
fn a_change_to_the_same_is_none() {
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let same = CompactionFilter::new(|candidate| FilterDecision::Change(candidate.value().unwrap().to_vec()));
        let disk = SimDisk::new();
        let db = Db::open_with_env("/db", options(separation, Some(same)), disk.env()).unwrap();
        for n in 0..50u8 {
            db.put([n], [n; 300]).unwrap();
        }
        db.flush().unwrap();
        let blob_files = || {
            disk.paths()
                .into_iter()
                .filter(|path| path.extension().is_some_and(|end| end == "blob"))
                .collect::<Vec<_>>()
        };
        let before = blob_files();
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert!(!before.is_empty());
        assert_eq!((blob_files(), db.stats().families[0].blob_garbage_bytes), (before, 0));
        assert_eq!(db.get([7]).unwrap().as_deref(), Some(&[7; 300][..]));
    }
}
