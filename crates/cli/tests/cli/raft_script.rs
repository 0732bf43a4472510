//! `raft repair --script`.

use std::path::PathBuf;

use esker::raft::LogBatch;
use serde_json::json;

use crate::raft::{contents, loaded, raft, reopen};
use crate::run::{NONE, Place, Ran, esker, flip_bit};

const DISCARD_SECOND: &str =
    "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { if id == 2 { 1 } else { 0 } }";

/// Writes a script beside the store and repairs with it.
fn by_script<S: AsRef<str>>(place: &Place, script: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
    let path = place.write("fix.rhai", script.as_bytes()).to_str().unwrap().to_owned();
    let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
    raft(place, "repair", ["--script".to_owned(), path].into_iter().chain(arguments))
}

#[test]
fn a_script_takes_a_group_out_and_the_files_stay_as_they_were() {
    let place = loaded();
    let before = contents(&place);
    let dry = by_script(&place, DISCARD_SECOND, ["--dry-run"]).done();
    assert!(dry.text().contains("group 2: 30 entries would be discarded"), "{}", dry.text());
    let dry = by_script(&place, DISCARD_SECOND, ["--dry-run", "--json"]).done().json();
    assert_eq!(contents(&place), before);

    let done = by_script(&place, DISCARD_SECOND, ["--json"]).done().json();
    let groups = json!([{ "group": 2, "entries": 30, "earlier_entries": 0, "commands": 0 }]);
    assert_eq!((&dry["groups"], &done["groups"]), (&groups, &groups));
    let paths = |found: &serde_json::Value| -> Vec<String> {
        found["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&dry), paths(&done));
    let files = done["files"].as_array().unwrap();
    assert!(files.len() > 3, "{done}");
    for file in files {
        let (path, kept) = (PathBuf::from(file["path"].as_str().unwrap()), file["kept"].as_str().unwrap());
        let (_, bytes) = before.iter().find(|(found, _)| *found == path).unwrap();
        assert_eq!(&std::fs::read(kept).unwrap(), bytes);
        assert!(esker(["dump", kept]).done().text().contains("entry group=2"));
        assert!(!esker(["dump", path.to_str().unwrap()]).done().text().contains("entry group=2"));
    }
    let log = reopen(&place);
    assert_eq!((log.first_index(1), log.last_index(1), log.last_index(2)), (Some(1), Some(30), None));
    assert!(log.entry(1, 20).unwrap().unwrap().starts_with(b"entry-20-"));
    assert_eq!(log.get(2, b"state").as_deref(), Some(&b"at 30"[..]), "keys stay");
    log.close().unwrap();

    assert!(by_script(&place, DISCARD_SECOND, NONE).done().text().contains("the script keeps everything"));
}

#[test]
fn a_script_keeps_an_item_and_drops_what_was_before_it() {
    let place = loaded();
    let script = "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) {
        if id == 1 && ifirst == 16 && first == 1 && count == 15 && rewrite_count == 0 && queue == 0 { 2 } else { 0 }
    }";
    let text = by_script(&place, script, NONE).done().text().to_owned();
    assert!(text.contains("group 1: 15 entries before an item discarded"), "{text}");
    let log = reopen(&place);
    assert_eq!((log.first_index(1), log.last_index(1), log.first_index(2)), (Some(16), Some(30), Some(1)));
}

#[test]
fn a_script_that_fails_names_its_line_and_changes_nothing() {
    let place = loaded();
    let before = contents(&place);
    let head = "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast)";
    for (script, words) in [
        ("let x = 1;\nfn filter_append(".to_owned(), &["fix.rhai, line 2"][..]),
        (
            format!("fn helper(id) {{\n  nobody(id)\n}}\n{head} {{ helper(id) }}"),
            &[
                "0000000000000001.raftlog at byte",
                "group 1, entries 1 to 1",
                "fix.rhai, line 2",
                "Function not found: nobody",
                "`nobody(id)`",
            ],
        ),
        (format!("\n{head} {{ 7 }}"), &["fix.rhai, line 2", "filter_append returned 7", "0, 1 or 2"]),
        (format!("{head} {{ if id == 9 {{ return 1; }} }}"), &["fix.rhai, line 1", "returned nothing"]),
        (format!("{head} {{ \"all\" }}"), &["fix.rhai, line 1", "returned all"]),
        (
            "\n\nfn filter_clean(id, first) { 1 }".to_owned(),
            &["fix.rhai, line 3", "filter_clean has 5 parameters, and here 2"],
        ),
        ("fn filter_apend(a) { 1 }".to_owned(), &["fix.rhai", "none of the functions", "--help"]),
        (
            format!("{head} {{ if id == 1 && ifirst == 10 {{ 1 }} else {{ 0 }} }}"),
            &[
                "raftlog at byte",
                "group 1, entries 11 to 11",
                "entries are missing before it",
                "9 entries from 1 on",
                "return 1 for it",
            ],
        ),
    ] {
        by_script(&place, &script, NONE).failed(words);
        by_script(&place, &script, ["--dry-run"]).failed(words);
        assert_eq!(contents(&place), before, "{script}");
    }
    let nowhere = place.path("nowhere.rhai");
    raft(&place, "repair", ["--script", nowhere.to_str().unwrap()]).failed(&["--script", "nowhere.rhai"]);
    by_script(&place, DISCARD_SECOND, ["--drop-group", "1"]).failed(&["--script", "--drop-group"]);
    assert_eq!(contents(&place), before);
}

#[test]
fn a_log_that_is_open_may_be_asked_about_but_not_changed() {
    let place = loaded();
    let log = reopen(&place);
    // Not what is in them: a process that reads LOCK gives its own lock up.
    let before = place.files("");
    by_script(&place, DISCARD_SECOND, ["--dry-run"]).done();
    by_script(&place, DISCARD_SECOND, NONE).failed(&["busy"]);
    assert_eq!(place.files(""), before);
    log.close().unwrap();
    by_script(&place, DISCARD_SECOND, NONE).done();
}

#[test]
fn a_script_is_asked_about_one_queue_or_both() {
    let all = "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { 1 }";
    for (queue, left) in [("append", (Some(1), Some(30))), ("rewrite", (Some(31), Some(31))), ("all", (None, None))] {
        let place = loaded();
        raft(&place, "purge", ["--all"]).done();
        let log = reopen(&place);
        let mut batch = LogBatch::new();
        batch.add_entries(1, 31, [b"entry-31"]).unwrap();
        log.write(&mut batch, false).unwrap();
        log.close().unwrap();
        by_script(&place, all, ["--queue", queue]).done();
        let log = reopen(&place);
        assert_eq!((log.first_index(1), log.last_index(1)), left, "{queue}");
    }
    let place = loaded();
    raft(&place, "repair", ["--queue", "append"]).failed(&["--script"]);
    by_script(&place, all, ["--queue", "both"]).failed(&["append, rewrite, all"]);
}

#[test]
fn a_script_takes_damaged_entries_out_and_what_it_cuts_is_told() {
    let place = loaded();
    let second = place.store().join("0000000000000002.raftlog");
    let lines = esker(["dump", second.to_str().unwrap(), "--json"]).done().json_lines();
    let batches: Vec<u64> =
        lines.iter().filter(|line| line["what"] == "batch").map(|line| line["offset"].as_u64().unwrap()).collect();
    assert!(batches.len() > 1);
    // The length of its second batch.
    flip_bit(&second, usize::try_from(batches[1]).unwrap() + 3);
    let damaged = std::fs::read(&second).unwrap();
    raft(&place, "check", NONE).no();
    let gaps = "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) {
        if id == 2 { return 1; }
        if count > 0 && ifirst > first + count { return 2; }
        0
    }";
    let text = by_script(&place, gaps, NONE).done().text().to_owned();
    assert!(text.contains(&format!("{}: cut at byte {}, ", second.display(), batches[1])), "{text}");
    assert_eq!(std::fs::read(second.with_extension("raftlog.before")).unwrap(), damaged);
    raft(&place, "check", NONE).done();
    let log = reopen(&place);
    assert_eq!((log.last_index(1), log.last_index(2)), (Some(30), None));
    assert!(log.first_index(1) > Some(1));
    log.close().unwrap();

    // Where nothing of it goes, a damaged file stays as it is.
    let place = loaded();
    flip_bit(&place.store().join("0000000000000001.raftlog"), 100);
    let text =
        by_script(&place, "fn filter_clean(id, first, count, rewrite_count, queue) { 1 }", NONE).no().text().to_owned();
    assert!(
        text.contains("the script keeps everything") && text.contains("1 damage left; see `esker raft check`"),
        "{text}"
    );
}

#[test]
fn a_script_is_asked_about_files_that_were_spilled() {
    let place = loaded();
    let spill = place.path("spill");
    std::fs::create_dir(&spill).unwrap();
    let last = place.files(".raftlog").pop().unwrap();
    let moved = spill.join(last.file_name().unwrap());
    std::fs::rename(&last, &moved).unwrap();
    let before = contents(&place);
    by_script(&place, DISCARD_SECOND, NONE).failed(&["this file is gone", last.to_str().unwrap()]);
    assert_eq!(contents(&place), before, "what is there is not taken for all");
    let done = by_script(&place, DISCARD_SECOND, ["--spill-dir", spill.to_str().unwrap(), "--json"]).done().json();
    let file = done["files"].as_array().unwrap().iter().find(|file| file["path"] == moved.to_str().unwrap()).unwrap();
    assert_eq!(file["kept"], moved.with_extension("raftlog.before").to_str().unwrap());
}

#[test]
fn what_a_script_prints_does_not_mix_with_the_answer() {
    let place = loaded();
    let script = "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { if ifirst == 3 { print(`group ${id} at ${ifirst}`); } 0 }";
    let ran = by_script(&place, script, ["--dry-run", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "group 1 at 3\ngroup 2 at 3\n"));
    assert_eq!(ran.json()["files"], json!([]));
}

#[test]
fn the_help_says_what_a_script_may_have() {
    let help = esker(["raft", "repair", "--help"]).done();
    for words in [
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast)",
        "fn filter_compact(",
        "fn filter_clean(",
        "2 to keep it",
    ] {
        assert!(help.text().contains(words), "{words:?} is not in {}", help.text());
    }
}
