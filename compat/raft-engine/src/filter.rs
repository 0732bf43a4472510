//! Mending a log by a script in [Rhai](https://rhai.rs), as the original's `unsafe_repair` does (feature `scripting`).
//!
//! The script may have these functions; for one that it does not have, everything stays. `first`, `count` and `rewrite_count` are what the
//! group has by the items that were kept so far: its first index, its entries, and those of them from the rewrite queue. `queue` is 0 for
//! the append queue, which comes first, and 1 for the rewrite queue. Each returns 0 to keep the item, 1 to discard it, 2 to keep it and
//! discard the entries that the group had before.
//!
//! ```rhai
//! fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { 0 }
//! fn filter_compact(id, first, count, rewrite_count, queue, compact_to) { 0 }
//! fn filter_clean(id, first, count, rewrite_count, queue) { 0 }
//! ```
//!
//! What differs from the original: any other number is an error; an item is shown once; the rewrite queue may be filtered alone; the
//! log must not be open.

use std::collections::HashMap;
use std::path::Path;

use esker_env::Env;
use esker_raft_log::{ErrorKind, FilterOptions, Offered, Options, Queue, RaftLog, Verdict};
use rhai::{AST, Engine, EvalAltResult, Scope};

use crate::engine::LogQueue;
use crate::{Error, Result};

/// What a group has, as scripts are told.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    first: u64,
    count: u64,
    rewritten: u64,
}

impl State {
    fn next(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// What an item makes of it; what no sound log holds is an error.
    fn apply(&mut self, queue: Queue, item: Offered) -> std::result::Result<(), &'static str> {
        match item {
            Offered::Entries { first, last } => {
                let is_apart = self.count > 0 && (first > self.next() || first < self.first);
                match queue {
                    Queue::Append if is_apart && first < self.first => return Err("entries below what was compacted"),
                    Queue::Append if is_apart => return Err("a gap between entries"),
                    Queue::Rewrite if is_apart => *self = Self::default(),
                    _ => {}
                }
                let rewritten_to = self.first.saturating_add(self.rewritten);
                if self.count > 0 && queue == Queue::Rewrite && rewritten_to < first {
                    return Err("a gap between rewritten entries");
                }
                if self.count == 0 {
                    (self.first, self.rewritten) = (first, 0);
                }
                let before = first.saturating_sub(self.first);
                self.count = last.saturating_sub(self.first).saturating_add(1);
                self.rewritten = if queue == Queue::Rewrite { self.count } else { self.rewritten.min(before) };
            }
            Offered::Compact { index } if self.count > 0 && index > self.first => {
                if index >= self.next() {
                    *self = Self::default();
                } else {
                    let gone = index - self.first;
                    (self.first, self.count) = (index, self.count - gone);
                    self.rewritten = self.rewritten.saturating_sub(gone);
                }
            }
            Offered::Clean => *self = Self::default(),
            _ => {}
        }
        Ok(())
    }
}

struct Script {
    engine: Engine,
    ast: AST,
}

impl Script {
    fn new(source: &str) -> Result<Self> {
        let engine = Engine::new();
        let ast = engine.compile(source).map_err(|error| Error::InvalidArgument(error.to_string()))?;
        Ok(Self { engine, ast })
    }

    fn ask(&self, group: u64, state: State, queue: Queue, item: Offered) -> esker_raft_log::Result<Verdict> {
        let (id, first, count, rewritten) =
            (group as i64, state.first as i64, state.count as i64, state.rewritten as i64);
        let queue = LogQueue::from(queue) as i64;
        let (scope, engine, ast) = (&mut Scope::new(), &self.engine, &self.ast);
        let (name, asked) = match item {
            Offered::Entries { first: from, last } => {
                let arguments = (id, first, count, rewritten, queue, from as i64, last as i64);
                ("filter_append", engine.call_fn::<i64>(scope, ast, "filter_append", arguments))
            }
            Offered::Compact { index } => {
                let arguments = (id, first, count, rewritten, queue, index as i64);
                ("filter_compact", engine.call_fn(scope, ast, "filter_compact", arguments))
            }
            Offered::Clean => {
                ("filter_clean", engine.call_fn(scope, ast, "filter_clean", (id, first, count, rewritten, queue)))
            }
            _ => return Ok(Verdict::Keep),
        };
        let refuse = |reason: String| Err(esker_raft_log::Error::new(ErrorKind::InvalidArgument, reason));
        match asked {
            Ok(0) => Ok(Verdict::Keep),
            Ok(1) => Ok(Verdict::Discard),
            Ok(2) => Ok(Verdict::DiscardEarlier),
            Ok(other) => refuse(format!("{name} returned {other}: 0, 1 and 2 are known")),
            // One that the script lacks; not one that its functions call.
            Err(error) => match *error {
                EvalAltResult::ErrorFunctionNotFound(missing, _) if missing.starts_with(name) => Ok(Verdict::Keep),
                other => refuse(format!("{name}: {other}")),
            },
        }
    }
}

pub(crate) fn run(path: &Path, queue: Option<LogQueue>, script: &str, env: &Env) -> Result<()> {
    let script = Script::new(script)?;
    let mut states: HashMap<u64, State> = HashMap::new();
    let mut decide = |queue: Queue, group: u64, item: Offered| {
        let state = states.entry(group).or_default();
        let verdict = script.ask(group, *state, queue, item)?;
        if verdict == Verdict::DiscardEarlier {
            *state = State::default();
        }
        if verdict != Verdict::Discard {
            state.apply(queue, item).map_err(|reason| {
                esker_raft_log::Error::new(ErrorKind::Corruption, format!("group {group}: {reason}"))
            })?;
        }
        Ok(verdict)
    };
    let queue = queue.map(|queue| if queue == LogQueue::Append { Queue::Append } else { Queue::Rewrite });
    match RaftLog::filter(
        path,
        &Options::default(),
        env,
        &FilterOptions { queue, ..FilterOptions::default() },
        &mut decide,
    ) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::InvalidArgument(error.to_string())),
        done => Ok(done.map(drop)?),
    }
}
