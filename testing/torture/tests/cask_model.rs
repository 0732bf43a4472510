//! The same answers as a map, whatever the history and the options, merges and crashes of the process included.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use esker::env::Env;
use esker::env::sim::SimDisk;
use esker::{Cask, CaskBatch, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_torture::cask::options;
use esker_torture::{seeds, workload};
use fastrand::Rng;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
/// Keys with versions and values.
type Versions = BTreeSet<(Vec<u8>, u64, Vec<u8>)>;

/// One version of a key, and when it expires.
#[derive(Debug, Clone, PartialEq)]
struct Version {
    version: u64,
    value: Vec<u8>,
    expires_at: Option<u64>,
}

/// What the store should hold: of each key its versions since its last deletion, newest first.
#[derive(Default)]
struct Model {
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    keep: usize,
}

impl Model {
    fn get(&self, key: &[u8], now: u64) -> Option<&[u8]> {
        let newest = self.keys.get(key)?.first()?;
        newest.expires_at.is_none_or(|at| at > now).then_some(&newest.value)
    }

    fn put(&mut self, key: &[u8], version: u64, value: &[u8], expires_at: Option<u64>) {
        let versions = self.keys.entry(key.to_vec()).or_default();
        versions.insert(0, Version { version, value: value.to_vec(), expires_at });
        versions.truncate(self.keep);
    }

    /// What a scan shows: each version that is kept and has not expired, of keys whose newest has not.
    fn versions(&self, now: u64) -> Versions {
        let lives = |version: &&Version| version.expires_at.is_none_or(|at| at > now);
        let shown = self.keys.iter().filter(|(key, _)| self.get(key, now).is_some());
        shown
            .flat_map(|(key, versions)| versions.iter().filter(lives).map(move |version| (key, version)))
            .map(|(key, Version { version, value, .. })| (key.clone(), *version, value.clone()))
            .collect()
    }

    fn contents(&self, now: u64) -> Contents {
        let live = |key: &Vec<u8>| Some((key.clone(), self.get(key, now)?.to_vec()));
        self.keys.keys().filter_map(live).collect()
    }
}

struct Run {
    disk: SimDisk,
    cask: Option<Cask>,
    options: CaskOptions,
    /// Values expire; then only the newest versions are kept, and what expired is not counted on.
    expiring: bool,
    model: Model,
    random: Rng,
    what: String,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut options = options(&mut random);
        let expiring = random.bool();
        if expiring {
            options.keep_versions = 1;
            options.default_ttl = random.bool().then(|| Duration::from_secs(40));
        }
        let model = Model { keep: options.keep_versions, ..Model::default() };
        let disk = SimDisk::new();
        let what = format!("ESKER_SEED={seed}");
        let mut run = Self { disk, cask: None, options, expiring, model, random, what };
        run.open();
        run
    }

    fn open(&mut self) {
        let opened = Cask::open_with_env("/store", self.options.clone(), self.disk.env());
        self.cask = Some(opened.unwrap_or_else(|error| panic!("{}: {error}", self.what)));
    }

    fn cask(&self) -> Cask {
        self.cask.clone().unwrap()
    }

    fn env(&self) -> Env {
        self.disk.env()
    }

    fn now(&self) -> u64 {
        self.env().clock.unix_seconds()
    }

    fn ttl(&mut self) -> (CaskWriteOptions, Option<u64>) {
        let ttl = (self.expiring && self.random.bool()).then(|| Duration::from_secs(self.random.u64(1..60)));
        let expires_at = ttl.or(self.options.default_ttl).map(|ttl| self.now() + ttl.as_secs());
        let stripe = self.random.bool().then(|| self.random.usize(..4));
        (CaskWriteOptions { ttl, sync: self.random.u8(..8) == 0, stripe }, expires_at)
    }

    fn step(&mut self) {
        let (key, value) = (workload::key(&mut self.random), workload::value(&mut self.random));
        let (options, expires_at) = self.ttl();
        let (cask, now) = (self.cask(), self.now());
        let had = self.model.get(&key, now).map(<[u8]>::to_vec);
        match self.random.u8(..100) {
            0..35 => {
                let version = cask.put_with(&key, &value, &options).unwrap();
                self.model.put(&key, version, &value, expires_at);
            }
            35..50 => {
                let was_there = cask.delete_with(&key, &options).unwrap();
                assert!(was_there || had.is_none(), "{}: a delete missed {key:?}", self.what);
                assert!(self.expiring || was_there == had.is_some(), "{}: a delete of nothing", self.what);
                self.model.keys.remove(&key);
            }
            50..56 => {
                let did = cask.put_if_absent(&key, &value, &options).unwrap();
                assert_eq!(did, had.is_none(), "{}: put_if_absent {key:?}", self.what);
                if did {
                    let version = cask.stats().last_version;
                    self.model.put(&key, version, &value, expires_at);
                }
            }
            56..62 => self.compare_and_set(&cask, &key, had, &value, &options, expires_at),
            62..74 => self.batch(&cask),
            74..76 => cask.compact().unwrap(),
            76..80 => self.reopen(),
            80..84 => self.disk.clock().advance(Duration::from_secs(self.random.u64(..15))),
            84..87 => self.scan_through_writes(&cask),
            _ => self.look_up(&cask, &key),
        }
    }

    fn compare_and_set(
        &mut self,
        cask: &Cask,
        key: &[u8],
        had: Option<Vec<u8>>,
        value: &[u8],
        options: &CaskWriteOptions,
        expires_at: Option<u64>,
    ) {
        let expected = if self.random.bool() { had.clone() } else { Some(b"something else".to_vec()) };
        let new = self.random.bool().then_some(value);
        let did = cask.compare_and_set(key, expected.as_deref(), new, options).unwrap();
        assert_eq!(did, expected == had, "{}: compare_and_set {key:?}", self.what);
        match new {
            Some(new) if did => self.model.put(key, cask.stats().last_version, new, expires_at),
            None if did && had.is_some() => drop(self.model.keys.remove(key)),
            _ => {}
        }
    }

    fn batch(&mut self, cask: &Cask) {
        let (mut batch, mut last) = (CaskBatch::new(), BTreeMap::new());
        for n in 0..self.random.usize(..8) {
            let (key, value) = (workload::key(&mut self.random), workload::value(&mut self.random));
            if self.random.u8(..4) == 0 {
                batch.delete(&key).unwrap();
                last.insert(key, (n, None));
            } else {
                batch.put(&key, value.clone()).unwrap();
                last.insert(key, (n, Some(value)));
            }
        }
        let end = cask.write(&batch, &CaskWriteOptions::default()).unwrap();
        // Versions ascend in the order of the operations that count.
        let mut ops: Vec<_> = last.into_iter().map(|(key, (n, value))| (n, key, value)).collect();
        ops.sort_unstable();
        let first = end.map_or(0, |end| end + 1 - ops.len() as u64);
        let expires_at = self.options.default_ttl.map(|ttl| self.now() + ttl.as_secs());
        for ((_, key, value), version) in ops.into_iter().zip(first..) {
            match value {
                Some(value) => self.model.put(&key, version, &value, expires_at),
                None => drop(self.model.keys.remove(&key)),
            }
        }
    }

    /// By closing, or by the death of the process.
    fn reopen(&mut self) {
        let cask = self.cask.take().unwrap();
        if self.random.bool() {
            cask.close().unwrap();
        } else {
            let image = self.disk.after_process_death();
            drop(cask);
            self.disk = image;
        }
        self.options.stripes = self.random.usize(1..=3);
        self.open();
        self.compare_all();
    }

    /// A scan shows the store as of its start, whatever is written and merged while it goes.
    fn scan_through_writes(&mut self, cask: &Cask) {
        let wanted = self.model.versions(self.now());
        let mut scan = cask.scan().unwrap();
        let mut found = Versions::new();
        for turn in 0.. {
            if !scan.advance().unwrap() {
                break;
            }
            let entry = (scan.key().to_vec(), scan.version(), scan.value().unwrap().to_vec());
            assert!(found.insert(entry), "{}: a scan shows a version twice", self.what);
            if turn % 3 == 0 {
                let key = workload::key(&mut self.random);
                let value = workload::value(&mut self.random);
                let version = cask.put(&key, &value).unwrap();
                let expires_at = self.options.default_ttl.map(|ttl| self.now() + ttl.as_secs());
                self.model.put(&key, version, &value, expires_at);
            }
            if turn == 5 {
                cask.compact().unwrap();
            }
        }
        assert!(found == wanted, "{}: a scan shows another moment than its start", self.what);
    }

    fn look_up(&self, cask: &Cask, key: &[u8]) {
        let wanted = self.model.get(key, self.now());
        let what = &self.what;
        assert_eq!(cask.get(key).unwrap().as_deref(), wanted, "{what}: get {key:?}");
        assert_eq!(cask.exists(key).unwrap(), wanted.is_some(), "{what}: exists {key:?}");
        assert_eq!(cask.value_len(key).unwrap(), wanted.map(|value| value.len() as u64), "{what}: value_len {key:?}");
        if self.expiring {
            return;
        }
        let history = cask.history(key).unwrap();
        let kept = self.model.keys.get(key).cloned().unwrap_or_default();
        let wanted: Vec<_> = kept.iter().map(|version| (version.version, version.value.clone())).collect();
        let found: Vec<_> = history.into_iter().map(|(version, value)| (version, value.into_vec())).collect();
        assert!(found == wanted, "{what}: history of {key:?}");
        for version in kept {
            let value = cask.get_version(key, version.version).unwrap();
            assert_eq!(value.as_deref(), Some(&version.value[..]), "{what}: get_version of {key:?}");
        }
    }

    fn compare_all(&self) {
        let cask = self.cask();
        for key in self.model.keys.keys() {
            self.look_up(&cask, key);
        }
        // In no order, some twice, and with one that was never there.
        let (count, keys) = (self.model.keys.len(), self.model.keys.keys().map(|key| &**key));
        let keys: Vec<&[u8]> = keys.rev().chain([&b"never there"[..]]).cycle().take(count + count / 2).collect();
        let found = cask.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(
                found.unwrap().as_deref(),
                self.model.get(key, self.now()),
                "{}: one of many {key:?}",
                self.what
            );
        }
        let wanted = self.model.contents(self.now());
        let (mut scan, mut scanned) = (cask.scan().unwrap(), Versions::new());
        while scan.advance().unwrap() {
            let entry = (scan.key().to_vec(), scan.version(), scan.value().unwrap().to_vec());
            assert!(scanned.insert(entry), "{}: a scan shows a version twice", self.what);
        }
        assert!(scanned == self.model.versions(self.now()), "{}: a scan shows something else", self.what);
        if !self.expiring {
            assert_eq!(cask.len(), wanted.len() as u64, "{}: keys are counted wrong", self.what);
        }
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{}: {:?}", self.what, check.errors);
        assert!(cask.stats().background_error.is_none(), "{}: {:?}", self.what, cask.stats());
    }
}

/// Goal: no history, options, merges or deaths of the process lead to an answer that a map would not give.
#[test]
fn a_cask_answers_as_a_map_does() {
    for seed in seeds(120) {
        let mut run = Run::new(seed);
        for _ in 0..250 {
            run.step();
        }
        run.compare_all();
    }
}

/// Goal: a checkpoint and a backup are the store as it was, and stay so while the store goes on; a backup is brought up to date by copying what is
/// new, also where the earlier one was damaged or an attempt died; both can be written, and what was written to is no backup any more.
#[test]
fn copies_are_stores_of_their_own() {
    for seed in seeds(12) {
        let mut run = Run::new(1000 + seed);
        (0..150).for_each(|_| run.step());
        let cask = run.cask();
        let wanted = run.model.contents(run.now());
        let made = cask.checkpoint("/copies/checkpoint").unwrap();
        assert_eq!((made.linked, made.copied_bytes), (made.files, 0));
        let made = cask.backup("/copies/backup", &mut |_| ()).unwrap();
        assert_eq!((made.linked, made.kept, made.copied_bytes), (0, 0, made.bytes));
        let refused = |made: esker::Result<esker::CaskCopied>, kind| assert_eq!(made.unwrap_err().kind(), kind);
        refused(cask.checkpoint("/copies/checkpoint"), ErrorKind::InvalidArgument);
        (0..150).for_each(|_| run.step());
        run.compare_all();
        for copy in ["/copies/checkpoint", "/copies/backup"] {
            is_copy(&run, copy, &wanted);
        }

        let damaged = run.disk.paths().into_iter().find(|path| {
            path.starts_with("/copies/backup") && path.extension().is_some_and(|end| end == "data") && seed % 2 == 0
        });
        damaged.iter().for_each(|path| assert!(run.disk.flip_bit(path, 8 * 60)));
        run.disk.overwrite(std::path::Path::new("/copies/backup/999999.data"), vec![1; 10]);
        let now = run.model.contents(run.now());
        let mut told = (0, 0);
        let made = run.cask().backup("/copies/backup", &mut |at| told = (at.bytes_done, at.bytes_total)).unwrap();
        assert_eq!(told, (2 * made.bytes, 2 * made.bytes));
        assert!(made.copied_bytes < made.bytes || made.kept == 0, "{made:?}");
        is_copy(&run, "/copies/backup", &now);

        for copy in ["/copies/checkpoint", "/copies/backup"] {
            let copied = Cask::open_with_env(copy, run.options.clone(), run.env()).unwrap();
            assert_eq!(copied.store_id() == run.cask().store_id(), copy.ends_with("backup"));
            copied.put("new", "value").unwrap();
            copied.close().unwrap();
            refused(run.cask().backup(copy, &mut |_| ()), ErrorKind::Conflict);
        }
        run.compare_all();
    }
}

fn is_copy(run: &Run, path: &str, wanted: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let copied = Cask::open_read_only_with_env(path, run.options.clone(), run.env()).unwrap();
    assert!(copied.recovery().damage.is_empty() && copied.recovery().bad_hints.is_empty(), "{path}");
    for (key, value) in wanted {
        let found = copied.get(key).unwrap();
        assert!(run.expiring || found.as_deref() == Some(&value[..]), "{path}: {key:?}");
    }
    assert!(run.expiring || copied.len() == wanted.len() as u64, "{path}");
    assert!(copied.check(&mut |_| {}).unwrap().errors.is_empty(), "{path}");
}

/// Goal: a store opened for reading shows what was written so far, takes no lock and writes nothing.
#[test]
fn reading_only_changes_nothing() {
    for seed in seeds(12) {
        let mut run = Run::new(2000 + seed);
        (0..120).for_each(|_| run.step());
        let before = run.disk.op_count();
        let reader = Cask::open_read_only_with_env("/store", run.options.clone(), run.env()).unwrap();
        for key in run.model.keys.keys() {
            run.look_up(&reader, key);
        }
        assert_eq!(reader.put("key", "value").unwrap_err().kind(), esker::ErrorKind::ReadOnly);
        assert_eq!(reader.compact().unwrap_err().kind(), esker::ErrorKind::ReadOnly);
        reader.close().unwrap();
        assert_eq!(run.disk.op_count(), before, "reading has written");
    }
}
