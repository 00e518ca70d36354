//! The importer `tgb`: edge lists of events, and pickled negatives.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"user_id,item_id,timestamp,state_label,f\n",
    b"0,0,1.5,0,0.1,0.2\n",
    b"day,src,dst,callsign,typecode\n",
    b"1,a,b,AB12,A320\n",
    b"a,large,EU,DE-HE,8.5,50\n",
    b"\x80\x02}(",
    b"K\0K\x01K\x02\x87](K\x01e",
    b"\x8c\x13numpy._core.numeric\x8c\x0b_frombuffer\x93",
    b"u.",
    b"add-reverses ",
];

const NAMES: &[&str] = &[
    "tgbl-wiki_edgelist.csv",
    "tgbl-wiki_val_ns.pkl",
    "tgbl-wiki_test_ns.pkl",
    "tgbl-flight_edgelist_v2.csv",
    "tgbl-flight_test_ns_v2.pkl",
    "airport_node_feat_v2.csv",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_tgb", "tgb", NAMES, "", data)
}
