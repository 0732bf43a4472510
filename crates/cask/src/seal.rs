//! Files begin and end: creation, retirement, sealing, hints.
//!
//! Order of a creation: file, head, sync, directory sync, manifest. Of a seal: cut, sync, hint, sync, directory sync, manifest (B6).
//! A hint for which there is no room is no loss: the next merge tries again, and an open reads the data file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_env::{Access, AppendFile};
use esker_format::cask::data_file::DataFileHeader;
use esker_format::cask::record::FIRST_OFFSET;
use esker_format::cask::{FileName, FileNumber};

use crate::file::{ActiveFile, DataFile, Identity, write_hint};
use crate::store::Store;
use crate::stripe::StripeState;
use crate::{Error, ErrorKind, Result};

/// Files that may wait to be sealed, for each stripe, before writers help.
const RETIRED_PER_STRIPE_MAX: usize = 2;
/// How often it is looked whether another thread has ended what it does.
const POLL: Duration = Duration::from_millis(10);

/// What a file is begun for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    /// Whether any of it is a value.
    pub(crate) adds: bool,
}

impl Store {
    /// A new data file, empty but for its head, durable, not yet named by the manifest.
    pub(crate) fn create_data_file(&self, number: FileNumber, clean_as_of: u64, room: u64) -> Result<ActiveFile> {
        let mut salt = [0; 4];
        self.env.entropy.fill(&mut salt);
        let salt = u32::from_le_bytes(salt);
        let path = self.path_of(FileName::Data(number));
        let fs = &self.env.files;
        let file = fs.create(&path)?;
        let made = self.begin_data_file(&*file, DataFileHeader { number, salt, clean_as_of }, room).and_then(|()| {
            let reader = fs.open(&path)?;
            file.advise(Access::Random);
            let window = file.window()?;
            let data = DataFile::new(Identity { number, salt, clean_as_of }, path.clone(), reader, window);
            Ok(ActiveFile::new(Arc::new(data), file.clone(), room, FIRST_OFFSET))
        });
        if made.is_err() {
            // Nobody names it. If it stays, the next open removes it.
            let _ = fs.remove(&path);
        }
        made
    }

    fn begin_data_file(&self, file: &dyn AppendFile, header: DataFileHeader, room: u64) -> Result<()> {
        preallocate(file, room)?;
        file.append(&[&header.encode()])?;
        file.sync()?;
        self.env.files.sync_dir(&self.dir)?;
        Ok(())
    }

    /// A new file for writers, named by the manifest (F1), for `wanted` bytes that add something, or for deletions alone.
    ///
    /// # Errors
    /// `Exhausted` if there is no room for it, or it would take what is left for deletions and merges.
    pub(crate) fn create_active(&self, wanted: Wanted) -> Result<Arc<ActiveFile>> {
        let mut installer = self.installer.lock();
        let Wanted { bytes, adds } = wanted;
        let room = if adds { self.room_to_add(bytes) } else { self.room_to_delete(bytes) }?;
        let number = installer.new_number()?;
        let version = self.next_version.load(Ordering::Acquire);
        let create = || self.create_data_file(number, version, room);
        let active = Arc::new(if adds { create()? } else { self.reserve.to_delete(create)? });
        let named = [active.data.in_manifest(active.durable_bytes())];
        let mut install = || self.install(&mut installer, &named, &[]);
        let installed = if adds { install() } else { self.reserve.to_delete(install) };
        if let Err(error) = self.note(installed) {
            if error.kind() != ErrorKind::ReadOnly {
                let _ = self.env.files.remove(&active.data.path);
            }
            return Err(error);
        }
        self.add_file(&installer, active.data.clone());
        self.unsealed.lock().push(active.clone());
        Ok(active)
    }

    /// Gives the stripe another active file; the one before is retired.
    pub(crate) fn rotate(&self, stripe: &mut StripeState, wanted: Wanted) -> Result<Arc<ActiveFile>> {
        let reserved = {
            let mut state = self.state.lock();
            state.wanted = state.wanted.saturating_sub(1);
            state.reserved.pop()
        };
        let next = match reserved {
            Some(next) => next,
            None => self.create_active(wanted)?,
        };
        if let Some(full) = stripe.file.replace(next.clone()) {
            self.retire(full);
        }
        Ok(next)
    }

    /// The file takes no more records and waits to be sealed.
    pub(crate) fn retire(&self, full: Arc<ActiveFile>) {
        let mut state = self.state.lock();
        state.retired.push(full);
        if self.options.background_jobs == 0 || state.retired.len() > self.retired_max() {
            self.is_work_due.store(true, Ordering::Release);
        }
        self.changed.notify_all();
    }

    fn retired_max(&self) -> usize {
        self.options.stripes * RETIRED_PER_STRIPE_MAX
    }

    /// The active file is filling up: somebody may prepare the next one.
    #[cold]
    pub(crate) fn want_next(&self, active: &ActiveFile) {
        if self.options.background_jobs > 0 && !active.asked_for_next.swap(true, Ordering::Relaxed) {
            self.state.lock().wanted += 1;
            self.changed.notify_all();
        }
    }

    /// Holds writers back that are faster than files can be sealed, by letting them help. Called without locks.
    pub(crate) fn help_sealing(&self) -> Result<()> {
        loop {
            let state = self.state.lock();
            if state.retired.len() <= self.retired_max() {
                self.is_work_due.store(false, Ordering::Release);
                return Ok(());
            }
            drop(state);
            if self.seal_one()? {
                self.counters.seals_by_writers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Seals the file that was retired first. `false` if there is none.
    ///
    /// # Errors
    /// What sealing it failed at; it is tried again. `Closed`, `ReadOnly`: nothing is sealed any more.
    pub(crate) fn seal_one(&self) -> Result<bool> {
        self.seal_one_of(|_| true)
    }

    /// The same of those of which `is_wanted` is true.
    fn seal_one_of(&self, is_wanted: impl Fn(&DataFile) -> bool) -> Result<bool> {
        let Some((retired, _sealing)) = self.take_retired(is_wanted)? else { return Ok(false) };
        let result = self.note(self.seal(&retired));
        let mut state = self.state.lock();
        if let Err(error) = result {
            state.retired.insert(0, retired);
            state.seal_error = Some(error.clone());
            return Err(error);
        }
        state.seal_error = None;
        state.lack = None;
        state.merge_is_due = true;
        Ok(true)
    }

    fn take_retired(&self, is_wanted: impl Fn(&DataFile) -> bool) -> Result<Option<(Arc<ActiveFile>, Sealing<'_>)>> {
        let mut state = self.state.lock();
        // Under the lock: a close that finds nothing being sealed finds it for good.
        self.check_writable()?;
        let Some(first) = state.retired.iter().position(|retired| is_wanted(&retired.data)) else { return Ok(None) };
        state.sealing += 1;
        Ok(Some((state.retired.remove(first), Sealing { store: self })))
    }

    /// Waits until nothing is being sealed. Of a closed store: for good.
    pub(crate) fn wait_for_seals(&self) {
        let mut state = self.state.lock();
        while state.sealing > 0 {
            self.changed.wait(&mut state);
        }
    }

    fn seal(&self, active: &Arc<ActiveFile>) -> Result<()> {
        self.note_sync(active.finish())?;
        let data = &active.data;
        data.map();
        self.write_hint(data)?;
        self.env.files.sync_dir(&self.dir)?;
        let mut installer = self.installer.lock();
        self.reserve.to_reclaim(|| self.install(&mut installer, &[data.in_manifest_sealed()], &[]))?;
        data.mark_sealed();
        drop(installer);
        self.counters.seals.fetch_add(1, Ordering::Relaxed);
        self.unsealed.lock().retain(|file| !Arc::ptr_eq(file, active));
        Ok(())
    }

    /// Writes the hint of a file that changes no more, unless there is no room: merges need sealed files to make some.
    pub(crate) fn write_hint(&self, data: &Arc<DataFile>) -> Result<()> {
        let written = self.try_hint(data);
        let mut hintless = self.hintless.lock();
        // It may be there: what failed behind the hint is tried again, hint and all.
        hintless.retain(|other| other.number != data.number);
        match written {
            Err(error) if error.kind() == ErrorKind::Exhausted => {
                hintless.push(data.clone());
                Ok(())
            }
            written => written,
        }
    }

    /// The same; no room is a failure as any other.
    pub(crate) fn try_hint(&self, data: &DataFile) -> Result<()> {
        // It is shorter than the file.
        if !self.leaves_merges_room(data.end()) {
            return Err(Error::no_room("a hint would take what is left for merges").with_path(&data.path));
        }
        let bytes = data.bytes(0..data.end())?;
        if !write_hint(&*self.env.files, &self.dir, data.number, data.salt, &bytes)? {
            data.mark_damaged();
        }
        Ok(())
    }

    /// What is written while writers go round all stripes.
    pub(crate) fn round_bytes(&self) -> u64 {
        self.options.file_bytes.saturating_mul(self.options.stripes as u64)
    }

    /// Ends files that have had dead records while writers went round all stripes, though somebody writes to them now and then. Only files that
    /// have ended are merged, and what is dead in another keeps deletions in all of them (R2 of `reclaim`).
    pub(crate) fn retire_slow(&self) {
        let round = self.round_bytes();
        let (_, written) = self.stripes.written();
        for mut state in self.stripes.free() {
            let with_dead = state.file.as_ref().filter(|file| file.data.dead_len() > 0);
            let Some(number) = with_dead.map(|file| file.data.number) else { continue };
            let since = match state.seen {
                Some((seen, since)) if seen == number => since,
                _ => state.seen.insert((number, written)).1,
            };
            // Retired while the stripe is held: whoever seals everything finds it in one place or the other.
            if written.saturating_sub(since) >= round
                && let Some(slow) = state.file.take()
            {
                self.retire(slow);
            }
        }
    }

    /// Ends all active files in one moment, whatever room they have, and seals them. Returns the files that had records at that moment:
    /// all of the store as of then, and nothing later. For compaction and checkpoints.
    ///
    /// # Errors
    /// What sealing failed at.
    pub(crate) fn seal_everything(&self) -> Result<Vec<Arc<DataFile>>> {
        let mut stripes = self.stripes.lock_all();
        for state in &mut stripes {
            if state.file.as_ref().is_some_and(|file| file.data.end() > FIRST_OFFSET)
                && let Some(file) = state.file.take()
            {
                self.retire(file);
            }
        }
        let files = self.files.load();
        let ended: Vec<_> = files.iter().filter(|file| file.end() > FIRST_OFFSET).cloned().collect();
        drop((files, stripes));
        loop {
            // Files that end later are others' business: with writers who never rest there are always some.
            while self.seal_one_of(|file| ended.iter().any(|one| one.number == file.number))? {}
            if ended.iter().all(|file| file.is_sealed()) {
                return Ok(ended);
            }
            let mut state = self.state.lock();
            // Another thread seals one; if it fails, it is back in the list.
            self.changed.wait_for(&mut state, POLL);
        }
    }
}

/// Counts as a seal under way until it is dropped: a close does not wait for ever for one that ended by a panic.
struct Sealing<'a> {
    store: &'a Store,
}

impl Drop for Sealing<'_> {
    fn drop(&mut self) {
        self.store.state.lock().sealing -= 1;
        self.store.changed.notify_all();
    }
}

/// Asks for blocks; where there are none to be had, appends will find out by themselves.
pub(crate) fn preallocate(file: &dyn AppendFile, bytes: u64) -> Result<()> {
    match file.preallocate(bytes) {
        Ok(_) => Ok(()),
        Err(error) if error.is_exhausted() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
