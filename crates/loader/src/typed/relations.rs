//! Minibatches of stacked hops, each of which draws neighbours by every relation.
//!
//! # Algorithm
//!
//! At each hop, every relation draws in-neighbours of the nodes of its destination type found so
//! far, by the draws of a [`HopSampler`](crate::sampler::HopSampler) on the relation's own graph.
//! Then the new sources of all relations join the nodes of their types, and are destinations of
//! the next hop.
//!
//! The key of a relation's draws is that of the batch mixed with the relation's number, so
//! relations draw independently. The draws of [`labor`](crate::sampler::labor) are keyed by source
//! type instead: a node has one random number per hop, and all relations from its type tend to take
//! the same nodes.
//!
//! # Source
//!
//! Neighbour sampling on heterogeneous graphs, as in DGL and in PyTorch Geometric's
//! `NeighborLoader`.
//!
//! # Cost
//!
//! The sum of the relations' draws.
//!
//! # Deviations
//!
//! PyTorch Geometric expands a node once, in the hop after it was found; here the nodes of all hops
//! so far are destinations of the next hop, as in DGL's blocks.

use std::{ops::Range, sync::Arc};

use graphmill_core::{
    Graph, Result, keyed, memory,
    options::OwnOptions,
    typed::{Relation, Schema, TypedGraph},
};

use super::{
    TypedOptions, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedSplitSampler, TypedWorkspace,
    WrapHops, sampler::cannot_name_edges,
};
use crate::{
    BatchKey, Fanout,
    sampler::{
        self, HopRequest, HopSampler, SamplerKind, SamplerOptions, Source, WeightOptions, sample_remaining,
        sample_remaining_edges, weighted::EdgeWeights,
    },
};

/// Parts of the keys of draws.
mod part {
    pub(super) const RELATION: u64 = 1;
    pub(super) const SOURCE_TYPE: u64 = 2;
}

/// Result of a constructor in the table.
type Made = Result<Box<dyn TypedSampler>, String>;

/// Makes a sampler that draws by the row `name` of [`sampler::TABLE`] on every relation.
pub(super) fn make(name: &str, with: &TypedOptions, graph: &TypedGraph) -> Made {
    Ok(Box::new(RelationHops::new(name, with, graph)?))
}

/// As [`make`], for samplers whose destinations share random numbers.
pub(super) fn make_sharing(name: &str, with: &TypedOptions, graph: &TypedGraph) -> Made {
    Ok(Box::new(RelationHops::new(name, with, graph)?.sharing_numbers()))
}

/// Rows of [`sampler::TABLE`] by which relations draw, with their options.
#[derive(Clone)]
pub(crate) struct RelationKinds {
    /// Number of neighbours of each relation at each hop, `R x L`; 0 takes none.
    pub(crate) fanout: Vec<Vec<usize>>,
    /// Number of hops (`L`).
    pub(crate) num_hops: usize,
    /// Row and options of each relation, if some hop follows it.
    kinds: Vec<Option<(SamplerKind, SamplerOptions)>>,
    /// True if nodes of a type share their random numbers among the relations from it.
    shares_numbers: bool,
}

impl RelationKinds {
    /// Finds the rows for `graph`, as [`RelationHops::new`] describes.
    ///
    /// # Errors
    /// As for [`RelationHops::new`], without those of the relations' samplers.
    pub(crate) fn new(name: &str, with: &TypedOptions, graph: &TypedGraph) -> Result<Self, String> {
        let fanout = with.fanout.of_relations(graph.schema())?;
        let num_hops = with.fanout.all.len();
        let is_weighted = graph.relations().iter().any(|relation| relation.edge_weight().is_some());
        let row = sampler::TABLE.find(name).map_err(|e| e.to_string())?;
        check_options(&row.make, &with.own, is_weighted)?;
        let needed = row.make.needed_weights.filter(|needed| (needed.by)(&with.own));
        let mut kinds = Vec::with_capacity(fanout.len());
        for (r, fanout) in fanout.iter().enumerate() {
            if fanout.iter().all(|&k| k == 0) {
                kinds.push(None);
                continue;
            }
            let row = match needed {
                Some(needed) if graph.relation(r).edge_weight().is_none() => {
                    sampler::TABLE.find(needed.uniform).map_err(|e| e.to_string())?
                }
                _ => row,
            };
            let hops = fanout.iter().map(|&k| if k == 0 { 1 } else { i64::try_from(k).unwrap_or(-1) });
            let options = SamplerOptions {
                fanout: Fanout(hops.collect()),
                seed: with.seed,
                own: with.own.clone(),
                ..SamplerOptions::default()
            };
            let kind = row.make;
            if !kind.draws_relations {
                return Err(format!(
                    "sampler '{name}' reads more than the rows of its destinations, so it cannot draw by a \
                     relation between node types; use neighbor"
                ));
            }
            kinds.push(Some((kind, options)));
        }
        Ok(Self { fanout, num_hops, kinds, shares_numbers: false })
    }

    /// The same rows, whose nodes have the same random numbers in all relations from their type.
    #[must_use]
    pub(crate) fn sharing_numbers(self) -> Self {
        Self { shares_numbers: true, ..self }
    }

    /// Makes the sampler of relation `r` with its tables of `graph`, which has rows of the
    /// relation; `None` if no hop follows the relation.
    ///
    /// # Errors
    /// An option is invalid.
    pub(crate) fn make(&self, r: usize, graph: &Graph) -> Result<Option<Arc<dyn HopSampler>>, String> {
        let Some((kind, options)) = &self.kinds[r] else { return Ok(None) };
        kind.hop(options, &Source::new(graph, &[])).map(Some)
    }

    /// Key of the draws of relation `r`.
    pub(crate) fn key(&self, key: BatchKey, schema: &Schema, r: usize) -> BatchKey {
        let part = if self.shares_numbers {
            [part::SOURCE_TYPE, schema.relations()[r].src as u64]
        } else {
            [part::RELATION, r as u64]
        };
        BatchKey { seed: keyed::key(&[key.seed, part[0], part[1]]), ..key }
    }
}

/// Draws neighbours by every relation, hop by hop.
#[derive(Clone)]
pub struct RelationHops {
    kinds: RelationKinds,
    /// Sampler of each relation, if some hop follows it.
    samplers: Vec<Option<Arc<dyn HopSampler>>>,
}

impl RelationHops {
    /// Creates a sampler that draws by the row `name` of [`sampler::TABLE`], which must go from
    /// seeds and must read the rows of the destinations alone: nodes of other types have none. O(V
    /// + E) if it builds tables of weights.
    ///
    /// # Errors
    /// The fanout or an option is invalid, the name is unknown, or draws by weight are asked of
    /// relations that store none.
    pub fn new(name: &str, with: &TypedOptions, graph: &TypedGraph) -> Result<Self, String> {
        let kinds = RelationKinds::new(name, with, graph)?;
        let make = |r: usize| {
            let made = kinds.make(r, graph.relation(r));
            made.map_err(|e| format!("relation {}: {e}", graph.schema().relation_name(r)))
        };
        let samplers = (0..graph.schema().num_relations()).map(make).collect::<Result<_, String>>()?;
        Ok(Self { kinds, samplers })
    }

    /// The same sampler, whose nodes have the same random numbers in all relations from their
    /// type.
    #[must_use]
    pub fn sharing_numbers(self) -> Self {
        Self { kinds: self.kinds.sharing_numbers(), ..self }
    }
}

/// Rejects weights that a relation cannot have.
fn check_options(kind: &SamplerKind, own: &OwnOptions, is_weighted: bool) -> Result<(), String> {
    let WeightOptions { edge_weights } = own.get();
    if edge_weights != EdgeWeights::Stored {
        return Err(format!(
            "edge weights '{edge_weights}': the degrees of a typed graph's nodes differ by relation; use \
             --edge-weights stored"
        ));
    }
    match kind.needed_weights {
        Some(needed) if !is_weighted && (needed.by)(own) => {
            Err(format!("no relation stores edge weights; {}", needed.remedy))
        }
        _ => Ok(()),
    }
}

impl TypedSampler for RelationHops {
    fn num_hops(&self) -> usize {
        self.kinds.num_hops
    }

    fn num_blocks(&self) -> usize {
        self.kinds.num_hops
    }

    fn is_random(&self) -> bool {
        self.samplers.iter().flatten().any(|sampler| sampler.properties().is_random)
    }

    fn is_per_node(&self) -> bool {
        self.samplers.iter().flatten().all(|sampler| sampler.properties().is_per_node)
    }

    fn by_relation(&self, wrap: &mut WrapHops) -> Option<Result<Box<dyn TypedSampler>, String>> {
        let samplers = self.samplers.iter().cloned().enumerate();
        let samplers = samplers.map(|(r, sampler)| sampler.map(|sampler| wrap(r, sampler)).transpose());
        let wrapped = |samplers| Box::new(Self { samplers, ..self.clone() }) as Box<dyn TypedSampler>;
        Some(samplers.collect::<Result<_, String>>().map(wrapped))
    }

    fn follows(&self, _: &Schema, hop: usize, r: usize) -> bool {
        self.kinds.fanout[r][hop] > 0
    }

    fn in_parts(&self) -> Option<&dyn TypedSplitSampler> {
        Some(self)
    }

    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        let batch = self.draw(request, workspace, seeds, (0..self.kinds.num_hops, self.kinds.num_hops))?;
        Ok(transposed(request, workspace, batch))
    }
}

impl TypedSplitSampler for RelationHops {
    fn sample_upper(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        let hops = self.kinds.num_hops;
        self.draw(request, workspace, seeds, (0..hops.saturating_sub(1), hops))
    }

    fn sample_bottom(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        mut batch: TypedSampled,
    ) -> Result<TypedSampled> {
        let lists = workspace.relabel.iter_mut().zip(&batch.input_nodes);
        lists.for_each(|(relabel, nodes)| relabel.start(nodes));
        self.draw_hop(request, workspace, self.kinds.num_hops - 1, 0, &mut batch)?;
        Ok(transposed(request, workspace, batch))
    }

    fn sample_rows(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        let hops = self.kinds.num_hops;
        let batch = self.draw(request, workspace, seeds, (hops - 1..hops, 1))?;
        Ok(transposed(request, workspace, batch))
    }
}

/// The batch with transposed blocks, if the request says so.
fn transposed(request: &TypedRequest, workspace: &TypedWorkspace, mut batch: TypedSampled) -> TypedSampled {
    if request.transposed {
        batch.blocks.iter_mut().for_each(|block| block.transpose(workspace.hop.parallel));
    }
    batch
}

impl RelationHops {
    /// Draws these hops around the seeds, from the last of `blocks` blocks down.
    fn draw(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
        (hops, blocks): (Range<usize>, usize),
    ) -> Result<TypedSampled> {
        let mut batch = seeds.into_sampled(request.graph.schema(), blocks, &mut workspace.relabel)?;
        for (hop, block) in hops.zip((0..blocks).rev()) {
            self.draw_hop(request, workspace, hop, block, &mut batch)?;
        }
        Ok(batch)
    }

    /// Draws block `block` of a batch, whose nodes so far the workspace numbers, as hop `hop`.
    fn draw_hop(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        hop: usize,
        block: usize,
        batch: &mut TypedSampled,
    ) -> Result<()> {
        let &TypedRequest { graph, key, aggregation, positions, .. } = request;
        let schema = graph.schema();
        let TypedWorkspace { relabel, hop: scratch, new, .. } = workspace;
        let TypedSampled { seeds, blocks, input_nodes: nodes, .. } = batch;
        let block = &mut blocks[block];
        block.num_dst.iter_mut().zip(nodes.iter()).for_each(|(count, nodes)| *count = nodes.len());
        for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
            let Some(sampler) = self.samplers[r].as_ref().filter(|_| self.kinds.fanout[r][hop] > 0) else {
                continue;
            };
            let dst = &nodes[dst][..block.num_dst[dst]];
            if dst.is_empty() {
                continue;
            }
            let slice = &mut block.relations[r];
            let key = self.kinds.key(key, schema, r);
            let draw = HopRequest {
                aggregation,
                excluded: seeds.excluded(r),
                ..HopRequest::new(graph.relation(r), hop, dst, key)
            };
            if positions {
                sampler.by_edges().ok_or_else(cannot_name_edges)?;
                sample_remaining_edges(&**sampler, &draw, scratch, slice, &mut block.positions[r])?;
            } else {
                sample_remaining(&**sampler, &draw, scratch, slice)?;
            }
            new.clear();
            relabel[src].relabel(&mut slice.indices, &nodes[src], new);
            memory::demand_append(&mut nodes[src], new);
        }
        block.num_src.iter_mut().zip(nodes.iter()).for_each(|(count, nodes)| *count = nodes.len());
        block.fit(schema);
        Ok(())
    }
}
