//! Nothing acknowledged is lost, wherever the machine dies.
//!
//! Method of all tests here: one healthy run counts the disk operations of a workload; then one run per operation dies
//! just before it, and what is left is opened and compared with what had been promised. Background work runs in the
//! calling thread, so the same failures come in the same order on every machine, without a sleep.

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{Compression, Db, FamilyOptions, Options, ReclaimMode, Separation, Stats, WriteOptions};
use esker_torture::crash::{Looked, Replay, Tally, disk, images, kill, power_losses};
use esker_torture::model::{Model, Op, contents};
use esker_torture::workload::{Ledger, Step, run, steps};
use esker_torture::{options, seeds};
use fastrand::Rng;

const FILE: &str = "crash";
const FAMILIES: [&str; 2] = ["default", "reversed"];

struct Scene {
    seed: u64,
    options: Options,
    steps: Vec<Step>,
}

impl Scene {
    fn new(seed: u64, step_count: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let options = options::store_anywhere(&mut random, &FAMILIES, 0);
        let steps = steps(&mut random, &FAMILIES, step_count);
        Self { seed, options, steps }
    }

    /// Creates a store, runs the first half, closes and reopens it, runs the second half, closes it. Ends at the first failure.
    /// Returns what the second half did.
    fn play(&self, disk: &SimDisk, ledger: &mut Ledger) -> esker::Result<Stats> {
        let (first, second) = self.steps.split_at(self.steps.len() / 2);
        let db = Db::open_with_env("/store", self.options.clone(), disk.env())?;
        db.create_column_family("reversed", self.options.families["reversed"].clone())?;
        run(&db, first, ledger)?;
        db.close()?;
        ledger.durable = ledger.acknowledged;
        let db = Db::open_with_env("/store", self.options.clone(), disk.env())?;
        run(&db, second, ledger)?;
        let stats = db.stats();
        db.close()?;
        ledger.durable = ledger.acknowledged;
        Ok(stats)
    }

    fn healthy_op_count(&self) -> u64 {
        let disk = disk(self.seed);
        self.play(&disk, &mut Ledger::default()).unwrap();
        disk.op_count()
    }
}

/// Opens what a crash left, twice, and compares it with what was promised. Returns how many batches are there.
fn verify(disk: &SimDisk, options: &Options, ledger: &Ledger, least: usize, what: &str) -> usize {
    let mut start = Model::new();
    start.families.insert("reversed".to_owned(), Default::default());
    let mut kept = None;
    for attempt in ["first", "second"] {
        let db = match Db::open_with_env("/store", options.clone(), disk.env()) {
            Ok(db) => db,
            Err(error) => panic!("{what}: {attempt} open: {error}"),
        };
        let mut found = contents(&db).unwrap_or_else(|error| panic!("{what}: reading: {error}"));
        // The creation of the family may itself have been cut off, but then nothing was written.
        found.families.entry("reversed".to_owned()).or_default();
        let count = ledger.prefix(&start, &found, least).unwrap_or_else(|| {
            panic!(
                "{what}: {attempt} open: {least} of {} batches must survive, found {:?}",
                ledger.batches.len(),
                summary(&found)
            )
        });
        assert_eq!(*kept.get_or_insert(count), count, "{what}: the second open lost what the first had");
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
        db.close().unwrap();
    }
    kept.unwrap()
}

fn summary(model: &Model) -> Vec<(String, usize)> {
    model.families.iter().map(|(name, contents)| (name.clone(), contents.len())).collect()
}

fn die_everywhere(replay: Replay, scene: &Scene, stride: u64, tally: &Tally) {
    let (ops, looked) = (scene.healthy_op_count(), Looked::default());
    for n in (replay.seed % stride..ops).step_by(stride as usize) {
        let disk = disk(scene.seed);
        kill(&disk, n);
        let mut ledger = Ledger::default();
        // Dropped handles find a dead disk: what they fail at is part of the scene.
        let _ = scene.play(&disk, &mut ledger);
        for image in images(&disk, n) {
            let what = format!("{replay}: died at operation {n} of {ops}, {}", image.name);
            let least = ledger.least(image.promise);
            looked.at(&image, &least, || verify(&image.disk, &scene.options, &ledger, least, &what));
            tally.image();
        }
    }
}

/// Goal: an acknowledged batch survives the death of the process, a synced one power loss, wherever either strikes;
/// a batch is there whole or not at all; the second open finds what the first did.
#[test]
fn acknowledged_batches_survive_death_at_every_operation() {
    let test = "acknowledged_batches_survive_death_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        die_everywhere(Replay { file: FILE, test, seed }, &Scene::new(seed, 60), 1, &tally);
    }
}

/// The same for longer lives, with compactions over several levels, dying at every 13th operation.
#[test]
fn long_lives_survive_death() {
    let test = "long_lives_survive_death";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        die_everywhere(Replay { file: FILE, test, seed }, &Scene::new(100 + seed, 250), 13, &tally);
    }
}

/// Goal: reclaim is safe wherever it dies: passes that move values, holes, and files that go, in the background and by hand.
/// Method: large values over few keys, so that most of what is written is garbage soon.
#[test]
fn reclaim_survives_death_at_every_operation() {
    let test = "reclaim_survives_death_at_every_operation";
    let tally = Tally::new(test);
    let (mut relocations, mut punches) = (0, 0);
    let seeds = seeds(4);
    // One seed that runs again may have no work of a kind.
    let is_replay = seeds.end - seeds.start == 1;
    for seed in seeds {
        let mut random = Rng::with_seed(400 + seed);
        let mut options = options::store_anywhere(&mut random, &FAMILIES, 0);
        (options.max_space_amp, options.reclaim_mode) = (1.05, ReclaimMode::Auto);
        (options.punch_holes, options.holes_within_values) = (seed % 2 == 0, seed % 4 == 0);
        for family in options.families.values_mut() {
            family.separation = if seed % 3 == 0 { Separation::AtWrite } else { Separation::AtFlush };
            (family.min_blob_size, family.blob_compression) = (100, Compression::None);
        }
        let step = |random: &mut Rng| match random.u8(..20) {
            0..3 => Step::Flush,
            3 => Step::Compact,
            4 => Step::Reclaim,
            _ => {
                let put = |random: &mut Rng| {
                    let family = FAMILIES[random.usize(..2)].to_owned();
                    Op::Put(family, vec![b'k', random.u8(..4)], vec![random.u8(..); random.usize(5_000..24_000)])
                };
                Step::Write((0..random.usize(1..3)).map(|_| put(random)).collect(), random.bool())
            }
        };
        let scene = Scene { seed, options, steps: (0..45).map(|_| step(&mut random)).collect() };
        let stats = scene.play(&disk(seed), &mut Ledger::default()).unwrap();
        relocations += stats.relocations;
        punches += stats.punches;
        die_everywhere(Replay { file: FILE, test, seed }, &scene, 3, &tally);
    }
    assert!(is_replay || relocations > 5 && punches > 2, "the scene does what it is for: {relocations}, {punches}");
}

/// Goal: recovery is itself safe: it may die at each of its operations, again and again, and loses nothing.
#[test]
fn recovery_survives_death_at_every_operation() {
    let test = "recovery_survives_death_at_every_operation";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        let replay = Replay { file: FILE, test, seed };
        let scene = Scene::new(200 + seed, 80);
        let disk = disk(scene.seed);
        // In the midst of the second half, with a log full of writes.
        disk.die_after(scene.healthy_op_count() * 3 / 4);
        let mut ledger = Ledger::default();
        let _ = scene.play(&disk, &mut ledger);
        let (crashed, looked) = (disk.after_power_loss(Survivors::Sample { seed }), Looked::default());
        let mut n = 0;
        loop {
            let again = crashed.after_process_death();
            kill(&again, n);
            let opened = Db::open_with_env("/store", scene.options.clone(), again.env());
            let whole = opened.is_ok();
            drop(opened);
            for image in power_losses(&again, n) {
                let what = format!("{replay}: recovery died at its operation {n}, {}", image.name);
                let look = || verify(&image.disk, &scene.options, &ledger, ledger.durable, &what);
                looked.at(&image, &ledger.durable, look);
                tally.image();
            }
            if whole && !again.is_dead() {
                break;
            }
            n += 1;
        }
        assert!(n > 5, "a recovery has operations to die at");
    }
}

/// Goal: a log's name is durable before a synced write goes into it. Usually the flush that follows would see to that; here it
/// fails.
#[test]
fn a_synced_write_into_a_new_log_survives_though_the_flush_before_it_failed() {
    let synced = WriteOptions { sync: true, ..WriteOptions::default() };
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, write_buffer_count_max: 8, ..FamilyOptions::default() };
    let options = Options {
        create_if_missing: true,
        background_jobs: 0,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    };
    let key = |index: u32| index.to_be_bytes();
    let fill = |disk: &SimDisk| {
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        disk.set_tracing(true);
        // Until the first table is begun, in whose place the faulty run has no room.
        let failed = (0..1000u32).find(|&index| {
            let put = db.put(key(index), [7; 1000]);
            put.is_err() || disk.trace().iter().any(|line| line.contains("create") && line.ends_with(".sst"))
        });
        (db, failed.unwrap())
    };
    let healthy = SimDisk::new();
    fill(&healthy).0.close().unwrap();
    let trace = healthy.trace();
    let begun = trace.iter().find(|line| line.contains("create") && line.ends_with(".sst")).unwrap();
    let begun = begun.split(' ').next().unwrap().parse().unwrap();

    let disk = SimDisk::new();
    disk.fail_at(begun, Fault::NoSpace);
    let (db, failed) = fill(&disk);
    assert!(disk.trace().iter().any(|line| line.contains(".log") && line.contains("create")), "a new log was begun");
    db.put_cf(&db.default_column_family(), "last", "synced", &synced).unwrap();
    assert!(!disk.trace().iter().any(|line| line.contains("create") && line.ends_with(".sst")), "no flush since");

    let image = disk.after_power_loss(Survivors::Nothing);
    let db = Db::open_with_env("/store", options, image.env()).unwrap();
    assert_eq!(db.get("last").unwrap().as_deref(), Some(&b"synced"[..]));
    for index in 0..failed {
        assert_eq!(db.get(key(index)).unwrap().as_deref(), Some(&[7; 1000][..]), "the log before was synced");
    }
}
