//! Links by relation: the link tasks of a dataset of any number of node types and edge types, each
//! a relation. Tables of embeddings and models of several types learn and rank them alike.
//!
//! | file | contents |
//! | --- | --- |
//! | `buckets.rs` | buckets of rows, of tables larger than memory |
//! | `edges.rs` | edges to learn and to rank |
//! | `divided.rs` | edges of edge types without a link task, divided by `--split-edges` |
//! | `negatives.rs` | negatives of the edges of each relation |
//! | `ranking.rs` | ranks of edges among all candidates |
//! | `saved.rs` | scores, best candidates and embeddings of a model that was trained |
//! | `times.rs`, `timed.rs` | edges that have times: the times, and what is known at them |
//! | `drawn.rs` | candidates that edges with times are ranked among |

#![forbid(unsafe_code)]

mod buckets;
mod divided;
mod drawn;
mod edges;
mod negatives;
mod ranking;
mod saved;
mod timed;
mod times;

use graphmill_core::End;
use graphmill_loader::link::Corrupt;

pub(crate) use self::{
    buckets::{Buckets, Visits},
    drawn::DrawnQuery,
    edges::{LinkEdges, Relation, Triple},
    negatives::{AnyRow, RelationNegatives},
    ranking::{Query, Ranking, VALID, values},
    saved::{Embedded, find_relation, scores_by},
    times::RowTimes,
};
use crate::{Error, Result, TrainConfig, config::link::LinkOptions, link::LinkMetric};

/// Metric of a run whose tasks name none.
const DEFAULT_METRIC: &str = "mrr";

/// Ends of an edge that are replaced by candidates.
pub(crate) fn ends(config: &TrainConfig, edges: &LinkEdges) -> Vec<End> {
    match corrupt(config, edges) {
        Corrupt::Destination => vec![End::Destination],
        Corrupt::Source => vec![End::Source],
        Corrupt::Both => vec![End::Destination, End::Source],
    }
}

/// Ends of an edge that negatives replace.
pub(crate) fn corrupt(config: &TrainConfig, edges: &LinkEdges) -> Corrupt {
    // relations have queries for both ends, users have queries for items
    config.own.get::<LinkOptions>().ends(edges.relations.len() > 1 || edges.undirected)
}

/// The metric of the run: that of the configuration, else of the tasks.
pub(crate) fn metric(config: &TrainConfig, edges: &LinkEdges) -> Result<LinkMetric> {
    let is_single = edges.relations.len() == 1;
    // drawn candidates are pairs without an edge at the time
    let ranks_all = edges.times.is_some() && config.own.get::<LinkOptions>().eval_negatives == 0;
    let fits = |metric: LinkMetric| is_single && !ranks_all || !metric.is_pooled();
    let own = edges.metric.as_deref().filter(|name| LinkMetric::find(name).is_ok_and(fits));
    let name = match config.metric.as_str() {
        "auto" => own.unwrap_or(DEFAULT_METRIC),
        given => given,
    };
    let metric = LinkMetric::find(name)?;
    if !is_single && metric.is_pooled() {
        let message = "it compares edges with pairs without an edge, and the edges of several relations are \
                       ranked among all candidates; use --metric mrr or hits@10, or choose one with --task";
        return Err(Error::usage(format!("--metric {name}: {message}")));
    }
    if ranks_all && metric.is_pooled() {
        let message = "it compares edges with pairs without an edge, and rows with times rank all candidates \
                       of their time; use --metric map@10, recall@10 or mrr, or --eval-negatives 1";
        return Err(Error::usage(format!("--metric {name}: {message}")));
    }
    Ok(metric)
}
