//! Dead pages are given back where they lie, and nothing else is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::env::{Env, Error as EnvError};
use esker::{Compression, Db, ErrorKind, Options, ReclaimMode};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::Contents;
use esker_torture::numbered::{assert_sound, contents, files, key, noise};

use super::options;

/// Values of several pages, in one file for each flush, of which every second was overwritten: half of each file is dead.
pub(super) fn large_garbage(disk: &SimDisk) -> Contents {
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

pub(super) fn large_options(mode: ReclaimMode, holes_within_values: bool) -> Options {
    let mut options = Options { holes_within_values, ..options(mode) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 1 << 20);
    options
}

fn large_value(n: u32, round: u32) -> Vec<u8> {
    noise(n, round, 20_000 + n as usize * 13)
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

/// Goal: what a handle handed out stays what it is when the handle is closed, an iterator and a value of a mapped file; once it is gone,
/// holes are made.
#[test]
fn no_hole_is_made_while_what_a_closed_handle_handed_out_is_held() {
    for (is_reader, is_iterator) in [(true, true), (true, false), (false, true), (false, false)] {
        let disk = SimDisk::new();
        large_garbage(&disk);
        let options = large_options(ReclaimMode::Auto, false);
        let mapped = Options { mmap_reads: true, ..large_options(ReclaimMode::Manual, false) };
        let open = if is_reader { Db::open_read_only_with_env } else { Db::open_with_env };
        let closed = open("/store", mapped, disk.env()).unwrap();
        let seen = contents(&closed);
        let mut iterator = is_iterator.then(|| closed.iter().unwrap());
        let value = (!is_iterator).then(|| closed.get(key(3)).unwrap().unwrap());
        closed.close().unwrap();
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let overwrite = |keys: std::ops::Range<u32>| {
            for n in keys.step_by(3) {
                db.put(key(n), large_value(n, 7)).unwrap();
            }
            db.compact_range(&db.default_column_family(), None, None).unwrap();
        };
        overwrite(0..60);
        let what = format!("a reader: {is_reader}, an iterator: {is_iterator}");
        assert_eq!(db.stats().punched_bytes, 0, "{what}");
        assert!(db.stats().punches > 0, "a pass was begun: {what}");
        if let Some(iterator) = &mut iterator {
            iterator.seek_to_first().unwrap();
            for (key, value) in &seen {
                assert!(iterator.key() == key && &iterator.value().unwrap() == value);
                iterator.next().unwrap();
            }
            assert!(!iterator.valid());
        }
        assert!(value.is_none_or(|value| value == seen[&key(3)]));
        drop(iterator);
        overwrite(1..60);
        assert!(db.stats().punched_bytes > 0, "{what}");
        assert_sound(&db, "with holes");
    }
}

/// Goal: a reader that cannot keep holes out is refused, but where there is no such lock, which the writer cannot have either.
#[test]
fn who_cannot_share_the_directory_does_not_read_unprotected() {
    let disk = SimDisk::new();
    let expected = large_garbage(&disk);
    for (kind, refused) in [
        (std::io::ErrorKind::PermissionDenied, Some(ErrorKind::Io)),
        (std::io::ErrorKind::StorageFull, Some(ErrorKind::Exhausted)),
        (std::io::ErrorKind::Unsupported, None),
    ] {
        let files = Hooked::new(disk.env().files, move |call| match call {
            Call::Share(path) => Err(EnvError::new("sharing", path, kind.into())),
            _ => Ok(()),
        });
        let env = Env { files: Arc::new(files), ..disk.env() };
        let reader = Db::open_read_only_with_env("/store", large_options(ReclaimMode::Auto, false), env);
        match refused {
            Some(refused) => assert_eq!(reader.unwrap_err().kind(), refused),
            None => assert!(contents(&reader.unwrap()) == expected),
        }
    }
}

/// Goal: nobody begins to read in the middle of a pass, when what the reader takes for live may be on its way to be a hole.
/// Method: at each hole the directory is asked for: that the pass has it for itself is what keeps readers out.
#[test]
fn no_reader_gets_in_while_holes_are_made() {
    let disk = SimDisk::new();
    large_garbage(&disk);
    let (holes, alone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, count_alone, files) = (holes.clone(), alone.clone(), disk.env().files);
    let hooked = Hooked::new(disk.env().files, move |call| {
        if matches!(call, Call::PunchHole(_)) {
            count.fetch_add(1, Ordering::Relaxed);
            let asked = files.claim_dir("/store".as_ref());
            let is_taken = asked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            count_alone.fetch_add(u64::from(is_taken), Ordering::Relaxed);
        }
        Ok(())
    });
    let env = Env { files: Arc::new(hooked), ..disk.env() };
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Auto, false), env).unwrap();
    db.flush().unwrap();
    let (holes, alone) = (holes.load(Ordering::Relaxed), alone.load(Ordering::Relaxed));
    assert!(holes > 0 && alone == holes, "{alone} of {holes} holes were made alone");
    Db::open_read_only_with_env("/store", large_options(ReclaimMode::Auto, false), disk.env()).unwrap();
}

/// Goal: where the file system has no holes, values are copied instead, and nobody is told of an error.
#[test]
fn without_holes_values_are_copied() {
    let within = false;
    let disk = SimDisk::new();
    let expected = large_garbage(&disk);
    let files = Hooked::new(disk.env().files, |call| match call {
        Call::PunchHole(path) => {
            let unsupported = std::io::Error::from(std::io::ErrorKind::Unsupported);
            Err(EnvError::new("punching a hole into", path, unsupported))
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Auto, within), env).unwrap();
    db.flush().unwrap();
    let stats = db.stats();
    assert!(stats.relocations > 0 && stats.punched_bytes == 0 && stats.background_error.is_none(), "{stats:?}");
    assert!(contents(&db) == expected);
}

/// Goal: where descriptors have run out for a moment, somebody is told, and holes are made later; where no directory can be locked, values are
/// copied for good.
#[test]
fn a_directory_that_cannot_be_claimed_for_a_moment_has_holes_later() {
    let (emfile, enolck) = (24, 37);
    for errno in [emfile, enolck] {
        let disk = SimDisk::new();
        large_garbage(&disk);
        let has_failed = AtomicBool::new(false);
        let files = Hooked::new(disk.env().files, move |call| match call {
            Call::Claim(dir) if !has_failed.swap(true, Ordering::Relaxed) => {
                Err(EnvError::new("claiming", dir, std::io::Error::from_raw_os_error(errno)))
            }
            _ => Ok(()),
        });
        let env = Env { files: Arc::new(files), ..disk.env() };
        let options = Options { max_space_amp: 1.6, ..large_options(ReclaimMode::Auto, false) };
        let db = Db::open_with_env("/store", options, env).unwrap();
        db.flush().unwrap();
        let stats = db.stats();
        assert!(stats.punches == 1 && stats.punched_bytes == 0, "{stats:?}");
        assert_eq!(stats.background_error.is_some(), errno == emfile, "{stats:?}");
        // It is tried again, without more to gain.
        db.flush().unwrap();
        let stats = db.stats();
        assert_eq!((stats.punches == 2, stats.punched_bytes > 0), (errno == emfile, errno == emfile), "{stats:?}");
        assert!(stats.background_error.is_none(), "{stats:?}");
        (1..60).step_by(4).for_each(|n| db.delete(key(n)).unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        db.flush().unwrap();
        let stats = db.stats();
        assert_eq!(stats.punched_bytes > 0, errno == emfile, "{stats:?}");
        assert!(stats.background_error.is_none(), "{stats:?}");
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

/// Goal (G4): a table that cannot be read lets no pass begin again and again, with threads and without: who writes goes on, and is told.
#[test]
fn a_damaged_table_is_not_looked_at_for_holes_for_ever() {
    let made = SimDisk::new();
    large_garbage(&made);
    for background_jobs in [0, 1] {
        let disk = made.after_process_death();
        let tables = files(&disk, "sst");
        tables.iter().for_each(|path| assert!(disk.flip_bit(path, 999)));
        let options = Options { background_jobs, ..large_options(ReclaimMode::Auto, true) };
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let db = &db;
            scope.spawn(move || {
                (1000..1010).for_each(|n| db.put(key(n), large_value(n, 0)).unwrap());
                told.send(db.flush())
            });
            let flushed = hears.recv_timeout(Duration::from_secs(20));
            if flushed.is_err() {
                // Nobody could end the other thread.
                eprintln!("{background_jobs}: the flush does not end");
                std::process::abort();
            }
            flushed.unwrap().unwrap();
        });
        if background_jobs > 0 {
            // Whatever is due fails; what does not end would go on meanwhile.
            let _ = db.wait_for_compact();
        }
        let stats = db.stats();
        assert!(stats.punches <= 3 && stats.background_error.is_some(), "{} passes", stats.punches);
    }
}

/// Goal: what a failed pass had found dead, and made no hole of, the next one gives back.
#[test]
fn a_read_that_fails_keeps_no_pages_from_going_later() {
    let made = SimDisk::new();
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Manual, false), made.env()).unwrap();
    // Too little garbage to copy what lives.
    for round in 0..2 {
        (0..60).step_by(1 + 2 * round as usize).for_each(|n| db.put(key(n), large_value(n, round)).unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
    db.close().unwrap();
    // Lets the blob read with index `fails` after open fail; returns how many there were, and how many bytes became holes in the end.
    let run = |fails: u64| {
        let disk = made.after_process_death();
        let reads = Arc::new(AtomicU64::new(u64::MAX / 2));
        let hook = {
            let reads = reads.clone();
            move |call: Call<'_>| match call {
                Call::Read(path) if path.extension().is_some_and(|extension| extension == "blob") => {
                    if reads.fetch_add(1, Ordering::Relaxed) == fails {
                        return Err(EnvError::new("reading", path, std::io::Error::from_raw_os_error(5)));
                    }
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        let mut env = disk.env();
        env.files = Arc::new(Hooked::new(env.files, hook));
        let options = Options { max_space_amp: 1.6, ..large_options(ReclaimMode::Auto, true) };
        let db = Db::open_with_env("/store", options, env).unwrap();
        reads.store(0, Ordering::Relaxed);
        db.flush().unwrap();
        let reads = reads.load(Ordering::Relaxed);
        // More garbage, so that it is looked at again.
        for n in (1..60).step_by(2) {
            db.delete(key(n)).unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        db.flush().unwrap();
        let stats = db.stats();
        assert!(stats.punches >= 2, "{}", stats.punches);
        (reads, stats.punched_bytes)
    };
    let (reads, healthy) = run(u64::MAX);
    assert!(reads >= 20, "{reads}");
    for n in 0..reads {
        let (_, punched) = run(n);
        assert_eq!(punched, healthy, "read {n} of {reads}");
    }
}

/// Goal: a value that lies in a mapped file stays what it is for as long as it is held, though nothing points to it any more; then its pages go.
/// On the machine's own disk: the simulated one has no mapping that shows what becomes of a file.
#[test]
fn a_mapped_value_that_is_held_becomes_no_hole() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { mmap_reads: true, ..large_options(ReclaimMode::Auto, false) };
    options.families.get_mut("default").unwrap().blob_compression = Compression::None;
    let db = Db::open(dir.path(), options).unwrap();
    let write = |round: u32, step: usize| {
        (0..60).step_by(step).for_each(|n| db.put(key(n), large_value(n, round)).unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    };
    write(0, 1);
    let held: Vec<_> = (0..60).map(|n| db.get(key(n)).unwrap().unwrap()).collect();
    write(1, 2);
    assert!(db.stats().punches > 0, "a pass looked for holes");
    assert!(held.iter().enumerate().all(|(n, value)| *value == large_value(n as u32, 0)), "what is held stays");
    assert_eq!(db.stats().punched_bytes, 0);
    drop(held);
    write(2, 3);
    assert!(db.stats().punched_bytes > 100_000, "is this a file system without holes? set TMPDIR to one that has them");
    for n in 0..60 {
        let round = if n % 3 == 0 { 2 } else { u32::from(n % 2 == 0) };
        assert_eq!(db.get(key(n)).unwrap().unwrap(), large_value(n, round));
    }
    assert_sound(&db, "with holes");
}
