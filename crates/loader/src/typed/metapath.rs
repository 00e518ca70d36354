//! PinSAGE's neighbourhoods along metapaths: the `k` nodes of a node's own type that walks along a
//! path of edge types visit most.
//!
//! # Algorithm
//!
//! ```text
//!   --metapath writes,written_by:   paper ◄─writes─ author ◄─written_by─ paper
//! ```
//!
//! A walk steps to a uniform in-neighbour by each edge type of the path in turn, which ends at the
//! type where it began. A traversal of the path visits the node at its end. After each traversal a
//! walk ends with the restart probability, and in any case after `--walk-length` traversals or at a
//! node without in-neighbours. The neighbours of a node are the `k` most visited nodes (the hop's
//! fanout), by descending visits; a walk that returns to its start visits it. Their weights are
//! the visits, or shares of them for a mean.
//!
//! The edges between a node and its neighbours are those of a relation of their own,
//! `TYPE:metapath:TYPE`, which [`added`] names and whose stored graph has no edges. No other
//! relation is followed.
//!
//! # Source
//!
//! Ying et al., *Graph convolutional neural networks for web-scale recommender systems*, KDD 2018,
//! section 3.1; along metapaths as in DGL's `PinSAGESampler` and `RandomWalkNeighborSampler`.
//!
//! # Cost
//!
//! O(walks x length x path) reads per node.
//!
//! # Deviations
//!
//! Edges that a batch excludes are not walked, instead of being removed from the neighbours. A
//! layer that sums neighbours without dividing gets shares of the visits, because the number of
//! paths of a node is not counted.

use std::sync::Arc;

use clap::Args;
use graphmill_core::{
    Error, NodeId, Result, keyed, memory,
    options::OptionSet,
    typed::{Relation, Schema, TypedGraph},
};
use serde::{Deserialize, Serialize};

use super::{
    TypedOptions, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace,
    sampler::cannot_name_edges,
};
use crate::{
    BatchKey, Fanout,
    sampler::{
        HopRequest, PathSource,
        metapath::EdgesLeft,
        random_walk::{LENGTH, RandomWalk, WalkLength, WalkOptions},
    },
};

/// Name of the relations of the neighbours.
const NAME: &str = "metapath";
/// Metapaths that the sampler chooses.
const AUTO: &str = "auto";
/// Part of the keys of draws, beside those of other typed samplers.
const PART: u64 = 6;

/// Options of [`MetapathWalk`].
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetapathOptions {
    /// Edge types of a walk, from a node back to its type: auto or names.
    ///
    /// Names are separated by commas, in the order of the steps; a step goes from the destination
    /// of an edge to its source. With --metapath writes,written_by a walk goes from a paper to an
    /// author and to another paper. Separate the paths of several node types by ;. With auto, two
    /// edge types over another node type, the first by number. Applies to --sampler metapath-walk.
    #[arg(long, value_name = "NAMES")]
    pub metapath: String,
}

impl Default for MetapathOptions {
    fn default() -> Self {
        Self { metapath: AUTO.into() }
    }
}

impl OptionSet for MetapathOptions {}

/// A closed path of relations.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Metapath {
    /// Node type where it begins and ends.
    node_type: usize,
    /// Relations in the order of the steps.
    relations: Vec<usize>,
}

/// Paths that the options name, or choose for the types `seeds`.
fn paths(options: &MetapathOptions, schema: &Schema, seeds: &[usize]) -> Result<Vec<Metapath>, String> {
    if options.metapath != AUTO {
        let paths: Vec<Metapath> =
            options.metapath.split(';').map(|path| named(path, schema)).collect::<Result<_, String>>()?;
        for (i, path) in paths.iter().enumerate() {
            if paths[..i].iter().any(|other| other.node_type == path.node_type) {
                let name = &schema.types()[path.node_type].name;
                return Err(format!(
                    "--metapath {}: two paths begin at type '{name}'; use one for each type",
                    options.metapath
                ));
            }
        }
        return Ok(paths);
    }
    let all = schema.relations();
    let choose = |&t: &usize| {
        let forward = all.iter().enumerate().filter(|(_, of)| of.dst == t && of.src != t && of.name != NAME);
        let back = |x: usize| all.iter().position(|of| of.dst == x && of.src == t && of.name != NAME);
        let over = forward.clone().find_map(|(r, of)| Some(vec![r, back(of.src)?]));
        let own = || Some(vec![all.iter().position(|of| of.dst == t && of.src == t && of.name != NAME)?]);
        Some(Metapath { node_type: t, relations: over.or_else(own)? })
    };
    Ok(seeds.iter().filter_map(choose).collect())
}

/// Path of these names.
fn named(path: &str, schema: &Schema) -> Result<Metapath, String> {
    let find = |name: &str| schema.find_relation(name.trim()).map_err(|e| format!("--metapath {path}: {e}"));
    let relations: Vec<usize> = path.split(',').map(find).collect::<Result<_, String>>()?;
    let name = |t: usize| &schema.types()[t].name;
    let (mut at, first) = (schema.relations()[relations[0]].dst, schema.relations()[relations[0]].dst);
    for &r in &relations {
        let Relation { src, dst, .. } = schema.relations()[r];
        if dst != at {
            return Err(format!(
                "--metapath {path}: the walk is at a node of type '{}', and {} ends at type '{}'; use an \
                 edge type that ends where the step before it began",
                name(at),
                schema.relation_name(r),
                name(dst)
            ));
        }
        at = src;
    }
    if at != first {
        return Err(format!(
            "--metapath {path}: it leads from type '{}' to type '{}'; add edge types that lead back",
            name(first),
            name(at)
        ));
    }
    Ok(Metapath { node_type: first, relations })
}

/// Relations of the neighbours of nodes of the types `seeds`, to add to the graph.
///
/// # Errors
/// The metapath is wrong, or no path leads back to a type of the seeds.
pub(super) fn added(with: &TypedOptions, schema: &Schema, seeds: &[usize]) -> Result<Vec<Relation>, String> {
    let options: MetapathOptions = with.own.get();
    let paths = paths(&options, schema, seeds)?;
    if let Some(&t) = seeds.iter().find(|&&t| paths.iter().all(|path| path.node_type != t)) {
        let name = &schema.types()[t].name;
        let all: Vec<String> = (0..schema.num_relations()).map(|r| schema.relation_name(r)).collect();
        return Err(format!(
            "no metapath leads from seeds of type '{name}' back to it; use --metapath with edge types of {}",
            all.join(", ")
        ));
    }
    if let Some(r) = schema.relations().iter().position(|of| of.name == NAME) {
        return Err(format!(
            "edge type {} has the name of the neighbours on metapaths; use --sampler neighbor, or rename it",
            schema.relation_name(r)
        ));
    }
    Ok(paths.into_iter().map(|Metapath { node_type: t, .. }| Relation::new(t, NAME, t)).collect())
}

/// Makes the sampler of a run on a graph with the relations of [`added`].
pub(super) fn make(with: &TypedOptions, graph: &TypedGraph) -> Result<Box<dyn TypedSampler>, String> {
    Ok(Box::new(MetapathWalk::new(with, graph.schema())?))
}

/// Samples the nodes that walks along metapaths visit most.
#[derive(Clone)]
pub struct MetapathWalk {
    /// Relation of the neighbours, and the path, of each type with a path.
    paths: Vec<(usize, Metapath)>,
    walk: RandomWalk,
    num_hops: usize,
    /// Neighbours that walks take, if the graph does not have all of them.
    source: Option<Arc<dyn PathSource>>,
}

impl MetapathWalk {
    /// Creates a sampler for graphs of this schema.
    ///
    /// # Errors
    /// The fanout or an option is invalid, names in the fanout, or the schema has no relation
    /// `TYPE:metapath:TYPE` for the neighbours.
    pub fn new(with: &TypedOptions, schema: &Schema) -> Result<Self, String> {
        if let Some((name, _)) = with.fanout.by_name.first() {
            return Err(format!(
                "fanout of '{name}': walks follow no edge type by itself; use a number for each hop"
            ));
        }
        let relation = |t| schema.relations().iter().position(|of| of.name == NAME && of.dst == t);
        let types: Vec<usize> = (0..schema.num_types()).filter(|&t| relation(t).is_some()).collect();
        let found = paths(&with.own.get(), schema, &types)?;
        let paired = found.into_iter().filter_map(|path| Some((relation(path.node_type)?, path)));
        let paths: Vec<(usize, Metapath)> = paired.collect();
        if paths.is_empty() {
            return Err(
                "the graph has no relation for neighbours on metapaths; add those of the sampler".into()
            );
        }
        let length = with.own.get::<WalkLength>().or(LENGTH);
        let walk = RandomWalk::new(Fanout(with.fanout.all.clone()), &with.own.get::<WalkOptions>(), length)?;
        Ok(Self { paths, walk, num_hops: with.fanout.all.len(), source: None })
    }

    /// Node type and path of the walks whose visits are the neighbours by relation `r`.
    pub(crate) fn path(&self, r: usize) -> Option<(usize, &[usize])> {
        let (_, path) = self.paths.iter().find(|(relation, _)| *relation == r)?;
        Some((path.node_type, &path.relations))
    }

    /// The walks.
    pub(crate) fn walk(&self) -> &RandomWalk {
        &self.walk
    }

    /// Key of the draws of nodes of type `t`.
    pub(crate) fn key(key: BatchKey, t: usize) -> BatchKey {
        BatchKey { seed: keyed::key(&[key.seed, PART, t as u64]), ..key }
    }
}

impl TypedSampler for MetapathWalk {
    fn num_hops(&self) -> usize {
        self.num_hops
    }

    fn num_blocks(&self) -> usize {
        self.num_hops
    }

    fn is_random(&self) -> bool {
        true
    }

    fn is_per_node(&self) -> bool {
        true
    }

    fn by_steps(&self, source: &Arc<dyn PathSource>) -> Option<Box<dyn TypedSampler>> {
        Some(Box::new(Self { source: Some(source.clone()), ..self.clone() }))
    }

    fn follows(&self, _: &Schema, _: usize, r: usize) -> bool {
        self.paths.iter().any(|(relation, _)| *relation == r)
    }

    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        let &TypedRequest { graph, key, transposed, aggregation, positions } = request;
        if positions {
            return Err(cannot_name_edges());
        }
        let schema = graph.schema();
        let TypedWorkspace { relabel, hop: scratch, new, .. } = workspace;
        let mut batch = seeds.into_sampled(schema, self.num_hops, relabel)?;
        let TypedSampled { seeds, blocks, input_nodes: nodes, .. } = &mut batch;
        for (hop, block) in blocks.iter_mut().rev().enumerate() {
            block.num_dst.iter_mut().zip(nodes.iter()).for_each(|(count, nodes)| *count = nodes.len());
            for &(r, Metapath { node_type: t, ref relations }) in &self.paths {
                let dst: &[NodeId] = &nodes[t];
                if dst.is_empty() {
                    continue;
                }
                let slice = &mut block.relations[r];
                let key = Self::key(key, t);
                let draw = HopRequest { aggregation, ..HopRequest::new(graph.relation(r), hop, dst, key) };
                if let Some(source) = &self.source {
                    refuse_excluded(seeds, relations)?;
                    self.walk.sample_paths_from(&**source, &draw, relations, scratch, slice)?;
                } else {
                    let step = |&r: &usize| EdgesLeft::new(graph.relation(r), seeds.excluded(r));
                    let path: Vec<EdgesLeft> = relations.iter().map(step).collect();
                    self.walk.sample_paths(&draw, &path, scratch, slice)?;
                }
                new.clear();
                relabel[t].relabel(&mut slice.indices, &nodes[t], new);
                memory::demand_append(&mut nodes[t], new);
            }
            block.num_src.iter_mut().zip(nodes.iter()).for_each(|(count, nodes)| *count = nodes.len());
            block.fit(schema);
            if transposed {
                block.transpose(scratch.parallel);
            }
        }
        Ok(batch)
    }
}

/// Refuses seeds that exclude edges of these relations.
fn refuse_excluded(seeds: &TypedSeeds, relations: &[usize]) -> Result<()> {
    match relations.iter().any(|&r| seeds.excluded(r).is_some()) {
        true => Err(Error::invalid(
            "walks over several machines cannot leave out edges; train links in one process, or use \
             --sampler neighbor",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
