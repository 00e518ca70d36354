//! Steps of tables against the decoders' own gradients, finite differences and each other.

use graphmill_core::{
    End, NodeId,
    keyed::{Stream, key},
};
use graphmill_nn::{
    Matrix, Saved,
    backend::Cpu,
    link::{
        decoder::{Decoder, DecoderConfig, Pairs, TABLE},
        loss::{self, LinkLossOptions},
        table::{
            Penalty, QueryBatch, Relations, TableStep, Touched, regularizer, softmax::SoftmaxStep,
            step::Objective,
        },
    },
};
use proptest::prelude::*;

use crate::support::{pass, random};

const V: usize = 11;
const F: usize = 6;
const R: usize = 3;

/// The decoders that train tables.
fn decoders() -> Vec<(String, Box<dyn Decoder>)> {
    let base = DecoderConfig { dim: F, relations: R, gamma: 4.0, key: 7, ..DecoderConfig::default() };
    let kinds = TABLE.iter().filter(|entry| entry.make.on_tables);
    let mut all: Vec<_> =
        kinds.map(|entry| (entry.name.to_string(), (entry.make.make)(&base).unwrap())).collect();
    let euclidean = DecoderConfig { norm: 2, ..base };
    all.push(("transe 2".into(), (TABLE.find("transe").unwrap().make.make)(&euclidean).unwrap()));
    all
}

fn batch(queries: usize, width: usize, seed: u64) -> QueryBatch {
    let mut stream = Stream::new(key(&[seed]));
    let mut draw = |below: usize| stream.below(below as u64) as u32;
    QueryBatch {
        end: (0..queries).map(|_| if draw(2) == 0 { End::Source } else { End::Destination }).collect(),
        fixed: (0..queries).map(|_| draw(V)).collect(),
        relation: (0..queries).map(|_| draw(R)).collect(),
        candidates: (0..queries * width).map(|_| draw(V)).collect(),
        ..QueryBatch::default()
    }
}

/// Parameters of the relations.
fn relations(decoder: &dyn Decoder) -> Relations<'_> {
    let mut found = Relations::NONE;
    decoder.visit(&mut |param| {
        found = Relations { values: param.value.view().host(), width: param.value.num_cols() };
    });
    found
}

/// Rows of the distinct ids of a batch.
fn rows(table: &Matrix, touched: &Touched) -> Matrix {
    let values: Vec<f32> =
        touched.ids.iter().flat_map(|&id| table.rows(id as usize..id as usize + 1).host().to_vec()).collect();
    Matrix::from_slice(touched.ids.len(), F, &values)
}

/// Loss, gradient of the table and gradient of the relations by the decoder's own passes.
fn by_pairs(
    decoder: &mut dyn Decoder,
    table: &Matrix,
    batch: &QueryBatch,
    loss: &str,
) -> (f64, Vec<f32>, Vec<f32>) {
    let (queries, width) = (batch.len(), batch.width());
    let (mut ends, mut relation) = ([Vec::new(), Vec::new()], Vec::new());
    // positives first, as the losses want them
    let places = (0..queries)
        .map(|i| (i, i * width))
        .chain((0..queries).flat_map(|i| (1..width).map(move |k| (i, i * width + k))).collect::<Vec<_>>());
    for (i, place) in places {
        let (fixed, candidate) = (batch.fixed[i], batch.candidates[place]);
        let (h, t) = if batch.end[i] == End::Source { (candidate, fixed) } else { (fixed, candidate) };
        ends[0].push(h);
        ends[1].push(t);
        relation.push(batch.relation[i]);
    }
    let gather = |ids: &[NodeId]| {
        let values: Vec<f32> =
            ids.iter().flat_map(|&id| table.rows(id as usize..id as usize + 1).host().to_vec()).collect();
        Matrix::from_slice(ids.len(), F, &values)
    };
    let [h, t] = [gather(&ends[0]), gather(&ends[1])];
    let pairs = Pairs { source: h.view(), destination: t.view(), relation: &relation, nodes: [&[], &[]] };
    let (mut saved, mut scores) = (Saved::default(), Matrix::default());
    decoder.forward(&pass(true), &pairs, &mut saved, &mut scores);
    let (positive, negative) = scores.view().host().split_at(queries);
    let mut grad = vec![0.0; scores.num_rows()];
    let (positive_grad, negative_grad) = grad.split_at_mut(queries);
    let value = (loss::TABLE.find(loss).unwrap().make.loss)(
        &loss::LinkScores { positive, negative, weight: &[], log_expected: &batch.log_expected },
        &LinkLossOptions::default(),
        loss::LinkGrads { positive: positive_grad, negative: negative_grad },
    );
    let grad = Matrix::from_slice(grad.len(), 1, &grad);
    let [mut h_grad, mut t_grad] = [Matrix::default(), Matrix::default()];
    decoder.backward(&pass(true), &pairs, &mut saved, grad.view(), [&mut h_grad, &mut t_grad]);
    let mut sum = vec![0.0; V * F];
    for (ids, grad) in ends.iter().zip([&h_grad, &t_grad]) {
        for (&id, row) in ids.iter().zip(grad.view().host().chunks(F)) {
            sum[id as usize * F..][..F].iter_mut().zip(row).for_each(|(to, x)| *to += x);
        }
    }
    let mut of_relations = Vec::new();
    decoder.visit(&mut |param| of_relations.extend_from_slice(param.grad.view().host()));
    (value, sum, of_relations)
}

fn near(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn steps_have_the_gradients_of_single_pairs(
        queries in 1usize..9,
        width in 2usize..6,
        seed in 0u64..1000,
        loss in prop::sample::select(vec!["bce", "bpr", "self-adversarial", "sampled-softmax"]),
        corrected in any::<bool>(),
    ) {
        let (table, mut batch) = (random(V, F, seed), batch(queries, width, seed));
        if corrected {
            let log_expected = random(queries, width - 1, seed + 1);
            batch.log_expected.extend_from_slice(log_expected.view().host());
        }
        let mut touched = Touched::default();
        touched.refill(&batch);
        let own = rows(&table, &touched);
        for (name, mut decoder) in decoders() {
            let (value, table_grad, relation_grad) = by_pairs(&mut *decoder, &table, &batch, loss);
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let mut step = TableStep::default();
                    let options = LinkLossOptions::default();
                    let loss = loss::TABLE.find(loss).unwrap().make.loss;
                    let score = decoder.pair_score().unwrap();
                    let objective = Objective { score, loss, options: &options };
                    (step.run(&objective, relations(&*decoder), &batch, &touched, own.view()), step)
                })
            };
            let (found, step) = run(1);
            prop_assert!((found - value).abs() < 1e-4, "{}: {} {}", name, found, value);
            let mut sum = vec![0.0; V * F];
            for (&id, row) in touched.ids.iter().zip(step.grad.view().host().chunks(F)) {
                sum[id as usize * F..][..F].copy_from_slice(row);
            }
            prop_assert!(near(&sum, &table_grad), "{}: {:?} {:?}", name, sum, table_grad);
            let width = relations(&*decoder).width;
            let mut sum = vec![0.0; relation_grad.len()];
            for (i, &id) in step.relations.ids.iter().enumerate() {
                let row = &step.relations.grad.view().host()[i * width..][..width];
                sum[id as usize * width..][..width].copy_from_slice(row);
            }
            prop_assert!(near(&sum, &relation_grad), "{}: {:?} {:?}", name, sum, relation_grad);
            let (again, other) = run(3);
            prop_assert_eq!(again.to_bits(), found.to_bits());
            prop_assert_eq!(other.grad.view().host(), step.grad.view().host());
        }
    }

    /// Repeated negatives, corrected for their numbers, are the softmax over all rows.
    #[test]
    fn corrected_negatives_are_the_softmax_over_the_table(
        queries in 1usize..6,
        draws in prop::collection::vec(1usize..4, V),
        seed in 0u64..1000,
    ) {
        let table = random(V, F, seed);
        let truth = batch(queries, 1, seed);
        let others = |v: u32| (0..V as u32).filter(move |&u| u != v);
        let sample = |repeats: &dyn Fn(u32) -> usize| {
            let width = 1 + draws.iter().sum::<usize>();
            let mut sampled = truth.clone();
            sampled.candidates.clear();
            for &v in &truth.candidates {
                let of_others = others(v).flat_map(|u| std::iter::repeat_n(u, repeats(u)));
                // a weightless negative fills the row
                let row: Vec<u32> = of_others.chain(std::iter::repeat(v)).take(width - 1).collect();
                sampled.candidates.push(v);
                sampled.log_expected.extend(row.iter().map(|&u| match u == v {
                    true => 60.0,
                    false => (repeats(u) as f32).ln(),
                }));
                sampled.candidates.extend(row);
            }
            sampled
        };
        for (name, decoder) in decoders() {
            let (score, options) = (decoder.pair_score().unwrap(), LinkLossOptions::default());
            let loss = loss::TABLE.find("sampled-softmax").unwrap().make.loss;
            let objective = Objective { score, loss, options: &options };
            let run = |batch: &QueryBatch| {
                let (mut step, mut touched) = (TableStep::default(), Touched::default());
                touched.refill(batch);
                let own = rows(&table, &touched);
                let loss = step.run(&objective, relations(&*decoder), batch, &touched, own.view());
                let mut grad = vec![0.0; V * F];
                for (&id, row) in touched.ids.iter().zip(step.grad.view().host().chunks(F)) {
                    grad[id as usize * F..][..F].copy_from_slice(row);
                }
                (loss, grad)
            };
            let (found, grad) = run(&sample(&|u| draws[u as usize]));
            let (expected, expected_grad) = run(&sample(&|_| 1));
            prop_assert!((found - expected).abs() < 1e-4, "{}: {} {}", name, found, expected);
            prop_assert!(near(&grad, &expected_grad), "{}", name);
        }
    }

    #[test]
    fn all_candidates_are_the_softmax_over_the_table(queries in 1usize..9, seed in 0u64..1000) {
        let table = random(V, F, seed);
        let truth = batch(queries, 1, seed);
        // the same with every other row as a negative
        let others = |&v: &u32| (0..V as u32).filter(move |&u| u != v);
        let all: Vec<u32> =
            truth.candidates.iter().flat_map(|v| std::iter::once(*v).chain(others(v))).collect();
        let all = QueryBatch { candidates: all, ..truth.clone() };
        let mut touched = Touched::default();
        touched.refill(&all);
        for (name, decoder) in decoders() {
            if decoder.kernel() != graphmill_nn::link::kernel::Kernel::Product {
                continue;
            }
            let (mut sampled, mut dense) = (TableStep::default(), SoftmaxStep::default());
            let (score, options) = (decoder.pair_score().unwrap(), LinkLossOptions::default());
            let loss = loss::TABLE.find("sampled-softmax").unwrap().make.loss;
            let objective = Objective { score, loss, options: &options };
            let relations = relations(&*decoder);
            let expected = sampled.run(&objective, relations, &all, &touched, table.view());
            let range = 0..V as u32;
            let backend = Cpu::default();
            let found =
                dense.run(&backend, score, relations, &truth, table.view(), &[range.clone(), range]);
            prop_assert!((found - expected).abs() < 1e-4, "{}: {} {}", name, found, expected);
            prop_assert!(near(dense.grad.view().host(), sampled.grad.view().host()), "{}", name);
            prop_assert_eq!(&dense.relations.ids, &sampled.relations.ids);
            let (a, b) = (dense.relations.grad.view().host(), sampled.relations.grad.view().host());
            prop_assert!(near(a, b), "{}", name);
        }
    }
}

#[test]
fn penalties_count_the_rows_of_each_query() {
    let (table, batch) = (random(V, F, 3), batch(5, 3, 4));
    let mut touched = Touched::default();
    touched.refill(&batch);
    let own = rows(&table, &touched);
    for entry in &regularizer::TABLE {
        let penalty = Penalty { kind: entry.make, weight: 0.3, is_complex: false };
        let mut grad = Matrix::zeros(own.num_rows(), F);
        let value = penalty.of_rows(&batch, &touched, own.view(), &mut grad);
        let of = |id: u32| {
            let row = table.rows(id as usize..id as usize + 1).host().to_vec();
            (entry.make.penalty)(&row, false, 0.0, &mut [0.0; F])
        };
        let counted = batch.candidates.iter().enumerate();
        let counted =
            counted.filter(|(place, _)| entry.make.of_negatives || place % 3 == 0).map(|(_, &id)| id);
        let sum: f64 = counted.chain(batch.fixed.iter().copied()).map(of).sum();
        assert!((value - 0.3 * sum / 5.0).abs() < 1e-6, "{}", entry.name);
        assert!(grad.view().host().iter().any(|&x| x != 0.0));
    }
}
