//! Samplers with draws of their own at times, against those without times on the graph as of a
//! time.

use std::collections::BTreeSet;

use graphmill_core::{
    Graph,
    block::Aggregation,
    options::OwnOptions,
    table::Entry,
    typed::{TypedBlock, TypedGraph},
};

use super::*;
use crate::{
    sampler::{
        WeightedOptions,
        labor::{Iterations, LaborOptions},
        random_walk::{WalkLength, WalkOptions},
    },
    typed::{
        TABLE, TypedKind, TypedOptions, TypedRequest, TypedSampled, TypedSeeds, TypedWorkspace, with_added,
    },
};

/// Weight of the edge at a position, from `least` halves on.
fn weight(e: usize, least: usize) -> f32 {
    (e * 7 % 5 + least) as f32 * 0.5
}

/// A plain graph with weights, as a graph with times and the relations of a sampler.
struct Weighed {
    plain: Plain,
    timed: TimedGraph,
    /// Least weight, in halves.
    least: usize,
}

impl Weighed {
    fn new(name: &str, with: &TypedOptions, plain: Plain) -> Self {
        // edges of weight 0 are no edges of that sampler
        let least = usize::from(name != "weighted");
        let of = |e| weight(e, least);
        let weights = |graph: &Graph| (0..graph.num_edges()).map(of).collect::<Vec<f32>>();
        let weigh = |graph: &Graph| graph.clone().with_edge_weight(weights(graph).into()).unwrap();
        let graphs = plain.timed.graph().relations().iter().map(weigh).collect();
        let graph = TypedGraph::new(plain.schema.clone(), graphs).unwrap();
        let column = |(edges, &has): (&Vec<Edge>, &bool)| {
            has.then(|| edges.iter().map(|edge| edge.time).collect::<Vec<i64>>().into())
        };
        let columns: Vec<_> = plain.edges.iter().zip(&plain.has_times).map(column).collect();
        let of_nodes = plain.node_time.iter().map(|time| time.clone().map(Buffer::from)).collect();
        let timed = TimedGraph::new(graph.clone(), &columns, of_nodes).unwrap();
        let timed = timed.with_relations(with_added(name, with, graph, &[0, 1]).unwrap()).unwrap();
        Self { plain, timed, least }
    }

    /// Positions of the edges into `v` by relation `r` that a seed of time `time` sees, in the
    /// order of their times.
    fn seen(&self, options: &TimeOptions, r: usize, v: NodeId, time: i64) -> Vec<usize> {
        let sees = |&e: &usize| {
            let visible = self.plain.visible(r, e);
            let is_late = match options.time_bound {
                TimeBound::Strict => visible >= time && visible > i64::MIN,
                TimeBound::Inclusive => visible > time,
            };
            let is_old = options.time_window > 0 && visible <= time.saturating_sub(options.time_window);
            self.plain.edges[r][e].dst == v && !is_late && !is_old
        };
        let mut seen: Vec<usize> = (0..self.plain.edges[r].len()).filter(sees).collect();
        seen.sort_by_key(|&e| (self.plain.visible(r, e), e));
        seen
    }

    /// The graph that a seed of time `time` sees, whose rows are in the order of their times.
    fn cut(&self, options: &TimeOptions, time: i64) -> TypedGraph {
        let schema = self.timed.schema();
        let relation = |r: usize| {
            let nodes = schema.types()[schema.relations()[r].dst].count;
            let (mut ends, mut sources, mut weights) = (vec![0], Vec::new(), Vec::new());
            for v in 0..nodes as NodeId {
                if r < self.plain.edges.len() {
                    let row = self.seen(options, r, v, time);
                    sources.extend(row.iter().map(|&e| self.plain.edges[r][e].src));
                    weights.extend(row.iter().map(|&e| weight(e, self.least)));
                }
                ends.push(sources.len() as u64);
            }
            let weights = (r < self.plain.edges.len()).then(|| weights.into());
            Graph::of_sound_edges(ends.into(), sources.into(), weights).unwrap()
        };
        TypedGraph::new(schema.clone(), (0..schema.num_relations()).map(relation).collect()).unwrap()
    }

    /// Nodes to which up to `count` traversals of the walks' path lead from `v` of type `t`.
    fn walked(
        &self,
        options: &TimeOptions,
        t: usize,
        v: NodeId,
        time: i64,
        count: usize,
    ) -> BTreeSet<NodeId> {
        let relations = self.plain.schema.relations();
        let out = relations.iter().position(|of| of.dst == t && of.src != t).unwrap();
        let back = relations.iter().position(|of| of.dst != t && of.src == t).unwrap();
        let step = |r: usize, from: &BTreeSet<NodeId>| -> BTreeSet<NodeId> {
            let of = |&v: &NodeId| self.seen(options, r, v, time);
            from.iter().flat_map(of).map(|e| self.plain.edges[r][e].src).collect()
        };
        let (mut at, mut all) = (BTreeSet::from([v]), BTreeSet::new());
        for _ in 0..count {
            at = step(back, &step(out, &at));
            all.extend(&at);
        }
        all
    }
}

/// Samplers with draws of their own at times.
fn own_rows() -> impl Iterator<Item = &'static Entry<TypedKind>> {
    TABLE.iter().filter(|row| row.make.at_times.is_some_and(|of| !of.reads_draw))
}

/// Options of the samplers; some rows of edges are longer than the fanout.
fn options(time: TimeOptions, replace: bool, iterations: usize) -> TypedOptions {
    let own = OwnOptions::default()
        .with(time)
        .with(WeightedOptions { replace, ..WeightedOptions::default() })
        .with(LaborOptions { labor_iterations: Iterations(iterations), ..LaborOptions::default() })
        .with(WalkOptions { num_walks: 3, restart_prob: 0.3 })
        .with(WalkLength { walk_length: 2 });
    TypedOptions { fanout: "2,2".parse().unwrap(), seed: 5, own, ..TypedOptions::default() }
}

fn times(time_bound: TimeBound, time_window: i64) -> TimeOptions {
    TimeOptions { time_bound, time_window, ..TimeOptions::default() }
}

/// Draws at times around seeds of several types.
fn at_times(
    row: &Entry<TypedKind>,
    with: &TypedOptions,
    graph: &TimedGraph,
    seeds: &[(usize, NodeId, i64)],
    aggregation: Aggregation,
) -> TimeBatch {
    let sampler = (row.make.at_times.unwrap().make)(with, graph).unwrap();
    let (mut nodes, mut times) = (vec![Vec::new(); 2], vec![Vec::new(); 2]);
    for &(t, v, time) in seeds {
        nodes[t].push(v);
        times[t].push(time);
    }
    let request = TimeRequest { positions: false, aggregation, ..TimeRequest::new(graph, KEY).transposed() };
    let mut workspace = TimeWorkspace::new(graph.schema());
    let seeds = || TimeSeeds::new(0, nodes.clone(), times.clone());
    let first = sampler.sample(&request, &mut workspace, seeds()).unwrap();
    // the second batch uses the memory of the first
    let lists: Vec<(&[NodeId], &[i64])> = nodes.iter().zip(&times).map(|(v, t)| (&v[..], &t[..])).collect();
    sampler.sample(&request, &mut workspace, first.recycle().refill(0, &lists)).unwrap()
}

/// Neighbourhood of a row: itself in the next hop, and its edges in their order, by relation, with
/// their weights.
#[derive(Debug, PartialEq)]
struct Around {
    node: NodeId,
    own: Option<Box<Around>>,
    edges: Vec<(usize, u32, Around)>,
}

impl Around {
    fn read(
        batch: &TypedSampled,
        schema: &Schema,
        hops: usize,
        (t, row): (usize, usize),
        hop: usize,
    ) -> Self {
        let mut around = Self { node: batch.input_nodes[t][row], own: None, edges: Vec::new() };
        if hop == hops {
            return around;
        }
        // one block may serve all hops
        let block: &TypedBlock = &batch.blocks[batch.blocks.len().saturating_sub(hop + 1)];
        around.own = Some(Box::new(Self::read(batch, schema, hops, (t, row), hop + 1)));
        for r in schema.into_type(t) {
            let slice = &block.relations[r];
            for e in slice.edges(row) {
                let weight = slice.edge_weight.get(e).map_or(0, |weight| weight.to_bits());
                let source = (schema.relations()[r].src, slice.indices[e] as usize);
                around.edges.push((r, weight, Self::read(batch, schema, hops, source, hop + 1)));
            }
        }
        around
    }
}

/// Checks that `around` holds only what a seed of time `time` sees.
fn check(graph: &Weighed, options: &TimeOptions, t: usize, around: &Around, time: i64, name: &str) {
    for (r, _, source) in &around.edges {
        let is_seen = if *r < graph.plain.edges.len() {
            let row = graph.seen(options, *r, around.node, time);
            row.iter().any(|&e| graph.plain.edges[*r][e].src == source.node)
        } else {
            graph.walked(options, t, around.node, time, 2).contains(&source.node)
        };
        assert!(is_seen, "{name}: {} reads {} by {r}, not seen at {time}", around.node, source.node);
        check(graph, options, graph.timed.schema().relations()[*r].src, source, time, name);
    }
    around.own.iter().for_each(|own| check(graph, options, t, own, time, name));
}

/// Seeds that exist at their times, distinct.
fn seeds_of(plain: &Plain, picks: &[(u32, u32, i64)]) -> Vec<(usize, NodeId, i64)> {
    let seed = |&(t, v, time): &(u32, u32, i64)| {
        let t = t as usize % 2;
        (t, v % plain.schema.types()[t].count as NodeId, time)
    };
    let exists = |&(t, v, at): &(usize, NodeId, i64)| {
        plain.node_time[t].as_ref().is_none_or(|time| time[v as usize] <= at)
    };
    picks.iter().map(seed).filter(exists).collect::<BTreeSet<_>>().into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn draws_at_one_time_are_those_on_the_graph_as_of_that_time(
        bound in prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
        window in prop::sample::select(vec![0, 3]),
        with in prop::array::uniform2(any::<bool>()),
        picks in prop::collection::vec((any::<u32>(), any::<u32>(), 0i64..1), 1..8),
        time in 0i64..10,
        (replace, iterations) in (any::<bool>(), 0usize..2),
        seed in any::<u64>(),
    ) {
        let options = options(times(bound, window), replace, iterations);
        let picks: Vec<_> = picks.into_iter().map(|(t, v, _)| (t, v, time)).collect();
        for row in own_rows() {
            let graph = Weighed::new(row.name, &options, Plain::random(2, 9, with, seed));
            let seeds = seeds_of(&graph.plain, &picks);
            let cut = graph.cut(&times(bound, window), time);
            let plain = (row.make.make)(&options, &cut).unwrap();
            for aggregation in [Aggregation::Mean, Aggregation::Sum] {
                let found = at_times(row, &options, &graph.timed, &seeds, aggregation).sampled;
                let request = TypedRequest { aggregation, ..TypedRequest::new(&cut, KEY).transposed() };
                let nodes = |of| seeds.iter().filter(|seed| seed.0 == of).map(|seed| seed.1).collect();
                let plain_seeds = TypedSeeds::new(0, vec![nodes(0), nodes(1)]);
                let mut workspace = TypedWorkspace::new(cut.schema());
                let expected = plain.sample(&request, &mut workspace, plain_seeds).unwrap();
                prop_assert_eq!(&found.input_nodes, &expected.input_nodes, "{}", row.name);
                prop_assert_eq!(found.blocks.len(), expected.blocks.len());
                for (a, b) in found.blocks.iter().zip(&expected.blocks) {
                    for (a, b) in a.relations.iter().zip(&b.relations) {
                        prop_assert_eq!(&a.indptr, &b.indptr, "{}", row.name);
                        prop_assert_eq!(&a.indices, &b.indices, "{}", row.name);
                        prop_assert_eq!(&a.edge_weight, &b.edge_weight, "{}", row.name);
                    }
                }
            }
        }
    }

    #[test]
    fn no_sampler_draws_what_its_seed_does_not_see(
        bound in prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
        window in prop::sample::select(vec![0, 3]),
        with in prop::array::uniform2(any::<bool>()),
        picks in prop::collection::vec((any::<u32>(), any::<u32>(), 0i64..9), 1..10),
        replace in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (of_time, options) = (times(bound, window), options(times(bound, window), replace, 0));
        for row in own_rows() {
            let graph = Weighed::new(row.name, &options, Plain::random(2, 9, with, seed));
            let seeds = seeds_of(&graph.plain, &picks);
            let schema = graph.timed.schema();
            let around = |seeds: &[(usize, NodeId, i64)]| -> Vec<Around> {
                let batch = at_times(row, &options, &graph.timed, seeds, Aggregation::Mean).sampled;
                let mut number = [0; 2];
                let of = |&(t, ..): &(usize, NodeId, i64)| {
                    number[t] += 1;
                    Around::read(&batch, schema, 2, (t, number[t] - 1), 0)
                };
                seeds.iter().map(of).collect()
            };
            let sampler = (row.make.at_times.unwrap().make)(&options, &graph.timed).unwrap();
            prop_assert_eq!(sampler.is_per_node(), !row.make.counts_nodes, "{}", row.name);
            for (found, seed) in around(&seeds).into_iter().zip(&seeds) {
                check(&graph, &of_time, seed.0, &found, seed.2, row.name);
                if sampler.is_per_node() {
                    let alone = around(&[*seed]);
                    prop_assert_eq!(&found, &alone[0], "{}: seed {:?}", row.name, seed);
                }
            }
        }
    }
}

#[test]
fn draws_that_a_sampler_does_not_make_are_refused_with_a_remedy() {
    let plain = || Plain::random(2, 9, [true, true], 3);
    let own = |time_draw, time_carry| TimeOptions { time_draw, time_carry, ..TimeOptions::default() };
    for row in own_rows() {
        let fault = |time: TimeOptions| {
            let options = options(time, false, 0);
            let graph = Weighed::new(row.name, &options, plain());
            (row.make.at_times.unwrap().make)(&options, &graph.timed).map(drop).unwrap_err()
        };
        let message = fault(own(TimeDraw::Last, TimeCarry::Seed));
        assert!(message.contains("leave it out, or use --sampler neighbor"), "{}: {message}", row.name);
        let message = fault(own(TimeDraw::Uniform, TimeCarry::Edge));
        assert!(message.contains("use --time-carry seed"), "{}: {message}", row.name);
        let options = options(TimeOptions::default(), false, 0);
        let graph = Weighed::new(row.name, &options, plain());
        let sampler = (row.make.at_times.unwrap().make)(&options, &graph.timed).unwrap();
        let request = TimeRequest::new(&graph.timed, KEY);
        let mut workspace = TimeWorkspace::new(graph.timed.schema());
        let seeds = TimeSeeds::new(0, vec![vec![0], vec![]], vec![vec![9], vec![]]);
        let message = sampler.sample(&request, &mut workspace, seeds).unwrap_err().to_string();
        assert!(message.contains("does not name the edges"), "{}: {message}", row.name);
    }
    let graph = plain().timed;
    let other = graph.graph().clone();
    let fewer = TypedGraph::new(Schema::new(other.schema().types().to_vec(), vec![]).unwrap(), vec![]);
    let message = graph.with_relations(fewer.unwrap()).unwrap_err().to_string();
    assert!(message.contains("add relations without edges"), "{message}");
}
