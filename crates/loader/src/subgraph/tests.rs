use super::{
    cluster::ClusterOptions,
    frontier::FrontierOptions,
    testing::{fits, graph_of},
    *,
};
use crate::sampler::{find_subgraphs, of_subgraphs};
use graphmill_core::progress::Quiet;
use graphmill_data::generate::{GenerateOptions, generate};

fn key(batch: u64) -> BatchKey {
    BatchKey { seed: 1, epoch: 0, batch }
}

fn options() -> OwnOptions {
    OwnOptions::default()
        .with(FrontierOptions { frontier_size: 40, ..FrontierOptions::default() })
        .with(ClusterOptions { parts: 20, parts_per_batch: 2, ..ClusterOptions::default() })
}

#[test]
fn samplers_draw_distinct_ascending_nodes_by_the_key_alone() {
    let generator = GenerateOptions { scale: 11, degree: Some(12.0), dim: 0, ..GenerateOptions::default() };
    let graph = generate("kronecker", &generator).unwrap().graph;
    let roots: Vec<NodeId> = (0..2048).step_by(2).collect();
    let mut scratch = SubgraphScratch::default();
    let own = options();
    for (name, make) in of_subgraphs() {
        let sampler = make(
            &graph,
            &roots,
            &SubgraphContext { budget: 300, own: &own, partition: None, progress: &Quiet },
        )
        .unwrap();
        assert!(sampler.budget() > 0 && sampler.epoch(roots.len()) > 0, "{name}");
        let max = if name == "saint-rw" { 450 } else { 300 };
        let (mut nodes, mut again) = (vec![3, 2, 1], Vec::new());
        let mut all = Vec::new();
        for batch in 0..8 {
            sampler.sample(&graph, key(batch), &mut scratch, &mut nodes).unwrap();
            assert!(nodes.is_sorted_by(|a, b| a < b), "{name}");
            assert!(name == "cluster" || nodes.len() <= max, "{name}: {}", nodes.len());
            assert!(nodes.last().is_some_and(|&v| v < 2048));
            sampler.sample(&graph, key(batch), &mut SubgraphScratch::default(), &mut again).unwrap();
            assert_eq!(nodes, again, "{name}");
            all.push(nodes.clone());
        }
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{name}");
    }
}

#[test]
fn samplers_of_degenerate_graphs_end_or_report_the_reason() {
    let graphs = [
        (graph_of(&[&[], &[], &[]]), vec![0, 2]),
        (graph_of(&[&[0]]), vec![0]),
        (graph_of(&[&[1], &[2], &[]]), vec![0]),
        (graph_of(&[&[1], &[0], &[]]), vec![2]),
    ];
    let own = OwnOptions::default().with(ClusterOptions {
        parts: 1,
        parts_per_batch: 1,
        ..ClusterOptions::default()
    });
    let with = SubgraphContext { budget: 8000, own: &own, partition: None, progress: &Quiet };
    for (name, make) in of_subgraphs() {
        for (graph, roots) in &graphs {
            match make(graph, roots, &with) {
                Ok(sampler) => {
                    let mut nodes = Vec::new();
                    sampler.sample(graph, key(0), &mut SubgraphScratch::default(), &mut nodes).unwrap();
                    assert!(!nodes.is_empty(), "{name}");
                }
                Err(message) => {
                    assert!(message.contains("edges") || message.contains("sum to 0"), "{message}")
                }
            }
            if !matches!(name, "saint-edge") {
                let message = make(graph, &[], &with).err().unwrap();
                assert!(message.contains("no nodes to start from"), "{name}: {message}");
            }
            if name != "cluster" {
                for budget in [0, usize::MAX] {
                    let message = make(graph, roots, &SubgraphContext { budget, ..with });
                    assert!(message.err().unwrap().contains(&format!("subgraphs of {budget} nodes")));
                }
            }
        }
    }
}

#[test]
fn nodes_are_drawn_by_degree() {
    let graph = graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[0], &[]]);
    let (make, own) = (find_subgraphs("saint-node").unwrap(), options());
    // a subgraph of one draw is the draw
    let sampler = make(
        &graph,
        &[0, 2, 4, 5],
        &SubgraphContext { budget: 1, own: &own, partition: None, progress: &Quiet },
    )
    .unwrap();
    let (mut scratch, mut nodes, mut counts) = (SubgraphScratch::default(), Vec::new(), vec![0; 6]);
    for batch in 0..20_000 {
        sampler.sample(&graph, key(batch), &mut scratch, &mut nodes).unwrap();
        counts[nodes[0] as usize] += 1;
    }
    // node 5 has no neighbours and counts as if it had one
    fits(&counts, &[4.0, 0.0, 3.0, 0.0, 1.0, 1.0]);
}
