//! Repairs of a Cask whose data files have names that are not theirs: what a file is, its head says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker::env::Env;
use esker::env::sim::{SeededEntropy, SimDisk, Survivors};
use esker::{Cask, CaskOptions, CaskRepair, ErrorKind};
use esker_format::checksum::crc32c;
use esker_torture::crash::{FAULTS, images, kill};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Higher than any number that a store here gives.
const FAR: u32 = 999_998;

fn options() -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        background_jobs: 0,
        open_threads: 0,
        stripes: 1,
        file_bytes: 4 << 10,
        merge_garbage_ratio: 1.0,
        ..CaskOptions::default()
    }
}

fn contents(cask: &Cask) -> Contents {
    let (mut scan, mut found) = (cask.scan().unwrap(), BTreeMap::new());
    while scan.advance().unwrap() {
        found.insert(scan.key().to_vec(), scan.value().unwrap().to_vec());
    }
    found
}

fn open(disk: &SimDisk) -> esker::Result<Cask> {
    Cask::open_with_env("/store", options(), disk.env())
}

/// A sound store that holds this, and stays so.
fn verify(disk: &SimDisk, expected: &Contents, what: &str) {
    for attempt in ["first", "second"] {
        let cask = open(disk).unwrap_or_else(|error| panic!("{what}: {attempt} open: {error}"));
        let found = contents(&cask);
        assert!(found == *expected, "{what}: {attempt} open: {} keys of {}", found.len(), expected.len());
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {attempt} open: {:?}", check.errors);
    }
}

fn data(number: u32) -> PathBuf {
    format!("/store/{number:06}.data").into()
}

fn aside(number: u32) -> PathBuf {
    data(number).with_extension("damaged")
}

fn rename(disk: &SimDisk, from: u32, to: u32) {
    assert!(!disk.paths().contains(&data(to)));
    disk.env().files.rename(&data(from), &data(to)).unwrap();
}

fn swap(disk: &SimDisk, a: u32, b: u32) {
    rename(disk, a, FAR);
    rename(disk, b, a);
    rename(disk, FAR, b);
}

fn copy(disk: &SimDisk, from: u32, to: u32) {
    let raw = disk.file_bytes(&data(from)).unwrap();
    put_file(disk, &data(to), raw);
}

fn put_file(disk: &SimDisk, path: &Path, raw: Vec<u8>) {
    if !disk.paths().contains(&path.to_owned()) {
        disk.env().files.create(path).unwrap();
    }
    disk.overwrite(path, raw);
}

/// Files with records only here, and numbers in between that were given to files that are gone. Whether the last file is `sealed`.
fn store(tag: u8, is_sealed: bool) -> (SimDisk, Vec<u32>, Contents) {
    let disk = SimDisk::new();
    // No two stores have the same salts.
    let env = Env { entropy: Arc::new(SeededEntropy::new(tag.into())), ..disk.env() };
    let cask = Cask::open_with_env("/store", CaskOptions { merge_garbage_ratio: 0.5, ..options() }, env).unwrap();
    for round in 0..3 {
        for n in 0..80u8 {
            cask.put([tag, n], vec![n ^ round ^ tag; 300 + usize::from(n)]).unwrap();
        }
    }
    cask.compact().unwrap();
    if !is_sealed {
        for n in 80..84u8 {
            cask.put([tag, n], vec![n ^ tag; 100]).unwrap();
        }
    }
    let all = contents(&cask);
    if is_sealed {
        cask.close().unwrap();
    } else {
        std::mem::forget(cask);
    }
    // Nothing is on its way any more.
    let disk = disk.after_power_loss(Survivors::Everything);
    // Only what the manifest names.
    drop(open(&disk.after_process_death()).unwrap());
    let numbers = numbers(&disk);
    assert!(numbers.len() > 6 && numbers[0] > 1, "{numbers:?}");
    (disk, numbers, all)
}

fn numbers(disk: &SimDisk) -> Vec<u32> {
    let number = |path: PathBuf| path.to_str()?.strip_prefix("/store/")?.strip_suffix(".data")?.parse().ok();
    disk.paths().into_iter().filter_map(number).collect()
}

fn image(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.file_bytes(&path).unwrap())).collect()
}

/// Repairs, and sees that this was told before without a change.
fn repair(disk: &SimDisk, what: &str) -> CaskRepair {
    let before = image(disk);
    let outlook = Cask::repair_outlook_with_env("/store", &disk.env()).unwrap();
    assert!(image(disk) == before, "{what}: something was written");
    let done = Cask::repair_with_env("/store", &disk.env()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(format!("{outlook:?}"), format!("{done:?}"), "{what}");
    done
}

/// Takes the manifest away, and then the hints, too.
fn spare(disk: &SimDisk, has_manifest: bool, has_hints: bool) {
    for path in disk.paths() {
        let is_hint = path.extension().is_some_and(|extension| extension == "hint");
        if is_hint && !has_hints || path.ends_with("MANIFEST") && !has_manifest {
            disk.env().files.remove(&path).unwrap();
        }
    }
}

/// Goal: files that have each other's names, or names of no file, are put back under their own, and nothing is lost, nor copied.
/// Method: two are swapped, or one gets an unused number, low or high; with the manifest, hints alone, data files alone; one of them still open.
#[test]
fn files_get_their_names_again() {
    for is_sealed in [true, false] {
        let (healthy, files, all) = store(b's', is_sealed);
        let (first, last) = (files[0], files[files.len() - 1]);
        let mixed_up: [(&str, Vec<(u32, u32)>); 4] = [
            ("two swapped", vec![(files[1], files[2]), (files[2], files[1])]),
            ("first and last swapped", vec![(first, last), (last, first)]),
            ("an unused number", vec![(first, 1)]),
            ("a number that was never given", vec![(last, FAR), (files[2], FAR - 7)]),
        ];
        for (how, moves) in mixed_up {
            for (has_manifest, has_hints) in [(true, true), (true, false), (false, true), (false, false)] {
                let what = format!("{how}, sealed: {is_sealed}, manifest: {has_manifest}, hints: {has_hints}");
                let disk = healthy.after_process_death();
                match moves[..] {
                    [(a, b), (c, _)] if b == c => swap(&disk, a, b),
                    _ => moves.iter().for_each(|&(from, to)| rename(&disk, from, to)),
                }
                spare(&disk, has_manifest, has_hints);
                assert_eq!(open(&disk.after_process_death()).unwrap_err().kind(), ErrorKind::Corruption, "{what}");
                let done = repair(&disk, &what);
                let mut renamed: Vec<_> = moves.iter().map(|&(own, name)| (data(name), data(own))).collect();
                renamed.sort_unstable();
                assert_eq!(done.renamed, renamed, "{what}");
                let nothing = (done.put_aside.len(), done.strangers.len(), done.missing.len(), done.unnamed.len());
                assert_eq!((nothing, done.damaged_bytes, done.files), ((0, 0, 0, 0), 0, files.len() as u64), "{what}");
                assert_eq!(numbers(&disk), files, "{what}");
                verify(&disk, &all, &what);
            }
        }
    }
}

/// Goal: a file of another store is neither used nor removed, and the repaired store opens: without what was in the file whose place it took, if
/// that is not there under another name.
/// Method: files of another store take the place of each, of one that is still open, too; what an earlier repair has put aside stays.
#[test]
fn a_file_of_another_store_is_put_aside() {
    let (other, other_files, _) = store(b'o', true);
    for is_sealed in [true, false] {
        let (healthy, files, all) = store(b's', is_sealed);
        for &number in &files {
            for (is_there, own_number) in [(true, true), (true, false), (false, true), (false, false)] {
                let what = format!("file {number}, own one there: {is_there}, of its number: {own_number}");
                let disk = healthy.after_process_death();
                let own = disk.file_bytes(&data(number)).unwrap();
                if is_there {
                    copy(&disk, number, FAR);
                }
                let mut foreign = other.file_bytes(&data(other_files[0])).unwrap();
                if own_number {
                    foreign[12..16].copy_from_slice(&number.to_le_bytes());
                    sign(&mut foreign);
                }
                put_file(&disk, &data(number), foreign.clone());
                put_file(&disk, &aside(number), b"put aside before".to_vec());
                assert_eq!(open(&disk.after_process_death()).unwrap_err().kind(), ErrorKind::Corruption, "{what}");
                let done = repair(&disk, &what);
                let [(from, to)] = &done.strangers[..] else { panic!("{what}: {done:?}") };
                assert!(*from == data(number) && disk.file_bytes(to).unwrap() == foreign, "{what}: {done:?}");
                assert_eq!(disk.file_bytes(&aside(number)).unwrap(), b"put aside before", "{what}");
                assert_eq!((done.put_aside.len(), done.damaged_keys.len(), done.damaged_bytes), (0, 0, 0), "{what}");
                let missing = if is_there { vec![] } else { vec![data(number)] };
                assert_eq!((done.missing, done.renamed.len()), (missing, usize::from(is_there)), "{what}");
                let is_kept = |entry: &(&Vec<u8>, &Vec<u8>)| is_there || !holds(&own, entry.0, entry.1);
                let expected: Contents = all.iter().filter(is_kept).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert!(is_there || expected.len() < all.len(), "{what}");
                verify(&disk, &expected, &what);
                assert!(disk.file_bytes(to).unwrap() == foreign, "{what}: opened");
            }
        }
    }
}

fn holds(raw: &[u8], key: &[u8], value: &[u8]) -> bool {
    let record = [key, value].concat();
    raw.windows(record.len()).any(|window| window == record)
}

/// Makes the head whole.
fn sign(raw: &mut [u8]) {
    let crc = crc32c(&raw[..28]);
    raw[28..32].copy_from_slice(&crc.to_le_bytes());
}

/// Goal: a head that says something else than its records bear out is damage of the head alone.
/// Method: its salt, or its number, is another, under a checksum that holds.
#[test]
fn a_head_that_lies_costs_no_record() {
    for is_sealed in [true, false] {
        let (healthy, files, all) = store(b's', is_sealed);
        for &number in &files {
            for field in [12, 16] {
                let what = format!("file {number}, sealed: {is_sealed}, byte {field}");
                let disk = healthy.after_process_death();
                let mut raw = disk.file_bytes(&data(number)).unwrap();
                raw[field + 1] ^= 0x40;
                sign(&mut raw);
                put_file(&disk, &data(number), raw.clone());
                assert_eq!(open(&disk.after_process_death()).unwrap_err().kind(), ErrorKind::Corruption, "{what}");
                let done = repair(&disk, &what);
                assert_eq!((done.put_aside, done.strangers.len()), (vec![aside(number)], 0), "{what}");
                assert!(disk.file_bytes(&aside(number)).unwrap() == raw, "{what}");
                verify(&disk, &all, &what);
            }
        }
    }
}

/// Goal: of two files that say the same, the one that has the name is used, and the other kept aside: with nothing lost, unless it lies in
/// the place of a third.
#[test]
fn of_two_files_of_a_number_one_counts() {
    let (healthy, files, all) = store(b's', true);
    let (file, third) = (files[1], files[3]);
    for has_manifest in [true, false] {
        for name in [1, FAR, third] {
            let what = format!("a copy called {name}, manifest: {has_manifest}");
            let disk = healthy.after_process_death();
            spare(&disk, has_manifest, true);
            let of_third = disk.file_bytes(&data(third)).unwrap();
            let copied = disk.file_bytes(&data(file)).unwrap();
            copy(&disk, file, name);
            let done = repair(&disk, &what);
            assert_eq!((done.strangers, done.renamed.len()), (vec![(data(name), aside(name))], 0), "{what}");
            assert_eq!((done.put_aside.len(), done.damaged_bytes), (0, 0), "{what}");
            let is_told = has_manifest && name == third;
            assert_eq!(done.missing, if is_told { vec![data(third)] } else { vec![] }, "{what}");
            let is_kept = |entry: &(&Vec<u8>, &Vec<u8>)| name != third || !holds(&of_third, entry.0, entry.1);
            let expected = all.iter().filter(is_kept).map(|(k, v)| (k.clone(), v.clone())).collect();
            verify(&disk, &expected, &what);
            assert!(disk.file_bytes(&aside(name)).unwrap() == copied, "{what}");
        }
    }
}

/// Goal: what nothing tells is not removed by the next open: a file without a head whose name is no file's, or another's.
#[test]
fn a_file_that_nothing_tells_is_put_aside() {
    let (healthy, files, all) = store(b's', true);
    let lost = files[2];
    for name in [1, FAR, lost] {
        let what = format!("called {name}");
        let disk = healthy.after_process_death();
        copy(&disk, lost, if name == FAR { FAR - 1 } else { FAR });
        let mut raw = disk.file_bytes(&data(lost)).unwrap();
        raw[..512].fill(7);
        if name != lost {
            disk.env().files.remove(&data(lost)).unwrap();
        }
        put_file(&disk, &data(name), raw.clone());
        let done = repair(&disk, &what);
        assert_eq!((done.put_aside, done.renamed.len()), (vec![aside(name)], 1), "{what}");
        verify(&disk, &all, &what);
        assert!(disk.file_bytes(&aside(name)).unwrap() == raw, "{what}");
    }
}

/// Goal: a file that has another name and no head either is known by its records, if the manifest knows their salt: none is lost.
/// Method: one has an unused number, or another's, which is gone, or two have each other's.
#[test]
fn a_file_without_name_and_head_is_known_by_its_records() {
    for is_sealed in [true, false] {
        let (healthy, files, all) = store(b's', is_sealed);
        let (first, gone, last) = (files[0], files[3], files[files.len() - 1]);
        for (names, is_lost) in [
            (vec![(first, 1)], false),
            (vec![(last, FAR)], false),
            (vec![(first, last), (last, first)], false),
            (vec![(first, gone)], true),
        ] {
            let what = format!("sealed: {is_sealed}, {names:?}");
            let disk = healthy.after_process_death();
            let raw_gone = disk.file_bytes(&data(gone)).unwrap();
            let mut moved = Vec::new();
            for (own, _) in &names {
                let mut raw = disk.file_bytes(&data(*own)).unwrap();
                raw[..32].fill(7);
                disk.env().files.remove(&data(*own)).unwrap();
                moved.push(raw);
            }
            for ((_, name), raw) in names.iter().zip(&moved) {
                put_file(&disk, &data(*name), raw.clone());
            }
            let done = repair(&disk, &what);
            let asides: Vec<_> = names.iter().map(|(own, _)| aside(*own)).collect();
            assert_eq!(done.put_aside.iter().collect::<BTreeSet<_>>(), asides.iter().collect(), "{what}: {done:?}");
            for (path, raw) in asides.iter().zip(&moved) {
                assert!(disk.file_bytes(path).unwrap() == *raw, "{what}");
            }
            assert_eq!(done.missing, if is_lost { vec![data(gone)] } else { vec![] }, "{what}");
            assert_eq!((done.damaged_bytes, done.damaged_keys.len()), (0, 0), "{what}");
            let is_kept = |entry: &(&Vec<u8>, &Vec<u8>)| !is_lost || !holds(&raw_gone, entry.0, entry.1);
            let expected = all.iter().filter(is_kept).map(|(k, v)| (k.clone(), v.clone())).collect();
            verify(&disk, &expected, &what);
        }
    }
}

/// Goal: a file that the manifest is older than is used, as a repair that died may have written it, and told.
#[test]
fn a_file_that_the_manifest_cannot_know_is_told() {
    let (disk, files, all) = store(b's', true);
    let manifest = disk.file_bytes(Path::new("/store/MANIFEST")).unwrap();
    let cask = open(&disk).unwrap();
    for n in 0..40 {
        cask.put([b'+', n], [n; 300]).unwrap();
    }
    cask.close().unwrap();
    let disk = disk.after_process_death();
    disk.overwrite(Path::new("/store/MANIFEST"), manifest);
    let done = repair(&disk, "older manifest");
    assert!(done.unnamed.len() > 1 && done.unnamed.iter().all(|path| *path > data(files[files.len() - 1])), "{done:?}");
    let cask = open(&disk).unwrap();
    assert_eq!(cask.len(), all.len() as u64 + 40);
}

/// A store in which all of this is so at once.
struct Muddle {
    disk: SimDisk,
    /// Its data files: each is kept, under whatever name.
    files: Vec<Vec<u8>>,
    /// What a repair that nothing disturbs makes of it.
    cured: Contents,
    ops: u64,
}

impl Muddle {
    fn new(is_damaged: bool, has_manifest: bool) -> Self {
        let (disk, numbers, all) = store(b's', false);
        let [a, b, c, d, e, f, g, ..] = numbers[..] else { panic!("{numbers:?}") };
        // Three in a ring, two swapped, one far away.
        swap(&disk, a, b);
        swap(&disk, b, c);
        swap(&disk, d, e);
        rename(&disk, f, FAR - 1);
        if is_damaged {
            let middle = disk.file_bytes(&data(g)).unwrap().len() as u64 / 2;
            disk.flip_bit(&data(g), middle * 8);
        }
        if has_manifest {
            // Without one, nobody knows which of them is the store's.
            let (other, others, _) = store(b'o', true);
            put_file(&disk, &data(f), other.file_bytes(&data(others[0])).unwrap());
        }
        spare(&disk, has_manifest, true);
        let disk = disk.after_power_loss(Survivors::Everything);
        let files = self::numbers(&disk).iter().map(|&number| disk.file_bytes(&data(number)).unwrap()).collect();
        let cured = disk.after_process_death();
        let done = repair(&cured, "undisturbed");
        assert_eq!((done.renamed.len(), done.put_aside.len()), (6, usize::from(is_damaged)), "{done:?}");
        assert_eq!((done.strangers.len(), done.missing.len()), (usize::from(has_manifest), 0), "{done:?}");
        let ops = cured.op_count();
        let found = contents(&open(&cured).unwrap());
        assert_eq!(found.len(), all.len() - usize::from(is_damaged));
        Self { disk, files, cured: found, ops }
    }

    fn all() -> impl Iterator<Item = (String, Self)> {
        [(false, true), (true, true), (false, false), (true, false)].into_iter().map(|(is_damaged, has_manifest)| {
            (format!("damaged: {is_damaged}, manifest: {has_manifest}"), Self::new(is_damaged, has_manifest))
        })
    }

    fn verify_files(&self, disk: &SimDisk, what: &str) {
        let there = image(disk);
        // What was preallocated may be given back.
        let used = |raw: &[u8]| raw.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        for (index, file) in self.files.iter().enumerate() {
            let is_it = |raw: &[u8]| raw.starts_with(&file[..used(file)]) && used(raw) == used(file);
            assert!(there.iter().any(|(_, raw)| is_it(raw)), "{what}: file {index} of {} is gone", self.files.len());
        }
    }

    /// Nothing is gone, whether somebody opens it first or not, and a repair makes what it would have made.
    fn verify(&self, disk: &SimDisk, what: &str) {
        self.verify_files(disk, what);
        let opened = disk.after_process_death();
        match open(&opened) {
            // The end of one that is written to may have been cut off.
            Ok(cask) => assert!(contents(&cask) == self.cured, "{what}: opened half-way"),
            Err(_) => self.verify_files(&opened, &format!("{what}, then not opened")),
        }
        for (disk, when) in [(&opened, "opened"), (disk, "as it was left")] {
            let what = format!("{what}, {when}");
            Cask::repair_with_env("/store", &disk.env()).unwrap_or_else(|error| panic!("{what}: again: {error}"));
            verify(disk, &self.cured, &what);
        }
    }
}

/// Goal: a repair that puts names right and dies on the way, wherever, has lost nothing, and the next one ends it.
#[test]
fn death_while_files_get_their_names_loses_nothing() {
    for (how, muddle) in Muddle::all() {
        for n in 0..=muddle.ops {
            let disk = muddle.disk.after_process_death();
            kill(&disk, n);
            let is_done = Cask::repair_with_env("/store", &disk.env()).is_ok();
            assert_eq!(is_done, n == muddle.ops, "{how}: operation {n}");
            for image in images(&disk, n) {
                let what = format!("{how}: died at operation {n} of {}, {}", muddle.ops, image.name);
                if is_done {
                    verify(&image.disk.after_process_death(), &muddle.cured, &what);
                }
                muddle.verify(&image.disk, &what);
            }
        }
    }
}

/// Goal: the same for one of which a call fails.
#[test]
fn a_failure_while_files_get_their_names_loses_nothing() {
    for (how, muddle) in Muddle::all().skip(1) {
        for n in 0..muddle.ops {
            for fault in FAULTS {
                let what = format!("{how}: operation {n} fails with {fault:?}");
                let disk = muddle.disk.after_process_death();
                disk.fail_at(n, fault);
                let _ = Cask::repair_with_env("/store", &disk.env());
                let after_power_loss = disk.after_power_loss(Survivors::Sample { seed: n });
                muddle.verify(&disk, &what);
                muddle.verify(&after_power_loss, &format!("{what}, then power loss"));
            }
        }
    }
}

/// Goal: whoever has just copied files under each other's names, and synced none, has them on the device once they are repaired.
#[test]
fn swapped_files_are_durable_once_they_are_repaired() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", options(), disk.env()).unwrap();
    (0..20u8).for_each(|n| assert!(cask.put([n], vec![n; 1000]).unwrap() > 0));
    let expected = contents(&cask);
    cask.close().unwrap();
    let is_data = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "data");
    let files: Vec<PathBuf> = disk.paths().into_iter().filter(is_data).collect();
    let copies = [(0, 1), (1, 0)].map(|(to, from)| (&files[to], disk.file_bytes(&files[from]).unwrap()));
    for (to, bytes) in &copies {
        disk.env().files.remove(to).unwrap();
        disk.env().files.create(to).unwrap().append(&[bytes]).unwrap();
    }
    let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
    assert_eq!(report.renamed.len(), 2, "{report:?}");
    let left = disk.after_power_loss(Survivors::Nothing);
    let cask = Cask::open_with_env("/store", options(), left.env()).unwrap();
    assert!(contents(&cask) == expected);
}
