//! The smallest files: the one that names the manifest, the one that names the store, and marks, whose name is all they say.

use std::path::Path;

use esker_format::DecodeError;
use esker_format::file_name::FileName;
use esker_format::raft::closed::Closed;

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

/// Prints where a Raft log ended when it was closed.
pub(crate) fn closed(source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    match Closed::decode(&source.read(0, BYTES_MAX)?) {
        Ok(Closed { append, rewrite }) => report.note(
            0,
            "closed",
            vec![
                Field::plain("append_file", append.sequence),
                Field::plain("append_bytes", append.bytes),
                Field::plain("rewrite_file", rewrite.sequence),
                Field::plain("rewrite_bytes", rewrite.bytes),
            ],
        ),
        Err(error) => report.damage(0, &error),
    }
}

/// Prints that it is there.
pub(crate) fn mark(path: &Path, source: &Source, report: &mut Report<'_>) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    report.note(0, "mark", vec![Field::bytes("name", name), Field::plain("bytes", source.bytes)])
}
