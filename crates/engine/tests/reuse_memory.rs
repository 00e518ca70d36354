//! At the same budget, a device of a run that reuses rows caches more and moves fewer bytes.

use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, Error, RunContext, TrainConfig,
    config::{Bytes, Fanout},
    observer::Quiet,
    record::Summary,
    train,
};

use crate::set::with;

fn data(scale: u32, dim: usize) -> Dataset {
    let options =
        GenerateOptions { scale, degree: Some(24.0), classes: 8, dim, seed: 1, ..GenerateOptions::default() };
    let mut data = generate("kronecker", &options).unwrap();
    data.split.train = data.split.train[..1200].to_vec().into();
    data
}

fn base() -> TrainConfig {
    let config = TrainConfig {
        model: "gcn".into(),
        layers: 3,
        fanout: Fanout(vec![8, 8, 5]),
        hidden: 16,
        batch_size: 100,
        epochs: 1,
        eval_nodes: 50,
        seed: 1,
        ..TrainConfig::default()
    };
    with(config, "devices=virtual:1 cache=presc:1 super_batch=6 hot_rank=0")
}

fn trained(config: &TrainConfig, data: &Dataset) -> Result<Summary, Error> {
    let mut config = config.clone();
    config.derive_options(&["fanout", "layers"])?;
    train(&config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

/// A run of one epoch with a budget.
#[derive(Debug, PartialEq)]
struct Measured {
    /// Hit rate of the cache.
    hits: f64,
    /// Bytes that cross the links. One device that all stages share has no record of its link: its
    /// features are counted.
    bytes: u64,
    /// Share of the hot nodes whose rows are reused; 1 without reuse.
    share: f64,
}

fn measured(options: &str, budget: u64, data: &Dataset) -> Result<Measured, Error> {
    let config = TrainConfig { device_budget: Bytes(budget), ..with(base(), options) };
    let epoch = &trained(&config, data)?.epochs[0];
    let links: u64 = epoch.devices.iter().map(|device| device.link_bytes).sum();
    Ok(Measured {
        hits: epoch.hit_rate.unwrap_or(0.0),
        bytes: if epoch.devices.is_empty() { epoch.traffic.host.bytes } else { links },
        share: epoch.reuse.as_ref().map_or(1.0, |reuse| reuse.split),
    })
}

/// The least budget with which a run trains, to 10 %.
fn least_budget(options: &str, data: &Dataset) -> u64 {
    let (mut low, mut high) = (100_000, 100_000_000);
    while high - low > high / 10 {
        let middle = (low + high) / 2;
        match measured(options, middle, data) {
            Ok(_) => high = middle,
            Err(_) => low = middle,
        }
    }
    high
}

/// A budget is divided between reused rows and cached features so that fewer bytes move: wide rows
/// leave memory to features, narrow ones do not. Without a limit, all hot rows are reused.
#[test]
fn memory_is_divided_so_that_few_bytes_move() {
    let data = data(13, 64);
    let options = "strategy=time-sharing reuse=layered super_batch=3 max_batches=6";
    let run = |hidden: usize, split: &str, budget: u64| {
        measured(&format!("{options} hidden={hidden} hot_split={split}"), budget, &data).ok()
    };
    let divided = |budget| run(256, "auto", budget).filter(|run| run.share < 1.0);
    let mut budgets = (8_000_000..30_000_000).step_by(1_000_000);
    let found = budgets.find_map(|budget| Some((budget, divided(budget)?, run(256, "1", budget)?)));
    let (budget, some, all) = found.expect("a budget that bites");
    assert_eq!(all.share, 1.0);
    assert!(some.bytes < all.bytes, "{budget}: {} and {} bytes", some.bytes, all.bytes);
    assert_eq!(run(256, "auto", 1 << 30).unwrap().share, 1.0);
    let narrow = |budget| run(8, "auto", budget).is_some_and(|run| run.share < 1.0);
    assert!(!(1_000_000..8_000_000).step_by(1_000_000).any(narrow));
    // no budget: nothing bounds the rows
    assert_eq!(measured(&format!("{options} hidden=256"), 0, &data).unwrap().share, 1.0);
}

/// The search for a division takes and frees memory before the steps are counted, which changes no
/// cached row.
#[test]
fn all_hot_rows_are_cached_as_if_nothing_else_had_been_tried() {
    let data = data(13, 64);
    let options = "strategy=time-sharing reuse=layered super_batch=3 max_batches=6 hidden=8";
    let run =
        |split: &str, budget: u64| measured(&format!("{options} hot_split={split}"), budget, &data).ok();
    let mut compared = 0;
    for budget in (1_000_000..8_000_000).step_by(1_000_000) {
        let (auto, all) = (run("auto", budget), run("1", budget));
        assert_eq!(auto, all, "{budget}");
        compared += usize::from(all.is_some_and(|all| all.hits > 0.0 && all.hits < 1.0));
    }
    assert!(compared > 0, "a budget for a part of the rows");
}

#[test]
fn reuse_takes_less_memory_and_moves_fewer_bytes_at_the_same_budget() {
    let data = data(13, 200);
    for strategy in ["time-sharing", "factored", "pipelined"] {
        let devices = if strategy == "factored" { "devices=virtual:2 num_samplers=1" } else { "" };
        let exact = format!("strategy={strategy} {devices}");
        let reuse = format!("{exact} reuse=layered");
        let (of_exact, of_reuse) = (least_budget(&exact, &data), least_budget(&reuse, &data));
        assert!(of_reuse < of_exact, "{strategy}: {of_reuse} and {of_exact} without reuse");
        let budget = of_exact + 1_500_000;
        let of = |options: &str| measured(options, budget, &data).unwrap();
        let (exact, reuse) = (of(&exact), of(&reuse));
        assert!(reuse.hits > exact.hits, "{strategy}, {budget}: {} and {}", reuse.hits, exact.hits);
        assert!(reuse.bytes < exact.bytes, "{strategy}, {budget}: {} and {} bytes", reuse.bytes, exact.bytes);
    }
}
