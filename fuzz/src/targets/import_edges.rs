//! The importer `edges`: a directory of text tables, gzipped or not, arrays and JSON.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"edges.csv\n",
    b"edges.txt.gz\n",
    b"edges.npy\n",
    b"features.csv\n",
    b"features.npy\n",
    b"labels.csv\n",
    b"labels.npy\n",
    b"split.json\n",
    b"train.txt\n",
    b"valid.npy\n",
    b"test.csv\n",
    b"compact-ids ",
    b"num-nodes=4 ",
    b"undirected ",
    b"# comment\n",
    b"18446744073709551615",
    b"4294967295",
    b"9007199254740993.0",
    b"1e-400",
    b"nan",
    b"\xef\xbb\xbf",
    b"{\"train\": [0], \"val\": [1], \"test\": [2]}",
    b"'shape': (2, 3)",
    b"'|b1'",
    b"\"",
    b";",
    b"\t",
];

const NAMES: &[&str] = &[
    "edges.csv",
    "edges.txt",
    "edges.txt.gz",
    "edges.npy",
    "features.csv",
    "features.npy",
    "labels.csv",
    "labels.npy",
    "split.json",
    "train.txt",
    "train.npy",
    "valid.npy",
    "test.csv",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    import_files("import_edges", "edges", NAMES, "", data)
}
