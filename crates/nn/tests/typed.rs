//! Typed layers against finite differences and plain loops, and typed models.

use std::collections::HashMap;

use graphmill_core::{
    Block, NodeId,
    keyed::{Stream, key},
    options::OwnOptions,
    typed::{NodeType, Relation, Schema, TypedBlock},
};
use graphmill_nn::{
    Backend, Matrix, Pass, Reused, Saved, View,
    backend::{Activation, Cpu, Precision, Reference, ops::SoftmaxCrossEntropy},
    layer::{GatOptions, NormKind},
    optim::{AdamOptions, SparseAdam},
    typed::{
        RelationOptions, RgcnOptions, SimpleHgnOptions, TABLE, Target, TypedActivations, TypedGrads,
        TypedInput, TypedLayer, TypedLayerConfig, TypedModel, TypedModelConfig, TypedStep,
    },
};

use crate::support;
use crate::support::{Checked, check, distance, dot, nudge, random};

const F: usize = 6;
/// Widths of the rows of each relation's edges; relation 3 has none.
const EDGE_DIMS: [usize; 6] = [2, 3, 1, 0, 2, 1];

/// Rows of the edges of a block.
fn edge_rows(block: &TypedBlock) -> Vec<Matrix> {
    let slices = block.relations.iter().zip(EDGE_DIMS).zip(80..);
    slices.map(|((slice, dim), seed)| random(slice.num_edges(), dim, seed)).collect()
}

fn schema() -> Schema {
    let types = ["a", "b", "c"].map(|name| NodeType::new(name, 20)).to_vec();
    let ends = [(0, 1), (1, 0), (0, 0), (2, 1), (1, 2), (0, 1)];
    let relations = ends.iter().enumerate().map(|(r, &(s, d))| Relation::new(s, format!("r{r}"), d));
    Schema::new(types, relations.collect()).unwrap()
}

/// A transposed block; relation 5 has no edges, and destinations have 0 to 3 edges by each other.
fn typed_block(num_dst: [usize; 3], num_src: [usize; 3], seed: u64) -> TypedBlock {
    let schema = schema();
    let mut block = TypedBlock::default();
    block.clear(&schema);
    (block.num_dst, block.num_src) = (num_dst.to_vec(), num_src.to_vec());
    let mut stream = Stream::new(key(&[seed]));
    for (r, Relation { src, dst, .. }) in schema.relations().iter().enumerate().take(5) {
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

/// A transposed block with edges to few of the destinations, several of some.
fn sparse_block() -> TypedBlock {
    let (schema, num_dst, num_src) = (schema(), [9, 12, 7], [11, 12, 8]);
    let mut block = TypedBlock::default();
    block.clear(&schema);
    (block.num_dst, block.num_src) = (num_dst.to_vec(), num_src.to_vec());
    let mut stream = Stream::new(key(&[4]));
    for (r, Relation { src, dst, .. }) in schema.relations().iter().enumerate().take(5) {
        let slice = &mut block.relations[r];
        slice.indptr.push(0);
        for v in 0..num_dst[*dst] {
            let edges = if v % 4 == r % 4 { 1 + v % 3 } else { 0 };
            slice.indices.extend((0..edges).map(|_| stream.below(num_src[*src] as u64) as u32));
            slice.indptr.push(slice.indices.len() as u32);
        }
    }
    block.fit(&schema);
    block.transpose(false);
    block
}

fn heads(heads: usize, attention_dropout: f64) -> OwnOptions {
    let of_relations = SimpleHgnOptions { edge_dim: 3, negative_slope: 0.05 };
    OwnOptions::default().with(GatOptions { heads, out_heads: heads, attention_dropout }).with(of_relations)
}

/// A layer in one of its variants.
struct Case {
    name: String,
    layer: Box<dyn TypedLayer>,
}

fn cases() -> Vec<Case> {
    let forms: &[(&str, &str, OwnOptions, usize, bool)] = &[
        ("rsage", "own rows", OwnOptions::default(), 4, false),
        ("rsage", "wide", OwnOptions::default(), 16, false),
        ("rsage", "no own rows", OwnOptions::default().with(RelationOptions { no_own_rows: true }), 4, false),
        ("rgcn", "full", OwnOptions::default(), 4, true),
        ("rgcn", "bases", OwnOptions::default().with(RgcnOptions { bases: 2, blocks: 0 }), 4, false),
        ("rgcn", "blocks", OwnOptions::default().with(RgcnOptions { bases: 0, blocks: 2 }), 4, false),
        ("rgat", "heads", heads(2, 0.0), 4, false),
        ("rgat", "averaged", heads(2, 0.0).with(RelationOptions { no_own_rows: true }), 3, true),
        ("rgat", "dropout", heads(2, 0.4), 4, false),
        ("hgt", "skip", heads(2, 0.0), F, false),
        ("hgt", "no skip", heads(2, 0.3), 4, false),
        ("simple-hgn", "hidden", heads(2, 0.0), 4, false),
        ("simple-hgn", "scores", heads(1, 0.0), 3, true),
        ("simple-hgn", "averaged", heads(2, 0.3), 3, true),
        ("gine", "edges", OwnOptions::default(), 4, false),
        ("gatv2-edge", "edges", heads(2, 0.0), 4, false),
        ("gatv2-edge", "averaged", heads(2, 0.0), 3, true),
        ("gatv2-edge", "dropout", heads(2, 0.4), 4, false),
        ("sage-edge", "edges", OwnOptions::default(), 4, false),
        ("edge-gated", "edges", OwnOptions::default(), 4, false),
    ];
    let schema = schema();
    let made = forms.iter().map(|(row, form, own, out_dim, scores)| {
        let config = TypedLayerConfig {
            schema: &schema,
            edge_dims: &EDGE_DIMS,
            in_dim: F,
            out_dim: *out_dim,
            number: usize::from(*form != "hidden"),
            scores: *scores,
            key: 5,
            own,
        };
        let mut layer = (TABLE.find(row).unwrap().make.make)(&config).unwrap();
        // away from initial zeros and ones, at which a wrong gradient may be correct
        let mut seed = 100;
        layer.visit_mut(&mut |_, p| {
            seed += 1;
            let moved = random(p.value.num_rows(), p.value.num_cols(), seed);
            for (x, m) in p.value.view_mut().host().iter_mut().zip(moved.view().host()) {
                *x += 0.2 * m;
            }
        });
        Case { name: format!("{row}, {form}"), layer }
    });
    made.collect()
}

/// Blocks with more sources than destinations, with types that are absent, square ones, and with
/// edges to few destinations.
fn blocks() -> Vec<TypedBlock> {
    vec![
        typed_block([4, 5, 2], [7, 6, 3], 1),
        typed_block([0, 3, 0], [5, 4, 1], 2),
        typed_block([4, 2, 3], [4, 2, 3], 3),
        sparse_block(),
    ]
}

fn rows(block: &TypedBlock, dims: &[usize], seed: u64) -> Vec<Matrix> {
    block.num_src.iter().zip(dims).zip(0..).map(|((&n, &dim), t)| random(n, dim, seed + t)).collect()
}

fn forward(
    layer: &dyn TypedLayer,
    pass: &Pass,
    block: &TypedBlock,
    x: &[Matrix],
    saved: &mut Saved,
) -> Vec<Matrix> {
    let mut out = vec![Matrix::default(); 3];
    let (schema, edges) = (schema(), edge_rows(block));
    layer
        .forward(
            pass,
            &TypedInput { schema: &schema, block, x, edges: &edges, projected: &[] },
            saved,
            &mut out,
        )
        .unwrap();
    out
}

fn objective(out: &[Matrix], c: &[Matrix]) -> f64 {
    out.iter().zip(c).map(|(out, c)| dot(out.view(), c.view())).sum()
}

/// Output, gradients of all parameters, and gradients of the input of `objective(out, c)`.
fn backward(
    layer: &mut dyn TypedLayer,
    pass: &Pass,
    block: &TypedBlock,
    x: &[Matrix],
    c: &[Matrix],
) -> (Vec<Matrix>, Vec<Matrix>, Vec<Matrix>) {
    let (schema, edges, mut saved) = (schema(), edge_rows(block), Saved::default());
    let y = forward(layer, pass, block, x, &mut saved);
    layer.visit_mut(&mut |_, p| p.zero_grad(&Reference));
    let (mut grad, mut x_grad) = (c.to_vec(), vec![Matrix::default(); 3]);
    let grads = TypedGrads { y: &y, grad: &mut grad, x_grad: &mut x_grad, projections: &mut [] };
    layer.backward(
        pass,
        &TypedInput { schema: &schema, block, x, edges: &edges, projected: &[] },
        &mut saved,
        grads,
    );
    let mut grads = Vec::new();
    layer.visit(&mut |_, p| grads.push(p.grad.clone()));
    (y, grads, x_grad)
}

fn outputs(block: &TypedBlock, width: usize) -> Vec<Matrix> {
    block.num_dst.iter().zip(0..).map(|(&n, t)| random(n, width, 60 + t)).collect()
}

#[test]
fn layers_match_finite_differences() {
    let pass = support::pass(true);
    for Case { name, mut layer } in cases() {
        for (number, block) in blocks().into_iter().enumerate() {
            let (x, c) = (rows(&block, &[F; 3], 20), outputs(&block, layer.spec().out_dim));
            let (_, grads, x_grads) = backward(layer.as_mut(), &pass, &block, &x, &c);
            let mut checked = Checked::default();
            // all parameters on the first block, and some on the others
            let step = if number == 0 { 1 } else { 6 };
            for (n, grad) in grads.iter().enumerate().step_by(step) {
                checked += check(&format!("{name}, parameter {n}"), grad.view(), |i, delta| {
                    let (mut moved, mut m) = (layer.clone(), 0);
                    moved.visit_mut(&mut |_, p| {
                        if m == n {
                            nudge(p, i, delta);
                        }
                        m += 1;
                    });
                    objective(&forward(moved.as_ref(), &pass, &block, &x, &mut Saved::default()), &c)
                });
            }
            for (t, grad) in x_grads.iter().enumerate() {
                checked += check(&format!("{name}, rows of type {t}"), grad.view(), |i, delta| {
                    let mut x = x.clone();
                    x[t].view_mut().host()[i] += delta;
                    objective(&forward(layer.as_ref(), &pass, &block, &x, &mut Saved::default()), &c)
                });
            }
            checked.assert_all_but_one_in(12, &name);
        }
    }
}

#[test]
fn the_cpu_agrees_with_the_reference_on_any_number_of_threads() {
    for Case { name, mut layer } in cases() {
        for block in blocks() {
            let (x, c) = (rows(&block, &[F; 3], 20), outputs(&block, layer.spec().out_dim));
            let all =
                |(y, grads, x_grads): (Vec<Matrix>, Vec<Matrix>, Vec<Matrix>)| [y, grads, x_grads].concat();
            let bits = |of: &[Matrix]| {
                of.iter().flat_map(|m| m.view().host().to_vec()).map(f32::to_bits).collect::<Vec<_>>()
            };
            let expected = all(backward(layer.as_mut(), &support::pass(true), &block, &x, &c));
            let mut of_f32 = Vec::new();
            // factors have 24, 16 and 8 significant bits
            for (precision, tolerance, relative) in
                [(Precision::F32, 1e-4, 0.0), (Precision::Tf32, 1e-3, 1e-3), (Precision::Bf16, 0.04, 0.04)]
            {
                let mut results = Vec::new();
                for threads in [1, 3] {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let backend = Cpu { precision };
                    let pass = Pass { backend: &backend, ..support::pass(true) };
                    let got = all(pool.install(|| backward(layer.as_mut(), &pass, &block, &x, &c)));
                    for (got, expected) in got.iter().zip(&expected) {
                        let zeros = Matrix::zeros(expected.num_rows(), expected.num_cols());
                        let tolerance = tolerance + relative * distance(expected.view(), zeros.view());
                        let distance = distance(got.view(), expected.view());
                        assert!(distance < tolerance, "{name}, {precision:?}: {distance}, {tolerance}");
                    }
                    results.push(bits(&got));
                }
                assert_eq!(results[0], results[1], "{name}, {precision:?}");
                if precision == Precision::F32 {
                    of_f32 = results.swap_remove(0);
                } else if precision == Precision::Bf16 {
                    assert_ne!(results[0], of_f32, "{name}: products in bf16");
                }
            }
        }
    }
}

/// A relation of few edges computes the rows of its destinations alone, in a block of one
/// destination all rows.
#[test]
fn rows_of_sums_have_the_same_bits_in_blocks_of_one_destination() {
    let (backend, all) = (Cpu::default(), sparse_block());
    let pass = Pass { backend: &backend, ..support::pass(false) };
    let x = rows(&all, &[F; 3], 20);
    for Case { name, layer } in cases().iter().filter(|case| case.name.starts_with('r')) {
        let whole = forward(layer.as_ref(), &pass, &all, &x, &mut Saved::default());
        for (t, whole) in whole.iter().enumerate() {
            for v in 0..all.num_dst[t] {
                let mut one = all.clone();
                for (slice, relation) in one.relations.iter_mut().zip(schema().relations()) {
                    let range = if relation.dst == t { slice.edges(v) } else { 0..0 };
                    slice.indices = slice.indices[range.clone()].to_vec();
                    slice.num_dst = 1;
                    slice.indptr = vec![0, range.len() as u32];
                }
                one.num_dst = vec![1; 3];
                // the destination's own row is the first of its type
                let mut x: Vec<Matrix> = x.clone();
                let own = x[t].rows(v..v + 1).host().to_vec();
                let first = x[t].rows(0..1).host().to_vec();
                x[t].rows_mut(0..1).host().copy_from_slice(&own);
                x[t].rows_mut(v..v + 1).host().copy_from_slice(&first);
                let moved = |u: &mut u32| {
                    *u = match *u as usize {
                        0 => v as u32,
                        u if u == v => 0,
                        u => u as u32,
                    }
                };
                for (slice, relation) in one.relations.iter_mut().zip(schema().relations()) {
                    if relation.src == t {
                        slice.indices.iter_mut().for_each(moved);
                    }
                }
                let found = forward(layer.as_ref(), &pass, &one, &x, &mut Saved::default());
                let bits = |row: View| row.host().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(
                    bits(found[t].rows(0..1)),
                    bits(whole.rows(v..v + 1)),
                    "{name}, type {t}, row {v}"
                );
            }
        }
    }
}

#[test]
fn gradients_accumulate() {
    let (pass, block) = (support::pass(true), typed_block([4, 5, 2], [7, 6, 3], 1));
    for Case { name, mut layer } in cases() {
        let (x, c) = (rows(&block, &[F; 3], 20), outputs(&block, layer.spec().out_dim));
        let (_, once, _) = backward(layer.as_mut(), &pass, &block, &x, &c);
        let (schema, edges, mut saved) = (schema(), edge_rows(&block), Saved::default());
        let y = forward(layer.as_ref(), &pass, &block, &x, &mut saved);
        let (mut grad, mut x_grad) = (c, vec![Matrix::default(); 3]);
        let grads = TypedGrads { y: &y, grad: &mut grad, x_grad: &mut x_grad, projections: &mut [] };
        let input = TypedInput { schema: &schema, block: &block, x: &x, edges: &edges, projected: &[] };
        layer.backward(&pass, &input, &mut saved, grads);
        let mut n = 0;
        layer.visit(&mut |_, p| {
            let twice: Vec<f32> = once[n].view().host().iter().map(|g| 2.0 * g).collect();
            let twice = Matrix::from_slice(p.grad.num_rows(), p.grad.num_cols(), &twice);
            assert!(distance(p.grad.view(), twice.view()) < 1e-4, "{name}, parameter {n}");
            n += 1;
        });
    }
}

/// Values by row and column.
type Rows = Vec<Vec<f64>>;

fn host(x: &Matrix) -> Rows {
    let cols = x.num_cols();
    (0..x.num_rows())
        .map(|r| x.view().host()[r * cols..][..cols].iter().map(|&x| f64::from(x)).collect())
        .collect()
}

/// Parameters of a layer by full name.
fn parameters(layer: &dyn TypedLayer) -> HashMap<String, Rows> {
    let (schema, mut found) = (schema(), HashMap::new());
    layer.visit(&mut |scope, p| {
        let name = scope.name(&schema, p.name);
        let number = (0..).find(|n| !found.contains_key(&format!("{name}{n}"))).unwrap();
        found.insert(format!("{name}{number}"), host(&p.value));
    });
    found
}

fn times(x: &[f64], w: &Rows) -> Vec<f64> {
    (0..w[0].len()).map(|o| x.iter().zip(w).map(|(x, row)| x * row[o]).sum()).collect()
}

fn add(x: &mut [f64], y: &[f64], factor: f64) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += factor * y);
}

fn product(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn leaky(x: f64, slope: f64) -> f64 {
    if x > 0.0 { x } else { slope * x }
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let sum: f64 = scores.iter().map(|s| s.exp()).sum();
    scores.iter().map(|s| s.exp() / sum).collect()
}

/// Columns of head `h` of `heads`.
fn head(x: &[f64], h: usize, heads: usize) -> Vec<f64> {
    let width = x.len() / heads;
    x[h * width..][..width].to_vec()
}

/// The layer's formula for destination `v` of type `t`, by plain loops.
fn formula(
    name: &str,
    p: &HashMap<String, Rows>,
    block: &TypedBlock,
    x: &[Rows],
    (t, v): (usize, usize),
    width: usize,
) -> Vec<f64> {
    let schema = schema();
    let type_name = |t: usize| &schema.types()[t].name[..];
    let of_type = |t: usize, name: &str| &p[&format!("{}.{name}0", type_name(t))];
    let of = |r: usize, name: &str| &p[&format!("{}.{name}0", schema.relation_name(r))];
    let into: Vec<usize> = schema.into_type(t).collect();
    let source = |r: usize, u: u32| &x[schema.relations()[r].src][u as usize];
    let edges = |r: usize| -> &[u32] {
        let slice: &Block = &block.relations[r];
        &slice.indices[slice.edges(v)]
    };
    let mut out = vec![0.0; width];
    match name {
        "rsage, own rows" | "rsage, wide" | "rsage, no own rows" | "rgcn, full" | "rgcn, bases"
        | "rgcn, blocks" => {
            if name.starts_with("rgcn") {
                add(&mut out, &times(&x[t][v], &p["own.weight0"]), 1.0);
                add(&mut out, &p["bias0"][0], 1.0);
            } else {
                add(&mut out, &of_type(t, "bias")[0], 1.0);
                if name != "rsage, no own rows" {
                    add(&mut out, &times(&x[t][v], of_type(t, "own.weight")), 1.0);
                }
            }
            for &r in &into {
                let weight =
                    match name {
                        "rgcn, bases" => {
                            let mut sum = vec![vec![0.0; width]; F];
                            for (b, a) in of(r, "coefficients")[0].iter().enumerate() {
                                sum.iter_mut().zip(&p[&format!("basis{b}")]).for_each(|(s, b)| add(s, b, *a));
                            }
                            sum
                        }
                        "rgcn, blocks" => {
                            // two blocks on the diagonal
                            let q = of(r, "blocks");
                            (0..F)
                                .map(|f| {
                                    (0..width)
                                        .map(|o| {
                                            if f / (F / 2) == o / (width / 2) {
                                                q[f % (F / 2)][o]
                                            } else {
                                                0.0
                                            }
                                        })
                                        .collect()
                                })
                                .collect()
                        }
                        _ => of(r, "weight").clone(),
                    };
                for &u in edges(r) {
                    add(&mut out, &times(source(r, u), &weight), 1.0 / edges(r).len() as f64);
                }
            }
        }
        "rgat, heads" | "rgat, averaged" => {
            add(&mut out, &of_type(t, "bias")[0], 1.0);
            if name == "rgat, heads" {
                add(&mut out, &times(&x[t][v], of_type(t, "own.weight")), 1.0);
            }
            for &r in into.iter().filter(|&&r| !edges(r).is_empty()) {
                let z = |x: &[f64], h: usize| head(&times(x, of(r, "weight")), h, 2);
                for h in 0..2 {
                    let [a, b] = ["source", "target"].map(|name| head(&of(r, name)[0], h, 2));
                    let target = product(&z(&x[t][v], h), &b);
                    let scores: Vec<f64> = edges(r)
                        .iter()
                        .map(|&u| leaky(product(&z(source(r, u), h), &a) + target, 0.2))
                        .collect();
                    for (&u, alpha) in edges(r).iter().zip(softmax(&scores)) {
                        let z = z(source(r, u), h);
                        if name == "rgat, heads" {
                            add(&mut out[h * width / 2..][..width / 2], &z, alpha);
                        } else {
                            add(&mut out, &z, alpha / 2.0);
                        }
                    }
                }
            }
        }
        "hgt, skip" => {
            let linear = |t: usize, name: &str, x: &[f64]| {
                let mut y = times(x, of_type(t, &format!("{name}.weight")));
                add(&mut y, &of_type(t, &format!("{name}.bias"))[0], 1.0);
                y
            };
            let mut sum = [0.0; F];
            for h in 0..2 {
                let query = head(&linear(t, "query", &x[t][v]), h, 2);
                let (mut scores, mut messages) = (Vec::new(), Vec::new());
                for &r in &into {
                    let src = schema.relations()[r].src;
                    let by_head =
                        |name: &str| -> Rows { of(r, name).iter().map(|row| head(row, h, 2)).collect() };
                    for &u in edges(r) {
                        let key =
                            times(&head(&linear(src, "key", source(r, u)), h, 2), &by_head("attention"));
                        scores.push(product(&key, &query) * of(r, "prior")[0][h] / ((F / 2) as f64).sqrt());
                        messages.push(times(
                            &head(&linear(src, "value", source(r, u)), h, 2),
                            &by_head("message"),
                        ));
                    }
                }
                for (message, alpha) in messages.iter().zip(softmax(&scores)) {
                    add(&mut sum[h * F / 2..][..F / 2], message, alpha);
                }
            }
            let gelu: Vec<f64> =
                sum.iter().map(|&x| f64::from(graphmill_nn::backend::ops::gelu::gelu(x as f32))).collect();
            let beta = 1.0 / (1.0 + (-of_type(t, "skip")[0][0]).exp());
            add(&mut out, &linear(t, "out", &gelu), beta);
            add(&mut out, &x[t][v], 1.0 - beta);
        }
        "simple-hgn, hidden" => {
            for h in 0..2 {
                let z = |x: &[f64]| head(&times(x, &p["weight0"]), h, 2);
                let [a, b, c] = ["source0", "target0", "edge0"].map(|name| head(&p[name][0], h, 2));
                let score = |x_u: &[f64], r: usize| {
                    let e = head(&times(&p["relation0"][r], &p["relation.weight0"]), h, 2);
                    leaky(product(&z(x_u), &a) + product(&z(&x[t][v]), &b) + product(&e, &c), 0.05)
                };
                let mut entries: Vec<(f64, Vec<f64>)> = vec![(score(&x[t][v], 6), z(&x[t][v]))];
                for &r in &into {
                    entries.extend(edges(r).iter().map(|&u| (score(source(r, u), r), z(source(r, u)))));
                }
                let alpha = softmax(&entries.iter().map(|entry| entry.0).collect::<Vec<_>>());
                for ((_, z), alpha) in entries.iter().zip(alpha) {
                    add(&mut out[h * width / 2..][..width / 2], z, alpha);
                }
            }
        }
        _ => {
            for &r in &into {
                let slice = &block.relations[r];
                let rows = host(&edge_rows(block)[r]);
                let row = |e: usize| rows.get(e).map_or(&[][..], Vec::as_slice);
                let edges: Vec<_> =
                    { slice.edges(v) }.map(|e| (&source(r, slice.indices[e])[..], row(e))).collect();
                add(&mut out, &edge_formula(name, &|name| of(r, name), &x[t][v], &edges, width), 1.0);
            }
        }
    }
    out
}

/// The formula of a layer with rows of edges for a destination `x` with the rows of its sources and
/// edges, by plain loops.
fn edge_formula<'p>(
    name: &str,
    p: &dyn Fn(&str) -> &'p Rows,
    x: &[f64],
    edges: &[(&[f64], &[f64])],
    width: usize,
) -> Vec<f64> {
    let mut out = vec![0.0; width];
    // rows of no columns times weights of no rows are zeros
    let of_edge = |e: &[f64], weight: &str, width: usize| {
        if e.is_empty() { vec![0.0; width] } else { times(e, p(weight)) }
    };
    let mean = 1.0 / edges.len().max(1) as f64;
    let sum = |parts: &[Vec<f64>]| {
        let mut sum = parts[0].clone();
        parts[1..].iter().for_each(|part| add(&mut sum, part, 1.0));
        sum
    };
    match name {
        "gine, edges" => {
            let mut h: Vec<f64> = x.iter().map(|x| (1.0 + p("eps")[0][0]) * x).collect();
            for (u, e) in edges {
                let message = sum(&[u.to_vec(), of_edge(e, "edge.weight", F), p("edge.bias")[0].clone()]);
                add(&mut h, &message.iter().map(|x| x.max(0.0)).collect::<Vec<_>>(), 1.0);
            }
            let inner = sum(&[times(&h, p("mlp.0.weight")), p("mlp.0.bias")[0].clone()]);
            let inner: Vec<f64> = inner.iter().map(|x| x.max(0.0)).collect();
            add(&mut out, &times(&inner, p("mlp.1.weight")), 1.0);
            add(&mut out, &p("mlp.1.bias")[0], 1.0);
        }
        "sage-edge, edges" => {
            add(&mut out, &times(x, p("self.weight")), 1.0);
            add(&mut out, &p("bias")[0], 1.0);
            for (u, e) in edges {
                add(&mut out, &times(u, p("neigh.weight")), mean);
                add(&mut out, &of_edge(e, "edge.weight", width), mean);
            }
        }
        "edge-gated, edges" => {
            add(&mut out, &times(x, p("self.weight")), 1.0);
            add(&mut out, &p("bias")[0], 1.0);
            for (u, e) in edges {
                let gate = sum(&[
                    times(x, p("target.weight")),
                    p("gate.bias")[0].clone(),
                    times(u, p("source.weight")),
                    of_edge(e, "edge.weight", width),
                ]);
                let value = sum(&[times(u, p("value.weight")), of_edge(e, "edge.value.weight", width)]);
                let gated = gate.iter().zip(value).map(|(gate, value)| value / (1.0 + (-gate).exp()));
                add(&mut out, &gated.collect::<Vec<_>>(), 1.0);
            }
        }
        "gatv2-edge, edges" | "gatv2-edge, averaged" => {
            let all = p("attention")[0].len();
            let right = sum(&[times(x, p("right.weight")), p("right.bias")[0].clone()]);
            let mut entries: Vec<_> = edges
                .iter()
                .map(|(u, e)| (times(u, p("left.weight")), of_edge(e, "edge.weight", all)))
                .collect();
            let mut own = vec![0.0; all];
            entries.iter().for_each(|(_, edge)| add(&mut own, edge, mean));
            entries.push((times(x, p("left.weight")), own));
            add(&mut out, &p("bias")[0], 1.0);
            for h in 0..2 {
                let score = |(left, edge): &(Vec<f64>, Vec<f64>)| {
                    let z: Vec<f64> = sum(&[left.clone(), right.clone(), edge.clone()]);
                    let z: Vec<f64> = head(&z, h, 2).iter().map(|&z| leaky(z, 0.2)).collect();
                    product(&z, &head(&p("attention")[0], h, 2))
                };
                let alpha = softmax(&entries.iter().map(score).collect::<Vec<_>>());
                for ((left, _), alpha) in entries.iter().zip(alpha) {
                    let left = head(left, h, 2);
                    match name {
                        "gatv2-edge, averaged" => add(&mut out, &left, alpha / 2.0),
                        _ => add(&mut out[h * width / 2..][..width / 2], &left, alpha),
                    }
                }
            }
        }
        _ => unreachable!("{name}"),
    }
    out
}

#[test]
fn layers_compute_their_formulas() {
    let pass = support::pass(false);
    let mut seen = 0;
    for Case { name, layer } in cases() {
        let is_variant = name.contains("dropout") || name.contains("no skip") || name.contains("scores");
        if is_variant || name == "simple-hgn, averaged" {
            continue;
        }
        seen += 1;
        let (p, width) = (parameters(layer.as_ref()), layer.spec().out_dim);
        for block in blocks() {
            let x = rows(&block, &[F; 3], 20);
            let out = forward(layer.as_ref(), &pass, &block, &x, &mut Saved::default());
            let x: Vec<Rows> = x.iter().map(host).collect();
            for (t, out) in out.iter().enumerate() {
                for (v, row) in host(out).iter().enumerate() {
                    let expected = formula(&name, &p, &block, &x, (t, v), width);
                    for (got, expected) in row.iter().zip(&expected) {
                        assert!(
                            (got - expected).abs() < 2e-5,
                            "{name}, type {t}, row {v}: {got}, not {expected}"
                        );
                    }
                }
            }
        }
    }
    assert_eq!(seen, 15);
}

/// A batch of two layers for a model whose type `b` has no features.
struct Batch {
    blocks: Vec<TypedBlock>,
    features: Vec<Matrix>,
    /// Rows of edges, for models that read them.
    edges: Vec<Vec<Matrix>>,
    nodes: Vec<Vec<NodeId>>,
}

const DIMS: [usize; 3] = [5, 0, 4];

fn batch() -> Batch {
    let blocks = vec![typed_block([5, 4, 2], [7, 6, 3], 1), typed_block([3, 2, 0], [5, 4, 2], 2)];
    let features = rows(&blocks[0], &DIMS, 40);
    let nodes =
        blocks[0].num_src.iter().map(|&n| (0..n as u32).map(|v| (v * 3 + 1) % 20).collect()).collect();
    let edges = blocks.iter().map(edge_rows).collect();
    Batch { blocks, features, edges, nodes }
}

impl Batch {
    /// The batch for a model, which may read the rows of edges.
    fn step(&self, reads_edges: bool) -> TypedStep<'_> {
        TypedStep {
            blocks: &self.blocks,
            features: &self.features,
            edges: if reads_edges { &self.edges } else { &[] },
            nodes: &self.nodes,
            num_targets: 3,
            reused: &[],
        }
    }
}

fn reads_edges(model: &str) -> bool {
    TABLE.find(model).unwrap().make.reads_edges
}

fn configs() -> Vec<TypedModelConfig> {
    let base = TypedModelConfig {
        hidden: 8,
        activation: Activation::Elu,
        input_activation: Activation::Elu,
        input_dropout: 0.2,
        dropout: 0.3,
        own: heads(2, 0.0),
        ..TypedModelConfig::default()
    };
    let of = |model: &str, head_layers, norm| TypedModelConfig {
        model: model.into(),
        head_layers,
        norm,
        edge_dims: if reads_edges(model) { EDGE_DIMS.to_vec() } else { Vec::new() },
        ..base.clone()
    };
    let mut all: Vec<TypedModelConfig> = TABLE
        .iter()
        .map(|entry| of(entry.name, usize::from(!entry.make.can_score), NormKind::None))
        .collect();
    all.extend([of("rsage", 2, NormKind::Layer), of("rgcn", 0, NormKind::Batch), of("hgt", 1, NormKind::L2)]);
    all.extend(plain_inputs());
    all
}

/// Models whose first layer may read projections of features, because nothing follows these.
fn plain_inputs() -> Vec<TypedModelConfig> {
    let of = |model: &str, options: RgcnOptions| TypedModelConfig {
        model: model.into(),
        hidden: 8,
        activation: Activation::Elu,
        own: heads(2, 0.0).with(options),
        ..TypedModelConfig::default()
    };
    let rgcn = |bases, blocks| of("rgcn", RgcnOptions { bases, blocks });
    let plain = |model| of(model, RgcnOptions::default());
    let mut all = vec![rgcn(0, 0), rgcn(2, 0), rgcn(0, 1), plain("rsage"), plain("rsage"), plain("rgat")];
    all[4].own.set(RelationOptions { no_own_rows: true });
    // one head: few destinations for each source, so that features are summed
    all.extend([0.0, 0.3].map(|dropout| TypedModelConfig { own: heads(1, dropout), ..plain("rgat") }));
    all
}

#[test]
fn projections_read_by_the_first_layer_give_the_scores_of_projected_rows() {
    let (pass, mut batch) = (support::pass(false), batch());
    // an estimator's weights, whose sum is not 1
    for stored in [false, true] {
        if stored {
            for slice in &mut batch.blocks[0].relations {
                slice.edge_weight = (0..slice.num_edges()).map(|e| 0.2 + e as f32 / 7.0).collect();
            }
        }
        for config in plain_inputs() {
            let mut model = TypedModel::new(&config, &schema(), &DIMS, TARGET, 3).unwrap();
            // biases are zeros at first
            model.visit_mut(&mut |_, p| {
                p.value
                    .view_mut()
                    .host()
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, x)| *x += 0.01 * (i % 7) as f32)
            });
            let mut acts = TypedActivations::default();
            model.forward(&pass, &batch.step(false), &mut acts).unwrap();
            let mut rows = vec![Matrix::default(); 3];
            for (t, out) in rows.iter_mut().enumerate() {
                model.input_rows(&pass, t, &batch.features[t], &batch.nodes[t], out).unwrap();
            }
            let mut other = TypedActivations::default();
            for l in 0..2 {
                let x = [&rows[..], &[][..]];
                rows = model.layer_rows(&pass, l, &batch.blocks[l], x, &mut other).unwrap().to_vec();
            }
            assert!(distance(acts.logits(), rows[0].rows(0..3)) < 1e-5, "{config:?}");
        }
    }
}

const TARGET: Target = Target { node_type: 0, outputs: 3 };

/// Loss of a training pass; the gradients are those of the last call.
fn loss(model: &TypedModel, pass: &Pass, step: &TypedStep, acts: &mut TypedActivations) -> f64 {
    model.forward(pass, step, acts).unwrap();
    let (logits, grad) = acts.logits_and_grad();
    SoftmaxCrossEntropy { logits, label: &[2, 0, 1], weight: &[], scale: 1.0, grad }.run(pass.backend)
}

#[test]
fn models_match_finite_differences_to_the_learned_rows() {
    let (pass, batch) = (support::pass(true), batch());
    for mut config in configs() {
        if config.model == "simple-hgn" {
            // scores of unit length are too curved for differences, and initial scores of attention
            // are near the kink
            config.head_layers = 1;
            config.own.set(SimpleHgnOptions { edge_dim: 3, negative_slope: 1.0 });
        }
        let step = batch.step(reads_edges(&config.model));
        let mut model = TypedModel::new(&config, &schema(), &DIMS, TARGET, 3).unwrap();
        let mut acts = TypedActivations::default();
        loss(&model, &pass, &step, &mut acts);
        model.zero_grad(pass.backend);
        model.backward(&pass, &step, &mut acts);
        let mut grads = Vec::new();
        model.visit(&mut |name, p| grads.push((name.to_string(), p.grad.clone(), p.trainable)));
        let mut checked = Checked::default();
        // norms over the batch amplify rounding: only some parameters are compared
        for (n, (name, grad, _)) in grads.iter().enumerate().filter(|(_, g)| g.2).step_by(3) {
            checked += check(&format!("{}: {name}", config.model), grad.view(), |i, delta| {
                let (mut moved, mut m) = (model.clone(), 0);
                moved.visit_mut(&mut |_, p| {
                    if m == n {
                        nudge(p, i, delta);
                    }
                    m += 1;
                });
                loss(&moved, &pass, &step, &mut TypedActivations::default())
            });
        }
        checked += check(&format!("{}: learned rows", config.model), acts.input_grad(1), |i, delta| {
            let mut moved = model.clone();
            let (_, rows) = moved.learned_rows_mut().next().unwrap();
            let v = batch.nodes[1][i / 8] as usize;
            rows.table_mut().view_mut().host()[v * 8 + i % 8] += delta;
            loss(&moved, &pass, &step, &mut TypedActivations::default())
        });
        checked.assert_all_but_one_in(8, &config.model);
    }
}

/// The batch without the last destinations of its bottom block, of which `computed` are left, and
/// with the slots of the others in tables of all rows.
fn without_last(batch: &Batch, computed: [usize; 3]) -> (Batch, Vec<Vec<u32>>) {
    let (mut blocks, mut edges) = (batch.blocks.clone(), batch.edges.clone());
    let all = std::mem::replace(&mut blocks[0].num_dst, computed.to_vec());
    for (r, (slice, relation)) in blocks[0].relations.iter_mut().zip(schema().relations()).enumerate() {
        let (dst, width) = (computed[relation.dst], EDGE_DIMS[r]);
        slice.num_dst = dst;
        slice.indptr.truncate(dst + 1);
        slice.indices.truncate(slice.indptr[dst] as usize);
        let kept = batch.edges[0][r].rows(0..slice.num_edges()).host().to_vec();
        edges[0][r] = Matrix::from_slice(slice.num_edges(), width, &kept);
        slice.transpose();
    }
    let slots = all.iter().zip(computed).map(|(&all, computed)| (computed as u32..all as u32).collect());
    let (features, nodes) = (batch.features.clone(), batch.nodes.clone());
    (Batch { blocks, features, edges, nodes }, slots.collect())
}

#[test]
fn reused_rows_of_the_current_parameters_give_the_scores_of_computed_rows() {
    let (pass, batch) = (support::pass(false), batch());
    let (fewer, slots) = without_last(&batch, [3, 2, 1]);
    for config in configs() {
        let model = TypedModel::new(&config, &schema(), &DIMS, TARGET, 3).unwrap();
        let (whole, part) = (batch.step(reads_edges(&config.model)), fewer.step(reads_edges(&config.model)));
        let mut acts = TypedActivations::default();
        let bottom = TypedStep {
            blocks: &whole.blocks[..1],
            edges: &whole.edges[..whole.edges.len().min(1)],
            num_targets: 0,
            ..whole
        };
        let table = model.bottom_rows(&pass, &bottom, &mut acts).unwrap().to_vec();
        assert!(table.iter().all(|rows| rows.num_cols() == model.bottom_dim()));
        let reused: Vec<Reused> = { table.iter().zip(&slots) }
            .map(|(rows, slots)| Reused { rows: rows.view(), slots, aggregates: &[], projected: None })
            .collect();
        model.forward(&pass, &whole, &mut acts).unwrap();
        let expected = acts.logits().host().to_vec();
        model.forward(&pass, &TypedStep { reused: &reused, ..part }, &mut acts).unwrap();
        assert_eq!(acts.logits().host(), expected, "{}", config.model);
        let wrong = model.forward(&pass, &TypedStep { reused: &reused, ..whole }, &mut acts).unwrap_err();
        assert!(wrong.to_string().contains("are not the [5, 4, 2] sources of the second layer"), "{wrong}");
        let wrong = model.forward(&pass, &TypedStep { reused: &reused, ..bottom }, &mut acts).unwrap_err();
        assert!(wrong.to_string().contains("reused rows need a block for each layer"), "{wrong}");
    }
}

#[test]
fn reused_rows_are_constants_of_finite_differences() {
    let pass = support::pass(true);
    let (batch, slots) = without_last(&batch(), [3, 2, 1]);
    let plain =
        configs().into_iter().filter(|config| ["rsage", "rgcn", "rgat", "hgt"].contains(&&*config.model));
    for config in plain {
        let mut model = TypedModel::new(&config, &schema(), &DIMS, TARGET, 3).unwrap();
        let table: Vec<Matrix> = (0..3).map(|t| random(5, model.bottom_dim(), 60 + t)).collect();
        let reused: Vec<Reused> = { table.iter().zip(&slots) }
            .map(|(rows, slots)| Reused { rows: rows.view(), slots, aggregates: &[], projected: None })
            .collect();
        let step = TypedStep { reused: &reused, ..batch.step(false) };
        let mut acts = TypedActivations::default();
        loss(&model, &pass, &step, &mut acts);
        model.zero_grad(pass.backend);
        model.backward(&pass, &step, &mut acts);
        let mut grads = Vec::new();
        model.visit(&mut |name, p| grads.push((name.to_string(), p.grad.clone(), p.trainable)));
        let mut checked = Checked::default();
        for (n, (name, grad, _)) in grads.iter().enumerate().filter(|(_, g)| g.2).step_by(3) {
            checked += check(&format!("{}: {name}", config.model), grad.view(), |i, delta| {
                let (mut moved, mut m) = (model.clone(), 0);
                moved.visit_mut(&mut |_, p| {
                    if m == n {
                        nudge(p, i, delta);
                    }
                    m += 1;
                });
                loss(&moved, &pass, &step, &mut TypedActivations::default())
            });
        }
        checked += check(&format!("{}: learned rows", config.model), acts.input_grad(1), |i, delta| {
            let mut moved = model.clone();
            let (_, rows) = moved.learned_rows_mut().next().unwrap();
            let v = batch.nodes[1][i / 8] as usize;
            rows.table_mut().view_mut().host()[v * 8 + i % 8] += delta;
            loss(&moved, &pass, &step, &mut TypedActivations::default())
        });
        checked.assert_all_but_one_in(8, &config.model);
    }
}

#[test]
fn parameter_names_are_unique_and_in_the_visiting_order() {
    for config in configs() {
        let own = config.own.clone().with(RgcnOptions { bases: 2, blocks: 0 });
        let mut model =
            TypedModel::new(&TypedModelConfig { own, ..config }, &schema(), &DIMS, TARGET, 3).unwrap();
        let mut names = Vec::new();
        model.visit(&mut |name, _| names.push(name.to_string()));
        let mut again = Vec::new();
        model.visit_mut(&mut |name, _| again.push(name.to_string()));
        assert_eq!(names, again);
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        assert!(
            names.contains(&"input.a.weight".to_string()) && !names.contains(&"input.b.weight".to_string())
        );
    }
}

#[test]
fn models_overfit_a_batch_and_update_only_its_learned_rows() {
    let batch = batch();
    for config in configs() {
        let config = TypedModelConfig { dropout: 0.0, input_dropout: 0.0, ..config };
        let of_model = batch.step(reads_edges(&config.model));
        let mut model = TypedModel::new(&config, &schema(), &DIMS, TARGET, 3).unwrap();
        let before = model.learned_rows().next().unwrap().1.table().clone();
        let mut adam = graphmill_nn::optim::by_name("adam", &OwnOptions::default()).unwrap();
        let mut sparse = SparseAdam::new(&AdamOptions::default()).unwrap();
        let (backend, mut acts) = (Cpu::default(), TypedActivations::default());
        let mut losses = Vec::new();
        for step in 0..60 {
            let pass = Pass { backend: &backend, training: true, key: step };
            losses.push(loss(&model, &pass, &of_model, &mut acts));
            model.zero_grad(&backend);
            model.backward(&pass, &of_model, &mut acts);
            adam.begin(0.02);
            sparse.begin(0.02);
            let mut index = 0;
            model.visit_mut(&mut |_, p| {
                adam.update(&backend, index, p, 0.0);
                index += 1;
            });
            model.update_learned_rows(&mut sparse, &batch.nodes, &acts);
        }
        assert!(losses[59] < 0.75 * losses[0], "{}: {:?}", config.model, [losses[0], losses[59]]);
        let after = model.learned_rows().next().unwrap().1.table();
        for v in 0..20 {
            let changed = after.rows(v..v + 1).host() != before.rows(v..v + 1).host();
            assert!(batch.nodes[1].contains(&(v as u32)) || !changed, "{}: row {v}", config.model);
        }
    }
}

#[test]
fn a_single_block_serves_all_layers() {
    let (pass, block) = (support::pass(true), typed_block([4, 3, 2], [4, 3, 2], 5));
    let features = rows(&block, &DIMS, 40);
    let nodes: Vec<Vec<NodeId>> = block.num_src.iter().map(|&n| (0..n as u32).collect()).collect();
    let config =
        TypedModelConfig { model: "hgt".into(), head_layers: 1, own: heads(2, 0.0), ..Default::default() };
    let mut model = TypedModel::new(&config, &schema(), &DIMS, TARGET, 3).unwrap();
    let single = TypedStep {
        blocks: std::slice::from_ref(&block),
        features: &features,
        edges: &[],
        nodes: &nodes,
        num_targets: 2,
        reused: &[],
    };
    let two = [block.clone(), block.clone()];
    let mut results = Vec::new();
    for step in [single, TypedStep { blocks: &two, ..single }] {
        let mut acts = TypedActivations::default();
        model.forward(&pass, &step, &mut acts).unwrap();
        let (logits, grad) = acts.logits_and_grad();
        SoftmaxCrossEntropy { logits, label: &[2, 0], weight: &[], scale: 1.0, grad }.run(pass.backend);
        model.zero_grad(pass.backend);
        model.backward(&pass, &step, &mut acts);
        let mut grads = vec![acts.logits().host().to_vec()];
        model.visit(&mut |_, p| grads.push(p.grad.view().host().to_vec()));
        results.push(grads);
    }
    assert_eq!(results[0], results[1]);
}

#[test]
fn wrong_batches_and_configurations_are_rejected_with_a_reason() {
    let (schema, batch) = (schema(), batch());
    let fault = |config: TypedModelConfig| {
        TypedModel::new(&config, &schema, &DIMS, TARGET, 3).err().unwrap().to_string()
    };
    let base = TypedModelConfig::default();
    assert!(fault(TypedModelConfig { model: "gcn".into(), ..base.clone() }).contains("known: rsage, rgcn"));
    assert!(fault(TypedModelConfig { model: "hgt".into(), ..base.clone() }).contains("use 1 or more"));
    let both = base.clone().with(RgcnOptions { bases: 2, blocks: 2 });
    assert!(fault(both).contains("not together with bases"));
    let blocks = base.clone().with(RgcnOptions { bases: 0, blocks: 5 });
    assert!(fault(blocks).contains("does not divide 64 columns"));
    let message = fault(TypedModelConfig { model: "sage-edge".into(), ..base.clone() });
    assert!(message.contains("pass a width for each of 6 relations"), "{message}");
    let message = fault(TypedModelConfig { edge_dims: vec![1; 6], ..base.clone() });
    assert!(message.contains("model 'rgcn' does not read edge features"), "{message}");
    let narrow = TypedModel::new(&base, &schema, &[5, 0], TARGET, 3).err().unwrap().to_string();
    assert!(narrow.contains("2 widths for 3 node types"));

    let model = TypedModel::new(&base, &schema, &DIMS, TARGET, 3).unwrap();
    let run = |step: TypedStep| {
        model.forward(&support::pass(true), &step, &mut TypedActivations::default()).unwrap_err().to_string()
    };
    let features = rows(&batch.blocks[0], &[2, 0, 4], 1);
    assert!(run(TypedStep { features: &features, ..batch.step(false) }).contains("7 rows of 2 values"));
    assert!(
        run(TypedStep { num_targets: 4, ..batch.step(false) }).contains("4 targets among 3 destinations")
    );
    let three = [&batch.blocks[..], &batch.blocks[1..]].concat();
    assert!(run(TypedStep { blocks: &three, ..batch.step(false) }).contains("3 blocks for 2 layers"));
    assert!(run(batch.step(true)).contains("rows of edges of 2 blocks that do not fit"));
    let mut nodes = batch.nodes.clone();
    nodes[1][0] = 20;
    assert!(
        run(TypedStep { nodes: &nodes, ..batch.step(false) }).contains("node 20 of a type with 20 nodes")
    );
    let _: &dyn Backend = &Reference;
}
