//! Configuration of a single layer.

use graphmill_core::options::OwnOptions;

use crate::backend::Activation;

/// Configuration of a single layer, which reads the fields that concern it.
#[derive(Clone, Debug)]
pub struct LayerConfig {
    /// Width of the input rows, `F`.
    pub in_dim: usize,
    /// Width of the output rows, `O` (over all heads together if they are concatenated).
    pub out_dim: usize,
    /// If true, the outputs of several heads are concatenated (each `O / H` wide); if false, they
    /// are averaged (each `O` wide).
    pub concat: bool,
    /// If true, the layer adds a bias.
    pub bias: bool,
    /// Batch normalization inside the layer's MLP (GIN).
    pub batch_norm: bool,
    /// Activation of the model, for a layer that applies it internally (PinSAGE).
    pub activation: Activation,
    /// True if the output rows are the classes' scores.
    pub classifies: bool,
    /// Number of hops of the whole layer ([`super::hops`]).
    pub hops: usize,
    /// Index of this hop, from 1.
    pub hop: usize,
    /// Root of the random streams for the initial weights.
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
