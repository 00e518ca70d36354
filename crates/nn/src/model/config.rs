//! What a model is made from.

use graphmill_core::table::{self, Entry};

use crate::{
    Error, Result,
    backend::Activation,
    layer::{self, norm},
};

/// The description of a model; names are those of the tables ([`layer::TABLE`],
/// [`layer::AGGREGATORS`], [`ACTIVATIONS`], [`norm::NORMS`], [`RESIDUALS`]).
///
/// Each of the `layers` is
/// `dropout(activation(norm(conv(x) + residual(x))))`; without a head the last one is
/// `conv(x) + residual(x)` and gives the classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The convolution, a name in [`layer::TABLE`].
    pub model: String,
    /// Hops of a layer (`mixhop`): the highest power of the adjacency matrix.
    pub hops: usize,
    /// Width of the hidden rows; of all heads together.
    pub hidden: usize,
    /// Convolutions.
    pub layers: usize,
    /// Attention heads of the hidden layers (`gat`); they divide `hidden`.
    pub heads: usize,
    /// Attention heads of a last layer that gives the classes (`gat`): each as wide as the classes, averaged.
    pub out_heads: usize,
    /// What is made of the neighbours' rows (`sage`), a name in [`layer::AGGREGATORS`].
    pub aggregator: String,
    /// Probability that a hidden value is dropped, in `[0, 1)`.
    pub dropout: f32,
    /// Probability that a feature is dropped, in `[0, 1)`.
    pub input_dropout: f32,
    /// Probability that an attention weight is dropped (`gat`), in `[0, 1)`.
    pub attention_dropout: f32,
    /// The non-linearity, a name in [`ACTIVATIONS`].
    pub activation: String,
    /// How far dense layers' first weights lie from zero, a name in [`layer::INITS`].
    pub init: String,
    /// The normalisation, a name in [`norm::NORMS`]. `batch` also stands inside `gin`'s own MLP.
    pub norm: String,
    /// What is added to a convolution's rows, a name in [`RESIDUALS`].
    pub residual: String,
    /// Whether the features first pass a dense layer of width `hidden` with activation and dropout.
    pub input_layer: bool,
    /// Dense layers after the convolutions that give the classes; 0: the last convolution does.
    pub head_layers: usize,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            model: "sage".into(),
            hops: 2,
            hidden: 256,
            layers: 2,
            heads: 4,
            out_heads: 1,
            aggregator: "mean".into(),
            dropout: 0.5,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            activation: "relu".into(),
            init: "glorot".into(),
            norm: "none".into(),
            residual: "none".into(),
            input_layer: false,
            head_layers: 0,
        }
    }
}

/// The non-linearities.
pub const ACTIVATIONS: &[Entry<Activation>] = &[
    Entry { name: "relu", summary: "max(x, 0)", source: "", options: &[], make: Activation::Relu },
    Entry {
        name: "elu",
        summary: "x, or exp(x) - 1 below 0",
        source: "Clevert, Unterthiner and Hochreiter, ICLR 2016, arXiv:1511.07289",
        options: &[],
        make: Activation::Elu,
    },
    Entry {
        name: "leaky-relu",
        summary: "x, or x / 100 below 0",
        source: "Maas, Hannun and Ng, ICML workshop 2013",
        options: &[],
        make: Activation::LeakyRelu,
    },
    Entry {
        name: "identity",
        summary: "x: a linear model",
        source: "",
        options: &[],
        make: Activation::Identity,
    },
];

/// What is added to a convolution's output rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidualKind {
    /// Nothing.
    None,
    /// The destinations' input rows; the convolution that gives the classes has none.
    Identity,
    /// The destinations' input rows times a matrix.
    Linear,
}

/// The residual connections.
pub const RESIDUALS: &[Entry<ResidualKind>] = &[
    Entry { name: "none", summary: "nothing", source: "", options: &[], make: ResidualKind::None },
    Entry {
        name: "identity",
        summary: "the destinations' input rows, of equal width",
        source: "He, Zhang, Ren and Sun, CVPR 2016, equation 1",
        options: &[],
        make: ResidualKind::Identity,
    },
    Entry {
        name: "linear",
        summary: "the destinations' input rows times a learned matrix",
        source: "He, Zhang, Ren and Sun, CVPR 2016, equation 2",
        options: &[],
        make: ResidualKind::Linear,
    },
];

impl ModelConfig {
    /// Checks numbers and names, and that no choice is without effect by mistake.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<()> {
        let kind = layer::TABLE.find(&self.model)?;
        table::find("aggregator", layer::AGGREGATORS, &self.aggregator)?;
        table::find("activation", ACTIVATIONS, &self.activation)?;
        table::find("init", layer::INITS, &self.init)?;
        table::find("norm", norm::NORMS, &self.norm)?;
        table::find("residual", RESIDUALS, &self.residual)?;
        let sizes = [
            ("hidden", self.hidden),
            ("layers", self.layers),
            ("hops", self.hops),
            ("heads", self.heads),
            ("out_heads", self.out_heads),
        ];
        for (field, value) in sizes {
            if value == 0 {
                return Err(Error::config(field, value, "at least 1 is needed"));
            }
        }
        let probabilities = [
            ("dropout", self.dropout),
            ("input_dropout", self.input_dropout),
            ("attention_dropout", self.attention_dropout),
        ];
        for (field, value) in probabilities {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::config(field, value, "a probability from 0 up to, not including, 1"));
            }
        }
        if self.aggregator != "mean" && !kind.options.contains(&"aggregator") {
            let message = format!("model '{}' has an aggregator of its own; leave 'mean'", self.model);
            return Err(Error::config("aggregator", &self.aggregator, message));
        }
        if self.attention_dropout > 0.0 && !kind.options.contains(&"attention_dropout") {
            let message = format!("model '{}' has no attention; leave 0", self.model);
            return Err(Error::config("attention_dropout", self.attention_dropout, message));
        }
        if self.residual != "none" && layer::hops(&self.model, self.hops) > 1 {
            let message = format!("a layer of '{}' has a power 0 of its own; leave 'none'", self.model);
            return Err(Error::config("residual", &self.residual, message));
        }
        Ok(())
    }

    /// How many blocks a pass through the model reads, one for each hop of each layer: what a sampler of neighbours must
    /// make.
    pub fn num_blocks(&self) -> usize {
        self.layers * layer::hops(&self.model, self.hops)
    }
}
