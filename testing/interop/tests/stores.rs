//! Stores of releases of RocksDB that are newer than Debian's, as they wrote them (`examples/make_stores.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use esker::{Db, Options};
use esker_interop::contents::{all_of, assert_esker_finds_no_damage, assert_esker_holds, must, text};
use esker_interop::directory;
use esker_interop::workload::{self, Numbers};

fn stores() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/stores");
    let entries = must("listing the stores", fs::read_dir(directory));
    entries.map(|entry| must("listing the stores", entry).path()).filter(|path| path.is_dir()).collect()
}

fn copy(from: &Path, to: &Path) {
    must("making a directory", fs::create_dir(to));
    for (name, bytes) in directory::bytes(from) {
        must("copying a store", fs::write(to.join(name), bytes));
    }
}

/// Goal: every store holds what its RocksDB said it does, is read without a trace, and goes on as one of Esker's.
#[test]
fn stores_of_newer_releases_are_taken_over() {
    let stores = stores();
    assert!(stores.len() >= 6, "{stores:?}");
    for kept in stores {
        let scratch = must("making a directory", tempfile::tempdir());
        let store = scratch.path().join("store");
        copy(&kept, &store);
        let name = kept.file_name().unwrap().to_string_lossy();
        let contents = kept.with_file_name(format!("{name}.contents"));
        let said = must("reading what is in a store", fs::read_to_string(contents));
        let before = directory::bytes(&store);
        let reader =
            must(&format!("opening {} read-only", kept.display()), Db::open_read_only(&store, Options::default()));
        let mut expected = all_of(&reader);
        assert!(text(&expected) == said, "{} holds something else", kept.display());
        assert_esker_holds(&reader, &expected);
        assert_esker_finds_no_damage(&reader);
        drop(reader);
        directory::assert_unchanged(&before, &directory::bytes(&store));

        for _ in 0..2 {
            let db = must("opening in place", Db::open(&store, Options::default()));
            assert_esker_holds(&db, &expected);
            assert_esker_finds_no_damage(&db);
            workload::change(&db, &mut expected, &mut Numbers::new(5));
            workload::compact(&db);
            assert_esker_holds(&db, &expected);
            must("closing", db.close());
        }
    }
}
