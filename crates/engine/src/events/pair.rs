//! Model whose rows are those of pairs: DyGFormer over the events of both ends.

use graphmill_core::NodeId;
use graphmill_nn::{
    Matrix, Param, Pass, View,
    link::EdgePairs,
    temporal::{DygFormer, DygFormerConfig, DygFormerState, PairInput},
};

use super::{
    batch::{Neighborhood, Rows},
    features::NodeFeatures,
    stream::EventStream,
};
use crate::{
    Error, Result, TrainConfig,
    build::by_flag,
    config::events::{DygFormerOptions, EventOptions},
};

/// The model.
pub(super) struct PairModel(DygFormer);

/// Matrices that a forward pass saves for its backward pass.
#[derive(Default)]
pub(super) struct PairState {
    of_model: DygFormerState,
    features: Matrix,
    /// Row of both ends of each pair.
    source: Vec<NodeId>,
    destination: Vec<NodeId>,
    /// Rows of the sources of all pairs, then of the destinations, `2 P x H`.
    rows: Matrix,
}

impl PairModel {
    /// Creates the model of a configuration with its initial, random weights.
    ///
    /// # Errors
    /// The histories have several hops, or the heads do not divide the channels.
    pub(super) fn new(config: &TrainConfig, stream: &EventStream, key: u64) -> Result<Self> {
        let (events, own): (EventOptions, DygFormerOptions) = (config.own.get(), config.own.get());
        if config.layers != 1 {
            let message = "a history of dygformer has one hop; use --layers 1 and one number in --fanout";
            return Err(Error::usage(format!("--layers {}: {message}", config.layers)));
        }
        let config = DygFormerConfig {
            node_dim: stream.node_features.as_deref().map_or(0, NodeFeatures::width),
            edge_dim: stream.edge_dim(),
            time_dim: events.time_dim,
            channel_dim: own.channel_dim,
            patch: own.patch_size,
            layers: own.transformer_layers,
            heads: events.event_heads,
            out_dim: config.hidden,
            dropout: config.dropout as f32,
            key,
        };
        DygFormer::new(config).map(Self).map_err(by_flag)
    }

    /// Visits every parameter by name, always in the same order.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&str, &Param)) {
        self.0.visit(&mut |name, param| see(name, param));
    }

    /// Visits every parameter mutably, in the order of [`PairModel::visit`].
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&str, &mut Param)) {
        self.0.visit_mut(see);
    }

    /// Reads the features of the nodes of a neighbourhood.
    pub(super) fn read(&self, stream: &EventStream, nodes: &[NodeId], state: &mut PairState) {
        match stream.node_features.as_deref() {
            Some(of_nodes) => of_nodes.copy(nodes.iter().copied(), &mut state.features),
            None => state.features.resize(nodes.len(), 0),
        }
    }

    /// Computes the rows of both ends of each pair of `rows`, whose features were read.
    pub(super) fn forward(&self, pass: &Pass, (rows, near): (&Rows, &Neighborhood), state: &mut PairState) {
        let Some(batch) = &near.batch else { return };
        let PairState { of_model, features, source, destination, rows: out } = state;
        let nodes = near.nodes(rows);
        let input = PairInput {
            block: &batch.sampled.blocks[0].relations[0],
            nodes,
            x: features.view(),
            edges: near.edges[0].view(),
            differences: &near.since[0],
            source: &rows.source,
            destination: &rows.destination,
        };
        self.0.forward(pass, &input, of_model, out);
        let pairs = rows.source.len() as NodeId;
        for (ends, first) in [(source, 0), (destination, pairs)] {
            ends.clear();
            ends.extend(first..first + pairs);
        }
    }

    /// Adds to the gradient of every parameter, from that of the rows of the last
    /// [`PairModel::forward`].
    pub(super) fn backward(&mut self, pass: &Pass, state: &mut PairState, grad: View) {
        let PairState { of_model, rows, .. } = state;
        self.0.backward(pass, of_model, [rows.view(), grad]);
    }
}

impl PairState {
    /// Pairs of the rows of the last [`PairModel::forward`].
    pub(super) fn pairs(&self) -> EdgePairs<'_> {
        let Self { rows, source, destination, .. } = self;
        EdgePairs { nodes: rows.view(), source, destination, edges: None }
    }
}
