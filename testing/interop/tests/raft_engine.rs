//! Esker's Raft log and raft-engine 0.4.2 on the same directory.

use std::path::Path;

use esker_interop::raft::{
    Contents, Op, Shape, apply, batch, entry, read_esker, read_original, without_empty, write_esker, write_original,
};
use fastrand::Rng;

fn shapes() -> Vec<Shape> {
    let shape = |version_1, compress_from, file_bytes| Shape { version_1, compress_from, file_bytes };
    vec![shape(false, 0, 4 << 10), shape(false, 64, 4 << 10), shape(true, 0, 4 << 10), shape(true, 200, 1 << 20)]
}

/// The files of a log that is open: what the death of its process would leave.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        std::fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// Goal: Esker reads every directory that raft-engine wrote: both versions, compressed or not, purged, recycled, killed.
#[test]
fn esker_reads_what_the_original_wrote() {
    for (number, shape) in shapes().into_iter().enumerate() {
        for seed in 0..4 {
            let what = format!("shape {number}, seed {seed}");
            let mut random = Rng::with_seed(seed);
            let base = tempfile::tempdir().unwrap();
            let (dir, killed) = (base.path().join("closed"), base.path().join("killed"));
            let engine = shape.open_original(&dir).unwrap();
            let mut model = Contents::new();
            for step in 0..300 {
                let ops = batch(&mut random, &model);
                write_original(&engine, &ops, step % 10 == 0).unwrap();
                apply(&mut model, &ops);
                if step % 50 == 49 {
                    engine.purge_expired_files().unwrap();
                }
            }
            if seed == 3 {
                engine.purge_manager().must_rewrite_append_queue(None, None);
                engine.purge_manager().must_rewrite_rewrite_queue();
            }
            assert_eq!(without_empty(&read_original(&engine).unwrap()), without_empty(&model), "{what}");
            copy(&dir, &killed).unwrap();
            drop(engine);
            for dir in [&dir, &killed] {
                // What is gone may be back in the original after a purge; so it is asked, not the model.
                let engine = shape.open_original(dir).unwrap();
                let expected = read_original(&engine).unwrap();
                drop(engine);
                let log = shape.open_esker(dir).unwrap();
                assert_eq!(without_empty(&read_esker(&log).unwrap()), without_empty(&expected), "{what}, {dir:?}");
                log.close().unwrap();
            }
        }
    }
}

/// Goal: raft-engine reads every directory that Esker wrote, closed or killed, and what is gone stays gone after purges.
#[test]
fn the_original_reads_what_esker_wrote() {
    for (number, shape) in shapes().into_iter().enumerate() {
        for seed in 0..4 {
            let what = format!("shape {number}, seed {seed}");
            let mut random = Rng::with_seed(100 + seed);
            let base = tempfile::tempdir().unwrap();
            let (dir, killed) = (base.path().join("closed"), base.path().join("killed"));
            let log = shape.open_esker(&dir).unwrap();
            let mut model = Contents::new();
            for step in 0..300 {
                let ops = batch(&mut random, &model);
                write_esker(&log, &ops, step % 10 == 0).unwrap();
                apply(&mut model, &ops);
                if step % 50 == 49 {
                    log.purge().unwrap();
                }
            }
            if seed == 3 {
                log.move_on(None).unwrap();
                log.rewrite_again().unwrap();
            }
            assert_eq!(read_esker(&log).unwrap(), model, "{what}");
            assert!(shape.file_bytes > 1 << 14 || log.stats().purged_files > 2, "{what}: files were purged");
            copy(&dir, &killed).unwrap();
            log.close().unwrap();
            for dir in [&dir, &killed] {
                let engine = shape.open_original(dir).unwrap();
                assert_eq!(without_empty(&read_original(&engine).unwrap()), without_empty(&model), "{what}, {dir:?}");
                drop(engine);
                let log = shape.open_esker(dir).unwrap();
                assert_eq!(without_empty(&read_esker(&log).unwrap()), without_empty(&model), "{what}, {dir:?}");
            }
        }
    }
}

/// Goal: both go on from where the other stopped, again and again, recycling each other's files.
#[test]
fn both_take_turns() {
    for (number, shape) in shapes().into_iter().enumerate() {
        for seed in 0..3 {
            let what = format!("shape {number}, seed {seed}");
            let mut random = Rng::with_seed(200 + seed);
            let dir = tempfile::tempdir().unwrap();
            let mut model = Contents::new();
            for turn in 0..12 {
                let steps: Vec<_> = (0..40)
                    .map(|_| {
                        let ops = batch(&mut random, &model);
                        apply(&mut model, &ops);
                        ops
                    })
                    .collect();
                if turn % 2 == 0 {
                    let engine = shape.open_original(dir.path()).unwrap();
                    steps.iter().for_each(|ops| write_original(&engine, ops, false).unwrap());
                    assert_eq!(
                        without_empty(&read_original(&engine).unwrap()),
                        without_empty(&model),
                        "{what}, turn {turn}"
                    );
                } else {
                    let log = shape.open_esker(dir.path()).unwrap();
                    steps.iter().for_each(|ops| write_esker(&log, ops, false).unwrap());
                    log.purge().unwrap();
                    assert_eq!(without_empty(&read_esker(&log).unwrap()), without_empty(&model), "{what}, turn {turn}");
                    log.close().unwrap();
                }
            }
        }
    }
}

/// Goal: what Esker noted at a close accuses nothing that the original made of the log since: files that grew, were given up and were written
/// over, closed or killed. Damage below it is told all the same.
#[test]
fn a_note_of_a_close_holds_whatever_the_original_does_next() {
    for (number, shape) in shapes().into_iter().enumerate() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("log");
        let sound = |dir: &Path, what: &str| {
            let check = esker::RaftLog::check(dir, &Default::default(), &mut |_, _| {}).unwrap();
            assert!(check.is_sound(), "shape {number}, {what}: {check:?}");
            shape.open_esker(dir).unwrap_or_else(|error| panic!("shape {number}, {what}: {error}")).close().unwrap();
        };
        for round in 0..6u64 {
            let log = shape.open_esker(&dir).unwrap();
            let next = log.last_index(1).map_or(1, |last| last + 1);
            let entries = |from: u64, count: u64| (from..from + count).map(|index| entry(index, &[7; 300])).collect();
            let ops = |from: u64| vec![Op::Entries(1, entries(from, 3)), Op::Compact(1, from.saturating_sub(4))];
            write_esker(&log, &ops(next), false).unwrap();
            log.close().unwrap();
            assert!(dir.join("CLOSED").exists());
            let engine = shape.open_original(&dir).unwrap();
            for step in 0..round * 20 {
                write_original(&engine, &ops(next + 3 + 3 * step), step % 5 == 0).unwrap();
                if step % 10 == 9 {
                    engine.purge_expired_files().unwrap();
                }
                if step % 7 == 0 {
                    let killed = base.path().join(format!("{round}-{step}"));
                    copy(&dir, &killed).unwrap();
                    sound(&killed, &format!("round {round}, killed after {step}"));
                }
            }
            drop(engine);
            sound(&dir, &format!("round {round}"));
        }
        let last = |ending: &str| {
            let names = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path());
            names.filter(|path| path.extension().is_some_and(|found| found == ending)).max().unwrap()
        };
        let bytes = std::fs::read(last("raftlog")).unwrap();
        std::fs::write(last("raftlog"), &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(shape.open_esker(&dir).unwrap_err().kind(), esker::ErrorKind::Corruption);
    }
}

/// Shows that the comparison notices a difference: one byte of an entry.
#[test]
fn a_difference_is_noticed() {
    let (shape, dir) = (shapes().remove(0), tempfile::tempdir().unwrap());
    let log = shape.open_esker(dir.path()).unwrap();
    write_esker(&log, &[Op::Entries(1, vec![entry(1, b"this")])], false).unwrap();
    log.close().unwrap();
    let engine = shape.open_original(dir.path()).unwrap();
    let mut other = Contents::new();
    apply(&mut other, &[Op::Entries(1, vec![entry(1, b"that")])]);
    assert_ne!(read_original(&engine).unwrap(), other);
    apply(&mut other, &[Op::Entries(1, vec![entry(1, b"this")])]);
    assert_eq!(read_original(&engine).unwrap(), other);
}
