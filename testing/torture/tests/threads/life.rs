//! One life of the store: what may go wrong in it, and what of it passes.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use esker::env::Env;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{ColumnFamily, Db, Error, ErrorKind, ReadOptions, Result};
use esker_torture::crash::Replay;
use esker_torture::hooked::Hooked;
use esker_torture::lives::{A_WHILE, CallKind, CallsLeft};
use esker_torture::model::forward;
use fastrand::Rng;

use super::ledger::{Place, State, WRITERS, parse, serial_of, value};

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

const TROUBLES: [Trouble; 10] = [
    Trouble::Operations(Fault::Eio),
    Trouble::Operations(Fault::EioAfter),
    Trouble::Operations(Fault::NoSpace),
    Trouble::Sync,
    Trouble::Calls(CallKind::Create),
    Trouble::Calls(CallKind::Open),
    Trouble::Calls(CallKind::Read),
    Trouble::Calls(CallKind::PunchHole),
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
    /// The process dies, after so many operations, or once all is done.
    Death(u64),
    PowerLoss(u64, Survivors),
    /// So many operations go well, or calls; then some do not, and all goes on and is closed.
    Trouble(u64, Trouble),
}

impl Ending {
    pub(super) fn any(random: &mut Rng) -> Self {
        // Most lives have some thousands of operations.
        let operations = [100, 1000, 10_000][random.usize(..3)];
        let after = random.u64(..operations);
        match random.u8(..12) {
            0 => Self::Close,
            1 => Self::CloseAndPowerLoss,
            2 => Self::Drop,
            3..6 => Self::Death(after),
            6 => Self::PowerLoss(after, Survivors::Nothing),
            7..9 => Self::PowerLoss(after, Survivors::Sample { seed: random.u64(..) }),
            _ => Self::Trouble(after, TROUBLES[random.usize(..TROUBLES.len())]),
        }
    }
}

/// The store at one moment while all were at work.
pub(super) struct Moment {
    pub(super) shown: Shown,
    /// How many logged writes of each thread were done before.
    pub(super) least: Vec<usize>,
}

/// What shows a moment.
pub(super) enum Shown {
    /// A store that opened beside the one that writes had this, by thread.
    Beside(Vec<State>),
    /// A copy, in this directory.
    Copy(PathBuf),
}

/// See the module's head.
pub(super) struct Life {
    pub(super) replay: Replay,
    pub(super) number: u32,
    /// How the one before it ended.
    pub(super) before: Ending,
    pub(super) ending: Ending,
    pub(super) disk: SimDisk,
    pub(super) wal_dir: Option<PathBuf>,
    /// Whether the store may run out of room.
    pub(super) is_limited: bool,
    pub(super) value_bytes: usize,
    /// Of the kind that fails.
    pub(super) calls_left: CallsLeft,
    /// Logged writes of each thread that are done.
    pub(super) done: [AtomicUsize; WRITERS as usize],
    pub(super) moments: Mutex<Vec<Moment>>,
    /// Somebody makes a copy, or has made one.
    pub(super) has_copied: AtomicBool,
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
        let Ending::Trouble(_, Trouble::Calls(kind)) = self.ending else { return self.disk.env() };
        let left = self.calls_left.clone();
        let files = Hooked::new(self.disk.env().files, move |call| left.ask(kind, call));
        Env { files: Arc::new(files), ..self.disk.env() }
    }

    /// From now on it may end.
    pub(super) fn arm(&self) {
        let now = self.disk.op_count();
        match self.ending {
            Ending::Close | Ending::CloseAndPowerLoss | Ending::Drop => {}
            Ending::Death(after) | Ending::PowerLoss(after, _) => self.disk.die_after(now + after),
            Ending::Trouble(after, Trouble::Sync) => self.disk.fail_next_sync(now + after, Fault::Eio),
            Ending::Trouble(after, Trouble::Calls(_)) => self.calls_left.set(after / 10),
            Ending::Trouble(after, Trouble::Operations(fault)) => {
                (now + after..now + after + A_WHILE).for_each(|n| self.disk.fail_at(n, fault));
            }
        }
    }

    /// How many logged writes of each thread are done.
    pub(super) fn done_now(&self) -> Vec<usize> {
        self.done.iter().map(|done| done.load(Ordering::Acquire)).collect()
    }

    /// What fails, fails no more.
    pub(super) fn heal(&self) {
        self.disk.heal();
        self.calls_left.heal();
    }

    /// Whether calls fail that ought to be done.
    pub(super) fn has_trouble(&self) -> bool {
        self.disk.is_dead() || matches!(self.ending, Ending::Trouble(..))
    }

    /// What was said may be said.
    pub(super) fn accept(&self, error: &Error, doing: &str) {
        let may_be = match error.kind() {
            ErrorKind::Io | ErrorKind::ReadOnly => self.has_trouble(),
            ErrorKind::Exhausted => self.is_limited || self.has_trouble(),
            ErrorKind::Corruption => self.disk.has_evicted(),
            _ => false,
        };
        assert!(may_be, "{self}: {doing}: {error}");
    }

    /// What was done, if it was.
    pub(super) fn accepted<T>(&self, done: Result<T>, doing: &str) -> Option<T> {
        done.inspect_err(|error| self.accept(error, doing)).ok()
    }

    /// By which write a key of a thread has this value.
    pub(super) fn serial_of(&self, owner: u8, n: u16, found: &[u8], doing: &str) -> u32 {
        let serial = serial_of(found).unwrap_or_default();
        let is_whole = found == value(owner, n, serial, self.value_bytes);
        assert!(is_whole, "{self}: {doing}: key {n} of thread {owner} has {} bytes that nobody wrote", found.len());
        serial
    }

    /// What all keys in the families hold that are to be found, by thread.
    ///
    /// # Errors
    /// As the store's.
    pub(super) fn contents(&self, db: &Db, doing: &str) -> Result<Vec<State>> {
        let mut states = vec![State::new(); WRITERS.into()];
        for family in db.column_families() {
            for (key, value) in forward(db, &family, &ReadOptions::default())? {
                let (owner, n) = parse(&key).unwrap_or_else(|| panic!("{self}: {doing}: a key {key:?}"));
                let serial = self.serial_of(owner, n, &value, doing);
                states[usize::from(owner)].insert((place_of(&family, owner), n), serial);
            }
        }
        Ok(states)
    }

    /// A check finds nothing.
    pub(super) fn assert_sound(&self, db: &Db, doing: &str) {
        let check = db.check(&mut |_| {}).unwrap_or_else(|error| panic!("{self}: {doing}: {error}"));
        assert!(check.errors.is_empty(), "{self}: {doing}: {:?}", check.errors);
    }
}

fn place_of(family: &ColumnFamily, owner: u8) -> Place {
    super::ledger::PLACES
        .into_iter()
        .find(|place| place.family(owner) == family.name())
        .expect("one of the thread's families")
}
