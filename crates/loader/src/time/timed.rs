//! The interface of samplers that draw at the times of the seeds, which rows of the table of typed
//! samplers make.

use std::sync::Arc;

use graphmill_core::{Result, options::OptionSet, typed::Schema};

use super::{
    TimeBatch, TimeCarry, TimeDraw, TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeSource,
    TimeWorkspace, TimedGraph,
};
use crate::typed::TypedOptions;

/// Makes minibatches of which no edge and no node is newer than its seed.
///
/// ```
/// use graphmill_core::{Graph, Result, typed::Schema};
/// use graphmill_loader::{
///     BatchKey,
///     time::{
///         TimeBatch, TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace, TimedGraph,
///         TimedSampler,
///     },
/// };
///
/// /// Draws what was known `delay` before each seed.
/// struct Delayed {
///     sampler: TimeSampler,
///     delay: i64,
/// }
///
/// impl TimedSampler for Delayed {
///     fn num_hops(&self) -> usize {
///         self.sampler.num_hops()
///     }
///     fn is_random(&self) -> bool {
///         self.sampler.is_random()
///     }
///     fn is_per_node(&self) -> bool {
///         self.sampler.is_per_node()
///     }
///     fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
///         self.sampler.follows(schema, hop, r)
///     }
///     fn sample(
///         &self,
///         request: &TimeRequest,
///         workspace: &mut TimeWorkspace,
///         mut seeds: TimeSeeds,
///     ) -> Result<TimeBatch> {
///         seeds.times.iter_mut().flatten().for_each(|time| *time -= self.delay);
///         self.sampler.sample(request, workspace, seeds)
///     }
/// }
///
/// // node 0 has the in-neighbours 1, 2 and 3, from the times 10, 30 and 20 on
/// let graph = Graph::new(vec![0, 3, 3, 3, 3].into(), vec![1, 2, 3].into())?;
/// let timed = TimedGraph::of_one_type(graph, Some(vec![10, 30, 20].into()), None)?;
/// let fanout = "-1".parse().expect("one hop");
/// let options = TimeOptions::default();
/// let sampler = TimeSampler::new(timed.schema(), &fanout, options).expect("valid options");
/// let delayed = Delayed { sampler, delay: 15 };
/// let request = TimeRequest::new(&timed, BatchKey { seed: 1, epoch: 0, batch: 0 });
/// let seeds = TimeSeeds::of_nodes(0, vec![0], vec![30]);
/// let batch = delayed.sample(&request, &mut TimeWorkspace::new(timed.schema()), seeds)?;
/// // the edge of time 20 is not yet known at 15
/// assert_eq!(batch.sampled.input_nodes, [[0, 1]]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait TimedSampler: Send + Sync {
    /// Number of hops from the seeds.
    fn num_hops(&self) -> usize;

    /// Number of blocks of a minibatch: one per hop, or a single one for all layers.
    fn num_blocks(&self) -> usize {
        self.num_hops()
    }

    /// True if another key may give other blocks.
    fn is_random(&self) -> bool;

    /// True if the draws of a row do not depend on the other rows of its batch.
    fn is_per_node(&self) -> bool;

    /// Returns true if hop `hop` (0 next to the seeds) follows relation `r`.
    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool;

    /// Draws the blocks around the seeds. A pure function of the request and the seeds.
    ///
    /// # Errors
    /// The seeds are invalid, as for [`TimeSampler::sample`], a block would have more edges than
    /// 32-bit positions can number, or the request asks for positions that the sampler cannot name.
    fn sample(
        &self,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch>;

    /// The same sampler that draws from `rows`, wherever they are; `None` if it reads those of a
    /// graph in memory.
    fn over_rows(&self, _rows: Arc<dyn TimeSource>) -> Option<Box<dyn TimedSampler>> {
        None
    }
}

/// Result of a constructor in the table.
pub(crate) type Made = Result<Box<dyn TimedSampler>, String>;

/// Draws at times: the capability of a sampler's row in the table of typed samplers.
#[derive(Clone, Copy)]
pub struct AtTimes {
    /// Constructor of the sampler.
    pub make: fn(&TypedOptions, &TimedGraph) -> Made,
    /// True if it draws by [`TimeDraw`] and [`TimeCarry`], false if its draws among the edges that
    /// a seed sees are those without times.
    pub reads_draw: bool,
}

impl AtTimes {
    /// Creates the capability of a sampler that draws by [`TimeDraw`].
    pub(crate) const fn by_draw(make: fn(&TypedOptions, &TimedGraph) -> Made) -> Self {
        Self { make, reads_draw: true }
    }

    /// Creates the capability of a sampler with draws of its own.
    pub(crate) const fn own(make: fn(&TypedOptions, &TimedGraph) -> Made) -> Self {
        Self { make, reads_draw: false }
    }
}

/// Makes the sampler that draws by [`TimeDraw`].
pub(crate) fn neighbor(with: &TypedOptions, graph: &TimedGraph) -> Made {
    Ok(Box::new(TimeSampler::new(graph.schema(), &with.fanout, with.own.get())?))
}

/// Makes the sampler of all neighbours by every relation that the fanout follows.
pub(crate) fn full(with: &TypedOptions, graph: &TimedGraph) -> Made {
    let (schema, all) = (graph.schema(), with.fanout.taking_all(graph.schema())?);
    Ok(Box::new(TimeSampler::new(schema, &all, with.own.get())?))
}

/// Options of a sampler with draws of its own.
///
/// # Errors
/// An option is invalid, or chooses draws that such a sampler does not make.
pub(super) fn own_draws(with: &TypedOptions) -> Result<TimeOptions, String> {
    let options: TimeOptions = with.own.get();
    options.check().map_err(|fault| fault.to_string())?;
    if options.time_draw != TimeDraw::Uniform {
        return Err(format!(
            "--time-draw {}: the sampler draws among the edges that a seed sees as it does without times; \
             leave it out, or use --sampler neighbor",
            options.time_draw
        ));
    }
    if options.time_carry != TimeCarry::Seed {
        return Err(format!(
            "--time-carry {}: the sampler does not name the edges that it draws, so that their times cannot \
             bound the next hop; use --time-carry seed, or --sampler neighbor",
            options.time_carry
        ));
    }
    Ok(options)
}

impl TimedSampler for TimeSampler {
    fn num_hops(&self) -> usize {
        TimeSampler::num_hops(self)
    }

    fn is_random(&self) -> bool {
        self.options().time_draw != TimeDraw::Last
    }

    /// The draws of a node at a time have a key of their own.
    fn is_per_node(&self) -> bool {
        true
    }

    fn follows(&self, _: &Schema, hop: usize, r: usize) -> bool {
        self.draws(hop, r)
    }

    fn sample(
        &self,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch> {
        TimeSampler::sample(self, request, workspace, seeds)
    }

    fn over_rows(&self, rows: Arc<dyn TimeSource>) -> Option<Box<dyn TimedSampler>> {
        Some(Box::new(OverRows { sampler: self.clone(), rows }))
    }
}

/// Draws by [`TimeDraw`] from rows wherever they are.
struct OverRows {
    sampler: TimeSampler,
    rows: Arc<dyn TimeSource>,
}

impl TimedSampler for OverRows {
    fn num_hops(&self) -> usize {
        self.sampler.num_hops()
    }

    fn is_random(&self) -> bool {
        self.sampler.is_random()
    }

    fn is_per_node(&self) -> bool {
        true
    }

    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
        self.sampler.follows(schema, hop, r)
    }

    fn sample(
        &self,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch> {
        self.sampler.sample_from(&*self.rows, request, workspace, seeds)
    }
}
