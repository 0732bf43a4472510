//! Compaction filters that a program has.

use esker::{CompactionFilter, Error, FilterDecision};

use crate::error::{Failure, attempt, give};
use crate::memory::{Out, Slice, State, Text};
use crate::merge::{FreeFunction, Merged};
use crate::options::DbOptions;

/// Of a value that a compaction meets: it stays.
pub const ESKER_KEEP: u32 = 0;
/// Its key is deleted.
pub const ESKER_REMOVE: u32 = 1;
/// What was made takes its place. Longer than the value it must not be: then that stays.
pub const ESKER_CHANGE: u32 = 2;

/// A value that a compaction filter is asked about.
#[derive(Debug)]
pub struct FilterCandidate<'a>(&'a esker::FilterCandidate<'a>);

/// Its key, which is seen until the filter returns.
#[unsafe(no_mangle)]
pub extern "C" fn esker_filter_candidate_key(candidate: &FilterCandidate<'_>) -> Slice {
    candidate.0.key().into()
}

/// The value, which is seen until the filter returns. One that lies in a blob file is read the first time: decide by the key where that will do.
#[unsafe(no_mangle)]
pub extern "C" fn esker_filter_candidate_value(candidate: &FilterCandidate<'_>, value: Out<Slice>) -> Failure {
    give(value, || Ok(candidate.0.value()?.into()))
}

/// What time it is, in seconds since 1970-01-01 UTC: when the compaction began.
#[unsafe(no_mangle)]
pub extern "C" fn esker_filter_candidate_unix_seconds(candidate: &FilterCandidate<'_>) -> u64 {
    candidate.0.unix_seconds()
}

/// What becomes of a value that a compaction meets: `ESKER_KEEP`, `ESKER_REMOVE`, or `ESKER_CHANGE` into what went to `changed`; anything else keeps it.
/// Called by several threads at once, at any time while the store is open; it must not call the store.
pub type FilterFunction =
    Option<extern "C" fn(state: State, candidate: &FilterCandidate<'_>, changed: &mut Merged) -> u32>;

struct Filter {
    state: State,
    decide: FilterFunction,
    free: FreeFunction,
}

impl Filter {
    fn ask(&self, candidate: &esker::FilterCandidate<'_>) -> FilterDecision {
        let mut changed = Merged::default();
        match self.decide.map(|decide| decide(self.state, &FilterCandidate(candidate), &mut changed)) {
            Some(ESKER_REMOVE) => FilterDecision::Remove,
            Some(ESKER_CHANGE) => FilterDecision::Change(changed.into_bytes()),
            _ => FilterDecision::Keep,
        }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            free(self.state);
        }
    }
}

/// Has compactions of a family ask `decide` about each value that no snapshot sees. `state` is what it is given; `free`, which may be NULL, is called with it
/// once options and store are done with the filter, and before this returns an error. Not in the store's files: a program sets it each time.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_set_compaction_filter(
    options: &mut DbOptions,
    family: Text,
    state: State,
    decide: FilterFunction,
    free: FreeFunction,
) -> Failure {
    // Before anything can fail: it frees the state.
    let filter = Filter { state, decide, free };
    attempt(|| {
        if decide.is_none() {
            return Err(Error::invalid_argument("a compaction filter needs a function that decides"));
        }
        let filter = CompactionFilter::new(move |candidate| filter.ask(candidate));
        options.change_family(family.read()?, |family| family.compaction_filter = Some(filter));
        Ok(())
    })
}
