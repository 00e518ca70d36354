//! Edges in a file, in parts by destination.
//!
//! An edge is a key, its destination in the upper and its source in the lower half of 64 bits: keys in ascending order
//! are the rows of a CSC graph. Keys are dealt to parts by splitters, the quantiles of a sample, so that the parts are
//! about equal; each part is later sorted by itself. The file is written in blocks of one part each, one behind the
//! other, whatever part they belong to.

use std::{
    fs::{File, OpenOptions},
    io::{BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::Scratch;
use crate::{EdgeOptions, Error, NodeId, Result};

/// Parts: so many that one of them is small against the whole, so few that their buffers are.
const PARTS: usize = 256;
/// Keys of a block.
pub(super) const BLOCK: usize = 1 << 14;
/// Edges between two points that a killed import can go on from.
const SYNC: u64 = 1 << 27;

/// The key of an edge.
pub(super) fn key(src: NodeId, dst: NodeId) -> u64 {
    u64::from(dst) << 32 | u64::from(src)
}

/// Splitters that cut a sample into about `parts` equal parts. A key that fills a part by itself gets one to itself, so
/// that cutting the parts of one cut again comes to an end. Ascending and distinct.
pub(super) fn splitters(mut sample: Vec<u64>, parts: usize) -> Vec<u64> {
    sample.sort_unstable();
    let mut found = Vec::with_capacity(parts);
    for i in 1..parts {
        let Some(&key) = sample.get(i * sample.len() / parts) else { break };
        if found.last().is_some_and(|&last| last >= key) {
            // the same again: it ends here
            if found.last() == Some(&key) && key < u64::MAX {
                found.push(key + 1);
            }
            continue;
        }
        found.push(key);
    }
    found
}

/// Which part a key belongs to: as many as there are splitters not above it.
#[derive(Clone, Debug)]
struct Dealer {
    splitters: Vec<u64>,
    /// For every value of a key's upper bits the first part that can be meant.
    first: Vec<u16>,
    shift: u32,
}

impl Dealer {
    const BITS: u32 = 14;

    fn new(splitters: Vec<u64>) -> Self {
        let most = splitters.last().copied().unwrap_or(0);
        let shift = (64 - most.leading_zeros()).saturating_sub(Self::BITS);
        let first = (0..=(most >> shift) + 1)
            .map(|top| splitters.partition_point(|&s| s <= top.checked_shl(shift).unwrap_or(u64::MAX)) as u16)
            .collect();
        Self { splitters, first, shift }
    }

    #[inline]
    fn part(&self, key: u64) -> usize {
        let top = ((key >> self.shift) as usize).min(self.first.len() - 1);
        let mut part = usize::from(self.first[top]);
        while self.splitters.get(part).is_some_and(|&s| s <= key) {
            part += 1;
        }
        part
    }
}

/// Edges in a file.
#[derive(Debug)]
pub(super) struct Spill {
    scratch: Scratch,
    name: String,
    path: PathBuf,
    file: File,
    dealer: Dealer,
    symmetric: bool,
    drop_self_loops: bool,
    /// The blocks in the file, in order: part and number of keys.
    blocks: Vec<(u16, u32)>,
    /// Keys of each part that no block holds yet.
    open: Vec<Vec<u64>>,
    /// Edges pushed so far.
    edges: u64,
    synced: u64,
    /// The largest id of them.
    largest: Option<NodeId>,
    /// Nothing more comes.
    complete: bool,
}

/// What is in the file for sure.
#[derive(Serialize, Deserialize)]
struct State {
    splitters: Vec<u64>,
    symmetric: bool,
    drop_self_loops: bool,
    blocks: Vec<(u16, u32)>,
    edges: u64,
    largest: Option<NodeId>,
    complete: bool,
}

impl Spill {
    /// An empty one for edges like those of `sample`; `None` where the scratch has no directory.
    pub(super) fn create(scratch: &Scratch, options: EdgeOptions, sample: Vec<u64>) -> Result<Option<Self>> {
        Self::create_named(scratch, "edges", options, splitters(sample, PARTS))
    }

    fn create_named(
        scratch: &Scratch,
        name: &str,
        options: EdgeOptions,
        splitters: Vec<u64>,
    ) -> Result<Option<Self>> {
        let Some(path) = scratch.file(&format!("{name}.bin")) else { return Ok(None) };
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(|e| Error::io(&path, "create", e))?;
        let open = vec![Vec::new(); splitters.len() + 1];
        Ok(Some(Self {
            scratch: scratch.clone(),
            name: name.into(),
            path,
            file,
            dealer: Dealer::new(splitters),
            symmetric: options.undirected,
            drop_self_loops: options.drop_self_loops,
            blocks: Vec::new(),
            open,
            edges: 0,
            synced: 0,
            largest: None,
            complete: false,
        }))
    }

    /// What an earlier process left, where that is for the same options.
    pub(super) fn resume(scratch: &Scratch, options: EdgeOptions) -> Option<Self> {
        let state: State = scratch.load("edges")?;
        let fits = state.symmetric == options.undirected && state.drop_self_loops == options.drop_self_loops;
        let sound = state.splitters.is_sorted()
            && state.splitters.len() < usize::from(u16::MAX)
            && state
                .blocks
                .iter()
                .all(|&(part, keys)| usize::from(part) <= state.splitters.len() && keys as usize <= BLOCK);
        if !fits || !sound {
            return None;
        }
        let path = scratch.file("edges.bin")?;
        let mut file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        let bytes = state.blocks.iter().map(|&(_, keys)| u64::from(keys) * 8).sum();
        if file.metadata().ok()?.len() < bytes {
            return None;
        }
        file.set_len(bytes).ok()?;
        file.seek(SeekFrom::Start(bytes)).ok()?;
        let open = vec![Vec::new(); state.splitters.len() + 1];
        Some(Self {
            scratch: scratch.clone(),
            name: "edges".into(),
            path,
            file,
            dealer: Dealer::new(state.splitters),
            symmetric: state.symmetric,
            drop_self_loops: state.drop_self_loops,
            blocks: state.blocks,
            open,
            edges: state.edges,
            synced: state.edges,
            largest: state.largest,
            complete: state.complete,
        })
    }

    /// Edges pushed so far.
    pub(super) fn edges(&self) -> u64 {
        self.edges
    }

    /// The largest id of the edges pushed so far.
    pub(super) fn largest(&self) -> Option<NodeId> {
        self.largest
    }

    /// Whether these are all edges of the source.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Adds edges.
    pub(super) fn extend(&mut self, src: &[NodeId], dst: &[NodeId]) -> Result<()> {
        for (src, dst) in src.chunks(SYNC as usize).zip(dst.chunks(SYNC as usize)) {
            for (&u, &v) in src.iter().zip(dst) {
                if u == v {
                    if !self.drop_self_loops {
                        self.put(key(u, v))?;
                    }
                    continue;
                }
                self.put(key(u, v))?;
                if self.symmetric {
                    self.put(key(v, u))?;
                }
            }
            self.edges += src.len() as u64;
            self.largest = self.largest.max(src.iter().chain(dst).copied().max());
            if self.edges - self.synced >= SYNC {
                self.sync()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, key: u64) -> Result<()> {
        let part = self.dealer.part(key);
        let keys = &mut self.open[part];
        keys.push(key);
        if keys.len() == BLOCK { self.write(part) } else { Ok(()) }
    }

    /// Writes a part's keys in memory as a block.
    #[cold]
    fn write(&mut self, part: usize) -> Result<()> {
        let keys = &mut self.open[part];
        if !keys.is_empty() {
            let written = self.file.write_all(bytemuck::cast_slice(keys));
            written.map_err(|e| Error::io(&self.path, "write", e))?;
            self.blocks.push((part as u16, keys.len() as u32));
            keys.clear();
        }
        Ok(())
    }

    /// Makes a point that a killed import can go on from.
    pub(super) fn sync(&mut self) -> Result<()> {
        (0..self.open.len()).try_for_each(|part| self.write(part))?;
        self.file.sync_data().map_err(|e| Error::io(&self.path, "sync", e))?;
        self.synced = self.edges;
        let state = State {
            splitters: self.dealer.splitters.clone(),
            symmetric: self.symmetric,
            drop_self_loops: self.drop_self_loops,
            blocks: self.blocks.clone(),
            edges: self.edges,
            largest: self.largest,
            complete: self.complete,
        };
        self.scratch.save(&self.name, &state)
    }

    /// Nothing more comes: the parts, in the order of their keys.
    pub(super) fn into_parts(mut self) -> Result<Parts> {
        self.complete = true;
        self.sync()?;
        self.parts()
    }

    fn parts(mut self) -> Result<Parts> {
        (0..self.open.len()).try_for_each(|part| self.write(part))?;
        let mut parts = vec![Part::default(); self.open.len()];
        let mut offset = 0;
        for &(part, keys) in &self.blocks {
            parts[usize::from(part)].blocks.push((offset, keys));
            parts[usize::from(part)].keys += u64::from(keys);
            offset += u64::from(keys) * 8;
        }
        Ok(Parts { path: self.path, parts })
    }
}

/// The parts of a finished spill.
#[derive(Debug)]
pub(super) struct Parts {
    path: PathBuf,
    pub(super) parts: Vec<Part>,
}

/// Where the keys of a part are.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Offset in bytes and number of keys.
    blocks: Vec<(u64, u32)>,
    pub(super) keys: u64,
}

impl Parts {
    fn open(&self) -> Result<File> {
        File::open(&self.path).map_err(|e| Error::io(&self.path, "open", e))
    }

    /// All keys of a part, as they came.
    pub(super) fn read(&self, part: &Part) -> Result<Vec<u64>> {
        let mut keys = crate::memory::zeroed(part.keys as usize)?;
        let mut rest = &mut keys[..];
        let mut file = self.open()?;
        for &(offset, count) in &part.blocks {
            let (now, later) = rest.split_at_mut(count as usize);
            read_at(&mut file, &self.path, offset, now)?;
            rest = later;
        }
        Ok(keys)
    }

    /// The same keys in parts of their own, in a file `name`.
    pub(super) fn split(&self, scratch: &Scratch, part: &Part, name: &str, parts: usize) -> Result<Self> {
        let mut file = self.open()?;
        let mut block = vec![0; BLOCK];
        let mut sample = Vec::new();
        let step = (part.blocks.len() / 64).max(1);
        for &(offset, count) in part.blocks.iter().step_by(step) {
            let block = &mut block[..count as usize];
            read_at(&mut file, &self.path, offset, block)?;
            sample.extend(block.iter().step_by(16));
        }
        let plain = EdgeOptions { undirected: false, drop_self_loops: false, keep_duplicates: true };
        // Every splitter gets a part to itself: whichever keys there are, one part cannot hold them all again.
        let mut splitters: Vec<u64> =
            splitters(sample, parts).into_iter().flat_map(|key| [key, key.saturating_add(1)]).collect();
        splitters.dedup();
        let spill = Spill::create_named(scratch, name, plain, splitters)?;
        let mut spill = spill.ok_or_else(|| Error::invalid("a spill without a directory"))?;
        for &(offset, count) in &part.blocks {
            let block = &mut block[..count as usize];
            read_at(&mut file, &self.path, offset, block)?;
            block.iter().try_for_each(|&key| spill.put(key))?;
        }
        spill.parts()
    }

    /// The one key of a part whose keys are all the same; `None` where they differ.
    pub(super) fn only_key(&self, part: &Part) -> Result<Option<u64>> {
        let mut file = self.open()?;
        let mut block = vec![0; BLOCK];
        let mut only = None;
        for &(offset, count) in &part.blocks {
            let block = &mut block[..count as usize];
            read_at(&mut file, &self.path, offset, block)?;
            let first = *only.get_or_insert(block[0]);
            if block.iter().any(|&key| key != first) {
                return Ok(None);
            }
        }
        Ok(only)
    }

    /// Removes the file.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(|e| Error::io(&self.path, "remove", e))
    }
}

fn read_at(file: &mut File, path: &Path, offset: u64, keys: &mut [u64]) -> Result<()> {
    let read = file
        .seek(SeekFrom::Start(offset))
        .and_then(|_| BufReader::with_capacity(0, file).read_exact(bytemuck::cast_slice_mut(keys)));
    read.map_err(|e| Error::io(path, "read", e))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn dealing_is_by_the_splitters(
            sample in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..50, Just(u64::MAX)], 1..300),
            keys in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..60, Just(u64::MAX)], 1..100),
            parts in 1usize..40,
        ) {
            let splitters = splitters(sample, parts);
            prop_assert!(splitters.windows(2).all(|w| w[0] < w[1]));
            let dealer = Dealer::new(splitters.clone());
            for key in keys {
                prop_assert_eq!(dealer.part(key), splitters.partition_point(|&s| s <= key), "{}", key);
            }
        }
    }

    #[test]
    fn a_key_that_fills_parts_gets_one_to_itself() {
        assert_eq!(splitters(vec![7; 100], 4), [7, 8]);
        assert_eq!(splitters(vec![u64::MAX; 100], 4), [u64::MAX]);
        assert_eq!(splitters((0..100).collect(), 4), [25, 50, 75]);
        assert!(splitters(vec![], 4).is_empty());
    }
}
