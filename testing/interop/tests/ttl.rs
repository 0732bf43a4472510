//! Values with a time to live, of RocksDB's `DBWithTTL`, as `ldb --ttl` has them.

use std::path::Path;
use std::time::Duration;

use esker::{Db, FamilyOptions, Options, ReadOptions, TtlFamily, WriteOptions};
use esker_interop::contents::must;
use esker_interop::ldb;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// What `ldb --ttl` prints. It complains of "multiple column families" whatever it is asked, and says that it failed; what it prints is right all the same.
fn ldb_ttl(store: &Path, arguments: &[&str]) -> String {
    let outcome = ldb::attempt(store, &[&["--ttl"], arguments].concat());
    assert!(outcome.status.success() || outcome.stderr.contains("multiple column families"), "{outcome:?}");
    outcome.stdout
}

fn open(store: &Path) -> (Db, TtlFamily) {
    let families = [("default".to_owned(), FamilyOptions::default().with_ttl(HOUR))].into();
    let db = must("opening", Db::open(store, Options { create_if_missing: true, families, ..Options::default() }));
    let family = must("a family", db.with_ttl(&db.default_column_family(), HOUR));
    (db, family)
}

/// Goal: each reads what the other wrote, with the time at which it did.
#[test]
fn each_reads_the_values_of_the_other_with_their_times() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = &directory.path().join("store");
    assert_eq!(ldb_ttl(store, &["--create_if_missing", "put", "theirs", "a value"]), "OK\n");
    let (db, family) = open(store);
    assert_eq!(must("reading", family.get("theirs")).as_deref(), Some(&b"a value"[..]));
    let left = must("reading", family.time_to_live("theirs")).unwrap();
    assert!(left <= HOUR && left > HOUR / 2, "{left:?}");
    must("putting", family.put("ours", "another"));
    must("putting", family.put("empty", ""));
    // Written an hour ago, and more, as far as its time tells.
    must("putting", family.put_for("old", "expired", Duration::from_secs(1), &WriteOptions::default()));
    let mut walk = must("walking", family.iter(&ReadOptions::default()));
    must("seeking", walk.seek_to_first());
    let mut keys = Vec::new();
    while walk.valid() {
        keys.push(String::from_utf8_lossy(walk.key()).into_owned());
        must("stepping", walk.next());
    }
    assert_eq!(keys, ["empty", "old", "ours", "theirs"]);
    must("closing", db.close());

    for (key, value) in [("theirs", "a value"), ("ours", "another"), ("empty", ""), ("old", "expired")] {
        assert_eq!(ldb_ttl(store, &["get", key]), format!("{value}\n"), "{key}");
    }
    // RocksDB's tool knows when each was written: the old one alone before the last half an hour.
    let now = must("the time", std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)).as_secs();
    let since = format!("--start_time={}", now - HOUR.as_secs() / 2);
    let dumped = ldb_ttl(store, &["dump", "--timestamp", &since]);
    for (key, is_recent) in [("theirs", true), ("ours", true), ("empty", true), ("old", false)] {
        assert_eq!(dumped.contains(&format!("{key} ==> ")), is_recent, "{key}: {dumped}");
    }
}
