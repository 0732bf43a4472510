//! What a small put asks of the allocator and the kernel: nothing, but for what lasts for thousands of puts. And what a merge in a transaction asks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;

use esker::{Db, FamilyOptions, Options, StringAppendOperator};

/// The system's allocator, which counts what each thread asks for.
struct Counted;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; the bookkeeping neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size() as u64));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on: `at` came from `alloc`, which is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// Calls that this thread made to write to files, and to be given its processor again after it had gone to sleep.
fn calls_and_sleeps() -> (u64, u64) {
    let number = |path: &str, name: &str| -> u64 {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}, which Linux has: {error}"));
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{path} has no {name}: {text}")).trim().parse().unwrap()
    };
    (number("/proc/thread-self/io", "syscw:"), number("/proc/thread-self/status", "voluntary_ctxt_switches:"))
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PUTS: u64 = 20_000;
/// Every 64 KiB, some 500 puts, the log is made ready for the next by a call, and a put is looked up first, to know how much is
/// overwritten, which allocates the key to look for.
const RARE: u64 = PUTS / 400;

/// Goal: alone, an asynchronous put of a small value copies it into the mapped log and the memtable's arena, and does nothing else: it
/// allocates pieces of the arena, and that is all but for what [`RARE`] says.
#[test]
fn a_small_put_neither_allocates_nor_writes_by_a_call_nor_sleeps() {
    let directory = Directory(std::env::temp_dir().join(format!("esker-put-cost-{}", std::process::id())));
    let family = FamilyOptions { write_buffer_bytes: 64 << 20, ..FamilyOptions::default() };
    let options =
        Options { create_if_missing: true, families: [("default".to_owned(), family)].into(), ..Options::default() };
    let db = Db::open(&directory.0, options).unwrap();
    let put = |n: u64| db.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), [n as u8; 100]).unwrap();
    (0..PUTS).for_each(put);
    let (calls, sleeps) = calls_and_sleeps();
    let allocations = COUNT.get();
    (PUTS..2 * PUTS).for_each(put);
    let allocated = COUNT.get() - allocations;
    let (calls_after, sleeps_after) = calls_and_sleeps();
    assert!(allocated <= RARE, "{allocated} allocations for {PUTS} puts");
    assert!(calls_after - calls <= RARE, "{} calls for {PUTS} puts", calls_after - calls);
    assert!(sleeps_after - sleeps <= RARE, "{} sleeps for {PUTS} puts", sleeps_after - sleeps);
    assert_eq!(db.stats().flushes, 0);
    db.close().unwrap();
}

/// Goal: a merge into a key that has many takes no more than the first ones did, nor does a save point keep more than that.
#[test]
fn a_merge_in_a_transaction_costs_no_more_for_those_before_it() {
    const MERGES: u64 = 5_000;
    /// The operand in the batch, its place and its key, to be taken back; twice, as what grows doubles.
    const EACH: u64 = 500;
    let directory = Directory(std::env::temp_dir().join(format!("esker-merge-cost-{}", std::process::id())));
    let family = FamilyOptions {
        merge_operator: Some(std::sync::Arc::new(StringAppendOperator::default())),
        ..FamilyOptions::default()
    };
    let options =
        Options { create_if_missing: true, families: [("default".to_owned(), family)].into(), ..Options::default() };
    let db = Db::open(&directory.0, options).unwrap();
    let mut transaction = db.transaction();
    transaction.set_save_point();
    let before = BYTES.get();
    (0..MERGES).for_each(|n| transaction.merge("key", n.to_be_bytes()).unwrap());
    let allocated = BYTES.get() - before;
    assert!(allocated <= MERGES * EACH, "{allocated} bytes for {MERGES} merges");
    transaction.rollback_to_save_point().unwrap();
    assert_eq!(transaction.get("key").unwrap(), None);
    drop(transaction);
    db.close().unwrap();
}
