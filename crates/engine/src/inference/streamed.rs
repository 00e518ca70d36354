//! Feature rows that inference reads in chunks.

use graphmill_core::NodeId;
use graphmill_loader::Feature;
use graphmill_nn::{Backend, Matrix, ProductOrder, View, model::Model};

use super::{
    gathered::Gathered,
    layers::{Layer, Layers},
    nodes::NodeSet,
    rows::RowSource,
};
use crate::Result;

/// Streamed rows of any tier, such as a file or another rank.
pub(crate) struct StreamedRows<'a>(pub(crate) &'a dyn Feature);

impl RowSource for StreamedRows<'_> {
    fn choose(&self, model: &Model, orders: &mut [ProductOrder]) {
        // a layer that cannot start with a product reads its neighbours' rows per chunk
        model.start_with_product(orders);
    }

    fn chunk<'r>(&'r self, _: &dyn Backend, ids: &[NodeId], gathered: &'r mut Gathered) -> Result<View<'r>> {
        self.0.gather(ids, &mut gathered.streamed)?;
        Ok(gathered.streamed.view())
    }

    fn gather_few(&self, _: &dyn Backend, _: bool, _: &NodeSet, _: &mut Matrix) -> bool {
        false
    }

    fn first_layer(
        &self,
        layers: &mut Layers,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()> {
        layers.streamed_layer(self.0, layer, sources, destinations)
    }

    fn read(&self, _: &dyn Backend, ids: &[NodeId], out: &mut Matrix) -> Result<()> {
        out.resize(ids.len(), self.0.dim());
        Ok(self.0.read(ids, out.view_mut().host()).map(drop)?)
    }
}
