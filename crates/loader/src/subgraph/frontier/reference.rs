//! Reference of the tests and the bench: frontier sampling as published (algorithm 2), O(m) per
//! pop.

use graphmill_core::{Graph, NodeId, keyed::Stream};

/// Method of choosing a node of the frontier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// "Partitioning the total probability of 1 into m intervals" (section 4.1): probabilities `deg
    /// / sum` and their ends in f64.
    Intervals,
    /// The same with integers: weights stored beside the frontier, their running sums and a binary
    /// search. The fastest O(m) method without explicit vector instructions.
    RunningSums,
}

/// All nodes that were ever in the frontier, in the order in which they joined.
pub(crate) fn walk(
    graph: &Graph,
    roots: &[NodeId],
    (frontier, budget, cap): (usize, usize, u32),
    choice: Choice,
    mut stream: Stream,
) -> Vec<NodeId> {
    let weight = |v: NodeId| (graph.in_degree(v) as u64).min(u64::from(cap));
    let mut front: Vec<NodeId> =
        (0..frontier).map(|_| roots[stream.below(roots.len() as u64) as usize]).collect();
    let mut nodes = front.clone();
    let mut weights: Vec<u64> = front.iter().map(|&v| weight(v)).collect();
    let (mut sums, mut ends) = (vec![0; frontier], vec![0.0; frontier]);
    for _ in frontier..budget {
        let popped = match choice {
            Choice::Intervals => {
                let sum: u64 = weights.iter().sum();
                let mut end = 0.0;
                for (interval, &weight) in ends.iter_mut().zip(&weights) {
                    end += weight as f64 / sum as f64;
                    *interval = end;
                }
                let dart = stream.uniform();
                // rounding may leave the last end below 1
                let last = weights.iter().rposition(|&w| w > 0);
                last.map(|last| ends.partition_point(|&end| end <= dart).min(last))
            }
            Choice::RunningSums => {
                let mut sum = 0;
                for (end, weight) in sums.iter_mut().zip(&weights) {
                    sum += weight;
                    *end = sum;
                }
                (sum > 0).then(|| {
                    let dart = stream.below(sum);
                    sums.partition_point(|&end| end <= dart)
                })
            }
        };
        let Some(popped) = popped else { break };
        let row = graph.in_neighbors(front[popped]);
        let new = row[stream.below(row.len() as u64) as usize];
        front[popped] = new;
        weights[popped] = weight(new);
        nodes.push(new);
    }
    nodes
}
