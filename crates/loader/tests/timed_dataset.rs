//! A dataset with times and edge features, from the directory to the rows of a batch.

use graphmill_core::{FeatureData, Features, Matrix};
use graphmill_data::typed::{self, TableData, TypedBuilder, TypedDataset, Values, Verify};
use graphmill_loader::{
    BatchKey,
    feature::Host,
    gather_edges,
    time::{TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace, TimedGraph},
};

/// Users who buy items at some times, with two features of each sale.
fn shop() -> TypedDataset {
    let mut builder = TypedBuilder::new("shop");
    builder.node_type("user", 3);
    builder.node_type("item", 2).time(vec![0, 25]);
    builder
        .edge_type("user", "buys", "item")
        .edges(vec![0, 1, 2, 2, 0], vec![1, 0, 1, 0, 0])
        .time(vec![40, 30, 10, 20, 5])
        .features(2, vec![0.0f32, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5])
        .with_reverse("bought-by");
    builder.build().unwrap()
}

#[test]
fn stored_times_and_edge_features_reach_the_batches() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop");
    shop().save(&path).unwrap();
    let data = typed::open(&path, Verify::Once).unwrap();
    let of_edges: Vec<_> = data.edges.iter().map(|edges| edges.time.clone()).collect();
    let of_nodes = data.nodes.iter().map(|nodes| nodes.time.clone()).collect();
    let timed = TimedGraph::new(data.graph().unwrap(), &of_edges, of_nodes).unwrap();
    let schema = timed.schema();
    let buys = schema.find_relation("buys").unwrap();
    let table = data.edges[buys].features.as_ref().unwrap();
    let TableData::Dense(Values::F32(values)) = &table.data else { panic!("features of f32") };
    let rows = Host::new(&Features { dim: table.width, data: FeatureData::F32(values.clone()) });

    let fanout = "-1;bought-by=0".parse().unwrap();
    let sampler = TimeSampler::new(schema, &fanout, TimeOptions::default()).unwrap();
    // item 0 at time 25 and at time 31
    let seeds = TimeSeeds::new(0, vec![vec![], vec![0, 0]], vec![vec![], vec![25, 31]]);
    let request = TimeRequest::new(&timed, BatchKey { seed: 1, epoch: 0, batch: 0 });
    let batch = sampler.sample(&request, &mut TimeWorkspace::new(schema), seeds).unwrap();
    let block = &batch.sampled.blocks[0].relations[buys];
    // users are shared by both seeds: 0 and 2 bought before time 25, and 1 before time 31
    assert_eq!(batch.sampled.input_nodes, [vec![0, 2, 1], vec![0, 0]]);
    assert_eq!((&block.indptr[..], &block.indices[..]), (&[0, 2, 5][..], &[0, 1, 0, 1, 2][..]));
    let mut features = Matrix::default();
    gather_edges(&rows, &batch.edges[0][buys], &mut Vec::new(), &mut features).unwrap();
    let expected = [4.0, 4.5, 3.0, 3.5, 4.0, 4.5, 3.0, 3.5, 1.0, 1.5];
    assert_eq!(features.view().host(), expected);
    let times = data.edges[buys].time.as_ref().unwrap();
    let of_batch: Vec<i64> = batch.edges[0][buys].iter().map(|&e| times[e as usize]).collect();
    assert_eq!(of_batch, [5, 20, 5, 20, 30]);

    // item 1 exists from time 25 on
    let early = TimeSeeds::new(0, vec![vec![], vec![1]], vec![vec![], vec![24]]);
    let error = sampler.sample(&request, &mut TimeWorkspace::new(schema), early).unwrap_err();
    assert!(error.to_string().contains("the node exists from time 25 on"));
}
