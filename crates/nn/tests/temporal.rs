//! Parts of models on streams of events: gradients against finite differences, the memory against
//! plain loops over single events, and exact restores.

use std::collections::HashMap;

use graphmill_core::keyed::{Stream, key};
use graphmill_nn::{
    Matrix, Param, Pass,
    backend::{Cpu, Reference},
    temporal::{
        CellInput, CellKind, CellState, MemoryEvents, MemoryState, MemoryUpdater, NodeMemory, RecurrentCell,
        TimeEncoding, TimeProjection,
    },
};

use crate::support;
use crate::support::{Checked, check, distance, dot, nudge, pass, random};

const M: usize = 4;
const K: usize = 2;
const T: usize = 3;

/// Visitor of the parameters of a value.
type VisitMut<T> = fn(&mut T, &mut dyn FnMut(&mut Param));

/// Calls `visit` and moves the `i`-th element of parameter `n`.
fn moved<T: Clone>(of: &T, n: usize, i: usize, by: f32, visit: VisitMut<T>) -> T {
    let (mut of, mut m) = (of.clone(), 0);
    visit(&mut of, &mut |p| {
        if m == n {
            nudge(p, i, by);
        }
        m += 1;
    });
    of
}

#[test]
fn encodings_match_finite_differences_and_large_differences_keep_their_digits() {
    let mut encoding = TimeEncoding::new(5);
    let differences = [0.0, 1.5, -2.0, 0.25];
    let c = random(4, 5, 1);
    let run = |encoding: &TimeEncoding| {
        let mut out = Matrix::default();
        encoding.forward(&differences, &mut out);
        dot(out.view(), c.view())
    };
    encoding.backward(&differences, c.view());
    let mut grads = Vec::new();
    encoding.visit(&mut |p| grads.push((p.name, p.grad.clone())));
    let mut checked = Checked::default();
    for (n, (name, grad)) in grads.iter().enumerate() {
        checked +=
            check(name, grad.view(), |i, by| run(&moved(&encoding, n, i, by, TimeEncoding::visit_mut)));
    }
    checked.assert_all_but_one_in(20, "time encoding");
    let mut out = Matrix::default();
    encoding.forward(&[1.3e9], &mut out);
    assert!((f64::from(out.view().host()[0]) - 1.3e9f64.cos()).abs() < 1e-6, "the first weight is 1");
}

fn cell_input<'a>(x: &'a Matrix, h: &'a Matrix, repeats_state: bool) -> CellInput<'a> {
    CellInput { x: x.view(), h: h.view(), repeats_state }
}

#[test]
fn cells_match_finite_differences() {
    for kind in [CellKind::Gru, CellKind::Rnn] {
        check_cell(RecurrentCell::new(kind, 5, M, 3), false);
        check_cell(RecurrentCell::new(kind, M + 5, M, 3), true);
    }
}

#[test]
fn an_input_that_repeats_the_state_gives_the_results_of_the_joined_rows() {
    let (rest, h, c) = (random(6, 5, 1), random(6, M, 2), random(6, M, 4));
    let rows = h.view().host().chunks(M).zip(rest.view().host().chunks(5));
    let joined = Matrix::from_slice(6, M + 5, &rows.flat_map(|(h, x)| [h, x].concat()).collect::<Vec<_>>());
    for kind in [CellKind::Gru, CellKind::Rnn] {
        let run = |x: &Matrix, repeats_state| {
            let mut cell = RecurrentCell::new(kind, M + 5, M, 3);
            cell.visit_mut(&mut |p| p.zero_grad(&Reference));
            let (mut state, mut out, mut x_grad) = Default::default();
            let input = cell_input(x, &h, repeats_state);
            cell.forward(&pass(true), input, &mut state, &mut out);
            cell.backward(&pass(true), input, &mut state, c.view(), Some(&mut x_grad));
            let mut results = vec![out];
            cell.visit(&mut |p| results.push(p.grad.clone()));
            let rest = x_grad.view().host().chunks(x.num_cols()).flat_map(|row| &row[row.len() - 5..]);
            results.push(Matrix::from_slice(6, 5, &rest.copied().collect::<Vec<_>>()));
            results
        };
        for (plain, repeated) in run(&joined, false).iter().zip(run(&rest, true)) {
            assert!(distance(plain.view(), repeated.view()) < 1e-6, "{kind:?}");
        }
    }
}

fn check_cell(mut cell: RecurrentCell, repeats_state: bool) {
    let (mut x, h, c) = (random(6, 5, 1), random(6, M, 2), random(6, M, 4));
    let run = |cell: &RecurrentCell, x: &Matrix| {
        let mut out = Matrix::default();
        cell.forward(&pass(true), cell_input(x, &h, repeats_state), &mut CellState::default(), &mut out);
        dot(out.view(), c.view())
    };
    let (mut state, mut out, mut x_grad) = (CellState::default(), Matrix::default(), Matrix::default());
    let input = cell_input(&x, &h, repeats_state);
    cell.forward(&pass(true), input, &mut state, &mut out);
    cell.backward(&pass(true), input, &mut state, c.view(), Some(&mut x_grad));
    let mut grads = Vec::new();
    cell.visit(&mut |p| grads.push((p.name, p.grad.clone())));
    let mut checked = Checked::default();
    for (n, (name, grad)) in grads.iter().enumerate() {
        checked +=
            check(name, grad.view(), |i, by| run(&moved(&cell, n, i, by, RecurrentCell::visit_mut), &x));
    }
    checked += check("x", x_grad.view(), |i, by| {
        x.view_mut().host()[i] += by;
        let value = run(&cell, &x);
        x.view_mut().host()[i] -= by;
        value
    });
    checked.assert_all_but_one_in(20, "cell");
}

/// Random events of seven nodes: sources, destinations, times, features.
fn events(count: usize, seed: u64) -> (Vec<u32>, Vec<u32>, Vec<i64>, Matrix) {
    let mut stream = Stream::new(key(&[seed]));
    let node = |stream: &mut Stream| stream.below(7) as u32;
    let ends: Vec<(u32, u32)> = (0..count).map(|_| (node(&mut stream), node(&mut stream))).collect();
    let mut times: Vec<i64> = (0..count).map(|_| 1_300_000_000 + stream.below(50) as i64).collect();
    times.sort_unstable();
    let (source, destination) = ends.into_iter().unzip();
    (source, destination, times, random(count, K, seed ^ 1))
}

/// A pass over events `first..end` in batches: the updated rows of all nodes at the begin of each
/// batch.
fn stream(
    updater: &MemoryUpdater,
    store: &mut NodeMemory,
    of: &(Vec<u32>, Vec<u32>, Vec<i64>, Matrix),
    range: std::ops::Range<usize>,
    batch: usize,
) -> Vec<Matrix> {
    let (source, destination, time, edges) = of;
    let backend = Cpu::default();
    let pass = Pass { backend: &backend, training: true, key: 0 };
    let (mut out, mut state) = (Vec::new(), MemoryState::default());
    let all: Vec<u32> = (0..7).collect();
    for first in range.clone().step_by(batch) {
        let events = first..(first + batch).min(range.end);
        updater.update(&pass, store, &all, &mut state).unwrap();
        out.push(state.rows.clone());
        let active = |v: &u32| source[events.clone()].contains(v) || destination[events.clone()].contains(v);
        let positions: Vec<u32> = all.iter().copied().filter(active).collect();
        store.persist(&state, &positions).unwrap();
        let of = MemoryEvents {
            source: &source[events.clone()],
            destination: &destination[events.clone()],
            time: &time[events.clone()],
            edges: edges.rows(events),
        };
        store.push(&of).unwrap();
    }
    out
}

/// A node in the plain reference: memory, time of the last update, waiting message.
type Plain = (Vec<f64>, i64, Option<(Vec<f64>, i64)>);

/// Memory of a node after its waiting message, by the formulas of the cell.
fn plain_update(params: &HashMap<&str, Matrix>, (memory, last, waiting): &Plain) -> (Vec<f64>, i64) {
    let Some((message, time)) = waiting else { return (memory.clone(), *last) };
    let value = |name: &str, r: usize, c: usize| {
        let x = &params[name];
        f64::from(x.view().host()[r * x.num_cols() + c])
    };
    let difference = (time - last) as f64;
    let encoded = (0..T).map(|i| (value("time.weight", 0, i) * difference + value("time.bias", 0, i)).cos());
    let x: Vec<f64> = message.iter().copied().chain(encoded).collect();
    let part = |of: &str, row: &[f64], c: usize| {
        let product = |(r, x): (usize, &f64)| x * value(&format!("gru.{of}.weight"), r, c);
        row.iter().enumerate().map(product).sum::<f64>() + value(&format!("gru.{of}.bias"), 0, c)
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let column = |c: usize| {
        let reset = sigmoid(part("input", &x, c) + part("hidden", memory, c));
        let update = sigmoid(part("input", &x, M + c) + part("hidden", memory, M + c));
        let new = (part("input", &x, 2 * M + c) + reset * part("hidden", memory, 2 * M + c)).tanh();
        (1.0 - update) * new + update * memory[c]
    };
    ((0..M).map(column).collect(), *time)
}

#[test]
fn memory_agrees_with_plain_loops_over_the_events() {
    let updater = MemoryUpdater::new(CellKind::Gru, M, K, T, 5);
    let mut params = HashMap::new();
    updater.visit(&mut |p| {
        params.insert(p.name, p.value.clone());
    });
    let of = events(40, 3);
    let (source, destination, time, edges) = &of;
    for batch in [1, 6, 40] {
        let mut store = NodeMemory::new(7, M, K, 1_300_000_000);
        let found = stream(&updater, &mut store, &of, 0..40, batch);
        let mut nodes: Vec<Plain> = vec![(vec![0.0; M], 1_300_000_000, None); 7];
        for (rows, first) in found.iter().zip((0..40).step_by(batch)) {
            let updated: Vec<_> = nodes.iter().map(|node| plain_update(&params, node)).collect();
            for (v, (row, _)) in updated.iter().enumerate() {
                for (c, x) in row.iter().enumerate() {
                    let got = f64::from(rows.view().host()[v * M + c]);
                    assert!((got - x).abs() < 1e-5, "batch of {batch} from {first}, node {v}: {got}, {x}");
                }
            }
            let batch = first..(first + batch).min(40);
            let ends = |e: usize| [(source[e], destination[e]), (destination[e], source[e])];
            for (v, _) in batch.clone().flat_map(ends) {
                let (row, last) = updated[v as usize].clone();
                nodes[v as usize] = (row, last, None);
            }
            for e in batch {
                for (own, other) in ends(e) {
                    let features = edges.view().host()[e * K..(e + 1) * K].iter().map(|&x| f64::from(x));
                    let rows = [own, other].map(|v| nodes[v as usize].0.clone());
                    let message = rows.concat().into_iter().chain(features).collect();
                    nodes[own as usize].2 = Some((message, time[e]));
                }
            }
        }
    }
}

#[test]
fn a_restored_memory_continues_to_the_same_bits() {
    let updater = MemoryUpdater::new(CellKind::Gru, M, K, T, 5);
    let of = events(60, 8);
    let mut whole = NodeMemory::new(7, M, K, 0);
    let expected = stream(&updater, &mut whole, &of, 0..60, 5);
    let mut first = NodeMemory::new(7, M, K, 0);
    stream(&updater, &mut first, &of, 0..30, 5);
    let mut second = NodeMemory::new(7, M, K, 99);
    second.restore(&first.save()).unwrap();
    let found = stream(&updater, &mut second, &of, 30..60, 5);
    for (a, b) in found.iter().zip(&expected[6..]) {
        assert_eq!(a.view().host(), b.view().host());
    }
    assert_eq!(second.save(), whole.save());
    assert!(found.iter().any(|rows| rows.view().host().iter().any(|x| *x != 0.0)));
    second.clear(0).unwrap();
    assert_eq!(second.save(), NodeMemory::new(7, M, K, 0).save());
}

#[test]
fn a_memory_in_files_has_the_bits_of_one_in_memory() {
    let updater = MemoryUpdater::new(CellKind::Gru, M, K, T, 5);
    let (of, dir) = (events(60, 8), tempfile::tempdir().unwrap());
    let mut plain = NodeMemory::new(7, M, K, 0);
    let expected = stream(&updater, &mut plain, &of, 0..60, 5);
    // rows leave the memory of the process at every step, at some, and never
    for most in [1, 30, 10_000] {
        let mut store = NodeMemory::in_file(7, M, K, 0, dir.path(), most).unwrap();
        assert!(store.is_in_file());
        let found = stream(&updater, &mut store, &of, 0..60, 5);
        for (a, b) in found.iter().zip(&expected) {
            assert_eq!(a.view().host(), b.view().host(), "{most}");
        }
        assert_eq!(store.save(), plain.save(), "{most}");
        let mut restored = NodeMemory::in_file(7, M, K, 99, dir.path(), most).unwrap();
        let mut times = vec![0; store.bytes_of_times()];
        store.save_times(&mut times);
        restored.restore_tables(store.tables().map(|table| table.view().host()), &times).unwrap();
        assert_eq!(restored.save(), plain.save(), "{most}");
        restored.clear(0).unwrap();
        assert_eq!(restored.save(), NodeMemory::new(7, M, K, 0).save(), "{most}");
        assert!(restored.is_in_file() && !restored.clone().is_in_file());
        restored.restore(&store.save()).unwrap();
        assert_eq!(restored.save(), plain.save(), "{most}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file has a name");
}

#[test]
fn no_event_reaches_the_rows_of_its_own_batch() {
    let updater = MemoryUpdater::new(CellKind::Gru, M, K, T, 5);
    let of = events(30, 4);
    let mut other = of.clone();
    // other events from the third batch on
    let (source, destination, _, edges) = events(30, 9);
    other.0[20..].copy_from_slice(&source[20..]);
    other.1[20..].copy_from_slice(&destination[20..]);
    other.3.rows_mut(20..30).host().copy_from_slice(edges.rows(20..30).host());
    let run = |of| stream(&updater, &mut NodeMemory::new(7, M, K, 0), of, 0..30, 10);
    let (a, b) = (run(&of), run(&other));
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.view().host(), b.view().host());
    }
    // two batches have passed, so the memory is not empty
    assert!(a[2].view().host().iter().any(|x| *x != 0.0));
}

#[test]
fn updates_match_finite_differences() {
    for kind in [CellKind::Gru, CellKind::Rnn] {
        check_updates(MemoryUpdater::new(kind, M, K, T, 5));
    }
}

fn check_updates(mut updater: MemoryUpdater) {
    let mut store = NodeMemory::new(7, M, K, 1_300_000_000);
    stream(&updater, &mut store, &events(20, 3), 0..20, 5);
    // node 6 has no message if it has no event; ask for a part of the nodes, in another order
    let nodes = [4, 0, 6, 2, 3];
    let c = random(nodes.len(), M, 1);
    let run = |updater: &MemoryUpdater| {
        let mut state = MemoryState::default();
        updater.update(&pass(true), &store, &nodes, &mut state).unwrap();
        (dot(state.rows.view(), c.view()), state)
    };
    let mut state = run(&updater).1;
    updater.visit_mut(&mut |p| p.zero_grad(&Reference));
    updater.backward(&pass(true), &mut state, c.view());
    let mut grads = Vec::new();
    updater.visit(&mut |p| grads.push((p.name, p.grad.clone())));
    let mut checked = Checked::default();
    for (n, (name, grad)) in grads.iter().enumerate() {
        // differences of up to 50 s make steps in the weights of the encoding too coarse
        if *name != "time.weight" {
            checked +=
                check(name, grad.view(), |i, by| run(&moved(&updater, n, i, by, MemoryUpdater::visit_mut)).0);
        }
    }
    checked.assert_all_but_one_in(20, "memory");
    let backend = Cpu::default();
    let cpu = Pass { backend: &backend, training: true, key: 0 };
    let mut other = MemoryState::default();
    updater.update(&cpu, &store, &nodes, &mut other).unwrap();
    assert!(distance(other.rows.view(), state.rows.view()) < 1e-5);
}

#[test]
fn plain_cells_follow_their_formula() {
    let cell = RecurrentCell::new(CellKind::Rnn, 5, M, 3);
    let (x, h) = (random(6, 5, 1), random(6, M, 2));
    let mut out = Matrix::default();
    cell.forward(&pass(true), cell_input(&x, &h, false), &mut CellState::default(), &mut out);
    let mut params = HashMap::new();
    cell.visit(&mut |p| {
        params.insert(p.name, p.value.clone());
    });
    let product = |x: &Matrix, of: &str, r: usize, c: usize| {
        let (x, w) = (x.view(), params[&format!("rnn.{of}.weight")[..]].view());
        (0..x.num_cols()).map(|i| x.host()[r * x.num_cols() + i] * w.host()[i * M + c]).sum::<f32>()
            + params[&format!("rnn.{of}.bias")[..]].view().host()[c]
    };
    for (i, found) in out.view().host().iter().enumerate() {
        let (r, c) = (i / M, i % M);
        let expected = (product(&x, "input", r, c) + product(&h, "hidden", r, c)).tanh();
        assert!((found - expected).abs() < 1e-5, "{found}, {expected}");
    }
}

#[test]
fn projections_match_finite_differences() {
    let differences = [0.0, 1.5, -2.0, 0.25];
    for dropout in [0.0, 0.3] {
        let mut projection = TimeProjection::new(M, dropout, 5);
        let (mut x, c) = (random(4, M, 1), random(4, M, 2));
        let run = |projection: &TimeProjection, x: &Matrix| {
            let mut out = Matrix::default();
            projection.forward(&pass(true), x.view(), &differences, &mut out);
            (dot(out.view(), c.view()), out)
        };
        let out = run(&projection, &x).1;
        let zeros = out.view().host().iter().filter(|x| **x == 0.0).count();
        assert_eq!(zeros > 0, dropout > 0.0, "{zeros} zeros");
        let mut x_grad = Matrix::default();
        projection.backward(&pass(true), x.view(), &differences, c.view(), &mut x_grad);
        let mut grads = Vec::new();
        projection.visit(&mut |p| grads.push((p.name, p.grad.clone())));
        let mut checked = Checked::default();
        for (n, (name, grad)) in grads.iter().enumerate() {
            checked += check(name, grad.view(), |i, by| {
                run(&moved(&projection, n, i, by, TimeProjection::visit_mut), &x).0
            });
        }
        checked += check("x", x_grad.view(), |i, by| {
            x.view_mut().host()[i] += by;
            let value = run(&projection, &x).0;
            x.view_mut().host()[i] -= by;
            value
        });
        checked.assert_all_but_one_in(20, "projection");
    }
}

#[test]
fn wrong_uses_are_rejected_with_the_reason() {
    let updater = MemoryUpdater::new(CellKind::Gru, M, K, T, 5);
    let mut store = NodeMemory::new(3, M, K, 0);
    let mut state = MemoryState::default();
    let error = updater.update(&pass(true), &store, &[3], &mut state).unwrap_err().to_string();
    assert!(error.contains("node 3 of 3"), "{error}");
    updater.update(&pass(true), &store, &[1], &mut state).unwrap();
    assert!(store.persist(&state, &[1]).unwrap_err().to_string().contains("position 1 of an update of 1"));
    let edges = random(1, K + 1, 1);
    let events = MemoryEvents { source: &[0], destination: &[1], time: &[5], edges: edges.view() };
    let error = store.push(&events).unwrap_err().to_string();
    assert!(
        error.contains("1 rows of 3 features; pass one of each for every event, with 2 features"),
        "{error}"
    );
    let error = store.restore_tables([&[0.0], &[]], &[]).unwrap_err().to_string();
    assert!(error.contains("1 and 0 values with 0 bytes of times are not those of 3 nodes"), "{error}");
    assert!(store.restore(&[1, 2]).unwrap_err().to_string().contains("2 bytes are not a saved memory of 3"));
}

#[test]
fn attention_matches_finite_differences_and_forgets_nothing_without_events() {
    use graphmill_nn::temporal::{TemporalAttention, TemporalAttentionConfig, TemporalInput, TemporalState};
    let config = TemporalAttentionConfig {
        in_dim: 5,
        edge_dim: K,
        time_dim: T,
        width: 4,
        heads: 2,
        out_dim: 3,
        dropout: 0.0,
        key: 3,
    };
    // more destinations than edges, and more edges than destinations
    // destinations share own rows in a global block
    for (dst, src, dropout, shared) in
        [(2, 4, 0.0, false), (8, 12, 0.0, false), (8, 12, 0.3, false), (8, 12, 0.3, true)]
    {
        let mut block = support::random_block(dst, src, false, 4);
        block.dst_ids = shared.then(|| (0..dst as u32).map(|v| v * v % 5).collect());
        let edges = random(block.num_edges(), K, 2);
        let differences: Vec<f64> = (0..block.num_edges()).map(|e| e as f64 * 0.7).collect();
        let mut attention = TemporalAttention::new(TemporalAttentionConfig { dropout, ..config }).unwrap();
        let (mut x, c) = (random(src, 5, 1), random(dst, 3, 6));
        let run = |attention: &TemporalAttention, x: &Matrix, state: &mut TemporalState| {
            let mut out = Matrix::default();
            let (x, edges) = (x.view(), edges.view());
            let input = TemporalInput { block: &block, x, edges, differences: &differences };
            attention.forward(&pass(true), &input, state, &mut out);
            out
        };
        let (mut state, mut x_grad) = (TemporalState::default(), Matrix::default());
        let out = run(&attention, &x, &mut state);
        let input =
            TemporalInput { block: &block, x: x.view(), edges: edges.view(), differences: &differences };
        attention.visit_mut(&mut |p| p.zero_grad(&Reference));
        attention.backward(&pass(true), &input, &mut state, [out.view(), c.view()], &mut x_grad);
        let value = |attention: &TemporalAttention, x: &Matrix| {
            dot(run(attention, x, &mut TemporalState::default()).view(), c.view())
        };
        let mut grads = Vec::new();
        attention.visit(&mut |p| grads.push((p.name, p.grad.clone())));
        let mut checked = Checked::default();
        for (n, (name, grad)) in grads.iter().enumerate() {
            checked += check(name, grad.view(), |i, by| {
                value(&moved(&attention, n, i, by, TemporalAttention::visit_mut), &x)
            });
        }
        checked += check("x", x_grad.view(), |i, by| {
            x.view_mut().host()[i] += by;
            let value = value(&attention, &x);
            x.view_mut().host()[i] -= by;
            value
        });
        checked.assert_all_but_one_in(8, "temporal attention");
        let backend = Cpu::default();
        let cpu = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let pass = Pass { backend: &backend, training: true, key: 42 };
                let (mut attention, mut state) = (attention.clone(), TemporalState::default());
                let (mut out, mut x_grad) = (Matrix::default(), Matrix::default());
                let (x, edges) = (x.view(), edges.view());
                let input = TemporalInput { block: &block, x, edges, differences: &differences };
                attention.forward(&pass, &input, &mut state, &mut out);
                attention.backward(&pass, &input, &mut state, [out.view(), c.view()], &mut x_grad);
                (out, x_grad)
            })
        };
        let (one, three) = (cpu(1), cpu(3));
        assert_eq!(one.0.view().host(), three.0.view().host());
        assert_eq!(one.1.view().host(), three.1.view().host());
        assert!(distance(one.0.view(), out.view()) < 1e-5 && distance(one.1.view(), x_grad.view()) < 1e-4);
    }
    assert!(TemporalAttention::new(TemporalAttentionConfig { heads: 3, ..config }).is_err());
}
