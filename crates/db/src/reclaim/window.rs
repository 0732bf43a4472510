//! Windows: passes over one range of keys, where blob files belong to ranges ([`ranges`](super::ranges)). Pure, as [`pick`](super::pick).
//!
//! - WD1: a window is the tables of the deepest level that point into some file, with those between level 0 and that one which lie above them only;
//!   and of the files that only these point into as many as make what comes free cheapest, keys that are written again included. What
//!   several windows offer, the cheapest is taken.
//! - WD2: of files that reach beyond every window, as a load leaves them, it takes along what lies in its own: always of the same few, those with the
//!   most garbage, which it makes more of, until the last window takes the rest. What was copied out of them until then is there twice.
//! - WD3: a window moves at least half of what it was reckoned to move, so that none is taken again and again.
//! - WD4: what lies above is taken to hide something of what lies beneath it only: where one range is written again and again, or keys are put behind
//!   all others, the other ranges are none the emptier for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;

use super::hidden::{Hiding, hidden_bytes, hiding_of, pointed_to};
use super::pick::{Need, PASS_PART, Use, room_for_values, uses_of};
use crate::compaction;
use crate::family::Family;
use crate::options::Separation;
use crate::version::{TableFile, Version};

/// What it costs to write a key again, in bytes of values that are copied. By the processor's time alone it would be some 400; with less, passes take
/// fewer files with more garbage. Values of 1 KiB overwritten at random: 5.2, 4.6 and 4.5 bytes to the device for each at 1024, 384 and 128, puts as fast.
const KEY_COST: u64 = 128;
/// Windows that are looked at: those of the files with the most garbage.
const WINDOWS_MAX: usize = 64;
/// A window copies this part of what the bound allows above what lives: two are on their way at a time.
pub(super) const WINDOW_COPY_PART: u64 = 12;
/// A window is no wider than this part of the deepest level, or one table. With three quarters there were windows of seven tables, and the slowest
/// hundredth of puts of 1 KiB at a quarter of full speed took 1, 296 and 481 ms; with a quarter 0.3, 3 and 55 ms, before other changes.
const WINDOW_PART: u64 = 4;
/// What a window frees is at least this part of what a pass over everything would have to.
const WINDOW_GAIN_PART: u64 = 8;
/// And at least a page.
const FREED_MIN: u64 = 4096;

/// What a pass would do with a blob file, or several, or a part of one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    pub(super) freed_bytes: u64,
    pub(super) copied_bytes: u64,
    /// What tables point to there: what is copied, and what is hidden.
    pub(super) live_bytes: u64,
}

impl Share {
    fn add(&mut self, other: Self) {
        self.freed_bytes = self.freed_bytes.saturating_add(other.freed_bytes);
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
    }

    fn part(self, part: f64) -> Self {
        let of = |bytes: u64| (bytes as f64 * part) as u64;
        let (freed_bytes, copied_bytes) = (of(self.freed_bytes), of(self.copied_bytes));
        Self { freed_bytes, copied_bytes, live_bytes: of(self.live_bytes) }
    }

    /// What comes free for what it costs to write so many keys and copy so much.
    pub(super) fn gain(&self, keys: u64) -> f64 {
        self.freed_bytes as f64 / keys.saturating_mul(KEY_COST).saturating_add(self.copied_bytes).max(1) as f64
    }
}

/// A blob file that only tables below level 0 point into, none of which is too wide for a window, and what these overlap of the deepest level:
/// neighbours from the first to the last of them.
#[derive(Debug, Clone, Copy)]
struct Spanned {
    number: FileNumber,
    first: usize,
    last: usize,
    share: Share,
    garbage_part: f64,
}

/// What a window would do.
#[derive(Debug)]
struct Window {
    first: usize,
    last: usize,
    victims: BTreeSet<FileNumber>,
    share: Share,
    gain: f64,
}

/// See the module's head; with what it gains; `None` where blob files belong to no ranges, or there is nothing to gain.
pub(crate) fn pick_window(
    family: &Arc<Family>,
    need: &Need,
    damaged: &BTreeSet<FileNumber>,
) -> Option<(f64, compaction::Plan)> {
    let version = &family.view.load().version.clone();
    if !need.may_sweep || version.blobs().is_empty() || family.ranges.count() == 1 {
        return None;
    }
    let part_min = need.part_min(version, (hidden_bytes(version) as f64 * need.hidden_part) as u64);
    let tables = version.level(version.deepest_level());
    let mut files = spanned(version, need.hidden_part)?;
    files.retain(|file| file.garbage_part >= part_min && !damaged.contains(&file.number));
    files.sort_by(|a, b| b.garbage_part.total_cmp(&a.garbage_part).then(a.number.cmp(&b.number)));
    let (files, wide): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| is_narrow(tables, (file.first, file.last)));
    let copied_bytes_max = need.copied_bytes_max * PASS_PART / WINDOW_COPY_PART;
    // Where values are written at once, most files are wide: to empty one writes all keys, as it does to empty several.
    let wide_bytes_max = match family.separation() {
        Separation::AtWrite => need.copied_bytes_max,
        _ => copied_bytes_max,
    };
    // Each window writes tables, too, the last one as well, when all else is copied already.
    let room = room_for_values(family, version, need, version.table_sums().bytes);
    let wide = Wide::of(version, &wide, wide_bytes_max, room);
    let keys: Vec<u64> = tables.iter().map(|table| table.table.properties().entry_count).collect();
    let least = (need.freed_bytes_min / WINDOW_GAIN_PART).max(FREED_MIN);
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for span in files.iter().map(|file| (file.first, file.last)).chain(wide.spans()) {
        if !spans.contains(&span) {
            spans.push(span);
        }
        if spans.len() == WINDOWS_MAX {
            break;
        }
    }
    let windows = spans.into_iter().filter_map(|span| window(span, &files, &wide, &keys, copied_bytes_max));
    let mut windows: Vec<Window> = windows.collect();
    windows.retain(|window| window.share.freed_bytes >= least);
    windows.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    windows.into_iter().find_map(|window| {
        let tables = tables.get(window.first..=window.last)?;
        let plan = compaction::pick_window(family, version, tables, window.victims)?;
        // Less than was reckoned with: some of what points there lies above, and stays. That might be tried again and again.
        let moved = plan.moved_bytes();
        let moves = moved > 0 && moved >= window.share.live_bytes / 2;
        (moves && plan.written_bytes() <= need.written_bytes_max).then_some((window.gain, plan))
    })
}

fn is_narrow(tables: &[Arc<TableFile>], (first, last): (usize, usize)) -> bool {
    let bytes = |tables: &[Arc<TableFile>]| tables.iter().map(|table| table.meta.file_bytes).sum::<u64>();
    // There is no narrower one. It ends tables where ranges do, so the next one is.
    first == last || tables.get(first..=last).is_some_and(|window| bytes(window) <= bytes(tables) / WINDOW_PART)
}

/// Files that reach beyond every window (WD2).
#[derive(Debug, Default)]
struct Wide {
    files: BTreeSet<FileNumber>,
    /// What of them a window over a table of the deepest level does.
    of_table: Vec<Share>,
}

impl Wide {
    /// The first of `files`, one or of so few bytes that there is room for them until the last window has taken the rest.
    fn of(version: &Version, files: &[Spanned], copied_bytes_max: u64, room: u64) -> Self {
        let mut sum = Share::default();
        let fits = |file: &&Spanned| {
            let is_first = sum.live_bytes == 0;
            sum.add(file.share);
            sum.live_bytes <= room && (is_first || sum.copied_bytes <= copied_bytes_max)
        };
        let chosen: BTreeMap<_, _> = files.iter().take_while(fits).map(|file| (file.number, file.share)).collect();
        if chosen.is_empty() {
            return Self::default();
        }
        let lowest = version.level(version.deepest_level());
        let mut of_table = vec![Share::default(); lowest.len()];
        for (_, table) in version.tables().filter(|(level, _)| *level > 0) {
            let Some(sum) = of_table.get_mut(beneath(lowest, table).0) else { continue };
            for (number, bytes) in table.known_blob_refs().into_iter().flatten() {
                if let Some(share) = chosen.get(number) {
                    sum.add(share.part((*bytes as f64 / share.live_bytes.max(1) as f64).min(1.0)));
                }
            }
        }
        Self { files: chosen.into_keys().collect(), of_table }
    }

    /// Where there is something of theirs.
    fn spans(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let holding = self.of_table.iter().enumerate().filter(|(_, share)| share.live_bytes > 0);
        holding.map(|(index, _)| (index, index))
    }

    fn within(&self, (first, last): (usize, usize)) -> Share {
        let mut sum = Share::default();
        self.of_table.get(first..=last).unwrap_or_default().iter().for_each(|share| sum.add(*share));
        sum
    }
}

/// The files between the tables of `span` that make what comes free cheapest, those with the most garbage first, beside what lies there of wide ones.
fn window(span: (usize, usize), files: &[Spanned], wide: &Wide, keys: &[u64], copied_bytes_max: u64) -> Option<Window> {
    let (first, last) = span;
    let keys = keys.get(first..=last)?.iter().copied().fold(0, u64::saturating_add);
    let mut share = wide.within(span);
    let mut victims = if share.live_bytes > 0 { wide.files.clone() } else { BTreeSet::new() };
    let of_these = |victims: &BTreeSet<FileNumber>, share: Share| {
        let gain = share.gain(keys);
        Window { first, last, victims: victims.clone(), share, gain }
    };
    let mut best = (!victims.is_empty()).then(|| of_these(&victims, share));
    for file in files.iter().filter(|file| file.first >= first && file.last <= last) {
        if !victims.is_empty() && share.copied_bytes.saturating_add(file.share.copied_bytes) > copied_bytes_max {
            break;
        }
        victims.insert(file.number);
        share.add(file.share);
        if best.as_ref().is_none_or(|best| share.gain(keys) >= best.gain) {
            best = Some(of_these(&victims, share));
        }
    }
    best
}

/// A table above the deepest level, and what it may hide of the tables of that level from `first` to before `end`: a part of each.
#[derive(Debug)]
struct Cover {
    first: usize,
    end: usize,
    hiding: Hiding,
    part: f64,
}

/// What lies above the deepest level, by level (WD4).
///
/// Cost: a few looks at each table of each level; for each of its tables that is asked for, one at all of level 0 and at what lies above it elsewhere.
#[derive(Debug)]
struct Covers {
    levels: Vec<Vec<Cover>>,
    /// Bytes of values that the tables of the deepest level before each point to.
    before: Vec<u64>,
}

impl Covers {
    fn of(version: &Version) -> Self {
        let deepest = version.deepest_level();
        let lowest = version.level(deepest);
        let mut before = vec![0u64];
        let mut sum = 0u64;
        for table in lowest {
            sum = sum.saturating_add(pointed_to(table));
            before.push(sum);
        }
        let mut covers = Self { levels: Vec::new(), before };
        let cover = |table: &Arc<TableFile>| {
            let (first, end) = over(lowest, table);
            let (below, hiding) = (covers.bytes(first, end), hiding_of(version, table));
            let part = hiding.bytes as f64 / below as f64;
            (below > 0).then_some(Cover { first, end, hiding, part })
        };
        covers.levels = (0..deepest).map(|level| version.level(level).iter().filter_map(cover).collect()).collect();
        covers
    }

    /// What tables of the deepest level point to.
    fn bytes(&self, first: usize, end: usize) -> u64 {
        let before = |index: usize| self.before.get(index).copied().unwrap_or_default();
        before(end).saturating_sub(before(first))
    }

    /// How much is hidden of what a table of `level` points to, over those of the deepest level from `first` to `last`: as if what lies there were spread
    /// evenly over all levels.
    fn hidden_part(&self, level: usize, table: &TableFile, (first, last): (usize, usize)) -> f64 {
        let seen = table.seen_up_to();
        let all = self.bytes(first, last + 1).max(1) as f64;
        let (mut newer, mut beside) = (0.0, 0.0);
        for (above, covers) in self.levels.iter().enumerate() {
            // Below level 0 they lie side by side.
            let from = if above == 0 { 0 } else { covers.partition_point(|cover| cover.end <= first) };
            let until = if above == 0 { covers.len() } else { covers.partition_point(|cover| cover.first <= last) };
            for cover in covers.get(from..until).unwrap_or_default() {
                let shared = self.bytes(cover.first.max(first), cover.end.min(last + 1));
                let part = cover.part * (shared as f64 / all);
                beside += part;
                newer += if above < level { part * cover.hiding.part_after(seen) } else { 0.0 };
            }
        }
        newer / (1.0 + beside)
    }
}

/// All such files; `None` if some table does not say what it points into. Of what lies above the deepest level, `hidden_part` is taken to hide
/// values of theirs.
fn spanned(version: &Version, hidden_part: f64) -> Option<Vec<Spanned>> {
    let deepest = version.deepest_level();
    if deepest == 0 {
        return None;
    }
    let covers = Covers::of(version);
    // First and last table of the deepest level, and bytes that are hidden.
    let mut spans: BTreeMap<FileNumber, (usize, usize, f64)> = BTreeMap::new();
    let lowest = version.level(deepest);
    let mut out_of_reach: Vec<&Arc<TableFile>> = version.level(0).iter().collect();
    for (level, table) in version.tables().filter(|(level, _)| *level > 0) {
        let (first, last) = beneath(lowest, table);
        if !is_narrow(lowest, (first, last)) {
            out_of_reach.push(table);
            continue;
        }
        let hidden = (covers.hidden_part(level, table, (first, last)) * hidden_part).min(1.0);
        for (file, bytes) in table.known_blob_refs()? {
            let span = spans.entry(*file).or_insert((first, last, 0.0));
            *span = (span.0.min(first), span.1.max(last), span.2 + *bytes as f64 * hidden);
        }
    }
    // What is in level 0 will have come down when it is time for another pass.
    for table in out_of_reach {
        for file in table.known_blob_refs()?.keys() {
            spans.remove(file);
        }
    }
    let spanned = |file: Use| {
        let (first, last, hidden) = *spans.get(&file.number)?;
        let hidden = (hidden as u64).min(file.live_bytes);
        let freed_bytes = file.garbage_bytes().saturating_add(hidden);
        let garbage_part = freed_bytes as f64 / file.disk_bytes.max(1) as f64;
        let share = Share { freed_bytes, copied_bytes: file.live_bytes - hidden, live_bytes: file.live_bytes };
        Some(Spanned { number: file.number, first, last, share, garbage_part })
    };
    Some(uses_of(version).filter_map(spanned).collect())
}

/// The tables of `lowest`, neighbours of the deepest level, that share a range of keys with `table`: from the first to before the end.
fn over(lowest: &[Arc<TableFile>], table: &TableFile) -> (usize, usize) {
    let order = table.table.order();
    let first = lowest.partition_point(|below| order.is_before(below.largest(), table.smallest()));
    (first, lowest.partition_point(|below| !order.is_before(table.largest(), below.smallest())))
}

/// The first and the last of them; if there is none, one beside it.
fn beneath(lowest: &[Arc<TableFile>], table: &TableFile) -> (usize, usize) {
    let ((first, end), last) = (over(lowest, table), lowest.len().saturating_sub(1));
    (first.min(last), end.saturating_sub(1).max(first).min(last))
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::version::{Edit, testing};
    use crate::{Compression, Db, FamilyOptions, Options};

    const KEYS: u32 = 2400;

    fn put(db: &Db, keys: std::ops::Range<u32>, byte: u8) {
        keys.for_each(|n| db.put(n.to_be_bytes(), [byte; 1000]).unwrap());
        db.flush().unwrap();
    }

    /// A store whose keys are divided, without garbage, all of it in the deepest level.
    fn divided() -> Db {
        let family = FamilyOptions {
            write_buffer_bytes: 1 << 20,
            min_blob_size: 100,
            blob_file_bytes: 64 << 10,
            blob_compression: Compression::None,
            ..FamilyOptions::default()
        };
        let options =
            Options { create_if_missing: true, background_jobs: 0, max_space_amp: 10.0, ..Options::default() };
        let families = [("default".to_owned(), family)].into();
        let db = Db::open_with_env("/db", Options { families, ..options }, SimDisk::new().env()).unwrap();
        put(&db, 0..KEYS, 0);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let family = db.store().family(0).unwrap();
        // Once they are divided, tables and blob files are to be.
        family.overwriting.note_compacted(1.0);
        let version = family.view.load().version.clone();
        let victims = version.blobs().keys().copied().collect();
        let plan = Arc::new(compaction::pick_sweep(&family, &version, victims).unwrap());
        let reserved = Arc::new(db.store().room.reserve(plan.written_bytes()));
        db.store().run_compaction(&plan, &reserved).unwrap();
        let version = family.view.load().version.clone();
        assert!(family.ranges.count() == 8 && version.level(version.deepest_level()).len() == 8);
        db
    }

    /// What was flushed last goes down.
    fn move_down(db: &Db, level: usize) {
        let family = db.store().family(0).unwrap();
        let tables = family.view.load().version.level(0).to_vec();
        let deleted = tables.iter().map(|table| (0, table.clone())).collect();
        let added = tables.into_iter().map(|table| (level, table)).collect();
        db.store().install(&family, Edit { deleted, added, ..Edit::default() }, &[]).unwrap();
    }

    /// The window that is picked, where so much is taken to be hidden.
    fn picked(db: &Db, garbage_part_min: f64) -> Option<compaction::Plan> {
        let need = Need {
            copied_bytes_max: 1 << 40,
            copied_by_everything_max: 1 << 40,
            written_bytes_max: u64::MAX,
            is_pressed: false,
            freed_bytes_min: 0,
            garbage_part_min,
            hidden_part: 1.0,
            can_punch: false,
            may_sweep: true,
        };
        let family = db.store().family(0).unwrap();
        pick_window(&family, &need, &BTreeSet::new()).map(|(_, plan)| plan)
    }

    /// Goal (WD4): where one range is overwritten, it is taken, and once that is done nothing is, wherever what has overwritten it lies.
    #[test]
    fn what_lies_above_one_range_hides_nothing_of_others() {
        for level in [0, 5] {
            let db = divided();
            assert!(picked(&db, 0.05).is_none(), "there is no garbage");
            let hot = KEYS - KEYS / 8 + 20..KEYS;
            put(&db, hot.clone(), 1);
            move_down(&db, level);
            let hidden = hidden_bytes(&db.store().family(0).unwrap().view.load().version);
            assert!(hidden > 250_000, "{hidden}");
            let plan = picked(&db, 0.1).unwrap();
            assert!(plan.inputs().all(|(_, table)| table.overlaps(Some(&hot.start.to_be_bytes()), None)), "{level}");
            let (plan, before) = (Arc::new(plan), db.stats().on_disk.blob_bytes);
            let reserved = Arc::new(db.store().room.reserve(plan.written_bytes()));
            db.store().run_compaction(&plan, &reserved).unwrap();
            drop(plan);
            db.store().trash.purge().unwrap();
            let freed = before - db.stats().on_disk.blob_bytes;
            assert!(freed > 250_000, "{level}: {freed}");
            assert!(picked(&db, 0.1).is_none(), "{level}: nothing is hidden any more");
        }
    }

    /// Goal (WD4): what is put behind all other keys hides nothing.
    #[test]
    fn what_lies_above_nothing_hides_nothing() {
        for level in [0, 5] {
            let db = divided();
            put(&db, KEYS..KEYS * 3 / 2, 1);
            move_down(&db, level);
            assert!(picked(&db, 0.05).is_none(), "{level}");
        }
    }

    #[test]
    fn keys_that_tables_say_they_hold_are_summed_up_without_overflow() {
        let file = Spanned {
            number: FileNumber::new(1),
            first: 0,
            last: 1,
            share: Share { freed_bytes: 1000, copied_bytes: 10, live_bytes: 10 },
            garbage_part: 0.5,
        };
        assert!(window((0, 1), &[file], &Wide::default(), &[u64::MAX, 2], 100).is_some());
    }

    /// Goal (WD2): of files that reach beyond every window, each window takes what its tables point to, and all of them together everything; of as
    /// many as there is room for until then.
    #[test]
    fn windows_share_what_lies_in_wide_files() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let refs = |files: &[(u64, u64)]| files.iter().map(|&(file, bytes)| (FileNumber::new(file), bytes)).collect();
        let pointing = |key: &str, files: &[(u64, u64)]| {
            testing::pointing_table(db.store(), 1, &[(key, 1, Some("-"))], &refs(files))
        };
        let lowest = [("a", [(8, 100), (9, 50)]), ("d", [(8, 200), (9, 50)]), ("g", [(8, 300), (9, 50)])];
        let lowest = lowest.map(|(key, files)| (6, pointing(key, &files)));
        let above = (5, pointing("e", &[(8, 200)]));
        testing::install(&db, lowest.into_iter().chain([above]).collect(), 10);
        let version = db.store().family(0).unwrap().view.load().version.clone();
        let wide = |number, live_bytes| Spanned {
            number: FileNumber::new(number),
            first: 0,
            last: 2,
            share: Share { freed_bytes: live_bytes / 2, copied_bytes: live_bytes, live_bytes },
            garbage_part: 0.3,
        };
        let files = [wide(8, 800), wide(9, 150)];
        let of = |copied_max, written_max| Wide::of(&version, &files, copied_max, written_max);
        let numbers = |wide: &Wide| wide.files.iter().map(|file| file.get()).collect::<Vec<_>>();
        assert_eq!(numbers(&of(1000, 1000)), [8, 9]);
        assert_eq!(numbers(&of(800, 1000)), [8]);
        assert_eq!(numbers(&of(0, 1000)), [8], "one in any case");
        assert_eq!(numbers(&of(1000, 900)), [8], "there is no room for both");
        assert_eq!(numbers(&of(1000, 799)), [], "nor for one");
        let both = of(1000, 1000);
        let copied = |first, last| both.within((first, last)).copied_bytes;
        // What lies above comes with a table beside it, or beneath.
        assert_eq!([copied(0, 0), copied(1, 1), copied(2, 2), copied(0, 2)], [150, 250, 550, 950]);
        let keys = [1; 3];
        let of_window = window((1, 1), &[], &both, &keys, 1000).unwrap();
        assert_eq!((of_window.victims.len(), of_window.share.freed_bytes), (2, 125));
        assert!(window((1, 1), &[], &Wide::default(), &keys, 1000).is_none());
    }
}
