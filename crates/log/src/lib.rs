//! What all of Esker's append-only files share.
pub mod error;
pub use error::{Error, ErrorKind, Result};
