//! Properties of every metric, and scores on graphs small enough to check by hand.

use std::cell::RefCell;

use graphmill_core::{EdgeOptions, build, node_order::by_scores};

use super::*;
use crate::{
    BatchKey, MinibatchSampler, Seeds, Workspace,
    order::{SeedOrder, random::Random},
    sampler::{BatchRequest, HopStack, neighbor::Neighbor},
};

/// Minibatches of a neighbour sampler.
struct Batches<'a> {
    graph: &'a Graph,
    train: &'a [NodeId],
    sampler: HopStack,
    batch_size: usize,
}

impl Visits for Batches<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
        let mut order = Vec::new();
        Random::new(self.train, 1).order(epoch, &mut order);
        let mut workspace = Workspace::new(self.graph.num_nodes());
        for (number, seeds) in (0..).zip(order.chunks(self.batch_size)) {
            let request = BatchRequest::new(self.graph, BatchKey { seed: 1, epoch, batch: number });
            see(&self.sampler.sample(&request, &mut workspace, Seeds::new(number, seeds))?.input_nodes);
        }
        Ok(())
    }
}

/// A power law: node `v` has in-neighbours `v * i mod (v + 1)`.
fn skewed(nodes: u32) -> Graph {
    let edges = (1..nodes)
        .flat_map(|v| (1..9u32).map(move |i| ((v.wrapping_mul(i * 2654435) >> 3) % v.div_ceil(i), v)));
    let (src, dst): (Vec<u32>, Vec<u32>) = edges.unzip();
    build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap()
}

fn with<R>(graph: &Graph, train: &[NodeId], run: impl FnOnce(&Setting) -> R) -> R {
    let fanout = Fanout::from([5, 3]);
    let batches =
        Batches { graph, train, sampler: HopStack::new(Neighbor::new(&fanout).unwrap()), batch_size: 20 };
    run(&Setting {
        graph,
        train,
        fanout: &fanout,
        draws_subgraphs: false,
        batch_size: 20,
        seed: 7,
        epochs: 3,
        visits: &batches,
    })
}

#[test]
fn every_metric_scores_every_node_and_the_oracle_is_best() {
    let graph = skewed(3000);
    let train: Vec<u32> = (0..3000).filter(|v| v % 10 == 3).collect();
    with(&graph, &train, |setting| {
        let footprint = Footprint::of(3000, setting.visits, 0..3).unwrap();
        let rate = |name: &str| {
            let scores = score(name, setting).unwrap();
            assert_eq!(scores.len(), 3000, "{name}");
            assert!(scores.iter().all(|s| s.is_finite() && *s >= 0.0), "{name}");
            assert_eq!(scores, score(name, setting).unwrap(), "{name} twice");
            footprint.hits(&by_scores(&scores).unwrap())[300] as f64 / footprint.total() as f64
        };
        let best = rate("optimal");
        let rates: Vec<(&str, f64)> = TABLE.iter().map(|entry| (entry.name, rate(entry.name))).collect();
        for &(name, rate) in &rates {
            assert!(rate <= best, "{name}: {rate} {best}");
            let least = if name == "random" { 0.0 } else { 0.5 * best };
            assert!(rate > least, "{name}: {rate} of {best}");
        }
        assert!(rate("presc:2") > 0.9 * best && rate("analytic") > 0.9 * best, "{rates:?}");
        assert!((rates[0].1 - 0.1).abs() < 0.05, "a random tenth of the rows serves a tenth: {rates:?}");
    });
}

#[test]
fn probabilities_are_exact_if_neighbours_are_independent() {
    // 0 and 1 train and have in-neighbours 2 and 3 each; 4 is an in-neighbour of 3; fanouts 1 and
    // 5; a batch is one seed
    let graph = build(6, &[2, 3, 2, 3, 4], &[0, 0, 1, 1, 3], EdgeOptions::DIRECTED).unwrap();
    let batches = Batches {
        graph: &graph,
        train: &[0, 1],
        sampler: HopStack::new(Neighbor::new([1]).unwrap()),
        batch_size: 1,
    };
    let setting = Setting {
        graph: &graph,
        train: &[0, 1],
        fanout: &Fanout::from([1, 5]),
        draws_subgraphs: false,
        batch_size: 1,
        seed: 0,
        epochs: 1,
        visits: &batches,
    };
    let p = score("analytic", &setting).unwrap();
    let drawn = 1.0 - (1.0 - 0.5 * 0.5) * (1.0 - 0.5 * 0.5); // node 2, by one of the two seeds
    let again = 1.0 - (1.0 - drawn) * (1.0 - 0.5) * (1.0 - 0.5); // or as any neighbour in the second hop
    let expected = [0.5, 0.5, again, again, drawn, 0.0];
    p.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{p:?} {expected:?}"));
}

#[test]
fn posteriors_of_subgraphs_are_their_counts() {
    let graph = skewed(3000);
    let train: Vec<u32> = (0..3000).filter(|v| v % 10 == 3).collect();
    with(&graph, &train, |hops| {
        let subgraphs = Setting { draws_subgraphs: true, ..*hops };
        assert_eq!(score("posterior:2", &subgraphs), score("presc:2", hops));
        assert_ne!(score("posterior:2", hops), score("presc:2", hops));
        // options that subgraphs do not read change nothing
        let other = Setting { fanout: &Fanout::from([1]), batch_size: 1, ..subgraphs };
        assert_eq!(score("posterior", &other), score("posterior", &subgraphs));
        assert!(score("posterior:0", &subgraphs).unwrap_err().starts_with("posterior:0: "));
    });
}

#[test]
fn names_and_arguments_are_checked() {
    let graph = skewed(100);
    with(&graph, &[1, 2, 3], |setting| {
        let fault = |name: &str| score(name, setting).unwrap_err();
        assert!(fault("heat").contains("unknown hotness 'heat'; known: random, degree"));
        assert_eq!(fault("degree:3"), "degree:3: degree takes no argument; use 'degree'");
        assert_eq!(fault("presc:0"), "presc:0: '0' is not a number of epochs from 1 to 1000");
        assert_eq!(fault("presc:many"), "presc:many: 'many' is not a number of epochs from 1 to 1000");
    });
}

#[test]
fn presampling_draws_epochs_that_the_run_does_not() {
    struct RecordedEpochs(RefCell<Vec<u64>>);
    impl Visits for RecordedEpochs {
        fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> Result<()> {
            self.0.borrow_mut().push(epoch);
            see(&[epoch as NodeId % 2]);
            Ok(())
        }
    }
    let graph = build(3, &[2], &[1], EdgeOptions::DIRECTED).unwrap();
    let recorded = RecordedEpochs(RefCell::default());
    let setting = Setting {
        graph: &graph,
        train: &[1],
        fanout: &Fanout::from([1]),
        draws_subgraphs: false,
        batch_size: 1,
        seed: 0,
        epochs: 2,
        visits: &recorded,
    };
    // ties are ranked by degree
    assert_eq!(score("presc:3", &setting).unwrap(), [2.0, 1.0, 0.5]);
    assert_eq!(score("optimal", &setting).unwrap(), [1.0, 1.0, 0.5]);
    let epochs = recorded.0.into_inner();
    assert_eq!(epochs, [1 << 32, (1 << 32) + 1, (1 << 32) + 2, 0, 1]);
}

#[test]
fn similarity_compares_the_hottest_tenth() {
    let footprint = |hot: &[(usize, u32)]| {
        let mut counts = vec![0; 30];
        hot.iter().for_each(|&(v, count)| counts[v] = count);
        Footprint { counts }
    };
    let first = footprint(&[(0, 10), (1, 8), (2, 6), (3, 1)]);
    assert_eq!(similarity(&first, &first).unwrap(), 1.0);
    // 5 replaces 2, and 1 is read more often
    let second = footprint(&[(0, 10), (1, 16), (5, 6), (2, 1)]);
    assert_eq!(similarity(&first, &second).unwrap(), 18.0 / 32.0);
    assert_eq!(similarity(&footprint(&[]), &footprint(&[])).unwrap(), 1.0);
}

#[test]
fn online_counts_are_those_of_the_first_epochs_of_training() {
    let graph = skewed(3000);
    let train: Vec<u32> = (0..3000).filter(|v| v % 10 == 3).collect();
    with(&graph, &train, |setting| {
        assert_eq!(score("presc-online:3", setting).unwrap(), score("optimal", setting).unwrap());
        assert_ne!(score("presc-online:1", setting).unwrap(), score("presc:1", setting).unwrap());
        let counts = Footprint::of(3000, setting.visits, 0..2).unwrap().counts;
        assert_eq!(score("presc-online:2", setting).unwrap(), by_counts(&graph, &counts));
    });
    assert_eq!(counted_epochs("presc-online:2"), Ok(Some(2)));
    assert_eq!(counted_epochs("presc-online"), Ok(Some(1)));
    assert_eq!(counted_epochs("presc:2"), Ok(None));
    assert_eq!(counted_epochs("lru"), Ok(None));
    assert!(counted_epochs("presc-online:0").unwrap_err().contains("'0' is not a number of epochs"));
}
