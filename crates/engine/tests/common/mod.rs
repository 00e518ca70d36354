//! Stages that fail, or are slow, at a chosen batch.
//!
//! A sampler, a feature table and an optimiser wrap the real ones and share a [`Fault`]. The
//! sampler receives the number of the batch; the later stages recognize the batch by its input
//! nodes or by the number of updates.

#![allow(dead_code, reason = "every test file uses a part")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use graphmill_core::{Error, Matrix, NodeId, Result};
use graphmill_loader::{
    Feature, MinibatchSampler, Sampled, Seeds, Traffic, Upper, Workspace,
    feature::{Capabilities, OutputRows},
    sampler::{BatchRequest, SamplerProperties, SplitSampler},
};
use graphmill_nn::{Backend, Param, optim::Optimizer};

/// Stops the output of injected panics.
pub(crate) fn hush() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default();
        if !message.starts_with("injected") && !message.contains("one label per row") {
            print(info);
        }
    }));
}

/// Failure of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No failure.
    None,
    /// Sampling returns an error.
    SampleError,
    /// Sampling panics.
    SamplePanic,
    /// Reading its rows returns an error.
    ExtractError,
    /// Reading its rows panics.
    ExtractPanic,
    /// Its loss is NaN.
    TrainError,
    /// Its labels do not match its logits, which panics after the forward pass.
    TrainPanic,
    /// The update by its gradient panics in the middle.
    UpdatePanic,
    /// Recording it returns an error.
    RecordError,
    /// Recording it panics.
    RecordPanic,
}

/// Failure of one batch of one epoch.
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
    /// Batches per epoch.
    pub(crate) batches: u64,
    /// Batches per update.
    pub(crate) group: u64,
    /// Additional time to sample, and to extract, a batch.
    pub(crate) delay: Box<dyn Fn(u64) -> Duration + Send + Sync>,
    /// Numbers and input nodes of the batches whose extraction fails or is delayed.
    inputs: Mutex<Vec<(u64, Vec<NodeId>)>>,
}

impl Fault {
    pub(crate) fn new(kind: Kind, epoch: u64, batch: u64, batches: u64, group: u64) -> Self {
        let delay = Box::new(|_| Duration::ZERO);
        Self { kind, epoch, batch, batches, group, delay, inputs: Mutex::default() }
    }

    /// Message of the injected error or panic.
    pub(crate) fn message(&self) -> String {
        format!("injected {:?} in batch {}", self.kind, self.batch)
    }

    fn has_delays(&self) -> bool {
        (0..self.batches).any(|batch| !(self.delay)(batch).is_zero())
    }

    fn error(&self) -> Error {
        Error::invalid(self.message())
    }
}

pub(crate) struct FaultySampler {
    pub(crate) inner: Box<dyn MinibatchSampler>,
    pub(crate) fault: Arc<Fault>,
}

impl MinibatchSampler for FaultySampler {
    fn properties(&self) -> SamplerProperties {
        SamplerProperties {
            is_random: true,
            reads_edge_weights: false,
            subgraphs: None,
            ..self.inner.properties()
        }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        self.strike(request, || self.inner.sample(request, workspace, seeds))
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        self.inner.split().map(|_| self as &dyn SplitSampler)
    }
}

impl SplitSampler for FaultySampler {
    fn sample_upper(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper> {
        // the draw of the bottom block, which follows, fails
        self.inner.split().unwrap().sample_upper(request, workspace, seeds)
    }

    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> Result<Sampled> {
        self.strike(request, || self.inner.split().unwrap().sample_bottom(request, workspace, upper))
    }
}

impl FaultySampler {
    /// Applies the fault to a draw, of the whole batch or of its bottom block, and to its result.
    fn strike(&self, request: &BatchRequest, draw: impl FnOnce() -> Result<Sampled>) -> Result<Sampled> {
        let (fault, number) = (&self.fault, request.key.batch);
        std::thread::sleep((fault.delay)(number));
        let strikes = (request.key.epoch, number) == (fault.epoch, fault.batch);
        if strikes && fault.kind == Kind::SamplePanic {
            panic!("{}", fault.message());
        }
        let mut batch = draw()?;
        if strikes || fault.has_delays() {
            let mut inputs = fault.inputs.lock().unwrap();
            inputs.retain(|(other, _)| *other != number);
            inputs.push((number, batch.input_nodes.clone()));
        }
        let seeds = &mut batch.seeds.nodes;
        match fault.kind {
            Kind::SampleError if strikes => return Err(fault.error()),
            Kind::TrainError if strikes => {
                batch.loss_weight.clear();
                batch.loss_weight.resize(seeds.len(), f32::NAN);
            }
            // rows that are made for reuse have no seeds
            Kind::TrainPanic if strikes => seeds.extend_from_within(..seeds.len().min(1)),
            _ => {}
        }
        Ok(batch)
    }
}

pub(crate) struct FaultyFeature {
    pub(crate) inner: Arc<dyn Feature>,
    pub(crate) fault: Arc<Fault>,
}

impl FaultyFeature {
    /// Batch of these input nodes, which are all of its nodes or those that miss a cache.
    fn batch(&self, ids: &[NodeId]) -> Option<u64> {
        let inputs = self.fault.inputs.lock().unwrap();
        let is_part_of = |all: &[NodeId]| {
            let mut all = all.iter();
            !ids.is_empty() && ids.iter().all(|id| all.any(|other| other == id))
        };
        inputs.iter().find(|(_, all)| is_part_of(all)).map(|(number, _)| *number)
    }
}

impl Feature for FaultyFeature {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn num_rows(&self) -> usize {
        self.inner.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        if let Some(number) = self.batch(ids) {
            let fault = &self.fault;
            std::thread::sleep((fault.delay)(number));
            match fault.kind {
                Kind::ExtractError if number == fault.batch => return Err(fault.error()),
                Kind::ExtractPanic if number == fault.batch => panic!("{}", fault.message()),
                _ => {}
            }
        }
        self.inner.read_to(ids, places, out)
    }

    fn row_bytes(&self) -> u64 {
        self.inner.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

pub(crate) struct FaultyOptimizer {
    pub(crate) inner: Box<dyn Optimizer>,
    pub(crate) fault: Arc<Fault>,
}

impl Optimizer for FaultyOptimizer {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn begin(&mut self, lr: f32) {
        self.inner.begin(lr);
    }

    fn update(&mut self, backend: &dyn Backend, index: usize, param: &mut Param, decay: f32) {
        let Fault { kind, epoch, batch, batches, group, .. } = *self.fault;
        let strikes = self.steps() == epoch * batches.div_ceil(group) + batch / group + 1;
        if kind == Kind::UpdatePanic && strikes && index == 1 {
            panic!("{}", self.fault.message());
        }
        self.inner.update(backend, index, param, decay);
    }

    fn prepare(&mut self, index: usize, param: &Param) {
        self.inner.prepare(index, param);
    }

    fn steps(&self) -> u64 {
        self.inner.steps()
    }

    fn set_steps(&mut self, steps: u64) {
        self.inner.set_steps(steps);
    }

    fn visit_state(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.inner.visit_state(see);
    }

    fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        self.inner.visit_state_mut(see);
    }
}
