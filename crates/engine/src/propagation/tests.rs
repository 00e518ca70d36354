use graphmill_core::{EdgeOptions, Graph, build, progress::Quiet};
use graphmill_nn::backend::{Cpu, LossOps};

use super::*;

/// Two paths of four nodes, whose first nodes are training nodes of different classes.
fn paths() -> Graph {
    let (src, dst) = ([0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]);
    build(8, &src, &dst, EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap()
}

fn one_class() -> Labels {
    Labels::Single { class: vec![0, -1, -1, -1, 1, -1, -1, -1].into(), classes: 2 }
}

fn known<'k>(graph: &'k Graph, labels: &'k Labels) -> Known<'k> {
    let paths = Paths::of_graph(graph);
    Known { paths, labels, outputs: labels.classes(), train: &[0, 4], watch: &Quiet }
}

/// Dense reference of the recurrence.
fn dense(graph: &Graph, start: &[f32], steps: usize, alpha: f32) -> Vec<f32> {
    let (n, width) = (graph.num_nodes(), start.len() / graph.num_nodes());
    let degree = |v: usize| graph.in_neighbors(v as NodeId).len() as f32;
    let mut now = start.to_vec();
    for _ in 0..steps {
        let before = now.clone();
        for v in 0..n {
            for c in 0..width {
                let near = graph.in_neighbors(v as NodeId).iter().map(|&u| u as usize);
                let sum: f32 = near.map(|u| before[u * width + c] / (degree(v) * degree(u)).sqrt()).sum();
                now[v * width + c] = alpha * sum + (1.0 - alpha) * start[v * width + c];
            }
        }
    }
    now
}

#[test]
fn labels_spread_along_edges_as_in_the_dense_recurrence() {
    let graph = paths();
    let options = PropagationOptions { propagation_steps: 7, ..PropagationOptions::default() };
    let rows = labels(&known(&graph, &one_class()), &options).unwrap();
    let mut start = vec![0.0; 16];
    (start[0], start[9]) = (1.0, 1.0);
    let expected = dense(&graph, &start, 7, 0.8);
    for (got, want) in rows.view().host().iter().zip(&expected) {
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
    let classes = rows.view().host().chunks(2).map(|row| usize::from(row[1] > row[0]));
    assert_eq!(classes.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn a_model_that_errs_is_corrected() {
    let graph = paths();
    let mut wrong = Matrix::zeros(8, 2);
    // the model takes every node for the other class, though not by much
    let rows = wrong.view_mut().host().chunks_mut(2).enumerate();
    rows.for_each(|(v, row)| row.copy_from_slice(if v < 4 { &[0.4, 0.6] } else { &[0.6, 0.4] }));
    let rows =
        correct_and_smooth(&known(&graph, &one_class()), &PropagationOptions::default(), wrong).unwrap();
    let classes = rows.view().host().chunks(2).map(|row| usize::from(row[1] > row[0]));
    assert_eq!(classes.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn each_column_of_classes_has_the_bits_of_one_class_per_node() {
    let graph = paths();
    // the second column has no class for a training node, and one of a node that does not train
    let class = vec![0, 2, -1, -1, -1, 0, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1];
    let columns = [("a", 2), ("b", 3)];
    let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes }).to_vec();
    let both = Labels::Columns { class: class.into(), columns };
    let second = Labels::Single { class: vec![2, -1, 0, -1, -1, -1, -1, -1].into(), classes: 3 };
    let options = PropagationOptions { propagation_steps: 4, ..PropagationOptions::default() };
    let shares: Vec<f32> = (0..40).map(|i| [0.3, 0.7, 0.2, 0.5, 0.3][i % 5]).collect();
    let part = |range: std::ops::Range<usize>| -> Vec<f32> {
        shares.chunks(5).flat_map(|row| row[range.clone()].to_vec()).collect()
    };
    for entry in &TABLE {
        let of = |labels: &Labels, train: &[NodeId], of_model: Vec<f32>| {
            let rows = if entry.make.reads_model { 8 } else { 0 };
            let of_model = Matrix::from_slice(rows, labels.classes(), &of_model[..rows * labels.classes()]);
            let known = Known { train, ..known(&graph, labels) };
            let rows = (entry.make.run)(&known, &options, of_model).unwrap();
            rows.view().host().to_vec()
        };
        let found = of(&both, &[0, 4], shares.clone());
        let alone = [of(&one_class(), &[0, 4], part(0..2)), of(&second, &[0], part(2..5))];
        let expected: Vec<f32> =
            alone[0].chunks(2).zip(alone[1].chunks(3)).flat_map(|(a, b)| [a, b].concat()).collect();
        assert_eq!(found, expected, "{}", entry.name);
    }
}

#[test]
fn values_are_means_of_training_values_weighted_by_the_dense_recurrence() {
    let graph = paths();
    let options = PropagationOptions { propagation_steps: 9, ..PropagationOptions::default() };
    // two targets, of which one is missing at node 3
    let mut values = vec![f32::NAN; 16];
    for (at, value) in [(0, 1000.0), (1, 5.0), (6, -200.0), (8, 7.0), (9, 1.5)] {
        values[at] = value;
    }
    let labels = Labels::Values { values: values.clone().into(), width: 2 };
    let known = Known { train: &[0, 3, 4], ..known(&graph, &labels) };
    let rows = super::labels(&known, &options).unwrap();
    // weights of the training nodes of each column
    let weight = |nodes: &[(usize, f32)]| {
        let mut start = vec![0.0; 8];
        nodes.iter().for_each(|&(v, x)| start[v] = x);
        dense(&graph, &start, 9, 0.8)
    };
    for (c, nodes) in [(0, &[0usize, 3, 4][..]), (1, &[0, 4])] {
        let ones: Vec<(usize, f32)> = nodes.iter().map(|&v| (v, 1.0)).collect();
        let own: Vec<(usize, f32)> = nodes.iter().map(|&v| (v, values[v * 2 + c])).collect();
        let (sums, weights) = (weight(&own), weight(&ones));
        for v in 0..8 {
            let (found, expected) = (rows.view().host()[v * 2 + c], sums[v] / weights[v]);
            assert!((found - expected).abs() < 1e-3, "{v} {c}: {found} {expected}");
        }
    }
    assert_eq!(outputs(&labels, rows.clone()).view().host(), rows.view().host(), "values are no logits");
}

#[test]
fn sets_predict_the_labels_that_most_training_nodes_near_by_have() {
    let graph = paths();
    let mut member = vec![0; 24];
    // node 0 has the first two labels, node 4 the last
    (member[0], member[1], member[4 * 3 + 2]) = (1, 1, 1);
    let labels = Labels::Multi { member: member.into(), classes: 3 };
    let rows = outputs(&labels, super::labels(&known(&graph, &labels), &Default::default()).unwrap());
    for (v, row) in rows.view().host().chunks(3).enumerate() {
        let found = [row[0] > 0.0, row[1] > 0.0, row[2] > 0.0];
        assert_eq!(found, if v < 4 { [true, true, false] } else { [false, false, true] }, "{v}");
        assert!(row.iter().all(|x| x.is_finite()), "{row:?}");
    }
}

#[test]
fn nodes_that_no_training_node_reaches_have_the_mean_of_the_training_nodes() {
    let graph = build(3, &[0], &[1], EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap();
    let labels = Labels::Values { values: vec![4.0, 8.0, f32::NAN].into(), width: 1 };
    let known = Known { train: &[0, 1], ..known(&graph, &labels) };
    let rows = super::labels(&known, &PropagationOptions::default()).unwrap();
    assert_eq!(rows.view().host()[2], 6.0);
    // the model's value stays where no error arrives
    let of_model = Matrix::from_slice(3, 1, &[3.0, 7.0, 5.5]);
    let rows = correct_and_smooth(&known, &PropagationOptions::default(), of_model).unwrap();
    assert_eq!(rows.view().host()[2], 5.5);
}

#[test]
fn values_and_sets_are_corrected_by_the_mean_errors_near_by_and_smoothed() {
    let graph = paths();
    let (steps, options) = (50, PropagationOptions::default());
    // the errors of the model are 2 on the first path, and -1 on the second
    let truth: Vec<f32> = (0..8).map(|v| v as f32).collect();
    let labels = Labels::Values { values: truth.clone().into(), width: 1 };
    let off = |v: usize| if v < 4 { 2.0 } else { -1.0 };
    let of_model: Vec<f32> = truth.iter().enumerate().map(|(v, x)| x - off(v)).collect();
    let rows = correct_and_smooth(&known(&graph, &labels), &options, Matrix::from_slice(8, 1, &of_model));
    // exact values are smoothed by weights that sum to 1
    let (sums, weights) = (dense(&graph, &truth, steps, 0.8), dense(&graph, &[1.0; 8], steps, 0.8));
    for (v, found) in rows.unwrap().view().host().iter().enumerate() {
        let expected = sums[v] / weights[v];
        assert!((found - expected).abs() < 1e-4, "{v}: {found} {expected}");
    }
    let member: Vec<u8> = (0..16).map(|i| u8::from((i % 2 == 0) == (i < 8))).collect();
    let labels = Labels::Multi { member: member.clone().into(), classes: 2 };
    let mut wrong = Matrix::zeros(8, 2);
    let logits = wrong.view_mut().host().iter_mut().zip(&member);
    logits.for_each(|(x, &is)| *x = if is == 1 { -0.4 } else { 0.4 });
    Cpu::default().sigmoid(wrong.view_mut());
    let rows = correct_and_smooth(&known(&graph, &labels), &options, wrong).unwrap();
    let found: Vec<u8> = outputs(&labels, rows).view().host().iter().map(|&x| (x > 0.0).into()).collect();
    assert_eq!(found, member);
}

#[test]
fn results_do_not_depend_on_threads() {
    let graph = paths();
    let values =
        Labels::Values { values: (0..8).map(|v| v as f32 / 3.0).collect::<Vec<_>>().into(), width: 1 };
    for targets in [one_class(), values] {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let run = || labels(&known(&graph, &targets), &PropagationOptions::default()).unwrap();
            pool.install(run).view().host().to_vec()
        };
        assert_eq!(run(1), run(3));
    }
}

#[test]
fn impossible_options_are_refused() {
    let options = PropagationOptions { propagation_alpha: 1.5, ..PropagationOptions::default() };
    assert!(options.check().is_err());
    let options = PropagationOptions { propagation_steps: 0, ..PropagationOptions::default() };
    assert!(options.check().is_err());
}
