//! Edges in a file, partitioned by destination.
//!
//! All threads distribute the keys of edges to parts (see [`deal`](graphmill_core::builder::deal)).
//! The file consists of blocks, each with keys of a single part, in the order in which they fill
//! up. The order of a part's keys depends on the threads until the part is sorted.

use std::{
    fs::{File, OpenOptions},
    io::{BufReader, Read, Seek, SeekFrom, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use graphmill_core::{
    EdgeOptions, Error, NodeId, Result,
    builder::{
        deal::{Dealer, splitters},
        item::Item,
    },
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Scratch;
use crate::atomic;

/// Number of parts: enough that each is small relative to the whole, and few enough that their
/// buffers are small.
const PARTS: usize = 256;
/// Keys per block.
pub(super) const BLOCK: usize = 1 << 14;
/// Edges between two checkpoints of an import.
const SYNC: u64 = 1 << 27;

/// Edges in a file.
#[derive(Debug)]
pub(super) struct Spill<I> {
    scratch: Scratch,
    name: String,
    path: PathBuf,
    file: Mutex<Blocks>,
    dealer: Dealer,
    options: EdgeOptions,
    /// Buffered keys of each part.
    open: Vec<Mutex<Vec<I>>>,
    /// Number of edges pushed.
    edges: u64,
    synced: u64,
    /// Largest node id pushed.
    largest: Option<NodeId>,
    /// True if the source is exhausted.
    complete: bool,
    /// Counts of the source, set when it is exhausted.
    counts: Counts,
}

/// Counts stored with a finished spill, because a resumed import does not read its source again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Number of self-loops.
    pub(super) self_loops: u64,
    /// Number of edges that the importer dropped before pushing.
    pub(super) dropped: u64,
}

/// File and its blocks, in order: part and number of keys.
#[derive(Debug)]
struct Blocks {
    file: File,
    list: Vec<(u16, u32)>,
}

/// Persisted progress.
#[derive(Serialize, Deserialize)]
struct State {
    splitters: Vec<u64>,
    /// True if the edges have weights.
    weighted: bool,
    symmetric: bool,
    drop_self_loops: bool,
    blocks: Vec<(u16, u32)>,
    edges: u64,
    largest: Option<NodeId>,
    complete: bool,
    counts: Counts,
}

impl<I: Item> Spill<I> {
    /// Creates an empty spill for edges distributed like `sample`; `None` if the scratch has no
    /// directory.
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
        let file = atomic::create_fresh(&path);
        let file = file.map_err(|e| Error::io(&path, "create", e))?;
        let dealer = Dealer::new(splitters);
        Ok(Some(Self {
            scratch: scratch.clone(),
            name: name.into(),
            path,
            file: Mutex::new(Blocks { file, list: Vec::new() }),
            open: (0..dealer.parts()).map(|_| Mutex::default()).collect(),
            dealer,
            options,
            edges: 0,
            synced: 0,
            largest: None,
            complete: false,
            counts: Counts::default(),
        }))
    }

    /// Resumes the spill of an earlier process with the same options.
    pub(super) fn resume(scratch: &Scratch, options: EdgeOptions) -> Option<Self> {
        let state: State = scratch.load("edges")?;
        let fits = state.weighted == I::WEIGHTED
            && state.symmetric == options.undirected
            && state.drop_self_loops == options.drop_self_loops;
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
        let bytes = state.blocks.iter().map(|&(_, keys)| u64::from(keys) * size_of::<I>() as u64).sum();
        if file.metadata().ok()?.len() < bytes {
            return None;
        }
        file.set_len(bytes).ok()?;
        file.seek(SeekFrom::Start(bytes)).ok()?;
        let dealer = Dealer::new(state.splitters);
        Some(Self {
            scratch: scratch.clone(),
            name: "edges".into(),
            path,
            file: Mutex::new(Blocks { file, list: state.blocks }),
            open: (0..dealer.parts()).map(|_| Mutex::default()).collect(),
            dealer,
            options,
            edges: state.edges,
            synced: state.edges,
            largest: state.largest,
            complete: state.complete,
            counts: state.counts,
        })
    }

    /// Number of edges pushed.
    pub(super) fn edges(&self) -> u64 {
        self.edges
    }

    /// Largest node id pushed.
    pub(super) fn largest(&self) -> Option<NodeId> {
        self.largest
    }

    /// Returns true if the spill holds all edges of the source.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Counts set when the source was exhausted.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the counts that are stored with the complete spill.
    pub(super) fn set_counts(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Adds edges, with one weight each if edges have weights.
    pub(super) fn extend(&mut self, src: &[NodeId], dst: &[NodeId], weight: &[f32]) -> Result<()> {
        let mut weights = weight.chunks(SYNC as usize);
        for (src, dst) in src.chunks(SYNC as usize).zip(dst.chunks(SYNC as usize)) {
            let weight = weights.next().unwrap_or_default();
            self.dealer.deal_edges(src, dst, weight, self.options, &|part, keys| self.put(part, keys))?;
            self.edges += src.len() as u64;
            let most = |ids: &[NodeId]| ids.par_iter().with_min_len(1 << 16).copied().max();
            self.largest = self.largest.max(most(src)).max(most(dst));
            if self.edges - self.synced >= SYNC {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Adds keys of a part.
    fn put(&self, part: usize, mut keys: &[I]) -> Result<()> {
        let mut block = lock(&self.open[part]);
        while !keys.is_empty() {
            let (now, later) = keys.split_at(keys.len().min(BLOCK - block.len()));
            block.extend_from_slice(now);
            keys = later;
            if block.len() == BLOCK {
                self.write(part, &mut block)?;
            }
        }
        Ok(())
    }

    /// Writes a part's buffered keys as a block.
    #[cold]
    fn write(&self, part: usize, keys: &mut Vec<I>) -> Result<()> {
        if !keys.is_empty() {
            let mut blocks = lock(&self.file);
            let written = blocks.file.write_all(bytemuck::cast_slice(keys));
            written.map_err(|e| Error::io(&self.path, "write", e))?;
            blocks.list.push((part as u16, keys.len() as u32));
            keys.clear();
        }
        Ok(())
    }

    /// Writes the buffered keys of all parts.
    fn close_blocks(&self) -> Result<()> {
        self.open.iter().enumerate().try_for_each(|(part, keys)| self.write(part, &mut lock(keys)))
    }

    /// Writes a checkpoint from which a killed import resumes.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.close_blocks()?;
        let blocks = lock(&self.file);
        atomic::sync(&blocks.file, &self.path).map_err(|e| Error::io(&self.path, "sync", e))?;
        self.synced = self.edges;
        let state = State {
            splitters: self.dealer.splitters().to_vec(),
            weighted: I::WEIGHTED,
            symmetric: self.options.undirected,
            drop_self_loops: self.options.drop_self_loops,
            blocks: blocks.list.clone(),
            edges: self.edges,
            largest: self.largest,
            complete: self.complete,
            counts: self.counts,
        };
        self.scratch.save(&self.name, &state)
    }

    /// Finishes the spill and returns the parts in the order of their keys.
    pub(super) fn into_parts(mut self) -> Result<Parts<I>> {
        self.complete = true;
        self.sync()?;
        self.parts()
    }

    fn parts(self) -> Result<Parts<I>> {
        self.close_blocks()?;
        let mut parts = vec![Part::default(); self.open.len()];
        let mut offset = 0;
        for &(part, keys) in &lock(&self.file).list {
            parts[usize::from(part)].blocks.push((offset, keys));
            parts[usize::from(part)].keys += u64::from(keys);
            offset += u64::from(keys) * size_of::<I>() as u64;
        }
        Ok(Parts { path: self.path, parts, items: PhantomData })
    }
}

/// Locks a mutex; no holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

/// Parts of a finished spill.
#[derive(Debug)]
pub(super) struct Parts<I> {
    path: PathBuf,
    pub(super) parts: Vec<Part>,
    items: PhantomData<I>,
}

/// Location of a part's keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Offset in bytes and number of keys of each block.
    blocks: Vec<(u64, u32)>,
    pub(super) keys: u64,
}

impl<I: Item> Parts<I> {
    fn open(&self) -> Result<File> {
        File::open(&self.path).map_err(|e| Error::io(&self.path, "open", e))
    }

    /// Reads all keys of a part, unsorted.
    pub(super) fn read(&self, part: &Part) -> Result<Vec<I>> {
        let mut keys = graphmill_core::memory::zeroed(part.keys as usize)?;
        let mut rest = &mut keys[..];
        let mut file = self.open()?;
        for &(offset, count) in &part.blocks {
            let (now, later) = rest.split_at_mut(count as usize);
            read_at(&mut file, &self.path, offset, now)?;
            rest = later;
        }
        Ok(keys)
    }

    /// Splits the keys of a part into smaller parts, in a file `name`.
    pub(super) fn split(&self, scratch: &Scratch, part: &Part, name: &str, parts: usize) -> Result<Self> {
        let mut file = self.open()?;
        let mut block = graphmill_core::memory::zeroed::<I>(BLOCK)?;
        let mut sample = Vec::new();
        let step = (part.blocks.len() / 64).max(1);
        for &(offset, count) in part.blocks.iter().step_by(step) {
            let block = &mut block[..count as usize];
            read_at(&mut file, &self.path, offset, block)?;
            sample.extend(block.iter().step_by(16).map(|item| item.key()));
        }
        let plain = EdgeOptions { undirected: false, drop_self_loops: false, keep_duplicates: true };
        // Every splitter gets a separate part, so that no part can contain all keys again.
        let mut splitters: Vec<u64> =
            splitters(sample, parts).into_iter().flat_map(|key| [key, key.saturating_add(1)]).collect();
        splitters.dedup();
        let spill = Spill::<I>::create_named(scratch, name, plain, splitters)?;
        let spill = spill.ok_or_else(|| Error::invalid("a spill without a directory"))?;
        for &(offset, count) in &part.blocks {
            let block = &mut block[..count as usize];
            read_at(&mut file, &self.path, offset, block)?;
            spill.dealer.deal(block, &|part, keys| spill.put(part, keys))?;
        }
        spill.parts()
    }

    /// Key of a part whose keys are all equal; `None` if they differ.
    pub(super) fn only_key(&self, part: &Part) -> Result<Option<u64>> {
        let mut file = self.open()?;
        let mut block = graphmill_core::memory::zeroed::<I>(BLOCK)?;
        let mut only = None;
        for &(offset, count) in &part.blocks {
            let block = &mut block[..count as usize];
            read_at(&mut file, &self.path, offset, block)?;
            let first = *only.get_or_insert(block[0].key());
            if block.iter().any(|item| item.key() != first) {
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

fn read_at<I: Item>(file: &mut File, path: &Path, offset: u64, keys: &mut [I]) -> Result<()> {
    let read = file
        .seek(SeekFrom::Start(offset))
        .and_then(|_| BufReader::with_capacity(0, file).read_exact(bytemuck::cast_slice_mut(keys)));
    read.map_err(|e| Error::io(path, "read", e))
}
