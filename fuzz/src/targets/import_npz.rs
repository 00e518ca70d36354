//! The importer `npz`: all families of keys.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    crate::input::MEMBER,
    b"adj_data.npy\n",
    b"adj_indices.npy\n",
    b"adj_indptr.npy\n",
    b"adj_shape.npy\n",
    b"attr_data.npy\n",
    b"attr_indices.npy\n",
    b"attr_indptr.npy\n",
    b"attr_shape.npy\n",
    b"attr_matrix.npy\n",
    b"labels.npy\n",
    b"labels_indptr.npy\n",
    b"node_features.npy\n",
    b"node_labels.npy\n",
    b"edges.npy\n",
    b"edge_weight.npy\n",
    b"format.npy\n",
    b"shape.npy\n",
    b"data.npy\n",
    b"indices.npy\n",
    b"indptr.npy\n",
    b"row.npy\n",
    b"col.npy\n",
    b"'|S3'",
    b"coo",
    b"csc",
    b"weights=none ",
    b"train_masks.npy\n",
    b"val_masks.npy\n",
    b"test_masks.npy\n",
    b"split=given:1 ",
    b"split=planetoid:1,1 ",
    b"split=random:0.5,0.2,0.3 ",
    b"normalize=rows ",
    b"normalize=standard ",
    b"largest-component ",
    b"undirected ",
    b"'<i8'",
    b"'|b1'",
    b"'<f4'",
    b"'|i1'",
    b"(3, 2)",
];

/// One input: options of an import, and the file `a.npz`.
pub fn run(data: &[u8]) -> Answer {
    import_files("import_npz", "npz", &["a.npz"], "a.npz", data)
}
