//! After warm-up epochs, minibatches allocate no memory, from their seeds to their update:
//! sampling, extraction and training by the sequential strategy, counted over all threads.
//!
//! On one thread the count is zero. On several threads, rayon's queues sometimes allocate (a queue
//! that grows, a block of retired memory), independently of batches: most epochs must have a count
//! of zero. The library of dense products allocates in each call, so the exact count is tested with
//! the reference backend, and only a constant count with [`Cpu`].

#![allow(unsafe_code, reason = "allocators of tests")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_core::{Features, NodeId, SparseRows, features::FeatureData, matrix::TableType};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_engine::{
    TrainConfig, build,
    config::{Fanout, Ratio, Switch},
    learner::Learner,
    memory::MemoryPlacement,
    record::EpochTotals,
    stage::{Loader, RowAccess},
    strategy::{Epoch, Flow, Strategy, sequential::Sequential},
    timeline::Timeline,
};
use graphmill_loader::{
    Feature,
    feature::cached::{CacheLayout, Level, Pinned, Placement},
    sampler::SubgraphTraining,
    subgraph::frontier::FrontierOptions,
};
use graphmill_nn::{
    Backend,
    backend::{
        Cpu, Reference,
        cpu::{Slicing, with_slicing},
    },
    cost::BlockShape,
};

/// Allocator that counts the allocations of all threads.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Not counted: the reference backend allocates zeroed f64 sums (`vec![0.0; n]`), and no
        // other code of a batch allocates zeroed memory, because buffers grow by reallocation.
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Lock of the tests, each of which counts the allocations of the process.
static TURN: Mutex<()> = Mutex::new(());

/// Number of allocations in each of `EPOCHS` epochs. A cache ratio caches that share of the rows.
fn allocations(data: &Dataset, config: &TrainConfig, backend: &dyn Backend) -> Vec<usize> {
    let model = build::model(config, data).unwrap();
    let (feature, table) = build::features(config, data, MemoryPlacement::Mapped).unwrap();
    let orders = model.orders(&[BlockShape { dst: 100, src: 1000, edges: 2000 }]);
    let mut orders = vec![orders[0]; config.layers];
    if table.is_sparse() {
        assert!(model.start_with_product(&mut orders));
    }
    let (feature, is_cached): (Arc<dyn Feature>, bool) = match config.cache_ratio.0 {
        None => (Arc::new(feature), false),
        Some(ratio) => {
            let cached: Vec<NodeId> = (0..(ratio * data.num_nodes() as f64) as NodeId).collect();
            let layout = CacheLayout::new(&cached, cached.len(), 1, Placement::Shard);
            (Arc::new(Pinned::new(layout, TableType::F32, Arc::new(feature), Level::Host).unwrap()), true)
        }
    };
    let rows = match (config.fused == Switch::On, is_cached) {
        (true, false) => RowAccess::InTable,
        (true, true) => RowAccess::BySlot,
        (false, _) => RowAccess::Gathered,
    };
    let in_place = rows != RowAccess::Gathered;
    assert!(!in_place || model.can_read_table(&orders));
    let sampler = build::sampler(config, data).unwrap();
    let order = build::order(config, data).unwrap();
    let loader = Loader {
        graph: &data.graph,
        train: &data.split.train,
        links: None,
        seed: 1,
        batch_size: if config.batch_size == 0 { data.split.train.len() } else { config.batch_size },
        max_batches: 0,
        order: &*order,
        sampler: &*sampler,
        feature: &*feature,
        rows,
        transposed: if in_place { !1 } else { !0 },
        symmetric: build::symmetric(&model, data),
        aggregation: model.aggregation(),
        own: None,
        labels: None,
        ahead: None,
    };
    let optimizer = build::optimizer(config).unwrap();
    let mut learner = Learner::new(backend, model, optimizer, &data.labels, orders, config);
    learner.context.table = (rows == RowAccess::InTable).then_some(table);
    let mut strategy = Sequential::new(data.num_nodes());
    let mut order = Vec::new();
    loader.order(0, &mut order);
    let mut sums = EpochTotals::default();
    let timeline = Timeline::begin();
    let mut run = |_| {
        let before = COUNT.load(Relaxed);
        let epoch = Epoch {
            // The same seeds and draws every time, because a larger batch would grow the buffers.
            number: 0,
            order: &order,
            from: 0,
            to: loader.num_batches(),
            loader: &loader,
            learner: &mut learner,
            lr: &|_| 0.01,
            after: &mut |_, done| {
                done.iter().for_each(|done| sums.add(done.batch, done.traffic, done.outcome, &done.spent));
                Ok(Flow::Continue)
            },
            timeline: &timeline,
        };
        assert_eq!(strategy.run(epoch).unwrap(), Flow::Continue);
        COUNT.load(Relaxed) - before
    };
    (0..EPOCHS).map(&mut run).collect()
}

const EPOCHS: usize = 7;
const WARM: usize = 2;

#[test]
fn batches_allocate_no_memory_in_the_steady_state() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = GenerateOptions { nodes: 3000, degree: Some(30.0), dim: 8, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let small =
        TrainConfig { hidden: 8, fanout: Fanout(vec![3, 4]), batch_size: 400, ..TrainConfig::default() };
    // one random batch per epoch, whose stages are spread over the threads
    let large = TrainConfig { fanout: Fanout(vec![10, 300]), batch_size: 0, ..small.clone() };
    // one batch per epoch, the same every time
    let whole = TrainConfig { fanout: Fanout(vec![-1, -1]), ..large.clone() };
    let backends: [&dyn Backend; 2] = [&Reference, &Cpu::default()];
    let mut sparse = data.clone();
    let FeatureData::F32(rows) = &data.features.data else { unreachable!() };
    let some: Vec<f32> = rows.iter().map(|&x| if x < 1.0 { 0.0 } else { x }).collect();
    sparse.features = Features::csr(SparseRows::from_dense(8, &some).unwrap());
    let (half, sizes) = (Some(0.5), [&small, &large, &whole]);
    let cases = [
        ("sage", "on", None, &data, &sizes[..]),
        ("sage", "off", None, &data, &sizes),
        ("gcn", "off", None, &data, &sizes),
        ("sage", "off", None, &sparse, &sizes),
        // by slot; a batch that is the same every time is not extracted again
        ("sage", "on", half, &data, &sizes[..2]),
        ("gat", "on", half, &data, &sizes[..1]),
    ];
    for (model, fused, cached, data, sizes) in cases {
        for config in sizes {
            let is_sparse = matches!(data.features.data, FeatureData::Csr(_));
            let sparse = if is_sparse { Switch::On } else { Switch::Off };
            let (model, fused) = (model.into(), fused.parse().unwrap());
            let cache_ratio = Ratio(cached);
            let config = TrainConfig { model, fused, sparse, cache_ratio, ..(*config).clone() };
            for (backend, threads) in [(0, 1), (0, 2), (1, 1)] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let counts = pool.install(|| allocations(data, &config, backends[backend]));
                assert!(counts[0] > 0, "the counter counts");
                let steady = &counts[WARM..];
                let least = *steady.iter().min().unwrap();
                let num_least = steady.iter().filter(|&&count| count == least).count();
                let case = format!("{threads} threads, backend {backend}, {config:?}: {counts:?}");
                match (backend, threads) {
                    (0, 1) => assert!(steady.iter().all(|&count| count == 0), "{case}"),
                    (0, _) => assert!(least == 0 && 2 * num_least > steady.len(), "{case}"),
                    _ => assert!(2 * num_least > steady.len(), "{case}"),
                }
            }
        }
    }
}

/// Subgraphs of every sampler, with and without normalisation.
#[test]
fn subgraphs_allocate_no_memory_in_the_steady_state() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = GenerateOptions { nodes: 3000, degree: Some(30.0), dim: 8, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    for sampler in ["frontier", "saint-rw", "saint-edge", "saint-node", "forest-fire", "cluster"] {
        for (model, coverage) in [("sage", 10.0), ("gcn", 10.0), ("sage", 0.0)] {
            let config = TrainConfig {
                sampler: sampler.into(),
                model: model.into(),
                fused: "off".parse().unwrap(),
                hidden: 8,
                batch_size: 1500,
                ..TrainConfig::default()
            }
            .with(|frontier: &mut FrontierOptions| frontier.frontier_size = 200)
            .with(|training: &mut SubgraphTraining| training.sample_coverage = coverage);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let counts = pool.install(|| allocations(&data, &config, &Reference));
            assert!(counts[0] > 0, "the counter counts");
            assert!(
                counts[WARM..].iter().all(|&count| count == 0),
                "{sampler}, {model}, {coverage}: {counts:?}"
            );
            // besides the allocations of products, aggregation by slices of the features adds none
            let config = TrainConfig { hidden: 64, ..config };
            let least = |slicing| {
                let cpu = Cpu::default();
                let run = || with_slicing(slicing, || allocations(&data, &config, &cpu));
                *pool.install(run)[WARM..].iter().min().unwrap()
            };
            assert_eq!(least(Slicing::Columns(16)), least(Slicing::Rows), "{sampler}, {model}, {coverage}");
        }
    }
}
