//! Every method, on every kind of graph.

use proptest::prelude::*;

use super::*;
use crate::{EdgeOptions, build, external::Quiet, table::find};

fn graph_of(nodes: usize, pairs: &[(u32, u32)], undirected: bool) -> Graph {
    let (src, dst): (Vec<_>, Vec<_>) =
        pairs.iter().map(|&(u, v)| (u % nodes as u32, v % nodes as u32)).unzip();
    build(nodes, &src, &dst, EdgeOptions { undirected, ..EdgeOptions::DIRECTED }).unwrap()
}

fn with_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

fn book(name: &str, graph: &Graph, train: &[NodeId], options: &Options) -> PartitionBook {
    let method = (find("method", TABLE, name).unwrap().make)(options).unwrap();
    method.partition(graph, train, &Quiet).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_node_has_a_part_whatever_the_threads(
        nodes in 1usize..60,
        pairs in prop::collection::vec((0u32..60, 0u32..60), 0..200),
        parts in 1u16..6,
        every in 1usize..5,
        undirected: bool,
        seed: u64,
    ) {
        let graph = graph_of(nodes, &pairs, undirected);
        let train: Vec<u32> = (0..nodes as u32).step_by(every).collect();
        let options = Options { parts, seed };
        for entry in TABLE {
            let method = (entry.make)(&options).unwrap();
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
fn what_no_method_can_do_is_refused() {
    let graph = graph_of(3, &[(0, 1)], true);
    for entry in TABLE {
        for (parts, train, why) in [(0, vec![0], "0 parts"), (4, vec![0], "4 parts"), (2, vec![3], "node 3")]
        {
            let options = Options { parts, seed: 0 };
            let refused = (entry.make)(&options).and_then(|method| method.partition(&graph, &train, &Quiet));
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(why), "{}: {message}", entry.name);
        }
    }
}

#[test]
fn random_parts_are_even() {
    let graph = graph_of(1001, &[], true);
    let train: Vec<u32> = (0..1001).step_by(7).collect();
    let options = Options { parts: 4, seed: 3 };
    let dealt = book("random", &graph, &train, &options);
    assert_eq!(dealt.sizes(), [251, 250, 250, 250]);
    assert_eq!(dealt.sizes_of(&train), [36, 36, 36, 35]);
    assert_ne!(dealt.of(), book("random", &graph, &train, &Options { seed: 4, ..options }).of());
}

#[test]
fn a_book_tells_the_nodes_of_its_parts() {
    let book = PartitionBook::new(4, vec![2, 0, 2, 3, 0]).unwrap();
    assert_eq!(book.by_part().unwrap(), (vec![1, 4, 0, 2, 3], vec![0, 2, 2, 4, 5]));
    assert_eq!(book.sizes_of(&[0, 1, 2]), [1, 0, 2, 0]);
    assert!(PartitionBook::new(0, vec![]).is_err());
    assert!(PartitionBook::new(3, vec![0, 3]).unwrap_err().to_string().contains("node 1 is in part 3 of 3"));
}
