//! What a report says of the machine, the build and the day.

use std::path::Path;
use std::process::Command;

use crate::Result;

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The arguments of this process, without those that name places on this machine.
pub fn command() -> String {
    let mut kept = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--directory" | "--out" | "--cgroup" => drop(args.next()),
            _ if ["--directory=", "--out=", "--cgroup="].iter().any(|flag| arg.starts_with(flag)) => {}
            _ => kept.push(arg),
        }
    }
    let features = if cfg!(feature = "rocksdb") { " --features rocksdb" } else { "" };
    format!("cargo run --release{features} -- {}", kept.join(" "))
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
