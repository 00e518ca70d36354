//! A strategy: one batch ahead.

use std::{
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use graphmill::{
    Result,
    engine::{
        record::Stages,
        stage::Loader,
        strategy::{Done, Epoch, Flow, Kind, Strategy},
    },
    graph::{NodeId, table::Entry},
    loader::{MiniBatch, Workspace},
};

/// Draws and extracts the next batch on a second thread while the model trains on this one.
///
/// ```text
///   caller:         train b0 | train b1 | train b2 | ..
///   second thread:  draw  b1 | draw  b2 | draw  b3 | ..
/// ```
///
/// Memory: two batches. The numbers are those of `sequential`, because a batch depends on its number alone.
pub struct OneAhead {
    /// This batch, and the next.
    slots: [Slot; 2],
}

struct Slot {
    workspace: Workspace,
    batch: MiniBatch,
    /// Time to draw and to extract it.
    spent: [Duration; 2],
}

impl OneAhead {
    /// For a graph of so many nodes.
    pub fn new(num_nodes: usize) -> Self {
        let slot = || {
            let (workspace, batch) = (Workspace::new(num_nodes), MiniBatch::default());
            Slot { workspace, batch, spent: Default::default() }
        };
        Self { slots: [slot(), slot()] }
    }
}

impl Slot {
    fn fill(&mut self, loader: &Loader, order: &[NodeId], epoch: u64, number: u64) -> Result<()> {
        let clock = Instant::now();
        loader.draw(order, epoch, number, &mut self.workspace, &mut self.batch)?;
        let sample = clock.elapsed();
        loader.extract(&mut self.batch)?;
        self.spent = [sample, clock.elapsed() - sample];
        Ok(())
    }
}

impl Strategy for OneAhead {
    fn run(&mut self, epoch: Epoch) -> Result<Flow> {
        let Epoch { number, order, from, to, loader, learner, lr, after, .. } = epoch;
        let [this, next] = &mut self.slots;
        let (mut this, mut next) = (this, next);
        if from < to {
            this.fill(loader, order, number, from)?;
        }
        for i in from..to {
            let (outcome, train, drawn) = thread::scope(|scope| {
                let ahead = (i + 1 < to).then(|| scope.spawn(|| next.fill(loader, order, number, i + 1)));
                let clock = Instant::now();
                let outcome = learner.train(&this.batch, lr(i));
                let train = clock.elapsed();
                let drawn =
                    ahead.map_or(Ok(()), |ahead| ahead.join().unwrap_or_else(|panic| resume_unwind(panic)));
                (outcome, train, drawn)
            });
            let [sample, extract] = this.spent.map(|time| time.as_secs_f64());
            let spent = Stages { sample, extract, train: train.as_secs_f64(), ..Stages::default() };
            let done = Done { batch: &this.batch, outcome: outcome?, spent };
            // an update is reported before the failure of a later batch
            if after(learner, &[done])? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            drawn?;
            std::mem::swap(&mut this, &mut next);
        }
        Ok(Flow::Continue)
    }
}

/// Row of the table of strategies.
pub const ONE_AHEAD: Entry<Kind> = Entry {
    name: "one-ahead",
    summary: "the next batch is drawn on a second thread while this one trains",
    source: "",
    options: &[],
    make: Kind::new(|setting| Ok(Box::new(OneAhead::new(setting.data.num_nodes())))),
};
