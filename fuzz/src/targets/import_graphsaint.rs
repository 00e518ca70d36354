//! The importer `graphsaint`.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    crate::input::MEMBER,
    b"adj_full.npz\n",
    b"feats.npy\n",
    b"class_map.json\n",
    b"role.json\n",
    b"indptr.npy\n",
    b"indices.npy\n",
    b"format.npy\n",
    b"{\"0\": 1, \"1\": 0}",
    b"{\"0\": [1, 0], \"1\": [0, 0]}",
    b"{\"tr\": [0], \"va\": [1], \"te\": [2]}",
    b"normalize=standard ",
    b"'|b1'",
    b"'<f8'",
    b"1e3",
    b"null",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let names = &["adj_full.npz", "feats.npy", "class_map.json", "role.json"];
    import_files("import_graphsaint", "graphsaint", names, "", data)
}
