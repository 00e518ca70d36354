//! The sampler of graphs with times.
//!
//! # Algorithm
//!
//! At each hop and for each relation, the edges that a destination's time admits are a range of
//! its ordered row ([`super::index`]), from which neighbours are drawn ([`super::draw`]). Then the
//! sources are numbered: rows that must differ by the semantics of [`super`] get numbers of their
//! own ([`super::numbering`]).
//!
//! # Source
//!
//! The semantics of times are those of PyTorch Geometric's `NeighborLoader` (`time_attr`) and of
//! TGAT (Xu et al., ICLR 2020, section 3.3, for [`TimeCarry::Edge`]).
//!
//! # Cost
//!
//! O(D log d + draws) per relation and hop, and a hash look-up per edge in hops above the last if
//! seeds differ in their times.
//!
//! # Deviations
//!
//! The nodes of all hops so far are destinations of the next hop, as in DGL's blocks. Rows of
//! several seeds are shared if that changes no draw; PyTorch Geometric shares nothing.

use graphmill_core::{
    Block, Error, Result, keyed,
    options::OptionSet,
    typed::{Relation, Schema},
};

use super::{
    OwnTimeRows, TimeBatch, TimeCarry, TimeDestinations, TimeDrawn, TimeHop, TimeOptions, TimeScratch,
    TimeSeeds, TimeSource, TimedGraph, numbering::Numbering,
};
use crate::{BatchKey, typed::TypedFanout};

/// Part of the keys of draws.
const TIME: u64 = 0x0074_696d_6564;

/// A minibatch with times to draw.
#[derive(Clone, Copy, Debug)]
pub struct TimeRequest<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a TimedGraph,
    /// Identity of the random draws.
    pub key: BatchKey,
    /// True to transpose all blocks, for a backward pass.
    pub transposed: bool,
    /// False if the positions of the edges ([`TimeBatch::edges`]) are not read.
    pub positions: bool,
}

impl<'a> TimeRequest<'a> {
    /// Creates a request for blocks without transposes, with the positions of their edges.
    pub fn new(graph: &'a TimedGraph, key: BatchKey) -> Self {
        Self { graph, key, transposed: false, positions: true }
    }

    /// The same request for transposed blocks.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }
}

/// Scratch buffers that a worker uses for all its batches, one after the other.
#[derive(Debug)]
pub struct TimeWorkspace {
    numbering: Vec<Numbering>,
    draws: TimeScratch,
    /// Time of the row that each drawn edge leads to.
    times: Vec<i64>,
    /// Times that distinguish rows.
    identity: Vec<i64>,
}

impl TimeWorkspace {
    /// Creates a workspace for graphs of this schema.
    pub fn new(schema: &Schema) -> Self {
        let numbering = schema.types().iter().map(|node| Numbering::new(node.count)).collect();
        let draws = TimeScratch::default();
        Self { numbering, draws, times: Vec::new(), identity: Vec::new() }
    }
}

/// Rows that are one in a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SameRow {
    /// Rows of the same node.
    Node,
    /// Rows of the same node that admit the same edges in the last hop.
    AdmittedEdges,
    /// Rows of the same node and time.
    Time,
}

/// Draws neighbours that exist at the times of the seeds, by every relation, hop by hop.
#[derive(Clone, Debug)]
pub struct TimeSampler {
    /// Number of neighbours of each relation at each hop, `R x L`; 0 takes none.
    fanout: Vec<Vec<usize>>,
    num_hops: usize,
    options: TimeOptions,
    shares_rows: bool,
}

impl TimeSampler {
    /// Creates a sampler.
    ///
    /// # Errors
    /// The fanout or an option is invalid.
    pub fn new(schema: &Schema, fanout: &TypedFanout, options: TimeOptions) -> Result<Self, String> {
        options.check().map_err(|fault| fault.to_string())?;
        let (fanout, num_hops) = (fanout.of_relations(schema)?, fanout.all.len());
        Ok(Self { fanout, num_hops, options, shares_rows: true })
    }

    /// The same sampler, whose rows are shared only if their times are equal, for models that read
    /// the time of a row.
    #[must_use]
    pub fn without_sharing(self) -> Self {
        Self { shares_rows: false, ..self }
    }

    /// Number of hops from the seeds, a block each.
    pub fn num_hops(&self) -> usize {
        self.num_hops
    }

    /// Options of the sampler.
    pub fn options(&self) -> &TimeOptions {
        &self.options
    }

    /// Draws the blocks around the seeds. A pure function of the request and the seeds.
    ///
    /// # Errors
    /// The seeds are invalid (a seed is listed twice at one time, or does not exist at its time),
    /// or a block would have more edges than 32-bit positions can number.
    pub fn sample(
        &self,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch> {
        let own = OwnTimeRows { graph: request.graph, options: &self.options, parallel: true };
        self.sample_from(&own, request, workspace, seeds)
    }

    /// Draws the blocks around the seeds from the rows of `source`; the graph of the request has
    /// the times of all nodes. The blocks are those of [`TimeSampler::sample`] if the rows are.
    ///
    /// # Errors
    /// As for [`TimeSampler::sample`], and those of `source`.
    pub fn sample_from(
        &self,
        source: &dyn TimeSource,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch> {
        let schema = request.graph.schema();
        let mut batch = seeds.into_sampled(request.graph, self.num_hops)?;
        check_distinct(&batch, schema, workspace)?;
        let mut all_times = batch.times.iter().flatten();
        let first = all_times.next();
        let has_one_time =
            self.options.time_carry == TimeCarry::Seed && all_times.all(|time| Some(time) == first);
        for hop in 0..self.num_hops {
            let same = match self.num_hops - 1 - hop {
                0 => SameRow::Node,
                _ if has_one_time => SameRow::Node,
                1 if self.shares_rows && self.options.time_window == 0 => SameRow::AdmittedEdges,
                _ => SameRow::Time,
            };
            self.draw_hop((source, request), (hop, same), workspace, &mut batch)?;
        }
        Ok(batch)
    }

    /// Draws a hop into its block and numbers its sources.
    fn draw_hop(
        &self,
        (source, request): (&dyn TimeSource, &TimeRequest),
        (hop, same): (usize, SameRow),
        workspace: &mut TimeWorkspace,
        batch: &mut TimeBatch,
    ) -> Result<()> {
        let schema = request.graph.schema();
        let at = self.num_hops - 1 - hop;
        let TimeBatch { sampled, row_times, edges, .. } = batch;
        let (nodes, block) = (&mut sampled.input_nodes, &mut sampled.blocks[at]);
        let TimeWorkspace { numbering, draws, times, identity } = workspace;
        block.num_dst.iter_mut().zip(nodes.iter()).for_each(|(count, nodes)| *count = nodes.len());
        for (t, numbering) in numbering.iter_mut().enumerate() {
            match same {
                SameRow::Node => numbering.start_nodes(&nodes[t]),
                SameRow::Time => _ = numbering.start_pairs(&nodes[t], &row_times[t]),
                SameRow::AdmittedEdges => {
                    let rows = TimeDestinations { nodes: &nodes[t], times: &row_times[t] };
                    self.last_admitted((source, schema), t, rows, identity)?;
                    numbering.start_pairs(&nodes[t], identity);
                }
            }
        }
        for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
            let rows = 0..block.num_dst[dst];
            if self.fanout[r][hop] == 0 || rows.is_empty() {
                continue;
            }
            let seed = keyed::key(&[request.key.seed, TIME, r as u64]);
            let of_relation = TimeHop {
                relation: r,
                fanout: self.fanout[r][hop],
                key: BatchKey { seed, ..request.key }.hop(hop),
                positions: request.positions,
            };
            let Block { indptr, indices, .. } = &mut block.relations[r];
            let drawn = TimeDrawn {
                indptr,
                sources: indices,
                positions: &mut edges[at][r],
                times: (at > 0).then_some(&mut *times),
            };
            let of = TimeDestinations { nodes: &nodes[dst][rows.clone()], times: &row_times[dst][rows] };
            source.draw(&of_relation, of, draws, drawn)?;
            let of_edges = match same {
                SameRow::Node => {
                    numbering[src].number_nodes(indices, block.num_dst[src], &mut nodes[src]);
                    if at > 0 {
                        // all times are equal
                        let time = row_times[dst][0];
                        row_times[src].resize(nodes[src].len(), time);
                    }
                    continue;
                }
                SameRow::Time => &*times,
                SameRow::AdmittedEdges => {
                    let rows = TimeDestinations { nodes: indices, times };
                    self.last_admitted((source, schema), src, rows, identity)?;
                    &*identity
                }
            };
            let (rows, row_times) = (&mut nodes[src], &mut row_times[src]);
            numbering[src].number_pairs(indices, of_edges, rows.len(), |e, node| {
                rows.push(node);
                row_times.push(times[e]);
            });
        }
        block.num_src.iter_mut().zip(nodes.iter()).for_each(|(count, nodes)| *count = nodes.len());
        block.fit(schema);
        if request.transposed {
            block.transpose(true);
        }
        Ok(())
    }

    /// Overwrites `out` by the visible time of the last edge that each row of type `t` admits in
    /// the last hop, by any relation; [`i64::MIN`] if it admits none. Without a window, the
    /// admitted edges are those up to that time.
    fn last_admitted(
        &self,
        (source, schema): (&dyn TimeSource, &Schema),
        t: usize,
        rows: TimeDestinations,
        out: &mut Vec<i64>,
    ) -> Result<()> {
        let last_hop = self.num_hops - 1;
        let relations: Vec<usize> = schema.into_type(t).filter(|&r| self.fanout[r][last_hop] > 0).collect();
        if rows.nodes.is_empty() || relations.is_empty() {
            out.clear();
            out.resize(rows.nodes.len(), i64::MIN);
            return Ok(());
        }
        source.last_admitted(&relations, rows, out)
    }
}

/// Checks that no seed is listed twice at one time.
fn check_distinct(batch: &TimeBatch, schema: &Schema, workspace: &mut TimeWorkspace) -> Result<()> {
    let seeds = batch.sampled.input_nodes.iter().zip(&batch.row_times);
    for (t, ((nodes, times), numbering)) in seeds.zip(&mut workspace.numbering).enumerate() {
        if let Some(i) = numbering.start_pairs(nodes, times) {
            return Err(Error::invalid(format!(
                "batch {} with times: seed {} of type '{}' is listed twice at time {}; pass each seed once",
                batch.sampled.seeds.number,
                nodes[i],
                schema.types()[t].name,
                times[i]
            )));
        }
    }
    Ok(())
}
