//! The bars that Cask has set itself, measured: one table, each with its figure and whether it is met.
//!
//! ```text
//! cargo run --release --manifest-path bench/Cargo.toml --bin cask_bars -- --out bench/results/cask-bars.md
//! ```
//!
//! - B1: every value that is got is compared, byte by byte, with what was written, and every scan counts entries and bytes (its
//!   CRCs are checked on the way); what is wrong ends the run.
//! - B2: what is a ratio is measured in one run, both sides in turns.
//! - B3: keys and values are made ahead of the clock, as many as fit into the processor's nearest cache; the comparison is within it. What
//!   threads do together is timed as a whole.
//! - B4: a bar that is missed is no failure of the program: it says so and ends well.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use esker::env::os::Words;
use esker::env::{Env, Mapping};
use esker::{Cask, CaskOptions};
use esker_compare::Result;
use esker_compare::cold;
use esker_compare::data::{Data, Key, mix};
use esker_compare::place::Place;
use esker_compare::report::machine;
use esker_compare::warm;
use esker_format::cask::record::{FIRST_OFFSET, HEAD_BYTES};

const VALUE_BYTES: usize = 100;
/// What a key, its value and its slot take of the memory, and somewhat more.
const KEY_BYTES_TAKEN: u64 = 170;
const LARGE_VALUE_BYTES: usize = 100_000;
const MB: f64 = 1e6;
/// Bytes of values that are made ready at once, and how many at most.
const BATCH_BYTES: usize = 32 << 10;
const BATCH_LEN: usize = 256;

/// Measures every bar of Cask and prints them as a table.
#[derive(Parser)]
struct Args {
    /// Keys of the large store.
    #[arg(long, default_value_t = 20_000_000)]
    keys: u64,
    /// Keys of the small stores.
    #[arg(long, default_value_t = 3_000_000)]
    few_keys: u64,
    /// Values of 100,000 bytes to write.
    #[arg(long, default_value_t = 8_000)]
    large_values: u64,
    /// Where to work: in a directory of its own in this one.
    #[arg(long, default_value = "cask-bars-data")]
    directory: PathBuf,
    /// Where the table goes as well.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only these parts, each of which takes a minute or two; all of them without.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Adds the rows to those that the table has, and takes the place of those of the same name: for parts that are measured apart,
    /// of the same commit, on the same machine, with the same numbers of keys.
    #[arg(long, requires = "out")]
    add: bool,
}

/// What can be measured apart.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Put and get of the small store, on one thread and on four.
    Few,
    /// What merges cost.
    Merges,
    /// The large store: put, memory, open, get, scans.
    Many,
    /// Large values.
    Large,
}

/// Which side of a bar is good.
#[derive(Clone, Copy)]
enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// There is none: it is only told.
    None,
}

struct Row {
    what: String,
    bar: Bar,
    figure: f64,
    unit: &'static str,
}

impl Row {
    fn is_met(&self) -> bool {
        match self.bar {
            Bar::AtLeast(least) => self.figure >= least,
            Bar::AtMost(most) => self.figure <= most,
            Bar::None => true,
        }
    }

    fn line(&self) -> String {
        let Self { what, figure, unit, .. } = self;
        let (sign, bar) = match self.bar {
            Bar::AtLeast(least) => ('≥', least),
            Bar::AtMost(most) => ('≤', most),
            Bar::None => return format!("| {what} | – | {figure:.2} {unit} | – |"),
        };
        format!(
            "| {what} | {sign} {bar} {unit} | {figure:.2} {unit} | {} |",
            if self.is_met() { "yes" } else { "**no**" }
        )
    }
}

struct Bars {
    args: Args,
    /// See [`head`].
    head: String,
    /// Rows of the table that is added to.
    earlier: Vec<String>,
    rows: Vec<Row>,
}

fn options() -> CaskOptions {
    CaskOptions { create_if_missing: true, ..CaskOptions::default() }
}

/// Merges nothing that has one live record.
fn without_merges() -> CaskOptions {
    CaskOptions { merge_garbage_ratio: 1.0, ..options() }
}

fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Anonymous memory of this process, in bytes.
fn memory_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

/// Calls `work` with keys and their values of a generation, made ahead of the clock; seconds that all calls took.
fn timed(
    data: &Data,
    generation: u32,
    mut indexes: impl Iterator<Item = u64>,
    mut work: impl FnMut(&Key, &[u8]) -> Result<()>,
) -> Result<f64> {
    let value_bytes = data.value_bytes();
    let most = (BATCH_BYTES / value_bytes).clamp(1, BATCH_LEN);
    let (mut keys, mut values, mut value, mut elapsed) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
    loop {
        keys.clear();
        values.clear();
        for index in indexes.by_ref().take(most) {
            keys.push(data.key(index));
            data.value(index, generation, &mut value);
            values.extend_from_slice(&value);
        }
        if keys.is_empty() {
            return Ok(elapsed);
        }
        elapsed +=
            seconds(|| keys.iter().zip(values.chunks(value_bytes)).try_for_each(|(key, value)| work(key, value)))?;
    }
}

fn put(cask: &Cask, data: &Data, generation: u32, indexes: impl Iterator<Item = u64>) -> Result<f64> {
    timed(data, generation, indexes, |key, value| Ok(cask.put(key, value).map(drop)?))
}

fn get(cask: &Cask, data: &Data, indexes: impl Iterator<Item = u64>) -> Result<f64> {
    timed(data, 0, indexes, |key, value| {
        if cask.get(key)?.is_some_and(|found| *found == *value) {
            return Ok(());
        }
        Err(format!("key {:?} has another value than was written", data.index(key)).into())
    })
}

/// The same, 64 keys a call.
fn multi_get(cask: &Cask, data: &Data, indexes: impl Iterator<Item = u64>) -> Result<f64> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let check = |keys: &mut Vec<Key>, values: &mut Vec<u8>| -> Result<()> {
        let wanted = values.chunks(data.value_bytes());
        for ((found, wanted), key) in cask.multi_get(&*keys)?.into_iter().zip(wanted).zip(&*keys) {
            if found?.is_none_or(|found| *found != *wanted) {
                return Err(format!("key {:?} has another value than was written", data.index(key)).into());
            }
        }
        keys.clear();
        values.clear();
        Ok(())
    };
    let gathered = timed(data, 0, indexes, |key, value| {
        keys.push(*key);
        values.extend_from_slice(value);
        if keys.len() < 64 { Ok(()) } else { check(&mut keys, &mut values) }
    })?;
    Ok(gathered + seconds(|| check(&mut keys, &mut values))?)
}

/// Those of `keys` that are among `overwritten` have values of generation 1, the others of 0.
fn check_overwritten(cask: &Cask, data: &Data, keys: u64, overwritten: impl Iterator<Item = u64>) -> Result<()> {
    let mut generations = vec![0; usize::try_from(keys)?];
    for index in overwritten {
        if let Some(generation) = generations.get_mut(usize::try_from(index)?) {
            *generation = 1;
        }
    }
    for (index, generation) in (0..).zip(generations) {
        if !cask.get(data.key(index))?.is_some_and(|found| data.matches(index, generation, &found)) {
            return Err(format!("key {index} has another value than was written last").into());
        }
    }
    Ok(())
}

/// `count` indexes below `keys`, at random.
fn random(keys: u64, count: u64, salt: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| mix(n ^ salt << 40) % keys)
}

/// Operations a second, in millions.
#[derive(Clone, Copy, Default)]
struct Rates {
    /// By the time from the first to the last, whatever was done beside them.
    together: f64,
    /// By the time that the operations took, where one thread did them.
    alone: f64,
}

impl Rates {
    fn best(self, other: Self) -> Self {
        Self { together: self.together.max(other.together), alone: self.alone.max(other.alone) }
    }
}

/// The same work on every thread, each with its own share; it says how many seconds its operations took.
fn on_threads(threads: u64, count: u64, work: impl Fn(u64) -> Result<f64> + Sync) -> Result<Rates> {
    let mut inside = 0.0;
    let elapsed = seconds(|| {
        std::thread::scope(|scope| {
            let work = &work;
            let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            for thread in started {
                inside += thread.join().map_err(|_| "a thread has panicked")??;
            }
            Ok(())
        })
    })?;
    let rate = |seconds: f64| count as f64 / MB / seconds;
    Ok(Rates { together: rate(elapsed), alone: rate(inside) })
}

/// What the machine allows: a table of words, each of which leads to a record in a mapping of the files that a Cask has left. No CRC, no locks,
/// no merges, no growth. Every record is of one size, and of a key of its own.
struct Bare {
    /// 16 bits of the key's hash, 16 of the file's number from 1, 32 of the offset; 0 is empty.
    table: Words,
    files: Vec<Arc<dyn Mapping>>,
}

impl Bare {
    const RECORD_BYTES: usize = HEAD_BYTES + size_of::<Key>() + VALUE_BYTES;

    fn open(dir: &Path, keys: u64) -> Result<Self> {
        let table = Words::new((keys as usize * 2).next_power_of_two()).ok_or("there is no memory for a bare table")?;
        let mut bare = Self { table, files: Vec::new() };
        for path in data_files(dir)? {
            let file = Env::os().files.open(&path)?.map()?.ok_or("the file cannot be mapped")?;
            let number = bare.files.len() as u64 + 1;
            let mut at = FIRST_OFFSET as usize;
            while let Some(key) =
                file.bytes().get(at + HEAD_BYTES..at + Self::RECORD_BYTES).and_then(<[u8]>::first_chunk)
            {
                let (tag, places) = bare.look(key);
                let word = tag << 48 | number << 32 | at as u64;
                let free = places.into_iter().find(|place| place.load(Ordering::Relaxed) == 0);
                free.ok_or("the bare table is full")?.store(word, Ordering::Relaxed);
                at += Self::RECORD_BYTES;
            }
            bare.files.push(file);
        }
        Ok(bare)
    }

    /// What is compared of the hash, and where to look.
    fn look(&self, key: &Key) -> (u64, impl Iterator<Item = &AtomicU64>) {
        let words = self.table.words();
        let (low, high) = (u64::from_le_bytes(half(key, 0)), u64::from_le_bytes(half(key, 8)));
        let hash = mix(low ^ high.rotate_left(32));
        let home = hash as usize & (words.len() - 1);
        (hash >> 48, words.iter().skip(home).chain(words))
    }

    fn get(&self, key: &Key) -> Option<&[u8]> {
        let (tag, places) = self.look(key);
        let words = places.map(|place| place.load(Ordering::Relaxed)).take_while(|word| *word != 0);
        let records = words.filter(|word| word >> 48 == tag).filter_map(|word| {
            let file = self.files.get((word >> 32) as usize % (1 << 16) - 1)?;
            file.bytes().get(word as u32 as usize + HEAD_BYTES..)?.get(..size_of::<Key>() + VALUE_BYTES)
        });
        records.filter_map(|record| record.strip_prefix(key)).next()
    }

    fn get_all(&self, data: &Data, indexes: impl Iterator<Item = u64>) -> Result<f64> {
        timed(data, 0, indexes, |key, value| match self.get(key) {
            Some(found) if found == value => Ok(()),
            _ => Err("the bare table has another value than was written".into()),
        })
    }
}

fn half(key: &Key, at: usize) -> [u8; 8] {
    std::array::from_fn(|n| key.get(at + n).copied().unwrap_or_default())
}

impl Bars {
    fn row(&mut self, what: impl Into<String>, bar: Bar, figure: f64, unit: &'static str) {
        let row = Row { what: what.into(), bar, figure, unit };
        eprintln!("{}", row.line());
        self.rows.push(row);
    }

    /// A directory with nothing in it, for a store of so many bytes.
    fn fresh(&self, bytes: u64) -> Result<PathBuf> {
        let dir = self.args.directory.join("store");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        warm::up(&self.args.directory, 2 * bytes)?;
        Ok(dir)
    }

    /// Put and get on one thread, and how both scale to four.
    fn few_keys(&mut self) -> Result<()> {
        let (data, keys) = (Data::new(1, VALUE_BYTES), self.args.few_keys);
        let millions = keys as f64 / MB;
        let (mut puts, mut gets) = ([Rates::default(); 2], [Rates::default(); 2]);
        let (mut many, mut floor) = (Rates::default(), Rates::default());
        for (round, threads) in [1, 4, 1, 4].into_iter().enumerate() {
            let dir = self.fresh(keys * KEY_BYTES_TAKEN)?;
            let cask = Cask::open(&dir, options())?;
            let each = keys / threads;
            let put =
                on_threads(threads, each * threads, |thread| put(&cask, &data, 0, thread * each..(thread + 1) * each))?;
            let salt = |thread| thread + 10 * round as u64;
            let get = on_threads(threads, each * threads, |thread| {
                get(&cask, &data, random(each * threads, each, salt(thread)))
            })?;
            let place = usize::from(threads > 1);
            (puts[place], gets[place]) = (put.best(puts[place]), get.best(gets[place]));
            if threads == 1 {
                many = many.best(on_threads(1, keys, |_| multi_get(&cask, &data, random(keys, keys, salt(0))))?);
            }
            cask.close()?;
            if threads == 1 {
                let bare = Bare::open(&dir, keys)?;
                floor = floor.best(on_threads(1, keys, |_| bare.get_all(&data, random(keys, keys, salt(0))))?);
            }
        }
        self.row(format!("put, one thread, {millions} M keys"), Bar::AtLeast(1.5), puts[0].alone, "M/s");
        self.row(format!("get, one thread, {millions} M keys, page cache"), Bar::AtLeast(2.0), gets[0].alone, "M/s");
        self.row("the same gets, 64 keys a call", Bar::None, many.alone, "M/s");
        self.row("the same gets from a bare table over the same files", Bar::None, floor.alone, "M/s");
        self.row("put, 4 threads to one (2 cores)", Bar::AtLeast(1.0), puts[1].together / puts[0].together, "×");
        self.row("get, 4 threads to one (2 cores)", Bar::AtLeast(1.0), gets[1].together / gets[0].together, "×");
        Ok(())
    }

    /// Overwriting with merges and without.
    fn merges(&mut self) -> Result<()> {
        let (data, keys) = (Data::new(2, VALUE_BYTES), self.args.few_keys);
        let mut rates = [0.0f64; 2];
        for round in 0..6 {
            let place = round % 2;
            let options = if place == 0 { without_merges() } else { options() };
            let cask = Cask::open(self.fresh(2 * keys * KEY_BYTES_TAKEN)?, options)?;
            put(&cask, &data, 0, 0..keys)?;
            let rate = on_threads(1, keys, |_| put(&cask, &data, 1, random(keys, keys, 5)))?.alone;
            rates[place] = rates[place].max(rate);
            let merged = cask.stats().merged_bytes;
            eprintln!("overwriting: {rate:.2} M/s, {:.0} MB merged meanwhile", merged as f64 / MB);
            if place == 1 && merged == 0 {
                return Err(
                    "nothing was merged, so that there is no telling what merges cost: --few-keys has to be larger"
                        .into(),
                );
            }
            check_overwritten(&cask, &data, keys, random(keys, keys, 5))?;
            cask.close()?;
        }
        self.row("what merges cost overwriting puts", Bar::AtMost(15.0), 100.0 * (1.0 - rates[1] / rates[0]), "%");
        Ok(())
    }

    /// Memory, speed, scans and open of many keys.
    fn many_keys(&mut self) -> Result<()> {
        let (data, keys) = (Data::new(3, VALUE_BYTES), self.args.keys);
        let millions = keys as f64 / MB;
        let dir = self.fresh(keys * KEY_BYTES_TAKEN)?;
        let before = memory_bytes()?;
        let cask = Cask::open(&dir, options())?;
        let rate = on_threads(1, keys, |_| put(&cask, &data, 0, 0..keys))?.alone;
        self.row(format!("put, one thread, {millions} M keys"), Bar::AtLeast(1.5), rate, "M/s");
        self.memory("filled", before)?;
        cask.close()?;
        let mut fastest = f64::INFINITY;
        let mut cask = None;
        for _ in 0..2 {
            drop(cask.take());
            fastest = fastest.min(seconds(|| {
                cask = Some(Cask::open(&dir, options())?);
                Ok(())
            })?);
        }
        let Some(cask) = cask else { return Ok(()) };
        if cask.len() != keys {
            return Err(format!("{} keys are there, {keys} should be", cask.len()).into());
        }
        self.row(format!("open, {millions} M keys"), Bar::AtMost(2.0), fastest, "s");
        self.memory("opened", before)?;
        let count = keys / 4;
        let rate = on_threads(1, count, |_| get(&cask, &data, random(keys, count, 7)))?.alone;
        self.row(format!("get, one thread, {millions} M keys, page cache"), Bar::AtLeast(2.0), rate, "M/s");
        self.scans(&cask, &dir, keys)?;
        Ok(cask.close()?)
    }

    fn memory(&mut self, when: &str, before: u64) -> Result<()> {
        let keys = self.args.keys;
        let used = memory_bytes()?.saturating_sub(before).saturating_sub(32 << 20);
        let what = format!("memory beyond 32 MiB, {} M keys, {when}", keys as f64 / MB);
        self.row(what, Bar::AtMost(24.0), used as f64 / keys as f64, "B/key");
        Ok(())
    }

    /// Against reading the same files from front to back.
    fn scans(&mut self, cask: &Cask, dir: &Path, keys: u64) -> Result<()> {
        let (mut read, mut scanned) = (0.0f64, 0.0f64);
        for _ in 0..3 {
            read = read.max(read_files(dir)?);
            scanned = scanned.max(scan(cask, dir, keys)?);
        }
        eprintln!("page cache: {read:.0} MB/s read, {scanned:.0} MB/s scanned");
        self.row("scan, share of reading the files, page cache", Bar::AtLeast(80.0), 100.0 * scanned / read, "%");
        Ok(())
    }

    /// The same from the device: nothing has the files open in between.
    fn cold_scans(&mut self) -> Result<()> {
        let dir = self.args.directory.join("store");
        cold::drop_pages(&dir)?;
        let read = read_files(&dir)?;
        let cask = Cask::open(&dir, options())?;
        cold::drop_pages(&dir)?;
        let scanned = scan(&cask, &dir, self.args.keys)?;
        eprintln!("device: {read:.0} MB/s read, {scanned:.0} MB/s scanned");
        self.row("scan, share of reading the files, device", Bar::AtLeast(80.0), 100.0 * scanned / read, "%");
        Ok(cask.close()?)
    }

    /// Large values against a plain writer of the same bytes; both end with a sync.
    fn large_values(&mut self) -> Result<()> {
        let (data, count) = (Data::new(4, LARGE_VALUE_BYTES), self.args.large_values);
        let (mut plain, mut cask) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..2 {
            let bytes = count * LARGE_VALUE_BYTES as u64;
            let dir = self.fresh(bytes)?;
            plain = plain.min(seconds(|| {
                let (mut file, mut value) = (File::create(dir.join("plain"))?, Vec::new());
                for index in 0..count {
                    data.value(index, 0, &mut value);
                    file.write_all(&value)?;
                }
                Ok(file.sync_data()?)
            })?);
            let dir = self.fresh(bytes)?;
            cask = cask.min(seconds(|| {
                let cask = Cask::open(&dir, options())?;
                put(&cask, &data, 0, 0..count)?;
                Ok(cask.close()?)
            })?);
        }
        let rate = |elapsed: f64| count as f64 * LARGE_VALUE_BYTES as f64 / MB / elapsed;
        eprintln!("values of 100 KB: plain {:.0} MB/s, Cask {:.0} MB/s", rate(plain), rate(cask));
        self.row("fill100K, share of a plain sequential writer", Bar::AtLeast(80.0), 100.0 * plain / cask, "%");
        Ok(())
    }

    fn table(&self) -> String {
        let mut out = format!("# Cask's bars\n\n{}, {}", machine::today(), self.head);
        for line in self.lines() {
            out += &line;
            out.push('\n');
        }
        out
    }

    /// The rows, where they are added to a table in the places that theirs have there.
    fn lines(&self) -> Vec<String> {
        let name = |line: &str| line.split('|').nth(1).map(|name| name.trim().to_owned());
        let mut lines = self.earlier.clone();
        for row in self.rows.iter().map(Row::line) {
            match lines.iter_mut().find(|line| name(line) == name(&row)) {
                Some(line) => *line = row,
                None => lines.push(row),
            }
        }
        lines
    }
}

/// What is true of all rows of a table: all that precedes them but the day.
fn head(args: &Args) -> Result<String> {
    let Args { keys, few_keys, large_values, directory, .. } = args;
    let (commit, machine, build) = (machine::commit(), machine::describe(directory)?, machine::build());
    Ok(format!(
        "commit {commit}. {machine}.\n\n{build}.\n\nKeys of 16 bytes, values of 100 bytes where nothing else is said. Made by \
         `cargo run --release --bin cask_bars` in `bench/`: {keys} and {few_keys} keys, {large_values} values of 100,000 bytes. \
         Every value that was got was compared with what was written.\n\n| bar | wanted | seen | met |\n|---|---:|---:|---|\n"
    ))
}

/// The rows of a table to which others may be added: those of the same commit on the same machine.
fn rows(table: &str, head: &str) -> Result<Vec<String>> {
    match table.split_once(head) {
        Some((_, rows)) => Ok(rows.lines().map(str::to_owned).collect()),
        None => Err("the table to add to is of another commit, machine or size".into()),
    }
}

fn data_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "data") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// MB/s of reading all data files, a megabyte at a time.
fn read_files(dir: &Path) -> Result<f64> {
    let (mut buffer, mut total) = (vec![0; 1 << 20], 0);
    let elapsed = seconds(|| {
        for path in data_files(dir)? {
            let mut file = File::open(path)?;
            loop {
                let count = file.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                total += count;
                black_box(&buffer);
            }
        }
        Ok(())
    })?;
    Ok(total as f64 / MB / elapsed)
}

/// MB/s of the data files, scanned; keys and values are looked at, and all are there.
fn scan(cask: &Cask, dir: &Path, keys: u64) -> Result<f64> {
    let mut total = 0;
    for path in data_files(dir)? {
        total += fs::metadata(path)?.len();
    }
    // What is preallocated behind the last records is no data.
    let total = total.min(cask.stats().bytes);
    let elapsed = seconds(|| {
        let (mut entries, mut count, mut bytes) = (cask.scan()?, 0, 0);
        while entries.advance()? {
            count += 1;
            bytes += entries.key().len() + entries.value()?.len();
        }
        if (count, bytes as u64) != (keys, keys * (16 + VALUE_BYTES as u64)) {
            return Err(format!("a scan has shown {count} entries of {bytes} bytes").into());
        }
        Ok(())
    })?;
    Ok(total as f64 / MB / elapsed)
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    let place = Place::inside(&args.directory)?;
    args.directory = place.path().to_owned();
    let head = head(&args)?;
    // Before anything is measured: this may have been for nothing.
    let earlier = match args.out.as_ref().filter(|out| args.add && out.exists()) {
        Some(out) => rows(&fs::read_to_string(out)?, &head)?,
        None => Vec::new(),
    };
    let mut bars = Bars { args, head, earlier, rows: Vec::new() };
    for part in [Part::Few, Part::Merges, Part::Many, Part::Large] {
        if !bars.args.only.is_empty() && !bars.args.only.contains(&part) {
            continue;
        }
        match part {
            Part::Few => bars.few_keys()?,
            Part::Merges => bars.merges()?,
            Part::Many => {
                bars.many_keys()?;
                bars.cold_scans()?;
            }
            Part::Large => bars.large_values()?,
        }
    }
    let table = bars.table();
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
    fn rows_are_added_to_those_of_the_same_head_only() {
        let heads = ["commit aaa. A machine.\n\n", "commit bbb. A machine.\n\n"];
        let row = "| put | ≥ 1 M/s | 2 M/s | yes |";
        let table = format!("# Cask's bars\n\n2026-11-23, {}{row}\n", heads[0]);
        assert_eq!(rows(&table, heads[0]).unwrap(), [row]);
        assert!(rows(&table, heads[1]).is_err());
    }
}
