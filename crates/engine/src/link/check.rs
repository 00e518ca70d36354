//! Refusal of parts of a run that do not know links.

use graphmill_core::options::one_of;
use graphmill_loader::{order, sampler};

use super::structure;
use crate::{
    Error, Result, TrainConfig,
    cache_kind::{OF_LINKS, expects_nodes},
    config::link::LinkOptions,
    strategy,
};

/// Refuses options with which a run cannot learn links, of one type or, if `of_types`, of several.
/// Several types have rules of their own for strategies and devices.
///
/// # Errors
/// Wrong usage: the first such option, with the reason and the remedy.
pub fn check(config: &TrainConfig, of_types: bool) -> Result<()> {
    let refuse = |option: String, why: String| Err(Error::usage(format!("{option} with links: {why}")));
    let is_subgraph = sampler::TABLE.get(&config.sampler).is_some_and(|entry| entry.make.draws_subgraphs());
    if is_subgraph {
        let why =
            "it chooses its own seeds, so it cannot start from the ends of edges; use --sampler neighbor";
        return refuse(format!("--sampler {}", config.sampler), why.into());
    }
    if let Some(option) = config.own.get::<LinkOptions>().option_of_times().filter(|_| !of_types) {
        let why = "models of one type read no times of edges; use a model of types, such as --model rsage";
        return refuse(format!("--{option}"), why.into());
    }
    let strategy = strategy::find(config)?;
    if !of_types && !strategy.make.over_links {
        let usable = strategy::TABLE.iter().filter(|row| row.make.over_links).map(|row| row.name);
        let usable = one_of(&usable.collect::<Vec<_>>());
        let why = format!(
            "it pulls rows that earlier batches computed from the edges of this one; use --strategy {usable}"
        );
        return refuse(format!("--strategy {}", strategy.name), why);
    }
    if config.reuse != "none" {
        let why = "rows of hot nodes are computed without the exclusion of a batch's edges; leave it out";
        return refuse(format!("--reuse {}", config.reuse), why.into());
    }
    if !order::TABLE.get(&config.order).is_some_and(|entry| entry.make.of_edges) {
        let usable = order::TABLE.iter().filter(|row| row.make.of_edges).map(|row| row.name);
        let usable = one_of(&usable.collect::<Vec<_>>());
        let why = format!("it orders nodes, and the seeds are edges; use --order {usable}");
        return refuse(format!("--order {}", config.order), why);
    }
    structure::check(config, None)?;
    if !of_types && !config.cuda_devices().is_empty() {
        let why = "pairs are scored on the processor; use --devices virtual:N, or leave it out";
        return refuse(format!("--devices {}", config.devices), why.into());
    }
    Ok(())
}

/// Refuses tiers of rows with which a run of one process on links of one type does not work.
///
/// # Errors
/// Wrong usage: the first such option, with the reason and the remedy.
pub fn check_tiers(config: &TrainConfig) -> Result<()> {
    for (flag, name) in [("cache", &config.cache), ("host-cache", &config.host_cache)] {
        if expects_nodes(name) {
            return Err(Error::usage(format!(
                "--{flag} {name} with links: it expects batches of training nodes; use {OF_LINKS}, or leave \
                 it out"
            )));
        }
    }
    Ok(())
}
