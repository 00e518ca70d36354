//! People's own tables, as CSV or JSON lines, with a schema.

use graphmill_data::{
    dataset::Work,
    tables::{Names, TableSchema, import_tables},
};

use super::Answer;
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"schema.toml\n",
    b"nodes.csv\n",
    b"edges.csv\n",
    b"id,label,x,day\n",
    b"a,b,t,w\n",
    b"\"\"",
    b"\"a\nb\"",
    b"{\"id\": 1, \"x\": [0.5]}\n",
    b"2024-02-29T12:00:00.5Z",
    b"[1, 2.5]",
    b"NaN",
    b"1e308",
    b"-9223372036854775808",
    b"\xef\xbb\xbf",
    b"label = \"label\"\n",
    b"split = \"time:day\"\n",
    b"columns = { x = \"category, indicator\" }\n",
    b"dangling = \"add\"\n",
];

/// One input: a schema and its tables.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["schema.toml", "nodes.csv", "edges.csv"]);
    with_files("import_tables", &input.files, |dir| {
        let mut schema = TableSchema::read(&dir.join("schema.toml"))?;
        // The tables of the input, not files of the machine or standard input.
        for table in &mut schema.nodes {
            table.files = Names::One("nodes.csv".into());
        }
        for table in &mut schema.edges {
            table.files = Names::One("edges.csv".into());
        }
        let out = dir.join("out");
        limited(input.unpacked, || {
            let work = Work { memory: Some(1 << 26), replace: true, ..Work::default() };
            let imported = import_tables(&schema, &out, None, work);
            assert!(!dir.join("out.importing").exists(), "an import leaves no scratch");
            imported
        })
        .map(|imported| assert!(imported.dataset.validate().is_ok(), "an imported dataset is sound"))
        .map_err(Into::into)
    })
}
