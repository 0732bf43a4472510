//! Stores that keep memory of a limit, and are told when it is another one.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Something that keeps within the limit of a cache.
pub(crate) trait Follow: Send + Sync {
    /// The limit is another now.
    fn follow_limit(&self);
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Followers(Mutex<Vec<Weak<dyn Follow>>>);

impl Followers {
    pub(super) fn add(&self, follower: Weak<dyn Follow>) {
        let mut all = self.0.lock();
        all.retain(|follower| follower.strong_count() > 0);
        all.push(follower);
    }

    /// Tells those that are there, without a lock: they flush, and the last holder of a store does more than go.
    pub(super) fn tell(&self) {
        let all: Vec<Arc<dyn Follow>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|follower| follower.follow_limit());
    }
}

impl std::fmt::Debug for Followers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Followers").field(&self.0.lock().len()).finish()
    }
}
