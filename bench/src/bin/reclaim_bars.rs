//! The bars that reclaim has set itself, measured: one table, each with its figure and whether it is met.
//!
//! ```text
//! cargo run --release --manifest-path bench/Cargo.toml --bin reclaim_bars -- --out bench/results/reclaim-bars-measured.md
//! ```
//!
//! `bench/results/reclaim-bars.md` has that table and what was written beside it: it is no name for `--out`.
//!
//! - B1: every value is compared in the end, byte by byte, with what was written last; what is wrong ends the run.
//! - B2: space is what the file system says that all files of the directory occupy, logs and unfinished files included, looked at a
//!   hundred times for each overwrite of all data, per byte of live records (header, key and value).
//! - B3: what is a ratio of speeds is measured in one run, both sides in turns.
//! - B4: a bar that is missed is no failure of the program: it says so and ends well.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use esker::{Compression, Db, FamilyOptions, Listener, Options, ReclaimMode, Separation};
use esker_compare::Result;
use esker_compare::data::{Data, KEY_BYTES, Key, VALUE_BYTES_MIN, mix};
use esker_compare::place::Place;
use esker_compare::report::machine;
use hdrhistogram::Histogram;

/// What a blob record takes besides its key and its value.
const RECORD_HEADER_BYTES: u64 = 32;
const MIB: f64 = (1 << 20) as f64;

/// Measures the bars of reclaim and prints them as a table.
#[derive(Parser)]
struct Args {
    /// Bytes of live values.
    #[arg(long, default_value_t = 4 << 30)]
    data_bytes: u64,
    /// How often all of them are overwritten.
    #[arg(long, default_value_t = 10)]
    overwrites: u64,
    /// Lengths of values.
    #[arg(long, value_delimiter = ',', default_value = "1024,4096,16384,32768")]
    value_bytes: Vec<usize>,
    /// Which keys: uniform, zipfian.
    #[arg(long, value_delimiter = ',', default_value = "uniform,zipfian")]
    keys: Vec<String>,
    /// What to measure: space, speed, latency, rocksdb.
    #[arg(long, value_delimiter = ',', default_value = "space,speed,latency,rocksdb")]
    parts: Vec<String>,
    /// Overwrites in each turn of a comparison of speeds.
    #[arg(long, default_value_t = 2)]
    speed_overwrites: u64,
    /// Turns of each side.
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Seconds of writing at a fixed rate.
    #[arg(long, default_value_t = 20)]
    latency_seconds: u64,
    /// Values as they are written: of all others, blob files hold what LZ4 leaves.
    #[arg(long)]
    lz4: bool,
    /// Where to work: in a directory of its own in this one.
    #[arg(long, default_value = "reclaim-bars-data")]
    directory: PathBuf,
    /// Where the table goes as well.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where to write what each store does in the background, one after the other.
    #[arg(long)]
    events: Option<PathBuf>,
}

/// How a store is set up.
#[derive(Clone, Copy)]
struct Setup {
    separation: Separation,
    mode: ReclaimMode,
    space_amp: f64,
    holes: bool,
}

const BOUND: f64 = 1.3;
const AT_FLUSH: Setup =
    Setup { separation: Separation::AtFlush, mode: ReclaimMode::Auto, space_amp: BOUND, holes: true };
const AT_WRITE: Setup = Setup { separation: Separation::AtWrite, ..AT_FLUSH };

/// Keys to overwrite.
enum Keys {
    Uniform(u64),
    /// By the inversion of Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994, with 0.99 for theta, as
    /// YCSB has it.
    Zipfian {
        count: u64,
        zeta: f64,
        eta: f64,
        half: f64,
    },
}

const THETA: f64 = 0.99;

impl Keys {
    fn new(name: &str, count: u64) -> Result<Self> {
        match name {
            "uniform" => Ok(Self::Uniform(count)),
            "zipfian" => {
                let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-THETA)).sum();
                let half = 1.0 + 0.5_f64.powf(THETA);
                let eta = (1.0 - (2.0 / count as f64).powf(1.0 - THETA)) / (1.0 - half / zeta);
                Ok(Self::Zipfian { count, zeta, eta, half })
            }
            other => Err(format!("keys are uniform or zipfian, not {other}").into()),
        }
    }

    /// The `n`th of them.
    fn at(&self, n: u64) -> u64 {
        let random = mix(n ^ 0x5eed_0000_0000);
        match *self {
            Self::Uniform(count) => random % count,
            Self::Zipfian { count, zeta, eta, half } => {
                let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
                let rank = if unit * zeta < 1.0 {
                    0
                } else if unit * zeta < half {
                    1
                } else {
                    (count as f64 * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
                };
                // The most wanted lie anywhere.
                mix(rank.min(count - 1)) % count
            }
        }
    }
}

/// A store being overwritten.
struct Store<'a> {
    db: Db,
    dir: &'a Path,
    data: Data,
    generations: Vec<u32>,
    keys: Keys,
    next: u64,
    value: Vec<u8>,
}

/// What came of a phase of overwriting.
#[derive(Default, Clone)]
struct Space {
    worst: f64,
    /// In the last half, sorted.
    steady: Vec<f64>,
    worst_excess: f64,
    device_per_user: f64,
    puts_per_second: f64,
    stalled: f64,
}

impl Space {
    fn median(&self) -> f64 {
        self.steady.get(self.steady.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl Args {
    fn buffer_bytes(&self) -> u64 {
        (self.data_bytes / 64).clamp(64 << 10, 64 << 20)
    }

    fn blob_file_bytes(&self) -> u64 {
        (self.data_bytes / 16).clamp(64 << 10, 256 << 20)
    }

    fn options(&self, setup: &Setup) -> Options {
        let family = FamilyOptions {
            write_buffer_bytes: self.buffer_bytes(),
            separation: setup.separation,
            min_blob_size: 512,
            blob_file_bytes: self.blob_file_bytes(),
            blob_compression: if self.lz4 { Compression::Lz4 } else { Compression::None },
            ..FamilyOptions::default()
        };
        Options {
            create_if_missing: true,
            reclaim_mode: setup.mode,
            max_space_amp: setup.space_amp,
            punch_holes: setup.holes,
            holes_within_values: false,
            families: [("default".to_owned(), family)].into(),
            listeners: self.listener().into_iter().collect(),
            ..Options::default()
        }
    }

    /// Says so where it cannot write, and measures all the same.
    fn listener(&self) -> Option<Listener> {
        let path = self.events.as_ref()?;
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        file.map(Listener::lines).inspect_err(|error| eprintln!("{}: {error}", path.display())).ok()
    }

    fn fresh(&self) -> Result<PathBuf> {
        let dir = self.directory.join("store");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    fn loaded<'a>(&self, dir: &'a Path, setup: &Setup, value_bytes: usize, keys: &str) -> Result<Store<'a>> {
        let count = self.data_bytes / value_bytes as u64;
        let (data, keys) = (Data::new(1, value_bytes), Keys::new(keys, count)?);
        let db = Db::open(dir, self.options(setup))?;
        let (generations, value) = (vec![0; usize::try_from(count)?], Vec::new());
        let mut store = Store { db, dir, data, generations, keys, next: 0, value };
        for index in 0..count {
            store.put(index)?;
        }
        store.db.flush()?;
        Ok(store)
    }
}

impl Store<'_> {
    fn put(&mut self, index: u64) -> Result<()> {
        let generation = self.generations.get(usize::try_from(index)?).copied().unwrap_or(0);
        self.data.value(index, generation, &mut self.value);
        Ok(self.db.put(self.data.key(index), &self.value)?)
    }

    fn overwrite(&mut self) -> Result<()> {
        let index = self.keys.at(self.next);
        self.next += 1;
        if let Some(generation) = self.generations.get_mut(usize::try_from(index)?) {
            *generation += 1;
        }
        self.put(index)
    }

    fn count(&self) -> u64 {
        self.generations.len() as u64
    }

    fn live_bytes(&self) -> u64 {
        self.count() * (RECORD_HEADER_BYTES + (KEY_BYTES + self.data.value_bytes()) as u64)
    }

    /// Overwrites as much as there is, `times` over.
    fn overwrite_all(&mut self, times: u64, blob_file_bytes: u64, looks: bool) -> Result<Space> {
        let (total, step) = (self.count() * times, (self.count() / 100).max(1));
        let (before, began) = (self.db.stats(), Instant::now());
        let mut space = Space::default();
        for n in 0..total {
            self.overwrite()?;
            if looks && n % step == 0 {
                let (used, live) = (occupied(self.dir)? as f64, self.live_bytes() as f64);
                space.worst = space.worst.max(used / live);
                space.worst_excess = space.worst_excess.max((used - BOUND * live) / blob_file_bytes as f64);
                if n >= total / 2 {
                    space.steady.push(used / live);
                }
            }
        }
        let elapsed = began.elapsed().as_secs_f64();
        let after = self.db.stats();
        let user = (self.count() * times * (KEY_BYTES + self.data.value_bytes()) as u64) as f64;
        let device = after.written.device_bytes() - before.written.device_bytes();
        space.steady.sort_by(f64::total_cmp);
        space.device_per_user = device as f64 / user;
        space.puts_per_second = total as f64 / elapsed;
        space.stalled = (after.stall_micros - before.stall_micros) as f64 / 1e6 / elapsed;
        Ok(space)
    }

    fn verify(&self) -> Result<()> {
        verify(&self.data, &self.generations, |key| Ok(self.db.get(key)?))
    }
}

/// Every key has the value that was put last.
fn verify<V: Deref<Target = [u8]>>(
    data: &Data,
    generations: &[u32],
    mut get: impl FnMut(&Key) -> Result<Option<V>>,
) -> Result<()> {
    for (index, &generation) in (0..).zip(generations) {
        if !get(&data.key(index))?.is_some_and(|value| data.matches(index, generation, &value)) {
            return Err(format!("key {index} has another value than was written").into());
        }
    }
    Ok(())
}

/// Bytes that the files in `dir` occupy, but for what is kept of a short disk in a temporary file.
fn occupied(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_kept = entry.path().extension().is_some_and(|end| end == "dbtmp");
        // What goes meanwhile takes up nothing.
        bytes += entry.metadata().map_or(0, |found| if is_kept { 0 } else { found.blocks() * 512 });
    }
    Ok(bytes)
}

struct Bars {
    args: Args,
    rows: Vec<String>,
}

impl Bars {
    fn row(&mut self, what: &str, bar: Option<(char, f64)>, figure: f64, more: &str) {
        let met = match bar {
            Some(('≤', most)) if figure <= most => "yes",
            Some(('≥', least)) if figure >= least => "yes",
            Some(_) => "**no**",
            None => "",
        };
        let bar = bar.map_or(String::new(), |(sign, value)| format!("{sign} {value}"));
        let row = format!("| {what} | {bar} | {figure:.2} | {met} | {more} |");
        eprintln!("{row}");
        self.rows.push(row);
    }

    /// Space and device bytes under overwriting at full speed.
    fn space(&mut self, value_bytes: usize, keys: &str, name: &str, setup: &Setup) -> Result<()> {
        let dir = self.args.fresh()?;
        let mut store = self.args.loaded(&dir, setup, value_bytes, keys)?;
        let space = store.overwrite_all(self.args.overwrites, self.args.blob_file_bytes(), true)?;
        store.verify()?;
        let stats = store.db.stats();
        store.db.close()?;
        let what = format!("{value_bytes} B, {keys}, {name}");
        let more = format!(
            "steady {:.2}, worst {:.2} bytes per live byte; {:.0} MiB/s put, held back {:.0} % of the time",
            space.median(),
            space.worst,
            space.puts_per_second * value_bytes as f64 / MIB,
            100.0 * space.stalled
        );
        self.row(&format!("{what}: blob files over the bound, at worst"), Some(('≤', 1.0)), space.worst_excess, &more);
        let bar = match (value_bytes, setup.holes) {
            (16_384, true) => Some(('≤', 1.3)),
            (16_384, false) => Some(('≤', 2.0)),
            _ => None,
        };
        let more = format!("{} passes that copy, {} that make holes", stats.relocations, stats.punches);
        self.row(&format!("{what}: device bytes per user byte"), bar, space.device_per_user, &more);
        Ok(())
    }

    /// Puts a second with reclaim to those without, in turns.
    fn speed(&mut self, value_bytes: usize, keys: &str, name: &str, setup: &Setup) -> Result<()> {
        let off = Setup { mode: ReclaimMode::Off, ..*setup };
        let mut rates = [0.0; 2];
        for _ in 0..self.args.rounds {
            for (rate, setup) in rates.iter_mut().zip([&off, setup]) {
                *rate += self.rate(value_bytes, keys, setup)? / self.args.rounds as f64;
            }
        }
        let more = format!("{:.0} against {:.0} puts a second", rates[1], rates[0]);
        let what = format!("{value_bytes} B, {keys}, {name}: puts with reclaim to without");
        self.row(&what, Some(('≥', 0.8)), rates[1] / rates[0], &more);
        Ok(())
    }

    fn rate(&self, value_bytes: usize, keys: &str, setup: &Setup) -> Result<f64> {
        let dir = self.args.fresh()?;
        let mut store = self.args.loaded(&dir, setup, value_bytes, keys)?;
        let space = store.overwrite_all(self.args.speed_overwrites, self.args.blob_file_bytes(), false)?;
        store.verify()?;
        store.db.close()?;
        Ok(space.puts_per_second)
    }

    /// The 99th percentile at a quarter of the speed that is to be had with reclaim.
    fn latency(&mut self, value_bytes: usize, keys: &str, setup: &Setup) -> Result<()> {
        let rate = self.rate(value_bytes, keys, setup)? / 4.0;
        let off = Setup { mode: ReclaimMode::Off, ..*setup };
        let mut micros = [0.0; 2];
        for (micros, setup) in micros.iter_mut().zip([&off, setup]) {
            let dir = self.args.fresh()?;
            let mut store = self.args.loaded(&dir, setup, value_bytes, keys)?;
            let mut latencies = Histogram::<u64>::new(3)?;
            let began = Instant::now();
            let mut n = 0;
            while began.elapsed().as_secs() < self.args.latency_seconds {
                let due = Duration::from_secs_f64(n as f64 / rate);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
                store.overwrite()?;
                // From when it was due: who waits makes those behind wait.
                latencies.record(u64::try_from(began.elapsed().saturating_sub(due).as_nanos())?)?;
                n += 1;
            }
            store.verify()?;
            store.db.close()?;
            *micros = latencies.value_at_quantile(0.99) as f64 / 1e3;
        }
        let what = format!("{value_bytes} B, {keys}: p99 of a put at a fixed rate, with reclaim to without");
        let more = format!("{:.0} against {:.0} µs at {rate:.0} puts a second", micros[1], micros[0]);
        self.row(&what, Some(('≤', 1.5)), micros[1] / micros[0], &more);
        Ok(())
    }

    /// Puts a second to RocksDB's, at no more space than it takes and 30 %.
    #[cfg(feature = "rocksdb")]
    fn rocksdb(&mut self, value_bytes: usize, keys: &str) -> Result<()> {
        let (mut amp, mut rates) = (1.0_f64, [0.0; 2]);
        let mut took = 0.0_f64;
        for _ in 0..self.args.rounds {
            let (rate, space) = self.rocksdb_rate(value_bytes, keys)?;
            (rates[0], amp) = (rates[0] + rate / self.args.rounds as f64, amp.max(space));
            let setup = Setup { space_amp: (amp * 1.3).max(BOUND), separation: Separation::AtWrite, ..AT_FLUSH };
            let dir = self.args.fresh()?;
            let mut store = self.args.loaded(&dir, &setup, value_bytes, keys)?;
            let space = store.overwrite_all(self.args.speed_overwrites, self.args.blob_file_bytes(), true)?;
            store.verify()?;
            store.db.close()?;
            took = took.max(space.worst);
            rates[1] += space.puts_per_second / self.args.rounds as f64;
        }
        let bar = match value_bytes {
            1024 => Some(('≥', 2.5)),
            32_768 => Some(('≥', 4.0)),
            _ => None,
        };
        let more = format!(
            "{:.0} against {:.0} puts a second, {took:.2} against {amp:.2} bytes per live byte at worst",
            rates[1], rates[0]
        );
        self.row(&format!("{value_bytes} B, {keys}: puts to RocksDB's"), bar, rates[1] / rates[0], &more);
        Ok(())
    }

    #[cfg(feature = "rocksdb")]
    fn rocksdb_rate(&self, value_bytes: usize, keys: &str) -> Result<(f64, f64)> {
        let dir = self.args.fresh()?;
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        let lz4 = if self.args.lz4 { rocksdb::DBCompressionType::Lz4 } else { rocksdb::DBCompressionType::None };
        options.set_compression_type(lz4);
        options.set_write_buffer_size(usize::try_from(self.args.buffer_bytes())?);
        options.set_max_write_buffer_number(4);
        options.set_max_background_jobs(2);
        let db = rocksdb::DB::open(&options, &dir)?;
        let count = self.args.data_bytes / value_bytes as u64;
        let (data, keys) = (Data::new(1, value_bytes), Keys::new(keys, count)?);
        let (mut generations, mut value) = (vec![0_u32; usize::try_from(count)?], Vec::new());
        for index in 0..count {
            data.value(index, 0, &mut value);
            db.put(data.key(index), &value)?;
        }
        db.flush()?;
        let live = (count * (RECORD_HEADER_BYTES + (KEY_BYTES + value_bytes) as u64)) as f64;
        let (total, mut worst, began) = (count * self.args.speed_overwrites, 0.0_f64, Instant::now());
        for n in 0..total {
            let index = keys.at(n);
            let generation = generations.get_mut(usize::try_from(index)?).ok_or("there is no such key")?;
            *generation += 1;
            data.value(index, *generation, &mut value);
            db.put(data.key(index), &value)?;
            if n % (count / 100).max(1) == 0 {
                worst = worst.max(occupied(&dir)? as f64 / live);
            }
        }
        let rate = total as f64 / began.elapsed().as_secs_f64();
        verify(&data, &generations, |key| Ok(db.get_pinned(key)?))?;
        Ok((rate, worst))
    }

    #[cfg(not(feature = "rocksdb"))]
    fn rocksdb(&mut self, _: usize, _: &str) -> Result<()> {
        Err("built without RocksDB: build with --features rocksdb, or leave the part out".into())
    }

    fn run(&mut self) -> Result<()> {
        let (sizes, keys, parts) = (self.args.value_bytes.clone(), self.args.keys.clone(), self.args.parts.clone());
        let wants = |part: &str| parts.iter().any(|wanted| wanted == part);
        for (&size, keys) in sizes.iter().flat_map(|size| keys.iter().map(move |keys| (size, keys))) {
            if wants("space") {
                self.space(size, keys, "at flush", &AT_FLUSH)?;
                if size >= 16_384 {
                    self.space(size, keys, "at write", &AT_WRITE)?;
                    self.space(size, keys, "at write, copied only", &Setup { holes: false, ..AT_WRITE })?;
                }
            }
            if wants("speed") {
                self.speed(size, keys, "at flush", &AT_FLUSH)?;
                self.speed(size, keys, "at write", &AT_WRITE)?;
            }
            if wants("latency") {
                self.latency(size, keys, &AT_FLUSH)?;
            }
            if wants("rocksdb") {
                self.rocksdb(size, keys)?;
            }
        }
        Ok(())
    }

    fn table(&self) -> Result<String> {
        let mut out = format!("# Reclaim's bars\n\n`{}`\n\n", machine::command());
        out += &format!("{}, commit {}, {}; {}.\n\n", machine::today(), machine::commit(), machine::build(), {
            machine::describe(&self.args.directory)?
        });
        out += &format!(
            "{:.0} MiB of values, overwritten {} times; memtables of {:.1} MiB, blob files of {:.1} MiB; every value was \
             compared in the end. Space is all files of the directory, as `du` counts, per byte of live records.\n\n",
            self.args.data_bytes as f64 / MIB,
            self.args.overwrites,
            self.args.buffer_bytes() as f64 / MIB,
            self.args.blob_file_bytes() as f64 / MIB
        );
        out += "| what | bar | seen | met | |\n|---|---:|---:|---|---|\n";
        for row in &self.rows {
            out += row;
            out.push('\n');
        }
        Ok(out)
    }
}

/// Refuses what cannot be measured, before anything is.
fn check(args: &Args) -> Result<()> {
    let no = |what: String| -> Result<()> { Err(what.into()) };
    for part in &args.parts {
        match part.as_str() {
            "rocksdb" if !cfg!(feature = "rocksdb") => {
                no("built without RocksDB: build with --features rocksdb, or leave the part out of --parts".into())?;
            }
            "space" | "speed" | "latency" | "rocksdb" => {}
            other => no(format!("parts are space, speed, latency and rocksdb, not {other}"))?,
        }
    }
    for keys in &args.keys {
        Keys::new(keys, 1)?;
    }
    for &bytes in &args.value_bytes {
        if bytes < VALUE_BYTES_MIN || bytes as u64 > args.data_bytes {
            no(format!(
                "values have from {VALUE_BYTES_MIN} bytes to those of all data, {}, not {bytes}",
                args.data_bytes
            ))?;
        }
    }
    let counts = [args.overwrites, args.speed_overwrites, args.rounds, args.latency_seconds];
    if counts.contains(&0) {
        no("overwrites, rounds and seconds are 1 at least".into())?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    check(&args)?;
    let place = Place::inside(&args.directory)?;
    args.directory = place.path().to_owned();
    let mut bars = Bars { args, rows: Vec::new() };
    bars.run()?;
    let table = bars.table()?;
    print!("{table}");
    if let Some(out) = &bars.args.out {
        fs::write(out, &table)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let check = |words: &str| {
            let words = ["reclaim_bars"].into_iter().chain(words.split_whitespace());
            check(&Args::parse_from(words)).is_ok()
        };
        assert!(check("--parts space,speed,latency"));
        assert_eq!(check("--parts rocksdb"), cfg!(feature = "rocksdb"));
        for wrong in [
            "--parts bogus",
            "--keys bogus",
            "--value-bytes 0",
            "--data-bytes 1000 --value-bytes 1024",
            "--rounds 0",
            "--overwrites 0",
            "--speed-overwrites 0",
            "--latency-seconds 0",
        ] {
            assert!(!check(&format!("--parts space {wrong}")), "{wrong}");
        }
    }
}
