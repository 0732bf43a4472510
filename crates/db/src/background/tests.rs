//! Whose turn it is, what work takes of what is left, and what stays of work that failed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_env::sim::SimDisk;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;

use super::Work;
use super::pick::is_turn_of_level0;
use crate::compaction;
use crate::events::FileChanges;
use crate::reclaim::{self, Foreseen};
use crate::store::{KeptOut, Store};
use crate::{ColumnFamily, Compression, Db, Error, ErrorKind, FamilyOptions, Options, ReclaimMode, Result, Separation};

/// What is picked next for some family; `None` if nothing is due.
fn pick(store: &Store) -> Option<Work> {
    loop {
        let work = store.pick_work(&mut store.state.lock())?;
        if work.family().is_some() {
            return Some(work);
        }
        run(store, work);
    }
}

/// Of `work` came this.
fn end(store: &Store, work: Work, mut result: Result<FileChanges>) {
    let mut state = store.state.lock();
    let is_beyond_help = store.note_result(&mut state, &work, &mut result);
    store.release_work(&mut state, work, &result, is_beyond_help);
}

fn run(store: &Store, work: Work) {
    let result = store.run_work(&work);
    assert!(result.is_ok(), "{result:?}");
    end(store, work, result);
}

fn separated() -> FamilyOptions {
    FamilyOptions {
        write_buffer_bytes: 64 << 10,
        min_blob_size: 100,
        blob_file_bytes: 64 << 10,
        blob_compression: Compression::None,
        compression: Compression::None,
        target_file_bytes: 32 << 10,
        level0_compaction_trigger: 2,
        ..FamilyOptions::default()
    }
}

fn open(options: Options, family: FamilyOptions) -> Db {
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..options };
    Db::open_with_env("/db", options, SimDisk::new().env()).unwrap()
}

const VALUE_BYTES: usize = 1000;

fn put(db: &Db, family: &ColumnFamily, n: u32) {
    db.put_cf(family, n.to_be_bytes(), [n as u8; VALUE_BYTES], &Default::default()).unwrap();
}

/// A family with so many keys, put so that each blob file has some from everywhere, that is about to fall back.
fn scatter(db: &Db, family: &ColumnFamily, count: u32) {
    (0..count).for_each(|n| put(db, family, n * 1051 % count));
    db.compact_range(family, None, None).unwrap();
    db.set_separation(family, Separation::FallBack).unwrap();
}

/// Leaves tables in level 0, and nobody compacts them yet.
fn fill_level0(db: &Db, family: &ColumnFamily, keys: &[u32]) {
    let state = || db.store().state.lock();
    let ids: Vec<u32> = db.column_families().iter().map(ColumnFamily::id).collect();
    state().manual.extend(ids.iter().map(|id| (*id, KeptOut::All)));
    for _ in 0..3 {
        keys.iter().for_each(|n| put(db, family, *n));
        db.flush_cf(family).unwrap();
    }
    state().manual.clear();
    state().to_compact.extend(ids);
}

fn assert_holds(db: &Db, keys: impl Iterator<Item = u32>) {
    for n in keys {
        assert_eq!(db.get(n.to_be_bytes()).unwrap().as_deref(), Some(&[n as u8; VALUE_BYTES][..]), "key {n}");
    }
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
}

/// Goal (H1, H2): values of many blob files with keys from everywhere come home, and there is no moment in which writers would have to wait for
/// it; tables are written a few times at most, and once where there is room for everything.
#[test]
fn a_family_that_falls_back_leaves_writers_room_and_writes_its_tables_a_few_times() {
    for (max_space_amp, times_max) in [(1.3, 4.0), (3.0, 1.5)] {
        // So large that logs and whole blocks are little beside it.
        let bytes = 256 << 10;
        let family = FamilyOptions {
            write_buffer_bytes: bytes,
            blob_file_bytes: bytes,
            target_file_bytes: bytes / 4,
            ..separated()
        };
        let db = open(Options { max_space_amp, ..Options::default() }, family);
        let (store, count) = (db.store(), 10_000);
        scatter(&db, &db.default_column_family(), count);
        let before = db.stats();
        assert!(before.families[0].blob_files >= 40, "{before:?}");
        let mut steps = 0;
        while let Some(work) = pick(store) {
            steps += u32::from(matches!(work, Work::Relocation(..)));
            let left = store.left();
            assert!(left.bound > 0 && left.disk > 0, "in step {steps} of {max_space_amp}: {left:?}");
            run(store, work);
        }
        let after = db.stats();
        assert_eq!(after.families[0].blob_files, 0);
        let written = after.written.compaction_bytes + after.written.reclaim_bytes
            - before.written.compaction_bytes
            - before.written.reclaim_bytes;
        let times = written as f64 / before.families[0].blob_live_bytes as f64;
        assert!(times < times_max && steps > 3, "{times} times what lives, in {steps} steps, at {max_space_amp}");
        assert_holds(&db, 0..count);
    }
}

/// Goal (H1, W2): on a disk with room for half as much again as lives, values come home in rounds while a writer gets on, and nothing is begun for
/// which there is no room.
#[test]
fn a_family_falls_back_on_a_small_disk_while_somebody_writes() {
    let count = 4000;
    let max_disk_bytes = u64::from(count) * VALUE_BYTES as u64 * 3 / 2;
    let db = open(Options { max_disk_bytes, max_space_amp: 10.0, ..Options::default() }, separated());
    let store = db.store();
    scatter(&db, &db.default_column_family(), count);
    let mut puts = 0;
    while let Some(work) = pick(store) {
        run(store, work);
        put(&db, &db.default_column_family(), puts * 7 % count);
        puts += 1;
        assert!(store.room.used() <= max_disk_bytes);
    }
    let stats = db.stats();
    assert_eq!(stats.families[0].blob_files, 0, "after {puts} puts: {:?}, {stats:?}", store.left());
    assert_holds(&db, 0..count);
}

/// Goal (W4): what steps and compactions of a family that falls back will write is known before.
#[test]
fn what_comes_home_is_reckoned() {
    let db = open(Options::default(), separated());
    let (store, family, count) = (db.store(), db.default_column_family(), 600);
    scatter(&db, &family, count);
    let written = || store.counters.compaction_bytes.get() + store.counters.reclaim_bytes.get();
    let mut brought_by_merge = 0;
    for round in 0..4 {
        fill_level0(&db, &family, &[round, 10 + round, 20 + round]);
        // A merge comes first, with what it meets of the first table.
        store.state.lock().reclaimed_last = true;
        for work in std::iter::from_fn(|| pick(store)).take(2) {
            let before = (written(), store.family(0).unwrap().view.load().version.ledger().total().live_bytes());
            let (reckoned, is_merge) = match &work {
                Work::Compaction(plan, _) => (plan.written_bytes(), true),
                Work::Relocation(plan, _) => (plan.written_bytes(), false),
                _ => continue,
            };
            run(store, work);
            assert!(written() - before.0 <= reckoned, "{} in place of {reckoned}", written() - before.0);
            let live = store.family(0).unwrap().view.load().version.ledger().total().live_bytes();
            brought_by_merge += if is_merge { before.1 - live } else { 0 };
        }
    }
    assert!(brought_by_merge > 10_000, "{brought_by_merge}");
    assert_holds(&db, 0..count);
}

/// Goal: a family with much to bring home keeps no other from being compacted.
#[test]
fn a_family_that_falls_back_takes_turns_with_others() {
    let db = open(Options::default(), separated());
    let [first, second] = ["first", "second"].map(|name| db.create_column_family(name, separated()).unwrap());
    scatter(&db, &first, 1000);
    fill_level0(&db, &second, &[1, 2, 3]);
    let (store, mut ids) = (db.store(), Vec::new());
    for work in std::iter::from_fn(|| pick(store)).take(4) {
        ids.extend(work.family().map(|family| family.id));
        run(store, work);
    }
    assert!(ids.contains(&first.id()) && ids.contains(&second.id()), "{ids:?}");
}

/// What picks of a store come to where one blob file cannot be read: how often it was tried.
fn attempts_at(store: &Store, file: &FileName, error: ErrorKind) -> u32 {
    let number = file.number().unwrap();
    let mut attempts = 0;
    for work in std::iter::from_fn(|| pick(store)).take(1000) {
        let result = match work.reads(number) {
            true => Err(Error::new(error, "no such sector").with_path(&store.path_of(file))),
            false => store.run_work(&work),
        };
        attempts += u32::from(result.is_err());
        end(store, work, result);
    }
    assert!(pick(store).is_none());
    attempts
}

/// Goal (H3): a blob file that cannot be read keeps neither level 0 from being compacted nor the values of other files from coming home, and is not
/// tried for ever.
#[test]
fn a_blob_file_that_cannot_be_read_keeps_nothing_else_from_coming_home() {
    for (error, attempts_max) in [(ErrorKind::Io, 3), (ErrorKind::Corruption, 1)] {
        let db = open(Options::default(), separated());
        let (store, family, count) = (db.store(), db.default_column_family(), 600);
        scatter(&db, &family, count);
        fill_level0(&db, &family, &[5, 50, 500]);
        let default = store.family(0).unwrap();
        let number = *default.view.load().version.blobs().keys().nth(3).unwrap();
        let attempts = attempts_at(store, &FileName::Blob(number), error);
        assert!((1..=attempts_max).contains(&attempts), "{attempts}");
        let version = default.view.load().version.clone();
        assert_eq!(version.blobs().keys().copied().collect::<BTreeSet<_>>(), [number].into());
        assert!(version.level(0).len() < 2 && store.state.lock().resting.is_empty());
        assert!(db.stats().background_error.is_some(), "it is told");
        assert_holds(&db, 0..count);
        // In truth it can be read: whoever asks by hand has it tried again.
        db.compact_range(&family, None, None).unwrap();
        assert_eq!(db.stats().families[0].blob_files, 0);
    }
}

/// Goal (H3): the same for a table.
#[test]
fn a_table_that_cannot_be_read_keeps_nothing_else_from_coming_home() {
    let db = open(Options::default(), separated());
    let (store, family, count) = (db.store(), db.default_column_family(), 3000);
    scatter(&db, &family, count);
    let version = store.family(0).unwrap().view.load().version.clone();
    let table = version.tables().next().map(|(_, table)| table.number()).unwrap();
    let others = version.tables().count() - 1;
    assert!(others > 0);
    assert_eq!(attempts_at(store, &FileName::Table(table), ErrorKind::Corruption), 1);
    let version = store.family(0).unwrap().view.load().version.clone();
    let pointing = version.tables().filter(|(_, table)| table.meta.oldest_blob_file.is_some());
    assert_eq!(pointing.map(|(_, table)| table.number()).collect::<Vec<_>>(), [table]);
}

/// Goal (W3): what found no room is looked at again once there is some, whoever gave it back and though nothing changed in the family: values
/// that come home, passes over garbage, and compactions of a store without blob files.
#[test]
fn what_found_no_room_is_picked_once_there_is_some() {
    for separation in [Separation::FallBack, Separation::AtFlush, Separation::Off] {
        let max_disk_bytes = 64 << 20;
        let family = FamilyOptions { separation, ..separated() };
        let db = open(Options { max_disk_bytes, max_space_amp: 1.1, ..Options::default() }, family);
        let (store, family) = (db.store(), db.default_column_family());
        if separation == Separation::FallBack {
            db.set_separation(&family, Separation::AtFlush).unwrap();
            scatter(&db, &family, 600);
        } else {
            store.state.lock().manual.insert(0, KeptOut::All);
            (0..3000).for_each(|n| put(&db, &family, n % 300));
            db.flush().unwrap();
            store.state.lock().manual.clear();
            store.note_all_versions();
        }
        let others = store.room.reserve(max_disk_bytes - store.room.used());
        while let Some(work) = pick(store) {
            let takes_none = match &work {
                Work::Punch(_) => true,
                Work::Compaction(plan, _) => plan.written_bytes() == 0,
                _ => false,
            };
            run(store, work);
            assert!(takes_none, "{separation:?}");
        }
        assert!(pick(store).is_none(), "it is not looked at again and again");
        drop(others);
        let work = pick(store);
        assert!(work.is_some(), "{separation:?}");
        work.into_iter().for_each(|work| run(store, work));
    }
}

/// Goal: damage that is not tried again is told, and keeps nobody from waiting for what else gives space back.
#[test]
fn nobody_gives_up_for_damage_that_is_not_tried_again() {
    for in_table in [false, true] {
        let db = open(Options::default(), separated());
        let store = db.store();
        store.state.lock().manual.insert(0, KeptOut::All);
        (0..3000).for_each(|n| put(&db, &db.default_column_family(), n % 300));
        db.flush().unwrap();
        store.state.lock().manual.clear();
        store.note_all_versions();
        let work = std::iter::from_fn(|| pick(store)).find_map(|work| match &work {
            Work::Compaction(plan, _) if plan.is_sweep && !plan.victims.is_empty() => Some(work),
            _ => {
                run(store, work);
                None
            }
        });
        let work = work.unwrap();
        let Work::Compaction(plan, _) = &work else { unreachable!() };
        let table = plan.inputs().next().map(|(_, table)| FileName::Table(table.number()));
        let blob = plan.victims.first().map(|number| FileName::Blob(*number));
        let damaged = if in_table { table } else { blob };
        let error = Error::new(ErrorKind::Corruption, "a flipped bit").with_path(&store.path_of(&damaged.unwrap()));
        end(store, work, Err(error));
        assert!(store.state.lock().compaction_error.is_none(), "whoever waits would give up");
        assert!(db.stats().background_error.is_some());
        assert!(db.wait_for_compact().is_err());
    }
}

/// Goal (W4): a compaction takes up no more than was reckoned, also where it cuts what a flush left in one table into many.
#[test]
fn a_compaction_takes_up_no_more_than_was_reckoned() {
    let family = FamilyOptions { write_buffer_bytes: 256 << 10, target_file_bytes: 16 << 10, ..separated() };
    let db = open(Options::default(), FamilyOptions { separation: Separation::Off, ..family });
    let store = db.store();
    let mut cut = 0;
    for round in 0..6 {
        store.state.lock().manual.insert(0, KeptOut::All);
        (0..1200).for_each(|n| put(&db, &db.default_column_family(), n * 7 + round));
        db.flush().unwrap();
        store.state.lock().manual.clear();
        store.note_all_versions();
        while let Some(work) = pick(store) {
            let Work::Compaction(plan, reserved) = &work else {
                run(store, work);
                continue;
            };
            let (before, inputs) = (store.room.used(), plan.inputs().count() as u64);
            store.run_compaction(plan, reserved).unwrap();
            // What it read is not removed yet.
            let (took, reckoned) = (store.room.used() - before, plan.written_bytes());
            cut += u64::from(took > inputs * (64 << 10));
            end(store, work, Ok(FileChanges::default()));
            assert!(took <= reckoned, "{took}, {reckoned} were reckoned");
        }
    }
    assert!(cut > 0);
}

/// Goal (W4): the same of passes that leave tables in their levels, and of steps home: tables that become much longer, since what they pointed to lies in
/// them now, are cut into many.
#[test]
fn moving_values_takes_up_no_more_than_was_reckoned() {
    for (comes_home, value_bytes) in
        [false, true].into_iter().flat_map(|home| [(home, 120), (home, 1000), (home, 9000)])
    {
        let family = FamilyOptions { write_buffer_bytes: 256 << 10, target_file_bytes: 16 << 10, ..separated() };
        let db = open(Options { reclaim_mode: ReclaimMode::Manual, ..Options::default() }, family);
        let (store, handle) = (db.store(), db.default_column_family());
        let (mut runs, mut cut, mut full) = (0, 0, 0);
        for round in 0..2 {
            store.state.lock().manual.insert(0, KeptOut::All);
            // Every other value stays with its key.
            let count = 1_000_000u32 / value_bytes;
            for n in 0..count {
                let bytes = if n % 2 == 0 { value_bytes } else { 90 };
                db.put((n * 7919 % (count * 3 / 4)).to_be_bytes(), vec![n as u8; bytes as usize]).unwrap();
            }
            db.flush().unwrap();
            store.state.lock().manual.clear();
            if round == 0 {
                db.compact_range(&handle, None, None).unwrap();
            }
            let separation = if comes_home { Separation::FallBack } else { Separation::AtFlush };
            db.set_separation(&handle, separation).unwrap();
            let family = store.family(0).unwrap();
            // Garbage or not: of all that are there now.
            let first_new = FileNumber::new(store.next_file_number());
            let next = || {
                let version = family.view.load().version.clone();
                match comes_home {
                    true => reclaim::pick_any_step(&family, &version, 64 << 10),
                    false => reclaim::pick(&family, &version, f64::NEG_INFINITY, first_new, &Foreseen::default()),
                }
            };
            while let Some(plan) = next() {
                let Work::Relocation(plan, reserved) = Work::relocation(plan, &store.room) else { unreachable!() };
                let (before, reckoned) = (store.room.used(), plan.written_bytes());
                let inputs = plan.tables.len();
                let changes = store.run_relocation(&plan, &reserved).unwrap();
                // What it read is not removed yet.
                let took = store.room.used() - before;
                assert!(took <= reckoned, "{comes_home}, {value_bytes}: {took}, {reckoned} were reckoned");
                runs += 1;
                let tables = changes.added.iter().filter(|file| file.level.is_some()).count();
                cut += u32::from(tables > inputs);
                full += u32::from(took > reckoned / 2);
                drop((plan, reserved));
                store.trash.purge().unwrap();
                assert_eq!(store.room.reserved_bytes(), 0);
            }
            db.set_separation(&handle, Separation::AtFlush).unwrap();
        }
        let what = format!("{comes_home}, {value_bytes}: {runs} runs, {cut} cut tables, {full} took most of it");
        assert!(full * 2 > runs && runs > 2 && (cut > 0 || !comes_home), "{what}");
    }
}

/// Goal: the bound is the store's: garbage of a family that nobody writes to is not left for those who write to others to make up for.
#[test]
fn garbage_of_an_idle_family_goes_first() {
    let disk = SimDisk::new();
    let options = |reclaim_mode| {
        let families = [("default".to_owned(), separated())].into();
        Options { create_if_missing: true, background_jobs: 0, reclaim_mode, families, ..Options::default() }
    };
    let db = Db::open_with_env("/db", options(ReclaimMode::Off), disk.env()).unwrap();
    let [idle, busy] = ["idle", "busy"].map(|name| db.create_column_family(name, separated()).unwrap());
    (0..1600).for_each(|n| put(&db, &idle, n));
    (0..800).for_each(|n| put(&db, &idle, n * 7919 % 1600));
    (0..8000).for_each(|n| put(&db, &busy, n));
    for family in [&idle, &busy] {
        db.compact_range(family, None, None).unwrap();
    }
    db.close().unwrap();
    let db = Db::open_with_env("/db", options(ReclaimMode::Auto), disk.env()).unwrap();
    db.wait_for_compact().unwrap();
    let [idle, busy] = ["idle", "busy"].map(|name| db.column_family(name).unwrap());
    let garbage = || reclaim::garbage_part(&db.store().family(idle.id()).unwrap().view.load().version);
    let before = garbage();
    assert!(before > 0.2, "{before}");
    (0..8000).for_each(|n| put(&db, &busy, n * 7919 % 8000));
    assert!(garbage() < 0.15, "{} of {before} was left", garbage());
}

/// Goal: work that fails on a family that was dropped meanwhile leaves neither claims nor an error, nor does what failed before.
#[test]
fn of_a_dropped_family_no_failure_stays() {
    let db = open(Options::default(), separated());
    let store = db.store();
    let failure = || Error::new(ErrorKind::Corruption, "a flipped bit");
    let mut is_merge = BTreeSet::new();
    for name in ["compacted", "falling back"] {
        let family = db.create_column_family(name, separated()).unwrap();
        match name {
            "compacted" => fill_level0(&db, &family, &[1, 2, 3]),
            _ => scatter(&db, &family, 300),
        }
        let work = pick(store).unwrap();
        assert_eq!(work.family().map(|family| family.id), Some(family.id()));
        is_merge.insert(matches!(work, Work::Compaction(..)));
        db.drop_column_family(&family).unwrap();
        end(store, work, Err(failure()));
        assert!(store.background_error().is_none() && store.state.lock().resting.is_empty(), "{name}");
    }
    assert_eq!(is_merge.len(), 2);
    let family = db.create_column_family("failed", separated()).unwrap();
    {
        let mut state = store.state.lock();
        (state.flush_error, state.compaction_error) = (Some(failure()), Some(failure()));
    }
    db.drop_column_family(&family).unwrap();
    assert!(store.background_error().is_none());
}

/// Goal: who compacts by hand keeps no space from coming back, and so no writer waiting; who takes files in is alone.
#[test]
fn space_comes_back_beside_a_compaction_by_hand() {
    for kept_out in [KeptOut::Compactions, KeptOut::All] {
        let family = FamilyOptions {
            write_buffer_bytes: 64 << 10,
            min_blob_size: 100,
            blob_file_bytes: 64 << 10,
            blob_compression: Compression::None,
            level0_compaction_trigger: 100,
            level0_slowdown_trigger: 100,
            level0_stop_trigger: 101,
            ..FamilyOptions::default()
        };
        let families = [("default".to_owned(), family)].into();
        let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let overwrite = |round: u8| (0..1000u32).for_each(|n| db.put(n.to_be_bytes(), [round; 500]).unwrap());
        overwrite(0);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let before = db.stats().compactions;
        db.store().state.lock().manual.insert(0, kept_out);
        (1..10).for_each(overwrite);
        let (bytes, passes) = (db.stats().on_disk.blob_bytes, db.stats().compactions - before);
        let keeps_bound = bytes < 1_000_000 && passes > 0;
        assert_eq!(keeps_bound, kept_out == KeptOut::Compactions, "{bytes} bytes for 500,000, {passes} passes");
        db.store().state.lock().manual.clear();
    }
}

/// Goal: the thread that may take a window only leaves level 0 its turn, if it is due, and nobody has it or keeps it.
#[test]
fn level_0_has_its_turn_among_windows() {
    let db = open(Options::default(), separated());
    let store = db.store();
    let family = store.family(0).unwrap();
    let is_turn = |reclaimed_last| {
        let mut state = store.state.lock();
        state.reclaimed_last = reclaimed_last;
        is_turn_of_level0(&state, &family)
    };
    assert!(!is_turn(true), "it is not due");
    fill_level0(&db, &db.default_column_family(), &[1, 2, 3]);
    assert_eq!([false, true].map(is_turn), [false, true]);
    store.state.lock().manual.insert(0, KeptOut::Compactions);
    assert!(!is_turn(true), "somebody compacts by hand");
    store.state.lock().manual.clear();
    let work = store.pick_work(&mut store.state.lock()).unwrap();
    assert!(matches!(&work, Work::Compaction(plan, _) if plan.level == 0) && !is_turn(true), "it is on its way");
    fill_level0(&db, &db.default_column_family(), &[4, 5, 6]);
    assert!(!is_turn(true), "nobody can take what came meanwhile");
    run(store, work);
    assert!(is_turn(true));
}

/// Goal: what a snapshot keeps is hidden by what is newer once it goes, though a window has been by meanwhile; until then no other window would free it.
#[test]
fn what_a_snapshot_kept_is_hidden_again_once_it_goes() {
    let family = FamilyOptions { level0_compaction_trigger: 20, ..separated() };
    let db = open(Options { reclaim_mode: ReclaimMode::Off, ..Options::default() }, family);
    let (store, family) = (db.store(), db.store().family(0).unwrap());
    (0..1000).for_each(|n| put(&db, &db.default_column_family(), n));
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let snapshot = db.snapshot();
    (0..100).for_each(|n| put(&db, &db.default_column_family(), n));
    db.flush().unwrap();
    let hidden = || {
        assert!(pick(store).is_none());
        reclaim::hidden_bytes(&family.view.load().version)
    };
    assert!((90_000..120_000).contains(&hidden()), "{}", hidden());
    let version = family.view.load().version.clone();
    let tables = version.level(version.deepest_level());
    let plan = compaction::pick_window(&family, &version, tables, version.blobs().keys().copied().collect());
    let plan = Arc::new(plan.unwrap());
    let reserved = Arc::new(store.room.reserve(plan.written_bytes()));
    store.run_compaction(&plan, &reserved).unwrap();
    assert!(hidden() < 10_000, "another window would free nothing: {}", hidden());
    drop(snapshot);
    assert!((90_000..120_000).contains(&hidden()), "{}", hidden());
    assert_holds(&db, 0..1000);
}

/// Goal (W1): whatever keeps writers waiting is reason enough for a pass in any family: the room that is left for the largest's.
#[test]
fn a_family_with_small_passes_is_reclaimed_where_writers_wait_for_room_for_a_larger_one() {
    let bytes = 512 << 10;
    let family = FamilyOptions { write_buffer_bytes: bytes, blob_file_bytes: bytes, ..separated() };
    let db = open(Options::default(), family);
    (0..6000).for_each(|n| put(&db, &db.default_column_family(), n % 3000));
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let (store, family) = (db.store(), db.store().family(0).unwrap());
    assert!(family.ranges.count() > 1);
    let own = reclaim::pass_bytes(&family, &family.view.load().version, store.left().slack) as i64;
    let at = |bound: i64| reclaim::Left { disk: i64::MAX, pass: i64::MAX, bound, next_pass: own * 4, ..store.left() };
    let is_due = |bound: i64| store.need(&store.state.lock(), &family, &at(bound), false).is_some();
    assert!(is_due(own), "its own");
    assert!(is_due(own * 4), "writers wait");
    assert!(!is_due(own * 7), "they do not");
}

/// Goal: however many families there may be something to do in, it is looked a few times what is left.
#[test]
fn a_pick_looks_what_is_left_a_few_times() {
    for separation in [Separation::AtFlush, Separation::FallBack] {
        let db = open(Options::default(), separated());
        let store = db.store();
        for n in 0..12 {
            let family = db.create_column_family(&n.to_string(), separated()).unwrap();
            (0..20).for_each(|n| put(&db, &family, n));
            db.flush_cf(&family).unwrap();
            if separation == Separation::FallBack {
                db.set_separation(&family, separation).unwrap();
            }
        }
        let no_room = store.room.reserve(1 << 60);
        while let Some(work) = pick(store) {
            run(store, work);
        }
        store.note_all_versions();
        let before = store.room.looks.load(Ordering::Relaxed);
        assert!(pick(store).is_none());
        let looks = store.room.looks.load(Ordering::Relaxed) - before;
        assert!((1..5).contains(&looks), "{separation:?}: {looks}");
        drop(no_room);
    }
}

/// Goal: what is being removed may be what the next pass would free: none is picked meanwhile, and none is forgotten.
#[test]
fn no_pass_is_picked_while_files_are_removed() {
    let disk = SimDisk::new();
    let options = |reclaim_mode| {
        let families = [("default".to_owned(), separated())].into();
        let max_space_amp = 1.1;
        Options {
            create_if_missing: true,
            background_jobs: 0,
            max_space_amp,
            reclaim_mode,
            families,
            ..Options::default()
        }
    };
    let db = Db::open_with_env("/db", options(ReclaimMode::Off), disk.env()).unwrap();
    let family = db.default_column_family();
    (0..1000).for_each(|n| put(&db, &family, n));
    (0..500).for_each(|n| put(&db, &family, n * 7919 % 1000));
    db.compact_range(&family, None, None).unwrap();
    db.close().unwrap();
    let db = Db::open_with_env("/db", options(ReclaimMode::Auto), disk.env()).unwrap();
    let store = db.store();
    store.note_all_versions();
    store.state.lock().purging += 1;
    while let Some(work) = pick(store) {
        assert!(!work.is_reclaim(), "{work:?}");
        run(store, work);
    }
    store.state.lock().purging -= 1;
    let work = pick(store).unwrap();
    assert!(work.is_reclaim(), "{work:?}");
    run(store, work);
}

/// Goal: what was too early while somebody waited for space is looked at again once nobody does, though nothing changed.
#[test]
fn what_is_looked_at_while_writers_wait_is_looked_at_again_afterwards() {
    let families = [("default".to_owned(), separated())].into();
    let options = Options { create_if_missing: true, background_jobs: 1, families, ..Options::default() };
    let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
    let store = db.store();
    (0..100).for_each(|n| put(&db, &db.default_column_family(), n));
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    // As whoever waits does.
    store.room.note_pressed(store.env.clock.monotonic());
    store.note_all_versions();
    db.wait_for_compact().unwrap();
    assert!(store.state.lock().once_calm.contains(&0));
    store.env.clock.sleep(Duration::from_secs(1));
    db.wait_for_compact().unwrap();
    let state = store.state.lock();
    assert!(state.once_calm.is_empty() && state.to_compact.is_empty(), "{:?}", state.to_compact);
}
