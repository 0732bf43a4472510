//! What a store holds, and the comparison of what two readers say of it.

use std::collections::BTreeMap;

use esker::{ColumnFamily, Db, DbIterator, ReadOptions};

use crate::program::fail;

/// The pairs of one column family.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The pairs of every column family, by name.
pub type Families = BTreeMap<String, Contents>;

/// Unwraps, and says what was being done.
#[track_caller]
pub fn must<T, E: std::fmt::Display>(doing: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(&format!("{doing}: {error}")))
}

/// A key or value, short enough to print.
pub fn hex(raw: &[u8]) -> String {
    let digits: String = raw.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    if raw.len() <= 32 { digits } else { format!("{digits}… ({} bytes)", raw.len()) }
}

/// Fails unless the two hold the same, key by key and value by value, and names the first difference.
#[track_caller]
pub fn assert_same(whose: &str, expected: &Contents, found: &Contents) {
    if expected == found {
        return;
    }
    let mut differences = Vec::new();
    for (key, value) in expected {
        match found.get(key) {
            None => differences.push(format!("{} is missing", hex(key))),
            Some(other) if other != value => {
                differences.push(format!("{} is {}, should be {}", hex(key), hex(other), hex(value)));
            }
            Some(_) => {}
        }
    }
    let surplus = found.keys().filter(|key| !expected.contains_key(*key));
    differences.extend(surplus.map(|key| format!("{} should not be there", hex(key))));
    fail(&format!(
        "{whose}: {} pairs, should be {}; {} differences, first:\n  {}",
        found.len(),
        expected.len(),
        differences.len(),
        differences.iter().take(5).cloned().collect::<Vec<_>>().join("\n  ")
    ));
}

#[track_caller]
fn pair(iterator: &DbIterator) -> (Vec<u8>, Vec<u8>) {
    (iterator.key().to_vec(), must("reading a value", iterator.value()).to_vec())
}

#[track_caller]
fn forward(db: &Db, family: &ColumnFamily) -> Contents {
    let mut iterator = must("iterating", db.iter_cf(family, &ReadOptions::default()));
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    must("seeking the first key", iterator.seek_to_first());
    while iterator.valid() {
        let (key, value) = pair(&iterator);
        let order = family.options().comparator;
        let ascends = pairs.last().is_none_or(|(last, _)| order.compare(last, &key).is_lt());
        assert!(ascends, "the scan of {} does not ascend at {}", family.name(), hex(&key));
        pairs.push((key, value));
        must("going on", iterator.next());
    }
    pairs.into_iter().collect()
}

#[track_caller]
fn backward(db: &Db, family: &ColumnFamily) -> Contents {
    let mut iterator = must("iterating", db.iter_cf(family, &ReadOptions::default()));
    let mut found = Contents::new();
    must("seeking the last key", iterator.seek_to_last());
    while iterator.valid() {
        let (key, value) = pair(&iterator);
        assert!(found.insert(key.clone(), value).is_none(), "{} came twice", hex(&key));
        must("going back", iterator.prev());
    }
    found
}

/// Fails unless Esker reads exactly `expected` from `family` in every way it can: forwards, backwards, and key by key,
/// beside keys that are not there.
#[track_caller]
pub fn assert_esker_reads(db: &Db, family: &ColumnFamily, expected: &Contents) {
    let name = family.name();
    assert_same(&format!("Esker's scan of {name}"), expected, &forward(db, family));
    assert_same(&format!("Esker's backward scan of {name}"), expected, &backward(db, family));
    let options = ReadOptions::default();
    for (key, value) in expected {
        let got = must("getting a key", db.get_cf(family, key, &options));
        match got {
            Some(got) if got[..] == value[..] => {}
            Some(got) => {
                fail(&format!("Esker's get of {} in {name}: {}, should be {}", hex(key), hex(&got), hex(value)))
            }
            None => fail(&format!("Esker's get of {} in {name} finds nothing", hex(key))),
        }
        let mut absent = key.clone();
        absent.push(0);
        if !expected.contains_key(&absent) {
            let got = must("getting an absent key", db.get_cf(family, &absent, &options));
            assert!(got.is_none(), "Esker's get of {} in {name} finds what nobody put", hex(&absent));
        }
    }
}

/// The families that `db` has, each read in every way, are exactly those expected.
#[track_caller]
pub fn assert_esker_holds(db: &Db, expected: &Families) {
    let mut names: Vec<String> = db.column_families().iter().map(|family| family.name().to_owned()).collect();
    names.sort();
    assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>(), "Esker's list of column families");
    for (name, contents) in expected {
        assert_esker_reads(db, &family(db, name), contents);
    }
}

/// The family of that name, which must exist.
#[track_caller]
pub fn family(db: &Db, name: &str) -> ColumnFamily {
    db.column_family(name).unwrap_or_else(|| fail(&format!("Esker has no column family {name}")))
}

/// Fails unless Esker's own check of every byte finds nothing wrong.
#[track_caller]
pub fn assert_esker_finds_no_damage(db: &Db) {
    let check = must("checking every byte", db.check(&mut |_| {}));
    let errors: Vec<String> = check.errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "Esker's check found {}:\n{}", errors.len(), errors.join("\n"));
}

/// All pairs, a line for each: family, key, and of the value its length and CRC-32C.
pub fn text(families: &Families) -> String {
    let mut lines = String::new();
    for (name, contents) in families {
        for (key, value) in contents {
            let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            let line = format!("{name} \"{key}\" {} {:08x}\n", value.len(), esker_format::checksum::crc32c(value));
            lines.push_str(&line);
        }
    }
    lines
}

/// Everything that Esker finds in all families.
#[track_caller]
pub fn all_of(db: &Db) -> Families {
    let families = db.column_families();
    families.iter().map(|family| (family.name().to_owned(), forward(db, family))).collect()
}
