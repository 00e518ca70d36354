//! Table of the bottom-layer rows that batches have pushed, whatever their age
//! ([`crate::strategy::historical`]).
//!
//! A checkpoint holds the table, because its rows come from parameters that no longer exist.

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId};
use graphmill_distributed::numbers::{of_words, to_words};

use super::Embeddings;
use crate::checkpoint::tensors::Tensor;

/// Prefix of the names of the table's tensors in a checkpoint.
pub(crate) const PREFIX: &str = "pushed.";
const ROWS: &str = "pushed.rows";
const NODES: &str = "pushed.nodes";
const VERSIONS: &str = "pushed.versions";

/// Rows of nodes, in the order of the ranks that made them.
#[derive(Clone, Debug, Default)]
pub struct GatheredRows {
    /// Nodes of the rows. A node may occur several times.
    pub nodes: Vec<NodeId>,
    /// One row per node, row-major.
    pub rows: Vec<f32>,
    /// Edges drawn to make the rows.
    pub edges: u64,
}

/// Rows that batches have pushed, with the versions of the parameters that computed them.
#[derive(Debug, Default)]
pub struct PushedRows {
    /// The rows, in the order in which their nodes were first pushed.
    rows: Arc<Embeddings>,
    nodes: Vec<NodeId>,
    /// Slot of each node's row, and the version of its last push.
    places: Vec<Option<(u32, u64)>>,
}

impl PushedRows {
    /// The rows, by slot.
    pub fn rows(&self) -> &Arc<Embeddings> {
        &self.rows
    }

    /// Nodes of the rows, by slot.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Version of the parameters that computed the row of a node; `None` if it has no row.
    pub fn version(&self, v: NodeId) -> Option<u64> {
        self.places.get(v as usize)?.map(|(_, version)| version)
    }

    /// Writes rows of `width` values, computed after `step` updates, in a graph of `num_nodes`
    /// nodes. The last row of a node that occurs several times stays. Nothing else may hold
    /// [`PushedRows::rows`].
    pub fn write(&mut self, pushed: &GatheredRows, width: usize, num_nodes: usize, step: u64) {
        self.places.resize(num_nodes, None);
        for &v in &pushed.nodes {
            let new = self.nodes.len() as u32;
            let (_, version) = self.places[v as usize].get_or_insert_with(|| {
                self.nodes.push(v);
                (new, 0)
            });
            *version = step;
        }
        let table = Arc::get_mut(&mut self.rows).expect("no stage holds rows between batches");
        if table.rows.num_rows() < self.nodes.len() {
            let mut larger = Matrix::zeros((2 * self.nodes.len()).min(num_nodes), width);
            let have = table.rows.view().host();
            larger.view_mut().host()[..have.len()].copy_from_slice(have);
            table.rows = larger;
        }
        let all = table.rows.view_mut().host();
        for (&v, row) in pushed.nodes.iter().zip(pushed.rows.chunks_exact(width)) {
            if let Some((slot, _)) = self.places[v as usize] {
                let at = slot as usize * width;
                all[at..at + width].copy_from_slice(row);
            }
        }
    }

    /// The table as tensors of a checkpoint; none if no row was pushed.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        if self.nodes.is_empty() {
            return Vec::new();
        }
        let versions = self.nodes.iter().filter_map(|&v| self.version(v));
        let versions: Vec<u32> = versions.flat_map(|version| to_words([version])).collect();
        let (len, width) = (self.nodes.len(), self.rows.rows.num_cols());
        let rows = self.rows.rows.rows(0..len).host().to_vec().into();
        vec![
            Tensor { name: ROWS.into(), shape: [len, width], data: rows },
            Tensor::of_words(NODES, &self.nodes),
            Tensor::of_words(VERSIONS, &versions),
        ]
    }

    /// Restores the table of a graph of `num_nodes` nodes from the tensors of a checkpoint.
    ///
    /// # Errors
    /// A message: the tensors do not hold a table of this graph.
    pub(crate) fn restore(&mut self, tensors: &[Tensor], num_nodes: usize) -> Result<(), String> {
        let find = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
        let (Some(rows), Some(nodes), Some(versions)) = (find(ROWS), find(NODES), find(VERSIONS)) else {
            return match tensors {
                [] => Ok(()),
                _ => Err("a part of the table of pushed rows is missing".into()),
            };
        };
        let (nodes, versions) = (nodes.words(), versions.words());
        let versions: Vec<u64> = of_words(&versions).collect();
        if [nodes.len(), versions.len()] != [rows.shape[0]; 2]
            || nodes.iter().any(|&v| v as usize >= num_nodes)
        {
            return Err(format!(
                "the {} pushed rows, {} nodes and {} versions are not those of a graph of {num_nodes} nodes",
                rows.shape[0],
                nodes.len(),
                versions.len()
            ));
        }
        let mut places = vec![None; num_nodes];
        for (slot, (&v, version)) in nodes.iter().zip(versions).enumerate() {
            places[v as usize] = Some((slot as u32, version));
        }
        let [len, width] = rows.shape;
        let table = Embeddings { rows: Matrix::from_slice(len, width, &rows.data), ..Embeddings::default() };
        *self = Self { rows: Arc::new(table), nodes, places };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_holds_the_last_row_of_each_node() {
        let pushed = |nodes: &[NodeId]| GatheredRows {
            nodes: nodes.to_vec(),
            rows: nodes.iter().enumerate().flat_map(|(i, &v)| [v as f32, i as f32]).collect(),
            edges: 0,
        };
        let mut table = PushedRows::default();
        assert!(table.tensors().is_empty());
        table.write(&pushed(&[70_000, 3]), 2, 80_000, 5);
        table.write(&pushed(&[9, 3, 9]), 2, 80_000, 1 << 33);
        let mut copy = PushedRows::default();
        copy.restore(&table.tensors(), 80_000).unwrap();
        for table in [&table, &copy] {
            assert_eq!(table.nodes(), [70_000, 3, 9]);
            assert_eq!(
                [70_000, 3, 9, 4].map(|v| table.version(v)),
                [Some(5), Some(1 << 33), Some(1 << 33), None]
            );
            assert_eq!(table.rows().rows.rows(0..3).host(), [70_000.0, 0.0, 3.0, 1.0, 9.0, 2.0]);
        }
        copy.write(&pushed(&[8]), 2, 80_000, 7);
        assert_eq!(copy.rows().rows.rows(3..4).host(), [8.0, 0.0]);
        let error = copy.restore(&table.tensors(), 70_000).unwrap_err();
        assert!(error.contains("not those of a graph of 70000 nodes"), "{error}");
        assert!(copy.restore(&table.tensors()[..2], 80_000).unwrap_err().contains("missing"));
    }
}
