//! What a name in a store's directory says.
//!
//! | name                     | [`FileName`]            | holds                                                  |
//! |--------------------------|-------------------------|--------------------------------------------------------|
//! | `000012.log`             | `Wal`                   | write batches                                          |
//! | `000012.sst`             | `Table`                 | sorted keys                                            |
//! | `000012.ldb`             | `LegacyTable`           | the same, under LevelDB's name                         |
//! | `000012.blob`            | `Blob`                  | large values                                           |
//! | `MANIFEST-000005`        | `Manifest`              | version edits                                          |
//! | `CURRENT`                | `Current`               | the manifest's name and a line feed                    |
//! | `IDENTITY`               | `Identity`              | the store's id                                         |
//! | `LOCK`                   | `Lock`                  | nothing; whoever has the store open has it locked      |
//! | `OPTIONS-000007`         | `Options`               | options, as text                                       |
//! | `OPTIONS-000007.dbtmp`   | `OptionsTemporary`      | the same, before its rename                            |
//! | `000012.dbtmp`           | `Temporary`             | CURRENT or IDENTITY, before its rename                 |
//! | `LOG`                    | `InfoLog`               | RocksDB's diary                                        |
//! | `LOG.old.1600000000`     | `OldInfoLog`            | an earlier one, until that moment                      |
//!
//! Numbers have six digits, or as many as they need. A name is recognised only in the spelling that
//! [`name`](FileName::name) gives it, so nothing is opened or removed under another name than the one that was listed.
//!
//! Source: RocksDB `file/filename.cc`.

use std::fmt;

use crate::rocksdb::internal_key::FileNumber;

/// A file of a store, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileName {
    /// A write-ahead log.
    Wal(FileNumber),
    /// A table.
    Table(FileNumber),
    /// A table under LevelDB's name. Read, never written.
    LegacyTable(FileNumber),
    /// A blob file.
    Blob(FileNumber),
    /// A manifest.
    Manifest(FileNumber),
    /// The file that names the manifest.
    Current,
    /// The store's id.
    Identity,
    /// The lock.
    Lock,
    /// The options.
    Options(FileNumber),
    /// Options that are not complete, or were not renamed.
    OptionsTemporary(FileNumber),
    /// Another file that is not complete, or was not renamed.
    Temporary(FileNumber),
    /// RocksDB's diary.
    InfoLog,
    /// A former diary, and the moment of its end in RocksDB's count (seconds or microseconds).
    OldInfoLog(u64),
}

impl FileName {
    /// What `name` (without a directory) says; `None` if no store has such a file.
    pub fn parse(name: &str) -> Option<Self> {
        let parsed = Self::parse_leniently(name)?;
        // Also refuses numbers with too few or too many zeroes.
        (parsed.name() == name).then_some(parsed)
    }

    fn parse_leniently(name: &str) -> Option<Self> {
        match name {
            "CURRENT" => return Some(Self::Current),
            "IDENTITY" => return Some(Self::Identity),
            "LOCK" => return Some(Self::Lock),
            "LOG" => return Some(Self::InfoLog),
            _ => {}
        }
        if let Some(digits) = name.strip_prefix("MANIFEST-") {
            return number(digits).map(Self::Manifest);
        }
        if let Some(rest) = name.strip_prefix("OPTIONS-") {
            return match rest.strip_suffix(".dbtmp") {
                Some(digits) => number(digits).map(Self::OptionsTemporary),
                None => number(rest).map(Self::Options),
            };
        }
        if let Some(digits) = name.strip_prefix("LOG.old.") {
            return digits.parse().ok().map(Self::OldInfoLog);
        }
        let (digits, extension) = name.split_once('.')?;
        let made = match extension {
            "log" => Self::Wal,
            "sst" => Self::Table,
            "ldb" => Self::LegacyTable,
            "blob" => Self::Blob,
            "dbtmp" => Self::Temporary,
            _ => return None,
        };
        number(digits).map(made)
    }

    /// The name, without a directory.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// Whether files of these names are a store's, or what is left of one: who begins another kind of store among them takes the way to a repair
    /// away. A log is one of a store beside an identity only: `20240101.log` may be an application's.
    pub fn are_of_a_store<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
        let (mut has_log, mut has_identity) = (false, false);
        names.into_iter().filter_map(Self::parse).any(|name| {
            has_log |= matches!(name, Self::Wal(_));
            has_identity |= name == Self::Identity;
            name.is_of_a_store() || (has_log && has_identity)
        })
    }

    /// Whether such a file is never there without a store, or what is left of one. Logs, locks, diaries, identities and temporary files may be
    /// anybody's.
    pub const fn is_of_a_store(&self) -> bool {
        match self {
            Self::Table(_)
            | Self::LegacyTable(_)
            | Self::Blob(_)
            | Self::Manifest(_)
            | Self::Current
            | Self::Options(_) => true,
            Self::Wal(_)
            | Self::Identity
            | Self::Lock
            | Self::OptionsTemporary(_)
            | Self::Temporary(_)
            | Self::InfoLog
            | Self::OldInfoLog(_) => false,
        }
    }

    /// The number in the name, if there is one.
    pub const fn number(&self) -> Option<FileNumber> {
        match *self {
            Self::Wal(number)
            | Self::Table(number)
            | Self::LegacyTable(number)
            | Self::Blob(number)
            | Self::Manifest(number)
            | Self::Options(number)
            | Self::OptionsTemporary(number)
            | Self::Temporary(number) => Some(number),
            Self::Current | Self::Identity | Self::Lock | Self::InfoLog | Self::OldInfoLog(_) => None,
        }
    }
}

fn number(digits: &str) -> Option<FileNumber> {
    let number = digits.parse().ok()?;
    (number <= FileNumber::MAX.get()).then(|| FileNumber::new(number))
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wal(number) => write!(f, "{:06}.log", number.get()),
            Self::Table(number) => write!(f, "{:06}.sst", number.get()),
            Self::LegacyTable(number) => write!(f, "{:06}.ldb", number.get()),
            Self::Blob(number) => write!(f, "{:06}.blob", number.get()),
            Self::Manifest(number) => write!(f, "MANIFEST-{:06}", number.get()),
            Self::Current => f.write_str("CURRENT"),
            Self::Identity => f.write_str("IDENTITY"),
            Self::Lock => f.write_str("LOCK"),
            Self::Options(number) => write!(f, "OPTIONS-{:06}", number.get()),
            Self::OptionsTemporary(number) => write!(f, "OPTIONS-{:06}.dbtmp", number.get()),
            Self::Temporary(number) => write!(f, "{:06}.dbtmp", number.get()),
            Self::InfoLog => f.write_str("LOG"),
            Self::OldInfoLog(moment) => write!(f, "LOG.old.{moment}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_names_of_a_real_store_are_recognised() {
        let n = FileNumber::new;
        for (name, expected) in [
            ("000012.log", FileName::Wal(n(12))),
            ("000012.sst", FileName::Table(n(12))),
            ("000012.ldb", FileName::LegacyTable(n(12))),
            ("000012.blob", FileName::Blob(n(12))),
            ("MANIFEST-000005", FileName::Manifest(n(5))),
            ("CURRENT", FileName::Current),
            ("IDENTITY", FileName::Identity),
            ("LOCK", FileName::Lock),
            ("OPTIONS-000007", FileName::Options(n(7))),
            ("OPTIONS-000007.dbtmp", FileName::OptionsTemporary(n(7))),
            ("000000.dbtmp", FileName::Temporary(n(0))),
            ("LOG", FileName::InfoLog),
            ("LOG.old.1600000000123456", FileName::OldInfoLog(1_600_000_000_123_456)),
            ("1234567.sst", FileName::Table(n(1_234_567))),
            ("4611686018427387903.log", FileName::Wal(FileNumber::MAX)),
        ] {
            assert_eq!(FileName::parse(name), Some(expected));
            assert_eq!(expected.name(), name);
        }
    }

    #[test]
    fn what_only_a_store_has_is_told_apart() {
        let names = ["000012.sst", "000012.ldb", "000012.blob", "MANIFEST-000005", "CURRENT", "OPTIONS-000007"];
        assert!(names.iter().all(|name| FileName::parse(name).unwrap().is_of_a_store()));
        assert!(names.iter().all(|name| FileName::are_of_a_store(["IDENTITY", name, "20240101.log"])));
        let names = ["000012.log", "IDENTITY", "LOCK", "LOG", "LOG.old.1", "000012.dbtmp", "OPTIONS-000007.dbtmp"];
        assert!(names.iter().all(|name| !FileName::parse(name).unwrap().is_of_a_store()));
        assert!(names.iter().all(|name| !FileName::are_of_a_store([*name])));
        assert!(!FileName::are_of_a_store(["20240101.log", "LOCK", "LOG", "readme"]));
        assert!(
            FileName::are_of_a_store(["IDENTITY", "000012.log"])
                && FileName::are_of_a_store(["000012.log", "IDENTITY"])
        );
    }

    #[test]
    fn other_names_and_other_spellings_are_not() {
        for name in [
            "",
            ".",
            ".log",
            "12.log",
            "0000012.log",
            "+00012.log",
            "000012.LOG",
            "000012.log.",
            "000012",
            "00001a.sst",
            "MANIFEST-",
            "MANIFEST-5",
            "MANIFEST-000005.dbtmp",
            "OPTIONS-7",
            "LOG.old",
            "LOG.old.x",
            "lost+found",
            "4611686018427387904.log",
            "99999999999999999999.log",
            "archive",
            "000012.trash",
            "००००१२.log",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_is_recognised_is_given_back(name in "(MANIFEST-|OPTIONS-|LOG\\.old\\.)?[0-9]{0,20}(\\.(log|sst|ldb|blob|dbtmp))?") {
            if let Some(parsed) = FileName::parse(&name) {
                prop_assert_eq!(parsed.name(), name);
            }
        }

        #[test]
        fn any_string_is_parsed_without_panic(name in ".{0,30}") {
            let _ = FileName::parse(&name);
        }
    }
}
