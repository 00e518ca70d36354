//! Several columns of classes: one column trains as one class per node does, and results do not
//! depend on threads.

use std::sync::OnceLock;

use graphmill_core::{ClassColumn, Labels, NodeId};
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{Dataset, TrainConfig, TrainedModel, fit};

use crate::set::with;

const NODES: usize = 300;

/// Graph whose neighbours share classes.
fn data() -> &'static Dataset {
    static DATA: OnceLock<Dataset> = OnceLock::new();
    DATA.get_or_init(|| {
        let options = GenerateOptions {
            nodes: NODES,
            degree: Some(6.0),
            classes: 3,
            dim: 6,
            seed: 5,
            p_in: 0.9,
            ..GenerateOptions::default()
        };
        generate("sbm", &options).unwrap()
    })
}

fn class() -> Vec<i32> {
    let Labels::Single { class, .. } = &data().labels else { panic!("one class per node") };
    class.to_vec()
}

/// The graph with columns of these names and numbers of classes.
fn with_columns(columns: &[(&str, usize)], class: Vec<i32>) -> Dataset {
    let columns = columns.iter().map(|&(name, classes)| ClassColumn { name: name.into(), classes });
    Dataset { labels: Labels::Columns { class: class.into(), columns: columns.collect() }, ..data().clone() }
}

fn config(options: &str) -> TrainConfig {
    let base = with(TrainConfig::default(), "seed=3 batch_size=32 hidden=8 epochs=3 lr=0.02");
    with(base, options)
}

/// Bits of the outputs of all nodes.
fn bits(trained: &TrainedModel, data: &Dataset) -> Vec<u32> {
    let nodes: Vec<NodeId> = (0..NODES as NodeId).collect();
    let logits = trained.logits(data, &nodes).unwrap();
    logits.view().host().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn one_column_trains_to_the_bits_of_one_class_per_node() {
    for options in
        ["fanout=4,3", "class_weights=balanced sampler=saint-node", "fanout=4,3 focal=1.5 order=balanced"]
    {
        let (single, column) = (data(), with_columns(&[("group", 3)], class()));
        let [a, b] = [single, &column].map(|data| fit(&config(options), data).unwrap());
        assert_eq!(bits(&a, single), bits(&b, &column), "{options}");
        let losses = |of: &TrainedModel| -> Vec<(u64, Option<u64>)> {
            let epochs = of.summary().epochs.iter();
            epochs.map(|of| (of.loss.to_bits(), of.valid_score.map(f64::to_bits))).collect()
        };
        assert_eq!(losses(&a), losses(&b), "{options}");
        assert_eq!(a.summary().test, b.summary().test);
        let nodes = [0, 7, 2];
        let rows = |of: &TrainedModel, data| of.probabilities(data, &nodes).unwrap().view().host().to_vec();
        assert_eq!(rows(&a, single), rows(&b, &column));
    }
}

#[test]
fn results_do_not_depend_on_threads_and_strategies() {
    // the second column is missing for every third node, and the first for every seventh
    let class: Vec<i32> = class()
        .iter()
        .enumerate()
        .flat_map(|(v, &c)| [if v % 7 == 0 { -1 } else { c }, if v % 3 == 0 { -1 } else { i32::from(c > 0) }])
        .collect();
    let mut data = with_columns(&[("group", 3), ("first", 2)], class);
    let known = |part: &[NodeId]| part.iter().copied().filter(|v| v % 21 != 0).collect::<Vec<_>>().into();
    data.split.train = known(&data.split.train);
    data.split.valid = known(&data.split.valid);
    data.split.test = known(&data.split.test);
    let one = fit(&config("fanout=4,3 epochs=12 threads=1"), &data).unwrap();
    for options in
        ["threads=3", "strategy=pipelined threads=2"].map(|more| format!("fanout=4,3 epochs=12 {more}"))
    {
        let other = fit(&config(&options), &data).unwrap();
        assert_eq!(bits(&one, &data), bits(&other, &data), "{options}");
    }
    let test = one.summary().diagnostics.iter().find(|of| of.part == "test").unwrap();
    let of = |name: &str| test.columns.iter().find(|of| of.name == name).unwrap().scores["accuracy"].unwrap();
    assert_eq!(one.summary().test.score, Some((of("group") + of("first")) / 2.0));
    assert!(of("group") > 0.6 && of("first") > 0.7, "{test:?}");
    let refused = one.classes(&data, &[0]).unwrap_err().to_string();
    assert!(refused.contains("group (3), first (2); use its probabilities"), "{refused}");
    let shares = one.probabilities(&data, &[4, 9]).unwrap();
    for row in shares.view().host().chunks_exact(5) {
        let sum = |range: std::ops::Range<usize>| row[range].iter().sum::<f32>();
        assert!((sum(0..3) - 1.0).abs() < 1e-5 && (sum(3..5) - 1.0).abs() < 1e-5, "{row:?}");
    }
}
