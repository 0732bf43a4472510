//! Repairs of a Cask: what they may not lose, nor bring back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker::env::Env;
use esker::env::sim::{Fault, SeededEntropy, SimDisk, Survivors};
use esker::{Cask, CaskCheck, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_format::cask::record::VERSION_MAX;
use esker_format::checksum::crc32c;
use esker_torture::hooked::Meanwhile;

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

fn open(disk: &SimDisk) -> Cask {
    Cask::open_with_env("/store", options(), disk.env()).unwrap()
}

/// All that lives.
fn contents(cask: &Cask) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut scan, mut found) = (cask.scan().unwrap(), BTreeMap::new());
    while scan.advance().unwrap() {
        found.insert(scan.key().to_vec(), scan.value().unwrap().to_vec());
    }
    for (key, value) in &found {
        assert!(cask.get(key).unwrap().is_some_and(|got| *got == value[..]), "{key:?}");
    }
    found
}

/// Goal: a repair takes in what the owner of the store wrote until it gave up the lock, however late.
/// Method: it goes on to other files and closes just before the repair takes the lock.
#[test]
fn a_repair_knows_what_was_written_until_it_had_the_lock() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put([0], [0; 300]).unwrap();
    let meanwhile = Meanwhile::default();
    meanwhile.before(
        move |call| call.path().ends_with("LOCK"),
        move || {
            for n in 1..60u8 {
                cask.put([n], [n; 300]).unwrap();
            }
            assert!(cask.stats().files > 3, "{:?}", cask.stats());
            cask.close().unwrap();
        },
    );
    let report = Cask::repair_with_env("/store", &meanwhile.env(&disk)).unwrap();
    assert!(meanwhile.is_done());
    assert_eq!((report.records, report.missing.len()), (60, 0), "{report:?}");
    let cask = open(&disk);
    for n in 0..60u8 {
        assert!(cask.get([n]).unwrap().is_some_and(|value| *value == [n; 300]), "{n}");
    }
}

/// Goal: what a repair keeps is durable when it ends, though who wrote it died before it had synced it, or was told that the sync failed.
/// Method: the owner dies after each of its operations, or is told so of each sync; with its manifest and without; the power goes right
/// after the repair.
#[test]
fn what_a_repair_of_a_cask_keeps_survives_a_power_loss() {
    let life = |disk: &SimDisk| {
        let Ok(cask) = Cask::open_with_env("/store", options(), disk.env()) else { return };
        for n in 0..40u8 {
            // Every third key has an older value that is durable. After a failure nothing is promised; what is there counts.
            let how = CaskWriteOptions { sync: n < 8, ..CaskWriteOptions::default() };
            let _ = cask.put_with([n % 16], vec![n; 320], &how);
            let _ = if n == 30 { cask.sync() } else { Ok(()) };
        }
        std::mem::forget(cask);
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    life(&healthy);
    let trace = healthy.trace();
    let is_sync = |n: u64| {
        let words: Vec<_> = trace[n as usize].split(' ').collect();
        words[0] == n.to_string() && words[1] == "sync" && words[2].contains(".data")
    };
    let (mut repaired, mut told) = (0, 0);
    for n in 0..healthy.op_count() {
        for (is_told, has_manifest) in [(false, false), (false, true), (true, false), (true, true)] {
            if is_told && !is_sync(n) {
                continue;
            }
            let what = format!("operation {n}, told: {is_told}, manifest: {has_manifest}");
            let disk = SimDisk::new();
            if is_told {
                disk.fail_at(n, Fault::Eio)
            } else {
                disk.die_after(n)
            }
            life(&disk);
            let disk = disk.after_process_death();
            if !has_manifest {
                let _ = disk.env().files.remove(Path::new("/store/MANIFEST"));
            }
            // Where it died before there was a record, there may be no store.
            let Ok(report) = Cask::repair_with_env("/store", &disk.env()) else {
                assert!(n < 20, "{what}");
                continue;
            };
            // A file that has no head yet may be put aside: nothing was in it.
            let is_begun = |path: &PathBuf| disk.file_bytes(path).unwrap().iter().all(|&byte| byte == 0);
            assert!(report.put_aside.iter().all(is_begun), "{what}: {report:?}");
            (repaired, told) = (repaired + 1, told + usize::from(is_told));
            let expected = contents(&open(&disk.after_process_death()));
            let sampled = (0..3).map(|seed| Survivors::Sample { seed });
            for survivors in sampled.chain([Survivors::Nothing]) {
                let left = Cask::open_with_env("/store", options(), disk.after_power_loss(survivors).env());
                let cask = left.unwrap_or_else(|error| panic!("{what}, {survivors:?}: {error}"));
                assert!(contents(&cask) == expected, "{what}, {survivors:?}");
                let check = cask.check(&mut |_| {}).unwrap();
                assert!(check.errors.is_empty(), "{what}, {survivors:?}: {:?}", check.errors);
            }
        }
    }
    assert!(repaired > 100 && told > 10, "{repaired}, {told}");
}

/// What a repair has to go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// All there was.
    Everything,
    Hints,
    DataFiles,
}

impl Left {
    const ALL: [Self; 3] = [Self::Everything, Self::Hints, Self::DataFiles];

    fn spare(self, disk: &SimDisk) {
        for path in disk.paths() {
            let is_hint = path.extension().is_some_and(|extension| extension == "hint");
            let is_lost = match self {
                Self::Everything => false,
                Self::Hints => path.ends_with("MANIFEST"),
                Self::DataFiles => is_hint || path.ends_with("MANIFEST"),
            };
            if is_lost {
                disk.env().files.remove(&path).unwrap();
            }
        }
    }
}

/// Several sealed files; each key is written once, and is where its value is.
fn sealed_store() -> (SimDisk, BTreeMap<Vec<u8>, Vec<u8>>) {
    let disk = SimDisk::new();
    let cask = open(&disk);
    for n in 0..60u8 {
        cask.put([b'k', n], vec![n | 0x80; 300 + usize::from(n) * 3]).unwrap();
    }
    cask.compact().unwrap();
    let (stats, expected) = (cask.stats(), contents(&cask));
    assert!(stats.sealed_files > 3 && stats.sealed_files == stats.files, "{stats:?}");
    cask.close().unwrap();
    (disk.after_process_death(), expected)
}

/// The keys whose records `touches` tells of, by where they begin and end in the file `raw`.
fn keys_at(raw: &[u8], all: &BTreeMap<Vec<u8>, Vec<u8>>, touches: impl Fn(usize, usize) -> bool) -> Vec<Vec<u8>> {
    let is_there = |(key, value): &(&Vec<u8>, &Vec<u8>)| {
        let record = [&key[..], &value[..]].concat();
        let found = raw.windows(record.len()).position(|window| window == record);
        found.is_some_and(|at| touches(at - 20, at + record.len()))
    };
    all.iter().filter(is_there).map(|(key, _)| key.clone()).collect()
}

/// Goal: of a file that was sealed, a repair keeps every record that the damage has not touched, and says how much is lost: zeroes are no
/// end of it, nor is its end.
/// Method: each sector of a file is zeroed, or the file is cut there; with the manifest, with hints alone, with data files alone.
#[test]
fn damage_of_a_sealed_file_costs_what_it_touches() {
    let (disk, all) = sealed_store();
    let path = Path::new("/store/000002.data");
    let raw = disk.file_bytes(path).unwrap();
    for begin in (0..raw.len()).step_by(512) {
        for (is_cut, left) in [false, true].into_iter().flat_map(|is_cut| Left::ALL.map(|left| (is_cut, left))) {
            let what = format!("byte {begin}, cut: {is_cut}, left: {left:?}");
            let disk = disk.after_process_death();
            let mut damaged = raw.clone();
            let end = (begin + 512).min(raw.len());
            damaged[begin..end].fill(0);
            let lost_end = if is_cut { raw.len() } else { end };
            damaged.truncate(if is_cut { begin } else { raw.len() });
            disk.overwrite(path, damaged);
            left.spare(&disk);
            let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
            // Without manifest and hint, nobody knows of a record that none follows; and without its head, what the file's salt is.
            let is_known = left != Left::DataFiles;
            let is_followed = !keys_at(&raw, &all, |from, _| from >= lost_end).is_empty();
            let is_told = is_known || is_followed;
            assert!(!is_told || report.damaged_bytes > 0 && report.put_aside.len() == 1, "{what}: {report:?}");
            let is_headless = begin == 0 && !is_known;
            let lost = keys_at(&raw, &all, |from, to| is_headless || from < lost_end && to > begin);
            let cask = open(&disk);
            assert!(cask.recovery().damage.is_empty(), "{what}: {:?}", cask.recovery());
            let expected: BTreeMap<_, _> = all.clone().into_iter().filter(|(key, _)| !lost.contains(key)).collect();
            assert!(contents(&cask) == expected, "{what}: {} of {} are there", cask.len(), expected.len());
        }
    }
}

/// Goal: what somebody has put behind the end of a file that was sealed is told, costs no record, and none is there twice; a repair keeps it
/// aside, and no file that it leaves has such. No open takes it for anything. Zeroes are nothing.
/// Method: rubbish, zeroes, the file once more, another store's, or its own records alone; with the manifest, hints alone, data files alone.
#[test]
fn what_lies_behind_the_end_of_a_sealed_file_is_told_and_put_aside() {
    let (disk, all) = sealed_store();
    let path = Path::new("/store/000002.data");
    let raw = disk.file_bytes(path).unwrap();
    let foreign = {
        let env = Env { entropy: Arc::new(SeededEntropy::new(7)), ..SimDisk::new().env() };
        let cask = Cask::open_with_env("/other", options(), env.clone()).unwrap();
        cask.put("foreign", "value").unwrap();
        cask.close().unwrap();
        env.files.read(Path::new("/other/000001.data")).unwrap()
    };
    let records = raw[32..].to_vec();
    let tails = [vec![0xab; 100], vec![0; 700], raw.clone(), foreign, records, vec![7]];
    for (index, tail) in tails.into_iter().enumerate() {
        for left in Left::ALL {
            let what = format!("tail {index}, left: {left:?}");
            let disk = disk.after_process_death();
            let longer = [&raw[..], &tail].concat();
            disk.overwrite(path, longer.clone());
            let opened = disk.after_process_death();
            let (cask, check) = checked(&opened);
            let errors: Vec<_> = check.errors.iter().map(|error| (error.path(), error.offset())).collect();
            // A power loss leaves these, where a file was preallocated.
            let is_zeroes = tail.iter().all(|&byte| byte == 0);
            let told = if is_zeroes { vec![] } else { vec![(Some(path), Some(raw.len() as u64))] };
            assert_eq!(errors, told, "{what}");
            assert!(contents(&cask) == all && check.records == all.len() as u64, "{what}: {check:?}");
            left.spare(&disk);
            let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
            let is_longer_whole = left != Left::Everything && index == 4;
            let aside = Path::new("/store/000002.damaged");
            if is_zeroes {
                let kept = if left == Left::Everything { &longer } else { &raw };
                assert!(report.put_aside.is_empty() && disk.file_bytes(path).unwrap() == *kept, "{what}: {report:?}");
            } else if is_longer_whole {
                assert!(report.put_aside.is_empty() && disk.file_bytes(path).unwrap() == longer, "{what}: {report:?}");
            } else {
                assert!(report.put_aside == [aside] && disk.file_bytes(aside).unwrap() == longer, "{what}: {report:?}");
                assert_eq!(report.records, all.len() as u64, "{what}");
            }
            let is_loss = report.damaged_keys.len() + report.missing.len() + report.strangers.len();
            assert!(is_loss == 0 && (left != Left::Everything || report.damaged_bytes == 0), "{what}: {report:?}");
            let (cask, check) = checked(&disk);
            assert!(check.errors.is_empty() && contents(&cask) == all, "{what}: {check:?}");
        }
    }
}

fn checked(disk: &SimDisk) -> (Cask, CaskCheck) {
    let cask = open(disk);
    let check = cask.check(&mut |_| {}).unwrap();
    (cask, check)
}

/// Goal: a hint that was written for a file's end says nothing of it once the file has gone on: what came later is not lost with the manifest.
/// Method: the owner dies at each operation of a compaction, which ends a file that has room; the next one writes more into it.
#[test]
fn a_hint_that_its_file_has_outgrown_costs_no_record() {
    let begin = || {
        let disk = SimDisk::new();
        let cask = open(&disk);
        for n in 0..3u8 {
            cask.put([n], [n; 300]).unwrap();
        }
        (disk, cask)
    };
    let (healthy, cask) = begin();
    let before = healthy.op_count();
    cask.compact().unwrap();
    let mut outgrown = 0;
    for n in before..healthy.op_count() {
        let (disk, cask) = begin();
        disk.die_after(n);
        let _ = cask.compact();
        std::mem::forget(cask);
        let disk = disk.after_process_death();
        let cask = open(&disk);
        for n in 3..5u8 {
            cask.put([n], [n; 300]).unwrap();
        }
        cask.sync().unwrap();
        let all = contents(&cask);
        std::mem::forget(cask);
        let disk = disk.after_process_death();
        outgrown += usize::from(disk.paths().iter().any(|path| path.extension().is_some_and(|end| end == "hint")));
        disk.env().files.remove(Path::new("/store/MANIFEST")).unwrap();
        Cask::repair_with_env("/store", &disk.env()).unwrap();
        let (cask, check) = checked(&disk);
        assert!(
            contents(&cask) == all && check.errors.is_empty(),
            "operation {n}: {:?} {check:?}",
            contents(&cask).keys()
        );
    }
    assert!(outgrown > 0);
}

/// Goal: of a file that was open, a repair takes no more than an open would: what lies behind a hole may be half of a batch. But it says
/// what that is, and keeps it aside.
#[test]
fn what_lies_behind_a_hole_of_an_open_file_is_put_aside() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    for n in 0..10u8 {
        cask.put([n], [n; 300]).unwrap();
    }
    std::mem::forget(cask);
    let disk = disk.after_process_death();
    let path = Path::new("/store/000001.data");
    let mut raw = disk.file_bytes(path).unwrap();
    raw[1024..1536].fill(0);
    disk.overwrite(path, raw.clone());
    let opened = disk.after_process_death();
    let expected = contents(&open(&opened));
    let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
    let aside = PathBuf::from("/store/000001.damaged");
    assert!(disk.file_bytes(&aside).unwrap() == raw && report.put_aside == [aside], "{report:?}");
    assert!(report.damaged_bytes > 321 * 5 && report.damaged_keys == [[5], [6], [7], [8], [9]], "{report:?}");
    assert!(contents(&open(&disk)) == expected && expected.len() == 3);
}

/// Goal: after a repair without a manifest, versions go on above what any file says of itself: a deletion is not dropped while an older
/// value is in a file that claims to know nothing older.
/// Method: a merged file whose head names a version far above its records'; after the repair, a file with a deletion is merged alone.
#[test]
fn a_repair_gives_no_version_again_that_a_file_is_clean_as_of() {
    let options = CaskOptions { merge_garbage_ratio: 0.5, keep_versions: 1, ..options() };
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    cask.put("a", [1; 50]).unwrap();
    for n in 0..40u8 {
        cask.put([b'k', n % 39], [n; 50]).unwrap();
    }
    for _ in 0..200 {
        cask.put("gone", [2; 50]).unwrap();
        assert!(cask.delete("gone").unwrap());
    }
    cask.compact().unwrap();
    assert_eq!((cask.stats().sealed_files, cask.len()), (1, 40));
    cask.close().unwrap();
    disk.env().files.remove(Path::new("/store/MANIFEST")).unwrap();
    Cask::repair_with_env("/store", &disk.env()).unwrap();
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    assert!(cask.put("a", [3; 50]).unwrap() > 400);
    assert!(cask.delete("a").unwrap());
    for _ in 0..40 {
        cask.put("z", [4; 300]).unwrap();
    }
    assert!(cask.stats().merges > 0, "{:?}", cask.stats());
    cask.close().unwrap();
    let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
    assert_eq!((cask.get("a").unwrap().map(|value| value.to_vec()), cask.len()), (None, 40));
}

/// Goal: what an intact manifest has dropped stays dropped: a repair after a merge that died brings no deleted key back.
/// Method: a value and its deletion lie in two files that are merged together; the merge dies after each of its operations. If the power
/// goes, too, the file with the value may come back alone.
#[test]
fn a_repair_brings_nothing_back_that_the_manifest_has_dropped() {
    let options = CaskOptions { stripes: 2, ..options() };
    let store = || {
        let disk = SimDisk::new();
        let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let into = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
        cask.put_with("goes", [1; 300], &into(0)).unwrap();
        // Both files have something to give back, so that they are merged together.
        cask.put_with("stays", "here", &into(1)).unwrap();
        cask.put_with("stays", "here", &into(1)).unwrap();
        assert!(cask.delete_with("goes", &into(1)).unwrap());
        cask.sync().unwrap();
        (disk, cask)
    };
    let (healthy, cask) = store();
    let before = healthy.op_count();
    cask.compact().unwrap();
    let (ops, expected) = (healthy.op_count() - before, contents(&cask));
    assert_eq!(expected.len(), 1);
    let mut dropped = 0;
    for n in 0..=ops {
        let (disk, cask) = store();
        disk.die_after(before + n);
        let _ = cask.compact();
        std::mem::forget(cask);
        let sampled = (0..8).map(|seed| disk.after_power_loss(Survivors::Sample { seed }));
        for (image, left) in [disk.after_process_death()].into_iter().chain(sampled).enumerate() {
            let what = format!("operation {n} of {ops}, image {image}");
            let has = |number: u32| left.paths().contains(&PathBuf::from(format!("/store/00000{number}.data")));
            dropped += usize::from(has(1) && !has(2));
            let report = Cask::repair_with_env("/store", &left.env()).unwrap();
            assert!(report.missing.is_empty(), "{what}: {report:?}");
            let found = Cask::open_with_env("/store", options.clone(), left.env()).unwrap();
            assert!(contents(&found) == expected, "{what}: {:?}", contents(&found).keys());
        }
    }
    assert!(dropped > 0);
}

/// Goal: where no version can follow, a repair says so, and makes no store of it.
#[test]
fn a_repair_refuses_a_store_that_has_used_all_versions() {
    let (disk, _) = sealed_store();
    let path = Path::new("/store/000002.data");
    let mut raw = disk.file_bytes(path).unwrap();
    raw[20..28].copy_from_slice(&VERSION_MAX.to_le_bytes());
    let crc = crc32c(&raw[..28]);
    raw[28..32].copy_from_slice(&crc.to_le_bytes());
    disk.overwrite(path, raw.clone());
    Left::DataFiles.spare(&disk);
    let error = Cask::repair_with_env("/store", &disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(disk.file_bytes(path).unwrap() == raw && !disk.paths().contains(&PathBuf::from("/store/MANIFEST")));
}
