//! The values a layer is made from.

use graphmill_core::options::OwnOptions;

use crate::backend::Activation;

/// The values a layer is made from. A layer reads those that concern it.
#[derive(Clone, Debug)]
pub struct LayerConfig {
    /// `F`.
    pub in_dim: usize,
    /// `O`, the width of the output rows (all heads together where they are concatenated).
    pub out_dim: usize,
    /// Whether the outputs of several heads stand side by side (each `O / H` wide) or are averaged
    /// (each `O` wide).
    pub concat: bool,
    /// Whether a bias is added.
    pub bias: bool,
    /// Batch normalisation inside the layer's own MLP (GIN).
    pub batch_norm: bool,
    /// The model's activation, for a layer that applies it inside (PinSAGE).
    pub activation: Activation,
    /// Whether the output rows are the classes' scores.
    pub classifies: bool,
    /// Hops of the whole layer ([`super::hops`]).
    pub hops: usize,
    /// The number of this hop, from 1.
    pub hop: usize,
    /// Root of the random streams of the initial weights.
    pub key: u64,
    /// Options of the layers.
    pub own: OwnOptions,
}

impl Default for LayerConfig {
    fn default() -> Self {
        Self {
            in_dim: 0,
            out_dim: 0,
            concat: true,
            bias: true,
            batch_norm: false,
            activation: Activation::Relu,
            classifies: false,
            hops: 1,
            hop: 1,
            key: 0,
            own: OwnOptions::default(),
        }
    }
}
