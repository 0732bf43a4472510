//! A queue of files: appended to at the back, given up at the front.
//!
//! - Q1: sequence numbers have no gaps. Files leave from the front only. The newest of them wait right before those in use and are written
//!   over, or removed, in their order, each durably before the next: what a killed process or a power loss leaves of them follows without a
//!   gap, is replayed harmlessly and given up again. What a gap is in front of is not replayed, and left alone: so end those in a directory that gives
//!   none up, if the log is killed or closed so, once those in the other one went for want of room.
//! - Q2: a file is synced before its successor is created, and the successor's header and name before it takes a batch:
//!   power loss can only cut the last file. What is left of one that could not be created, in a directory that answers nothing, is void beside one
//!   of its number in the other directory; without that, nothing is appended.
//! - Q3: a recycled file's old bytes fail the new salt; one that is linked elsewhere (a fork) is never written over. Numbers
//!   are unique within a queue only, so a file is never written over for the other queue.

pub(crate) mod file;
mod tail;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use esker_env::{AppendFile, Env, Lock};
use esker_format::raft::file_header::{FileHeader, Version};
use esker_format::raft::file_name::{FileId, FileName, Queue as Kind, SEQUENCE_MAX};
use esker_log::reserve::Reserve;
use parking_lot::{Mutex, RwLock};

pub(crate) use file::{Bytes, End, LogFile};
pub(crate) use tail::{Left, Sync, Tail};

use crate::listener::Listeners;
use crate::{Error, ErrorKind, Result};

/// Sequence number of a queue's first file.
pub(crate) const FIRST_SEQUENCE: u64 = 1;

/// The right to the log's directories, as long as anybody holds it (F4).
pub(crate) type Rights = Vec<Box<dyn Lock>>;

/// What a queue must know to make files.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) env: Env,
    /// The log's directory, then the one it spills to.
    pub(crate) dirs: Arc<[PathBuf]>,
    /// Whoever holds the shape only does not.
    pub(crate) rights: Weak<Rights>,
    pub(crate) header: FileHeader,
    pub(crate) file_bytes: u64,
    pub(crate) reserve: Arc<Reserve>,
    /// Files in use and waiting that are kept at most.
    pub(crate) recycle_capacity: usize,
    pub(crate) listeners: Listeners,
}

impl Shape {
    /// Bytes that `files` which wait to be written over may have, in all. Each is longer than it should be by what was written last; one
    /// that is far longer stands for several.
    pub(crate) fn waiting_bytes_max(&self, files: usize) -> u64 {
        self.file_bytes.saturating_mul(2).saturating_mul(files as u64)
    }
}

/// A file that waits to be written over.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) path: PathBuf,
    pub(crate) dir: usize,
    /// The file as readers may still hold it (F2).
    pub(crate) file: Option<Arc<LogFile>>,
    pub(crate) bytes: u64,
}

/// The files of one queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    files: RwLock<VecDeque<Arc<LogFile>>>,
    retired: Mutex<VecDeque<Retired>>,
}

impl Queue {
    /// A queue of these files, the last of which is `tail`'s.
    pub(crate) fn new(kind: Kind, shape: Shape, files: VecDeque<Arc<LogFile>>, retired: VecDeque<Retired>) -> Self {
        Self { kind, shape, files: RwLock::new(files), retired: Mutex::new(retired) }
    }

    /// The first and the last file's number.
    pub(crate) fn span(&self) -> (u64, u64) {
        let files = self.files.read();
        let number = |file: Option<&Arc<LogFile>>| file.map_or(FIRST_SEQUENCE, |file| file.id.sequence);
        (number(files.front()), number(files.back()))
    }

    /// The number of the file that `part` of the files are older than.
    pub(crate) fn file_at(&self, part: f64) -> u64 {
        let (first, last) = self.span();
        first + ((last - first + 1) as f64 * part) as u64
    }

    /// A file by number; `None` if it was given up.
    pub(crate) fn file(&self, sequence: u64) -> Option<Arc<LogFile>> {
        let files = self.files.read();
        let at = sequence.checked_sub(files.front()?.id.sequence)?;
        files.get(usize::try_from(at).ok()?).cloned()
    }

    /// Whether it was closed: there is always a last file before.
    pub(crate) fn is_closed(&self) -> bool {
        self.files.read().is_empty()
    }

    /// Shows no file to anybody from now on. Those that wait to be written over are taken out of the next open's way.
    pub(crate) fn close(&self) {
        self.files.write().clear();
        self.put_aside();
        self.retired.lock().clear();
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, sequence: u64) -> bool {
        self.files.read().front().is_some_and(|file| file.id.sequence <= sequence)
    }

    /// All files, oldest first.
    pub(crate) fn files(&self) -> Vec<Arc<LogFile>> {
        self.files.read().iter().cloned().collect()
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.read().iter().map(|file| file.len()).sum()
    }

    /// Bytes of the files from `sequence` on.
    pub(crate) fn bytes_from(&self, sequence: u64) -> u64 {
        self.files.read().iter().filter(|file| file.id.sequence >= sequence).map(|file| file.len()).sum()
    }

    /// How many files wait to be written over.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.lock().len()
    }

    /// Whether the last file is full.
    pub(crate) fn is_full(&self, tail: &Tail) -> bool {
        tail.file.len() >= self.shape.file_bytes
    }

    /// Whether the last file holds a batch.
    pub(crate) fn holds_batches(&self, tail: &Tail) -> bool {
        tail.file.len() > tail.file.header.len_bytes() as u64
    }

    /// Another directory than the last file's, for `bytes` that there is no room for beside it. The spill directory is tried in any case, the
    /// log's own only where a whole file has room: full ones are not given file after file by turns.
    pub(crate) fn elsewhere(&self, tail: &Tail, bytes: u64) -> Option<usize> {
        let bytes = bytes.max(self.shape.file_bytes);
        let other = (0..self.shape.dirs.len()).find(|dir| *dir != tail.file.dir)?;
        let waits = || {
            let retired = self.retired.try_lock();
            retired.as_ref().and_then(|retired| retired.front()).is_some_and(|it| it.dir == other && it.bytes >= bytes)
        };
        let is_tried =
            other > 0 || waits() || self.shape.dirs.get(other).is_some_and(|dir| has_room(&self.shape, dir, bytes));
        is_tried.then_some(other)
    }

    /// Ends the last file and begins the next, in directory `dir`, or else in the first with room for it, or with the most, or where that cannot be,
    /// in the other. If that fails, the last file stays what it is.
    pub(crate) fn rotate(&self, tail: &mut Tail, dir: Option<usize>) -> Result<()> {
        let sequence = tail.file.id.sequence.saturating_add(1);
        if sequence > SEQUENCE_MAX {
            return Err(Error::new(ErrorKind::Corruption, "no file number follows").with_path(&tail.file.path));
        }
        let dir = match self.take_back(tail) {
            Ok(()) => dir,
            Err(error) => {
                let mut dirs = 0..self.shape.dirs.len();
                Some(dirs.find(|at| tail.lets_begin_in(*at) && dir.is_none_or(|dir| dir == *at)).ok_or(error)?)
            }
        };
        tail.finish()?;
        let mut next = self.begin_somewhere(tail, sequence, dir)?;
        next.left = std::mem::take(&mut tail.left);
        tail.file.seal();
        self.files.write().push_back(Arc::clone(&next.file));
        *tail = next;
        self.shape.listeners.file_created(FileId::new(self.kind, sequence));
        Ok(())
    }

    /// Begins the file behind `tail`'s in `dir`, or where that is not said and one directory takes none, in the other.
    fn begin_somewhere(&self, tail: &mut Tail, sequence: u64, dir: Option<usize>) -> Result<Tail> {
        let unbegun = match self.begin(sequence, dir) {
            Ok(next) => return Ok(next),
            Err(unbegun) => unbegun,
        };
        let tried = unbegun.dir;
        let error = self.give_back(tail, unbegun)?;
        let other = (0..self.shape.dirs.len()).find(|at| *at != tried && tail.lets_begin_in(*at));
        // Where there is no room for it in the roomiest one, there is none in the other.
        let Some(other) = other.filter(|_| dir.is_none() && !error.wants_room()) else { return Err(error) };
        match self.begin(sequence, Some(other)) {
            Ok(next) => Ok(next),
            Err(unbegun) => {
                let other = self.give_back(tail, unbegun)?;
                // Room is what can be made.
                Err(if other.wants_room() { other } else { error })
            }
        }
    }

    /// Takes back what is left of a file that could not be begun, if that is possible, and says why it could not.
    fn give_back(&self, tail: &mut Tail, Unbegun { error, left, .. }: Unbegun) -> Result<Error> {
        tail.left.extend(left);
        match self.take_back(tail) {
            Err(worse) if worse.kind() == ErrorKind::ReadOnly => Err(worse),
            _ => Ok(error),
        }
    }

    /// Whatever there is of files that could not be begun goes, durably: the last file takes batches again, and a successor of
    /// it must not come back (Q2). Nothing is appended until it is gone, or void.
    pub(crate) fn take_back(&self, tail: &mut Tail) -> Result<()> {
        while let Some(left) = tail.left.last() {
            match remove_durably(&self.shape, &left.path) {
                Ok(()) => drop(tail.left.pop()),
                // For want of descriptors, say: the next write tries again.
                Err(error) if left.is_void || error.is_exhausted() => return Err(error.into()),
                Err(error) => {
                    return Err(tail.broke("taking back a file that could not be begun; reopen to go on", error));
                }
            }
        }
        Ok(())
    }

    /// A new file with its header, durable with its name.
    fn begin(&self, sequence: u64, dir: Option<usize>) -> std::result::Result<Tail, Unbegun> {
        let id = FileId::new(self.kind, sequence);
        begin_file(&self.shape, id, self.recycled(id, dir)?, dir)
    }

    /// The oldest retired file under a new name, if there is one that may be written over, and in directory `wanted`, if that is said.
    fn recycled(&self, id: FileId, wanted: Option<usize>) -> std::result::Result<Option<Recycled>, Unbegun> {
        // Whoever holds them removes some, which come first (Q1).
        let Some(mut retired) = self.retired.try_lock() else { return Ok(None) };
        if let Some(Retired { file: Some(file), .. }) = retired.front()
            && (Arc::strong_count(file) > 1 || !is_salted(file))
        {
            // Someone reads it, or it is still to be removed. No other either: they go in order (Q1).
            return Ok(None);
        }
        let Some(Retired { path, dir, .. }) = retired.front() else { return Ok(None) };
        let (path, dir) = (path.clone(), *dir);
        if wanted.is_some_and(|wanted| wanted != dir) {
            return Ok(None);
        }
        let Some(base) = self.shape.dirs.get(dir) else { return Ok(None) };
        let files = &self.shape.env.files;
        // It only saves time: where it cannot be had it waits on, and a new file serves as well.
        match is_own(&self.shape, &path) {
            Err(_) => return Ok(None),
            // It only loses its name.
            Ok(false) => {
                if remove_durably(&self.shape, &path).is_ok() {
                    retired.pop_front();
                }
                return Ok(None);
            }
            Ok(true) => {}
        }
        let to = base.join(id.to_string());
        let recycled = files.recycle(&path, &to).and_then(|append| {
            // Else whoever goes on with the new file syncs its directory, which the next one goes from, too (Q1).
            if retired.get(1).is_some_and(|next| next.dir != dir) {
                sync_dir_of(&self.shape, &path)?;
            }
            Ok(append)
        });
        if let Ok(append) = recycled {
            retired.pop_front();
            return Ok(Some((dir, append)));
        }
        // Nothing else may have the new file's name. A directory that takes no changes says that nothing has, though it removes nothing.
        match files.metadata(&to).and_then(|_| files.remove(&to)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => {
                let gone = removed.and_then(|()| files.sync_dir(base));
                let left = |path| Left { sequence: id.sequence, path, dir, is_void: false };
                gone.map_err(|error| Unbegun { error: error.into(), dir, left: Some(left(to)) })?;
                retired.pop_front();
            }
        }
        Ok(None)
    }

    /// Removes the file that has waited longest to be written over, for the room that it takes. `false` if there is none. Where one directory gives up
    /// nothing, its files keep no room from who writes: they are left before a gap (Q1).
    pub(crate) fn give_room(&self) -> Result<bool> {
        let mut retired = self.retired.lock();
        let mut stuck = None;
        for (at, oldest) in retired.iter().enumerate() {
            if stuck.as_ref().is_some_and(|(dir, _)| *dir == oldest.dir) {
                continue;
            }
            match remove(&self.shape, oldest) {
                Ok(()) => {
                    retired.remove(at);
                    return Ok(true);
                }
                Err(error) => stuck = stuck.or(Some((oldest.dir, error))),
            }
        }
        stuck.map_or(Ok(false), |(_, error)| Err(error))
    }

    /// Gives up all files before `sequence`; says how many that were. Nothing in them may be needed. They wait until
    /// [`remove_waiting`](Self::remove_waiting).
    pub(crate) fn purge_before(&self, sequence: u64) -> usize {
        let mut gone = Vec::new();
        let mut files = self.files.write();
        while files.len() > 1 && files.front().is_some_and(|file| file.id.sequence < sequence) {
            gone.extend(files.pop_front());
        }
        drop(files);
        let count = gone.len();
        let retire = |file: Arc<LogFile>| Retired {
            path: file.path.clone(),
            dir: file.dir,
            bytes: file.len(),
            file: Some(file),
        };
        self.retired.lock().extend(gone.into_iter().map(retire));
        count
    }

    /// Removes what waits beyond what may. One that cannot be removed waits on for the next call, with those behind it.
    pub(crate) fn remove_waiting(&self) -> Result<()> {
        let left = self.files.read().len();
        let mut retired = self.retired.lock();
        // Reserved ones are in nobody's way.
        let first = retired.iter().position(|retired| retired.file.is_some()).unwrap_or(retired.len());
        // What lies before one that is not written over would be left alone.
        let unsalted = |retired: &Retired| retired.file.as_ref().is_some_and(|file| !is_salted(file));
        let to_go = retired.iter().rposition(unsalted).map_or(0, |at| at + 1 - first);
        let room = self.shape.recycle_capacity.saturating_sub(left).min(retired.len() - to_go);
        let bytes_max = self.shape.waiting_bytes_max(room);
        let mut bytes: u64 = retired.iter().map(|retired| retired.bytes).sum();
        while (retired.len() > room || bytes > bytes_max)
            && let Some(oldest) = retired.get(first)
        {
            remove(&self.shape, oldest)?;
            bytes = bytes.saturating_sub(oldest.bytes);
            retired.remove(first);
        }
        Ok(())
    }

    /// Takes the files that wait to be written over out of the next open's way: those of the append queue get a name that
    /// is not replayed, those of the rewrite queue go, since the name does not say whose they were (Q3). They may be lost: a failure is nobody's concern.
    fn put_aside(&self) {
        let files = &self.shape.env.files;
        if self.kind == Kind::Rewrite {
            // Nor those behind one that does not go (Q1).
            let _ = self.retired.lock().iter().try_for_each(|file| remove(&self.shape, file));
            return;
        }
        let mut retired = self.retired.lock();
        let mut sequence = FIRST_SEQUENCE;
        // Those that are reserved already keep their names.
        for file in retired.iter().filter(|file| file.file.is_none()) {
            if let Some(FileName::Reserved(taken)) = name_of(&file.path) {
                sequence = sequence.max(taken.saturating_add(1));
            }
        }
        for file in retired.iter_mut().filter(|file| file.file.is_some()) {
            let Some(dir) = self.shape.dirs.get(file.dir) else { break };
            let path = dir.join(FileName::Reserved(sequence).to_string());
            let is_open = file.file.as_ref().is_none_or(|held| is_salted(held) && open_for_holders(held).is_ok());
            let is_aside = || files.rename(&file.path, &path).and_then(|()| files.sync_dir(dir)).is_ok();
            if !is_open || !is_aside() {
                // Nor those behind it, which it would be left alone before (Q1).
                break;
            }
            sequence += 1;
            *file = Retired { path, dir: file.dir, file: None, bytes: file.bytes };
        }
    }
}

/// Whether old bytes of it are told from new ones (Q3).
fn is_salted(file: &LogFile) -> bool {
    file.header.version != Version::V1
}

/// Before its name goes: who holds it may not have opened it yet (F2).
fn open_for_holders(file: &Arc<LogFile>) -> Result<()> {
    if Arc::strong_count(file) > 1 {
        file.reader()?;
    }
    Ok(())
}

/// Takes a file that waits to be written over away, durably (Q1).
fn remove(shape: &Shape, retired: &Retired) -> Result<()> {
    retired.file.as_ref().map_or(Ok(()), open_for_holders)?;
    Ok(remove_durably(shape, &retired.path)?)
}

/// Again is once: an earlier attempt may have removed it and not synced.
fn remove_durably(shape: &Shape, path: &Path) -> esker_env::Result<()> {
    match shape.env.files.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => sync_dir_of(shape, path),
    }
}

fn sync_dir_of(shape: &Shape, path: &Path) -> esker_env::Result<()> {
    path.parent().map_or(Ok(()), |dir| shape.env.files.sync_dir(dir))
}

fn name_of(path: &Path) -> Option<FileName> {
    path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse)
}

/// Whether nobody else holds a file by another name, as a fork does.
fn is_own(shape: &Shape, path: &Path) -> esker_env::Result<bool> {
    match shape.env.files.metadata(path) {
        Ok(found) => Ok(found.links == 1),
        // A removal that was said to have failed did not, or a symbolic link points to what is gone.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first directory with room for a file; that with the most of it if none has.
fn roomy_dir(shape: &Shape) -> usize {
    if shape.dirs.len() == 1 {
        return 0;
    }
    let room =
        |dir: usize| shape.dirs.get(dir).map_or(0, |dir| shape.env.files.space(dir).map_or(0, |space| space.available));
    let dirs = 0..shape.dirs.len();
    // Of equal ones, the last is the greatest to `max_by_key`.
    let most = || dirs.clone().rev().max_by_key(|dir| room(*dir)).unwrap_or(0);
    dirs.clone().find(|dir| room(*dir) >= shape.file_bytes).unwrap_or_else(most)
}

fn has_room(shape: &Shape, dir: &Path, bytes: u64) -> bool {
    shape.env.files.space(dir).is_ok_and(|space| space.available >= bytes)
}

/// A file that is written over from its start, and its directory.
type Recycled = (usize, Arc<dyn AppendFile>);

/// Why a file could not be begun.
#[derive(Debug)]
pub(crate) struct Unbegun {
    error: Error,
    /// The directory in which it should have been.
    dir: usize,
    /// What may be of it, or come back after a power loss.
    left: Option<Left>,
}

impl From<Unbegun> for Error {
    fn from(unbegun: Unbegun) -> Self {
        unbegun.error
    }
}

/// Makes a file with its header, durable with its name: of one that is to be written over, or else in `dir`, or else where there is room.
pub(crate) fn begin_file(
    shape: &Shape,
    id: FileId,
    recycled: Option<Recycled>,
    dir: Option<usize>,
) -> std::result::Result<Tail, Unbegun> {
    let files = &shape.env.files;
    let (dir, append) = match recycled {
        Some(found) => found,
        None => {
            let dir = dir.unwrap_or_else(|| roomy_dir(shape));
            let path = shape.dirs.get(dir).cloned().unwrap_or_default().join(id.to_string());
            let append = create(shape, id, dir, &path)?;
            // Before the header, which would have a block of its own elsewhere: with one extent more, ext4 keeps them outside of the inode and
            // every sync writes two blocks of them. Measured with 16 synced writers: an eighth more batches.
            reserve(shape, id, &*append);
            (dir, append)
        }
    };
    let path = append.path().to_owned();
    let written = append.append(&[&encoded(shape.header)]).and_then(|()| append.sync());
    if let Err(error) = written.and_then(|()| sync_dir_of(shape, &path)) {
        drop(append);
        // It holds nothing; the next attempt takes it away if this one cannot.
        let _ = files.remove(&path);
        let left = Left { sequence: id.sequence, path, dir, is_void: false };
        return Err(Unbegun { error: error.into(), dir, left: Some(left) });
    }
    Ok(open_tail(shape, id, dir, shape.header, append))
}

/// The bytes of a header.
pub(crate) fn encoded(header: FileHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes
}

/// What `append` has open, as a queue's last file. Files of users' batches are preallocated, if there is room.
pub(crate) fn open_tail(
    shape: &Shape,
    id: FileId,
    dir: usize,
    header: FileHeader,
    append: Arc<dyn AppendFile>,
) -> Tail {
    let is_reserved = reserve(shape, id, &*append);
    let window = if is_reserved { append.window().unwrap_or_default() } else { None };
    let room = if is_reserved { shape.file_bytes } else { 0 };
    let end = End::Grows(append.len(), window);
    let file = LogFile::new(shape, id, dir, append.path().to_owned(), header, end);
    Tail::new(Arc::clone(&shape.env.files), Arc::new(file), append, room)
}

/// Asks for all blocks of a file of users' batches. Whether they are there; without, appends find out by themselves what there is room for.
fn reserve(shape: &Shape, id: FileId, append: &dyn AppendFile) -> bool {
    let takes_all = id.queue == Kind::Append && append.len() < shape.file_bytes;
    takes_all && shape.reserve.is_whole() && append.preallocate(shape.file_bytes).unwrap_or(false)
}

/// A new file; one of the name that an earlier failure left behind goes first.
fn create(shape: &Shape, id: FileId, dir: usize, path: &Path) -> std::result::Result<Arc<dyn AppendFile>, Unbegun> {
    let files = &shape.env.files;
    let unbegun = |error: esker_env::Error, is_void| {
        let is_none = matches!(files.metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
        // Where nothing was made, nothing is to be taken back: for want of descriptors that would fail, too.
        let left = (!is_none).then(|| Left { sequence: id.sequence, path: path.to_owned(), dir, is_void });
        Unbegun { error: error.into(), dir, left }
    };
    let made = match files.create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            remove_durably(shape, path).map_err(|error| unbegun(error, false))?;
            files.create(path)
        }
        made => made,
    };
    made.map_err(|error| unbegun(error, true))
}
