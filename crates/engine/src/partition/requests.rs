//! Requests between ranks in an epoch of distributed training, counted by drawing it.
//!
//! The machine of each part trains on its own training nodes of each minibatch and samples their
//! neighbours hop by hop. If graph stores hold the parts, the other ranks train on the seeds of a
//! minibatch in turns. A rank requests the in-neighbours of a remote node from the node's owner,
//! once per hop and requesting part; the response contains the drawn edges. Finally, it requests
//! the feature rows of the distinct remote input nodes.
//!
//! Minibatches are those of [`crate::trainer::train`] with the same options: the same order, and
//! the same draws for every node, because draws depend only on seed, epoch, minibatch, hop and
//! node.

use graphmill_core::progress::{Progress, Unit};
use graphmill_data::{Dataset, partition::PartitionBook};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{Sampled, Seeds, Workspace, feature::Host};
use rayon::prelude::*;
use serde::Serialize;

use crate::{Error, Result, TrainConfig, build, hotness, stage::Loader};

/// Requests at a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Nodes whose neighbours are drawn, summed over parts.
    pub nodes: u64,
    /// Nodes among them that another part owns, each of which costs a request.
    pub requests: u64,
    /// Edges in the responses.
    pub edges: u64,
    /// True for a step of walks along metapaths: its nodes are walks, each of which costs a request
    /// of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_step: bool,
}

/// Requests between parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CrossRequests {
    /// Sampling requests per epoch: nodes requested from another part, over all hops.
    pub per_epoch: f64,
    /// Sampling requests per minibatch.
    pub per_batch: f64,
    /// Edges in the responses per epoch.
    pub edges_per_epoch: f64,
    /// Feature rows requested from another part per epoch, for distinct input nodes per part and
    /// minibatch.
    pub rows_per_epoch: f64,
    /// Number of minibatches of an epoch.
    pub batches_per_epoch: u64,
    /// Number of drawn minibatches, from which figures per epoch are extrapolated.
    pub batches: u64,
    /// Counts in the drawn minibatches by hop, from the seeds outward, or by step of walks along
    /// metapaths: each is an exchange.
    pub hops: Vec<Hop>,
    /// Distinct input nodes in the drawn minibatches, summed over parts.
    pub rows: u64,
    /// Input nodes among them that another part owns.
    pub remote_rows: u64,
    /// Maximum of the remote rows that a part sends or receives in a minibatch, divided by the mean
    /// over parts; with graph stores, by the mean over the stores or the training ranks, whichever
    /// are fewer.
    pub skew: f64,
}

/// Counts the requests of one rank in one minibatch. `flows` counts the rows that each rank
/// receives and sends. Returns the number of remote rows.
fn count(
    rank: usize,
    batch: &Sampled,
    owners: &NodeOwnership,
    hops: &mut [Hop],
    flows: &mut [[u64; 2]],
) -> u64 {
    let remote = |&v: &u32| owners.owner(v) != rank;
    // the destinations of every hop are a prefix of the input nodes
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
        flows[owners.owner(v)][1] += 1;
    }
    flows[rank][0] += rows;
    rows
}

/// Draws at most `batches` minibatches of the first epoch (0: all), and counts requests between
/// ranks with a part each. Parallel.
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
    let owners = NodeOwnership::new(book.clone(), 0, usize::from(book.parts()))?;
    requests_of_ranks(config, batches, data, &owners, watch)
}

/// [`requests`] between the ranks of a run, of which some may be graph stores. `owners` are those
/// that any rank knows.
///
/// # Errors
/// As for [`requests`].
pub fn requests_of_ranks(
    config: &TrainConfig,
    batches: u64,
    data: &Dataset,
    owners: &NodeOwnership,
    watch: &dyn Progress,
) -> Result<CrossRequests> {
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    if sampler.properties().subgraphs.is_some() {
        let name = &config.sampler;
        return Err(Error::usage(format!(
            "--sampler {name} draws whole subgraphs, which have no requests between parts; use a sampler \
             from seeds, such as neighbor"
        )));
    }
    let feature = Host::new(&data.features);
    let loader = hotness::loader(config, data, &*sampler, &*order, &feature)?;
    let all = loader.num_batches();
    let drawn = if batches == 0 { all } else { all.min(batches) };
    let mut seeds = Vec::new();
    loader.order(0, &mut seeds);

    watch.stage("drawing minibatches", Some(drawn), Unit::Rows);
    let (ranks, trainers) = (owners.size(), owners.num_trainers() as u64);
    let tasks = drawn * trainers;
    let parallel = (rayon::current_num_threads() as u64).clamp(1, tasks.max(1)) as usize;
    let hops = sampler.properties().num_layers;
    let mut slots: Vec<Slot> = (0..parallel).map(|_| Slot::new(data.num_nodes(), hops, ranks)).collect();
    let mut next = 0;
    // flows of the current minibatch, and the sum of the largest flows of earlier minibatches
    let (mut flows, mut largest) = (vec![[0u64; 2]; ranks], 0);
    while next < tasks {
        let group = parallel.min((tasks - next) as usize);
        slots[..group].par_iter_mut().enumerate().try_for_each(|(i, slot)| {
            let task = next + i as u64;
            slot.draw(&loader, &seeds, task / trainers, (task % trainers) as usize, owners)
        })?;
        for (task, slot) in (next..).zip(&slots[..group]) {
            let added = slot.flows.as_flattened();
            flows.as_flattened_mut().iter_mut().zip(added).for_each(|(sum, rows)| *sum += rows);
            if (task + 1) % trainers == 0 {
                largest += flows.as_flattened().iter().copied().max().unwrap_or(0);
                flows.fill([0; 2]);
            }
        }
        next += group as u64;
        watch.check()?;
        watch.done(next / trainers);
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
    Ok(sum.completed(largest, owners.num_holders().min(owners.num_trainers()) as u64))
}

impl CrossRequests {
    /// Fills in the figures per epoch and per batch from the counts of the drawn batches. `largest`
    /// is the sum over batches of the largest flow of one of `ranks` ranks.
    pub(crate) fn completed(mut self, largest: u64, ranks: u64) -> Self {
        self.skew = if largest > 0 { (largest * ranks) as f64 / self.remote_rows as f64 } else { 1.0 };
        let epochs = self.batches_per_epoch as f64 / self.batches.max(1) as f64;
        let requests: u64 = self.hops.iter().map(|hop| hop.requests).sum();
        let edges: u64 = self.hops.iter().map(|hop| hop.edges).sum();
        self.per_epoch = requests as f64 * epochs;
        self.per_batch = requests as f64 / self.batches.max(1) as f64;
        self.edges_per_epoch = edges as f64 * epochs;
        self.rows_per_epoch = self.remote_rows as f64 * epochs;
        self
    }
}

/// Buffers of a minibatch, and the counts of its minibatches.
struct Slot {
    workspace: Workspace,
    memory: Seeds,
    hops: Vec<Hop>,
    /// Rows that each rank receives and sends in the last minibatch.
    flows: Vec<[u64; 2]>,
    rows: u64,
    remote: u64,
}

impl Slot {
    fn new(nodes: usize, hops: usize, ranks: usize) -> Self {
        let mut workspace = Workspace::new(nodes);
        workspace.set_parallel(false);
        let (memory, hops) = (Seeds::default(), vec![Hop::default(); hops]);
        Self { workspace, memory, hops, flows: vec![[0; 2]; ranks], rows: 0, remote: 0 }
    }

    /// Draws the share of `rank` in minibatch `number`, and counts its requests.
    fn draw(
        &mut self,
        loader: &Loader,
        order: &[u32],
        number: u64,
        rank: usize,
        owners: &NodeOwnership,
    ) -> Result<()> {
        self.flows.fill([0; 2]);
        let mut seeds = loader.pick(0, order, number, std::mem::take(&mut self.memory))?;
        let mut positions = 0..;
        seeds.nodes.retain(|&v| positions.next().is_some_and(|i| owners.trainer(i, v) == rank));
        if seeds.nodes.is_empty() {
            self.memory = seeds;
            return Ok(());
        }
        let batch = loader.sample(0, &mut self.workspace, seeds)?;
        self.rows += batch.input_nodes.len() as u64;
        self.remote += count(rank, &batch, owners, &mut self.hops, &mut self.flows);
        self.memory = batch.recycle();
        Ok(())
    }
}
