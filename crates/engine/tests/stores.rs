//! Graph stores that hold and serve the graph, and ranks that train on it.

#[path = "common/ranks.rs"]
mod ranks;
#[path = "common/set.rs"]
mod set;

use graphmill_engine::{RunContext, observer::Quiet, trainer::over_ranks};
use ranks::{PATIENCE, alone, assert_alike, config, data, on_ranks, over_ranks as train, partitioned};
use set::with;

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
        let reuse = |summary: &graphmill_engine::record::Summary| {
            summary.epochs[1].reuse.map(|reuse| [reuse.asked_rows, reuse.reused_rows, reuse.made_rows])
        };
        let first = reuse(&training[0]).unwrap();
        assert!(first[1] > 0 && first[2] > 0, "{options}: {first:?}");
        assert!(training.iter().all(|summary| reuse(summary) == Some(first)), "{options}");
        assert!(stores.iter().all(|summary| reuse(summary).is_none()), "{options}");
        assert!(training[0].staleness.max <= training[0].staleness.bound, "{options}");
    }
}

#[test]
fn impossible_stores_are_refused() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, why) in [
        ("graph_stores=2", "--graph-stores 2: 2 graph stores of 2 ranks"),
        ("graph_stores=1 sampler=saint-rw", "draws subgraphs from the parts"),
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
