//! `graphmill serve` of runs on events: candidates, scores and embeddings as of a time have the
//! bits of `predict --top-k --at` and `embed --at`.

use serde_json::{Value, json};

use crate::{
    client::{Client, Service},
    common::Sandbox,
    serve_links::{Lists, bits, predicted},
};

/// Models of events, each with a run of its own.
const MODELS: [&str; 5] = ["tgn", "tgat", "jodie", "graphmixer", "dygformer"];
/// A time between events.
const AT: i64 = 15_030;

/// User, item and time of visit number `e`, from 1 on.
fn visit(e: u32) -> (u32, u32, u32) {
    let user = 1 + (e * 7919 + e / 40) % 12;
    (user, 13 + (user * 3 + e / 100) % 8, e * 60)
}

/// Visits of 12 users to 8 items, imported as `visits`.
fn visits() -> Sandbox {
    let sandbox = Sandbox::new();
    let mut text = String::from("u,i,ts,label,idx,f\n");
    for (e, (user, item, time)) in (1..=400).map(|e| (e, visit(e))) {
        text += &format!("{user},{item},{time},0,{e},{}\n", e % 5);
    }
    sandbox.write("ml_visits.csv", text);
    sandbox.ok("import events ml_visits.csv visits");
    sandbox
}

/// A run of a model.
fn train(sandbox: &Sandbox, model: &str) {
    let own = if model == "dygformer" { "" } else { "--time-dim 4" };
    sandbox.ok(&format!(
        "train visits --model {model} --hidden 8 {own} --epochs 1 --lr 0.01 --batch-size 50 --out {model}"
    ));
}

/// Posts a question that is answered.
fn ask(client: &mut Client, endpoint: &str, question: &Value) -> Value {
    let (status, document) = client.post(&format!("/v1/links/{endpoint}"), &question.to_string());
    assert_eq!(status, 200, "{endpoint} {question}: {document}");
    document
}

/// Candidates of an answer.
fn lists(document: &Value) -> Lists {
    let text = |key: &Value| key.as_str().unwrap().to_owned();
    let of_node = |one: &Value| {
        let pair = |candidate: &Value| (text(&candidate["key"]), bits(&candidate["score"]));
        (text(&one["key"]), one["top"].as_array().unwrap().iter().map(pair).collect())
    };
    document["predictions"].as_array().unwrap().iter().map(of_node).collect()
}

/// A question with a time, or without one.
fn at(mut question: Value, time: Option<i64>) -> Value {
    if let Some(time) = time {
        question["at"] = time.into();
    }
    question
}

#[test]
fn every_model_of_events_answers_as_of_a_time_as_by_predict_and_embed() {
    let sandbox = visits();
    for model in MODELS {
        train(&sandbox, model);
        let service = Service::start(&sandbox, model);
        let mut client = service.client();
        let health = client.get("/healthz").1;
        assert_eq!((&health["task"], &health["end_time"]), (&json!("links"), &json!(24_001)), "{health}");
        let users: Vec<usize> = (0..12).collect();
        for (number, time) in
            [None, Some(AT), Some(30_000), Some(AT), Some(7_000), Some(0)].into_iter().enumerate()
        {
            let option = time.map(|time| format!("--at {time}")).unwrap_or_default();
            let expected = predicted(&sandbox, &format!("{model} --top-k 3 {option}"));
            let question = at(json!({ "ids": users, "top_k": 3 }), time);
            assert_eq!(lists(&ask(&mut client, "top", &question)), expected, "{model} {time:?}");
            let one = ask(&mut client, "top", &at(json!({ "keys": ["3"], "top_k": 3 }), time));
            assert_eq!(lists(&one)["3"], expected["3"], "{model} {time:?}: a user alone");
            let pairs: Vec<[&str; 2]> =
                expected.iter().flat_map(|(u, list)| list.iter().map(|(v, _)| [&u[..], &v[..]])).collect();
            let scores = ask(&mut client, "score", &at(json!({ "keys": pairs }), time));
            let scores: Vec<u32> =
                scores["scores"].as_array().unwrap().iter().map(|one| bits(&one["score"])).collect();
            let of_lists: Vec<u32> = expected.values().flatten().map(|pair| pair.1).collect();
            assert_eq!(scores, of_lists, "{model} {time:?}: pairs");
            if model == "dygformer" {
                continue;
            }
            let out = format!("{model}-{number}.npy");
            sandbox.ok(&format!("embed {model} --node-type item {option} --out {out}"));
            let rows: Vec<u32> = sandbox.floats(&out).1.iter().map(|x| x.to_bits()).collect();
            let ids: Vec<usize> = (0..8).collect();
            let question = at(json!({ "ids": ids, "node_type": "item" }), time);
            let document = ask(&mut client, "embed", &question);
            let found = document["embeddings"].as_array().unwrap().iter();
            let found = found.flat_map(|one| one["embedding"].as_array().unwrap()).map(bits);
            assert_eq!(found.collect::<Vec<_>>(), rows, "{model} {time:?}: embeddings");
        }
    }
}

/// New visits of a range, by ids or by keys.
fn new_visits(range: std::ops::RangeInclusive<u32>, by_keys: bool) -> Value {
    let visits: Vec<_> = range.map(visit).collect();
    let times: Vec<u32> = visits.iter().map(|visit| visit.2).collect();
    if by_keys {
        let keys: Vec<[String; 2]> = visits.iter().map(|v| [v.0.to_string(), v.1.to_string()]).collect();
        return json!({ "keys": keys, "times": times });
    }
    let ids: Vec<[u32; 2]> = visits.iter().map(|visit| [visit.0 - 1, visit.1 - 13]).collect();
    json!({ "ids": ids, "times": times })
}

#[test]
fn new_events_change_the_answers_until_a_reload() {
    let sandbox = visits();
    train(&sandbox, "tgn");
    let [one, other] = [(); 2].map(|()| Service::start(&sandbox, "tgn"));
    let [mut one, mut other] = [one.client(), other.client()];
    let users: Vec<usize> = (0..12).collect();
    let question = json!({ "ids": users, "top_k": 3 });
    let before = lists(&ask(&mut one, "top", &question));
    let add = |client: &mut Client, events: &Value| client.post("/v1/events", &events.to_string());
    // all at once by ids, or in parts by keys
    let (status, document) = add(&mut one, &new_visits(401..=470, false));
    assert_eq!(status, 200, "{document}");
    let expected = json!({ "status": "added", "added": 70, "events": 470, "end_time": 470 * 60 + 1 });
    assert_eq!(document, expected);
    for range in [401..=401, 402..=455, 456..=470] {
        assert_eq!(add(&mut other, &new_visits(range, true)).0, 200);
    }
    let after = lists(&ask(&mut one, "top", &question));
    assert_ne!(before, after);
    assert_eq!(after, lists(&ask(&mut other, "top", &question)));
    // as of a time before them nothing has changed
    assert_eq!(lists(&ask(&mut one, "top", &at(question.clone(), Some(400 * 60 + 1)))), before);
    let health = one.get("/healthz").1;
    assert_eq!((&health["events"], &health["end_time"]), (&json!(470), &json!(28_201)), "{health}");
    for (body, status, says) in [
        (new_visits(1..=2, false), 422, "event 0 at time 60 follows one at time 28200"),
        (json!({ "ids": [[0, 1]], "times": [99_999], "features": [[1, 2]] }), 422, "have 0"),
        (json!({ "ids": [[0, 8]], "times": [99_999] }), 422, "node 8"),
        (json!({ "ids": [[0, 1]], "times": [] }), 422, "1 pairs and 0 times"),
        (json!({ "keys": [["ann", "13"]], "times": [99_999] }), 422, "ann"),
        (json!({ "ids": [[0, 1]] }), 400, "times"),
    ] {
        let (found, document) = add(&mut one, &body);
        assert_eq!(found, status, "{body}: {document}");
        assert!(document["error"]["why"].as_str().unwrap().contains(says), "{body}: {document}");
    }
    assert_eq!(after, lists(&ask(&mut one, "top", &question)), "refused events change nothing");
    assert_eq!(one.post("/v1/reload", "{}").0, 200);
    assert_eq!(before, lists(&ask(&mut one, "top", &question)));
}

#[test]
fn questions_that_do_not_fit_events_are_refused() {
    let sandbox = visits();
    train(&sandbox, "dygformer");
    let service = Service::start(&sandbox, "dygformer");
    let mut client = service.client();
    for (endpoint, body, status, says) in [
        ("links/top", json!({ "ids": [1], "top_k": 2, "sources": true }), 422, "ranks destinations"),
        ("links/top", json!({ "ids": [12], "top_k": 2 }), 422, "12 nodes of type 'user'"),
        ("links/top", json!({ "ids": [1], "top_k": 2, "at": "noon" }), 400, "invalid type"),
        ("links/score", json!({ "ids": [[1, 8]] }), 422, "node 8"),
        ("links/embed", json!({ "ids": [1] }), 422, "has no embedding"),
        ("predict", json!({ "ids": [1] }), 422, "the run learned links"),
    ] {
        let (found, document) = client.post(&format!("/v1/{endpoint}"), &body.to_string());
        assert_eq!(found, status, "{endpoint} {body}: {document}");
        assert!(document["error"]["why"].as_str().unwrap().contains(says), "{endpoint} {body}: {document}");
    }
    let outcome = sandbox.run("serve dygformer --all-edges --listen 127.0.0.1:0");
    assert!(outcome.stderr.contains("--all-edges: the run learned events"), "{}", outcome.stderr);
    let outcome = sandbox.run("serve dygformer --cache-embeddings bottom --listen 127.0.0.1:0");
    assert!(outcome.stderr.contains("always kept"), "{}", outcome.stderr);
    sandbox.ok("generate sbm data --nodes 200 --classes 4 --dim 8");
    sandbox.ok("train data --task link --hidden 8 --fanout 3,3 --epochs 1 --batch-size 512 --out links");
    let service = Service::start(&sandbox, "links");
    for (endpoint, body) in [
        ("top", json!({ "ids": [1], "top_k": 2, "at": 5 })),
        ("score", json!({ "ids": [[1, 2]], "at": 5 })),
        ("embed", json!({ "ids": [1], "at": 5 })),
    ] {
        let (status, document) = service.client().post(&format!("/v1/links/{endpoint}"), &body.to_string());
        assert_eq!(status, 422, "{endpoint}: {document}");
        assert!(document["error"]["why"].as_str().unwrap().contains("streams of events"), "{document}");
    }
    let (status, document) = service.client().post("/v1/events", "{\"ids\": [[1, 2]], \"times\": [5]}");
    assert_eq!(status, 422, "{document}");
    assert!(document["error"]["why"].as_str().unwrap().contains("learned no stream"), "{document}");
}
