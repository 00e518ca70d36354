//! Edges of a plain or SNAP list, and the mapping of its ids to node numbers.

use graphmill_core::{NodeId, Result, location::Location};

use super::{
    super::{ImportOptions, ImportReport},
    ends,
    files::Files,
    first_id,
    flavour::snap,
    ids::{Ids, Sparse},
    weights::{self, Weights},
};
use crate::external::{Edges, Needs, Scratch};

/// Reads the edges of a list and the mapping of its ids.
pub(super) fn read(
    files: &Files,
    known: Option<usize>,
    header: Option<snap::Header>,
    features: u64,
    options: &ImportOptions,
    scratch: &Scratch,
    report: &mut ImportReport,
) -> Result<(Edges, Ids)> {
    let (path, first) = (&files.edges, options.first_id);
    let at = Location::new(path, "ids");
    let weights = Weights::find(path, &options.weights, files.weights.as_deref())?;
    let weighted = weights != Weights::None;
    report.ignore_columns("edges", weights::unread_columns(path, 2, &weights)?);
    let mut edges = scratch.maybe_weighted_edges(options.edge_options(false), weighted);
    let mut needs = match header {
        Some(header) => Needs { edges: header.edges, ..Needs::default() },
        None => ends::estimate(path)?,
    };
    needs.edges = needs.edges.saturating_mul(edges.directions());
    (needs.features, needs.weighted) = (features, weighted);
    scratch.expect(&needs)?;
    if options.compact_ids {
        let mut sparse = Sparse::new(scratch, weighted)?;
        ends::read::<u64>(path, None, &weights, scratch, &mut |from, to, weight| {
            sparse.extend(from, to, weight)
        })?;
        let ids = sparse.number(known, &mut edges, &at)?;
        return Ok((edges, ids));
    }
    if !edges.take_up_all() {
        // The nodes of a SNAP list are those of its edges: a larger id is not an error of its own,
        // but shows that ids leave gaps.
        let limit = known.filter(|_| header.is_none()).map(|nodes| nodes.saturating_add(first as usize));
        if first == 0 {
            ends::read::<NodeId>(path, limit, &weights, scratch, &mut |from, to, weight| {
                edges.extend_weighted(from, to, weight)
            })?;
        } else {
            ends::read::<NodeId>(path, limit, &weights, scratch, &mut |from, to, weight| {
                let (mut from, mut to) = (from.to_vec(), to.to_vec());
                first_id::below(&mut from, first, &at)?;
                first_id::below(&mut to, first, &at)?;
                edges.extend_weighted(&from, &to, weight)
            })?;
        }
    }
    if let (Some(header), Some(nodes), Some(largest)) = (header, known, edges.largest())
        && largest as usize >= nodes
    {
        return Err(at.error(format!(
            "the largest id is {}, but the header declares {} nodes: ids leave gaps; pass compact-ids (or \
             flavour plain, which also counts ids without edges as nodes)",
            u64::from(largest) + first,
            header.nodes
        )));
    }
    let ids = Ids::plain(edges.largest(), edges.len(), known, &at)?;
    Ok((edges, ids))
}
