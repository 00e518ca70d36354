//! The sampler of graphs with times.
//!
//! # Algorithm
//!
//! At each hop and for each relation, the edges that a destination's time admits are a range of
//! its ordered row ([`super::index`]), from which neighbours are drawn ([`super::draw`]). Then the
//! sources are numbered: rows that must differ by the semantics of [`super`] get numbers of their
//! own ([`super::numbering`]). The range of a row is found once: it holds for all hops, and for the
//! test whether two rows admit the same edges.
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
    Block, Error, Result,
    block::Aggregation,
    keyed, memory,
    options::OptionSet,
    typed::{Relation, Schema},
};

use super::{
    Admitted, OwnTimeRows, TimeBatch, TimeCarry, TimeDestinations, TimeDrawn, TimeHop, TimeOptions,
    TimeSeeds, TimeSource, TimedGraph, numbering::Numbering,
};
use crate::{
    BatchKey,
    typed::{TypedFanout, TypedSampled},
};

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
    /// The sum over neighbours that layers compute, for samplers that weight edges.
    pub aggregation: Aggregation,
}

impl<'a> TimeRequest<'a> {
    /// Creates a request for blocks without transposes, with the positions of their edges.
    pub fn new(graph: &'a TimedGraph, key: BatchKey) -> Self {
        Self { graph, key, transposed: false, positions: true, aggregation: Aggregation::Other }
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
    /// Admitted edges of the first rows of each relation's destinations, `R` lists.
    admitted: Vec<Vec<Admitted>>,
    /// Admitted edges of the rows that drawn edges lead to, for each relation into their type.
    of_edges: Vec<Vec<Admitted>>,
    /// Time of the row that each drawn edge leads to.
    times: Vec<i64>,
    /// Times that distinguish rows.
    identity: Vec<i64>,
}

impl TimeWorkspace {
    /// Creates a workspace for graphs of this schema.
    pub fn new(schema: &Schema) -> Self {
        let numbering = schema.types().iter().map(|node| Numbering::new(node.count)).collect();
        let admitted = vec![Vec::new(); schema.num_relations()];
        Self { numbering, of_edges: admitted.clone(), admitted, times: Vec::new(), identity: Vec::new() }
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

/// Numbering of the rows of a hop.
#[derive(Clone, Copy, Debug)]
struct Rows {
    same: SameRow,
    /// True if the hop before numbered its rows likewise.
    continues: bool,
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

    /// Returns true if hop `hop` (0 next to the seeds) draws by relation `r`.
    pub fn draws(&self, hop: usize, r: usize) -> bool {
        self.fanout[r][hop] > 0
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
        workspace.admitted.iter_mut().for_each(Vec::clear);
        let mut before = None;
        for hop in 0..self.num_hops {
            let same = match self.num_hops - 1 - hop {
                0 => SameRow::Node,
                _ if has_one_time => SameRow::Node,
                1 if self.shares_rows && self.options.time_window == 0 => SameRow::AdmittedEdges,
                _ => SameRow::Time,
            };
            let rows = Rows { same, continues: before == Some(same) };
            self.draw_hop((source, request), (hop, rows), workspace, &mut batch)?;
            before = Some(same);
        }
        Ok(batch)
    }

    /// Draws a hop into its block and numbers its sources.
    fn draw_hop(
        &self,
        (source, request): (&dyn TimeSource, &TimeRequest),
        (hop, rows): (usize, Rows),
        workspace: &mut TimeWorkspace,
        batch: &mut TimeBatch,
    ) -> Result<()> {
        let schema = request.graph.schema();
        let at = self.num_hops - 1 - hop;
        let (nodes, block) = (&batch.sampled.input_nodes, &mut batch.sampled.blocks[at]);
        block.num_dst.iter_mut().zip(nodes).for_each(|(count, nodes)| *count = nodes.len());
        self.start((source, schema), rows, workspace, batch)?;
        for (r, &Relation { dst, .. }) in schema.relations().iter().enumerate() {
            let TimeBatch { sampled, row_times, edges, .. } = &mut *batch;
            let block = &mut sampled.blocks[at];
            let count = block.num_dst[dst];
            if self.fanout[r][hop] == 0 || count == 0 {
                continue;
            }
            let of = TimeDestinations {
                nodes: &sampled.input_nodes[dst][..count],
                times: &row_times[dst][..count],
            };
            let seed = keyed::key(&[request.key.seed, TIME, r as u64]);
            let of_relation = TimeHop {
                relation: r,
                hop,
                fanout: self.fanout[r][hop],
                key: BatchKey { seed, ..request.key }.hop(hop),
                positions: request.positions,
            };
            let Block { indptr, indices, edge_weight, .. } = &mut block.relations[r];
            let drawn = TimeDrawn {
                indptr,
                sources: indices,
                weights: edge_weight,
                positions: &mut edges[at][r],
                times: (rows.same != SameRow::Node).then_some(&mut workspace.times),
            };
            source.draw(&of_relation, of, &mut workspace.admitted[r], drawn)?;
            self.number((source, schema), (r, at), rows.same, workspace, batch)?;
        }
        let TypedSampled { input_nodes: nodes, blocks, .. } = &mut batch.sampled;
        let block = &mut blocks[at];
        block.num_src.iter_mut().zip(nodes).for_each(|(count, nodes)| *count = nodes.len());
        block.fit(schema);
        if request.transposed {
            block.transpose(true);
        }
        Ok(())
    }

    /// Prepares the numbering of a hop with the rows so far.
    fn start(
        &self,
        (source, schema): (&dyn TimeSource, &Schema),
        rows: Rows,
        workspace: &mut TimeWorkspace,
        batch: &TimeBatch,
    ) -> Result<()> {
        if rows.continues {
            return Ok(());
        }
        let TimeWorkspace { numbering, admitted, identity, .. } = workspace;
        let of_types = batch.sampled.input_nodes.iter().zip(&batch.row_times);
        for (t, (numbering, (nodes, times))) in numbering.iter_mut().zip(of_types).enumerate() {
            match rows.same {
                SameRow::Node => numbering.start_nodes(nodes),
                SameRow::Time => _ = numbering.start_pairs(nodes, times),
                SameRow::AdmittedEdges => {
                    let relations = self.last_relations(schema, t);
                    identify((source, &relations), TimeDestinations { nodes, times }, admitted, identity)?;
                    numbering.start_pairs(nodes, identity);
                }
            }
        }
        Ok(())
    }

    /// Replaces the sources that relation `r` drew into block `at` by rows, and appends the new
    /// rows.
    fn number(
        &self,
        (source, schema): (&dyn TimeSource, &Schema),
        (r, at): (usize, usize),
        same: SameRow,
        workspace: &mut TimeWorkspace,
        batch: &mut TimeBatch,
    ) -> Result<()> {
        let &Relation { src, dst, .. } = &schema.relations()[r];
        let TimeBatch { sampled, row_times, .. } = batch;
        let (nodes, sources) = (&mut sampled.input_nodes[src], &mut sampled.blocks[at].relations[r].indices);
        let TimeWorkspace { numbering, admitted, of_edges, times, identity } = workspace;
        let numbering = &mut numbering[src];
        if same == SameRow::Node {
            numbering.number_nodes(sources, nodes);
            if at > 0 {
                // all times are equal
                let time = row_times[dst][0];
                memory::demand_len(&mut row_times[src], nodes.len(), time);
            }
            return Ok(());
        }
        let row_times = &mut row_times[src];
        if same == SameRow::Time {
            numbering.number_pairs(sources, times, nodes.len(), |e, node| {
                memory::demand_push(nodes, node);
                memory::demand_push(row_times, times[e]);
            });
            return Ok(());
        }
        let into = self.last_relations(schema, src);
        into.iter().for_each(|&r| of_edges[r].clear());
        identify((source, &into), TimeDestinations { nodes: sources, times }, of_edges, identity)?;
        numbering.number_pairs(sources, identity, nodes.len(), |e, node| {
            memory::demand_push(nodes, node);
            memory::demand_push(row_times, times[e]);
            into.iter().for_each(|&r| memory::demand_extend(&mut admitted[r], of_edges[r].get(e).copied()));
        });
        Ok(())
    }

    /// Relations into type `t` that draw in the last hop.
    fn last_relations(&self, schema: &Schema, t: usize) -> Vec<usize> {
        let draws = |r: &usize| self.fanout[*r][self.num_hops - 1] > 0;
        schema.into_type(t).filter(draws).collect()
    }
}

/// Overwrites `out` by numbers that distinguish rows by the edges that they admit in the last hop,
/// as [`TimeSource::last_admitted`] has them.
fn identify(
    (source, relations): (&dyn TimeSource, &[usize]),
    of: TimeDestinations,
    admitted: &mut [Vec<Admitted>],
    out: &mut Vec<i64>,
) -> Result<()> {
    if of.nodes.is_empty() || relations.is_empty() {
        out.clear();
        memory::demand_len(out, of.nodes.len(), i64::MIN);
        return Ok(());
    }
    source.last_admitted(relations, of, admitted, out)
}

/// Checks that no seed is listed twice at one time.
pub(super) fn check_distinct(
    batch: &TimeBatch,
    schema: &Schema,
    workspace: &mut TimeWorkspace,
) -> Result<()> {
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
