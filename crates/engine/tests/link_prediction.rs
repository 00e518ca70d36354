//! Runs that learn links: no batch reads its own edges, results do not depend on threads and
//! strategies, and an interrupted run resumes to the same bits.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use graphmill_core::{Block, Graph, NodeId, WholeDegrees};
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, Error, Result, RunContext, RunDir, TrainConfig, build,
    config::{Fanout, link::LINK},
    learner::Learner,
    link::{LinkTask, step::LinkObjective},
    memory::MemoryPlacement,
    observer::{Observer, Quiet},
    record::Summary,
    stage::{Loader, RowAccess},
    strategy::{Chosen, Epoch, Flow, StrategyContext},
    timeline::Timeline,
    train,
};
use graphmill_loader::{
    Feature, MinibatchSampler, Sampled, Seeds, Workspace,
    sampler::{self, BatchRequest, SamplerProperties, SplitSampler},
};
use graphmill_nn::{backend::Cpu, cost::BlockShape, model::Model};

use crate::set::with;

fn data(nodes: usize) -> Dataset {
    let options = GenerateOptions {
        nodes,
        degree: Some(12.0),
        classes: 4,
        dim: 8,
        p_in: 0.95,
        ..GenerateOptions::default()
    };
    generate("sbm", &options).unwrap()
}

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig {
        task: LINK.into(),
        epochs: 3,
        batch_size: 64,
        hidden: 16,
        fanout: Fanout(vec![4, 3]),
        dropout: 0.2,
        lr: 0.01,
        seed: 3,
        ..TrainConfig::default()
    };
    let mut config = with(base, options);
    config.derive_options(&["layers", "fanout"]).unwrap();
    config.check().unwrap();
    config
}

/// Bits of a run's results.
#[derive(Debug, Default, PartialEq)]
struct RunBits {
    /// Loss and validation score of each epoch.
    epochs: Vec<(u64, Option<u64>)>,
    weights: Vec<u32>,
    test: Option<u64>,
}

/// Observer that stores the weights.
#[derive(Default)]
struct Weights(Vec<u32>);

impl Observer for Weights {
    fn model(&mut self, model: &Model) {
        model.visit(&mut |_, param| self.0.extend(param.value.view().host().iter().map(|x| x.to_bits())));
    }
}

fn run_in(
    config: &TrainConfig,
    data: &Dataset,
    threads: usize,
    dir: Option<(&Path, bool)>,
    stop: u64,
) -> Result<(Summary, RunBits)> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let run = match dir {
            Some((dir, true)) => Some(RunDir::reopen(dir)?),
            Some((dir, false)) => Some(RunDir::create(dir)?),
            None => None,
        };
        let resume = dir.is_some_and(|(_, resume)| resume);
        let (polls, mut weights) = (AtomicU64::new(0), Weights::default());
        let stop = || polls.fetch_add(1, Relaxed) + 1 >= stop;
        let context = RunContext { run: run.as_ref(), resume, observer: &mut weights, stop: &stop };
        let summary = train(config, data, context)?;
        let epochs = summary.epochs.iter();
        let bits = RunBits {
            epochs: epochs.map(|e| (e.loss.to_bits(), e.valid_score.map(f64::to_bits))).collect(),
            weights: weights.0,
            test: summary.test.score.map(f64::to_bits),
        };
        Ok((summary, bits))
    })
}

fn run(config: &TrainConfig, data: &Dataset, threads: usize) -> (Summary, RunBits) {
    run_in(config, data, threads, None, u64::MAX).unwrap()
}

#[test]
fn models_learn_links_and_score_by_their_metric() {
    let data = data(400);
    for (options, metric) in [
        ("epochs=12", "auc"),
        ("epochs=12 model=gcn metric=average-precision", "average-precision"),
        ("epochs=12 model=gat loss=bpr candidates=all", "mrr"),
        ("metric=hits@50 decoder=mlp candidates=pairs", "hits@50"),
        ("metric=recall@20 negatives=degree num_negatives=3 decoder=cosine", "recall@20"),
        ("negatives=in-batch loss=info-nce num_negatives=8 corrupt=destination embedding_dim=8", "auc"),
        ("disjoint=0.4 loss=margin margin=0.5 decoder=distmult", "auc"),
        ("batch_size=0 exclude=none", "auc"),
    ] {
        let (summary, _) = run(&config(options), &data, 2);
        assert_eq!(summary.test.metric, metric, "{options}");
        let (score, valid) = (summary.test.score.unwrap(), summary.best.valid_score.unwrap());
        assert!((0.0..=1.0).contains(&score) && (0.0..=1.0).contains(&valid), "{options}: {score}");
        if options.starts_with("epochs=12") {
            let chance = if metric == "mrr" { 0.02 } else { 0.55 };
            assert!(score > chance, "{options}: {metric} {score}");
        }
    }
}

#[test]
fn every_option_of_links_changes_a_run() {
    let data = data(200);
    for (base, options) in [
        (
            "epochs=1",
            &[
                "decoder=cosine",
                "embedding_dim=4",
                "loss=bpr",
                "positives=walks",
                "negatives=degree",
                "num_negatives=3",
                "corrupt=source",
                "exclude=none",
                "disjoint=0.5",
                "split_edges=60,20,20",
                "candidates=all",
            ][..],
        ),
        (
            "epochs=1 positives=walks walk_nodes=6",
            &["walk_nodes=4", "walks_per_node=2", "walk_window=2", "walk_p=9", "walk_q=9"],
        ),
        ("epochs=2 negatives=hard", &["hard_candidates=9"]),
        ("epochs=1 decoder=mlp", &["decoder_hidden=8", "decoder=structure"]),
        ("epochs=1 loss=margin", &["margin=3"]),
        ("epochs=1 loss=info-nce num_negatives=3", &["temperature=1"]),
        ("epochs=1 loss=self-adversarial num_negatives=3", &["adversarial=3"]),
    ] {
        let expected = run(&config(base), &data, 2).1;
        for option in options {
            assert!(run(&config(&format!("{base} {option}")), &data, 2).1 != expected, "{base} {option}");
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_and_strategies() {
    let data = data(300);
    for options in [
        "model=sage",
        "model=gcn decoder=mlp corrupt=both num_negatives=2 candidates=all",
        "model=sage decoder=structure",
    ] {
        let expected = run(&config(options), &data, 1).1;
        assert!(expected.epochs.len() == 3 && !expected.weights.is_empty());
        for threads in [2, 3] {
            assert_eq!(run(&config(options), &data, threads).1, expected, "{options}");
        }
        for strategy in [
            "strategy=pipelined",
            "strategy=time-sharing devices=virtual:2 batches_per_update=1",
            "strategy=time-sharing devices=virtual:1 overlap=on",
            "strategy=factored devices=virtual:3 num_samplers=1 batches_per_update=1",
        ] {
            let config = config(&format!("{options} {strategy}"));
            assert_eq!(run(&config, &data, 3).1, expected, "{options} {strategy}");
        }
    }
}

/// Devices that train on links together learn what one device learns in rounds of as many batches.
#[test]
fn several_devices_train_on_the_links_of_a_round() {
    let data = data(300);
    for options in ["model=sage negatives=hard num_negatives=2", "model=gcn decoder=mlp"] {
        let of = |devices: &str| run(&config(&format!("{options} {devices}")), &data, 2);
        let (one, expected) = of("strategy=time-sharing devices=virtual:1 batches_per_update=2");
        assert!(one.epochs[2].loss < one.epochs[0].loss, "{options}");
        for devices in [
            "strategy=time-sharing devices=virtual:2",
            "strategy=factored devices=virtual:3 num_samplers=1 batches_per_update=2",
        ] {
            let (summary, bits) = of(devices);
            assert_eq!(bits, expected, "{options} {devices}");
            assert!(summary.epochs.iter().all(|epoch| epoch.devices.len() > 1), "{options} {devices}");
            let edges = summary.epochs.iter().map(|epoch| epoch.seeds).collect::<Vec<_>>();
            assert_eq!(edges, one.epochs.iter().map(|epoch| epoch.seeds).collect::<Vec<_>>());
        }
        let alone = of("strategy=time-sharing devices=virtual:1").1;
        assert_ne!(alone.weights, expected.weights, "{options}: an update has two batches");
        let (late, bits) = of("strategy=factored devices=virtual:2 updates=asynchronous staleness=2");
        assert!(late.staleness.max == 2 && late.epochs[2].loss.is_finite(), "{options}");
        let again = of("strategy=time-sharing devices=virtual:3 updates=asynchronous staleness=2").1;
        assert_eq!(again, bits, "{options}");
    }
}

#[test]
fn interrupted_runs_resume_to_the_same_bits() {
    let data = data(300);
    let config = config("model=sage decoder=mlp patience=5");
    let expected = run(&config, &data, 2).1;
    let batches = LinkTask::new(&config, &data).unwrap().train.len().div_ceil(64) as u64;
    for stop in [1, batches / 2, batches, batches + 3] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let stopped = run_in(&config, &data, 2, Some((&path, false)), stop);
        assert!(matches!(stopped, Err(Error::Interrupted { .. })), "after batch {stop}");
        let found = run_in(&config, &data, 2, Some((&path, true)), u64::MAX).unwrap().1;
        assert_eq!(found, expected, "after batch {stop}");
    }
}

/// A sampler that compares every batch with that of the graph without the edges of the batch.
struct Watched<'a> {
    inner: Box<dyn MinibatchSampler>,
    config: &'a TrainConfig,
    data: &'a Dataset,
    batches: Arc<AtomicU64>,
    edges: Arc<AtomicU64>,
}

/// Edges of all blocks, as node ids.
pub(crate) fn edges(batch: &Sampled) -> Vec<(NodeId, NodeId)> {
    // the sources of a block are a prefix of the input nodes
    let of = |block: &Block| {
        let rows = 0..block.num_dst;
        let pairs = rows.flat_map(|v| {
            let row = block.indptr[v] as usize..block.indptr[v + 1] as usize;
            block.indices[row].iter().map(move |&u| (u as usize, v))
        });
        let ids = &batch.input_nodes;
        pairs.map(|(u, v)| (ids[u], ids[v])).collect::<Vec<_>>()
    };
    batch.blocks.iter().flat_map(of).collect()
}

/// The graph without these edges, each a source and a destination, with the degrees of the whole.
fn without(graph: &Graph, edges: &[(NodeId, NodeId)]) -> Graph {
    let degrees: Vec<u32> = (0..graph.num_nodes()).map(|v| graph.in_degree(v as NodeId) as u32).collect();
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for v in 0..graph.num_nodes() as NodeId {
        indices.extend(graph.in_neighbors(v).iter().copied().filter(|&u| !edges.contains(&(u, v))));
        indptr.push(indices.len() as u64);
    }
    let whole = WholeDegrees { of_in: degrees.into(), of_out: None };
    Graph::new(indptr.into(), indices.into()).unwrap().with_whole_degrees(whole)
}

impl MinibatchSampler for Watched<'_> {
    fn sample(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        seeds: Seeds,
    ) -> graphmill_core::Result<Sampled> {
        let batch = self.inner.sample(request, workspace, seeds)?;
        let links = batch.seeds.links.as_ref().expect("a batch of links");
        let ends = links.source.iter().zip(&links.destination).take(links.positives);
        let ids = &batch.seeds.nodes;
        let own: Vec<(NodeId, NodeId)> = ends
            .flat_map(|(&u, &v)| [(ids[u as usize], ids[v as usize]), (ids[v as usize], ids[u as usize])])
            .collect();
        let (read, number) = (edges(&batch), batch.seeds.number);
        let graph = without(request.graph, &own);
        let data = Dataset { graph: graph.clone(), ..self.data.clone() };
        let expected = build::sampler(self.config, &data)
            .unwrap()
            .sample(
                &BatchRequest { graph: &graph, ..*request },
                &mut Workspace::new(graph.num_nodes()),
                Seeds::new(number, ids.clone()),
            )
            .unwrap();
        assert_eq!(batch.input_nodes, expected.input_nodes, "batch {number}");
        for (a, b) in batch.blocks.iter().zip(&expected.blocks) {
            assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices), "batch {number}");
            assert_eq!(a.edge_weight, b.edge_weight, "batch {number}");
        }
        self.batches.fetch_add(1, Relaxed);
        self.edges.fetch_add(read.len() as u64, Relaxed);
        Ok(batch)
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        self.inner.split()
    }

    fn properties(&self) -> SamplerProperties {
        self.inner.properties()
    }
}

#[test]
fn batches_are_those_of_the_graph_without_their_own_edges() {
    let data = data(200);
    for name in sampler::TABLE.iter().filter(|row| !row.make.draws_subgraphs()).map(|row| row.name) {
        for strategy in ["sequential", "pipelined"] {
            watch(&data, name, strategy, "");
            if name != "full" {
                watch(&data, name, strategy, "fanout=-1,-1");
            }
        }
    }
}

/// Trains with a sampler whose batches are watched.
fn watch(data: &Dataset, name: &str, strategy: &str, fanout: &str) {
    let weights = if name == "weighted" { "edge_weights=in-degree" } else { "" };
    let config = config(&format!("sampler={name} strategy={strategy} batch_size=50 {fanout} {weights}"));
    let task = LinkTask::new(&config, data).unwrap();
    let (source, data) = (task.source(&config).unwrap(), &task.data);
    let model = build::model(&config, data).unwrap();
    let (feature, _) = build::features(&config, data, MemoryPlacement::Mapped).unwrap();
    let feature: Arc<dyn Feature> = Arc::new(feature);
    let shape = BlockShape { dst: 20, src: 60, edges: 60 };
    let orders = model.orders(&[shape, shape]);
    let [batches, edges] = [Arc::<AtomicU64>::default(), Arc::default()];
    let inner = build::sampler(&config, data).unwrap();
    let sampler = Watched { inner, config: &config, data, batches: batches.clone(), edges: edges.clone() };
    let order = build::order(&config, data).unwrap();
    let loader = Loader {
        graph: &data.graph,
        train: &data.split.train,
        links: Some(&source),
        seed: config.seed,
        batch_size: config.batch_size,
        max_batches: 0,
        order: &*order,
        sampler: &sampler,
        feature: &*feature,
        rows: RowAccess::Gathered,
        transposed: !0,
        symmetric: build::symmetric(&model, data),
        aggregation: model.aggregation(),
        own: None,
        labels: None,
        ahead: None,
    };
    let (backend, optimizer) = (Cpu::default(), build::optimizer(&config).unwrap());
    let mut learner = Learner::new(&backend, model, optimizer, &data.labels, orders, &config);
    learner.context.links = Some(LinkObjective::new(&config, data.num_nodes()).unwrap());
    let setting = StrategyContext::new(&config, data, &sampler, &*order, &feature);
    let mut runner = Chosen::find(&config).unwrap().make(setting).unwrap();
    let (timeline, mut seeds) = (Timeline::begin(), Vec::new());
    for number in 0..2 {
        loader.order(number, &mut seeds);
        let epoch = Epoch {
            number,
            order: &seeds,
            from: 0,
            to: loader.num_batches(),
            loader: &loader,
            learner: &mut learner,
            lr: &|_| 0.01,
            after: &mut |_, done| {
                assert!(done.iter().all(|done| done.outcome.loss.is_finite()));
                Ok(Flow::Continue)
            },
            timeline: &timeline,
        };
        runner.run(epoch).unwrap();
    }
    let drawn = batches.load(Relaxed);
    assert!(drawn >= 2 * loader.num_batches(), "{name}, {strategy}: {drawn} batches");
    assert!(edges.load(Relaxed) > drawn, "{name}, {strategy}: batches read edges");
}

#[test]
fn parts_are_disjoint_and_never_read() {
    let data = data(300);
    for options in ["model=sage", "disjoint=0.5"] {
        let task = LinkTask::new(&config(options), &data).unwrap();
        assert!(
            task.undirected && !task.valid.edges.is_empty() && task.test.edges.len() > task.valid.edges.len()
        );
        let has = |&(u, v): &(NodeId, NodeId)| task.data.graph.in_neighbors(v).binary_search(&u).is_ok();
        let reads = |&(u, v): &(NodeId, NodeId)| has(&(u, v)) || has(&(v, u));
        assert!(!task.valid.edges.iter().chain(&task.test.edges).any(reads), "{options}");
        let learned_and_read = task.train.iter().filter(|edge| reads(edge)).count();
        assert_eq!(learned_and_read, if options == "disjoint=0.5" { 0 } else { task.train.len() });
    }
}

/// Caches are filled by batches of links, and change where rows are read and no bit.
#[test]
fn caches_and_simulated_devices_change_no_bit() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("data");
    data(300).save(&dir).unwrap();
    let data = Dataset::open(&dir).unwrap();
    let of = |options: &str| TrainConfig {
        dataset: dir.to_str().unwrap().into(),
        ..config(&format!("epochs=2 fused=off {options}"))
    };
    let (_, plain) = run(&of(""), &data, 2);
    for options in [
        "cache_ratio=0.3",
        "cache_ratio=0.3 cache=lru strategy=pipelined",
        "host_budget=4000",
        "devices=virtual:1 cache_ratio=0.3",
        "devices=virtual:2 cache_ratio=0.2 cache=weighted-reverse-pagerank",
        "devices=virtual:1 cache_ratio=0.3 cache=presc-online:1 host_budget=4000 host_cache=degree",
        "devices=virtual:2 cache_ratio=0.2 strategy=time-sharing batches_per_update=1",
        "devices=virtual:2 cache_ratio=0.2 strategy=time-sharing batches_per_update=1 cache=presc-online:1",
        "devices=virtual:3 cache_ratio=0.2 strategy=factored batches_per_update=1 host_budget=4000",
    ] {
        let (summary, bits) = run(&of(options), &data, 2);
        assert_eq!(bits, plain, "{options}");
        let traffic = summary.epochs[1].traffic;
        let near = if options.contains("devices") {
            traffic.device.rows + traffic.peer.rows
        } else {
            traffic.host.rows
        };
        assert!(near > 0 && near < traffic.rows(), "{options}: {traffic:?}");
    }
    // a budget for the steps, the maps of a cache and some of the rows
    let refused = run_in(&of("devices=virtual:1 device_budget=1000"), &data, 2, None, u64::MAX);
    let message = refused.unwrap_err().to_string();
    let number = |after: &str| -> u64 {
        let rest = message.split(after).nth(1).unwrap_or_else(|| panic!("{message}"));
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let budget = number("a training step takes ") + number("the maps of a cache ") + 4_000;
    let (summary, bits) = run(&of(&format!("devices=virtual:1 device_budget={budget}")), &data, 2);
    assert_eq!(bits, plain);
    let traffic = summary.epochs[1].traffic;
    assert!(traffic.device.rows > 0 && traffic.device.rows < traffic.rows(), "{budget}: {traffic:?}");
    // each device also holds the graph and the memory of a sampler
    let budget = budget + 40_000;
    let options =
        format!("devices=virtual:2 device_budget={budget} strategy=time-sharing batches_per_update=1");
    assert_eq!(run(&of(&options), &data, 2).1, plain);
    // a checkpoint holds the counts of batches with hard negatives
    let counted = of("devices=virtual:1 cache_ratio=0.3 cache=presc-online:1 negatives=hard");
    let (whole, expected) = run(&counted, &data, 2);
    let path = temporary.path().join("run");
    let stopped = run_in(&counted, &data, 2, Some((&path, false)), 3);
    assert!(matches!(stopped, Err(Error::Interrupted { .. })));
    let (resumed, bits) = run_in(&counted, &data, 2, Some((&path, true)), u64::MAX).unwrap();
    assert_eq!(bits, expected);
    assert_eq!(resumed.epochs[1].traffic.device.rows, whole.epochs[1].traffic.device.rows);
}

#[test]
fn options_that_do_not_fit_links_are_refused_with_a_remedy() {
    let data = data(100);
    for (options, why) in [
        ("sampler=saint-node", "use --sampler neighbor"),
        ("strategy=historical", "use --strategy sequential, pipelined, factored or time-sharing"),
        ("reuse=layered", "--reuse layered with links"),
        ("order=proximity", "use --order random or sequential"),
        ("devices=virtual:1 device_budget=1000", "a training step takes"),
        ("devices=virtual:1 cache_ratio=0.5 cache=posterior:2", "use presc:2"),
        ("metric=accuracy", "unknown rank metric 'accuracy'"),
        ("metric=auc candidates=all", "use --candidates pairs, or --metric mrr"),
        ("metric=ndcg@5 candidates=pairs", "use --candidates all, or --metric hits@10"),
        ("batch_size=0", "use --batch-size"),
        ("loss=sampled-softmax negatives=degree", "--loss info-nce"),
        ("decoder=complex embedding_dim=7", "must be even"),
    ] {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let message = train(&config(options), &data, context).unwrap_err().to_string();
        assert!(message.contains(why), "{options}: {message}");
    }
    for (option, value, why) in [
        ("decoder", "dott", "known: dot"),
        ("split_edges", "80,20", "such as 85,5,10"),
        ("split_edges", "0,5,5", "the first of them above 0"),
    ] {
        let mut config = config("model=sage");
        let set = graphmill_engine::options::key(option).unwrap().parse(&mut config, value);
        let message =
            set.err().map(|e| format!("{e:?}")).or_else(|| config.check().err().map(|e| e.to_string()));
        assert!(message.as_ref().is_some_and(|message| message.contains(why)), "{option}: {message:?}");
    }
}

#[test]
fn trained_models_have_embeddings_and_no_classes() {
    let data = data(200);
    let config = TrainConfig { fanout: Fanout(vec![4, 3]), ..config("epochs=1 embedding_dim=8") };
    let trained = graphmill_engine::fit(&config, &data).unwrap();
    let rows = trained.embeddings(&data, &[3, 1, 7]).unwrap();
    assert_eq!((rows.num_rows(), rows.num_cols()), (3, 8));
    let message = trained.classes(&data, &[0]).unwrap_err().to_string();
    assert!(message.contains("use its embeddings"), "{message}");
}
