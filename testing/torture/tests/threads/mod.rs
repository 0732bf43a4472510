//! Several threads at work on one store, whatever its options, through several lives of it: what each has written it reads, at any moment, and
//! finds again.
//!
//! - `ledger`: what a thread knows of its keys;
//! - `writer`: a thread that writes keys that only it writes, and reads them;
//! - `views`: snapshots and iterators that it holds meanwhile;
//! - `upkeep`: what goes on beside it;
//! - `life`: how a life of the store ends, and what may fail in it.
//!
//! Threads come in any order, so a seed repeats options, workloads and endings, not the runs.
//!
//! Left out is what no ledger can foretell: which keys go with `delete_files_in_range`.

mod ledger;
mod life;
mod upkeep;
mod views;
mod writer;

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

use esker::env::Env;
use esker::env::sim::{SimDisk, Survivors};
use esker::{Db, Options};
use esker_torture::crash::{Promise, Replay, disk, images, kept_by_reopening};
use esker_torture::lives::{CallsLeft, through_seeds};
use esker_torture::options;
use fastrand::Rng;

use ledger::{Ledger, PLACES, Place, State, Stream, WRITERS, part};
use life::{Ending, Life, Moment, Shown};
use writer::Writer;

/// Lives of a store.
const LIVES: u32 = 5;
/// Steps of each thread that writes, in each life.
const STEPS: usize = 800;
/// Threads that do something else, and their steps.
const UPKEEPERS: u64 = 2;
const UPKEEP_STEPS: usize = 60;
/// What is promised of the writes of the life before.
#[derive(Debug, Clone, Copy)]
struct Kept {
    logged: Promise,
    unlogged: Promise,
}

impl Kept {
    const ALL: Self = Self { logged: Promise::Acknowledged, unlogged: Promise::Acknowledged };
    const DURABLE: Self = Self { logged: Promise::Durable, unlogged: Promise::Durable };

    /// What a process has left that did not come to its end.
    fn by_reopening(disk: &SimDisk) -> Self {
        Self { logged: kept_by_reopening(disk), unlogged: Promise::Durable }
    }
}

/// What stays the same in all lives of a store.
struct Store {
    replay: Replay,
    options: Options,
    value_bytes: usize,
}

impl Store {
    fn any(replay: Replay, random: &mut Rng) -> Self {
        let names: Vec<String> = (0..WRITERS).flat_map(|owner| PLACES.map(|place| place.family(owner))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let background_jobs = [0, 1, 2, 4][random.usize(..4)];
        let mut options = options::store_anywhere(random, &names, background_jobs);
        if random.u8(..3) == 0 {
            options.max_disk_bytes = random.u64(3..16) << 20;
        }
        Self { replay, options, value_bytes: [60, 700, 5000, 30_000][random.usize(..4)] }
    }

    fn life(&self, number: u32, before: Ending, ending: Ending, disk: SimDisk) -> Life {
        Life {
            replay: self.replay,
            number,
            before,
            ending,
            disk,
            wal_dir: self.options.wal_dir.clone(),
            is_limited: self.is_limited(),
            value_bytes: self.value_bytes,
            calls_left: CallsLeft::default(),
            done: Default::default(),
            moments: Default::default(),
            has_copied: AtomicBool::new(false),
        }
    }

    fn is_limited(&self) -> bool {
        self.options.max_disk_bytes > 0
    }

    /// A life that begins with what `ledgers` say, as far as it was kept, on `disk`. What the next one finds.
    fn live(&self, life: &Life, ledgers: &mut [Ledger], kept: Kept, random: &mut Rng) -> (SimDisk, Kept) {
        let db = self.open(life, life.env(), "opened");
        let found = self.compare(life, &db, ledgers, kept, "opened");
        ledgers.iter_mut().zip(&found).for_each(|(ledger, found)| ledger.begin_life(found));
        self.make_families(&db, life);
        life.arm();
        self.run_threads(&db, life, ledgers, random);
        life.heal();
        let stats = db.stats();
        assert!(life.has_trouble() || stats.writes > 0 && stats.flushes > 0, "{life}: nothing went on");
        let limit = self.options.max_disk_bytes;
        assert!(limit == 0 || stats.on_disk.total_bytes() <= limit, "{life}: {:?} on disk", stats.on_disk);
        if let Some(error) = stats.background_error {
            life.accept(&error, "in the background");
        }
        let (disk, kept) = self.end(db, life, ledgers);
        let moments = std::mem::take(&mut *life.moments.lock().unwrap());
        moments.into_iter().for_each(|moment| self.look_at_moment(life, &disk, moment, ledgers));
        (disk, kept)
    }

    /// Opens what is in the directory. A store has room for that, whatever its limit.
    fn open(&self, life: &Life, env: Env, doing: &str) -> Db {
        Db::open_with_env("/store", self.options.clone(), env)
            .unwrap_or_else(|error| panic!("{life}: {doing}: {error}"))
    }

    /// What was found, by thread: it is sound, and what may be there of the writes that `ledgers` tell of.
    fn compare(&self, life: &Life, db: &Db, ledgers: &[Ledger], kept: Kept, doing: &str) -> Vec<State> {
        life.assert_sound(db, doing);
        let found = life.contents(db, doing).unwrap_or_else(|error| panic!("{life}: {doing}: {error}"));
        for (owner, (ledger, found)) in ledgers.iter().zip(&found).enumerate() {
            compare(&format_args!("{life}: {doing}"), owner, ledger, found, kept);
        }
        found
    }

    /// The machine dies, if it has not: each of the disks that this may leave has what was promised.
    fn look_at_images(&self, life: &Life, ledgers: &[Ledger]) {
        life.disk.die_after(0);
        for image in images(&life.disk, life.replay.seed << 8 | u64::from(life.number)) {
            let kept = Kept { logged: image.promise, unlogged: Promise::Durable };
            let db = self.open(life, image.disk.env(), &image.name);
            self.compare(life, &db, ledgers, kept, &image.name);
        }
    }

    fn make_families(&self, db: &Db, life: &Life) {
        for place in [Place::Second, Place::Unlogged] {
            let name = place.family(0);
            if db.column_family(&name).is_none() {
                let made = db.create_column_family(&name, self.options.families[&name].clone());
                made.unwrap_or_else(|error| panic!("{life}: making a family: {error}"));
            }
        }
    }

    fn run_threads(&self, db: &Db, life: &Life, ledgers: &mut [Ledger], random: &mut Rng) {
        thread::scope(|scope| {
            for (owner, ledger) in (0..WRITERS).zip(ledgers) {
                let (options, random) = (self.options.families[&Place::Own.family(owner)].clone(), random.fork());
                scope.spawn(move || Writer::new(life, db, owner, ledger, options, random).work(STEPS));
            }
            for _ in 0..UPKEEPERS {
                let mut random = random.fork();
                scope.spawn(move || upkeep::work(life, db, UPKEEP_STEPS, &mut random));
            }
        });
    }

    /// Ends it. What is left, and what of the writes is promised to be there.
    fn end(&self, db: Db, life: &Life, ledgers: &[Ledger]) -> (SimDisk, Kept) {
        match life.ending {
            Ending::Death(_) => {
                self.look_at_images(life, ledgers);
                let left = life.disk.after_process_death();
                let kept = Kept::by_reopening(&left);
                (left, kept)
            }
            Ending::PowerLoss(_, survivors) => {
                self.look_at_images(life, ledgers);
                (life.disk.after_power_loss(survivors), Kept::DURABLE)
            }
            Ending::Drop => {
                drop(db);
                let left = life.disk.after_process_death();
                let kept = if self.is_limited() { Kept::by_reopening(&left) } else { Kept::ALL };
                (left, kept)
            }
            Ending::Close | Ending::CloseAndPowerLoss | Ending::Trouble(..) => {
                let is_closed = match db.close() {
                    // It has room for that, too.
                    Err(error) if !life.has_trouble() => panic!("{life}: closing: {error}"),
                    closed => life.accepted(closed, "closing").is_some(),
                };
                let left = life.disk.after_process_death();
                match life.ending {
                    _ if !is_closed => {
                        let kept = Kept::by_reopening(&left);
                        (left, kept)
                    }
                    Ending::CloseAndPowerLoss => (life.disk.after_power_loss(Survivors::Nothing), Kept::ALL),
                    _ => (left, Kept::ALL),
                }
            }
        }
    }

    /// A moment has all that was logged before, and nothing out of order; a copy is sound.
    fn look_at_moment(&self, life: &Life, disk: &SimDisk, moment: Moment, ledgers: &[Ledger]) {
        let (shown, doing) = match moment.shown {
            Shown::Beside(shown) => (shown, "opened beside"),
            Shown::Copy(path) => (self.contents_of_copy(life, disk, &path), "a copy"),
        };
        for (owner, (ledger, (shown, least))) in ledgers.iter().zip(shown.iter().zip(moment.least)).enumerate() {
            let found = part(shown, &[Place::First, Place::Second]);
            let is_there = ledger.logged.prefix(&found, least).is_some();
            assert!(is_there, "{life}: {doing}: {}", missing(owner, &found, least, &ledger.logged));
        }
    }

    fn contents_of_copy(&self, life: &Life, disk: &SimDisk, path: &Path) -> Vec<State> {
        // A copy has no logs.
        let options = Options { wal_dir: None, ..self.options.clone() };
        let opened = Db::open_read_only_with_env(path, options, disk.env());
        let db = opened.unwrap_or_else(|error| panic!("{life}: opening a copy: {error}"));
        life.assert_sound(&db, "a copy");
        life.contents(&db, "a copy").unwrap_or_else(|error| panic!("{life}: a copy: {error}"))
    }
}

fn missing(owner: usize, found: &State, least: usize, stream: &Stream) -> String {
    format!("of thread {owner} there is {found:?}, not what the first {least} or more wrote of {stream:?}")
}

/// What was found is what may be there of a thread's writes.
fn compare(what: &dyn Display, owner: usize, ledger: &Ledger, found: &State, kept: Kept) {
    let streams: [(_, &[Place], _); 3] = [
        (&ledger.logged, &[Place::First, Place::Second], kept.logged),
        (&ledger.own, &[Place::Own], kept.logged),
        (&ledger.unlogged, &[Place::Unlogged], kept.unlogged),
    ];
    for (stream, places, promise) in streams {
        let found = part(found, places);
        let least = match promise {
            Promise::Acknowledged => stream.done(),
            Promise::Durable => stream.durable(),
        };
        let is_there = stream.prefix(&found, least).is_some();
        assert!(is_there, "{what}: {}", missing(owner, &found, least, stream));
    }
}

fn run(replay: Replay) {
    let mut random = Rng::with_seed(replay.seed);
    let store = Store::any(replay, &mut random);
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(|_| Ledger::default()).collect();
    let (mut left, mut kept, mut before) = (disk(replay.seed), Kept::ALL, Ending::Close);
    for number in 0..LIVES {
        let ending = if number + 1 == LIVES { Ending::Close } else { Ending::any(&mut random) };
        let life = store.life(number, before, ending, left);
        (left, kept) = store.live(&life, &mut ledgers, kept, &mut random);
        before = ending;
    }
}

/// Goal: whatever the options of a store, whatever goes on in it and however its lives end, each of several threads reads what it has written, by get,
/// by iterator and by snapshot, at any moment; what was promised of its writes is there in the next life, and of the rest the first so many; what a check
/// looks at is sound, and nobody waits for ever.
#[test]
fn threads_read_what_they_wrote_through_the_lives_of_a_store() {
    let test = "threads_read_what_they_wrote_through_the_lives_of_a_store";
    through_seeds("threads", test, 6, run);
}
