//! Evaluations against brute force.

use graphmill_core::{EdgeOptions, End, NodeId, build, keyed::Stream, options::OptionSet};
use graphmill_data::{
    Dataset,
    typed::{EdgeType, TypedBuilder, Verify},
};
use graphmill_loader::{BatchKey, Seeds};
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    link::decoder::{DecoderConfig, TABLE},
};

use super::{LinkEvaluation, LinkMetric, LinkTask, Numbering, QueryShare, Scored, evaluate::GatherRanks};
use crate::{
    TrainConfig,
    config::link::{LINK, LinkOptions, Positives},
};

const NODES: usize = 40;

fn data(options: EdgeOptions) -> Dataset {
    let mut stream = Stream::new(5);
    let mut node = || stream.below(NODES as u64) as NodeId;
    let (from, to): (Vec<_>, Vec<_>) = (0..120).map(|_| (node(), node())).unzip();
    Dataset { graph: build(NODES, &from, &to, options).unwrap(), ..Dataset::default() }
}

fn task(data: &Dataset, candidates: &str, metric: &str) -> (TrainConfig, LinkTask) {
    let mut config = TrainConfig {
        task: LINK.into(),
        hidden: 3,
        batch_size: 16,
        metric: metric.into(),
        ..TrainConfig::default()
    };
    config.own.get_mut::<crate::config::link::LinkOptions>().candidates = candidates.parse().unwrap();
    let task = LinkTask::new(&config, data).unwrap();
    (config, task)
}

/// Embeddings in which every fourth value is repeated, so that scores are tied.
fn embeddings() -> Matrix {
    let values: Vec<f32> = (0..NODES * 3).map(|i| ((i / 3 % 11 * 7 + i % 3 * 5) % 6) as f32 - 2.5).collect();
    Matrix::from_slice(NODES, 3, &values)
}

fn score(evaluation: &LinkEvaluation, task: &LinkTask, rows: &Matrix, metric: &str) -> Option<f64> {
    let make = TABLE.find("dot").unwrap().make.make;
    let decoder = make(&DecoderConfig { dim: 3, ..DecoderConfig::default() }).unwrap();
    let backend = Cpu::default();
    let pass = Pass { backend: &backend, training: false, key: 0 };
    let scored = Scored { decoder: &*decoder, pass, embeddings: rows.view() };
    evaluation.score(&scored, &task.known, &LinkMetric::find(metric).unwrap())
}

#[test]
fn filtered_ranks_are_those_of_a_plain_loop() {
    for options in [EdgeOptions::DIRECTED, EdgeOptions::UNDIRECTED] {
        let data = data(options);
        let (config, task) = task(&data, "all", "mrr");
        let (evaluation, rows) = (task.evaluation(&config, "test").unwrap(), embeddings());
        let row = |v: NodeId| &rows.view().host()[v as usize * 3..][..3];
        let dot = |u: NodeId, v: NodeId| row(u).iter().zip(row(v)).map(|(a, b)| a * b).sum::<f32>();
        let ends = if task.undirected { &[End::Destination, End::Source][..] } else { &[End::Destination] };
        let mut ranks = Vec::new();
        for &end in ends {
            for &(u, v) in &task.test.edges {
                let (fixed, own) = if end == End::Destination { (u, v) } else { (v, u) };
                let is_known = |w: NodeId| match end {
                    End::Destination => task.known.contains(fixed, w),
                    End::Source => task.known.contains(w, fixed),
                };
                let others = (0..NODES as NodeId).filter(|&w| w != fixed && w != own && !is_known(w));
                let scores: Vec<f32> = others.map(|w| dot(fixed, w)).collect();
                let above = scores.iter().filter(|&&x| x > dot(u, v)).count() as f64;
                let equal = scores.iter().filter(|&&x| x == dot(u, v)).count() as f64;
                ranks.push(1.0 + above + equal / 2.0);
            }
        }
        let mrr = ranks.iter().map(|rank| 1.0 / rank).sum::<f64>() / ranks.len() as f64;
        let hits = ranks.iter().filter(|&&rank| rank <= 5.0).count() as f64 / ranks.len() as f64;
        assert!((score(&evaluation, &task, &rows, "mrr").unwrap() - mrr).abs() < 1e-12);
        assert!((score(&evaluation, &task, &rows, "hits@5").unwrap() - hits).abs() < 1e-12);
        assert_eq!(score(&evaluation, &task, &rows, "auc"), None);
    }
}

#[test]
fn shares_of_a_ranking_are_the_whole() {
    let (data, rows) = (data(EdgeOptions::DIRECTED), embeddings());
    let make = TABLE.find("dot").unwrap().make.make;
    let decoder = make(&DecoderConfig { dim: 3, ..DecoderConfig::default() }).unwrap();
    let backend = Cpu::default();
    let pass = Pass { backend: &backend, training: false, key: 0 };
    let scored = Scored { decoder: &*decoder, pass, embeddings: rows.view() };
    for (candidates, name) in [("all", "mrr"), ("all", "recall@5"), ("pairs", "auc")] {
        let (config, task) = task(&data, candidates, name);
        let (evaluation, metric) =
            (task.evaluation(&config, "test").unwrap(), LinkMetric::find(name).unwrap());
        let by = |number: usize, gather: &GatherRanks| {
            let share = QueryShare { number, of: 3, gather };
            evaluation.score_by_share(&scored, &task.known, &metric, &share).unwrap()
        };
        let all = std::cell::RefCell::new(Vec::new());
        for number in 0..3 {
            by(number, &|own| {
                all.borrow_mut().extend_from_slice(own);
                Ok(own.to_vec())
            });
        }
        let found = by(1, &|_| Ok(all.borrow().clone()));
        assert!(found.is_some(), "{name}");
        assert_eq!(found, score(&evaluation, &task, &rows, name), "{name}");
    }
}

#[test]
fn embeddings_of_the_ends_give_the_scores_of_all() {
    let (data, rows) = (data(EdgeOptions::UNDIRECTED), embeddings());
    let (config, all) = task(&data, "all", "mrr");
    assert!(all.evaluation(&config, "test").unwrap().nodes().is_none());
    let (mut config, of_pairs) = task(&data, "pairs", "auc");
    config.eval_nodes = 3;
    let evaluation = of_pairs.evaluation(&config, "test").unwrap();
    let few = Numbering::new(evaluation.nodes().unwrap());
    assert!(few.nodes().len() < NODES && few.nodes().is_sorted());
    let row = |&v: &NodeId| &rows.view().host()[v as usize * 3..][..3];
    let values: Vec<f32> = few.nodes().iter().flat_map(row).copied().collect();
    let own = Matrix::from_slice(few.nodes().len(), 3, &values);
    for name in ["auc", "hits@2", "mrr"] {
        let found = score(&evaluation.clone().numbered(&few), &of_pairs, &own, name);
        assert!(found.is_some(), "{name}");
        assert_eq!(found, score(&evaluation, &of_pairs, &rows, name), "{name}");
    }
}

#[test]
fn constant_scores_give_chance() {
    let data = data(EdgeOptions::UNDIRECTED);
    let constant = Matrix::from_slice(NODES, 3, &[0.5; NODES * 3]);
    let (config, of_pairs) = task(&data, "pairs", "auc");
    let evaluation = of_pairs.evaluation(&config, "test").unwrap();
    assert_eq!(score(&evaluation, &of_pairs, &constant, "auc"), Some(0.5));
    assert_eq!(score(&evaluation, &of_pairs, &constant, "hits@1"), Some(0.0));
    let (config, of_all) = task(&data, "all", "mrr");
    let evaluation = of_all.evaluation(&config, "test").unwrap();
    assert!(score(&evaluation, &of_all, &constant, "mrr").unwrap() < 0.1);
    assert_eq!(score(&evaluation, &of_all, &constant, "recall@1"), Some(0.0));
}

#[test]
fn random_pairs_repeat_and_have_no_edge_in_any_part() {
    let data = data(EdgeOptions::UNDIRECTED);
    let (config, task) = task(&data, "pairs", "auc");
    let rows = embeddings();
    let [first, again] = [(), ()].map(|()| task.evaluation(&config, "valid").unwrap());
    assert_eq!(score(&first, &task, &rows, "auc"), score(&again, &task, &rows, "auc"));
    for &(u, v) in first.pairs().unwrap() {
        assert!(
            u != v && !data.graph.in_neighbors(v).contains(&u) && !data.graph.in_neighbors(u).contains(&v)
        );
    }
    assert_eq!(first.pairs().unwrap().len(), first.len());
}

#[test]
fn known_edges_are_those_of_the_dataset_and_training_knows_no_others_than_it_may_read() {
    for options in [EdgeOptions::DIRECTED, EdgeOptions::UNDIRECTED] {
        for disjoint in [0.0, 0.4] {
            let data = data(options);
            let mut config = TrainConfig { task: LINK.into(), batch_size: 16, ..TrainConfig::default() };
            config.own.get_mut::<crate::config::link::LinkOptions>().disjoint = disjoint;
            let task = LinkTask::new(&config, &data).unwrap();
            let held: Vec<_> = task.valid.edges.iter().chain(&task.test.edges).copied().collect();
            for (u, v) in (0..NODES as NodeId).flat_map(|u| (0..NODES as NodeId).map(move |v| (u, v))) {
                let is_edge = data.graph.in_neighbors(v).contains(&u);
                let is_held = held.contains(&(u, v)) || task.undirected && held.contains(&(v, u));
                assert_eq!(task.known.contains(u, v), is_edge, "{u} to {v}");
                assert_eq!(task.known_to_training.contains(u, v), is_edge && !is_held, "{u} to {v}");
            }
        }
    }
}

#[test]
fn a_part_of_the_edges_of_a_stored_task_validates_and_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    let mut builder = TypedBuilder::new("friends");
    builder.node_type("node", NODES).features(1, vec![0.0f32; NODES]);
    let next = |by: NodeId| (0..NODES as NodeId).map(move |u| (u, (u + by) % NODES as NodeId));
    let (from, to): (Vec<NodeId>, Vec<NodeId>) = next(1).chain(next(3)).unzip();
    let ends = [[&from[..], &to].concat(), [&to[..], &from].concat()];
    let [sources, destinations] = ends.clone();
    builder.edge_type("node", "knows", "node").edges(sources, destinations).reverse_of("knows");
    let learned: Vec<NodeId> = ends[0].iter().zip(&ends[1]).flat_map(|(u, v)| [*u, *v]).collect();
    let on = EdgeType::new("node", "knows", "node");
    builder.task("knows").on_edges(on).positives([learned, vec![], vec![0, 7]]);
    builder.build().unwrap().save(&dir).unwrap();
    let data = crate::build::open_graph(&dir, Verify::Once).unwrap();
    let mut config = TrainConfig { task: LINK.into(), hidden: 3, batch_size: 16, ..TrainConfig::default() };
    config.dataset = dir.to_str().unwrap().into();
    config.own.get_mut::<LinkOptions>().valid_fraction = 0.25;
    let task = LinkTask::new(&config, &data).unwrap();
    let (valid, train) = (&task.valid.edges, &task.train);
    assert!(task.undirected && !data.graph.in_neighbors(0).is_sorted());
    assert_eq!((valid.len(), task.test.edges.len()), (40, 1));
    for &(u, v) in valid {
        assert!(!train.contains(&(u, v)) && !train.contains(&(v, u)), "{u} {v} is learned");
        assert!(!task.data.graph.in_neighbors(v).contains(&u), "{u} {v} is read");
        assert!(!task.data.graph.in_neighbors(u).contains(&v), "{v} {u} is read");
    }
    let distinct = |edges: &[(NodeId, NodeId)]| {
        edges.iter().map(|&(u, v)| (u.min(v), u.max(v))).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(distinct(train) + distinct(valid), 80);
    config.dataset.clear();
    let message = LinkTask::new(&config, &self::data(EdgeOptions::DIRECTED)).map(drop).unwrap_err();
    assert!(message.to_string().contains("--split-edges divides its edges; leave it out"), "{message}");
}

#[test]
fn edges_of_one_type_are_split_by_the_times_of_the_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    let mut stream = Stream::new(7);
    let mut draw = |below: u64| stream.below(below);
    let (from, to): (Vec<NodeId>, Vec<NodeId>) =
        (0..200).map(|_| (draw(NODES as u64) as NodeId, draw(NODES as u64) as NodeId)).unzip();
    let time: Vec<i64> = (0..200).map(|_| draw(50) as i64).collect();
    let mut builder = TypedBuilder::new("visits");
    builder.node_type("node", NODES).features(1, vec![0.0f32; NODES]);
    builder.edge_type("node", "visits", "node").edges(from.clone(), to.clone()).time(time.clone());
    builder.build().unwrap().save(&dir).unwrap();
    let data = crate::build::open_graph(&dir, Verify::Once).unwrap();
    let task = |split: &str, data: &Dataset| {
        let mut config =
            TrainConfig { task: LINK.into(), hidden: 3, batch_size: 16, ..TrainConfig::default() };
        config.own.get_mut::<crate::config::link::LinkOptions>().split_edges = split.parse().unwrap();
        LinkTask::new(&config, data)
    };
    let split = task("time:70,15,15", &data).unwrap();
    assert!(split.notes.iter().any(|note| note.contains("by time (--split-edges)")), "{:?}", split.notes);
    let latest = |&(u, v): &(NodeId, NodeId)| {
        let of = (0..200).filter(|&e| (from[e], to[e]) == (u, v)).map(|e| time[e]);
        of.max().unwrap()
    };
    let times = |edges: &[(NodeId, NodeId)]| edges.iter().map(latest).collect::<Vec<i64>>();
    let parts = [times(&split.train), times(&split.valid.edges), times(&split.test.edges)];
    for pair in parts.windows(2) {
        assert!(pair[0].iter().max() < pair[1].iter().min(), "{parts:?}");
    }
    // nor does the graph that is read have an edge of the time of those that validate, but loops
    let first = parts[1].iter().min().unwrap();
    for v in 0..NODES as NodeId {
        let read = split.data.graph.in_neighbors(v).iter().filter(|&&u| u != v);
        assert!(read.clone().all(|&u| latest(&(u, v)) < *first));
    }
    let error = task("time:70,15,15", &self::data(EdgeOptions::DIRECTED)).unwrap_err().to_string();
    assert!(error.contains("its edges have no times"), "{error}");
}

/// Time from which a node of [`with_times`] exists.
fn exists(v: NodeId) -> i64 {
    if v < 20 { 0 } else { i64::from(v) }
}

/// A stored graph whose nodes have times, whose edges have times if `timed`, and
/// whose task has rows with times if `rows`.
fn with_times(timed: bool, rows: bool) -> (tempfile::TempDir, Dataset) {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(9);
    let mut node = || stream.below(NODES as u64) as NodeId;
    let from: Vec<NodeId> = (0..120).map(|_| node()).collect();
    let to: Vec<NodeId> = from.iter().map(|u| (u + 1 + node() / 2) % NODES as NodeId).collect();
    let mut builder = TypedBuilder::new("cites");
    let times: Vec<i64> = (0..NODES as NodeId).map(exists).collect();
    builder.node_type("node", NODES).features(1, vec![0.0f32; NODES]).time(times);
    let edges = builder.edge_type("node", "cites", "node");
    edges.edges(from.clone(), to.clone());
    if timed {
        edges.time(vec![30; 120]);
    }
    if rows {
        let pairs = |rows: std::ops::Range<usize>| rows.flat_map(|e| [from[e], to[e]]).collect();
        let task = builder.task("cite");
        task.on_edges(EdgeType::new("node", "cites", "node"));
        task.positives([pairs(0..100), pairs(100..110), pairs(110..120)]).time(vec![50; 120]);
    }
    let path = dir.path().join("data");
    builder.build().unwrap().save(&path).unwrap();
    let data = crate::build::open_graph(&path, Verify::Once).unwrap();
    (dir, data)
}

#[test]
fn existing_negatives_exist_at_the_times_of_their_edges() {
    let mut config = TrainConfig { task: LINK.into(), hidden: 3, batch_size: 16, ..TrainConfig::default() };
    let options = LinkOptions { negatives: "existing".into(), num_negatives: 4, ..LinkOptions::default() };
    config.own.set(options.clone());
    for timed in [false, true] {
        let (_dir, data) = with_times(timed, false);
        let task = LinkTask::new(&config, &data).unwrap();
        let source = task.source(&config).unwrap();
        let numbers: Vec<NodeId> = (0..task.train.len() as NodeId).collect();
        let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
        let seeds = source.fill(key, &numbers, Seeds::default()).unwrap();
        let links = seeds.links.as_ref().unwrap();
        let time = |&(u, v): &(NodeId, NodeId)| exists(u).max(exists(v)).max(if timed { 30 } else { 0 });
        let drawn = links.destination[links.positives..].iter().map(|&at| seeds.nodes[at as usize]);
        let drawn: Vec<NodeId> = drawn.collect();
        assert_eq!(drawn.len(), 4 * task.train.len());
        for (edge, drawn) in task.train.iter().zip(drawn.chunks(4)) {
            assert!(drawn.iter().all(|&v| exists(v) <= time(edge)), "{edge:?}: {drawn:?}");
        }
    }
    let error = LinkTask::new(&config, &data(EdgeOptions::DIRECTED)).unwrap_err().to_string();
    assert!(error.contains("stores no times of nodes; use --negatives uniform"), "{error}");
    let walks = LinkOptions { positives: Positives::Walks, ..options };
    assert!(walks.check().unwrap_err().to_string().contains("pairs of walks have no times"));
}

#[test]
fn rows_with_times_need_a_model_of_several_types() {
    let (_dir, data) = with_times(true, true);
    let config = TrainConfig { task: "cite".into(), hidden: 3, ..TrainConfig::default() };
    let error = LinkTask::new(&config, &data).unwrap_err().to_string();
    assert!(error.contains("the rows of task 'cite' have times") && error.contains("rsage"), "{error}");
}
