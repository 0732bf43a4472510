//! The bug classes that were seen in other stores of this kind, by their names in the design (B1 to B10), and what happens
//! when many do things at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker::env::Env;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{Cask, CaskBatch, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_torture::crash::operations;
use esker_torture::hooked::{Call, Hooked, Meanwhile};
use esker_torture::seeds;
use fastrand::Rng;

fn options() -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        background_jobs: 0,
        open_threads: 0,
        stripes: 1,
        file_bytes: 4 << 10,
        // Only when a test says so.
        merge_garbage_ratio: 1.0,
        ..CaskOptions::default()
    }
}

fn open(disk: &SimDisk) -> Cask {
    Cask::open_with_env("/store", options(), disk.env()).unwrap()
}

/// Fills the active file, so that the next write begins another.
fn fill(cask: &Cask, with: &str) {
    for n in 0..5 {
        cask.put(format!("{with}{n}"), [b'f'; 900]).unwrap();
    }
}

/// B1. A put in an old file, its deletion in a later one, which alone is merged, in every order of merges and deaths.
#[test]
fn b1_a_deleted_key_never_comes_back() {
    for seed in seeds(60) {
        let mut random = Rng::with_seed(seed);
        let mut disk = SimDisk::new();
        let mut options = options();
        options.merge_garbage_ratio = [0.01, 0.1, 0.3, 1.0][random.usize(..4)];
        let mut cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        for n in 0..20 {
            cask.put(format!("gone{n}"), [b'x'; 150]).unwrap();
        }
        cask.sync().unwrap();
        for n in 0..20 {
            cask.delete_with(format!("gone{n}"), &CaskWriteOptions { sync: true, ttl: None, stripe: None }).unwrap();
            match random.u8(..6) {
                0 => cask.compact().unwrap(),
                1 => fill(&cask, "a"),
                2 => fill(&cask, &format!("b{n}")),
                3 => {
                    let image = disk.after_power_loss(Survivors::Sample { seed });
                    drop(cask);
                    disk = image;
                    options.merge_garbage_ratio = [0.01, 0.1, 0.3, 1.0][random.usize(..4)];
                    cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
                }
                _ => {}
            }
            for gone in 0..=n {
                assert!(cask.get(format!("gone{gone}")).unwrap().is_none(), "ESKER_SEED={seed}: gone{gone} is back");
            }
        }
        drop(cask);
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        assert!((0..20).all(|n| cask.get(format!("gone{n}")).unwrap().is_none()), "ESKER_SEED={seed}");
    }
}

/// B1, the other side: deletions do go once nothing is left that they hide, so they do not pile up.
#[test]
fn b1_deletions_go_when_they_hide_nothing_any_more() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    for n in 0..100 {
        cask.put(format!("key{n}"), [b'x'; 200]).unwrap();
    }
    for n in 0..100 {
        cask.delete(format!("key{n}")).unwrap();
    }
    assert_eq!(cask.stats().tombstones, 100);
    cask.compact().unwrap();
    let stats = cask.stats();
    assert_eq!((stats.keys, stats.records, stats.tombstones), (0, 0, 0), "{stats:?}");
}

/// B2. Writers and a merge at once: a put that came while its key was being copied wins.
#[test]
fn b2_a_merge_never_overwrites_a_newer_put() {
    let directory = std::env::temp_dir().join(format!("esker-cask-b2-{}", std::process::id()));
    let options =
        CaskOptions { file_bytes: 64 << 10, stripes: 2, background_jobs: 2, merge_garbage_ratio: 0.05, ..options() };
    let cask = Cask::open(&directory, options.clone()).unwrap();
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let last = std::thread::scope(|scope| {
        let merger = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                cask.compact().unwrap();
            }
        });
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (cask, written) = (&cask, &written);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(writer);
                    let mut last = BTreeMap::new();
                    for n in 0..30_000u64 {
                        let key = format!("{writer}/{}", random.u32(..200));
                        if random.u8(..10) == 0 {
                            cask.delete(&key).unwrap();
                            last.remove(&key);
                        } else {
                            let value = format!("{n} {}", "v".repeat(random.usize(..60)));
                            cask.put(&key, &value).unwrap();
                            last.insert(key.clone(), value);
                        }
                        let found = cask.get(&key).unwrap();
                        assert_eq!(found.as_deref(), last.get(&key).map(String::as_bytes), "{key} after write {n}");
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    last
                })
            })
            .collect();
        let last: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        merger.join().unwrap();
        last
    });
    assert_eq!(written.load(Ordering::Relaxed), 60_000);
    assert!(cask.stats().merged_bytes > 1 << 20, "merges ran: {:?}", cask.stats());
    assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
    cask.close().unwrap();
    let cask = Cask::open(&directory, options).unwrap();
    assert_eq!(cask.len(), last.len() as u64);
    for (key, value) in last {
        assert_eq!(cask.get(&key).unwrap().unwrap(), value, "{key}");
    }
    drop(cask);
    std::fs::remove_dir_all(directory).unwrap();
}

/// B3. A value and a scan outlive the file that they lie in: merged, removed, store closed.
#[test]
fn b3_what_is_held_outlives_its_file() {
    let directory = std::env::temp_dir().join(format!("esker-cask-b3-{}", std::process::id()));
    let cask = Cask::open(&directory, options()).unwrap();
    cask.put("key", "value").unwrap();
    fill(&cask, "a");
    let value = cask.get("key").unwrap().unwrap();
    let mut scan = cask.scan().unwrap();
    assert!(scan.advance().unwrap());
    cask.delete("key").unwrap();
    cask.compact().unwrap();
    assert!(!directory.join("000001.data").exists(), "the file is gone");
    assert_eq!(value, b"value");
    let mut seen = 1;
    while scan.advance().unwrap() {
        seen += 1;
    }
    assert_eq!(seen, 6, "the deleted key and five others");
    drop(scan);
    cask.close().unwrap();
    assert_eq!(value.clone(), b"value");
    std::fs::remove_dir_all(directory).unwrap();
}

/// B4. One manifest: whatever edit fails, a reopen finds either state, whole.
#[test]
fn b4_a_failed_manifest_leaves_the_old_or_the_new_state() {
    for n in 0.. {
        let disk = SimDisk::new();
        let cask = open(&disk);
        fill(&cask, "a");
        cask.sync().unwrap();
        cask.delete_with("a0", &CaskWriteOptions { sync: true, ttl: None, stripe: None }).unwrap();
        let first = disk.op_count();
        disk.fail_at(first + n, Fault::Eio);
        let failed = cask.compact().is_err();
        let whole = disk.op_count() < first + n;
        drop(cask);
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
            let cask = open(&disk.after_power_loss(survivors));
            assert!(cask.get("a0").unwrap().is_none(), "operation {n}, {survivors:?}");
            assert!((1..5).all(|n| cask.get(format!("a{n}")).unwrap().is_some()), "operation {n}, {survivors:?}");
        }
        if whole {
            assert!(!failed && n > 10);
            break;
        }
    }
}

/// B5. Bytes of another file, or inside a value, never pass for records of this one.
#[test]
fn b5_records_of_another_file_are_none_here() {
    let disk = SimDisk::new();
    // Another life than that of the other disk: other salts.
    disk.env().entropy.fill(&mut [0; 100]);
    let cask = open(&disk);
    cask.put("inner", "x").unwrap();
    let other = disk.file_bytes(Path::new("/store/000001.data")).unwrap();
    let record = other[32..32 + 20 + 5 + 1].to_vec();
    // The very bytes of a record, as the value of another, which is then damaged.
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put("outer", &record).unwrap();
    cask.put("after", "y").unwrap();
    cask.sync().unwrap();
    std::mem::forget(cask);
    let image = disk.after_process_death();
    // In the length: what follows has to be searched for.
    image.flip_bit(Path::new("/store/000001.data"), 8 * (32 + 8));
    let cask = open(&image);
    assert_eq!(cask.recovery().damage.len(), 1);
    assert!(cask.get("inner").unwrap().is_none());
    assert_eq!(cask.get("outer").unwrap_err().kind(), esker::ErrorKind::Corruption);
    assert_eq!(cask.get("after").unwrap().unwrap(), b"y");
}

/// B6. What superseded a record is durable before a merge lets the record go.
#[test]
fn b6_a_merge_makes_durable_what_it_relies_on() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put_with("key", "old", &CaskWriteOptions { sync: true, ttl: None, stripe: None }).unwrap();
    fill(&cask, "a");
    // Not synced, and the only reason why the old one is garbage.
    cask.put("key", "new").unwrap();
    cask.compact().unwrap();
    let cask = open(&disk.after_power_loss(Survivors::Nothing));
    assert_eq!(cask.get("key").unwrap().unwrap(), b"new");
}

/// B7. What is on the disk does not depend on the run: the same writes make the same bytes, but for salts and ids.
#[test]
fn b7_the_same_writes_make_the_same_records() {
    let image = || {
        let disk = SimDisk::new();
        let cask = open(&disk);
        let mut batch = CaskBatch::new();
        for n in (0..40u8).rev() {
            batch.put([n], [n; 3]).unwrap();
        }
        cask.write(&batch, &CaskWriteOptions::default()).unwrap();
        cask.close().unwrap();
        disk.file_bytes(Path::new("/store/000001.data")).unwrap()
    };
    assert_eq!(image(), image());
}

/// B8. What fails in the background is state that the user can read, and is tried again.
#[test]
fn b8_background_failures_are_told_and_mended() {
    let mut told = 0;
    for n in 0..40 {
        let disk = SimDisk::new();
        let cask = open(&disk);
        fill(&cask, "a");
        disk.fail_at(disk.op_count() + n, Fault::Eio);
        // A rotation, and the seal that comes with it. The writes themselves may be refused too.
        let refused = (0..5).filter(|n| cask.put(format!("b{n}"), [b'b'; 900]).is_err()).count();
        let Some(error) = cask.stats().background_error else { continue };
        if error.kind() == ErrorKind::ReadOnly {
            continue;
        }
        assert_eq!(refused, 0, "a failed seal is no failure of a write: {error}");
        told += 1;
        fill(&cask, "c");
        assert!(cask.stats().background_error.is_none(), "tried again: {:?}", cask.stats());
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
    }
    assert!(told > 3, "{told}");
}

/// B9. Memory of the directory stays within its bound whatever is overwritten and deleted.
#[test]
fn b9_memory_follows_the_keys_not_the_writes() {
    let disk = SimDisk::new();
    let options = CaskOptions { file_bytes: 1 << 20, merge_garbage_ratio: 0.3, ..options() };
    let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
    for n in 0..60_000u32 {
        cask.put((n % 500).to_le_bytes(), [1; 8]).unwrap();
    }
    let stats = cask.stats();
    assert!(stats.dead_records < 60_000 && stats.ledger_bytes < 400_000, "{stats:?}");
    assert!(stats.directory_bytes < 2 << 20, "{stats:?}");
}

/// B10. The ledger is what the files say, after overwrites, deletes, expiry, merges and deaths.
#[test]
fn b10_the_ledger_never_drifts() {
    for seed in seeds(20) {
        let mut random = Rng::with_seed(seed);
        let mut disk = SimDisk::new();
        let options = CaskOptions { merge_garbage_ratio: 0.4, keep_versions: 1 + seed as usize % 3, ..options() };
        let mut cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        for n in 0..300 {
            let key = [random.u8(..30)];
            match random.u8(..20) {
                0..4 => drop(cask.delete(key).unwrap()),
                4..8 => {
                    let ttl = Some(Duration::from_secs(random.u64(1..30)));
                    cask.put_with(key, [b'v'; 90], &CaskWriteOptions { sync: false, ttl, stripe: None }).unwrap();
                }
                8 => disk.clock().advance(Duration::from_secs(10)),
                9 => cask.compact().unwrap(),
                10 if n % 3 == 0 => {
                    let image = disk.after_power_loss(Survivors::Sample { seed: n });
                    drop(cask);
                    disk = image;
                    cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
                }
                _ => drop(cask.put(key, [b'w'; 90]).unwrap()),
            }
        }
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "ESKER_SEED={seed}: {:?}", check.errors);
        let stats = cask.stats();
        assert_eq!(check.records, stats.records, "ESKER_SEED={seed}");
        assert_eq!(check.live_records + check.tombstones + stats.dead_records, stats.records, "ESKER_SEED={seed}");
    }
}

/// Goal: space of values that have expired comes back while others of their files live on, by merges that nobody asked for; and so
/// after a reopen, which has the times from hints and from the file that was open.
#[test]
fn space_of_expired_values_comes_back_while_their_neighbours_live() {
    for reopens in [false, true] {
        let disk = SimDisk::new();
        let options = CaskOptions { merge_garbage_ratio: 0.4, ..options() };
        let mut cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let lives_on = |n: u64| n.is_multiple_of(5);
        for n in 0..60 {
            let ttl = Some(Duration::from_secs(if lives_on(n) { 1_000_000 } else { 60 + n % 10 }));
            cask.put_with(format!("key{n}"), [b'v'; 200], &CaskWriteOptions { sync: false, ttl, stripe: None })
                .unwrap();
        }
        let before = cask.stats().bytes;
        if reopens {
            cask.close().unwrap();
            cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        }
        disk.clock().advance(Duration::from_secs(1000));
        // Begins another file, which is when a store without threads looks for work.
        fill(&cask, "more");
        let stats = cask.stats();
        assert!(stats.bytes < before / 2 + 5_000, "{} bytes of {before}, reopened: {reopens}", stats.bytes);
        for n in 0..60 {
            assert_eq!(cask.exists(format!("key{n}")).unwrap(), lives_on(n), "key {n}");
        }
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{:?}", check.errors);
    }
}

/// Goal: when the time of a value is over is told until it is, by its key and by a scan, packed and not.
#[test]
fn the_end_of_a_value_is_told_until_it_comes() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
    let short = CaskWriteOptions { sync: false, ttl: Some(Duration::from_secs(60)), stripe: None };
    let now = disk.env().clock.unix_seconds();
    cask.put("stays", "x").unwrap();
    cask.put_with("ends", "x", &short).unwrap();
    cask.put_with("ends packed", [7; 10_000], &short).unwrap();
    for (passed, ends) in [(0, Some(now + 60)), (59, Some(now + 60)), (61, None)] {
        disk.clock().advance(Duration::from_secs(now + passed - disk.env().clock.unix_seconds()));
        for (key, wanted) in [("stays", None), ("ends", ends), ("ends packed", ends), ("absent", None)] {
            assert_eq!(cask.expires_at(key).unwrap(), wanted, "{key} after {passed} s");
        }
        let mut scan = cask.scan().unwrap();
        while scan.advance().unwrap() {
            let wanted = if scan.key() == b"stays" { None } else { ends };
            assert_eq!(scan.expires_at().unwrap(), wanted, "{:?} after {passed} s", scan.key());
        }
    }
}

/// Goal: of a key whose newest version has expired nothing is shown, by get, history and scan alike, though older versions that would live are kept;
/// before and after the merge that makes a deletion of it. Versions that expire within a history hide nothing.
#[test]
fn an_expired_key_has_no_older_versions_to_show() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", CaskOptions { keep_versions: 3, ..options() }, disk.env()).unwrap();
    let short = CaskWriteOptions { sync: false, ttl: Some(Duration::from_secs(60)), stripe: None };
    for n in 0..3 {
        cask.put("gone", format!("older {n}")).unwrap();
    }
    cask.put_with("gone", "short-lived", &short).unwrap();
    cask.put("lives", "first").unwrap();
    cask.put_with("lives", "short-lived", &short).unwrap();
    cask.put("lives", "last").unwrap();
    let shown = |cask: &Cask| {
        let (mut scan, mut shown) = (cask.scan().unwrap(), Vec::new());
        while scan.advance().unwrap() {
            shown.push((scan.key().to_vec(), scan.value().unwrap().to_vec()));
        }
        shown.sort();
        let entry = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        (shown, [entry("lives", "first"), entry("lives", "last")])
    };
    assert_eq!(shown(&cask).0.len(), 6, "three versions of each");
    disk.clock().advance(Duration::from_secs(100));
    for compacted in [false, true] {
        if compacted {
            cask.compact().unwrap();
        }
        let (found, wanted) = shown(&cask);
        assert_eq!(found, wanted, "compacted: {compacted}");
        assert_eq!(cask.get("gone").unwrap(), None);
        assert!(cask.history("gone").unwrap().is_empty(), "compacted: {compacted}");
        assert_eq!(cask.history("lives").unwrap().len(), 2, "compacted: {compacted}");
    }
}

/// Goal: once the time of a key's newest version was over, nothing from before comes back with the next put, merged or not, now or after a reopen.
#[test]
fn a_put_behind_an_expired_version_begins_a_new_history() {
    for (compacted, in_batch) in [(false, false), (true, false), (false, true)] {
        let disk = SimDisk::new();
        let options = CaskOptions { keep_versions: 3, ..options() };
        let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let short = CaskWriteOptions { sync: false, ttl: Some(Duration::from_secs(60)), stripe: None };
        cask.put("key", "one").unwrap();
        cask.put_with("key", "two", &short).unwrap();
        disk.clock().advance(Duration::from_secs(100));
        if compacted {
            cask.compact().unwrap();
        }
        if in_batch {
            let mut batch = CaskBatch::new();
            batch.put("key", "three").unwrap();
            batch.put("other", "x").unwrap();
            cask.write(&batch, &CaskWriteOptions::default()).unwrap();
        } else {
            cask.put("key", "three").unwrap();
        }
        let check = |cask: &Cask| {
            let history: Vec<_> = cask.history("key").unwrap().into_iter().map(|(_, value)| value.into_vec()).collect();
            assert_eq!(history, [b"three"], "compacted: {compacted}, in a batch: {in_batch}");
            assert_eq!(cask.len(), 1 + u64::from(in_batch));
            assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        };
        check(&cask);
        drop(cask);
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        check(&cask);
        cask.compact().unwrap();
        check(&cask);
    }
}

/// Goal: whoever has read one value of a batch finds no older one under another of its keys.
#[test]
fn readers_see_a_batch_at_once() {
    let directory = std::env::temp_dir().join(format!("esker-cask-batch-{}", std::process::id()));
    let cask = Cask::open(&directory, CaskOptions { file_bytes: 1 << 20, stripes: 4, ..options() }).unwrap();
    let keys: Vec<String> = (0..64).map(|n| format!("key{n}")).collect();
    let write = |round: u64| {
        let mut batch = CaskBatch::new();
        keys.iter().for_each(|key| batch.put(key, round.to_le_bytes()).unwrap());
        cask.write(&batch, &CaskWriteOptions::default()).unwrap();
    };
    let read = |key: &str| u64::from_le_bytes((*cask.get(key).unwrap().unwrap()).try_into().unwrap());
    write(0);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=4000 {
                write(round);
                written.store(round, Ordering::Relaxed);
            }
        });
        let mut random = Rng::with_seed(1);
        while written.load(Ordering::Relaxed) < 4000 {
            let (one, other) = (random.usize(..64), random.usize(..64));
            let (first, second) = (read(&keys[one]), read(&keys[other]));
            assert!(second >= first, "key{one} was of batch {first}, then key{other} of {second}");
        }
    });
    cask.close().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

/// Readers, writers of one counter, a merge and scans at once: no increment is lost, every read is of some write.
#[test]
fn compare_and_set_loses_no_increment() {
    let directory = std::env::temp_dir().join(format!("esker-cask-cas-{}", std::process::id()));
    let options = CaskOptions { file_bytes: 32 << 10, background_jobs: 2, merge_garbage_ratio: 0.2, ..options() };
    let cask = Cask::open(&directory, options).unwrap();
    let counter = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    cask.put("counter", 0u64.to_le_bytes()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut done = 0;
                while done < 2000 {
                    let old = cask.get("counter").unwrap().unwrap();
                    let new = (counter(&old) + 1).to_le_bytes();
                    let options = CaskWriteOptions::default();
                    done += u64::from(cask.compare_and_set("counter", Some(&old), Some(&new), &options).unwrap());
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                cask.compact().unwrap();
                assert_eq!(cask.scan().unwrap().count(), 1);
            }
        });
    });
    assert_eq!(counter(&cask.get("counter").unwrap().unwrap()), 6000);
    cask.close().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

/// Goal: a deletion in the file of one stripe hides a value in that of another for good, though its own file is merged first.
#[test]
fn a_deletion_outlives_a_merge_while_another_stripe_has_the_value() {
    let disk = SimDisk::new();
    let cask =
        Cask::open_with_env("/store", CaskOptions { stripes: 2, merge_garbage_ratio: 0.5, ..options() }, disk.env())
            .unwrap();
    let to = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
    cask.put_with("key", "old", &to(0)).unwrap();
    assert!(cask.delete_with("key", &to(1)).unwrap());
    let merged = |cask: &Cask| cask.stats().merged_bytes;
    for n in 0..2000u32 {
        cask.put_with((n % 3).to_le_bytes(), [0; 100], &to(1)).unwrap();
    }
    assert!(merged(&cask) > 50_000, "the files of the second stripe were merged");
    let image = disk.after_process_death();
    drop(cask);
    let cask = Cask::open_with_env("/store", options(), image.env()).unwrap();
    assert!(cask.get("key").unwrap().is_none());
    assert_eq!(cask.len(), 3);
}

/// Goal: after a synced put a power loss brings no version back that was deleted before it, though the deletion is in another file.
#[test]
fn a_synced_put_keeps_the_deletion_that_ended_the_history_before_it() {
    let disk = SimDisk::new();
    let options = CaskOptions { stripes: 2, keep_versions: 3, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let to = |stripe, sync| CaskWriteOptions { stripe: Some(stripe), sync, ..CaskWriteOptions::default() };
    cask.put_with("key", "old", &to(0, true)).unwrap();
    assert!(cask.delete_with("key", &to(1, false)).unwrap());
    cask.put_with("key", "new", &to(0, true)).unwrap();
    let image = disk.after_power_loss(Survivors::Nothing);
    drop(cask);
    let cask = Cask::open_with_env("/store", options, image.env()).unwrap();
    let history = cask.history("key").unwrap();
    assert_eq!(history.len(), 1, "{history:?}");
    assert_eq!(*history[0].1, *b"new");
}

/// Goal: of writes of one key by several threads, which are in several files, the one with the highest version counts: now, and
/// when the versions are all that an open knows.
#[test]
fn the_newest_of_a_key_is_the_newest_whichever_file_it_is_in() {
    let disk = SimDisk::new();
    let options = CaskOptions { stripes: 4, file_bytes: 16 << 10, merge_garbage_ratio: 0.3, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let key = |n: u32| [b'k', (n % 3) as u8];
    let write = |cask: &Cask, thread: u32| {
        let mut newest: [(u64, Vec<u8>); 3] = Default::default();
        for n in 0..3000u32 {
            let value = [thread.to_le_bytes(), n.to_le_bytes()].concat();
            newest[n as usize % 3] = (cask.put(key(n), &value).unwrap(), value);
        }
        newest
    };
    let threads: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn({
                    let cask = &cask;
                    move || write(cask, thread)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let check = |cask: &Cask| {
        for n in 0..3 {
            let (_, value) = threads.iter().map(|newest| &newest[n as usize]).max().unwrap();
            assert_eq!(cask.get(key(n)).unwrap().unwrap(), *value, "key {n}");
        }
    };
    check(&cask);
    // A put that took no effect beside another left a record that is neither live nor dead.
    let found = cask.check(&mut |_| ()).unwrap();
    assert!(found.errors.is_empty(), "{found:?}");
    let image = disk.after_process_death();
    drop(cask);
    check(&Cask::open_with_env("/store", options, image.env()).unwrap());
}

/// Goal: however puts and deletions by two threads, to two files, pass by who counts, one key that always lives is counted, and nothing twice.
#[test]
fn the_count_of_keys_is_never_off_by_what_passes() {
    let cask = Cask::open_with_env("/store", CaskOptions { stripes: 2, ..options() }, SimDisk::new().env()).unwrap();
    cask.put("lives", "").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let to = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
            for _ in 0..3000 {
                cask.put_with("passes", "", &to(0)).unwrap();
                cask.delete_with("passes", &to(1)).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let len = cask.len();
            assert!((1..=2).contains(&len), "{len}");
        }
    });
}

/// Goal: a file that its writer has left, or writes to now and then, with something dead in it, does not keep the deletions of all others for
/// ever.
#[test]
fn a_file_that_nobody_writes_to_keeps_no_deletions() {
    for is_left in [true, false] {
        let disk = SimDisk::new();
        let options = CaskOptions { stripes: 2, merge_garbage_ratio: 0.3, ..options() };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        let to = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
        for _ in 0..2 {
            cask.put_with("left", "behind", &to(0)).unwrap();
        }
        for n in 0..5000u32 {
            cask.put_with(n.to_le_bytes(), "", &to(1)).unwrap();
            cask.delete_with(n.to_le_bytes(), &to(1)).unwrap();
            if !is_left && n % 50 == 0 {
                cask.put_with("left", "behind", &to(0)).unwrap();
            }
        }
        let stats = cask.stats();
        assert!(stats.tombstones < 1000, "left: {is_left}: {stats:?}");
        assert_eq!(cask.get("left").unwrap().unwrap(), *b"behind");
    }
}

/// Goal: nor does one that changes no more, nearly all of which lives, by deletions or by times that are over; and it is not copied again and
/// again for that.
#[test]
fn a_sealed_file_with_something_dead_keeps_no_deletions() {
    for expires in [false, true] {
        let disk = SimDisk::new();
        let options = CaskOptions { merge_garbage_ratio: 0.3, ..options() };
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        fill(&cask, "cold");
        cask.put("cold0", "").unwrap();
        let ttl = expires.then_some(Duration::from_secs(1));
        for n in 0..5000u32 {
            cask.put_with(n.to_le_bytes(), "", &CaskWriteOptions { ttl, ..CaskWriteOptions::default() }).unwrap();
            if expires {
                disk.clock().advance(Duration::from_millis(500));
            } else {
                cask.delete(n.to_le_bytes()).unwrap();
            }
        }
        let stats = cask.stats();
        assert!(stats.tombstones < 1000 && stats.bytes < 40_000, "{stats:?}");
        assert!(stats.merge_written_bytes < 8 * stats.appended_bytes, "{stats:?}");
        assert_eq!(cask.get("cold1").unwrap().unwrap(), [b'f'; 900]);
    }
}

/// Goal: the same where older versions are kept, and some keys are overwritten all the time.
#[test]
fn deletions_go_where_older_versions_are_kept() {
    let disk = SimDisk::new();
    let options = CaskOptions { merge_garbage_ratio: 0.3, keep_versions: 2, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    fill(&cask, "cold");
    for _ in 0..2 {
        cask.put("cold0", "").unwrap();
    }
    for n in 0..5000u32 {
        cask.put(n.to_le_bytes(), "").unwrap();
        cask.delete(n.to_le_bytes()).unwrap();
        cask.put([n as u8 % 3], n.to_le_bytes()).unwrap();
    }
    let stats = cask.stats();
    assert!(stats.tombstones < 1000 && stats.bytes < 40_000, "{stats:?}");
    assert!(stats.merge_written_bytes < 8 * stats.appended_bytes, "{stats:?}");
    drop(cask);
    let cask = Cask::open_with_env("/store", options, disk.after_process_death().env()).unwrap();
    assert!((0..5000u32).all(|n| !cask.exists(n.to_le_bytes()).unwrap()));
    assert_eq!(cask.history([1]).unwrap().len(), 2);
    assert_eq!(cask.history("cold0").unwrap().len(), 2);
}

/// Goal (B1, R3): an older version that was copied while its key's newest lived on stays hidden by the deletion that its newest becomes when its
/// time is over, which has no higher version than that.
#[test]
fn an_older_version_stays_hidden_when_the_newest_expires() {
    let disk = SimDisk::new();
    let options = CaskOptions { merge_garbage_ratio: 0.3, keep_versions: 2, stripes: 2, ..options() };
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let to = |stripe, ttl| CaskWriteOptions { stripe: Some(stripe), ttl, ..CaskWriteOptions::default() };
    let compact = || (0..3).for_each(|_| cask.compact().unwrap());
    cask.put_with("key", "older", &to(0, None)).unwrap();
    cask.put_with("other", "lives", &to(0, None)).unwrap();
    cask.put_with("key", "newest", &to(1, Some(Duration::from_secs(60)))).unwrap();
    cask.put_with("some", "dead", &to(0, None)).unwrap();
    cask.delete("some").unwrap();
    compact();
    disk.clock().advance(Duration::from_secs(100));
    // Only the file of the newest is merged: the other has not come to have anything dead.
    for n in 0..400u32 {
        cask.put_with([b'x', n as u8 % 2], [0; 100], &to(1, None)).unwrap();
        if n % 100 == 99 {
            compact();
        }
    }
    drop(cask);
    let cask = Cask::open_with_env("/store", options, disk.after_process_death().env()).unwrap();
    assert_eq!((cask.get("key").unwrap(), cask.history("key").unwrap().len()), (None, 0));
}

/// Goal (B2): whatever moments a merge and a put of the same key meet in, the put is there afterwards.
/// Method: two threads overwrite keys of their own and read each back, while a third merges all the time what they leave behind.
#[test]
fn a_merge_beside_writers_loses_no_put() {
    let options = CaskOptions { stripes: 2, ..options() };
    let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
    let keys = 40u32;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u32)
            .map(|thread| {
                let cask = &cask;
                scope.spawn(move || {
                    for n in 0..15_000u32 {
                        let key = (thread * keys + n % keys).to_le_bytes();
                        cask.put(key, n.to_le_bytes()).unwrap();
                        assert_eq!(cask.get(key).unwrap().unwrap(), n.to_le_bytes(), "put {n} of thread {thread}");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cask.compact().unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert!(cask.stats().merged_bytes > 100_000);
    let check = cask.check(&mut |_| ()).unwrap();
    assert!(check.errors.is_empty(), "{check:?}");
    assert_eq!(cask.len(), 2 * u64::from(keys));
}

/// Batches from many threads, each of which sets all keys to one value: no scan ever sees a mixture.
#[test]
fn a_scan_sees_batches_whole() {
    let directory = std::env::temp_dir().join(format!("esker-cask-scan-{}", std::process::id()));
    let options = CaskOptions { file_bytes: 16 << 10, stripes: 4, background_jobs: 2, ..options() };
    let cask = Cask::open(&directory, options).unwrap();
    let write = |value: u32| {
        let mut batch = CaskBatch::new();
        for key in 0..16u8 {
            batch.put([key], value.to_le_bytes()).unwrap();
        }
        cask.write(&batch, &CaskWriteOptions::default()).unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let write = &write;
            scope.spawn(move || (0..1500).for_each(|n| write(thread * 10_000 + n)));
        }
        for _ in 0..300 {
            let seen: Vec<_> = cask.scan().unwrap().map(|entry| entry.unwrap().1).collect();
            assert_eq!(seen.len(), 16);
            assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
        }
    });
    cask.close().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

/// Two handles of one store in one machine: the second is refused, also from another process's view.
#[test]
fn a_store_is_open_once() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    let error = Cask::open_with_env("/store", options(), disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    cask.close().unwrap();
    let env: Env = disk.env();
    assert!(Cask::open_with_env("/store", options(), env).is_ok());
}

/// Keys and values of every length that a field can hold, near its ends, and a value larger than a file.
#[test]
fn extreme_keys_and_values_are_kept() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    let long = vec![b'k'; 65_535];
    let cases: [(&[u8], Vec<u8>); 5] =
        [(b"", vec![]), (b"", vec![1]), (&long, vec![]), (&long, vec![2; 100_000]), (b"big", vec![3; 1 << 20])];
    for (key, value) in &cases {
        cask.put(key, value).unwrap();
        assert_eq!(cask.get(key).unwrap().unwrap(), *value);
    }
    assert_eq!(cask.put([&long[..], b"k"].concat(), "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    cask.compact().unwrap();
    cask.close().unwrap();
    let cask = open(&disk);
    assert_eq!(cask.get(&long).unwrap().unwrap().len(), 100_000);
    assert_eq!(cask.get("").unwrap().unwrap(), [1]);
    assert_eq!(cask.value_len("big").unwrap(), Some(1 << 20));
    assert_eq!(cask.len(), 3);
}

/// Goal: a store takes little more of the disk than it holds, however many stripes it has; and its files grow with it.
#[test]
fn a_small_store_takes_little_room() {
    let disk = SimDisk::new();
    let options = CaskOptions { create_if_missing: true, background_jobs: 0, ..CaskOptions::default() };
    let files = disk.env().files;
    let taken = |cask: &Cask| -> (u64, u64) {
        let entries = files.list(Path::new("/store")).unwrap();
        let paths = entries.iter().map(|entry| Path::new("/store").join(&entry.name));
        (paths.map(|path| files.metadata(&path).unwrap().allocated).sum(), cask.stats().bytes)
    };
    let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
    for n in 0..100u32 {
        cask.put(n.to_le_bytes(), [0; 100]).unwrap();
    }
    let (allocated, _) = taken(&cask);
    assert!(allocated <= 36 << 20, "{allocated} bytes for hundred records");
    for n in 0..2000u32 {
        cask.put(n.to_le_bytes(), vec![7; 50_000]).unwrap();
    }
    let (allocated, held) = taken(&cask);
    // What is there, as much again in files that are begun, and those that are ready to follow these.
    assert!(held > 100_000_000 && allocated < 3 * held, "{allocated} bytes for {held}");
    let count = cask.stats().sealed_files;
    assert!((8..=40).contains(&count), "{count} files of 100 MB");
    cask.close().unwrap();
    let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
    cask.put("more", "").unwrap();
    let (allocated, held) = taken(&cask);
    assert!(allocated < 2 * held, "{allocated} bytes for {held} after a reopening");
    assert_eq!(cask.get(1999u32.to_le_bytes()).unwrap().as_deref(), Some(&*vec![7; 50_000]));
    cask.close().unwrap();
}

/// Goal: a hint for which there is no room keeps no file from being sealed, nor from being merged.
#[test]
fn files_are_sealed_and_merged_without_hints() {
    let disk = SimDisk::new();
    let files = Hooked::new(disk.env().files, |call| match call {
        Call::Create(path) if path.to_string_lossy().ends_with(".hint.new") => {
            Err(esker::env::Error::new("creating", path, std::io::ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let cask = Cask::open_with_env("/store", options(), env).unwrap();
    for _ in 0..3 {
        fill(&cask, "a");
    }
    cask.compact().unwrap();
    let stats = cask.stats();
    assert!(stats.background_error.is_none() && stats.merges > 0 && stats.dead_records == 0, "{stats:?}");
    assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "nothing is wrong with it");
    cask.close().unwrap();
    let cask = open(&disk);
    assert_eq!((cask.len(), cask.recovery().bad_hints.len() as u64), (5, stats.sealed_files));
}

/// Goal: on a full disk files of which nothing lives go all the same, and others as soon as there is room for what lives in one of them; by merges
/// that nobody asked for, and by a compaction.
#[test]
fn a_full_disk_keeps_no_merge_that_makes_room() {
    // How many of 63 records of two files are dead, and for how many there is room: for what lives in none of them, or in one.
    for (dead, room) in [([63, 33], 16), ([38, 33], 48)] {
        for compacts in [false, true] {
            let disk = SimDisk::new();
            let options = CaskOptions { file_bytes: 64 << 10, ..options() };
            let cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
            for file in 0..2u8 {
                for n in 0..63 {
                    cask.put([file, n], [n; 1000]).unwrap();
                }
            }
            cask.put("begins", [0; 4000]).unwrap();
            for (file, dead) in (0..2u8).zip(dead) {
                for n in 0..dead {
                    cask.put([file, n], "").unwrap();
                }
            }
            let before = cask.stats();
            assert_eq!((before.sealed_files, before.merges), (2, 0), "{before:?}");
            cask.close().unwrap();
            let space = disk.env().files.space(Path::new("/store")).unwrap();
            disk.set_capacity(Some(space.total - space.available + room * 1024));
            let merge_garbage_ratio = if compacts { 1.0 } else { 0.3 };
            // Does what is due.
            let cask =
                Cask::open_with_env("/store", CaskOptions { merge_garbage_ratio, ..options }, disk.env()).unwrap();
            if compacts {
                cask.compact().unwrap();
            }
            let after = cask.stats();
            let what = format!("dead {dead:?}, compacts {compacts}: {after:?}");
            assert!(after.dead_bytes < 1000 && after.background_error.is_none(), "{what}");
            let lived = before.bytes - before.dead_bytes;
            assert!(after.merge_written_bytes < lived + (room + 4) * 1024, "{what}");
            assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
        }
    }
}

/// Goal: many copies of a store that is written slowly, from several stripes, leave it few files; a compaction hardly more than one.
#[test]
fn small_files_do_not_pile_up() {
    let disk = SimDisk::new();
    let options = CaskOptions { stripes: 4, file_bytes: 64 << 10, ..options() };
    let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
    let mut most = 0;
    for round in 0..50u32 {
        for stripe in 0..4u32 {
            let to = CaskWriteOptions { stripe: Some(stripe as usize), ..CaskWriteOptions::default() };
            cask.put_with([round.to_le_bytes(), stripe.to_le_bytes()].concat(), [1; 50], &to).unwrap();
        }
        if round % 2 == 0 {
            cask.backup("/backup", &mut |_| {}).unwrap();
        } else {
            cask.checkpoint(format!("/checkpoint{round}")).unwrap();
        }
        most = cask.stats().files.max(most);
    }
    assert!(most < 40, "{most}");
    cask.compact().unwrap();
    assert!(cask.stats().files < 4, "{:?}", cask.stats());
    let written = cask.stats().merge_written_bytes;
    cask.compact().unwrap();
    assert_eq!((cask.len(), cask.stats().merge_written_bytes), (200, written), "there was nothing to do");
    assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
}

/// Goal (W4): a synced answer that changes nothing makes durable what it was given by, as does one that finds a value where none was wanted.
#[test]
fn a_synced_condition_that_does_not_hold_makes_durable_what_it_saw() {
    let synced = CaskWriteOptions { sync: true, ..CaskWriteOptions::default() };
    let asks: [fn(&Cask, &CaskWriteOptions) -> bool; 3] = [
        |cask, synced| cask.put_if_absent("key", "other", synced).unwrap(),
        |cask, synced| cask.compare_and_set("key", Some(b"other"), Some(b"x"), synced).unwrap(),
        |cask, synced| cask.compare_and_set("key", None, None, synced).unwrap(),
    ];
    for ask in asks {
        let disk = SimDisk::new();
        let cask = open(&disk);
        cask.put("key", "value").unwrap();
        assert!(!ask(&cask, &synced));
        let image = disk.after_power_loss(Survivors::Nothing);
        assert_eq!(open(&image).get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

/// Goal (W4): who is told that a key has no value, durably, is told so by a compare-and-set that has nothing to write, too.
#[test]
fn a_synced_compare_and_set_of_nothing_makes_the_deletion_durable() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put("key", "value").unwrap();
    cask.sync().unwrap();
    cask.delete("key").unwrap();
    let synced = CaskWriteOptions { sync: true, ..CaskWriteOptions::default() };
    assert!(cask.compare_and_set("key", None, None, &synced).unwrap());
    let image = disk.after_power_loss(Survivors::Nothing);
    assert!(open(&image).get("key").unwrap().is_none());
}

/// Goal: a seal that has no room, for hint and manifest, is tried again and again; the hint is written once when there is some.
#[test]
fn a_hint_is_made_up_for_once() {
    for hint_comes_later in [false, true] {
        let (disk, attempts, hints) = (SimDisk::new(), Arc::new(AtomicU64::new(50)), Arc::new(AtomicU64::new(0)));
        let (left, made) = (attempts.clone(), hints.clone());
        let files = Hooked::new(disk.env().files, move |call| {
            let Call::Create(path) = call else { return Ok(()) };
            let is_hint = path.to_string_lossy().ends_with(".hint.new");
            let left = left.load(Ordering::Relaxed);
            let is_refused =
                is_hint && left > 0 || path.ends_with("MANIFEST.new") && left > u64::from(hint_comes_later);
            if is_refused {
                return Err(esker::env::Error::new("creating", path, std::io::ErrorKind::StorageFull.into()));
            }
            made.fetch_add(u64::from(is_hint), Ordering::Relaxed);
            Ok(())
        });
        let env = Env { files: Arc::new(files), ..disk.env() };
        attempts.store(0, Ordering::Relaxed);
        let cask = Cask::open_with_env("/store", options(), env).unwrap();
        cask.put("key", "value").unwrap();
        attempts.store(50, Ordering::Relaxed);
        while attempts.fetch_sub(1, Ordering::Relaxed) > 1 + u64::from(hint_comes_later) {
            assert_eq!(cask.compact().unwrap_err().kind(), ErrorKind::Exhausted);
        }
        if hint_comes_later {
            // Sealed without its hint.
            cask.compact().unwrap();
            assert_eq!(hints.load(Ordering::Relaxed), 0);
            attempts.store(0, Ordering::Relaxed);
        }
        cask.compact().unwrap();
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        cask.compact().unwrap();
        assert_eq!(hints.load(Ordering::Relaxed), 1, "the hint later: {hint_comes_later}");
    }
}

/// Goal: what is written while a sync runs does not pass for synced by it: the next one takes it along.
#[test]
fn a_sync_vouches_for_nothing_that_came_beside_it() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let cask = Arc::new(Cask::open_with_env("/store", options(), meanwhile.env(&disk)).unwrap());
    cask.put("before", "x").unwrap();
    let other = cask.clone();
    meanwhile.before(|call| matches!(call, Call::Synced(_)), move || assert!(other.put("beside", "x").is_ok()));
    cask.sync().unwrap();
    assert!(meanwhile.is_done());
    cask.sync().unwrap();
    let cask = open(&disk.after_power_loss(Survivors::Nothing));
    assert!(cask.exists("before").unwrap() && cask.exists("beside").unwrap());
}

/// Goal: until a file that has ended is durable, whoever syncs syncs it, too.
#[test]
fn a_file_that_could_not_be_sealed_is_synced_by_who_asks() {
    let put_until = |disk: &SimDisk, is_enough: &dyn Fn() -> bool| {
        let (cask, mut count) = (open(disk), 0u32);
        while !is_enough() {
            cask.put(count.to_be_bytes(), [b'f'; 900]).unwrap();
            count += 1;
        }
        (cask, count)
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    put_until(&healthy, &|| !operations(&healthy, 0, "seal").is_empty());
    let seal = operations(&healthy, 0, "seal")[0];
    let disk = SimDisk::new();
    disk.fail_at(seal, Fault::Eio);
    let (cask, count) = put_until(&disk, &|| disk.op_count() > seal);
    assert!(cask.stats().background_error.is_some() && cask.stats().sealed_files == 0);
    cask.sync().unwrap();
    let cask = open(&disk.after_power_loss(Survivors::Nothing));
    assert!((0..count).all(|n| cask.exists(n.to_be_bytes()).unwrap()));
}

/// Goal: a synced batch makes durable what was written before it, though there is nothing in it.
#[test]
fn an_empty_synced_batch_is_a_barrier() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put("before", "x").unwrap();
    let synced = CaskWriteOptions { sync: true, ..CaskWriteOptions::default() };
    cask.write(&CaskBatch::new(), &synced).unwrap();
    assert!(open(&disk.after_power_loss(Survivors::Nothing)).exists("before").unwrap());
}
