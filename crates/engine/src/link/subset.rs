//! Evaluation by the embeddings of some nodes instead of all.
//!
//! Edges that are compared with pairs or with given negatives read the embeddings of their ends
//! alone. Over ranks, which gather embeddings, only these are computed and sent.

use graphmill_core::NodeId;

use super::{LinkEvaluation, evaluate::Against, split::Edge};

/// Nodes with ascending ids, which number them from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbering(Vec<NodeId>);

impl Numbering {
    /// Numbers these nodes, which may repeat. O(n log n).
    pub(crate) fn new(mut nodes: Vec<NodeId>) -> Self {
        nodes.sort_unstable();
        nodes.dedup();
        Self(nodes)
    }

    /// The nodes, in the order of their numbers.
    pub(crate) fn nodes(&self) -> &[NodeId] {
        &self.0
    }

    /// Number of a node, which is one of them. O(log n).
    pub(crate) fn of(&self, node: NodeId) -> NodeId {
        self.0.partition_point(|&other| other < node) as NodeId
    }
}

impl LinkEvaluation {
    /// Nodes whose embeddings the scores read, which may repeat; `None` if edges are ranked among
    /// all nodes.
    pub(crate) fn nodes(&self) -> Option<Vec<NodeId>> {
        let ends = |edges: &[Edge]| edges.iter().flat_map(|&(u, v)| [u, v]).collect::<Vec<_>>();
        let mut all = ends(&self.edges);
        match &self.against {
            Against::All(_) => return None,
            Against::Pairs(pairs) => all.extend(ends(pairs)),
            Against::Ends { lists, .. } => all.extend_from_slice(&lists.nodes),
        }
        Some(all)
    }

    /// The same evaluation by embeddings of the nodes of a numbering, in its order; these include
    /// all of [`LinkEvaluation::nodes`].
    #[must_use]
    pub(crate) fn numbered(mut self, by: &Numbering) -> Self {
        let number = |edge: &mut Edge| *edge = (by.of(edge.0), by.of(edge.1));
        self.edges.iter_mut().for_each(number);
        match &mut self.against {
            Against::All(_) => {}
            Against::Pairs(pairs) => pairs.iter_mut().for_each(number),
            Against::Ends { lists, .. } => {
                lists.nodes = lists.nodes.iter().map(|&node| by.of(node)).collect::<Vec<_>>().into();
            }
        }
        self
    }
}
