//! A custom sampler, which is registered by name and draws the minibatches of a training run.
//!
//! Run it with `cargo run --release --example 02-own-sampler`.

use std::sync::Arc;

use clap::Args;
use graphmill::{
    dataset::generate::{GenerateOptions, generate},
    engine::config::Fanout,
    graph::{
        Result,
        keyed::{self, Stream},
        options::{OptionGroup, OptionSet},
        table::Entry,
    },
    loader::sampler::{
        self, HopProperties, HopRequest, HopSampler, HopScratch, NeighborAccess, SamplerKind,
        inference::InferenceNeighbors,
    },
    prelude::*,
};
use serde::{Deserialize, Serialize};

/// Options of [`Window`], each available as a flag, a key of files and a keyword of Python.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowOptions {
    /// Draw the same window of a node in every batch.
    #[arg(long)]
    pub window_fixed: bool,
}

impl OptionSet for WindowOptions {}

/// A random window of each node's list of in-neighbours.
///
/// Every neighbour is equally likely, but neighbours with nearby ids are drawn together. Costs one
/// random number per node, and reads memory sequentially.
pub struct Window {
    /// Neighbours of each hop, from the seeds outward; -1 takes all.
    fanout: Vec<i64>,
    /// True if a node's window is the same in every batch.
    is_fixed: bool,
}

impl HopSampler for Window {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn properties(&self) -> HopProperties {
        HopProperties { is_per_node: true, access: NeighborAccess::OwnList, ..HopProperties::default() }
    }

    fn sample_hop(&self, hop: &HopRequest, _: &mut HopScratch, block: &mut Block) -> Result<()> {
        let fanout = usize::try_from(self.fanout[hop.hop]).unwrap_or(usize::MAX);
        block.indices.clear();
        block.indptr.clear();
        block.indptr.push(0);
        for &v in hop.dst {
            let row = hop.graph.in_neighbors(v);
            let count = row.len().min(fanout);
            // a function of seed, epoch, batch, hop and node, so that threads do not affect it
            let key = if self.is_fixed { hop.hop as u64 } else { hop.hop_key() };
            let mut stream = Stream::new(keyed::key(&[key, hop.name(v).into()]));
            let first = if count < row.len() { stream.below(row.len() as u64) as usize } else { 0 };
            block.indices.extend((first..first + count).map(|i| row[i % row.len()]));
            let end = u32::try_from(block.indices.len());
            block.indptr.push(end.map_err(|_| sampler::too_many(block.indices.len() as u64))?);
        }
        Ok(())
    }
}

/// Row of the table of samplers.
pub const WINDOW: Entry<SamplerKind> = Entry {
    name: "window",
    summary: "a random window of each node's list of in-neighbours",
    source: "",
    options: &[OptionGroup::of::<WindowOptions>()],
    make: SamplerKind::hops(
        |with, _| {
            let is_fixed = with.own.get::<WindowOptions>().window_fixed;
            Ok(Arc::new(Window { fanout: with.fanout.to_vec(), is_fixed }))
        },
        // every neighbour is equally likely, so inference takes the mean over all
        |_, _| Ok(InferenceNeighbors::default()),
    ),
};

/// Trains with each of two samplers.
pub fn main() -> graphmill::Result<()> {
    sampler::TABLE.register(WINDOW)?;
    let options = GenerateOptions { nodes: 3000, classes: 4, dim: 16, signal: 0.4, ..Default::default() };
    let data = generate("sbm", &options)?;
    for sampler in ["neighbor", "window"] {
        let config = TrainConfig {
            sampler: sampler.into(),
            fanout: Fanout(vec![5, 5]),
            epochs: 5,
            batch_size: 128,
            hidden: 32,
            ..TrainConfig::default()
        };
        let trained = graphmill::train(&config, &data)?;
        let score = trained.summary().test.score.unwrap_or(0.0);
        let edges: u64 = trained.summary().epochs.iter().map(|epoch| epoch.sampled_edges).sum();
        println!("{sampler:8}: {edges} edges drawn, test accuracy {score:.3}");
    }
    Ok(())
}
