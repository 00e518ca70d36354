//! Rows of the first layer of the hottest nodes of all types, computed once for all batches of a
//! super-batch: [`crate::strategy::layered`] on several types, in one process.
//!
//! # Algorithm
//!
//! ```text
//!   draw s0 | rows s0 | train on s0: b0 b1 b2 b3 | draw s1 | rows s1 | train on s1: ..   staleness < n
//! ```
//!
//! The batches of a super-batch are drawn ahead without their bottom blocks, so the requests for
//! the rows of nodes of all types are counted together. The rows of the hottest nodes are computed
//! by the current model, from the edges that the sampler draws for the first batch, and these nodes
//! are left out when the bottom blocks are drawn.
//!
//! Reused rows are constants. What they were computed from, the weights of the first layer, the
//! projections of features and the learned rows of types without features, learns from the rows
//! that batches compute, and a learned row changes in a batch only if a computed row reads it.
//!
//! # Source
//!
//! Ai et al., *NeutronOrch: Rethinking Sample-based GNN Training under CPU-GPU Heterogeneous
//! Environments*, VLDB 2024, section 4. The paper's graphs have one type.
//!
//! # Cost
//!
//! One row of the first layer per hot node and super-batch, instead of one per batch that requests
//! it.
//!
//! # Memory
//!
//! A row for each hot node; the upper blocks of a super-batch; the dense parameters of the first
//! layer after each of its updates; a workspace per thread.
//!
//! # Deviations
//!
//! Those of one type. Rows have no directions in which they follow the parameters, so the default
//! super-batch has at most 4 batches.

mod lookahead;
mod rows;
mod state;

use std::{ops::Range, sync::Arc, time::Instant};

use graphmill_core::progress::Progress;
use graphmill_loader::{order::SeedOrder, typed::TypedWorkspace};

pub(super) use lookahead::TypedLookahead;
use rows::TypedRowMaker;
use state::SavedRows;
pub(super) use state::{ReuseState, TypedSuperBatch};

use super::{
    batches::RunBatches,
    learner::TypedLearner,
    stages::EpochBatches,
    strategy::Strategy,
    turns,
    visits::{self, TypedVisits},
};
use crate::{
    Error, Result, TrainConfig,
    batchwise::Session,
    options::typed_reuse,
    record::{PresamplingCost, ReuseRecord},
    reuse::{self, Embeddings, History, HotQueue, Ranking, SuperBatchSpan},
    strategy::{Chosen, Flow, HotSplit, LayeredOptions, REQUESTS, attempt},
    timeline::Stage,
};

/// Least number of batches of a super-batch that request a hot node's row.
const MIN_BATCHES: u16 = 2;

/// Returns true if the configuration reuses rows.
fn is_chosen(config: &TrainConfig) -> bool {
    Chosen::of(config).is_some_and(|chosen| chosen.reuses_rows())
}

/// Refuses a reuse with which a run on several types cannot train.
///
/// # Errors
/// The reason and the fix.
pub(super) fn check(config: &TrainConfig) -> Result<()> {
    if !is_chosen(config) {
        return Ok(());
    }
    typed_reuse(config).map_err(|why| Error::usage(format!("--reuse {}: {why}", config.reuse)))
}

/// Refuses any reuse in a run that computes all rows of a batch, and says `why`.
///
/// # Errors
/// The configuration reuses rows.
pub(super) fn refuse(config: &TrainConfig, why: &str) -> Result<()> {
    match is_chosen(config) {
        true => Err(Error::usage(format!("--reuse {}: {why}; use --reuse none", config.reuse))),
        false => Ok(()),
    }
}

/// Reuse of rows by a run.
pub(super) struct TypedReuse {
    options: LayeredOptions,
    ranking: Ranking,
    /// Largest number of hot nodes; before the first epoch, that of the options.
    max_hot: usize,
    /// Share of them whose rows are made.
    split: f64,
    /// Batches per super-batch; 0 before the first epoch.
    length: u64,
    queue: HotQueue,
    spaces: Vec<TypedWorkspace>,
    maker: TypedRowMaker,
    history: Arc<History>,
    /// Rows of the interrupted super-batch of a run that resumes.
    saved: SavedRows,
    /// Memory of completed super-batches.
    spare: (TypedLookahead, Vec<Embeddings>),
    note: Option<String>,
}

impl TypedReuse {
    /// Reuse of a run with these batches, before its first epoch, if the configuration has some.
    ///
    /// # Errors
    /// The sampler draws all blocks at once, or the hotness cannot be computed.
    pub(super) fn new(
        of: &RunBatches,
        learner: &TypedLearner,
        progress: &dyn Progress,
    ) -> Result<Option<Self>> {
        let (config, schema) = (of.config, of.task.graph.schema());
        if !is_chosen(config) {
            return Ok(None);
        }
        if of.sampler.in_parts().is_none() {
            let draws = match of.task.times {
                Some(_) => "rows of the task have times, so the draws of a node differ by seed".into(),
                None => format!("--sampler {} draws all blocks of a batch at once", config.sampler),
            };
            return Err(Error::usage(format!(
                "--reuse {}: {draws}, and the bottom block of a batch that reuses rows is drawn separately; \
                 use --reuse none, or a task without times and a sampler such as neighbor",
                config.reuse
            )));
        }
        let options = config.own.get::<LayeredOptions>();
        let ranking = match &*options.hot_metric {
            REQUESTS => Ranking::Requests,
            metric => {
                let scores = visits::scores(metric, of, &TypedVisits::new(of, progress), progress);
                Ranking::by(&scores.map_err(|e| Error::of_option("--hot-metric", metric, e))?)?
            }
        };
        let space = || TypedWorkspace::new(schema);
        Ok(Some(Self {
            max_hot: reuse::max_hot(
                options.hot_ratio,
                schema.num_nodes(),
                4 * learner.model.bottom_dim(),
                None,
            ),
            split: match options.hot_split {
                HotSplit::Share(share) => share,
                HotSplit::Auto | HotSplit::Timed => 1.0,
            },
            options,
            ranking,
            length: 0,
            queue: HotQueue::default(),
            spaces: (0..rayon::current_num_threads()).map(|_| space()).collect(),
            maker: TypedRowMaker::new(space()),
            history: Arc::default(),
            saved: SavedRows::default(),
            spare: Default::default(),
            note: None,
        }))
    }

    /// Number of hot nodes whose rows are made.
    fn num_hot(&self) -> usize {
        (self.split * self.max_hot as f64).round() as usize
    }

    /// Returns true if batches can share rows.
    fn reuses(&self) -> bool {
        self.length > 1 && self.num_hot() > 0
    }

    /// Settles the length of the super-batches, and continues from a checkpoint. `order` is that of
    /// the seeds.
    ///
    /// # Errors
    /// The versions of the parameters are not those of the checkpoint's position.
    fn prepare(
        &mut self,
        session: &mut Session<TypedLearner>,
        of: &EpochBatches,
        order: &dyn SeedOrder,
    ) -> Result<()> {
        if self.length > 0 {
            return Ok(());
        }
        let position = session.reuse().clone();
        let state = &mut session.learner().reuse;
        self.history = state.history.clone();
        let is_resumed = position.length > 0;
        if is_resumed {
            // the limit of its start, whatever memory is free now
            self.max_hot = position.max_hot;
            let (saved, versions) = SavedRows::divide(std::mem::take(&mut state.saved));
            self.saved = saved;
            let lacks = |what| Error::usage(format!("--resume: {what}; train again"));
            self.history.restore(position, versions).map_err(lacks)?;
        }
        self.length = match self.options.super_batch {
            0 => self.best_length(of, order),
            given => given as u64,
        };
        if !is_resumed {
            self.history.set_start(self.length, 1, self.max_hot);
            *session.reuse() = self.history.position();
        }
        let n = self.length;
        self.note = Some(match self.reuses() {
            false => "no rows are reused: every batch computes all its rows".into(),
            true => format!(
                "super-batches of {n} batches reuse first-layer rows of hot nodes that are at most {} \
                 updates old, as constants",
                n - 1
            ),
        });
        Ok(())
    }

    /// Batches per super-batch if no number is given ([`reuse::shortest_length`]).
    fn best_length(&mut self, of: &EpochBatches, order: &dyn SeedOrder) -> u64 {
        let mut seeds = Vec::new();
        order.order(0, &mut seeds);
        let of = EpochBatches { order: &seeds, epoch: 0, ..*of };
        reuse::shortest_length(false, of.num_batches(), |length| {
            self.draw(&of, 0..length);
            self.queue.saved()
        })
    }

    /// Draws these batches, and selects their hot nodes.
    fn draw(&mut self, of: &EpochBatches, batches: Range<u64>) {
        let (limits, schema) = ((MIN_BATCHES, self.num_hot()), of.task.graph.schema());
        let (ahead, _) = &mut self.spare;
        ahead.draw(of, batches, &mut self.spaces);
        ahead.select(schema, &mut self.queue, &self.ranking, limits);
    }

    /// Draws these batches and makes the rows of their hot nodes by the current model; or takes the
    /// rows of the checkpoint, if `is_resumed`.
    ///
    /// # Errors
    /// A hop cannot be drawn, features cannot be read, or the rows of the checkpoint are others.
    fn super_batch(
        &mut self,
        of: &EpochBatches,
        learner: &TypedLearner,
        span: SuperBatchSpan,
        is_resumed: bool,
    ) -> Result<TypedSuperBatch> {
        let (clock, first) = (Instant::now(), span.batches.start);
        let track = of.timeline.track("main");
        let bound = span.batches.end - first - 1;
        let edges = attempt(Stage::Embed, first, || {
            self.draw(of, span.batches.clone());
            let (ahead, rows) = &mut self.spare;
            if !is_resumed {
                return self.maker.make(of, learner, (first, bound), ahead, rows);
            }
            rows.resize_with(ahead.slots.len(), Embeddings::default);
            let made = span.made.first().copied().unwrap_or(span.start);
            for (rows, slots) in rows.iter_mut().zip(&ahead.slots) {
                rows.fit(slots.nodes().len(), learner.model.bottom_dim(), made, bound);
            }
            let lacks = |what| Error::usage(format!("--resume: {what}; train again"));
            std::mem::take(&mut self.saved).copy_to(rows).map_err(lacks)
        })?;
        of.timeline.done(track, Stage::Embed, first, clock);
        let (ahead, rows) = std::mem::take(&mut self.spare);
        Ok(TypedSuperBatch { span, ahead, rows, edges })
    }

    /// Trains on these batches of an epoch, super-batch by super-batch. `order` is that of the
    /// seeds in all epochs, and `cost` that of the batches whose reads are counted.
    ///
    /// # Errors
    /// As [`turns::train`]; or rows cannot be made.
    pub(super) fn train(
        &mut self,
        strategy: &mut Strategy,
        session: &mut Session<TypedLearner>,
        (of, order): (EpochBatches, &dyn SeedOrder),
        (batches, cost): (Range<u64>, &PresamplingCost),
    ) -> Result<Flow> {
        self.prepare(session, &of, order)?;
        if !self.reuses() {
            return turns::train(strategy, session, &of, (batches, cost), |_, _| false);
        }
        let (history, to, mut next) = (self.history.clone(), batches.end, batches.start);
        if next == 0 {
            history.begin_epoch();
        }
        let learner = session.learner();
        history.publish(learner.step, &learner.model, 0);
        let mut flow = Flow::Continue;
        while next < to && flow == Flow::Continue {
            let now = Arc::new(self.next_super_batch(session, &of, next..to)?);
            session.learner().reuse.now = Some(now.clone());
            *session.reuse() = history.position();
            flow = self.train_on(&now, strategy, session, &of, (next, cost))?;
            next = session.num_done();
            if next < to && flow == Flow::Stop {
                return Ok(flow);
            }
            session.learner().reuse.now = None;
            if let Ok(done) = Arc::try_unwrap(now) {
                self.spare = (done.ahead, done.rows);
            }
        }
        history.end_epoch();
        *session.reuse() = history.position();
        Ok(flow)
    }

    /// Makes the super-batch that begins with the first of `batches`, or the interrupted one that
    /// contains it.
    fn next_super_batch(
        &mut self,
        session: &mut Session<TypedLearner>,
        of: &EpochBatches,
        batches: Range<u64>,
    ) -> Result<TypedSuperBatch> {
        let (position, from) = (self.history.position(), batches.start);
        let learner = session.learner();
        // the rows of a cut one were too old before the interruption
        let is_begun = |span: &SuperBatchSpan| {
            span.epoch == of.epoch && span.batches.contains(&from) && position.cut != Some(from)
        };
        if let Some(span) = position.span.clone().filter(is_begun) {
            return self.super_batch(of, learner, span, true);
        }
        let end = batches.end.min(from + position.length.max(1));
        let (start, made) = (learner.step, vec![learner.step]);
        let span = SuperBatchSpan { epoch: of.epoch, batches: from..end, start, made };
        let made = self.super_batch(of, learner, span, false)?;
        let length = reuse::length_at((self.length, 1), self.options.max_variation, position.change);
        self.history.begin(made.span.clone(), length);
        Ok(made)
    }

    /// Trains on the batches of a super-batch from batch `from` on, and publishes the model after
    /// every update. Ends before a batch whose rows would be too different from new ones.
    fn train_on(
        &self,
        now: &TypedSuperBatch,
        strategy: &mut Strategy,
        session: &mut Session<TypedLearner>,
        of: &EpochBatches,
        (from, cost): (u64, &PresamplingCost),
    ) -> Result<Flow> {
        let (history, max) = (&self.history, self.options.max_variation);
        let (made, end) = (&now.span.made, now.span.batches.end);
        let updates = end - now.span.batches.start;
        let of = EpochBatches { ahead: Some(&now.ahead), ..*of };
        turns::train(strategy, session, &of, (from..end, cost), |session, number| {
            let learner = session.learner();
            let (step, staleness, next) = (learner.step, learner.reuse.staleness, number + 1);
            history.publish(step, &learner.model, updates);
            let has_drifted = max > 0.0 && f64::from(history.change_since(made, step)) > max;
            let is_cut = next < end && has_drifted;
            if is_cut {
                history.cut(next);
            }
            if is_cut || next == end {
                history.add(now.totals(next));
            }
            session.see_staleness(staleness);
            *session.reuse() = history.position();
            is_cut
        })
    }

    /// Record of the current epoch, if it reuses rows.
    pub(super) fn record(&self) -> Option<ReuseRecord> {
        let position = self.history.position();
        position.totals.record(self.split, position.variation)
    }

    /// Largest age of a row, in updates.
    pub(super) fn staleness_bound(&self) -> u64 {
        if self.reuses() { self.length - 1 } else { 0 }
    }

    /// Note for the user that arose since the last call.
    pub(super) fn note(&mut self) -> Option<String> {
        self.note.take()
    }
}
