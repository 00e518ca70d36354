//! Reuse of bottom-layer rows of any age: the baseline for bounded staleness.
//!
//! # Algorithm
//!
//! ```text
//!   all   b0: pull pushed rows, compute the others, train, push rows of own nodes | b1: pull, compute, train, push | ..
//! ```
//!
//! A batch computes the rows of its own nodes, which are the destinations of the layer above, and
//! pushes them to a table: the rows of its forward pass, from the parameters before its update. It
//! pulls the rows of their neighbours, as they were pushed last. The age of rows is not bounded. A
//! checkpoint holds the table ([`PushedRows`](crate::reuse::PushedRows)).
//!
//! Over ranks, each rank pushes the rows of its shares of the batches, and all ranks have the same
//! table. A node that another share of the batch computes is pulled as it was pushed last.
//!
//! # Source
//!
//! Fey et al., *GNNAutoScale: Scalable and Expressive Graph Neural Networks via Historical
//! Embeddings*, ICML 2021, section 2.
//!
//! # Cost
//!
//! A copy of the pushed rows. Over ranks each batch sends them to every rank. A batch is drawn
//! after the batch before it was trained on, on one workspace.
//!
//! # Memory
//!
//! The table holds a row per pushed node, of all ranks; each node of the graph has a slot and a
//! version. A checkpoint has the rows of the table, and 24 bytes per row.
//!
//! # Deviations
//!
//! Only the bottom layer reuses rows, and rows that were never pushed are computed instead of zero.
//! Rows are stored before norm, activation and dropout.

use std::{sync::Arc, time::Instant};

use graphmill_core::NodeId;
use graphmill_loader::{MiniBatch, Workspace};

use super::{
    interface::{CompletedBatch, Epoch, Flow, Strategy, StrategyContext},
    worker::attempt,
};
use crate::{
    Error, Result,
    learner::Learner,
    record::{ReuseRecord, Stages},
    reuse::{GatheredRows, History, Lookahead, Reuse, ReuseTotals, RowExchange},
    stage::Loader,
    timeline::Stage,
};

/// Strategy that reuses bottom-layer rows of any age.
pub struct Historical<'a> {
    /// The other ranks, if there are several.
    exchange: Option<&'a dyn RowExchange>,
    num_nodes: usize,
    space: [Workspace; 1],
    /// Memory of the last batch.
    memory: MiniBatch,
    ahead: Arc<Lookahead>,
    /// Updates of the run up to the end of the epoch: no row can be older.
    bound: u64,
    /// Totals of the epoch, which a checkpoint holds.
    history: Arc<History>,
    /// Number of rows of the table.
    held: usize,
}

/// A batch whose upper blocks are drawn.
struct Planned {
    /// Destinations of the layer above, whose rows the batch pushes.
    own: Vec<NodeId>,
    /// Age of the oldest row that a rank pulls.
    age: u64,
    /// Rows that the batch requests and pulls.
    totals: ReuseTotals,
}

impl<'a> Historical<'a> {
    /// Strategy before the first batch.
    ///
    /// # Errors
    /// The sampler draws all blocks at once, or the model has a single layer.
    pub fn new(context: StrategyContext<'a>) -> Result<Self> {
        if context.sampler.split().is_none() || context.sampler.properties().num_layers < 2 {
            return Err(Error::usage(
                "--strategy historical: it needs a layer above the bottom one and a sampler that draws the \
                 bottom block separately; use --layers 2 or more, and a sampler such as neighbor",
            ));
        }
        let num_nodes = context.data.num_nodes();
        Ok(Self {
            exchange: context.exchange,
            num_nodes,
            space: [Workspace::new(num_nodes)],
            memory: MiniBatch::default(),
            ahead: Arc::default(),
            bound: 0,
            history: Arc::default(),
            held: 0,
        })
    }

    /// Draws a batch without its bottom block, and selects all pushed rows for it to pull.
    ///
    /// # Errors
    /// A rank did not take part.
    fn plan(&mut self, epoch: &Epoch, number: u64) -> Result<Planned> {
        let Learner { pushed, step, .. } = &*epoch.learner;
        let ahead = Arc::get_mut(&mut self.ahead).expect("no stage holds a completed batch");
        let batches = number..number + 1;
        ahead.draw(epoch.loader, epoch.order, epoch.number, batches, false, &mut self.space);
        let (mut own, mut oldest) = (Vec::new(), *step);
        let [mut asked, mut reused] = [0; 2];
        ahead.nodes(&mut |of_batch, others| {
            own.extend_from_slice(of_batch);
            for version in others.iter().filter_map(|&v| pushed.version(v)) {
                oldest = oldest.min(version);
                reused += 1;
            }
            asked += others.len() as u64;
        });
        ahead.slots.set(self.num_nodes, pushed.nodes().iter().copied());
        let mut age = step - oldest;
        if let Some(exchange) = self.exchange {
            let mut sums = [asked as f64, reused as f64];
            exchange.sum(&mut sums)?;
            [asked, reused] = sums.map(|sum| sum as u64);
            age = exchange.greatest(age as f64)? as u64;
        }
        let totals = ReuseTotals { requested: asked, reused, ..ReuseTotals::default() };
        Ok(Planned { own, age, totals })
    }

    /// Writes the rows that the last forward pass computed for these nodes, after `step` updates,
    /// and those of the other ranks, to the table. Returns their number.
    ///
    /// # Errors
    /// A rank did not take part.
    fn push(&self, learner: &mut Learner, own: Vec<NodeId>, step: u64) -> Result<u64> {
        let width = learner.model.layer_out_dim(0);
        // a rank that owns no seed of the batch computed nothing
        let rows = match learner.context.bottom_rows() {
            Some(rows) if !own.is_empty() => rows.rows(0..own.len()).host().to_vec(),
            _ => Vec::new(),
        };
        let own = GatheredRows { nodes: own, rows, edges: 0 };
        let pushed = match self.exchange {
            None => own,
            Some(exchange) => exchange.gather_rows(&own, width)?,
        };
        learner.pushed.write(&pushed, width, self.num_nodes, step);
        Ok(pushed.nodes.len() as u64)
    }

    /// Runs the stages of a batch that is drawn ahead, and pushes its rows before the update is
    /// reported, so that a checkpoint holds them.
    fn batch(&mut self, epoch: &mut Epoch, number: u64, planned: Planned) -> Result<Flow> {
        let Planned { own, age, totals } = planned;
        let Epoch { number: of, order, loader, learner, lr, after, timeline, .. } = epoch;
        let (track, step) = (timeline.track("main"), learner.step);
        let reading = Loader { ahead: Some(self.ahead.clone()), ..loader.clone() };
        let memory = std::mem::take(&mut self.memory);
        let [space] = &mut self.space;
        space.set_parallel(true);
        let mut spent = Stages::default();
        let clock = Instant::now();
        let draw = || reading.draw(order, *of, number, space, memory);
        let drawn = attempt(Stage::Sample, number, draw)?;
        spent.sample = timeline.done(track, Stage::Sample, number, clock);
        let clock = Instant::now();
        let batch = attempt(Stage::Extract, number, || reading.extract(drawn))?;
        spent.extract = timeline.done(track, Stage::Extract, number, clock);
        drop(reading);
        let (clock, rate) = (Instant::now(), lr(number));
        learner.context.reuse =
            Some(Reuse { ahead: self.ahead.clone(), rows: learner.pushed.rows().clone() });
        let trained = attempt(Stage::Train, number, || learner.train(&batch, rate));
        learner.context.reuse = None;
        let outcome = trained?;
        learner.staleness = learner.staleness.max(age);
        let made = self.push(learner, own, step)?;
        self.history.add(ReuseTotals { made, ..totals });
        spent.train = timeline.done(track, Stage::Train, number, clock);
        let flow = after(learner, &[CompletedBatch::of(batch.batch(), outcome, spent)])?;
        self.memory = batch.into();
        Ok(flow)
    }
}

impl Strategy for Historical<'_> {
    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        self.history = epoch.learner.history.clone();
        if epoch.from == 0 {
            self.history.begin_epoch();
        }
        self.bound = (epoch.number + 1) * epoch.loader.num_batches();
        epoch.learner.context.keep_bottom_rows();
        for number in epoch.from..epoch.to {
            let planned = self.plan(&epoch, number)?;
            let flow = self.batch(&mut epoch, number, planned)?;
            self.held = epoch.learner.pushed.nodes().len();
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }

    fn reuse(&mut self) -> Option<ReuseRecord> {
        let ReuseTotals { requested, reused, made, .. } = self.history.position().totals;
        Some(ReuseRecord {
            super_batch: 1.0,
            hot_nodes: self.held as f64,
            asked_rows: requested,
            reused_rows: reused,
            made_rows: made,
            split: 1.0,
            ..ReuseRecord::default()
        })
    }

    fn staleness_bound(&self) -> u64 {
        self.bound
    }
}
