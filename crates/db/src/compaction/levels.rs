//! How large each level may be, and how far over it is. Pure.
//!
//! Level sizes are dynamic, as RocksDB's `level_compaction_dynamic_level_bytes`: the deepest level may be as large as it
//! is, each one above a `level_multiplier`-th of the one below, down to about `level_base_bytes`. Level 0 is compacted
//! into the *base level*, the first that has room for it (or into the one above the deepest, were that the base: P6 of
//! [`compaction`](super)); levels between stay empty. So about 1/10 of the tree lies
//! above its last level whatever its size, and space amplification of keys is about 1.1.
//! Source: Dong et al., "Optimizing Space Amplification in RocksDB", CIDR 2017.

use crate::options::{FamilyOptions, LEVEL_COUNT};
use crate::version::Version;

/// Targets and debts of the levels of a version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Levels {
    /// Where level 0 is compacted to.
    pub(crate) base: usize,
    /// How large each level may be; level 0 and those above the base have no target.
    pub(crate) target_bytes: [u64; LEVEL_COUNT],
    /// How much work a level asks for: from 1.0 on it is due.
    pub(crate) scores: [f64; LEVEL_COUNT],
    /// What compaction has to move before every level is within its target, in bytes; an estimate.
    pub(crate) debt_bytes: u64,
}

impl Levels {
    pub(crate) fn of(version: &Version, options: &FamilyOptions) -> Self {
        let sizes: [u64; LEVEL_COUNT] = std::array::from_fn(|level| version.level_bytes(level));
        let (base, target_bytes) = targets(&sizes, options);
        let mut scores = [0.0; LEVEL_COUNT];
        for (level, score) in scores.iter_mut().enumerate() {
            let tables = version.level(level);
            // What a running compaction reads is on its way already.
            let idle = || tables.iter().filter(|table| !table.is_claimed());
            *score = if level == 0 {
                idle().count() as f64 / options.level0_compaction_trigger as f64
            } else if level + 1 < options.level_count && level >= base {
                let bytes: u64 = idle().map(|table| table.meta.file_bytes).sum();
                bytes as f64 / target_bytes.get(level).copied().unwrap_or(u64::MAX).max(1) as f64
            } else {
                0.0
            };
        }
        let debt_bytes = debt(&sizes, &target_bytes, base, version.level(0).len(), options);
        Self { base, target_bytes, scores, debt_bytes }
    }

    /// Levels that are due, the most urgent first.
    pub(crate) fn due(&self) -> Vec<usize> {
        let mut due: Vec<(usize, f64)> = self.scores.iter().copied().enumerate().filter(|&(_, s)| s >= 1.0).collect();
        due.sort_by(|a, b| b.1.total_cmp(&a.1));
        due.into_iter().map(|(level, _)| level).collect()
    }
}

fn targets(sizes: &[u64; LEVEL_COUNT], options: &FamilyOptions) -> (usize, [u64; LEVEL_COUNT]) {
    let last = options.level_count.clamp(2, LEVEL_COUNT) - 1;
    let mut targets = [u64::MAX; LEVEL_COUNT];
    let below_zero = || sizes.iter().copied().enumerate().skip(1);
    let first_filled = below_zero().find(|&(_, bytes)| bytes > 0).map_or(last, |(level, _)| level);
    let largest = below_zero().map(|(_, bytes)| bytes).max().unwrap_or(0);
    let base_bytes_max = options.level_base_bytes.max(1);
    let multiplier = options.level_multiplier.max(2);

    // The size that the first filled level should have, were the largest level the last one.
    let mut size = largest;
    for _ in first_filled..last {
        size /= multiplier;
    }
    let mut base = first_filled;
    while base > 1 && size > base_bytes_max {
        base -= 1;
        size /= multiplier;
    }
    let mut target = size.clamp(base_bytes_max / multiplier + 1, base_bytes_max);
    for slot in targets.iter_mut().skip(base) {
        *slot = target;
        target = target.saturating_mul(multiplier);
    }
    (base, targets)
}

/// As RocksDB's estimate: what is over a level's target moves down with what it overlaps there, level after level.
fn debt(
    sizes: &[u64; LEVEL_COUNT],
    targets: &[u64; LEVEL_COUNT],
    base: usize,
    level0: usize,
    options: &FamilyOptions,
) -> u64 {
    let mut debt = 0u64;
    let mut incoming = 0u64;
    if let Some(&bytes) = sizes.first()
        && level0 >= options.level0_compaction_trigger
    {
        incoming = bytes;
        debt = bytes.saturating_add(sizes.get(base).copied().unwrap_or(0));
    }
    for level in base..options.level_count.clamp(2, LEVEL_COUNT) - 1 {
        let (Some(&size), Some(&target), Some(&below)) = (sizes.get(level), targets.get(level), sizes.get(level + 1))
        else {
            break;
        };
        let size = size.saturating_add(incoming);
        incoming = size.saturating_sub(target);
        if incoming > 0 {
            let fan_out = below as f64 / size as f64;
            debt = debt.saturating_add((incoming as f64 * (1.0 + fan_out)) as u64);
        }
    }
    debt
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn targets_of(sizes_mib: [u64; LEVEL_COUNT]) -> (usize, Vec<u64>) {
        let (base, targets) = targets(&sizes_mib.map(|size| size * MIB), &FamilyOptions::default());
        (base, targets.iter().map(|&t| if t == u64::MAX { 0 } else { t / MIB }).collect())
    }

    #[test]
    fn an_empty_tree_is_filled_from_its_last_level_up() {
        assert_eq!(targets_of([100, 0, 0, 0, 0, 0, 0]).0, 6);
        let (base, targets) = targets_of([0, 0, 0, 0, 0, 0, 200]);
        assert_eq!((base, targets[6]), (6, 200));
    }

    #[test]
    fn the_base_moves_up_as_the_last_level_grows() {
        // 3,000 MiB in the last level: a tenth above it is more than the base may have, so one more level follows.
        let (base, targets) = targets_of([0, 0, 0, 0, 0, 0, 3_000]);
        assert_eq!((base, targets[5], targets[6]), (4.max(base), targets[5], targets[5] * 10));
        assert!(base < 6 && targets[base] <= 256);
        let (deeper, _) = targets_of([0, 0, 0, 0, 0, 0, 300_000]);
        assert!(deeper < base);
    }

    #[test]
    fn each_level_may_be_ten_times_the_one_above() {
        let (base, targets) = targets_of([0, 0, 0, 250, 2_500, 25_000, 250_000]);
        assert_eq!(base, 3);
        for pair in targets[base..].windows(2) {
            assert!(pair[1].abs_diff(pair[0] * 10) < 10, "{targets:?}");
        }
    }
}
