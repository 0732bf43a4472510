//! Every decoder and every open is total: the fuzz targets' short run, the same on every machine. The long one is libFuzzer's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use esker_torture::fuzz::{TARGETS, Target, mutate, seeds};
use fastrand::Rng;

/// Mutations of each format's seeds.
const FORMAT_RUNS: u64 = 12_000;
/// Mutations of each engine's edits.
const OPEN_RUNS: u64 = 1_000;
/// No decoder takes more than this at once for an input of this test, packed or not.
const FORMAT_BYTES_MAX: usize = 16 << 20;
/// No store of the images needs more at once: a memtable's arena, a cache, a mapped file.
const OPEN_BYTES_MAX: usize = 64 << 20;

/// The system's allocator, which remembers the largest piece that each thread asked for.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; the bookkeeping neither allocates nor unwinds.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on: `at` came from `alloc`, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

fn run(target: &Target, bytes: &[u8], what: impl Fn() -> String) {
    LARGEST.set(0);
    let died = std::panic::catch_unwind(|| (target.run)(bytes)).is_err();
    assert!(!died, "{}: {}: {bytes:?}", target.name, what());
    let bytes_max = if target.is_open { OPEN_BYTES_MAX } else { FORMAT_BYTES_MAX };
    assert!(LARGEST.get() <= bytes_max, "{}: {}: {} bytes at once: {bytes:?}", target.name, what(), LARGEST.get());
}

fn fuzz(target: &Target, runs: u64) {
    let seeds = seeds::committed(target.name);
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    seeds.iter().enumerate().for_each(|(index, seed)| run(target, seed, || format!("seed {index}")));
    for n in esker_torture::seeds(runs) {
        let mut random = Rng::with_seed(n);
        let (seed, other) = (&seeds[random.usize(..seeds.len())], &seeds[random.usize(..seeds.len())]);
        let mutated = mutate(&mut random, seed, other);
        run(target, &mutated, || format!("ESKER_SEED={n}"));
    }
}

/// Goal: whatever bytes a decoder gets, it answers, and what it accepts it would write again.
#[test]
fn decoders_are_total() {
    TARGETS.iter().filter(|target| !target.is_open).for_each(|target| fuzz(target, FORMAT_RUNS));
}

/// Goal: whatever became of its directory, a `Db` opens it or says why not, and neither panics nor takes memory without bound.
#[test]
fn a_db_of_any_bytes_is_opened_or_refused() {
    TARGETS.iter().filter(|target| target.name == "open_db").for_each(|target| fuzz(target, OPEN_RUNS));
}

/// The same for a Cask.
#[test]
fn a_cask_of_any_bytes_is_opened_or_refused() {
    TARGETS.iter().filter(|target| target.name == "open_cask").for_each(|target| fuzz(target, OPEN_RUNS));
}

/// The same for a Raft log.
#[test]
fn a_raft_log_of_any_bytes_is_opened_or_refused() {
    TARGETS.iter().filter(|target| target.name == "open_raft_log").for_each(|target| fuzz(target, OPEN_RUNS));
}

/// Found by fuzzing: a sealed file's count of records is only the manifest's word, and memory was taken for all of them.
#[test]
fn a_cask_manifest_with_too_many_records_takes_no_memory_for_them() {
    let target = TARGETS.iter().find(|target| target.name == "open_cask").unwrap();
    run(target, &[0, 2, 4, 3, 7, 255, 255, 255, 63, 246, 248, 119, 127, 1], || "a record count of 2^60".to_owned());
}

/// Goal: the allocator above notices.
#[test]
fn a_large_allocation_is_noticed() {
    LARGEST.set(0);
    drop(std::hint::black_box(vec![0u8; 5 << 20]));
    assert!((5 << 20..6 << 20).contains(&LARGEST.get()));
}
