//! What lies in the directory, and what manifests say of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker_env::{FileSystem, durable};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::version_edit::{BlobFileAddition, TableMeta, VersionEdit};
use esker_log::scan::{RecoveryMode, Scanner};

use super::identity::Identities;
use crate::open::check_place;
use crate::version::{Recovered, current_manifest, recover_from};
use crate::{Error, ErrorKind, Result};

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) names: BTreeSet<FileName>,
    pub(super) highest_number: u64,
    /// What the manifest says, if there is one that can be trusted.
    pub(super) manifest: Option<Recovered>,
    /// Its number.
    pub(super) manifest_number: Option<FileNumber>,
    /// One that is another store's.
    foreign: Option<FileNumber>,
    /// What can be read of all others.
    pub(super) hints: Hints,
    pub(super) damage: Vec<Error>,
}

/// Facts that hold whatever else the manifest said.
#[derive(Debug, Default)]
pub(super) struct Hints {
    pub(super) db_id: String,
    /// Names by id.
    pub(super) families: BTreeMap<u32, String>,
    /// Those of them that are gone. No other family gets their id.
    pub(super) dropped: BTreeSet<u32>,
    pub(super) family_id_max: u32,
    /// Tables that an edit takes away.
    pub(super) gone: BTreeSet<FileNumber>,
    /// What edits say of tables, with family and level.
    pub(super) tables: BTreeMap<FileNumber, (u32, u32, TableMeta)>,
    pub(super) last_sequence: SequenceNumber,
    pub(super) next_file_number: u64,
}

/// Whether `error` says that a file is damaged or missing: everything else ends a repair.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound)
}

impl Survey {
    /// `begun` is the manifest of a repair that died: what it has left is numbered from there on, need not be whole, and holds nothing that
    /// is not elsewhere.
    pub(super) fn of(files: &dyn FileSystem, dir: &Path, begun: Option<FileNumber>) -> Result<Self> {
        let listed = files.list(dir)?;
        let mut names: BTreeSet<FileName> = listed.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
        let highest_number = names.iter().filter_map(FileName::number).map(FileNumber::get).max().unwrap_or(0);
        if let Some(begun) = begun {
            names.retain(|name| match name {
                FileName::Table(number)
                | FileName::LegacyTable(number)
                | FileName::Blob(number)
                | FileName::Manifest(number) => *number < begun,
                _ => true,
            });
        }
        let mut survey = Self { names, highest_number, ..Self::default() };
        (survey.manifest_number, survey.manifest) = survey.choose(files, dir)?.unzip();
        if survey.manifest.is_none() {
            // What the newest says of a file holds.
            let own = survey.manifests().into_iter().rev().filter(|number| survey.foreign != Some(*number));
            for number in own.collect::<Vec<_>>() {
                survey.hints.read(files, dir, number)?;
            }
        }
        survey.refuse_tables_elsewhere(dir)?;
        Ok(survey)
    }

    /// Refuses a store whose tables RocksDB keeps in other directories, which nobody here looks into.
    fn refuse_tables_elsewhere(&self, dir: &Path) -> Result<()> {
        let Some(manifest) = &self.manifest else {
            // Their levels are not asked for.
            let mut elsewhere = self.hints.live_tables().filter(|(_, meta)| meta.path_id != 0);
            return elsewhere.try_for_each(|(level, meta)| check_place(dir, level, meta));
        };
        for ((level, _), meta) in manifest.families.values().flat_map(|family| &family.tables) {
            check_place(dir, *level, meta)?;
        }
        // The first path, too, can be another than that of the store, which no record says.
        let count = tables_of(manifest).count();
        if count > 0 && !tables_of(manifest).any(|table| self.has_table(table)) {
            let none = match count {
                1 => "1 table, which is not here".to_owned(),
                _ => format!("{count} tables, of which none is here"),
            };
            let reason = format!(
                "the manifest names {none}: if they lie in another directory, move them here; if they are lost, move CURRENT and \
                 the manifest away, and what the logs hold is made a store"
            );
            return Err(Error::new(ErrorKind::NotFound, reason).with_path(dir));
        }
        Ok(())
    }

    /// Newest first.
    fn manifests(&self) -> Vec<FileNumber> {
        let number = |name: &FileName| match name {
            FileName::Manifest(number) => Some(*number),
            _ => None,
        };
        let mut numbers: Vec<FileNumber> = self.names.iter().filter_map(number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers
    }

    /// The manifest that CURRENT names; if that does not do, the one that names most tables, of those whose files are all there: one
    /// that was begun and not finished names fewer than its predecessor.
    fn choose(&mut self, files: &dyn FileSystem, dir: &Path) -> Result<Option<(FileNumber, Recovered)>> {
        let current = current_manifest(files, dir).and_then(|number| {
            let recovered = recover_from(files, dir, number)?;
            let is_wrong = match self.knows_too_little(&recovered) {
                None if self.is_of_another(files, dir, &recovered)? => {
                    self.foreign = Some(number);
                    Some("the manifest is another store's: by their ids and IDENTITY, the tables are none of those that it names".into())
                }
                lost_its_end => lost_its_end,
            };
            is_wrong.map_or(Ok((number, recovered)), |reason| {
                Err(Error::corruption(&dir.join(FileName::Manifest(number).to_string()), 0, reason))
            })
        });
        match current {
            Ok(current) => return Ok(Some(current)),
            Err(error) if is_damage(&error) => self.damage.push(error),
            Err(error) => return Err(error),
        }
        let mut best: Option<(usize, (FileNumber, Recovered))> = None;
        for number in self.manifests() {
            let recovered = match recover_from(files, dir, number) {
                Ok(recovered) => recovered,
                Err(error) if is_damage(&error) => continue,
                Err(error) => return Err(error),
            };
            let count = tables_of(&recovered).count();
            let is_whole =
                tables_of(&recovered).all(|table| self.has_table(table)) && self.knows_too_little(&recovered).is_none();
            let is_better = count > 0 && is_whole && best.as_ref().is_none_or(|(most, _)| *most < count);
            if is_better && !self.is_of_another(files, dir, &recovered)? {
                best = Some((count, (number, recovered)));
            }
        }
        Ok(best.map(|(_, chosen)| chosen))
    }

    pub(super) fn has_table(&self, number: FileNumber) -> bool {
        [FileName::Table(number), FileName::LegacyTable(number)].iter().any(|name| self.names.contains(name))
    }

    /// Whether a manifest came from another store, under the name of the own one: IDENTITY says another store, and so do tables, of which it knows none.
    fn is_of_another(&self, files: &dyn FileSystem, dir: &Path, manifest: &Recovered) -> Result<bool> {
        if manifest.db_id.is_empty() || !self.has(&FileName::Identity) {
            return Ok(false);
        }
        let identity = files.read_small(&dir.join(FileName::Identity.to_string()))?;
        let identity = String::from_utf8_lossy(&identity);
        let metas = manifest.families.values().flat_map(|family| family.tables.values());
        Ok(identity.trim_end() != manifest.db_id
            && Identities::of(files, dir, &self.names, metas)?.are_all_of(identity.trim_end()))
    }

    /// Why a manifest that reads well is not to be trusted: it was cut between two edits. There are tables with numbers that it had not
    /// given yet, as after a crash; but tables that it names are gone, which only a later edit lets happen, or the log is that it needs, in
    /// which a crash would have left what those tables hold. Where there is no log at all, nobody wrote: of a copy, or a store that was
    /// repaired, such tables are what another attempt has left.
    fn knows_too_little(&self, manifest: &Recovered) -> Option<String> {
        if !self.names.iter().any(|name| matches!(name, FileName::Wal(_))) {
            return None;
        }
        let is_newer = |name: &&FileName| match name {
            FileName::Table(number) | FileName::LegacyTable(number) => number.get() >= manifest.next_file_number,
            _ => false,
        };
        let newer = self.names.iter().find(is_newer)?;
        let table = tables_of(manifest).find(|&table| !self.has_table(table)).map(FileName::Table);
        // The last that a flush has begun. Earlier ones go when no family has something in them, which no edit says.
        let log = manifest.families.values().map(|family| family.log_number).max().map(FileName::Wal);
        let gone = table.or(log.filter(|log| !self.has(log)))?;
        Some(format!(
            "the end of the manifest is lost: it needs {gone}, which is not there, and has yet to give the number of {newer}"
        ))
    }

    /// Whether the manifest has a blob file of that number; if there is none, it may have had.
    pub(super) fn names_blob(&self, number: FileNumber) -> bool {
        let names = |manifest: &Recovered| manifest.families.values().any(|family| family.blobs.contains_key(&number));
        self.manifest.as_ref().is_none_or(names)
    }

    /// What the manifest says of a blob file, with the family that it is of.
    pub(super) fn said_of_blob(&self, number: FileNumber) -> Option<(u32, &BlobFileAddition)> {
        let mut families = self.manifest.as_ref()?.families.iter();
        families.find_map(|(&id, family)| Some((id, family.blobs.get(&number)?)))
    }

    pub(super) fn has(&self, name: &FileName) -> bool {
        self.names.contains(name)
    }
}

fn tables_of(manifest: &Recovered) -> impl Iterator<Item = FileNumber> {
    manifest.families.values().flat_map(|family| family.tables.keys().map(|(_, table)| *table))
}

/// A name for each family: its own, as `known`. Of two that had the same, the later one has it: the other was dropped before.
pub(super) fn distinct_names(ids: &BTreeSet<u32>, mut known: BTreeMap<u32, String>) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::from([(0, "default".to_owned())]);
    let is_free = |names: &BTreeMap<u32, String>, name: &String| names.values().all(|taken| taken != name);
    for &id in ids.iter().rev().filter(|id| **id != 0) {
        if let Some(name) = known.remove(&id).filter(|name| is_free(&names, name)) {
            names.insert(id, name);
        }
    }
    for &id in ids {
        let mut made_up = (0..).map(|n| if n == 0 { format!("repaired-{id}") } else { format!("repaired-{id}-{n}") });
        if !names.contains_key(&id) {
            names.extend(made_up.find(|name| is_free(&names, name)).map(|name| (id, name)));
        }
    }
    names
}

impl Hints {
    /// Tables that no edit takes away, by itself or with their family; each with its level.
    pub(super) fn live_tables(&self) -> impl Iterator<Item = (u32, &TableMeta)> {
        let tables = self.tables.iter().filter(|(number, _)| !self.gone.contains(number));
        let tables = tables.filter(|(_, (family, ..))| !self.dropped.contains(family));
        tables.map(|(_, (_, level, meta))| (*level, meta))
    }

    /// Takes what every edit of a manifest that decodes says, whatever is missing between them.
    fn read(&mut self, files: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<()> {
        let path = dir.join(FileName::Manifest(number).to_string());
        if !durable::is_there(files, &path)? {
            return Ok(());
        }
        let mut scanner = Scanner::open(files, &path, RecoveryMode::SkipCorrupt, true, number.get() as u32)?;
        loop {
            match scanner.next() {
                Ok(Some((_, record))) => {
                    if let Ok(edit) = VersionEdit::decode(record) {
                        self.take(edit);
                    }
                }
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::UnsupportedFormat => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, edit: VersionEdit) {
        if let Some(id) = edit.db_id.filter(|id| !id.is_empty()) {
            self.db_id = id;
        }
        if let Some(name) = edit.column_family_add {
            self.families.entry(edit.column_family).or_insert(name);
        }
        // The default one cannot be dropped.
        if edit.column_family_drop && edit.column_family != 0 {
            self.dropped.insert(edit.column_family);
        }
        self.family_id_max = self.family_id_max.max(edit.max_column_family.unwrap_or(0)).max(edit.column_family);
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or_default());
        self.next_file_number = self.next_file_number.max(edit.next_file_number.unwrap_or(0));
        let is_moved = |number: &FileNumber| edit.new_files.iter().any(|(_, added)| added.number == *number);
        let gone = edit.deleted_files.iter().map(|(_, number)| *number);
        self.gone.extend(gone.filter(|number| !is_moved(number)));
        let family = edit.column_family;
        self.tables.extend(edit.new_files.into_iter().map(|(level, table)| (table.number, (family, level, table))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_family_is_called_so_whatever_an_edit_says() {
        let known = BTreeMap::from([(0, "another".to_owned()), (1, "one".to_owned())]);
        let names = distinct_names(&BTreeSet::from([0, 1]), known);
        assert_eq!(names, BTreeMap::from([(0, "default".to_owned()), (1, "one".to_owned())]));
        let mut hints = Hints::default();
        for column_family in [0, 1] {
            hints.take(VersionEdit { column_family, column_family_drop: true, ..VersionEdit::default() });
        }
        assert_eq!(hints.dropped, BTreeSet::from([1]));
    }
}
