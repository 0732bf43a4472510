//! A call of the disk fails: the Raft log says so, loses nothing, and goes on where it can.

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::raft::{ErrorKind, FileId, Options, Queue, RecoveryMode, Version};
use esker::{LogBatch, RaftLog};
use esker_format::raft::file_header::FileHeader;
use esker_torture::crash::{
    FAULTS, Replay, Tally, disk, every_read_of_an_open_fails, faults, images, is_warned, kept_by_reopening, operations,
    power_losses,
};
use esker_torture::raft::{Ledger, Op, Step, contents, options, reads_without_lost_pages, steps};
use esker_torture::seeds;
use fastrand::Rng;
use std::collections::BTreeSet;
use std::path::Path;

const FILE: &str = "raft_faults";

fn scene(seed: u64) -> (Options, Vec<Step>) {
    let mut random = Rng::with_seed(seed);
    let options = options(&mut random);
    (options, steps(&mut random, 60))
}

fn open(disk: &SimDisk, options: &Options) -> esker::Result<RaftLog> {
    RaftLog::open_with_env("/log", options.clone(), disk.env())
}

/// Goal: after any single failed call, answers stay right; a failure that says that nothing was written is true; and what
/// was acknowledged survives the crash that follows.
#[test]
fn every_call_may_fail_once() {
    let test = "every_call_may_fail_once";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        let (options, steps) = scene(300 + seed);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let log = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        let mut ledger = Ledger::default();
        steps.iter().for_each(|step| ledger.step(&log, step).unwrap());
        let ops = healthy.op_count();
        for (n, fault) in faults(&healthy, first..ops) {
            one_fault(Replay { file: FILE, test, seed }, &options, &steps, n, fault, &tally);
        }
    }
}

/// Takes steps; a batch that was refused is not there, and those behind it may be refused for its sake. Ends when the log takes no
/// more.
fn run_on(log: &RaftLog, steps: &[Step], ledger: &mut Ledger) {
    for step in steps {
        if ledger.step(log, step).is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
            break;
        }
    }
}

fn one_fault(replay: Replay, options: &Options, steps: &[Step], n: u64, fault: Fault, tally: &Tally) {
    let what = format!("{replay}: operation {n} fails with {fault:?}");
    tally.fault();
    let disk = disk(replay.seed);
    let log = open(&disk, options).unwrap();
    disk.fail_at(n, fault);
    let mut ledger = Ledger::default();
    run_on(&log, steps, &mut ledger);
    answers(&disk, &log, &ledger).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    for image in images(&disk, n) {
        let what = format!("{what}, then {}", image.name);
        tally.image();
        let log = open(&image.disk, options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = contents(&log).unwrap();
        assert!(ledger.prefix(&found, ledger.least(image.promise)).is_some(), "{what}: lost");
    }
    drop(log);
    let log = open(&disk, options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
    let least = ledger.least(kept_by_reopening(&disk));
    assert!(ledger.prefix(&contents(&log).unwrap(), least).is_some(), "{what}: lost by reopening");
}

/// Reading goes on, and every answer is right.
fn answers(disk: &SimDisk, log: &RaftLog, ledger: &Ledger) -> Result<(), String> {
    if disk.has_evicted() {
        return reads_without_lost_pages(log, ledger);
    }
    let found = contents(log).map_err(|error| format!("reading goes on: {error}"))?;
    let known = ledger.prefix(&found, ledger.acknowledged);
    known.map(drop).ok_or_else(|| "the answers are those of no prefix".to_owned())
}

/// Goal: what a failed sync dropped may be readable until the power goes, so the next process takes it for good: what that one
/// promises must not rest on it. A system says nothing of it a second time.
#[test]
fn a_failed_sync_costs_the_next_life_nothing() {
    let test = "a_failed_sync_costs_the_next_life_nothing";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(600 + seed);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let log = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&log, &steps, &mut Ledger::default());
        drop(log);
        for n in operations(&healthy, first, "sync") {
            let what = format!("{replay}: sync {n} fails");
            let disk = disk(seed);
            let log = open(&disk, &options).unwrap();
            disk.fail_at(n, Fault::Eio);
            run_on(&log, &steps, &mut Ledger::default());
            drop(log);
            tally.fault();
            let log = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
            let mut ledger = Ledger::found(&contents(&log).unwrap());
            for round in 0..8u8 {
                let ops = vec![Op::Put(1 + u64::from(round % 3), b"second life".to_vec(), vec![round; 300])];
                ledger.step(&log, &Step::Write(ops, round == 3)).unwrap();
            }
            ledger.step(&log, &Step::Sync).unwrap();
            drop(log);
            for image in power_losses(&disk, n) {
                let what = format!("{what}, reopened, written to, synced, then {}", image.name);
                tally.image();
                let log = open(&image.disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                let found = contents(&log).unwrap();
                assert!(ledger.prefix(&found, ledger.durable).is_some(), "{what}: what was promised is lost");
            }
        }
    }
}

/// Goal: a disk that refuses everything that changes it, for as long as it likes, makes no wrong answer, and loses nothing.
#[test]
fn a_disk_that_goes_on_failing_makes_no_wrong_answer() {
    let test = "a_disk_that_goes_on_failing_makes_no_wrong_answer";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(700 + seed);
        let healthy = disk(seed);
        let log = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&log, &steps, &mut Ledger::default());
        drop(log);
        for (n, fault) in (first..healthy.op_count()).step_by(3).zip([Fault::Eio, Fault::NoSpace].into_iter().cycle()) {
            let what = format!("{replay}: from operation {n} on all fail with {fault:?}");
            let disk = disk(seed);
            let log = open(&disk, &options).unwrap();
            disk.fail_from(n, fault);
            let mut ledger = Ledger::default();
            run_on(&log, &steps, &mut ledger);
            tally.fault();
            answers(&disk, &log, &ledger).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            drop(log);
            disk.heal();
            let log = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, then healed: {error}"));
            let found = contents(&log).unwrap();
            let least = ledger.least(kept_by_reopening(&disk));
            assert!(ledger.prefix(&found, least).is_some(), "{what}: lost by reopening");
            let mut batch = LogBatch::new();
            batch.put(1, b"healed", b"yes").unwrap();
            log.write(&mut batch, true).unwrap();
        }
    }
}

/// Goal: whatever read of an open fails, that open takes nothing for missing or trustworthy that is not.
#[test]
fn every_read_of_an_open_may_fail() {
    let test = "every_read_of_an_open_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(900 + seed);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let log = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&log, &steps, &mut Ledger::default());
        // The process dies in health, or once a sync has failed.
        let syncs = operations(&healthy, first, "sync");
        for failed in [None, syncs.get(syncs.len() / 2), syncs.last()] {
            let what = format!("{replay}: sync {failed:?} failed before");
            let disk = disk(seed);
            let log = open(&disk, &options).unwrap();
            failed.into_iter().for_each(|&n| disk.fail_at(n, Fault::Eio));
            run_on(&log, &steps, &mut Ledger::default());
            let image = disk.after_process_death();
            let synced = |log: &RaftLog| log.sync().and_then(|()| contents(log));
            every_read_of_an_open_fails(&image, &what, &tally, |disk| open(disk, &options), synced);
        }
    }
}

/// Goal: a bit that flips on its way from the disk, in any one read of an open and of reading all, is never part of an answer,
/// and what is missing for its sake is said to be.
#[test]
fn a_bit_flipped_in_any_read_is_no_wrong_answer() {
    let test = "a_bit_flipped_in_any_read_is_no_wrong_answer";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(800 + seed);
        let options = Options { recovery_threads: 1, ..options };
        let healthy = disk(seed);
        let log = open(&healthy, &options).unwrap();
        let mut ledger = Ledger::default();
        run_on(&log, &steps, &mut ledger);
        drop(log);
        let expected = ledger.after(ledger.batches.len());
        let reads = {
            let disk = healthy.after_process_death();
            let log = open(&disk, &options).unwrap();
            assert!(contents(&log).unwrap() == expected);
            disk.read_count()
        };
        let mut noticed = 0;
        for n in 0..reads {
            let what = format!("{replay}: a bit flips in read {n}");
            let disk = healthy.after_process_death();
            disk.fail_read_at(n, ReadFault::FlippedBit { bit: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 });
            tally.fault();
            match open(&disk, &options).and_then(|log| Ok((contents(&log)?, log.recovery().cuts.len()))) {
                Ok((found, 0)) => assert!(found == expected, "{what}: a wrong answer"),
                // The end of a queue that does not check out is cut, and the recovery says so.
                Ok(_) => noticed += 1,
                Err(error) => {
                    noticed += 1;
                    let is_typed = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat);
                    assert!(is_typed, "{what}: {error}");
                }
            }
        }
        assert!(noticed > 0, "of {reads} flips none was noticed");
    }
}

/// Goal (Q2): whatever of the next file's beginning fails, the last one takes batches again, and no power loss makes it the last but one,
/// which may not be torn.
/// Method: a file that is not full is left on demand; that fails at each of its operations, and writing goes on without a sync until the
/// power goes.
#[test]
fn a_file_that_could_not_be_begun_does_not_come_back() {
    let options = Options { file_bytes: 16 << 10, recovery_threads: 1, ..Options::default() };
    let play = |disk: &SimDisk, ledger: &mut Ledger| {
        let log = open(disk, &options).unwrap();
        for index in 0..8u64 {
            if index == 4 {
                let _ = log.move_on(None);
            }
            let ops = vec![Op::Entries(1, 1 + index, vec![vec![index as u8; 700]])];
            let _ = ledger.step(&log, &Step::Write(ops, index == 1));
        }
        // To close it would be to sync it.
        log
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    drop(play(&healthy, &mut Ledger::default()));
    let begins = |line: &String| line.contains(" create /log/0000000000000002.raftlog");
    let first = healthy.trace().iter().position(begins).expect("the file is left") as u64;
    for n in first..first + 4 {
        for fault in FAULTS {
            let disk = SimDisk::new();
            disk.fail_at(n, fault);
            let mut ledger = Ledger::default();
            let _log = play(&disk, &mut ledger);
            for seed in 0..40 {
                let image = disk.after_power_loss(Survivors::Sample { seed });
                let log = open(&image, &options).unwrap_or_else(|error| panic!("{n} {fault:?} {seed}: {error}"));
                assert!(ledger.prefix(&contents(&log).unwrap(), ledger.durable).is_some(), "{n} {fault:?} {seed}");
            }
        }
    }
}

/// Goal: the same where the other directory was to take the next file, and the process dies while it takes that back: the next life, too, sees to
/// it that it is gone before it goes on.
#[test]
fn a_file_that_could_not_be_begun_elsewhere_does_not_come_back_in_the_next_life() {
    let options =
        Options { spill_dir: Some("/spill".into()), file_bytes: 16 << 10, recovery_threads: 1, ..Options::default() };
    let write = |log: &RaftLog, ledger: &mut Ledger, index: u64| {
        ledger.step(log, &Step::Write(vec![Op::Entries(1, index, vec![vec![index as u8; 700]])], false))
    };
    let begin = || {
        let (disk, mut ledger) = (SimDisk::new(), Ledger::default());
        disk.set_tracing(true);
        let log = open(&disk, &options).unwrap();
        (1..4).for_each(|index| write(&log, &mut ledger, index).unwrap());
        // Now the first directory is full.
        disk.fail_at(disk.op_count(), Fault::NoSpace);
        (disk, log, ledger)
    };
    let (healthy, log, mut ledger) = begin();
    let first = healthy.op_count();
    write(&log, &mut ledger, 4).unwrap();
    let names = operations(&healthy, first, "sync_dir").pop().expect("the name is made durable");
    assert!(healthy.trace()[names as usize].ends_with("/spill"));
    for n in 1..8 {
        let (disk, log, mut ledger) = begin();
        disk.fail_at(names, Fault::Eio);
        disk.die_after(names + n);
        let _ = write(&log, &mut ledger, 4);
        let disk = disk.after_process_death();
        let log = open(&disk, &options).unwrap();
        let mut ledger = Ledger::found(&contents(&log).unwrap());
        let next = log.last_index(1).unwrap() + 1;
        (next..next + 8).for_each(|index| write(&log, &mut ledger, index).unwrap());
        for seed in 0..40 {
            let image = disk.after_power_loss(Survivors::Sample { seed });
            let log = open(&image, &options).unwrap_or_else(|error| panic!("{n}, {seed}: {error}"));
            assert!(ledger.prefix(&contents(&log).unwrap(), ledger.durable).is_some(), "{n}, {seed}");
        }
    }
}

/// Goal (Q2): a file has its header, durably, before it takes a batch: what it lost of that is no crash's work.
#[test]
fn a_file_takes_batches_only_once_its_header_is_durable() {
    let disk = SimDisk::new();
    let log = open(&disk, &Options { file_bytes: 1 << 10, ..Options::default() }).unwrap();
    for index in 0..30u64 {
        let mut batch = LogBatch::new();
        batch.add_entries(1, 1 + index, [[7; 120]]).unwrap();
        log.write(&mut batch, false).unwrap();
        let image = disk.after_power_loss(Survivors::Nothing);
        let name = FileId::new(Queue::Append, log.stats().append.last_file).to_string();
        let header = image.env().files.read(&Path::new("/log").join(&name)).unwrap();
        assert!(FileHeader::decode(&header).is_ok(), "{name} has {} bytes", header.len());
    }
    assert!(log.stats().append.last_file > 3);
}

/// Goal: a rotten byte in the last file is not a torn end, wherever it lies in a batch that others follow: an open that tolerates torn
/// ends would cut these off. What a crash can leave still is one.
#[test]
fn rot_that_whole_batches_follow_is_told_from_a_torn_end() {
    for compress_from_bytes in [0, 1] {
        let options = Options { file_bytes: 64 << 10, compress_from_bytes, recovery_threads: 1, ..Options::default() };
        let disk = SimDisk::new();
        let log = open(&disk, &options).unwrap();
        let mut ends = Vec::new();
        for index in 0..4u64 {
            let mut batch = LogBatch::new();
            let entry: Vec<u8> = (0..300).map(|at| 1 + (at * 7 + index * 13) as u8 % 250).collect();
            batch.add_entries(1, 1 + index, [entry.clone(), entry]).unwrap();
            batch.put(1, b"state", &[index as u8 + 1; 9]).unwrap();
            log.write(&mut batch, true).unwrap();
            ends.push(log.stats().append.bytes as usize);
        }
        drop(log);
        let path = Path::new("/log/0000000000000001.raftlog");
        let whole = disk.env().files.read(path).unwrap();
        for at in ends[0]..ends[2] {
            let mut rotten = whole.clone();
            rotten[at] ^= 1 << (at % 8);
            let image = with_file(path, &rotten);
            let refused =
                RaftLog::open_with_env("/log", options.clone(), image.env()).map(drop).map_err(|error| error.kind());
            assert_eq!(refused, Err(ErrorKind::Corruption), "byte {at}");
            let check = RaftLog::check_with_env("/log", &options, &image.env(), &mut |_, _| {}).unwrap();
            assert!(!check.is_sound() && check.torn.is_empty(), "byte {at}");
        }
        // A sector that was never written, before one that was; and an end anywhere.
        for sector in (ends[0].next_multiple_of(512)..ends[2] - 512).step_by(512) {
            let mut torn = whole.clone();
            torn[sector..sector + 512].fill(0);
            open(&with_file(path, &torn), &options).unwrap();
        }
        for end in ends[2]..whole.len() {
            let log = open(&with_file(path, &whole[..end]), &options).unwrap();
            assert_eq!(log.last_index(1), Some(4), "cut at {end}");
        }
    }
}

/// Goal: of a batch whose header lies in two sectors, the first one may not have reached the disk: a torn end, though one byte more would
/// make the header whole.
#[test]
fn a_header_that_lost_its_first_sector_is_a_torn_end() {
    let options = Options { file_bytes: 64 << 10, compress_from_bytes: 0, recovery_threads: 1, ..Options::default() };
    let path = Path::new("/log/0000000000000001.raftlog");
    let mut seen = BTreeSet::new();
    for (bytes, filling) in [20, 300, 3000].into_iter().flat_map(|bytes| (0..512).map(move |filling| (bytes, filling)))
    {
        let disk = SimDisk::new();
        let log = open(&disk, &options).unwrap();
        let mut batch = LogBatch::new();
        batch.add_entries(1, 1, [vec![7; filling]]).unwrap();
        log.write(&mut batch, true).unwrap();
        let begin = log.stats().append.bytes as usize;
        let front = begin.next_multiple_of(512) - begin;
        if !(1..16).contains(&front) {
            continue;
        }
        batch.add_entries(1, 2, [vec![9; bytes]]).unwrap();
        log.write(&mut batch, false).unwrap();
        let whole = disk.env().files.read(path).unwrap();
        let mut torn = whole.clone();
        torn[begin..begin + front].fill(0);
        let log = open(&with_file(path, &torn), &options)
            .unwrap_or_else(|error| panic!("{front} bytes of the header before {bytes} are lost: {error}"));
        // The first bytes of a header are zeroes in any case.
        assert_eq!(log.last_index(1), Some(if torn == whole { 2 } else { 1 }));
        seen.insert((bytes, front));
    }
    assert_eq!(seen.len(), 3 * 15, "{seen:?}");
}

/// Goal: the same where it is the second one, all of it.
#[test]
fn a_header_that_lost_its_second_sector_is_a_torn_end() {
    let options = Options { file_bytes: 64 << 10, compress_from_bytes: 0, recovery_threads: 1, ..Options::default() };
    let path = Path::new("/log/0000000000000001.raftlog");
    let mut seen = BTreeSet::new();
    for (bytes, filling) in [20, 300, 3000].into_iter().flat_map(|bytes| (0..512).map(move |filling| (bytes, filling)))
    {
        let disk = SimDisk::new();
        let log = open(&disk, &options).unwrap();
        let mut batch = LogBatch::new();
        batch.add_entries(1, 1, [vec![7; filling]]).unwrap();
        log.write(&mut batch, true).unwrap();
        let begin = log.stats().append.bytes as usize;
        let front = begin.next_multiple_of(512) - begin;
        if !(1..16).contains(&front) {
            continue;
        }
        // Of zeroes, so that little but the header is lost with the sector.
        batch.add_entries(1, 2, [vec![0; bytes]]).unwrap();
        log.write(&mut batch, false).unwrap();
        let mut torn = disk.env().files.read(path).unwrap();
        let end = torn.len().min(begin + front + 512);
        torn[begin + front..end].fill(0);
        let log = open(&with_file(path, &torn), &options)
            .unwrap_or_else(|error| panic!("all but {front} bytes of the header before {bytes} are lost: {error}"));
        assert_eq!(log.last_index(1), Some(1));
        seen.insert((bytes, front));
    }
    assert_eq!(seen.len(), 3 * 15, "{seen:?}");
}

/// A disk with one file.
fn with_file(path: &Path, bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new();
    let files = disk.env().files;
    files.create_dir_all(path.parent().unwrap()).unwrap();
    let file = files.create(path).unwrap();
    file.append(&[bytes]).unwrap();
    file.sync().unwrap();
    disk
}

/// Goal: a full disk refuses writes with `Exhausted`, and nothing else: reads go on, and so do writes once there is room.
#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    let disk = SimDisk::new();
    let options = Options { file_bytes: 4096, purge_threshold_bytes: 4096, ..Options::default() };
    let log = open(&disk, &options).unwrap();
    disk.set_capacity(Some(60_000));
    let mut batch = LogBatch::new();
    let mut written = 0;
    let error = loop {
        batch.add_entries(1, written + 1, [vec![7; 1000]]).unwrap();
        match log.write(&mut batch, true) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(written > 10);
    assert_eq!(log.entries(1, 1, written + 1, None).unwrap().len() as u64, written);
    assert!(!batch.is_empty(), "the batch can be tried again");
    disk.set_capacity(None);
    log.write(&mut batch, true).unwrap();
    assert_eq!(log.last_index(1), Some(written + 1));
}

/// Goal: with a directory to spill to, a full first directory refuses nothing, and both are read back.
#[test]
fn a_full_directory_spills_to_the_other() {
    let disk = SimDisk::new();
    let options = Options {
        spill_dir: Some("/spill".into()),
        file_bytes: 4096,
        purge_threshold_bytes: 1 << 20,
        ..Options::default()
    };
    let log = open(&disk, &options).unwrap();
    let mut batch = LogBatch::new();
    for index in 1..40u64 {
        batch.add_entries(1, index, [vec![index as u8; 1000]]).unwrap();
        if index == 20 {
            disk.fail_at(disk.op_count(), Fault::NoSpace);
        }
        log.write(&mut batch, true).unwrap();
    }
    log.close().unwrap();
    assert!(disk.paths().iter().any(|path| path.starts_with("/spill") && path.extension().is_some()));
    let log = open(&disk, &options).unwrap();
    for (index, entry) in (1u64..).zip(log.entries(1, 1, 40, None).unwrap()) {
        assert_eq!(entry, vec![index as u8; 1000]);
    }
}

/// Goal: a file whose successor could not be begun takes batches again, by calls of the system, and one of these that fails ends nothing,
/// though readers see what came before as memory.
#[test]
fn a_failed_append_to_a_file_that_could_not_be_left_ends_nothing() {
    let disk = SimDisk::new();
    disk.lend_windows(true);
    let options = Options { file_bytes: 16 << 10, recovery_threads: 1, ..Options::default() };
    let log = open(&disk, &options).unwrap();
    let mut ledger = Ledger::default();
    let write = |index: u64| Step::Write(vec![Op::Entries(1, index, vec![vec![index as u8; 700]])], true);
    (1..4).for_each(|index| ledger.step(&log, &write(index)).unwrap());
    disk.set_tracing(true);
    let begins = disk.op_count() + 2;
    disk.fail_from(begins, Fault::NoSpace);
    assert_eq!(log.move_on(None).unwrap_err().kind(), ErrorKind::Exhausted);
    disk.heal();
    assert!(disk.trace().iter().any(|line| line.starts_with(&format!("{begins} create"))), "{:?}", disk.trace());
    for kept_bytes in [0, 5, 600] {
        disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes });
        let error = ledger.step(&log, &write(4)).unwrap_err();
        assert_ne!(error.kind(), ErrorKind::ReadOnly, "{error}");
    }
    (4..8).for_each(|index| ledger.step(&log, &write(index)).unwrap());
    assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()));
    let log = open(&disk.after_power_loss(Survivors::Nothing), &options).unwrap();
    assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()));
}

/// Goal: what an append that failed has left in a mapped file, behind its end, is neither replayed nor damage when the process dies after
/// shorter ones.
#[test]
fn a_failed_append_leaves_nothing_behind_the_end() {
    let options = Options {
        file_bytes: 16 << 10,
        compress_from_bytes: 0,
        recovery_threads: 1,
        recovery_mode: RecoveryMode::AbsoluteConsistency,
        ..Options::default()
    };
    for kept_bytes in (0..3_200).step_by(20) {
        let disk = SimDisk::new();
        disk.lend_windows(true);
        let log = open(&disk, &options).unwrap();
        let mut ledger = Ledger::default();
        let write = |index, bytes| Step::Write(vec![Op::Entries(1, index, vec![vec![7; bytes]])], false);
        ledger.step(&log, &write(1, 100)).unwrap();
        disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes });
        assert_eq!(ledger.step(&log, &write(2, 3_000)).unwrap_err().kind(), ErrorKind::Exhausted);
        ledger.step(&log, &write(2, 100)).unwrap();
        let image = disk.after_process_death();
        drop(log);
        let log = open(&image, &options).unwrap_or_else(|error| panic!("{kept_bytes} bytes: {error}"));
        assert!(log.recovery().cuts.is_empty(), "{kept_bytes} bytes: {:?}", log.recovery());
        assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()), "{kept_bytes} bytes");
    }
}

/// Goal: a failed sync is never taken for durable, nor repeated: writes fail until the log is reopened, reads go on.
#[test]
fn a_failed_sync_ends_all_writing() {
    let disk = SimDisk::new();
    let log = open(&disk, &Options::default()).unwrap();
    let mut batch = LogBatch::new();
    let mut put = |key: &[u8], sync| {
        batch.clear();
        batch.put(1, key, b"value").unwrap();
        log.write(&mut batch, sync)
    };
    put(b"durable", true).unwrap();
    put(b"unsynced", false).unwrap();
    disk.fail_from(disk.op_count(), Fault::Eio);
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(!is_warned(&disk), "the warning fails, too");
    disk.heal();
    assert_eq!(put(b"after", false).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(log.get(1, b"unsynced").is_some() && log.get(1, b"after").is_none());
    assert!(log.stats().write_error.is_some());
    drop(log);
    assert!(is_warned(&disk), "a close warns");
    let disk = disk.after_power_loss(Survivors::Everything);
    let log = open(&disk, &Options::default()).unwrap();
    assert!(log.get(1, b"durable").is_some() && log.get(1, b"unsynced").is_none());
}

/// Goal (F1): what a failed sync took from memory is an error, also where it was read, and so checked, before.
#[test]
fn what_a_failed_sync_took_is_no_answer_though_it_was_checked_before() {
    let options = Options { compress_from_bytes: 0, recovery_threads: 1, ..Options::default() };
    let mut lost = 0;
    for seed in 0..20 {
        let disk = disk(seed);
        let log = open(&disk, &options).unwrap();
        let mut batch = LogBatch::new();
        for index in 1..=10u64 {
            batch.add_entries(1, index, [[7; 1000]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        let is_right = |index| log.entry(1, index).map(|found| assert!(found == Some(vec![7; 1000]), "seed {seed}"));
        (1..=10).for_each(|index| is_right(index).unwrap());
        disk.fail_at(disk.op_count(), Fault::Eio);
        log.sync().unwrap_err();
        for _ in 0..2 {
            for error in (1..=10).filter_map(|index| is_right(index).err()) {
                assert_eq!(error.kind(), ErrorKind::Corruption, "seed {seed}: {error}");
                lost += 1;
            }
        }
    }
    assert!((1..400).contains(&lost), "{lost}");
}

/// Goal (P10 of `reclaim`): whichever sync fails while things are moved, what was durable where it was stays readable, and is there after a
/// power loss: its files stay.
#[test]
fn what_is_moved_stays_readable_whichever_sync_fails() {
    let options = Options {
        file_bytes: 64 << 10,
        compress_from_bytes: 0,
        cache_bytes: 0,
        recovery_threads: 1,
        ..Options::default()
    };
    let first_life = |disk: &SimDisk| {
        let log = open(disk, &options).unwrap();
        let mut ledger = Ledger::default();
        for index in 1..=30u64 {
            let entries = |group, bytes| Op::Entries(group, index, vec![vec![index as u8; bytes]]);
            let ops = vec![entries(1, 700), entries(2, 20_000), Op::Put(3, vec![index as u8], vec![7; 300])];
            ledger.step(&log, &Step::Write(ops, true)).unwrap();
        }
        (log, ledger)
    };
    for (seed, step) in (0..4).zip([Step::MoveOn, Step::RewriteAgain].into_iter().cycle()) {
        let begin = |disk: &SimDisk| {
            let (log, mut ledger) = first_life(disk);
            if matches!(step, Step::RewriteAgain) {
                ledger.step(&log, &Step::MoveOn).unwrap();
            }
            (log, ledger)
        };
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let (log, mut ledger) = begin(&healthy);
        let first = healthy.op_count();
        ledger.step(&log, &step).unwrap();
        let syncs = operations(&healthy, first, "sync");
        assert!(syncs.len() > 5, "{syncs:?}");
        for n in syncs {
            let disk = disk(seed);
            let (log, mut ledger) = begin(&disk);
            disk.fail_at(n, Fault::Eio);
            ledger.step(&log, &step).unwrap_err();
            let expected = ledger.after(ledger.batches.len());
            for _ in 0..2 {
                let found = contents(&log).unwrap_or_else(|error| panic!("seed {seed}, sync {n} fails: {error}"));
                assert!(found == expected, "seed {seed}, sync {n} fails");
                // Nothing is given up any more.
                let _ = log.purge_stale();
            }
            for image in images(&disk, n) {
                let log = open(&image.disk, &options).unwrap();
                assert!(contents(&log).unwrap() == expected, "seed {seed}, sync {n} fails, then {}", image.name);
            }
        }
    }
}

/// A log of three files, the path of each, and its options.
fn three_files(version: Version) -> (SimDisk, Options, Vec<std::path::PathBuf>) {
    let options = Options {
        file_bytes: 1024,
        format_version: version,
        recycle_files: version == Version::V2,
        recovery_threads: 1,
        compress_from_bytes: 0,
        ..Options::default()
    };
    let disk = SimDisk::new();
    let log = open(&disk, &options).unwrap();
    let mut batch = LogBatch::new();
    for index in 1..=8u64 {
        batch.add_entries(1, index, [vec![index as u8; 300]]).unwrap();
        log.write(&mut batch, true).unwrap();
    }
    log.close().unwrap();
    // As a crash leaves it, which notes nothing.
    disk.env().files.remove(Path::new("/log/CLOSED")).unwrap();
    let paths = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == "raftlog"));
    (disk, options, paths.collect())
}

/// Goal: each recovery mode does with damage in the middle, at the end, and with zeroes at the end what it says.
#[test]
fn recovery_modes_differ_in_what_they_tolerate() {
    use RecoveryMode::{AbsoluteConsistency, TolerateAny, TolerateTail};
    let damaged = |file: usize, at: usize, mode| {
        let (disk, options, paths) = three_files(Version::V2);
        assert!(disk.flip_bit(&paths[file], at as u64 * 8));
        open(&disk, &Options { recovery_mode: mode, ..options }).map(|log| {
            assert_eq!(log.recovery().cuts.len(), 1);
            (log.first_index(1), log.last_index(1))
        })
    };
    let length = |file: usize| {
        let (disk, _, paths) = three_files(Version::V2);
        disk.file_bytes(&paths[file]).unwrap().len()
    };
    let (middle, end) = (length(0), length(2));
    for mode in [AbsoluteConsistency, TolerateTail] {
        let error = damaged(0, middle - 1, mode).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{mode:?}");
        assert!(error.path().is_some_and(|path| path.ends_with("0000000000000001.raftlog")), "{error}");
    }
    assert_eq!(damaged(2, end - 1, AbsoluteConsistency).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(damaged(2, end - 1, TolerateTail).unwrap(), (Some(1), Some(7)));
    assert_eq!(damaged(0, middle - 1, TolerateAny).unwrap(), (Some(4), Some(8)), "what follows the gap");
    // A flipped bit of an entry in the last file is found at once, since that file may never have been synced.
    assert_eq!(damaged(2, end - 100, TolerateTail).unwrap(), (Some(1), Some(7)));

    let (disk, options, paths) = three_files(Version::V2);
    let mut zeroes = disk.file_bytes(&paths[2]).unwrap();
    zeroes.resize(zeroes.len() + 500, 0);
    disk.overwrite(&paths[2], zeroes);
    let log = open(&disk, &Options { recovery_mode: AbsoluteConsistency, ..options }).unwrap();
    assert_eq!((log.last_index(1), log.recovery().cuts.len()), (Some(8), 0), "zeroes are no damage");
}

/// Goal: where an open that tolerates any damage took what it found, every later one opens the log, also where a file lost its header.
#[test]
fn what_was_tolerated_once_is_no_damage_any_more() {
    for lost in ["a bit of the header", "everything"] {
        let (disk, options, paths) = three_files(Version::V2);
        let mut bytes = disk.file_bytes(&paths[1]).unwrap();
        bytes[0] ^= 1;
        bytes.truncate(if lost == "everything" { 0 } else { bytes.len() });
        disk.overwrite(&paths[1], bytes);
        assert_eq!(open(&disk, &options).unwrap_err().kind(), ErrorKind::Corruption, "{lost}");
        let tolerant = Options { recovery_mode: RecoveryMode::TolerateAny, ..options.clone() };
        let log = open(&disk, &tolerant).unwrap();
        assert_eq!(log.recovery().cuts.len(), 1, "{lost}");
        let found = contents(&log).unwrap();
        drop(log);
        let disk = disk.after_power_loss(Survivors::Nothing);
        let log = open(&disk, &options).unwrap_or_else(|error| panic!("{lost}: {error}"));
        assert!(contents(&log).unwrap() == found && log.recovery().cuts.is_empty(), "{lost}");
        assert!(
            RaftLog::check_with_env("/log", &options, &disk.env(), &mut |_, _| {}).unwrap().inspection.cuts.is_empty()
        );
    }
}

/// Goal: a refused open changes nothing, and a newer version is refused by name in every mode.
#[test]
fn a_refused_open_changes_nothing() {
    let (disk, options, paths) = three_files(Version::V2);
    let end = disk.file_bytes(&paths[0]).unwrap().len() as u64;
    disk.flip_bit(&paths[0], end * 8 - 1);
    let image = |disk: &SimDisk| disk.paths().iter().map(|path| disk.file_bytes(path)).collect::<Vec<_>>();
    let before = image(&disk);
    assert!(open(&disk, &options).is_err());
    assert!(image(&disk) == before);
    let (disk, options, paths) = three_files(Version::V2);
    // Byte 60 is the last of the version.
    disk.flip_bit(&paths[1], 60 * 8 + 3);
    let before = image(&disk);
    for mode in [RecoveryMode::AbsoluteConsistency, RecoveryMode::TolerateTail, RecoveryMode::TolerateAny] {
        let error = open(&disk, &Options { recovery_mode: mode, ..options.clone() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
    }
    assert!(image(&disk) == before);
}

/// Goal: rot in an old file is noticed when it is read, never passed on, and does not touch other groups (B5 for entries).
#[test]
fn rot_in_entries_is_noticed() {
    let (disk, options, paths) = three_files(Version::V2);
    // Within the entries of the first batch: opening reads only the items of old files.
    assert!(disk.flip_bit(&paths[0], 200 * 8));
    let log = open(&disk, &options).unwrap();
    let error = log.entry(1, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(error.path(), Some(Path::new("/log/0000000000000001.raftlog")));
    assert_eq!(log.entry(1, 2).unwrap(), Some(vec![2; 300]));
}

/// Goal: a last file that lost its header is not taken for one that a crash left: nothing is thrown away unless any damage
/// is tolerated. (A log of another kind of file system, encrypted say, looks like this.)
#[test]
fn a_last_file_without_its_header_is_damage() {
    let (disk, options, paths) = three_files(Version::V2);
    let last = disk.file_bytes(&paths[2]).unwrap();
    let (header, zeroes) = (last[..69].to_vec(), vec![0; 4096]);
    let flipped = [&[last[0] ^ 1], &last[1..]].concat();
    let flipped_alone = [&[last[0] ^ 1], &header[1..]].concat();
    for (name, bytes, is_damage) in [
        ("another bit before batches", flipped, true),
        ("no header before batches", [&[0; 69], &last[69..]].concat(), false),
        ("the beginning of a header", header[..40].to_vec(), false),
        ("the beginning of a header, in blocks", [&header[..40], &zeroes].concat(), false),
        ("the beginning of a header, before batches", [&header[..40], &[0; 29], &last[69..]].concat(), true),
        ("another bit of a header, in blocks", [&flipped_alone[..], &zeroes].concat(), false),
        ("blocks", zeroes.clone(), false),
        ("nothing", Vec::new(), false),
    ] {
        // Who opened it before closed it, too.
        let disk = disk.after_process_death();
        disk.overwrite(&paths[2], bytes.clone());
        let check = RaftLog::check_with_env("/log", &options, &disk.env(), &mut |_, _| {}).unwrap();
        assert_eq!(check.is_sound(), !is_damage, "{name}");
        match open(&disk, &options) {
            Ok(log) => assert!(!is_damage && log.last_index(1) > Some(1), "{name}"),
            Err(error) => {
                assert!(is_damage && error.kind() == ErrorKind::Corruption, "{name}: {error}");
                assert_eq!(disk.file_bytes(&paths[2]).unwrap(), bytes, "{name}: nothing is cut");
            }
        }
    }
}

/// Goal: the old bytes of a recycled file never pass for new ones: whole old batches right behind the new end are not read (B5).
#[test]
fn stale_bytes_of_a_recycled_file_are_not_read() {
    let (disk, options, paths) = three_files(Version::V2);
    let (old, last) = (disk.file_bytes(&paths[0]).unwrap(), disk.file_bytes(&paths[2]).unwrap());
    let header = 69;
    // What a crash leaves of a recycled file: new batches, then those that file 1 held.
    disk.overwrite(&paths[2], [&last[..], &old[header..]].concat());
    let log = open(&disk, &options).unwrap();
    assert_eq!((log.first_index(1), log.last_index(1)), (Some(1), Some(8)));
    assert!(log.recovery().cuts.is_empty(), "they are told from damage");
    drop(log);
    assert!(disk.file_bytes(&paths[2]).unwrap()[last.len()..].iter().all(|byte| *byte == 0), "and gone");
    // The same in version 1, where nothing tells them: such files are not recycled.
    let (disk, options, paths) = three_files(Version::V1);
    let (old, last) = (disk.file_bytes(&paths[0]).unwrap(), disk.file_bytes(&paths[2]).unwrap());
    disk.overwrite(&paths[2], [&last[..], &old[61..]].concat());
    let log = open(&disk, &options).unwrap();
    assert_eq!(log.last_index(1), Some(3), "old batches pass for new ones");
    log.move_on(None).unwrap();
    assert_eq!(log.stats().recycled_files, 0);
}

/// Goal: a disk that is full where a file is to be made ahead keeps no log from being opened; what else fails is told as what failed.
#[test]
fn a_file_that_cannot_be_made_ahead_is_told_as_what_failed() {
    let options = Options {
        file_bytes: 4 << 10,
        purge_threshold_bytes: 64 << 10,
        prefill_bytes: 16 << 10,
        recovery_threads: 1,
        ..Options::default()
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    let log = open(&healthy, &options).unwrap();
    let all = log.stats().recycled_files;
    assert_eq!(all, 4);
    let is_create = |line: &&String| line.contains(" create ") && line.contains("reserved");
    let creates: Vec<String> = healthy.trace().iter().filter(is_create).cloned().collect();
    assert_eq!(creates.len(), all, "{:?}", healthy.trace());
    for (made, line) in creates.iter().enumerate() {
        let n = line.split(' ').next().unwrap().parse().unwrap();
        for fault in [Fault::NoSpace, Fault::Eio] {
            let disk = SimDisk::new();
            disk.fail_at(n, fault);
            match open(&disk, &options) {
                Ok(log) => {
                    assert_eq!((fault, log.stats().recycled_files), (Fault::NoSpace, made), "{line}");
                    let mut batch = LogBatch::new();
                    batch.add_entries(1, 1, [b"entry"]).unwrap();
                    log.write(&mut batch, true).unwrap();
                }
                Err(error) => {
                    assert_eq!(fault, Fault::Eio, "{line}: {error}");
                    assert!(error.to_string().contains("creating"), "{error}");
                    open(&disk, &options).unwrap();
                }
            }
        }
    }
}
