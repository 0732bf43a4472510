//! What writing to a `Db` costs beside what it must cost: the bars that need no peer.
//!
//! ```sh
//! cargo run --release --bin write_bars -- DIRECTORY            # the table, about two minutes
//! cargo run --release --bin write_bars -- DIRECTORY fill       # one round of the fill of 16 KiB and of the plain writer
//! cargo run --release --bin write_bars -- DIRECTORY load       # sorted loads beside the plain writer, about four minutes
//! cargo run --release --bin write_bars -- DIRECTORY synced 16  # so many threads
//! cargo run --release --bin write_bars -- DIRECTORY stalls 600 # random overwriting at 40 MiB/s for so many seconds
//! ```
//!
//! Values are half random, half zeroes. Where a rate is kept, a write's time counts from when it was due, not from when it could begin:
//! who waits makes all behind him late. While the whole process is stopped (`SIGSTOP`: another thread, which only sleeps, notices
//! nothing go on for a second) no time passes; how long that was is printed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker::{Compression, Db, FamilyOptions, Options, Separation, WriteOptions};
use esker_compare::place::Place;
use esker_format::compression::compress;
use hdrhistogram::Histogram;

type Outcome<T> = esker_compare::Result<T>;

const MIB: u64 = 1 << 20;
/// What a run that keeps a rate writes each second.
const RATE_BYTES: u64 = 40 * MIB;
/// What the longer fills write.
const FILL_BYTES: u64 = 2048 * MIB;
const ROUNDS: usize = 3;
/// Nothing else takes a thread that only sleeps away for so long.
const STOP_MIN: Duration = Duration::from_secs(1);

/// xorshift64*, Vigna 2016.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Values are pieces of this, each beginning elsewhere.
fn material(value_bytes: usize) -> Vec<u8> {
    let mut random = Random(88_172_645_463_325_252);
    let mut made = Vec::new();
    while made.len() < value_bytes + (1 << 16) {
        // 32 bytes of each kind: what LZ4 makes half of.
        (0..4).for_each(|_| made.extend_from_slice(&random.next().to_le_bytes()));
        made.resize(made.len() + 32, 0);
    }
    made
}

fn value<'a>(material: &'a [u8], value_bytes: usize, random: &mut Random) -> &'a [u8] {
    let at = (random.next() % (1 << 16)) as usize;
    material.get(at..at + value_bytes).unwrap_or_default()
}

fn open(dir: &Path, separation: Separation, compression: Compression) -> Outcome<Db> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    let family = FamilyOptions { separation, compression, blob_compression: compression, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    Ok(Db::open(dir, Options { create_if_missing: true, families, ..Options::default() })?)
}

/// Bytes a second of putting `FILL_BYTES` of such values under random keys, and device bytes for each.
fn fill(dir: &Path, value_bytes: usize, separation: Separation, compression: Compression) -> Outcome<(f64, f64)> {
    let db = open(dir, separation, compression)?;
    let (material, mut random) = (material(value_bytes), Random(7));
    let began = Instant::now();
    for _ in 0..FILL_BYTES / value_bytes as u64 {
        let key = random.next().to_be_bytes();
        db.put([key, key].concat(), value(&material, value_bytes, &mut random))?;
    }
    db.sync_wal()?;
    let speed = FILL_BYTES as f64 / began.elapsed().as_secs_f64();
    db.flush()?;
    let amplification = db.stats().write_amplification().unwrap_or_default();
    db.close()?;
    fs::remove_dir_all(dir)?;
    Ok((speed, amplification))
}

/// Bytes a second of compressing the same values, one by one, and writing them one after the other.
fn plain(dir: &Path, value_bytes: usize, compression: Compression) -> Outcome<f64> {
    fs::create_dir_all(dir)?;
    let (material, mut random, mut packed) = (material(value_bytes), Random(7), Vec::new());
    // A call of the system for each small value would be most of what it takes.
    let buffered = if value_bytes < 16 << 10 { 64 << 10 } else { 0 };
    let mut file = BufWriter::with_capacity(buffered, File::create(dir.join("plain"))?);
    let began = Instant::now();
    for _ in 0..FILL_BYTES / value_bytes as u64 {
        random.next();
        compress(compression, value(&material, value_bytes, &mut random), &mut packed)?;
        file.write_all(&packed)?;
    }
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_data()?;
    let speed = FILL_BYTES as f64 / began.elapsed().as_secs_f64();
    fs::remove_dir_all(dir)?;
    Ok(speed)
}

/// Bytes a second of loading as many in the order of their keys, past log and memtable.
fn load(dir: &Path, value_bytes: usize, compression: Compression) -> Outcome<f64> {
    let db = open(dir, Separation::AtFlush, compression)?;
    let (material, mut random) = (material(value_bytes), Random(7));
    let began = Instant::now();
    let mut load = db.bulk_load(&db.default_column_family())?;
    for number in 0..FILL_BYTES / value_bytes as u64 {
        load.put(number.to_be_bytes(), value(&material, value_bytes, &mut random))?;
    }
    load.finish()?;
    let speed = FILL_BYTES as f64 / began.elapsed().as_secs_f64();
    db.close()?;
    fs::remove_dir_all(dir)?;
    Ok(speed)
}

/// The same beside a plain writer: without compression both write what the device takes.
fn loads(dir: &Path) -> Outcome<()> {
    for compression in [Compression::None, Compression::Lz4] {
        for value_bytes in [1 << 10, 16 << 10] {
            let (mut loaded, mut beside) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                loaded.push(load(dir, value_bytes, compression)?);
                beside.push(plain(dir, value_bytes, compression)?);
            }
            let (loaded, beside) = (middle(loaded) / MIB as f64, middle(beside) / MIB as f64);
            let name = compression.name();
            println!("| sorted load, {value_bytes} B, {name}: MiB/s | {loaded:.0} |");
            println!("| plain writer | {beside:.0} |");
            println!("| part of it | {:.2} |", loaded / beside);
        }
    }
    Ok(())
}

/// Synced puts of 1 KiB a second, from so many threads.
fn synced(dir: &Path, threads: u64) -> Outcome<f64> {
    let db = open(dir, Separation::AtFlush, Compression::Lz4)?;
    let (material, written) = (material(1024), AtomicU64::new(0));
    let family = db.default_column_family();
    let options = WriteOptions { sync: true, ..WriteOptions::default() };
    let began = Instant::now();
    let seconds = Duration::from_secs(3);
    std::thread::scope(|scope| -> Outcome<()> {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let (db, family, material, written) = (&db, &family, &material, &written);
                scope.spawn(move || -> esker::Result<()> {
                    let mut random = Random(thread + 1);
                    while began.elapsed() < seconds {
                        let key = random.next().to_be_bytes();
                        db.put_cf(family, [key, key].concat(), value(material, 1024, &mut random), &options)?;
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| {
            writer.join().map_err(|_| "a writer panicked")??;
            Ok(())
        })
    })?;
    let speed = written.into_inner() as f64 / began.elapsed().as_secs_f64();
    db.close()?;
    fs::remove_dir_all(dir)?;
    Ok(speed)
}

/// Random overwriting of 1 GiB in values of 1 KiB, at a limited rate.
fn stalls(dir: &Path, seconds: u64) -> Outcome<()> {
    const VALUE_BYTES: usize = 1024;
    let keys = 1024 * MIB / VALUE_BYTES as u64;
    let db = open(dir, Separation::AtFlush, Compression::Lz4)?;
    let (material, mut random) = (material(VALUE_BYTES), Random(9));
    let put = |number: u64, random: &mut Random| -> esker::Result<()> {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        db.put([key, key].concat(), value(&material, VALUE_BYTES, random))
    };
    (0..keys).try_for_each(|number| put(number, &mut random))?;
    let mut latencies = Histogram::<u64>::new(3)?;
    let (stopped, ends) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| -> Outcome<()> {
        scope.spawn(|| note_stops(&stopped, &ends));
        let run = overwrite(seconds, &stopped, &mut latencies, || {
            let number = random.next() % keys;
            put(number, &mut random)
        });
        ends.store(1, Ordering::Relaxed);
        run
    })?;
    let of = |part: f64| latencies.value_at_quantile(part) as f64 / 1000.0;
    println!("| random overwriting, 1 KiB, {} MiB/s, {seconds} s: milliseconds since due |  |", RATE_BYTES / MIB);
    println!("| p50 / p99 / p99.9 | {:.3} / {:.3} / {:.3} |", of(0.5), of(0.99), of(0.999));
    println!("| p99.99 (bar: 50) | {:.3} |", of(0.9999));
    println!("| longest | {:.3} |", latencies.max() as f64 / 1000.0);
    println!("| the process was stopped for, s | {:.1} |", stopped.into_inner() as f64 / 1000.0);
    db.close()?;
    Ok(fs::remove_dir_all(dir)?)
}

/// Adds up, in milliseconds, how long the process was stopped.
fn note_stops(stopped: &AtomicU64, ends: &AtomicU64) {
    let mut last = Instant::now();
    while ends.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
        let gap = last.elapsed();
        if gap > STOP_MIN {
            stopped.fetch_add(gap.as_millis() as u64, Ordering::Relaxed);
        }
        last = Instant::now();
    }
}

/// Calls `put` at the rate, and records how late each call returned, in microseconds.
fn overwrite(
    seconds: u64,
    stopped: &AtomicU64,
    latencies: &mut Histogram<u64>,
    mut put: impl FnMut() -> esker::Result<()>,
) -> Outcome<()> {
    let gap = Duration::from_nanos(1_000_000_000 * 1024 / RATE_BYTES);
    let began = Instant::now();
    let now = || began.elapsed().saturating_sub(Duration::from_millis(stopped.load(Ordering::Relaxed)));
    let mut due = Duration::ZERO;
    while due < Duration::from_secs(seconds) {
        let early = due.saturating_sub(now());
        if early > Duration::from_millis(1) {
            // A sleep is as late as the system likes: the rest of the gap is waited for awake.
            std::thread::sleep(early - Duration::from_micros(500));
        }
        while now() < due {
            std::hint::spin_loop();
        }
        put()?;
        if now().saturating_sub(due) > STOP_MIN {
            // Who notices a stop has to get to it.
            std::thread::sleep(Duration::from_millis(5));
        }
        latencies.record(now().saturating_sub(due).as_micros() as u64)?;
        due += gap;
    }
    Ok(())
}

fn middle(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or_default()
}

fn table(dir: &Path) -> Outcome<()> {
    let (mut at_write, mut beside, mut one, mut sixteen) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        at_write.push(fill(dir, 16 << 10, Separation::AtWrite, Compression::Lz4)?.0);
        beside.push(plain(dir, 16 << 10, Compression::Lz4)?);
        one.push(synced(dir, 1)?);
        sixteen.push(synced(dir, 16)?);
    }
    let (_, amplification) = fill(dir, 16 << 10, Separation::AtWrite, Compression::None)?;
    let (at_write, beside, one, sixteen) = (middle(at_write), middle(beside), middle(one), middle(sixteen));
    println!("| fill of 16 KiB, at write, LZ4, MiB/s | {:.0} |", at_write / MIB as f64);
    println!("| plain writer that compresses, MiB/s | {:.0} |", beside / MIB as f64);
    println!("| part of it (bar: 0.85) | {:.2} |", at_write / beside);
    println!("| device bytes for each user byte, 16 KiB, at write, not compressed (bar: 1.05) | {amplification:.3} |");
    println!("| synced puts of 1 KiB, 1 thread, a second | {one:.0} |");
    println!("| 16 threads | {sixteen:.0} |");
    println!("| times one (bar: 8) | {:.1} |", sixteen / one);
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(dir) = arguments.first() else { return Err("give a directory".into()) };
    let place = Place::inside(Path::new(dir))?;
    let dir = place.path().join("store");
    println!("| what | here |\n|---|--:|");
    match arguments.get(1).map(String::as_str) {
        None => table(&dir),
        Some("synced") => {
            let threads: u64 = arguments.get(2).map_or(Ok(16), |threads| threads.parse::<u64>())?;
            println!("| synced puts of 1 KiB, {threads} threads, a second | {:.0} |", synced(&dir, threads)?);
            Ok(())
        }
        Some("fill") => {
            let at_write = fill(&dir, 16 << 10, Separation::AtWrite, Compression::Lz4)?.0;
            let beside = plain(&dir, 16 << 10, Compression::Lz4)?;
            println!("| fill of 16 KiB, at write, LZ4, MiB/s | {:.0} |", at_write / MIB as f64);
            println!("| plain writer that compresses, MiB/s | {:.0} |", beside / MIB as f64);
            Ok(())
        }
        Some("load") => loads(&dir),
        Some("stalls") => stalls(&dir, arguments.get(2).map_or(Ok(60), |seconds| seconds.parse())?),
        Some(other) => Err(format!("there is no {other:?}").into()),
    }
}
