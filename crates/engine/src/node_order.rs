//! Orders of nodes by name: those of the data crate, or the hottest nodes first.

#![forbid(unsafe_code)]

use graphmill_core::{
    NodeId,
    error::suggestion,
    node_order,
    progress::Quiet,
    table::{self, Entry},
};
use graphmill_data::{
    Dataset,
    reorder::{self, OrderKind},
    typed::TypedDataset,
};
pub use graphmill_loader::sampler::draws as options;

use crate::{Error, Result, TrainConfig, hotness, typed};

/// Order of a dataset's nodes by name, with everything that it depends on besides the dataset.
pub struct NodeOrder {
    kind: Kind,
    seed: u64,
}

/// Source of an order.
enum Kind {
    /// The graph alone.
    Graph(reorder::Order),
    /// Hotness of the rows that training reads, hottest first.
    Hotness { metric: String, train: Box<TrainConfig> },
}

impl NodeOrder {
    /// The order called `by`: one of the graph alone, or the hotness of the rows that training
    /// with `train` reads.
    ///
    /// # Errors
    /// The order is unknown or does not use one of the options `given`.
    pub fn new(by: &str, seed: u64, train: TrainConfig, given: &[&str]) -> Result<Self> {
        if let Ok(entry) = table::find("order", reorder::TABLE, by) {
            let reads = |entry: &Entry<OrderKind>, option: &str| entry.make.is_random && option == "seed";
            if let Some(option) = given.iter().find(|option| !reads(entry, option)) {
                let readers = reorder::TABLE.iter().filter(|entry| reads(entry, option));
                let readers = readers.map(|entry| format!("--by {} or ", entry.name));
                return Err(Error::usage(format!(
                    "--{}: --by {by} does not use it; pass {}--by presc:1, an order by the rows that \
                     minibatches read, or leave it out",
                    option.replace('_', "-"),
                    readers.collect::<String>()
                )));
            }
            return Ok(Self { kind: Kind::Graph(entry.make.make), seed });
        }
        if !hotness::is_metric(by) {
            let orders = table::names(reorder::TABLE);
            let known = format!("{orders}; or the hottest first by {}", hotness::metrics());
            let near = suggestion(by, &orders);
            return Err(Error::usage(format!("unknown order '{by}'{near}; known: {known}")));
        }
        hotness::refuse_unused(by, &train, given)?;
        let train = Box::new(TrainConfig { seed, ..train });
        Ok(Self { kind: Kind::Hotness { metric: by.to_string(), train }, seed })
    }

    /// Old id of every new node of a dataset of one type.
    ///
    /// # Errors
    /// An option does not fit the dataset, or an allocation fails.
    pub fn of_dataset(&self, data: &Dataset) -> graphmill_core::Result<Vec<NodeId>> {
        match &self.kind {
            Kind::Graph(make) => make(&data.graph, self.seed),
            Kind::Hotness { metric, train } => {
                node_order::by_scores(&hotness::scores(metric, train, data, &Quiet).map_err(invalid)?)
            }
        }
    }

    /// Old global id of every new node of a dataset of several types, whose relations an order of
    /// the graph follows alike.
    ///
    /// # Errors
    /// As for [`NodeOrder::of_dataset`]; the metric is not defined for several types.
    pub fn of_types(&self, data: &TypedDataset) -> graphmill_core::Result<Vec<NodeId>> {
        match &self.kind {
            Kind::Graph(make) => make(&data.graph()?.union()?, self.seed),
            Kind::Hotness { metric, train } => {
                let scores = typed::hotness::scores(metric, train, data, &Quiet).map_err(invalid)?;
                node_order::by_scores(&scores)
            }
        }
    }
}

/// The error for a caller in the data crate.
fn invalid(error: Error) -> graphmill_core::Error {
    graphmill_core::Error::invalid(error.to_string())
}
