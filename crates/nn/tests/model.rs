//! Whole models: gradients, chunked evaluation against minibatches, names, errors.

use std::collections::BTreeSet;

use graphmill_core::Block;
use graphmill_nn::{
    Activations, Backend, Matrix, Model, ModelConfig, Pass, ProductOrder, View,
    backend::{Activation, Cpu, Reference, ops::Add},
    cost::BlockShape,
    layer::{
        Aggregator, Combine, GatOptions, LayerInput, MixHopOptions, NormKind, SageOptions, needs_transposed,
    },
    model::ResidualKind,
};

use crate::support::{Checked, all_orders, check, distance, dot, global, nudge, pass, random, random_block};

const F: usize = 5;
const C: usize = 3;

fn named(model: &str) -> ModelConfig {
    ModelConfig { model: model.into(), hidden: 4, dropout: 0.3, ..ModelConfig::default() }
        .with(GatOptions { heads: 2, ..GatOptions::default() })
}

/// Models that together enable every option.
fn configs() -> Vec<ModelConfig> {
    let sage = ModelConfig { activation: "elu".parse().unwrap(), ..named("sage") };
    let gcn = ModelConfig { activation: "elu".parse().unwrap(), ..named("gcn") };
    vec![
        sage.clone(),
        ModelConfig { layers: 1, ..sage.clone() }
            .with(SageOptions { aggregator: Aggregator::MaxPool, ..SageOptions::default() }),
        ModelConfig {
            norm: "layer".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            input_dropout: 0.2,
            ..sage.clone()
        },
        ModelConfig {
            norm: "batch".parse().unwrap(),
            head_layers: 1,
            activation: "leaky-relu".parse().unwrap(),
            ..sage.clone()
        },
        ModelConfig {
            norm: "l2".parse().unwrap(),
            residual: "identity".parse().unwrap(),
            input_layer: true,
            ..sage.clone()
        },
        ModelConfig { layers: 3, head_layers: 2, input_layer: true, input_dropout: 0.2, ..sage },
        gcn.clone(),
        ModelConfig {
            norm: "batch".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            head_layers: 3,
            ..gcn.clone()
        },
        ModelConfig {
            residual: "identity".parse().unwrap(),
            input_layer: true,
            head_layers: 1,
            ..gcn.clone()
        },
        ModelConfig { activation: "identity".parse().unwrap(), layers: 1, dropout: 0.0, ..gcn },
        ModelConfig { activation: "elu".parse().unwrap(), ..named("gat") }.with(GatOptions {
            heads: 2,
            out_heads: 2,
            attention_dropout: 0.2,
        }),
        ModelConfig {
            norm: "layer".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            head_layers: 1,
            ..named("gat")
        },
        named("gin"),
        ModelConfig {
            norm: "batch".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            activation: "elu".parse().unwrap(),
            ..named("gin")
        },
        ModelConfig { activation: "elu".parse().unwrap(), ..named("pinsage") },
        ModelConfig {
            norm: "layer".parse().unwrap(),
            residual: "linear".parse().unwrap(),
            head_layers: 1,
            activation: "elu".parse().unwrap(),
            ..named("pinsage")
        },
        ModelConfig { layers: 1, activation: "elu".parse().unwrap(), ..named("mixhop") },
        ModelConfig {
            layers: 1,
            norm: "layer".parse().unwrap(),
            head_layers: 1,
            activation: "elu".parse().unwrap(),
            ..named("mixhop")
        }
        .with(MixHopOptions { hops: 3 }),
        ModelConfig { input_layer: true, activation: "elu".parse().unwrap(), ..named("mixhop") }
            .with(MixHopOptions { hops: 1 }),
    ]
}

fn model(config: &ModelConfig) -> Model {
    let mut model = Model::new(config, F, C, 7).unwrap();
    let mut seed = 50;
    model.visit_mut(&mut |_, p| {
        if p.value.num_rows() == 1 {
            seed += 1; // move parameters away from zero and one
            Add { alpha: 0.2, x: random(1, p.value.num_cols(), seed).view(), y: p.value.view_mut() }
                .run(pass(true).backend);
        }
    });
    model
}

/// Blocks of a batch of 4 seeds for the given number of layers.
fn blocks(layers: usize, weighted: bool) -> Vec<Block> {
    let sizes = [4, 9, 14, 20];
    (0..layers).rev().map(|l| random_block(sizes[l], sizes[l + 1], weighted, l as u64)).collect()
}

fn loss(model: &Model, orders: &[ProductOrder], blocks: &[Block], x: View, c: &Matrix) -> f64 {
    let mut acts = Activations::default();
    model.forward(&pass(true), orders, blocks, x, &mut acts);
    dot(acts.logits(), c.view())
}

fn gradients(
    model: &mut Model,
    orders: &[ProductOrder],
    blocks: &[Block],
    x: View,
    c: &Matrix,
) -> Vec<(String, Matrix)> {
    gradients_on(&Reference, model, orders, blocks, x, c)
}

/// [`gradients`] by a backend.
fn gradients_on(
    backend: &dyn Backend,
    model: &mut Model,
    orders: &[ProductOrder],
    blocks: &[Block],
    x: View,
    c: &Matrix,
) -> Vec<(String, Matrix)> {
    let (mut acts, pass) = (Activations::default(), Pass { backend, ..pass(true) });
    model.zero_grad(backend);
    model.forward(&pass, orders, blocks, x, &mut acts);
    acts.logits_and_grad().1.host().copy_from_slice(c.view().host());
    model.backward(&pass, orders, blocks, x, &mut acts);
    let mut grads = Vec::new();
    model.visit(&mut |name, p| {
        if p.trainable {
            grads.push((name.to_string(), p.grad.clone()));
        }
    });
    grads
}

#[test]
fn models_match_finite_differences_in_every_order() {
    for config in configs() {
        let mut model = model(&config);
        let mut blocks = blocks(model.num_layers(), model.needs_symmetric_weights());
        let x = random(blocks[0].num_src, F, 1);
        let c = random(4, C, 2);
        let mut first: Option<Vec<(String, Matrix)>> = None;
        for orders in all_orders(&model) {
            for (l, block) in blocks.iter_mut().enumerate() {
                block.transposed = Default::default(); // only required transposes are present
                if model.needs_transposed(&orders, l) {
                    block.transpose();
                }
            }
            let grads = gradients(&mut model, &orders, &blocks, x.view(), &c);
            if let Some(first) = &first {
                for ((name, a), (_, b)) in grads.iter().zip(first) {
                    assert!(distance(a.view(), b.view()) < 2e-5, "{config:?} {orders:?} {name}");
                }
                continue;
            }
            let mut checked = Checked::default();
            for (name, grad) in &grads {
                checked += check(&format!("{config:?} {name}"), grad.view(), |i, delta| {
                    let change = |model: &mut Model, delta| {
                        model.visit_mut(&mut |n, p| {
                            if n == name {
                                nudge(p, i, delta);
                            }
                        });
                    };
                    change(&mut model, delta);
                    let loss = loss(&model, &orders, &blocks, x.view(), &c);
                    change(&mut model, -delta);
                    loss
                });
            }
            checked.assert_all_but_one_in(6, &format!("{config:?}"));
            first = Some(grads);
        }
    }
}

#[test]
fn global_bottom_blocks_match_local_ones() {
    let mut seen = 0;
    for config in configs() {
        let mut model = model(&config);
        let mut blocks = blocks(model.num_layers(), model.needs_symmetric_weights());
        let x = random(blocks[0].num_src, F, 3);
        let c = random(4, C, 4);
        for orders in all_orders(&model) {
            if !model.can_read_table(&orders) {
                continue;
            }
            seen += 1;
            assert!(!model.needs_transposed(&orders, 0));
            let local = gradients(&mut model, &orders, &blocks, x.view(), &c);
            let (block, table) = global(&blocks[0], &x);
            let old = std::mem::replace(&mut blocks[0], block);
            let from_table = gradients(&mut model, &orders, &blocks, table.view(), &c);
            blocks[0] = old;
            for ((name, a), (_, b)) in local.iter().zip(&from_table) {
                assert_eq!(distance(a.view(), b.view()), 0.0, "{config:?} {name}");
            }
        }
    }
    assert!(seen >= 6, "{seen}");
}

/// The rows of `table` in two memories, the first `held` of them in a cache.
fn in_two_memories(table: &Matrix, held: usize) -> Matrix {
    let (cached, staged) = table.view().host().split_at(held * table.num_cols());
    let mut rows = Matrix::default();
    let own = rows.set_slots(&cached.to_vec().into(), table.num_rows() - held, table.num_cols());
    own.copy_from_slice(staged);
    rows
}

/// Models that aggregate their input rows first read these in a cache and behind it, with the bits
/// of a table. All others transform them first.
#[test]
fn rows_in_two_memories_match_a_table() {
    let backends: [&dyn Backend; 2] = [&Reference, &Cpu::default()];
    let mut seen = BTreeSet::new();
    for config in configs() {
        let mut model = model(&config);
        let mut blocks = blocks(model.num_layers(), model.needs_symmetric_weights());
        let (block, table) = global(&blocks[0], &random(blocks[0].num_src, F, 3));
        blocks[0] = block;
        let c = random(4, C, 4);
        for orders in all_orders(&model) {
            if !model.can_read_table(&orders) {
                continue;
            }
            seen.insert(config.model.clone());
            for backend in backends {
                let whole = gradients_on(backend, &mut model, &orders, &blocks, table.view(), &c);
                for held in [0, 1, table.num_rows() / 2, table.num_rows()] {
                    let rows = in_two_memories(&table, held);
                    let parts = gradients_on(backend, &mut model, &orders, &blocks, rows.view(), &c);
                    for ((name, a), (_, b)) in whole.iter().zip(&parts) {
                        assert_eq!(distance(a.view(), b.view()), 0.0, "{config:?} {name}, {held} cached");
                    }
                }
            }
        }
    }
    assert_eq!(Vec::from_iter(seen), ["gat", "gcn", "gin", "sage"]);
}

/// A graph of `n` nodes as one square block, with GCN's weights if `weighted`.
fn square(n: usize, weighted: bool) -> Block {
    random_block(n, n, weighted, 9)
}

/// Blocks of all in-neighbours of the nodes `0..seeds` over the given number of layers, and the
/// input nodes.
fn full_blocks(graph: &Block, seeds: usize, layers: usize) -> (Vec<Block>, Vec<usize>) {
    let mut nodes: Vec<usize> = (0..seeds).collect();
    let mut blocks = Vec::new();
    for _ in 0..layers {
        let mut block = Block { num_dst: nodes.len(), indptr: vec![0], ..Block::default() };
        for i in 0..block.num_dst {
            for e in graph.edges(nodes[i]) {
                let u = graph.indices[e] as usize;
                let at = nodes.iter().position(|&n| n == u).unwrap_or_else(|| {
                    nodes.push(u);
                    nodes.len() - 1
                });
                block.indices.push(at as u32);
                block.edge_weight.extend(graph.edge_weight.get(e));
            }
            block.self_weight.extend(graph.self_weight.get(nodes[i]));
            block.indptr.push(block.indices.len() as u32);
        }
        block.num_src = nodes.len();
        blocks.insert(0, block);
    }
    (blocks, nodes)
}

/// Global block of the nodes in `chunk`.
fn chunk_block(graph: &Block, chunk: std::ops::Range<usize>) -> Block {
    let edges = graph.indptr[chunk.start] as usize..graph.indptr[chunk.end] as usize;
    let weighted = !graph.edge_weight.is_empty();
    Block {
        num_dst: chunk.len(),
        num_src: graph.num_src,
        indptr: graph.indptr[chunk.start..=chunk.end].iter().map(|p| p - edges.start as u32).collect(),
        indices: graph.indices[edges.clone()].to_vec(),
        dst_ids: Some(chunk.clone().map(|v| v as u32).collect()),
        edge_weight: if weighted { graph.edge_weight[edges].to_vec() } else { Vec::new() },
        self_weight: if weighted { graph.self_weight[chunk].to_vec() } else { Vec::new() },
        ..Block::default()
    }
}

/// Scores of all nodes, computed layer by layer in chunks of three nodes, as in evaluation.
fn infer_all(model: &Model, orders: &[ProductOrder], graph: &Block, x: &Matrix) -> Matrix {
    let (pass, n) = (pass(false), graph.num_dst);
    let chunks = || (0..n).step_by(3).map(|at| at..n.min(at + 3));
    let mut scratch = Activations::default();
    let mut table = x.clone();
    if model.has_input_layer() {
        let mut next = Matrix::zeros(n, model.layer_in_dim(0));
        for chunk in chunks() {
            model.input_rows(&pass, table.rows(chunk.clone()), next.rows_mut(chunk));
        }
        table = next;
    }
    for (l, &order) in orders.iter().enumerate() {
        let mut t: Vec<Matrix> = Vec::new();
        if order == ProductOrder::TransformFirst {
            t.extend(model.transformed_dims(l).iter().map(|&dim| Matrix::zeros(n, dim)));
            for chunk in chunks() {
                model.transform_rows(l, &pass, table.rows(chunk.clone()), chunk.start, &mut t);
            }
        }
        let mut next = Matrix::zeros(n, model.layer_out_dim(l));
        for chunk in chunks() {
            let block = chunk_block(graph, chunk.clone());
            let input = LayerInput { order, block: &block, x: table.view(), transformed: &t };
            model.infer(l, &pass, &input, &mut scratch, next.rows_mut(chunk));
        }
        table = next;
    }
    if model.has_head() {
        let mut next = Matrix::zeros(n, C);
        for chunk in chunks() {
            model.head_rows(&pass, table.rows(chunk.clone()), &mut scratch, next.rows_mut(chunk));
        }
        table = next;
    }
    table
}

#[test]
fn chunked_evaluation_matches_full_neighbour_minibatches() {
    for config in configs() {
        let mut model = model(&config);
        model.visit_mut(&mut |_, p| {
            if !p.trainable {
                // positive, as running statistics after training are
                p.value.view_mut().host().iter_mut().enumerate().for_each(|(i, v)| *v = 0.5 + 0.1 * i as f32);
            }
        });
        let graph = square(11, model.needs_symmetric_weights());
        let x = random(11, F, 5);
        let mut orders = all_orders(&model);
        orders.push(model.inference_orders(11, graph.num_edges()));
        for orders in orders {
            let all = infer_all(&model, &orders, &graph, &x);
            // one square block for every layer
            let mut acts = Activations::default();
            model.forward(&pass(false), &orders, std::slice::from_ref(&graph), x.view(), &mut acts);
            assert!(distance(acts.logits(), all.view()) < 1e-5, "{config:?} {orders:?}");
            // a pyramid of blocks over three seeds
            let (blocks, nodes) = full_blocks(&graph, 3, model.num_layers());
            let mut rows = Matrix::zeros(nodes.len(), F);
            for (i, &node) in nodes.iter().enumerate() {
                rows.rows_mut(i..i + 1).host().copy_from_slice(x.rows(node..node + 1).host());
            }
            model.forward(&pass(false), &orders, &blocks, rows.view(), &mut acts);
            assert!(distance(acts.logits(), all.rows(0..3)) < 1e-5, "{config:?} {orders:?}");
        }
    }
}

#[test]
fn training_without_dropout_matches_evaluation() {
    for config in configs() {
        if config.norm == NormKind::Batch {
            continue; // training uses the batch's statistics
        }
        let mut config = ModelConfig { dropout: 0.0, input_dropout: 0.0, ..config };
        config.own.get_mut::<GatOptions>().attention_dropout = 0.0;
        let model = model(&config);
        let graph = [square(11, model.needs_symmetric_weights())];
        let x = random(11, F, 6);
        let orders = model.orders(&[BlockShape::from(&graph[0])]);
        let [mut train, mut evaluate] = [Activations::default(), Activations::default()];
        model.forward(&pass(true), &orders, &graph, x.view(), &mut train);
        model.forward(&pass(false), &orders, &graph, x.view(), &mut evaluate);
        assert_eq!(distance(train.logits(), evaluate.logits()), 0.0);
        let all = infer_all(&model, &orders, &graph[0], &x);
        assert!(distance(train.logits(), all.view()) < 1e-5);
    }
}

#[test]
fn dropout_masks_depend_on_the_pass_and_differ_between_layers() {
    let config = ModelConfig { layers: 3, dropout: 0.5, head_layers: 2, ..named("sage") };
    let model = model(&config);
    let blocks = blocks(3, false);
    let x = random(20, F, 8);
    let orders = [ProductOrder::AggregateFirst; 3];
    let run = |key| {
        let mut acts = Activations::default();
        let pass = graphmill_nn::Pass { key, ..pass(true) };
        model.forward(&pass, &orders, &blocks, x.view(), &mut acts);
        acts
    };
    let [a, b, c] = [1, 1, 2].map(run);
    assert_eq!(distance(a.logits(), b.logits()), 0.0);
    assert!(distance(a.logits(), c.logits()) > 0.0);
    let zeros = |l: usize| -> Vec<bool> { a.output(l).host()[..16].iter().map(|&y| y == 0.0).collect() };
    assert_ne!(zeros(0), zeros(1));
    assert_ne!(zeros(1), zeros(2));
}

#[test]
fn parameter_names_are_stable() {
    let config = ModelConfig {
        norm: "batch".parse().unwrap(),
        residual: "linear".parse().unwrap(),
        input_layer: true,
        head_layers: 2,
        layers: 1,
        ..named("sage")
    };
    let mut model = Model::new(&config, F, C, 1).unwrap();
    let expected = [
        ("input.weight", 5, 4),
        ("input.bias", 1, 4),
        ("conv.0.neigh.weight", 4, 4),
        ("conv.0.self.weight", 4, 4),
        ("conv.0.bias", 1, 4),
        ("residual.0.weight", 4, 4),
        ("norm.0.gamma", 1, 4),
        ("norm.0.beta", 1, 4),
        ("norm.0.running", 2, 4),
        ("head.0.weight", 4, 4),
        ("head.0.bias", 1, 4),
        ("head.1.weight", 4, 3),
        ("head.1.bias", 1, 3),
    ];
    let mut seen = Vec::new();
    model.visit(&mut |name, p| seen.push((name.to_string(), p.value.num_rows(), p.value.num_cols())));
    assert_eq!(seen.iter().map(|(n, r, c)| (n.as_str(), *r, *c)).collect::<Vec<_>>(), expected);
    let mut changed = Vec::new();
    model.visit_mut(&mut |name, p| changed.push((name.to_string(), p.value.num_rows(), p.value.num_cols())));
    assert_eq!(seen, changed);
    let trainable: usize = expected.iter().filter(|e| e.0 != "norm.0.running").map(|e| e.1 * e.2).sum();
    assert_eq!(model.num_params(), trainable);
}

#[test]
fn parameter_names_are_unique() {
    for config in configs() {
        let mut names = Vec::new();
        let model = model(&config);
        model.visit(&mut |name, _| names.push(name));
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }
}

#[test]
fn initial_weights_depend_on_the_seed_alone() {
    let values = |seed| {
        let model = Model::new(&ModelConfig { layers: 3, ..named("gat") }, F, C, seed).unwrap();
        let mut all: Vec<Vec<f32>> = Vec::new();
        model.visit(&mut |_, p| all.push(p.value.view().host().to_vec()));
        all
    };
    assert_eq!(values(1), values(1));
    assert_ne!(values(1), values(2));
    let all = values(1);
    assert_ne!(all[4][..4], all[8][..4], "two layers with the same weights");
    // Glorot: uniform with variance 2 / (fan_in + fan_out)
    let config = ModelConfig { hidden: 200, ..named("gcn") };
    Model::new(&config, 300, C, 1).unwrap().visit(&mut |name, p| {
        if name == "conv.0.weight" {
            let data = p.value.view().host();
            let variance = data.iter().map(|x| x * x).sum::<f32>() / data.len() as f32;
            assert!((variance - 2.0 / 500.0).abs() < 1e-4, "{variance}");
        }
    });
    // fan-in: the same draws, with variance 1 / (3 fan_in); attention vectors are unchanged
    let config =
        ModelConfig { hidden: 200, ..named("gat") }.with(GatOptions { heads: 1, ..GatOptions::default() });
    let weights = |init: &str| {
        let mut all = Vec::new();
        let config = ModelConfig { init: init.parse().unwrap(), ..config.clone() };
        let model = Model::new(&config, 300, C, 1).unwrap();
        model.visit(&mut |name, p| all.push((name.to_string(), p.value.view().host().to_vec())));
        all
    };
    for ((name, glorot), (_, fan_in)) in weights("glorot").into_iter().zip(weights("fan-in")) {
        if name == "conv.0.weight" {
            let variance = fan_in.iter().map(|x| x * x).sum::<f32>() / fan_in.len() as f32;
            assert!((variance - 1.0 / 900.0).abs() < 3e-5, "{variance}");
            assert!((fan_in[0] / glorot[0] - fan_in[7] / glorot[7]).abs() < 1e-5);
        } else if !name.ends_with("weight") {
            assert_eq!(glorot, fan_in, "{name}");
        }
    }
}

#[test]
fn invalid_configurations_are_rejected_with_advice() {
    let fail = |change: &dyn Fn(&mut ModelConfig)| {
        let mut config = ModelConfig::default();
        change(&mut config);
        Model::new(&config, F, C, 0).err().expect("an error").to_string()
    };
    assert_eq!(
        fail(&|c| c.model = "sagee".into()),
        "unknown model 'sagee', did you mean 'sage'?; known: sage, gcn, gat, gatv2, gin, mixhop, pinsage"
    );
    assert_eq!("x".parse::<NormKind>(), Err("'x': none, batch, layer or l2".into()));
    assert_eq!("x".parse::<Activation>(), Err("'x': relu, elu, leaky-relu or identity".into()));
    assert_eq!("x".parse::<Aggregator>(), Err("'x': mean or max-pool".into()));
    assert_eq!("x".parse::<ResidualKind>(), Err("'x': none, identity or linear".into()));
    assert_eq!(fail(&|c| c.layers = 0), "layers = 0: must be at least 1");
    assert!(fail(&|c| c.hidden = 0).starts_with("hidden = 0"));
    assert!(fail(&|c| c.dropout = 1.0).starts_with("dropout = 1"));
    assert!(fail(&|c| c.dropout = f32::NAN).starts_with("dropout = NaN"));
    assert!(fail(&|c| c.input_dropout = -0.1).starts_with("input_dropout = -0.1"));
    assert!(fail(&|c| (c.model, c.hidden) = ("gat".into(), 10)).starts_with("heads = 4"));
    assert!(
        fail(&|c| {
            c.model = "gcn".into();
            c.own.get_mut::<SageOptions>().aggregator = Aggregator::MaxPool;
        })
        .contains("'gcn'")
    );
    assert!(
        fail(&|c| {
            c.model = "gcn".into();
            c.own.get_mut::<SageOptions>().sage_combine = Combine::Concat;
        })
        .starts_with("sage_combine = concat: model 'gcn'")
    );
    let both = SageOptions { aggregator: Aggregator::MaxPool, sage_combine: Combine::Concat };
    assert!(fail(&|c| c.own.set(both)).contains("--aggregator max-pool adds its two parts"));
    assert!(
        fail(&|c| c.own.get_mut::<GatOptions>().attention_dropout = 0.5).starts_with("attention_dropout")
    );
    assert!(
        fail(&|c| {
            c.model = "mixhop".into();
            c.own.get_mut::<MixHopOptions>().hops = 0;
        })
        .starts_with("hops = 0")
    );
    let few = fail(&|c| {
        (c.model, c.hidden) = ("mixhop".into(), 3);
        c.own.get_mut::<MixHopOptions>().hops = 3;
    });
    assert_eq!(few, "hidden = 3: must be at least 4, a column for each power from 0 to 3");
    assert!(fail(&|c| (c.model, c.residual) = ("mixhop".into(), ResidualKind::Linear)).contains("power 0"));
    let residual = fail(&|c| c.residual = ResidualKind::Identity);
    assert_eq!(
        residual,
        "residual = identity: layer 0 changes the width from 5 to 256; use 'linear' or an input layer"
    );
    assert!(Model::new(&ModelConfig::default(), 0, C, 0).is_err());
    assert!(Model::new(&ModelConfig::default(), F, 0, 0).is_err());
}

#[test]
fn models_declare_their_requirements_to_the_loader() {
    use ProductOrder::{AggregateFirst, TransformFirst};
    let of = |config: &ModelConfig| Model::new(config, F, C, 0).unwrap();
    let sage = of(&named("sage"));
    assert!(!sage.needs_symmetric_weights() && of(&named("gcn")).needs_symmetric_weights());
    assert!(sage.can_read_table(&[AggregateFirst, TransformFirst]));
    assert!(!sage.can_read_table(&[TransformFirst, AggregateFirst]));
    assert!(!of(&ModelConfig { input_layer: true, ..named("sage") }).can_read_table(&[AggregateFirst; 2]));
    assert!(!of(&ModelConfig { input_dropout: 0.1, ..named("sage") }).can_read_table(&[AggregateFirst; 2]));
    assert!(
        !sage.needs_transposed(&[AggregateFirst; 2], 0) && sage.needs_transposed(&[AggregateFirst; 2], 1)
    );
    assert!(sage.needs_transposed(&[TransformFirst, AggregateFirst], 0));
    let with_input = of(&ModelConfig { input_layer: true, ..named("sage") });
    assert!(with_input.needs_transposed(&[AggregateFirst; 2], 0));
    assert!(!needs_transposed(AggregateFirst, false));
    assert!(sage.may_restrict(&[AggregateFirst; 2], 1) && !sage.may_restrict(&[AggregateFirst; 2], 0));
    assert!(!sage.may_restrict(&[AggregateFirst, TransformFirst], 1));
    let with_norm = |norm: &str| of(&ModelConfig { norm: norm.parse().unwrap(), ..named("sage") });
    assert!(with_norm("l2").may_restrict(&[AggregateFirst; 2], 1));
    assert!(["batch", "layer"].iter().all(|n| !with_norm(n).may_restrict(&[AggregateFirst; 2], 1)));
    // a sampled tree: the bottom layer reads the table
    let shapes = [
        BlockShape { dst: 11_000, src: 120_000, edges: 150_000 },
        BlockShape { dst: 1_000, src: 11_000, edges: 10_000 },
    ];
    let model = Model::new(&ModelConfig::default(), 100, 47, 0).unwrap();
    let residual = ModelConfig { residual: ResidualKind::Linear, ..ModelConfig::default() };
    let with_residual = Model::new(&residual, 100, 47, 0).unwrap();
    assert!(model.can_read_table(&model.orders(&shapes)));
    assert_eq!(of(&named("gat")).orders(&shapes), [AggregateFirst; 2]);
    assert_eq!(of(&named("gin")).orders(&shapes), [AggregateFirst, TransformFirst]);
    let orders = model.inference_orders(1_000_000, 20_000_000);
    assert_eq!(orders, [AggregateFirst, TransformFirst]);
    // the products of neighbours' and of own rows, as narrow as the scores
    assert!(model.has_own_product(1) && !with_residual.has_own_product(1));
    // a product of several pieces would have other bits if it were added later
    let wide = ModelConfig { hidden: 513, ..ModelConfig::default() };
    assert!(!Model::new(&wide, 100, 47, 0).unwrap().has_own_product(1));
    assert_eq!(model.inference_values(&orders), 2 * (47 + (47 + 47)));
    assert_eq!(model.inference_values(&[AggregateFirst; 2]), 2 * 256);
    assert_eq!(with_residual.inference_values(&orders), 2 * (256 + 47));
}

#[test]
fn cloned_models_are_independent() {
    for config in configs() {
        let mut model = model(&config);
        let copy = model.clone();
        let mut before = Vec::new();
        copy.visit(&mut |_, p| before.push(p.value.clone()));
        model.visit_mut(&mut |_, p| p.value.view_mut().host().fill(9.0));
        let mut n = 0;
        copy.visit(&mut |_, p| {
            assert_eq!(distance(p.value.view(), before[n].view()), 0.0);
            n += 1;
        });
    }
}
