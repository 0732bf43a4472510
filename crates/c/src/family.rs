//! Column families. Where a call takes one, NULL is the default column family.

use esker::{ColumnFamily, Error, FamilyOptions, MutableOptions, Result};

use crate::db::Db;
use crate::error::{Failure, attempt, hand_out};
use crate::memory::{Out, Slice, Text};
use crate::options::{ByName, DbOptions};

/// A column family of an open store.
#[derive(Debug)]
pub struct Family(pub(crate) ColumnFamily);

impl Db {
    pub(crate) fn family<'a>(&'a self, family: Option<&'a Family>) -> &'a ColumnFamily {
        family.map_or(&self.default, |family| &family.0)
    }
}

/// The column family of that name. `NotFound` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_family(db: &Db, name: Text, family: Out<Option<Box<Family>>>) -> Failure {
    hand_out(family, || {
        let name = name.read()?;
        let missing = || Error::new(esker::ErrorKind::NotFound, format!("there is no column family {name:?}"));
        db.db.column_family(name).map(Family).ok_or_else(missing)
    })
}

/// Makes a column family, with what `options` say of one of that name; NULL are the defaults. Durable when it returns. `Conflict` if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_create_family(
    db: &Db,
    name: Text,
    options: Option<&DbOptions>,
    family: Out<Option<Box<Family>>>,
) -> Failure {
    hand_out(family, || {
        let name = name.read()?;
        let of_name = options.and_then(|options| options.0.families.get(name)).cloned();
        Ok(Family(db.db.create_column_family(name, of_name.unwrap_or_default())?))
    })
}

/// Drops a column family. Durable when it returns; its files go once nobody reads them any more. The handle is still to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_drop_family(db: &Db, family: &Family) -> Failure {
    attempt(|| db.db.drop_column_family(&family.0))
}

/// Hands out handles of the column families, in the order of their creation, the first `max` of them; returns how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_families(db: &Db, families: Out<Option<Box<Family>>>, max: usize) -> usize {
    let all = db.db.column_families();
    let count = all.len();
    for (at, family) in all.into_iter().take(max).enumerate() {
        families.put_at(at, Some(Box::new(Family(family))));
    }
    count
}

/// Its name, which lives as long as the handle. No zero follows it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_family_name(family: &Family) -> Slice {
    family.0.name().as_bytes().into()
}

/// Where new values of a family live from now on: `"off"`, `"at_flush"`, `"at_write"` or `"fall_back"`. Those that are there stay until they are compacted.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_set_separation(db: &Db, family: Option<&Family>, separation: Text) -> Failure {
    attempt(|| -> Result<()> {
        let separation = crate::options::read_separation(separation.read()?)?;
        db.db.set_separation(db.family(family), separation)
    })
}

/// Changes an option of a family from now on, such as `"write_buffer_bytes"` to `"128MiB"`: one of those of `esker_db_options_set_family` but
/// `"merge_operator"`, `"comparator"` and `"level_count"`. NULL is the default family. Durable when it returns.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_set_option(db: &Db, family: Option<&Family>, name: Text, value: Text) -> Failure {
    attempt(|| -> Result<()> {
        let (family, name, value) = (db.family(family), name.read()?, value.read()?);
        let change = |options: &mut FamilyOptions| options.set(name, value);
        // What can be set once can be set again.
        change(&mut (*family.options()).clone())?;
        db.db.set_options(family, |options| drop(change(options)))
    })
}

/// Changes an option of the store from now on, such as `"max_disk_bytes"` to `"100GiB"`; an error says which can be changed. Durable when it returns, as far as the
/// store keeps it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_set_db_option(db: &Db, name: Text, value: Text) -> Failure {
    attempt(|| -> Result<()> {
        let (name, value) = (name.read()?, value.read()?);
        let change = |options: &mut MutableOptions| options.set(name, value);
        change(&mut db.db.db_options())?;
        db.db.set_db_options(|options| drop(change(options)))
    })
}

/// Frees the handle of a family; NULL is none. The family stays.
#[unsafe(no_mangle)]
pub extern "C" fn esker_family_free(family: Option<Box<Family>>) {
    drop(family);
}
