//! Propagation of one class per node.

use graphmill_core::{Result, spread::Spread};
use graphmill_nn::Matrix;
use rayon::prelude::*;

use super::{Known, PropagationOptions, spread};

/// Errors that a row may be scaled by at most; rows that no error reaches keep their own.
const MAX_SCALE: f32 = 1000.0;

/// Label propagation of `count` classes.
pub(super) fn labels(
    known: &Known,
    class: &[i32],
    count: usize,
    options: &PropagationOptions,
) -> Result<Matrix> {
    let mut start = Matrix::zeros(known.paths.num_nodes(), count);
    set_true(known, class, &mut start);
    let (steps, alpha) = (options.propagation_steps, options.propagation_alpha);
    spread(known, &Spread::new(&known.paths), &start, steps, alpha, 0.0..=1.0)
}

/// Corrects the probabilities by propagated errors, then smooths them.
pub(super) fn correct_and_smooth(
    known: &Known,
    class: &[i32],
    options: &PropagationOptions,
    mut probabilities: Matrix,
) -> Result<Matrix> {
    let (classes, steps) = (probabilities.num_cols(), options.propagation_steps);
    let over = Spread::new(&known.paths);
    let mut errors = Matrix::zeros(known.paths.num_nodes(), classes);
    set_true(known, class, &mut errors);
    let (to, from) = (errors.view_mut().host(), probabilities.view().host());
    let (mut sum, mut count) = (0.0f64, 0usize);
    for (v, _) in of_training(known, class) {
        let row = v * classes..(v + 1) * classes;
        for (error, p) in to[row.clone()].iter_mut().zip(&from[row]) {
            *error -= p;
            sum += f64::from(error.abs());
        }
        count += 1;
    }
    let mean = (sum / count.max(1) as f64) as f32;
    let errors = spread(known, &over, &errors, steps, options.correction_alpha, -1.0..=1.0)?;
    let rows = probabilities.view_mut().host().par_chunks_exact_mut(classes);
    rows.zip(errors.view().host().par_chunks_exact(classes)).for_each(|(p, error)| {
        let size: f32 = error.iter().map(|x| x.abs()).sum();
        let scale = Some(mean / size).filter(|scale| *scale <= MAX_SCALE).unwrap_or(1.0);
        p.iter_mut().zip(error).for_each(|(p, error)| *p += scale * error);
    });
    set_true(known, class, &mut probabilities);
    spread(known, &over, &probabilities, steps, options.propagation_alpha, 0.0..=1.0)
}

/// Training nodes that have a class, with it.
fn of_training<'k>(known: &Known<'k>, class: &'k [i32]) -> impl Iterator<Item = (usize, usize)> + 'k {
    let of = |&v: &u32| Some((v as usize, usize::try_from(class[v as usize]).ok()?));
    known.train.iter().filter_map(of)
}

/// Sets the rows of the training nodes to their classes.
fn set_true(known: &Known, class: &[i32], rows: &mut Matrix) {
    let width = rows.num_cols();
    let all = rows.view_mut().host();
    for (v, class) in of_training(known, class) {
        let row = &mut all[v * width..(v + 1) * width];
        row.fill(0.0);
        row[class] = 1.0;
    }
}
