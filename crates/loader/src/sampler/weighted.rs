//! k-hop neighbour sampling by edge weight.
//!
//! # Algorithm
//!
//! **With replacement**, a node draws `k` in-neighbours, each in proportion to its edge's weight,
//! even if it has fewer than `k`; the mean over the draws estimates the weighted mean over all.
//! **Without replacement**, it draws one after the other among the rest: `k` distinct ones, or all
//! of positive weight. Edges of weight 0 are never drawn, and a node with no edge of positive
//! weight has no neighbours. A fanout of -1 takes every in-neighbour of positive weight once. If
//! all weights are equal, draws without replacement are those of [`Neighbor`].
//!
//! The block has no edge weights, because the draws are distributed by weight already: a plain mean
//! over them estimates the weighted mean.
//!
//! Weights are those of the graph, or a function of the source's degree. Draws use
//!
//! - alias tables ([`RowAlias`]), O(1) per draw, built in advance (for stored weights once, and
//!   stored with the graph). Without replacement, a repeated draw is rejected. That is exact and
//!   takes little more than `k` draws, unless few edges have nearly all the weight: after a fixed
//!   number of tries, one pass over the remaining edges draws the rest (`reservoir.rs`). The
//!   distribution is exact, because the number of tries is fixed and draws do not depend on earlier
//!   rejections. Rows of up to `5 k / 4` edges are drawn by a pass from the start, because most
//!   late tries would be repetitions. (Measured: a limit of `2 k` gives about a fifth fewer draws
//!   per second, relative to neighbour sampling in the same run.)
//! - or prefix sums without tables: the weights of a row are added up when it is drawn from. With
//!   replacement the sums are searched; without, one pass suffices.
//!
//! # Source
//!
//! The weighted sampling of Yang et al., *GNNLab: a factored system for sample-based GNN training
//! over GPUs* (FGNN), EuroSys 2022, section 2.
//!
//! # Cost
//!
//! Alias tables: O(V + E) once and O(k) per node. Prefix sums: O(d + k log d) per node.
//!
//! # Memory
//!
//! Alias tables: 8 bytes per edge.
//!
//! # Deviations
//!
//! GNNLab also draws with replacement, but drops repetitions and takes short rows whole, which
//! biases the weighted mean.

mod draws;

use std::sync::Arc;

use clap::{Args, ValueEnum};
use graphmill_core::{Block, Graph, NodeId, Result, alias::RowAlias, by_name, options::OptionSet, rank};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    HopProperties, HopRequest, HopSampler, HopScratch, NeededWeights, NeighborAccess, SamplerOptions, Source,
    neighbor::Neighbor, runs::draw_runs,
};
use crate::Fanout;
use draws::Draws;

/// Number of edges between a prefetch of a source's weight and its use in a pass over a row.
pub(super) const PREFETCH_DISTANCE: usize = 16;

/// Weights for draws without replacement, which are those of [`Neighbor`] if all weights are equal.
pub(super) const NEEDED: NeededWeights = NeededWeights {
    by: |own| !own.get::<WeightedOptions>().replace,
    uniform: "neighbor",
    remedy: "use neighbor, --replace to draw uniformly with replacement, or import the edges with their \
             weights",
};

/// Weights of the edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeWeights {
    /// Weights that the graph stores; equal weights if it stores none.
    #[default]
    Stored,
    /// In-degree of the source, at least 1.
    InDegree,
    /// Out-degree of the source.
    OutDegree,
    /// 1 / [`EdgeWeights::InDegree`].
    InverseInDegree,
    /// 1 / [`EdgeWeights::OutDegree`].
    InverseOutDegree,
}

impl EdgeWeights {
    /// Returns true if the weights are functions of out-degrees.
    pub fn reads_out_degrees(self) -> bool {
        matches!(self, Self::OutDegree | Self::InverseOutDegree)
    }

    /// Weight of each node's out-edges (`V`), if it is a function of the node. O(V), or O(V + E)
    /// for out-degrees, parallel.
    pub(super) fn of_nodes(self, graph: &Graph) -> Option<Vec<f32>> {
        let whole = graph.whole_degrees();
        let degrees = match self {
            Self::Stored => return None,
            Self::InDegree | Self::InverseInDegree => match whole {
                Some(whole) => whole.of_in.to_vec(),
                None => {
                    let nodes = (0..graph.num_nodes()).into_par_iter();
                    nodes.map(|v| graph.in_degree(v as NodeId) as u32).collect()
                }
            },
            Self::OutDegree | Self::InverseOutDegree => match whole.and_then(|whole| whole.of_out.as_ref()) {
                Some(of_out) => of_out.clone(),
                None => rank::out_degrees(graph),
            },
        };
        let inverse = matches!(self, Self::InverseInDegree | Self::InverseOutDegree);
        let weight = |degree: u32| if inverse { 1.0 / degree.max(1) as f32 } else { degree.max(1) as f32 };
        Some(degrees.into_par_iter().map(weight).collect())
    }
}

/// Method of drawing neighbours by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrawBy {
    /// Alias tables.
    #[default]
    Alias,
    /// Prefix sums.
    PrefixSums,
}

by_name!(EdgeWeights, DrawBy);

/// Options of samplers that draw by the weights of edges.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightOptions {
    /// Weights of the edges: stored, or a degree of the source.
    ///
    /// The degrees are in-degree, out-degree, inverse-in-degree and inverse-out-degree.
    #[arg(long, value_name = "NAME")]
    pub edge_weights: EdgeWeights,
}

impl OptionSet for WeightOptions {}

/// Options of [`Weighted`].
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightedOptions {
    /// Draw neighbours with replacement.
    #[arg(long)]
    pub replace: bool,
    /// Method of drawing: alias or prefix-sums.
    ///
    /// Alias tables take 8 bytes per edge and constant time per draw; prefix-sums needs no tables,
    /// but time that grows with the number of neighbours.
    #[arg(long, alias = "draw-by", value_name = "NAME")]
    pub weighted_index: DrawBy,
}

impl OptionSet for WeightedOptions {}

impl WeightedOptions {
    /// Rejects stored weights of a graph that stores none, because the draws would silently be
    /// those of [`Neighbor`]. With replacement the draws are uniform ones that no other sampler
    /// makes.
    ///
    /// # Errors
    /// The reason and what to use instead.
    pub(super) fn check_weights(&self, graph: &Graph, weights: EdgeWeights) -> Result<(), String> {
        if weights != EdgeWeights::Stored || graph.edge_weight().is_some() {
            return Ok(());
        }
        let reason = "the graph stores no edge weights";
        if !self.replace {
            return Err(format!(
                "{reason}; use --edge-weights in-degree or another function of the nodes, --replace to draw \
                 uniformly with replacement, --sampler neighbor, or import the edges with their weights"
            ));
        }
        if self.weighted_index == DrawBy::PrefixSums {
            return Err(format!(
                "{reason} to sum, so that --weighted-index prefix-sums changes nothing; leave it out"
            ));
        }
        Ok(())
    }
}

/// Makes the sampler of a run.
pub(super) fn make(with: &SamplerOptions, source: &Source) -> Result<Arc<dyn HopSampler>, String> {
    let (own, WeightOptions { edge_weights }) = (with.own.get::<WeightedOptions>(), with.own.get());
    own.check_weights(source.graph, edge_weights)?;
    Ok(Arc::new(Weighted::new(source.graph, &with.fanout, &own, edge_weights)?))
}

/// Samples neighbours by edge weight.
///
/// Memory: the alias tables, and 4 bytes per node if edges are weighted by degree or some have
/// weight 0.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// Number of neighbours per hop, from the seeds outward; `usize::MAX` takes all.
    fanout: Vec<usize>,
    replace: bool,
    weights: Weights,
    alias: Option<RowAlias>,
    /// Number of in-neighbours of positive weight of each node (`V`), if some have weight 0.
    can: Option<Vec<u32>>,
}

/// Source of the weights.
#[derive(Clone, Debug)]
enum Weights {
    Equal(Neighbor),
    Stored,
    /// Weight of each source (`V`).
    OfSource(Arc<[f32]>),
}

impl Weighted {
    /// Creates a sampler for `graph` with `fanout` as in [`Neighbor::new`]. O(V + E), parallel.
    ///
    /// # Errors
    /// The fanout is invalid, an edge's weight is negative or not finite, or a node has more
    /// in-neighbours than an alias table can number.
    pub fn new(
        graph: &Graph,
        fanout: impl Into<Fanout>,
        options: &WeightedOptions,
        weights: EdgeWeights,
    ) -> Result<Self, String> {
        let &WeightedOptions { replace, weighted_index } = options;
        let fanout = fanout.into();
        let bounds = fanout.bounds()?;
        let weights = match weights.of_nodes(graph) {
            Some(of_nodes) => Weights::OfSource(of_nodes.into()),
            None if graph.edge_weight().is_some() => Weights::Stored,
            None => Weights::Equal(Neighbor::new(fanout)?),
        };
        let this = Self { fanout: bounds, replace, weights, alias: None, can: None };
        this.of_rows(graph, weighted_index == DrawBy::Alias).map_err(|e| e.to_string())
    }

    /// The same draws from the rows of `graph`, by alias tables of them if `by_alias`. O(V + E),
    /// parallel.
    fn of_rows(&self, graph: &Graph, by_alias: bool) -> Result<Self> {
        let mut this = Self {
            fanout: self.fanout.clone(),
            replace: self.replace,
            weights: self.weights.clone(),
            alias: None,
            can: None,
        };
        match &self.weights {
            Weights::Equal(_) => {}
            Weights::OfSource(of_nodes) => {
                if by_alias {
                    let edges = graph.indices().par_iter();
                    let of_edges: Vec<f32> = edges.map(|&u| of_nodes[u as usize]).collect();
                    this.alias = Some(RowAlias::new(graph.indptr(), &of_edges)?);
                }
            }
            Weights::Stored => {
                if by_alias {
                    this.alias = Some(graph.alias_tables()?);
                }
                let stored = graph.edge_weight().unwrap_or_default();
                if stored.par_iter().any(|&w| w == 0.0) {
                    let can = |ends: &[u64]| {
                        let row = &stored[ends[0] as usize..ends[1] as usize];
                        row.iter().filter(|&&w| w > 0.0).count() as u32
                    };
                    this.can = Some(graph.indptr().par_windows(2).map(can).collect());
                }
            }
        }
        Ok(this)
    }

    /// Method of the draws, for code that repeats them elsewhere.
    pub fn draws(&self) -> WeightedDraws<'_> {
        match (&self.weights, &self.alias) {
            (Weights::Equal(_), _) if self.replace => WeightedDraws::UniformWithReplacement,
            (Weights::Equal(_), _) => WeightedDraws::Uniform,
            (_, Some(alias)) if self.replace => WeightedDraws::AliasWithReplacement(alias),
            _ => WeightedDraws::Other,
        }
    }

    /// Returns true if every in-neighbour can be drawn, because no edge has weight 0.
    pub fn draws_all(&self) -> bool {
        self.can.is_none()
    }
}

/// Method by which a [`Weighted`] draws if the fanout is not -1.
#[derive(Clone, Copy, Debug)]
pub enum WeightedDraws<'a> {
    /// Uniformly without replacement, as [`Neighbor`].
    Uniform,
    /// Uniformly with replacement.
    UniformWithReplacement,
    /// By weight with replacement, from these tables.
    AliasWithReplacement(&'a RowAlias),
    /// By another method.
    Other,
}

impl HopSampler for Weighted {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn properties(&self) -> HopProperties {
        HopProperties {
            is_random: self.fanout.iter().any(|&k| k != usize::MAX),
            is_per_node: true,
            access: NeighborAccess::OwnList,
            reads_edge_weights: matches!(self.weights, Weights::Stored),
            leaves_out: false,
        }
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let fanout = self.fanout[request.hop];
        if let Weights::Equal(neighbor) = &self.weights
            && (!self.replace || fanout == usize::MAX)
        {
            return neighbor.sample_hop(request, scratch, block);
        }
        let draws = Draws { sampler: self, request, fanout, key: request.hop_key() };
        draw_runs(request.dst, scratch, block, |dst, scratch, block| draws.draw(dst, scratch, block))
    }

    fn with_tables_of(&self, graph: &Graph) -> Result<Option<Arc<dyn HopSampler>>> {
        if self.alias.is_none() && self.can.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.of_rows(graph, self.alias.is_some())?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::reservoir::tests::sets, *};
    use crate::{
        BatchKey, BlockLayout, MinibatchSampler, Seeds, Workspace,
        sampler::{BatchRequest, HopStack},
        subgraph::testing::fits,
    };

    /// Node 0 has in-neighbours `1..=d` with these weights; no other node has in-neighbours.
    fn star(weights: &[f32]) -> Graph {
        let d = weights.len();
        let indptr: Vec<u64> = (0..d + 2).map(|v| if v == 0 { 0 } else { d as u64 }).collect();
        let graph = Graph::new(indptr.into(), (1..=d as NodeId).collect::<Vec<_>>().into()).unwrap();
        graph.with_edge_weight(weights.to_vec().into()).unwrap()
    }

    /// Passes the draws of node 0 to `see`, batch after batch.
    fn draws(sampler: &Weighted, graph: &Graph, batches: u64, mut see: impl FnMut(&[NodeId])) {
        let sampler = HopStack::new(sampler.clone());
        let mut workspace = Workspace::new(graph.num_nodes());
        let mut memory = Seeds::default();
        for number in 0..batches {
            let form = BlockLayout { fused: true, ..BlockLayout::default() };
            let request = BatchRequest::new(graph, BatchKey { seed: 3, epoch: 0, batch: number });
            let seeds = memory.refill(number, [0]);
            let batch = sampler.sample(&request.with_layout(form), &mut workspace, seeds).unwrap();
            assert!(batch.blocks[0].edge_weight.is_empty());
            see(&batch.blocks[0].indices);
            memory = batch.recycle();
        }
    }

    const BOTH: [DrawBy; 2] = [DrawBy::Alias, DrawBy::PrefixSums];

    #[test]
    fn weights_by_degree_are_those_of_the_graph_or_of_the_whole_one() {
        use graphmill_core::WholeDegrees;

        let graph = Graph::new(vec![0, 3, 3, 5].into(), vec![1, 1, 2, 0, 1].into()).unwrap();
        let of = |weights: EdgeWeights, graph: &Graph| weights.of_nodes(graph).unwrap();
        assert_eq!(of(EdgeWeights::OutDegree, &graph), [1.0, 3.0, 1.0]);
        assert_eq!(of(EdgeWeights::InverseOutDegree, &graph), [1.0, 1.0 / 3.0, 1.0]);
        assert_eq!(of(EdgeWeights::InDegree, &graph), [3.0, 1.0, 2.0]);
        let whole = WholeDegrees { of_in: vec![9, 8, 7].into(), of_out: Some(vec![4, 5, 6]) };
        let part = graph.with_whole_degrees(whole);
        assert_eq!(of(EdgeWeights::OutDegree, &part), [4.0, 5.0, 6.0]);
        assert_eq!(of(EdgeWeights::InverseInDegree, &part), [1.0 / 9.0, 1.0 / 8.0, 1.0 / 7.0]);
        assert!(EdgeWeights::Stored.of_nodes(&part).is_none());
    }

    #[test]
    fn draws_with_replacement_are_independent_and_by_weight() {
        let weights = [1.0, 0.0, 5.0, 0.5, 2.0, 0.0];
        let graph = star(&weights);
        for weighted_index in BOTH {
            let options = WeightedOptions { replace: true, weighted_index };
            let sampler = Weighted::new(&graph, [2], &options, EdgeWeights::Stored).unwrap();
            let mut counts = vec![0; 36];
            draws(&sampler, &graph, 100_000, |row| {
                assert_eq!(row.len(), 2);
                counts[(row[0] as usize - 1) * 6 + row[1] as usize - 1] += 1;
            });
            let pair = |i: usize| f64::from(weights[i / 6]) * f64::from(weights[i % 6]);
            fits(&counts, &(0..36).map(pair).collect::<Vec<_>>());
        }
    }

    #[test]
    fn draws_without_replacement_have_the_probabilities_of_successive_draws() {
        // A heavy edge causes repetitions at k = 2 and 3, and now and then so many that a pass
        // draws the rest.
        for (k, weights) in [
            (1, vec![1.0, 0.0, 5.0, 0.5, 2.0]),
            (2, vec![1.0, 900.0, 3.0, 0.0, 1.0, 2.0, 9000.0]),
            (3, vec![1.0, 900.0, 3.0, 1.0, 0.2, 2.0, 40.0, 2.0]),
            (3, vec![1.0, 9.0, 3.0, 0.0, 4.0]),
            // so few edges that a pass draws all
            (4, vec![1.0, 9.0, 3.0, 0.5, 0.0, 4.0]),
        ] {
            let graph = star(&weights);
            let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
            for weighted_index in BOTH {
                let options = WeightedOptions { weighted_index, ..WeightedOptions::default() };
                let sampler = Weighted::new(&graph, [k], &options, EdgeWeights::Stored).unwrap();
                let mut counts = vec![0; 1 << weights.len()];
                draws(&sampler, &graph, 100_000, |row| {
                    assert_eq!(row.len(), k as usize);
                    counts[row.iter().map(|&u| 1 << (u - 1)).sum::<usize>()] += 1;
                });
                let mut expected = sets(k as usize, &weights);
                let rare = |p: f64| p < 5e-5;
                (0..counts.len())
                    .filter(|&i| rare(expected[i]) && expected[i] > 0.0)
                    .for_each(|i| counts[i] = 0);
                expected.iter_mut().filter(|p| rare(**p)).for_each(|p| *p = 0.0);
                fits(&counts, &expected);
            }
        }
    }

    #[test]
    fn heavy_edges_of_a_long_row_do_not_bias_the_others() {
        let weights: Vec<f32> = (0..5000).map(|i| if i % 1000 == 7 { 1e30 } else { 1.0 }).collect();
        let graph = star(&weights);
        let sampler = Weighted::new(&graph, [20], &WeightedOptions::default(), EdgeWeights::Stored).unwrap();
        let mut counts = vec![0u64; 5];
        draws(&sampler, &graph, 2000, |row| {
            let mut row: Vec<u32> = row.iter().map(|u| u - 1).collect();
            row.sort_unstable();
            row.dedup();
            assert_eq!((row.len(), row.iter().filter(|&u| u % 1000 == 7).count()), (20, 5));
            row.iter().filter(|&u| u % 1000 != 7).for_each(|u| counts[*u as usize / 1000] += 1);
        });
        fits(&counts, &[1.0; 5]);
    }

    #[test]
    fn weights_by_degree_follow_their_definitions() {
        // in-neighbours: 1, 2, 3 of 0; none of 1; 0 and 1 of 2; 0, 1, 2 and 3 of 3
        let indptr = vec![0, 3, 3, 5, 9];
        let graph = Graph::new(indptr.into(), vec![1, 2, 3, 0, 1, 0, 1, 2, 3].into()).unwrap();
        for (&weights, expected) in EdgeWeights::value_variants().iter().zip([
            [1.0, 1.0, 1.0],
            [1.0, 2.0, 4.0],
            [3.0, 2.0, 2.0],
            [1.0, 0.5, 0.25],
            [1.0 / 3.0, 0.5, 0.5],
        ]) {
            for (weighted_index, replace) in
                [(BOTH[0], true), (BOTH[1], true), (BOTH[0], false), (BOTH[1], false)]
            {
                let options = WeightedOptions { replace, weighted_index };
                let sampler = Weighted::new(&graph, [1], &options, weights).unwrap();
                assert!(!sampler.properties().reads_edge_weights);
                let mut counts = vec![0; 3];
                draws(&sampler, &graph, 20_000, |row| counts[row[0] as usize - 1] += 1);
                fits(&counts, &expected);
            }
        }
    }

    #[test]
    fn zero_weight_edges_are_never_drawn() {
        let graph = star(&[0.0, 2.0, 0.0, 1.0, 1.0]);
        let nothing = star(&[0.0; 40]);
        for weighted_index in BOTH {
            for replace in [false, true] {
                let options = WeightedOptions { replace, weighted_index };
                for (fanout, most) in [(-1, usize::MAX), (3, 3), (9, if replace { 9 } else { 3 })] {
                    let sampler = Weighted::new(&graph, [fanout], &options, EdgeWeights::Stored).unwrap();
                    assert!(sampler.properties().reads_edge_weights);
                    draws(&sampler, &graph, 20, |row| {
                        assert!(
                            row.iter().all(|&u| u % 2 == 0 || u == 5)
                                && !row.contains(&1)
                                && !row.contains(&3)
                        );
                        assert_eq!(row.len(), most.min(if replace && fanout > 0 { 9 } else { 3 }));
                        assert!(fanout > 0 || row == [2, 4, 5]);
                    });
                    let sampler = Weighted::new(&nothing, [fanout], &options, EdgeWeights::Stored).unwrap();
                    draws(&sampler, &nothing, 3, |row| assert!(row.is_empty()));
                }
            }
        }
    }

    #[test]
    fn invalid_weights_are_rejected() {
        let graph = |weight: f32| star(&[1.0; 3]).with_edge_weight(vec![1.0, weight, 2.0].into());
        for weight in [-1.0, f32::NAN, f32::INFINITY] {
            let error = graph(weight).unwrap_err().to_string();
            assert!(error.contains(&format!("edge weight 1 is {weight}")), "{error}");
        }
        assert!(Weighted::new(&star(&[1.0]), [0], &WeightedOptions::default(), EdgeWeights::Stored).is_err());
    }
}
