//! Relations that a sampler adds to the graph.

use graphmill_core::typed::TypedGraph;
use graphmill_loader::typed::{self as sampling, TypedOptions};

use crate::{Error, Result, TrainConfig};

/// The graph with the relations that the sampler of a configuration adds for seeds of the types
/// `seeds`.
///
/// # Errors
/// An unknown name or an impossible option.
pub(super) fn with_added(config: &TrainConfig, graph: TypedGraph, seeds: &[usize]) -> Result<TypedGraph> {
    let with = TypedOptions { own: config.own.clone(), seed: config.seed, ..TypedOptions::default() };
    sampling::TABLE.find(&config.sampler).map_err(Error::name)?;
    sampling::with_added(&config.sampler, &with, graph, seeds)
        .map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))
}
