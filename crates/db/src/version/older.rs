//! Versions that came before the present one, as far as somebody may still hold them. Model-checked in `tests/view_model.rs`.

use std::sync::{Arc, Weak};

use crate::sync::Mutex;

/// In the order in which they were replaced.
#[derive(Debug)]
pub(crate) struct Older<V>(Mutex<Vec<Weak<V>>>);

impl<V> Default for Older<V> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<V> Older<V> {
    /// Says that another version comes after `version`. Called once the view with that one is replaced, before anybody may ask:
    /// whoever read the old view without counting has been counted by then.
    pub(crate) fn note(&self, version: &Arc<V>) {
        let mut older = self.0.lock();
        older.retain(|held| held.strong_count() > 0);
        older.push(Arc::downgrade(version));
    }

    /// Whether somebody still reads a version from before `version`, which is the present one or was when it was taken.
    pub(crate) fn is_held_before(&self, version: &Arc<V>) -> bool {
        let mut older = self.0.lock();
        older.retain(|held| held.strong_count() > 0);
        // In the order in which they were replaced: all before it are older, those from it on are not.
        older.first().is_some_and(|first| first.as_ptr() != Arc::as_ptr(version))
    }
}
