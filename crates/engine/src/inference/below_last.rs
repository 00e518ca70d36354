//! Exact inference in two parts: the layers below the last for all nodes, once, and the last one
//! for the nodes of a question.
//!
//! The rows are those of the whole computation: rows of dense products do not depend on the other
//! rows, and each layer reads its neighbours in the order of the graph.
//!
//! # Cost
//!
//! The first part is that of all nodes without the last layer. The second part reads the
//! neighbours of one hop.
//!
//! # Memory
//!
//! `V x H` rows that stay, and the tables or rows below them while they are computed.

use graphmill_core::NodeId;
use graphmill_nn::{Matrix, Pass, ProductOrder, backend::ops::Gather, layer::gather_rows, model::Model};

use super::{Inference, NodeSet, layers::Layer};
use crate::Result;

impl Inference<'_> {
    /// Input rows of the last graph layer for all nodes (`V x H`); `None` if the last layer is the
    /// first one and reads the features.
    ///
    /// # Errors
    /// Features cannot be read, or the watcher stops the work.
    pub(crate) fn below_last(&mut self, model: &Model) -> Result<Option<Matrix>> {
        let count = model.num_layers() - 1;
        if count == 0 {
            return Ok(None);
        }
        let all: Vec<NodeId> = (0..self.layers.graph.num_nodes() as NodeId).collect();
        self.compute(model, &all, count, false)?;
        self.layers.backend.check()?;
        Ok(Some(std::mem::take(&mut self.layers.input)))
    }

    /// Writes the logits of `wanted` to `out` from the rows of [`Inference::below_last`].
    ///
    /// # Errors
    /// The watcher stops the work.
    pub(crate) fn last(
        &mut self,
        model: &Model,
        below: &Matrix,
        wanted: &[NodeId],
        out: &mut Matrix,
    ) -> Result<()> {
        let Self { source, layers, size } = self;
        let pass = Pass { backend: layers.backend, training: false, key: 0 };
        let (nodes, index) = (layers.graph.num_nodes(), model.num_layers() - 1);
        let mut orders = model.inference_orders(size[0], size[1]);
        source.choose(model, &mut orders);
        let layer = Layer::alone(model, &pass, index, orders[index]);
        let destinations = if layer.order == ProductOrder::TransformFirst {
            // only the rows that are read are transformed
            let mut needed = layers.needed(wanted, 1, 1, model.aggregation())?;
            gather_rows(layers.backend, below.view(), needed[0].ids(), &mut layers.input);
            layers.upper_layer(&layer, &needed[0], &needed[1])?;
            needed.swap_remove(1)
        } else {
            let destinations = NodeSet::of(nodes, wanted.iter().copied());
            layers.memory_layer(&layer, below, None, &destinations)?;
            destinations
        };
        let mut places = wanted.to_vec();
        destinations.number(&mut places);
        let mut rows = std::mem::take(&mut layers.gathered.dense);
        let computed = &layers.outputs.rows;
        rows.resize(places.len(), computed.num_cols());
        Gather { src: computed.view(), ids: &places, dst: rows.view_mut() }.run(layers.backend);
        layers.write_rows(model, &pass, (rows, model.has_head()), out)
    }
}
