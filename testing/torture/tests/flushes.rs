//! Flushes beside each other, what they leave in level 0, and the logs that they make needless.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::env::{Env, Result as EnvResult};
use esker::{Db, ErrorKind, FamilyOptions, Options, ReadOptions, Separation, WriteOptions};
use esker_torture::hooked::{Call, Hooked};

fn options(background_jobs: usize, family: FamilyOptions) -> Options {
    Options {
        create_if_missing: true,
        background_jobs,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

const KEYS: u32 = 8000;

/// Without compactions.
fn only_flushes() -> FamilyOptions {
    FamilyOptions {
        write_buffer_bytes: 64 << 10,
        write_buffer_count_max: 4,
        level0_compaction_trigger: 100,
        level0_slowdown_trigger: 200,
        level0_stop_trigger: 300,
        ..FamilyOptions::default()
    }
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst")
}

fn assert_sound(db: &Db) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
}

/// Goal: where each flush adds little to a level that is large, level 0 is merged with itself: keys are written some times, not once for
/// every few flushes, and it has never more tables than it may. Deletions, older versions that a snapshot wants, and the newest of
/// several tables come out right.
#[test]
fn small_tables_of_level_0_are_merged_with_each_other() {
    let family = FamilyOptions { separation: Separation::AtFlush, min_blob_size: 256, ..FamilyOptions::default() };
    let trigger = family.level0_compaction_trigger;
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(0, family), disk.env()).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut expected = BTreeMap::new();
    let value = |n: u32, round: u32| vec![(n + round) as u8; if n.is_multiple_of(3) { 300 } else { 20 }];
    for n in 0..KEYS {
        db.put(n.to_be_bytes(), value(n, 0)).unwrap();
        expected.insert(n, value(n, 0));
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let before = db.stats();
    let mut pinned = None;
    for round in 1..=100u32 {
        for _ in 0..12 {
            let n = random.u32(..KEYS);
            if random.u8(..) < 80 {
                db.delete(n.to_be_bytes()).unwrap();
                expected.remove(&n);
            } else {
                db.put(n.to_be_bytes(), value(n, round)).unwrap();
                expected.insert(n, value(n, round));
            }
        }
        db.flush().unwrap();
        let level0 = db.stats().families[0].levels[0].files;
        assert!(level0 < trigger, "{level0} tables in level 0");
        if round == 70 {
            pinned = Some((db.snapshot(), expected.clone()));
        }
    }
    let contents = |options: &ReadOptions| -> BTreeMap<u32, Vec<u8>> {
        let iterator = db.iter_cf(&db.default_column_family(), options).unwrap();
        let entries = iterator.entries().map(|entry| entry.unwrap());
        entries.map(|(key, value)| (u32::from_be_bytes(key[..].try_into().unwrap()), value.to_vec())).collect()
    };
    let (snapshot, then) = pinned.unwrap();
    let at_snapshot = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert!(contents(&at_snapshot) == then, "as the snapshot saw it");
    assert!(contents(&ReadOptions::default()) == expected);
    for n in 0..KEYS {
        assert!(db.get(n.to_be_bytes()).unwrap().as_deref() == expected.get(&n).map(Vec::as_slice), "key {n}");
    }
    let stats = db.stats();
    let flushed = stats.written.flush_bytes - before.written.flush_bytes;
    let compacted = stats.written.compaction_bytes - before.written.compaction_bytes;
    assert!(compacted < 8 * flushed, "{compacted} bytes written for {flushed} that were flushed");
    assert!(stats.compactions - before.compactions > 20, "{stats:?}");
    assert_sound(&db);
}

/// Holds, or fails, the first table that is synced until the second one has been.
#[derive(Debug, Default)]
struct Order {
    synced: Mutex<usize>,
    changed: Condvar,
}

impl Order {
    fn env(self: &Arc<Self>, disk: &SimDisk, first: impl Fn() -> EnvResult<()> + Send + Sync + 'static) -> Env {
        let order = Arc::clone(self);
        let files = Hooked::new(disk.env().files, move |call| match call {
            Call::Sync(path) if is_table(path) => order.pass(&first),
            _ => Ok(()),
        });
        Env { files: Arc::new(files), ..disk.env() }
    }

    fn pass(&self, first: impl Fn() -> EnvResult<()>) -> EnvResult<()> {
        let mut synced = self.synced.lock().unwrap();
        *synced += 1;
        self.changed.notify_all();
        if *synced > 1 {
            return Ok(());
        }
        let waited = self.changed.wait_while(synced, |synced| *synced < 3);
        drop(waited.unwrap());
        first()
    }

    fn wait_for(&self, count: usize) {
        drop(self.changed.wait_while(self.synced.lock().unwrap(), |synced| *synced < count).unwrap());
    }

    fn let_go(&self) {
        *self.synced.lock().unwrap() = 3;
        self.changed.notify_all();
    }
}

/// Puts `value` under one key and fills the memtable until it is sealed.
fn fill(db: &Db, value: &str) {
    db.put("key", value).unwrap();
    let sealed = |db: &Db| db.stats().families[0].immutable_memtables;
    let before = sealed(db);
    for n in 0u64.. {
        if sealed(db) > before {
            break;
        }
        db.put(format!("{value}{n}"), [7; 400]).unwrap();
    }
}

fn value_of(db: &Db) -> String {
    String::from_utf8(db.get("key").unwrap().unwrap().to_vec()).unwrap()
}

/// Goal: a flush that ends before that of older memtables shows nothing before them: a reader would meet the older entry first.
#[test]
fn memtables_reach_level_0_in_the_order_in_which_they_were_sealed() {
    let (disk, order) = (SimDisk::new(), Arc::new(Order::default()));
    let env = order.env(&disk, || Ok(()));
    let db = Db::open_with_env("/store", options(2, only_flushes()), env).unwrap();
    fill(&db, "older");
    order.wait_for(1);
    fill(&db, "newer");
    order.wait_for(2);
    for _ in 0..500 {
        assert_eq!(value_of(&db), "newer");
        assert_eq!(db.stats().families[0].immutable_memtables, 2, "neither is in a table");
        std::thread::yield_now();
    }
    let crashed = disk.after_process_death();
    order.let_go();
    db.flush().unwrap();
    assert_eq!(value_of(&db), "newer");
    db.close().unwrap();
    for image in [crashed, disk.after_power_loss(Survivors::Sample { seed: 1 })] {
        let db = Db::open_with_env("/store", options(0, only_flushes()), image.env()).unwrap();
        assert_eq!(value_of(&db), "newer");
        assert_sound(&db);
    }
}

/// Goal: if the older ones cannot be flushed, what was written of newer ones goes, and is written again behind them.
#[test]
fn a_flush_behind_one_that_failed_installs_nothing() {
    let (disk, order) = (SimDisk::new(), Arc::new(Order::default()));
    let failing = disk.clone();
    let env = order.env(&disk, move || {
        failing.fail_at(failing.op_count(), Fault::NoSpace);
        Ok(())
    });
    let db = Db::open_with_env("/store", options(2, only_flushes()), env).unwrap();
    fill(&db, "older");
    order.wait_for(1);
    fill(&db, "newer");
    order.wait_for(2);
    order.let_go();
    let told = db.flush();
    assert!(told.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exhausted) || told.is_ok(), "{told:?}");
    db.flush().unwrap();
    assert_eq!(value_of(&db), "newer");
    assert!(db.stats().background_error.is_none(), "{:?}", db.stats().background_error);
    db.close().unwrap();
    let db = Db::open_with_env("/store", options(0, only_flushes()), disk.env()).unwrap();
    assert_eq!(value_of(&db), "newer");
    assert_sound(&db);
    let tables = disk.paths().iter().filter(|path| is_table(path)).count();
    let known: usize = db.stats().families[0].levels.iter().map(|level| level.files).sum();
    assert_eq!(tables, known, "a table of the flush that came to nothing stayed");
}

/// Goal: the log of the only family goes when its memtables are in tables, without having been written to the device; with another
/// family, which may have a part of a batch in it, it is made durable first. Either way a power loss takes nothing that was flushed.
#[test]
fn only_a_log_that_others_need_is_synced_before_a_flush() {
    for families in [1, 2] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options(0, only_flushes()), disk.env()).unwrap();
        if families == 2 {
            db.create_column_family("second", FamilyOptions::default()).unwrap();
        }
        db.put("key", "value").unwrap();
        disk.set_tracing(true);
        db.flush().unwrap();
        let trace = disk.trace();
        let is_sync = |line: &&String| line.split(' ').nth(1).is_some_and(|op| op == "sync") && line.contains(".log");
        assert_eq!(trace.iter().filter(is_sync).count(), families - 1, "{trace:#?}");
        // Synced behind it: that must not be lost for the sake of a log that nobody needs any more.
        let sync = WriteOptions { sync: true, ..WriteOptions::default() };
        db.put_cf(&db.default_column_family(), "later", "x", &sync).unwrap();
        for seed in 0..20 {
            let image = disk.after_power_loss(Survivors::Sample { seed });
            let db = Db::open_with_env("/store", options(0, only_flushes()), image.env()).unwrap();
            assert_eq!(value_of(&db), "value");
            assert_eq!(db.get("later").unwrap().as_deref(), Some(&b"x"[..]));
        }
    }
}

/// Goal: a log that ended without being synced is not forgotten because the family whose memtable needed it was dropped: the manifest
/// names it for the one that is left, and an open that finds it torn would not read what was synced behind it.
#[test]
fn a_log_that_only_a_dropped_family_needed_does_not_stand_before_what_is_synced_later() {
    let (disk, order) = (SimDisk::new(), Arc::new(Order::default()));
    let env = order.env(&disk, || Ok(()));
    let db = Db::open_with_env("/store", options(1, only_flushes()), env).unwrap();
    let [second, third] = ["second", "third"].map(|name| db.create_column_family(name, only_flushes()).unwrap());
    let (unsynced, synced) = (WriteOptions::default(), WriteOptions { sync: true, ..WriteOptions::default() });
    db.put_cf(&third, "key", "x", &unsynced).unwrap();
    std::thread::scope(|scope| {
        // The only thread is at the third family's memtable: what is sealed after it waits, in a log that nobody has synced.
        let flush = scope.spawn(|| db.flush_cf(&third));
        order.wait_for(1);
        let sealed = || db.stats().families.iter().map(|family| family.immutable_memtables).sum::<usize>();
        for n in 0u32.. {
            if sealed() > 1 {
                break;
            }
            db.put_cf(&second, n.to_be_bytes(), [7; 400], &unsynced).unwrap();
        }
        db.drop_column_family(&third).unwrap();
        db.drop_column_family(&second).unwrap();
        db.put_cf(&db.default_column_family(), "key", "later", &synced).unwrap();
        let images: Vec<_> = (0..50).map(|seed| disk.after_power_loss(Survivors::Sample { seed })).collect();
        order.let_go();
        flush.join().unwrap().unwrap();
        for image in images {
            let db = Db::open_with_env("/store", options(0, only_flushes()), image.env()).unwrap();
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"later"[..]));
        }
    });
    assert_sound(&db);
}
