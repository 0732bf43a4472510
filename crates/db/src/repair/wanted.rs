//! Which files are looked at as tables, and as which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker_env::FileSystem;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::TableMeta;

use super::DbRepair;
use super::identity::Identities;
use super::survey::{Hints, Survey};
use crate::version::Recovered;
use crate::{Error, Result};

/// A file to be read as a table.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) name: FileName,
    /// Its own number: the file may have another.
    pub(super) number: FileNumber,
    pub(super) said: Option<Said<'a>>,
}

/// What a manifest says of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<'a> {
    pub(super) family: u32,
    /// `None` if the manifest is not whole.
    pub(super) level: Option<usize>,
    /// With the number that the table has there: its file may have another.
    pub(super) meta: &'a TableMeta,
}

impl Survey {
    /// All of them; `report` takes which are missing.
    pub(super) fn tables(&self, files: &dyn FileSystem, dir: &Path, report: &mut DbRepair) -> Result<Vec<Wanted<'_>>> {
        match &self.manifest {
            Some(manifest) => named(manifest, files, dir, &self.names, report),
            None => hinted(&self.hints, files, dir, &self.names, report),
        }
    }
}

/// Those that a whole manifest names.
fn named<'a>(
    manifest: &'a Recovered,
    files: &dyn FileSystem,
    dir: &Path,
    names: &BTreeSet<FileName>,
    report: &mut DbRepair,
) -> Result<Vec<Wanted<'a>>> {
    let metas = manifest.families.values().flat_map(|of| of.tables.values());
    let identities = Identities::of(files, dir, names, metas)?;
    let (mut wanted, mut seen) = (Vec::new(), BTreeSet::new());
    for (&family, of) in &manifest.families {
        for (&(level, number), meta) in &of.tables {
            if !seen.insert(number) {
                let reason =
                    "the manifest names this table for two column families, or in two levels: the first has it";
                let path = dir.join(FileName::Table(number).to_string());
                report.damage.push(Error::corruption(&path, 0, reason));
                continue;
            }
            let Some(name) = identities.file(number) else {
                report.lost_tables += 1;
                let missing = "the manifest names this file, but it is not there";
                report.damage.push(identities.lost(dir, number, missing));
                continue;
            };
            report.damage.extend(identities.elsewhere(dir, number));
            wanted.push(Wanted { name, number, said: Some(Said { family, level: Some(level as usize), meta }) });
        }
    }
    Ok(wanted)
}

/// All that are there, but for those that manifests, which are not whole, say are gone, or are of another store.
fn hinted<'a>(
    hints: &'a Hints,
    files: &dyn FileSystem,
    dir: &Path,
    names: &BTreeSet<FileName>,
    report: &mut DbRepair,
) -> Result<Vec<Wanted<'a>>> {
    let identities = Identities::of(files, dir, names, hints.tables.values().map(|(.., meta)| meta))?;
    let known: BTreeMap<FileName, FileNumber> = identities.iter().map(|(number, name)| (name, number)).collect();
    let mut wanted = Vec::new();
    for &name in names {
        let (FileName::Table(number) | FileName::LegacyTable(number)) = name else { continue };
        let found = known.get(&name).copied();
        let said = found.and_then(|number| hints.tables.get(&number));
        let said = said.map(|(family, _, meta)| Said { family: *family, level: None, meta });
        let number = found.or_else(|| identities.own_number(&name, number, &hints.db_id));
        if let Some(number) = number.filter(|number| !hints.gone.contains(number)) {
            wanted.push(Wanted { name, number, said });
        }
    }
    for number in hints.live_tables().map(|(_, meta)| meta.number) {
        if identities.file(number).is_none() {
            report.lost_tables += 1;
            let missing = "a manifest names this file, but it is not there: it may be missing, or was removed later";
            report.damage.push(identities.lost(dir, number, missing));
        }
        report.damage.extend(identities.elsewhere(dir, number));
    }
    Ok(wanted)
}
