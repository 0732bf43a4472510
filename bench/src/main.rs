//! The command line of the comparison.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use esker_compare::compare::{Cgroup, Comparison};
use esker_compare::engine::Entry;
use esker_compare::plan::{Line, Plan, Settings};
use esker_compare::report::{self, Head, Report};
use esker_compare::workload::Workload;
use esker_compare::{Result, run, sizes};

/// The same work on Esker and on its peers.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs engines in turns and writes a report.
    Compare(Box<CompareArgs>),
    /// Lists the engines of this build.
    Engines,
    /// Writes the tables and plots of a report again, from its JSON lines.
    Render {
        /// A `.jsonl` file that `compare` wrote.
        file: PathBuf,
    },
    /// One run: a plan on standard input, results on standard output. What `compare` starts.
    #[command(hide = true)]
    Run,
}

#[derive(Args)]
struct CompareArgs {
    /// Engines; the others are compared with the first.
    #[arg(long, value_delimiter = ',', default_value = "esker,esker-inline,fjall,fjall-blob,redb,lmdb,badger,null")]
    engines: Vec<String>,
    /// Phases, in order; a load comes first in any case.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "load,update,readrandom,readmissing,exists,range,scan,scankeys"
    )]
    workloads: Vec<Workload>,
    /// Sizes of values, each compared for itself.
    #[arg(long, value_delimiter = ',', default_value = "100,1KiB,16KiB", value_parser = sizes::parse)]
    value_size: Vec<u64>,
    /// Keys.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Fewer keys than `--num` where keys and values would be more than this.
    #[arg(long, default_value = "1GiB", value_parser = sizes::parse)]
    data_bytes: u64,
    /// Operations of each phase other than the load and full scans; 0 is one for each key.
    #[arg(long, default_value_t = 0)]
    reads: u64,
    /// Threads on the store, each number compared for itself.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    threads: Vec<u64>,
    /// How often each engine runs.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Puts in one write.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Entries of one short range.
    #[arg(long, default_value_t = 100)]
    range_entries: u64,
    /// Groups, for Raft logs: keys are their entries.
    #[arg(long, default_value_t = 1_000)]
    groups: u64,
    /// Entries that a Raft group keeps: those before are compacted, and space is given back; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    keep_entries: u64,
    /// A phase, other than the load, ends after so many seconds; 0 is never.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Caches and write buffers of an engine together.
    #[arg(long, default_value = "256MiB", value_parser = sizes::parse)]
    memory_bytes: u64,
    /// Values from this size on are separated by the engines that can.
    #[arg(long, default_value = "4KiB", value_parser = sizes::parse)]
    min_blob_size: u64,
    /// Threads for flush and compaction.
    #[arg(long, default_value_t = 2)]
    background_jobs: u32,
    /// Every write survives power loss before it returns.
    #[arg(long)]
    sync: bool,
    /// Reopens and drops the store's pages from the page cache before each phase that reads.
    #[arg(long)]
    cold: bool,
    /// A memory cgroup (version 1 or 2) that may be divided: each run gets `--memory-bytes` and `--page-cache-bytes` in it.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Page cache of a run, with `--cgroup`.
    #[arg(long, default_value = "256MiB", value_parser = sizes::parse, requires = "cgroup")]
    page_cache_bytes: u64,
    /// Where keys and values come from.
    #[arg(long, default_value_t = 301)]
    seed: u64,
    /// Where stores are made while they are measured.
    #[arg(long, default_value = "target/stores")]
    directory: PathBuf,
    /// Where the report goes, without its ending.
    #[arg(long, default_value = "results/latest")]
    out: PathBuf,
}

impl CompareArgs {
    fn comparison(&self) -> Result<Comparison> {
        if self.memory_bytes < 16 << 20 {
            return Err("--memory-bytes is below 16 MiB, the least that every engine can be given".into());
        }
        let cgroup = self.cgroup.as_deref().map(|dir| Cgroup::new(dir, self.memory_bytes + self.page_cache_bytes));
        let value_bytes =
            self.value_size.iter().map(|size| usize::try_from(*size)).collect::<std::result::Result<_, _>>()?;
        Ok(Comparison {
            engines: self.engines.clone(),
            workloads: self.workloads.clone(),
            value_bytes,
            threads: self.threads.clone(),
            rounds: self.rounds,
            num: self.num,
            data_bytes_max: self.data_bytes,
            reads: self.reads,
            batch: self.batch,
            range_entries: self.range_entries,
            groups: self.groups,
            keep_entries: self.keep_entries,
            seconds_max: self.seconds,
            seed: self.seed,
            settings: Settings {
                memory_bytes: self.memory_bytes,
                min_blob_bytes: self.min_blob_size,
                background_jobs: self.background_jobs,
                sync: self.sync,
            },
            cold: self.cold,
            directory: self.directory.clone(),
            cgroup,
        })
    }
}

fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = args.comparison()?;
    let head = Head::of(&comparison, &args.directory)?;
    let outcomes = comparison.run(&mut |number, count, slot| {
        let size = sizes::print(slot.value_bytes as f64);
        let threads = slot.threads;
        eprintln!(
            "{}/{count}: {}, values of {size}, {threads} thread(s), round {}",
            number + 1,
            slot.engine,
            slot.round + 1
        );
    })?;
    write(&Report { head, outcomes }, &args.out)
}

fn write(report: &Report, out: &Path) -> Result<()> {
    if let Some(dir) = out.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let [lines, tables, page] = ["jsonl", "md", "html"].map(|ending| out.with_extension(ending));
    std::fs::write(&lines, report.json_lines()?)?;
    let markdown = report::markdown(report);
    std::fs::write(&tables, &markdown)?;
    std::fs::write(&page, report::page(report)?)?;
    print!("{markdown}");
    eprintln!("written: {}, {} and {}", tables.display(), page.display(), lines.display());
    Ok(())
}

fn run_plan() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let plan: Plan = serde_json::from_str(&line)?;
    let mut say = |line: Line| -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        Ok(out.flush()?)
    };
    run::run(&plan, &mut say).or_else(|error| say(Line::Failed(error.to_string())))
}

fn render(file: &Path) -> Result<()> {
    write(&Report::read(&std::fs::read_to_string(file)?)?, file)
}

fn main() -> ExitCode {
    let done: Result<()> = match Cli::parse().command {
        Command::Compare(args) => compare(&args),
        Command::Render { file } => render(&file),
        Command::Run => run_plan(),
        Command::Engines => {
            Entry::all().for_each(|entry| println!("{:20} {:10} {}", entry.name, entry.version(), entry.about));
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_page_cache_needs_a_cgroup() {
        let parse = |words: &str| Cli::try_parse_from(words.split(' '));
        assert!(parse("esker-compare compare --page-cache-bytes 1MiB").is_err());
        assert!(parse("esker-compare compare").is_ok());
        assert!(parse("esker-compare compare --cgroup dir --page-cache-bytes 1MiB").is_ok());
    }
}
