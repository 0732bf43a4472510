//! One life of the store: how it ends, what may go wrong in it, and what of it passes.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread;

use esker::env::Env;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{CaskOptions, ErrorKind, Result};
use esker_torture::crash::{Replay, is_warned, kill};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::lives::{A_WHILE, CallKind, CallsLeft};
use fastrand::Rng;

/// How often a sync lets other threads go on.
const YIELDS: usize = 20;

/// What fails in the midst of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Operations of all kinds.
    Operations(Fault),
    /// One sync.
    Sync,
    /// Calls of one kind.
    Calls(CallKind),
}

const TROUBLES: [Trouble; 9] = [
    Trouble::Operations(Fault::Eio),
    Trouble::Operations(Fault::EioAfter),
    Trouble::Operations(Fault::NoSpace),
    Trouble::Sync,
    Trouble::Calls(CallKind::Create),
    Trouble::Calls(CallKind::Open),
    Trouble::Calls(CallKind::Read),
    Trouble::Calls(CallKind::List),
    Trouble::Calls(CallKind::Other),
];

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
    /// For some steps there is so much room and no more; then all goes on and is closed.
    FullDisk(u64),
}

impl Ending {
    pub(super) fn any(random: &mut Rng) -> Self {
        // Most lives have some thousands of operations.
        let operations = [50, 500, 3000][random.usize(..3)];
        let after = random.u64(..operations);
        match random.u8(..13) {
            0 => Self::Close,
            1 => Self::CloseAndPowerLoss,
            2 => Self::Drop,
            3..5 => Self::Death(after),
            5 => Self::PowerLoss(after, Survivors::Nothing),
            6..8 => Self::PowerLoss(after, Survivors::Sample { seed: random.u64(..) }),
            8..11 => Self::Trouble(after, TROUBLES[random.usize(..TROUBLES.len())]),
            _ => Self::FullDisk([0, 5_000, 20_000, 100_000][random.usize(..4)]),
        }
    }
}

/// See the module's head.
pub(super) struct Life {
    pub(super) replay: Replay,
    pub(super) number: u32,
    /// How the one before it ended.
    pub(super) before: Ending,
    pub(super) ending: Ending,
    pub(super) options: CaskOptions,
    pub(super) disk: SimDisk,
    /// Held by whoever writes or looks; alone by whoever lets time pass.
    pub(super) time: RwLock<()>,
    /// Of the kind that fails.
    pub(super) calls_left: CallsLeft,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replay, number, before, ending, .. } = self;
        write!(f, "{replay}: life {number}, after {before:?}, which ends by {ending:?}")
    }
}

impl Life {
    /// The machine that it is lived on.
    pub(super) fn env(&self) -> Env {
        let kind = match self.ending {
            Ending::Trouble(_, Trouble::Calls(kind)) => Some(kind),
            _ => None,
        };
        let left = self.calls_left.clone();
        let files = Hooked::new(self.disk.env().files, move |call| {
            if matches!(call, Call::Sync(_)) {
                // It takes a while: others go on beside it.
                (0..YIELDS).for_each(|_| thread::yield_now());
            }
            kind.map_or(Ok(()), |kind| left.ask(kind, call))
        });
        Env { files: Arc::new(files), ..self.disk.env() }
    }

    /// From now on it may end.
    pub(super) fn arm(&self) {
        let now = self.disk.op_count();
        match self.ending {
            Ending::Close | Ending::CloseAndPowerLoss | Ending::Drop | Ending::FullDisk(_) => {}
            Ending::Death(after) => kill(&self.disk, now + after),
            Ending::PowerLoss(after, _) => self.disk.die_after(now + after),
            Ending::Trouble(after, Trouble::Sync) => self.disk.fail_next_sync(now + after, Fault::Eio),
            Ending::Trouble(after, Trouble::Calls(_)) => self.calls_left.set(after / 10),
            Ending::Trouble(after, Trouble::Operations(fault)) => {
                (now + after..now + after + A_WHILE).for_each(|n| self.disk.fail_at(n, fault));
            }
        }
    }

    /// What fails, fails no more, and the disk has room.
    pub(super) fn heal(&self) {
        self.disk.heal();
        self.calls_left.heal();
        self.disk.set_capacity(None);
    }

    /// There is so much room, and no more.
    pub(super) fn leave(&self, room: u64) {
        let space = self.disk.env().files.space(Path::new("/store")).unwrap();
        self.disk.set_capacity(Some(space.total - space.available + room));
    }

    /// Whether calls fail that ought to be done.
    pub(super) fn has_trouble(&self) -> bool {
        self.disk.is_dead() || matches!(self.ending, Ending::Trouble(..))
    }

    /// Whether the store warns the next process that a sync failed.
    pub(super) fn is_warned(&self) -> bool {
        is_warned(&self.disk)
    }

    /// What was done, if it was; what was said otherwise may be said.
    pub(super) fn accepted<T>(&self, done: Result<T>, doing: &str) -> Option<T> {
        let error = match done {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        let may_be = match error.kind() {
            ErrorKind::Io | ErrorKind::ReadOnly => self.has_trouble(),
            ErrorKind::Exhausted => self.has_trouble() || matches!(self.ending, Ending::FullDisk(_)),
            ErrorKind::Corruption => self.disk.has_evicted(),
            _ => false,
        };
        assert!(may_be, "{self}: {doing}: {:?}: {error}", error.kind());
        None
    }
}
