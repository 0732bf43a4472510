//! Several threads at work on one Cask, whatever its options, through several lives of it: what each has written it reads, at any moment, and finds
//! again.
//!
//! - `writer`: a thread that writes keys that only it writes, has a [`Past`] of its own, and reads them;
//! - `upkeep`: what goes on beside those;
//! - `life`: how a life of the store ends, and what may fail in it.
//!
//! Time stands still while anybody writes or looks, so that all know what has expired. Threads come in any order: a seed repeats options, workloads
//! and endings, not the runs.

mod life;
mod upkeep;
mod writer;

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use esker::env::Env;
use esker::env::sim::{SimDisk, Survivors};
use esker::{Cask, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_torture::cask::{Past, contents, options};
use esker_torture::crash::{Promise, Replay, disk, images, kept_by_reopening};
use esker_torture::lives::{CallsLeft, through_seeds};
use fastrand::Rng;

use life::{Ending, Life};
use writer::Writer;

/// Lives of a store.
const LIVES: u32 = 5;
/// Threads that write.
const WRITERS: u8 = 3;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Of a value, what tells it from all others.
fn beginning(value: &[u8]) -> String {
    String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned()
}

impl Life {
    fn open(&self, env: Env, doing: &str) -> Cask {
        let opened = Cask::open_with_env("/store", self.options.clone(), env);
        opened.unwrap_or_else(|error| panic!("{self}: {doing}: {error}"))
    }

    /// A sound store has what is promised of all threads. What there is, by thread.
    fn verify(&self, cask: &Cask, disk: &SimDisk, pasts: &[Past], promise: Promise, doing: &str) -> Vec<Contents> {
        let check = cask.check(&mut |_| {}).unwrap_or_else(|error| panic!("{self}: {doing}: {error}"));
        assert!(check.errors.is_empty(), "{self}: {doing}: {:?}", check.errors);
        let all = contents(cask).unwrap_or_else(|error| panic!("{self}: {doing}: {error}"));
        let of = |owner| all.iter().filter(move |(key, _)| key[0] == owner);
        let found: Vec<Contents> =
            (0..WRITERS).map(|owner| of(owner).map(|(key, value)| (key.clone(), value.clone())).collect()).collect();
        for (owner, (past, found)) in pasts.iter().zip(&found).enumerate() {
            let past = past.seen_from(disk);
            let verified = past.verify(found, past.promised(promise));
            verified.unwrap_or_else(|wrong| panic!("{self}: {doing}: thread {owner}: {wrong}"));
        }
        found
    }

    /// A life that begins with what was kept of `pasts`. What the next one finds, and what is promised of it.
    fn live(&self, pasts: &mut [Past], kept: Promise, random: &mut Rng) -> (SimDisk, Promise) {
        let cask = self.open(self.env(), "opened");
        let found = self.verify(&cask, &self.disk, pasts, kept, "opened");
        for (past, found) in pasts.iter_mut().zip(found) {
            *past = past.seen_from(&self.disk).of_next_life(&found);
        }
        self.arm();
        self.run_threads(&cask, pasts, random);
        self.disk.set_capacity(None);
        match self.ending {
            Ending::Death(_) => {
                self.look_at_images(pasts);
                by_reopening(&self.disk)
            }
            Ending::PowerLoss(_, survivors) => {
                self.look_at_images(pasts);
                (self.disk.after_power_loss(survivors), Promise::Durable)
            }
            _ => self.end(cask, pasts),
        }
    }

    fn run_threads(&self, cask: &Cask, pasts: &mut [Past], random: &mut Rng) {
        thread::scope(|scope| {
            for (owner, past) in (0..WRITERS).zip(pasts.iter_mut()) {
                let writer = Writer { life: self, cask, owner, past, random: random.fork() };
                scope.spawn(move || writer.work());
            }
            let (mut watching, mut keeping_up) = (random.fork(), random.fork());
            scope.spawn(move || upkeep::watch(self, cask, &mut watching));
            scope.spawn(move || upkeep::work(self, cask, &mut keeping_up));
        });
    }

    /// The machine dies, if it has not: each of the disks that this may leave has what was promised.
    fn look_at_images(&self, pasts: &[Past]) {
        self.disk.die_after(0);
        for image in images(&self.disk, self.replay.seed << 8 | u64::from(self.number)) {
            let cask = self.open(image.disk.env(), &image.name);
            self.verify(&cask, &image.disk, pasts, image.promise, &image.name);
        }
    }

    /// What failed, fails no more: the store goes on, unless a sync has failed, until it is closed or dropped.
    fn end(&self, cask: Cask, pasts: &[Past]) -> (SimDisk, Promise) {
        self.heal();
        let has_failed = cask.sync().is_err_and(|error| error.kind() == ErrorKind::ReadOnly && self.has_trouble());
        if !has_failed {
            cask.compact().unwrap_or_else(|error| panic!("{self}: it does not go on: {error}"));
            self.verify(&cask, &self.disk, pasts, Promise::Acknowledged, "at the end");
        }
        if self.ending == Ending::Drop {
            drop(cask);
            return by_reopening(&self.disk);
        }
        let closed = cask.close();
        assert!(has_failed || closed.is_ok(), "{self}: closing: {closed:?}");
        match self.ending {
            Ending::CloseAndPowerLoss => (self.disk.after_power_loss(Survivors::Nothing), Promise::Acknowledged),
            // Where a sync and its warning failed, only a restart of the machine makes files trustworthy.
            Ending::Trouble(seed, _) if has_failed && !self.is_warned() => {
                (self.disk.after_power_loss(Survivors::Sample { seed }), Promise::Durable)
            }
            _ => by_reopening(&self.disk),
        }
    }
}

/// What the next process finds where the power stays.
fn by_reopening(disk: &SimDisk) -> (SimDisk, Promise) {
    let left = disk.after_process_death();
    let kept = kept_by_reopening(&left);
    (left, kept)
}

fn any_options(random: &mut Rng) -> CaskOptions {
    let background_jobs = random.usize(..3);
    CaskOptions {
        background_jobs,
        open_threads: random.usize(..3),
        sync_interval_ms: if background_jobs > 0 { [0, 1, 1000][random.usize(..3)] } else { 0 },
        merge_interval_ms: 10,
        ..options(random)
    }
}

fn run(replay: Replay) {
    let mut random = Rng::with_seed(replay.seed);
    let mut left = disk(replay.seed);
    let mut pasts: Vec<Past> = (0..WRITERS).map(|_| Past::new(&left)).collect();
    let (mut kept, mut before) = (Promise::Acknowledged, Ending::Close);
    for number in 0..LIVES {
        let ending = if number + 1 == LIVES { Ending::Close } else { Ending::any(&mut random) };
        let (options, time, calls_left) = (any_options(&mut random), RwLock::default(), CallsLeft::default());
        let life = Life { replay, number, before, ending, options, disk: left, time, calls_left };
        (left, kept) = life.live(&mut pasts, kept, &mut random);
        before = ending;
    }
}

/// Goal: whatever the options of a store, whatever goes on in it and however its lives end, each of several threads reads what it has written, by get,
/// by scan, beside and in copies, at any moment, and nobody sees a value before the one that was seen last; what was promised of its writes is there in
/// the next life, and batches whole or not at all; a check finds nothing, a full disk that has room again is written to, and nobody waits for ever.
#[test]
fn threads_read_what_they_wrote_through_the_lives_of_a_cask() {
    through_seeds("cask_threads", "threads_read_what_they_wrote_through_the_lives_of_a_cask", 3, run);
}

/// Goal: a key whose time is over has no history, at no moment of the merge that takes its versions away.
#[test]
fn history_that_has_ended_is_not_shown_while_it_goes() {
    let disk = SimDisk::new();
    let options = CaskOptions {
        create_if_missing: true,
        stripes: 1,
        keep_versions: 3,
        background_jobs: 0,
        open_threads: 0,
        file_bytes: 1 << 20,
        ..CaskOptions::default()
    };
    let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
    let brief = CaskWriteOptions { ttl: Some(Duration::from_secs(1)), ..CaskWriteOptions::default() };
    for round in 0..20u32 {
        let keys: Vec<[u8; 8]> = (0..300u64).map(|n| (u64::from(round) << 32 | n).to_be_bytes()).collect();
        for key in &keys {
            cask.put(key, "old").unwrap();
            cask.put(key, "older than the last").unwrap();
            cask.put_with(key, "brief", &brief).unwrap();
        }
        disk.clock().advance(Duration::from_secs(5));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (cask, keys, is_done) = (&cask, &keys, &is_done);
            let reader = scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    for key in keys {
                        let found = cask.history(key).unwrap();
                        assert!(found.is_empty(), "{key:?}: {} versions", found.len());
                    }
                }
            });
            cask.compact().unwrap();
            is_done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
    }
}
