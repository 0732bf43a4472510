//! A small number for each thread that is running, of its own as long as it runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
struct Seats {
    /// Numbers that were ever given out.
    begun: usize,
    /// Those that came back, the smallest first: a number is no larger than as many threads as run at once make it.
    returned: BinaryHeap<Reverse<usize>>,
}

static SEATS: Mutex<Seats> = Mutex::new(Seats { begun: 0, returned: BinaryHeap::new() });

struct Seat(usize);

impl Seat {
    fn take() -> Self {
        let mut seats = SEATS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Reverse(number)) = seats.returned.pop() {
            return Self(number);
        }
        seats.begun += 1;
        Self(seats.begun - 1)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.lock().unwrap_or_else(PoisonError::into_inner).returned.push(Reverse(self.0));
    }
}

thread_local! {
    static MINE: Seat = Seat::take();
}

/// The caller's number. `None` while its thread ends. What it did as long as it had the number happens before all that the next one does
/// who has it.
#[inline]
pub(super) fn number() -> Option<usize> {
    MINE.try_with(|seat| seat.0).ok()
}
