//! Training on batches one after the other, each of which updates the model.

use std::{ops::Range, time::Instant};

use graphmill_loader::typed::TypedExtracted;

use super::{
    counts::{add, total},
    rounds::RoundLearner,
    stages::EpochBatches,
    strategy::Strategy,
};
use crate::{
    Result,
    batchwise::{Completed, Session},
    record::PresamplingCost,
    strategy::{Flow, Timed, attempt},
    timeline::Stage,
};

/// Trains on these batches, and reports each by [`Session::complete`], before which `after` sees
/// its update and the number of the batch. Training ends early if `after` returns true. `cost` is
/// that of the batches whose reads are counted.
///
/// # Errors
/// A stage or the report fails. Batches before a failed one are trained on.
pub(super) fn train<L: RoundLearner>(
    strategy: &mut Strategy,
    session: &mut Session<L>,
    of: &EpochBatches,
    (batches, cost): (Range<u64>, &PresamplingCost),
    mut after: impl FnMut(&mut Session<L>, u64) -> bool + Send,
) -> Result<Flow> {
    let track = of.timeline.track(strategy.trainer());
    let mut flow = Flow::Continue;
    strategy.run(of, batches, |Timed { mut batch, mut spent }: Timed<TypedExtracted>| {
        let (clock, number) = (Instant::now(), batch.sampled.seeds.number);
        let (lr, learner) = (session.lr(number), session.learner());
        let all = of.num_seeds(number);
        let outcome = attempt(Stage::Train, number, || learner.train(&mut batch, lr, all))?;
        spent.train = of.timeline.done(track, Stage::Train, number, clock);
        // a batch that ends the run is not among those that a checkpoint has counted
        let mut ends = false;
        if outcome.loss.is_finite() {
            learner.see(of.epoch, &batch, cost);
            ends = after(session, number);
        }
        let done = Completed { number, outcome, traffic: total(&batch.traffic), spent };
        flow = session.complete(done, |sums, counts| add(&batch, sums, counts))?;
        Ok((if ends { Flow::Stop } else { flow }, batch.recycle()))
    })?;
    Ok(flow)
}
