//! Files and directories: small, positional traits. No hidden cursor, no buffering that a reader could not see.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Result;

/// The first bytes of an append to a preallocated file are written after all others: see [`AppendFile`].
pub const COMMIT_BYTES: usize = 8;
/// What follows an append to a [padded](AppendFile::pad) file ends at a multiple of this.
pub const PAD_BYTES: u64 = 32 << 10;

/// Read at once where zeroes are left out: fits into the caches of a processor.
const PIECE_BYTES: usize = 64 << 10;

/// What [`FileSystem::read_small`] reads at most: more than the options of a hundred thousand column families take.
pub const SMALL_BYTES_MAX: u64 = 256 << 20;

/// What a name in a directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a link, a device, a socket.
    Other,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory's. Names that are not UTF-8 are never Esker's, and come with replacement characters.
    pub name: String,
    /// What it stands for.
    pub kind: FileKind,
}

/// What the file system knows of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// File or directory.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of the device that it occupies: less than `len` where holes were punched, more where space was preallocated.
    pub allocated: u64,
    /// How many names it has; one more if the path is a symbolic link to it, as raft-engine's forks have them. More than one means that
    /// somebody shares it, a checkpoint for example: nothing may be written over, cut, or punched out of it.
    pub links: u64,
    /// Which file it is, whatever its names: device and inode, as a rule.
    pub identity: (u64, u64),
}

/// Space of the file system that holds a path, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// Free to this process.
    pub available: u64,
}

/// How a file is about to be read; a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Here and there: no readahead.
    Random,
    /// Front to back: read far ahead.
    Sequential,
}

/// One of the reads of [`read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// The file to read.
    pub file: &'a dyn ReadFile,
    /// Where to start.
    pub offset: u64,
    /// Filled whole or the request fails.
    pub buffer: &'a mut [u8],
    /// What came of it; [`read_many`] replaces it.
    pub result: Result<()>,
}

impl<'a> ReadRequest<'a> {
    /// Of `file`, from `offset` on, as much as `buffer` takes.
    pub fn new(file: &'a dyn ReadFile, offset: u64, buffer: &'a mut [u8]) -> Self {
        Self { file, offset, buffer, result: Ok(()) }
    }

    fn read(&mut self) {
        self.result = self.file.read_exact_at(self.offset, self.buffer);
    }
}

/// Reads all of `requests`, of whatever files, in any order, by a device at once where the system can; each carries its own result.
///
/// In two rounds: nothing waits in the first ([`ReadFile::read_now`]), so that by the second the device works on all that was missing.
/// Kindest to readahead are those of a file in the order of their places. Cost: a call for each that is cached, two for each that is not.
pub fn read_many(requests: &mut [ReadRequest<'_>]) {
    if let [request] = requests {
        return request.read();
    }
    let mut missing = Vec::new();
    for request in requests {
        request.result = Ok(());
        if !request.file.read_now(request.offset, request.buffer) {
            missing.push(request);
        }
    }
    missing.into_iter().for_each(ReadRequest::read);
}

/// A file's bytes, mapped. They are what the file held when mapped or later: map only what no longer changes.
pub trait Mapping: Debug + Send + Sync {
    /// The bytes, as long as the file was when it was mapped.
    fn bytes(&self) -> &[u8];

    /// How they are about to be read. A hint.
    fn advise(&self, _: Access) {}
}

/// The part of an active file that is memory, for its readers. It stays valid when the file is sealed, when its handle
/// is dropped and when its name goes.
pub trait Window: Debug + Send + Sync {
    /// The bytes of `range`, if all of them were appended and lie in the window. Appended bytes never change.
    fn appended(&self, range: Range<u64>) -> Option<&[u8]>;
}

/// A file open for reading. Shared: all reads are positional.
pub trait ReadFile: Debug + Send + Sync {
    /// Where it was opened.
    fn path(&self) -> &Path;

    /// Its length in bytes now.
    fn len(&self) -> Result<u64>;

    /// Whether there is nothing to read.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Which file it is, as [`Metadata::identity`] has it. No other file has the same as long as this one is open: a path that has it stands for
    /// this file still.
    ///
    /// # Errors
    /// As the system's; `Unsupported` where it cannot be told: then it is taken for no other.
    fn identity(&self) -> Result<(u64, u64)> {
        Err(crate::Error::new("looking at", self.path(), std::io::ErrorKind::Unsupported.into()))
    }

    /// Fills `buffer` from `offset` on; returns how much there was, less than asked only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Fills `buffer` whole.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and `UnexpectedEof` if the file ends first.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let wanted = buffer.len();
        let got = self.read_at(offset, buffer)?;
        if got == wanted {
            return Ok(());
        }
        let eof = std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            format!("the file ends after {got} of the {wanted} bytes wanted"),
        );
        Err(crate::Error::new("reading", self.path(), eof).at(offset))
    }

    /// Fills `buffer` whole from `offset` on, if that needs no waiting. Otherwise `false`: anything may be in `buffer`, and
    /// what is missing is being read by now, where the system can.
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let _ = (offset, buffer);
        false
    }

    /// The bytes of `range` where they lie in memory, if the file is read so ([`open_sealed`](crate::open_sealed)) and has them.
    fn memory(&self, range: Range<u64>) -> Option<&[u8]> {
        let _ = range;
        None
    }

    /// Does not let go of `what` before whoever holds a part of the file as [`memory`](Self::memory) lets go of the file. Once for a file.
    fn keep(&self, what: Arc<dyn Any + Send + Sync>) {
        drop(what);
    }

    /// The whole file as memory, or `None` where the system has no such thing.
    fn map(&self) -> Result<Option<Arc<dyn Mapping>>>;

    /// How it is about to be read. A hint: failure is nobody's concern.
    fn advise(&self, access: Access);

    /// `range` is about to be read: the system may begin to, without waiting. A hint, too.
    fn will_read(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// A file open for appending by one writer at a time. The handle may be shared, so that one thread syncs
/// while another appends; two appends at once are the caller's mistake and are written one after the other.
///
/// # Preallocated files
///
/// `create` → [`preallocate`](Self::preallocate) → appends and syncs → [`seal`](Self::seal) → the last sync. In between
/// the file may be longer than [`len`](Self::len), for all who open or measure it: zeroes follow what was appended.
/// Who scans such a file after a crash must take them for its end. Dropping the handle does not cut them off, since
/// the file may have another handle by then, and nobody would learn that it failed.
///
/// A process that dies within an append to such a file leaves of it all, nothing, a beginning, or everything else: any
/// part of what follows its first [`COMMIT_BYTES`], while those are zeroes. So a header that is never all zeroes, at the front of
/// whatever is appended at once, tells whether the process got to the end of it.
///
/// # Padded files
///
/// Of [`pad`](Self::pad): zeroes may follow what was appended there, too, but appends may fail for want of room, if only for those zeroes, and one in which the
/// process dies leaves a beginning of itself.
///
/// # Recycled files
///
/// Of [`FileSystem::recycle`]: as a preallocated file, but what follows is an earlier life's bytes. At least the next
/// [`COMMIT_BYTES`] behind what was appended are zeroes, for who scans the file after a process died; a power loss may leave
/// an earlier life's sectors anywhere in what was not synced. So whatever is appended must tell by itself which life it belongs to.
pub trait AppendFile: Debug + Send + Sync {
    /// Where it was created.
    fn path(&self) -> &Path;

    /// Bytes in the file, synced or not, with the part of a failed append that got in: where the next append goes.
    fn len(&self) -> u64;

    /// Whether nothing was appended yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `parts`, one after the other, in one system call where possible, and none at all where they are small and the
    /// place was preallocated. They survive the death of the process, not yet that of the machine.
    ///
    /// # Errors
    /// Some of the bytes may be in the file, behind [`len`](Self::len) if it was preallocated: [`truncate`](Self::truncate) to the length
    /// before, or write no more.
    fn append(&self, parts: &[&[u8]]) -> Result<()>;

    /// Makes every byte appended before the call survive power loss (`fdatasync`). The file's *name* needs
    /// [`FileSystem::sync_dir`] as well.
    ///
    /// # Errors
    /// What was appended since the last sync may be lost, and a second sync would not say so
    /// (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020): never retry on the same file.
    fn sync(&self) -> Result<()>;

    /// Sets off for the device what was appended since the last sync, and waits for nothing: who has something to do before it
    /// syncs has less to wait for then. A hint.
    fn begin_sync(&self) {}

    /// Cuts the file to `len` bytes; what was preallocated is given back.
    ///
    /// # Errors
    /// `InvalidInput` if `len` exceeds [`len`](Self::len), or is less than what a [`window`](Self::window) that was given out shows:
    /// somebody may be reading what would go. That is all that was appended until the file was cut or [sealed](Self::seal).
    fn truncate(&self, len: u64) -> Result<()>;

    /// Asks for blocks up to `len` bytes, which later appends cannot fail to get; [`len`](Self::len) stays. `false` where
    /// the file system reserves nothing.
    ///
    /// # Errors
    /// Exhausted ([`crate::Error::is_exhausted`]) if there is no room: the file is as before, and appends go on without.
    fn preallocate(&self, len: u64) -> Result<bool>;

    /// Asks for blocks up to `len` bytes, of which nothing is to be made: nobody else has them as long as the file does. Also where an append would not
    /// go into them, as on file systems that write everything to a new place. `false` where there are none to be had like that; the file is as before.
    ///
    /// # Errors
    /// As [`preallocate`](Self::preallocate).
    fn hold(&self, len: u64) -> Result<bool> {
        self.preallocate(len)
    }

    /// From now on zeroes may follow what is appended, up to a multiple of [`PAD_BYTES`], until the file is [sealed](Self::seal): the system
    /// makes a piece of its cache at once then, in place of many single pages. A hint, for who appends much and syncs seldom.
    fn pad(&self) {}

    /// Ends the file at [`len`](Self::len) and gives back what was preallocated behind it. For whoever appends no more,
    /// before the last sync. Again is once; an append that comes nevertheless is one to a file that was not preallocated.
    ///
    /// # Errors
    /// The file may still be longer than `len`; what was appended is as it was.
    fn seal(&self) -> Result<()>;

    /// What was preallocated, as memory for readers of this file while it grows. `None` where there is no such thing: without
    /// preallocated blocks, and on a simulated disk unless asked for. Then [`FileSystem::open`] reads what was appended.
    fn window(&self) -> Result<Option<Arc<dyn Window>>>;

    /// How what is appended will be read while it is in memory; a hint. At random: it may be kept in larger pieces, for which
    /// an append in some thousands waits longer.
    fn advise(&self, access: Access) {
        let _ = access;
    }
}

/// The first `len` bytes of `file`, or as many as there are.
fn read_whole(file: &dyn ReadFile, len: u64) -> Result<Vec<u8>> {
    let (mut bytes, wanted) = room(file, len)?;
    bytes.resize(wanted, 0);
    let got = file.read_at(0, &mut bytes)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// What is before the zeroes at the end of `bytes`, which are no more than `nothing` has.
fn without_zeroes<'a>(bytes: &'a [u8], nothing: &[u8]) -> &'a [u8] {
    // One comparison where there is nothing else.
    let is_nothing = nothing.get(..bytes.len()) == Some(bytes);
    let last = if is_nothing { None } else { bytes.iter().rposition(|byte| *byte != 0) };
    last.and_then(|last| bytes.get(..=last)).unwrap_or_default()
}

/// Room for `len` bytes of `file`, which takes memory where something is put, and `len`.
fn room(file: &dyn ReadFile, len: u64) -> Result<(Vec<u8>, usize)> {
    let mut bytes = Vec::new();
    match usize::try_from(len).ok().filter(|&wanted| bytes.try_reserve_exact(wanted).is_ok()) {
        Some(wanted) => Ok((bytes, wanted)),
        None => {
            let reason = format!("there is no memory for its {len} bytes");
            let source = std::io::Error::new(std::io::ErrorKind::OutOfMemory, reason);
            Err(crate::Error::new("reading", file.path(), source))
        }
    }
}

/// The exclusive right to a directory, given up when dropped.
pub trait Lock: Debug + Send + Sync {}

/// Where files live. Paths are absolute or relative to the process; the simulated disk takes them as they are.
pub trait FileSystem: Debug + Send + Sync {
    /// `path` as it can be used however long: wherever the process goes, it stands for what it stands for now. Nothing need be there.
    ///
    /// # Errors
    /// The process is nowhere: the directory that it worked in was removed.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    /// A new, empty file.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken: no file of Esker's is ever opened for overwriting.
    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>>;

    /// An existing file, to append after its first `len` bytes; what lies behind is cut off.
    ///
    /// # Errors
    /// `InvalidInput` if it is shorter than `len`.
    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>>;

    /// An existing file under another name in the same directory, to append from its start over what it holds: its blocks
    /// are there already, so a sync has no blocks to write down. Nothing is cut off before [`AppendFile::seal`] or
    /// [`AppendFile::truncate`]; see [recycled files](AppendFile#recycled-files). The new name is durable when this
    /// returns, so that the old one never comes back over the new bytes. Nobody may be reading the file.
    ///
    /// Unless written otherwise, what the file holds is cut off.
    ///
    /// # Errors
    /// The file may have either name.
    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        self.rename(from, to)?;
        self.sync_dir(to.parent().unwrap_or(Path::new("")))?;
        self.reopen(to, 0)
    }

    /// An existing file, to read.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;

    /// The names in `dir`, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;

    /// What `path` is; `NotFound` if there is nothing.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// `dir` and its parents; no error if they are there.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Gives a file another name in one step, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives a file a second name.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Takes a file's name away.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Takes an empty directory away.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Makes the names in `dir` survive power loss.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Gives the blocks of `range` back; they read as zeroes from now on.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no holes.
    fn punch_hole(&self, path: &Path, range: Range<u64>) -> Result<()>;

    /// The same for many ranges, in their order.
    ///
    /// # Errors
    /// As [`punch_hole`](Self::punch_hole); some of them may be holes.
    fn punch_holes(&self, path: &Path, ranges: &[Range<u64>]) -> Result<()> {
        ranges.iter().try_for_each(|range| self.punch_hole(path, range.clone()))
    }

    /// Room on the file system that holds `path`.
    fn space(&self, path: &Path) -> Result<Space>;

    /// The exclusive right to whatever `path` (a file, created if missing) stands for.
    ///
    /// # Errors
    /// `WouldBlock` if another process, or another handle of this one, holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// The right to find what files in `dir` hold as it is, until it is dropped. Any number may have it at once, of any process; waits
    /// for whoever has the directory [alone](Self::claim_dir).
    ///
    /// # Errors
    /// `Unsupported` unless written otherwise: there is nobody to share with. So where the system has no such lock.
    fn share_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        Err(crate::Error::new("sharing", dir, std::io::ErrorKind::Unsupported.into()))
    }

    /// The right to take away bytes that only those need who [share](Self::share_dir) `dir`.
    ///
    /// # Errors
    /// `WouldBlock` if somebody shares it, or has it alone. `Unsupported` unless written otherwise: this process alone has the files. Another
    /// error where others may have them, and the system has no such lock.
    fn claim_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        Err(crate::Error::new("claiming", dir, std::io::ErrorKind::Unsupported.into()))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it, and what else the system said.
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        read_whole(&*file, file.len()?)
    }

    /// The same without zeroes at its end, which may be most of a file that was preallocated, but for the first `kept` of them; and how long it is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_written(&self, path: &Path, kept: usize) -> Result<(Vec<u8>, u64)> {
        let file = self.open(path)?;
        let (mut bytes, end) = room(&*file, file.len()?)?;
        let (mut piece, nothing) = (vec![0; PIECE_BYTES], [0; PIECE_BYTES]);
        let (mut at, mut zeroes) = (0, 0);
        while at < end {
            let wanted = piece.get_mut(..PIECE_BYTES.min(end - at)).unwrap_or_default();
            let got = file.read_at(at as u64, wanted)?;
            let written = piece.get(..got).map_or(&[][..], |read| without_zeroes(read, &nothing));
            if !written.is_empty() {
                bytes.resize(bytes.len() + std::mem::take(&mut zeroes), 0);
                bytes.extend_from_slice(written);
            }
            (at, zeroes) = (at + got, zeroes + got - written.len());
            if got == 0 {
                break;
            }
        }
        bytes.resize(bytes.len() + zeroes.min(kept), 0);
        Ok((bytes, at as u64))
    }

    /// Reads a whole file of which nobody makes a large one. What damage or a stranger has made of its length takes no memory.
    ///
    /// # Errors
    /// `InvalidData` if it is longer than [`SMALL_BYTES_MAX`], and what the system said.
    fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let len = file.len()?;
        if len > SMALL_BYTES_MAX {
            let reason = format!("it has {len} bytes, far more than such a file is written with");
            return Err(crate::Error::new(
                "reading",
                path,
                std::io::Error::new(std::io::ErrorKind::InvalidData, reason),
            ));
        }
        read_whole(&*file, len)
    }

    /// Writes a small file so that after power loss it is whole or absent: a temporary name, sync, rename, sync of the directory.
    fn write_atomically(&self, path: &Path, temporary: &Path, bytes: &[u8]) -> Result<()> {
        if self.metadata(temporary).is_ok() {
            self.remove(temporary)?;
        }
        let file = self.create(temporary)?;
        file.append(&[bytes])?;
        file.sync()?;
        drop(file);
        self.rename(temporary, path)?;
        let dir: PathBuf = path.parent().map(Path::to_owned).unwrap_or_default();
        self.sync_dir(&dir)
    }
}
