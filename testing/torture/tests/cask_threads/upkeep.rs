//! What goes on beside those who write: it changes no answer.

use std::collections::BTreeMap;
use std::thread;

use esker::Cask;
use fastrand::Rng;

use super::life::Life;
use super::{WRITERS, beginning};

/// What is done by hand in a life.
const STEPS: usize = 15;
/// How often others' keys are read in a life.
const LOOKS: usize = 1000;

/// Merging, syncing and checking, by hand.
pub(super) fn work(life: &Life, cask: &Cask, random: &mut Rng) {
    for _ in 0..STEPS {
        match random.u8(..4) {
            0 => drop(life.accepted(cask.compact(), "compacting")),
            1 => drop(life.accepted(cask.sync(), "syncing")),
            2 => drop(cask.stats()),
            _ => {
                if let Some(check) = life.accepted(cask.check(&mut |_| {}), "checking") {
                    assert!(life.has_trouble() || check.errors.is_empty(), "{life}: checking: {:?}", check.errors);
                }
            }
        }
        thread::yield_now();
    }
}

/// Reads the keys of all threads: none goes back to a value before the one that was read last.
pub(super) fn watch(life: &Life, cask: &Cask, random: &mut Rng) {
    let mut seen = BTreeMap::new();
    for _ in 0..LOOKS {
        let key = [random.u8(..WRITERS), b'a' + random.u8(..8)];
        let found = life.accepted(cask.get(key), "reading others' keys").flatten();
        if let Some(found) = found {
            let (is, was) = (serial(&found), seen.entry(key).or_default());
            assert!(is >= *was, "{life}: {key:?} goes back from {was:?} to {:?}", beginning(&found));
            *was = is;
        }
        thread::yield_now();
    }
}

/// The number of the life in which a value was written, and its own in that.
fn serial(value: &[u8]) -> (u32, u32) {
    let beginning = beginning(value);
    let mut numbers = beginning.split(' ').map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).unwrap_or_else(|| panic!("{beginning:?} was never written"))
}
