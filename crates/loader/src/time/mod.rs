//! Minibatches of graphs with times: no batch holds an edge or a node newer than its seed.
//!
//! Edges and nodes have a time from which they exist (64-bit integers, [`i64::MIN`]: always). A
//! seed has a time too, and its neighbourhood holds what existed then. [`TimedGraph`] keeps the
//! edges of every row in the order of their times, so that the visible ones are a range, found by
//! binary search. [`TimeSampler`] draws from that range.
//!
//! # Semantics
//!
//! - An edge is visible from the later of its own time and the time of its source node.
//! - [`TimeBound::Strict`] admits visible times below the seed's, [`TimeBound::Inclusive`] also
//!   equal ones. Edges that always existed are admitted by every bound but a window.
//! - The time of a seed holds for all its hops ([`TimeCarry::Seed`]), or deeper hops see what
//!   existed at the time of the edge that leads to them ([`TimeCarry::Edge`], TGAT).
//! - A row of a minibatch is a pair of a node and a time. The rows of a node for two seeds are one
//!   row **if and only if** their times allow it:
//!   - A row that draws no neighbours (the sources of the bottom block) is shared for any times.
//!   - A row that draws in the last hop only is shared if both times admit the same edges of the
//!     node, because its draws depend on the admitted edges and not on the time itself.
//!   - Any other row, and every row that draws if there is a window or sharing is turned off
//!     ([`TimeSampler::without_sharing`]), is shared if the times are equal.
//! - Draws are functions of (seed, epoch, batch, hop, relation, node, admitted edges). The
//!   neighbourhood of each seed therefore equals the one that it has in a batch of its own, which
//!   the tests assert for every combination of options.
//!
//! PyTorch Geometric copies the neighbourhood for each seed instead (`disjoint`).
//!
//! [`Events`] is a stream of edges in the order of their times, [`LastNeighbors`] the last events
//! of every node in it. [`gather_edges`](crate::gather_edges) reads feature rows of a batch's edges
//! from any tier.
//!
//! ```
//! use graphmill_core::Graph;
//! use graphmill_loader::{
//!     BatchKey,
//!     time::{TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace, TimedGraph},
//! };
//!
//! // node 0 has the in-neighbours 1, 2 and 3, from the times 10, 30 and 20 on
//! let graph = Graph::new(vec![0, 3, 3, 3, 3].into(), vec![1, 2, 3].into())?;
//! let timed = TimedGraph::of_one_type(graph, Some(vec![10, 30, 20].into()), None)?;
//! let fanout = "-1".parse().expect("one hop");
//! let sampler = TimeSampler::new(timed.schema(), &fanout, TimeOptions::default()).expect("valid options");
//! let request = TimeRequest::new(&timed, BatchKey { seed: 1, epoch: 0, batch: 0 });
//! let seeds = TimeSeeds::of_nodes(0, vec![0], vec![30]);
//! let batch = sampler.sample(&request, &mut TimeWorkspace::new(timed.schema()), seeds)?;
//! // at time 30 the edges of the times 10 and 20 exist, in the order of their times
//! assert_eq!(batch.sampled.input_nodes, [[0, 1, 3]]);
//! assert_eq!(batch.edges[0][0], [0, 2]);
//! # Ok::<(), graphmill_core::Error>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
mod clocks;
mod decay;
mod draw;
mod events;
mod graph;
pub(crate) mod hgt;
pub(crate) mod hops;
mod index;
mod last;
mod numbering;
mod options;
mod own_rows;
mod recency;
mod recent;
mod relation;
mod sampler;
mod source;
pub(crate) mod timed;
pub(crate) mod walks;

pub use batch::{OneTypeBatch, TimeBatch, TimeSeeds};
pub use events::{EventBatch, Events};
pub use graph::TimedGraph;
pub use index::TimeIndex;
pub use last::{LastNeighbors, NeighborBatch};
pub use options::{TimeBound, TimeCarry, TimeDraw, TimeOptions};
pub use recent::RecencyDraws;
pub use sampler::{TimeRequest, TimeSampler, TimeWorkspace};
pub use source::{Admitted, OwnTimeRows, TimeDestinations, TimeDrawn, TimeHop, TimeSource};
pub use timed::{AtTimes, TimedSampler};

#[cfg(test)]
mod tests;
