//! Reads an options file, and refuses what RocksDB refuses.

use std::collections::HashSet;

use super::{DEFAULT_FAMILY, NOTE_PREFIX, OptionsFile, Section, SectionKind, is_one_byte_off, unescape};
use crate::error::DecodeError;

impl OptionsFile {
    /// Reads back what printing wrote, and what RocksDB writes.
    ///
    /// # Errors
    /// Corrupt if a line is neither section nor statement, a section is there twice or misplaced, or one that must be
    /// there is not; unsupported for a kind of section that is not known, or a family whose name is no text. Offsets are those of lines.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(raw).map_err(|error| not_text(raw, error.valid_up_to()))?;
        let mut parser = Parser { file: Self::of(Vec::new()), keys: HashSet::new(), notes: HashSet::new() };
        let mut offset = 0;
        for line in text.split('\n') {
            parser.add_line(line).map_err(|error| error.at_base(offset))?;
            offset += line.len() as u64 + 1;
        }
        parser.file.check_complete(raw.len() as u64)?;
        Ok(parser.file)
    }

    fn check_place(&self, kind: &SectionKind) -> Result<(), DecodeError> {
        let refuse = |reason: String| Err(DecodeError::corrupt("section", 0, reason));
        match kind {
            // Two for the same tables are the same mistake as two of anything else.
            kind if self.section(kind).is_some() => refuse(format!("{kind} is there twice")),
            SectionKind::Family(name) if self.family_names().next().is_none() && name != DEFAULT_FAMILY => {
                refuse(format!("{kind} stands before that of the default family"))
            }
            SectionKind::Table { family, .. } if self.family(family).is_none() => {
                refuse(format!("{kind} stands before that of its family"))
            }
            _ => Ok(()),
        }
    }

    fn check_complete(&self, end: u64) -> Result<(), DecodeError> {
        for (kind, is_there) in [
            (SectionKind::Database, self.database().is_some()),
            (SectionKind::Family(DEFAULT_FAMILY.to_owned()), self.family(DEFAULT_FAMILY).is_some()),
        ] {
            if !is_there {
                return Err(DecodeError::corrupt("section", end, format!("{kind} is missing")));
            }
        }
        Ok(())
    }
}

/// The file so far, and what its last section says already: as many keys as anybody cares to write.
struct Parser<'a> {
    file: OptionsFile,
    keys: HashSet<&'a str>,
    notes: HashSet<&'a str>,
}

impl<'a> Parser<'a> {
    fn add_line(&mut self, line: &'a str) -> Result<(), DecodeError> {
        // A sector of zeroes would take lines away unseen, ends of lines among them. The name of a family alone may have any byte.
        if line.contains('\0') && !trim(line).starts_with('[') {
            return Err(DecodeError::corrupt("statement", 0, "has a zero byte"));
        }
        if let Some(note) = trim(line).strip_prefix('#') {
            self.add_note(note);
            return Ok(());
        }
        let line = trim(without_comment(line));
        if line.is_empty() {
            return Ok(());
        }
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let kind = section_kind(title)?;
            self.file.check_place(&kind)?;
            self.file.insert(self.file.sections.len(), Section::new(kind));
            self.keys.clear();
            self.notes.clear();
            return Ok(());
        }
        let statement = line.split_once('=').map(|(key, value)| (trim(key), trim(value)));
        // A section that does not end with its line would leave what it says to the one before.
        let Some((key, value)) = statement.filter(|(key, _)| !key.is_empty() && !key.starts_with('[')) else {
            return Err(DecodeError::corrupt("statement", 0, "neither a section nor key=value"));
        };
        let Some(section) = self.file.sections.last_mut() else {
            return Err(DecodeError::corrupt("statement", 0, "stands before the first section"));
        };
        // The first of a key counts, as in RocksDB.
        if self.keys.insert(key) {
            section.entries.push((key.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// A comment that says something to Esker; all others are nobody's.
    fn add_note(&mut self, comment: &'a str) {
        if let Some((key, value)) = trim(without_comment(comment)).split_once('=')
            && let (key, value) = (trim(key), trim(value))
            && key.starts_with(NOTE_PREFIX)
            && let Some(section) = self.file.sections.last_mut()
            && self.notes.insert(key)
        {
            section.notes.push((key.to_owned(), value.to_owned()));
        }
    }
}

/// For RocksDB the name of a family is any bytes; nothing else in the file is.
fn not_text(raw: &[u8], at: usize) -> DecodeError {
    if is_in_family_name(raw, at) {
        return DecodeError::unsupported("section", at as u64, "the name of a column family is not UTF-8");
    }
    DecodeError::corrupt("text", at as u64, "not UTF-8")
}

/// Whether the byte at `at`, the first that is no text, stands between the quotation marks of a section of a family.
fn is_in_family_name(raw: &[u8], at: usize) -> bool {
    let Some((before, after)) = raw.split_at_checked(at) else { return false };
    let begun = before.rsplit(|&byte| byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    let quoted = begun.and_then(|line| trim(line).strip_prefix('[')?.split_once('"'));
    let is_of_a_family = quoted.is_some_and(|(name, _)| match trim(name) {
        "CFOptions" => true,
        name => name.starts_with("TableOptions/"),
    });
    let mut rest = after.split(|&byte| byte == b'\n').next().unwrap_or_default().iter();
    is_of_a_family && rest.any(|&byte| byte == b'"')
}

/// What stands between the brackets: a title and, in quotation marks, an argument.
fn section_kind(title: &str) -> Result<SectionKind, DecodeError> {
    let quoted = title.split_once('"').and_then(|(name, rest)| Some((name, rest.rsplit_once('"')?.0)));
    let (name, argument) = quoted.unwrap_or((title, ""));
    if quoted.map_or(title.contains('"'), |(name, _)| trim(name) == name) {
        return Err(DecodeError::corrupt(
            "section",
            0,
            format!("[{title}] has no name between quotation marks after a space"),
        ));
    }
    match trim(name) {
        "Version" => Ok(SectionKind::Version),
        "DBOptions" => Ok(SectionKind::Database),
        "CFOptions" => Ok(SectionKind::Family(unescape(argument))),
        name => match name.strip_prefix("TableOptions/").filter(|factory| !factory.is_empty()) {
            Some(factory) => Ok(SectionKind::Table { factory: factory.to_owned(), family: unescape(argument) }),
            None => Err(unknown_section(name)),
        },
    }
}

/// One rotten byte makes a section unknown, and so may a newer RocksDB.
fn unknown_section(name: &str) -> DecodeError {
    let title = name.split_once('/').map_or(name, |(title, _)| title);
    let known = ["Version", "DBOptions", "CFOptions", "TableOptions"];
    let factory = format!("TableOptions/{}", SectionKind::BLOCK_BASED);
    match known
        .into_iter()
        .chain([factory.as_str()])
        .find(|known| is_one_byte_off(title, known) || is_one_byte_off(name, known))
    {
        Some(known) => DecodeError::corrupt("section", 0, format!("[{name}] differs in one byte from [{known}]")),
        None => DecodeError::unsupported("section", 0, format!("sections [{name}] are not known")),
    }
}

/// What stands before the first number sign that has no `\` before it.
fn without_comment(line: &str) -> &str {
    let is_comment = |&(at, _): &(usize, &str)| !line.get(..at).is_some_and(|before| before.ends_with('\\'));
    line.match_indices('#').find(is_comment).and_then(|(at, _)| line.get(..at)).unwrap_or(line)
}

/// Without what C calls space at both ends.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}
