//! Refusal of parts of a run that do not know links.

use graphmill_core::options::one_of;
use graphmill_loader::sampler;

use crate::{
    Error, Result, TrainConfig,
    cache_kind::{OF_LINKS, expects_nodes},
    strategy,
};

/// Strategies that train on links.
const STRATEGIES: &[&str] = &["sequential", "pipelined"];
/// Orders of the edges to learn.
const ORDERS: &[&str] = &["random", "sequential"];

/// Refuses options with which a run cannot learn links; an NVIDIA device trains if `on_nvidia`.
///
/// # Errors
/// Wrong usage: the first such option, with the reason and the remedy.
pub fn check(config: &TrainConfig, on_nvidia: bool) -> Result<()> {
    let refuse = |option: String, why: String| Err(Error::usage(format!("{option} with links: {why}")));
    let is_subgraph = sampler::TABLE.get(&config.sampler).is_some_and(|entry| entry.make.draws_subgraphs());
    if is_subgraph {
        let why =
            "it chooses its own seeds, so it cannot start from the ends of edges; use --sampler neighbor";
        return refuse(format!("--sampler {}", config.sampler), why.into());
    }
    let strategy = strategy::find(config)?.name;
    if !STRATEGIES.contains(&strategy) {
        let why = format!("it does not divide pairs among devices; use --strategy {}", one_of(STRATEGIES));
        return refuse(format!("--strategy {strategy}"), why);
    }
    if config.reuse != "none" {
        let why = "rows of hot nodes are computed without the exclusion of a batch's edges; leave it out";
        return refuse(format!("--reuse {}", config.reuse), why.into());
    }
    if !ORDERS.contains(&config.order.as_str()) {
        let why = format!("it orders nodes, and the seeds are edges; use --order {}", one_of(ORDERS));
        return refuse(format!("--order {}", config.order), why);
    }
    if !on_nvidia && !config.cuda_devices().is_empty() {
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
    let refuse = |option: String, why: String| Err(Error::usage(format!("{option} with links: {why}")));
    if config.device_budget.0 > 0 {
        let why = "the memory of a step on pairs is not measured; use --cache-ratio";
        return refuse(format!("--device-budget {}", config.device_budget.0), why.into());
    }
    for (flag, name) in [("cache", &config.cache), ("host-cache", &config.host_cache)] {
        if expects_nodes(name) {
            let why = format!("it expects batches of training nodes; use {OF_LINKS}, or leave it out");
            return refuse(format!("--{flag} {name}"), why);
        }
    }
    Ok(())
}
