//! The rows of a graph with times, wherever they are.

use graphmill_core::{NodeId, Result};

use super::{TimeOptions, TimedGraph};

/// Admitted edges of a destination: the first place in the order of its row, and the end.
pub type Admitted = [u32; 2];

/// Draws of one relation at one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeHop {
    /// Number of the relation.
    pub relation: usize,
    /// Number of the hop, 0 next to the seeds.
    pub hop: usize,
    /// Number of neighbours of a node; `usize::MAX` takes all.
    pub fanout: usize,
    /// Key of the draws.
    pub key: u64,
    /// False if the positions of the edges are not read.
    pub positions: bool,
}

/// Destinations with their times.
#[derive(Clone, Copy, Debug)]
pub struct TimeDestinations<'a> {
    /// Nodes by local id.
    pub nodes: &'a [NodeId],
    /// Time of each.
    pub times: &'a [i64],
}

impl TimeDestinations<'_> {
    /// The destinations from number `first` on, if there are any.
    pub(super) fn from(self, first: usize) -> Self {
        let first = first.min(self.nodes.len());
        Self { nodes: &self.nodes[first..], times: &self.times[first..] }
    }
}

/// Edges that are drawn, overwritten.
#[derive(Debug)]
pub struct TimeDrawn<'a> {
    /// Edge range of each destination, `D + 1`.
    pub indptr: &'a mut Vec<u32>,
    /// Source of each edge.
    pub sources: &'a mut Vec<NodeId>,
    /// Weight of each edge, if the draws weight them; empty before the draws.
    pub weights: &'a mut Vec<f32>,
    /// Position of each edge in the relation's graph; may be empty if they are not read.
    pub positions: &'a mut Vec<u64>,
    /// Time of the row that each edge leads to, if requested.
    pub times: Option<&'a mut Vec<i64>>,
}

/// Rows of a graph with times that a [`TimeSampler`](super::TimeSampler) reads.
///
/// ```
/// use graphmill_core::Graph;
/// use graphmill_loader::time::{
///     OwnTimeRows, TimeDestinations, TimeDrawn, TimeHop, TimeOptions, TimeSource, TimedGraph,
/// };
///
/// // node 0 has the in-neighbours 1, 2 and 3, from the times 10, 30 and 20 on
/// let graph = Graph::new(vec![0, 3, 3, 3, 3].into(), vec![1, 2, 3].into())?;
/// let graph = &TimedGraph::of_one_type(graph, Some(vec![10, 30, 20].into()), None)?;
/// let rows = OwnTimeRows { graph, options: &TimeOptions::default(), parallel: false };
/// let hop = TimeHop { relation: 0, hop: 0, fanout: usize::MAX, key: 1, positions: true };
/// let (mut indptr, mut sources, mut positions) = (vec![], vec![], vec![]);
/// let drawn = TimeDrawn {
///     indptr: &mut indptr,
///     sources: &mut sources,
///     weights: &mut vec![],
///     positions: &mut positions,
///     times: None,
/// };
/// rows.draw(&hop, TimeDestinations { nodes: &[0], times: &[30] }, &mut vec![], drawn)?;
/// assert_eq!((indptr, sources, positions), (vec![0, 2], vec![1, 3], vec![0, 2]));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// Methods get lists of the admitted edges of the first destinations. A source that searches them
/// itself appends those of the others, so that no row is searched twice in a batch; another one
/// leaves the lists empty.
pub trait TimeSource: Send + Sync {
    /// Draws the edges of destinations by one relation.
    ///
    /// # Errors
    /// There are more edges than 32-bit positions can number, or rows cannot be read.
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        admitted: &mut Vec<Admitted>,
        drawn: TimeDrawn,
    ) -> Result<()>;

    /// Overwrites `out` by a number for each destination that distinguishes the edges that rows of
    /// the same node admit without a window by any of `relations`, which lead to their type: the
    /// visible time of the last one, or its place. `admitted` has a list for each relation of the
    /// graph.
    ///
    /// # Errors
    /// Rows cannot be read.
    fn last_admitted(
        &self,
        relations: &[usize],
        of: TimeDestinations,
        admitted: &mut [Vec<Admitted>],
        out: &mut Vec<i64>,
    ) -> Result<()>;
}

/// Rows of a graph in memory.
#[derive(Clone, Copy, Debug)]
pub struct OwnTimeRows<'a> {
    /// The graph.
    pub graph: &'a TimedGraph,
    /// Options of the draws.
    pub options: &'a TimeOptions,
    /// True to draw on all threads of the pool. Results do not depend on it.
    pub parallel: bool,
}
