//! A merge in parts: ranges of keys that several threads can write at once.
//!
//! - M1: parts share no user key, and together they are the plan's.
//! - M2: files of a part are nobody's until all parts are whole: if one fails, all go.
//! - M3: whoever has the plan writes part after part. Other background threads take parts meanwhile, as long as somebody waits for
//!   what comes of it and no memtable waits for its flush, and are waited for.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_format::rocksdb::internal_key::SequenceNumber;
use parking_lot::{Condvar, Mutex};

use super::Plan;
use super::run::{Part, write_part};
use crate::reclaim::Reserved;
use crate::store::Store;
use crate::version::cuts;
use crate::{Error, ErrorKind, Result};

/// Most parts: where two threads begin together, one waits for the other for less than an eighth of the time.
pub(crate) const PARTS_MAX: u64 = 8;
/// Values that a part moves are at least this part of a blob file, so that it does not leave small ones behind, and its tables at least
/// this part of a table.
const BLOB_PART: u64 = 4;
const TABLE_PART: u64 = 256;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Merge {
    plan: Arc<Plan>,
    snapshots: Vec<SequenceNumber>,
    /// What all parts will write.
    reserved: Arc<Reserved>,
    /// Room for values in blob files that operands are merged into, and what is left of it: within the bound on space, since what they were becomes
    /// garbage. No plan has to have any, as operands may stay.
    for_folding: Reserved,
    folding_left: AtomicU64,
    /// The user keys that all parts but the first begin with.
    cuts: Vec<Vec<u8>>,
    has_failed: AtomicBool,
    progress: Mutex<Progress>,
    /// Signalled when a part is done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// The first part that nobody has begun.
    next: usize,
    /// Threads at work.
    working: usize,
    /// With their places.
    parts: Vec<(usize, Part)>,
    /// The first.
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Failure {
    Error(Error),
    /// What a thread panicked with: goes on in the thread that has the plan.
    Panic(Box<dyn Any + Send>),
}

impl Merge {
    pub(super) fn of(plan: Arc<Plan>, reserved: Arc<Reserved>, store: &Store) -> Arc<Self> {
        let cuts = if plan.is_sweep { equal_cuts(&plan) } else { cuts_by_range(&plan, store) };
        let foldable = plan.foldable_bytes();
        let for_folding = match foldable {
            0 => 0,
            foldable => {
                let left = store.left();
                // Others need some of it, too.
                foldable.min(u64::try_from(left.disk.min(left.bound)).unwrap_or(0) / 2)
            }
        };
        Arc::new(Self {
            snapshots: store.snapshots.sequences(),
            reserved,
            for_folding: store.room.reserve(for_folding),
            folding_left: AtomicU64::new(for_folding),
            cuts,
            has_failed: AtomicBool::new(false),
            progress: Mutex::default(),
            done: Condvar::new(),
            plan,
        })
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn snapshots(&self) -> &[SequenceNumber] {
        &self.snapshots
    }

    pub(super) fn reserved(&self) -> Arc<Reserved> {
        self.reserved.clone()
    }

    /// Whether there is room for `bytes` more of values that operands are merged into; they are taken off.
    pub(super) fn may_fold(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        let may = self.folding_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if may {
            self.for_folding.note_written(bytes);
        }
        may
    }

    /// The user keys that a part begins with, and ends before.
    pub(super) fn bounds(&self, index: usize) -> (Option<&[u8]>, Option<&[u8]>) {
        let cut = |index: usize| self.cuts.get(index).map(Vec::as_slice);
        (index.checked_sub(1).and_then(cut), cut(index))
    }

    /// # Errors
    /// Another part has failed: this one is not wanted any more.
    pub(super) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "another part of the merge has failed"));
        }
        Ok(())
    }

    /// Whether nobody has begun with some part.
    pub(crate) fn has_more(&self) -> bool {
        self.progress.lock().next <= self.cuts.len() && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Writes all parts that nobody else does, and returns all of them in order.
    pub(super) fn run(self: &Arc<Self>, store: &Store) -> Result<Vec<Part>> {
        if self.cuts.is_empty() {
            return Ok(vec![write_part(self, 0, store)?]);
        }
        store.state.lock().merging.push(self.clone());
        while self.write_next(store) {}
        store.state.lock().merging.retain(|merge| !Arc::ptr_eq(merge, self));
        let mut progress = self.progress.lock();
        while progress.working > 0 {
            self.done.wait(&mut progress);
        }
        // Not left to whoever drops the merge last: files of a merge that failed take up room (M2).
        let (failure, mut parts) = (progress.failure.take(), std::mem::take(&mut progress.parts));
        drop(progress);
        match failure {
            Some(Failure::Error(error)) => return Err(error),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            None => {}
        }
        parts.sort_unstable_by_key(|(index, _)| *index);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    /// Writes a part that nobody has begun; `false` if there is none. What comes of it is told to whoever has the plan.
    pub(crate) fn write_next(&self, store: &Store) -> bool {
        if !self.has_more() {
            return false;
        }
        let mut progress = self.progress.lock();
        let index = progress.next;
        if index > self.cuts.len() {
            return false;
        }
        progress.next += 1;
        progress.working += 1;
        drop(progress);
        let written = catch_unwind(AssertUnwindSafe(|| write_part(self, index, store)));
        let mut progress = self.progress.lock();
        match written {
            Ok(Ok(part)) => progress.parts.push((index, part)),
            Ok(Err(error)) => self.fail(&mut progress, Failure::Error(error)),
            Err(panic) => self.fail(&mut progress, Failure::Panic(panic)),
        }
        progress.working -= 1;
        drop(progress);
        self.done.notify_all();
        true
    }

    fn fail(&self, progress: &mut Progress, failure: Failure) {
        self.has_failed.store(true, Ordering::Relaxed);
        progress.failure.get_or_insert(failure);
    }
}

/// Of a sweep, parts of about equal length, as many as are worth it.
fn equal_cuts(plan: &Plan) -> Vec<Vec<u8>> {
    let tables: u64 = plan.inputs().map(|(_, table)| table.meta.file_bytes).sum();
    let moved = plan.moved_bytes();
    let of_values = if moved == 0 { PARTS_MAX } else { moved / (plan.family.blob_file_bytes() / BLOB_PART).max(1) };
    let of_tables = tables / (plan.family.table_bytes() / TABLE_PART).max(1);
    let parts = of_values.min(of_tables).clamp(1, PARTS_MAX) as usize;
    cuts(plan.family.order, plan.inputs().map(|(_, table)| table), None, None, parts)
}

/// Of a merge of some tables, where ranges of keys begin: tables end there in any case. Without them it stays whole: it is short, and would
/// leave smaller tables behind, each of them over more of the next level.
fn cuts_by_range(plan: &Plan, store: &Store) -> Vec<Vec<u8>> {
    if !plan.goes_by_range() {
        return Vec::new();
    }
    let ends = plan.family.ranges.of(store, &plan.family, &plan.version);
    let Some((smallest, largest)) = plan.keys() else { return Vec::new() };
    let order = plan.family.order;
    let within = |begin: &&Vec<u8>| order.is_before(smallest, begin) && !order.is_before(largest, begin);
    let begins: Vec<_> = ends.begins().iter().filter(within).collect();
    let step = (begins.len() + 1).div_ceil(PARTS_MAX as usize);
    begins.into_iter().skip(step - 1).step_by(step).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use esker_env::sim::{Fault, SimDisk, Survivors};

    use super::*;
    use crate::compaction::testing::{Contents, contents, open, separated};
    use crate::compaction::{pick_exposing, pick_sweep, pick_window};
    use crate::options::{FamilyOptions, Options};
    use crate::reclaim::hidden_bytes;
    use crate::version::testing::{install, ranged_table, table};
    use crate::{Db, Snapshot};

    /// A store in whose tables and blob files much is overwritten or deleted, what a snapshot of it sees, and what it holds.
    struct Overwritten {
        db: Db,
        snapshot: Snapshot,
        before: Contents,
        now: Contents,
    }

    /// Small files.
    fn small() -> FamilyOptions {
        let (write_buffer_bytes, blob_file_bytes, target_file_bytes) = (64 << 10, 64 << 10, 8 << 10);
        FamilyOptions { write_buffer_bytes, blob_file_bytes, target_file_bytes, ..separated() }
    }

    fn overwritten(disk: &SimDisk) -> Overwritten {
        let (db, mut now) = (open(disk, small()), Contents::new());
        let change = |now: &mut Contents, n: u32, round: u8| {
            let (key, value) = (format!("key {:04}", n * 7 % 1000).into_bytes(), vec![round; 300]);
            if n % 11 == 3 {
                db.delete(&key).unwrap();
                now.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                now.insert(key, value);
            }
        };
        (0..1000).for_each(|n| change(&mut now, n, 1));
        let (snapshot, before) = (db.snapshot(), now.clone());
        (0..1500).step_by(2).for_each(|n| change(&mut now, n, 2));
        db.flush().unwrap();
        Overwritten { db, snapshot, before, now }
    }

    /// A sweep that moves everything.
    fn sweep(db: &Db) -> Arc<Plan> {
        let family = db.store().family(0).unwrap();
        let version = family.view.load().version.clone();
        let victims = version.blobs().keys().copied().collect();
        Arc::new(pick_sweep(&family, &version, victims).unwrap())
    }

    /// A window over these tables of the deepest level that moves all they point to.
    fn window(db: &Db, tables: Range<usize>) -> Arc<Plan> {
        let family = db.store().family(0).unwrap();
        let version = family.view.load().version.clone();
        let tables = &version.level(version.deepest_level())[tables];
        let victims = tables.iter().flat_map(|table| table.known_blob_refs().unwrap().keys()).copied().collect();
        Arc::new(pick_window(&family, &version, tables, victims).unwrap())
    }

    fn reserve(db: &Db, plan: &Plan) -> Arc<Reserved> {
        Arc::new(db.store().room.reserve(plan.written_bytes()))
    }

    fn assert_holds(store: &Overwritten, what: &str) {
        assert!(contents(&store.db, None) == store.now, "{what}");
        assert!(contents(&store.db, Some(&store.snapshot)) == store.before, "{what}: the snapshot");
        let check = store.db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    }

    /// Goal: whoever writes them, parts hold what one pass over everything would (M1), and files of a sweep lie side by side.
    #[test]
    fn parts_that_several_threads_write_are_all_of_it() {
        for helpers in [0, 1, 3] {
            let store = overwritten(&SimDisk::new());
            let (db, plan) = (&store.db, sweep(&store.db));
            assert!(Merge::of(plan.clone(), reserve(db, &plan), db.store()).cuts.len() > 3);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..helpers {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            let merge = db.store().state.lock().merging.first().cloned();
                            if merge.is_none_or(|merge| !merge.write_next(db.store())) {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                db.store().run_compaction(&plan, &reserve(db, &plan)).unwrap();
                is_over.store(true, Ordering::Relaxed);
            });
            drop(plan);
            assert!(db.store().state.lock().merging.is_empty());
            assert_eq!(db.store().room.reserved_bytes(), 0);
            assert_holds(&store, &format!("{helpers} helpers"));
            let version = db.store().family(0).unwrap().view.load().version.clone();
            let tables = version.level(version.deepest_level());
            assert!(tables.len() > 3 && version.tables().count() == tables.len(), "{}", tables.len());
            assert!(tables.windows(2).all(|pair| pair[0].largest() < pair[1].smallest()));
        }
    }

    /// Goal (P6): what lies above a window may be merged, come down elsewhere, or be joined by more while it is written: everybody reads what was
    /// written, and garbage is counted once.
    #[test]
    fn what_lies_above_a_window_may_change_while_it_is_written() {
        for change in 0..4 {
            let disk = SimDisk::new();
            let mut store = overwritten(&disk);
            store.db.compact_range(&store.db.default_column_family(), None, None).unwrap();
            let mut put = |n: u32, byte: u8| {
                let (key, value) = (format!("key {n:04}").into_bytes(), vec![byte; 300]);
                store.db.put(&key, &value).unwrap();
                store.now.insert(key, value);
            };
            (0..1000).step_by(3).for_each(|n| put(n, 3));
            store.db.delete("key 0301").unwrap();
            store.db.flush().unwrap();
            (0..1000).step_by(5).for_each(|n| put(n, 4));
            store.db.flush().unwrap();
            store.now.remove(&b"key 0301"[..]);
            let family = store.db.store().family(0).unwrap();
            let version = family.view.load().version.clone();
            let tables = version.level(version.deepest_level());
            let plan = window(&store.db, tables.len() / 4..tables.len() / 2);
            assert!(!plan.above.is_empty());
            plan.set_claimed(true);
            match change {
                0 => {}
                // The newest tables are merged with each other once there are enough.
                1 => (5..30).for_each(|byte| {
                    let (key, value) = (format!("key {:04}", u32::from(byte) * 37).into_bytes(), vec![byte; 300]);
                    store.db.put(&key, &value).unwrap();
                    store.now.insert(key, value);
                    store.db.flush().unwrap();
                }),
                2 => {
                    for key in store.now.keys().cloned().collect::<Vec<_>>() {
                        store.db.put(&key, [9; 10]).unwrap();
                        store.now.insert(key, vec![9; 10]);
                    }
                    store.db.flush().unwrap();
                }
                _ => assert!(pick_sweep(&family, &version, BTreeSet::new()).is_none(), "its tables are claimed"),
            }
            let before = family.view.load().version.level(0).len();
            store.db.store().run_compaction(&plan, &reserve(&store.db, &plan)).unwrap();
            plan.set_claimed(false);
            drop((plan, version));
            assert_eq!(family.view.load().version.level(0).len(), before, "what lies above stays");
            assert_holds(&store, &format!("change {change}"));
            store.db.compact_range(&store.db.default_column_family(), None, None).unwrap();
            assert_holds(&store, &format!("change {change}, once all came down"));
        }
    }

    /// Goal (P1, P6): the same of a window that takes tables along from between: beside it level 0 comes down, and tables beside it do; nothing is
    /// written to where it writes, nor taken in there.
    #[test]
    fn what_lies_beside_a_window_may_change_while_it_is_written() {
        let db = open(&SimDisk::new(), small());
        let (store, family) = (db.store(), db.store().family(0).unwrap());
        let (version, mut now) = (|| family.view.load().version.clone(), Contents::new());
        let put = |now: &mut Contents, level: usize, keys: [&str; 2]| {
            for key in keys {
                let value = format!("{key} of level {level}").repeat(20).into_bytes();
                db.put(key, &value).unwrap();
                now.insert(key.into(), value);
            }
            db.flush().unwrap();
            let table = version().level(0)[0].clone();
            let (deleted, added) = (vec![(0, table.clone())], vec![(level, table)]);
            store.install(&family, crate::version::Edit { deleted, added, ..Default::default() }, &[]).unwrap();
        };
        [["a", "b"], ["d", "e"], ["k", "l"], ["x", "y"]].into_iter().for_each(|keys| put(&mut now, 6, keys));
        [["a5", "b"], ["c", "d"], ["l", "m"]].into_iter().for_each(|keys| put(&mut now, 5, keys));
        let (snapshot, before) = (db.snapshot(), now.clone());
        put(&mut now, 0, ["e", "f"]);
        let picked = version();
        let victims = picked.blobs().keys().copied().collect();
        let plan = Arc::new(pick_window(&family, &picked, &picked.level(6)[1..3], victims).unwrap());
        assert_eq!((plan.inputs().count(), plan.above.len()), (4, 1));
        plan.set_claimed(true);
        plan.note_writing();
        let down = || pick_exposing(&family, false, &|_| true).map(Arc::new);
        for from in [0, 5] {
            let beside = down().unwrap();
            assert_eq!(
                (beside.level, beside.inputs().any(|(_, table)| table.overlaps(Some(b"c"), Some(b"m")))),
                (from, from == 0)
            );
            store.run_compaction(&beside, &reserve(&db, &beside)).unwrap();
        }
        let mut load = db.bulk_load(&db.default_column_family()).unwrap();
        for key in ["g", "h"] {
            load.put(key, [b'-'; 400]).unwrap();
            now.insert(key.into(), vec![b'-'; 400]);
        }
        load.finish().unwrap();
        assert_eq!([0, 5, 6].map(|level| version().level(level).len()), [0, 4, 4], "what was taken in lies above");
        assert!(down().is_none(), "all else would be written where the window writes, or what it reads");
        put(&mut now, 0, ["c5", "k"]);
        assert!(down().is_none(), "level 0 meets what it reads");
        store.run_compaction(&plan, &reserve(&db, &plan)).unwrap();
        plan.set_claimed(false);
        plan.has_written();
        drop((plan, picked));
        let assert_holds = |what: &str| {
            assert!(contents(&db, None) == now, "{what}");
            assert!(contents(&db, Some(&snapshot)) == before, "{what}: the snapshot");
            let check = db.check(&mut |_| {}).unwrap();
            assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
        };
        assert_holds("once the window is written");
        while let Some(plan) = down() {
            store.run_compaction(&plan, &reserve(&db, &plan)).unwrap();
            assert_holds("on the way down");
        }
        assert_eq!(version().tables().count(), version().level(6).len());
    }

    /// Goal: what has none of a window's keys hides nothing there once the window is written, and so brings no pass over it about again; what came
    /// since may.
    #[test]
    fn what_has_other_keys_hides_nothing_of_a_window() {
        let store = overwritten(&SimDisk::new());
        store.db.compact_range(&store.db.default_column_family(), None, None).unwrap();
        let rewrite = |keys: std::ops::Range<u32>| {
            keys.for_each(|n| store.db.put(format!("key {n:04}"), [7; 300]).unwrap());
            store.db.flush().unwrap();
        };
        rewrite(900..1000);
        let family = store.db.store().family(0).unwrap();
        let version = family.view.load().version.clone();
        let plan = window(&store.db, 0..version.level(version.deepest_level()).len() / 2);
        assert!(plan.above.is_empty(), "it has other keys");
        let hidden = || hidden_bytes(&family.view.load().version);
        let before = hidden();
        store.db.store().run_compaction(&plan, &reserve(&store.db, &plan)).unwrap();
        let once = hidden();
        assert!(before > 20_000 && once < before * 3 / 4, "{before} before, {once} now");
        rewrite(0..100);
        assert!(hidden() > once + 20_000, "{once} before, {} now", hidden());
    }

    /// Goal (P1): nothing is moved between tables that a window writes to one, nor is a window begun where something will be.
    #[test]
    fn nothing_comes_between_the_tables_of_a_window() {
        for window_first in [true, false] {
            let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
            let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
            let table = |entries: &[_]| table(db.store(), 1, entries);
            let deepest = [[("a", 1, Some("-")), ("b", 2, Some("-"))], [("x", 3, Some("-")), ("y", 4, Some("-"))]];
            let between = table(&[("m", 5, Some("-")), ("n", 6, Some("-"))]);
            let deepest = deepest.iter().map(|entries| (6, table(entries)));
            install(&db, deepest.chain([(0, between)]).collect(), 6);
            let family = db.store().family(0).unwrap();
            let window = || {
                let version = family.view.load().version.clone();
                pick_window(&family, &version, version.level(6), BTreeSet::new())
            };
            let down = || pick_exposing(&family, false, &|_| true);
            let picks: [&dyn Fn() -> Option<Plan>; 2] = if window_first { [&window, &down] } else { [&down, &window] };
            let first = Arc::new(picks[0]().unwrap());
            first.set_claimed(true);
            first.note_writing();
            assert!(picks[1]().is_none(), "{window_first}");
            db.store().run_compaction(&first, &reserve(&db, &first)).unwrap();
            first.set_claimed(false);
            first.has_written();
            let second = Arc::new(picks[1]().unwrap());
            db.store().run_compaction(&second, &reserve(&db, &second)).unwrap();
            assert_eq!(contents(&db, None).keys().map(|key| key[0]).collect::<Vec<_>>(), b"abmnxy");
        }
    }

    /// Goal (P6): a window takes along what lies between level 0 and the deepest in its span only, and nothing of it that shares a key with what
    /// stays, so that every key keeps its newest entry on top.
    #[test]
    fn a_window_takes_along_what_lies_in_its_span_only() {
        for (from_left, to_right) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
            let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
            let mut sequence = 0;
            let mut table = |keys: &[&str]| {
                let mut entries = Vec::new();
                for key in keys {
                    sequence += 1;
                    entries.push((*key, sequence, if sequence % 7 == 0 { None } else { Some(*key) }));
                }
                table(db.store(), 1, &entries)
            };
            // From below, and what a window over d and e takes along.
            let first = if from_left { ["a5", "d"] } else { ["c", "d"] };
            let last = if to_right { ["e5", "x"] } else { ["e5", "f"] };
            let tables = [
                (6, ["a", "b"], false),
                (6, ["d", "e"], true),
                (6, ["x", "y"], false),
                (5, ["a", "a2"], false),
                (5, first, !from_left),
                (5, last, !to_right),
                (5, ["xa", "z"], false),
                (4, ["a", "c"], false),
                (4, ["d", "d5"], !from_left),
                (4, ["e", "e5"], !to_right),
                (4, ["w", "xb"], false),
                (0, ["b", "z"], false),
            ];
            let tables = tables.map(|(level, keys, is_taken)| (level, table(&keys), is_taken));
            let number = |table: &Arc<crate::version::TableFile>| table.number();
            let expected: BTreeSet<_> =
                tables.iter().filter(|table| table.2).map(|(_, table, _)| number(table)).collect();
            install(&db, tables.into_iter().map(|(level, table, _)| (level, table)).collect(), sequence);
            let family = db.store().family(0).unwrap();
            let version = family.view.load().version.clone();
            let before = contents(&db, None);
            let plan = Arc::new(pick_window(&family, &version, &version.level(6)[1..2], BTreeSet::new()).unwrap());
            assert_eq!(
                plan.inputs().map(|(_, table)| number(table)).collect::<BTreeSet<_>>(),
                expected,
                "{from_left}, {to_right}"
            );
            let above: Vec<usize> = plan.above.iter().map(Vec::len).collect();
            let stays: &[usize] = match (from_left, to_right) {
                (false, false) => &[1],
                (false, true) => &[1, 1],
                (true, false) => &[1, 1, 1],
                (true, true) => &[1, 1, 2],
            };
            assert_eq!(above, stays);
            db.store().run_compaction(&plan, &reserve(&db, &plan)).unwrap();
            assert!(contents(&db, None) == before && !before.is_empty());
            let after = family.view.load().version.clone();
            let stay = usize::from(from_left) + usize::from(to_right);
            // What stays on both sides overwrites all of it.
            let written = usize::from(stay < 2);
            assert_eq!([4, 5, 6].map(|level| after.level(level).len()), [2 + stay, 2 + stay, 2 + written]);
        }
    }

    /// Goal (P6, RD2): where a range ends a table, its neighbour begins with that key and is not of the window: what meets the neighbour stays.
    #[test]
    fn a_window_ends_where_a_range_does() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let store = db.store();
        // Ranges that hide nothing any more, as a snapshot that went has left them.
        let lowest = [
            ranged_table(store, 1, &[("a", 4, Some("a"))], ("b", "d", 1)),
            ranged_table(store, 1, &[("d", 5, Some("d"))], ("e", "f", 1)),
            ranged_table(store, 1, &[("f", 6, Some("f"))], ("g", "h", 1)),
        ];
        let above = [("c", "c2", false), ("d", "d5", false), ("d6", "e", true), ("f", "g", false)];
        let above = above.map(|(first, last, is_taken)| {
            (table(store, 1, &[(first, 10, Some("new")), (last, 11, Some("new"))]), is_taken)
        });
        let expected: BTreeSet<_> =
            above.iter().filter(|(_, is_taken)| *is_taken).map(|(table, _)| table.number()).collect();
        let expected: BTreeSet<_> = expected.into_iter().chain([lowest[1].number()]).collect();
        let added = lowest.into_iter().map(|table| (6, table)).chain(above.into_iter().map(|(table, _)| (5, table)));
        install(&db, added.collect(), 11);
        let family = db.store().family(0).unwrap();
        let version = family.view.load().version.clone();
        let before = contents(&db, None);
        let plan = Arc::new(pick_window(&family, &version, &version.level(6)[1..2], BTreeSet::new()).unwrap());
        assert_eq!(plan.inputs().map(|(_, table)| table.number()).collect::<BTreeSet<_>>(), expected);
        db.store().run_compaction(&plan, &reserve(&db, &plan)).unwrap();
        assert!(contents(&db, None) == before);
        // By hand, all of them come down, and the ranges go.
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let version = family.view.load().version.clone();
        assert!(contents(&db, None) == before && !version.has_range_deletions());
        assert_eq!(version.levels().filter(|(_, tables)| !tables.is_empty()).count(), 1);
    }

    /// Goal: a part that cannot be written takes those along that were (M2), and nothing of the store is lost.
    #[test]
    fn a_part_that_fails_leaves_nothing_behind() {
        let disk = SimDisk::new();
        let store = overwritten(&disk);
        let healthy = disk.op_count();
        let plan = sweep(&store.db);
        store.db.store().run_compaction(&plan, &reserve(&store.db, &plan)).unwrap();
        let operations = disk.op_count() - healthy;
        assert!(operations > 20, "{operations}");
        for n in (0..operations).step_by(3) {
            let disk = SimDisk::new();
            let store = overwritten(&disk);
            let before = disk.paths();
            disk.fail_at(disk.op_count() + n, Fault::NoSpace);
            let plan = sweep(&store.db);
            let ran = store.db.store().run_compaction(&plan, &reserve(&store.db, &plan));
            drop(plan);
            if ran.is_err() && store.db.stats().background_error.is_none() {
                store.db.store().trash.purge().unwrap();
                assert_eq!(disk.paths(), before, "operation {n}");
            }
            assert!(store.db.store().state.lock().merging.is_empty());
            assert_eq!(store.db.store().room.reserved_bytes(), 0);
            assert_holds(&store, &format!("operation {n}"));
        }
    }

    /// Goal (B4, B8): wherever a window dies, and whichever of its calls fails, nothing is lost that anybody sees, nothing stays that is not the store's,
    /// and the next one gets on.
    #[test]
    fn a_window_may_die_or_fail_at_every_operation() {
        let made = SimDisk::new();
        let Overwritten { db, snapshot, now: before, .. } = overwritten(&made);
        drop(snapshot);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        db.close().unwrap();
        // What lies above it came after a snapshot.
        let begin = |disk: &SimDisk| {
            let db = open(disk, small());
            let (snapshot, mut now) = (db.snapshot(), before.clone());
            for n in (0..1000).step_by(9) {
                let key = format!("key {n:04}").into_bytes();
                if n % 2 == 0 {
                    db.delete(&key).unwrap();
                    now.remove(&key);
                } else {
                    db.put(&key, [3; 300]).unwrap();
                    now.insert(key, vec![3; 300]);
                }
            }
            db.flush().unwrap();
            Overwritten { db, snapshot, before: before.clone(), now }
        };
        let run = |db: &Db| {
            let plan = window(db, 0..1);
            db.store().run_compaction(&plan, &reserve(db, &plan)).map(drop)
        };
        let assert_nothing_left = |db: &Db, disk: &SimDisk, what: &str| {
            let version = db.store().family(0).unwrap().view.load().version.clone();
            let count = |extension| disk.paths().iter().filter(|path| path.extension() == Some(extension)).count();
            let found = ["sst", "blob"].map(|extension| count(extension.as_ref()));
            assert_eq!(found, [version.tables().count(), version.blobs().len()], "{what}: files left behind");
        };
        let healthy = made.after_process_death();
        let store = begin(&healthy);
        let first = healthy.op_count();
        run(&store.db).unwrap();
        let ops = first..healthy.op_count();
        assert_holds(&store, "healthy");
        assert!(ops.end - ops.start > 15, "{ops:?}");
        for n in ops.clone() {
            let disk = made.after_process_death();
            let store = begin(&disk);
            disk.die_after(n);
            run(&store.db).unwrap_err();
            let now = store.now.clone();
            drop(store);
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                let what = format!("died before operation {n} of {ops:?}, {survivors:?}");
                let image = disk.after_power_loss(survivors);
                let db = open(&image, small());
                assert!(contents(&db, None) == now, "{what}");
                let check = db.check(&mut |_| {}).unwrap();
                assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
                db.store().trash.purge().unwrap();
                assert_nothing_left(&db, &image, &what);
            }
            for fault in [Fault::Eio, Fault::NoSpace] {
                let what = format!("operation {n} of {ops:?} fails with {fault:?}");
                let disk = made.after_process_death();
                let store = begin(&disk);
                disk.fail_at(n, fault);
                let failed = run(&store.db).unwrap_err();
                assert_eq!(store.db.store().room.reserved_bytes(), 0, "{what}");
                assert_holds(&store, &what);
                if failed.kind() != crate::ErrorKind::ReadOnly {
                    store.db.store().trash.purge_again().unwrap();
                    assert_nothing_left(&store.db, &disk, &what);
                    run(&store.db).unwrap();
                    assert_holds(&store, &what);
                }
            }
        }
    }
}
