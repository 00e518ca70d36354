//! Refusal of parts of a run that do not know links.

use graphmill_core::options::one_of;
use graphmill_loader::sampler;

use crate::{Error, Result, TrainConfig, config::Devices, strategy};

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
    let trains = match &*config.devices {
        Devices::Cpu => true,
        Devices::Virtual(_) => false,
        Devices::Cuda(_) => on_nvidia,
    };
    if !trains {
        let why = "pairs are scored on the processor; leave it out";
        return refuse(format!("--devices {}", config.devices), why.into());
    }
    if config.host_budget.0 > 0 || config.cache_ratio.0.is_some() {
        let why = "caches are filled by minibatches of nodes; leave out --host-budget and --cache-ratio";
        return refuse("a cache".into(), why.into());
    }
    Ok(())
}
