//! The importer `ogb-links`: tables of links, and splits as files of PyTorch and NumPy.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"0,1\n",
    b"edge.npy\n",
    b"edge_neg.npy\n",
    b"source_node.npy\n",
    b"target_node.npy\n",
    b"target_node_neg.npy\n",
    b"X\x04\0\0\0edge",
    b"\x80\x02",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_ogb_links", "ogb-links", &["raw/edge.csv", "raw/num-node-list.csv", "raw/num-edge-list.csv", "raw/edge_weight.csv", "raw/edge_year.csv", "raw/node-feat.csv", "split/s/train.pt", "split/s/valid.pt", "split/s/test.npz", "split_npz/test.npz", "mapping/nodeidx2x.csv"], "", data)
}
