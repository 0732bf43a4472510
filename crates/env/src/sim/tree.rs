//! Files and directories, and the way to them.
//!
//! - T1: a node stays as long as something can lead to it: a name (live, durable or pending) or an open handle.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::content::Content;
use super::names::{self, Change, Entries, Inode, Name};

/// The directory that is always there.
pub(super) const ROOT: Inode = 0;

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(File),
    Directory(Directory),
}

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) content: Content,
    /// Live names.
    pub(super) links: u64,
    /// Open handles.
    pub(super) handles: u64,
}

impl File {
    pub(super) fn is_alive(&self) -> bool {
        self.links > 0 || self.handles > 0
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) live: Entries,
    pub(super) durable: Entries,
}

#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<Inode, Node>,
    pub(super) pending: Vec<Change>,
    next: Inode,
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Node::Directory(Directory::default());
        Self { nodes: BTreeMap::from([(ROOT, root)]), pending: Vec::new(), next: ROOT + 1 }
    }

    /// What `path` stands for.
    pub(super) fn find(&self, path: &Path) -> Result<Inode, Errno> {
        self.walk(&parts(path))
    }

    fn walk(&self, parts: &[&OsStr]) -> Result<Inode, Errno> {
        parts.iter().try_fold(ROOT, |dir, part| self.entry(dir, part)?.ok_or(Errno::NOENT))
    }

    /// The name at the end of `path`, in a directory that is there.
    pub(super) fn name(&self, path: &Path) -> Result<Name, Errno> {
        let parts = parts(path);
        // The root has no name to give or take.
        let (last, above) = parts.split_last().ok_or(Errno::BUSY)?;
        let dir = self.walk(above)?;
        self.directory(dir)?;
        Ok((dir, OsString::from(last)))
    }

    pub(super) fn entry(&self, dir: Inode, name: &OsStr) -> Result<Option<Inode>, Errno> {
        Ok(self.directory(dir)?.live.get(name).copied())
    }

    pub(super) fn directory(&self, inode: Inode) -> Result<&Directory, Errno> {
        match self.nodes.get(&inode) {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::File(_)) => Err(Errno::NOTDIR),
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn file(&self, inode: Inode) -> Result<&File, Errno> {
        match self.nodes.get(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Errno::ISDIR),
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn file_mut(&mut self, inode: Inode) -> Result<&mut File, Errno> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Errno::ISDIR),
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.nodes.values().filter_map(|node| match node {
            Node::File(file) => Some(file),
            Node::Directory(_) => None,
        })
    }

    /// Puts a new node under a free name.
    pub(super) fn add(&mut self, name: Name, node: Node) -> Inode {
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, node);
        self.set(&name, inode);
        self.pending.push(Change::Set { name, inode });
        inode
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let inode = self.find(from)?;
        let name = self.name(to)?;
        if self.entry(name.0, &name.1)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.file(inode).map_err(|_| Errno::PERM)?;
        self.set(&name, inode);
        self.pending.push(Change::Set { name, inode });
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let (from_name, to_name) = (self.name(from)?, self.name(to)?);
        let inode = self.entry(from_name.0, &from_name.1)?.ok_or(Errno::NOENT)?;
        let replaced = self.entry(to_name.0, &to_name.1)?;
        // POSIX: two names of one file stay two names.
        if replaced == Some(inode) {
            return Ok(());
        }
        let is_directory = self.directory(inode).is_ok();
        if is_directory && parts(to).starts_with(&parts(from)) {
            return Err(Errno::INVAL);
        }
        if let Some(replaced) = replaced {
            match self.directory(replaced) {
                Ok(_) if !is_directory => return Err(Errno::ISDIR),
                Ok(directory) if !directory.live.is_empty() => return Err(Errno::NOTEMPTY),
                Err(_) if is_directory => return Err(Errno::NOTDIR),
                _ => {}
            }
        }
        self.unset(&from_name);
        self.unset(&to_name);
        self.set(&to_name, inode);
        self.pending.push(Change::Rename { from: from_name, to: to_name, inode });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<(), Errno> {
        let name = self.name(path)?;
        let inode = self.entry(name.0, &name.1)?.ok_or(Errno::NOENT)?;
        self.file(inode)?;
        self.unset(&name);
        self.pending.push(Change::Unset { name, inode });
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<(), Errno> {
        let name = self.name(path)?;
        let inode = self.entry(name.0, &name.1)?.ok_or(Errno::NOENT)?;
        if !self.directory(inode)?.live.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.unset(&name);
        self.pending.push(Change::Unset { name, inode });
        Ok(())
    }

    /// Applies `changes` to the durable names.
    pub(super) fn make_durable(&mut self, changes: &[Change]) {
        let mut entries: BTreeMap<Inode, Entries> = BTreeMap::new();
        for change in changes {
            for (dir, _) in change.names() {
                if let Some(Node::Directory(directory)) = self.nodes.get_mut(dir) {
                    entries.entry(*dir).or_insert_with(|| std::mem::take(&mut directory.durable));
                }
            }
            change.apply(&mut entries);
        }
        for (dir, entries) in entries {
            if let Some(Node::Directory(directory)) = self.nodes.get_mut(&dir) {
                directory.durable = entries;
            }
        }
        if changes.iter().any(|change| !matches!(change, Change::Set { .. })) {
            self.sweep();
        }
    }

    /// Drops what nothing leads to any more (T1).
    fn sweep(&mut self) {
        let mut wanted: BTreeSet<Inode> = self.pending.iter().map(Change::inode).collect();
        wanted.insert(ROOT);
        for node in self.nodes.values() {
            if let Node::Directory(directory) = node {
                wanted.extend(directory.live.values().chain(directory.durable.values()));
            }
        }
        self.nodes.retain(|inode, node| match node {
            Node::File(file) => file.is_alive() || wanted.contains(inode),
            Node::Directory(_) => wanted.contains(inode),
        });
    }

    /// Every file with its live path, in order.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, dir)) = dirs.pop() {
            for (name, inode) in self.directory(dir).iter().flat_map(|directory| &directory.live) {
                let path = path.join(name);
                match self.nodes.get(inode) {
                    Some(Node::Directory(_)) => dirs.push((path, *inode)),
                    Some(Node::File(_)) => found.push(path),
                    None => {}
                }
            }
        }
        found.sort();
        found
    }

    /// All that can be reached from the root by live names.
    pub(super) fn hash_live<H: Hasher>(&self, hasher: &mut H) {
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            for (name, inode) in self.directory(dir).iter().flat_map(|directory| &directory.live) {
                (dir, name, inode).hash(hasher);
                match self.nodes.get(inode) {
                    Some(Node::Directory(_)) => dirs.push(*inode),
                    Some(Node::File(file)) => file.content.hash_live(hasher),
                    None => {}
                }
            }
        }
    }

    /// The file at `path`, made with the directories above it if need be; its name and theirs become durable.
    /// `None` if something else is in the way.
    pub(super) fn plant(&mut self, path: &Path) -> Option<Inode> {
        let parts = parts(path);
        let mut inode = ROOT;
        for (depth, part) in parts.iter().enumerate() {
            let dir = inode;
            inode = match self.entry(dir, part).ok()? {
                Some(inode) => inode,
                None if depth + 1 == parts.len() => self.add((dir, part.into()), Node::File(File::default())),
                None => self.add((dir, part.into()), Node::Directory(Directory::default())),
            };
            let changes = names::take_for_name(&mut self.pending, &(dir, part.into()));
            self.make_durable(&changes);
        }
        self.file(inode).ok().map(|_| inode)
    }

    /// The same without its nodes: new ones get numbers that no node ever had.
    pub(super) fn without_nodes(&self) -> Self {
        Self { nodes: BTreeMap::new(), pending: Vec::new(), next: self.next }
    }

    fn set(&mut self, (dir, name): &Name, inode: Inode) {
        if let Some(Node::Directory(directory)) = self.nodes.get_mut(dir) {
            directory.live.insert(name.clone(), inode);
        }
        if let Ok(file) = self.file_mut(inode) {
            file.links += 1;
        }
    }

    fn unset(&mut self, (dir, name): &Name) {
        let Some(Node::Directory(directory)) = self.nodes.get_mut(dir) else {
            return;
        };
        if let Some(inode) = directory.live.remove(name)
            && let Ok(file) = self.file_mut(inode)
        {
            file.links -= 1;
        }
    }
}

/// The names on the way from the root.
pub(super) fn parts(path: &Path) -> Vec<&OsStr> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => {
                parts.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    parts
}
