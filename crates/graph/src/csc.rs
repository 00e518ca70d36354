//! The graph: for every node the run of its in-neighbours (compressed sparse columns).

use rayon::prelude::*;

use crate::{Buffer, Error, NodeId, Result, search::position};

/// A directed graph in CSC form. An undirected graph stores each edge both ways.
///
/// `indices[indptr[v]..indptr[v + 1]]` are the in-neighbours of `v`: the nodes whose messages `v`
/// receives.
///
/// ```
/// use graphmill_graph::Graph;
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
}

impl Graph {
    /// Takes `indptr` (`V + 1`) and `indices` (`E`) after checking them. O(V + E), parallel.
    ///
    /// # Errors
    /// `indptr` is empty, does not start at 0, decreases, or does not end at `E`; an id is not
    /// below `V`; there are more nodes than [`NodeId`] can number.
    pub fn new(indptr: Buffer<u64>, indices: Buffer<NodeId>) -> Result<Self> {
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
        if let Some(v) = indptr.par_windows(2).position_first(|ends| ends[0] > ends[1]) {
            return Err(Error::invalid(format!(
                "indptr decreases after node {v}: {} to {}",
                indptr[v],
                indptr[v + 1]
            )));
        }
        if let Some(e) = position(&indices, |&u| u as usize >= nodes) {
            return Err(Error::invalid(format!(
                "indices[{e}] is node {}, but there are {nodes} nodes",
                indices[e]
            )));
        }
        Ok(Self { indptr, indices, edge_weight: None })
    }

    /// A graph whose parts the builder out of memory has written and knows to be sound.
    pub(crate) fn sorted(indptr: Buffer<u64>, indices: Buffer<NodeId>) -> Self {
        debug_assert_eq!(indptr.last(), Some(&(indices.len() as u64)));
        Self { indptr, indices, edge_weight: None }
    }

    /// Row starts and in-neighbours as they are kept.
    pub(crate) fn buffers(&self) -> (&Buffer<u64>, &Buffer<NodeId>) {
        (&self.indptr, &self.indices)
    }

    /// The same graph with a weight per edge (`E`, in the order of `indices`).
    ///
    /// # Errors
    /// The lengths disagree or a weight is not finite and non-negative.
    pub fn with_edge_weight(mut self, edge_weight: Buffer<f32>) -> Result<Self> {
        if edge_weight.len() != self.indices.len() {
            return Err(Error::invalid(format!(
                "{} edge weights for {} edges",
                edge_weight.len(),
                self.indices.len()
            )));
        }
        if let Some(e) = position(&edge_weight, |&w| !(w >= 0.0 && w.is_finite())) {
            return Err(Error::invalid(format!(
                "edge weight {e} is {}: weights are finite and at least 0",
                edge_weight[e]
            )));
        }
        self.edge_weight = Some(edge_weight);
        Ok(self)
    }

    /// `V`.
    pub fn num_nodes(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// `E`, every stored direction counted.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// The nodes that `v` receives messages from.
    #[inline]
    pub fn in_neighbors(&self, v: NodeId) -> &[NodeId] {
        &self.indices[self.indptr[v as usize] as usize..self.indptr[v as usize + 1] as usize]
    }

    /// How many in-neighbours `v` has.
    #[inline]
    pub fn in_degree(&self, v: NodeId) -> usize {
        (self.indptr[v as usize + 1] - self.indptr[v as usize]) as usize
    }

    /// Row starts, `V + 1`.
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// In-neighbours, `E`.
    pub fn indices(&self) -> &[NodeId] {
        &self.indices
    }

    /// Weight per edge, in the order of [`Graph::indices`].
    pub fn edge_weight(&self) -> Option<&[f32]> {
        self.edge_weight.as_deref()
    }

    /// The same graph copied into anonymous huge pages (see [`Buffer::to_huge_pages`]).
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn to_huge_pages(&self) -> Result<Self> {
        Ok(Self {
            indptr: self.indptr.to_huge_pages()?,
            indices: self.indices.to_huge_pages()?,
            edge_weight: self.edge_weight.as_ref().map(Buffer::to_huge_pages).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_damage_is_refused() {
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
