//! Samplers on a device draw the same blocks and input nodes as those on the CPU under the same
//! key, element by element.

use std::sync::Arc;

use graphmill_core::{Graph, NodeId, block::Aggregation, keyed, options::OwnOptions};
use graphmill_cuda::{
    Device,
    driver::shim::{Options, Order},
    sampler::{self, DeviceSampler, SamplerPlacement, TopologyPlacement},
};
use graphmill_loader::{
    BatchKey, BlockLayout, MinibatchSampler, Seeds, Workspace,
    sampler::{
        BatchRequest, SamplerOptions, Source, TABLE, WalkLength, WalkOptions, WeightOptions, WeightedOptions,
        weighted::{DrawBy, EdgeWeights},
    },
    weights::SymmetricWeights,
};
use proptest::prelude::*;

use crate::counting::Counting;
use crate::device;

/// Options of weighted draws with replacement.
fn again() -> OwnOptions {
    OwnOptions::default().with(WeightedOptions { replace: true, ..WeightedOptions::default() })
}

fn device(index: usize, order: Order) -> Arc<Device> {
    device::device(index, Options { order, ..Options::default() })
}

/// Graph of nodes with these in-degrees and arbitrary, partly repeated neighbours.
fn graph(degrees: &[usize], seed: u64) -> Graph {
    let mut indptr = vec![0u64];
    for &degree in degrees {
        indptr.push(indptr[indptr.len() - 1] + degree as u64);
    }
    let (mut stream, nodes) = (keyed::Stream::new(seed), degrees.len() as u64);
    let draw = |_| {
        let among = if stream.below(3) == 0 { nodes.div_ceil(9) } else { nodes };
        stream.below(among) as NodeId
    };
    let indices: Vec<NodeId> = (0..indptr[degrees.len()]).map(draw).collect();
    Graph::new(indptr.into(), indices.into()).unwrap()
}

/// The same graph with weights, some of them 0.
fn weighted(graph: Graph, zeros: bool) -> Graph {
    let weight = |e: u64| if zeros && e.is_multiple_of(5) { 0.0 } else { (e * e % 17 + 1) as f32 * 0.3 };
    let weights: Vec<f32> = (0..graph.num_edges() as u64).map(weight).collect();
    graph.with_edge_weight(weights.into()).unwrap()
}

fn seeds(nodes: usize, count: usize) -> Vec<NodeId> {
    // a step coprime to the number of nodes
    let step = (1..).map(|i| 7 * i + 5).find(|step| gcd(*step, nodes) == 1).unwrap();
    (0..count.min(nodes)).map(|i| (i * step % nodes) as NodeId).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn on_devices(
    devices: &[Arc<Device>],
    name: &str,
    options: &SamplerOptions,
    graph: &Graph,
    budget: u64,
) -> Vec<DeviceSampler> {
    let source = Source::new(graph, &[]);
    match sampler::make(devices, name, options, &source, budget).unwrap() {
        SamplerPlacement::OnDevices(samplers) => samplers,
        SamplerPlacement::OnHost(why) => panic!("drawn on the host: {why}"),
    }
}

/// Draws batches on both sides and compares them.
fn compare(
    sampler: &DeviceSampler,
    name: &str,
    options: &SamplerOptions,
    graph: &Graph,
    form: BlockLayout,
    seeds: &[NodeId],
) {
    let make = TABLE.get(name).unwrap().make;
    let reference = make.make(options, &Source::new(graph, &[])).unwrap();
    let mut workspace = Workspace::new(graph.num_nodes());
    workspace.set_parallel(false);
    let mut memories = [Seeds::default(), Seeds::default()];
    for number in 0..2 {
        let request = BatchRequest::new(graph, BatchKey { seed: 11, epoch: 3, batch: number });
        let request = request.with_layout(form);
        let [expected, found] = memories.map(|memory| memory.refill(number, seeds.iter().copied()));
        let expected = reference.sample(&request, &mut workspace, expected).unwrap();
        let found = sampler.sample(&request, &mut workspace, found).unwrap();
        assert_eq!(found.input_nodes, expected.input_nodes);
        assert_eq!((found.is_fused(), found.num_edges()), (expected.is_fused(), expected.num_edges()));
        assert_eq!(found.blocks.len(), expected.blocks.len());
        for (layer, (block, expected)) in found.blocks.iter().zip(&expected.blocks).enumerate() {
            assert!(block.drawn_on_device().is_some());
            let wanted = form.transposed >> layer & 1 == 1 && !(form.fused && layer == 0);
            assert_eq!(block.is_transposed(), wanted);
            assert_eq!(block.is_weighted(), expected.is_weighted());
            let mut block = block.clone();
            block.fetch();
            assert_eq!((block.num_dst, block.num_src), (expected.num_dst, expected.num_src));
            assert_eq!(block.grad_src, expected.grad_src);
            assert_eq!(block.indptr, expected.indptr);
            assert_eq!(block.indices, expected.indices);
            assert_eq!(block.dst_ids, expected.dst_ids);
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&block.edge_weight), bits(&expected.edge_weight));
            assert_eq!(bits(&block.self_weight), bits(&expected.self_weight));
            assert_eq!(block.transposed.indptr, expected.transposed.indptr);
            assert_eq!(block.transposed.dst, expected.transposed.dst);
            assert_eq!(block.transposed.edge, expected.transposed.edge);
        }
        memories = [expected.recycle(), found.recycle()];
    }
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Forward), Just(Order::Reverse), any::<u64>().prop_map(Order::Shuffled)]
}

/// Mostly short rows, some of them empty, and a few long ones.
fn degrees() -> impl Strategy<Value = Vec<usize>> {
    let degree = prop_oneof![8 => 0usize..12, 3 => 0usize..80, 1 => Just(300usize)];
    prop::collection::vec(degree, 1..150)
}

fn fanouts() -> impl Strategy<Value = Vec<i64>> {
    let fanout = prop_oneof![1i64..=32, 1i64..5, 33i64..90, Just(-1i64)];
    prop::collection::vec(fanout, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn uniform_draws_match_the_cpu(
        degrees in degrees(),
        fanout in fanouts(),
        count in 0usize..40,
        (seed, order) in (any::<u64>(), orders()),
        (fused, transposed, symmetric) in (any::<bool>(), 0u64..8, any::<bool>()),
    ) {
        let graph = graph(&degrees, seed);
        let device = device(0, order);
        let weights = SymmetricWeights::new(&graph);
        let options = SamplerOptions { fanout: fanout.into(), ..SamplerOptions::default() };
        let form = BlockLayout {
            fused,
            transposed,
            symmetric: symmetric.then_some(&weights),
            aggregation: Aggregation::Symmetric,
        };
        let seeds = seeds(graph.num_nodes(), count);
        for sampler in on_devices(&[device], "neighbor", &options, &graph, u64::MAX) {
            prop_assert_eq!(sampler.placement(), TopologyPlacement::Device);
            compare(&sampler, "neighbor", &options, &graph, form, &seeds);
        }
    }

    #[test]
    fn weighted_draws_match_the_cpu(
        degrees in degrees(),
        fanout in prop::collection::vec(1i64..40, 1..3),
        (seed, order) in (any::<u64>(), orders()),
        (stored, zeros, fused) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let graph = graph(&degrees, seed);
        let graph = if stored { weighted(graph, zeros) } else { graph };
        let device = device(0, order);
        let seeds = seeds(graph.num_nodes(), 20);
        for weights in [EdgeWeights::Stored, EdgeWeights::InverseOutDegree] {
            let own = again().with(WeightOptions { edge_weights: weights });
            let options = SamplerOptions { fanout: fanout.clone().into(), own, ..SamplerOptions::default() };
            let form = BlockLayout { fused, transposed: 3, ..BlockLayout::default() };
            for sampler in on_devices(std::slice::from_ref(&device), "weighted", &options, &graph, u64::MAX) {
                compare(&sampler, "weighted", &options, &graph, form, &seeds);
            }
        }
    }

    #[test]
    fn walks_match_the_cpu(
        degrees in degrees(),
        fanout in prop::collection::vec(prop_oneof![1i64..8, Just(-1i64)], 1..3),
        (walks, length, restart) in (1usize..40, 1usize..5, 0.0f64..1.0),
        (seed, order) in (any::<u64>(), orders()),
        (fused, symmetric) in (any::<bool>(), any::<bool>()),
    ) {
        let graph = graph(&degrees, seed);
        let device = device(0, order);
        let weights = SymmetricWeights::new(&graph);
        let options = SamplerOptions {
            fanout: fanout.into(),
            own: OwnOptions::default()
                .with(WalkOptions { num_walks: walks, restart_prob: restart })
                .with(WalkLength { walk_length: length }),
            ..SamplerOptions::default()
        };
        let seeds = seeds(graph.num_nodes(), 12);
        for sampler in on_devices(&[device], "random-walk", &options, &graph, u64::MAX) {
            use Aggregation::{Mean, Other, Sum, Symmetric};
            for aggregation in [Other, Mean, Sum, Symmetric] {
                let symmetric = (symmetric && aggregation == Symmetric).then_some(&weights);
                let form = BlockLayout { fused, transposed: 1, symmetric, aggregation };
                compare(&sampler, "random-walk", &options, &graph, form, &seeds);
            }
        }
    }
}

/// Graph with a few long rows among short ones.
fn with_hubs() -> Graph {
    let degree = |v: usize| match v {
        3 => 9000,
        70 => 4096,
        71 => 4097,
        _ => v % 13,
    };
    graph(&(0..3000).map(degree).collect::<Vec<_>>(), 5)
}

#[test]
fn long_rows_and_large_fanouts_match_the_cpu() {
    let graph = with_hubs();
    for (fanout, order) in [
        (vec![10, 15], Order::Forward),
        (vec![32, 33], Order::Reverse),
        (vec![300, 4], Order::Shuffled(3)),
        (vec![4000, 2], Order::Forward),
        // the second hop may have more edges than the uncounted maximum: the host waits, and the
        // table grows
        (vec![2, 4000, 3], Order::Reverse),
        (vec![-1], Order::Shuffled(9)),
    ] {
        let device = device(0, order);
        let options = SamplerOptions { fanout: fanout.into(), ..SamplerOptions::default() };
        let form = BlockLayout { transposed: 7, ..BlockLayout::default() };
        let seeds: Vec<NodeId> = [3, 70, 71].into_iter().chain(100..1100).collect();
        for sampler in on_devices(&[device], "neighbor", &options, &graph, u64::MAX) {
            compare(&sampler, "neighbor", &options, &graph, form, &seeds);
        }
    }
}

#[test]
fn draws_do_not_depend_on_the_placement_of_the_graph() {
    let graph = weighted(with_hubs(), true);
    let all: Vec<Arc<Device>> =
        (0..device::count().min(3)).map(|i| device(i, Order::Shuffled(i as u64))).collect();
    let seeds = seeds(graph.num_nodes(), 90);
    let neighbor = SamplerOptions { fanout: [5, 4].into(), ..SamplerOptions::default() };
    let again = SamplerOptions { own: again(), ..neighbor.clone() };
    let weights = SymmetricWeights::new(&graph);
    let form = BlockLayout { transposed: 2, symmetric: Some(&weights), ..BlockLayout::default() };
    for (name, options) in
        [("neighbor", &neighbor), ("weighted", &again), ("random-walk", &neighbor), ("full", &neighbor)]
    {
        let bytes = 8 * graph.indptr().len() as u64 + 4 * graph.num_edges() as u64;
        let bytes = if name == "weighted" { bytes + 8 * graph.num_edges() as u64 } else { bytes };
        let half = bytes / 2;
        for (devices, budget, place) in [
            (1, u64::MAX, TopologyPlacement::Device),
            (1, half, TopologyPlacement::Host),
            (3, half, TopologyPlacement::Shards(3)),
            (2, 100, TopologyPlacement::Host),
        ] {
            let Some(devices) = all.get(..devices) else { continue };
            let samplers = on_devices(devices, name, options, &graph, budget);
            assert_eq!(samplers.len(), devices.len());
            for sampler in samplers {
                assert_eq!(sampler.placement(), place);
                let held = sampler.topology_bytes();
                match place {
                    TopologyPlacement::Device => assert_eq!(held, bytes),
                    TopologyPlacement::Shards(_) => assert!(held > bytes / 6 && held < bytes / 2),
                    TopologyPlacement::Host => assert_eq!(held, 0),
                }
                compare(&sampler, name, options, &graph, form, &seeds);
            }
        }
    }
    assert_eq!(TopologyPlacement::Shards(3).to_string(), "in the memory of 3 devices, row by row");
}

/// Numbers of kernels, of copies and fills, and of waits per batch, equal for every batch.
fn costs(
    name: &str,
    options: &SamplerOptions,
    graph: &Graph,
    form: BlockLayout,
    seeds: &[NodeId],
) -> [usize; 3] {
    let driver = Counting::new(device::driver(0, Options::default()));
    let device = Device::new(driver.clone(), 0, 1 << 28).unwrap();
    let sampler = on_devices(&[device], name, options, graph, u64::MAX).pop().unwrap();
    let mut workspace = Workspace::new(graph.num_nodes());
    let mut all = Vec::new();
    for number in 0..3 {
        let seeds = Seeds::new(number, seeds);
        let so_far = || {
            let ((kernels, _), (waits, moves)) = (driver.started(), driver.waited_and_moved());
            [kernels, moves, waits]
        };
        let before = so_far();
        let request = BatchRequest::new(graph, BatchKey { seed: 11, epoch: 3, batch: number });
        let _batch = sampler.sample(&request.with_layout(form), &mut workspace, seeds).unwrap();
        let after = so_far();
        all.push([0, 1, 2].map(|i| after[i] - before[i]));
    }
    // the first batch allocates page-locked memory and tables of weights; later ones allocate
    // nothing
    assert_eq!(all[1], all[2]);
    all[2]
}

#[test]
fn the_host_waits_once_per_batch() {
    let graph = graph(&(0..3000).map(|v| v % 37).collect::<Vec<_>>(), 5);
    let seeds = seeds(3000, 64);
    let drawn = |fanout: &[i64], form: BlockLayout| {
        let options = SamplerOptions { fanout: fanout.into(), ..SamplerOptions::default() };
        costs("neighbor", &options, &graph, form, &seeds)
    };
    // all layers except the bottom one need a gradient of their sources. Per hop: count, draw,
    // number, and zeros for these; if transposed, a count, two digits and starts. Per batch: the
    // seeds and their number, the table, its seeds and a copy, and the sizes and nodes for the host
    let form = |transposed| BlockLayout { transposed, ..BlockLayout::default() };
    assert_eq!(drawn(&[25, 10], form(0b10)), [1 + 3 + 4 + 3 + 1, 2 + 2 + 2, 1]);
    assert_eq!(drawn(&[15, 10, 5], form(0b110)), [1 + 7 + 7 + 3 + 1, 2 + 2 + 3, 1]);
    // weights, in one more kernel per hop
    let weights = SymmetricWeights::new(&graph);
    let symmetric = BlockLayout { symmetric: Some(&weights), ..form(0b10) };
    assert_eq!(drawn(&[25, 10], symmetric), [1 + 8 + 4 + 1, 2 + 2 + 2, 1]);
    // the bottom hop of a fused batch is not numbered
    assert_eq!(drawn(&[25, 10], BlockLayout { fused: true, ..form(0b10) }), [1 + 7 + 2 + 1, 2 + 2 + 2, 1]);
    assert_eq!(drawn(&[25], BlockLayout { fused: true, ..form(0) }), [2 + 1, 2 + 1, 1]);
    // with a fanout of all neighbours, the host waits for their number (a copy), and the table is
    // sized by it
    assert_eq!(drawn(&[10, -1], form(0b10)), [1 + 7 + 1 + 3 + 1, 2 + 2 + 1 + (1 + 1 + 2 + 1), 2]);
}

#[test]
fn counted_hops_reserve_memory_for_later_hops() {
    // few nodes have neighbours: the second hop draws fewer nodes than the first one reserved, the
    // third more
    let degrees: Vec<usize> = (0..4000).map(|v| if v % 16 == 0 { 8 } else { 0 }).collect();
    let graph = graph(&degrees, 29);
    let seeds = seeds(4000, 60);
    for fanout in [vec![8, -1, 8, 8], vec![8, -1, 8, -1, 8]] {
        let options = SamplerOptions { fanout: fanout.into(), ..SamplerOptions::default() };
        let sampler = &on_devices(&[device(0, Order::Forward)], "neighbor", &options, &graph, 0)[0];
        compare(sampler, "neighbor", &options, &graph, BlockLayout::default(), &seeds);
    }
}

#[test]
fn degrees_of_a_larger_graph_are_supported() {
    let graph = graph(&(0..200).map(|v| v % 9).collect::<Vec<_>>(), 8);
    let degrees: Vec<u32> = (0..200).map(|v| v % 9 + 2).collect();
    let weights = SymmetricWeights::of_degrees(degrees.into());
    let device = device(0, Order::Forward);
    let options = SamplerOptions { fanout: [3, 2].into(), ..SamplerOptions::default() };
    let form = BlockLayout { symmetric: Some(&weights), fused: true, ..BlockLayout::default() };
    for sampler in on_devices(&[device], "neighbor", &options, &graph, u64::MAX) {
        compare(&sampler, "neighbor", &options, &graph, form, &seeds(200, 50));
    }
}

#[test]
fn unsupported_draws_fall_back_to_the_cpu_with_a_reason() {
    let graph = weighted(graph(&[3, 4, 5], 1), true);
    let device = device(0, Order::Forward);
    let source = Source::new(&graph, &[]);
    let with = |fanout: i64, own: OwnOptions| SamplerOptions {
        fanout: [fanout].into(),
        own,
        ..SamplerOptions::default()
    };
    let by_sums = again().with(WeightedOptions { replace: true, weighted_index: DrawBy::PrefixSums });
    let long =
        again().with(WalkOptions { num_walks: 600, restart_prob: 0.5 }).with(WalkLength { walk_length: 1 });
    for (name, options, why) in [
        ("labor", with(3, again()), "labor"),
        ("weighted", with(3, OwnOptions::default()), "without replacement"),
        ("weighted", with(3, by_sums), "prefix sums"),
        ("weighted", with(-1, again()), "-1"),
        ("random-walk", with(3, long), "512"),
    ] {
        match sampler::make(std::slice::from_ref(&device), name, &options, &source, u64::MAX).unwrap() {
            SamplerPlacement::OnHost(said) => assert!(said.contains(why), "{name}: {said}"),
            SamplerPlacement::OnDevices(_) => panic!("{name} on a device"),
        }
    }
    let error = sampler::make(&[device], "neighbor", &with(0, again()), &source, u64::MAX).unwrap_err();
    assert!(error.contains("fanout 0"), "{error}");
}

#[test]
fn other_graphs_and_split_batches_are_drawn_on_the_cpu() {
    let (own, other) = (graph(&[2; 40], 1), graph(&[3; 50], 2));
    let device = device(0, Order::Forward);
    let options = SamplerOptions { fanout: [2, 2].into(), ..SamplerOptions::default() };
    let sampler = on_devices(&[device], "neighbor", &options, &own, u64::MAX).pop().unwrap();
    let mut workspace = Workspace::new(50);
    let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
    let (other, own) = (BatchRequest::new(&other, key), BatchRequest::new(&own, key));
    let batch = sampler.sample(&other, &mut workspace, Seeds::new(0, [4, 45])).unwrap();
    assert!(batch.blocks.iter().all(|block| block.drawn_on_device().is_none() && block.num_edges() > 0));
    let split = sampler.split().unwrap();
    let upper = split.sample_upper(&own, &mut workspace, Seeds::new(0, [4, 5])).unwrap();
    assert!(upper.blocks[0].drawn_on_device().is_none() && upper.blocks[0].num_edges() == 4);
    let error = sampler.sample(&own, &mut workspace, Seeds::new(0, [40])).unwrap_err().to_string();
    assert!(error.contains("seed 40"), "{error}");
}

#[test]
fn concurrent_batches_are_independent() {
    let graph = with_hubs();
    let device = device(0, Order::Forward);
    let options = SamplerOptions { fanout: [6, 5].into(), ..SamplerOptions::default() };
    let sampler = on_devices(&[device], "neighbor", &options, &graph, u64::MAX).pop().unwrap();
    std::thread::scope(|scope| {
        for first in 0..3 {
            let (sampler, graph, options) = (&sampler, &graph, &options);
            scope.spawn(move || {
                let seeds: Vec<NodeId> = (first * 40..first * 40 + 60).collect();
                compare(
                    sampler,
                    "neighbor",
                    options,
                    graph,
                    BlockLayout { transposed: 3, ..BlockLayout::default() },
                    &seeds,
                );
            });
        }
    });
}
