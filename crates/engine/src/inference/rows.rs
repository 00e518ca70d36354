//! The interface between inference and the rows that it starts from.

use graphmill_core::NodeId;
use graphmill_nn::{Backend, Matrix, Pass, ProductOrder, View, model::Model};

use super::{
    gathered::Gathered,
    layers::{Layer, Layers},
    nodes::NodeSet,
};
use crate::Result;

/// Rows of features, wherever they are.
pub(crate) trait RowSource {
    /// Makes the orders of the layers' products those that these rows can be read by.
    fn choose(&self, model: &Model, orders: &mut [ProductOrder]);

    /// The rows of ascending `ids`, at least one, to be multiplied.
    ///
    /// # Errors
    /// They cannot be read.
    fn chunk<'r>(
        &'r self,
        backend: &dyn Backend,
        ids: &[NodeId],
        gathered: &'r mut Gathered,
    ) -> Result<View<'r>>;

    /// The input layer's rows of `nodes`, written to `out`.
    ///
    /// # Errors
    /// They cannot be read, or the watcher ends the work.
    fn input_rows(
        &self,
        layers: &mut Layers,
        model: &Model,
        pass: &Pass,
        nodes: &NodeSet,
        out: &mut Matrix,
    ) -> Result<()> {
        out.resize(nodes.len(), model.layer_in_dim(0));
        for (i, ids) in nodes.ids().chunks(layers.chunk).enumerate() {
            layers.watch.check()?;
            let at = i * layers.chunk;
            let rows = self.chunk(layers.backend, ids, &mut layers.gathered)?;
            model.input_rows(pass, rows, out.rows_mut(at..at + ids.len()));
        }
        Ok(())
    }

    /// Gathers the rows of the nodes that the first layer needs into `out`, if they are few and it
    /// does not read them in place; returns whether it did.
    fn gather_few(&self, backend: &dyn Backend, in_place: bool, needed: &NodeSet, out: &mut Matrix) -> bool;

    /// The first layer, to the output of `layers`.
    ///
    /// # Errors
    /// Rows cannot be read, or the watcher ends the work.
    fn first_layer(
        &self,
        layers: &mut Layers,
        layer: &Layer,
        sources: &NodeSet,
        destinations: &NodeSet,
    ) -> Result<()>;

    /// The rows of `ids`, in any order.
    ///
    /// # Errors
    /// They cannot be read.
    fn read(&self, backend: &dyn Backend, ids: &[NodeId], out: &mut Matrix) -> Result<()>;
}
