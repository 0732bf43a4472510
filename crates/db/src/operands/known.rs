//! RocksDB's own operators, under its names: a store that names one of them has it without being told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MergeOperator, Operator};
use crate::{Error, Result};

/// Adds 64-bit numbers, little-endian, modulo 2⁶⁴ (RocksDB's `UInt64AddOperator`, `uint64add`). What is not 8 bytes long counts as 0, as
/// there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UInt64AddOperator;

/// Joins strings with a delimiter between them (RocksDB's `StringAppendOperator`, `stringappend`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringAppendOperator {
    delimiter: String,
    /// RocksDB's `StringAppendTESTOperator` does the same, and keeps operands apart until the value is known.
    keeps_apart: bool,
}

/// Keeps the greatest in the order of bytes (RocksDB's `MaxOperator`, `max`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaxOperator;

/// The exclusive or, byte by byte; what is longer keeps its end (RocksDB's `BytesXOR`, `bytesxor`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BytesXorOperator;

/// Keeps the last (RocksDB's `PutOperator`, `put`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutOperator;

const STRING_APPEND: &str = "StringAppendOperator";
const STRING_APPEND_APART: &str = "StringAppendTESTOperator";
/// RocksDB 6 and 7 have this name, its first releases the other.
const BYTES_XOR: [&str; 2] = ["BytesXOR", "BytesXOROperator"];
const DELIMITER: &str = "delimiter";

impl MergeOperator for UInt64AddOperator {
    fn name(&self) -> &'static str {
        "UInt64AddOperator"
    }

    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let all = existing.into_iter().chain(operands.iter().copied());
        Some(all.map(number).fold(0, u64::wrapping_add).to_le_bytes().to_vec())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.full_merge(key, None, operands)
    }
}

impl Default for StringAppendOperator {
    /// With a comma.
    fn default() -> Self {
        Self { delimiter: ",".to_owned(), keeps_apart: false }
    }
}

impl StringAppendOperator {
    /// With `delimiter` between two strings, which may be empty. Default `,`.
    ///
    /// # Errors
    /// `InvalidArgument`: an OPTIONS file cannot carry it, as it has one of `;{}=`, or blanks at an end.
    pub fn new(delimiter: impl Into<String>) -> Result<Self> {
        let delimiter = delimiter.into();
        if delimiter.contains([';', '{', '}', '=']) || delimiter.trim() != delimiter {
            let reason =
                format!("the delimiter {delimiter:?} has what an OPTIONS file cannot carry: one of ;{{}}=, or a blank");
            return Err(Error::invalid_argument(reason));
        }
        Ok(Self { delimiter, keeps_apart: false })
    }
}

impl MergeOperator for StringAppendOperator {
    fn name(&self) -> &'static str {
        if self.keeps_apart { STRING_APPEND_APART } else { STRING_APPEND }
    }

    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let all: Vec<_> = existing.into_iter().chain(operands.iter().copied()).collect();
        Some(all.join(self.delimiter.as_bytes()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        if self.keeps_apart { None } else { self.full_merge(key, None, operands) }
    }

    fn option_text(&self) -> String {
        format!("{{id={};{DELIMITER}={};}}", self.name(), self.delimiter)
    }
}

impl MergeOperator for MaxOperator {
    fn name(&self) -> &'static str {
        "MaxOperator"
    }

    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        existing.into_iter().chain(operands.iter().copied()).max().map(<[u8]>::to_vec)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.full_merge(key, None, operands)
    }
}

impl MergeOperator for BytesXorOperator {
    fn name(&self) -> &'static str {
        BYTES_XOR[0]
    }

    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let mut sum = existing.unwrap_or_default().to_vec();
        for operand in operands {
            let (shared, rest) = operand.split_at(operand.len().min(sum.len()));
            sum.iter_mut().zip(shared).for_each(|(sum, byte)| *sum ^= byte);
            sum.extend_from_slice(rest);
        }
        Some(sum)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.full_merge(key, None, operands)
    }
}

impl MergeOperator for PutOperator {
    fn name(&self) -> &'static str {
        "PutOperator"
    }

    fn full_merge(&self, _key: &[u8], _existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|last| last.to_vec())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.full_merge(key, None, operands)
    }
}

/// The operator that an OPTIONS file calls `text`: one of `given`, else one of RocksDB's own; `None` if it says that there is none, or nobody has it.
pub(crate) fn named(text: &str, given: &[Operator]) -> Option<Operator> {
    let said = Said::of(text);
    if let Some(given) = given.iter().find(|given| given.name() == said.id) {
        return Some(given.clone());
    }
    let delimiter = || StringAppendOperator::new(said.options.get(DELIMITER).copied().unwrap_or(",")).ok();
    Some(match said.id {
        "UInt64AddOperator" | "uint64add" => Arc::new(UInt64AddOperator),
        STRING_APPEND | "stringappend" => Arc::new(delimiter()?),
        STRING_APPEND_APART | "stringappendtest" => {
            Arc::new(StringAppendOperator { keeps_apart: true, ..delimiter()? })
        }
        "MaxOperator" | "max" => Arc::new(MaxOperator),
        "bytesxor" => Arc::new(BytesXorOperator),
        id if BYTES_XOR.contains(&id) => Arc::new(BytesXorOperator),
        "PutOperator" | "put" | "put_v1" => Arc::new(PutOperator),
        _ => return None,
    })
}

/// Whether `text` of an OPTIONS file says what `operator` would have it say, however it says so.
pub(crate) fn is_said(text: &str, operator: &dyn MergeOperator) -> bool {
    let wanted = operator.option_text();
    // A name alone may mean an operator with options.
    let in_full = named(text, &[]).map(|named| named.option_text());
    Said::of(in_full.as_deref().unwrap_or(text)) == Said::of(&wanted)
}

/// `NAME`, or `{id=NAME;option=value;}`.
#[derive(Debug, PartialEq, Eq)]
struct Said<'a> {
    id: &'a str,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Said<'a> {
    fn of(text: &'a str) -> Self {
        let text = text.trim();
        let within = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        let mut said = Self { id: "", options: BTreeMap::new() };
        for part in within.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("id", id)) => said.id = id.trim(),
                Some((option, value)) => _ = said.options.insert(option.trim(), value.trim()),
                None => said.id = part,
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rocksdbs_operators_do_as_they_do_there() {
        let two: u64 = 2;
        let three: u64 = 3;
        let merged = UInt64AddOperator.full_merge(b"k", Some(&two.to_le_bytes()), &[&three.to_le_bytes(), b"odd"]);
        assert_eq!(merged.as_deref(), Some(&5u64.to_le_bytes()[..]));
        let merged = UInt64AddOperator.partial_merge(b"k", &[&u64::MAX.to_le_bytes(), &three.to_le_bytes()]);
        assert_eq!(merged.as_deref(), Some(&2u64.to_le_bytes()[..]));
        let append = StringAppendOperator::new(" | ".trim()).unwrap();
        assert_eq!(append.full_merge(b"k", None, &[b"a", b"", b"b"]).as_deref(), Some(&b"a||b"[..]));
        assert_eq!(append.full_merge(b"k", Some(b""), &[b"a"]).as_deref(), Some(&b"|a"[..]));
        assert_eq!(MaxOperator.full_merge(b"k", Some(b"b"), &[b"aa", b"ba"]).as_deref(), Some(&b"ba"[..]));
        let merged = BytesXorOperator.full_merge(b"k", Some(&[1, 2]), &[&[3], &[1, 1, 9]]);
        assert_eq!(merged, Some(vec![3, 3, 9]));
        assert_eq!(PutOperator.full_merge(b"k", Some(b"x"), &[b"a", b"b"]).as_deref(), Some(&b"b"[..]));
    }

    /// Goal: an operand that stands for several does to a value what they do.
    #[test]
    fn operands_may_be_merged_ahead() {
        let known = ["uint64add", "stringappend", "{id=StringAppendOperator;delimiter=--;}", "max", "bytesxor", "put"];
        let operands: [&[u8]; 4] = [b"12345678", b"abc", b"", b"87654321"];
        for operator in known.map(|name| named(name, &[]).unwrap()) {
            for existing in [None, Some(&b"existing"[..])] {
                let one = operator.full_merge(b"k", existing, &operands).unwrap();
                for from in 0..3 {
                    for to in from + 2..=4 {
                        let merged = operator.partial_merge(b"k", &operands[from..to]).unwrap();
                        let mut fewer = operands.to_vec();
                        fewer.splice(from..to, [&merged[..]]);
                        assert_eq!(
                            operator.full_merge(b"k", existing, &fewer).unwrap(),
                            one,
                            "{operator:?} {from}..{to}"
                        );
                    }
                }
            }
        }
        assert_eq!(named("stringappendtest", &[]).unwrap().partial_merge(b"k", &operands), None);
    }

    #[test]
    fn an_options_file_names_operators_in_several_ways() {
        for (text, wanted) in [
            ("UInt64AddOperator", "UInt64AddOperator"),
            ("{id=UInt64AddOperator;}", "UInt64AddOperator"),
            ("stringappend", "{id=StringAppendOperator;delimiter=,;}"),
            ("{id=StringAppendOperator;delimiter=|;}", "{id=StringAppendOperator;delimiter=|;}"),
            ("{delimiter=;id=StringAppendTESTOperator}", "{id=StringAppendTESTOperator;delimiter=;}"),
            ("BytesXOROperator", "BytesXOR"),
            ("put_v1", "PutOperator"),
        ] {
            let operator = named(text, &[]).unwrap();
            assert_eq!(operator.option_text(), wanted);
            assert!(is_said(text, &*operator) && is_said(wanted, &*operator), "{text}");
        }
        for text in ["nullptr", "", "{}", "{;;=}", "a.program.of.its.own", "{id=StringAppendOperator;delimiter={;}"] {
            assert!(named(text, &[]).is_none(), "{text}");
        }
        assert!(!is_said("stringappend", &StringAppendOperator::new("|").unwrap()));
        assert!(!is_said("nullptr", &MaxOperator));
        for delimiter in [";", "{", " ", "a ", "="] {
            assert!(StringAppendOperator::new(delimiter).is_err(), "{delimiter}");
        }
    }
}
