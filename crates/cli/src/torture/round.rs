//! One life of a child, its end, and what is there afterwards.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::child::{DONE, MESSAGE_BYTES, NO_ROOM, OPENED};
use super::engine::Engine;
use super::full::FullDisk;
use super::work::{State, apply, operation, thread_of};
use super::{Choice, Report, THREADS, child_command, name};
use crate::bench::random::Random;
use crate::failure::Failure;
use crate::kind::Kind;

/// The signal that [`Child::kill`] sends.
const KILL: i32 = 9;

/// A store, and what must be in it.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    seed: u64,
    at_write: bool,
    /// Of each thread, how many of its operations are in the store, and what they leave.
    threads: Vec<(u64, State)>,
}

impl Ledger {
    /// Of a store that is yet to be made.
    pub(crate) fn new(kind: Kind, path: &Path, seed: u64, at_write: bool) -> Self {
        Self { kind, path: path.to_owned(), seed, at_write, threads: vec![(0, State::new()); THREADS] }
    }
}

/// What a round showed.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Everything is there.
    Sound,
    /// This is not.
    Wrong(String),
}

/// What a child said before it was killed.
#[derive(Debug, Default)]
struct Said {
    opened: bool,
    no_room: bool,
    /// Of each thread, the highest count of operations acknowledged.
    done: Vec<u64>,
}

/// Starts a child, kills it at a random moment, and compares.
pub(crate) fn play(
    ledger: &mut Ledger,
    random: &mut Random,
    life_ms_max: u64,
    full_disk: Option<&FullDisk>,
    report: &mut Report,
) -> Result<Outcome, Failure> {
    // Short lives are many: they end in the midst of opening.
    let life_ms = match random.below(4) {
        0 => random.below(20),
        1 => random.below(200),
        _ => random.below(life_ms_max),
    };
    let choice = random.next();
    if let Some(disk) = full_disk {
        disk.fill()?;
    }
    let (said, status, complaint) = live(ledger, choice, Duration::from_millis(life_ms))?;
    if let Some(disk) = full_disk {
        disk.empty()?;
    }
    report.kills += 1;
    report.kills_in_open += u64::from(!said.opened);
    report.full_disks += u64::from(said.no_room);
    // On a full disk an open may be refused; nothing else may be.
    let is_refusal = full_disk.is_some() && complaint.starts_with("esker: exhausted");
    if died_of_itself(status) && !is_refusal {
        return Ok(Outcome::Wrong(format!("the process that wrote ended with {status}: {complaint}")));
    }
    compare(ledger, &said, random.next(), report)
}

/// Whether a child came to an end that is neither the kill's nor its own good one: it complained, or crashed.
fn died_of_itself(status: ExitStatus) -> bool {
    status.signal() != Some(KILL) && !status.success()
}

/// A child's life. What it said, how it ended, and what it complained of.
fn live(ledger: &Ledger, choice: u64, life: Duration) -> Result<(Said, ExitStatus, String), Failure> {
    let mut command = child_command()?;
    command.arg(&ledger.path).arg("--kind").arg(name(ledger.kind));
    command.arg("--seed").arg(ledger.seed.to_string()).arg("--choice").arg(choice.to_string());
    if ledger.at_write {
        command.arg("--at-write");
    }
    for (done, _) in &ledger.threads {
        command.arg("--done").arg(done.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = |error: std::io::Error| Failure::new(format_args!("starting a process to kill: {error}"));
    let mut child = command.spawn().map_err(started)?;
    let heard = hear(&mut child);
    let complained = complaints(&mut child);
    // It hears the end of the pipe at once, should the child end of itself.
    let (said, _) = (wait(&heard, life), child.kill());
    let status = child.wait().map_err(|error| Failure::new(format_args!("waiting for a killed process: {error}")))?;
    let mut said = said;
    heard.iter().for_each(|message| note(&mut said, message));
    let complaint = complained.recv().unwrap_or_default();
    Ok((said, status, complaint.trim().to_owned()))
}

type Message = [u8; MESSAGE_BYTES];

/// Messages of the child, as they come.
fn hear(child: &mut Child) -> Receiver<Message> {
    let (sender, receiver) = channel();
    if let Some(mut pipe) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut message = [0; MESSAGE_BYTES];
            while pipe.read_exact(&mut message).is_ok() && sender.send(message).is_ok() {}
        });
    }
    receiver
}

fn complaints(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(mut pipe) = child.stderr.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            let _ = sender.send(text);
        });
    }
    receiver
}

/// Listens for so long, or until the child is silent for good.
fn wait(heard: &Receiver<Message>, life: Duration) -> Said {
    let mut said = Said { done: vec![0; THREADS], ..Said::default() };
    let until = std::time::Instant::now() + life;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match heard.recv_timeout(left) {
            Ok(message) if !left.is_zero() => note(&mut said, message),
            Ok(message) => {
                note(&mut said, message);
                return said;
            }
            Err(_) => return said,
        }
    }
}

fn note(said: &mut Said, [tag, thread, number @ ..]: Message) {
    match tag {
        OPENED => said.opened = true,
        NO_ROOM => said.no_room = true,
        DONE => {
            if let Some(done) = said.done.get_mut(usize::from(thread)) {
                *done = (*done).max(u64::from_le_bytes(number));
            }
        }
        _ => {}
    }
}

/// Opens the store and compares it with what the ledger and the child say (T3).
fn compare(ledger: &mut Ledger, said: &Said, choice: u64, report: &mut Report) -> Result<Outcome, Failure> {
    let wrong = |what: String| Ok(Outcome::Wrong(what));
    let engine = match Engine::open(ledger.kind, &ledger.path, Choice { random: choice, at_write: ledger.at_write }) {
        Ok(engine) => engine,
        Err(error) => return wrong(format!("the store cannot be opened again: {error}")),
    };
    let found = match engine.contents() {
        Ok(found) => found,
        Err(error) => return wrong(format!("the store cannot be read: {error}")),
    };
    report.compared += found.len() as u64;
    let mut parts = vec![State::new(); THREADS];
    for (key, value) in found {
        match thread_of(ledger.kind, &key).and_then(|thread| parts.get_mut(thread)) {
            Some(part) => drop(part.insert(key, value)),
            None => return wrong(format!("{} was never written", String::from_utf8_lossy(&key))),
        }
    }
    for (thread, ((count, state), part)) in ledger.threads.iter_mut().zip(parts).enumerate() {
        let acknowledged = said.done.get(thread).copied().unwrap_or(0).max(*count);
        report.acknowledged += acknowledged - *count;
        while *count < acknowledged {
            apply(state, &operation(ledger.kind, ledger.seed, thread, *count, state));
            *count += 1;
        }
        if part == *state {
            continue;
        }
        let missing = difference(state, &part);
        apply(state, &operation(ledger.kind, ledger.seed, thread, *count, state));
        *count += 1;
        if part != *state {
            return wrong(format!(
                "thread {thread}, {acknowledged} operations acknowledged: {missing}; and with the one under way, {}",
                difference(state, &part)
            ));
        }
        report.in_flight_kept += 1;
    }
    match engine.check_and_close() {
        Ok(None) => Ok(Outcome::Sound),
        Ok(Some(damage)) => wrong(format!("the check finds: {damage}")),
        Err(error) => wrong(format!("the store cannot be checked and closed: {error}")),
    }
}

/// The first key in which two states differ.
fn difference(expected: &State, found: &State) -> String {
    let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let lost = expected.iter().find(|(key, value)| found.get(*key) != Some(*value));
    let extra = found.keys().find(|key| !expected.contains_key(*key));
    match (lost, extra) {
        (Some((key, _)), _) if !found.contains_key(key) => format!("{} is lost", name(key)),
        (Some((key, _)), _) => format!("{} has another value", name(key)),
        (None, Some(key)) => format!("{} is back", name(key)),
        (None, None) => "nothing differs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_crashed_was_not_killed() {
        // As wait(2) has them: a signal that ended the process, with 128 where it left a core; an exit code above it.
        for (raw, expected) in
            [(KILL, false), (0, false), (6, true), (7 | 128, true), (11, true), (15, true), (2 << 8, true)]
        {
            let status = ExitStatus::from_raw(raw);
            assert_eq!(died_of_itself(status), expected, "{status}");
        }
    }
}
