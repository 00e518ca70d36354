//! Message-flow graph of one layer: the source rows that each destination row aggregates.

mod induce;
mod membership;
mod on_device;
mod transpose;

use std::sync::Arc;

pub use induce::Induce;
pub use on_device::{DeviceBlock, OnDevice};

use crate::NodeId;

/// Aggregation of a layer, as far as it determines edge weights in a sampler: with them the layer's
/// sum over a sample is an unbiased estimate of the sum over all neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Aggregation without edge weights (a maximum, attention).
    #[default]
    Other,
    /// Mean over `d` neighbours: each weighs `1 / d`.
    Mean,
    /// Sum: each weighs 1.
    Sum,
    /// Symmetrically normalized sum: `1 / sqrt((d_u + 1) (d_v + 1))`.
    Symmetric,
}

/// Bipartite block with `D` destinations and `S` sources, in CSC form over the destinations.
///
/// There are two kinds, which layers treat alike:
///
/// - **local** (`dst_ids` is `None`): sources are numbered `0..S` within the minibatch and
///   destination `v` is source row `v` (destinations are a prefix of the sources, as in DGL's MFG).
///   A layer reads a gathered `S x F` matrix.
/// - **global** (`dst_ids` is `Some`): `indices` and `dst_ids` are rows of a whole table, the
///   feature store or the previous layer's output for all nodes. Nothing is relabelled or gathered;
///   the sampled fast path and full-neighbour inference use this kind.
///
/// A block is a workspace: the sampler clears and refills it for every batch.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Number of destinations, `D`.
    pub num_dst: usize,
    /// Number of sources, `S`: gathered rows of a local block, rows of the table of a global one.
    pub num_src: usize,
    /// Edge range of each destination, `D + 1`.
    pub indptr: Vec<u32>,
    /// Source row of each edge, `E`.
    pub indices: Vec<NodeId>,
    /// Table row of each destination, `D`; only in a global block.
    pub dst_ids: Option<Vec<NodeId>>,
    /// Weight of each edge, `E`, or empty: unweighted.
    pub edge_weight: Vec<f32>,
    /// Weight of each destination's own row, `D`, or empty.
    pub self_weight: Vec<f32>,
    /// Number of leading sources, all destinations among them, that require a gradient; `None`:
    /// all. Rows of the other sources are constants to the layer.
    pub grad_src: Option<usize>,
    /// The same edges grouped by the sources that require a gradient; filled if a backward pass
    /// needs it.
    pub transposed: Transposed,
    /// Arrays on a device, copied ([`Block::on_device`]) or sampled there; in the latter case the
    /// fields above are empty.
    pub device: OnDevice,
}

/// Edges of a block grouped by source, destinations ascending within each. This order is that of
/// the sums in backward aggregation, so that they need no atomics and are reproducible.
#[derive(Clone, Debug, Default)]
pub struct Transposed {
    /// Edge range of each source that requires a gradient, [`Block::num_grad_src`] `+ 1`; empty if
    /// not built.
    pub indptr: Vec<u32>,
    /// Destination of each of their edges, `E` if all sources require one.
    pub dst: Vec<u32>,
    /// Position of that edge in [`Block::indices`].
    pub edge: Vec<u32>,
    scratch: transpose::Scratch,
}

impl Block {
    /// Number of edges, `E`.
    pub fn num_edges(&self) -> usize {
        match self.drawn_on_device() {
            Some(block) => block.num_edges(),
            None => self.indices.len(),
        }
    }

    /// Returns true if its edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.drawn_on_device().map_or(!self.edge_weight.is_empty(), |block| block.is_weighted())
    }

    /// Returns the device block if the arrays exist only there.
    pub fn drawn_on_device(&self) -> Option<&Arc<dyn DeviceBlock>> {
        self.device.get().filter(|_| self.indptr.is_empty())
    }

    /// Returns the arrays on device `device`: the existing ones, or those of `put`, which are
    /// stored until the block is cleared. `None` if `put` fails, or the block exists only on
    /// another device.
    pub fn on_device(
        &self,
        device: usize,
        put: impl FnOnce(&Self) -> Option<Arc<dyn DeviceBlock>>,
    ) -> Option<Arc<dyn DeviceBlock>> {
        match self.device.get() {
            Some(block) if block.device() == device => Some(block.clone()),
            Some(_) if self.indptr.is_empty() => None,
            Some(_) => put(self),
            None => {
                let block = put(self)?;
                Some(self.device.0.get_or_init(|| block).clone())
            }
        }
    }

    /// Copies arrays that exist only on a device to the host.
    pub fn fetch(&mut self) {
        if let Some(block) = self.drawn_on_device().cloned() {
            block.download(self);
        }
    }

    /// Edge positions of destination `v`.
    #[inline]
    pub fn edges(&self, v: usize) -> std::ops::Range<usize> {
        self.indptr[v] as usize..self.indptr[v + 1] as usize
    }

    /// Source row of destination `v` itself.
    #[inline]
    pub fn own_row(&self, v: usize) -> usize {
        match &self.dst_ids {
            Some(ids) => ids[v] as usize,
            None => v,
        }
    }

    /// Number of leading sources that require a gradient, at least `D`.
    #[inline]
    pub fn num_grad_src(&self) -> usize {
        self.grad_src.unwrap_or(self.num_src)
    }

    /// Empties the block and keeps its memory.
    pub fn clear(&mut self) {
        self.num_dst = 0;
        self.num_src = 0;
        self.indptr.clear();
        self.indices.clear();
        self.dst_ids = None;
        self.edge_weight.clear();
        self.self_weight.clear();
        self.grad_src = None;
        self.transposed.indptr.clear();
        self.transposed.dst.clear();
        self.transposed.edge.clear();
        self.device = OnDevice::default();
    }

    /// Fills [`Block::transposed`] of a local block: the edges from sources that require a
    /// gradient. O(S + E).
    pub fn transpose(&mut self) {
        self.device = OnDevice::default();
        transpose::serial(self);
    }

    /// Transposes as [`Block::transpose`] does, on all threads of the pool if the block is large
    /// enough.
    pub fn par_transpose(&mut self) {
        self.device = OnDevice::default();
        if self.num_edges() >= transpose::MIN_PARALLEL_EDGES && rayon::current_num_threads() > 1 {
            transpose::spread(self);
        } else {
            transpose::serial(self);
        }
    }

    /// Transposes a square block that has every edge in both directions and ascending neighbours:
    /// it is its own transpose, and one pass finds each edge's counterpart (Zeng et al., JPDC 2021,
    /// Algorithm 6). All sources are destinations and require a gradient.
    pub fn transpose_symmetric(&mut self) {
        debug_assert!(self.num_grad_src() == self.num_src, "a symmetric block is transposed whole");
        self.device = OnDevice::default();
        transpose::symmetric(self);
    }

    /// Returns true if [`Block::transpose`] was called since the last change.
    pub fn is_transposed(&self) -> bool {
        match self.drawn_on_device() {
            Some(block) => block.is_transposed(),
            None => self.transposed.indptr.len() == self.num_grad_src() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transpose_lists_the_same_edges_by_source() {
        // Destinations 0, 1 of sources 0..4.
        let mut block = Block {
            num_dst: 2,
            num_src: 4,
            indptr: vec![0, 3, 5],
            indices: vec![2, 3, 1, 3, 0],
            ..Block::default()
        };
        block.transpose();
        let t = &block.transposed;
        assert_eq!(t.indptr, [0, 1, 2, 3, 5]);
        assert_eq!(t.dst, [1, 0, 0, 0, 1]);
        assert_eq!(t.edge, [4, 2, 0, 1, 3]);
        assert!(block.is_transposed());

        block.grad_src = Some(3);
        assert!(!block.is_transposed());
        block.transpose();
        let t = &block.transposed;
        assert_eq!(t.indptr, [0, 1, 2, 3]);
        assert_eq!(t.dst, [1, 0, 0]);
        assert_eq!(t.edge, [4, 2, 0]);
        assert!(block.is_transposed());
        block.clear();
        assert_eq!(block.grad_src, None);
    }
}
