//! Opening a store, and finding a column family in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use clap::{Args, ValueEnum};
use esker::{
    Cask, CaskOptions, CaskRecovery, ColumnFamily, Comparator, Compression, Db, Error, ErrorKind, FamilyOptions,
    MergeOperator, Options, Separation,
};

use crate::failure::{Failure, warn};
use crate::kind::Kind;
use crate::sizes::{Bytes, parse_bytes, plural};

/// Where the logs of the one Db are that a command is about; nowhere: in it.
static WAL_DIR: OnceLock<PathBuf> = OnceLock::new();
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Told once, before any command runs.
pub(crate) fn logs_are_in(wal_dir: Option<PathBuf>) {
    if let Some(wal_dir) = wal_dir {
        WAL_DIR.get_or_init(|| wal_dir);
    }
}

/// Says so, if nothing has asked where they are.
pub(crate) fn warn_of_logs_of_no_use() {
    if WAL_DIR.get().is_some() && !IS_ASKED_FOR.load(Ordering::Relaxed) {
        warn("--wal-dir is for a Db's logs, and was of no use here");
    }
}

fn wal_dir() -> Option<PathBuf> {
    IS_ASKED_FOR.store(true, Ordering::Relaxed);
    WAL_DIR.get().cloned()
}

/// The defaults, for a Db whose logs are where they are.
pub(crate) fn options() -> Options {
    Options { wal_dir: wal_dir(), ..Options::default() }
}

/// Those that the store in `path` keeps, for the same.
pub(crate) fn options_of(path: &Path) -> Result<Options, Error> {
    Ok(Options { wal_dir: wal_dir(), ..Options::of_store(path)? })
}

/// For reading: keeps no writer out, writes nothing.
pub(crate) fn open_read_only(path: &Path) -> Result<Db, Error> {
    refuse_other(path)?;
    Db::open_read_only(path, options()).map_err(|error| why_not(path, error))
}

/// What a Db takes on the disk while nobody writes to it: then its log is as long as what is in it.
pub(crate) fn bytes_at_rest(path: &Path) -> Result<u64, Error> {
    Ok(open_read_only(path)?.stats().on_disk.total_bytes())
}

/// For writing to a store that exists, or to a new one if `create_if_missing`.
pub(crate) fn open(path: &Path, create_if_missing: bool) -> Result<Db, Error> {
    refuse_other(path)?;
    open_with(path, Options { create_if_missing, ..options_of(path)? })
}

/// A Db that exists or may be made. Who opens it for a moment goes by what its program chose, and changes nothing of that: `options` are
/// those of the [store](options_of), but for what the command is about.
pub(crate) fn open_with(path: &Path, options: Options) -> Result<Db, Error> {
    Db::open(path, options).map_err(|error| why_not(path, error))
}

/// Refuses a store of another kind: what makes a store would make one beside it.
pub(crate) fn refuse_other(path: &Path) -> Result<(), Error> {
    match Kind::of(path) {
        Some(kind) if kind != Kind::Db => Err(kind.refuse(path)),
        _ => Ok(()),
    }
}

/// Whether a Cask is in `path`.
pub(crate) fn is_cask(path: &Path) -> bool {
    Kind::of(path) == Some(Kind::Cask)
}

/// A Cask for reading: takes no lock, writes nothing. Damage is told.
pub(crate) fn open_cask_read_only(path: &Path) -> Result<Cask, Error> {
    Cask::open_read_only(path, CaskOptions::default()).inspect(warn_of_damage).map_err(|error| why_not(path, error))
}

/// A Cask that exists, for writing. Damage is told.
pub(crate) fn open_cask(path: &Path) -> Result<Cask, Error> {
    Cask::open(path, CaskOptions::default()).inspect(warn_of_damage).map_err(|error| why_not(path, error))
}

/// What an engine says where there is no store is for programs: it names an option of theirs.
pub(crate) fn why_not(path: &Path, error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound || Kind::of(path).is_some() {
        return error;
    }
    let reason = "there is no store; check the path, or see `esker create`";
    Error::new(ErrorKind::NotFound, reason).with_path(path)
}

/// What was damaged is not answered, but who asks should know that there is such.
pub(crate) fn warn_of_damage(cask: &Cask) {
    let CaskRecovery { damage, damaged_keys, .. } = cask.recovery();
    let Some((path, range)) = damage.first() else { return };
    let places = plural(damage.len() as u64, "place", "places");
    let lost = match damaged_keys.len() as u64 {
        0 => "the keys that were there have been written or deleted since".to_owned(),
        count => format!("of {} the newest value is lost", plural(count, "key", "keys")),
    };
    let (path, at, bytes) = (path.display(), range.start, Bytes(range.end.saturating_sub(range.start)));
    warn(format_args!(
        "damage in {places}, the first {path} at byte {at}, {bytes} of it: {lost}; see `esker check`, `esker repair`"
    ));
}

/// Which column family.
#[derive(Debug, Args)]
pub(crate) struct FamilyArgument {
    /// Column family
    // The other is what RocksDB's ldb calls it.
    #[arg(long = "cf", alias = "column_family", value_name = "NAME", default_value = "default")]
    pub(crate) name: String,
}

impl FamilyArgument {
    /// Refuses a family of a Cask, which has none.
    pub(crate) fn refuse_on_cask(&self) -> Result<(), Failure> {
        match self.name.as_str() {
            "default" => Ok(()),
            _ => Err(Failure::new("--cf names a column family; a Cask has none")),
        }
    }

    /// The family, which must exist.
    pub(crate) fn find(&self, db: &Db) -> Result<ColumnFamily, Failure> {
        find_family(db, &self.name)
    }
}

/// The family of that name, which must exist.
pub(crate) fn find_family(db: &Db, name: &str) -> Result<ColumnFamily, Failure> {
    db.column_family(name).ok_or_else(|| {
        Failure::new(format_args!("{}: there is no column family {name:?}; see `esker families`", db.path().display()))
    })
}

/// How a column family keeps its values.
#[derive(Debug, Args)]
pub(crate) struct FamilyChoices {
    /// Whether, and when, large values go to blob files
    #[arg(long, value_enum)]
    separation: Option<SeparationChoice>,

    /// Smallest value that moves to a blob file [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    min_blob_size: Option<u64>,

    /// How table blocks are compressed [default: lz4]
    #[arg(long, value_enum)]
    compression: Option<CompressionChoice>,

    /// How values in blob files are compressed [default: lz4]
    #[arg(long, value_enum)]
    blob_compression: Option<CompressionChoice>,
}

impl FamilyChoices {
    /// Whether anything was chosen.
    pub(crate) fn is_any(&self) -> bool {
        self.separation.is_some()
            || self.min_blob_size.is_some()
            || self.compression.is_some()
            || self.blob_compression.is_some()
    }

    /// How a Cask packs values; refuses what only a Db can do.
    pub(crate) fn of_cask(&self) -> Result<Compression, Failure> {
        if self.separation.is_some() || self.min_blob_size.is_some() || self.blob_compression.is_some() {
            return Err(Failure::new("a Cask has no blob files: of these options it takes only --compression"));
        }
        Ok(self.compression.map_or(Compression::None, CompressionChoice::compression))
    }

    /// `options` with what was chosen.
    pub(crate) fn apply(&self, mut options: FamilyOptions) -> FamilyOptions {
        if let Some(choice) = self.separation {
            options.separation = choice.separation();
        }
        if let Some(bytes) = self.min_blob_size {
            options.min_blob_size = bytes;
        }
        if let Some(choice) = self.compression {
            options.compression = choice.compression();
            (options.bottommost_compression, options.compression_per_level) = (None, Vec::new());
        }
        if let Some(choice) = self.blob_compression {
            options.blob_compression = choice.compression();
        }
        options
    }
}

/// How a new column family keeps its values, and what it is for as long as there is it.
#[derive(Debug, Args)]
pub(crate) struct NewFamilyChoices {
    #[command(flatten)]
    choices: FamilyChoices,

    /// What `esker merge` makes of values: one of RocksDB's own operators, uint64add, stringappend, max, bytesxor, put, or as an OPTIONS file
    /// says it, {id=StringAppendOperator;delimiter=|;}
    #[arg(long, value_name = "NAME", value_parser = parse_operator)]
    merge_operator: Option<Arc<dyn MergeOperator>>,

    /// In which order keys lie, for as long as there is the family: leveldb.BytewiseComparator or rocksdb.ReverseBytewiseComparator
    #[arg(long, value_name = "NAME", value_parser = parse_comparator)]
    comparator: Option<&'static dyn Comparator>,
}

impl NewFamilyChoices {
    /// Whether anything was chosen.
    pub(crate) fn is_any(&self) -> bool {
        self.choices.is_any() || self.merge_operator.is_some() || self.comparator.is_some()
    }

    /// See [`FamilyChoices::of_cask`].
    pub(crate) fn of_cask(&self) -> Result<Compression, Failure> {
        if self.merge_operator.is_some() {
            return Err(Failure::new("a Cask has no merge operators: of these options it takes only --compression"));
        }
        if self.comparator.is_some() {
            return Err(Failure::new("a Cask keeps keys in no order: of these options it takes only --compression"));
        }
        self.choices.of_cask()
    }

    /// `options` with what was chosen.
    pub(crate) fn apply(&self, options: FamilyOptions) -> FamilyOptions {
        let mut options = self.choices.apply(options);
        if let Some(operator) = &self.merge_operator {
            options.merge_operator = Some(operator.clone());
        }
        if let Some(comparator) = self.comparator {
            options.comparator = comparator;
        }
        options
    }

    /// The same of a family that is there. Another operator would make other values of the operands that it has.
    pub(crate) fn apply_to_present(&self, present: FamilyOptions) -> Result<FamilyOptions, Failure> {
        if let (Some(now), Some(chosen)) = (&present.merge_operator, &self.merge_operator)
            && now.option_text() != chosen.option_text()
        {
            let now = now.option_text();
            return Err(Failure::new(format_args!(
                "--merge-operator: the column family has operands of {now} already"
            )));
        }
        Ok(self.apply(present))
    }
}

fn parse_operator(text: &str) -> Result<Arc<dyn MergeOperator>, String> {
    <dyn MergeOperator>::named(text)
        .ok_or_else(|| "none of RocksDB's own: uint64add, stringappend, max, bytesxor, put".to_owned())
}

fn parse_comparator(text: &str) -> Result<&'static dyn Comparator, String> {
    <dyn Comparator>::named(text).ok_or_else(|| {
        "none of RocksDB's own: leveldb.BytewiseComparator, rocksdb.ReverseBytewiseComparator".to_owned()
    })
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SeparationChoice {
    Off,
    AtFlush,
    AtWrite,
    FallBack,
}

impl SeparationChoice {
    fn separation(self) -> Separation {
        match self {
            Self::Off => Separation::Off,
            Self::AtFlush => Separation::AtFlush,
            Self::AtWrite => Separation::AtWrite,
            Self::FallBack => Separation::FallBack,
        }
    }
}

/// As `--separation` has it.
pub(crate) fn separation_name(separation: Separation) -> String {
    let choices = SeparationChoice::value_variants().iter();
    let name = choices.filter(|choice| choice.separation() == separation).find_map(ValueEnum::to_possible_value);
    name.map_or_else(|| format!("{separation:?}"), |name| name.get_name().to_owned())
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum CompressionChoice {
    None,
    Snappy,
    Lz4,
    Zstd,
}

impl CompressionChoice {
    pub(crate) fn compression(self) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Snappy => Compression::Snappy,
            Self::Lz4 => Compression::Lz4,
            Self::Zstd => Compression::Zstd,
        }
    }
}
