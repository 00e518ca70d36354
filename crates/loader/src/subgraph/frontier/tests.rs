use graphmill_core::{
    Graph,
    keyed::{self, Stream},
};
use graphmill_data::generate::{GenerateOptions, generate};

use super::{
    reference::{self, Choice},
    *,
};
use crate::subgraph::testing::{agree, graph_of};

/// Undirected, with degrees 1 to 4, and node 5 isolated.
fn small() -> Graph {
    graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[0], &[]])
}

fn key(batch: u64) -> BatchKey {
    BatchKey { seed: 3, epoch: 1, batch }
}

fn options(frontier_size: usize) -> FrontierOptions {
    FrontierOptions { frontier_size, ..FrontierOptions::default() }
}

/// Nodes in the order in which they joined.
fn joined(sampler: &Frontier, graph: &Graph, batch: u64, scratch: &mut FrontierScratch) -> Vec<u32> {
    let mut nodes = Vec::new();
    sampler.walk::<Portable>(graph, key(batch), scratch, &mut nodes).unwrap();
    nodes
}

#[test]
fn walks_are_distributed_as_in_the_references() {
    const RUNS: u64 = 100_000;
    let (graph, roots) = (small(), [0, 1, 3, 4, 5]);
    let mut scratch = FrontierScratch::default();
    for cap in [2, 100] {
        let count = |walk: &mut dyn FnMut(u64) -> Vec<u32>| {
            // two roots and two steps: each outcome is a kind, including walks that end early
            let mut counts = vec![0; 7 * 7 * 7 * 7];
            for run in 0..RUNS {
                let nodes = walk(run);
                let kind = (0..4).fold(0, |kind, i| 7 * kind + nodes.get(i).map_or(6, |&v| v as usize));
                counts[kind] += 1;
            }
            counts
        };
        let choices = [Choice::Intervals, Choice::RunningSums];
        let [intervals, sums] = choices.map(|choice| {
            count(&mut |run| {
                reference::walk(&graph, &roots, (2, 4, cap), choice, Stream::new(keyed::key(&[9, run])))
            })
        });
        agree(&intervals, &sums);
        let published = count(&mut |run| {
            let stream = Stream::new(keyed::key(&[10, run]));
            reference::Dashboard::walk(&graph, &roots, (2, 4, cap), 2.0, stream)
        });
        agree(&intervals, &published);
        for frontier_index in [PopBy::Sums, PopBy::Dashboard] {
            let options = FrontierOptions { degree_cap: cap as usize, frontier_index, ..options(2) };
            let sampler = Frontier::new(&graph, &roots, 4, &options).unwrap();
            let ours = count(&mut |run| joined(&sampler, &graph, run, &mut scratch));
            agree(&intervals, &ours);
        }
    }
}

#[test]
fn all_levels_draw_the_same_subgraphs() {
    let generator = GenerateOptions { scale: 10, degree: Some(25.0), dim: 0, ..GenerateOptions::default() };
    let graph = generate("kronecker", &generator).unwrap().graph;
    let roots: Vec<u32> = (0..1024).collect();
    let dashboard = PopBy::Dashboard;
    for (eta, cap, frontier_index) in [(2.0, 3000, PopBy::Sums), (1.3, 40, dashboard), (4.0, 3000, dashboard)]
    {
        let options =
            FrontierOptions { dashboard_slack: eta, degree_cap: cap, frontier_index, ..options(90) };
        let mut expected: Option<Vec<Vec<u32>>> = None;
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let sampler = Frontier::new(&graph, &roots, 700, &options).unwrap().with_level(level);
            let mut scratch = SubgraphScratch::default();
            let subgraphs: Vec<_> = (0..5)
                .map(|batch| {
                    let mut nodes = vec![7; 3];
                    sampler.sample(&graph, key(batch), &mut scratch, &mut nodes).unwrap();
                    assert!(nodes.is_sorted_by(|a, b| a < b) && nodes.len() <= 700);
                    nodes
                })
                .collect();
            assert_ne!(subgraphs[0], subgraphs[1]);
            assert_eq!(&subgraphs, expected.get_or_insert_with(|| subgraphs.clone()), "{level:?}");
        }
    }
}

#[test]
fn steps_lead_to_neighbours_of_the_frontier() {
    let graph = small();
    let sampler = Frontier::new(&graph, &[0, 5, 1], 60, &options(3)).unwrap();
    let mut scratch = FrontierScratch::default();
    // Miri, which interprets the tests, takes some
    for batch in 0..if cfg!(miri) { 5 } else { 200 } {
        let nodes = joined(&sampler, &graph, batch, &mut scratch);
        // all sets that the frontier may be at this step
        let mut fronts = vec![nodes[..3].to_vec()];
        for &new in &nodes[3..] {
            let mut after = Vec::new();
            for front in &fronts {
                for i in (0..3).filter(|&i| graph.in_neighbors(front[i]).contains(&new)) {
                    let mut front = front.clone();
                    front[i] = new;
                    front.sort_unstable();
                    after.push(front);
                }
            }
            after.sort_unstable();
            after.dedup();
            assert!(!after.is_empty(), "{new} of {nodes:?}");
            fronts = after;
        }
        assert!(nodes.len() == 60 || nodes == [5, 5, 5]);
    }
}

#[test]
fn used_scratch_does_not_change_walks() {
    let graph = small();
    let wide = Frontier::new(&graph, &[0, 1, 2, 3, 4, 5], 500, &options(400)).unwrap();
    let narrow = Frontier::new(&graph, &[0, 1, 2], 9, &options(2)).unwrap();
    let (mut used, mut nodes) = (FrontierScratch::default(), Vec::new());
    for batch in 0..if cfg!(miri) { 3 } else { 50 } {
        wide.walk::<Portable>(&graph, key(batch), &mut used, &mut nodes).unwrap();
        let fresh = joined(&narrow, &graph, batch, &mut FrontierScratch::default());
        assert_eq!(joined(&narrow, &graph, batch, &mut used), fresh);
    }
}

#[test]
fn walks_end_if_no_node_has_neighbours() {
    let mut scratch = SubgraphScratch::default();
    let mut nodes = Vec::new();
    // no edges; then only 0 <- 1 <- 2, where every walk ends at 2
    let lonely = Graph::new(vec![0; 5].into(), vec![].into()).unwrap();
    let line = Graph::new(vec![0, 1, 2, 2, 2].into(), vec![1, 2].into()).unwrap();
    for (graph, roots, max) in [(&lonely, &[1, 3][..], 2), (&line, &[0, 3][..], 4)] {
        let sampler = Frontier::new(graph, roots, 100, &options(4)).unwrap();
        for batch in 0..20 {
            sampler.sample(graph, key(batch), &mut scratch, &mut nodes).unwrap();
            assert!(!nodes.is_empty() && nodes.len() <= max);
        }
    }
    // a budget beyond the graph, and a frontier as large as the budget
    let graph = small();
    for (budget, frontier) in [(10_000, 3), (5, 5)] {
        let sampler = Frontier::new(&graph, &[0], budget, &options(frontier)).unwrap();
        sampler.sample(&graph, key(0), &mut scratch, &mut nodes).unwrap();
        assert_eq!(nodes.len(), if budget > 5 { 5 } else { 1 });
    }
}

#[test]
fn cap_zero_draws_as_a_cap_above_all_degrees() {
    let generator = GenerateOptions { scale: 10, degree: Some(25.0), dim: 0, ..GenerateOptions::default() };
    let graph = generate("kronecker", &generator).unwrap().graph;
    let roots: Vec<u32> = (0..1024).collect();
    for frontier_index in [PopBy::Sums, PopBy::Dashboard] {
        let draw = |degree_cap| {
            let options = FrontierOptions { degree_cap, frontier_index, ..options(90) };
            let mut nodes = Vec::new();
            Frontier::new(&graph, &roots, 700, &options)
                .unwrap()
                .sample(&graph, key(3), &mut SubgraphScratch::default(), &mut nodes)
                .unwrap();
            nodes
        };
        let most = (0..1024).map(|v| graph.in_degree(v)).max().unwrap();
        assert_eq!(draw(0), draw(most));
        assert_ne!(draw(0), draw(most / 4));
    }
}

#[test]
fn invalid_options_are_named() {
    let graph = small();
    let wrong = |options: FrontierOptions| Frontier::new(&graph, &[0], 10, &options).unwrap_err();
    assert!(wrong(options(0)).contains("1 to 65536"));
    assert!(wrong(options(11)).contains("subgraphs of 10"));
    assert!(
        wrong(FrontierOptions { dashboard_slack: 1.0, ..options(2) })
            .contains("dashboard_slack: '1': a number from 1.01 to 64")
    );
    assert!(
        wrong(FrontierOptions { dashboard_slack: f64::NAN, ..options(2) }).contains("dashboard_slack: 'NaN'")
    );
    let error = |roots: &[u32]| Frontier::new(&graph, roots, 10, &options(2)).unwrap_err();
    assert!(error(&[]).contains("no nodes to start from"));
    assert!(error(&[2, 6]).contains("node 6"));
    let sampler = Frontier::new(&graph, &[0], 10, &options(2)).unwrap();
    let other = Graph::new(vec![0, 0].into(), vec![].into()).unwrap();
    let error = sampler.sample(&other, key(0), &mut SubgraphScratch::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("made for 6 nodes"));
}
