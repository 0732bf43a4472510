//! Shows in order what was begun in order and is finished in any.
//!
//! Writers get ranges of sequence numbers one after the other and put their entries in place at the same time. Readers
//! see everything up to one number, so that number may pass a range only when the range and all before it are in place.
//!
//! - P1: the number only grows, by whole ranges, without gaps: whoever finished waits until it stands right before its range.
//! - P2: who sees the number sees everything that was put in place before it was set (release, acquire, over all who passed it on).
//! - P3: a range that will never be finished, because its thread panicked, ends the waiting of all behind it with an error.
//!
//! Cost: alone, one load and one store. Who must wait looks for `SPIN_COUNT` rounds, gives way to others for some more, then sleeps.

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex, SPIN_COUNT, give_way_for};
use crate::{Error, ErrorKind, Result};

/// The number up to which everything is in place.
#[derive(Debug, Default)]
pub struct Published {
    number: AtomicU64,
    is_broken: AtomicBool,
    /// How many sleep, or are about to.
    sleepers: AtomicUsize,
    line: Mutex<()>,
    moved: Condvar,
}

impl Published {
    /// Everything up to `number` is in place.
    pub fn new(number: u64) -> Self {
        Self { number: AtomicU64::new(number), ..Self::default() }
    }

    /// Up to where everything is in place.
    #[inline]
    pub fn get(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Moves the number without waiting: for recovery, before there are writers.
    pub fn set(&self, number: u64) {
        self.number.store(number, Ordering::Release);
    }

    /// What follows `before`, up to `last`, is in place: shows it once everything before it is shown.
    ///
    /// # Errors
    /// `ReadOnly`: something before it never will be.
    #[inline]
    pub fn publish(&self, before: u64, last: u64) -> Result<()> {
        self.wait_for(before)?;
        self.number.store(last, Ordering::Release);
        // Either the sleeper's look at the number comes after the store, or this look at the sleepers after theirs.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
        Ok(())
    }

    /// Waits until everything up to `number` is shown.
    ///
    /// # Errors
    /// `ReadOnly`: it never will be.
    #[inline]
    pub fn wait_for(&self, number: u64) -> Result<()> {
        for _ in 0..=SPIN_COUNT {
            if self.get() >= number {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if give_way_for(|| self.get() >= number) { Ok(()) } else { self.sleep_until(number) }
    }

    #[cold]
    fn sleep_until(&self, number: u64) -> Result<()> {
        let mut line = self.line.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let shown = loop {
            if self.get() >= number {
                break true;
            }
            if self.is_broken.load(Ordering::Acquire) {
                break false;
            }
            line = crate::sync::wait(&self.moved, line);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        drop(line);
        if shown {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ReadOnly,
            "a thread panicked while it wrote, so what comes after is never shown; reopen to go on",
        ))
    }

    #[cold]
    fn wake(&self) {
        // Whoever has looked and not yet slept holds the lock until it sleeps.
        drop(self.line.lock());
        self.moved.notify_all();
    }

    /// A range was given out that will never be in place (P3).
    pub fn break_off(&self) {
        self.is_broken.store(true, Ordering::Release);
        self.wake();
    }
}
