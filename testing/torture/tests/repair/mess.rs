//! Whatever becomes of the files of a store: check, open and repair end by themselves, show nothing that nobody wrote, and throw nothing away.

use std::path::{Path, PathBuf};

use esker::Db;
use esker::env::sim::SimDisk;
use esker_torture::each_seed;
use fastrand::Rng;

use super::{Scene, assert_nothing_is_thrown_away, has_lost, is_manifest, scene_contents};

/// Something that befalls the directory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mess {
    Swap,
    Rename,
    CopyOver,
    /// Another store's file takes the place of one.
    ForeignOver,
    /// … or is there besides.
    ForeignBesides,
    Cut,
    Append,
    Flip,
    Remove,
    RemoveRoot,
    /// Another store's manifest in the place of the own one.
    ForeignRoot,
}

const MESSES: [Mess; 11] = [
    Mess::ForeignRoot,
    Mess::Swap,
    Mess::Rename,
    Mess::CopyOver,
    Mess::Cut,
    Mess::Append,
    Mess::Flip,
    Mess::Remove,
    Mess::RemoveRoot,
    Mess::ForeignOver,
    Mess::ForeignBesides,
];

fn kind_of(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn with_kind(disk: &SimDisk, kind: &str) -> Vec<PathBuf> {
    let is_of_kind = |path: &PathBuf| path.starts_with("/store") && kind_of(path) == kind;
    disk.paths().into_iter().filter(is_of_kind).collect()
}

fn make(mess: Mess, random: &mut Rng, disk: &SimDisk, other: &Scene) -> Option<String> {
    // Of a log nothing says whose it is.
    let is_foreign = matches!(mess, Mess::ForeignOver | Mess::ForeignBesides);
    let kind = if is_foreign { ["sst", "blob"][random.usize(..2)] } else { ["sst", "blob", "log"][random.usize(..3)] };
    let (files, strangers) = (with_kind(disk, kind), with_kind(&other.disk, kind));
    let path = random.choice(&files)?.clone();
    let bytes = disk.file_bytes(&path)?;
    let free = Path::new("/store").join(format!("{:06}.{kind}", random.u32(1..2000)));
    let is_free = disk.file_bytes(&free).is_none();
    let mut what = format!("{mess:?} {}", path.display());
    match mess {
        Mess::Swap | Mess::CopyOver => {
            let to = random.choice(&files)?.clone();
            what = format!("{what} {}", to.display());
            if matches!(mess, Mess::Swap) {
                disk.overwrite(&path, disk.file_bytes(&to)?);
            }
            disk.overwrite(&to, bytes);
        }
        Mess::Rename if is_free => {
            what = format!("{what} {}", free.display());
            disk.env().files.rename(&path, &free).unwrap();
        }
        Mess::ForeignOver => disk.overwrite(&path, other.disk.file_bytes(random.choice(&strangers)?)?),
        Mess::ForeignBesides if is_free => {
            disk.overwrite(&free, other.disk.file_bytes(random.choice(&strangers)?)?);
        }
        Mess::Rename | Mess::ForeignBesides => return None,
        Mess::Cut => disk.overwrite(&path, bytes[..random.usize(..=bytes.len())].to_vec()),
        Mess::Append => {
            let more = vec![if random.bool() { 0 } else { random.u8(..) }; random.usize(1..5000)];
            disk.overwrite(&path, [bytes, more].concat());
        }
        Mess::Flip => drop(disk.flip_bit(&path, random.u64(..(bytes.len() as u64 * 8).max(1)))),
        Mess::Remove => disk.env().files.remove(&path).unwrap(),
        Mess::RemoveRoot => {
            let roots = disk.paths().into_iter().filter(|path| is_manifest(path) || path.ends_with("CURRENT"));
            let root = random.choice(roots.collect::<Vec<_>>())?;
            what = format!("{mess:?} {}", root.display());
            disk.env().files.remove(&root).unwrap();
        }
        Mess::ForeignRoot => {
            let root = disk.paths().into_iter().find(|path| is_manifest(path))?;
            let foreign = other.files().into_iter().find(|path| is_manifest(path))?;
            what = format!("{mess:?} {}", root.display());
            disk.overwrite(&root, other.disk.file_bytes(&foreign)?);
        }
    }
    Some(what)
}

/// Goal: whatever becomes of the files of a store, of all that is whole a repair makes a store again in which nothing was made up; what is gone is told, and every
/// byte that was there is there.
#[test]
fn of_any_mess_a_store_is_made_again() {
    each_seed(200, |seed| {
        let mut random = Rng::with_seed(seed);
        let scene = Scene::with_ingests(3000 + seed, 80, random.bool(), random.usize(..2));
        let other = Scene::new(30_000 + seed, 60, true);
        let disk = scene.again();
        let count = random.usize(1..=3);
        // With another store's manifest, and files of that, it would be that store.
        let left_out = if random.bool() { &MESSES[..1] } else { &MESSES[MESSES.len() - 2..] };
        let messes: Vec<Mess> = MESSES.into_iter().filter(|mess| !left_out.contains(mess)).collect();
        let mut one = || make(messes[random.usize(..messes.len())], &mut random, &disk, &other);
        let made: Vec<String> = (0..count).filter_map(|_| one()).collect();
        let what = format!("seed {seed}, {made:?}");
        // Neither panics, and none writes.
        let before = disk.after_process_death();
        let check = Db::check_store_with_env("/store", scene.options.clone(), disk.env(), &mut |_| {});
        let files: Vec<PathBuf> = disk.paths().into_iter().filter(|path| path.starts_with("/store")).collect();
        let report = match scene.repair(&disk) {
            Ok(report) => report,
            Err(error) => {
                for path in &files {
                    assert_eq!(before.file_bytes(path), disk.file_bytes(path), "{what}: {error}");
                }
                return;
            }
        };
        assert_nothing_is_thrown_away(&before, &files, &disk, &what);
        let is_of_known_order = scene.options.families["reversed"].comparator.name() == "leveldb.BytewiseComparator";
        if !report.had_manifest && !is_of_known_order {
            // Where no table says it either, nobody knows in which order the keys of a family are.
            return;
        }
        let mut found = scene_contents(&scene, &disk, &what);
        if let Some(nameless) = found.families.remove("repaired-1") {
            found.families.insert("reversed".to_owned(), nameless);
        }
        // Without a manifest, what lies there counts.
        let has_foreign = !report.had_manifest && made.iter().any(|made| made.starts_with("Foreign"));
        for (family, pairs) in found.families.iter().filter(|_| !has_foreign) {
            for (key, value) in pairs {
                assert!(scene.may_be(family, key, value), "{what}: {family} has a value of {key:?} that nobody wrote");
            }
        }
        // What a log lacks need not be told: a power loss takes that, too.
        let is_of_a_log = made.iter().any(|made| made.contains(".log"));
        if found != scene.expected && report.had_manifest && !is_of_a_log {
            assert!(has_lost(&report), "{what}: answers changed, and nothing is said: {report:?}");
            let is_damaged = check.as_ref().map_or(true, |check| !check.errors.is_empty());
            assert!(is_damaged, "{what}: a check finds nothing");
        }
    });
}
