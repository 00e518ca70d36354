//! Layer-neighbour sampling (Balin and Catalyurek, *Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs*, NeurIPS 2023): LABOR-0.
//!
//! Every source `u` has one uniform random number `r_u` a hop, and a destination `v` of degree `d_v` takes those of its in-neighbours with
//! `r_u <= min(1, k / d_v)`. Each neighbour is taken with the same probability as in neighbour sampling, and given `v`, independently of the
//! others, so that `v` has `k` neighbours on average, not always (none with probability `e^-k` about). But as destinations share the numbers, they tend
//! to take the same neighbours: a layer has fewer distinct nodes, and fewer rows are read.
//!
//! As in the paper a mean is Hajek's estimator, the mean over those taken (no edge weights are stored), and the symmetric-normalised sum
//! is scaled likewise, by `d` over the number taken; a sum is Horvitz and Thompson's, each edge weighing `max(1, d / k)`.
//!
//! A function of (seed, epoch, batch, hop, source). Every in-neighbour's number is computed, O(d) a destination, instead of `k` draws: it is slower to
//! draw than neighbour sampling where degrees are high, and pays where reading rows costs more than drawing them.

use graphmill_graph::{Block, Graph, NodeId, Result, block::Aggregation, keyed};

use super::{BatchKey, Sampler, Scratch, neighbor::fanouts, runs::draw_runs};
use crate::prefetch::prefetch;

/// Destinations ahead whose neighbours are asked for.
const AHEAD: usize = 8;
/// Neighbours whose numbers are looked at before any is appended.
const CHUNK: usize = 64;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Labor {
    /// Per hop from the seeds outward, on average; `usize::MAX` takes all.
    fanout: Vec<usize>,
}

impl Labor {
    /// `fanout[h]` neighbours per node on average at hop `h` from the seeds; -1 takes all.
    ///
    /// # Errors
    /// As [`super::neighbor::Neighbor::new`].
    pub fn new(fanout: &[i64]) -> Result<Self, String> {
        Ok(Self { fanout: fanouts(fanout)? })
    }
}

impl Sampler for Labor {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn is_random(&self) -> bool {
        self.fanout.iter().any(|&k| k != usize::MAX)
    }

    fn draws_by_node(&self) -> bool {
        true
    }

    fn sample_layer(
        &self,
        graph: &Graph,
        hop: usize,
        dst: &[NodeId],
        key: BatchKey,
        aggregation: Aggregation,
        scratch: &mut Scratch,
        block: &mut Block,
    ) -> Result<()> {
        let fanout = self.fanout[hop];
        let key = keyed::key(&[key.seed, key.epoch, key.batch, hop as u64]);
        let weighs = aggregation == Aggregation::Sum && fanout != usize::MAX;
        draw_runs(dst, scratch, block, |dst, _, block| draw(graph, fanout, key, weighs, dst, block))
    }
}

/// Appends what `dst` take, and what they weigh in a sum if that is wanted.
fn draw(graph: &Graph, fanout: usize, key: u64, weighs: bool, dst: &[NodeId], block: &mut Block) {
    let (rows, neighbors) = (graph.indptr(), graph.indices());
    for (i, &v) in dst.iter().enumerate() {
        if let Some(&ahead) = dst.get(i + 2 * AHEAD) {
            prefetch(rows, ahead as usize);
        }
        if let Some(&ahead) = dst.get(i + AHEAD) {
            // the rest of a long row comes by itself
            prefetch(neighbors, rows[ahead as usize] as usize);
        }
        let row = graph.in_neighbors(v);
        if row.len() <= fanout {
            block.indices.extend_from_slice(row);
        } else {
            let below = (((fanout as u128) << 64) / row.len() as u128) as u64;
            for chunk in row.chunks(CHUNK) {
                // whether a neighbour is taken is a coin toss to a branch
                let (mut taken, mut count) = ([0; CHUNK], 0);
                for &u in chunk {
                    taken[count % CHUNK] = u;
                    count += usize::from(keyed::mix(key ^ u64::from(u).wrapping_mul(keyed::GOLDEN)) < below);
                }
                block.indices.extend_from_slice(&taken[..count]);
            }
        }
        if weighs {
            let weight = (row.len() as f32 / fanout as f32).max(1.0);
            block.edge_weight.resize(block.indices.len(), weight);
        }
        block.indptr.push(block.indices.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, MiniBatch, Workspace, sampler::neighbor::Neighbor, weights::SymmetricWeights};

    /// Node 0 hears from 3 to 42, node 1 from 3 to 14, node 2 from 3 to 6.
    fn graph() -> Graph {
        let mut indptr = vec![0, 40, 52, 56];
        indptr.resize(44, 56);
        let indices: Vec<NodeId> = (3..43).chain(3..15).chain(3..7).collect();
        Graph::new(indptr.into(), indices.into()).unwrap()
    }

    fn sample(
        sampler: &dyn Sampler,
        graph: &Graph,
        seeds: Vec<NodeId>,
        number: u64,
        form: Form,
    ) -> MiniBatch {
        let mut batch = MiniBatch { seeds, number, ..MiniBatch::default() };
        sampler.sample(graph, 11, 0, form, &mut Workspace::new(graph.num_nodes()), &mut batch).unwrap();
        batch
    }

    #[test]
    fn neighbours_are_taken_by_their_probability_and_shared() {
        let (graph, sampler) = (graph(), Labor::new(&[5]).unwrap());
        let runs = 20_000u32;
        let (mut counts, mut pairs) = ([[0u32; 43]; 3], [0u32; 43]);
        for number in 0..runs {
            let form = Form { fused: true, ..Form::default() };
            let batch = sample(&sampler, &graph, vec![0, 1, 2], number.into(), form);
            let block = &batch.blocks[0];
            let row = |v: usize| &block.indices[block.edges(v)];
            (0..3).for_each(|v| row(v).iter().for_each(|&u| counts[v][u as usize] += 1));
            // the less likely is taken only with the more likely
            assert!(row(0).iter().filter(|&&u| u < 15).all(|u| row(1).contains(u)));
            if row(0).contains(&3) {
                row(0).iter().for_each(|&u| pairs[u as usize] += 1);
            }
        }
        let chi = |counts: &[u32], n: f64, p: f64| -> f64 {
            let each = |&c: &u32| (f64::from(c) - n * p).powi(2) / (n * p * (1.0 - p));
            counts.iter().map(each).sum()
        };
        // chi-square with 40, 12 and 39 degrees of freedom: beyond with probability 1e-5
        assert!(chi(&counts[0][3..], runs.into(), 5.0 / 40.0) < 89.0);
        assert!(chi(&counts[1][3..15], runs.into(), 5.0 / 12.0) < 46.0);
        assert!(counts[2][3..7].iter().all(|&c| c == runs));
        // and independently of one another
        assert!(chi(&pairs[4..], pairs[3].into(), 5.0 / 40.0) < 87.0);
    }

    #[test]
    fn sums_are_right_on_average_and_means_nearly() {
        let (graph, sampler) = (graph(), Labor::new(&[5]).unwrap());
        let symmetric = SymmetricWeights::new(&graph);
        let x = |u: NodeId| f64::from(u * u % 23) + 1.0;
        for aggregation in [Aggregation::Sum, Aggregation::Mean, Aggregation::Symmetric] {
            let wants = (aggregation == Aggregation::Symmetric).then_some(&symmetric);
            let form = Form { aggregation, symmetric: wants, fused: true, ..Form::default() };
            let (mut sum, mut squares) = ([0.0; 3], [0.0; 3]);
            let runs = 20_000;
            for number in 0..runs {
                let batch = sample(&sampler, &graph, vec![0, 1, 2], number, form);
                let block = &batch.blocks[0];
                assert_eq!(block.edge_weight.is_empty(), aggregation == Aggregation::Mean);
                for v in 0..3 {
                    let weight = |e: usize| {
                        block.edge_weight.get(e).map_or(1.0 / block.edges(v).len() as f64, |&w| f64::from(w))
                    };
                    let row: f64 = block.edges(v).map(|e| weight(e) * x(block.indices[e])).sum();
                    sum[v] += row;
                    squares[v] += row * row;
                }
            }
            for v in 0..3 {
                let all = graph.in_neighbors(v as u32);
                let d = all.len() as f64;
                let total: f64 = all.iter().map(|&u| x(u)).sum();
                let exact = match aggregation {
                    Aggregation::Mean => total / d,
                    Aggregation::Symmetric => total / (d + 1.0).sqrt(),
                    _ => total,
                };
                let mean = sum[v] / runs as f64;
                let sigma = ((squares[v] / runs as f64 - mean * mean).max(0.0) / runs as f64).sqrt();
                // where no neighbour is taken a ratio is 0
                let none = if d > 5.0 { (1.0 - 5.0 / d).powf(d) } else { 0.0 };
                let expected = if aggregation == Aggregation::Sum { exact } else { exact * (1.0 - none) };
                assert!(
                    (mean - expected).abs() < 5.0 * sigma + 1e-5 * exact,
                    "{aggregation:?} of {v}: {mean}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn a_dense_graph_needs_fewer_input_nodes_than_with_neighbour_sampling() {
        let n = 2000u32;
        let mut stream = keyed::Stream::new(5);
        let indptr: Vec<u64> = (0..=u64::from(n)).map(|v| v * 100).collect();
        let indices: Vec<NodeId> = (0..100 * n).map(|_| stream.below(n.into()) as NodeId).collect();
        let graph = Graph::new(indptr.into(), indices.into()).unwrap();
        let inputs = |sampler: &dyn Sampler| {
            let batch = sample(sampler, &graph, (0..200).collect(), 0, Form::default());
            (batch.input_nodes.len(), batch.num_edges())
        };
        let (labor, neighbor) = (inputs(&Labor::new(&[10]).unwrap()), inputs(&Neighbor::new(&[10]).unwrap()));
        // 2000 edges each: a tenth of all nodes below the threshold against a draw of nodes
        assert!((labor.1 as f64 / neighbor.1 as f64 - 1.0).abs() < 0.1, "{labor:?} {neighbor:?}");
        assert!(labor.0 < neighbor.0 / 2, "{labor:?} {neighbor:?}");
    }
}
