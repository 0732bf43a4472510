//! In place of iterators and their store: a walk that asks for each value.

use std::sync::Arc;

use esker_env::sim::SimDisk;
use esker_env::{Env, Thread, Threads};

use super::ahead::Ahead;
use super::aide::Aide;
use super::pace::Pace;
use super::stretch::Length;
use super::walk::Walker;
use crate::blob::{SIDE, Side, Step};
use crate::family::{Family, View};
use crate::operands::Reader;
use crate::read::BlobReader;

/// Threads that shuttle schedules, or none.
#[derive(Debug)]
struct ModelThreads {
    has_some: bool,
}

#[derive(Debug)]
struct ModelThread(std::sync::Mutex<Option<shuttle::thread::JoinHandle<bool>>>);

impl Thread for ModelThread {
    fn join(&mut self) -> bool {
        self.0.get_mut().unwrap().take().is_none_or(|handle| handle.join().unwrap())
    }
}

impl Threads for ModelThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> esker_env::Result<Box<dyn Thread>> {
        if !self.has_some {
            let refused = std::io::ErrorKind::WouldBlock.into();
            return Err(esker_env::Error::new("starting a thread", std::path::Path::new(name), refused));
        }
        let handle = shuttle::thread::spawn(move || {
            SIDE.with(|side| side.set(Side::Aide));
            // A panic ends the thread, not the schedule.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok()
        });
        Ok(Box::new(ModelThread(std::sync::Mutex::new(Some(handle)))))
    }
}

/// Values in a row, and somebody who helps to read them.
#[derive(Clone)]
pub struct Store {
    count: u64,
    view: Arc<View>,
    family: Arc<Family>,
    aide: Arc<Aide>,
}

impl Store {
    /// One of `count` values; there may be no thread to start.
    pub fn new(count: u64, has_threads: bool) -> Self {
        let env = Env { threads: Arc::new(ModelThreads { has_some: has_threads }), ..SimDisk::new().env() };
        Self { count, view: Arc::default(), family: Arc::default(), aide: Arc::new(Aide::new(&env, true)) }
    }

    /// From now on `step` ends by a panic, once.
    pub fn panic_at(&self, step: Step) {
        self.view.0.panics.lock().unwrap().push(step);
    }

    /// What was begun so far.
    pub fn steps(&self) -> Vec<Step> {
        self.view.0.steps.lock().unwrap().clone()
    }

    /// Whoever helps has ended when this returns.
    pub fn close(&self) {
        self.aide.close();
    }

    /// Before the first value; `stretch` of them are passed at once.
    pub fn walk(&self, stretch: usize) -> Walk {
        let (ahead, pace) = Default::default();
        Walk { store: self.clone(), walker: Walker::new(self.count), ahead, pace, stretch }
    }
}

/// As an iterator that goes forward and asks for each value.
pub struct Walk {
    store: Store,
    walker: Walker,
    ahead: Ahead,
    pace: Pace,
    stretch: usize,
}

impl Walk {
    /// Steps; whether there is a value.
    pub fn step(&mut self) -> bool {
        if self.ahead.shows() && self.ahead.step() {
            return true;
        }
        let length = Length { forward: true, values: self.stretch, bytes_max: u64::MAX };
        if !self.ahead.turn() {
            self.ahead.fill(&mut self.walker, &self.store.view, length);
        }
        if self.walker.valid() && self.store.aide.is_there() {
            self.ahead.fill_coming(&mut self.walker, &self.store.view, length);
            self.ahead.hand_over(&self.store.aide, &BlobReader, &self.store.family, &self.pace);
        }
        self.ahead.shows()
    }

    /// The value it stands on.
    pub fn value(&self) -> u64 {
        let Store { view, family, .. } = &self.store;
        let value = self.ahead.value(&Reader { family, view, blobs: &BlobReader }, &self.pace);
        value.ok().and_then(|value| value.0).expect("there is a value, and nothing fails")
    }
}
