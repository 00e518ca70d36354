//! Memory of nodes in a stream of events.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_core::{Error, NodeId, Result, maps};

use super::{CellState, times::NodeTimes};
use crate::{Matrix, View};

/// Values of a table in a file that are restored before their pages leave memory.
const RUN: usize = 1 << 20;

/// Memory of all nodes, and the messages that wait for them (Rossi et al., *Temporal graph networks
/// for deep learning on dynamic graphs*, 2020, section 3.1).
///
/// A node has a row of memory, the time of its last update, and at most one waiting message: the
/// last of a batch (the paper's "most recent message" aggregator). The message of an event between
/// `i` and `j` is `[s_i | s_j | edge]` for `i` and `[s_j | s_i | edge]` for `j`, with the memory
/// at the end of the event's batch.
///
/// # Memory
/// `4 (3 M + K) + 24` bytes per node; in files ([`NodeMemory::in_file`]) only those that stay in
/// the memory of the process. A copy is in memory.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    pub(super) memory: Matrix,
    /// Waiting messages, `V x (2 M + K)`.
    pub(super) message: Matrix,
    /// Times of the last updates and of the messages.
    pub(super) times: NodeTimes,
    /// Place of rows, messages and times in files.
    files: Option<Arc<Files>>,
}

/// Place of rows, messages and times in files, and the number of them in the memory of the process.
#[derive(Debug)]
struct Files {
    dir: PathBuf,
    /// Largest number of rows in the memory of the process.
    most: usize,
    /// Rows that were used since all were released.
    used: AtomicUsize,
}

/// Events whose messages are stored.
#[derive(Clone, Copy, Debug)]
pub struct MemoryEvents<'a> {
    /// Source of each event.
    pub source: &'a [NodeId],
    /// Destination of each event.
    pub destination: &'a [NodeId],
    /// Time of each event, ascending.
    pub time: &'a [i64],
    /// Features of each event, `E x K`.
    pub edges: View<'a>,
}

/// Updated memory of some nodes, with the matrices that the backward pass reads.
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    /// Nodes of the update.
    pub nodes: Vec<NodeId>,
    /// Updated memory, `R x M`.
    pub rows: Matrix,
    /// Time of the last event of each node.
    pub times: Vec<i64>,
    /// Positions of the nodes that had a message.
    pub(super) updated: Vec<u32>,
    pub(super) differences: Vec<f64>,
    /// Messages without the own memory, and the encoded times.
    pub(super) input: Matrix,
    pub(super) old: Matrix,
    pub(super) new: Matrix,
    pub(super) grad: Matrix,
    pub(super) input_grad: Matrix,
    pub(super) encoded_grad: Matrix,
    pub(super) cell: CellState,
}

impl NodeMemory {
    /// First bytes of a saved memory.
    const MAGIC: [u8; 8] = *b"gmmemor1";

    /// Creates the memory of `nodes` nodes, all zeros: rows of `width` columns, for events with
    /// `edge_dim` features. `start` is the time from which the first update of a node counts.
    pub fn new(nodes: usize, width: usize, edge_dim: usize, start: i64) -> Self {
        Self {
            memory: Matrix::zeros(nodes, width),
            message: Matrix::zeros(nodes, 2 * width + edge_dim),
            times: NodeTimes::new(nodes, start),
            files: None,
        }
    }

    /// Creates the memory of [`NodeMemory::new`] with rows, messages and times in files without
    /// names in the directory `dir`. Those of at most `most` nodes stay in the memory of the
    /// process, or of the nodes of one update if these are more.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn in_file(
        nodes: usize,
        width: usize,
        edge_dim: usize,
        start: i64,
        dir: &Path,
        most: usize,
    ) -> Result<Self> {
        Ok(Self {
            memory: Matrix::in_file(nodes, width, dir)?,
            message: Matrix::in_file(nodes, 2 * width + edge_dim, dir)?,
            times: NodeTimes::in_file(nodes, start, dir)?,
            files: Some(Arc::new(Files { dir: dir.to_path_buf(), most, used: AtomicUsize::new(0) })),
        })
    }

    /// Bytes of the row, message and times of a node, which may be in files.
    pub const fn bytes_of_row(width: usize, edge_dim: usize) -> usize {
        size_of::<f32>() * (3 * width + edge_dim) + NodeTimes::BYTES
    }

    /// Directory of the files, if the memory is in files.
    pub fn directory(&self) -> Option<&Path> {
        self.files.as_deref().filter(|_| self.is_in_file()).map(|files| &*files.dir)
    }

    /// Returns true if rows, messages and times are in files.
    pub fn is_in_file(&self) -> bool {
        self.memory.is_in_file()
    }

    /// Takes all rows, messages and times in files out of the memory of the process, until they are
    /// used again.
    pub fn release(&self) {
        for table in self.tables() {
            table.release(0..table.num_rows());
        }
        self.times.release();
        self.files.iter().for_each(|files| files.used.store(0, Relaxed));
    }

    /// Announces that rows and messages of so many nodes are used next. If those in the memory of
    /// the process would be too many, the earlier ones leave it.
    pub(super) fn hold(&self, nodes: usize) {
        let Some(files) = self.files.as_deref().filter(|_| self.is_in_file()) else { return };
        if files.used.load(Relaxed).saturating_add(nodes) > files.most {
            self.release();
        }
        files.used.fetch_add(nodes, Relaxed);
    }

    /// Forgets everything, as at the begin of an epoch. New files replace those of before.
    ///
    /// # Errors
    /// The disk has too little space for the new files; the memory cannot be used then.
    pub fn clear(&mut self, start: i64) -> Result<()> {
        self.times.clear(start)?;
        for table in [&mut self.memory, &mut self.message] {
            let files = self.files.as_deref().filter(|_| table.is_in_file());
            let Some(files) = files else {
                table.view_mut().host().fill(0.0);
                continue;
            };
            let (rows, cols) = (table.num_rows(), table.num_cols());
            // the disk has the space of the former file again before the new one needs it
            *table = Matrix::default();
            *table = Matrix::in_file(rows, cols, &files.dir)?;
            files.used.store(0, Relaxed);
        }
        Ok(())
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.times.len()
    }

    /// Width of the memory, `M`.
    pub fn width(&self) -> usize {
        self.memory.num_cols()
    }

    /// Memory of all nodes, `V x M`, without waiting messages.
    pub fn rows(&self) -> View<'_> {
        self.memory.view()
    }

    /// Time of the last update of `node`.
    ///
    /// # Panics
    /// The memory has no such node.
    pub fn last_update(&self, node: NodeId) -> i64 {
        self.times.last(node as usize)
    }

    pub(super) fn check(&self, nodes: &[NodeId]) -> Result<()> {
        match nodes.iter().find(|&&v| v as usize >= self.num_nodes()) {
            Some(v) => Err(Error::invalid(format!(
                "memory of nodes: node {v} of {}; create the memory for all nodes",
                self.num_nodes()
            ))),
            None => Ok(()),
        }
    }

    /// Stores the updated rows of some of the nodes of an update, and removes their messages.
    /// `positions` are places among the nodes of the update.
    ///
    /// # Errors
    /// A position is not one of the update.
    pub fn persist(&mut self, update: &MemoryState, positions: &[u32]) -> Result<()> {
        if let Some(at) = positions.iter().find(|&&at| at as usize >= update.nodes.len()) {
            return Err(Error::invalid(format!(
                "memory of nodes: position {at} of an update of {} nodes; pass positions of the update",
                update.nodes.len()
            )));
        }
        self.hold(positions.len());
        let width = self.width();
        let (to, from) = (self.memory.view_mut().host(), update.rows.view().host());
        for &at in positions {
            let (at, v) = (at as usize, update.nodes[at as usize] as usize);
            to[v * width..(v + 1) * width].copy_from_slice(&from[at * width..(at + 1) * width]);
            self.times.update(v, update.times[at]);
        }
        Ok(())
    }

    /// Stores the messages of events; the last of a node replaces earlier ones.
    ///
    /// # Errors
    /// The lists differ in length, the features have another width, or a node is unknown.
    pub fn push(&mut self, events: &MemoryEvents) -> Result<()> {
        let &MemoryEvents { source, destination, time, edges } = events;
        let (width, edge_dim) = (self.width(), self.message.num_cols() - 2 * self.width());
        let counts = [source.len(), destination.len(), time.len(), edges.num_rows()];
        if counts.iter().any(|&count| count != counts[0]) || edges.num_cols() != edge_dim {
            return Err(Error::invalid(format!(
                "memory of nodes: {} sources, {} destinations, {} times and {} rows of {} features; pass one \
                 of each for every event, with {edge_dim} features",
                counts[0],
                counts[1],
                counts[2],
                counts[3],
                edges.num_cols()
            )));
        }
        self.check(source)?;
        self.check(destination)?;
        self.hold(source.len() + destination.len());
        let (memory, edges, stride) = (self.memory.view().host(), edges.host(), 2 * width + edge_dim);
        let message = self.message.view_mut().host();
        for (event, (&i, &j)) in source.iter().zip(destination).enumerate() {
            for (own, other) in [(i as usize, j as usize), (j as usize, i as usize)] {
                let to = &mut message[own * stride..(own + 1) * stride];
                to[..width].copy_from_slice(&memory[own * width..(own + 1) * width]);
                to[width..2 * width].copy_from_slice(&memory[other * width..(other + 1) * width]);
                to[2 * width..].copy_from_slice(&edges[event * edge_dim..(event + 1) * edge_dim]);
                self.times.wait(own, time[event]);
            }
        }
        Ok(())
    }

    /// The memory as bytes, for a checkpoint: restored, a stream continues to the same bits.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Self::MAGIC.to_vec();
        for count in [self.num_nodes(), self.width(), self.message.num_cols()] {
            out.extend_from_slice(&(count as u64).to_le_bytes());
        }
        for x in [&self.memory, &self.message] {
            x.view().host().iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }
        let tables = out.len();
        out.resize(tables + self.bytes_of_times(), 0);
        self.save_times(&mut out[tables..]);
        out
    }

    /// Memory (`V x M`) and messages (`V x (2 M + K)`) of all nodes. With
    /// [`NodeMemory::save_times`] they are the whole memory, without a copy of tables in files.
    pub fn tables(&self) -> [&Matrix; 2] {
        [&self.memory, &self.message]
    }

    /// Number of bytes that [`NodeMemory::save_times`] writes.
    pub fn bytes_of_times(&self) -> usize {
        NodeTimes::SAVED_BYTES * self.num_nodes()
    }

    /// Writes the times of the last updates and of the messages, and which messages wait, to `to`.
    /// Parts of both that are in files leave the memory of the process.
    ///
    /// # Panics
    /// `to` has not [`NodeMemory::bytes_of_times`] bytes.
    pub fn save_times(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.bytes_of_times(), "bytes of the times of {} nodes", self.num_nodes());
        self.times.save(to);
    }

    /// Restores the values of [`NodeMemory::tables`] and the bytes of [`NodeMemory::save_times`]
    /// into a memory of the same size.
    ///
    /// # Errors
    /// They are not those of such a memory; it is then unchanged.
    pub fn restore_tables(&mut self, tables: [&[f32]; 2], times: &[u8]) -> Result<()> {
        let sizes = self.tables().map(|table| table.num_rows() * table.num_cols());
        if tables.map(<[f32]>::len) != sizes || times.len() != self.bytes_of_times() {
            return Err(Error::invalid(format!(
                "memory of nodes: {} and {} values with {} bytes of times are not those of {} nodes with {} \
                 columns; restore them into a memory of the same size",
                tables[0].len(),
                tables[1].len(),
                times.len(),
                self.num_nodes(),
                self.width()
            )));
        }
        for (table, from) in [&mut self.memory, &mut self.message].into_iter().zip(tables) {
            let to = table.view_mut().host();
            for (to, from) in to.chunks_mut(RUN).zip(from.chunks(RUN)) {
                to.copy_from_slice(from);
                // either may be larger than memory
                maps::release(to);
                maps::release(from);
            }
        }
        self.times.restore(times);
        Ok(())
    }

    /// Restores the bytes of [`NodeMemory::save`] into a memory of the same size.
    ///
    /// # Errors
    /// The bytes are not those of such a memory; it is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let sizes = [self.num_nodes(), self.width(), self.message.num_cols()];
        let mut header = Self::MAGIC.to_vec();
        sizes.iter().for_each(|&size| header.extend_from_slice(&(size as u64).to_le_bytes()));
        let floats = sizes[0] * (sizes[1] + sizes[2]);
        if bytes.len() != header.len() + 4 * floats + self.bytes_of_times() || !bytes.starts_with(&header) {
            return Err(Error::invalid(format!(
                "memory of nodes: {} bytes are not a saved memory of {} nodes with {} columns; restore it \
                 into a memory of the same size",
                bytes.len(),
                sizes[0],
                sizes[1]
            )));
        }
        let mut rest = &bytes[header.len()..];
        let mut take = |len: usize| {
            let (taken, left) = rest.split_at(len);
            rest = left;
            taken
        };
        for x in [&mut self.memory, &mut self.message] {
            let values = x.view_mut().host();
            let from = take(4 * values.len()).chunks_exact(4);
            let read = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            values.iter_mut().zip(from).for_each(|(x, bytes)| *x = read(bytes));
        }
        self.times.restore(rest);
        self.release();
        Ok(())
    }
}
