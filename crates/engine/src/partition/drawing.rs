//! Time of the draws that a graph store does for the ranks that train.

use std::{sync::Arc, time::Instant};

use graphmill_core::Block;
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey, Seeds, Workspace,
    feature::Host,
    sampler::{HopRequest, HopScratch, NeighborAccess},
};

use crate::{Result, TrainConfig, build, hotness, stage::Loader};

/// Number of minibatches that are timed.
const TIMED: u64 = 8;
/// Number of rounds over a hop; the quickest counts.
const ROUNDS: usize = 3;

/// Seconds in which one thread draws each hop of a rank's share of a minibatch, from the seeds
/// outward, in the mean over some minibatches. `own` are the owners that the rank knows.
///
/// A service of a graph store draws a request on one thread. All seconds are 0 if the training rank
/// draws from lists that the stores send.
///
/// # Errors
/// An impossible option, a sampler of subgraphs, or a batch cannot be drawn.
pub fn drawing_seconds(config: &TrainConfig, data: &Dataset, own: &Arc<NodeOwnership>) -> Result<Vec<f64>> {
    let hop_sampler = build::hop_sampler(config, data)?;
    let mut seconds = vec![0.0; hop_sampler.num_layers()];
    if hop_sampler.properties().access != NeighborAccess::OwnList {
        return Ok(seconds);
    }
    let aggregation = build::model_of_shapes(config, data)?.aggregation();
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    let feature = Host::new(&data.features);
    let loader = hotness::loader(config, data, &*sampler, &*order, &feature)?;
    let loader = Loader { own: Some(own.clone()), aggregation, ..loader };
    let batches = loader.num_batches().min(TIMED);
    let mut seeds = Vec::new();
    loader.order(0, &mut seeds);
    let (mut workspace, mut memory) = (Workspace::new(data.num_nodes()), Seeds::default());
    let (mut scratch, mut block) = (HopScratch::default(), Block::default());
    scratch.parallel = false;
    for number in 0..batches {
        let picked = loader.pick(0, &seeds, number, std::mem::take(&mut memory))?;
        let batch = loader.sample(0, &mut workspace, picked)?;
        let key = BatchKey { seed: config.seed, epoch: 0, batch: number };
        // the destinations of every hop are a prefix of the input nodes
        for ((hop, drawn), sum) in batch.blocks.iter().rev().enumerate().zip(&mut seconds) {
            let dst = &batch.input_nodes[..drawn.num_dst];
            let request = HopRequest { aggregation, ..HopRequest::new(&data.graph, hop, dst, key) };
            let mut least = f64::INFINITY;
            for _ in 0..ROUNDS {
                block.clear();
                block.edge_weight.clear();
                let clock = Instant::now();
                hop_sampler.sample_hop(&request, &mut scratch, &mut block)?;
                least = least.min(clock.elapsed().as_secs_f64());
            }
            *sum += least / batches as f64;
        }
        memory = batch.recycle();
    }
    Ok(seconds)
}
