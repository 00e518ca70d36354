//! `graphmill serve` of runs on several columns of classes: the answers have the classes and the
//! bits of `predict`, by column.

use arrow_array::{RecordBatch, cast::AsArray, types::Float32Type};
use serde_json::{Value, json};

use crate::{
    class_columns::{NODES, TRAIN, imported, imported_types},
    client::{Service, batch},
    common::Sandbox,
};

/// The columns with their classes, in the order of the scores.
const COLUMNS: [(&str, &[&str]); 2] =
    [("sector", &["bank", "shop", "state"]), ("region", &["north", "south"])];

/// Classes by column, and bits of the scores of all of them, of each node.
type Rows = Vec<(Vec<String>, Vec<u32>)>;

/// Answers that a command writes.
fn written(sandbox: &Sandbox, options: &str) -> Rows {
    let table = |kind: &str| {
        sandbox.ok(&format!("predict run {options} {kind} --out out.csv --force"));
        let text = String::from_utf8(sandbox.read("out.csv")).unwrap();
        let fields = |line: &str| line.split(',').skip(1).map(str::to_owned).collect::<Vec<_>>();
        text.lines().skip(1).map(fields).collect::<Vec<_>>()
    };
    let scores = table("--probabilities").into_iter().map(|row| row.iter().map(|x| bits(x)).collect());
    table("").into_iter().zip(scores).collect()
}

/// Bits of a number.
fn bits(text: &str) -> u32 {
    text.parse::<f32>().unwrap().to_bits()
}

/// Answers in a document.
fn rows(document: &Value) -> Rows {
    let of_node = |one: &Value| {
        let classes = COLUMNS.map(|(column, _)| one["class"][column].as_str().unwrap().to_owned());
        let scores = COLUMNS.iter().flat_map(|(column, _)| one["probabilities"][column].as_array().unwrap());
        (classes.to_vec(), scores.map(|x| bits(&x.to_string())).collect())
    };
    let predictions = document["predictions"].as_array().unwrap_or_else(|| panic!("{document}"));
    predictions.iter().map(of_node).collect()
}

/// Answers in an Arrow stream.
fn rows_of_arrow(batch: &RecordBatch) -> Rows {
    let column = |name: String| batch.column_by_name(&name).unwrap_or_else(|| panic!("{name}"));
    let of_node = |i: usize| {
        let class = |(of, _): (&str, _)| column(format!("class_{of}")).as_string::<i32>().value(i).to_owned();
        let scores = COLUMNS.iter().flat_map(|(of, _)| {
            let row = column(format!("probabilities_{of}")).as_fixed_size_list().value(i);
            row.as_primitive::<Float32Type>().values().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        });
        (COLUMNS.map(class).to_vec(), scores.collect())
    };
    (0..batch.num_rows()).map(of_node).collect()
}

#[test]
fn answers_have_the_classes_and_the_bits_of_predict_by_column() {
    for (data, import) in [("data", None), ("types", Some(imported_types as fn(&Sandbox)))] {
        let sandbox = Sandbox::new();
        import.map_or_else(|| imported(&sandbox, "data"), |import| import(&sandbox));
        sandbox.ok(&format!("train {data} --epochs 2 {TRAIN} --out run"));
        let expected = written(&sandbox, "");
        let all = json!({ "ids": (0..NODES).collect::<Vec<_>>() });
        for options in ["run", "run --cache-embeddings bottom"] {
            let service = Service::start(&sandbox, options);
            let mut client = service.client();
            assert_eq!(client.get("/healthz").1["task"], "columns");
            let (status, document) = client.predict(&all);
            assert_eq!((status, &document["task"]), (200, &json!("columns")), "{document}");
            let classes = json!({ "sector": COLUMNS[0].1, "region": COLUMNS[1].1 });
            assert_eq!(document["classes"], classes);
            assert_eq!(rows(&document), expected, "{data}");
            let one = client.predict(&json!({ "keys": ["acc-007"] })).1;
            assert_eq!(rows(&one), expected[7..8], "a node alone");
            let (status, bytes) = client.post_for_arrow("/v1/predict", &all);
            assert_eq!(status, 200);
            let in_arrow = batch(&bytes);
            assert_eq!(rows_of_arrow(&in_arrow), expected);
            let metadata = in_arrow.schema().metadata().clone();
            assert_eq!(serde_json::from_str::<Value>(&metadata["classes"]).unwrap(), classes);
            let best = client.predict(&json!({ "ids": [7], "top_k": 2 })).1;
            let best = &best["predictions"][0];
            for (column, classes) in COLUMNS {
                let top = best["top"][column].as_array().unwrap();
                assert_eq!((top.len(), &top[0]["class"]), (2, &best["class"][column]), "{best}");
                let place = classes.iter().position(|class| top[0]["class"] == *class).unwrap();
                let probabilities = &one["predictions"][0]["probabilities"];
                assert_eq!(top[0]["probability"], probabilities[column][place]);
            }
            let drawn = |ids: Value| rows(&service.client().predict(&json!({ "ids": ids, "seed": 4 })).1);
            assert_eq!(drawn(json!([3, 7, 9]))[1..2], drawn(json!([7])));
        }
    }
}

#[test]
fn new_nodes_have_a_class_in_each_column() {
    let sandbox = Sandbox::new();
    imported(&sandbox, "data");
    sandbox.ok(&format!("train data --epochs 2 {TRAIN} --out run"));
    sandbox.write("new.csv", "account,age,size\nacc-900,29,7\n");
    sandbox.write("more.csv", "from,to\nacc-004,acc-900\nacc-010,acc-900\n");
    let expected = written(&sandbox, "--on new.csv --edges more.csv");
    let service = Service::start(&sandbox, "run");
    let edges = json!([{ "from": "acc-004", "to": "acc-900" }, { "from": "acc-010", "to": "acc-900" }]);
    let new = json!({ "rows": [{ "account": "acc-900", "age": 29, "size": 7 }], "edges": edges });
    let (status, document) = service.client().predict(&json!({ "new": new }));
    assert_eq!(status, 200, "{document}");
    assert_eq!(rows(&document), expected);
}
