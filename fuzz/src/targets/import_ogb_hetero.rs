//! The importer `ogb-hetero`: tables of several node types.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"a,b\n2,1\n",
    b"a,r,b\n",
    b"0,0\n",
    b"nan\n",
    b"True,False",
    b"idx,name\n0,x\n",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_ogb_hetero", "ogb-hetero", &["raw/num-node-dict.csv", "raw/triplet-type-list.csv", "raw/relations/a___r___b/edge.csv.gz", "raw/relations/a___r___b/num-edge-list.csv", "raw/relations/a___r___b/edge-feat.csv", "raw/node-feat/a/node-feat.csv", "raw/node_year/a/node_year.csv", "raw/node-label/a/node-label.csv", "raw/nodetype-has-label.csv", "split/s/a/train.csv", "split/s/a/valid.csv", "mapping/a.csv", "mapping/label2x.csv"], "", data)
}
