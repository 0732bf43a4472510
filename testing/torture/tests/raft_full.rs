//! A Raft log on a full disk: what frees goes ahead, and once it has, so does everything else.

use esker::env::sim::SimDisk;
use esker::raft::{ErrorKind, Options};
use esker::{LogBatch, RaftLog, Result};
use esker_format::raft::file_name::RESERVES;
use esker_torture::seeds;
use fastrand::Rng;

const GROUPS: u64 = 30;

fn open(disk: &SimDisk, options: &Options) -> RaftLog {
    RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap()
}

fn used(disk: &SimDisk) -> u64 {
    let space = disk.env().files.space("/log".as_ref()).unwrap();
    space.total - space.available
}

/// Entries for a group, until there is no room for more.
fn fill(log: &RaftLog, random: &mut Rng) {
    let mut batch = LogBatch::new();
    // Small ones leave less room than large ones, and no batch that finds none says that there is none for the next.
    for bytes in [2000, 500, 60, 1] {
        let error = loop {
            let group = random.u64(1..=GROUPS);
            let index = log.last_index(group).map_or(1, |last| last + 1);
            batch.clear();
            batch.add_entries(group, index, [vec![7; random.usize(bytes / 2..bytes * 3 / 2 + 1)]]).unwrap();
            if let Err(error) = log.write(&mut batch, random.u8(..8) == 0) {
                break error;
            }
            if random.u16(..200) == 0 {
                // It may find no room for what it would move.
                let _ = log.purge();
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
}

/// Every group is compacted to its end, or ended, one by one. Somebody writes whenever there is room, all to one group, which ends last. Then somebody
/// deletes as much as may be, of which nothing is there.
fn free(log: &RaftLog, random: &mut Rng) -> Result<()> {
    let (mut batch, busy, cleans) = (LogBatch::new(), GROUPS + 1, random.u8(..4) == 0);
    for group in log.groups().into_iter().chain([busy]) {
        while group != busy && random.u8(..4) > 0 {
            let index = log.last_index(busy).map_or(1, |last| last + 1);
            batch.add_entries(busy, index, [vec![7; random.usize(..3000)]]).unwrap();
            let _ = log.write(&mut batch, false);
            batch.clear();
        }
        match log.last_index(group) {
            Some(last) if !cleans => drop(log.compact_to(group, last + 1)?),
            _ => {
                batch.clean(group);
                log.write(&mut batch, false)?;
            }
        }
    }
    for n in 0..40 {
        batch.delete(busy, &[n; 1000]);
        let _ = log.write(&mut batch, false);
        batch.clear();
    }
    Ok(())
}

/// Goal: on a disk that the log has filled, wherever that was, groups are compacted and ended, a purge gives files up for it, and writing goes on;
/// however often, and where it was opened again meanwhile, too.
#[test]
fn what_frees_goes_ahead_on_a_full_disk_and_writing_after_it() {
    for seed in seeds(100) {
        let mut random = Rng::with_seed(seed);
        let file_bytes = random.u64(16 << 10..64 << 10);
        let options = Options {
            file_bytes,
            purge_threshold_bytes: file_bytes * 4,
            recycle_files: random.bool(),
            spill_dir: random.bool().then(|| "/spill".into()),
            ..Options::default()
        };
        let mut disk = SimDisk::new();
        // Not always for a whole file.
        let base = if options.spill_dir.is_some() { 96 << 10 } else { 48 << 10 };
        disk.set_capacity(Some(base + random.u64(..8) * file_bytes + random.u64(..file_bytes)));
        let mut log = open(&disk, &options);
        for round in 0..4 {
            fill(&log, &mut random);
            assert!(log.stats().entries > 0, "seed {seed}, round {round}");
            // A purge that brought nothing may have taken of it.
            let kept = disk.paths().iter().filter(|path| RESERVES.iter().any(|name| path.ends_with(name))).count();
            let is_kept = kept == RESERVES.len() * if options.spill_dir.is_some() { 2 } else { 1 };
            if is_kept && random.bool() {
                // Others take what is left.
                disk.set_capacity(Some(used(&disk)));
            }
            if random.bool() {
                match random.u8(..3) {
                    0 => log.close().unwrap(),
                    1 => disk = disk.after_process_death(),
                    _ => {}
                }
                drop(log);
                log = open(&disk, &options);
                fill(&log, &mut random);
            }
            let said = |what: &str, done: Result<()>| {
                done.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {what}: {error}"));
            };
            said("freeing", free(&log, &mut random));
            said("purging", log.purge().map(drop));
            let mut batch = LogBatch::new();
            let index = log.last_index(1).map_or(1, |last| last + 1);
            batch.add_entries(1, index, [vec![7; 3000]]).unwrap();
            said("writing", log.write(&mut batch, true).map(drop));
        }
    }
}
