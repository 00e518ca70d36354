//! One layer's message-flow graph: which source rows each destination row aggregates.

mod induce;
mod keep;
mod on_device;
mod transpose;

use std::sync::Arc;

pub use induce::Induce;
pub use on_device::{DeviceBlock, OnDevice};

use crate::NodeId;

/// What a layer makes of its neighbours' rows, as far as it concerns a sampler that weighs edges: the weights with which the
/// layer's sum over a sample estimates that over all neighbours without bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Nothing that edge weights enter (a maximum, attention).
    #[default]
    Other,
    /// The mean over `d` neighbours: each weighs `1 / d`.
    Mean,
    /// The sum: each weighs 1.
    Sum,
    /// The symmetric-normalised sum: `1 / sqrt((d_u + 1) (d_v + 1))`.
    Symmetric,
}

/// A bipartite block with `D` destinations and `S` sources, in CSC form over the destinations.
///
/// There are two kinds, and layers treat them alike:
///
/// - **local** (`dst_ids` is `None`): sources are numbered `0..S` within the minibatch and
///   destination `v` is source row `v` (destinations are a prefix of the sources, as in DGL's
///   MFG). A layer reads a gathered `S x F` matrix.
/// - **global** (`dst_ids` is `Some`): `indices` and `dst_ids` are rows of a whole table, the
///   feature store or the previous layer's output for all nodes. Nothing was relabelled or
///   gathered; the sampled fast path and full-neighbour inference use this kind.
///
/// A block is a workspace: the sampler clears and refills it for every batch.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// `D`.
    pub num_dst: usize,
    /// `S`: gathered source rows of a local block, rows of the table of a global one.
    pub num_src: usize,
    /// Edge run of each destination, `D + 1`.
    pub indptr: Vec<u32>,
    /// Source row of each edge, `E`.
    pub indices: Vec<NodeId>,
    /// Row of the table that each destination itself is, `D`; only in a global block.
    pub dst_ids: Option<Vec<NodeId>>,
    /// Weight of each edge, `E`, or empty: unweighted.
    pub edge_weight: Vec<f32>,
    /// Weight of each destination's own row, `D`, or empty.
    pub self_weight: Vec<f32>,
    /// How many of the sources, the first ones and all destinations among them, want a gradient; `None`: all. The others' rows
    /// are constants to the layer.
    pub grad_src: Option<usize>,
    /// The same edges seen from the sources that want a gradient; filled where a backward pass needs it.
    pub transposed: Transposed,
    /// The arrays on a device, which were put there ([`Block::on_device`]) or drawn there: the ones above are then empty.
    pub device: OnDevice,
}

/// A block's edges grouped by source, destinations ascending within each: the fixed order in which
/// backward aggregation adds up, so that no atomics are needed and the sum is reproducible.
#[derive(Clone, Debug, Default)]
pub struct Transposed {
    /// Edge run of each source that wants a gradient, [`Block::num_grad_src`] `+ 1`; empty when not built.
    pub indptr: Vec<u32>,
    /// Destination of each of their edges, `E` where all sources want one.
    pub dst: Vec<u32>,
    /// Position of that edge in [`Block::indices`].
    pub edge: Vec<u32>,
    room: transpose::Room,
}

impl Block {
    /// `E`.
    pub fn num_edges(&self) -> usize {
        match self.drawn_on_device() {
            Some(block) => block.num_edges(),
            None => self.indices.len(),
        }
    }

    /// Whether its edges have weights of their own.
    pub fn is_weighted(&self) -> bool {
        self.drawn_on_device().map_or(!self.edge_weight.is_empty(), |block| block.is_weighted())
    }

    /// The arrays on a device, where they are nowhere else.
    pub fn drawn_on_device(&self) -> Option<&Arc<dyn DeviceBlock>> {
        self.device.get().filter(|_| self.indptr.is_empty())
    }

    /// The arrays on the device of that number: what is there, or `put`, which is kept until the block is cleared. `None` where `put`
    /// gives nothing, or the block is on another device alone.
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

    /// Brings arrays that a device alone has to the host.
    pub fn fetch(&mut self) {
        if let Some(block) = self.drawn_on_device().cloned() {
            block.download(self);
        }
    }

    /// The edge positions of destination `v`.
    #[inline]
    pub fn edges(&self, v: usize) -> std::ops::Range<usize> {
        self.indptr[v] as usize..self.indptr[v + 1] as usize
    }

    /// The source row that destination `v` itself is.
    #[inline]
    pub fn own_row(&self, v: usize) -> usize {
        match &self.dst_ids {
            Some(ids) => ids[v] as usize,
            None => v,
        }
    }

    /// How many sources want a gradient: the first so many, `D` at least.
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

    /// Fills [`Block::transposed`] of a local block: the edges from sources that want a gradient. O(S + E).
    pub fn transpose(&mut self) {
        self.device = OnDevice::default();
        transpose::serial(self);
    }

    /// As [`Block::transpose`], over the threads of the pool where the block is large enough to pay.
    pub fn par_transpose(&mut self) {
        self.device = OnDevice::default();
        if self.num_edges() >= transpose::LARGE && rayon::current_num_threads() > 1 {
            transpose::spread(self);
        } else {
            transpose::serial(self);
        }
    }

    /// As [`Block::transpose`], of a square block that has every edge both ways and ascending neighbours: it is its own
    /// transpose, and one pass finds each edge's counterpart (Zeng et al., JPDC 2021, Algorithm 6). All sources are
    /// destinations and want a gradient.
    pub fn transpose_symmetric(&mut self) {
        debug_assert!(self.num_grad_src() == self.num_src, "a symmetric block is transposed whole");
        self.device = OnDevice::default();
        transpose::symmetric(self);
    }

    /// Whether [`Block::transpose`] was called since the last change.
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
        // destinations 0, 1 of sources 0..4
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
