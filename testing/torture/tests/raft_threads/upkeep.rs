//! What goes on beside those who write, by hand: it changes no answer.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use esker::RaftLog;
use esker::raft::{ErrorKind, Queue};
use fastrand::Rng;

use super::ledger::{GROUPS, WRITERS};
use super::life::{Life, Moment};

/// Forks of a life: their files have two names from then on.
const FORKS_MAX: usize = 2;

/// So many steps, or until the machine dies.
pub(super) fn work(life: &Life, log: &RaftLog, steps: usize, random: &mut Rng) {
    for _ in 0..steps {
        if life.disk.is_dead() {
            return;
        }
        life.flow();
        step(life, log, random);
    }
}

fn step(life: &Life, log: &RaftLog, random: &mut Rng) {
    match random.u8(..16) {
        0..4 => {
            let asked = life.attempted("purging", || log.purge()).unwrap_or_default();
            assert!(asked.iter().all(|id| (1..=GROUPS * WRITERS).contains(id)), "{life}: {asked:?}");
        }
        4 => drop(life.attempted("moving all on", || log.move_on(None))),
        5 | 6 => {
            let stats = log.queue_stats(Queue::Append);
            let until = random.u64(stats.first_file..=stats.last_file);
            life.attempted("moving on", || log.move_on(Some(until)));
        }
        7 => drop(life.attempted("giving up what is stale", || log.purge_stale())),
        8 | 9 => drop(life.attempted("rewriting", || log.rewrite_again())),
        10 => fork(life, log),
        11 | 12 => check(life, log),
        13 => look_beside(life, log),
        14 => drop(life.attempted("syncing", || log.sync())),
        _ => {
            let stats = log.stats();
            assert!(stats.groups as u64 <= GROUPS * WRITERS, "{life}: {stats:?}");
            assert!(stats.append.first_file <= stats.append.last_file, "{life}: {stats:?}");
            assert!(life.has_trouble() || stats.write_error.is_none(), "{life}: {stats:?}");
        }
    }
}

fn fork(life: &Life, log: &RaftLog) {
    let count = life.forks.fetch_add(1, Ordering::Relaxed);
    if count >= FORKS_MAX {
        return;
    }
    let path = PathBuf::from(format!("/fork{}-{count}", life.number));
    let least = life.done_now();
    if life.attempted("forking", || log.fork(&path)).is_some() {
        // Each may be within its next write.
        let most = life.done_now().into_iter().map(|done| done + 1).collect();
        life.moments.lock().unwrap().push(Moment { fork: path, least, most });
    }
}

/// Another process checks the log.
fn check(life: &Life, log: &RaftLog) {
    let done = life.attempt_unless(
        "checking",
        || RaftLog::check_with_env(log.path(), &life.options, &life.env(), &mut |_, _| {}),
        // A file was given up meanwhile.
        |error| error.kind() == ErrorKind::Io,
    );
    if let Some(found) = done {
        let is_sound = found.errors.is_empty() && found.gaps.is_empty() && found.lost.is_empty();
        assert!(life.has_trouble() || is_sound, "{life}: checking beside: {found:?}");
    }
}

/// Another process says what the log holds. It does not see all files at one moment, so of groups that change meanwhile only what is always so is known.
fn look_beside(life: &Life, log: &RaftLog) {
    let done = life.attempt_unless(
        "inspecting",
        || RaftLog::inspect_with_env(log.path(), &life.options, &life.env()),
        |error| error.kind() == ErrorKind::Io,
    );
    for group in done.iter().flat_map(|found| &found.groups) {
        let span = group.first_index.zip(group.last_index).map_or(0, |(first, last)| last + 1 - first);
        let is_right = span == group.entries && (1..=GROUPS * WRITERS).contains(&group.group);
        assert!(is_right, "{life}: inspecting beside: {group:?}");
    }
}
