//! What tests have in common in which several threads are at work through several lives of a store: calls that fail for a while, and nobody who
//! waits for ever.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use esker::env::{self, Result};

use crate::crash::Replay;
use crate::hooked::Call;
use crate::seeds;

/// How many operations fail in a row, or calls of a kind.
pub const A_WHILE: u64 = 30;
/// How long the lives of a store may take before they count as hanging.
const PATIENCE: Duration = Duration::from_secs(600);

/// Calls that fail together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallKind {
    Create,
    Open,
    Read,
    PunchHole,
    List,
    Other,
}

impl CallKind {
    fn is(self, call: Call<'_>) -> bool {
        match self {
            Self::Create => matches!(call, Call::Create(_)),
            Self::Open => matches!(call, Call::Open(_)),
            Self::Read => matches!(call, Call::Read(_)),
            Self::PunchHole => matches!(call, Call::PunchHole(_)),
            Self::List => matches!(call, Call::List(_)),
            Self::Other => matches!(call, Call::Other(_)),
        }
    }
}

/// How many calls of a kind go well until [`A_WHILE`] of them fail.
#[derive(Debug, Clone)]
pub struct CallsLeft(Arc<AtomicI64>);

impl Default for CallsLeft {
    /// All of them.
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }
}

impl CallsLeft {
    /// So many from now on.
    pub fn set(&self, count: u64) {
        self.0.store(count as i64, Ordering::Relaxed);
    }

    /// All of them again.
    pub fn heal(&self) {
        self.0.store(i64::MAX, Ordering::Relaxed);
    }

    /// Whether `call` goes well, where those of `kind` fail.
    ///
    /// # Errors
    /// It is of that kind, and its time has come.
    pub fn ask(&self, kind: CallKind, call: Call<'_>) -> Result<()> {
        let fails = kind.is(call) && (-(A_WHILE as i64)..0).contains(&(self.0.fetch_sub(1, Ordering::Relaxed) - 1));
        let error = || env::Error::new("doing something to", call.path(), io::Error::other("the device fails"));
        if fails { Err(error()) } else { Ok(()) }
    }
}

/// Runs the lives of each of `count` seeds of a test, or of those that are asked for.
///
/// # Panics
/// If they do, or hang.
pub fn through_seeds(file: &'static str, test: &'static str, count: u64, run: fn(Replay)) {
    for seed in seeds(count) {
        let replay = Replay { file, test, seed };
        let (done, is_done) = channel();
        let lives = thread::spawn(move || {
            let _done = done;
            run(replay);
        });
        // Whoever panics lets go of it, too.
        assert_eq!(is_done.recv_timeout(PATIENCE), Err::<(), _>(RecvTimeoutError::Disconnected), "{replay}: it hangs");
        lives.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}
