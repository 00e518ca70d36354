//! Graph stores that hold and serve the graph, and ranks that train on it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Progress, Quiet},
    record::Summary,
    trainer::over_ranks,
};

use crate::ranks::{
    PATIENCE, alone, assert_alike, close, config, data, on_ranks, over_ranks as train, partitioned,
};
use crate::set::with;

#[test]
fn stores_and_trainers_give_the_losses_of_one_process() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (2, "graph_stores=1 model=sage"),
        (4, "graph_stores=2 model=gcn strategy=pipelined allocation=1,1,1"),
        (3, "graph_stores=1 model=sage cache=degree cache_ratio=0.3 order=proximity order_sequences=4"),
        (3, "graph_stores=1 model=sage strategy=time-sharing devices=virtual:2 cache_ratio=0.2"),
        (3, "graph_stores=2 model=sage strategy=factored devices=virtual:2 cache_ratio=0.2 num_samplers=1"),
        (5, "graph_stores=4 model=pinsage sampler=random-walk"),
        (3, "graph_stores=1 model=sage sampler=weighted edge_weights=out-degree"),
    ] {
        let config = with(config(), options);
        let stores = config.graph_stores;
        let many = train(&config, &dir, size);
        assert_alike(&alone(&with(config, "graph_stores=0 cache_ratio=auto"), &data), &many, options);
        let epoch = &many[0].epochs[1];
        for rank in &epoch.ranks {
            assert_eq!(rank.seeds > 0, rank.rank < size - stores, "{options}: {rank:?}");
            assert!(rank.sample_bytes > 0, "{options}: {rank:?}");
            let stages = rank.stages;
            let serves = options.contains("random-walk") || stages.subgraphs > 0.0;
            match rank.rank < size - stores {
                true => assert!(stages.network > 0.0 && stages.compute > 0.0 && stages.requests == 0.0),
                false => assert!(stages.requests > 0.0 && serves && stages.compute == 0.0, "{stages:?}"),
            }
        }
        // gradients are summed over the ranks that train
        let (training, serving) = epoch.ranks.split_at(size - stores);
        let least = training.iter().map(|rank| rank.sum_bytes).min().unwrap();
        let most = serving.iter().map(|rank| rank.sum_bytes).max().unwrap();
        assert!(training.len() == 1 || least > 2 * most, "{options}: {least} and {most} bytes");
        assert_eq!(epoch.traffic.host.rows > 0, options.contains("cache=degree"), "{options}");
    }
}

/// With frozen parameters, reused rows equal new ones. The ranks that train make them in turns,
/// from neighbours and features of the stores.
#[test]
fn ranks_that_train_reuse_rows_of_nodes_that_stores_own() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let frozen = "sampler=full lr=1e-30 reuse=layered super_batch=3";
    for (size, options) in [
        (3, "graph_stores=1 hot_prefetch=on"),
        (4, "graph_stores=2 hot_prefetch=off model=gcn hot_rank=0 strategy=pipelined allocation=1,1,1"),
        (3, "graph_stores=1 strategy=time-sharing devices=virtual:2 hot_metric=presc:1 hot_ratio=0.3"),
    ] {
        let mut config = with(config(), &format!("{frozen} {options}"));
        config.derive_options(&["fanout", "layers"]).unwrap();
        let many = train(&config, &dir, size);
        let exact = "graph_stores=0 strategy=sequential devices=cpu reuse=none";
        assert_alike(&alone(&with(config.clone(), exact), &data), &many, options);
        let (training, stores) = many.split_at(size - config.graph_stores);
        let reuse = |summary: &Summary| {
            summary.epochs[1].reuse.map(|reuse| [reuse.asked_rows, reuse.reused_rows, reuse.made_rows])
        };
        let first = reuse(&training[0]).unwrap();
        assert!(first[1] > 0 && first[2] > 0, "{options}: {first:?}");
        assert!(training.iter().all(|summary| reuse(summary) == Some(first)), "{options}");
        assert!(stores.iter().all(|summary| reuse(summary).is_none()), "{options}");
        assert!(training[0].staleness.max <= training[0].staleness.bound, "{options}");
    }
}

fn bits(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

/// Subgraphs of about 60 nodes of a rank's parts.
fn of_subgraphs(options: &str) -> TrainConfig {
    let base = "sampler=saint-rw batch_size=60 walk_length=2 sample_coverage=5 dropout=0.2";
    let mut config = with(config(), &format!("{base} {options}"));
    config.derive_options(&["fanout", "layers"]).unwrap();
    config
}

/// With one store for each rank that trains, the stores draw what ranks with these parts would, and
/// neither a cache nor a strategy changes a bit.
#[test]
fn stores_draw_the_subgraphs_of_ranks_that_train_on_the_same_parts() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let frontier = "sampler=frontier frontier_size=20";
    let cached = "cache=degree cache_ratio=0.3";
    let reuse = "reuse=layered super_batch=3 hot_rank=0";
    for (stores, options, of_stores) in [
        (2, "model=sage", ""),
        (2, "model=gcn shuffle_parts=1", "strategy=pipelined allocation=1,1,1"),
        (1, "sampler=saint-node inductive=true", "cache=lru cache_ratio=0.3"),
        (2, "sampler=saint-edge model=gin", "devices=virtual:2 cache_ratio=0.2"),
        (2, frontier, cached),
        (2, "sampler=forest-fire model=gat", cached),
        (1, "sampler=cluster parts=20 parts_per_batch=4 shuffle_parts=2", ""),
        (2, "strategy=time-sharing devices=virtual:2", cached),
        (2, &format!("{reuse} hot_prefetch=on"), ""),
        (1, &format!("{reuse} hot_prefetch=off model=gcn sampler=saint-node"), cached),
        (2, &format!("{reuse} hot_prefetch=on inductive=true shuffle_parts=1"), "cache=lru cache_ratio=0.3"),
    ] {
        let config = of_subgraphs(options);
        let owners = train(&config, &dir, stores);
        let apart = with(config.clone(), &format!("graph_stores={stores} {of_stores}"));
        let many = train(&apart, &dir, 2 * stores);
        for summary in &many {
            assert_eq!(bits(summary), bits(&owners[0]), "{options} {of_stores}");
            assert_eq!(summary.test.score, owners[0].test.score, "{options} {of_stores}");
        }
        let epoch = &many[0].epochs[1];
        assert_eq!(epoch.seeds, owners[0].epochs[1].seeds, "{options}");
        let (training, serving) = epoch.ranks.split_at(stores);
        assert!(
            training.iter().all(|rank| rank.seeds > 0 && rank.remote_rows > 0),
            "{options}: {training:?}"
        );
        for store in serving {
            let stages = store.stages;
            assert!(stages.requests > 0.0 && stages.subgraphs > 0.0 && stages.compute == 0.0, "{stages:?}");
            assert!(store.seeds == 0 && store.sample_bytes > 0 && store.feature_bytes > 0, "{store:?}");
        }
    }
}

/// Any number of ranks takes the stores' subgraphs in turns: two that train on those of one store
/// update as one process does with two at once.
#[test]
fn ranks_that_train_take_the_subgraphs_of_all_stores_in_turns() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    // of equal sizes: one process weighs its batches by their nodes
    let base = of_subgraphs("sampler=cluster parts=12 parts_per_batch=1 dropout=0 lr=0.02");
    let together = "strategy=time-sharing devices=virtual:2 batches_per_update=2";
    let one = train(&with(base.clone(), together), &dir, 1).remove(0);
    let two = train(&with(base.clone(), "graph_stores=1"), &dir, 3);
    assert!(one.epochs[2].loss < one.epochs[0].loss, "the parameters change");
    for (a, b) in one.epochs.iter().zip(&two[0].epochs) {
        let (a, b) = (a.valid_loss.unwrap(), b.valid_loss.unwrap());
        assert!(close(a, b), "validation loss {b}, and {a} in one process");
    }
    // one rank that trains takes those of three stores: the nodes of an epoch are the same
    let frozen = with(base, "lr=1e-30 parts=10 parts_per_batch=2");
    let three = train(&frozen, &dir, 3).remove(0);
    let apart = train(&with(frozen, "graph_stores=3"), &dir, 4);
    for (a, b) in three.epochs.iter().zip(&apart[0].epochs) {
        assert_eq!(a.seeds, b.seeds);
        assert_eq!(b.ranks[0].seeds, b.seeds, "one rank trains on all");
    }
}

/// Stores reassign their parts before the ranks that train draw from them, also after a resume.
#[test]
fn subgraphs_of_stores_do_not_depend_on_threads_or_stops() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (number, options) in [
        "shuffle_parts=1",
        "sampler=frontier frontier_size=20 strategy=pipelined",
        "reuse=layered super_batch=3 hot_prefetch=on shuffle_parts=1 cache=lru cache_ratio=0.2",
    ]
    .into_iter()
    .enumerate()
    {
        let config = of_subgraphs(&format!("graph_stores=2 {options}"));
        let whole = bits(&train(&config, &dir, 3)[0]);
        let out = temporary.path().join(format!("run-{number}"));
        // stops in the second epoch, when a store asks for it, and resumes on other threads
        let run = |threads: usize, resume: bool| {
            on_ranks(3, PATIENCE, |rank, post| {
                let open = || if resume { RunDir::reopen(&out) } else { RunDir::create(&out) };
                let run = (rank == 0).then(|| open().unwrap());
                let seen = AtomicU64::new(0);
                let stop = || !resume && rank == 2 && seen.load(Relaxed) >= 20;
                let mut counts = Counts(&seen);
                let context = RunContext { run: run.as_ref(), resume, observer: &mut counts, stop: &stop };
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| over_ranks::train(&config, &dir, post, context))
            })
        };
        for end in run(1, false) {
            assert!(matches!(end, Err(Error::Interrupted { .. })), "{options}: {end:?}");
        }
        assert_eq!(bits(run(3, true)[0].as_ref().unwrap()), whole, "{options}");
    }
}

/// Counts batches.
struct Counts<'c>(&'c AtomicU64);

impl Observer for Counts<'_> {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

#[test]
fn impossible_stores_are_refused() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, why) in [
        ("graph_stores=2", "--graph-stores 2: 2 graph stores of 2 ranks"),
        ("graph_stores=1 sampler=cluster parts=20 parts_per_batch=30", "parts per subgraph are not possible"),
    ] {
        let config = with(config(), options);
        for end in on_ranks(2, PATIENCE, |_, post| {
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            over_ranks::train(&config, &dir, post, context).unwrap_err().to_string()
        }) {
            assert!(end.contains(why), "{options}: {end}");
        }
    }
}
