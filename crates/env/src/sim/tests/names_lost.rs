//! D2, D3, D5, D6, S3, S4: what becomes of names.

use super::*;

fn directory() -> &'static Path {
    Path::new("/store")
}

#[test]
fn a_file_without_a_durable_name_is_gone() {
    let disk = store();
    create(&disk, "a", b"x").sync().unwrap();
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), [""; 0]);
    assert_eq!(outcomes(&disk, names), [vec![], vec!["a".to_owned()]]);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), [""; 0], "only its own directory counts");
    disk.sync_dir(directory()).unwrap();
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), ["a"]);
}

#[test]
fn everything_below_a_directory_without_a_durable_name_is_gone() {
    let disk = SimDisk::new();
    disk.create_dir_all(directory()).unwrap();
    create_durable(&disk, "a", b"x");
    assert_eq!(disk.after_power_loss(Survivors::Nothing).paths(), [""; 0].map(PathBuf::from));
    assert_eq!(disk.after_power_loss(Survivors::Everything).paths(), [path("a")]);
}

#[test]
fn a_file_whose_removal_is_not_durable_comes_back() {
    let disk = store();
    create_durable(&disk, "a", b"x");
    disk.remove(&path("a")).unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a").unwrap(), b"x");
    assert_eq!(outcomes(&disk, names), [vec![], vec!["a".to_owned()]]);
    disk.sync_dir(directory()).unwrap();
    assert_eq!(after(&disk, Survivors::Nothing, "a"), None);
}

#[test]
fn a_rename_is_old_or_new() {
    let disk = store();
    create_durable(&disk, "CURRENT", b"1");
    create_durable(&disk, "tmp", b"2");
    disk.rename(&path("tmp"), &path("CURRENT")).unwrap();
    let look = |disk: &SimDisk| (names(disk), disk.file_bytes(&path("CURRENT")).unwrap());
    let old = (vec!["CURRENT".to_owned(), "tmp".to_owned()], b"1".to_vec());
    let new = (vec!["CURRENT".to_owned()], b"2".to_vec());
    assert_eq!(outcomes(&disk, look), [new.clone(), old]);
    disk.sync_dir(directory()).unwrap();
    assert_eq!(outcomes(&disk, look), [new]);
}

#[test]
fn a_rename_between_directories_is_one_change() {
    for synced in ["/store", "/other"] {
        let disk = store();
        disk.create_dir_all(Path::new("/other")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        create_durable(&disk, "a", b"x");
        disk.rename(&path("a"), Path::new("/other/a")).unwrap();
        assert_eq!(outcomes(&disk, SimDisk::paths), [vec![PathBuf::from("/other/a")], vec![path("a")]]);
        disk.sync_dir(Path::new(synced)).unwrap();
        assert_eq!(outcomes(&disk, SimDisk::paths), [vec![PathBuf::from("/other/a")]]);
    }
}

#[test]
fn a_synced_rename_takes_the_earlier_changes_of_its_names_with_it() {
    let disk = store();
    disk.create_dir_all(Path::new("/other")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    create_durable(&disk, "a", b"moved");
    disk.create(Path::new("/other/a")).unwrap();
    disk.rename(&path("a"), Path::new("/other/a")).unwrap();
    disk.sync_dir(Path::new("/store")).unwrap();
    disk.sync_dir(Path::new("/other")).unwrap();
    let left = disk.after_power_loss(Survivors::Nothing);
    assert_eq!(left.file_bytes(Path::new("/other/a")).unwrap(), b"moved");
}

#[test]
fn what_nothing_leads_to_is_forgotten() {
    let disk = store();
    let nodes = |disk: &SimDisk| disk.shared.disk.lock().tree.nodes.len();
    let before = nodes(&disk);
    drop(create_durable(&disk, "a", b"x"));
    disk.create_dir_all(&path("dir")).unwrap();
    disk.remove(&path("a")).unwrap();
    disk.remove_dir(&path("dir")).unwrap();
    assert_eq!(nodes(&disk), before + 2, "both may come back");
    disk.sync_dir(directory()).unwrap();
    assert_eq!(nodes(&disk), before);
}

#[test]
fn no_chain_of_renames_loses_a_durable_file() {
    let disk = store();
    create_durable(&disk, "a", b"1");
    create_durable(&disk, "c", b"2");
    disk.rename(&path("a"), &path("b")).unwrap();
    disk.rename(&path("c"), &path("a")).unwrap();
    let look = |disk: &SimDisk| disk.paths().iter().map(|path| disk.file_bytes(path).unwrap()).collect::<Vec<_>>();
    for mut found in outcomes(&disk, look) {
        found.sort();
        assert_eq!(found, [b"1", b"2"]);
    }
}

#[test]
fn changes_of_different_names_survive_independently() {
    let disk = store();
    create(&disk, "a", b"");
    create(&disk, "b", b"");
    assert_eq!(outcomes(&disk, names).len(), 4);
}

#[test]
fn links_share_what_is_durable() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    disk.link(&path("a"), &path("b")).unwrap();
    disk.sync_dir(directory()).unwrap();
    file.append(&[b"y"]).unwrap();
    file.sync().unwrap();
    disk.remove(&path("a")).unwrap();
    let left = disk.after_power_loss(Survivors::Nothing);
    assert_eq!(
        (left.file_bytes(&path("a")).unwrap(), left.file_bytes(&path("b")).unwrap()),
        (b"xy".to_vec(), b"xy".to_vec())
    );
    assert_eq!(left.metadata(&path("b")).unwrap().links, 2);
}

#[test]
fn a_failed_sync_of_a_directory_leaves_the_names_pending() {
    let disk = store();
    create(&disk, "a", b"");
    disk.fail_at(disk.op_count(), Fault::Eio);
    assert!(disk.sync_dir(directory()).is_err());
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), [""; 0]);
    disk.sync_dir(directory()).unwrap();
    assert_eq!(names(&disk.after_power_loss(Survivors::Nothing)), ["a"]);
}

#[test]
fn the_death_of_a_process_loses_only_locks_and_handles() {
    let disk = store();
    create(&disk, "a", b"unsynced");
    let orphan = create(&disk, "orphan", &[0; 5000]);
    disk.remove(&path("orphan")).unwrap();
    let lock = disk.lock(&path("LOCK")).unwrap();
    assert_eq!(kind(disk.clone().lock(&path("LOCK"))), std::io::ErrorKind::WouldBlock);
    let next = disk.after_process_death();
    assert_eq!(next.file_bytes(&path("a")).unwrap(), b"unsynced");
    assert_eq!(next.space(directory()).unwrap().available, (1 << 40) - 4096);
    let theirs = next.lock(&path("LOCK")).unwrap();
    assert_eq!(names(&next.after_power_loss(Survivors::Nothing)), [""; 0], "unsynced stays unsynced");
    drop((orphan, lock, theirs));
}

#[test]
fn a_crashed_disk_is_another_disk() {
    let disk = store();
    let file = create_durable(&disk, "a", b"x");
    let left = disk.after_power_loss(Survivors::Everything);
    file.append(&[b"y"]).unwrap();
    create(&left, "b", b"");
    assert_eq!(left.file_bytes(&path("a")).unwrap(), b"x");
    assert_eq!(names(&disk), ["a"]);
    assert_eq!(names(&left), ["a", "b"]);
    assert_eq!(left.after_power_loss(Survivors::Nothing).file_bytes(&path("a")).unwrap(), b"x");
}

#[test]
fn the_same_seed_leaves_the_same_disk() {
    let disk = store();
    for name in ["a", "b", "c", "d"] {
        create(&disk, name, &[1; 3000]);
    }
    let image = |seed| {
        let left = disk.after_power_loss(Survivors::Sample { seed });
        left.paths().into_iter().map(|path| (left.file_bytes(&path), path)).collect::<Vec<_>>()
    };
    assert!((0..20).all(|seed| image(seed) == image(seed)));
    assert!((1..20).any(|seed| image(seed) != image(0)));
}
