//! Several threads at work on one Raft log, whatever its options, through several lives of it: what each has written it reads, at any moment, and
//! finds again.
//!
//! - `ledger`: what a thread knows of its groups;
//! - `writer`: a thread that writes to groups that only it writes to, and reads them;
//! - `upkeep`: what goes on beside it;
//! - `life`: how a life of the log ends, what may fail in it, and how the disk fills up.
//!
//! Threads come in any order, so a seed repeats options, workloads and endings, not the runs.

mod ledger;
mod life;
mod upkeep;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use esker::RaftLog;
use esker::env::Env;
use esker::env::sim::{SimDisk, Survivors};
use esker::raft::{ErrorKind, Options, RecoveryMode, Result, Version};
use esker_torture::crash::{Promise, Replay, disk, images, kept_by_reopening};
use esker_torture::lives::through_seeds;
use esker_torture::raft::{Contents, contents};
use fastrand::Rng;

use ledger::{Known, WRITERS, part, summary};
use life::{Ending, Life, Moment, Tide};
use writer::Writer;

/// Lives of a log.
const LIVES: u32 = 6;
/// Steps of each thread that writes, in each life.
const STEPS: usize = 1000;
/// Threads that do something else, and their steps.
const UPKEEPERS: u64 = 2;
const UPKEEP_STEPS: usize = 100;
/// How often a thread writes to see that the log is full, or that it is not.
const TRIES: usize = 20;
/// What the lives of a log share.
struct Log {
    has_spill: bool,
    value_bytes: usize,
    /// Some file may have another name.
    is_forked: bool,
    /// Calls failed, in this life or one before.
    had_trouble: bool,
}

/// What a life leaves to the next.
struct Left {
    disk: SimDisk,
    promise: Promise,
    is_full: bool,
}

impl Log {
    fn any_options(&self, random: &mut Rng) -> Options {
        let file_bytes = 1 << [10, 11, 12, 14, 16, 18, 20][random.usize(..7)];
        let recycle_files = random.u8(..3) > 0;
        Options {
            spill_dir: self.has_spill.then(|| "/spill".into()),
            recovery_mode: [RecoveryMode::TolerateTail, RecoveryMode::TolerateAny][random.usize(..2)],
            recovery_threads: random.usize(1..4),
            compress_from_bytes: [0, 1, 100, 8 << 10][random.usize(..4)],
            format_version: if recycle_files || random.bool() { Version::V2 } else { Version::V1 },
            file_bytes,
            purge_threshold_bytes: file_bytes * random.u64(1..6),
            purge_rewrite_threshold_bytes: random.bool().then(|| random.u64(..2 * file_bytes)),
            purge_rewrite_garbage_ratio: [0.0, 0.3, 0.6, 0.9][random.usize(..4)],
            cache_bytes: [0, 1 << 10, 64 << 10, 32 << 20][random.usize(..4)],
            group_quota_bytes: random.bool().then(|| random.u64(..8 * file_bytes)),
            purge_interval: random.bool().then_some(Duration::from_millis(1)),
            recycle_files,
            prefill_bytes: if recycle_files && random.bool() { random.u64(..4 * file_bytes) } else { 0 },
            ..Options::default()
        }
    }

    /// A life that begins with what `known` says, as far as it was kept. What the next one finds.
    fn live(&mut self, mut life: Life, left: Left, known: &mut [Known], random: &mut Rng) -> Left {
        life.disk = left.disk;
        life.value_bytes = self.value_bytes;
        let is_limited = !matches!(life.ending, Ending::Trouble(..)) && random.u8(..3) == 0;
        life.tide = is_limited.then(|| Tide::new(left.is_full, random.fork()));
        if random.bool() {
            self.assert_sound(&life, &life.disk.env(), "/log", "before it is opened");
        }
        let log = self.open(&life, life.env(), "opened").unwrap_or_else(|| {
            life.disk.set_capacity(None);
            self.open(&life, life.env(), "opened").expect("room")
        });
        let found = self.compare(&life, &log, known, left.promise, "opened");
        known.iter_mut().zip(found).for_each(|(known, found)| known.begin_life(found));
        life.done.iter().for_each(|done| done.store(1, Ordering::Release));
        life.arm();
        run_threads(&log, &life, known, random);
        self.had_trouble |= matches!(life.ending, Ending::Trouble(..));
        self.is_forked |= life.forks.load(Ordering::Relaxed) > 0;
        if !life.disk.is_dead() {
            goes_on(&log, &life, known, random);
        }
        let left = self.end(log, &life, known);
        let moments = std::mem::take(&mut *life.moments.lock().unwrap());
        moments.into_iter().for_each(|moment| self.look_at_fork(&life, &left.disk, moment, known));
        left
    }

    /// Opens what is in the directory; `None` if the disk is full, and the last file, which a fork shares, is to be copied.
    fn open(&self, life: &Life, env: Env, doing: &str) -> Option<RaftLog> {
        match RaftLog::open_with_env("/log", life.options.clone(), env) {
            Err(error) if self.is_forked && error.kind() == ErrorKind::Exhausted => None,
            opened => Some(opened.unwrap_or_else(|error| panic!("{life}: {doing}: {:?}: {error}", error.kind()))),
        }
    }

    /// What was found, by thread: it is what may be there of the writes that `known` tells of.
    fn compare(&self, life: &Life, log: &RaftLog, known: &[Known], promise: Promise, doing: &str) -> Vec<Contents> {
        let recovery = log.recovery();
        assert!(self.had_trouble || recovery.stale.is_empty(), "{life}: {doing}: {recovery:?}");
        assert!(recovery.missing.is_empty(), "{life}: {doing}: {recovery:?}");
        let found = contents(log).unwrap_or_else(|error| panic!("{life}: {doing}: {error}"));
        let parts: Vec<Contents> = (0..known.len()).map(|owner| part(&found, owner)).collect();
        for (owner, (known, found)) in known.iter().zip(&parts).enumerate() {
            let is_there = known.ledger.prefix(found, known.ledger.least(promise)).is_some();
            assert!(is_there, "{life}: {doing}: {}", missing(owner, found, known, known.ledger.least(promise)));
        }
        parts
    }

    /// A check finds nothing wrong with what nobody has open, nor torn where it was closed.
    fn assert_sound(&self, life: &Life, env: &Env, path: &str, doing: &str) {
        let check = match RaftLog::check_with_env(path, &life.options, env, &mut |_, _| {}) {
            Err(error) if error.kind() == ErrorKind::NotFound && life.number == 0 => return,
            check => check.unwrap_or_else(|error| panic!("{life}: {doing}: {error}")),
        };
        let is_whole = check.torn.is_empty() || !matches!(life.before, Ending::Close | Ending::CloseAndPowerLoss);
        let is_sound = check.is_sound() || self.had_trouble && check.errors.is_empty() && check.gaps.is_empty();
        assert!(is_whole && is_sound && check.lost.is_empty(), "{life}: {doing}: {check:?}");
    }

    /// The machine dies, if it has not: each of the disks that this may leave has what was promised.
    fn look_at_images(&self, life: &Life, known: &[Known]) {
        life.disk.die_after(0);
        for image in images(&life.disk, life.replay.seed << 8 | u64::from(life.number)) {
            self.look_at_image(life, known, &image.disk, image.promise, &image.name);
        }
    }

    fn look_at_image(&self, life: &Life, known: &[Known], disk: &SimDisk, promise: Promise, name: &str) {
        let before = RaftLog::check_with_env("/log", &life.options, &disk.env(), &mut |_, _| {});
        let before = before.unwrap_or_else(|error| panic!("{life}: {name}: {error}"));
        let is_sound = before.errors.is_empty() && before.gaps.is_empty() && before.lost.is_empty();
        assert!(is_sound, "{life}: {name}: {before:?}");
        if let Some(log) = self.open(life, disk.env(), name) {
            self.compare(life, &log, known, promise, name);
        }
    }

    /// Ends it. What is left, and what of the writes is promised to be there.
    fn end(&self, log: RaftLog, life: &Life, known: &[Known]) -> Left {
        let left = |disk: SimDisk, promise| Left { disk, promise, is_full: life.is_full() };
        let by_reopening = |disk: SimDisk| {
            let promise = kept_by_reopening(&disk);
            left(disk, promise)
        };
        match life.ending {
            Ending::Death(_) => {
                self.look_at_images(life, known);
                by_reopening(life.disk.after_process_death())
            }
            Ending::PowerLoss(_, survivors) => {
                self.look_at_images(life, known);
                left(life.disk.after_power_loss(survivors), Promise::Durable)
            }
            Ending::Drop => {
                drop(log);
                by_reopening(life.disk.after_process_death())
            }
            Ending::Close | Ending::CloseAndPowerLoss | Ending::Trouble(..) => {
                let is_closed = life.attempted("closing", || log.close()).is_some();
                let promise = if is_closed { Promise::Acknowledged } else { Promise::Durable };
                match life.ending {
                    Ending::CloseAndPowerLoss if is_closed => {
                        left(life.disk.after_power_loss(Survivors::Nothing), Promise::Acknowledged)
                    }
                    // Where a sync and its warning failed, only a restart of the machine makes files trustworthy.
                    Ending::Trouble(seed, _) if !life.is_warned() => {
                        left(life.disk.after_power_loss(Survivors::Sample { seed }), promise)
                    }
                    _ => by_reopening(life.disk.after_process_death()),
                }
            }
        }
    }

    /// A fork has all that was written before it was begun, and of the rest the first so many; it is sound.
    fn look_at_fork(&self, life: &Life, disk: &SimDisk, Moment { fork, least, most }: Moment, known: &[Known]) {
        let found = self.contents_of_fork(life, disk, &fork).unwrap_or_else(|error| panic!("{life}: a fork: {error}"));
        for (owner, known) in known.iter().enumerate() {
            let found = part(&found, owner);
            let count = known.ledger.prefix(&found, least[owner]);
            let is_there = count.is_some_and(|count| count <= most[owner]);
            assert!(is_there, "{life}: a fork: {count:?}: {}", missing(owner, &found, known, least[owner]));
        }
    }

    fn contents_of_fork(&self, life: &Life, disk: &SimDisk, path: &Path) -> Result<Contents> {
        let options =
            Options { spill_dir: None, recovery_mode: RecoveryMode::AbsoluteConsistency, ..life.options.clone() };
        // Another machine has its disk.
        let disk = disk.after_process_death();
        disk.set_capacity(None);
        let check = RaftLog::check_with_env(path, &options, &disk.env(), &mut |_, _| {})?;
        assert!(check.is_sound() && check.torn.is_empty() && check.lost.is_empty(), "{life}: a fork: {check:?}");
        contents(&RaftLog::open_with_env(path, options, disk.env())?)
    }
}

fn run_threads(log: &RaftLog, life: &Life, known: &mut [Known], random: &mut Rng) {
    thread::scope(|scope| {
        for (owner, known) in known.iter_mut().enumerate() {
            let writer = Writer { life, log, owner, known, random: random.fork(), is_over: false };
            scope.spawn(move || writer.work(STEPS));
        }
        for _ in 0..UPKEEPERS {
            let mut random = random.fork();
            scope.spawn(move || upkeep::work(life, log, UPKEEP_STEPS, &mut random));
        }
    });
}

/// What failed, fails no more, so the log takes writes again, unless it says why it does not. Then the disk may fill up once more.
fn goes_on(log: &RaftLog, life: &Life, known: &mut [Known], random: &mut Rng) {
    life.heal();
    let stats = log.stats();
    if let Some(error) = stats.write_error {
        return assert!(life.has_trouble(), "{life}: {error}");
    }
    assert!(life.has_trouble() || stats.batches > 0, "{life}: nothing went on");
    let mut writes = |is_full: bool| {
        for (owner, known) in known.iter_mut().enumerate() {
            let mut writer = Writer { life, log, owner, known, random: random.fork(), is_over: false };
            let written = (0..TRIES).filter(|_| writer.write()).count();
            assert!(
                is_full || life.disk.is_dead() || written == TRIES,
                "{life}: with nothing in its way, {written} of {TRIES} writes are done"
            );
        }
    };
    writes(false);
    life.attempted("purging with nothing in its way", || log.purge());
    if life.tide.is_some() {
        life.turn_tide(u64::MAX);
        writes(true);
    }
}

fn missing(owner: usize, found: &Contents, known: &Known, least: usize) -> String {
    let count = known.ledger.batches.len();
    let (first, last) = (summary(&known.ledger.after(least)), summary(&known.ledger.after(count)));
    format!("thread {owner} has {}, not what writes {least} to {count} leave, from {first} to {last}", summary(found))
}

fn run(replay: Replay) {
    let mut random = Rng::with_seed(replay.seed);
    let value_bytes = [40, 300, 3000, 20_000][random.usize(..4)];
    let mut log = Log { has_spill: random.u8(..3) == 0, value_bytes, is_forked: false, had_trouble: false };
    let mut known: Vec<Known> = (0..WRITERS).map(|_| Known::default()).collect();
    let mut left = Left { disk: disk(replay.seed), promise: Promise::Acknowledged, is_full: false };
    let mut before = Ending::Close;
    for number in 0..LIVES {
        let ending = if number + 1 == LIVES { Ending::Close } else { Ending::any(&mut random) };
        let life = Life::new(replay, number, (before, ending), log.any_options(&mut random));
        left = log.live(life, left, &mut known, &mut random);
        before = ending;
    }
}

/// Goal: whatever the options of a log, whatever goes on in it, whether or not the disk is full now and then, and however its lives end, each of several
/// threads reads what it has written at any moment; what was promised of its writes is there in the next life, and of the rest the first so many; a full
/// disk keeps the log neither from being read nor from being opened, and once there is room it takes writes again; a check finds nothing, and nobody waits
/// for ever.
#[test]
fn threads_read_what_they_wrote_through_the_lives_of_a_log() {
    let test = "threads_read_what_they_wrote_through_the_lives_of_a_log";
    through_seeds("raft_threads", test, 6, run);
}
