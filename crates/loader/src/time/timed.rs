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
