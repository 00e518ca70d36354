//! A predictor answers for each node what `predict` writes, whichever nodes are asked for together
//! and by however many threads.

use std::path::Path;

use graphmill_core::{Labels, NodeId, features::FeatureData, progress};
use graphmill_data::{
    generate::{GenerateOptions, generate},
    npy,
    typed::Keys,
};
use graphmill_engine::{
    Dataset, Error, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    predictor::{Answers, Neighborhood, Predictor, Task},
    saved::{Kind, SavedRun},
    train,
};
use proptest::prelude::*;

const NODES: usize = 300;
const ALL: [NodeId; NODES] = {
    let mut all = [0; NODES];
    let mut v = 0;
    while v < NODES {
        all[v] = v as NodeId;
        v += 1;
    }
    all
};

fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: NODES, classes: 5, dim: 24, seed: 3, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.keys = Some(Keys::texts((0..NODES).map(|v| format!("acc-{}", v * 7919 % 1009))));
    data
}

/// A run of one epoch with these settings.
fn trained(dir: &Path, settings: &[(&str, &str)], data: &Dataset) -> SavedRun {
    let mut config = TrainConfig {
        hidden: 8,
        epochs: 1,
        batch_size: 64,
        fanout: "3,2".parse().unwrap(),
        ..TrainConfig::default()
    };
    for (name, value) in settings {
        match *name {
            "model" => config.model = (*value).into(),
            "sampler" => config.sampler = (*value).into(),
            "layers" => (config.layers, config.fanout) = (1, "3".parse().unwrap()),
            "metric" => config.metric = (*value).into(),
            "target_transform" => config.target_transform = value.parse().unwrap(),
            _ => unreachable!("a setting of the tests"),
        }
    }
    let run = RunDir::create(dir).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(&config, data, context).unwrap();
    SavedRun::open(dir, false).unwrap()
}

/// Values that `predict` writes for all nodes.
fn written(run: &SavedRun, data: &Dataset, kind: Kind, dir: &Path) -> npy::NpyFile {
    let out = dir.join(format!("{kind:?}.npy"));
    run.predict(data, None, false, kind, &out, &progress::Quiet).unwrap();
    npy::open(&out).unwrap()
}

/// Bits of the scores, which equal numbers must share.
fn bits(scores: &[f32]) -> Vec<u32> {
    scores.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn exact_answers_are_the_bits_of_predict() {
    for model in ["sage", "gcn", "gat", "gin"] {
        let dir = tempfile::tempdir().unwrap();
        let data = data();
        let run = trained(&dir.path().join("run"), &[("model", model)], &data);
        let expected: Vec<f32> = written(&run, &data, Kind::Probabilities, dir.path()).read_as_f32().unwrap();
        let classes: Vec<i64> = written(&run, &data, Kind::Classes, dir.path()).read_as_i64().unwrap();
        let embeddings: Vec<f32> = written(&run, &data, Kind::Embeddings, dir.path()).read_as_f32().unwrap();
        let predictor = Predictor::new(run, data).unwrap();
        assert_eq!((predictor.task(), predictor.num_scores()), (Task::Classes, 5));
        let all = predictor.predict(&ALL, Neighborhood::All).unwrap();
        assert_eq!((bits(&all.scores), &all.classes), (bits(&expected), &classes), "{model}");
        for v in ALL {
            let one = predictor.predict(&[v], Neighborhood::All).unwrap();
            assert_eq!(bits(&one.scores), bits(&all.part(v as usize, 1).scores), "{model}: node {v}");
            assert_eq!(one.classes, [classes[v as usize]]);
        }
        let (width, rows) = predictor.embed(&[7, 9], Neighborhood::All).unwrap();
        assert_eq!(bits(&rows[width..]), bits(&embeddings[9 * width..10 * width]));
    }
}

#[test]
fn cached_embeddings_change_no_bit_of_exact_answers() {
    let dir = tempfile::tempdir().unwrap();
    let last = ("layers", "1");
    for (model, more) in [
        ("sage", None),
        ("gcn", None),
        ("gat", None),
        ("gin", None),
        ("gcn", Some(("classes", "transform first"))),
        ("sage", Some(("sampler", "random-walk"))),
        ("sage", Some(last)),
    ] {
        let mut data = data();
        if let Some(("classes", _)) = more {
            // Fewer classes than hidden columns: the last layer multiplies before it aggregates.
            data.labels = Labels::Single {
                class: (0..NODES).map(|v| (v % 2) as i32).collect::<Vec<_>>().into(),
                classes: 2,
            };
        }
        let settings: Vec<_> =
            [("model", model)].into_iter().chain(more.filter(|m| m.0 != "classes")).collect();
        let path = dir.path().join(format!("{model}-{}", more.map_or("plain", |more| more.0)));
        let run = trained(&path, &settings, &data);
        let plain = Predictor::new(run, data.clone()).unwrap();
        let mut cached = Predictor::new(SavedRun::open(&path, false).unwrap(), data).unwrap();
        let (_, bytes) = cached.cache_embeddings(&progress::Quiet).unwrap();
        assert_eq!(bytes, if more == Some(last) { 0 } else { 4 * 8 * NODES as u64 }, "{model}");
        let expected = plain.predict(&ALL, Neighborhood::All).unwrap();
        let all = cached.predict(&ALL, Neighborhood::All).unwrap();
        assert_eq!(bits(&all.scores), bits(&expected.scores), "{model} {more:?}");
        for nodes in ALL.chunks(7) {
            let some = cached.predict(nodes, Neighborhood::All).unwrap();
            let part = expected.part(nodes[0] as usize, nodes.len());
            assert_eq!(bits(&some.scores), bits(&part.scores), "{model} {more:?}: {nodes:?}");
        }
        let one = cached.predict(&[9, 2, 9], Neighborhood::All).unwrap();
        assert_eq!(bits(&one.part(2, 1).scores), bits(&expected.part(9, 1).scores));
        if more.is_none() {
            let drawn = Neighborhood::Drawn { seed: 5 };
            assert_eq!(cached.predict(&ALL, drawn).unwrap(), plain.predict(&ALL, drawn).unwrap());
        }
    }
}

#[test]
fn samplers_of_single_nodes_answer_by_seed_and_others_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    for (sampler, draws) in [("neighbor", true), ("labor", true), ("random-walk", true), ("saint-rw", false)]
    {
        let data = data();
        let run = trained(&dir.path().join(sampler), &[("sampler", sampler)], &data);
        let predictor = Predictor::new(run, data).unwrap();
        let drawn = Neighborhood::Drawn { seed: 5 };
        assert_eq!(predictor.check(drawn).is_ok(), draws, "{sampler}");
        match predictor.predict(&ALL, drawn) {
            Ok(all) => {
                assert_ne!(all, predictor.predict(&ALL, Neighborhood::Drawn { seed: 6 }).unwrap());
                for v in ALL {
                    let one = predictor.predict(&[v], drawn).unwrap();
                    assert_eq!(bits(&one.scores), bits(&all.part(v as usize, 1).scores), "{sampler}: {v}");
                }
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("seed 5") && message.contains("without a seed"), "{message}");
            }
        }
    }
}

#[test]
fn values_are_at_the_scale_of_the_targets() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = data();
    let values: Vec<f32> = (0..NODES).map(|v| 1000.0 + v as f32).collect();
    data.labels = Labels::Values { values: values.into(), width: 1 };
    for transform in ["standard", "none", "log", "quantile"] {
        let path = dir.path().join(transform);
        let run = trained(&path, &[("metric", "mae"), ("target_transform", transform)], &data);
        let expected: Vec<f32> = written(&run, &data, Kind::Classes, &path).read_as_f32().unwrap();
        let predictor = Predictor::new(run, data.clone()).unwrap();
        assert_eq!((predictor.task(), predictor.num_scores()), (Task::Values, 1));
        let answers = predictor.predict(&ALL, Neighborhood::All).unwrap();
        assert_eq!((bits(&answers.scores), answers.classes), (bits(&expected), Vec::new()), "{transform}");
        for v in ALL {
            let one = predictor.predict(&[v], Neighborhood::All).unwrap();
            assert_eq!(bits(&one.scores), [expected[v as usize].to_bits()], "{transform}: node {v}");
        }
    }
}

#[test]
fn outputs_that_are_not_finite_are_refused_with_the_key_of_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = data();
    let run = trained(&dir.path().join("run"), &[], &data);
    // finite features of a node whose products are not
    let FeatureData::F32(rows) = &data.features.data else { unreachable!() };
    let (mut rows, dim) = (rows.to_vec(), data.features.dim);
    rows[5 * dim..6 * dim].fill(f32::MAX);
    data.features.data = FeatureData::F32(rows.into());
    let list = dir.path().join("nodes.txt");
    std::fs::write(&list, "5\n").unwrap();
    let key = format!("acc-{}", 5 * 7919 % 1009);
    for kind in [Kind::Classes, Kind::Probabilities, Kind::Embeddings] {
        for ending in ["csv", "npy"] {
            let out = dir.path().join(format!("out.{ending}"));
            let error = run.predict(&data, Some(&list), false, kind, &out, &progress::Quiet).unwrap_err();
            assert!(matches!(error, Error::OutputNotFinite { row: 0, .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains(&format!("outputs for key {key} are not finite")), "{message}");
            assert!(message.contains("; train again with a lower --lr"), "{message}");
            assert!(!out.exists(), "{kind:?}");
        }
    }
    let predictor = Predictor::new(run, data).unwrap();
    let answers = |nodes: &[NodeId]| predictor.predict(nodes, Neighborhood::All);
    let good = ALL.into_iter().find(|&v| answers(&[v]).is_ok()).expect("a node far away");
    for error in [
        answers(&[good, 5]).unwrap_err(),
        predictor.embed(&[good, 5], Neighborhood::All).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::OutputNotFinite { row: 1, .. }), "{error}");
        assert!(error.to_string().contains(&format!("outputs for node {key} are not finite")), "{error}");
    }
}

#[test]
fn keys_are_found_and_wrong_questions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = data();
    let run = trained(&dir.path().join("run"), &[], &data);
    let predictor = Predictor::new(run, data).unwrap();
    for v in ALL {
        assert_eq!(predictor.find(&predictor.key(v).unwrap()).unwrap(), v);
    }
    let unknown = predictor.find("acc-x").unwrap_err().to_string();
    assert!(unknown.contains("'acc-x'"), "{unknown}");
    let outside = predictor.predict(&[0, 300], Neighborhood::All).unwrap_err().to_string();
    assert!(outside.contains("node 300") && outside.contains("300 nodes"), "{outside}");
    assert!(predictor.predict(&[], Neighborhood::All).unwrap().is_empty());
}

#[test]
fn threads_and_batches_change_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let data = data();
    let run = trained(&dir.path().join("run"), &[], &data);
    let predictor = Predictor::new(run, data).unwrap();
    let questions = [Neighborhood::All, Neighborhood::Drawn { seed: 1 }, Neighborhood::Drawn { seed: 2 }];
    let expected: Vec<Answers> = questions.iter().map(|&of| predictor.predict(&ALL, of).unwrap()).collect();
    let lists = prop::collection::vec((0usize..3, prop::collection::vec(0 as NodeId..300, 1..9)), 1..12);
    proptest!(ProptestConfig::with_cases(24), |(asked in lists)| {
        std::thread::scope(|scope| {
            for (question, nodes) in &asked {
                let (predictor, expected) = (&predictor, &expected[*question]);
                scope.spawn(move || {
                    let answers = predictor.predict(nodes, questions[*question]).unwrap();
                    for (i, &v) in nodes.iter().enumerate() {
                        assert_eq!(answers.part(i, 1), expected.part(v as usize, 1));
                    }
                });
            }
        });
    });
}
