//! The importer `ogb`: the text layout and the binary one.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    crate::input::MEMBER,
    b"raw/num-node-list.csv.gz\n4\n",
    b"raw/num-edge-list.csv.gz\n3\n",
    b"raw/edge.csv.gz\n",
    b"raw/node-feat.csv.gz\n",
    b"raw/node-label.csv.gz\n",
    b"raw/data.npz\n",
    b"raw/node-label.npz\n",
    b"split/a/train.csv.gz\n",
    b"edge_index.npy\n",
    b"num_nodes_list.npy\n",
    b"node_feat.npy\n",
    b"node_label.npy\n",
    b"nan",
    b"18446744073709551615",
    b"'shape': (2, 3)",
    b"'<f4'",
];

const NAMES: &[&str] = &[
    "raw/num-node-list.csv.gz",
    "raw/num-edge-list.csv.gz",
    "raw/edge.csv.gz",
    "raw/node-feat.csv.gz",
    "raw/node-label.csv.gz",
    "raw/node-label.csv",
    "raw/data.npz",
    "raw/node-label.npz",
    "raw/num-node-dict.csv.gz",
    "split/a/train.csv.gz",
    "split/a/valid.csv.gz",
    "split/a/test.csv.gz",
    "split/b/train.csv.gz",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    import_files("import_ogb", "ogb", NAMES, "", data)
}
