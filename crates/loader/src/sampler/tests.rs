//! Properties of every sampler, and the distribution of neighbour sampling.

use std::collections::{BTreeMap, HashMap, HashSet};

use graphmill_core::{Block, EdgeOptions, Graph, NodeId, block::Aggregation, build, keyed};
use proptest::prelude::*;

use super::parts::PART;
use super::*;
use crate::{BatchKey, MiniBatch, Sampled, Seeds, Upper, weights::SymmetricWeights};

/// In-neighbours: 1 to 40 of node 0, node 0 of node 1, none of node 2, two of each other node.
fn star() -> Graph {
    let mut edges: Vec<(u32, u32)> = (1..=40).map(|u| (u, 0)).collect();
    edges.push((0, 1));
    for v in 3..60 {
        edges.extend([((v * 7) % 60, v), ((v * 11 + 1) % 60, v)]);
    }
    let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
    build(60, &src, &dst, EdgeOptions::DIRECTED).unwrap()
}

fn random_graph(nodes: u32, edges: usize, seed: u64) -> Graph {
    let mut stream = keyed::Stream::new(keyed::key(&[seed]));
    let mut draw = || stream.below(u64::from(nodes)) as u32;
    let (src, dst): (Vec<u32>, Vec<u32>) = (0..edges).map(|_| (draw(), draw())).unzip();
    let graph = build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap();
    // some edges have weight 0, and for some nodes all edges have
    let weights = (0..graph.num_nodes() as u64).flat_map(|v| {
        let row = 0..graph.in_degree(v as u32) as u64;
        row.map(move |e| if v % 10 == 9 { 0.0 } else { ((e * 7 + v) % 5) as f32 })
    });
    let weights: Vec<f32> = weights.collect();
    graph.with_edge_weight(weights.into()).unwrap()
}

/// Passes every sampler that goes from seeds, with the options that change its properties, to
/// `see`.
fn by_hops(fanout: &[i64], graph: &Graph, mut see: impl FnMut(&str, &SamplerOptions, &HopStack)) {
    for entry in &TABLE {
        let Make::Hops(make, _) = entry.make.make else { continue };
        for replace in [false, true] {
            for weighted_index in [weighted::DrawBy::Alias, weighted::DrawBy::PrefixSums] {
                let weighted = WeightedOptions { replace, weighted_index };
                if weighted != WeightedOptions::default() && entry.name != "weighted" {
                    continue;
                }
                let own = OwnOptions::default().with(weighted);
                let options = SamplerOptions { fanout: fanout.into(), own, ..SamplerOptions::default() };
                let sampler = make(&options, &Source::new(graph, &[])).unwrap();
                see(entry.name, &options, &HopStack::from(sampler));
            }
        }
    }
}

/// Expected edges of a node.
struct ExpectedRow {
    /// Minimum number of edges.
    min: usize,
    /// Maximum number of edges.
    max: usize,
    /// True if no two edges come from one node.
    distinct: bool,
    /// Possible sources.
    from: HashSet<NodeId>,
}

/// Expected edges of node `v` by the sampler `name` at a fanout.
fn expected_row(name: &str, options: &SamplerOptions, graph: &Graph, v: NodeId, fanout: i64) -> ExpectedRow {
    let k = usize::try_from(fanout).unwrap_or(usize::MAX);
    let row = graph.in_neighbors(v);
    let exactly = |edges, from: &[NodeId]| ExpectedRow {
        min: edges,
        max: edges,
        distinct: true,
        from: from.iter().copied().collect(),
    };
    let few = exactly(row.len().min(k), row);
    match name {
        "neighbor" => few,
        "full" => exactly(row.len(), row),
        // the fanout on average
        "labor" => {
            let first = graph.indptr()[v as usize] as usize;
            let weight = |i: usize| graph.edge_weight().map_or(1.0, |weights| weights[first + i]);
            let can: Vec<NodeId> = (0..row.len()).filter(|&i| weight(i) > 0.0).map(|i| row[i]).collect();
            let all = can.len() <= k && graph.edge_weight().is_none();
            ExpectedRow { min: if all { can.len() } else { 0 }, ..exactly(can.len(), &can) }
        }
        "weighted" => {
            let first = graph.indptr()[v as usize] as usize;
            let weight = &graph.edge_weight().unwrap()[first..];
            let can: Vec<NodeId> =
                row.iter().zip(weight).filter(|(_, w)| **w > 0.0).map(|(u, _)| *u).collect();
            let replace = options.own.get::<WeightedOptions>().replace && fanout > 0;
            let edges = if replace && !can.is_empty() { k } else { can.len().min(k) };
            ExpectedRow { distinct: !replace, ..exactly(edges, &can) }
        }
        "random-walk" => {
            let (WalkOptions { num_walks: walks, .. }, length) = (options.own.get(), random_walk::LENGTH);
            let mut from = HashSet::new();
            let mut at: HashSet<NodeId> = HashSet::from([v]);
            for _ in 0..length {
                at = at.iter().flat_map(|&u| graph.in_neighbors(u)).copied().collect();
                from.extend(&at);
            }
            ExpectedRow { min: from.len().min(1), max: k.min(walks * length), distinct: true, from }
        }
        _ => panic!("define the expected rows of {name}"),
    }
}

fn sample(sampler: &HopStack, graph: &Graph, seeds: &[NodeId], key: BatchKey, form: BlockLayout) -> Sampled {
    let request = BatchRequest::new(graph, key).with_layout(form);
    let mut workspace = Workspace::new(graph.num_nodes());
    sampler.sample(&request, &mut workspace, Seeds::new(key.batch, seeds)).unwrap()
}

/// The last of several batches with the same seeds, drawn in one workspace and in recycled buffers.
fn sample_in_turn(
    sampler: &HopStack,
    graph: &Graph,
    seeds: &[NodeId],
    numbers: impl IntoIterator<Item = u64>,
    form: BlockLayout,
) -> Sampled {
    let (mut workspace, mut last) = (Workspace::new(graph.num_nodes()), MiniBatch::default());
    for number in numbers {
        let request = BatchRequest::new(graph, BatchKey { batch: number, ..KEY }).with_layout(form);
        let seeds = last.recycle().refill(number, seeds.iter().copied());
        last = sampler.sample(&request, &mut workspace, seeds).unwrap().into();
    }
    let MiniBatch::Sampled(batch) = last else { panic!("a batch was drawn") };
    batch
}

const KEY: BatchKey = BatchKey { seed: 5, epoch: 2, batch: 9 };

/// Drawn neighbours of each destination, as global ids.
fn drawn(block: &Block, nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
    (0..block.num_dst)
        .map(|v| {
            let ids = block.edges(v).map(|e| block.indices[e]);
            if block.dst_ids.is_some() { ids.collect() } else { ids.map(|i| nodes[i as usize]).collect() }
        })
        .collect()
}

#[test]
fn every_sampler_conforms() {
    for entry in &TABLE {
        // labor draws its fanout on average; full ignores the fanout and takes all
        let is_bounded = entry.make.reads("fanout") && entry.name != "labor";
        crate::testing::check_draws(entry, is_bounded);
    }
}

proptest! {
    /// Checks every sampler of the table: expected edges, destinations that are a prefix of
    /// sources, first-seen numbering, and the same neighbours on the fast path.
    #[test]
    fn blocks_have_the_expected_rows(
        edges in 0usize..3000, nodes in 1u32..200, batch in 0u64..50,
        fanout in prop::collection::vec(prop_oneof![Just(-1i64), 1i64..80], 1..4),
    ) {
        let graph = random_graph(nodes, edges, batch);
        let seeds: Vec<u32> = (0..nodes).filter(|v| v % 3 == 0).collect();
        let key = BatchKey { batch, ..KEY };
        let mut checked = Ok(());
        by_hops(&fanout, &graph, |name, options, sampler| {
            let check = || check_blocks(name, options, sampler, &graph, &seeds, key);
            checked = std::mem::replace(&mut checked, Ok(())).and_then(|()| check());
        });
        checked?;
    }
}

fn check_blocks(
    name: &str,
    options: &SamplerOptions,
    sampler: &HopStack,
    graph: &Graph,
    seeds: &[NodeId],
    key: BatchKey,
) -> Result<(), TestCaseError> {
    let out = sample(sampler, graph, seeds, key, BlockLayout { transposed: !0, ..BlockLayout::default() });
    let layers = sampler.hops().num_layers();
    prop_assert_eq!(out.blocks.len(), layers);
    prop_assert_eq!(&out.input_nodes[..seeds.len()], seeds);
    prop_assert_eq!(out.input_nodes.iter().collect::<HashSet<_>>().len(), out.input_nodes.len());
    for (l, block) in out.blocks.iter().enumerate() {
        let hop = layers - 1 - l;
        prop_assert_eq!(
            block.num_src,
            if l == 0 { out.input_nodes.len() } else { out.blocks[l - 1].num_dst }
        );
        prop_assert!(block.num_dst <= block.num_src && block.is_transposed());
        prop_assert!([0, block.num_edges()].contains(&block.edge_weight.len()));
        let mut newest = block.num_dst as u32;
        for (v, row) in drawn(block, &out.input_nodes).into_iter().enumerate() {
            let expected = expected_row(name, options, graph, out.input_nodes[v], options.fanout[hop]);
            prop_assert!(
                expected.min <= row.len() && row.len() <= expected.max,
                "{} drew {} edges",
                name,
                row.len()
            );
            prop_assert!(!expected.distinct || row.iter().collect::<HashSet<_>>().len() == row.len());
            prop_assert!(row.iter().all(|u| expected.from.contains(u)));
            for e in block.edges(v) {
                prop_assert!(block.indices[e] <= newest);
                newest += u32::from(block.indices[e] == newest);
            }
        }
        prop_assert_eq!(newest as usize, block.num_src);
    }
    let fused = sample(sampler, graph, seeds, key, BlockLayout { fused: true, ..BlockLayout::default() });
    prop_assert!(fused.is_fused());
    for (fused_block, block) in fused.blocks.iter().zip(&out.blocks) {
        prop_assert_eq!(drawn(fused_block, &fused.input_nodes), drawn(block, &out.input_nodes));
        prop_assert_eq!(&fused_block.edge_weight, &block.edge_weight);
    }
    Ok(())
}

/// A batch whose bottom block is drawn separately, without the destinations that `left_out`
/// selects. The nodes that the layer above uses as its own destinations stay.
fn sample_separately(
    sampler: &HopStack,
    graph: &Graph,
    seeds: &[NodeId],
    key: BatchKey,
    form: BlockLayout,
    left_out: impl Fn(NodeId) -> bool,
) -> Sampled {
    let mut workspace = Workspace::new(graph.num_nodes());
    let request = BatchRequest::new(graph, key).with_layout(form);
    let mut upper = sampler.sample_upper(&request, &mut workspace, Seeds::new(key.batch, seeds)).unwrap();
    let Upper { blocks, destinations, .. } = &mut upper;
    let own: Vec<NodeId> = destinations.drain(..blocks[0].num_dst).collect();
    destinations.retain(|&v| !left_out(v));
    destinations.splice(..0, own);
    sampler.sample_bottom(&request, &mut workspace, upper).unwrap()
}

proptest! {
    /// Drawn separately, the bottom block is the same; without some destinations, the rows of the
    /// others are the same.
    #[test]
    fn the_bottom_block_may_be_drawn_separately(
        edges in 0usize..3000, nodes in 1u32..200, batch in 0u64..50, fused: bool, part in 1u32..5,
    ) {
        let graph = random_graph(nodes, edges, batch);
        let seeds: Vec<u32> = (0..nodes).filter(|v| v % 7 == 0).collect();
        let key = BatchKey { batch, ..KEY };
        let form = BlockLayout { fused, ..BlockLayout::default() };
        let mut checked = Ok(());
        by_hops(&[3, 4, 2], &graph, |name, _, sampler| {
            let check = || {
                let whole = sample(sampler, &graph, &seeds, key, form);
                let same = sample_separately(sampler, &graph, &seeds, key, form, |_| false);
                prop_assert_eq!(&same.input_nodes, &whole.input_nodes);
                for (a, b) in same.blocks.iter().zip(&whole.blocks) {
                    prop_assert_eq!((&a.indptr, &a.indices, a.num_src), (&b.indptr, &b.indices, b.num_src));
                }
                let left_out = |v: NodeId| v % 5 < part;
                let fewer = sample_separately(sampler, &graph, &seeds, key, form, left_out);
                let (own, computed) = (whole.blocks[1].num_dst, fewer.blocks[0].num_dst);
                let stays = |&&v: &&NodeId| !left_out(v);
                let of_whole = &whole.input_nodes[..whole.blocks[0].num_dst];
                let expected = of_whole[..own].iter().chain(of_whole[own..].iter().filter(stays));
                prop_assert!(fewer.input_nodes[..computed].iter().eq(expected));
                prop_assert_eq!(&fewer.blocks[1].indices, &whole.blocks[1].indices);
                if !sampler.hops().properties().is_per_node {
                    return Ok(()); // draws depend on the other destinations
                }
                let rows = |batch: &Sampled| -> BTreeMap<NodeId, Vec<NodeId>> {
                    let drawn = drawn(&batch.blocks[0], &batch.input_nodes);
                    batch.input_nodes.iter().copied().zip(drawn).collect()
                };
                let (all, some) = (rows(&whole), rows(&fewer));
                prop_assert!(some.iter().all(|(v, row)| all[v] == *row), "{}", name);
                Ok(())
            };
            checked = std::mem::replace(&mut checked, Ok(())).and_then(|()| check());
        });
        checked?;
    }
}

#[test]
fn every_subset_is_equally_likely() {
    let graph = star();
    for k in [1i64, 3, 25] {
        let sampler = HopStack::new(neighbor::Neighbor::new([k]).unwrap());
        let mut counts = [0u32; 41];
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        let runs = 20_000;
        for batch in 0..runs {
            let out = sample(
                &sampler,
                &graph,
                &[0],
                BatchKey { batch, ..KEY },
                BlockLayout { fused: true, ..BlockLayout::default() },
            );
            let row = &out.blocks[0].indices;
            for (i, &u) in row.iter().enumerate() {
                counts[u as usize] += 1;
                for &w in &row[..i] {
                    *pairs.entry((u.min(w), u.max(w))).or_default() += 1;
                }
            }
        }
        // chi-square over 40 neighbours, 39 degrees of freedom: 87 is exceeded with probability
        // 1e-5
        let expected = f64::from(runs as u32) * k as f64 / 40.0;
        let variance = expected * (1.0 - k as f64 / 40.0);
        let chi: f64 = counts[1..].iter().map(|&c| (f64::from(c) - expected).powi(2) / variance).sum();
        assert!(chi < 87.0, "k {k}: chi-square {chi}");
        // each pair has probability k (k - 1) / (40 * 39); within six sigma
        let p = k as f64 * (k - 1) as f64 / (40.0 * 39.0);
        let sigma = (runs as f64 * p * (1.0 - p)).sqrt();
        assert!(pairs.values().all(|&c| (f64::from(c) - runs as f64 * p).abs() < 6.0 * sigma + 1.0), "k {k}");
    }
}

#[test]
fn large_fanouts_draw_distinct_uniform_neighbours() {
    let edges: Vec<u32> = (0..1000).collect();
    let graph = Graph::new(
        (0..=1000).map(|v| if v == 0 { 0 } else { 1000 }).collect::<Vec<u64>>().into(),
        edges.into(),
    )
    .unwrap();
    let sampler = HopStack::new(neighbor::Neighbor::new([300]).unwrap());
    let mut counts = vec![0u32; 1000];
    for batch in 0..2000 {
        let out = sample(
            &sampler,
            &graph,
            &[0],
            BatchKey { batch, ..KEY },
            BlockLayout { fused: true, ..BlockLayout::default() },
        );
        assert_eq!(out.blocks[0].indices.iter().collect::<HashSet<_>>().len(), 300);
        out.blocks[0].indices.iter().for_each(|&u| counts[u as usize] += 1);
    }
    // each count is binomial(2000, 0.3): sigma 20.5; six sigma
    assert!(counts.iter().all(|c| c.abs_diff(600) < 123));
}

#[test]
fn draws_depend_on_every_part_of_the_key_and_nothing_else() {
    let graph = random_graph(5000, 200_000, 1);
    let seeds: Vec<u32> = (0..5000).rev().collect();
    let sampler = HopStack::new(neighbor::Neighbor::new([5, 7]).unwrap());
    let form = BlockLayout { transposed: !0, ..BlockLayout::default() };
    let first = sample(&sampler, &graph, &seeds, KEY, form);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let again = pool.install(|| sample(&sampler, &graph, &seeds, KEY, form));
        for (a, b) in first.blocks.iter().zip(&again.blocks) {
            assert_eq!(
                (&a.indptr, &a.indices, &a.transposed.edge),
                (&b.indptr, &b.indices, &b.transposed.edge)
            );
        }
        assert_eq!(first.input_nodes, again.input_nodes);
    }
    // hops of many destinations, drawn in parts
    let wide = random_graph(100_000, 300_000, 2);
    let seeds_of_wide: Vec<u32> = (0..70_000).rev().collect();
    let symmetric = SymmetricWeights::new(&wide);
    let form_of_wide = BlockLayout { symmetric: Some(&symmetric), ..form };
    let blocks = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| sample(&sampler, &wide, &seeds_of_wide, KEY, form_of_wide))
    });
    assert!(seeds_of_wide.len() > 2 * PART && blocks[0].input_nodes == blocks[1].input_nodes);
    for (a, b) in blocks[0].blocks.iter().zip(&blocks[1].blocks) {
        assert!(a.indptr == b.indptr && a.indices == b.indices && a.transposed.edge == b.transposed.edge);
        assert!(a.edge_weight == b.edge_weight && a.self_weight == b.self_weight);
    }
    for key in [BatchKey { seed: 6, ..KEY }, BatchKey { epoch: 3, ..KEY }, BatchKey { batch: 10, ..KEY }] {
        assert_ne!(first.blocks[1].indices, sample(&sampler, &graph, &seeds, key, form).blocks[1].indices);
    }
    // a workspace that served other batches changes nothing
    let batch = sample_in_turn(&sampler, &graph, &seeds, [3, 4, 9], form);
    assert_eq!(batch.blocks[0].indices, first.blocks[0].indices);
}

#[test]
fn draws_ignore_threads_and_other_batches() {
    let graph = random_graph(3000, 60_000, 1);
    let seeds: Vec<u32> = (0..3000).rev().collect();
    // more destinations than one part has
    let wide = random_graph(100_000, 200_000, 2);
    let seeds_of_wide: Vec<u32> = (0..70_000).rev().collect();
    let of_wide = SymmetricWeights::new(&wide);
    let form = BlockLayout { transposed: !0, aggregation: Aggregation::Sum, ..BlockLayout::default() };
    let form_of_wide = BlockLayout {
        symmetric: Some(&of_wide),
        aggregation: Aggregation::Symmetric,
        ..BlockLayout::default()
    };
    for (graph, seeds, form) in [(&graph, &seeds, form), (&wide, &seeds_of_wide, form_of_wide)] {
        by_hops(&[3, 4], graph, |name, _, sampler| {
            let run = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| sample(sampler, graph, seeds, KEY, form))
            };
            let (one, three) = (run(1), run(3));
            assert!(one.input_nodes == three.input_nodes, "{name}");
            for (a, b) in one.blocks.iter().zip(&three.blocks) {
                assert!(a.indptr == b.indptr && a.indices == b.indices, "{name}");
                assert!(a.edge_weight == b.edge_weight && a.self_weight == b.self_weight, "{name}");
            }
            // a node draws the same alone and among others
            assert!(sampler.hops().properties().is_per_node);
            let top = &one.blocks[1];
            for at in [0, 1, seeds.len() / 2, seeds.len() - 1] {
                let alone = sample(sampler, graph, &seeds[at..=at], KEY, form);
                let row = drawn(top, &one.input_nodes).swap_remove(at);
                assert_eq!(drawn(&alone.blocks[1], &alone.input_nodes)[0], row, "{name}");
                if !top.edge_weight.is_empty() {
                    assert_eq!(alone.blocks[1].edge_weight, top.edge_weight[top.edges(at)], "{name}");
                }
            }
            if sampler.properties().is_random {
                for key in
                    [BatchKey { seed: 6, ..KEY }, BatchKey { epoch: 3, ..KEY }, BatchKey { batch: 10, ..KEY }]
                {
                    let other = sample(sampler, graph, seeds, key, form);
                    assert!(one.blocks[1].indices != other.blocks[1].indices, "{name}");
                }
            }
            // a workspace that served another batch changes nothing
            let batch = sample_in_turn(sampler, graph, seeds, [3, KEY.batch], form);
            assert!(batch.blocks[0].indices == one.blocks[0].indices, "{name}");
            assert!(batch.blocks[0].edge_weight == one.blocks[0].edge_weight, "{name}");
        });
    }
}

#[test]
fn invalid_fanouts_are_rejected() {
    for fanout in [vec![], vec![0], vec![5, -2], vec![1; 65], vec![i64::MAX]] {
        assert!(neighbor::Neighbor::new(&fanout).is_err(), "{fanout:?}");
    }
    assert!(TABLE.find("nope").err().unwrap().to_string().contains("neighbor, full"));
}

#[test]
fn rows_state_the_weights_of_inference() {
    let graph = random_graph(50, 400, 3);
    let options = SamplerOptions { fanout: [3i64, 2].into(), ..SamplerOptions::default() };
    for entry in &TABLE {
        let is_weighted = match entry.make.make {
            Make::Hops(_, inference) => !inference(&options, &Source::new(&graph, &[])).unwrap().is_uniform(),
            Make::Subgraphs(_) => false,
        };
        assert_eq!(entry.make.weights_inference, is_weighted, "{}", entry.name);
        if let Some(needed) = entry.make.needed_weights {
            let uniform = TABLE.find(needed.uniform).unwrap();
            assert!(uniform.make.draws_relations && !uniform.make.weights_inference, "{}", entry.name);
        }
    }
}
