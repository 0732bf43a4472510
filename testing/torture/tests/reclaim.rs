//! Space comes back, and nothing else changes: the classes of bugs that key-value separation brought to other systems
//! (design, section 10: B1 to B4 and B8 to B10), crashes and faults at every operation, and the bound on space.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::env::{AppendFile, DirEntry, Env, FileSystem, Lock, Metadata, ReadFile, Result as EnvResult, Space};
use esker::{Compression, Db, ErrorKind, FamilyOptions, Options, ReadOptions, ReclaimMode, Separation};
use esker_torture::model::{Contents, forward};

/// What a blob record takes besides its key and its value.
const RECORD_HEADER_BYTES: u64 = 32;
const BLOB_FILE_BYTES: u64 = 64 << 10;

fn options(mode: ReclaimMode) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        min_blob_size: 100,
        blob_file_bytes: BLOB_FILE_BYTES,
        blob_compression: Compression::None,
        target_file_bytes: 4 << 10,
        level_base_bytes: 16 << 10,
        level_multiplier: 4,
        level0_compaction_trigger: 2,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        punch_holes: true,
        background_jobs: 0,
        reclaim_mode: mode,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, mode: ReclaimMode) -> Db {
    Db::open_with_env("/store", options(mode), disk.env()).unwrap()
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

fn value(n: u32, round: u32) -> Vec<u8> {
    let mut value = vec![0; 200 + (n as usize * 37) % 300];
    fastrand::Rng::with_seed(u64::from(n) << 32 | u64::from(round)).fill(&mut value);
    value
}

/// Several blob files, tables in several levels, and garbage: every third key was overwritten, every seventh deleted.
fn garbage(db: &Db) -> Contents {
    let mut expected = Contents::new();
    for n in 0..600 {
        db.put(key(n), value(n, 0)).unwrap();
        expected.insert(key(n), value(n, 0));
    }
    let family = db.default_column_family();
    db.compact_range(&family, None, None).unwrap();
    for n in (0..600).step_by(3) {
        db.put(key(n), value(n, 1)).unwrap();
        expected.insert(key(n), value(n, 1));
    }
    for n in (0..600).step_by(7) {
        db.delete(key(n)).unwrap();
        expected.remove(&key(n));
    }
    db.compact_range(&family, None, None).unwrap();
    assert!(db.stats().families[0].blob_garbage_bytes > BLOB_FILE_BYTES / 2);
    expected
}

fn contents(db: &Db) -> Contents {
    forward(db, &db.default_column_family(), &ReadOptions::default()).unwrap().into_iter().collect()
}

fn assert_sound(db: &Db, what: &str) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
}

fn files(disk: &SimDisk, extension: &str) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// Goal: what a reclaim by hand promises: no garbage is left, the values are what they were, in as many bytes as they
/// need, and a plan told so before.
#[test]
fn a_reclaim_leaves_no_garbage_and_every_value() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let expected = garbage(&db);
    let family = db.default_column_family();
    let before = db.stats().families[0].clone();
    let plan = db.reclaim_plan(&family, 0.0).unwrap();
    assert_eq!(plan.freed_bytes, before.blob_garbage_bytes);
    assert_eq!(plan.files.len(), before.blob_files);
    let reclaimed = db.reclaim(&family, 0.0).unwrap();
    let after = db.stats().families[0].clone();
    assert_eq!((after.blob_garbage_bytes, after.blob_live_bytes), (0, before.blob_live_bytes));
    assert_eq!(reclaimed.bytes_before - reclaimed.bytes_after, before.blob_garbage_bytes);
    assert!(reclaimed.passes > 0);
    assert_eq!(files(&disk, "blob").len(), after.blob_files, "what was emptied is gone");
    assert!(contents(&db) == expected);
    assert_sound(&db, "after reclaim");
    assert_eq!(db.reclaim(&family, 0.0).unwrap().passes, 0, "nothing is left to do");
    let off = open(&SimDisk::new(), ReclaimMode::Off);
    assert_eq!(off.reclaim(&off.default_column_family(), 0.5).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.reclaim(&family, f64::NAN).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
    assert!(contents(&open(&disk, ReclaimMode::Manual)) == expected);
}

/// Goal (B1): a deleted key stays deleted, wherever its deletion and its older values lie when they are moved.
/// Method: relocation comes between any two of the steps by which a deletion finds its way down.
#[test]
fn b1_deleted_keys_stay_deleted_through_reclaim() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let mut expected = garbage(&db);
    let family = db.default_column_family();
    for round in 0..6u32 {
        for n in (round..600).step_by(6) {
            db.delete(key(n)).unwrap();
            expected.remove(&key(n));
            if n % 12 == round {
                db.put(key(n + 1), value(n, round + 2)).unwrap();
                expected.insert(key(n + 1), value(n, round + 2));
            }
        }
        db.flush().unwrap();
        if round % 2 == 0 {
            // Every file is emptied then, so tables with fresh deletions in them are rewritten too.
            db.set_separation(&family, Separation::FallBack).unwrap();
        }
        db.reclaim(&family, 0.0).unwrap();
        db.set_separation(&family, Separation::AtFlush).unwrap();
        assert!(contents(&db) == expected, "round {round}");
        let (begin, end) = (key(100 * round), key(100 * round + 150));
        db.compact_range(&family, Some(&begin), Some(&end)).unwrap();
        db.reclaim(&family, 0.0).unwrap();
        assert!(contents(&db) == expected, "round {round}, in part compacted");
        assert_sound(&db, "each round");
    }
    db.compact_range(&family, None, None).unwrap();
    assert!(contents(&db) == expected);
    assert_eq!(db.stats().families[0].deletions, 0);
}

/// What happens when a file of some kind is made.
type Hook = Box<dyn FnMut() + Send>;

/// A file system on which something happens whenever a blob file is made.
struct Hooked {
    files: Arc<dyn FileSystem>,
    hook: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl FileSystem for Hooked {
    fn create(&self, path: &Path) -> EnvResult<Arc<dyn AppendFile>> {
        if path.extension().is_some_and(|extension| extension == "blob") {
            let hook = self.hook.lock().unwrap().take();
            if let Some(mut hook) = hook {
                hook();
            }
        }
        self.files.create(path)
    }
    fn reopen(&self, path: &Path, len: u64) -> EnvResult<Arc<dyn AppendFile>> {
        self.files.reopen(path, len)
    }
    fn open(&self, path: &Path) -> EnvResult<Arc<dyn ReadFile>> {
        self.files.open(path)
    }
    fn list(&self, dir: &Path) -> EnvResult<Vec<DirEntry>> {
        self.files.list(dir)
    }
    fn metadata(&self, path: &Path) -> EnvResult<Metadata> {
        self.files.metadata(path)
    }
    fn create_dir_all(&self, dir: &Path) -> EnvResult<()> {
        self.files.create_dir_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> EnvResult<()> {
        self.files.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> EnvResult<()> {
        self.files.link(from, to)
    }
    fn remove(&self, path: &Path) -> EnvResult<()> {
        self.files.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> EnvResult<()> {
        self.files.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> EnvResult<()> {
        self.files.sync_dir(dir)
    }
    fn punch_hole(&self, path: &Path, range: Range<u64>) -> EnvResult<()> {
        self.files.punch_hole(path, range)
    }
    fn space(&self, path: &Path) -> EnvResult<Space> {
        self.files.space(path)
    }
    fn lock(&self, path: &Path) -> EnvResult<Box<dyn Lock>> {
        self.files.lock(path)
    }
}

/// Goal (B2): what is written, flushed and even compacted while values are being moved wins over what is moved.
#[test]
fn b2_a_put_during_a_reclaim_wins() {
    let disk = SimDisk::new();
    let files = Arc::new(Hooked { files: disk.env().files, hook: Mutex::default() });
    let env = Env { files: files.clone(), ..disk.env() };
    let db = Db::open_with_env("/store", options(ReclaimMode::Manual), env).unwrap();
    let mut expected = garbage(&db);
    let family = db.default_column_family();
    let writer = db.clone();
    let happened = Arc::new(Mutex::new(0));
    let count = happened.clone();
    *files.hook.lock().unwrap() = Some(Box::new(move || {
        for n in (0..600).step_by(2) {
            writer.put(key(n), value(n, 9)).unwrap();
        }
        writer.delete(key(1)).unwrap();
        writer.flush().unwrap();
        *count.lock().unwrap() += 1;
    }));
    db.reclaim(&family, 0.0).unwrap();
    assert_eq!(*happened.lock().unwrap(), 1);
    (0..600).step_by(2).for_each(|n| drop(expected.insert(key(n), value(n, 9))));
    expected.remove(&key(1));
    assert!(contents(&db) == expected);
    db.compact_range(&family, None, None).unwrap();
    db.reclaim(&family, 0.0).unwrap();
    assert!(contents(&db) == expected);
    assert_sound(&db, "in the end");
}

/// Goal (B3): a file goes with the last who reads it: a snapshot and an iterator read on what they saw, whatever is
/// reclaimed meanwhile, and once they are gone, so are the files.
#[test]
fn b3_readers_keep_their_files_through_reclaim() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let expected = garbage(&db);
    let family = db.default_column_family();
    let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    let pinned = db.get(key(5)).unwrap().unwrap();
    for n in 0..600 {
        db.put(key(n), value(n, 5)).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    db.reclaim(&family, 0.0).unwrap();
    let held = files(&disk, "blob").len();
    assert!(held > db.stats().families[0].blob_files, "the iterator holds files that no version has any more");
    let mut seen = Contents::new();
    while iterator.valid() {
        seen.insert(iterator.key().to_vec(), iterator.value().unwrap().to_vec());
        iterator.next().unwrap();
    }
    assert!(seen == expected);
    assert!(forward(&db, &family, &then).unwrap().into_iter().collect::<Contents>() == expected);
    assert_eq!(pinned, value(5, 0)[..]);
    drop((iterator, then));
    db.compact_range(&family, None, None).unwrap();
    db.reclaim(&family, 0.0).unwrap();
    assert_eq!(files(&disk, "blob").len(), db.stats().families[0].blob_files);
    assert!(contents(&db) == (0..600).map(|n| (key(n), value(n, 5))).collect());
    assert_sound(&db, "in the end");
}

/// A kind of reclaim, as the tests below try them.
type Kind = (&'static str, fn(&Db) -> esker::Result<()>);

const KINDS: [Kind; 2] = [
    ("relocate", |db| db.reclaim(&db.default_column_family(), 0.0).map(drop)),
    ("fall back", |db| {
        db.set_separation(&db.default_column_family(), Separation::FallBack)?;
        db.compact_range(&db.default_column_family(), None, None)
    }),
];

/// Goal (B4): values, tables and garbage change together: wherever the machine dies in a reclaim, and whatever of the
/// unsynced survives, every value is there, all pointers lead somewhere, and the ledger is exact.
#[test]
fn b4_death_before_every_operation_of_a_reclaim_loses_nothing() {
    for (kind, run) in KINDS {
        let made = SimDisk::new();
        let db = open(&made, ReclaimMode::Manual);
        let expected = garbage(&db);
        db.close().unwrap();
        let healthy = made.after_process_death();
        let db = open(&healthy, ReclaimMode::Manual);
        let first = healthy.op_count();
        run(&db).unwrap();
        let ops = healthy.op_count();
        drop(db);
        assert!(ops - first > 10, "{kind}: {} operations to die at", ops - first);
        for n in first..ops {
            let disk = made.after_process_death();
            let db = open(&disk, ReclaimMode::Manual);
            disk.die_after(n);
            run(&db).unwrap_err();
            drop(db);
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                let what = format!("{kind}: died before operation {n} of {ops}, {survivors:?}");
                let db = open(&disk.after_power_loss(survivors), ReclaimMode::Manual);
                assert!(contents(&db) == expected, "{what}");
                assert_sound(&db, &what);
            }
        }
    }
}

/// Goal (B8): a call that fails in a reclaim is told to whoever asked, changes no answer, and leaves no file behind;
/// and the next try does what this one could not.
#[test]
fn b8_every_call_of_a_reclaim_may_fail_and_says_so() {
    for (kind, run) in KINDS {
        let made = SimDisk::new();
        let db = open(&made, ReclaimMode::Manual);
        let expected = garbage(&db);
        db.close().unwrap();
        let healthy = made.after_process_death();
        let db = open(&healthy, ReclaimMode::Manual);
        let (first, first_read) = (healthy.op_count(), healthy.read_count());
        run(&db).unwrap();
        let (ops, reads) = (healthy.op_count(), healthy.read_count());
        drop(db);
        let faults = (first..ops).flat_map(|n| [(n, Some(Fault::Eio)), (n, Some(Fault::NoSpace))]);
        let read_faults = (first_read..reads).step_by(7).map(|n| (n, None));
        let mut told = 0;
        for (n, fault) in faults.chain(read_faults) {
            let what = format!("{kind}: call {n} fails with {fault:?}");
            let disk = made.after_process_death();
            let mut db = open(&disk, ReclaimMode::Manual);
            match fault {
                Some(fault) => disk.fail_at(n, fault),
                None => disk.fail_read_at(n, esker::env::sim::ReadFault::Eio),
            }
            let result = run(&db);
            told += u32::from(result.is_err());
            assert!(contents(&db) == expected, "{what}: answers");
            if result.is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
                drop(db);
                db = open(&disk.after_power_loss(Survivors::Everything), ReclaimMode::Manual);
                assert!(contents(&db) == expected, "{what}: answers after reopening");
                continue;
            }
            run(&db).unwrap_or_else(|error| panic!("{what}, and then: {error}"));
            assert!(contents(&db) == expected, "{what}: answers after the next try");
            assert_eq!(db.stats().families[0].blob_garbage_bytes, 0, "{what}");
            assert_sound(&db, &what);
            // What failed to be removed is tried again by whatever asks next.
            db.reclaim(&db.default_column_family(), 0.0).unwrap();
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            assert_eq!(files(&disk, "blob").len(), db.stats().families[0].blob_files, "{what}: files left behind");
        }
        assert!(told > 20, "{kind}: only {told} failures were told");
    }
}

/// Goal (B8): a value that cannot be read keeps its file from being emptied, and nothing else; the user can read why.
#[test]
fn b8_a_damaged_value_keeps_its_own_file_only() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let expected = garbage(&db);
    db.close().unwrap();
    let blobs = files(&disk, "blob");
    // A live value's byte: key 5 was never overwritten.
    let (victim, place) = blobs
        .iter()
        .find_map(|path| {
            let bytes = disk.file_bytes(path).unwrap();
            let value = value(5, 0);
            bytes.windows(value.len()).position(|window| window == value).map(|at| (path.clone(), at as u64))
        })
        .unwrap();
    assert!(disk.flip_bit(&victim, (place + 50) * 8));
    let db = open(&disk, ReclaimMode::Manual);
    let error = db.reclaim(&db.default_column_family(), 0.0).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(victim.as_path())), "{error}");
    db.close().unwrap();
    let options = Options { max_space_amp: 1.05, ..options(ReclaimMode::Auto) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for n in 600..1200 {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!(stats.background_error.map(|error| error.kind()), Some(ErrorKind::Corruption));
    assert!(stats.relocations > 0 && disk.paths().contains(&victim));
    assert!(
        files(&disk, "blob").iter().filter(|path| blobs.contains(path)).count() < blobs.len(),
        "others were emptied"
    );
    for (key, value) in expected.iter().filter(|(at, _)| **at != key(5)) {
        assert!(db.get(key).unwrap().as_deref() == Some(value));
    }
    assert_eq!(db.get(key(5)).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Goal (B9): a reclaim needs room for about one blob file and the tables, however many files there are to empty.
/// Method: the disk has no more. Blob files of several sizes make it more than a matter of counting.
#[test]
fn b9_a_reclaim_goes_by_one_blob_file_at_a_time() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let family = db.default_column_family();
    for n in 0..6000 {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    for n in (0..6000).filter(|n| n % 5 < 2) {
        db.delete(key(n)).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    let stats = db.stats();
    assert!(stats.families[0].blob_files > 25, "{}", stats.families[0].blob_files);
    let used = stats.on_disk.total_bytes();
    let blocks = disk.paths().len() as u64 * 4096;
    disk.set_capacity(Some(used + blocks + 3 * BLOB_FILE_BYTES + 2 * stats.on_disk.table_bytes));
    let reclaimed = db.reclaim(&family, 0.1).unwrap();
    assert!(reclaimed.passes > 10, "{reclaimed:?}");
    assert_eq!(db.stats().families[0].blob_garbage_bytes, 0);
    assert_eq!(contents(&db).len(), 3600);
    assert_sound(&db, "after reclaim");
}

/// Goal (B10): the ledger is exact: through overwrites, deletions, reclaim and reopening it says of what lives just what
/// the living take: header, key and value of each.
#[test]
fn b10_the_ledger_is_exact_through_reclaim_and_reopening() {
    let disk = SimDisk::new();
    let mut random = fastrand::Rng::with_seed(10);
    let mut expected = Contents::new();
    for round in 0..5 {
        let mode = if round % 2 == 0 { ReclaimMode::Auto } else { ReclaimMode::Manual };
        let db = open(&disk, mode);
        for _ in 0..1500 {
            let n = random.u32(..500);
            if random.u8(..5) == 0 {
                db.delete(key(n)).unwrap();
                expected.remove(&key(n));
            } else {
                let value = value(random.u32(..1000), round);
                db.put(key(n), &value).unwrap();
                expected.insert(key(n), value);
            }
        }
        let family = db.default_column_family();
        db.compact_range(&family, None, None).unwrap();
        let stats = db.stats().families[0].clone();
        let record = |(key, value): (&Vec<u8>, &Vec<u8>)| RECORD_HEADER_BYTES + (key.len() + value.len()) as u64;
        assert_eq!(stats.blob_live_bytes, expected.iter().map(record).sum::<u64>(), "round {round}");
        let on_disk: u64 =
            files(&disk, "blob").iter().map(|path| disk.file_bytes(path).unwrap().len() as u64 - 62).sum();
        assert_eq!(stats.blob_live_bytes + stats.blob_garbage_bytes, on_disk, "round {round}");
        assert_sound(&db, "each round");
        db.close().unwrap();
    }
}

/// Goal: blob files never take more than the bound allows for what lives, by more than one of them, while data are
/// overwritten at random ten times over.
#[test]
fn space_stays_within_its_bound_through_ten_overwrites() {
    const KEYS: u32 = 2000;
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Auto);
    let mut random = fastrand::Rng::with_seed(7);
    let live = |n: u32| RECORD_HEADER_BYTES + (key(n).len() + value(n, 0).len()) as u64;
    let live: u64 = (0..KEYS).map(live).sum();
    for n in 0..KEYS {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    let mut worst = 0.0f64;
    for put in 0..KEYS * 10 {
        let n = random.u32(..KEYS);
        db.put(key(n), value(n, 0)).unwrap();
        if put % 50 == 0 {
            let blob_bytes = db.stats().on_disk.blob_bytes;
            worst = worst.max(blob_bytes as f64 / live as f64);
            let bound = live * 13 / 10 + BLOB_FILE_BYTES;
            assert!(blob_bytes <= bound, "after {put} puts: {blob_bytes} bytes for {live} that live ({worst:.2})");
        }
    }
    assert!(db.stats().relocations > 3, "{}", db.stats().relocations);
    assert_sound(&db, "in the end");
}

/// Goal: a family that falls back has no blob file left when it was compacted, keeps doing so when it is reopened, and
/// separates again when it is told to; a family that only stops leaves what is there.
#[test]
fn families_stop_separating_fall_back_and_begin_again_while_open() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Auto);
    let mut expected = garbage_auto(&db);
    let family = db.default_column_family();
    let blobs = db.stats().families[0].blob_files;
    db.set_separation(&family, Separation::Off).unwrap();
    let mut put = |db: &Db, n: u32, round: u32| {
        db.put(key(n), value(n, round)).unwrap();
        expected.insert(key(n), value(n, round));
        expected.clone()
    };
    put(&db, 2, 20);
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.stats().families[0].blob_files, blobs, "what is there stays, and nothing comes");
    db.set_separation(&family, Separation::FallBack).unwrap();
    let expected = put(&db, 3, 20);
    db.compact_range(&family, None, None).unwrap();
    assert_eq!((db.stats().families[0].blob_files, files(&disk, "blob").len()), (0, 0));
    assert!(contents(&db) == expected);
    db.close().unwrap();
    let options = Options { families: Default::default(), ..options(ReclaimMode::Auto) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let family = db.default_column_family();
    assert_eq!(family.separation(), Separation::FallBack, "as the OPTIONS file says");
    put(&db, 4, 20);
    db.flush().unwrap();
    assert_eq!(files(&disk, "blob").len(), 0);
    db.set_separation(&family, Separation::AtFlush).unwrap();
    // So many that compaction meets every table.
    (0..600).step_by(5).for_each(|n| drop(put(&db, n, 20)));
    let expected = put(&db, 5, 20);
    db.compact_range(&family, None, None).unwrap();
    let stats = db.stats().families[0].clone();
    assert!(stats.blob_files > 0 && stats.blob_live_bytes > 100_000, "values find their way back: {stats:?}");
    assert!(contents(&db) == expected);
    assert_sound(&db, "in the end");
}

/// As [`garbage`], whatever becomes of the garbage.
fn garbage_auto(db: &Db) -> Contents {
    let mut expected = Contents::new();
    for n in 0..600 {
        db.put(key(n), value(n, 0)).unwrap();
        expected.insert(key(n), value(n, 0));
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    expected
}

/// Values of several pages, in one file for each flush, of which every second was overwritten: half of each file is dead.
fn large_garbage(disk: &SimDisk) -> Contents {
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Manual, false), disk.env()).unwrap();
    let mut expected = Contents::new();
    for round in 0..2 {
        for n in (0..60).step_by(1 + round as usize) {
            db.put(key(n), large_value(n, round)).unwrap();
            expected.insert(key(n), large_value(n, round));
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
    db.close().unwrap();
    expected
}

fn large_options(mode: ReclaimMode, holes_within_values: bool) -> Options {
    let mut options = Options { holes_within_values, ..options(mode) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 1 << 20);
    options
}

fn large_value(n: u32, round: u32) -> Vec<u8> {
    let mut value = vec![1; 20_000 + n as usize * 13];
    fastrand::Rng::with_seed(u64::from(n) << 32 | u64::from(round)).fill(&mut value);
    value
}

/// Opens with reclaim in the background and lets it do what is due.
fn let_punch(disk: &SimDisk, within: bool) -> esker::Result<Db> {
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Auto, within), disk.env())?;
    db.flush()?;
    Ok(db)
}

fn allocated(disk: &SimDisk) -> u64 {
    files(disk, "blob").iter().map(|path| disk.env().files.metadata(path).unwrap().allocated).sum()
}

/// Goal: dead pages of large values come back without a value being read or written; every answer stays, a check is
/// content, and damage of what lives is still found.
#[test]
fn holes_give_dead_pages_back_and_nothing_else() {
    [false, true].into_iter().for_each(holes_give_pages_back);
}

fn holes_give_pages_back(within: bool) {
    let disk = SimDisk::new();
    let expected = large_garbage(&disk);
    let (before, blobs) = (allocated(&disk), files(&disk, "blob"));
    let db = let_punch(&disk, within).unwrap();
    let stats = db.stats();
    assert_eq!((stats.punches, stats.relocations), (1, 0), "holes alone keep the bound");
    assert!(stats.punched_bytes > 350_000 && before - allocated(&disk) == stats.punched_bytes, "{stats:?}");
    assert_eq!(stats.blob_reads, 0);
    assert!(stats.on_disk.blob_bytes < before - 350_000);
    assert_eq!(files(&disk, "blob"), blobs);
    assert!(contents(&db) == expected);
    assert_sound(&db, "with holes");
    db.close().unwrap();
    let db = let_punch(&disk, within).unwrap();
    assert_eq!(db.stats().relocations, 0, "holes of an earlier life are remembered by the file system");
    assert_sound(&db, "reopened");
    db.close().unwrap();
    for path in &blobs {
        let value = large_value(1, 0);
        let Some(at) = disk.file_bytes(path).unwrap().windows(value.len()).position(|window| window == value) else {
            continue;
        };
        let damaged = disk.after_process_death();
        assert!(damaged.flip_bit(path, (at as u64 + 9) * 8));
        let db = Db::open_with_env("/store", large_options(ReclaimMode::Manual, within), damaged.env()).unwrap();
        assert!(!db.check(&mut |_| {}).unwrap().errors.is_empty());
        return;
    }
    panic!("no file has the value");
}

/// Goal: nobody's values become holes: not what an iterator may still read, and not in a file with a second name.
#[test]
fn no_hole_is_made_where_somebody_may_read() {
    let within = false;
    let disk = SimDisk::new();
    large_garbage(&disk);
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Auto, within), disk.env()).unwrap();
    // An iterator over what was before the garbage became known would read it: here, over a version of its own.
    let expected: Contents = contents(&db);
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    for n in (0..60).step_by(3) {
        db.put(key(n), "small").unwrap();
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let mut seen = Contents::new();
    while iterator.valid() {
        seen.insert(iterator.key().to_vec(), iterator.value().unwrap().to_vec());
        iterator.next().unwrap();
    }
    assert!(seen == expected, "the iterator reads what it saw");
    drop(iterator);
    db.close().unwrap();

    let disk = SimDisk::new();
    large_garbage(&disk);
    for path in files(&disk, "blob") {
        disk.env().files.link(&path, Path::new("/").join(path.file_name().unwrap()).as_path()).unwrap();
    }
    let shared: Vec<_> = files(&disk, "blob").into_iter().filter(|path| !path.starts_with("/store")).collect();
    let bytes: Vec<_> = shared.iter().map(|path| disk.file_bytes(path).unwrap()).collect();
    let db = let_punch(&disk, within).unwrap();
    assert_eq!(db.stats().punched_bytes, 0);
    assert!(shared.iter().zip(&bytes).all(|(path, bytes)| disk.file_bytes(path).unwrap() == *bytes));
}

/// Goal: another handle that is open for reading, as in another process, finds every value that it saw, whatever is overwritten; once it
/// is gone, holes are made.
#[test]
fn no_hole_is_made_while_another_handle_reads() {
    let within = false;
    let disk = SimDisk::new();
    large_garbage(&disk);
    let reader = Db::open_read_only_with_env("/store", large_options(ReclaimMode::Auto, within), disk.env()).unwrap();
    let seen = contents(&reader);
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Auto, within), disk.env()).unwrap();
    let overwrite = |keys: std::ops::Range<u32>| {
        for n in keys.step_by(3) {
            db.put(key(n), large_value(n, 7)).unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    };
    overwrite(0..60);
    assert_eq!(db.stats().punched_bytes, 0);
    assert!(db.stats().punches > 0, "a pass was begun");
    assert!(contents(&reader) == seen);
    drop(reader);
    overwrite(1..60);
    assert!(db.stats().punched_bytes > 0);
    assert_sound(&db, "with holes");
}

/// Goal: what scans find here and there is brought together, in key order, once they have read as much as that costs; answers stay.
#[test]
fn scans_have_scattered_values_brought_together() {
    let disk = SimDisk::new();
    let mut options = Options { max_space_amp: 4.0, ..options(ReclaimMode::Auto) };
    options.families.get_mut("default").unwrap().separation = Separation::AtWrite;
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let mut order: Vec<u32> = (0..600).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    order.into_iter().for_each(|n| db.put(key(n), value(n, 0)).unwrap());
    let scan = || {
        let before = db.stats().blob_read_calls;
        let found = contents(&db);
        let calls = db.stats().blob_read_calls - before;
        // Background work looks at what there is to do.
        db.put(key(0), value(0, 0)).unwrap();
        db.flush().unwrap();
        (calls, found)
    };
    let (before, expected) = scan();
    assert_eq!(db.stats().relocations, 0, "one scan is not worth it");
    for _ in 0..24 {
        scan();
    }
    let (after, found) = scan();
    assert!(found == expected && db.stats().relocations > 0, "{:?}", db.stats());
    assert!(after * 5 < before, "{after} reads instead of {before}");
    let passes = db.stats().relocations;
    for _ in 0..16 {
        scan();
    }
    assert_eq!(db.stats().relocations, passes, "what lies together is left alone");
    assert_sound(&db, "brought together");
}

/// Goal: where the file system has no holes, values are copied instead, and nobody is told of an error.
#[test]
fn without_holes_values_are_copied() {
    let within = false;
    let disk = SimDisk::new();
    let expected = large_garbage(&disk);
    let env = Env { files: Arc::new(NoHoles(disk.env().files)), ..disk.env() };
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Auto, within), env).unwrap();
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.relocations > 0 && stats.punched_bytes == 0 && stats.background_error.is_none(), "{stats:?}");
    assert!(contents(&db) == expected);
}

/// See [`without_holes_values_are_copied`].
#[derive(Debug)]
struct NoHoles(Arc<dyn FileSystem>);

impl FileSystem for NoHoles {
    fn create(&self, path: &Path) -> EnvResult<Arc<dyn AppendFile>> {
        self.0.create(path)
    }
    fn reopen(&self, path: &Path, len: u64) -> EnvResult<Arc<dyn AppendFile>> {
        self.0.reopen(path, len)
    }
    fn open(&self, path: &Path) -> EnvResult<Arc<dyn ReadFile>> {
        self.0.open(path)
    }
    fn list(&self, dir: &Path) -> EnvResult<Vec<DirEntry>> {
        self.0.list(dir)
    }
    fn metadata(&self, path: &Path) -> EnvResult<Metadata> {
        self.0.metadata(path)
    }
    fn create_dir_all(&self, dir: &Path) -> EnvResult<()> {
        self.0.create_dir_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> EnvResult<()> {
        self.0.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> EnvResult<()> {
        self.0.link(from, to)
    }
    fn remove(&self, path: &Path) -> EnvResult<()> {
        self.0.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> EnvResult<()> {
        self.0.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> EnvResult<()> {
        self.0.sync_dir(dir)
    }
    fn punch_hole(&self, path: &Path, _: Range<u64>) -> EnvResult<()> {
        let unsupported = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(esker::env::Error::new("punching a hole into", path, unsupported))
    }
    fn space(&self, path: &Path) -> EnvResult<Space> {
        self.0.space(path)
    }
    fn lock(&self, path: &Path) -> EnvResult<Box<dyn Lock>> {
        self.0.lock(path)
    }
}

/// Goal: a machine that dies among holes, and a call that fails there, lose no value, whatever of the holes survives.
#[test]
fn death_and_failures_among_holes_lose_nothing() {
    for within in [false, true] {
        let made = SimDisk::new();
        let expected = large_garbage(&made);
        let healthy = made.after_process_death();
        healthy.set_tracing(true);
        let_punch(&healthy, within).unwrap();
        let trace = healthy.trace();
        let index = |line: &String| line.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
        let punches: Vec<u64> = trace.iter().filter(|line| line.contains("punch_hole")).map(index).collect();
        assert!(punches.len() > 20, "{trace:?}");
        for &n in punches.iter().step_by(3) {
            let disk = made.after_process_death();
            disk.die_after(n + 1);
            drop(let_punch(&disk, within));
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                let what = format!("died after operation {n}, {survivors:?}");
                let image = disk.after_power_loss(survivors);
                let db = Db::open_with_env("/store", large_options(ReclaimMode::Manual, within), image.env()).unwrap();
                assert!(contents(&db) == expected, "{what}");
                assert_sound(&db, &what);
                drop(db);
                let db = let_punch(&image, within).unwrap();
                assert!(contents(&db) == expected, "{what}, and once more");
            }
            let disk = made.after_process_death();
            disk.fail_at(n, Fault::Eio);
            let db = let_punch(&disk, within).unwrap();
            assert_eq!(db.stats().background_error.map(|error| error.kind()), Some(ErrorKind::Io));
            assert!(contents(&db) == expected);
            assert_sound(&db, "after a failure");
        }
    }
}
