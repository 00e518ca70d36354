//! Rows of values that spread over the edges of a graph: steps of label propagation.
//!
//! # Algorithm
//!
//! A step is `Z <- a S Z + (1 - a) Y`. On a graph `S = D^-1/2 A D^-1/2` is the normalized adjacency
//! without self-loops.
//!
//! The nodes of one type of a typed graph have two definitions. If edges join them, `A` is the sum
//! of the adjacencies of all relations from the type to itself. Else their rows spread by paths of
//! two edges: a node of another type takes the mean of its in-neighbours, from which its
//! out-neighbours take it, so `S = D^-1/2 H B^-1 H^T D^-1/2`. `H` has the edges from nodes of other
//! types, `H^T` those to them, and `B` their numbers of in-neighbours. With relations in both
//! directions this is the propagation of a hypergraph, whose hyperedges are the nodes between.
//!
//! # Source
//!
//! Zhou, Bousquet, Lal, Weston and Schoelkopf, *Learning with Local and Global Consistency*, NIPS
//! 2003, section 2; Zhou, Huang and Schoelkopf, *Learning with Hypergraphs*, NIPS 2006, section 5
//! (paths of two edges, with equal weights). Huang et al., *Combining Label Propagation and Simple
//! Models Out-performs Graph Neural Networks*, ICLR 2021, spread labels of papers over citations
//! alone, as a sum of adjacencies does.
//!
//! # Cost
//!
//! `E C` multiplications a step for rows of `C` values, on all threads; `E` counts both edges of a
//! path.
//!
//! # Memory
//!
//! With paths of two edges a row of each node between, in a step.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

use rayon::prelude::*;

use crate::{Graph, NodeId, Result, memory, rank::out_degrees_of, typed::TypedGraph};

/// Edges by which rows of nodes spread.
#[derive(Clone, Debug)]
pub struct Paths<'g> {
    /// Number of nodes, `V`.
    nodes: usize,
    /// Graphs whose edges join the nodes.
    edges: Vec<&'g Graph>,
    /// Graphs of the edges to the nodes of each type between, and from these.
    between: Vec<[Vec<&'g Graph>; 2]>,
}

impl<'g> Paths<'g> {
    /// The edges of a graph.
    pub fn of_graph(graph: &'g Graph) -> Self {
        Self { nodes: graph.num_nodes(), edges: vec![graph], between: Vec::new() }
    }

    /// Paths between the nodes of type `t`: the edges of all relations from the type to itself, or
    /// without any, pairs of edges through another type. `None` if there are neither.
    pub fn of_type(graph: &'g TypedGraph, t: usize) -> Option<Self> {
        let schema = graph.schema();
        let nodes = schema.types()[t].count;
        let joining = |src: usize, dst: usize| -> Vec<&'g Graph> {
            let ends = schema.relations().iter().zip(graph.relations());
            let joins = ends.filter(|(of, edges)| (of.src, of.dst) == (src, dst) && edges.num_edges() > 0);
            joins.map(|(_, edges)| edges).collect()
        };
        let edges = joining(t, t);
        if !edges.is_empty() {
            return Some(Self { nodes, edges, between: Vec::new() });
        }
        let others = (0..schema.num_types()).filter(|&other| other != t);
        let between: Vec<_> = others.map(|other| [joining(t, other), joining(other, t)]).collect();
        let between: Vec<_> =
            between.into_iter().filter(|[to, from]| !to.is_empty() && !from.is_empty()).collect();
        (!between.is_empty()).then_some(Self { nodes, edges, between })
    }

    /// Number of nodes, `V`.
    pub fn num_nodes(&self) -> usize {
        self.nodes
    }

    /// Number of rows that a step holds: those of the nodes, and of the nodes between.
    pub fn num_rows(&self) -> usize {
        let between = self.between.iter().filter_map(|[to, _]| to.first());
        self.nodes + between.map(|graph| graph.num_nodes()).sum::<usize>()
    }

    /// Number of edges that a step reads, `E`.
    pub fn num_edges(&self) -> usize {
        let between = self.between.iter().flatten().flatten();
        self.edges.iter().chain(between).map(|graph| graph.num_edges()).sum()
    }

    /// Graphs whose edges leave the nodes.
    fn out(&self) -> impl Iterator<Item = &'g Graph> + '_ {
        self.edges.iter().chain(self.between.iter().flat_map(|[to, _]| to)).copied()
    }
}

/// The normalized adjacency `S` of nodes, `[V, V]`.
#[derive(Clone, Debug)]
pub struct Spread<'p> {
    paths: &'p Paths<'p>,
    /// Inverse square root of each node's number of out-neighbours; 0 without any.
    source: Vec<f32>,
}

impl<'p> Spread<'p> {
    /// Computes the scales of the rows, 4 bytes a node.
    pub fn new(paths: &'p Paths<'p>) -> Self {
        let source = out_degrees_of(paths.out(), paths.nodes).into_par_iter().map(inverse_root).collect();
        Self { paths, source }
    }

    /// Sets `to = alpha S from + (1 - alpha) start` and clamps each value to `range`. All three
    /// have `V` rows of `width` values.
    ///
    /// Costs `E * width` multiplications on all threads of the pool. Each sum has the order of its
    /// row in the graph, and of the relations, so that results do not depend on the number of
    /// threads.
    ///
    /// # Errors
    /// Memory for the rows between two edges runs out.
    ///
    /// # Panics
    /// `width` is 0 or the number of values is not `V * width`.
    pub fn step(
        &self,
        [from, start]: [&[f32]; 2],
        to: &mut [f32],
        width: usize,
        alpha: f32,
        range: RangeInclusive<f32>,
    ) -> Result<()> {
        let values = self.source.len() * width;
        assert!([from.len(), start.len(), to.len()] == [values; 3], "V rows of `width` values");
        let means = self.paths.between.iter().map(|[to, _]| self.means(to, from, width));
        let means = means.collect::<Result<Vec<Vec<f32>>>>()?;
        // graphs with the rows of their sources, which have scales unless they are means
        let mut near: Vec<(&Graph, &[f32], bool)> =
            self.paths.edges.iter().map(|&graph| (graph, from, true)).collect();
        for ([_, out], means) in self.paths.between.iter().zip(&means) {
            near.extend(out.iter().map(|&graph| (graph, &means[..], false)));
        }
        to.par_chunks_exact_mut(width).zip(start.par_chunks_exact(width)).enumerate().for_each(
            |(v, (to, start))| {
                let near = near.iter().map(|&(graph, rows, is_scaled)| {
                    (graph.in_neighbors(v as NodeId), rows, is_scaled.then_some(&self.source[..]))
                });
                sum(to, near.clone());
                let degree: usize = near.map(|(sources, ..)| sources.len()).sum();
                let own = alpha * inverse_root(degree as u32);
                for (to, start) in to.iter_mut().zip(start) {
                    *to = (own * *to + (1.0 - alpha) * start).clamp(*range.start(), *range.end());
                }
            },
        );
        Ok(())
    }

    /// Mean of the scaled rows of the in-neighbours of each node between; 0 without any.
    fn means(&self, to: &[&Graph], from: &[f32], width: usize) -> Result<Vec<f32>> {
        let mut means: Vec<f32> = memory::zeroed(to[0].num_nodes().saturating_mul(width))?;
        means.par_chunks_exact_mut(width).enumerate().for_each(|(m, mean)| {
            let near = to.iter().map(|graph| (graph.in_neighbors(m as NodeId), from, Some(&self.source[..])));
            sum(mean, near.clone());
            let count = near.map(|(sources, ..)| sources.len()).sum::<usize>().max(1) as f32;
            mean.iter_mut().for_each(|x| *x /= count);
        });
        Ok(means)
    }
}

/// Sources, the rows of all nodes of their type, and the scales of these rows.
type Sources<'s> = (&'s [NodeId], &'s [f32], Option<&'s [f32]>);

/// Sets `to` to the sum of the rows of sources, in their order.
fn sum<'s>(to: &mut [f32], near: impl Iterator<Item = Sources<'s>> + Clone) {
    let width = to.len();
    // sums of a few columns at a time stay in registers
    let (blocks, rest) = to.as_chunks_mut::<16>();
    let first = 16 * blocks.len();
    blocks.iter_mut().enumerate().for_each(|(i, to)| *to = columns(16 * i, width, near.clone()));
    let (blocks, rest) = rest.as_chunks_mut::<4>();
    blocks.iter_mut().enumerate().for_each(|(i, to)| *to = columns(first + 4 * i, width, near.clone()));
    let first = first + 4 * blocks.len();
    match rest {
        [] => {}
        [a] => [*a] = columns(first, width, near),
        [a, b] => [*a, *b] = columns(first, width, near),
        [a, b, c, ..] => [*a, *b, *c] = columns(first, width, near),
    }
}

/// Sums of `N` columns from `first` on, of rows of `width` values.
fn columns<'s, const N: usize>(
    first: usize,
    width: usize,
    near: impl Iterator<Item = Sources<'s>>,
) -> [f32; N] {
    let mut sums = [0.0; N];
    for (sources, rows, scales) in near {
        for &u in sources {
            let scale = scales.map_or(1.0, |scales| scales[u as usize]);
            let row = &rows[u as usize * width + first..][..N];
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += scale * x);
        }
    }
    sums
}

fn inverse_root(degree: u32) -> f32 {
    if degree == 0 { 0.0 } else { 1.0 / (degree as f32).sqrt() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::typed::{NodeType, Relation, Schema, bipartite};

    /// Papers, authors and venues, with edges of these relations between them.
    fn graph(relations: &[(usize, usize)], draws: &[(u32, u32, u32)]) -> TypedGraph {
        let counts = [7usize, 5, 3];
        let types = counts.iter().enumerate().map(|(t, &n)| NodeType::new(format!("t{t}"), n)).collect();
        let of = relations.iter().enumerate();
        let of: Vec<Relation> = of.map(|(r, &(src, dst))| Relation::new(src, format!("r{r}"), dst)).collect();
        let edges_of = |(r, &(src, dst)): (usize, &(usize, usize))| {
            let own = draws.iter().filter(|draw| draw.0 as usize % relations.len() == r);
            let (u, v): (Vec<u32>, Vec<u32>) =
                own.map(|&(_, u, v)| (u % counts[src] as u32, v % counts[dst] as u32)).unzip();
            bipartite(counts[src], counts[dst], &u, &v).unwrap()
        };
        let graphs = relations.iter().enumerate().map(edges_of).collect();
        TypedGraph::new(Schema::new(types, of).unwrap(), graphs).unwrap()
    }

    /// Dense `[dst, src]` sum of the adjacencies of relations between two types.
    fn dense(graph: &TypedGraph, src: usize, dst: usize) -> Vec<Vec<f64>> {
        let count = |t: usize| graph.schema().types()[t].count;
        let mut all = vec![vec![0.0; count(src)]; count(dst)];
        for (of, edges) in graph.schema().relations().iter().zip(graph.relations()) {
            if (of.src, of.dst) == (src, dst) {
                for (v, row) in all.iter_mut().enumerate() {
                    edges.in_neighbors(v as u32).iter().for_each(|&u| row[u as usize] += 1.0);
                }
            }
        }
        all
    }

    fn product(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let dot = |row: &[f64], c: usize| row.iter().zip(b).map(|(x, of_b)| x * of_b[c]).sum();
        a.iter().map(|row| (0..b.first().map_or(0, Vec::len)).map(|c| dot(row, c)).collect()).collect()
    }

    fn root(degree: f64) -> f64 {
        if degree == 0.0 { 0.0 } else { 1.0 / degree.sqrt() }
    }

    /// The matrix `S` of the definition for papers, if paths join them.
    fn reference(graph: &TypedGraph) -> Option<Vec<Vec<f64>>> {
        let count = 7;
        let column = |a: &[Vec<f64>], c: usize| a.iter().map(|row| row[c]).sum::<f64>();
        let (mut sum, mut into, mut out) =
            (vec![vec![0.0; count]; count], vec![0.0; count], vec![0.0; count]);
        let mut add = |a: &[Vec<f64>], to: &[Vec<f64>], from: &[Vec<f64>]| {
            for v in 0..count {
                (0..count).for_each(|u| sum[v][u] += a[v][u]);
                into[v] += from[v].iter().sum::<f64>();
                out[v] += column(to, v);
            }
        };
        let is_empty = |a: &[Vec<f64>]| a.iter().flatten().all(|x| *x == 0.0);
        let direct = dense(graph, 0, 0);
        let mut has_paths = !is_empty(&direct);
        if has_paths {
            add(&direct, &direct, &direct);
        } else {
            for between in [1, 2] {
                let (to, from) = (dense(graph, 0, between), dense(graph, between, 0));
                if is_empty(&to) || is_empty(&from) {
                    continue;
                }
                has_paths = true;
                let mean =
                    |row: &Vec<f64>| row.iter().map(|x| x / row.iter().sum::<f64>().max(1.0)).collect();
                let means: Vec<Vec<f64>> = to.iter().map(mean).collect();
                add(&product(&from, &means), &to, &from);
            }
        }
        let scaled = |v: usize| (0..count).map(|u| root(into[v]) * sum[v][u] * root(out[u])).collect();
        has_paths.then(|| (0..count).map(scaled).collect())
    }

    proptest! {
        #[test]
        fn steps_are_those_of_the_dense_definition(
            relations in prop::collection::vec((0usize..3, 0usize..3), 1..6),
            draws in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..60),
            values in prop::collection::vec(-1.0f32..1.0, 7 * 39),
            width in 1usize..40,
            alpha in 0.0f32..1.0,
        ) {
            let graph = graph(&relations, &draws);
            let (paths, expected) = (Paths::of_type(&graph, 0), reference(&graph));
            prop_assert_eq!(paths.is_some(), expected.is_some());
            let (Some(paths), Some(expected)) = (paths, expected) else { return Ok(()) };
            prop_assert_eq!(paths.num_nodes(), 7);
            let values = &values[..7 * width];
            let start: Vec<f32> = values.iter().map(|x| 1.0 - x).collect();
            let (mut found, all) = (vec![f32::NAN; 7 * width], f32::MIN..=f32::MAX);
            Spread::new(&paths).step([values, &start], &mut found, width, alpha, all).unwrap();
            let rows: Vec<Vec<f64>> =
                values.chunks(width).map(|row| row.iter().map(|&x| x.into()).collect()).collect();
            let spread = product(&expected, &rows);
            for (i, found) in found.iter().enumerate() {
                let alpha = f64::from(alpha);
                let wanted = alpha * spread[i / width][i % width] + (1.0 - alpha) * f64::from(start[i]);
                prop_assert!((f64::from(*found) - wanted).abs() < 1e-5, "{}: {} {}", i, found, wanted);
            }
        }
    }

    #[test]
    fn edges_within_the_type_come_before_paths_of_two_edges() {
        let of = |relations: &[(usize, usize)]| {
            let draws: Vec<(u32, u32, u32)> = (0..30).map(|i| (i, i * 7 + 1, i * 5 + 2)).collect();
            let graph = graph(relations, &draws);
            Paths::of_type(&graph, 0).map(|paths| (paths.edges.len(), paths.between.len()))
        };
        assert_eq!(of(&[(0, 0), (0, 1), (1, 0), (0, 0)]), Some((2, 0)));
        assert_eq!(of(&[(0, 1), (1, 0), (2, 0)]), Some((0, 1)));
        assert_eq!(of(&[(0, 1), (1, 0), (2, 0), (0, 2)]), Some((0, 2)));
        assert_eq!(of(&[(0, 1), (2, 0), (1, 2)]), None, "no path of two edges returns to the type");
    }
}
