//! Writing: look the key up, append, put the slot in place, acknowledge.
//!
//! - W1: everything that can fail happens before the record is appended, or is the append. After it, slots and ledger follow
//!   without fail, under the same locks.
//! - W2: a write holds a stripe and the locks of all its keys from before it is given a version (`stripe.rs`).
//! - W3: a batch is one append to one file; its records say that they belong together (`CONTINUED`). It has a record for each of
//!   its keys, whatever they were before.
//! - W4: `sync` makes the file durable that has the record; where history is kept, all of them: what a key's older versions are may say a
//!   record in another, such as a deletion that ended them. Whoever finds nothing to write, or that its condition does not hold, syncs
//!   everything instead: what it found may not be durable yet, and it is told as if it were.
//! - W5: a batch changes the slots of all its keys under the locks of all their shards. So readers, who wait for a shard that is locked,
//!   see of a batch everything or nothing: who has read one of its values finds no older one of another key of it afterwards.
//!
//! Cost: one look-up (which reads the record that is replaced, from memory), one CRC, one copy into the mapped end of the file.
//! No allocation and no system call, but for rotation and where there is no mapped end. Four locks without company (stripe, key, file,
//! shard) and one atomic addition: each waits for all stores before it, so counters that the stripe's lock guards are plain stores.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::cask::record::{self, Head, Record};
use esker_format::compression::{self, Compression};

use crate::batch::{CaskBatch, Operation, too_large};
use crate::file::{ActiveFile, DataFile};
use crate::keydir::{Held, KeyHash, Slot};
use crate::options::{CaskWriteOptions, validate_ttl};
use crate::seal::Wanted;
use crate::store::Store;
use crate::stripe::{StripeState, Writing};
use crate::{Error, ErrorKind, Result};

/// Framed records of a batch keep this much memory between batches.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// What must hold for a write to take place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Condition<'a> {
    Always,
    /// The key has no value.
    Absent,
    /// The key has this value; `None`: has none.
    Equals(Option<&'a [u8]>),
}

/// A write, ready to be framed.
struct Change<'a> {
    hash: KeyHash,
    key: &'a [u8],
    /// `None` deletes.
    value: Option<Cow<'a, [u8]>>,
    compression: Compression,
    expires_at: Option<u64>,
    /// Of key and value as they were given.
    user_bytes: u64,
}

/// The slots of a key.
#[derive(Debug, Default)]
pub(crate) struct Located {
    pub(crate) newest: Option<Slot>,
    /// With their versions, newest first. Only where history is kept.
    old: Vec<(u64, Slot)>,
    newest_version: u64,
    /// The time of the newest is over, where history is kept: that ended it.
    pub(crate) is_over: bool,
    /// A record with the key's tag cannot be read: it may be the key's. Or one that was newer could not be read at the open.
    pub(crate) is_damaged: bool,
}

impl<'a> Change<'a> {
    fn record(&'a self, version: u64, is_continued: bool) -> Record<'a> {
        Record {
            version,
            is_tombstone: self.value.is_none(),
            is_continued,
            expires_at: self.expires_at,
            compression: self.compression,
            key: self.key,
            value: self.value.as_deref().unwrap_or_default(),
        }
    }

    fn bytes(&self) -> u64 {
        record::record_bytes(self.key.len(), self.value.as_deref().map_or(0, <[u8]>::len), self.expires_at.is_some())
    }
}

impl Store {
    /// Sets or deletes a key if `condition` holds. The version it was given, or `None` if nothing was written.
    pub(crate) fn write_one(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<'_>,
        options: &CaskWriteOptions,
    ) -> Result<Option<u64>> {
        self.check_writable()?;
        let adds = value.is_some();
        if adds {
            self.may_add()?;
        }
        let change = self.change(key, value, options.ttl)?;
        let mut writing = self.stripes.lock(options.stripe);
        let at_rest = self.key_locks.lock(change.hash);
        self.check_writable()?;
        self.keydir.prefetch_for_change(change.hash);
        // What is written in any case is framed while the slots are on their way.
        let is_certain = matches!(condition, Condition::Always) && change.value.is_some();
        let mut framed = if is_certain { Some(self.framed(&mut writing.state, &change)?) } else { None };
        let mut located = self.locate(change.hash, key)?;
        if !self.holds(condition, change.hash, key)? {
            drop((at_rest, writing));
            // W4.
            return if options.sync { self.sync_all().map(|()| None) } else { Ok(None) };
        }
        if change.value.is_none() && located.newest.is_none() && !located.is_damaged {
            drop((at_rest, writing));
            // W4.
            return if options.sync { self.sync_all().map(|()| None) } else { Ok(None) };
        }
        if located.is_over && change.value.is_some() {
            self.end_history(&mut writing, &change, &mut located)?;
            // Its version would come before that of the end.
            framed = None;
        }
        let (version, head) = match framed {
            Some(framed) => framed,
            None => self.framed(&mut writing.state, &change)?,
        };
        let value = change.value.as_deref().unwrap_or_default();
        let offset = self.append(&mut writing.state, &[head.as_bytes(), key, value], adds)?;
        if let Some(active) = &writing.state.file {
            active.data.set_end(offset + change.bytes());
            self.apply(&mut self.keydir.one(), &writing, &change, located, version, &active.data, offset);
        }
        self.suspects.clear(key);
        let follow_up = self.follow_up(&writing.state, options.sync);
        drop((at_rest, writing));
        self.acknowledge(follow_up, options.sync)?;
        Ok(Some(version))
    }

    /// The time of the key's newest version is over, and a new one is about to be written: a deletion ends what was before, for now and for the
    /// next open. Nobody sees it alone: the key has no value either way.
    #[cold]
    fn end_history(&self, writing: &mut Writing<'_>, change: &Change<'_>, located: &mut Located) -> Result<()> {
        let (value, compression, expires_at, user_bytes) = (None, Compression::None, None, 0);
        let end = Change { hash: change.hash, key: change.key, value, compression, expires_at, user_bytes };
        let (version, head) = self.framed(&mut writing.state, &end)?;
        let offset = self.append(&mut writing.state, &[head.as_bytes(), end.key], true)?;
        if let Some(active) = writing.state.file.clone() {
            active.data.set_end(offset + end.bytes());
            let ended = std::mem::take(located);
            self.apply(&mut self.keydir.one(), writing, &end, ended, version, &active.data, offset);
        }
        Ok(())
    }

    /// The version of a change, and what goes before its key, for the stripe's active file, which has room for it then.
    #[inline]
    fn framed(&self, state: &mut StripeState, change: &Change<'_>) -> Result<(u64, Head)> {
        let salt = self.room(state, Wanted { bytes: change.bytes(), adds: change.value.is_some() })?;
        let version = self.next_version.fetch_add(1, Ordering::Relaxed);
        let head = change.record(version, false).head(salt).map_err(|error| too_large(&error))?;
        Ok((version, head))
    }

    /// Whether the key's value was `expected`, and is `new` now.
    pub(crate) fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: &CaskWriteOptions,
    ) -> Result<bool> {
        if new.is_none() && expected.is_none() {
            // Nothing to write either way.
            self.check_writable()?;
            let is_absent = !self.exists_at(self.keydir.hash(key), key)?;
            if options.sync {
                // W4.
                self.sync_all()?;
            }
            return Ok(is_absent);
        }
        Ok(self.write_one(key, new, Condition::Equals(expected), options)?.is_some())
    }

    /// The stripe's active file, if anything is to be done about it once the stripe is free, and where it ends.
    #[inline]
    fn follow_up(&self, state: &StripeState, sync: bool) -> Option<(Arc<ActiveFile>, u64)> {
        let active = state.file.as_ref()?;
        let end = active.data.end();
        let wants_next = active.is_filling_up() && !active.asked_for_next.load(Ordering::Relaxed);
        (sync || wants_next).then(|| (active.clone(), end))
    }

    /// Everything that comes after a write took effect.
    #[inline]
    fn acknowledge(&self, follow_up: Option<(Arc<ActiveFile>, u64)>, sync: bool) -> Result<()> {
        if let Some((active, end)) = follow_up {
            if active.is_filling_up() {
                self.want_next(&active);
            }
            if sync && self.options.keep_versions > 1 {
                self.sync_all()?;
            } else if sync {
                self.note_sync(active.sync_to(end))?;
            }
        }
        if self.is_work_due.load(Ordering::Relaxed) {
            self.do_or_leave_work();
        }
        Ok(())
    }

    fn change<'a>(
        &self,
        key: &'a [u8],
        value: Option<&'a [u8]>,
        ttl: Option<std::time::Duration>,
    ) -> Result<Change<'a>> {
        if key.len() > record::KEY_BYTES_MAX {
            return Err(Error::invalid_argument(format!(
                "a key of {} bytes, at most {} are allowed",
                key.len(),
                record::KEY_BYTES_MAX
            )));
        }
        if let Some(ttl) = ttl {
            validate_ttl("the time to live", ttl)?;
        }
        let hash = self.keydir.hash(key);
        self.key_locks.prefetch(hash);
        self.keydir.prefetch(hash);
        let user_bytes = (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        let (value, compression) = match value {
            Some(value) => self.packed(value)?,
            None => (None, Compression::None),
        };
        let ttl = ttl.or(self.options.default_ttl).filter(|_| value.is_some());
        // A second that has begun counts as a whole one.
        let seconds = ttl.map(|ttl| ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0));
        let expires_at = seconds.map(|seconds| self.env.clock.unix_seconds().saturating_add(seconds));
        Ok(Change { hash, key, value, compression, expires_at, user_bytes })
    }

    fn packed<'a>(&self, value: &'a [u8]) -> Result<(Option<Cow<'a, [u8]>>, Compression)> {
        if value.len() > record::VALUE_BYTES_MAX {
            return Err(Error::invalid_argument(format!(
                "a value of {} bytes, at most {} are allowed",
                value.len(),
                record::VALUE_BYTES_MAX
            )));
        }
        let kind = self.options.compression;
        if kind != Compression::None && value.len() >= self.options.compression_bytes_min {
            let mut packed = Vec::new();
            // What the packer takes for too long stays plain.
            if compression::compress(kind, value, &mut packed).is_ok() && packed.len() < value.len() {
                return Ok((Some(Cow::Owned(packed)), kind));
            }
        }
        Ok((Some(Cow::Borrowed(value)), Compression::None))
    }

    fn holds(&self, condition: Condition<'_>, hash: KeyHash, key: &[u8]) -> Result<bool> {
        match condition {
            Condition::Always => Ok(true),
            Condition::Absent => Ok(!self.exists_at(hash, key)?),
            Condition::Equals(expected) => Ok(self.get_at(hash, key)?.as_deref() == expected),
        }
    }

    /// The slots of `key`, which is locked (D1).
    pub(crate) fn locate(&self, hash: KeyHash, key: &[u8]) -> Result<Located> {
        let candidates = self.keydir.all(hash);
        let keeps_history = self.options.keep_versions > 1;
        let mut located = Located { is_damaged: self.suspects.contains(key), ..Located::default() };
        for slot in candidates.iter() {
            let place = slot.place();
            let looked = self.with_file_of(&slot, |file| {
                let raw = file.record_bytes(&slot)?;
                match file.decode(place.offset.into(), &raw) {
                    Ok(record) if record.key == key => {
                        let seems_over = keeps_history && !slot.is_old() && self.is_gone(&record);
                        // One that is damaged may only look as if it had expired.
                        let is_sound = !seems_over || record::checksum_holds(&raw, file.salt);
                        located.is_over |= seems_over && is_sound;
                        located.is_damaged |= !is_sound;
                        located.take(slot, record.version);
                    }
                    Ok(_) if record::checksum_holds(&raw, file.salt) => {}
                    _ => located.is_damaged = true,
                }
                Ok(())
            });
            looked.unwrap_or_else(|| {
                let reason = format!("the directory points to file {}, which is not there", place.file);
                Err(Error::corruption(&self.dir, place.offset.into(), reason))
            })?;
        }
        located.old.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
        Ok(located)
    }

    /// Sees to it that the stripe has an active file with room for what is `wanted`. The file's salt.
    #[inline]
    fn room(&self, state: &mut StripeState, wanted: Wanted) -> Result<u32> {
        if let Some(active) = state.file.as_ref().filter(|active| active.takes(wanted.bytes)) {
            return Ok(active.data.salt);
        }
        Ok(self.rotate(state, wanted)?.data.salt)
    }

    /// Adds bytes to the active file, which [`room`](Self::room) has seen to. If that fails and leaves something behind, the file is
    /// given up.
    #[inline]
    fn append(&self, state: &mut StripeState, parts: &[&[u8]], adds: bool) -> Result<u64> {
        let Some(active) = &state.file else { return Err(Error::invalid_argument("the stripe has no active file")) };
        let appended = if adds { active.append(parts) } else { self.reserve.to_delete(|| active.append(parts)) };
        match appended {
            // A slot can say it: a file has at most 2 GiB, and one batch of 2 GiB or one record goes beyond that.
            Ok(offset) => Ok(offset),
            Err((error, as_before)) => {
                if !as_before && let Some(broken) = state.file.take() {
                    // What is in it counts up to its end; nothing follows. If that end cannot be made either, what was refused may be
                    // there after a restart.
                    let ended = broken.finish();
                    self.retire(broken);
                    if self.note_sync(ended).is_err() {
                        let error = error.while_doing("a part of the write is in the file and cannot be taken back");
                        return self.note(Err(error.with_kind(ErrorKind::ReadOnly).with_advice("reopen to go on")));
                    }
                }
                Err(error)
            }
        }
    }

    /// Slots and ledger follow a record that is in `file` now. Its stripe and its key are locked.
    #[expect(clippy::too_many_arguments, reason = "a struct of them would be taken apart at once")]
    fn apply(
        &self,
        held: &mut Held<'_>,
        writing: &Writing<'_>,
        change: &Change<'_>,
        located: Located,
        version: u64,
        file: &Arc<DataFile>,
        offset: u64,
    ) {
        let bytes = change.bytes();
        file.count(bytes, version, change.value.is_none(), change.expires_at);
        writing.count_written(change.user_bytes, bytes);
        let (hash, tag) = (change.hash, change.hash.tag());
        let Located { newest, mut old, newest_version, .. } = located;
        let forget = |held: &mut Held<'_>, slot: &Slot| {
            if held.change(hash, |shard| shard.remove(tag, slot.place())).is_some() {
                held.bury(slot, |slot| self.bury(slot));
            }
        };
        if change.value.is_none() {
            // A deletion ends the history of its key.
            old.extend(newest.map(|slot| (newest_version, slot)));
            for (_, slot) in &old {
                forget(held, slot);
            }
            if newest.is_some() {
                self.key_locks.count_keys(hash, -1);
            }
            return;
        }
        let place = crate::keydir::Place { file: file.number, offset: u32::try_from(offset).unwrap_or(u32::MAX) };
        let slot = Slot::new(tag, place, bytes);
        let keep = self.options.keep_versions;
        match newest {
            None => {
                held.change(hash, |shard| shard.insert(slot));
                self.key_locks.count_keys(hash, 1);
            }
            Some(replaced) if keep == 1 => {
                held.change(hash, |shard| shard.replace(replaced.place(), slot));
                held.bury(&replaced, |slot| self.bury(slot));
            }
            Some(replaced) => {
                held.change(hash, |shard| {
                    shard.insert(slot);
                    shard.replace(replaced.place(), replaced.with_old(true))
                });
                old.insert(0, (newest_version, replaced));
            }
        }
        for (_, slot) in old.iter().skip(keep - 1) {
            forget(held, slot);
        }
    }

    /// Takes a slot out of the directory and enters its record as dead.
    pub(crate) fn forget(&self, hash: KeyHash, slot: &Slot) {
        if self.keydir.remove(hash, slot.place()).is_some() {
            self.bury(slot);
        }
    }

    /// The record that `slot` pointed to is dead.
    pub(crate) fn bury(&self, slot: &Slot) {
        // Of a file that is gone nothing is counted any more.
        let _ = self.with_file_of(slot, |file| file.bury(slot));
    }

    /// Applies a batch. The version of its last record, or `None` if there was nothing to do.
    pub(crate) fn write_batch(&self, batch: &CaskBatch, options: &CaskWriteOptions) -> Result<Option<u64>> {
        self.check_writable()?;
        let CaskWriteOptions { sync, stripe, .. } = *options;
        let changes = self.changes(batch)?;
        let adds = changes.iter().any(|change| change.value.is_some());
        if adds {
            self.may_add()?;
        }
        let mut writing = self.stripes.lock(stripe);
        let at_rest = self.key_locks.lock_all(changes.iter().map(|change| change.hash));
        self.check_writable()?;
        let mut work = Vec::with_capacity(changes.len());
        for change in changes {
            // A key that is not there is deleted all the same: what made it go may not be durable when the batch is (W3).
            let mut located = self.locate(change.hash, change.key)?;
            if located.is_over && change.value.is_some() {
                self.end_history(&mut writing, &change, &mut located)?;
            }
            work.push((change, located));
        }
        if work.is_empty() {
            drop((at_rest, writing));
            return if sync { self.sync_all().map(|()| None) } else { Ok(None) };
        }
        let state = &mut *writing.state;
        let salt = self.room(state, Wanted { bytes: work.iter().map(|(change, _)| change.bytes()).sum(), adds })?;
        let first_version = self.next_version.fetch_add(work.len() as u64, Ordering::Relaxed);
        let mut buffer = std::mem::take(&mut state.buffer);
        buffer.clear();
        for (index, (change, _)) in work.iter().enumerate() {
            let is_continued = index + 1 < work.len();
            let record = change.record(first_version + index as u64, is_continued);
            record.encode(salt, &mut buffer).map_err(|error| too_large(&error))?;
        }
        let appended = self.append(state, &[&buffer], adds);
        let bytes = buffer.len() as u64;
        buffer.shrink_to(BUFFER_BYTES_KEPT);
        state.buffer = buffer;
        let mut offset = appended?;
        let Some(active) = state.file.clone() else { return Ok(None) };
        active.data.set_end(offset + bytes);
        let mut version = first_version;
        let mut held = self.keydir.hold(work.iter().map(|(change, _)| change.hash));
        for (change, located) in work {
            self.apply(&mut held, &writing, &change, located, version, &active.data, offset);
            offset += change.bytes();
            version += 1;
        }
        held.release().iter().for_each(|slot| self.bury(slot));
        batch.operations.iter().for_each(|operation| self.suspects.clear(&operation.key));
        let follow_up = self.follow_up(&writing.state, sync);
        drop((at_rest, writing));
        self.acknowledge(follow_up, sync)?;
        Ok(Some(version - 1))
    }

    /// The operations that count, one for each key.
    fn changes<'a>(&self, batch: &'a CaskBatch) -> Result<Vec<Change<'a>>> {
        let mut last: HashMap<&[u8], &Operation> = HashMap::with_capacity(batch.operations.len());
        for operation in &batch.operations {
            last.insert(&operation.key, operation);
        }
        // In the order of the batch, so that the same batch makes the same bytes.
        let counts =
            |operation: &&Operation| last.get(&operation.key[..]).is_some_and(|last| std::ptr::eq(*last, *operation));
        let operations = batch.operations.iter().filter(counts);
        operations.map(|operation| self.change(&operation.key, operation.value.as_deref(), operation.ttl)).collect()
    }
}

impl Located {
    /// Older versions up to this one.
    pub(crate) fn up_to(&self, version: u64) -> Vec<Slot> {
        self.old.iter().filter(|(old, _)| *old <= version).map(|(_, slot)| *slot).collect()
    }

    fn take(&mut self, slot: Slot, version: u64) {
        if slot.is_old() {
            self.old.push((version, slot));
        } else {
            self.newest = Some(slot);
            self.newest_version = version;
        }
    }
}
