//! Blocks on a device: the arrays of [`Block`], copied or drawn there.

#![forbid(unsafe_code)]

use std::{any::Any, sync::Arc};

use graphmill_core::{
    Block,
    block::{DeviceBlock, Transposed},
};

use crate::{Buffer, Queue, Result};

/// Arrays of a block, with the lengths of [`Block`].
#[derive(Debug)]
pub struct Resident {
    /// Destinations, `D`.
    pub num_dst: usize,
    /// Edges, `E`.
    pub num_edges: usize,
    /// Edge range of each destination, `D + 1`.
    pub indptr: Buffer<u32>,
    /// Source of each edge, `E`.
    pub indices: Buffer<u32>,
    /// Own row of each destination, `D`; only for a global block.
    pub dst_ids: Option<Buffer<u32>>,
    /// Weight of each edge, `E`.
    pub edge_weight: Option<Buffer<f32>>,
    /// Weight of each own row, `D`.
    pub self_weight: Option<Buffer<f32>>,
    /// The same edges by source.
    pub transposed: Option<ResidentTransposed>,
}

/// Arrays of a block's transpose.
#[derive(Debug)]
pub struct ResidentTransposed {
    /// Sources that receive a gradient.
    pub num_src: usize,
    /// Edges of those sources.
    pub num_edges: usize,
    /// Edge range of each of those sources, `num_src + 1`.
    pub indptr: Buffer<u32>,
    /// Destination of each edge.
    pub dst: Buffer<u32>,
    /// Position of each edge in the block.
    pub edge: Buffer<u32>,
}

impl Resident {
    /// Copies a block from the host.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub fn put(queue: &Arc<Queue>, block: &Block) -> Result<Self> {
        let some = |values: &[f32]| (!values.is_empty()).then(|| queue.upload(values)).transpose();
        let back = &block.transposed;
        let transposed = || -> Result<_> {
            Ok(ResidentTransposed {
                num_src: back.indptr.len() - 1,
                num_edges: back.dst.len(),
                indptr: queue.upload(&back.indptr)?,
                dst: queue.upload(&back.dst)?,
                edge: queue.upload(&back.edge)?,
            })
        };
        Ok(Self {
            num_dst: block.num_dst,
            num_edges: block.indices.len(),
            indptr: queue.upload(&block.indptr)?,
            indices: queue.upload(&block.indices)?,
            dst_ids: block.dst_ids.as_ref().map(|ids| queue.upload(ids)).transpose()?,
            edge_weight: some(&block.edge_weight)?,
            self_weight: some(&block.self_weight)?,
            transposed: (!back.indptr.is_empty()).then(transposed).transpose()?,
        })
    }

    /// The block on the queue's device: the existing arrays, or a copy.
    ///
    /// # Errors
    /// As for [`Resident::put`].
    pub fn of(queue: &Arc<Queue>, block: &Block) -> Result<Arc<dyn DeviceBlock>> {
        let mut failed = None;
        let put = |block: &Block| match Self::put(queue, block) {
            Ok(resident) => Some(Arc::new(resident) as Arc<dyn DeviceBlock>),
            Err(error) => {
                failed = Some(error);
                None
            }
        };
        let found = block.on_device(queue.device().number(), put);
        match (found, failed) {
            (Some(found), _) => Ok(found),
            (None, Some(error)) => Err(error),
            (None, None) => {
                // drawn on another device: copied through the host
                let mut copy = block.clone();
                copy.fetch();
                Ok(Arc::new(Self::put(queue, &copy)?))
            }
        }
    }

    fn fetch<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(&self, from: &Buffer<T>, len: usize) -> Vec<T> {
        let mut values = vec![T::zeroed(); len];
        if let Err(error) = from.download(&mut values) {
            from.queue().device().fail(error);
        }
        values
    }
}

impl DeviceBlock for Resident {
    fn device(&self) -> usize {
        self.indptr.queue().device().number()
    }

    fn num_edges(&self) -> usize {
        self.num_edges
    }

    fn is_weighted(&self) -> bool {
        self.edge_weight.is_some()
    }

    fn is_transposed(&self) -> bool {
        self.transposed.is_some()
    }

    fn download(&self, block: &mut Block) {
        let (dst, edges) = (self.num_dst, self.num_edges);
        block.indptr = self.fetch(&self.indptr, dst + 1);
        block.indices = self.fetch(&self.indices, edges);
        block.dst_ids = self.dst_ids.as_ref().map(|ids| self.fetch(ids, dst));
        block.edge_weight = self.edge_weight.as_ref().map_or_else(Vec::new, |x| self.fetch(x, edges));
        block.self_weight = self.self_weight.as_ref().map_or_else(Vec::new, |x| self.fetch(x, dst));
        block.transposed = Transposed::default();
        if let Some(back) = &self.transposed {
            block.transposed.indptr = self.fetch(&back.indptr, back.num_src + 1);
            block.transposed.dst = self.fetch(&back.dst, back.num_edges);
            block.transposed.edge = self.fetch(&back.edge, back.num_edges);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
