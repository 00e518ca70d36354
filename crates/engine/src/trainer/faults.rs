//! A run that fails and is resumed ends with the same bits as a run without a failure.

use std::{fs, path::Path, sync::Arc};

use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_loader::sampler::SubgraphTraining;

use super::*;
use crate::{
    RunDir, build,
    checkpoint::Checkpoint,
    config::{Bytes, Fanout, Ratio},
    memory::MemoryPlacement,
    observer::Quiet,
    strategy::{FactoredOptions, LayeredOptions, PipelinedOptions, UpdateOptions, Updates},
    tiers::Presampling,
};
use common::{Fault, FaultyOptimizer, FaultySampler, Kind};

#[path = "../../tests/common/mod.rs"]
mod common;

const BATCHES: u64 = 11;
const EPOCHS: u64 = 2;

/// Strategies with their batches per update.
fn strategies() -> Vec<(TrainConfig, u64)> {
    let of = |strategy: &str, allocation: &str, devices: &str, group| {
        let config = TrainConfig {
            strategy: strategy.into(),
            devices: devices.parse().unwrap(),
            epochs: EPOCHS as usize,
            batch_size: 16,
            hidden: 8,
            fanout: Fanout(vec![3, 2]),
            fused: "off".parse().unwrap(),
            dropout: 0.2,
            model: "gin".into(),
            norm: "batch".parse().unwrap(),
            cache: "degree".into(),
            cache_ratio: Ratio((devices != "cpu").then_some(0.2)),
            ..TrainConfig::default()
        }
        .with(|pipelined: &mut PipelinedOptions| pipelined.allocation = allocation.parse().unwrap())
        .with(|factored: &mut FactoredOptions| factored.num_samplers = 1);
        (config, group)
    };
    let layered = |ahead: &str| {
        let (config, group) = of("layered", "profiled", "cpu", 1);
        let model = "sage".to_string();
        (
            TrainConfig { model, ..config }.with(|layered: &mut LayeredOptions| {
                (layered.super_batch, layered.hot_prefetch, layered.hot_rank) =
                    (3, ahead.parse().unwrap(), 3);
            }),
            group,
        )
    };
    let stale = || {
        let (config, group) = of("factored", "profiled", "virtual:3", 1);
        let late = UpdateOptions { updates: Updates::Asynchronous, staleness: 3 };
        (config.with(|updates: &mut UpdateOptions| *updates = late), group)
    };
    // 11 subgraphs of 16 draws among the training nodes
    let of_subgraphs = || {
        let (config, group) = layered("on");
        let sampler = "saint-node".to_string();
        let config = TrainConfig { sampler, ..config }.with(|training: &mut SubgraphTraining| {
            (training.inductive, training.sample_coverage) = (true, 3.0);
        });
        (config, group)
    };
    vec![
        of_subgraphs(),
        of("sequential", "profiled", "cpu", 1),
        of("pipelined", "profiled", "cpu", 1),
        of("pipelined", "1,1,1", "cpu", 1),
        layered("off"),
        layered("on"),
        of("factored", "profiled", "virtual:2", 1),
        of("factored", "profiled", "virtual:3", 2),
        stale(),
    ]
}

fn data() -> Dataset {
    let options = GenerateOptions { nodes: 700, classes: 3, dim: 6, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.split.train = data.split.train[..BATCHES as usize * 16 - 5].to_vec().into();
    data
}

/// Trains on two threads, with the fault, if any.
fn attempt(
    config: &TrainConfig,
    data: &Dataset,
    dir: &Path,
    resume: bool,
    fault: Option<Fault>,
    observer: &mut (dyn Observer + Send),
) -> Result<Summary> {
    let mut parts = Parts::new(config, data, &Quiet)?;
    if let Some(fault) = fault.map(Arc::new) {
        parts.sampler = Box::new(FaultySampler { inner: parts.sampler, fault: fault.clone() });
        parts.optimizer = Box::new(FaultyOptimizer { inner: parts.optimizer, fault });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| {
        let dir = if resume { RunDir::reopen(dir)? } else { RunDir::create(dir)? };
        let context = RunContext { run: Some(&dir), resume, observer, stop: &|| false };
        let devices = &ComputeDevices::open(config)?;
        let placements = MemoryPlacements::both(MemoryPlacement::Mapped);
        run(
            Inputs {
                config,
                data,
                devices,
                placements,
                presampling: &Presampling::default(),
                links: None,
                view: None,
                progress: &Quiet,
            },
            parts,
            context,
        )
    })
}

/// Epoch and batch of the checkpoint, if there is one. Asserts that every file of the run is
/// complete and that no temporary file remains.
fn checkpoint_position(dir: &Path) -> Option<(usize, u64)> {
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".tmp"), "{name} is left over");
        if name.ends_with(".old") {
            // the checkpoint before
            assert_eq!(name, "checkpoint.old");
            Checkpoint::<RunState>::load(&dir.join(name)).unwrap().unwrap();
        }
    }
    TrainConfig::default().read_file(&RunDir::config_path(dir)).unwrap();
    for line in fs::read_to_string(dir.join("metrics.jsonl")).unwrap_or_default().lines() {
        serde_json::from_str::<EpochRecord>(line).unwrap();
    }
    let saved = Checkpoint::<RunState>::load(&dir.join("checkpoint")).unwrap()?;
    Some((saved.state.epoch, saved.state.batch))
}

/// Asserts that two runs have equal losses, counts and parameters.
fn assert_same(a: &Path, b: &Path, what: &str) {
    let numbers = |dir: &Path| -> Vec<_> {
        let epochs = RunDir::open(dir).unwrap().summary().unwrap().epochs;
        epochs
            .iter()
            .map(|e| (e.epoch, e.loss.to_bits(), e.valid_loss.map(f64::to_bits), e.sampled_edges))
            .collect()
    };
    assert_eq!(numbers(a), numbers(b), "{what}");
    let [a, b] = [a, b].map(|dir| Checkpoint::<RunState>::load(&dir.join("checkpoint")).unwrap().unwrap());
    assert!(a.model == b.model && a.best == b.best && a.optimizer == b.optimizer, "weights: {what}");
}

#[test]
fn runs_resume_from_the_last_complete_update_after_a_failed_stage() {
    common::hush();
    let data = data();
    for (config, group) in strategies() {
        let temporary = tempfile::tempdir().unwrap();
        let whole = temporary.path().join("whole");
        attempt(&config, &data, &whole, false, None, &mut Quiet).unwrap();
        for (kind, epoch, batch) in [
            (Kind::SampleError, 0, 7),
            (Kind::SamplePanic, 1, 8),
            (Kind::SamplePanic, 1, 0),
            (Kind::TrainPanic, 0, 5),
            (Kind::TrainPanic, 1, 4),
            (Kind::UpdatePanic, 1, 7),
            (Kind::TrainError, 1, 6),
            (Kind::SampleError, 0, 1),
        ] {
            let what = format!(
                "{} {} {}, {kind:?} in {epoch}, {batch}",
                config.strategy,
                config.own.get::<PipelinedOptions>().allocation,
                config.devices
            );
            let dir = temporary.path().join(format!("{kind:?}-{epoch}-{batch}"));
            let fault = Fault::new(kind, epoch, batch, BATCHES, group);
            // a checkpoint of an earlier batch, because an incomplete update cannot be saved
            let every = if kind == Kind::UpdatePanic { 2 } else { 0 };
            let failing = TrainConfig { checkpoint_batches: every, ..config.clone() };
            let error = attempt(&failing, &data, &dir, false, Some(fault), &mut Quiet).unwrap_err();
            let at = checkpoint_position(&dir);
            let first = batch / group * group;
            let in_place = config.strategy != "factored";
            // if the failure saves nothing, the checkpoint is that of the previous epoch, if it
            // took long enough for one
            let old = at.filter(|_| epoch > 0).map(|_| (epoch as usize, 0));
            let expected = match kind {
                Kind::TrainError => old,
                Kind::TrainPanic if in_place => old,
                Kind::UpdatePanic => Some((epoch as usize, first / 2 * 2)),
                _ => (epoch + first > 0).then_some((epoch as usize, first)),
            };
            assert_eq!(at, expected, "{what}: {error}");
            attempt(&config, &data, &dir, true, None, &mut Quiet).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&whole, &dir, &what);
        }
    }
}

/// Truncates a file after `left` batches.
struct Cutting<'p> {
    file: &'p Path,
    left: u64,
}

impl Observer for Cutting<'_> {
    fn batch(&mut self, _: &crate::observer::Progress) -> Result<()> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            fs::OpenOptions::new().write(true).open(self.file).unwrap().set_len(4096).unwrap();
        }
        Ok(())
    }
}

#[test]
fn truncated_features_end_the_run_with_a_checkpoint_of_all_updates() {
    let data = data();
    for (mut config, group) in strategies() {
        let temporary = tempfile::tempdir().unwrap();
        let home = temporary.path().join("data");
        data.save(&home).unwrap();
        config.dataset = home.to_str().unwrap().into();
        config.host_budget = Bytes(6 << 10);
        config.cache = "auto".into();
        let opened = build::open_dataset(&config).unwrap();
        let whole = temporary.path().join("whole");
        attempt(&config, &opened, &whole, false, None, &mut Quiet).unwrap();
        let file = home.join("features.npy");
        let bytes = fs::read(&file).unwrap();
        // in the middle of an epoch, and after the last batch, so that scoring fails
        for left in [3, BATCHES.div_ceil(group)] {
            let what = format!(
                "{} {} {} {}, cut after {left}",
                config.strategy,
                config.own.get::<PipelinedOptions>().allocation,
                config.devices,
                config.own.get::<LayeredOptions>().hot_prefetch
            );
            let dir = temporary.path().join(format!("run{left}"));
            let mut cutting = Cutting { file: &file, left };
            let error = attempt(&config, &opened, &dir, false, None, &mut cutting).unwrap_err();
            assert!(error.to_string().contains("features.npy"), "{what}: {error}");
            let (epoch, batch) = checkpoint_position(&dir).expect("a checkpoint");
            assert!(epoch == 0 && batch >= (left * group).min(BATCHES), "{what}: {batch}");
            fs::write(&file, &bytes).unwrap();
            attempt(&config, &opened, &dir, true, None, &mut Quiet).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(&whole, &dir, &what);
        }
    }
}
