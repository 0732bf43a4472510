//! `bench`.

use crate::run::{NONE, Place};

const NUM: &str = "300";

/// All but what is done once.
const BENCHMARKS: [&str; 21] = [
    "fillseq",
    "fillrandom",
    "fillsync",
    "overwrite",
    "readrandom",
    "readmissing",
    "readseq",
    "readreverse",
    "seekrandom",
    "scankeys",
    "exists",
    "readwhilewriting",
    "ycsba",
    "ycsbb",
    "ycsbc",
    "ycsbd",
    "ycsbe",
    "ycsbf",
    "null",
    "deleterandom",
    "deleterange",
];

#[test]
fn every_benchmark_has_its_row_and_its_figures() {
    let place = Place::new();
    let all = BENCHMARKS.join(",");
    let arguments = ["--num", NUM, "--benchmarks", &all, "--range-keys", "7", "--threads", "2", "--json"];
    let figures = place.run("bench", arguments).done().json();
    let benchmarks = figures["benchmarks"].as_array().unwrap();
    assert_eq!(benchmarks.len(), BENCHMARKS.len());
    for (benchmark, name) in benchmarks.iter().zip(BENCHMARKS) {
        assert_eq!(benchmark["name"], name);
        let due = match name {
            "fillsync" => 1,
            "deleterandom" => 150,
            // Half of 43 ranges of seven keys.
            "deleterange" => 22,
            _ => 300,
        };
        assert_eq!(benchmark["operations"], due, "{benchmark}");
        assert!(benchmark["operations_per_second"].as_f64().unwrap() > 0.0, "{benchmark}");
        let latency = |name: &str| benchmark["latency_micros"][name].as_f64().unwrap();
        let rising = [latency("p50"), latency("p99"), latency("p99_9"), latency("max")];
        assert!(rising[0] > 0.0 && rising.is_sorted(), "{benchmark}");
        assert_eq!(benchmark["writer"].is_object(), name == "readwhilewriting");
    }
    let run = &figures["run"];
    assert!(figures["wrong"].is_null() && run["user_bytes"].as_u64() > Some(300 * 116 * 3));
    for name in ["log", "flush_tables", "flush_blob_files", "compaction", "manifest"] {
        assert!(run["written_bytes"][name].is_u64(), "{name}: {run}");
    }
    for name in ["write_amplification", "stall_seconds", "peak_rss_bytes", "peak_anonymous_bytes", "seconds"] {
        assert!(run[name].is_number(), "{name}: {run}");
    }
    for name in ["read_bytes", "write_bytes", "cancelled_write_bytes", "net_write_bytes"] {
        assert!(run["device"][name].is_u64(), "{name}: {run}");
    }
    let on_disk = run["on_disk_bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>();
    let total: u64 = place.files("").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(on_disk, total, "of the closed store: {run}");
    assert_eq!((&figures["plan"]["num"], &figures["plan"]["threads"]), (&300.into(), &2.into()));
    place.run("check", NONE).done();
}

#[test]
fn the_table_is_for_people() {
    let place = Place::new();
    let arguments = ["--num", NUM, "--benchmarks", "fillrandom,readrandom,flush,compact,waitforcompaction"];
    let ran = place.run("bench", arguments).done();
    for words in ["benchmark", "ops/s", "p99.9 µs", "fillrandom", "compact ", "per user byte", "on disk", "peak memory"]
    {
        assert!(ran.text().contains(words), "{words:?} is not in {}", ran.text());
    }
    assert_eq!(place.run("count", NONE).done().text(), "300\n");
}

#[test]
fn the_same_seed_makes_the_same_store() {
    let scan = |seed: &str, threads: &str| {
        let place = Place::new();
        let arguments = ["--num", NUM, "--benchmarks", "fillrandom,overwrite,deleterandom", "--seed", seed];
        place.run("bench", arguments.into_iter().chain(["--threads", threads])).done();
        place.run("scan", NONE).done().out
    };
    assert_eq!(scan("1", "1"), scan("1", "1"));
    assert_ne!(scan("1", "1"), scan("2", "1"));
}

#[test]
fn values_are_as_large_and_lie_where_they_were_told_to() {
    let place = Place::new();
    let values = ["--num", NUM, "--value-size", "100:50,1000:30,16384:20", "--min-blob-size", "1000"];
    let rest = ["--benchmarks", "fillrandom,flush,readrandom,readseq", "--key-size", "24", "--batch", "7", "--json"];
    let figures = place.run("bench", values.into_iter().chain(rest)).done().json();
    assert!(figures["run"]["written_bytes"]["flush_blob_files"].as_u64() > Some(0), "{figures}");
    assert!(!place.files(".blob").is_empty());
    let key = place.run("scan", ["--keys", "--hex", "--limit", "1"]).done();
    assert_eq!(key.text().trim().len(), 48);
}

#[test]
fn a_store_that_is_there_is_only_used_when_told_to() {
    let place = Place::with(&[("k", "v")]);
    place.run("bench", ["--num", NUM]).failed(&["--use-existing"]);
    assert_eq!(place.run("count", NONE).done().text(), "1\n");
    Place::new().run("bench", ["--num", NUM, "--use-existing"]).failed(&["no store"]);
}

#[test]
fn a_later_run_knows_the_values_of_an_earlier_one() {
    let place = Place::new();
    place.run("bench", ["--num", NUM, "--benchmarks", "fillrandom", "--compression", "zstd"]).done();
    let read = ["--num", NUM, "--use-existing", "--benchmarks", "readrandom,readseq,ycsba,readseq", "--json"];
    let figures = place.run("bench", read).done().json();
    assert_eq!((&figures["benchmarks"][0]["found"], &figures["options"]["compression"]), (&300.into(), &"ZSTD".into()));
}

#[test]
fn what_goes_on_in_the_background_is_written_down() {
    let place = Place::new();
    let path = place.path("events.txt");
    let path = path.to_str().unwrap();
    let fill = ["--num", "20000", "--benchmarks", "fillrandom", "--write-buffer-bytes", "64KiB", "--events", path];
    place.run("bench", fill).done();
    let events = std::fs::read_to_string(path).unwrap();
    let has = |words: &str| events.lines().filter(|line| line.contains(words)).count();
    assert!(
        has("flush of \"default\" to level 0") > 20 && has(" ended after ") > 20 && has("compaction of") > 1,
        "{events}"
    );
    let nowhere = ["--num", NUM, "--use-existing", "--events", "/nowhere/events.txt"];
    place.run("bench", nowhere).failed(&["/nowhere/events.txt"]);
}

#[test]
fn benchmarks_that_wrote_nothing_are_no_generations() {
    let place = Place::new();
    place.run("bench", ["--num", "1000", "--benchmarks", "readmissing,exists,fillsync"]).done();
    place.run("bench", ["--num", "1000", "--use-existing", "--benchmarks", "readrandom"]).done();
}

#[test]
fn a_wrong_value_ends_the_run_with_exit_code_1_and_the_key() {
    let place = Place::new();
    place.run("bench", ["--num", NUM, "--benchmarks", "fillrandom"]).done();
    let key = "00000000000000073030303030303030";
    place.run("put", ["--hex", key, "00112233445566778899aabbccddeeff00"]).done();
    let read = ["--num", NUM, "--use-existing", "--benchmarks", "readseq,readrandom"];
    let ran = place.run("bench", read).no();
    assert!(ran.text().contains(&format!("WRONG ANSWER in readseq: key 0x{key}")), "{}", ran.text());
    let figures = place.run("bench", read.into_iter().chain(["--json"])).no().json();
    assert_eq!((&figures["wrong"]["key"], &figures["wrong"]["benchmark"]), (&key.into(), &"readseq".into()));
}

#[test]
fn the_report_is_one_page_without_scripts() {
    let place = Place::new();
    let page = place.path("report.html");
    let benchmarks = "fillrandom,readrandom,ycsbe,compact,readwhilewriting";
    let arguments = ["--num", NUM, "--benchmarks", benchmarks, "--report", page.to_str().unwrap()];
    place.run("bench", arguments).done();
    let page = std::fs::read_to_string(page).unwrap();
    // Two plots of the run, and two of each benchmark but compact.
    assert_eq!(page.matches("<svg ").count(), 2 + 4 * 2);
    assert_eq!(page.matches("<svg ").count(), page.matches("</svg>").count());
    for words in
        ["fillrandom", "Bytes written, by cause", "Space on disk", "operations per second", "prefers-color-scheme"]
    {
        assert!(page.contains(words), "{words:?}");
    }
    for forbidden in ["<script", "http://", "https://", "NaN", "inf"] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
    place.run("bench", ["--report", "/nonexistent/x.html", "--use-existing", "--num", NUM]).failed(&["/nonexistent/x"]);
}

/// All that a Cask can do, but what is done once.
const CASK_BENCHMARKS: [&str; 15] = [
    "fillseq",
    "fillrandom",
    "fillsync",
    "overwrite",
    "readrandom",
    "readmissing",
    "scan",
    "exists",
    "readwhilewriting",
    "ycsba",
    "ycsbb",
    "ycsbc",
    "ycsbd",
    "ycsbf",
    "deleterandom",
];

#[test]
fn a_cask_has_a_row_and_figures_for_every_benchmark_without_order() {
    let place = Place::new();
    let all = CASK_BENCHMARKS.join(",");
    let arguments = ["--kind", "cask", "--num", NUM, "--benchmarks", &all, "--threads", "2", "--json"];
    let figures = place.run("bench", arguments).done().json();
    let benchmarks = figures["benchmarks"].as_array().unwrap();
    assert_eq!(benchmarks.len(), CASK_BENCHMARKS.len());
    for (benchmark, name) in benchmarks.iter().zip(CASK_BENCHMARKS) {
        assert_eq!(benchmark["name"], name);
        let due = match name {
            "fillsync" => 1,
            "deleterandom" => 150,
            // Each thread goes through everything.
            "scan" => 600,
            _ => 300,
        };
        assert_eq!(benchmark["operations"], due, "{benchmark}");
        assert!(benchmark["operations_per_second"].as_f64().unwrap() > 0.0, "{benchmark}");
    }
    let run = &figures["run"];
    let bytes = |field: &str| run[field].as_u64().unwrap();
    assert!(figures["wrong"].is_null() && bytes("user_bytes") > 300 * 116 * 3);
    assert!(run["written_bytes"]["writes"].as_u64() > run["user_bytes"].as_u64(), "{run}");
    assert!(run["written_bytes"]["merges"].is_u64() && run["write_amplification"].as_f64() > Some(1.0), "{run}");
    for name in ["alive", "superseded", "deletions", "hints_and_manifest"] {
        assert!(run["on_disk_bytes"][name].as_u64() > Some(0), "{name}: {run}");
    }
    assert!(bytes("keys") >= 150 && bytes("directory_bytes") > 0 && figures["options"]["kind"] == "cask");
    assert_eq!(place.run("count", NONE).done().text(), format!("{}\n", bytes("keys")));
    place.run("check", NONE).done();
}

#[test]
fn a_later_run_tells_a_cask_by_its_files_and_merges_it() {
    let place = Place::new();
    let fill = ["--kind", "cask", "--num", NUM, "--benchmarks", "fillrandom,overwrite", "--batch", "7"];
    place.run("bench", fill.into_iter().chain(["--compression", "zstd", "--value-size", "2000"])).done();
    let read = ["--num", NUM, "--use-existing", "--benchmarks", "readrandom,compact,scan", "--value-size", "2000"];
    let ran = place.run("bench", read).done();
    for words in ["scan ", "compact ", "merges of ", "key directory", "superseded"] {
        // Once merged, nothing is superseded.
        assert_eq!(ran.text().contains(words), words != "superseded", "{words:?}: {}", ran.text());
    }
    let figures = place.run("bench", read.into_iter().chain(["--json"])).done().json();
    assert_eq!((&figures["benchmarks"][0]["found"], &figures["benchmarks"][2]["found"]), (&300.into(), &300.into()));
    place.run("bench", ["--num", NUM, "--kind", "cask"]).failed(&["--use-existing"]);
    place.run("bench", ["--num", NUM, "--kind", "db", "--use-existing"]).failed(&["a Cask", "--kind"]);
}

#[test]
fn a_wrong_value_in_a_cask_ends_the_run_with_exit_code_1() {
    let place = Place::new();
    place.run("bench", ["--kind", "cask", "--num", NUM, "--benchmarks", "fillrandom"]).done();
    let key = "00000000000000073030303030303030";
    place.run("put", ["--hex", key, "00112233445566778899aabbccddeeff00"]).done();
    let ran = place.run("bench", ["--num", NUM, "--use-existing", "--benchmarks", "scan"]).no();
    assert!(ran.text().contains(&format!("WRONG ANSWER in scan: key 0x{key}")), "{}", ran.text());
}

#[test]
fn the_report_on_a_cask_has_its_causes_and_kinds_of_bytes() {
    let place = Place::new();
    let page = place.path("report.html");
    let arguments = ["--kind", "cask", "--num", NUM, "--benchmarks", "fillrandom,overwrite,scan,compact", "--report"];
    place.run("bench", arguments.into_iter().chain([page.to_str().unwrap()])).done();
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg ").count(), 2 + 3 * 2);
    for words in ["</i>writes", "</i>merges", "</i>alive", "</i>superseded", "key directory", "per user byte"] {
        assert!(page.contains(words), "{words:?}");
    }
    for forbidden in ["<script", "http://", "https://", "NaN", "inf"] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
}

#[test]
fn what_a_cask_has_not_is_refused_by_name_before_a_store_is_made() {
    let place = Place::new();
    for benchmark in ["readseq", "readreverse", "seekrandom", "ycsbe", "flush", "waitforcompaction"] {
        let list = format!("fillrandom,{benchmark}");
        place.run("bench", ["--kind", "cask", "--benchmarks", &list]).failed(&["--benchmarks", benchmark]);
    }
    place.run("bench", ["--kind", "db", "--benchmarks", "fillrandom,scan"]).failed(&["scan", "readseq"]);
    for option in ["--cache-bytes", "--write-buffer-bytes", "--min-blob-size"] {
        place.run("bench", ["--kind", "cask", option, "1MiB"]).failed(&["a Cask has no"]);
    }
    assert!(!place.store().exists());
}

#[test]
fn far_more_keys_than_are_written_are_not_counted() {
    let place = Place::new();
    let huge =
        ["--num", "1000000000000", "--reads", "10", "--seconds", "0.1", "--benchmarks", "fillseq,scankeys", "--json"];
    let figures = place.run("bench", huge).done().json();
    assert_eq!(figures["run"]["live_bytes"], serde_json::Value::Null);
    assert!(figures["benchmarks"][0]["operations"].as_u64() > Some(0), "{figures}");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run_and_takes_no_figures_with_it() {
    let place = Place::new();
    let run = |report: &str| place.run("bench", ["--num", NUM, "--benchmarks", "fillseq", "--report", report]);
    let nowhere = place.path("none/page.html");
    run(nowhere.to_str().unwrap()).failed(&["none/page.html"]);
    assert!(!place.store().exists());
    // Which takes nothing once it is written to.
    let ran = run("/dev/full").failed(&["/dev/full"]);
    assert!(ran.text().contains("fillseq"), "{}", ran.text());
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = Place::new();
    for arguments in [
        ["--benchmarks", "fillseq,dance"],
        ["--num", "0"],
        ["--value-size", "8"],
        ["--key-size", "4"],
        ["--threads", "0"],
        ["--seconds", "never"],
        ["--batch", "0"],
        ["--distribution", "normal"],
    ] {
        place.run("bench", arguments).failed(&[arguments[0]]);
    }
    assert!(!place.store().exists());
}

/// A quick run of everything that a Raft log can do.
const RAFT: [&str; 14] = [
    "--kind",
    "raft",
    "--seconds",
    "0.3",
    "--regions",
    "8",
    "--write-threads",
    "2",
    "--read-threads",
    "1",
    "--write-region-count",
    "3",
    "--compact-count",
    "50",
];

#[test]
fn a_raft_log_is_written_read_purged_and_read_back() {
    let place = Place::new();
    let rest = ["--target-file-size", "16KiB", "--purge-threshold", "32KiB", "--purge-interval", "0.02", "--json"];
    let figures = place.run("bench", RAFT.into_iter().chain(["--write-without-sync"]).chain(rest)).done().json();
    let (write, verify) = (&figures["benchmarks"][0], &figures["benchmarks"][1]);
    assert_eq!((&write["name"], &write["threads"], &verify["name"]), (&"write".into(), &2.into(), &"verify".into()));
    for one in [write, &write["readers"], verify] {
        assert!(one["operations"].as_u64() > Some(0) && one["latency_micros"]["p99"].as_f64() > Some(0.0), "{one}");
    }
    let run = &figures["run"];
    assert_eq!((&figures["wrong"], &verify["operations"]), (&serde_json::Value::Null, &run["entries"]));
    let writes = write["operations"].as_u64().unwrap();
    assert_eq!(run["user_bytes"].as_u64(), Some(writes * 3 * 10 * 1024));
    assert!(run["written_bytes"]["append_queue"].as_u64() > Some(0) && run["purged_files"].as_u64() > Some(0), "{run}");
    // Whoever purges writes batches, too.
    assert!(run["batches"].as_u64() >= Some(writes) && figures["plan"]["sync"] == false, "{figures}");
    assert_eq!((&figures["options"]["file_bytes"], &figures["plan"]["regions"]), (&16384.into(), &8.into()));
}

#[test]
fn a_raft_log_that_is_there_is_used_when_told_to_and_its_entries_are_checked() {
    let place = Place::new();
    let page = place.path("raft.html");
    let run = |more: &[&str]| place.run("bench", RAFT.iter().chain(more));
    run(&["--report", page.to_str().unwrap()]).done();
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg ").count(), 2 + 2 * 2);
    assert!(page.contains("its readers") && page.contains("rewrite queue") && !page.contains("<script"));
    run(&[]).failed(&["--use-existing"]);
    let text = run(&["--use-existing", "--purge-interval", "0"]).done();
    for words in ["write ", "its readers", "verify", "group commit", "append queue", "per user byte"] {
        assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
    }
    // Only reading, of what another seed would have written; with the stress tool's own names.
    let read = ["--reuse-data", "--time", "0.1", "--regions", "8", "--write-threads", "0", "--read-threads", "1"];
    let figures = place.run("bench", read.into_iter().chain(["--json"])).done().json();
    assert_eq!((&figures["benchmarks"][0]["name"], &figures["run"]["batches"]), (&"read".into(), &0.into()));
    let wrong = place.run("bench", read.into_iter().chain(["--seed", "2"])).no();
    assert!(wrong.text().contains("WRONG ANSWER in read: entry "), "{}", wrong.text());
}

#[test]
fn what_was_not_chosen_of_a_raft_log_fits_the_threads() {
    for (write, read, regions, batch) in [("2", "0", 5, 2), ("7", "0", 7, 1), ("1", "6", 6, 5)] {
        let place = Place::new();
        let threads =
            ["--kind", "raft", "--seconds", "0.05", "--write-threads", write, "--read-threads", read, "--json"];
        let figures = place.run("bench", threads).done().json();
        let plan = &figures["plan"];
        assert_eq!((&plan["regions"], &plan["write_region_count"]), (&regions.into(), &batch.into()), "{plan}");
    }
}

#[test]
fn what_means_nothing_to_a_kind_of_store_is_refused_by_name() {
    let place = Place::new();
    let refused: [(&[&str], &str); 10] = [
        (&["--kind", "raft", "--benchmarks", "fillseq"], "--benchmarks"),
        (&["--kind", "raft", "--num", "7"], "--num"),
        (&["--kind", "raft", "--compression", "none"], "--compression"),
        (&["--kind", "raft", "--regions", "3", "--write-threads", "4"], "--regions"),
        (&["--kind", "raft", "--write-threads", "0"], "--read-threads"),
        (&["--kind", "raft", "--use-existing"], "no Raft log"),
        (&["--regions", "3"], "--regions"),
        (&["--kind", "cask", "--recycle", "false"], "--recycle"),
        (&["--kind", "cask", "--events", "events"], "--events"),
        (&["--kind", "raft", "--events", "events"], "--events"),
    ];
    for (arguments, words) in refused {
        place.run("bench", arguments).failed(&[words]);
    }
    assert!(!place.store().exists());
}
