//! A hop drawn in parts, so that one thread relabels drawn parts while the others draw.
//!
//! ```text
//!   one thread:  . . . . . | relabel part 0 | relabel part 1 | ..
//!   the others:  draw part 0 | draw part 1 | draw part 2 | ..
//! ```
//!
//! Relabelling goes from the first edge to the last, as without parts, so the result is the same.

use graphmill_core::{Block, Error, NodeId, Result, memory};

use super::HopScratch;
use crate::Relabel;

/// Number of destinations of a part.
pub(super) const PART: usize = 1 << 15;

/// Two parts in flight, and the new nodes of a hop.
#[derive(Debug, Default)]
pub(super) struct PartBuffers {
    front: Block,
    back: Block,
    /// Nodes that a hop sees first.
    pub(super) new: Vec<NodeId>,
}

/// Fills `block` with the relabelled edges of all `nodes`, and appends the nodes seen first. `draw`
/// fills a block with the edges of some destinations: global ids, and weights if requested.
///
/// # Errors
/// `draw` fails, or there are more edges in total than a block can number.
pub(super) fn draw_and_number(
    draw: impl Fn(&[NodeId], &mut HopScratch, &mut Block) -> Result<()> + Sync,
    relabel: &mut Relabel,
    scratch: &mut HopScratch,
    parts: &mut PartBuffers,
    nodes: &mut Vec<NodeId>,
    block: &mut Block,
) -> Result<()> {
    let PartBuffers { front, back, new } = parts;
    new.clear();
    block.indptr.push(0);
    let mut rest = nodes.chunks(PART);
    draw(rest.next().unwrap_or_default(), scratch, front)?;
    loop {
        let part = rest.next();
        let (numbered, drawn) = rayon::join(
            || {
                relabel.relabel(&mut front.indices, nodes, new);
                append(front, block)
            },
            || part.map_or(Ok(()), |dst| draw(dst, scratch, back)),
        );
        numbered?;
        drawn?;
        if part.is_none() {
            break;
        }
        std::mem::swap(front, back);
    }
    memory::demand(nodes, new.len());
    nodes.extend_from_slice(new);
    Ok(())
}

/// Adds the edges of `part` to those of `block`.
pub(super) fn append(part: &Block, block: &mut Block) -> Result<()> {
    let edges = block.num_edges() + part.num_edges();
    let Ok(_) = u32::try_from(edges) else { return Err(too_many(edges as u64)) };
    let before = block.num_edges() as u32;
    memory::demand(&mut block.indptr, part.indptr.len() - 1);
    memory::demand(&mut block.indices, part.indices.len());
    memory::demand(&mut block.edge_weight, part.edge_weight.len());
    memory::demand(&mut block.self_weight, part.self_weight.len());
    block.indptr.extend(part.indptr[1..].iter().map(|end| before + end));
    block.indices.extend_from_slice(&part.indices);
    block.edge_weight.extend_from_slice(&part.edge_weight);
    block.self_weight.extend_from_slice(&part.self_weight);
    Ok(())
}

/// Error of a block that would have `edges` edges or more.
pub fn too_many(edges: u64) -> Error {
    Error::invalid(format!(
        "a minibatch needs a block of at least {edges} edges, and a block holds at most {}; use a smaller \
         batch or fanout",
        u32::MAX
    ))
}
