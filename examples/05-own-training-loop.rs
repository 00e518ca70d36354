//! A custom training loop, which shows each step of an update: minibatches from the loader, gradients
//! from the model, and the optimiser.
//!
//! Run it with `cargo run --release --example 05-own-training-loop`.

use graphmill::{
    dataset::generate::{GenerateOptions, generate},
    engine::inference::{Inference, Output},
    graph::options::OwnOptions,
    loader::{
        BatchKey, MinibatchSampler,
        feature::Host,
        order::random::Random,
        sampler::{BatchRequest, BlockLayout, HopStack, neighbor::Neighbor},
    },
    nn::{
        Activations,
        backend::{Cpu, ops::SoftmaxCrossEntropy},
        cost::BlockShape,
        metric::{self, Input, Truth},
        optim,
    },
    prelude::*,
};

const SEED: u64 = 1;
const BATCH: usize = 128;

/// Trains for five epochs and scores the model.
pub fn main() -> graphmill::Result<()> {
    let options = GenerateOptions { nodes: 3000, classes: 4, dim: 16, signal: 0.4, ..Default::default() };
    let data = generate("sbm", &options)?;
    let Labels::Single { class, .. } = &data.labels else { panic!("every node has one class") };

    // the loader: seeds in a random order, ten neighbours of each seed and five of each neighbour,
    // feature rows in memory
    let order = Random::new(&data.split.train, SEED);
    let sampler = HopStack::new(Neighbor::new([10, 5]).expect("valid fanouts"));
    let features = Host::new(&data.features);
    let (mut seeds, mut memory) = (Vec::new(), Seeds::default());
    let mut workspace = Workspace::new(data.num_nodes());

    // the model: two layers of GraphSAGE
    let config = ModelConfig { model: "sage".into(), hidden: 32, layers: 2, ..ModelConfig::default() };
    let mut model = Model::new(&config, data.features.dim, data.labels.classes(), SEED)?;
    let mut adam = optim::by_name("adam", &OwnOptions::default())?;
    let (backend, mut acts) = (Cpu::default(), Activations::default());

    // blocks with the transposes that the backward pass reads
    let layout = BlockLayout { transposed: 0b11, aggregation: model.aggregation(), ..BlockLayout::default() };
    for epoch in 0..5 {
        order.order(epoch, &mut seeds);
        let mut loss = 0.0;
        for (number, chunk) in (0..).zip(seeds.chunks(BATCH)) {
            // sample: blocks around the seeds
            let key = BatchKey { seed: SEED, epoch, batch: number };
            let request = BatchRequest::new(&data.graph, key).with_layout(layout);
            let batch = memory.refill(number, chunk.iter().copied());
            let batch = sampler.sample(&request, &mut workspace, batch)?;

            // extract: one feature row per input node
            let batch = batch.extract(&features)?;

            // train: forward, loss, backward, update
            let (blocks, x) = (&batch.sampled.blocks, batch.features.view());
            let shapes: Vec<BlockShape> = blocks.iter().map(BlockShape::from).collect();
            let orders = model.orders(&shapes); // (A X) W or A (X W), whichever is cheaper
            let pass = Pass { backend: &backend, training: true, key: adam.steps() };
            model.zero_grad(&backend);
            model.forward(&pass, &orders, blocks, x, &mut acts);
            let labels: Vec<i32> = chunk.iter().map(|&v| class[v as usize]).collect();
            let mean = 1.0 / chunk.len() as f32;
            let (logits, grad) = acts.logits_and_grad();
            let op = SoftmaxCrossEntropy { logits, label: &labels, weight: &[], scale: mean, grad };
            loss += op.run(&backend) * chunk.len() as f64;
            model.backward(&pass, &orders, blocks, x, &mut acts);
            adam.begin(0.01);
            let mut index = 0;
            model.visit_mut(&mut |_, param| {
                adam.update(&backend, index, param, 0.0);
                index += 1;
            });

            // the next batch reuses the memory
            memory = batch.recycle();
        }
        println!("epoch {}: mean loss {:.4}", epoch + 1, loss / seeds.len() as f64);
    }

    // exact scores, from all neighbours
    let (table, mut logits) = (features.matrix(), Matrix::default());
    let mut inference = Inference::new(&data.graph, &table, None, &backend, 1024);
    inference.run(&model, &data.split.test, Output::Logits, &mut logits)?;
    let scored =
        Input::new(logits.view().host(), logits.num_cols(), Truth::Single(class)).against(&data.split.test);
    let accuracy = metric::by_name("accuracy")?(&scored).unwrap_or(0.0);
    println!("test accuracy {accuracy:.3}");
    Ok(())
}
