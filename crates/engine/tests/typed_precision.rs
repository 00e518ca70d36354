//! `--precision` and `--clip` of runs on nodes and links of several types, and `--precision` of
//! runs on events. F32 has the bits of the default, products in fewer bits learn alike, and a limit
//! scales the gradients of dense parameters and of learned rows together.

use graphmill_engine::record::Summary;
use graphmill_nn::typed::TABLE as MODELS;

use super::{events, typed_links, typed_training};

type Given<'g> = (&'g str, &'g str);

/// Losses and scores of each epoch.
fn outcomes(summary: &Summary) -> Vec<f64> {
    summary.epochs.iter().flat_map(|of| [Some(of.loss), of.valid_score].into_iter().flatten()).collect()
}

/// Checks runs with `options` by `train` in every precision.
fn check(name: &str, train: impl Fn(&[Given]) -> Summary) {
    let by = |precision| outcomes(&train(&[("precision", precision)]));
    let of_f32 = outcomes(&train(&[]));
    assert_eq!(by("f32"), of_f32, "{name}");
    // tf32 is f32 on processors without its instructions
    let (of_tf32, of_bf16) = (by("tf32"), by("bf16"));
    assert_ne!(of_bf16[0], of_f32[0], "{name}: products are in bf16");
    for (found, tolerance) in [(of_tf32, 1e-3), (of_bf16, 0.02)] {
        let (found, expected) = (found[0], of_f32[0]);
        assert!((found - expected).abs() < tolerance * expected, "{name}: {found}, {expected}");
    }
}

#[test]
fn runs_on_nodes_learn_alike_in_every_precision() {
    let data = typed_training::data();
    // models that attend read features of edges, which this dataset lacks
    for model in MODELS.iter().filter(|model| !model.make.reads_edges) {
        let head_layers = if model.make.can_score { "0" } else { "1" };
        let options = [("model", model.name), ("head_layers", head_layers), ("epochs", "1")];
        check(model.name, |more| {
            let config = typed_training::in_memory(&[&options[..], more].concat());
            typed_training::train(&config, &data).unwrap()
        });
    }
}

#[test]
fn runs_on_links_learn_alike_in_every_precision() {
    let dir = tempfile::tempdir().unwrap();
    typed_links::shop(dir.path());
    for decoder in ["dot", "mlp"] {
        check(decoder, |more| {
            let options = [("decoder", decoder), ("model", "rsage"), ("epochs", "1")];
            typed_links::train_in(dir.path(), &[&options[..], more].concat(), None).unwrap()
        });
    }
}

#[test]
fn runs_on_events_learn_alike_in_every_precision() {
    let dir = tempfile::tempdir().unwrap();
    let data = events::shop_of(dir.path(), false, events::visits(600));
    for model in ["tgn", "tgat", "jodie", "graphmixer", "dygformer", "gatv2-edge"] {
        check(model, |more| {
            let options = [("model", model), ("epochs", "1")];
            events::train(&data, &[&options[..], more].concat()).unwrap()
        });
    }
}

#[test]
fn a_limit_scales_gradients_of_learned_rows_too() {
    // rows of topics are learned
    let data = typed_training::data();
    let with = |options: &[Given]| {
        let options = [&[("model", "rgcn"), ("optimizer", "sgd")][..], options].concat();
        typed_training::train(&typed_training::in_memory(&options), &data).unwrap()
    };
    let (free, wide, narrow) = (with(&[]), with(&[("clip", "1e6")]), with(&[("clip", "0.01")]));
    assert_eq!(outcomes(&free), outcomes(&wide), "a limit that no gradient reaches changes nothing");
    assert_ne!(outcomes(&free), outcomes(&narrow));
    let norm = |summary: &Summary| summary.epochs[0].grad_norm;
    assert_eq!(norm(&free), None);
    assert!(norm(&wide).unwrap() > 0.01 && norm(&narrow).unwrap() > 0.01, "norms before the limit");

    let dir = tempfile::tempdir().unwrap();
    typed_links::shop(dir.path());
    let with = |limit| typed_links::train_in(dir.path(), &[("clip", limit)], None).unwrap();
    let (free, wide, narrow) = (with("0"), with("1e6"), with("0.001"));
    assert_eq!(outcomes(&free), outcomes(&wide));
    assert_ne!(outcomes(&free), outcomes(&narrow));
    assert!(norm(&free).is_none() && norm(&narrow).unwrap() > 0.001);
}
