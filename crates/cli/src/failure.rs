//! Why a command could not be done: one line.

use std::fmt;
use std::path::Path;

use esker::Error;

/// A message for stderr. Prints on one line.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// `message` says what was being done, to what, and why it failed.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(one_line(&message.to_string()))
    }

    /// What the system said of a file that is no store's.
    pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::new(format_args!("{doing} {}: {error}", path.display()))
    }
}

/// Tells something that does not end the command.
pub(crate) fn warn(message: impl fmt::Display) {
    use std::io::Write;
    // Without a stderr there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "esker: {}", one_line(&message.to_string()));
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path as it stands in a line.
pub(crate) fn path_text(path: &Path) -> String {
    one_line(&path.display().to_string())
}

/// `text` without line breaks and other control characters, which a path may well have.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
