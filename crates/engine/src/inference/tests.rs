use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use graphmill_core::{EdgeOptions, Features, SparseRows, block::Aggregation, build};
use graphmill_data::{bottom_hop::stacked, verification::Verify};
use graphmill_loader::{
    Feature, Traffic,
    feature::{Capabilities, Host, OutputRows},
};
use graphmill_nn::{
    backend::Cpu,
    layer::{self, Aggregator, Combine, SageOptions},
    model::ModelConfig,
};

use super::{neighbors::chunk_len, *};

/// A graph with edges from nodes 1..nodes to node 0, and to each other node from its two
/// predecessors.
fn hub(nodes: u32) -> Graph {
    let mut edges: Vec<(u32, u32)> = (1..nodes).map(|u| (u, 0)).collect();
    edges.extend((2..nodes).flat_map(|v| [(v - 1, v), (v - 2, v)]));
    let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
    build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap()
}

#[test]
fn hubs_shorten_chunks_to_at_least_one_node() {
    let graph = hub(1000);
    let ids: Vec<u32> = (0..1000).collect();
    // the hub has 999 in-neighbours: a chunk of two may have 512 edges
    assert_eq!(chunk_len(&graph, &ids, 2), 1);
    assert_eq!(chunk_len(&graph, &ids[1..], 2), 2);
    assert_eq!(chunk_len(&graph, &ids, 4), 4);
    assert_eq!(chunk_len(&graph, &ids[998..], 100), 2);
    assert_eq!(chunk_len(&graph, &ids, usize::MAX), 1000);
}

/// Returns true if the rows are equal up to rounding, which depends on the number of rows of a
/// product.
fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + b.abs()))
}

#[test]
fn embeddings_of_a_single_layer_are_the_features() {
    let data = [0.0, 1.5, 0.0, 2.0, 0.0, 0.0];
    let features = Matrix::sparse_table(SparseRows::from_dense(2, &data).unwrap());
    let config = ModelConfig { layers: 1, ..ModelConfig::default() };
    let (model, graph, mut out) = (Model::new(&config, 2, 3, 1).unwrap(), hub(3), Matrix::default());
    let stored = Features::f32(2, data.to_vec());
    let host = Host::new(&stored);
    for source in [Source::Table(&features), Source::Feature(&host)] {
        let backend = Cpu::default();
        let mut inference = Inference::new(&graph, source, None, &backend, 10);
        inference.run(&model, &[2, 0], Output::Embeddings, &mut out).unwrap();
        assert_eq!(out.view().host(), [0.0, 0.0, 0.0, 1.5]);
    }
}

#[test]
fn rows_do_not_depend_on_chunk_length_and_requested_nodes() {
    let graph = hub(700);
    let data: Vec<f32> = (0..700 * 6).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let data: Vec<f32> = data.iter().map(|&x| if x < 0.0 { 0.0 } else { x }).collect();
    let features = Matrix::from_slice(700, 6, &data);
    let sparse = Matrix::sparse_table(SparseRows::from_dense(6, &data).unwrap());
    let symmetric = SymmetricWeights::new(&graph);
    let variants = [("sage", 8, false), ("sage", 3, false), ("sage", 8, true)];
    for (model, hidden, input_layer) in
        [("gcn", 8, false), ("gat", 8, false), ("gin", 8, false)].into_iter().chain(variants)
    {
        let config = ModelConfig { model: model.into(), hidden, input_layer, ..ModelConfig::default() };
        let model = Model::new(&config, 6, 3, 1).unwrap();
        let symmetric = model.needs_symmetric_weights().then_some(&symmetric);
        let from = |features: Source, chunk: usize, wanted: &[NodeId]| {
            let mut out = Matrix::default();
            let backend = Cpu::default();
            let mut inference = Inference::new(&graph, features, symmetric, &backend, chunk);
            inference.run(&model, wanted, Output::Logits, &mut out).unwrap();
            out.view().host().to_vec()
        };
        let run = |chunk, wanted: &[NodeId]| from((&features).into(), chunk, wanted);
        let all: Vec<NodeId> = (0..700).collect();
        let whole = run(usize::MAX, &all);
        for chunk in [100, 1000] {
            assert!(close(&from((&sparse).into(), chunk, &all), &whole), "{} of sparse rows", config.model);
            let few = from((&sparse).into(), chunk, &[3, 1]);
            assert!(close(&few, &[&whole[9..12], &whole[3..6]].concat()));
        }
        for chunk in [1, 2, 100] {
            assert!(close(&run(chunk, &all), &whole), "{} by {chunk}", config.model);
        }
        // node 0 needs all nodes, the others only a few predecessors
        for wanted in [&[699, 650, 699][..], &[699, 5], &[0]] {
            let rows: Vec<f32> = wanted.iter().flat_map(|&v| whole[v as usize * 3..][..3].to_vec()).collect();
            assert!(close(&run(100, wanted), &rows), "{} of {wanted:?}", config.model);
        }
    }
}

/// Rows in memory that count their reads, and fail after `max` reads of a row.
struct Counted {
    rows: Host,
    reads: Vec<AtomicUsize>,
    max: usize,
}

impl Feature for Counted {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn read_to(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
    ) -> graphmill_core::Result<Traffic> {
        for &v in ids {
            if self.reads[v as usize].fetch_add(1, Relaxed) >= self.max {
                return Err(graphmill_core::Error::invalid(format!("row {v} was read too often")));
            }
        }
        self.rows.read_to(ids, places, out)
    }

    fn row_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[test]
fn streamed_rows_give_the_bits_of_rows_in_memory_and_are_read_at_most_twice() {
    let graph = hub(700);
    let data: Vec<f32> = (0..700 * 6).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let table = Matrix::from_slice(700, 6, &data);
    let rows = Host::new(&Features::f32(6, data));
    let symmetric = SymmetricWeights::new(&graph);
    let backend = Cpu::default();
    let all: Vec<NodeId> = (0..700).collect();
    // hidden widths for which rows in memory are transformed first or aggregated first
    for (model, hidden, input_layer, residual) in [
        ("sage", 2, false, "none"),
        ("sage", 16, false, "none"),
        ("sage", 16, true, "none"),
        ("gcn", 2, false, "none"),
        ("gcn", 2, false, "linear"),
        ("gcn", 16, false, "none"),
        ("gat", 8, false, "none"),
        ("gin", 2, false, "none"),
    ] {
        let name = format!("{model} of {hidden}");
        let config = ModelConfig {
            model: model.into(),
            hidden,
            input_layer,
            residual: residual.parse().unwrap(),
            ..ModelConfig::default()
        };
        let model = Model::new(&config, 6, 3, 1).unwrap();
        let symmetric = model.needs_symmetric_weights().then_some(&symmetric);
        let orders = model.inference_orders(700, graph.num_edges());
        let run = |source: Source, wanted: &[NodeId], chunk: usize| -> Result<Vec<f32>> {
            let mut out = Matrix::default();
            let mut inference = Inference::new(&graph, source, symmetric, &backend, chunk);
            inference.run(&model, wanted, Output::Logits, &mut out)?;
            Ok(out.view().host().to_vec())
        };
        for chunk in [1, 100, 1000] {
            for wanted in [&all[..], &[699, 650, 699], &[3, 0]] {
                let reads = all.iter().map(|_| AtomicUsize::new(0)).collect();
                let counted = Counted { rows: rows.clone(), reads, max: 2 };
                let out = run(Source::Feature(&counted), wanted, chunk).unwrap();
                let expected = run(Source::Table(&table), wanted, chunk).unwrap();
                if input_layer || orders[0] == ProductOrder::TransformFirst {
                    assert_eq!(out, expected, "{name} by {chunk}");
                }
                assert!(close(&out, &expected), "{name} by {chunk}");
                let max_reads = counted.reads.iter().map(|reads| reads.load(Relaxed)).max().unwrap();
                let own = !input_layer && model.combines_own_rows(0);
                assert_eq!(max_reads, if own { 2 } else { 1 }, "{name} by {chunk}");
                let failing = Counted { max: 0, ..counted };
                assert!(
                    run(Source::Feature(&failing), wanted, chunk)
                        .unwrap_err()
                        .to_string()
                        .contains("was read too often")
                );
            }
        }
    }
}

#[test]
fn stored_aggregates_take_the_place_of_all_neighbours_in_the_first_layer() {
    let graph = hub(60);
    let data: Vec<f32> = (0..60 * 6).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let (table, features) = (Matrix::from_slice(60, 6, &data), Features::f32(6, data));
    let weights = SymmetricWeights::new(&graph);
    let (backend, all) = (Cpu::default(), (0..60).collect::<Vec<NodeId>>());
    let names = [("sage", 2), ("sage", 16), ("gcn", 2), ("gcn", 16), ("gin", 2), ("gin", 16)];
    for ((name, hidden), layers) in names.into_iter().flat_map(|of| [(of, 1), (of, 2), (of, 3)]) {
        let config = ModelConfig { model: name.into(), hidden, layers, ..ModelConfig::default() };
        let model = Model::new(&config, 6, 3, 1).unwrap();
        let symmetric = model.needs_symmetric_weights().then_some(&weights);
        let aggregation = model.fixed_bottom().unwrap();
        let stacked = stacked(&graph, &features, aggregation, None, Verify::Once).unwrap();
        let in_memory = Host::new(&stacked).matrix();
        let run = |source: Source, wanted: &[NodeId], chunk: usize| {
            let mut out = Matrix::default();
            let mut inference = Inference::new(&graph, source, symmetric, &backend, chunk);
            inference.run(&model, wanted, Output::Logits, &mut out).unwrap();
            (out.view().host().to_vec(), inference.take_work())
        };
        for (chunk, wanted) in [(1, &all[..]), (7, &all), (1000, &all), (1000, &[59, 30, 59]), (3, &[3, 0])] {
            let what = format!("{name} of {hidden}, {layers} layers, by {chunk}");
            let (expected, of_all) = run(Source::Table(&table), wanted, chunk);
            // the first layer reads the rows of its destinations and their aggregates, once
            let reads = (0..120).map(|_| AtomicUsize::new(0)).collect();
            let counted = Counted { rows: Host::new(&stacked), reads, max: 1 };
            let sources = [
                Source::StackedTable(&in_memory, aggregation),
                Source::StackedFeature(&counted, aggregation),
            ];
            let found = sources.map(|source| run(source, wanted, chunk));
            assert_eq!(found[0].0, found[1].0, "{what}: bits of streamed rows");
            let largest = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
            for (a, b) in found[0].0.iter().zip(&expected) {
                assert!((a - b).abs() <= 1e-5 * largest, "{what}: {a} and {b}");
            }
            let work = found[0].1;
            assert_eq!(work.rows, of_all.rows, "{what}");
            assert!(work.edges < of_all.edges, "{what}: {work:?} and {of_all:?}");
            let read = counted.reads.iter().filter(|reads| reads.load(Relaxed) > 0).count();
            if layers == 1 {
                let mut distinct = wanted.to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!((read, work.edges), (2 * distinct.len(), distinct.len() as u64), "{what}");
            }
        }
        // other neighbours, or aggregates of another kind, read the features alone
        let other = if aggregation == Aggregation::Sum { Aggregation::Mean } else { Aggregation::Sum };
        for chunk in [7, 1000] {
            let plain = run(Source::Table(&table), &all, chunk);
            let unread = run(Source::StackedTable(&in_memory, other), &all, chunk);
            assert_eq!((unread.0, unread.1.edges), (plain.0, plain.1.edges), "{name} of {hidden}");
        }
    }
}

/// Every kind of layer, and every reason to store rows below a layer that transforms first. Of 12
/// features and 10 classes, layers of 8 hidden columns transform first at the bottom, and those of
/// 16 at the top.
fn configs(layers: usize) -> Vec<ModelConfig> {
    let of = |model: &str, hidden| ModelConfig { model: model.into(), hidden, layers, ..Default::default() };
    let mut configs: Vec<ModelConfig> =
        layer::TABLE.iter().flat_map(|entry| [8, 16].map(|hidden| of(entry.name, hidden))).collect();
    for model in ["sage", "gcn"] {
        let plain = || of(model, 16);
        configs.push(ModelConfig { residual: "linear".parse().unwrap(), ..plain() });
        configs.push(ModelConfig { norm: "layer".parse().unwrap(), input_layer: true, ..plain() });
        configs.push(ModelConfig { norm: "batch".parse().unwrap(), head_layers: 2, ..plain() });
        configs.push(ModelConfig { head_layers: 1, input_layer: true, ..of(model, 8) });
    }
    let residual = "identity".parse().unwrap();
    configs.push(ModelConfig { residual, input_layer: true, ..of("sage", 16) });
    let options = SageOptions::default();
    configs.push(of("sage", 16).with(SageOptions { aggregator: Aggregator::MaxPool, ..options }));
    configs.push(of("sage", 16).with(SageOptions { sage_combine: Combine::Concat, ..options }));
    configs
}

#[test]
fn chunks_passed_on_give_the_bits_of_stored_layers() {
    let graph = hub(24);
    let data: Vec<f32> = (0..24 * 12).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let (table, features) = (Matrix::from_slice(24, 12, &data), Features::f32(12, data));
    let rows = Host::new(&features);
    let weights = SymmetricWeights::new(&graph);
    let (backend, all) = (Cpu::default(), (0..24).collect::<Vec<NodeId>>());
    // models that do not store the rows below their last layer, and those that do
    let mut stored = [0; 2];
    for config in [1, 2, 3].into_iter().flat_map(configs) {
        let model = Model::new(&config, 12, 10, 1).unwrap();
        let symmetric = model.needs_symmetric_weights().then_some(&weights);
        let of_stack = model.fixed_bottom().map(|aggregation| {
            let stacked = stacked(&graph, &features, aggregation, None, Verify::Once).unwrap();
            (Host::new(&stacked), aggregation)
        });
        let mut sources = vec![Source::Table(&table), Source::Feature(&rows)];
        sources.extend(of_stack.as_ref().map(|(rows, of)| Source::StackedFeature(rows, *of)));
        let last = model.num_layers() - 1;
        let order = model.inference_orders(24, graph.num_edges())[last];
        let stores = order == ProductOrder::AggregateFirst
            || (model.combines_own_rows(last) && !model.has_own_product(last));
        for (source, chunk) in sources.into_iter().flat_map(|of| [(of, 1), (of, 7), (of, 1000)]) {
            let inference = || Inference::new(&graph, source, symmetric, &backend, chunk);
            let (mut passing, mut storing) = (inference(), inference());
            storing.layers.passes_on = false;
            // later requests find the buffers of earlier ones
            let few = (&[23, 5, 23][..], Output::Logits);
            let requests = [few, (&all[..], Output::Logits), (&all[..], Output::Embeddings), few];
            let mut outs = [Matrix::default(), Matrix::default()];
            for (wanted, output) in requests.into_iter().take(if chunk == 1 { 1 } else { 4 }) {
                let what = format!("{config:?} by {chunk}: {output:?} of {}", wanted.len());
                passing.run(&model, wanted, output, &mut outs[0]).unwrap();
                storing.run(&model, wanted, output, &mut outs[1]).unwrap();
                let [found, expected] = [&outs[0], &outs[1]].map(|out| out.view().host());
                assert!(found == expected, "{what}: {found:?} and {expected:?}");
                assert_eq!(passing.take_work(), storing.take_work(), "{what}");
                // the rows that the last layer reads
                if output == Output::Logits && (last > 0 || config.input_layer) {
                    let below = &passing.layers.outputs.rows;
                    assert_eq!(below.num_rows() > 0, stores, "{what}");
                    assert!(storing.layers.outputs.rows.num_rows() > 0, "{what}");
                    stored[usize::from(stores)] += 1;
                }
            }
        }
    }
    assert!(stored.iter().all(|&count| count > 0), "{stored:?}");
}
