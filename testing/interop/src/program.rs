//! Runs one of RocksDB's tools and gives what it printed.

use std::io::{ErrorKind, Write};
use std::process::{Command, ExitStatus, Stdio};

/// What a tool left behind when it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The command as one could type it.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Ends the test with `message`.
#[expect(clippy::panic, reason = "failing the test is all that a test harness can do")]
#[track_caller]
pub fn fail(message: &str) -> ! {
    panic!("{message}")
}

/// Runs `program` to its end, however it ends. `input` is its standard input.
#[track_caller]
pub fn run(program: &str, arguments: &[String], input: &str) -> Outcome {
    let command = format!("{program} {}", arguments.join(" "));
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => fail(&format!(
            "{program} is not on the PATH. These tests need RocksDB's own tools; on Debian and Ubuntu:\n\
             \n    sudo apt-get install rocksdb-tools\n"
        )),
        Err(error) => fail(&format!("{command}: cannot be started: {error}")),
    };
    // A tool that ends without reading its input is judged by its status, not by the broken pipe.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    match child.wait_with_output() {
        Ok(output) => Outcome {
            command,
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        },
        Err(error) => fail(&format!("{command}: its output cannot be read: {error}")),
    }
}

impl Outcome {
    /// Fails unless the tool ended with status 0 and complained of no damage, then gives what it printed.
    ///
    /// The words are looked for as well as the status because some of the tools print "Corruption" and end with 0.
    #[track_caller]
    pub fn succeeded(self) -> String {
        let complained = ["Corruption", "Failed:", "not supported"]
            .iter()
            .any(|word| self.stderr.contains(word) || self.stdout.contains(word));
        if !self.status.success() || complained {
            self.give_up("failed");
        }
        self.stdout
    }

    /// Fails and shows the whole outcome.
    #[track_caller]
    pub fn give_up(&self, what: &str) -> ! {
        fail(&format!(
            "`{}` {what} ({})\n--- stdout\n{}\n--- stderr\n{}",
            self.command,
            self.status,
            shortened(&self.stdout),
            shortened(&self.stderr)
        ))
    }
}

/// The last 4,000 characters: tools say at the end why they failed.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(4000)).collect()
}
