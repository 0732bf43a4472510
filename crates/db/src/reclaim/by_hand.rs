//! Reclaim when a user asks for it, and what it would do.
//!
//! What it would do is told by the code that chooses what is done: [`pick`] and [`pick_punch`] choose again and again, after what was
//! [`Foreseen`] so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_format::rocksdb::internal_key::FileNumber;
use esker_log::ledger::Usage;

use super::hidden::not_compacted_bytes;
use super::pick::{Foreseen, Use, uses_after, uses_of};
use super::{Goal, Punch, pick, pick_punch};
use crate::events::FileChanges;
use crate::family::Family;
use crate::open::superfluous_bytes;
use crate::options::{ReclaimMode, Separation};
use crate::store::{KeptOut, State, Store};
use crate::version::{BlobHandle, Version};
use crate::{Error, Result};

/// One blob file, and what giving back its garbage would take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobFileUse {
    /// Its number, which is its name.
    pub number: u64,
    /// Bytes of its records.
    pub bytes: u64,
    /// Of these, bytes that some table points to: to be copied.
    pub live_bytes: u64,
    /// Of these, bytes that nothing points to: to be freed.
    pub garbage_bytes: u64,
    /// Bytes that were given back to the file system as holes.
    pub hole_bytes: u64,
    /// Bytes that would be, by more holes.
    pub punched_bytes: u64,
    /// Whether it has a second name: a checkpoint's, which keeps it on the disk, and whole.
    pub is_shared: bool,
    /// Whether a pass would empty it, after the holes.
    pub is_picked: bool,
}

/// Who holds the garbage of a column family, and what [`Db::reclaim`](crate::Db::reclaim) would cost and free. All numbers are of one moment, and come from
/// the same choices that it makes.
///
/// How far off they are, of a store that nobody writes to meanwhile:
/// - `punched_bytes` and, beside holes, `freed_bytes` by a page (4 KiB) for each file that has any, and one for every 256 in it, where the file system makes holes of such pages and nobody else
///   has the store open for reading; `copied_bytes` and, without holes, `freed_bytes` by nothing;
/// - `table_bytes` by a tenth and 1 KiB for each table that is written, since other pointers pack otherwise;
/// - what is written where values come home by a tenth, where they are packed in tables as they were in blob files. Where space is too short to have all of them twice,
///   tables are written again in several rounds: that is told within a fifth, but there are more passes.
///
/// What is not compacted, or not flushed, is not foretold: should a compaction come due meanwhile, it writes more, and finds more garbage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimPlan {
    /// Its blob files, by ascending number.
    pub files: Vec<BlobFileUse>,
    /// Whether values come home: the family falls back, all blob files are emptied, and what lives in them goes to tables.
    pub comes_home: bool,
    /// Bytes of blob files that would become holes, before anything is copied; nothing is written for that.
    pub punched_bytes: u64,
    /// Passes that would copy values, and write the tables again that point to them.
    pub passes: u64,
    /// Bytes of values that they would copy: to blob files, or home.
    pub copied_bytes: u64,
    /// Bytes of blob files that come free by that, beyond the copies in other blob files.
    pub freed_bytes: u64,
    /// Bytes of tables that they would write again, without what comes home.
    pub table_bytes: u64,
    /// At most so many bytes of values are overwritten or deleted, but not yet compacted with what did that. Passes do not find them: see
    /// [`Db::compact_range`](crate::Db::compact_range).
    pub not_compacted_bytes: u64,
    /// Memory of entries that are in logs and in no table: what they overwrite, and what they point to, is not looked at.
    pub unflushed_bytes: u64,
    /// Snapshots of this handle's that keep older versions of values from becoming garbage.
    pub snapshots: usize,
    /// Whether iterators or reads of this handle's hold an earlier state of the family: no hole is made while they do.
    pub is_earlier_state_held: bool,
    /// Bytes of obsolete files, of all families, that iterators and values in the user's hands keep on the disk.
    pub held_bytes: u64,
    /// In a store open for reading only: bytes of tables and blob files, of all families, that nothing names any more. They go when it is opened for writing; if another
    /// process has it open so, its readers may hold them, or it is just writing them.
    pub leftover_bytes: u64,
}

impl ReclaimPlan {
    fn note_picked(&mut self, emptied: &BTreeSet<FileNumber>) {
        self.files.iter_mut().for_each(|file| file.is_picked = emptied.contains(&FileNumber::new(file.number)));
    }

    /// Bytes of tables and blob files that would be written.
    pub const fn written_bytes(&self) -> u64 {
        self.table_bytes.saturating_add(self.copied_bytes)
    }
}

/// What a reclaim by hand did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Passes over the tables.
    pub passes: u64,
    /// Bytes of blob files that became holes, before those.
    pub punched_bytes: u64,
    /// Bytes of tables and blob files that passes wrote.
    pub written_bytes: u64,
    /// Bytes of blob files before, without their holes.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
}

impl Reclaimed {
    fn add(&mut self, changes: &FileChanges) {
        self.punched_bytes += changes.punched_bytes;
        self.written_bytes += changes.added.iter().map(|file| file.bytes).sum::<u64>();
    }
}

/// A turn in which nothing else is begun in a family.
struct Turn<'a> {
    store: &'a Store,
    family_id: u32,
    before: Option<KeptOut>,
    has_ended: bool,
}

impl<'a> Turn<'a> {
    /// `None` while somebody else is at work by hand there: that ends.
    fn take(store: &'a Store, state: &mut State, family_id: u32, goal: Goal) -> Option<Self> {
        let before = state.manual.get(&family_id).copied();
        // Whoever brings everything home is a compaction by hand, whose turn it is already.
        let is_own = matches!(goal, Goal::None) || before.is_none();
        is_own.then(|| {
            state.manual.insert(family_id, KeptOut::All);
            Self { store, family_id, before, has_ended: false }
        })
    }

    /// Others may begin again.
    fn end(&mut self, state: &mut State) {
        match self.before {
            Some(kept_out) => drop(state.manual.insert(self.family_id, kept_out)),
            None => drop(state.manual.remove(&self.family_id)),
        }
        self.has_ended = true;
        self.store.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(&mut self.store.state.lock());
        }
    }
}

fn check_part(garbage_part: f64) -> Result<()> {
    if (0.0..=1.0).contains(&garbage_part) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("the part of garbage is {garbage_part}, must be in 0..=1")))
}

/// What its blob files take up.
fn blob_bytes(family: &Family) -> u64 {
    uses_of(&family.view.load().version).map(|file| file.disk_bytes).sum()
}

/// What `garbage_part` is to a pass: of a file without garbage, copying all of it frees nothing.
fn least_part(garbage_part: f64) -> f64 {
    garbage_part.max(f64::MIN_POSITIVE)
}

impl Store {
    /// See [`Db::reclaim_plan`](crate::Db::reclaim_plan).
    pub(crate) fn reclaim_plan(&self, family: &Arc<Family>, garbage_part: f64) -> Result<ReclaimPlan> {
        self.check_open()?;
        check_part(garbage_part)?;
        self.refresh_room();
        let view = family.view.load_full();
        let version = &view.version;
        let in_memory = view.generations().map(|held| held.memtable.allocated_bytes() as u64 + held.blobs.bytes());
        let mut plan = ReclaimPlan {
            files: version.ledger().iter().map(|(number, usage)| self.use_of(version, number, usage)).collect(),
            comes_home: family.separation() == Separation::FallBack,
            punched_bytes: 0,
            passes: 0,
            copied_bytes: 0,
            freed_bytes: 0,
            table_bytes: 0,
            not_compacted_bytes: not_compacted_bytes(version),
            unflushed_bytes: in_memory.sum(),
            snapshots: self.snapshots.count(),
            is_earlier_state_held: family.is_older_version_held(version),
            held_bytes: self.trash.held_bytes(),
            leftover_bytes: if self.read_only { superfluous_bytes(self)? } else { 0 },
        };
        match plan.comes_home {
            true => self.foretell_home(family, version, &mut plan),
            false => self.foretell_passes(family, version, garbage_part, &mut plan)?,
        }
        Ok(plan)
    }

    fn use_of(&self, version: &Version, number: FileNumber, usage: Usage) -> BlobFileUse {
        let blob = version.blobs().get(&number);
        BlobFileUse {
            number: number.get(),
            bytes: usage.bytes,
            live_bytes: usage.live_bytes(),
            garbage_bytes: usage.garbage_bytes,
            hole_bytes: blob.map_or(0, |blob| blob.holes.bytes()),
            punched_bytes: 0,
            is_shared: blob.is_some_and(|blob| self.is_shared(blob)),
            is_picked: false,
        }
    }

    /// What values that come home take and free.
    fn foretell_home(&self, family: &Arc<Family>, version: &Arc<Version>, plan: &mut ReclaimPlan) {
        let way = self.foresee_home(family, version);
        (plan.passes, plan.table_bytes, plan.copied_bytes) = (way.steps, way.table_bytes, way.home_bytes);
        plan.freed_bytes =
            uses_of(version).filter(|file| way.emptied.contains(&file.number)).map(|file| file.disk_bytes).sum();
        plan.note_picked(&way.emptied);
    }

    /// What holes free, and passes take and free after that.
    fn foretell_passes(
        &self,
        family: &Arc<Family>,
        version: &Arc<Version>,
        garbage_part: f64,
        plan: &mut ReclaimPlan,
    ) -> Result<()> {
        let (mut foreseen, mut done) = (Foreseen::default(), BTreeSet::new());
        // Nobody waits for `state` while files are read.
        let next = |done: &BTreeSet<FileNumber>| self.pick_punch_by_hand(&self.state.lock(), family, version, done);
        while let Some(punch) = next(&done) {
            for (number, freed) in self.foresee_punch(&punch)? {
                plan.punched_bytes += freed.bytes;
                plan.files
                    .iter_mut()
                    .filter(|file| file.number == number.get())
                    .for_each(|file| file.punched_bytes = freed.bytes);
                foreseen.hole_bytes.insert(number, freed.hole_bytes);
            }
            done.extend(punch.files());
        }
        let uses: BTreeMap<FileNumber, Use> = uses_after(version, &foreseen).map(|file| (file.number, file)).collect();
        let newer = FileNumber::new(u64::MAX);
        while let Some(pass) = pick(family, version, least_part(garbage_part), newer, &foreseen) {
            plan.passes += 1;
            for (_, table) in &pass.tables {
                plan.table_bytes += if pass.rewrites(table)? { table.meta.file_bytes } else { 0 };
            }
            for file in pass.victims.iter().filter_map(|number| uses.get(number)) {
                plan.copied_bytes += file.live_bytes;
                plan.freed_bytes += file.garbage_bytes();
            }
            foreseen.emptied.extend(pass.victims);
        }
        plan.note_picked(&foreseen.emptied);
        Ok(())
    }

    /// Whether the file has a second name, as far as the file system says.
    fn is_shared(&self, blob: &BlobHandle) -> bool {
        self.env.files.metadata(blob.file.path()).is_ok_and(|found| found.links > 1)
    }

    /// See [`Db::reclaim`](crate::Db::reclaim).
    pub(crate) fn reclaim(&self, family: &Arc<Family>, garbage_part: f64) -> Result<Reclaimed> {
        check_part(garbage_part)?;
        family.check_not_dropped()?;
        if self.options().reclaim_mode == ReclaimMode::Off {
            let reason = "reclaim is switched off; set reclaim_mode to Auto or Manual";
            return Err(Error::invalid_argument(reason));
        }
        let mut reclaimed = Reclaimed { bytes_before: blob_bytes(family), ..Reclaimed::default() };
        let goal = Goal::Garbage(least_part(garbage_part), FileNumber::new(self.next_file_number()));
        // What is in the way of holes is in nobody else's: it is told in the end.
        let made = self.punch_by_hand(family, &mut reclaimed);
        while let Some(changes) = self.reclaim_once(family, goal)? {
            reclaimed.passes += 1;
            reclaimed.add(&changes);
            self.trash.purge_again()?;
        }
        made?;
        reclaimed.bytes_after = blob_bytes(family);
        Ok(reclaimed)
    }

    /// The next pass that makes holes, after those over the files of `done`; `None` if there is nothing to gain, or not now.
    fn pick_punch_by_hand(
        &self,
        state: &State,
        family: &Arc<Family>,
        version: &Arc<Version>,
        done: &BTreeSet<FileNumber>,
    ) -> Option<Punch> {
        let can_punch = state.copies == 0 && !self.cannot_punch.load(Ordering::Relaxed) && !family.is_dropped();
        // What comes home leaves no file to make holes in.
        let stays = family.separation() != Separation::FallBack;
        if can_punch && stays { pick_punch(family, version, done) } else { None }
    }

    /// Holes come first: they cost least for each byte that comes free.
    fn punch_by_hand(&self, family: &Arc<Family>, reclaimed: &mut Reclaimed) -> Result<()> {
        loop {
            self.check_writable()?;
            let (state, version) = (self.state.lock(), family.view.load().version.clone());
            let Some(plan) = self.pick_punch_by_hand(&state, family, &version, &BTreeSet::new()) else { return Ok(()) };
            drop(version);
            reclaimed.add(&self.claim_and_punch(state, plan)?);
        }
    }

    /// One pass; `None` if there is nothing left to do, or the family was dropped.
    pub(crate) fn reclaim_once(&self, family: &Arc<Family>, goal: Goal) -> Result<Option<FileChanges>> {
        let mut turn: Option<Turn<'_>> = None;
        loop {
            self.check_writable()?;
            let mut state = self.state.lock();
            let plan = match goal {
                _ if family.is_dropped() => None,
                _ if family.separation() == Separation::FallBack => self.pick_step_by_hand(&state, family)?,
                Goal::Garbage(part, before) => {
                    pick(family, &family.view.load().version, part, before, &Foreseen::default())
                }
                Goal::None => None,
            };
            let Some(plan) = plan else { return Ok(None) };
            if plan.is_claimed() {
                // What rests with its claims has to be tried again before its tables can be touched.
                state.wake_resting(family.id);
            }
            if plan.is_claimed() {
                // What others have begun is waited for; but windows might follow each other for as long as somebody writes.
                if turn.is_none() {
                    turn = Turn::take(self, &mut state, family.id, goal);
                }
                self.changed.wait_for(&mut state, Duration::from_millis(100));
                continue;
            }
            // From here on the plan's claims are enough: writers may wait for space meanwhile.
            turn.iter_mut().for_each(|turn| turn.end(&mut state));
            return self.claim_and_run(state, plan).map(Some);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use esker_env::sim::SimDisk;
    use esker_format::rocksdb::blob::BlobIndex;
    use parking_lot::Mutex;

    use super::*;
    use crate::compaction::testing::{open, separated};
    use crate::events::{EventKind, Job, JobKind, Listener};
    use crate::reclaim::home::pick_any_step;
    use crate::version::testing::{install, table_of_pointers};
    use crate::{Compression, Db, FamilyOptions, Options};

    /// Goal: what comes while somebody reclaims by hand is not waited for: only files that were there before are emptied.
    #[test]
    fn only_files_that_were_there_are_emptied() {
        let db = open(&SimDisk::new(), separated());
        for round in 0..4u8 {
            (round * 10..100).for_each(|n| db.put([n], [round; 500]).unwrap());
            db.flush().unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let family = db.store().family(0).unwrap();
        let numbers: Vec<FileNumber> = family.view.load().version.blobs().keys().copied().collect();
        assert_eq!(numbers.len(), 4);
        for (count, before) in numbers.iter().enumerate() {
            let plan = pick(&family, &family.view.load().version, 0.1, *before, &Foreseen::default());
            let victims: Vec<FileNumber> = plan.iter().flat_map(|plan| &plan.victims).copied().collect();
            assert_eq!(victims, numbers[..count]);
        }
    }

    /// Goal: a pass that meets a pointer to more than any file holds ends, and tells of it.
    #[test]
    fn a_pointer_to_more_than_a_file_holds_is_damage() {
        let db = open(&SimDisk::new(), separated());
        for round in 0..2u8 {
            (round * 10..20).for_each(|n| db.put([n], [round; 500]).unwrap());
            db.flush().unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let store = db.store();
        let file = *store.family(0).unwrap().view.load().version.blobs().keys().next().unwrap();
        let index = BlobIndex { file, offset: 1000, bytes: 1 << 63, compression: Compression::None };
        install(&db, vec![(0, table_of_pointers(store, 99, &[("z", 100, index)]))], 100);
        assert_eq!(db.reclaim(&db.default_column_family(), 0.1).unwrap_err().kind(), crate::ErrorKind::Corruption);
    }

    /// Goal: passes in the background that follow each other keep nobody waiting for ever who reclaims by hand: none is begun once it waits.
    #[test]
    fn nothing_is_begun_in_the_background_while_somebody_waits_to_reclaim() {
        let (reclaim_mode, families) = (ReclaimMode::Manual, [("default".to_owned(), separated())].into());
        let (opened, seen) = (Arc::new(OnceLock::<Db>::new()), Arc::new(Mutex::new(Vec::new())));
        let (of, kept_outs) = (Arc::clone(&opened), Arc::clone(&seen));
        let listeners = vec![Listener::new(move |event| {
            if let EventKind::JobBegan(Job { kind: JobKind::Relocation, .. }) = event.kind {
                kept_outs.lock().push(of.get().unwrap().store().state.lock().manual.get(&0).copied());
            }
        })];
        let options = Options {
            create_if_missing: true,
            background_jobs: 0,
            reclaim_mode,
            families,
            listeners,
            ..Options::default()
        };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        assert!(opened.set(db.clone()).is_ok());
        for round in 0..2u8 {
            (round * 10..20).for_each(|n| db.put([n], [round; 500]).unwrap());
            db.flush().unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let store = db.store();
        let version = store.family(0).unwrap().view.load().version.clone();
        let claim = |claimed| version.tables().for_each(|(_, table)| table.set_claimed(claimed));
        claim(true);
        let kept_out = || store.state.lock().manual.get(&0).copied();
        std::thread::scope(|scope| {
            let reclaim = scope.spawn(|| db.reclaim(&db.default_column_family(), 0.1).unwrap().passes);
            let is_kept_out = (0..1 << 20).any(|_| {
                std::thread::yield_now();
                kept_out().is_some()
            });
            let all = kept_out();
            claim(false);
            assert_eq!((reclaim.join().unwrap(), is_kept_out, all), (1, true, Some(KeptOut::All)));
        });
        assert_eq!(kept_out(), None);
        assert_eq!(*seen.lock(), [None], "what it claims is enough once the pass runs");
    }

    /// Goal: a reclaim ends with the family that it is for.
    #[test]
    fn nothing_is_left_to_do_for_a_dropped_family() {
        for separation in [Separation::AtFlush, Separation::FallBack] {
            let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
            let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
            let options = FamilyOptions { min_blob_size: 100, ..FamilyOptions::default() };
            let handle = db.create_column_family("passing", options).unwrap();
            for round in 0..2u8 {
                (round..100).for_each(|n| db.put_cf(&handle, [n], [round; 500], &Default::default()).unwrap());
                db.flush_cf(&handle).unwrap();
            }
            db.compact_range(&handle, None, None).unwrap();
            db.set_separation(&handle, separation).unwrap();
            let family = db.store().own(&handle).unwrap();
            assert!(pick_any_step(family, &family.view.load().version, 1).is_some());
            db.drop_column_family(&handle).unwrap();
            // Dropped while it goes on.
            let goals = [Goal::None, Goal::Garbage(f64::MIN_POSITIVE, FileNumber::new(u64::MAX))];
            assert!(goals.into_iter().all(|goal| db.store().reclaim_once(family, goal).unwrap().is_none()));
            assert_eq!(db.reclaim(&handle, 0.0).unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
            let deleted = db.delete_files_in_range(&handle, None, None);
            assert_eq!(deleted.unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
            db.compact_range(&handle, None, None).unwrap();
        }
    }
}
