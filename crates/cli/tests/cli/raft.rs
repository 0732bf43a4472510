//! `raft dump|check|repair|purge|stats`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use esker::RaftLog;
use esker::raft::{LogBatch, Options};

use crate::run::{NONE, Place, Ran, esker, flip_bit};

pub(crate) fn raft<S: AsRef<str>>(place: &Place, command: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
    let store = place.store();
    let mut all = vec!["raft".to_owned(), command.to_owned(), store.to_str().unwrap().to_owned()];
    all.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
    esker(all)
}

fn options() -> Options {
    Options { file_bytes: 2 << 10, purge_threshold_bytes: 4 << 10, compress_from_bytes: 500, ..Options::default() }
}

/// Groups 1 and 2 with thirty entries each in several files, some of them packed, and a key of group 2.
pub(crate) fn loaded() -> Place {
    let place = Place::new();
    let log = RaftLog::open(place.store(), options()).unwrap();
    let mut batch = LogBatch::new();
    for index in 1..=30u64 {
        let entry = format!("entry-{index}-").repeat(if index % 5 == 0 { 60 } else { 20 });
        batch.add_entries(1, index, [&entry]).unwrap();
        batch.add_entries(2, index, [&entry]).unwrap();
        batch.put(2, b"state", format!("at {index}").as_bytes()).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    log.close().unwrap();
    place
}

pub(crate) fn reopen(place: &Place) -> RaftLog {
    RaftLog::open(place.store(), options()).unwrap()
}

fn group(stats: &serde_json::Value, group: u64) -> serde_json::Value {
    stats["groups"].as_array().unwrap().iter().find(|one| one["group"] == group).unwrap().clone()
}

/// Names, lengths and bytes of all files.
pub(crate) fn contents(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    place.files("").into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn check_and_stats_know_a_raft_log_by_its_files() {
    let place = loaded();
    for command in ["check", "stats"] {
        for arguments in [&[][..], &["--json"]] {
            let text = place.run(command, arguments).done().text().to_owned();
            assert_eq!(text, raft(&place, command, arguments.to_vec()).done().text(), "{command}");
        }
    }
}

#[test]
fn stats_tell_groups_entries_and_files_and_change_nothing() {
    let place = loaded();
    let before = contents(&place);
    let stats = raft(&place, "stats", ["--json"]).done().json();
    assert_eq!((&stats["entries"], &stats["keys"]), (&60.into(), &1.into()));
    let one = group(&stats, 1);
    assert_eq!((&one["first_index"], &one["last_index"], &one["oldest_file"]), (&1.into(), &30.into(), &1.into()));
    let files = stats["files"].as_array().unwrap();
    assert!(files.len() > 4 && files.iter().any(|file| file["name"] == "0000000000000001.raftlog"));
    let text = raft(&place, "stats", ["--groups", "--files"]).done();
    for words in ["append queue", "2 groups: 60 entries", "oldest file", "0000000000000001.raftlog"] {
        assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
    }
    assert_eq!(contents(&place), before);
}

#[test]
fn a_log_that_is_open_may_be_looked_at_but_not_mended() {
    let place = loaded();
    let log = reopen(&place);
    raft(&place, "stats", NONE).done();
    raft(&place, "check", NONE).done();
    assert!(!raft(&place, "dump", NONE).done().out.is_empty());
    raft(&place, "purge", NONE).failed(&["busy"]);
    raft(&place, "repair", NONE).failed(&["busy"]);
    log.close().unwrap();
    raft(&place, "repair", NONE).done();
}

#[test]
fn dump_prints_batches_of_all_files_or_of_some() {
    let place = loaded();
    let all = raft(&place, "dump", ["--json"]).done().json_lines();
    let of = |what: &str| all.iter().filter(|line| line["what"] == what).count();
    assert_eq!((of("entry"), of("put"), of("batch")), (60, 30, 30));
    assert_eq!(all[0]["file"].as_str().unwrap(), "0000000000000001.rewrite");

    let only =
        raft(&place, "dump", ["--json", "--group", "2", "--file", "0000000000000002.raftlog"]).done().json_lines();
    assert!(only.iter().all(|line| line["file"] == "0000000000000002.raftlog"));
    assert!(only.iter().any(|line| line["what"] == "entry"));
    assert!(only.iter().all(|line| line["group"].is_null() || line["group"] == 2));

    let text = raft(&place, "dump", ["--limit", "2"]).done();
    assert!(text.text().contains("entry group=1 index=1 value=\"entry-1-entry-1-"), "{}", text.text());
    assert_eq!(raft(&place, "dump", ["--keys-only", "--group", "1"]).done().text().lines().count(), 30);
    raft(&place, "dump", ["--file", "none"]).failed(&["none"]);

    // The same file by itself, and under a name that says nothing.
    let file = place.store().join("0000000000000001.raftlog");
    let named = esker(["dump", file.to_str().unwrap()]).done();
    let copy = place.write("copy", &std::fs::read(&file).unwrap());
    let unnamed = esker(["dump", "--kind", "raft", copy.to_str().unwrap()]).done();
    assert_eq!(named.out, unnamed.out);
    flip_bit(&copy, 80);
    esker(["dump", "--kind", "raft", copy.to_str().unwrap()]).no();
}

#[test]
fn dump_prints_what_one_file_says_of_some_groups_wherever_it_lies() {
    let place = loaded();
    let file = place.store().join("0000000000000002.raftlog");
    let of_log = raft(&place, "dump", ["--group", "2", "--file", "0000000000000002.raftlog"]).done();
    assert!(of_log.text().contains("entry group=2") && !of_log.text().contains("entry group=1"), "{}", of_log.text());
    let kept = place.write("elsewhere/0000000000000002.raftlog.damaged", &std::fs::read(&file).unwrap());
    for path in [&file, &kept] {
        let path = path.to_str().unwrap();
        let alone = esker(["raft", "dump", path, "--raft-groups", "2"]).done();
        let lines = |ran: &Ran| {
            ran.text().lines().filter(|line| line.contains("group=2")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&alone), lines(&of_log));
        assert!(!alone.text().contains("group=1"), "{}", alone.text());
        esker(["raft", "dump", path, "--file", "0000000000000002.raftlog"]).failed(&["a Raft log is a directory"]);
    }
}

#[test]
fn check_finds_a_flipped_bit_and_a_missing_file_but_not_a_torn_end() {
    let place = loaded();
    let text = raft(&place, "check", NONE).done();
    assert!(text.text().contains("60 entries in 30 batches") && text.text().contains("no damage"), "{}", text.text());

    let last = place.files(".raftlog").pop().unwrap();
    let bytes = std::fs::read(&last).unwrap();
    std::fs::write(&last, &bytes[..bytes.len() - 2]).unwrap();
    let text = raft(&place, "check", NONE).no();
    assert!(text.text().contains("though the log was closed with"), "{}", text.text());
    // As if it had not been.
    std::fs::remove_file(place.store().join("CLOSED")).unwrap();
    let text = raft(&place, "check", NONE).done();
    assert!(text.text().contains("ends torn at byte"), "{}", text.text());

    let second = place.store().join("0000000000000002.raftlog");
    flip_bit(&second, 100);
    let found = raft(&place, "check", ["--json"]).no().json();
    assert_eq!(found["damaged"], true);
    assert_eq!(found["errors"][0]["path"], second.to_str().unwrap());
    assert!(raft(&place, "dump", NONE).no().text().contains("DAMAGE"));
}

#[test]
fn whatever_bit_of_the_note_of_a_close_is_flipped_a_repair_mends_it() {
    let place = loaded();
    let note = place.store().join("CLOSED");
    let whole = std::fs::read(&note).unwrap();
    for byte in (0..whole.len()).filter(|byte| byte % 5 == 0 || (8..12).contains(byte)) {
        flip_bit(&note, byte);
        assert!(raft(&place, "check", NONE).no().text().contains("esker raft repair"), "byte {byte}");
        raft(&place, "repair", NONE).done();
        assert!(raft(&place, "check", NONE).done().text().contains("no damage"), "byte {byte}");
        std::fs::write(&note, &whole).unwrap();
    }
}

#[test]
fn every_file_of_a_log_is_known_to_dump_by_its_name() {
    let place = loaded();
    let closed = esker(["dump", place.store().join("CLOSED").to_str().unwrap(), "--json"]).done().json();
    assert!(closed["what"] == "closed" && closed["append_file"].as_u64() > Some(1), "{closed}");
    for (name, words) in [("CLOSED.new", "DAMAGE"), ("0000000000000009.raftlog.reserved", "mark name=")] {
        let file = place.write(name, b"nothing");
        let ran = esker(["dump", file.to_str().unwrap()]);
        assert!(ran.text().contains(words), "{name}: {}{}", ran.text(), ran.err);
    }
}

#[test]
fn repair_cuts_what_is_damaged_keeps_a_copy_and_the_log_opens_again() {
    let place = loaded();
    let second = place.store().join("0000000000000002.raftlog");
    // The length of its first batch.
    flip_bit(&second, 72);
    let damaged = std::fs::read(&second).unwrap();
    assert!(RaftLog::open(place.store(), options()).is_err());

    let before = contents(&place);
    let dry = raft(&place, "repair", ["--dry-run"]).done();
    assert!(dry.text().contains("would be cut at byte"), "{}", dry.text());
    assert_eq!(contents(&place), before);

    let done = raft(&place, "repair", ["--json"]).done().json();
    assert_eq!(done["cuts"][0]["path"], second.to_str().unwrap());
    let copy = done["copies"][0].as_str().unwrap();
    assert_eq!(std::fs::read(Path::new(copy)).unwrap(), damaged);
    assert!(esker(["dump", copy]).no().text().contains("DAMAGE"));
    let log = reopen(&place);
    assert_eq!((log.last_index(1), log.get(2, b"state").as_deref()), (Some(30), Some(&b"at 30"[..])));
    log.close().unwrap();
}

/// Goal: what has a copy's name is a whole copy, whenever the repair is killed: here where the copy comes to the largest file that is allowed.
#[test]
fn a_repair_that_is_killed_leaves_no_part_of_a_copy() {
    let place = loaded();
    let second = place.store().join("0000000000000002.raftlog");
    flip_bit(&second, 72);
    let damaged = std::fs::read(&second).unwrap();
    assert!(damaged.len() > 1024);
    let script = "ulimit -c 0; ulimit -f 1; exec \"$0\" raft repair \"$1\"";
    let shell = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_esker")]).arg(place.store()).output();
    assert!(shell.unwrap().status.signal().is_some());
    assert!(place.files(".damaged").is_empty() && std::fs::read(&second).unwrap() == damaged);
    raft(&place, "repair", NONE).done();
    let copies: Vec<_> =
        place.files("").into_iter().filter(|path| path.to_str().unwrap().contains(".damaged")).collect();
    assert_eq!(copies, place.files(".raftlog.damaged"));
    assert_eq!(copies.iter().map(|copy| std::fs::read(copy).unwrap()).collect::<Vec<_>>(), [damaged]);
}

#[test]
fn repair_says_which_file_is_missing_and_goes_on_without_it() {
    let place = loaded();
    let is_append = |path: &PathBuf| path.extension().is_some_and(|found| found == "raftlog");
    let last = contents(&place).into_iter().map(|(path, _)| path).filter(is_append).max().unwrap();
    std::fs::remove_file(&last).unwrap();
    assert!(RaftLog::open(place.store(), options()).is_err());
    let told = format!("{}: it is not there, and what it held is lost", last.display());
    for arguments in [&["--dry-run"][..], &[]] {
        let text = raft(&place, "repair", arguments).done().text().to_owned();
        assert!(text.contains(&told) && !text.contains("nothing to repair"), "{text}");
    }
    reopen(&place).close().unwrap();
    assert!(raft(&place, "repair", NONE).done().text().contains("nothing to repair"));
}

#[test]
fn repair_drops_truncates_and_compacts_groups() {
    let place = loaded();
    let arguments = ["--drop-group", "2", "--truncate", "1:21", "--compact", "1:6"];
    let dry = raft(&place, "repair", arguments.into_iter().chain(["--dry-run", "--json"])).done().json();
    let done = raft(&place, "repair", arguments.into_iter().chain(["--json"])).done().json();
    for found in [dry, done] {
        assert_eq!(found["dropped"], serde_json::json!([2]));
        assert_eq!(found["truncated"], serde_json::json!([{ "group": 1, "entries": 10 }]));
        assert_eq!(found["compacted"], serde_json::json!([{ "group": 1, "entries": 5 }]));
    }
    let log = reopen(&place);
    assert_eq!((log.groups(), log.first_index(1), log.last_index(1)), (vec![1], Some(6), Some(20)));
    assert!(log.entry(1, 20).unwrap().unwrap().starts_with(b"entry-20-"));
    log.close().unwrap();

    raft(&place, "repair", ["--truncate", "1:1"]).done();
    assert_eq!(reopen(&place).last_index(1), None, "nothing is left of it");
    raft(&place, "repair", ["--drop-group", "9"]).failed(&["there is no group 9"]);
    raft(&place, "repair", ["--truncate", "9"]).failed(&["GROUP:INDEX"]);
}

#[test]
fn purge_gives_up_files_and_keeps_what_is_alive() {
    let place = loaded();
    reopen(&place).compact_to(1, 28).unwrap();
    reopen(&place).compact_to(2, 29).unwrap();
    let purged = raft(&place, "purge", ["--threshold", "4KiB", "--json"]).done().json();
    assert!(purged["purged_files"].as_u64() > Some(0), "{purged}");
    let text = raft(&place, "purge", ["--all"]).done();
    assert!(text.text().contains("given up"), "{}", text.text());
    let log = reopen(&place);
    assert_eq!((log.first_index(1), log.last_index(2)), (Some(28), Some(30)));
    assert_eq!(log.get(2, b"state").as_deref(), Some(&b"at 30"[..]));
    log.close().unwrap();
    assert!(raft(&place, "check", NONE).done().text().contains("alive: 5 entries of 2 groups"));
}

#[test]
fn what_purge_gives_up_leaves_the_disk() {
    for is_purged_before in [false, true] {
        let place = loaded();
        if is_purged_before {
            let log = reopen(&place);
            log.move_on(None).unwrap();
            log.close().unwrap();
            assert_ne!(place.files(".reserved"), Vec::<PathBuf>::new(), "files wait to be written over");
        }
        let purged = raft(&place, "purge", ["--all", "--json"]).done().json();
        assert_eq!(place.files(".reserved"), Vec::<PathBuf>::new());
        let is_of_log = |path: &&PathBuf| !path.ends_with("CLOSED");
        let on_disk: u64 = place.files("").iter().filter(is_of_log).map(|path| path.metadata().unwrap().len()).sum();
        assert_eq!(purged["bytes_after"], on_disk);
        assert_eq!(reopen(&place).last_index(1), Some(30));
    }
}

#[test]
fn what_is_no_raft_log_is_refused_and_nothing_is_made() {
    let place = Place::with(&[("k", "v")]);
    for command in ["dump", "check", "repair", "purge", "stats"] {
        raft(&place, command, NONE).failed(&["does not work on a Db, but on a Raft log"]);
        let file = place.files("CURRENT").remove(0);
        esker(["raft", command, file.to_str().unwrap()]).failed(&["is a directory, and this is a file", "esker dump"]);
        let nothing = place.path("nothing");
        esker(["raft", command, nothing.to_str().unwrap()]).failed(&["there is no Raft log", "check the path"]);
        assert!(!nothing.exists());
        let help = esker(["raft", command, "--help"]).done();
        assert!(help.text().contains(&format!("Usage: esker raft {command} ")));
    }
    assert_eq!(esker(["raft"]).code, 2);
    let place = loaded();
    for command in [
        &["get", "k"][..],
        &["put", "k", "v"],
        &["scan"],
        &["count"],
        &["compact"],
        &["gc"],
        &["import", "--files", "/"],
    ] {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).failed(&["does not work on a Raft log", "esker raft"]);
    }
    place.run("gc", NONE).failed(&["does not work on a Raft log", "esker raft purge"]);
    place.run("gc", ["--dry-run"]).failed(&["esker raft purge"]);
}

#[test]
fn repair_says_which_entries_are_lost_and_how_to_go_on_without_them() {
    let place = loaded();
    let file = place.store().join("0000000000000002.raftlog");
    let is_lost = |batch: &serde_json::Value| batch["lost"].as_array().is_some_and(|lost| !lost.is_empty());
    // In the entries of its first batch: opening reads only the items of old files.
    flip_bit(&file, 100);
    assert!(place.run("check", NONE).no().text().contains("esker raft check --spill-dir"));
    let check = raft(&place, "check", ["--json"]).no().json();
    assert!(is_lost(&check), "{check}");
    let lost = check["lost"][0].clone();
    let (group, first) = (lost["group"].as_u64().unwrap(), lost["first_index"].as_u64().unwrap());
    let (compact, truncate) = (format!("{group}:{}", first + 1), format!("{group}:{first}"));
    let told = raft(&place, "repair", NONE).no();
    for words in [format!("--truncate {truncate}"), format!("--compact {compact}"), "cannot be read".to_owned()] {
        assert!(told.text().contains(&words), "{words:?} is not in {}", told.text());
    }
    assert!(is_lost(&raft(&place, "repair", ["--dry-run", "--json"]).no().json()));
    // Both groups have an entry in it: one gives up what is before, the other what is behind.
    let other = check["lost"][1].clone();
    let (other_group, other_first) = (other["group"].as_u64().unwrap(), other["first_index"].as_u64().unwrap());
    let rest = format!("{other_group}:{other_first}");
    let done = raft(&place, "repair", ["--compact", &compact, "--truncate", &rest]).done();
    assert!(done.text().contains("esker raft purge --all"), "{}", done.text());
    raft(&place, "purge", ["--all"]).done();
    raft(&place, "check", NONE).done();
    let log = reopen(&place);
    assert_eq!((log.first_index(group), log.last_index(group)), (Some(first + 1), Some(30)));
    assert_eq!((log.first_index(other_group), log.last_index(other_group)), (Some(1), Some(other_first - 1)));
}

#[test]
fn a_fork_holds_the_same_and_goes_its_own_way() {
    let place = loaded();
    let target = place.path("fork");
    let made = raft(&place, "fork", [target.to_str().unwrap(), "--json"]).done().json();
    assert!(made["linked"].as_array().unwrap().len() > 2 && made["copied"].as_array().unwrap().len() == 2, "{made}");
    raft(&place, "fork", [target.to_str().unwrap()]).failed(&["empty directory"]);
    raft(&place, "repair", ["--drop-group", "1"]).done();
    raft(&place, "purge", ["--all"]).done();
    let fork = RaftLog::open(&target, options()).unwrap();
    assert_eq!((fork.last_index(1), fork.entries(1, 1, 31, None).unwrap().len()), (Some(30), 30));
}

#[test]
fn none_is_made_among_files_of_others() {
    let place = Place::new();
    let stranger = place.write("store/letter", b"");
    esker(["create", place.store().to_str().unwrap(), "--kind", "raft"])
        .failed(&["letter", "empty or a new directory"]);
    assert_eq!(place.files(""), std::slice::from_ref(&stranger));
    std::fs::remove_file(stranger).unwrap();
    // What a creation leaves that had no room.
    place.write("store/LOCK", b"");
    esker(["create", place.store().to_str().unwrap(), "--kind", "raft"]).done();
}

#[test]
fn a_spill_directory_that_is_not_there_is_told_and_not_made() {
    let place = loaded();
    let nowhere = place.path("nowhere");
    for command in ["dump", "check", "repair", "purge", "stats"] {
        raft(&place, command, ["--spill-dir", nowhere.to_str().unwrap()]).failed(&["--spill-dir", "nowhere"]);
    }
    assert!(!nowhere.exists());
}

/// Goal: nobody is sent from a check to a repair that then says that there is nothing to do.
#[test]
fn check_and_repair_agree_about_gaps_and_files_that_are_left_out() {
    // Entries are gone in the middle, as after a repair that cut a file there.
    let place = loaded();
    let second = second_of(&place);
    let bytes = std::fs::read(&second).unwrap();
    std::fs::write(&second, &bytes[..69]).unwrap();
    let check = raft(&place, "check", NONE).no().text().to_owned();
    assert!(check.contains("group 1: entries between 7 and") && !check.contains("see `esker raft repair`"), "{check}");
    let gap_lines: Vec<&str> = check.lines().filter(|line| line.contains("entries between")).collect();
    assert_eq!(gap_lines.len(), 2);
    for arguments in [&["--dry-run"][..], &[]] {
        let repair = raft(&place, "repair", arguments).done().text().to_owned();
        assert!(gap_lines.iter().all(|line| repair.contains(line)), "{repair}");
        assert_eq!(repair.lines().last(), check.lines().last(), "both say what helps");
        assert!(repair.contains("esker raft purge --all") && !repair.contains("nothing to repair"), "{repair}");
    }
    assert_eq!(raft(&place, "repair", ["--json"]).done().json()["gaps"].as_array().unwrap().len(), 2);
    raft(&place, "purge", ["--all"]).done();
    assert!(raft(&place, "check", NONE).done().text().contains("no damage"));

    // A file is gone, and those before it are left out.
    let place = loaded();
    std::fs::remove_file(second_of(&place)).unwrap();
    std::fs::remove_file(place.store().join("CLOSED")).unwrap();
    let check = raft(&place, "check", NONE).no().text().to_owned();
    let left_out = check.lines().find(|line| line.contains("0000000000000001.raftlog is left out")).unwrap();
    for arguments in [&["--dry-run"][..], &[]] {
        let repair = raft(&place, "repair", arguments).done().text().to_owned();
        assert!(repair.contains(left_out) && !repair.contains("nothing to repair"), "{repair}");
        assert_eq!(repair.lines().last(), check.lines().last());
    }
    assert_eq!(raft(&place, "repair", ["--json"]).done().json()["left_out"].as_array().unwrap().len(), 1);
}

fn second_of(place: &Place) -> PathBuf {
    place.store().join("0000000000000002.raftlog")
}

/// Goal: a repair that is refused has changed nothing.
#[test]
fn a_repair_that_is_refused_leaves_all_as_it_was() {
    // A directory stands where a file is missing.
    for name in ["0000000000000005.raftlog", "0000000000000001.rewrite"] {
        let place = loaded();
        let path = place.store().join(name);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let files = || place.files("").into_iter().map(|path| (std::fs::read(&path).ok(), path)).collect::<Vec<_>>();
        let before = files();
        for command in ["check", "repair"] {
            raft(&place, command, NONE).failed(&[name, "is a directory in place of a file"]);
        }
        assert_eq!(files(), before);
    }
    // The entry to go on from cannot be read, and something else would be cut.
    let place = loaded();
    flip_bit(&second_of(&place), 100);
    let lost = raft(&place, "check", ["--json"]).no().json()["lost"][0].clone();
    let (group, index) = (lost["group"].as_u64().unwrap(), lost["first_index"].as_u64().unwrap());
    let last = place.files(".raftlog").pop().unwrap();
    let bytes = std::fs::read(&last).unwrap();
    std::fs::write(&last, &bytes[..bytes.len() - 2]).unwrap();
    let before = contents(&place);
    let from = format!("{group}:{}", index + 1);
    for arguments in [&["--truncate", &from, "--dry-run"][..], &["--truncate", &from]] {
        raft(&place, "repair", arguments).failed(&[&format!("--truncate {group}:{index}"), "cannot be read"]);
    }
    assert_eq!(contents(&place), before);
}
