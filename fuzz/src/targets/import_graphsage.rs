//! The importer `graphsage`: GraphSAGE's files of one prefix, and the PPI set in DGL's layout.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"x-G.json\n",
    b"x-id_map.json\n",
    b"x-class_map.json\n",
    b"x-feats.npy\n",
    b"train_graph.json\n",
    b"train_graph_id.npy\n",
    b"train_feats.npy\n",
    b"train_labels.npy\n",
    b"valid_graph.json\n",
    b"{\"directed\": false, \"nodes\": [], \"links\": []}",
    b"{\"id\": 0, \"val\": false, \"test\": true}",
    b"{\"id\": \"a\"}",
    b"{\"source\": 0, \"target\": 1}",
    b"\"directed\": true",
    b"\"edges\": [",
    b"split=graphs:0/1/2 ",
    b"9223372036854775807",
    b"1e300",
    b"null",
];

const NAMES: &[&str] = &[
    "x-G.json",
    "x-id_map.json",
    "x-class_map.json",
    "x-feats.npy",
    "train_graph.json",
    "train_graph_id.npy",
    "train_feats.npy",
    "train_labels.npy",
    "valid_graph.json",
    "valid_graph_id.npy",
    "valid_feats.npy",
    "valid_labels.npy",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    import_files("import_graphsage", "graphsage", NAMES, "", data)
}
