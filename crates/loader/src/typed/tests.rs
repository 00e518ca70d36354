//! Typed samplers against plain loops over the edges.

use std::collections::{BTreeSet, HashMap};

use graphmill_core::{
    Block, Features, NodeId, keyed,
    options::OwnOptions,
    typed::{NodeType, Relation, Schema, TypedBlock, TypedGraph, bipartite, bipartite_weighted},
};
use proptest::prelude::*;

use super::*;
use crate::{
    BatchKey, Feature,
    feature::Host,
    link::ExcludedEdges,
    sampler::{HopRequest, HopSampler, HopScratch, neighbor::Neighbor},
    subgraph::testing::fits,
    testing::without,
};

/// Some of the drawn `edges`, and some of all edges, of the stored relations 0, 2 and 4.
fn excluded_of(edges: &[(usize, NodeId, NodeId)], graph: &TypedGraph, every: usize) -> Vec<ExcludedEdges> {
    let schema = graph.schema();
    let mut lists = vec![Vec::new(); schema.num_relations()];
    for r in [0, 2, 4] {
        let rows = 0..graph.relation(r).num_nodes() as NodeId;
        let row = |v: NodeId| graph.relation(r).in_neighbors(v).iter().map(move |&u| (u, v));
        lists[r].extend(rows.flat_map(row).step_by(2 * every));
    }
    for &(r, u, v) in edges.iter().filter(|edge| [0, 2, 4].contains(&edge.0)).step_by(every) {
        let Relation { src, dst, .. } = schema.relations()[r];
        lists[r].push((u - schema.range(src).start as NodeId, v - schema.range(dst).start as NodeId));
    }
    let excluded = |list: Vec<(NodeId, NodeId)>| {
        let mut excluded = ExcludedEdges::default();
        excluded.refill(list);
        excluded
    };
    lists.into_iter().map(excluded).collect()
}

const KEY: BatchKey = BatchKey { seed: 9, epoch: 2, batch: 5 };

/// Random graph of three types and five relations, one of them from a type to itself, with weights
/// on the first.
fn random_graph(nodes: usize, edges: usize, seed: u64) -> TypedGraph {
    let types = vec![NodeType::new("a", nodes), NodeType::new("b", nodes / 2 + 1), NodeType::new("c", 3)];
    let ends = [(0, 1), (1, 0), (0, 0), (2, 0), (1, 2)];
    let relations: Vec<Relation> =
        ends.iter().enumerate().map(|(r, &(s, d))| Relation::new(s, format!("r{r}"), d)).collect();
    let mut stream = keyed::Stream::new(keyed::key(&[seed]));
    let graphs = relations.iter().enumerate().map(|(r, relation)| {
        let [src, dst] = [relation.src, relation.dst].map(|t| types[t].count);
        let ends: Vec<(u32, u32)> =
            (0..edges).map(|_| (stream.below(src as u64) as u32, stream.below(dst as u64) as u32)).collect();
        let (u, v): (Vec<u32>, Vec<u32>) = ends.into_iter().unzip();
        if r == 0 {
            let weights: Vec<f32> = (0..edges).map(|e| (e % 3) as f32).collect();
            bipartite_weighted(src, dst, &u, &v, &weights).unwrap()
        } else {
            bipartite(src, dst, &u, &v).unwrap()
        }
    });
    let graphs = graphs.collect();
    TypedGraph::new(Schema::new(types, relations).unwrap(), graphs).unwrap()
}

fn options(fanout: &str) -> TypedOptions {
    let training = SubgraphTraining { sample_coverage: 1.0, ..SubgraphTraining::default() };
    let own = OwnOptions::default().with(training);
    let fanout = fanout.parse().unwrap();
    TypedOptions { fanout, own, train: (0, vec![0, 1, 2]), budget: 12, ..TypedOptions::default() }
}

/// The graph with the relations of the sampler, for seeds of the first two types.
fn extended(name: &str, with: &TypedOptions, graph: &TypedGraph) -> TypedGraph {
    with_added(name, with, graph.clone(), &[0, 1]).unwrap()
}

fn make(name: &str, with: &TypedOptions, graph: &TypedGraph) -> Box<dyn TypedSampler> {
    (TABLE.find(name).unwrap().make.make)(with, graph).unwrap()
}

fn sample(sampler: &dyn TypedSampler, graph: &TypedGraph, seeds: &[Vec<NodeId>]) -> TypedSampled {
    let mut workspace = TypedWorkspace::new(graph.schema());
    let request = TypedRequest::new(graph, KEY).transposed();
    sampler.sample(&request, &mut workspace, TypedSeeds::new(0, seeds.to_vec())).unwrap()
}

/// Global ids of nodes given by type.
fn global(nodes: &[Vec<NodeId>], schema: &Schema) -> BTreeSet<NodeId> {
    let of_type =
        |(t, ids): (usize, &Vec<NodeId>)| ids.iter().map(|&v| schema.global(t, v)).collect::<Vec<_>>();
    nodes.iter().enumerate().flat_map(of_type).collect()
}

/// Global ids of the edges of a slice: (relation, source, destination), ascending.
fn edges_of(block: &TypedBlock, nodes: &[Vec<NodeId>], schema: &Schema) -> Vec<(usize, NodeId, NodeId)> {
    let mut edges = Vec::new();
    for (r, slice) in block.relations.iter().enumerate() {
        let Relation { src, dst, .. } = schema.relations()[r];
        for v in 0..slice.num_dst {
            edges.extend(slice.indices[slice.edges(v)].iter().map(|&u| {
                (r, schema.global(src, nodes[src][u as usize]), schema.global(dst, nodes[dst][v]))
            }));
        }
    }
    edges.sort_unstable();
    edges
}

/// Asserts sizes, prefixes, ranges and transposes of all blocks.
fn assert_sound(batch: &TypedSampled, graph: &TypedGraph) {
    let schema = graph.schema();
    for (t, nodes) in batch.input_nodes.iter().enumerate() {
        assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "input nodes are distinct");
        assert_eq!(nodes[..batch.seeds.nodes[t].len()], batch.seeds.nodes[t], "seeds come first");
        assert_eq!(batch.blocks[0].num_src[t], nodes.len());
    }
    for (l, block) in batch.blocks.iter().enumerate() {
        assert!(block.is_transposed());
        if l + 1 < batch.blocks.len() {
            assert_eq!(block.num_dst, batch.blocks[l + 1].num_src);
        }
        for (slice, relation) in block.relations.iter().zip(schema.relations()) {
            let sizes = (block.num_dst[relation.dst], block.num_src[relation.src]);
            assert_eq!((slice.num_dst, slice.num_src), sizes);
            assert_eq!(slice.indptr.len(), slice.num_dst + 1);
            assert!(slice.indices.iter().all(|&u| (u as usize) < slice.num_src));
        }
    }
}

/// A batch by plain loops: nodes numbered by hash maps, and each row drawn on its own.
fn reference(graph: &TypedGraph, fanout: &[Vec<usize>], seeds: &[Vec<NodeId>]) -> TypedSampled {
    let (schema, hops) = (graph.schema(), fanout[0].len());
    let mut nodes = seeds.to_vec();
    let mut blocks = Vec::new();
    #[allow(clippy::needless_range_loop, reason = "the hop is an argument of the draws")]
    for hop in 0..hops {
        let mut block = TypedBlock::default();
        block.clear(schema);
        block.num_dst = nodes.iter().map(Vec::len).collect();
        for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
            let slice = &mut block.relations[r];
            if fanout[r][hop] == 0 || block.num_dst[dst] == 0 {
                continue;
            }
            let k = i64::try_from(fanout[r][hop]).unwrap_or(-1);
            let sampler = Neighbor::new(vec![k; hops]).unwrap();
            let key = BatchKey { seed: keyed::key(&[KEY.seed, 1, r as u64]), ..KEY };
            let mut local: HashMap<NodeId, u32> = nodes[src].iter().copied().zip(0..).collect();
            slice.indptr.push(0);
            let destinations = nodes[dst][..block.num_dst[dst]].to_vec();
            for v in destinations {
                let mut row = Block::default();
                let aggregation = Default::default();
                let dst = [v];
                let draw = HopRequest { aggregation, ..HopRequest::new(graph.relation(r), hop, &dst, key) };
                sampler.sample_hop(&draw, &mut HopScratch::default(), &mut row).unwrap();
                for u in row.indices {
                    let next = local.len() as u32;
                    slice.indices.push(*local.entry(u).or_insert_with(|| {
                        nodes[src].push(u);
                        next
                    }));
                }
                slice.indptr.push(slice.indices.len() as u32);
            }
        }
        block.num_src = nodes.iter().map(Vec::len).collect();
        block.fit(schema);
        block.transpose(false);
        blocks.insert(0, block);
    }
    TypedSampled {
        seeds: TypedSeeds::new(0, seeds.to_vec()),
        blocks,
        input_nodes: nodes,
        loss_weight: vec![],
    }
}

fn assert_same(a: &TypedSampled, b: &TypedSampled) {
    assert_eq!((&a.seeds.nodes, &a.loss_weight), (&b.seeds.nodes, &b.loss_weight));
    assert_eq!(a.input_nodes, b.input_nodes);
    assert_eq!(a.blocks.len(), b.blocks.len());
    for (a, b) in a.blocks.iter().zip(&b.blocks) {
        assert_eq!((&a.num_dst, &a.num_src), (&b.num_dst, &b.num_src));
        for (a, b) in a.relations.iter().zip(&b.relations) {
            assert_eq!((&a.indptr, &a.indices, &a.edge_weight), (&b.indptr, &b.indices, &b.edge_weight));
            assert_eq!((&a.transposed.dst, &a.transposed.edge), (&b.transposed.dst, &b.transposed.edge));
        }
    }
}

/// Distinct seeds of each type: those whose bits are set.
fn seeds_of(graph: &TypedGraph, bits: u64) -> Vec<Vec<NodeId>> {
    let nodes = |t: usize| (0..graph.schema().types()[t].count as u32).rev();
    (0..3)
        .map(|t| {
            nodes(t).filter(|v| keyed::key(&[bits, t as u64, u64::from(*v)]).is_multiple_of(3)).collect()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn neighbor_sampling_agrees_with_plain_loops(
        nodes in 1usize..40,
        edges in 0usize..150,
        seed in any::<u64>(),
        fanout in prop::sample::select(vec!["2", "3,2", "-1,1", "2,2;r2=0,3", "0,4;r0=1,1;r3=-1,0", "1,2,3"]),
    ) {
        let graph = random_graph(nodes, edges, seed);
        let (options, seeds) = (options(fanout), seeds_of(&graph, seed));
        let batch = sample(&*make("neighbor", &options, &graph), &graph, &seeds);
        assert_sound(&batch, &graph);
        let fanout = options.fanout.of_relations(graph.schema()).unwrap();
        assert_same(&batch, &reference(&graph, &fanout, &seeds));
    }

    #[test]
    fn full_sampling_takes_the_whole_neighbourhood(
        nodes in 1usize..30,
        edges in 0usize..80,
        seed in any::<u64>(),
    ) {
        let graph = random_graph(nodes, edges, seed);
        let (schema, union) = (graph.schema(), graph.union().unwrap());
        let seeds = seeds_of(&graph, seed);
        let batch = sample(&*make("full", &options("1,1,1"), &graph), &graph, &seeds);
        assert_sound(&batch, &graph);
        let mut reached = global(&seeds, schema);
        for block in batch.blocks.iter().rev() {
            // the union of the slices is the brute-force neighbourhood of the destinations
            let edges = edges_of(block, &batch.input_nodes, schema);
            let mut found: Vec<(NodeId, NodeId)> = edges.iter().map(|&(_, u, v)| (v, u)).collect();
            let mut expected: Vec<(NodeId, NodeId)> =
                reached.iter().flat_map(|&v| union.in_neighbors(v).iter().map(move |&u| (v, u))).collect();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&found, &expected);
            reached.extend(expected.iter().map(|edge| edge.1));
        }
        prop_assert_eq!(global(&batch.input_nodes, schema), reached);
    }

    #[test]
    fn budget_sampling_takes_all_within_reach_if_it_may(
        nodes in 1usize..25,
        edges in 0usize..60,
        seed in any::<u64>(),
    ) {
        let graph = random_graph(nodes, edges, seed);
        let (schema, union) = (graph.schema(), graph.union().unwrap());
        let seeds = seeds_of(&graph, seed);
        let batch = sample(&*make("hgt", &options("-1,-1"), &graph), &graph, &seeds);
        assert_sound(&batch, &graph);
        let mut reached = global(&seeds, schema);
        for _ in 0..2 {
            let next: Vec<NodeId> = reached.iter().flat_map(|&v| union.in_neighbors(v).to_vec()).collect();
            reached.extend(next);
        }
        prop_assert_eq!(&global(&batch.input_nodes, schema), &reached);
        let mut expected = Vec::new();
        for (r, relation) in schema.relations().iter().enumerate() {
            for local in 0..graph.relation(r).num_nodes() as NodeId {
                let v = schema.global(relation.dst, local);
                if reached.contains(&v) {
                    let row = graph.relation(r).in_neighbors(local).iter();
                    let row = row.map(|&u| schema.global(relation.src, u)).filter(|u| reached.contains(u));
                    expected.extend(row.map(|u| (r, u, v)));
                }
            }
        }
        expected.sort_unstable();
        prop_assert_eq!(edges_of(&batch.blocks[0], &batch.input_nodes, schema), expected);
    }
}

#[test]
fn batches_are_the_same_for_any_number_of_threads_and_after_any_batch() {
    // enough destinations for the parallel paths of the samplers
    let graph = random_graph(9000, 40_000, 4);
    let seeds: Vec<Vec<NodeId>> = vec![(0..4000).collect(), (0..3000).collect(), vec![1]];
    for entry in &TABLE {
        for fanout in ["4,3", "40,2"] {
            let with = TypedOptions { budget: 3000, train: (0, (0..4000).collect()), ..options(fanout) };
            let graph = extended(entry.name, &with, &graph);
            let sampler = make(entry.name, &with, &graph);
            let one_block = entry.make.counts_nodes || entry.make.draws_subgraphs;
            assert_eq!(sampler.num_blocks(), if one_block { 1 } else { 2 });
            let mut batches = Vec::new();
            for threads in [1, 4] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                batches.push(pool.install(|| {
                    let mut workspace = TypedWorkspace::new(graph.schema());
                    let other = TypedRequest::new(&graph, BatchKey { batch: 0, ..KEY });
                    let memory =
                        sampler.sample(&other, &mut workspace, TypedSeeds::new(0, seeds.clone())).unwrap();
                    let seeds: Vec<&[NodeId]> = seeds.iter().map(|ids| &ids[..]).collect();
                    let request = TypedRequest::new(&graph, KEY).transposed();
                    sampler.sample(&request, &mut workspace, memory.recycle().refill(0, &seeds)).unwrap()
                }));
            }
            assert_sound(&batches[0], &graph);
            assert_same(&batches[0], &batches[1]);
            assert_same(&batches[0], &sample(&*sampler, &graph, &seeds));
        }
    }
}

/// Sources of each destination with edges, in the order of the draws, by hop and relation.
fn rows_of(batch: &TypedSampled) -> HashMap<(usize, usize, NodeId), Vec<NodeId>> {
    let mut rows = HashMap::new();
    let relations = [(0, 1), (1, 0), (0, 0), (2, 0), (1, 2)];
    for (hop, block) in batch.blocks.iter().enumerate() {
        for (r, slice) in block.relations.iter().enumerate() {
            let (src, dst) = relations.get(r).copied().unwrap_or_else(|| (r - 5, r - 5));
            for v in (0..slice.num_dst).filter(|&v| !slice.edges(v).is_empty()) {
                let sources = slice.indices[slice.edges(v)].iter();
                let sources = sources.map(|&u| batch.input_nodes[src][u as usize]).collect();
                rows.insert((hop, r, batch.input_nodes[dst][v]), sources);
            }
        }
    }
    rows
}

#[test]
fn samplers_per_node_draw_the_rows_of_a_seed_alone_as_in_any_batch() {
    let graph = random_graph(60, 400, 7);
    let all: Vec<Vec<NodeId>> = vec![(0..60).collect(), (0..31).rev().collect(), vec![]];
    for entry in &TABLE {
        let with = options("4,3");
        let graph = extended(entry.name, &with, &graph);
        let sampler = make(entry.name, &with, &graph);
        let depends = entry.make.counts_nodes || entry.make.draws_subgraphs;
        assert_eq!(sampler.is_per_node(), !depends, "{}", entry.name);
        if depends {
            continue;
        }
        let together = rows_of(&sample(&*sampler, &graph, &all));
        for (t, v) in [(0, 3), (0, 59), (1, 0), (1, 30)] {
            let mut one = vec![Vec::new(); 3];
            one[t].push(v);
            let alone = rows_of(&sample(&*sampler, &graph, &one));
            assert!(!alone.is_empty(), "{}", entry.name);
            for (row, sources) in alone {
                assert_eq!(together.get(&row), Some(&sources), "{}: {row:?}", entry.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_batch_of_several_types_is_the_union_of_those_of_each_type(
        nodes in 4usize..30,
        edges in 1usize..120,
        seed in any::<u64>(),
    ) {
        let stored = random_graph(nodes, edges, seed);
        let seeds = seeds_of(&stored, seed);
        for entry in TABLE.iter().filter(|entry| !entry.make.draws_subgraphs) {
            let with = options("3,2");
            let graph = extended(entry.name, &with, &stored);
            let sampler = make(entry.name, &with, &graph);
            if !sampler.is_per_node() {
                continue;
            }
            let together = sample(&*sampler, &graph, &seeds);
            assert_sound(&together, &graph);
            let counts: Vec<usize> = seeds.iter().map(Vec::len).collect();
            prop_assert_eq!(&together.blocks[1].num_dst, &counts, "{}", entry.name);
            let mut union = HashMap::new();
            for (t, of_type) in seeds.iter().enumerate() {
                let mut one = vec![Vec::new(); 3];
                one[t].clone_from(of_type);
                union.extend(rows_of(&sample(&*sampler, &graph, &one)));
            }
            prop_assert_eq!(rows_of(&together), union, "{}", entry.name);
        }
    }
}

#[test]
fn labor_relations_from_a_type_share_their_neighbours() {
    // two relations with equal edges from type 0: shared numbers take the same neighbours
    let types = vec![NodeType::new("a", 100), NodeType::new("b", 1)];
    let relations = vec![Relation::new(0, "x", 1), Relation::new(0, "y", 1)];
    let all: Vec<u32> = (0..100).collect();
    let edges = bipartite(100, 1, &all, &[0; 100]).unwrap();
    let graph = TypedGraph::new(Schema::new(types, relations).unwrap(), vec![edges.clone(), edges]).unwrap();
    let batch = sample(&*make("labor", &options("10"), &graph), &graph, &[vec![], vec![0]]);
    let [x, y] = [0, 1].map(|r| &batch.blocks[0].relations[r].indices);
    assert!(x == y && !x.is_empty());
    let batch = sample(&*make("neighbor", &options("10"), &graph), &graph, &[vec![], vec![0]]);
    let [x, y] = [0, 1].map(|r| &batch.blocks[0].relations[r].indices);
    assert!(x != y, "relations draw independently");
}

#[test]
fn weights_decide_draws_of_the_relations_that_store_them() {
    let graph = random_graph(20, 100, 3);
    let batch =
        sample(&*make("weighted", &options("3"), &graph), &graph, &[vec![], (0..11).collect(), vec![]]);
    let edges = edges_of(&batch.blocks[0], &batch.input_nodes, graph.schema());
    let weight = |u: NodeId, v: NodeId| {
        let (relation, v) = (graph.relation(0), graph.schema().local(v).unwrap().1);
        let first = relation.indptr()[v as usize] as usize;
        let at = relation.in_neighbors(v).iter().position(|&other| other == u).unwrap();
        relation.edge_weight().unwrap()[first + at]
    };
    assert!(edges.iter().any(|edge| edge.0 == 0));
    assert!(edges.iter().filter(|edge| edge.0 == 0).all(|&(_, u, v)| weight(u, v) > 0.0));
}

#[test]
fn budget_draws_are_in_proportion_to_squared_budgets() {
    // node 0 has two edges, nodes 1 and 2 one each: budgets of 2, 1 and 1 from nodes of degree 1
    let types = vec![NodeType::new("a", 3), NodeType::new("b", 4)];
    let schema = Schema::new(types, vec![Relation::new(0, "x", 1)]).unwrap();
    let graph =
        TypedGraph::new(schema, vec![bipartite(3, 4, &[0, 0, 1, 2], &[0, 1, 2, 3]).unwrap()]).unwrap();
    let sampler = make("hgt", &options("1"), &graph);
    let mut workspace = TypedWorkspace::new(graph.schema());
    let mut counts = vec![0; 3];
    for batch in 0..20_000 {
        let request = TypedRequest::new(&graph, BatchKey { batch, ..KEY });
        let seeds = TypedSeeds::new(batch, vec![vec![], vec![0, 1, 2, 3]]);
        let drawn = sampler.sample(&request, &mut workspace, seeds).unwrap();
        assert_eq!(drawn.input_nodes[0].len(), 1);
        counts[drawn.input_nodes[0][0] as usize] += 1;
    }
    fits(&counts, &[4.0, 1.0, 1.0]);
}

#[test]
fn degrees_above_the_limit_are_drawn_down_to_it() {
    let types = vec![NodeType::new("a", 200), NodeType::new("b", 1)];
    let schema = Schema::new(types, vec![Relation::new(0, "x", 1)]).unwrap();
    let all: Vec<u32> = (0..200).collect();
    let graph = TypedGraph::new(schema, vec![bipartite(200, 1, &all, &[0; 200]).unwrap()]).unwrap();
    let own = OwnOptions::default().with(HgtOptions { max_degree: 7 });
    let sampler = make("hgt", &TypedOptions { own, ..options("-1") }, &graph);
    let batch = sample(&*sampler, &graph, &[vec![], vec![0]]);
    assert_eq!(batch.input_nodes[0].len(), 7);
    assert!(batch.blocks[0].num_edges() <= 7);
}

#[test]
fn types_without_a_followed_relation_are_reported() {
    let graph = random_graph(10, 20, 1);
    let unreached =
        |name, fanout| unreached_types(&*make(name, &options(fanout), &graph), graph.schema(), &[2]);
    assert_eq!(unreached("neighbor", "2"), ["a"]);
    assert_eq!(unreached("neighbor", "2,2"), [""; 0]);
    assert_eq!(unreached("neighbor", "2,2;r0=2,0"), ["a"]);
    assert_eq!(unreached("hgt", "2,2;b=0,0"), ["a", "b"]);
}

#[test]
fn rows_are_gathered_for_each_type() {
    let graph = random_graph(10, 40, 2);
    let table = |count: usize, dim: usize| {
        Host::new(&Features::f32(dim, (0..count * dim).map(|x| x as f32).collect::<Vec<_>>()))
    };
    let (a, c) = (table(10, 2), table(3, 1));
    let batch = sample(&*make("neighbor", &options("2,2"), &graph), &graph, &[vec![4, 2], vec![], vec![]]);
    let nodes = batch.input_nodes.clone();
    let rows = batch.extract(&[Some(&a), None, Some(&c)]).unwrap();
    let expected: Vec<f32> = nodes[0].iter().flat_map(|&v| [v as f32 * 2.0, v as f32 * 2.0 + 1.0]).collect();
    assert_eq!(rows.features[0].view().host(), expected);
    assert_eq!((rows.features[1].num_rows(), rows.features[1].num_cols()), (nodes[1].len(), 0));
    assert_eq!(rows.traffic[0].host.rows, nodes[0].len() as u64);
    let memory = rows.recycle().refill(1, &[&[1], &[], &[]]);
    let again = make("neighbor", &options("2,2"), &graph)
        .sample(&TypedRequest::new(&graph, KEY), &mut TypedWorkspace::new(graph.schema()), memory)
        .unwrap();
    assert!(again.extract(&[None]).unwrap_err().to_string().contains("1 feature tables for 3 node types"));
}

#[test]
fn samplers_that_name_their_edges_draw_the_same_blocks() {
    let graph = random_graph(40, 600, 3);
    let (schema, seeds) = (graph.schema(), vec![(0..20).rev().collect(), vec![2, 1], vec![0]]);
    let with = TypedOptions { budget: 60, ..options("3,2") };
    for entry in &TABLE {
        let graph = extended(entry.name, &with, &graph);
        let sampler = make(entry.name, &with, &graph);
        let request = TypedRequest { positions: true, ..TypedRequest::new(&graph, KEY).transposed() };
        let mut workspace = TypedWorkspace::new(schema);
        let named = sampler.sample(&request, &mut workspace, TypedSeeds::new(0, seeds.clone()));
        if !entry.make.names_edges {
            assert!(named.unwrap_err().to_string().contains("use neighbor or full"), "{}", entry.name);
            continue;
        }
        let named = named.unwrap();
        assert_same(&named, &sample(&*sampler, &graph, &seeds));
        let mut edges = 0;
        for block in &named.blocks {
            for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
                let (slice, positions, whole) = (&block.relations[r], &block.positions[r], graph.relation(r));
                assert_eq!(positions.len(), slice.num_edges());
                for v in 0..slice.num_dst {
                    let of_row = slice.edges(v);
                    let start = whole.indptr()[named.input_nodes[dst][v] as usize];
                    let end = whole.indptr()[named.input_nodes[dst][v] as usize + 1];
                    let row: BTreeSet<u64> = positions[of_row.clone()].iter().copied().collect();
                    assert!(row.len() == of_row.len() && row.iter().all(|e| (start..end).contains(e)));
                    for e in of_row {
                        let source = named.input_nodes[src][slice.indices[e] as usize];
                        assert_eq!(whole.indices()[positions[e] as usize], source);
                        edges += 1;
                    }
                }
            }
        }
        assert!(edges > 50, "{edges}");
        // rows of the edges of two relations: the position and twice the position
        let table = |r: usize, factor: usize| {
            let values: Vec<f32> = (0..graph.relation(r).num_edges()).map(|e| (factor * e) as f32).collect();
            Host::new(&Features::f32(1, values))
        };
        let (first, third) = (table(0, 1), table(2, 2));
        let positions: Vec<_> = named.blocks.iter().map(|block| block.positions.clone()).collect();
        let mut tables: Vec<Option<&dyn Feature>> = vec![None; schema.num_relations()];
        tables[0] = Some(&first);
        tables[2] = Some(&third);
        let rows = named.extract(&[None, None, None]).unwrap().with_edges(&tables).unwrap();
        for (edges, positions) in rows.edges.iter().zip(&positions) {
            for (r, factor) in [(0, 1), (2, 2)] {
                let expected: Vec<f32> = positions[r].iter().map(|e| (factor * e) as f32).collect();
                assert_eq!(edges[r].view().host(), expected);
            }
            assert_eq!((edges[1].num_rows(), edges[1].num_cols()), (positions[1].len(), 0));
        }
        let memory = rows.recycle().refill(1, &[&[1], &[], &[]]);
        let unnamed = sampler.sample(&TypedRequest::new(&graph, KEY), &mut workspace, memory).unwrap();
        let message = unnamed.extract(&[None, None, None]).unwrap().with_edges(&tables).unwrap_err();
        assert!(message.to_string().contains("request positions of the sampler"), "{message}");
    }
}

#[test]
fn wrong_seeds_and_options_are_rejected_with_a_reason() {
    let graph = random_graph(10, 40, 2);
    let fault = |seeds: Vec<Vec<NodeId>>| {
        let mut workspace = TypedWorkspace::new(graph.schema());
        let request = TypedRequest::new(&graph, KEY);
        let sampler = make("neighbor", &options("2"), &graph);
        sampler.sample(&request, &mut workspace, TypedSeeds::new(3, seeds)).unwrap_err().to_string()
    };
    assert!(fault(vec![vec![]]).contains("1 lists of seeds for 3 node types"));
    assert!(fault(vec![vec![10], vec![], vec![]]).contains("seed 10 of type 'a': there are 10 nodes"));
    assert!(fault(vec![vec![4, 1, 4], vec![], vec![]]).contains("seed 4 of type 'a': it is listed twice"));
    let refused = |name: &str, with: &TypedOptions, graph: &TypedGraph| {
        (TABLE.find(name).unwrap().make.make)(with, graph).err().unwrap()
    };
    let by_degree =
        crate::sampler::WeightOptions { edge_weights: crate::sampler::weighted::EdgeWeights::InDegree };
    let own = OwnOptions::default().with(by_degree);
    assert!(
        refused("weighted", &TypedOptions { own, ..options("2") }, &graph).contains("--edge-weights stored")
    );
    let schema = Schema::new(vec![NodeType::new("a", 1)], vec![Relation::new(0, "x", 0)]).unwrap();
    let plain = TypedGraph::new(schema, vec![bipartite(1, 1, &[], &[]).unwrap()]).unwrap();
    assert!(refused("weighted", &options("2"), &plain).contains("no relation stores edge weights"));
    assert!(refused("hgt", &options("2;d=1"), &graph).contains("unknown node type 'd'"));
    let walks = RelationHops::new("random-walk", &options("2"), &graph).err().unwrap();
    assert!(walks.contains("cannot draw by a relation"), "{walks}");
}

proptest! {
    #[test]
    fn batches_without_edges_are_those_of_the_graph_without_them(
        nodes in 4usize..30,
        edges in 1usize..120,
        seed in 0u64..1000,
        every in 1usize..4,
    ) {
        let stored = random_graph(nodes, edges, seed);
        let seeds = [vec![0, 1], vec![0], vec![]];
        for entry in TABLE.iter().filter(|entry| !entry.make.draws_subgraphs) {
            let graph = extended(entry.name, &options("3,2"), &stored);
            let schema = graph.schema();
            let sampler = make(entry.name, &options("3,2"), &graph);
            let of = |batch: &TypedSampled| -> Vec<(usize, NodeId, NodeId)> {
                let blocks = batch.blocks.iter();
                blocks.flat_map(|block| edges_of(block, &batch.input_nodes, schema)).collect()
            };
            let before = of(&sample(&*sampler, &graph, &seeds));
            let excluded = excluded_of(&before, &graph, every);
            let batch = |positions: bool| {
                let mut seeds = TypedSeeds::new(0, seeds.to_vec());
                seeds.excluded = excluded.clone();
                let request = TypedRequest { positions, ..TypedRequest::new(&graph, KEY).transposed() };
                sampler.sample(&request, &mut TypedWorkspace::new(schema), seeds).unwrap()
            };
            let after = batch(false);
            for &(r, u, v) in &of(&after) {
                let Relation { src, dst, .. } = schema.relations()[r];
                let [u, v] = [(u, src), (v, dst)].map(|(v, t)| v - schema.range(t).start as NodeId);
                prop_assert!(!excluded[r].contains(u, v), "{}: {r} {u} {v}", entry.name);
            }
            let cut = graph.relations().iter().zip(&excluded).map(|(of, excluded)| without(of, excluded));
            let cut = TypedGraph::new(schema.clone(), cut.collect()).unwrap();
            let expected = sample(&*make(entry.name, &options("3,2"), &cut), &cut, &seeds);
            prop_assert_eq!(&after.input_nodes, &expected.input_nodes, "{}", entry.name);
            for (found, expected) in after.blocks.iter().zip(&expected.blocks) {
                for (found, expected) in found.relations.iter().zip(&expected.relations) {
                    prop_assert_eq!(&found.indptr, &expected.indptr, "{}", entry.name);
                    prop_assert_eq!(&found.indices, &expected.indices, "{}", entry.name);
                    prop_assert_eq!(&found.edge_weight, &expected.edge_weight, "{}", entry.name);
                }
            }
            for slice in after.blocks.iter().flat_map(|block| &block.relations) {
                prop_assert_eq!(slice.indptr.last().map(|&end| end as usize), Some(slice.indices.len()));
                prop_assert!(slice.indptr.is_sorted());
            }
            if entry.make.names_edges {
                let named = batch(true);
                prop_assert_eq!(of(&named), of(&after));
                for block in &named.blocks {
                    for ((r, slice), positions) in block.relations.iter().enumerate().zip(&block.positions) {
                        prop_assert_eq!(slice.num_edges(), positions.len());
                        let src = schema.relations()[r].src;
                        let sources = slice.indices.iter().map(|&u| named.input_nodes[src][u as usize]);
                        let stored = positions.iter().map(|&e| graph.relation(r).indices()[e as usize]);
                        prop_assert!(sources.eq(stored), "{}", entry.name);
                    }
                }
            }
        }
    }
}

#[test]
fn a_batch_that_is_drawn_in_parts_is_that_of_all_hops() {
    let graph = random_graph(40, 300, 3);
    for (name, with) in [("neighbor", options("3,2,4")), ("full", options("1,1")), ("labor", options("3,2"))]
    {
        let sampler = make(name, &with, &graph);
        let parts = sampler.in_parts().unwrap();
        let mut workspace = TypedWorkspace::new(graph.schema());
        for transposed in [false, true] {
            let request = TypedRequest { transposed, ..TypedRequest::new(&graph, KEY) };
            let seeds = || TypedSeeds::new(5, seeds_of(&graph, 0b1011_0110));
            let whole = sampler.sample(&request, &mut workspace, seeds()).unwrap();
            let upper = parts.sample_upper(&request, &mut workspace, seeds()).unwrap();
            let lowest = upper.blocks.len().min(2) - 1;
            assert_eq!(upper.blocks[0].num_edges(), 0, "{name}");
            for (t, nodes) in upper.input_nodes.iter().enumerate() {
                assert_eq!(nodes.len(), whole.blocks[lowest].num_src[t], "{name}");
            }
            // another batch may use the workspace between the parts
            sampler.sample(&request, &mut workspace, TypedSeeds::new(6, seeds_of(&graph, 0b1110))).unwrap();
            let batch = parts.sample_bottom(&request, &mut workspace, upper).unwrap();
            assert_same(&whole, &batch);
            assert!(batch.blocks.iter().all(|block| block.is_transposed() == transposed), "{name}");
        }
        // rows alone read the nodes that they read in a batch
        let request = TypedRequest::new(&graph, KEY);
        let whole =
            sampler.sample(&request, &mut workspace, TypedSeeds::new(5, seeds_of(&graph, 6))).unwrap();
        let dst = whole.input_nodes.iter().zip(&whole.blocks[0].num_dst);
        let dst: Vec<Vec<NodeId>> = dst.map(|(nodes, &count)| nodes[..count].to_vec()).collect();
        let alone = parts.sample_rows(&request, &mut workspace, TypedSeeds::new(5, dst)).unwrap();
        assert_eq!(alone.blocks.len(), 1);
        let edges = |batch: &TypedSampled| edges_of(&batch.blocks[0], &batch.input_nodes, graph.schema());
        assert_eq!(edges(&alone), edges(&whole), "{name}");
    }
    assert!(make("saint-node", &options("1,1"), &graph).in_parts().is_none());
}
