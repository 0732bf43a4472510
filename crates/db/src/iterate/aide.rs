//! A thread that reads and unpacks the values which iterators will be asked for next, while their threads walk on.
//!
//! - D1: nobody waits for it to begin: whoever walks does what it has not begun, and what it has not finished once more. Only a read under way is
//!   waited for, by who wants what it brings.
//! - D2: it holds no iterator: what is let go is not worked on, and its memory goes with the piece that is being worked on.
//! - D3: it makes no error known: a value that it could not have is read again by whoever wants it, and that one is told. A panic is no other: it
//!   ends its piece of work, which is then as if it had not been begun where it was not done (S5 of `stretch`).
//!
//! Cost: no thread before the first long walk; a wake-up for each stretch that is handed over.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use esker_env::{Env, Thread};

use super::stretch::Stretch;
use crate::family::Family;
use crate::read::BlobReader;
use crate::sync::{Condvar, Mutex};

/// Stretches that wait: of more than so many walks at once, the last are left to their own threads.
const WAITING_MAX: usize = 8;

/// What is to be done beside a walk.
pub(super) struct Errand {
    pub(super) stretch: Weak<Stretch>,
    pub(super) blobs: BlobReader,
    pub(super) family: Arc<Family>,
}

impl Errand {
    fn run(self) {
        // D2.
        let Some(stretch) = self.stretch.upgrade() else { return };
        if let Some(read) = stretch.read() {
            read.count(&self.blobs, &self.family.walks);
        }
        stretch.unpack();
    }
}

/// See the module's head.
pub(crate) struct Aide {
    env: Env,
    shared: Arc<Shared>,
    /// From the first stretch that is handed over on.
    thread: Mutex<Option<Box<dyn Thread>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Errand>,
    /// Whether there is a thread, or nobody else is to start one.
    is_started: bool,
    is_closed: bool,
}

impl Aide {
    /// One that takes nothing unless it `may_start` a thread of `env`.
    pub(crate) fn new(env: &Env, may_start: bool) -> Self {
        let queue = Queue { is_closed: !may_start, ..Queue::default() };
        let shared = Shared { queue: Mutex::new(queue), changed: Condvar::new() };
        Self { env: env.clone(), shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Whether it takes anything.
    pub(super) fn is_there(&self) -> bool {
        !self.shared.queue.lock().is_closed
    }

    /// Has `errand` done, if there is somebody to do it (D1).
    pub(super) fn hand_over(&self, errand: Errand) {
        let mut queue = self.shared.queue.lock();
        if queue.is_closed || queue.waiting.len() >= WAITING_MAX {
            return;
        }
        let is_first = !std::mem::replace(&mut queue.is_started, true);
        queue.waiting.push_back(errand);
        drop(queue);
        if is_first {
            self.start();
        } else {
            self.shared.changed.notify_one();
        }
    }

    #[cold]
    fn start(&self) {
        let mut thread = self.thread.lock();
        let shared = self.shared.clone();
        match self.env.threads.spawn("esker-ahead", Box::new(move || shared.work())) {
            Ok(started) => *thread = Some(started),
            // Without one it is as it was.
            Err(_) => self.shared.close(),
        }
    }

    /// Takes nothing any more, and has ended when this returns.
    pub(crate) fn close(&self) {
        self.shared.close();
        if let Some(mut thread) = self.thread.lock().take() {
            thread.join();
        }
    }
}

#[cfg(test)]
impl Aide {
    /// Does what waits, in this thread; returns how much that was.
    pub(super) fn run_waiting(&self) -> usize {
        let waiting = std::mem::take(&mut self.shared.queue.lock().waiting);
        let count = waiting.len();
        waiting.into_iter().for_each(Errand::run);
        count
    }
}

impl Shared {
    fn close(&self) {
        let mut queue = self.queue.lock();
        queue.is_closed = true;
        queue.waiting.clear();
        drop(queue);
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some(errand) = self.next() {
            // Nobody would come for those that wait, and each holds its family.
            let _ = catch_unwind(AssertUnwindSafe(|| errand.run()));
        }
    }

    /// `None` once it is closed.
    fn next(&self) -> Option<Errand> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            match queue.waiting.pop_front() {
                Some(errand) => return Some(errand),
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

impl Drop for Aide {
    fn drop(&mut self) {
        // An iterator may be the last to let it go, and has no time to wait.
        self.shared.close();
    }
}

impl fmt::Debug for Aide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aide").field("is_there", &self.is_there()).finish_non_exhaustive()
    }
}

// By its path, which is the same for who compiles this file from elsewhere.
#[cfg(test)]
#[path = "aide/tests.rs"]
mod tests;
