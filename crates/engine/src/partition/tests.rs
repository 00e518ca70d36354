//! Requests between parts against counts of node sets, and the report of all methods.

use std::{collections::BTreeSet, sync::Arc};

use graphmill_core::progress::Quiet;
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_distributed::NodeOwnership;

use super::*;
use crate::{
    config::{Bytes, Fanout, Ratio},
    tiers::CacheBytes,
};

fn data() -> Dataset {
    let options = GenerateOptions { nodes: 1500, classes: 4, dim: 3, ..Default::default() };
    generate("sbm", &options).unwrap()
}

fn options(methods: &[&str], train: TrainConfig) -> Options {
    let methods = methods.iter().map(ToString::to_string).collect();
    let partition = partition::Options { parts: 3, ..Default::default() };
    Options { methods, like: None, partition, train, batches: 0 }
}

fn book(data: &Dataset) -> PartitionBook {
    let of: Vec<u16> = (0..data.num_nodes()).map(|v| (v % 7 % 3) as u16).collect();
    PartitionBook::new(3, of).unwrap()
}

#[test]
fn requests_equal_counts_of_reached_node_sets() {
    let data = data();
    let (graph, book) = (&data.graph, book(&data));
    // one batch with all neighbours, so that draws are not random
    let config = TrainConfig {
        sampler: "full".into(),
        fanout: Fanout(vec![-1, -1]),
        batch_size: 0,
        ..Default::default()
    };
    let mut config = config;
    config.derive_options(&["sampler", "fanout", "batch_size"]).unwrap();
    let found = requests(&config, 0, &data, &book, &Quiet).unwrap();
    let (mut hops, mut rows, mut remote_rows) = (vec![Hop::default(); 2], 0, 0);
    let mut flows = [[0; 3]; 2];
    for part in 0..3 {
        let own = data.split.train.iter().copied().filter(|&v| book.part_of(v) == part);
        let mut reached: BTreeSet<u32> = own.collect();
        for hop in &mut hops {
            hop.nodes += reached.len() as u64;
            for &v in reached.iter().filter(|&&v| book.part_of(v) != part) {
                hop.requests += 1;
                hop.edges += graph.in_degree(v) as u64;
            }
            let more: Vec<u32> = reached.iter().flat_map(|&v| graph.in_neighbors(v)).copied().collect();
            reached.extend(more);
        }
        rows += reached.len() as u64;
        for owner in reached.iter().map(|&v| book.part_of(v)).filter(|&owner| owner != part) {
            remote_rows += 1;
            flows[0][usize::from(part)] += 1;
            flows[1][usize::from(owner)] += 1;
        }
    }
    let max = flows.as_flattened().iter().max().unwrap();
    assert!((found.skew - 3.0 * f64::from(*max) / remote_rows as f64).abs() < 1e-12 && found.skew >= 1.0);
    assert_eq!(hops[0].requests, 0, "each part owns its seeds");
    assert_eq!((&found.hops, found.rows, found.remote_rows), (&hops, rows, remote_rows));
    assert_eq!((found.batches, found.batches_per_epoch), (1, 1));
    assert_eq!(found.per_epoch, hops[1].requests as f64);
    assert_eq!((found.edges_per_epoch, found.rows_per_epoch), (hops[1].edges as f64, remote_rows as f64));
}

#[test]
fn ranks_that_train_request_everything_of_graph_stores() {
    let data = data();
    let train = TrainConfig { batch_size: 50, fanout: Fanout(vec![4, 3]), ..Default::default() };
    let of_stores = NodeOwnership::with_stores(book(&data), 0, 5, 2).unwrap();
    let found = requests_of_ranks(&train, 0, &data, &of_stores, &Quiet).unwrap();
    assert_eq!((found.rows, found.hops.len()), (found.remote_rows, 2));
    assert!(found.hops.iter().all(|hop| hop.requests == hop.nodes));
    assert_eq!(found.hops[0].nodes, data.split.train.len() as u64, "each seed is in one share");
    // a batch's replies leave two stores, of which one holds two of three parts
    assert!(found.skew > 1.2 && found.skew < 1.6, "{found:?}");
    // more machines that train than parts, or fewer ranks than parts
    let parts = requests(&train, 0, &data, &book(&data), &Quiet).unwrap();
    let one = NodeOwnership::new(book(&data), 0, 1).unwrap();
    let alone = requests_of_ranks(&train, 0, &data, &one, &Quiet).unwrap();
    assert_eq!((alone.remote_rows, alone.per_epoch, alone.skew), (0, 0.0, 1.0));
    let three = NodeOwnership::new(book(&data), 2, 3).unwrap();
    let of_ranks = requests_of_ranks(&train, 0, &data, &three, &Quiet).unwrap();
    assert_eq!(of_ranks, parts, "any rank knows the owners");
    let seconds = drawing_seconds(&train, &data, &Arc::new(of_stores)).unwrap();
    assert!(seconds.len() == 2 && seconds.iter().all(|&seconds| seconds > 0.0), "{seconds:?}");
    // walks are drawn by the ranks that train
    let walks = TrainConfig { sampler: "random-walk".into(), ..train };
    let none = drawing_seconds(&walks, &data, &owners(&data, 0)).unwrap();
    assert!(none.iter().all(|&seconds| seconds == 0.0), "{none:?}");
}

#[test]
fn figures_extrapolate_from_some_batches_and_ignore_threads() {
    let data = data();
    let book = book(&data);
    let train = TrainConfig { batch_size: 50, fanout: Fanout(vec![4, 3]), ..Default::default() };
    let with = |threads: usize, batches| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| requests(&train, batches, &data, &book, &Quiet).unwrap())
    };
    let all = with(2, 0);
    assert_eq!(all, with(1, 0));
    assert_eq!(all.batches, data.split.train.len().div_ceil(50) as u64);
    let some = with(3, 3);
    assert_eq!((some.batches, some.batches_per_epoch), (3, all.batches));
    assert!((some.per_epoch / all.per_epoch - 1.0).abs() < 0.1, "{some:?} {all:?}");
    // other parts own two of three nodes
    let share = all.hops[1].requests as f64 / all.hops[1].nodes as f64;
    assert!(all.hops[0].requests == 0 && share > 0.4 && share < 0.67, "{share}");
}

#[test]
fn every_method_has_statistics_and_bgl_beats_random() {
    let data = data();
    let train = TrainConfig { batch_size: 100, fanout: Fanout(vec![5, 5]), ..Default::default() };
    let names: Vec<&str> = partition::TABLE.iter().map(|entry| entry.name).collect();
    let report = run(&options(&names, train.clone()), &data, None, &Quiet).unwrap();
    let of = |name: &str| &report.results.iter().find(|outcome| outcome.method == name).unwrap().statistics;
    let requests = |name| of(name).cross_requests.as_ref().unwrap().per_epoch;
    assert!(
        requests("bgl") < 0.75 * requests("random")
            && requests("bgl") < requests("ldg").min(requests("fennel"))
    );
    assert!(of("bgl").edge_cut < of("random").edge_cut);
    let (near, far) = (of("bgl").locality.unwrap(), of("random").locality.unwrap());
    assert!((0..3).all(|hop| near[hop] > far[hop] && near[hop] <= 1.0 && (far[hop] - 0.33).abs() < 0.1));
    assert!(of("bgl").balance.nodes <= 1.1 && of("bgl").balance.train <= 1.05);
    let json = serde_json::to_value(&report).unwrap();
    for field in ["method", "parts", "edge_cut", "balance", "cross_requests", "seconds"] {
        assert!(!json["results"][0][field].is_null(), "{field}");
    }
    assert!(
        report.to_string().contains("fennel")
            && plot::svg(&report).contains("nodes requested from other parts")
    );

    let wrong = |options: Options| run(&options, &data, None, &Quiet).unwrap_err().to_string();
    assert!(
        wrong(options(&["best"], train.clone()))
            .contains("known: random, hash, ldg, fennel, gminer, pagraph, metis, bgl")
    );
    assert!(wrong(options(&[], train.clone())).contains("at least one"));
    let saint = TrainConfig { sampler: "saint-rw".into(), ..train.clone() };
    assert!(wrong(options(&["random"], saint)).contains("whole subgraphs"));
    let several = run(&options(&["random", "bgl"], train), &data, Some(Path::new("x")), &Quiet);
    assert!(several.unwrap_err().to_string().contains("one method"));
}

/// Owners of the nodes of [`book`], as rank `rank` of three knows them.
fn owners(data: &Dataset, rank: usize) -> Arc<NodeOwnership> {
    Arc::new(NodeOwnership::new(book(data), rank, 3).unwrap())
}

#[test]
fn caches_of_ranks_serve_the_hottest_remote_rows() {
    let data = data();
    let own = owners(&data, 1);
    // one batch with all neighbours, so that draws are not random
    let mut config = TrainConfig {
        sampler: "full".into(),
        fanout: Fanout(vec![-1, -1]),
        batch_size: 0,
        cache: "degree".into(),
        ..Default::default()
    };
    config.derive_options(&["sampler", "fanout", "batch_size"]).unwrap();
    let at = |ratio: Option<f64>| {
        let config = TrainConfig { cache_ratio: Ratio(ratio), ..config.clone() };
        rank_cache(&config, &data, &own).unwrap()
    };
    assert_eq!(at(None), RankCache::default(), "without a ratio and a budget nothing is cached");
    let mut reached: BTreeSet<u32> = data.split.train.iter().copied().filter(|&v| own.is_own(v)).collect();
    for _ in 0..2 {
        let more: Vec<u32> = reached.iter().flat_map(|&v| data.graph.in_neighbors(v)).copied().collect();
        reached.extend(more);
    }
    let scores = crate::hotness::scores("degree", &config, &data, &Quiet).unwrap();
    let mut ranking = graphmill_core::node_order::by_scores(&scores).unwrap();
    ranking.retain(|&v| !own.is_own(v));
    let requested: Vec<u32> = reached.into_iter().filter(|&v| !own.is_own(v)).collect();
    for ratio in [0.1, 0.4] {
        let slots = (ratio * data.num_nodes() as f64).round() as usize;
        let served = requested.iter().filter(|v| ranking[..slots].contains(v)).count();
        let found = at(Some(ratio));
        assert_eq!(found.hit_rate, served as f64 / requested.len() as f64, "{ratio}");
        // rows of 12 bytes, and the maps that a run counts
        let bytes = CacheBytes::new("degree", 1500, 12).bytes(slots as f64);
        assert_eq!((found.ratio, found.bytes), (slots as f64 / 1500.0, bytes));
    }
    // all remote rows
    let whole = at(Some(1.0));
    assert_eq!((whole.hit_rate, whole.ratio), (1.0, ranking.len() as f64 / 1500.0));
}

#[test]
fn budgets_and_policies_size_the_caches_of_ranks() {
    let data = data();
    let own = owners(&data, 0);
    let at = |cache: &str, bytes: u64, ratio: Option<f64>| {
        let config = TrainConfig {
            cache: cache.into(),
            host_budget: Bytes(bytes),
            cache_ratio: Ratio(ratio),
            fanout: Fanout(vec![4, 3]),
            batch_size: 100,
            ..Default::default()
        };
        rank_cache(&config, &data, &own).map_err(|error| error.to_string())
    };
    let (small, large) = (at("lru", 26_000, None).unwrap(), at("lru", 40_000, None).unwrap());
    assert!(0.0 < small.hit_rate && small.hit_rate < large.hit_rate, "{small:?} {large:?}");
    assert!(small.ratio < large.ratio);
    let own_rows = at("lru", 100, None).unwrap_err();
    assert!(own_rows.contains("the own rows of a machine take"), "{own_rows}");
    let too_many = at("lru", 26_000, Some(0.6)).unwrap_err();
    assert!(too_many.contains("--cache-ratio 0.6") && too_many.contains("--host-budget 26000"), "{too_many}");
}

#[test]
fn devices_of_a_rank_cache_own_rows_as_well() {
    let data = data();
    let own = owners(&data, 1);
    let at = |devices: &str, placement: &str, cache: &str| {
        let config = TrainConfig {
            cache: cache.into(),
            cache_ratio: Ratio(Some(0.2)),
            devices: devices.parse().unwrap(),
            placement: placement.parse().unwrap(),
            fanout: Fanout(vec![4, 3]),
            batch_size: 100,
            ..Default::default()
        };
        rank_cache(&config, &data, &own)
    };
    let host = at("cpu", "interleave", "degree").unwrap();
    let one = at("virtual:1", "interleave", "degree").unwrap();
    // a third of the cached rows are own ones
    assert!(
        one.ratio == host.ratio && one.hit_rate < host.hit_rate && one.hit_rate > 0.0,
        "{one:?} {host:?}"
    );
    let pool = at("virtual:2", "interleave", "degree").unwrap();
    assert_eq!((pool.ratio, pool.bytes), (2.0 * one.ratio, 2.0 * one.bytes));
    assert!(pool.hit_rate > one.hit_rate);
    let private = at("virtual:2", "private", "degree").unwrap();
    assert_eq!((private.ratio, private.hit_rate), (one.ratio, one.hit_rate));
    assert_eq!(private.on_device, 0.0);
    // each NVIDIA device has a cache of its own, with maps of its own, and serves own rows too
    let nvidia = at("cuda:0,1", "interleave", "degree").unwrap();
    assert_eq!((nvidia.ratio, nvidia.hit_rate), (one.ratio, one.hit_rate));
    let bytes = CacheBytes::on_nvidia("degree", data.num_nodes(), 12).unwrap();
    assert_eq!(nvidia.bytes, bytes.bytes((0.2 * data.num_nodes() as f64).round()));
    assert!(nvidia.on_device > 0.0 && nvidia.on_device < 1.0, "{nvidia:?}");
    let dynamic = at("virtual:2", "interleave", "lru").unwrap_err().to_string();
    assert!(dynamic.contains("use a hotness, such as degree"), "{dynamic}");
}
