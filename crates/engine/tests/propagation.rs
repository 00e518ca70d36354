//! Propagation after a saved run's model is for data that the run can score.

use std::path::Path;

use graphmill_core::progress;
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    propagation::PropagationOptions,
    saved::{Kind, Propagation, SavedRun},
    train,
};

fn data(classes: usize) -> Dataset {
    let options = GenerateOptions { nodes: 300, classes, dim: 8, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

fn trained(dir: &Path, data: &Dataset) -> SavedRun {
    let fanout = "3,2".parse().unwrap();
    let config = TrainConfig { hidden: 8, epochs: 1, fanout, ..TrainConfig::default() };
    let run = RunDir::create(dir).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(&config, data, context).unwrap();
    SavedRun::open(dir, false).unwrap()
}

#[test]
fn data_with_more_classes_than_the_run_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    let own = data(3);
    trained(&dir, &own);
    for name in ["label-propagation", "correct-and-smooth"] {
        let propagation = Propagation::new(name, PropagationOptions::default()).unwrap();
        let run = SavedRun::open(&dir, false).unwrap().with_propagation(propagation).unwrap();
        let out = temporary.path().join(format!("{name}.npy"));
        let predict = |data| run.predict(data, None, false, Kind::Classes, &out, &progress::Quiet);
        assert_eq!(predict(&own).unwrap().rows, 300);
        let error = predict(&data(5)).unwrap_err().to_string();
        assert!(error.contains("5 classes, but the run has 3"), "{name}: {error}");
    }
}
