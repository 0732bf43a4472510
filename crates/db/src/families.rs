//! Column families come and go: a manifest edit each, made durable before anybody sees the change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::file_name::FileName;
use esker_format::rocksdb::version_edit::VersionEdit;
use esker_log::distrust;
use esker_log::writer::LogWriter;

use crate::cache::Follow;
use crate::family::Family;
use crate::options::{FamilyOptions, MutableOptions, validate_family_name};
use crate::store::{Installer, Store};
use crate::version::{ManifestWriter, Version};
use crate::{Error, ErrorKind, Result};

impl Store {
    /// See [`Db::create_column_family`](crate::Db::create_column_family).
    pub(crate) fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Arc<Family>> {
        validate_family_name(name)?;
        options.validate()?;
        self.check_here()?;
        self.alone(|lead| {
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
                comparator: Some(options.comparator.name().to_owned()),
                log_number: Some(lead.wal_number),
                max_column_family: Some(id),
                ..VersionEdit::default()
            };
            let version = Version::empty(options.order());
            let family = Family::new(id, name.to_owned(), options, version, lead.wal_number, self.session_id.clone());
            let mut next: BTreeMap<_, _> = (*families).clone();
            next.insert(id, family.clone());
            // Before there is the family: what is put into it must find these options after a death. Options of none harm nobody.
            self.write_options_of(&next, &mut installer)?;
            if let Err(failure) = self.record(&mut installer, edit) {
                self.state.lock().options_are_stale = true;
                return Err(failure.error);
            }
            installer.family_id_max = id;
            self.families.store(Arc::new(next));
            lead.reload(&self.families.load());
            self.refresh_wal_bytes_max();
            self.refresh_memory();
            self.roll_manifest_if_large(&mut installer);
            Ok(family)
        })
    }

    /// See [`Db::drop_column_family`](crate::Db::drop_column_family).
    pub(crate) fn drop_family(&self, family: &Arc<Family>) -> Result<()> {
        if family.id == 0 {
            return Err(Error::invalid_argument("the default column family cannot be dropped; delete its keys"));
        }
        self.check_here()?;
        self.alone(|lead| {
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
            self.foreign_options.forget(&family.name);
            let mut state = self.state.lock();
            state.forget(family.id);
            // It may have been this family's work that failed; what is tried again says so again.
            (state.flush_error, state.compaction_error) = (None, None);
            drop(state);
            let mut next: BTreeMap<_, _> = (*families).clone();
            next.remove(&family.id);
            self.families.store(Arc::new(next));
            lead.reload(&self.families.load());
            self.refresh_wal_bytes_max();
            let version = family.view.load().version.clone();
            version.tables().for_each(|(_, table)| table.mark_obsolete());
            version.blobs().values().for_each(|blob| blob.mark_obsolete());
            family.view.load().generations().for_each(|generation| generation.blobs.mark_obsolete());
            self.retire_logs(&mut self.state.lock());
            self.refresh_delay(family);
            self.refresh_memory();
            self.changed.notify_all();
            self.options_changed(&mut installer);
            self.roll_manifest_if_large(&mut installer);
            Ok(())
        })
    }

    /// See [`Db::set_options`](crate::Db::set_options).
    pub(crate) fn set_options(&self, family: &Arc<Family>, change: impl Fn(&mut FamilyOptions)) -> Result<()> {
        self.check_here()?;
        loop {
            let before = family.options().clone();
            let mut options = (*before).clone();
            // Without a lock: it is the caller's.
            change(&mut options);
            options.validate()?;
            check_fixed(&before, &options)?;
            let mut installer = self.installer.lock();
            // Under the lock, which close takes after it has said so: or a file might be written into a directory that was given up.
            self.check_takes_writes()?;
            family.check_not_dropped()?;
            if !Arc::ptr_eq(&before, &family.options()) {
                continue;
            }
            family.set_options(Arc::new(options));
            if let Err(error) = self.write_options_file(&mut installer) {
                family.set_options(before);
                return Err(error);
            }
            // With the version that it has: what is due in it, and when, goes by the options.
            self.note_new_version(&mut self.state.lock(), family.id, &family.view.load().version);
            break;
        }
        self.refresh_wal_bytes_max();
        self.refresh_delay(family);
        self.refresh_memory();
        self.changed.notify_all();
        Ok(())
    }

    /// See [`Db::set_db_options`](crate::Db::set_db_options).
    pub(crate) fn set_db_options(&self, change: impl Fn(&mut MutableOptions)) -> Result<()> {
        self.check_here()?;
        let has_another_memory_limit = loop {
            let before = self.options.load_full();
            let known = MutableOptions::from(&*before);
            let mut wanted = known.clone();
            // Without a lock: it is the caller's.
            change(&mut wanted);
            let options = before.with(&wanted);
            options.validate()?;
            let mut installer = self.installer.lock();
            self.check_takes_writes()?;
            if !Arc::ptr_eq(&before, &self.options.load()) {
                continue;
            }
            let cache_bytes = self.other_cache_bytes(&known, &wanted)?;
            self.begin_disk_limit(known.max_disk_bytes, wanted.max_disk_bytes, &installer)?;
            let foreign = self.foreign_options.with_change(&before, &options);
            let text = crate::options::print(&options, &self.families.load(), &foreign);
            // Only what may be taken of the disk is another already: whatever fails, nothing else has to be taken back.
            if let Err(error) = self.write_options_text(&text, &mut installer) {
                self.set_disk_limit(known.max_disk_bytes, &installer);
                return Err(error);
            }
            self.options.store(Arc::new(options));
            self.set_disk_limit(wanted.max_disk_bytes, &installer);
            if let Some(bytes) = cache_bytes {
                self.cache.set_bytes(bytes);
            }
            self.foreign_options.replace(foreign);
            // Under the lock: of two changes, the later one holds.
            self.refresh_manifest_growth(&installer);
            self.refresh_wal_bytes_max();
            self.refresh_rates();
            break known.memory_limit != wanted.memory_limit;
        };
        self.refresh_room();
        self.refresh_shortage();
        let families = self.families.load_full();
        families.values().for_each(|family| self.refresh_delay(family));
        self.state.lock().to_compact.extend(families.keys());
        self.changed.notify_all();
        // Last: it may wait for writers, which wait for what else has changed.
        if has_another_memory_limit {
            self.follow_limit();
        }
        Ok(())
    }

    /// How large the cache becomes by the change, if it is one of that.
    fn other_cache_bytes(&self, known: &MutableOptions, wanted: &MutableOptions) -> Result<Option<u64>> {
        let amounts = |options: &MutableOptions| (options.memory_limit, options.cache_bytes);
        if amounts(known) == amounts(wanted) {
            return Ok(None);
        }
        if self.options().cache.is_some() {
            let reason = "the cache is that of several stores: change its size with Cache::set_bytes";
            return Err(Error::invalid_argument(reason));
        }
        if (known.memory_limit == 0) != (wanted.memory_limit == 0) {
            let reason =
                "whether there is a memory_limit cannot change while the store is open; close it and open it again";
            return Err(Error::invalid_argument(reason));
        }
        self.cache.check_may_change()?;
        Ok(Some(if wanted.memory_limit > 0 { wanted.memory_limit } else { wanted.cache_bytes }))
    }

    /// Of an open store: as the options say, or what all families' memtables have room for, four times.
    pub(crate) fn refresh_wal_bytes_max(&self) {
        let buffers = || self.families.load().values().map(|family| family.options().write_buffer_bytes).sum::<u64>();
        let bytes = match self.options().wal_bytes_max {
            0 => buffers().saturating_mul(4),
            bytes => bytes,
        };
        self.wal_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Writes the options down, so that they hold when the store is opened without any, by Esker or by RocksDB.
    pub(crate) fn write_options_file(&self, installer: &mut Installer) -> Result<()> {
        self.write_options_of(&self.families.load(), installer)
    }

    /// The same for a store with these families. What a failure leaves goes; should that be the newest file after a death, the
    /// next says again how things are.
    fn write_options_of(&self, families: &BTreeMap<u32, Arc<Family>>, installer: &mut Installer) -> Result<()> {
        self.write_options_text(&crate::options::print(&self.options(), families, &self.foreign_options), installer)
    }

    fn write_options_text(&self, text: &str, installer: &mut Installer) -> Result<()> {
        let number = self.new_file_number();
        let path = self.path_of(&FileName::Options(number));
        let temporary = self.path_of(&FileName::OptionsTemporary(number));
        if let Err(error) = self.env.files.write_atomically(&path, &temporary, text.as_bytes()) {
            for left in [path, temporary] {
                if self.env.files.remove(&left).is_err() {
                    self.trash.add(left);
                }
            }
            self.state.lock().options_are_stale = true;
            self.changed.notify_all();
            return Err(Error::from(error).while_doing("writing the options down"));
        }
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
        if self.background_jobs == 0 {
            // Told by `stats`, and tried again.
            let _ = self.refresh_options_file(installer);
        } else {
            self.changed.notify_all();
        }
    }

    /// Writes the options down if they changed since. A failure takes nothing of the change back, and leaves it to be written.
    pub(crate) fn refresh_options_file(&self, installer: &mut Installer) -> Result<()> {
        if !std::mem::take(&mut self.state.lock().options_are_stale) {
            return Ok(());
        }
        let written = self.write_options_file(installer);
        self.state.lock().options_error = written.as_ref().err().cloned();
        written
    }

    /// Whether some memtable points into blob files that the manifest does not name: RocksDB would remove them.
    fn has_written_blobs(&self) -> bool {
        let families = self.families.load();
        families.values().any(|family| family.view.load().generations().any(|generation| generation.blobs.count() > 0))
    }

    /// The last moment for what could not be done when the store failed: what it left in log or manifest, where it would pass for damage, is cut
    /// off, and the next process is warned. Should that fail again, the failure that is told is the worse one.
    fn tidy_failed(&self) {
        let _ = distrust::warn(&*self.env.files, &self.dir);
        let _ = self.alone(|lead| lead.wal.as_ref().map(LogWriter::cut_back));
        let _ = self.installer.lock().manifest.as_ref().map(ManifestWriter::cut_back);
    }

    /// The last steps of a close that may fail.
    pub(crate) fn prepare_close(&self) -> Result<()> {
        if let Err(error) = self.check_writable() {
            // A store open for reading has nothing to write.
            return self.failure().map_or(Ok(()), |_| {
                self.tidy_failed();
                Err(error)
            });
        }
        let needs_flush = self.alone(|lead| {
            self.stop_writes();
            lead.unlogged || self.has_written_blobs()
        });
        let families: Vec<u32> = self.families.load().keys().copied().collect();
        let flushed = if needs_flush { self.flush(&families) } else { Ok(()) };
        let described = self.refresh_options_file(&mut self.installer.lock());
        let synced = self.check_writable().and_then(|()| self.alone(|lead| self.end_log(lead)));
        flushed.and(synced).and(described)
    }
}

/// Refuses to change what holds for as long as a store is open.
fn check_fixed(before: &FamilyOptions, after: &FamilyOptions) -> Result<()> {
    let is_same_operator = match (&before.merge_operator, &after.merge_operator) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after),
        (before, after) => before.is_none() && after.is_none(),
    };
    let fixed = [
        ("merge_operator", is_same_operator),
        ("comparator", before.order() == after.order()),
        ("level_count", before.level_count == after.level_count),
    ];
    match fixed.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).next() {
        None => Ok(()),
        Some(name) => Err(Error::invalid_argument(format!(
            "option {name} cannot be changed while the store is open; open it with another"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::{Fault, SimDisk};

    use super::*;
    use crate::{Db, Options, Separation};

    fn open(disk: &SimDisk) -> Db {
        let options =
            Options { create_if_missing: true, background_jobs: 0, manifest_bytes_max: 4 << 10, ..Options::default() };
        Db::open_with_env("/db", options, disk.env()).unwrap()
    }

    fn with_separation(separation: Separation) -> FamilyOptions {
        FamilyOptions { separation, ..FamilyOptions::default() }
    }

    /// The disk after `prepare`, and what `act` does when the last of its operations with `word` on an OPTIONS file, or on no file in
    /// particular, fails.
    fn failing<T>(word: &str, prepare: impl Fn(&Db), act: impl Fn(&Db) -> T) -> (SimDisk, Db, T) {
        let healthy = SimDisk::new();
        healthy.set_tracing(true);
        let db = open(&healthy);
        prepare(&db);
        let from = healthy.op_count();
        act(&db);
        let is_wanted =
            |line: &&String| line.split(' ').nth(1) == Some(word) && (word != "create" || line.contains("OPTIONS"));
        let index = |line: &String| line.split(' ').next()?.parse::<u64>().ok();
        let at = healthy.trace().iter().filter(is_wanted).filter_map(index).filter(|&at| at >= from).max().unwrap();
        let disk = SimDisk::new();
        let db = open(&disk);
        prepare(&db);
        disk.fail_at(at, Fault::Eio);
        let done = act(&db);
        (disk, db, done)
    }

    fn newest_options(disk: &SimDisk) -> String {
        let is_options = |path: &&std::path::PathBuf| path.to_string_lossy().contains("OPTIONS-");
        let newest = disk.paths().iter().filter(is_options).max().cloned().unwrap();
        String::from_utf8(disk.file_bytes(&newest).unwrap()).unwrap()
    }

    fn separation(db: &Db, name: &str) -> Separation {
        db.store().families.load().values().find(|family| family.name == name).unwrap().separation()
    }

    #[test]
    fn a_family_whose_options_cannot_be_written_is_not_made() {
        let create = |db: &Db| db.create_column_family("a", with_separation(Separation::AtWrite)).map(drop);
        for word in ["create", "rename"] {
            let (disk, db, created) = failing(word, |_| (), create);
            assert_eq!(created.unwrap_err().kind(), ErrorKind::Io);
            assert!(db.column_family("a").is_none());
            create(&db).unwrap();
            drop(db);
            assert_eq!(separation(&open(&disk.after_process_death()), "a"), Separation::AtWrite, "{word}");
        }
    }

    #[test]
    fn options_that_could_not_be_written_are_written_later() {
        let create = |db: &Db| drop(db.create_column_family("a", FamilyOptions::default()).unwrap());
        let drop_it = |db: &Db| db.drop_column_family(&db.column_family("a").unwrap()).unwrap();
        // With the next work.
        let (disk, db, ()) = failing("create", create, drop_it);
        assert!(newest_options(&disk).contains("CFOptions \"a\""));
        let error = db.stats().background_error.unwrap();
        db.store().trash.purge_again().unwrap();
        assert!(error.to_string().contains("writing the options down"), "{error}");
        db.wait_for_compact().unwrap();
        assert!(!newest_options(&disk).contains("CFOptions \"a\""));
        assert!(db.stats().background_error.is_none());
        // When the store is closed.
        let (disk, db, ()) = failing("create", create, drop_it);
        db.close().unwrap();
        assert!(!newest_options(&disk).contains("CFOptions \"a\""));
    }

    #[test]
    fn a_separation_that_was_refused_is_not_what_the_next_open_finds() {
        let change = |db: &Db| db.set_separation(&db.default_column_family(), Separation::AtWrite);
        for word in ["create", "rename", "sync_dir"] {
            let (disk, db, changed) = failing(word, |_| (), change);
            changed.unwrap_err();
            let before = separation(&db, "default");
            assert_ne!(before, Separation::AtWrite);
            assert_eq!(separation(&open(&disk.after_process_death()), "default"), before, "{word}");
            db.close().unwrap();
            assert_eq!(separation(&open(&disk), "default"), before, "{word}, closed");
        }
    }

    /// Goal: what was changed while the store was open is what the OPTIONS file says, the default too, now and after the next open; what nobody
    /// changed stays as it was found.
    #[test]
    fn options_that_are_the_default_again_are_written_down_as_that() {
        let disk = SimDisk::new();
        let lines = |db_options: [&str; 3]| {
            let text = newest_options(&disk);
            let lacking = db_options.iter().find(|line| !text.contains(&format!("{line}\n")));
            assert!(lacking.is_none(), "{lacking:?} is not in:\n{text}");
        };
        let chosen = || Options {
            create_if_missing: true,
            background_jobs: 0,
            wal_bytes_max: 1 << 20,
            manifest_bytes_max: 8 << 10,
            recycled_logs_max: 3,
            ..Options::default()
        };
        let plain = || Options { background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", chosen(), disk.env()).unwrap();
        db.set_db_options(|options| options.wal_bytes_max = 2 << 20).unwrap();
        db.close().unwrap();
        lines(["max_total_wal_size=2097152", "max_manifest_file_size=8192", "recycle_log_file_num=3"]);
        for given in [plain(), chosen()] {
            let db = Db::open_with_env("/db", given, disk.env()).unwrap();
            let set = |wal_bytes: u64, manifest_bytes: u64| {
                let change = |options: &mut MutableOptions| {
                    (options.wal_bytes_max, options.manifest_bytes_max) = (wal_bytes, manifest_bytes);
                };
                db.set_db_options(change).unwrap();
            };
            set(4 << 20, 16 << 10);
            lines(["max_total_wal_size=4194304", "max_manifest_file_size=16384", "recycle_log_file_num=3"]);
            set(Options::default().wal_bytes_max, Options::default().manifest_bytes_max);
            let said = ["max_total_wal_size=0", "max_manifest_file_size=67108864", "recycle_log_file_num=3"];
            lines(said);
            db.create_column_family("a", FamilyOptions::default()).unwrap();
            db.drop_column_family(&db.column_family("a").unwrap()).unwrap();
            lines(said);
            db.close().unwrap();
            lines(said);
            // An open goes by its own options: by the defaults here.
            let db = Db::open_with_env("/db", plain(), disk.env()).unwrap();
            assert_eq!(db.db_options().wal_bytes_max, 0);
            lines(said);
            db.close().unwrap();
        }
    }

    /// Goal: a change of the store's options that cannot be written down changes nothing: neither options, nor what goes by them, nor what the OPTIONS file says.
    /// Method: each operation of the change fails, that one alone or all from it on, of a limit that rises, and of one that falls.
    #[test]
    fn a_change_that_fails_leaves_everything_as_it_was() {
        type Change = fn(&mut MutableOptions);
        let less: Change = |options| {
            (options.max_disk_bytes, options.manifest_bytes_max) = (32 << 20, 8 << 10);
            (options.memory_limit, options.wal_bytes_max) = (4 << 20, 1 << 20);
            (options.reclaim_bytes_per_second_max, options.max_space_amp) = (1 << 20, 1.5);
        };
        let more: Change = |options| {
            (options.max_disk_bytes, options.manifest_bytes_max) = (64 << 20, 64 << 10);
            (options.memory_limit, options.wal_bytes_max) = (16 << 20, 0);
            (options.reclaim_bytes_per_second_max, options.max_space_amp) = (2 << 20, 1.3);
        };
        let opened = |first: Change| {
            let disk = SimDisk::new();
            let plain =
                Options { create_if_missing: true, background_jobs: 0, memory_limit: 1 << 20, ..Options::default() };
            let mut mutable = MutableOptions::from(&plain);
            first(&mut mutable);
            let db = Db::open_with_env("/db", plain.with(&mutable), disk.env()).unwrap();
            (0..100u8).for_each(|key| db.put([key], [key; 1000]).unwrap());
            (disk, db)
        };
        let in_force = |db: &Db| {
            let store = db.store();
            let of_disk =
                (store.env.files.space(&store.dir).unwrap().available + store.room.used(), store.room.file_bytes_max());
            let of_logs = (store.manifest_growth.load(Ordering::Relaxed), store.wal_bytes_max.load(Ordering::Relaxed));
            let of_memory = (store.cache.limit_bytes(), store.cache.stats().capacity_bytes);
            (db.db_options(), of_disk, of_logs, of_memory, store.pacer.rate(esker_log::pacer::Class::Reclaim))
        };
        for (first, second) in [(less, more), (more, less)] {
            let (disk, db) = opened(first);
            let from = disk.op_count();
            db.set_db_options(second).unwrap();
            let (ops, changed) = (disk.op_count() - from, in_force(&db));
            let mut failures = 0;
            for (n, is_alone) in (0..ops).flat_map(|n| [(n, true), (n, false)]) {
                let (disk, db) = opened(first);
                let (before, text) = (in_force(&db), newest_options(&disk));
                assert_ne!(before, changed);
                let at = disk.op_count() + n;
                if is_alone {
                    disk.fail_at(at, Fault::Eio)
                } else {
                    disk.fail_from(at, Fault::Eio)
                }
                let done = db.set_db_options(second);
                disk.heal();
                let what = format!("operation {n} of {ops}, alone: {is_alone}: {done:?}");
                if done.is_err() {
                    failures += 1;
                    assert_eq!(in_force(&db), before, "{what}");
                    assert!(!is_alone || newest_options(&disk) == text, "{what}");
                    db.wait_for_compact().unwrap();
                    assert_eq!(newest_options(&disk), text, "{what}");
                    db.set_db_options(second).unwrap();
                }
                assert_eq!(in_force(&db), changed, "{what}");
                assert_ne!(newest_options(&disk), text, "{what}");
                db.close().unwrap();
            }
            assert!(failures > 6, "{failures}");
        }
    }

    /// Goal: who was held up while the store was closed writes no options: the directory may be another's by then.
    /// Method: it waits for the lock, at the latest when the other thread has nothing else to do.
    #[test]
    fn a_separation_that_comes_too_late_writes_nothing() {
        let disk = SimDisk::new();
        let db = open(&disk);
        let store = db.store();
        let installer = store.installer.lock();
        let began = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                began.wait();
                db.set_separation(&db.default_column_family(), Separation::AtWrite)
            });
            began.wait();
            (0..10_000).for_each(|_| std::thread::yield_now());
            store.stop_writes();
            let before = disk.op_count();
            drop(installer);
            assert_eq!(change.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(disk.op_count(), before);
        });
    }

    #[test]
    fn the_separation_of_a_family_that_was_dropped_is_not_changed() {
        let disk = SimDisk::new();
        let db = open(&disk);
        let family = db.create_column_family("a", FamilyOptions::default()).unwrap();
        db.drop_column_family(&family).unwrap();
        let options = newest_options(&disk);
        let paths = disk.paths();
        let error = db.set_separation(&family, Separation::AtWrite).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!((newest_options(&disk), disk.paths()), (options, paths));
        let id = db.store().own(&family).unwrap().id;
        assert!(!db.store().state.lock().to_compact.contains(&id));
    }

    #[test]
    fn families_that_come_and_go_make_no_manifest_large() {
        let disk = SimDisk::new();
        let db = open(&disk);
        let manifest_bytes = || {
            let is_manifest = |path: &&std::path::PathBuf| path.to_string_lossy().contains("MANIFEST-");
            let newest = disk.paths().iter().filter(is_manifest).max().cloned().unwrap();
            disk.file_bytes(&newest).unwrap().len()
        };
        for _ in 0..300 {
            db.create_column_family("a", FamilyOptions::default()).unwrap();
            db.drop_column_family(&db.column_family("a").unwrap()).unwrap();
            let bytes = manifest_bytes();
            assert!(bytes < 5 << 10, "{bytes} bytes");
        }
        db.close().unwrap();
        assert_eq!(open(&disk).column_families().len(), 1);
    }
    /// What RocksDB was told of a family is carried on as long as there is that family.
    #[test]
    fn a_family_has_no_options_of_one_of_its_name_that_was_dropped() {
        let disk = SimDisk::new();
        let create = |db: &Db| drop(db.create_column_family("a", FamilyOptions::default()).unwrap());
        let db = open(&disk);
        create(&db);
        db.close().unwrap();
        let is_options = |path: &&std::path::PathBuf| path.to_string_lossy().contains("OPTIONS-");
        let newest = disk.paths().iter().filter(is_options).max().cloned().unwrap();
        let (text, section) = (newest_options(&disk), "[CFOptions \"a\"]\n");
        disk.overwrite(&newest, text.replace(section, &format!("{section}  report_bg_io_stats=true\n")).into_bytes());
        let db = open(&disk);
        assert!(newest_options(&disk).contains("report_bg_io_stats=true"), "{}", newest_options(&disk));
        db.drop_column_family(&db.column_family("a").unwrap()).unwrap();
        create(&db);
        db.close().unwrap();
        let text = newest_options(&disk);
        assert!(text.contains(section) && !text.contains("report_bg_io_stats"), "{text}");
    }
}
