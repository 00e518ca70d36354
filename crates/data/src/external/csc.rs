//! Resumable writer of a CSC graph, part by part from the first row to the last.

use graphmill_core::{
    Error, Graph, NodeId, Result,
    builder::{duplicates::sort_and_merge, item::Item},
};
use serde::{Deserialize, Serialize};

use super::{Rows, Scratch};

/// Edges between two checkpoints of an import.
const SYNC: u64 = 1 << 28;

/// Persisted progress of the graph.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Number of parts written.
    parts: usize,
    /// Number of entries of `indices`.
    edges: u64,
    /// Number of entries of `indptr`: closed rows and the leading zero.
    rows: u64,
}

/// Sorted part.
pub(super) struct Run {
    /// Sources, row by row.
    sources: Vec<NodeId>,
    /// Destinations with sources in this part, ascending, and the number of sources.
    rows: Vec<(NodeId, u64)>,
    /// Weight of each source, if edges have weights.
    weights: Vec<f32>,
}

impl Run {
    pub(super) fn new<I: Item>(mut keys: Vec<I>, keep_duplicates: bool) -> Result<Self> {
        sort_and_merge(&mut keys, keep_duplicates)?;
        let sources = keys.iter().map(|item| item.key() as NodeId).collect();
        let weights = if I::WEIGHTED { keys.iter().map(|item| item.weight()).collect() } else { Vec::new() };
        let rows = keys.chunk_by(|a, b| a.key() >> 32 == b.key() >> 32);
        let rows = rows.map(|row| ((row[0].key() >> 32) as NodeId, row.len() as u64)).collect();
        Ok(Self { sources, rows, weights })
    }
}

/// Graph that is written from the first row to the last.
pub(super) struct Csc {
    scratch: Scratch,
    indptr: Rows<u64>,
    indices: Rows<NodeId>,
    weights: Option<Rows<f32>>,
    /// Number of edges written, and how many of them are synced.
    pub(super) edges: u64,
    synced: u64,
    /// Row to which the next edges may still belong.
    row: u64,
    /// Number of parts written.
    pub(super) parts: usize,
    /// Number of rows of the graph; no edge lies beyond.
    nodes: u64,
    /// True if an earlier process wrote some of it.
    resumed: bool,
    starts: Vec<u64>,
}

/// Error for leftovers of an earlier process that are inconsistent: parts out of order, or node ids
/// out of range.
pub(super) fn damaged() -> Error {
    Error::invalid(
        "the files of an interrupted import are damaged; remove its directory (.importing) and start again",
    )
}

impl Csc {
    pub(super) fn resume(scratch: &Scratch, num_nodes: usize, weighted: bool) -> Result<Self> {
        let (mut indptr, mut indices) = (scratch.column("indptr")?, scratch.column("indices")?);
        let column = || weighted.then(|| scratch.column("edge-weight")).transpose();
        let mut weights = column()?;
        let state: State = scratch.load("csc").unwrap_or_default();
        indptr.start_at(state.rows)?;
        indices.start_at(state.edges)?;
        weights.as_mut().map_or(Ok(()), |weights| weights.start_at(state.edges))?;
        let found = indptr.len() as u64 == state.rows
            && indices.len() as u64 == state.edges
            && weights.as_ref().is_none_or(|weights| weights.len() as u64 == state.edges);
        let state = if found { state } else { State::default() };
        if !found {
            (indptr, indices) = (scratch.column("indptr")?, scratch.column("indices")?);
            weights = column()?;
            indptr.start_at(0)?;
            indices.start_at(0)?;
            weights.as_mut().map_or(Ok(()), |weights| weights.start_at(0))?;
        }
        let mut csc = Self {
            scratch: scratch.clone(),
            indptr,
            indices,
            weights,
            edges: state.edges,
            synced: state.edges,
            row: state.rows.saturating_sub(1),
            parts: state.parts,
            nodes: num_nodes as u64,
            resumed: state.rows > 0,
            starts: Vec::new(),
        };
        if state.rows == 0 {
            csc.indptr.extend(&[0])?;
        }
        Ok(csc)
    }

    /// Closes the rows before `row`.
    fn close(&mut self, row: u64) -> Result<()> {
        while self.row < row {
            let many = (row - self.row).min(1 << 16);
            self.starts.resize(many as usize, 0);
            self.starts.fill(self.edges);
            self.indptr.extend(&self.starts)?;
            self.row += many;
        }
        Ok(())
    }

    pub(super) fn extend(&mut self, run: &Run) -> Result<()> {
        let (first, last) = (run.rows.first(), run.rows.last());
        if first.is_some_and(|&(v, _)| u64::from(v) < self.row)
            || last.is_some_and(|&(v, _)| u64::from(v) >= self.nodes)
            || run.sources.iter().max().is_some_and(|&u| u64::from(u) >= self.nodes)
        {
            return Err(damaged());
        }
        let mut starts = std::mem::take(&mut self.starts);
        starts.clear();
        let (mut row, mut edges) = (self.row, self.edges);
        for &(v, count) in &run.rows {
            while row < u64::from(v) {
                starts.push(edges);
                row += 1;
                if starts.len() == 1 << 16 {
                    self.indptr.extend(&starts)?;
                    starts.clear();
                }
            }
            edges += count;
        }
        self.indptr.extend(&starts)?;
        self.indices.extend(&run.sources)?;
        if let Some(weights) = &mut self.weights {
            weights.extend(&run.weights)?;
        }
        (self.row, self.edges, self.starts) = (row, edges, starts);
        Ok(())
    }

    /// Appends copies of one edge.
    pub(super) fn repeat(&mut self, key: u64, copies: u64) -> Result<()> {
        if key >> 32 < self.row || key >> 32 >= self.nodes || u64::from(key as NodeId) >= self.nodes {
            return Err(damaged());
        }
        self.close(key >> 32)?;
        let same = vec![key as NodeId; 1 << 16];
        let mut left = copies;
        while left > 0 {
            let now = left.min(same.len() as u64);
            self.indices.extend(&same[..now as usize])?;
            left -= now;
        }
        self.edges += copies;
        Ok(())
    }

    pub(super) fn sync_if_due(&mut self) -> Result<()> {
        if self.edges - self.synced < SYNC { Ok(()) } else { self.sync() }
    }

    /// Writes a checkpoint from which a killed import resumes.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.indptr.spill()?;
        self.indices.spill()?;
        self.indptr.sync()?;
        self.indices.sync()?;
        if let Some(weights) = &mut self.weights {
            weights.spill()?;
            weights.sync()?;
        }
        self.synced = self.edges;
        let state = State { parts: self.parts, edges: self.edges, rows: self.indptr.len() as u64 };
        self.scratch.save("csc", &state)
    }

    pub(super) fn finish(mut self) -> Result<Graph> {
        self.close(self.nodes)?;
        let (nodes, resumed) = (self.nodes, self.resumed);
        let (indptr, indices) = (self.indptr.finish()?, self.indices.finish()?);
        let weights = self.weights.map(Rows::finish).transpose()?;
        if resumed {
            // The files of an earlier process may be damaged.
            let graph = Graph::new(indptr, indices).and_then(|graph| match weights {
                Some(weights) => graph.with_edge_weight(weights),
                None => Ok(graph),
            });
            return graph.ok().filter(|graph| graph.num_nodes() as u64 == nodes).ok_or_else(damaged);
        }
        Ok(Graph::sorted(indptr, indices, weights))
    }
}
