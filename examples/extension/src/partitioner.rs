//! A partitioner by ranges of node ids.

use graphmill::{
    dataset::partition::{Bounds, Method, Options, PartitionBook, Partitioner},
    graph::{Graph, NodeId, Result, progress::Progress, table::Entry},
};

/// Equal ranges of node ids, a good partition if nearby nodes have nearby ids, as after
/// `graphmill reorder`.
///
/// O(V). Memory: the partition book, 2 bytes per node.
pub struct Runs(Options);

impl Partitioner for Runs {
    fn partition(&self, graph: &Graph, train: &[NodeId], _: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        let (parts, nodes) = (usize::from(self.0.parts), graph.num_nodes());
        let of: Vec<u16> = (0..nodes).map(|v| (v * parts / nodes) as u16).collect();
        PartitionBook::new(self.0.parts, of)
    }
}

/// Row of the table of methods.
pub const RUNS: Entry<Method> = Entry {
    name: "runs",
    summary: "equal ranges of node ids",
    source: "",
    options: &[],
    make: Method::new(|options| Ok(Box::new(Runs(options.clone()))), Bounds::None),
};
