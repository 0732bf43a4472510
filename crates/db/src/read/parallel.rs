//! A family in parts, of one moment and about equally long, for as many threads as the caller likes.
//!
//! - P1: the parts share no key, and together they are what one iterator would show.
//! - P2: where they are cut follows from the indexes in memory; nothing is read for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::family::{Family, View};
use crate::iterate::DbIterator;
use crate::options::ReadOptions;
use crate::store::Store;
use crate::{Error, Result};

/// Most threads of one scan.
const THREADS_MAX: usize = 256;
/// Most parts.
const PARTS_MAX: usize = 64 << 10;
/// Parts for each thread of a scan, so that nobody waits long for the last.
const PARTS_PER_THREAD: usize = 4;
/// Places looked at for each cut: more make parts more equal.
const SAMPLES_PER_PART: u64 = 8;

/// Keys that cut what `options` bound into at most `parts` parts; ascending.
fn cuts(view: &View, options: &ReadOptions, parts: usize) -> Vec<Vec<u8>> {
    let (lower, upper) = (options.lower_bound.as_deref(), options.upper_bound.as_deref());
    let tables: Vec<_> =
        view.version.tables().map(|(_, table)| table).filter(|table| table.overlaps(lower, upper)).collect();
    let total_bytes: u64 = tables.iter().map(|table| table.meta.file_bytes).sum();
    let wanted = SAMPLES_PER_PART.saturating_mul(parts as u64);
    let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
    for table in tables {
        let bytes = table.meta.file_bytes;
        let share = u128::from(bytes) * u128::from(wanted) / u128::from(total_bytes.max(1));
        let mut keys = vec![table.smallest().to_vec()];
        keys.extend(table.table.separators(usize::try_from(share).unwrap_or(usize::MAX)));
        let weight = bytes / keys.len() as u64;
        samples.extend(keys.into_iter().map(|key| (key, weight)));
    }
    samples.retain(|(key, _)| lower.is_none_or(|lower| &**key > lower) && upper.is_none_or(|upper| &**key < upper));
    samples.sort_unstable();
    let sampled_bytes: u64 = samples.iter().map(|(_, weight)| weight).sum();
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    let mut passed = 0;
    for (key, weight) in samples {
        // The cut after part n lies where n + 1 parts of the bytes were passed.
        let due = u128::from(passed) * parts as u128 >= u128::from(sampled_bytes) * (cuts.len() as u128 + 1);
        if due && cuts.len() + 1 < parts && cuts.last() != Some(&key) {
            cuts.push(key);
        }
        passed += weight;
    }
    cuts
}

/// What the threads of a scan share.
struct Scan<F> {
    /// Parts that nobody walks through yet, the last first.
    parts: Mutex<Vec<DbIterator>>,
    each: F,
    is_over: AtomicBool,
    /// The first failure; ends all.
    failure: Mutex<Option<Failure>>,
}

enum Failure {
    Error(Error),
    /// What a thread of the scan panicked with: goes on in the caller's thread.
    Panic(Box<dyn Any + Send>),
}

impl<F: Fn(&DbIterator) -> Result<()>> Scan<F> {
    fn fail(&self, failure: Failure) {
        self.is_over.store(true, Ordering::Relaxed);
        self.parts.lock().clear();
        self.failure.lock().get_or_insert(failure);
    }

    fn work(&self) {
        match catch_unwind(AssertUnwindSafe(|| self.walk())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(Failure::Error(error)),
            Err(panic) => self.fail(Failure::Panic(panic)),
        }
    }

    fn walk(&self) -> Result<()> {
        loop {
            let part = self.parts.lock().pop();
            let Some(mut part) = part else { return Ok(()) };
            part.seek_to_first()?;
            while part.valid() {
                (self.each)(&part)?;
                if self.is_over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                part.next()?;
            }
        }
    }
}

impl Store {
    /// See [`Db::split_cf`](crate::Db::split_cf).
    pub(crate) fn split(
        self: &Arc<Self>,
        family: &Arc<Family>,
        options: &ReadOptions,
        parts: usize,
    ) -> Result<Vec<DbIterator>> {
        if !(1..=PARTS_MAX).contains(&parts) {
            return Err(Error::invalid_argument(format!("{parts} parts, must be in 1..={PARTS_MAX}")));
        }
        let (view, sequence) = self.moment(family, options)?;
        let mut lower = options.lower_bound.clone();
        let uppers = cuts(&view, options, parts).into_iter().map(Some).chain([options.upper_bound.clone()]);
        let part = |upper: Option<Vec<u8>>| {
            let bounds = ReadOptions { lower_bound: lower.take(), upper_bound: upper.clone(), ..options.clone() };
            lower = upper;
            let store = Arc::downgrade(self);
            DbIterator::new(store, family.clone(), view.clone(), sequence, &bounds, self.blobs.clone())
        };
        Ok(uppers.map(part).collect())
    }

    /// See [`Db::parallel_scan_cf`](crate::Db::parallel_scan_cf).
    pub(crate) fn parallel_scan<F>(
        self: &Arc<Self>,
        family: &Arc<Family>,
        options: &ReadOptions,
        threads: usize,
        each: F,
    ) -> Result<()>
    where
        F: Fn(&DbIterator) -> Result<()> + Send + Sync + 'static,
    {
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(Error::invalid_argument(format!("{threads} threads, must be in 1..={THREADS_MAX}")));
        }
        let mut parts = self.split(family, options, if threads == 1 { 1 } else { threads * PARTS_PER_THREAD })?;
        parts.reverse();
        let (is_over, failure) = (AtomicBool::new(false), Mutex::default());
        let scan = Arc::new(Scan { parts: Mutex::new(parts), each, is_over, failure });
        let mut others = Vec::new();
        for number in 1..threads {
            let shared = scan.clone();
            match self.env.threads.spawn(&format!("esker-scan-{number}"), Box::new(move || shared.work())) {
                Ok(thread) => others.push(thread),
                Err(error) => {
                    scan.fail(Failure::Error(error.into()));
                    break;
                }
            }
        }
        scan.work();
        for mut thread in others {
            thread.join();
        }
        let failure = scan.failure.lock().take();
        match failure {
            None => Ok(()),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic(panic)) => resume_unwind(panic),
        }
    }
}
