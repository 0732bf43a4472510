//! The built command, run as its users run it: arguments, standard input, output, exit code.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

mod backups;
mod bench;
mod cask;
mod copies;
mod damage;
mod dump;
mod entries;
mod families;
mod gc;
mod import_files;
mod import_lines;
mod import_sorted;
mod pipes;
mod raft;
mod raft_script;
mod run;
mod stats;
mod stores;
mod torture;
mod usage;
