//! Batches of links against the edges of the dataset.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_core::{NodeId, keyed::Stream, progress::Quiet};
use graphmill_data::{
    TypedBuilder, TypedDataset,
    partition::PartitionBook,
    typed::{
        EdgeType, Seeds, TaskOn,
        import::{TypedOptions, import},
    },
};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey,
    hotness::Visits,
    sampler::WeightedOptions,
    typed::{TABLE as SAMPLERS, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
};
use proptest::prelude::*;

use super::{
    super::{
        batches::{Learned, RunBatches},
        build,
        rounds::RoundLearner,
        stages::SeedSource,
        tables::borrowed,
        visits::TypedVisits,
        wrapped::WrappedSampler,
    },
    batch::LinkSeeds,
    learner::LinkLearner,
    shares::RankSeeds,
    task::TypedLinks,
    trainer::train_alone,
};
use crate::{
    RunContext, TrainConfig,
    config::link::{ExcludedFromMessages, LinkOptions, ReplacedEnds},
    options::key,
};

/// Two types with a relation and its reverse, an undirected relation, and tasks on the first and
/// the third; every pair of a task has a part by its number.
fn data(buys: &[(u32, u32)], knows: &[(u32, u32)]) -> TypedDataset {
    let mut builder = TypedBuilder::new("shop");
    builder.node_type("item", 6).features(1, vec![0.5f32; 6]);
    builder.node_type("user", 8);
    let ends = |pairs: &[(u32, u32)]| pairs.iter().copied().unzip::<u32, u32, Vec<_>, Vec<_>>();
    let (from, to) = ends(buys);
    // features that name the ends
    let named = |from: &[u32], to: &[u32]| {
        from.iter().zip(to).map(|(u, v)| (100 * u + v) as f32).collect::<Vec<f32>>()
    };
    let features = named(&from, &to);
    builder.edge_type("user", "buys", "item").edges(from, to).features(1, features).with_reverse("bought-by");
    let (from, to) = ends(knows);
    let both = [[&from[..], &to[..]].concat(), [&to[..], &from[..]].concat()];
    let [sources, destinations] = both;
    let features = named(&sources, &destinations);
    builder
        .edge_type("user", "knows", "user")
        .edges(sources, destinations)
        .features(1, features)
        .reverse_of("knows");
    for (name, on, pairs) in [
        ("buys", EdgeType::new("user", "buys", "item"), buys),
        ("knows", EdgeType::new("user", "knows", "user"), knows),
    ] {
        let part = |keep: &dyn Fn(usize) -> bool| {
            let kept = pairs.iter().enumerate().filter(|(i, _)| keep(i % 4));
            kept.flat_map(|(_, &(u, v))| [u, v]).collect::<Vec<u32>>()
        };
        let parts = [part(&|i| i > 1), part(&|i| i == 0), part(&|i| i == 1)];
        builder.task(name).on_edges(on).positives(parts);
    }
    builder.build().unwrap()
}

/// Edges of a batch by edge type, source and destination.
fn edges_of(batch: &TypedSampled, of: &TypedLinks) -> BTreeSet<(usize, NodeId, NodeId)> {
    let schema = of.inputs.graph.schema();
    let mut found = BTreeSet::new();
    for block in &batch.blocks {
        for ((r, slice), relation) in block.relations.iter().enumerate().zip(schema.relations()) {
            for v in 0..slice.num_dst {
                let sources = slice.indices[slice.edges(v)].iter();
                let [sources_of, destinations] = [relation.src, relation.dst].map(|t| &batch.input_nodes[t]);
                found.extend(sources.map(|&u| (r, sources_of[u as usize], destinations[v])));
            }
        }
    }
    found
}

/// Checks that the feature rows of a batch are those of its edges in `data`.
fn check_edge_rows(data: &TypedDataset, batch: TypedSampled, of: &TypedLinks) -> Result<(), TestCaseError> {
    let relations = of.inputs.graph.schema().relations();
    let batch = batch.extract(&borrowed(&of.inputs.host_tables().unwrap())).unwrap();
    let batch = batch.with_edges(&borrowed(&of.inputs.edges)).unwrap();
    for (block, rows) in batch.sampled.blocks.iter().zip(&batch.edges) {
        for (r, (slice, relation)) in block.relations.iter().zip(relations).enumerate() {
            let is_reverse = data.edges[r].edge_type.name == "bought-by";
            let [sources, destinations] = [relation.src, relation.dst].map(|t| &batch.sampled.input_nodes[t]);
            for (v, &destination) in destinations.iter().enumerate().take(slice.num_dst) {
                for e in slice.edges(v) {
                    let ends = (sources[slice.indices[e] as usize], destination);
                    let (u, v) = if is_reverse { (ends.1, ends.0) } else { ends };
                    prop_assert_eq!(rows[r].view().host()[e], (100 * u + v) as f32);
                }
            }
        }
    }
    Ok(())
}

/// Edges that a part of the tasks must not show: with their reverses, by edge type.
fn hidden(data: &TypedDataset, of: &TypedLinks, parts: &[usize]) -> BTreeSet<(usize, NodeId, NodeId)> {
    let mut hidden = BTreeSet::new();
    for (task, held) in data.tasks.iter().zip(&of.held) {
        let (TaskOn::Edges(_), Some(Seeds::Pairs(pairs))) = (&task.on, &task.seeds) else { continue };
        for &part in parts {
            for &row in &task.split.parts()[part].1[..] {
                let [u, v] = [0, 1].map(|end| pairs[2 * row as usize + end]);
                hidden.insert((held.forward, u, v));
                hidden.extend(held.reverse.map(|reverse| (reverse, v, u)));
            }
        }
    }
    hidden
}

/// Returns true if edges of relations that the sampler added are paths of at most three traversals
/// over items or users, without edges of `hidden`.
fn walked(
    data: &TypedDataset,
    of: &TypedLinks,
    read: &BTreeSet<(usize, NodeId, NodeId)>,
    hidden: &[&BTreeSet<(usize, NodeId, NodeId)>],
) -> bool {
    let [buys, bought] = [0, 1].map(|r| {
        let stored = &data.edges[r];
        move |v: &NodeId| {
            let v = *v;
            let row = stored.indices[stored.row(v)].iter().copied();
            row.filter(move |&u| hidden.iter().all(|set| !set.contains(&(r, u, v)))).collect::<Vec<_>>()
        }
    });
    read.iter().filter(|edge| edge.0 >= data.edges.len()).all(|&(r, u, v)| {
        let is_of_items = of.inputs.graph.schema().relations()[r].src == 0;
        let mut reached = BTreeSet::from([v]);
        (0..3).any(|_| {
            reached = match is_of_items {
                true => {
                    reached.iter().flat_map(&buys).collect::<BTreeSet<_>>().iter().flat_map(&bought).collect()
                }
                false => {
                    reached.iter().flat_map(&bought).collect::<BTreeSet<_>>().iter().flat_map(&buys).collect()
                }
            };
            reached.contains(&u)
        })
    })
}

proptest! {
    #[test]
    fn no_batch_reads_an_edge_that_it_predicts_or_that_is_held_out(
        buys in prop::collection::btree_set((0u32..8, 0u32..6), 8..30),
        knows in prop::collection::btree_set((0u32..8, 0u32..8), 6..20),
        batch_size in 1usize..6,
        seed in 0u64..100,
        disjoint in any::<bool>(),
        both in any::<bool>(),
    ) {
        let buys: Vec<(u32, u32)> = buys.into_iter().collect();
        let knows: Vec<(u32, u32)> = knows.into_iter().filter(|(u, v)| u < v).collect();
        let data = data(&buys, &knows);
        let mut config = TrainConfig { task: "link".into(), hidden: 4, seed, ..TrainConfig::default() };
        config.fanout = graphmill_loader::Fanout(vec![3, 3]);
        let options = LinkOptions {
            num_negatives: 3,
            disjoint: if disjoint { 0.5 } else { 0.0 },
            corrupt: if both { ReplacedEnds::Both } else { ReplacedEnds::Auto },
            exclude: ExcludedFromMessages::WithReverses,
            decoder: "distmult".into(),
            ..LinkOptions::default()
        };
        config.own.set(options);
        let Ok(of) = TypedLinks::new(&config, &data) else { return Ok(()) };
        // a node that is linked to all others has no negative
        if LinkSeeds::new(&config, &of).is_err() {
            return Ok(());
        }
        let held = hidden(&data, &of, &[1, 2]);
        let learned = hidden(&data, &of, &[0]);
        let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
        for entry in SAMPLERS.iter().filter(|entry| !entry.make.draws_subgraphs) {
            config.sampler = entry.name.into();
            if entry.name == "weighted" {
                config.own.set(WeightedOptions { replace: true, ..WeightedOptions::default() });
            }
            // with the relations that the sampler adds
            let of = TypedLinks::new(&config, &data).unwrap();
            let source = LinkSeeds::new(&config, &of).unwrap();
            let sampler = build::sampler(&config, &of.inputs).unwrap();
            let mut workspace = TypedWorkspace::new(of.inputs.graph.schema());
            let model = if entry.make.names_edges { "sage-edge" } else { "rsage" };
            let with_rows = TrainConfig { model: model.into(), ..config.clone() };
            let with_rows = TypedLinks::new(&with_rows, &data).unwrap();
            prop_assert_eq!(with_rows.inputs.edges.is_empty(), !entry.make.names_edges);
            for (number, part) in (0..).zip(numbers.chunks(batch_size)) {
                let key = BatchKey { seed, epoch: 1, batch: number };
                let Ok(seeds) = source.fill(key, part, TypedSeeds::default()) else { continue };
                let links = seeds.links.clone().unwrap();
                // the pairs are those of the edges, by number of seed
                let node = |at: NodeId| {
                    let mut at = at as usize;
                    for (t, nodes) in seeds.nodes.iter().enumerate() {
                        if at < nodes.len() {
                            return (t, nodes[at]);
                        }
                        at -= nodes.len();
                    }
                    unreachable!("a number of a seed")
                };
                let pairs = links.source.iter().zip(&links.destination).zip(&links.relation);
                let pairs: Vec<_> = pairs.map(|((&u, &v), &r)| (r, node(u), node(v))).collect();
                for (pair, &i) in pairs.iter().zip(part) {
                    let [u, r, v] = of.edges.parts[0][i as usize];
                    prop_assert_eq!(*pair, (r, of.edges.node(u), of.edges.node(v)));
                }
                for &(r, (_, u), (_, v)) in &pairs[links.positives..] {
                    prop_assert!(!of.edges.parts[0].iter().any(|edge| {
                        let [a, relation, b] = *edge;
                        relation == r && (of.edges.node(a).1, of.edges.node(b).1) == (u, v)
                    }), "{} {}", u, v);
                }
                let mut own = BTreeSet::new();
                for &(r, (_, u), (_, v)) in &pairs[..links.positives] {
                    let held = of.held[r as usize];
                    own.insert((held.forward, u, v));
                    own.extend(held.reverse.map(|reverse| (reverse, v, u)));
                }
                if entry.make.names_edges {
                    let request = with_rows.inputs.request(key).transposed();
                    let seeds = source.fill(key, part, TypedSeeds::default()).unwrap();
                    let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
                    check_edge_rows(&data, batch, &with_rows)?;
                }
                let request = of.inputs.request(key).transposed();
                let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
                let read = edges_of(&batch, &of);
                prop_assert!(read.is_disjoint(&held), "{}: {:?}", entry.name, read);
                prop_assert!(read.is_disjoint(&own), "{}: {:?}", entry.name, read);
                let walked = walked(&data, &of, &read, &[&held, &own]);
                prop_assert!(walked, "{}: {:?}", entry.name, read);
                if disjoint {
                    let number = |&[u, r, v]: &[u32; 3]| {
                        (of.held[r as usize].forward, of.edges.node(u).1, of.edges.node(v).1)
                    };
                    let all: BTreeSet<_> = of.edges.parts[0].iter().map(number).collect();
                    prop_assert!(read.is_disjoint(&all));
                    prop_assert!(all.is_subset(&learned));
                }
            }
        }
    }
}

/// A knowledge graph of these triples, each of the part that its number names, as `import triples
/// --add-reverses` makes it. Relations may be symmetric or each other's inverses.
fn knowledge_graph(triples: &BTreeSet<(u32, u32, u32)>, validates: bool) -> TypedDataset {
    let dir = tempfile::tempdir().unwrap();
    let parts: &[(&str, &[u32])] = match validates {
        true => &[("train", &[0, 1]), ("valid", &[2]), ("test", &[3])],
        false => &[("train", &[0, 1, 2]), ("test", &[3])],
    };
    for (part, of) in parts {
        let lines = triples.iter().zip(0..).filter(|(_, i)| of.contains(&(i % 4)));
        let mut lines: Vec<String> = lines.map(|((h, r, t), _)| format!("e{h}\tr{r}\te{t}\n")).collect();
        // sources of a destination are in any order
        Stream::new(9).shuffle(&mut lines);
        let lines = lines.concat();
        std::fs::write(dir.path().join(format!("{part}.txt")), lines).unwrap();
    }
    let options = TypedOptions { add_reverses: true, ..TypedOptions::default() };
    import("triples", dir.path(), &options).unwrap().dataset
}

proptest! {
    #[test]
    fn batches_of_triples_read_all_edges_both_ways_but_their_own_and_those_held_out(
        triples in prop::collection::btree_set((0u32..7, 0u32..3, 0u32..7), 8..50),
        batch_size in 1usize..9,
        layers in 1usize..3,
        validates in any::<bool>(),
    ) {
        let data = knowledge_graph(&triples, validates);
        let mut config = TrainConfig { task: "link".into(), hidden: 4, layers, ..TrainConfig::default() };
        config.fanout = graphmill_loader::Fanout(vec![-1; layers]);
        let valid_fraction = if validates { 0.0 } else { 0.3 };
        config.own.set(LinkOptions { decoder: "distmult".into(), valid_fraction, ..LinkOptions::default() });
        prop_assume!(data.tasks.len() > 1);
        let Ok(of) = TypedLinks::new(&config, &data) else { return Ok(()) };
        prop_assert!(of.held.iter().all(|held| held.reverse.is_some()));
        let Ok(source) = LinkSeeds::new(&config, &of) else { return Ok(()) };
        // both directions of every training triple, by the numbers of edge types
        let stored = hidden(&data, &of, &[0]);
        let held = of.edges.parts[1..].iter().flatten().flat_map(|&[u, r, v]| {
            let of = of.held[r as usize];
            [Some((of.forward, u, v)), of.reverse.map(|reverse| (reverse, v, u))].into_iter().flatten()
        });
        let out: BTreeSet<_> = held.collect();
        prop_assert!(validates || !of.edges.parts[1].is_empty());
        let sampler = build::sampler(&config, &of.inputs).unwrap();
        let mut workspace = TypedWorkspace::new(of.inputs.graph.schema());
        let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
        for (batch, part) in (0..).zip(numbers.chunks(batch_size)) {
            let key = BatchKey { seed: 1, epoch: 0, batch };
            let Ok(seeds) = source.fill(key, part, TypedSeeds::default()) else { continue };
            let own = predicted(&seeds, &of);
            let mut reached: BTreeSet<NodeId> = seeds.nodes[0].iter().copied().collect();
            let request = of.inputs.request(key).transposed();
            let read = edges_of(&sampler.sample(&request, &mut workspace, seeds).unwrap(), &of);
            let mut expected = BTreeSet::new();
            for _ in 0..layers {
                let into = stored.iter().copied().filter(|edge| reached.contains(&edge.2));
                let into: Vec<_> = into.filter(|edge| !out.contains(edge) && !own.contains(edge)).collect();
                reached.extend(into.iter().map(|edge| edge.1));
                expected.extend(into);
            }
            prop_assert_eq!(&read, &expected);
        }
    }
}

/// Type and id of a node.
type Node = (usize, NodeId);

/// Positives of a batch, each with its negatives, by relation and ends; sorted.
fn groups(seeds: &TypedSeeds) -> Vec<Vec<(u32, Node, Node)>> {
    let links = seeds.links.as_deref().unwrap();
    let of_type = |(t, nodes): (usize, &Vec<NodeId>)| nodes.iter().map(move |&v| (t, v)).collect::<Vec<_>>();
    let nodes: Vec<Node> = seeds.nodes.iter().enumerate().flat_map(of_type).collect();
    let at = |seed: NodeId| nodes[seed as usize];
    let pair = |i: usize| (links.relation[i], at(links.source[i]), at(links.destination[i]));
    let (positives, each) = (links.positives, links.num_negatives());
    let group = |p: usize| {
        let negatives = positives + p * each..positives + (p + 1) * each;
        std::iter::once(p).chain(negatives).map(pair).collect()
    };
    let mut groups: Vec<Vec<(u32, Node, Node)>> = (0..positives).map(group).collect();
    groups.sort_unstable();
    groups
}

/// Edges that a batch predicts, with their reverses, by edge type.
fn predicted(seeds: &TypedSeeds, of: &TypedLinks) -> BTreeSet<(usize, NodeId, NodeId)> {
    let mut own = BTreeSet::new();
    for &(r, (_, u), (_, v)) in groups(seeds).iter().map(|group| &group[0]) {
        own.insert((of.held[r as usize].forward, u, v));
        own.extend(of.held[r as usize].reverse.map(|reverse| (reverse, v, u)));
    }
    own
}

/// Pairs of users and items, and of users, of a small dataset.
fn pairs() -> [Vec<(u32, u32)>; 2] {
    let pairs = |items: u32| (0..8).flat_map(move |u| (0..items).map(move |v| (u, v)));
    let buys = pairs(6).filter(|(u, v)| (3 * u + v) % 5 < 3).collect();
    [buys, pairs(8).filter(|(u, v)| u < v && (u * v) % 3 < 2).collect()]
}

/// Draws as another sampler, counts the batches, and panics if one reads an edge that it predicts
/// or that is held out.
fn checking(
    inner: Box<dyn TypedSampler>,
    of: Arc<TypedLinks>,
    held_out: BTreeSet<(usize, NodeId, NodeId)>,
    checked: Arc<AtomicUsize>,
) -> Box<dyn TypedSampler> {
    let draw = move |inner: &dyn TypedSampler,
                     request: &TypedRequest,
                     workspace: &mut TypedWorkspace,
                     seeds: TypedSeeds|
          -> graphmill_core::Result<TypedSampled> {
        let own = predicted(&seeds, &of);
        let drawn = inner.sample(request, workspace, seeds)?;
        let read = edges_of(&drawn, &of);
        assert!(!own.is_empty() && read.is_disjoint(&own) && read.is_disjoint(&held_out), "{read:?}");
        checked.fetch_add(1, Relaxed);
        Ok(drawn)
    };
    Box::new(WrappedSampler { inner, draw })
}

#[test]
fn batches_of_devices_that_train_together_read_no_edge_that_they_predict() {
    let [buys, knows] = pairs();
    let data = data(&buys, &knows);
    let stale = [("updates", "asynchronous"), ("staleness", "2")];
    for (strategy, devices, more) in [
        ("time-sharing", "virtual:2", &[][..]),
        ("time-sharing", "virtual:3", &[("overlap", "on")]),
        ("time-sharing", "virtual:2", &stale),
        ("factored", "virtual:3", &[("num_samplers", "1")]),
        ("factored", "virtual:4", &[("num_samplers", "2"), stale[0], stale[1]]),
    ] {
        for seed in 0..3 {
            let mut config = TrainConfig { hidden: 4, batch_size: 4, seed, epochs: 2, ..Default::default() };
            config.fanout = graphmill_loader::Fanout(vec![3, 3]);
            let options =
                [("task", "link"), ("model", "rsage"), ("decoder", "distmult"), ("strategy", strategy)];
            for (name, value) in options.iter().chain(&[("devices", devices)]).chain(more) {
                key(name).unwrap().parse(&mut config, value).unwrap();
            }
            let of = Arc::new(TypedLinks::new(&config, &data).unwrap());
            let held_out = hidden(&data, &of, &[1, 2]);
            let (checked, batches) = (Arc::default(), of.edges.parts[0].len().div_ceil(4));
            let counted = Arc::clone(&checked);
            let wrap = |inner| checking(inner, of, held_out, counted);
            let context = RunContext {
                run: None,
                resume: false,
                observer: &mut crate::observer::Quiet,
                stop: &|| false,
            };
            train_alone(&config, &data, context, wrap).unwrap();
            // batches that caches count are checked, too
            assert!(checked.load(Relaxed) >= 2 * batches, "{strategy} {devices} {more:?}");
        }
    }
}

#[test]
fn pairs_of_every_relation_learn_its_own_parameters() {
    let [buys, knows] = pairs();
    let data = data(&buys, &knows);
    let mut config =
        TrainConfig { task: "link".into(), hidden: 4, model: "rsage".into(), ..Default::default() };
    config.fanout = graphmill_loader::Fanout(vec![3, 3]);
    config.own.set(LinkOptions { decoder: "distmult".into(), ..LinkOptions::default() });
    let of = TypedLinks::new(&config, &data).unwrap();
    let (source, sampler) =
        (LinkSeeds::new(&config, &of).unwrap(), build::sampler(&config, &of.inputs).unwrap());
    let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
    let edges = &of.edges.parts[0];
    for r in 0..2 {
        let mut learner = LinkLearner::replica(&config, &of).unwrap();
        let of_relation = numbers.iter().copied().filter(|&i| edges[i as usize][1] == r);
        let part: Vec<NodeId> = of_relation.take(6).collect();
        let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
        let seeds = source.fill(key, &part, TypedSeeds::default()).unwrap();
        let request = of.inputs.request(key).transposed();
        let mut workspace = TypedWorkspace::new(of.inputs.graph.schema());
        let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
        let mut batch = of.inputs.extract(batch, &borrowed(&of.inputs.host_tables().unwrap()), 0).unwrap();
        // users have learned rows
        let users = &mut batch.features[1];
        users.resize(batch.sampled.input_nodes[1].len(), config.hidden);
        users.view_mut().host().iter_mut().enumerate().for_each(|(i, x)| *x = (i % 5) as f32 - 2.0);
        learner.batch_gradient(&batch).unwrap();
        learner.model.decoder.visit(&mut |param| {
            let rows = param.grad.view().host().chunks_exact(config.hidden);
            let changed: Vec<bool> = rows.map(|row| row.iter().any(|&x| x != 0.0)).collect();
            assert_eq!(changed, [r == 0, r == 1], "relation {r}: {}", param.name);
        });
    }
}

#[test]
fn shares_of_ranks_are_the_batch_of_one_process_and_read_none_of_its_edges() {
    let [buys, knows] = pairs();
    let data = data(&buys, &knows);
    let book = |count: u16| PartitionBook::new(3, (0..count).map(|v| v % 3).collect::<Vec<u16>>()).unwrap();
    for entry in SAMPLERS.iter().filter(|entry| !entry.make.draws_subgraphs) {
        let mut config =
            TrainConfig { task: "link".into(), sampler: entry.name.into(), ..Default::default() };
        config.fanout = graphmill_loader::Fanout(vec![3, 3]);
        config.own.set(LinkOptions {
            num_negatives: 3,
            corrupt: ReplacedEnds::Both,
            exclude: ExcludedFromMessages::WithReverses,
            ..LinkOptions::default()
        });
        config.own.set(WeightedOptions { replace: true, ..WeightedOptions::default() });
        let of = TypedLinks::new(&config, &data).unwrap();
        let whole = LinkSeeds::new(&config, &of).unwrap();
        let sampler = build::sampler(&config, &of.inputs).unwrap();
        let mut workspace = TypedWorkspace::new(of.inputs.graph.schema());
        let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
        for (number, part) in (0..).zip(numbers.chunks(7)) {
            let key = BatchKey { seed: 5, epoch: 1, batch: number };
            let request = of.inputs.request(key).transposed();
            let batch = whole.fill(key, part, TypedSeeds::default()).unwrap();
            let (expected, excluded) = (groups(&batch), batch.excluded.clone());
            let own = predicted(&batch, &of);
            let read = edges_of(&sampler.sample(&request, &mut workspace, batch).unwrap(), &of);
            let (mut shared, mut read_by_shares) = (Vec::new(), BTreeSet::new());
            for rank in 0..3 {
                let owners =
                    [book(6), book(8)].map(|book| Arc::new(NodeOwnership::new(book, rank, 3).unwrap()));
                let share = RankSeeds { whole: &whole, owners: &owners };
                let share = share.fill(key, part, TypedSeeds::default()).unwrap();
                let groups = groups(&share);
                assert!(groups.iter().map(|group| group[0].1).all(|(t, u)| owners[t].is_own(u)));
                assert_eq!(share.excluded, excluded, "{}", entry.name);
                shared.extend(groups);
                let batch = sampler.sample(&request, &mut workspace, share).unwrap();
                read_by_shares.extend(edges_of(&batch, &of));
            }
            shared.sort_unstable();
            assert_eq!(shared, expected, "{}", entry.name);
            assert!(read_by_shares.is_disjoint(&own), "{}: {read_by_shares:?}", entry.name);
            if sampler.is_per_node() {
                assert_eq!(read_by_shares, read, "{}: other neighbours", entry.name);
            }
        }
    }
}

/// Caches are chosen by the batches of the run: the same edges, negatives and neighbours.
#[test]
fn counted_nodes_are_those_of_the_batches_of_a_run() {
    let buys: Vec<(u32, u32)> =
        (0..8).flat_map(|u| (0..6).map(move |v| (u, v))).filter(|(u, v)| (3 * u + v) % 5 < 3).collect();
    let data = data(&buys, &[(0, 1), (2, 5), (3, 4), (6, 7), (1, 6)]);
    let mut config = TrainConfig { task: "link".into(), batch_size: 4, max_batches: 2, ..Default::default() };
    config.fanout = graphmill_loader::Fanout(vec![2, 2]);
    config.own.set(LinkOptions { num_negatives: 2, ..LinkOptions::default() });
    let of = TypedLinks::new(&config, &data).unwrap();
    let (source, schema) = (LinkSeeds::new(&config, &of).unwrap(), of.inputs.graph.schema());
    let sampler = build::sampler(&config, &of.inputs).unwrap();
    let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
    let order = build::order_of(&config, &numbers, &of.inputs.labels).unwrap();
    let mut edges = Vec::new();
    order.order(2, &mut edges);
    let (task, seeds) = (&of.inputs, numbers.len());
    let learned = Learned { task, sampler: &*sampler, source: &source, models: &of, order, seeds };
    let batches = RunBatches::new(&config, learned);
    let (visits, mut seen) = (TypedVisits::new(&batches, &Quiet), Vec::new());
    visits.visit(2, &mut |nodes| seen.push(nodes.to_vec())).unwrap();

    let mut workspace = TypedWorkspace::new(schema);
    let mut expected = Vec::new();
    for (number, part) in (0..2).zip(edges.chunks(4)) {
        let key = BatchKey { seed: config.seed, epoch: 2, batch: number };
        let seeds = source.fill(key, part, TypedSeeds::default()).unwrap();
        let request = of.inputs.request(key).transposed();
        let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
        let of_type = |(t, nodes): (usize, &Vec<NodeId>)| {
            nodes.iter().map(|&v| schema.global(t, v)).collect::<Vec<NodeId>>()
        };
        expected.push(batch.input_nodes.iter().enumerate().flat_map(of_type).collect::<Vec<NodeId>>());
    }
    assert_eq!((seen, visits.drawn()), (expected, 2));
    let ends: BTreeSet<NodeId> = of.edges.parts[0]
        .iter()
        .flat_map(|&[u, _, v]| [u, v])
        .map(|row| {
            let (t, v) = of.edges.node(row);
            schema.global(t, v)
        })
        .collect();
    assert_eq!(source.train(), ends.into_iter().collect::<Vec<_>>());
    assert_eq!(source.types(), [0, 1]);
}
