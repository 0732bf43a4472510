//! What is lost, rotten or cut in the manifest.

use std::collections::BTreeSet;
use std::path::PathBuf;

use esker::env::FileSystem;
use esker::env::sim::SimDisk;
use esker::{AsideReason, Db, ErrorKind, PutAside};
use esker_torture::model::contents;
use esker_torture::seeds;

use super::{Scene, ends_of_edits, is_manifest, scene_contents, without_compactions};

/// Goal: without CURRENT, without any manifest, and with one that is cut or rotten, tables, blob files and logs make the same store.
#[test]
fn a_lost_manifest_is_made_again() {
    let (mut merged, mut from_logs) = (0, 0);
    for seed in seeds(24) {
        let scene = Scene::new(100 + seed, 150, seed % 3 > 0);
        let manifests: Vec<PathBuf> = scene.files().into_iter().filter(|path| is_manifest(path)).collect();
        for how in ["no CURRENT", "no manifest", "neither", "cut", "rotten"] {
            let what = format!("seed {seed}, {how}");
            let disk = scene.again();
            let files = disk.env().files;
            if how == "no CURRENT" || how == "neither" {
                files.remove("/store/CURRENT".as_ref()).unwrap();
            }
            for path in &manifests {
                let bytes = disk.file_bytes(path).unwrap();
                match how {
                    "no manifest" | "neither" => files.remove(path).unwrap(),
                    "cut" => disk.overwrite(path, bytes[..bytes.len() * 2 / 3].to_vec()),
                    "rotten" => {
                        disk.flip_bit(path, 8 * 60 + 3);
                    }
                    _ => {}
                }
            }
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            merged += report.rewritten_entries;
            from_logs += report.log_batches;
            assert_eq!(report.lost_blocks + report.lost_values + report.lost_log_bytes, 0, "{what}: {report:?}");
            let mut expected = scene.expected.clone();
            // Only the manifest knows a family without entries, or its name if that is nowhere else.
            expected.families.entry("reversed".to_owned()).or_default();
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("reversed".to_owned(), nameless);
            }
            assert!(found == expected, "{what}");
        }
    }
    assert!(merged > 0 && from_logs > 0, "nothing was merged, or came from a log: nothing was shown");
}

/// Goal: a manifest that lost its end between two edits reads well, and is not believed where the files know better. Where they do not (only
/// a flush of one family is lost, and what another one needs is there), what it does not know of is put aside, and that is told.
#[test]
fn a_manifest_that_ends_early_without_a_trace_is_not_believed() {
    let (mut cuts, mut believed) = (0, 0);
    for seed in seeds(8) {
        let scene = Scene::new(400 + seed, 150, true);
        let path = scene.files().into_iter().find(|path| is_manifest(path)).unwrap();
        let bytes = scene.again().file_bytes(&path).unwrap();
        for end in ends_of_edits(&bytes) {
            let disk = scene.again();
            disk.overwrite(&path, bytes[..end].to_vec());
            let what = format!("seed {seed}, {end} of {} bytes", bytes.len());
            let report = scene.repair(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut expected = scene.expected.clone();
            expected.families.entry("reversed".to_owned()).or_default();
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("reversed".to_owned(), nameless);
            }
            if found != expected {
                let is_kept = |file: &PutAside| {
                    file.reason == AsideReason::Unused && file.path.extension().is_some_and(|of| of == "sst")
                };
                assert!(report.put_aside.iter().any(is_kept), "{what}: {report:?}");
                believed += 1;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 5 && believed * 8 < cuts.max(16), "{believed} of {cuts}");
}

/// Goal: a manifest that was begun and not finished is not taken for a smaller store, wherever it ends.
#[test]
fn the_beginning_of_a_manifest_is_not_believed() {
    let (options, disk) = (without_compactions(), SimDisk::new());
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env());
    let manifest = |disk: &SimDisk| disk.paths().into_iter().find(|path| is_manifest(path)).unwrap();
    let db = open(&disk).unwrap();
    for name in ["default", "one", "two"] {
        let create = || db.create_column_family(name, options.families["default"].clone()).unwrap();
        let family = db.column_family(name).unwrap_or_else(create);
        db.put_cf(&family, "key", name, &Default::default()).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let (left, earlier) = (disk.after_process_death(), manifest(&disk));
    let db = open(&disk).unwrap();
    let expected = contents(&db).unwrap();
    db.close().unwrap();
    let path = manifest(&disk);
    let bytes = disk.file_bytes(&path).unwrap();
    let ends = ends_of_edits(&bytes);
    assert!(path > earlier && ends.len() > 6, "{ends:?}");
    for (&end, has_current) in ends.iter().flat_map(|end| [(end, false), (end, true)]) {
        let what = format!("{end} of {} bytes, current: {has_current}", bytes.len());
        let is_whole = end == ends[ends.len() - 1];
        let disk = left.after_process_death();
        disk.overwrite(&path, bytes[..end].to_vec());
        assert!(disk.flip_bit(&earlier, 8 * 12));
        disk.remove("/store/CURRENT".as_ref()).unwrap();
        if has_current {
            let name = path.file_name().unwrap().to_str().unwrap();
            disk.overwrite("/store/CURRENT".as_ref(), format!("{name}\n").into_bytes());
            let opened = open(&disk.after_process_death()).map(drop).map_err(|error| error.kind());
            assert_eq!(opened, if is_whole { Ok(()) } else { Err(ErrorKind::Corruption) }, "{what}");
        }
        let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
        assert_eq!(report.had_manifest, is_whole, "{what}: {report:?}");
        assert!(contents(&open(&disk).unwrap()).unwrap() == expected, "{what}: {report:?}");
    }
}

/// Goal: a family that was dropped while somebody read it, and then made again, is the new one, whichever edit is lost, or all of them.
#[test]
fn a_family_that_was_made_again_is_not_the_one_that_was_dropped() {
    let (options, disk) = (without_compactions(), SimDisk::new());
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let create = |value: &str| {
        let family = db.create_column_family("again", options.families["default"].clone()).unwrap();
        db.put_cf(&family, "key", value, &Default::default()).unwrap();
        db.flush().unwrap();
        family
    };
    let older = create("dropped");
    let reader = db.iter_cf(&older, &Default::default()).unwrap();
    db.drop_column_family(&older).unwrap();
    create("newer");
    let left = disk.after_process_death();
    drop((reader, db));
    let path = left.paths().into_iter().find(|path| is_manifest(path)).unwrap();
    let ends = ends_of_edits(&left.file_bytes(&path).unwrap());
    let is_drop = |bytes: &[u8]| bytes.windows(2).any(|pair| pair == [202, 1]);
    let mut unused = 0;
    for (at, end) in ends.iter().map(Some).chain([None]).enumerate() {
        let what = format!("edit {at} of {} is lost", ends.len());
        let disk = left.after_process_death();
        match end {
            Some(&end) => assert!(disk.flip_bit(&path, 8 * (end as u64 - 1))),
            None => disk.remove(&path).unwrap(),
        }
        let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
        assert!(!report.had_manifest, "{what}");
        let names: BTreeSet<&String> = report.families.iter().collect();
        assert_eq!(names.len(), report.families.len(), "{what}: {report:?}");
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let family = db.column_family("again").unwrap();
        let value = db.get_cf(&family, "key", &Default::default()).unwrap();
        assert_eq!(value.as_deref(), Some(&b"newer"[..]), "{what}: {report:?}");
        let is_told = end.is_some_and(|end| !is_drop(edit_before(&left.file_bytes(&path).unwrap(), *end)));
        if is_told {
            assert_eq!(report.families, ["default", "again"], "{what}: {report:?}");
            assert!(report.put_aside.iter().any(|file| file.reason == AsideReason::Unused), "{what}: {report:?}");
            unused += 1;
        }
    }
    assert_eq!(unused, ends.len() - 1);
}

/// The record that ends there.
fn edit_before(manifest: &[u8], end: usize) -> &[u8] {
    let start = ends_of_edits(manifest).into_iter().rfind(|&other| other < end).unwrap_or(0);
    &manifest[start + 7..end]
}
