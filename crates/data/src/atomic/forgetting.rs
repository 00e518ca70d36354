//! Test file system that forgets what was not synced.

mod recording;
mod states;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

use super::{Disk, Real};

pub(super) use recording::note;

/// File system on a real directory that records every change, and afterwards lists what a loss of
/// power could have left ([`ForgettingDisk::losses`], [`ForgettingDisk::mixture`]).
///
/// It is the [`Disk`] of the functions that take one. [`ForgettingDisk::record`] records the
/// changes of any other work through [`Real`] and the functions of [`crate::atomic`], on all
/// threads.
///
/// The model is weaker than any file system: a change of a directory's entries (a creation, a
/// link, a rename, a removal) may be lost or kept, independently of earlier and later ones, until
/// that directory is synced; a rename is one change. The bytes of a file may be lost, torn or kept
/// until the file is synced. This covers reordered writes, which journals mostly prevent.
///
/// Source: the crash states follow Pillai et al., "All File Systems Are Not Created Equal: On the
/// Complexity of Crafting Crash-Consistent Applications", OSDI 2014, section 3.
#[derive(Debug)]
pub struct ForgettingDisk {
    root: PathBuf,
    nodes: Vec<Node>,
    /// Entries before the first step.
    before: Entries,
    /// Entries now.
    now: Entries,
    steps: Vec<Step>,
    /// True to treat directories as never synced, to prove that a test would notice it.
    ignores_syncs: bool,
    /// Part of the names of files that are left out of the states.
    left_out: Option<&'static str>,
    /// First change that does not fit to the recorded ones.
    unknown: Option<String>,
}

/// Node of a name in a directory.
type Entries = BTreeMap<(usize, String), usize>;

/// Change of an entry: directory, name, and the node that the name then has.
type Entry = (usize, String, Option<usize>);

/// The root directory.
const ROOT: usize = 0;

#[derive(Debug)]
enum Node {
    Directory,
    File {
        /// Bytes before the first step.
        before: Vec<u8>,
        /// True if bytes may reach the disk at any time between two syncs.
        is_open: bool,
    },
}

#[derive(Debug)]
enum Step {
    /// Change of entries as one.
    Change(Vec<Entry>),
    /// Sync of a directory's entries.
    Sync(usize),
    /// Sync of a file, which then has these bytes.
    Content(usize, Vec<u8>),
}

impl ForgettingDisk {
    /// Takes the contents of the directory `root` as durable.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn new(root: &Path) -> io::Result<Self> {
        let mut disk = Self {
            root: root.to_path_buf(),
            nodes: vec![Node::Directory],
            before: Entries::new(),
            now: Entries::new(),
            steps: Vec::new(),
            ignores_syncs: false,
            left_out: None,
            unknown: None,
        };
        disk.take(root, ROOT)?;
        disk.now.clone_from(&disk.before);
        Ok(disk)
    }

    /// Treats directories as never synced.
    #[must_use]
    pub fn ignoring_syncs(mut self) -> Self {
        self.ignores_syncs = true;
        self
    }

    /// Leaves files whose name contains `part` out of the states of [`ForgettingDisk::mixture`] and
    /// [`ForgettingDisk::is_durable`]: those that readers add to a finished directory.
    #[must_use]
    pub fn without(mut self, part: &'static str) -> Self {
        self.left_out = Some(part);
        self
    }

    fn take(&mut self, path: &Path, node: usize) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = entry.file_type()?.is_dir();
            let of = if is_dir {
                Node::Directory
            } else {
                Node::File { before: fs::read(entry.path())?, is_open: false }
            };
            self.nodes.push(of);
            let child = self.nodes.len() - 1;
            self.before.insert((node, name), child);
            if is_dir {
                self.take(&entry.path(), child)?;
            }
        }
        Ok(())
    }

    /// Directory and name of a path below the root.
    fn place(&self, path: &Path) -> io::Result<(usize, String)> {
        let inside = path.strip_prefix(&self.root).map_err(io::Error::other)?;
        let mut names: Vec<String> = inside
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect();
        let name = names.pop().unwrap_or_default();
        let step = |dir, name: String| self.now.get(&(dir, name)).copied();
        let dir = names.into_iter().try_fold(ROOT, step).ok_or(io::ErrorKind::NotFound)?;
        Ok((dir, name))
    }

    /// Node of a path; the root for the root.
    fn node(&self, path: &Path) -> io::Result<usize> {
        let (dir, name) = self.place(path)?;
        if name.is_empty() {
            return Ok(ROOT);
        }
        self.now.get(&(dir, name)).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, entries: Vec<Entry>) {
        apply(&mut self.now, &entries);
        self.steps.push(Step::Change(entries));
    }

    /// Records a new node of a path.
    fn create(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let (dir, name) = self.place(path)?;
        self.nodes.push(node);
        let node = self.nodes.len() - 1;
        self.change(vec![(dir, name, Some(node))]);
        Ok(node)
    }

    /// Records a new directory.
    pub(super) fn made(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, Node::Directory).map(drop)
    }

    /// Records a new, empty file to which bytes are written from now on.
    pub(super) fn opened(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, Node::File { before: Vec::new(), is_open: true }).map(drop)
    }

    /// Records the file of a lock, which this process may have created.
    pub(super) fn locked(&mut self, path: &Path) -> io::Result<()> {
        if self.node(path).is_ok() { Ok(()) } else { self.opened(path) }
    }

    /// Records the sync of a file with its present bytes. One that was created in another way
    /// counts as created now.
    pub(super) fn synced(&mut self, path: &Path) -> io::Result<()> {
        let node = match self.node(path) {
            Ok(node) => node,
            Err(_) => self.create(path, Node::File { before: Vec::new(), is_open: false })?,
        };
        self.steps.push(Step::Content(node, fs::read(path)?));
        Ok(())
    }

    /// Records the sync of a directory.
    pub(super) fn synced_dir(&mut self, path: &Path) -> io::Result<()> {
        let node = self.node(path)?;
        self.steps.push(Step::Sync(node));
        Ok(())
    }

    /// Records a rename.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.node(from)?;
        let [(dir, name), (new_dir, new_name)] = [self.place(from)?, self.place(to)?];
        self.change(vec![(dir, name, None), (new_dir, new_name, Some(node))]);
        Ok(())
    }

    /// Records an exchange of two paths.
    pub(super) fn exchanged(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        let nodes = [self.node(one)?, self.node(other)?];
        let [(dir, name), (other_dir, other_name)] = [self.place(one)?, self.place(other)?];
        self.change(vec![(dir, name, Some(nodes[1])), (other_dir, other_name, Some(nodes[0]))]);
        Ok(())
    }

    /// Records a link to a file. One outside of the root counts as synced.
    pub(super) fn linked(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if from.starts_with(&self.root) {
            let (node, (dir, name)) = (self.node(from)?, self.place(to)?);
            self.change(vec![(dir, name, Some(node))]);
        } else {
            self.create(to, Node::File { before: fs::read(to)?, is_open: false })?;
        }
        Ok(())
    }

    /// Records a removal. What was not recorded before has no state to lose.
    pub(super) fn removed(&mut self, path: &Path) -> io::Result<()> {
        if self.node(path).is_ok() {
            let (dir, name) = self.place(path)?;
            self.change(vec![(dir, name, None)]);
        }
        Ok(())
    }
}

fn apply(entries: &mut Entries, change: &[Entry]) {
    for (dir, name, node) in change {
        match node {
            Some(node) => entries.insert((*dir, name.clone()), *node),
            None => entries.remove(&(*dir, name.clone())),
        };
    }
}

impl Disk for ForgettingDisk {
    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.made(path)
    }

    fn write(&mut self, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        Real.write(path, fill)?;
        self.opened(path)?;
        self.synced(path)
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        Real.append(path, bytes)?;
        self.synced(path)
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.synced_dir(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        self.renamed(from, to)
    }

    fn exchange(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        Real.exchange(one, other)?;
        self.exchanged(one, other)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        self.removed(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)?;
        self.removed(path)
    }
}
