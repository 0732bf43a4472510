//! How a machine dies, what it leaves, and how many of these were looked at.
//!
//! A run outside of CI takes more of everything, by two variables that every test of this crate heeds:
//!
//! - `ESKER_TORTURE_SEEDS=n`: seeds 0 to n where a test would take fewer; `ESKER_TORTURE_SEEDS=n..m`: these seeds and no others;
//! - `ESKER_TORTURE_IMAGES=k`: so many sampled images of each death rather than [`SAMPLES`].
//!
//! `testing/torture/long` sets them and adds up what [`Tally`] prints.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::Hasher;
use std::ops::Range;

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{ErrorKind, Result};
use xxhash_rust::xxh3::Xxh3;

/// Sampled images of each death, unless `ESKER_TORTURE_IMAGES` says otherwise.
pub const SAMPLES: u64 = 2;

/// An empty disk, which forgets some of what failed syncs dropped. Those of odd seeds lend windows, as files of the real system do.
pub fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new();
    disk.lend_windows(seed % 2 == 1);
    disk.evict_after_failed_syncs(Some(seed));
    disk
}

/// What was promised of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The process died: what was acknowledged is there, unless a failed sync has taken it.
    Acknowledged,
    /// The power went: what was synced is there.
    Durable,
}

/// A disk that a death left.
pub struct Image {
    /// What it is called in messages.
    pub name: String,
    /// The disk.
    pub disk: SimDisk,
    /// What must be on it.
    pub promise: Promise,
}

/// Lets the machine die at operation `n`: before it, or, every third time, within it, should it be an append.
pub fn kill(disk: &SimDisk, n: u64) {
    if n.is_multiple_of(3) {
        let from = (n % 40) as usize;
        // Mostly a few bytes; now and then pages.
        let kept = if n.is_multiple_of(9) { (n % 5000) as usize * 3 } else { (n % 300) as usize };
        disk.die_within(n, from..from + kept);
    } else {
        disk.die_after(n);
    }
}

/// The ways in which an operation fails that are tried one by one.
pub const FAULTS: [Fault; 4] = [Fault::Eio, Fault::NoSpace, Fault::EioAfter, Fault::ShortWrite { kept_bytes: 5 }];

/// The operations of a healthy run whose trace has `word`, of those from `first` on.
pub fn operations(disk: &SimDisk, first: u64, word: &str) -> Vec<u64> {
    let is_wanted = |line: &&String| line.split(' ').nth(1) == Some(word);
    let index = |line: &String| line.split(' ').next().and_then(|index| index.parse().ok());
    disk.trace().iter().filter(is_wanted).filter_map(index).filter(|&index| index >= first).collect()
}

/// These operations of a healthy run, which was traced, with each way in which they fail: of what is no append, nothing comes too short.
pub fn faults(disk: &SimDisk, operations: Range<u64>) -> impl Iterator<Item = (u64, Fault)> {
    let appends: HashSet<u64> = self::operations(disk, operations.start, "append").into_iter().collect();
    let ways = move |n| {
        FAULTS
            .map(|fault| (n, fault))
            .into_iter()
            .filter(move |(_, fault)| appends.contains(&n) || !matches!(fault, Fault::ShortWrite { .. }))
    };
    operations.flat_map(move |n| ways.clone()(n).collect::<Vec<_>>())
}

/// What is left of a disk that died at operation `n`: by the death of the process, and by a loss of power that keeps nothing
/// unsynced, everything, and samples of it. Each content once, with what is promised of the first.
pub fn images(disk: &SimDisk, n: u64) -> impl Iterator<Item = Image> {
    let disk_left = disk.after_process_death();
    let promise = kept_by_reopening(&disk_left);
    let process = Image { name: "process death".to_owned(), disk: disk_left, promise };
    distinct(std::iter::once(process).chain(left_by_power_losses(disk, n)))
}

/// What the next process finds on a disk whose power stays: what was acknowledged, unless pages that a failed sync left have gone.
pub fn kept_by_reopening(disk: &SimDisk) -> Promise {
    if disk.has_evicted() { Promise::Durable } else { Promise::Acknowledged }
}

/// The same for the loss of power alone.
pub fn power_losses(disk: &SimDisk, n: u64) -> impl Iterator<Item = Image> {
    distinct(left_by_power_losses(disk, n))
}

fn left_by_power_losses(disk: &SimDisk, n: u64) -> impl Iterator<Item = Image> {
    let wanted = std::env::var("ESKER_TORTURE_IMAGES").ok().and_then(|count| count.parse().ok());
    let extremes = [
        ("power loss, nothing unsynced survives".to_owned(), Survivors::Nothing),
        ("power loss, everything survives".to_owned(), Survivors::Everything),
    ];
    let samples = (0..wanted.unwrap_or(SAMPLES)).map(move |index| {
        let seed = n ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (format!("power loss, sample {seed:#x} survives"), Survivors::Sample { seed })
    });
    let leave = |(name, survivors)| Image { name, disk: disk.after_power_loss(survivors), promise: Promise::Durable };
    extremes.into_iter().chain(samples).map(leave)
}

/// Each content once. All are made before the first is looked at, which may change the disk that they are of.
fn distinct(images: impl Iterator<Item = Image>) -> impl Iterator<Item = Image> {
    let mut seen = HashSet::new();
    images.filter(|image| seen.insert(content(&image.disk))).collect::<Vec<_>>().into_iter()
}

/// Stands for all that the next process finds on a disk.
fn content(disk: &SimDisk) -> u64 {
    let mut hasher = Xxh3::new();
    disk.hash_live(&mut hasher);
    hasher.finish()
}

/// What must be in an image.
pub trait Promised {
    /// Whether who finds this finds `other`, too.
    fn includes(&self, other: &Self) -> bool;
}

/// The first so many batches.
impl Promised for usize {
    fn includes(&self, other: &Self) -> bool {
        self >= other
    }
}

/// These batches.
impl Promised for BTreeSet<usize> {
    fn includes(&self, other: &Self) -> bool {
        self.is_superset(other)
    }
}

/// The images of one life that were looked at. From one operation to the next, much of what a death would leave is the same: nothing unsynced
/// survives until the next sync.
#[derive(Debug, Default)]
pub struct Looked<P> {
    /// What was found in each content.
    found: RefCell<HashMap<u64, P>>,
}

impl<P: Promised> Looked<P> {
    /// Looks at an image that must have what was `promised`, unless one like it is known to. `look` says what it found.
    pub fn at(&self, image: &Image, promised: &P, look: impl FnOnce() -> P) {
        let content = content(&image.disk);
        if !self.found.borrow().get(&content).is_some_and(|found| found.includes(promised)) {
            self.found.borrow_mut().insert(content, look());
        }
    }
}

/// Whether what was open on a disk warns the next process that a sync failed.
pub fn is_warned(disk: &SimDisk) -> bool {
    disk.paths().iter().any(|path| path.ends_with("SYNC-FAILED"))
}

/// Lets each read of an open of `image` fail, one at a time: that open says so, or finds everything, and so does the next one; and what they
/// found and made durable survives power loss. `open` opens, `synced` makes everything durable and says what there is.
pub fn every_read_of_an_open_fails<S, C: PartialEq>(
    image: &SimDisk,
    what: &str,
    tally: &Tally,
    open: impl Fn(&SimDisk) -> Result<S>,
    synced: impl Fn(&S) -> Result<C>,
) {
    let healthy = image.after_process_death();
    let store = open(&healthy).unwrap();
    let (reads, expected) = (healthy.read_count(), synced(&store).unwrap());
    drop(store);
    for n in 0..reads {
        let what = format!("{what}: read {n} of {reads} fails");
        tally.fault();
        let disk = image.after_process_death();
        disk.fail_read_at(n, ReadFault::Eio);
        for life in ["that open", "the next one"] {
            let what = format!("{what}, {life}");
            let store = match open(&disk) {
                Err(error) if life == "that open" => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
                    continue;
                }
                opened => opened.unwrap_or_else(|error| panic!("{what}: {error}")),
            };
            assert!(
                synced(&store).unwrap_or_else(|error| panic!("{what}: {error}")) == expected,
                "{what}: not all is there"
            );
            drop(store);
            let store = open(&disk.after_power_loss(Survivors::Nothing)).unwrap();
            assert!(synced(&store).unwrap() == expected, "{what}, then power loss: what was synced is lost");
        }
    }
}

/// Whether a store may take no more writes once operation `n` has failed, which `disk` has written down: a sync leaves unknown what is durable, a
/// cut that fails what a log holds, and a rename of CURRENT, or of a Cask's manifest, which manifest it is.
pub fn may_end_writes(disk: &SimDisk, n: u64) -> bool {
    let trace = disk.trace();
    let line = trace.iter().find(|line| line.split(' ').next() == Some(&n.to_string()[..]));
    match line.and_then(|line| line.split(' ').nth(1)) {
        Some("sync" | "sync_dir" | "truncate") => true,
        Some("rename") => line.is_some_and(|line| line.contains("/CURRENT") || line.contains("/MANIFEST.new ")),
        _ => false,
    }
}

/// The command that runs one seed of a test again.
#[derive(Debug, Clone, Copy)]
pub struct Replay {
    /// The file of the test.
    pub file: &'static str,
    /// The test.
    pub test: &'static str,
    /// The seed, as the test draws it.
    pub seed: u64,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(images) = std::env::var("ESKER_TORTURE_IMAGES") {
            write!(f, "ESKER_TORTURE_IMAGES={images} ")?;
        }
        write!(f, "ESKER_SEED={} cargo test -p esker-torture --test all {}::{}", self.seed, self.file, self.test)
    }
}

/// Counts what a test looked at, and prints it when the test is over.
#[derive(Debug)]
pub struct Tally {
    test: &'static str,
    images: Cell<u64>,
    faults: Cell<u64>,
}

impl Tally {
    /// For the test of this name.
    pub fn new(test: &'static str) -> Self {
        Self { test, images: Cell::new(0), faults: Cell::new(0) }
    }

    /// An image was opened and compared.
    pub fn image(&self) {
        self.images.set(self.images.get() + 1);
    }

    /// A call failed, and what came of it was compared.
    pub fn fault(&self) {
        self.faults.set(self.faults.get() + 1);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        println!("tally: {}: {} crash images, {} faults", self.test, self.images.get(), self.faults.get());
    }
}
