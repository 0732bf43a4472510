//! Random options, small enough that a few hundred writes meet every mechanism.

use std::sync::Arc;

use esker::{
    BlobPartition, ChecksumKind, Compression, FamilyOptions, Options, PrefixExtractor, ReclaimMode, Separation,
    StringAppendOperator,
};
use fastrand::Rng;

use crate::model::AppendApart;
use crate::orders::{ByLength, comparator_of};

fn compression(random: &mut Rng) -> Compression {
    [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd][random.usize(..4)]
}

/// Options of a column family.
pub fn family(random: &mut Rng) -> FamilyOptions {
    let level0_compaction_trigger = random.usize(1..=4);
    let level0_slowdown_trigger = level0_compaction_trigger + random.usize(1..=8);
    FamilyOptions {
        write_buffer_bytes: [64 << 10, 80 << 10, 128 << 10][random.usize(..3)],
        write_buffer_count_max: random.usize(2..=5),
        separation: match random.u8(..8) {
            0 => Separation::Off,
            1 => Separation::FallBack,
            2..5 => Separation::AtWrite,
            _ => Separation::AtFlush,
        },
        min_blob_size: [0, 1, 100, 600, 4096][random.usize(..5)],
        blob_file_bytes: [64 << 10, 100 << 10][random.usize(..2)],
        blob_partition: random.bool().then(|| BlobPartition::new(|key, _| key.last().map_or(0, |last| last % 3))),
        merge_operator: Some(if random.bool() {
            Arc::new(StringAppendOperator::default())
        } else {
            Arc::new(AppendApart)
        }),
        blob_compression: compression(random),
        compression: compression(random),
        block_bytes: [256, 1024, 4096][random.usize(..3)],
        restart_interval: [1, 2, 16][random.usize(..3)],
        bloom_bits_per_key: [0.0, 5.0, 10.0][random.usize(..3)],
        prefix: [None, Some(PrefixExtractor::Fixed(4)), Some(PrefixExtractor::Capped(5))][random.usize(..3)],
        checksum: [ChecksumKind::Crc32c, ChecksumKind::Xxh3][random.usize(..2)],
        target_file_bytes: [4 << 10, 16 << 10, 64 << 10][random.usize(..3)],
        level_base_bytes: [16 << 10, 64 << 10][random.usize(..2)],
        level_multiplier: random.u64(2..=6),
        level_count: random.usize(2..=7),
        level0_compaction_trigger,
        level0_slowdown_trigger,
        level0_stop_trigger: level0_slowdown_trigger + random.usize(1..=8),
        ..FamilyOptions::default()
    }
}

/// The same of a family of that name, in the order that it has in every test.
pub fn family_named(random: &mut Rng, name: &str) -> FamilyOptions {
    FamilyOptions { comparator: comparator_of(name), ..family(random) }
}

/// Options that a family with these may have from now on.
pub fn changed(random: &mut Rng, now: &FamilyOptions) -> FamilyOptions {
    let (merge_operator, comparator, level_count) = (now.merge_operator.clone(), now.comparator, now.level_count);
    // Half of the time what a program changes most, as the rest stays.
    let other = family(random);
    if random.bool() {
        FamilyOptions { merge_operator, comparator, level_count, ..other }
    } else {
        FamilyOptions { separation: other.separation, blob_compression: other.blob_compression, ..now.clone() }
    }
}

/// Options of a store with families of the given names.
pub fn store(random: &mut Rng, families: &[&str], background_jobs: usize) -> Options {
    Options {
        create_if_missing: true,
        families: families.iter().map(|&name| (name.to_owned(), family_named(random, name))).collect(),
        background_jobs,
        cache_bytes: [0, 10_000, 1 << 20][random.usize(..3)],
        wal_bytes_max: [0, 100 << 10][random.usize(..2)],
        recycled_logs_max: [0, 0, 1, 3][random.usize(..4)],
        max_space_amp: [1.05, 1.3, 1.3, 3.0][random.usize(..4)],
        punch_holes: random.bool(),
        reclaim_mode: if random.u8(..4) == 0 { ReclaimMode::Manual } else { ReclaimMode::Auto },
        manifest_bytes_max: [4 << 10, 64 << 20][random.usize(..2)],
        memory_limit: [0, 0, 1 << 20][random.usize(..3)],
        cache_blobs: random.bool(),
        holes_within_values: random.bool(),
        mmap_reads: random.bool(),
        ..known()
    }
}

/// The same for a store of which half have their logs in `/logs`.
pub fn store_anywhere(random: &mut Rng, families: &[&str], background_jobs: usize) -> Options {
    let options = store(random, families, background_jobs);
    Options { wal_dir: random.bool().then(|| "/logs".into()), ..options }
}

/// The defaults, for whoever opens a store of [`store`] without the options of its families.
pub fn known() -> Options {
    Options { merge_operators: vec![Arc::new(AppendApart)], comparators: vec![&ByLength], ..Options::default() }
}
