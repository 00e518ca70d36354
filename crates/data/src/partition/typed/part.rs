//! One part of a partitioned dataset of several types.

use graphmill_core::{Buffer, Error, NodeId, Result, csc::is_no_weight, search::pair_position};

use super::{NEIGHBORS, NODES, TypedPartitionDir, neighbors, part_name};
use crate::{
    dataset::files::Files,
    typed::{self, TypedDataset},
    verification::{Verify, verified::Record},
};

/// Data of one machine. Local ids of its dataset number the part's own nodes of each type by
/// ascending id.
#[derive(Clone, Debug)]
pub struct TypedPart {
    /// Number of the part.
    pub number: u16,
    /// Own nodes of each type and the edges among them.
    pub dataset: TypedDataset,
    /// Own nodes of each type by their ids in the whole dataset, ascending.
    pub nodes: Vec<Vec<NodeId>>,
    /// All in-neighbours of own nodes by each edge type.
    pub(super) neighbors: Vec<Neighbors>,
}

/// In-neighbours of own nodes of the destination type, in the order of the whole dataset's rows;
/// rows by ascending own node, neighbours by their ids in the whole dataset.
#[derive(Clone, Debug)]
pub(super) struct Neighbors {
    pub(super) indptr: Buffer<u64>,
    pub(super) indices: Buffer<NodeId>,
    pub(super) weights: Option<Buffer<f32>>,
}

/// Opens part `number` of `dir`, which must exist.
pub(super) fn open(dir: &TypedPartitionDir, number: u16, verify: Verify) -> Result<TypedPart> {
    let counts = &dir.manifest.each[usize::from(number)];
    let path = dir.path.join(part_name(number));
    let files = dir.files();
    let nodes: Vec<Vec<NodeId>> = (0..dir.schema.num_types()).map(|t| dir.own(number, t)).collect();
    let name = format!("{}/{NODES}", part_name(number));
    let listed = files.read::<NodeId>(&name, &[nodes.iter().map(Vec::len).sum()])?;
    let expected = nodes.iter().enumerate().flat_map(|(t, of)| of.iter().map(move |&v| (t, v)));
    if !expected.map(|(t, v)| dir.schema.global(t, v)).eq(listed.iter().copied()) {
        let message = format!("the nodes are not those of part {number} by book.npy");
        return Err(Error::format(dir.path.join(name), "contents", message));
    }
    let place = path.join(NEIGHBORS);
    let record = Record::open(&place, dir.checksum(), verify);
    let of_relation =
        |r: usize| read_neighbors(dir, (number, r), nodes[dir.schema.relations()[r].dst].len(), &record);
    let neighbors = (0..dir.schema.num_relations()).map(of_relation).collect::<Result<_>>()?;
    record.store(&place);
    let dataset = typed::open(&path, verify)?;
    let found: Vec<usize> = dataset.nodes.iter().map(|of| of.count).collect();
    if dataset.checksum.as_deref() != Some(&counts.checksum) || found != counts.nodes {
        let message = "this is another dataset than partition.json says; partition the dataset again";
        return Err(Error::format(path, "dataset", message));
    }
    Ok(TypedPart { number, dataset, nodes, neighbors })
}

/// Reads the in-neighbours of `rows` own nodes of a part by edge type `r`.
fn read_neighbors(
    dir: &TypedPartitionDir,
    (part, r): (u16, usize),
    rows: usize,
    record: &Record,
) -> Result<Neighbors> {
    let files = Files { record: Some(record), ..dir.files() };
    let edges = dir.manifest.each[usize::from(part)].neighbors[r];
    let fault = |array: &str, message: String| {
        Error::format(dir.path.join(neighbors(part, r, array)), "contents", message)
    };
    let indptr = files.read::<u64>(&neighbors(part, r, "indptr"), &[rows + 1])?;
    let ends = (indptr[0], indptr[rows]);
    let descends = || pair_position(&indptr, |start, end| start > end).is_some();
    if ends != (0, edges as u64) || !record.is_trusted() && descends() {
        let message = format!("rows run from {} to {}, not ascending from 0 to {edges}", ends.0, ends.1);
        return Err(fault("indptr", message));
    }
    let sources = dir.schema.types()[dir.schema.relations()[r].src].count;
    let (indices, bad) =
        files.scan::<NodeId>(&neighbors(part, r, "indices"), &[edges], |&u| u as usize >= sources)?;
    if let Some(e) = bad {
        let message = format!("entry {e} is node {}, but its type has {sources}", indices[e]);
        return Err(fault("indices", message));
    }
    let weights = if dir.manifest.edge_types[r].weighted {
        let (weights, bad) = files.scan::<f32>(&neighbors(part, r, "weights"), &[edges], is_no_weight)?;
        if let Some(e) = bad {
            let message = format!("weight {e} is {}: weights are finite and at least 0", weights[e]);
            return Err(fault("weights", message));
        }
        Some(weights)
    } else {
        None
    };
    Ok(Neighbors { indptr, indices, weights })
}
