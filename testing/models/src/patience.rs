//! A wait that ends though nobody woke the waiter. Time does not pass in a model: who waits a nanosecond gives the others a turn,
//! and how far they come in it is the scheduler's choice.

use std::time::Duration;

use parking_lot::MutexGuard;

/// What never ends.
pub(crate) const ENDLESS: Duration = Duration::MAX;

/// Where holders of a mutex sleep.
#[derive(Debug)]
pub(crate) struct Condvar(parking_lot::Condvar);

/// How a wait ended.
#[derive(Debug)]
pub(crate) struct Ended {
    is_late: bool,
}

impl Ended {
    pub(crate) fn timed_out(&self) -> bool {
        self.is_late
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Sleeps until woken, or for so long. Who has an end of its patience is always late: news and that end may come at once.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, patience: Duration) -> Ended {
        if patience == ENDLESS {
            self.0.wait(guard);
            return Ended { is_late: false };
        }
        MutexGuard::unlocked(guard, || (0..patience.as_nanos()).for_each(|_| shuttle::thread::yield_now()));
        Ended { is_late: true }
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}
