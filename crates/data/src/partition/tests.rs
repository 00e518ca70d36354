//! Tests of every method on every kind of graph.

use graphmill_core::{EdgeOptions, build, keyed, progress::Quiet};
use proptest::prelude::*;

use super::*;

fn graph_of(nodes: usize, pairs: &[(u32, u32)], undirected: bool) -> Graph {
    let (src, dst): (Vec<_>, Vec<_>) =
        pairs.iter().map(|&(u, v)| (u % nodes as u32, v % nodes as u32)).unzip();
    build(nodes, &src, &dst, EdgeOptions { undirected, ..EdgeOptions::DIRECTED }).unwrap()
}

fn with_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

fn book(name: &str, graph: &Graph, train: &[NodeId], options: &Options) -> PartitionBook {
    let method = (TABLE.find(name).unwrap().make.make)(options).unwrap();
    method.partition(graph, train, &Quiet).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_node_has_a_part_for_any_number_of_threads(
        nodes in 1usize..60,
        pairs in prop::collection::vec((0u32..60, 0u32..60), 0..200),
        parts in 1u16..6,
        every in 1usize..5,
        undirected: bool,
        seed: u64,
    ) {
        let graph = graph_of(nodes, &pairs, undirected);
        let train: Vec<u32> = (0..nodes as u32).step_by(every).collect();
        let options = Options { parts, seed, ..Options::default() };
        for entry in &TABLE {
            let method = (entry.make.make)(&options).unwrap();
            if usize::from(parts) > nodes {
                prop_assert!(method.partition(&graph, &train, &Quiet).is_err());
                continue;
            }
            let one = with_threads(1, || method.partition(&graph, &train, &Quiet).unwrap());
            prop_assert_eq!((one.parts(), one.num_nodes()), (parts, nodes));
            prop_assert_eq!(one.sizes().iter().sum::<usize>(), nodes);
            for threads in [2, 3] {
                let many = with_threads(threads, || method.partition(&graph, &train, &Quiet).unwrap());
                prop_assert_eq!(one.of(), many.of(), "{} by {} threads", entry.name, threads);
            }
        }
    }
}

#[test]
fn impossible_options_are_rejected() {
    let graph = graph_of(3, &[(0, 1)], true);
    for entry in &TABLE {
        for (parts, train, why) in [(0, vec![0], "0 parts"), (4, vec![0], "4 parts"), (2, vec![3], "node 3")]
        {
            let options = Options { parts, ..Options::default() };
            let refused =
                (entry.make.make)(&options).and_then(|method| method.partition(&graph, &train, &Quiet));
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(why), "{}: {message}", entry.name);
        }
    }
}

#[test]
fn random_parts_are_balanced() {
    let graph = graph_of(1001, &[], true);
    let train: Vec<u32> = (0..1001).step_by(7).collect();
    let options = Options { parts: 4, seed: 3, ..Options::default() };
    let assigned = book("random", &graph, &train, &options);
    assert_eq!(assigned.sizes(), [251, 250, 250, 250]);
    assert_eq!(assigned.sizes_of(&train), [36, 36, 36, 35]);
    assert_ne!(assigned.of(), book("random", &graph, &train, &Options { seed: 4, ..options }).of());
}

#[test]
fn books_list_the_nodes_of_their_parts() {
    let book = PartitionBook::new(4, vec![2, 0, 2, 3, 0]).unwrap();
    assert_eq!(book.by_part().unwrap(), (vec![1, 4, 0, 2, 3], vec![0, 2, 2, 4, 5]));
    assert_eq!(book.sizes_of(&[0, 1, 2]), [1, 0, 2, 0]);
    assert!(PartitionBook::new(0, vec![]).is_err());
    assert!(PartitionBook::new(3, vec![0, 3]).unwrap_err().to_string().contains("node 1 is in part 3 of 3"));
}

/// Planted partition: `groups` groups of `size` nodes, with `inside` times as many edges within a
/// group as to others.
fn planted(groups: u32, size: u32) -> Graph {
    let mut stream = keyed::Stream::new(11);
    let mut pairs = Vec::new();
    for v in 0..groups * size {
        for _ in 0..8 {
            pairs.push((v, v / size * size + stream.below(size.into()) as u32));
        }
        pairs.push((v, stream.below(u64::from(groups * size)) as u32));
    }
    graph_of((groups * size) as usize, &pairs, true)
}

fn cut(graph: &Graph, book: &PartitionBook) -> usize {
    let rows = 0..graph.num_nodes() as u32;
    rows.map(|v| graph.in_neighbors(v).iter().filter(|&&u| book.part_of(u) != book.part_of(v)).count()).sum()
}

#[test]
fn planted_partitions_are_recovered() {
    let (groups, size) = (4, 300);
    let graph = planted(groups, size);
    let train: Vec<u32> = (0..groups * size).step_by(3).collect();
    let options = Options { parts: groups as u16, seed: 1, ..Options::default() };
    let truth: Vec<u16> = (0..groups * size).map(|v| (v / size) as u16).collect();
    let truth = cut(&graph, &PartitionBook::new(groups as u16, truth).unwrap());
    let closest: &[&str] = if cfg!(feature = "metis") { &["bgl", "metis"] } else { &["bgl"] };
    for name in closest {
        let found = cut(&graph, &book(name, &graph, &train, &options));
        assert!(found <= truth + truth / 50, "{name}: {found} edges cut, {truth} are planted");
    }
    let random = cut(&graph, &book("random", &graph, &train, &options));
    // PaGraph's first training nodes, which have no assigned neighbours, spread over the parts
    for (name, percent) in [("ldg", 75), ("fennel", 75), ("gminer", 75), ("pagraph", 85)] {
        let found = cut(&graph, &book(name, &graph, &train, &options));
        assert!(found < random * percent / 100, "{name}: {found} edges cut, {random} at random");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn bgl_respects_its_limits(
        nodes in 1usize..300,
        pairs in prop::collection::vec((0u32..300, 0u32..300), 0..900),
        every in 1usize..40,
        (parts, seed, undirected) in (1u16..9, any::<u64>(), any::<bool>()),
    ) {
        prop_assume!(usize::from(parts) <= nodes);
        let graph = graph_of(nodes, &pairs, undirected);
        let train: Vec<u32> = (0..nodes as u32).step_by(every).collect();
        let options = Options { parts, seed, ..Options::default() };
        let limits = limits::Limits::new(nodes, train.len(), &options);
        let assigned = book("bgl", &graph, &train, &options);
        prop_assert!(assigned.sizes().iter().all(|&size| size > 0 && size as u64 <= limits.nodes));
        prop_assert!(assigned.sizes_of(&train).iter().all(|&size| size as u64 <= limits.train));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn gminer_respects_the_limit_of_nodes(
        nodes in 1usize..300,
        pairs in prop::collection::vec((0u32..300, 0u32..300), 0..900),
        (parts, seed, undirected) in (1u16..9, any::<u64>(), any::<bool>()),
        slack in 0.0..0.5,
    ) {
        prop_assume!(usize::from(parts) <= nodes);
        let graph = graph_of(nodes, &pairs, undirected);
        let options = Options { parts, seed, slack, ..Options::default() };
        let limit = limits::Limits::new(nodes, 0, &options).nodes;
        let assigned = book("gminer", &graph, &[], &options);
        prop_assert!(assigned.sizes().iter().all(|&size| size > 0 && size as u64 <= limit));
    }
}

#[test]
fn bgl_without_refinement_only_maps_blocks_back() {
    let (groups, size) = (4, 300);
    let graph = planted(groups, size);
    let train: Vec<u32> = (0..groups * size).step_by(3).collect();
    let options = Options { parts: groups as u16, seed: 1, ..Options::default() };
    let refined = book("bgl", &graph, &train, &options);
    let options = Options { refine: false, ..options };
    let plain = book("bgl", &graph, &train, &options);
    let threads = with_threads(3, || book("bgl", &graph, &train, &options));
    assert_eq!(plain.of(), threads.of());
    let [refined, plain, random] =
        [refined, plain, book("random", &graph, &train, &options)].map(|book| cut(&graph, &book));
    assert!(refined < plain && plain < random, "{refined} edges cut refined, {plain} plain, {random} random");
}

#[test]
fn streaming_methods_match_the_papers_formulas() {
    // 0 - 1, 2 - 3, 0 - 4: 1 follows 0, 2 goes to the empty part, 3 follows, 4 follows 0.
    let graph = graph_of(6, &[(0, 1), (2, 3), (0, 4), (3, 5)], true);
    let options = Options { parts: 2, ..Options::default() };
    for name in ["ldg", "fennel"] {
        assert_eq!(book(name, &graph, &[], &options).of(), [0, 0, 1, 1, 0, 1], "{name}");
    }
}
