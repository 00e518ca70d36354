//! Conformance tests of the rows that this crate adds, and training by their names.

use std::{path::Path, sync::Once};

use graphmill::{
    dataset::{
        generate::{GenerateOptions, generate},
        partition,
    },
    engine::options,
    graph::{options::Values, progress::Quiet},
    prelude::*,
    testing::{check_layer, check_policy, check_sampler, check_strategy},
};
use graphmill_extension::{cache_policy, layer, register, sampler};

/// Registers once for all tests of this program.
fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register().unwrap());
}

fn small() -> Dataset {
    generate("sbm", &GenerateOptions { nodes: 600, classes: 3, dim: 8, ..Default::default() }).unwrap()
}

#[test]
fn sampler_conforms() {
    check_sampler(&sampler::WINDOW);
}

#[test]
fn layer_conforms() {
    check_layer(&layer::OWN_AND_MEAN);
}

#[test]
fn cache_policy_conforms() {
    check_policy(&cache_policy::CLOCK);
}

#[test]
fn strategy_conforms() {
    registered();
    check_strategy(&TrainConfig { strategy: "one-ahead".into(), ..TrainConfig::default() });
}

#[test]
fn partitioner_is_found_by_name() {
    registered();
    let data = small();
    let options = partition::Options { parts: 3, ..partition::Options::default() };
    let runs = (partition::TABLE.find("runs").unwrap().make.make)(&options).unwrap();
    let book = runs.partition(&data.graph, &data.split.train, &Quiet).unwrap();
    assert_eq!(book.sizes(), [200, 200, 200]);
    assert!(book.of().is_sorted());
}

#[test]
fn registered_rows_train_by_name_from_a_file() {
    registered();
    let mut config = TrainConfig::default();
    let text = r#"
        sampler = "window"
        fanout = [4, 3]
        model = "own-and-mean"
        strategy = "one-ahead"
        devices = "virtual:1"
        cache = "clock"
        cache_ratio = 0.2
        epochs = 3
        batch_size = 64
        hidden = 16
    "#;
    config.read_text(text, Path::new("train.toml")).unwrap();
    let trained = graphmill::train(&config, &small()).unwrap();
    let epochs = &trained.summary().epochs;
    assert!(epochs[2].loss < epochs[0].loss, "{} {}", epochs[0].loss, epochs[2].loss);
    assert_eq!(trained.config().sampler, "window");
    assert!(epochs[2].hit_rate.unwrap() > 0.05, "{:?}", epochs[2].hit_rate);
}

#[test]
fn options_of_a_registered_sampler_are_options_of_a_run() {
    registered();
    let own = |config: &TrainConfig| config.own.get::<sampler::WindowOptions>().window_fixed;
    // a file
    let mut config = TrainConfig::default();
    let given = config.read_text("sampler = \"window\"\nwindow-fixed = true", Path::new("x.toml")).unwrap();
    assert_eq!(given, ["sampler", "window_fixed"]);
    assert!(own(&config));
    config.check().and_then(|()| config.refuse_unused(&given)).unwrap();
    assert!(config.to_toml().contains("\n# Options of --sampler window\nwindow_fixed = true\n"));
    assert_eq!(config.to_json()["window_fixed"], true);
    // values by name, as from flags and Python's keywords
    let values = Values::from_iter([("window_fixed".to_string(), "yes".into())]);
    let mut other = TrainConfig::default();
    other.set(&values).unwrap();
    assert!(own(&other));
    let message = other.refuse_unused(&["window_fixed"]).unwrap_err().to_string();
    assert_eq!(
        message,
        "--window-fixed true: --sampler neighbor does not use it; use --sampler window, or leave it out"
    );
    // a typo
    let typo = config.read_text("window_fixd = true", Path::new("x.toml")).unwrap_err().to_string();
    assert!(typo.contains("did you mean 'window_fixed'?"), "{typo}");
    let key = options::key("window-fixed").unwrap();
    assert_eq!(
        (key.flag(), key.value, key.help()),
        (
            "window-fixed".to_string(),
            "BOOL",
            "Draw the same window of a node in every batch [default: false]".to_string()
        )
    );
    // a run
    config.epochs = 1;
    config.fanout = graphmill::engine::config::Fanout(vec![4, 3]);
    let fixed = graphmill::train(&config, &small()).unwrap().summary().epochs[0].loss;
    let drawn = graphmill::train(
        &TrainConfig { own: other.own.with(sampler::WindowOptions::default()), ..config },
        &small(),
    );
    assert_ne!(fixed, drawn.unwrap().summary().epochs[0].loss);
}

#[test]
fn unknown_names_list_the_registered_ones() {
    registered();
    let config = TrainConfig { model: "own-and-men".into(), ..TrainConfig::default() };
    let error = graphmill::train(&config, &small()).err().unwrap().to_string();
    assert!(error.contains("own-and-mean"), "{error}");
}
