//! Which groups are asked to be compacted, and which are moved on. Pure.
//!
//! A group with few old entries is moved on at once: that costs little. One with many is asked to be compacted first, again
//! and again, and moved on if nobody answers, or if it pins more of the log than one group may.

use crate::group::groups::GroupMap;
use crate::queue::Queue;

/// Groups with so many entries in old files are asked to be compacted; raft-engine's number.
pub(super) const HEAVY_ENTRIES: u64 = 32;
/// How often a group is asked before its entries are moved on; raft-engine's number.
pub(super) const ASKED_MAX: u32 = 9;
/// Which part of the files, from the oldest, is moved on; raft-engine's number.
const REWRITE_PART: f64 = 0.7;
/// Which part of them is so old that heavy groups in it are asked to be compacted; raft-engine's number.
const COMPACT_PART: f64 = 0.2;

/// The files up to which something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// Files up to this one are moved on.
    pub(super) rewrite: u64,
    /// Groups with something before this one are old.
    pub(super) compact: u64,
}

impl Marks {
    pub(super) fn of(queue: &Queue) -> Self {
        let sealed = queue.span().1.saturating_sub(1);
        Self { rewrite: queue.file_at(REWRITE_PART).min(sealed), compact: queue.file_at(COMPACT_PART).min(sealed) }
    }
}

/// What is known of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) group: u64,
    /// The oldest file of the append queue that it needs.
    pub(super) oldest_append: Option<u64>,
    /// Its entries in the rewrite queue.
    pub(super) rewritten: u64,
    /// Its entries there, and in files up to [`Marks::rewrite`].
    pub(super) old_entries: u64,
    /// How often in a row it was asked to be compacted.
    pub(super) asked: u32,
}

/// What to do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Groups to be compacted by who can.
    pub(super) asks: Vec<u64>,
    /// Groups to be moved on.
    pub(super) moves: Vec<u64>,
    /// Groups that pin more than they may.
    pub(super) overdue: Vec<u64>,
    /// How often groups were asked, from now on.
    pub(super) asked: GroupMap<u32>,
}

/// `due`: the queue is longer than it should be. `pins_too_much` is asked with the oldest file that a group needs.
pub(super) fn pick(facts: &[Facts], marks: Marks, due: bool, pins_too_much: impl Fn(u64) -> bool) -> Plan {
    let mut plan = Plan::default();
    for facts in facts {
        let Some(oldest) = facts.oldest_append else {
            // All of it was moved on before; if that is much, it should be compacted.
            if due && facts.rewritten > 0 && facts.old_entries >= HEAVY_ENTRIES {
                ask(&mut plan, facts);
            }
            continue;
        };
        let movable = oldest <= marks.rewrite;
        if movable && pins_too_much(oldest) {
            plan.overdue.push(facts.group);
        } else if due {
            let old = oldest < marks.compact || facts.rewritten > 0;
            if old && facts.old_entries >= HEAVY_ENTRIES {
                if !ask(&mut plan, facts) && movable {
                    plan.moves.push(facts.group);
                }
            } else if facts.old_entries < HEAVY_ENTRIES + facts.rewritten && movable {
                plan.moves.push(facts.group);
            }
        }
    }
    plan
}

/// Asks for a group once more; `false` if that was done often enough.
fn ask(plan: &mut Plan, facts: &Facts) -> bool {
    plan.asks.push(facts.group);
    let again = facts.asked < ASKED_MAX;
    if again {
        plan.asked.insert(facts.group, facts.asked + 1);
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks { rewrite: 7, compact: 2 };

    fn facts(oldest_append: u64, old_entries: u64) -> Facts {
        Facts { group: 1, oldest_append: Some(oldest_append), rewritten: 0, old_entries, asked: 0 }
    }

    fn picked(facts: Facts) -> (usize, usize, usize) {
        let plan = pick(&[facts], MARKS, true, |oldest| oldest == 3);
        (plan.asks.len(), plan.moves.len(), plan.overdue.len())
    }

    #[test]
    fn few_old_entries_are_moved_on_and_many_are_to_be_compacted() {
        assert_eq!(picked(facts(5, 5)), (0, 1, 0), "few");
        assert_eq!(picked(facts(8, 5)), (0, 0, 0), "too new");
        assert_eq!(picked(facts(1, 32)), (1, 0, 0), "many, and old");
        assert_eq!(picked(facts(5, 32)), (0, 0, 0), "many, but not yet old");
        assert_eq!(picked(facts(3, 32)), (0, 0, 1), "pins too much");
    }

    #[test]
    fn a_group_that_is_asked_in_vain_is_moved_on() {
        let mut facts = facts(1, 100);
        for count in 1..=ASKED_MAX {
            let plan = pick(&[facts], MARKS, true, |_| false);
            assert!(plan.moves.is_empty() && plan.asks == [1]);
            facts.asked = plan.asked[&1];
            assert_eq!(facts.asked, count);
        }
        let plan = pick(&[facts], MARKS, true, |_| false);
        assert!(plan.moves == [1] && plan.asks == [1] && plan.asked.is_empty());
    }

    #[test]
    fn a_short_queue_is_left_alone_but_for_those_who_pin_too_much() {
        let plan = pick(&[facts(1, 5), facts(1, 50), facts(3, 5)], MARKS, false, |oldest| oldest == 3);
        assert!(plan.moves.is_empty() && plan.asks.is_empty());
        assert_eq!(plan.overdue.len(), 1);
    }
}
