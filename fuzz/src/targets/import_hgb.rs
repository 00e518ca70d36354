//! The importer `hgb`: tables of nodes, links and labels, and JSON.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"0\tname\t0\t0,1.5\n",
    b"1\t0\t0\t1.0\n",
    b"\t1\n",
    b"node.dat\n",
    b"link.dat\n",
    b"label.dat\n",
    b"label.dat.test\n",
    b"info.dat\n",
    b"{\"node.dat\": {\"node type\": {\"0\": \"a\"}}}",
    b"1,2",
    b"NaN",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_hgb", "hgb", &["node.dat", "link.dat", "label.dat", "label.dat.test", "info.dat"], "", data)
}
