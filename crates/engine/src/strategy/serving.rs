//! Batches of a graph store: the rank takes part in the exchanges of the ranks that train, and
//! serves them meanwhile ([`crate::distributed`]).
//!
//! It draws no batches, reads no rows and computes no gradients, but keeps the count of updates,
//! losses and stops, so that it ends and scores epochs together with the others.

use graphmill_core::table::Entry;
use graphmill_loader::{Sampled, Seeds};

use super::{
    Kind,
    interface::{CompletedBatch, Epoch, Flow, Strategy, StrategyContext},
    is_by_device, round,
};
use crate::{
    Error, Result, TrainConfig,
    learner::BatchShare,
    record::{BatchOutcome, Stages},
};

/// Row of the strategy, which no option names.
pub(super) static SERVING: Entry<Kind> = Entry {
    name: "serving",
    summary: "exchanges of a rank that holds the graph for others",
    source: "Liu et al., BGL: GPU-efficient GNN training, NSDI 2023, graph stores",
    options: &[],
    make: Kind { over_ranks: true, ..Kind::new(Serving::make) },
};

/// Strategy of a graph store.
struct Serving {
    /// Number of batches of an update.
    round: u64,
}

impl Serving {
    /// Constructor of the strategy. The options are those of the ranks that train.
    fn make<'a>(context: StrategyContext<'a>) -> Result<Box<dyn Strategy + 'a>> {
        Ok(Box::new(Self { round: Self::round_of(context.config) }))
    }

    /// Number of batches that one update of the ranks that train takes.
    fn round_of(config: &TrainConfig) -> u64 {
        if is_by_device(config) { round(config) } else { 1 }
    }
}

impl Strategy for Serving {
    fn run(&mut self, epoch: Epoch) -> Result<Flow> {
        let Epoch { from, to, loader, learner, after, .. } = epoch;
        let Some(exchange) = learner.exchange.clone() else {
            return Err(Error::usage("a graph store has no other ranks to serve"));
        };
        let none = BatchShare { loss: 0.0, seeds: 0, nodes: 0, global: Some(0) };
        let layers = loader.sampler.properties().num_layers;
        let mut first = from;
        while first < to {
            let last = first.saturating_add(self.round).min(to);
            let shares = vec![none; (last - first) as usize];
            let losses = exchange.round(&mut learner.model, &shares)?;
            learner.step += 1;
            let batches: Vec<Sampled> =
                (first..last).map(|number| Seeds::new(number, []).into_sampled(layers)).collect();
            let done: Vec<CompletedBatch> = batches
                .iter()
                .zip(losses)
                .map(|(batch, (loss, seeds))| CompletedBatch {
                    batch,
                    traffic: Default::default(),
                    outcome: BatchOutcome { loss, grad_norm: None, seeds },
                    spent: Stages::default(),
                })
                .collect();
            if after(learner, &done)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            first = last;
        }
        Ok(Flow::Continue)
    }
}
