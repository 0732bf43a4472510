//! Two groups of a Raft log are synced beside each other, and one of the syncs fails.
//!
//! Method: a file system holds each sync until it is let go, so that which of them ends first, and how, is the test's to say.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::env::{Env, Result as EnvResult};
use esker::raft::{ErrorKind, Options};
use esker::{LogBatch, RaftLog};
use esker_torture::hooked::{Call, Hooked};

/// Syncs that wait to be let go.
#[derive(Default)]
struct Syncs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    are_held: bool,
    begun: usize,
    let_go: BTreeSet<usize>,
}

impl Syncs {
    fn hook(&self, call: Call<'_>) -> EnvResult<()> {
        let mut state = self.state.lock().unwrap();
        let is_logs = matches!(call, Call::Sync(path) if path.extension().is_some_and(|found| found == "raftlog"));
        if state.are_held && is_logs {
            let number = state.begun;
            state.begun += 1;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.let_go.contains(&number)).unwrap());
        }
        Ok(())
    }

    fn hold(&self, are_held: bool) {
        self.state.lock().unwrap().are_held = are_held;
    }

    /// Until so many were begun.
    fn wait_for(&self, count: usize) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| state.begun < count).unwrap());
    }

    fn let_go(&self, number: usize) {
        self.state.lock().unwrap().let_go.insert(number);
        self.changed.notify_all();
    }
}

fn write(log: &RaftLog, key: &str) -> Result<usize, ErrorKind> {
    let mut batch = LogBatch::new();
    batch.put(1, key.as_bytes(), key.as_bytes()).unwrap();
    log.write(&mut batch, true).map_err(|error| error.kind())
}

/// Small files: the simulated disk copies what is preallocated.
fn options() -> Options {
    Options { file_bytes: 64 << 10, ..Options::default() }
}

fn open(disk: &SimDisk) -> RaftLog {
    RaftLog::open_with_env("/log", options(), disk.env()).unwrap()
}

/// Which of `keys` are there.
fn found<'a>(log: &RaftLog, keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().copied().filter(|key| log.get(1, key.as_bytes()).is_some()).collect()
}

/// A log with "before" in it, durable; from then on its syncs are held.
fn scene() -> (SimDisk, Arc<Syncs>, RaftLog) {
    let (disk, syncs) = (SimDisk::new(), Arc::new(Syncs::default()));
    let asked = Arc::clone(&syncs);
    let files = Hooked::new(disk.env().files, move |call| asked.hook(call));
    let env = Env { files: Arc::new(files), ..disk.env() };
    let log = RaftLog::open_with_env("/log", options(), env).unwrap();
    write(&log, "before").unwrap();
    syncs.hold(true);
    (disk, syncs, log)
}

/// What may be left of writes of which none was acknowledged: the first so many of them; and what the next life promises holds,
/// though it was built on what the system had dropped.
fn assert_survives(disk: &SimDisk, keys: &[&str]) {
    let samples = (0..20).map(|seed| Survivors::Sample { seed });
    for survivors in samples.chain([Survivors::Nothing, Survivors::Everything]) {
        let left = found(&open(&disk.after_power_loss(survivors)), keys);
        assert!(left.first() == Some(&keys[0]) && keys.starts_with(&left), "{left:?}");
    }
    let again = disk.after_process_death();
    let log = open(&again);
    let kept = found(&log, keys);
    assert!(keys.starts_with(&kept), "{kept:?}");
    write(&log, "next life").unwrap();
    drop(log);
    let log = open(&again.after_power_loss(Survivors::Nothing));
    assert_eq!((found(&log, keys), log.get(1, b"next life").is_some()), (kept, true));
}

/// Goal: a sync that said that all is well counts only if those before it did: what the second group wrote follows what the first one lost.
#[test]
fn a_group_whose_predecessors_sync_failed_is_neither_acknowledged_nor_read() {
    let (disk, syncs, log) = scene();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| write(&log, "first"));
        syncs.wait_for(1);
        let second = scope.spawn(|| write(&log, "second"));
        syncs.wait_for(2);
        let third = scope.spawn(|| write(&log, "third"));
        syncs.let_go(1);
        // It can be begun only when the second one has landed.
        syncs.wait_for(3);
        disk.fail_at(disk.op_count(), Fault::Eio);
        syncs.let_go(0);
        assert_eq!(first.join().unwrap(), Err(ErrorKind::ReadOnly));
        syncs.let_go(2);
        assert_eq!(second.join().unwrap(), Err(ErrorKind::ReadOnly));
        assert_eq!(third.join().unwrap(), Err(ErrorKind::ReadOnly));
    });
    syncs.hold(false);
    assert_eq!(write(&log, "later"), Err(ErrorKind::ReadOnly));
    let keys = ["before", "first", "second", "third", "later"];
    assert_eq!(found(&log, &keys), ["before"]);
    drop(log);
    assert_survives(&disk, &keys);
}

/// Goal: of bytes that were lost the system tells one of two syncs beside each other: the one that it told nothing counts no more than the
/// other, though it came first.
#[test]
fn a_sync_beside_one_that_failed_is_not_taken_for_durable() {
    let (disk, syncs, log) = scene();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| write(&log, "first"));
        syncs.wait_for(1);
        let second = scope.spawn(|| write(&log, "second"));
        syncs.wait_for(2);
        // It drops what both appended.
        disk.fail_at(disk.op_count(), Fault::Eio);
        syncs.let_go(1);
        assert_eq!(second.join().unwrap(), Err(ErrorKind::ReadOnly));
        syncs.let_go(0);
        assert_eq!(first.join().unwrap(), Err(ErrorKind::ReadOnly));
    });
    syncs.hold(false);
    let keys = ["before", "first", "second"];
    assert_eq!(found(&log, &keys), ["before"]);
    drop(log);
    assert_survives(&disk, &keys);
}

/// Goal: syncs that end in another order than they began acknowledge in the order of the file, and lose nothing.
#[test]
fn groups_that_land_in_another_order_are_all_durable() {
    let (disk, syncs, log) = scene();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| write(&log, "first"));
        syncs.wait_for(1);
        let second = scope.spawn(|| write(&log, "second"));
        syncs.wait_for(2);
        let third = scope.spawn(|| write(&log, "third"));
        syncs.let_go(1);
        syncs.wait_for(3);
        syncs.let_go(2);
        syncs.let_go(0);
        assert!([first, second, third].into_iter().all(|writer| writer.join().unwrap().is_ok()));
    });
    let keys = ["before", "first", "second", "third"];
    assert_eq!(found(&log, &keys), keys);
    assert_eq!(found(&open(&disk.after_power_loss(Survivors::Nothing)), &keys), keys);
    syncs.hold(false);
}
