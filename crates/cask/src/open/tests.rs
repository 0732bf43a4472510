use std::path::Path;

use esker_env::sim::SimDisk;
use esker_format::cask::hint::{Block, Builder, Entry, Footer};

use crate::{Cask, CaskOptions, CaskStats, CaskWriteOptions, ErrorKind};

fn options(open_threads: usize) -> CaskOptions {
    let (create_if_missing, background_jobs) = (true, 0);
    CaskOptions {
        create_if_missing,
        background_jobs,
        open_threads,
        file_bytes: 64 << 10,
        stripes: 4,
        merge_garbage_ratio: 1.0,
        ..CaskOptions::default()
    }
}

/// Keys that were written once, several times, and deleted, in many files.
fn fill(cask: &Cask) {
    for n in 0..12_000u32 {
        let key = if n % 3 == 0 { n % 300 } else { n };
        cask.put(key.to_le_bytes(), n.to_le_bytes()).unwrap();
        if n % 7 == 0 {
            cask.delete((n / 2).to_le_bytes()).unwrap();
        }
    }
}

fn contents(cask: &Cask) -> Vec<Option<Vec<u8>>> {
    (0..12_000u32).map(|n| cask.get(n.to_le_bytes()).unwrap().map(|value| value.into_vec())).collect()
}

/// What an open must find again.
fn counts(stats: &CaskStats) -> [u64; 7] {
    let CaskStats { keys, records, bytes, dead_records, dead_bytes, tombstones, .. } = *stats;
    [keys, records, bytes, dead_records, dead_bytes, tombstones, stats.tombstone_bytes]
}

#[test]
fn an_open_finds_keys_and_ledger_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let cask = Cask::open(dir.path(), options(0)).unwrap();
    fill(&cask);
    let (wanted, known) = (contents(&cask), counts(&cask.stats()));
    assert!(wanted.iter().any(Option::is_none) && known[3] > 1000 && cask.stats().sealed_files > 3);
    cask.close().unwrap();
    for open_threads in [0, 1, 5] {
        let cask = Cask::open(dir.path(), options(open_threads)).unwrap();
        assert!(contents(&cask) == wanted, "{open_threads} threads");
        assert_eq!(counts(&cask.stats()), known, "{open_threads} threads");
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        cask.close().unwrap();
    }
}

/// The same hint, its last entry longer than there is room for.
fn spoil_last_entry(path: &Path) {
    let raw = std::fs::read(path).unwrap();
    let footer = Footer::decode(&raw).unwrap();
    let mut blocks = &raw[..footer.block_bytes as usize];
    let (mut builder, mut out, mut count) = (Builder::new(footer.salt), Vec::new(), 0);
    while !blocks.is_empty() {
        let (block, bytes) = Block::decode(blocks, footer.salt).unwrap();
        blocks = &blocks[bytes..];
        for entry in block.entries().map(Result::unwrap) {
            count += 1;
            let more = if count == footer.record_count { 1 } else { 0 };
            builder.add(&Entry { record_bytes: entry.record_bytes + more, ..entry }, &mut out);
        }
    }
    builder.finish(footer.number, footer.data_bytes, &mut out);
    std::fs::write(path, out).unwrap();
}

/// Nothing of it stays behind: a record that came twice would be dead and alive.
#[test]
fn a_hint_that_turns_out_bad_at_its_end_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cask = Cask::open(dir.path(), options(0)).unwrap();
    fill(&cask);
    let (wanted, known) = (contents(&cask), counts(&cask.stats()));
    cask.close().unwrap();
    spoil_last_entry(&dir.path().join("000002.hint"));
    let cask = Cask::open(dir.path(), options(3)).unwrap();
    assert_eq!(cask.recovery().bad_hints, [dir.path().join("000002.hint")]);
    assert!(contents(&cask) == wanted);
    assert_eq!(counts(&cask.stats()), known);
}

/// Goal: a file with something dead in it that nobody writes to is ended, and keeps no deletions any more, though no life of the store is long.
#[test]
fn a_file_that_nobody_writes_to_is_ended_by_an_open() {
    let disk = SimDisk::new();
    let options = CaskOptions { file_bytes: 8 << 10, stripes: 2, merge_garbage_ratio: 0.3, ..options(0) };
    let open = || Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let to = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
    let mut cask = open();
    for value in ["", "behind"] {
        cask.put_with("left", value, &to(0)).unwrap();
    }
    for n in 0..5000u32 {
        cask.put_with(n.to_le_bytes(), "", &to(1)).unwrap();
        cask.delete_with(n.to_le_bytes(), &to(1)).unwrap();
        if n % 200 == 0 {
            cask.close().unwrap();
            cask = open();
        }
    }
    assert!(cask.stats().tombstones < 1000, "{:?}", cask.stats());
    assert_eq!(cask.get("left").unwrap().unwrap(), *b"behind");
}

/// Goal: a dated log of an application's is no store of the ordered engine; a log beside a store's own files is.
#[test]
fn a_dated_log_of_an_application_keeps_no_cask_away() {
    let disk = SimDisk::new();
    disk.overwrite(Path::new("/store/20240101.log"), b"something".to_vec());
    Cask::open_with_env("/store", options(0), disk.env()).unwrap().close().unwrap();
    let disk = SimDisk::new();
    for name in ["000012.log", "IDENTITY"] {
        disk.overwrite(&Path::new("/store").join(name), b"something".to_vec());
    }
    let error = Cask::open_with_env("/store", options(0), disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Goal: a handle in a program's own `Debug`, or in a log of one, is a few words.
#[test]
fn a_handle_shows_its_path_and_not_all_that_is_within() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", options(0), disk.env()).unwrap();
    cask.put("key", "value").unwrap();
    assert_eq!(format!("{cask:?}"), r#"Cask { path: "/store", .. }"#);
}
