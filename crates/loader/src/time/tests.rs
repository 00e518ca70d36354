//! The sampler against a plain one that draws the neighbourhood of each seed alone.

use std::collections::BTreeMap;

use graphmill_core::{
    Buffer, NodeId, keyed,
    keyed::Stream,
    typed::{NodeType, Relation, Schema, TypedGraph},
};
use proptest::prelude::*;

mod samplers;

use super::{draw::draw_alone, *};
use crate::{BatchKey, typed::TypedFanout};

const KEY: BatchKey = BatchKey { seed: 3, epoch: 1, batch: 7 };

/// An edge with its ends, time and position.
#[derive(Clone, Debug)]
struct Edge {
    src: NodeId,
    dst: NodeId,
    time: i64,
}

/// A graph with times, as plain lists.
#[derive(Clone, Debug)]
struct Plain {
    schema: Schema,
    /// Edges of each relation in the order of the graph.
    edges: Vec<Vec<Edge>>,
    node_time: Vec<Option<Vec<i64>>>,
    /// True for relations whose edges have times of their own.
    has_times: Vec<bool>,
    timed: TimedGraph,
}

impl Plain {
    /// Random graph of `types` types with a relation between most pairs of them; times lie in
    /// `0..span`, some always existed.
    fn random(types: usize, span: i64, with: [bool; 2], seed: u64) -> Self {
        let mut stream = Stream::new(keyed::key(&[seed, 77]));
        let counts: Vec<usize> = (0..types).map(|_| 2 + stream.below(7) as usize).collect();
        let nodes = counts.iter().enumerate().map(|(t, &n)| NodeType::new(format!("t{t}"), n)).collect();
        let ends = if types == 1 { vec![(0, 0)] } else { vec![(0, 1), (1, 0), (1, 1)] };
        let relations: Vec<Relation> =
            ends.iter().enumerate().map(|(r, &(s, d))| Relation::new(s, format!("r{r}"), d)).collect();
        let schema = Schema::new(nodes, relations).unwrap();
        let time = |stream: &mut Stream| match stream.below(8) {
            0 => i64::MIN,
            _ => stream.below(span as u64) as i64,
        };
        let node_time: Vec<Option<Vec<i64>>> =
            counts.iter().map(|&n| (with[1]).then(|| (0..n).map(|_| time(&mut stream)).collect())).collect();
        let (mut edges, mut graphs, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        let of_edges: Vec<bool> = (0..ends.len()).map(|r| with[0] && r != 2).collect();
        for (r, &(src, dst)) in ends.iter().enumerate() {
            let count = stream.below(60);
            let mut list: Vec<Edge> = (0..count)
                .map(|_| Edge {
                    src: stream.below(counts[src] as u64) as NodeId,
                    dst: stream.below(counts[dst] as u64) as NodeId,
                    time: time(&mut stream),
                })
                .collect();
            // parallel edges of different times stay
            list.sort_by_key(|edge| (edge.dst, edge.src));
            let mut indptr = vec![0u64; counts[dst] + 1];
            list.iter().for_each(|edge| indptr[edge.dst as usize + 1] += 1);
            (0..counts[dst]).for_each(|v| indptr[v + 1] += indptr[v]);
            let indices: Vec<NodeId> = list.iter().map(|edge| edge.src).collect();
            graphs.push(graphmill_core::Graph::of_sound_edges(indptr.into(), indices.into(), None).unwrap());
            let has_times = of_edges[r];
            columns.push(has_times.then(|| list.iter().map(|edge| edge.time).collect::<Vec<_>>().into()));
            if !has_times {
                list.iter_mut().for_each(|edge| edge.time = i64::MIN);
            }
            edges.push(list);
        }
        let graph = TypedGraph::new(schema.clone(), graphs).unwrap();
        let of_nodes = node_time.iter().map(|time| time.clone().map(Buffer::from)).collect();
        let timed = TimedGraph::new(graph, &columns, of_nodes).unwrap();
        Self { schema, edges, node_time, has_times: of_edges, timed }
    }

    /// Time from which an edge is visible.
    fn visible(&self, r: usize, e: usize) -> i64 {
        let edge = &self.edges[r][e];
        let source = &self.node_time[self.schema.relations()[r].src];
        edge.time.max(source.as_ref().map_or(i64::MIN, |time| time[edge.src as usize]))
    }

    /// Neighbourhood of a row of type `t` from hop `hop` on, drawn alone by plain loops.
    fn tree(&self, with: &Drawing, t: usize, v: NodeId, time: i64, hop: usize) -> Tree {
        let mut tree = Tree { node: v, own: None, edges: BTreeMap::new() };
        if hop == with.hops {
            return tree;
        }
        tree.own = Some(Box::new(self.tree(with, t, v, time, hop + 1)));
        for r in self.schema.into_type(t) {
            let fanout = with.fanout[r][hop];
            let mut row: Vec<usize> =
                (0..self.edges[r].len()).filter(|&e| self.edges[r][e].dst == v).collect();
            row.sort_by_key(|&e| (self.visible(r, e), e));
            let times: Vec<i64> = row.iter().map(|&e| self.visible(r, e)).collect();
            let admits = |te: i64| {
                let in_window =
                    with.options.time_window == 0 || te > time.saturating_sub(with.options.time_window);
                in_window
                    && match with.options.time_bound {
                        TimeBound::Strict => te < time || te == i64::MIN,
                        TimeBound::Inclusive => te <= time,
                    }
            };
            let places: Vec<u32> =
                (0..row.len() as u32).filter(|&place| admits(times[place as usize])).collect();
            let (Some(&first), Some(&last)) = (places.first(), places.last()) else { continue };
            assert_eq!(places.len() as u32, last - first + 1, "the admitted edges are a range");
            let seed = keyed::key(&[KEY.seed, 0x0074_696d_6564, r as u64]);
            let key = BatchKey { seed, ..KEY }.hop(hop);
            let mut stream = Stream::new(keyed::key(&[key, v.into(), first.into(), u64::from(last) + 1]));
            let mut out = vec![0; places.len().min(fanout)];
            let src = self.schema.relations()[r].src;
            let known = self.has_times[r] || self.node_time[src].is_some();
            let given = if known { &times[..] } else { &[] };
            draw_alone(&with.options, given, first..last + 1, &mut stream, &mut out);
            for place in out {
                let e = row[place as usize];
                let at = match with.options.time_carry {
                    TimeCarry::Seed => time,
                    TimeCarry::Edge => times[place as usize],
                };
                tree.edges.insert((r, e as u64), self.tree(with, src, self.edges[r][e].src, at, hop + 1));
            }
        }
        tree
    }
}

/// Fanout and options of a batch.
struct Drawing {
    fanout: Vec<Vec<usize>>,
    hops: usize,
    options: TimeOptions,
}

/// Neighbourhood of a row: itself in the next hop, and its edges by relation and position.
#[derive(Debug, PartialEq)]
struct Tree {
    node: NodeId,
    own: Option<Box<Tree>>,
    edges: BTreeMap<(usize, u64), Tree>,
}

impl Tree {
    /// Reads the neighbourhood of row `row` of type `t` from the blocks of a batch.
    fn read(batch: &TimeBatch, schema: &Schema, t: usize, row: usize, hop: usize) -> Self {
        let mut tree = Self { node: batch.sampled.input_nodes[t][row], own: None, edges: BTreeMap::new() };
        let Some(at) = batch.sampled.blocks.len().checked_sub(hop + 1) else { return tree };
        tree.own = Some(Box::new(Self::read(batch, schema, t, row, hop + 1)));
        for r in schema.into_type(t) {
            let block = &batch.sampled.blocks[at].relations[r];
            for e in block.edges(row) {
                let source = block.indices[e] as usize;
                let below = Self::read(batch, schema, schema.relations()[r].src, source, hop + 1);
                assert!(tree.edges.insert((r, batch.edges[at][r][e]), below).is_none(), "an edge twice");
            }
        }
        tree
    }

    /// Calls `see` with every edge.
    fn each(&self, see: &mut dyn FnMut(usize, u64, &Tree)) {
        self.edges.iter().for_each(|(&(r, e), below)| see(r, e, below));
        self.own.iter().for_each(|own| own.each(see));
        self.edges.values().for_each(|below| below.each(see));
    }
}

fn sampled(
    sampler: &TimeSampler,
    plain: &Plain,
    seeds: &[(usize, NodeId, i64)],
    threads: usize,
) -> TimeBatch {
    let types = plain.schema.num_types();
    let (mut nodes, mut times) = (vec![Vec::new(); types], vec![Vec::new(); types]);
    for &(t, v, time) in seeds {
        nodes[t].push(v);
        times[t].push(time);
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut workspace = TimeWorkspace::new(&plain.schema);
    let request = TimeRequest::new(&plain.timed, KEY).transposed();
    let memory = pool.install(|| {
        let seeds = TimeSeeds::new(0, nodes.clone(), times.clone());
        sampler.sample(&request, &mut workspace, seeds).unwrap().recycle()
    });
    // the second batch uses the memory of the first
    let lists: Vec<(&[NodeId], &[i64])> = nodes.iter().zip(&times).map(|(v, t)| (&v[..], &t[..])).collect();
    pool.install(|| sampler.sample(&request, &mut workspace, memory.refill(0, &lists)).unwrap())
}

fn all_options() -> impl Strategy<Value = TimeOptions> {
    (
        prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
        prop::sample::select(vec![TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency]),
        prop::sample::select(vec![0, 3, 100]),
        prop::sample::select(vec![TimeCarry::Seed, TimeCarry::Edge]),
    )
        .prop_map(|(time_bound, time_draw, time_window, time_carry)| TimeOptions {
            time_bound,
            time_draw,
            time_window,
            time_half_life: 2.5,
            time_carry,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_seed_has_the_neighbourhood_that_it_has_alone(
        options in all_options(),
        fanout in prop::sample::select(vec!["2", "-1,1", "1,2", "2,0,2", "3,2,2"]),
        types in 1usize..3,
        with in prop::array::uniform2(any::<bool>()),
        picks in prop::collection::vec((any::<u32>(), any::<u32>(), 0i64..9), 1..12),
        shares in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let plain = Plain::random(types, 9, with, seed);
        let fanout: TypedFanout = fanout.parse().unwrap();
        let sampler = TimeSampler::new(&plain.schema, &fanout, options).unwrap();
        let sampler = if shares { sampler } else { sampler.without_sharing() };
        let with = Drawing {
            fanout: fanout.of_relations(&plain.schema).unwrap(),
            hops: fanout.all.len(),
            options,
        };
        let mut seeds: Vec<(usize, NodeId, i64)> = picks
            .iter()
            .map(|&(t, v, time)| {
                let t = t as usize % types;
                (t, v % plain.schema.types()[t].count as NodeId, time)
            })
            .filter(|&(t, v, at)| plain.node_time[t].as_ref().is_none_or(|time| time[v as usize] <= at))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        let batch = sampled(&sampler, &plain, &seeds, 1);
        let mut number = vec![0; types];
        for &(t, v, time) in &seeds {
            let tree = Tree::read(&batch, &plain.schema, t, number[t], 0);
            number[t] += 1;
            // no sampled edge and no node is newer than its seed
            tree.each(&mut |r, e, _| {
                let edge = &plain.edges[r][e as usize];
                let source = &plain.node_time[plain.schema.relations()[r].src];
                let times = [edge.time, source.as_ref().map_or(i64::MIN, |t| t[edge.src as usize])];
                for te in times {
                    let fits = match options.time_bound {
                        TimeBound::Strict => te < time || te == i64::MIN,
                        TimeBound::Inclusive => te <= time,
                    };
                    assert!(fits, "an edge or node of time {te} for a seed of time {time}");
                }
            });
            prop_assert_eq!(tree, plain.tree(&with, t, v, time, 0));
        }
        // the blocks fit together
        for (l, block) in batch.sampled.blocks.iter().enumerate() {
            for (t, &rows) in block.num_src.iter().enumerate() {
                let upper = batch.sampled.blocks[..l].last();
                prop_assert_eq!(rows, upper.map_or(batch.sampled.input_nodes[t].len(), |b| b.num_dst[t]));
            }
            prop_assert!(block.is_transposed());
        }
        for (t, times) in batch.row_times.iter().enumerate() {
            prop_assert_eq!(times.len(), batch.sampled.blocks[0].num_dst[t]);
        }
    }

    #[test]
    fn rows_are_shared_if_and_only_if_their_times_allow_it(
        seed in any::<u64>(),
        with in prop::array::uniform2(any::<bool>()),
        bound in prop::sample::select(vec![TimeBound::Strict, TimeBound::Inclusive]),
    ) {
        let plain = Plain::random(1, 5, with, seed);
        let options = TimeOptions { time_bound: bound, ..TimeOptions::default() };
        let count = plain.schema.types()[0].count as NodeId;
        let seeds: Vec<(usize, NodeId, i64)> = (0..count)
            .flat_map(|v| [(0, v, 9), (0, v, 4), (0, v, 2)])
            .filter(|&(_, v, at)| plain.node_time[0].as_ref().is_none_or(|time| time[v as usize] <= at))
            .collect();
        let fanout = "-1,-1".parse().unwrap();
        let sampler = TimeSampler::new(&plain.schema, &fanout, options).unwrap();
        let batch = sampled(&sampler, &plain, &seeds, 1);
        let admitted = |v: NodeId, time: i64| -> Vec<usize> {
            let of = |&e: &usize| plain.edges[0][e].dst == v && bound.admits(plain.visible(0, e), time);
            (0..plain.edges[0].len()).filter(of).collect()
        };
        // rows that a hop found, after the seeds: distinct by node and admitted edges, also from
        // the seeds
        let rows = &batch.row_times[0];
        let key = |row: usize| {
            let v = batch.sampled.input_nodes[0][row];
            (v, admitted(v, rows[row]))
        };
        let mut seen: Vec<_> = (0..seeds.len()).map(key).collect();
        for row in seeds.len()..rows.len() {
            prop_assert!(!seen.contains(&key(row)), "row {row} repeats another");
            seen.push(key(row));
        }
        // leaves are distinct nodes
        let leaves = &batch.sampled.input_nodes[0][rows.len()..];
        prop_assert!(leaves.iter().all(|v| !batch.sampled.input_nodes[0][..rows.len()].contains(v)));
    }
}

/// A random graph with enough edges for several tasks.
fn large(edges: u64, seed: u64) -> TimedGraph {
    let mut stream = Stream::new(keyed::key(&[seed]));
    let nodes = 3000u64;
    let mut list: Vec<(NodeId, NodeId)> = (0..edges)
        .map(|_| (stream.below(1 + stream.clone().below(nodes)) as NodeId, stream.below(nodes) as NodeId))
        .collect();
    list.sort_unstable();
    let mut indptr = vec![0u64; nodes as usize + 1];
    list.iter().for_each(|edge| indptr[edge.0 as usize + 1] += 1);
    (0..nodes as usize).for_each(|v| indptr[v + 1] += indptr[v]);
    let indices: Vec<NodeId> = list.iter().map(|edge| edge.1).collect();
    let graph = graphmill_core::Graph::new(indptr.into(), indices.into()).unwrap();
    let times: Vec<i64> = (0..edges).map(|_| stream.below(1000) as i64).collect();
    TimedGraph::of_one_type(graph, Some(times.into()), None).unwrap()
}

#[test]
fn batches_have_the_same_bits_for_any_number_of_threads() {
    let timed = large(60_000, 1);
    for (time_draw, window) in [(TimeDraw::Uniform, 0), (TimeDraw::Last, 0), (TimeDraw::Recency, 300)] {
        let options =
            TimeOptions { time_draw, time_window: window, time_half_life: 50.0, ..TimeOptions::default() };
        let sampler = TimeSampler::new(timed.schema(), &"5,5".parse().unwrap(), options).unwrap();
        let seeds: Vec<NodeId> = (0..1500).collect();
        let times: Vec<i64> = (0..1500).map(|v| 400 + v % 600).collect();
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let request = TimeRequest::new(&timed, KEY).transposed();
            let seeds = TimeSeeds::of_nodes(0, seeds.clone(), times.clone());
            let mut workspace = TimeWorkspace::new(timed.schema());
            pool.install(|| sampler.sample(&request, &mut workspace, seeds)).unwrap().into_one_type().unwrap()
        };
        let (one, three) = (of(1), of(3));
        assert_eq!(one.sampled.input_nodes, three.sampled.input_nodes);
        assert_eq!((&one.edges, &one.row_times), (&three.edges, &three.row_times));
        for (a, b) in one.sampled.blocks.iter().zip(&three.sampled.blocks) {
            assert_eq!((&a.indptr, &a.indices, a.num_src), (&b.indptr, &b.indices, b.num_src));
            assert_eq!(
                (&a.transposed.indptr, &a.transposed.edge),
                (&b.transposed.indptr, &b.transposed.edge)
            );
        }
        // another batch draws others, unless the last edges are taken
        let request = TimeRequest::new(&timed, BatchKey { batch: 8, ..KEY });
        let seeds = TimeSeeds::of_nodes(0, seeds.clone(), times.clone());
        let other = sampler.sample(&request, &mut TimeWorkspace::new(timed.schema()), seeds).unwrap();
        assert_eq!(other.edges.concat() == one.edges, time_draw == TimeDraw::Last);
    }
}

#[test]
fn wrong_seeds_and_options_are_rejected_with_a_reason() {
    let graph = graphmill_core::Graph::new(vec![0, 1, 1].into(), vec![1].into()).unwrap();
    let timed = TimedGraph::of_one_type(graph, Some(vec![5].into()), Some(vec![0, 7].into())).unwrap();
    let sampler = TimeSampler::new(timed.schema(), &"1".parse().unwrap(), TimeOptions::default()).unwrap();
    let fault = |nodes: Vec<Vec<NodeId>>, times: Vec<Vec<i64>>| {
        let request = TimeRequest::new(&timed, KEY);
        let seeds = TimeSeeds::new(4, nodes, times);
        let mut workspace = TimeWorkspace::new(timed.schema());
        sampler.sample(&request, &mut workspace, seeds).unwrap_err().to_string()
    };
    assert!(fault(vec![], vec![]).contains("0 lists of seeds and 0 of times for 1 node types"));
    assert!(fault(vec![vec![0]], vec![vec![]]).contains("1 seeds of type 'node' but 0 times"));
    assert!(fault(vec![vec![2]], vec![vec![1]]).contains("seed 2 of type 'node': there are 2 nodes"));
    let early = fault(vec![vec![0, 1]], vec![vec![1, 6]]);
    assert!(
        early.contains("seed 1 of type 'node' has time 6, but the node exists from time 7 on"),
        "{early}"
    );
    let twice = fault(vec![vec![0, 0, 0]], vec![vec![1, 2, 1]]);
    assert!(twice.contains("seed 0 of type 'node' is listed twice at time 1"), "{twice}");
    let refused = |options: TimeOptions| {
        TimeSampler::new(timed.schema(), &"1".parse().unwrap(), options).err().unwrap()
    };
    let default = TimeOptions::default();
    assert!(refused(TimeOptions { time_window: -1, ..default }).contains("time_window: '-1'"));
    assert!(refused(TimeOptions { time_half_life: 0.0, ..default }).contains("time_half_life: '0'"));
}

#[test]
fn edges_of_the_seeds_own_time_are_admitted_by_the_inclusive_bound_alone() {
    let graph = graphmill_core::Graph::new(vec![0, 3, 3, 3].into(), vec![1, 2, 2].into()).unwrap();
    let times = vec![5, 6, i64::MIN];
    let timed = TimedGraph::of_one_type(graph, Some(times.into()), None).unwrap();
    let edges = |time_bound, time: i64, time_window| {
        let options = TimeOptions { time_bound, time_window, ..TimeOptions::default() };
        let sampler = TimeSampler::new(timed.schema(), &"-1".parse().unwrap(), options).unwrap();
        let seeds = TimeSeeds::of_nodes(0, vec![0], vec![time]);
        let request = TimeRequest::new(&timed, KEY);
        let mut workspace = TimeWorkspace::new(timed.schema());
        sampler.sample(&request, &mut workspace, seeds).unwrap().edges[0][0].clone()
    };
    assert_eq!(edges(TimeBound::Strict, 5, 0), [2]);
    assert_eq!(edges(TimeBound::Inclusive, 5, 0), [2, 0]);
    assert_eq!(edges(TimeBound::Strict, i64::MIN, 0), [2]);
    assert_eq!(edges(TimeBound::Strict, 7, 2), [1], "the edge that always existed is older than a window");
    assert_eq!(edges(TimeBound::Inclusive, 7, 2), [1]);
    assert_eq!(edges(TimeBound::Inclusive, 7, 3), [0, 1]);
}
