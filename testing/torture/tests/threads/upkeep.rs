//! What goes on beside those who write, by hand: it changes no answer.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use esker::{ColumnFamily, Db, Error, ErrorKind, Options, ReadOptions, ReclaimMode, Result};
use esker_torture::options::changed;
use fastrand::Rng;

use super::ledger::{KEYS, key};
use super::life::{Life, Moment, Shown};

/// So many steps, or until the machine dies.
pub(super) fn work(life: &Life, db: &Db, steps: usize, random: &mut Rng) {
    for _ in 0..steps {
        if life.disk.is_dead() {
            return;
        }
        let families = db.column_families();
        let Some(family) = random.choice(&families) else { return };
        if let Err((error, doing)) = step(life, db, family, random) {
            // Those of one thread are dropped meanwhile.
            let may_be_gone = matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Conflict);
            if !(may_be_gone && family.name().starts_with("own")) {
                life.accept(&error, doing);
            }
        }
    }
}

fn step(
    life: &Life,
    db: &Db,
    family: &ColumnFamily,
    random: &mut Rng,
) -> std::result::Result<(), (Error, &'static str)> {
    let as_step = |done: Result<()>, doing| done.map_err(|error| (error, doing));
    match random.u8(..14) {
        0 => as_step(db.flush_cf(family), "flushing"),
        1 => as_step(db.flush(), "flushing all"),
        2 => as_step(db.compact_range(family, None, None), "compacting"),
        3 | 4 => {
            let (begin, end) = (random.u16(..KEYS), random.u16(..KEYS));
            let range = (key(0, begin.min(end)), key(9, begin.max(end)));
            as_step(db.compact_range(family, Some(&range.0), Some(&range.1)), "compacting a range")
        }
        5 | 6 => {
            let part = [0.0, 0.05, 0.3, 0.7][random.usize(..4)];
            as_step(db.reclaim(family, part).map(drop), "reclaiming")
        }
        7 => as_step(db.reclaim_plan(family, 0.3).map(drop), "planning"),
        8 => as_step(change_options(db, family, random), "changing options"),
        13 => as_step(change_db_options(db, random), "changing options of the store"),
        9 => as_step(copy(life, db, random), "copying"),
        10 => as_step(check(life, db), "checking"),
        11 => as_step(look_beside(life, db), "opening beside"),
        _ => {
            let stats = db.stats();
            let _ = (stats.space_amplification(), stats.write_amplification());
            as_step(db.count_cf(family, &ReadOptions::default()).map(drop), "counting")
        }
    }
}

fn change_options(db: &Db, family: &ColumnFamily, random: &mut Rng) -> Result<()> {
    let seed = random.u64(..);
    // Called as often as somebody else is faster.
    db.set_options(family, |options| *options = changed(&mut Rng::with_seed(seed), options))
}

/// All but `max_disk_bytes`, which a life is measured by.
fn change_db_options(db: &Db, random: &mut Rng) -> Result<()> {
    let seed = random.u64(..);
    db.set_db_options(|options| {
        let random = &mut Rng::with_seed(seed);
        match options.memory_limit {
            0 => options.cache_bytes = options.cache_bytes.min(1) * random.u64(1..4 << 20),
            _ => options.memory_limit = random.u64(1 << 20..8 << 20),
        }
        options.wal_bytes_max = [0, 64 << 10, 1 << 20][random.usize(..3)];
        options.manifest_bytes_max = random.u64(4 << 10..64 << 10);
        options.group_bytes_max = random.u64(4 << 10..1 << 20);
        options.reclaim_mode = [ReclaimMode::Auto, ReclaimMode::Manual][random.usize(..2)];
        options.max_space_amp = [1.05, 1.3, 3.0][random.usize(..3)];
        options.holes_within_values = random.bool();
    })
}

/// One in a life: files of the store have two names from then on.
fn copy(life: &Life, db: &Db, random: &mut Rng) -> Result<()> {
    let path = PathBuf::from(format!("/copy{}", life.number));
    if life.has_copied.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let least = life.done_now();
    if random.bool() {
        db.checkpoint(&path)?
    } else {
        db.backup(&path, &mut |_| {})?
    };
    life.moments.lock().unwrap().push(Moment { shown: Shown::Copy(path), least });
    Ok(())
}

/// Opens the store a second time, for reading.
fn look_beside(life: &Life, db: &Db) -> Result<()> {
    let least = life.done_now();
    let options = Options { background_jobs: 0, wal_dir: life.wal_dir.clone(), ..Options::default() };
    let beside = match Db::open_read_only_with_env(db.path(), options, life.env()) {
        // It changes too fast to be read.
        Err(error) if error.kind() == ErrorKind::Busy => return Ok(()),
        opened => opened?,
    };
    let found = life.contents(&beside, "opened beside")?;
    // What a failed sync took from memory is not there for another process.
    if !life.disk.has_evicted() {
        life.moments.lock().unwrap().push(Moment { shown: Shown::Beside(found), least });
    }
    Ok(())
}

fn check(life: &Life, db: &Db) -> Result<()> {
    let check = db.check(&mut |_| {})?;
    assert!(life.has_trouble() || check.errors.is_empty(), "{life}: checking: {:?}", check.errors);
    Ok(())
}
