//! Layer-wise full-neighbour inference.
//!
//! # Algorithm
//!
//! A sampled forward pass estimates a node's row, but evaluation needs the exact one, and computing
//! it seed by seed would visit most of the graph repeatedly. Inference computes layer by layer, in
//! chunks of nodes. A layer is computed only for the nodes that the layers above it need.
//!
//! If feature rows are not in memory ([`Source::Feature`]), the first layer transforms them while
//! reading them once in the order of the nodes. A file is therefore read sequentially, and not once
//! per neighbour.
//!
//! The first layer reads two rows for each destination in the place of those of all neighbours
//! (`stacked.rs`), if stored aggregates follow the features (`--bottom exact`) and all neighbours
//! have equal weights.
//!
//! A layer that transforms before it aggregates transforms each chunk of the rows below it as soon
//! as the chunk is computed, and a head does the same (`outputs.rs`). A model of two GraphSAGE
//! layers with fewer classes than hidden columns stores no hidden row. Layers over ranks store
//! their rows, because other ranks read them.
//!
//! # Source
//!
//! Hamilton, Ying and Leskovec, *Inductive Representation Learning on Large Graphs*, NeurIPS 2017,
//! algorithm 1 (all nodes, layer by layer).
//!
//! # Cost
//!
//! O(L (E + V)) row operations, instead of O(B k^L) seed by seed.
//!
//! # Memory
//!
//! Inputs and outputs of one layer for the N needed nodes (all V if most are needed), plus one
//! chunk. Below a layer that aggregates first, they are `N x H` rows. Below one that transforms
//! first, they are its tables (`N x C` for C classes, and as much again for the own rows of
//! GraphSAGE), and the `N x H` rows only if the layer reads them too: with a residual, with
//! max-pooling, in PinSAGE, or if H is below 3 or above 512 in GraphSAGE, whose bits would change.
//! The result takes no memory of its own if it has a row for each needed node, in their order.
//! Chunks are bounded by nodes and by edges, so hubs make them shorter. Streamed feature rows take
//! one chunk.

#![forbid(unsafe_code)]

mod below_last;
mod gathered;
mod layers;
mod neighbors;
mod nodes;
mod outputs;
mod rows;
mod score;
mod source;
mod stacked;
mod streamed;
mod table;

use std::sync::Arc;

use graphmill_core::{
    Graph, NodeId,
    progress::{Progress, Quiet},
};
use graphmill_loader::{sampler::inference::InferenceNeighbors, weights::SymmetricWeights};
use graphmill_nn::{Backend, Matrix, Pass, ProductOrder, backend::ops::Gather, model::Model};

use crate::{Result, config::Work};
pub(crate) use layers::{Layer, Layers};
pub(crate) use nodes::{Added, NodeSet, fixed_sample, select};
pub(crate) use outputs::Above;
use outputs::Consumer;
pub(crate) use rows::RowSource;
pub(crate) use score::{
    DIAGNOSED_TRAIN_NODES, class_report, diagnosed_parts, diagnostics, score, score_labels,
};
pub use source::Source;
pub(crate) use streamed::StreamedRows;

/// The rows that inference returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Scores of the classes before softmax or sigmoid.
    Logits,
    /// Last hidden rows, the input of the last linear map. With a classifier head, they are the
    /// rows of the last graph layer, otherwise the rows that the last graph layer aggregates (the
    /// features if the model has one layer).
    Embeddings,
}

/// Full-neighbour inference on one graph. Reuses its buffers between calls.
pub struct Inference<'a> {
    source: Box<dyn RowSource + 'a>,
    pub(crate) layers: Layers<'a>,
    /// Numbers of nodes and edges that the orders of products are chosen by.
    size: [usize; 2],
}

impl<'a> Inference<'a> {
    /// Inference on `graph` with features of `V x F`, in chunks of at most `chunk` nodes.
    pub fn new(
        graph: &'a Graph,
        features: impl Into<Source<'a>>,
        symmetric: Option<&'a SymmetricWeights>,
        backend: &'a dyn Backend,
        chunk: usize,
    ) -> Self {
        let layers = Layers::new(graph, symmetric, backend, chunk, &Quiet);
        Self { source: features.into().rows(), layers, size: [graph.num_nodes(), graph.num_edges()] }
    }

    /// Chooses the orders of products for a graph of this number of nodes and edges, of which the
    /// graph of inference is a part, so that rows have the bits of those on the whole graph.
    #[must_use]
    pub(crate) fn part_of(self, size: [usize; 2]) -> Self {
        Self { size, ..self }
    }

    /// Selects and weights neighbours by `neighbors`. The default is all neighbours with equal
    /// weights.
    #[must_use]
    pub fn with_neighbors(mut self, neighbors: impl Into<Arc<InferenceNeighbors>>) -> Self {
        self.layers.neighbors = neighbors.into();
        self
    }

    /// Stops with an error when `watch` asks for it.
    #[must_use]
    pub fn watched(mut self, watch: &'a dyn Progress) -> Self {
        self.layers.watch = watch;
        self
    }

    /// Returns true if the first layer of `model` reads stored aggregates in the place of the rows
    /// of all neighbours.
    pub(crate) fn reads_stored(&self, model: &Model) -> bool {
        self.layers.neighbors.is_uniform()
            && self.source.stored().is_some_and(|stored| model.fixed_bottom() == Some(stored))
    }

    /// Work of the layers since the last call.
    pub(crate) fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.layers.work)
    }

    /// Writes the rows of `wanted` (each below `V`) to `out`, one per entry in its order.
    ///
    /// Rows from memory and streamed rows give the same bits if the first layer multiplies before
    /// it aggregates, as it always does with streamed rows.
    ///
    /// # Errors
    /// Features cannot be read, or the watcher stops the work.
    pub fn run(&mut self, model: &Model, wanted: &[NodeId], output: Output, out: &mut Matrix) -> Result<()> {
        let count = match output {
            Output::Embeddings => model.num_embedding_layers(),
            Output::Logits => model.num_layers(),
        };
        // rows of all nodes move to `out` and back, and are not copied
        let Layers { input, outputs, .. } = &mut self.layers;
        if let Some(spare) = [input, &mut outputs.rows].into_iter().find(|spare| spare.num_rows() == 0) {
            std::mem::swap(spare, out);
        }
        let through_head = output == Output::Logits && model.has_head();
        let (computed, from_features) = self.compute(model, wanted, count, through_head)?;
        let Self { source, layers, .. } = self;
        // the last layer has passed its rows on
        let through_head = through_head && !layers.passes_on;
        if !from_features && !through_head && computed.ids() == wanted {
            std::mem::swap(&mut layers.input, out);
            return Ok(layers.backend.check()?);
        }
        let pass = Pass { backend: layers.backend, training: false, key: 0 };
        let mut places = wanted.to_vec();
        let mut rows = std::mem::take(&mut layers.gathered.dense);
        if from_features {
            source.read(layers.backend, &places, &mut rows)?;
        } else {
            computed.number(&mut places);
            rows.resize(places.len(), layers.input.num_cols());
            Gather { src: layers.input.view(), ids: &places, dst: rows.view_mut() }.run(layers.backend);
        }
        layers.write_rows(model, &pass, (rows, through_head), out)
    }

    /// Computes the first `count` layers for `wanted`: their rows, or the scores of the head if it
    /// follows, are in the input of the next layer, one for each node of the returned set, unless
    /// the flag says that no layer ran.
    fn compute(
        &mut self,
        model: &Model,
        wanted: &[NodeId],
        count: usize,
        through_head: bool,
    ) -> Result<(NodeSet, bool)> {
        let reads_stored = count > 0 && self.reads_stored(model);
        let Self { source, layers, size } = self;
        let pass = Pass { backend: layers.backend, training: false, key: 0 };
        let nodes = layers.graph.num_nodes();
        let mut orders = model.inference_orders(size[0], size[1]);
        source.choose(model, &mut orders);
        // stored aggregates stand for the neighbours of the bottom hop
        let hops = usize::from(reads_stored);
        let mut needed =
            layers.needed(wanted, count - hops, model.num_layers() - hops, model.aggregation())?;
        if reads_stored {
            orders[0] = model.exact_bottom_order(size[0]);
            needed.insert(0, NodeSet::default());
        }
        // if the first layer aggregates rows of the feature table, it reads them in place
        let in_place =
            !model.has_input_layer() && orders[..count].first() != Some(&ProductOrder::TransformFirst);
        if !reads_stored && !in_place && 2 * needed[0].len() > nodes {
            needed[0] = NodeSet::all(nodes);
        }
        let (passes_on, orders) = (layers.passes_on, &orders[..count]);
        // use of the rows below layer `l`, if any part of the model computes them
        let consumer = |l: usize| match orders.get(l) {
            _ if !passes_on => Consumer::Table,
            Some(ProductOrder::TransformFirst) => Consumer::Layer(l, &needed[l + 1]),
            None if through_head => Consumer::Head,
            _ => Consumer::Table,
        };
        let mut from_features = if model.has_input_layer() {
            let above = Above { model, pass: &pass, nodes: &needed[0], consumer: consumer(0) };
            source.input_rows(layers, &above)?;
            layers.advance();
            false
        } else {
            reads_stored || !source.gather_few(layers.backend, in_place, &needed[0], &mut layers.input)
        };
        for (index, &order) in orders.iter().enumerate() {
            let (sources, destinations) = (&needed[index], &needed[index + 1]);
            let is_first = index == 0 && !model.has_input_layer();
            let is_transformed = !is_first && matches!(consumer(index), Consumer::Layer(..));
            let consumer = consumer(index + 1);
            let layer = Layer { is_transformed, consumer, ..Layer::alone(model, &pass, index, order) };
            if from_features && reads_stored {
                layers.stored_layer(&**source, &layer, destinations)?;
            } else if from_features {
                source.first_layer(layers, &layer, sources, destinations)?;
            } else {
                layers.upper_layer(&layer, sources, destinations)?;
            }
            layers.advance();
            from_features = false;
        }
        Ok((needed.swap_remove(count), from_features))
    }
}

#[cfg(test)]
mod tests;
