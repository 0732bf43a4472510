//! Opens the data files that a manifest names.

use std::path::Path;
use std::sync::Arc;

use esker_env::Env;
use esker_format::DecodeErrorKind;
use esker_format::cask::FileName;
use esker_format::cask::data_file::{DataFileHeader, HEADER_BYTES};
use esker_format::cask::manifest::{File, FileState, Manifest};

use crate::file::{DataFile, Identity};
use crate::{Error, Result};

/// A data file of a store that is being opened.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) data: Arc<DataFile>,
    pub(crate) state: FileState,
}

pub(crate) fn open_all(env: &Env, dir: &Path, manifest: &Manifest, is_read_only: bool) -> Result<Vec<Opened>> {
    manifest.files.iter().map(|file| open(env, dir, file, is_read_only)).collect()
}

fn open(env: &Env, dir: &Path, file: &File, is_read_only: bool) -> Result<Opened> {
    let path = dir.join(FileName::Data(file.number).name());
    let reader = env.files.open(&path).map_err(|error| {
        if error.kind() != std::io::ErrorKind::NotFound {
            return error.into();
        }
        Error::corruption(&path, 0, "a data file of the store is missing; restore it, or run a repair")
            .with_source(error)
    })?;
    let len = reader.len()?;
    let wanted = match file.state {
        FileState::Open { durable_bytes } => durable_bytes.max(HEADER_BYTES as u64),
        FileState::Sealed { data_bytes, .. } => data_bytes,
    };
    if len < wanted || wanted < HEADER_BYTES as u64 {
        let reason = format!("a data file has {len} bytes, {wanted} were in it; restore it, or run a repair");
        return Err(Error::corruption(&path, len, reason));
    }
    let identity = Identity { number: file.number, salt: file.salt, clean_as_of: file.clean_as_of };
    let data = DataFile::new(identity, path, reader, None);
    // One that somebody else writes may be cut to its last record any time, and who touches what is mapped behind that dies of it.
    if !is_read_only || !file.state.is_open() {
        data.map();
    }
    check_head(&data, file, len)?;
    if !file.state.is_open() {
        data.set_end(wanted);
        data.mark_sealed();
    } else {
        data.set_end(len);
    }
    Ok(Opened { data: Arc::new(data), state: file.state })
}

/// The head says what the manifest says too. One that is damaged is damage of no record; another file's is another matter.
fn check_head(data: &DataFile, file: &File, len: u64) -> Result<()> {
    data.set_end(len);
    let raw = data.bytes(0..HEADER_BYTES as u64)?;
    match DataFileHeader::decode(&raw) {
        Ok(head) if head.number != file.number || head.salt != file.salt => Err(Error::corruption(
            &data.path,
            0,
            "this is another data file than the manifest names; run a repair, which goes by what is in the files",
        )),
        Ok(_) => Ok(()),
        // Its checksum holds: what a newer version means by its records is not known here.
        Err(error) if error.kind == DecodeErrorKind::Unsupported => {
            Err(Error::decode(&data.path, 0, "reading the head of a data file", error))
        }
        Err(_) => {
            data.mark_damaged();
            Ok(())
        }
    }
}
