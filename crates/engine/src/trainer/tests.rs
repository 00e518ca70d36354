use graphmill_core::{
    EdgeOptions, Features, Labels, SparseRows, Split, build as graph, features::FeatureData,
};
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_nn::layer::{Aggregator, SageOptions};
use half::f16;

use super::*;
use crate::{config::Fanout, memory::MemoryPlacement, observer::Quiet};

fn four() -> Dataset {
    Dataset {
        name: "four".into(),
        graph: graph(4, &[0, 1, 2], &[1, 2, 3], EdgeOptions::UNDIRECTED).unwrap(),
        features: Features::f32(1, vec![0.0, 1.0, 0.5, 0.25]),
        labels: Labels::Single { class: vec![0, 1, 1, 0].into(), classes: 2 },
        // a single class among the validation nodes: the area under the curve is not defined
        split: Split { train: vec![0, 1].into(), valid: vec![2].into(), test: vec![3].into() },
        metric: Some("roc-auc".into()),
        ..Dataset::default()
    }
}

fn config() -> TrainConfig {
    TrainConfig { epochs: 3, layers: 1, fanout: Fanout(vec![-1]), ..TrainConfig::default() }
}

#[test]
fn the_newest_model_is_the_best_while_the_score_is_undefined() {
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let best = train(&config(), &four(), context).unwrap().best;
    assert_eq!((best.epoch, best.valid_score), (3, None));
}

/// Collects the notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

/// Sparse rows change the order of summation, but not the batches or the dropout masks.
#[test]
fn sparse_and_dense_features_train_to_equal_scores() {
    let options = GenerateOptions { nodes: 800, classes: 4, dim: 30, ..GenerateOptions::default() };
    let mut dense = generate("sbm", &options).unwrap();
    let FeatureData::F32(rows) = &dense.features.data else { unreachable!() };
    let rows: Vec<f32> = rows.iter().map(|&x| if x < 1.2 { 0.0 } else { x }).collect();
    let mut sparse = dense.clone();
    sparse.features = Features::csr(SparseRows::from_dense(30, &rows).unwrap());
    dense.features = Features::f32(30, rows);
    let run = |residence, config: &TrainConfig, data: &Dataset| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train_from(MemoryPlacements::both(residence), config, data, None, context).unwrap()
    };
    let base = TrainConfig {
        hidden: 16,
        epochs: 3,
        batch_size: 150,
        fanout: Fanout(vec![5, 5]),
        lr: 0.01,
        sparse: "on".parse().unwrap(),
        ..TrainConfig::default()
    };
    let s = String::from;
    for config in [
        TrainConfig { model: s("sage"), input_dropout: 0.3, ..base.clone() },
        base.clone().with(|sage: &mut SageOptions| sage.aggregator = Aggregator::MaxPool),
        TrainConfig { model: s("gcn"), batch_size: 0, input_dropout: 0.3, ..base.clone() },
        TrainConfig {
            model: s("gcn"),
            residual: "linear".parse().unwrap(),
            norm: "batch".parse().unwrap(),
            ..base.clone()
        },
        TrainConfig { model: s("gat"), input_dropout: 0.3, ..base.clone() },
        TrainConfig { model: s("gin"), norm: "layer".parse().unwrap(), ..base.clone() },
        TrainConfig { model: s("pinsage"), ..base.clone() },
        TrainConfig { model: s("mixhop"), fanout: Fanout(vec![5; 4]), ..base.clone() },
        TrainConfig { model: s("sage"), input_layer: true, head_layers: 1, ..base.clone() },
    ] {
        let of_sparse = run(MemoryPlacement::HugePages, &config, &sparse);
        let in_place = run(MemoryPlacement::Mapped, &config, &sparse);
        let of_dense = run(
            MemoryPlacement::HugePages,
            &TrainConfig { fused: "off".parse().unwrap(), sparse: "off".parse().unwrap(), ..config.clone() },
            &dense,
        );
        let off = run(
            MemoryPlacement::HugePages,
            &TrainConfig { sparse: "off".parse().unwrap(), ..config.clone() },
            &sparse,
        );
        for (e, a) in of_sparse.epochs.iter().enumerate() {
            assert_eq!(a.loss.to_bits(), in_place.epochs[e].loss.to_bits(), "{config:?}");
            for b in [&of_dense.epochs[e], &off.epochs[e]] {
                assert!((a.loss - b.loss).abs() < 2e-3 * b.loss, "{} and {}, {config:?}", a.loss, b.loss);
                let (a, b) = (a.valid_score.unwrap(), b.valid_score.unwrap());
                assert!((a - b).abs() < 0.02, "{a} and {b}, {config:?}");
            }
        }
    }
}

#[test]
fn tables_in_place_and_copies_give_the_same_bits() {
    let mut half = four();
    half.metric = None;
    let mut whole = half.clone();
    let FeatureData::F32(rows) = &whole.features.data else { unreachable!() };
    half.features.data = FeatureData::F16(rows.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>().into());
    whole.graph = whole.graph.with_edge_weight(vec![1.0; 6].into()).unwrap();
    let mut runs = Vec::new();
    for data in [&whole, &half] {
        for (residence, notes_expected) in [(MemoryPlacement::HugePages, 0), (MemoryPlacement::Mapped, 1)] {
            let mut notes = Notes::default();
            let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
            let summary = train_from(MemoryPlacements::both(residence), &config(), data, None, context).unwrap();
            let about = |word: &str| notes.0.iter().filter(|note| note.contains(word)).count();
            assert_eq!(
                (about("in place"), about("edge weights")),
                (notes_expected, usize::from(data.graph.edge_weight().is_some()))
            );
            let bits = |epoch: &EpochRecord| (epoch.loss.to_bits(), epoch.valid_loss.map(f64::to_bits));
            runs.push((summary.epochs.iter().map(bits).collect::<Vec<_>>(), summary.test.score));
        }
    }
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
}
