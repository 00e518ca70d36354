//! One part of a partition directory.

use graphmill_core::{Buffer, Error, NodeId, Result, csc::is_no_weight};
use rayon::prelude::*;

use super::{PartitionDir, SPLIT, part_name};
use crate::{Dataset, verification::Verify};

pub(super) const NODES: &str = "nodes.npy";
pub(super) const NEIGHBORS: &str = "neighbors";
pub(super) const INDPTR: &str = "neighbors/indptr.npy";
pub(super) const INDICES: &str = "neighbors/indices.npy";
pub(super) const EDGE_WEIGHT: &str = "neighbors/edge_weight.npy";

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

/// Complete rows of the CSC graph for a part's own nodes, in the order of the whole graph's rows;
/// rows by local id, neighbours by global id.
#[derive(Clone, Debug)]
pub struct Neighbors {
    indptr: Buffer<u64>,
    indices: Buffer<NodeId>,
    edge_weight: Option<Buffer<f32>>,
}

impl Neighbors {
    /// In-neighbours and weights as buffers.
    pub(super) fn buffers(&self) -> (&Buffer<NodeId>, Option<&Buffer<f32>>) {
        (&self.indices, self.edge_weight.as_ref())
    }

    /// Row starts, `n + 1`.
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// Global ids of the neighbours of all rows.
    pub fn indices(&self) -> &[NodeId] {
        &self.indices
    }

    /// Weight of each neighbour, if edges have weights.
    pub fn edge_weight(&self) -> Option<&[f32]> {
        self.edge_weight.as_deref()
    }

    /// In-neighbours of local node `local`, by global ids.
    #[inline]
    pub fn of(&self, local: NodeId) -> &[NodeId] {
        &self.indices[self.indptr[local as usize] as usize..self.indptr[local as usize + 1] as usize]
    }

    /// In-degree of local node `local`.
    #[inline]
    pub fn degree(&self, local: NodeId) -> usize {
        (self.indptr[local as usize + 1] - self.indptr[local as usize]) as usize
    }
}

/// Opens part `number` of `dir`, which must exist.
pub(super) fn open(dir: &PartitionDir, number: u16, verify: Verify) -> Result<Part> {
    let counts = &dir.manifest.each[usize::from(number)];
    let name = |file: &str| format!("{}/{file}", part_name(number));
    let fault = |file: &str, message: String| Error::format(dir.path.join(name(file)), "contents", message);
    let files = dir.files();
    let rows = counts.nodes + 1; // at most V + 1, checked with the manifest

    let nodes = files.read::<NodeId>(&name(NODES), &[counts.nodes])?;
    let ascending = nodes.is_sorted_by(|a, b| a < b);
    let stranger = |&&v: &&NodeId| dir.book.of().get(v as usize) != Some(&number);
    if let Some(v) = nodes.par_iter().with_min_len(1 << 12).find_first(stranger) {
        return Err(fault(NODES, format!("node {v} does not belong to part {number} by book.npy")));
    }
    if !ascending {
        return Err(fault(NODES, "the ids do not ascend".into()));
    }

    let indptr = files.read::<u64>(&name(INDPTR), &[rows])?;
    let degree = |local: usize| u64::from(dir.degrees[nodes[local] as usize]);
    // Starts that begin at 0 and grow by the degrees are ascending and at most the sum.
    let wrong = |local: usize| indptr[local + 1] != indptr[local].wrapping_add(degree(local));
    if indptr[0] != 0 || indptr[counts.nodes] != counts.neighbors as u64 {
        let (first, last) = (indptr[0], indptr[counts.nodes]);
        let message = format!("rows run from {first} to {last}, not from 0 to {}", counts.neighbors);
        return Err(fault(INDPTR, message));
    }
    if let Some(local) = (0..counts.nodes).into_par_iter().with_min_len(1 << 12).find_first(|&l| wrong(l)) {
        let message = format!("row {local} does not have the {} entries of degrees.npy", degree(local));
        return Err(fault(INDPTR, message));
    }
    let all = dir.num_nodes();
    let (indices, bad) = files.scan::<NodeId>(&name(INDICES), &[counts.neighbors], |&u| u as usize >= all)?;
    if let Some(e) = bad {
        return Err(fault(INDICES, format!("entry {e} is node {}, but there are {all} nodes", indices[e])));
    }
    let edge_weight = if dir.is_weighted() {
        let (weight, bad) = files.scan::<f32>(&name(EDGE_WEIGHT), &[counts.neighbors], is_no_weight)?;
        if let Some(e) = bad {
            let message = format!("weight {e} is {}: weights are finite and at least 0", weight[e]);
            return Err(fault(EDGE_WEIGHT, message));
        }
        Some(weight)
    } else {
        None
    };

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
    Ok(Part { number, dataset, nodes, neighbors: Neighbors { indptr, indices, edge_weight } })
}
