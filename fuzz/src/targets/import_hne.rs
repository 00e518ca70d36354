//! The importer `hne`: tables of nodes, weighted links and labels.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"0\tname\t0\n",
    b"0\t1\t0\t5\n",
    b"0\t1\t1\n",
    b"LINK\tSTART\tEND\tMEANING\n",
    b"TYPE\tMEANING\n",
    b"Targeting: Link Type (0,0,0)\n",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_hne", "hne", &["node.dat", "link.dat", "label.dat", "label.dat.test", "link.dat.test", "info.dat"], "", data)
}
