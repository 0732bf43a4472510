//! Tables under names that are not theirs: swapped, renamed, and those of other stores.

use std::path::{Path, PathBuf};

use esker::env::FileSystem;
use esker::env::sim::{SimDisk, Survivors};
use esker::{AsideReason, Db, DbRepair, Error, ErrorKind};
use esker_torture::seeds;
use fastrand::Rng;

use super::{Scene, assert_nothing_is_thrown_away, is_manifest, scene_contents};

fn tables(scene: &Scene) -> Vec<PathBuf> {
    scene.files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect()
}

/// An open refuses it, and a check tells of it.
fn assert_is_noticed(scene: &Scene, disk: &SimDisk, what: &str) {
    let error = Db::open_with_env("/store", scene.options.clone(), disk.env()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption, "{what}: {error}");
    let check = Db::check_store_with_env("/store", scene.options.clone(), disk.env(), &mut |_| {}).unwrap();
    // Of another length, or the same and another id.
    let is_told =
        |error: &Error| ["the manifest says", "by their ids"].iter().any(|part| error.to_string().contains(part));
    assert!(check.errors.iter().any(is_told), "{what}: {:?}", check.errors);
}

fn is_told(report: &DbRepair, path: &Path, part: &str) -> bool {
    report.damage.iter().any(|error| error.path() == Some(path) && error.to_string().contains(part))
}

/// Goal: tables whose names were changed among each other, or for one that no table has, are what they were: nothing is lost, whether a whole
/// manifest names them, or a part of one, or none.
#[test]
fn swapped_tables_are_found_where_they_are() {
    let (mut swapped, mut renamed) = (0, 0);
    for seed in seeds(12) {
        for manifest in ["whole", "rotten", "none"] {
            let what = format!("seed {seed}, manifest {manifest}");
            // Without a manifest, only its number says when a table was taken in.
            let ingests = usize::from(manifest == "whole");
            let (scene, mut random) = (Scene::with_ingests(2200 + seed, 150, true, ingests), Rng::with_seed(seed));
            let tables = tables(&scene);
            if tables.len() < 2 {
                continue;
            }
            let (disk, count) = (scene.again(), random.usize(2..=tables.len()));
            let bytes: Vec<Vec<u8>> = tables.iter().map(|path| disk.file_bytes(path).unwrap()).collect();
            for n in 0..count {
                disk.overwrite(&tables[n], bytes[(n + 1) % count].clone());
            }
            swapped += 1;
            if random.bool() {
                renamed += 1;
                disk.env().files.rename(&tables[0], "/store/000001.sst".as_ref()).unwrap();
            }
            assert_is_noticed(&scene, &disk, &what);
            for path in scene.files().iter().filter(|path| is_manifest(path)) {
                match manifest {
                    "whole" => {}
                    "rotten" => drop(disk.flip_bit(path, 8 * 60 + 3)),
                    _ => disk.remove(path).unwrap(),
                }
            }
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(report.had_manifest, manifest == "whole", "{what}");
            assert!(manifest != "whole" || is_told(&report, &tables[1], "it counts as that"), "{what}: {report:?}");
            assert_eq!(report.lost_tables + report.lost_blocks + report.lost_values, 0, "{what}: {report:?}");
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("reversed".to_owned(), nameless);
            }
            assert!(found == scene.expected, "{what}: {report:?}");
        }
    }
    assert!(swapped > 20 && renamed > 5, "hardly any store had two tables: {swapped}, {renamed}");
}

/// Goal: whoever has just copied tables under each other's names, and synced none, has them on the device once they are repaired.
#[test]
fn swapped_tables_are_durable_once_they_are_repaired() {
    let mut swapped = 0;
    for seed in seeds(8) {
        let scene = Scene::new(2500 + seed, 150, true);
        let [first, second, ..] = &tables(&scene)[..] else { continue };
        let disk = scene.again();
        let copies = [(first, second), (second, first)].map(|(to, from)| (to, disk.file_bytes(from).unwrap()));
        for (to, bytes) in &copies {
            disk.env().files.remove(to).unwrap();
            disk.env().files.create(to).unwrap().append(&[bytes]).unwrap();
        }
        let what = format!("seed {seed}");
        let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(report.lost_tables, 0, "{what}: {report:?}");
        assert!(scene.found(&disk.after_power_loss(Survivors::Nothing), &what) == scene.expected, "{what}");
        swapped += 1;
    }
    assert!(swapped > 4, "hardly any store had two tables");
}

/// Goal: a table that cannot say what it is any more, under the name of another that lies elsewhere, is not taken for that.
#[test]
fn a_damaged_table_is_not_what_another_says_that_it_is() {
    let mut lost = 0;
    for seed in seeds(8) {
        let scene = Scene::new(2400 + seed, 150, true);
        let [first, second, ..] = &tables(&scene)[..] else { continue };
        let [one, other] = [first, second].map(|path| scene.disk.file_bytes(path).unwrap());
        // Of the properties and what leads to them.
        for from_end in (1..500).step_by(31) {
            let (disk, what) = (scene.again(), format!("seed {seed}, {from_end} before the end"));
            let mut rotten = one.clone();
            let Some(at) = rotten.len().checked_sub(from_end) else { continue };
            rotten[at] ^= 1;
            disk.overwrite(first, other.clone());
            disk.overwrite(second, rotten);
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            lost += report.lost_tables;
            scene.found(&disk, &what);
        }
    }
    assert!(lost > 20, "hardly any table could not say what it is: {lost}");
}

/// Goal: a table that another has taken the place of is lost, and that is told; the other, be it of this store or of another, has no say in it and
/// is still there.
#[test]
fn a_table_in_the_place_of_another_is_put_aside() {
    let mut lost = 0;
    for seed in seeds(12) {
        let scene = Scene::with_ingests(2300 + seed, 150, true, 1);
        // One that had the very same life, but for what its values are.
        let other = Scene::with_ingests(2300 + seed + 50, 150, true, 1);
        let (own, others) = (tables(&scene), tables(&other));
        let (Some(victim), Some(stranger)) = (own.first(), others.first()) else { continue };
        let copied = own.last().filter(|last| *last != victim).map(|last| scene.disk.file_bytes(last).unwrap());
        let foreign = other.disk.file_bytes(stranger);
        for (kind, bytes) in [("copied", copied), ("foreign", foreign)] {
            let Some(bytes) = bytes else { continue };
            let (disk, what) = (scene.again(), format!("seed {seed}, {kind}"));
            disk.overwrite(victim, bytes);
            assert_is_noticed(&scene, &disk, &what);
            let before = disk.after_process_death();
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.had_manifest && report.lost_tables == 1, "{what}: {report:?}");
            assert!(is_told(&report, victim, "another table than the manifest names"), "{what}: {report:?}");
            let name = victim.file_name();
            let put_aside = report.put_aside.iter().find(|file| file.path.file_name() == name);
            assert!(put_aside.is_some_and(|file| file.reason == AsideReason::Unused), "{what}: {report:?}");
            assert_nothing_is_thrown_away(&before, &scene.files(), &disk, &what);
            scene.found(&disk, &what);
            lost += 1;
        }
    }
    assert!(lost > 12, "hardly any table was lost: {lost}");
}
