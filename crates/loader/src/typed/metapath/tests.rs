use std::collections::{BTreeMap, BTreeSet};

use graphmill_core::{
    Block,
    block::Aggregation,
    keyed,
    options::OwnOptions,
    typed::{NodeType, bipartite},
};
use proptest::prelude::*;

use super::{
    super::{TypedFanout, with_added},
    *,
};
use crate::{
    link::ExcludedEdges,
    sampler::{HopSampler, HopScratch, drawn_neighbor},
    subgraph::testing::fits,
};

const KEY: BatchKey = BatchKey { seed: 4, epoch: 1, batch: 7 };

/// Authors, papers and venues: papers are written by authors, appear in venues and cite papers.
fn schema([authors, papers, venues]: [usize; 3]) -> Schema {
    let types = [("author", authors), ("paper", papers), ("venue", venues)];
    let types = types.map(|(name, count)| NodeType::new(name, count)).to_vec();
    let relation = |src, name: &str, dst| Relation::new(src, name, dst);
    let relations = vec![
        relation(0, "writes", 1),
        relation(1, "written_by", 0),
        relation(1, "cites", 1),
        relation(1, "in", 2),
        relation(2, "of", 1),
    ];
    Schema::new(types, relations).unwrap()
}

fn random_graph(counts: [usize; 3], edges: usize, seed: u64) -> TypedGraph {
    let schema = schema(counts);
    let mut stream = keyed::Stream::new(keyed::key(&[seed]));
    let graphs = schema.relations().iter().map(|relation| {
        let [src, dst] = [relation.src, relation.dst].map(|t| counts[t]);
        let mut end = |n: usize| (0..edges).map(|_| stream.below(n as u64) as u32).collect::<Vec<_>>();
        bipartite(src, dst, &end(src), &end(dst)).unwrap()
    });
    let graphs = graphs.collect();
    TypedGraph::new(schema, graphs).unwrap()
}

fn options(metapath: &str, fanout: &str, walks: WalkOptions, walk_length: usize) -> TypedOptions {
    let own = OwnOptions::default().with(MetapathOptions { metapath: metapath.into() });
    let own = own.with(walks).with(WalkLength { walk_length });
    TypedOptions { fanout: fanout.parse().unwrap(), own, ..TypedOptions::default() }
}

/// Neighbours of the nodes of type `t` in the only block of a batch, with their weights.
fn draw(
    with: &TypedOptions,
    graph: &TypedGraph,
    (t, nodes): (usize, &[NodeId]),
    excluded: &[ExcludedEdges],
    aggregation: Aggregation,
) -> Vec<Vec<(NodeId, f32)>> {
    let sampler = MetapathWalk::new(with, graph.schema()).unwrap();
    let mut workspace = TypedWorkspace::new(graph.schema());
    let mut seeds = TypedSeeds::of_type(graph.schema(), 0, t, nodes);
    seeds.excluded = excluded.to_vec();
    let request = TypedRequest { aggregation, ..TypedRequest::new(graph, KEY) };
    let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
    assert_eq!(batch.blocks.len(), 1);
    let block = &batch.blocks[0];
    for (r, slice) in block.relations.iter().enumerate() {
        assert!(sampler.follows(graph.schema(), 0, r) || slice.num_edges() == 0);
    }
    let r = graph.schema().relations().iter().position(|of| of.name == NAME && of.dst == t).unwrap();
    let slice = &block.relations[r];
    let row = |v: usize| {
        let edge = |e: usize| (batch.input_nodes[t][slice.indices[e] as usize], slice.edge_weight[e]);
        slice.edges(v).map(edge).collect()
    };
    (0..nodes.len()).map(row).collect()
}

/// Visits of the walks from `v` along relations of `path`, by a plain loop over lists of edges.
fn visits(
    (graph, path): (&TypedGraph, &[usize]),
    excluded: &[ExcludedEdges],
    (options, length): (&WalkOptions, usize),
    (key, v): (u64, NodeId),
) -> BTreeMap<NodeId, u32> {
    let mut counts = BTreeMap::new();
    for number in 0..options.num_walks as u64 {
        let node = keyed::mix(key ^ u64::from(v).wrapping_mul(keyed::GOLDEN));
        let mut stream = keyed::Stream::new(keyed::mix(node ^ number));
        let mut at = v;
        'walk: for _ in 0..length {
            for &r in path {
                let row = graph.relation(r).in_neighbors(at).iter();
                let left: Vec<NodeId> = row
                    .copied()
                    .filter(|&u| excluded.get(r).is_none_or(|excluded| !excluded.contains(u, at)))
                    .collect();
                if left.is_empty() {
                    break 'walk;
                }
                at = left[stream.below(left.len() as u64) as usize];
            }
            *counts.entry(at).or_default() += 1;
            if stream.uniform() < options.restart_prob {
                break;
            }
        }
    }
    counts
}

proptest! {
    #[test]
    fn neighbours_are_the_most_visited_nodes_of_walks_that_take_no_excluded_edge(
        papers in 1usize..40,
        edges in 1usize..120,
        seed in 0u64..1000,
        fanout in 1usize..6,
        every in 1usize..5,
        restart_prob in 0.0f64..1.0,
    ) {
        let graph = random_graph([9, papers, 4], edges, seed);
        let walks = WalkOptions { num_walks: 6, restart_prob };
        let excluded: Vec<ExcludedEdges> = graph.relations().iter().enumerate().map(|(r, relation)| {
            let mut of = ExcludedEdges::default();
            let rows = (0..relation.num_nodes() as NodeId)
                .flat_map(|v| relation.in_neighbors(v).iter().map(move |&u| (u, v)));
            of.refill(rows.skip(r).step_by(every + 1));
            of
        }).collect();
        let paths = [("auto", &[0, 1][..]), ("of,in", &[4, 3]), ("cites,writes,written_by", &[2, 0, 1])];
        for (metapath, path) in paths {
            let with = options(metapath, &fanout.to_string(), walks, 2);
            let graph = with_added("metapath-walk", &with, graph.clone(), &[1]).unwrap();
            let nodes: Vec<NodeId> = (0..papers as NodeId).rev().collect();
            for excluded in [&[][..], &excluded] {
                let rows = draw(&with, &graph, (1, &nodes), excluded, Aggregation::Other);
                let shares = draw(&with, &graph, (1, &nodes), excluded, Aggregation::Mean);
                let key = BatchKey { seed: keyed::key(&[KEY.seed, PART, 1]), ..KEY }.hop(0);
                for ((&v, row), shares) in nodes.iter().zip(rows).zip(shares) {
                    let counts = visits((&graph, path), excluded, (&walks, 2), (key, v));
                    let mut ranked: Vec<(NodeId, u32)> = counts.into_iter().collect();
                    ranked.sort_by_key(|&(u, count)| (std::cmp::Reverse(count), u));
                    ranked.truncate(fanout);
                    let sum: u32 = ranked.iter().map(|of| of.1).sum();
                    prop_assert_eq!(&row, &ranked.iter().map(|&(u, n)| (u, n as f32)).collect::<Vec<_>>());
                    for (&(u, share), &(visited, count)) in shares.iter().zip(&ranked) {
                        prop_assert!(u == visited && (share - count as f32 / sum as f32).abs() < 1e-6);
                    }
                    // nodes that one or two traversals reach over edges that are left
                    let step = |from: BTreeSet<NodeId>| path.iter().fold(from, |from, &r| {
                        let left = |v: NodeId| graph.relation(r).in_neighbors(v).iter().copied()
                            .filter(move |&u| excluded.get(r).is_none_or(|of| !of.contains(u, v)));
                        from.into_iter().flat_map(left).collect()
                    });
                    let near = step([v].into());
                    let reached: BTreeSet<NodeId> = near.union(&step(near.clone())).copied().collect();
                    prop_assert!(row.iter().all(|(u, _)| reached.contains(u)));
                }
            }
        }
    }
}

/// Lists in memory, of which walks read single neighbours.
struct InMemory(TypedGraph);

impl PathSource for InMemory {
    fn step(&self, r: usize, at: &[(NodeId, u64)], to: &mut Vec<Option<NodeId>>) -> Result<()> {
        to.clear();
        to.extend(at.iter().map(|&(v, word)| drawn_neighbor(self.0.relation(r), v, word)));
        Ok(())
    }
}

#[test]
fn walks_by_single_steps_are_those_over_lists() {
    let counts = [9, 40, 4];
    let empty = || {
        let schema = schema(counts);
        let graphs = schema.relations().iter().map(|relation| {
            let [src, dst] = [relation.src, relation.dst].map(|t| counts[t]);
            bipartite(src, dst, &[], &[]).unwrap()
        });
        let graphs = graphs.collect();
        TypedGraph::new(schema, graphs).unwrap()
    };
    for (metapath, fanout, seed) in
        [("auto", "4,3", 1), ("cites,writes,written_by", "-1", 2), ("of,in;in,of", "2,2,2", 3)]
    {
        let with = options(metapath, fanout, WalkOptions { num_walks: 7, restart_prob: 0.3 }, 3);
        let added = |graph: TypedGraph| with_added("metapath-walk", &with, graph, &[1]).unwrap();
        let (graph, empty) = (added(random_graph(counts, 60, seed)), added(empty()));
        let sampler = MetapathWalk::new(&with, graph.schema()).unwrap();
        let source: Arc<dyn PathSource> = Arc::new(InMemory(graph.clone()));
        let by_steps = sampler.by_steps(&source).unwrap();
        let mut workspace = TypedWorkspace::new(graph.schema());
        for aggregation in [Aggregation::Other, Aggregation::Mean] {
            let mut sample = |sampler: &dyn TypedSampler, graph: &TypedGraph| {
                let seeds = TypedSeeds::of_type(graph.schema(), 0, 1, [31, 4, 17, 0, 22, 9, 38, 13]);
                let request = TypedRequest { aggregation, ..TypedRequest::new(graph, KEY) };
                sampler.sample(&request, &mut workspace, seeds).unwrap()
            };
            let (lists, steps) = (sample(&sampler, &graph), sample(&*by_steps, &empty));
            assert_eq!(lists.input_nodes, steps.input_nodes);
            assert!(lists.num_edges() > 0, "{metapath}");
            for (a, b) in lists.blocks.iter().zip(&steps.blocks) {
                for (a, b) in a.relations.iter().zip(&b.relations) {
                    assert_eq!(
                        (&a.indptr, &a.indices, &a.edge_weight),
                        (&b.indptr, &b.indices, &b.edge_weight)
                    );
                }
            }
        }
        let mut seeds = TypedSeeds::of_type(graph.schema(), 0, 1, [0]);
        seeds.excluded = vec![ExcludedEdges::default(); graph.schema().num_relations()];
        seeds.excluded.iter_mut().for_each(|excluded| excluded.refill([(0, 0)]));
        let refused = by_steps.sample(&TypedRequest::new(&graph, KEY), &mut workspace, seeds);
        assert!(refused.unwrap_err().to_string().contains("train links in one process"));
    }
}

#[test]
fn a_path_of_one_edge_type_draws_as_random_walks_on_its_graph() {
    let graph = random_graph([3, 50, 2], 200, 8);
    let walks = WalkOptions { num_walks: 5, restart_prob: 0.4 };
    let with = options("cites", "4", walks, 3);
    let graph = with_added("metapath-walk", &with, graph, &[1]).unwrap();
    let dst: Vec<NodeId> = (0..50).collect();
    let sampler = RandomWalk::new([4], &walks, 3).unwrap();
    let key = BatchKey { seed: keyed::key(&[KEY.seed, PART, 1]), ..KEY };
    let request = HopRequest::new(graph.relation(2), 0, &dst, key);
    let (mut scratch, mut block) = (HopScratch::default(), Block::default());
    sampler.sample_hop(&request, &mut scratch, &mut block).unwrap();
    let rows = draw(&with, &graph, (1, &dst), &[], Aggregation::Other);
    for (v, row) in rows.iter().enumerate() {
        let expected: Vec<(NodeId, f32)> =
            block.edges(v).map(|e| (block.indices[e], block.edge_weight[e])).collect();
        assert_eq!(*row, expected);
    }
}

#[test]
fn walks_visit_papers_of_an_author_with_the_exact_probabilities() {
    // paper 0 has authors 0 and 1; author 0 wrote papers 0, 1 and 2, author 1 papers 0 and 3
    let counts = [2, 4, 1];
    let ends = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 3)];
    let (authors, papers): (Vec<u32>, Vec<u32>) = ends.into_iter().unzip();
    let none = |src, dst| bipartite(src, dst, &[], &[]).unwrap();
    let graphs = vec![
        bipartite(2, 4, &authors, &papers).unwrap(),
        bipartite(4, 2, &papers, &authors).unwrap(),
        none(4, 4),
        none(4, 1),
        none(1, 4),
    ];
    let graph = TypedGraph::new(schema(counts), graphs).unwrap();
    let with = options("writes,written_by", "-1", WalkOptions { num_walks: 1, restart_prob: 1.0 }, 1);
    let graph = with_added("metapath-walk", &with, graph, &[1]).unwrap();
    let sampler = MetapathWalk::new(&with, graph.schema()).unwrap();
    let (mut workspace, mut seen) = (TypedWorkspace::new(graph.schema()), vec![0; 4]);
    for batch in 0..24_000 {
        let seeds = TypedSeeds::of_type(graph.schema(), batch, 1, [0]);
        let request = TypedRequest::new(&graph, BatchKey { batch, ..KEY });
        let drawn = sampler.sample(&request, &mut workspace, seeds).unwrap();
        let slice = drawn.blocks[0].relations.last().unwrap();
        seen[drawn.input_nodes[1][slice.indices[0] as usize] as usize] += 1;
    }
    fits(&seen, &[1.0 / 6.0 + 1.0 / 4.0, 1.0 / 6.0, 1.0 / 6.0, 1.0 / 4.0]);
}

#[test]
fn wrong_metapaths_are_refused_with_a_fix() {
    let graph = || random_graph([3, 5, 2], 9, 1);
    let fault = |metapath: &str, seeds: &[usize]| {
        let with = options(metapath, "3", WalkOptions::default(), 1);
        with_added("metapath-walk", &with, graph(), seeds).err().unwrap()
    };
    for (metapath, seeds, part) in [
        ("writes", &[1][..], "leads from type 'paper' to type 'author'; add edge types that lead back"),
        ("writes,cites", &[1], "paper:cites:paper ends at type 'paper'"),
        ("likes", &[1], "unknown relation 'likes'"),
        ("cites;of,in", &[1], "two paths begin at type 'paper'"),
        ("writes,written_by", &[0], "no metapath leads from seeds of type 'author' back to it"),
    ] {
        let message = fault(metapath, seeds);
        assert!(message.contains(part), "{message}");
    }
    let with = options("auto", "3,2", WalkOptions::default(), 1);
    let added = with_added("metapath-walk", &with, graph(), &[0, 1, 2]).unwrap();
    let names: Vec<String> = (5..8).map(|r| added.schema().relation_name(r)).collect();
    assert_eq!(names, ["author:metapath:author", "paper:metapath:paper", "venue:metapath:venue"]);
    assert!(with_added("metapath-walk", &with, added, &[1]).err().unwrap().contains("rename it"));
    let of = |with: &TypedOptions| MetapathWalk::new(with, graph().schema()).err().unwrap();
    assert!(of(&with).contains("no relation for neighbours"), "{}", of(&with));
    let named = TypedOptions { fanout: TypedFanout::new([3]).with("cites", [1]), ..with };
    assert!(of(&named).contains("a number for each hop"), "{}", of(&named));
}
