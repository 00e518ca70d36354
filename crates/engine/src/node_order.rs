//! Orders of nodes by name: those of the data crate, or the hottest nodes first.

use graphmill_core::{
    NodeId, node_order,
    progress::Quiet,
    table::{self, Entry},
};
use graphmill_data::{
    Dataset,
    reorder::{self, OrderKind},
};
pub use graphmill_loader::sampler::draws as options;

use crate::{Error, Result, TrainConfig, hotness};

/// Function that computes an order of a dataset's nodes.
pub type Make = Box<dyn FnOnce(&Dataset) -> graphmill_core::Result<Vec<NodeId>> + Send>;

/// The order called `by`: one of the graph alone, or the hotness of the rows that training
/// with `train` reads.
///
/// # Errors
/// The order is unknown or does not use one of the options `given`.
pub fn order(by: &str, seed: u64, train: TrainConfig, given: &[&str]) -> Result<Make> {
    if let Ok(entry) = table::find("order", reorder::TABLE, by) {
        let reads = |entry: &Entry<OrderKind>, option: &str| entry.make.is_random && option == "seed";
        if let Some(option) = given.iter().find(|option| !reads(entry, option)) {
            let readers = reorder::TABLE.iter().filter(|entry| reads(entry, option));
            let readers = readers.map(|entry| format!("--by {} or ", entry.name));
            return Err(Error::usage(format!(
                "--{}: --by {by} does not use it; pass {}--by presc:1, an order by the rows that minibatches \
                 read, or leave it out",
                option.replace('_', "-"),
                readers.collect::<String>()
            )));
        }
        return Ok(Box::new(move |dataset| (entry.make.make)(&dataset.graph, seed)));
    }
    if !hotness::is_metric(by) {
        let orders = table::names(reorder::TABLE);
        let known = format!("{orders}; or the hottest first by {}", hotness::metrics());
        return Err(Error::usage(format!("unknown order '{by}'; known: {known}")));
    }
    hotness::refuse_unused(by, &train, given)?;
    let by = by.to_string();
    Ok(Box::new(move |dataset| {
        let train = TrainConfig { seed, ..train };
        let scores = hotness::scores(&by, &train, dataset, &Quiet)
            .map_err(|e| graphmill_core::Error::invalid(e.to_string()))?;
        node_order::by_scores(&scores)
    }))
}
