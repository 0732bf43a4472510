//! A family in parts, of one moment and about equally long, for as many threads as the caller likes.
//!
//! - P1: the parts share no key, and together they are what one iterator would show.
//! - P2: where they are cut follows from the indexes in memory; nothing is read for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::family::Family;
use crate::iterate::DbIterator;
use crate::options::ReadOptions;
use crate::store::Store;
use crate::version::cuts;
use crate::{Error, Result};

/// Most threads of one scan.
const THREADS_MAX: usize = 256;
/// Most parts.
const PARTS_MAX: usize = 64 << 10;
/// Parts for each thread of a scan, so that nobody waits long for the last.
const PARTS_PER_THREAD: usize = 4;

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
        let options = &*options.bounded(family.order)?;
        let (view, sequence) = self.moment(family, options)?;
        let mut lower = options.lower_bound.clone();
        let tables = view.version.tables().map(|(_, table)| table);
        let cuts = cuts(family.order, tables, lower.as_deref(), options.upper_bound.as_deref(), parts);
        let uppers = cuts.into_iter().map(Some).chain([options.upper_bound.clone()]);
        let part = |upper: Option<Vec<u8>>| {
            let bounds = ReadOptions { lower_bound: lower.take(), upper_bound: upper.clone(), ..options.clone() };
            lower = upper;
            let store = Arc::downgrade(self);
            DbIterator::new(
                store,
                family.clone(),
                view.clone(),
                sequence,
                &bounds,
                self.blobs.clone(),
                self.aide.clone(),
            )
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
        if let Err(error) = self.check_here() {
            // Forked by `each`: the others are not in this process, and their end would not come.
            std::mem::forget(others);
            return Err(error);
        }
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
