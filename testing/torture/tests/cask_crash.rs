//! Nothing that a Cask acknowledged is lost, nothing deleted comes back, wherever the machine dies.
//!
//! Method: one healthy run counts the disk operations of a workload, with rotations, seals, hints, merges and manifests; then one
//! run per operation dies just before it, and what is left is opened and compared with what had been promised. All work is done in the
//! calling thread, so the same failures come in the same order on every machine, without a sleep.

use std::collections::BTreeSet;

use esker::env::sim::{SimDisk, Survivors};
use esker::{Cask, CaskOptions};
use esker_torture::cask::{Past, Step, contents, options, run, steps};
use esker_torture::seeds;
use fastrand::Rng;

struct Scene {
    options: CaskOptions,
    steps: Vec<Step>,
}

impl Scene {
    fn new(seed: u64, count: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        Self { options: options(&mut random), steps: steps(&mut random, count) }
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
        let disk = SimDisk::new();
        self.play(&disk, &mut Past::default()).unwrap();
        disk.op_count()
    }
}

/// Opens what a crash left, twice, and compares it with what was promised.
fn verify(disk: &SimDisk, options: &CaskOptions, past: &Past, promised: &BTreeSet<usize>, what: &str) {
    let mut first = None;
    for attempt in ["first", "second"] {
        let cask = Cask::open_with_env("/store", options.clone(), disk.env())
            .unwrap_or_else(|error| panic!("{what}: {attempt} open: {error}"));
        assert!(cask.recovery().damage.is_empty(), "{what}: {:?}", cask.recovery());
        let found = contents(&cask).unwrap_or_else(|error| panic!("{what}: reading: {error}"));
        past.verify(&found, promised).unwrap_or_else(|wrong| panic!("{what}: {attempt} open: {wrong}"));
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {attempt} open: {:?}", check.errors);
        assert!(*first.get_or_insert_with(|| found.clone()) == found, "{what}: the second open finds something else");
        cask.compact().unwrap_or_else(|error| panic!("{what}: merging: {error}"));
        assert!(contents(&cask).unwrap() == found, "{what}: {attempt} open: a merge changed the contents");
        cask.close().unwrap();
    }
}

fn die_everywhere(seed: u64, count: usize, stride: u64) {
    let scene = Scene::new(seed, count);
    let ops = scene.healthy_op_count();
    for n in (seed % stride..ops).step_by(stride as usize) {
        let disk = SimDisk::new();
        disk.die_after(n);
        let mut past = Past::default();
        let _ = scene.play(&disk, &mut past);
        let what = |image: &str| format!("ESKER_SEED={seed}, died before operation {n} of {ops}, {image}");
        let image = disk.after_process_death();
        verify(&image, &scene.options, &past, &past.acknowledged, &what("process death"));
        for (image, survivors) in [
            ("nothing unsynced survives", Survivors::Nothing),
            ("everything survives", Survivors::Everything),
            ("a sample survives", Survivors::Sample { seed: n }),
            ("another sample survives", Survivors::Sample { seed: n ^ 0xabcd_ef01 }),
        ] {
            verify(&disk.after_power_loss(survivors), &scene.options, &past, &past.durable, &what(image));
        }
    }
}

/// Goal: an acknowledged write survives the death of the process, a synced one power loss, wherever either strikes; a batch
/// is there whole or not at all; the ledger is exact after every recovery; the second open finds what the first did.
#[test]
fn acknowledged_writes_survive_death_before_every_operation() {
    for seed in seeds(4) {
        die_everywhere(seed, 45, 1);
    }
}

/// The same for longer lives with many merges, dying at every 29th operation.
#[test]
fn long_lives_survive_death() {
    for seed in seeds(10) {
        die_everywhere(100 + seed, 200, 29);
    }
}

/// Goal: recovery is itself safe: it may die at each of its operations, again and again, and loses nothing.
#[test]
fn recovery_survives_death_before_every_operation() {
    for seed in seeds(8) {
        let scene = Scene::new(200 + seed, 60);
        let disk = SimDisk::new();
        disk.die_after(scene.healthy_op_count() * 3 / 4);
        let mut past = Past::default();
        let _ = scene.play(&disk, &mut past);
        let crashed = disk.after_power_loss(Survivors::Sample { seed });
        for n in 0.. {
            let again = crashed.after_process_death();
            again.die_after(n);
            let opened = Cask::open_with_env("/store", scene.options.clone(), again.env());
            let whole = opened.is_ok() && !again.is_dead();
            drop(opened);
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                let what = format!("ESKER_SEED={seed}: recovery died before its operation {n}");
                verify(&again.after_power_loss(survivors), &scene.options, &past, &past.durable, &what);
            }
            if whole {
                break;
            }
        }
    }
}
