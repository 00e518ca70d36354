//! `graphmill serve` over sockets: answers are those of `predict`, whatever is asked at the same
//! time, and neither a reload nor a stop loses a request.

#[cfg(feature = "serve")]
use crate::client;
use crate::common::Sandbox;

#[cfg(not(feature = "serve"))]
#[test]
fn the_service_needs_a_feature_of_the_program() {
    let outcome = Sandbox::new().run("serve runs/a");
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("build it with `--features serve`"), "{}", outcome.stderr);
}

#[cfg(feature = "serve")]
mod with_service {
    use std::{
        collections::HashMap,
        fs,
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
        time::Duration,
    };

    use serde_json::{Value, json};

    use super::{Sandbox, client::Service};

    const TRAIN: &str = "--epochs 1 --hidden 8 --fanout 3,2 --batch-size 256 --max-batches 2 --eval-nodes 50";

    /// Two runs of different seeds on one dataset.
    fn trained() -> Sandbox {
        let sandbox = Sandbox::new();
        sandbox.ok("generate sbm data --nodes 400 --classes 4 --dim 8");
        for (run, seed) in [("a", 1), ("b", 2)] {
            sandbox.ok(&format!("train data --out {run} --seed {seed} {TRAIN}"));
        }
        sandbox
    }

    /// Scores of all nodes by `predict`.
    fn predicted(sandbox: &Sandbox, run: &str) -> Vec<Vec<f32>> {
        let out = format!("{run}.npy");
        sandbox.ok(&format!("predict {run} --probabilities --out {out} --force"));
        let (shape, values) = sandbox.floats(&out);
        values.chunks(shape[1]).map(<[f32]>::to_vec).collect()
    }

    /// Scores in an answer, by node.
    fn scores(document: &Value) -> Vec<(usize, Vec<f32>)> {
        let number = |x: &Value| x.to_string().parse::<f32>().unwrap();
        let of = |one: &Value| {
            let scores = one["probabilities"].as_array().unwrap().iter().map(number).collect();
            (one["id"].as_u64().unwrap() as usize, scores)
        };
        document["predictions"].as_array().unwrap().iter().map(of).collect()
    }

    #[test]
    fn answers_are_those_of_predict_alone_and_together() {
        let sandbox = trained();
        let expected = predicted(&sandbox, "a");
        let service = Service::start(&sandbox, "a --batch-window 2");
        let mut drawn = HashMap::new();
        for v in 0..40 {
            let (status, one) = service.client().predict(&json!({ "ids": [v], "seed": 9 }));
            assert_eq!(status, 200, "{one}");
            drawn.insert(v, scores(&one)[0].1.clone());
        }
        thread::scope(|scope| {
            for c in 0..6usize {
                let (service, expected, drawn) = (&service, &expected, &drawn);
                scope.spawn(move || {
                    let mut client = service.client();
                    for round in 0..70 {
                        let ids: Vec<usize> =
                            (0..1 + (c + round) % 9).map(|i| (c * 67 + round * 7 + i * 31) % 400).collect();
                        let (status, all) = client.predict(&json!({ "ids": ids }));
                        assert_eq!(status, 200, "{all}");
                        let found = scores(&all);
                        assert!(found.iter().map(|one| one.0).eq(ids.iter().copied()));
                        for (v, scores) in found {
                            assert_eq!(scores, expected[v], "node {v}");
                        }
                        let v = (c + round * 3) % 40;
                        let (_, one) = client.predict(&json!({ "ids": [v, (v + 1) % 40], "seed": 9 }));
                        assert_eq!(scores(&one)[0].1, drawn[&v], "node {v} by seed");
                    }
                });
            }
        });
        let mut client = service.client();
        for first in (0..400).step_by(50) {
            let (_, all) = client.predict(&json!({ "ids": (first..first + 50).collect::<Vec<_>>() }));
            scores(&all).into_iter().for_each(|(v, scores)| assert_eq!(scores, expected[v]));
        }
        let (_, best) = client.predict(&json!({ "ids": [5], "top_k": 2 }));
        let top = best["predictions"][0]["top"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["class"]), (2, &best["predictions"][0]["class"]));
        let metrics = client.get("/metrics").1;
        let text = metrics.as_str().unwrap();
        assert!(text.contains("graphmill_requests_total{endpoint=\"/v1/predict\",status=\"200\"}"), "{text}");
        assert!(text.contains("graphmill_batch_nodes_bucket"), "{text}");
    }

    #[test]
    fn wrong_requests_say_what_why_and_how_to_fix_it() {
        let sandbox = trained();
        sandbox.write("token.txt", "0123456789abcdef0123456789abcdef\n");
        let service = Service::start(&sandbox, "a --token-file token.txt --max-nodes 3 --max-body 200");
        assert_eq!(service.client().get("/healthz").0, 200);
        assert_eq!(service.client().get("/openapi.json").1["openapi"], "3.1.0");
        for (token, status) in [("", 401), ("0123456789abcdef0123456789abcdeF", 401)] {
            let mut client = service.client().with_token(token);
            assert_eq!(client.predict(&json!({ "ids": [1] })).0, status);
            assert_eq!(client.get("/metrics").0, status);
            assert_eq!(client.post("/v1/reload", "{}").0, status);
        }
        let mut client = service.client().with_token("0123456789abcdef0123456789abcdef");
        assert_eq!(client.predict(&json!({ "ids": [1] })).0, 200);
        for (body, status, says) in [
            ("{\"ids\": [1]", 400, "EOF"),
            ("{\"nodes\": [1]}", 400, "unknown field"),
            ("{}", 422, "no nodes"),
            ("{\"ids\": [400]}", 422, "400 nodes"),
            ("{\"keys\": [\"x\"]}", 422, "no keys"),
            ("{\"ids\": [1], \"seed\": 1, \"exact\": true}", 422, "seed"),
            ("{\"ids\": [1], \"top_k\": 0}", 422, "top_k"),
            ("{\"ids\": [1, 2, 3, 4]}", 413, "4 nodes"),
            (&" ".repeat(201), 413, "200 bytes"),
        ] {
            let (found, document) = client.post("/v1/predict", body);
            assert_eq!(found, status, "{body}: {document}");
            let error = &document["error"];
            assert!(error["why"].as_str().unwrap().contains(says), "{body}: {document}");
            assert!(error["what"].is_string() && error["fix"].is_string(), "{document}");
        }
        assert_eq!(client.get("/v1/predict").0, 405);
        assert_eq!(client.get("/nothing").0, 404);
        let open = sandbox.run("serve a --listen 0.0.0.0:0");
        assert_eq!(open.status, Some(2));
        assert!(open.stderr.contains("--token-file"), "{}", open.stderr);
    }

    #[test]
    fn a_full_service_refuses_with_a_reason() {
        let sandbox = trained();
        let service = Service::start(&sandbox, "a --max-requests 1 --batch-window 1500");
        thread::scope(|scope| {
            let first = scope.spawn(|| service.client().predict(&json!({ "ids": [1] })).0);
            thread::sleep(Duration::from_millis(400));
            let (status, document) = service.client().predict(&json!({ "ids": [2] }));
            assert_eq!(status, 503, "{document}");
            assert!(document["error"]["fix"].as_str().unwrap().contains("--max-requests"));
            assert_eq!(first.join().unwrap(), 200);
        });
    }

    #[test]
    fn reloads_lose_no_request_and_mix_no_answer() {
        let sandbox = trained();
        let expected = ["a", "b"].map(|run| predicted(&sandbox, run));
        let link = sandbox.path("current");
        let point = |to: &str| {
            let next = sandbox.path("next");
            std::os::unix::fs::symlink(sandbox.path(to), &next).unwrap();
            fs::rename(&next, &link).unwrap();
        };
        point("a");
        let service = Service::start(&sandbox, "current");
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let asking: Vec<_> = (0..4usize)
                .map(|c| {
                    let (service, expected, ended) = (&service, &expected, &ended);
                    scope.spawn(move || {
                        let (mut client, mut seen) = (service.client(), [0, 0]);
                        for round in 0.. {
                            if ended.load(Relaxed) {
                                break;
                            }
                            let ids = [0, 1, 2].map(|i| (c * 67 + round * 7 + i * 31) % 400);
                            let (status, all) = client.predict(&json!({ "ids": ids }));
                            assert_eq!(status, 200, "{all}");
                            let found = scores(&all);
                            let of = |run: &Vec<Vec<f32>>| found.iter().all(|(v, scores)| *scores == run[*v]);
                            let run = expected.iter().position(of);
                            seen[run.expect("an answer is wholly of one run")] += 1;
                        }
                        seen
                    })
                })
                .collect();
            let mut client = service.client();
            for to in ["b", "a", "b"] {
                point(to);
                assert_eq!(client.post("/v1/reload", "{}").0, 200);
                let (_, one) = client.predict(&json!({ "ids": [3] }));
                assert_eq!(scores(&one)[0].1, expected[usize::from(to == "b")][3], "{to} answers");
            }
            point("data");
            let (status, document) = client.post("/v1/reload", "{}");
            assert_eq!(status, 422, "{document}");
            point("a");
            service.signal("HUP");
            thread::sleep(Duration::from_millis(300));
            ended.store(true, Relaxed);
            for thread in asking {
                assert!(thread.join().unwrap().iter().all(|&count| count > 0));
            }
        });
    }

    #[test]
    fn a_stop_answers_the_requests_in_flight() {
        for signal in ["TERM", "INT"] {
            let sandbox = trained();
            let service = Service::start(&sandbox, "a --batch-window 700");
            thread::scope(|scope| {
                let asked = scope.spawn(|| service.client().predict(&json!({ "ids": [1] })).0);
                thread::sleep(Duration::from_millis(250));
                service.signal(signal);
                assert_eq!(asked.join().unwrap(), 200);
            });
            assert_eq!(service.end(), Some(0), "{signal}");
        }
    }
}
