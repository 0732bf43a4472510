//! Runs the command.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// What a run left.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ran {
    /// It was done, without a word on stderr.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", String::from_utf8_lossy(&self.out));
        self
    }

    /// It said no, without a word on stderr.
    #[track_caller]
    pub(crate) fn no(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (1, ""), "{}", String::from_utf8_lossy(&self.out));
        self
    }

    /// It failed with one line that has all these words in it.
    #[track_caller]
    pub(crate) fn failed(self, words: &[&str]) -> Self {
        assert_eq!(self.code, 2, "{}", self.err);
        assert!(self.err.starts_with("esker: ") && self.err.ends_with('\n'), "{:?}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{:?}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err);
        }
        self
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap()
    }

    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn esker<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    esker_with_input(arguments, b"")
}

pub(crate) fn esker_with_input<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Ran {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command may end before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran { code: output.status.code().unwrap(), out: output.stdout, err: String::from_utf8(output.stderr).unwrap() }
}

pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The command with no more memory than this, in KiB; its standard input is empty.
#[cfg(target_os = "linux")]
pub(crate) fn esker_within<S: AsRef<OsStr>>(memory_kib: u64, arguments: impl IntoIterator<Item = S>) -> Ran {
    let limited = format!("ulimit -v {memory_kib}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(limited).arg(env!("CARGO_BIN_EXE_esker")).args(arguments).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let code = output.status.code();
    assert!(code.is_some(), "it did not end by itself: {output:?}");
    Ran { code: code.unwrap(), out: output.stdout, err: String::from_utf8(output.stderr).unwrap() }
}

/// A directory with a store in it, at first none.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// With a store that has these entries.
    pub(crate) fn with(entries: &[(&str, &str)]) -> Self {
        let place = Self::new();
        for (key, value) in entries {
            place.run("put", [*key, value, "--create"]).done();
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// `esker COMMAND STORE ARGUMENTS…`
    pub(crate) fn run<S: AsRef<OsStr>>(&self, command: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
        esker(self.arguments(command, arguments))
    }

    pub(crate) fn arguments<S: AsRef<OsStr>>(
        &self,
        command: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Vec<OsString> {
        let mut all = vec![OsString::from(command), self.store().into_os_string()];
        all.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        all
    }

    /// The store's files whose names end so.
    pub(crate) fn files(&self, ending: &str) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(self.store())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().ends_with(ending))
            .collect();
        found.sort();
        found
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// No arguments.
pub(crate) const NONE: [&str; 0] = [];

/// Changes one bit of a file.
pub(crate) fn flip_bit(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}
