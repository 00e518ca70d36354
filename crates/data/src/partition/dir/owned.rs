//! Graph of the owner of some parts: all nodes, and the edges into its own.

use graphmill_core::{Buffer, Graph, NodeId, Result, memory};

use super::{Part, PartitionDir};

impl PartitionDir {
    /// Builds the graph of all `V` nodes with the edges into those of `parts`, whose neighbour
    /// lists are complete and in the dataset's order; other nodes have none. A single part's lists
    /// stay mapped, the lists of several parts are concatenated. `8 V` bytes in addition.
    ///
    /// # Errors
    /// A part belongs to another partition.
    pub fn graph_of(&self, parts: &[Part]) -> Result<Graph> {
        let of_part = |v: usize| {
            let number = self.book.of()[v];
            parts.iter().position(|part| part.number == number)
        };
        let mut indptr = memory::reserve(self.num_nodes() + 1)?;
        indptr.push(0u64);
        let mut edges = 0;
        for v in 0..self.num_nodes() {
            edges += if of_part(v).is_some() { u64::from(self.degrees[v]) } else { 0 };
            indptr.push(edges);
        }
        if let [part] = parts {
            let (indices, weights) = part.neighbors.buffers();
            return Graph::of_sound_edges(indptr.into(), indices.clone(), weights.cloned());
        }
        let mut next = vec![0; parts.len()];
        let mut indices: Vec<NodeId> = memory::reserve(edges as usize)?;
        let mut weights: Vec<f32> = memory::reserve(if self.is_weighted() { edges as usize } else { 0 })?;
        for v in 0..self.num_nodes() {
            let Some(p) = of_part(v) else { continue };
            let neighbors = &parts[p].neighbors;
            let run = neighbors.indptr()[next[p]] as usize..neighbors.indptr()[next[p] + 1] as usize;
            next[p] += 1;
            weights.extend_from_slice(neighbors.edge_weight().map_or(&[], |weight| &weight[run.clone()]));
            indices.extend_from_slice(&neighbors.indices()[run]);
        }
        let weights = self.is_weighted().then(|| Buffer::from(weights));
        Graph::of_sound_edges(indptr.into(), indices.into(), weights)
    }
}
