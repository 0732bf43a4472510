//! The face of `parking_lot`, as far as Esker uses it, on shuttle's locks: a crate that is compiled with this in its place runs under
//! thousands of schedules, unchanged.
//!
//! As there, a panic does not poison a lock.

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

/// One holds it at a time.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// What a [`Mutex`] guards, until this goes.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A free one.
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Waits for its turn.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { of: self, held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Without waiting: whoever has it whole is alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { of: self, held: Some(held) })
    }
}

impl<T> MutexGuard<'_, T> {
    /// Lets others have it while `act` runs.
    pub fn unlocked<U>(guard: &mut Self, act: impl FnOnce() -> U) -> U {
        guard.held = None;
        let done = act();
        guard.held = guard.of.lock().held;
        done
    }
}

const HELD: &str = "the guard is away only while its holder waits";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

/// Many read, or one writes.
#[derive(Debug, Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A free one.
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else is there.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a wait ended.
#[derive(Debug)]
pub struct WaitTimeoutResult;

impl WaitTimeoutResult {
    /// Whether it took too long: never.
    pub const fn timed_out(&self) -> bool {
        false
    }
}

/// Where holders of a [`Mutex`] sleep.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Sleeps until woken.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// Sleeps until woken; time does not pass in a model.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    /// Wakes one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
