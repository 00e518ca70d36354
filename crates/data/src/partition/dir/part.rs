//! One part of a partition directory.

use graphmill_core::{Buffer, Error, NodeId, Result};
use rayon::prelude::*;

use super::{Neighbors, PartitionDir, SPLIT, part_name};
use crate::{Dataset, verification::Verify};

pub(super) const NODES: &str = "nodes.npy";
pub(super) const NEIGHBORS: &str = "neighbors";

/// Data of one machine: local ids number the part's own `n` nodes by ascending global id.
#[derive(Clone, Debug)]
pub struct Part {
    /// Number of the part.
    pub number: u16,
    /// Nodes of the part and the edges among them, in local ids.
    pub dataset: Dataset,
    /// Global id of every local one (`n`), ascending.
    pub nodes: Buffer<NodeId>,
    /// All in-neighbours of the part's nodes.
    pub neighbors: Neighbors,
}

impl Part {
    /// Local id of the node with global id `v`, if this part owns it. O(log n).
    pub fn local(&self, v: NodeId) -> Option<NodeId> {
        self.nodes.binary_search(&v).ok().map(|local| local as NodeId)
    }
}

/// Opens part `number` of `dir`, which must exist.
pub(super) fn open(dir: &PartitionDir, number: u16, verify: Verify) -> Result<Part> {
    let counts = &dir.manifest.each[usize::from(number)];
    let name = |file: &str| format!("{}/{file}", part_name(number));
    let fault = |file: &str, message: String| Error::format(dir.path.join(name(file)), "contents", message);
    let files = dir.files();

    let nodes = files.read::<NodeId>(&name(NODES), &[counts.nodes])?;
    let ascending = nodes.is_sorted_by(|a, b| a < b);
    let stranger = |&&v: &&NodeId| dir.book.of().get(v as usize) != Some(&number);
    if let Some(v) = nodes.par_iter().with_min_len(1 << 12).find_first(stranger) {
        return Err(fault(NODES, format!("node {v} does not belong to part {number} by book.npy")));
    }
    if !ascending {
        return Err(fault(NODES, "the ids do not ascend".into()));
    }

    let degree = |local: usize| u64::from(dir.degrees[nodes[local] as usize]);
    let neighbors = Neighbors::open(dir, &name(NEIGHBORS), (counts.nodes, counts.neighbors), degree, verify)?;

    let dataset = Dataset::open_with(dir.part_path(number), verify)?;
    let own = |message: String| Error::format(dir.part_path(number), "dataset", message);
    if dataset.checksum.as_deref() != Some(&counts.checksum) {
        return Err(own(
            "this is another dataset than partition.json says; partition the dataset again".into()
        ));
    }
    if (dataset.num_nodes(), dataset.graph.num_edges()) != (counts.nodes, counts.edges) {
        let (n, e) = (dataset.num_nodes(), dataset.graph.num_edges());
        let message = format!("{n} nodes and {e} edges, not {} and {}", counts.nodes, counts.edges);
        return Err(own(message));
    }
    if dataset.graph.edge_weight().is_some() != dir.is_weighted() {
        return Err(own("its edges have weights where the whole dataset's have none, or the reverse".into()));
    }
    for (file, ((_, of_part), (_, of_all))) in
        SPLIT.iter().zip(dataset.split.parts().into_iter().zip(dir.split.parts()))
    {
        let expected = of_all.iter().copied().filter(|&v| dir.book.part_of(v) == number);
        if !of_part.iter().map(|&v| nodes[v as usize]).eq(expected) {
            return Err(fault(file, format!("the nodes are not those of the whole dataset's {file}")));
        }
    }
    Ok(Part { number, dataset, nodes, neighbors })
}
