//! `esker import STORE --files DIR`: walk, load, flush, read back.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use esker::{Error, ErrorKind};

use super::Import;
use super::ahead::{Stamp, read_ahead};
use super::loader::{Loaded, stopped};
use super::read_back::{ReadBack, read_back};
use super::summary::Summary;
use super::target::Target;
use super::tree::{Tree, refuse_own_files};
use crate::Answer;
use crate::failure::{Failure, warn};
use crate::output::Output;
use crate::progress::Progress;

/// Imports the regular files under `dir`.
pub(crate) fn import(command: &Import, dir: &Path, out: &mut Output) -> Result<Answer, Failure> {
    // A mistyped directory should not leave an empty store behind.
    std::fs::read_dir(dir).map_err(|error| Failure::io("reading", dir, &error))?;
    refuse_own_files(dir, &command.store)?;
    let target = command.open()?;
    let mut tree = Tree::walk(dir, &command.store)?;

    let begin = Instant::now();
    let (loaded, stamps) = load(command, &target, &mut tree)?;
    target.settle().map_err(|error| stopped(&error, loaded.entries))?;
    let load_time = begin.elapsed();

    let prefix = command.prefix.as_bytes();
    let check = if command.no_read_back { None } else { Some(read_back(&target, begin, prefix, &tree, &stamps)?) };
    let summary = Summary::new(loaded, load_time, &tree, target.close()?, check.as_ref());
    if command.json {
        out.json(&summary.object())?
    } else {
        summary.print(out)?
    }
    verdict(&tree, check.as_ref())
}

/// Writes what is read; what cannot be read joins the tree's problems. Stamps are those of the imported files.
fn load(command: &Import, target: &Target, tree: &mut Tree) -> Result<(Loaded, Vec<Option<Stamp>>), Failure> {
    let progress = Progress::begin("importing", tree.bytes);
    let mut problems = std::mem::take(&mut tree.problems);
    let mut stamps = vec![None; tree.len()];
    let mut loader = command.loader(target)?;
    let mut key = command.prefix.as_bytes().to_vec();
    let (prefix_bytes, files) = (key.len(), &*tree);
    let loaded = std::thread::scope(|scope| {
        for taken in read_ahead(scope, files) {
            // The permit stays: the next large file is not read while this one is on its way through the store.
            match taken.content {
                Ok(content) => {
                    key.truncate(prefix_bytes);
                    key.extend_from_slice(files.relative(taken.index));
                    let bytes = (key.len() + content.bytes.len()) as u64;
                    loader.make_room(bytes).map_err(|error| loader.stopped(&error))?;
                    let put = loader.put(&key, &content.bytes, None);
                    put.map_err(|error| loader.stopped(&of_file(error, &files.path(taken.index))))?;
                    if let Some(stamp) = stamps.get_mut(taken.index) {
                        *stamp = Some(content.stamp);
                    }
                    progress.advance(content.bytes.len() as u64);
                    drop(content);
                    loader.write_if_full().map_err(|error| loader.stopped(&error))?;
                }
                Err(error) => problems.note(&files.path(taken.index), &error),
            }
        }
        loader.finish()
    })?;
    tree.problems = problems;
    Ok((loaded, stamps))
}

/// The same error with the file whose key or content the store refuses, if it does.
fn of_file(error: Error, path: &Path) -> Error {
    match error.kind() {
        ErrorKind::InvalidArgument => error.while_doing(format_args!("importing {}", path.display())),
        _ => error,
    }
}

/// A difference weighs more than a file that could not be read, and both are told. The summary is all of the answer: with `--json`, an object.
fn verdict(tree: &Tree, check: Option<&ReadBack>) -> Result<Answer, Failure> {
    let problems = &tree.problems;
    let failure = problems.first.as_ref().map(|first| {
        let others = problems.count - 1;
        let others = if others > 0 { format!("; and {others} more") } else { String::new() };
        Failure::new(format_args!("{first}{others}; everything else is imported"))
    });
    let differs = check.is_some_and(|check| check.differing > 0);
    match failure {
        Some(failure) if !differs => Err(failure),
        Some(failure) => {
            warn(failure);
            Ok(Answer::No)
        }
        None if differs => Ok(Answer::No),
        None => Ok(Answer::Yes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_weighs_more_than_a_file_that_could_not_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::walk(dir.path(), Path::new("/no/store")).unwrap();
        let differs = ReadBack { differing: 1, ..ReadBack::default() };
        assert!(matches!(verdict(&tree, Some(&ReadBack::default())), Ok(Answer::Yes)));
        assert!(matches!(verdict(&tree, Some(&differs)), Ok(Answer::No)));
        tree.problems.note(&dir.path().join("closed"), &"permission denied");
        assert!(matches!(verdict(&tree, Some(&differs)), Ok(Answer::No)));
        let told = verdict(&tree, None).err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(told.contains("closed") && told.contains("everything else is imported"), "{told}");
    }
}
