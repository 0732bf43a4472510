//! Repairs that die, or fail, and what is durable when one ends.

use std::path::{Path, PathBuf};

use esker::env::FileSystem;
use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{Db, ErrorKind, FamilyOptions, Options, Separation};
use esker_torture::crash::{FAULTS, Replay, Tally, images, kill, power_losses};
use esker_torture::model::contents;
use esker_torture::seeds;

use super::{Scene, assert_nothing_is_thrown_away, ends_of_edits, open, scene_contents};

const FILE: &str = "repair::deaths";

/// Stores in need of repair, by what happened to them.
fn wrecks(seed: u64) -> Vec<(&'static str, Scene)> {
    ["intact", "no manifest", "damaged"].into_iter().map(|how| (how, wreck(seed, how))).collect()
}

fn wreck(seed: u64, how: &str) -> Scene {
    let scene = Scene::new(400 + seed, 50, true);
    let files = scene.disk.env().files;
    match how {
        "damaged copy" => become_a_copy(&scene),
        "a table is missing" => lose_a_table(&scene),
        _ => {}
    }
    for path in scene.files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match how {
            "no manifest" if name.starts_with("MANIFEST") || name == "CURRENT" => files.remove(&path).unwrap(),
            "damaged" | "damaged copy" if name.ends_with(".sst") || name.ends_with(".blob") => {
                scene.disk.flip_bit(&path, 8 * 45);
            }
            _ => {}
        }
    }
    files.sync_dir("/store".as_ref()).unwrap();
    scene
}

/// Puts a checkpoint of the store into its place.
fn become_a_copy(scene: &Scene) {
    let (disk, files) = (&scene.disk, scene.disk.env().files);
    let db = open(disk, &scene.options).unwrap();
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    for path in disk.paths().into_iter().filter(|path| path.starts_with("/store")) {
        files.remove(&path).unwrap();
    }
    for path in disk.paths().into_iter().filter(|path| path.starts_with("/copy")) {
        files.rename(&path, &Path::new("/store").join(path.file_name().unwrap())).unwrap();
    }
}

/// Removes one of several tables; there is a log, too, of which a repair makes one.
fn lose_a_table(scene: &Scene) {
    let db = open(&scene.disk, &scene.options).unwrap();
    for key in ["one", "two"] {
        db.put(key, "value").unwrap();
        db.flush().unwrap();
    }
    db.put("three", "value").unwrap();
    db.close().unwrap();
    let tables: Vec<PathBuf> =
        scene.files().into_iter().filter(|path| path.extension() == Some("sst".as_ref())).collect();
    assert!(tables.len() > 1, "{tables:?}");
    scene.disk.env().files.remove(&tables[0]).unwrap();
}

/// Goal: a repair may die at each of its operations. Until it is run again the store is what it was or does not open; then it is what it would have
/// become, and nothing was thrown away on the way.
#[test]
fn a_repair_that_dies_can_be_run_again() {
    let test = "a_repair_that_dies_can_be_run_again";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let others = ["damaged copy", "a table is missing"].into_iter().filter(|_| seed == 0);
        for (how, scene) in wrecks(seed).into_iter().chain(others.map(|how| (how, wreck(seed, how)))) {
            let healthy = scene.again();
            let first = healthy.op_count();
            scene.repair(&healthy).unwrap();
            let ops = healthy.op_count();
            let expected = scene_contents(&scene, &healthy, how);
            for n in first..ops {
                let disk = scene.again();
                kill(&disk, n);
                assert!(scene.repair(&disk).is_err());
                for image in images(&disk, n) {
                    let replay = Replay { file: FILE, test, seed };
                    let what = format!("{replay}: {how}, died at {n} in {first}..{ops}, {}", image.name);
                    tally.image();
                    let looked_at = image.disk.after_process_death();
                    if how == "intact"
                        && let Ok(db) = open(&looked_at, &scene.options)
                    {
                        assert!(contents(&db).unwrap() == scene.expected, "{what}: it opens as something else");
                    }
                    let again = scene.repair(&image.disk);
                    let again = again.unwrap_or_else(|error| panic!("{what}, run again: {error}"));
                    assert!(
                        again.had_manifest || how == "no manifest",
                        "{what}: the manifest is not believed any more"
                    );
                    assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &image.disk, &what);
                    assert!(scene_contents(&scene, &image.disk, &what) == expected, "{what}, run again");
                }
            }
        }
    }
}

/// Goal: so it is of one that dies more than once: what the first has left counts as little for the third as for the second.
#[test]
fn a_repair_that_dies_twice_can_be_run_again() {
    let how = "a table is missing";
    let scene = wreck(0, how);
    let healthy = scene.again();
    let first = healthy.op_count();
    scene.repair(&healthy).unwrap();
    let expected = scene_contents(&scene, &healthy, how);
    let ops = healthy.op_count();
    for (n, m) in (first..ops).step_by(3).flat_map(|n| (first..ops).step_by(4).map(move |m| (n, m))) {
        let what = format!("died at {n}, and at {m}");
        let disk = scene.again();
        disk.die_after(n);
        let _ = scene.repair(&disk);
        let left = disk.after_process_death();
        left.die_after(left.op_count() + m - first);
        let _ = scene.repair(&left);
        let left = left.after_process_death();
        let again = scene.repair(&left).unwrap_or_else(|error| panic!("{what}, run again: {error}"));
        assert!(again.had_manifest, "{what}: the manifest is not believed any more");
        assert!(scene_contents(&scene, &left, &what) == expected, "{what}, run again");
    }
}

/// Takes the mark away while `other` is at work, as a program that does not know it would see the store.
fn pass_over_the_mark(disk: &SimDisk, other: impl FnOnce()) {
    let mark = Path::new("/store/UNFINISHED-REPAIR");
    let bytes = disk.file_bytes(mark);
    bytes.iter().for_each(|_| disk.env().files.remove(mark).unwrap());
    other();
    bytes.into_iter().for_each(|bytes| disk.overwrite(mark, bytes));
}

/// Goal: RocksDB knows of no mark: what it writes after a repair died is the store's when that is run again, though it has numbers that the repair would
/// have given; also where it has lost its manifest since, or that has the very number that the repair's was to have.
#[test]
fn what_others_write_after_a_repair_died_is_kept() {
    let scene = wreck(0, "intact");
    let healthy = scene.again();
    let first = healthy.op_count();
    scene.repair(&healthy).unwrap();
    let cases = (first..healthy.op_count())
        .flat_map(|n| ["logged", "flushed", "its number", "no manifest"].map(|how| (n, how)));
    let mut met = 0;
    for (n, how) in cases {
        let what = format!("died at {n}, {how}");
        let disk = scene.again();
        disk.die_after(n);
        let _ = scene.repair(&disk);
        let left = disk.after_process_death();
        let Some(mark) = left.file_bytes("/store/UNFINISHED-REPAIR".as_ref()) else { continue };
        let mut expected = scene.expected.clone();
        pass_over_the_mark(&left, || {
            let db = open(&left, &scene.options).unwrap_or_else(|error| panic!("{what}: {error}"));
            for key in ["later", "latest"] {
                db.put(key, [b'x'; 2000]).unwrap();
                if how != "logged" {
                    db.flush().unwrap();
                }
            }
            db.put("last", "logged").unwrap();
            expected = contents(&db).unwrap();
            db.close().unwrap();
        });
        let files = left.env().files;
        let (current, marked) =
            (Path::new("/store/CURRENT"), Path::new("/store").join(std::str::from_utf8(&mark).unwrap()));
        let of_other = files.read(current).unwrap();
        let of_other = Path::new("/store").join(std::str::from_utf8(&of_other).unwrap().trim_end());
        match how {
            "its number" if of_other != marked => {
                files.rename(&of_other, &marked).unwrap();
                left.overwrite(current, [&mark[..], b"\n"].concat());
            }
            "no manifest" => [current, &of_other].iter().for_each(|path| files.remove(path).unwrap()),
            _ => {}
        }
        met += 1;
        scene.repair(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = scene_contents(&scene, &left, &what);
        for key in ["later", "latest", "last"].map(|key| key.as_bytes()) {
            assert!(found.families["default"].contains_key(key), "{what}: {} is lost", key.escape_ascii());
        }
        assert!(how == "no manifest" || found == expected, "{what}");
    }
    assert!(met > 0, "there never was a mark");
}

/// Goal: a repair that has only files left to move does not take a file that it cannot read for one that is not there.
#[test]
fn a_repair_that_is_run_again_tells_of_every_read_that_fails() {
    let scene = wreck(0, "intact");
    let healthy = scene.again();
    healthy.set_tracing(true);
    scene.repair(&healthy).unwrap();
    let trace = healthy.trace();
    let moved = trace.iter().find(|line| line.contains("rename") && line.contains("/lost/")).unwrap();
    let disk = scene.again();
    disk.die_after(moved.split(' ').next().unwrap().parse().unwrap());
    scene.repair(&disk).unwrap_err();
    let healthy = disk.after_process_death();
    scene.repair(&healthy).unwrap();
    for n in 0..healthy.read_count() {
        let again = disk.after_process_death();
        again.fail_read_at(n, ReadFault::Eio);
        assert!(scene.repair(&again).is_err(), "read {n} fails, and nobody says so");
        scene.repair(&again).unwrap();
        assert!(scene_contents(&scene, &again, "run again") == scene.expected);
    }
}

/// Goal: a repair that died while it moved files gets through though its own manifest is damaged: with what the one before needs, as long as
/// that is there, else with what its manifest names.
#[test]
fn a_repair_that_died_and_whose_manifest_is_damaged_can_be_run_again() {
    let mut met = 0;
    for (how, scene) in wrecks(0) {
        let healthy = scene.again();
        let first = healthy.op_count();
        scene.repair(&healthy).unwrap();
        let expected = scene_contents(&scene, &healthy, how);
        for n in first..healthy.op_count() {
            let disk = scene.again();
            disk.die_after(n);
            let _ = scene.repair(&disk);
            let left = disk.after_process_death();
            let read = |name: &str| left.file_bytes(&Path::new("/store").join(name));
            let (Some(mark), Some(current)) = (read("UNFINISHED-REPAIR"), read("CURRENT")) else { continue };
            if mark != current.trim_ascii_end() {
                continue;
            }
            met += 1;
            let manifest = Path::new("/store").join(std::str::from_utf8(&mark).unwrap());
            let ends = ends_of_edits(&left.file_bytes(&manifest).unwrap());
            let end = ends[n as usize % ends.len()];
            let what = format!("{how}, died at {n}, its manifest damaged before byte {end}");
            let disk = left.after_process_death();
            assert!(disk.flip_bit(&manifest, 8 * (end as u64 - 1)));
            scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &disk, &what);
            let mut found = scene_contents(&scene, &disk, &what);
            // Its name may have been in the edit that is lost.
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("reversed".to_owned(), nameless);
            }
            assert!(found == expected, "{what}");
        }
    }
    assert!(met > 0, "no repair died while it moved files");
}

/// Goal: a repair that made its manifest current, and perhaps not durably so, has not moved what the one before names until it is.
#[test]
fn a_repair_that_may_not_be_durable_is_not_built_upon() {
    let test = "a_repair_that_may_not_be_durable_is_not_built_upon";
    let tally = Tally::new(test);
    let current = |disk: &SimDisk| disk.file_bytes("/store/CURRENT".as_ref());
    let mut met = 0;
    for (how, scene) in seeds(4).flat_map(wrecks) {
        // A folder that is there need not be made, nor its name made durable.
        let files = scene.disk.env().files;
        files.create_dir_all("/store/lost".as_ref()).unwrap();
        ["/store/lost/one", "/store/lost/two"].iter().for_each(|path| drop(files.create(path.as_ref()).unwrap()));
        ["/store/lost", "/store"].iter().for_each(|path| files.sync_dir(path.as_ref()).unwrap());
        let healthy = scene.again();
        let first = healthy.op_count();
        scene.repair(&healthy).unwrap();
        let expected = scene_contents(&scene, &healthy, how);
        for n in first..healthy.op_count() {
            let disk = scene.again();
            disk.die_after(n);
            let _ = scene.repair(&disk);
            let left = disk.after_process_death();
            if current(&left) == current(&disk.after_power_loss(Survivors::Nothing)) {
                continue;
            }
            met += 1;
            let healthy = left.after_process_death();
            let begun = healthy.op_count();
            scene.repair(&healthy).unwrap();
            for m in begun..=healthy.op_count() {
                let disk = left.after_process_death();
                disk.die_after(m);
                let _ = scene.repair(&disk);
                for image in power_losses(&disk, m) {
                    let what = format!("{how}, died at {n}, and at {m}, {}", image.name);
                    tally.image();
                    scene.repair(&image.disk).unwrap_or_else(|error| panic!("{what}, run again: {error}"));
                    assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &image.disk, &what);
                    assert!(scene_contents(&scene, &image.disk, &what) == expected, "{what}");
                }
            }
        }
    }
    assert!(met > 0, "every CURRENT was durable at once");
}

/// Goal: whatever call fails, the repair can be run again.
#[test]
fn a_repair_that_fails_can_be_run_again() {
    let test = "a_repair_that_fails_can_be_run_again";
    let tally = Tally::new(test);
    for (how, scene) in wrecks(7) {
        let healthy = scene.again();
        let first = healthy.op_count();
        scene.repair(&healthy).unwrap();
        let ops = healthy.op_count();
        let expected = scene_contents(&scene, &healthy, how);
        for (n, fault) in (first..ops).flat_map(|n| FAULTS.map(|fault| (n, fault))) {
            let what = format!("{how}: operation {n} in {first}..{ops} fails with {fault:?}");
            tally.fault();
            let disk = scene.again();
            disk.fail_at(n, fault);
            if scene.repair(&disk).is_err() {
                scene.repair(&disk).unwrap_or_else(|error| panic!("{what}, run again: {error}"));
            }
            assert_nothing_is_thrown_away(&scene.disk, &scene.files(), &disk, &what);
            assert!(scene_contents(&scene, &disk, &what) == expected, "{what}");
        }
    }
}

/// Goal: between the new manifest and the last file that is moved, nobody opens the store: an open removes what it does not know.
#[test]
fn a_half_repaired_store_does_not_open() {
    let (_, scene) = wrecks(3).remove(1);
    let healthy = scene.again();
    healthy.set_tracing(true);
    let first = healthy.op_count();
    scene.repair(&healthy).unwrap();
    let trace = healthy.trace();
    let moved = trace.iter().position(|line| line.contains("rename") && line.contains("/lost/")).unwrap();
    let at: u64 = trace[moved].split(' ').next().unwrap().parse().unwrap();
    assert!(at > first);
    let disk = scene.again();
    disk.die_after(at);
    scene.repair(&disk).unwrap_err();
    let disk = disk.after_process_death();
    for read_only in [false, true] {
        let error = match read_only {
            true => Db::open_read_only_with_env("/store", scene.options.clone(), disk.env()).unwrap_err(),
            false => Db::open_with_env("/store", scene.options.clone(), disk.env()).unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains("repair"), "{error}");
    }
    scene.repair(&disk).unwrap();
    scene_contents(&scene, &disk, "run again");
}

/// Goal: what a repair keeps is durable when it ends, though who wrote it died before it had synced it, or was told that the sync failed.
/// Method: the owner dies at each of its syncs, or is told so; with its manifest and without; the power goes right after the repair.
#[test]
fn what_a_repair_keeps_survives_a_power_loss() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 200, ..FamilyOptions::default() };
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, ..family };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env());
    let life = |disk: &SimDisk| {
        let Ok(db) = open(disk) else { return };
        for n in 0..12u8 {
            // After a failure nothing is promised; what is there counts.
            let _ = db.put([n], vec![n; 1000]).and_then(|()| db.put([n, n], [n; 50]));
            let _ = if n % 4 == 3 { db.flush() } else { Ok(()) };
        }
        std::mem::forget(db);
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    life(&healthy);
    let trace = healthy.trace();
    let syncs = trace.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let syncs = syncs.filter(|words| words[1] == "sync" && (words[2].contains(".blob") || words[2].contains(".sst")));
    let syncs: Vec<u64> = syncs.map(|words| words[0].parse().unwrap()).collect();
    assert!(syncs.len() >= 6, "{trace:#?}");
    let cases = syncs.iter().flat_map(|n| [(n, false, false), (n, false, true), (n, true, false), (n, true, true)]);
    for (&n, is_told, has_manifest) in cases {
        let what = format!("operation {n}, told: {is_told}, manifest: {has_manifest}");
        let disk = SimDisk::new();
        if is_told {
            disk.fail_at(n, Fault::Eio)
        } else {
            disk.die_after(n)
        }
        life(&disk);
        let disk = disk.after_process_death();
        let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST") || path.ends_with("CURRENT");
        for path in disk.paths().iter().filter(|path| !has_manifest && is_manifest(path)) {
            disk.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), disk.env());
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((report.had_manifest, report.lost_values), (has_manifest, 0), "{what}: {report:?}");
        let expected = contents(&open(&disk.after_process_death()).unwrap()).unwrap();
        let sampled = (0..5).map(|seed| Survivors::Sample { seed });
        for survivors in sampled.chain([Survivors::Nothing]) {
            let left = open(&disk.after_power_loss(survivors));
            let db = left.unwrap_or_else(|error| panic!("{what}, {survivors:?}: {error}"));
            let check = db.check(&mut |_| {}).unwrap();
            assert!(check.errors.is_empty(), "{what}, {survivors:?}: {:?}", check.errors);
            assert!(contents(&db).unwrap() == expected, "{what}, {survivors:?}");
        }
    }
}
