//! What a small put asks of the allocator and the kernel: nothing, but for what lasts for thousands of puts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;

use esker::{Db, FamilyOptions, Options};

/// The system's allocator, which counts what each thread asks for.
struct Counted;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; the bookkeeping neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
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
