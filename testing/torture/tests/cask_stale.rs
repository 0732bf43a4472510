//! Damage never makes a Cask answer with what was overwritten, nor bring back what was deleted: the key's reads fail, until it is
//! written anew. And what else of the store's own knowledge must survive: how many versions are kept, and hints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::env::Env;
use esker::env::sim::SimDisk;
use esker::{Cask, CaskBatch, CaskDamage, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_torture::crash::{Image, images, kill};
use esker_torture::hooked::{Call, Hooked, Meanwhile};

/// What each key has now; `None`: it was deleted.
type Now = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

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

fn open(disk: &SimDisk) -> Cask {
    Cask::open_with_env("/store", options(), disk.env()).unwrap()
}

/// Every key has an older value in a file that is sealed; newer ones, deletions, a batch and values that expire are in one that is open. Its path.
fn store() -> (SimDisk, PathBuf, Now) {
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put("stays", "here").unwrap();
    let keys: Vec<Vec<u8>> = (0..12u8).map(|n| vec![b'k', n]).collect();
    for key in &keys {
        cask.put(key, vec![1; 400]).unwrap();
    }
    // Ends the file; there is nothing to merge.
    cask.compact().unwrap();
    let mut now = Now::from([(b"stays".to_vec(), Some(b"here".to_vec()))]);
    let (mut batch, mut set) = (CaskBatch::new(), |key: &[u8], value: Option<&[u8]>| {
        now.insert(key.to_vec(), value.map(<[u8]>::to_vec));
    });
    let later = CaskWriteOptions { ttl: Some(std::time::Duration::from_secs(1 << 20)), ..CaskWriteOptions::default() };
    for (n, key) in keys.iter().enumerate() {
        let value = [b"new ".to_vec(), vec![n as u8; 40]].concat();
        set(key, (n % 3 != 1).then_some(&value[..]));
        match n {
            0..3 if n % 3 == 1 => batch.delete(key).unwrap(),
            0..3 => batch.put(key, value).unwrap(),
            _ if n % 3 == 1 => assert!(cask.delete(key).unwrap()),
            6 => drop(cask.put_with(key, value, &later).unwrap()),
            _ => drop(cask.put(key, value).unwrap()),
        }
        if n == 2 {
            cask.write(&batch, &CaskWriteOptions::default()).unwrap();
        }
    }
    assert!(cask.stats().sealed_files > 0);
    std::mem::forget(cask);
    let disk = disk.after_process_death();
    let last = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "data")).max();
    (disk, last.unwrap(), now)
}

/// The keys that cannot be read. All others are as they should be.
fn unreadable(cask: &Cask, now: &Now, what: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (key, value) in now {
        match cask.get(key) {
            Ok(got) => assert!(got.as_deref() == value.as_deref(), "{what}: {key:?} is stale or revived: {got:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
                assert!(cask.exists(key).is_err() && cask.value_len(key).is_err(), "{what}: {key:?}");
                assert!(cask.history(key).is_err() && cask.multi_get([key]).unwrap()[0].is_err(), "{what}: {key:?}");
                let none = CaskWriteOptions::default();
                assert!(cask.put_if_absent(key, "", &none).is_err(), "{what}: {key:?}");
                found.push(key.clone());
            }
        }
    }
    let mut scan = cask.scan().unwrap();
    loop {
        match scan.advance() {
            Ok(true) => {
                let (key, value) = (scan.key().to_vec(), scan.value().unwrap().to_vec());
                assert_eq!(now[&key], Some(value), "{what}: a scan shows {key:?} as it was");
            }
            Ok(false) => return found,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}"),
        }
    }
}

/// Goal: whichever bit of a file that was open is flipped, no key has its older value, nor is back: not when the store is opened, nor when it
/// is opened again with the file sealed, nor after a compaction; the rest is served; and the key is as good as any once it is written or
/// deleted anew.
#[test]
fn a_damaged_record_is_not_answered_by_an_older_one() {
    let (disk, path, now) = store();
    let used = disk.file_bytes(&path).unwrap().iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let mut hidden = 0;
    for byte in 32..used {
        let bit = (byte * 8 + (byte * 5 + 1) % 8) as u64;
        let what = format!("bit {bit} of {} flipped", path.display());
        let disk = disk.after_process_death();
        disk.flip_bit(&path, bit);
        let cask = open(&disk);
        let bad = unreadable(&cask, &now, &what);
        assert_eq!((cask.recovery().damaged_keys == bad, bad.len()), (true, 1), "{what}: {:?}", cask.recovery());
        cask.compact().unwrap();
        assert_eq!(unreadable(&cask, &now, &what), bad, "{what}, merged");
        cask.close().unwrap();
        let cask = open(&disk);
        assert_eq!(unreadable(&cask, &now, &what), bad, "{what}, opened again");
        let mut after = now.clone();
        let again = (byte % 2 == 0).then(|| b"again".to_vec());
        match &again {
            Some(value) => drop(cask.put(&bad[0], value).unwrap()),
            None => assert!(cask.delete(&bad[0]).is_ok()),
        }
        after.insert(bad[0].clone(), again);
        assert!(unreadable(&cask, &after, &what).is_empty(), "{what}, written anew");
        drop(cask);
        let cask = open(&disk);
        assert!(unreadable(&cask, &after, &what).is_empty(), "{what}, written anew and opened again");
        let _ = cask.compact();
        drop(cask);
        assert!(unreadable(&open(&disk), &after, &what).is_empty(), "{what}, written anew, merged and opened again");
        hidden += bad.len();
    }
    assert!(hidden > 500, "{hidden}");
}

/// Goal: damage that hides which key it was of keeps a store from being opened, for reading and for writing, once and again, unless it is to serve
/// what is left; a repair makes it one that opens.
#[test]
fn damage_of_a_key_that_cannot_be_told_is_refused() {
    let (disk, path, _) = store();
    // Two bytes of the first record's key: it claims to be of another. And a stretch in which no record can be told.
    for damaged in [32 + 20..32 + 22, 200..400] {
        let disk = disk.after_process_death();
        let mut bytes = disk.file_bytes(&path).unwrap();
        bytes[damaged].iter_mut().for_each(|byte| *byte ^= 0x55);
        disk.overwrite(&path, bytes);
        let serve = || CaskOptions { damage: CaskDamage::Serve, ..options() };
        let refused = || {
            let errors = [
                Cask::open_with_env("/store", options(), disk.env()).map(drop).unwrap_err(),
                Cask::open_read_only_with_env("/store", options(), disk.env()).map(drop).unwrap_err(),
            ];
            for error in errors {
                assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)), "{error}");
                assert!(error.to_string().contains("at byte") && error.to_string().contains("repair"), "{error}");
            }
        };
        refused();
        let cask = Cask::open_with_env("/store", serve(), disk.env()).unwrap();
        assert_eq!((cask.recovery().damage.len(), cask.get("stays").unwrap().is_some()), (1, true));
        cask.compact().unwrap();
        cask.close().unwrap();
        refused();
        assert!(Cask::open_read_only_with_env("/store", serve(), disk.env()).unwrap().exists("stays").unwrap());
        let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
        assert_eq!(report.put_aside.len(), 1);
        let cask = open(&disk);
        assert!(cask.recovery().damage.is_empty() && cask.check(&mut |_| ()).unwrap().errors.is_empty());
    }
}

/// Goal: a key that is written anew behind damage can be read from then on, whatever the damage has made of its record's version, and wherever
/// in its file that was.
#[test]
fn a_key_written_anew_is_newer_than_its_damaged_record() {
    let serve = || CaskOptions { damage: CaskDamage::Serve, ..options() };
    let open = |disk: &SimDisk| Cask::open_with_env("/store", serve(), disk.env()).unwrap();
    for (version_byte, is_last) in [(None, true), (Some(4), true), (Some(4), false), (Some(5), true), (Some(5), false)]
    {
        let what = format!("byte {version_byte:?} of the version, the last record: {is_last}");
        let disk = SimDisk::new();
        let cask = open(&disk);
        cask.put("key", [1; 100]).unwrap();
        cask.compact().unwrap();
        let damaged = cask.put("key", [2; 100]).unwrap();
        if !is_last {
            cask.put("next", "").unwrap();
        }
        std::mem::forget(cask);
        let disk = disk.after_process_death();
        let path = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "data")).max();
        let path = path.unwrap();
        assert!(disk.flip_bit(&path, 8 * (32 + 20 + 3 + 50)));
        if let Some(byte) = version_byte {
            assert!(disk.flip_bit(&path, 8 * (32 + 12 + byte) + 1));
        }
        let cask = open(&disk);
        assert_eq!(cask.get("key").unwrap_err().kind(), ErrorKind::Corruption, "{what}");
        let anew = cask.put("key", "again").unwrap();
        assert!(anew > damaged && (is_last || anew < 100), "{what}: {anew} after {damaged}");
        cask.close().unwrap();
        for _ in 0..2 {
            let cask = open(&disk);
            let got = cask.get("key").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(got.as_deref(), Some(&b"again"[..]), "{what}");
            cask.put("more", "").unwrap();
            cask.close().unwrap();
        }
    }
}

/// Goal: the same where a merge or a repair has copied the record, and the hint is gone with it; and damage of a copy that nobody needs any more
/// hides no newer value.
#[test]
fn a_key_written_anew_is_newer_than_its_damaged_copy() {
    let serve = || CaskOptions { damage: CaskDamage::Serve, ..options() };
    let open = |disk: &SimDisk| Cask::open_with_env("/store", serve(), disk.env()).unwrap();
    for (is_repaired, is_newer_there) in [(false, false), (false, true), (true, false)] {
        let what = format!("copied by a repair: {is_repaired}, newer: {is_newer_there}");
        let disk = SimDisk::new();
        let cask = open(&disk);
        for value in ["key", "other", "other"].map(|key| (key, [1; 100])) {
            cask.put(value.0, value.1).unwrap();
        }
        cask.compact().unwrap();
        cask.close().unwrap();
        let last = |disk: &SimDisk| {
            disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "data")).max().unwrap()
        };
        if is_repaired {
            // Of a file with a bad head all records are copied.
            assert!(disk.flip_bit(&last(&disk), 8));
            assert_eq!(Cask::repair_with_env("/store", &disk.env()).unwrap().put_aside.len(), 1);
        }
        let path = last(&disk);
        if is_newer_there {
            open(&disk).put("key", "again").unwrap();
        }
        assert!(disk.flip_bit(&path, 8 * (32 + 20 + 3 + 50)));
        assert!(disk.flip_bit(&path, 8 * (32 + 12 + 5) + 1));
        disk.env().files.remove(&path.with_extension("hint")).unwrap();
        if !is_newer_there {
            let cask = open(&disk);
            assert_eq!(cask.get("key").unwrap_err().kind(), ErrorKind::Corruption, "{what}");
            cask.put("key", "again").unwrap();
        }
        for _ in 0..2 {
            let cask = open(&disk);
            let got = cask.get("key").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(got.as_deref(), Some(&b"again"[..]), "{what}");
            cask.put("more", "").unwrap();
        }
    }
}

/// Goal: a repair says which keys it takes back to what they were before.
#[test]
fn a_repair_names_the_keys_whose_records_are_lost() {
    let (disk, path, now) = store();
    disk.flip_bit(&path, 8 * (32 + 30));
    let bad = unreadable(&open(&disk), &now, "damaged");
    let report = Cask::repair_with_env("/store", &disk.env()).unwrap();
    assert_eq!((report.damaged_keys, bad.len()), (bad.clone(), 1));
    let cask = open(&disk);
    assert_eq!(cask.get(&bad[0]).unwrap().as_deref(), Some(&[1; 400][..]));
    assert!(cask.recovery().damage.is_empty() && cask.recovery().damaged_keys.is_empty());
}

/// Goal: who opens a store without saying how many versions it keeps drops none of them; who says fewer does; a copy and a repair keep
/// the number.
#[test]
fn a_store_remembers_how_many_versions_it_keeps() {
    let disk = SimDisk::new();
    let keep = |keep_versions| CaskOptions { keep_versions, ..options() };
    let open = |path: &str, options| Cask::open_with_env(path, options, disk.env()).unwrap();
    let versions = |cask: &Cask| {
        cask.compact().unwrap();
        cask.history("key").unwrap().len()
    };
    let cask = open("/store", keep(3));
    for n in 0..5u8 {
        cask.put("key", [n; 100]).unwrap();
    }
    assert_eq!(versions(&cask), 3);
    cask.backup("/copy", &mut |_| ()).unwrap();
    drop(cask);
    Cask::repair_with_env("/store", &disk.env()).unwrap();
    for path in ["/store", "/copy"] {
        let cask = open(path, options());
        assert_eq!((cask.options().keep_versions, versions(&cask)), (3, 3), "{path}");
        cask.put("key", "newest").unwrap();
        assert_eq!(versions(&cask), 3, "{path}");
    }
    let reader = Cask::open_read_only_with_env("/store", keep(2), disk.env()).unwrap();
    assert_eq!(reader.history("key").unwrap().len(), 2);
    assert_eq!(versions(&open("/store", options())), 3, "a reader decides nothing");
    assert_eq!(versions(&open("/store", keep(2))), 2);
    assert_eq!(versions(&open("/store", options())), 2);
    assert_eq!(open("/new", options()).options().keep_versions, 1);
}

/// Goal: a check takes a hint that is not there for no damage, be it that a writer merges its file away meanwhile, or that there was no room for it
/// when the store was opened; then it is made up for once there is.
#[test]
fn a_check_does_not_miss_a_hint() {
    let (disk, _, now) = store();
    let is_hint = |path: &Path| path.extension().is_some_and(|end| end == "hint");
    let hint = disk.paths().into_iter().find(|path| is_hint(path)).unwrap();
    let meanwhile = Meanwhile::default();
    let reader = Cask::open_read_only_with_env("/store", options(), meanwhile.env(&disk)).unwrap();
    let (writer, gone) = (open(&disk), hint.clone());
    meanwhile.before(
        move |call| call == Call::Open(&gone),
        move || {
            writer.delete("stays").unwrap();
            writer.compact().unwrap();
        },
    );
    assert_eq!(reader.check(&mut |_| ()).unwrap().errors.len(), 0);
    assert!(meanwhile.is_done() && !disk.paths().contains(&hint));

    let (disk, ..) = store();
    disk.env().files.remove(&hint).unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let still = is_full.clone();
    let files = Hooked::new(disk.env().files, move |call| match call {
        Call::Create(path) if path.to_string_lossy().ends_with(".hint.new") && still.load(Ordering::Relaxed) => {
            Err(esker::env::Error::new("creating", path, std::io::ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let cask = Cask::open_with_env("/store", options(), env).unwrap();
    assert!(cask.check(&mut |_| ()).unwrap().errors.is_empty() && unreadable(&cask, &now, "without a hint").is_empty());
    is_full.store(false, Ordering::Relaxed);
    cask.put("more", "").unwrap();
    cask.compact().unwrap();
    let data = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "data"));
    assert!(
        data.map(|path| path.with_extension("hint")).all(|hint| disk.paths().contains(&hint)),
        "{:?}",
        disk.paths()
    );
    assert!(cask.check(&mut |_| ()).unwrap().errors.is_empty());
}

/// A store of one sealed file, and its hint, of some pages.
fn store_with_a_long_hint() -> (SimDisk, PathBuf) {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", CaskOptions { file_bytes: 64 << 10, ..options() }, disk.env()).unwrap();
    (0..150u8).for_each(|n| assert!(cask.put([n; 60], "").is_ok()));
    cask.compact().unwrap();
    cask.close().unwrap();
    let hint = disk.paths().into_iter().find(|path| path.extension().is_some_and(|end| end == "hint")).unwrap();
    assert!(disk.file_bytes(&hint).unwrap().len() > 2 * 4096);
    (disk, hint)
}

/// Goal: a hint has its name once it is whole: whatever death its writer dies, neither a check nor an open that only reads finds one that is bad.
#[test]
fn no_death_leaves_a_part_of_a_hint() {
    let (healthy, hint) = store_with_a_long_hint();
    healthy.env().files.remove(&hint).unwrap();
    healthy.env().files.sync_dir(Path::new("/store")).unwrap();
    let mut whole = 0;
    for n in 0.. {
        let disk = healthy.after_process_death();
        kill(&disk, n);
        let died = Cask::open_with_env("/store", options(), disk.env()).is_err();
        for Image { name, disk, .. } in images(&disk, n) {
            let what = format!("operation {n}, {name}");
            let is_there = disk.paths().contains(&hint);
            whole += u32::from(is_there);
            let reader = Cask::open_read_only_with_env("/store", options(), disk.env()).unwrap();
            assert_eq!(reader.recovery().bad_hints.is_empty(), is_there, "{what}");
            assert_eq!(reader.check(&mut |_| ()).unwrap().errors.len(), 0, "{what}");
            drop(open(&disk));
            let left = disk.paths().into_iter().filter(|path| path.to_string_lossy().contains(".hint"));
            assert_eq!(left.collect::<Vec<_>>(), std::slice::from_ref(&hint), "{what}");
        }
        if !died {
            break;
        }
    }
    assert!(whole > 0);
}

/// Goal: the same of a hint that a backup lacked, when it is brought up to date.
#[test]
fn no_death_leaves_a_part_of_a_hint_in_a_backup() {
    let (healthy, hint) = store_with_a_long_hint();
    let copied = Path::new("/copy").join(hint.file_name().unwrap());
    open(&healthy).backup("/copy", &mut |_| ()).unwrap();
    healthy.env().files.remove(&copied).unwrap();
    healthy.env().files.sync_dir(Path::new("/copy")).unwrap();
    let mut whole = 0;
    for n in 0.. {
        let disk = healthy.after_process_death();
        let cask = open(&disk);
        kill(&disk, disk.op_count() + n);
        let died = cask.backup("/copy", &mut |_| ()).is_err();
        for Image { name, disk, .. } in images(&disk, n) {
            let what = format!("operation {n}, {name}");
            let is_there = disk.paths().contains(&copied);
            whole += u32::from(is_there);
            let reader = Cask::open_read_only_with_env("/copy", options(), disk.env()).unwrap();
            assert_eq!(reader.recovery().bad_hints.is_empty(), is_there, "{what}");
            assert_eq!(reader.check(&mut |_| ()).unwrap().errors.len(), 0, "{what}");
        }
        if !died {
            break;
        }
    }
    assert!(whole > 0);
}

/// Goal: a check notices a hint of which a bit is flipped, or an end is missing.
#[test]
fn a_check_notices_every_damage_to_a_hint() {
    let (disk, hint) = store_with_a_long_hint();
    let whole = disk.file_bytes(&hint).unwrap();
    let reader = Cask::open_read_only_with_env("/store", options(), disk.env()).unwrap();
    let check = |raw: &[u8]| {
        disk.overwrite(&hint, raw.to_vec());
        let check = reader.check(&mut |_| ()).unwrap();
        (check.hints, check.errors.len())
    };
    assert_eq!(check(&whole), (1, 0));
    for len in (0..whole.len()).step_by(71).chain(whole.len() - 50..whole.len()) {
        assert_eq!(check(&whole[..len]), (1, 1), "{len} bytes");
    }
    for byte in (0..whole.len()).step_by(71).chain(4..8).chain(whole.len() - 48..whole.len()) {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << bit;
            assert_eq!(check(&flipped), (1, 1), "bit {bit} of byte {byte}");
        }
    }
}

/// Goal: a hint that is missing or bad is written anew by the next open that may write, and by none that may not; nor one of a file with damage,
/// of which it would lack a record.
#[test]
fn a_bad_hint_is_written_anew() {
    let (disk, _, now) = store();
    let hints =
        |disk: &SimDisk| disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "hint"));
    let hint = hints(&disk).next().unwrap();
    let sound = disk.file_bytes(&hint).unwrap();
    for bad in [Some(Vec::new()), Some(sound[1..].to_vec()), Some(vec![0; sound.len()]), None] {
        let disk = disk.after_process_death();
        match bad {
            Some(bytes) => disk.overwrite(&hint, bytes),
            None => disk.env().files.remove(&hint).unwrap(),
        }
        let reader = Cask::open_read_only_with_env("/store", options(), disk.env()).unwrap();
        assert_eq!(reader.recovery().bad_hints, std::slice::from_ref(&hint));
        assert_ne!(disk.file_bytes(&hint).as_ref(), Some(&sound));
        let cask = open(&disk);
        assert_eq!(cask.recovery().bad_hints, std::slice::from_ref(&hint));
        assert_eq!(disk.file_bytes(&hint).as_ref(), Some(&sound));
        assert!(unreadable(&cask, &now, "with a new hint").is_empty());
        drop(cask);
        let disk = disk.after_process_death();
        assert!(open(&disk).recovery().bad_hints.is_empty());

        disk.env().files.remove(&hint).unwrap();
        assert!(disk.flip_bit(&hint.with_extension("data"), 8 * 300));
        drop(open(&disk));
        assert!(!disk.paths().contains(&hint) && hint != Path::new("/store"));
    }
}

/// Goal: a deletion that cannot be read for a while, as when a bit flips on its way to memory, is not lost for it: what a merge copies meanwhile may be
/// what it hides.
/// Method: the bit is well again at once, or once the store was closed; either way merges come by that would drop the deletion.
#[test]
fn a_deletion_that_was_misread_once_still_deletes() {
    for is_well_at_once in [true, false] {
        let disk = SimDisk::new();
        let options = CaskOptions { stripes: 2, file_bytes: 8 << 10, merge_garbage_ratio: 0.5, ..options() };
        let open = || Cask::open_with_env("/store", options.clone(), disk.env());
        let to = |stripe| CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
        let cask = open().unwrap();
        cask.put_with("the key", "old", &to(0)).unwrap();
        for n in (0..30u8).chain(0..20) {
            cask.put_with([n], [7; 100], &to(0)).unwrap();
        }
        assert!(cask.delete_with("the key", &to(1)).unwrap());
        cask.close().unwrap();
        let find = |raw: &[u8], what: &[u8]| raw.windows(what.len()).position(|part| part == what);
        let deletion = |path: &PathBuf| {
            let raw = disk.file_bytes(path).unwrap_or_default();
            find(&raw, b"the key").filter(|_| find(&raw, b"the keyold").is_none())
        };
        let data = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "data"));
        let (path, at) = data.filter_map(|path| Some((path.clone(), deletion(&path)?))).next().unwrap();
        let flip = || assert!(disk.flip_bit(&path, 8 * at as u64 + 1));

        flip();
        let cask = open().unwrap();
        if is_well_at_once {
            flip();
        }
        cask.compact().unwrap();
        cask.close().unwrap();
        if !is_well_at_once {
            flip();
        }
        let cask = open().unwrap_or_else(|_| {
            Cask::repair_with_env("/store", &disk.env()).unwrap();
            open().unwrap()
        });
        assert!(cask.get("the key").unwrap().is_none());
        for n in 0..200u8 {
            cask.put_with([100 + n % 50], [9; 200], &to(0)).unwrap();
        }
        cask.close().unwrap();
        assert!(open().unwrap().get("the key").unwrap().is_none(), "well at once: {is_well_at_once}");
    }
}
