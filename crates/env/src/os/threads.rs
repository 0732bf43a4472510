//! The system's threads.

use std::path::Path;
use std::thread::{Builder, JoinHandle};

use crate::{Error, Result, Thread, Threads};

/// One system thread for each piece of work.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsThreads;

#[derive(Debug)]
struct OsThread {
    handle: Option<JoinHandle<()>>,
    ended_well: bool,
}

impl Thread for OsThread {
    fn join(&mut self) -> bool {
        if let Some(handle) = self.handle.take() {
            self.ended_well = handle.join().is_ok();
        }
        self.ended_well
    }
}

impl Threads for OsThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
        // std panics on a name with a NUL in it.
        let builder = Builder::new().name(name.replace('\0', ""));
        let handle = builder.spawn(work).map_err(|source| Error::new("starting a thread", Path::new(name), source))?;
        Ok(Box::new(OsThread { handle: Some(handle), ended_well: false }))
    }

    fn give_way(&self) {
        std::thread::yield_now();
    }
}
