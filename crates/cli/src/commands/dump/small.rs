//! The smallest files: the one that names the manifest, the one that names the store, and marks, whose name is all they say.

use std::path::Path;

use esker_format::DecodeError;
use esker_format::file_name::FileName;

use super::report::{Field, Report};
use super::source::Source;
use crate::failure::Failure;

/// More is looked at of none of them.
const BYTES_MAX: usize = 4096;

/// Prints which manifest counts.
pub(crate) fn current(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let bytes = source.read(0, BYTES_MAX)?;
    let name = std::str::from_utf8(&bytes).ok().and_then(|text| text.strip_suffix('\n'));
    match name.filter(|name| matches!(FileName::parse(name), Some(FileName::Manifest(_)))) {
        Some(name) => report.note(0, "current", vec![Field::quoted("manifest", name)]),
        None => report.damage(0, &DecodeError::corrupt("manifest", 0, "is not the name of a manifest with a newline")),
    }
}

/// Prints the store's id.
pub(crate) fn identity(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let bytes = source.read(0, BYTES_MAX)?;
    report.note(0, "identity", vec![Field::bytes("db_id", bytes.trim_ascii_end())])
}

/// Prints that it is there.
pub(crate) fn mark(path: &Path, source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    report.note(0, "mark", vec![Field::bytes("name", name), Field::plain("bytes", source.bytes)])
}
