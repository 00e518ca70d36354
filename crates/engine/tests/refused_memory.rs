//! The targets and the pairs of a minibatch whose memory is refused are an error, and those of the
//! next one with the same buffers are right.

use graphmill_core::{ClassColumn, Labels, NodeId, keyed};
use graphmill_engine::{
    TrainConfig,
    config::link::LINK,
    learner::SeedLabels,
    link::{
        Scored,
        step::{LinkObjective, LinkScratch},
    },
};
use graphmill_loader::link::LinkBatch;
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    link::decoder::{Decoder, DecoderConfig, TABLE},
};

#[path = "../../loader/tests/allocator/mod.rs"]
mod allocator;

use allocator::{alone, check};

const NODES: usize = 20_000;
const DIM: usize = 8;

/// Runs `work` on two threads, so that gathers are divided among them.
fn on_two_threads(work: impl FnOnce() + Send) {
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(work);
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn targets_of_seeds_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let nodes: Vec<NodeId> = (0..6_000).map(|i| 3 * i).collect();
    let class = |count: usize| (0..count as i32).map(|i| i % 3).collect::<Vec<i32>>();
    let columns = ["a", "b"].map(|name| ClassColumn { name: name.into(), classes: 3 }).to_vec();
    let values = (0..2 * NODES).map(|i| i as f32).collect::<Vec<f32>>();
    let member = (0..3 * NODES).map(|i| (i % 2) as u8).collect::<Vec<u8>>();
    let kinds = [
        ("classes", Labels::Single { class: class(NODES).into(), classes: 3 }),
        ("sets", Labels::Multi { member: member.into(), classes: 3 }),
        ("columns", Labels::Columns { class: class(2 * NODES).into(), columns }),
        ("values", Labels::Values { values: values.into(), width: 2 }),
    ];
    on_two_threads(|| {
        for (name, labels) in &kinds {
            check(
                name,
                (SeedLabels::default, || ()),
                |of_seeds, ()| {
                    of_seeds.gather(labels, &nodes);
                    Ok(std::mem::take(of_seeds))
                },
                |of_seeds| (of_seeds.class.clone(), of_seeds.member.clone(), bits(&of_seeds.value)),
            );
        }
    });
}

/// Ends of `count` random pairs.
fn pairs(count: u64) -> Vec<(NodeId, NodeId)> {
    let end = |pair: u64, side: u64| (keyed::key(&[pair, side]) % NODES as u64) as NodeId;
    (0..count).map(|pair| (end(pair, 0), end(pair, 1))).collect()
}

fn decoder() -> Box<dyn Decoder> {
    let config = DecoderConfig { dim: DIM, ..DecoderConfig::default() };
    (TABLE.find("dot").unwrap().make.make)(&config).unwrap()
}

fn rows(count: usize) -> Matrix {
    let values: Vec<f32> = (0..count * DIM).map(|i| (i % 13) as f32 / 13.0 - 0.5).collect();
    Matrix::from_slice(count, DIM, &values)
}

#[test]
fn links_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let config = TrainConfig { task: LINK.into(), ..TrainConfig::default() };
    let objective = LinkObjective::new(&config, NODES).unwrap();
    let (mut links, mut seeds) = (LinkBatch::default(), Vec::new());
    pairs(12_000).into_iter().for_each(|(u, v)| links.push(u, v, &mut seeds));
    links.positives = 6_000;
    let (embeddings, all, backend) = (rows(seeds.len()), rows(NODES), Cpu::default());
    let pass = Pass { backend: &backend, training: true, key: 0 };
    on_two_threads(|| {
        check(
            "gradients",
            (|| (LinkScratch::default(), decoder()), || ()),
            |(scratch, decoder), ()| {
                let mut grad = Matrix::default();
                grad.resize(seeds.len(), DIM);
                let of_rows = (embeddings.view(), grad.view_mut());
                let loss = scratch.gradient(&objective, &mut **decoder, &pass, &links, of_rows);
                Ok((loss, grad))
            },
            |(loss, grad)| (loss.to_bits(), bits(grad.view().host())),
        );
        let edges = pairs(12_000);
        check(
            "scores",
            (decoder, || ()),
            |decoder, ()| {
                let pass = Pass { training: false, ..pass };
                Ok(Scored { decoder: &**decoder, pass, embeddings: all.view() }.pairs(&edges))
            },
            |scores| bits(scores),
        );
    });
}
