//! Every way to read, against the same map.

use std::sync::{Arc, Mutex};

use esker::{BytewiseComparator, ColumnFamily, Comparator, Db, DbIterator, ReadOptions, Result};
use fastrand::Rng;

use crate::model::Contents;
use crate::orders::{self, comparator_of};
use crate::workload::key;

/// Keys and values in order.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Compares what `db` answers about `family` under `options`, which may have a snapshot and no bounds, with `expected`:
/// keys one by one and many at once, lengths, parts of values, counts, prefixes, and parts of a scan.
///
/// # Panics
/// Where an answer is another.
pub fn check(random: &mut Rng, db: &Db, family: &ColumnFamily, options: &ReadOptions, expected: &Contents) {
    let keys: Vec<Vec<u8>> = (0..random.usize(..40)).map(|_| key(random)).collect();
    let found = db.multi_get_cf(family, &keys, options).unwrap();
    assert_eq!(found.len(), keys.len());
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.unwrap().as_deref(), expected.get(key).map(Vec::as_slice), "multi_get {key:?}");
    }
    for key in keys.iter().take(5) {
        check_key(random, db, family, options, key, expected.get(key));
    }
    let mut bounded = options.clone();
    match random.u8(..3) {
        0 => {}
        // Keys with one prefix lie together only by their bytes.
        1 if comparator_of(family.name()).name() == BytewiseComparator.name() => {
            let mut prefix = key(random);
            prefix.truncate(random.usize(..5));
            bounded = bounded.with_prefix(prefix);
            bounded.lower_bound = random.bool().then(|| key(random));
        }
        _ => {
            bounded.lower_bound = random.bool().then(|| key(random));
            bounded.upper_bound = random.bool().then(|| key(random));
        }
    }
    let within = within(family.name(), expected, &bounded);
    assert_eq!(db.count_cf(family, &bounded).unwrap(), within.len() as u64, "count");
    check_parts(random, db, family, &bounded, &within);
}

fn check_key(
    random: &mut Rng,
    db: &Db,
    family: &ColumnFamily,
    options: &ReadOptions,
    key: &[u8],
    expected: Option<&Vec<u8>>,
) {
    let len = db.value_len_cf(family, key, options).unwrap();
    assert_eq!(len, expected.map(|value| value.len() as u64), "length of {key:?}");
    let bytes_max = len.unwrap_or(10) + 3;
    let range = random.u64(..=bytes_max)..random.u64(..=bytes_max);
    let part = db.get_range_cf(family, key, range.clone(), options).unwrap();
    let wanted = expected.map(|value| {
        let end = (range.end as usize).min(value.len());
        value.get(range.start as usize..end).unwrap_or_default()
    });
    assert_eq!(part.as_deref(), wanted, "{range:?} of {key:?}");
}

/// What a scan with the bounds of `options` should show.
pub fn within(family: &str, expected: &Contents, options: &ReadOptions) -> Entries {
    let order = comparator_of(family);
    let mut within = orders::entries(family, expected);
    within.retain(|(key, _)| {
        options.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
            && options.lower_bound.as_ref().is_none_or(|lower| order.compare(lower, key).is_le())
            && options.upper_bound.as_ref().is_none_or(|upper| order.compare(key, upper).is_lt())
    });
    within
}

fn check_parts(random: &mut Rng, db: &Db, family: &ColumnFamily, options: &ReadOptions, expected: &Entries) {
    let parts = db.split_cf(family, options, random.usize(1..=6)).unwrap();
    let mut joined = Vec::new();
    for part in parts {
        joined.extend(walk(random, part).unwrap());
    }
    assert!(joined == *expected, "parts of a scan");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by_threads = seen.clone();
    let threads = random.usize(1..=3);
    let scanned = db.parallel_scan_cf(family, options, threads, move |entry| {
        let entry = (entry.key().to_vec(), entry.value()?.to_vec());
        seen_by_threads.lock().unwrap().push(entry);
        Ok(())
    });
    scanned.unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by(|(a, _), (b, _)| comparator_of(family.name()).compare(a, b));
    assert!(seen == *expected, "a scan by {threads} threads");
}

/// Everything that an iterator shows, forward or backward, asking for values in any rhythm; those not asked for on the way are
/// looked up at the end. Ascending.
///
/// # Errors
/// As the store's.
pub fn walk(random: &mut Rng, mut iterator: DbIterator) -> Result<Entries> {
    let forward = random.bool();
    let asks_always = random.bool();
    let mut entries: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    if forward {
        iterator.seek_to_first()?
    } else {
        iterator.seek_to_last()?
    }
    while iterator.valid() {
        let asks = asks_always || random.bool();
        let value = if asks { Some(iterator.value()?.to_vec()) } else { None };
        if let Some(value) = &value {
            assert_eq!(iterator.value_len()?, value.len() as u64);
        }
        entries.push((iterator.key().to_vec(), value));
        if forward { iterator.next()? } else { iterator.prev()? }
    }
    if !forward {
        entries.reverse();
    }
    let mut complete = Vec::new();
    for (key, value) in entries {
        let value = match value {
            Some(value) => value,
            None => {
                iterator.seek(&key)?;
                assert_eq!(iterator.key(), key);
                iterator.value()?.to_vec()
            }
        };
        complete.push((key, value));
    }
    Ok(complete)
}
