//! Tables of further rows, in any format: appended to an imported dataset, or with the option `new`
//! imported by its statistics.

use std::path::PathBuf;

use graphmill_data::{
    dataset::Work,
    tables::{
        MoreTables, Names, Preprocessing, TableSchema, append_tables, import_new_tables,
        import_tables,
    },
};

use super::{Answer, import_parquet::hide_decoder_panics};
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"nodes.csv\n",
    b"edges.csv\n",
    b"targets.csv\n",
    b"end_nodes.csv\n",
    b"end_edges.csv\n",
    b"changed=replace ",
    b"changed=keep ",
    b"dangling=drop ",
    b"dangling=add ",
    b"new ",
    b"id,label,x\n",
    b"a,b,t,w\n",
    b"id,day,y\n",
    b"PAR1",
    b"ARROW1",
    b"\xff\xff\xff\xff",
    b"NaN",
    b"-9223372036854775808",
];

const NAMES: &[&str] = &["nodes.csv", "edges.csv", "targets.csv", "end_nodes.csv", "end_edges.csv"];

/// Schema and tables of the dataset that is extended.
pub const BASE: &[(&str, &str)] = &[
    (
        "schema.toml",
        "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\nlabel = \"label\"\nsplit = \
         \"random:60,20,20\"\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\ntime = \
         \"t\"\nfeatures = [\"w\"]\n[[targets]]\nfiles = \"targets.csv\"\nid = \"id\"\ntime = \
         \"day\"\nlabel = \"y\"\n",
    ),
    ("nodes.csv", "id,label,x\nu,k,1.5\nv,l,\nw,k,-2\n"),
    ("edges.csv", "a,b,t,w\nu,v,1,0.5\nv,w,2,1\nw,u,3,2\n"),
    ("targets.csv", "id,day,y\nu,4,no\nv,5,yes\nw,6,no\nu,7,yes\n"),
];

/// One input: options, and tables.
pub fn run(data: &[u8]) -> Answer {
    hide_decoder_panics();
    let base = base()?;
    let input = Input::read(data, NAMES);
    let work = || Work { memory: Some(1 << 26), replace: true, ..Work::default() };
    with_files("tables_append", &input.files, |dir| {
        let given = |name: &str| match input.file(name) {
            Some(_) => Names::One(name.into()),
            None => Names::None,
        };
        let out = dir.join("out");
        let made = limited(input.unpacked, || {
            if input.has("new") {
                let mut schema = TableSchema::read(&base.with_file_name("schema.toml"))?;
                schema.base = dir.to_path_buf();
                schema.targets.clear();
                schema.nodes.iter_mut().for_each(|table| {
                    (table.files, table.label, table.split) = (given("nodes.csv"), Names::None, None);
                });
                schema.edges.retain_mut(|table| {
                    // Their times and features are those of the statistics.
                    (table.files, table.time) = (given("edges.csv"), None);
                    table.features.clear();
                    !table.files.is_empty()
                });
                let like = Preprocessing::read(&base)?.of_new_rows(true);
                let known = |_: &str, keys: &[String]| -> Vec<bool> {
                    keys.iter().map(|key| ["u", "v", "w"].contains(&key.as_str())).collect()
                };
                return import_new_tables(&schema, &out, &like, &known, work());
            }
            let tables = MoreTables {
                nodes: given("nodes.csv"),
                edges: given("edges.csv"),
                targets: given("targets.csv"),
                end_nodes: given("end_nodes.csv"),
                end_edges: given("end_edges.csv"),
                changed: input.option("changed").and_then(|word| word.parse().ok()).unwrap_or_default(),
                dangling: input.option("dangling").and_then(|word| word.parse().ok()).unwrap_or_default(),
                base: dir.to_path_buf(),
                ..MoreTables::default()
            };
            append_tables(&base, &tables, &out, work()).map(|(imported, _)| imported)
        });
        assert!(!dir.join("out.importing").exists(), "an import leaves no scratch");
        made.map(|made| assert!(made.dataset.validate().is_ok(), "a written dataset is sound"))?;
        Ok(())
    })
}

/// Directory of the dataset that is extended, which the first call of a thread imports.
fn base() -> graphmill_core::Result<PathBuf> {
    with_files("tables_append_base", BASE, |dir| {
        let base = dir.join("base");
        if !base.exists() {
            let schema = TableSchema::read(&dir.join("schema.toml"))?;
            let work = Work { memory: Some(1 << 26), ..Work::default() };
            import_tables(&schema, &base, None, work)?;
        }
        Ok(base)
    })
}
