//! Tests of whole imports.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use graphmill_core::progress::Quiet;
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;

use super::*;

/// Values of a test table: columns of the types that all formats have.
#[derive(Clone, Debug)]
enum Values {
    Text(Vec<Option<String>>),
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Bool(Vec<Option<bool>>),
}

type Columns = Vec<(&'static str, Values)>;

fn cells(values: &Values) -> Vec<Option<String>> {
    fn texts<T: ToString>(values: &[Option<T>]) -> Vec<Option<String>> {
        values.iter().map(|value| value.as_ref().map(T::to_string)).collect()
    }
    match values {
        Values::Text(values) => values.clone(),
        Values::Int(values) => texts(values),
        Values::Float(values) => texts(values),
        Values::Bool(values) => texts(values),
    }
}

fn write_csv(path: &Path, columns: &Columns) {
    let mut out = csv::Writer::from_path(path).unwrap();
    out.write_record(columns.iter().map(|(name, _)| name)).unwrap();
    let cells: Vec<_> = columns.iter().map(|(_, values)| cells(values)).collect();
    for row in 0..cells[0].len() {
        out.write_record(cells.iter().map(|column| column[row].clone().unwrap_or_default())).unwrap();
    }
    out.flush().unwrap();
}

fn write_json(path: &Path, columns: &Columns) {
    let cells: Vec<_> = columns.iter().map(|(_, values)| cells(values)).collect();
    let mut text = String::new();
    for row in 0..cells[0].len() {
        let mut object = serde_json::Map::new();
        for ((name, values), cells) in columns.iter().zip(&cells) {
            let value = match (&cells[row], values) {
                (None, _) => serde_json::Value::Null,
                (Some(text), Values::Text(_)) => text.as_str().into(),
                (Some(text), _) => serde_json::from_str(text).unwrap(),
            };
            object.insert((*name).into(), value);
        }
        writeln!(text, "{}", serde_json::Value::Object(object)).unwrap();
    }
    fs::write(path, text).unwrap();
}

fn record_batch(columns: &Columns) -> RecordBatch {
    let array = |values: &Values| -> ArrayRef {
        match values {
            Values::Text(values) => Arc::new(StringArray::from(values.clone())),
            Values::Int(values) => Arc::new(Int64Array::from(values.clone())),
            Values::Float(values) => Arc::new(Float64Array::from(values.clone())),
            Values::Bool(values) => Arc::new(BooleanArray::from(values.clone())),
        }
    };
    RecordBatch::try_from_iter_with_nullable(
        columns.iter().map(|(name, values)| (*name, array(values), true)),
    )
    .unwrap()
}

fn write_table(dir: &Path, stem: &str, format: &str, columns: &Columns) -> PathBuf {
    let path = dir.join(format!("{stem}.{format}"));
    match format {
        "csv" => write_csv(&path, columns),
        "jsonl" => write_json(&path, columns),
        _ => {
            let batch = record_batch(columns);
            let file = fs::File::create(&path).unwrap();
            match format {
                "parquet" => {
                    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
                    writer.write(&batch).unwrap();
                    writer.close().unwrap();
                }
                "arrow" => {
                    let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
                    writer.write(&batch).unwrap();
                    writer.finish().unwrap();
                }
                _ => {
                    let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
                    writer.write(&batch).unwrap();
                    writer.finish().unwrap();
                }
            }
        }
    }
    path
}

/// Bytes of all files of a dataset, by path.
pub(super) fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(dir: &Path, base: &Path, files: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, base, files);
            } else if path.file_name().unwrap() != "verified.json" {
                let name = path.strip_prefix(base).unwrap().display().to_string();
                files.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(dir, dir, &mut files);
    files.sort();
    files
}

fn schema_of(nodes: &Path, edges: &Path) -> TableSchema {
    let name = |path: &Path| Names::One(path.display().to_string());
    TableSchema {
        name: Some("test".into()),
        nodes: vec![NodeTable {
            kind: "node".into(),
            files: name(nodes),
            id: Names::One("key".into()),
            label: Names::One("label".into()),
            category_limit: CATEGORY_LIMIT,
            ..NodeTable::default()
        }],
        edges: vec![EdgeTable {
            kind: "edge".into(),
            files: name(edges),
            src: Names::One("from".into()),
            dst: Names::One("to".into()),
            ..EdgeTable::default()
        }],
        ..TableSchema::default()
    }
}

pub(super) fn import_into(
    schema: &TableSchema,
    dst: &Path,
    budget: Option<Budget>,
) -> Result<ImportedTables> {
    let work = Work { memory: Some(1 << 26), replace: false, progress: Box::new(Quiet) };
    import_within(schema, dst, Base::default(), work, budget)
}

/// Error of an import of these files, which are written first.
pub(super) fn error_of(files: &[(&str, &str)], schema: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
    let path = dir.path().join("schema.toml");
    fs::write(&path, schema).unwrap();
    let result =
        TableSchema::read(&path).and_then(|schema| import_into(&schema, &dir.path().join("out"), None));
    let error =
        result.map(|_| ()).unwrap_err().to_string().replace(&format!("{}/", dir.path().display()), "");
    assert!(!dir.path().join("out").exists() && !dir.path().join("out.importing").exists());
    error
}

/// Schema of `nodes.csv` with the key `id` and `edges.csv` from `a` to `b`, with more lines for
/// each.
fn two(nodes: &str, edges: &str) -> String {
    format!(
        "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n{nodes}\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \
         \"a\"\ndst = \"b\"\n{edges}\n"
    )
}

pub(super) fn fails(files: &[(&str, &str)], schema: &str, parts: &[&str]) {
    let error = error_of(files, schema);
    for part in parts {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn all_faults_of_the_tables_are_listed_at_once() {
    let numbers: String = (0..40).map(|i| format!("n{i},{i},x\n")).collect();
    let nodes = format!("id,age,label\n{numbers}n40,old,x\n,41,x\nn42,young,x,9\n");
    fails(
        &[("nodes.csv", &nodes), ("edges.csv", "a,b\nn1,n2\n")],
        &two("label = \"label\"\nsplit = \"random:90,20\"", "time = \"when\""),
        &[
            "the tables have 4 faults:",
            "nodes.csv: line 44: 4 fields, but the header has 3; put fields that contain the separator in",
            "nodes.csv: split 'random:90,20': '90,20' is not three numbers",
            "nodes.csv: column 'age': 1 of 42 values are not a number: line 42 'old'; fix them",
            "edges.csv: there is no column 'when'; the columns are: 'a', 'b'",
        ],
    );
}

#[test]
fn names_of_columns_must_exist() {
    let files = [("nodes.csv", "ident,age\nx,1\n"), ("edges.csv", "a,b\nx,x\n")];
    fails(
        &files,
        &two("", ""),
        &["nodes.csv: there is no column 'id', did you mean 'ident'?; the columns are: 'ident', 'age'"],
    );
}

#[test]
fn keys_must_be_complete() {
    let files = [("nodes.csv", "id,age\nx,1\n,2\n"), ("edges.csv", "a,b\nx,x\n,x\n")];
    fails(&files, &two("", ""), &["nodes.csv: line 3: the key (id) is missing"]);
    let files = [("nodes.csv", "id,age\nx,1\n"), ("edges.csv", "a,b\nx,x\n,x\n")];
    fails(
        &files,
        &two("", ""),
        &["edges.csv: 1 rows have no source or destination", "line 3", "dangling = drop"],
    );
}

#[test]
fn dangling_keys_are_refused_dropped_or_added() {
    let files = [("nodes.csv", "id,age\nx,1\ny,2\n"), ("edges.csv", "a,b\nx,y\nx,z\nw,z\n")];
    fails(
        &files,
        &two("", ""),
        &[
            "column 'a': 1 of 3 rows name a node that is not in the table of 'node': line 4 'w'",
            "column 'b': 2 of 3 rows name a node that is not in the table of 'node': line 3 'z', line 4 'z'",
        ],
    );
    for (dangling, nodes, edges) in [("drop", 2, 1), ("add", 4, 3)] {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        let text = format!("dangling = \"{dangling}\"\n{}", two("", ""));
        let mut schema = TableSchema::parse(&text, Path::new("schema.toml")).unwrap();
        schema.base = dir.path().to_path_buf();
        let imported = import_into(&schema, &dir.path().join("out"), None).unwrap();
        assert_eq!((imported.dataset.num_nodes(), imported.dataset.num_edges()), (nodes, edges));
        let text = imported.report.to_string();
        let expected = if dangling == "drop" {
            "3 rows dropped, because a node has no row: line 4 'w', line 3 'z', line 4 'z'"
        } else {
            "2 nodes added that only edges name"
        };
        assert!(text.contains(expected), "{text}");
        if dangling == "add" {
            let keys = imported.dataset.nodes[0].keys.as_ref().unwrap();
            let keys: Vec<String> = (0..4).map(|v| keys.get(v).to_string()).collect();
            assert_eq!(keys, ["x", "y", "w", "z"]);
        }
    }
}

#[test]
fn values_of_other_types_are_faults() {
    let rows: String = (0..30).map(|i| format!("n{i},{i},1,0.5,train\n")).collect();
    let nodes = |last: &str| format!("id,age,label,w,part\n{rows}{last}\n");
    let edges = ("edges.csv", "a,b,t,w\nn1,n2,2024-01-01,1\nn2,n3,2024-01-02,-1\n");
    let try_one = |last: &str, nodes_more: &str, edges_more: &str, parts: &[&str]| {
        fails(&[("nodes.csv", &nodes(last)), edges], &two(nodes_more, edges_more), parts);
    };
    try_one("n30,inf,1,0,train", "", "", &["column 'age': 1 infinite numbers (line 32)"]);
    try_one(
        "n30,9,1,0,trian",
        "label = \"label\"\nsplit = \"column:part\"",
        "",
        &["line 32: column 'part': 'trian' is not train, valid or test"],
    );
    try_one(
        "n30,1,1,0,",
        "columns = { age = \"date\" }",
        "",
        &["column 'age': not every value is a date (ISO 8601, such as 2024-03-31, or of one format): \
             line 2 '0'"],
    );
    try_one(
        "n30,1,1,0,",
        "columns = { age = \"boolean\" }",
        "",
        &["column 'age': not every value is a truth value"],
    );
    try_one(
        "n30,1,1,0,",
        "columns = { age = \"embedding\" }",
        "",
        &["column 'age': not every value is a list of numbers"],
    );
    try_one("n30,1,1,0,", "columns = { age = \"numbr\" }", "", &["line 4, column", "unknown word 'numbr'"]);
    try_one("n30,1,1,0,", "label = \"age\"", "", &["column 'age': 30 classes in 31 labels"]);
    try_one(
        "n30,1,1,0,",
        "label = \"part\"\ntask = \"regression\"",
        "",
        &["a target of a regression is a number, but the column holds texts"],
    );
    try_one(
        "n30,1,1,0,",
        "label = \"w\"\nsplit = \"stratified:60,20,20\"",
        "",
        &["a stratified split needs classes"],
    );
    try_one("n30,1,1,0,", "split = \"random:60,20,20\"", "", &["a split without a label"]);
    try_one(
        "n30,1,1,0,",
        "label = \"label\"\nsplit = \"time:part\"",
        "",
        &["column 'part': not every value is a date or a number"],
    );
    try_one("n30,1,1,0,", "", "weight = \"w\"", &["edges.csv: line 3: column 'w': '-1' is not a weight"]);
    try_one(
        "n30,1,1,0,",
        "",
        "weight = \"t\"",
        &["edges.csv: column 't': not every value is one of numbers"],
    );
}

#[test]
fn one_class_and_gaps_of_keys_are_pointed_out() {
    let edges = ("edges.csv", "a,b\nx,y\n");
    let labelled = two("label = \"kind\"\nsplit = \"random:60,20,20\"", "");
    fails(&[("nodes.csv", "id,kind\n"), edges], &labelled, &["because the table has no rows; name another"]);
    let gaps = [("nodes.csv", "id,kind\r\nx,k\r\n,k\r\ny,k\r\n"), edges];
    fails(&gaps, &labelled, &["line 3: the key (id) is missing; fill it in, or remove the row"]);
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [gaps[0], gaps[1], ("schema.toml", &*labelled)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let schema = TableSchema::read(&dir.path().join("schema.toml")).unwrap();
    let report = plan(&schema, None).unwrap().report.to_string();
    for part in
        ["id    key, which every row needs (1 missing)", "kind  label: 1 class, so there is nothing to learn"]
    {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    fs::write(dir.path().join("nodes.csv"), "id,kind\nx,k\ny,NA\n").unwrap();
    let report = plan(&schema, None).unwrap().report.to_string();
    let line = "kind  label: 2 classes, of which 'NA' is one; leave a missing label empty\n";
    assert!(report.contains(line), "{report}");
}

#[test]
fn files_must_be_tables() {
    let edges = ("edges.csv", "a,b\nx,x\n");
    fails(&[("nodes.csv", ""), edges], &two("", ""), &["nodes.csv: line 1: the file is empty"]);
    fails(
        &[("nodes.csv", "id,id\nx,y\n"), edges],
        &two("", ""),
        &["two columns are called 'id'; rename one"],
    );
    fails(&[("nodes.csv", "id,\nx,y\n"), edges], &two("", ""), &["column 2 has no name"]);
    fails(&[edges], &two("", ""), &["nodes.csv: cannot open: No such file"]);
    fails(
        &[("nodes.csv", "[{\"id\": 1}]"), edges],
        &two("", ""),
        &["one JSON array; write one object per line"],
    );
    fails(&[("nodes.csv", "{\"id\": 1}\n{\"id\": \n"), edges], &two("", ""), &["line 2: column", "not JSON"]);
    fails(&[("nodes.csv", "PAR1xxxxPAR1"), edges], &two("", ""), &["not a readable Parquet file"]);
    fails(&[("nodes.csv", "ARROW1xx"), edges], &two("", ""), &["not a readable Arrow file"]);
    fails(&[("nodes.csv", "id,t\nx,\"a\ny,b\n"), edges], &two("", ""), &["is not closed"]);
    let schema = two("", "").replace("nodes.csv", "part-*.csv");
    fails(
        &[("part-1.csv", "id,t\nx,1\n"), ("part-2.csv", "id,u\ny,1\n"), edges],
        &schema,
        &["part-2.csv: columns: the columns differ", "missing: 't'; added: 'u'"],
    );
    fails(&[], "[[node]]\n", &["schema.toml: line 1, column", "unknown field `node`"]);
    fails(
        &[],
        "[[edges]]\nfiles = \"e\"\nsrc = \"\"\ndst = \"b\"\n",
        &["there is no node type", "src is missing"],
    );
}

/// Tables of accounts and transfers with text keys, gaps, quotes and names of their own.
pub(super) fn accounts(dir: &Path, count: usize) -> (PathBuf, PathBuf) {
    let mut nodes = String::from("account_id,country,signup_date,age,balance,note,segment\n");
    let segments = ["retail", "merchant", "mule"];
    for i in 0..count {
        let segment = i % 3;
        let age = if i % 7 == 0 { String::new() } else { (20 + (i * 13) % 50 + 10 * segment).to_string() };
        let label = if i % 5 == 4 { "" } else { segments[segment] };
        let country = ["DE", "FR", "NO"][(i / 3 + segment) % 3];
        let day = 1 + i % 28;
        writeln!(
            nodes,
            "acc-{i:04x},{country},2023-0{}-{day:02},{age},{}.25,\"note {i}, \"\"quoted\"\"\",{label}",
            1 + segment,
            (i * 37) % 1000
        )
        .unwrap();
    }
    let mut edges = String::from("timestamp;from_account;to_account;amount\n");
    for i in 0..4 * count {
        let from = (i * 7) % count;
        let to = (from + 3 * (1 + i % 5)) % count;
        writeln!(edges, "2024-01-{:02} 08:00:00;acc-{from:04x};acc-{to:04x};{}", 1 + i % 30, i % 90).unwrap();
    }
    let paths = (dir.join("accounts.csv"), dir.join("transfers.csv"));
    fs::write(&paths.0, nodes).unwrap();
    fs::write(&paths.1, edges).unwrap();
    paths
}

pub(super) fn account_schema(nodes: &Path, edges: &Path) -> TableSchema {
    let mut schema = schema_of(nodes, edges);
    schema.nodes[0].id = Names::One("account_id".into());
    schema.nodes[0].label = Names::One("segment".into());
    schema.edges[0].src = Names::One("from_account".into());
    schema.edges[0].dst = Names::One("to_account".into());
    schema.edges[0].time = Some("timestamp".into());
    schema.edges[0].features = vec!["amount".into()];
    schema
}

#[test]
fn accounts_become_a_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let (nodes, edges) = accounts(dir.path(), 300);
    let imported = import_into(&account_schema(&nodes, &edges), &dir.path().join("out"), None).unwrap();
    let data = &imported.dataset;
    let account = &data.nodes[0];
    assert_eq!(account.count, 300);
    assert_eq!(account.keys.as_ref().unwrap().get(255).to_string(), "acc-00ff");
    let features = account.features.as_ref().unwrap();
    assert_eq!(
        features.names,
        ["country=DE", "country=FR", "country=NO", "signup_date.age", "age", "balance"]
    );
    assert_eq!(data.tasks[0].names, ["merchant", "mule", "retail"]);
    let split = &data.tasks[0].split;
    assert_eq!([split.train.len(), split.valid.len(), split.test.len()], [144, 48, 48]);
    let edges = &data.edges[0];
    assert_eq!(edges.num_edges(), 1200);
    assert_eq!(edges.time.as_ref().unwrap().iter().min(), Some(&1_704_096_000));
    assert_eq!(edges.features.as_ref().unwrap().width, 1);
    let text = imported.report.to_string();
    for part in [
        "nodes 'node': 300 nodes, 6 features",
        "country      category of 3 values, a column per value -> 3 features",
        "age          number, standardized (43 missing)",
        "note         ignored: free text (300 different values, such as 'note 0, \"quoted\"')",
        "segment      label: 3 classes (60 missing)",
        "split random:60,20,20 (the default): 144 train, 48 validate, 48 test",
        "60 rows without a label, which are predicted",
        "edges 'node:edge:node': 1200 edges",
        "timestamp     time, seconds since 1970",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn other_tables_are_encoded_by_the_statistics_of_a_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let (nodes, edges) = accounts(dir.path(), 300);
    let schema = account_schema(&nodes, &edges);
    let first = import_into(&schema, &dir.path().join("first"), None).unwrap().dataset;
    let like = Preprocessing::read(&dir.path().join("first")).unwrap();
    // Half of the rows, with a country that the first dataset does not have.
    let text = fs::read_to_string(&nodes).unwrap();
    let half: String = text.lines().take(151).map(|line| line.replace(",FR,", ",XX,") + "\n").collect();
    fs::write(&nodes, half).unwrap();
    let mut schema = schema;
    schema.dangling = Dangling::Drop;
    let work = Work { memory: Some(1 << 26), ..Work::default() };
    let second = import_tables(&schema, dir.path().join("second"), Some(&like), work).unwrap();
    let [first, rows] = [&first, &second.dataset].map(|data| data.nodes[0].features.clone().unwrap());
    let (mut a, mut b) = ([0.0; 6], [0.0; 6]);
    for v in 0..150 {
        first.copy_row(v, &mut a);
        rows.copy_row(v, &mut b);
        a[1] = 0.0;
        assert_eq!(a, b, "{v}");
    }
    assert_eq!(second.report.nodes[0].unknown_values, [("country".to_string(), 50)]);
    // Without labels the names of the classes stay.
    schema.nodes[0].label = Names::None;
    let work = Work { memory: Some(1 << 26), ..Work::default() };
    let third = import_tables(&schema, dir.path().join("third"), Some(&like), work).unwrap().dataset;
    let record = third.preprocessing.unwrap();
    assert!(third.tasks.is_empty());
    assert_eq!(record["nodes"]["node"]["target"]["classes"][2], "retail");
}

#[test]
fn several_types_have_foreign_keys_and_reverse_edges() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("people.csv", "id,city,boss\n7,1,\n8,2,7\n9,1,7\n"),
        (
            "cities.jsonl",
            "{\"bank\": \"a\", \"number\": 1, \"size\": 3.5}\n{\"bank\": \"a\", \"number\": 2}\n",
        ),
        ("visits.csv", "who|bank|number|since\n7|a|2|5\n9|a|1|6\n9|a|1|6\n"),
        (
            "schema.toml",
            r#"
            [[nodes]]
            type = "person"
            files = "people.csv"
            id = "id"
            ignore = ["city"]
            foreign_keys = [{ column = "boss", to = "person", type = "reports_to", reverse = "leads" }]
            [[nodes]]
            type = "city"
            files = "cities.jsonl"
            id = ["bank", "number"]
            [[edges]]
            type = "visits"
            files = "visits.csv"
            source = "person"
            src = "who"
            destination = "city"
            dst = ["bank", "number"]
            "#,
        ),
    ];
    files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
    let schema = TableSchema::read(&dir.path().join("schema.toml")).unwrap();
    let imported = import_into(&schema, &dir.path().join("out"), None).unwrap();
    let data = imported.dataset;
    let names: Vec<String> = data.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
    assert_eq!(names, ["person:visits:city", "person:reports_to:person", "person:leads:person"]);
    assert_eq!(data.edges[0].in_neighbors(0), [2]);
    assert_eq!(data.edges[1].in_neighbors(0), [1, 2]);
    assert_eq!(data.edges[2].in_neighbors(1), [0]);
    assert_eq!(data.nodes[0].keys.as_ref().unwrap().kind(), "integers");
    let key = data.nodes[1].keys.as_ref().unwrap().get(1).to_string();
    assert_eq!(key.split(crate::typed::KEY_SEPARATOR).collect::<Vec<_>>(), ["a", "2"]);
    assert!(imported.report.to_string().contains("1 edge merged into an edge between the same nodes"));
}

fn columns() -> impl Strategy<Value = (Columns, Columns)> {
    let row = (
        prop::option::weighted(0.8, "[a-c]"),
        prop::option::weighted(0.9, -50i64..50),
        prop::option::weighted(0.9, -5.0f64..5.0),
        prop::option::weighted(0.9, any::<bool>()),
        prop::option::weighted(0.9, 0u8..28),
        prop::option::weighted(0.7, "x|y, z"),
        "[a-z ,\"']{0,6}",
    );
    let rows = prop::collection::vec(row, 4..40);
    let edges = prop::collection::vec((0u8..60, 0u8..60, prop::option::weighted(0.9, -3.0f64..3.0)), 1..60);
    (rows, edges, any::<bool>()).prop_map(|(rows, edges, numeric)| {
        let key = |i: usize| if numeric { (100 + i * i).to_string() } else { format!("k-{i}") };
        let keys = |ids: Vec<usize>| {
            if numeric {
                Values::Int(ids.iter().map(|&i| key(i).parse().ok()).collect())
            } else {
                Values::Text(ids.iter().map(|&i| Some(key(i))).collect())
            }
        };
        // The first row has a label, and every third key is that of an earlier row.
        let ids = (0..rows.len()).map(|i| if i % 9 == 8 { i / 2 } else { i }).collect();
        let label =
            |i: usize, label: &Option<String>| if i == 0 { Some("a".to_string()) } else { label.clone() };
        let nodes = vec![
            ("key", keys(ids)),
            ("label", Values::Text(rows.iter().enumerate().map(|(i, row)| label(i, &row.0)).collect())),
            ("count", Values::Int(rows.iter().map(|row| row.1).collect())),
            ("ratio", Values::Float(rows.iter().map(|row| row.2).collect())),
            ("flag", Values::Bool(rows.iter().map(|row| row.3).collect())),
            (
                "day",
                Values::Text(
                    rows.iter().map(|row| row.4.map(|day| format!("2024-02-{:02}", day + 1))).collect(),
                ),
            ),
            ("group", Values::Text(rows.iter().map(|row| row.5.clone()).collect())),
            ("text", Values::Text(rows.iter().map(|row| Some(row.6.clone())).collect())),
        ];
        let edge_columns = vec![
            ("from", keys(edges.iter().map(|edge| edge.0.into()).collect())),
            ("to", keys(edges.iter().map(|edge| edge.1.into()).collect())),
            ("amount", Values::Float(edges.iter().map(|edge| edge.2).collect())),
        ];
        (nodes, edge_columns)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn bytes_do_not_depend_on_format_and_memory(
        (nodes, edges) in columns(), add in any::<bool>(), featured in any::<bool>(), keys in 0u64..2000,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut expected: Option<Vec<(String, Vec<u8>)>> = None;
        let large = Budget { cache: usize::MAX, keys: u64::MAX, recorded: u64::MAX };
        let small = Budget { cache: 0, keys, recorded: 0 };
        for (i, (format, budget)) in [
            ("csv", large), ("csv", small), ("jsonl", large), ("parquet", large), ("arrow", small),
            ("arrows", large),
        ].into_iter().enumerate() {
            let [nodes, edges] = [("nodes", &nodes), ("edges", &edges)]
                .map(|(stem, columns)| write_table(dir.path(), stem, format, columns));
            let mut schema = schema_of(&nodes, &edges);
            schema.dangling = if add { Dangling::Add } else { Dangling::Drop };
            if featured {
                schema.edges[0].features = vec!["amount".into()];
            }
            let dst = dir.path().join(format!("out-{i}"));
            let imported = import_into(&schema, &dst, Some(budget));
            if let Err(error) = &imported {
                prop_assert!(error.to_string().contains("every label is missing")
                    || error.to_string().contains("classes in")
                    || error.to_string().contains("is named as a feature, but"), "{error}");
                return Ok(());
            }
            let found = contents(&dst);
            match &expected {
                None => expected = Some(found),
                Some(expected) => {
                    let names = |files: &[(String, Vec<u8>)]| {
                        files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
                    };
                    prop_assert_eq!(names(&found), names(expected));
                    for ((name, bytes), (_, expected)) in found.iter().zip(expected) {
                        prop_assert!(bytes == expected, "{} of {} {:?} differs", name, format, budget);
                    }
                }
            }
        }
    }
}
