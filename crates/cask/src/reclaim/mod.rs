//! Merging: what lives in files with much garbage is copied into a new one, and the old ones go.
//!
//! `pick(files) → Plan` (pure) → `run(plan) → Output` (writes one new file, touches nothing else) → `install` (syncs, one manifest
//! edit, slots, removal).
//!
//! - R1 (B2): a slot is moved only if it still points to the record that was copied; a newer put wins, always. Nothing is
//!   put again: a copy keeps its version.
//! - R2 (B1): a deletion is dropped only if no file that stays can hold an older record of its key. A file cannot if nothing
//!   in it is dead (all of its records are newest, and the key has none), or if it is *clean* as of the deletion's version (see
//!   `esker_format::cask::data_file`). Files merged together go together.
//! - R3: an expired value becomes a deletion of the same version: what it hid stays hidden.
//! - R4 (B6): what superseded a dead record is durable before the dead record goes: everything is synced before the edit.
//! - R5: until the edit is durable the old files are the truth and the new one is an orphan; from then on the new one is.
//!   A crash anywhere leaves one or the other. Records that were copied from a file that stays are there twice, with one
//!   version: the next open takes either.
//! - R6 (B9): a merge holds at most [`MOVES_MAX`] moves in memory, whatever it merges. A file with more is copied in several passes, each from where
//!   the one before ended. Deletions are copied by the last, which goes through all of the file where it has any: the file goes with it.

mod install;
mod pick;
mod run;

use std::sync::atomic::Ordering;

use esker_format::cask::FileNumber;
pub(crate) use pick::Plan;
use pick::Room;

use crate::store::{Lack, Store};
use crate::{Error, ErrorKind, Result};

/// Records that one merge copies at most: 24 bytes of memory each.
pub(crate) const MOVES_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 19 };
/// Of the room that is left, so much is not for what a merge copies: it ends with a manifest, and files with whole blocks.
pub(crate) const ROOM_BYTES_KEPT: u64 = 16 << 10;
/// A full compaction goes round so often at most: deletions may need a second round to go, and more come of writers.
const ROUNDS_MAX: usize = 4;

fn is_shortage(error: &Error) -> bool {
    error.kind() == ErrorKind::Exhausted
}

impl Store {
    /// Merges as long as there are files worth it. How many merges there were. Somebody else who merges, or makes a copy, has that looked at again
    /// at the end.
    ///
    /// # Errors
    /// What the last one failed at; kept as state too.
    pub(crate) fn merge_while_due(&self) -> Result<usize> {
        let mut count = 0;
        self.retire_slow();
        while !self.is_closing() {
            let Some(_merging) = self.lock_due_merging()? else { break };
            self.remove_leftovers();
            if !self.merge_one_due()? {
                self.make_hints();
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    /// `false`: nothing is due. Merges are locked.
    fn merge_one_due(&self) -> Result<bool> {
        let now = self.env.clock.unix_seconds();
        let due = |room| pick::due(&self.files.load(), &self.options, now, room);
        let last = self.state.lock().merge_error.clone();
        // A damaged file is left alone from now on, and is still to be told of.
        let was_put_off = last.as_ref().is_some_and(|error| error.kind() != ErrorKind::Corruption);
        let mut result = match (due(None), last.filter(is_shortage)) {
            (None, _) => Ok(false),
            // It would fill the disk for everybody, again and again.
            (Some(plan), Some(shortage)) if !self.room_for_merges().is_enough(plan.need, plan.most) => Err(shortage),
            (Some(plan), _) => self.merge_due(&plan),
        };
        let shortage = result.as_ref().err().filter(|error| is_shortage(error)).cloned();
        if shortage.is_some()
            && let Some(plan) = due(Some(self.room_for_merges()))
        {
            result = self.merge_due(&plan);
        }
        if was_put_off || !matches!(result, Ok(false)) {
            // What had room makes none for what had not.
            self.state.lock().merge_error = shortage.or_else(|| result.as_ref().err().cloned());
        }
        result
    }

    fn merge_due(&self, plan: &Plan) -> Result<bool> {
        let merged = self.merge(plan);
        // Descriptors may be had again without more room than there was.
        if merged.as_ref().is_err_and(Error::wants_room) {
            let room = self.free_bytes();
            // One that needs more than there is says nothing of others.
            let lack = (plan.need <= room).then_some(Lack { most: plan.most, room });
            let mut state = self.state.lock();
            state.lack = lack.or(state.lack);
        }
        merged.map(|_| true)
    }

    fn room_for_merges(&self) -> Room {
        let need = self.free_bytes();
        let lack = self.state.lock().lack.filter(|lack| need <= lack.room);
        Room { need, most: lack.map_or(u64::MAX, |lack| lack.most.saturating_sub(1)) }
    }

    /// How much a merge may copy; all that it likes where the system does not say.
    fn free_bytes(&self) -> u64 {
        let space = self.env.files.space(&self.dir);
        space.map_or(u64::MAX, |space| {
            space.available.saturating_add(self.reserve.held_bytes()).saturating_sub(ROOM_BYTES_KEPT)
        })
    }

    /// Merges every file that has anything to give back, and small ones.
    ///
    /// # Errors
    /// What a merge failed at.
    pub(crate) fn compact(&self) -> Result<()> {
        self.check_writable()?;
        drop(self.seal_everything()?);
        let _merging = self.lock_merging()?;
        self.remove_leftovers();
        let (mut damage, mut shortage, mut short) = (Ok(()), None, Vec::new());
        let everything = |room| {
            let now = self.env.clock.unix_seconds();
            pick::everything(&self.files.load(), self.options.file_bytes, now, room)
        };
        for _ in 0..ROUNDS_MAX {
            let plans = everything(shortage.as_ref().map(|_| self.room_for_merges()));
            if plans.is_empty() {
                break;
            }
            for plan in plans {
                // Their numbers alone: who holds a file keeps its space.
                let victims: Vec<_> = plan.victims.iter().map(|file| file.number).collect();
                match self.merge_whole(plan) {
                    // The file is marked, and out of the next round's plans: the others give back what they can.
                    Err(error) if error.kind() == ErrorKind::Corruption => damage = damage.and(Err(error)),
                    // So can those for which there is room.
                    Err(error) if is_shortage(&error) => {
                        short.extend(victims);
                        shortage = Some(error);
                    }
                    merged => merged?,
                }
            }
        }
        self.make_hints();
        damage?;
        // What gave room for the others may have come to be enough for these; what others sealed meanwhile lacks none.
        let mut left = everything(None).into_iter().flat_map(|plan| plan.victims);
        match shortage {
            Some(shortage) if left.any(|file| short.contains(&file.number)) => Err(shortage),
            _ => Ok(()),
        }
    }

    /// One plan to its end, in as many merges as it takes.
    fn merge_whole(&self, plan: Plan) -> Result<()> {
        let mut left = plan;
        while !left.victims.is_empty() {
            self.check_writable()?;
            let done = self.merge(&left)?;
            left.victims.drain(..done.min(left.victims.len()));
        }
        Ok(())
    }

    /// Runs and installs. How many of the plan's victims are gone.
    fn merge(&self, plan: &Plan) -> Result<usize> {
        let merged = self.run_and_install(plan);
        // What came back is not for others.
        let _ = self.may_add();
        merged
    }

    fn run_and_install(&self, plan: &Plan) -> Result<usize> {
        let output = self.note(run::run(self, plan))?;
        let done = output.done;
        self.counters.merged_bytes.fetch_add(output.bytes_read, Ordering::Relaxed);
        self.note(install::install(self, plan, output))?;
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(done)
    }

    /// Tries again to remove files that a merge was done with. Merges are locked.
    fn remove_leftovers(&self) {
        self.leftovers.lock().retain(|path| crate::file::remove_if_there(&*self.env.files, path).is_err());
    }

    /// Writes the hints for which there was no room. Merges are locked, and had what room there is before.
    fn make_hints(&self) {
        let hintless = self.hintless.lock().clone();
        for file in hintless {
            if self.is_closing() {
                break;
            }
            // Whoever seals it writes it, too.
            if !file.is_sealed() || !self.is_hintless(file.number) {
                continue;
            }
            match self.try_hint(&file) {
                Err(error) if is_shortage(&error) => break,
                Err(_) => {}
                Ok(()) => self.forget_hintless(file.number),
            }
        }
    }

    /// A file has its hint, or needs none any more.
    fn forget_hintless(&self, number: FileNumber) {
        self.hintless.lock().retain(|other| other.number != number);
    }

    /// Whether a file waits for its hint.
    pub(crate) fn is_hintless(&self, number: FileNumber) -> bool {
        self.hintless.lock().iter().any(|file| file.number == number)
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use std::sync::Arc;

    use super::*;
    use crate::file::DataFile;
    use crate::{Cask, CaskOptions, CaskWriteOptions};

    /// Goal (R6): a file that takes several passes is read twice at most, and each of its deletions is copied once.
    #[test]
    fn a_file_with_many_records_is_copied_once() {
        let count = 3 * MOVES_MAX as u32;
        let options = CaskOptions { create_if_missing: true, stripes: 2, background_jobs: 0, ..CaskOptions::default() };
        let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        let to = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
        let (key, gone) = (|n: u32| n.to_le_bytes(), |n: u32| (n + count).to_le_bytes());
        cask.put_with("first", "", &to(0)).unwrap();
        // What is dead in another file keeps the deletions in the first.
        for n in 0..count {
            cask.put_with(gone(n), "", &to(1)).unwrap();
        }
        (0..count).for_each(|n| assert!(cask.delete_with(gone(n), &to(0)).unwrap()));
        for n in 0..count {
            cask.put_with(key(n), "", &to(0)).unwrap();
        }
        let store = cask.store();
        let file = store.seal_everything().unwrap().remove(0);
        let usage = file.usage();
        assert_eq!((usage.tombstones, usage.records), (count.into(), u64::from(2 * count) + 1));
        store.merge_whole(Plan { victims: vec![file], need: 0, most: 0 }).unwrap();
        let stats = cask.stats();
        assert_eq!((stats.merge_written_bytes, stats.tombstones), (usage.bytes, count.into()), "{stats:?}");
        assert!(stats.merges > 3 && stats.merged_bytes <= 2 * usage.bytes, "{stats:?}");
        assert!((0..count).all(|n| cask.exists(key(n)).unwrap() && !cask.exists(gone(n)).unwrap()));
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
    }

    /// Goal: files that are short, but have as many records as a merge copies, are not copied again and again.
    #[test]
    fn short_files_with_many_records_are_not_small_ones() {
        let file_bytes = 1 << 20;
        let options = CaskOptions {
            create_if_missing: true,
            stripes: 1,
            background_jobs: 0,
            file_bytes,
            ..CaskOptions::default()
        };
        for (records, are_small) in [(MOVES_MAX as u32, false), (100, true)] {
            let cask = Cask::open_with_env("/store", options.clone(), SimDisk::new().env()).unwrap();
            let store = cask.store();
            for file in 0..20 {
                for n in 0..records {
                    cask.put((file * records + n).to_le_bytes(), [7; 14]).unwrap();
                }
                drop(store.seal_everything().unwrap());
            }
            assert!(store.files.load().iter().all(|file| !file.is_sealed() || file.end() < file_bytes / 16));
            store.merge_while_due().unwrap();
            assert_eq!(cask.stats().merges > 0, are_small);
            assert_eq!(store.merge_while_due().unwrap(), 0);
            assert_eq!(cask.stats().keys, u64::from(20 * records));
            store.compact().unwrap();
            assert!((0..20 * records).all(|n| cask.exists(n.to_le_bytes()).unwrap()));
        }
    }

    /// Goal: a merge for which there is no room is begun once, not whenever somebody looks; and is done once there is room.
    #[test]
    fn a_merge_without_room_does_not_fill_the_disk_again_and_again() {
        let disk = SimDisk::new();
        let options = CaskOptions { create_if_missing: true, stripes: 1, background_jobs: 0, ..CaskOptions::default() };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let store = cask.store();
        for n in 0..100 {
            cask.put([n], [n; 1000]).unwrap();
        }
        drop(store.seal_everything().unwrap());
        for n in 0..60 {
            cask.put([n], "").unwrap();
        }
        let space = store.env.files.space(&store.dir).unwrap();
        disk.set_capacity(Some(space.total - space.available - store.reserve.held_bytes() + 20_000));
        for _ in 0..10 {
            assert_eq!(store.merge_while_due().unwrap_err().kind(), ErrorKind::Exhausted);
            assert!(cask.stats().background_error.is_some());
        }
        assert!(cask.stats().merge_written_bytes < 41_000, "{:?}", cask.stats());
        disk.set_capacity(None);
        assert_eq!(store.merge_while_due().unwrap(), 1);
        assert!(
            cask.stats().background_error.is_none() && (60..100).all(|n| *cask.get([n]).unwrap().unwrap() == [n; 1000])
        );
    }

    /// Goal: hints that are made up for leave merges the room that there is, what an attempt that died has written of them, too.
    #[test]
    fn hints_are_made_up_for_behind_merges() {
        let disk = SimDisk::new();
        let options = CaskOptions { create_if_missing: true, stripes: 1, background_jobs: 0, ..CaskOptions::default() };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let store = cask.store();
        for n in 0..1_000u32 {
            cask.put([&n.to_le_bytes()[..], &[7; 200]].concat(), "").unwrap();
        }
        let file = store.seal_everything().unwrap().remove(0);
        let file_bytes = file.end();
        let path = store.path_of(esker_format::cask::FileName::Hint(file.number));
        let hint = disk.file_bytes(&path).unwrap();
        for _ in 0..10 {
            cask.put("key", [7; 10_000]).unwrap();
        }
        drop(store.seal_everything().unwrap());
        // As a full disk and a removal that failed would leave it.
        store.env.files.remove(&path).unwrap();
        store.hintless.lock().push(file);
        store.env.files.create(&path.with_extension("hint.new")).unwrap().append(&[&hint[..100]]).unwrap();
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());

        let space = store.env.files.space(&store.dir).unwrap();
        let leave = |bytes: u64| disk.set_capacity(Some(space.total - space.available + bytes));
        leave(hint.len() as u64);
        assert_eq!(store.merge_while_due().unwrap(), 1);
        let made = || (store.hintless.lock().len(), disk.file_bytes(&path).as_ref() == Some(&hint));
        // It would take what the next merge needs.
        assert_eq!(made(), (2, false));
        leave(store.file_room() + ROOM_BYTES_KEPT + file_bytes);
        assert_eq!(store.merge_while_due().unwrap(), 0);
        assert_eq!(made(), (0, true));
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
    }

    /// A store of one stripe with a long sealed file of which four records in ten live, and a short one of which all do.
    fn partly_dead(disk: &SimDisk, merge_batch_bytes: u64) -> (Cask, [Arc<DataFile>; 2]) {
        let options = CaskOptions {
            create_if_missing: true,
            stripes: 1,
            background_jobs: 0,
            merge_batch_bytes,
            ..CaskOptions::default()
        };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let mut files = [(0, 1000), (1, 100)].map(|(file, len)| {
            for n in 0..250 {
                cask.put([file, n], vec![n; len]).unwrap();
            }
            cask.store().seal_everything().unwrap().pop().unwrap()
        });
        files.sort_by_key(|file| file.number);
        for n in 0..150 {
            cask.put([0, n], "").unwrap();
        }
        (cask, files)
    }

    /// Goal: what waits for a hint and is merged away, or was never installed, keeps no space until the store is closed.
    #[test]
    fn files_without_a_hint_give_their_space_back() {
        let disk = SimDisk::new();
        let (cask, [kept, dead]) = partly_dead(&disk, 1 << 20);
        for n in 0..250 {
            cask.put([1, n], "").unwrap();
        }
        let store = cask.store();
        let available = || store.env.files.space(&store.dir).unwrap().available;
        let leave = |bytes: u64| {
            disk.set_capacity(None);
            let space = store.env.files.space(&store.dir).unwrap();
            disk.set_capacity(Some(space.total - space.available - store.reserve.held_bytes() + bytes));
        };
        for file in [&kept, &dead] {
            store.env.files.remove(&store.path_of(esker_format::cask::FileName::Hint(file.number))).unwrap();
            store.hintless.lock().push(file.clone());
        }
        let dead_bytes = dead.end();
        drop(dead);
        leave(20_000);
        let before = available();
        assert_eq!(store.merge_while_due().unwrap_err().kind(), ErrorKind::Exhausted);
        assert_eq!((store.files.load().iter().count(), store.hintless.lock().len()), (2, 1));
        assert!(available() >= before + dead_bytes, "{before}, {}", available());

        // Room for the copy, but neither for its hint nor for a manifest.
        let copy = kept.usage().live_bytes() + esker_format::cask::record::FIRST_OFFSET;
        leave(copy.next_multiple_of(4096));
        let before = available();
        let plan = Plan { victims: vec![kept], need: 0, most: 0 };
        assert_eq!(store.merge(&plan).unwrap_err().kind(), ErrorKind::Exhausted);
        assert!(cask.stats().merge_written_bytes > 100_000, "it got so far: {:?}", cask.stats());
        assert_eq!((available(), store.hintless.lock().len()), (before, 1));
    }

    /// Goal: nor is it begun anew after each small one for which there is room.
    #[test]
    fn small_merges_on_a_full_disk_begin_no_large_one() {
        let disk = SimDisk::new();
        let (cask, files) = partly_dead(&disk, 1 << 12);
        drop(files);
        let store = cask.store();
        for n in 0..6 {
            drop(store.seal_everything().unwrap());
            // Not yet.
            store.is_work_due.store(false, Ordering::Relaxed);
            cask.put([2], [n; 100]).unwrap();
        }
        let before = cask.stats();
        let space = store.env.files.space(&store.dir).unwrap();
        let room = 20_000;
        disk.set_capacity(Some(space.total - space.available - store.reserve.held_bytes() + room));
        let _ = store.merge_while_due();
        let after = cask.stats();
        assert!(after.merges >= before.merges + 5 && after.background_error.is_some(), "{after:?}");
        assert!(after.merge_written_bytes < before.merge_written_bytes + 2 * room, "{after:?}");
    }

    /// Goal: nor is one that seems to have room and has none, as that of values that have expired and leave deletions as long as they were; and it
    /// is done once there is more.
    #[test]
    fn a_merge_that_needs_more_room_than_it_seems_to_is_not_tried_again_and_again() {
        let disk = SimDisk::new();
        let options = CaskOptions {
            create_if_missing: true,
            stripes: 1,
            background_jobs: 0,
            merge_batch_bytes: 1 << 12,
            ..CaskOptions::default()
        };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let store = cask.store();
        let ends = CaskWriteOptions { ttl: Some(std::time::Duration::from_secs(1)), ..CaskWriteOptions::default() };
        for n in 0..250 {
            cask.put_with([n; 200], "", &ends).unwrap();
        }
        for n in 0..3 {
            drop(store.seal_everything().unwrap());
            // Not yet.
            store.is_work_due.store(false, Ordering::Relaxed);
            cask.put([2], [n; 100]).unwrap();
        }
        disk.clock().advance(std::time::Duration::from_secs(10));
        let space = store.env.files.space(&store.dir).unwrap();
        let room = 30_000;
        disk.set_capacity(Some(space.total - space.available - store.reserve.held_bytes() + room));
        for _ in 0..10 {
            assert_eq!(store.merge_while_due().unwrap_err().kind(), ErrorKind::Exhausted);
        }
        let stats = cask.stats();
        // Once before the small ones, and once behind each.
        assert!(stats.merges == 2 && stats.merge_written_bytes < 4 * room, "{stats:?}");
        disk.set_capacity(None);
        assert!(store.merge_while_due().unwrap() > 0);
        let stats = cask.stats();
        assert!(stats.background_error.is_none() && stats.keys == 1 && stats.files == 1, "{stats:?}");
    }

    /// Goal: a compaction that had too little room at first ends well once what it gave back is enough, small files that wait to become one and all.
    #[test]
    fn a_compaction_that_makes_its_own_room_ends_well() {
        let disk = SimDisk::new();
        let options = CaskOptions { create_if_missing: true, stripes: 1, background_jobs: 0, ..CaskOptions::default() };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let store = cask.store();
        // One of which two records in five live, one of which none does, and two small ones.
        for (file, count) in [(0, 50), (1, 50), (2, 4), (3, 4)] {
            (0..count).for_each(|n| assert!(cask.put([file, n], [n; 2000]).is_ok()));
            drop(store.seal_everything().unwrap());
        }
        (0..30).for_each(|n| assert!(cask.put([0, n], "").is_ok()));
        (0..50).for_each(|n| assert!(cask.put([1, n], "").is_ok()));
        drop(store.seal_everything().unwrap());
        let space = store.env.files.space(&store.dir).unwrap();
        disk.set_capacity(Some(space.total - space.available - store.reserve.held_bytes() + 50_000));
        store.compact().unwrap();
        let stats = cask.stats();
        assert_eq!((stats.dead_bytes, stats.sealed_files), (0, 1), "{stats:?}");
        assert!((30..50).all(|n| *cask.get([0, n]).unwrap().unwrap() == [n; 2000]));
    }

    /// Goal: one that meets damage and runs out of room tells of the damage first.
    #[test]
    fn a_compaction_without_room_tells_of_damage() {
        let disk = SimDisk::new();
        let options = CaskOptions {
            create_if_missing: true,
            stripes: 1,
            background_jobs: 0,
            // Each file is merged alone.
            file_bytes: 64 << 10,
            merge_garbage_ratio: 1.0,
            ..CaskOptions::default()
        };
        let open = || Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let cask = open();
        for file in 0..2 {
            (0..60).for_each(|n| assert!(cask.put([file, n], [n; 1000]).is_ok()));
            drop(cask.store().seal_everything().unwrap());
        }
        (0..2).for_each(|file| assert!(cask.put([file, 59], "").is_ok()));
        let damaged = cask.store().files.load().iter().map(|file| file.path.clone()).next().unwrap();
        cask.close().unwrap();
        assert!(disk.flip_bit(&damaged, 8 * 600));
        let cask = open();
        drop(cask.store().seal_everything().unwrap());
        let space = cask.store().env.files.space(&cask.store().dir).unwrap();
        disk.set_capacity(Some(space.total - space.available - cask.store().reserve.held_bytes() + 40_000));
        let told: Vec<_> = (0..2).map(|_| cask.store().compact().unwrap_err().kind()).collect();
        assert_eq!(told, [ErrorKind::Corruption, ErrorKind::Exhausted]);
    }
}
