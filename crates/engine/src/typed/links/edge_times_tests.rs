//! Edges that are learned and ranked as of their own times, against a search of the graph.

use std::collections::BTreeSet;

use graphmill_core::NodeId;
use graphmill_data::{TypedBuilder, TypedDataset, typed::EdgeType};
use graphmill_loader::{
    BatchKey,
    time::{TimeDraw, TimeOptions},
    typed::{TypedSampler, TypedSeeds, TypedWorkspace},
};
use proptest::prelude::*;

use super::{
    super::{build, stages::SeedSource},
    batch::LinkSeeds,
    task::TypedLinks,
};
use crate::{
    TrainConfig,
    config::link::{LinkOptions, LinkTimes},
};

/// Nodes of each type.
const NODES: u32 = 7;
/// Candidates that each edge is ranked among.
const DRAWN: usize = 3;

/// An edge: source, destination and time.
type Event = (u32, u32, i64);

/// Kinds of graphs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Users and items, with a type of reverse edges.
    Bipartite,
    /// One type, with edges in one direction.
    Directed,
    /// One type, with edges in both directions.
    Undirected,
}

impl Kind {
    /// Name of the edges, as `--task` has it.
    fn task(self) -> &'static str {
        if self == Self::Bipartite { "user:buys:item" } else { "person:knows:person" }
    }

    /// Edges without those of a node to itself and from before their ends exist.
    fn events(self, events: Vec<Event>, exists: &[i64]) -> Vec<Event> {
        let is_there = |v: u32, time: i64| exists[v as usize] <= time;
        let is_sound = |&(u, v, time): &Event| match self {
            Self::Bipartite => is_there(v, time),
            _ => u != v && is_there(u, time) && is_there(v, time),
        };
        events.into_iter().filter(is_sound).collect()
    }

    /// The edge as a set of edges has it.
    fn canonical(self, (u, v, time): Event) -> Event {
        if self == Self::Undirected { (u.min(v), u.max(v), time) } else { (u, v, time) }
    }

    fn data(self, events: &[Event], exists: &[i64]) -> TypedDataset {
        let mut builder = TypedBuilder::new("stream");
        let (mut from, mut to): (Vec<u32>, Vec<u32>) = events.iter().map(|edge| (edge.0, edge.1)).unzip();
        let mut times: Vec<i64> = events.iter().map(|edge| edge.2).collect();
        let features = vec![0.5f32; NODES as usize];
        if self == Self::Bipartite {
            builder.node_type("user", NODES as usize).features(1, features.clone());
            builder.node_type("item", NODES as usize).features(1, features).time(exists.to_vec());
            let edges = builder.edge_type("user", "buys", "item");
            edges.edges(from, to).time(times).with_reverse("bought-by");
            return builder.build().unwrap();
        }
        builder.node_type("person", NODES as usize).features(1, features).time(exists.to_vec());
        if self == Self::Undirected {
            let sources = from.clone();
            from.extend_from_slice(&to);
            to.extend(sources);
            times.extend_from_within(..);
        }
        let edges = builder.edge_type("person", "knows", "person").edges(from, to).time(times);
        if self == Self::Undirected {
            edges.reverse_of("knows");
        }
        builder.build().unwrap()
    }
}

/// A graph whose edges are learned.
struct Case {
    kind: Kind,
    data: TypedDataset,
    of: TypedLinks,
    exists: Vec<i64>,
    /// All edges.
    events: BTreeSet<Event>,
}

impl Case {
    /// Ends of a row of the table: the node.
    fn node(&self, row: NodeId) -> NodeId {
        self.of.edges.node(row).1
    }

    /// Edges of a part with their times.
    fn part(&self, part: usize) -> Vec<Event> {
        let times = &self.of.edges.times.as_ref().unwrap().of_parts[part];
        let edges = self.of.edges.parts[part].iter().zip(times);
        edges.map(|(&[u, _, v], &time)| (self.node(u), self.node(v), time)).collect()
    }

    /// Returns true if `node` is a negative of the source `u` at `time`.
    fn is_negative(&self, u: u32, node: u32, time: i64) -> bool {
        let is_itself = self.kind != Kind::Bipartite && node == u;
        let exists = self.exists[node as usize] <= time;
        exists && !is_itself && !self.events.contains(&self.kind.canonical((u, node, time)))
    }

    /// Checks that every edge is in one part, and that no part is later than the next.
    fn check_split(&self) -> Result<(), TestCaseError> {
        let parts = [0, 1, 2].map(|part| self.part(part));
        let found: Vec<Event> = parts.iter().flatten().map(|&edge| self.kind.canonical(edge)).collect();
        let distinct: BTreeSet<Event> = found.iter().copied().collect();
        prop_assert_eq!(distinct.len(), found.len(), "an edge is in one part");
        let left_out = self.of.edges.times.as_ref().unwrap().left_out;
        prop_assert_eq!(found.len() + left_out, self.events.len());
        for &(u, v, time) in self.events.difference(&distinct) {
            let ends = if self.kind == Kind::Undirected { vec![u, v] } else { vec![u] };
            let has = |&u: &u32| (0..NODES).any(|node| self.is_negative(u, node, time));
            prop_assert!(!ends.iter().all(has), "an edge without negatives is left out");
        }
        let ends: Vec<(i64, i64)> = parts
            .iter()
            .map(|part| {
                let times = part.iter().map(|edge| edge.2);
                (times.clone().min().unwrap(), times.max().unwrap())
            })
            .collect();
        prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", ends);
        Ok(())
    }

    /// Checks the pairs of a batch of the training edges `part`.
    fn check_pairs(&self, seeds: &TypedSeeds, part: &[NodeId]) -> Result<(), TestCaseError> {
        let links = seeds.links.as_deref().unwrap();
        let seed: Vec<(u32, i64)> = seeds
            .nodes
            .iter()
            .zip(&seeds.times)
            .flat_map(|(nodes, times)| nodes.iter().copied().zip(times.iter().copied()))
            .collect();
        let (learned, each) = (self.part(0), links.num_negatives());
        prop_assert!(each > 0);
        for (i, &number) in part.iter().enumerate() {
            let (u, v, time) = learned[number as usize];
            let first = part.len() + i * each;
            for pair in [i].into_iter().chain(first..first + each) {
                prop_assert_eq!(seed[links.source[pair] as usize], (u, time));
                let (other, at) = seed[links.destination[pair] as usize];
                prop_assert_eq!(at, time);
                let fits = if pair == i { other == v } else { self.is_negative(u, other, time) };
                prop_assert!(fits, "{u} -> {other} at {time}");
            }
        }
        Ok(())
    }

    /// Checks that a batch reads no edge that is not earlier than its seed, so none of its own.
    fn check_edges(
        &self,
        sampler: &dyn TypedSampler,
        key: BatchKey,
        seeds: TypedSeeds,
    ) -> Result<(), TestCaseError> {
        let times = seeds.times.clone();
        let latest = times.iter().flatten().copied().max().unwrap();
        let mut workspace = TypedWorkspace::new(self.of.inputs.graph.schema());
        let mut request = self.of.inputs.request(key);
        request.positions = true;
        let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
        prop_assert!(batch.seeds.links.is_some(), "pairs are kept");
        let top = batch.blocks.len() - 1;
        for (l, block) in batch.blocks.iter().enumerate() {
            let schema = self.of.inputs.graph.schema();
            for ((r, slice), relation) in block.relations.iter().enumerate().zip(schema.relations()) {
                let stored = self.data.edges[r].time.as_ref().unwrap();
                let of_seed = |v: usize| times[relation.dst][v];
                for v in 0..slice.num_dst {
                    let time = if l == top { of_seed(v) } else { latest };
                    for e in slice.edges(v) {
                        let read = stored[block.positions[r][e] as usize];
                        prop_assert!(read < time, "{read} at {time}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the drawn candidates of a part, of each edge or of the list of a source at a time.
    fn check_drawn(&self, part: usize, of_lists: bool) -> Result<(), TestCaseError> {
        let queries = self.of.edges.drawn_queries((part, of_lists), 0, (DRAWN, 5));
        let targets: usize = queries.iter().map(|query| query.targets.len()).sum();
        let edges = self.of.edges.parts[part].len();
        let is_whole = if of_lists { targets <= edges } else { [queries.len(), targets] == [edges; 2] };
        prop_assert!(is_whole, "{} queries of {targets} targets", queries.len());
        for query in queries {
            let u = self.node(query.source);
            let others: BTreeSet<u32> = query.others.iter().map(|&row| self.node(row)).collect();
            prop_assert_eq!(others.len(), query.others.len(), "candidates are distinct");
            prop_assert!(others.iter().all(|&node| self.is_negative(u, node, query.time)));
            let left = (0..NODES).filter(|&node| self.is_negative(u, node, query.time)).count();
            prop_assert_eq!(others.len(), left.min(DRAWN));
        }
        Ok(())
    }
}

fn config(kind: Kind) -> TrainConfig {
    let fanout = graphmill_loader::Fanout(vec![3, 2]);
    let mut config = TrainConfig { task: kind.task().into(), hidden: 4, fanout, ..TrainConfig::default() };
    config.own.set(LinkOptions {
        num_negatives: 2,
        link_times: LinkTimes::Edges,
        eval_negatives: DRAWN,
        split_edges: "time:60,20,20".parse().unwrap(),
        ..LinkOptions::default()
    });
    config
}

proptest! {
    #[test]
    fn no_sampled_edge_is_as_new_as_its_edge_and_negatives_exist(
        events in prop::collection::vec((0..NODES, 0..NODES, 0i64..20), 8..40),
        exists in prop::collection::vec(0i64..6, NODES as usize),
        kind in prop::sample::select(vec![Kind::Bipartite, Kind::Directed, Kind::Undirected]),
        draw in prop::sample::select(vec![TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency]),
        batch_size in 1usize..4,
    ) {
        let events = kind.events(events, &exists);
        let times: BTreeSet<i64> = events.iter().map(|edge| edge.2).collect();
        if times.len() < 3 {
            return Ok(());
        }
        let data = kind.data(&events, &exists);
        // each edge of a directed graph may happen to have a reverse of the same time
        let both = events.iter().all(|&(u, v, time)| events.contains(&(v, u, time)));
        if kind == Kind::Directed && both {
            return Ok(());
        }
        let mut config = config(kind);
        config.own.set(TimeOptions { time_draw: draw, ..TimeOptions::default() });
        let of = match TypedLinks::new(&config, &data) {
            Ok(of) => of,
            Err(error) => {
                prop_assert!(error.to_string().contains("no edge has a destination"), "{error}");
                return Ok(());
            }
        };
        let events = events.into_iter().map(|edge| kind.canonical(edge)).collect();
        let case = Case { kind, data, of, exists, events };
        case.check_split()?;
        for of_lists in [false, true] {
            case.check_drawn(1, of_lists)?;
        }
        for of_lists in [false, true] {
            case.check_drawn(2, of_lists)?;
        }
        let of = &case.of;
        let sampler = build::sampler(&config, &of.inputs).unwrap();
        let whole = of.inputs.times.as_ref().unwrap().full_sampler(&config, &*sampler).unwrap();
        let source = LinkSeeds::new(&config, of).unwrap();
        let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
        for (number, part) in (0..).zip(numbers.chunks(batch_size)) {
            let key = BatchKey { seed: 3, epoch: 1, batch: number };
            let seeds = source.fill(key, part, TypedSeeds::default()).unwrap();
            case.check_pairs(&seeds, part)?;
            case.check_edges(&*sampler, key, seeds)?;
            let seeds = source.fill(key, part, TypedSeeds::default()).unwrap();
            case.check_edges(&*whole, key, seeds)?;
        }
    }
}

#[test]
fn rows_of_a_task_that_are_edges_have_their_times() {
    let events: Vec<Event> = (0..20).map(|i| (i % 5, (i * 3 + 1) % NODES, i64::from(i))).collect();
    // edges that train, validate and test, by their numbers in order of time
    let found = |parts: [std::ops::Range<u32>; 3]| {
        let (from, to): (Vec<u32>, Vec<u32>) = events.iter().map(|edge| (edge.0, edge.1)).unzip();
        let mut builder = TypedBuilder::new("shop");
        for name in ["user", "item"] {
            builder.node_type(name, NODES as usize).features(1, vec![0.5f32; NODES as usize]);
        }
        let edges = builder.edge_type("user", "buys", "item").edges(from, to);
        edges.time(events.iter().map(|edge| edge.2).collect::<Vec<i64>>());
        let [train, valid, test] = parts.map(|rows| rows.collect::<Vec<u32>>());
        builder.task("next").on_edges(EdgeType::new("user", "buys", "item")).split(train, valid, test);
        let config = TrainConfig { task: "next".into(), ..config(Kind::Bipartite) };
        TypedLinks::new(&config, &builder.build().unwrap()).unwrap()
    };
    let of = found([0..12, 12..16, 16..20]);
    let times = &of.edges.times.as_ref().unwrap().of_parts;
    for (part, (times, rows)) in times.iter().zip([0..12, 12..16, 16..20]).enumerate() {
        let edges = of.edges.parts[part].iter().zip(times);
        let mut all: Vec<Event> =
            edges.map(|(edge, &time)| (of.edges.node(edge[0]).1, of.edges.node(edge[2]).1, time)).collect();
        all.sort_unstable_by_key(|edge| edge.2);
        assert_eq!(all, events[rows]);
    }
    let is_noted = |of: &TypedLinks| of.notes.iter().any(|note| note.contains("edges that train are later"));
    assert!(!is_noted(&of) && is_noted(&found([8..20, 0..4, 4..8])));
}

#[test]
fn options_that_show_edges_to_their_own_predictions_are_refused() {
    let events: Vec<Event> = (0..20).map(|i| (i % 5, (i * 3 + 1) % NODES, i64::from(i))).collect();
    let data = Kind::Bipartite.data(&events, &[0; NODES as usize]);
    let message = |change: &dyn Fn(&mut LinkOptions), bound: TimeOptions| {
        let mut config = config(Kind::Bipartite);
        change(config.own.get_mut());
        config.own.set(bound);
        let seeds = |of: TypedLinks| LinkSeeds::new(&config, &of).map(drop);
        TypedLinks::new(&config, &data).and_then(seeds).unwrap_err().to_string()
    };
    let strict = TimeOptions::default();
    let inclusive = TimeOptions { time_bound: graphmill_loader::time::TimeBound::Inclusive, ..strict };
    assert!(message(&|_| {}, inclusive).contains("use --time-bound strict"));
    assert!(message(&|of| of.disjoint = 0.5, strict).contains("--disjoint"));
    assert!(message(&|of| of.negatives = "in-batch".into(), strict).contains("use --negatives uniform"));
    let at_random = |of: &mut LinkOptions| of.split_edges = "60,20,20".parse().unwrap();
    assert!(message(&at_random, strict).contains("use --split-edges time:60,20,20"));
    let mut untimed = config(Kind::Bipartite);
    untimed.own.get_mut::<LinkOptions>().link_times = LinkTimes::Rows;
    let error = TypedLinks::new(&untimed, &data).map(drop).unwrap_err().to_string();
    assert!(error.contains("--eval-negatives: edges without times"), "{error}");
    let mut reverse = config(Kind::Bipartite);
    reverse.task = "user:buys:item,item:bought-by:user".into();
    let error = TypedLinks::new(&reverse, &data).map(drop).unwrap_err().to_string();
    assert!(error.contains("choose one with --task"), "{error}");
}
