//! Named pipes in place of a store's files, and where they are meant.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::raft::loaded;
use crate::run::{NONE, Place, command};

/// Far more than any of these commands takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// What a command says, on either stream; it must end by itself.
fn said<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let mut child = command(arguments).stdin(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let is_late = begun.elapsed() > PATIENCE;
        if is_late {
            child.kill().unwrap();
        }
        assert!(!is_late, "waits: {:?}", arguments.iter().map(AsRef::as_ref).collect::<Vec<&OsStr>>());
        std::thread::sleep(Duration::from_millis(2));
    };
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.code().is_some_and(|code| code <= 2), "{status}: {said}");
    said
}

/// Runs `commands` on the store, of which each file in turn is a pipe; returns all that they said of each.
fn with_pipes(place: &Place, commands: &[&[&str]]) -> Vec<(PathBuf, String)> {
    let mut told = Vec::new();
    for file in place.files("") {
        let aside = place.path("aside");
        std::fs::rename(&file, &aside).unwrap();
        make_pipe(&file);
        let mut all = said(&["dump".as_ref(), file.as_os_str()]);
        assert!(all.contains(file.to_str().unwrap()) && all.contains("not a regular file"), "{all}");
        for words in commands {
            let store = place.store().into_os_string();
            let arguments: Vec<OsString> =
                words.iter().map(|&word| if word == "STORE" { store.clone() } else { word.into() }).collect();
            all += &said(&arguments);
        }
        std::fs::rename(&aside, &file).unwrap();
        told.push((file, all));
    }
    told
}

/// That of the files whose names have these parts the last was told to be a pipe: older OPTIONS, for example, are not looked at.
fn assert_told(told: &[(PathBuf, String)], parts: &[&str]) {
    for part in parts {
        let (file, all) = told.iter().rfind(|(file, _)| file.to_str().unwrap().contains(part)).unwrap();
        assert!(all.contains("a named pipe") && all.contains(file.to_str().unwrap()), "{}: {all}", file.display());
    }
}

/// Goal: what never says a word is an error, and nothing that is waited for, whichever file it stands for.
#[test]
fn a_pipe_in_place_of_a_file_is_told_and_not_waited_for() {
    let place = Place::new();
    place.write("tree/large", &[b'L'; 30_000]);
    place.run("import", ["--files", place.path("tree").to_str().unwrap(), "--separation", "at-flush"]).done();
    place.run("put", ["inlog", "a"]).done();
    let told = with_pipes(
        &place,
        &[&["check", "STORE"], &["count", "STORE"], &["stats", "STORE"], &["get", "STORE", "inlog"]],
    );
    assert_told(&told, &["CURRENT", "MANIFEST", ".sst", ".blob", ".log", "OPTIONS"]);
    let log = place.files(".log").pop().unwrap();
    std::fs::remove_file(&log).unwrap();
    make_pipe(&log);
    let store = place.store();
    assert!(said(&["put".as_ref(), store.as_os_str(), "b".as_ref(), "c".as_ref()]).contains("a named pipe"));

    let place = Place::new();
    place.run("create", ["--kind", "cask"]).done();
    place.run("put", ["key", "value"]).done();
    let told =
        with_pipes(&place, &[&["check", "STORE"], &["count", "STORE"], &["stats", "STORE"], &["get", "STORE", "key"]]);
    assert_told(&told, &["MANIFEST", ".data"]);

    let commands: [&[&str]; 4] = [
        &["check", "STORE"],
        &["stats", "STORE"],
        &["raft", "dump", "STORE"],
        &["raft", "repair", "STORE", "--dry-run"],
    ];
    assert_told(&with_pipes(&loaded(), &commands), &[".raftlog", ".rewrite"]);
}

#[test]
fn a_pipe_that_is_named_on_purpose_is_read() {
    let place = Place::new();
    let pipe = place.path("pipe");
    make_pipe(&pipe);
    let import = |option: &str, line: &'static str| {
        let to = pipe.clone();
        let writer = std::thread::spawn(move || std::fs::write(to, line).unwrap());
        place
            .run(
                "import",
                [option, pipe.to_str().unwrap()].iter().chain(if option == "--jsonl" {
                    &["--key", "id"][..]
                } else {
                    &[]
                }),
            )
            .done();
        writer.join().unwrap();
    };
    import("--jsonl", "{\"id\": \"a\"}\n");
    import("--entries", "{\"key_hex\": \"62\", \"value_hex\": \"62\"}\n");
    let to = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, "c").unwrap());
    place.run("put", ["c", "--value-file", pipe.to_str().unwrap()]).done();
    writer.join().unwrap();
    assert_eq!(place.run("scan", ["--keys"]).done().text(), "a\nb\nc\n");
    place.run("check", NONE).done();
}
