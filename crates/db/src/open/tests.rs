//! What open makes of what it finds, seen from within.

mod ranges;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::FileSystem;
use esker_env::metered::RESERVE_BYTES;
use esker_env::sim::{Fault, SimDisk};
use esker_format::compression::Compression;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::version_edit::{VersionEdit, WalAddition};
use esker_log::scan::{RecoveryMode, Scanner};
use esker_log::writer::LogWriter;

use crate::options::{BlobPartition, FamilyOptions, Options, ReclaimMode, Separation};
use crate::table::{TableIdentity, TableOptions, TableWriter};
use crate::version::{TableFile, current_manifest, recover, write_new};
use crate::{Comparator, Db, ErrorKind, WriteOptions};

pub(super) const DIR: &str = "/db";

pub(super) fn options(family: FamilyOptions) -> Options {
    Options {
        create_if_missing: true,
        background_jobs: 0,
        reclaim_mode: ReclaimMode::Manual,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn small() -> FamilyOptions {
    FamilyOptions { write_buffer_bytes: 64 << 10, ..separating() }
}

fn separating() -> FamilyOptions {
    FamilyOptions { min_blob_size: 200, blob_compression: Compression::None, ..FamilyOptions::default() }
}

pub(super) fn open(disk: &SimDisk, options: &Options) -> crate::Result<Db> {
    Db::open_with_env(DIR, options.clone(), disk.env())
}

/// Writes the manifest anew, each edit as `change` leaves it.
pub(crate) fn edit_manifest(disk: &SimDisk, change: impl FnMut(&mut VersionEdit)) {
    rewrite_manifest(disk, |edits| edits.iter_mut().for_each(change));
}

/// Writes the manifest anew, of the edits that `change` leaves.
fn rewrite_manifest(disk: &SimDisk, change: impl FnOnce(&mut Vec<VersionEdit>)) {
    let (files, dir) = (disk.env().files, Path::new(DIR));
    let number = current_manifest(&*files, dir).unwrap();
    let path = dir.join(FileName::Manifest(number).to_string());
    let mut scanner = Scanner::open(&*files, &path, RecoveryMode::AbsoluteConsistency, true, 0).unwrap();
    let mut edits = Vec::new();
    while let Some((_, record)) = scanner.next().unwrap() {
        edits.push(VersionEdit::decode(record).unwrap());
    }
    change(&mut edits);
    write_new(&*files, dir, FileNumber::new(1000), &edits).unwrap();
}

/// Goal: a family that is added where there is one, by id or by name, takes nothing's place: it is damage, and nobody removes the files of the first.
#[test]
fn a_family_that_is_there_is_not_added_again() {
    for (id, name) in [(1, "second"), (1, "third"), (2, "second"), (0, "first"), (2, "default")] {
        let disk = SimDisk::new();
        let options = options(FamilyOptions::default());
        let db = open(&disk, &options).unwrap();
        let family = db.create_column_family("second", FamilyOptions::default()).unwrap();
        db.put_cf(&family, "key", "value", &WriteOptions::default()).unwrap();
        db.close().unwrap();
        rewrite_manifest(&disk, |edits| {
            let added = Some(name.to_owned());
            edits.push(VersionEdit { column_family: id, column_family_add: added, ..VersionEdit::default() });
        });
        let before = disk.paths();
        let error = open(&disk, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{id}, {name}: {error}");
        assert!(error.to_string().contains("adds column family"), "{error}");
        assert_eq!(disk.paths(), before);
    }
}

/// A log of these batches: sequence number, count, operations.
pub(super) fn write_log(disk: &SimDisk, number: u64, batches: &[(u64, u32, &[u8])]) {
    let path = Path::new(DIR).join(FileName::Wal(FileNumber::new(number)).to_string());
    let mut log = LogWriter::new(disk.env().files.create(&path).unwrap());
    for (sequence, count, operations) in batches {
        let raw = [&sequence.to_le_bytes()[..], &count.to_le_bytes(), operations].concat();
        log.append(&[&raw]).unwrap();
    }
    log.sync().unwrap();
}

fn append_to_options(disk: &SimDisk, section: &str, line: &str) {
    let is_options = |path: &&PathBuf| path.to_string_lossy().contains("OPTIONS-");
    let path = disk.paths().iter().filter(is_options).max().unwrap().clone();
    let files = disk.env().files;
    let text = String::from_utf8(files.read(&path).unwrap()).unwrap();
    assert!(text.contains(section), "{text}");
    let text = text.replacen(section, &format!("{section}\n  {line}"), 1);
    files.write_atomically(&path, &path.with_extension("dbtmp"), text.as_bytes()).unwrap();
}

fn bytes_of(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = disk.env().files;
    disk.paths().into_iter().filter_map(|path| Some((path.clone(), files.read(&path).ok()?))).collect()
}

/// Neither way of opening accepts the store, whose error says so, and no byte of it changed.
fn assert_refused(disk: &SimDisk, options: &Options, word: &str) {
    let before = bytes_of(disk);
    let read_only = Db::open_read_only_with_env(DIR, options.clone(), disk.env());
    for opened in [open(disk, options), read_only] {
        let error = opened.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(bytes_of(disk) == before);
}

/// Puts of one letter for one letter.
fn puts(pairs: &[[u8; 2]]) -> Vec<u8> {
    pairs.iter().flat_map(|&[key, value]| [1, 1, key, 1, value]).collect()
}

/// A closed store with a key of its own, and with nothing in its logs.
fn flushed(options: &Options) -> SimDisk {
    let disk = SimDisk::new();
    let db = open(&disk, options).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    disk
}

/// Goal: a transaction that was prepared and waits for its end is in a log that no family needs any more; the store is refused before that log goes.
#[test]
fn a_prepared_transaction_in_a_log_that_was_flushed_is_refused() {
    let options = options(small());
    let disk = flushed(&options);
    // BeginPrepare, a put, EndPrepare of the transaction "t".
    let prepared = [&[9][..], &puts(&[*b"ab"]), &[10, 1, b't']].concat();
    let with = |kept_from: Option<u64>, line: Option<&str>, operations: &[u8]| {
        let disk = disk.after_process_death();
        write_log(&disk, 1, &[(1, 1, operations)]);
        edit_manifest(&disk, |edit| edit.min_log_number_to_keep = kept_from.map(FileNumber::new));
        line.into_iter().for_each(|line| append_to_options(&disk, "[DBOptions]", line));
        disk
    };
    let said = Some("allow_2pc=true");
    let refuses = |disk: &SimDisk| {
        assert_refused(disk, &options, "prepared");
        // A repair would put the log aside as one that nobody needs.
        let before = bytes_of(disk);
        let error = Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
        assert!(error.to_string().contains("prepared"), "{error}");
        assert!(bytes_of(disk) == before);
    };
    refuses(&with(Some(1), said, &prepared));
    refuses(&with(None, said, &prepared));
    let unsaid = with(Some(1), None, &prepared);
    let of_options = |path: &PathBuf| path.to_string_lossy().contains("OPTIONS-");
    for path in unsaid.paths().into_iter().filter(of_options) {
        unsaid.env().files.remove(&path).unwrap();
    }
    refuses(&unsaid);
    // The counterparts: nothing is prepared there, or RocksDB would not read it either.
    let committed = puts(&[*b"ab"]);
    let accepted = [(Some(1), said, &committed), (Some(2), said, &prepared), (Some(1), None, &prepared)];
    for (kept_from, line, operations) in accepted {
        let disk = with(kept_from, line, operations);
        drop(Db::open_read_only_with_env(DIR, options.clone(), disk.env()).unwrap());
        let repaired = disk.after_process_death();
        Db::repair_with_env(DIR, options.clone(), repaired.env()).unwrap();
        for disk in [disk, repaired] {
            let db = open(&disk, &options).unwrap();
            assert_eq!(db.get("a").unwrap(), None);
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        }
    }
}

/// Goal: a store opens or can be repaired, whatever byte of a section's line in its OPTIONS file is rotten: all else says what families there are.
#[test]
fn a_rotten_line_of_a_section_in_the_options_keeps_no_store_from_a_repair() {
    let options = options(small());
    let disk = flushed(&options);
    let of_options = |path: &PathBuf| path.to_string_lossy().contains("OPTIONS-");
    let path = disk.paths().into_iter().rfind(of_options).unwrap();
    let raw = disk.file_bytes(&path).unwrap();
    let text = String::from_utf8(raw.clone()).unwrap();
    let mut start = 0;
    let mut rotten = Vec::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            // As text, another kind of tables is one that Esker lacks.
            let kind = line.strip_prefix("[TableOptions/").map_or(0, |rest| rest.find(' ').unwrap());
            let is_kind = |at: usize| kind > 0 && (14..=14 + kind).contains(&at);
            rotten.extend(
                (0..line.len())
                    .flat_map(|at| [0x80, 0x01].map(|bit| (at, bit)))
                    .filter_map(|(at, bit)| (bit == 0x80 || !is_kind(at)).then_some((start + at, bit))),
            );
        }
        start += line.len();
    }
    assert!(rotten.len() > 100, "{text}");
    for (at, bit) in rotten {
        let disk = disk.after_process_death();
        let mut damaged = raw.clone();
        damaged[at] ^= bit;
        disk.overwrite(&path, damaged);
        let what = format!("bit {bit:#x} of byte {at}");
        let repair = Db::repair_with_env(DIR, options.clone(), disk.env());
        let report = repair.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((report.lost_tables, report.lost_blocks, report.lost_values), (0, 0, 0), "{what}: {report:?}");
        let db = open(&disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{what}");
    }
    // What it says plainly is no damage.
    append_to_options(&disk, "[DBOptions]", "allow_ingest_behind=true");
    let error = Db::repair_with_env(DIR, options, disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
}

/// Goal: `wal_dir` is the store's own directory where it stands for that, however both are written.
#[test]
fn a_relative_directory_of_logs_may_be_that_of_the_store() {
    let room = tempfile::tempdir().unwrap();
    let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let dir = up.join(room.path().strip_prefix("/").unwrap()).join("store");
    let options = options(small());
    let db = Db::open(&dir, options.clone()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let files = |part: &str| {
        let paths = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_string_lossy().contains(part)).collect::<Vec<_>>()
    };
    let lay_out = |wal_dir: &Path| {
        files(".log").iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let path = files("OPTIONS-").into_iter().max().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let kept: String = text.split_inclusive('\n').filter(|line| !line.contains("wal_dir=")).collect();
        let line = format!("[DBOptions]\n  wal_dir={}\n", wal_dir.display());
        std::fs::write(&path, kept.replacen("[DBOptions]\n", &line, 1)).unwrap();
    };
    for wal_dir in [&*dir, &std::path::absolute(&dir).unwrap()] {
        lay_out(wal_dir);
        drop(Db::open_read_only(&dir, options.clone()).unwrap());
        Db::repair(&dir, options.clone()).unwrap();
        lay_out(wal_dir);
        let db = Db::open(&dir, options.clone()).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        db.close().unwrap();
    }
    lay_out(&dir.join("elsewhere"));
    for refused in [Db::open(&dir, options.clone()).map(drop), Db::repair(&dir, options.clone()).map(drop)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let path = files("OPTIONS-").into_iter().max().unwrap();
    let rotten = std::fs::read_to_string(&path).unwrap().replacen("[CFOptions ", "[CFOptionr ", 1);
    std::fs::write(&path, rotten).unwrap();
    let refused = Db::repair(&dir, options).unwrap_err();
    assert!(refused.kind() == ErrorKind::InvalidArgument && refused.to_string().contains("elsewhere"), "{refused}");
}

/// Goal: a manifest says which logs are needed: RocksDB, told to have transactions, would else read every log that lies there.
#[test]
fn a_manifest_says_from_which_log_on_they_are_needed() {
    let options = options(small());
    let disk = flushed(&options);
    let db = open(&disk, &options).unwrap();
    let wal = *db.store().state.lock().wals.keys().next().unwrap();
    let recovered = recover(&*disk.env().files, Path::new(DIR)).unwrap();
    assert_eq!(recovered.log_number_min, wal);
    assert_eq!(recovered.families[&0].log_number, wal);
}

/// Goal: batches whose operations share a number, as write-prepared transactions have them, are refused: the older of two values would win. Those
/// that only ascend, with gaps or none, over several logs or in one, are not.
#[test]
fn batches_that_share_sequence_numbers_are_refused() {
    let options = options(small());
    let disk = flushed(&options);
    let (three, one) = (puts(&[*b"xx", *b"yy", *b"k1"]), puts(&[*b"k2"]));
    // A note takes no number.
    let note = [3, 1, b'n'];
    let with = |next: u64, is_split: bool| {
        let disk = disk.after_process_death();
        let batches: [(u64, u32, &[u8]); 3] = [(100, 3, &three), (103, 0, &note), (next, 1, &one)];
        if is_split {
            write_log(&disk, 1000, &batches[..2]);
            write_log(&disk, 1001, &batches[2..]);
        } else {
            write_log(&disk, 1000, &batches);
        }
        disk
    };
    for is_split in [false, true] {
        for next in [100, 101, 102] {
            assert_refused(&with(next, is_split), &options, "sequence number");
        }
        for next in [103, 110] {
            let db = open(&with(next, is_split), &options).unwrap();
            assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"2"[..]));
        }
    }
}

/// Goal: what RocksDB's options ask of the tree itself, and Esker does not do, is refused whatever the caller chooses for the family.
#[test]
fn stores_whose_options_ask_for_another_tree_are_refused() {
    let options = options(small());
    let disk = flushed(&options);
    let (database, family) = ("[DBOptions]", "[CFOptions \"default\"]");
    let refused = [
        (database, "allow_ingest_behind=true", "behind"),
        (family, "cf_allow_ingest_behind=true", "behind"),
        (family, "compaction_style=kCompactionStyleFIFO", "FIFO"),
        (family, "table_factory=PlainTable", "PlainTable"),
        (family, "table_factory=CuckooTable", "CuckooTable"),
    ];
    for (section, line, word) in refused {
        let disk = disk.after_process_death();
        append_to_options(&disk, section, line);
        assert_refused(&disk, &options, word);
        assert_refused(&disk, &Options { families: BTreeMap::new(), ..options.clone() }, word);
    }
    let accepted = [
        (database, "allow_ingest_behind=false"),
        (family, "compaction_style=kCompactionStyleUniversal"),
        (family, "table_factory=BlockBasedTable"),
        (family, "table_factory=AdaptiveTable"),
    ];
    for (section, line) in accepted {
        let disk = disk.after_process_death();
        append_to_options(&disk, section, line);
        drop(open(&disk, &options).unwrap());
    }
}

/// Goal: tables are compressed as the OPTIONS file says for their level, and for the deepest one.
#[test]
fn each_level_has_the_compression_that_the_store_was_told() {
    let disk = flushed(&options(small()));
    append_to_options(&disk, "[CFOptions \"default\"]", "bottommost_compression=kZSTD");
    append_to_options(&disk, "[CFOptions \"default\"]", "compression_per_level=kSnappyCompression:kLZ4Compression");
    let db = open(&disk, &Options { families: BTreeMap::new(), ..options(small()) }).unwrap();
    let tables = || {
        let version = db.store().family(0).unwrap().view.load().version.clone();
        let of = |(level, table): (usize, &Arc<TableFile>)| (level, table.table.properties().compression.clone());
        version.tables().map(of).collect::<Vec<_>>()
    };
    let default = db.default_column_family();
    db.put("key", "newer").unwrap();
    db.flush().unwrap();
    assert_eq!(tables()[0], (0, "Snappy".to_owned()));
    db.compact_range(&default, None, None).unwrap();
    assert_eq!(tables(), [(6, "ZSTD".to_owned())]);
    db.put("key", "newest").unwrap();
    db.flush().unwrap();
    assert_eq!(tables(), [(0, "Snappy".to_owned()), (6, "ZSTD".to_owned())]);
}

/// Goal: sizes of blob files that cannot be true are refused before anything is reckoned with them; a repair finds the true ones.
#[test]
fn a_manifest_that_says_more_of_a_blob_file_than_it_can_hold_is_refused() {
    let (disk, options) = (SimDisk::new(), options(separating()));
    let db = open(&disk, &options).unwrap();
    db.put("key", [7; 1000]).unwrap();
    db.close().unwrap();
    drop(open(&disk, &options).unwrap());
    let with = |change: fn(u64) -> u64| {
        let image = disk.after_process_death();
        edit_manifest(&image, |edit| {
            for addition in &mut edit.blob_additions {
                addition.total_bytes = change(addition.total_bytes);
            }
        });
        image
    };
    for change in [|_| u64::MAX - 1, |bytes| bytes + 1] {
        let image = with(change);
        let error = open(&image, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let error = Db::open_read_only_with_env(DIR, options.clone(), image.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.path().is_some_and(|path| path.extension().is_some_and(|found| found == "blob")), "{error}");
        Db::repair_with_env(DIR, options.clone(), image.env()).unwrap();
        let db = open(&image, &options).unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), [7; 1000]);
        assert!(db.stats().families[0].blob_live_bytes < 2000);
        assert!(db.check(&mut |_| ()).unwrap().errors.is_empty());
    }
    let db = open(&with(|bytes| bytes), &options).unwrap();
    assert!(db.check(&mut |_| ()).unwrap().errors.is_empty());
}

/// Goal: a table that the manifest puts into another directory, as RocksDB's `db_paths` do, is not left out: a repair refuses what an open does,
/// and leaves it as it was, also where an edit is lost and others say so; the same where none of the tables is there.
#[test]
fn a_repair_refuses_tables_in_other_directories() {
    let (disk, options) = (SimDisk::new(), options(separating()));
    let db = open(&disk, &options).unwrap();
    for key in ["one", "two"] {
        db.put(key, "value").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let is_table = |path: &&PathBuf| path.extension().is_some_and(|found| found == "sst");
    let last = disk.paths().iter().rfind(is_table).cloned().unwrap();
    for how in ["elsewhere", "elsewhere, and rotten", "all elsewhere"] {
        let image = disk.after_process_death();
        edit_manifest(&image, |edit| {
            let is_last = |number| last.ends_with(FileName::Table(number).to_string());
            edit.new_files.iter_mut().for_each(|(_, table)| table.path_id = u32::from(is_last(table.number)));
            if how == "all elsewhere" {
                edit.new_files.iter_mut().for_each(|(_, table)| table.path_id = 0);
            }
        });
        image.remove(&last).unwrap();
        if how == "elsewhere, and rotten" {
            // The first edit.
            assert!(image.flip_bit(&Path::new(DIR).join("MANIFEST-001000"), 8 * 12));
        }
        if how == "all elsewhere" {
            image.paths().iter().filter(is_table).for_each(|path| image.remove(path).unwrap());
        }
        let before = image.op_count();
        let error = Db::repair_with_env(DIR, options.clone(), image.env()).unwrap_err();
        let kind = if how == "all elsewhere" { ErrorKind::NotFound } else { ErrorKind::UnsupportedFormat };
        assert_eq!((error.kind(), image.op_count()), (kind, before), "{how}: {error}");
        if how == "elsewhere" {
            assert_eq!(open(&image, &options).unwrap_err().kind(), ErrorKind::UnsupportedFormat);
        }
    }
}

/// Goal: what RocksDB's manifests say of synced logs counts as what Esker's do, until they say that those logs are deleted; a log of which no
/// synced size is known need not be there.
#[test]
fn logs_that_rocksdb_keeps_account_of_are_looked_for() {
    let disk = SimDisk::new();
    let options = options(FamilyOptions::default());
    let db = open(&disk, &options).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let log = disk.paths().into_iter().find(|path| path.extension().is_some_and(|found| found == "log")).unwrap();
    let bytes = disk.file_bytes(&log).unwrap().len() as u64;
    let is_opened = |synced_bytes: Option<u64>, deleted_before: Option<u64>, is_there: bool| {
        let image = disk.after_process_death();
        edit_manifest(&image, |edit| {
            for log in std::mem::take(&mut edit.durable_logs) {
                assert_eq!(log.bytes, bytes);
                edit.wal_additions = vec![WalAddition { number: log.number, synced_bytes }; 2];
                edit.wal_deletion = deleted_before.map(|more| FileNumber::new(log.number.get() + more));
            }
        });
        if !is_there {
            image.env().files.remove(&log).unwrap();
        }
        match open(&image, &options) {
            Ok(db) => {
                assert_eq!(db.get("key").unwrap().is_some(), is_there);
                true
            }
            Err(error) => {
                assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*log)), "{error}");
                false
            }
        }
    };
    assert!(is_opened(Some(bytes), None, true));
    assert!(is_opened(Some(bytes - 5), None, true));
    assert!(!is_opened(Some(bytes + 20), None, true));
    assert!(!is_opened(Some(bytes), None, false));
    assert!(!is_opened(Some(bytes), Some(0), false));
    assert!(is_opened(Some(bytes), Some(1), false));
    assert!(is_opened(None, None, false));
}

/// Goal: a repair counts what is lost of logs, however much a manifest says that there was, together with records whose values never were there.
#[test]
fn a_repair_counts_lost_bytes_of_logs_up_to_what_a_number_holds() {
    let disk = SimDisk::new();
    let options = options(FamilyOptions { separation: Separation::AtWrite, ..separating() });
    let db = open(&disk, &options).unwrap();
    db.put("key", [7; 100_000]).unwrap();
    let left = disk.after_process_death();
    db.close().unwrap();
    let blob = left.paths().into_iter().find(|path| path.extension().is_some_and(|found| found == "blob")).unwrap();
    let bytes = left.file_bytes(&blob).unwrap();
    left.overwrite(&blob, bytes[..50_000].to_vec());
    let gone = WalAddition { number: FileNumber::new(900), synced_bytes: Some(u64::MAX) };
    edit_manifest(&left, |edit| edit.wal_additions = vec![gone]);
    let report = Db::repair_with_env(DIR, options.clone(), left.env()).unwrap();
    assert_eq!(report.lost_log_bytes, u64::MAX);
    assert_eq!(open(&left, &options).unwrap().get("key").unwrap(), None);
}

/// Goal: what is left out of logs is what was written to them, without the room that they had.
#[test]
fn the_room_of_a_log_is_not_told_as_left_out() {
    for has_more in [false, true] {
        let disk = SimDisk::new();
        let options = options(FamilyOptions { separation: Separation::AtWrite, ..separating() });
        let db = open(&disk, &options).unwrap();
        db.put("key", [7; 100_000]).unwrap();
        db.put("small", "value").unwrap();
        let left = disk.after_process_death();
        db.close().unwrap();
        let find = |extension: &str| {
            left.paths().into_iter().find(|path| path.extension().is_some_and(|found| found == extension)).unwrap()
        };
        let (log, blob) = (find("log"), find("blob"));
        let bytes = left.file_bytes(&blob).unwrap();
        left.overwrite(&blob, bytes[..50_000].to_vec());
        let mut bytes = left.file_bytes(&log).unwrap();
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
        bytes.resize(300_000, 0);
        left.overwrite(&log, bytes.clone());
        if has_more {
            let number = FileName::parse(log.file_name().unwrap().to_str().unwrap()).unwrap().number().unwrap();
            left.overwrite(
                &Path::new(DIR).join(FileName::Wal(FileNumber::new(number.get() + 1)).to_string()),
                vec![0; 200_000],
            );
        }
        let db = open(&left, &options).unwrap();
        let dropped = db.stats().recovery.dropped_bytes;
        assert!(dropped > 0 && dropped <= written, "{dropped} of {written}");
        assert_eq!(db.get("small").unwrap(), None);
    }
}

/// Goal: a store whose last life left more level-0 tables than writers may add to holds them back from the first write on.
#[test]
fn writers_are_held_back_from_the_start_where_level_0_is_full() {
    let family = FamilyOptions {
        level0_compaction_trigger: 2,
        level0_slowdown_trigger: 3,
        level0_stop_trigger: 4,
        ..FamilyOptions::default()
    };
    let disk = SimDisk::new();
    let one_by_one = FamilyOptions { level0_compaction_trigger: 20, ..FamilyOptions::default() };
    let db = open(&disk, &options(one_by_one)).unwrap();
    for n in 0..6u8 {
        db.put([n], "value").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let options = Options { background_jobs: 1, ..options(family) };
    // Without the threads that would do something about it.
    let opened = super::open(Path::new(DIR), options, disk.env()).unwrap();
    assert!(opened.store.is_delayed());
}

/// Goal: a value that is held where it lies keeps its file, and what that takes up is counted, until it is let go.
#[test]
fn a_value_of_a_mapped_file_that_is_held_keeps_it_on_the_disk() {
    let disk = SimDisk::new();
    let options = Options { mmap_reads: true, max_disk_bytes: 64 << 20, ..options(separating()) };
    let db = open(&disk, &options).unwrap();
    db.put("key", [7; 100_000]).unwrap();
    db.flush().unwrap();
    let blobs = || disk.paths().iter().filter(|path| path.extension().is_some_and(|found| found == "blob")).count();
    for is_part in [false, true] {
        db.put("key", [7; 100_000]).unwrap();
        db.flush().unwrap();
        let default = db.default_column_family();
        db.compact_range(&default, None, None).unwrap();
        db.store().trash.purge_again().unwrap();
        assert_eq!(blobs(), 1);
        let held =
            if is_part { db.get_range("key", 10..60_000).unwrap().unwrap() } else { db.get("key").unwrap().unwrap() };
        let used = db.store().room.used();
        db.delete("key").unwrap();
        db.flush().unwrap();
        db.compact_range(&default, None, None).unwrap();
        db.store().trash.purge_again().unwrap();
        assert_eq!(blobs(), 1, "part: {is_part}");
        assert!(db.store().room.used() > used - 100_000);
        let another = held.clone();
        drop(held);
        db.store().trash.purge_again().unwrap();
        assert_eq!(blobs(), 1, "part: {is_part}");
        assert!(another.iter().all(|&byte| byte == 7));
        drop(another);
        db.store().trash.purge_again().unwrap();
        assert_eq!(blobs(), 0, "part: {is_part}");
        assert!(db.store().room.used() < used - 100_000);
    }
}

/// Goal: of files that are mapped, those that are not yet, since they are written to, are read as all others are: values stay in the cache,
/// and scans read ahead. From the flush on values are lent.
#[test]
fn values_of_files_that_are_written_to_are_cached_and_read_ahead_and_lent_after_the_flush() {
    const VALUES: u64 = 32;
    let disk = SimDisk::new();
    let family = FamilyOptions { separation: Separation::AtWrite, ..separating() };
    let db = open(&disk, &Options { mmap_reads: true, ..options(family) }).unwrap();
    for key in 0..VALUES as u8 {
        db.put([key], [key; 8 << 10]).unwrap();
    }
    let scan = || {
        let mut entries = db.iter().unwrap();
        entries.seek_to_first().unwrap();
        let mut values = Vec::new();
        while entries.valid() {
            values.push(entries.value().unwrap());
            entries.next().unwrap();
        }
        assert!(values.iter().zip(0..).all(|(value, key)| **value == [key; 8 << 10]));
        values
    };
    let before = db.stats().blob_read_calls;
    assert_eq!(scan().len() as u64, VALUES);
    let calls = db.stats().blob_read_calls - before;
    assert!(calls <= VALUES / 2, "{calls} reads");
    let get = || db.get([7]).unwrap().unwrap();
    let (before, first) = (db.stats().blob_reads, get());
    assert_eq!(get().as_ptr(), first.as_ptr(), "the cache has it");
    assert_eq!(db.stats().blob_reads - before, 1);

    db.flush().unwrap();
    let mapped = get();
    assert_eq!(*mapped, *first);
    assert_ne!(mapped.as_ptr(), first.as_ptr());
    for _ in 0..2 {
        assert_eq!(get().as_ptr(), mapped.as_ptr(), "it is where it was");
        assert_eq!(scan()[7].as_ptr(), mapped.as_ptr());
        // Of these the cache has none.
        let many = db.multi_get([[8], [9]]).unwrap();
        let lent = db.get([9]).unwrap().unwrap();
        assert_eq!(many[1].as_ref().unwrap().as_ref().unwrap().as_ptr(), lent.as_ptr());
    }
}

/// Goal: a value that was written to its file as it came, and is lent from it, keeps the file as any other does.
#[test]
fn a_value_that_is_lent_from_a_file_of_this_session_keeps_it() {
    let disk = SimDisk::new();
    let family = FamilyOptions { separation: Separation::AtWrite, ..separating() };
    let db = open(&disk, &Options { mmap_reads: true, ..options(family) }).unwrap();
    let blobs = || disk.paths().iter().filter(|path| path.extension().is_some_and(|found| found == "blob")).count();
    db.put("key", [7; 100_000]).unwrap();
    db.flush().unwrap();
    let held = db.get("key").unwrap().unwrap();
    db.delete("key").unwrap();
    db.flush().unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.store().trash.purge_again().unwrap();
    assert_eq!(blobs(), 1);
    assert!(held.iter().all(|&byte| byte == 7));
    drop(held);
    db.store().trash.purge_again().unwrap();
    assert_eq!(blobs(), 0);
}

/// Goal: values of RocksDB's stacked BlobDB, which no manifest names, are refused by name and in every way, and left as they are.
#[test]
fn a_store_of_the_stacked_blobdb_is_refused() {
    let options = options(small());
    let disk = flushed(&options);
    let dir = Path::new(DIR).join("blob_dir");
    disk.env().files.create_dir_all(&dir).unwrap();
    disk.overwrite(&dir.join("LOG"), b"a diary".to_vec());
    open(&disk, &options).unwrap().close().unwrap();
    disk.overwrite(&dir.join("000012.blob"), b"values".to_vec());
    assert_refused(&disk, &options, "stacked BlobDB");
    let before = bytes_of(&disk);
    let error = Db::repair_with_env(DIR, options, disk.env()).unwrap_err();
    assert!(error.kind() == ErrorKind::UnsupportedFormat && error.to_string().contains("blob_dir"), "{error}");
    assert!(bytes_of(&disk) == before);
}

/// Nobody makes anything of the directory: neither an open, for whatever, nor a repair; the error says so, and no byte of it changed.
fn assert_foreign(disk: &SimDisk, options: &Options, word: &str) {
    assert_refused(disk, &Options { create_if_missing: false, ..options.clone() }, word);
    assert_refused(disk, options, word);
    let before = bytes_of(disk);
    let error = Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
    assert!(error.to_string().contains(word), "{error}");
    assert!(bytes_of(disk) == before);
}

/// A pointer of Titan's to 40 bytes of its file 10.
const TITAN_POINTER: &[u8] = b"\x01\x0a\x4e\x28";

/// Puts a table with a pointer of Titan's in the place of the store's only one. With its `property`, as Titan writes them all.
fn with_titan_table(options: &Options, property: bool) -> (SimDisk, PathBuf) {
    let disk = flushed(options);
    let path = disk.paths().into_iter().find(|path| path.extension().is_some_and(|found| found == "sst")).unwrap();
    let number = FileName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap().number().unwrap();
    let files = disk.env().files;
    files.remove(&path).unwrap();
    let mut writer =
        TableWriter::create(&*files, &path, number, &TableOptions::default(), &TableIdentity::default()).unwrap();
    let mut key = Vec::new();
    internal_key::append(&mut key, b"key", SequenceNumber::new(1), ValueKind::BlobIndex);
    writer.add(&key, TITAN_POINTER).unwrap();
    if property {
        writer.set_user_property("TitanDB.blob_discardable_size", vec![1, 10, 40]);
    }
    writer.finish().unwrap();
    let file_bytes = files.metadata(&path).unwrap().len;
    edit_manifest(&disk, |edit| {
        for (_, meta) in &mut edit.new_files {
            (meta.file_bytes, meta.unique_id) = (file_bytes, None);
            (meta.smallest, meta.largest) = (key.clone(), key.clone());
        }
    });
    (disk, path)
}

/// Goal: a store of Titan's is refused by name and in every way, be its directory another than the default one.
#[test]
fn a_store_of_titans_is_refused() {
    let options = options(small());
    let disk = flushed(&options);
    let dir = Path::new(DIR).join("titandb");
    disk.overwrite(&dir.join("LOCK"), Vec::new());
    open(&disk, &options).unwrap().close().unwrap();
    disk.overwrite(&dir.join("MANIFEST-000001"), b"edits".to_vec());
    assert_foreign(&disk, &options, "Titan");
    disk.env().files.remove(&dir.join("MANIFEST-000001")).unwrap();
    disk.overwrite(&dir.join("CURRENT"), b"MANIFEST-000001\n".to_vec());
    assert_foreign(&disk, &options, "Titan");
    // A store of its own.
    disk.overwrite(&dir.join("OPTIONS-000003"), b"[Version]".to_vec());
    open(&disk, &options).unwrap().close().unwrap();

    let (disk, path) = with_titan_table(&options, true);
    assert_foreign(&disk, &options, "Titan");
    // Without a manifest, too.
    let files = disk.env().files;
    files.remove(&Path::new(DIR).join("CURRENT")).unwrap();
    let manifests = disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("MANIFEST-"));
    manifests.for_each(|path| files.remove(&path).unwrap());
    let refuses_repair = |disk: &SimDisk| {
        let before = bytes_of(disk);
        let error = Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap_err();
        assert!(error.kind() == ErrorKind::UnsupportedFormat && error.to_string().contains("Titan"), "{error}");
        assert!(bytes_of(disk) == before);
    };
    refuses_repair(&disk);
    // Nor is what is left of a damaged one salvaged.
    let (disk, path) = (with_titan_table(&options, false).0, path);
    let mut bytes = disk.file_bytes(&path).unwrap();
    let name = bytes.windows(26).position(|window| window == b"leveldb.BytewiseComparator").unwrap();
    bytes[name] ^= 1;
    disk.overwrite(&path, bytes);
    refuses_repair(&disk);
}

/// Goal: a manifest that says another order than the tables have, as RocksDB's own repair leaves it, is damage; a repair goes by the tables.
#[test]
fn a_table_in_another_order_than_its_familys_is_damage() {
    let disk = SimDisk::new();
    let reversed = FamilyOptions { comparator: &crate::ReverseBytewiseComparator, ..small() };
    let db = open(&disk, &options(reversed)).unwrap();
    ["a", "c", "b"].iter().for_each(|key| db.put(key, "value").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    edit_manifest(&disk, |edit| {
        if let Some(name) = &mut edit.comparator {
            *name = crate::BytewiseComparator.name().to_owned();
        }
    });
    let unnamed = Options { families: BTreeMap::new(), ..options(small()) };
    let error = open(&disk, &unnamed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("Reverse") && error.path().unwrap().extension().unwrap() == "sst", "{error}");
    Db::repair_with_env(DIR, unnamed.clone(), disk.env()).unwrap();
    let db = open(&disk, &unnamed).unwrap();
    let keys: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [b"c", b"b", b"a"]);
    assert!(db.check(&mut |_| ()).unwrap().errors.is_empty());
}

/// Goal: a pointer of Titan's that is met in a table is nothing that is damaged, nor is one in a log.
#[test]
fn pointers_of_titans_are_unsupported_where_they_are_met() {
    let options = options(small());
    let (disk, _) = with_titan_table(&options, false);
    let refuses_repair = |disk: &SimDisk| {
        let before = bytes_of(disk);
        let error = Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap_err();
        assert!(error.kind() == ErrorKind::UnsupportedFormat && error.to_string().contains("Titan"), "{error}");
        assert!(bytes_of(disk) == before);
    };
    refuses_repair(&disk);
    let db = open(&disk, &options).unwrap();
    let is_refused =
        |error: &crate::Error| error.kind() == ErrorKind::UnsupportedFormat && error.to_string().contains("Titan");
    assert!(is_refused(&db.get("key").unwrap_err()));
    assert!(is_refused(&db.value_len("key").unwrap_err()));
    let mut iterator = db.iter().unwrap();
    let scanned = iterator.seek_to_first().and_then(|()| iterator.value().map(drop));
    assert!(is_refused(&scanned.unwrap_err()));
    let check = db.check(&mut |_| ()).unwrap();
    assert!(check.unsupported.iter().any(is_refused) && check.errors.is_empty(), "{check:?}");
    let compacted = db.compact_range(&db.default_column_family(), None, None);
    assert!(is_refused(&compacted.unwrap_err()));
    drop(db);

    // A batch of one pointer, of kind 0x11.
    let disk = flushed(&options);
    let log = 1 + disk
        .paths()
        .iter()
        .filter_map(|path| FileName::parse(path.file_name()?.to_str()?)?.number())
        .map(FileNumber::get)
        .max()
        .unwrap();
    write_log(&disk, log, &[(100, 1, &[&[0x11, 1, b'a', 4], TITAN_POINTER].concat())]);
    assert_foreign(&disk, &options, "Titan");
}

/// Goal: a store of Badger's, or of a newer Pebble, is refused by name and in every way, whichever of its files is there.
#[test]
fn stores_of_other_engines_are_refused() {
    let options = options(small());
    let badger = [("MANIFEST", &b"Bdgr\0\0\0\x08"[..]), ("KEYREGISTRY", b"keys"), ("000001.vlog", b"values")];
    let pebble = [("marker.manifest.000002.MANIFEST-000005", &b""[..]), ("marker.format-version.000001.013", b"")];
    let all = badger.map(|file| (file, "Badger")).into_iter().chain(pebble.map(|file| (file, "Pebble")));
    for ((name, bytes), word) in all {
        for beside in [None, Some("000001.sst"), Some("000003.log"), Some("MANIFEST-000005")] {
            let disk = SimDisk::new();
            for name in beside.into_iter().chain(["LOCK"]) {
                disk.overwrite(&Path::new(DIR).join(name), b"something else than what the name says".repeat(10));
            }
            disk.overwrite(&Path::new(DIR).join(name), bytes.to_vec());
            assert_foreign(&disk, &options, word);
        }
    }
    // What only looks like theirs is in nobody's way.
    let disk = flushed(&options);
    for name in ["MANIFEST", "my.vlog", "marker.txt", "marker.a.b.c"] {
        disk.overwrite(&Path::new(DIR).join(name), b"notes".to_vec());
    }
    open(&disk, &options).unwrap().close().unwrap();
    Db::repair_with_env(DIR, options, disk.env()).unwrap();
}

/// Goal: a repair makes no store of files that nothing but their names says are one's; and keeps what is whole where anything else does.
#[test]
fn a_repair_asks_for_more_than_names() {
    let options = options(small());
    let garbage = b"something else than what the name says".repeat(10);
    let strangers = || {
        let disk = SimDisk::new();
        for name in ["000001.sst", "000002.ldb", "000003.blob", "000004.log", "LOCK", "LOG", "readme"] {
            disk.overwrite(&Path::new(DIR).join(name), garbage.clone());
        }
        disk
    };
    let disk = strangers();
    let before = bytes_of(&disk);
    let error = Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("000001.sst"), "{error}");
    assert!(bytes_of(&disk) == before);

    // Of a store with a table, a blob file and a log, each file alone says what it is.
    let whole = SimDisk::new();
    let db = open(&whole, &options).unwrap();
    db.put("large", vec![1; 1000]).unwrap();
    db.flush().unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let mut kinds = std::collections::HashSet::new();
    for path in whole.paths() {
        let Some(name) = path.file_name().and_then(|name| FileName::parse(name.to_str()?)) else { continue };
        if matches!(name, FileName::Lock) {
            continue;
        }
        let disk = strangers();
        disk.overwrite(&Path::new(DIR).join(name.to_string()), whole.file_bytes(&path).unwrap());
        let repaired = Db::repair_with_env(DIR, options.clone(), disk.env());
        let is_lone_manifest = matches!(name, FileName::Manifest(_) | FileName::Current);
        assert!(repaired.is_ok() || is_lone_manifest, "{name}: {repaired:?}");
        assert!(!repaired.is_err_and(|error| error.kind() == ErrorKind::InvalidArgument), "{name}");
        kinds.insert(std::mem::discriminant(&name));
    }
    assert!(kinds.len() >= 6, "{:?}", whole.paths());
}

/// Goal: a store of its own in a directory of that name is in nobody's way, nor is one that lost its CURRENT.
#[test]
fn a_store_beside_another_is_not_taken_for_stacked_blobs() {
    let options = options(separating());
    let disk = SimDisk::new();
    open(&disk, &options).unwrap().close().unwrap();
    let inner = Path::new(DIR).join("blob_dir");
    let db = Db::open_with_env(&inner, options.clone(), disk.env()).unwrap();
    db.put("key", vec![1; 1000]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let has_blob = |path: &PathBuf| path.starts_with(&inner) && path.extension().is_some_and(|end| end == "blob");
    assert!(disk.paths().iter().any(has_blob));
    open(&disk, &options).unwrap().close().unwrap();
    disk.env().files.remove(&inner.join("CURRENT")).unwrap();
    open(&disk, &options).unwrap().close().unwrap();
}

/// Goal: a backup does without no blob file that a table points into, whatever the manifest says.
#[test]
fn a_backup_misses_blob_files_that_the_manifest_has_lost() {
    let options = options(separating());
    let disk = SimDisk::new();
    let db = open(&disk, &options).unwrap();
    db.put("key", vec![1; 1000]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    edit_manifest(&disk, |edit| edit.blob_additions.clear());
    let db = open(&disk, &options).unwrap();
    let error = db.backup("/backup", &mut |_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("blob file"), "{error}");
    assert!(!disk.paths().contains(&PathBuf::from("/backup/CURRENT")));
}

/// Goal: a damaged manifest is not said to be passed over by a recovery mode, which is for logs.
#[test]
fn a_damaged_manifest_is_to_be_restored_or_repaired() {
    let options = options(small());
    let disk = flushed(&options);
    let dir = Path::new(DIR);
    let number = current_manifest(&*disk.env().files, dir).unwrap();
    let path = dir.join(FileName::Manifest(number).to_string());
    let mut bytes = disk.file_bytes(&path).unwrap();
    // In the payload of its first record.
    bytes[9] ^= 1;
    disk.overwrite(&path, bytes);
    let error = open(&disk, &options).unwrap_err().to_string();
    assert!(error.contains("the manifest is damaged") && error.contains("repair"), "{error}");
    assert!(!error.contains("SkipCorrupt") && !error.contains("log"), "{error}");
}

/// What a process left that died with 200 KB in its log, a few values of it in a blob file.
fn with_a_full_log(separation: Separation) -> SimDisk {
    let disk = SimDisk::new();
    let db = open(&disk, &options(FamilyOptions { separation, write_buffer_bytes: 1 << 20, ..separating() })).unwrap();
    db.put("flushed", vec![0; 1000]).unwrap();
    db.flush().unwrap();
    for n in 0..100u8 {
        db.put([n, 0], vec![n; 199]).unwrap();
        db.put([n, 1], vec![n; 2000]).unwrap();
    }
    // Before it closes.
    disk.after_process_death()
}

fn assert_has_all(db: &Db) {
    assert!((0..100u8).all(|n| db.get([n, 0]).unwrap().as_deref() == Some(&[n; 199][..])));
    assert!((0..100u8).all(|n| db.get([n, 1]).unwrap().as_deref() == Some(&[n; 2000][..])));
}

/// The operation by which an open of `disk` makes its manifest the current one.
fn turning_point(disk: &SimDisk, options: &Options) -> u64 {
    let disk = disk.after_process_death();
    disk.set_tracing(true);
    drop(open(&disk, options).unwrap());
    let trace = disk.trace();
    let turns = |line: &&String| line.contains(" rename ") && line.contains("CURRENT");
    trace.iter().find(turns).unwrap().split(' ').next().unwrap().parse().unwrap()
}

fn allocated(disk: &SimDisk) -> u64 {
    let files = disk.env().files;
    disk.paths().iter().map(|path| files.metadata(path).unwrap().allocated).sum()
}

/// Goal: an open that fails leaves nothing behind, whichever call fails before CURRENT is replaced.
#[test]
fn an_open_that_fails_takes_away_what_it_wrote() {
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let crashed = with_a_full_log(separation);
        let options = options(FamilyOptions { separation, ..small() });
        let turn = turning_point(&crashed, &options);
        let mut failed = 0;
        for n in 0..=turn {
            let disk = crashed.after_process_death();
            let before = disk.paths();
            disk.fail_at(n, Fault::Eio);
            if open(&disk, &options).is_ok() {
                continue;
            }
            failed += 1;
            // Not a warning of a sync that failed.
            let left: Vec<_> = disk.paths().into_iter().filter(|path| !path.ends_with("SYNC-FAILED")).collect();
            assert_eq!(left, before, "{separation:?}, operation {n}");
            assert_has_all(&open(&disk, &options).unwrap());
        }
        assert!(failed > 10, "{failed}");
    }
}

/// Goal: whoever kills every open on its way finds no more on the disk after the tenth than after the first; a limit with room for one attempt
/// has room for the next.
#[test]
fn opens_that_are_killed_do_not_fill_the_disk() {
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let mut disk = with_a_full_log(separation);
        let mut options = options(FamilyOptions { separation, ..small() });
        let turn = turning_point(&disk, &options);
        let mut most = None;
        for attempt in 0..10 {
            // The removal of what is there takes a few, too.
            let n = turning_point(&disk, &options);
            assert!(n >= turn);
            disk.die_after(n);
            open(&disk, &options).map(drop).unwrap_err();
            disk = disk.after_process_death();
            let used = *most.get_or_insert(allocated(&disk));
            assert!(allocated(&disk) <= used, "{separation:?}, attempt {attempt}");
            options.max_disk_bytes = used + RESERVE_BYTES + (64 << 10);
        }
        let db = open(&disk, &options).unwrap();
        assert_has_all(&db);
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}

/// Goal: of three logs the power took the one in the middle: what the last one holds is left out, also after an open that was killed or failed at any
/// moment, which takes nothing away that a log leads to.
#[test]
fn a_killed_open_leaves_a_log_that_others_miss() {
    let by_key = BlobPartition::new(|key, _| key[0]);
    let at_write = FamilyOptions { separation: Separation::AtWrite, blob_partition: Some(by_key), ..small() };
    let mut options = options(small());
    options.families.insert("second".to_owned(), at_write.clone());
    let disk = SimDisk::new();
    let db = open(&disk, &options).unwrap();
    let second = db.create_column_family("second", at_write).unwrap();
    let manifest = Path::new(DIR)
        .join(FileName::Manifest(current_manifest(&*disk.env().files, DIR.as_ref()).unwrap()).to_string());
    let before = disk.file_bytes(&manifest).unwrap();
    let mut logs = Vec::new();
    for n in 0..3u8 {
        logs.push(*db.store().state.lock().wals.keys().next_back().unwrap());
        // Into a file of its own.
        db.put_cf(&second, [n], vec![n; 3000], &WriteOptions::default()).unwrap();
        if n < 2 {
            db.put([n], [n]).unwrap();
            // Nobody flushes it, which would make the log durable.
            db.store().alone(|lead| db.store().rotate(lead, &[0])).unwrap();
        }
    }
    let image = disk.after_process_death();
    drop(db);
    // Nothing of the second log got onto the disk.
    assert!(image.file_bytes(&manifest).unwrap() == before);
    let middle = Path::new(DIR).join(FileName::Wal(logs[1]).to_string());
    image.overwrite(&middle, vec![0; image.file_bytes(&middle).unwrap().len()]);
    let blobs = |disk: &SimDisk| -> BTreeSet<PathBuf> {
        disk.paths().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "blob")).collect()
    };
    // All but that of the log that is gone.
    let named: BTreeSet<PathBuf> =
        blobs(&image).into_iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, path)| path).collect();
    assert_eq!(named.len(), 2);
    let has = |db: &Db| {
        let second = db.column_family("second").unwrap();
        let has = |n: u8| db.get_cf(&second, [n], &crate::ReadOptions::default()).unwrap().is_some();
        [0, 1, 2].map(has)
    };
    let mut count = 0;
    for (n, fails) in (0..).flat_map(|n| [(n, false), (n, true)]) {
        let disk = image.after_process_death();
        if fails {
            disk.fail_at(n, Fault::NoSpace);
        } else {
            disk.die_after(n);
        }
        let opened = open(&disk, &options).is_ok();
        if opened && disk.op_count() <= n {
            break;
        }
        let after = disk.after_process_death();
        if !opened
            && current_manifest(&*after.env().files, DIR.as_ref()).unwrap()
                == current_manifest(&*image.env().files, DIR.as_ref()).unwrap()
        {
            assert!(blobs(&after).is_superset(&named), "operation {n}");
            count += 1;
        }
        assert_eq!(has(&open(&after, &options).unwrap()), [true, false, false], "operation {n}, {fails}");
    }
    assert!(count > 10, "{count}");
}

/// Goal: a manifest with damage in its midst is no older store: what its other edits name stays.
#[test]
fn a_manifest_is_not_opened_without_an_edit_that_others_follow() {
    let options = options(small());
    let disk = SimDisk::new();
    let db = open(&disk, &options).unwrap();
    let number = current_manifest(&*disk.env().files, Path::new(DIR)).unwrap();
    let path = Path::new(DIR).join(FileName::Manifest(number).to_string());
    let mut ends = Vec::new();
    for n in 1..=3u8 {
        let mut key = [0; 2048];
        key[0] = n;
        db.put(key, [n]).unwrap();
        db.flush().unwrap();
        ends.push(disk.file_bytes(&path).unwrap().len());
    }
    let crashed = disk.after_process_death();
    drop(db);
    let at = ends[0];
    for n in 0..3 {
        let disk = crashed.after_process_death();
        let mut bytes = disk.file_bytes(&path).unwrap();
        // The second flush's edit: a bit of its first key, the type of its fragment, its first sectors.
        match n {
            0 => bytes[at + 200] ^= 1,
            1 => bytes[at + 6] ^= 4,
            _ => bytes[at..at.next_multiple_of(512) + 512].fill(0),
        }
        disk.overwrite(&path, bytes);
        let before = bytes_of(&disk);
        let error = open(&disk, &options).map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("repair"), "{n}: {error}");
        assert!(bytes_of(&disk) == before, "{n}");
        Db::repair_with_env(DIR, options.clone(), disk.env()).unwrap();
        let db = open(&disk, &options).unwrap();
        for n in 1..=3u8 {
            let mut key = [0; 2048];
            key[0] = n;
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&[n][..]));
        }
    }
}

/// Goal: who opens the wrong directory is told what is there, not to make a store of it.
#[test]
fn directories_of_other_engines_are_refused_by_name() {
    for (names, told) in [
        (["LOCK", "MANIFEST"], "there is a Cask"),
        (["RESERVE", "000022.data"], "there is a Cask"),
        (["LOCK", "0000000000000001.raftlog"], "there is a Raft log"),
        (["LOCK", "0000000000000003.rewrite"], "there is a Raft log"),
    ] {
        let disk = SimDisk::new();
        names.iter().for_each(|name| disk.overwrite(&Path::new(DIR).join(name), b"something".to_vec()));
        let existing = Options { create_if_missing: false, ..options(small()) };
        let read_only = Db::open_read_only_with_env(DIR, existing.clone(), disk.env());
        for opened in [open(&disk, &options(small())), open(&disk, &existing), read_only] {
            let error = opened.unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(told), "{error}");
        }
    }
}

/// Goal: families that are named are made where they are missing, and only there, and only if that is asked for; an open that dies amid is made up for.
#[test]
fn missing_families_are_created_where_that_is_asked_for() {
    let plain = options(separating());
    let mut named = plain.clone();
    let family = |n: u64| FamilyOptions { min_blob_size: n, ..separating() };
    named.families.extend([("a".to_owned(), family(301)), ("b".to_owned(), family(302))]);
    let asking = Options { create_missing_column_families: true, ..named.clone() };
    let found = |db: &Db| {
        let families = db.column_families();
        families.iter().map(|family| (family.name().to_owned(), family.options().min_blob_size)).collect::<Vec<_>>()
    };
    let all = [("default".to_owned(), 200), ("a".to_owned(), 301), ("b".to_owned(), 302)];
    let disk = SimDisk::new();
    assert_eq!(found(&open(&disk, &named).unwrap()), all[..1]);
    for n in 0.. {
        let dying = disk.after_process_death();
        dying.die_after(n);
        let died = open(&dying, &asking).is_err();
        let after = dying.after_process_death();
        let known = found(&open(&after, &plain).unwrap());
        assert!(all.starts_with(&known) && (died || known == all), "operation {n}: {known:?}");
        let db = open(&after, &asking).unwrap();
        assert_eq!(found(&db), all, "operation {n}");
        db.put_cf(&db.column_family("b").unwrap(), "key", "value", &WriteOptions::default()).unwrap();
        db.close().unwrap();
        let db = open(&after, &asking).unwrap();
        assert_eq!(found(&db), all);
        assert!(db.get_cf(&db.column_family("b").unwrap(), "key", &Default::default()).unwrap().is_some());
        let reader = Db::open_read_only_with_env(DIR, asking.clone(), after.env()).unwrap();
        assert_eq!(found(&reader), all);
        if !died {
            break;
        }
    }
    let reader = Db::open_read_only_with_env(DIR, asking, disk.env()).unwrap();
    assert_eq!(found(&reader), all[..1]);
}

/// Goal: a handle in a program's own `Debug`, or in a log of one, is a few words.
#[test]
fn handles_show_what_they_are_of_and_not_all_that_is_within() {
    let disk = SimDisk::new();
    let db = open(&disk, &options(small())).unwrap();
    db.put("key", "value").unwrap();
    assert_eq!(format!("{db:?}"), r#"Db { path: "/db", .. }"#);
    assert_eq!(format!("{:?}", db.default_column_family()), r#"ColumnFamily { name: "default", id: 0, .. }"#);
    assert_eq!(format!("{:?}", db.snapshot()), "Snapshot { sequence: 1, .. }");
}
