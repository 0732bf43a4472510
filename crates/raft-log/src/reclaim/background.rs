//! The thread that purges by itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::store::Store;
use crate::{Error, ErrorKind};

impl Store {
    /// Purges every `interval` until the log closes.
    pub(crate) fn purge_until_closed(&self, interval: Duration) {
        loop {
            let mut closing = self.closing.lock();
            if !*closing {
                self.wake.wait_for(&mut closing, interval);
            }
            if *closing {
                return;
            }
            drop(closing);
            if let Some(mut reclaim) = self.reclaim.try_lock() {
                reclaim.gives_way = Some(Default::default());
                // A listener's panic ends this purge, as an error does. It is called when the index has been told what was written.
                let done = catch_unwind(AssertUnwindSafe(|| self.purge_all(&mut reclaim)));
                reclaim.gives_way = None;
                let panicked = || Err(Error::new(ErrorKind::Io, "a purge panicked: a listener, most likely"));
                self.note_purge(done.unwrap_or_else(|_| panicked()));
            }
        }
    }
}
