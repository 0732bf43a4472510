//! One life of the log: what may go wrong in it, and what of it passes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use esker::env::Env;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::raft::{Error, ErrorKind, Options, Result};
use esker_torture::crash::{Replay, is_warned, kill};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::lives::{CallKind, CallsLeft};
use fastrand::Rng;

use super::ledger::WRITERS;

/// How often a sync lets other threads go on.
const YIELDS: usize = 20;

/// What fails in the midst of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// So many operations of all kinds, each so many behind the one before.
    Operations { fault: Fault, count: u64, step: u64 },
    /// One sync.
    Sync,
    /// Calls of one kind.
    Calls(CallKind),
}

impl Trouble {
    fn any(random: &mut Rng) -> Self {
        let operations = |fault| Self::Operations { fault, count: 30, step: 1 };
        match random.u8(..11) {
            0 => operations(Fault::Eio),
            1 => operations(Fault::EioAfter),
            2 | 3 => operations(Fault::NoSpace),
            // The other directory has room meanwhile.
            4 | 5 => Self::Operations { fault: Fault::NoSpace, count: 100, step: random.u64(2..9) },
            6 => Self::Sync,
            7 => Self::Calls(CallKind::Create),
            8 => Self::Calls([CallKind::Open, CallKind::Read][random.usize(..2)]),
            9 => Self::Calls(CallKind::List),
            _ => Self::Calls(CallKind::Other),
        }
    }
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Close,
    /// And then the power goes.
    CloseAndPowerLoss,
    /// All handles go, and nobody closes.
    Drop,
    /// The process dies, after so many operations or in the next, or once all is done.
    Death(u64),
    PowerLoss(u64, Survivors),
    /// So many operations go well, or calls; then some do not, and all goes on and is closed.
    Trouble(u64, Trouble),
}

impl Ending {
    pub(super) fn any(random: &mut Rng) -> Self {
        // Most lives have a thousand or two.
        let operations = [100, 1000, 4000][random.usize(..3)];
        let after = random.u64(..operations);
        match random.u8(..12) {
            0 => Self::Close,
            1 => Self::CloseAndPowerLoss,
            2 => Self::Drop,
            3..6 => Self::Death(after),
            6 => Self::PowerLoss(after, Survivors::Nothing),
            7..9 => Self::PowerLoss(after, Survivors::Sample { seed: random.u64(..) }),
            _ => Self::Trouble(after, Trouble::any(random)),
        }
    }
}

/// The log at one moment while all were at work.
pub(super) struct Moment {
    /// A fork, in this directory.
    pub(super) fork: PathBuf,
    /// How many writes of each thread were done before.
    pub(super) least: Vec<usize>,
    /// How many there can have been at most.
    pub(super) most: Vec<usize>,
}

/// The disk is full for a while, then has room again, by turns.
pub(super) struct Tide {
    /// With an even number it has room.
    turn: AtomicU64,
    /// The operation with which the next turn comes.
    next: AtomicU64,
    random: Mutex<Rng>,
}

impl Tide {
    /// Which begins with a disk that is full, or with room.
    pub(super) fn new(is_full: bool, random: Rng) -> Self {
        Self { turn: AtomicU64::new(is_full.into()), next: AtomicU64::new(0), random: Mutex::new(random) }
    }
}

/// See the module's head.
pub(super) struct Life {
    pub(super) replay: Replay,
    pub(super) number: u32,
    /// How the one before it ended.
    pub(super) before: Ending,
    pub(super) ending: Ending,
    pub(super) options: Options,
    pub(super) disk: SimDisk,
    pub(super) tide: Option<Tide>,
    /// How long entries are, mostly.
    pub(super) value_bytes: usize,
    /// Of the kind that fails.
    calls_left: CallsLeft,
    /// Writes of each thread that are done.
    pub(super) done: [AtomicUsize; WRITERS as usize],
    pub(super) moments: Mutex<Vec<Moment>>,
    /// Forks that were begun.
    pub(super) forks: AtomicUsize,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replay, number, before, ending, tide, .. } = self;
        let full = if tide.is_some() { " with a disk that is full now and then" } else { "" };
        write!(f, "{replay}: life {number}, after {before:?}, which ends by {ending:?}{full}")
    }
}

impl Life {
    pub(super) fn new(replay: Replay, number: u32, (before, ending): (Ending, Ending), options: Options) -> Self {
        Self {
            replay,
            number,
            before,
            ending,
            options,
            disk: SimDisk::new(),
            tide: None,
            value_bytes: 0,
            // Before it may end, no call fails.
            calls_left: CallsLeft::default(),
            done: Default::default(),
            moments: Default::default(),
            forks: AtomicUsize::new(0),
        }
    }

    /// The machine that it is lived on.
    pub(super) fn env(&self) -> Env {
        let kind = match self.ending {
            Ending::Trouble(_, Trouble::Calls(kind)) => Some(kind),
            _ => None,
        };
        let left = self.calls_left.clone();
        let files = Hooked::new(self.disk.env().files, move |call| {
            if matches!(call, Call::Sync(_)) {
                // It takes a while: others come in line.
                (0..YIELDS).for_each(|_| thread::yield_now());
            }
            kind.map_or(Ok(()), |kind| left.ask(kind, call))
        });
        Env { files: Arc::new(files), ..self.disk.env() }
    }

    /// From now on it may end, and the disk may fill up.
    pub(super) fn arm(&self) {
        let now = self.disk.op_count();
        match self.ending {
            Ending::Close | Ending::CloseAndPowerLoss | Ending::Drop => {}
            Ending::Death(after) => kill(&self.disk, now + after),
            Ending::PowerLoss(after, _) => self.disk.die_after(now + after),
            Ending::Trouble(after, Trouble::Sync) => self.disk.fail_next_sync(now + after, Fault::Eio),
            Ending::Trouble(after, Trouble::Calls(_)) => self.calls_left.set(after / 20),
            Ending::Trouble(after, Trouble::Operations { fault, count, step }) => {
                (0..count).for_each(|n| self.disk.fail_at(now + after + n * step, fault));
            }
        }
        match &self.tide {
            Some(tide) => tide.next.store(now + 20, Ordering::Relaxed),
            None => self.disk.set_capacity(None),
        }
    }

    /// What fails, fails no more, and the disk has room.
    pub(super) fn heal(&self) {
        self.disk.heal();
        self.calls_left.heal();
        if self.is_full() {
            self.turn_tide(u64::MAX);
        }
        if let Some(tide) = &self.tide {
            tide.next.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Whether the disk is full now.
    pub(super) fn is_full(&self) -> bool {
        !self.turn().is_multiple_of(2)
    }

    /// How often the disk was full, or had room again.
    pub(super) fn turn(&self) -> u64 {
        self.tide.as_ref().map_or(0, |tide| tide.turn.load(Ordering::SeqCst))
    }

    /// Fills the disk, or makes room on it, if the time has come.
    pub(super) fn flow(&self) {
        let now = self.disk.op_count();
        if self.tide.as_ref().is_some_and(|tide| now >= tide.next.load(Ordering::Relaxed)) {
            self.turn_tide(now);
        }
    }

    /// The same, if nobody did so for `now` meanwhile.
    pub(super) fn turn_tide(&self, now: u64) {
        let Some(tide) = &self.tide else { return };
        let mut random = tide.random.lock().unwrap();
        if now < tide.next.load(Ordering::Relaxed) {
            return;
        }
        if self.is_full() {
            self.disk.set_capacity(None);
            tide.turn.fetch_add(1, Ordering::SeqCst);
        } else {
            tide.turn.fetch_add(1, Ordering::SeqCst);
            let slack = [0, random.u64(..20_000), random.u64(..300_000)][random.usize(..3)];
            // A dead machine says nothing.
            let used = self.disk.env().files.space(Path::new("/")).map_or(0, |space| space.total - space.available);
            self.disk.set_capacity(Some(used + slack));
        }
        let operations = [30, 300][random.usize(..2)];
        tide.next.store(now.saturating_add(random.u64(5..operations)), Ordering::Relaxed);
    }

    /// How many writes of each thread are done.
    pub(super) fn done_now(&self) -> Vec<usize> {
        self.done.iter().map(|done| done.load(Ordering::Acquire)).collect()
    }

    /// Whether calls fail that ought to be done.
    pub(super) fn has_trouble(&self) -> bool {
        self.disk.is_dead() || matches!(self.ending, Ending::Trouble(..))
    }

    /// Whether the log warns the next process that a sync failed.
    pub(super) fn is_warned(&self) -> bool {
        is_warned(&self.disk)
    }

    /// What `call` does; what it says may be said.
    ///
    /// # Errors
    /// As the call's.
    pub(super) fn attempt<T>(&self, doing: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.turn();
        call().inspect_err(|error| self.accept(error, doing, before))
    }

    /// The same, if it was done.
    pub(super) fn attempted<T>(&self, doing: &str, call: impl FnOnce() -> Result<T>) -> Option<T> {
        self.attempt(doing, call).ok()
    }

    /// The same, where `is_expected` says what may be told besides.
    pub(super) fn attempt_unless<T>(
        &self,
        doing: &str,
        call: impl FnOnce() -> Result<T>,
        is_expected: impl FnOnce(&Error) -> bool,
    ) -> Option<T> {
        let before = self.turn();
        match call() {
            Err(error) if !is_expected(&error) => self.accept(&error, doing, before),
            done => return done.ok(),
        }
        None
    }

    /// `error` may be told of what was begun in turn `before` of the tide.
    pub(super) fn accept(&self, error: &Error, doing: &str, before: u64) {
        let had_room = before.is_multiple_of(2) && self.turn() == before;
        let may_be = match error.kind() {
            ErrorKind::Io | ErrorKind::ReadOnly => self.has_trouble(),
            ErrorKind::Exhausted => !had_room || self.has_trouble(),
            ErrorKind::Corruption => self.disk.has_evicted(),
            _ => false,
        };
        assert!(may_be, "{self}: {doing}: {:?}: {error}", error.kind());
    }
}
