//! What the parts ask of each other in an epoch of distributed training, counted by drawing it.
//!
//! Every part's machine trains on its own training nodes of each minibatch and samples their
//! neighbours hop by hop. A node whose in-neighbours another part has is asked for there, once a
//! hop for each part that reached it, however many of its nodes did; the answer is the edges that
//! were drawn. In the end the rows of the distinct input nodes that another part owns are asked
//! for.
//!
//! Minibatches are those of [`crate::trainer::train`] with the same options: the same order, and
//! the same draws for every node, since these depend on seed, epoch, minibatch, hop and node alone.

use graphmill_core::progress::{Progress, Unit};
use graphmill_data::{Dataset, partition::PartitionBook};
use graphmill_loader::{Sampled, Seeds, Workspace, feature::Host};
use rayon::prelude::*;
use serde::Serialize;

use crate::{Error, Result, TrainConfig, build, hotness, stage::Loader};

/// What is asked at a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Nodes whose neighbours are drawn, over all parts: the questions there would be if no part
    /// had any node of its own.
    pub nodes: u64,
    /// Those of them that another part owns: requests.
    pub requests: u64,
    /// Edges in the answers.
    pub edges: u64,
}

/// What the parts ask of each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CrossRequests {
    /// Requests of sampling in an epoch: nodes asked of another part, over all hops.
    pub per_epoch: f64,
    /// Of a minibatch.
    pub per_batch: f64,
    /// Edges in the answers, of an epoch.
    pub edges_per_epoch: f64,
    /// Distinct input nodes of a minibatch whose feature rows another part owns, part by part, of
    /// an epoch.
    pub rows_per_epoch: f64,
    /// Minibatches of an epoch.
    pub batches_per_epoch: u64,
    /// Minibatches that were drawn; what an epoch has is made of these.
    pub batches: u64,
    /// What was counted in those, hop by hop, the first next to the seeds.
    pub hops: Vec<Hop>,
    /// Distinct input nodes in those, part by part.
    pub rows: u64,
    /// Those of them that another part owns.
    pub remote_rows: u64,
    /// How many of those come to one part in a minibatch, or go out of it, where that is most, of
    /// the mean over the parts.
    pub skew: f64,
}

/// Counts what one part asks for in one minibatch; `ways` are the rows that come to each part and
/// go out of it.
fn count(part: u16, batch: &Sampled, book: &PartitionBook, hops: &mut [Hop], ways: &mut [[u64; 2]]) -> u64 {
    let remote = |&v: &u32| book.part_of(v) != part;
    // destinations of every hop are the first of the input nodes
    for (hop, block) in hops.iter_mut().zip(batch.blocks.iter().rev()) {
        hop.nodes += block.num_dst as u64;
        for (i, _) in batch.input_nodes[..block.num_dst].iter().enumerate().filter(|(_, v)| remote(v)) {
            hop.requests += 1;
            hop.edges += block.edges(i).len() as u64;
        }
    }
    let mut rows = 0;
    for &v in batch.input_nodes.iter().filter(|v| remote(v)) {
        rows += 1;
        ways[usize::from(book.part_of(v))][1] += 1;
    }
    ways[usize::from(part)][0] += rows;
    rows
}

/// Draws the first epoch's minibatches, `batches` of them at most (0: all), and counts. Parallel.
///
/// # Errors
/// An impossible option, or a sampler of whole subgraphs.
pub fn requests(
    config: &TrainConfig,
    batches: u64,
    data: &Dataset,
    book: &PartitionBook,
    watch: &dyn Progress,
) -> Result<CrossRequests> {
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    if sampler.properties().subgraphs.is_some() {
        let name = &config.sampler;
        return Err(Error::usage(format!(
            "--sampler {name} draws whole subgraphs; requests are those of a sampler from seeds, such as neighbor"
        )));
    }
    let feature = Host::new(&data.features);
    let loader = hotness::loader(config, data, &*sampler, &*order, &feature)?;
    let all = loader.num_batches();
    let drawn = if batches == 0 { all } else { all.min(batches) };
    let mut seeds = Vec::new();
    loader.order(0, &mut seeds);

    watch.stage("drawing minibatches", Some(drawn), Unit::Rows);
    let parts = u64::from(book.parts());
    let tasks = drawn * parts;
    let side_by_side = (rayon::current_num_threads() as u64).clamp(1, tasks.max(1)) as usize;
    let hops = sampler.properties().num_layers;
    let mut slots: Vec<Slot> =
        (0..side_by_side).map(|_| Slot::new(data.num_nodes(), hops, parts as usize)).collect();
    let mut next = 0;
    // of the minibatch whose parts are being drawn; and the busiest ways of those that were
    let (mut ways, mut busiest) = (vec![[0u64; 2]; parts as usize], 0);
    while next < tasks {
        let group = side_by_side.min((tasks - next) as usize);
        slots[..group].par_iter_mut().enumerate().try_for_each(|(i, slot)| {
            let task = next + i as u64;
            slot.draw(&loader, &seeds, task / parts, (task % parts) as u16, book)
        })?;
        for (task, slot) in (next..).zip(&slots[..group]) {
            let these = slot.ways.as_flattened();
            ways.as_flattened_mut().iter_mut().zip(these).for_each(|(sum, rows)| *sum += rows);
            if (task + 1) % parts == 0 {
                busiest += ways.as_flattened().iter().copied().max().unwrap_or(0);
                ways.fill([0; 2]);
            }
        }
        next += group as u64;
        watch.check()?;
        watch.done(next / parts);
    }

    let mut sum = CrossRequests { batches: drawn, batches_per_epoch: all, ..CrossRequests::default() };
    sum.hops.resize(hops, Hop::default());
    for slot in &slots {
        for (sum, hop) in sum.hops.iter_mut().zip(&slot.hops) {
            sum.nodes += hop.nodes;
            sum.requests += hop.requests;
            sum.edges += hop.edges;
        }
        sum.rows += slot.rows;
        sum.remote_rows += slot.remote;
    }
    sum.skew = if busiest > 0 { (busiest * parts) as f64 / sum.remote_rows as f64 } else { 1.0 };
    let epochs = all as f64 / drawn.max(1) as f64;
    let requests: u64 = sum.hops.iter().map(|hop| hop.requests).sum();
    let edges: u64 = sum.hops.iter().map(|hop| hop.edges).sum();
    sum.per_epoch = requests as f64 * epochs;
    sum.per_batch = requests as f64 / drawn.max(1) as f64;
    sum.edges_per_epoch = edges as f64 * epochs;
    sum.rows_per_epoch = sum.remote_rows as f64 * epochs;
    Ok(sum)
}

/// Room for a minibatch, and what was counted in those it held.
struct Slot {
    workspace: Workspace,
    memory: Seeds,
    hops: Vec<Hop>,
    /// Of the last one.
    ways: Vec<[u64; 2]>,
    rows: u64,
    remote: u64,
}

impl Slot {
    fn new(nodes: usize, hops: usize, parts: usize) -> Self {
        let mut workspace = Workspace::new(nodes);
        workspace.set_parallel(false);
        let (memory, hops) = (Seeds::default(), vec![Hop::default(); hops]);
        Self { workspace, memory, hops, ways: vec![[0; 2]; parts], rows: 0, remote: 0 }
    }

    /// Draws what `part` draws of minibatch `number`, and counts.
    fn draw(
        &mut self,
        loader: &Loader,
        order: &[u32],
        number: u64,
        part: u16,
        book: &PartitionBook,
    ) -> Result<()> {
        self.ways.fill([0; 2]);
        let mut seeds = loader.pick(order, number, std::mem::take(&mut self.memory));
        seeds.nodes.retain(|&v| book.part_of(v) == part);
        if seeds.nodes.is_empty() {
            self.memory = seeds;
            return Ok(());
        }
        let batch = loader.sample(0, &mut self.workspace, seeds)?;
        self.rows += batch.input_nodes.len() as u64;
        self.remote += count(part, &batch, book, &mut self.hops, &mut self.ways);
        self.memory = batch.recycle();
        Ok(())
    }
}
