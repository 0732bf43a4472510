//! What a Raft log takes of `esker-log`, compiled a second time over shuttle's locks and atomics.

// Where a tool compiles all targets, it makes a test of this library, too, whatever the manifest says: of nothing, then.
#![cfg(not(test))]

#[path = "../../../../crates/log/src/commit.rs"]
pub mod commit;
#[path = "../../../../crates/log/src/copying.rs"]
pub mod copying;
#[path = "../../../../crates/log/src/distrust.rs"]
pub mod distrust;
#[path = "../../../../crates/log/src/error.rs"]
pub mod error;
#[path = "../../../../crates/log/src/pacer/give_way.rs"]
mod give_way;
#[path = "../../../../crates/log/src/publish.rs"]
pub mod publish;
#[path = "../../../../crates/log/src/reserve.rs"]
pub mod reserve;

/// Of [`give_way`] only: nothing else is asked of it.
pub mod pacer {
    pub use crate::give_way::{GiveWay, Pieces};
}

pub use error::{Error, ErrorKind, Result};

/// What [`commit`] and [`publish`] sleep and wake by.
mod sync {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread_local;

    /// A schedule in which somebody looks and finds nothing is one in which it did not look.
    pub(crate) const SPIN_COUNT: u32 = 0;

    /// Who waits twice meets every schedule that one who does so more often meets; time goes by whoever is told.
    pub(crate) struct Patience(u32);

    impl Patience {
        pub(crate) fn begin() -> Self {
            Self(0)
        }

        pub(crate) fn lasts(&self) -> bool {
            self.0 < 2
        }

        pub(crate) fn wait<'a, T>(
            &mut self,
            _: &Condvar,
            line: &'a Mutex<T>,
            guard: MutexGuard<'a, T>,
        ) -> MutexGuard<'a, T> {
            drop(guard);
            shuttle::thread::yield_now();
            self.0 += 1;
            line.lock()
        }
    }

    pub(crate) fn look_for(_: impl Fn() -> bool) -> bool {
        false
    }

    pub(crate) fn give_way_for(_: impl Fn() -> bool) -> bool {
        false
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(&mut guard);
        guard
    }
}
