//! Options, set one by one, by the names of Esker's Rust interface, whose documentation says what each means and which values it may have.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker::{
    CaskDamage, CaskOptions, ChecksumKind, Comparator, Compression, Error, FamilyOptions, MergeOperator,
    MutableOptions, Options, PrefixExtractor, ReclaimMode, RecoveryMode, Result, Separation, raft,
};

use crate::error::{Failure, attempt, hand_out};
use crate::memory::{Out, Text};

/// What an option may be, as text.
trait Spelt: Sized {
    /// For who spelt it otherwise.
    const HOW: &'static str;

    fn read(text: &str) -> Option<Self>;
}

impl Spelt for bool {
    const HOW: &'static str = "true or false";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Spelt for f64 {
    const HOW: &'static str = "a number";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Spelt for u64 {
    const HOW: &'static str = "a number such as 4096, 64KiB, 64MiB or 1GiB";

    fn read(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
        let shift = match text.get(digits.len()..)? {
            "" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return None,
        };
        digits.parse::<Self>().ok()?.checked_mul(1 << shift)
    }
}

impl Spelt for usize {
    const HOW: &'static str = u64::HOW;

    fn read(text: &str) -> Option<Self> {
        Self::try_from(u64::read(text)?).ok()
    }
}

impl Spelt for Duration {
    const HOW: &'static str = "a number of seconds";

    fn read(text: &str) -> Option<Self> {
        Self::try_from_secs_f64(text.parse().ok()?).ok()
    }
}

impl Spelt for PathBuf {
    const HOW: &'static str = "a path";

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }
}

impl Spelt for PrefixExtractor {
    const HOW: &'static str = "fixed:N or capped:N, N a number of bytes";

    fn read(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl Spelt for Arc<dyn MergeOperator> {
    const HOW: &'static str =
        "a merge operator that was added, or one of RocksDB's own: uint64add stringappend max bytesxor put";

    fn read(text: &str) -> Option<Self> {
        <dyn MergeOperator>::named(text)
    }
}

impl Spelt for &'static dyn Comparator {
    const HOW: &'static str = "a comparator that was added, or one of RocksDB's own: leveldb.BytewiseComparator rocksdb.ReverseBytewiseComparator";

    fn read(text: &str) -> Option<Self> {
        <dyn Comparator>::named(text)
    }
}

impl<T: Spelt> Spelt for Option<T> {
    const HOW: &'static str = T::HOW;

    fn read(text: &str) -> Option<Self> {
        if text == "none" { Some(None) } else { T::read(text).map(Some) }
    }
}

/// One for each level, as RocksDB's option files have them.
impl Spelt for Vec<Compression> {
    const HOW: &'static str = "names of compressions with colons between them, such as none:lz4:zstd";

    fn read(text: &str) -> Option<Self> {
        if text.is_empty() { Some(Self::new()) } else { text.split(':').map(Compression::read).collect() }
    }
}

/// Those that have names.
macro_rules! named {
    ($($kind:ty { $($name:literal => $value:ident),+ $(,)? })+) => {$(
        impl Spelt for $kind {
            const HOW: &'static str = concat!("one of" $(, " ", $name)+);

            fn read(text: &str) -> Option<Self> {
                match text {
                    $($name => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
    )+};
}

named! {
    Compression {
        "none" => None, "snappy" => Snappy, "zlib" => Zlib, "lz4" => Lz4, "lz4hc" => Lz4hc, "zstd" => Zstd,
    }
    ChecksumKind { "none" => None, "crc32c" => Crc32c, "xxhash" => XxHash32, "xxhash64" => XxHash64, "xxh3" => Xxh3 }
    Separation { "off" => Off, "at_flush" => AtFlush, "at_write" => AtWrite, "fall_back" => FallBack }
    ReclaimMode { "auto" => Auto, "manual" => Manual, "off" => Off }
    RecoveryMode {
        "absolute_consistency" => AbsoluteConsistency, "tolerate_torn_tail" => TolerateTornTail,
        "point_in_time" => PointInTime, "skip_corrupt" => SkipCorrupt,
    }
    raft::RecoveryMode {
        "absolute_consistency" => AbsoluteConsistency, "tolerate_tail" => TolerateTail, "tolerate_any" => TolerateAny,
    }
    raft::Version { "1" => V1, "2" => V2 }
    CaskDamage { "refuse" => Refuse, "serve" => Serve }
}

fn read<T: Spelt>(name: &str, text: &str) -> Result<T> {
    T::read(text).ok_or_else(|| Error::invalid_argument(format!("option {name} is {text:?}, must be {}", T::HOW)))
}

pub(crate) fn read_separation(text: &str) -> Result<Separation> {
    read("separation", text)
}

/// Fields that can be set by their names.
pub(crate) trait ByName {
    /// These names.
    const NAMES: &'static [&'static str];

    fn set(&mut self, name: &str, text: &str) -> Result<()>;
}

macro_rules! by_name {
    ($($kind:ty { $($name:ident),+ $(,)? })+) => {$(
        impl ByName for $kind {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            fn set(&mut self, name: &str, text: &str) -> Result<()> {
                match name {
                    $(stringify!($name) => self.$name = read(name, text)?,)+
                    _ => {
                        let names = Self::NAMES.join(", ");
                        return Err(Error::invalid_argument(format!("there is no option {name:?}; there are {names}")));
                    }
                }
                Ok(())
            }
        }
    )+};
}

by_name! {
    Options {
        create_if_missing, error_if_exists, create_missing_column_families, wal_recovery, background_jobs, cache_bytes, memory_limit,
        cache_blobs, mmap_reads, wal_dir, wal_bytes_max, recycled_logs_max, manifest_bytes_max, group_bytes_max,
        delayed_write_bytes_per_second_min, reclaim_mode, max_space_amp, max_disk_bytes, punch_holes, holes_within_values,
        reclaim_bytes_per_second_max, background_bytes_per_second_max, ballast_bytes, keep_space_options,
    }
    MutableOptions {
        cache_bytes, memory_limit, wal_bytes_max, manifest_bytes_max, group_bytes_max, delayed_write_bytes_per_second_min, reclaim_mode,
        max_space_amp, max_disk_bytes, holes_within_values, reclaim_bytes_per_second_max, background_bytes_per_second_max,
    }
    FamilyOptions {
        write_buffer_bytes, write_buffer_count_max, separation, min_blob_size, blob_file_bytes, merge_operator, comparator, blob_compression, compression,
        bottommost_compression, compression_per_level, block_bytes, restart_interval, bloom_bits_per_key, prefix, checksum,
        target_file_bytes, level_base_bytes, level_multiplier, level_count, level0_compaction_trigger, level0_slowdown_trigger,
        level0_stop_trigger, pending_compaction_bytes_soft, pending_compaction_bytes_hard, periodic_compaction_seconds,
    }
    CaskOptions {
        create_if_missing, error_if_exists, stripes, file_bytes, keep_versions, damage, default_ttl, compression, compression_bytes_min,
        verify_reads, sync_interval_ms, merge_garbage_ratio, merge_interval_ms, merge_batch_bytes, merge_bytes_per_second,
        background_jobs, open_threads,
    }
    raft::Options {
        create_if_missing, spill_dir, recovery_mode, recovery_threads, compress_from_bytes, format_version, file_bytes,
        purge_threshold_bytes, purge_rewrite_threshold_bytes, purge_rewrite_garbage_ratio, cache_bytes, group_quota_bytes,
        purge_interval, recycle_files, prefill_bytes,
    }
}

/// How an ordered store is opened.
#[derive(Debug)]
pub struct DbOptions(pub(crate) Options);

impl DbOptions {
    /// Changes what is said of a family so far.
    pub(crate) fn change_family(&mut self, name: &str, change: impl FnOnce(&mut FamilyOptions)) {
        change(self.0.families.entry(name.to_owned()).or_default());
    }
}

/// The defaults. A family that is not named keeps what the store's OPTIONS file says of it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_create() -> Box<DbOptions> {
    Box::new(DbOptions(Options::default()))
}

/// How to open the store in the directory `path` for somebody who is not its program: with the limits to its space that the program chose, and without
/// changing what is kept of them. Families keep their options in any case. Where there is no store, the defaults.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_of_store(path: Text, options: Out<Option<Box<DbOptions>>>) -> Failure {
    hand_out(options, || Ok(DbOptions(Options::of_store(path.path()?)?)))
}

/// Sets an option of the store, such as `"create_if_missing"` to `"true"` or `"cache_bytes"` to `"64MiB"`. `InvalidArgument` names all there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_set(options: &mut DbOptions, name: Text, value: Text) -> Failure {
    attempt(|| options.0.set(name.read()?, value.read()?))
}

/// Sets an option of the column family `family`, such as `"separation"` of `"default"` to `"at_write"`. A family that was not named
/// before begins with the defaults.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_set_family(
    options: &mut DbOptions,
    family: Text,
    name: Text,
    value: Text,
) -> Failure {
    attempt(|| {
        let (family, families) = (family.read()?, &mut options.0.families);
        let mut changed = families.get(family).cloned().unwrap_or_default();
        let (name, value) = (name.read()?, value.read()?);
        let operator = options.0.merge_operators.iter().find(|added| name == "merge_operator" && added.name() == value);
        let comparator = options.0.comparators.iter().find(|added| name == "comparator" && added.name() == value);
        match (operator, comparator) {
            (Some(operator), _) => changed.merge_operator = Some(operator.clone()),
            (_, Some(comparator)) => changed.comparator = *comparator,
            _ => changed.set(name, value)?,
        }
        families.insert(family.to_owned(), changed);
        Ok(())
    })
}

/// Frees options; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_free(options: Option<Box<DbOptions>>) {
    drop(options);
}

/// How a hash store is opened.
#[derive(Debug)]
pub struct HashOptions(pub(crate) CaskOptions);

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_options_create() -> Box<HashOptions> {
    Box::new(HashOptions(CaskOptions::default()))
}

/// Sets an option, such as `"create_if_missing"` to `"true"` or `"default_ttl"` to `"3600"`, seconds. `InvalidArgument` names all there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_options_set(options: &mut HashOptions, name: Text, value: Text) -> Failure {
    attempt(|| options.0.set(name.read()?, value.read()?))
}

/// Frees options; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_options_free(options: Option<Box<HashOptions>>) {
    drop(options);
}

/// How a Raft log is opened.
#[derive(Debug)]
pub struct LogOptions(pub(crate) raft::Options);

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_options_create() -> Box<LogOptions> {
    Box::new(LogOptions(raft::Options::default()))
}

/// Sets an option, such as `"purge_threshold_bytes"` to `"1GiB"`. `InvalidArgument` names all there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_options_set(options: &mut LogOptions, name: Text, value: Text) -> Failure {
    attempt(|| options.0.set(name.read()?, value.read()?))
}

/// Frees options; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_options_free(options: Option<Box<LogOptions>>) {
    drop(options);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use super::*;

    /// The fields of something, as `{:#?}` shows them, but for those of its fields.
    fn fields(options: &impl Debug) -> BTreeSet<String> {
        let shown = format!("{options:#?}");
        let lines = shown.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        lines.map(|(name, _)| name.to_owned()).filter(|name| !name.starts_with(' ')).collect()
    }

    fn are_all_but<T: ByName + Default + Debug>(others: &[&str]) {
        let names: BTreeSet<_> = T::NAMES.iter().chain(others).map(|name| (*name).to_owned()).collect();
        assert_eq!(fields(&T::default()), names);
    }

    /// Goal: an option that is added to an engine is added here, or left out on purpose.
    #[test]
    fn all_options_can_be_set_but_those_that_are_no_text() {
        are_all_but::<Options>(&["cache", "comparators", "families", "listeners", "merge_operators"]);
        are_all_but::<FamilyOptions>(&["blob_partition", "compaction_filter"]);
        are_all_but::<CaskOptions>(&[]);
        are_all_but::<raft::Options>(&[]);
    }

    #[test]
    fn what_is_set_is_there() {
        let mut options = FamilyOptions::default();
        let settings = [
            ("write_buffer_bytes", "4MiB"),
            ("separation", "at_write"),
            ("bottommost_compression", "zstd"),
            ("compression_per_level", "none:lz4:zstd"),
            ("prefix", "fixed:4"),
            ("checksum", "crc32c"),
            ("bloom_bits_per_key", "12.5"),
        ];
        settings.iter().for_each(|(name, text)| options.set(name, text).unwrap());
        assert_eq!(options.write_buffer_bytes, 4 << 20);
        assert_eq!(options.separation, Separation::AtWrite);
        assert_eq!(options.bottommost_compression, Some(Compression::Zstd));
        assert_eq!(options.compression_per_level, [Compression::None, Compression::Lz4, Compression::Zstd]);
        assert_eq!(options.prefix, Some(PrefixExtractor::Fixed(4)));
        assert_eq!(options.checksum, ChecksumKind::Crc32c);
        assert_eq!(options.bloom_bits_per_key, 12.5);
        options.set("bottommost_compression", "none").unwrap();
        assert_eq!(options.bottommost_compression, None);
        let mut options = CaskOptions::default();
        options.set("default_ttl", "1.5").unwrap();
        assert_eq!(options.default_ttl, Some(Duration::from_millis(1500)));
        options.set("default_ttl", "none").unwrap();
        assert_eq!(options.default_ttl, None);
    }

    /// Goal: what cannot be said is refused with what can, and changes nothing.
    #[test]
    fn what_is_misspelt_is_told_with_what_there_is() {
        let mut options = Options::default();
        let before = format!("{options:?}");
        for (name, text, told) in [
            ("cache_byte", "1", "there is no option \"cache_byte\"; there are create_if_missing, "),
            ("cache_bytes", "64 MB", "option cache_bytes is \"64 MB\", must be a number such as 4096, 64KiB"),
            ("cache_bytes", "-1", "must be a number"),
            ("cache_bytes", "99999999TiB", "must be a number"),
            ("cache_bytes", "", "must be a number"),
            ("cache_bytes", "1é", "must be a number"),
            ("reclaim_mode", "On", "must be one of auto manual off"),
            ("punch_holes", "yes", "must be true or false"),
        ] {
            let error = options.set(name, text).unwrap_err();
            assert_eq!(error.kind(), esker::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(told), "{error}");
        }
        assert_eq!(format!("{options:?}"), before);
        let mut cask = CaskOptions::default();
        for text in ["-1", "NaN", "inf", "1e300", "soon"] {
            assert!(cask.set("default_ttl", text).is_err(), "{text}");
        }
    }
}
