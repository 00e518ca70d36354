//! Minibatches as message-flow blocks of several types, drawn by the loader's typed samplers.

use std::sync::Arc;

use graphmill_core::{
    options::{OwnOptions, one_of},
    typed::TypedGraph,
};
use graphmill_loader::{
    BatchKey,
    typed::{
        TABLE, TypedFanout, TypedKind, TypedOptions, TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace,
    },
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

/// Edges of a relation in a block: row starts and sources (`i64`), and weights (`f32`) if the
/// sampler gives some.
pub type RelationArrays = (Lease, Lease, Option<Lease>);

/// Block of one layer.
pub struct TypedBlockArrays {
    /// Number of destinations of each type.
    pub num_dst: Vec<usize>,
    /// Number of sources of each type.
    pub num_src: Vec<usize>,
    /// Edges of each relation.
    pub relations: Vec<RelationArrays>,
}

/// A minibatch of blocks of several types.
pub struct TypedBlockBatch {
    /// Number of the batch in the epoch.
    pub number: u64,
    /// Positions of the seeds among the inputs.
    pub inputs: Lease,
    /// Ids of each type's seeds.
    pub seeds: Vec<Lease>,
    /// Ids of each type's sources in the first block.
    pub input_nodes: Vec<Lease>,
    /// Blocks, the farthest from the seeds first.
    pub blocks: Vec<TypedBlockArrays>,
    /// Rows of each table.
    pub tables: Vec<Lease>,
}

/// Graph, sampler and inputs of typed blocks.
pub struct TypedBlockSource {
    graph: TypedGraph,
    sampler: Box<dyn TypedSampler>,
    /// Type and id of each input.
    inputs: Vec<(usize, u32)>,
    tables: Vec<(usize, Table)>,
    seed: u64,
    pool: LastPool,
}

/// Returns true if a kind of typed sampler draws blocks of the graph's own relations around given
/// seeds.
fn makes_blocks(kind: &TypedKind) -> bool {
    !kind.draws_subgraphs && kind.added.is_none()
}

/// Names of the training options that configure a typed sampler of blocks.
pub fn options() -> Vec<&'static str> {
    let rows = TABLE.iter().filter(|entry| makes_blocks(&entry.make));
    let mut names: Vec<&'static str> = rows
        .flat_map(|entry| entry.options)
        .flat_map(|group| group.keys())
        .map(|key| key.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Refuses the `given` options that the typed sampler `sampler` does not read.
///
/// # Errors
/// The sampler is unknown, or another one reads the option.
pub fn refuse_unread(sampler: &str, given: &[&str]) -> Result<(), String> {
    let own = TABLE.find(sampler).map_err(|e| e.to_string())?.options;
    let Some(name) = given.iter().find(|name| !own.iter().any(|group| group.has(name))) else {
        return Ok(());
    };
    let readers = TABLE.iter().filter(|entry| makes_blocks(&entry.make));
    let readers = readers.filter(|entry| entry.options.iter().any(|group| group.has(name)));
    let readers: Vec<&str> = readers.map(|entry| entry.name).collect();
    Err(format!("{name}: sampler '{sampler}' does not read it; use {}, or leave it out", one_of(&readers)))
}

/// Makes the typed sampler of this name, with a fanout for each relation, or for each node type if
/// the sampler counts nodes, from the seeds outward, and options.
///
/// # Errors
/// The sampler, a fanout or an option is invalid, or the sampler draws subgraphs or other relations
/// than those of the graph.
pub fn make_sampler(
    graph: &TypedGraph,
    (sampler, fanouts, own): (&str, &[Vec<i64>], OwnOptions),
    seed: u64,
) -> Result<Box<dyn TypedSampler>, String> {
    let (kind, schema) = (TABLE.find(sampler).map_err(|e| e.to_string())?.make, graph.schema());
    if !makes_blocks(&kind) {
        let known = TABLE.iter().filter(|entry| makes_blocks(&entry.make)).map(|entry| entry.name);
        return Err(format!(
            "sampler {sampler}: it draws no blocks of the edge types of the graph; use {}",
            one_of(&known.collect::<Vec<_>>())
        ));
    }
    let names: Vec<String> = if kind.counts_nodes {
        schema.types().iter().map(|node| node.name.to_string()).collect()
    } else {
        (0..schema.num_relations()).map(|r| schema.relation_name(r)).collect()
    };
    let first = TypedFanout::new(fanouts.first().cloned().unwrap_or_default());
    let fanout = names.into_iter().zip(fanouts).fold(first, |all, (name, of)| all.with(name, of.clone()));
    let options = TypedOptions { fanout, seed, own, ..TypedOptions::default() };
    (kind.make)(&options, graph).map_err(|e| format!("sampler {sampler}: {e}"))
}

impl TypedBlockSource {
    /// Prepares blocks around `inputs` by the typed sampler `sampler`, with a fanout for each
    /// relation, or for each node type if the sampler counts nodes, from the seeds outward, and
    /// the options `own`.
    ///
    /// # Errors
    /// An input is out of range or given twice; the sampler, a fanout or an option is invalid; or
    /// the sampler draws subgraphs or other relations than those of the graph.
    pub fn new(
        graph: TypedGraph,
        inputs: Vec<(usize, u32)>,
        (sampler, fanouts, own): (&str, &[Vec<i64>], OwnOptions),
        tables: Vec<(usize, Table)>,
        seed: u64,
    ) -> Result<Arc<Self>, String> {
        let schema = graph.schema();
        for (t, node) in schema.types().iter().enumerate() {
            let mut ids: Vec<u32> = inputs.iter().filter(|(of, _)| *of == t).map(|(_, v)| *v).collect();
            check(node.count, &format!("input nodes of '{}'", node.name), &ids)?;
            ids.sort_unstable();
            if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!(
                    "node {} of '{}' comes twice among the input nodes; the seeds of blocks must be distinct",
                    twice[0], node.name
                ));
            }
        }
        let sampler = make_sampler(&graph, (sampler, fanouts, own), seed)?;
        Ok(Arc::new(Self { graph, sampler, inputs, tables, seed, pool: LastPool::default() }))
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
    ) -> Result<Prefetch<TypedBlockBatch>, String> {
        let Epoch { epoch, order, batch_size, batches } = epoch;
        if let Some(i) = order.iter().find(|&&i| i >= self.inputs.len() as u64) {
            return Err(format!("input {i} is out of range: there are {} inputs", self.inputs.len()));
        }
        let (order, batch_size) = (Arc::new(order), batch_size.max(1));
        let (types, relations) = (self.graph.schema().num_types(), self.graph.schema().num_relations());
        let arrays = 1 + 2 * types + self.tables.len() + 3 * relations * self.sampler.num_blocks();
        let pool = self.pool.pool((ahead + threads + 2) * arrays);
        let worker = |_| {
            let (this, order, pool) = (self.clone(), order.clone(), pool.clone());
            let mut work = None;
            Box::new(move |number: u64| {
                let (space, memory) = work.get_or_insert_with(|| {
                    let mut space = TypedWorkspace::new(this.graph.schema());
                    space.set_parallel(false);
                    (space, TypedSeeds::default())
                });
                let start = (number as usize).saturating_mul(batch_size).min(order.len());
                let numbers = &order[start..(start + batch_size).min(order.len())];
                this.make(BatchKey { seed: this.seed, epoch, batch: number }, numbers, &pool, (space, memory))
            }) as Make<TypedBlockBatch>
        };
        let threads = threads.clamp(1, batches.end.saturating_sub(batches.start).clamp(1, 1024) as usize);
        Prefetch::start(batches, (0..threads).map(worker).collect(), ahead.max(threads))
    }

    /// Makes one batch.
    fn make(
        &self,
        key: BatchKey,
        inputs: &[u64],
        pool: &Pool,
        (space, memory): (&mut TypedWorkspace, &mut TypedSeeds),
    ) -> Result<TypedBlockBatch, Fault> {
        let mut nodes = vec![Vec::new(); self.graph.schema().num_types()];
        for &i in inputs {
            let (t, v) = self.inputs[i as usize];
            nodes[t].push(v);
        }
        let lists: Vec<&[u32]> = nodes.iter().map(Vec::as_slice).collect();
        let seeds = std::mem::take(memory).refill(key.batch, &lists);
        let drawn = self.sampler.sample(&TypedRequest::new(&self.graph, key), space, seeds);
        let batch = drawn.map_err(|e| format!("batch_size or fanout: {e}"))?;
        let mut tables = Vec::with_capacity(self.tables.len());
        for (t, table) in &self.tables {
            let mut lease = pool.take(batch.input_nodes[*t].len() * table.row_bytes());
            table.gather_nodes(&batch.input_nodes[*t], lease.bytes_mut())?;
            tables.push(lease);
        }
        let relation = |block: &graphmill_core::Block| {
            let weights = (!block.edge_weight.is_empty()).then(|| {
                let mut lease = pool.take(4 * block.edge_weight.len());
                lease.of_mut().copy_from_slice(&block.edge_weight);
                lease
            });
            (wide(pool, &[&block.indptr]), wide(pool, &[&block.indices]), weights)
        };
        let blocks = batch.blocks.iter().map(|block| TypedBlockArrays {
            num_dst: block.num_dst.clone(),
            num_src: block.num_src.clone(),
            relations: block.relations.iter().map(relation).collect(),
        });
        let made = TypedBlockBatch {
            number: key.batch,
            inputs: wide(pool, &[inputs]),
            blocks: blocks.collect(),
            seeds: nodes.iter().map(|ids| wide(pool, &[ids])).collect(),
            input_nodes: batch.input_nodes.iter().map(|ids| wide(pool, &[ids])).collect(),
            tables,
        };
        *memory = batch.recycle();
        Ok(made)
    }
}
