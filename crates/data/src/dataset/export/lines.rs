//! A graph's edges as lines of text, formatted in parallel and written in order.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use graphmill_core::{Graph, NodeId};
use rayon::prelude::*;

use super::ordered::in_order;

/// Edges per chunk: about a megabyte of text, which stays in a core's cache until it is written.
const CHUNK_LEN: usize = 1 << 16;
/// Edges per chunk of a compressed file, whose bytes depend on it (but not on the number of
/// threads).
const PACKED_CHUNK_LEN: usize = 1 << 18;
/// Maximum number of digits of a node id.
const DIGITS: usize = 10;

/// Format of the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Separator between the two ids, and before a weight.
    pub(super) separator: u8,
    /// True to write only edges from the smaller id to the larger (or the same).
    pub(super) once: bool,
    /// True to compress with gzip: one member per chunk, which every gzip reader treats as one
    /// file.
    pub(super) gzip: bool,
}

/// Number of lines.
pub(super) fn count(graph: &Graph, once: bool) -> u64 {
    if !once {
        return graph.num_edges() as u64;
    }
    let ascending = |v: NodeId| graph.in_neighbors(v).iter().filter(|&&u| u <= v).count() as u64;
    (0..graph.num_nodes() as NodeId).into_par_iter().with_min_len(1 << 10).map(ascending).sum()
}

/// Writes `head` and then one line `from to` per edge, with its weight if edges have weights,
/// ordered by `to`.
pub(super) fn write(file: &mut dyn Write, head: &str, graph: &Graph, style: Style) -> io::Result<()> {
    file.write_all(&pack(head.as_bytes().to_vec(), style)?)?;
    let edges = if style.gzip { PACKED_CHUNK_LEN } else { CHUNK_LEN };
    in_order(
        graph.num_edges().div_ceil(edges),
        |i| pack(piece(graph, i * edges, edges, style), style),
        |text| file.write_all(&text?),
    )
}

/// Formats the lines of `count` edges from index `start` on.
fn piece(graph: &Graph, start: usize, count: usize, style: Style) -> Vec<u8> {
    let end = (start + count).min(graph.num_edges());
    let (indptr, indices, weights) = (graph.indptr(), graph.indices(), graph.edge_weight());
    let mut text = Vec::with_capacity(18 * (end - start));
    let mut from = itoa::Buffer::new();
    // Text that follows each source of a row: constant within the row except for weights.
    let mut tail = Vec::new();
    // Node whose row holds the edge `start`: the last that begins at or before it.
    let mut v = indptr.partition_point(|&first| first <= start as u64) - 1;
    let mut e = start;
    while e < end {
        let row_end = (indptr[v + 1] as usize).min(end);
        tail.clear();
        tail.push(style.separator);
        tail.extend_from_slice(itoa::Buffer::new().format(v).as_bytes());
        tail.push(if weights.is_some() { style.separator } else { b'\n' });
        text.reserve((row_end - e) * (DIGITS + tail.len()));
        for e in e..row_end {
            let u = indices[e];
            if style.once && u as usize > v {
                continue;
            }
            text.extend_from_slice(from.format(u).as_bytes());
            text.extend_from_slice(&tail);
            if let Some(weights) = weights {
                // Shortest digits that read back as the same number.
                writeln!(text, "{:?}", weights[e]).expect("memory takes what is written");
            }
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
