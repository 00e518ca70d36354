//! Models of several types on a simulated device against the reference backend.

use graphmill_core::{
    keyed::{Stream, key},
    options::OwnOptions,
    typed::{NodeType, Relation, Schema, TypedBlock},
};
use graphmill_cuda::{
    Cuda, Device,
    driver::{Arithmetic, shim::Options},
};
use graphmill_nn::{
    Backend, Matrix, Pass,
    backend::{Reference, ops::SoftmaxCrossEntropy},
    layer::GatOptions,
    optim::{Adam, AdamOptions, Optimizer},
    typed::{RgcnOptions, TABLE, Target, TypedActivations, TypedModel, TypedModelConfig, TypedStep},
};

use crate::{counting::Counting, device};

const STEPS: usize = 3;
const SEEDS: usize = 6;
const CLASSES: usize = 3;
/// Features of authors and papers.
const DIMS: [usize; 2] = [5, 4];
/// Widths of the rows of each relation's edges.
const EDGE_DIMS: [usize; 3] = [2, 0, 3];

fn schema() -> Schema {
    let types = vec![NodeType::new("author", 20), NodeType::new("paper", 30)];
    let relations =
        vec![Relation::new(0, "writes", 1), Relation::new(1, "by", 0), Relation::new(1, "cites", 1)];
    Schema::new(types, relations).unwrap()
}

/// Standard normal values.
fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut stream = Stream::new(key(&[seed]));
    let data: Vec<f32> = (0..rows * cols).map(|_| stream.normal() as f32).collect();
    Matrix::from_slice(rows, cols, &data)
}

/// A transposed block whose destinations have 0, 1, 2, 3, 0, ... edges by each relation.
fn block(num_dst: [usize; 2], num_src: [usize; 2], seed: u64) -> TypedBlock {
    let (schema, mut block) = (schema(), TypedBlock::default());
    block.clear(&schema);
    (block.num_dst, block.num_src) = (num_dst.to_vec(), num_src.to_vec());
    let mut stream = Stream::new(key(&[seed]));
    for (r, Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
        let slice = &mut block.relations[r];
        slice.indptr.push(0);
        for v in 0..num_dst[*dst] {
            slice.indices.extend((0..(v + r) % 4).map(|_| stream.below(num_src[*src] as u64) as u32));
            slice.indptr.push(slice.indices.len() as u32);
        }
    }
    block.fit(&schema);
    block.transpose(false);
    block
}

/// Losses and parameters after [`STEPS`] updates; `after` is called with the number of each.
fn train(
    backend: &dyn Backend,
    config: &TypedModelConfig,
    after: &mut dyn FnMut(usize),
) -> (Vec<f64>, Vec<Matrix>) {
    let target = Target { node_type: 1, outputs: CLASSES };
    let mut model = TypedModel::new(config, &schema(), &DIMS, target, 3).unwrap();
    // no author is a destination of the last layer
    let blocks = [block([4, 9], [7, 12], 1), block([0, SEEDS], [4, 9], 2)];
    let features = [random(7, DIMS[0], 3), random(12, DIMS[1], 4)];
    let nodes = [(0..7).collect(), (0..12).collect()];
    let of_edges = |block: &TypedBlock| -> Vec<Matrix> {
        let slices = block.relations.iter().zip(EDGE_DIMS);
        slices.map(|(slice, dim)| random(slice.num_edges(), dim, 5)).collect()
    };
    let edges: Vec<Vec<Matrix>> =
        blocks.iter().filter(|_| !config.edge_dims.is_empty()).map(of_edges).collect();
    let step = TypedStep {
        blocks: &blocks,
        features: &features,
        edges: &edges,
        nodes: &nodes,
        num_targets: SEEDS,
        reused: &[],
    };
    let label: Vec<i32> = (0..SEEDS).map(|i| (i % CLASSES) as i32).collect();
    let mut optimizer = Adam::new(&AdamOptions { eps: 1e-3, ..AdamOptions::default() }, false).unwrap();
    let mut acts = TypedActivations::default();
    let losses = (1..=STEPS).map(|number| {
        let pass = Pass { backend, training: true, key: number as u64 };
        model.forward(&pass, &step, &mut acts).unwrap();
        let (logits, grad) = acts.logits_and_grad();
        let scale = 1.0 / SEEDS as f32;
        let loss = SoftmaxCrossEntropy { logits, label: &label, weight: &[], scale, grad }.run(backend);
        model.zero_grad(backend);
        model.backward(&pass, &step, &mut acts);
        let loss = backend.resolve_loss(loss);
        optimizer.begin(0.01);
        let mut index = 0;
        model.visit_mut(&mut |_, param| {
            optimizer.update(backend, index, param, 0.0);
            index += 1;
        });
        after(number);
        loss
    });
    let losses = losses.collect();
    let mut parameters = Vec::new();
    model.visit(&mut |_, param| parameters.push(param.value.clone()));
    (losses, parameters)
}

fn configs() -> Vec<TypedModelConfig> {
    let named = |row: &str, own: OwnOptions| {
        let kind = &TABLE.get(row).unwrap().make;
        TypedModelConfig {
            model: row.into(),
            hidden: 8,
            dropout: 0.2,
            head_layers: usize::from(!kind.can_score),
            edge_dims: if kind.reads_edges { EDGE_DIMS.to_vec() } else { Vec::new() },
            own,
            ..TypedModelConfig::default()
        }
    };
    let heads = GatOptions { heads: 2, out_heads: 2, attention_dropout: 0.3 };
    let rgcn = |bases, blocks| named("rgcn", OwnOptions::default().with(RgcnOptions { bases, blocks }));
    let rows = TABLE.iter().map(|entry| named(entry.name, OwnOptions::default().with(heads)));
    let narrow = TypedModelConfig { input_dropout: 0.1, norm: "batch".parse().unwrap(), ..rgcn(2, 0) };
    rows.chain([narrow, TypedModelConfig { head_layers: 1, ..rgcn(0, 2) }]).collect()
}

#[test]
fn training_on_several_types_matches_the_reference_and_downloads_only_losses() {
    for config in configs() {
        let (losses, parameters) = train(&Reference, &config, &mut |_| ());
        let driver = Counting::new(device::driver(0, Options { memory: 1 << 28, ..Options::default() }));
        let cuda = Cuda::new(&Device::new(driver.clone(), 0, 0).unwrap(), Arithmetic::F32).unwrap();
        let (found, values) = train(&cuda, &config, &mut |number| {
            assert_eq!(driver.downloads(), number, "{config:?}: after {number} steps");
        });
        cuda.check().unwrap();
        let name = &config.model;
        for (a, b) in losses.iter().zip(&found) {
            assert!((a - b).abs() < 1e-4, "{name}: {losses:?} but {found:?}");
        }
        for (i, (a, b)) in parameters.iter().zip(&values).enumerate() {
            let pairs = a.view().host().iter().zip(b.view().host());
            // written so that NaN fails
            assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-4), "{name}: parameter {i}");
        }
    }
}
