use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::method::{draw::Weights, ego::Ego};

const KEY: BatchKey = BatchKey { seed: 1, epoch: 2, batch: 3 };

/// A user's edge list: sources, destinations.
type List = Vec<(i64, i64)>;

fn topology(nodes: usize, list: &List) -> Topology {
    let (src, dst): (Vec<i64>, Vec<i64>) = list.iter().copied().unzip();
    Topology::from_edges(nodes, &src, &dst).unwrap()
}

fn draw(method: &dyn Method, topology: &Topology, seeds: &[u32]) -> Drawn {
    let mut out = Drawn { nodes: vec![9; 9], ..Drawn::default() };
    let mut scratch = Scratch::new(topology.graph().num_nodes());
    // the buffers are dirty from another batch
    method.draw(topology, BatchKey { batch: 8, ..KEY }, seeds, &mut scratch, &mut out).unwrap();
    method.draw(topology, KEY, seeds, &mut scratch, &mut out).unwrap();
    out
}

/// Reference by plain loops, for whole rows only.
fn plain(list: &List, hops: usize, seeds: &[u32], disjoint: bool) -> (Vec<(u32, u32)>, Vec<[u64; 3]>) {
    // nodes are (tree, id)
    let tree = |i: usize| if disjoint { i as u32 } else { 0 };
    let mut nodes: Vec<(u32, u32)> = seeds.iter().enumerate().map(|(i, &v)| (tree(i), v)).collect();
    let mut place = HashMap::new();
    nodes.iter().enumerate().for_each(|(i, &node)| {
        place.entry(node).or_insert(i);
    });
    let (mut edges, mut begin) = (Vec::new(), 0);
    for _ in 0..hops {
        let end = nodes.len();
        for to in begin..end {
            for (e, &(u, v)) in list.iter().enumerate() {
                if v as u32 == nodes[to].1 {
                    let node = (nodes[to].0, u as u32);
                    let from = *place.entry(node).or_insert_with(|| {
                        nodes.push(node);
                        nodes.len() - 1
                    });
                    edges.push([from as u64, to as u64, e as u64]);
                }
            }
        }
        begin = end;
    }
    (nodes, edges)
}

fn edges(drawn: &Drawn) -> Vec<[u64; 3]> {
    let ends = drawn.src.iter().zip(&drawn.dst);
    ends.zip(&drawn.edges).map(|((&u, &v), &e)| [u.into(), v.into(), e]).collect()
}

fn lists() -> impl Strategy<Value = (usize, List, Vec<u32>)> {
    (2i64..20).prop_flat_map(|n| {
        let list = prop::collection::vec((0..n, 0..n), 0..60);
        (Just(n as usize), list, prop::collection::vec(0..n as u32, 0..6))
    })
}

proptest! {
    #[test]
    fn whole_rows_match_plain_loops((n, list, seeds) in lists(), hops in 0usize..4, disjoint: bool) {
        let topology = topology(n, &list);
        let method = Neighbors { fanout: vec![None; hops], disjoint, ..Neighbors::default() };
        let drawn = draw(&method, &topology, &seeds);
        let (nodes, expected) = plain(&list, hops, &seeds, disjoint);
        prop_assert_eq!(&drawn.nodes, &nodes.iter().map(|node| node.1).collect::<Vec<_>>());
        prop_assert_eq!(edges(&drawn), expected);
        let per_hop = drawn.nodes_per_hop.clone().unwrap();
        prop_assert_eq!((per_hop.len(), per_hop.iter().sum()), (hops + 1, nodes.len()));
        prop_assert_eq!(drawn.edges_per_hop.iter().flatten().sum::<usize>(), drawn.edges.len());
        prop_assert_eq!(drawn.tree.clone(), disjoint.then(|| nodes.iter().map(|node| node.0).collect()));
        // every other rule draws the same whole rows
        let weights = Weights::new(&topology, &vec![0.5; list.len()]).unwrap();
        let weighted = Draws { replace: false, weights: Some(weights) };
        for draws in [Draws { replace: true, weights: None }, weighted] {
            let other = draw(&Neighbors { draws, ..method.clone() }, &topology, &seeds);
            prop_assert_eq!(edges(&other), edges(&drawn));
        }
    }

    #[test]
    fn drawn_edges_exist_and_have_the_right_number(
        (n, list, seeds) in lists(),
        fanout in prop::collection::vec(0usize..5, 1..4),
        disjoint: bool,
        replace: bool,
    ) {
        let topology = topology(n, &list);
        let draws = Draws { replace, weights: None };
        let method = Neighbors {
            fanout: fanout.iter().map(|&k| Some(k)).collect(), draws, disjoint, ..Neighbors::default()
        };
        let drawn = draw(&method, &topology, &seeds);
        prop_assert_eq!(&drawn.nodes[..seeds.len()], &seeds[..]);
        let per_hop = drawn.nodes_per_hop.clone().unwrap();
        let mut times: HashMap<(u64, u64), usize> = HashMap::new();
        for [u, v, e] in edges(&drawn) {
            let (from, to) = list[e as usize];
            prop_assert_eq!([u, v].map(|i| i64::from(drawn.nodes[i as usize])), [from, to]);
            *times.entry((v, e)).or_default() += 1;
            if let Some(tree) = &drawn.tree {
                prop_assert_eq!(tree[u as usize], tree[v as usize]);
            }
        }
        prop_assert!(replace || times.values().all(|&times| times == 1));
        let mut place = 0;
        for (hop, &added) in per_hop.iter().enumerate() {
            for to in place..place + added {
                let degree = topology.graph().in_degree(drawn.nodes[to]);
                let k = fanout.get(hop).copied().unwrap_or(0);
                let expected = if degree == 0 { 0 } else if replace { k } else { k.min(degree) };
                let found: usize = times.iter().filter(|((v, _), _)| *v == to as u64).map(|(_, n)| n).sum();
                prop_assert_eq!(found, expected);
            }
            place += added;
        }
    }

    #[test]
    fn induced_and_bidirectional_edges_are_complete(
        (n, list, seeds) in lists(), disjoint: bool,
    ) {
        let topology = topology(n, &list);
        let method = Neighbors { fanout: vec![Some(2), Some(1)], disjoint, ..Neighbors::default() };
        let one_way = draw(&method, &topology, &seeds);
        let both = draw(&Neighbors { edges: Edges::Bidirectional, ..method.clone() }, &topology, &seeds);
        let ends = |drawn: &Drawn| -> HashSet<(u32, u32)> {
            drawn.src.iter().copied().zip(drawn.dst.iter().copied()).collect()
        };
        let expected: HashSet<_> = ends(&one_way).into_iter().flat_map(|(u, v)| [(u, v), (v, u)]).collect();
        prop_assert_eq!(ends(&both), expected);
        prop_assert_eq!(both.edges.len(), ends(&both).len());
        for [u, v, e] in edges(&both) {
            let (from, to) = list[e as usize];
            let mut found = [both.nodes[u as usize], both.nodes[v as usize]];
            let mut known = [from as u32, to as u32];
            found.sort();
            known.sort();
            prop_assert_eq!(found, known);
        }
        prop_assert!(both.dst.is_sorted());

        let induced = draw(&Neighbors { edges: Edges::Induced, ..method }, &topology, &seeds);
        prop_assert_eq!(&induced.nodes, &one_way.nodes);
        let trees = if disjoint { seeds.len() } else { 1 };
        let mut expected = Vec::new();
        for tree in 0..trees as u32 {
            let inside: HashSet<u32> = (induced.nodes.iter().enumerate())
                .filter(|(i, _)| induced.tree.as_ref().is_none_or(|of| of[*i] == tree))
                .map(|(_, &v)| v)
                .collect();
            let among = |&(u, v): &(i64, i64)| inside.contains(&(u as u32)) && inside.contains(&(v as u32));
            expected.extend((0..).zip(&list).filter(|(_, edge)| among(edge)).map(|(e, _)| e));
        }
        let mut found = induced.edges.clone();
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
        for [u, v, e] in edges(&induced) {
            let (from, to) = list[e as usize];
            prop_assert_eq!([u, v].map(|i| i64::from(induced.nodes[i as usize])), [from, to]);
        }
    }

    #[test]
    fn ego_networks_are_contiguous((n, list, seeds) in lists(), depth in 0usize..3) {
        let topology = topology(n, &list);
        let drawn = draw(&Ego::new(depth, Some(2), false), &topology, &seeds);
        let (tree, roots) = (drawn.tree.clone().unwrap(), drawn.roots.clone().unwrap());
        prop_assert!(tree.is_sorted() && drawn.dst.is_sorted());
        for (seed, &root) in roots.iter().enumerate() {
            prop_assert_eq!((drawn.nodes[root as usize], tree[root as usize]), (seeds[seed], seed as u32));
        }
        for [u, v, e] in edges(&drawn) {
            let (from, to) = list[e as usize];
            prop_assert_eq!([u, v].map(|i| i64::from(drawn.nodes[i as usize])), [from, to]);
            prop_assert_eq!(tree[u as usize], tree[v as usize]);
        }
    }
}

#[test]
fn draws_match_the_engines_samplers() {
    let list: List = (0..4000).map(|e| (e * 7919 % 100, e * 31 % 100)).collect();
    let topology = topology(100, &list);
    let seeds: Vec<u32> = (0..60).collect();
    let method = Neighbors { fanout: vec![Some(5)], ..Neighbors::default() };
    let fast = draw(&method, &topology, &seeds);
    // a second hop of fanout 0 uses the plain loops, and gives the same nodes
    let mut scratch = crate::method::draw::Scratch::default();
    let mut expected = Vec::new();
    for &v in &seeds {
        let stream =
            keyed::Stream::new(keyed::mix(of_hop(KEY, 0) ^ u64::from(v).wrapping_mul(keyed::GOLDEN)));
        let mut offsets = Vec::new();
        let indptr = topology.graph().indptr();
        Draws::default().draw(
            (indptr[v as usize], indptr[v as usize + 1]),
            Some(5),
            stream,
            &mut scratch,
            &mut offsets,
        );
        expected.extend(offsets.iter().map(|&offset| indptr[v as usize] + u64::from(offset)));
    }
    topology.number(&mut expected);
    assert_eq!(fast.edges, expected);
    let plain = draw(&Neighbors { fanout: vec![Some(5), Some(0)], ..method }, &topology, &seeds);
    assert_eq!((plain.edges, plain.nodes), (fast.edges, fast.nodes));
}

#[test]
fn trees_of_one_seed_differ() {
    let list: List = (1..200).map(|u| (u, 0)).collect();
    let method = Neighbors { fanout: vec![Some(3)], disjoint: true, ..Neighbors::default() };
    let drawn = draw(&method, &topology(200, &list), &[0, 0]);
    assert_ne!(drawn.nodes[2..5], drawn.nodes[5..8]);
}
