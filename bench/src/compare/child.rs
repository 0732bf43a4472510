//! A run in a process of its own. The plan goes in by standard input, results come out by standard output.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cgroup::Cgroup;
use crate::Result;
use crate::engine::Entry;
use crate::plan::{Line, Phase, Plan, Whole};

/// Builds the Go program and returns where it is.
///
/// # Errors
/// There is no Go, or the program does not build.
pub fn build_badger() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("badger-compare");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("badger");
    let built = Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(sources).status();
    match built {
        Ok(status) if status.success() => Ok(program),
        Ok(status) => Err(format!("building the Badger program failed: {status}").into()),
        Err(error) => {
            Err(format!("badger needs Go (https://go.dev) or has to be left out of --engines: {error}").into())
        }
    }
}

/// Runs `plan` to its end.
pub(super) fn run(plan: &Plan, badger: Option<&Path>, cgroup: Option<&Cgroup>) -> Result<(Vec<Phase>, Whole)> {
    let mut command = match badger {
        Some(program) if Entry::find(&plan.engine)?.is_elsewhere() => Command::new(program),
        _ => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("run");
            command
        }
    };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    // Before it hears what to do, so that all of it counts.
    let limited = cgroup.map(|cgroup| cgroup.limit(child.id())).transpose();
    let told = limited.and_then(|limit| {
        let mut input = child.stdin.take().ok_or("a child has no standard input")?;
        writeln!(input, "{}", serde_json::to_string(plan)?)?;
        Ok(limit)
    });
    let heard = told.and_then(|limit| {
        let output = child.stdout.take().ok_or("a child has no standard output")?;
        let lines = BufReader::new(output).lines();
        let heard = listen(lines)?;
        Ok((heard, limit))
    });
    if heard.is_err() {
        // It may be waiting for us; what it has done is worth nothing now.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let (heard, _limit) = heard?;
    if !status.success() {
        return Err(format!("its process ended with {status}").into());
    }
    Ok(heard)
}

fn listen(lines: impl Iterator<Item = std::io::Result<String>>) -> Result<(Vec<Phase>, Whole)> {
    let mut phases = Vec::new();
    let mut whole = None;
    for line in lines {
        match serde_json::from_str(&line?)? {
            Line::Phase(phase) => phases.push(phase),
            Line::Whole(last) => whole = Some(last),
            Line::Failed(why) => return Err(why.into()),
        }
    }
    Ok((phases, whole.ok_or("its process ended without a word")?))
}
