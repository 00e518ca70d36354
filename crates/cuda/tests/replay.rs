//! Repeated steps: captured once and replayed, with the bits of launched steps; and the conditions
//! that invalidate graphs.
//!
//! The simulated device rejects the same calls during a capture as NVIDIA's driver, and invalidates
//! the capture: allocations, frees, waits, copies from the host. A successful capture therefore
//! proves that a step makes no such calls.
//! at all shows that nothing of it happens.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use graphmill_core::{
    Block,
    keyed::{Stream as Draws, key},
    options::OwnOptions,
};
use graphmill_cuda::{
    Cuda, Device, Queue,
    driver::{Address, Arithmetic, Driver, Stream, shim::Options},
    replay::Counts,
};
use graphmill_nn::{
    Activations, Backend, Matrix, Model, ModelConfig, Pass, ProductOrder,
    backend::{ElementOps, ops::SoftmaxCrossEntropy},
    cost::BlockShape,
    layer::{Aggregator, GatOptions, SageOptions},
    optim::{self, Optimizer, clip},
};

use crate::counting::Counting;
use crate::device;

const CLASSES: usize = 5;
const DIM: usize = 7;

fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut draws = Draws::new(key(&[seed, 1]));
    let data: Vec<f32> = (0..rows * cols).map(|_| draws.normal() as f32).collect();
    Matrix::from_slice(rows, cols, &data)
}

/// One destination with many edges, and many with few.
fn block(num_dst: usize, num_src: usize, weighted: bool, seed: u64) -> Block {
    let mut draws = Draws::new(key(&[seed, 2]));
    let mut block = Block { num_dst, num_src, indptr: vec![0], ..Block::default() };
    for v in 0..num_dst {
        let degree = if v == 1 { 150 } else { v % 4 };
        block.indices.extend((0..degree).map(|_| draws.below(num_src as u64) as u32));
        block.indptr.push(block.indices.len() as u32);
    }
    if weighted {
        let mut weight = || 0.2 + 0.8 * draws.uniform() as f32;
        block.edge_weight = block.indices.iter().map(|_| weight()).collect();
        block.self_weight = (0..num_dst).map(|_| weight()).collect();
    }
    block.transpose();
    block
}

/// Training batch of a model.
struct Batch {
    blocks: Vec<Block>,
    orders: Vec<ProductOrder>,
    x: Matrix,
    label: Vec<i32>,
}

impl Batch {
    fn new(model: &Model, seeds: usize) -> Self {
        let sizes = [seeds, 2 * seeds + 1, 3 * seeds, 5 * seeds];
        let weighted = model.needs_symmetric_weights();
        let blocks: Vec<Block> = (0..model.num_layers())
            .rev()
            .map(|l| block(sizes[l], sizes[l + 1], weighted, (seeds + l) as u64))
            .collect();
        let orders = model.orders(&blocks.iter().map(BlockShape::from).collect::<Vec<_>>());
        let x = random(blocks[0].num_src, DIM, 8);
        Self { blocks, orders, x, label: (0..seeds).map(|i| (i % CLASSES) as i32).collect() }
    }
}

/// A training model as in the engine: its matrices are reused from step to step.
struct Learner<'a> {
    backend: &'a dyn Backend,
    model: Model,
    optimizer: Box<dyn Optimizer>,
    acts: Activations,
    steps: u64,
}

impl<'a> Learner<'a> {
    fn new(backend: &'a dyn Backend, config: &ModelConfig, optimizer: &str) -> Self {
        Self {
            backend,
            model: Model::new(config, DIM, CLASSES, 3).unwrap(),
            optimizer: optim::by_name(optimizer, &OwnOptions::default()).unwrap(),
            acts: Activations::default(),
            steps: 0,
        }
    }

    /// Runs one step, replayable if `again`, and returns the bits of its loss.
    fn step(&mut self, batch: &Batch, again: bool) -> u64 {
        if again {
            self.backend.begin_replayable_step();
        }
        let Self { backend, model, optimizer, acts, steps } = self;
        *steps += 1;
        let backend = *backend;
        // keys, rates and labels differ between steps
        let pass = Pass { backend, training: true, key: 42 + *steps };
        let mut label = batch.label.clone();
        label.rotate_left(*steps as usize % 3);
        let rate = 0.02 / *steps as f32;
        model.zero_grad(backend);
        model.forward(&pass, &batch.orders, &batch.blocks, batch.x.view(), acts);
        let (logits, grad) = acts.logits_and_grad();
        let mean = 1.0 / label.len() as f32;
        let loss = SoftmaxCrossEntropy { logits, label: &label, weight: &[], scale: mean, grad }.run(backend);
        model.backward(&pass, &batch.orders, &batch.blocks, batch.x.view(), acts);
        let loss = backend.resolve_loss(loss);
        clip(backend, 0.05, |see| model.visit_mut(&mut |_, param| see(param)));
        optimizer.begin(rate);
        let mut index = 0;
        model.visit_mut(&mut |_, param| {
            optimizer.update(backend, index, param, 1e-3);
            index += 1;
        });
        if again {
            backend.end_replayable_step();
        }
        backend.check().unwrap();
        loss.to_bits()
    }

    /// Bits of all parameters.
    fn parameters(&self) -> Vec<u32> {
        let mut bits = Vec::new();
        self.model.visit(&mut |_, param| {
            bits.extend(param.value.view().host().iter().map(|x| x.to_bits()));
        });
        bits
    }
}

fn device(options: Options) -> (Arc<Counting>, Arc<Device>) {
    let driver = Counting::new(device::driver(0, options));
    (driver.clone(), Device::new(driver, 0, 1 << 28).unwrap())
}

fn cuda(device: &Arc<Device>) -> Cuda {
    Cuda::new(device, Arithmetic::F32).unwrap()
}

fn named(model: &str) -> ModelConfig {
    ModelConfig { model: model.into(), hidden: 8, dropout: 0.3, ..ModelConfig::default() }
        .with(GatOptions { heads: 2, ..GatOptions::default() })
}

#[test]
fn replayed_steps_have_the_bits_of_launched_ones() {
    let configs = [
        named("sage"),
        named("sage").with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() }),
        ModelConfig { norm: "batch".parse().unwrap(), residual: "linear".parse().unwrap(), ..named("gcn") },
        named("gat").with(GatOptions { heads: 2, out_heads: 1, attention_dropout: 0.2 }),
    ];
    for (config, optimizer) in configs.iter().zip(["adam", "sgd", "adamw", "adam"]) {
        let run = |again: bool| {
            let (driver, device) = device(Options::default());
            let cuda = cuda(&device);
            let mut learner = Learner::new(&cuda, config, optimizer);
            let batch = Batch::new(&learner.model, 12);
            let mut all = Vec::new();
            for step in 0..8 {
                let before = driver.started();
                all.push((learner.step(&batch, again && step > 0), learner.parameters()));
                let (launches, graphs) = driver.started();
                if again && step > 4 {
                    // forward, backward and the loss; the gradient's norm; the update
                    assert_eq!((launches, graphs), (before.0, before.1 + 3), "{config:?}: step {step}");
                }
            }
            (all, device.replayed())
        };
        let (launched, none) = run(false);
        let (replayed, counts) = run(true);
        assert_eq!(none, Counts::default());
        assert_eq!(counts.refused, None, "{config:?}");
        assert!(counts.captured >= 3 && counts.replayed >= 9, "{config:?}: {counts:?}");
        for (step, (a, b)) in launched.iter().zip(&replayed).enumerate() {
            assert!(a == b, "{config:?}: step {step}");
        }
    }
}

#[test]
fn each_batch_is_captured_separately() {
    let sizes = [12, 12, 12, 12, 20, 20, 20, 20, 12, 12, 20];
    let run = |again: bool| {
        let (driver, device) = device(Options::default());
        let cuda = cuda(&device);
        let mut learner = Learner::new(&cuda, &named("sage"), "adam");
        let batches = [12, 20].map(|seeds| Batch::new(&learner.model, seeds));
        let mut all = Vec::new();
        for &size in &sizes {
            let before = driver.started();
            all.push(learner.step(&batches[usize::from(size == 20)], again));
            let (launches, graphs) = driver.started();
            assert!(launches > before.0 || graphs > before.1);
        }
        (all, learner.parameters(), device.replayed())
    };
    let (launched, replayed) = (run(false), run(true));
    assert_eq!((&launched.0, &launched.1), (&replayed.0, &replayed.1));
    let Counts { captured, launched, refused, .. } = replayed.2;
    // forward and backward of both batches, and the segments that do not depend on the batch
    assert!(captured >= 4 && launched > 4, "{captured} captured, {launched} launched");
    assert_eq!(refused, None);
}

#[test]
fn graphs_never_use_memory_of_others() {
    let run = |again: bool| {
        let (_, device) = device(Options::default());
        let cuda = cuda(&device);
        let mut learner = Learner::new(&cuda, &named("gcn"), "adam");
        let batch = Batch::new(&learner.model, 12);
        let mut held = Vec::new();
        let mut all = Vec::new();
        for step in 0..12 {
            all.push(learner.step(&batch, again && step > 0));
            if step % 3 == 2 {
                // memory that steps use is allocated, filled, held for a while and freed
                held = [4, 64, 400, 700, 1500, 3000].map(|bytes| cuda.queue().take(bytes).unwrap()).into();
                for buffer in &held {
                    let (queue, at) =
                        (cuda.queue(), graphmill_core::accelerator::DeviceMemory::address(buffer));
                    let words = graphmill_core::accelerator::DeviceMemory::bytes(buffer) / 4;
                    // SAFETY: this many words were just allocated
                    unsafe { device.driver().fill(Address(at), 7, words, queue.stream()).unwrap() };
                }
            } else if step % 3 == 1 {
                for buffer in held.drain(..) {
                    let mut word = [0u32];
                    buffer.download(&mut word).unwrap();
                    assert_eq!(word, [7], "a step wrote to memory of another owner");
                }
            }
            if step == 7 {
                // all free memory is returned to the driver
                device.trim().unwrap();
            }
        }
        (all, learner.parameters(), device.replayed())
    };
    let (launched, replayed) = (run(false), run(true));
    assert_eq!((launched.0, launched.1), (replayed.0, replayed.1));
    assert!(replayed.2.refused.is_none() && replayed.2.replayed > 0, "{:?}", replayed.2);
}

#[test]
fn other_threads_may_allocate_and_free_during_replay() {
    let (_, device) = device(Options::default());
    let cuda = cuda(&device);
    let mut learner = Learner::new(&cuda, &named("sage"), "adam");
    let batch = Batch::new(&learner.model, 12);
    let over = AtomicBool::new(false);
    let losses: Vec<u64> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let queue = Queue::new(&device).unwrap();
            for size in (1..).take_while(|_| !over.load(Relaxed)) {
                drop((
                    queue.take::<u8>(size * 600 % 50_000).unwrap(),
                    queue.scratch::<u8>(size * 900 % 50_000).unwrap(),
                ));
                device.trim().unwrap();
            }
        });
        let losses = (0..30).map(|step| learner.step(&batch, step > 0)).collect();
        over.store(true, Relaxed);
        losses
    });
    assert_eq!(device.replayed().refused, None, "another thread's call invalidated a capture");
    let (_, quiet) = self::device(Options::default());
    let quiet = self::cuda(&quiet);
    let mut alone = Learner::new(&quiet, &named("sage"), "adam");
    let expected: Vec<u64> = (0..30).map(|_| alone.step(&batch, false)).collect();
    assert_eq!(losses, expected);
}

/// Signals the end of a test, even after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn frees_by_other_threads_are_not_captured() {
    let (driver, device) = device(Options::default());
    driver.go_slowly();
    let cuda = cuda(&device);
    let mut learner = Learner::new(&cuda, &named("sage"), "adam");
    let batch = Batch::new(&learner.model, 12);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let queue = Queue::new(&device).unwrap();
            while !over.load(Relaxed) {
                // an event of the compute stream marks when the memory may be reused
                drop(queue.take::<u8>(5000).unwrap());
            }
        });
        let _over = Over(&over);
        (0..8).for_each(|step| {
            learner.step(&batch, step > 0);
        });
    });
    device.check().unwrap();
    assert_eq!(device.replayed().refused, None, "another thread's call invalidated a capture");
}

#[test]
fn devices_without_capture_launch_each_command() {
    if std::env::var_os("GRAPHMILL_TEST_DEVICE").is_some() {
        return;
    }
    let run = |captures: bool, graphs: bool| {
        let (_, device) = device(Options { captures, ..Options::default() });
        let cuda = cuda(&device).with_graphs(graphs);
        let mut learner = Learner::new(&cuda, &named("sage"), "adam");
        let batch = Batch::new(&learner.model, 12);
        let losses: Vec<u64> = (0..6).map(|_| learner.step(&batch, true)).collect();
        (losses, learner.parameters(), device.replayed())
    };
    let (refused, off) = (run(false, true), run(true, false));
    assert_eq!((&refused.0, &refused.1), (&off.0, &off.1));
    let why = refused.2.refused.expect("a reason why steps are not captured");
    assert!(why.contains("begin_capture failed: this device does not support capture"), "{why}");
    assert_eq!((refused.2.captured, refused.2.replayed), (0, 0));
    assert_eq!(off.2, Counts::default());
}

#[test]
fn failed_commands_are_reported_after_the_step() {
    // a real device might be unusable in later tests
    if std::env::var_os("GRAPHMILL_TEST_DEVICE").is_some() {
        return;
    }
    let (_, device) = device(Options::default());
    let cuda = cuda(&device);
    let mut x = random(4, 4, 1);
    cuda.scale(1.0, x.view_mut());
    cuda.begin_replayable_step();
    // SAFETY: rejected before anything is written, because the address is outside all allocations
    unsafe { device.driver().fill(Address(12), 1, 1, cuda.queue().stream()).unwrap() };
    cuda.scale(2.0, x.view_mut());
    cuda.check().unwrap();
    cuda.end_replayable_step();
    assert!(cuda.check().unwrap_err().to_string().contains("fill failed"));
}

/// Calls a driver during a capture and returns true if the call was rejected.
type CallInCapture<'a> = &'a dyn Fn(&dyn Driver, Stream) -> bool;

#[test]
fn forbidden_calls_invalidate_a_capture() {
    if std::env::var_os("GRAPHMILL_TEST_DEVICE").is_some() {
        return;
    }
    let driver = device::driver(0, Options::default());
    let stream = driver.stream(false).unwrap();
    let at = driver.allocate(64).unwrap();
    let event = driver.event(false).unwrap();
    let capture = |meets: CallInCapture| {
        driver.begin_capture(stream).unwrap();
        // SAFETY: this many words are there
        unsafe { driver.fill(at, 3, 16, stream).unwrap() };
        let met = meets(&*driver, stream);
        (met, driver.end_capture(stream))
    };
    let (_, graph) = capture(&|_, _| true);
    let graph = graph.unwrap();
    let word = || {
        let mut word = 0u32;
        // SAFETY: one word is there and one is read
        unsafe { driver.download(at, (&raw mut word).cast(), 4, stream).unwrap() };
        word
    };
    assert_ne!(word(), 3, "a capture must not run its work");
    // SAFETY: the memory is allocated
    unsafe { driver.launch_graph(graph, stream).unwrap() };
    assert_eq!(word(), 3);
    let mut host = [0u8; 4];
    let target = host.as_mut_ptr();
    let refused: [CallInCapture; 5] = [
        &|driver, stream| driver.synchronize(stream).is_err(),
        &|driver, stream| driver.record(event, stream).is_err(),
        &|driver, _| driver.allocate(16).is_err(),
        // SAFETY: memory as above
        &|driver, stream| unsafe { driver.upload(target, at, 4, stream).is_err() },
        // SAFETY: memory as above
        &|driver, stream| unsafe { driver.download(at, target, 4, stream).is_err() },
    ];
    for (i, meets) in refused.iter().enumerate() {
        let (met, graph) = capture(meets);
        assert!(met && graph.is_err(), "{i}");
        // the stream accepts work again
        driver.synchronize(stream).unwrap();
    }
    // SAFETY: the graph is not used again
    unsafe { driver.destroy_graph(graph) };
    // SAFETY: the graph was destroyed, which is an error
    assert!(unsafe { driver.launch_graph(graph, stream) }.is_err());
}
