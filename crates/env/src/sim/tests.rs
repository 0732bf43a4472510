//! One test for each sentence of the module's head.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{AppendFile, Clock, Entropy, FileSystem, PAD_BYTES, Result};

const SEEDS: u64 = 200;

fn path(name: &str) -> PathBuf {
    Path::new("/store").join(name)
}

/// A disk with the durable directory `/store`.
fn store() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/store")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn create(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn AppendFile> {
    let file = disk.create(&path(name)).unwrap();
    file.append(&[bytes]).unwrap();
    file
}

/// A file whose bytes and name are durable.
fn create_durable(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn AppendFile> {
    let file = create(disk, name, bytes);
    file.sync().unwrap();
    disk.sync_dir(Path::new("/store")).unwrap();
    file
}

fn names(disk: &SimDisk) -> Vec<String> {
    let name = |path: PathBuf| path.strip_prefix("/store").unwrap().display().to_string();
    disk.paths().into_iter().map(name).collect()
}

/// Every disk that a power loss may leave, as far as `SEEDS` samples find them.
fn samples(disk: &SimDisk) -> impl Iterator<Item = SimDisk> {
    (0..SEEDS).map(|seed| disk.after_power_loss(Survivors::Sample { seed }))
}

/// What is found in the samples, each once.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> Vec<T> {
    let mut found: Vec<T> = samples(disk).map(|disk| look(&disk)).collect();
    found.sort();
    found.dedup();
    found
}

fn after(disk: &SimDisk, survivors: Survivors, name: &str) -> Option<Vec<u8>> {
    disk.after_power_loss(survivors).file_bytes(&path(name))
}

fn file_bytes(disk: &SimDisk, name: &str) -> Vec<u8> {
    disk.file_bytes(&path(name)).unwrap()
}

fn kind<T>(result: Result<T>) -> std::io::ErrorKind {
    match result {
        Ok(_) => panic!("a call succeeded that must fail"),
        Err(error) => error.kind(),
    }
}

mod bytes;
mod counting;
mod names_lost;
mod space;
mod windows;

/// A file of three sectors of `o`, recycled as `new`.
fn recycled(disk: &SimDisk) -> Arc<dyn AppendFile> {
    create_durable(disk, "old", &[b'o'; 1536]);
    disk.recycle(&path("old"), &path("new")).unwrap()
}

/// S6.
#[test]
fn a_recycled_file_may_have_sectors_of_its_earlier_life_after_a_power_loss() {
    let disk = store();
    let file = recycled(&disk);
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), ["new"], "the name is durable at once");
    file.append(&[&[b'n'; 1024]]).unwrap();
    let sectors = |disk: &SimDisk| {
        let bytes = file_bytes(disk, "new");
        assert_eq!(bytes.len(), 1536);
        let of = |at: usize| (bytes[at * 512], bytes[at * 512 + 511]);
        (of(0), of(1), of(2))
    };
    let (old, new, marked) = ((b'o', b'o'), (b'n', b'n'), (0, b'o'));
    assert_eq!(sectors(&disk.after_power_loss(Survivors::Nothing)), (old, old, old));
    assert_eq!(sectors(&disk.after_power_loss(Survivors::Everything)), (new, new, marked));
    assert_eq!(outcomes(&disk, sectors).len(), 8, "each sector for itself");
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, sectors), [(new, new, marked)]);
    file.append(&[b"more"]).unwrap();
    file.seal().unwrap();
    let lengths = outcomes(&disk, |disk| file_bytes(disk, "new").len());
    assert_eq!(lengths, [1028, 1536]);
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, |disk| file_bytes(disk, "new").len()), [1028]);
}

#[test]
fn a_process_that_dies_leaves_zeroes_and_the_earlier_life_behind_a_recycled_files_end() {
    let disk = store();
    let file = recycled(&disk);
    file.append(&[b"one"]).unwrap();
    let left = disk.after_process_death();
    let bytes = file_bytes(&left, "new");
    assert_eq!((&bytes[..11], bytes[11], bytes.len()), (&b"one\0\0\0\0\0\0\0\0"[..], b'o', 1536));
    let again = left.reopen(&path("new"), 3).unwrap();
    again.append(&[b" two"]).unwrap();
    assert_eq!(file_bytes(&left, "new"), b"one two");
    assert_eq!(after(&left, Survivors::Nothing, "new").unwrap(), [b'o'; 1536], "nothing of it was synced");

    // Within an append, the first bytes come last.
    disk.die_within(disk.op_count(), 10..12);
    assert!(file.append(&[b"0123456789abcdef"]).is_err());
    let bytes = file_bytes(&disk.after_process_death(), "new");
    assert_eq!(&bytes[..16], b"one\0\0\0\0\0\0\0\0ooabo");
}

/// Goal: a padded file is written by calls: who dies in one leaves a beginning of it, in whole blocks, and zeroes.
#[test]
fn a_death_within_an_append_to_a_padded_file_leaves_a_beginning() {
    let disk = store();
    let file = disk.create(&path("padded")).unwrap();
    file.pad();
    file.append(&[&[b'a'; 100]]).unwrap();
    disk.die_within(disk.op_count(), 10..6000);
    assert!(file.append(&[&[b'b'; 8000]]).is_err());
    let bytes = file_bytes(&disk.after_process_death(), "padded");
    let (first, rest) = bytes.split_at(4096);
    assert!(first == [[b'a'; 100].as_slice(), &[b'b'; 3996]].concat());
    assert!(rest.iter().all(|&byte| byte == 0) && bytes.len() as u64 == PAD_BYTES);
}

#[test]
fn what_a_failed_sync_drops_of_a_recycled_file_is_its_earlier_life_again() {
    let disk = store();
    let file = recycled(&disk);
    file.append(&[&[b'n'; 600]]).unwrap();
    disk.fail_at(disk.op_count(), Fault::Eio);
    assert!(file.sync().is_err());
    assert!(file_bytes(&disk, "new").starts_with(&[b'n'; 600]));
    let left = after(&disk, Survivors::Everything, "new").unwrap();
    assert!(left.starts_with(&[b'o'; 600]), "D4");
    assert!(disk.flip_bit(&path("new"), 1500 * 8) && file_bytes(&disk, "new")[1500] == b'o' ^ 1);
}

#[test]
fn a_clock_stands_still_until_somebody_waits() {
    let disk = SimDisk::new();
    let clock = disk.clock();
    assert_eq!(clock.monotonic(), Duration::ZERO);
    disk.env().clock.sleep(Duration::from_secs(90));
    clock.advance(Duration::from_millis(5));
    assert_eq!(clock.monotonic(), Duration::from_millis(90_005));
    assert_eq!(clock.unix_seconds(), 1_600_000_090);
    assert_eq!(disk.after_process_death().clock().monotonic(), clock.monotonic(), "time goes on over a restart");
}

#[test]
fn disks_on_which_processes_find_the_same_have_one_hash() {
    let hash = |disk: &SimDisk| {
        let mut hasher = std::hash::DefaultHasher::new();
        disk.hash_live(&mut hasher);
        hasher.finish()
    };
    let disk = store();
    let file = create(&disk, "file", b"some bytes");
    let first = hash(&disk);
    file.sync().unwrap();
    assert_eq!(hash(&disk), first, "what is durable does not count");
    assert_ne!(hash(&disk.after_power_loss(Survivors::Nothing)), first, "its name is not durable");
    assert_eq!(hash(&disk.after_process_death()), first);
    assert_eq!(hash(&disk.after_power_loss(Survivors::Everything)), first);
    type Change = fn(&SimDisk, &dyn AppendFile);
    let changes: [(&str, Change); 7] = [
        ("bytes", |_, file| file.append(&[b"!"]).unwrap()),
        ("a length", |_, file| assert!(file.preallocate(5000).unwrap())),
        ("a hole", |disk, _| disk.punch_hole(&path("file"), 0..4096).unwrap()),
        ("a directory", |disk, _| disk.create_dir_all(&path("more")).unwrap()),
        ("a link", |disk, _| disk.link(&path("file"), &path("other")).unwrap()),
        ("a name", |disk, _| disk.rename(&path("other"), &path("another")).unwrap()),
        ("the time", |disk, _| disk.clock().advance(Duration::from_secs(1))),
    ];
    let mut found = vec![first];
    for (what, change) in changes {
        change(&disk, &*file);
        assert!(!found.contains(&hash(&disk)), "{what}");
        found.push(hash(&disk));
    }
}

#[test]
fn entropy_repeats_its_seed_and_goes_on_over_a_restart() {
    let draw = |disk: &SimDisk| {
        let mut bytes = [0; 16];
        disk.env().entropy.fill(&mut bytes);
        bytes
    };
    let (one, other) = (SimDisk::new(), SimDisk::new());
    let first = draw(&one);
    assert_eq!(first, draw(&other));
    assert_ne!(first, draw(&one.after_process_death()));
    let mut seeded = [0; 16];
    SeededEntropy::new(7).fill(&mut seeded);
    assert_ne!(first, seeded);
}

#[test]
fn a_workload_of_ten_thousand_operations_and_its_crashes_are_quick() {
    // Not a benchmark: a copy of the file for each operation would take minutes.
    let disk = store();
    let file = create_durable(&disk, "a", b"");
    for round in 0..10_000u32 {
        file.append(&[&round.to_le_bytes(), &[7; 1000]]).unwrap();
        if round % 4 == 0 {
            file.sync().unwrap();
        }
    }
    assert_eq!(samples(&disk).take(5).map(|disk| disk.paths().len()).sum::<usize>(), 5);
}
