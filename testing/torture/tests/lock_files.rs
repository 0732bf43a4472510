//! The workspaces beside this one, which nothing of `cargo test --workspace` builds.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::Path;

/// What a manifest asks for, but for tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut is_within = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_within = line == "[dependencies]";
        } else if is_within && let Some((name, _)) = line.split_once([' ', '.', '=']) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// What a lock file says of a package; `None` if it has none of that name.
fn locked(lock: &str, package: &str) -> Option<BTreeSet<String>> {
    let begin = format!("name = \"{package}\"\n");
    let of = lock.split("[[package]]\n").find(|of| of.starts_with(&begin))?;
    let (_, list) = of.split_once("dependencies = [")?;
    // Perhaps with a version behind the name.
    let names = list.split('"').skip(1).step_by(2).filter_map(|entry| entry.split(' ').next());
    Some(names.map(str::to_owned).collect())
}

/// Goal: a dependency that comes to a crate comes to the lock files of those that build it elsewhere: else they are not built of what was tried.
#[test]
fn lock_files_of_other_workspaces_have_what_the_crates_ask_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut looked = 0;
    for workspace in ["bench", "fuzz"] {
        let lock = read_to_string(root.join(workspace).join("Cargo.lock")).unwrap();
        for entry in std::fs::read_dir(root.join("crates")).unwrap() {
            let dir = entry.unwrap().path();
            let manifest = read_to_string(dir.join("Cargo.toml")).unwrap();
            let name = manifest.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            let Some(locked) = locked(&lock, name) else { continue };
            let missing: Vec<_> = dependencies(&manifest).into_iter().filter(|name| !locked.contains(name)).collect();
            assert!(missing.is_empty(), "{workspace}/Cargo.lock: {name} without {missing:?}; run cargo metadata there");
            looked += 1;
        }
    }
    assert!(looked >= 8, "{looked} packages were looked at");
}
