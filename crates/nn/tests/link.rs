//! Link decoders against their definitions and finite differences.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, LazyLock},
};

use graphmill_core::Graph;
use graphmill_nn::{
    Matrix, Saved,
    link::{
        decoder::{Decoder, DecoderConfig, Pairs, TABLE},
        structure::{PairStructure, WIDTH},
    },
};

use crate::support::{Checked, check, dot, nudge, pass, random};

const P: usize = 7;
const F: usize = 6;
const RELATION: [u32; P] = [0, 2, 1, 2, 0, 0, 2];
/// Numbers of the nodes of the pairs, whose structure decoders read.
const NODES: [&[u32]; 2] = [&[0, 1, 2, 5, 4, 6, 3], &[1, 3, 4, 0, 2, 5, 7]];

/// A graph of eight nodes: a cycle of six, one chord, and an edge apart.
static GRAPH: LazyLock<Arc<PairStructure>> = LazyLock::new(|| {
    let (indptr, indices) = (vec![0, 1, 2, 4, 5, 6, 7, 7, 8], vec![5, 0, 1, 0, 2, 3, 4, 6]);
    Arc::new(PairStructure::new(&Graph::new(indptr.into(), indices.into()).unwrap()).unwrap())
});

fn config() -> DecoderConfig<'static> {
    let graph = Some(&*GRAPH);
    DecoderConfig { dim: F, relations: 3, hidden: 5, gamma: 4.0, key: 7, graph, ..DecoderConfig::default() }
}

fn decoders() -> Vec<(String, Box<dyn Decoder>, DecoderConfig<'static>)> {
    let base = config();
    let mut all: Vec<_> =
        TABLE.iter().map(|entry| (entry.name.to_string(), (entry.make.make)(&base).unwrap(), base)).collect();
    let euclidean = DecoderConfig { norm: 2, ..base };
    all.push(("transe 2".into(), (TABLE.find("transe").unwrap().make.make)(&euclidean).unwrap(), euclidean));
    all
}

fn scores(decoder: &dyn Decoder, h: &Matrix, t: &Matrix, saved: &mut Saved) -> Matrix {
    let mut out = Matrix::default();
    let pairs = Pairs { source: h.view(), destination: t.view(), relation: &RELATION, nodes: NODES };
    decoder.forward(&pass(true), &pairs, saved, &mut out);
    out
}

#[test]
fn decoders_match_finite_differences() {
    let (h, t, c) = (random(P, F, 1), random(P, F, 2), random(P, 1, 3));
    for (name, mut decoder, _) in decoders() {
        let mut saved = Saved::default();
        scores(decoder.as_ref(), &h, &t, &mut saved);
        let pairs = Pairs { source: h.view(), destination: t.view(), relation: &RELATION, nodes: NODES };
        let (mut h_grad, mut t_grad) = (Matrix::default(), Matrix::default());
        decoder.backward(&pass(true), &pairs, &mut saved, c.view(), [&mut h_grad, &mut t_grad]);
        let mut checked = Checked::default();
        let mut grads = Vec::new();
        decoder.visit(&mut |p| grads.push(p.grad.clone()));
        for (n, grad) in grads.iter().enumerate() {
            checked += check(&format!("{name}, parameter {n}"), grad.view(), |i, delta| {
                let (mut moved, mut m) = (decoder.clone(), 0);
                moved.visit_mut(&mut |p| {
                    if m == n {
                        nudge(p, i, delta);
                    }
                    m += 1;
                });
                dot(scores(moved.as_ref(), &h, &t, &mut Saved::default()).view(), c.view())
            });
        }
        for (end, grad) in [&h_grad, &t_grad].into_iter().enumerate() {
            checked += check(&format!("{name}, end {end}"), grad.view(), |i, delta| {
                let mut ends = [h.clone(), t.clone()];
                ends[end].view_mut().host()[i] += delta;
                dot(scores(decoder.as_ref(), &ends[0], &ends[1], &mut Saved::default()).view(), c.view())
            });
        }
        checked.assert_all_but_one_in(10, &name);
    }
}

/// A complex number.
type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

#[test]
fn decoders_compute_their_formulas() {
    let (h, t) = (random(P, F, 1), random(P, F, 2));
    let row = |x: &Matrix, i: usize| -> Vec<f64> {
        x.rows(i..i + 1).host().iter().map(|&x| f64::from(x)).collect()
    };
    let complex = |x: &[f64], i: usize| (x[i], x[F / 2 + i]);
    for (name, decoder, config) in decoders() {
        let got = scores(decoder.as_ref(), &h, &t, &mut Saved::default());
        let mut params = Vec::new();
        decoder.visit(&mut |p| params.push(p.value.clone()));
        for (i, &relation) in RELATION.iter().enumerate() {
            let (h, t) = (row(&h, i), row(&t, i));
            let r = if ["mlp", "structure"].contains(&&name[..]) || params.is_empty() {
                Vec::new()
            } else {
                row(&params[0], relation as usize)
            };
            let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            let gamma = f64::from(config.gamma);
            let expected = match &name[..] {
                "dot" => product(&h, &t),
                "cosine" => product(&h, &t) / (product(&h, &h) * product(&t, &t)).sqrt(),
                "bilinear" => (0..F).map(|a| (0..F).map(|b| h[a] * r[a * F + b] * t[b]).sum::<f64>()).sum(),
                "distmult" => (0..F).map(|a| h[a] * r[a] * t[a]).sum(),
                "complex" => (0..F / 2)
                    .map(|a| {
                        let conjugate = (complex(&t, a).0, -complex(&t, a).1);
                        times(times(complex(&h, a), complex(&r, a)), conjugate).0
                    })
                    .sum(),
                "transe" => gamma - (0..F).map(|a| (h[a] + r[a] - t[a]).abs()).sum::<f64>(),
                "transe 2" => gamma - (0..F).map(|a| (h[a] + r[a] - t[a]).powi(2)).sum::<f64>().sqrt(),
                "rotate" => {
                    let length = |a: usize| {
                        let z = times(complex(&h, a), (r[a].cos(), r[a].sin()));
                        ((z.0 - complex(&t, a).0).powi(2) + (z.1 - complex(&t, a).1).powi(2)).sqrt()
                    };
                    gamma - (0..F / 2).map(length).sum::<f64>()
                }
                "mlp" | "structure" => {
                    let mut x: Vec<f64> = (0..F).map(|a| h[a] * t[a]).collect();
                    if name == "structure" {
                        let mut features = [0.0; WIDTH];
                        GRAPH.write(NODES.map(|nodes| nodes[i]), &mut features);
                        x.extend(features.map(f64::from));
                    }
                    let [w, b, v, c] = [0, 1, 2, 3].map(|n| &params[n]);
                    let hidden = |o: usize| {
                        let sum: f64 = (0..x.len()).map(|a| x[a] * row(w, a)[o]).sum::<f64>() + row(b, 0)[o];
                        sum.max(0.0) * row(v, o)[0]
                    };
                    (0..5).map(hidden).sum::<f64>() + row(c, 0)[0]
                }
                _ => unreachable!("{name}"),
            };
            let got = f64::from(got.view().host()[i]);
            assert!((got - expected).abs() < 1e-4, "{name}, pair {i}: {got}, not {expected}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (h, t, c) = (random(500, F, 1), random(500, F, 2), random(500, 1, 3));
    let relation: Vec<u32> = (0..500).map(|i| i % 3).collect();
    let nodes = [3, 5].map(|step| (0..500).map(|i| i * step % 8).collect::<Vec<u32>>());
    let nodes = [&nodes[0][..], &nodes[1]];
    for (name, decoder, _) in decoders() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (mut decoder, mut saved, mut out) =
                    (decoder.clone(), Saved::default(), Matrix::default());
                let pairs = Pairs { source: h.view(), destination: t.view(), relation: &relation, nodes };
                decoder.forward(&pass(true), &pairs, &mut saved, &mut out);
                let (mut h_grad, mut t_grad) = (Matrix::default(), Matrix::default());
                decoder.backward(&pass(true), &pairs, &mut saved, c.view(), [&mut h_grad, &mut t_grad]);
                let mut all = vec![out, h_grad, t_grad];
                decoder.visit(&mut |p| all.push(p.grad.clone()));
                all.iter().flat_map(|x| x.view().host().to_vec()).map(f32::to_bits).collect::<Vec<_>>()
            })
        };
        assert_eq!(run(1), run(3), "{name}");
    }
}

#[test]
fn wrong_configurations_are_rejected_with_a_reason() {
    let fault = |name: &str, config: DecoderConfig| {
        (TABLE.find(name).unwrap().make.make)(&config).err().unwrap().to_string()
    };
    let base = DecoderConfig { dim: 5, ..DecoderConfig::default() };
    assert!(fault("rotate", base).contains("dim = 5: must be even"));
    assert!(fault("complex", base).contains("must be even"));
    assert!(fault("transe", DecoderConfig { norm: 3, ..base }).contains("norm = 3"));
    assert!(fault("dot", DecoderConfig { dim: 0, ..base }).contains("at least 1"));
}

#[test]
fn decoders_of_structure_need_a_graph_and_the_numbers_of_nodes() {
    let (h, t) = (random(P, F, 1), random(P, F, 2));
    for entry in TABLE.iter() {
        let without = (entry.make.make)(&DecoderConfig { graph: None, ..config() });
        let fault = without.map(drop).map_err(|error| error.to_string());
        match entry.make.reads_structure {
            true => assert!(fault.unwrap_err().contains("graph = none: must be"), "{}", entry.name),
            false => assert!(fault.is_ok(), "{}", entry.name),
        }
        let decoder = (entry.make.make)(&config()).unwrap();
        let (source, destination) = (h.view(), t.view());
        for nodes in [[&[][..], &[]], [NODES[0], &NODES[1][1..]]] {
            let pairs = Pairs { source, destination, relation: &RELATION, nodes };
            let score =
                || decoder.forward(&pass(true), &pairs, &mut Saved::default(), &mut Matrix::default());
            let outcome = panic::catch_unwind(AssertUnwindSafe(score));
            assert_eq!(outcome.is_err(), entry.make.reads_structure, "{}: {nodes:?}", entry.name);
        }
    }
}

/// The numbers of the nodes are not given to the backward pass, which could not search the graph.
#[test]
fn features_of_pairs_are_computed_once_a_batch() {
    let (h, t, c) = (random(P, F, 1), random(P, F, 2), random(P, 1, 3));
    let gradients = |nodes| {
        let mut decoder = (TABLE.find("structure").unwrap().make.make)(&config()).unwrap();
        let (mut saved, [mut of_h, mut of_t]) = (Saved::default(), [Matrix::default(), Matrix::default()]);
        scores(decoder.as_ref(), &h, &t, &mut saved);
        let pairs = Pairs { source: h.view(), destination: t.view(), relation: &RELATION, nodes };
        decoder.backward(&pass(true), &pairs, &mut saved, c.view(), [&mut of_h, &mut of_t]);
        let mut all = vec![of_h, of_t];
        decoder.visit(&mut |param| all.push(param.grad.clone()));
        all.iter().flat_map(|x| x.view().host().to_vec()).map(f32::to_bits).collect::<Vec<_>>()
    };
    let all = gradients(NODES);
    assert!(all.iter().any(|&bits| f32::from_bits(bits) != 0.0));
    assert_eq!(gradients([&[], &[]]), all);
}
