//! The disk: every call that can reach it, counted, and failed if so scheduled.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::content::{BLOCK_BYTES, Content, Left, slice};
use super::entropy::SeededEntropy;
use super::faults::{Fault, Schedule};
use super::names::{self, Inode};
use super::tree::{Directory, File, Node, Tree, parts};
use crate::{DirEntry, FileKind, Metadata, Space};

/// Size of a disk without a limit, to those who ask: 1 TiB.
const UNLIMITED_BYTES: u64 = 1 << 40;

pub(super) struct Disk {
    pub(super) tree: Tree,
    pub(super) schedule: Schedule,
    pub(super) capacity: Option<u64>,
    /// Files lend what was preallocated.
    pub(super) has_windows: bool,
    /// What failed syncs dropped may go from memory; chooses.
    pub(super) evicts: Option<u64>,
    /// Some did.
    pub(super) has_evicted: bool,
    locked: BTreeSet<Inode>,
    /// How many share a directory.
    shared: BTreeMap<Inode, usize>,
}

/// What the system says.
type Answer<T> = Result<T, Errno>;

impl Disk {
    pub(super) fn new() -> Self {
        Self {
            tree: Tree::new(),
            schedule: Schedule::default(),
            capacity: None,
            has_windows: false,
            evicts: None,
            has_evicted: false,
            locked: BTreeSet::new(),
            shared: BTreeMap::new(),
        }
    }

    /// The disk with this tree that succeeds this one: the same size, no locks, no faults.
    pub(super) fn successor(&self, tree: Tree) -> Self {
        Self {
            tree,
            schedule: self.schedule.successor(),
            capacity: self.capacity,
            has_windows: self.has_windows,
            evicts: self.evicts,
            has_evicted: false,
            locked: BTreeSet::new(),
            shared: BTreeMap::new(),
        }
    }

    /// What chooses the pages that go from memory now, if any do.
    pub(super) fn luck_of_pages(&self) -> Option<SeededEntropy> {
        self.evicts.map(|seed| SeededEntropy::new(seed ^ self.schedule.op_count().wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn used(&self) -> u64 {
        self.tree.files().filter(|file| file.is_alive()).map(|file| file.content.allocated()).sum()
    }

    /// What files may still take up, in whole blocks.
    fn room(&self) -> u64 {
        let room = self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()));
        room / BLOCK_BYTES * BLOCK_BYTES
    }

    // Files by path.

    pub(super) fn create(&mut self, path: &Path) -> Answer<Inode> {
        self.schedule.begin(format_args!("create {}", path.display()))?;
        let created = self.tree.name(path).and_then(|name| match self.tree.entry(name.0, &name.1)? {
            Some(_) => Err(Errno::EXIST),
            None => Ok(self.tree.add(name, Node::File(File::default()))),
        });
        self.schedule.end(created)
    }

    /// Opens for appending: an operation only if something is cut off.
    pub(super) fn reopen(&mut self, path: &Path, len: u64) -> Answer<Inode> {
        self.schedule.begin_read()?;
        let inode = self.tree.find(path)?;
        let found = self.tree.file(inode)?.content.file_len();
        if len > found {
            return Err(Errno::INVAL);
        }
        if len < found {
            self.cut(inode, path, len)?;
        }
        self.tree.file_mut(inode)?.content.append_behind_zeroes();
        Ok(inode)
    }

    /// Opens for appending from the start, over what is there.
    pub(super) fn write_over(&mut self, path: &Path) -> Answer<Inode> {
        self.schedule.begin_read()?;
        let inode = self.tree.find(path)?;
        self.tree.file_mut(inode)?.content.write_over();
        Ok(inode)
    }

    pub(super) fn open(&mut self, path: &Path) -> Answer<Inode> {
        self.schedule.begin_read()?;
        let inode = self.tree.find(path)?;
        self.tree.file(inode)?;
        Ok(inode)
    }

    pub(super) fn hold(&mut self, inode: Inode) {
        if let Ok(file) = self.tree.file_mut(inode) {
            file.handles += 1;
        }
    }

    pub(super) fn release(&mut self, inode: Inode) {
        if let Ok(file) = self.tree.file_mut(inode) {
            file.handles = file.handles.saturating_sub(1);
        }
    }

    pub(super) fn lock(&mut self, path: &Path) -> Answer<Inode> {
        let inode = match self.tree.find(path) {
            Err(Errno::NOENT) => self.create(path)?,
            found => {
                self.schedule.begin_read()?;
                found?
            }
        };
        self.tree.file(inode)?;
        if self.locked.insert(inode) { Ok(inode) } else { Err(Errno::WOULDBLOCK) }
    }

    pub(super) fn unlock(&mut self, inode: Inode) {
        self.locked.remove(&inode);
    }

    /// `WOULDBLOCK` while somebody has it alone.
    pub(super) fn share_dir(&mut self, dir: &Path) -> Answer<Inode> {
        let inode = self.find_dir(dir)?;
        if self.locked.contains(&inode) {
            return Err(Errno::WOULDBLOCK);
        }
        *self.shared.entry(inode).or_default() += 1;
        Ok(inode)
    }

    pub(super) fn unshare(&mut self, inode: Inode) {
        if let Some(count) = self.shared.get_mut(&inode) {
            *count -= 1;
        }
    }

    /// Given up by [`unlock`](Self::unlock).
    pub(super) fn claim_dir(&mut self, dir: &Path) -> Answer<Inode> {
        let inode = self.find_dir(dir)?;
        let is_shared = self.shared.get(&inode).is_some_and(|&count| count > 0);
        if !is_shared && self.locked.insert(inode) { Ok(inode) } else { Err(Errno::WOULDBLOCK) }
    }

    fn find_dir(&mut self, dir: &Path) -> Answer<Inode> {
        self.schedule.begin_read()?;
        let inode = self.tree.find(dir)?;
        self.tree.directory(inode)?;
        Ok(inode)
    }

    pub(super) fn punch_hole(&mut self, path: &Path, range: &Range<u64>) -> Answer<()> {
        self.schedule.begin(format_args!("punch_hole {} {range:?}", path.display()))?;
        let inode = self.tree.find(path);
        let punched = inode.and_then(|inode| self.tree.file_mut(inode)).map(|file| file.content.punch_hole(range));
        self.schedule.end(punched)
    }

    // Files by handle. The path is for the trace.

    /// With `is_mapped`, a failure moves no end.
    pub(super) fn append(
        &mut self,
        inode: Inode,
        path: &Path,
        parts: &[&[u8]],
        is_mapped: bool,
        is_padded: bool,
    ) -> Answer<()> {
        let count: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(kept) = self.schedule.take_death_within() {
            self.tree.file_mut(inode)?.content.append_dying(&parts.concat(), kept, is_padded);
        }
        let fault = self.schedule.begin_divisible(format_args!("append {} {count} bytes", path.display()))?;
        let (chosen, errno) = match fault {
            None => (count, Errno::NOSPC),
            Some(Fault::ShortWrite { kept_bytes }) => (kept_bytes as u64, Errno::NOSPC),
            Some(Fault::EioAfter) => (count, Errno::IO),
            Some(fault) => (0, fault.errno()),
        };
        let room = self.room();
        let content = &mut self.tree.file_mut(inode)?.content;
        let kept = chosen.min(count).min(content.free_tail().saturating_add(room));
        let is_done = fault.is_none() && kept == count;
        if is_mapped && !is_done {
            // A system call that got all of it in says so.
            content.append_in_vain(slice(&parts.concat(), 0, kept.min(count.saturating_sub(1))));
            return Err(errno);
        }
        let mut left = kept;
        for part in parts {
            let part = slice(part, 0, left);
            content.append(part);
            left -= part.len() as u64;
        }
        if kept == count {
            content.mark_end();
        }
        if is_done { Ok(()) } else { Err(errno) }
    }

    pub(super) fn preallocate(&mut self, inode: Inode, path: &Path, len: u64) -> Answer<()> {
        self.schedule.begin(format_args!("preallocate {} to {len}", path.display()))?;
        let room = self.room();
        let done = self.tree.file_mut(inode).and_then(|File { content, .. }| {
            if len.saturating_sub(content.len()) > content.free_tail().saturating_add(room) {
                return Err(Errno::NOSPC);
            }
            content.preallocate(len);
            Ok(())
        });
        self.schedule.end(done)
    }

    pub(super) fn sync(&mut self, inode: Inode, path: &Path) -> Answer<()> {
        let fault = self.schedule.begin_sync(format_args!("sync {}", path.display()))?;
        let luck = self.luck_of_pages();
        let content = &mut self.tree.file_mut(inode)?.content;
        match fault {
            None => {
                content.sync();
                Ok(())
            }
            Some(fault) => {
                if fault == Fault::EioAfter {
                    content.sync()
                } else {
                    content.fail_sync();
                    self.has_evicted |= luck.is_some_and(|random| content.evict(&random));
                }
                Err(fault.errno())
            }
        }
    }

    pub(super) fn truncate(&mut self, inode: Inode, path: &Path, len: u64) -> Answer<()> {
        if len > self.len(inode) {
            self.schedule.begin(format_args!("truncate {} to {len}", path.display()))?;
            return self.schedule.end(Err(Errno::INVAL));
        }
        self.cut(inode, path, len)
    }

    fn cut(&mut self, inode: Inode, path: &Path, len: u64) -> Answer<()> {
        self.schedule.begin(format_args!("truncate {} to {len}", path.display()))?;
        let cut = self.tree.file_mut(inode).map(|file| file.content.truncate(len));
        self.schedule.end(cut)
    }

    /// Lets zeroes follow what was appended, where there is room.
    pub(super) fn pad(&mut self, inode: Inode) {
        let room = self.room();
        if let Ok(file) = self.tree.file_mut(inode) {
            file.content.pad(room);
        }
    }

    pub(super) fn seal(&mut self, inode: Inode, path: &Path) -> Answer<()> {
        self.schedule.begin(format_args!("seal {}", path.display()))?;
        let sealed = self.tree.file_mut(inode).map(|file| file.content.truncate(file.content.len()));
        self.schedule.end(sealed)
    }

    pub(super) fn len(&self, inode: Inode) -> u64 {
        self.tree.file(inode).map_or(0, |file| file.content.len())
    }

    pub(super) fn read(&mut self, inode: Inode) -> Answer<&Content> {
        self.schedule.begin_read()?;
        Ok(&self.tree.file(inode)?.content)
    }

    // Names.

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> Answer<()> {
        let parts = parts(dir);
        let mut path = PathBuf::from("/");
        for (depth, part) in parts.iter().enumerate() {
            path.push(part);
            match self.tree.find(&path) {
                Err(Errno::NOENT) => {
                    self.schedule.begin(format_args!("create_dir {}", path.display()))?;
                    let added =
                        self.tree.name(&path).map(|name| self.tree.add(name, Node::Directory(Directory::default())));
                    self.schedule.end(added)?;
                }
                found => {
                    self.schedule.begin_read()?;
                    let in_the_way = if depth + 1 == parts.len() { Errno::EXIST } else { Errno::NOTDIR };
                    self.tree.directory(found?).map_err(|_| in_the_way)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Answer<()> {
        self.schedule.begin(format_args!("rename {} to {}", from.display(), to.display()))?;
        let done = self.tree.rename(from, to);
        self.schedule.end(done)
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Answer<()> {
        self.schedule.begin(format_args!("link {} as {}", from.display(), to.display()))?;
        let done = self.tree.link(from, to);
        self.schedule.end(done)
    }

    pub(super) fn remove(&mut self, path: &Path) -> Answer<()> {
        self.schedule.begin(format_args!("remove {}", path.display()))?;
        let done = self.tree.remove(path);
        self.schedule.end(done)
    }

    pub(super) fn remove_dir(&mut self, dir: &Path) -> Answer<()> {
        self.schedule.begin(format_args!("remove_dir {}", dir.display()))?;
        let done = self.tree.remove_dir(dir);
        self.schedule.end(done)
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> Answer<()> {
        self.schedule.begin(format_args!("sync_dir {}", dir.display()))?;
        let synced = self.tree.find(dir).and_then(|inode| self.tree.directory(inode).map(|_| inode)).map(|inode| {
            let changes = names::take_for_sync(&mut self.tree.pending, inode);
            self.tree.make_durable(&changes);
        });
        self.schedule.end(synced)
    }

    pub(super) fn list(&mut self, dir: &Path) -> Answer<Vec<DirEntry>> {
        self.schedule.begin_read()?;
        let directory = self.tree.directory(self.tree.find(dir)?)?;
        let entry = |(name, inode): (&OsString, &Inode)| DirEntry {
            name: name.to_string_lossy().into_owned(),
            kind: self.tree.directory(*inode).map_or(FileKind::File, |_| FileKind::Directory),
        };
        let mut entries: Vec<DirEntry> = directory.live.iter().map(entry).collect();
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(entries)
    }

    /// Of an open file.
    pub(super) fn identity(&mut self, inode: Inode) -> Answer<(u64, u64)> {
        self.schedule.begin_read()?;
        Ok((0, inode))
    }

    pub(super) fn metadata(&mut self, path: &Path) -> Answer<Metadata> {
        self.schedule.begin_read()?;
        let inode = self.tree.find(path)?;
        let identity = (0, inode);
        Ok(match self.tree.file(inode) {
            Ok(file) => Metadata {
                kind: FileKind::File,
                len: file.content.file_len(),
                allocated: file.content.allocated(),
                links: file.links,
                identity,
            },
            Err(_) => Metadata { kind: FileKind::Directory, len: 0, allocated: 0, links: 1, identity },
        })
    }

    pub(super) fn space(&mut self, path: &Path) -> Answer<Space> {
        self.schedule.begin_read()?;
        self.tree.find(path)?;
        let total = self.capacity.unwrap_or(UNLIMITED_BYTES);
        Ok(Space { total, available: total.saturating_sub(self.used()) })
    }

    // Behind the back of the machine.

    pub(super) fn content_mut(&mut self, path: &Path) -> Option<&mut Content> {
        let inode = self.tree.find(path).ok()?;
        self.tree.file_mut(inode).ok().map(|file| &mut file.content)
    }

    pub(super) fn overwrite(&mut self, path: &Path, bytes: Vec<u8>) {
        // Whatever is pending about these names must come first, or a power loss would undo this.
        let Some(inode) = self.tree.plant(path) else {
            return;
        };
        if let Ok(file) = self.tree.file_mut(inode) {
            let left = Left { file_len: bytes.len() as u64, bytes };
            file.content = Content::durable(left, &BTreeSet::new());
        }
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.tree.paths()
    }
}
