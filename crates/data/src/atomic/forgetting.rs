//! Test file system that forgets what was not synced.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::{Disk, Real, disk::create_fresh};

/// File system on a real directory that records every change, and afterwards lists what a loss of
/// power could have left ([`ForgettingDisk::losses`]).
///
/// The model is weaker than any file system: a change of a directory's entries (a creation, a
/// rename, a removal) may be lost or kept, independently of earlier and later ones, until that
/// directory is synced; a rename is one change. A file is synced by [`Disk::write`] and
/// [`Disk::append`], but is torn if the power goes while it is written. This covers reordered
/// writes, which journals mostly prevent.
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
    File(Vec<u8>),
}

#[derive(Debug)]
enum Step {
    /// Change of entries as one.
    Change(Vec<Entry>),
    /// Sync of a directory's entries.
    Sync(usize),
    /// Growth of a file from one length to another, with a sync.
    Append { node: usize, from: usize, to: usize },
}

/// Largest number of pending changes of which all subsets are tried.
const ALL_SUBSETS: usize = 7;

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

    fn take(&mut self, path: &Path, node: usize) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = entry.file_type()?.is_dir();
            let of = if is_dir { Node::Directory } else { Node::File(fs::read(entry.path())?) };
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

    fn create(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        self.nodes.push(node);
        self.change(vec![(dir, name, Some(self.nodes.len() - 1))]);
        Ok(())
    }

    /// Calls `see` with every state that a loss of power after, or during, each step could leave: a
    /// fresh directory with the contents of the root, and the number of steps before the loss.
    ///
    /// # Errors
    /// A state cannot be written to a temporary directory `scratch`.
    pub fn losses(&self, scratch: &Path, see: &mut dyn FnMut(&Path, usize)) -> io::Result<()> {
        for cut in 0..=self.steps.len() {
            let (durable, pending) = self.at(cut);
            for kept in subsets(pending.len()) {
                let mut entries = durable.clone();
                pending.iter().zip(&kept).filter(|(_, kept)| **kept).for_each(|(change, _)| {
                    apply(&mut entries, change);
                });
                // the newest file may be torn if the loss came before its sync ended
                let newest = pending.last().and_then(|change| match change[..] {
                    [(_, _, Some(node))] if matches!(self.nodes[node], Node::File(_)) => Some(node),
                    _ => None,
                });
                for torn in self.torn(newest, cut) {
                    let state = scratch.join("state");
                    fs::create_dir(&state)?;
                    self.write_out(&entries, ROOT, &state, (torn, cut))?;
                    see(&state, cut);
                    fs::remove_dir_all(&state)?;
                }
            }
        }
        Ok(())
    }

    /// Files that a loss of power after `cut` steps may leave torn, each with its length: none, the
    /// `newest`, or the one that the last step appended to.
    fn torn(&self, newest: Option<usize>, cut: usize) -> Vec<Option<(usize, usize)>> {
        let mut torn = vec![None];
        torn.extend(newest.map(|node| Some((node, self.length(node, cut) / 2))));
        if let Some(&Step::Append { node, from, to }) = cut.checked_sub(1).map(|last| &self.steps[last]) {
            torn.extend([from, (from + to) / 2].map(|length| Some((node, length))));
        }
        torn
    }

    /// Length of a file after `cut` steps.
    fn length(&self, node: usize, cut: usize) -> usize {
        let later = self.steps[cut..].iter().find_map(|step| match step {
            Step::Append { node: of, from, .. } if *of == node => Some(*from),
            _ => None,
        });
        later.unwrap_or(match &self.nodes[node] {
            Node::Directory => 0,
            Node::File(bytes) => bytes.len(),
        })
    }

    /// Entries that are durable after `cut` steps, and the changes that may be lost.
    fn at(&self, cut: usize) -> (Entries, Vec<&[Entry]>) {
        let (mut durable, mut pending) = (self.before.clone(), Vec::new());
        for (i, step) in self.steps[..cut].iter().enumerate() {
            let Step::Change(change) = step else { continue };
            let is_synced = |dir: usize| {
                let later = self.steps[i..cut].iter();
                later.filter(|step| matches!(step, Step::Sync(synced) if *synced == dir)).count() > 0
            };
            if !self.ignores_syncs && change.iter().all(|(dir, ..)| is_synced(*dir)) {
                apply(&mut durable, change);
            } else {
                pending.push(&change[..]);
            }
        }
        (durable, pending)
    }

    /// Writes the contents of a directory after `cut` steps, with a `torn` file of another length.
    fn write_out(
        &self,
        entries: &Entries,
        dir: usize,
        to: &Path,
        (torn, cut): (Option<(usize, usize)>, usize),
    ) -> io::Result<()> {
        for ((_, name), &node) in entries.range((dir, String::new())..(dir + 1, String::new())) {
            match &self.nodes[node] {
                Node::Directory => {
                    fs::create_dir(to.join(name))?;
                    self.write_out(entries, node, &to.join(name), (torn, cut))?;
                }
                Node::File(bytes) => {
                    let torn = torn.filter(|(of, _)| *of == node).map(|(_, length)| length);
                    let length = torn.unwrap_or_else(|| self.length(node, cut));
                    fs::write(to.join(name), &bytes[..length])?;
                }
            }
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

/// Subsets of `count` changes: all, or for many changes all that keep or lose at most one, and all
/// beginnings.
fn subsets(count: usize) -> Vec<Vec<bool>> {
    if count <= ALL_SUBSETS {
        return (0..1_usize << count).map(|set| (0..count).map(|i| set >> i & 1 == 1).collect()).collect();
    }
    let one = |kept: bool| (0..count).map(move |odd| (0..count).map(|i| (i == odd) == kept).collect());
    let beginnings = (0..=count).map(|end| (0..count).map(|i| i < end).collect());
    one(true).chain(one(false)).chain(beginnings).collect()
}

impl Disk for ForgettingDisk {
    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.create(path, Node::Directory)
    }

    fn write(
        &mut self,
        path: &Path,
        fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        fill(&mut bytes)?;
        create_fresh(path)?;
        fs::write(path, &bytes)?;
        self.create(path, Node::File(bytes))
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if !path.exists() {
            self.create(path, Node::File(Vec::new()))?;
        }
        Real.append(path, bytes)?;
        let node = self.node(path)?;
        if let Node::File(all) = &mut self.nodes[node] {
            let from = all.len();
            all.extend_from_slice(bytes);
            self.steps.push(Step::Append { node, from, to: all.len() });
        }
        Ok(())
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let node = self.node(path)?;
        self.steps.push(Step::Sync(node));
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.node(from)?;
        let [(dir, name), (new_dir, new_name)] = [self.place(from)?, self.place(to)?];
        fs::rename(from, to)?;
        self.change(vec![(dir, name, None), (new_dir, new_name, Some(node))]);
        Ok(())
    }

    fn exchange(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        let nodes = [self.node(one)?, self.node(other)?];
        let [(dir, name), (other_dir, other_name)] = [self.place(one)?, self.place(other)?];
        Real.exchange(one, other)?;
        self.change(vec![(dir, name, Some(nodes[1])), (other_dir, other_name, Some(nodes[0]))]);
        Ok(())
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        let (dir, name) = self.place(path)?;
        self.change(vec![(dir, name, None)]);
        Ok(())
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)?;
        let (dir, name) = self.place(path)?;
        self.change(vec![(dir, name, None)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};

    /// States that a loss of power during `work` in a directory with `before` could leave.
    fn states(
        before: &[(&str, &str)],
        ignores_syncs: bool,
        work: impl FnOnce(&mut ForgettingDisk, &Path),
        see: &mut dyn FnMut(&Path, usize),
    ) {
        let [root, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (name, text) in before {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut disk = ForgettingDisk::new(root.path()).unwrap();
        disk.ignores_syncs = ignores_syncs;
        work(&mut disk, root.path());
        disk.losses(scratch.path(), see).unwrap();
    }

    #[test]
    fn a_replaced_file_is_the_old_or_the_new_one_whatever_is_lost() {
        let mut finished = false;
        let work = |disk: &mut ForgettingDisk, root: &Path| {
            replace(disk, &root.join("file"), b"new one").unwrap();
        };
        let mut steps = 0;
        states(&[("file", "old")], false, work, &mut |state, cut| {
            let now = fs::read(state.join("file")).unwrap();
            assert!(now == b"old" || now == b"new one", "{now:?} after {cut} steps");
            steps = cut;
            finished = now == b"new one";
        });
        assert!(finished && steps >= 3, "the new file is durable at the end: {steps}");
    }

    #[test]
    fn appended_lines_are_durable_whatever_is_lost() {
        for before in [&[("file", "old\n")][..], &[]] {
            let old = before.first().map_or("", |(_, text)| text);
            let work = |disk: &mut ForgettingDisk, root: &Path| {
                ["one\n", "two\n"].iter().for_each(|line| {
                    append(disk, &root.join("file"), line.as_bytes()).unwrap();
                });
            };
            let whole = format!("{old}one\ntwo\n");
            let mut last = String::new();
            states(before, false, work, &mut |state, cut| {
                last = fs::read_to_string(state.join("file")).unwrap_or_default();
                assert!(whole.starts_with(&last) && last.len() >= old.len(), "{last:?} after {cut} steps");
            });
            // the last state is torn within its last step, the sync of the second line
            assert!(last.starts_with(&format!("{old}one\n")), "{last:?}");
        }
    }

    /// Names of a finished directory, its place, and the name of the replaced one: beside each
    /// other, and as a scratch has them.
    const NAMES: [[&str; 3]; 2] = [["fresh", "place", "old"], ["work/fresh", "place", "work/old"]];

    /// States that a loss of power during an exchange could leave, and whether the disk has one.
    fn exchanges(ignores_syncs: bool, see: &mut dyn FnMut([&Path; 2], usize, bool)) {
        for [fresh, place, old] in NAMES {
            let files = |dir: &str, text| ["a", "b"].map(|name| (format!("{dir}/{name}"), text));
            let before = [files(fresh, "new"), files(place, "old")].concat();
            let before: Vec<_> = before.iter().map(|(name, text)| (name.as_str(), *text)).collect();
            for atomic in [true, false] {
                let work = |disk: &mut ForgettingDisk, root: &Path| {
                    let [fresh, place, old] = [fresh, place, old].map(|name| root.join(name));
                    let names = [&*fresh, &place, &old];
                    if atomic {
                        exchange(disk, names[0], names[1], names[2]).unwrap();
                    } else {
                        exchange(&mut WithoutExchange(disk), names[0], names[1], names[2]).unwrap();
                    }
                };
                states(&before, ignores_syncs, work, &mut |state, cut| {
                    see([&state.join(place), &state.join(old)], cut, atomic);
                });
            }
        }
    }

    fn is_complete(dir: &Path) -> bool {
        let [a, b] = ["a", "b"].map(|name| fs::read_to_string(dir.join(name)).unwrap_or_default());
        a == b && ["old", "new"].contains(&a.as_str())
    }

    #[cfg(any(target_os = "linux", target_os = "macos"))]
    #[test]
    fn an_exchanged_directory_is_complete_whatever_is_lost() {
        exchanges(false, &mut |[place, old], cut, atomic| {
            let complete = if atomic || place.is_dir() { place } else { old };
            assert!(is_complete(complete), "{} after {cut} steps", complete.display());
        });
    }

    #[cfg(any(target_os = "linux", target_os = "macos"))]
    #[test]
    fn a_missing_sync_is_noticed() {
        let mut lost = [false; 2];
        exchanges(true, &mut |[place, old], _, atomic| {
            lost[usize::from(atomic)] |= !is_complete(place) && !is_complete(old);
        });
        assert_eq!(lost, [true; 2]);
    }
}
