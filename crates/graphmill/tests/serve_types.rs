//! `graphmill serve` of a run on several types: nodes of the task's type, known and new, get the
//! bits of `predict`.

use std::collections::BTreeMap;

use graphmill_data::typed::{TableData, TypedDataset, Verify, open};
use serde_json::{Map, Value, json};

use crate::{
    client::{Client, Service},
    common::Sandbox,
    new_nodes::{ACCOUNTS, NEW, ON, bank},
};

/// Options of the runs.
const TRAIN: &str = "train bank --epochs 1 --hidden 8 --fanout 5,5 --batch-size 32 --lr 0.02";

/// The known part of a bank, and a run on it.
fn trained(options: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    sandbox.ok("import tables bank known.toml");
    sandbox.ok(&format!("{TRAIN} {options} --out run"));
    sandbox
}

/// Bits of the probabilities that a command writes.
fn written(sandbox: &Sandbox, options: &str) -> Vec<u32> {
    sandbox.ok(&format!("predict run {options} --probabilities --out out.npy --force"));
    sandbox.floats("out.npy").1.iter().map(|x| x.to_bits()).collect()
}

/// Bits of the scores of an answer.
fn bits(document: &Value) -> Vec<u32> {
    let predictions = document["predictions"].as_array().unwrap_or_else(|| panic!("{document}"));
    let scores = predictions.iter().flat_map(|one| one["probabilities"].as_array().unwrap());
    scores.map(|x| x.to_string().parse::<f32>().unwrap().to_bits()).collect()
}

/// Rows of a table as objects, in which the columns `numbers` are numbers.
fn objects(sandbox: &Sandbox, file: &str, numbers: &[&str]) -> Vec<Value> {
    let text = String::from_utf8(sandbox.read(file)).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let value = |name: &str, field: &str| match field {
        "" => Value::Null,
        _ if numbers.contains(&name) => json!(field.parse::<f64>().unwrap()),
        _ => json!(field),
    };
    let row = |line: &str| {
        let fields = names.iter().zip(line.split(','));
        Value::Object(
            fields.map(|(name, field)| (name.to_string(), value(name, field))).collect::<Map<_, _>>(),
        )
    };
    lines.map(row).collect()
}

/// The new accounts and branches with their features, and the edges that lead to or from them.
fn by_features(whole: &TypedDataset) -> Value {
    let known = |name: &str| match name {
        "account" => NEW[0],
        "branch" => NEW[1],
        _ => usize::MAX,
    };
    let rows: BTreeMap<&str, Vec<Vec<f32>>> = whole.nodes[..2]
        .iter()
        .map(|nodes| {
            let table = nodes.features.as_ref().unwrap();
            let row = |v: usize| {
                let value = |i: usize| match &table.data {
                    TableData::Dense(values) => values.get(i) as f32,
                    _ => unreachable!("features of tables are dense"),
                };
                (v * table.width..(v + 1) * table.width).map(value).collect()
            };
            (&nodes.name[..], (known(&nodes.name)..nodes.count).map(row).collect())
        })
        .collect();
    let mut edges: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for of in &whole.edges {
        let [sources, ends] = [&of.edge_type.source, &of.edge_type.destination].map(|name| known(name));
        let list = edges.entry(of.edge_type.to_string()).or_default();
        for v in 0..of.indptr.len() - 1 {
            for e in of.row(v as u32) {
                let u = of.indices[e] as usize;
                if u >= sources || v >= ends {
                    let weight = of.weights.as_ref().map_or(1.0, |weights| weights[e]);
                    list.push(json!([u, v, weight]));
                }
            }
        }
    }
    json!({ "new": { "features": rows, "edges": edges } })
}

#[test]
fn known_nodes_get_the_bits_of_predict_and_keys_are_those_of_the_type() {
    let sandbox = trained("--model rsage");
    let expected = written(&sandbox, "");
    let all: Vec<usize> = (0..NEW[0]).collect();
    for options in ["run", "run --cache-embeddings bottom"] {
        let service = Service::start(&sandbox, options);
        let mut client = service.client();
        let health = client.get("/healthz").1;
        assert_eq!(
            [&health["status"], &health["dataset"], &health["nodes"], &health["task"]],
            [&json!("ok"), &json!("bank"), &json!(NEW[0]), &json!("classes")]
        );
        assert_eq!(bits(&client.predict(&json!({ "ids": all })).1), expected);
        let keys: Vec<String> = all.iter().map(|i| format!("acc-{i:03}")).collect();
        let (status, document) = client.predict(&json!({ "keys": keys }));
        assert_eq!((status, bits(&document)), (200, expected.clone()));
        assert_eq!(document["predictions"][7]["key"], "acc-007");
        assert_eq!(document["classes"].as_array().unwrap().len(), 3);
        let drawn = |client: &mut Client, ids: &[usize], seed: u64| {
            bits(&client.predict(&json!({ "ids": ids, "seed": seed })).1)
        };
        let together = drawn(&mut client, &all, 3);
        for i in [0, 41, 99] {
            assert_eq!(drawn(&mut client, &[i], 3), together[3 * i..3 * i + 3]);
        }
        assert_ne!(together, drawn(&mut client, &all, 4));
        for (question, says) in [
            (json!({ "keys": ["b1"] }), "not that of a node of type 'account'"),
            (json!({ "ids": [NEW[0]] }), "100 nodes of type 'account'"),
        ] {
            let (status, document) = client.predict(&question);
            assert_eq!(status, 422, "{document}");
            assert!(document["error"]["why"].as_str().unwrap().contains(says), "{document}");
        }
        assert_eq!(client.post("/v1/reload", "{}").0, 200);
        assert_eq!(bits(&client.predict(&json!({ "ids": all })).1), expected, "after a reload");
    }
}

#[test]
fn new_nodes_of_several_types_get_the_bits_of_predict_on() {
    for model in ["rsage", "hgt", "sage-edge"] {
        let sandbox = trained(&format!("--model {model}"));
        sandbox.ok("import tables whole whole.toml --like bank");
        let expected = written(&sandbox, ON);
        let whole = open(sandbox.path("whole"), Verify::Once).unwrap();
        let rows = json!({
            "account": objects(&sandbox, "new-accounts.csv", &["age"]),
            "branch": objects(&sandbox, "new-branches.csv", &["staff"]),
        });
        let edges = json!({
            "transfer": objects(&sandbox, "new-transfers.csv", &["amount"]),
            "branch:in:city": objects(&sandbox, "new-places.csv", &[]),
        });
        let columns = json!({ "new": { "rows": rows, "edges": edges } });
        let service = Service::start(&sandbox, "run");
        let mut client = service.client();
        let (status, document) = client.predict(&columns);
        assert_eq!(status, 200, "{document}");
        assert_eq!(bits(&document), expected, "{model}");
        assert_eq!(document["predictions"][0]["key"], "acc-100");
        let features = by_features(&whole);
        let (status, by_rows) = client.predict(&features);
        if model == "sage-edge" {
            assert_eq!(status, 422, "{by_rows}");
            assert!(
                by_rows["error"]["why"].as_str().unwrap().contains("listed edges have none"),
                "{by_rows}"
            );
            continue;
        }
        assert_eq!(status, 200, "{by_rows}");
        assert_eq!(bits(&by_rows), expected, "{model}");
        assert_eq!(by_rows["new_edges"], document["new_edges"]);
        let drawn = |question: &Value, seed: u64| {
            let mut question = question.clone();
            question["seed"] = seed.into();
            bits(&service.client().predict(&question).1)
        };
        assert_eq!(drawn(&columns, 5), drawn(&features, 5));
        assert_ne!(drawn(&columns, 5), drawn(&columns, 6));
        // known nodes are as before
        let known = written(&sandbox, "");
        assert_eq!(bits(&client.predict(&json!({ "ids": (0..NEW[0]).collect::<Vec<_>>() })).1), known);
        assert_eq!(bits(&document).len(), 3 * (ACCOUNTS - NEW[0]));
    }
}

#[test]
fn runs_of_models_with_edge_features_are_served() {
    let sandbox = Sandbox::new();
    let rows = |header: &str, row: &dyn Fn(usize) -> String| {
        format!("{header}\n") + &(0..120).map(row).collect::<String>()
    };
    let kind = |i: usize| ["person", "shop"][i % 2];
    let accounts = rows("id,kind,age", &|i| format!("acc-{i},{},{}\n", kind(i), i * 7919 % 50));
    sandbox.write("accounts.csv", accounts);
    let transfers = |i: usize| format!("acc-{},acc-{i},{}\n", (i * 31 + 7) % 120, 40 + i * 13 % 30);
    sandbox.write("transfers.csv", rows("from,to,amount", &transfers));
    let tables = "--nodes accounts.csv --id id --label kind --edges transfers.csv --src from --dst to";
    sandbox.ok(&format!("import tables accounts {tables} --edge-features amount"));
    sandbox.ok("train accounts --model gine --fanout 4,3 --hidden 8 --batch-size 64 --epochs 1 --out run");
    let expected = written(&sandbox, "");
    let service = Service::start(&sandbox, "run");
    let mut client = service.client();
    assert_eq!(bits(&client.predict(&json!({ "ids": (0..120).collect::<Vec<_>>() })).1), expected);
    let (status, one) = client.predict(&json!({ "keys": ["acc-7"] }));
    assert_eq!((status, bits(&one)), (200, expected[14..16].to_vec()));
    sandbox.write("new.csv", "id,age\nnew,30\n");
    sandbox.write("paid.csv", "from,to,amount\nacc-3,new,55\nnew,acc-9,41\n");
    let expected = written(&sandbox, "--on new.csv --edges paid.csv");
    let paid = |amount: f64| {
        let edges = json!([
            { "from": "acc-3", "to": "new", "amount": amount },
            { "from": "new", "to": "acc-9", "amount": 41 },
        ]);
        json!({ "new": { "rows": [{ "id": "new", "age": 30 }], "edges": edges } })
    };
    let (status, document) = client.predict(&paid(55.0));
    assert_eq!((status, bits(&document)), (200, expected.clone()), "{document}");
    assert_ne!(bits(&client.predict(&paid(80.0)).1), expected);
}

#[test]
fn faults_of_new_nodes_name_their_type() {
    let sandbox = trained("--model rsage");
    let service = Service::start(&sandbox, "run");
    let mut client = service.client();
    let row = json!({ "account_id": "x", "country": "DE", "age": 30, "branch_id": "b1" });
    for (new, says) in [
        (json!({ "rows": { "acount": [row] } }), "'acount' is not the node type"),
        (json!({ "rows": [row], "edges": { "transfr": [{ "from": "x", "to": "acc-001" }] } }), "'transfr'"),
        (json!({ "rows": { "branch": [{ "branch_id": "b9", "staff": 4 }] } }), "predicts nodes of 'account'"),
        (json!({ "rows": { "branch": [] } }), "no nodes"),
        (json!({ "features": [[1.0]] }), "1 features"),
        (json!({ "features": { "acount": [[1.0]] } }), "'acount'"),
        (json!({ "features": { "account": [[1.0]] } }), "rows of 1 features"),
        (json!({ "features": { "account": [[1.0], [1.0, 2.0]] } }), "row 1 of 'account'"),
        (json!({ "features": { "account": [[1.0]] }, "edges": [[0, 1]] }), "edges are not"),
        (json!({ "features": { "account": [[1.0]] }, "edges": { "transfer": [["acc-1", 1]] } }), "two ids"),
    ] {
        let (status, document) = client.predict(&json!({ "new": new }));
        assert_eq!(status, 422, "{new}: {document}");
        assert!(document["error"]["why"].as_str().unwrap().contains(says), "{new}: {document}");
    }
}
