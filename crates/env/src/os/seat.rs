//! A small number for each thread that is running, of its own as long as it runs.

use std::sync::Mutex;
use std::sync::PoisonError;

#[derive(Debug)]
struct Seats {
    /// Numbers that were ever given out.
    begun: usize,
    /// Those that came back.
    returned: Vec<usize>,
}

static SEATS: Mutex<Seats> = Mutex::new(Seats { begun: 0, returned: Vec::new() });

struct Seat(usize);

impl Seat {
    fn take() -> Self {
        let mut seats = SEATS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = seats.returned.pop().unwrap_or_else(|| {
            seats.begun += 1;
            seats.begun - 1
        });
        Self(number)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.lock().unwrap_or_else(PoisonError::into_inner).returned.push(self.0);
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
