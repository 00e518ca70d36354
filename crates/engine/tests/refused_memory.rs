//! The targets and the pairs of a minibatch whose memory is refused are an error, and those of the
//! next one with the same buffers are right. So are the negatives of a run on several types.

use std::path::Path;

use graphmill_core::{ClassColumn, Labels, NodeId, keyed};
use graphmill_data::{TypedBuilder, typed::EdgeType};
use graphmill_engine::{
    AnyDataset, Result, RunContext, TrainConfig,
    config::link::LINK,
    learner::SeedLabels,
    link::{
        Scored,
        step::{LinkObjective, LinkScratch},
    },
    observer::{Observer, Progress},
    options::key,
};
use graphmill_loader::{Fanout, link::LinkBatch};
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    link::decoder::{Decoder, DecoderConfig, TABLE},
};

#[path = "../../loader/tests/allocator/mod.rs"]
mod allocator;

use allocator::{alone, check, refuse_after};

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
                let of = (&links, &seeds[..]);
                let loss = scratch.gradient(&objective, &mut **decoder, &pass, of, of_rows);
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

/// Writes a dataset of users and the items that they like, with a task on these edges.
fn store_likes(dir: &Path) {
    const USERS: u32 = 1_000;
    const ITEMS: u32 = 500;
    let of_user = |u: u32| (0..12).map(move |i| (u, (7 * u + 41 * i) % ITEMS));
    let pairs: Vec<(u32, u32)> = (0..USERS).flat_map(of_user).collect();
    let part = |keep: fn(usize) -> bool| {
        let kept = pairs.iter().enumerate().filter(|(i, _)| keep(i % 10));
        kept.flat_map(|(_, &(u, v))| [u, v]).collect::<Vec<u32>>()
    };
    let parts = [part(|i| i > 1), part(|i| i == 0), part(|i| i == 1)];
    let (users, items): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let mut builder = TypedBuilder::new("shop");
    builder.node_type("item", ITEMS as usize).features(4, vec![0.5f32; 4 * ITEMS as usize]);
    builder.node_type("user", USERS as usize);
    builder.edge_type("user", "likes", "item").edges(users, items).with_reverse("liked-by");
    let likes = EdgeType::new("user", "likes", "item");
    builder.task("likes").on_edges(likes).positives(parts).metric("mrr");
    builder.build().unwrap().save(dir).unwrap();
}

/// Refuses the large requests of the second batch, except some.
struct Refusing(Option<usize>);

impl Observer for Refusing {
    fn batch(&mut self, _: &Progress) -> Result<()> {
        refuse_after(self.0.take().unwrap_or(usize::MAX));
        Ok(())
    }
}

#[test]
fn negatives_without_memory_are_errors_of_their_batch_and_the_next_run_is_right() {
    let _turn = alone();
    let dir = tempfile::tempdir().unwrap();
    store_likes(dir.path());
    for negatives in ["uniform", "in-batch"] {
        let mut config = TrainConfig { hidden: 8, batch_size: 4_000, epochs: 1, ..TrainConfig::default() };
        config.dataset = dir.path().to_str().unwrap().into();
        (config.task, config.fanout) = ("likes".into(), Fanout(vec![2, 2]));
        let options = [("negatives", negatives), ("num_negatives", "4"), ("max_batches", "2")];
        for (name, value) in options {
            key(name).unwrap().parse(&mut config, value).unwrap();
        }
        config.derive_options(&["task", "negatives", "num_negatives", "max_batches"]).unwrap();
        let train = |allowed: Option<usize>| {
            let mut observer = Refusing(allowed);
            let context = RunContext { run: None, resume: false, observer: &mut observer, stop: &|| false };
            let trained = AnyDataset::open(&config).and_then(|data| data.train(&config, context));
            refuse_after(usize::MAX);
            trained.map(|summary| summary.epochs[0].loss.to_bits())
        };
        on_two_threads(|| {
            let expected = train(None).unwrap();
            // the edges of the second batch, its negatives, their order, and those of a relation
            for allowed in 0..5 {
                let message = train(Some(allowed)).unwrap_err().to_string();
                for part in ["batch 2 failed in the sample stage: ", "bytes of memory", "; lower"] {
                    assert!(message.contains(part), "{negatives}, {allowed}: {message}");
                }
            }
            assert_eq!(train(None).unwrap(), expected, "{negatives}");
        });
    }
}

/// Writes a dataset of two batches of visits, of which the first has few rows: one user visits one
/// item at one time. The visits of the second have times of their own, and earlier neighbours.
fn store_visits(dir: &Path, batch: u32) {
    let (mut users, mut items, mut times) = (vec![0; batch as usize], vec![0; batch as usize], Vec::new());
    times.resize(batch as usize, 0i64);
    for e in 0..batch + 20 {
        users.push(e % 300);
        items.push(7 * e % 190);
        times.push(10 + i64::from(e));
    }
    let pairs: Vec<u32> = users.iter().zip(&items).flat_map(|(u, v)| [*u, *v]).collect();
    let rows = |count: u32| (0..2 * count).map(|i| (i % 5) as f32).collect::<Vec<f32>>();
    let mut builder = TypedBuilder::new("visits");
    builder.node_type("user", 300).features(2, rows(300));
    builder.node_type("item", 190).features(2, rows(190));
    let edges = builder.edge_type("user", "visits", "item").edges(users, items);
    edges.time(times.clone()).features(2, rows(2 * batch + 20));
    let task = builder.task("visits").on_edges(EdgeType::new("user", "visits", "item"));
    let part = |rows: std::ops::Range<u32>| rows.collect::<Vec<u32>>();
    let (train, end) = (2 * batch, 2 * batch + 20);
    let (valid, test) = (part(train..train + 10), part(train + 10..end));
    task.pair_seeds(pairs).time(times).split(part(0..train), valid, test);
    builder.build().unwrap().save(dir).unwrap();
}

#[test]
fn events_without_memory_are_errors_of_their_batch_and_the_next_run_is_right() {
    let _turn = alone();
    let dir = tempfile::tempdir().unwrap();
    store_visits(dir.path(), 1_500);
    for (model, own) in [
        ("tgn", &[("fanout", "2")][..]),
        ("tgat", &[("fanout", "2,1")]),
        ("jodie", &[]),
        ("graphmixer", &[("fanout", "2")]),
        ("dygformer", &[("fanout", "1"), ("channel_dim", "2"), ("transformer_layers", "1")]),
    ] {
        let mut config = TrainConfig { hidden: 4, batch_size: 1_500, epochs: 1, ..TrainConfig::default() };
        config.dataset = dir.path().to_str().unwrap().into();
        config.task = "visits".into();
        let options = [&[("model", model), ("time_dim", "2")][..], own].concat();
        for (name, value) in &options {
            key(name).unwrap().parse(&mut config, value).unwrap();
        }
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        config.derive_options(&[&["task"][..], &names].concat()).unwrap();
        let data = graphmill_engine::events::open_dataset(&config).unwrap().unwrap();
        let train = |allowed: Option<usize>| {
            let mut observer = Refusing(allowed);
            let context = RunContext { run: None, resume: false, observer: &mut observer, stop: &|| false };
            let trained = graphmill_engine::events::train(&config, &data, context);
            refuse_after(usize::MAX);
            trained.map(|summary| summary.epochs[0].loss.to_bits())
        };
        on_two_threads(|| {
            let expected = train(None).unwrap();
            let mut stages = std::collections::BTreeSet::new();
            // every request of the second batch is refused once
            for allowed in 0.. {
                let message = match train(Some(allowed)) {
                    Ok(loss) => {
                        assert_eq!(loss, expected, "{model}");
                        break;
                    }
                    Err(error) => error.to_string(),
                };
                let stage = ["sample", "train"]
                    .into_iter()
                    .find(|stage| message.contains(&format!("batch 2 failed in the {stage} stage: ")));
                stages.insert(stage.unwrap_or_else(|| panic!("{model}, {allowed}: {message}")));
                assert!(message.contains("bytes of memory") && message.contains("; lower"), "{message}");
            }
            assert_eq!(stages.into_iter().collect::<Vec<_>>(), ["sample", "train"], "{model}");
        });
    }
}
