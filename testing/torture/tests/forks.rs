//! What a process that is forked from a store's may do with what it has of it: nothing that waits for threads that are not there.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use esker::env::sim::SimDisk;
use esker::env::{self, Env, Thread, Threads};
use esker::raft::{self, FileId, Listener, Queue};
use esker::{Cask, CaskBatch, CaskOptions, CaskScan, CaskValue, CaskWriteOptions, LogBatch, RaftLog};
use esker::{
    Db, DbIterator, ErrorKind, FamilyOptions, Options, PinnedSlice, ReadOptions, Result, Separation, SstFileWriter,
    WriteOptions,
};
use esker_torture::forked::{Side, in_a_child, in_two};
use esker_torture::hooked::{Call, Hooked};

const COUNT: u32 = 1500;
const AIDE: &str = "esker-ahead";

/// Tells when a thread of this name is begun.
#[derive(Debug)]
struct Told {
    threads: Arc<dyn Threads>,
    name: &'static str,
    is_begun: Arc<AtomicBool>,
}

impl Threads for Told {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> env::Result<Box<dyn Thread>> {
        self.is_begun.fetch_or(name == self.name, Ordering::Relaxed);
        self.threads.spawn(name, work)
    }
}

/// What a child asked for.
#[derive(Default)]
struct Asked {
    /// What was not refused.
    kept: Vec<String>,
}

impl Asked {
    fn refused<T>(&mut self, what: &str, answer: Result<T>) {
        match answer {
            Err(error) if error.kind() == ErrorKind::Closed => {}
            answer => self.kept.push(format!("{what}: {:?}", answer.map(drop))),
        }
    }

    fn holds(&mut self, what: &str, holds: bool) {
        if !holds {
            self.kept.push(what.to_owned());
        }
    }

    fn told(self) -> String {
        if self.kept.is_empty() { "all refused".to_owned() } else { self.kept.join(", ") }
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
    let threads = Told { threads: disk.env().threads, name: AIDE, is_begun: is_begun.clone() };
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
    let mut asked = Asked::default();
    let mut refused = |what: &str, answer: Result<()>| asked.refused(what, answer);
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
    refused("options of the store", db.set_db_options(|options| options.max_space_amp = 2.0));
    refused("compact", db.compact_range(&family, None, None));
    refused("checkpoint", db.checkpoint("/copy").map(drop));
    refused("close", db.close());
    asked.holds("a value that was held is another", held == value(7)[..]);
    asked.told()
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

/// Goal: a load that goes on in two processes is the parent's: in the child nothing of it can be written or ended, nobody waits for its threads, and its
/// files stay.
#[test]
fn a_load_is_its_parents() {
    for (background_jobs, drops) in [(0, false), (0, true), (2, false), (2, true)] {
        // On the machine's own disk, which both have.
        let dir = tempfile::tempdir().unwrap();
        let families =
            [("default".to_owned(), FamilyOptions { min_blob_size: 100, ..FamilyOptions::default() })].into();
        let options = Options { create_if_missing: true, background_jobs, families, ..Options::default() };
        let db = Db::open(dir.path().join("store"), options).unwrap();
        let mut load = db.bulk_load(&db.default_column_family()).unwrap();
        // Several times what is handed over at once, and a little more.
        (0..COUNT).for_each(|n| load.put(key(n), value(n)).unwrap());
        let mut load = Some(load);
        let said = in_a_child(|| {
            let (mut asked, mut load) = (Asked::default(), load.take().unwrap());
            if !drops {
                asked.refused("put", load.put("zzz", "of a child"));
                asked.refused("finish", load.finish());
            }
            asked.told()
        });
        assert_eq!(said, "all refused", "{background_jobs} threads, dropped: {drops}");
        assert_eq!(load.unwrap().finish().unwrap().entries, u64::from(COUNT));
        (0..COUNT).for_each(|n| assert_eq!(*db.get(key(n)).unwrap().unwrap(), value(n)));
        db.close().unwrap();
    }
}

/// Goal: the same of a table that is written outside of any store.
#[test]
fn a_table_outside_of_stores_is_its_parents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.sst");
    let mut writer = SstFileWriter::create(&path, &FamilyOptions::default()).unwrap();
    (0..COUNT).for_each(|n| writer.put(key(n), value(n)).unwrap());
    let mut writer = Some(writer);
    let said = in_a_child(|| {
        let (mut asked, mut writer) = (Asked::default(), writer.take().unwrap());
        asked.refused("put", writer.put("zzz", "of a child"));
        asked.refused("finish", writer.finish());
        asked.told()
    });
    assert_eq!((said.as_str(), path.exists()), ("all refused", true));
    assert_eq!(writer.unwrap().finish().unwrap().entries, u64::from(COUNT));
}

/// Keys and values of a Cask, some of them to a file.
const CASK_COUNT: u32 = 240;

fn cask_value(n: u32) -> Vec<u8> {
    vec![n as u8; 900]
}

/// A scan whose helper has more than the scan has asked for.
fn scan_with_a_helper() -> (Cask, CaskScan, u32) {
    let disk = SimDisk::new();
    let is_begun = Arc::new(AtomicBool::new(false));
    let threads = Told { threads: disk.env().threads, name: "esker-scan", is_begun: is_begun.clone() };
    let options = CaskOptions { create_if_missing: true, file_bytes: 4 << 10, stripes: 1, ..CaskOptions::default() };
    let cask = Cask::open_with_env("/cask", options, Env { threads: Arc::new(threads), ..disk.env() }).unwrap();
    for n in 0..CASK_COUNT {
        cask.put(key(n), cask_value(n)).unwrap();
    }
    let mut scan = cask.scan().unwrap();
    let mut shown = 0;
    while !is_begun.load(Ordering::Relaxed) {
        assert!(scan.advance().unwrap());
        shown += 1;
    }
    (cask, scan, shown)
}

/// Goal: the same of a Cask: a child waits neither for the helper of a scan nor for whoever keeps merges away.
#[test]
fn a_child_is_refused_by_a_cask() {
    let (cask, mut scan, mut shown) = scan_with_a_helper();
    let others = cask.scan().unwrap();
    let held = cask.get(key(7)).unwrap().unwrap();
    let ((arrive, arrived), (let_go, is_let_go)) = (channel(), channel::<()>());
    let copying = thread::spawn({
        let cask = cask.clone();
        move || {
            cask.backup("/copy", &mut |_| {
                let _ = arrive.send(());
                // Once it is let go, nobody holds it again.
                let _ = is_let_go.recv();
            })
        }
    });
    arrived.recv().unwrap();
    let mut scans = Some((scan, others));
    let said = in_a_child(|| use_a_cask_in_a_child(cask.clone(), scans.take(), held));
    assert_eq!(said, "all refused");
    drop(let_go);
    copying.join().unwrap().unwrap();
    let others;
    (scan, others) = scans.unwrap();
    while scan.advance().unwrap() {
        shown += 1;
    }
    assert_eq!((shown, others.count() as u32), (CASK_COUNT, CASK_COUNT));
    cask.put("key", "value").unwrap();
    cask.close().unwrap();
}

/// What was not refused, if anything.
fn use_a_cask_in_a_child(cask: Cask, scans: Option<(CaskScan, CaskScan)>, held: CaskValue) -> String {
    let mut asked = Asked::default();
    let (mut scan, mut others) = scans.unwrap();
    asked.refused("advance", scan.advance());
    asked.refused("a scan's next", others.next().unwrap_or(Ok(Default::default())));
    asked.holds("after a refusal something comes", others.next().is_none());
    drop((scan, others));
    let (key, options) = (key(1), CaskWriteOptions { sync: true, ..CaskWriteOptions::default() });
    asked.refused("scan", cask.scan());
    asked.refused("get", cask.get(&key));
    asked.refused("multi_get", cask.multi_get([&key]));
    asked.refused("exists", cask.exists(&key));
    asked.refused("value_len", cask.value_len(&key));
    asked.refused("history", cask.history(&key));
    asked.refused("get_version", cask.get_version(&key, 1));
    asked.refused("put", cask.put("key", "of a child"));
    asked.refused("put_with", cask.put_with("key", "of a child", &options));
    asked.refused("put_if_absent", cask.put_if_absent("key", "of a child", &options));
    asked.refused("compare_and_set", cask.compare_and_set("key", None, Some(b"of a child"), &options));
    asked.refused("compare", cask.compare_and_set("key", None, None, &options));
    asked.refused("delete", cask.delete(&key));
    asked.refused("write nothing", cask.write(&CaskBatch::new(), &CaskWriteOptions::default()));
    asked.refused("sync", cask.sync());
    asked.refused("compact", cask.compact());
    asked.refused("checkpoint", cask.checkpoint("/other"));
    asked.refused("backup", cask.backup("/other", &mut |_| {}));
    asked.refused("check", cask.check(&mut |_| {}));
    asked.refused("close", cask.clone().close());
    drop(cask);
    asked.holds("a value that was held is another", *held == *cask_value(7));
    asked.told()
}

/// Holds a thread of each of these names where it is told of something, until it is let go.
struct Holder {
    arrive: Mutex<Sender<()>>,
    is_let_go: Mutex<Receiver<()>>,
}

const WRITER: &str = "writer";
const PURGER: &str = "purger";

impl Holder {
    fn hold(&self, name: &str) {
        if thread::current().name() == Some(name) {
            let _ = self.arrive.lock().unwrap().send(());
            let _ = self.is_let_go.lock().unwrap().recv();
        }
    }
}

impl Listener for Holder {
    fn batch_appended(&self, _: FileId, _: u64, _: u64) {
        self.hold(WRITER);
    }

    fn oldest_needed(&self, _: Queue) -> Option<u64> {
        self.hold(PURGER);
        None
    }
}

fn entry(log: &RaftLog, index: u64) -> Result<usize> {
    let mut batch = LogBatch::new();
    batch.add_entries(1, index, [[index as u8; 100]])?;
    batch.put(1, b"key", &[index as u8])?;
    log.write(&mut batch, false)
}

/// Goal: the same of a Raft log: a child waits neither for a writer before it nor for whoever purges.
#[test]
fn a_child_is_refused_by_a_raft_log() {
    let ((arrive, arrived), (let_go, is_let_go)) = (channel(), channel());
    let holder = Holder { arrive: arrive.into(), is_let_go: is_let_go.into() };
    let (disk, options) = (SimDisk::new(), raft::Options::default());
    let log = RaftLog::open_with("/log", options.clone(), disk.env(), vec![Arc::new(holder)]).unwrap();
    for index in 1..=5 {
        entry(&log, index).unwrap();
    }
    let begin = |name: &str, work: fn(&RaftLog) -> Result<()>| {
        let log = log.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(&log)).unwrap();
        arrived.recv().unwrap();
        thread
    };
    let threads = [begin(PURGER, RaftLog::purge_stale), begin(WRITER, |log| entry(log, 6).map(drop))];
    assert_eq!(in_a_child(|| use_a_raft_log_in_a_child(log.clone())), "all refused");
    drop(let_go);
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    entry(&log, 7).unwrap();
    log.close().unwrap();
    let log = RaftLog::open_with_env("/log", options, disk.env()).unwrap();
    let entries = log.entries(1, 1, 8, None).unwrap();
    assert!(entries.into_iter().eq((1..=7).map(|index| vec![index; 100])));
    assert_eq!((log.get(1, b"key").unwrap().to_vec(), log.groups()), (vec![7], vec![1]));
}

/// What was not refused, if anything.
fn use_a_raft_log_in_a_child(log: RaftLog) -> String {
    let mut asked = Asked::default();
    asked.refused("entry", log.entry(1, 1));
    asked.refused("with_entry", log.with_entry(1, 1, |_| {}));
    asked.refused("for_each_entry", log.for_each_entry(1, 1, 2, |_, _| ControlFlow::Continue(())));
    asked.refused("entries", log.entries(1, 1, 2, None));
    asked.refused("write", entry(&log, 6));
    asked.refused("write nothing", log.write(&mut LogBatch::new(), false));
    let mut batch = LogBatch::new();
    batch.put(2, b"key", b"of a child").unwrap();
    asked.refused("write_timed", log.write_timed(&mut batch, true).0);
    asked.holds("a batch that was refused is not as it was", !batch.is_empty());
    asked.refused("sync", log.sync());
    asked.refused("compact_to", log.compact_to(1, 3));
    asked.refused("delete_range", log.delete_range(1, None, None, false));
    asked.refused("purge", log.purge());
    asked.refused("move_on", log.move_on(None));
    asked.refused("purge_stale", log.purge_stale());
    asked.refused("rewrite_again", log.rewrite_again());
    asked.refused("fork", log.fork("/other"));
    asked.refused("close", log.close());
    drop(log);
    asked.told()
}
