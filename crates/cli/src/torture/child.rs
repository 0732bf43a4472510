//! The process that is killed: writes, and says so after each operation.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{Error, ErrorKind};

use super::Choice;
use super::engine::Engine;
use super::work::{State, apply, operation};
use crate::failure::Failure;
use crate::kind::Kind;

/// A message is a tag, a thread, and a number in eight bytes.
pub(crate) const MESSAGE_BYTES: usize = 10;
/// The store is open.
pub(crate) const OPENED: u8 = b'o';
/// An operation was acknowledged.
pub(crate) const DONE: u8 = b'd';
/// An operation was refused: there is no room.
pub(crate) const NO_ROOM: u8 = b'f';
/// A sync failed: the store takes no more writes until it is reopened.
pub(crate) const READ_ONLY: u8 = b'r';

/// How long a writer waits that found no room.
const PATIENCE: Duration = Duration::from_millis(2);
/// A Raft log is purged every so many operations of all threads.
const TIDY_EVERY: u64 = 500;

/// Where a child begins.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) kind: Kind,
    pub(crate) path: &'a Path,
    pub(crate) seed: u64,
    /// Chooses the options.
    pub(crate) choice: Choice,
    /// Of each thread, how many operations were done.
    pub(crate) done: Vec<u64>,
}

/// Writes until it is killed, or something is wrong.
pub(crate) fn run(start: &Start<'_>) -> Result<(), Failure> {
    let out = Mutex::new(std::io::stdout());
    let engine = Engine::open(start.kind, start.path, start.choice)?;
    let found = engine.contents()?;
    say(&out, OPENED, 0, 0)?;
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (start.done.iter().enumerate())
            .map(|(thread, &done)| {
                let mine = |(key, _): &(&Vec<u8>, &Vec<u8>)| super::work::thread_of(start.kind, key) == Some(thread);
                let state: State = found.iter().filter(mine).map(|(key, value)| (key.clone(), value.clone())).collect();
                let (engine, out, count) = (&engine, &out, &count);
                scope.spawn(move || write(start, engine, thread, done, state, out, count))
            })
            .collect();
        let mut result = Ok(());
        for thread in threads {
            let joined = thread.join().unwrap_or_else(|_| Err(Failure::new("a thread that wrote panicked")));
            result = result.and(joined);
        }
        result
    })
}

fn write(
    start: &Start<'_>,
    engine: &Engine,
    thread: usize,
    done: u64,
    mut state: State,
    out: &Mutex<std::io::Stdout>,
    count: &AtomicU64,
) -> Result<(), Failure> {
    for number in done.. {
        let operation = operation(start.kind, start.seed, thread, number, &state);
        while let Err(error) = engine.write(&operation) {
            match error.kind() {
                ErrorKind::Exhausted => say(out, NO_ROOM, thread, number)?,
                ErrorKind::ReadOnly => return say(out, READ_ONLY, thread, number),
                _ => return Err(error.into()),
            }
            std::thread::sleep(PATIENCE);
        }
        say(out, DONE, thread, number + 1)?;
        apply(&mut state, &operation);
        if count.fetch_add(1, Ordering::Relaxed) % TIDY_EVERY == TIDY_EVERY - 1 {
            tolerate(engine.tidy())?;
        }
    }
    Ok(())
}

/// Background work may find no room, too.
fn tolerate(result: Result<(), Error>) -> Result<(), Failure> {
    match result {
        Err(error) if !matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::ReadOnly) => Err(error.into()),
        _ => Ok(()),
    }
}

/// One write to the pipe, so that it is there as a whole or not at all.
fn say(out: &Mutex<std::io::Stdout>, tag: u8, thread: usize, number: u64) -> Result<(), Failure> {
    let mut message = [0; MESSAGE_BYTES];
    let fields = [tag, thread as u8].into_iter().chain(number.to_le_bytes());
    message.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let said = out.write_all(&message).and_then(|()| out.flush());
    said.map_err(|error| Failure::new(format_args!("telling what was acknowledged: {error}")))
}
