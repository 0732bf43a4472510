//! Groups with more in the rewrite queue than one batch of moved entries holds: they are rewritten in several, an atomic group, of which all
//! count or none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use esker::RaftLog;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::raft::{ErrorKind, FileId, Listener, Options, Queue};
use esker_torture::crash::{Replay, Tally, disk, images, kill};
use esker_torture::raft::{Contents, Ledger, Op, Step, contents};

const FILE: &str = "raft_atomic";

/// Batches of the rewrite queue in the order in which a rewrite tells of them: three of group 1, one of group 2, three of group 3.
const PARTS: usize = 7;

/// Batches of each file that are not visible yet, and how many of the rewrite queue there were.
#[derive(Default)]
struct Told(Mutex<(HashMap<FileId, i64>, usize)>);

impl Listener for Told {
    fn batch_appended(&self, file: FileId, _: u64, _: u64) {
        let (waiting, rewritten) = &mut *self.0.lock().unwrap();
        *waiting.entry(file).or_default() += 1;
        *rewritten += usize::from(file.queue == Queue::Rewrite);
    }

    fn batch_applied(&self, file: FileId) {
        *self.0.lock().unwrap().0.entry(file).or_default() -= 1;
    }
}

impl Told {
    fn rewritten(&self) -> usize {
        self.0.lock().unwrap().1
    }

    /// Files of the rewrite queue that were written to.
    fn rewritten_files(&self) -> usize {
        self.0.lock().unwrap().0.keys().filter(|file| file.queue == Queue::Rewrite).count()
    }

    fn is_settled(&self) -> bool {
        self.0.lock().unwrap().0.values().all(|count| *count == 0)
    }
}

/// A log whose groups lie in the rewrite queue, closed.
struct Scene {
    options: Options,
    disk: SimDisk,
    expected: Contents,
}

impl Scene {
    /// Odd seeds have packed entries, and threads of recovery.
    fn new(seed: u64) -> Self {
        let is_odd = seed % 2 == 1;
        let options = Options {
            // Less than a group has.
            file_bytes: if is_odd { 1 << 10 } else { 150 << 10 },
            compress_from_bytes: usize::from(is_odd),
            recovery_threads: if is_odd { 3 } else { 1 },
            ..Options::default()
        };
        let (disk, mut ledger) = (disk(seed), Ledger::default());
        let log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
        for index in 1..=12u64 {
            let entry = vec![b'a' + index as u8; 30_000];
            let mut ops = vec![Op::Entries(1, index, vec![entry.clone()]), Op::Entries(3, 100 + index, vec![entry])];
            if index <= 3 {
                ops.push(Op::Entries(2, index, vec![vec![index as u8; 50]]));
            }
            ops.extend((1..=3).map(|group| Op::Put(group, vec![b'k', index as u8], vec![index as u8; 20])));
            ledger.step(&log, &Step::Write(ops, false)).unwrap();
        }
        ledger.step(&log, &Step::MoveOn).unwrap();
        let gone = vec![Op::Compact(1, 2), Op::Delete(1, vec![b'k', 1]), Op::Entries(3, 112, vec![b"new".to_vec()])];
        ledger.step(&log, &Step::Write(gone, false)).unwrap();
        log.close().unwrap();
        drop(log);
        Self { options, disk, expected: ledger.after(ledger.batches.len()) }
    }

    fn open(&self, disk: &SimDisk, told: &Arc<Told>, what: &str) -> RaftLog {
        self.try_open(disk, told).unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    fn try_open(&self, disk: &SimDisk, told: &Arc<Told>) -> esker::Result<RaftLog> {
        RaftLog::open_with("/log", self.options.clone(), disk.env(), vec![told.clone()])
    }

    /// What is there is what was; and so it is after the rewrite that was not finished is done again, which a process that dies leaves unclosed.
    fn verify(&self, disk: &SimDisk, what: &str) {
        let told = Arc::default();
        let log = self.open(disk, &told, what);
        assert!(contents(&log).unwrap() == self.expected, "{what}: what was found");
        log.rewrite_again().unwrap();
        assert!(contents(&log).unwrap() == self.expected, "{what}: rewritten again");
        let died = disk.after_process_death();
        drop(log);
        assert!(contents(&self.open(&died, &told, what)).unwrap() == self.expected, "{what}: reopened");
    }
}

/// Goal: a group that is rewritten in parts is, wherever the machine dies, what it was: parts without an end count for nothing, nor do they once
/// the next rewrite has begun the group again.
#[test]
fn a_group_in_parts_survives_death_between_them() {
    let test = "a_group_in_parts_survives_death_between_them";
    let tally = Tally::new(test);
    for seed in 0..2 {
        let (scene, replay) = (Scene::new(seed), Replay { file: FILE, test, seed });
        let play = |disk: &SimDisk, told: &Arc<Told>| {
            let log = scene.try_open(disk, told)?;
            log.rewrite_again()?;
            log.close()
        };
        let (healthy, told) = (scene.disk.after_process_death(), Arc::default());
        play(&healthy, &told).unwrap();
        assert_eq!(told.rewritten(), PARTS, "{replay}");
        assert!(told.rewritten_files() >= 3, "{replay}: groups lie across files");
        let mut unfinished = 0;
        for n in 0..healthy.op_count() {
            let (disk, told) = (scene.disk.after_process_death(), Arc::default());
            kill(&disk, n);
            let _ = play(&disk, &told);
            unfinished += usize::from([1, 2, 5, 6].contains(&told.rewritten()));
            for image in images(&disk, n) {
                scene.verify(&image.disk, &format!("{replay}: died at operation {n}, {}", image.name));
                tally.image();
            }
        }
        assert!(unfinished >= 4, "{replay}: {unfinished} died within a group");
    }
}

/// Goal: a rewrite that fails within a group leaves it where it was, and no listener waiting for a batch to become visible; the next one finds
/// it all.
#[test]
fn a_group_in_parts_outlives_a_fault_between_them() {
    let tally = Tally::new("a_group_in_parts_outlives_a_fault_between_them");
    for seed in 0..2 {
        let scene = Scene::new(seed);
        let opened = || {
            let (disk, told) = (scene.disk.after_process_death(), Arc::default());
            let log = scene.open(&disk, &told, "a sound log");
            (disk.op_count(), disk, log, told)
        };
        // What is moved may be gone where a sync has failed, until the log is opened again.
        let is_there = |log: &RaftLog, disk: &SimDisk| match contents(log) {
            Err(error) => disk.has_evicted() && error.kind() == ErrorKind::Corruption,
            Ok(found) => found == scene.expected,
        };
        let (from, healthy, log, _) = opened();
        log.rewrite_again().unwrap();
        let (mut unfinished, until) = (0, healthy.op_count());
        for n in from..until {
            for fault in [Fault::Eio, Fault::NoSpace] {
                let what = format!("seed {seed}, operation {n} of {from}..{until}, {fault:?}");
                let (_, disk, log, told) = opened();
                disk.fail_at(n, fault);
                let done = log.rewrite_again();
                unfinished += usize::from(done.is_err() && [1, 2, 5, 6].contains(&told.rewritten()));
                assert!(told.is_settled(), "{what}: a listener waits");
                assert!(is_there(&log, &disk), "{what}: {done:?}");
                match log.rewrite_again() {
                    Err(error) if error.kind() == ErrorKind::ReadOnly => {}
                    again => again.unwrap_or_else(|error| panic!("{what}: {done:?}, then {error}")),
                }
                assert!(told.is_settled() && is_there(&log, &disk), "{what}: {done:?}, again");
                let lives = [disk.after_power_loss(Survivors::Sample { seed: n }), disk.after_process_death()];
                drop(log);
                lives.iter().for_each(|left| scene.verify(left, &what));
                tally.fault();
            }
        }
        assert!(unfinished >= 4, "seed {seed}: {unfinished} failed within a group");
    }
}
