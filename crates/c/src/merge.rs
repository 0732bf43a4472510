//! Merge operators that a program has.

use std::fmt;
use std::sync::Arc;

use esker::{Error, MergeOperator};

use crate::error::{Failure, attempt};
use crate::memory::{Many, Slice, State, Text};
use crate::options::DbOptions;

/// Where a function of the program's puts the value that it makes.
#[derive(Debug, Default)]
pub struct Merged(Vec<u8>);

impl Merged {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Adds bytes to the end of what was made; it begins with none. `false` if they are no bytes.
#[unsafe(no_mangle)]
pub extern "C" fn esker_merged_append(merged: &mut Merged, bytes: Slice) -> bool {
    let Ok(bytes) = bytes.bytes() else { return false };
    merged.0.extend_from_slice(bytes);
    true
}

/// What a value becomes: `existing` is the value before, NULL if there is none, `operands` are `count` operands, one at least, the oldest first. What
/// it becomes goes to `merged`; `false`: it cannot be told. Called by several threads at once, at any time while the store is open; it must not call
/// the store.
pub type MergeFunction = Option<
    extern "C" fn(
        state: State,
        key: Slice,
        existing: Option<&Slice>,
        operands: Many<Slice>,
        count: usize,
        merged: &mut Merged,
    ) -> bool,
>;

/// Frees the state of a function that nobody calls any more.
pub type FreeFunction = Option<extern "C" fn(state: State)>;

struct Operator {
    name: String,
    state: State,
    full: MergeFunction,
    partial: MergeFunction,
    free: FreeFunction,
}

impl Operator {
    fn call(
        &self,
        function: MergeFunction,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Option<Vec<u8>> {
        let function = function?;
        let existing = existing.map(Slice::from);
        let operands: Vec<Slice> = operands.iter().map(|operand| Slice::from(*operand)).collect();
        let mut merged = Merged::default();
        let is_told = function(
            self.state,
            Slice::from(key),
            existing.as_ref(),
            Many::from(&*operands),
            operands.len(),
            &mut merged,
        );
        is_told.then_some(merged.0)
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("name", &self.name).finish_non_exhaustive()
    }
}

impl MergeOperator for Operator {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.call(self.full, key, existing, operands)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.call(self.partial, key, None, operands)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            free(self.state);
        }
    }
}

/// Makes a merge operator known by `name`, for families whose OPTIONS say that, and for `esker_db_options_set_family(.., "merge_operator", name)`
/// from then on. `partial`, which may be NULL, makes one operand of several, without a value. `state` is what they are given; `free`, which may be NULL, is
/// called with it once options and store are done with the operator, and before this returns an error.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_add_merge_operator(
    options: &mut DbOptions,
    name: Text,
    state: State,
    full: MergeFunction,
    partial: MergeFunction,
    free: FreeFunction,
) -> Failure {
    // Before anything can fail: it frees the state.
    let mut operator = Operator { name: String::new(), state, full, partial, free };
    attempt(|| {
        if full.is_none() {
            return Err(Error::invalid_argument("a merge operator needs a function that merges"));
        }
        name.read()?.clone_into(&mut operator.name);
        options.0.merge_operators.push(Arc::new(operator));
        Ok(())
    })
}
