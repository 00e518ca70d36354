//! The importer `musae`: lists of edges, JSON lists of features and tables of targets; one graph or
//! two.

use super::{Answer, import_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"musae_a_edges.csv\n",
    b"musae_a_features.json\n",
    b"musae_a_target.csv\n",
    b"splits.json\n",
    b"from,to\n0,1\n",
    b"id_1,id_2\n",
    b"{\"0\": [1, 2], \"1\": []}",
    b"\"4294967295\": [",
    b"id,days,mature,views,partner,new_id\n",
    b"id,facebook_id,page_name,page_type\n",
    b"id,name,ml_target\n",
    b"True",
    b"\"a, b\"",
    b"[{\"train\": [0], \"valid\": [1], \"test\": []}]",
    b"18446744073709551615",
    b"split=random:0.5,0.2,0.3 ",
    b"largest-component ",
];

/// One input: options of an import, and files of the directory.
pub fn run(data: &[u8]) -> Answer {
    let names = ["musae_a_edges.csv", "musae_a_features.json", "musae_a_target.csv", "splits.json"];
    import_files("import_musae", "musae", &names, "", data)
}
