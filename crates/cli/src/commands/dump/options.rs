//! OPTIONS files: text already.

use esker_format::DecodeError;

use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// Prints sections and options with their offsets.
pub(crate) fn dump(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let bytes = source.read_small()?;
    let mut offset = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if report.is_over() {
            break;
        }
        print(offset, line.trim_ascii(), report)?;
        offset += line.len() as u64;
    }
    Ok(())
}

fn print(offset: u64, line: &[u8], report: &mut Report<'_>) -> Result<(), Failure> {
    let Ok(text) = std::str::from_utf8(line) else {
        return report.damage(offset, &DecodeError::corrupt("line", 0, "is not UTF-8"));
    };
    match text.bytes().next() {
        None | Some(b'#') => Ok(()),
        Some(b'[') if text.ends_with(']') => {
            report.note(offset, "section", vec![Field::quoted("name", text.trim_matches(['[', ']']))])
        }
        _ => match text.split_once('=') {
            Some((name, _)) if report.keys_only() => report.entry(offset, "option", vec![Field::plain("name", name)]),
            Some((name, value)) => {
                report.entry(offset, "option", vec![Field::plain("name", name), Field::quoted("value", value)])
            }
            None => report.damage(offset, &DecodeError::corrupt("line", 0, "is neither a section nor an option")),
        },
    }
}
