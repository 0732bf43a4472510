//! Whole files come in past log and memtable (W5 of [`room`](super::room)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::family::Family;

/// Bytes of files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub(crate) tables: u64,
    pub(crate) blobs: u64,
    /// What will be one or the other presently.
    pub(crate) promised: u64,
}

impl Sizes {
    pub(crate) fn all(&self) -> u64 {
        self.tables.saturating_add(self.blobs).saturating_add(self.promised)
    }
}

/// What comes into a family and is in none of its versions yet.
#[derive(Debug, Default)]
pub(crate) struct Coming {
    tables: AtomicU64,
    blobs: AtomicU64,
    promised: AtomicU64,
}

impl Coming {
    pub(crate) fn sizes(&self) -> Sizes {
        let [tables, blobs, promised] =
            [&self.tables, &self.blobs, &self.promised].map(|bytes| bytes.load(Ordering::Acquire));
        Sizes { tables, blobs, promised }
    }
}

/// The part of it that one call brings, until it is taken in or given up.
#[derive(Debug)]
pub(crate) struct Incoming {
    all: Arc<Coming>,
    own: Mutex<Sizes>,
}

impl Incoming {
    pub(crate) fn to(family: &Family) -> Self {
        Self { all: family.coming.clone(), own: Mutex::default() }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        *self.own.lock()
    }

    /// It takes up so much by now, or will presently.
    pub(crate) fn set(&self, sizes: Sizes) {
        let mut own = self.own.lock();
        let kinds = [
            (&self.all.tables, sizes.tables, own.tables),
            (&self.all.blobs, sizes.blobs, own.blobs),
            (&self.all.promised, sizes.promised, own.promised),
        ];
        for (all, now, before) in kinds {
            all.fetch_add(now, Ordering::AcqRel);
            all.fetch_sub(before, Ordering::AcqRel);
        }
        *own = sizes;
    }

    /// So much more, of tables.
    pub(crate) fn grow(&self, table_bytes: u64) {
        let before = self.sizes();
        self.set(Sizes { tables: before.tables.saturating_add(table_bytes), ..before });
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.set(Sizes::default());
    }
}
