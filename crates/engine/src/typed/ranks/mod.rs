//! Training on several types over ranks, each with a part of the graph.
//!
//! ```text
//!   rank 0   order (the same on all) ─► own seeds ─► sample ─► extract ─► forward, backward ─┐
//!                                                     │ ▲         │ ▲                        ├─► sum over ranks ─► the same update
//!   rank 1   order ─► own seeds ─► ...     neighbours by relation, rows of each type ────────┘
//! ```
//!
//! A batch has the seeds and the draws of the same batch in a single process, as for one type
//! ([`crate::distributed`]): the owner of a node draws its neighbours by each relation, keyed by
//! relation, hop and node. The gradients of dense parameters are summed over ranks. Learned rows of
//! types without features are at the owners of their nodes. A rank that trains on subgraphs draws
//! them from its own part. A rank that learns links has all edges and draws for itself.
//!
//! | file | contents |
//! | --- | --- |
//! | `view.rs` | a rank's part of the dataset: graph, rows, task |
//! | `exchange.rs` | sums of gradients |
//! | `own_rows.rs` | learned rows at their owners; devices request them by [`super::rounds`] |
//! | `edge_rows.rs` | feature rows of edges at the owners of their destinations |
//! | `subgraphs.rs` | subgraphs of a rank's own nodes |
//! | `inference.rs` | scores, layer by layer, each rank for its own nodes |
//! | `links.rs` | links, which every rank finds in the edges of all parts |

mod edge_rows;
mod exchange;
mod inference;
mod links;
mod own_rows;
mod subgraphs;
mod view;

use std::sync::Arc;

use graphmill_data::partition::TypedPartitionDir;
use graphmill_distributed::Messenger;
use graphmill_loader::typed::TypedSampler;

use edge_rows::RankEdges;
pub(super) use exchange::{RowGradients, exchange, exchange_round, learned_types, update_rows};
pub(super) use inference::RankInference;
pub(super) use own_rows::{JoinedRows, RowOwners, fetch_rows, own_nodes};
use subgraphs::RankSubgraphs;
pub(super) use view::{RankRows, TypedRankView};

use crate::{Error, Result, RunContext, TrainConfig, distributed, record::Summary};

/// Trains on a partitioned dataset of several types, as one of several ranks. All ranks call this
/// with the same arguments except `context`: rank 0 has the run directory, and [`RunContext::run`]
/// of the others is `None`. A failure ends all ranks, and each reports the rank that failed first.
///
/// # Errors
/// As [`super::train`]; a rank did not take part; an option needs more than ranks on several types
/// have.
pub fn train_over_ranks(
    config: &TrainConfig,
    dir: &TypedPartitionDir,
    post: Arc<Messenger>,
    context: RunContext,
) -> Result<Summary> {
    train_wrapped(config, dir, post, context, |sampler| sampler)
}

/// Trains as [`train_over_ranks`] does, with the sampler that `wrap` makes of that of the options.
pub(super) fn train_wrapped(
    config: &TrainConfig,
    dir: &TypedPartitionDir,
    post: Arc<Messenger>,
    context: RunContext,
    wrap: impl FnOnce(Box<dyn TypedSampler>) -> Box<dyn TypedSampler>,
) -> Result<Summary> {
    let outcome = train_and_meet(config, dir, &post, context, wrap);
    match &outcome {
        Ok(_) | Err(Error::Interrupted { .. }) => post.close()?,
        Err(error) => post.fail(&error.to_string()),
    }
    outcome
}

/// Trains, and waits for the other ranks unless this rank failed: rank 0 may still be writing.
fn train_and_meet(
    config: &TrainConfig,
    dir: &TypedPartitionDir,
    post: &Arc<Messenger>,
    context: RunContext,
    wrap: impl FnOnce(Box<dyn TypedSampler>) -> Box<dyn TypedSampler>,
) -> Result<Summary> {
    let config = &distributed::agree(config, post)?;
    check(config)?;
    let (outcome, ranks) = match links::learned(config, dir)? {
        None => {
            let view = TypedRankView::open(config, dir, post.clone())?;
            (super::trainer::train_as_rank(config, &view, context, wrap), view.ranks)
        }
        Some(whole) => {
            let (view, of) = links::open(config, (dir, whole), post.clone())?;
            (super::links::train_as_rank(config, (&view, of), context, wrap), view.ranks)
        }
    };
    if matches!(outcome, Ok(_) | Err(Error::Interrupted { .. })) {
        ranks.meet()?;
    }
    outcome
}

/// Refuses options that ranks on several types cannot follow.
fn check(config: &TrainConfig) -> Result<()> {
    distributed::check(config)?;
    if !config.cuda_devices().is_empty() {
        return Err(Error::usage(
            "--devices: it is not available over ranks on several types, which compute on the processor; use \
             virtual:N, or leave it out",
        ));
    }
    Ok(())
}
