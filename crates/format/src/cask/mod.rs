//! The files of Esker's hash engine: its own format, little-endian, every byte under a CRC.
//!
//! | room          | bytes                                                                     |
//! |---------------|---------------------------------------------------------------------------|
//! | [`file_name`] | what a name in a store's directory says                                   |
//! | [`data_file`] | the head of a data file                                                   |
//! | [`record`]    | what follows: keys and values                                             |
//! | [`hint`]      | the keys of a data file that changes no more, without their values        |
//! | [`manifest`]  | which files make up the store                                             |

pub mod data_file;
pub mod file_name;
pub mod hint;
pub mod manifest;
pub mod record;

pub use file_name::{FileName, FileNumber};

use crate::cursor::Cursor;
use crate::error::DecodeError;

/// Reads a magic: what the file should begin with.
fn check_magic(cursor: &mut Cursor<'_>, magic: [u8; 8]) -> Result<(), DecodeError> {
    let start = cursor.clone();
    if cursor.bytes("magic", magic.len())? != magic {
        return Err(start.corrupt("magic", "another than this format's"));
    }
    Ok(())
}

/// Reads the format's version. Where another one must be told from damage, it is asked for once the checksum holds, which lies at the same
/// place in every version.
fn check_version(cursor: &mut Cursor<'_>, version: u16) -> Result<(), DecodeError> {
    let at = cursor.offset();
    let found = cursor.u16("format version")?;
    if found != version {
        return Err(DecodeError::unsupported("format version", at, format!("version {found} is not known")));
    }
    Ok(())
}
