//! Edges of a batch besides the drawn ones: those in both directions, or all among its nodes.
//!
//! # Source
//!
//! `subgraph_type` of PyTorch Geometric's loaders. Its `to_bidirectional` loses the numbers of the
//! edges of two relations that are each other's reverse; here the added edges have those of the
//! graph.
//!
//! # Cost
//!
//! Induced: O(sum of the in-degrees of the nodes). Both directions: O(M log M) for `M` drawn edges,
//! and the rows of the destinations of added edges are read once.

use graphmill_loader::link::ExcludedEdges;

use super::{Seeds, TypedDrawn, TypedTopology, places::Places};

/// Edges of a batch among its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TypedEdges {
    /// The drawn edges.
    #[default]
    Directional,
    /// The drawn edges of each relation and the reverses of the drawn edges of the relation that is
    /// listed for it, each once.
    Bidirectional(Vec<usize>),
    /// All edges.
    Induced,
}

/// Number of an edge that is not found yet.
const UNKNOWN: u64 = u64::MAX;

/// Destination, source and number of an edge, the first two as positions among the nodes.
type Placed = (u32, u32, u64);

impl TypedEdges {
    /// Completes the drawn edges of `out`, whose numbers are those of the graph. `places` has the
    /// positions of its nodes. Edges that `seeds` exclude are not added.
    ///
    /// # Errors
    /// The reverse of a drawn edge is not an edge of the graph.
    pub(super) fn complete(
        &self,
        topology: &TypedTopology,
        seeds: &Seeds,
        places: &Places,
        out: &mut TypedDrawn,
    ) -> Result<(), String> {
        match self {
            Self::Directional => Ok(()),
            Self::Bidirectional(reverses) => both_ways(topology, seeds, reverses, out),
            Self::Induced => {
                induce(topology, seeds, places, out);
                (out.nodes_per_hop, out.edges_per_hop) = (None, None);
                Ok(())
            }
        }
    }
}

/// Edges of a relation that no hop may follow.
fn excluded_of(seeds: &Seeds, r: usize) -> Option<&ExcludedEdges> {
    seeds.excluded.iter().find(|(of, _)| *of == r).map(|(_, edges)| edges)
}

/// Replaces the edges of `out` by all edges among its nodes, within their trees: destination by
/// destination, sources in the graph's order. Of a repeated seed, the first position has the edges.
pub(super) fn induce(topology: &TypedTopology, seeds: &Seeds, places: &Places, out: &mut TypedDrawn) {
    let TypedDrawn { nodes, relations, tree, .. } = out;
    for (r, (relation, to)) in topology.relations.iter().zip(relations).enumerate() {
        let (graph, excluded) = (relation.topology.graph(), excluded_of(seeds, r));
        to.src.clear();
        to.dst.clear();
        to.edges.clear();
        for (place, &v) in (0..).zip(&nodes[relation.dst]) {
            let of = tree.as_ref().map_or(0, |tree| tree[relation.dst][place as usize]);
            if places.find(relation.dst, of, v) != Some(place) {
                continue;
            }
            for (e, &u) in (graph.indptr()[v as usize]..).zip(graph.in_neighbors(v)) {
                if let Some(from) = places.find(relation.src, of, u)
                    && !excluded.is_some_and(|excluded| excluded.contains(u, v))
                {
                    to.src.push(from);
                    to.dst.push(place);
                    to.edges.push(e);
                }
            }
        }
    }
}

/// Adds the reverses of the drawn edges of relation `reverses[r]` to relation `r`, drops
/// duplicates, and sorts by destination, then source. A drawn edge keeps its number. In a relation
/// that is its own reverse an added edge has the number of its reverse.
fn both_ways(
    topology: &TypedTopology,
    seeds: &Seeds,
    reverses: &[usize],
    out: &mut TypedDrawn,
) -> Result<(), String> {
    let drawn: Vec<Vec<Placed>> = out
        .relations
        .iter()
        .map(|to| to.dst.iter().zip(&to.src).zip(&to.edges).map(|((&v, &u), &e)| (v, u, e)).collect())
        .collect();
    for (r, &q) in reverses.iter().enumerate() {
        let (relation, excluded) = (&topology.relations[r], excluded_of(seeds, r));
        let (sources, destinations) = (&out.nodes[relation.src][..], &out.nodes[relation.dst][..]);
        let may_add = |&(v, u, _): &Placed| {
            !excluded.is_some_and(|edges| edges.contains(sources[u as usize], destinations[v as usize]))
        };
        let added = drawn[q].iter().map(|&(v, u, e)| (u, v, if q == r { e } else { UNKNOWN }));
        let mut all: Vec<Placed> = drawn[r].iter().copied().chain(added.filter(may_add)).collect();
        // drawn edges stay before added ones
        all.sort_by_key(|&(v, u, _)| (v, u));
        all.dedup_by_key(|&mut (v, u, _)| (v, u));
        for row in all.chunk_by_mut(|a, b| a.0 == b.0) {
            find_numbers(topology, r, (sources, destinations), row)?;
        }
        let to = &mut out.relations[r];
        to.dst.clear();
        to.dst.extend(all.iter().map(|edge| edge.0));
        to.src.clear();
        to.src.extend(all.iter().map(|edge| edge.1));
        to.edges.clear();
        to.edges.extend(all.iter().map(|edge| edge.2));
    }
    Ok(())
}

/// Finds the numbers of the edges of `row`, which have one destination, in relation `r`.
fn find_numbers(
    topology: &TypedTopology,
    r: usize,
    (sources, destinations): (&[u32], &[u32]),
    row: &mut [Placed],
) -> Result<(), String> {
    let unknown = row.iter().enumerate().filter(|(_, edge)| edge.2 == UNKNOWN);
    let mut wanted: Vec<(u32, usize)> = unknown.map(|(i, edge)| (sources[edge.1 as usize], i)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    wanted.sort_unstable();
    let relation = &topology.relations[r];
    let (graph, v) = (relation.topology.graph(), destinations[row[0].0 as usize]);
    for (e, &u) in (graph.indptr()[v as usize]..).zip(graph.in_neighbors(v)) {
        let first = wanted.partition_point(|&(of, _)| of < u);
        for &(_, i) in wanted[first..].iter().take_while(|&&(of, _)| of == u) {
            // of parallel edges the first
            row[i].2 = row[i].2.min(e);
        }
    }
    match wanted.iter().find(|&&(_, i)| row[i].2 == UNKNOWN) {
        None => Ok(()),
        Some((u, _)) => Err(format!(
            "subgraph_type 'bidirectional': a drawn edge leads from node {v} of '{to}' to node {u} of \
             '{from}', but no edge leads back; use 'directional', or edge types that have the reverses of \
             all edges",
            to = topology.types[relation.dst].0,
            from = topology.types[relation.src].0,
        )),
    }
}
