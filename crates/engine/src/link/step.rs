//! Loss of a batch of links.
//!
//! ```text
//! rows of seeds ─► rows of sources and destinations ─► decoder ─► scores ─► loss
//!       ▲                                                            │
//!       └── gradients, summed by seed in the order of the pairs ◄────┘
//! ```

use graphmill_core::{NodeId, memory, options::one_of};
use graphmill_loader::link::{LinkBatch, NegativeKind, negatives_that};
use graphmill_nn::{
    Matrix, Pass, Saved, View, ViewMut,
    backend::ops::Gather,
    link::{
        decoder::{Decoder, Pairs},
        loss::{self, LinkGrads, LinkLoss, LinkLossKind, LinkLossOptions, LinkScores},
    },
};
use rayon::prelude::*;

use crate::{
    Error, Result, TrainConfig,
    config::{link::LinkOptions, link_task::loss_name},
};

/// Least number of seeds whose gradients a task sums.
const MIN_TASK_LEN: usize = 64;

/// Loss of a run that learns links.
#[derive(Clone, Copy)]
pub struct LinkObjective {
    loss: LinkLoss,
    options: LinkLossOptions,
    /// Logarithm of the expected number of draws of a negative, which `sampled-softmax` reads.
    log_expected: f32,
}

impl LinkObjective {
    /// Loss of a run on a graph of `nodes` nodes.
    ///
    /// # Errors
    /// The loss is unknown, or does not fit the negatives.
    pub fn new(config: &TrainConfig, nodes: usize) -> Result<Self> {
        let options: LinkOptions = config.own.get();
        let kind = find_loss(config, |kind| kind.is_uniform)?;
        let log_expected = (options.num_negatives as f64 / nodes.max(1) as f64).ln() as f32;
        Ok(Self { loss: kind.loss, options: config.own.get(), log_expected })
    }
}

/// The loss of a run, whose negatives have known probabilities if `has_known` is true of them.
///
/// # Errors
/// The loss is unknown, or corrects scores for probabilities that are not known.
pub(crate) fn find_loss(config: &TrainConfig, has_known: fn(&NegativeKind) -> bool) -> Result<LinkLossKind> {
    let options: LinkOptions = config.own.get();
    let name = loss_name(config);
    let entry = loss::TABLE.find(name).map_err(|error| Error::usage(format!("--loss {name}: {error}")))?;
    if entry.make.corrects_draws && !options.negative_kind().is_some_and(has_known) {
        let usable = one_of(&negatives_that(has_known));
        return Err(Error::usage(format!(
            "--loss {name}: it corrects scores for the probabilities of negatives, which are known for \
             --negatives {usable} and not for {}; use that, or --loss info-nce",
            options.negatives
        )));
    }
    Ok(entry.make)
}

/// Scratch matrices of a step. Their memory is reused from batch to batch.
#[derive(Default)]
pub struct LinkScratch {
    /// Rows of the pairs' sources and destinations.
    ends: [Matrix; 2],
    /// Numbers of their nodes, if the seeds have some.
    nodes: [Vec<NodeId>; 2],
    /// Their gradients.
    grads: [Matrix; 2],
    scores: Matrix,
    score_grads: Matrix,
    saved: Saved,
    log_expected: Vec<f32>,
    by_seed: PairsOfSeeds,
}

impl LinkScratch {
    /// Computes the scores of all pairs and their loss. Overwrites the gradients of the scores.
    fn forward(
        &mut self,
        objective: &LinkObjective,
        decoder: &dyn Decoder,
        pass: &Pass,
        (links, seeds): (&LinkBatch, &[NodeId]),
        rows: View,
    ) -> f64 {
        let ids = [&links.source, &links.destination];
        for ((ends, nodes), ids) in self.ends.iter_mut().zip(&mut self.nodes).zip(ids) {
            ends.resize(ids.len(), rows.num_cols());
            Gather { src: rows, ids, dst: ends.view_mut() }.run(pass.backend);
            nodes.clear();
            if !seeds.is_empty() {
                memory::demand_extend(nodes, ids.iter().map(|&seed| seeds[seed as usize]));
            }
        }
        let pairs = pairs(&self.ends, &self.nodes, links);
        decoder.forward(pass, &pairs, &mut self.saved, &mut self.scores);
        self.score_grads.resize(links.source.len(), 1);
        let (positive, negative) = self.scores.view().host().split_at(links.positives);
        self.log_expected.clear();
        memory::demand_len(&mut self.log_expected, negative.len(), objective.log_expected);
        let scores = LinkScores { positive, negative, weight: &[], log_expected: &self.log_expected };
        let (positive, negative) = self.score_grads.view_mut().host().split_at_mut(links.positives);
        (objective.loss)(&scores, &objective.options, LinkGrads { positive, negative })
    }

    /// Loss of a batch's pairs, from the rows of its seeds. The numbers of the seeds' nodes may be
    /// empty if the decoder does not read the graph around pairs.
    pub fn loss(
        &mut self,
        objective: &LinkObjective,
        decoder: &dyn Decoder,
        pass: &Pass,
        of: (&LinkBatch, &[NodeId]),
        rows: View,
    ) -> f64 {
        self.forward(objective, decoder, pass, of, rows)
    }

    /// Loss of a batch's pairs, and the gradients of the decoder's parameters, which are added, and
    /// of the seeds' rows, which are overwritten. If the loss is not finite, no gradient is
    /// computed. Seeds are those of [`LinkScratch::loss`].
    pub fn gradient(
        &mut self,
        objective: &LinkObjective,
        decoder: &mut dyn Decoder,
        pass: &Pass,
        (links, seeds): (&LinkBatch, &[NodeId]),
        (rows, grad): (View, ViewMut),
    ) -> f64 {
        let loss = self.forward(objective, decoder, pass, (links, seeds), rows);
        if !loss.is_finite() {
            return loss;
        }
        let [source, destination] = &mut self.grads;
        let pairs = pairs(&self.ends, &self.nodes, links);
        let ends = [&mut *source, &mut *destination];
        decoder.backward(pass, &pairs, &mut self.saved, self.score_grads.view(), ends);
        self.by_seed.refill(links, rows.num_rows());
        self.by_seed.sum([source.view(), destination.view()], grad);
        loss
    }
}

/// The pairs of a batch with the rows of their ends.
fn pairs<'p>(ends: &'p [Matrix; 2], nodes: &'p [Vec<NodeId>; 2], links: &'p LinkBatch) -> Pairs<'p> {
    let [source, destination] = ends.each_ref().map(Matrix::view);
    Pairs { source, destination, relation: &links.relation, nodes: nodes.each_ref().map(Vec::as_slice) }
}

/// Pairs of each seed: the even numbers `2 p` are sources of pair `p`, the odd ones destinations.
#[derive(Default)]
struct PairsOfSeeds {
    indptr: Vec<u32>,
    ends: Vec<u32>,
    next: Vec<u32>,
}

impl PairsOfSeeds {
    /// Sorts the ends of the pairs by seed, each seed's in the order of the pairs. O(P).
    fn refill(&mut self, links: &LinkBatch, seeds: usize) {
        self.indptr.clear();
        memory::demand_len(&mut self.indptr, seeds + 1, 0);
        let ends = || links.source.iter().zip(&links.destination).flat_map(|(&u, &v)| [u, v]);
        ends().for_each(|seed: NodeId| self.indptr[seed as usize + 1] += 1);
        for i in 0..seeds {
            self.indptr[i + 1] += self.indptr[i];
        }
        memory::demand_copy(&mut self.next, &self.indptr[..seeds]);
        self.ends.clear();
        memory::demand_len(&mut self.ends, 2 * links.source.len(), 0);
        for (number, seed) in ends().enumerate() {
            let next = &mut self.next[seed as usize];
            self.ends[*next as usize] = number as u32;
            *next += 1;
        }
    }

    /// Sums the rows of the pairs' ends by seed, in the order of the pairs whatever the number of
    /// threads.
    fn sum(&self, [source, destination]: [View; 2], out: ViewMut) {
        let width = source.num_cols();
        let (source, destination) = (source.host(), destination.host());
        let rows = out.host().par_chunks_exact_mut(width.max(1)).enumerate();
        rows.with_min_len(MIN_TASK_LEN).for_each(|(seed, out)| {
            out.fill(0.0);
            let of_seed = self.indptr[seed] as usize..self.indptr[seed + 1] as usize;
            for &number in &self.ends[of_seed] {
                let from = if number % 2 == 0 { source } else { destination };
                let row = &from[(number / 2) as usize * width..][..width];
                out.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
        });
    }
}
