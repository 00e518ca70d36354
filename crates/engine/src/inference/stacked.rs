//! Feature rows that are followed by stored aggregates (`--bottom exact`).
//!
//! The first layer of a destination reads its own row and its aggregate in the place of the rows of
//! all its neighbours: `2 D` rows for `D` destinations, in chunks, and no row of another node. The
//! scores are those of all neighbours to rounding.

use graphmill_core::{NodeId, block::Aggregation};
use graphmill_loader::sampler::exact_bottom_block;
use graphmill_nn::{Backend, Matrix, ProductOrder, View, layer::LayerInput, model::Model};

use super::{
    gathered::Gathered,
    layers::{Layer, Layers},
    nodes::NodeSet,
    outputs::resize_tables,
    rows::RowSource,
};
use crate::{Result, config::Work};

/// Rows of `V` nodes, followed by their aggregates.
pub(super) struct StackedRows<'a> {
    pub(super) rows: Box<dyn RowSource + 'a>,
    pub(super) aggregation: Aggregation,
}

impl RowSource for StackedRows<'_> {
    fn stored(&self) -> Option<Aggregation> {
        Some(self.aggregation)
    }

    fn choose(&self, model: &Model, orders: &mut [ProductOrder]) {
        self.rows.choose(model, orders);
    }

    fn chunk<'r>(
        &'r self,
        backend: &dyn Backend,
        ids: &[NodeId],
        gathered: &'r mut Gathered,
    ) -> Result<View<'r>> {
        self.rows.chunk(backend, ids, gathered)
    }

    fn gather_few(&self, backend: &dyn Backend, in_place: bool, needed: &NodeSet, out: &mut Matrix) -> bool {
        self.rows.gather_few(backend, in_place, needed, out)
    }

    fn first_layer(
        &self,
        layers: &mut Layers,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        self.rows.first_layer(layers, layer, sources, destinations)
    }

    fn read(&self, backend: &dyn Backend, ids: &[NodeId], out: &mut Matrix) -> Result<()> {
        self.rows.read(backend, ids, out)
    }
}

impl Layers<'_> {
    /// Computes the first layer to `self.outputs` from the rows of `destinations` in `source` and
    /// their stored aggregates.
    ///
    /// # Errors
    /// Rows cannot be read, or the watcher stops the work.
    pub(crate) fn stored_layer(
        &mut self,
        source: &dyn RowSource,
        layer: &Layer,
        destinations: &NodeSet,
    ) -> Result<()> {
        let Layer { model, pass, index: l, order, .. } = *layer;
        let above = layer.above(destinations);
        let (count, symmetric) = (self.graph.num_nodes() as NodeId, model.needs_symmetric_weights());
        self.outputs.start(&above, model.layer_out_dim(l));
        let mut at = 0;
        // a chunk of rows, as those of other layers have
        for ids in destinations.ids().chunks(self.chunk.div_ceil(2)) {
            self.watch.check()?;
            let Self { stream, block, .. } = self;
            stream.nodes.clear();
            stream.nodes.extend_from_slice(ids);
            exact_bottom_block(count, symmetric, &mut stream.nodes, block);
            self.work += Work::of_block(ids.len(), block.num_edges());
            source.read(self.backend, &stream.nodes, &mut stream.rows)?;
            let x = stream.rows.view();
            let mut t: &[Matrix] = &[];
            if order == ProductOrder::TransformFirst {
                resize_tables(&mut stream.transformed, x.num_rows(), model.transformed_dims(l));
                model.transform_rows(l, pass, x, 0, &mut stream.transformed);
                t = &stream.transformed;
            }
            let run = at..at + ids.len();
            let input = LayerInput { order, block, x, transformed: t };
            model.infer(l, pass, &input, &mut self.acts, self.outputs.chunk(&above, run.clone()));
            self.outputs.pass_on(&above, run, &mut self.acts);
            at += ids.len();
        }
        Ok(())
    }
}
