//! Flush and compaction: the operands of a key become its value where that is known, else fewer operands where the operator can do that.
//!
//! - FO1: what was not merged is passed on as it came, in the order in which it came (OP3).
//! - FO2: memory for the operands of a key is bounded: beyond, those that came are merged among themselves, if at all.
//! - FO3: a value in a blob file that operands were merged into is garbage there, counted by the sieve as if it was overwritten.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use esker_format::limits;
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};

use super::Operator;
use crate::Result;
use crate::compaction::{Fate, Sieve};
use crate::entry;
use crate::pinned::PinnedSlice;

/// See FO2.
const BYTES_MAX: usize = 64 << 20;

/// What an operator answers; nothing if it panics (OP3): whoever reads the key is told, and whoever writes is not kept from it.
fn asked(ask: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_default()
}

/// Reads the value of a user key to which a pointer leads; `None` if it cannot be had here.
type ReadBase<'a> = dyn FnMut(&[u8], &[u8]) -> Result<Option<PinnedSlice>> + 'a;

/// Whoever takes the entries that are left.
type Each<'a> = dyn FnMut(&InternalKey<'_>, &[u8], &[u8]) -> Result<()> + 'a;

/// See the module's head.
pub(crate) struct Fold<'a> {
    operator: Option<Operator>,
    read: Box<ReadBase<'a>>,
    /// Internal keys and operands of those that wait.
    bytes: Vec<u8>,
    /// Operands of one key that no snapshot tells apart, the newest first: where its internal key lies, and where the operand.
    waiting: Vec<(Range<usize>, Range<usize>)>,
    /// Between which snapshots they lie.
    stripe: usize,
    /// See FO2.
    bytes_max: usize,
}

impl<'a> Fold<'a> {
    /// By `operator`, if there is one; `read` is asked for values in blob files.
    pub(crate) fn new(
        operator: Option<Operator>,
        read: impl FnMut(&[u8], &[u8]) -> Result<Option<PinnedSlice>> + 'a,
    ) -> Self {
        Self { operator, read: Box::new(read), bytes: Vec::new(), waiting: Vec::new(), stripe: 0, bytes_max: BYTES_MAX }
    }

    /// By nobody: operands stay as they are.
    pub(crate) fn none() -> Self {
        Self::new(None, |_, _| Ok(None))
    }

    #[cfg(test)]
    pub(super) fn within(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Takes the entry if it can, which the sieve does or does not let through; `false`: it goes its way, and nothing waits any more.
    #[inline]
    pub(crate) fn takes(
        &mut self,
        key: &InternalKey<'_>,
        value: &[u8],
        fate: Fate,
        sieve: &mut Sieve<'_>,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        if self.waiting.is_empty() && (key.kind != ValueKind::Merge || self.operator.is_none()) {
            return Ok(false);
        }
        self.decide(key, value, fate, sieve, each)
    }

    #[cold]
    fn decide(
        &mut self,
        key: &InternalKey<'_>,
        value: &[u8],
        fate: Fate,
        sieve: &mut Sieve<'_>,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        let stripe = sieve.stripe_of(key.sequence);
        let is_same_key = self.user_key() == Some(key.user_key);
        let is_same = is_same_key && self.stripe == stripe;
        // A single deletion that went, and what it hides: as if they had not been.
        if is_same_key && fate == Fate::Dropped && key.kind != ValueKind::Deletion {
            return Ok(true);
        }
        if is_same && self.merge_into(key, value, sieve, each)? {
            return Ok(true);
        }
        let is_operand = key.kind == ValueKind::Merge && fate == Fate::Kept;
        if !is_same || !is_operand || self.bytes.len() > self.bytes_max {
            self.settle(!is_same_key, sieve, each)?;
        }
        if is_operand {
            let start = self.bytes.len();
            internal_key::append(&mut self.bytes, key.user_key, key.sequence, key.kind);
            let end = self.bytes.len();
            self.bytes.extend_from_slice(value);
            self.waiting.push((start..end, end..self.bytes.len()));
            self.stripe = stripe;
        }
        Ok(is_operand)
    }

    /// The last entry of the run was given.
    pub(crate) fn finish(&mut self, sieve: &mut Sieve<'_>, each: &mut Each<'_>) -> Result<()> {
        self.settle(true, sieve, each)
    }

    /// Merges what waits into the entry right below, if that is what it was merged into by the user. What a single deletion leaves is not: once
    /// it goes with the value that it cancels, something older may show.
    fn merge_into(
        &mut self,
        key: &InternalKey<'_>,
        value: &[u8],
        sieve: &mut Sieve<'_>,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        let merged = match key.kind {
            ValueKind::Value => self.merged(Some(value)),
            ValueKind::Deletion => self.merged(None),
            ValueKind::BlobIndex => match (self.read)(key.user_key, value)? {
                Some(existing) => self.merged(Some(&existing)),
                None => None,
            },
            _ => None,
        };
        let Some(merged) = merged else { return Ok(false) };
        if key.kind == ValueKind::BlobIndex {
            sieve.count_garbage(key.user_key, value)?;
        }
        self.pass_value(&merged, sieve, each)?;
        Ok(true)
    }

    /// Nothing else comes that they could be merged into; `is_last` if nothing else of their key comes at all.
    fn settle(&mut self, is_last: bool, sieve: &mut Sieve<'_>, each: &mut Each<'_>) -> Result<()> {
        let Some(user_key) = self.user_key() else { return Ok(()) };
        if is_last
            && !sieve.may_hold_below(user_key)
            && let Some(merged) = self.merged(None)
        {
            return self.pass_value(&merged, sieve, each);
        }
        if let Some(one) = self.merged_ahead() {
            // It is as new as the newest of them.
            self.waiting.truncate(1);
            return self.pass(Some(&one), each);
        }
        self.pass(None, each)
    }

    fn user_key(&self) -> Option<&[u8]> {
        let (internal, _) = self.waiting.first()?;
        Some(internal_key::user_key(self.bytes.get(internal.clone())?))
    }

    /// The oldest first.
    fn operands(&self) -> Vec<&[u8]> {
        self.waiting.iter().rev().filter_map(|(_, operand)| self.bytes.get(operand.clone())).collect()
    }

    fn merged(&self, existing: Option<&[u8]>) -> Option<Vec<u8>> {
        let (operator, key) = (self.operator.as_ref()?, self.user_key()?);
        let merged = asked(|| operator.full_merge(key, existing, &self.operands()));
        merged.filter(|value| value.len() <= limits::VALUE_BYTES_MAX)
    }

    fn merged_ahead(&self) -> Option<Vec<u8>> {
        let operands = self.operands();
        if operands.len() < 2 {
            return None;
        }
        let (operator, key) = (self.operator.as_ref()?, self.user_key()?);
        let merged = asked(|| operator.partial_merge(key, &operands));
        merged.filter(|operand| operand.len() <= limits::VALUE_BYTES_MAX)
    }

    /// Passes the value on that they have become.
    fn pass_value(&mut self, value: &[u8], sieve: &Sieve<'_>, each: &mut Each<'_>) -> Result<()> {
        let Some(newest) = self.waiting.first().and_then(|(internal, _)| self.bytes.get(internal.clone())) else {
            return Ok(());
        };
        let newest = InternalKey::decode(newest).map_err(|error| entry::unreadable_key(newest, error))?;
        let sequence =
            if sieve.is_timeless(newest.user_key, self.stripe) { SequenceNumber::new(0) } else { newest.sequence };
        let key = InternalKey { sequence, kind: ValueKind::Value, ..newest };
        let mut internal = Vec::with_capacity(key.user_key.len() + internal_key::TAG_BYTES);
        internal_key::append(&mut internal, key.user_key, key.sequence, key.kind);
        each(&key, &internal, value)?;
        self.forget();
        Ok(())
    }

    /// Passes them on; with `one`, that in place of the first.
    fn pass(&mut self, one: Option<&[u8]>, each: &mut Each<'_>) -> Result<()> {
        for (internal, operand) in &self.waiting {
            let (internal, operand) = (self.bytes.get(internal.clone()), self.bytes.get(operand.clone()));
            let (Some(internal), Some(operand)) = (internal, one.or(operand)) else { continue };
            let key = InternalKey::decode(internal).map_err(|error| entry::unreadable_key(internal, error))?;
            each(&key, internal, operand)?;
        }
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.bytes.clear();
        self.waiting.clear();
    }
}
