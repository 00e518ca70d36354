//! One stage after the other, on all threads.
//!
//! ```text
//!   all threads:  sample b0 | b1 | .. ─► extract b0 ─► train b0 ─► extract b1 ─► train b1 ─► .. ─► sample ..
//! ```
//!
//! Sampling is parallel over batches: as many as there are threads are drawn at once, one each, into
//! minibatches that are recycled; fewer batches than threads are spread over threads themselves. Extraction and
//! training are parallel inside one batch. What a batch holds depends on its number alone, so the number of threads
//! changes nothing but the time. Of batches that are drawn at once, those before one that fails are trained on.

use std::time::{Duration, Instant};

use graphmill_loader::{MiniBatch, Workspace};
use rayon::prelude::*;

use super::{
    interface::{Done, Epoch, Flow, Strategy},
    worker::attempt,
};
use crate::{Result, record::Stages, timeline::Stage};

/// See the module's text.
pub struct Sequential {
    num_nodes: usize,
    slots: Vec<Slot>,
}

/// A batch, what it is drawn with, and whether that went well.
struct Slot {
    space: Workspace,
    batch: MiniBatch,
    drawn: Result<()>,
}

impl Sequential {
    /// For a graph of that many nodes, and one run: the batches of the last epoch are kept.
    pub fn new(num_nodes: usize) -> Self {
        Self { num_nodes, slots: Vec::new() }
    }
}

impl Strategy for Sequential {
    fn run(&mut self, epoch: Epoch) -> Result<Flow> {
        let Epoch { number, order, from, to, loader, learner, lr, after, timeline } = epoch;
        let track = timeline.track("main");
        let ahead = (rayon::current_num_threads() as u64).min(loader.num_batches()).max(1);
        while (self.slots.len() as u64) < ahead {
            let (space, batch) = (Workspace::new(self.num_nodes), MiniBatch::default());
            self.slots.push(Slot { space, batch, drawn: Ok(()) });
        }
        let mut next = from;
        while next < to {
            let group = &mut self.slots[..ahead.min(to - next) as usize];
            let clock = Instant::now();
            let alone = group.len() < rayon::current_num_threads();
            let draw = |(i, Slot { space, batch, drawn }): (usize, &mut Slot)| {
                let this = next + i as u64;
                space.set_parallel(alone);
                *drawn = attempt(Stage::Sample, this, || loader.draw(order, number, this, space, batch));
            };
            if group.len() > 1 {
                group.par_iter_mut().enumerate().for_each(draw);
            } else {
                group.iter_mut().enumerate().for_each(draw);
            }
            let sample = clock.elapsed().as_secs_f64() / group.len() as f64;
            for i in 0..group.len() {
                let began = clock + Duration::from_secs_f64(sample * i as f64);
                timeline.add(track, Stage::Sample, next + i as u64, began, sample);
            }
            next += group.len() as u64;
            for Slot { batch, drawn, .. } in group {
                std::mem::replace(drawn, Ok(()))?;
                let mut spent = Stages { sample, ..Stages::default() };
                let clock = Instant::now();
                attempt(Stage::Extract, batch.number, || loader.extract(batch))?;
                spent.extract = timeline.done(track, Stage::Extract, batch.number, clock);
                let clock = Instant::now();
                let rate = lr(batch.number);
                let outcome = attempt(Stage::Train, batch.number, || learner.train(batch, rate))?;
                spent.train = timeline.done(track, Stage::Train, batch.number, clock);
                if after(learner, &[Done { batch, outcome, spent }])? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
        }
        Ok(Flow::Continue)
    }
}
