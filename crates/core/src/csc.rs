//! Graph in compressed sparse columns: the in-neighbours of every node.

#![forbid(unsafe_code)]

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use rayon::prelude::*;

use crate::{
    Buffer, Error, NodeId, Result,
    alias::{RowAlias, TableStore},
    search::{pair_position, position},
};

/// Directed graph in CSC form. An undirected graph stores each edge in both directions.
///
/// `indices[indptr[v]..indptr[v + 1]]` are the in-neighbours of `v`: the nodes whose messages `v`
/// receives.
///
/// ```
/// use graphmill_core::Graph;
/// // 0 -> 2 <- 1, 2 -> 0
/// let graph = Graph::new(vec![0, 1, 1, 3].into(), vec![2, 0, 1].into()).unwrap();
/// assert_eq!(graph.in_neighbors(2), [0, 1]);
/// assert_eq!(graph.in_degree(1), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Graph {
    indptr: Buffer<u64>,
    indices: Buffer<NodeId>,
    edge_weight: Option<Buffer<f32>>,
    /// Store of alias tables of the weights.
    tables: Option<Arc<dyn TableStore>>,
    /// Degrees in a graph of which this one holds the edges of some nodes.
    whole: Option<Arc<WholeDegrees>>,
    /// True if all rows ascend, once it is known.
    ascending: Arc<OnceLock<bool>>,
}

/// Degrees of all nodes in a graph of which a [`Graph`] holds only the edges of some nodes.
#[derive(Clone, Debug, Default)]
pub struct WholeDegrees {
    /// In-degrees (`V`).
    pub of_in: Buffer<u32>,
    /// Out-degrees (`V`), if they are known.
    pub of_out: Option<Vec<u32>>,
}

impl Graph {
    /// Creates a graph from `indptr` (`V + 1`) and `indices` (`E`) after checking them. O(V + E),
    /// parallel.
    ///
    /// # Errors
    /// `indptr` is empty, does not start at 0, decreases, or does not end at `E`; an id is not
    /// below `V`; the nodes exceed [`NodeId`].
    pub fn new(indptr: Buffer<u64>, indices: Buffer<NodeId>) -> Result<Self> {
        let graph = Self::of_sound_edges(indptr, indices, None)?;
        let nodes = graph.num_nodes();
        match position(&graph.indices, |&u| u as usize >= nodes) {
            Some(e) => Err(graph.no_such_node(e)),
            None => Ok(graph),
        }
    }

    /// Creates a graph as [`Graph::new`] and [`Graph::with_edge_weight`] do, from indices and
    /// weights that the caller has checked.
    ///
    /// # Errors
    /// `indptr` is invalid as for [`Graph::new`], or the lengths disagree.
    pub fn of_sound_edges(
        indptr: Buffer<u64>,
        indices: Buffer<NodeId>,
        edge_weight: Option<Buffer<f32>>,
    ) -> Result<Self> {
        let Some((&last, nodes)) = indptr.last().zip(indptr.len().checked_sub(1)) else {
            return Err(Error::invalid("indptr is empty: it needs one entry more than there are nodes"));
        };
        if nodes > NodeId::MAX as usize {
            return Err(Error::invalid(format!(
                "{nodes} nodes: node ids are 32-bit, at most {} nodes fit",
                NodeId::MAX
            )));
        }
        if indptr[0] != 0 || last != indices.len() as u64 {
            return Err(Error::invalid(format!(
                "indptr runs from {} to {last}, but must run from 0 to the number of edges, {}",
                indptr[0],
                indices.len()
            )));
        }
        if let Some(v) = pair_position(&indptr, |start, end| start > end) {
            return Err(Error::invalid(format!(
                "indptr decreases after node {v}: {} to {}",
                indptr[v],
                indptr[v + 1]
            )));
        }
        if let Some(weight) = edge_weight.as_ref().filter(|weight| weight.len() != indices.len()) {
            return Err(Error::invalid(format!("{} edge weights for {} edges", weight.len(), indices.len())));
        }
        Ok(Self { indptr, indices, edge_weight, tables: None, whole: None, ascending: Arc::default() })
    }

    /// Error for an edge from a node that does not exist.
    pub fn no_such_node(&self, e: usize) -> Error {
        let (u, nodes) = (self.indices[e], self.num_nodes());
        Error::invalid(format!("indices[{e}] is node {u}, but there are {nodes} nodes"))
    }

    /// Creates a graph from arrays that the external-memory builder has written and checked, or
    /// from files that were verified before. O(1).
    pub fn sorted(indptr: Buffer<u64>, indices: Buffer<NodeId>, edge_weight: Option<Buffer<f32>>) -> Self {
        debug_assert_eq!(indptr.last(), Some(&(indices.len() as u64)));
        debug_assert!(edge_weight.as_ref().is_none_or(|weight| weight.len() == indices.len()));
        Self { indptr, indices, edge_weight, tables: None, whole: None, ascending: Arc::default() }
    }

    /// Weights as a buffer.
    pub fn weight_buffer(&self) -> Option<&Buffer<f32>> {
        self.edge_weight.as_ref()
    }

    /// Row starts and in-neighbours as buffers.
    pub fn buffers(&self) -> (&Buffer<u64>, &Buffer<NodeId>) {
        (&self.indptr, &self.indices)
    }

    /// Adds a weight per edge (`E`, in the order of `indices`).
    ///
    /// # Errors
    /// The lengths disagree or a weight is not finite and non-negative.
    pub fn with_edge_weight(self, edge_weight: Buffer<f32>) -> Result<Self> {
        let Self { indptr, indices, .. } = self;
        let graph = Self::of_sound_edges(indptr, indices, Some(edge_weight))?;
        match graph.edge_weight.as_ref().and_then(|weight| position(weight, is_no_weight)) {
            Some(e) => Err(graph.no_such_weight(e)),
            None => Ok(graph),
        }
    }

    /// Error for an edge whose weight is invalid by [`is_no_weight`].
    pub fn no_such_weight(&self, e: usize) -> Error {
        let weight = self.edge_weight.as_ref().map_or(f32::NAN, |weight| weight[e]);
        Error::invalid(format!("edge weight {e} is {weight}: weights are finite and at least 0"))
    }

    /// Adds the degrees in a graph of which this one holds the edges of some nodes.
    #[must_use]
    pub fn with_whole_degrees(self, whole: WholeDegrees) -> Self {
        Self { whole: Some(Arc::new(whole)), ..self }
    }

    /// Degrees in the graph of which this one holds the edges of some nodes, if it is such a part.
    pub fn whole_degrees(&self) -> Option<&WholeDegrees> {
        self.whole.as_deref()
    }

    /// Adds a store of alias tables of the weights.
    #[must_use]
    pub fn with_table_store(self, store: Arc<dyn TableStore>) -> Self {
        Self { tables: Some(store), ..self }
    }

    /// Alias tables of the edge weights, from the graph's [`TableStore`] if it has one. O(V + E),
    /// parallel.
    ///
    /// # Errors
    /// The graph has no weights; else as for [`RowAlias::new`].
    pub fn alias_tables(&self) -> Result<RowAlias> {
        let Some(weights) = self.edge_weight() else {
            return Err(Error::invalid("the graph has no edge weights: there is nothing to draw by"));
        };
        match &self.tables {
            Some(store) => store.tables(&self.indptr, weights),
            None => RowAlias::new(&self.indptr, weights),
        }
    }

    /// Number of nodes, `V`.
    #[inline]
    pub fn num_nodes(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Number of edges, `E`, counting every stored direction.
    #[inline]
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// In-neighbours of `v`, from which it receives messages.
    #[inline]
    pub fn in_neighbors(&self, v: NodeId) -> &[NodeId] {
        &self.indices[self.indptr[v as usize] as usize..self.indptr[v as usize + 1] as usize]
    }

    /// Returns true if the in-neighbours of every node ascend, so that a binary search finds one in
    /// its row. The first call takes O(E), parallel; later ones return its result.
    pub fn has_ascending_rows(&self) -> bool {
        if let Some(&known) = self.ascending.get() {
            return known;
        }
        // Outside of the lock: a thread that waits for its tasks could run one that waits for it.
        let rows = self.indptr.par_windows(2).with_min_len(1 << 10);
        let found = rows.all(|ends| self.indices[ends[0] as usize..ends[1] as usize].is_sorted());
        *self.ascending.get_or_init(|| found)
    }

    /// Number of in-neighbours of `v`.
    #[inline]
    pub fn in_degree(&self, v: NodeId) -> usize {
        (self.indptr[v as usize + 1] - self.indptr[v as usize]) as usize
    }

    /// Calls `see` with ascending ranges of nodes with about `edges` edges each (a row is not
    /// divided), and releases the pages of a mapped graph's edges after each range.
    pub fn scan(&self, edges: usize, mut see: impl FnMut(Range<NodeId>)) {
        let nodes = self.num_nodes();
        let mut first = 0;
        while first < nodes {
            let start = self.indptr[first];
            let most = start.saturating_add(edges as u64);
            let fits = self.indptr[first + 1..].partition_point(|&end| end <= most).max(1);
            // Ranges of nodes without edges have a limited length too.
            let end = first + fits.min(edges.max(1));
            see(first as NodeId..end as NodeId);
            if self.indices.len() > edges {
                self.indices.release(start as usize..self.indptr[end] as usize);
            }
            first = end;
        }
    }

    /// Row starts, `V + 1`.
    #[inline]
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// In-neighbours, `E`.
    #[inline]
    pub fn indices(&self) -> &[NodeId] {
        &self.indices
    }

    /// Weight of each edge, in the order of [`Graph::indices`].
    pub fn edge_weight(&self) -> Option<&[f32]> {
        self.edge_weight.as_deref()
    }

    /// Copies the graph to anonymous huge pages (see [`Buffer::to_huge_pages`]).
    ///
    /// # Errors
    /// The allocation fails.
    pub fn to_huge_pages(&self) -> Result<Self> {
        Ok(Self {
            indptr: self.indptr.to_huge_pages()?,
            indices: self.indices.to_huge_pages()?,
            edge_weight: self.edge_weight.as_ref().map(Buffer::to_huge_pages).transpose()?,
            tables: self.tables.clone(),
            whole: self.whole.clone(),
            ascending: self.ascending.clone(),
        })
    }
}

/// Returns true if the weight is invalid.
pub fn is_no_weight(weight: &f32) -> bool {
    !(*weight >= 0.0 && weight.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_visit_every_node_once_in_small_ranges() {
        let degrees = [0u64, 0, 5, 1, 1, 0, 9, 0, 0, 0, 0, 2];
        let indptr: Vec<u64> = (0..=degrees.len()).map(|v| degrees[..v].iter().sum()).collect();
        let edges = indptr[degrees.len()] as usize;
        let graph = Graph::new(indptr.into(), vec![0; edges].into()).unwrap();
        for most in [1, 2, 3, 7, 100] {
            let mut next = 0;
            graph.scan(most, |run| {
                assert_eq!(run.start, next);
                let sum: u64 = degrees[run.start as usize..run.end as usize].iter().sum();
                assert!(sum <= most as u64 || run.len() == 1 && !run.is_empty());
                next = run.end;
            });
            assert_eq!(next as usize, degrees.len());
        }
    }

    #[test]
    fn rows_ascend_if_each_does() {
        let of = |indices: Vec<NodeId>| Graph::new(vec![0, 2, 2, 5].into(), indices.into()).unwrap();
        let ascending = of(vec![1, 2, 0, 0, 2]);
        assert!(ascending.has_ascending_rows() && ascending.clone().has_ascending_rows());
        assert!(!of(vec![1, 2, 0, 2, 1]).has_ascending_rows());
        assert!(Graph::new(vec![0].into(), vec![].into()).unwrap().has_ascending_rows());
    }

    #[test]
    fn every_kind_of_damage_is_rejected() {
        let bad = |indptr: Vec<u64>, indices: Vec<u32>| {
            Graph::new(indptr.into(), indices.into()).unwrap_err().to_string()
        };
        assert!(bad(vec![], vec![]).contains("empty"));
        assert!(bad(vec![1, 1], vec![]).contains("from 1"));
        assert!(bad(vec![0, 2], vec![0]).contains("number of edges"));
        assert!(bad(vec![0, 2, 1, 2], vec![0, 0]).contains("after node 1"));
        assert!(bad(vec![0, 1], vec![1]).contains("indices[0] is node 1"));
        let graph = Graph::new(vec![0, 1].into(), vec![0].into()).unwrap();
        assert!(graph.clone().with_edge_weight(vec![f32::NAN].into()).is_err());
        assert!(graph.with_edge_weight(vec![].into()).is_err());
    }
}
