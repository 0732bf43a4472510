//! Which data file is which: what its head says, not its name, which somebody may have changed.
//!
//! - N1: a whole head whose number and salt are those of a file of the manifest says that it is this file. Without a manifest any whole head says
//!   what its file is.
//! - N2: of several that say the same, the one that has the name counts, else the one with the lowest.
//! - N3: who cannot be told like this goes by the name, unless another has the number: a head may be damaged. What is found in the file by the
//!   salt that the manifest knows has to bear it out, if there is a head that says something else.
//! - N4: one whose head says nothing that is known, and whose name its records do not bear out, is the file of the manifest, of those that nobody
//!   else is, whose salt does.
//! - N5: no rename goes to a name that is taken; a power loss keeps the changes of one name in their order. Where files have each other's names, one
//!   of them has a name for the time being that no file ever had. Whoever dies meanwhile loses nothing: the head still says to the next
//!   repair where it goes, and no open comes as far as to remove it, as a file that the manifest names is not there, or is another.

use std::collections::{BTreeMap, BTreeSet};

use esker_format::cask::FileNumber;
use esker_format::cask::data_file::DataFileHeader;
use esker_format::cask::manifest::Manifest;

use crate::Result;

/// A data file, by its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub(super) name: FileNumber,
    /// If it is whole.
    pub(super) head: Option<DataFileHeader>,
}

/// What a data file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The file of this number.
    Is(FileNumber),
    /// Another store's, or another of a number that one has.
    Stranger,
    /// Nothing says what it is.
    Unknown,
    /// One that the manifest had named once, or a number that it had given to a file that was never finished.
    Dropped,
}

/// What each of `files` is, in their order, which is that of their names.
pub(super) fn roles(files: &[Named], known: Option<&Manifest>) -> Vec<Role> {
    let is_known = |number, salt: Option<u32>| {
        let mut known = known.iter().flat_map(|known| &known.files);
        known.any(|file| file.number == number && salt.is_none_or(|salt| salt == file.salt))
    };
    let told = |file: &Named| file.head.filter(|head| known.is_none() || is_known(head.number, Some(head.salt)));
    // The number that the file is, and its name.
    let mut owners = BTreeMap::new();
    for has_name in [true, false] {
        for file in files {
            if let Some(head) = told(file).filter(|head| (head.number == file.name) == has_name) {
                owners.entry(head.number).or_insert(file.name);
            }
        }
    }
    let fits = |file: &Named| file.head.is_none_or(|head| head.number == file.name);
    let is_new = |file: &Named| known.is_none_or(|known| file.name.get() >= known.next_file) && fits(file);
    for file in files {
        if !owners.values().any(|name| *name == file.name) && (is_known(file.name, None) || is_new(file)) {
            owners.entry(file.name).or_insert(file.name);
        }
    }
    let numbers: BTreeMap<_, _> = owners.into_iter().map(|(number, name)| (name, number)).collect();
    let role = |file: &Named| match (numbers.get(&file.name), file.head) {
        (Some(number), _) => Role::Is(*number),
        (None, None) => Role::Unknown,
        // P2.
        (None, Some(head)) if known.is_some() && head.number == file.name && !is_known(file.name, None) => {
            Role::Dropped
        }
        (None, Some(_)) => Role::Stranger,
    };
    files.iter().map(role).collect()
}

/// Looks for the records of files that have neither head nor name under the salts of those that are missing (N4). `bears_out` says whether a
/// file has records of a salt.
///
/// Cost: of each such file, one search through it for each file that is missing.
pub(super) fn find_by_records(
    files: &[Named],
    roles: &mut [Role],
    known: &Manifest,
    bears_out: impl Fn(Named, u32) -> Result<bool>,
) -> Result<()> {
    let mut missing: BTreeMap<_, _> = known.files.iter().map(|file| (file.number, file.salt)).collect();
    let mut stray = Vec::new();
    for (file, role) in files.iter().zip(&mut *roles) {
        let is_stray = match *role {
            Role::Is(number) => {
                let salt = known.files.iter().find(|file| file.number == number).map(|file| file.salt);
                let is_told =
                    file.head.is_some_and(|head| salt.is_none_or(|salt| (number, salt) == (head.number, head.salt)));
                !is_told && !salt.map(|salt| bears_out(*file, salt)).transpose()?.unwrap_or(false)
            }
            Role::Stranger | Role::Unknown => true,
            Role::Dropped => false,
        };
        match *role {
            _ if is_stray => stray.push((*file, role)),
            Role::Is(number) => drop(missing.remove(&number)),
            _ => {}
        }
    }
    let (mut unfound, mut found_numbers) = (Vec::new(), BTreeSet::new());
    for (file, role) in stray {
        let mut found = None;
        for (number, salt) in &missing {
            if found.is_none() && bears_out(file, *salt)? {
                found = Some(*number);
            }
        }
        match found {
            Some(number) => {
                missing.remove(&number);
                found_numbers.insert(number);
                *role = Role::Is(number);
            }
            None => unfound.push((file, role)),
        }
    }
    for (file, role) in unfound {
        *role = match *role {
            Role::Is(_) if file.head.is_some() => Role::Stranger,
            // What its name says counts, unless another turned out to be that.
            Role::Is(number) if found_numbers.contains(&number) => Role::Unknown,
            role => role,
        };
    }
    Ok(())
}

/// The order in which files get their names (N5), for those that have another's: from which to which. `spare` gives names that no file ever had.
pub(super) fn renames(
    mut misplaced: BTreeMap<FileNumber, FileNumber>,
    mut spare: impl FnMut() -> Result<FileNumber>,
) -> Result<Vec<(FileNumber, FileNumber)>> {
    let mut steps = Vec::new();
    while let Some((&first, &first_to)) = misplaced.first_key_value() {
        let free = misplaced.iter().find(|(_, to)| !misplaced.contains_key(to));
        if let Some((&from, &to)) = free {
            misplaced.remove(&from);
            steps.push((from, to));
        } else {
            let between = spare()?;
            misplaced.remove(&first);
            misplaced.insert(between, first_to);
            steps.push((first, between));
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    use esker_format::cask::manifest::{File, FileState};

    fn number(number: u32) -> FileNumber {
        FileNumber::new(number).unwrap()
    }

    /// A file of that name, with a head of that number and salt.
    fn file(name: u32, head: Option<(u32, u32)>) -> Named {
        let head = head.map(|(of, salt)| DataFileHeader { number: number(of), salt, clean_as_of: 0 });
        Named { name: number(name), head }
    }

    /// Files 3, 4 and 5 are named, with ten times their number as salt; numbers from 8 on were never given.
    fn manifest() -> Manifest {
        let state = FileState::Open { durable_bytes: 0 };
        let file = |of: u32| File { number: number(of), state, salt: of * 10, clean_as_of: 0 };
        let files = [3, 4, 5].map(file).to_vec();
        Manifest { store_id: [0; 16], keep_versions: 1, next_file: 8, next_version: 1, files }
    }

    fn is(of: u32) -> Role {
        Role::Is(number(of))
    }

    #[test]
    fn the_manifest_says_whose_head_counts() {
        use Role::{Dropped, Stranger, Unknown};
        for (files, expected) in [
            (vec![file(3, Some((4, 40))), file(4, Some((3, 30)))], vec![is(4), is(3)]),
            (vec![file(1, Some((3, 30))), file(9, Some((4, 40)))], vec![is(3), is(4)]),
            // Two of a number: the one with the name counts, else the lowest.
            (vec![file(1, Some((3, 30))), file(3, Some((3, 30)))], vec![Stranger, is(3)]),
            (vec![file(1, Some((3, 30))), file(9, Some((3, 30)))], vec![is(3), Stranger]),
            // What is left for a name is looked into, whatever its head says, unless that is another's.
            (vec![file(3, Some((3, 31))), file(4, None), file(5, Some((9, 1)))], vec![is(3), is(4), is(5)]),
            (vec![file(3, Some((3, 31))), file(6, Some((3, 30)))], vec![Stranger, is(3)]),
            (vec![file(3, None), file(6, Some((3, 30)))], vec![Unknown, is(3)]),
            (vec![file(3, Some((3, 30))), file(4, Some((3, 30)))], vec![is(3), is(4)]),
            // Numbers of no file of the manifest.
            (vec![file(6, Some((6, 60))), file(7, None)], vec![Dropped, Unknown]),
            (vec![file(6, Some((7, 70))), file(9, Some((10, 7)))], vec![Stranger, Stranger]),
            (vec![file(8, Some((8, 80))), file(9, None)], vec![is(8), is(9)]),
        ] {
            assert_eq!(roles(&files, Some(&manifest())), expected, "{files:?}");
        }
    }

    #[test]
    fn without_a_manifest_every_whole_head_counts() {
        use Role::{Stranger, Unknown};
        for (files, expected) in [
            (vec![file(3, Some((4, 1))), file(4, Some((3, 2)))], vec![is(4), is(3)]),
            (vec![file(3, Some((3, 1))), file(9, Some((3, 2)))], vec![is(3), Stranger]),
            (vec![file(8, Some((3, 1))), file(9, Some((3, 2)))], vec![is(3), Stranger]),
            (vec![file(3, None), file(4, None), file(9, Some((3, 2)))], vec![Unknown, is(4), is(3)]),
        ] {
            assert_eq!(roles(&files, None), expected, "{files:?}");
        }
    }

    /// Method: of each file it is said which salt its records have.
    #[test]
    fn a_file_without_a_head_is_found_by_its_salt() {
        use Role::{Stranger, Unknown};
        for (files, salts, expected) in [
            (vec![file(3, None), file(4, None)], vec![30, 40], vec![is(3), is(4)]),
            (vec![file(3, None), file(4, None)], vec![40, 30], vec![is(4), is(3)]),
            (vec![file(1, None), file(9, None)], vec![50, 30], vec![is(5), is(3)]),
            // None is borne out, or there is one already; then the name counts, if it is free.
            (vec![file(3, None), file(9, None)], vec![7, 7], vec![is(3), is(9)]),
            (vec![file(3, None), file(6, None)], vec![7, 30], vec![Unknown, is(3)]),
            (vec![file(1, None), file(3, Some((3, 30)))], vec![30, 30], vec![Unknown, is(3)]),
            (vec![file(1, None), file(2, None)], vec![30, 30], vec![is(3), Unknown]),
            // Heads that say what nobody knows, borne out or not.
            (vec![file(3, Some((3, 31))), file(4, Some((7, 70)))], vec![30, 70], vec![is(3), Stranger]),
            (vec![file(3, Some((3, 31))), file(9, None)], vec![31, 30], vec![Stranger, is(3)]),
            (vec![file(6, Some((7, 70))), file(7, None)], vec![30, 40], vec![is(3), is(4)]),
            // What a head says is not asked for again.
            (vec![file(3, Some((3, 30))), file(8, Some((8, 80)))], vec![40, 50], vec![is(3), is(8)]),
        ] {
            let mut found = roles(&files, Some(&manifest()));
            let salts: BTreeMap<_, _> = files.iter().map(|file| file.name).zip(salts).collect();
            find_by_records(&files, &mut found, &manifest(), |file, salt| Ok(salts[&file.name] == salt)).unwrap();
            assert_eq!(found, expected, "{files:?}");
        }
    }

    /// Goal: however names are mixed up, each file gets its own, and none takes one that another still has.
    #[test]
    fn no_rename_goes_to_a_name_that_is_taken() {
        for moves in [
            vec![(1, 2), (2, 1)],
            vec![(1, 2), (2, 3), (3, 4)],
            vec![(4, 3), (3, 2), (2, 1)],
            vec![(1, 2), (2, 3), (3, 1), (5, 6), (6, 5), (9, 4)],
        ] {
            let mut names: BTreeMap<u32, u32> = moves.iter().copied().collect();
            let misplaced = moves.iter().map(|&(from, to)| (number(from), number(to))).collect();
            let mut spares = 100..;
            for (from, to) in renames(misplaced, || Ok(number(spares.next().unwrap()))).unwrap() {
                let file = names.remove(&from.get()).unwrap();
                assert_eq!(names.insert(to.get(), file), None, "{moves:?}");
            }
            assert!(names.iter().all(|(name, file)| name == file), "{moves:?}: {names:?}");
        }
    }
}
