//! Prints an options file.

use std::fmt;

use super::{OptionsFile, Section, SectionKind, escape};

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("[Version]"),
            Self::Database => f.write_str("[DBOptions]"),
            Self::Family(name) => write!(f, "[CFOptions \"{}\"]", escape(name)),
            Self::Table { factory, family } => write!(f, "[TableOptions/{factory} \"{}\"]", escape(family)),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.kind)?;
        self.notes.iter().try_for_each(|(key, value)| writeln!(f, "  # {key}={value}"))?;
        self.entries.iter().try_for_each(|(key, value)| writeln!(f, "  {key}={value}"))
    }
}

/// The text of the file.
impl fmt::Display for OptionsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("# Options of an Esker store, in the format of RocksDB's options files.\n")?;
        self.sections.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}
