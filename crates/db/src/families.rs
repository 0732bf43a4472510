//! Column families come and go: a manifest edit each, made durable before anybody sees the change.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::file_name::FileName;
use esker_format::rocksdb::version_edit::VersionEdit;

use crate::family::Family;
use crate::options::{FamilyOptions, Separation, validate_family_name};
use crate::store::{Installer, Store};
use crate::version::{COMPARATOR_NAME, Version};
use crate::{Error, ErrorKind, Result};

impl Store {
    /// See [`Db::create_column_family`](crate::Db::create_column_family).
    pub(crate) fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Arc<Family>> {
        validate_family_name(name)?;
        options.validate()?;
        self.commit.exclusive(|lead| {
            self.check_takes_writes()?;
            let mut installer = self.installer.lock();
            let families = self.families.load_full();
            if families.values().any(|family| family.name == name) {
                return Err(Error::new(ErrorKind::Conflict, format!("there is a column family {name:?} already")));
            }
            let Some(id) = installer.family_id_max.checked_add(1) else {
                return Err(Error::new(ErrorKind::Exhausted, "all 2^32 column family ids of the store are used up"));
            };
            let edit = VersionEdit {
                column_family: id,
                column_family_add: Some(name.to_owned()),
                comparator: Some(COMPARATOR_NAME.to_owned()),
                log_number: Some(lead.wal_number),
                max_column_family: Some(id),
                ..VersionEdit::default()
            };
            self.record(&mut installer, edit).map_err(|failure| failure.error)?;
            installer.family_id_max = id;
            let family =
                Family::new(id, name.to_owned(), options, Version::empty(), lead.wal_number, self.session_id.clone());
            let mut next: BTreeMap<_, _> = (*families).clone();
            next.insert(id, family.clone());
            self.families.store(Arc::new(next));
            lead.reload(&self.families.load(), self.options.wal_bytes_max);
            self.refresh_memory();
            // Before the family is handed out: what is put into it must find these options after a death.
            self.state.lock().options_are_stale = true;
            self.refresh_options_file(&mut installer);
            Ok(family)
        })
    }

    /// See [`Db::drop_column_family`](crate::Db::drop_column_family).
    pub(crate) fn drop_family(&self, family: &Arc<Family>) -> Result<()> {
        if family.id == 0 {
            return Err(Error::invalid_argument("the default column family cannot be dropped; delete its keys"));
        }
        self.commit.exclusive(|lead| {
            self.check_takes_writes()?;
            let mut installer = self.installer.lock();
            let families = self.families.load_full();
            if family.is_dropped() || !families.get(&family.id).is_some_and(|known| Arc::ptr_eq(known, family)) {
                let reason = format!("column family {:?} was dropped before, or is another store's", family.name);
                return Err(Error::invalid_argument(reason));
            }
            let edit = VersionEdit { column_family: family.id, column_family_drop: true, ..VersionEdit::default() };
            self.record(&mut installer, edit).map_err(|failure| failure.error)?;
            family.mark_dropped();
            self.state.lock().forget(family.id);
            let mut next: BTreeMap<_, _> = (*families).clone();
            next.remove(&family.id);
            self.families.store(Arc::new(next));
            lead.reload(&self.families.load(), self.options.wal_bytes_max);
            let version = family.view.load().version.clone();
            version.tables().for_each(|(_, table)| table.mark_obsolete());
            version.blobs().values().for_each(|blob| blob.mark_obsolete());
            family.view.load().generations().for_each(|generation| generation.blobs.mark_obsolete());
            self.retire_logs(&mut self.state.lock());
            self.refresh_delay(family);
            self.refresh_memory();
            self.changed.notify_all();
            self.options_changed(&mut installer);
            Ok(())
        })
    }

    /// See [`Db::set_separation`](crate::Db::set_separation).
    pub(crate) fn set_separation(&self, family: &Arc<Family>, separation: Separation) -> Result<()> {
        self.check_takes_writes()?;
        let mut installer = self.installer.lock();
        let before = family.set_separation(separation);
        if let Err(error) = self.write_options_file(&mut installer) {
            family.set_separation(before);
            return Err(error.while_doing("writing the options down"));
        }
        drop(installer);
        self.state.lock().to_compact.insert(family.id);
        self.changed.notify_all();
        Ok(())
    }

    /// Writes the options down, so that they hold when the store is opened without any, by Esker or by RocksDB.
    pub(crate) fn write_options_file(&self, installer: &mut Installer) -> Result<()> {
        let number = self.new_file_number();
        let temporary = self.path_of(&FileName::OptionsTemporary(number));
        let text = crate::options::print(&self.options, &self.families.load(), &self.foreign_options);
        self.env.files.write_atomically(&self.path_of(&FileName::Options(number)), &temporary, text.as_bytes())?;
        installer.options_files.push(number);
        // The last two stay, as RocksDB leaves them.
        while installer.options_files.len() > 2 {
            self.trash.add(self.path_of(&FileName::Options(installer.options_files.remove(0))));
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Has the options written down after a family is gone: what the file says of it then harms nobody. In the background,
    /// where there is one: many families that are dropped one after the other do not make as many files.
    pub(crate) fn options_changed(&self, installer: &mut Installer) {
        self.state.lock().options_are_stale = true;
        if self.options.background_jobs == 0 {
            self.refresh_options_file(installer);
        } else {
            self.changed.notify_all();
        }
    }

    /// Writes the options down if they changed since. A failure takes nothing of the change back, and is told by `stats`.
    pub(crate) fn refresh_options_file(&self, installer: &mut Installer) {
        if !std::mem::take(&mut self.state.lock().options_are_stale) {
            return;
        }
        if let Err(error) = self.write_options_file(installer) {
            self.state.lock().upkeep_error = Some(error.while_doing("writing the options down"));
        }
    }

    /// Whether some memtable points into blob files that the manifest does not name: RocksDB would remove them.
    fn has_written_blobs(&self) -> bool {
        let families = self.families.load();
        families.values().any(|family| family.view.load().generations().any(|generation| generation.blobs.count() > 0))
    }

    /// The last steps of a close that may fail.
    pub(crate) fn prepare_close(&self) -> Result<()> {
        if let Err(error) = self.check_writable() {
            // A store open for reading has nothing to write.
            return self.failure().map_or(Ok(()), |_| Err(error));
        }
        let needs_flush = self.commit.exclusive(|lead| {
            self.stop_writes();
            lead.unlogged || self.has_written_blobs()
        });
        let families: Vec<u32> = self.families.load().keys().copied().collect();
        let flushed = if needs_flush { self.flush(&families) } else { Ok(()) };
        self.refresh_options_file(&mut self.installer.lock());
        let synced = self.check_writable().and_then(|()| self.commit.exclusive(|lead| self.end_log(lead)));
        flushed.and(synced)
    }
}
