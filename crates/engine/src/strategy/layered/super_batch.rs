//! Construction of super-batches: draws them, selects the hot nodes, and makes their rows.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graphmill_core::NodeId;
use graphmill_loader::Workspace;
use rayon::ThreadPool;

use super::{HotGradient, HotSplit, LayeredOptions, REQUESTS};
use crate::{
    Error, Result,
    config::{Devices, Switch},
    cores,
    hotness::scores::counted,
    learner::{Learner, StepContext},
    reuse::{
        self, Embeddings, History, HotQueue, Lookahead, Ranking, ReusePlan, ReuseTotals, RowExchange,
        RowMaker, RowShape, RowVersion, SuperBatchSpan, basis,
    },
    stage::Loader,
    strategy::{
        interface::{Epoch, StrategyContext},
        worker::attempt,
    },
    timeline::{Stage, Timeline},
};

/// Largest number of nodes from which the basis is computed.
const BASIS_NODES: usize = 1 << 12;

/// Super-batch that is ready for training.
pub(super) struct SuperBatch {
    pub(super) span: SuperBatchSpan,
    pub(super) ahead: Arc<Lookahead>,
    pub(super) rows: Arc<Embeddings>,
    /// Edges drawn to make the rows.
    pub(super) edges: u64,
}

impl SuperBatch {
    /// Totals of its batches before `end`.
    pub(super) fn totals(&self, end: u64) -> ReuseTotals {
        let batches = self.span.batches.start..end;
        let (requested, reused) = self.ahead.counts(batches.clone());
        let made = self.ahead.slots.nodes().len() as u64;
        let (count, edges) = (batches.end - batches.start, self.edges);
        ReuseTotals { super_batches: 1, batches: count, requested, reused, made, edges, waited: 0.0 }
    }
}

/// Inputs of a super-batch.
#[derive(Clone, Copy)]
pub(super) struct SuperBatchContext<'j, 'a> {
    pub(super) loader: &'j Loader<'a>,
    pub(super) order: &'j [NodeId],
    pub(super) epoch: u64,
    pub(super) history: &'j History,
    pub(super) timeline: &'j Timeline,
    /// Largest age of its rows, in updates.
    pub(super) bound: u64,
    /// The other ranks, if there are several.
    pub(super) exchange: Option<&'j dyn RowExchange>,
}

impl<'j, 'a> SuperBatchContext<'j, 'a> {
    /// Inputs from this epoch, with the largest age of rows, in updates, and the other ranks.
    pub(super) fn of<'e: 'j>(
        epoch: &Epoch<'e, 'a>,
        history: &'j History,
        bound: u64,
        exchange: Option<&'j dyn RowExchange>,
    ) -> Self {
        let Epoch { number, order, loader, timeline, .. } = *epoch;
        Self { loader, order, epoch: number, history, timeline, bound, exchange }
    }
}

/// Draws super-batches, selects the hot nodes and makes their rows.
pub(super) struct SuperBatchMaker {
    pub(super) plan: ReusePlan,
    row_maker: RowMaker,
    queue: HotQueue,
    spaces: Vec<Workspace>,
    /// Its own threads, if it works while the model trains.
    pub(super) pool: Option<Arc<ThreadPool>>,
    /// Share of the hot nodes whose rows are made; the others are left to the feature caches.
    pub(super) split: f64,
    /// Number of rows for which devices have reserved memory.
    pub(super) reserved: usize,
    /// Memory of completed super-batches.
    spare: Vec<(Lookahead, Embeddings)>,
}

impl SuperBatchMaker {
    /// Maker with the options of a run, whose updates have `round` batches each.
    ///
    /// # Errors
    /// The model does not support the options, the hotness cannot be computed, or the system
    /// refuses the threads.
    // long: each option becomes one field, in the order in which they depend on each other
    pub(super) fn new(
        context: &StrategyContext,
        loader: &Loader,
        learner: &Learner,
        round: u64,
    ) -> Result<Self> {
        let config = context.config;
        let StepContext { orders, .. } = &learner.context;
        let nodes = loader.graph.num_nodes();
        let dims = learner.model.aggregate_dims(orders);
        let options = config.own.get::<LayeredOptions>();
        let gradient = options.hot_gradient;
        if matches!(gradient, HotGradient::Projected | HotGradient::Kept) && dims.is_empty() {
            return Err(Error::usage(format!(
                "--hot-gradient {gradient}: the bottom layer of this {} has no aggregated rows through \
                 which gradients could flow; use --hot-gradient none",
                config.model
            )));
        }
        // the default rank is only an upper limit
        if dims.is_empty() && ![0, LayeredOptions::default().hot_rank].contains(&options.hot_rank) {
            return Err(Error::usage(format!(
                "--hot-rank {}: the bottom layer of this {} has no aggregated rows that could span \
                 directions; leave it out",
                options.hot_rank, config.model
            )));
        }
        let kept = if gradient == HotGradient::Kept { dims.clone() } else { Vec::new() };
        let rank = if dims.is_empty() || gradient == HotGradient::Kept { 0 } else { options.hot_rank };
        let width = learner.model.layer_out_dim(0);
        let position = learner.history.position();
        let max_hot = match position.length {
            0 => {
                let each = 4 * (width + rank + kept.iter().sum::<usize>());
                // devices hold the rows, too
                let budget = Some(config.device_budget.0).filter(|&budget| budget > 0);
                reuse::max_hot(options.hot_ratio, nodes, each, budget)
            }
            // a resumed run uses the limit of its start, whatever memory is free now
            _ => position.max_hot,
        };
        let max_hot = match context.exchange {
            Some(exchange) => exchange.least(max_hot as u64)? as usize,
            None => max_hot,
        };
        let ranking = ranking(context, &options.hot_metric)?;
        let threads = rayon::current_num_threads();
        let ahead = options.hot_prefetch == Switch::On;
        let pool = ahead.then(|| cores::pool("aside", threads, &[]).map(Arc::new)).transpose()?;
        // without sharing, devices still save the bottom layer
        let min_batches = if options.super_batch == 1 && *config.devices != Devices::Cpu { 1 } else { 2 };
        let mut row_maker = RowMaker::new(&learner.model, nodes);
        if rank > 0 && learner.history.basis().is_empty() {
            let mut make = || {
                let inputs = attempt(Stage::Embed, 0, || {
                    let some = sample_of(loader);
                    row_maker.inputs(loader, &learner.context, &some, &dims)
                })?;
                Ok(basis(learner.context.backend, &inputs, rank, config.seed))
            };
            let basis = match context.exchange {
                Some(exchange) => exchange.matrices(&dims, make)?,
                None => make()?,
            };
            learner.history.set_basis(basis);
        }
        let basis = learner.history.basis();
        let learns = !basis.is_empty() && gradient != HotGradient::None;
        let plan = ReusePlan {
            length: 1,
            ranking: Arc::new(ranking),
            min_batches,
            max_hot,
            restrict: !learns && kept.is_empty() && learner.model.may_restrict(orders, 1),
            // ahead, the rows of the next super-batch are made while those of this one are read
            tables: if ahead { 2 } else { 1 },
            shape: RowShape { width, kept, basis, learns },
            orders: orders.clone(),
        };
        let mut maker = Self {
            plan,
            row_maker,
            queue: HotQueue::default(),
            spaces: (0..threads).map(|_| Workspace::new(nodes)).collect(),
            pool,
            split: match options.hot_split {
                HotSplit::Share(share) => share,
                HotSplit::Auto | HotSplit::Timed => 1.0,
            },
            reserved: usize::MAX,
            spare: Vec::new(),
        };
        let length = match (options.super_batch, context.exchange) {
            (0, None) => maker.length(loader),
            // every rank counts its own shares
            (0, Some(exchange)) => exchange.least(maker.length(loader))?,
            (given, _) => given as u64,
        };
        maker.plan.length = length.max(1).next_multiple_of(round);
        Ok(maker)
    }

    /// Batches per super-batch if no number is given ([`reuse::shortest_length`]).
    fn length(&mut self, loader: &Loader) -> u64 {
        let mut order = Vec::new();
        loader.order(0, &mut order);
        let mut ahead = Lookahead::default();
        let has_basis = !self.plan.shape.basis.is_empty();
        reuse::shortest_length(has_basis, loader.num_batches(), |length| {
            let to = (&mut ahead, &mut self.queue);
            self.plan.draw(loader, &order, (0, 0..length), to, &mut self.spaces);
            self.queue.saved()
        })
    }

    /// Plan of the next super-batches: that of the run, for the share of the nodes whose rows are
    /// made.
    pub(super) fn next_plan(&self) -> ReusePlan {
        self.plan.with_max_hot((self.split * self.plan.max_hot as f64).round() as usize)
    }

    /// [`SuperBatchMaker::next_plan`] within the memory that devices have reserved.
    pub(super) fn reserved_plan(&self) -> ReusePlan {
        let plan = self.next_plan();
        plan.with_max_hot(plan.max_hot.min(self.reserved))
    }

    /// Draws these batches and makes the hot rows, slice by slice, each from its parameter version
    /// in `made`, as soon as that version is published. Returns `None` if training ends before
    /// that.
    ///
    /// # Errors
    /// A hop cannot be drawn, or features cannot be read.
    pub(super) fn make(
        &mut self,
        context: SuperBatchContext,
        steps: &StepContext,
        batches: Range<u64>,
        made: &[u64],
        deliver: &dyn Fn(u64),
    ) -> Result<Option<SuperBatch>> {
        let SuperBatchContext { loader, order, epoch, history, timeline, bound, exchange } = context;
        let first = batches.start;
        let track = timeline.track(if self.pool.is_some() { "aside" } else { "main" });
        let (mut ahead, mut rows) = self.spare.pop().unwrap_or_default();
        let clock = Instant::now();
        let plan = self.reserved_plan();
        attempt(Stage::Embed, first, || {
            let to = (&mut ahead, &mut self.queue);
            plan.draw_over(exchange, loader, order, (epoch, batches.clone()), to, &mut self.spaces)?;
            ahead.count_reused();
            Ok(())
        })?;
        let hot = self.queue.nodes().len();
        timeline.done(track, Stage::Embed, first, clock);
        plan.shape.resize(&mut rows, hot, bound);
        self.row_maker.edges = 0;
        for (i, &version) in made.iter().enumerate() {
            let Some(snapshot) = history.wait(version) else { return Ok(None) };
            // the coldest slice first
            let slice = hot - hot * (i + 1) / made.len()..hot - hot * i / made.len();
            let clock = Instant::now();
            attempt(Stage::Embed, first, || {
                let rank = exchange.map_or(0, RowExchange::rank);
                let from = RowVersion { batch: (epoch, first), version, snapshot: &snapshot, rank };
                let (maker, nodes) = (&mut self.row_maker, ahead.slots.nodes());
                if let Some(exchange) = exchange {
                    let hot = (nodes, slice.clone());
                    return exchange.make(maker, (loader, steps), from, hot, &plan.shape, &mut rows);
                }
                maker.make(loader, steps, from, &nodes[slice.clone()], slice.start, &mut rows)
            })?;
            timeline.done(track, Stage::Embed, first, clock);
            deliver(slice.len() as u64 * plan.shape.bytes());
        }
        let span = SuperBatchSpan { epoch, batches, start: 0, made: made.to_vec() };
        let mut edges = self.row_maker.edges;
        if let Some(exchange) = exchange {
            edges = attempt(Stage::Embed, first, || exchange.count(&mut ahead, edges))?;
        }
        Ok(Some(SuperBatch { span, ahead: Arc::new(ahead), rows: Arc::new(rows), edges }))
    }

    /// Recycles the memory of a completed super-batch unless another owner holds it.
    pub(super) fn recycle(&mut self, done: SuperBatch) {
        if let (Ok(ahead), Ok(rows)) = (Arc::try_unwrap(done.ahead), Arc::try_unwrap(done.rows)) {
            self.spare.push((ahead, rows));
        }
    }
}

/// Order of hot nodes by a metric. Ranks add up the scores of their shares of the batches, so all
/// have the same order.
///
/// # Errors
/// The scores cannot be computed, or a rank did not take part.
fn ranking(context: &StrategyContext, metric: &str) -> Result<Ranking> {
    if metric == REQUESTS {
        return Ok(Ranking::Requests);
    }
    let StrategyContext { config, data, sampler, order, progress, .. } = *context;
    let (mut scores, _) = counted(metric, config, data, sampler, order, (None, context.own, None), progress)
        .map_err(|e| Error::of_option("--hot-metric", metric, e))?;
    if let Some(exchange) = context.exchange {
        exchange.sum(&mut scores)?;
    }
    Ranking::by(&scores)
}

/// Sample of the nodes whose rows may be reused, from the first batch of the first epoch.
fn sample_of(loader: &Loader) -> Vec<NodeId> {
    let (mut order, mut ahead) = (Vec::new(), Lookahead::default());
    loader.first(0, 1, &mut order);
    ahead.draw(loader, &order, 0, 0..1, false, &mut [Workspace::new(loader.graph.num_nodes())]);
    let some = Mutex::new(Vec::new());
    ahead.candidates(&|nodes| {
        let every = nodes.len().div_ceil(BASIS_NODES).max(1);
        some.lock().unwrap_or_else(PoisonError::into_inner).extend(nodes.iter().step_by(every));
    });
    some.into_inner().unwrap_or_else(PoisonError::into_inner)
}
