//! Draws over ranks without the edges that a batch excludes.

use super::*;

/// The first in-neighbours of two thirds of these nodes, all in-neighbours of some, and an edge
/// that the graph may not have.
pub(super) fn some_edges(graph: &Graph, nodes: &[NodeId]) -> ExcludedEdges {
    let mut excluded = ExcludedEdges::default();
    let first = |&v: &NodeId| graph.in_neighbors(v).first().map(|&u| (u, v));
    let edges = nodes.iter().take(nodes.len() * 2 / 3).filter_map(first);
    let whole = nodes.iter().step_by(9).flat_map(|&v| graph.in_neighbors(v).iter().map(move |&u| (u, v)));
    excluded.refill(edges.chain(whole).chain([(nodes[0], nodes[1])]));
    excluded
}

/// The graph without these edges.
fn without(graph: &Graph, excluded: &ExcludedEdges) -> Graph {
    let (mut ends, mut left, mut weights) = (vec![0], Vec::new(), Vec::new());
    for v in 0..NODES as NodeId {
        let first = graph.indptr()[v as usize] as usize;
        for (e, &u) in (first..).zip(graph.in_neighbors(v)).filter(|(_, u)| !excluded.contains(**u, v)) {
            left.push(u);
            weights.push(graph.edge_weight().unwrap()[e]);
        }
        ends.push(left.len() as u64);
    }
    Graph::new(ends.into(), left.into()).unwrap().with_edge_weight(weights.into()).unwrap()
}

#[test]
fn hops_over_ranks_leave_out_edges_as_a_single_process_does() {
    let graph = graph();
    let degrees: Vec<u32> = (0..NODES as NodeId).map(|v| graph.in_degree(v) as u32).collect();
    let dst: Vec<NodeId> = (0..60).map(|i| i * 7 % NODES as NodeId).collect();
    let key = BatchKey { seed: 9, epoch: 1, batch: 2 };
    let excluded = some_edges(&graph, &dst);
    let cut = without(&graph, &excluded);
    type Make = fn(&Graph) -> Arc<dyn HopSampler>;
    let makes: [Make; 6] = [
        |_| {
            let walks = WalkOptions { num_walks: 6, restart_prob: 0.2 };
            Arc::new(RandomWalk::new([-1], &walks, 3).unwrap())
        },
        |_| Arc::new(Neighbor::new([4]).unwrap()),
        |_| Arc::new(Full::new(1).unwrap()),
        |graph| {
            Arc::new(Weighted::new(graph, [4], &WeightedOptions::default(), EdgeWeights::Stored).unwrap())
        },
        |graph| {
            let options = WeightedOptions { replace: true, weighted_index: DrawBy::PrefixSums };
            Arc::new(Weighted::new(graph, [4], &options, EdgeWeights::Stored).unwrap())
        },
        |graph| {
            let options = LaborOptions { labor_iterations: Iterations(2), ..LaborOptions::default() };
            Arc::new(Labor::with_options(graph, [4], &options, EdgeWeights::Stored, 1).unwrap())
        },
    ];
    for make in makes {
        let draw = |sampler: &dyn HopSampler, graph: &Graph, excluded: Option<&ExcludedEdges>| {
            let aggregation = Aggregation::Sum;
            let request = HopRequest { aggregation, excluded, ..HopRequest::new(graph, 0, &dst, key) };
            let mut block = Block::default();
            sample_remaining(sampler, &request, &mut HopScratch::default(), &mut block).unwrap();
            (block.indptr, block.indices, block.edge_weight)
        };
        let expected = draw(&*make(&cut), &cut, None);
        assert_eq!(draw(&*make(&graph), &graph, Some(&excluded)), expected);
        assert_ne!(draw(&*make(&graph), &graph, None), expected);
        on_ranks(3, |post, book| {
            let own = part(&graph, &book);
            let distributed = Distributed::new(make(&own), post.clone(), book).unwrap();
            let distributed = distributed.with_degrees(degrees.clone().into());
            distributed.serve(&own);
            Collective::new(post).barrier(1).unwrap();
            assert_eq!(draw(&distributed, &own, Some(&excluded)), expected);
        });
    }
}
