//! Reverse PageRank: scores that flow from nodes to their in-neighbours.

use graphmill_core::rank::{RankOptions, reverse_pagerank};

use super::{Setting, no_argument};

/// Number of iterations after which the start's influence is gone: 0.85^20 is 4 %.
const CONVERGED: usize = 20;

/// Scores from a uniform start, until convergence.
pub(super) fn plain(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("reverse-pagerank", argument)?;
    let start = vec![1.0; setting.graph.num_nodes()];
    let options = RankOptions { iterations: CONVERGED, ..RankOptions::default() };
    Ok(reverse_pagerank(setting.graph, &start, options))
}

/// Scores after five iterations from a start at the training nodes of `V / train` each.
pub(super) fn weighted(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("weighted-reverse-pagerank", argument)?;
    let nodes = setting.graph.num_nodes();
    let mut start = vec![1.0; nodes];
    setting.train.iter().for_each(|&v| start[v as usize] = nodes as f64 / setting.train.len() as f64);
    Ok(reverse_pagerank(setting.graph, &start, RankOptions::default()))
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Graph, NodeId, node_order::by_scores};
    use graphmill_data::generate::{GenerateOptions, generate};

    use super::*;

    /// The hottest tenth of the nodes after some iterations, in ascending order.
    fn hottest(graph: &Graph, iterations: usize) -> Vec<NodeId> {
        let options = RankOptions { iterations, ..RankOptions::default() };
        let scores = reverse_pagerank(graph, &vec![1.0; graph.num_nodes()], options);
        let mut hottest = by_scores(&scores).unwrap();
        hottest.truncate(graph.num_nodes() / 10);
        hottest.sort_unstable();
        hottest
    }

    #[test]
    fn further_iterations_do_not_change_the_hottest_nodes() {
        let plain = GenerateOptions { scale: 12, nodes: 4000, seed: 1, ..GenerateOptions::default() };
        let directed = GenerateOptions { directed: true, ..plain.clone() };
        let clustered = GenerateOptions { p_in: 0.99, classes: 40, ..directed.clone() };
        let mut least_of_one = 1.0f64;
        for (generator, options) in
            [("kronecker", &plain), ("kronecker", &directed), ("sbm", &directed), ("sbm", &clustered)]
        {
            let graph = generate(generator, options).unwrap().graph;
            let [one, converged, late] = [1, CONVERGED, 200].map(|iterations| hottest(&graph, iterations));
            let share = |of: &[NodeId]| {
                let common = of.iter().filter(|&v| late.binary_search(v).is_ok()).count();
                common as f64 / late.len() as f64
            };
            assert!(share(&converged) >= 0.99, "{generator} {options:?}: {}", share(&converged));
            least_of_one = least_of_one.min(share(&one));
        }
        assert!(least_of_one < 0.99, "one iteration would do: {least_of_one}");
    }
}
