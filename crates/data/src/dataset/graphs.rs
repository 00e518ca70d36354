//! Datasets of several graphs, stored as their disjoint union: each graph is a named range of
//! nodes.
//!
//! Datasets that are split by graph (PPI, Twitch) train on some graphs and score on others. Nothing
//! else treats the graphs separately: no edge connects two of them, so training sees one graph.

use std::{collections::BTreeSet, ops::Range};

use graphmill_core::{Buffer, Error, Graph, NodeId, Result, Split};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// One graph of a disjoint union.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedGraph {
    /// Name of the graph: not empty and without commas or slashes, which separate names in split
    /// options.
    pub name: String,
    /// Range of the graph's nodes.
    pub nodes: Range<usize>,
}

impl NamedGraph {
    /// Creates the graph `name` of these nodes.
    pub fn new(name: impl Into<String>, nodes: Range<usize>) -> Self {
        Self { name: name.into(), nodes }
    }
}

/// Names of the graphs that train, validate and test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphParts {
    /// Graphs whose nodes train.
    pub train: Vec<String>,
    /// Graphs whose nodes validate.
    pub valid: Vec<String>,
    /// Graphs whose nodes test.
    pub test: Vec<String>,
}

/// Checks that `graphs` (empty, or a union) are contiguous, cover all nodes, have unique names, and
/// that no edge connects two of them. O(V + E), parallel.
pub(crate) fn validate(graphs: &[NamedGraph], graph: &Graph) -> Result<()> {
    if graphs.is_empty() {
        return Ok(());
    }
    let mut names = BTreeSet::new();
    let mut next = 0;
    for NamedGraph { name, nodes } in graphs {
        if name.trim().is_empty() || name.trim() != name || name.contains([',', '/']) {
            return Err(Error::invalid(format!(
                "a graph is called '{name}': names are not empty and have no comma, no slash and no space \
                 around them"
            )));
        }
        if !names.insert(name) {
            return Err(Error::invalid(format!("two graphs are called '{name}'")));
        }
        if nodes.start != next || nodes.end < nodes.start {
            return Err(Error::invalid(format!(
                "the graph '{name}' has the nodes {nodes:?}, but the one before ends at {next}"
            )));
        }
        next = nodes.end;
    }
    if next != graph.num_nodes() {
        return Err(Error::invalid(format!(
            "the graphs end at node {next}, but there are {}",
            graph.num_nodes()
        )));
    }
    for NamedGraph { name, nodes } in graphs {
        let outside = |&u: &NodeId| !nodes.contains(&(u as usize));
        let stranger = |v: usize| Some((*graph.in_neighbors(v as NodeId).iter().find(|u| outside(u))?, v));
        if let Some((u, v)) = nodes.clone().into_par_iter().with_min_len(1 << 10).find_map_first(stranger) {
            return Err(Error::invalid(format!(
                "an edge joins node {u} with node {v} of the graph '{name}': no edge joins two graphs"
            )));
        }
    }
    Ok(())
}

/// Restricts `graphs` to the nodes `kept` (ascending), renumbered; graphs that lose all nodes are
/// dropped.
pub(crate) fn restrict(graphs: &[NamedGraph], kept: &[NodeId]) -> Vec<NamedGraph> {
    let below = |bound: usize| kept.partition_point(|&v| (v as usize) < bound);
    let left = |g: &NamedGraph| NamedGraph::new(&g.name, below(g.nodes.start)..below(g.nodes.end));
    graphs.iter().map(left).filter(|g| !g.nodes.is_empty()).collect()
}

/// Collects the labelled nodes of the graphs named by `parts`.
///
/// # Errors
/// A name is unknown or occurs in two parts, or a part that names graphs has no labelled node.
pub(super) fn split(
    graphs: &[NamedGraph],
    is_labelled: impl Fn(NodeId) -> bool,
    parts: &GraphParts,
) -> Result<Split> {
    if graphs.is_empty() {
        return Err(Error::invalid("split graphs: the source is a single graph; use given or random:A,B,C"));
    }
    let mut seen = BTreeSet::new();
    let mut part = |what: &str, names: &[String]| -> Result<Buffer<NodeId>> {
        let mut ids = Vec::new();
        for name in names {
            let Some(graph) = graphs.iter().find(|graph| graph.name == *name) else {
                let known = graphs.iter().map(|graph| graph.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(Error::Unknown { axis: "graph", name: name.clone(), known });
            };
            if !seen.insert(name.clone()) {
                return Err(Error::invalid(format!("split graphs: '{name}' occurs twice")));
            }
            ids.extend(graph.nodes.clone().map(|v| v as NodeId).filter(|&v| is_labelled(v)));
        }
        if ids.is_empty() && !names.is_empty() {
            return Err(Error::invalid(format!(
                "split graphs: no node of {} has a label to {what} on",
                names.join(", ")
            )));
        }
        ids.sort_unstable();
        Ok(ids.into())
    };
    Ok(Split {
        train: part("train", &parts.train)?,
        valid: part("validate", &parts.valid)?,
        test: part("test", &parts.test)?,
    })
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, Labels, build};

    use super::*;

    fn three() -> Vec<NamedGraph> {
        vec![NamedGraph::new("a", 0..2), NamedGraph::new("b", 2..3), NamedGraph::new("c", 3..6)]
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn graphs_cover_the_nodes_and_no_edge_leaves_one() {
        let graph = build(6, &[0, 3, 5], &[1, 4, 3], EdgeOptions::UNDIRECTED).unwrap();
        validate(&three(), &graph).unwrap();
        validate(&[], &graph).unwrap();
        let fails = |graphs: &[NamedGraph], why: &str| {
            let error = validate(graphs, &graph).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        fails(&three()[..2], "end at node 3, but there are 6");
        fails(&[NamedGraph::new("a", 0..4), NamedGraph::new("b", 4..6)], "joins node 4 with node 3");
        fails(&[NamedGraph::new("a", 0..3), NamedGraph::new("a", 3..6)], "two graphs are called 'a'");
        fails(&[NamedGraph::new("a", 0..2), NamedGraph::new("b", 3..6)], "the nodes 3..6");
        for name in ["", " a", "a,b", "a/b"] {
            fails(&[NamedGraph::new(name, 0..6)], "a graph is called");
        }
    }

    #[test]
    fn restricted_graphs_keep_their_nodes() {
        let left = restrict(&three(), &[1, 4, 5]);
        assert_eq!(left, [NamedGraph::new("a", 0..1), NamedGraph::new("c", 1..3)]);
    }

    #[test]
    fn parts_are_the_labelled_nodes_of_their_graphs() {
        let labels = Labels::Single { class: vec![0, -1, -1, 1, 0, 1].into(), classes: 2 };
        let parts = GraphParts { train: names(&["c", "a"]), ..Default::default() };
        let made = split(&three(), |v| labels.is_labelled(v), &parts).unwrap();
        assert_eq!((&made.train[..], made.valid.len(), made.test.len()), (&[0, 3, 4, 5][..], 0, 0));
        let fails = |train: &[&str], test: &[&str], why: &str| {
            let parts = GraphParts { train: names(train), test: names(test), ..Default::default() };
            let error = split(&three(), |v| labels.is_labelled(v), &parts).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        fails(&["a"], &["d"], "unknown graph 'd'; known: a, b, c");
        fails(&["a"], &["a"], "'a' occurs twice");
        fails(&["a"], &["b"], "no node of b has a label to test on");
        assert!(
            split(&[], |v| labels.is_labelled(v), &parts).unwrap_err().to_string().contains("single graph")
        );
    }
}
