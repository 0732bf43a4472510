//! Which file a table is in that a manifest names: the one of its number, unless that says that it is another table. Then the one that says
//! that it is this, whatever it is called.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker_env::FileSystem;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::table::TableProperties;
use esker_format::rocksdb::version_edit::TableMeta;

use super::survey::is_damage;
use crate::table::Remains;
use crate::{Error, ErrorKind, Result};

/// Why a table is put aside that is not what its name says.
pub(super) const STRANGER: &str =
    "another table than the manifest names: it is put aside, and what the manifest names is not here";

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// By the number that the manifest has of them.
    found: BTreeMap<FileNumber, FileName>,
    /// They have the numbers of tables that they are not; what they say that they are.
    strangers: BTreeMap<FileName, Own>,
    /// Of the stores that wrote any of the files.
    db_ids: BTreeSet<String>,
}

/// What a table says that it is.
#[derive(Debug)]
struct Own {
    id: Option<(u64, u64)>,
    db_id: String,
    number: FileNumber,
}

impl Own {
    fn of(properties: &TableProperties) -> Self {
        let number = FileNumber::new(properties.original_file_number);
        Self { id: properties.unique_id(), db_id: properties.db_id.clone(), number }
    }
}

impl Identities {
    /// Looks for tables of which a manifest says `said` among the files `names`.
    pub(super) fn of<'a>(
        files: &dyn FileSystem,
        dir: &Path,
        names: &BTreeSet<FileName>,
        said: impl Iterator<Item = &'a TableMeta>,
    ) -> Result<Self> {
        // Without those that cannot say it.
        let mut own = BTreeMap::new();
        for name in names.iter().filter(|name| matches!(name, FileName::Table(_) | FileName::LegacyTable(_))) {
            let file = files.open(&dir.join(name.to_string()))?;
            match Remains::open(&*file) {
                Ok(remains) => own.extend(remains.properties().map(|properties| (*name, Own::of(properties)))),
                Err(error) if is_damage(&error) || error.kind() == ErrorKind::UnsupportedFormat => {}
                Err(error) => return Err(error),
            }
        }
        let db_ids = own.values().map(|own| own.db_id.clone()).collect();
        let named = |meta: &TableMeta| names_of(meta.number).into_iter().find(|name| names.contains(name));
        let is_it = |own: &Own, meta: &TableMeta| own.id.is_some() && own.id == meta.unique_id;
        // What has the name and says so comes first, then what says so, then what has the name and cannot say it.
        let (mut left, mut found) = (said.collect::<Vec<_>>(), BTreeMap::new());
        left.retain(|meta| {
            let name = named(meta).filter(|name| own.get(name).is_some_and(|own| is_it(own, meta)));
            name.map(|name| (own.remove(&name), found.insert(meta.number, name))).is_none()
        });
        left.retain(|meta| {
            let name = own.iter().find(|(_, own)| is_it(own, meta)).map(|(name, _)| *name);
            name.map(|name| (own.remove(&name), found.insert(meta.number, name))).is_none()
        });
        let taken: BTreeSet<FileName> = found.values().copied().collect();
        let mut strangers = BTreeMap::new();
        for meta in left {
            let Some(name) = named(meta).filter(|name| !taken.contains(name)) else { continue };
            match own.remove(&name).filter(|_| meta.unique_id.is_some()) {
                Some(own) => drop(strangers.insert(name, own)),
                None => drop(found.insert(meta.number, name)),
            }
        }
        Ok(Self { found, strangers, db_ids })
    }

    /// Whether none of the tables is there, but some that the store `db_id` wrote.
    pub(super) fn are_all_of(&self, db_id: &str) -> bool {
        self.found.is_empty() && self.db_ids.contains(db_id)
    }

    /// Where the table `number` is.
    pub(super) fn file(&self, number: FileNumber) -> Option<FileName> {
        self.found.get(&number).copied()
    }

    /// What is wrong if it is in none: `missing`, if no other table has its name.
    pub(super) fn lost(&self, dir: &Path, number: FileNumber, missing: &str) -> Error {
        let names = names_of(number);
        let stranger = names.iter().find(|name| self.is_stranger(name));
        let name = stranger.copied().unwrap_or(FileName::Table(number));
        Error::corruption(&dir.join(name.to_string()), 0, if stranger.is_some() { STRANGER } else { missing })
    }

    /// What is wrong if it is in a file of another name.
    pub(super) fn elsewhere(&self, dir: &Path, number: FileNumber) -> Option<Error> {
        let name = self.file(number).filter(|name| name.number() != Some(number))?;
        let reason = format!("by its id, this is {}: it counts as that", FileName::Table(number));
        Some(Error::corruption(&dir.join(name.to_string()), 0, reason))
    }

    /// Whether the file is none of the tables that are looked for, though it has the number of one.
    fn is_stranger(&self, name: &FileName) -> bool {
        self.strangers.contains_key(name)
    }

    /// The own number of a file that is called by `number` and that is in no table that is looked for; `None` if that is the number of another
    /// table, and the store `db_id` has not written it.
    pub(super) fn own_number(&self, name: &FileName, number: FileNumber, db_id: &str) -> Option<FileNumber> {
        self.strangers.get(name).map_or(Some(number), |own| (own.db_id == db_id).then_some(own.number))
    }

    /// Which table is in which file.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FileNumber, FileName)> {
        self.found.iter().map(|(number, name)| (*number, *name))
    }
}

fn names_of(number: FileNumber) -> [FileName; 2] {
    [FileName::LegacyTable(number), FileName::Table(number)]
}
