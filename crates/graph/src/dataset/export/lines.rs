//! A graph's edges as lines of text, written in parallel and in order.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use rayon::prelude::*;

use crate::{Graph, NodeId};

/// Edges of a piece. Pieces, and with them the bytes of a compressed file, do not depend on the number of threads.
const PIECE: usize = 1 << 18;
/// Pieces in memory at a time, some 4 MB each.
const AT_ONCE: usize = 16;

/// How the lines are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Between the two ids.
    pub(super) separator: u8,
    /// Edges from the smaller id to the larger (or the same) alone.
    pub(super) once: bool,
    /// As gzip: a member per piece, which every reader of gzip takes as one file.
    pub(super) gzip: bool,
}

/// How many lines there are.
pub(super) fn count(graph: &Graph, once: bool) -> u64 {
    if !once {
        return graph.num_edges() as u64;
    }
    let ascending = |v: NodeId| graph.in_neighbors(v).iter().filter(|&&u| u <= v).count() as u64;
    (0..graph.num_nodes() as NodeId).into_par_iter().with_min_len(1 << 10).map(ascending).sum()
}

/// Writes `head` and then the line `from to` of every edge, ordered by `to`.
pub(super) fn write(file: &mut dyn Write, head: &str, graph: &Graph, style: Style) -> io::Result<()> {
    file.write_all(&pack(head.as_bytes().to_vec(), style)?)?;
    let pieces: Vec<usize> = (0..graph.num_edges()).step_by(PIECE).collect();
    for batch in pieces.chunks(AT_ONCE) {
        let texts: Vec<io::Result<Vec<u8>>> =
            batch.par_iter().map(|&start| pack(piece(graph, start, style), style)).collect();
        for text in texts {
            file.write_all(&text?)?;
        }
    }
    Ok(())
}

/// The lines of the edges from number `start` on.
fn piece(graph: &Graph, start: usize, style: Style) -> Vec<u8> {
    let end = (start + PIECE).min(graph.num_edges());
    let (indptr, indices) = (graph.indptr(), graph.indices());
    let mut text = Vec::with_capacity(16 * (end - start));
    let (mut from, mut to) = (itoa::Buffer::new(), itoa::Buffer::new());
    // The node whose row holds the edge `start`: the last that begins at or before it.
    let mut v = indptr.partition_point(|&first| first <= start as u64) - 1;
    let mut e = start;
    while e < end {
        let row_end = (indptr[v + 1] as usize).min(end);
        let to = to.format(v).as_bytes();
        for &u in &indices[e..row_end] {
            if style.once && u as usize > v {
                continue;
            }
            text.extend_from_slice(from.format(u).as_bytes());
            text.push(style.separator);
            text.extend_from_slice(to);
            text.push(b'\n');
        }
        e = row_end;
        v += 1;
    }
    text
}

fn pack(text: Vec<u8>, style: Style) -> io::Result<Vec<u8>> {
    if !style.gzip {
        return Ok(text);
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(text.len() / 3), Compression::default());
    packed.write_all(&text)?;
    packed.finish()
}
