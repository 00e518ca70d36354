//! Layers of models of events: the attention of TGAT and TGN, or a layer with rows of edges.

use graphmill_core::Matrix;
use graphmill_nn::{
    Epilogue, LayerConfig, Param, Pass, Saved, View,
    backend::{Activation, Dropout},
    layer::{
        edge::{self, EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig},
        site,
    },
    temporal::{TemporalAttention, TemporalAttentionConfig, TemporalInput, TemporalState, TimeEncoding},
};

use crate::{Error, Result, TrainConfig, build::by_flag, config::events::EventOptions};

/// A layer.
pub(super) enum Hop {
    Attention(Box<TemporalAttention>),
    /// A layer that reads the features of events joined with the encodings of the times since.
    Edges {
        layer: Box<dyn EdgeLayer>,
        encoding: Box<TimeEncoding>,
        finish: Finish,
    },
}

/// Final operations of a layer.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    number: u64,
    activation: Activation,
    dropout: f32,
}

impl Finish {
    fn of(self, pass: &Pass) -> Epilogue {
        let dropout = pass.part(self.number).dropout(self.dropout, site::OUTPUT);
        let is_plain = self.activation == Activation::Identity;
        let dropout = if is_plain { Dropout::NONE } else { dropout };
        Epilogue { activation: self.activation, dropout }
    }
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Default)]
pub(super) struct HopState {
    attention: TemporalState,
    saved: Saved,
    encoded: Matrix,
    /// Features and encodings of each event.
    edges: Matrix,
}

impl Hop {
    /// Creates the layer `number` of a model, from the bottom: that of the table of layers with
    /// rows of edges called `name`, or the attention.
    ///
    /// # Errors
    /// An option of the layer is impossible.
    pub(super) fn new(
        config: &TrainConfig,
        name: Option<&str>,
        number: usize,
        edge_dim: usize,
        key: u64,
    ) -> Result<Self> {
        let (options, hidden): (EventOptions, usize) = (config.own.get(), config.hidden);
        let dropout = config.dropout as f32;
        let Some(name) = name else {
            let config = TemporalAttentionConfig {
                in_dim: hidden,
                edge_dim,
                time_dim: options.time_dim,
                width: hidden,
                heads: options.event_heads,
                out_dim: hidden,
                dropout,
                key,
            };
            return Ok(Self::Attention(Box::new(TemporalAttention::new(config).map_err(by_flag)?)));
        };
        let make = edge::TABLE.find(name).map_err(Error::name)?.make;
        let nodes = LayerConfig {
            in_dim: hidden,
            out_dim: hidden,
            concat: true,
            bias: true,
            key,
            own: config.own.clone(),
            ..LayerConfig::default()
        };
        // fanouts are listed from the seeds outward
        let fanout = config.fanout.0.iter().rev().nth(number).copied().unwrap_or(0);
        let slots = usize::try_from(fanout).unwrap_or(0);
        let edge_dim = edge_dim + options.time_dim;
        let layer = make(&EdgeLayerConfig { nodes, edge_dim, slots, dropout }).map_err(by_flag)?;
        let is_last = number + 1 == config.layers;
        let activation = if is_last { Activation::Identity } else { Activation::Relu };
        let encoding = Box::new(TimeEncoding::new(options.time_dim));
        Ok(Self::Edges { layer, encoding, finish: Finish { number: number as u64, activation, dropout } })
    }

    /// Returns true if it is the attention.
    pub(super) fn is_attention(&self) -> bool {
        matches!(self, Self::Attention(_))
    }

    /// Visits every parameter, always in the same order. The frequencies of a layer with rows of
    /// edges are constants.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&Param)) {
        match self {
            Self::Attention(layer) => layer.visit(&mut |param| see(param)),
            Self::Edges { layer, .. } => layer.visit(&mut |param| see(param)),
        }
    }

    /// Visits every parameter mutably, in the order of [`Hop::visit`].
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        match self {
            Self::Attention(layer) => layer.visit_mut(see),
            Self::Edges { layer, .. } => layer.visit_mut(see),
        }
    }

    /// Computes the rows of the destinations, `D x H`.
    pub(super) fn forward(&self, pass: &Pass, input: &TemporalInput, state: &mut HopState, out: &mut Matrix) {
        match self {
            Self::Attention(layer) => layer.forward(pass, input, &mut state.attention, out),
            Self::Edges { layer, encoding, finish } => {
                let HopState { saved, encoded, edges, .. } = state;
                encoding.forward(input.differences, encoded);
                join(input.edges, encoded.view(), edges);
                out.resize(input.block.num_dst, layer.spec().out_dim);
                let input = EdgeInput { block: input.block, x: input.x, edges: edges.view() };
                layer.forward(pass, &input, finish.of(pass), saved, out.view_mut());
            }
        }
    }

    /// Adds to the gradient of every parameter. `grad` is that of the output `out`, and may change;
    /// `x_grad` is resized to `S x H` and overwritten.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        input: &TemporalInput,
        state: &mut HopState,
        (out, grad): (View, &mut Matrix),
        x_grad: &mut Matrix,
    ) {
        match self {
            Self::Attention(layer) => {
                layer.backward(pass, input, &mut state.attention, [out, grad.view()], x_grad);
            }
            Self::Edges { layer, finish, .. } => {
                let input = EdgeInput { block: input.block, x: input.x, edges: state.edges.view() };
                let grads = EdgeGrads { y: out, grad, x_grad: Some(x_grad), edge_grad: None };
                layer.backward(pass, &input, finish.of(pass), &mut state.saved, grads);
            }
        }
    }
}

/// Joins two rows for each event.
fn join(features: View, encoded: View, out: &mut Matrix) {
    let (width, dim) = (features.num_cols(), encoded.num_cols());
    out.resize(encoded.num_rows(), width + dim);
    let (features, encoded) = (features.host(), encoded.host());
    for (e, to) in out.view_mut().host().chunks_exact_mut((width + dim).max(1)).enumerate() {
        to[..width].copy_from_slice(&features[e * width..(e + 1) * width]);
        to[width..].copy_from_slice(&encoded[e * dim..(e + 1) * dim]);
    }
}
