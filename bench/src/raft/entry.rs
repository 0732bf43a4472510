//! Entries as messages. Any message with a number and bytes would do; this one is a well-known type.

use protobuf::Message;
use protobuf::well_known_types::Any;

use crate::Result;

/// Reads and writes [`Any`] for both logs.
#[derive(Debug)]
pub(super) struct Codec;

pub(super) fn entry(index: u64, bytes: &[u8]) -> Any {
    let mut entry = Any::new();
    entry.type_url = index.to_string();
    entry.value = bytes.to_vec();
    entry
}

impl raft_engine::MessageExt for Codec {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        entry.type_url.parse().unwrap_or(0)
    }
}

impl esker::raft::EntryCodec for Codec {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        entry.type_url.parse().unwrap_or(0)
    }

    fn encode(entry: &Any, out: &mut Vec<u8>) -> esker::Result<()> {
        entry.write_to_vec(out).map_err(|error| esker::raft::Error::invalid_argument(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> esker::Result<Any> {
        Any::parse_from_bytes(bytes).map_err(|error| esker::raft::Error::invalid_argument(error.to_string()))
    }
}

/// Shows what was fetched.
pub(super) fn show_all(entries: &[Any], show: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
    for entry in entries {
        show(entry.type_url.parse()?, &entry.value);
    }
    Ok(())
}
