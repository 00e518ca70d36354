//! Makes bottom-layer rows from nodes and parameters.

use graphmill_core::{Matrix, NodeId, keyed};
use graphmill_loader::{Extracted, Seeds, Workspace};
use graphmill_nn::{
    Pass,
    layer::LayerInput,
    model::{Activations, BottomRows, Model, ProjectedRows},
};

use super::{Embeddings, Slice, Snapshot};
use crate::{Result, learner::StepContext, stage::Loader};

/// Nodes whose rows are made at once: what they are made from stays in the cache.
const CHUNK: usize = 1 << 14;

/// A copy of the model whose bottom layer is as old as need be, and room to draw one hop.
pub struct Maker {
    model: Model,
    acts: Activations,
    space: Workspace,
    /// Memory of a chunk's batch.
    memory: Seeds,
    /// What a chunk is made from.
    room: Vec<Matrix>,
    /// Edges of what was made since this was set to 0.
    pub edges: u64,
}

/// The draws and the parameters that rows are made from.
#[derive(Clone, Copy, Debug)]
pub struct RowVersion<'a> {
    /// Epoch and number of the batch that would draw the same neighbours.
    pub batch: (u64, u64),
    /// Version of the parameters.
    pub version: u64,
    /// The parameters of that version; empty: the model's own.
    pub snapshot: &'a Snapshot,
}

impl Maker {
    /// For models of this shape, and a graph of so many nodes.
    pub fn new(model: &Model, num_nodes: usize) -> Self {
        Self {
            model: model.clone(),
            acts: Activations::default(),
            space: Workspace::new(num_nodes),
            memory: Seeds::default(),
            room: Vec::new(),
            edges: 0,
        }
    }

    /// What the rows of `nodes` are made from: the widths that [`Model::aggregate_dims`] says. The
    /// model's own parameters count.
    ///
    /// # Errors
    /// As [`Maker::make`].
    pub fn inputs(
        &mut self,
        loader: &Loader,
        passes: &StepContext,
        nodes: &[NodeId],
        widths: &[usize],
    ) -> Result<Vec<Matrix>> {
        let snapshot = std::sync::Arc::new(Vec::new());
        let mut to = Embeddings::default();
        to.rows.resize(nodes.len(), self.model.layer_out_dim(0));
        to.kept = widths.iter().map(|&width| Matrix::zeros(nodes.len(), width)).collect();
        let own = RowVersion { batch: (0, 0), version: 0, snapshot: &snapshot };
        self.make(loader, passes, own, nodes, 0, &mut to)?;
        Ok(to.kept)
    }

    /// Makes the rows of `nodes`, as the rows of `to` from `from` on, which exist.
    ///
    /// # Errors
    /// A block has more edges than fit, or features cannot be read.
    pub fn make(
        &mut self,
        loader: &Loader,
        passes: &StepContext,
        RowVersion { batch: (epoch, number), version, snapshot }: RowVersion,
        nodes: &[NodeId],
        from: usize,
        to: &mut Embeddings,
    ) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let mut values = snapshot.iter();
        self.model.visit_bottom_mut(&mut |_, param| {
            if let Some(value) = values.next() {
                param.value.view_mut().host().copy_from_slice(value.view().host());
            }
        });
        to.slices.push(Slice { from, version });
        for (i, chunk) in nodes.chunks(CHUNK).enumerate() {
            // a bottom block alone, with nothing above it
            let mut upper = std::mem::take(&mut self.memory).refill(number, []).into_upper(1);
            upper.destinations.extend_from_slice(chunk);
            self.space.set_parallel(true);
            let batch = loader.sample_bottom(epoch, &mut self.space, upper)?.extract(loader.feature)?;
            let Extracted { sampled, features, .. } = &batch;
            let block = &sampled.blocks[0];
            self.edges += block.num_edges() as u64;
            let x = match (&passes.table, sampled.is_fused()) {
                (Some(table), true) => table.view(),
                _ => features.view(),
            };
            let at = from + i * CHUNK;
            // features that are dropped are dropped anew for every chunk
            let key = keyed::key(&[passes.seed, version, at as u64, 0x6d61_6b65]);
            let pass = Pass { backend: passes.backend, training: true, key };
            let input = LayerInput { order: passes.orders[0], block, x, transformed: &[] };
            let Self { model, acts, room, .. } = self;
            if to.basis.is_empty() {
                let rows = BottomRows { rows: &mut to.rows, at, aggregates: &mut to.kept, aggregates_at: at };
                model.bottom_rows(&pass, &input, acts, rows);
            } else {
                room.resize_with(to.basis.len(), Matrix::default);
                let widths = to.basis.iter().map(Matrix::num_cols);
                room.iter_mut().zip(widths).for_each(|(room, width)| room.resize(chunk.len(), width));
                let rows = BottomRows { rows: &mut to.rows, at, aggregates: room, aggregates_at: 0 };
                model.bottom_rows(&pass, &input, acts, rows);
                let rows = ProjectedRows { rows: &mut to.rows, coordinates: &mut to.coordinates, at };
                model.project_rows(&pass, &to.basis, room, acts, rows);
            }
            self.memory = batch.recycle();
        }
        Ok(())
    }
}
