//! The orders of keys that are known by their names.

use esker_format::rocksdb::order::{BytewiseComparator, Order, ReverseBytewiseComparator};

use super::{FamilyOptions, Options};
use crate::{Error, ErrorKind, Result};

/// Those of the program, and RocksDB's own.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    known: Vec<Order>,
    /// Whether any other will do, too.
    takes_others: bool,
}

impl Orders {
    /// All that `options` name.
    pub(crate) fn of(options: &Options) -> Self {
        let of_families = options.families.values().map(|family| family.comparator);
        let given = options.comparators.iter().copied().chain(of_families).map(Order::new);
        Self { known: given.chain(Self::of_rocksdb()).collect(), takes_others: false }
    }

    /// RocksDB's own, and whatever a file says: for who checks files of which nobody has told the order.
    pub(crate) fn any() -> Self {
        Self { known: Self::of_rocksdb().into(), takes_others: true }
    }

    fn of_rocksdb() -> [Order; 2] {
        [Order::new(&BytewiseComparator), Order::new(&ReverseBytewiseComparator)]
    }

    /// The order of that name, and whether it is known, or is only one that takes its place. Files that name none are older than the name.
    ///
    /// # Errors
    /// `UnsupportedFormat` if nobody has it.
    pub(crate) fn find(&self, name: &str) -> Result<(Order, bool)> {
        let found =
            if name.is_empty() { Some(&Order::BYTEWISE) } else { self.known.iter().find(|order| order.name() == name) };
        match found {
            Some(order) => Ok((*order, true)),
            None if self.takes_others => Ok((Order::BYTEWISE, false)),
            None => {
                let reason = format!(
                    "keys are ordered by {name:?}, which Esker does not have; name it in Options::comparators, or in \
                     FamilyOptions::comparator"
                );
                Err(Error::new(ErrorKind::UnsupportedFormat, reason))
            }
        }
    }

    /// The order of that name.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn named(&self, name: &str) -> Result<Order> {
        self.find(name).map(|(order, _)| order)
    }
}

impl From<Order> for Orders {
    /// That one alone.
    fn from(order: Order) -> Self {
        Self { known: vec![order], takes_others: false }
    }
}

impl FamilyOptions {
    /// Of its keys.
    pub(crate) fn order(&self) -> Order {
        Order::new(self.comparator)
    }
}
