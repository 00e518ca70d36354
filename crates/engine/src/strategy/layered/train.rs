//! Training on a super-batch, beside the making of the next one.

use std::{sync::Arc, time::Instant};

use graphmill_loader::feature::Link;
use rayon::ThreadPool;

use super::super_batch::SuperBatch;
use crate::{
    Result,
    learner::Learner,
    reuse::{History, Reuse},
    stage::Loader,
    strategy::interface::{CompletedBatch, Epoch, Flow, Strategy},
};

/// A super-batch in training.
#[derive(Clone, Copy)]
pub(super) struct Current<'s> {
    pub(super) batch: &'s SuperBatch,
    pub(super) history: &'s History,
    /// Number of updates of the super-batch.
    pub(super) updates: u64,
    /// Largest change of a weight since its rows were made; 0 for any.
    pub(super) max_variation: f64,
}

impl Current<'_> {
    /// Returns true if the parameters after `step` updates have changed too much since the rows
    /// were made.
    pub(super) fn has_drifted(&self, step: u64) -> bool {
        let made = &self.batch.span.made;
        self.max_variation > 0.0 && f64::from(self.history.change_since(made, step)) > self.max_variation
    }

    /// Trains on the batches of the super-batch, and publishes the model after every update. Ends
    /// before a batch whose rows would be too different from new ones. Returns the number of the
    /// next batch.
    pub(super) fn train(&self, inner: &mut dyn Strategy, epoch: &mut Epoch) -> Result<(Flow, u64)> {
        let (ahead, rows) = (self.batch.ahead.clone(), self.batch.rows.clone());
        epoch.learner.context.reuse = Some(Reuse { ahead: ahead.clone(), rows });
        let loader = Loader { ahead: Some(ahead), ..epoch.loader.clone() };
        let outcome = self.train_with(inner, epoch, &loader);
        epoch.learner.context.reuse = None;
        outcome
    }

    fn train_with<'a>(
        &self,
        inner: &mut dyn Strategy,
        epoch: &mut Epoch<'_, 'a>,
        loader: &Loader<'a>,
    ) -> Result<(Flow, u64)> {
        let Epoch { number, order, from, timeline, lr, .. } = *epoch;
        let report = &mut *epoch.after;
        let to = self.batch.span.batches.end;
        let (mut end, mut stopped) = (to, false);
        let mut after = |learner: &Learner<'a>, done: &[CompletedBatch]| {
            self.history.publish(learner.step, &learner.model, self.updates);
            let next = done.last().map_or(from, |done| done.batch.seeds.number + 1);
            let cut = next < to && self.has_drifted(learner.step);
            if cut {
                self.history.cut(next);
                end = next;
            }
            if cut || next == to {
                // a checkpoint after these batches holds their totals
                self.history.add(self.batch.totals(next));
            }
            let flow = report(learner, done)?;
            stopped = flow == Flow::Stop;
            Ok(if cut { Flow::Stop } else { flow })
        };
        epoch.from = to;
        let learner = &mut *epoch.learner;
        let flow =
            inner.run(Epoch { number, order, from, to, loader, learner, lr, after: &mut after, timeline })?;
        epoch.from = end;
        Ok((if end < to && !stopped { Flow::Continue } else { flow }, end))
    }
}

/// Trains on this thread while another thread makes the next super-batch on the threads of `pool`.
/// Returns both results, and the seconds that this thread waited for the other.
pub(super) fn side_by_side<T>(
    history: &History,
    pool: Option<&ThreadPool>,
    train: impl FnOnce() -> T,
    make: impl FnOnce() -> Result<Option<SuperBatch>> + Send,
) -> (T, Result<Option<SuperBatch>>, f64) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || match pool {
            Some(pool) => pool.install(make),
            None => make(),
        });
        let trained = {
            // the other thread does not wait for updates that will not follow, even if training
            // fails
            let _closing = CloseOnDrop(history);
            train()
        };
        let clock = Instant::now();
        let made = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (trained, made, clock.elapsed().as_secs_f64())
    })
}

/// Simulates the transfer of rows to every device.
pub(super) fn deliver(links: &[Arc<Link>], bytes: u64) {
    links.iter().for_each(|link| link.transfer(bytes, Instant::now()));
}

/// Closes the history when dropped.
struct CloseOnDrop<'h>(&'h History);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
