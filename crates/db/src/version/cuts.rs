//! Where to cut what tables hold into parts of about equal length.

use std::sync::Arc;

use esker_format::rocksdb::order::Order;

use super::TableFile;

/// Places looked at for each cut: more make parts more equal.
const SAMPLES_PER_PART: u64 = 8;

/// User keys between `lower` and `upper` that cut what `tables` hold there into at most `parts` parts; ascending. They follow from the
/// indexes in memory; nothing is read.
pub(crate) fn cuts<'a>(
    order: Order,
    tables: impl Iterator<Item = &'a Arc<TableFile>>,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
    parts: usize,
) -> Vec<Vec<u8>> {
    let tables: Vec<_> = tables.filter(|table| table.overlaps(lower, upper)).collect();
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
    samples.retain(|(key, _)| {
        lower.is_none_or(|lower| order.is_before(lower, key)) && upper.is_none_or(|upper| order.is_before(key, upper))
    });
    samples.sort_unstable_by(|(a, _), (b, _)| order.compare(a, b));
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
