//! Links over ranks.
//!
//! # Algorithm
//!
//! Every rank opens all edges of all types, which the partition stores besides the parts, and finds
//! the links of one process in them, with the graph without the edges that are held out. It makes
//! the seeds of every batch and keeps those of its share, draws their neighbours itself, and reads
//! the rows of other ranks' nodes and edges from their owners, as in a run on nodes.
//!
//! # Source
//!
//! As for links of one type (`crate::distributed`).
//!
//! # Cost
//!
//! Seeds of all positives of a batch on every rank; rows and gradients as in a run on nodes. To
//! score edges, each rank computes the embeddings of its own nodes, all ranks gather those of the
//! types that edges join, and each ranks its share of the queries.
//!
//! # Memory
//!
//! On every rank the edges of one process: `8 D + 4 E` mapped bytes for an edge type of `D`
//! destinations and `E` edges, with weights and times `4 E` and `8 E` more, and the rest of an edge
//! type with held-out edges in memory; 12 bytes for each edge of a link task, and the known edges;
//! the embeddings of the types that edges join. If the model reads edge features, 8 bytes for each
//! edge that has some. Feature rows and learned rows are those of the rank's own nodes.

use std::sync::Arc;

use graphmill_core::options::one_of;
use graphmill_data::{
    partition::TypedPartitionDir,
    typed::{EdgeData, TypedDataset},
};
use graphmill_distributed::Messenger;
use graphmill_nn::typed::TABLE;

use super::{
    RankEdges, TypedRankView,
    view::{Opened, Viewed},
};
use crate::{
    Error, Result, TrainConfig,
    config::link::LINK,
    distributed::{check_links, refuse_caches, without_edges},
    typed::{edges, links::TypedLinks, tables::Tables, task::choose},
};

/// All edges and the link tasks of the partitioned dataset, if the run learns links: `--task` is
/// `link`, or names a link task or an edge type.
///
/// # Errors
/// They are damaged, an earlier version wrote the partition without them, or an option does not fit
/// links over ranks.
pub(super) fn learned(config: &TrainConfig, dir: &TypedPartitionDir) -> Result<Option<TypedDataset>> {
    let task = &config.task;
    if task.is_empty() || dir.whole.task(task).is_ok() {
        return Ok(None);
    }
    let is_type = dir.edge_types().iter().any(|of| of.edge_type.to_string() == *task);
    let whole = match dir.topology(config.verify.at_opening())? {
        Some(whole) => whole,
        None if is_type || task == LINK => return Err(without_edges(dir.path())),
        None => return Ok(None),
    };
    if !is_type && task != LINK && whole.task(task).is_err() {
        // its error names the tasks on nodes and on links, and the edge types
        let tasks = [&dir.whole.tasks[..], &whole.tasks].concat();
        return choose(&TypedDataset { tasks, ..whole }, task).map(|_| None);
    }
    check(config, &whole)?;
    Ok(Some(whole))
}

/// Refuses options and tasks of `whole` that ranks which learn links cannot follow.
fn check(config: &TrainConfig, whole: &TypedDataset) -> Result<()> {
    check_links(config)?;
    refuse_caches(config)?;
    if TABLE.get(&config.model).is_none() {
        let models: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
        return Err(Error::usage(format!(
            "--model {}: ranks learn links of a dataset in parts of format 2 by a model of types; use \
             --model {}, or train on the dataset before graphmill partition",
            config.model,
            one_of(&models)
        )));
    }
    let mut learned = whole.tasks.iter().filter(|task| config.task == LINK || task.name == config.task);
    match learned.find(|task| task.time.is_some()) {
        None => Ok(()),
        Some(task) => Err(Error::usage(format!(
            "--task {}: the rows of task '{}' have times, and ranks learn links whose rows have none; train \
             on the dataset before graphmill partition",
            config.task, task.name
        ))),
    }
}

/// Opens this rank's parts, finds the links of the run in the edges of `whole`, and serves the rows
/// of own nodes and edges. All ranks call this at the same time.
///
/// # Errors
/// Those of [`Opened::new`] and [`TypedLinks::new`].
pub(super) fn open(
    config: &TrainConfig,
    (dir, whole): (&TypedPartitionDir, TypedDataset),
    post: Arc<Messenger>,
) -> Result<(TypedRankView, TypedLinks)> {
    let mut opened = Opened::new(config, dir, post)?;
    let Opened { ranks, owners, parts, data } = &mut opened;
    // edge features are in the parts
    let with_width = |(of, own): (EdgeData, &mut EdgeData)| EdgeData { features: own.features.take(), ..of };
    data.edges = whole.edges.into_iter().zip(&mut data.edges).map(with_width).collect();
    data.tasks.extend(whole.tasks);
    let mut rows = Tables::new();
    if edges::reads(&config.model) {
        let served = RankEdges::open(config, (dir, parts), (ranks, ranks.book()))?;
        rows = served.by_position((dir, owners), &data.edges);
        edges::check_features(config, data, &rows)?;
    }
    let of = TypedLinks::with_rows(config, data, rows)?;
    let read = of.inputs.edges.clone();
    let edges = RankEdges { own: read.clone(), all: read, first: Vec::new() };
    let (task, record) = (of.inputs.clone(), of.edges.record(data));
    let viewed = Viewed { task, edges, record, unread: None, has_all_edges: true };
    Ok((opened.view(config, dir, viewed)?, of))
}
