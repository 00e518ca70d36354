//! Edges of a list, plain or SNAP's, and node numbers for its ids.

use graphmill_core::{NodeId, Result, place::At};

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

/// The edges of a list, and how its ids become node numbers.
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
    let at = At::new(path, "ids");
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
        // The nodes of a SNAP list are those that edges name: a larger id is no error there, but ids leave gaps.
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
            "the largest id is {}, but by the header there are {} nodes: ids leave gaps, use compact-ids (or flavour plain, where ids without edges are nodes too)",
            u64::from(largest) + first,
            header.nodes
        )));
    }
    let ids = Ids::plain(edges.largest(), edges.len(), known, &at)?;
    Ok((edges, ids))
}
