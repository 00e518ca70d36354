//! What each stage of a batch costs, by training on the first few batches without workers.
//!
//! The batches count: they are trained on in their order as all others are. Training and extraction are timed on all
//! cores and on one, which fits `a / c + d` through two points; on one, the difference between the time that passed and the
//! time that the core was busy is what a stage waits for a disk or a link.

use std::time::Instant;

use graphmill_loader::Workspace;
use rayon::prelude::*;

use super::{Done, Epoch, Flow, Slot, Stage, attempt};
use crate::{Result, allocate::Cost, cores};

/// What a probe comes to.
pub(super) enum Outcome {
    /// The costs of sampling, extracting and training.
    Costs([Cost; 3]),
    /// The epoch has too few batches for workers to matter.
    TooFew,
    /// Someone asked the run to stop.
    Stopped,
}

/// Batches timed on all cores, and on one, after as many as there are cores to warm up.
const TIMED: usize = 2;

/// Seconds that passed, and core seconds.
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

/// Trains on the first batches of the epoch, and moves its beginning behind them.
pub(super) fn run(epoch: &mut Epoch, spaces: &mut [Workspace], slots: &mut Vec<Slot>) -> Result<Outcome> {
    let threads = spaces.len();
    let batches = epoch.loader.num_batches();
    let wanted = threads + 2 * TIMED;
    if batches.saturating_sub(epoch.from) < 2 * wanted as u64 {
        return Ok(Outcome::TooFew);
    }
    slots.resize_with(slots.len().max(threads), Slot::default);
    let single = cores::pool("probe", 1, &[])?;
    let Epoch { number, order, from, loader, learner, lr, after, timeline } = epoch;
    let track = timeline.track("probe");
    let mut sample = Vec::new();
    let mut rest: [[Vec<Spent>; 2]; 2] = Default::default();
    let mut done = 0;
    while done < wanted {
        let gang = &mut slots[..threads.min(wanted - done)];
        let first = *from;
        let clock = Instant::now();
        let (outcome, spent) = Spent::of(|| {
            gang.par_iter_mut().zip(spaces.par_iter_mut()).enumerate().try_for_each(|(i, (slot, space))| {
                space.set_parallel(false);
                let batch = first + i as u64;
                attempt(Stage::Sample, batch, || loader.draw(order, *number, batch, space, &mut slot.batch))
            })
        });
        outcome?;
        let (warm, each) = (done < threads, 1.0 / gang.len() as f64);
        if !warm && gang.len() == threads {
            sample.push(Spent { passed: spent.passed * each, busy: spent.busy * each });
        }
        timeline.add(track, Stage::Sample, first, clock, spent.passed);
        for Slot { batch, spent: of_batch, .. } in gang {
            of_batch.sample = spent.passed * each;
            let alone = done >= threads + TIMED;
            let clock = Instant::now();
            let (outcome, extract) = Spent::of(|| {
                attempt(Stage::Extract, batch.number, || {
                    if alone { single.install(|| loader.extract(batch)) } else { loader.extract(batch) }
                })
            });
            timeline.add(track, Stage::Extract, batch.number, clock, extract.passed);
            outcome?;
            let rate = lr(batch.number);
            let clock = Instant::now();
            let (outcome, train) = Spent::of(|| {
                attempt(Stage::Train, batch.number, || {
                    Ok(if alone {
                        single.install(|| learner.train(batch, rate))
                    } else {
                        learner.train(batch, rate)
                    })
                })
            });
            timeline.add(track, Stage::Train, batch.number, clock, train.passed);
            let outcome = outcome?;
            (of_batch.extract, of_batch.train) = (extract.passed, train.passed);
            if !warm {
                rest[0][usize::from(alone)].push(extract);
                rest[1][usize::from(alone)].push(train);
            }
            *from += 1;
            done += 1;
            if after(learner, &[Done { batch, outcome, spent: *of_batch }])? == Flow::Stop {
                return Ok(Outcome::Stopped);
            }
        }
    }
    let [extract, train] = rest.map(|[many, one]| cost(&many, &one, threads));
    let sample = least(&sample);
    // batches are drawn side by side, a core each
    let all = sample.passed * threads as f64;
    let sample = Cost { divided: all, fixed: 0.0, busy: all };
    Ok(Outcome::Costs([sample, extract, train]))
}

/// The quickest: what disturbs only ever makes longer.
fn least(of: &[Spent]) -> Spent {
    let quicker = |a: &&Spent, b: &&Spent| a.passed.total_cmp(&b.passed);
    of.iter().min_by(quicker).copied().unwrap_or_default()
}

fn cost(many: &[Spent], one: &[Spent], cores: usize) -> Cost {
    let (many, one) = (least(many), least(one));
    // a single thread is either busy or waits for something that is no core; several also wait for each other, and
    // their cores are then as good as taken: work that is put in between makes them wait longer
    let waits = (one.passed - one.busy).clamp(0.0, many.passed);
    Cost::fit(one.passed, many.passed, cores, (many.passed - waits) * cores as f64)
}
