//! Which engine runs when: rounds alternate, so that whatever changes on the machine changes for all of them.

use serde::{Deserialize, Serialize};

use crate::plan::{Phase, Plan, Whole};

/// One run and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// From 0.
    pub round: u32,
    /// What was asked for.
    pub plan: Plan,
    /// Phases in order.
    pub phases: Vec<Phase>,
    /// The run as a whole.
    pub whole: Whole,
}

/// A row of the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Which engine.
    pub engine: String,
    /// Length of values.
    pub value_bytes: usize,
    /// Threads on the store.
    pub threads: u64,
    /// From 0.
    pub round: u32,
}

/// All slots in order: for each value size and number of threads, every engine once, then every engine again.
pub fn slots(engines: &[String], value_bytes: &[usize], threads: &[u64], rounds: u32) -> Vec<Slot> {
    let mut slots = Vec::new();
    for &value_bytes in value_bytes {
        for &threads in threads {
            for round in 0..rounds {
                slots.extend(engines.iter().map(|engine| Slot { engine: engine.clone(), value_bytes, threads, round }));
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_take_turns() {
        let slots = slots(&["a".into(), "b".into()], &[100], &[1], 2);
        let order: Vec<_> = slots.iter().map(|slot| slot.engine.as_str()).collect();
        assert_eq!(order, ["a", "b", "a", "b"]);
    }
}
