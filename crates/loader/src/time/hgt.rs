//! HGSampling as of the times of the seeds.
//!
//! # Algorithm
//!
//! That of [`Hgt`] over rows, which are pairs of a node and a time: the sources of a row have its
//! time, and the edges that it admits give their budgets. The budgets of a type are those of its
//! rows of all times together, of which as many are drawn as without times. Rows of a node at
//! several times have one random number, so that they tend to be drawn together. With seeds of one
//! time, the draws are those of [`Hgt`] on the graph as of that time, whose rows are in the order
//! of their times.
//!
//! # Source
//!
//! That of [`Hgt`]. Its authors give each node of a sample a time as well (section 3.4, "inductive
//! timestamp assignment").
//!
//! # Cost
//!
//! O(log d), and a pass over the admitted edges, for each sampled row and relation, and a sort of
//! the budgets per hop and type.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

use graphmill_core::{
    Block, NodeId, ObjectPool, Result, memory,
    typed::{Relation, Schema},
};

use super::{
    OwnTimeRows, TimeBatch, TimeDestinations, TimeOptions, TimeRequest, TimeSeeds, TimeWorkspace, TimedGraph,
    hops::lists,
    relation::admit,
    sampler::check_distinct,
    timed::{Made, TimedSampler, own_draws},
};
use crate::{
    sampler::{HopRequest, HopScratch},
    typed::{Hgt, TypedOptions, cannot_name_edges, race, race_key},
};

/// A node at a time.
type Row = (NodeId, i64);

/// Makes the sampler of a run.
pub(crate) fn make(with: &TypedOptions, graph: &TimedGraph) -> Made {
    let (hgt, options) = (Hgt::new(with, graph.schema())?, own_draws(with)?);
    Ok(Box::new(HgtAtTimes { hgt, options, spare: ObjectPool::default() }))
}

/// Samples rows of each type by their budgets.
struct HgtAtTimes {
    hgt: Hgt,
    options: TimeOptions,
    spare: ObjectPool<HopScratch>,
}

impl HgtAtTimes {
    /// Draws in-neighbours of the rows `rows` of the destination type of relation `r`: row ends and
    /// sources. `hop` is that of the budgets, or the number of hops for the edges of the block.
    fn draw(
        &self,
        request: &TimeRequest,
        (r, hop): (usize, usize),
        batch: &TimeBatch,
        rows: Range<usize>,
        out: &mut Block,
    ) -> Result<()> {
        let t = request.graph.schema().relations()[r].dst;
        out.indptr.clear();
        out.indptr.push(0);
        out.indices.clear();
        if rows.is_empty() {
            return Ok(());
        }
        let (nodes, times) = (&batch.sampled.input_nodes[t][rows.clone()], &batch.row_times[t][rows]);
        let own = OwnTimeRows { graph: request.graph, options: &self.options, parallel: true };
        let mut admitted = Vec::new();
        admit(&own, r, TimeDestinations { nodes, times }, &mut admitted);
        let lists = lists(request.graph, r, nodes, &admitted)?;
        let dst = memory::demand_collect(0..nodes.len() as NodeId);
        let of = HopRequest { names: Some(nodes), ..HopRequest::new(&lists, hop, &dst, request.key) };
        self.spare.with(|scratch| self.hgt.draws[r].sample_hop(&of, scratch, out))
    }

    /// Adds to the budgets of the sources of the rows from `from[t]` on, for all types.
    fn add_budgets(
        &self,
        request: &TimeRequest,
        hop: usize,
        (batch, from): (&TimeBatch, &[usize]),
        inside: &[HashSet<Row>],
        budgets: &mut [BTreeMap<Row, f64>],
    ) -> Result<()> {
        let mut drawn = Block::default();
        for (r, &Relation { src, dst, .. }) in request.graph.schema().relations().iter().enumerate() {
            let rows = from[dst]..batch.row_times[dst].len();
            self.draw(request, (r, hop), batch, rows.clone(), &mut drawn)?;
            for (ends, &time) in drawn.indptr.windows(2).zip(&batch.row_times[dst][rows]) {
                let row = &drawn.indices[ends[0] as usize..ends[1] as usize];
                for u in row.iter().map(|&u| (u, time)).filter(|u| !inside[src].contains(u)) {
                    *budgets[src].entry(u).or_default() += 1.0 / row.len() as f64;
                }
            }
        }
        Ok(())
    }

    /// Fills the block with the edges between the sampled rows.
    fn connect(&self, request: &TimeRequest, batch: &mut TimeBatch) -> Result<()> {
        let schema = request.graph.schema();
        let mut block = std::mem::take(&mut batch.sampled.blocks[0]);
        let counts: Vec<usize> = batch.row_times.iter().map(Vec::len).collect();
        block.num_dst.clone_from(&counts);
        block.num_src.clone_from(&counts);
        let numbered = |(nodes, times): (&Vec<NodeId>, &Vec<i64>)| {
            let rows = nodes.iter().copied().zip(times.iter().copied());
            let mut numbers = HashMap::new();
            memory::demand_in_map(&mut numbers, nodes.len());
            numbers.extend(rows.zip(0..));
            numbers
        };
        let numbers: Vec<HashMap<Row, u32>> =
            batch.sampled.input_nodes.iter().zip(&batch.row_times).map(numbered).collect();
        for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
            let slice = &mut block.relations[r];
            self.draw(request, (r, self.hgt.num_hops), batch, 0..counts[dst], slice)?;
            let (mut kept, mut start) = (0, 0);
            for i in 1..slice.indptr.len() {
                let end = slice.indptr[i] as usize;
                for e in start..end {
                    if let Some(&number) = numbers[src].get(&(slice.indices[e], batch.row_times[dst][i - 1]))
                    {
                        slice.indices[kept] = number;
                        kept += 1;
                    }
                }
                start = end;
                slice.indptr[i] = kept as u32;
            }
            slice.indices.truncate(kept);
        }
        block.fit(schema);
        if request.transposed {
            block.transpose(true);
        }
        batch.sampled.blocks[0] = block;
        Ok(())
    }
}

impl TimedSampler for HgtAtTimes {
    fn num_hops(&self) -> usize {
        self.hgt.num_hops
    }

    fn num_blocks(&self) -> usize {
        1
    }

    fn is_random(&self) -> bool {
        true
    }

    fn is_per_node(&self) -> bool {
        false
    }

    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
        self.hgt.nodes[schema.relations()[r].src][hop] > 0
    }

    fn sample(
        &self,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch> {
        if request.positions {
            return Err(cannot_name_edges());
        }
        let schema = request.graph.schema();
        let mut batch = seeds.into_sampled(request.graph, 1)?;
        check_distinct(&batch, schema, workspace)?;
        let rows = |(nodes, times): (&Vec<NodeId>, &Vec<i64>)| {
            let mut rows = HashSet::new();
            memory::demand_in_set(&mut rows, nodes.len());
            rows.extend(nodes.iter().copied().zip(times.iter().copied()));
            rows
        };
        let mut inside: Vec<HashSet<Row>> =
            batch.sampled.input_nodes.iter().zip(&batch.row_times).map(rows).collect();
        let mut budgets = vec![BTreeMap::new(); schema.num_types()];
        let mut from = vec![0; schema.num_types()];
        for hop in 0..self.hgt.num_hops {
            self.add_budgets(request, hop, (&batch, &from), &inside, &mut budgets)?;
            let key = request.key.hop(hop);
            from = batch.row_times.iter().map(Vec::len).collect();
            for (t, budget) in budgets.iter_mut().enumerate() {
                for row in race(budget, self.hgt.nodes[t][hop], race_key(key, t), |row: Row| row.0) {
                    budget.remove(&row);
                    memory::demand_in_set(&mut inside[t], 1);
                    inside[t].insert(row);
                    memory::demand_push(&mut batch.sampled.input_nodes[t], row.0);
                    memory::demand_push(&mut batch.row_times[t], row.1);
                }
            }
        }
        self.connect(request, &mut batch)?;
        Ok(batch)
    }
}
