//! All tests of this crate as one program, which is linked once and whose threads find work to the end.

mod at_write;
mod background;
mod background_faults;
mod backups;
mod beside;
mod cask_background;
mod cask_close;
mod cask_copies;
mod cask_crash;
mod cask_damage;
mod cask_faults;
mod cask_full;
mod cask_mess;
mod cask_model;
mod cask_names;
mod cask_reopen;
mod cask_repair;
mod cask_rules;
mod cask_stale;
mod cask_threads;
mod catch_up;
mod concurrent;
mod copies;
mod crash;
mod damage;
mod db_full;
mod db_options;
mod edges;
mod endings;
mod events;
mod faults;
mod flushes;
mod forks;
mod ingest;
mod ingest_rules;
mod isolation;
mod kinds;
mod linearizable;
mod lock_files;
mod locking;
mod look_ahead;
mod metamorphic;
mod mixed;
mod model;
mod orders;
mod raft_atomic;
mod raft_beside;
mod raft_crash;
mod raft_faults;
mod raft_flights;
mod raft_forks;
mod raft_full;
mod raft_model;
mod raft_names;
mod raft_purging;
mod raft_threads;
mod reads;
mod reclaim;
mod recovery;
mod repair;
mod set_options;
mod snapshots;
mod threads;
mod transactions;
mod wal_dir;

/// Goal: no file of tests is left out.
#[test]
fn every_file_is_named_here() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_named = include_str!("all.rs").contains(&format!("\nmod {name};\n"));
        assert!(
            is_named || ["all", "fuzz", "put_cost", "reclaim_memory"].contains(&name),
            "{}: no module of this program",
            path.display()
        );
    }
}
