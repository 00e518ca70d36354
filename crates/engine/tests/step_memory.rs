//! The counted bytes of a training step are those by which the process grows. (A separate program
//! with one test, because it measures the memory of the process.)

use std::fs;

use graphmill_core::memory;
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{TrainConfig, build, config::Fanout, strategy, tiers::step_of_run};

#[test]
fn counted_bytes_are_those_by_which_the_process_grows() {
    let options =
        GenerateOptions { scale: 14, degree: Some(16.0), classes: 8, dim: 256, ..GenerateOptions::default() };
    let data = generate("kronecker", &options).unwrap();
    let config = TrainConfig {
        model: "sage".into(),
        hidden: 512,
        batch_size: 2000,
        fanout: Fanout(vec![10, 10]),
        ..TrainConfig::default()
    };
    let sampler = strategy::sampler(&config, &data).unwrap();
    let order = build::order(&config, &data).unwrap();
    // the system forgets the peak of the generator
    let forgets = fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = memory::resident();
    let step = step_of_run(&config, &data, (&*sampler, &*order), None, None).unwrap();
    assert!(step.bytes > 20_000_000 && step.bytes > 2 * step.rows, "{step:?}");
    if let (true, Some(before), Some(peak)) = (forgets, before, memory::peak()) {
        let grown = peak.saturating_sub(before);
        let ratio = step.bytes as f64 / grown as f64;
        println!("counted {}, grown by {grown} bytes: {ratio:.2}", step.bytes);
        assert!((0.5..2.0).contains(&ratio), "counted {} bytes, grown by {grown}", step.bytes);
    }
}
