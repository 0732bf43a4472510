//! What a report says of the machine, the build and the day.

use std::path::Path;
use std::process::Command;

use crate::Result;

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What runs this process again, without places on this machine.
pub fn command() -> String {
    command_of(std::env::args())
}

/// The binary that `cargo run` takes where none is named.
const DEFAULT_BINARY: &str = "esker-compare";

fn command_of(mut args: impl Iterator<Item = String>) -> String {
    let program = args.next().unwrap_or_default();
    let binary = Path::new(&program).file_stem().map_or(DEFAULT_BINARY.into(), |name| name.to_string_lossy());
    let mut words = vec!["cargo run --release".to_owned()];
    if cfg!(feature = "rocksdb") {
        words.push("--features rocksdb".into());
    }
    if binary != DEFAULT_BINARY {
        words.push(format!("--bin {binary}"));
    }
    words.push("--".into());
    while let Some(arg) = args.next() {
        let (flag, value) = arg.split_once('=').map_or((arg.as_str(), None), |(flag, value)| (flag, Some(value)));
        match flag {
            "--directory" | "--out" | "--cgroup" => {
                if value.is_none() {
                    args.next();
                }
                // Without it the page cache would not be limited.
                if flag == "--cgroup" {
                    words.push("--cgroup DIR".into());
                }
            }
            _ => words.push(arg),
        }
    }
    words.join(" ")
}

/// `2026-01-31`.
pub fn today() -> String {
    output("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default()
}

/// The commit that is checked out.
pub fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let is_changed = output("git", &["status", "--porcelain", "--untracked-files=no", "--", "../crates"]);
    if is_changed.is_some_and(|changes| !changes.is_empty()) { commit + "+" } else { commit }
}

/// Compiler and flags.
pub fn build() -> String {
    let native = if cfg!(target_feature = "avx2") { "with AVX2" } else { "for any x86-64 (not target-cpu=native)" };
    let optimised = if cfg!(debug_assertions) { "debug build: its figures mean nothing" } else { "release build" };
    let rustc = output("rustc", &["--version"]).unwrap_or_default();
    let go = output("go", &["version"]).map_or_else(String::new, |go| format!("; {go}"));
    format!("{rustc}, {optimised}, Rust and C++ {native}{go}")
}

/// Processor, memory, kernel, file system.
pub fn describe(directory: &Path) -> Result<String> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib: f64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel: Vec<_> = kernel.trim().split('.').take(2).collect();
    std::fs::create_dir_all(directory)?;
    let place = directory.canonicalize()?;
    let file_system = output("stat", &["-f", "-c", "%T", &place.to_string_lossy()]).unwrap_or_else(|| "?".into());
    Ok(format!(
        "{model}, {cores} cores, {}, Linux {}, {file_system}",
        crate::sizes::print(kib * 1024.0),
        kernel.join(".")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> String {
        command_of(words.split(' ').map(str::to_owned)).replace(" --features rocksdb", "")
    }

    #[test]
    fn a_command_names_its_binary_and_leaves_out_places() {
        assert_eq!(
            of("target/release/esker-compare compare --out here --num 5 --cgroup /a/b --cold --directory=/c"),
            "cargo run --release -- compare --num 5 --cgroup DIR --cold"
        );
        assert_eq!(
            of("esker-compare compare --cgroup=/a/b --num 5"),
            "cargo run --release -- compare --cgroup DIR --num 5"
        );
        assert_eq!(of("./reclaim_bars --lz4"), "cargo run --release --bin reclaim_bars -- --lz4");
    }
}
