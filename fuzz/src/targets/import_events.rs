//! The importer `events`: logs of events with arrays.

use super::{Answer, import_typed_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b",u,i,ts,label,idx\n",
    b"0,1,2,0.5,0.0,1\n",
    b"user_id,item_id,timestamp,state_label,f\n",
    b"0,0,1.5,0,0.1,0.2\n",
    b"add-reverses ",
    b"valid-fraction=0.5 ",
];

/// One input: options of an import, and its files.
pub fn run(data: &[u8]) -> Answer {
    import_typed_files("import_events", "events", &["ml_a.csv", "ml_a.npy", "ml_a_node.npy.gz"], "", data)
}
