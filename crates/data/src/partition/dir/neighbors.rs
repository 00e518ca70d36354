//! In-neighbours of some nodes, or of all, in a folder of a partition directory.

use graphmill_core::{Buffer, Error, Graph, NodeId, Result, csc::is_no_weight};
use rayon::prelude::*;

use super::PartitionDir;
use crate::{
    dataset::files::Files,
    verification::{Verify, verified::Record},
};

pub(super) const INDPTR: &str = "indptr.npy";
pub(super) const INDICES: &str = "indices.npy";
pub(super) const EDGE_WEIGHT: &str = "edge_weight.npy";
/// Folder of the in-neighbours of all nodes.
pub(super) const TOPOLOGY: &str = "topology";

/// Complete rows of the CSC graph for a part's own nodes, in the order of the whole graph's rows;
/// rows by local id, neighbours by global id.
#[derive(Clone, Debug)]
pub struct Neighbors {
    indptr: Buffer<u64>,
    indices: Buffer<NodeId>,
    edge_weight: Option<Buffer<f32>>,
}

impl Neighbors {
    /// Opens the lists in `folder` of `dir`, of `rows` nodes (at most `V`) with `entries`
    /// neighbours in all, after checking them against the `degree` of each row. O(rows + entries),
    /// parallel; O(1) if the files are unchanged since they were checked and `verify` is not
    /// [`Verify::All`].
    ///
    /// # Errors
    /// The first fault, with its file and position.
    pub(super) fn open(
        dir: &PartitionDir,
        folder: &str,
        (rows, entries): (usize, usize),
        degree: impl Fn(usize) -> u64 + Sync,
        verify: Verify,
    ) -> Result<Self> {
        let name = |file: &str| format!("{folder}/{file}");
        let fault =
            |file: &str, message: String| Error::format(dir.path.join(name(file)), "contents", message);
        // the parts are opened by ranks of their own, so each folder has a record
        let place = dir.path.join(folder);
        let record = Record::open(&place, dir.checksum(), verify);
        let files = Files { record: Some(&record), ..dir.files() };
        let indptr = files.read::<u64>(&name(INDPTR), &[rows + 1])?;
        // Starts that begin at 0 and grow by the degrees are ascending and at most the sum.
        let wrong = |row: usize| indptr[row + 1] != indptr[row].wrapping_add(degree(row));
        if indptr[0] != 0 || indptr[rows] != entries as u64 {
            let (first, last) = (indptr[0], indptr[rows]);
            let message = format!("rows run from {first} to {last}, not from 0 to {entries}");
            return Err(fault(INDPTR, message));
        }
        let find = || (0..rows).into_par_iter().with_min_len(1 << 12).find_first(|&row| wrong(row));
        let found = if record.is_trusted() { None } else { find() };
        if let Some(row) = found {
            let message = format!("row {row} does not have the {} entries of degrees.npy", degree(row));
            return Err(fault(INDPTR, message));
        }
        let all = dir.num_nodes();
        let (indices, bad) = files.scan::<NodeId>(&name(INDICES), &[entries], |&u| u as usize >= all)?;
        if let Some(e) = bad {
            let message = format!("entry {e} is node {}, but there are {all} nodes", indices[e]);
            return Err(fault(INDICES, message));
        }
        let edge_weight = if dir.is_weighted() {
            let (weight, bad) = files.scan::<f32>(&name(EDGE_WEIGHT), &[entries], is_no_weight)?;
            if let Some(e) = bad {
                let message = format!("weight {e} is {}: weights are finite and at least 0", weight[e]);
                return Err(fault(EDGE_WEIGHT, message));
            }
            Some(weight)
        } else {
            None
        };
        record.store(&place);
        Ok(Self { indptr, indices, edge_weight })
    }

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

impl PartitionDir {
    /// Opens the graph of all `V` nodes with all `E` edges, in the dataset's order, after checking
    /// as much as `verify` says: `8 V + 4 E` mapped bytes, and `4 E` for weights. O(V + E),
    /// parallel. `None` if an older version wrote the partition.
    ///
    /// # Errors
    /// The first fault, with its file and position.
    pub fn topology(&self, verify: Verify) -> Result<Option<Graph>> {
        if !self.files().has(&format!("{TOPOLOGY}/{INDPTR}")) {
            return Ok(None);
        }
        let size = (self.num_nodes(), self.num_edges());
        let Neighbors { indptr, indices, edge_weight } =
            Neighbors::open(self, TOPOLOGY, size, |v| u64::from(self.degrees[v]), verify)?;
        Graph::of_sound_edges(indptr, indices, edge_weight).map(Some)
    }
}
