//! What could a memtable be made of? The skip list that it is, another one, a B+-tree and a radix tree, each with the same random keys.
//!
//! ```sh
//! cargo run --release --bin memtables
//! ```
//!
//! 300,000 keys of 16 and of 64 random bytes, about as many as a memtable of 64 MiB holds with values of 100, go in from 1, 2 and 4
//! threads, are looked up from as many, and are gone through in order.
//! Printed is nanoseconds for one operation as all threads together have it, the middle one of three rounds. What is compared with
//! copies a key into itself as the memtable does; values are eight bytes.
//!
//! The radix tree and the B-tree of the standard library are for one thread at a time: a lock makes them one for many.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use parking_lot::RwLock;

/// The memtable's own, as it is: it is private to its crate.
#[path = "../../../crates/db/src/memtable/arena.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, missing_debug_implementations, clippy::all)]
mod arena;
#[path = "../../../crates/db/src/memtable/fingers.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, missing_debug_implementations, clippy::all)]
mod fingers;
#[path = "../../../crates/db/src/memtable/skip_list.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, missing_debug_implementations, clippy::all)]
mod skip_list;

/// As the memtable has them.
const TALL_MIN: usize = 1 << 10;
mod sync {
    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::atomic;
}

const KEYS: usize = 300_000;
const THREADS: [usize; 3] = [1, 2, 4];
const ROUNDS: usize = 3;

/// Something that holds keys in order.
trait Table<const N: usize>: Default + Sync {
    const NAME: &'static str;
    fn insert(&self, key: &[u8; N], value: u64);
    fn holds(&self, key: &[u8; N]) -> bool;
    /// How many keys there are, gone through in order.
    fn count(&self) -> usize;
}

#[derive(Default)]
struct Ours(skip_list::SkipList);

impl<const N: usize> Table<N> for Ours {
    const NAME: &'static str = "the memtable's skip list";

    fn insert(&self, key: &[u8; N], value: u64) {
        self.0.insert(key, value, &value.to_le_bytes());
    }

    fn holds(&self, key: &[u8; N]) -> bool {
        let mut lookup = [0xff; 72];
        lookup[..N].copy_from_slice(key);
        self.0.first_at_or_after(&lookup[..N + 8]).is_some_and(|entry| entry.key()[..N] == *key)
    }

    fn count(&self) -> usize {
        std::iter::successors(self.0.first(), |entry| entry.next()).count()
    }
}

struct CrossbeamList<const N: usize>(crossbeam_skiplist::SkipMap<[u8; N], u64>);

impl<const N: usize> Default for CrossbeamList<N> {
    fn default() -> Self {
        Self(crossbeam_skiplist::SkipMap::new())
    }
}

impl<const N: usize> Table<N> for CrossbeamList<N> {
    const NAME: &'static str = "crossbeam-skiplist";

    fn insert(&self, key: &[u8; N], value: u64) {
        self.0.insert(*key, value);
    }

    fn holds(&self, key: &[u8; N]) -> bool {
        self.0.get(key).is_some()
    }

    fn count(&self) -> usize {
        self.0.iter().count()
    }
}

struct BPlusTree<const N: usize>(scc::TreeIndex<[u8; N], u64>);

impl<const N: usize> Default for BPlusTree<N> {
    fn default() -> Self {
        Self(scc::TreeIndex::new())
    }
}

impl<const N: usize> Table<N> for BPlusTree<N> {
    const NAME: &'static str = "scc's concurrent B+-tree";

    fn insert(&self, key: &[u8; N], value: u64) {
        black_box(self.0.insert(*key, value).is_ok());
    }

    fn holds(&self, key: &[u8; N]) -> bool {
        self.0.peek_with(key, |_, _| ()).is_some()
    }

    fn count(&self) -> usize {
        let guard = scc::ebr::Guard::new();
        self.0.iter(&guard).count()
    }
}

struct RadixTree<const N: usize>(RwLock<blart::TreeMap<[u8; N], u64>>);

impl<const N: usize> Default for RadixTree<N> {
    fn default() -> Self {
        Self(RwLock::new(blart::TreeMap::new()))
    }
}

impl<const N: usize> Table<N> for RadixTree<N> {
    const NAME: &'static str = "blart's radix tree, locked";

    fn insert(&self, key: &[u8; N], value: u64) {
        black_box(self.0.write().insert(*key, value));
    }

    fn holds(&self, key: &[u8; N]) -> bool {
        self.0.read().get(key).is_some()
    }

    fn count(&self) -> usize {
        self.0.read().iter().count()
    }
}

struct BTree<const N: usize>(RwLock<BTreeMap<[u8; N], u64>>);

impl<const N: usize> Default for BTree<N> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<const N: usize> Table<N> for BTree<N> {
    const NAME: &'static str = "std's B-tree, locked";

    fn insert(&self, key: &[u8; N], value: u64) {
        self.0.write().insert(*key, value);
    }

    fn holds(&self, key: &[u8; N]) -> bool {
        self.0.read().contains_key(key)
    }

    fn count(&self) -> usize {
        self.0.read().iter().count()
    }
}

fn keys<const N: usize>() -> Vec<[u8; N]> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // xorshift64*, Vigna 2016.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut key = || {
        let mut key = [0; N];
        key.chunks_mut(8).for_each(|part| part.copy_from_slice(&next().to_le_bytes()[..part.len()]));
        key
    };
    (0..KEYS).map(|_| key()).collect()
}

/// Nanoseconds for one of all keys, which so many threads share.
fn timed<const N: usize>(keys: &[[u8; N]], threads: usize, work: impl Fn(usize, &[u8; N]) + Sync) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for part in keys.chunks(keys.len().div_ceil(threads)) {
            let work = &work;
            scope.spawn(move || part.iter().enumerate().for_each(|(index, key)| work(index, key)));
        }
    });
    began.elapsed().as_nanos() as f64 / keys.len() as f64
}

fn middle(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or_default()
}

fn measure<T: Table<N>, const N: usize>(keys: &[[u8; N]]) {
    let mut line = format!("| {} | {N} |", T::NAME);
    let (mut puts, mut gets) = (String::new(), String::new());
    let mut steps = Vec::new();
    for threads in THREADS {
        let (mut put, mut get) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let table = T::default();
            put.push(timed(keys, threads, |index, key| table.insert(key, index as u64)));
            get.push(timed(keys, threads, |_, key| assert!(table.holds(key))));
            let began = Instant::now();
            assert_eq!(table.count(), keys.len());
            steps.push(began.elapsed().as_nanos() as f64 / keys.len() as f64);
        }
        puts += &format!(" {:.0} |", middle(put));
        gets += &format!(" {:.0} |", middle(get));
    }
    line += &puts;
    line += &gets;
    println!("{line} {:.0} |", middle(steps));
}

fn all<const N: usize>() {
    let keys = keys::<N>();
    measure::<Ours, N>(&keys);
    measure::<CrossbeamList<N>, N>(&keys);
    measure::<BPlusTree<N>, N>(&keys);
    measure::<RadixTree<N>, N>(&keys);
    measure::<BTree<N>, N>(&keys);
}

fn main() {
    println!("| table | key bytes | put, 1 thread | 2 | 4 | get, 1 thread | 2 | 4 | step |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    all::<16>();
    all::<64>();
}
