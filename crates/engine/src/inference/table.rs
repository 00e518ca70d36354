//! Feature rows in memory.

use graphmill_core::NodeId;
use graphmill_nn::{
    Backend, Matrix, ProductOrder, View, backend::ops::Gather, layer::gather_rows, model::Model,
};

use super::{
    gathered::{Gathered, contiguous},
    layers::{Layer, Layers},
    nodes::NodeSet,
    rows::RowSource,
};
use crate::Result;

/// A dense or sparse table with a row for each node.
pub(super) struct TableRows<'a>(pub(super) &'a Matrix);

impl RowSource for TableRows<'_> {
    fn choose(&self, model: &Model, orders: &mut [ProductOrder]) {
        if self.0.is_sparse() {
            assert!(
                model.start_with_product(orders),
                "sparse features require a model that multiplies first"
            );
        }
    }

    fn chunk<'r>(
        &'r self,
        backend: &dyn Backend,
        ids: &[NodeId],
        gathered: &'r mut Gathered,
    ) -> Result<View<'r>> {
        Ok(match contiguous(ids).filter(|_| self.0.is_wide()) {
            Some(span) => self.0.rows(span),
            None => gathered.fill(backend, self.0, ids),
        })
    }

    fn gather_few(&self, backend: &dyn Backend, in_place: bool, needed: &NodeSet, out: &mut Matrix) -> bool {
        let few = !in_place && !needed.is_all();
        if few {
            gather_rows(backend, self.0.view(), needed.ids(), out);
        }
        few
    }

    fn first_layer(
        &self,
        layers: &mut Layers,
        layer: &Layer,
        _: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        layers.memory_layer(layer, self.0, None, destinations)
    }

    fn read(&self, backend: &dyn Backend, ids: &[NodeId], out: &mut Matrix) -> Result<()> {
        out.resize(ids.len(), self.0.num_cols());
        Gather { src: self.0.view(), ids, dst: out.view_mut() }.run(backend);
        Ok(())
    }
}
