//! Labels as inputs (`--label-inputs`) and propagation (`--propagate`) of sets of labels, of
//! several columns of classes, and of values.

use std::{path::Path, sync::OnceLock};

use graphmill_core::{ClassColumn, Features, Labels, NodeId, progress};
use graphmill_data::{
    generate::{GenerateOptions, generate},
    npy,
};
use graphmill_engine::{
    Dataset, RunContext, RunDir, TrainConfig, build, fit, hotness,
    observer::Quiet,
    propagation::PropagationOptions,
    saved::{Kind, Propagation, SavedRun},
    train,
};
use graphmill_loader::{Extracted, MiniBatch, Workspace, feature::Host};

use crate::set::with;

const NODES: usize = 400;
/// Features of a node.
const DIM: usize = 4;

/// Graph whose neighbours share groups, with features that say nothing, and the group of each node.
fn graph() -> &'static (Dataset, Vec<i32>) {
    static GRAPH: OnceLock<(Dataset, Vec<i32>)> = OnceLock::new();
    GRAPH.get_or_init(|| {
        let options = GenerateOptions {
            nodes: NODES,
            degree: Some(8.0),
            classes: 3,
            dim: DIM,
            seed: 5,
            p_in: 0.9,
            ..GenerateOptions::default()
        };
        let mut data = generate("sbm", &options).unwrap();
        let noise = |i: usize| ((i * 7919 % 1009) as f32 - 504.0) / 504.0;
        data.features = Features::f32(DIM, (0..DIM * NODES).map(noise).collect::<Vec<f32>>());
        let Labels::Single { class, .. } = &data.labels else { panic!("one class per node") };
        let group = class.to_vec();
        data.metric = None;
        (data, group)
    })
}

/// Targets of each kind that follow the groups, with missing ones where the kind has them.
fn targets(kind: &str, group: &[i32]) -> Labels {
    match kind {
        "sets" => {
            let member = group.iter().flat_map(|&g| [(g != 1).into(), (g == 1).into(), (g == 2).into()]);
            Labels::Multi { member: member.collect::<Vec<u8>>().into(), classes: 3 }
        }
        "columns" => {
            let of = |(v, &g): (usize, &i32)| [if v % 7 == 6 { -1 } else { g }, i32::from(g == 2)];
            let columns = [("group", 3), ("last", 2)];
            let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes });
            let class: Vec<i32> = group.iter().enumerate().flat_map(of).collect();
            Labels::Columns { class: class.into(), columns: columns.to_vec() }
        }
        _ => {
            let of = |(v, &g): (usize, &i32)| {
                let second = if v % 5 == 4 { f32::NAN } else { -40.0 * g as f32 };
                [1000.0 + 200.0 * g as f32 + (v % 3) as f32, second]
            };
            let values: Vec<f32> = group.iter().enumerate().flat_map(of).collect();
            Labels::Values { values: values.into(), width: 2 }
        }
    }
}

const KINDS: [&str; 3] = ["sets", "columns", "values"];

fn data(kind: &str) -> Dataset {
    let (data, group) = graph();
    Dataset { labels: targets(kind, group), ..data.clone() }
}

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig { seed: 3, dropout: 0.0, ..TrainConfig::default() };
    with(with(base, "batch_size=32 fanout=4,3 hidden=8 epochs=2 lr=0.01"), options)
}

/// The first batch of a run on `data` with its input rows.
fn batch(config: &TrainConfig, data: &Dataset) -> Extracted {
    let (sampler, order) = (build::sampler(config, data).unwrap(), build::order(config, data).unwrap());
    let rows = Host::new(&data.features);
    let loader = hotness::loader(config, data, &*sampler, &*order, &rows).unwrap();
    let (mut nodes, mut workspace) = (Vec::new(), Workspace::new(data.num_nodes()));
    loader.order(0, &mut nodes);
    let drawn = loader.draw(&nodes, 0, 0, &mut workspace, MiniBatch::default()).unwrap();
    loader.extract(drawn).unwrap().into_batch()
}

/// Columns of the labels of a node that is shown, by the definition.
fn expected(labels: &Labels, v: usize, train: &[NodeId]) -> Vec<f32> {
    let one_hot =
        |class: i32, classes: usize| (0..classes).map(move |c| f32::from(u8::from(c as i32 == class)));
    match labels {
        Labels::Multi { member, classes } => {
            member[v * classes..][..*classes].iter().map(|&is| f32::from(is)).collect()
        }
        Labels::Columns { class, .. } => {
            one_hot(class[2 * v], 3).chain(one_hot(class[2 * v + 1], 2)).collect()
        }
        Labels::Values { values, width } => {
            let of = |c: usize| {
                let all = train.iter().map(|&u| f64::from(values[u as usize * width + c]));
                let known: Vec<f64> = all.filter(|x| !x.is_nan()).collect();
                let mean = known.iter().sum::<f64>() / known.len() as f64;
                let variance = known.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / known.len() as f64;
                let value = f64::from(values[v * width + c]);
                if value.is_nan() { 0.0 } else { ((value - mean) / variance.sqrt()) as f32 }
            };
            (0..*width).map(of).collect()
        }
        Labels::Single { .. } => unreachable!("other kinds"),
    }
}

#[test]
fn batches_have_the_labels_of_training_nodes_but_not_of_seeds() {
    for kind in KINDS {
        let (config, data) = (config("label_inputs=1 sampler=full"), data(kind));
        let one = batch(&config, &data);
        let (seeds, width) = (&one.sampled.seeds.nodes, DIM + data.labels.classes());
        assert_eq!(one.features.num_cols(), width);
        let train = &data.split.train[..];
        let mut shown = 0;
        for (&v, row) in one.sampled.input_nodes.iter().zip(one.features.view().host().chunks_exact(width)) {
            let is_shown = train.contains(&v) && !seeds.contains(&v);
            let own = match is_shown {
                true => expected(&data.labels, v as usize, train),
                false => vec![0.0; width - DIM],
            };
            let close = row[DIM..].iter().zip(&own).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(close, "{kind} {v}: {:?} {own:?}", &row[DIM..]);
            shown += usize::from(is_shown);
        }
        assert!(shown > 50, "{shown}");
        // the rows do not depend on the labels of the seeds
        let mut group = graph().1.clone();
        seeds.iter().for_each(|&v| group[v as usize] = (group[v as usize] + 1) % 3);
        let other = batch(&config, &Dataset { labels: targets(kind, &group), ..data.clone() });
        // the mean of values is that of all training nodes, seeds too
        if kind != "values" {
            assert_eq!(one.features.view().host(), other.features.view().host(), "{kind}");
        }
    }
}

/// A run in a directory.
fn run_in(dir: &Path, config: &TrainConfig, data: &Dataset) -> SavedRun {
    let run = RunDir::create(dir).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(config, data, context).unwrap();
    SavedRun::open(dir, false).unwrap()
}

/// Predicted classes, sets or values of all nodes.
fn predicted(run: &SavedRun, data: &Dataset, dir: &Path) -> Vec<f32> {
    let out = dir.join("rows.npy");
    run.predict(data, None, false, Kind::Classes, &out, &progress::Quiet).unwrap();
    npy::open(&out).unwrap().read_as_f32().unwrap()
}

#[test]
fn labels_of_neighbours_are_learned_and_predictions_read_those_of_training_nodes_alone() {
    for kind in KINDS {
        let (dir, data) = (tempfile::tempdir().unwrap(), data(kind));
        let plain = fit(&config("epochs=30"), &data).unwrap();
        let run = run_in(&dir.path().join("run"), &config("epochs=30 label_inputs=0.8"), &data);
        let scores = run.scores(&data, &progress::Quiet).unwrap();
        let (own, without) = (scores.test.unwrap(), plain.summary().test.score.unwrap());
        let is_better = if kind == "values" { own < 0.9 * without } else { own > without + 0.05 };
        assert!(is_better, "{kind}: {own} {without}");
        // other labels of nodes that do not train change no prediction, those of training nodes do
        let rows = predicted(&run, &data, dir.path());
        let mut group = graph().1.clone();
        let split = &data.split;
        split.valid.iter().chain(split.test.iter()).for_each(|&v| group[v as usize] = 0);
        let of = |group: &[i32]| {
            let other = Dataset { labels: targets(kind, group), ..data.clone() };
            predicted(&run, &other, dir.path())
        };
        assert_eq!(of(&group), rows, "{kind}");
        split.train.iter().for_each(|&v| group[v as usize] = 2);
        assert_ne!(of(&group), rows, "{kind}");
        // training nodes are scored without labels
        let mut blind = data.clone();
        blind.split.train = Vec::new().into();
        assert_ne!(predicted(&run, &blind, dir.path()), rows);
        let fitted = fit(&config("epochs=30 label_inputs=0.8"), &data).unwrap();
        assert_eq!(fitted.summary().test.score, Some(own), "{kind}");
        // data of another kind are refused, data without labels are not
        let error =
            run.predict(&graph().0, None, false, Kind::Classes, &dir.path().join("x.npy"), &progress::Quiet);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("targets that are not like those of the run"), "{kind}: {error}");
        let labels = Labels::Single { class: Vec::new().into(), classes: 0 };
        let unlabelled = Dataset { labels, ..blind.clone() };
        assert_eq!(predicted(&run, &unlabelled, dir.path()), predicted(&run, &blind, dir.path()), "{kind}");
    }
}

#[test]
fn targets_of_every_kind_spread_and_correct_a_weak_model() {
    for kind in KINDS {
        let (dir, data) = (tempfile::tempdir().unwrap(), data(kind));
        let path = dir.path().join("run");
        let run = run_in(&path, &config("epochs=1"), &data);
        let model = run.scores(&data, &progress::Quiet).unwrap();
        for name in ["label-propagation", "correct-and-smooth"] {
            let propagation = Propagation::new(name, PropagationOptions::default()).unwrap();
            let run = SavedRun::open(&path, false).unwrap().with_propagation(propagation).unwrap();
            let scores = run.scores(&data, &progress::Quiet).unwrap();
            let (with, without) = (scores.test.unwrap(), model.test.unwrap());
            let is_better = if kind == "values" { with < 0.7 * without } else { with > without + 0.1 };
            assert!(is_better, "{kind} {name}: {with} {without}");
            let has_residuals =
                scores.parts[2].diagnostics.as_ref().is_some_and(|of| !of.residuals.is_empty());
            assert_eq!(has_residuals, kind == "values");
            // predictions are those that were scored
            let rows = predicted(&run, &data, dir.path());
            let test = &data.split.test;
            let (found, metric) = match &data.labels {
                Labels::Values { values, .. } => {
                    let rmse = |c: usize| {
                        let at = test.iter().map(|&v| v as usize * 2 + c).filter(|&i| !values[i].is_nan());
                        let squares: Vec<f64> = at.map(|i| f64::from(rows[i] - values[i]).powi(2)).collect();
                        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
                    };
                    ((rmse(0) + rmse(1)) / 2.0, "rmse")
                }
                Labels::Multi { member, .. } => {
                    let is_right = |v: &&NodeId| {
                        (0..3).all(|c| rows[**v as usize * 3 + c] == f32::from(member[**v as usize * 3 + c]))
                    };
                    (test.iter().filter(is_right).count() as f64 / test.len() as f64, "accuracy")
                }
                Labels::Columns { class, .. } => {
                    let share = |k: usize| {
                        let at: Vec<usize> =
                            test.iter().map(|&v| v as usize * 2 + k).filter(|&i| class[i] >= 0).collect();
                        at.iter().filter(|&&i| rows[i] == class[i] as f32).count() as f64 / at.len() as f64
                    };
                    ((share(0) + share(1)) / 2.0, "accuracy")
                }
                Labels::Single { .. } => unreachable!("other kinds"),
            };
            let score = scores.parts[2].scores[metric].unwrap();
            assert!((score - found).abs() < 1e-4 * found.max(1.0), "{kind} {name}: {score} {found}");
            let error = run.scores(&graph().0, &progress::Quiet).map(drop).unwrap_err().to_string();
            assert!(error.contains("the model was trained on"), "{kind}: {error}");
            let out = dir.path().join("x.npy");
            let error =
                run.predict(&graph().0, None, false, Kind::Classes, &out, &progress::Quiet).unwrap_err();
            assert!(error.to_string().contains("leave out --propagate"), "{kind}: {error}");
        }
    }
}
