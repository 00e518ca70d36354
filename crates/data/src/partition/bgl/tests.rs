//! Tests: blocks respect their size and contain every vertex once; contraction preserves the edges;
//! refinement never increases the cut.

use graphmill_core::{EdgeOptions, build, keyed::Stream};
use proptest::prelude::*;

use super::{super::limits::Limits, climb::climb, refine::refine, repair::repair, *};

fn graph_of(nodes: usize, pairs: &[(u32, u32)], undirected: bool) -> Graph {
    let (src, dst): (Vec<_>, Vec<_>) =
        pairs.iter().map(|&(u, v)| (u % nodes as u32, v % nodes as u32)).unzip();
    build(nodes, &src, &dst, EdgeOptions { undirected, ..EdgeOptions::DIRECTED }).unwrap()
}

/// Weight of the edges between different parts, by visiting every edge.
fn cut_of<L: Level>(level: &L, of: &[u16]) -> u64 {
    let mut sum = 0;
    for v in 0..level.len() as u32 {
        level.each(v, |u, weight| sum += u64::from(of[u as usize] != of[v as usize]) * weight);
    }
    sum
}

fn held_by<L: Level>(level: &L, of: &[u16], parts: usize) -> Vec<Load> {
    let mut held = vec![Load::default(); parts];
    of.iter().zip(0..).for_each(|(&part, v)| held[usize::from(part)].add(level.load(v)));
    held
}

proptest! {
    #[test]
    fn blocks_cover_every_vertex_once_and_keep_every_edge(
        nodes in 1usize..80,
        pairs in prop::collection::vec((0u32..80, 0u32..80), 0..300),
        every in 1usize..4,
        (size, sources, seed, undirected) in (1u64..12, 1u64..20, any::<u64>(), any::<bool>()),
        smooth: bool,
    ) {
        let graph = graph_of(nodes, &pairs, undirected);
        let trains: Vec<bool> = (0..nodes).map(|v| v % every == 0).collect();
        let fine = Nodes { graph: &graph, trains: &trains };
        let most = Load { nodes: size, train: size.div_ceil(2) };
        let (of, blocks) = coarser(&fine, most, sources, seed, smooth).unwrap();
        let mut loads = vec![Load::default(); blocks.len()];
        of.iter().zip(0..).for_each(|(&block, v)| loads[block as usize].add(fine.load(v)));
        prop_assert_eq!(&loads, &blocks.loads);
        for load in loads {
            prop_assert!(load.nodes > 0 && load.nodes <= most.nodes && load.train <= most.train);
        }
        let mut expected = std::collections::BTreeMap::new();
        for v in 0..nodes as u32 {
            fine.each(v, |u, weight| {
                let (a, b) = (of[v as usize], of[u as usize]);
                if a != b {
                    *expected.entry((a, b)).or_insert(0) += weight;
                    *expected.entry((b, a)).or_insert(0) += weight;
                }
            });
        }
        let mut found = std::collections::BTreeMap::new();
        for b in 0..blocks.len() as u32 {
            blocks.each(b, |u, weight| assert!(found.insert((b, u), weight).is_none()));
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn climbing_never_increases_the_cut_and_repair_enforces_limits(
        nodes in 4usize..80,
        pairs in prop::collection::vec((0u32..80, 0u32..80), 0..300),
        every in 1usize..6,
        (parts, seed, undirected) in (1u16..5, any::<u64>(), any::<bool>()),
    ) {
        let graph = graph_of(nodes, &pairs, undirected);
        let trains: Vec<bool> = (0..nodes).map(|v| v % every == 0).collect();
        let fine = Nodes { graph: &graph, trains: &trains };
        let options = Options { parts, ..Options::default() };
        let train = trains.iter().filter(|&&trains| trains).count();
        let limits = Limits::new(nodes, train, &options);
        let mut stream = Stream::new(seed);
        // All vertices in one part, or spread.
        for spread in [1, u64::from(parts)] {
            let mut of: Vec<u16> = (0..nodes).map(|_| stream.below(spread) as u16).collect();
            let mut held = held_by(&fine, &of, parts.into());
            repair(&fine, &mut of, &mut held, limits);
            prop_assert_eq!(&held, &held_by(&fine, &of, parts.into()));
            prop_assert!(held.iter().all(|part| !part.is_over(limits)), "{held:?} {limits:?}");
            refine(&fine, &mut of, &mut held, limits, 3);
            prop_assert!(held.iter().all(|part| !part.is_over(limits)), "{held:?} {limits:?}");

            let single: Vec<u32> = (0..nodes as u32).collect();
            let blocks = contract::contract(&fine, &single, nodes).unwrap();
            let before = cut_of(&blocks, &of);
            climb(&blocks, &mut of, &mut held, limits, 3);
            prop_assert_eq!(&held, &held_by(&fine, &of, parts.into()));
            prop_assert!(cut_of(&blocks, &of) <= before);
            prop_assert!(held.iter().all(|part| !part.is_over(limits)), "{held:?} {limits:?}");
        }
    }
}

#[test]
fn block_sizes_grow_to_a_few_blocks_per_part() {
    let limits = Limits { nodes: 102_400, train: 51_200 };
    let sizes_of =
        |nodes, edges| -> Vec<u64> { sizes(limits, nodes, edges).iter().map(|size| size.nodes).collect() };
    // 400,000 nodes make 500 blocks of 800 nodes with up to 250,000 edges between them, and four
    // edges are visited for each.
    assert_eq!(sizes_of(400_000, 1_100_000), [800, 6400]);
    assert_eq!(sizes_of(400_000, 900_000), [6400]);
    assert_eq!(sizes_of(400_000, 70_000_000), [100, 800, 6400]);
    assert_eq!(sizes(limits, 400_000, 900_000)[0].train, 3200);
    assert_eq!(sizes(Limits { nodes: 2, train: 0 }, 6, 18), [Load { nodes: 1, train: 1 }]);
}

#[test]
fn sampled_edges_carry_the_weight_of_the_row() {
    // Node 0 has 40 in-neighbours: of every three the first counts for three.
    let star: Vec<(u32, u32)> = (1..41).map(|v| (v, 0)).collect();
    let graph = graph_of(41, &star, false);
    let fine = Nodes { graph: &graph, trains: &[false; 41] };
    let mut seen = Vec::new();
    fine.each(0, |u, weight| seen.push((u, weight)));
    assert_eq!(seen, (1..41).step_by(3).map(|u| (u, 3)).collect::<Vec<_>>());
    assert_eq!(fine.sampled(), 40);
}
