//! What a process that is forked from a store's may do with what it has of it: nothing that waits for threads that are not there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use esker::env::sim::SimDisk;
use esker::env::{self, Env, Thread, Threads};
use esker::{Db, DbIterator, FamilyOptions, Options, PinnedSlice, ReadOptions, Result, Separation, WriteOptions};
use esker_torture::forked::{Side, in_a_child, in_two};
use esker_torture::hooked::{Call, Hooked};

const COUNT: u32 = 1500;
const AIDE: &str = "esker-ahead";

/// Tells when the aide is begun.
#[derive(Debug)]
struct Told {
    threads: Arc<dyn Threads>,
    is_begun: Arc<AtomicBool>,
}

impl Threads for Told {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> env::Result<Box<dyn Thread>> {
        self.is_begun.fetch_or(name == AIDE, Ordering::Relaxed);
        self.threads.spawn(name, work)
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key/{n:05}").into_bytes()
}

/// So that it does not pack: little is not worth an aide.
fn value(n: u32) -> Vec<u8> {
    let mut value = vec![0; 3000];
    fastrand::Rng::with_seed(n.into()).fill(&mut value);
    value
}

fn store(env: Env) -> Db {
    let family = FamilyOptions { min_blob_size: 100, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 1, families, ..Options::default() };
    let db = Db::open_with_env("/store", options, env).unwrap();
    (0..COUNT).for_each(|n| db.put(key(n), value(n)).unwrap());
    db.flush().unwrap();
    db
}

/// A walk whose aide is in the midst of what comes next, and stays there until it is let go.
fn walk_with_an_aide_at_work() -> (Db, DbIterator, u32, Sender<()>) {
    let disk = SimDisk::new();
    let ((arrive, arrived), (let_go, is_let_go)) = (channel(), channel());
    let (arrive, is_let_go): (Mutex<Sender<()>>, Mutex<Receiver<()>>) = (arrive.into(), is_let_go.into());
    let files = Hooked::new(disk.env().files, move |call| {
        if matches!(call, Call::Read(_)) && thread::current().name() == Some(AIDE) {
            let _ = arrive.lock().unwrap().send(());
            // Once it is let go, nobody holds it again.
            let _ = is_let_go.lock().unwrap().recv();
        }
        Ok(())
    });
    let is_begun = Arc::new(AtomicBool::new(false));
    let threads = Told { threads: disk.env().threads, is_begun: is_begun.clone() };
    let db = store(Env { files: Arc::new(files), threads: Arc::new(threads), ..disk.env() });
    let mut walk = db.iter().unwrap();
    walk.seek_to_first().unwrap();
    let mut at = 0;
    while !is_begun.load(Ordering::Relaxed) {
        assert_eq!(walk.value().unwrap(), value(at)[..]);
        walk.next().unwrap();
        at += 1;
    }
    arrived.recv().unwrap();
    (db, walk, at, let_go)
}

/// Goal: a child that goes on with what its parent was at is refused, whatever it asks for, and waits for nobody; what it has stays readable, and
/// what it drops is its parent's still.
#[test]
fn a_child_is_refused_and_waits_for_nobody() {
    let (db, mut walk, mut at, let_go) = walk_with_an_aide_at_work();
    let held = db.get(key(7)).unwrap().unwrap();
    let mut keys = db.iter().unwrap();
    keys.seek(key(20)).unwrap();
    let said = in_a_child({
        let db = db.clone();
        // In the child; the parent drops neither.
        let (walk, keys) = (&mut walk, &mut keys);
        move || use_in_a_child(db, walk, keys, held)
    });
    assert_eq!(said, "all refused");
    drop(let_go);
    while walk.valid() {
        assert_eq!((walk.key(), &*walk.value().unwrap()), (&*key(at), &*value(at)));
        walk.next().unwrap();
        at += 1;
    }
    assert_eq!(at, COUNT);
    keys.next().unwrap();
    assert_eq!(keys.key(), key(21));
    db.put("key", "value").unwrap();
    db.close().unwrap();
}

/// What was not refused, if anything.
fn use_in_a_child(db: Db, walk: &mut DbIterator, keys: &mut DbIterator, held: PinnedSlice) -> String {
    let mut kept = Vec::new();
    let mut refused = |what: &str, answer: Result<()>| match answer {
        Err(error) if format!("{:?}", error.kind()) == "Closed" => {}
        answer => kept.push(format!("{what}: {answer:?}")),
    };
    refused("value", walk.value().map(drop));
    refused("value_len", walk.value_len().map(drop));
    // Those that lie ready are passed.
    let mut stepped = Ok(());
    while walk.valid() && stepped.is_ok() {
        stepped = walk.next();
    }
    refused("next", stepped);
    refused("after a refusal", if walk.valid() { Ok(()) } else { walk.seek(key(3)) });
    refused("prev", keys.prev());
    refused("keys after a refusal", if keys.valid() { Ok(()) } else { keys.seek_to_last() });
    refused("refresh", keys.refresh());
    let (family, options) = (db.default_column_family(), ReadOptions::default());
    refused("iter", db.iter().map(drop));
    refused("get", db.get(key(1)).map(drop));
    refused("exists", db.exists(key(1)).map(drop));
    refused("multi_get", db.multi_get([key(1), key(2)]).map(drop));
    refused("count", db.count_cf(&family, &options).map(drop));
    refused("split", db.split_cf(&family, &options, 4).map(drop));
    refused("parallel_scan", db.parallel_scan_cf(&family, &options, 2, |_| Ok(())));
    let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    refused("a snapshot", db.get_cf(&family, key(1), &then).map(drop));
    refused("put", db.put("key", "of a child"));
    refused("delete", db.delete(key(1)));
    refused("put_if_absent", db.put_if_absent(&family, "key", "new", &WriteOptions::default()).map(drop));
    refused("sync_wal", db.sync_wal());
    refused("flush", db.flush());
    refused("create", db.create_column_family("child", FamilyOptions::default()).map(drop));
    refused("separation", db.set_separation(&family, Separation::AtWrite));
    refused("compact", db.compact_range(&family, None, None));
    refused("checkpoint", db.checkpoint("/copy").map(drop));
    refused("close", db.close());
    if held != value(7)[..] {
        kept.push("a value that was held is another".to_owned());
    }
    if kept.is_empty() { "all refused".to_owned() } else { kept.join(", ") }
}

/// Goal: who forks amid a scan of several threads gets its end in both processes: in the child, where the others are not, a refusal.
#[test]
fn a_scan_ends_in_a_process_that_was_forked_amid_it() {
    let db = store(SimDisk::new().env());
    let (here, side) = (thread::current().id(), Arc::new(Mutex::new(None)));
    let ((arrive, arrived), (let_go, is_let_go)) = (channel(), channel::<()>());
    // Each end is used by one thread.
    let ends = (Mutex::new(arrive), Mutex::new(arrived), Mutex::new(Some(let_go)), Mutex::new(is_let_go));
    let sides = side.clone();
    let scanned = db.parallel_scan_cf(&db.default_column_family(), &ReadOptions::default(), 2, move |_| {
        let (arrive, arrived, let_go, is_let_go) = &ends;
        if thread::current().id() != here {
            let _ = arrive.lock().unwrap().send(());
            let _ = is_let_go.lock().unwrap().recv();
        } else if let Some(let_go) = let_go.lock().unwrap().take() {
            // The other is there, and will be until the parent lets it go.
            arrived.lock().unwrap().recv().unwrap();
            let side = in_two();
            if matches!(side, Side::Child(_)) {
                std::mem::forget(let_go);
            }
            *sides.lock().unwrap() = Some(side);
        }
        Ok(())
    });
    let side = side.lock().unwrap().take().unwrap();
    match side {
        Side::Child(child) => child.end(&format!("{:?}", scanned.map_err(|error| error.kind()))),
        Side::Parent(parent) => assert_eq!(parent.said(), "Err(Closed)"),
    }
    scanned.unwrap();
}
