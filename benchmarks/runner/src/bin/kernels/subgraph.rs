//! One subgraph of frontier sampling.

use std::path::Path;

use anyhow::{Context, Result};
use graphmill_core::{Block, block::Induce};
use graphmill_data::Dataset;
use graphmill_loader::subgraph::{
    BatchKey, SubgraphSampler, SubgraphScratch,
    frontier::{Frontier, FrontierOptions},
};

/// Number of nodes drawn for a subgraph, and of those in the frontier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    pub(crate) draws: usize,
    pub(crate) frontier: usize,
}

/// Draws a subgraph of the dataset and returns it as a block.
pub(crate) fn draw(dataset: &str, Draws { draws, frontier }: Draws) -> Result<Block> {
    let data = Dataset::open(dataset)?;
    let options = FrontierOptions { frontier_size: frontier, ..FrontierOptions::default() };
    let sampler =
        Frontier::new(&data.graph, &data.split.train, draws, &options).map_err(anyhow::Error::msg)?;
    let (mut nodes, mut block) = (Vec::new(), Block::default());
    let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
    sampler.sample(&data.graph, key, &mut SubgraphScratch::default(), &mut nodes)?;
    Induce::default()
        .block(&data.graph, &nodes, &mut block, |_| {})
        .context("the subgraph has too many edges; use fewer --draws")?;
    Ok(block)
}

/// Writes a subgraph that [`draw`] returns.
pub(crate) fn write(dataset: &str, draws: Draws, out: &Path) -> Result<()> {
    let block = draw(dataset, draws)?;
    crate::write_block(out, &block.indptr, &block.indices)
}
