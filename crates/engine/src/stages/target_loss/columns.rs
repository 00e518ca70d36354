//! Loss of several columns of classes: the sum over the columns of the loss of each on its own
//! logits. A row without a class in a column has no part in the loss of that column.

use graphmill_core::{ClassColumn, Labels, NodeId, memory};
use graphmill_nn::{Backend, Matrix, View, ViewMut};
use rayon::prelude::*;

use super::{Learned, MIN_TASK_LEN, SeedLabels, TargetLoss, on_processor, read_weights};
use crate::{Error, Result, TrainConfig};

/// Classes, logits and gradients of one column.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnScratch {
    labels: SeedLabels,
    logits: Matrix,
    grad: Matrix,
}

/// Losses of the columns by their classes of all nodes.
///
/// # Errors
/// As for [`TargetLoss::new`], or a column has no class on the training nodes.
pub(super) fn losses(
    config: &TrainConfig,
    data: &Learned,
    class: &[i32],
    columns: &[ClassColumn],
) -> Result<Vec<TargetLoss>> {
    on_processor(config, "the loss of several columns of classes")?;
    let mut own = config.clone();
    let mut given = Vec::new();
    if !matches!(config.class_weights.as_str(), "none" | "balanced") {
        given = read_weights(&config.class_weights, data.labels.classes())?;
        own.class_weights = "none".into();
    }
    let of = |(k, range): (usize, std::ops::Range<usize>)| {
        let ClassColumn { name, classes } = &columns[k];
        let class: Vec<i32> = class.par_chunks_exact(columns.len().max(1)).map(|row| row[k]).collect();
        let missing = data.train.iter().filter(|&&v| class[v as usize] < 0).count();
        if missing == data.train.len() && missing > 0 {
            let message = format!(
                "no training node has a class in the column '{name}'; import without it, or with another \
                 --split"
            );
            return Err(Error::dataset(data.name, message));
        }
        let labels = Labels::Single { class: class.into(), classes: *classes };
        let mut loss = TargetLoss::of_classes(&own, data, &labels)?;
        loss.missing = missing as f64 / data.train.len().max(1) as f64;
        if let Some(weights) = given.get(range) {
            loss.class_weight = weights.to_vec();
        }
        Ok(loss)
    };
    ClassColumn::ranges(columns).enumerate().map(of).collect()
}

/// Gathers the classes of `nodes` in each of `count` columns.
pub(super) fn gather(scratch: &mut Vec<ColumnScratch>, class: &[i32], count: usize, nodes: &[NodeId]) {
    scratch.resize_with(count, ColumnScratch::default);
    for (k, of) in scratch.iter_mut().enumerate() {
        let class_of = |&v: &NodeId| class[v as usize * count + k];
        of.labels.class.clear();
        memory::demand(&mut of.labels.class, nodes.len());
        of.labels.class.par_extend(nodes.par_iter().with_min_len(MIN_TASK_LEN).map(class_of));
    }
}

/// Sum of the `losses` of the columns over the rows of `logits` (equal weights for a column without
/// one), and its gradient. Costs a copy of both.
pub(super) fn run(
    losses: &[TargetLoss],
    columns: &[ClassColumn],
    scratch: &mut [ColumnScratch],
    backend: &dyn Backend,
    logits: View,
    weight: &[f32],
    grad: ViewMut,
) -> f64 {
    let (rows, width, plain) = (logits.num_rows(), logits.num_cols(), TargetLoss::default());
    let (from, to) = (logits.host(), grad.host());
    let mut sum = 0.0;
    for ((k, range), scratch) in ClassColumn::ranges(columns).enumerate().zip(scratch) {
        let ColumnScratch { labels, logits, grad } = scratch;
        logits.resize(rows, range.len());
        grad.resize(rows, range.len());
        let own = logits.view_mut().host().par_chunks_exact_mut(range.len()).with_min_len(MIN_TASK_LEN);
        own.zip(from.par_chunks_exact(width)).for_each(|(own, row)| own.copy_from_slice(&row[range.clone()]));
        let loss = losses.get(k).unwrap_or(&plain);
        sum += loss.of_class(backend, labels, logits.view(), weight, grad.view_mut());
        let own = grad.view().host().par_chunks_exact(range.len()).with_min_len(MIN_TASK_LEN);
        own.zip(to.par_chunks_exact_mut(width))
            .for_each(|(own, row)| row[range.clone()].copy_from_slice(own));
    }
    sum
}

#[cfg(test)]
mod tests {
    use graphmill_nn::backend::Cpu;
    use proptest::prelude::*;

    use super::*;

    /// Loss of rows with these logits and classes, and its gradient; all rows train.
    fn of(config: &TrainConfig, logits: &[f32], labels: &Labels) -> (f64, Vec<f32>) {
        let rows = logits.len() / labels.classes();
        let nodes: Vec<NodeId> = (0..rows as NodeId).collect();
        let data = Learned { name: "data", labels, train: &nodes };
        let loss = TargetLoss::of_targets(config, &data).unwrap();
        let logits = Matrix::from_slice(rows, labels.classes(), logits);
        let (mut of_rows, mut grad) = (SeedLabels::default(), Matrix::zeros(rows, labels.classes()));
        loss.gather(labels, &nodes, &mut of_rows);
        let value = loss.run(&Cpu::default(), labels, &mut of_rows, logits.view(), &[], grad.view_mut());
        (value, grad.view().host().to_vec())
    }

    fn columns(class: &[i32], classes: &[usize]) -> Labels {
        let columns = classes.iter().enumerate();
        let columns = columns.map(|(k, &classes)| ClassColumn { name: k.to_string(), classes });
        Labels::Columns { class: class.to_vec().into(), columns: columns.collect() }
    }

    fn configs() -> [TrainConfig; 4] {
        let set = |class_weights: &str, focal| TrainConfig {
            class_weights: class_weights.into(),
            focal,
            ..TrainConfig::default()
        };
        [set("none", 0.0), set("balanced", 0.0), set("0.5,3,1", 0.0), set("none", 2.0)]
    }

    /// The column `k` of `width` columns.
    fn one<T: Copy>(values: &[T], width: usize, columns: std::ops::Range<usize>) -> Vec<T> {
        values.chunks_exact(width).flat_map(|row| row[columns.clone()].to_vec()).collect()
    }

    proptest! {
        #[test]
        fn one_column_has_the_bits_of_one_class_per_node(
            logits in prop::collection::vec(-4.0f32..4.0, 12), class in prop::collection::vec(0i32..3, 4),
        ) {
            for config in configs() {
                let single = Labels::Single { class: class.clone().into(), classes: 3 };
                let (loss, grad) = of(&config, &logits, &single);
                let (found, found_grad) = of(&config, &logits, &columns(&class, &[3]));
                prop_assert_eq!(loss.to_bits(), found.to_bits());
                let bits = |of: &[f32]| of.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                prop_assert_eq!(bits(&grad), bits(&found_grad));
            }
        }

        #[test]
        fn losses_of_columns_are_means_over_their_rows_and_add_up(
            logits in prop::collection::vec(-4.0f32..4.0, 20),
            mut class in prop::collection::vec((-1i32..2, -1i32..3), 4),
        ) {
            // a class in every column
            class[1] = (1, 2);
            let class: Vec<i32> = class.iter().flat_map(|&(a, b)| [a, b]).collect();
            let labels = columns(&class, &[2, 3]);
            for weights in ["none", "balanced", "0.5,3,1,2,0.25"] {
                let config = TrainConfig { class_weights: weights.into(), ..TrainConfig::default() };
                let (loss, grad) = of(&config, &logits, &labels);
                let (mut sum, mut slices) = (0.0, [Vec::new(), Vec::new()]);
                for (k, range) in [(0, 0..2), (1, 2..5)] {
                    // the rows with a class alone, as of a run on one column
                    let own = one(&class, 2, k..k + 1);
                    let rows: Vec<usize> = (0..4).filter(|&r| own[r] >= 0).collect();
                    let known: Vec<f32> =
                        rows.iter().flat_map(|&r| logits[r * 5..][range.clone()].to_vec()).collect();
                    let weights = match weights {
                        "none" | "balanced" => weights.to_string(),
                        list => list.split(',').collect::<Vec<_>>()[range.clone()].join(","),
                    };
                    let config = TrainConfig { class_weights: weights, ..TrainConfig::default() };
                    let class: Vec<i32> = rows.iter().map(|&r| own[r]).collect();
                    let single = Labels::Single { class: class.into(), classes: range.len() };
                    let (loss, of_known) = of(&config, &known, &single);
                    sum += loss;
                    slices[k] = vec![0.0; 4 * range.len()];
                    for (i, &r) in rows.iter().enumerate() {
                        let to = &mut slices[k][r * range.len()..][..range.len()];
                        to.copy_from_slice(&of_known[i * range.len()..][..range.len()]);
                    }
                }
                prop_assert!((loss - sum).abs() < 1e-5 * sum.abs().max(1.0), "{loss} {sum}");
                for (k, range) in [(0, 0..2), (1, 2..5)] {
                    for (found, expected) in one(&grad, 5, range.clone()).iter().zip(&slices[k]) {
                        prop_assert!((found - expected).abs() < 1e-5, "{found} {expected}");
                    }
                }
            }
        }

        #[test]
        fn gradients_of_columns_match_differences(
            logits in prop::collection::vec(-3.0f32..3.0, 10), class in (-1i32..2, -1i32..3),
        ) {
            const STEP: f32 = 1e-2;
            let labels = columns(&[0, 2, class.0, class.1], &[2, 3]);
            for focal in [0.0, 1.5] {
                let config = TrainConfig { focal, ..TrainConfig::default() };
                let (_, grad) = of(&config, &logits, &labels);
                for i in 0..10 {
                    let at = |step: f32| {
                        let mut moved = logits.clone();
                        moved[i] += step;
                        of(&config, &moved, &labels).0
                    };
                    let difference = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
                    let found = f64::from(grad[i]);
                    prop_assert!((found - difference).abs() < 5e-3, "{found} {difference}");
                }
            }
        }
    }

    #[test]
    fn columns_without_training_classes_and_wrong_weights_are_refused() {
        let refused = |labels: &Labels, config: &TrainConfig| {
            let data = Learned { name: "data", labels, train: &[0, 1] };
            TargetLoss::of_targets(config, &data).unwrap_err().to_string()
        };
        let (config, labels) = (TrainConfig::default(), columns(&[0, -1, 1, -1, 0, 1], &[2, 2]));
        let error = refused(&labels, &config);
        assert!(error.contains("no training node has a class in the column '1'"), "{error}");
        let weights = TrainConfig { class_weights: "1,2".into(), ..config.clone() };
        let error = refused(&columns(&[0, 1, 1, 0], &[2, 2]), &weights);
        assert!(error.contains("2 weights for 4 classes"), "{error}");
        let values = TrainConfig { loss: "mse".into(), ..config };
        let error = refused(&columns(&[0, 1, 1, 0], &[2, 2]), &values);
        assert!(error.contains("--loss mse: the targets of data are classes"), "{error}");
    }
}
