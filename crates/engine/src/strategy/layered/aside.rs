//! What makes super-batches: draws them, picks the hot nodes, and makes their rows.

use std::{
    ops::{AddAssign, Range},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graphmill_core::{Matrix, NodeId, memory};
use graphmill_loader::Workspace;
use rayon::ThreadPool;

use super::{HotGradient, LayeredOptions, options::ASKED};
use crate::{
    Error, Result,
    config::{Devices, Switch},
    cores,
    hotness::scores::scores_of,
    learner::{Learner, StepContext},
    reuse::{Ahead, Embeddings, History, HotQueue, Maker, Ranking, RowVersion, Span, basis},
    stage::Loader,
    strategy::{
        interface::{Epoch, Setting},
        worker::attempt,
    },
    timeline::{Stage, Timeline},
};

/// Super-batches that are tried where no length is given: longer ones cost more than a point of
/// accuracy on a graph where half of the rows are reused in the first few hundred updates
/// (book/src/results/strategies.md, "W2").
const LENGTHS: [u64; 3] = [2, 4, 8];
/// The longest of them where rows do not follow the parameters in any direction: longer ones cost
/// attention more than a point, too.
const LONGEST: u64 = 4;
/// The shortest is taken that saves this part of what the best does.
const ENOUGH: f64 = 0.85;
/// The part of the free memory, and of a device's, that rows may take where no ratio is given.
const MEMORY_SHARE: f64 = 0.25;

/// Nodes from which directions are found, at most.
const SAMPLE: usize = 1 << 12;

/// A super-batch, ready to be trained on.
pub(super) struct Super {
    pub(super) span: Span,
    pub(super) ahead: Arc<Ahead>,
    pub(super) rows: Arc<Embeddings>,
    pub(super) counts: Counts,
}

/// What a super-batch saves.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Rows that its batches ask for and might reuse.
    pub(super) asked: u64,
    /// Those of them that are reused.
    pub(super) reused: u64,
    /// Rows made for that.
    pub(super) made: u64,
    /// Edges that were drawn to make them.
    pub(super) edges: u64,
}

/// What a super-batch is made of.
#[derive(Clone, Copy)]
pub(super) struct SuperBatchContext<'j, 'a> {
    pub(super) loader: &'j Loader<'a>,
    pub(super) order: &'j [NodeId],
    pub(super) epoch: u64,
    pub(super) history: &'j History,
    pub(super) timeline: &'j Timeline,
    /// Updates that its rows may be old.
    pub(super) bound: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.asked += other.asked;
        self.reused += other.reused;
        self.made += other.made;
        self.edges += other.edges;
    }
}

impl<'j, 'a> SuperBatchContext<'j, 'a> {
    /// Of this epoch, of rows that may be so old.
    pub(super) fn of<'e: 'j>(epoch: &Epoch<'e, 'a>, history: &'j History, bound: u64) -> Self {
        let Epoch { number, order, loader, timeline, .. } = *epoch;
        Self { loader, order, epoch: number, history, timeline, bound }
    }
}

/// Draws super-batches, picks the hot nodes and makes their rows.
pub(super) struct Aside {
    maker: Maker,
    queue: HotQueue,
    ranking: Ranking,
    spaces: Vec<Workspace>,
    /// Its threads, where it works while others train.
    pub(super) pool: Option<Arc<ThreadPool>>,
    /// Hot nodes at most.
    most: usize,
    /// Batches that must ask for a node's row.
    least: u16,
    /// Width of a row, and of what it is kept with.
    widths: (usize, Vec<usize>),
    /// The directions in which rows follow the parameters, and whether gradients go that way.
    basis: Arc<Vec<Matrix>>,
    learns: bool,
    /// Whether the reused rows' gradients are of no use.
    restrict: bool,
    /// The part of the hot nodes whose rows are made; the others are left to the caches of
    /// features.
    pub(super) split: f64,
    /// Memory of super-batches that are done.
    spare: Vec<(Ahead, Embeddings)>,
}

impl Aside {
    /// As the options say.
    ///
    /// # Errors
    /// Options that this model cannot work with, a hotness that cannot be computed, or threads that
    /// cannot be had.
    pub(super) fn new(with: &Setting, loader: &Loader, learner: &Learner) -> Result<Self> {
        let config = with.config;
        let StepContext { orders, .. } = &learner.passes;
        let nodes = loader.graph.num_nodes();
        let dims = learner.model.aggregate_dims(orders);
        let options = config.own.get::<LayeredOptions>();
        let gradient = options.hot_gradient;
        if matches!(gradient, HotGradient::Projected | HotGradient::Kept) && dims.is_empty() {
            return Err(Error::usage(format!(
                "--hot-gradient {gradient}: the bottom layer of this {} has no aggregated rows for gradients to go through; use --hot-gradient \
                 none",
                config.model
            )));
        }
        // the default is only how many directions there are at most
        if dims.is_empty() && ![0, LayeredOptions::default().hot_rank].contains(&options.hot_rank) {
            return Err(Error::usage(format!(
                "--hot-rank {}: the bottom layer of this {} has no aggregated rows to find directions in; leave it out",
                options.hot_rank, config.model
            )));
        }
        let kept = if gradient == HotGradient::Kept { dims.clone() } else { Vec::new() };
        let rank = if dims.is_empty() || gradient == HotGradient::Kept { 0 } else { options.hot_rank };
        let width = learner.model.layer_out_dim(0);
        let place = learner.history.place();
        let most = match options.hot_ratio.0 {
            // as much as there was memory for when the run began
            _ if place.length > 0 => place.most,
            Some(ratio) => (ratio * nodes as f64).round() as usize,
            None => {
                let limit = |bytes: u64| MEMORY_SHARE * bytes as f64;
                let room = memory::available().map_or(f64::INFINITY, limit);
                // devices hold them too
                let of_device = Some(config.device_budget.0).filter(|&budget| budget > 0);
                let room = room.min(of_device.map_or(f64::INFINITY, limit));
                let each = 4 * (width + rank + kept.iter().sum::<usize>());
                nodes.min((room / (2 * each) as f64) as usize)
            }
        };
        let ranking = match options.hot_by.as_str() {
            ASKED => Ranking::Asked,
            policy => {
                let scores = scores_of(policy, config, with.data, with.sampler, with.order)
                    .map_err(|e| Error::usage(format!("--hot-by {policy}: {e}")))?;
                Ranking::by(&scores)?
            }
        };
        let threads = rayon::current_num_threads();
        let ahead = options.hot_ahead == Switch::On;
        let pool = ahead.then(|| cores::pool("aside", threads, &[]).map(Arc::new)).transpose()?;
        // where nothing is shared devices are still spared the bottom layer
        let least = if options.super_batch == 1 && *config.devices != Devices::Cpu { 1 } else { 2 };
        let mut maker = Maker::new(&learner.model, nodes);
        if rank > 0 && learner.history.basis().is_empty() {
            let inputs = attempt(Stage::Embed, 0, || {
                let some = sample_of(loader);
                maker.inputs(loader, &learner.passes, &some, &dims)
            })?;
            learner.history.set_basis(basis(learner.passes.backend, &inputs, rank, config.seed));
        }
        let basis = learner.history.basis();
        let learns = !basis.is_empty() && gradient != HotGradient::None;
        Ok(Self {
            maker,
            basis,
            learns,
            queue: HotQueue::default(),
            ranking,
            spaces: (0..threads).map(|_| Workspace::new(nodes)).collect(),
            pool,
            most,
            least,
            restrict: !learns && kept.is_empty() && learner.model.may_restrict(orders, 1),
            widths: (width, kept),
            split: options.hot_split.0.unwrap_or(1.0),
            spare: Vec::new(),
        })
    }

    /// Bytes of a row, and of what it is kept with.
    pub(super) fn row_bytes(&self) -> u64 {
        let rank = self.basis.first().map_or(0, Matrix::num_rows);
        4 * (self.widths.0 + rank + self.widths.1.iter().sum::<usize>()) as u64
    }

    /// Hot nodes at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// How many batches a super-batch has, where no number is given: as few as save most of what
    /// can be saved. A function of the first epoch's batches, not of any time.
    pub(super) fn length(&mut self, loader: &Loader) -> u64 {
        let mut order = Vec::new();
        loader.order(0, &mut order);
        let mut ahead = Ahead::default();
        let mut saved = Vec::new();
        let longest = if self.basis.is_empty() { LONGEST } else { u64::MAX };
        for length in LENGTHS.map(|length| length.min(longest).min(loader.num_batches())) {
            ahead.draw(loader, &order, 0, 0..length, false, &mut self.spaces);
            self.queue.count(loader.graph.num_nodes(), &mut ahead);
            self.queue.pick(&self.ranking, self.least, self.most);
            saved.push((length, self.queue.saved()));
        }
        let best = saved.iter().map(|(_, saved)| *saved).fold(0.0, f64::max);
        saved.iter().find(|(_, saved)| *saved >= ENOUGH * best).map_or(1, |(length, _)| *length)
    }

    /// Draws these batches and makes the hot rows, slice by slice, each from the version of the
    /// parameters that `made` says, as soon as there is one. `None` where training ends before
    /// that.
    ///
    /// # Errors
    /// A hop cannot be drawn, or features cannot be read.
    pub(super) fn make(
        &mut self,
        job: SuperBatchContext,
        passes: &StepContext,
        batches: Range<u64>,
        made: &[u64],
        deliver: &dyn Fn(u64),
    ) -> Result<Option<Super>> {
        let SuperBatchContext { loader, order, epoch, history, timeline, bound } = job;
        let first = batches.start;
        let track = timeline.track(if self.pool.is_some() { "aside" } else { "main" });
        let (mut ahead, mut rows) = self.spare.pop().unwrap_or_default();
        let clock = Instant::now();
        let nodes = loader.graph.num_nodes();
        attempt(Stage::Embed, first, || {
            ahead.draw(loader, order, epoch, batches.clone(), self.restrict, &mut self.spaces);
            self.queue.count(nodes, &mut ahead);
            let most = (self.split * self.most as f64).round() as usize;
            self.queue.pick(&self.ranking, self.least, most);
            ahead.slots.set(nodes, self.queue.nodes().iter().copied());
            Ok(())
        })?;
        let hot = self.queue.nodes().len();
        timeline.done(track, Stage::Embed, first, clock);
        rows.rows.resize(hot, self.widths.0);
        rows.kept.resize_with(self.widths.1.len(), Default::default);
        rows.kept.iter_mut().zip(&self.widths.1).for_each(|(kept, &width)| kept.resize(hot, width));
        rows.coordinates.resize(hot, self.basis.first().map_or(0, Matrix::num_rows));
        rows.basis = self.basis.clone();
        rows.learns = self.learns;
        rows.slices.clear();
        rows.bound = bound;
        self.maker.edges = 0;
        for (i, &version) in made.iter().enumerate() {
            let Some(snapshot) = history.wait(version) else { return Ok(None) };
            // the coldest first
            let slice = hot - hot * (i + 1) / made.len()..hot - hot * i / made.len();
            let clock = Instant::now();
            attempt(Stage::Embed, first, || {
                let from = RowVersion { batch: (epoch, first), version, snapshot: &snapshot };
                let nodes = &ahead.slots.nodes()[slice.clone()];
                self.maker.make(loader, passes, from, nodes, slice.start, &mut rows)
            })?;
            timeline.done(track, Stage::Embed, first, clock);
            deliver(slice.len() as u64 * self.row_bytes());
        }
        let counts = Counts {
            asked: self.queue.asked,
            reused: self.queue.reused,
            made: hot as u64,
            edges: self.maker.edges,
        };
        let span = Span { epoch, batches, start: 0, made: made.to_vec() };
        Ok(Some(Super { span, ahead: Arc::new(ahead), rows: Arc::new(rows), counts }))
    }

    /// Takes back the memory of a super-batch that is done, if nobody else has it.
    pub(super) fn recycle(&mut self, done: Super) {
        if let (Ok(ahead), Ok(rows)) = (Arc::try_unwrap(done.ahead), Arc::try_unwrap(done.rows)) {
            self.spare.push((ahead, rows));
        }
    }
}

/// Some nodes whose rows may be reused: of the first batch of the first epoch.
fn sample_of(loader: &Loader) -> Vec<NodeId> {
    let (mut order, mut ahead) = (Vec::new(), Ahead::default());
    loader.order(0, &mut order);
    ahead.draw(loader, &order, 0, 0..1, false, &mut [Workspace::new(loader.graph.num_nodes())]);
    let some = Mutex::new(Vec::new());
    ahead.candidates(&|nodes| {
        let every = nodes.len().div_ceil(SAMPLE).max(1);
        some.lock().unwrap_or_else(PoisonError::into_inner).extend(nodes.iter().step_by(every));
    });
    some.into_inner().unwrap_or_else(PoisonError::into_inner)
}
