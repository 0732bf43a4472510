//! `esker bench STORE --benchmarks fillrandom,readrandom`

mod raft;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use esker::{
    BytewiseComparator, Cask, CaskOptions, Comparator, Db, Error, ErrorKind, FamilyOptions, Listener, Options,
    PutOperator,
};
use serde_json::{Value, json};

use crate::Answer;
use crate::bench::{self, Benchmark, Distribution, Figures, KEY_BYTES_MAX, KEY_BYTES_MIN, Plan, Store, ValueSizes};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::parse_bytes;
use crate::stores::{self, FamilyChoices, open_read_only, warn_of_damage, why_not};

/// Keys, unless told otherwise.
const NUM: u64 = 1_000_000;
/// Memory for table blocks, unless told otherwise; the help says it.
const CACHE_BYTES: u64 = 64 << 20;

/// Measure a store at work, checking every answer
///
/// Runs the benchmarks one after another on the same store, which is made, or must be one that an earlier run with the
/// same --num, --key-size, --value-size and --seed has made (--use-existing). Keys are numbers below --num; values
/// are half compressible. The first wrong answer ends the run: exit code 1, and the key is named.
///
/// A Raft log is put to work as raft-engine's stress tool does, for --seconds (its --time), with the options under that
/// heading; then everything is read back.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The store's directory
    store: PathBuf,

    /// Which engine's store [default: what is there, else db]
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    /// What to run, in this order [default: fillrandom,readrandom, then readseq, or scan on a Cask]
    #[arg(long, value_enum, value_delimiter = ',')]
    benchmarks: Option<Vec<Benchmark>>,

    /// Keys
    #[arg(long, value_name = "N", default_value_t = NUM, value_parser = clap::value_parser!(u64).range(1..1 << 48))]
    num: u64,

    /// Operations of a benchmark that reads or mixes [default: as --num]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 48))]
    reads: Option<u64>,

    /// Bytes of a value: SIZE, uniform:MIN:MAX, or SIZE:WEIGHT,SIZE:WEIGHT…
    #[arg(long, value_name = "SIZES", value_parser = ValueSizes::parse, default_value = "100")]
    value_size: ValueSizes,

    /// Bytes of a key
    #[arg(long, value_name = "SIZE", value_parser = key_bytes, default_value = "16")]
    key_size: u64,

    /// Threads, which share the operations
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,

    /// End each benchmark after this time; those that only read or mix go on until then [default of Raft logs: 60]
    #[arg(long, alias = "time", value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,

    /// Entries in a write, where keys are put or deleted one after another
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    batch: u64,

    /// Wait after each write until it survives power loss, as a Raft log does unless told otherwise
    #[arg(long)]
    sync: bool,

    /// How often each key is asked for, where that is random [default: as the benchmark says, else uniform]
    #[arg(long, value_enum)]
    distribution: Option<Distribution>,

    #[command(flatten)]
    choices: FamilyChoices,

    /// Memory for table blocks [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    cache_bytes: Option<u64>,

    /// Size at which a memtable is flushed [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    write_buffer_bytes: Option<u64>,

    /// Threads for flush and compaction, or for sealing and merging
    #[arg(long, value_name = "N", default_value_t = 2)]
    background_jobs: usize,

    /// Makes other values and orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Steps after each seek of seekrandom
    #[arg(long, value_name = "N", default_value_t = 10)]
    nexts: u64,

    /// Keys that each operation of deleterange deletes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..1 << 48))]
    range_keys: u64,

    /// Work on a store that is there, and keep its options where none are chosen; what is chosen becomes its own
    #[arg(long, alias = "reuse-data")]
    use_existing: bool,

    /// Print the figures as an object
    #[arg(long)]
    json: bool,

    /// Also write the figures as a page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write down what a Db does in the background, and whom it keeps waiting: a line for each event
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    // Last, as its heading is that of all that follows.
    #[command(flatten)]
    raft: raft::RaftChoices,
}

impl Bench {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let kind = Kind::asked_or_there(self.kind, &self.store)?;
        if kind == Kind::Raft {
            self.refuse_events(kind)?;
            return self.run_raft(out);
        }
        self.raft.refuse(kind)?;
        self.refuse_events(kind)?;
        let plan = self.plan(kind);
        plan.check(kind)?;
        self.expect_report()?;
        let (store, options) = match kind {
            Kind::Cask => self.open_cask()?,
            _ => self.open_db()?,
        };
        let mut figures = bench::run(&plan, &store, options)?;
        let closed = store.close();
        // What cannot be opened any more keeps the figures of when it was open.
        if kind == Kind::Db
            && let Ok(db) = open_read_only(&self.store)
        {
            figures.left_on_disk(&db.stats().on_disk);
        }
        self.tell(out, &figures, closed)
    }

    /// Refuses a page that cannot be written, before hours are spent on it.
    fn expect_report(&self) -> Result<(), Failure> {
        self.report.as_deref().map_or(Ok(()), bench::expect_report)
    }

    fn refuse_events(&self, kind: Kind) -> Result<(), Failure> {
        if self.events.is_some() && kind != Kind::Db {
            return Err(Failure::new(format_args!("--events is a Db's, and this is {kind}")));
        }
        Ok(())
    }

    /// Who writes events down, if somebody wants them.
    fn listener(&self) -> Result<Option<Listener>, Failure> {
        let Some(path) = &self.events else { return Ok(None) };
        let file = File::create(path).map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
        Ok(Some(Listener::lines(file)))
    }

    /// Prints the figures as they were asked for: also those of a store that did not `close` well, or of which no page can be written.
    fn tell(&self, out: &mut Output, figures: &Figures, closed: Result<(), Error>) -> Result<Answer, Failure> {
        let printed = if self.json { out.json(&figures.object()) } else { bench::print(out, figures) };
        let written = self.report.as_deref().map_or(Ok(()), |path| bench::write_report(figures, path));
        closed?;
        printed.and(written)?;
        Ok(if figures.is_right() { Answer::Yes } else { Answer::No })
    }

    fn plan(&self, kind: Kind) -> Plan {
        let last = if kind == Kind::Cask { Benchmark::Scan } else { Benchmark::ReadSeq };
        let default = || vec![Benchmark::FillRandom, Benchmark::ReadRandom, last];
        Plan {
            benchmarks: self.benchmarks.clone().unwrap_or_else(default),
            num: self.num,
            reads: self.reads.unwrap_or(self.num),
            value_sizes: self.value_size.clone(),
            key_bytes: self.key_size as usize,
            threads: self.threads,
            time: self.seconds,
            batch: self.batch,
            sync: self.sync,
            distribution: self.distribution,
            seed: self.seed,
            nexts: self.nexts,
            range_keys: self.range_keys,
            use_existing: self.use_existing,
        }
    }

    fn open_db(&self) -> Result<(Store, Value), Failure> {
        let cache_bytes = self.cache_bytes.unwrap_or(CACHE_BYTES);
        let mut options = Options {
            create_if_missing: !self.use_existing,
            error_if_exists: !self.use_existing,
            cache_bytes,
            background_jobs: self.background_jobs,
            listeners: self.listener()?.into_iter().collect(),
            ..stores::options_of(&self.store)?
        };
        let mut family = self.choices.apply(self.present_options()?);
        if let Some(bytes) = self.write_buffer_bytes {
            family.write_buffer_bytes = bytes;
        }
        let merges = self.benchmarks.iter().flatten().any(|benchmark| *benchmark == Benchmark::MergeRandom);
        if merges && family.merge_operator.is_none() {
            family.merge_operator = Some(Arc::new(PutOperator));
        }
        if !self.use_existing || self.choices.is_any() || self.write_buffer_bytes.is_some() || merges {
            options.families.insert("default".to_owned(), family);
        }
        let db = Db::open(&self.store, options).map_err(|error| self.why_not_open(error))?;
        let order = db.default_column_family().options().comparator;
        if order.name() != BytewiseComparator.name() {
            let order = order.name();
            return Err(Failure::new(format_args!(
                "keys of this store are ordered by {order}; bench counts on that of bytes"
            )));
        }
        let options = describe(&db, cache_bytes, self.background_jobs);
        Ok((Store::Db(db), options))
    }

    fn open_cask(&self) -> Result<(Store, Value), Failure> {
        if self.cache_bytes.is_some() || self.write_buffer_bytes.is_some() {
            return Err(Failure::new(
                "a Cask has no cache and no memtables: --cache-bytes and --write-buffer-bytes are a Db's",
            ));
        }
        let options = CaskOptions {
            create_if_missing: !self.use_existing,
            error_if_exists: !self.use_existing,
            compression: self.choices.of_cask()?,
            background_jobs: self.background_jobs,
            ..CaskOptions::default()
        };
        let described = json!({
            "kind": "cask",
            "compression": options.compression.name(),
            "stripes": options.stripes,
            "file_bytes": options.file_bytes,
            "merge_garbage_ratio": options.merge_garbage_ratio,
            "background_jobs": options.background_jobs,
        });
        let cask =
            Cask::open(&self.store, options).inspect(warn_of_damage).map_err(|error| self.why_not_open(error))?;
        Ok((Store::Cask(cask), described))
    }

    fn why_not_open(&self, error: Error) -> Failure {
        match error.kind() {
            ErrorKind::Conflict if !self.use_existing => {
                Failure::new(format_args!("{error}; name a directory that is not there yet, or add --use-existing"))
            }
            _ => why_not(&self.store, error).into(),
        }
    }

    /// What the default family has now, so that what is not chosen stays as it is.
    fn present_options(&self) -> Result<FamilyOptions, Failure> {
        if !self.use_existing {
            return Ok(FamilyOptions::default());
        }
        Ok((*open_read_only(&self.store)?.default_column_family().options()).clone())
    }
}

/// The options that may be chosen, as an object.
fn describe(db: &Db, cache_bytes: u64, background_jobs: usize) -> Value {
    let family = db.default_column_family();
    let family = family.options();
    json!({
        "kind": "db",
        "compression": family.compression.name(),
        "blob_compression": family.blob_compression.name(),
        "separation": format!("{:?}", family.separation),
        "min_blob_size": family.min_blob_size,
        "write_buffer_bytes": family.write_buffer_bytes,
        "cache_bytes": cache_bytes,
        "background_jobs": background_jobs,
    })
}

fn key_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let range = KEY_BYTES_MIN as u64..=KEY_BYTES_MAX as u64;
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("a key has its number in it: {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write a number of seconds above 0, such as 10 or 0.5".to_owned()),
    }
}
