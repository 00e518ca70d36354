//! Trains with features that exceed their memory budget: the features stay in a file, and a cache
//! holds the rows that minibatches request most.
//!
//! Run it with `cargo run --release --example 06-features-beyond-memory`.

use graphmill::{
    dataset::generate::{GenerateOptions, generate},
    engine::config::{Bytes, Fanout},
    prelude::*,
};

/// Trains with all features in memory, then with a quarter of them in a cache.
pub fn main() -> graphmill::Result<()> {
    let directory = std::env::temp_dir().join(format!("graphmill-example-{}", std::process::id()));
    let outcome = compare(&directory);
    // best effort, also after an error
    let _ = std::fs::remove_dir_all(&directory);
    outcome
}

fn compare(directory: &std::path::Path) -> graphmill::Result<()> {
    // 4,000 nodes of 128 features: 2 MiB; real features are a thousand times larger
    let options =
        GenerateOptions { nodes: 4000, classes: 4, dim: 128, signal: 0.3, ..GenerateOptions::default() };
    generate("sbm", &options)?.save(directory)?;
    let data = Dataset::open(directory)?;
    println!("{data}: {} KiB of features", data.features.bytes() >> 10);

    let in_memory = TrainConfig {
        epochs: 3,
        batch_size: 128,
        hidden: 32,
        fanout: Fanout(vec![5, 5]),
        ..TrainConfig::default()
    };
    let beyond = TrainConfig {
        host_budget: Bytes(data.features.bytes() as u64 / 4), // at most a quarter of the rows
        cache: "posterior:2".into(),                          // the rows with the most expected requests
        ..in_memory.clone()
    };

    let mut predictions = Vec::new();
    for (name, config) in [("all in memory", in_memory), ("a quarter in memory", beyond)] {
        let trained = graphmill::train(&config, &data)?;
        let read = trained.summary().epochs[2].traffic;
        println!(
            "{name}: {:.0} % of rows read from memory, {} from the file; test accuracy {:.3}",
            100.0 * read.host.rows as f64 / read.rows() as f64,
            read.disk.rows,
            trained.summary().test.score.unwrap_or(0.0)
        );
        predictions.push(trained.classes(&data, &data.split.test)?);
    }
    println!("the same predictions: {}", predictions[0] == predictions[1]);
    Ok(())
}
