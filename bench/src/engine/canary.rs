//! Engines that lie, on purpose: whoever runs them and is not told of the lie has a harness that checks nothing.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ::esker::Separation;

use super::esker::{Esker, open_plain};
use super::{Engine, Pair};
use crate::Result;
use crate::data::mix;
use crate::plan::Settings;

/// How it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// One put in 5,000 does not happen.
    LostPut,
    /// One key in 50 keeps the first value that it got.
    StaleKey,
    /// One value in 1,000 is stored with one bit changed.
    FlippedBit,
    /// One entry in 1,000 is left out of ranges and scans.
    SkippedKey,
    /// One delete in 50 does not happen.
    LostDelete,
}

const LOST_PUT_ONE_IN: u64 = 5_000;
const STALE_KEY_ONE_IN: u64 = 50;
const FLIPPED_BIT_ONE_IN: u64 = 1_000;
const SKIPPED_KEY_ONE_IN: u64 = 1_000;
const LOST_DELETE_ONE_IN: u64 = 50;

struct Canary {
    honest: Box<Esker>,
    lie: Lie,
    puts: AtomicU64,
    deletes: AtomicU64,
    shown: AtomicU64,
}

pub(super) fn open(dir: &Path, settings: &Settings, lie: Lie) -> Result<Box<dyn Engine>> {
    let honest = Box::new(open_plain(dir, settings, Separation::AtFlush)?);
    let count = || AtomicU64::new(0);
    Ok(Box::new(Canary { honest, lie, puts: count(), deletes: count(), shown: count() }))
}

impl Canary {
    /// `None` if the put is to be lost.
    fn twist(&self, pair: &Pair) -> Result<Option<Pair>> {
        let number = self.puts.fetch_add(1, Relaxed) + 1;
        let mut pair = pair.clone();
        match self.lie {
            Lie::LostPut if number.is_multiple_of(LOST_PUT_ONE_IN) => return Ok(None),
            Lie::StaleKey => {
                let chosen = pair.key.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte)));
                if chosen.is_multiple_of(STALE_KEY_ONE_IN) && self.honest.exists(&pair.key)? {
                    return Ok(None);
                }
            }
            Lie::FlippedBit if number.is_multiple_of(FLIPPED_BIT_ONE_IN) => {
                let at = mix(number) as usize % pair.value.len().max(1);
                if let Some(byte) = pair.value.get_mut(at) {
                    *byte ^= 1 << (number % 8);
                }
            }
            Lie::LostPut | Lie::FlippedBit | Lie::SkippedKey | Lie::LostDelete => {}
        }
        Ok(Some(pair))
    }

    /// Whether an entry of a scan is to be passed over.
    fn skips(&self) -> bool {
        self.lie == Lie::SkippedKey && (self.shown.fetch_add(1, Relaxed) + 1).is_multiple_of(SKIPPED_KEY_ONE_IN)
    }
}

impl Engine for Canary {
    fn put(&self, batch: &[Pair]) -> Result<()> {
        let mut kept = Vec::with_capacity(batch.len());
        for pair in batch {
            kept.extend(self.twist(pair)?);
        }
        self.honest.put(&kept)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        if self.lie == Lie::LostDelete && (self.deletes.fetch_add(1, Relaxed) + 1).is_multiple_of(LOST_DELETE_ONE_IN) {
            return Ok(());
        }
        self.honest.delete(key)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.honest.get(key, show)
    }

    fn exists(&self, key: &[u8]) -> Result<bool> {
        self.honest.exists(key)
    }

    fn scan(&self, from: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.honest.scan(from, &mut |key, value| self.skips() || show(key, value))
    }

    fn scan_keys(&self, from: &[u8], show: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
        self.honest.scan_keys(from, &mut |key| self.skips() || show(key))
    }

    fn settle(&self) -> Result<()> {
        self.honest.settle()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.honest.close()
    }
}
