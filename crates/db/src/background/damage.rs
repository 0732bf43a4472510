//! What background work does not try again (G4).

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;

use super::Work;
use crate::compaction;
use crate::reclaim::Relocation;
use crate::store::State;
use crate::{Error, ErrorKind};

/// A file that could not be read so many times, and never in between, will not be the next time.
const ATTEMPTS_MAX: u32 = 3;

/// See G4.
#[derive(Debug)]
pub(crate) struct Resting {
    pub(crate) plan: Arc<compaction::Plan>,
    pub(crate) error: Error,
}

impl State {
    /// Files of a family that are left alone by what moves values.
    pub(crate) fn damaged_files(&self, family_id: u32) -> &BTreeSet<FileNumber> {
        static NONE: BTreeSet<FileNumber> = BTreeSet::new();
        self.damaged_blobs.get(&family_id).unwrap_or(&NONE)
    }

    /// Leaves the file alone that `error` is about, or all of `files`.
    fn note_blob_damage(&mut self, family_id: u32, files: &BTreeSet<FileNumber>, error: &Error) {
        let damaged = self.damaged_blobs.entry(family_id).or_default();
        match damaged_file(error).filter(|number| files.contains(number)) {
            Some(number) => drop(damaged.insert(number)),
            None => damaged.extend(files),
        }
        self.blob_damage.get_or_insert_with(|| error.clone());
    }

    /// A pass met damage: in one of the files that it was to empty, or, where it was to bring home what some tables point to, in one of these.
    pub(super) fn note_damaged_pass(&mut self, plan: &Relocation, error: &Error) {
        let named = damaged_file(error);
        if !plan.is_step_home || named.is_some_and(|number| plan.victims.contains(&number)) {
            return self.note_blob_damage(plan.family.id, &plan.victims, error);
        }
        let tables = plan.tables.iter().map(|(_, table)| table.number()).collect();
        self.note_blob_damage(plan.family.id, &tables, error);
    }

    /// Whether a compaction met damage in a blob file whose values were to come home: it does not the next time.
    pub(super) fn note_damage_at_home(&mut self, plan: &compaction::Plan, error: &Error) -> bool {
        let is_at_home = damaged_file(error).is_some_and(|number| plan.coming_home.contains(&number));
        if is_at_home {
            self.note_blob_damage(plan.family.id, &plan.coming_home, error);
        }
        is_at_home
    }

    /// Whether `work`, which failed with `error`, had better not be tried again (G4). Told of each failure: a medium that cannot be read any
    /// more says what one says that can be in a moment.
    pub(super) fn is_beyond_help(&mut self, work: &Work, error: &Error) -> bool {
        let file = if error.kind() == ErrorKind::Io { damaged_file(error) } else { None };
        let times = file.filter(|file| work.reads(*file)).map(|file| {
            let times = self.failing.entry(file).or_default();
            *times += 1;
            *times
        });
        is_damage(error) || times.is_some_and(|times| times >= ATTEMPTS_MAX)
    }

    /// A sweep met damage: in one of the files that it was to empty, or where only others can go around it.
    pub(super) fn note_damaged_sweep(&mut self, plan: &compaction::Plan, error: &Error) {
        if damaged_file(error).is_some_and(|number| plan.victims.contains(&number)) {
            self.note_blob_damage(plan.family.id, &plan.victims, error);
        } else {
            self.unswept.insert(plan.family.id);
            self.blob_damage.get_or_insert_with(|| error.clone());
        }
    }

    /// Gives up the claims of a family's work that met damage.
    pub(crate) fn wake_resting(&mut self, family_id: u32) {
        for resting in self.resting.extract_if(.., |resting| resting.plan.family.id == family_id) {
            resting.plan.set_claimed(false);
        }
    }
}

/// The number of the file that `error` is about.
fn damaged_file(error: &Error) -> Option<FileNumber> {
    let name = error.path().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    name.and_then(FileName::parse).and_then(|name| name.number())
}

/// What trying again does not mend.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat)
}
