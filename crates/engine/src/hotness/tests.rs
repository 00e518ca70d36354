use graphmill_core::progress::Quiet;
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_loader::policy;

use super::*;

fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 3000, classes: 4, dim: 8, degree_exponent: 2.2, ..Default::default() };
    generate("sbm", &options).unwrap()
}

fn options(policies: &[&str], ratios: &[f64]) -> Options {
    let train =
        TrainConfig { batch_size: 50, fanout: crate::config::Fanout(vec![4, 3]), ..Default::default() };
    let policies = policies.iter().map(ToString::to_string).collect();
    Options { train, policies, samplers: vec!["neighbor".into()], ratios: ratios.to_vec(), epochs: 2 }
}

#[test]
fn hit_rates_grow_with_the_cache_up_to_the_optimum() {
    let all: Vec<String> = hotness::TABLE
        .iter()
        .map(|entry| entry.name.to_string())
        .chain(policy::TABLE.iter().map(|entry| entry.name.to_string()))
        .collect();
    let mut options = options(&[], &[0.0, 0.05, 0.3, 1.0]);
    options.policies = all;
    options.samplers = ["neighbor", "random-walk", "saint-rw"].map(String::from).to_vec();
    let report = run(&options, &data(), &Quiet).unwrap();
    assert_eq!(report.results.len(), 3 * options.policies.len() * 4);
    for sampler in &options.samplers {
        let of = |policy: &str| -> Vec<f64> {
            let rows = report.results.iter().filter(|row| row.policy == policy && row.sampler == *sampler);
            rows.map(|row| row.hit_rate).collect()
        };
        let best = of("optimal");
        for policy in &options.policies {
            let rates = of(policy);
            assert_eq!(rates[0], 0.0, "{policy}");
            assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]), "{policy}: {rates:?}");
            if hotness::TABLE.get(policy).is_some() {
                assert!(
                    rates.iter().zip(&best).all(|(rate, best)| rate <= best),
                    "{policy}: {rates:?} {best:?}"
                );
                assert_eq!(rates[3], 1.0, "{policy}");
            } else {
                assert!(rates[3] > 0.3 && rates[3] < 1.0, "{policy} begins empty: {rates:?}");
            }
        }
    }
    let of = |policy: &str, sampler: &str| -> Vec<f64> {
        let rows = report.results.iter().filter(|row| row.policy == policy && row.sampler == sampler);
        rows.map(|row| row.hit_rate).collect()
    };
    assert_eq!(of("posterior", "saint-rw"), of("presc", "saint-rw"), "subgraphs have no k-hop prior");
    assert_ne!(of("posterior", "neighbor"), of("presc", "neighbor"));
    let similarity = report.samplers[0].similarity.unwrap();
    assert!(similarity > 0.2 && similarity < 1.0, "{similarity}");
    let svg = plot::svg(&report);
    assert!(
        svg.starts_with("<svg")
            && svg.contains("cached rows, %")
            && svg.contains("weighted-reverse-pagerank")
    );
    let text = report.to_string();
    assert!(text.contains("random-walk: ") && text.contains(" 30%"), "{text}");
}

#[test]
fn simulated_caches_have_the_hit_rate_of_real_ones() {
    let data = data();
    let options = options(&["fifo", "degree"], &[0.05]);
    let report = run(&options, &data, &Quiet).unwrap();
    let feature = Host::new(&data.features);
    let sampler = build::sampler(&options.train, &data).unwrap();
    let order = build::order(&options.train, &data).unwrap();
    let loader = loader(&options.train, &data, &*sampler, &*order, &feature).unwrap();
    let slots = 150; // too few rows for several shards
    let behind = || std::sync::Arc::new(Host::new(&data.features));
    let kind = graphmill_core::matrix::TableType::F32;
    let level = graphmill_loader::feature::cached::Level::Device { devices: 1, reader: 0 };
    let fifo = graphmill_loader::feature::cached::Dynamic::new(
        policy::TABLE.find("fifo").unwrap().make,
        slots,
        kind,
        behind(),
        level,
    );
    let (mut served, mut requested) = (0, 0);
    let fifo = fifo.unwrap();
    for epoch in 0..2 {
        use graphmill_loader::{Feature, hotness::Visits};
        let mut read = |ids: &[u32]| {
            let traffic = fifo.read(ids, &mut vec![0.0; 8 * ids.len()]).unwrap();
            served += traffic.device.rows;
            requested += ids.len();
        };
        OrderedVisits::new(&loader, &Quiet).visit(epoch, &mut read).unwrap();
    }
    assert_eq!(report.results[0].hit_rate, served as f64 / requested as f64);
}

#[test]
fn unknown_names_and_empty_lists_are_refused() {
    let data = data();
    let fault = |options: &Options| run(options, &data, &Quiet).unwrap_err().to_string();
    assert!(fault(&options(&["warmth"], &[0.1])).contains("unknown policy 'warmth'; known: random, degree"));
    assert!(fault(&options(&["presc:x"], &[0.1])).contains("presc:x: 'x' is not a number of epochs"));
    assert!(fault(&options(&["degree"], &[1.5])).starts_with("--ratios 1.5"));
    assert!(fault(&options(&[], &[0.5])).starts_with("--policies"));
    assert!(fault(&Options { epochs: 0, ..options(&["degree"], &[0.5]) }).starts_with("--epochs 0"));
    let mut unknown = options(&["degree"], &[0.5]);
    unknown.samplers = vec!["guess".into()];
    assert!(fault(&unknown).contains("unknown sampler 'guess'"));
}
