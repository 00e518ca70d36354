use graphmill_loader::{
    sampler::WeightedOptions,
    subgraph::{cluster::ClusterOptions, frontier::FrontierOptions},
};

use super::*;
use crate::config::{Bottom, Fanout};

fn small() -> Options {
    Options {
        train: TrainConfig {
            fanout: Fanout(vec![3, 2]),
            batch_size: 64,
            hidden: 8,
            ..TrainConfig::default()
        },
        dim: Some(12),
        repeat: 2,
        scale: 10,
    }
}

fn case<'a>(report: &'a Report, ends: &str) -> &'a Measured {
    report.results.iter().find(|row| row.case.ends_with(ends)).unwrap_or_else(|| panic!("no '{ends}'"))
}

#[test]
fn training_nodes_of_the_generated_graph_have_edges() {
    let data = generated(&small()).unwrap();
    assert_eq!((data.num_nodes(), data.features.dim, data.labels.classes()), (1024, 12, CLASSES));
    assert_eq!(data.split.train.len(), 192);
    assert!(data.split.train.iter().all(|&v| data.graph.in_degree(v) > 0));
    assert!(data.split.valid.is_empty() && data.split.test.is_empty());
    data.validate().unwrap();
}

#[test]
fn stages_and_unaccounted_time_add_up_to_the_epoch() {
    let report = run("epoch", &small(), None).unwrap();
    let of = |ends| case(&report, ends);
    let [epoch, all, rest] = [of(": epoch"), of("all stages"), of("unaccounted")];
    // two runs: medians are means
    assert!((all.median + rest.median - epoch.median).abs() < 1e-9, "{epoch:?} {all:?} {rest:?}");
    assert!(rest.min >= 0.0 && all.median > 0.0);
    let parts: f64 = ["order", "sample", "extract", "train"]
        .iter()
        .map(|stage| case(&report, &format!(": {stage}")).median)
        .sum();
    assert!((parts - all.median).abs() < 1e-9);
    assert_eq!((of(": a batch").unit, epoch.unit), ("ms", "s"));
    assert!((of(": a batch").median - 1e3 * epoch.median / 3.0).abs() < 1e-9, "3 batches of 64");
    assert!(epoch.limit.unwrap() > 0.0 && epoch.of_limit.unwrap() > 0.0);
    assert!(of("a batch").limit.unwrap() > 0.0);
}

#[test]
fn subgraphs_are_measured_on_one_thread_and_on_all() {
    let options = small();
    assert!(options.train.own.get::<FrontierOptions>().frontier_size > options.train.batch_size);
    let of = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run("frontier", &options, None)).unwrap()
    };
    let both = of(2);
    for way in ["one thread", "one subgraph per thread"] {
        let frontier = case(&both, &format!("frontier n=64 m=8, {way}"));
        assert!(frontier.unit == "subgraphs/s" && frontier.median > 0.0 && frontier.limit.unwrap() > 0.0);
        case(&both, &format!("saint-rw n=64, {way}"));
    }
    assert!(of(1).results.iter().all(|row| !row.case.contains("per thread")));
}

#[test]
fn blocks_of_every_sampler_are_measured() {
    let data =
        generate::generate("sbm", &GenerateOptions { nodes: 600, dim: 7, ..Default::default() }).unwrap();
    for entry in &graphmill_loader::sampler::TABLE {
        // one subgraph of all parts, although the training nodes fill several batches
        let train = TrainConfig { sampler: entry.name.into(), ..small().train }
            .with(|weighted: &mut WeightedOptions| weighted.replace = true)
            .with(|frontier: &mut FrontierOptions| frontier.frontier_size = 20)
            .with(|cluster: &mut ClusterOptions| cluster.parts = 5);
        let options = Options { train, repeat: 1, ..small() };
        for name in ["aggregate", "sample"] {
            let report = run(name, &options, Some(data.clone()).filter(|_| name == "aggregate"));
            let report = report.unwrap_or_else(|error| panic!("{name} {}: {error}", entry.name));
            let of = |begin: &str| report.results.iter().filter(|row| row.case.starts_with(begin)).count();
            let subgraphs = entry.make.draws_subgraphs();
            if name == "aggregate" {
                assert_eq!((of("local"), of("transposed")), (1, 1), "{}", entry.name);
                assert_eq!(of("global"), if subgraphs { 0 } else { 3 }, "{}", entry.name);
            }
        }
    }
    let error = run("sample", &small(), Some(data)).unwrap_err();
    assert!(error.is_usage());
    let expected = "--dim: bench sample uses no feature rows; use bench gather, aggregate, gemm or epoch, \
                    or leave it out";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn samples_with_an_exact_bottom_hop_draw_the_upper_hops() {
    let of = |fanout: &[i64], bottom| {
        let train = TrainConfig { fanout: Fanout(fanout.to_vec()), bottom, ..small().train };
        let report = run("sample", &Options { train, dim: None, repeat: 1, ..small() }, None).unwrap();
        report.results.iter().any(|row| row.case.starts_with("exact bottom hop"))
    };
    assert!(of(&[3, -1], Bottom::Exact) && of(&[3, -1], Bottom::Auto));
    assert!(!of(&[3, 2], Bottom::Auto) && !of(&[3, -1], Bottom::Sampled));
}

#[test]
fn datasets_are_measured_at_their_own_width() {
    let data =
        generate::generate("sbm", &GenerateOptions { nodes: 600, dim: 7, ..Default::default() }).unwrap();
    let wide = run("epoch", &small(), Some(data.clone())).unwrap_err();
    assert!(wide.is_usage() && wide.to_string().contains("--dim 12") && wide.to_string().contains("of 7"));
    let report = run("gemm", &Options { dim: None, ..small() }, Some(data)).unwrap();
    assert_eq!((report.graph.nodes, report.graph.train), (600, 300));
    case(&report, "100000 x 7 x 8");
    case(&report, "8 x 100000 x 10, weight gradient");
}

#[test]
fn unknown_benches_and_missing_splits_are_refused() {
    let unknown = run("sampel", &small(), None).unwrap_err();
    assert!(unknown.is_usage());
    assert_eq!(
        unknown.to_string(),
        "unknown bench 'sampel', did you mean 'sample'?; known: sample, frontier, gather, aggregate, gemm, \
         epoch, all"
    );
    let mut data = generated(&small()).unwrap();
    data.split = Default::default();
    assert!(run("epoch", &small(), Some(data)).unwrap_err().to_string().contains("--split"));
}
