//! Versions, snapshots and trash over a model of locks and atomics: shuttle runs thousands of schedules.
//!
//! The files under test are compiled a second time here, over [`sync`] below instead of the real locks. Around them stands what the
//! engine has around them, made small: a view that is replaced under the `state` lock (as `version/install.rs` does), and work
//! that picks under the same lock (as `background.rs` does). `arc-swap` has its own tests; here a view is an `Arc` behind a lock.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::Env;
use esker_env::sim::SimDisk;
use esker_format::rocksdb::internal_key::SequenceNumber;
pub(crate) use esker_log::{Error, Result};
use shuttle::scheduler::PctScheduler;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

#[path = "../src/version/life.rs"]
mod life;
#[path = "../src/version/older.rs"]
mod older;
#[path = "../src/snapshot.rs"]
#[expect(unreachable_pub, dead_code, reason = "a part of another crate's source")]
mod snapshot;
#[path = "../src/reclaim/trash.rs"]
#[expect(dead_code, reason = "a part of another crate's source")]
mod trash;

use life::Life;
use older::Older;
use snapshot::SnapshotList;
use sync::Mutex;
use trash::Trash;

mod reclaim {
    pub(crate) use crate::trash::Trash;
}

/// The face of `parking_lot`, as far as it is used, and of the standard library's atomics, on shuttle's.
mod sync {
    use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

/// In how many random schedules each model runs, and in how many with few, well chosen preemptions.
const SCHEDULES: usize = 1500;

fn check(schedule: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(schedule.clone(), SCHEDULES);
    shuttle::check_pct(schedule, SCHEDULES, 3);
}

/// For scenes of two threads and few steps, which are the same in every run: a wrong order of two of these is met in one schedule
/// of some fifty.
fn check_few_steps(schedule: impl Fn() + Send + Sync + 'static) {
    let scheduler = PctScheduler::new_from_seed(9, 2, 1000);
    shuttle::Runner::new(scheduler, shuttle::Config::default()).run(schedule);
}

/// A view that readers load in one step and installers replace.
struct View<T>(Mutex<Arc<T>>);

impl<T> View<T> {
    fn new(first: T) -> Self {
        Self(Mutex::new(Arc::new(first)))
    }

    fn load(&self) -> Arc<T> {
        self.0.lock().clone()
    }

    /// Gives no turn away: who does goes behind all others, and is not what comes between two steps of theirs.
    fn store(&self, next: Arc<T>) {
        let before = std::mem::replace(&mut *self.0.lock(), next);
        drop(before);
    }
}

/// A table as a version holds it.
struct Table {
    path: PathBuf,
    life: Life,
}

struct Files {
    disk: Env,
    trash: Arc<Trash>,
    view: View<Vec<Arc<Table>>>,
    /// What the durable manifest names; also the lock of those who install.
    manifest: Mutex<BTreeSet<PathBuf>>,
    state: Mutex<()>,
    next: AtomicU64,
}

impl Files {
    fn new() -> Arc<Self> {
        let disk = SimDisk::new().env();
        disk.files.create_dir_all(Path::new("/store")).unwrap();
        let trash = Trash::new(disk.files.clone());
        let (view, manifest, next) = (View::new(Vec::new()), Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { disk, trash, view, manifest, state: Mutex::default(), next })
    }

    fn is_there(&self, path: &Path) -> bool {
        self.disk.files.metadata(path).is_ok()
    }

    /// A table comes; all that were there go if `replaces`, as after a compaction.
    fn install(&self, replaces: bool) {
        let path = PathBuf::from(format!("/store/{:06}.sst", self.next.fetch_add(1, Ordering::SeqCst)));
        self.disk.files.create(&path).unwrap();
        let table = Arc::new(Table { life: Life::new(path.clone(), self.trash.clone()), path });
        let mut manifest = self.manifest.lock();
        let before = self.view.load();
        let kept = if replaces { &[][..] } else { &before[..] };
        let next: Vec<_> = kept.iter().chain([&table]).cloned().collect();
        *manifest = next.iter().map(|table| table.path.clone()).collect();
        let state = self.state.lock();
        self.view.store(Arc::new(next));
        if replaces {
            before.iter().for_each(|table| table.life.mark_obsolete(1));
        }
        drop(state);
    }

    fn purge(&self) {
        self.trash.purge().unwrap();
        let manifest = self.manifest.lock();
        assert!(manifest.iter().all(|path| self.is_there(path)), "the manifest names a file that is gone");
    }
}

/// Goal (B3): no file goes while somebody reads it or the manifest names it, and each goes in the end.
#[test]
fn in_no_schedule_does_a_file_go_that_is_read_or_stay_that_nobody_names() {
    check(|| {
        let files = Files::new();
        files.install(false);
        let mut threads = Vec::new();
        for replaces in [[true, false], [false, true]] {
            let files = files.clone();
            threads.push(thread::spawn(move || replaces.into_iter().for_each(|replaces| files.install(replaces))));
        }
        for _ in 0..2 {
            let files = files.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..2 {
                    let view = files.view.load();
                    for table in view.iter() {
                        thread::yield_now();
                        assert!(files.is_there(&table.path), "a file went that somebody reads");
                    }
                }
            }));
        }
        let purging = files.clone();
        threads.push(thread::spawn(move || (0..3).for_each(|_| purging.purge())));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // As background threads do: only where it says that there is something.
        while files.trash.is_filled() {
            files.purge();
        }
        let left = files.disk.files.list(Path::new("/store")).unwrap().len();
        assert_eq!(left, files.manifest.lock().len(), "a file stays that nobody names");
    });
}

/// Which of a blob file's extents a version points to.
type Live = BTreeSet<usize>;

struct Holes {
    view: View<Live>,
    older: Older<Live>,
    state: Mutex<()>,
    /// The extents that are holes by now.
    punched: Mutex<BTreeSet<usize>>,
}

impl Holes {
    fn new() -> Arc<Self> {
        let (view, older, state, punched) =
            (View::new((0..4).collect()), Older::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { view, older, state, punched })
    }

    /// Looks at everything that the present version points to.
    fn read(&self) {
        let version = self.view.load();
        for extent in version.iter() {
            assert!(!self.punched.lock().contains(extent), "a hole where somebody reads");
        }
    }

    fn drop_extent(&self, extent: usize) {
        let state = self.state.lock();
        let before = self.view.load();
        let next = before.iter().copied().filter(|live| *live != extent).collect();
        self.view.store(Arc::new(next));
        self.older.note(&before);
        drop(state);
    }

    /// As `reclaim/punch.rs`: picked under the lock, run without it.
    fn punch(&self) {
        let state = self.state.lock();
        let version = self.view.load();
        let may = !self.older.is_held_before(&version);
        drop(state);
        if may {
            for dead in (0..4).filter(|extent| !version.contains(extent)) {
                self.punched.lock().insert(dead);
            }
        }
    }
}

/// Goal (H2): whoever reads a version finds what it points to, whatever died since and was made a hole.
#[test]
fn in_no_schedule_is_a_hole_made_where_somebody_reads() {
    check(|| {
        let holes = Holes::new();
        let mut threads = Vec::new();
        for _ in 0..2 {
            let holes = holes.clone();
            threads.push(thread::spawn(move || (0..2).for_each(|_| holes.read())));
        }
        let dropping = holes.clone();
        threads.push(thread::spawn(move || (0..3).for_each(|extent| dropping.drop_extent(extent))));
        let punching = holes.clone();
        threads.push(thread::spawn(move || (0..3).for_each(|_| punching.punch())));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        holes.punch();
        assert_eq!(holes.punched.lock().len(), 3, "what is dead becomes holes once nobody reads");
    });
}

/// Goal (H2): one reader, one extent that dies.
#[test]
fn a_hole_waits_for_the_reader_of_the_version_before() {
    check_few_steps(|| {
        let holes = Holes::new();
        let reading = holes.clone();
        let reader = thread::spawn(move || reading.read());
        holes.drop_extent(3);
        holes.punch();
        reader.join().unwrap();
        holes.punch();
        assert_eq!(*holes.punched.lock(), BTreeSet::from([3]));
    });
}

/// Versions of the one key, by sequence number: in the memtable, which grows, and in a table.
struct Key {
    memtable: Arc<Mutex<Vec<u64>>>,
    table: Vec<u64>,
}

struct Moments {
    view: View<Key>,
    state: Mutex<()>,
    published: AtomicU64,
    snapshots: Arc<SnapshotList>,
}

impl Moments {
    fn new(memtable: Vec<u64>, table: Vec<u64>) -> Arc<Self> {
        let view = View::new(Key { memtable: Arc::new(Mutex::new(memtable)), table });
        Arc::new(Self { view, state: Mutex::default(), published: AtomicU64::new(1), snapshots: Arc::default() })
    }

    /// A snapshot is taken, and what it shows is looked for `count` times.
    fn hold(&self, count: usize) {
        let now = || SequenceNumber::new(self.published.load(Ordering::SeqCst));
        let snapshot = self.snapshots.take(now);
        let sequence = snapshot.sequence();
        for _ in 0..count {
            let view = self.view.load();
            assert_eq!(Self::get(&view, sequence), Some(sequence), "a snapshot lost its version");
        }
    }

    /// The version that a reader at `sequence` finds.
    fn get(view: &Key, sequence: u64) -> Option<u64> {
        let memtable = view.memtable.lock().clone();
        memtable.into_iter().chain(view.table.iter().copied()).filter(|version| *version <= sequence).max()
    }

    fn write(&self, version: u64) {
        let view = self.view.load();
        view.memtable.lock().push(version);
        self.published.store(version, Ordering::SeqCst);
    }

    /// By whoever writes, so that nobody writes meanwhile.
    fn flush(&self) {
        let _state = self.state.lock();
        let view = self.view.load();
        let table = [view.table.clone(), view.memtable.lock().clone()].concat();
        self.view.store(Arc::new(Key { memtable: Arc::default(), table }));
    }

    /// Inputs first, snapshots second, as `compaction/run.rs`; of each stripe between snapshots the newest stays.
    fn compact(&self) {
        let inputs = self.view.load().table.clone();
        let snapshots = self.snapshots.sequences();
        let stripe = |version: u64| snapshots.partition_point(|snapshot| snapshot.get() < version);
        let stays = |&version: &u64| !inputs.iter().any(|&newer| newer > version && stripe(newer) == stripe(version));
        let mut table: Vec<u64> = inputs.iter().copied().filter(stays).collect();
        let _state = self.state.lock();
        let view = self.view.load();
        // Flushes since then.
        table.extend(view.table.iter().filter(|version| !inputs.contains(version)));
        self.view.store(Arc::new(Key { memtable: view.memtable.clone(), table }));
    }
}

/// Goal (family V3, [`SnapshotList::take`]): a reader finds the newest version that its number may see, with a snapshot or
/// without, whatever is flushed and compacted meanwhile.
#[test]
fn in_no_schedule_does_a_compaction_take_what_a_reader_may_see() {
    check(|| {
        let moments = Moments::new(vec![1], Vec::new());
        let mut threads = Vec::new();
        let writing = moments.clone();
        threads.push(thread::spawn(move || {
            for version in 2..5 {
                writing.write(version);
                writing.flush();
            }
        }));
        let compacting = moments.clone();
        threads.push(thread::spawn(move || (0..3).for_each(|_| compacting.compact())));
        let holding = moments.clone();
        threads.push(thread::spawn(move || holding.hold(2)));
        let reading = moments.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                let view = reading.view.load();
                let sequence = reading.published.load(Ordering::SeqCst);
                let found = Moments::get(&view, sequence);
                // What was written since the view was loaded may be in another memtable.
                assert!(found.is_some() && found >= view.table.iter().copied().max(), "a reader lost its version");
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(moments.snapshots.count(), 0);
    });
}

/// Goal (family V3): one snapshot, one compaction of what was written since.
#[test]
fn a_compaction_that_lists_no_snapshot_takes_nothing_from_one() {
    check_few_steps(|| {
        let moments = Moments::new(Vec::new(), vec![1]);
        let holding = moments.clone();
        let holder = thread::spawn(move || holding.hold(1));
        moments.write(2);
        moments.flush();
        moments.compact();
        holder.join().unwrap();
    });
}
