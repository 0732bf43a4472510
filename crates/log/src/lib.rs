//! What all of Esker's append-only files share.
//!
//! | room        | what it does                                                                 |
//! |-------------|------------------------------------------------------------------------------|
//! | [`commit`]  | group commit: one writes for all who wait                                    |
//! | [`publish`] | what was written in order and finished in any is shown in order               |
//! | [`writer`]  | appends records to a log; a failed append leaves nothing of itself           |
//! | [`scan`]    | reads a log back: whole records, a torn tail, or corruption                  |
//! | [`distrust`] | a sync that failed, told to the next process                              |
//! | [`copying`] | the directory of a copy, until it is a store                                |
//! | [`ledger`]  | live and dead bytes of each file                                             |
//! | [`reserve`] | room for what frees, on a full disk                                          |
//! | [`pacer`]   | how fast background work may go, and how much writers are held back          |
//! | [`error`]   | one error for all engines, split by what the caller can do                   |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod commit;
pub mod copying;
pub mod distrust;
pub mod error;
pub mod ledger;
pub mod pacer;
pub mod publish;
pub mod reserve;
pub mod scan;
pub mod writer;

pub use error::{Error, ErrorKind, Result};

/// What [`commit`] and [`publish`] sleep and wake by. `tests/commit_model.rs` and `tests/publish_model.rs` compile the same files over
/// a model of it.
mod sync {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread_local;
    use std::time::Duration;

    use esker_env::Clock;
    use esker_env::os::OsClock;

    /// Looks of one who waits to be shown: about two microseconds, what it takes to insert a few entries.
    pub(crate) const SPIN_COUNT: u32 = 100;

    /// About two microseconds: half of what a sleep and a wake-up take.
    const LOOKS: u32 = 100;

    /// Looks with a processor's turn given away before each: some 50 µs where nobody else wants it. So long it takes to be woken from a sleep
    /// where processors are virtual and idle. Measured on two of them, entries of 100 bytes a second into a `Db` whose writers insert for themselves: two threads 535,000 in place of
    /// 87,000, four 307,000 in place of 62,000.
    const WAYS: u32 = 100;

    /// How long a patient leader waits: half of what a fast device takes for a sync.
    const PATIENCE: Duration = Duration::from_micros(50);

    /// What is left of that.
    pub(crate) struct Patience(OsClock);

    impl Patience {
        pub(crate) fn begin() -> Self {
            Self(OsClock::new())
        }

        pub(crate) fn lasts(&self) -> bool {
            self.0.monotonic() < PATIENCE
        }

        /// Sleeps until `came` is told, or it is over.
        pub(crate) fn wait<'a, T>(
            &mut self,
            came: &Condvar,
            _: &'a Mutex<T>,
            mut guard: MutexGuard<'a, T>,
        ) -> MutexGuard<'a, T> {
            came.wait_for(&mut guard, PATIENCE.saturating_sub(self.0.monotonic()));
            guard
        }
    }

    /// Returns when it is so, or after a while; whether it is.
    pub(crate) fn look_for(is_so: impl Fn() -> bool) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            is_so()
        })
    }

    /// The same, with the processor given to others that want it.
    pub(crate) fn give_way_for(is_so: impl Fn() -> bool) -> bool {
        (0..WAYS).any(|_| {
            std::thread::yield_now();
            is_so()
        })
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(&mut guard);
        guard
    }
}
