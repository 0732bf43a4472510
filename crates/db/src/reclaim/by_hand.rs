//! Reclaim when a user asks for it, and what it would do.

use std::sync::Arc;
use std::time::Duration;

use esker_format::rocksdb::internal_key::FileNumber;

use super::hidden::not_compacted_bytes;
use super::{Goal, pick, pick_any_step};
use crate::family::Family;
use crate::options::{ReclaimMode, Separation};
use crate::store::{KeptOut, State, Store};
use crate::version::BlobHandle;
use crate::{Error, Result};

/// One blob file, and what emptying it would take.
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
    /// Whether it has a second name: a checkpoint's, which keeps it on the disk, and whole.
    pub is_shared: bool,
    /// Whether a pass would empty it.
    pub is_picked: bool,
}

/// Who holds the garbage of a column family, and what a pass over it would cost and free. All numbers are of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReclaimPlan {
    /// Its blob files, by ascending number.
    pub files: Vec<BlobFileUse>,
    /// Bytes of values that passes would copy.
    pub copied_bytes: u64,
    /// Bytes of blob files that come free by that.
    pub freed_bytes: u64,
    /// Bytes of tables that the next pass would rewrite.
    pub table_bytes: u64,
    /// At most so many bytes of values are overwritten or deleted, but not yet compacted with what did that.
    pub not_compacted_bytes: u64,
    /// Snapshots that keep older versions of values from becoming garbage.
    pub snapshots: usize,
    /// Whether iterators or reads of this process hold an earlier state of the family: no hole is made while they do.
    pub is_earlier_state_held: bool,
    /// Bytes of obsolete files, of all families, that iterators and values in the user's hands keep on the disk.
    pub held_bytes: u64,
}

/// What a reclaim by hand did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Passes over the tables.
    pub passes: u64,
    /// Bytes of blob files before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
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

fn blob_bytes(family: &Family) -> u64 {
    family.view.load().version.ledger().total().bytes
}

impl Store {
    /// See [`Db::reclaim_plan`](crate::Db::reclaim_plan).
    pub(crate) fn reclaim_plan(&self, family: &Arc<Family>, garbage_part: f64) -> Result<ReclaimPlan> {
        self.check_open()?;
        check_part(garbage_part)?;
        let version = family.view.load().version.clone();
        let is_picked = |bytes: u64, garbage: u64| garbage > 0 && garbage as f64 >= garbage_part * bytes as f64;
        let files: Vec<BlobFileUse> = version
            .ledger()
            .iter()
            .map(|(number, usage)| BlobFileUse {
                number: number.get(),
                bytes: usage.bytes,
                live_bytes: usage.live_bytes(),
                garbage_bytes: usage.garbage_bytes,
                hole_bytes: version.blobs().get(&number).map_or(0, |blob| blob.holes.bytes()),
                is_shared: version.blobs().get(&number).is_some_and(|blob| self.is_shared(blob)),
                is_picked: is_picked(usage.bytes, usage.garbage_bytes),
            })
            .collect();
        let picked = || files.iter().filter(|file| file.is_picked);
        let next = match family.separation() {
            Separation::FallBack => pick_any_step(family, family.blob_file_bytes()),
            _ => pick(family, garbage_part.max(f64::MIN_POSITIVE), FileNumber::new(u64::MAX)),
        };
        Ok(ReclaimPlan {
            copied_bytes: picked().map(|file| file.live_bytes).sum(),
            freed_bytes: picked().map(|file| file.garbage_bytes).sum(),
            table_bytes: next.iter().flat_map(|plan| &plan.tables).map(|(_, table)| table.meta.file_bytes).sum(),
            not_compacted_bytes: not_compacted_bytes(&version),
            snapshots: self.snapshots.count(),
            is_earlier_state_held: family.is_older_version_held(&version),
            held_bytes: self.trash.held_bytes(),
            files,
        })
    }

    /// Whether the file has a second name, as far as the file system says.
    fn is_shared(&self, blob: &BlobHandle) -> bool {
        self.env.files.metadata(blob.file.path()).is_ok_and(|found| found.links > 1)
    }

    /// See [`Db::reclaim`](crate::Db::reclaim).
    pub(crate) fn reclaim(&self, family: &Arc<Family>, garbage_part: f64) -> Result<Reclaimed> {
        check_part(garbage_part)?;
        family.check_not_dropped()?;
        if self.options.reclaim_mode == ReclaimMode::Off {
            let reason = "reclaim is switched off; open the store with reclaim_mode Auto or Manual";
            return Err(Error::invalid_argument(reason));
        }
        let mut reclaimed = Reclaimed { bytes_before: blob_bytes(family), ..Reclaimed::default() };
        // Of a file without garbage, copying all of it frees nothing.
        let goal = Goal::Garbage(garbage_part.max(f64::MIN_POSITIVE), FileNumber::new(self.next_file_number()));
        while self.reclaim_once(family, goal)? {
            reclaimed.passes += 1;
            self.trash.purge_again()?;
        }
        reclaimed.bytes_after = blob_bytes(family);
        Ok(reclaimed)
    }

    /// One pass; `false` if there is nothing left to do, or the family was dropped.
    pub(crate) fn reclaim_once(&self, family: &Arc<Family>, goal: Goal) -> Result<bool> {
        let mut turn: Option<Turn<'_>> = None;
        loop {
            self.check_writable()?;
            let mut state = self.state.lock();
            let plan = match goal {
                _ if family.is_dropped() => None,
                _ if family.separation() == Separation::FallBack => self.pick_step_by_hand(&state, family),
                Goal::Garbage(part, before) => pick(family, part, before),
                Goal::None => None,
            };
            let Some(plan) = plan else { return Ok(false) };
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
            self.claim_and_run(state, plan)?;
            return Ok(true);
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
            let plan = pick(&family, 0.1, *before);
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
            assert!(pick_any_step(family, 1).is_some());
            db.drop_column_family(&handle).unwrap();
            // Dropped while it goes on.
            let goals = [Goal::None, Goal::Garbage(f64::MIN_POSITIVE, FileNumber::new(u64::MAX))];
            assert!(goals.into_iter().all(|goal| !db.store().reclaim_once(family, goal).unwrap()));
            assert_eq!(db.reclaim(&handle, 0.0).unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
            let deleted = db.delete_files_in_range(&handle, None, None);
            assert_eq!(deleted.unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
            db.compact_range(&handle, None, None).unwrap();
        }
    }
}
