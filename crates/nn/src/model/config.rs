//! Configuration of a model.

use clap::ValueEnum;
use graphmill_core::{
    by_name,
    options::{OptionGroup, OptionSet, OwnOptions},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    backend::Activation,
    layer::{self, Aggregator, Combine, GatOptions, Init, NormKind, SageOptions},
};

/// Configuration of a model.
///
/// Each of the `layers` layers is `dropout(activation(norm(conv(x) + residual(x))))`. Without a
/// head, the last layer is `conv(x) + residual(x)` and its rows are the classes' scores.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Name of the convolution in [`layer::TABLE`].
    pub model: String,
    /// Width of the hidden rows, over all heads together.
    pub hidden: usize,
    /// Number of convolutions.
    pub layers: usize,
    /// Probability that a hidden value is dropped, in `[0, 1)`.
    pub dropout: f32,
    /// Probability that a feature is dropped, in `[0, 1)`.
    pub input_dropout: f32,
    /// Non-linearity.
    pub activation: Activation,
    /// Initial weights of dense layers.
    pub init: Init,
    /// Normalization. [`NormKind::Batch`] also applies inside the MLP of `gin`.
    pub norm: NormKind,
    /// Residual added to a convolution's output rows.
    pub residual: ResidualKind,
    /// If true, a dense layer of width `hidden`, with activation and dropout, transforms the
    /// features before the first convolution.
    pub input_layer: bool,
    /// Dense layers after the convolutions, the last of which computes the scores; with 0, the last
    /// convolution does.
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

/// Residual added to a convolution's output rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResidualKind {
    /// No residual.
    #[default]
    None,
    /// The destinations' input rows; not in the convolution that computes the scores (He, Zhang,
    /// Ren and Sun, CVPR 2016, equation 1).
    Identity,
    /// The destinations' input rows times a learned matrix (equation 2).
    Linear,
}

by_name!(ResidualKind);

impl ModelConfig {
    /// The same model with different options of a convolution.
    #[must_use]
    pub fn with<T: OptionSet>(mut self, set: T) -> Self {
        self.own.set(set);
        self
    }

    /// Checks numbers and names, and rejects options that the model would ignore.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<()> {
        let kind = layer::TABLE.find(&self.model)?;
        let sizes = [("hidden", self.hidden), ("layers", self.layers)];
        for (field, value) in sizes {
            if value == 0 {
                return Err(Error::config(field, value, "must be at least 1"));
            }
        }
        let probabilities = [("dropout", self.dropout), ("input_dropout", self.input_dropout)];
        for (field, value) in probabilities {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::config(field, value, "must be a probability of at least 0 and below 1"));
            }
        }
        for group in kind.options {
            self.own.check(*group).map_err(|fault| Error::option(&self.own.write(*group), fault))?;
        }
        let reads = |group| kind.options.contains(&group);
        let (sage, gat) = (self.own.get::<SageOptions>(), self.own.get::<GatOptions>());
        if sage.aggregator != Aggregator::Mean && !reads(OptionGroup::of::<SageOptions>()) {
            let message = format!("model '{}' does not read this option; use 'mean'", self.model);
            return Err(Error::config("aggregator", sage.aggregator, message));
        }
        if sage.sage_combine != Combine::Add && !reads(OptionGroup::of::<SageOptions>()) {
            let message = format!("model '{}' does not read this option; use 'add'", self.model);
            return Err(Error::config("sage_combine", sage.sage_combine, message));
        }
        if gat.attention_dropout > 0.0 && !reads(OptionGroup::of::<GatOptions>()) {
            let message = format!("model '{}' does not use attention; use 0", self.model);
            return Err(Error::config("attention_dropout", gat.attention_dropout, message));
        }
        if self.residual != ResidualKind::None && kind.make.hops.is_some_and(|hops| hops(&self.own) > 1) {
            let message = format!("model '{}' includes the own row as its power 0; use 'none'", self.model);
            return Err(Error::config("residual", self.residual, message));
        }
        Ok(())
    }

    /// Number of blocks that a pass through the model reads: one per hop and layer. A neighbour
    /// sampler must produce this many.
    pub fn num_blocks(&self) -> usize {
        self.layers * layer::hops(&self.model, &self.own)
    }
}
