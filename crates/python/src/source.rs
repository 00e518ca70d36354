//! Source of batches: topology, tables and method. The caller chooses the inputs of each batch.

#![forbid(unsafe_code)]

use std::{ops::Range, sync::Arc};

use graphmill_loader::BatchKey;

use crate::{
    batch::{Batch, Drawn, wide},
    fault::Fault,
    method::{Method, Scratch},
    pool::{LastPool, Pool},
    prefetch::{Make, Prefetch},
    table::Table,
    topology::{Topology, check},
};

/// Arrays of a batch in addition to its tables, for which the pool keeps free blocks.
const ARRAYS: usize = 6;

/// Owner of a table's rows: decides which rows a batch gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The nodes of the batch.
    Nodes,
    /// The edges of the batch.
    Edges,
    /// The seeds of the batch.
    Seeds,
}

/// Inputs of batches: nodes, or runs of nodes (the parts of a partition).
pub struct Inputs {
    nodes: Vec<u32>,
    /// Start of each input's nodes, and the end; `None` if each input is one node.
    starts: Option<Vec<usize>>,
    /// Time of each input; `None` if they have none.
    times: Option<Vec<i64>>,
}

impl Inputs {
    /// Inputs of one node each.
    pub fn nodes(nodes: Vec<u32>) -> Self {
        Self { nodes, starts: None, times: None }
    }

    /// Gives each input a time.
    ///
    /// # Errors
    /// There are fewer or more times than inputs.
    pub fn with_times(self, times: Vec<i64>) -> Result<Self, String> {
        if times.len() != self.len() {
            return Err(format!("{} times for {} inputs; pass one for each", times.len(), self.len()));
        }
        Ok(Self { times: Some(times), ..self })
    }

    /// Inputs of a run of nodes each: `nodes[starts[i]..starts[i + 1]]`, where `starts` ascends and
    /// stays within `nodes`.
    pub fn runs(nodes: Vec<u32>, starts: Vec<usize>) -> Self {
        Self { nodes, starts: Some(starts), times: None }
    }

    /// Number of inputs.
    pub fn len(&self) -> usize {
        self.starts.as_ref().map_or(self.nodes.len(), |starts| starts.len().saturating_sub(1))
    }

    /// Returns true if there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Overwrites `out` with the nodes of the inputs `numbers`.
    fn fill(&self, numbers: &[u64], out: &mut Vec<u32>) {
        out.clear();
        match &self.starts {
            None => out.extend(numbers.iter().map(|&i| self.nodes[i as usize])),
            Some(starts) => numbers.iter().for_each(|&i| {
                out.extend_from_slice(&self.nodes[starts[i as usize]..starts[i as usize + 1]])
            }),
        }
    }
}

/// Source of batches: topology, inputs, tables and method.
pub struct Source {
    topology: Arc<Topology>,
    inputs: Inputs,
    tables: Vec<(Of, Table)>,
    method: Box<dyn Method>,
    seed: u64,
    pool: LastPool,
}

/// Reusable memory of a thread.
struct Work {
    scratch: Scratch,
    drawn: Drawn,
    seeds: Vec<u32>,
}

/// Batches of an epoch and their inputs.
pub struct Epoch {
    /// Number of the epoch.
    pub epoch: u64,
    /// Numbers of the inputs, in order; empty if the method chooses nodes itself.
    pub order: Vec<u64>,
    /// Inputs per batch, at least 1.
    pub batch_size: usize,
    /// Numbers of the batches to make.
    pub batches: Range<u64>,
}

impl Source {
    /// Prepares batches of `inputs` with the rows of `tables`, drawn by `method` under `seed`.
    ///
    /// # Errors
    /// An input is out of range, or a table does not have a row per node or edge.
    pub fn new(
        topology: Arc<Topology>,
        inputs: Inputs,
        tables: Vec<(Of, Table)>,
        method: Box<dyn Method>,
        seed: u64,
    ) -> Result<Arc<Self>, String> {
        let graph = topology.graph();
        check(graph.num_nodes(), "input_nodes", &inputs.nodes)?;
        for (i, (of, table)) in tables.iter().enumerate() {
            let (what, rows) =
                if *of == Of::Edges { ("edges", graph.num_edges()) } else { ("nodes", graph.num_nodes()) };
            if table.num_rows() < rows {
                return Err(format!("table {i} has {} rows for {rows} {what}", table.num_rows()));
            }
        }
        Ok(Arc::new(Self { topology, inputs, tables, method, seed, pool: LastPool::default() }))
    }

    /// Number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Number of batches in an epoch, if the method chooses nodes itself.
    pub fn batches(&self) -> Option<u64> {
        self.method.batches()
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
    ) -> Result<Prefetch<Batch>, String> {
        let Epoch { epoch, order, batch_size, batches } = epoch;
        self.check(&order)?;
        let (order, batch_size) = (Arc::new(order), batch_size.max(1));
        let pool = self.pool.pool((ahead + threads + 2) * (ARRAYS + self.tables.len()));
        let worker = |_| {
            let (this, order, pool) = (self.clone(), order.clone(), pool.clone());
            let mut work = None;
            Box::new(move |number: u64| {
                let work = work.get_or_insert_with(|| this.work());
                let start = (number as usize).saturating_mul(batch_size).min(order.len());
                let numbers = &order[start..(start + batch_size).min(order.len())];
                this.make(BatchKey { seed: this.seed, epoch, batch: number }, numbers, &pool, work)
            }) as Make<Batch>
        };
        let threads = threads.clamp(1, (batches.end.saturating_sub(batches.start)).clamp(1, 1024) as usize);
        Prefetch::start(batches, (0..threads).map(worker).collect(), ahead.max(threads))
    }

    /// Makes one batch on the calling thread.
    ///
    /// # Errors
    /// An input's number is out of range, or the batch has too many edges.
    pub fn one(&self, epoch: u64, number: u64, inputs: &[u64]) -> Result<Batch, Fault> {
        self.check(inputs)?;
        self.make(BatchKey { seed: self.seed, epoch, batch: number }, inputs, &Pool::new(0), &mut self.work())
    }

    /// Checks that the numbers are inputs.
    fn check(&self, order: &[u64]) -> Result<(), String> {
        match order.iter().find(|&&i| i >= self.inputs.len() as u64) {
            Some(i) => Err(format!("input {i} is out of range: there are {} inputs", self.inputs.len())),
            None => Ok(()),
        }
    }

    /// Memory of a new thread.
    fn work(&self) -> Work {
        let scratch = Scratch::new(self.topology.graph().num_nodes());
        Work { scratch, drawn: Drawn::default(), seeds: Vec::new() }
    }

    /// Makes one batch.
    fn make(&self, key: BatchKey, inputs: &[u64], pool: &Pool, work: &mut Work) -> Result<Batch, Fault> {
        let Work { scratch, drawn, seeds } = work;
        self.inputs.fill(inputs, seeds);
        scratch.seed_times.clear();
        if let Some(times) = &self.inputs.times {
            scratch.seed_times.extend(inputs.iter().map(|&i| times[i as usize]));
        }
        self.method.draw(&self.topology, key, seeds, scratch, drawn)?;
        let edges = wide(pool, &[&drawn.edges]);
        let mut tables = Vec::with_capacity(self.tables.len());
        for (of, table) in &self.tables {
            let rows = match of {
                Of::Nodes => drawn.nodes.len(),
                Of::Edges => drawn.edges.len(),
                Of::Seeds => seeds.len(),
            };
            let mut lease = pool.take(rows * table.row_bytes());
            match of {
                Of::Nodes => table.gather_nodes(&drawn.nodes, lease.bytes_mut())?,
                Of::Seeds => table.gather_nodes(seeds, lease.bytes_mut())?,
                Of::Edges => table.gather_edges(edges.of(), lease.bytes_mut()),
            }
            tables.push(lease);
        }
        Ok(Batch {
            number: key.batch,
            inputs: wide(pool, &[inputs]),
            nodes: wide(pool, &[&drawn.nodes]),
            edge_index: wide(pool, &[&drawn.src, &drawn.dst]),
            edges,
            tree: drawn.tree.as_ref().map(|tree| wide(pool, &[tree])),
            roots: drawn.roots.as_ref().map(|roots| wide(pool, &[roots])),
            tables,
            nodes_per_hop: drawn.nodes_per_hop.take(),
            edges_per_hop: drawn.edges_per_hop.take(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use graphmill_core::Buffer;

    use super::*;
    use crate::{method::neighbors::Neighbors, order::InputOrder, prefetch::Taken, table::Rows};

    fn source() -> Arc<Source> {
        let edges: Vec<[i64; 2]> = (0..2000).map(|e| [e * 7919 % 300, e * 104_729 % 300]).collect();
        let ends = |i: usize| edges.iter().map(|e| e[i]).collect::<Vec<_>>();
        let topology = Arc::new(Topology::from_edges(300, &ends(0), &ends(1)).unwrap());
        let x: Buffer<f32> = (0..900).map(|i| i as f32).collect::<Vec<_>>().into();
        let of_edges: Buffer<i64> = (0..2000).map(|e| e * 3).collect::<Vec<_>>().into();
        let tables = vec![
            (Of::Nodes, Table::Rows(Rows::of(&x, 3))),
            (Of::Edges, Table::Rows(Rows::of(&of_edges, 1))),
            (Of::Seeds, Table::Rows(Rows::of(&x, 3))),
        ];
        let method = Neighbors { fanout: vec![Some(3), Some(2)], ..Neighbors::default() };
        Source::new(topology, Inputs::nodes((10..210).collect()), tables, Box::new(method), 4).unwrap()
    }

    /// Contents of a batch, as bytes.
    fn bytes(batch: &Batch) -> Vec<u8> {
        let Batch { inputs, nodes, edge_index, edges, tables, .. } = batch;
        [inputs, nodes, edge_index, edges]
            .into_iter()
            .chain(tables)
            .flat_map(|lease| lease.bytes().to_vec())
            .collect()
    }

    #[test]
    fn epochs_do_not_depend_on_threads_or_the_first_batch() {
        let source = source();
        let order = InputOrder {
            inputs: 200,
            batch_size: 16,
            shuffle: true,
            drop_last: false,
            seed: 4,
            rank: 0,
            world_size: 1,
        };
        let run = |from: u64, threads: usize, ahead: usize| -> Vec<Vec<u8>> {
            let epoch = Epoch { epoch: 3, order: order.epoch(3), batch_size: 16, batches: from..13 };
            let batches = source.start(epoch, threads, ahead).unwrap();
            let mut all = Vec::new();
            while let Taken::Value(batch) = batches.take(Duration::from_secs(60)).unwrap() {
                all.push(bytes(&batch));
            }
            all
        };
        let all = run(0, 1, 1);
        assert_eq!(all.len(), 13);
        for (threads, ahead) in [(1, 5), (2, 2), (4, 9)] {
            assert_eq!(run(0, threads, ahead), all);
        }
        assert_eq!(run(9, 3, 4), all[9..]);
        assert_eq!(bytes(&source.one(3, 2, &order.epoch(3)[32..48]).unwrap()), all[2]);
        assert!(source.one(0, 0, &[200]).err().unwrap().to_string().contains("200 inputs"));
    }

    #[test]
    fn rows_belong_to_the_drawn_nodes_and_edges() {
        let batch = source().one(0, 0, &[5, 6, 50]).unwrap();
        let nodes: &[i64] = batch.nodes.of();
        assert_eq!(nodes[..3], [15, 16, 60]);
        let x: Vec<f32> =
            nodes.iter().flat_map(|&v| [3 * v, 3 * v + 1, 3 * v + 2].map(|i| i as f32)).collect();
        assert_eq!((batch.tables[0].of::<f32>(), batch.tables[2].of::<f32>()), (&x[..], &x[..9]));
        let edges: &[i64] = batch.edges.of();
        assert!(batch.tables[1].of::<i64>().iter().zip(edges).all(|(value, e)| *value == 3 * e));
        let (src, dst) = batch.edge_index.of::<i64>().split_at(edges.len());
        for (i, e) in edges.iter().enumerate() {
            assert_eq!((nodes[src[i] as usize], nodes[dst[i] as usize]), (e * 7919 % 300, e * 104_729 % 300));
        }
        assert_eq!((batch.num_seeds(), batch.num_nodes(), batch.num_edges()), (3, nodes.len(), edges.len()));
    }
}
