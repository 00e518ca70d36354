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

/// A run of one epoch with a budget.
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

/// Name of the variable that holds the width of the features, the budget (0 for the least one) and
/// the options of a side to measure.
const SIDE: &str = "GRAPHMILL_TEST_SIDE";

/// Numbers of [`side`] in a process of its own: memory that earlier runs have freed, but not
/// returned to the system, makes a step look smaller, and leaves more to the cache. So every side
/// has the same earlier run.
fn alone(dim: usize, budget: u64, options: &str) -> Vec<f64> {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_side_is_measured_in_a_process_of_its_own", "--nocapture"]);
    let output = command.env(SIDE, format!("{dim} {budget} {options}")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers =
        text.lines().find_map(|line| line.split_once("measured:")).unwrap_or_else(|| panic!("{text}"));
    numbers.1.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn least_budget_alone(dim: usize, options: &str) -> u64 {
    alone(dim, 0, options)[0] as u64
}

/// [`measured`] in a process of its own; `None` if the run is refused.
fn measured_alone(dim: usize, budget: u64, options: &str) -> Option<Measured> {
    match alone(dim, budget, options)[..] {
        [hits, bytes, share] => Some(Measured { hits, bytes: bytes as u64, share }),
        _ => None,
    }
}

/// Numbers of a side: the least budget, those of [`Measured`], or none if the run is refused.
fn side(text: &str) -> Vec<f64> {
    let (dim, rest) = text.split_once(' ').unwrap();
    let (budget, options) = rest.split_once(' ').unwrap();
    let data = data(13, dim.parse().unwrap());
    // the memory that a first run takes from the system is reused by all others
    measured(options, 1 << 30, &data).unwrap();
    match budget.parse().unwrap() {
        0 => vec![least_budget(options, &data) as f64],
        budget => match measured(options, budget, &data) {
            Ok(Measured { hits, bytes, share }) => vec![hits, bytes as f64, share],
            Err(_) => Vec::new(),
        },
    }
}

#[test]
fn a_side_is_measured_in_a_process_of_its_own() {
    if let Ok(text) = env::var(SIDE) {
        let numbers: Vec<String> = side(&text).iter().map(f64::to_string).collect();
        println!("\nmeasured: {}", numbers.join(" "));
    }
}

/// A budget is divided between reused rows and cached features so that fewer bytes move: wide rows
/// leave memory to features, narrow ones do not. Without a limit, all hot rows are reused.
#[test]
fn memory_is_divided_so_that_few_bytes_move() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = |hidden: usize, split: &str, budget: u64| {
        let options = "strategy=time-sharing reuse=layered super_batch=3 max_batches=6";
        measured_alone(64, budget, &format!("{options} hidden={hidden} hot_split={split}"))
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
    let options = "strategy=time-sharing reuse=layered super_batch=3 max_batches=6 hidden=256";
    assert_eq!(measured(options, 0, &data(13, 64)).unwrap().share, 1.0);
}

#[test]
fn reuse_takes_less_memory_and_moves_fewer_bytes_at_the_same_budget() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for strategy in ["time-sharing", "factored", "pipelined"] {
        let devices = if strategy == "factored" { "devices=virtual:2 num_samplers=1" } else { "" };
        let exact = format!("strategy={strategy} {devices}");
        let reuse = format!("{exact} reuse=layered");
        let (of_exact, of_reuse) = (least_budget_alone(200, &exact), least_budget_alone(200, &reuse));
        assert!(of_reuse < of_exact, "{strategy}: {of_reuse} and {of_exact} without reuse");
        let budget = of_exact + 1_500_000;
        let of = |options: &str| measured_alone(200, budget, options).unwrap();
        let (exact, reuse) = (of(&exact), of(&reuse));
        assert!(reuse.hits > exact.hits, "{strategy}, {budget}: {} and {}", reuse.hits, exact.hits);
        assert!(reuse.bytes < exact.bytes, "{strategy}, {budget}: {} and {} bytes", reuse.bytes, exact.bytes);
    }
}
