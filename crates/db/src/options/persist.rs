//! The store's OPTIONS file: what it says of each column family, and what is written to the next one.
//!
//! Options that Esker does not model are carried from file to file as they are, so that RocksDB finds them again; so are those that
//! the caller does not choose. Numbers that RocksDB allows and Esker does not are brought into Esker's ranges, but stay in the file; what cannot be honoured at all, a
//! compression that Esker cannot write, is an error unless the caller says what to use instead. What the tree itself would have to be
//! otherwise for is an error whatever the caller says.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_format::DecodeError;
use esker_format::checksum::ChecksumKind;
use esker_format::compression::Compression;
use esker_format::limits;
use esker_format::rocksdb::options_file::{OptionsFile, Section, SectionKind, is_one_byte_off, is_rotten_name};
use esker_format::rocksdb::prefix::PrefixExtractor;
use parking_lot::Mutex;

use super::kept;
use super::{
    FamilyOptions, GIB, KIB, LEVEL_COUNT, LEVEL_COUNT_MIN, MIB, Options, PERIOD_SECONDS_MAX, PERIOD_SECONDS_MIN,
    Separation,
};
use crate::family::Family;
use crate::operands::{MergeOperator, is_said, named};
use crate::{Error, ErrorKind};

/// What RocksDB has no option for stands in a comment: for RocksDB, values are separated at the flush.
const SEPARATION_NOTE: &str = "esker.separation";
const AT_WRITE: &str = "at-write";

/// The first release of RocksDB that has blob files: 6.18.
const BLOBS_SINCE: (u32, u32) = (6, 18);

/// What RocksDB has if nobody says anything.
const DEFAULT_AGE_CUTOFF: f64 = 0.25;

const READING: &str = "reading the options";

const PERIODIC: &str = "periodic_compaction_seconds";
const MERGE_OPERATOR: &str = "merge_operator";
const COMPARATOR: &str = "comparator";

const BOTTOMMOST: &str = "bottommost_compression";
const AS_THE_OTHERS: &str = "kDisableCompressionOption";
const PER_LEVEL: &str = "compression_per_level";

/// How RocksDB can compress, in the words of its OPTIONS file.
const COMPRESSIONS: [&str; 10] = [
    "kNoCompression",
    "kSnappyCompression",
    "kZlibCompression",
    "kBZip2Compression",
    "kLZ4Compression",
    "kLZ4HCCompression",
    "kXpressCompression",
    "kZSTD",
    "kZSTDNotFinalCompression",
    AS_THE_OTHERS,
];

/// The tables that RocksDB can write.
const TABLE_FACTORIES: [&str; 4] = [SectionKind::BLOCK_BASED, "AdaptiveTable", "PlainTable", "CuckooTable"];

/// The OPTIONS file that was found, to be carried on; without families that have gone since.
#[derive(Debug, Default)]
pub(crate) struct ForeignOptions(Mutex<OptionsFile>);

impl ForeignOptions {
    /// The column family `name` is gone: what was said of it is not of the next one of that name.
    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().remove_family(name);
    }

    /// The same once the options that are `before` became those that are `after`: what has changed was chosen, be it the default now.
    pub(crate) fn with_change(&self, before: &Options, after: &Options) -> Self {
        let mut file = self.0.lock().clone();
        for (key, line) in DATABASE_LINES {
            if line(before) != line(after) {
                file.database_mut().set(key, line(after));
            }
        }
        Self(Mutex::new(file))
    }

    /// Carries that on from now on, in place of this.
    pub(crate) fn replace(&self, with: Self) {
        *self.0.lock() = with.0.into_inner();
    }

    /// See [`Options::of_store`].
    pub(crate) fn kept(&self) -> crate::Result<Options> {
        kept::read(self.0.lock().database())
    }
}

/// What an OPTIONS file says.
#[derive(Debug, Default)]
pub(crate) struct OptionsInFile {
    /// By family; an error for what Esker cannot honour.
    pub(crate) families: BTreeMap<String, crate::Result<FamilyOptions>>,
    /// Where the logs are, if RocksDB was told to keep them apart from the store, or did not mind saying the obvious.
    pub(crate) wal_dir: Option<PathBuf>,
    /// Whether it was opened for transactions that are prepared first, then committed; `None` if there is no file that says so.
    pub(crate) allows_2pc: Option<bool>,
    pub(crate) foreign: ForeignOptions,
}

/// What an OPTIONS file says of where the logs are, though other lines of it cannot be read.
pub(crate) fn wal_dir_line(raw: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(raw);
    text.lines().find_map(|line| line.trim().strip_prefix("wal_dir=")).map(PathBuf::from)
}

impl OptionsInFile {
    /// Reads the file `raw` at `path`, of a store that has these `families`.
    ///
    /// A family need not be in the file, nor one of the file in the store: a crash may have come between the manifest and the file. But where the
    /// one differs from the other in a byte of its name, that is damage, or the family would lose its options unseen.
    pub(crate) fn parse_of(path: &Path, raw: &[u8], families: &[&str]) -> crate::Result<Self> {
        let read = Self::parse(path, raw)?;
        let missing = families.iter().filter(|name| !read.families.contains_key(**name));
        for name in missing {
            let strangers = read.families.keys().filter(|found| !families.contains(&found.as_str()));
            if let Some(found) = strangers.into_iter().find(|found| is_rotten_name(found, name)) {
                let reason = format!(
                    "the name of column family {found:?}, which is not in the store, differs in one byte from {name:?}, which is"
                );
                return Err(Error::decode(path, 0, READING, DecodeError::corrupt("section", 0, reason)));
            }
        }
        Ok(read)
    }

    /// What the file says of the family `name`, which has one of the merge operators `given` if the file names it.
    pub(crate) fn family(&self, name: &str, given: &[Arc<dyn MergeOperator>]) -> Option<crate::Result<FamilyOptions>> {
        let mut options = self.families.get(name)?.clone();
        if let Ok(options) = &mut options {
            options.merge_operator = merge_operator(self.foreign.0.lock().family(name), given);
        }
        Some(options)
    }

    /// The name of the order that the keys of the family `name` have, as the file says.
    pub(crate) fn comparator(&self, name: &str) -> Option<String> {
        self.foreign.0.lock().family(name)?.get(COMPARATOR).map(str::to_owned)
    }

    /// Reads the file `raw` at `path`.
    pub(crate) fn parse(path: &Path, raw: &[u8]) -> crate::Result<Self> {
        let decode = |error| Error::decode(path, 0, READING, error);
        let file = OptionsFile::parse(raw).map_err(decode)?;
        let refused = |wrong, whose: &str| match wrong {
            Wrong::Unreadable(error) => decode(error),
            Wrong::Unsupported(reason) => {
                Error::new(ErrorKind::UnsupportedFormat, format!("{whose}{reason}")).with_path(path)
            }
        };
        accept_database(file.database()).map_err(|wrong| refused(wrong, ""))?;
        let mut families = BTreeMap::new();
        for name in file.family_names() {
            let whose = format!("column family {name:?}: ");
            accept_family(&file, name).map_err(|wrong| refused(wrong, &whose))?;
            let family = read_family(&file, name).map_err(|wrong| refused(wrong, &whose));
            // An unreadable number is damage; a compression that cannot be written matters only if it is to be used.
            match family {
                Err(error) if error.kind() == ErrorKind::Corruption => return Err(error),
                family => families.insert(name.to_owned(), family),
            };
        }
        let wal_dir = file.database().and_then(|section| section.get_string("wal_dir")).filter(|dir| !dir.is_empty());
        let allows_2pc = Some(is_set(file.database(), "allow_2pc").map_err(decode)?);
        let wal_dir = wal_dir.map(PathBuf::from);
        Ok(Self { families, wal_dir, allows_2pc, foreign: ForeignOptions(Mutex::new(file)) })
    }
}

enum Wrong {
    Unreadable(DecodeError),
    Unsupported(String),
}

impl From<DecodeError> for Wrong {
    fn from(error: DecodeError) -> Self {
        Self::Unreadable(error)
    }
}

fn number(section: Option<&Section>, key: &str, default: u64, least: u64, most: u64) -> Result<u64, DecodeError> {
    let written = section.map(|section| section.get_u64(key)).transpose()?.flatten();
    Ok(written.unwrap_or(default).clamp(least, most))
}

/// Numbers that RocksDB keeps as a signed 32-bit integer, where below zero means "never".
fn count(
    section: Option<&Section>,
    key: &str,
    default: usize,
    least: usize,
    most: usize,
) -> Result<usize, DecodeError> {
    let written = section.map(|section| section.get_i64(key)).transpose()?.flatten();
    let Some(written) = written else { return Ok(default) };
    Ok(usize::try_from(written).unwrap_or(most).clamp(least, most))
}

fn is_set(section: Option<&Section>, key: &str) -> Result<bool, DecodeError> {
    Ok(section.map(|section| section.get_bool(key)).transpose()?.flatten().unwrap_or(false))
}

fn compression(section: Option<&Section>, key: &str, default: Compression) -> Result<Compression, Wrong> {
    section.and_then(|section| section.get(key)).map_or(Ok(default), |name| named_compression(key, name))
}

fn named_compression(key: &str, name: &str) -> Result<Compression, Wrong> {
    match Compression::from_option_name(name) {
        Some(Compression::Lz4hc) => Ok(Compression::Lz4),
        Some(kind) => Ok(kind),
        None => Err(rotten(key, name, &COMPRESSIONS).unwrap_or_else(|| {
            Wrong::Unsupported(format!(
                "{key}={name}, which Esker cannot write; open with options for the family that say what to use"
            ))
        })),
    }
}

/// What is a name that RocksDB has but for one byte, be it the one that ends the line.
fn rotten(key: &str, name: &str, known: &[&str]) -> Option<Wrong> {
    let goes_on = |known: &str| name.strip_prefix(known).is_some_and(|rest| rest.contains(['=', '[']));
    let meant = known.iter().find(|known| is_one_byte_off(name, known) || goes_on(known))?;
    let reason = format!("{key}={name} differs in one byte from {meant}");
    Some(Wrong::Unreadable(DecodeError::corrupt("option", 0, reason)))
}

fn bottommost_compression(section: Option<&Section>) -> Result<Option<Compression>, Wrong> {
    let name = section.and_then(|section| section.get(BOTTOMMOST)).filter(|name| *name != AS_THE_OTHERS);
    name.map(|name| named_compression(BOTTOMMOST, name)).transpose()
}

fn compression_per_level(section: Option<&Section>) -> Result<Vec<Compression>, Wrong> {
    let names = section.and_then(|section| section.get(PER_LEVEL)).unwrap_or_default();
    names.split(':').filter(|name| !name.is_empty()).map(|name| named_compression(PER_LEVEL, name)).collect()
}

fn checksum(section: Option<&Section>) -> Option<ChecksumKind> {
    let name = section?.get("checksum")?;
    let kinds =
        [ChecksumKind::Crc32c, ChecksumKind::XxHash32, ChecksumKind::XxHash64, ChecksumKind::Xxh3, ChecksumKind::None];
    kinds.into_iter().find(|kind| kind.option_name() == name)
}

/// `bloomfilter:10:false` or `nullptr`; another filter is taken for the default one.
fn bloom_bits(section: Option<&Section>, default: f64) -> f64 {
    match section.and_then(|section| section.get("filter_policy")) {
        Some("nullptr") => 0.0,
        Some(policy) => policy
            .strip_prefix("bloomfilter:")
            .and_then(|rest| rest.split(':').next())
            .and_then(|bits| bits.parse().ok())
            .filter(|bits: &f64| bits.is_finite())
            .map_or(default, |bits| bits.clamp(0.0, 64.0)),
        None => default,
    }
}

/// What prefixes RocksDB was told to look for; a user's own code cannot be asked.
fn known_prefix(section: Option<&Section>) -> Option<PrefixExtractor> {
    let prefix = PrefixExtractor::parse(section?.get("prefix_extractor")?)?;
    (1..=limits::KEY_BYTES_MAX).contains(&prefix.bytes()).then_some(prefix)
}

/// The operator that the file names, if it is RocksDB's own or one of `given`.
fn merge_operator(section: Option<&Section>, given: &[Arc<dyn MergeOperator>]) -> Option<Arc<dyn MergeOperator>> {
    named(&section?.get_string(MERGE_OPERATOR)?, given)
}

/// Whether RocksDB brings values back from all blob files as it compacts, given that it makes none.
fn falls_back(section: Option<&Section>) -> Result<bool, DecodeError> {
    let cutoff = section.map(|section| section.get_f64("blob_garbage_collection_age_cutoff")).transpose()?.flatten();
    Ok(is_set(section, "enable_blob_garbage_collection")? && cutoff.is_some_and(|part| part >= 1.0))
}

/// Whether the release that wrote the file has blob files; one before would refuse options for them.
fn knows_blobs(file: &OptionsFile) -> bool {
    let mut numbers = file.rocksdb_version().unwrap_or_default().split('.').map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_none_or(|release| release >= BLOBS_SINCE)
}

fn accept_database(section: Option<&Section>) -> Result<(), Wrong> {
    if is_set(section, "allow_ingest_behind")? {
        return Err(ingests_behind("allow_ingest_behind"));
    }
    Ok(())
}

/// Files that RocksDB may yet put below all others need a deepest level that is free, and what would hide their keys.
fn ingests_behind(key: &str) -> Wrong {
    Wrong::Unsupported(format!(
        "{key}=true, and Esker keeps neither the last level free nor what would hide the keys of files that come in behind; open \
         the store with RocksDB and without it first"
    ))
}

/// Accepts where tables lie and what they are.
fn accept_family(file: &OptionsFile, name: &str) -> Result<(), Wrong> {
    let family = file.family(name);
    if is_set(family, "cf_allow_ingest_behind")? {
        return Err(ingests_behind("cf_allow_ingest_behind"));
    }
    let said = |key| family.and_then(|section| section.get(key));
    if said("compaction_style") == Some("kCompactionStyleFIFO") {
        // Levelled once, its tables would not go by age any more.
        let reason = "compaction_style=kCompactionStyleFIFO, and Esker moves tables to lower levels; compact it with RocksDB \
                      and another style first";
        return Err(Wrong::Unsupported(reason.to_owned()));
    }
    let of_section = file.table(name).and_then(|section| match &section.kind {
        SectionKind::Table { factory, .. } => Some(factory.as_str()),
        _ => None,
    });
    // RocksDB's AdaptiveTable reads all of RocksDB's kinds.
    let is_readable = |factory: &&str| matches!(*factory, SectionKind::BLOCK_BASED | "AdaptiveTable");
    match said("table_factory").into_iter().chain(of_section).find(|factory| !is_readable(factory)) {
        None => Ok(()),
        Some(factory) => Err(rotten("table_factory", factory, &TABLE_FACTORIES).unwrap_or_else(|| {
            Wrong::Unsupported(format!(
                "its tables are to be of kind {factory}, and Esker writes only {}; rewrite the store with RocksDB first",
                SectionKind::BLOCK_BASED
            ))
        })),
    }
}

fn read_family(file: &OptionsFile, name: &str) -> Result<FamilyOptions, Wrong> {
    let (family, table) = (file.family(name), file.table(name));
    let default = FamilyOptions::default();
    let separates = family.map(|section| section.get_bool("enable_blob_files")).transpose()?.flatten();
    let trigger = count(family, "level0_file_num_compaction_trigger", default.level0_compaction_trigger, 1, 10_000)?;
    let slowdown =
        count(family, "level0_slowdown_writes_trigger", default.level0_slowdown_trigger, trigger, 10_000)?.max(trigger);
    let stop = count(family, "level0_stop_writes_trigger", default.level0_stop_trigger, 1, 20_000)?.max(slowdown + 1);
    let soft_default = default.pending_compaction_bytes_soft;
    let soft = number(family, "soft_pending_compaction_bytes_limit", soft_default, 0, u64::MAX / 2)?;
    let soft = if soft == 0 { soft_default } else { soft.max(MIB) };
    let hard_default = default.pending_compaction_bytes_hard;
    let hard = number(family, "hard_pending_compaction_bytes_limit", hard_default, 0, u64::MAX)?;
    let multiplier = family.map(|section| section.get_f64("max_bytes_for_level_multiplier")).transpose()?.flatten();
    let value_bytes_max = limits::VALUE_BYTES_MAX as u64;
    Ok(FamilyOptions {
        write_buffer_bytes: number(family, "write_buffer_size", default.write_buffer_bytes, 64 * KIB, 16 * GIB)?,
        write_buffer_count_max: count(family, "max_write_buffer_number", default.write_buffer_count_max, 2, 64)?,
        separation: match separates {
            Some(true) if family.and_then(|section| section.note(SEPARATION_NOTE)) == Some(AT_WRITE) => {
                Separation::AtWrite
            }
            Some(true) => Separation::AtFlush,
            Some(false) if falls_back(family)? => Separation::FallBack,
            Some(false) => Separation::Off,
            None if knows_blobs(file) => default.separation,
            None => Separation::Off,
        },
        min_blob_size: number(family, "min_blob_size", default.min_blob_size, 0, value_bytes_max)?,
        blob_file_bytes: number(family, "blob_file_size", default.blob_file_bytes, 64 * KIB, 4 * GIB)?,
        blob_partition: None,
        merge_operator: merge_operator(family, &[]),
        comparator: default.comparator,
        compaction_filter: None,
        periodic_compaction_seconds: period(family)?,
        blob_compression: compression(family, "blob_compression_type", default.blob_compression)?,
        compression: compression(family, "compression", default.compression)?,
        bottommost_compression: bottommost_compression(family)?,
        compression_per_level: compression_per_level(family)?,
        block_bytes: number(table, "block_size", default.block_bytes, 256, 16 * MIB)?,
        restart_interval: count(table, "block_restart_interval", default.restart_interval, 1, 1024)?,
        bloom_bits_per_key: bloom_bits(table, default.bloom_bits_per_key),
        prefix: known_prefix(family),
        checksum: checksum(table).unwrap_or(default.checksum),
        target_file_bytes: number(family, "target_file_size_base", default.target_file_bytes, 4 * KIB, 16 * GIB)?,
        level_base_bytes: number(family, "max_bytes_for_level_base", default.level_base_bytes, 16 * KIB, GIB << 10)?,
        level_multiplier: multiplier.map_or(default.level_multiplier, |factor| factor.clamp(2.0, 100.0) as u64),
        level_count: level_count(family)?,
        level0_compaction_trigger: trigger,
        level0_slowdown_trigger: slowdown,
        level0_stop_trigger: stop,
        pending_compaction_bytes_soft: soft,
        pending_compaction_bytes_hard: if hard == 0 { hard_default } else { hard }.max(soft + 1),
    })
}

/// None where RocksDB chose for itself.
fn period(section: Option<&Section>) -> Result<u64, Wrong> {
    let said = number(section, PERIODIC, 0, 0, u64::MAX)?;
    Ok(match said {
        1..=PERIOD_SECONDS_MAX => said.max(PERIOD_SECONDS_MIN),
        _ => 0,
    })
}

/// A tree with more levels than Esker's is one whose tables fit into fewer, or open refuses it; one with too few has no
/// level to compact into, and whoever chose that would not find what Esker compacts.
fn level_count(section: Option<&Section>) -> Result<usize, Wrong> {
    let levels = count(section, "num_levels", LEVEL_COUNT, 0, LEVEL_COUNT)?;
    if levels < LEVEL_COUNT_MIN {
        return Err(Wrong::Unsupported(format!(
            "num_levels={levels}, and Esker needs {LEVEL_COUNT_MIN}; open with options for the family that say how many"
        )));
    }
    Ok(levels)
}

/// A key, and what stands there for what is in force.
type Line<O = FamilyOptions> = (&'static str, fn(&O) -> String);

/// These are the process's and are not read: every open goes by its own options. They are there for RocksDB. Written where the caller chose something else than the
/// default, or changed it while the store was open, to the default perhaps; else what is found stays.
const DATABASE_LINES: [Line<Options>; 4] = [
    ("max_background_jobs", |options| options.background_jobs.max(1).to_string()),
    ("max_total_wal_size", |options| options.wal_bytes_max.to_string()),
    ("recycle_log_file_num", |options| options.recycled_logs_max.to_string()),
    ("max_manifest_file_size", |options| options.manifest_bytes_max.to_string()),
];

/// Written where the file would be read otherwise: what RocksDB allows and Esker does not stays as it is found.
const FAMILY_LINES: [Line; 12] = [
    ("num_levels", |options| options.level_count.to_string()),
    ("write_buffer_size", |options| options.write_buffer_bytes.to_string()),
    ("max_write_buffer_number", |options| options.write_buffer_count_max.to_string()),
    ("compression", |options| options.compression.option_name().to_owned()),
    ("target_file_size_base", |options| options.target_file_bytes.to_string()),
    ("max_bytes_for_level_base", |options| options.level_base_bytes.to_string()),
    // With six digits, as RocksDB has them.
    ("max_bytes_for_level_multiplier", |options| format!("{:.6}", options.level_multiplier as f64)),
    ("level0_file_num_compaction_trigger", |options| options.level0_compaction_trigger.to_string()),
    ("level0_slowdown_writes_trigger", |options| options.level0_slowdown_trigger.to_string()),
    ("level0_stop_writes_trigger", |options| options.level0_stop_trigger.to_string()),
    ("soft_pending_compaction_bytes_limit", |options| options.pending_compaction_bytes_soft.to_string()),
    ("hard_pending_compaction_bytes_limit", |options| options.pending_compaction_bytes_hard.to_string()),
];

/// Keys of a family whose values may be none of Esker's.
const REFUSED: [&str; 5] = ["num_levels", "compression", BOTTOMMOST, PER_LEVEL, "blob_compression_type"];

/// The same for what RocksDB takes the same default for.
const SELDOM_LINES: [Line; 4] = [
    (PERIODIC, |options| options.periodic_compaction_seconds.to_string()),
    (BOTTOMMOST, |options| options.bottommost_compression.map_or(AS_THE_OTHERS, Compression::option_name).to_owned()),
    (PER_LEVEL, |options| {
        options.compression_per_level.iter().map(|kind| kind.option_name()).collect::<Vec<_>>().join(":")
    }),
    ("prefix_extractor", |options| options.prefix.map_or_else(|| "nullptr".to_owned(), |prefix| prefix.to_string())),
];

/// The same for what releases before [`BLOBS_SINCE`] do not know, and refuse the file for.
const BLOB_LINES: [Line; 3] = [
    ("min_blob_size", |options| options.min_blob_size.to_string()),
    ("blob_file_size", |options| options.blob_file_bytes.to_string()),
    ("blob_compression_type", |options| options.blob_compression.option_name().to_owned()),
];

/// The same of its tables.
const TABLE_LINES: [Line; 4] = [
    ("block_size", |options| options.block_bytes.to_string()),
    ("block_restart_interval", |options| options.restart_interval.to_string()),
    ("checksum", |options| options.checksum.option_name().to_owned()),
    ("filter_policy", |options| match options.bloom_bits_per_key {
        bits if bits > 0.0 => format!("bloomfilter:{bits}:false"),
        _ => "nullptr".to_owned(),
    }),
];

/// How many lines are read in the light of another: compaction trigger, slowdown and stop.
const LINES_DEPTH: usize = 3;

fn set_if_absent(section: &mut Section, key: &str, value: &str) {
    if section.get(key).is_none() {
        section.set(key, value);
    }
}

/// The next OPTIONS file: what is in force, over what was carried on.
pub(crate) fn print(options: &Options, families: &BTreeMap<u32, Arc<Family>>, foreign: &ForeignOptions) -> String {
    let names: HashSet<&str> = families.values().map(|family| family.name.as_str()).collect();
    let mut found = foreign.0.lock();
    found.retain_families(|name| names.contains(name));
    let mut file = found.clone();
    drop(found);
    let database = file.database_mut();
    let unchosen = Options::default();
    for (key, line) in DATABASE_LINES {
        let wanted = line(options);
        if database.get(key).is_none() || wanted != line(&unchosen) {
            database.set(key, wanted);
        }
    }
    if options.keep_space_options {
        kept::note(database, options);
    }
    let wal_dir = options.wal_dir.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    database.set_string("wal_dir", &wal_dir);
    for family in families.values() {
        print_family(&mut file, &family.name, &family.options());
    }
    file.to_string()
}

fn print_family(file: &mut OptionsFile, name: &str, options: &FamilyOptions) {
    let separation = options.separation;
    let collects_all = falls_back(file.family(name)).unwrap_or(false);
    let said_off =
        file.family(name).and_then(|section| section.get_bool("enable_blob_files").ok().flatten()) == Some(false);
    let says_blobs = knows_blobs(file) || separation != Separation::Off;
    if matches!(read_family(file, name), Err(Wrong::Unsupported(_))) {
        // The caller said what to use in place of that, and nothing of the rest.
        let family = file.family_mut(name);
        for (key, line) in FAMILY_LINES.iter().chain(&SELDOM_LINES).chain(&BLOB_LINES) {
            if REFUSED.contains(key) && family.get(key).is_some() {
                family.set(key, line(options));
            }
        }
    }
    // A line may be read in the light of others, so all are looked at again once one has changed.
    for _ in 0..=LINES_DEPTH {
        let found = read_family(file, name).ok();
        let change = |section: &mut Section, lines: &[Line], is_always_said: bool| {
            let mut has_changed = false;
            for (key, line) in lines {
                let wanted = line(options);
                if (is_always_said && section.get(key).is_none())
                    || found.as_ref().is_none_or(|found| line(found) != wanted)
                {
                    section.set(key, wanted);
                    has_changed = true;
                }
            }
            has_changed
        };
        let family = file.family_mut(name);
        let changes = [
            change(family, &FAMILY_LINES, true),
            change(family, &SELDOM_LINES, false),
            change(family, &BLOB_LINES, says_blobs),
            change(file.table_mut(name), &TABLE_LINES, true),
        ];
        if !changes.contains(&true) {
            break;
        }
    }
    let family = file.family_mut(name);
    family.set(COMPARATOR, options.comparator.name());
    // One that nobody has here is carried on: its operands may be there.
    if let Some(operator) = &options.merge_operator
        && !family.get_string(MERGE_OPERATOR).is_some_and(|said| is_said(&said, &**operator))
    {
        family.set_string(MERGE_OPERATOR, &operator.option_text());
    }
    set_if_absent(family, "level_compaction_dynamic_level_bytes", "true");
    if says_blobs || family.get("enable_blob_files").is_some() {
        family.set("enable_blob_files", separation.moves_out());
    }
    if separation == Separation::AtWrite {
        family.set_note(SEPARATION_NOTE, AT_WRITE);
    } else {
        family.remove_note(SEPARATION_NOTE);
    }
    if separation == Separation::FallBack {
        family.set("enable_blob_garbage_collection", true);
        family.set_f64("blob_garbage_collection_age_cutoff", 1.0);
    } else if collects_all && said_off {
        // Nobody chose these: RocksDB would move all values of a family that separates again in every compaction.
        family.set("enable_blob_garbage_collection", false);
        family.set_f64("blob_garbage_collection_age_cutoff", DEFAULT_AGE_CUTOFF);
    } else if collects_all && separation == Separation::Off {
        family.set("enable_blob_garbage_collection", false);
    }
    set_if_absent(file.table_mut(name), "format_version", "5");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::StringAppendOperator;
    use crate::version::Version;
    use esker_format::rocksdb::internal_key::FileNumber;

    fn family_with(options: FamilyOptions) -> Arc<Family> {
        let version = Version::empty(options.order());
        Family::new(0, "default".into(), options, version, FileNumber::new(1), "session".into())
    }

    fn reread(options: FamilyOptions, foreign: &ForeignOptions) -> (FamilyOptions, OptionsInFile) {
        let family = family_with(options);
        let text = print(&Options::default(), &BTreeMap::from([(0, family)]), foreign);
        let read = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text.as_bytes()).unwrap();
        (read.families["default"].clone().unwrap(), read)
    }

    #[test]
    fn what_is_printed_reads_back() {
        let odd = FamilyOptions {
            write_buffer_bytes: 100_000,
            write_buffer_count_max: 7,
            separation: Separation::Off,
            min_blob_size: 77,
            blob_file_bytes: 99_999,
            blob_partition: None,
            compaction_filter: None,
            periodic_compaction_seconds: 86_400,
            comparator: &esker_format::rocksdb::order::BytewiseComparator,
            merge_operator: Some(Arc::new(StringAppendOperator::new("--").unwrap())),
            blob_compression: Compression::Zstd,
            compression: Compression::Snappy,
            bottommost_compression: Some(Compression::Zstd),
            compression_per_level: vec![Compression::None, Compression::Lz4],
            block_bytes: 5000,
            restart_interval: 3,
            bloom_bits_per_key: 5.5,
            prefix: Some(PrefixExtractor::Capped(7)),
            checksum: ChecksumKind::Crc32c,
            target_file_bytes: 5001,
            level_base_bytes: 20_001,
            level_multiplier: 8,
            level_count: 3,
            level0_compaction_trigger: 3,
            level0_slowdown_trigger: 9,
            level0_stop_trigger: 17,
            pending_compaction_bytes_soft: 10 << 20,
            pending_compaction_bytes_hard: 11 << 20,
        };
        let falls_back = FamilyOptions {
            separation: Separation::FallBack,
            periodic_compaction_seconds: PERIOD_SECONDS_MAX,
            ..odd.clone()
        };
        for options in [odd, falls_back, FamilyOptions::default()] {
            let (read, _) = reread(options.clone(), &ForeignOptions::default());
            assert_eq!(format!("{read:?}"), format!("{options:?}"));
            read.validate().unwrap();
        }
    }

    #[test]
    fn foreign_options_are_carried_on_and_brought_into_range() {
        let text =
            b"[Version]\nrocksdb_version=7.8.3\noptions_file_version=1.1\n[DBOptions]\nstats_dump_period_sec=7\n\
            [CFOptions \"default\"]\nwrite_buffer_size=1K\nreport_bg_io_stats=true\nlevel0_stop_writes_trigger=-1\n";
        let read = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text).unwrap();
        let options = read.families["default"].clone().unwrap();
        options.validate().unwrap();
        assert_eq!(options.write_buffer_bytes, 64 << 10);
        let (_, again) = reread(options, &read.foreign);
        let file = again.foreign.0.into_inner();
        assert_eq!(file.database().unwrap().get("stats_dump_period_sec"), Some("7"));
        assert_eq!(file.family("default").unwrap().get("report_bg_io_stats"), Some("true"));
    }

    /// Goal: what the caller does not choose stands there as before, though Esker has no such number, filter or factor; what he chooses is read
    /// back, whatever stood there.
    #[test]
    fn what_nobody_chose_stays_as_it_was_found() {
        let lines = [
            "max_background_jobs=16",
            "max_total_wal_size=1G",
            "recycle_log_file_num=4",
            "max_manifest_file_size=1T",
            "[CFOptions \"default\"]",
            "num_levels=12",
            "write_buffer_size=1K",
            "level_compaction_dynamic_level_bytes=false",
            "compression=kLZ4HCCompression",
            "compression_per_level=kNoCompression:kLZ4HCCompression",
            "bottommost_compression=kZSTDNotFinalCompression",
            "max_bytes_for_level_multiplier=2.500000",
            "prefix_extractor=my.Own",
            "level0_file_num_compaction_trigger=30",
            "level0_slowdown_writes_trigger=20",
            "level0_stop_writes_trigger=-1",
            "hard_pending_compaction_bytes_limit=0",
            "[TableOptions/BlockBasedTable \"default\"]",
            "block_size=1",
            "format_version=2",
            "filter_policy=ribbonfilter:10:0",
        ];
        let text_of = |lines: &[&str]| {
            format!("[Version]\nrocksdb_version=7.8.3\noptions_file_version=1.1\n[DBOptions]\n{}\n", lines.join("\n"))
        };
        let read = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text_of(&lines).as_bytes()).unwrap();
        let printed = |options: &Options, family: FamilyOptions| {
            let family = family_with(family);
            print(options, &BTreeMap::from([(0, family)]), &read.foreign)
        };
        let options = read.families["default"].clone().unwrap();
        options.validate().unwrap();
        let unchosen = printed(&Options::default(), options.clone());
        for line in lines {
            assert!(unchosen.lines().any(|printed| printed.trim() == line), "{line} is not in:\n{unchosen}");
        }
        let chosen = Options { background_jobs: 3, ..Options::default() };
        // Each of these is read in the light of the one before.
        let family = FamilyOptions { level0_compaction_trigger: 4, level0_slowdown_trigger: 30, ..options };
        let text = printed(&chosen, family.clone());
        assert!(text.contains("max_background_jobs=3\n") && text.contains("recycle_log_file_num=4\n"), "{text}");
        let again = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text.as_bytes()).unwrap();
        assert_eq!(format!("{:?}", again.families["default"].clone().unwrap()), format!("{family:?}"));
        // Whoever says what to use in place of what Esker lacks has said nothing of the rest.
        let text = text_of(&lines)
            .replace("kLZ4HCCompression\n", "kBZip2Compression\n")
            .replace("num_levels=12", "num_levels=1");
        let foreign = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text.as_bytes()).unwrap();
        assert!(foreign.families["default"].is_err());
        let family = read.families["default"].clone().unwrap();
        let family = family_with(family);
        let text = print(&Options::default(), &BTreeMap::from([(0, family)]), &foreign.foreign);
        for line in lines.iter().filter(|line| !REFUSED.iter().any(|key| line.starts_with(&format!("{key}=")))) {
            assert!(text.lines().any(|printed| printed.trim() == *line), "{line} is not in:\n{text}");
        }
    }

    /// Goal: a family that fell back and separates again leaves RocksDB's own collection as it is by default; one that was never told to fall back
    /// keeps what it was told.
    #[test]
    fn a_family_that_separates_again_has_rocksdb_collect_nothing() {
        let with = |separation| FamilyOptions { separation, ..FamilyOptions::default() };
        let (_, fell_back) = reread(with(Separation::FallBack), &ForeignOptions::default());
        for separation in [Separation::Off, Separation::AtFlush, Separation::AtWrite] {
            let (read, again) = reread(with(separation), &fell_back.foreign);
            assert_eq!(read.separation, separation);
            let file = again.foreign.0.into_inner();
            let said = |key| file.family("default").unwrap().get(key).unwrap().to_owned();
            assert_eq!(said("enable_blob_garbage_collection"), "false", "{separation:?}");
            assert_eq!(said("blob_garbage_collection_age_cutoff"), "0.250000", "{separation:?}");
        }
        let text =
            b"[Version]\nrocksdb_version=7.8.3\noptions_file_version=1.1\n[DBOptions]\n[CFOptions \"default\"]\n\
            enable_blob_files=true\nenable_blob_garbage_collection=true\nblob_garbage_collection_age_cutoff=1.000000\n";
        let chosen = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text).unwrap();
        let (_, again) = reread(chosen.families["default"].clone().unwrap(), &chosen.foreign);
        let file = again.foreign.0.into_inner();
        assert_eq!(file.family("default").unwrap().get("enable_blob_garbage_collection"), Some("true"));
        let (read, _) = reread(with(Separation::Off), &chosen.foreign);
        assert_eq!(read.separation, Separation::Off);
    }

    /// Goal: a release without blob files finds no options for them, as long as there are none; it has no values separated, either.
    #[test]
    fn releases_without_blob_files_are_told_nothing_of_them() {
        let of_release = |release: &str| {
            let text = format!(
                "[Version]\nrocksdb_version={release}\noptions_file_version=1.1\n[DBOptions]\n[CFOptions \"default\"]\n"
            );
            OptionsInFile::parse(Path::new("/OPTIONS-000001"), text.as_bytes()).unwrap()
        };
        let printed = |read: &OptionsInFile, options: FamilyOptions| {
            let family = family_with(options);
            print(&Options::default(), &BTreeMap::from([(0, family)]), &read.foreign)
        };
        let old = of_release("6.17.3");
        let options = old.families["default"].clone().unwrap();
        assert_eq!(options.separation, Separation::Off);
        assert!(!printed(&old, options.clone()).contains("blob"));
        for separation in [Separation::AtFlush, Separation::FallBack] {
            let text = printed(&old, FamilyOptions { separation, ..options.clone() });
            let again = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text.as_bytes()).unwrap();
            assert_eq!(again.families["default"].clone().unwrap().separation, separation, "{text}");
        }
        for release in ["6.18.0", "7.8.3", "10.0.1"] {
            let new = of_release(release);
            let options = new.families["default"].clone().unwrap();
            assert_eq!(options.separation, Separation::AtFlush);
            let text = printed(&new, FamilyOptions { separation: Separation::Off, ..options });
            assert!(text.contains("enable_blob_files=false") && text.contains("min_blob_size=4096"), "{text}");
        }
    }

    #[test]
    fn a_tree_of_one_level_is_an_error_and_one_of_many_has_as_many_as_there_can_be() {
        let levels = |count: i32| {
            let text = format!(
                "[Version]\nrocksdb_version=7.8.3\noptions_file_version=1.1\n[DBOptions]\n\
                 [CFOptions \"default\"]\nnum_levels={count}\n"
            );
            let read = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text.as_bytes()).unwrap();
            read.families["default"].clone().map(|options| options.level_count)
        };
        assert_eq!(levels(1).unwrap_err().kind(), ErrorKind::UnsupportedFormat);
        assert_eq!([2, 4, 7, 12].map(|count| levels(count).unwrap()), [2, 4, 7, 7]);
    }

    #[test]
    fn a_compression_that_cannot_be_written_is_an_error_of_that_family_only() {
        let text = b"[Version]\nrocksdb_version=7.8.3\noptions_file_version=1.1\n[DBOptions]\n\
            [CFOptions \"default\"]\ncompression=kBZip2Compression\n[CFOptions \"other\"]\n\
            [CFOptions \"bottom\"]\nbottommost_compression=kBZip2Compression\n\
            [CFOptions \"levels\"]\ncompression_per_level=kNoCompression:kBZip2Compression\n";
        let read = OptionsInFile::parse(Path::new("/OPTIONS-000001"), text).unwrap();
        for name in ["default", "bottom", "levels"] {
            let error = read.families[name].clone().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
        }
        assert!(read.families["other"].is_ok());
    }
}
