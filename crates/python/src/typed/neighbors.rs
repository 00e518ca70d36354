//! Neighbours over several hops, by each relation: a node is expanded once, in the hop after its
//! discovery, by every relation into its type.

use graphmill_core::keyed;
use graphmill_loader::{
    BatchKey,
    link::ExcludedEdges,
    sampler::neighbor::{NeighborRows, draw_offsets},
};

use super::{
    Seeds, TypedDrawn, TypedMethod, TypedScratch, TypedTopology, places::Places, subgraph::TypedEdges,
};
use crate::{
    method::{
        draw::{Draws, remains},
        times::Times,
    },
    topology::Topology,
};

/// Destinations drawn at a time.
const RUN: usize = 256;

/// Method that draws neighbours by each relation.
#[derive(Clone, Debug, Default)]
pub struct TypedNeighbors {
    /// Neighbours per node of each relation and hop, from the seeds outward; `None` for all.
    pub fanout: Vec<Vec<Option<usize>>>,
    /// Rule by which the edges of each relation are drawn.
    pub draws: Vec<Draws>,
    /// Edges of each relation in the order of their times; `None` for a relation whose edges always
    /// existed, and an empty list without times. Every seed then has a tree.
    pub times: Vec<Option<Times>>,
    /// Edges of a batch.
    pub edges: TypedEdges,
}

impl TypedMethod for TypedNeighbors {
    fn draw(
        &self,
        topology: &TypedTopology,
        key: BatchKey,
        seeds: &Seeds,
        scratch: &mut TypedScratch,
        out: &mut TypedDrawn,
    ) -> Result<(), String> {
        let (types, relations) = (topology.types.len(), topology.relations.len());
        if !self.times.is_empty() && (seeds.latest.is_none() || seeds.tree.is_none()) {
            return Err(
                "the seeds have no times, which bound the edges of this graph; pass their times".into()
            );
        }
        out.clear(types, relations);
        let mut tree = seeds.tree.clone();
        scratch.places.start(tree.is_some());
        for (t, nodes) in seeds.nodes.iter().enumerate() {
            for (place, &v) in (0..).zip(nodes) {
                scratch.places.insert(t, tree.as_ref().map_or(0, |tree| tree[t][place as usize]), v, place);
            }
            out.nodes[t].extend_from_slice(nodes);
        }
        let mut begin = vec![0; types];
        let mut nodes_per_hop: Vec<Vec<usize>> = out.nodes.iter().map(|nodes| vec![nodes.len()]).collect();
        let mut edges_per_hop = vec![Vec::new(); relations];
        for hop in 0..self.fanout.first().map_or(0, Vec::len) {
            let end: Vec<usize> = out.nodes.iter().map(Vec::len).collect();
            for (r, relation) in topology.relations.iter().enumerate() {
                let before = out.relations[r].edges.len();
                let (from, to) = (begin[relation.dst], end[relation.dst]);
                let of_hop =
                    if relations == 1 { key.hop(hop) } else { keyed::key(&[key.hop(hop), r as u64]) };
                let fanout = self.fanout[r][hop];
                if fanout != Some(0) && from < to {
                    let excluded = seeds.excluded.iter().find(|(of, _)| *of == r).map(|(_, edges)| edges);
                    let times = self.times.get(r).and_then(Option::as_ref).zip(seeds.latest.as_deref());
                    let expand = Expand { r, fanout, of_hop, draws: &self.draws[r], times, excluded };
                    expand.run(topology, from..to, tree.as_mut(), scratch, out)?;
                }
                edges_per_hop[r].push(out.relations[r].edges.len() - before);
            }
            for (t, end) in end.into_iter().enumerate() {
                nodes_per_hop[t].push(out.nodes[t].len() - end);
                begin[t] = end;
            }
        }
        out.tree = tree;
        (out.nodes_per_hop, out.edges_per_hop) = (Some(nodes_per_hop), Some(edges_per_hop));
        self.edges.complete(topology, seeds, &scratch.places, out)?;
        for (relation, drawn) in topology.relations.iter().zip(&mut out.relations) {
            relation.topology.number(&mut drawn.edges);
        }
        Ok(())
    }
}

/// Expansion of one hop by one relation.
struct Expand<'a> {
    r: usize,
    fanout: Option<usize>,
    /// Key of the draws.
    of_hop: u64,
    draws: &'a Draws,
    /// Order of the edges, and the latest time of each tree.
    times: Option<(&'a Times, &'a [i64])>,
    /// Edges that do not exist for this batch.
    excluded: Option<&'a ExcludedEdges>,
}

impl Expand<'_> {
    /// Expands the destinations at these positions; edges are numbered as in the graph.
    fn run(
        &self,
        topology: &TypedTopology,
        places: std::ops::Range<usize>,
        mut tree: Option<&mut Vec<Vec<u32>>>,
        scratch: &mut TypedScratch,
        out: &mut TypedDrawn,
    ) -> Result<(), String> {
        let relation = &topology.relations[self.r];
        let (src, dst) = (relation.src, relation.dst);
        for from in places.clone().step_by(RUN) {
            let chunk = out.nodes[dst][from..places.end.min(from + RUN)].to_vec();
            let trees = tree.as_ref().map(|tree| tree[dst][from..from + chunk.len()].to_vec());
            self.offsets(&relation.topology, &chunk, trees.as_deref(), scratch)?;
            let of_src = tree.as_mut().map(|tree| &mut tree[src]);
            self.collect(topology, (from, &chunk), trees.as_deref(), scratch, (of_src, out));
            if u32::try_from(out.relations[self.r].edges.len() + out.nodes[src].len()).is_err() {
                return Err("a batch has 2^32 edges or more; lower batch_size or num_neighbors".into());
            }
        }
        Ok(())
    }

    /// Draws the positions of the edges within the rows of `chunk`.
    fn offsets(
        &self,
        topology: &Topology,
        chunk: &[u32],
        trees: Option<&[u32]>,
        scratch: &mut TypedScratch,
    ) -> Result<(), String> {
        let TypedScratch { hop, draw, indptr, offsets, .. } = scratch;
        let graph = topology.graph();
        if self.draws.is_plain() && trees.is_none() {
            let k = self.fanout.unwrap_or(usize::MAX);
            let rows = NeighborRows { excluded: self.excluded, ..NeighborRows::new(graph) };
            return draw_offsets(rows, k, self.of_hop, chunk, hop, (indptr, offsets))
                .map_err(|e| e.to_string());
        }
        indptr.clear();
        offsets.clear();
        indptr.push(0);
        for (i, &v) in chunk.iter().enumerate() {
            let (tree, fanout) = (trees.map(|trees| trees[i]), self.fanout);
            let stream = self.stream(tree, v);
            let excluded = self.excluded.map_or(&[][..], |excluded| excluded.sources_of(v));
            match self.times.zip(tree) {
                Some(((times, latest), tree)) => {
                    let seen = (v, latest[tree as usize], excluded);
                    times.draw((topology, self.draws), seen, fanout, stream, draw, offsets);
                }
                None if excluded.is_empty() => {
                    let row = (graph.indptr()[v as usize], graph.indptr()[v as usize + 1]);
                    self.draws.draw(row, fanout, stream, draw, offsets);
                }
                None => {
                    let row = (0..).zip(graph.in_neighbors(v));
                    let remaining = row.filter(|&(_, &u)| remains(excluded, u)).map(|(place, _)| place);
                    let (start, remaining) = (graph.indptr()[v as usize], remaining.collect::<Vec<u32>>());
                    self.draws.draw_remaining(start, &remaining, fanout, stream, draw, offsets);
                }
            }
            let end = u32::try_from(offsets.len());
            indptr
                .push(end.map_err(|_| "a batch has 2^32 edges or more; lower batch_size or num_neighbors")?);
        }
        Ok(())
    }

    /// Stream of the draws of a node.
    fn stream(&self, tree: Option<u32>, v: u32) -> keyed::Stream {
        keyed::Stream::new(match tree {
            Some(tree) => keyed::key(&[self.of_hop, u64::from(tree), u64::from(v)]),
            None => keyed::mix(self.of_hop ^ u64::from(v).wrapping_mul(keyed::GOLDEN)),
        })
    }

    /// Appends the drawn edges and the nodes that they discover.
    fn collect(
        &self,
        topology: &TypedTopology,
        (from, chunk): (usize, &[u32]),
        trees: Option<&[u32]>,
        scratch: &mut TypedScratch,
        (mut of_src, out): (Option<&mut Vec<u32>>, &mut TypedDrawn),
    ) {
        let TypedScratch { places, indptr, offsets, .. }: &mut TypedScratch = scratch;
        let places: &mut Places = places;
        let relation = &topology.relations[self.r];
        let graph = relation.topology.graph();
        let (nodes, to) = (&mut out.nodes[relation.src], &mut out.relations[self.r]);
        for (i, &v) in chunk.iter().enumerate() {
            let row = graph.indptr()[v as usize];
            for &offset in &offsets[indptr[i] as usize..indptr[i + 1] as usize] {
                let e = row + u64::from(offset);
                let u = graph.indices()[e as usize];
                let tree = trees.map_or(0, |trees| trees[i]);
                let next = nodes.len() as u32;
                let place = places.insert(relation.src, tree, u, next);
                if place == next {
                    nodes.push(u);
                    if let Some(of_src) = &mut of_src {
                        of_src.push(tree);
                    }
                }
                to.src.push(place);
                to.dst.push((from + i) as u32);
                to.edges.push(e);
            }
        }
    }
}
