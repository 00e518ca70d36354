//! Loss of the targets of a run on nodes: cross-entropy of classes, with class weights or focal,
//! the sum of these for several columns of classes, or a loss of real values.
//!
//! # Algorithm
//!
//! The focal loss of a row is `-(1 - p)^gamma log p`, with `p` the probability of its class. Class
//! weights multiply the losses of the rows of their class; `balanced` is `n / (C n_c)`, with `n_c`
//! of the `n` training nodes in class `c`. With several labels per node, each pair of a row and a
//! label has such a loss, and weights multiply those of the labels that a row has (`sets.rs`). A
//! row has a loss for each value that it has; the loss of
//! values is the mean over the rows and targets, divided by the share of the values that the
//! training nodes have. The share is of all training nodes, so that losses of parts of a batch add
//! up. The loss of a column of classes is the mean over the rows that have a class in it, in the
//! same way.
//!
//! # Source
//!
//! Lin et al., *Focal Loss for Dense Object Detection*, ICCV 2017, equation 4. King and Zeng,
//! *Logistic Regression in Rare Events Data*, Political Analysis 9, 2001 (`balanced`).
//!
//! # Cost
//!
//! O(B C) for a batch of B rows.

mod columns;
mod sets;

use std::path::Path;

use columns::ColumnScratch;
use graphmill_core::{Labels, NodeId, error::nearest, memory};
use graphmill_data::{Dataset, npy};
use graphmill_nn::{
    Backend, View, ViewMut,
    backend::ops::{SigmoidCrossEntropy, SoftmaxCrossEntropy},
    regression::{self, TargetScale, TargetTransform, ValueLoss},
};
use rayon::prelude::*;

use crate::{
    Error, Result, TrainConfig,
    config::link_task::{has_default_loss, is_link},
};

/// Name of the loss of classes.
const CROSS_ENTROPY: &str = "cross-entropy";

/// Words for the weights of the classes; other values are lists and files.
const WEIGHT_WORDS: [&str; 2] = ["none", "balanced"];

/// Least number of nodes whose labels a task gathers.
const MIN_TASK_LEN: usize = 1 << 12;

/// Labels of one batch's seeds.
#[derive(Clone, Debug, Default)]
pub struct SeedLabels {
    /// Class of each seed (single-label).
    pub class: Vec<i32>,
    /// Zeros and ones, `B x C` (multi-label).
    pub member: Vec<u8>,
    /// Values, `B x C`, NaN if unknown.
    pub value: Vec<f32>,
    /// Weight of each seed by its class; scratch memory of the loss.
    pub(crate) weight: Vec<f32>,
    /// Classes of each column, with scratch memory of their losses.
    pub(crate) columns: Vec<ColumnScratch>,
}

impl SeedLabels {
    /// Gathers the labels of `nodes`.
    pub fn gather(&mut self, labels: &Labels, nodes: &[NodeId]) {
        self.class.clear();
        self.member.clear();
        self.value.clear();
        match labels {
            Labels::Single { class, .. } => {
                memory::demand(&mut self.class, nodes.len());
                self.class
                    .par_extend(nodes.par_iter().with_min_len(MIN_TASK_LEN).map(|&v| class[v as usize]));
            }
            Labels::Multi { member, classes } => {
                let classes = *classes;
                memory::demand_len(&mut self.member, nodes.len() * classes, 0);
                let rows = self.member.par_chunks_exact_mut(classes.max(1)).with_min_len(MIN_TASK_LEN);
                rows.zip(nodes).for_each(|(row, &v)| {
                    row.copy_from_slice(&member[v as usize * classes..(v as usize + 1) * classes]);
                });
            }
            Labels::Columns { class, columns } => {
                columns::gather(&mut self.columns, class, columns.len(), nodes);
            }
            Labels::Values { values, width } => {
                memory::demand_len(&mut self.value, nodes.len() * width, 0.0);
                let rows = self.value.par_chunks_exact_mut((*width).max(1)).with_min_len(MIN_TASK_LEN);
                rows.zip(nodes).for_each(|(row, &v)| {
                    row.copy_from_slice(&values[v as usize * width..(v as usize + 1) * width]);
                });
            }
        }
    }
}

/// Targets that a run learns.
pub(crate) struct Learned<'a> {
    /// Name of the dataset.
    pub(crate) name: &'a str,
    /// Targets of all nodes.
    pub(crate) labels: &'a Labels,
    /// Training nodes.
    pub(crate) train: &'a [NodeId],
}

/// Loss of the targets of nodes. The default is cross-entropy with equal weights, and the squared
/// error of values that are not standardised.
#[derive(Clone, Debug, Default)]
pub struct TargetLoss {
    /// Weight of each class, or of each label of a set; empty for equal weights.
    class_weight: Vec<f32>,
    /// Exponent of the focal loss; 0 for cross-entropy.
    focal: f64,
    /// Loss of real values.
    value: Option<ValueLoss>,
    /// Scale of real values.
    scale: TargetScale,
    /// Share of the real values, or of the classes of a column, that training nodes do not have;
    /// below 1.
    missing: f64,
    /// Losses of the columns of classes.
    columns: Vec<TargetLoss>,
}

impl TargetLoss {
    /// Loss of a run with this configuration on the targets of `data`.
    ///
    /// # Errors
    /// The loss does not fit the targets, the class weights cannot be read, or the devices do not
    /// compute the loss.
    pub fn new(config: &TrainConfig, data: &Dataset) -> Result<Self> {
        if is_link(config) {
            return Ok(Self::default());
        }
        Self::of_targets(
            config,
            &Learned { name: &data.name, labels: &data.labels, train: &data.split.train },
        )
    }

    /// Loss of a run on these targets.
    ///
    /// # Errors
    /// As for [`TargetLoss::new`].
    pub(crate) fn of_targets(config: &TrainConfig, data: &Learned) -> Result<Self> {
        match data.labels {
            Labels::Values { values, width } => {
                let scale = TargetScale::fit(config.target_transform, values, *width, data.train);
                let loss = Self::of_values(config, data, scale)?;
                Ok(Self { missing: missing_share(values, *width, data.train), ..loss })
            }
            Labels::Columns { class, columns } => {
                Ok(Self { columns: columns::losses(config, data, class, columns)?, ..Self::default() })
            }
            labels => Self::of_classes(config, data, labels),
        }
    }

    fn of_values(config: &TrainConfig, data: &Learned, scale: TargetScale) -> Result<Self> {
        for (flag, is_set) in
            [("class-weights", config.class_weights != "none"), ("focal", config.focal > 0.0)]
        {
            if is_set {
                let message = format!("--{flag}: the targets of {} are values; leave it out", data.name);
                return Err(Error::usage(message));
            }
        }
        on_processor(config, "the loss of values")?;
        let name = if has_default_loss(config) { "mse" } else { &config.loss };
        let entry = regression::TABLE.get(name).ok_or_else(|| {
            let known = regression::TABLE.names();
            Error::usage(format!("--loss {name}: the targets of {} are values; use {known}", data.name))
        })?;
        let parameter = if name == "huber" { config.huber_delta } else { config.quantile };
        Ok(Self { value: Some(ValueLoss { point: entry.make, parameter }), scale, ..Self::default() })
    }

    fn of_classes(config: &TrainConfig, data: &Learned, labels: &Labels) -> Result<Self> {
        if !has_default_loss(config) && config.loss != CROSS_ENTROPY {
            return Err(Error::usage(format!(
                "--loss {}: the targets of {} are classes; use {CROSS_ENTROPY}, or leave it out",
                config.loss, data.name
            )));
        }
        check_no_values(config, data.name)?;
        let has_weights = config.class_weights != "none";
        if config.focal > 0.0 {
            on_processor(config, "the focal loss")?;
        }
        if has_weights && labels.is_multi() {
            on_processor(config, "the loss of labels with weights")?;
        }
        let class_weight = match (config.class_weights.as_str(), labels) {
            ("none", _) => Vec::new(),
            ("balanced", Labels::Multi { member, classes }) => sets::balanced(member, *classes, data.train),
            ("balanced", Labels::Single { class, classes }) => balanced(class, *classes, data.train),
            (given, labels) => read_weights(given, labels.classes())?,
        };
        Ok(Self { class_weight, focal: config.focal, ..Self::default() })
    }

    /// Scale of the targets; `None` for classes.
    pub fn scale(&self) -> Option<&TargetScale> {
        self.value.as_ref().map(|_| &self.scale)
    }

    /// Gathers the targets of `nodes`; values are transformed.
    pub(crate) fn gather(&self, labels: &Labels, nodes: &[NodeId], of_rows: &mut SeedLabels) {
        of_rows.gather(labels, nodes);
        self.scale.apply(&mut of_rows.value);
    }

    /// Mean loss over the rows of `logits` and its gradient. `weight` has a factor for each row;
    /// empty for equal rows.
    pub(crate) fn run(
        &self,
        backend: &dyn Backend,
        labels: &Labels,
        of_rows: &mut SeedLabels,
        logits: View,
        weight: &[f32],
        grad: ViewMut,
    ) -> f64 {
        let mean = 1.0 / logits.num_rows().max(1) as f32;
        match labels {
            Labels::Values { width, .. } => {
                let squared = || ValueLoss { point: |error, _| (error * error, 2.0 * error), parameter: 0.0 };
                let scale = f64::from(mean) / *width as f64 / (1.0 - self.missing);
                let loss = self.value.unwrap_or_else(squared);
                loss.run(logits.host(), &of_rows.value, *width, weight, scale, grad.host())
            }
            Labels::Multi { classes, .. } => {
                let (target, scale) = (&of_rows.member, mean / *classes as f32);
                if self.focal > 0.0 || !self.class_weight.is_empty() {
                    let loss = sets::SetLoss { label_weight: &self.class_weight, focal: self.focal };
                    return loss.run(logits, target, weight, f64::from(scale), grad.host());
                }
                SigmoidCrossEntropy { logits, target, weight, scale, grad }.run(backend)
            }
            Labels::Single { .. } => self.of_class(backend, of_rows, logits, weight, grad),
            Labels::Columns { columns, .. } => {
                let scratch = &mut of_rows.columns;
                columns::run(&self.columns, columns, scratch, backend, logits, weight, grad)
            }
        }
    }

    /// Mean loss of one class per row over the rows that have one, and its gradient.
    fn of_class(
        &self,
        backend: &dyn Backend,
        of_rows: &mut SeedLabels,
        logits: View,
        weight: &[f32],
        grad: ViewMut,
    ) -> f64 {
        let mean = 1.0 / logits.num_rows().max(1) as f32;
        // the same bits if no class is missing
        let scale = f64::from(mean) / (1.0 - self.missing);
        let weight = self.weight_of_rows(of_rows, weight);
        let (label, weight) = (&of_rows.class[..], weight.unwrap_or(&of_rows.weight));
        if self.focal > 0.0 {
            return focal(self.focal, logits, label, weight, scale, grad.host());
        }
        SoftmaxCrossEntropy { logits, label, weight, scale: scale as f32, grad }.run(backend)
    }

    /// Fills the weights of the rows by their classes; returns `weight` if the classes have none.
    fn weight_of_rows<'w>(&self, of_rows: &mut SeedLabels, weight: &'w [f32]) -> Option<&'w [f32]> {
        if self.class_weight.is_empty() {
            return Some(weight);
        }
        let SeedLabels { class, weight: all, .. } = of_rows;
        all.clear();
        let of_row = |(r, &class): (usize, &i32)| {
            let of_class = usize::try_from(class).ok().and_then(|c| self.class_weight.get(c)).copied();
            of_class.unwrap_or(0.0) * weight.get(r).copied().unwrap_or(1.0)
        };
        memory::demand_extend(all, class.iter().enumerate().map(of_row));
        None
    }
}

/// Share of the `values` of the rows `train` that are missing; 0 if all are.
fn missing_share(values: &[f32], width: usize, train: &[NodeId]) -> f64 {
    let row = |&v: &NodeId| values[v as usize * width..][..width].iter().filter(|x| x.is_nan()).count();
    let (missing, all) = (train.iter().map(row).sum::<usize>(), train.len() * width);
    if missing < all { missing as f64 / all as f64 } else { 0.0 }
}

/// Refuses NVIDIA devices.
fn on_processor(config: &TrainConfig, what: &str) -> Result<()> {
    if config.cuda_devices().is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--devices {}: {what} is computed on the processor; use --devices cpu",
        config.devices
    )))
}

/// Weights by which all classes of the training nodes count alike, 1 on average over the nodes.
fn balanced(class: &[i32], classes: usize, train: &[NodeId]) -> Vec<f32> {
    let mut counts = vec![0u64; classes];
    for &v in train {
        if let Some(count) = usize::try_from(class[v as usize]).ok().and_then(|c| counts.get_mut(c)) {
            *count += 1;
        }
    }
    let (all, present) =
        (counts.iter().sum::<u64>() as f64, counts.iter().filter(|&&n| n > 0).count() as f64);
    counts.iter().map(|&n| if n == 0 { 1.0 } else { (all / (present * n as f64)) as f32 }).collect()
}

/// Weights of a list such as `1,2.5`, or of a file with one per line or a `.npy`.
fn read_weights(given: &str, classes: usize) -> Result<Vec<f32>> {
    let wrong = |message: String| {
        let remedy = "use none, balanced, a list such as 1,2.5, or a file of one weight per line";
        Error::usage(format!("--class-weights {given}: {message}; {remedy}"))
    };
    let path = Path::new(given);
    let is_word = path.extension().is_none() && path.components().count() == 1;
    if let Some(near) = nearest(given, WEIGHT_WORDS).filter(|_| is_word && !path.is_file()) {
        return Err(Error::usage(format!("--class-weights {given}: did you mean '{near}'?")));
    }
    let weights: Vec<f32> = if given.ends_with(".npy") {
        npy::open(path)?.read_as::<f32>()?
    } else {
        let is_file = path.is_file();
        let text = match is_file {
            true => std::fs::read_to_string(path).map_err(|error| Error::io(path, "read", error))?,
            false => given.replace(',', "\n"),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let number = |line: &str| line.parse().map_err(|_| wrong(format!("'{line}' is not a number")));
        lines.map(number).collect::<Result<_>>()?
    };
    if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
        return Err(wrong(format!("the weight {weight} is not a number from 0")));
    }
    if weights.len() != classes {
        return Err(wrong(format!("{} weights for {classes} classes", weights.len())));
    }
    Ok(weights)
}

/// Focal loss of the rows times `scale`, and its gradient. The sum is serial, so that its bits do
/// not depend on threads.
fn focal(gamma: f64, logits: View, label: &[i32], weight: &[f32], scale: f64, grad: &mut [f32]) -> f64 {
    let (cols, logits) = (logits.num_cols(), logits.host());
    let mut sum = 0.0;
    for (r, &label) in label.iter().enumerate() {
        let (row, grad) = (&logits[r * cols..][..cols], &mut grad[r * cols..][..cols]);
        let Ok(hit) = usize::try_from(label) else {
            grad.fill(0.0);
            continue;
        };
        let factor = scale * weight.get(r).map_or(1.0, |&w| f64::from(w));
        let max = row.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
        let norm = max + row.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln();
        let log_p = f64::from(row[hit]) - norm;
        let p = log_p.exp();
        // 1 - p loses all digits if p is almost 1
        let rest = -log_p.exp_m1();
        sum += factor * rest.powf(gamma) * -log_p;
        // derivative by the logit of class c: slope (delta - p_c)
        let slope =
            if rest > 0.0 { gamma * p * rest.powf(gamma - 1.0) * log_p - rest.powf(gamma) } else { 0.0 };
        for (c, (grad, &x)) in grad.iter_mut().zip(row).enumerate() {
            let delta = f64::from(u8::from(c == hit));
            *grad = (factor * slope * (delta - (f64::from(x) - norm).exp())) as f32;
        }
    }
    sum
}

/// Refuses options of values for the classes of the dataset or task `name`.
pub(crate) fn check_no_values(config: &TrainConfig, name: &str) -> Result<()> {
    match config.target_transform {
        TargetTransform::Standard => Ok(()),
        transform => Err(Error::usage(format!(
            "--target-transform {transform}: the targets of {name} are classes; leave it out"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use graphmill_nn::{Matrix, backend::Cpu};
    use proptest::prelude::*;

    use super::*;

    /// Mean loss of rows with one class each, and its gradient.
    fn of_classes(loss: &TargetLoss, logits: &[f32], class: &[i32], classes: usize) -> (f64, Vec<f32>) {
        let logits = Matrix::from_slice(class.len(), classes, logits);
        let labels = Labels::Single { class: class.to_vec().into(), classes };
        let nodes: Vec<NodeId> = (0..class.len() as NodeId).collect();
        let (mut of_rows, mut grad) = (SeedLabels::default(), Matrix::zeros(class.len(), classes));
        loss.gather(&labels, &nodes, &mut of_rows);
        let value = loss.run(&Cpu::default(), &labels, &mut of_rows, logits.view(), &[], grad.view_mut());
        (value, grad.view().host().to_vec())
    }

    #[test]
    fn balanced_weights_match_scikit_learn() {
        // compute_class_weight('balanced', classes=[0, 1, 2], y=[0, 0, 0, 1])
        assert_eq!(balanced(&[0, 0, 0, 1, 2, -1], 3, &[0, 1, 2, 3]), [4.0 / 6.0, 2.0, 1.0]);
    }

    #[test]
    fn class_weights_multiply_the_loss_of_their_rows() {
        let (logits, class) = ([1.0, 0.0, 0.5, 2.0], [0, 1]);
        let plain = TargetLoss::default();
        let weighted = TargetLoss { class_weight: vec![3.0, 0.0], ..TargetLoss::default() };
        let first = of_classes(&plain, &logits[..2], &class[..1], 2).0;
        let (loss, grad) = of_classes(&weighted, &logits, &class, 2);
        assert!((loss - 3.0 * first / 2.0).abs() < 1e-6, "{loss} {first}");
        assert_eq!(grad[2..], [0.0, 0.0]);
    }

    #[test]
    fn weights_are_read_from_lists_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.txt");
        std::fs::write(&path, "1\n2.5\n").unwrap();
        assert_eq!(read_weights(path.to_str().unwrap(), 2).unwrap(), [1.0, 2.5]);
        assert_eq!(read_weights("0.5,4", 2).unwrap(), [0.5, 4.0]);
        let misspelt = read_weights("balancd", 2).unwrap_err().to_string();
        assert_eq!(misspelt, "--class-weights balancd: did you mean 'balanced'?");
        // a file has a path or an extension, or is there
        for name in ["./balancd", "balancd.txt"] {
            let error = read_weights(name, 2).unwrap_err().to_string();
            assert!(error.contains("is not a number"), "{error}");
        }
        for (given, message) in [
            ("1,2,3", "3 weights for 2 classes"),
            ("1,-2", "the weight -2 is not a number from 0"),
            ("even", "'even' is not a number"),
        ] {
            let error = read_weights(given, 2).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("use none, balanced"), "{error}");
        }
    }

    /// Mean loss of rows of two values, some of which may be missing, and its gradient.
    fn of_values(name: &str, outputs: &[f32], values: &[f32]) -> (f64, Vec<f32>) {
        let (rows, config) = (values.len() / 2, TrainConfig { loss: name.into(), ..TrainConfig::default() });
        let labels = Labels::Values { values: values.to_vec().into(), width: 2 };
        let nodes: Vec<NodeId> = (0..rows as NodeId).collect();
        let data = Learned { name: "data", labels: &labels, train: &nodes };
        let loss = TargetLoss::of_targets(&config, &data).unwrap();
        let (outputs, mut grad) = (Matrix::from_slice(rows, 2, outputs), Matrix::zeros(rows, 2));
        let mut of_rows = SeedLabels::default();
        loss.gather(&labels, &nodes, &mut of_rows);
        let backend = Cpu::default();
        let value = loss.run(&backend, &labels, &mut of_rows, outputs.view(), &[], grad.view_mut());
        (value, grad.view().host().to_vec())
    }

    #[test]
    fn loss_of_values_is_the_mean_over_the_known_ones() {
        // Standardized targets are -1 and 1, and 0 for the constant.
        let (loss, grad) = of_values("mse", &[1.0, 9.0, 0.0, 2.0], &[3.0, f32::NAN, 5.0, 7.0]);
        assert!((loss - (4.0 + 1.0 + 4.0) / 3.0).abs() < 1e-6, "{loss}");
        assert_eq!(grad[1], 0.0, "a missing value has no gradient");
        let none = of_values("mse", &[1.0, 2.0], &[f32::NAN, f32::NAN]);
        assert_eq!(none, (0.0, vec![0.0, 0.0]));
    }

    proptest! {
        #[test]
        fn gradients_of_values_with_missing_ones_match_differences(
            outputs in prop::collection::vec(-3.0f32..3.0, 8),
            values in prop::collection::vec(prop::option::of(-9i8..9), 8),
        ) {
            const STEP: f32 = 1e-2;
            let values: Vec<f32> = values.iter().map(|x| x.map_or(f32::NAN, f32::from)).collect();
            for name in ["mse", "huber"] {
                let (loss, grad) = of_values(name, &outputs, &values);
                prop_assert!(loss.is_finite());
                for i in 0..8 {
                    let at = |step: f32| {
                        let mut moved = outputs.clone();
                        moved[i] += step;
                        of_values(name, &moved, &values).0
                    };
                    let difference = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
                    let found = f64::from(grad[i]);
                    prop_assert!((found - difference).abs() < 5e-3, "{found} {difference}");
                    prop_assert!(!values[i].is_nan() || grad[i] == 0.0);
                }
            }
        }

        #[test]
        fn focal_gradients_match_differences(
            logits in prop::collection::vec(-4.0f32..4.0, 6), gamma in 0.5f64..4.0, class in 0i32..3,
        ) {
            const STEP: f32 = 1e-2;
            let loss = TargetLoss { focal: gamma, ..TargetLoss::default() };
            let labels = [class, -1];
            let (_, grad) = of_classes(&loss, &logits, &labels, 3);
            for i in 0..3 {
                let at = |step: f32| {
                    let mut moved = logits.clone();
                    moved[i] += step;
                    of_classes(&loss, &moved, &labels, 3).0
                };
                let difference = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
                prop_assert!((f64::from(grad[i]) - difference).abs() < 2e-3, "{} {}", grad[i], difference);
            }
            prop_assert_eq!(&grad[3..], &[0.0; 3]);
        }

        #[test]
        fn focal_loss_of_exponent_near_zero_is_cross_entropy(
            logits in prop::collection::vec(-4.0f32..4.0, 6), class in 0i32..3,
        ) {
            let labels = [class, 1];
            let near = TargetLoss { focal: 1e-9, ..TargetLoss::default() };
            let focal = of_classes(&near, &logits, &labels, 3);
            let cross = of_classes(&TargetLoss::default(), &logits, &labels, 3);
            prop_assert!((focal.0 - cross.0).abs() < 1e-5);
            for (a, b) in focal.1.iter().zip(&cross.1) {
                prop_assert!((a - b).abs() < 1e-5);
            }
        }
    }
}
