//! Options files (`OPTIONS-NNNNNN`): a store's options as text, in sections. Written whole, never changed.
//!
//! | line                                    | meaning                                                               |
//! |-----------------------------------------|-----------------------------------------------------------------------|
//! | `# …`                                   | a comment, also behind a statement; `\#` is a number sign             |
//! | `# esker.key=value`                     | a note of Esker's about the section above: for RocksDB a comment, and gone once it writes the file anew |
//! | `[Version]`                             | `rocksdb_version` of the writer, `options_file_version` (1.1)         |
//! | `[DBOptions]`                           | options of the store; exactly one section                             |
//! | `[CFOptions "name"]`                    | options of a column family; `default` is the first, and must be there |
//! | `[TableOptions/BlockBasedTable "name"]` | options of the tables of a family; after that family's section        |
//! | `key=value`                             | a statement of the section above; the first of a key counts           |
//!
//! In a family's name and in strings, `\` stands before `\`, `#` and `:`, and `\n`, `\r` are line feed and carriage return.
//! Space around lines, keys and values means nothing. Numbers may end in K, M, G or T, for powers of 1,024; truth is
//! `true` or `1`. A value of several options stands in braces: `{a=1;b=2;}`.
//!
//! RocksDB takes the default of every key that is missing, and refuses the file for a key that it does not know unless
//! the file says that a newer RocksDB wrote it; so what is written claims [`WRITER_VERSION`] and keeps to its keys.
//!
//! Source: RocksDB `options/options_parser.cc`, `util/string_util.cc`.

mod parse;
mod places;
mod print;
mod section;
#[cfg(test)]
mod tests;

pub use section::{Section, SectionKind};

use places::Places;

/// The `rocksdb_version` of files that are written: the oldest that reads all of Esker's, so that every key is one of its.
pub const WRITER_VERSION: &str = "7.8.3";
/// The `options_file_version` of files that are written.
pub const FILE_VERSION: &str = "1.1";
/// What keys of notes begin with.
pub const NOTE_PREFIX: &str = "esker.";
/// The column family that every store has.
pub const DEFAULT_FAMILY: &str = "default";

/// Everything that stands in an options file, except comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsFile {
    /// In the order of the file, each kind once.
    sections: Vec<Section>,
    places: Places,
}

impl OptionsFile {
    /// A file that says who wrote it, and takes the default of everything.
    pub fn new() -> Self {
        let section = Section::new;
        let mut version = section(SectionKind::Version);
        version.set("rocksdb_version", WRITER_VERSION);
        version.set("options_file_version", FILE_VERSION);
        let default_family = SectionKind::Family(DEFAULT_FAMILY.to_owned());
        Self::of(vec![version, section(SectionKind::Database), section(default_family)])
    }

    fn of(sections: Vec<Section>) -> Self {
        let places = Places::of(&sections);
        Self { sections, places }
    }

    fn section(&self, kind: &SectionKind) -> Option<&Section> {
        self.sections.get(self.places.get(kind)?)
    }

    /// The section of that kind, put where `place` says if there is none.
    fn section_mut(&mut self, kind: SectionKind, place: impl FnOnce(&Self) -> usize) -> &mut Section {
        let at = self.places.get(&kind).unwrap_or_else(|| {
            let at = place(self).min(self.sections.len());
            self.insert(at, Section::new(kind));
            at
        });
        // There is a section at `at`: it was found or put there.
        #[expect(clippy::indexing_slicing, reason = "`at` was found or inserted two lines above")]
        &mut self.sections[at]
    }

    /// Puts a section of a kind that is not there.
    ///
    /// Cost: where it is not the last, one walk over all.
    fn insert(&mut self, at: usize, section: Section) {
        if at == self.sections.len() {
            self.places.add(&section.kind, at);
            self.sections.push(section);
        } else {
            self.sections.insert(at, section);
            self.places = Places::of(&self.sections);
        }
    }

    /// The `rocksdb_version` of the writer, if it says so.
    pub fn rocksdb_version(&self) -> Option<&str> {
        self.section(&SectionKind::Version)?.get("rocksdb_version")
    }

    /// Options of the store.
    pub fn database(&self) -> Option<&Section> {
        self.section(&SectionKind::Database)
    }

    /// The same, to change them.
    pub fn database_mut(&mut self) -> &mut Section {
        self.section_mut(SectionKind::Database, |file| {
            file.sections.iter().take_while(|section| section.kind == SectionKind::Version).count()
        })
    }

    /// Names of the column families, in the order of the file.
    pub fn family_names(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().filter_map(|section| match &section.kind {
            SectionKind::Family(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Options of a column family.
    pub fn family(&self, name: &str) -> Option<&Section> {
        self.section(&SectionKind::Family(name.to_owned()))
    }

    /// The same, to change them; the family is added if it is not there.
    pub fn family_mut(&mut self, name: &str) -> &mut Section {
        self.section_mut(SectionKind::Family(name.to_owned()), |file| {
            let is_family = |section: &Section| matches!(section.kind, SectionKind::Family(_));
            let first = if name == DEFAULT_FAMILY { file.sections.iter().position(is_family) } else { None };
            first.unwrap_or(file.sections.len())
        })
    }

    /// Options of the tables of a column family, whatever kind of table it has.
    pub fn table(&self, family: &str) -> Option<&Section> {
        self.sections.get(self.places.first_table(family)?)
    }

    /// Options of the block-based tables of a column family, to change them; family and section are added if they are not there.
    pub fn table_mut(&mut self, family: &str) -> &mut Section {
        self.family_mut(family);
        let kind = SectionKind::Table { factory: SectionKind::BLOCK_BASED.to_owned(), family: family.to_owned() };
        self.section_mut(kind, |file| {
            let its = file.places.get(&SectionKind::Family(family.to_owned()));
            its.map_or(file.sections.len(), |at| at + 1)
        })
    }

    /// Leaves out everything about column families that are not to stay. Cost: one walk over all.
    pub fn retain_families(&mut self, mut stays: impl FnMut(&str) -> bool) {
        let count = self.sections.len();
        self.sections.retain(|section| match &section.kind {
            SectionKind::Family(family) | SectionKind::Table { family, .. } => stays(family),
            SectionKind::Version | SectionKind::Database => true,
        });
        if self.sections.len() < count {
            self.places = Places::of(&self.sections);
        }
    }

    /// Leaves out everything about a column family.
    pub fn remove_family(&mut self, name: &str) {
        self.retain_families(|family| family != name);
    }
}

impl Default for OptionsFile {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether `found` is `known` with one byte changed: rot, and no name that somebody has given.
pub fn is_one_byte_off(found: &str, known: &str) -> bool {
    let differing = || found.bytes().zip(known.bytes()).filter(|(found, known)| found != known).count();
    found.len() == known.len() && differing() == 1
}

/// More bytes than one that rotted changes of a name, or lies from where that is seen.
const NEAR: usize = 12;

/// Whether one byte that rotted where the name `meant` stands in a file makes it read as `found`. Cost: that of a comparison, unless they are all but the same.
pub fn is_rotten_name(found: &str, meant: &str) -> bool {
    let is_same = |(found, meant): &(u8, u8)| found == meant;
    let head = found.bytes().zip(meant.bytes()).take_while(is_same).count();
    let tail = found.bytes().rev().zip(meant.bytes().rev()).take_while(is_same).count();
    if head + tail + NEAR < found.len().max(meant.len()) {
        return false;
    }
    let written = escape(meant).into_bytes();
    let before = (0..=head).rev().find_map(|end| meant.get(..end)).map_or(0, |before| escape(before).len());
    let places = before.saturating_sub(NEAR)..before.saturating_add(NEAR).min(written.len());
    let mut changes = places.flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte)));
    let is_read = |(at, byte): (usize, u8)| {
        let mut rotten = written.clone();
        rotten.iter_mut().skip(at).take(1).for_each(|place| *place = byte);
        std::str::from_utf8(&rotten).is_ok_and(|rotten| unescape(rotten) == found)
    };
    found != meant && changes.any(is_read)
}

/// A string as it stands in a value or between the quotation marks of a section.
pub fn escape(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '\\' | '#' | ':' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The string that [`escape`] made `escaped` of. Total: a single `\` at the end is left out.
pub fn unescape(escaped: &str) -> String {
    let mut raw = String::with_capacity(escaped.len());
    let mut chars = escaped.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => raw.extend(chars.next().map(|c| match c {
                'n' => '\n',
                'r' => '\r',
                c => c,
            })),
            c => raw.push(c),
        }
    }
    raw
}
