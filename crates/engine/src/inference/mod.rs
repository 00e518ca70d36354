//! Layer-wise full-neighbour inference: every layer for all the nodes it is needed for, in chunks.
//!
//! A sampled forward pass answers for a sample; evaluation wants the exact answer, and computing it
//! seed by seed would visit most of the graph again and again. Layer by layer every node's row is
//! computed once per layer: O(L (E + V)) row operations instead of O(B k^L).
//!
//! A layer is computed only for the nodes that the layers above it need, and has rows only for
//! them. Memory: the rows of one layer going in and of one coming out (`N x H` each for the N nodes
//! needed, all V where most are wanted; twice where rows are transformed before they are
//! aggregated), plus one chunk. A chunk is bounded by edges as well as by nodes: hubs make it
//! shorter.
//!
//! Feature rows that are not in memory ([`Source::Feature`]) are never held but a chunk at a time:
//! the first layer transforms each as it is read, in the order of the nodes, so that a file is read
//! from its beginning to its end and not once for every neighbour.

mod gathered;
mod layers;
mod neighbors;
mod nodes;
mod rows;
mod score;
mod source;
mod streamed;
mod table;

use graphmill_core::{
    Graph, NodeId,
    progress::{Progress, Quiet},
};
use graphmill_loader::{sampler::inference::InferenceNeighbors, weights::SymmetricWeights};
use graphmill_nn::{Backend, Matrix, Pass, ProductOrder, backend::ops::Gather, model::Model};

use crate::Result;
pub(crate) use layers::{Layer, Layers};
pub(crate) use nodes::{Marks, NodeSet, some};
pub(crate) use rows::RowSource;
pub(crate) use score::score;
pub use source::Source;
pub(crate) use streamed::StreamedRows;

/// The rows that inference returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The classes' scores before softmax or sigmoid.
    Logits,
    /// The last hidden rows: what the last linear map reads. With a classifier head those are the
    /// rows of the last graph layer, otherwise the rows that the last graph layer aggregates (the
    /// features, for one layer).
    Embeddings,
}

/// Full-neighbour inference over one graph; its tables are reused from call to call.
pub struct Inference<'a> {
    source: Box<dyn RowSource + 'a>,
    pub(crate) layers: Layers<'a>,
}

impl<'a> Inference<'a> {
    /// Over `graph` with features of `V x F`, `chunk` nodes at a time.
    pub fn new(
        graph: &'a Graph,
        features: impl Into<Source<'a>>,
        symmetric: Option<&'a SymmetricWeights>,
        backend: &'a dyn Backend,
        chunk: usize,
    ) -> Self {
        let layers = Layers::new(graph, symmetric, backend, chunk, &Quiet);
        Self { source: features.into().rows(), layers }
    }

    /// Takes neighbours as `exact` says; otherwise all of them, each the same.
    #[must_use]
    pub fn taking(mut self, exact: InferenceNeighbors) -> Self {
        self.layers.exact = exact;
        self
    }

    /// Ends early where `watch` says so.
    #[must_use]
    pub fn watched(mut self, watch: &'a dyn Progress) -> Self {
        self.layers.watch = watch;
        self
    }

    /// The rows of `wanted` (each below `V`), one per entry and in its order, written to `out`: the
    /// same bits wherever equal features are, as long as the first layer multiplies before it
    /// aggregates. It always does where they are read.
    ///
    /// # Errors
    /// Features cannot be read; the watcher ends the work.
    pub fn run(&mut self, model: &Model, wanted: &[NodeId], output: Output, out: &mut Matrix) -> Result<()> {
        let Self { source, layers } = self;
        let pass = Pass { backend: layers.backend, training: false, key: 0 };
        let count = match output {
            Output::Embeddings => model.num_embedding_layers(),
            Output::Logits => model.num_layers(),
        };
        let nodes = layers.graph.num_nodes();
        let mut orders = model.inference_orders(nodes, layers.graph.num_edges());
        source.choose(model, &mut orders);
        let mut needed = layers.needed(wanted, count, model.num_layers(), model.aggregation());
        // where the first layer aggregates rows of the feature table, it reads them in place
        let in_place =
            !model.has_input_layer() && orders[..count].first() != Some(&ProductOrder::TransformFirst);
        if !in_place && 2 * needed[0].len() > nodes {
            needed[0] = NodeSet::all(nodes);
        }
        let mut from_features = if model.has_input_layer() {
            let mut rows = std::mem::take(&mut layers.input);
            let made = source.input_rows(layers, model, &pass, &needed[0], &mut rows);
            layers.input = rows;
            made?;
            false
        } else {
            !source.gather_few(layers.backend, in_place, &needed[0], &mut layers.input)
        };
        for (index, &order) in orders[..count].iter().enumerate() {
            let (sources, destinations) = (&needed[index], &needed[index + 1]);
            let layer = Layer { model, pass: &pass, index, order };
            if from_features {
                source.first_layer(layers, &layer, sources, destinations)?;
            } else {
                layers.upper_layer(&layer, sources, destinations)?;
            }
            std::mem::swap(&mut layers.input, &mut layers.output);
            from_features = false;
        }

        let mut places = wanted.to_vec();
        let mut rows = std::mem::take(&mut layers.gathered.dense);
        if from_features {
            source.read(layers.backend, &places, &mut rows)?;
        } else {
            needed[count].number(&mut places);
            rows.resize(places.len(), layers.input.num_cols());
            Gather { src: layers.input.view(), ids: &places, dst: rows.view_mut() }.run(layers.backend);
        }
        if output == Output::Logits && model.has_head() {
            layers.head_rows(model, &pass, rows.view(), out);
        } else {
            out.resize(wanted.len(), rows.num_cols());
            layers.backend.copy(rows.view(), out.view_mut());
        }
        layers.gathered.dense = rows;
        Ok(layers.backend.check()?)
    }
}

#[cfg(test)]
mod tests;
