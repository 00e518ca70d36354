//! Leftovers of a killed import: its records, its edges, the written part of the graph. The import
//! resumes from them, or rejects them.

use graphmill_core::{EdgeOptions, progress::Quiet};
use graphmill_data::external::Scratch;

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_fresh_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"work/work.json\n",
    b"work/scratch-edges.json\n",
    b"work/scratch-edges.bin\n",
    b"work/scratch-csc.json\n",
    b"work/scratch-indptr.npy\n",
    b"work/scratch-indptr.json\n",
    b"work/scratch-indices.npy\n",
    b"work/scratch-indices.json\n",
    b"{\"splitters\":[4294967296],\"symmetric\":false,\"weighted\":false,\"drop_self_loops\":false,\
      \"blocks\":[[0,1]],\"edges\":1,\"largest\":1,\"complete\":true,\
      \"counts\":{\"self_loops\":0,\"dropped\":0}}",
    b"{\"parts\":1,\"edges\":1,\"rows\":2}",
    b"{\"columns\":null,\"dtype\":\"<u8\",\"values\":2}",
    b"18446744073709551615",
    b"\"complete\":true",
];

const NAMES: &[&str] = &[
    "work/work.json",
    "work/scratch-edges.json",
    "work/scratch-edges.bin",
    "work/scratch-csc.json",
    "work/scratch-indptr.npy",
    "work/scratch-indptr.json",
    "work/scratch-indices.npy",
    "work/scratch-indices.json",
];

/// Number of nodes of the imported graph.
const NODES: usize = 100;

/// One input: options, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, NAMES);
    let options = if input.has("undirected") { EdgeOptions::UNDIRECTED } else { EdgeOptions::DIRECTED };
    with_fresh_files("resume", &input.files, |dir| {
        limited(input.unpacked, || {
            let scratch = Scratch::open(&dir.join("work"), "fuzz", 0, Box::new(Quiet))?;
            let mut edges = scratch.edges(options);
            if !edges.take_up_all() {
                edges.extend(&[0, 1, 2, 3], &[1, 2, 2, 99])?;
            }
            let graph = edges.build(NODES)?;
            assert_eq!(graph.num_nodes(), NODES);
            (0..NODES as u32)
                .for_each(|v| assert!(graph.in_neighbors(v).iter().all(|&u| (u as usize) < NODES)));
            Ok(())
        })
    })
}
