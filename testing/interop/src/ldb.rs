//! RocksDB's administration tool, `ldb`.
//!
//! Everything goes in and out as hex, so that any byte survives. `scan`, `get` and `checkconsistency` open the store
//! read-only and replay its log in memory; `put`, `delete` and `compact` open it for writing, which flushes the log.

use std::path::Path;

use crate::contents::{Contents, Families, assert_same};
use crate::program::{Outcome, fail, run};

/// Runs `ldb` on the store with these arguments, however it ends.
#[track_caller]
pub fn attempt(store: &Path, arguments: &[&str]) -> Outcome {
    with_input(store, arguments, "")
}

/// The same, with something on its standard input.
#[track_caller]
pub fn with_input(store: &Path, arguments: &[&str], input: &str) -> Outcome {
    let mut all = vec![format!("--db={}", store.display())];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    run("ldb", &all, input)
}

/// Runs `ldb` on the store with these arguments, must succeed, and gives what it printed.
#[track_caller]
pub fn ldb(store: &Path, arguments: &[&str]) -> String {
    attempt(store, arguments).succeeded()
}

/// `0x` and two upper-case digits a byte, as `ldb --hex` reads and prints.
pub fn to_hex(raw: &[u8]) -> String {
    let digits: String = raw.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("0x{digits}")
}

#[track_caller]
fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap_or_else(|| fail(&format!("ldb printed {text:?}, which is not hex")));
    let pairs = digits.as_bytes().chunks(2);
    let decoded: Option<Vec<u8>> =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    decoded.unwrap_or_else(|| fail(&format!("ldb printed {text:?}, which is not hex")))
}

/// Every pair of one column family.
#[track_caller]
pub fn scan(store: &Path, family: &str) -> Contents {
    let printed = ldb(store, &["--hex", &format!("--column_family={family}"), "scan"]);
    let mut contents = Contents::new();
    for line in printed.lines() {
        let Some((key, value)) = line.split_once(" : ") else {
            fail(&format!("ldb scan printed a line that is no pair: {line:?}"))
        };
        assert!(contents.insert(from_hex(key), from_hex(value)).is_none(), "ldb scan printed {key} twice");
    }
    contents
}

/// The names of the column families, in order.
#[track_caller]
pub fn families(store: &Path) -> Vec<String> {
    let printed = ldb(store, &["list_column_families"]);
    let Some((_, names)) = printed.split_once("\n{") else {
        fail(&format!("ldb list_column_families printed no list: {printed:?}"))
    };
    let names = names.trim_end().trim_end_matches('}');
    let mut names: Vec<String> = names.split(", ").map(str::to_owned).collect();
    names.sort();
    names
}

/// Every pair of every column family.
#[track_caller]
pub fn scan_all(store: &Path) -> Families {
    families(store).into_iter().map(|name| (name.clone(), scan(store, &name))).collect()
}

/// Puts one pair.
#[track_caller]
pub fn put(store: &Path, family: &str, key: &[u8], value: &[u8]) {
    ldb(store, &["--hex", &format!("--column_family={family}"), "put", &to_hex(key), &to_hex(value)]);
}

/// Deletes one key.
#[track_caller]
pub fn delete(store: &Path, family: &str, key: &[u8]) {
    ldb(store, &["--hex", &format!("--column_family={family}"), "delete", &to_hex(key)]);
}

/// Fails unless RocksDB finds the store sound and reads exactly `expected` from it. Leaves every file but `LOG` alone.
#[track_caller]
pub fn assert_holds(store: &Path, expected: &Families) {
    assert_eq!(ldb(store, &["checkconsistency"]).trim(), "OK", "ldb checkconsistency");
    assert_eq!(families(store), expected.keys().cloned().collect::<Vec<_>>(), "ldb list_column_families");
    for (name, contents) in expected {
        assert_same(&format!("ldb scan of {name}"), contents, &scan(store, name));
    }
    let manifest = ldb(store, &["manifest_dump", "--verbose"]);
    let live = ldb(store, &["dump_live_files"]);
    for name in expected.keys() {
        assert!(manifest.contains(&format!("Column family \"{name}\"")), "manifest_dump lacks {name}:\n{manifest}");
        assert!(live.contains(&format!("Column family \"{name}\"")), "dump_live_files lacks {name}:\n{live}");
    }
}
