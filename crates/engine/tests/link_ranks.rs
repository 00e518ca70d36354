//! Several ranks learn links as one process does: the same batches, losses and scores, whatever the
//! partition, and after a stop and resume.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use graphmill_core::{
    EdgeOptions, Labels, NodeId, Split, block::Aggregation, build as build_graph, keyed, progress,
};
use graphmill_data::{
    checksum::checksum,
    partition::{Description, PartitionBook, PartitionDir, TypedPartitionDir, write},
    typed::TypedDataset,
};
use graphmill_distributed::NodeOwnership;
use graphmill_engine::{
    CandidateOptions, Dataset, EmbedOptions, Error, RunContext, TrainConfig, build,
    config::link::LINK,
    link::LinkTask,
    memory::MemoryPlacement,
    observer::Quiet,
    record::Summary,
    saved::{SavedRun, Selection},
    stage::{Loader, RowAccess},
    strategy,
    trainer::over_ranks,
    typed,
};
use graphmill_loader::{Fanout, MiniBatch, Seeds, Workspace, sampler};

use crate::{
    distributed::with_directory,
    link_prediction::edges,
    ranks::{self, PARTS, PATIENCE, alone, assert_alike, close, data, on_ranks, over_ranks, partitioned},
    set::{checked, with},
    typed_links::shop,
    typed_ranks::{self, refused, with_edge_features},
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
    let reference = match strategy::TABLE.get(&config.strategy) {
        // updates by as many batches
        Some(entry) if (entry.make.by_device)(&config) => config.clone(),
        _ => TrainConfig { strategy: "sequential".into(), ..config.clone() },
    };
    let one = alone(&reference, data);
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
        (2, "model=gcn decoder=mlp strategy=time-sharing batches_per_update=1"),
        (2, "strategy=time-sharing devices=virtual:2 cache_ratio=0.2 num_negatives=2"),
        (3, "strategy=factored devices=virtual:2 num_samplers=1 cache_ratio=0.2 cache=fifo"),
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
                    let is_read = name != "random-walk" && excluded.contains(edge.0, edge.1);
                    assert!(!is_read, "{name}: rank {rank} reads {edge:?}");
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

/// Changes a manifest and its checksum.
fn rewrite(file: &Path, change: impl Fn(String) -> String) {
    let text = change(fs::read_to_string(file).unwrap());
    let field = "\"checksum\": \"";
    let at = text.rfind(field).unwrap() + field.len();
    let sign = |by: &str| format!("{}{by}{}", &text[..at], &text[at + 32..]);
    fs::write(file, sign(&checksum(sign(&"0".repeat(32)).as_bytes()))).unwrap();
}

#[test]
fn partitions_of_older_versions_are_refused() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let path = temporary.path().join("parts");
    partitioned(&data, &path);
    // files that the manifest does not name are not there
    rewrite(&path.join("partition.json"), |text| text.replace("\"topology/", "\"unknown/"));
    let dir = PartitionDir::open(&path).unwrap();
    let ends = refusals(&config("model=sage"), &dir);
    assert!(ends.iter().any(|end| end.contains("partition the dataset again with this version")), "{ends:?}");
    // runs on nodes do not read them
    over_ranks(&TrainConfig { epochs: 1, ..ranks::config() }, &dir, 2);
}

#[test]
fn caches_of_ranks_on_links_change_no_bit_and_reduce_traffic() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let plain = over_ranks(&config("epochs=4"), &dir, 2);
    let remote =
        |of: &[Summary]| -> Vec<u64> { of[0].epochs.iter().map(|epoch| epoch.traffic.remote.rows).collect() };
    for options in [
        "cache_ratio=0.2",
        "cache_ratio=0.2 cache=degree strategy=pipelined allocation=1,1,1",
        "cache_ratio=0.2 cache=presc:2",
        "cache_ratio=0.2 cache=presc-online:2",
        // own rows on disk
        "host_budget=14000 cache=fifo",
        "devices=virtual:1 cache_ratio=0.2",
        "devices=virtual:2 cache_ratio=0.1 cache=degree strategy=pipelined allocation=1,1,1",
    ] {
        let cached = over_ranks(&config(&format!("epochs=4 {options}")), &dir, 2);
        assert_eq!(loss_bits(&cached[0]), loss_bits(&plain[0]), "{options}");
        assert!(remote(&cached)[3] < remote(&plain)[3], "{options}: {:?}", remote(&cached));
        let traffic = cached[0].epochs[3].traffic;
        assert_eq!(traffic.disk.rows > 0, options.contains("host_budget"), "{options}");
        let is_online = options.contains("online");
        assert_eq!(remote(&cached)[1] == remote(&plain)[1], is_online, "{options}");
    }
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
        ("cache_ratio=0.5 cache=posterior:2", "use presc:2"),
        ("devices=virtual:1 device_budget=1000", "a training step takes"),
        ("graph_stores=1", "every rank has all edges"),
        ("split_edges=time:80,10,10", "split at random"),
        ("negatives=file negatives_file=pairs.npy", "use --negatives uniform, degree, in-batch or hard"),
    ] {
        let ends = refusals(&config(options), &dir);
        assert!(ends.iter().any(|end| end.contains(why)), "{options}: {ends:?}");
    }
}

/// Options of a run on links of several types on the partition in a directory.
fn of_types(dir: &TypedPartitionDir, options: &str) -> TrainConfig {
    let config = TrainConfig {
        dataset: dir.path().display().to_string(),
        task: "likes".into(),
        model: "rsage".into(),
        hidden: 8,
        fanout: Fanout(vec![4, 3]),
        batch_size: 50,
        epochs: 2,
        lr: 0.01,
        dropout: 0.0,
        ..TrainConfig::default()
    };
    let mut config = with(config, options);
    config.derive_options(&["task", "model", "fanout", "layers", "hidden"]).unwrap();
    config.check().unwrap();
    config
}

/// Compares a run on links of several types over `size` ranks with one of a single process.
fn compare_types(options: &str, data: &TypedDataset, dir: &TypedPartitionDir, size: usize) {
    let config = of_types(dir, options);
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let plain = TrainConfig { strategy: "sequential".into(), ..config.clone() };
    let one = typed::links::train(&plain, data, context).unwrap();
    let (many, what) = (typed_ranks::over_ranks(&config, dir, size), format!("{size} ranks, {options}"));
    for summary in &many {
        assert_eq!((&summary.dataset, &summary.test.metric), (&one.dataset, &one.test.metric), "{what}");
        assert_eq!(loss_bits(summary), loss_bits(&many[0]), "{what}: ranks report different losses");
        for (a, b) in summary.epochs.iter().zip(&one.epochs) {
            assert!(close(a.loss, b.loss) && a.seeds == b.seeds, "{what}: loss {} and {}", a.loss, b.loss);
            let [a, b] = [a, b].map(|epoch| epoch.valid_score.unwrap());
            assert!((a - b).abs() < 0.02, "{what}: score {a} and {b}");
        }
        let [a, b] = [summary, &one].map(|of| of.test.score.unwrap());
        assert!((a - b).abs() < 0.02, "{what}: score {a} and {b}");
    }
    let (epoch, whole) = (&many[0].epochs[1], &one.epochs[1]);
    assert_eq!(epoch.ranks.iter().map(|rank| rank.seeds).sum::<u64>(), whole.seeds, "{what}");
    // a budget for all rows leaves nothing to request
    let requests = size > 1 && !options.contains("device_budget");
    assert_eq!((epoch.ranks.len(), epoch.traffic.remote.rows > 0), (size, requests), "{what}");
    assert!(epoch.ranks.iter().all(|rank| rank.sample_bytes == 0), "{what}: neighbours are requested");
    if size == 1 {
        let scores = |of: &Summary| (of.epochs[1].valid_score.unwrap(), of.test.score.unwrap());
        assert_eq!((loss_bits(&one), scores(&one)), (loss_bits(&many[0]), scores(&many[0])), "{what}");
        assert_eq!((&epoch.node_types, &epoch.edge_types), (&whole.node_types, &whole.edge_types));
    }
}

#[test]
fn ranks_learn_links_of_several_types_as_one_process_does() {
    let temporary = tempfile::tempdir().unwrap();
    let data = shop(&temporary.path().join("data"));
    let dir = typed_ranks::partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "task=link decoder=distmult corrupt=both norm=layer"),
        (2, "model=rgcn strategy=pipelined decoder=mlp"),
        (3, "task=link decoder=distmult model=rgat heads=2 loss=bpr num_negatives=3"),
        (2, "sampler=labor negatives=in-batch loss=info-nce num_negatives=4"),
        (4, "negatives=degree metric=hits@10 corrupt=both num_negatives=2"),
        (3, "disjoint=0.4 metric=recall@20"),
        (2, "task=tag:of:item metric=auc batch_size=10"),
        (4, "batch_size=3 max_batches=9"),
        (1, "sampler=metapath-walk num_walks=8"),
        (3, "sampler=metapath-walk num_walks=8"),
        (2, "model=hgt heads=2 sampler=full exclude=edges eval_nodes=20"),
        (1, "cache_ratio=0.3"),
        (3, "cache_ratio=0.3 cache=lru strategy=pipelined"),
        (2, "host_budget=500 cache=degree"),
        (2, "devices=virtual:1 cache_ratio=0.3"),
        (3, "devices=virtual:1 device_budget=100000000"),
    ] {
        compare_types(options, &data, &dir, size);
    }
}

/// Caches hold rows of other ranks, chosen by a rank's own shares of the batches, and change no
/// bit.
#[test]
fn caches_of_ranks_that_learn_links_of_several_types_change_no_bit() {
    let temporary = tempfile::tempdir().unwrap();
    let data = shop(&temporary.path().join("data"));
    let dir = typed_ranks::partitioned(&data, &temporary.path().join("parts"));
    let run = |options: &str| typed_ranks::over_ranks(&of_types(&dir, options), &dir, 2).remove(0);
    let results = |of: &Summary| (loss_bits(of), of.epochs[1].valid_score, of.test.score);
    let plain = run("");
    let cached = run("cache_ratio=0.5");
    assert_eq!(results(&cached), results(&plain));
    let [with, without] = [&cached, &plain].map(|of| of.epochs[1].traffic);
    assert!(with.host.rows > without.host.rows && with.remote.rows < without.remote.rows, "{with:?}");
    assert_eq!(with.rows(), without.rows());
    let by_type = &cached.epochs[1].type_traffic;
    assert_eq!(by_type.iter().map(|of| of.traffic.host.rows).sum::<u64>(), with.host.rows);
}

#[test]
fn links_with_edge_features_and_a_split_by_time_are_learned_over_ranks() {
    let temporary = tempfile::tempdir().unwrap();
    let mut data = with_edge_features(shop(&temporary.path().join("data")));
    let likes = data.edges.iter_mut().find(|edges| edges.edge_type.name == "likes").unwrap();
    likes.time = Some((0..likes.num_edges() as i64).map(|e| e * 31 % 60).collect::<Vec<_>>().into());
    let dir = typed_ranks::partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (1, "model=gine"),
        (3, "model=sage-edge strategy=pipelined"),
        (2, "model=gatv2-edge heads=2 task=user:likes:item split_edges=time:80,10,10"),
    ] {
        compare_types(options, &data, &dir, size);
    }
}

#[test]
fn stopped_runs_on_links_of_several_types_resume_and_answer_in_one_process() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("data");
    let data = shop(&path);
    let dir = typed_ranks::partitioned(&data, &temporary.path().join("parts"));
    let base = "task=link decoder=distmult";
    for (i, (options, size)) in
        [("", 3), ("", 1), ("negatives=hard hard_candidates=10", 3), ("", 4)].into_iter().enumerate()
    {
        let config = of_types(&dir, &format!("{base} {options} epochs=3"));
        let whole = typed_ranks::over_ranks(&config, &dir, 3);
        let batches = whole[0].epochs[0].seeds.div_ceil(50);
        let out = temporary.path().join(format!("run-{i}"));
        for end in typed_ranks::with_directory(&config, &dir, 3, &out, Some((1, batches + batches / 2))) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{options}: {end:?}");
        }
        let resumed = typed_ranks::with_directory(&config, &dir, size, &out, None);
        let resumed = resumed.into_iter().map(Result::unwrap).next().unwrap();
        assert_eq!(resumed.epochs.len(), 3);
        for (a, b) in resumed.epochs.iter().zip(&whole[0].epochs) {
            assert!(a.seeds == b.seeds && close(a.loss, b.loss), "{options}: {} and {}", a.loss, b.loss);
        }
        if size == 3 {
            assert_eq!(loss_bits(&resumed), loss_bits(&whole[0]), "{options}");
            assert_eq!(resumed.test.score, whole[0].test.score, "{options}");
        }
        // the directory has the learned rows of all ranks
        let (saved, other) = (SavedRun::open(&out, false).unwrap(), Some(path.as_path()));
        let scores = saved.scores_on(other, &progress::Quiet).unwrap();
        assert!((scores.test.unwrap() - resumed.test.score.unwrap()).abs() < 1e-6, "{options}");
        let best = CandidateOptions { k: 3, relation: Some("likes"), ..CandidateOptions::default() };
        let best = saved.candidates_on(other, Selection::All, best, &progress::Quiet).unwrap();
        assert_eq!(best.nodes.len(), 3 * data.nodes[2].count);
        let (rows, users) = (temporary.path().join("rows.npy"), Some("user"));
        let users = EmbedOptions { node_type: users, ..EmbedOptions::default() };
        let (_, written) = saved.embed_on(other, Selection::All, users, &rows, &progress::Quiet).unwrap();
        assert_eq!((written.rows, written.cols), (data.nodes[2].count, 8));
    }
}

#[test]
fn options_of_a_partition_of_several_types_know_its_links() {
    let temporary = tempfile::tempdir().unwrap();
    let data = shop(&temporary.path().join("data"));
    let dir = typed_ranks::partitioned(&data, &temporary.path().join("parts"));
    let base = TrainConfig { dataset: dir.path().display().to_string(), ..TrainConfig::default() };
    for task in [LINK, "returns", "tag:of:item"] {
        let options = [("task", task), ("num_negatives", "2"), ("max_batches", "3")];
        assert_eq!(checked(base.clone(), &options).unwrap().model, "rsage", "{task}");
    }
    let error = checked(base, &[("task", LINK), ("head_layers", "1")]).unwrap_err().to_string();
    assert!(error.contains("the decoder scores the rows of the last layer"), "{error}");
}

#[test]
fn what_ranks_on_links_of_several_types_cannot_follow_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let data = shop(&temporary.path().join("data"));
    let path = temporary.path().join("parts");
    let dir = typed_ranks::partitioned(&data, &path);
    for (options, why) in [
        ("sampler=saint-node", "use --sampler neighbor"),
        ("graph_stores=1", "every rank has all edges"),
        ("negatives=file negatives_file=pairs.npy", "use --negatives uniform, degree, in-batch or hard"),
        ("task=user:likes:item split_edges=time:80,10,10", "its edges have no times"),
        ("model=gine", "no edge type has features, which --model gine reads"),
        ("task=link decoder=dot", "scores edges of all 2 relations alike"),
        ("task=link decoder=structure", "it is not available over several ranks"),
    ] {
        refused(&of_types(&dir, options), &dir, 2, why);
    }
    let one_type = TrainConfig { model: "sage".into(), ..of_types(&dir, "") };
    refused(&one_type, &dir, 2, "by a model of types");
    refused(
        &TrainConfig { task: "buys".into(), ..of_types(&dir, "") },
        &dir,
        2,
        "unknown task 'buys'; known: likes, returns",
    );
    let mut timed = data.clone();
    let rows = timed.rows_of(&timed.tasks[0]);
    timed.tasks[0].time = Some(vec![7i64; rows].into());
    let of_times = typed_ranks::partitioned(&timed, &temporary.path().join("times"));
    refused(&of_types(&of_times, ""), &of_times, 2, "the rows of task 'likes' have times");
    // a partition of an older version
    rewrite(&path.join("partition.json"), |text| {
        let at = text.find("\"topology\":").unwrap();
        let end = at + text[at..].find(',').unwrap() + 1;
        format!("{}{}", &text[..at], text[end..].trim_start())
    });
    let older = TypedPartitionDir::open(&path).unwrap();
    assert!(older.topology(graphmill_data::typed::Verify::Once).unwrap().is_none());
    for task in [LINK, "user:likes:item"] {
        let config = TrainConfig { task: task.into(), ..of_types(&dir, "") };
        refused(&config, &older, 2, "partition the dataset again with this version");
    }
}
