//! Neighbours over several hops, as PyTorch Geometric draws them: a node is expanded once, in the
//! hop after its discovery, so that the destinations of a hop are the nodes that the previous hop
//! added. (Message-flow blocks expand all nodes in every hop.)
//!
//! The draws of a node are those of the engine's samplers: a function of (seed, epoch, batch, hop,
//! node). With `disjoint` every seed has its own tree, whose draws also depend on the position of
//! the seed.

use graphmill_core::{NodeId, keyed, prefetch::prefetch};
use graphmill_loader::{
    BatchKey,
    sampler::neighbor::{NeighborRows, draw_offsets},
};

use super::{Method, Scratch, bidirectional, draw::Draws, induce, times::Times};
use crate::{batch::Drawn, topology::Topology};

/// Destinations drawn at a time: few enough that the drawn positions stay in the processor's cache
/// until they are read.
const RUN: usize = 256;

/// Edges of a batch among the drawn nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edges {
    /// The drawn edges.
    #[default]
    Directional,
    /// The drawn edges in both directions.
    Bidirectional,
    /// All edges.
    Induced,
}

/// Method that draws neighbours over several hops.
#[derive(Clone, Debug, Default)]
pub struct Neighbors {
    /// Neighbours per node and hop, from the seeds outward; `None` for all.
    pub fanout: Vec<Option<usize>>,
    /// Rule by which they are drawn.
    pub draws: Draws,
    /// Edges of a batch.
    pub edges: Edges,
    /// True to give every seed its own tree.
    pub disjoint: bool,
    /// Times of the edges, of which a tree has those up to the time of its seed; `None` for all.
    /// They need `disjoint`.
    pub times: Option<Times>,
}

impl Method for Neighbors {
    fn draw(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        scratch: &mut Scratch,
        out: &mut Drawn,
    ) -> Result<(), String> {
        out.clear();
        if self.disjoint {
            self.trees(topology, key, seeds, scratch, out)
        } else {
            self.shared(topology, key, seeds, scratch, out)
        }?;
        match self.edges {
            Edges::Directional => Ok(()),
            Edges::Bidirectional => {
                bidirectional::both_ways(out);
                Ok(())
            }
            Edges::Induced => {
                (out.nodes_per_hop, out.edges_per_hop) = (None, None);
                induce_from(topology, seeds, scratch, out)
            }
        }
    }
}

/// Key of a hop's draws, the same as the engine's.
fn of_hop(key: BatchKey, hop: usize) -> u64 {
    keyed::key(&[key.seed, key.epoch, key.batch, hop as u64])
}

impl Neighbors {
    /// Draws with one numbering for all seeds. A repeated seed is listed repeatedly, and edges use
    /// its first position.
    fn shared(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        scratch: &mut Scratch,
        out: &mut Drawn,
    ) -> Result<(), String> {
        let graph = topology.graph();
        let Scratch { relabel, hop: hop_scratch, draw, indptr, offsets, ids, .. } = scratch;
        let Drawn { nodes, src, dst, edges, .. } = out;
        let (mut per_hop, mut edges_per_hop) = (vec![seeds.len()], Vec::new());
        relabel.start(&[]);
        ids.clear();
        ids.extend_from_slice(seeds);
        relabel.relabel(ids, &[], nodes);
        let distinct = nodes.len();
        let repeated = seeds.len() - distinct;
        let first = (repeated > 0).then(|| first_places(ids, distinct));

        // the nodes that the previous hop added; in the first hop the seeds as given
        let mut begin = 0;
        let mut chunk = Vec::with_capacity(RUN);
        for (hop, &fanout) in self.fanout.iter().enumerate() {
            let (of_hop, end) = (of_hop(key, hop), if hop == 0 { seeds.len() } else { nodes.len() });
            let before = edges.len();
            for from in (begin..end).step_by(RUN) {
                chunk.clear();
                let run = from..end.min(from + RUN);
                chunk.extend_from_slice(if hop == 0 { &seeds[run] } else { &nodes[run] });
                if self.draws.is_plain() && fanout != Some(0) {
                    let k = fanout.unwrap_or(usize::MAX);
                    let rows = NeighborRows::new(graph);
                    draw_offsets(rows, k, of_hop, &chunk, hop_scratch, (indptr, offsets))
                        .map_err(|e| e.to_string())?;
                } else {
                    let stream = |v: u32, _| {
                        keyed::Stream::new(keyed::mix(of_hop ^ u64::from(v).wrapping_mul(keyed::GOLDEN)))
                    };
                    self.each(topology, fanout, &chunk, (stream, |_| i64::MAX), draw, (indptr, offsets))?;
                }
                // later nodes come after the repeated seeds
                let place = (if hop == 0 { from } else { from + repeated }) as u32;
                let drawn = edges.len();
                collect(topology, &chunk, place, (indptr, offsets), (ids, dst, edges));
                topology.number(&mut edges[drawn..]);
                relabel.relabel(ids, &[], nodes);
                src.extend_from_slice(ids);
            }
            if u32::try_from(edges.len() + nodes.len()).is_err() {
                return Err(format!(
                    "{} edges in a batch, but at most 2^32 fit; lower batch_size or num_neighbors",
                    edges.len()
                ));
            }
            begin = if hop == 0 { distinct } else { end };
            per_hop.push(nodes.len() - begin);
            edges_per_hop.push(edges.len() - before);
        }
        if let Some(first) = first {
            for place in src {
                *place = first.get(*place as usize).copied().unwrap_or(*place + repeated as u32);
            }
            nodes.splice(..distinct, seeds.iter().copied());
        }
        (out.nodes_per_hop, out.edges_per_hop) = (Some(per_hop), Some(edges_per_hop));
        Ok(())
    }

    /// Draws a tree for every seed; nodes are numbered hop by hop over all trees.
    fn trees(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        scratch: &mut Scratch,
        out: &mut Drawn,
    ) -> Result<(), String> {
        let Scratch { draw, indptr, offsets, ids, places, seed_times, .. } = scratch;
        let Drawn { nodes, src, dst, edges, .. } = out;
        let (mut per_hop, mut edges_per_hop) = (vec![seeds.len()], Vec::new());
        let mut tree: Vec<u32> = (0..seeds.len() as u32).collect();
        nodes.extend_from_slice(seeds);
        places.clear();
        places.extend(tree.iter().zip(seeds).map(|(&t, &v)| (u64::from(t) << 32 | u64::from(v), t)));
        let mut begin = 0;
        for (hop, &fanout) in self.fanout.iter().enumerate() {
            let (end, before) = (nodes.len(), edges.len());
            let chunk = nodes[begin..].to_vec();
            let stream = |_, i: usize| {
                let parts = [of_hop(key, hop), u64::from(tree[begin + i]), u64::from(chunk[i])];
                keyed::Stream::new(keyed::key(&parts))
            };
            let latest = |i: usize| seed_times.get(tree[begin + i] as usize).copied().unwrap_or(i64::MAX);
            self.each(topology, fanout, &chunk, (stream, latest), draw, (indptr, offsets))?;
            collect(topology, &chunk, begin as u32, (indptr, offsets), (ids, dst, edges));
            for (&v, &to) in ids.iter().zip(&dst[before..]) {
                let of = tree[to as usize];
                let next = nodes.len() as u32;
                let place = *places.entry(u64::from(of) << 32 | u64::from(v)).or_insert(next);
                if place == next {
                    nodes.push(v);
                    tree.push(of);
                }
                src.push(place);
            }
            begin = end;
            per_hop.push(nodes.len() - begin);
            edges_per_hop.push(edges.len() - before);
        }
        topology.number(edges);
        (out.tree, out.nodes_per_hop, out.edges_per_hop) = (Some(tree), Some(per_hop), Some(edges_per_hop));
        Ok(())
    }

    /// Draws for one node after the other into `indptr` and `offsets`, which are overwritten. The
    /// functions give the random numbers of a node, and the time up to which its edges are drawn.
    fn each(
        &self,
        topology: &Topology,
        fanout: Option<usize>,
        chunk: &[NodeId],
        (stream, latest): (impl Fn(u32, usize) -> keyed::Stream, impl Fn(usize) -> i64),
        scratch: &mut super::draw::Scratch,
        (indptr, offsets): (&mut Vec<u32>, &mut Vec<u32>),
    ) -> Result<(), String> {
        let rows = topology.graph().indptr();
        indptr.clear();
        offsets.clear();
        indptr.push(0);
        for (i, &v) in chunk.iter().enumerate() {
            match &self.times {
                None => {
                    let row = (rows[v as usize], rows[v as usize + 1]);
                    self.draws.draw(row, fanout, stream(v, i), scratch, offsets);
                }
                Some(times) => {
                    let of = (topology, &self.draws);
                    times.draw(of, (v, latest(i), &[]), fanout, stream(v, i), scratch, offsets);
                }
            }
            let end = u32::try_from(offsets.len());
            indptr
                .push(end.map_err(|_| "a batch has 2^32 edges or more; lower batch_size or num_neighbors")?);
        }
        Ok(())
    }
}

/// Reads the edges at the drawn `offsets` of the rows of `chunk`, whose first node is at `place` in
/// the list: overwrites `ids` with their sources, and appends their destinations and positions
/// among the graph's edges.
fn collect(
    topology: &Topology,
    chunk: &[NodeId],
    place: u32,
    (indptr, offsets): (&[u32], &[u32]),
    (ids, dst, edges): (&mut Vec<u32>, &mut Vec<u32>, &mut Vec<u64>),
) {
    let graph = topology.graph();
    let (rows, neighbors) = (graph.indptr(), graph.indices());
    let from = edges.len();
    for (i, (&v, ends)) in (0..).zip(chunk.iter().zip(indptr.windows(2))) {
        let row = rows[v as usize];
        edges.extend(
            offsets[ends[0] as usize..ends[1] as usize].iter().map(|&offset| row + u64::from(offset)),
        );
        dst.resize(edges.len(), place + i);
    }
    ids.clear();
    let edges = &edges[from..];
    ids.extend(edges.iter().enumerate().map(|(i, &e)| {
        if let Some(&ahead) = edges.get(i + 16) {
            prefetch(neighbors, ahead as usize);
        }
        neighbors[e as usize]
    }));
}

/// First position of each distinct seed, from the numbers of all seeds.
fn first_places(numbers: &[u32], distinct: usize) -> Vec<u32> {
    let mut first = Vec::with_capacity(distinct);
    for (place, &number) in (0..).zip(numbers) {
        if number as usize == first.len() {
            first.push(place);
        }
    }
    first
}

/// Replaces the edges by all edges among the nodes of `out`, or of each of its trees. Repetitions
/// of a seed get no edges.
fn induce_from(
    topology: &Topology,
    seeds: &[u32],
    scratch: &mut Scratch,
    out: &mut Drawn,
) -> Result<(), String> {
    if let Some(tree) = out.tree.take() {
        induce_trees(topology, &tree, scratch, out);
        out.tree = Some(tree);
        return Ok(());
    }
    scratch.relabel.start(&[]);
    let (mut numbers, mut distinct) = (seeds.to_vec(), Vec::new());
    scratch.relabel.relabel(&mut numbers, &[], &mut distinct);
    let repeated = seeds.len() - distinct.len();
    if repeated == 0 {
        return induce(topology, scratch, out);
    }
    let first = first_places(&numbers, distinct.len());
    out.nodes.splice(..seeds.len(), distinct);
    induce(topology, scratch, out)?;
    for place in out.src.iter_mut().chain(&mut out.dst) {
        *place = first.get(*place as usize).copied().unwrap_or(*place + repeated as u32);
    }
    out.nodes.splice(..first.len(), seeds.iter().copied());
    Ok(())
}

/// Replaces the edges by all edges within each tree; `scratch.places` has the positions of its
/// nodes.
fn induce_trees(topology: &Topology, tree: &[u32], scratch: &mut Scratch, out: &mut Drawn) {
    let Drawn { nodes, src, dst, edges, .. } = out;
    [&mut *src, &mut *dst].into_iter().for_each(Vec::clear);
    edges.clear();
    let graph = topology.graph();
    for (to, (&v, &of)) in (0..).zip(nodes.iter().zip(tree)) {
        for (place, u) in (graph.indptr()[v as usize]..).zip(graph.in_neighbors(v)) {
            if let Some(&from) = scratch.places.get(&(u64::from(of) << 32 | u64::from(*u))) {
                src.push(from);
                dst.push(to);
                edges.push(place);
            }
        }
    }
    topology.number(edges);
}

#[cfg(test)]
mod tests;
