//! Nothing that the Raft log acknowledged is lost, wherever the machine dies.
//!
//! Method: one healthy run counts the disk operations of a workload; then one run per operation dies just before it, and
//! what is left is opened and compared with what had been promised.

use esker::RaftLog;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::raft::{Options, RecoveryMode};
use esker_torture::crash::{Looked, Replay, Tally, disk, images, kill, operations, power_losses};
use esker_torture::raft::{Contents, Group, Ledger, Op, Step, contents, options, steps};
use esker_torture::seeds;
use fastrand::Rng;

const FILE: &str = "raft_crash";

struct Scene {
    seed: u64,
    options: Options,
    steps: Vec<Step>,
}

impl Scene {
    fn new(seed: u64, step_count: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options(&mut random);
        Self { seed, options, steps: steps(&mut random, step_count) }
    }

    /// Runs the first half, closes and reopens, runs the second half, closes. Ends at the first failure.
    fn play(&self, disk: &SimDisk, ledger: &mut Ledger) -> esker::Result<()> {
        let (first, second) = self.steps.split_at(self.steps.len() / 2);
        for steps in [first, second] {
            let log = RaftLog::open_with_env("/log", self.options.clone(), disk.env())?;
            for step in steps {
                // Whatever is refused on a dying disk may have got in.
                let (issued, batch) = (ledger.batches.len(), ledger.batch_of(step));
                if let Err(error) = ledger.step(&log, step) {
                    if ledger.batches.len() == issued {
                        ledger.batches.extend(batch);
                    }
                    return Err(error);
                }
            }
            log.close()?;
            ledger.durable = ledger.acknowledged;
        }
        Ok(())
    }

    fn healthy_op_count(&self) -> u64 {
        let disk = disk(self.seed);
        self.play(&disk, &mut Ledger::default()).unwrap();
        disk.op_count()
    }
}

/// Opens what a crash left, twice, and compares it with what was promised. Returns how many batches are there.
fn verify(disk: &SimDisk, options: &Options, ledger: &Ledger, least: usize, what: &str) -> usize {
    let mut kept = None;
    for attempt in ["first", "second"] {
        let log = RaftLog::open_with_env("/log", options.clone(), disk.env())
            .unwrap_or_else(|error| panic!("{what}: {attempt} open: {error}"));
        let found = contents(&log).unwrap_or_else(|error| panic!("{what}: reading: {error}"));
        let Some(count) = ledger.prefix(&found, least) else {
            panic!("{what}: {least} of {} must survive; found {}", ledger.batches.len(), summary(&found))
        };
        let expected = ledger.after(*kept.get_or_insert(count));
        assert!(expected == found, "{what}: the second open found something else");
        log.close().unwrap();
    }
    kept.unwrap()
}

/// Each group's indexes and keys.
fn summary(contents: &Contents) -> String {
    let entries = |group: &Group| group.entries.keys().next().copied().zip(group.entries.keys().next_back().copied());
    let keys =
        |group: &Group| group.keys.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>();
    contents.iter().map(|(id, group)| format!("{id}: {:?} {:?}; ", entries(group), keys(group))).collect()
}

fn die_everywhere(replay: Replay, scene: &Scene, stride: u64, tally: &Tally) {
    let (ops, looked) = (scene.healthy_op_count(), Looked::default());
    for n in (replay.seed % stride..ops).step_by(stride as usize) {
        let disk = disk(scene.seed);
        kill(&disk, n);
        let mut ledger = Ledger::default();
        let _ = scene.play(&disk, &mut ledger);
        for image in images(&disk, n) {
            let what = format!("{replay}: died at operation {n} of {ops}, {}", image.name);
            let least = ledger.least(image.promise);
            looked.at(&image, &least, || verify(&image.disk, &scene.options, &ledger, least, &what));
            tally.image();
        }
    }
}

/// Goal: an acknowledged batch survives the death of the process, a synced one power loss, wherever either strikes; a
/// batch is there whole or not at all; purging loses nothing and brings nothing back.
#[test]
fn acknowledged_batches_survive_death_at_every_operation() {
    let test = "acknowledged_batches_survive_death_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(5) {
        die_everywhere(Replay { file: FILE, test, seed }, &Scene::new(seed, 60), 1, &tally);
    }
}

/// The same for longer lives, dying at every 11th operation.
#[test]
fn long_lives_survive_death() {
    let test = "long_lives_survive_death";
    let tally = Tally::new(test);
    for seed in seeds(8) {
        die_everywhere(Replay { file: FILE, test, seed }, &Scene::new(100 + seed, 250), 11, &tally);
    }
}

/// Goal: recovery is itself safe: it may die at each of its operations, and loses nothing.
#[test]
fn recovery_survives_death_at_every_operation() {
    let test = "recovery_survives_death_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let scene = Scene::new(200 + seed, 80);
        let disk = disk(scene.seed);
        disk.die_after(scene.healthy_op_count() * 3 / 4);
        let mut ledger = Ledger::default();
        let _ = scene.play(&disk, &mut ledger);
        let (crashed, looked) = (disk.after_power_loss(Survivors::Sample { seed }), Looked::default());
        for n in 0.. {
            let again = crashed.after_process_death();
            kill(&again, n);
            let opened = RaftLog::open_with_env("/log", scene.options.clone(), again.env());
            let whole = opened.is_ok();
            drop(opened);
            for image in power_losses(&again, n) {
                let what = format!("{replay}: recovery died at its operation {n}, {}", image.name);
                let look = || verify(&image.disk, &scene.options, &ledger, ledger.durable, &what);
                looked.at(&image, &ledger.durable, look);
                tally.image();
            }
            if whole && !again.is_dead() {
                assert!(n > 1, "a recovery has operations to die at");
                break;
            }
        }
    }
}

/// Lives on what a process left that died, and looks at what of that a loss of power takes.
fn live_on(disk: &SimDisk, options: &Options, n: u64, what: &str, tally: &Tally) {
    let log = RaftLog::open_with_env("/log", options.clone(), disk.env())
        .unwrap_or_else(|error| panic!("{what}: second life: {error}"));
    let mut ledger = Ledger::found(&contents(&log).unwrap());
    let put =
        |round: u8| Step::Write(vec![Op::Put(1 + u64::from(round % 3), vec![b's'], vec![round; 300])], round == 3);
    let lives = [vec![Step::Sync], (0..12).map(put).collect(), vec![Step::Sync, Step::Purge]];
    for steps in lives {
        for step in &steps {
            ledger.step(&log, step).unwrap_or_else(|error| panic!("{what}: second life: {step:?}: {error}"));
        }
        // While it is open: to close it would be to sync it.
        for image in power_losses(disk, n) {
            let what = format!("{what}, lived on, then {}", image.name);
            verify(&image.disk, options, &ledger, ledger.durable, &what);
            tally.image();
        }
    }
}

/// A group is moved on, then cleaned, and what says so is given up.
fn cleaned_after_it_was_moved() -> Scene {
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 2 << 10, recovery_threads: 1, ..Options::default() };
    let fill =
        |from: u64| (from..from + 8).map(|index| Step::Write(vec![Op::Entries(9, index, vec![vec![7; 400]])], false));
    let written = Step::Write(vec![Op::Entries(7, 1, vec![vec![1; 9]]), Op::Put(7, vec![b'k'], vec![2; 9])], false);
    let forget = |index: u64| Step::Write(vec![Op::Compact(9, index)], false);
    let first = std::iter::once(written).chain(fill(1)).chain([forget(9), Step::MoveOn, Step::Sync]);
    let second =
        std::iter::once(Step::Write(vec![Op::Clean(7)], false)).chain(fill(9)).chain([forget(17), Step::Purge]);
    Scene { seed: 0, options, steps: first.chain(second).collect() }
}

/// Goal: what a process that died left to the system alone is nothing to build on: what the next one promises survives the loss of power,
/// files and names that it only found included. A sync of these that fails is told to the one after it.
#[test]
fn what_a_dead_process_left_unsynced_costs_the_next_life_nothing() {
    let test = "what_a_dead_process_left_unsynced_costs_the_next_life_nothing";
    let tally = Tally::new(test);
    for seed in seeds(5) {
        let replay = Replay { file: FILE, test, seed };
        let scene = if seed == 0 { cleaned_after_it_was_moved() } else { Scene::new(900 + seed, 60) };
        for n in 0..scene.healthy_op_count() {
            let disk = disk(scene.seed);
            kill(&disk, n);
            let _ = scene.play(&disk, &mut Ledger::default());
            let what = format!("{replay}: died at operation {n}");
            live_on(&disk.after_process_death(), &scene.options, n, &what, &tally);
            if n % 4 != seed % 4 {
                continue;
            }
            let opened = disk.after_process_death();
            opened.set_tracing(true);
            let log = RaftLog::open_with_env("/log", scene.options.clone(), opened.env()).unwrap();
            for sync in operations(&opened, 0, "sync") {
                let disk = disk.after_process_death();
                disk.fail_at(sync, Fault::Eio);
                let refused = RaftLog::open_with_env("/log", scene.options.clone(), disk.env()).map(drop);
                assert!(refused.is_err(), "{what}: sync {sync} of the next open fails");
                live_on(&disk, &scene.options, n, &format!("{what}, sync {sync} of an open fails"), &tally);
                tally.fault();
            }
            drop(log);
        }
    }
}

/// Goal: of recycled files no batch of an earlier life comes back, though the old batches lie exactly where new ones go.
/// Method: batches of one length in files of one length, given up and written over again and again; the machine dies within
/// and before every operation.
#[test]
fn stale_bytes_of_recycled_files_never_come_back() {
    let options = Options {
        file_bytes: 1 << 10,
        purge_threshold_bytes: 2 << 10,
        compress_from_bytes: 0,
        recovery_threads: 1,
        ..Options::default()
    };
    // Nobody needs what is behind the last two entries, so purging gives whole files up.
    let step = |index: u64| {
        let entry = vec![b'a' + (index % 20) as u8; 90];
        vec![Op::Entries(7, 100 + index, vec![entry]), Op::Compact(7, 99 + index)]
    };
    let play = |disk: &SimDisk, ledger: &mut Ledger| -> esker::Result<u64> {
        let log = RaftLog::open_with_env("/log", options.clone(), disk.env())?;
        let mut recycled = 0;
        for index in 0..60 {
            let written = Step::Write(step(index), index % 4 == 0);
            let issued = ledger.batches.len();
            if let Err(error) = ledger.step(&log, &written) {
                if ledger.batches.len() == issued {
                    ledger.batches.push(step(index));
                }
                return Err(error);
            }
            if index % 6 == 5 {
                ledger.step(&log, &Step::Purge)?;
                recycled += log.stats().recycled_files as u64;
            }
        }
        log.close()?;
        Ok(recycled)
    };
    let disk = SimDisk::new();
    disk.set_tracing(true);
    assert!(play(&disk, &mut Ledger::default()).unwrap() > 5, "files must be given up to be written over");
    // As `create` would say otherwise.
    let renamed = disk.trace().iter().filter(|line| line.contains(" rename ")).count();
    let cut = disk.trace().iter().filter(|line| line.contains(" truncate ")).count();
    assert!(renamed > 5 && cut == 0, "{renamed} renamed, {cut} cut to nothing");
    for n in 0..disk.op_count() {
        for within in [None, Some(8..60), Some(60..200)] {
            let disk = SimDisk::new();
            match within.clone() {
                None => disk.die_after(n),
                Some(kept) => disk.die_within(n, kept),
            }
            let mut ledger = Ledger::default();
            let _ = play(&disk, &mut ledger);
            let what = format!("died at operation {n}, within {within:?}");
            verify(&disk.after_process_death(), &options, &ledger, ledger.acknowledged, &what);
            for seed in 0..3 {
                let image = disk.after_power_loss(Survivors::Sample { seed: n * 3 + seed });
                verify(&image, &options, &ledger, ledger.durable, &format!("{what}, sample {seed}"));
            }
            // Between batches a crash of the process leaves no damage, recycled or not.
            let strict = Options { recovery_mode: RecoveryMode::AbsoluteConsistency, ..options.clone() };
            if within.is_none() {
                verify(&disk.after_process_death(), &strict, &ledger, ledger.acknowledged, &what);
            }
        }
    }
}
