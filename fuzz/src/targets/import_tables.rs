//! People's own tables with a schema. The readers recognize CSV, JSON lines, Parquet and Arrow by
//! the first bytes, not by the name.

use graphmill_data::{
    dataset::Work,
    tables::{LinkTable, Names, TableSchema, TargetTable, import_tables},
};

use super::{Answer, import_parquet::hide_decoder_panics};
use crate::{alloc::limited, input::Input, scratch::with_files};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"schema.toml\n",
    b"nodes.csv\n",
    b"edges.csv\n",
    b"targets.csv\n",
    b"train.csv\n",
    b"[[targets]]\n",
    b"on = \"node\"\n",
    b"PAR1",
    b"ARROW1",
    b"\xff\xff\xff\xff",
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

const NAMES: &[&str] =
    &["schema.toml", "nodes.csv", "edges.csv", "targets.csv", "train.csv", "valid.csv", "test.csv"];

/// One input: a schema and its tables.
pub fn run(data: &[u8]) -> Answer {
    hide_decoder_panics();
    let input = Input::read(data, NAMES);
    with_files("import_tables", &input.files, |dir| {
        let mut schema = TableSchema::read(&dir.join("schema.toml"))?;
        confine(&mut schema);
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

/// Replaces the files of all tables by those of the input: a schema names no file of the machine,
/// and not standard input.
fn confine(schema: &mut TableSchema) {
    for table in &mut schema.nodes {
        table.files = Names::One("nodes.csv".into());
    }
    for table in &mut schema.edges {
        table.files = Names::One("edges.csv".into());
    }
    for TargetTable { files, train, valid, test, .. } in &mut schema.targets {
        let own =
            [(files, "targets.csv"), (train, "train.csv"), (valid, "valid.csv"), (test, "test.csv")];
        for (names, own) in own {
            *names = if names.is_empty() { Names::None } else { Names::One(own.into()) };
        }
    }
    for LinkTable { files, train, valid, test, .. } in &mut schema.links {
        let own = [(files, "targets.csv"), (train, "train.csv"), (valid, "valid.csv"), (test, "test.csv")];
        for (names, own) in own {
            *names = if names.is_empty() { Names::None } else { Names::One(own.into()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn schemas_name_only_files_of_the_input() {
        let table = |fields: &[&str]| -> String {
            fields.iter().map(|field| format!("{field} = [\"/etc/passwd\", \"-\"]\n")).collect()
        };
        let text = format!(
            "[[nodes]]\nid = \"a\"\n{0}[[edges]]\nsrc = \"a\"\ndst = \"b\"\n{0}\
             [[targets]]\nid = \"a\"\nlabel = \"y\"\n{0}\
             [[targets]]\nid = \"a\"\nlabel = \"z\"\n{1}\
             [[links]]\nname = \"l\"\nsrc = \"a\"\ndst = \"b\"\ntime = \"t\"\n{0}\
             [[links]]\nname = \"m\"\nsrc = \"a\"\ndst = \"b\"\ntime = \"t\"\n{1}",
            table(&["files"]),
            table(&["train", "valid", "test"])
        );
        let mut schema = TableSchema::parse(&text, Path::new("schema.toml")).unwrap();
        confine(&mut schema);
        let text = schema.to_string();
        assert!(!text.contains("/etc/passwd") && !text.contains("\"-\""), "{text}");
        assert!(NAMES[1..].iter().all(|name| text.contains(name)), "{text}");
    }
}
