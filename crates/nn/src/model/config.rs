//! What a model is made from.

use clap::ValueEnum;
use graphmill_core::{
    by_name,
    options::{OptionGroup, OptionSet, OwnOptions},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    backend::Activation,
    layer::{self, Aggregator, GatOptions, Init, NormKind, SageOptions},
};

/// The description of a model.
///
/// Each of the `layers` is
/// `dropout(activation(norm(conv(x) + residual(x))))`; without a head the last one is
/// `conv(x) + residual(x)` and gives the classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The convolution, a name in [`layer::TABLE`].
    pub model: String,
    /// Width of the hidden rows; of all heads together.
    pub hidden: usize,
    /// Convolutions.
    pub layers: usize,
    /// Probability that a hidden value is dropped, in `[0, 1)`.
    pub dropout: f32,
    /// Probability that a feature is dropped, in `[0, 1)`.
    pub input_dropout: f32,
    /// The non-linearity.
    pub activation: Activation,
    /// Initial weights of dense layers.
    pub init: Init,
    /// The normalisation. [`NormKind::Batch`] also stands inside `gin`'s own MLP.
    pub norm: NormKind,
    /// What is added to a convolution's rows.
    pub residual: ResidualKind,
    /// Whether the features first pass a dense layer of width `hidden` with activation and dropout.
    pub input_layer: bool,
    /// Dense layers after the convolutions that give the classes; 0: the last convolution does.
    pub head_layers: usize,
    /// Options of the convolutions.
    pub own: OwnOptions,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            model: "sage".into(),
            hidden: 256,
            layers: 2,
            dropout: 0.5,
            input_dropout: 0.0,
            activation: Activation::Relu,
            init: Init::Glorot,
            norm: NormKind::None,
            residual: ResidualKind::None,
            input_layer: false,
            head_layers: 0,
            own: OwnOptions::default(),
        }
    }
}

/// What is added to a convolution's output rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResidualKind {
    /// Nothing.
    #[default]
    None,
    /// The destinations' input rows; the convolution that gives the classes has none (He, Zhang,
    /// Ren and Sun, CVPR 2016, equation 1).
    Identity,
    /// The destinations' input rows times a learned matrix (equation 2).
    Linear,
}

by_name!(ResidualKind);

impl ModelConfig {
    /// The same model with other options of a convolution.
    #[must_use]
    pub fn with<T: OptionSet>(mut self, set: T) -> Self {
        self.own.set(set);
        self
    }

    /// Checks numbers and names, and that no choice is without effect by mistake.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<()> {
        let kind = layer::TABLE.find(&self.model)?;
        let sizes = [("hidden", self.hidden), ("layers", self.layers)];
        for (field, value) in sizes {
            if value == 0 {
                return Err(Error::config(field, value, "at least 1 is needed"));
            }
        }
        let probabilities = [("dropout", self.dropout), ("input_dropout", self.input_dropout)];
        for (field, value) in probabilities {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::config(field, value, "a probability from 0 up to, not including, 1"));
            }
        }
        for group in kind.options {
            self.own.check(*group).map_err(|fault| Error::option(&self.own.write(*group), fault))?;
        }
        let reads = |group| kind.options.contains(&group);
        let (sage, gat) = (self.own.get::<SageOptions>(), self.own.get::<GatOptions>());
        if sage.aggregator != Aggregator::Mean && !reads(OptionGroup::of::<SageOptions>()) {
            let message = format!("model '{}' has an aggregator of its own; leave 'mean'", self.model);
            return Err(Error::config("aggregator", sage.aggregator, message));
        }
        if gat.attention_dropout > 0.0 && !reads(OptionGroup::of::<GatOptions>()) {
            let message = format!("model '{}' has no attention; leave 0", self.model);
            return Err(Error::config("attention_dropout", gat.attention_dropout, message));
        }
        if self.residual != ResidualKind::None && kind.make.hops.is_some_and(|hops| hops(&self.own) > 1) {
            let message = format!("a layer of '{}' has a power 0 of its own; leave 'none'", self.model);
            return Err(Error::config("residual", self.residual, message));
        }
        Ok(())
    }

    /// How many blocks a pass through the model reads, one for each hop of each layer: what a
    /// sampler of neighbours must make.
    pub fn num_blocks(&self) -> usize {
        self.layers * layer::hops(&self.model, &self.own)
    }
}
