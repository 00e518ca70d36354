//! Times of the first batches, from which the number of sampling devices follows.

use std::{sync::Arc, time::Instant};

use graphmill_loader::{MiniBatch, Workspace};

use super::workers::DeviceWorkers;
use crate::{
    Result,
    device::Device,
    learner::Learner,
    reuse::Preview,
    stage::{DrawAhead, Loader},
    strategy::worker::attempt,
    timeline::Stage,
};

/// Number of timed batches, after one warm-up batch.
const TIMED: u64 = 3;

/// Measures, on the first batches of the first epoch, the seconds to sample a batch and to train on
/// it on the threads of a device, and the bytes of a batch; with `reuse`, those of batches that
/// reuse rows. Does not update the model. A batch that
/// fails ends the timing; it fails again in its turn, after the batches before it are trained on.
///
/// # Errors
/// The first batch fails.
pub(super) fn time(
    loader: &Loader,
    learner: &Learner,
    reuse: Option<&Preview>,
    trainer: Option<&DeviceWorkers>,
    device: &Arc<Device>,
) -> Result<(Option<(f64, f64)>, u64)> {
    let (mut space, mut held) = (Workspace::new(loader.graph.num_nodes()), MiniBatch::default());
    space.set_parallel(false);
    let mut order = Vec::new();
    loader.order(0, &mut order);
    let ahead = reuse.map(|preview| preview.reuse.ahead.clone() as Arc<dyn DrawAhead>);
    let loader = &Loader { ahead, ..loader.clone() };
    let end = reuse.map_or(u64::MAX, |preview| preview.batches.end);
    let last = loader.num_batches().min(end).min(if trainer.is_some() { TIMED + 1 } else { 1 });
    let mut model = learner.model.clone();
    let mut context = learner.context.with_scratch(Default::default());
    context.reuse = reuse.map(|preview| preview.reuse.clone());
    let threads = device.pool.current_num_threads() as f64;
    let (mut sample, mut train, mut bytes) = (f64::INFINITY, f64::INFINITY, 0);
    let mut one = |this: u64| -> Result<()> {
        let clock = Instant::now();
        let batch = std::mem::take(&mut held);
        let drawn = attempt(Stage::Sample, this, || {
            device.pool.install(|| loader.draw(&order, 0, this, &mut space, batch))
        })?;
        let sampled = clock.elapsed().as_secs_f64() / threads;
        bytes = bytes.max(drawn.sampled().bytes());
        let Some(member) = trainer else {
            held = drawn.into();
            return Ok(());
        };
        let clock = Instant::now();
        let batch = attempt(Stage::Extract, this, || {
            device.pool.install(|| match &member.cache {
                Some(cache) => loader.extract_from(&*cache.rows, drawn),
                None => loader.extract(drawn),
            })
        })?;
        let batch = batch.into_batch();
        let extracted = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        attempt(Stage::Train, this, || {
            device.pool.install(|| context.gradient(&mut model, &batch, 0));
            Ok(context.backend.check()?)
        })?;
        let trained = clock.elapsed().as_secs_f64();
        // a Trainer extracts the next batch while it trains on this one
        sample = sample.min(sampled);
        train = train.min(trained.max(extracted));
        held = batch.into();
        Ok(())
    };
    for this in 0..last {
        match one(this) {
            Err(error) if this == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => {}
        }
    }
    Ok((train.is_finite().then_some((sample, train)), bytes))
}
