//! What went wrong, for the caller to look at and to free.

use std::ffi::{CString, c_char};

use esker::Result;

use crate::memory::Out;

/// What the caller can do about a failure.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// One that has no number here yet; the message says which.
    Other = 0,
    /// The call was wrong and nothing changed. Mend the argument and call again.
    InvalidArgument = 1,
    /// Something named that must exist does not.
    NotFound = 2,
    /// Somebody else holds it, such as another process. Try again later.
    Busy = 3,
    /// A condition the call was made under no longer holds.
    Conflict = 4,
    /// Space or descriptors ran out and nothing changed. Free some and call again; reads and deletes go on.
    Exhausted = 5,
    /// Stored bytes are not what was written. Run `esker check`.
    Corruption = 6,
    /// Written by a newer version, or with a feature this one lacks. Nothing was touched.
    UnsupportedFormat = 7,
    /// A sync failed, so what is durable is unknown. Reads work; writes fail until the store is opened again.
    ReadOnly = 8,
    /// The store was closed.
    Closed = 9,
    /// The system refused; the message has its words.
    Io = 10,
}

impl From<esker::ErrorKind> for ErrorKind {
    fn from(kind: esker::ErrorKind) -> Self {
        match kind {
            esker::ErrorKind::InvalidArgument => Self::InvalidArgument,
            esker::ErrorKind::NotFound => Self::NotFound,
            esker::ErrorKind::Busy => Self::Busy,
            esker::ErrorKind::Conflict => Self::Conflict,
            esker::ErrorKind::Exhausted => Self::Exhausted,
            esker::ErrorKind::Corruption => Self::Corruption,
            esker::ErrorKind::UnsupportedFormat => Self::UnsupportedFormat,
            esker::ErrorKind::ReadOnly => Self::ReadOnly,
            esker::ErrorKind::Closed => Self::Closed,
            esker::ErrorKind::Io => Self::Io,
            _ => Self::Other,
        }
    }
}

/// What was being done, where, why it failed, and what can be done about it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: CString,
}

impl From<esker::Error> for Error {
    fn from(error: esker::Error) -> Self {
        // A path may hold anything but a zero, a reason what a caller passed.
        let message = error.to_string().replace('\0', "\\0");
        Self { kind: error.kind().into(), message: CString::new(message).unwrap_or_default() }
    }
}

/// What a call returns: NULL if it did what it should.
pub type Failure = Option<Box<Error>>;

pub(crate) fn attempt(call: impl FnOnce() -> Result<()>) -> Failure {
    call().err().map(|error| Box::new(error.into()))
}

/// The same with a result (I3).
pub(crate) fn give<T: Default>(out: Out<T>, call: impl FnOnce() -> Result<T>) -> Failure {
    match call() {
        Ok(value) => {
            out.put(value);
            None
        }
        Err(error) => {
            out.put(T::default());
            Some(Box::new(error.into()))
        }
    }
}

/// The same with an object.
pub(crate) fn hand_out<T>(out: Out<Option<Box<T>>>, call: impl FnOnce() -> Result<T>) -> Failure {
    give(out, || Ok(Some(Box::new(call()?))))
}

/// What can be done about it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_kind(error: &Error) -> ErrorKind {
    error.kind
}

/// All that is known, on one line of UTF-8, such as `not found: /data/store: there is no store; ...`. It lives as long as the error.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_message(error: &Error) -> *const c_char {
    error.message.as_ptr()
}

/// Frees an error; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_error_free(error: Failure) {
    drop(error);
}
