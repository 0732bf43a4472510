//! Nothing that a Cask acknowledged is lost, nothing deleted comes back, wherever the machine dies.
//!
//! Method: one healthy run counts the disk operations of a workload, with rotations, seals, hints, merges and manifests; then one
//! run per operation dies just before it, and what is left is opened and compared with what had been promised. All work is done in the
//! calling thread, so the same failures come in the same order on every machine, without a sleep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use esker::env::sim::{SimDisk, Survivors};
use esker::{Cask, CaskOptions, CaskWriteOptions};
use esker_torture::cask::{Past, Step, TTL_SECONDS_MAX, contents, options, run, steps, verified};
use esker_torture::crash::{Looked, Replay, Tally, disk, images, kill, power_losses};
use esker_torture::seeds;
use fastrand::Rng;

const FILE: &str = "cask_crash";

struct Scene {
    seed: u64,
    options: CaskOptions,
    steps: Vec<Step>,
}

impl Scene {
    fn new(seed: u64, count: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        Self { seed, options: options(&mut random), steps: steps(&mut random, count) }
    }

    /// Creates a store, takes the first half of the steps, closes and reopens it, takes the second, closes it.
    fn play(&self, disk: &SimDisk, past: &mut Past) -> esker::Result<()> {
        let (first, second) = self.steps.split_at(self.steps.len() / 2);
        for half in [first, second] {
            let cask = Cask::open_with_env("/store", self.options.clone(), disk.env())?;
            run(&cask, half, past)?;
            cask.close()?;
            past.all_durable();
        }
        Ok(())
    }

    fn healthy_op_count(&self) -> u64 {
        let disk = disk(self.seed);
        self.play(&disk, &mut Past::new(&disk)).unwrap();
        disk.op_count()
    }
}

/// Opens what a crash left, twice, and compares it with what was promised; and twice again when all that can expire has.
fn verify(disk: &SimDisk, options: &CaskOptions, past: &Past, promised: &BTreeSet<usize>, what: &str) {
    let past = past.seen_from(disk);
    let found = verify_twice(disk, options, &past, promised, what);
    if past.keys.values().flatten().all(|given| given.expires_at.is_none()) {
        return;
    }
    disk.clock().advance(Duration::from_secs(TTL_SECONDS_MAX));
    let left = verify_twice(disk, options, &past, promised, &format!("{what}, later"));
    let revived = left.iter().find(|(key, value)| found.get(*key) != Some(value));
    assert!(revived.is_none(), "{what}: what expired uncovers {revived:?}");
}

fn verify_twice(
    disk: &SimDisk,
    options: &CaskOptions,
    past: &Past,
    promised: &BTreeSet<usize>,
    what: &str,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut first = None;
    for attempt in ["first", "second"] {
        let cask = Cask::open_with_env("/store", options.clone(), disk.env())
            .unwrap_or_else(|error| panic!("{what}: {attempt} open: {error}"));
        assert!(cask.recovery().damage.is_empty(), "{what}: {:?}", cask.recovery());
        let found = verified(&cask, past, promised).unwrap_or_else(|wrong| panic!("{what}: {attempt} open: {wrong}"));
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {attempt} open: {:?}", check.errors);
        assert!(*first.get_or_insert_with(|| found.clone()) == found, "{what}: the second open finds something else");
        cask.compact().unwrap_or_else(|error| panic!("{what}: merging: {error}"));
        assert!(contents(&cask).unwrap() == found, "{what}: {attempt} open: a merge changed the contents");
        cask.close().unwrap();
    }
    first.unwrap()
}

fn die_everywhere(replay: Replay, scene: &Scene, stride: u64, tally: &Tally) {
    let (ops, looked) = (scene.healthy_op_count(), Looked::default());
    for n in (replay.seed % stride..ops).step_by(stride as usize) {
        let disk = disk(scene.seed);
        kill(&disk, n);
        let mut past = Past::new(&disk);
        let _ = scene.play(&disk, &mut past);
        for image in images(&disk, n) {
            let what = format!("{replay}: died at operation {n} of {ops}, {}", image.name);
            let promised = past.promised(image.promise);
            looked.at(&image, promised, || {
                verify(&image.disk, &scene.options, &past, promised, &what);
                promised.clone()
            });
            tally.image();
        }
    }
}

/// Goal: an acknowledged write survives the death of the process, a synced one power loss, wherever either strikes; a batch
/// is there whole or not at all; the ledger is exact after every recovery; the second open finds what the first did.
#[test]
fn acknowledged_writes_survive_death_at_every_operation() {
    let test = "acknowledged_writes_survive_death_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        die_everywhere(Replay { file: FILE, test, seed }, &Scene::new(seed, 45), 1, &tally);
    }
}

/// The same for longer lives with many merges, dying at every 29th operation.
#[test]
fn long_lives_survive_death() {
    let test = "long_lives_survive_death";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        die_everywhere(Replay { file: FILE, test, seed }, &Scene::new(100 + seed, 200), 29, &tally);
    }
}

/// Goal: recovery is itself safe: it may die at each of its operations, again and again, and loses nothing.
#[test]
fn recovery_survives_death_at_every_operation() {
    let test = "recovery_survives_death_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let scene = Scene::new(200 + seed, 60);
        let disk = disk(scene.seed);
        disk.die_after(scene.healthy_op_count() * 3 / 4);
        let mut past = Past::new(&disk);
        let _ = scene.play(&disk, &mut past);
        let (crashed, looked) = (disk.after_power_loss(Survivors::Sample { seed }), Looked::default());
        for n in 0.. {
            let again = crashed.after_process_death();
            kill(&again, n);
            let opened = Cask::open_with_env("/store", scene.options.clone(), again.env());
            let whole = opened.is_ok() && !again.is_dead();
            drop(opened);
            for image in power_losses(&again, n) {
                let what = format!("{replay}: recovery died at its operation {n}, {}", image.name);
                looked.at(&image, &past.durable, || {
                    verify(&image.disk, &scene.options, &past, &past.durable, &what);
                    past.durable.clone()
                });
                tally.image();
            }
            if whole {
                break;
            }
        }
    }
}

/// Goal: what an open has cut off stays cut off under what is written next, also if the process died before that was synced, so that the next open
/// finds nothing to cut: a lost record does not come back behind a new one, nor over a synced one that was given its version.
#[test]
fn what_was_cut_off_stays_cut_off_though_the_open_that_cut_it_died() {
    let options = CaskOptions {
        create_if_missing: true,
        background_jobs: 0,
        open_threads: 0,
        stripes: 2,
        file_bytes: 64 << 10,
        ..CaskOptions::default()
    };
    let open = |disk: &SimDisk| Cask::open_with_env("/store", options.clone(), disk.env());
    let to = |stripe, sync| CaskWriteOptions { stripe: Some(stripe), sync, ..CaskWriteOptions::default() };
    // Up to the end of a sector; and a sector.
    let (first, next) = ([1; 459], [7; 491]);
    for is_closed in [false, true] {
        let disk = SimDisk::new();
        let mut cask = open(&disk).unwrap();
        cask.put_with("a", first, &to(0, true)).unwrap();
        if is_closed {
            cask.close().unwrap();
            cask = open(&disk).unwrap();
        }
        for key in ["b", "c", "k"] {
            cask.put_with(key, next, &to(0, false)).unwrap();
        }
        std::mem::forget(cask);
        let path = std::path::Path::new("/store/000001.data");
        let lacks_first_alone = |disk: &SimDisk| {
            let sectors = disk.file_bytes(path).unwrap();
            [1, 2, 3].map(|n| sectors.chunks(512).nth(n).is_some_and(|raw| raw.contains(&7))) == [false, true, true]
        };
        let mut lost = (0..).map(|seed| disk.after_power_loss(Survivors::Sample { seed }));
        let crashed = lost.find(lacks_first_alone).unwrap();
        for n in 0.. {
            let disk = crashed.after_process_death();
            disk.die_after(n);
            let is_whole = open(&disk).is_ok_and(|cask| {
                std::mem::forget(cask);
                !disk.is_dead()
            });
            let disk = disk.after_process_death();
            let cask = open(&disk).unwrap();
            cask.put_with("x", next, &to(0, false)).unwrap();
            cask.put_with("k", "new", &to(1, true)).unwrap();
            std::mem::forget(cask);
            for seed in 0..20 {
                let what = format!("closed {is_closed}, died at operation {n} of an open, sample {seed}");
                let cask = open(&disk.after_power_loss(Survivors::Sample { seed })).unwrap();
                assert_eq!(cask.get("k").unwrap().unwrap(), *b"new", "{what}");
                assert!(cask.get("c").unwrap().is_none(), "{what}: what was lost is back");
                assert_eq!(cask.get("a").unwrap().unwrap(), first, "{what}");
            }
            if is_whole {
                break;
            }
        }
    }
}
