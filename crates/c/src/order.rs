//! Orders of keys that a program has.

use std::cmp::Ordering;
use std::ffi::c_int;

use esker::{Comparator, Error};

use crate::error::{Failure, attempt};
use crate::memory::{Slice, State, Text};
use crate::options::DbOptions;

/// How `a` lies to `b`: less than 0 before it, 0 if they are the same bytes, else behind it. Total, and the same at all times. Called by several threads
/// at once.
pub type CompareFunction = Option<extern "C" fn(state: State, a: Slice, b: Slice) -> c_int>;

struct ByFunction {
    name: String,
    state: State,
    compare: extern "C" fn(state: State, a: Slice, b: Slice) -> c_int,
}

impl Comparator for ByFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        (self.compare)(self.state, Slice::from(a), Slice::from(b)).cmp(&0)
    }
}

/// Makes an order of keys known by `name`, for families whose keys lie in it, and for `esker_db_options_set_family(.., "comparator", name)` from then on.
/// `compare` is given `state`. Both are asked for until the process ends: add an order once, and keep its state.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_add_comparator(
    options: &mut DbOptions,
    name: Text,
    state: State,
    compare: CompareFunction,
) -> Failure {
    attempt(|| {
        let Some(compare) = compare else {
            return Err(Error::invalid_argument("a comparator needs a function that compares"));
        };
        let name = name.read()?.to_owned();
        options.0.comparators.push(Box::leak(Box::new(ByFunction { name, state, compare })));
        Ok(())
    })
}
