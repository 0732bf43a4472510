//! A walk through everything in no order, which notices what is foreign or wrong, and how many keys were left out: as
//! nothing is remembered of single keys, it cannot tell which.

use esker::CaskScan;

use super::fault::{Fault, Stop, Wrong};
use super::worker::Worker;

/// A scan under way.
#[derive(Debug)]
pub(super) struct Scan {
    scan: CaskScan,
    /// Met so far.
    keys: u64,
}

impl Scan {
    pub(super) fn begin(worker: &Worker<'_>) -> Result<Self, Stop> {
        Ok(Self { scan: worker.shared.target.scan()?, keys: 0 })
    }

    /// Goes to the next entry, and checks it. `false` at the end, where as many keys were met as are there.
    pub(super) fn step(&mut self, worker: &mut Worker<'_>, with_value: bool) -> Result<bool, Stop> {
        if !self.scan.advance()? {
            return match worker.shared.live_keys {
                Some(due) if due != self.keys => Err(self.wrong(Fault::Count { keys: self.keys, due })),
                _ => Ok(false),
            };
        }
        self.keys += 1;
        let number = worker.key.number(self.scan.key()).ok_or_else(|| self.wrong(Fault::Foreign))?;
        let expected = worker.expect(number, worker.shared.frontier.acknowledged());
        if with_value {
            worker.check(number, Some(self.scan.value()?), expected)?;
        } else {
            worker.check_existence(number, true, expected)?;
        }
        Ok(true)
    }

    /// Behind the end, the key is empty.
    #[cold]
    fn wrong(&self, fault: Fault) -> Stop {
        Stop::Wrong(Wrong::key(self.scan.key(), fault))
    }
}
