//! Some write to a Raft log while a group is synced, and the sync ends well or does not.
//!
//! Method: a file system holds each sync until it is let go, so that when it ends, and how, is the test's to say.

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
    /// How many writers got their answer.
    answered: usize,
}

impl Syncs {
    fn hook(&self, call: Call<'_>) -> EnvResult<()> {
        let mut state = self.state.lock().unwrap();
        let is_logs = matches!(call, Call::Sync(path) if path.extension().is_some_and(|found| found == "raftlog"));
        if state.are_held && is_logs {
            let number = state.begun;
            state.begun += 1;
            self.changed.notify_all();
            let is_held = |state: &mut State| state.are_held && !state.let_go.contains(&number);
            drop(self.changed.wait_while(state, is_held).unwrap());
        }
        Ok(())
    }

    /// From now on syncs are held, until what this returns goes: when the test has failed, too, so that nobody is waited for in vain.
    fn hold(&self) -> Held<'_> {
        self.state.lock().unwrap().are_held = true;
        Held(self)
    }

    /// Until so many were begun, which is to come before any writer gets its answer.
    fn wait_for(&self, count: usize) {
        let is_to_come = |state: &mut State| state.begun < count && state.answered == 0;
        let begun = self.changed.wait_while(self.state.lock().unwrap(), is_to_come).unwrap().begun;
        assert!(begun >= count, "a writer got its answer though its sync is held");
    }

    fn let_go(&self, number: usize) {
        self.state.lock().unwrap().let_go.insert(number);
        self.changed.notify_all();
    }

    fn write(&self, log: &RaftLog, key: &str) -> Result<usize, ErrorKind> {
        let answer = write(log, key);
        self.state.lock().unwrap().answered += 1;
        self.changed.notify_all();
        answer
    }
}

/// See [`Syncs::hold`].
struct Held<'a>(&'a Syncs);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().are_held = false;
        self.0.changed.notify_all();
    }
}

/// How many bytes it took.
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

/// A log with "before" in it, durable, whose syncs may be held.
fn scene() -> (SimDisk, Arc<Syncs>, RaftLog) {
    scene_on(SimDisk::new())
}

fn scene_on(disk: SimDisk) -> (SimDisk, Arc<Syncs>, RaftLog) {
    let syncs = Arc::new(Syncs::default());
    let asked = Arc::clone(&syncs);
    let files = Hooked::new(disk.env().files, move |call| asked.hook(call));
    let env = Env { files: Arc::new(files), ..disk.env() };
    let log = RaftLog::open_with_env("/log", options(), env).unwrap();
    write(&log, "before").unwrap();
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

/// Until so many writers wait behind the one whose sync is held.
fn wait_for_line(log: &RaftLog, count: usize) {
    while log.stats().waiting_writers < count {
        std::thread::yield_now();
    }
}

/// Goal: a sync that fails fails its group and all that come behind it, whether they wait for it or come later; none of them is read.
#[test]
fn a_group_whose_sync_failed_and_those_behind_it_are_neither_acknowledged_nor_read() {
    let (disk, syncs, log) = scene();
    std::thread::scope(|scope| {
        let held = syncs.hold();
        let first = scope.spawn(|| syncs.write(&log, "first"));
        syncs.wait_for(1);
        let others = ["second", "third"].map(|key| {
            let log = &log;
            scope.spawn(move || write(log, key))
        });
        wait_for_line(&log, others.len());
        disk.fail_at(disk.op_count(), Fault::Eio);
        // Whoever writes on all the same finds the way free, and is told here.
        drop(held);
        assert_eq!(first.join().unwrap(), Err(ErrorKind::ReadOnly));
        for other in others {
            assert_eq!(other.join().unwrap(), Err(ErrorKind::ReadOnly));
        }
    });
    assert_eq!(write(&log, "later"), Err(ErrorKind::ReadOnly));
    let keys = ["before", "first", "second", "third", "later"];
    assert_eq!(found(&log, &keys), ["before"]);
    drop(log);
    assert_survives(&disk, &["before", "first"]);
}

/// Goal: a group is one append and one sync, however many write, and nothing is written beside a sync: those who wait form the next group.
#[test]
fn who_writes_during_a_sync_waits_for_it_and_shares_the_next() {
    let (disk, syncs, log) = scene();
    std::thread::scope(|scope| {
        let _held = syncs.hold();
        let first = scope.spawn(|| write(&log, "first"));
        syncs.wait_for(1);
        let before = disk.op_count();
        let others = ["second", "third", "fourth"].map(|key| {
            let log = &log;
            scope.spawn(move || write(log, key))
        });
        wait_for_line(&log, others.len());
        assert_eq!(disk.op_count(), before);
        syncs.let_go(0);
        syncs.wait_for(2);
        syncs.let_go(1);
        assert!(first.join().unwrap().is_ok());
        assert!(others.into_iter().all(|writer| writer.join().unwrap().is_ok()));
    });
    assert_eq!(syncs.state.lock().unwrap().begun, 2);
    let keys = ["before", "first", "second", "third", "fourth"];
    assert_eq!(found(&open(&disk.after_power_loss(Survivors::Nothing)), &keys), keys);
}

/// Goal: of a group that was refused nothing comes back, whole batches of it neither, though the process dies before anything goes over them.
#[test]
fn no_batch_of_a_group_that_was_refused_comes_back() {
    let disk = SimDisk::new();
    disk.lend_windows(true);
    let (disk, syncs, log) = scene_on(disk);
    let batch_bytes = write(&log, "zeroth").unwrap();
    std::thread::scope(|scope| {
        let held = syncs.hold();
        let first = scope.spawn(|| write(&log, "first"));
        syncs.wait_for(1);
        let others = ["second", "thirds"].map(|key| {
            let log = &log;
            scope.spawn(move || write(log, key))
        });
        wait_for_line(&log, others.len());
        // Behind the sync that is held: of both, and of each for itself, what gets in is cut off, and what was preallocated is asked for again.
        for append in [1, 4, 7] {
            disk.fail_at(disk.op_count() + append, Fault::ShortWrite { kept_bytes: batch_bytes });
        }
        drop(held);
        assert!(first.join().unwrap().is_ok());
        for other in others {
            assert_eq!(other.join().unwrap(), Err(ErrorKind::Exhausted));
        }
    });
    let keys = ["before", "zeroth", "first", "second", "thirds"];
    assert_eq!(found(&open(&disk.after_process_death()), &keys), keys[..3]);
    // Nor where a batch that is tried again goes over the first of them.
    write(&log, "fourth").unwrap();
    assert_eq!(found(&open(&disk.after_process_death()), &keys), keys[..3]);
}

/// Goal: where there is no room for a group as a whole, what finds room is written, and a sync is done: only who wrote the rest is refused.
#[test]
fn what_finds_no_room_is_refused_alone() {
    let (disk, syncs, log) = scene();
    let batch = |group: u64, first: u64, bytes: usize| {
        let mut batch = LogBatch::new();
        let mut random = fastrand::Rng::with_seed(1);
        batch
            .add_entries(group, first, [std::iter::repeat_with(|| random.u8(..)).take(bytes).collect::<Vec<_>>()])
            .unwrap();
        batch
    };
    let write = |mut batch: LogBatch| log.write(&mut batch, false).map_err(|error| error.kind());
    std::thread::scope(|scope| {
        let held = syncs.hold();
        let first = scope.spawn(|| syncs.write(&log, "first"));
        syncs.wait_for(1);
        // What is preallocated has room for a few bytes, and none for the large batch.
        let large = scope.spawn(|| write(batch(7, 1, 200 << 10)));
        wait_for_line(&log, 1);
        let behind_it = scope.spawn(|| write(batch(7, 2, 10)));
        wait_for_line(&log, 2);
        let small = scope.spawn(|| write(batch(8, 1, 10)));
        wait_for_line(&log, 3);
        let sync = scope.spawn(|| log.sync());
        wait_for_line(&log, 4);
        disk.set_capacity(Some(70 << 10));
        drop(held);
        assert!(first.join().unwrap().is_ok());
        assert_eq!(large.join().unwrap(), Err(ErrorKind::Exhausted));
        behind_it.join().unwrap().unwrap();
        small.join().unwrap().unwrap();
        sync.join().unwrap().unwrap();
    });
    let holds = |log: &RaftLog| [7, 8].map(|group| (log.first_index(group), log.last_index(group)));
    let expected = [(Some(2), Some(2)), (Some(1), Some(1))];
    assert_eq!(holds(&log), expected);
    disk.set_capacity(None);
    assert_eq!(holds(&open(&disk.after_power_loss(Survivors::Nothing))), expected);
}
