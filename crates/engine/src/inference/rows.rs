//! Interface between inference and its input rows.

use graphmill_core::{NodeId, block::Aggregation};
use graphmill_nn::{Backend, Matrix, ProductOrder, View, model::Model};

use super::{
    gathered::Gathered,
    layers::{Layer, Layers},
    nodes::NodeSet,
    outputs::Above,
};
use crate::Result;

/// Feature rows in memory or streamed.
pub(crate) trait RowSource {
    /// Aggregation of the stored aggregates, row `V + v` for node `v`, if they follow the features.
    fn stored(&self) -> Option<Aggregation> {
        None
    }

    /// Adapts the product orders of the layers to the access that these rows support.
    fn choose(&self, model: &Model, orders: &mut [ProductOrder]);

    /// Rows of the ascending, non-empty `ids`, as input of a product.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn chunk<'r>(
        &'r self,
        backend: &dyn Backend,
        ids: &[NodeId],
        gathered: &'r mut Gathered,
    ) -> Result<View<'r>>;

    /// Computes rows of the input layer to the outputs of `layers`.
    ///
    /// # Errors
    /// The rows cannot be read, or the watcher stops the work.
    fn input_rows(&self, layers: &mut Layers, above: &Above) -> Result<()> {
        let Above { model, pass, nodes, .. } = *above;
        layers.outputs.start(above, model.layer_in_dim(0));
        for (i, ids) in nodes.ids().chunks(layers.chunk).enumerate() {
            layers.watch.check()?;
            let at = i * layers.chunk;
            let run = at..at + ids.len();
            let rows = self.chunk(layers.backend, ids, &mut layers.gathered)?;
            model.input_rows(pass, rows, layers.outputs.chunk(above, run.clone()));
            layers.outputs.pass_on(above, run, &mut layers.acts);
        }
        Ok(())
    }

    /// Gathers the rows that the first layer needs into `out`, if they are few and the layer does
    /// not read them in place. Returns true if it gathered them.
    fn gather_few(&self, backend: &dyn Backend, in_place: bool, needed: &NodeSet, out: &mut Matrix) -> bool;

    /// Computes the first layer to the outputs of `layers`.
    ///
    /// # Errors
    /// Rows cannot be read, or the watcher stops the work.
    fn first_layer(
        &self,
        layers: &mut Layers,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()>;

    /// Reads the rows of `ids`, which may be in any order, into `out`.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn read(&self, backend: &dyn Backend, ids: &[NodeId], out: &mut Matrix) -> Result<()>;
}
