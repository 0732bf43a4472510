//! What the rooms under test lock, count and wait by.

pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use shuttle::sync::atomic;

/// The standard library's, as far as it is used: who comes while it is being filled waits, and fills it itself if that ended by a panic.
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// Whether somebody fills it.
    is_begun: Mutex<bool>,
    changed: Condvar,
}

/// Whoever fills it ends, in one way or the other.
struct Filling<'a, T>(&'a OnceLock<T>);

impl<T> Drop for Filling<'_, T> {
    fn drop(&mut self) {
        *self.0.is_begun.lock() = false;
        self.0.changed.notify_all();
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), is_begun: Mutex::default(), changed: Condvar::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        // Somebody may come between any two looks.
        shuttle::thread::yield_now();
        self.value.get()
    }

    pub(crate) fn get_or_init(&self, fill: impl FnOnce() -> T) -> &T {
        let mut is_begun = self.is_begun.lock();
        while *is_begun && self.value.get().is_none() {
            self.changed.wait(&mut is_begun);
        }
        if let Some(value) = self.value.get() {
            return value;
        }
        *is_begun = true;
        drop(is_begun);
        let filling = Filling(self);
        let value = fill();
        let value = self.value.get_or_init(|| value);
        drop(filling);
        value
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("it is called once"));
        value.map_or(Ok(()), Err)
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}
