//! Esker and RocksDB's newest release on the same directories: opened in place, changed, and given back.

use std::path::Path;

use esker::{Db, Options};
use esker_interop::contents::{Families, assert_esker_finds_no_damage, assert_esker_holds, must};
use esker_interop::directory;
use esker_interop::newest::{self, CASES, Case};
use esker_interop::workload::{self, Numbers};

/// Reading it without a trace, opening it in place, changing it, giving it back, and so once more.
fn assert_round_trip(store: &Path, case: &Case, mut expected: Families) {
    let name = case.name;
    let before = directory::bytes(store);
    let reader = must(&format!("{name}: opening read-only"), Db::open_read_only(store, Options::default()));
    assert_esker_holds(&reader, &expected);
    drop(reader);
    directory::assert_unchanged(&before, &directory::bytes(store));

    let mut numbers = Numbers::new(13);
    for _ in 0..2 {
        let db = must(&format!("{name}: opening in place"), Db::open(store, Options::default()));
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
        newest::write(&db, &mut expected, &mut numbers, 300, 2000);
        newest::compact(&db);
        newest::write(&db, &mut expected, &mut numbers, 50, 2000);
        newest::assert_finds(&db, case, &expected);
    }
    let db = must(&format!("{name}: opening again"), Db::open(store, Options::default()));
    assert_esker_holds(&db, &expected);
    assert_esker_finds_no_damage(&db);
}

/// Goal: whatever options of RocksDB's made a store, Esker takes it over, and RocksDB takes it back.
#[test]
fn stores_go_from_one_to_the_other_and_back() {
    for (seed, case) in CASES.iter().enumerate() {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        println!("{}", case.name);
        let expected = newest::fill(&store, case, seed as u64, 3000, 100_000);
        assert_round_trip(&store, case, expected);
    }
}
