//! Install: the only place where a version is replaced.
//!
//! Order: the files of the edit were synced by whoever wrote them, and their directory here; then the manifest takes the
//! edit and is synced; then readers see it; then what it made obsolete may go (B6).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::VersionEdit;

use super::{Edit, ManifestWriter, Version, current_manifest, prepare_new, set_current, snapshot_edits};
use crate::events::FileChanges;
use crate::family::{Family, Generation, View};
use crate::store::{Installer, State, Store};
use crate::{Error, ErrorKind};

/// Why an edit was not installed, and whether its files may be removed.
#[derive(Debug)]
pub(crate) struct NotInstalled {
    pub(crate) error: Error,
    /// `false`: the manifest on the disk may name the new files after all (M2).
    pub(crate) files_are_orphans: bool,
}

impl Store {
    /// Makes `edit` the next version of `family`; the sealed memtables of `flushed` leave the view in the same step.
    pub(crate) fn install(
        &self,
        family: &Family,
        mut edit: Edit,
        flushed: &[Arc<Generation>],
    ) -> std::result::Result<FileChanges, NotInstalled> {
        let orphans = |error| NotInstalled { error, files_are_orphans: true };
        let mut installer = self.installer.lock();
        self.check_writable().map_err(orphans)?;
        if family.is_dropped() {
            return Err(orphans(Error::new(
                ErrorKind::Conflict,
                format!("column family {:?} was dropped", family.name),
            )));
        }
        let before = family.view.load_full();
        debug_assert!(are_oldest(&before, flushed), "older memtables would hide what is flushed");
        edit.log_number = edit.log_number.or_else(|| log_number_without(&before, flushed));
        edit.give_epochs(&before.version);
        let next = Arc::new(before.version.apply(&edit).map_err(orphans)?);
        if !edit.added.is_empty() || !edit.blobs.is_empty() {
            self.env.files.sync_dir(&self.dir).map_err(|error| orphans(error.into()))?;
        }
        self.record(&mut installer, edit.record(family.id))?;
        // Before anybody sees that it is done.
        self.counters.flushes.add(u64::from(!flushed.is_empty()));
        let mut state = self.state.lock();
        let view = family.view.load_full();
        let waits = |sealed: &&Arc<Generation>| !flushed.iter().any(|flushed| Arc::ptr_eq(flushed, sealed));
        let sealed = view.sealed.iter().filter(waits).cloned().collect();
        family.view.store(Arc::new(View { active: view.active.clone(), sealed, version: next.clone() }));
        family.note_older(&before.version);
        mark_obsolete(&before.version, &next, &edit);
        // Only logs that no open will read: of another family the manifest may say an older one.
        if let Some(first_needed) = edit.log_number
            && self.families.load().len() == 1
        {
            self.forget_ended_logs(first_needed);
        }
        self.retire_logs(&mut state);
        self.note_new_version(&mut state, family.id, &next);
        drop(state);
        self.refresh_delay(family);
        self.refresh_memory();
        self.changed.notify_all();
        self.roll_manifest_if_large(&mut installer);
        Ok(edit.changes(&before.version, &next))
    }

    /// Appends one edit to the manifest.
    pub(crate) fn record(
        &self,
        installer: &mut Installer,
        mut edit: VersionEdit,
    ) -> std::result::Result<(), NotInstalled> {
        edit.next_file_number = Some(self.next_file_number());
        // What comes in as files is in the manifest before anybody may see it.
        let newest = edit.new_files.iter().map(|(_, table)| table.largest_sequence).max().unwrap_or_default();
        edit.last_sequence = Some(self.visible().max(newest));
        let Some(manifest) = installer.manifest.as_mut() else {
            let error = Error::new(ErrorKind::ReadOnly, "the store is open for reading only");
            return Err(NotInstalled { error, files_are_orphans: true });
        };
        match manifest.append(&edit) {
            Ok(bytes) => {
                self.counters.manifest_bytes.add(bytes);
                self.note_manifest_growth(manifest);
                Ok(())
            }
            Err(error) => {
                let files_are_orphans = error.kind() != ErrorKind::ReadOnly;
                let error = error.while_doing("recording a change in the manifest");
                if !files_are_orphans {
                    self.fail(&error);
                }
                Err(NotInstalled { error, files_are_orphans })
            }
        }
    }

    /// Logs that no memtable needs any more go.
    pub(crate) fn retire_logs(&self, state: &mut State) {
        let families = self.families.load();
        let needed = families.values().filter_map(|family| family.view.load().oldest_wal()).min();
        let current = state.wals.keys().next_back().copied();
        let Some(first_needed) = needed.or(current).min(current) else { return };
        while let Some((&number, &bytes)) = state.wals.first_key_value()
            && number < first_needed
        {
            state.wals.remove(&number);
            self.sealed_wal_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.retire_log(state, number);
        }
    }

    /// What a manifest grows to: on a small disk, no more than one blob file takes of it.
    fn manifest_bytes_max(&self) -> u64 {
        self.options().manifest_bytes_max.min(self.room.file_bytes_max())
    }

    fn note_manifest_growth(&self, manifest: &ManifestWriter) {
        self.manifest_growth.store(manifest.growth_bytes(self.manifest_bytes_max()), Ordering::Relaxed);
        self.room.note_manifest(manifest.bytes());
    }

    /// What a manifest may grow to is another now.
    pub(crate) fn refresh_manifest_growth(&self, installer: &Installer) {
        if let Some(manifest) = &installer.manifest {
            self.note_manifest_growth(manifest);
        }
    }

    /// A new one was written.
    pub(crate) fn take_manifest(&self, installer: &mut Installer, manifest: ManifestWriter) {
        self.counters.manifest_bytes.add(manifest.bytes());
        self.note_manifest_growth(&manifest);
        installer.manifest = Some(manifest);
    }

    /// A manifest that has grown large is replaced by a new one with the present state. Failure to write it changes
    /// nothing, unless CURRENT may already name it.
    pub(crate) fn roll_manifest_if_large(&self, installer: &mut Installer) {
        let family_id_max = installer.family_id_max;
        let bytes_max = self.manifest_bytes_max();
        let Some(old) = installer.manifest.as_mut().filter(|old| old.is_large(bytes_max)) else { return };
        let old_number = old.number();
        let number = self.new_file_number();
        let files = &*self.env.files;
        let goes_on = |old: &mut ManifestWriter, error: Error| {
            old.go_on();
            self.trash.add(self.path_of(&FileName::Manifest(number)));
            self.state.lock().upkeep_error = Some(error.while_doing("beginning a new manifest"));
        };
        let manifest = match prepare_new(files, &self.dir, number, &self.state_edits(family_id_max)) {
            Ok(manifest) => manifest,
            Err(error) => return goes_on(old, error),
        };
        match set_current(files, &self.dir, number) {
            Ok(()) => {
                self.take_manifest(installer, manifest);
                self.trash.add(self.path_of(&FileName::Manifest(old_number)));
            }
            // The new name was not taken: a full disk, say.
            Err(error) if current_manifest(files, &self.dir).is_ok_and(|current| current == old_number) => {
                self.trash.add(self.path_of(&FileName::Temporary(number)));
                goes_on(old, error);
            }
            // Whether CURRENT names the old or the new one is known only to whoever reads it next.
            Err(error) => self.fail(&error.while_doing("making a new manifest current")),
        }
    }

    /// The whole store, as the edits of a new manifest.
    pub(crate) fn state_edits(&self, family_id_max: u32) -> Vec<VersionEdit> {
        let whole = |family: &Arc<Family>| {
            let view = family.view.load();
            let log_number = view.oldest_wal().unwrap_or_else(|| view.active.first_wal());
            (family.clone(), view.version.clone(), log_number)
        };
        let parts: Vec<_> = self.families.load().values().map(whole).collect();
        self.edits_of(&parts, family_id_max)
    }

    /// Families, each with a version and the first log that it needs, as the edits of a new manifest. What every manifest must have comes
    /// last, so that the beginning of one is none (M4).
    pub(crate) fn edits_of(
        &self,
        parts: &[(Arc<Family>, Arc<Version>, FileNumber)],
        family_id_max: u32,
    ) -> Vec<VersionEdit> {
        let tables = parts.iter().flat_map(|(_, version, _)| version.tables());
        let newest = tables.map(|(_, table)| table.meta.largest_sequence).max().unwrap_or_default();
        let whole = |(family, version, log_number): &(Arc<Family>, Arc<Version>, FileNumber)| {
            snapshot_edits(family.id, &family.name, version, *log_number)
        };
        let mut edits: Vec<VersionEdit> = parts.iter().flat_map(whole).collect();
        edits.push(VersionEdit {
            db_id: Some(self.db_id.clone()),
            next_file_number: Some(self.next_file_number()),
            last_sequence: Some(self.visible().max(newest)),
            max_column_family: Some(family_id_max),
            // What RocksDB reads logs from, if it is to have transactions.
            min_log_number_to_keep: parts.iter().map(|(_, _, log_number)| *log_number).min(),
            ..VersionEdit::default()
        });
        edits
    }
}

/// Whether no memtable waits that is older than one of `flushed`.
fn are_oldest(view: &View, flushed: &[Arc<Generation>]) -> bool {
    let is_flushed = |sealed: &&Arc<Generation>| flushed.iter().any(|flushed| Arc::ptr_eq(flushed, sealed));
    view.sealed.iter().rev().take_while(is_flushed).count() == flushed.len()
}

/// The oldest log that the family needs once `flushed` are in tables; `None` says that nothing was flushed.
fn log_number_without(view: &View, flushed: &[Arc<Generation>]) -> Option<FileNumber> {
    if flushed.is_empty() {
        return None;
    }
    let waits = |sealed: &&Arc<Generation>| !flushed.iter().any(|flushed| Arc::ptr_eq(flushed, sealed));
    let oldest = view.sealed.iter().rev().find(waits).unwrap_or(&view.active);
    Some(oldest.first_wal())
}

/// F1: the edit is durable, so what it dropped may go once nobody reads it.
fn mark_obsolete(before: &Version, next: &Version, edit: &Edit) {
    let added: BTreeSet<FileNumber> = edit.added.iter().map(|(_, table)| table.number()).collect();
    for (level, table) in &edit.deleted {
        debug_assert!(*level < crate::options::LEVEL_COUNT);
        if !added.contains(&table.number()) {
            table.mark_obsolete();
        }
    }
    for (number, blob) in before.blobs() {
        if !next.blobs().contains_key(number) {
            blob.mark_obsolete();
        }
    }
    // A blob file all of whose values were dropped by the very work that wrote it was never part of a version.
    for blob in &edit.blobs {
        if !next.blobs().contains_key(&blob.number()) {
            blob.mark_obsolete();
        }
    }
}
