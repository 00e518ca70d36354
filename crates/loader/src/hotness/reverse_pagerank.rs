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
