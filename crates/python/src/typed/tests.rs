use std::{sync::Arc, time::Duration};

use graphmill_core::Buffer;
use graphmill_loader::BatchKey;
use proptest::prelude::*;

use super::{
    hgt::TypedBudgets,
    links::{Given, Links, Negatives},
    neighbors::TypedNeighbors,
    source::{TypedBatch, TypedInputs, TypedOf, TypedSource},
    subgraph::TypedEdges,
    *,
};
use crate::{
    method::draw::Draws,
    prefetch::Taken,
    source::Epoch,
    table::{Rows, Table},
};

const KEY: BatchKey = BatchKey { seed: 3, epoch: 1, batch: 2 };

/// Edge lists of the relations: authors write papers, papers are written by authors, papers cite.
fn lists() -> Vec<(usize, usize, Vec<i64>, Vec<i64>)> {
    let edges = |n: usize, a: i64, b: i64, salt: i64| -> (Vec<i64>, Vec<i64>) {
        (0..n as i64).map(|e| ((e * 7919 + salt) % a, (e * 104_729 + salt) % b)).unzip()
    };
    let (writes, cites) = (edges(300, 40, 60, 1), edges(400, 60, 60, 2));
    vec![(0, 1, writes.0.clone(), writes.1.clone()), (1, 0, writes.1, writes.0), (1, 1, cites.0, cites.1)]
}

fn topology() -> TypedTopology {
    topology_without(|_, _, _| false).0
}

/// The topology without the edges that `is_out` names by relation, source and destination, and the
/// numbers of the others among all.
fn topology_without(is_out: impl Fn(usize, u32, u32) -> bool) -> (TypedTopology, Vec<Vec<u64>>) {
    let (mut cut, mut kept) = (lists(), Vec::new());
    for (r, (_, _, from, to)) in cut.iter_mut().enumerate() {
        let stays = |&e: &usize| !is_out(r, from[e] as u32, to[e] as u32);
        let numbers: Vec<usize> = (0..from.len()).filter(stays).collect();
        *from = numbers.iter().map(|&e| from[e]).collect();
        *to = numbers.iter().map(|&e| to[e]).collect();
        kept.push(numbers.into_iter().map(|e| e as u64).collect());
    }
    (topology_of(cut), kept)
}

fn topology_of(lists: Vec<(usize, usize, Vec<i64>, Vec<i64>)>) -> TypedTopology {
    let types = vec![("author".to_string(), 40), ("paper".to_string(), 60)];
    let relations = lists.into_iter().map(|(src, dst, from, to)| {
        let topology = Topology::bipartite(types[src].1, types[dst].1, &from, &to).unwrap();
        Relation { src, dst, topology: Arc::new(topology) }
    });
    TypedTopology { relations: relations.collect(), types }
}

fn neighbors(fanout: &[i64]) -> TypedNeighbors {
    let fanout = fanout.iter().map(|&k| usize::try_from(k).ok()).collect();
    TypedNeighbors { fanout: vec![fanout; 3], draws: vec![Draws::default(); 3], ..Default::default() }
}

fn draw(method: &dyn TypedMethod, seeds: &Seeds) -> TypedDrawn {
    draw_on(&topology(), method, seeds)
}

fn draw_on(topology: &TypedTopology, method: &dyn TypedMethod, seeds: &Seeds) -> TypedDrawn {
    let (mut scratch, mut out) = (TypedScratch::new(topology), TypedDrawn::default());
    // another batch leaves nothing behind
    method.draw(topology, BatchKey { batch: 9, ..KEY }, seeds, &mut scratch, &mut out).unwrap();
    method.draw(topology, KEY, seeds, &mut scratch, &mut out).unwrap();
    out
}

/// Checks that every drawn edge is the user's edge of that number.
fn assert_edges(drawn: &TypedDrawn) {
    for ((src, dst, from, to), edges) in lists().iter().zip(&drawn.relations) {
        for ((&u, &v), &e) in edges.src.iter().zip(&edges.dst).zip(&edges.edges) {
            assert_eq!(i64::from(drawn.nodes[*src][u as usize]), from[e as usize]);
            assert_eq!(i64::from(drawn.nodes[*dst][v as usize]), to[e as usize]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn edges_and_hops_are_consistent(
        papers in prop::collection::vec(0u32..60, 1..9),
        fanout in prop::collection::vec(-1i64..4, 1..4),
        disjoint: bool,
    ) {
        let tree = disjoint.then(|| vec![vec![], (0..papers.len() as u32).collect()]);
        let seeds = Seeds { nodes: vec![vec![], papers.clone()], tree, latest: None, excluded: vec![] };
        let drawn = draw(&neighbors(&fanout), &seeds);
        assert_edges(&drawn);
        prop_assert_eq!(&drawn.nodes[1][..papers.len()], &papers[..]);
        let (nodes, edges) = (drawn.nodes_per_hop.as_ref().unwrap(), drawn.edges_per_hop.as_ref().unwrap());
        for (per_hop, nodes) in nodes.iter().zip(&drawn.nodes) {
            prop_assert_eq!(per_hop.len(), fanout.len() + 1);
            prop_assert_eq!(per_hop.iter().sum::<usize>(), nodes.len());
        }
        for (r, (per_hop, to)) in edges.iter().zip(&drawn.relations).enumerate() {
            prop_assert_eq!(per_hop.len(), fanout.len());
            prop_assert_eq!(per_hop.iter().sum::<usize>(), to.edges.len());
            // the destinations of a hop are the nodes that the previous hop added
            let (mut first, mut edge) = (0, 0);
            for hop in 0..fanout.len() {
                let of_dst = nodes[[1, 0, 1][r]][hop];
                let expanded = first..first + of_dst as u32;
                prop_assert!(to.dst[edge..edge + per_hop[hop]].iter().all(|v| expanded.contains(v)));
                (first, edge) = (expanded.end, edge + per_hop[hop]);
            }
        }
        if let Some(tree) = &drawn.tree {
            for ((src, dst, ..), to) in lists().iter().zip(&drawn.relations) {
                for (&u, &v) in to.src.iter().zip(&to.dst) {
                    prop_assert_eq!(tree[*src][u as usize], tree[*dst][v as usize]);
                }
            }
        }
    }

    #[test]
    fn seeds_of_several_types_have_the_edges_of_each_type_alone(
        authors in prop::collection::btree_set(0u32..40, 0..6),
        papers in prop::collection::btree_set(0u32..60, 0..6),
        fanout in prop::collection::vec(-1i64..4, 1..3),
        disjoint: bool,
    ) {
        let method = neighbors(&fanout);
        let inputs = TypedInputs::Nodes { of: 0, nodes: vec![], latest: vec![], disjoint };
        let by = Box::new(method.clone());
        let source = TypedSource::new(topology(), inputs, vec![], by, KEY.seed).unwrap();
        let [authors, papers]: [Vec<u32>; 2] = [authors, papers].map(|ids| ids.into_iter().collect());
        let given = [(1, papers.clone()), (0, authors.clone())];
        let batch = source.one_of_nodes((KEY.epoch, KEY.batch), &given, &[]).unwrap();
        let ids = |t: usize| -> Vec<u32> { batch.nodes[t].of::<i64>().iter().map(|&v| v as u32).collect() };
        let nodes = vec![ids(0), ids(1)];
        // trees are numbered in the order of the given lists
        let tree = disjoint.then(|| {
            let end = papers.len() as u32;
            vec![(end..end + authors.len() as u32).collect(), (0..end).collect()]
        });
        let seeds = Seeds { nodes: vec![authors.clone(), papers.clone()], tree, ..Seeds::default() };
        let drawn = draw(&method, &seeds);
        assert_edges(&drawn);
        prop_assert_eq!(&nodes, &drawn.nodes);
        prop_assert_eq!(&nodes[0][..authors.len()], &authors[..]);
        prop_assert_eq!(&nodes[1][..papers.len()], &papers[..]);
        for (r, dst) in [1usize, 0, 1].into_iter().enumerate() {
            let edges: Vec<u64> = batch.edges[r].of::<i64>().iter().map(|&e| e as u64).collect();
            prop_assert_eq!(&edges, &drawn.relations[r].edges);
            // a seed draws in the first hop as if there were no seeds of another type
            let mut alone = seeds.clone();
            alone.nodes[1 - dst].clear();
            if let Some(tree) = &mut alone.tree {
                tree[1 - dst].clear();
            }
            let expected = draw(&method, &alone);
            let first = |of: &TypedDrawn| {
                let count = of.edges_per_hop.as_ref().unwrap()[r][0];
                of.relations[r].edges[..count].to_vec()
            };
            prop_assert_eq!(first(&drawn), first(&expected));
        }
        let error = source.one_of_nodes((0, 0), &[(0, vec![3]), (1, vec![60])], &[]).err().unwrap();
        prop_assert!(error.to_string().contains("nodes of 'paper'[0] is 60"), "{}", error);
        let error = source.one_of_nodes((0, 0), &[(0, vec![3]), (1, vec![5, 7])], &[1, 2]).err().unwrap();
        prop_assert!(error.to_string().contains("2 times for 3 inputs"), "{}", error);
    }

    #[test]
    fn batches_of_links_are_those_of_the_graph_without_their_edges_and_reverses(
        numbers in prop::collection::vec(0u64..300, 1..20),
        disjoint: bool,
        replace: bool,
        together: bool,
    ) {
        let (_, _, from, to) = lists().swap_remove(0);
        let narrow = |ids: Vec<i64>| ids.into_iter().map(|id| id as u32).collect::<Vec<u32>>();
        let (from, to) = (narrow(from), narrow(to));
        let (how, given) = ((1.5, together), Given::default());
        let negatives = Negatives::new("uniform", (40, 60, false), (&from, &to), how, given).unwrap();
        let edges: Vec<(u32, u32)> = from.into_iter().zip(to).collect();
        let exclude = vec![(0, false), (1, true)];
        let (types, negatives) = ((0, 1), Some(negatives));
        let links = Links { types, edges: edges.clone(), negatives, exclude, disjoint, latest: Vec::new() };
        let positives: Vec<_> = numbers.iter().map(|&i| edges[i as usize]).collect();
        let (seeds, pairs) = links.seeds(KEY, (&positives, &[]), 2).unwrap();
        let draws = vec![Draws { replace, weights: None }; 3];
        let method = TypedNeighbors { draws, ..neighbors(&[3, -1]) };
        let drawn = draw(&method, &seeds);
        assert_edges(&drawn);
        let (cut, kept) = topology_without(|r, u, v| {
            positives.contains(&if r == 1 { (v, u) } else { (u, v) }) && r < 2
        });
        let mut expected = draw_on(&cut, &method, &Seeds { excluded: vec![], ..seeds.clone() });
        for (relation, kept) in expected.relations.iter_mut().zip(&kept) {
            relation.edges.iter_mut().for_each(|e| *e = kept[*e as usize]);
        }
        prop_assert_eq!(&drawn, &expected);
        let ends = |i: usize| {
            (drawn.nodes[0][pairs.src[i] as usize], drawn.nodes[1][pairs.dst[i] as usize])
        };
        for (i, pair) in positives.iter().enumerate() {
            prop_assert_eq!(&ends(i), pair);
        }
        let count = numbers.len();
        prop_assert_eq!(pairs.src.len() - count, if together { 2 * count } else { (count * 3).div_ceil(2) });
        prop_assert!((count..pairs.src.len()).all(|i| !edges.contains(&ends(i))));
        for (r, (to, reverse)) in drawn.relations.iter().zip([false, true]).enumerate() {
            for (&u, &v) in to.src.iter().zip(&to.dst) {
                let (u, v) = (drawn.nodes[r][u as usize], drawn.nodes[1 - r][v as usize]);
                let pair = if reverse { (v, u) } else { (u, v) };
                prop_assert!(!positives.contains(&pair));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn added_edges_are_those_of_the_graph_among_the_nodes(
        papers in prop::collection::vec(0u32..60, 1..7),
        fanout in prop::collection::vec(1i64..4, 1..3),
        disjoint: bool,
    ) {
        let tree = disjoint.then(|| vec![vec![], (0..papers.len() as u32).collect()]);
        let excluded = vec![(0, edges_of(&[(5, 9)])), (2, edges_of(&[(9, 5), (17, 17)]))];
        let seeds = Seeds { nodes: vec![vec![], papers], tree, latest: None, excluded };
        let plain = draw(&neighbors(&fanout), &seeds);
        let with = |edges| draw(&TypedNeighbors { edges, ..neighbors(&fanout) }, &seeds);
        let (both, induced) = (with(TypedEdges::Bidirectional(vec![1, 0, 2])), with(TypedEdges::Induced));
        assert_edges(&induced);
        prop_assert_eq!((&plain.nodes, &plain.tree), (&induced.nodes, &induced.tree));
        prop_assert_eq!((&plain.nodes, &plain.edges_per_hop), (&both.nodes, &both.edges_per_hop));
        prop_assert!(induced.edges_per_hop.is_none() && induced.nodes_per_hop.is_none());
        let ends = |drawn: &TypedDrawn, r: usize| -> Vec<(u32, u32)> {
            let to = &drawn.relations[r];
            let mut ends: Vec<_> = to.src.iter().copied().zip(to.dst.iter().copied()).collect();
            ends.sort_unstable();
            ends
        };
        let turned = |ends: Vec<(u32, u32)>| ends.into_iter().map(|(u, v)| (v, u)).collect::<Vec<_>>();
        for (r, (src, dst, from, to)) in lists().iter().enumerate() {
            let nodes = |t: usize| plain.nodes[t].iter().enumerate();
            let tree = |t: usize, i: usize| plain.tree.as_ref().map_or(0, |tree| tree[t][i]);
            let is_first = |t: usize, i: usize, v: u32| {
                nodes(t).find(|&(j, &w)| w == v && tree(t, j) == tree(t, i)).is_some_and(|(j, _)| j == i)
            };
            let may_be = |u: u32, v: u32| ![(0, 5, 9), (2, 9, 5), (2, 17, 17)].contains(&(r, u, v));
            let mut expected = Vec::new();
            for ((i, &u), (j, &v)) in nodes(*src).flat_map(|a| nodes(*dst).map(move |b| (a, b))) {
                let are_first = is_first(*src, i, u) && is_first(*dst, j, v);
                if tree(*src, i) == tree(*dst, j) && are_first && may_be(u, v) {
                    let of = from.iter().zip(to).filter(|(a, b)| (**a, **b) == (i64::from(u), i64::from(v)));
                    expected.extend(of.map(|_| (i as u32, j as u32)));
                }
            }
            expected.sort_unstable();
            prop_assert_eq!(ends(&induced, r), expected);
            let ids = |i: u32, j: u32| (plain.nodes[*src][i as usize], plain.nodes[*dst][j as usize]);
            let mut expected = ends(&plain, r);
            let reverses = turned(ends(&plain, [1, 0, 2][r])).into_iter();
            expected.extend(reverses.filter(|&(i, j)| may_be(ids(i, j).0, ids(i, j).1)));
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(ends(&both, r), expected);
            if r < 2 {
                let RelationEdges { src, dst, edges } = &both.relations[r];
                for ((&i, &j), &e) in src.iter().zip(dst).zip(edges) {
                    let (u, v) = ids(i, j);
                    prop_assert_eq!((i64::from(u), i64::from(v)), (from[e as usize], to[e as usize]));
                }
            }
        }
    }
}

fn edges_of(pairs: &[(u32, u32)]) -> ExcludedEdges {
    let mut edges = ExcludedEdges::default();
    edges.refill(pairs.iter().copied());
    edges
}

#[test]
fn reverses_that_the_graph_lacks_are_refused() {
    let topology = topology();
    let seeds = Seeds { nodes: vec![vec![], (0..20).collect()], ..Seeds::default() };
    let method = TypedNeighbors { edges: TypedEdges::Bidirectional(vec![1, 0, 2]), ..neighbors(&[3]) };
    let (mut scratch, mut out) = (TypedScratch::new(&topology), TypedDrawn::default());
    method.draw(&topology, KEY, &seeds, &mut scratch, &mut out).unwrap();
    // without the edges that lead back
    let mut cut = topology;
    cut.relations[1].topology = Arc::new(Topology::bipartite::<i64>(60, 40, &[], &[]).unwrap());
    let mut scratch = TypedScratch::new(&cut);
    let error = method.draw(&cut, KEY, &seeds, &mut scratch, &mut out).unwrap_err();
    assert!(error.contains("but no edge leads back; use 'directional'"), "{error}");
}

#[test]
fn negatives_draw_sources_and_destinations_by_weights() {
    let positives = [(0, 1), (1, 2), (2, 0)];
    let (src, dst): (Vec<u32>, Vec<u32>) = positives.iter().copied().unzip();
    let made = |src_weight: Vec<f64>, dst_weight: Vec<f64>| {
        let given = Given { src_weight: Some(src_weight), dst_weight: Some(dst_weight), ..Given::default() };
        Negatives::new("uniform", (4, 5, false), (&src, &dst), (2.5, false), given)
    };
    let negatives = made(vec![0.0, 1.0, 0.0, 1.0], vec![0.0, 0.0, 1.0, 1.0, 0.0]).unwrap();
    let drawn = negatives.draw(KEY, &positives, &[]).unwrap();
    assert_eq!(drawn.len(), 8);
    // 1 is linked to 2, which leaves it 3
    assert!(drawn.iter().all(|pair| [(1, 3), (3, 2), (3, 3)].contains(pair)), "{drawn:?}");
    assert_eq!(negatives.draw(KEY, &positives, &[]).unwrap(), drawn);
    let error = |src: usize, dst: Vec<f64>| made(vec![1.0; src], dst).err().unwrap();
    assert!(error(3, vec![1.0; 5]).contains("src_weight: 3 weights for 4 nodes; pass one for each"));
    assert!(error(4, vec![0.0; 5]).contains("dst_weight: 5 weights sum to 0"));
}

#[test]
fn budgets_draw_that_many_nodes_and_all_edges_between_them() {
    let topology = topology();
    let method = TypedBudgets::new(&topology, &[vec![4, 4], vec![5, 0]]).unwrap();
    let seeds = Seeds { nodes: vec![vec![], vec![7, 3]], ..Seeds::default() };
    let drawn = draw(&method, &seeds);
    assert_edges(&drawn);
    assert_eq!((drawn.nodes[0].len(), &drawn.nodes[1][..2]), (8, &[7, 3][..]));
    // the seeds cite fewer than 5 papers
    assert_eq!(drawn.nodes[1].len(), 4);
    for ((src, dst, from, to), edges) in lists().iter().zip(&drawn.relations) {
        let inside = |t: usize, v: i64| drawn.nodes[t].contains(&(v as u32));
        let all = from.iter().zip(to).filter(|(u, v)| inside(*src, **u) && inside(*dst, **v)).count();
        assert_eq!(edges.edges.len(), all);
    }
}

#[test]
fn typed_epochs_do_not_depend_on_threads_or_the_first_batch() {
    let x: Buffer<f32> = (0..60).map(|i| i as f32).collect::<Vec<_>>().into();
    let weights: Buffer<i64> = (0..300).collect::<Vec<_>>().into();
    let tables = vec![
        (TypedOf::Nodes(1), Table::Rows(Rows::of(&x, 1))),
        (TypedOf::Edges(1), Table::Rows(Rows::of(&weights, 1))),
    ];
    let inputs = TypedInputs::Nodes { of: 1, nodes: (0..60).collect(), latest: Vec::new(), disjoint: false };
    let source = TypedSource::new(topology(), inputs, tables, Box::new(neighbors(&[3, 2])), 5).unwrap();
    let bytes = |batch: &TypedBatch| -> Vec<u8> {
        let TypedBatch { inputs, nodes, edge_index, edges, tables, .. } = batch;
        let all = std::iter::once(inputs).chain(nodes).chain(edge_index).chain(edges).chain(tables);
        all.flat_map(|lease| lease.bytes().to_vec()).collect()
    };
    let run = |first: u64, threads: usize, ahead: usize| -> Vec<Vec<u8>> {
        let epoch = Epoch { epoch: 3, order: (0..60).rev().collect(), batch_size: 8, batches: first..8 };
        let batches = source.start(epoch, threads, ahead).unwrap();
        let mut all = Vec::new();
        while let Taken::Value(batch) = batches.take(Duration::from_secs(60)).unwrap() {
            let papers: Vec<f32> = batch.nodes[1].of::<i64>().iter().map(|&v| v as f32).collect();
            assert_eq!(
                (batch.tables[0].of::<f32>(), batch.tables[1].of::<i64>()),
                (&papers[..], batch.edges[1].of())
            );
            all.push(bytes(&batch));
        }
        all
    };
    let all = run(0, 1, 1);
    assert_eq!(all.len(), 8);
    assert_eq!((run(0, 3, 5), run(5, 2, 2)), (all.clone(), all[5..].to_vec()));
    assert_eq!(bytes(&source.one(3, 1, &[51, 50, 49, 48, 47, 46, 45, 44]).unwrap()), all[1]);
}
