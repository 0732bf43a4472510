//! The original's batch.

use esker_format::cursor::Cursor;
use esker_format::raft::item::{COMMAND_CLEAN, COMMAND_COMPACT};
use esker_format::varint;
use esker_raft_log::{EntryCodec, ErrorKind};
use protobuf::{Message, ProtobufResult};

use crate::error::Carried;
use crate::{Error, Result};

/// How the index of an entry is found.
pub trait MessageExt: Send + Sync {
    /// The entry.
    type Entry: Message + Clone + PartialEq;

    /// Its index.
    fn index(e: &Self::Entry) -> u64;
}

/// Reads a message, with what every protobuf 2 has.
pub(crate) fn parse<S: Message>(bytes: &[u8]) -> ProtobufResult<S> {
    let mut message = S::new();
    message.merge_from_bytes(bytes)?;
    message.check_initialized()?;
    Ok(message)
}

/// A type of messages, as Esker's log wants it.
pub(crate) struct Codec<M>(std::marker::PhantomData<M>);

impl<M: MessageExt> EntryCodec for Codec<M> {
    type Entry = M::Entry;

    fn index(entry: &M::Entry) -> u64 {
        M::index(entry)
    }

    fn encode(entry: &M::Entry, out: &mut Vec<u8>) -> esker_raft_log::Result<()> {
        entry.write_to_vec(out).map_err(|error| Carried::into_error(error, ErrorKind::InvalidArgument))
    }

    fn decode(bytes: &[u8]) -> esker_raft_log::Result<M::Entry> {
        parse::<M::Entry>(bytes).map_err(|error| Carried::into_error(error, ErrorKind::Corruption))
    }
}

/// What is done to a group as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// It goes.
    Clean,
    /// Its entries before the index go.
    Compact {
        /// The first that stays.
        index: u64,
    },
}

impl Command {
    /// Appends it as it stands in files.
    pub fn encode(&self, vec: &mut Vec<u8>) {
        match *self {
            Self::Clean => vec.push(COMMAND_CLEAN),
            Self::Compact { index } => {
                vec.push(COMMAND_COMPACT);
                varint::put_u64(vec, index);
            }
        }
    }

    /// Reads what [`encode`](Self::encode) wrote, and goes on behind it; an error leaves `buf` as it was.
    ///
    /// # Errors
    /// [`Error::Corruption`] for another kind of command; [`Error::Codec`] if there is not all of it.
    pub fn decode(buf: &mut &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(buf);
        let command = match cursor.u8("command")? {
            COMMAND_CLEAN => Self::Clean,
            COMMAND_COMPACT => Self::Compact { index: cursor.varint64("compact index")? },
            other => return Err(Error::Corruption(format!("Unrecognized command type: {other}"))),
        };
        *buf = cursor.rest();
        Ok(command)
    }
}

/// A batch of changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogBatch(pub(crate) esker_raft_log::LogBatch);

impl LogBatch {
    /// An empty batch.
    pub fn with_capacity(_cap: usize) -> Self {
        Self(esker_raft_log::LogBatch::with_capacity(4096))
    }

    /// Moves everything from `rhs` behind what is here.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn merge(&mut self, rhs: &mut Self) -> Result<()> {
        self.0.merge(&mut rhs.0).map_err(|_| Error::Full)
    }

    /// Adds entries with consecutive indexes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if they are not; [`Error::Full`] if the batch would exceed 2 GiB; [`Error::Protobuf`] for one that cannot be
    /// encoded. The batch is as it was then.
    pub fn add_entries<M: MessageExt>(&mut self, region_id: u64, entries: &[M::Entry]) -> Result<()> {
        Ok(self.0.add::<Codec<M>>(region_id, entries)?)
    }

    /// Adds a command.
    pub fn add_command(&mut self, region_id: u64, cmd: Command) {
        match cmd {
            Command::Clean => self.0.clean(region_id),
            Command::Compact { index } => self.0.compact(region_id, index),
        }
    }

    /// Takes a key's value away.
    pub fn delete(&mut self, region_id: u64, key: Vec<u8>) {
        self.0.delete(region_id, &key);
    }

    /// Gives a key a message.
    ///
    /// # Errors
    /// As [`put`](Self::put), and if the message cannot be encoded.
    pub fn put_message<S: Message>(&mut self, region_id: u64, key: Vec<u8>, s: &S) -> Result<()> {
        let value = s.write_to_bytes()?;
        self.put(region_id, key, value)
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the one key that is reserved.
    pub fn put(&mut self, region_id: u64, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        Ok(self.0.put(region_id, &key, &value)?)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes it takes if it does not compress, about.
    pub fn approximate_size(&self) -> usize {
        self.0.approximate_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let commands = [Command::Compact { index: 300 }, Command::Clean, Command::Compact { index: u64::MAX }];
        commands.iter().for_each(|command| command.encode(&mut bytes));
        assert_eq!(bytes[..4], [2, 0xac, 2, 1]);
        let mut rest = &bytes[..];
        commands.iter().for_each(|command| assert_eq!(Command::decode(&mut rest).unwrap(), *command));
        assert!(rest.is_empty() && matches!(Command::decode(&mut rest), Err(Error::Codec(_))));
        for (bytes, is_short) in [(&[3][..], false), (&[0], false), (&[2], true), (&[2, 0x80], true)] {
            let mut rest = bytes;
            let error = Command::decode(&mut rest).unwrap_err();
            assert_eq!((matches!(error, Error::Codec(_)), rest), (is_short, bytes), "{error}");
        }
    }
}
