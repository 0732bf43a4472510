//! `RaftLog` and the raft-engine crate side by side: the bars that a report of [`esker_compare`] does not show.
//!
//! ```sh
//! cargo run --release --bin raft_bars -- DIRECTORY write ROUNDS [ENTRIES THREADS]  # append, fetch for the first time and again, open
//! cargo run --release --bin raft_bars -- DIRECTORY sync ROUNDS [ENTRIES THREADS]   # append with a sync of every batch
//! cargo run --release --bin raft_bars -- DIRECTORY index                           # memory for 2 million entries of 128 bytes
//! cargo run --release --bin raft_bars -- DIRECTORY open GIB ROUNDS                 # opens a log of so many GiB, made if it is not there
//! ```
//!
//! 1,000 groups, entries of 1 KiB, half of which compresses away; a batch has an entry and a state of each of eight groups. Every run is a process
//! of its own, both engines take turns, and what is fetched is compared with what was written. Logs lie in a directory of their own in
//! DIRECTORY and go at the end, but for those that `open` has filled: they stay for its next run, in `esker-raft-bars-open-GIB`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use esker::RaftLog;
use esker::raft::{EntryCodec, LogBatch, Options};
use esker_compare::data::{Data, mix};
use esker_compare::place::Place;
use protobuf::Message;
use protobuf::well_known_types::Any;
use raft_engine::{Config, Engine, MessageExt};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const KINDS: [&str; 2] = ["esker", "raft-engine"];
const GROUPS: u64 = 1000;
const BATCH: usize = 8;
const ENTRY_BYTES: usize = 1024;
const FETCHES: u64 = 12_500;
const FETCH_ENTRIES: u64 = 16;
const INDEX_ENTRIES: u64 = 2_000_000;
const INDEX_ENTRY_BYTES: usize = 128;
/// What says whose a directory of a filled log is, and whether that is whole.
const MARKER: &str = "made-by-raft-bars";
const WHOLE: &str = "whole";
/// What an entry of a file is, compressed, about: sizes the log to be opened.
const STORED_BYTES: u64 = 660;

struct Codec;

impl MessageExt for Codec {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        entry.type_url.parse().unwrap_or(0)
    }
}

impl EntryCodec for Codec {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        entry.type_url.parse().unwrap_or(0)
    }

    fn encode(entry: &Any, out: &mut Vec<u8>) -> esker::raft::Result<()> {
        entry.write_to_vec(out).map_err(|error| esker::raft::Error::invalid_argument(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> esker::raft::Result<Any> {
        Any::parse_from_bytes(bytes).map_err(|error| esker::raft::Error::invalid_argument(error.to_string()))
    }
}

enum Log {
    Esker(RaftLog),
    Original(Box<Engine>),
}

impl Log {
    fn open(kind: &str, dir: &Path) -> Outcome<Self> {
        Ok(if kind == "esker" {
            Self::Esker(RaftLog::open(dir, Options::default())?)
        } else {
            let config = Config { dir: dir.to_string_lossy().into_owned(), ..Config::default() };
            Self::Original(Box::new(Engine::open(config)?))
        })
    }

    /// Entries as a Raft store has them when it writes: making them is no log's work.
    fn append(&self, index: u64, groups: &[u64], entries: &[Any], sync: bool) -> Outcome<()> {
        let state = [index as u8; 32];
        let all = groups.iter().zip(entries);
        match self {
            Self::Esker(log) => {
                let mut batch = LogBatch::new();
                for (group, entry) in all {
                    batch.add::<Codec>(*group, std::slice::from_ref(entry))?;
                    batch.put(*group, b"state", &state)?;
                }
                log.write(&mut batch, sync)?;
            }
            Self::Original(log) => {
                let mut batch = raft_engine::LogBatch::default();
                for (group, entry) in all {
                    batch.add_entries::<Codec>(*group, std::slice::from_ref(entry))?;
                    batch.put(*group, b"state".to_vec(), state.to_vec())?;
                }
                log.write(&mut batch, sync)?;
            }
        }
        Ok(())
    }

    fn fetch(&self, group: u64, begin: u64, out: &mut Vec<Any>) -> Outcome<()> {
        let end = begin + FETCH_ENTRIES;
        match self {
            Self::Esker(log) => drop(log.fetch::<Codec>(group, begin, end, None, out)?),
            Self::Original(log) => drop(log.fetch_entries_to::<Codec>(group, begin, end, None, out)?),
        }
        Ok(())
    }
}

/// Fields of `/proc/self`.
fn proc_number(file: &str, field: &str) -> f64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 =
        behind_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Runs `work` for each thread with the groups that are its own; prints operations a second of the time spent in calls, their
/// latencies, and what they cost, the harness' part included.
fn measure(
    name: &str,
    threads: u64,
    work: impl Fn(u64, &[u64], &mut Vec<Duration>) -> Outcome<u64> + Sync,
) -> Outcome<()> {
    let cpu = cpu_seconds();
    let all = Mutex::new((0, Vec::new()));
    std::thread::scope(|scope| {
        let run = |thread: u64| {
            let groups: Vec<u64> = (0..GROUPS).filter(|group| group % threads == thread).collect();
            let mut latencies = Vec::new();
            let done = work(thread, &groups, &mut latencies)?;
            let mut all = all.lock().map_err(|_| "a thread panicked")?;
            all.0 += done;
            all.1.append(&mut latencies);
            Ok(())
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
    .and_then(|()| {
        let (done, mut latencies) = all.into_inner().map_err(|_| "a thread panicked")?;
        // Making what is written and comparing what is read is the harness' work, and the same for both.
        let seconds = latencies.iter().sum::<Duration>().as_secs_f64() / threads as f64;
        latencies.sort_unstable();
        let at = |part: f64| {
            latencies
                .get(((latencies.len().saturating_sub(1)) as f64 * part) as usize)
                .map_or(0.0, Duration::as_secs_f64)
        };
        println!("{name}: {} op/s", done as f64 / seconds);
        println!("{name}: {} us p99", at(0.99) * 1e6);
        println!("{name}: {} us of processor", (cpu_seconds() - cpu) * 1e6 / done as f64);
        Ok(())
    })
}

fn append(log: &Log, data: &Data, entries: u64, threads: u64, sync: bool) -> Outcome<()> {
    measure(if sync { "synced append" } else { "append" }, threads, |_, groups, latencies| {
        let mut made = vec![Any::new(); BATCH];
        for index in 1..=entries / GROUPS {
            for together in groups.chunks(BATCH) {
                for (group, entry) in together.iter().zip(&mut made) {
                    entry.type_url = index.to_string();
                    data.value(index * GROUPS + group, 1, &mut entry.value);
                }
                let begun = Instant::now();
                log.append(index, together, &made, sync)?;
                latencies.push(begun.elapsed());
            }
        }
        Ok(groups.len() as u64 * (entries / GROUPS))
    })
}

fn fetch(name: &str, log: &Log, data: &Data, entries: u64, threads: u64) -> Outcome<()> {
    let last = entries / GROUPS;
    measure(name, threads, |thread, groups, latencies| {
        let mut draw = mix(thread);
        for _ in 0..FETCHES / threads {
            draw = mix(draw.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let group = groups.get((draw % groups.len() as u64) as usize).copied().unwrap_or_default();
            let begin = 1 + mix(draw) % (last + 1 - FETCH_ENTRIES);
            let begun = Instant::now();
            let mut out = Vec::new();
            log.fetch(group, begin, &mut out)?;
            latencies.push(begun.elapsed());
            let right = (begin..).zip(&out).all(|(index, entry)| {
                entry.type_url.parse() == Ok(index) && data.matches(index * GROUPS + group, 1, &entry.value)
            });
            if !right || out.len() as u64 != FETCH_ENTRIES {
                return Err(format!("entries of group {group} from {begin} on are not what was written").into());
            }
        }
        Ok(FETCHES / threads * FETCH_ENTRIES)
    })
}

fn opened(kind: &str, dir: &Path) -> Outcome<Log> {
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let log = Log::open(kind, dir)?;
    println!("open: {} s", begun.elapsed().as_secs_f64());
    println!("open: {} s of processor", cpu_seconds() - cpu);
    Ok(log)
}

/// One run of one engine, in a process of its own.
fn one(kind: &str, dir: &Path, what: &str, entries: u64, threads: u64) -> Outcome<()> {
    let anonymous = || proc_number("/proc/self/status", "RssAnon:") * 1024.0;
    if what == "open" {
        let before = anonymous();
        let log = opened(kind, dir)?;
        println!("open: {} MiB", (anonymous() - before) / f64::from(1 << 20));
        drop(log);
        return Ok(());
    }
    let entry_bytes = if what == "index" { INDEX_ENTRY_BYTES } else { ENTRY_BYTES };
    let data = Data::new(7, entry_bytes);
    let log = Log::open(kind, dir)?;
    let before = anonymous();
    append(&log, &data, entries, threads, what == "sync")?;
    match what {
        "index" => println!("index: {} bytes an entry", (anonymous() - before) / entries as f64),
        "write" => {
            Command::new("sync").status()?;
            fetch("first fetch", &log, &data, entries, threads)?;
            fetch("fetch again", &log, &data, entries, threads)?;
            drop(log);
            drop(opened(kind, dir)?);
        }
        _ => {}
    }
    Ok(())
}

/// Figures by name, in the order in which they came, of each engine.
type Table = Vec<(String, [Vec<f64>; 2])>;

/// Runs one engine in a process of its own and takes what it printed into `table`.
fn child(table: &mut Table, kind: usize, dir: &Path, what: &str, entries: u64, threads: u64) -> Outcome<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(dir).arg("one").args([KINDS[kind], what]).args([entries.to_string(), threads.to_string()]);
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{} failed", KINDS[kind]).into());
    }
    for line in String::from_utf8(output.stdout)?.lines() {
        let Some((name, (number, unit))) =
            line.split_once(": ").and_then(|(name, rest)| Some((name, rest.split_once(' ')?)))
        else {
            continue;
        };
        let name = format!("{name}, {unit}");
        if !table.iter().any(|(there, _)| *there == name) {
            table.push((name.clone(), Default::default()));
        }
        if let Some((_, figures)) = table.iter_mut().find(|(there, _)| *there == name) {
            figures[kind].push(number.parse()?);
        }
    }
    Ok(())
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(table: &Table) {
    println!("| | {} | {} | one to the other, median | least | greatest |", KINDS[0], KINDS[1]);
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, [own, other]) in table {
        let ratios: Vec<f64> = own.iter().zip(other).map(|(own, other)| own / other).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(0.0, f64::max);
        println!(
            "| {name} | {:.2} | {:.2} | {:.2} | {least:.2} | {greatest:.2} |",
            median(own),
            median(other),
            median(&ratios)
        );
    }
}

/// Where a log of so many GiB is, filled now if no earlier run has.
fn filled(dir: &Path, gib: u64) -> Outcome<PathBuf> {
    let own = dir.join(format!("esker-raft-bars-open-{gib}"));
    let (marker, log) = (own.join(MARKER), own.join("log"));
    if own.exists() {
        match fs::read_to_string(&marker) {
            Ok(state) if state == WHOLE => return Ok(log),
            Ok(_) => fs::remove_dir_all(&own)?,
            Err(error) => return Err(format!("{} is not this program's: {MARKER}: {error}", own.display()).into()),
        }
    }
    fs::create_dir_all(&own)?;
    fs::write(&marker, "being filled")?;
    child(&mut Table::new(), 0, &log, "fill", (gib << 30) / STORED_BYTES, 2)?;
    fs::write(&marker, WHOLE)?;
    Ok(log)
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |arg| arg.parse());
    let (Some(dir), Some(what)) = (args.first().map(PathBuf::from), args.get(1).map(String::as_str)) else {
        return Err("a directory and what to do are asked for".into());
    };
    let mut table = Table::new();
    match (what, &args[2..]) {
        ("one", [kind, what, ..]) => return one(kind, &dir, what, number(4, 0)?, number(5, 1)?),
        ("open", _) => {
            let (gib, rounds) = (number(2, 10)?, number(3, 3)?);
            let log = filled(&dir, gib)?;
            for kind in (0..rounds).flat_map(|_| [0, 1]) {
                child(&mut table, kind, &log, "open", 0, 1)?;
            }
        }
        ("write" | "sync" | "index", _) => {
            let (entries, threads) = match what {
                "index" => (INDEX_ENTRIES, 1),
                "sync" => (number(3, 80_000)?, number(4, 16)?),
                _ => (number(3, 200_000)?, number(4, 1)?),
            };
            if !(1..=GROUPS).contains(&threads) {
                return Err(
                    format!("each thread has groups of its own: from 1 to {GROUPS} threads, not {threads}").into()
                );
            }
            let least = if what == "write" { FETCH_ENTRIES * GROUPS } else { GROUPS };
            if entries < least {
                return Err(format!("{what} needs {least} entries at least, not {entries}").into());
            }
            let place = Place::inside(&dir)?;
            let log = place.path().join("log");
            for kind in (0..number(2, 1)?).flat_map(|_| [0, 1]) {
                child(&mut table, kind, &log, what, entries, threads)?;
                fs::remove_dir_all(&log)?;
            }
        }
        _ => return Err(format!("{what} is not known").into()),
    }
    print(&table);
    Ok(())
}
