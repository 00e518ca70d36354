//! Configuration of a typed model.

use std::{path::PathBuf, sync::Arc};

use graphmill_core::{NodeId, options::OptionSet, options::OwnOptions, typed::Schema};

use super::TABLE;
use crate::{Error, Result, backend::Activation, layer::NormKind};

/// Configuration of a typed model.
///
/// Each of the `layers` layers is `dropout(activation(norm(conv(x))))`, with a norm for each type.
/// Without a head, the last layer is `conv(x)` and its rows are the scores.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedModelConfig {
    /// Name of the layer in [`TABLE`].
    pub model: String,
    /// Width of the projected features, learned rows and hidden rows.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Probability that a hidden value is dropped, in `[0, 1)`.
    pub dropout: f32,
    /// Probability that a value of a projected or learned row is dropped, in `[0, 1)`.
    pub input_dropout: f32,
    /// Non-linearity after layers.
    pub activation: Activation,
    /// Non-linearity after the projection of features, and of learned rows.
    pub input_activation: Activation,
    /// Normalization of each type's rows.
    pub norm: NormKind,
    /// Dense layers after the others, the last of which computes the scores; with 0, the last
    /// typed layer does.
    pub head_layers: usize,
    /// Width of the rows of each relation's edges, 0 for a relation without edge features; empty
    /// for models that do not read them.
    pub edge_dims: Vec<usize>,
    /// Own nodes of each type, if other processes learn the rows of the others
    /// ([`LearnedRows::of_nodes`](super::LearnedRows::of_nodes)).
    pub own_nodes: Option<Arc<[Vec<NodeId>]>>,
    /// Directory of files with the learned rows of all nodes, if they exceed memory
    /// ([`LearnedRows::in_file`](super::LearnedRows::in_file)).
    pub learned_in: Option<PathBuf>,
    /// Options of the layers.
    pub own: OwnOptions,
}

impl Default for TypedModelConfig {
    fn default() -> Self {
        Self {
            model: "rgcn".into(),
            hidden: 64,
            layers: 2,
            dropout: 0.5,
            input_dropout: 0.0,
            activation: Activation::Relu,
            input_activation: Activation::Identity,
            norm: NormKind::None,
            head_layers: 0,
            edge_dims: Vec::new(),
            own_nodes: None,
            learned_in: None,
            own: OwnOptions::default(),
        }
    }
}

/// Node type whose scores a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Number of the node type.
    pub node_type: usize,
    /// Number of scores, such as classes.
    pub outputs: usize,
}

impl TypedModelConfig {
    /// The same model with different options of a layer.
    #[must_use]
    pub fn with<T: OptionSet>(mut self, set: T) -> Self {
        self.own.set(set);
        self
    }

    /// Checks numbers and names.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self, schema: &Schema, target: Option<Target>) -> Result<()> {
        let entry = TABLE.find(&self.model)?;
        for (field, value) in [("hidden", self.hidden), ("layers", self.layers)] {
            if value == 0 {
                return Err(Error::config(field, value, "must be at least 1"));
            }
        }
        for (field, value) in [("dropout", self.dropout), ("input_dropout", self.input_dropout)] {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::config(field, value, "must be a probability of at least 0 and below 1"));
            }
        }
        for group in entry.options {
            self.own.check(*group).map_err(|fault| Error::option(&self.own.write(*group), fault))?;
        }
        if target.is_some() && self.head_layers == 0 && !entry.make.can_score {
            let message = format!("model '{}' does not compute scores; use 1 or more", self.model);
            return Err(Error::config("head_layers", 0, message));
        }
        if target.is_none() && self.head_layers > 0 {
            let message = "a model without a target has no scores; use 0";
            return Err(Error::config("head_layers", self.head_layers, message));
        }
        let (widths, relations) = (self.edge_dims.len(), schema.num_relations());
        if widths != if entry.make.reads_edges { relations } else { 0 } {
            let message = if entry.make.reads_edges {
                format!(
                    "model '{}' reads edge features; pass a width for each of {relations} relations",
                    self.model
                )
            } else {
                format!("model '{}' does not read edge features; pass no widths", self.model)
            };
            return Err(Error::config("edge_dims", widths, message));
        }
        if let Some(Target { node_type, outputs }) = target {
            if node_type >= schema.num_types() {
                let message = format!("there are {} node types; use a number below", schema.num_types());
                return Err(Error::config("target", node_type, message));
            }
            if outputs == 0 {
                return Err(Error::config("outputs", outputs, "must be at least 1"));
            }
        }
        Ok(())
    }
}
