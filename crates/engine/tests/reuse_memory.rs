//! At the same budget, a device of a run that reuses rows caches more and moves fewer bytes. (A
//! separate program, because a step is measured by the memory of the process.)

#[path = "common/set.rs"]
mod set;

use std::{
    env,
    process::Command,
    sync::{Mutex, PoisonError},
};

use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, Error, RunContext, TrainConfig,
    config::{Bytes, Fanout},
    observer::Quiet,
    record::Summary,
    train,
};

use set::with;

/// Tests measure the memory of the process, one after the other.
static ALONE: Mutex<()> = Mutex::new(());

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

/// A budget is divided between reused rows and cached features so that fewer bytes move: wide rows
/// leave memory to features, narrow ones do not. Without a limit, all hot rows are reused.
#[test]
fn memory_is_divided_so_that_few_bytes_move() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let data = data(13, 64);
    let run = |hidden: usize, split: &str, budget: u64| {
        let options = format!("strategy=time-sharing reuse=layered super_batch=3 hidden={hidden}");
        let config = with(base(), &format!("{options} hot_split={split} max_batches=6"));
        let epochs = trained(&TrainConfig { device_budget: Bytes(budget), ..config }, &data)?.epochs;
        Ok::<_, Error>((epochs[0].reuse.unwrap().split, epochs[0].devices[0].link_bytes))
    };
    let shared = |budget| run(256, "auto", budget).ok().filter(|(share, _)| *share < 1.0);
    let mut budgets = (8_000_000..30_000_000).step_by(1_000_000);
    let found = budgets.find_map(|budget| Some((budget, shared(budget)?.1, run(256, "1", budget).ok()?)));
    let (budget, bytes, (share, all_bytes)) = found.expect("a budget that bites");
    assert_eq!(share, 1.0);
    assert!(bytes < all_bytes, "{budget}: {bytes} and {all_bytes} bytes");
    assert_eq!(run(256, "auto", 0).unwrap().0, 1.0);
    assert_eq!(run(256, "auto", 1 << 30).unwrap().0, 1.0);
    let narrow = |budget| run(8, "auto", budget).is_ok_and(|(share, _)| share < 1.0);
    assert!(!(1_000_000..8_000_000).step_by(1_000_000).any(narrow));
}

/// Hit rate of the cache and bytes that cross the links, in a run with this budget. One device that
/// all stages share has no record of its link: its features are counted.
fn measured(options: &str, budget: u64, data: &Dataset) -> Result<(f64, u64), Error> {
    let config = TrainConfig { device_budget: Bytes(budget), ..with(base(), options) };
    let epoch = &trained(&config, data)?.epochs[0];
    let links: u64 = epoch.devices.iter().map(|device| device.link_bytes).sum();
    let bytes = if epoch.devices.is_empty() { epoch.traffic.host.bytes } else { links };
    Ok((epoch.hit_rate.unwrap_or(0.0), bytes))
}

/// Name of the variable that holds the options of a side to measure.
const SIDE: &str = "GRAPHMILL_TEST_SIDE";

/// [`least_budget`] in a process of its own: memory that earlier runs have freed, but not returned
/// to the system, makes a step look smaller.
fn least_budget_alone(options: &str) -> u64 {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_side_is_measured_in_a_process_of_its_own", "--nocapture"]);
    let output = command.env(SIDE, options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let budget = text.lines().find_map(|line| line.split_once("least budget: ")?.1.parse().ok());
    budget.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_side_is_measured_in_a_process_of_its_own() {
    if let Ok(options) = env::var(SIDE) {
        println!("\nleast budget: {}", least_budget(&options, &data(13, 200)));
    }
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

#[test]
fn reuse_takes_less_memory_and_moves_fewer_bytes_at_the_same_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let data = data(13, 200);
    for strategy in ["time-sharing", "factored", "pipelined"] {
        let devices = if strategy == "factored" { "devices=virtual:2 num_samplers=1" } else { "" };
        let exact = format!("strategy={strategy} {devices}");
        let reuse = format!("{exact} reuse=layered");
        let (of_exact, of_reuse) = (least_budget_alone(&exact), least_budget_alone(&reuse));
        assert!(of_reuse < of_exact, "{strategy}: {of_reuse} and {of_exact} without reuse");
        let budget = of_exact + 1_500_000;
        let (hits, bytes) = measured(&exact, budget, &data).unwrap();
        let (more_hits, fewer_bytes) = measured(&reuse, budget, &data).unwrap();
        assert!(more_hits > hits, "{strategy}, {budget}: {more_hits} and {hits}");
        assert!(fewer_bytes < bytes, "{strategy}, {budget}: {fewer_bytes} and {bytes} bytes");
    }
}
