//! What a dump prints: lines with offsets, or objects with the same in it.

use std::fmt;

use esker_format::DecodeError;
use serde_json::{Map, Value, json};

use crate::encoding::{escaped, hex, shortened};
use crate::failure::{Failure, one_line};
use crate::output::Output;

/// Keys longer than this are shortened for people.
const KEY_BYTES_SHOWN: usize = 256;
/// Values and other bytes longer than this are.
const VALUE_BYTES_SHOWN: usize = 64;

/// Where entries, notes and damage go.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    out: &'a mut Output,
    json: bool,
    keys_only: bool,
    left: u64,
    damages: u64,
    /// The file, where there are several.
    within: Option<String>,
}

/// One fact: its name, and how it reads in text and as a value.
pub(crate) struct Field {
    name: &'static str,
    text: String,
    value: FieldValue,
}

/// In an object.
enum FieldValue {
    Plain(Value),
    /// Under the name with `_hex` behind it.
    Hex(String),
}

impl Field {
    /// A number, or a word.
    pub(crate) fn plain(name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let text = match &value {
            Value::String(text) => one_line(text),
            other => other.to_string(),
        };
        Self { name, text, value: FieldValue::Plain(value) }
    }

    /// Words of a user: quoted, and text in an object too.
    pub(crate) fn quoted(name: &'static str, text: &str) -> Self {
        Self { name, text: format!("\"{}\"", escaped(text.as_bytes())), value: FieldValue::Plain(text.into()) }
    }

    /// Bytes of a user.
    pub(crate) fn bytes(name: &'static str, bytes: &[u8]) -> Self {
        Self::shortened(name, bytes, VALUE_BYTES_SHOWN)
    }

    fn shortened(name: &'static str, bytes: &[u8], limit: usize) -> Self {
        Self { name, text: format!("\"{}\"", shortened(bytes, limit)), value: FieldValue::Hex(hex(bytes)) }
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(out: &'a mut Output, json: bool, keys_only: bool, limit: Option<u64>) -> Self {
        Self { out, json, keys_only, left: limit.unwrap_or(u64::MAX), damages: 0, within: None }
    }

    /// What follows is of that file: a line for people, a field of every object.
    pub(crate) fn begin_file(&mut self, name: &str) -> Result<(), Failure> {
        self.within = Some(name.to_owned());
        if self.json || self.keys_only { Ok(()) } else { self.out.line(one_line(name)) }
    }

    pub(crate) fn keys_only(&self) -> bool {
        self.keys_only
    }

    /// Whether there is nobody to tell more, or as much was told as was asked for.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0 || self.out.is_closed()
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damages > 0
    }

    /// An entry, of which no more than the limit are printed.
    pub(crate) fn entry(&mut self, offset: u64, what: &str, fields: Vec<Field>) -> Result<(), Failure> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        self.print(offset, what, &fields)
    }

    /// A key and what else is known of an entry; with `keys_only`, no more than the key. Its name is `key`.
    pub(crate) fn keyed(&mut self, offset: u64, what: &str, key: &[u8], fields: Vec<Field>) -> Result<(), Failure> {
        let mut all = vec![Field::shortened("key", key, KEY_BYTES_SHOWN)];
        if !self.keys_only {
            all.extend(fields);
        }
        self.entry(offset, what, all)
    }

    /// Something that is no entry: not printed with `keys_only`.
    pub(crate) fn note(&mut self, offset: u64, what: &str, fields: Vec<Field>) -> Result<(), Failure> {
        if self.keys_only || self.left == 0 {
            return Ok(());
        }
        self.print(offset, what, &fields)
    }

    /// Something is wrong. `error` counts from `base`.
    pub(crate) fn damage(&mut self, base: u64, error: &DecodeError) -> Result<(), Failure> {
        self.damages += 1;
        let offset = base.saturating_add(error.offset);
        let reason = format!("{}: {}", error.field, error.reason);
        if self.json {
            let mut object = json!({ "offset": offset, "what": "damage", "reason": reason });
            if let Some(file) = &self.within {
                object["file"] = file.as_str().into();
            }
            self.out.json(&object)
        } else {
            self.line(offset, format_args!("DAMAGE {}", one_line(&reason)))
        }
    }

    fn print(&mut self, offset: u64, what: &str, fields: &[Field]) -> Result<(), Failure> {
        if self.json {
            let mut object = Map::new();
            if let Some(file) = &self.within {
                object.insert("file".to_owned(), file.as_str().into());
            }
            object.insert("offset".to_owned(), offset.into());
            object.insert("what".to_owned(), what.into());
            for field in fields {
                match &field.value {
                    FieldValue::Plain(value) => object.insert(field.name.to_owned(), value.clone()),
                    FieldValue::Hex(hex) => object.insert(format!("{}_hex", field.name), hex.as_str().into()),
                };
            }
            return self.out.json(&Value::Object(object));
        }
        let mut text = what.to_owned();
        for field in fields {
            text.push_str(&format!(" {}={}", field.name, field.text));
        }
        self.line(offset, text)
    }

    fn line(&mut self, offset: u64, text: impl fmt::Display) -> Result<(), Failure> {
        self.out.line(format_args!("{offset:>10}  {text}"))
    }
}
