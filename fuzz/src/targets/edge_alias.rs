//! Cache of alias tables, `edge_alias.bin`. The checksum of its cells is corrected, unless an
//! option is `raw`.

use graphmill_core::{Graph, Result, keyed::Stream};
use graphmill_data::{alias_file::fuzz, checksum::checksum};

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_fresh_files};

pub(super) const TOKENS: &[&[u8]] = &[
    b"graphmill alias tables, version 1\n",
    b"indptr ",
    b"edge_weight ",
    b"cells ",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"raw ",
];

const FILE: &str = "edge_alias.bin";
/// Bytes of the header.
const HEAD: usize = 192;
/// Number of nodes.
const NODES: usize = 5;
/// Node whose edges have no weight.
const WEIGHTLESS: u32 = 4;

/// One input: options, and the file.
pub fn run(data: &[u8]) -> Answer {
    let mut input = Input::read(data, &[FILE]);
    if !input.has("raw") {
        sign(&mut input);
    }
    let graph = graph()?;
    // A file of other tables is replaced.
    with_fresh_files("edge_alias", &input.files, |dir| {
        let tables = limited(input.unpacked, || fuzz::tables(dir, &graph))?;
        let mut stream = Stream::new(7);
        for v in (0..NODES as u32).flat_map(|v| [v; 8]) {
            let drawn = tables.rows().draw(graph.indptr(), v, &mut stream);
            assert!(drawn.is_none_or(|i| (i as usize) < graph.in_degree(v)), "a draw is in its row");
            assert!(v != WEIGHTLESS || drawn.is_none(), "an edge of a row without weight");
        }
        if tables.is_mapped() { Ok(()) } else { Err("the file was replaced".into()) }
    })
}

/// The graph that the seeds are of: a node without edges, and one without a positive weight.
///
/// # Errors
/// None in practice: the graph is sound.
pub fn graph() -> Result<Graph> {
    let graph = Graph::new(vec![0, 0, 2, 5, 6, 8].into(), vec![0, 1, 2, 3, 4, 0, 1, 2].into())?;
    graph.with_edge_weight(vec![0.5f32, 1.0, 2.0, 0.0, 1.0, 3.0, 0.0, 0.0].into())
}

fn sign(input: &mut Input) {
    let Some((_, bytes)) = input.files.first_mut().filter(|(_, bytes)| bytes.len() >= HEAD) else { return };
    let sum = checksum(&bytes[HEAD..]);
    let Some(at) = bytes[..HEAD].windows(6).position(|word| word == b"cells ") else { return };
    if let Some(place) = bytes.to_mut()[..HEAD].get_mut(at + 6..at + 6 + sum.len()) {
        place.copy_from_slice(sum.as_bytes());
    }
}
