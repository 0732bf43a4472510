//! What a store keeps of the choices of the program that had it open, for tools that open it after that: notes in the OPTIONS file, which
//! are comments to RocksDB. A choice that is the default has none.

use std::fmt::Display;
use std::path::Path;

use esker_env::Env;
use esker_format::rocksdb::options_file::Section;

use super::{Options, ReclaimMode};
use crate::{Error, ErrorKind, Result, open};

const MAX_DISK_BYTES: &str = "esker.max_disk_bytes";
const MAX_SPACE_AMP: &str = "esker.max_space_amp";
const RECLAIM_MODE: &str = "esker.reclaim_mode";
const PUNCH_HOLES: &str = "esker.punch_holes";
const HOLES_WITHIN_VALUES: &str = "esker.holes_within_values";

const MODES: [(ReclaimMode, &str); 3] =
    [(ReclaimMode::Auto, "auto"), (ReclaimMode::Manual, "manual"), (ReclaimMode::Off, "off")];

impl Options {
    /// How to open the store in `path` for somebody who is not its program, as a tool is: with `max_disk_bytes`, `max_space_amp`,
    /// `reclaim_mode`, `punch_holes` and `holes_within_values` as the program chose that had it open last, and without
    /// [`keep_space_options`](Self::keep_space_options), so that it stays so whatever is changed here. All else is the default; column
    /// families keep their options by themselves.
    ///
    /// The store says so in its OPTIONS file. RocksDB does not carry that on: after it, as where there is no store, these are defaults, too.
    ///
    /// # Errors
    /// `Corruption`: what the file says cannot be read, or a repair was not finished. `InvalidArgument`: `path` is no directory. `Io`: the
    /// system refused.
    pub fn of_store(path: impl AsRef<Path>) -> Result<Self> {
        Self::of_store_with_env(path, &Env::os())
    }

    /// As [`of_store`](Self::of_store), on another machine than the real one.
    ///
    /// # Errors
    /// As [`of_store`](Self::of_store).
    pub fn of_store_with_env(path: impl AsRef<Path>, env: &Env) -> Result<Self> {
        open::kept_options(path.as_ref(), env)
    }
}

/// Notes down what was chosen.
pub(super) fn note(database: &mut Section, options: &Options) {
    let default = Options::default();
    set(database, MAX_DISK_BYTES, options.max_disk_bytes, default.max_disk_bytes);
    set(database, MAX_SPACE_AMP, options.max_space_amp, default.max_space_amp);
    set(database, PUNCH_HOLES, options.punch_holes, default.punch_holes);
    set(database, HOLES_WITHIN_VALUES, options.holes_within_values, default.holes_within_values);
    let name_of = |mode| MODES.iter().find(|(each, _)| *each == mode).map_or("auto", |(_, name)| name);
    set(database, RECLAIM_MODE, name_of(options.reclaim_mode), name_of(default.reclaim_mode));
}

fn set<T: Display + PartialEq>(database: &mut Section, key: &str, value: T, default: T) {
    if value == default {
        database.remove_note(key);
    } else {
        database.set_note(key, &value.to_string());
    }
}

/// See [`Options::of_store`].
pub(super) fn read(database: Option<&Section>) -> Result<Options> {
    let default = Options::default();
    let mode_of = |text: &str| MODES.iter().find(|(_, name)| *name == text).map(|(mode, _)| *mode);
    Ok(Options {
        max_disk_bytes: get(database, MAX_DISK_BYTES, default.max_disk_bytes, |text| text.parse().ok())?,
        max_space_amp: get(database, MAX_SPACE_AMP, default.max_space_amp, |text| text.parse().ok())?,
        punch_holes: get(database, PUNCH_HOLES, default.punch_holes, |text| text.parse().ok())?,
        holes_within_values: get(database, HOLES_WITHIN_VALUES, default.holes_within_values, |text| text.parse().ok())?,
        reclaim_mode: get(database, RECLAIM_MODE, default.reclaim_mode, mode_of)?,
        keep_space_options: false,
        ..default
    })
}

fn get<T>(database: Option<&Section>, key: &str, default: T, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
    let Some(text) = database.and_then(|section| section.note(key)) else { return Ok(default) };
    parse(text).ok_or_else(|| Error::new(ErrorKind::Corruption, format!("the note {key} says {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, WriteOptions};
    use esker_env::sim::SimDisk;

    const DIR: &str = "/db";

    fn chosen() -> Options {
        Options {
            create_if_missing: true,
            background_jobs: 0,
            max_disk_bytes: 1 << 30,
            max_space_amp: 1.75,
            reclaim_mode: ReclaimMode::Off,
            punch_holes: true,
            holes_within_values: false,
            ..Options::default()
        }
    }

    fn space(options: &Options) -> (u64, f64, ReclaimMode, bool, bool) {
        let Options { max_disk_bytes, max_space_amp, reclaim_mode, punch_holes, holes_within_values, .. } = *options;
        (max_disk_bytes, max_space_amp, reclaim_mode, punch_holes, holes_within_values)
    }

    #[test]
    fn a_store_keeps_what_its_program_chose_and_a_tool_changes_nothing_of_it() {
        let disk = SimDisk::new();
        let of_store = || Options::of_store_with_env(DIR, &disk.env()).unwrap();
        assert_eq!(space(&of_store()), space(&Options::default()), "there is no store");
        let open = |options| Db::open_with_env(DIR, options, disk.env()).unwrap();
        open(chosen()).close().unwrap();
        assert_eq!(space(&of_store()), space(&chosen()));

        // A tool that does something in its own way, and leaves a copy.
        let db = open(Options { reclaim_mode: ReclaimMode::Manual, background_jobs: 0, ..of_store() });
        let family = db.create_column_family("f", crate::FamilyOptions::default()).unwrap();
        db.put_cf(&family, "k", "v", &WriteOptions::default()).unwrap();
        db.checkpoint("/copy").unwrap();
        db.close().unwrap();
        assert_eq!(space(&of_store()), space(&chosen()));
        assert_eq!(space(&Options::of_store_with_env("/copy", &disk.env()).unwrap()), space(&chosen()));

        Db::repair_with_env(DIR, Options::default(), disk.env()).unwrap();
        assert_eq!(space(&of_store()), space(&chosen()));
        // The next program's choice is its own: here, everything is the default.
        open(Options { background_jobs: 0, ..Options::default() }).close().unwrap();
        assert_eq!(space(&of_store()), space(&Options::default()));
    }

    #[test]
    fn notes_that_cannot_be_read_are_named() {
        for (key, value) in [(MAX_DISK_BYTES, "much"), (RECLAIM_MODE, "sometimes"), (PUNCH_HOLES, "1")] {
            let mut section = esker_format::rocksdb::options_file::OptionsFile::new().database_mut().clone();
            section.set_note(key, value);
            let error = read(Some(&section)).unwrap_err();
            assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains(key), "{error}");
        }
    }
}
