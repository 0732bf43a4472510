//! How fast values are copied: within `reclaim_bytes_per_second_max`, as fast as possible while space runs short or nobody calls, else
//! as fast as leaves puts and gets about as quick as they are between passes ([`Courtesy`]).
//!
//! - P1: who waits for space is not counted as slowed down, nor while writers are held back for compactions that wait for the pass: that
//!   would make them wait longer. Nor do calls of that time tell anything of others.
//! - P2: without a thread beside the one that flushes, reclaim is never slowed down: callers wait for it.
//!
//! Cost: of one put or get in [`SAMPLE`], two readings of the clock; of the others, a step of a thread's counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_env::Clock;
use esker_log::pacer::{Class, Courtesy, Latencies};
use parking_lot::Mutex;

use crate::Result;
use crate::options::{Options, ReclaimMode};
use crate::store::Store;

/// One call in so many is timed.
const SAMPLE: u32 = 16;
/// What is asked of the pacer at a time: at the lowest rate, a second's worth.
const PIECE_BYTES: u64 = 64 << 10;
/// The rate is looked at after so many bytes, and not more often than this.
const LOOK_BYTES: u64 = 256 << 10;
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// However slow calls are, so many bytes are copied in a second.
const RATE_MIN: u64 = 4 << 20;
/// Space runs short where less than this part of what the bound allows above the living is left.
const SHORT_PART: u64 = 16;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pace {
    is_on: AtomicBool,
    calls: Latencies,
    /// Bytes copied, ever.
    moved: AtomicU64,
    passes: Mutex<Passes>,
}

#[derive(Debug)]
struct Passes {
    courtesy: Courtesy,
    /// Under way.
    count: usize,
    looked_at: Duration,
    moved: u64,
}

/// Calls are compared with those before it; what is limited for their sake is not any more when the last one ends.
#[derive(Debug)]
pub(crate) struct PassUnderWay<'a>(&'a Store);

impl Pace {
    pub(crate) fn new() -> Self {
        let passes = Passes { courtesy: Courtesy::new(RATE_MIN), count: 0, looked_at: Duration::ZERO, moved: 0 };
        Self {
            is_on: AtomicBool::new(false),
            calls: Latencies::default(),
            moved: AtomicU64::new(0),
            passes: Mutex::new(passes),
        }
    }

    /// Whether anybody is considered (P2).
    pub(crate) fn set_on(&self, options: &Options) {
        let is_on = options.background_jobs > 1 && options.reclaim_mode == ReclaimMode::Auto;
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// A call begins: when, if it is one of those that are timed.
    #[inline]
    pub(crate) fn begin_call(&self, clock: &dyn Clock) -> Option<Duration> {
        let is_timed = self.is_on.load(Ordering::Relaxed)
            && CALLS.with(|calls| {
                calls.set(calls.get().wrapping_add(1));
                calls.get() % SAMPLE == 0
            });
        is_timed.then(|| clock.monotonic())
    }

    /// And ends.
    #[inline]
    pub(crate) fn end_call(&self, began: Option<Duration>, clock: &dyn Clock) {
        if let Some(began) = began {
            self.calls.note(clock.monotonic().saturating_sub(began));
        }
    }
}

impl Drop for PassUnderWay<'_> {
    fn drop(&mut self) {
        let mut passes = self.0.pace.passes.lock();
        passes.count -= 1;
        if passes.count == 0 {
            self.0.pace.calls.take();
            passes.courtesy.lift();
            self.0.set_reclaim_rate(None);
        }
    }
}

impl Store {
    /// A pass that copies values begins.
    pub(crate) fn begin_pass(&self) -> PassUnderWay<'_> {
        let mut passes = self.pace.passes.lock();
        if passes.count == 0 {
            let window = self.pace.calls.take();
            passes.courtesy.note_alone(&window);
            passes.looked_at = self.env.clock.monotonic();
            passes.moved = self.pace.moved.load(Ordering::Relaxed);
        }
        passes.count += 1;
        drop(passes);
        PassUnderWay(self)
    }

    /// Waits until `bytes` may be copied, unless the store is closed meanwhile.
    pub(crate) fn pace(&self, bytes: u64) -> Result<()> {
        let before = self.pace.moved.fetch_add(bytes, Ordering::Relaxed);
        if self.pace.is_on.load(Ordering::Relaxed) && before / LOOK_BYTES != (before + bytes) / LOOK_BYTES {
            self.look_at_callers();
        }
        let mut left = bytes;
        while left > 0 {
            self.check_open()?;
            let piece = left.min(PIECE_BYTES);
            self.pacer.request(Class::Reclaim, piece);
            left -= piece;
        }
        Ok(())
    }

    fn look_at_callers(&self) {
        let Some(mut passes) = self.pace.passes.try_lock() else { return };
        let now = self.env.clock.monotonic();
        let passed = now.saturating_sub(passes.looked_at);
        if passed < LOOK_PAUSE {
            return;
        }
        let left = self.left();
        let is_awaited = self.is_delayed() || self.room.is_awaited();
        if is_awaited || self.room.is_short() || left.bound < i64::try_from(left.slack / SHORT_PART).unwrap_or(i64::MAX)
        {
            self.pace.calls.take();
            passes.courtesy.lift();
            (passes.looked_at, passes.moved) = (now, self.pace.moved.load(Ordering::Relaxed));
            self.set_reclaim_rate(None);
            return;
        }
        let Some(window) = self.pace.calls.window(passed) else { return };
        let moved = self.pace.moved.load(Ordering::Relaxed);
        let per_second = (moved - passes.moved) as f64 / passed.as_secs_f64();
        (passes.looked_at, passes.moved) = (now, moved);
        self.set_reclaim_rate(passes.courtesy.rate(&window, per_second as u64));
    }

    /// Sets the rate, within what the options allow.
    pub(crate) fn set_reclaim_rate(&self, rate: Option<u64>) {
        let most = Some(self.options().reclaim_bytes_per_second_max).filter(|&most| most > 0);
        let rate = rate.into_iter().chain(most).min();
        if self.pacer.rate(Class::Reclaim) != rate {
            self.pacer.set_rate(Class::Reclaim, rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use esker_env::sim::SimDisk;
    use esker_format::rocksdb::internal_key::FileNumber;

    use super::*;
    use crate::compaction::testing::separated;
    use crate::compaction::{pick_sweep, pick_window};
    use crate::reclaim::{Foreseen, pick, pick_any_step};
    use crate::{Db, FamilyOptions};

    fn open(disk: &SimDisk, options: Options) -> Db {
        let family = FamilyOptions { blob_file_bytes: 64 << 10, ..separated() };
        let families = [("default".to_owned(), family)].into();
        Db::open_with_env("/db", Options { create_if_missing: true, families, ..options }, disk.env()).unwrap()
    }

    /// Goal: flushes, compactions and reclaim together take as long as the limit to all of them says; an open takes no longer than it has to.
    #[test]
    fn background_work_keeps_to_its_limit() {
        const PER_SECOND: u64 = 128 << 10;
        let (disk, mut random) = (SimDisk::new(), fastrand::Rng::with_seed(1));
        let options = || Options {
            background_jobs: 0,
            reclaim_mode: ReclaimMode::Manual,
            background_bytes_per_second_max: PER_SECOND,
            ..Options::default()
        };
        let db = open(&disk, options());
        let fill = |db: &Db, random: &mut fastrand::Rng, step: usize| {
            for n in (0..1000u32).step_by(step) {
                let value: Vec<u8> =
                    std::iter::repeat_with(|| random.u8(..)).take(if n % 2 == 0 { 900 } else { 90 }).collect();
                db.put(n.to_be_bytes(), value).unwrap();
            }
        };
        let written = |db: &Db| {
            let counters = &db.store().counters;
            [&counters.flush_bytes, &counters.flush_blob_bytes, &counters.compaction_bytes, &counters.reclaim_bytes]
                .map(|counter| counter.get())
                .iter()
                .sum::<u64>()
        };
        let now = || disk.clock().monotonic().as_secs_f64();
        for step in ["flush", "compaction", "reclaim"] {
            // Of what was overwritten a part, so that files have something left to copy.
            fill(&db, &mut random, if step == "reclaim" { 3 } else { 1 });
            if step == "reclaim" {
                db.compact_range(&db.default_column_family(), None, None).unwrap();
            }
            let (began, before) = (now(), written(&db));
            match step {
                "flush" => db.flush().unwrap(),
                "compaction" => db.compact_range(&db.default_column_family(), None, None).unwrap(),
                _ => drop(db.reclaim(&db.default_column_family(), 0.05).unwrap()),
            }
            let (seconds, bytes) = (now() - began, written(&db) - before);
            // What may be moved at once is a tenth of a second's.
            let least = bytes as f64 / PER_SECOND as f64 * 0.8 - 0.5;
            assert!(bytes > PER_SECOND / 2 && seconds > least, "{step}: {bytes} bytes in {seconds} seconds");
        }
        // Changed while it is open.
        assert!(db.set_db_options(|options| options.background_bytes_per_second_max = 1).is_err());
        for (per_second, least, most) in [(PER_SECOND / 2, 1.6, 2.5), (0, -0.5, 0.0)] {
            db.set_db_options(|options| options.background_bytes_per_second_max = per_second).unwrap();
            fill(&db, &mut random, 1);
            let (began, before) = (now(), written(&db));
            db.flush().unwrap();
            let (seconds, full) = (now() - began, (written(&db) - before) as f64 / PER_SECOND as f64);
            let range = full * least - 0.5..=full * most + 0.5;
            assert!(range.contains(&seconds), "{per_second}: {seconds} seconds, at the full rate {full}");
        }
        fill(&db, &mut random, 1);
        drop(db);
        let began = now();
        drop(open(&disk, options()));
        assert!(now() - began < 0.5, "the open took {} seconds", now() - began);
    }

    /// Goal: whatever copies values out of blob files asks for every byte of them: it takes as long as the limit says.
    #[test]
    fn each_byte_that_moves_is_asked_for() {
        const PER_SECOND: u64 = 64 << 10;
        for kind in ["relocation", "step home", "sweep", "window"] {
            let disk = SimDisk::new();
            let (reclaim_mode, reclaim_bytes_per_second_max) = (ReclaimMode::Manual, PER_SECOND);
            let options =
                Options { background_jobs: 0, reclaim_mode, reclaim_bytes_per_second_max, ..Options::default() };
            let db = open(&disk, options);
            (0..300u32).for_each(|n| db.put(n.to_be_bytes(), [n as u8; 1000]).unwrap());
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            let (store, family) = (db.store(), db.store().family(0).unwrap());
            let version = family.view.load().version.clone();
            let victims: BTreeSet<FileNumber> = version.blobs().keys().copied().collect();
            let began = disk.clock().monotonic();
            let compact = |plan: Option<crate::compaction::Plan>| {
                let plan = Arc::new(plan.unwrap());
                store.run_compaction(&plan, &Arc::new(store.room.reserve(plan.written_bytes()))).unwrap();
                plan.moved_bytes()
            };
            let relocate = |plan: Option<crate::reclaim::Relocation>| {
                let plan = plan.unwrap();
                store.run_relocation(&plan, &Arc::new(store.room.reserve(plan.written_bytes()))).unwrap();
                version.bytes_into(&plan.victims, plan.tables.iter().map(|(_, table)| table))
            };
            let moved = match kind {
                "relocation" => {
                    let newest = FileNumber::new(u64::MAX);
                    relocate(pick(&family, &version, f64::NEG_INFINITY, newest, &Foreseen::default()))
                }
                "step home" => relocate(pick_any_step(&family, &version, u64::MAX)),
                "sweep" => compact(pick_sweep(&family, &version, victims)),
                _ => compact(pick_window(&family, &version, version.level(version.deepest_level()), victims)),
            };
            assert!(moved > PER_SECOND / 2, "{kind}: {moved} bytes moved");
            assert_eq!(store.pace.moved.load(Ordering::Relaxed), moved, "{kind}");
            let took = (disk.clock().monotonic() - began).as_secs_f64();
            // But for what was saved up before, a tenth of a second's worth; and it is asked anew every 10 ms.
            let expected = moved as f64 / PER_SECOND as f64;
            assert!((expected - 0.11..=expected + 0.11).contains(&took), "{kind}: {took} s for {moved} bytes");
        }
    }

    /// Goal (P1, P2): callers that are slow beside a pass have it slowed down, where a thread does it that they do not wait for; not while they are held
    /// back for it; and the last pass takes its limit along.
    #[test]
    fn a_pass_is_slowed_down_for_slow_callers_as_long_as_it_goes_on() {
        for (background_jobs, is_delayed, limits) in [(2, false, true), (1, false, false), (2, true, false)] {
            let disk = SimDisk::new();
            let db = open(&disk, Options { background_jobs, max_space_amp: 50.0, ..Options::default() });
            let store = db.store();
            let call = |took| (0..200).for_each(|_| store.pace.calls.note(took));
            call(Duration::from_micros(10));
            let passes = [store.begin_pass(), store.begin_pass()];
            call(Duration::from_millis(10));
            store.delayed_rate.store(u64::from(is_delayed), Ordering::Relaxed);
            disk.clock().advance(LOOK_PAUSE);
            store.pace(LOOK_BYTES).unwrap();
            let rate = store.pacer.rate(Class::Reclaim);
            assert_eq!(rate.is_some_and(|rate| rate >= RATE_MIN), limits, "{background_jobs}, {is_delayed}: {rate:?}");
            let [first, last] = passes;
            drop(first);
            assert_eq!(store.pacer.rate(Class::Reclaim), rate, "another goes on");
            drop(last);
            assert_eq!(store.pacer.rate(Class::Reclaim), None);
        }
    }
}
