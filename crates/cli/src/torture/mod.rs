//! `esker torture`: processes that write are killed with -9 at random moments; what they acknowledged must be there.
//!
//! - T1: what every operation does is a function of seed, thread and its number ([`work`]), so a ledger is one number for each thread: how
//!   many of its operations were acknowledged.
//! - T2: the child acknowledges on a pipe; this process, which is not killed, keeps the ledger. What was written to a pipe survives
//!   the writer.
//! - T3: after a kill a thread's part of the store is what it was after the operations acknowledged, or after one more: that which
//!   was under way. Operations are batches, so this also shows that a batch is there as a whole or not at all.

pub(crate) mod child;
mod engine;
mod full;
mod round;
mod work;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bench::random::Random;
use crate::failure::Failure;
use crate::kind::Kind;
use full::FullDisk;
use round::{Ledger, Outcome};

/// Threads that write, each with keys or groups of its own.
pub(crate) const THREADS: usize = 3;
/// Longest that a child lives before it is killed.
const LIFE_MS_MAX: u64 = 1_500;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Request {
    /// Where stores are made, one for each kind.
    pub(crate) path: PathBuf,
    /// Which engines, in turn.
    pub(crate) kinds: Vec<Kind>,
    /// How long.
    pub(crate) time: Duration,
    /// Chooses operations, options and moments.
    pub(crate) seed: u64,
    /// Whether every Db separates values as they are written.
    pub(crate) at_write: bool,
    /// A directory on a small file system that may be filled.
    pub(crate) full_disk: Option<PathBuf>,
}

/// What a store is opened with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// Chooses what is not said.
    pub(crate) random: u64,
    /// See [`Request::at_write`].
    pub(crate) at_write: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Children that were killed.
    pub(crate) kills: u64,
    /// Those of them that had not opened the store yet.
    pub(crate) kills_in_open: u64,
    /// Those that met a full disk.
    pub(crate) full_disks: u64,
    /// Operations that were acknowledged, and found.
    pub(crate) acknowledged: u64,
    /// Operations that were under way when a child was killed, and got in.
    pub(crate) in_flight_kept: u64,
    /// Keys and entries compared.
    pub(crate) compared: u64,
    /// What was wrong, and where the store is that shows it.
    pub(crate) failure: Option<(String, PathBuf)>,
}

/// Rounds until the time is over or something is wrong. `tell` is called after each.
pub(crate) fn run(request: &Request, tell: &mut dyn FnMut(&Report)) -> Result<Report, Failure> {
    let began = Instant::now();
    let mut random = Random::new(request.seed, 0);
    let mut report = Report::default();
    let ledger = |kind: Kind, path: &Path| Ledger::new(kind, path, request.seed, request.at_write);
    let mut stores: Vec<Ledger> =
        request.kinds.iter().map(|&kind| ledger(kind, &request.path.join(name(kind)))).collect();
    let full_disk = request.full_disk.as_deref().map(FullDisk::new).transpose()?;
    let mut on_full: Vec<Ledger> = match &full_disk {
        Some(disk) => {
            let paths = disk.new_stores(&request.kinds)?;
            request.kinds.iter().zip(paths).map(|(&kind, path)| ledger(kind, &path)).collect()
        }
        None => Vec::new(),
    };
    make_dir(&request.path)?;
    let count = stores.len().max(1);
    for turn in 0usize.. {
        if began.elapsed() >= request.time {
            break;
        }
        // Every third turn of each kind is on the full disk.
        let is_full = full_disk.is_some() && (turn / count) % 3 == 2;
        let ledgers = if is_full { &mut on_full } else { &mut stores };
        let Some(ledger) = ledgers.get_mut(turn % count) else { break };
        let ballast = if is_full { full_disk.as_ref() } else { None };
        match round::play(ledger, &mut random, LIFE_MS_MAX, ballast, &mut report)? {
            Outcome::Sound => {}
            Outcome::Wrong(what) => {
                report.failure = Some((what, ledger.path.clone()));
                break;
            }
        }
        tell(&report);
    }
    if report.failure.is_none() {
        for ledger in stores.iter().chain(&on_full) {
            remove_dir(&ledger.path)?;
        }
        // Only if it holds nothing else.
        let _ = std::fs::remove_dir(&request.path);
    }
    Ok(report)
}

/// The directory of a kind's store.
pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Db => "db",
        Kind::Cask => "cask",
        Kind::Raft => "raft",
    }
}

fn make_dir(path: &Path) -> Result<(), Failure> {
    let is_used = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if is_used {
        return Err(Failure::new(format_args!("{} is not empty; torture makes stores of its own", path.display())));
    }
    std::fs::create_dir_all(path).map_err(|error| Failure::io("creating", path, &error))
}

fn remove_dir(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io("removing", path, &error)),
        _ => Ok(()),
    }
}

/// This program, as a child that writes.
fn child_command() -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format_args!("finding this program, to start it again: {error}")))?;
    let mut command = Command::new(program);
    command.arg("torture").arg("--child");
    Ok(command)
}
