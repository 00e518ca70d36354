//! Draws over ranks without the edges that a batch excludes.

use graphmill_loader::link::ExcludedEdges;

use super::*;

#[test]
fn walks_over_ranks_leave_out_edges_as_a_single_process_does() {
    let graph = graph();
    let degrees: Vec<u32> = (0..NODES as NodeId).map(|v| graph.in_degree(v) as u32).collect();
    let dst: Vec<NodeId> = (0..60).map(|i| i * 7 % NODES as NodeId).collect();
    let key = BatchKey { seed: 9, epoch: 1, batch: 2 };
    // the first in-neighbours of most destinations
    let mut excluded = ExcludedEdges::default();
    let first = |&v: &NodeId| graph.in_neighbors(v).first().map(|&u| (u, v));
    excluded.refill(dst.iter().take(40).filter_map(first));
    let (mut ends, mut left) = (vec![0], Vec::new());
    for v in 0..NODES as NodeId {
        left.extend(graph.in_neighbors(v).iter().copied().filter(|&u| !excluded.contains(u, v)));
        ends.push(left.len() as u64);
    }
    let cut = Graph::new(ends.into(), left.into()).unwrap();
    let walks = WalkOptions { num_walks: 6, restart_prob: 0.2 };
    let walk = || RandomWalk::new([-1], &walks, 3).unwrap();
    let draw = |sampler: &dyn HopSampler, graph: &Graph, excluded: Option<&ExcludedEdges>| {
        let aggregation = Aggregation::Sum;
        let request = HopRequest { aggregation, excluded, ..HopRequest::new(graph, 0, &dst, key) };
        let mut block = Block::default();
        sampler.sample_hop(&request, &mut HopScratch::default(), &mut block).unwrap();
        (block.indptr, block.indices, block.edge_weight)
    };
    let expected = draw(&walk(), &cut, None);
    assert_eq!(draw(&walk(), &graph, Some(&excluded)), expected);
    assert_ne!(draw(&walk(), &graph, None), expected);
    on_ranks(3, |post, book| {
        let own = part(&graph, &book);
        let distributed = Distributed::new(Arc::new(walk()), post.clone(), book).unwrap();
        let distributed = distributed.with_degrees(degrees.clone().into());
        distributed.serve(&own);
        Collective::new(post).barrier(1).unwrap();
        assert_eq!(draw(&distributed, &own, Some(&excluded)), expected);
    });
}
