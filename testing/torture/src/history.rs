//! Histories: what threads did to a store at once and what they saw, and whether some order explains it.
//!
//! After Wing and Gong, "Testing and Verifying Concurrent Objects" (1993).

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

/// What a thread did, with what it saw.
pub trait Action: Copy + Debug + Send {
    /// What a store holds, as far as actions ask. A history begins with the default.
    type State: Copy + Default + Eq + Hash;

    /// The state after it; `None` if it cannot have been so on `state`.
    fn after(self, state: Self::State) -> Option<Self::State>;
}

/// An action, and when it took effect: between two moments of a clock that all threads share.
#[derive(Debug, Clone, Copy)]
pub struct Event<A> {
    /// It had not before this.
    pub began: u64,
    /// It had by then.
    pub ended: u64,
    /// What was done.
    pub action: A,
}

/// Whether the events, of which there are at most 64, can be put in an order that respects time and in which every action saw what
/// it says.
pub fn has_order<A: Action>(events: &[Event<A>]) -> bool {
    let all = u64::MAX.checked_shr(64 - events.len() as u32).unwrap_or(0);
    search(events, all, A::State::default(), &mut HashSet::new())
}

/// The same of those in `left`, a bit for each event without a place yet.
fn search<A: Action>(events: &[Event<A>], left: u64, state: A::State, failed: &mut HashSet<(u64, A::State)>) -> bool {
    if left == 0 {
        return true;
    }
    if failed.contains(&(left, state)) {
        return false;
    }
    let open = || events.iter().enumerate().filter(|(index, _)| left >> index & 1 == 1);
    let first_end = open().map(|(_, event)| event.ended).min().unwrap_or_default();
    for (index, event) in open().filter(|(_, event)| event.began <= first_end) {
        if let Some(next) = event.action.after(state)
            && search(events, left & !(1 << index), next, failed)
        {
            return true;
        }
    }
    failed.insert((left, state));
    false
}

/// What `threads` threads do that begin at once, each of `steps` steps, drawn from `seed`. `act` gets a clock to say when.
pub fn record<A: Action>(
    seed: u64,
    threads: u64,
    steps: u64,
    act: impl Fn(&mut Rng, &dyn Fn() -> u64) -> Event<A> + Sync,
) -> Vec<Event<A>> {
    let (clock, start) = (AtomicU64::new(0), Barrier::new(threads as usize));
    let live = |thread: u64| {
        let mut random = Rng::with_seed(seed << 8 | thread);
        start.wait();
        (0..steps).map(|_| act(&mut random, &|| clock.fetch_add(1, Ordering::SeqCst))).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let live = &live;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || live(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread that panicked has said why")).collect()
    })
}
