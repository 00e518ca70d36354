//! Computation of bottom-layer rows from nodes and parameters.

use graphmill_core::{Matrix, NodeId, keyed};
use graphmill_loader::{Extracted, Seeds, Workspace};
use graphmill_nn::{
    Pass,
    layer::LayerInput,
    model::{Activations, BottomRows, Model, ProjectedRows},
};

use super::{Embeddings, Slice, Snapshot};
use crate::{
    Result,
    learner::StepContext,
    stage::{Drawn, Loader},
};

/// Number of nodes whose rows are made at once, so that their inputs stay in the cache.
pub(super) const CHUNK_LEN: usize = 1 << 14;

/// Makes rows with a copy of the model, whose bottom layer takes the parameters of any version.
pub struct RowMaker {
    model: Model,
    acts: Activations,
    space: Workspace,
    /// Memory of a chunk's batch.
    memory: Seeds,
    /// Aggregates of a chunk.
    aggregates: Vec<Matrix>,
    /// Edges drawn since this was set to 0.
    pub edges: u64,
}

/// Draws and parameters that rows are made from.
#[derive(Clone, Copy, Debug)]
pub struct RowVersion<'a> {
    /// Epoch and number of the batch whose draws are used.
    pub batch: (u64, u64),
    /// Version of the parameters.
    pub version: u64,
    /// Parameters of that version; if empty, those of the model.
    pub snapshot: &'a Snapshot,
    /// Rank that makes the rows, on which dropout depends.
    pub rank: usize,
}

impl RowMaker {
    /// Maker for models of this shape, on a graph of `num_nodes` nodes.
    pub fn new(model: &Model, num_nodes: usize) -> Self {
        Self {
            model: model.clone(),
            acts: Activations::default(),
            space: Workspace::new(num_nodes),
            memory: Seeds::default(),
            aggregates: Vec::new(),
            edges: 0,
        }
    }

    /// Computes the aggregates of the rows of `nodes`, of the widths of [`Model::aggregate_dims`],
    /// with the model's current parameters.
    ///
    /// # Errors
    /// As [`RowMaker::make`].
    pub fn inputs(
        &mut self,
        loader: &Loader,
        context: &StepContext,
        nodes: &[NodeId],
        widths: &[usize],
    ) -> Result<Vec<Matrix>> {
        let snapshot = std::sync::Arc::new(Vec::new());
        let mut to = Embeddings::default();
        to.rows.resize(nodes.len(), self.model.layer_out_dim(0));
        to.aggregates = widths.iter().map(|&width| Matrix::zeros(nodes.len(), width)).collect();
        let own = RowVersion { batch: (0, 0), version: 0, snapshot: &snapshot, rank: 0 };
        self.make(loader, context, own, nodes, 0, &mut to)?;
        Ok(to.aggregates)
    }

    /// Makes the rows of `nodes` and writes them to the rows of `to` from `from` on.
    ///
    /// # Errors
    /// A block has more edges than its index type allows, or features cannot be read.
    pub fn make(
        &mut self,
        loader: &Loader,
        context: &StepContext,
        RowVersion { batch: (epoch, number), version, snapshot, rank }: RowVersion,
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
        for (i, chunk) in nodes.chunks(CHUNK_LEN).enumerate() {
            // only a bottom block, without upper blocks
            let mut upper = std::mem::take(&mut self.memory).refill(number, []).into_upper(1);
            upper.destinations.extend_from_slice(chunk);
            self.space.set_parallel(true);
            let drawn = loader.sample_bottom(epoch, &mut self.space, upper)?;
            let batch = loader.extract(Drawn::New(drawn))?.into_batch();
            let Extracted { sampled, features, .. } = &batch;
            let block = &sampled.blocks[0];
            self.edges += block.num_edges() as u64;
            let x = match (&context.table, sampled.is_fused()) {
                (Some(table), true) => table.view(),
                _ => features.view(),
            };
            let at = from + i * CHUNK_LEN;
            // every chunk has its own dropout mask
            let key = keyed::key(&[context.seed, version, at as u64, 0x6d61_6b65]);
            let key = if rank == 0 { key } else { keyed::key(&[key, rank as u64]) };
            let pass = Pass { backend: context.backend, training: true, key };
            let input = LayerInput { order: context.orders[0], block, x, transformed: &[] };
            let Self { model, acts, aggregates, .. } = self;
            if to.basis.is_empty() {
                let rows =
                    BottomRows { rows: &mut to.rows, at, aggregates: &mut to.aggregates, aggregates_at: at };
                model.bottom_rows(&pass, &input, acts, rows);
            } else {
                aggregates.resize_with(to.basis.len(), Matrix::default);
                let widths = to.basis.iter().map(Matrix::num_cols);
                aggregates.iter_mut().zip(widths).for_each(|(of, width)| of.resize(chunk.len(), width));
                let rows = BottomRows { rows: &mut to.rows, at, aggregates, aggregates_at: 0 };
                model.bottom_rows(&pass, &input, acts, rows);
                let rows = ProjectedRows { rows: &mut to.rows, coordinates: &mut to.coordinates, at };
                model.project_rows(&pass, &to.basis, aggregates, acts, rows);
            }
            self.memory = batch.recycle();
        }
        Ok(())
    }
}
