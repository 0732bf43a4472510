//! Damaged files of a Cask: never a panic, never a wrong answer but what is said, and an error that says where.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker::env::sim::{ReadFault, SimDisk};
use esker::{Cask, CaskBatch, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_format::checksum::crc32c;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        background_jobs: 0,
        open_threads: 0,
        stripes: 1,
        file_bytes: 4 << 10,
        merge_garbage_ratio: 1.0,
        ..CaskOptions::default()
    }
}

/// Two sealed files and an open one. Every key is written once, so that damage cannot bring an older value up.
fn store() -> (SimDisk, Contents) {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
    let mut expected = Contents::new();
    for n in 0..24u8 {
        let (key, value) = (vec![b'k', n], vec![n | 1; 300 + usize::from(n)]);
        cask.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
    let mut batch = CaskBatch::new();
    for n in 0..3u8 {
        batch.put([b'b', n], vec![b'b'; 20]).unwrap();
        expected.insert(vec![b'b', n], vec![b'b'; 20]);
    }
    cask.write(&batch, &CaskWriteOptions { sync: true, ttl: None, stripe: None }).unwrap();
    let files = cask.stats();
    assert!(files.sealed_files >= 1 && files.files > files.sealed_files, "{files:?}");
    std::mem::forget(cask);
    (disk.after_process_death(), expected)
}

fn is_typed(error: &esker::Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat | ErrorKind::InvalidArgument)
}

/// Opens, reads everything and checks. Whether somebody noticed, and how many keys are lost.
fn use_damaged(disk: &SimDisk, expected: &Contents, what: &str) -> (bool, usize) {
    let cask = match Cask::open_with_env("/store", options(), disk.env()) {
        Ok(cask) => cask,
        Err(error) => {
            assert!(is_typed(&error) && error.path().is_some(), "{what}: {error}");
            return (true, expected.len());
        }
    };
    let found = cask.recovery();
    let mut noticed = !found.damage.is_empty() || !found.torn_files.is_empty() || !found.bad_hints.is_empty();
    let mut lost = 0;
    for (key, value) in expected {
        match cask.get(key) {
            Ok(Some(found)) => assert!(found == *value, "{what}: a wrong value of {key:?}"),
            Ok(None) => {
                assert!(noticed, "{what}: {key:?} is gone, and nobody says so");
                lost += 1;
            }
            Err(error) => {
                assert!(is_typed(&error) && error.path().is_some(), "{what}: {error}");
                (noticed, lost) = (true, lost + 1);
            }
        }
    }
    let mut scan = cask.scan().unwrap();
    loop {
        match scan.advance() {
            Ok(true) => {
                let key = scan.key().to_vec();
                assert_eq!(scan.value().unwrap(), &expected[&key][..], "{what}: a scan shows a wrong value");
            }
            Ok(false) => break,
            Err(error) => {
                assert!(is_typed(&error), "{what}: {error}");
                noticed = true;
            }
        }
    }
    let check = cask.check(&mut |_| {}).unwrap();
    (noticed || !check.errors.is_empty(), lost)
}

fn files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.file_bytes(&path).unwrap())).collect()
}

/// Goal: no flipped bit in any file makes a panic or a wrong value; each is noticed; and one in a data file costs the record that it
/// lies in, or its batch, and no other.
#[test]
fn a_flipped_bit_costs_one_record_at_most() {
    let (disk, expected) = store();
    assert_eq!(use_damaged(&disk.after_process_death(), &expected, "undamaged"), (false, 0));
    let mut flipped = 0;
    for (path, bytes) in files(&disk) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // The preallocated end of the open file is nobody's.
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
        for byte in (0..used).step_by(if name.ends_with("data") { 3 } else { 1 }) {
            let bit = byte * 8 + (byte * 7 + 3) % 8;
            let damaged = disk.after_process_death();
            damaged.flip_bit(&path, bit);
            let what = format!("bit {bit} of {name} flipped");
            let (noticed, lost) = use_damaged(&damaged, &expected, &what);
            assert!(noticed, "{what}: nobody noticed");
            match name.rsplit_once('.').map(|(_, extension)| extension) {
                Some("hint") => assert_eq!(lost, 0, "{what}: the data is whole"),
                Some("data") => assert!(lost <= 3, "{what}: {lost} keys are lost"),
                _ => {}
            }
            flipped += 1;
        }
    }
    assert!(flipped > 2000, "{flipped}");
}

/// Goal: the same where values are zeroes, as sectors are that a crash has left unwritten: in a file that is known to be durable, since the
/// store was closed; and in one of which nobody says so, in heads and keys: a bit of such a value can be what a crash left there.
#[test]
fn a_flipped_bit_costs_no_more_where_values_are_zeroes() {
    for is_closed in [true, false] {
        let disk = SimDisk::new();
        let options = CaskOptions { file_bytes: 64 << 10, ..options() };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let expected: Contents = (0..6u8).map(|n| (vec![b'k', n], vec![0; 1500])).collect();
        for (key, value) in &expected {
            cask.put(key, value).unwrap();
        }
        if is_closed {
            cask.close().unwrap();
        } else {
            std::mem::forget(cask);
        }
        let disk = disk.after_process_death();
        let path = Path::new("/store/000001.data");
        let records = 32..32 + 6 * 1522u64;
        let tells = |byte: &u64| is_closed || (byte - 32) % 1522 < 22;
        for byte in records.filter(tells).step_by(if is_closed { 11 } else { 1 }) {
            let bit = byte * 8 + (byte * 7 + 3) % 8;
            let damaged = disk.after_process_death();
            assert!(damaged.flip_bit(path, bit));
            let what = format!("bit {bit} of a file flipped, closed {is_closed}");
            let (noticed, lost) = use_damaged(&damaged, &expected, &what);
            assert!(noticed && lost == 1, "{what}: noticed {noticed}, lost {lost}");
        }
    }
}

/// Goal: a missing or short data file is an error of the open; a missing hint costs nothing.
#[test]
fn missing_and_short_files_are_told() {
    let (disk, expected) = store();
    for (path, bytes) in files(&disk) {
        let what = format!("{} is cut", path.display());
        let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
        for len in [0, bytes.len() / 2, bytes.len() - usize::from(!bytes.is_empty())] {
            let damaged = disk.after_process_death();
            damaged.overwrite(&path, bytes[..len].to_vec());
            let (noticed, lost) = use_damaged(&damaged, &expected, &what);
            if extension.as_deref() == Some("hint") {
                assert!(noticed && lost == 0, "{what}");
            }
        }
        let damaged = disk.after_process_death();
        damaged.env().files.remove(&path).unwrap();
        match extension.as_deref() {
            Some("data") => {
                let error = Cask::open_with_env("/store", options(), damaged.env()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            }
            Some("hint") => assert_eq!(use_damaged(&damaged, &expected, &what).1, 0, "{what}"),
            None if path.ends_with("MANIFEST") => {
                let error = Cask::open_with_env("/store", options(), damaged.env()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "not made a new store of: {error}");
            }
            _ => {}
        }
    }
}

/// Goal: a repair brings a store back without its manifest, with nothing lost; and one with damage, with that alone lost and
/// the damaged file put aside.
#[test]
fn a_repair_needs_only_the_data_files() {
    let (disk, expected) = store();
    let bare = disk.after_process_death();
    for path in bare.paths() {
        if path.extension().is_none_or(|extension| extension != "data") {
            bare.env().files.remove(&path).unwrap();
        }
    }
    let report = Cask::repair_with_env("/store", &bare.env()).unwrap();
    assert_eq!((report.records, report.damaged_bytes, report.put_aside.len()), (expected.len() as u64, 0, 0));
    assert_eq!(use_damaged(&bare, &expected, "repaired"), (false, 0));

    let damaged = disk.after_process_death();
    let first = Path::new("/store/000001.data");
    assert!(damaged.flip_bit(first, 8 * 600));
    let report = Cask::repair_with_env("/store", &damaged.env()).unwrap();
    assert_eq!(report.put_aside, [PathBuf::from("/store/000001.damaged")]);
    assert!(report.damaged_bytes > 300 && report.records == expected.len() as u64 - 1, "{report:?}");
    let cask = Cask::open_with_env("/store", options(), damaged.env()).unwrap();
    assert!(cask.recovery().damage.is_empty() && cask.check(&mut |_| {}).unwrap().errors.is_empty());
    let lost: Vec<_> =
        expected.iter().filter(|(key, value)| cask.get(key).unwrap().is_none_or(|v| v != **value)).collect();
    assert_eq!(lost.len(), 1);
    cask.put("goes", "on").unwrap();
}

/// Goal: a repair says which files are gone.
#[test]
fn a_repair_names_the_files_that_are_gone() {
    let disk = store().0.after_process_death();
    let gone = PathBuf::from("/store/000002.data");
    disk.env().files.remove(&gone).unwrap();
    let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
    assert_eq!((report.missing, report.put_aside.len()), (vec![gone], 0));
    assert!(Cask::repair_with_env("/store", &disk.env()).unwrap().missing.is_empty());
}

/// Goal: what a newer version wrote is no damage: neither an open nor a repair touches it; nor a repair whose manifest cannot be read.
#[test]
fn a_newer_version_is_refused_and_left_as_it_is() {
    for (name, crc_at) in [("MANIFEST", None), ("000001.data", Some(28))] {
        let disk = store().0.after_process_death();
        let path = Path::new("/store").join(name);
        let mut raw = disk.file_bytes(&path).unwrap();
        raw[8] = 9;
        let crc_at = crc_at.unwrap_or(raw.len() - 4);
        let crc = crc32c(&raw[..crc_at]);
        raw[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        disk.overwrite(&path, raw);
        let before = files(&disk);
        let refused = [
            Cask::repair_with_env("/store", &disk.env()).map(drop).unwrap_err(),
            Cask::open_with_env("/store", options(), disk.env()).map(drop).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{name}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(files(&disk), before, "{name}");
    }
}

/// Goal: a manifest that cannot be read just now is not lost: a repair does not make another instead, whichever of its reads fails.
#[test]
fn a_repair_forgets_nothing_for_a_read_that_failed() {
    let (disk, expected) = store();
    let id = Cask::open_with_env("/store", options(), disk.after_process_death().env()).unwrap().store_id();
    let mut failures = 0;
    for n in 0..40 {
        let disk = disk.after_process_death();
        disk.fail_read_at(disk.read_count() + n, ReadFault::Eio);
        let repaired = Cask::repair_with_env("/store", &disk.env());
        failures += usize::from(repaired.is_err());
        disk.heal();
        let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
        assert_eq!(cask.store_id(), id, "read {n} failed: {repaired:?}");
        assert_eq!(cask.len(), expected.len() as u64, "read {n} failed");
    }
    assert!(failures > 2, "{failures} of a repair's reads failed");
}

/// Goal: a damaged file is left as it is by a compaction, and told of; all others give back what they can.
#[test]
fn a_damaged_file_keeps_no_other_from_being_merged() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
    for round in 0..2u8 {
        for n in (0..60u8).step_by(1 + usize::from(round)) {
            cask.put([b'k', n], vec![round; 300]).unwrap();
        }
    }
    cask.close().unwrap();
    let disk = disk.after_process_death();
    assert!(disk.flip_bit(Path::new("/store/000001.data"), 8 * 600));
    let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
    let before = cask.stats();
    assert_eq!(cask.compact().unwrap_err().kind(), ErrorKind::Corruption);
    let after = cask.stats();
    assert!(after.dead_bytes < before.dead_bytes && after.dead_bytes > 0, "{before:?}, then {after:?}");
    assert!(disk.paths().contains(&PathBuf::from("/store/000001.data")));
}

/// Goal: a directory of another kind is refused, and left as it is.
#[test]
fn another_kind_of_store_is_refused() {
    let of_a_db = ["CURRENT", "MANIFEST-000005", "000012.sst", "000012.ldb", "000012.blob", "OPTIONS-000007"];
    let others = [("0000000000000001.raftlog", "RaftLog"), ("MANIFEST", "no Cask")];
    for (name, hint) in of_a_db.map(|name| (name, "Db")).into_iter().chain(others) {
        let disk = SimDisk::new();
        disk.overwrite(&Path::new("/store").join(name), b"something".to_vec());
        let before = files(&disk);
        assert!(!Cask::is_store_with_env("/store", &disk.env()).unwrap());
        let error = Cask::open_with_env("/store", options(), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(hint), "{error}");
        assert_eq!(files(&disk), before);
    }
    // Files of nobody that Esker knows: no store is made among them.
    for (name, is_made) in
        [("PEDRODB", false), ("lost+found", true), ("000001.hint", false), ("MANIFEST.new", true), ("LOCK", true)]
    {
        let disk = SimDisk::new();
        disk.overwrite(&Path::new("/store").join(name), b"something".to_vec());
        let before = files(&disk);
        let error = Cask::open_with_env("/store", CaskOptions::default(), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(files(&disk), before);
        let opened = Cask::open_with_env("/store", options(), disk.env());
        assert_eq!(opened.is_ok(), is_made, "{name}");
        if let Err(error) = opened {
            assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(name), "{error}");
            assert_eq!(files(&disk), before);
        }
    }
    let (disk, _) = store();
    assert!(Cask::is_store_with_env("/store", &disk.env()).unwrap());
    assert!(!Cask::is_store_with_env("/nowhere", &disk.env()).unwrap());
    let error = Cask::open_with_env("/nowhere", CaskOptions::default(), disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
