//! What every sampler promises, and the distribution of neighbour sampling.

use std::collections::{HashMap, HashSet};

use graphmill_graph::{Block, EdgeOptions, Graph, NodeId, build, keyed, table};
use proptest::prelude::*;

use super::*;

/// Node 0 hears from 1..=40, node 1 from 0, node 2 from nobody, the others from two each.
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
    build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap()
}

fn sample(sampler: &dyn Sampler, graph: &Graph, seeds: &[NodeId], key: BatchKey, form: Form) -> MiniBatch {
    let mut batch = MiniBatch { number: key.batch, seeds: seeds.to_vec(), ..MiniBatch::default() };
    sampler
        .sample(graph, key.seed, key.epoch, form, &mut Workspace::new(graph.num_nodes()), &mut batch)
        .unwrap();
    batch
}

const KEY: BatchKey = BatchKey { seed: 5, epoch: 2, batch: 9 };

/// The drawn neighbours of each destination, as global ids.
fn drawn(block: &Block, nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
    (0..block.num_dst)
        .map(|v| {
            let ids = block.edges(v).map(|e| block.indices[e]);
            if block.dst_ids.is_some() { ids.collect() } else { ids.map(|i| nodes[i as usize]).collect() }
        })
        .collect()
}

proptest! {
    /// For every sampler of the table: real edges, right counts, no duplicates, destinations a
    /// prefix of sources, first-seen numbering, and the fast path drawing the same neighbours.
    #[test]
    fn blocks_are_what_they_promise(
        edges in 0usize..3000, nodes in 1u32..200, batch in 0u64..50,
        fanout in prop::collection::vec(prop_oneof![Just(-1i64), 1i64..80], 1..4),
    ) {
        let graph = random_graph(nodes, edges, batch);
        let seeds: Vec<u32> = (0..nodes).filter(|v| v % 3 == 0).collect();
        let key = BatchKey { batch, ..KEY };
        for entry in TABLE {
            let Make::Hops(make) = entry.make else { continue };
            let source = Source { graph: &graph, train: &seeds };
            let sampler = make(&SamplerOptions { fanout: fanout.clone(), ..SamplerOptions::default() }, &source).unwrap();
            let out = sample(&*sampler, &graph, &seeds, key, Form { transposed: !0, ..Form::default() });
            let layers = sampler.num_layers();
            prop_assert_eq!(out.blocks.len(), layers);
            prop_assert_eq!(&out.input_nodes[..seeds.len()], &seeds[..]);
            prop_assert_eq!(out.input_nodes.iter().collect::<HashSet<_>>().len(), out.input_nodes.len());
            for (l, block) in out.blocks.iter().enumerate() {
                let hop = layers - 1 - l;
                prop_assert_eq!(block.num_src, if l == 0 { out.input_nodes.len() } else { out.blocks[l - 1].num_dst });
                prop_assert!(block.num_dst <= block.num_src && block.is_transposed());
                let mut newest = block.num_dst as u32;
                for (v, row) in drawn(block, &out.input_nodes).into_iter().enumerate() {
                    let all = graph.in_neighbors(out.input_nodes[v]);
                    let wanted = if entry.name == "full" || fanout[hop] < 0 { all.len() } else { all.len().min(fanout[hop] as usize) };
                    prop_assert_eq!(row.len(), wanted);
                    prop_assert_eq!(row.iter().collect::<HashSet<_>>().len(), row.len());
                    prop_assert!(row.iter().all(|u| all.contains(u)));
                    for e in block.edges(v) {
                        prop_assert!(block.indices[e] <= newest);
                        newest += u32::from(block.indices[e] == newest);
                    }
                }
                prop_assert_eq!(newest as usize, block.num_src);
            }
            let fused = sample(&*sampler, &graph, &seeds, key, Form { fused: true, ..Form::default() });
            prop_assert!(fused.is_fused());
            for l in 0..layers {
                let plain_nodes = &out.input_nodes;
                prop_assert_eq!(drawn(&fused.blocks[l], &fused.input_nodes), drawn(&out.blocks[l], plain_nodes));
            }
        }
    }
}

#[test]
fn every_subset_is_equally_likely() {
    let graph = star();
    for k in [1i64, 3, 25] {
        let sampler = neighbor::Neighbor::new(&[k]).unwrap();
        let mut counts = [0u32; 41];
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        let runs = 20_000;
        for batch in 0..runs {
            let out = sample(
                &sampler,
                &graph,
                &[0],
                BatchKey { batch, ..KEY },
                Form { fused: true, ..Form::default() },
            );
            let row = &out.blocks[0].indices;
            for (i, &u) in row.iter().enumerate() {
                counts[u as usize] += 1;
                for &w in &row[..i] {
                    *pairs.entry((u.min(w), u.max(w))).or_default() += 1;
                }
            }
        }
        // chi-square over 40 neighbours, 39 degrees of freedom: beyond 87 with probability 1e-5
        let expected = f64::from(runs as u32) * k as f64 / 40.0;
        let variance = expected * (1.0 - k as f64 / 40.0);
        let chi: f64 = counts[1..].iter().map(|&c| (f64::from(c) - expected).powi(2) / variance).sum();
        assert!(chi < 87.0, "k {k}: chi-square {chi}");
        // and pairs: k (k - 1) / (40 * 39) each; within six sigma
        let p = k as f64 * (k - 1) as f64 / (40.0 * 39.0);
        let sigma = (runs as f64 * p * (1.0 - p)).sqrt();
        assert!(pairs.values().all(|&c| (f64::from(c) - runs as f64 * p).abs() < 6.0 * sigma + 1.0), "k {k}");
    }
}

#[test]
fn large_fanouts_use_the_table_and_stay_distinct_and_uniform() {
    let edges: Vec<u32> = (0..1000).collect();
    let graph = Graph::new(
        (0..=1000).map(|v| if v == 0 { 0 } else { 1000 }).collect::<Vec<u64>>().into(),
        edges.into(),
    )
    .unwrap();
    let sampler = neighbor::Neighbor::new(&[300]).unwrap();
    let mut counts = vec![0u32; 1000];
    for batch in 0..2000 {
        let out = sample(
            &sampler,
            &graph,
            &[0],
            BatchKey { batch, ..KEY },
            Form { fused: true, ..Form::default() },
        );
        assert_eq!(out.blocks[0].indices.iter().collect::<HashSet<_>>().len(), 300);
        out.blocks[0].indices.iter().for_each(|&u| counts[u as usize] += 1);
    }
    // each is binomial(2000, 0.3): sigma 20.5; six sigma
    assert!(counts.iter().all(|c| c.abs_diff(600) < 123));
}

#[test]
fn draws_depend_on_every_part_of_the_key_and_on_nothing_else() {
    let graph = random_graph(5000, 200_000, 1);
    let seeds: Vec<u32> = (0..5000).rev().collect();
    let sampler = neighbor::Neighbor::new(&[5, 7]).unwrap();
    let form = Form { transposed: !0, ..Form::default() };
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
    let form_of_wide = Form { symmetric: Some(&symmetric), ..form };
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
    let mut workspace = Workspace::new(5000);
    let mut batch = MiniBatch::default();
    for number in [3, 4, 9] {
        batch.number = number;
        batch.seeds = seeds.clone();
        sampler.sample(&graph, KEY.seed, KEY.epoch, form, &mut workspace, &mut batch).unwrap();
    }
    assert_eq!(batch.blocks[0].indices, first.blocks[0].indices);
}

#[test]
fn impossible_fanouts_are_refused() {
    for fanout in [vec![], vec![0], vec![5, -2], vec![1; 65], vec![i64::MAX]] {
        assert!(neighbor::Neighbor::new(&fanout).is_err(), "{fanout:?}");
    }
    assert!(table::find("sampler", TABLE, "nope").err().unwrap().to_string().contains("neighbor, full"));
}
