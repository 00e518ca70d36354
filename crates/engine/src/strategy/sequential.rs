//! One stage after the other, on all threads.
//!
//! ```text
//!   all threads:  sample b0 | b1 | .. ─► extract b0 ─► train b0 ─► extract b1 ─► train b1 ─► .. ─► sample ..
//! ```
//!
//! Sampling is parallel over batches: each thread draws one batch, into recycled memory. If an
//! epoch has fewer batches than threads, the draw of each batch is spread over threads. Extraction
//! and training are parallel inside one batch. A batch depends on its number alone, so the number
//! of threads changes only the time. If one of several drawn batches fails, those before it are
//! trained on.

use std::time::{Duration, Instant};

use graphmill_loader::{MiniBatch, Workspace};
use rayon::prelude::*;

use super::{
    interface::{CompletedBatch, Epoch, Flow, Strategy},
    worker::attempt,
};
use crate::{Result, record::Stages, stage::Drawn, timeline::Stage};

/// Strategy that runs one stage after the other, on all threads.
pub struct Sequential {
    num_nodes: usize,
    slots: Vec<Slot>,
}

/// Workspace with the batch that it draws.
struct Slot {
    space: Workspace,
    batch: SlotState,
}

/// State of a slot.
enum SlotState {
    /// Free: holds the last batch, or its memory.
    Free(MiniBatch),
    /// Drawn batch, or the error of its draw.
    Drawn(Result<Drawn>),
}

impl Default for SlotState {
    fn default() -> Self {
        Self::Free(MiniBatch::default())
    }
}

impl From<SlotState> for MiniBatch {
    fn from(state: SlotState) -> Self {
        match state {
            SlotState::Free(batch) => batch,
            // a batch of an epoch that ended before it
            SlotState::Drawn(drawn) => drawn.map(Into::into).unwrap_or_default(),
        }
    }
}

impl Sequential {
    /// Strategy for one run on a graph of `num_nodes` nodes: it holds the batches of the last
    /// epoch.
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
            self.slots.push(Slot { space: Workspace::new(self.num_nodes), batch: SlotState::default() });
        }
        let mut next = from;
        while next < to {
            let group = &mut self.slots[..ahead.min(to - next) as usize];
            let clock = Instant::now();
            let alone = group.len() < rayon::current_num_threads();
            let draw = |(i, Slot { space, batch }): (usize, &mut Slot)| {
                let this = next + i as u64;
                space.set_parallel(alone);
                let held = std::mem::take(batch).into();
                let drawn = attempt(Stage::Sample, this, || loader.draw(order, number, this, space, held));
                *batch = SlotState::Drawn(drawn);
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
            for slot in group {
                let this = next;
                next += 1;
                let SlotState::Drawn(drawn) = std::mem::take(&mut slot.batch) else { continue };
                let drawn = drawn?;
                let mut spent = Stages { sample, ..Stages::default() };
                let clock = Instant::now();
                let batch = attempt(Stage::Extract, this, || loader.extract(drawn))?;
                spent.extract = timeline.done(track, Stage::Extract, this, clock);
                let (clock, rate) = (Instant::now(), lr(this));
                let outcome = attempt(Stage::Train, this, || learner.train(&batch, rate))?;
                spent.train = timeline.done(track, Stage::Train, this, clock);
                let flow = after(learner, &[CompletedBatch::of(batch.batch(), outcome, spent)])?;
                slot.batch = SlotState::Free(batch.into());
                if flow == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
        }
        Ok(Flow::Continue)
    }
}
