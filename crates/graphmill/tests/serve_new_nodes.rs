//! New nodes over HTTP get the bits of `predict --on`, and Arrow streams hold the scores of JSON.

use std::fmt::Write as _;

use arrow_array::{Array, Float32Array, RecordBatch, cast::AsArray};
use graphmill_core::FeatureData;
use graphmill_data::Dataset;
use serde_json::{Value, json};

use crate::client::{Client, Service, batch};
use crate::common::Sandbox;

const NODES: usize = 120;
/// Accounts from this number on are new.
const KNOWN: usize = 100;

fn edges() -> Vec<(usize, usize)> {
    (0..NODES).flat_map(|i| (1..4).map(move |k| (i, (i + 3 * k * (1 + i % 4)) % NODES))).collect()
}

fn is_new((src, dst): &(usize, usize)) -> bool {
    *src >= KNOWN || *dst >= KNOWN
}

/// A row of the accounts: key, country, age if known, and class.
fn account(i: usize) -> (String, &'static str, Option<f64>, &'static str) {
    let age = (!i.is_multiple_of(11)).then(|| 20.5 + (20 * (i % 3) + i % 9) as f64 / 7.0);
    (format!("acc-{i:03}"), ["DE", "FR"][i / 3 % 2], age, ["retail", "merchant", "mule"][i % 3])
}

/// A dataset `data` of the known accounts, one `whole` of all by the same statistics, a run on the
/// first, and tables of the new rows.
fn bank() -> Sandbox {
    let sandbox = Sandbox::new();
    let rows = |file: &str, numbers: std::ops::Range<usize>| {
        let mut text = String::from("id,country,age,segment\n");
        for i in numbers {
            let (key, country, age, class) = account(i);
            let age = age.map(|age| age.to_string()).unwrap_or_default();
            writeln!(text, "{key},{country},{age},{class}").unwrap();
        }
        sandbox.write(file, text);
    };
    rows("known.csv", 0..KNOWN);
    rows("new.csv", KNOWN..NODES);
    rows("all.csv", 0..NODES);
    let table = |file: &str, is_in: &dyn Fn(&(usize, usize)) -> bool| {
        let mut text = String::from("src,dst\n");
        for (src, dst) in edges().iter().filter(|edge| is_in(edge)) {
            writeln!(text, "acc-{src:03},acc-{dst:03}").unwrap();
        }
        sandbox.write(file, text);
    };
    table("old-edges.csv", &|edge| !is_new(edge));
    table("new-edges.csv", &is_new);
    table("all-edges.csv", &|_| true);
    let import = |options: &str| {
        sandbox.ok(&format!("import tables {options} --id id --label segment --src src --dst dst"));
    };
    import("data --nodes known.csv --edges old-edges.csv");
    import("whole --nodes all.csv --edges all-edges.csv --like data");
    sandbox.ok("train data --epochs 2 --hidden 8 --fanout 2,2 --batch-size 32 --out run");
    sandbox
}

/// A question for the new accounts with the columns of the tables.
fn by_columns() -> Value {
    let row = |i: usize| {
        let (key, country, age, _) = account(i);
        json!({ "id": key, "country": country, "age": age })
    };
    let key = |node: usize| format!("acc-{node:03}");
    let edge = |(src, dst): (usize, usize)| json!({ "src": key(src), "dst": key(dst) });
    let rows: Vec<Value> = (KNOWN..NODES).map(row).collect();
    let edges: Vec<Value> = edges().into_iter().filter(is_new).map(edge).collect();
    json!({ "new": { "rows": rows, "edges": edges } })
}

/// A question for the new accounts with their features.
fn by_features(sandbox: &Sandbox) -> Value {
    let whole = Dataset::open(sandbox.path("whole")).unwrap();
    let (FeatureData::F32(all), width) = (&whole.features.data, whole.features.dim) else { unreachable!() };
    let rows: Vec<&[f32]> = (KNOWN..NODES).map(|v| &all[v * width..(v + 1) * width]).collect();
    // Known ends may be named by their keys.
    let end =
        |v: usize| if v.is_multiple_of(2) && v < KNOWN { json!(format!("acc-{v:03}")) } else { json!(v) };
    let edges = edges().into_iter().filter(is_new).map(|(src, dst)| json!([end(src), end(dst)]));
    json!({ "new": { "features": rows, "edges": edges.collect::<Vec<_>>() } })
}

/// Asks for an Arrow stream; returns status and body.
fn predict_arrow(client: &mut Client, question: &Value) -> (u16, Vec<u8>) {
    client.post_for_arrow("/v1/predict", question)
}

/// Bits of the scores of a JSON answer.
fn bits(document: &Value) -> Vec<u32> {
    let predictions = document["predictions"].as_array().unwrap_or_else(|| panic!("{document}"));
    let scores = predictions.iter().flat_map(|one| one["probabilities"].as_array().unwrap());
    scores.map(|x| x.to_string().parse::<f32>().unwrap().to_bits()).collect()
}

/// Bits of the scores of an Arrow answer.
fn arrow_bits(batch: &RecordBatch) -> Vec<u32> {
    let scores = batch.column_by_name("probabilities").unwrap().as_fixed_size_list();
    let values = scores.values().as_any().downcast_ref::<Float32Array>().unwrap();
    values.values().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn new_nodes_get_the_bits_of_predict_on_in_json_and_arrow() {
    let sandbox = bank();
    sandbox.ok("predict run --on new.csv --edges new-edges.csv --probabilities --out on.npy");
    let expected: Vec<u32> = sandbox.floats("on.npy").1.iter().map(|x| x.to_bits()).collect();
    let service = Service::start(&sandbox, "run");
    let mut client = service.client();
    let (columns, features) = (by_columns(), by_features(&sandbox));
    for question in [&columns, &features] {
        let (status, document) = client.predict(question);
        assert_eq!(status, 200, "{document}");
        assert_eq!(bits(&document), expected);
        assert_eq!(document["new_edges"], edges().iter().filter(|edge| is_new(edge)).count());
        let (status, bytes) = predict_arrow(&mut client, question);
        assert_eq!(status, 200);
        assert_eq!(arrow_bits(&batch(&bytes)), expected);
    }
    // Drawn neighbours are a function of the seed, too.
    let drawn = |client: &mut Client, question: &Value, seed: u64| {
        let mut question = question.clone();
        question["seed"] = seed.into();
        bits(&client.predict(&question).1)
    };
    let first = drawn(&mut client, &columns, 3);
    assert_eq!(first, drawn(&mut client, &features, 3));
    assert_ne!(first, drawn(&mut client, &columns, 4));
    assert_ne!(first, expected);
    // The graph of the dataset has not changed: known nodes and their keys as before.
    sandbox.ok("predict run --probabilities --out known.npy");
    let known: Vec<u32> = sandbox.floats("known.npy").1.iter().map(|x| x.to_bits()).collect();
    let question = json!({ "ids": (0..KNOWN).collect::<Vec<_>>() });
    assert_eq!(bits(&client.predict(&question).1), known);
    let (_, bytes) = predict_arrow(&mut client, &question);
    let of_known = batch(&bytes);
    assert_eq!(arrow_bits(&of_known), known);
    let text = |name: &str| of_known.column_by_name(name).unwrap().as_string::<i32>().value(7).to_string();
    assert_eq!(text("key"), "acc-007");
    assert!(["retail", "merchant", "mule"].contains(&&text("class")[..]));
    assert_eq!(of_known.schema().metadata()["task"], "classes");
}

#[test]
fn faults_of_new_nodes_have_a_status_and_a_remedy() {
    let sandbox = bank();
    let service = Service::start(&sandbox, "run --max-nodes 3 --max-edges 2");
    let mut client = service.client();
    let row = json!({ "id": "x", "country": "DE", "age": 30 });
    let width = Dataset::open(sandbox.path("data")).unwrap().features.dim;
    let features = vec![0.5; width];
    for (new, status, says) in [
        (json!({ "rows": [] }), 422, "no nodes"),
        (json!({ "rows": [row], "features": [features] }), 422, "rows and features"),
        (json!({ "rows": [row, row, row, row] }), 413, "4 new nodes"),
        (json!({ "rows": [row], "edges": [{}, {}, {}] }), 413, "3 new edges"),
        (json!({ "rows": [row], "edges": [["x", "acc-001"]] }), 422, "array"),
        (json!({ "rows": [row, row] }), 422, "repeat the key"),
        (json!({ "rows": [{ "id": "acc-001", "country": "DE", "age": 30 }] }), 422, "is in data already"),
        (json!({ "rows": [{ "id": "x", "country": "DE" }] }), 422, "'age'"),
        (json!({ "rows": [row], "edges": [{ "src": "x", "dst": "acc-none" }] }), 422, "acc-none"),
        (json!({ "rows": [row], "undirected": true }), 422, "undirected"),
        (json!({ "features": [[1.0]] }), 422, "1 features"),
        (json!({ "features": [features], "edges": [[0, 101]] }), 422, "names node 101"),
        (json!({ "features": [features], "edges": [["acc-none", 100]] }), 422, "acc-none"),
        (json!({ "features": [features], "edges": [[0, 100], [0, 100]] }), 422, "occurs twice"),
        (json!({ "features": [features], "edges": [[0, 100, -1.0]] }), 422, "weight -1"),
        (json!({ "features": [features], "edges": [{ "src": 0 }] }), 422, "object"),
        (json!({ "nodes": [] }), 400, "unknown field"),
        (json!({ "features": [[1e39]] }), 400, "out of range"),
    ] {
        let (found, document) = client.predict(&json!({ "new": new }));
        assert_eq!(found, status, "{new}: {document}");
        assert!(document["error"]["why"].as_str().unwrap().contains(says), "{new}: {document}");
    }
    let both = json!({ "ids": [1], "new": { "rows": [row] } });
    assert_eq!(client.predict(&both).0, 422);
    assert_eq!(predict_arrow(&mut client, &json!({ "ids": [1], "top_k": 1 })).0, 422);
    assert_eq!(client.predict(&json!({ "new": { "rows": [row] } })).0, 200);
}
