//! Costs of the stages of a batch, measured on the first batches without workers.
//!
//! The model is trained on these batches in their order, as on all others. Training and extraction
//! are timed on all cores and on one, which fits `a / c + d` through two points. On one core, the
//! elapsed time less the busy time is the time that a stage waits for a disk or a link.

use std::time::{Duration, Instant};

use graphmill_loader::{MiniBatch, Workspace};
use rayon::prelude::*;

use crate::{
    Result,
    allocate::Cost,
    cores,
    record::Stages,
    stage::Drawn,
    strategy::{
        interface::{CompletedBatch, Epoch, Flow},
        worker::attempt,
    },
    timeline::{Stage, Track},
};

/// Measurements so far.
#[derive(Default)]
pub(super) struct Probe {
    done: usize,
    sample: Vec<Spent>,
    /// Extraction and training, each on all cores and on one.
    rest: [[Vec<Spent>; 2]; 2],
}

/// Number of batches timed on all cores, and on one, after one warm-up batch per core.
const TIMED: usize = 4;

/// Elapsed seconds and core seconds.
#[derive(Clone, Copy, Default)]
struct Spent {
    passed: f64,
    busy: f64,
}

impl Spent {
    fn of<R>(work: impl FnOnce() -> R) -> (R, Self) {
        let (clock, busy) = (Instant::now(), cores::busy_seconds());
        let result = work();
        (result, Self { passed: clock.elapsed().as_secs_f64(), busy: cores::busy_seconds() - busy })
    }
}

impl Probe {
    /// Trains on the first batches of the epoch and advances `epoch.from` past them. Returns the
    /// costs of sampling, extraction and training unless the epoch ends before all batches are
    /// timed.
    ///
    /// # Errors
    /// A stage or [`Epoch::after`] fails.
    pub(super) fn run(
        &mut self,
        epoch: &mut Epoch,
        spaces: &mut [Workspace],
        slots: &mut Vec<MiniBatch>,
    ) -> Result<(Option<[Cost; 3]>, Flow)> {
        let threads = spaces.len();
        let wanted = threads + 2 * TIMED;
        slots.resize_with(slots.len().max(threads), MiniBatch::default);
        let single = cores::pool("probe", 1, &[])?;
        let track = epoch.timeline.track("probe");
        while self.done < wanted {
            let left = usize::try_from(epoch.to - epoch.from).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok((None, Flow::Continue));
            }
            let batches = &mut slots[..threads.min(wanted - self.done).min(left)];
            let (drawn, spent) = draw(epoch, track, spaces, batches);
            let (warm, each) = (self.done < threads, 1.0 / batches.len() as f64);
            if !warm {
                self.sample.push(spent);
            }
            let Epoch { from, loader, learner, lr, after, timeline, .. } = &mut *epoch;
            for (slot, drawn) in batches.iter_mut().zip(drawn) {
                let drawn = drawn?; // those before it are trained on
                let (this, sample) = (*from, spent.passed * each);
                let alone = self.done >= threads + TIMED;
                let clock = Instant::now();
                let (outcome, extract) = Spent::of(|| {
                    attempt(Stage::Extract, this, || {
                        if alone { single.install(|| loader.extract(drawn)) } else { loader.extract(drawn) }
                    })
                });
                timeline.add(track, Stage::Extract, this, clock, extract.passed);
                let batch = outcome?;
                let rate = lr(this);
                let clock = Instant::now();
                let (outcome, train) = Spent::of(|| {
                    attempt(Stage::Train, this, || {
                        if alone {
                            single.install(|| learner.train(&batch, rate))
                        } else {
                            learner.train(&batch, rate)
                        }
                    })
                });
                timeline.add(track, Stage::Train, this, clock, train.passed);
                let outcome = outcome?;
                let of_batch =
                    Stages { sample, extract: extract.passed, train: train.passed, ..Stages::default() };
                if !warm {
                    self.rest[0][usize::from(alone)].push(extract);
                    self.rest[1][usize::from(alone)].push(train);
                }
                *from += 1;
                self.done += 1;
                let flow = after(learner, &[CompletedBatch::of(batch.batch(), outcome, of_batch)])?;
                *slot = batch.into();
                if flow == Flow::Stop {
                    return Ok((None, Flow::Stop));
                }
            }
        }
        let [extract, train] = &self.rest;
        let [extract, train] = [extract, train].map(|[many, one]| cost(many, one, threads));
        // batches are drawn concurrently, a core each: the seconds of a group are the core seconds
        // of a batch
        let all = least(&self.sample).passed;
        let sample = Cost { divided: all, fixed: 0.0, busy: all };
        Ok((Some([sample, extract, train]), Flow::Continue))
    }
}

/// Draws the epoch's next batches concurrently, a core each.
fn draw(
    epoch: &Epoch,
    track: Track,
    spaces: &mut [Workspace],
    batches: &mut [MiniBatch],
) -> (Vec<Result<Drawn>>, Spent) {
    let Epoch { number, order, from: first, loader, timeline, .. } = *epoch;
    let clock = Instant::now();
    let (drawn, spent): (Vec<Result<Drawn>>, Spent) = Spent::of(|| {
        let draw = |(i, (slot, space)): (usize, (&mut MiniBatch, &mut Workspace))| {
            space.set_parallel(false);
            let this = first + i as u64;
            let held = std::mem::take(slot);
            attempt(Stage::Sample, this, || loader.draw(order, number, this, space, held))
        };
        batches.par_iter_mut().zip(spaces.par_iter_mut()).enumerate().map(draw).collect()
    });
    let seconds = spent.passed / batches.len() as f64;
    for i in 0..batches.len() {
        let from = clock + Duration::from_secs_f64(seconds * i as f64);
        timeline.add(track, Stage::Sample, first + i as u64, from, seconds);
    }
    (drawn, spent)
}

/// The fastest measurement: disturbances only add time.
fn least(of: &[Spent]) -> Spent {
    let quicker = |a: &&Spent, b: &&Spent| a.passed.total_cmp(&b.passed);
    of.iter().min_by(quicker).copied().unwrap_or_default()
}

fn cost(many: &[Spent], one: &[Spent], cores: usize) -> Cost {
    let (many, one) = (least(many), least(one));
    // a single thread is either busy or waits for a disk or a link. Several threads also wait for
    // each other; their cores count as busy then, because other work there would prolong the wait
    let waits = (one.passed - one.busy).clamp(0.0, many.passed);
    Cost::fit(one.passed, many.passed, cores, (many.passed - waits) * cores as f64)
}
