//! Several ranks learn links as one process does: the same batches, losses and scores, whatever the
//! partition, and after a stop and resume.

use std::{collections::BTreeSet, fs, sync::Arc};

use graphmill_core::{
    EdgeOptions, Labels, NodeId, Split, block::Aggregation, build as build_graph, keyed, progress,
};
use graphmill_data::{
    checksum::checksum,
    partition::{Description, PartitionBook, PartitionDir, write},
};
use graphmill_distributed::NodeOwnership;
use graphmill_engine::{
    Dataset, Error, RunContext, TrainConfig, build,
    config::link::LINK,
    link::LinkTask,
    memory::MemoryPlacement,
    observer::Quiet,
    record::Summary,
    stage::{Loader, RowAccess},
    trainer::over_ranks,
};
use graphmill_loader::{MiniBatch, Seeds, Workspace, sampler};

use crate::{
    distributed::with_directory,
    link_prediction::edges,
    ranks::{self, PARTS, PATIENCE, alone, assert_alike, close, data, on_ranks, over_ranks, partitioned},
    set::with,
};

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig { task: LINK.into(), batch_size: 300, ..ranks::config() };
    let mut config = with(base, options);
    config.derive_options(&["layers", "fanout", "dropout", "hidden", "batch_size"]).unwrap();
    config.check().unwrap();
    config
}

fn loss_bits(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

/// Compares a run over `size` ranks with one of a single process.
fn compare(options: &str, data: &Dataset, dir: &PartitionDir, size: usize) {
    let config = config(options);
    let one = alone(&TrainConfig { strategy: "sequential".into(), ..config.clone() }, data);
    let many = over_ranks(&config, dir, size);
    let what = format!("{size} ranks, {options}");
    assert_alike(&one, &many, &what);
    for summary in &many {
        assert_eq!(summary.test.metric, one.test.metric, "{what}");
        let scores = summary.epochs.iter().map(|epoch| epoch.valid_score.unwrap());
        for (score, epoch) in scores.zip(&one.epochs) {
            let expected = epoch.valid_score.unwrap();
            assert!((score - expected).abs() < 0.01, "{what}: score {score} and {expected}");
        }
    }
    let (epoch, whole) = (&many[0].epochs[1], &one.epochs[1]);
    assert_eq!(epoch.ranks.iter().map(|rank| rank.seeds).sum::<u64>(), whole.seeds, "{what}");
    assert_eq!(epoch.traffic.remote.rows > 0, size > 1, "{what}");
    assert!(epoch.ranks.iter().all(|rank| rank.sample_bytes == 0), "{what}: neighbours are requested");
    if size == 1 {
        assert_eq!(loss_bits(&one), loss_bits(&many[0]), "{what}: one rank has the bits of one process");
    }
}

#[test]
fn ranks_give_the_losses_and_scores_of_one_process() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "model=sage"),
        (2, "model=gcn decoder=mlp strategy=pipelined allocation=1,1,1"),
        (3, "model=gat heads=2 loss=bpr num_negatives=3 candidates=all"),
        (2, "sampler=labor negatives=in-batch loss=info-nce num_negatives=4 corrupt=destination"),
        (3, "negatives=degree metric=hits@20 candidates=pairs decoder=distmult"),
        (2, "positives=walks walk_nodes=6 walk_window=2 negatives=degree num_negatives=2"),
        (3, "disjoint=0.4 metric=recall@20"),
        (2, "sampler=weighted edge_weights=in-degree exclude=edges"),
        (3, "model=pinsage sampler=random-walk num_walks=6"),
        (4, "batch_size=3 max_batches=9"),
    ] {
        compare(options, &data, &dir, size);
    }
}

#[test]
fn directed_and_weighted_graphs_are_learned_over_ranks() {
    let (mut data, temporary) = (data(), tempfile::tempdir().unwrap());
    let rows = (0..data.num_nodes() as NodeId).flat_map(|v| {
        // one direction of most edges
        let is_kept = move |u: NodeId| u < v || keyed::key(&[u.into(), v.into()]).is_multiple_of(4);
        let sources = data.graph.in_neighbors(v).iter().copied().filter(move |&u| is_kept(u));
        sources.map(move |u| (u, v)).collect::<Vec<_>>()
    });
    let (from, to): (Vec<NodeId>, Vec<NodeId>) = rows.unzip();
    let graph = build_graph(data.num_nodes(), &from, &to, EdgeOptions::DIRECTED).unwrap();
    let weights: Vec<f32> = (0..graph.num_edges()).map(|e| 0.5 + (e * 7 % 5) as f32).collect();
    data.graph = graph.with_edge_weight(weights.into()).unwrap();
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [(2, "sampler=weighted"), (3, "model=gcn corrupt=both num_negatives=2")] {
        compare(options, &data, &dir, size);
    }
}

#[test]
fn hard_negatives_are_the_same_on_all_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = config("negatives=hard hard_candidates=40 num_negatives=2");
    let (one, many) = (alone(&config, &data), over_ranks(&config, &dir, 3));
    assert!(many.iter().all(|rank| loss_bits(rank) == loss_bits(&many[0])));
    // the first epoch draws uniformly; lists of later ones may differ by rounding
    assert!(close(many[0].epochs[0].loss, one.epochs[0].loss));
    let [uniform, hard] = [0, 2].map(|epoch: usize| many[0].epochs[epoch].loss);
    assert!((one.epochs[2].loss - hard).abs() < 0.02 * hard, "{uniform}, {hard}: {}", one.epochs[2].loss);
}

#[test]
fn stopped_runs_of_links_resume_with_any_number_of_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (i, (options, size)) in
        [("decoder=mlp", 3), ("decoder=mlp", 1), ("decoder=mlp", 2), ("negatives=hard hard_candidates=40", 3)]
            .into_iter()
            .enumerate()
    {
        let config = config(options);
        let whole = over_ranks(&config, &dir, 3);
        let out = temporary.path().join(format!("run-{i}"));
        // in the middle of the second epoch
        let batches = LinkTask::new(&config, &data).unwrap().train.len().div_ceil(config.batch_size) as u64;
        for end in with_directory(&config, &dir, 3, &out, Some((1, batches + batches / 2))) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{options}: {end:?}");
        }
        let resumed: Vec<Summary> =
            with_directory(&config, &dir, size, &out, None).into_iter().map(Result::unwrap).collect();
        assert_eq!(resumed[0].epochs.len(), whole[0].epochs.len(), "{options}");
        for (a, b) in resumed[0].epochs.iter().zip(&whole[0].epochs) {
            assert_eq!(a.seeds, b.seeds, "{options}");
            assert!(close(a.loss, b.loss), "{options}: {} and {}", a.loss, b.loss);
        }
        if size == 3 {
            assert_eq!(loss_bits(&resumed[0]), loss_bits(&whole[0]), "{options}");
            assert_eq!(resumed[0].test.score, whole[0].test.score, "{options}");
        }
    }
}

/// Positives of a batch, each with its negatives; sorted.
fn groups(seeds: &Seeds) -> Vec<Vec<(NodeId, NodeId)>> {
    let links = seeds.links.as_ref().unwrap();
    let (each, at) = (links.num_negatives(), |i: NodeId| seeds.nodes[i as usize]);
    let pair = |i: usize| (at(links.source[i]), at(links.destination[i]));
    let group = |p: usize| {
        let negatives = links.positives + p * each..links.positives + (p + 1) * each;
        std::iter::once(p).chain(negatives).map(pair).collect()
    };
    let mut groups: Vec<Vec<(NodeId, NodeId)>> = (0..links.positives).map(group).collect();
    groups.sort_unstable();
    groups
}

#[test]
fn shares_are_the_batch_of_one_process_and_no_block_has_an_excluded_edge() {
    let data = data();
    let of = (0..data.num_nodes() as u64).map(|v| (keyed::key(&[v]) % u64::from(PARTS)) as u16);
    let book = PartitionBook::new(PARTS, of.collect::<Vec<_>>()).unwrap();
    for name in sampler::TABLE.iter().filter(|row| !row.make.draws_subgraphs()).map(|row| row.name) {
        let weights = if name == "weighted" { "edge_weights=in-degree" } else { "" };
        let config = config(&format!("sampler={name} corrupt=both num_negatives=3 {weights}"));
        let task = LinkTask::new(&config, &data).unwrap();
        let (source, data) = (task.source(&config).unwrap(), &task.data);
        let (feature, _) = build::features(&config, data, MemoryPlacement::Mapped).unwrap();
        let sampler = build::sampler(&config, data).unwrap();
        let order = build::order(&config, data).unwrap();
        let whole = Loader {
            graph: &data.graph,
            train: &data.split.train,
            links: Some(&source),
            seed: config.seed,
            batch_size: config.batch_size,
            max_batches: 2,
            order: &*order,
            sampler: &*sampler,
            feature: &feature,
            rows: RowAccess::Gathered,
            transposed: 0,
            symmetric: None,
            aggregation: Aggregation::Mean,
            own: None,
            labels: None,
            ahead: None,
        };
        let mut numbers = Vec::new();
        whole.order(1, &mut numbers);
        for number in 0..whole.num_batches() {
            let draw = |loader: &Loader| {
                let mut workspace = Workspace::new(data.num_nodes());
                loader.draw(&numbers, 1, number, &mut workspace, MiniBatch::default()).unwrap()
            };
            let batch = draw(&whole);
            let batch = batch.sampled();
            let excluded = &batch.seeds.links.as_ref().unwrap().excluded;
            assert!(!excluded.is_empty());
            let (mut shared, mut read) = (Vec::new(), BTreeSet::new());
            for rank in 0..3 {
                let own = Arc::new(NodeOwnership::new(book.clone(), rank, 3).unwrap());
                let share = draw(&Loader { own: Some(own.clone()), ..whole.clone() });
                let share = share.sampled();
                let links = share.seeds.links.as_ref().unwrap();
                assert!(links.positives > 0 && links.positives < config.batch_size, "{name}");
                assert_eq!(share.seeds.global_size, Some(config.batch_size), "{name}");
                assert_eq!(&links.excluded, excluded, "{name}");
                let groups = groups(&share.seeds);
                assert!(groups.iter().all(|group| own.is_own(group[0].0)), "{name}");
                shared.extend(groups);
                for edge in edges(share) {
                    // a walk may lead to the other end over other edges
                    let is_crossed = !sampler.properties().leaves_out && excluded.contains(edge.0, edge.1);
                    assert!(!is_crossed, "{name}: rank {rank} reads {edge:?}");
                    read.insert(edge);
                }
            }
            shared.sort_unstable();
            assert_eq!(shared, groups(&batch.seeds), "{name}");
            assert_eq!(read, edges(batch).into_iter().collect(), "{name}: other neighbours");
        }
    }
}

#[test]
fn datasets_without_labels_and_split_are_learned_over_ranks() {
    let (mut data, temporary) = (data(), tempfile::tempdir().unwrap());
    data.labels = Labels::Single { class: vec![-1; data.num_nodes()].into(), classes: 0 };
    data.split = Split::default();
    let of: Vec<u16> = (0..data.num_nodes() as u16).map(|v| v % PARTS).collect();
    let (book, path) = (PartitionBook::new(PARTS, of).unwrap(), temporary.path().join("parts"));
    let dir = write(&data, &book, &Description::default(), &path, &progress::Quiet).unwrap();
    compare("model=sage", &data, &dir, 2);
}

#[test]
fn partitions_of_older_versions_are_refused() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let path = temporary.path().join("parts");
    partitioned(&data, &path);
    // files that the manifest does not name are not there
    let file = path.join("partition.json");
    let text = fs::read_to_string(&file).unwrap().replace("\"topology/", "\"unknown/");
    let field = "\"checksum\": \"";
    let at = text.rfind(field).unwrap() + field.len();
    let sign = |by: &str| format!("{}{by}{}", &text[..at], &text[at + 32..]);
    fs::write(&file, sign(&checksum(sign(&"0".repeat(32)).as_bytes()))).unwrap();
    let dir = PartitionDir::open(&path).unwrap();
    let ends = refusals(&config("model=sage"), &dir);
    assert!(ends.iter().any(|end| end.contains("partition the dataset again with this version")), "{ends:?}");
    // runs on nodes do not read them
    over_ranks(&TrainConfig { epochs: 1, ..ranks::config() }, &dir, 2);
}

/// Errors of two ranks.
fn refusals(config: &TrainConfig, dir: &PartitionDir) -> Vec<String> {
    on_ranks(2, PATIENCE, |_, post| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        over_ranks::train(config, dir, post, context).unwrap_err().to_string()
    })
}

#[test]
fn options_that_do_not_fit_links_over_ranks_are_refused_with_a_remedy() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, why) in [
        ("sampler=saint-node", "use --sampler neighbor"),
        ("reuse=layered", "--reuse layered with links"),
        ("cache_ratio=0.5", "leave out --host-budget and --cache-ratio"),
        ("graph_stores=1", "every rank has all edges"),
        ("split_edges=time:80,10,10", "split at random"),
        ("negatives=file negatives_file=pairs.npy", "use --negatives uniform, degree, in-batch or hard"),
        ("eval_every=auto", "--eval-every auto"),
    ] {
        let ends = refusals(&config(options), &dir);
        assert!(ends.iter().any(|end| end.contains(why)), "{options}: {ends:?}");
    }
}
