//! Subgraphs over all types against plain loops, and the sums that they estimate.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_core::{
    block::Aggregation,
    keyed,
    options::OwnOptions,
    progress::Quiet,
    typed::{NodeType, bipartite},
};
use proptest::prelude::*;

use super::{
    super::{TABLE, TypedFanout},
    *,
};
use crate::{BatchKey, sampler::Estimator, sampler::random_walk::WalkLength, subgraph::SubgraphScratch};

const KEY: BatchKey = BatchKey { seed: 4, epoch: 1, batch: 3 };
/// Names of the samplers, with their roots.
const ROWS: [(&str, Roots); 3] =
    [("saint-node", Roots::All), ("saint-edge", Roots::All), ("saint-rw", Roots::Training)];

/// Users, items and tags; two relations lead from users to items, and one from items to items.
fn random_graph(users: usize, edges: usize, seed: u64) -> TypedGraph {
    let types = [("user", users), ("item", users / 2 + 2), ("tag", 3)];
    let types = types.map(|(name, count)| NodeType::new(name, count)).to_vec();
    let ends = [(0, 1), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2)];
    let relations: Vec<Relation> =
        ends.iter().enumerate().map(|(r, &(s, d))| Relation::new(s, format!("r{r}"), d)).collect();
    let mut stream = keyed::Stream::new(keyed::key(&[seed]));
    let graphs = relations.iter().map(|relation| {
        let [src, dst] = [relation.src, relation.dst].map(|t| types[t].count);
        let mut end = |n: usize| (0..edges).map(|_| stream.below(n as u64) as u32).collect::<Vec<_>>();
        bipartite(src, dst, &end(src), &end(dst)).unwrap()
    });
    let graphs = graphs.collect();
    TypedGraph::new(Schema::new(types, relations).unwrap(), graphs).unwrap()
}

fn options(budget: usize, training: SubgraphTraining, train: Vec<NodeId>) -> TypedOptions {
    let own = OwnOptions::default().with(training).with(WalkLength { walk_length: 2 });
    TypedOptions { fanout: TypedFanout::new([5, 5]), seed: 11, own, train: (1, train), budget }
}

fn make(name: &str, with: &TypedOptions, graph: &TypedGraph) -> Box<dyn TypedSampler> {
    (TABLE.find(name).unwrap().make.make)(with, graph).unwrap()
}

fn draw(sampler: &dyn TypedSampler, request: &TypedRequest) -> TypedSampled {
    let schema = request.graph.schema();
    let seeds = TypedSeeds::new(request.key.batch, vec![Vec::new(); schema.num_types()]);
    sampler.sample(request, &mut TypedWorkspace::new(schema), seeds).unwrap()
}

/// Node sets of a sampler of one type on the union.
struct NodesOf {
    sampler: Box<dyn crate::subgraph::SubgraphSampler>,
    union: Graph,
}

impl NodesOf {
    fn new((name, roots): (&str, Roots), with: &TypedOptions, graph: &TypedGraph) -> Self {
        let union = graph.union().unwrap();
        let roots: Vec<NodeId> = match roots {
            Roots::All => (0..union.num_nodes() as NodeId).collect(),
            Roots::Training => with.train.1.iter().map(|&v| graph.schema().global(1, v)).collect(),
        };
        let context =
            SubgraphContext { budget: with.budget, own: &with.own, partition: None, progress: &Quiet };
        Self { sampler: find_subgraphs(name).unwrap()(&union, &roots, &context).unwrap(), union }
    }

    fn draw(&self, key: BatchKey) -> BTreeSet<NodeId> {
        let mut nodes = Vec::new();
        self.sampler.sample(&self.union, key, &mut SubgraphScratch::default(), &mut nodes).unwrap();
        nodes.into_iter().collect()
    }
}

/// Numbers of counted subgraphs: all, those with each node, and those with each pair of nodes.
type Counts = (f32, BTreeMap<NodeId, f32>, BTreeMap<(NodeId, NodeId), f32>);

/// Counts over the first subgraphs that have `enough` nodes in total.
fn count(of: &NodesOf, seed: u64, enough: usize) -> Counts {
    let (mut all, mut drawn) = (0.0, 0);
    let (mut of_node, mut of_pair) = (BTreeMap::new(), BTreeMap::new());
    for batch in 0.. {
        if drawn >= enough {
            break;
        }
        let nodes = of.draw(BatchKey { seed, epoch: u64::MAX, batch });
        (all, drawn) = (all + 1.0, drawn + nodes.len());
        for &v in &nodes {
            *of_node.entry(v).or_default() += 1.0;
            nodes.iter().for_each(|&u| *of_pair.entry((u, v)).or_default() += 1.0);
        }
    }
    (all, of_node, of_pair)
}

/// Weights of `edges` into node `v` of a relation in which it has `degree` in-neighbours.
fn weights(
    counts: &Counts,
    (aggregation, estimator): (Aggregation, Estimator),
    (v, sources, degree): (NodeId, &[NodeId], usize),
) -> Vec<f32> {
    let of_node = counts.1.get(&v).copied().unwrap_or(1.0);
    let stands: Vec<f32> =
        sources.iter().map(|&u| of_node / counts.2.get(&(u, v)).copied().unwrap_or(1.0)).collect();
    let there: f32 = if estimator == Estimator::Ratio { stands.iter().sum() } else { degree as f32 };
    let all = if aggregation == Aggregation::Mean { 1.0 } else { degree as f32 };
    stands.iter().map(|stands| stands * all / there).collect()
}

proptest! {
    #[test]
    fn subgraphs_have_all_edges_by_relation_with_the_weights_of_the_counts(
        users in 2usize..30,
        edges in 1usize..80,
        seed in 0u64..1000,
        every in 1usize..4,
        budget in 4usize..30,
    ) {
        let graph = random_graph(users, edges, seed);
        let schema = graph.schema();
        let train: Vec<NodeId> = (0..schema.types()[1].count as NodeId).step_by(every).collect();
        for (row, estimator, aggregation) in [
            (ROWS[0], Estimator::Unbiased, Aggregation::Mean),
            (ROWS[0], Estimator::Ratio, Aggregation::Sum),
            (ROWS[1], Estimator::Ratio, Aggregation::Mean),
            (ROWS[2], Estimator::Unbiased, Aggregation::Sum),
        ] {
            let training = SubgraphTraining { sample_coverage: 3.0, estimator, ..Default::default() };
            let with = options(budget, training, train.clone());
            let of = NodesOf::new(row, &with, &graph);
            let sampler = make(row.0, &with, &graph);
            prop_assert_eq!(sampler.subgraphs(), Some(of.sampler.epoch(graph.num_nodes()).max(1) as u64));
            let request = TypedRequest { aggregation, positions: true, ..TypedRequest::new(&graph, KEY) };
            let batch = draw(&*sampler, &request.transposed());

            // nodes, and the seeds among them
            let nodes = of.draw(KEY);
            let lists = batch.input_nodes.iter().enumerate();
            let global = |(t, ids): (usize, &Vec<NodeId>)| {
                ids.iter().map(|&v| schema.global(t, v)).collect::<Vec<NodeId>>()
            };
            let found: Vec<NodeId> = lists.flat_map(global).collect();
            prop_assert!(found.iter().copied().eq(nodes.iter().copied()), "{}", row.0);
            prop_assert_eq!(&batch.seeds.nodes[1], &batch.input_nodes[1]);
            prop_assert!(batch.seeds.nodes[0].is_empty() && batch.blocks.len() == 1);

            // edges with their weights
            let counts = count(&of, with.seed, 3 * graph.num_nodes());
            let block = &batch.blocks[0];
            for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
                let (slice, whole) = (&block.relations[r], graph.relation(r));
                for (i, &v) in batch.input_nodes[dst].iter().enumerate() {
                    let global = |u: &NodeId| schema.global(src, *u);
                    let row = whole.in_neighbors(v).iter().map(global);
                    let expected: Vec<NodeId> = row.filter(|u| nodes.contains(u)).collect();
                    let found: Vec<NodeId> = slice.indices[slice.edges(i)]
                        .iter().map(|&u| global(&batch.input_nodes[src][u as usize])).collect();
                    prop_assert_eq!(&found, &expected);
                    let named: Vec<NodeId> = block.positions[r][slice.edges(i)]
                        .iter().map(|&e| global(&whole.indices()[e as usize])).collect();
                    prop_assert_eq!(&named, &expected);
                    let of_row = (schema.global(dst, v), &expected[..], whole.in_degree(v));
                    let expected = weights(&counts, (aggregation, estimator), of_row);
                    let found = &slice.edge_weight[slice.edges(i)];
                    prop_assert!(found.iter().zip(&expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-5));
                }
                prop_assert!(slice.is_transposed());
            }

            // losses of the training nodes
            let trained = batch.seeds.nodes[1].iter().filter(|v| train.contains(v)).count();
            prop_assert_eq!(batch.num_seeds(), trained);
            let rows = batch.seeds.nodes[1].len() as f32;
            for (&v, &weight) in batch.seeds.nodes[1].iter().zip(&batch.loss_weight) {
                let of_node = counts.1.get(&schema.global(1, v)).copied().unwrap_or(1.0);
                let all = if train.contains(&v) { rows / train.len() as f32 } else { 0.0 };
                prop_assert!((weight - all * counts.0 / of_node).abs() <= 1e-5 * weight.abs());
            }
        }
    }
}

#[test]
fn sums_by_relation_and_losses_are_unbiased() {
    let graph = random_graph(12, 40, 2);
    let schema = graph.schema();
    let train: Vec<NodeId> = vec![0, 2, 3, 5];
    let value = |u: NodeId| f64::from(u * u % 7) + 1.0;
    for row in ROWS {
        let estimator = Estimator::Unbiased;
        let training = SubgraphTraining { sample_coverage: 5000.0, estimator, ..Default::default() };
        let sampler = make(row.0, &options(16, training, train.clone()), &graph);
        let (mut times, mut sums, mut losses) = (BTreeMap::<_, u32>::new(), BTreeMap::<_, f64>::new(), 0.0);
        let draws = 12_000;
        let mut workspace = TypedWorkspace::new(schema);
        let mut seeds = TypedSeeds::new(0, vec![Vec::new(); 3]);
        for batch in 0..draws {
            let key = BatchKey { batch, ..KEY };
            let request = TypedRequest { aggregation: Aggregation::Mean, ..TypedRequest::new(&graph, key) };
            let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
            for (r, slice) in batch.blocks[0].relations.iter().enumerate() {
                let Relation { src, dst, .. } = schema.relations()[r];
                for (i, &v) in batch.input_nodes[dst].iter().enumerate() {
                    let of_edge = |e: usize| {
                        let u = batch.input_nodes[src][slice.indices[e] as usize];
                        f64::from(slice.edge_weight[e]) * value(u)
                    };
                    *times.entry((r, v)).or_default() += 1;
                    *sums.entry((r, v)).or_default() += slice.edges(i).map(of_edge).sum::<f64>();
                }
            }
            let rows = batch.seeds.nodes[1].iter().zip(&batch.loss_weight);
            let loss: f64 = rows.map(|(&v, &weight)| f64::from(weight) * value(v)).sum();
            losses += loss / batch.seeds.nodes[1].len().max(1) as f64 / draws as f64;
            seeds = batch.recycle();
        }
        for (&(r, v), &sum) in &sums {
            let all = graph.relation(r).in_neighbors(v);
            let (found, count) = (sum / f64::from(times[&(r, v)]), times[&(r, v)]);
            let expected = all.iter().map(|&u| value(u)).sum::<f64>() / all.len().max(1) as f64;
            // nodes that few subgraphs have are not measured
            if count > 3000 {
                assert!((found - expected).abs() < 0.15 * expected.max(0.1), "{}: {found} {expected}", row.0);
            }
        }
        assert!(times.values().filter(|&&count| count > 3000).count() > 10, "{}", row.0);
        let expected = train.iter().map(|&v| value(v)).sum::<f64>() / train.len() as f64;
        assert!((losses / expected - 1.0).abs() < 0.05, "{}: {losses} {expected}", row.0);
    }
}

#[test]
fn wrong_options_and_ends_of_edges_are_refused_with_a_fix() {
    let graph = random_graph(9, 30, 1);
    let plain = options(8, SubgraphTraining { sample_coverage: 1.0, ..Default::default() }, vec![1]);
    let refused =
        |name: &str, with: &TypedOptions| (TABLE.find(name).unwrap().make.make)(with, &graph).err().unwrap();
    let named = TypedOptions { fanout: TypedFanout::new([5]).with("r1", [1]), ..plain.clone() };
    assert!(refused("saint-node", &named).contains("use --layers for the number of layers"));
    let empty = TypedOptions { train: (1, Vec::new()), ..plain.clone() };
    assert!(refused("saint-rw", &empty).contains("use a dataset with training nodes"));
    assert!(refused("saint-node", &TypedOptions { budget: 0, ..plain.clone() }).contains("use 1 to 2^30"));
    for (name, _) in ROWS {
        let sampler = make(name, &plain, &graph);
        let mut seeds = TypedSeeds::new(0, vec![Vec::new(); 3]);
        seeds.excluded = vec![Default::default(); 6];
        let request = TypedRequest::new(&graph, KEY);
        let refused = sampler.sample(&request, &mut TypedWorkspace::new(graph.schema()), seeds);
        assert!(refused.unwrap_err().to_string().contains("use --sampler neighbor"), "{name}");
    }
}

#[test]
fn the_bytes_beside_the_graph_are_those_of_the_union_and_the_counts() {
    let graph = random_graph(9, 30, 2);
    let (nodes, edges) = (graph.num_nodes() as u64, graph.num_edges() as u64);
    let union = 8 * (nodes + 1) + 4 * edges;
    for (coverage, counts) in [(0.0, 0), (5.0, 4 * (nodes + edges))] {
        let training = SubgraphTraining { sample_coverage: coverage, ..SubgraphTraining::default() };
        let sampler = make("saint-node", &options(6, training, vec![0, 1]), &graph);
        assert_eq!(sampler.bytes(), union + counts, "coverage {coverage}");
    }
    let with = TypedOptions { fanout: TypedFanout::new([2]), ..TypedOptions::default() };
    assert_eq!(make("neighbor", &with, &graph).bytes(), 0);
}
