//! What is lost, rotten or cut in the manifest.

use std::path::PathBuf;

use esker::{AsideReason, PutAside};
use esker_torture::seeds;

use super::{Scene, ends_of_edits, is_manifest, scene_contents};

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
            expected.families.entry("second".to_owned()).or_default();
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("second".to_owned(), nameless);
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
            expected.families.entry("second".to_owned()).or_default();
            let mut found = scene_contents(&scene, &disk, &what);
            if let Some(nameless) = found.families.remove("repaired-1") {
                found.families.insert("second".to_owned(), nameless);
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
