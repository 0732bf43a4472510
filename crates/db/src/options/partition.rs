//! Which of several blob files a value goes to.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Result};

/// A program's choice of a blob file for each value that is separated as it is written
/// ([`FamilyOptions::blob_partition`](super::FamilyOptions::blob_partition)).
///
/// ```
/// # extern crate esker_db as esker;
/// use esker::{BlobPartition, FamilyOptions, Separation};
///
/// // Sessions die within the hour, pictures stay: apart, the files of the one go whole, and nobody moves the other.
/// let by_lifetime = BlobPartition::new(|key, _value| u8::from(key.starts_with(b"picture/")));
/// let options =
///     FamilyOptions { separation: Separation::AtWrite, blob_partition: Some(by_lifetime), ..FamilyOptions::default() };
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct BlobPartition(Arc<Choose>);

type Choose = dyn Fn(&[u8], &[u8]) -> u8 + Send + Sync;

impl BlobPartition {
    /// How many there may be: partitions are 0..16.
    pub const COUNT_MAX: u8 = 16;

    /// `choose` gets key and value and names the partition, 0..[`COUNT_MAX`](Self::COUNT_MAX); anything else fails the write with `InvalidArgument`.
    ///
    /// Called once for each value by the thread that writes it. It must not wait for a lock that somebody holds who writes:
    /// [`Db::update`](crate::Db::update) may call it while all who write wait. What it answers for a key may change at any time: nothing but the
    /// place of new values depends on it.
    pub fn new(choose: impl Fn(&[u8], &[u8]) -> u8 + Send + Sync + 'static) -> Self {
        Self(Arc::new(choose))
    }

    pub(crate) fn of(&self, key: &[u8], value: &[u8]) -> Result<u8> {
        match (self.0)(key, value) {
            partition @ 0..Self::COUNT_MAX => Ok(partition),
            partition => Err(Error::invalid_argument(format!(
                "blob_partition chose {partition} for a value of {} bytes; it must be less than {}",
                value.len(),
                Self::COUNT_MAX
            ))),
        }
    }
}

impl fmt::Debug for BlobPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobPartition(..)")
    }
}
