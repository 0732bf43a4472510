//! Whatever becomes of the files of a Cask: check, repair and open tell what is lost, show nothing that nobody wrote, and throw nothing away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::env::sim::{SeededEntropy, SimDisk};
use esker::env::{Clock, Env};
use esker::{Cask, CaskBatch, CaskDamage, CaskOptions, CaskRepair, CaskWriteOptions, Compression, ErrorKind};
use esker_format::cask::data_file::DataFileHeader;
use esker_format::cask::manifest::Manifest;
use esker_format::cask::record::{Record, checksum_holds};
use esker_format::checksum::crc32c;
use esker_torture::cask::{self, Op, Step};
use esker_torture::each_seed;
use fastrand::Rng;

const HEAD_BYTES: usize = 32;
const MANIFEST: &str = "/store/MANIFEST";

/// A record as it lies in a file.
#[derive(Debug, Clone)]
struct Written {
    offset: usize,
    raw: Vec<u8>,
    key: Vec<u8>,
    version: u64,
    /// `None`: it is a deletion.
    value: Option<Vec<u8>>,
    expires_at: Option<u64>,
}

impl Written {
    fn seen_at(&self, time: u64) -> Option<&Vec<u8>> {
        self.value.as_ref().filter(|_| self.expires_at.is_none_or(|at| at > time))
    }
}

/// The records of a sound file.
fn records(raw: &[u8]) -> Vec<Written> {
    let salt = DataFileHeader::decode(&raw[..HEAD_BYTES]).unwrap().salt;
    let (mut offset, mut found) = (HEAD_BYTES, Vec::new());
    while let Ok(record) = Record::decode(&raw[offset..]) {
        let raw = raw[offset..offset + record.bytes() as usize].to_vec();
        assert!(checksum_holds(&raw, salt));
        let value = (!record.is_tombstone).then(|| record.value.to_vec());
        let Record { version, expires_at, .. } = record;
        let (key, bytes) = (record.key.to_vec(), raw.len());
        found.push(Written { offset, raw, key, version, value, expires_at });
        offset += bytes;
    }
    found
}

fn data(number: u32) -> PathBuf {
    format!("/store/{number:06}.data").into()
}

fn number_of(path: &Path) -> Option<u32> {
    path.to_str()?.strip_prefix("/store/")?.strip_suffix(".data")?.parse().ok()
}

type Image = BTreeMap<PathBuf, Vec<u8>>;

fn image(disk: &SimDisk) -> Image {
    disk.paths().into_iter().filter_map(|path| Some((path.clone(), disk.file_bytes(&path)?))).collect()
}

fn data_files(image: &Image) -> BTreeMap<u32, &Vec<u8>> {
    image.iter().filter_map(|(path, raw)| Some((number_of(path)?, raw))).collect()
}

/// Without the zeroes at its end.
fn used(raw: &[u8]) -> &[u8] {
    &raw[..raw.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
}

/// A store after a life in which nothing went wrong; its keys begin with `tag`.
fn live(random: &mut Rng, tag: u8) -> (SimDisk, CaskOptions) {
    let disk = SimDisk::new();
    // Values as they lie in the files; who wants no look at checksums is shown damage.
    let options = CaskOptions { compression: Compression::None, verify_reads: true, ..cask::options(random) };
    // No two stores have the same salts.
    let env = Env { entropy: Arc::new(SeededEntropy::new(random.u64(..))), ..disk.env() };
    let cask = Cask::open_with_env("/store", options.clone(), env).unwrap();
    let count = random.usize(20..150);
    for step in cask::steps(random, count) {
        let how = |op: &Op, sync| CaskWriteOptions { sync, ttl: op.ttl.map(Duration::from_secs), stripe: None };
        let keyed = |op: &Op| [&[tag][..], &op.key].concat();
        match step {
            Step::One(op, sync) => match &op.value {
                Some(value) => drop(cask.put_with(keyed(&op), value, &how(&op, sync)).unwrap()),
                None => drop(cask.delete_with(keyed(&op), &how(&op, sync)).unwrap()),
            },
            Step::Batch(ops, sync) => {
                let mut batch = CaskBatch::new();
                for op in &ops {
                    match &op.value {
                        Some(value) => batch.put(keyed(op), value.clone()).unwrap(),
                        None => batch.delete(keyed(op)).unwrap(),
                    }
                }
                cask.write(&batch, &CaskWriteOptions { sync, ttl: None, stripe: None }).unwrap();
            }
            Step::Sync => cask.sync().unwrap(),
            Step::Compact => cask.compact().unwrap(),
            Step::Wait(seconds) => disk.clock().advance(Duration::from_secs(seconds)),
        }
    }
    match random.u8(..3) {
        0 => std::mem::forget(cask),
        1 => {
            cask.compact().unwrap();
            cask.close().unwrap();
        }
        _ => cask.close().unwrap(),
    }
    (disk.after_process_death(), options)
}

/// Does something to the files, and says what.
fn mess_up(disk: &SimDisk, foreign: &SimDisk, random: &mut Rng) -> String {
    let there = image(disk);
    let numbers: Vec<u32> = data_files(&there).into_keys().collect();
    if numbers.is_empty() {
        return String::new();
    }
    let far = numbers[numbers.len() - 1] + 4;
    let (one, other) = (numbers[random.usize(..numbers.len())], numbers[random.usize(..numbers.len())]);
    let anything = random.u32(1..far);
    let raw = there[&data(one)].clone();
    let put = |path: &Path, raw: Vec<u8>| {
        if !disk.paths().contains(&path.to_owned()) {
            drop(disk.env().files.create(path).unwrap());
        }
        disk.overwrite(path, raw);
    };
    let remove = |path: &Path| drop(disk.env().files.remove(path));
    match random.u8(..17) {
        0 | 1 => {
            put(&data(one), there[&data(other)].clone());
            put(&data(other), raw);
            format!("{one} and {other} swapped")
        }
        2 | 3 => {
            remove(&data(one));
            put(&data(anything), raw);
            format!("{one} renamed to {anything}")
        }
        4 => {
            put(&data(anything), raw);
            format!("{one} copied to {anything}")
        }
        5 => {
            let len = random.usize(..=raw.len());
            put(&data(one), raw[..len].to_vec());
            format!("{one} cut to {len} of {}", raw.len())
        }
        6 | 7 => {
            let (tail, what) = match random.u8(..5) {
                0 => ((0..random.usize(1..600)).map(|_| random.u8(..)).collect(), "rubbish"),
                1 => (vec![0; random.usize(1..6000)], "zeroes"),
                2 => (raw.clone(), "itself"),
                3 => (there[&data(other)].clone(), "another"),
                _ => (raw[HEAD_BYTES.min(raw.len())..].to_vec(), "its records"),
            };
            // Behind the records, or behind what is preallocated.
            let end = if random.bool() { raw.len() } else { used(&raw).len() };
            put(&data(one), [&raw[..end], &tail].concat());
            format!("{what} appended to {one} at {end}")
        }
        8 | 9 => {
            let bytes = used(&raw).len().max(1);
            let bytes = if random.u8(..3) == 0 { bytes.min(HEAD_BYTES) } else { bytes };
            let bit = random.usize(..8 * bytes);
            disk.flip_bit(&data(one), bit as u64);
            format!("bit {bit} of {one} flipped")
        }
        10 => {
            let mut raw = raw;
            let end = raw.len().min(HEAD_BYTES + random.usize(..600));
            raw[..end].fill(if random.bool() { 0 } else { 7 });
            put(&data(one), raw);
            format!("head of {one} lost, up to {end}")
        }
        11 => {
            remove(&data(one));
            format!("{one} removed")
        }
        12 => {
            if random.bool() {
                remove(Path::new(MANIFEST));
                return "manifest removed".to_owned();
            }
            let bit = random.usize(..8 * there.get(Path::new(MANIFEST)).map_or(1, Vec::len));
            disk.flip_bit(Path::new(MANIFEST), bit as u64);
            format!("bit {bit} of the manifest flipped")
        }
        13 | 14 => {
            let hint = |number| data(number).with_extension("hint");
            match (there.get(&hint(one)), there.get(&hint(other)), random.bool()) {
                (Some(raw), Some(raw_other), true) => {
                    put(&hint(one), raw_other.clone());
                    put(&hint(other), raw.clone());
                    format!("hints of {one} and {other} swapped")
                }
                (Some(raw), ..) if random.bool() => {
                    let bit = random.usize(..8 * raw.len());
                    disk.flip_bit(&hint(one), bit as u64);
                    format!("bit {bit} of the hint of {one} flipped")
                }
                _ => {
                    numbers.iter().for_each(|&number| remove(&hint(number)));
                    "hints removed".to_owned()
                }
            }
        }
        _ => {
            let foreign = image(foreign);
            let files = data_files(&foreign);
            let Some((&own, raw)) = files.iter().nth(random.usize(..files.len().max(1))) else { return String::new() };
            let mut raw = (*raw).clone();
            let name = [own, one, anything][random.usize(..3)];
            if random.bool() {
                raw[12..16].copy_from_slice(&name.to_le_bytes());
                let crc = crc32c(&raw[..28]);
                raw[28..32].copy_from_slice(&crc.to_le_bytes());
            }
            put(&data(name), raw);
            format!("another store's {own} as {name}")
        }
    }
}

/// A store before and after something was done to it.
struct Case {
    options: CaskOptions,
    what: String,
    disk: SimDisk,
    time: u64,
    messed: Image,
    /// What the manifest says, if it can still be read.
    known: Option<Manifest>,
    /// All records of the store, the newest of each key first.
    before: BTreeMap<Vec<u8>, Vec<Written>>,
    /// Versions of each key that are in a file nothing happened to but for its name.
    sure: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// The end of a file is gone, or nothing but zeroes: of one that was open, a power loss may leave no more.
    is_cut: bool,
    /// All values that there ever were in the files of either store.
    values: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let (disk, options) = live(&mut random, b's');
        let (foreign, _) = live(&mut random, b'f');
        let sound = image(&disk);
        let what: Vec<_> = (0..random.usize(1..4)).map(|_| mess_up(&disk, &foreign, &mut random)).collect();
        let what = format!("seed {seed}, {what:?}");
        let messed = image(&disk);
        let known = messed.get(Path::new(MANIFEST)).and_then(|raw| Manifest::decode(raw).ok());
        let mut is_cut = false;
        let (mut before, mut sure) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for (number, raw) in data_files(&sound) {
            is_cut |= messed.get(&data(number)).is_none_or(|there| used(there).len() < used(raw).len());
            let written = records(raw);
            if is_sure(number, raw, &written, &data_files(&messed), known.is_some()) {
                for record in &written {
                    sure.entry(record.key.clone()).or_default().insert(record.version);
                }
            }
            for record in written {
                before.entry(record.key.clone()).or_default().push(record);
            }
        }
        // Of two of a version, a deletion.
        before.values_mut().for_each(|of_key| of_key.sort_by_key(|one| (u64::MAX - one.version, one.value.is_some())));
        let foreign = image(&foreign);
        let all =
            [data_files(&sound), data_files(&foreign)].map(|files| files.into_values().flat_map(|raw| records(raw)));
        let values = all.into_iter().flatten().filter_map(|record| Some((record.key, record.value?))).collect();
        let time = disk.clock().unix_seconds();
        Self { options, what, disk, time, messed, known, before, sure, is_cut, values }
    }

    /// Whether any of the record is left in what is there of data files.
    fn is_left(&self, record: &Written) -> bool {
        data_files(&self.messed).values().any(|raw| raw.windows(record.raw.len()).any(|window| window == record.raw))
    }

    /// What a read of the key may find in the repaired store: the newest that is in a sound file, or what is newer.
    fn may_be(&self, key: &[u8], got: Option<&[u8]>) -> bool {
        let newest_sure = self.sure.get(key).and_then(|versions| versions.last().copied());
        let mut of_key = self.before[key].iter();
        let is_it = |one: &Written| {
            one.seen_at(self.time).map(|value| &value[..]) == got
                && newest_sure.is_none_or(|version| one.version >= version)
                && self.is_left(one)
        };
        newest_sure.is_none() && got.is_none() || of_key.any(is_it)
    }

    fn newest(&self, key: &[u8]) -> Option<&[u8]> {
        self.before[key][0].seen_at(self.time).map(|value| &value[..])
    }

    /// Nothing is shown that nobody wrote.
    fn verify_values(&self, cask: &Cask) {
        let mut scan = cask.scan().unwrap();
        loop {
            match scan.advance() {
                Ok(true) => {
                    let found = (scan.key().to_vec(), scan.value().unwrap().to_vec());
                    assert!(self.values.contains(&found), "{}: {:?} was never written", self.what, found.0);
                }
                Ok(false) => break,
                Err(error) => self.verify_typed(&error),
            }
        }
        for (key, of_key) in &self.before {
            for (version, value) in cask.history(key).into_iter().flatten() {
                let is_it = |one: &Written| one.version == version && one.value.as_deref() == Some(&*value);
                assert!(of_key.iter().any(is_it), "{}: version {version} of {key:?}", self.what);
            }
        }
    }

    fn verify_typed(&self, error: &esker::Error) {
        let is_typed = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat);
        assert!(is_typed && error.path().is_some(), "{}: {error}", self.what);
    }

    /// Whether a check finds that all is well.
    fn check(&self) -> bool {
        let disk = self.disk.after_process_death();
        let options = CaskOptions { damage: CaskDamage::Serve, ..self.options.clone() };
        let checked = Cask::open_read_only_with_env("/store", options, disk.env()).and_then(|cask| {
            let check = cask.check(&mut |_| {})?;
            self.verify_values(&cask);
            check.errors.iter().for_each(|error| self.verify_typed(error));
            Ok(check.errors.is_empty() && check.orphans.is_empty() && cask.recovery().torn_files.is_empty())
        });
        assert!(image(&disk) == self.messed, "{}: a check wrote something", self.what);
        let is_missing = |error: &esker::Error| error.kind() == ErrorKind::NotFound && self.known.is_none();
        checked.unwrap_or_else(|error| {
            if !is_missing(&error) {
                self.verify_typed(&error);
            }
            false
        })
    }

    /// Who opens it as it is gets of each key what is newest, or an error, unless the end of a file that was open is gone.
    fn open(&self) {
        let disk = self.disk.after_process_death();
        let options = CaskOptions { create_if_missing: false, ..self.options.clone() };
        let Ok(cask) = Cask::open_with_env("/store", options, disk.env()) else { return };
        self.verify_values(&cask);
        if self.is_cut || !cask.recovery().torn_files.is_empty() {
            return;
        }
        for key in self.before.keys() {
            match cask.get(key) {
                Ok(got) => assert_eq!(got.as_deref(), self.newest(key), "{}, opened: {key:?}", self.what),
                Err(error) => self.verify_typed(&error),
            }
        }
    }

    fn repair(&self) -> Option<CaskRepair> {
        let outlook = Cask::repair_outlook_with_env("/store", &self.disk.env());
        assert!(image(&self.disk) == self.messed, "{}: an outlook wrote something", self.what);
        let done = Cask::repair_with_env("/store", &self.disk.env());
        assert_eq!(format!("{outlook:?}"), format!("{done:?}"), "{}", self.what);
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                let is_nothing = self.known.is_none() && data_files(&self.messed).is_empty();
                assert!(is_nothing && error.kind() == ErrorKind::NotFound, "{}: {error}", self.what);
                None
            }
        }
    }

    fn verify_repaired(&self, done: &CaskRepair) {
        let what = &self.what;
        // Nothing is thrown away.
        let repaired = image(&self.disk);
        for (number, raw) in data_files(&self.messed) {
            let is_kept = repaired.iter().any(|(path, there)| {
                let is_data = path.extension().is_some_and(|end| end == "data" || end == "damaged");
                is_data && used(there) == used(raw)
            });
            assert!(is_kept, "{what}: file {number} is gone: {done:?}");
        }
        let again = Cask::repair_with_env("/store", &self.disk.env()).unwrap();
        assert!(is_nothing(&again) && again.unnamed.is_empty(), "{what}: again: {again:?}");
        assert_eq!((again.files, again.records), (done.files, done.records), "{what}");
        let files = |image: &Image| -> Image {
            image.clone().into_iter().filter(|(path, _)| !path.ends_with("MANIFEST")).collect()
        };
        assert!(files(&image(&self.disk)) == files(&repaired), "{what}: the second repair wrote something");
        let disk = self.disk.after_process_death();
        let cask = Cask::open_with_env("/store", self.options.clone(), disk.env())
            .unwrap_or_else(|error| panic!("{what}: {error}: {done:?}"));
        let recovery = cask.recovery();
        let trouble = recovery.damage.len() + recovery.torn_files.len() + recovery.bad_hints.len();
        assert_eq!(trouble, 0, "{what}: {recovery:?}");
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty() && check.orphans.is_empty(), "{what}: {check:?}");
        self.verify_values(&cask);
        for key in self.before.keys() {
            let got = cask.get(key).unwrap();
            assert!(self.may_be(key, got.as_deref()), "{what}: {key:?} is {got:?}: {done:?}");
            let is_told = self.known.is_none() || !is_nothing(done);
            assert!(
                is_told || got.as_deref() == self.newest(key),
                "{what}: {key:?} is lost, and nobody says so: {done:?}"
            );
        }
    }
}

/// Whether the records of a file are all in each file that may pass for it, and there is such.
fn is_sure(
    number: u32,
    sound: &[u8],
    written: &[Written],
    there: &BTreeMap<u32, &Vec<u8>>,
    has_manifest: bool,
) -> bool {
    let end = written.last().map_or(HEAD_BYTES, |last| last.offset + last.raw.len());
    let is_record = |raw: &[u8], one: &Written| raw.get(one.offset..one.offset + one.raw.len()) == Some(&one.raw);
    let has_head = |raw: &[u8]| raw.get(..HEAD_BYTES) == Some(&sound[..HEAD_BYTES]);
    let passes = |raw: &[u8]| has_head(raw) || written.iter().any(|one| is_record(raw, one));
    let is_whole =
        |raw: &[u8]| raw.get(HEAD_BYTES..end) == Some(&sound[HEAD_BYTES..end]) && (has_manifest || has_head(raw));
    let mut candidates = there.values().filter(|raw| passes(raw)).peekable();
    // Without a manifest, another store's may have the same number.
    let is_other = |raw: &[u8]| {
        let head = raw.get(..HEAD_BYTES).and_then(|raw| DataFileHeader::decode(raw).ok());
        head.is_some_and(|head| head.number.get() == number && !has_head(raw))
    };
    let is_unclear = !has_manifest && there.values().any(|raw| is_other(raw));
    candidates.peek().is_some() && candidates.all(|raw| is_whole(raw)) && !is_unclear
}

/// Nothing was lost, put aside or named again.
fn is_nothing(done: &CaskRepair) -> bool {
    let counts = [done.put_aside.len(), done.renamed.len(), done.strangers.len(), done.missing.len()];
    counts == [0; 4] && done.damaged_bytes == 0 && done.damaged_keys.is_empty()
}

/// Goal: see the module's head.
/// Method: random stores, some still open when their owner died; one to three times something is done to a file, to the manifest or to hints.
/// What lies in a file that only lost its name has to be there after a repair; what is not, must have been told; a repair does what its
/// outlook said, and a second one nothing; where a check finds nothing, so does a repair.
#[test]
fn no_mess_makes_a_repair_lose_what_is_whole() {
    each_seed(200, |seed| {
        let case = Case::new(seed);
        let is_sound = case.check();
        case.open();
        let Some(done) = case.repair() else { return };
        assert!(!is_sound || is_nothing(&done), "{}: nothing was told: {done:?}", case.what);
        case.verify_repaired(&done);
    });
}
