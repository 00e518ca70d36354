//! Defaults of the general options.

use std::{fmt::Debug, num::NonZero, str::FromStr};

use graphmill_core::options::{OwnOptions, Spelled};
use graphmill_loader::Fanout;
use graphmill_nn::{backend::Activation, layer::Init, model::ResidualKind, regression::TargetTransform};

use super::{
    Arithmetic, Bottom, Bytes, CudaGraphs, EvalEvery, FeaturePrecision, NormChoice, Ratio, SelectBy, Switch,
    TrainConfig, VerifyFeatures,
};

/// Parses a default from its spelling.
pub(crate) fn parse_default<T: FromStr<Err: Debug>>(text: &str) -> Spelled<T> {
    text.parse().expect("a default can be read")
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            dataset: "".into(),
            start_from: String::new(),
            metric: "auto".into(),
            task: String::new(),
            verify: VerifyFeatures::Auto,
            loss: "auto".into(),
            quantile: 0.5,
            target_transform: TargetTransform::Standard,
            huber_delta: 1.0,
            class_weights: "none".into(),
            focal: 0.0,
            label_inputs: 0.0,
            sampler: "neighbor".into(),
            fanout: Fanout(vec![15, 10]),
            fanout_by_name: String::new(),
            batch_size: 1024,
            max_batches: 0,
            order: "random".into(),
            bottom: Bottom::Sampled,
            bottom_dir: String::new(),
            fused: Switch::Auto,
            sparse: Switch::Auto,
            model: "sage".into(),
            layers: 2,
            hidden: 256,
            activation: Activation::Relu,
            init: Init::Glorot,
            norm: NormChoice::Auto,
            residual: ResidualKind::None,
            input_layer: false,
            head_layers: 0,
            dropout: 0.5,
            input_dropout: 0.0,
            epochs: 10,
            optimizer: "adam".into(),
            lr: 0.003,
            weight_decay: 0.0,
            weight_decay_first_layer: false,
            schedule: "constant".into(),
            warmup: 0.0,
            clip: 0.0,
            select_by: SelectBy::Score,
            patience: 0,
            seed: 0,
            host_budget: Bytes(0),
            device_budget: Bytes(0),
            cache_ratio: Ratio(None),
            cache: "auto".into(),
            host_cache: "auto".into(),
            placement: parse_default("interleave"),
            strategy: "sequential".into(),
            reuse: "none".into(),
            link: parse_default("none"),
            peer_link: parse_default("none"),
            precision: Arithmetic::F32,
            cuda_graphs: CudaGraphs::Auto,
            feature_precision: FeaturePrecision::Auto,
            devices: parse_default("cpu"),
            threads: 0,
            eval_every: EvalEvery::Epochs(NonZero::<usize>::MIN),
            eval_nodes: 0,
            eval_chunk: 16384,
            shuffle_parts: 0,
            graph_stores: 0,
            peer_timeout: 60.0,
            checkpoint_batches: 0,
            checkpoint_seconds: 60.0,
            trace: false,
            tensorboard: false,
            own: OwnOptions::default(),
        }
    }
}
