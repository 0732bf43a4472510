//! `esker import STORE --jsonl FILE --key FIELD`, `esker import STORE --entries FILE`

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use esker::{Error, ErrorKind};
use serde_json::json;
use serde_json::value::RawValue;

use super::Import;
use super::loader::{Loaded, Loader, stopped};
use crate::Answer;
use crate::encoding::from_hex;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;
use crate::sizes::{Bytes, Count, plural, rate};

/// Fewer system calls than lines; and of a line this much at a time, once there is memory for it.
const BUFFER_BYTES: usize = 1 << 20;
/// Longest value that a store takes.
const VALUE_BYTES_MAX: u64 = esker_format::limits::VALUE_BYTES_MAX as u64;
/// Two digits a byte, and what stands around them.
const ENTRY_BYTES_MAX: u64 = 2 * (VALUE_BYTES_MAX + esker_format::limits::KEY_BYTES_MAX as u64) + 4096;

/// What each line is.
pub(crate) enum Form<'a> {
    /// The value, an object, of which a field is the key.
    Object { field: &'a str },
    /// Key and value in hexadecimal, as `esker scan --json` prints them.
    Entry,
}

impl Form<'_> {
    fn line_bytes_max(&self) -> u64 {
        match self {
            Self::Object { .. } => VALUE_BYTES_MAX,
            Self::Entry => ENTRY_BYTES_MAX,
        }
    }

    /// What the line says, or why it says nothing.
    fn entry<'l>(&self, line: &'l [u8]) -> Result<Entry<'l>, String> {
        match self {
            Self::Object { field } => {
                Ok(Entry { key: key_of(line, field)?.into_bytes(), value: Cow::Borrowed(line), expires_at: None })
            }
            Self::Entry => {
                let object = object_of(line)?;
                let value = Cow::Owned(bytes_of(&object, "value_hex")?);
                Ok(Entry { key: bytes_of(&object, "key_hex")?, value, expires_at: time_of(&object, "expires_at")? })
            }
        }
    }
}

struct Entry<'l> {
    key: Vec<u8>,
    value: Cow<'l, [u8]>,
    /// In seconds since 1970.
    expires_at: Option<u64>,
}

impl Entry<'_> {
    /// For how long from now on, if that has an end.
    fn ttl(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.expires_at.map(|at| Duration::from_secs(at.saturating_sub(now)))
    }
}

/// Imports the lines of `file` up to the first that cannot be.
pub(crate) fn import(command: &Import, file: &Path, form: &Form<'_>, out: &mut Output) -> Result<Answer, Failure> {
    let name = if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() };
    let (source, total_bytes): (Box<dyn Read>, _) = if file.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), None)
    } else {
        let opened = File::open(file).map_err(|error| Failure::io("reading", file, &error))?;
        let metadata = opened.metadata().map_err(|error| Failure::io("reading", file, &error))?;
        if metadata.is_dir() {
            // It opens, and only reading it fails, when the store is there.
            return Err(Failure::io("reading", file, &io::ErrorKind::IsADirectory.into()));
        }
        (Box::new(opened), metadata.is_file().then_some(metadata.len()))
    };
    let progress = match total_bytes {
        Some(bytes) => Progress::begin("importing", bytes),
        None => Progress::begin_endless("importing"),
    };
    let target = command.open()?;
    let begin = Instant::now();
    let mut loader = command.loader(&target)?;
    let prefix = command.prefix.as_bytes();
    let stop = load(BufReader::with_capacity(BUFFER_BYTES, source), prefix, form, &mut loader, &progress);
    if let Err(Stop::Store(error)) = stop {
        return Err(loader.stopped(&error));
    }
    // What came before a bad line is imported all the same, unless all or nothing is.
    let is_whole = stop.is_ok() || !loader.is_sorted();
    let loaded = if is_whole {
        loader.finish()?
    } else {
        // While the store is open: it takes away what was written.
        drop(loader);
        Loaded::default()
    };
    target.settle().map_err(|error| stopped(&error, loaded.entries))?;
    let time = begin.elapsed();
    drop(progress);
    let cost = target.close()?;
    if let Err(Stop::Line(line, reason)) = stop {
        let before = match loaded.entries {
            0 => "nothing is imported".to_owned(),
            1 => "the entry before it is imported".to_owned(),
            entries => format!("the {} entries before it are imported", Count(entries)),
        };
        return Err(Failure::new(format_args!("{name} line {line}: {reason}; {before}")));
    }
    let Loaded { entries, bytes } = loaded;
    if command.json {
        out.json(&json!({
            "keys": entries,
            "bytes": bytes,
            "seconds": time.as_secs_f64(),
            "bytes_per_second": rate(bytes, time),
            "bytes_on_disk": cost.bytes_on_disk,
            "write_amplification": cost.write_amplification,
        }))?;
    } else {
        let (keys, seconds, speed) = (plural(entries, "key", "keys"), time.as_secs_f64(), Bytes(rate(bytes, time)));
        out.line(format_args!("imported   {keys}, {} in {seconds:.1} s ({speed}/s)", Bytes(bytes)))?;
        out.line(format_args!("on disk    {}", Bytes(cost.bytes_on_disk)))?;
    }
    Ok(Answer::Yes)
}

/// Why not all lines are imported.
enum Stop {
    /// The line of this number cannot be.
    Line(u64, String),
    /// The store takes no more; how much of what it was given it has is for the next to open it to find out.
    Store(Error),
}

/// Line after line. Empty ones are passed over.
fn load(
    mut source: impl BufRead,
    prefix: &[u8],
    form: &Form<'_>,
    loader: &mut Loader<'_>,
    progress: &Progress,
) -> Result<(), Stop> {
    let (mut raw, bytes_max) = (Vec::new(), form.line_bytes_max());
    let mut key = prefix.to_vec();
    for number in 1.. {
        raw.clear();
        let read = read_line(&mut source, bytes_max + 1, &mut raw);
        let read = read.map_err(|error| Stop::Line(number, error.to_string()))?;
        if read == 0 {
            return Ok(());
        }
        progress.advance(read);
        let line = raw.strip_suffix(b"\n").unwrap_or(&raw);
        if line.trim_ascii().is_empty() {
            continue;
        }
        if line.len() as u64 > bytes_max {
            let reason = format!("is longer than the {bytes_max} bytes of the longest value");
            return Err(Stop::Line(number, reason));
        }
        let entry = form.entry(line).map_err(|reason| Stop::Line(number, reason))?;
        let ttl = entry.ttl();
        if ttl.is_some_and(|ttl| ttl.is_zero()) {
            continue;
        }
        key.truncate(prefix.len());
        key.extend_from_slice(&entry.key);
        let put = loader.put(&key, &entry.value, ttl).and_then(|()| loader.write_if_full());
        put.map_err(|error| match error.kind() {
            ErrorKind::InvalidArgument => Stop::Line(number, error.reason().to_owned()),
            _ => Stop::Store(error),
        })?;
    }
    Ok(())
}

/// Adds the next line to `line`, with its end, but no more than `bytes_max` bytes; returns how many.
///
/// # Errors
/// `OutOfMemory` if there is no room for the line. What the system said.
fn read_line(source: &mut impl BufRead, bytes_max: u64, line: &mut Vec<u8>) -> io::Result<u64> {
    let mut done = 0;
    while done < bytes_max {
        let piece_bytes = (bytes_max - done).min(BUFFER_BYTES as u64);
        line.try_reserve(piece_bytes as usize)?;
        let read = source.by_ref().take(piece_bytes).read_until(b'\n', line)? as u64;
        done += read;
        if read < piece_bytes || line.last() == Some(&b'\n') {
            break;
        }
    }
    Ok(done)
}

/// The text of the string or number that `field` of the object in `line` is.
fn key_of(line: &[u8], field: &str) -> Result<String, String> {
    let object = object_of(line)?;
    let value = field_of(&object, field)?;
    match value.as_bytes().first() {
        Some(b'"') => serde_json::from_str(value).map_err(|error| format!("field {field:?}: {error}")),
        Some(b'-' | b'0'..=b'9') => Ok(value.to_owned()),
        _ => Err(format!("field {field:?} is neither a string nor a number")),
    }
}

/// The bytes that the string in `field` says in hexadecimal.
fn bytes_of(object: &HashMap<String, &RawValue>, field: &str) -> Result<Vec<u8>, String> {
    let value = field_of(object, field)?;
    let read = match value.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        // What stands for itself is not copied.
        Some(text) if !text.contains('\\') => from_hex(text.as_bytes()).map_err(|error| error.to_string()),
        _ => serde_json::from_str(value)
            .map_err(|error| error.to_string())
            .and_then(|text: String| from_hex(text.as_bytes()).map_err(|error| error.to_string())),
    };
    read.map_err(|reason| format!("field {field:?}: {reason}"))
}

/// The time that the number in `field` says, if it is there.
fn time_of(object: &HashMap<String, &RawValue>, field: &str) -> Result<Option<u64>, String> {
    let Some(value) = object.get(field) else { return Ok(None) };
    serde_json::from_str(value.get()).map_err(|error| format!("field {field:?}: {error}"))
}

fn field_of<'l>(object: &HashMap<String, &'l RawValue>, field: &str) -> Result<&'l str, String> {
    object.get(field).map(|value| value.get()).ok_or_else(|| format!("there is no field {field:?}"))
}

fn object_of(line: &[u8]) -> Result<HashMap<String, &RawValue>, String> {
    serde_json::from_slice(line).map_err(|error| {
        // The line's number is known better here than there.
        let text = error.to_string();
        let reason = text.split(" at line ").next().unwrap_or(&text);
        format!("not a JSON object: {reason} (column {})", error.column())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_hexadecimal_however_the_digits_are_spelt() {
        let read = |line: &str| bytes_of(&object_of(line.as_bytes()).unwrap(), "x");
        assert_eq!(read(r#"{"x": "6162"}"#).unwrap(), b"ab");
        assert_eq!(read(r#"{"x": "6\u0031"}"#).unwrap(), b"a");
        assert_eq!(read(r#"{"x": ""}"#).unwrap(), b"");
        for line in [r#"{"x": "6"}"#, r#"{"x": 61}"#, r#"{"x": null}"#, r#"{"y": "61"}"#, r#"{"x": "6\""}"#] {
            assert!(read(line).is_err_and(|reason| reason.contains("\"x\"")), "{line}");
        }
        let long = format!(r#"{{"x": "{}"}}"#, "no".repeat(9_000));
        assert!(read(&long).is_err_and(|reason| reason.len() < 300));
    }

    #[test]
    fn a_line_is_read_up_to_its_end_or_the_most_that_is_asked_for() {
        let long = vec![b'x'; BUFFER_BYTES + 7];
        let text = [&long[..], b"\n\nend"].concat();
        let read = |bytes_max: u64| {
            let (mut source, mut lines) = (BufReader::with_capacity(1000, &text[..]), Vec::new());
            loop {
                let mut line = Vec::new();
                let bytes = read_line(&mut source, bytes_max, &mut line).unwrap();
                assert_eq!(bytes, line.len() as u64);
                match bytes {
                    0 => return lines,
                    _ => lines.push(line),
                }
            }
        };
        assert_eq!(read(u64::MAX), text.split_inclusive(|&byte| byte == b'\n').collect::<Vec<_>>());
        assert_eq!(read(BUFFER_BYTES as u64)[..2], [&long[7..], b"xxxxxxx\n"]);
    }

    #[test]
    fn keys_are_strings_or_numbers_as_they_are_spelt() {
        assert_eq!(key_of(br#"{"id": "a\nb", "x": [1, {}]}"#, "id").unwrap(), "a\nb");
        assert_eq!(key_of(br#"{"id": 12345678901234567890123.50}"#, "id").unwrap(), "12345678901234567890123.50");
        assert_eq!(key_of(b" {\"id\":-0}\r", "id").unwrap(), "-0");
        for line in ["", "[]", "7", "{", r#"{"id": null}"#, r#"{"id": true}"#, r#"{"ID": "a"}"#, r#"{"id": "a"} x"#] {
            key_of(line.as_bytes(), "id").unwrap_err();
        }
        key_of(b"{\"id\": \"\xff\"}", "id").unwrap_err();
    }
}
