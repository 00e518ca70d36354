//! States that a loss of power could leave.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Entries, Entry, ForgettingDisk, Node, ROOT, Step, apply};

/// Largest number of pending changes of which all subsets are tried.
const ALL_SUBSETS: usize = 7;

/// Contents of a state: paths below the root, parents first, with the bytes of files; `None` is a
/// directory.
pub(super) type Contents<'a> = Vec<(PathBuf, Option<&'a [u8]>)>;

/// File whose bytes were not synced, with those that the disk has.
type Torn<'a> = Option<(usize, &'a [u8])>;

impl ForgettingDisk {
    /// Calls `see` with every state that a loss of power after, or during, each step could leave: a
    /// fresh directory with the contents of the root, and the number of steps before the loss.
    ///
    /// # Errors
    /// A state cannot be written to a temporary directory `scratch`.
    pub fn losses(&self, scratch: &Path, see: &mut dyn FnMut(&Path, usize)) -> io::Result<()> {
        for cut in 0..=self.steps.len() {
            self.after(cut, Path::new(""), &mut |contents| {
                let state = scratch.join("state");
                fs::create_dir(&state)?;
                for (path, bytes) in contents {
                    match bytes {
                        None => fs::create_dir(state.join(path))?,
                        Some(bytes) => fs::write(state.join(path), bytes)?,
                    }
                }
                see(&state, cut);
                fs::remove_dir_all(&state)
            })?;
        }
        Ok(())
    }

    /// Returns the first number of steps after which a loss of power could leave at `place`, a
    /// path below the root, neither what it held before the first step nor what it holds now; the
    /// number of all steps if it could leave the former then. `None` if no loss can.
    ///
    /// # Errors
    /// A file at `place` was written in another way than through [`crate::atomic`], or has bytes
    /// that were never synced.
    pub fn mixture(&self, place: &str) -> io::Result<Option<usize>> {
        let place = Path::new(place);
        self.check_complete(place)?;
        let now = self.visible(self.contents(&self.now, place, self.steps.len(), None));
        let before = self.visible(self.contents(&self.before, place, 0, None));
        for cut in 0..=self.steps.len() {
            let mut is_whole = true;
            self.after(cut, place, &mut |contents| {
                let contents = self.visible(contents.clone());
                is_whole &= contents == now || (cut < self.steps.len() && contents == before);
                Ok(())
            })?;
            if !is_whole {
                return Ok(Some(cut));
            }
        }
        Ok(None)
    }

    /// Returns true if no loss of power after the last step can change what `place`, a path below
    /// the root, holds.
    ///
    /// # Errors
    /// As for [`ForgettingDisk::mixture`].
    pub fn is_durable(&self, place: &str) -> io::Result<bool> {
        let place = Path::new(place);
        self.check_complete(place)?;
        let (cut, mut is_durable) = (self.steps.len(), true);
        let now = self.visible(self.contents(&self.now, place, cut, None));
        self.after(cut, place, &mut |contents| {
            is_durable &= self.visible(contents.clone()) == now;
            Ok(())
        })?;
        Ok(is_durable)
    }

    /// The files of a state that are not left out.
    pub(super) fn visible<'a>(&self, mut contents: Contents<'a>) -> Contents<'a> {
        let is_left_out = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            self.left_out.is_some_and(|part| name.contains(part))
        };
        contents.retain(|(path, _)| !is_left_out(path));
        contents
    }

    /// Calls `see` with every state of `place` that a loss of power after `cut` steps could leave.
    fn after(
        &self,
        cut: usize,
        place: &Path,
        see: &mut dyn FnMut(&Contents<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (durable, pending) = self.at(cut);
        let (pending, nodes) = relevant(place, &durable, pending);
        let torn = self.torn(cut, &nodes);
        for kept in subsets(pending.len()) {
            let mut entries = durable.clone();
            pending.iter().zip(&kept).filter(|(_, kept)| **kept).for_each(|(change, _)| {
                apply(&mut entries, change);
            });
            for torn in &torn {
                see(&self.contents(&entries, place, cut, *torn))?;
            }
        }
        Ok(())
    }

    /// Files among `nodes` that a loss of power after `cut` steps may leave torn: none, that of the
    /// next sync, and those that are open.
    fn torn(&self, cut: usize, nodes: &BTreeSet<usize>) -> Vec<Torn<'_>> {
        let (mut torn, mut seen) = (vec![None], BTreeSet::new());
        for (i, step) in self.steps.iter().enumerate().skip(cut) {
            let Step::Content(node, bytes) = step else { continue };
            let is_open = i == cut || matches!(self.nodes[*node], Node::File { is_open: true, .. });
            if seen.insert(*node) && is_open && nodes.contains(node) {
                let middle = (self.content(*node, cut).len() + bytes.len()) / 2;
                torn.extend(
                    [&bytes[..middle.min(bytes.len())], &bytes[..]].map(|bytes| Some((*node, bytes))),
                );
            }
        }
        torn
    }

    /// Bytes that a file has for certain after `cut` steps.
    fn content(&self, node: usize, cut: usize) -> &[u8] {
        let last = self.steps[..cut].iter().rev().find_map(|step| match step {
            Step::Content(of, bytes) if *of == node => Some(&bytes[..]),
            _ => None,
        });
        last.unwrap_or(match &self.nodes[node] {
            Node::Directory => &[],
            Node::File { before, .. } => before,
        })
    }

    /// Entries that are durable after `cut` steps, and the changes that may be lost.
    fn at(&self, cut: usize) -> (Entries, Vec<&[Entry]>) {
        let (mut durable, mut pending) = (self.before.clone(), Vec::new());
        // the number of the last sync of each directory
        let mut syncs = vec![0; self.nodes.len()];
        for (i, step) in self.steps[..cut].iter().enumerate().filter(|_| !self.ignores_syncs) {
            if let Step::Sync(dir) = step {
                syncs[*dir] = i;
            }
        }
        for (i, step) in self.steps[..cut].iter().enumerate() {
            let Step::Change(change) = step else { continue };
            if change.iter().all(|(dir, ..)| syncs[*dir] > i) {
                apply(&mut durable, change);
            } else {
                pending.push(&change[..]);
            }
        }
        (durable, pending)
    }

    /// Contents of `place` with these entries after `cut` steps.
    pub(super) fn contents<'a>(
        &'a self,
        entries: &Entries,
        place: &Path,
        cut: usize,
        torn: Torn<'a>,
    ) -> Contents<'a> {
        let (mut contents, mut open) = (Vec::new(), vec![(ROOT, PathBuf::new())]);
        while let Some((dir, path)) = open.pop() {
            for ((_, name), &node) in entries.range((dir, String::new())..(dir + 1, String::new())) {
                let path = path.join(name);
                let is_inside = path.starts_with(place);
                if !is_inside && !place.starts_with(&path) {
                    continue;
                }
                let bytes = match self.nodes[node] {
                    Node::Directory => {
                        open.push((node, path.clone()));
                        None
                    }
                    Node::File { .. } => Some(match torn {
                        Some((of, bytes)) if of == node => bytes,
                        _ => self.content(node, cut),
                    }),
                };
                if is_inside {
                    contents.push((path, bytes));
                }
            }
        }
        contents
    }
}

/// Keeps of the `pending` changes those that may change what `place` holds. Returns also the nodes
/// that may lie there.
fn relevant<'a>(
    place: &Path,
    durable: &Entries,
    mut pending: Vec<&'a [Entry]>,
) -> (Vec<&'a [Entry]>, BTreeSet<usize>) {
    let known = durable.iter().map(|((dir, name), node)| (*dir, &name[..], *node));
    let possible = pending.iter().flat_map(|change| change.iter());
    let possible = possible.filter_map(|(dir, name, node)| Some((*dir, &name[..], (*node)?)));
    let entries: Vec<_> = known.chain(possible).collect();
    // names on the way to the place, and then the nodes there and below
    let (mut way, mut nodes) = (BTreeSet::new(), BTreeSet::from([ROOT]));
    for name in place {
        let name = name.to_string_lossy();
        way.extend(nodes.iter().map(|&dir| (dir, name.to_string())));
        let next = entries.iter().filter(|(dir, of, _)| nodes.contains(dir) && *of == name);
        nodes = next.map(|(.., node)| *node).collect();
    }
    loop {
        let below = entries.iter().filter(|(dir, ..)| nodes.contains(dir)).map(|(.., node)| *node);
        let more: Vec<_> = below.filter(|node| !nodes.contains(node)).collect();
        if more.is_empty() {
            break;
        }
        nodes.extend(more);
    }
    pending.retain(|change| {
        change.iter().any(|(dir, name, _)| nodes.contains(dir) || way.contains(&(*dir, name.clone())))
    });
    (pending, nodes)
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
