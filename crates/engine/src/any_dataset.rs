//! Dataset of any kind that a configuration names, and training on it.

#![forbid(unsafe_code)]

use graphmill_data::{Dataset, typed::TypedDataset};

use crate::{
    Result, RunContext, TrainConfig, build,
    config::{
        embedding::is_table,
        events::is_of_events,
        link_task::{has_typed_model, is_link, is_typed_link},
    },
    embedding, events,
    record::Summary,
    trainer, typed,
};

/// Dataset of one of the kinds that runs learn from.
pub enum AnyDataset {
    /// Nodes and edges of one type.
    OneType(Box<Dataset>),
    /// Several types of nodes or edges, nodes with times, or one type for a model of types.
    Typed(Box<TypedDataset>),
    /// The same, if links are learned.
    TypedLinks(Box<TypedDataset>),
    /// Edges for a table of embeddings.
    Table(Box<TypedDataset>),
    /// A stream of events.
    Events(Box<TypedDataset>),
}

impl AnyDataset {
    /// Opens the dataset of `config`, or generates the demo if it names none.
    ///
    /// # Errors
    /// The dataset cannot be read, or is of another kind than the options need.
    pub fn open(config: &TrainConfig) -> Result<Self> {
        if let Some(data) = embedding::open_dataset(config)? {
            return Ok(Self::Table(Box::new(data)));
        }
        if let Some(data) = events::open_dataset(config)? {
            return Ok(Self::Events(Box::new(data)));
        }
        let of_types = if is_link(config) { None } else { typed::open_dataset(config)? };
        match of_types {
            Some(data) if is_typed_link(config) => Ok(Self::TypedLinks(Box::new(data))),
            Some(data) => Ok(Self::Typed(Box::new(data))),
            None => Ok(Self::OneType(Box::new(build::open_dataset(config)?))),
        }
    }

    /// Returns true if a run of this configuration reads a dataset of one type from a directory.
    /// Runs with a model of types or of events and tables of embeddings do.
    pub fn needs_directory(config: &TrainConfig) -> bool {
        has_typed_model(config) || is_table(config) || is_of_events(config)
    }

    /// Name of the dataset.
    pub fn name(&self) -> &str {
        match self {
            Self::OneType(data) => &data.name,
            Self::Typed(data) | Self::TypedLinks(data) | Self::Table(data) | Self::Events(data) => &data.name,
        }
    }

    /// Name and sizes in one line.
    pub fn describe(&self) -> String {
        match self {
            Self::OneType(data) => data.to_string(),
            Self::Typed(data) | Self::TypedLinks(data) | Self::Table(data) | Self::Events(data) => {
                data.to_string()
            }
        }
    }

    /// Trains on the dataset with the options that opened it.
    ///
    /// # Errors
    /// Those of [`train`](crate::train) and of the trainers of the other kinds.
    pub fn train(&self, config: &TrainConfig, context: RunContext) -> Result<Summary> {
        match self {
            Self::OneType(data) => trainer::train(config, data, context),
            Self::Typed(data) => typed::train(config, data, context),
            Self::TypedLinks(data) => typed::links::train(config, data, context),
            Self::Table(data) => embedding::train(config, data, context),
            Self::Events(data) => events::train(config, data, context),
        }
    }
}
