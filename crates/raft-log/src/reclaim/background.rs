//! The thread that purges by itself.

use std::time::Duration;

use crate::store::Store;

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
                let done = self.purge_all(&mut reclaim);
                self.note_purge(done);
            }
        }
    }
}
