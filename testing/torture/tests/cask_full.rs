//! A Cask on a full disk: what is deleted makes room, and once it has, everything goes on.

use std::collections::VecDeque;

use esker::env::sim::SimDisk;
use esker::{Cask, CaskOptions, ErrorKind};
use esker_torture::seeds;
use fastrand::Rng;

fn open(disk: &SimDisk, options: &CaskOptions) -> Cask {
    Cask::open_with_env("/cask", options.clone(), disk.env()).unwrap()
}

/// Of any length: so are deletions.
fn key(number: u64) -> Vec<u8> {
    let mut key = number.to_le_bytes().to_vec();
    key.resize(8 + (number % 300) as usize, 0);
    key
}

fn used(disk: &SimDisk) -> u64 {
    let space = disk.env().files.space("/cask".as_ref()).unwrap();
    space.total - space.available
}

/// New keys, until there is no room for more, most of them with values of about so many bytes.
fn fill(cask: &Cask, random: &mut Rng, most: usize, keys: &mut VecDeque<u64>) {
    for bytes in [most, 500, 60, 1] {
        let error = loop {
            let (number, value) = (random.u64(..), vec![7; random.usize(bytes / 2..bytes * 3 / 2 + 1)]);
            match cask.put(key(number), value) {
                Ok(_) => keys.push_back(number),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
}

/// Deletes all keys; where that finds no room, the store is compacted. What is left when neither gets on.
fn delete(cask: &Cask, keys: &mut VecDeque<u64>) -> esker::Result<()> {
    while let Some(number) = keys.front() {
        if let Err(error) = cask.delete(key(*number)) {
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            let _ = cask.compact();
            cask.delete(key(*number))?;
        }
        keys.pop_front();
    }
    cask.compact()
}

/// Goal: a store that has filled its disk, or whose disk others filled, is emptied key by key, gives its space back, and is written to again; however
/// often, and where it was opened again meanwhile, too. Whatever is deleted first: as long as no others take the room that is left for merges. Then what
/// deletions have must do for a whole file.
#[test]
fn what_is_deleted_on_a_full_disk_makes_room() {
    for seed in seeds(40) {
        let mut random = Rng::with_seed(seed);
        let file_bytes = random.u64(8 << 10..64 << 10);
        let options = CaskOptions {
            create_if_missing: true,
            stripes: random.usize(1..4),
            file_bytes,
            background_jobs: 0,
            ..CaskOptions::default()
        };
        let mut disk = SimDisk::new();
        let capacity = (128 << 10) + random.u64(4..20) * file_bytes + random.u64(..file_bytes);
        disk.set_capacity(Some(capacity));
        let mut cask = open(&disk, &options);
        let mut keys = VecDeque::new();
        for round in 0..4 {
            disk.set_capacity(Some(capacity));
            let others_come = random.bool();
            let most = if others_come { 2000 } else { random.usize(50..3000) };
            fill(&cask, &mut random, most, &mut keys);
            let is_taken = others_come && disk.paths().iter().any(|path| path.ends_with("RESERVE"));
            if is_taken {
                disk.set_capacity(Some(used(&disk)));
            }
            if random.bool() {
                match random.u8(..3) {
                    0 => cask.close().unwrap(),
                    1 => {
                        disk = disk.after_process_death();
                        drop(cask);
                    }
                    _ => drop(cask),
                }
                cask = open(&disk, &options);
                fill(&cask, &mut random, most, &mut keys);
            }
            if !is_taken {
                random.shuffle(keys.make_contiguous());
            }
            let said = |what: &str, done: esker::Result<()>| {
                done.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {what}: {error}"));
            };
            said("deleting", delete(&cask, &mut keys));
            said("writing", cask.put("key", vec![7; 3000]).map(drop));
            assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        }
    }
}

/// Goal: what is left for merges and deletions is a small part of a small disk, whatever the options were made for.
#[test]
fn a_store_has_most_of_a_small_disk() {
    for capacity in [2 << 20, 8 << 20, 32 << 20] {
        let disk = SimDisk::new();
        disk.set_capacity(Some(capacity));
        let options = CaskOptions { create_if_missing: true, background_jobs: 0, ..CaskOptions::default() };
        let cask = open(&disk, &options);
        let mut keys = VecDeque::new();
        fill(&cask, &mut Rng::with_seed(capacity), 2000, &mut keys);
        let lived = cask.stats().bytes;
        assert!(lived > capacity / 4 * 3, "{lived} of {capacity}");
        delete(&cask, &mut keys).unwrap();
        cask.put("key", [7; 3000]).unwrap();
    }
}
