//! Which files there are, and which of them belong to the log.

use std::path::{Path, PathBuf};

use esker_env::{DirEntry, FileKind, FileSystem};
use esker_format::file_name::FileName as DbFileName;
use esker_format::raft::closed::{self, Closed, QueueEnd};
use esker_format::raft::file_header::{FileHeader, LEN_BYTES_MAX};
use esker_format::raft::file_name::{FileId, FileName, Queue as Kind};
use esker_format::{DecodeErrorKind, cask};
use esker_log::copying::UNFINISHED;

use super::scan::{Beside, Ending, Source, without_header};
use crate::options::Options;
use crate::{Error, ErrorKind, Result};

/// A file of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: FileId,
    pub(crate) path: PathBuf,
    /// Which of the log's directories it lies in.
    pub(crate) dir: usize,
    /// So many of its bytes were whole batches when the log was closed; 0 if that is not known ([`crate::closed`]).
    pub(crate) closed_bytes: u64,
}

/// What the directories hold.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) append: Vec<Found>,
    pub(crate) rewrite: Vec<Found>,
    /// Files that wait to be written over.
    pub(crate) reserved: Vec<Found>,
    /// Files before a gap in their queue's numbers: one between was lost, or a crash kept them from being removed by raft-engine.
    pub(crate) stale: Vec<Found>,
    /// Files without a whole header whose number another has in the other directory, or had: a power loss took their removal back, or they could not
    /// be removed. Of the one that had it, none says so once it was given up: one before the first that holds nothing is as good as gone.
    pub(crate) void: Vec<Found>,
    /// What the log was when it was closed.
    pub(crate) closed: Option<Closed>,
    /// What is wrong with the note that says so.
    pub(crate) closed_error: Option<Error>,
    /// Whether any directory has such a note, whatever it says.
    pub(crate) has_note: bool,
    /// What is gone since it was closed: the last files of queues with all that may have followed them, or else the last of those that are missing
    /// before them ([`crate::closed`], N3 and N5).
    pub(crate) missing: Vec<Error>,
}

impl Listing {
    /// Whether there is no file of the log, nor a note that there should be one.
    pub(crate) fn is_empty(&self) -> bool {
        self.append.is_empty() && self.rewrite.is_empty() && self.missing.is_empty()
    }

    /// Says what is missing first.
    pub(crate) fn refuse_missing(&self) -> Result<()> {
        self.missing.first().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// The log's directories: its own, then the one that it spills to.
///
/// # Errors
/// `InvalidArgument` if that is the same one.
pub(crate) fn dirs(files: &dyn FileSystem, dir: &Path, options: &Options) -> Result<Vec<PathBuf>> {
    let dirs: Vec<PathBuf> = std::iter::once(dir.to_owned()).chain(options.spill_dir.clone()).collect();
    refuse_same(files, &dirs)?;
    Ok(dirs)
}

/// Refuses two paths to one directory, however they are spelled.
pub(crate) fn refuse_same(files: &dyn FileSystem, dirs: &[PathBuf]) -> Result<()> {
    let [own, spill] = dirs else { return Ok(()) };
    // What cannot be looked at, or is not there yet, is no other's name so far.
    let identity = |dir: &Path| files.metadata(dir).ok().map(|found| found.identity);
    if own != spill && identity(own).is_none_or(|found| identity(spill) != Some(found)) {
        return Ok(());
    }
    Err(Error::invalid_argument("spill_dir is the log's own directory").with_path(spill))
}

/// Refuses to begin a log where none was asked for, or in the directory of another store. Nothing is made.
///
/// # Errors
/// `NotFound` if there is none and `create_if_missing` is not set; `InvalidArgument` if something else is there.
pub(crate) fn may_begin(files: &dyn FileSystem, dirs: &[PathBuf], create_if_missing: bool) -> Result<()> {
    let (mut other, mut is_there, mut is_own) = (None, false, false);
    for (at, dir) in dirs.iter().enumerate() {
        let names: Vec<_> = file_names(files, dir)?.collect();
        // What an unfinished fork is, [`list`] says.
        if names.iter().any(|name| name == UNFINISHED) {
            return Ok(());
        }
        let of_log = names.iter().any(|name| matches!(FileName::parse(name), Some(FileName::Log(_))));
        is_own |= at == 0 && (of_log || names.iter().any(|name| FileName::parse(name) == Some(FileName::Lock)));
        // Beside files of the log it is a stray one.
        let of_other = if of_log { None } else { other_store(&names, is_there) };
        other = other.or(of_other.map(|reason| (dir, reason)));
        is_there |= of_log;
    }
    match (other, dirs.first()) {
        (Some((dir, reason)), _) => Err(Error::invalid_argument(reason).with_path(dir)),
        // What another log has spilled makes none of a wrong path.
        (None, Some(dir)) if !(create_if_missing || is_there && is_own) => {
            let reason = "there is no Raft log here; check the path, or set create_if_missing to begin one";
            Err(Error::new(ErrorKind::NotFound, reason).with_path(dir))
        }
        _ => Ok(()),
    }
}

/// Whose directory it is that holds files of these names, if it is another engine's. Where a log `is_there` already, not by names that others give
/// their files, too: it would not be opened for them.
fn other_store(names: &[String], is_there: bool) -> Option<&'static str> {
    let is_weak = |name: &str| matches!(DbFileName::parse(name), Some(DbFileName::Wal(_) | DbFileName::Options(_)));
    let told = names.iter().map(String::as_str).filter(|name| !(is_there && is_weak(name)));
    if DbFileName::are_of_a_store(told) {
        return Some(
            "there is a store of the ordered engine or of RocksDB; open it with Db, or repair it if it has lost its CURRENT, and give the log a \
             directory of its own",
        );
    }
    let is_of_cask =
        |name: &String| matches!(cask::FileName::parse(name), Some(cask::FileName::Manifest | cask::FileName::Data(_)));
    let of_cask = names.iter().any(is_of_cask);
    of_cask.then_some("there is a Cask; open it with Cask, and give the log a directory of its own")
}

/// What is in `dir`, but for directories; nothing if it does not exist.
pub(crate) fn file_names(files: &dyn FileSystem, dir: &Path) -> Result<impl Iterator<Item = String> + use<>> {
    let is_file = |entry: &DirEntry| entry.kind != FileKind::Directory;
    Ok(entries(files, dir)?.into_iter().filter(is_file).map(|entry| entry.name))
}

/// The same of a directory that is a log's.
///
/// # Errors
/// `Io` if a directory has the name of a file of the log: none could be made there.
fn file_names_of_log(files: &dyn FileSystem, dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for DirEntry { name, kind } in entries(files, dir)? {
        if kind != FileKind::Directory {
            names.push(name);
        } else if FileName::parse(&name).is_some() {
            let reason =
                "this is a directory in place of a file; move it away, and bring the file back if there was one";
            return Err(Error::new(ErrorKind::Io, reason).with_path(&dir.join(name)));
        }
    }
    Ok(names)
}

fn entries(files: &dyn FileSystem, dir: &Path) -> Result<Vec<DirEntry>> {
    match files.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let reason = "a log is a directory, and this is none; give another path";
            Err(Error::invalid_argument(reason).with_path(dir))
        }
        entries => Ok(entries?),
    }
}

/// Lists `dirs`; one that does not exist is empty.
///
/// # Errors
/// `Corruption` if a fork was not finished in one: parts of a log would pass for one; or if two files have one number and hold something.
/// `Io` if a directory has the name of a file. What the system said.
pub(crate) fn list(files: &dyn FileSystem, dirs: &[PathBuf]) -> Result<Listing> {
    let mut listing = Listing::default();
    // First: whoever has the log open may begin files, and note them, while it is looked at.
    match dirs.first().map(|dir| crate::closed::read(files, dir)) {
        None => {}
        Some(Ok(closed)) => listing.closed = closed,
        // What will be there another time is not passed over.
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::Busy) => return Err(error),
        Some(Err(error)) => listing.closed_error = Some(error),
    }
    for (dir, path) in dirs.iter().enumerate() {
        for name in file_names_of_log(files, path)? {
            if name == UNFINISHED {
                let reason = "a fork was not finished here: this is no log; make it again, into the same directory";
                return Err(Error::new(ErrorKind::Corruption, reason).with_path(path));
            }
            listing.has_note |= name == closed::NAME;
            let found = |id| Found { id, path: path.join(&name), dir, closed_bytes: 0 };
            match FileName::parse(&name) {
                Some(FileName::Log(id)) if id.queue == Kind::Append => listing.append.push(found(id)),
                Some(FileName::Log(id)) => listing.rewrite.push(found(id)),
                Some(FileName::Reserved(sequence)) => {
                    listing.reserved.push(found(FileId::new(Kind::Append, sequence)));
                }
                Some(FileName::Lock | FileName::Reserve { .. }) | None => {}
            }
        }
    }
    listing.reserved.sort_by_key(|file| file.id);
    if let Some(closed) = listing.closed {
        for (queue, end) in [(&mut listing.append, closed.append), (&mut listing.rewrite, closed.rewrite)] {
            queue
                .iter_mut()
                .filter(|file| file.id.sequence == end.sequence)
                .for_each(|file| file.closed_bytes = end.bytes);
        }
    }
    let (append, rewrite) = (listing.closed.map(|closed| closed.append), listing.closed.map(|closed| closed.rewrite));
    for (queue, end) in [(&mut listing.append, append), (&mut listing.rewrite, rewrite)] {
        queue.sort_by_key(|file| file.id);
        take_void(files, queue, &mut listing.void)?;
        let gap = queue.windows(2).rposition(|pair| match pair {
            [a, b] => a.id.sequence.checked_add(1) != Some(b.id.sequence),
            _ => false,
        });
        for found in queue.drain(..gap.map_or(0, |before| before + 1)) {
            let left = if is_void(files, &found)? { &mut listing.void } else { &mut listing.stale };
            left.push(found);
        }
        while let [first, second, ..] = &queue[..]
            && first.dir != second.dir
            && end.is_none_or(|end| !(end.first..=end.sequence).contains(&first.id.sequence))
            // One that cannot be looked at is replayed, which tells.
            && files.metadata(&first.path).is_ok_and(|found| found.len == 0)
        {
            listing.void.push(queue.remove(0));
        }
    }
    if let (Some(closed), Some(dir)) = (listing.closed, dirs.first()) {
        let queues =
            [(Kind::Append, &listing.append, closed.append), (Kind::Rewrite, &listing.rewrite, closed.rewrite)];
        let mut is_as_closed = true;
        for (_, queue, end) in queues {
            is_as_closed = is_as_closed && ends_at(files, queue, end)?;
        }
        for (kind, queue, end) in queues {
            let file = |sequence| dir.join(FileId::new(kind, sequence).to_string());
            if queue.last().is_none_or(|last| last.id.sequence < end.sequence) {
                listing.missing.push(missing_last(&file(end.sequence), end.bytes));
            } else if let Some(first) = queue.first().map(|first| first.id.sequence)
                && is_as_closed
                && first > end.first
            {
                listing.missing.push(missing_needed(&file(first - 1)));
            }
        }
    }
    Ok(listing)
}

/// Whether a queue ends where it did when the log was closed.
fn ends_at(files: &dyn FileSystem, queue: &[Found], end: QueueEnd) -> Result<bool> {
    let Some(last) = queue.last().filter(|last| last.id.sequence == end.sequence) else { return Ok(false) };
    match files.metadata(&last.path) {
        Ok(found) => Ok(found.len == end.bytes),
        // Who has the log open gave it up meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What is said of a file that was the last of its queue, and neither is there nor one behind it.
fn missing_last(path: &Path, bytes: u64) -> Error {
    missing(path, format_args!("this file is gone, and any behind it: the log was closed with {bytes} bytes in it"))
}

/// What is said of a file that was needed, and is not there though nothing was written since.
fn missing_needed(path: &Path) -> Error {
    missing(
        path,
        format_args!("this file is gone: the log was closed with something in it that is alive, or in one before it"),
    )
}

fn missing(path: &Path, what: std::fmt::Arguments<'_>) -> Error {
    let reason = format!(
        "{what}, according to the file {} there; see that the directory it spills to is there, and given; remove {0} if files were removed or \
         restored on purpose",
        closed::NAME
    );
    Error::new(ErrorKind::Corruption, reason).with_path(path)
}

/// Of files with one number, takes out of `queue` the one that nothing was written to.
fn take_void(files: &dyn FileSystem, queue: &mut Vec<Found>, void: &mut Vec<Found>) -> Result<()> {
    let mut at = 1;
    while let Some([first, second]) = queue.get(at - 1..=at) {
        if first.id != second.id {
            at += 1;
            continue;
        }
        let gone = if is_void(files, second)? {
            at
        } else if is_void(files, first)? {
            at - 1
        } else {
            let reason = format!("{} has the same number: one of them is no file of this log", first.path.display());
            return Err(Error::new(ErrorKind::Corruption, reason).with_path(&second.path));
        };
        void.push(queue.remove(gone));
    }
    Ok(())
}

/// Whether a file has no header, nor anything that was written behind one.
fn is_void(files: &dyn FileSystem, found: &Found) -> Result<bool> {
    let source = Source::open(files, &found.path, Beside::Anybody)?;
    let bytes = source.bytes();
    Ok(match FileHeader::decode(bytes.get(..LEN_BYTES_MAX.min(bytes.len())).unwrap_or_default()) {
        Err(error) if error.kind != DecodeErrorKind::Unsupported => {
            let error = Error::decode(&found.path, 0, "reading a file's header", error);
            !matches!(without_header(bytes, error), Ending::Rotten(_))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;
    use std::path::Path;

    use super::*;

    #[test]
    fn files_before_a_gap_are_stale() {
        let disk = SimDisk::new();
        let env = disk.env();
        for (dir, names) in [("/a", &[1u64, 2, 4, 5][..]), ("/b", &[6, 7])] {
            env.files.create_dir_all(Path::new(dir)).unwrap();
            for sequence in names {
                let name = FileId::new(Kind::Append, *sequence).to_string();
                let file = env.files.create(&Path::new(dir).join(name)).unwrap();
                file.append(&[&[7; 100]]).unwrap();
            }
        }
        env.files.create(Path::new("/a/0000000000000000.raftlog")).unwrap();
        env.files.create(Path::new("/a/0000000000000003.rewrite")).unwrap();
        env.files.create(Path::new("/a/0000000000000009.raftlog.reserved")).unwrap();
        env.files.create(Path::new("/a/LOCK")).unwrap();
        env.files.create(Path::new("/a/notes.txt")).unwrap();
        let listing = list(&*env.files, &["/a".into(), "/b".into(), "/none".into()]).unwrap();
        let numbers = |files: &[Found]| files.iter().map(|file| (file.id.sequence, file.dir)).collect::<Vec<_>>();
        assert_eq!(numbers(&listing.append), [(4, 0), (5, 0), (6, 1), (7, 1)]);
        assert_eq!(numbers(&listing.stale), [(1, 0), (2, 0)]);
        assert_eq!(numbers(&listing.void), [(0, 0)], "it holds nothing");
        assert_eq!(numbers(&listing.rewrite), [(3, 0)]);
        assert_eq!(numbers(&listing.reserved), [(9, 0)]);
    }
}
