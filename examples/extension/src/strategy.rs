//! A strategy that prefetches one batch.

use std::{
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use graphmill::{
    Result,
    engine::{
        record::Stages,
        stage::{Drawn, Loader},
        strategy::{CompletedBatch, Epoch, Flow, Kind, Strategy},
    },
    graph::{NodeId, table::Entry},
    loader::{Extracted, MiniBatch, Workspace},
};

/// Draws and extracts the next batch on a second thread while the model trains on this one.
///
/// ```text
///   caller:         train b0 | train b1 | train b2 | ..
///   second thread:  draw  b1 | draw  b2 | draw  b3 | ..
/// ```
///
/// Memory: two batches. Results equal those of `sequential`, because a batch depends only on its
/// number.
pub struct OneAhead {
    /// The current batch, and the next.
    slots: [Slot; 2],
}

struct Slot {
    workspace: Workspace,
    /// The last batch, whose memory the next one reuses.
    batch: MiniBatch,
}

/// An extracted batch, and the time to draw and to extract it.
type Ready = (Drawn<Extracted>, [Duration; 2]);

impl OneAhead {
    /// A strategy for a graph of `num_nodes` nodes.
    pub fn new(num_nodes: usize) -> Self {
        let slot = || {
            let (workspace, batch) = (Workspace::new(num_nodes), MiniBatch::default());
            Slot { workspace, batch }
        };
        Self { slots: [slot(), slot()] }
    }
}

impl Slot {
    fn fill(&mut self, loader: &Loader, order: &[NodeId], epoch: u64, number: u64) -> Result<Ready> {
        let clock = Instant::now();
        let last = std::mem::take(&mut self.batch);
        let drawn = loader.draw(order, epoch, number, &mut self.workspace, last)?;
        let sample = clock.elapsed();
        let batch = loader.extract(drawn)?;
        Ok((batch, [sample, clock.elapsed() - sample]))
    }
}

impl Strategy for OneAhead {
    fn run(&mut self, epoch: Epoch) -> Result<Flow> {
        let Epoch { number, order, from, to, loader, learner, lr, after, .. } = epoch;
        let [this, next] = &mut self.slots;
        let (mut this, mut next) = (this, next);
        let mut ready = if from < to { Some(this.fill(loader, order, number, from)?) } else { None };
        let mut i = from;
        while let Some((batch, spent)) = ready {
            let (outcome, train, filled) = thread::scope(|scope| {
                let ahead = (i + 1 < to).then(|| scope.spawn(|| next.fill(loader, order, number, i + 1)));
                let clock = Instant::now();
                let outcome = learner.train(&batch, lr(i));
                let train = clock.elapsed();
                let filled = ahead.map(|ahead| ahead.join().unwrap_or_else(|panic| resume_unwind(panic)));
                (outcome, train, filled)
            });
            let [sample, extract] = spent.map(|time| time.as_secs_f64());
            let spent = Stages { sample, extract, train: train.as_secs_f64(), ..Stages::default() };
            // an update is reported before the failure of a later batch
            if after(learner, &[CompletedBatch::of(batch.batch(), outcome?, spent)])? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            this.batch = batch.into();
            ready = filled.transpose()?;
            std::mem::swap(&mut this, &mut next);
            i += 1;
        }
        Ok(Flow::Continue)
    }
}

/// Row of the table of strategies.
pub const ONE_AHEAD: Entry<Kind> = Entry {
    name: "one-ahead",
    summary: "draws the next batch on a second thread during training",
    source: "",
    options: &[],
    make: Kind::new(|setting| Ok(Box::new(OneAhead::new(setting.data.num_nodes())))),
};
