//! Updates of the model by rounds of batches, on the thread of the run.

use std::time::Instant;

use graphmill_core::NodeId;
use graphmill_nn::{Matrix, typed::LearnedRows};

use super::{TypedTrained, learner::RoundLearner, published::Published};
use crate::{
    Result,
    batchwise::{Completed, Session},
    distributed::RoundLosses,
    learner::BatchShare,
    record::{BatchOutcome, PresamplingCost},
    strategy::{Flow, Trained, add_shares, attempt},
    timeline::Stage,
    typed::{
        clip::skip_update,
        computing::PROCESSOR,
        counts::add,
        ranks::{RowGradients, RowOwners, exchange_round},
        stages::EpochBatches,
    },
    versions::{ReplacedRows, VersionRule},
};

/// Batches of a round with their gradients.
pub(super) struct Round<'r> {
    pub(super) of: &'r EpochBatches<'r>,
    /// Cost of the batches whose reads are counted.
    pub(super) cost: &'r PresamplingCost,
    pub(super) rule: VersionRule,
    /// The ranks that train together, if there are several.
    pub(super) over: Option<&'r RowOwners>,
    pub(super) batches: &'r mut [(u64, TypedTrained)],
}

impl Round<'_> {
    /// Updates the model by the round, publishes it, and counts and reports the batches.
    ///
    /// # Errors
    /// A loss is not finite, and the model is as it was; the norm of the gradient is not finite,
    /// and no parameter has changed, but running statistics are those of the round; a rank did not
    /// take part; the report fails.
    ///
    /// # Panics
    /// A gradient is staler than its bound: a bug in the scheduler's rules.
    pub(super) fn end<L: RoundLearner>(
        mut self,
        session: &mut Session<L>,
        published: &Published,
    ) -> Result<Flow> {
        let (clock, before) = (Instant::now(), session.num_done());
        let last = self.batches.last().map_or(0, |&(number, _)| number);
        let losses = attempt(Stage::Update, last, || self.losses(session.learner()))?;
        let mut done = self.completed(&losses.of_batches);
        // before the update, so that the model stays that of the last complete round
        done.iter().try_for_each(|done| session.check(done))?;
        session.see_staleness(self.staleness());
        // while devices still read the version before
        let (lr, learner) = (session.lr(last), session.learner());
        let mut rows = attempt(Stage::Update, last, || self.reduce(learner, losses.factors.as_deref()))?;
        if let Some(rows) = &mut rows {
            let norm = attempt(Stage::Update, last, || learner.clip(rows))?;
            if norm.is_some_and(|norm| !norm.is_finite()) && self.over.is_none() {
                skip_update(learner);
            }
            done.iter_mut().for_each(|done| done.outcome = done.outcome.with_norm(norm));
            done.iter().try_for_each(|done| session.check(done))?;
        }
        published.update(session, |session, newest| {
            let learner = session.learner();
            let replaced = attempt(Stage::Update, last, || self.update(learner, lr, rows.as_deref()))?;
            newest.publish(learner.dense(), &PROCESSOR, &[], replaced);
            let Self { of, cost, .. } = self;
            of.timeline.done(of.timeline.track("host"), Stage::Update, last, clock);
            for (done, (_, Trained { batch, .. })) in done.into_iter().zip(&*self.batches) {
                session.learner().see(of.epoch, batch, cost);
                session.count(done, |sums, counts| add(batch, sums, counts));
            }
            session.end_update(before)
        })
    }

    /// Losses of the batches, over all ranks if there are several, which the model then waits for.
    ///
    /// # Errors
    /// A rank did not take part.
    fn losses<L: RoundLearner>(&self, learner: &mut L) -> Result<RoundLosses> {
        if let Some(over) = self.over {
            // a rank alone cannot save what all have counted
            learner.set_whole(false);
            let share = |(number, Trained { batch, gradient, .. }): &(u64, TypedTrained)| BatchShare {
                loss: gradient.loss.unwrap_or_default(),
                seeds: learner.num_seeds(batch),
                nodes: learner.weight(batch),
                global: self.of.num_seeds(*number),
            };
            return over.ranks.round_losses(&self.batches.iter().map(share).collect::<Vec<_>>());
        }
        let loss = |(_, Trained { batch, gradient, .. }): &(u64, TypedTrained)| {
            // a subgraph may have no nodes of the task's type
            gradient.loss.map_or((0.0, 0), |loss| (loss, learner.num_seeds(batch)))
        };
        let weights: Vec<f64> = self.batches.iter().map(|(_, of)| learner.weight(&of.batch) as f64).collect();
        let all: f64 = weights.iter().sum();
        let has_gradient = self.batches.iter().any(|(_, of)| of.gradient.loss.is_some());
        let factors = || weights.iter().map(|weight| (weight / all) as f32).collect();
        let of_batches = self.batches.iter().map(loss).collect();
        Ok(RoundLosses { of_batches, factors: has_gradient.then(factors) })
    }

    /// Results of the batches, of which these are the losses and the numbers of seeds.
    fn completed(&self, losses: &[(f64, usize)]) -> Vec<Completed> {
        let batch = |((number, trained), &(loss, seeds)): (&(u64, TypedTrained), &(f64, usize))| {
            let outcome = BatchOutcome { loss, grad_norm: None, seeds };
            Completed { number: *number, outcome, traffic: trained.traffic, spent: trained.spent }
        };
        self.batches.iter().zip(losses).map(batch).collect()
    }

    /// Staleness of the stalest gradient, in updates.
    fn staleness(&self) -> u64 {
        let rule = self.rule;
        let late = |(number, of): &(u64, TypedTrained)| rule.round(*number) - of.gradient.version;
        let (staleness, bound) = (self.batches.iter().map(late).max().unwrap_or(0), rule.staleness);
        assert!(staleness <= bound, "a gradient is {staleness} updates stale; the bound is {bound}");
        staleness
    }

    /// Sets the dense gradients of the model to the mean of those of the round, by these factors:
    /// the gradient of one batch of all their seeds. Running statistics become the mean of theirs.
    /// Returns the gradients of learned rows; `None` without factors, because the round has no
    /// gradient.
    ///
    /// # Errors
    /// A rank did not take part.
    fn reduce<L: RoundLearner>(
        &mut self,
        learner: &mut L,
        factors: Option<&[f32]>,
    ) -> Result<Option<Vec<RowGradients>>> {
        let Some(factors) = factors else {
            learner.set_whole(true);
            return Ok(None);
        };
        learner.set_whole(false);
        let (batches, mut index) = (&mut *self.batches, 0);
        learner.dense_mut().each_mut(&mut |param| {
            let to = if param.trainable { &mut param.grad } else { &mut param.value };
            if let ([(_, of)], [factor]) = (&mut *batches, factors) {
                std::mem::swap(to, &mut of.gradient.values[index]);
                to.view_mut().host().iter_mut().for_each(|x| *x *= factor);
            } else {
                let from = batches.iter().map(|(_, of)| &of.gradient.values[index]);
                add_shares(from.zip(factors.iter().copied()), to);
            }
            index += 1;
        });
        let mut rows = Vec::new();
        for (i, (t, learned)) in learner.encoder().learned_rows().enumerate() {
            let (mut places, mut grad): (Vec<NodeId>, Vec<f32>) = Default::default();
            for ((_, of), factor) in batches.iter().zip(factors) {
                // without seeds, there is none
                let Some(own) = of.gradient.rows.get(i) else { continue };
                places.extend_from_slice(&of.batch.sampled.input_nodes[t]);
                grad.extend(own.view().host().iter().map(|x| factor * x));
            }
            let grad = Matrix::from_slice(places.len(), learned.table().num_cols(), &grad);
            rows.push(RowGradients { node_type: t, places, grad });
        }
        match self.over {
            Some(over) => exchange_round(over, learner.dense_mut(), rows).map(Some),
            None => Ok(Some(rows)),
        }
    }

    /// Updates the model by its gradient and `rows`, without which it stays as it is. Returns the
    /// learned rows that this replaces, of each type that has some, if gradients are stale.
    ///
    /// # Errors
    /// The state of learned rows is in files, for which the disk has too little space.
    fn update<L: RoundLearner>(
        &self,
        learner: &mut L,
        lr: f64,
        rows: Option<&[RowGradients]>,
    ) -> Result<Vec<ReplacedRows>> {
        let is_stale = self.rule.staleness > 0;
        let replaced = |(t, learned): (usize, &LearnedRows)| {
            let of_type = rows.into_iter().flatten().filter(|of| of.node_type == t);
            ReplacedRows::new(learned, of_type.flat_map(|of| of.places.iter().copied()).collect())
        };
        let replaced = learner.encoder().learned_rows().filter(|_| is_stale).map(replaced);
        let replaced = replaced.collect::<Result<_>>()?;
        if let Some(rows) = rows {
            learner.update(lr, &[], Some(rows))?;
        }
        Ok(replaced)
    }
}
