//! Reduction of the gradients of several batches to one: their mean, weighted by seeds.
//!
//! | gradients | reduction |
//! | --- | --- |
//! | in host memory | added in the order of the batches |
//! | on devices | copied to the first device and added there, in the order of the batches |
//! | on devices, with NCCL | each device adds its own, then an all-reduce adds those of all devices |
//!
//! Gradients of simulated devices are in host memory; their links have been charged for the copies
//! ([`super::replica`]).

use graphmill_core::{Matrix, ViewMut};
use graphmill_loader::Sampled;
use graphmill_nn::backend::ops::Add;

use crate::{
    Error, Result, TrainConfig,
    accelerator::{AllReduce, ComputeDevices, Gpu},
    learner::{BatchShare, Learner, num_seeds},
    strategy::{
        AllReduce as How, RoundOptions, UpdateOptions,
        batch_states::{Gradient, Trained},
    },
};

/// Largest number of batches in a round whose sum over devices has the same bits in any order.
const ANY_ORDER: u64 = 2;

/// Description of sums without NCCL.
const COPIES: &str = "copies between devices, in the order of the batches";

/// All-reduce over the devices of a run.
pub(super) struct OnDevices<'a> {
    all: AllReduce,
    gpus: &'a [Gpu],
    /// Zeros of each device that has no batch of the round, a matrix per parameter.
    none: Vec<Vec<Matrix>>,
}

impl<'a> OnDevices<'a> {
    /// Chooses the reduction of `--all-reduce` for rounds of `round` batches. Also returns a
    /// description of it, if several devices have gradients.
    ///
    /// # Errors
    /// The reduction that the options name is not available.
    pub(super) fn choose(
        config: &TrainConfig,
        devices: Option<&'a ComputeDevices>,
        round: u64,
    ) -> Result<(Option<Self>, Option<String>)> {
        let gpus = devices.map_or(&[][..], ComputeDevices::gpus);
        let is_asynchronous = config.own.get::<UpdateOptions>().is_asynchronous();
        let RoundOptions { all_reduce, .. } = config.own.get();
        if gpus.len() < 2 || round < 2 || is_asynchronous {
            if all_reduce == How::Nccl {
                let why = if is_asynchronous {
                    "--updates asynchronous applies each gradient by itself; use --updates synchronous"
                } else {
                    "each update has one batch; use --batches-per-update N, or more training devices"
                };
                return Err(Error::usage(format!("--all-reduce nccl: {why}, or leave it out")));
            }
            return Ok((None, None));
        }
        if all_reduce == How::Peer {
            return Ok((None, Some(COPIES.into())));
        }
        if all_reduce == How::Auto && round > ANY_ORDER {
            let how = format!(
                "{COPIES} (--all-reduce nccl is faster, but adds {round} gradients in no fixed order)"
            );
            return Ok((None, Some(how)));
        }
        match AllReduce::new(gpus) {
            Ok(all) => {
                let how = all.name().to_string();
                let none = gpus.iter().map(|_| Vec::new()).collect();
                Ok((Some(Self { all, gpus, none }), Some(how)))
            }
            Err(why) if all_reduce == How::Auto => Ok((None, Some(format!("{COPIES} ({why})")))),
            Err(why) => Err(Error::usage(format!("--all-reduce nccl: {why}"))),
        }
    }

    /// Rank of the device that holds all of a batch's gradient, if one does.
    fn rank(&self, slot: &Trained, trainable: &[bool]) -> Option<usize> {
        let values = slot.gradient.values.iter().zip(trainable).filter(|(_, trainable)| **trainable);
        let mut devices = values.map(|(value, _)| value.device());
        let first = devices.next()??;
        let is_one = devices.all(|device| device == Some(first));
        self.gpus.iter().position(|gpu| gpu.number() == first).filter(|_| is_one)
    }

    /// Sets the trainable gradients of the learner, which is on the first device, to the sum of
    /// those of the batches, each times its share. The gradients of the batches are overwritten.
    fn sum(
        &mut self,
        learner: &mut Learner,
        batches: &mut [(u64, Trained)],
        shares: &[f32],
        ranks: &[usize],
        trainable: &[bool],
    ) -> Result<()> {
        // the batch in whose matrices each device adds
        let mut first: Vec<Option<usize>> = vec![None; self.gpus.len()];
        for (i, (&rank, &share)) in ranks.iter().zip(shares).enumerate() {
            let backend = self.gpus[rank].backend();
            let (before, rest) = batches.split_at_mut(i);
            let values = &mut rest[0].1.gradient.values;
            let own = || trainable.iter().enumerate().filter(|(_, trainable)| **trainable).map(|(p, _)| p);
            own().for_each(|p| backend.scale(share, values[p].view_mut()));
            match first[rank] {
                None => first[rank] = Some(i),
                Some(first) => {
                    let to = &mut before[first].1.gradient.values;
                    own().for_each(|p| {
                        Add { alpha: 1.0, x: values[p].view(), y: to[p].view_mut() }.run(backend)
                    });
                }
            }
        }
        for ((none, gpu), _) in self.none.iter_mut().zip(self.gpus).zip(&first).filter(|(_, of)| of.is_none())
        {
            none.resize_with(trainable.len(), Matrix::default);
            for (p, none) in none.iter_mut().enumerate().filter(|(p, _)| trainable[*p]) {
                let like = &batches[0].1.gradient.values[p];
                none.resize(like.num_rows(), like.num_cols());
                gpu.backend().fill(0.0, none.view_mut());
            }
        }
        let mut all: Vec<Vec<ViewMut>> =
            self.none.iter_mut().map(|values| of_trainable(values, trainable)).collect();
        for (i, (_, slot)) in batches.iter_mut().enumerate() {
            if first[ranks[i]] == Some(i) {
                all[ranks[i]] = of_trainable(&mut slot.gradient.values, trainable);
            }
        }
        self.all.sum(all)?;
        for gpu in self.gpus {
            gpu.backend().check()?;
        }
        let sums = match first[0] {
            Some(i) => &mut batches[i].1.gradient.values,
            None => &mut self.none[0],
        };
        let mut p = 0;
        learner.model.visit_mut(&mut |_, param| {
            if param.trainable {
                std::mem::swap(&mut param.grad, &mut sums[p]);
            }
            p += 1;
        });
        Ok(())
    }
}

/// The matrices of trainable parameters.
fn of_trainable<'m>(all: &'m mut [Matrix], trainable: &[bool]) -> Vec<ViewMut<'m>> {
    let of = all.iter_mut().zip(trainable).filter(|(_, trainable)| **trainable);
    of.map(|(matrix, _)| matrix.view_mut()).collect()
}

/// [`reduce`] over the batches of a round on all ranks, if there are several. Also returns the mean
/// loss and the number of seeds of each batch.
///
/// # Errors
/// A device fails, or a rank did not take part.
pub(super) fn reduce_over_ranks(
    learner: &mut Learner,
    batches: &mut [(u64, Trained)],
    on_devices: Option<&mut OnDevices>,
) -> Result<(f64, Vec<(f64, usize)>)> {
    let share = |(_, Trained { batch, gradient, .. }): &(u64, Trained)| BatchShare {
        loss: gradient.loss,
        seeds: num_seeds(batch),
        nodes: weight(batch),
        global: batch.seeds.global_size,
    };
    let shares: Vec<BatchShare> = batches.iter().map(share).collect();
    let mean = reduce(learner, batches, on_devices)?;
    let Some(exchange) = learner.exchange.clone() else {
        return Ok((mean, shares.iter().map(|share| (share.loss, share.seeds)).collect()));
    };
    let losses = exchange.round(&mut learner.model, &shares)?;
    let all: f64 = losses.iter().map(|(_, seeds)| *seeds as f64).sum();
    let mean = match &losses[..] {
        [(loss, _)] => *loss,
        _ => losses.iter().map(|(loss, seeds)| loss * *seeds as f64 / all.max(1.0)).sum(),
    };
    Ok((mean, losses))
}

/// Number of seeds of a batch, or of the edges that it learns, by which it counts in a mean.
fn weight(batch: &Sampled) -> usize {
    batch.seeds.links.as_ref().map_or(batch.seeds.nodes.len(), |links| links.positives)
}

/// Sets a matrix in host memory to the sum of others, each times its share, in their order.
pub(crate) fn add_shares<'m>(from: impl Iterator<Item = (&'m Matrix, f32)>, to: &mut Matrix) {
    let to = to.view_mut().host();
    to.fill(0.0);
    for (from, share) in from {
        to.iter_mut().zip(from.view().host()).for_each(|(to, &from)| *to += share * from);
    }
}

/// Sets the learner's gradient to the mean over these batches, weighted by their seeds: the
/// gradient of one batch of all their seeds. Running statistics become the mean of theirs. A single
/// gradient is taken as it is. Returns the mean loss. The model is not whole until it is updated.
///
/// # Errors
/// A device fails.
pub(super) fn reduce(
    learner: &mut Learner,
    batches: &mut [(u64, Trained)],
    on_devices: Option<&mut OnDevices>,
) -> Result<f64> {
    let seeds = |slot: &Trained| weight(&slot.batch) as f64;
    // a rank may own no seed of a round
    let all: f64 = batches.iter().map(|(_, slot)| seeds(slot)).sum::<f64>().max(1.0);
    let shares: Vec<f32> = batches.iter().map(|(_, slot)| (seeds(slot) / all) as f32).collect();
    learner.is_whole = false;
    let backend = learner.context.backend;
    let mut trainable = Vec::new();
    learner.model.visit(&mut |_, param| trainable.push(param.trainable));
    let mut summed = false;
    if let Some(devices) = on_devices.filter(|_| batches.len() > 1) {
        let ranks =
            batches.iter().map(|(_, slot)| devices.rank(slot, &trainable)).collect::<Option<Vec<_>>>();
        if let Some(ranks) = ranks {
            devices.sum(learner, batches, &shares, &ranks, &trainable)?;
            summed = true;
        }
    }
    let mut index = 0;
    learner.model.visit_mut(&mut |_, param| {
        let to = if param.trainable { &mut param.grad } else { &mut param.value };
        if param.trainable && summed {
            // the all-reduce has set it
        } else if let [(_, slot)] = batches {
            std::mem::swap(to, &mut slot.gradient.values[index]);
        } else if batches.iter().any(|(_, slot)| slot.gradient.values[index].is_on_device()) {
            // from device to device, in the order of the batches
            backend.fill(0.0, to.view_mut());
            for ((_, slot), &share) in batches.iter().zip(&shares) {
                Add { alpha: share, x: slot.gradient.values[index].view(), y: to.view_mut() }.run(backend);
            }
        } else {
            let from = batches.iter().map(|(_, slot)| &slot.gradient.values[index]);
            add_shares(from.zip(shares.iter().copied()), to);
        }
        index += 1;
    });
    let loss = |Gradient { loss, .. }: &Gradient| *loss;
    if let [(_, slot)] = batches {
        return Ok(loss(&slot.gradient));
    }
    Ok(batches.iter().map(|(_, slot)| loss(&slot.gradient) * seeds(slot) / all).sum())
}
