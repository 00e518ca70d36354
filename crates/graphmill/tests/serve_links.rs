//! `graphmill serve` of runs on links: candidates, scores and embeddings have the bits of `predict
//! --top-k` and `embed`.

use std::collections::BTreeMap;

use arrow_array::{RecordBatch, cast::AsArray, types::Float32Type};
use graphmill_data::Dataset;
use serde_json::{Value, json};

use crate::{
    client::{Client, Service, batch},
    common::Sandbox,
};

const TRAIN: &str = "--hidden 8 --fanout 3,3 --epochs 1 --batch-size 512";

/// Candidates and bits of the scores of each source.
pub(crate) type Lists = BTreeMap<String, Vec<(String, u32)>>;

/// Candidates that a command writes, by keys or ids.
pub(crate) fn predicted(sandbox: &Sandbox, args: &str) -> Lists {
    sandbox.ok(&format!("predict {args} --out top.csv --force"));
    let text = String::from_utf8(sandbox.read("top.csv")).unwrap();
    let mut lists = Lists::new();
    for line in text.lines().skip(1) {
        let [source, candidate, score] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let score = score.parse::<f32>().unwrap().to_bits();
        lists.entry(source.into()).or_default().push((candidate.into(), score));
    }
    lists
}

/// Bits of a number in a document.
pub(crate) fn bits(score: &Value) -> u32 {
    score.to_string().parse::<f32>().unwrap().to_bits()
}

/// Key of a node in a document, or its id.
fn name(node: &Value) -> String {
    node["key"].as_str().map_or_else(|| node["id"].to_string(), str::to_owned)
}

/// Posts a question that is answered.
fn ask(client: &mut Client, endpoint: &str, question: &Value) -> Value {
    let (status, document) = client.post(&format!("/v1/links/{endpoint}"), &question.to_string());
    assert_eq!(status, 200, "{endpoint} {question}: {document}");
    document
}

/// The record batch of an answer in Arrow.
fn ask_for_arrow(client: &mut Client, endpoint: &str, question: &Value) -> RecordBatch {
    let (status, bytes) = client.post_for_arrow(&format!("/v1/links/{endpoint}"), question);
    assert_eq!(status, 200, "{endpoint} {question}: {}", String::from_utf8_lossy(&bytes));
    batch(&bytes)
}

/// Candidates of an answer; nodes without candidates are left out, as in a table.
fn lists(document: &Value) -> Lists {
    let of_node = |one: &Value| {
        let pair = |candidate: &Value| (name(candidate), bits(&candidate["score"]));
        (name(one), one["top"].as_array().unwrap().iter().map(pair).collect::<Vec<_>>())
    };
    let all = document["predictions"].as_array().unwrap().iter().map(of_node);
    all.filter(|(_, list)| !list.is_empty()).collect()
}

/// Bits of the scores of pairs in an answer.
fn scores(document: &Value) -> Vec<u32> {
    document["scores"].as_array().unwrap().iter().map(|one| bits(&one["score"])).collect()
}

/// Bits of the embeddings in an answer, row by row.
fn rows(document: &Value) -> Vec<u32> {
    let rows = document["embeddings"].as_array().unwrap().iter();
    rows.flat_map(|one| one["embedding"].as_array().unwrap().iter().map(bits)).collect()
}

/// Every pair of `lists` as a question for scores by ids, and the bits that they have there.
fn pairs(lists: &Lists) -> (Vec<[u32; 2]>, Vec<u32>) {
    let id = |id: &String| id.parse::<u32>().unwrap();
    let pairs = lists.iter().flat_map(|(source, list)| {
        list.iter().map(move |(candidate, score)| ([id(source), id(candidate)], *score))
    });
    // neither by source nor by destination
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by_key(|([u, v], _)| (u * 31 + v * 17) % 101);
    pairs.into_iter().unzip()
}

#[test]
fn links_of_one_type_are_answered_as_by_predict_and_embed() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 300 --classes 4 --dim 8");
    let data = Dataset::open(sandbox.path("data")).unwrap();
    let count = data.num_nodes();
    sandbox.ok(&format!("train data --task link {TRAIN} --decoder cosine --seed 3 --out run"));
    let expected = predicted(&sandbox, "run --top-k 6 --threads 1");
    let by_sources = predicted(&sandbox, "run --top-k 3 --sources");
    sandbox.ok("embed run --out rows.npy");
    let embedded: Vec<u32> = sandbox.floats("rows.npy").1.iter().map(|x| x.to_bits()).collect();
    let service = Service::start(&sandbox, "run --max-nodes 2000 --batch-window 2");
    assert_eq!(service.client().get("/healthz").1["relations"][0]["name"], "link");
    // in parts of several sizes, from several clients at once
    std::thread::scope(|scope| {
        for step in [1, 7, 50] {
            let (service, expected) = (&service, &expected);
            scope.spawn(move || {
                let mut client = service.client();
                let all: Vec<usize> = (0..count.min(40 * step)).collect();
                for ids in all.chunks(step) {
                    let found = lists(&ask(&mut client, "top", &json!({ "ids": ids, "top_k": 6 })));
                    let own = ids.iter().map(usize::to_string);
                    let own: Lists =
                        own.filter_map(|id| Some((id.clone(), expected.get(&id)?.clone()))).collect();
                    assert_eq!(found, own);
                }
            });
        }
    });
    let mut client = service.client();
    let ids: Vec<usize> = (0..count).collect();
    let question = json!({ "ids": ids, "top_k": 3, "sources": true });
    assert_eq!(lists(&ask(&mut client, "top", &question)), by_sources);
    let (asked, own) = pairs(&expected);
    for (pairs, own) in asked.chunks(700).zip(own.chunks(700)) {
        assert_eq!(scores(&ask(&mut client, "score", &json!({ "ids": pairs }))), own);
    }
    assert_eq!(scores(&ask(&mut client, "score", &json!({ "ids": [asked[5]] }))), own[5..6]);
    assert_eq!(rows(&ask(&mut client, "embed", &json!({ "ids": ids }))), embedded);
    // known edges are left out unless they are asked for; their scores are those of pairs
    let known = data.graph.in_neighbors(7)[0];
    let every = |known| json!({ "ids": [7], "top_k": 1_000_000, "include_known": known });
    let [without, with] =
        [false, true].map(|known| lists(&ask(&mut client, "top", &every(known)))["7"].clone());
    assert_eq!((with.len(), without.len() < with.len()), (count - 1, true));
    assert!(without.iter().all(|pair| with.contains(pair) && pair.0 != known.to_string()));
    let of_known = with.iter().find(|pair| pair.0 == known.to_string()).unwrap().1;
    assert_eq!(scores(&ask(&mut client, "score", &json!({ "ids": [[7, known]] }))), [of_known]);
}

#[test]
fn all_edges_are_read_if_they_are_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 200 --classes 4 --dim 8");
    sandbox.ok(&format!("train data --task link {TRAIN} --out run"));
    sandbox.ok(&format!("train data {TRAIN} --out classes"));
    let expected = predicted(&sandbox, "run --top-k 2 --all-edges");
    let service = Service::start(&sandbox, "run --all-edges");
    let ids: Vec<usize> = (0..200).collect();
    let found = lists(&ask(&mut service.client(), "top", &json!({ "ids": ids, "top_k": 2 })));
    assert_eq!(found, expected);
    for (args, why) in [
        ("classes --all-edges", "only runs on links leave out edges"),
        ("run --cache-embeddings bottom", "whose embeddings are always kept"),
        ("run --max-candidates 0", "--max-candidates 0"),
    ] {
        let outcome = sandbox.run(&format!("serve {args} --listen 127.0.0.1:0"));
        assert!(outcome.status == Some(2) && outcome.stderr.contains(why), "{args}: {}", outcome.stderr);
    }
}

#[test]
fn recommendations_have_keys_in_json_and_arrow() {
    let sandbox = Sandbox::new();
    sandbox.write("from/train.txt", "ann tea milk\nbob tea cake\neve milk cake\nzed tea\n");
    sandbox.write("from/test.txt", "ann cake\nbob milk\n");
    sandbox.ok("import interactions from shop");
    sandbox.ok("train shop --model lightgcn --hidden 8 --epochs 2 --batch-size 4 --seed 1 --out run");
    let expected = predicted(&sandbox, "run --top-k 5");
    let service = Service::start(&sandbox, "run");
    let mut client = service.client();
    let health = client.get("/healthz").1;
    let relation = &health["relations"][0];
    assert_eq!((&relation["source"], &relation["destination"]), (&json!("user"), &json!("item")));
    assert_eq!((&health["task"], &health["nodes"]), (&json!("links"), &json!(7)));
    let users = json!({ "keys": ["zed", "ann", "eve", "bob"], "top_k": 5 });
    let document = ask(&mut client, "top", &users);
    assert_eq!(lists(&document), expected);
    // the known edges of ann and bob are all items
    assert_eq!(document["predictions"][1]["top"], json!([]));
    let tea = ask(&mut client, "top", &json!({ "keys": ["tea"], "top_k": 5, "sources": true }));
    assert_eq!(lists(&tea), predicted(&sandbox, "run --top-k 5 --sources --nodes tea"));
    let pairs = json!({ "keys": [["zed", "cake"], ["eve", "tea"], ["zed", "milk"]] });
    let document = ask(&mut client, "score", &pairs);
    let score = |source: &str, item: &str| expected[source].iter().find(|pair| pair.0 == item).unwrap().1;
    assert_eq!(scores(&document), [score("zed", "cake"), score("eve", "tea"), score("zed", "milk")]);
    assert_eq!(document["scores"][1]["destination_key"], "tea");
    let items = ask(&mut client, "embed", &json!({ "keys": ["milk"], "node_type": "item" }));
    sandbox.ok("embed run --node-type item --nodes milk --out milk.npy");
    let milk: Vec<u32> = sandbox.floats("milk.npy").1.iter().map(|x| x.to_bits()).collect();
    assert_eq!((rows(&items), &items["embeddings"][0]["key"]), (milk, &json!("milk")));

    let batch = ask_for_arrow(&mut client, "top", &users);
    let texts = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>();
    let values = batch.column_by_name("score").unwrap().as_primitive::<Float32Type>();
    let mut found = Lists::new();
    for i in 0..batch.num_rows() {
        let pair = (texts("candidate_key").value(i).to_owned(), values.value(i).to_bits());
        found.entry(texts("source_key").value(i).into()).or_default().push(pair);
    }
    assert_eq!(found, expected);
    let batch = ask_for_arrow(&mut client, "score", &pairs);
    let values = batch.column_by_name("score").unwrap().as_primitive::<Float32Type>();
    assert_eq!(values.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>(), scores(&document));
    let batch = ask_for_arrow(&mut client, "embed", &json!({ "ids": [0, 2] }));
    assert_eq!(batch.column_by_name("embedding").unwrap().as_fixed_size_list().value_length(), 8);
}

#[test]
fn a_knowledge_graph_is_asked_by_relation_and_reloaded() {
    let sandbox = Sandbox::new();
    let lines = |keep: fn(u32) -> bool| {
        let days = (0..30).filter(|day| keep(day % 10));
        days.map(|d| format!("d{d}\tbefore\td{}\nd{}\tafter\td{d}\n", (d + 1) % 30, (d + 1) % 30))
            .collect::<String>()
    };
    sandbox.write("from/train.txt", lines(|day| day > 1));
    sandbox.write("from/valid.txt", lines(|day| day == 0));
    sandbox.write("from/test.txt", lines(|day| day == 1));
    sandbox.ok("import triples from days");
    let train = "train days --model embedding --hidden 16 --epochs 2 --batch-size 16 --seed 3";
    sandbox.ok(&format!("{train} --decoder complex --out a"));
    sandbox.ok(&format!("{train} --decoder rotate --out b"));
    let link = sandbox.path("current");
    let point = |to: &str| {
        let next = sandbox.path("next");
        std::os::unix::fs::symlink(sandbox.path(to), &next).unwrap();
        std::fs::rename(&next, &link).unwrap();
    };
    point("a");
    let service = Service::start(&sandbox, "current");
    let mut client = service.client();
    let ids: Vec<usize> = (0..30).collect();
    for run in ["a", "b"] {
        point(run);
        assert_eq!(client.post("/v1/reload", "{}").0, 200);
        for relation in ["before", "after"] {
            let expected = predicted(&sandbox, &format!("{run} --top-k 4 --relation {relation}"));
            let question = json!({ "ids": ids, "top_k": 4, "relation": relation });
            assert_eq!(lists(&ask(&mut client, "top", &question)), expected, "{run} {relation}");
            let (keys, own): (Vec<_>, Vec<_>) = expected
                .iter()
                .flat_map(|(source, list)| list.iter().map(move |(to, score)| ([source, to], *score)))
                .unzip();
            let question = json!({ "keys": keys, "relation": relation });
            assert_eq!(scores(&ask(&mut client, "score", &question)), own, "{run} {relation}");
        }
    }
    for (endpoint, body, status, says) in [
        ("top", json!({ "ids": [1], "top_k": 3 }), 422, "it has several relations; choose one"),
        ("top", json!({ "ids": [1], "top_k": 3, "relation": "beside" }), 422, "known: before, after"),
        ("top", json!({ "ids": [1] }), 400, "top_k"),
        ("embed", json!({ "ids": [1], "node_type": "day" }), 422, "known: entity"),
        ("embed", json!({ "keys": ["d77"] }), 422, "'d77'"),
    ] {
        let (found, document) = client.post(&format!("/v1/links/{endpoint}"), &body.to_string());
        assert_eq!(found, status, "{body}: {document}");
        let text = document["error"].to_string();
        assert!(says.split("; ").all(|part| text.contains(part)), "{body}: {document}");
    }
}

#[test]
fn links_of_several_types_are_answered_as_by_predict() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed papers --nodes 300 --classes 3 --feature-dim 4");
    let options = "--task author:writes:paper --hidden 8 --fanout 3,3 --epochs 1 --batch-size 64";
    sandbox.ok(&format!("train papers {options} --decoder mlp --out run"));
    let expected = predicted(&sandbox, "run --top-k 3");
    let service = Service::start(&sandbox, "run");
    let mut client = service.client();
    let ids: Vec<u32> = expected.keys().map(|id| id.parse().unwrap()).collect();
    let document = ask(&mut client, "top", &json!({ "ids": ids, "top_k": 3 }));
    assert_eq!(lists(&document), expected);
    let (mut asked, mut own) = (Vec::new(), Vec::new());
    for one in document["predictions"].as_array().unwrap() {
        for best in one["top"].as_array().unwrap() {
            asked.push(json!([one["id"], best["id"]]));
            own.push(bits(&best["score"]));
        }
    }
    assert_eq!(scores(&ask(&mut client, "score", &json!({ "ids": asked }))), own);
    sandbox.ok("embed run --node-type paper --out papers.npy");
    let (shape, values) = sandbox.floats("papers.npy");
    let ids: Vec<usize> = (0..shape[0]).collect();
    let document = ask(&mut client, "embed", &json!({ "ids": ids, "node_type": "paper" }));
    assert_eq!(rows(&document), values.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
}

#[test]
fn questions_of_the_other_kind_of_run_and_beyond_limits_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 200 --classes 4 --dim 8");
    sandbox.ok(&format!("train data --task link {TRAIN} --out links"));
    sandbox.ok(&format!("train data {TRAIN} --out classes"));
    let link = sandbox.path("current");
    std::os::unix::fs::symlink(sandbox.path("links"), &link).unwrap();
    let service = Service::start(&sandbox, "current --max-nodes 3 --max-candidates 50");
    let mut client = service.client();
    for (endpoint, body, status, says) in [
        ("predict", json!({ "ids": [1] }), 422, "the run learned links"),
        ("links/top", json!({ "ids": [1], "top_k": 0 }), 422, "top_k is 0"),
        ("links/top", json!({ "ids": [1], "top_k": 60 }), 413, "60 candidates"),
        ("links/top", json!({ "ids": [1, 2, 3, 4], "top_k": 1 }), 413, "4 nodes"),
        ("links/top", json!({ "ids": [200], "top_k": 1 }), 422, "200 nodes"),
        ("links/top", json!({ "ids": [], "top_k": 1 }), 422, "no nodes"),
        ("links/top", json!({ "ids": [1], "top_k": 1, "seed": 3 }), 400, "unknown field"),
        ("links/top", json!({ "ids": [1], "top_k": 1, "relation": "likes" }), 422, "'likes'"),
        ("links/score", json!({ "ids": [] }), 422, "no pairs"),
        ("links/score", json!({ "ids": [[1, 200]] }), 422, "node 200"),
        ("links/score", json!({ "ids": [1, 2] }), 400, "invalid type"),
        ("links/score", json!({ "keys": [["a", "b"]] }), 422, "no keys"),
        ("links/embed", json!({ "ids": [200] }), 422, "node 200"),
        ("links/embed", json!({ "ids": [1], "node_type": "user" }), 422, "'user'"),
    ] {
        let (found, document) = client.post(&format!("/v1/{endpoint}"), &body.to_string());
        assert_eq!(found, status, "{endpoint} {body}: {document}");
        let error = &document["error"];
        assert!(error["why"].as_str().unwrap().contains(says), "{endpoint} {body}: {document}");
        assert!(error["what"].is_string() && error["fix"].is_string(), "{document}");
    }
    // a reload may exchange the kind of the run, and the threads that compute are those of one kind
    #[cfg(target_os = "linux")]
    let old = service.batch_threads(&[]);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(sandbox.path("classes"), &link).unwrap();
    assert_eq!(client.post("/v1/reload", "{}").0, 200);
    #[cfg(target_os = "linux")]
    service.batch_threads(&old);
    assert_eq!(client.predict(&json!({ "ids": [1] })).0, 200);
    for endpoint in ["top", "score", "embed"] {
        let body = if endpoint == "score" { "{\"ids\": [[1, 2]]}" } else { "{\"ids\": [1], \"top_k\": 1}" };
        let (status, document) = client.post(&format!("/v1/links/{endpoint}"), body);
        assert_eq!((status, &document["error"]["fix"]), (422, &json!("ask /v1/predict")), "{document}");
    }
}
