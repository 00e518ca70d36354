//! The importer of RelBench: metadata of small tables, and manifests. The tables are sound; what
//! describes them is the input.

use graphmill_data::{
    dataset::Work,
    tables::{RelBench, RelBenchOptions, import_tables, relbench},
};
use parquet::file::{
    metadata::KeyValue,
    properties::{WriterProperties, WriterPropertiesBuilder},
};

use super::Answer;
use crate::{
    alloc::limited,
    input::Input,
    scratch::with_files,
    seeds::tables::{Column, Values::I64, table},
};

pub(super) const TOKENS: &[&[u8]] = &[
    crate::input::FILE,
    b"users\n",
    b"items\n",
    b"events\n",
    b"train\n",
    b"manifest.json\n",
    b"task.json\n",
    b"null\n",
    b"\"id\"\n",
    b"{\"user\": \"users\", \"item\": \"items\"}",
    b"\"tables\": {",
    b"\"pkey\": \"id\"",
    b"\"time_col\": \"at\"",
    b"\"fkeys\": {",
    b"\"task_type\": \"link_prediction\"",
    b"\"task_type\": \"regression\"",
    b"\"task_type\": \"multilabel_classification\"",
    b"\"kind\": \"autocomplete\"",
    b"\"entity_table\": \"users\"",
    b"\"entity_col\": \"user\"",
    b"\"src_entity_table\": \"users\"",
    b"\"src_entity_col\": \"user\"",
    b"\"dst_entity_table\": \"items\"",
    b"\"dst_entity_col\": \"item\"",
    b"\"target_col\": \"label\"",
    b"\"remove_columns\": [[\"users\", \"age\"]]",
    b"\"eval_k\": 3",
];

/// Names of the metadata of a table, one line of its file each.
const METADATA: [&str; 3] = ["pkey_col", "time_col", "fkey_col_to_pkey_table"];

/// Tables by their paths, and the names of the files that have their metadata.
fn tables() -> [(&'static str, &'static str, Vec<Column>); 4] {
    let column = |field, values: &[i64]| Column(field, I64(values.to_vec()), None, None);
    // two destinations of the first row, and one of each other
    let item = "optional group item (LIST) { repeated group list { optional int64 element; } }";
    let lists = Column(item, I64(vec![0, 1, 2, 0]), Some(vec![3; 4]), Some(vec![0, 1, 0, 0]));
    [
        (
            "db/users.parquet",
            "users",
            vec![column("required int64 id;", &[0, 1, 2]), column("required int64 age;", &[30, 40, 50])],
        ),
        (
            "db/items.parquet",
            "items",
            vec![column("required int64 id;", &[0, 1, 2]), column("required int64 added;", &[0, 1, 2])],
        ),
        (
            "db/events.parquet",
            "events",
            vec![
                column("required int64 user;", &[0, 1, 2]),
                column("required int64 item;", &[2, 1, 0]),
                column("required int64 at;", &[5, 6, 7]),
            ],
        ),
        (
            "tasks/next/train.parquet",
            "train",
            vec![
                column("required int64 at;", &[10, 10, 20]),
                column("required int64 user;", &[0, 1, 0]),
                lists,
                column("required int64 label;", &[0, 1, 1]),
            ],
        ),
    ]
}

/// Properties of a table with the metadata that the lines of `text` are.
fn described(text: Option<&[u8]>) -> WriterPropertiesBuilder {
    let text = text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
    let lines = METADATA.iter().zip(text.lines());
    let metadata: Vec<KeyValue> =
        lines.map(|(key, value)| KeyValue::new(key.to_string(), value.to_string())).collect();
    WriterProperties::builder().set_key_value_metadata(Some(metadata))
}

/// One input: lines of metadata of each table, and the manifests of the directory and the task.
pub fn run(data: &[u8]) -> Answer {
    let input = Input::read(data, &["users", "items", "events", "train", "manifest.json", "task.json"]);
    let mut files: Vec<(&str, Vec<u8>)> = Vec::new();
    for (path, name, columns) in tables() {
        files.push((path, table(&columns, described(input.file(name)))?));
    }
    for (path, name) in [("manifest.json", "manifest.json"), ("tasks/next/manifest.json", "task.json")] {
        files.extend(input.file(name).map(|bytes| (path, bytes.to_vec())));
    }
    with_files("import_relbench", &files, |dir| {
        let out = dir.join("out");
        limited(input.unpacked, || {
            let RelBench { schema, .. } = relbench(dir, &RelBenchOptions::default())?;
            let work = Work { memory: Some(1 << 26), replace: true, ..Work::default() };
            import_tables(&schema, &out, None, work)
        })
        .map(|imported| assert!(imported.dataset.validate().is_ok(), "an imported dataset is sound"))
        .map_err(Into::into)
    })
}
