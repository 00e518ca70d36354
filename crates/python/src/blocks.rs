//! Minibatches as message-flow blocks, drawn by any of the engine's samplers, for users of DGL.

#![forbid(unsafe_code)]

use std::{ops::Range, sync::Arc};

use graphmill_engine::{Dataset, TrainConfig, build};
use graphmill_loader::{
    BatchKey, MinibatchSampler, Seeds, Workspace,
    sampler::{BatchRequest, draws},
};

use crate::{
    batch::wide,
    fault::Fault,
    pool::{LastPool, Lease, Pool},
    prefetch::{Make, Prefetch},
    source::Epoch,
    table::Table,
    topology::check,
};

/// Block of one layer. Arrays are `i64`.
pub struct BlockArrays {
    /// Number of destinations `D`, the first of the sources.
    pub num_dst: usize,
    /// Number of sources `S`.
    pub num_src: usize,
    /// Start of each destination's edges (`D + 1`).
    pub indptr: Lease,
    /// Source of each edge.
    pub indices: Lease,
    /// Weight of each edge (`f32`), if the sampler gives weights.
    pub weights: Option<Lease>,
}

/// A minibatch of blocks.
pub struct BlockBatch {
    /// Number of the batch in the epoch.
    pub number: u64,
    /// Positions of the seeds among the inputs (`B`).
    pub inputs: Lease,
    /// Global ids of the seeds (`B`).
    pub seeds: Lease,
    /// Global ids of the first block's sources.
    pub input_nodes: Lease,
    /// Blocks, the farthest from the seeds first.
    pub blocks: Vec<BlockArrays>,
    /// Rows of the input nodes.
    pub features: Option<Lease>,
}

/// Dataset, sampler and inputs of block batches; [`BlockSource::start`] chooses the batches.
pub struct BlockSource {
    data: Arc<Dataset>,
    sampler: Box<dyn MinibatchSampler>,
    inputs: Vec<u32>,
    features: Option<Table>,
    seed: u64,
    pool: LastPool,
}

/// Reusable memory of a thread.
struct Work {
    space: Workspace,
    memory: Seeds,
}

/// Names of the training options that configure a sampler of blocks.
pub fn options() -> Vec<&'static str> {
    let not =
        ["batch_size", "max_batches", "order", "order_sequences", "clusters", "parts", "parts_per_batch"];
    let draws = draws().into_iter().filter(|name| !not.contains(name));
    draws.chain(["seed"]).collect()
}

impl BlockSource {
    /// Prepares blocks around `inputs`, drawn by the sampler in `config`, with the rows of
    /// `features`.
    ///
    /// # Errors
    /// An input is out of range or given twice; the sampler is invalid or draws subgraphs.
    pub fn new(
        data: Arc<Dataset>,
        inputs: Vec<u32>,
        config: &TrainConfig,
        features: Option<Table>,
    ) -> Result<Arc<Self>, String> {
        check(data.num_nodes(), "input nodes", &inputs)?;
        let mut sorted = inputs.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!(
                "node {} comes twice among the input nodes; the seeds of blocks must be distinct",
                twice[0]
            ));
        }
        let sampler = build::sampler(config, &data).map_err(|e| e.to_string())?;
        if sampler.properties().subgraphs.is_some() {
            return Err(format!(
                "sampler {}: subgraphs have no blocks; use the GraphSAINT loaders",
                config.sampler
            ));
        }
        Ok(Arc::new(Self { data, sampler, inputs, features, seed: config.seed, pool: LastPool::default() }))
    }

    /// Number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Starts making the batches of an epoch, like [`crate::source::Source::start`].
    ///
    /// # Errors
    /// An input's number is out of range, or a thread cannot be started.
    pub fn start(
        self: &Arc<Self>,
        epoch: Epoch,
        threads: usize,
        ahead: usize,
    ) -> Result<Prefetch<BlockBatch>, String> {
        let Epoch { epoch, order, batch_size, batches } = epoch;
        if let Some(i) = order.iter().find(|&&i| i >= self.inputs.len() as u64) {
            return Err(format!("input {i} is out of range: there are {} inputs", self.inputs.len()));
        }
        let (order, batch_size) = (Arc::new(order), batch_size.max(1));
        let pool = self.pool.pool((ahead + threads + 2) * (4 + 3 * self.sampler.properties().num_layers));
        let worker = |_| {
            let (this, order, pool) = (self.clone(), order.clone(), pool.clone());
            let mut work = None;
            Box::new(move |number: u64| {
                let work = work.get_or_insert_with(|| this.work());
                let start = (number as usize).saturating_mul(batch_size).min(order.len());
                let numbers = &order[start..(start + batch_size).min(order.len())];
                this.make(epoch, number, numbers, &pool, work)
            }) as Make<BlockBatch>
        };
        let Range { start, end } = batches;
        let threads = threads.clamp(1, end.saturating_sub(start).clamp(1, 1024) as usize);
        Prefetch::start(batches, (0..threads).map(worker).collect(), ahead.max(threads))
    }

    /// Memory of a new thread.
    fn work(&self) -> Work {
        let mut space = Workspace::new(self.data.num_nodes());
        // each thread makes its own batch, so a batch itself is not parallel
        space.set_parallel(false);
        Work { space, memory: Seeds::default() }
    }

    /// Makes one batch.
    fn make(
        &self,
        epoch: u64,
        number: u64,
        inputs: &[u64],
        pool: &Pool,
        work: &mut Work,
    ) -> Result<BlockBatch, Fault> {
        let Work { space, memory } = work;
        let seeds = inputs.iter().map(|&i| self.inputs[i as usize]);
        let seeds = std::mem::take(memory).refill(number, seeds);
        let key = BatchKey { seed: self.seed, epoch, batch: number };
        let drawn = self.sampler.sample(&BatchRequest::new(&self.data.graph, key), space, seeds);
        let batch = drawn.map_err(|e| format!("batch_size or fanout: {e}"))?;
        let features = match &self.features {
            None => None,
            Some(table) => {
                let mut lease = pool.take(batch.input_nodes.len() * table.row_bytes());
                table.gather_nodes(&batch.input_nodes, lease.bytes_mut())?;
                Some(lease)
            }
        };
        let blocks = batch.blocks.iter().map(|block| BlockArrays {
            num_dst: block.num_dst,
            num_src: block.num_src,
            indptr: wide(pool, &[&block.indptr]),
            indices: wide(pool, &[&block.indices]),
            weights: (!block.edge_weight.is_empty()).then(|| {
                let mut lease = pool.take(4 * block.edge_weight.len());
                lease.of_mut().copy_from_slice(&block.edge_weight);
                lease
            }),
        });
        let blocks = blocks.collect();
        let made = BlockBatch {
            number,
            inputs: wide(pool, &[inputs]),
            seeds: wide(pool, &[&batch.seeds.nodes]),
            input_nodes: wide(pool, &[&batch.input_nodes]),
            blocks,
            features,
        };
        *memory = batch.recycle();
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use graphmill_data::generate::{GenerateOptions, generate};
    use graphmill_engine::config::Fanout;

    use super::*;
    use crate::prefetch::Taken;

    fn source(sampler: &str) -> Result<Arc<BlockSource>, String> {
        let options = GenerateOptions { nodes: 400, classes: 4, dim: 6, ..GenerateOptions::default() };
        let data = Arc::new(generate("sbm", &options).unwrap());
        let config =
            TrainConfig { sampler: sampler.into(), fanout: Fanout(vec![4, 3]), ..TrainConfig::default() };
        BlockSource::new(data, (0..300).collect(), &config, None)
    }

    #[test]
    fn blocks_do_not_depend_on_threads() {
        for sampler in ["neighbor", "labor", "random-walk", "full"] {
            let source = source(sampler).unwrap();
            let run = |threads| {
                let epoch =
                    Epoch { epoch: 1, order: (0..300).rev().collect(), batch_size: 64, batches: 0..5 };
                let batches = source.start(epoch, threads, 3).unwrap();
                let mut all = Vec::new();
                while let Taken::Value(batch) = batches.take(Duration::from_secs(60)).unwrap() {
                    let ids = |lease: &Lease| lease.of::<i64>().to_vec();
                    let blocks =
                        batch.blocks.iter().map(|b| (b.num_dst, b.num_src, ids(&b.indptr), ids(&b.indices)));
                    all.push((ids(&batch.seeds), ids(&batch.input_nodes), blocks.collect::<Vec<_>>()));
                }
                all
            };
            let all = run(1);
            assert!(all == run(3), "{sampler}");
            let (seeds, nodes, blocks) = &all[0];
            assert_eq!((all.len(), blocks.len(), seeds[0]), (5, 2, 299));
            assert_eq!(nodes[..64], seeds[..]);
            assert_eq!((blocks[1].0, blocks[1].1, blocks[0].1), (64, blocks[0].0, nodes.len()));
        }
        assert!(source("saint-rw").err().unwrap().contains("subgraphs"));
        let data = source("full").unwrap().data.clone();
        let twice = BlockSource::new(data, vec![3, 5, 3], &TrainConfig::default(), None);
        assert!(twice.err().unwrap().contains("node 3 comes twice"));
    }
}
