//! Walks with an aide that does its part whenever the test wants it to.

use std::path::Path;

use esker_env::Threads;
use esker_env::sim::SimDisk;

use super::*;
use crate::options::{FamilyOptions, Options, ReadOptions};
use crate::{Db, DbIterator};

/// Starts nothing, or has no thread to give.
#[derive(Debug)]
struct NoThreads {
    pretends: bool,
}

#[derive(Debug)]
struct Pretended;

impl Thread for Pretended {
    fn join(&mut self) -> bool {
        true
    }
}

impl Threads for NoThreads {
    fn spawn(&self, name: &str, _: Box<dyn FnOnce() + Send>) -> esker_env::Result<Box<dyn Thread>> {
        if self.pretends {
            return Ok(Box::new(Pretended));
        }
        Err(esker_env::Error::new("starting a thread", Path::new(name), std::io::ErrorKind::WouldBlock.into()))
    }
}

fn aide(env: &Env, pretends: bool) -> Arc<Aide> {
    Arc::new(Aide::new(&Env { threads: Arc::new(NoThreads { pretends }), ..env.clone() }, true))
}

fn key(n: usize) -> Vec<u8> {
    format!("key/{n:05}").into_bytes()
}

const LEN: usize = 2000;

/// What packs to less than half.
fn value(n: usize, len: usize) -> Vec<u8> {
    let mixed = |at: usize| (at + 1).wrapping_mul(n + 77).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (0..len).map(|at| if at < len / 4 { mixed(at) as u8 } else { n as u8 }).collect()
}

fn store(disk: &SimDisk, count: usize, len: usize) -> Db {
    let family = FamilyOptions { min_blob_size: 100, blob_file_bytes: 256 << 10, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    (0..count).for_each(|n| db.put(key(n), value(n, len)).unwrap());
    db.flush().unwrap();
    db
}

fn iterator(db: &Db, aide: &Arc<Aide>) -> DbIterator {
    let (store, options) = (db.store(), ReadOptions::default());
    let family = store.default_family.clone();
    let (view, sequence) = store.moment(&family, &options).unwrap();
    DbIterator::new(Arc::downgrade(store), family, view, sequence, &options, store.blobs.clone(), aide.clone())
}

/// Goal: whatever part of the work is done beside a walk, it shows the same, and reads each value once.
#[test]
fn a_walk_shows_the_same_whenever_its_aide_works() {
    const COUNT: usize = 3000;
    let disk = SimDisk::new();
    let db = store(&disk, COUNT, LEN);
    for every in [1, 7, 50, 300, 1000, COUNT] {
        let aide = aide(&disk.env(), true);
        let before = db.stats().blob_reads;
        let mut iterator = iterator(&db, &aide);
        let (mut n, mut unpacked, mut errands) = (0, 0, 0);
        iterator.seek_to_first().unwrap();
        while iterator.valid() {
            assert_eq!((iterator.key(), &*iterator.value().unwrap()), (&*key(n), &*value(n, LEN)));
            if n % every == every - 1 {
                errands += aide.run_waiting();
                unpacked = unpacked.max(iterator.ahead().stretches().1.unpacked().count());
            }
            iterator.next().unwrap();
            n += 1;
        }
        assert_eq!(n, COUNT);
        assert_eq!(db.stats().blob_reads - before, COUNT as u64, "each is read once");
        assert!(every > 300 || errands > 5 && unpacked > 100, "{errands} errands, {unpacked} unpacked at most");
    }
}

/// Goal (S3): each value is unpacked by one of the two, whoever comes first; what one has got, the other takes.
#[test]
fn who_walks_and_who_helps_meet() {
    let disk = SimDisk::new();
    let db = store(&disk, 2000, LEN);
    let aide = aide(&disk.env(), true);
    let mut iterator = iterator(&db, &aide);
    iterator.seek_to_first().unwrap();
    let mut n = 0;
    let mut step = |iterator: &mut DbIterator| {
        assert_eq!(*iterator.value().unwrap(), value(n, LEN)[..]);
        n += 1;
        iterator.next().unwrap();
    };
    while iterator.ahead().stretches().1.count() < 256 {
        step(&mut iterator);
    }
    // What is coming now is handed over, and nobody has begun: it is shown, and the walk comes first.
    let (shown, coming) = iterator.ahead().stretches();
    let (left, count) = (shown.count(), coming.count());
    (0..left).for_each(|_| step(&mut iterator));
    (0..100).for_each(|_| step(&mut iterator));
    assert_eq!(iterator.ahead().stretches().0.count(), count);
    assert!(aide.run_waiting() > 0);
    let (shown, coming) = iterator.ahead().stretches();
    assert_eq!(shown.unpacked().count(), count - 100);
    assert_eq!(coming.unpacked().count(), coming.count());
    (0..count).for_each(|_| step(&mut iterator));
}

/// Goal (S4): what is unpacked before it is asked for is bounded, however well it was packed.
#[test]
fn values_that_unpack_to_much_are_left_to_the_walk() {
    const LONG: usize = 100_000;
    let long = |n: usize| [value(n, LONG / 10), vec![n as u8; LONG - LONG / 10]].concat();
    let disk = SimDisk::new();
    let family = FamilyOptions { min_blob_size: 100, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    (0..400).for_each(|n| db.put(key(n), long(n)).unwrap());
    db.flush().unwrap();
    let aide = aide(&disk.env(), true);
    let mut iterator = iterator(&db, &aide);
    iterator.seek_to_first().unwrap();
    let (mut n, mut most) = (0, 0);
    while iterator.valid() {
        assert_eq!(*iterator.value().unwrap(), long(n)[..]);
        aide.run_waiting();
        most = most.max(iterator.ahead().stretches().1.unpacked().sum());
        iterator.next().unwrap();
        n += 1;
    }
    assert!((400_000..=512 * 1024 + LONG).contains(&most), "{most} bytes");
}

/// Goal (D2): what nobody walks through any more is not worked on.
#[test]
fn a_walk_that_ends_leaves_nothing_to_do() {
    let disk = SimDisk::new();
    let db = store(&disk, 2000, LEN);
    let aide = aide(&disk.env(), true);
    let mut iterator = iterator(&db, &aide);
    iterator.seek_to_first().unwrap();
    for _ in 0..600 {
        iterator.value().unwrap();
        iterator.next().unwrap();
    }
    drop(iterator);
    let reads = disk.read_count();
    assert!(aide.run_waiting() > 0);
    assert_eq!(disk.read_count(), reads);
}

/// Goal: without a thread a walk is what it was, and nothing waits for one.
#[test]
fn without_a_thread_the_walk_does_everything() {
    let disk = SimDisk::new();
    let db = store(&disk, 1500, LEN);
    let closed = aide(&disk.env(), true);
    closed.close();
    let nobody = Arc::new(Aide::new(&disk.env(), false));
    for aide in [aide(&disk.env(), false), closed, nobody] {
        let mut iterator = iterator(&db, &aide);
        iterator.seek_to_first().unwrap();
        for n in 0..1500 {
            assert_eq!(*iterator.value().unwrap(), value(n, LEN)[..]);
            iterator.next().unwrap();
        }
        assert!(!iterator.valid() && !aide.is_there());
    }
}
