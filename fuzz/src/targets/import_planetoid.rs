//! The importer `planetoid`.

use super::{Answer, import_files};

pub(super) use super::pickle::TOKENS;

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let names = &[
        "ind.a.allx",
        "ind.a.ally",
        "ind.a.tx",
        "ind.a.ty",
        "ind.a.y",
        "ind.a.graph",
        "ind.a.test.index",
    ];
    import_files("import_planetoid", "planetoid", names, "", data)
}
