//! Sums of gradients and losses over ranks.
//!
//! Shares of a batch of seeds have the weights of their seeds, those of a batch of links the
//! weights of their positives, of which each has as many negatives. Subgraphs, of which every rank
//! draws its own, have the weights of their nodes, as the batches of a round of a single process
//! do.

use std::{
    cell::Cell,
    sync::{PoisonError, atomic::Ordering::Relaxed},
};

use graphmill_core::keyed;
use graphmill_distributed::numbers::{of_words, to_words};
use graphmill_loader::Extracted;
use graphmill_nn::model::{Model, Part};

use super::{Ranks, gradients::parts};
use crate::{
    Result,
    learner::{BatchShare, GradientExchange, StepContext, num_seeds},
};

impl Ranks {
    /// Sums the shares of each batch over ranks, and agrees on a stop and on a checkpoint.
    fn exchange_losses(&self, own: &[Share]) -> Result<Vec<Share>> {
        let wishes = [&self.wants_stop, &self.wants_save].map(|wants| u32::from(wants.load(Relaxed)));
        let mut words = vec![wishes[0] | wishes[1] << 1];
        for &Share { loss, seeds, weight, is_subgraph } in own {
            words.extend(to_words([loss.to_bits(), seeds as u64, weight.to_bits(), is_subgraph.into()]));
        }
        let gathered = self.all.gather(self.steps.fetch_add(1, Relaxed), &words)?;
        let (mut sums, mut wishes) = (vec![Share::default(); own.len()], 0);
        for (rank, words) in gathered.iter().enumerate() {
            let Some((&of_rank, shares)) = words.split_first() else { continue };
            let numbers: Vec<u64> = of_words(shares).collect();
            if numbers.len() != 4 * own.len() {
                let message = format!("losses of {} batches, not of {}", numbers.len() / 4, own.len());
                return Err(graphmill_core::Error::Peer { rank, message }.into());
            }
            wishes |= of_rank;
            for (sum, numbers) in sums.iter_mut().zip(numbers.chunks_exact(4)) {
                sum.loss += f64::from_bits(numbers[0]);
                sum.seeds += numbers[1] as usize;
                sum.weight += f64::from_bits(numbers[2]);
                sum.is_subgraph |= numbers[3] == 1;
            }
        }
        self.stops.store(wishes & 1 != 0, Relaxed);
        self.saves.store(wishes & 2 != 0, Relaxed);
        self.seeds.fetch_add(own.iter().map(|own| own.seeds as u64).sum(), Relaxed);
        Ok(sums)
    }
}

impl Ranks {
    /// Sums this rank's share of a batch over ranks, and agrees on a stop. Returns the mean loss
    /// and the number of seeds of the batch, and the factor of this rank's gradient in that of the
    /// batch, which has none if no rank has a node.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn batch_loss(&self, own: BatchShare) -> Result<(f64, usize, Option<f32>)> {
        let own = Share::of(own);
        let sum = self.exchange_losses(&[own])?[0];
        let (loss, seeds) = sum.mean();
        let all = if sum.is_subgraph { sum.weight } else { 1.0 };
        Ok((loss, seeds, (sum.weight > 0.0).then_some((own.weight / all) as f32)))
    }

    /// Sums this rank's shares of the batches of a round over ranks, and agrees on a stop. Returns
    /// the mean loss and the number of seeds of each batch, and the factor of this rank's gradient
    /// of each batch in that of the round, which has none if no rank has a node.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn round_losses(&self, own: &[BatchShare]) -> Result<RoundLosses> {
        let sums = self.exchange_losses(&own.iter().map(|&own| Share::of(own)).collect::<Vec<_>>())?;
        let weight = |(own, sum): (&BatchShare, &Share)| own.global.map_or(sum.weight, |seeds| seeds as f64);
        let all: f64 = own.iter().zip(&sums).map(weight).sum();
        let factors = || own.iter().map(|own| (own.nodes as f64 / all) as f32).collect();
        let of_batches = sums.iter().map(|sum| sum.mean()).collect();
        Ok(RoundLosses { of_batches, factors: (all > 0.0).then(factors) })
    }
}

/// Losses of the batches of a round.
pub(crate) struct RoundLosses {
    /// Mean loss and number of seeds of each batch.
    pub(crate) of_batches: Vec<(f64, usize)>,
    /// Factor of the gradient of each batch in that of the round; `None` if no batch has one.
    pub(crate) factors: Option<Vec<f32>>,
}

/// This rank's share of a batch, or the sum over ranks.
///
/// A share of a batch of seeds weighs its fraction of the seeds. A subgraph weighs its number of
/// nodes, and sums are divided by the sum of the weights.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Mean loss times weight.
    loss: f64,
    /// Number of seeds with a loss.
    seeds: usize,
    weight: f64,
    is_subgraph: bool,
}

impl Share {
    /// Share of a batch with this mean loss.
    fn of(BatchShare { loss, seeds, nodes, global }: BatchShare) -> Self {
        let weight = match global {
            Some(all) => nodes as f64 / all.max(1) as f64,
            None => nodes as f64,
        };
        Self { loss: loss * weight, seeds, weight, is_subgraph: global.is_none() }
    }

    /// Mean loss and number of seeds of a batch whose sum of shares this is.
    fn mean(self) -> (f64, usize) {
        let loss = if self.is_subgraph { self.loss / self.weight.max(1.0) } else { self.loss };
        (loss, self.seeds)
    }
}

/// Factor of the summed gradients of batches whose sums of shares these are.
fn scale(sums: &[Share]) -> f32 {
    match sums.iter().any(|sum| sum.is_subgraph) {
        true => 1.0 / sums.iter().map(|sum| sum.weight).sum::<f64>().max(1.0) as f32,
        false => 1.0,
    }
}

impl GradientExchange for Ranks {
    fn gradient(
        &self,
        context: &mut StepContext,
        model: &mut Model,
        batch: &Extracted,
        number: u64,
    ) -> Result<(f64, usize)> {
        if !self.book.trains() {
            model.zero_grad(context.backend);
            return Ok(self.exchange_losses(&[Share::default()])?[0].mean());
        }
        let seeds = &batch.sampled.seeds;
        let nodes = seeds.links.as_ref().map_or(seeds.nodes.len(), |links| links.positives);
        let of =
            |loss| BatchShare { loss, seeds: num_seeds(&batch.sampled), nodes, global: seeds.global_size };
        let share = Share::of(of(0.0)).weight;
        let mut gradients = self.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        let is_sent = Cell::new(false);
        let mut after = |model: &mut Model, part: Part| {
            is_sent.set(true);
            gradients.begin(model, part, share as f32);
        };
        let key = keyed::key(&[context.seed, number, self.rank() as u64, 0x6472_6f70]);
        let loss = if seeds.nodes.is_empty() {
            0.0
        } else {
            context.gradient_by_part(model, batch, key, &mut after)
        };
        if !is_sent.get() {
            // without seeds, or with a loss that is not finite, the other ranks still wait for the
            // sums of all parts
            model.zero_grad(context.backend);
            for part in parts(model) {
                after(model, part);
            }
        }
        let sums = self.exchange_losses(&[Share::of(of(loss))])?;
        gradients.finish(model, scale(&sums))?;
        Ok(sums[0].mean())
    }

    fn round(&self, model: &mut Model, batches: &[BatchShare]) -> Result<Vec<(f64, usize)>> {
        let means = |sums: &[Share]| sums.iter().map(|sum| sum.mean()).collect();
        if !self.book.trains() {
            return Ok(means(&self.exchange_losses(&vec![Share::default(); batches.len()])?));
        }
        let own: usize = batches.iter().map(|batch| batch.nodes).sum();
        let all: Option<usize> = batches.iter().map(|batch| batch.global).sum();
        let share = match all {
            Some(all) => own as f64 / all.max(1) as f64,
            None => own as f64,
        };
        let mut gradients = self.gradients.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts(model) {
            gradients.begin(model, part, share as f32);
        }
        let sums =
            self.exchange_losses(&batches.iter().map(|&batch| Share::of(batch)).collect::<Vec<_>>())?;
        gradients.finish(model, scale(&sums))?;
        Ok(means(&sums))
    }
}
