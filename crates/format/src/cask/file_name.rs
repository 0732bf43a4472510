//! What a name in a Cask's directory says.
//!
//! | name           | [`FileName`]        | holds                                             |
//! |----------------|---------------------|---------------------------------------------------|
//! | `000012.data`  | `Data`              | records                                           |
//! | `000012.hint`  | `Hint`              | the keys of `000012.data`                         |
//! | `000012.hint.new` | `HintTemporary`  | the hint, before its rename                       |
//! | `MANIFEST`     | `Manifest`          | which files make up the store                     |
//! | `MANIFEST.new` | `ManifestTemporary` | the next manifest, before its rename              |
//! | `LOCK`         | `Lock`              | nothing; whoever has the store open has it locked |
//! | `000012.damaged` | `Damaged`         | a data file that a repair has put aside           |
//!
//! Besides, all engines: `SYNC-FAILED`, whose presence says that a sync failed, so that files that were open are written anew by the next
//! open (`esker_log::distrust`).
//!
//! Numbers have six digits, or as many as they need. A name is recognised only in the spelling that
//! [`FileName::name`] gives it.

use std::fmt;

/// Which data file: what its name says, and what slots of the key directory hold. Never used twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(u32);

impl FileNumber {
    /// The highest: two bits of a slot are used otherwise.
    pub const MAX: Self = Self((1 << 30) - 1);

    /// The number, if it is one.
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// As an integer.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The one after it, if there is one.
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// A file of a Cask, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileName {
    /// Records.
    Data(FileNumber),
    /// The keys of a data file.
    Hint(FileNumber),
    /// A hint that is being written.
    HintTemporary(FileNumber),
    /// Which files make up the store.
    Manifest,
    /// The next manifest.
    ManifestTemporary,
    /// The lock.
    Lock,
    /// Room for deletions on a full disk; its bytes mean nothing.
    Reserve,
    /// The same for what gives their space back.
    ReserveLast,
    /// A data file that a repair has put aside.
    Damaged(FileNumber),
}

impl FileName {
    /// What `name` (without a directory) says; `None` if no Cask has such a file.
    pub fn parse(name: &str) -> Option<Self> {
        let parsed = match name {
            "MANIFEST" => Self::Manifest,
            "MANIFEST.new" => Self::ManifestTemporary,
            "LOCK" => Self::Lock,
            "RESERVE" => Self::Reserve,
            "RESERVE-LAST" => Self::ReserveLast,
            _ => {
                let (digits, extension) = name.split_once('.')?;
                // Files are counted from 1.
                let number = FileNumber::new(digits.parse().ok()?).filter(|number| number.get() > 0)?;
                match extension {
                    "data" => Self::Data(number),
                    "hint" => Self::Hint(number),
                    "hint.new" => Self::HintTemporary(number),
                    "damaged" => Self::Damaged(number),
                    _ => return None,
                }
            }
        };
        // Refuses signs, and numbers with too few or too many zeroes.
        (parsed.name() == name).then_some(parsed)
    }

    /// The name, without a directory.
    pub fn name(&self) -> String {
        match self {
            Self::Data(number) => format!("{number}.data"),
            Self::Hint(number) => format!("{number}.hint"),
            Self::HintTemporary(number) => format!("{number}.hint.new"),
            Self::Damaged(number) => format!("{number}.damaged"),
            Self::Manifest => "MANIFEST".to_owned(),
            Self::ManifestTemporary => "MANIFEST.new".to_owned(),
            Self::Lock => "LOCK".to_owned(),
            Self::Reserve => "RESERVE".to_owned(),
            Self::ReserveLast => "RESERVE-LAST".to_owned(),
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_nothing_else_does() {
        let number = |n| FileNumber::new(n).unwrap();
        for (name, file) in [
            ("000012.data", FileName::Data(number(12))),
            ("1073741823.hint", FileName::Hint(FileNumber::MAX)),
            ("000012.hint.new", FileName::HintTemporary(number(12))),
            ("000001.damaged", FileName::Damaged(number(1))),
            ("MANIFEST", FileName::Manifest),
            ("MANIFEST.new", FileName::ManifestTemporary),
            ("LOCK", FileName::Lock),
            ("RESERVE", FileName::Reserve),
            ("RESERVE-LAST", FileName::ReserveLast),
        ] {
            assert_eq!(FileName::parse(name), Some(file));
            assert_eq!(file.to_string(), name);
        }
        for name in [
            "12.data",
            "000000.data",
            "+00012.data",
            "0000012.data",
            "1073741824.data",
            "000012.sst",
            "",
            ".data",
            "LOCK.data",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
