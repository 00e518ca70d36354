//! At the same budget, a device of a run that reuses rows caches more and moves fewer bytes. (A
//! separate program, because a step is measured by the memory of the process.)

#[path = "common/set.rs"]
mod options;

use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, Error, RunContext, TrainConfig,
    config::{Bytes, Fanout},
    observer::Quiet,
    record::Summary,
    train,
};
use options::with;

fn data() -> Dataset {
    let options = GenerateOptions {
        scale: 12,
        degree: Some(24.0),
        classes: 8,
        dim: 200,
        seed: 1,
        ..GenerateOptions::default()
    };
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
    config.settle(&["fanout", "layers"])?;
    train(&config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

/// Cached rows and bytes over the links of a run with this budget.
fn measured(options: &str, budget: u64, data: &Dataset) -> Result<(usize, u64), Error> {
    let config = TrainConfig { device_budget: Bytes(budget), ..with(base(), options) };
    let epochs = trained(&config, data)?.epochs;
    let devices = &epochs[0].devices;
    Ok((devices.iter().map(|d| d.cache_rows).sum(), devices.iter().map(|d| d.link_bytes).sum()))
}

/// The least budget with which a run trains, to 2 %.
fn least_budget(options: &str, data: &Dataset) -> u64 {
    let (mut low, mut high) = (100_000, 100_000_000);
    while high - low > high / 50 {
        let middle = (low + high) / 2;
        match measured(options, middle, data) {
            Ok(_) => high = middle,
            Err(_) => low = middle,
        }
    }
    high
}

#[test]
fn reuse_takes_less_memory_and_moves_fewer_bytes_at_the_same_budget() {
    let data = data();
    for strategy in ["time-sharing", "factored"] {
        let devices = if strategy == "factored" { "devices=virtual:2 num_samplers=1" } else { "" };
        let exact = format!("strategy={strategy} {devices}");
        let reuse = format!("{exact} reuse=layered");
        let (of_exact, of_reuse) = (least_budget(&exact, &data), least_budget(&reuse, &data));
        println!("{strategy}: least budget {of_exact} {of_reuse}");
        assert!(of_reuse < of_exact, "{strategy}: {of_reuse} and {of_exact} without reuse");
        for above in [200_000, 600_000, 1_200_000] {
            let budget = of_exact + above;
            let (rows, bytes) = measured(&exact, budget, &data).unwrap();
            let (more_rows, fewer_bytes) = measured(&reuse, budget, &data).unwrap();
            println!("{budget}: rows {rows} {more_rows} bytes {bytes} {fewer_bytes}");
            assert!(more_rows > rows, "{strategy}, {budget}: {more_rows} and {rows} rows");
            assert!(fewer_bytes < bytes, "{strategy}, {budget}: {fewer_bytes} and {bytes} bytes");
        }
    }
}
