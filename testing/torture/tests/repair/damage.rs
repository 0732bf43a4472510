//! A bit of any file, or all of it, and none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker::env::FileSystem;
use esker::{AsideReason, Db, ErrorKind, Options};
use esker_torture::crash::{Replay, Tally};
use esker_torture::seeds;

use super::{Scene, assert_nothing_is_thrown_away, has_lost, is_manifest, open, scene_contents};

const FILE: &str = "repair::damage";

/// Goal: a repair of a store without damage changes no answer, whether it was closed or its process died; nor does the next.
#[test]
fn a_store_without_damage_stays_what_it_is() {
    for seed in seeds(24) {
        let is_closed = seed % 2 == 0;
        let scene = Scene::new(seed, 120, is_closed);
        let disk = scene.again();
        for round in ["first", "reversed"] {
            let what = format!("seed {seed}, {round}");
            let before = disk.after_process_death();
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.had_manifest && !has_lost(&report), "{what}: {report:?}");
            assert!(report.put_aside.iter().all(|file| file.reason != AsideReason::Damaged), "{what}: {report:?}");
            assert_nothing_is_thrown_away(&before, &scene.files(), &disk, &what);
            assert!(scene.found(&disk, &what) == scene.expected, "{what}");
        }
    }
}

/// Goal: one flipped bit anywhere, in any file: the repaired store opens and is sound, nothing in it was made up, and if anything is not as
/// it was, the report says that something was lost. What CURRENT, manifest, OPTIONS and IDENTITY say is not needed.
#[test]
fn any_flipped_bit_is_mended_or_told() {
    let test = "any_flipped_bit_is_mended_or_told";
    let tally = Tally::new(test);
    let mut salvaged = BTreeMap::new();
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let scene = Scene::with_ingests(200 + seed, 60, seed % 2 == 0, if seed % 3 == 0 { 3 } else { 0 });
        for path in scene.files() {
            let bits = scene.disk.file_bytes(&path).unwrap().len() as u64 * 8;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_data = [".sst", ".blob", ".log"].iter().any(|end| name.ends_with(end));
            // Some places of each file, others with each seed, and its last bytes.
            let step = (bits / 23).max(1);
            for bit in (seed * 37 % step..bits).step_by(usize::try_from(step).unwrap()).chain(bits.checked_sub(9)) {
                let what = format!("{replay}: bit {bit} of {name} flipped");
                let disk = scene.again();
                // What was preallocated and never written is not on the device.
                if !disk.flip_bit(&path, bit) {
                    continue;
                }
                tally.fault();
                let before = disk.after_process_death();
                // A bit makes nothing look like what only a later version writes.
                let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_nothing_is_thrown_away(&before, &scene.files(), &disk, &what);
                let mut found = scene_contents(&scene, &disk, &what);
                if let Some(nameless) = found.families.remove("repaired-1") {
                    found.families.insert("reversed".to_owned(), nameless);
                }
                for (family, pairs) in &found.families {
                    for (key, value) in pairs {
                        assert!(
                            scene.may_be(family, key, value),
                            "{what}: {family} has a value of {key:?} that nobody wrote"
                        );
                    }
                }
                if found == scene.expected {
                    continue;
                }
                // Without a manifest, a log that is there still may bring back what was deleted past the logs.
                let mut without_those = found.clone();
                let comes_back = |key: &Vec<u8>| scene.deleted_past_logs.contains(key) && !scene.has("default", key);
                if let Some(default) = without_those.families.get_mut("default") {
                    default.retain(|key, _| !comes_back(key));
                }
                if is_manifest(&path) && without_those == scene.expected {
                    continue;
                }
                // But that only a manifest knows of which family a table from outside is.
                assert!(
                    is_data || (is_manifest(&path) && report.lost_tables > 0),
                    "{what}: nothing of it is data, yet answers changed"
                );
                assert!(has_lost(&report), "{what}: answers changed, and nothing is said: {report:?}");
                let kept: usize = found.families.values().map(BTreeMap::len).sum();
                let kind = name.rsplit('.').next().unwrap_or_default().to_owned();
                let most: &mut usize = salvaged.entry(kind).or_default();
                *most = (*most).max(kept);
            }
        }
    }
    assert!(salvaged.values().all(|&kept| kept > 0), "of some kind of file nothing was ever kept: {salvaged:?}");
}

/// Goal: without a manifest, a check tells of all that a repair will lose, be it in tables, in logs, or in what these point to.
#[test]
fn a_check_without_a_manifest_promises_no_more_than_a_repair_gets() {
    let (mut promised, mut lost) = (0, 0);
    for seed in seeds(12) {
        let scene = Scene::new(700 + seed, 80, seed % 4 == 0);
        let is_data = |path: &&PathBuf| {
            path.extension().and_then(|of| of.to_str()).is_some_and(|of| ["sst", "blob", "log"].contains(&of))
        };
        let files = scene.files();
        let data = files.iter().filter(is_data).map(Some);
        for path in data.chain([None]) {
            let disk = scene.again();
            for path in files.iter().filter(|path| is_manifest(path)) {
                disk.remove(path).unwrap();
            }
            disk.remove("/store/CURRENT".as_ref()).unwrap();
            let what = format!("seed {seed}, half of {path:?} is gone");
            if let Some(path) = path {
                let bytes = disk.file_bytes(path).unwrap();
                disk.overwrite(path, bytes[..bytes.len() / 2].to_vec());
            }
            let check = Db::check_store_with_env("/store", scene.options.clone(), disk.env(), &mut |_| {}).unwrap();
            let without = check.without_current.as_ref().unwrap();
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let has_lost = report.lost_tables + report.lost_blocks + report.lost_values + report.lost_log_bytes > 0;
            assert!(!(has_lost && without.has_lost_nothing()), "{what}: {without:?}, but {report:?}");
            promised += u32::from(without.has_lost_nothing());
            lost += u32::from(has_lost);
        }
    }
    assert!(promised > 20 && lost > 20, "{promised} {lost}");
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|of| of == "sst")
}

/// Goal: any file may be missing.
#[test]
fn a_missing_file_costs_what_was_in_it() {
    for seed in seeds(8) {
        let scene = Scene::new(300 + seed, 80, seed % 2 == 0);
        for path in scene.files() {
            let what = format!("seed {seed}: without {}", path.display());
            let disk = scene.again();
            disk.env().files.remove(&path).unwrap();
            let report = match scene.repair(&disk) {
                // The only one: it may lie elsewhere.
                Err(error) if error.kind() == ErrorKind::NotFound && is_table(&path) => {
                    assert!(!scene.files().iter().any(|other| is_table(other) && *other != path), "{what}: {error}");
                    continue;
                }
                repaired => repaired.unwrap_or_else(|error| panic!("{what}: {error}")),
            };
            let found = scene_contents(&scene, &disk, &what);
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".sst") || name.ends_with(".blob") {
                assert!(found == scene.expected || has_lost(&report), "{what}: nothing is said: {report:?}");
            } else if !name.ends_with(".log") && !name.starts_with("MANIFEST") {
                assert!(found == scene.expected, "{what}");
            }
        }
    }
}

/// Goal: what is no store is not made one, and what somebody has open is left alone.
#[test]
fn only_a_store_that_nobody_has_open_is_repaired() {
    let scene = Scene::new(5, 20, true);
    let disk = scene.again();
    let db = open(&disk, &scene.options).unwrap();
    assert_eq!(scene.repair(&disk).unwrap_err().kind(), ErrorKind::Busy);
    db.close().unwrap();
    disk.env().files.create_dir_all("/empty".as_ref()).unwrap();
    for path in ["/empty", "/none"] {
        let before = disk.op_count();
        let error = Db::repair_with_env(path, Options::default(), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(disk.op_count(), before);
    }
}
