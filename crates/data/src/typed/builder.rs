//! Construction of typed datasets from arrays in memory, or mapped by the external sort.

mod edges;
mod nodes;
mod task;

use std::collections::BTreeMap;

use graphmill_core::{Error, Result};
use serde_json::Value;

pub use edges::EdgeBuilder;
pub use nodes::NodeBuilder;
pub use task::TaskBuilder;

use super::{EdgeType, TypedDataset, csc::Order};

/// Builder of a [`TypedDataset`]: node types, edge types and tasks are added in any order, and
/// [`TypedBuilder::build`] checks all of them.
///
/// ```
/// use graphmill_data::typed::{EdgeType, TypedBuilder};
///
/// let mut builder = TypedBuilder::new("library");
/// builder.node_type("author", 3).text_keys(["ann", "bob", "eve"]);
/// builder.node_type("paper", 2).features(2, vec![0.5f32, 1.0, 0.0, 2.0]).time(vec![2019, 2024]);
/// builder
///     .edge_type("author", "writes", "paper")
///     .edges(vec![0, 1, 2], vec![1, 0, 1])
///     .weights(vec![1.0, 0.5, 0.5])
///     .with_reverse("written-by");
/// builder
///     .task("venue")
///     .on_nodes("paper")
///     .classes(2, vec![0, 1])
///     .names(["KDD", "VLDB"])
///     .split([0], [], [1]);
/// let data = builder.build()?;
/// assert_eq!(data.to_string(), "library: 5 nodes of 2 types, 6 edges of 2 types, 1 task");
/// let writes = data.edge_type(&EdgeType::new("author", "writes", "paper"))?;
/// assert_eq!(writes.in_neighbors(1), [0, 2]); // by destination, in the order of the input
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct TypedBuilder {
    name: String,
    nodes: Vec<NodeBuilder>,
    edges: Vec<EdgeBuilder>,
    tasks: Vec<TaskBuilder>,
    preprocessing: Option<Value>,
}

impl TypedBuilder {
    /// Creates a dataset without types.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds the node type `name` of `count` nodes, and returns its columns to be set.
    pub fn node_type(&mut self, name: impl Into<String>, count: usize) -> &mut NodeBuilder {
        self.nodes.push(NodeBuilder::new(name.into(), count));
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// Adds the edge type `(source, name, destination)`, and returns its edges and columns to be
    /// set.
    pub fn edge_type(
        &mut self,
        source: impl Into<String>,
        name: impl Into<String>,
        destination: impl Into<String>,
    ) -> &mut EdgeBuilder {
        self.edges.push(EdgeBuilder::new(EdgeType::new(source, name, destination)));
        let last = self.edges.len() - 1;
        &mut self.edges[last]
    }

    /// Adds the task `name`, and returns it to be described.
    pub fn task(&mut self, name: impl Into<String>) -> &mut TaskBuilder {
        self.tasks.push(TaskBuilder::new(name.into()));
        let last = self.tasks.len() - 1;
        &mut self.tasks[last]
    }

    /// Sets the operations that were applied to columns, with their statistics: an object with an
    /// integer field `version`.
    pub fn preprocessing(&mut self, document: Value) -> &mut Self {
        self.preprocessing = Some(document);
        self
    }

    /// Builds the dataset. Edges are ordered by destination, and in the order of the input among
    /// those of one destination; their columns, and targets of tasks on them, follow. O(V + E),
    /// parallel; the result does not depend on the number of threads.
    ///
    /// # Errors
    /// All faults of the arrays, one per line.
    pub fn build(self) -> Result<TypedDataset> {
        let counts: BTreeMap<String, usize> =
            self.nodes.iter().map(|nodes| (nodes.data.name.clone(), nodes.data.count)).collect();
        let mut faults = Vec::new();
        let mut data = TypedDataset {
            name: self.name,
            nodes: self.nodes.into_iter().map(|nodes| nodes.data).collect(),
            preprocessing: self.preprocessing,
            ..TypedDataset::default()
        };
        let mut orders: BTreeMap<EdgeType, Order> = BTreeMap::new();
        for edges in self.edges {
            let edge_type = edges.edge_type.clone();
            let keeps_order = self.tasks.iter().any(|task| task.is_on(&edge_type));
            match edges.build(&counts) {
                Ok(built) => {
                    if let Some(order) = built.order.filter(|_| keeps_order) {
                        orders.insert(edge_type, order);
                    }
                    data.edges.push(built.data);
                    data.edges.extend(built.reverse);
                }
                Err(error) => faults.push(format!("edge type {edge_type}: {error}")),
            }
        }
        for task in self.tasks {
            let name = task.name().to_string();
            match task.build(&orders) {
                Ok(task) => data.tasks.push(task),
                Err(error) => faults.push(format!("task '{name}': {error}")),
            }
        }
        if faults.is_empty() {
            faults = data.faults(true);
        }
        if faults.is_empty() { Ok(data) } else { Err(Error::invalid(faults.join("\n"))) }
    }
}
