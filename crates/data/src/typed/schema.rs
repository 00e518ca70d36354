//! Types of nodes and edges, and the id space that the node types share.

use std::fmt;

use graphmill_core::{Error, NodeId, Result};
use serde::{Deserialize, Serialize};

/// Edge type: a relation from one node type to another. Messages flow from source to destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EdgeType {
    /// Node type of the sources.
    pub source: String,
    /// Name of the relation.
    pub name: String,
    /// Node type of the destinations.
    pub destination: String,
}

impl EdgeType {
    /// Creates the edge type `(source, name, destination)`.
    pub fn new(source: impl Into<String>, name: impl Into<String>, destination: impl Into<String>) -> Self {
        Self { source: source.into(), name: name.into(), destination: destination.into() }
    }

    /// Edge type of the reverse edges, called `name`.
    pub fn reversed(&self, name: impl Into<String>) -> Self {
        Self::new(&self.destination, name, &self.source)
    }
}

impl fmt::Display for EdgeType {
    /// Writes `author:writes:paper`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.name, self.destination)
    }
}

/// Node types with their numbers of nodes, and edge types between them.
///
/// The node types share one id space: the nodes of type `t` have the global ids
/// `offsets()[t]..offsets()[t + 1]`. Ids in files are local: they count from 0 within their type.
///
/// ```
/// use graphmill_data::typed::{EdgeType, Schema};
///
/// let writes = EdgeType::new("author", "writes", "paper");
/// let schema = Schema::new([("author", 3), ("paper", 5)], [writes])?;
/// assert_eq!(schema.offsets(), [0, 3, 8]);
/// assert_eq!(schema.type_of(4), Some((1, 1))); // the second paper
/// assert_eq!(schema.ends(0), (0, 1));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    nodes: Vec<(String, usize)>,
    edges: Vec<EdgeType>,
    ends: Vec<(usize, usize)>,
    offsets: Vec<u64>,
}

impl Schema {
    /// Creates the schema of these node types, each with its number of nodes, and edge types.
    ///
    /// # Errors
    /// All faults at once: a name is empty or occurs twice, an edge type names an unknown node
    /// type, or the nodes exceed [`NodeId`].
    pub fn new<N: Into<String>>(
        nodes: impl IntoIterator<Item = (N, usize)>,
        edges: impl IntoIterator<Item = EdgeType>,
    ) -> Result<Self> {
        let nodes = nodes.into_iter().map(|(name, count)| (name.into(), count)).collect();
        let (schema, faults) = Self::with_faults(nodes, edges.into_iter().collect());
        if faults.is_empty() { Ok(schema) } else { Err(Error::invalid(faults.join("\n"))) }
    }

    /// Creates a schema and lists its faults. Ends of an edge type with an unknown node type are 0.
    pub(super) fn with_faults(nodes: Vec<(String, usize)>, edges: Vec<EdgeType>) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let known = || nodes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        for (i, (name, _)) in nodes.iter().enumerate() {
            if name.is_empty() {
                faults.push(format!("node type {i} has no name; name every node type"));
            } else if nodes[..i].iter().any(|(earlier, _)| earlier == name) {
                faults.push(format!("two node types are called '{name}'; names are unique"));
            }
        }
        let mut ends = Vec::with_capacity(edges.len());
        for (i, edge) in edges.iter().enumerate() {
            if edge.name.is_empty() {
                faults.push(format!("edge type {i} ({edge}) has no name; name every edge type"));
            }
            if edges[..i].contains(edge) {
                faults.push(format!("two edge types are called {edge}; names are unique"));
            }
            let mut end = |name: &str| {
                nodes.iter().position(|(node, _)| node == name).unwrap_or_else(|| {
                    faults.push(format!(
                        "edge type {edge}: '{name}' is not a node type; the node types are: {}",
                        known()
                    ));
                    0
                })
            };
            ends.push((end(&edge.source), end(&edge.destination)));
        }
        let mut offsets = vec![0u64];
        for (_, count) in &nodes {
            offsets.push(offsets[offsets.len() - 1].saturating_add(*count as u64));
        }
        let total = offsets[nodes.len()];
        if total > u64::from(NodeId::MAX) {
            faults.push(format!(
                "{total} nodes in all: node ids are 32-bit, at most {} nodes fit; divide the graph",
                NodeId::MAX
            ));
        }
        (Self { nodes, edges, ends, offsets }, faults)
    }

    /// Node types with their numbers of nodes.
    pub fn node_types(&self) -> &[(String, usize)] {
        &self.nodes
    }

    /// Edge types.
    pub fn edge_types(&self) -> &[EdgeType] {
        &self.edges
    }

    /// Positions of the source and destination node types of edge type `e`.
    ///
    /// # Panics
    /// `e` is not an edge type.
    pub fn ends(&self, e: usize) -> (usize, usize) {
        self.ends[e]
    }

    /// First global id of each node type, and the number of all nodes.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.offsets.last().map_or(0, |&last| last as usize)
    }

    /// Node type and local id of a global id; `None` if there are not as many nodes.
    pub fn type_of(&self, id: NodeId) -> Option<(usize, NodeId)> {
        let t = self.offsets.partition_point(|&first| first <= u64::from(id)).checked_sub(1)?;
        (t < self.nodes.len()).then(|| (t, (u64::from(id) - self.offsets[t]) as NodeId))
    }

    /// Position of the node type `name`.
    ///
    /// # Errors
    /// The name is unknown; the message lists the known ones.
    pub fn node_type(&self, name: &str) -> Result<usize> {
        self.nodes.iter().position(|(node, _)| node == name).ok_or_else(|| Error::Unknown {
            axis: "node type",
            name: name.into(),
            known: self.nodes.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Position of the edge type `edge`.
    ///
    /// # Errors
    /// The type is unknown; the message lists the known ones.
    pub fn edge_type(&self, edge: &EdgeType) -> Result<usize> {
        self.edges.iter().position(|known| known == edge).ok_or_else(|| Error::Unknown {
            axis: "edge type",
            name: edge.to_string(),
            known: self.edges.iter().map(EdgeType::to_string).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_of_a_schema_are_listed() {
        let edge = EdgeType::new("a", "to", "c");
        let error = Schema::new([("a", 1), ("a", 2), ("", 3)], [edge.clone(), edge]).unwrap_err().to_string();
        for part in [
            "two node types are called 'a'",
            "node type 2 has no name",
            "'c' is not a node type",
            "two edge types are called a:to:c",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let many = Schema::new([("a", 1 << 32), ("b", 1)], []).unwrap_err().to_string();
        assert!(many.contains("4294967297 nodes in all"), "{many}");
    }

    #[test]
    fn global_ids_map_to_types_and_back() {
        let schema = Schema::new([("a", 2), ("none", 0), ("b", 3)], []).unwrap();
        let found: Vec<_> = (0..6).map(|id| schema.type_of(id)).collect();
        assert_eq!(found, [Some((0, 0)), Some((0, 1)), Some((2, 0)), Some((2, 1)), Some((2, 2)), None]);
        let error = schema.node_type("c").unwrap_err().to_string();
        assert!(error.contains("unknown node type 'c'; known: a, none, b"), "{error}");
    }
}
