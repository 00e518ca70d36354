//! Source of typed batches: graph, inputs, tables and method.

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_loader::BatchKey;

use super::{
    Seeds, TypedDrawn, TypedMethod, TypedScratch, TypedTopology,
    links::{Links, Pairs},
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

/// Owner of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedOf {
    /// The nodes of a type.
    Nodes(usize),
    /// The edges of a relation.
    Edges(usize),
}

/// Inputs of batches.
pub enum TypedInputs {
    /// Nodes of a type, which may have trees of their own.
    Nodes {
        /// Type of the nodes.
        of: usize,
        /// Their ids.
        nodes: Vec<u32>,
        /// Time of each, which bounds its hops; empty without times.
        latest: Vec<i64>,
        /// True to draw a separate neighbourhood for each.
        disjoint: bool,
    },
    /// Supervision edges.
    Links(Box<Links>),
}

impl TypedInputs {
    /// Number of inputs.
    pub fn len(&self) -> usize {
        match self {
            Self::Nodes { nodes, .. } => nodes.len(),
            Self::Links(links) => links.edges.len(),
        }
    }

    /// Returns true if there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the ids against the graph, and the number of times.
    fn check(&self, topology: &TypedTopology) -> Result<(), String> {
        let count = |t: usize| topology.types[t].1;
        let latest = match self {
            Self::Nodes { latest, .. } => latest,
            Self::Links(links) => &links.latest,
        };
        check_times(latest, self.len())?;
        match self {
            Self::Nodes { of, nodes, .. } => check(count(*of), "input_nodes", nodes),
            Self::Links(links) => {
                let Links { types, edges, .. } = &**links;
                let (src, dst): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
                check(count(types.0), "edge_label_index[0]", &src)?;
                check(count(types.1), "edge_label_index[1]", &dst)
            }
        }
    }

    /// Makes the seeds of a batch of these inputs, and of links the positions of their ends.
    fn seeds(&self, key: BatchKey, numbers: &[u64], types: usize) -> Result<(Seeds, Option<Pairs>), String> {
        match self {
            Self::Links(links) => {
                let positives: Vec<(u32, u32)> = numbers.iter().map(|&i| links.edges[i as usize]).collect();
                let latest = chosen(&links.latest, numbers);
                links.seeds(key, (&positives, &latest), types).map(|(seeds, pairs)| (seeds, Some(pairs)))
            }
            Self::Nodes { of, nodes, latest, disjoint } => {
                let nodes: Vec<u32> = numbers.iter().map(|&i| nodes[i as usize]).collect();
                Ok((node_seeds(types, &[(*of, nodes)], chosen(latest, numbers), *disjoint), None))
            }
        }
    }
}

/// Seeds of the given types. `latest` has a time for each, or is empty. Trees and times are those
/// of one list after those of another.
fn node_seeds(types: usize, given: &[(usize, Vec<u32>)], latest: Vec<i64>, disjoint: bool) -> Seeds {
    let mut seeds = Seeds { nodes: vec![Vec::new(); types], ..Seeds::default() };
    let mut tree: Vec<Vec<u32>> = vec![Vec::new(); types];
    let mut first = 0;
    for (of, nodes) in given {
        let end = first + nodes.len() as u32;
        tree[*of].extend(first..end);
        seeds.nodes[*of].extend_from_slice(nodes);
        first = end;
    }
    if disjoint {
        seeds.tree = Some(tree);
        seeds.latest = (!latest.is_empty()).then_some(latest);
    }
    seeds
}

/// Checks that there is a time for each of `count` seeds, or none at all.
fn check_times(latest: &[i64], count: usize) -> Result<(), String> {
    if latest.is_empty() || latest.len() == count {
        return Ok(());
    }
    Err(format!("{} times for {count} inputs; pass a time for each", latest.len()))
}

/// Times of the inputs of a batch; empty without times.
fn chosen(latest: &[i64], numbers: &[u64]) -> Vec<i64> {
    if latest.is_empty() { Vec::new() } else { numbers.iter().map(|&i| latest[i as usize]).collect() }
}

/// A typed minibatch. Arrays of ids are `i64`.
pub struct TypedBatch {
    /// Number of the batch in the epoch.
    pub number: u64,
    /// Positions of the seeds among the inputs (`B`).
    pub inputs: Lease,
    /// Ids of the nodes of each type.
    pub nodes: Vec<Lease>,
    /// Sources, then destinations of each relation's edges, as positions in the lists of nodes.
    pub edge_index: Vec<Lease>,
    /// Numbers of each relation's edges in the user's list.
    pub edges: Vec<Lease>,
    /// Tree of each node, by type.
    pub tree: Option<Vec<Lease>>,
    /// Rows of each table.
    pub tables: Vec<Lease>,
    /// Number of nodes of each type that each hop added.
    pub nodes_per_hop: Option<Vec<Vec<usize>>>,
    /// Number of edges of each relation that each hop added.
    pub edges_per_hop: Option<Vec<Vec<usize>>>,
    /// Positions of sources and destinations of pairs.
    pub pairs: Option<[Lease; 2]>,
}

/// Source of typed batches.
pub struct TypedSource {
    topology: TypedTopology,
    inputs: TypedInputs,
    tables: Vec<(TypedOf, Table)>,
    method: Box<dyn TypedMethod>,
    seed: u64,
    pool: LastPool,
    /// Memory of single batches.
    idle: Mutex<Vec<Work>>,
}

/// Reusable memory of a thread.
struct Work {
    scratch: TypedScratch,
    drawn: TypedDrawn,
}

impl TypedSource {
    /// Prepares batches of `inputs` with the rows of `tables`, drawn by `method` under `seed`.
    ///
    /// # Errors
    /// An input is out of range, or a table does not have a row per node or edge.
    pub fn new(
        topology: TypedTopology,
        inputs: TypedInputs,
        tables: Vec<(TypedOf, Table)>,
        method: Box<dyn TypedMethod>,
        seed: u64,
    ) -> Result<Arc<Self>, String> {
        inputs.check(&topology)?;
        for (i, (of, table)) in tables.iter().enumerate() {
            let rows = match of {
                TypedOf::Nodes(t) => topology.types[*t].1,
                TypedOf::Edges(r) => topology.relations[*r].topology.graph().num_edges(),
            };
            if table.num_rows() < rows {
                return Err(format!("table {i} has {} rows for {rows} nodes or edges", table.num_rows()));
            }
        }
        Ok(Arc::new(Self {
            topology,
            inputs,
            tables,
            method,
            seed,
            pool: LastPool::default(),
            idle: Mutex::default(),
        }))
    }

    /// Number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Starts making the batches of an epoch on `threads` threads, at most `ahead` of them before
    /// they are taken.
    ///
    /// # Errors
    /// An input's number is out of range, or a thread cannot be started.
    pub fn start(
        self: &Arc<Self>,
        epoch: Epoch,
        threads: usize,
        ahead: usize,
    ) -> Result<Prefetch<TypedBatch>, String> {
        let Epoch { epoch, order, batch_size, batches } = epoch;
        self.check(&order)?;
        let (order, batch_size) = (Arc::new(order), batch_size.max(1));
        let arrays =
            3 + 2 * self.topology.types.len() + 2 * self.topology.relations.len() + self.tables.len();
        let pool = self.pool.pool((ahead + threads + 2) * arrays);
        let worker = |_| {
            let (this, order, pool) = (self.clone(), order.clone(), pool.clone());
            let mut work = None;
            Box::new(move |number: u64| {
                let work = work.get_or_insert_with(|| this.work());
                let start = (number as usize).saturating_mul(batch_size).min(order.len());
                let numbers = &order[start..(start + batch_size).min(order.len())];
                this.make(BatchKey { seed: this.seed, epoch, batch: number }, numbers, &pool, work)
            }) as Make<TypedBatch>
        };
        let threads = threads.clamp(1, (batches.end.saturating_sub(batches.start)).clamp(1, 1024) as usize);
        Prefetch::start(batches, (0..threads).map(worker).collect(), ahead.max(threads))
    }

    /// Makes one batch on the calling thread.
    ///
    /// # Errors
    /// An input's number is out of range, or the batch has too many edges.
    pub fn one(&self, epoch: u64, number: u64, inputs: &[u64]) -> Result<TypedBatch, Fault> {
        self.check(inputs)?;
        let key = BatchKey { seed: self.seed, epoch, batch: number };
        self.alone(|work| self.make(key, inputs, &Pool::new(0), work))
    }

    /// Makes batch `number` of `epoch` of these nodes, with the numbers of their types, on the
    /// calling thread. They need not be inputs, nor of the inputs' type. `latest` has the times
    /// that bound their hops, those of one list after those of another, or is empty. Separate
    /// neighbourhoods are numbered in this order.
    ///
    /// # Errors
    /// The inputs are not nodes, an id is out of range, or a time is missing.
    pub fn one_of_nodes(
        &self,
        (epoch, number): (u64, u64),
        given: &[(usize, Vec<u32>)],
        latest: &[i64],
    ) -> Result<TypedBatch, Fault> {
        let TypedInputs::Nodes { disjoint, .. } = &self.inputs else {
            return Err(Fault::Value("batches of nodes need a source of nodes".into()));
        };
        let types = &self.topology.types;
        for (of, nodes) in given {
            let (name, count) = &types[*of];
            let what = if types.len() == 1 { "node".to_string() } else { format!("nodes of '{name}'") };
            check(*count, &what, nodes)?;
        }
        let total: usize = given.iter().map(|(_, nodes)| nodes.len()).sum();
        check_times(latest, total)?;
        let seeds = node_seeds(types.len(), given, latest.to_vec(), *disjoint);
        let key = BatchKey { seed: self.seed, epoch, batch: number };
        let numbers: Vec<u64> = (0..total as u64).collect();
        self.alone(|work| self.finish(key, &numbers, (&seeds, None), &Pool::new(0), work))
    }

    /// Makes batch `number` of `epoch` of these links, which need not be inputs, on the calling
    /// thread. `latest` has the times that bound the hops around their ends, or is empty.
    ///
    /// # Errors
    /// The inputs are not links, an id is out of range, a time is missing, or an edge has no
    /// negative.
    pub fn one_of_links(
        &self,
        (epoch, number): (u64, u64),
        edges: &[(u32, u32)],
        latest: &[i64],
    ) -> Result<TypedBatch, Fault> {
        let TypedInputs::Links(links) = &self.inputs else {
            return Err(Fault::Value("batches of links need a source of links".into()));
        };
        check_times(latest, edges.len())?;
        let count = |t: usize| self.topology.types[t].1;
        let (src, dst): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
        check(count(links.types.0), "row", &src)?;
        check(count(links.types.1), "col", &dst)?;
        let key = BatchKey { seed: self.seed, epoch, batch: number };
        let (seeds, pairs) = links.seeds(key, (edges, latest), self.topology.types.len())?;
        let numbers: Vec<u64> = (0..edges.len() as u64).collect();
        self.alone(|work| self.finish(key, &numbers, (&seeds, Some(pairs)), &Pool::new(0), work))
    }

    /// Calls `make` with the memory of an earlier single batch, if any.
    fn alone(&self, make: impl FnOnce(&mut Work) -> Result<TypedBatch, Fault>) -> Result<TypedBatch, Fault> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let work = idle().pop();
        let mut work = work.unwrap_or_else(|| self.work());
        let batch = make(&mut work);
        idle().push(work);
        batch
    }

    /// Checks that the numbers are inputs.
    fn check(&self, order: &[u64]) -> Result<(), String> {
        match order.iter().find(|&&i| i >= self.inputs.len() as u64) {
            Some(i) => Err(format!("input {i} is out of range: there are {} inputs", self.inputs.len())),
            None => Ok(()),
        }
    }

    fn work(&self) -> Work {
        Work { scratch: TypedScratch::new(&self.topology), drawn: TypedDrawn::default() }
    }

    /// Makes one batch.
    fn make(&self, key: BatchKey, inputs: &[u64], pool: &Pool, work: &mut Work) -> Result<TypedBatch, Fault> {
        let (seeds, pairs) = self.inputs.seeds(key, inputs, self.topology.types.len())?;
        self.finish(key, inputs, (&seeds, pairs), pool, work)
    }

    /// Draws and gathers a batch of these seeds.
    fn finish(
        &self,
        key: BatchKey,
        inputs: &[u64],
        (seeds, pairs): (&Seeds, Option<Pairs>),
        pool: &Pool,
        work: &mut Work,
    ) -> Result<TypedBatch, Fault> {
        let Work { scratch, drawn } = work;
        self.method.draw(&self.topology, key, seeds, scratch, drawn)?;
        if let (Some(tree), Some(pairs)) = (&mut drawn.tree, &pairs) {
            tree.iter_mut().flatten().for_each(|tree| *tree = pairs.of_tree[*tree as usize]);
        }
        let edges: Vec<Lease> = drawn.relations.iter().map(|to| wide(pool, &[&to.edges])).collect();
        let mut tables = Vec::with_capacity(self.tables.len());
        for (of, table) in &self.tables {
            let rows = match of {
                TypedOf::Nodes(t) => drawn.nodes[*t].len(),
                TypedOf::Edges(r) => drawn.relations[*r].edges.len(),
            };
            let mut lease = pool.take(rows * table.row_bytes());
            match of {
                TypedOf::Nodes(t) => table.gather_nodes(&drawn.nodes[*t], lease.bytes_mut())?,
                TypedOf::Edges(r) => table.gather_edges(edges[*r].of(), lease.bytes_mut()),
            }
            tables.push(lease);
        }
        let lists = |lists: &[Vec<u32>]| lists.iter().map(|list| wide(pool, &[list])).collect::<Vec<_>>();
        Ok(TypedBatch {
            number: key.batch,
            inputs: wide(pool, &[inputs]),
            nodes: lists(&drawn.nodes),
            edge_index: drawn.relations.iter().map(|to| wide(pool, &[&to.src, &to.dst])).collect(),
            edges,
            tree: drawn.tree.as_deref().map(lists),
            tables,
            nodes_per_hop: drawn.nodes_per_hop.take(),
            edges_per_hop: drawn.edges_per_hop.take(),
            pairs: pairs.map(|pairs| [wide(pool, &[&pairs.src]), wide(pool, &[&pairs.dst])]),
        })
    }
}
