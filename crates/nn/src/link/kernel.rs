//! Scores of candidates from the row of a query, and their gradients.
//!
//! # Algorithm
//!
//! A decoder turns the known end of an edge and its relation into the row `q` of a query, once for
//! all candidates. The score of a candidate `c` is then their product, or a constant less their
//! distance. Sums run over 16 lanes that are added in a fixed order.
//!
//! # Source
//!
//! None: the decoders' own formulas, rearranged.
//!
//! # Cost
//!
//! O(F) per candidate, without the sine, cosine or product of the relation.

/// Number of partial sums of a score.
const LANES: usize = 16;

/// Score of a candidate, from its row and that of the query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// `q . c`
    Product,
    /// `gamma - sum of |q - c|`
    Manhattan(f32),
    /// `gamma - sqrt(sum of (q - c)^2)`
    Euclidean(f32),
    /// `gamma - sum of |q - c|` over complex numbers: real parts, then imaginary parts.
    Modulus(f32),
}

/// Sum of `term` over the places of slices of equal length.
#[inline(always)]
fn sum<const N: usize>(slices: [&[f32]; N], term: impl Fn([f32; N]) -> f32) -> f32 {
    let len = slices[0].len();
    let slices = slices.map(|x| &x[..len]);
    let mut lanes = [0.0f32; LANES];
    let whole = len - len % LANES;
    let mut at = 0;
    while at < whole {
        let runs: [&[f32; LANES]; N] = slices.map(|x| x[at..at + LANES].try_into().expect("a whole run"));
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(runs.map(|run| run[lane]));
        }
        at += LANES;
    }
    for i in whole..len {
        lanes[i - whole] += term(slices.map(|x| x[i]));
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

/// Adds `factor` times `x` to `to`.
#[inline(always)]
pub(super) fn add_scaled(factor: f32, x: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

impl Kernel {
    /// Score of the candidate row `c` for the query row `q`, of equal widths.
    pub fn score(&self, q: &[f32], c: &[f32]) -> f32 {
        match *self {
            Self::Product => sum([q, c], |[q, c]| q * c),
            Self::Manhattan(gamma) => gamma - sum([q, c], |[q, c]| (q - c).abs()),
            Self::Euclidean(gamma) => gamma - squared_distance(q, c).sqrt(),
            Self::Modulus(gamma) => {
                let ((q_re, q_im), (c_re, c_im)) = (halves(q), halves(c));
                gamma
                    - sum([q_re, q_im, c_re, c_im], |[a, b, c, d]| {
                        ((a - c) * (a - c) + (b - d) * (b - d)).sqrt()
                    })
            }
        }
    }

    /// Adds `g` times the gradient of the score with respect to the query row to `to`.
    pub fn add_query_gradient(&self, q: &[f32], c: &[f32], g: f32, to: &mut [f32]) {
        match self {
            Self::Product => add_scaled(g, c, to),
            Self::Manhattan(_) => {
                for ((to, q), c) in to.iter_mut().zip(q).zip(c) {
                    let x = q - c;
                    // at a distance of 0 there is no direction
                    *to -= if x == 0.0 { 0.0 } else { g * 1.0f32.copysign(x) };
                }
            }
            Self::Euclidean(_) => {
                let length = squared_distance(q, c).sqrt();
                if length > 0.0 {
                    let g = g / length;
                    to.iter_mut().zip(q).zip(c).for_each(|((to, q), c)| *to -= g * (q - c));
                }
            }
            Self::Modulus(_) => {
                let n = q.len() / 2;
                let ((q_re, q_im), (c_re, c_im)) = (halves(q), halves(c));
                let (re, im) = to.split_at_mut(n);
                let ends = q_re.iter().zip(q_im).zip(c_re.iter().zip(c_im));
                for (((a, b), (c, d)), (re, im)) in ends.zip(re.iter_mut().zip(im)) {
                    let (x, y) = (a - c, b - d);
                    let length = (x * x + y * y).sqrt();
                    let g = if length > 0.0 { g / length } else { 0.0 };
                    *re -= g * x;
                    *im -= g * y;
                }
            }
        }
    }

    /// Adds `g` times the gradient of the score with respect to the candidate row to `to`.
    pub fn add_candidate_gradient(&self, q: &[f32], c: &[f32], g: f32, to: &mut [f32]) {
        match self {
            Self::Product => add_scaled(g, q, to),
            // a distance depends on the difference alone
            _ => self.add_query_gradient(q, c, -g, to),
        }
    }
}

/// Real and imaginary parts of a row.
fn halves(x: &[f32]) -> (&[f32], &[f32]) {
    x.split_at(x.len() / 2)
}

fn squared_distance(q: &[f32], c: &[f32]) -> f32 {
    sum([q, c], |[q, c]| (q - c) * (q - c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Kernel; 4] =
        [Kernel::Product, Kernel::Manhattan(3.0), Kernel::Euclidean(3.0), Kernel::Modulus(3.0)];

    /// The score by a plain loop in 64 bits.
    fn plain(kernel: Kernel, q: &[f32], c: &[f32]) -> f64 {
        let x = |i: usize| f64::from(q[i]) - f64::from(c[i]);
        let n = q.len() / 2;
        match kernel {
            Kernel::Product => q.iter().zip(c).map(|(q, c)| f64::from(*q) * f64::from(*c)).sum(),
            Kernel::Manhattan(gamma) => f64::from(gamma) - (0..q.len()).map(|i| x(i).abs()).sum::<f64>(),
            Kernel::Euclidean(gamma) => {
                f64::from(gamma) - (0..q.len()).map(|i| x(i) * x(i)).sum::<f64>().sqrt()
            }
            Kernel::Modulus(gamma) => f64::from(gamma) - (0..n).map(|i| x(i).hypot(x(n + i))).sum::<f64>(),
        }
    }

    proptest! {
        #[test]
        fn scores_and_gradients_are_those_of_plain_loops(
            rows in (1usize..30).prop_flat_map(|n| {
                prop::collection::vec((-2.0f32..2.0, -2.0f32..2.0), 2 * n)
            }),
            g in -2.0f32..2.0,
        ) {
            let (q, c): (Vec<f32>, Vec<f32>) = rows.into_iter().unzip();
            for kernel in ALL {
                prop_assert!((f64::from(kernel.score(&q, &c)) - plain(kernel, &q, &c)).abs() < 1e-3);
                let (mut to_q, mut to_c) = (vec![0.0; q.len()], vec![0.0; q.len()]);
                kernel.add_query_gradient(&q, &c, g, &mut to_q);
                kernel.add_candidate_gradient(&q, &c, g, &mut to_c);
                for i in 0..q.len() {
                    // finite differences beside a kink say nothing
                    if (q[i] - c[i]).abs() < 0.05 {
                        continue;
                    }
                    let slope = |of_query: bool| {
                        let moved = |delta: f32| {
                            let (mut q, mut c) = (q.clone(), c.clone());
                            if of_query { q[i] += delta } else { c[i] += delta }
                            plain(kernel, &q, &c)
                        };
                        f64::from(g) * (moved(0.01) - moved(-0.01)) / 0.02
                    };
                    prop_assert!((f64::from(to_q[i]) - slope(true)).abs() < 0.02, "{kernel:?} {i}");
                    prop_assert!((f64::from(to_c[i]) - slope(false)).abs() < 0.02, "{kernel:?} {i}");
                }
            }
        }
    }

    #[test]
    fn equal_rows_have_no_direction() {
        let row = [0.5f32; 6];
        for kernel in &ALL[1..] {
            let mut to = [0.0; 6];
            kernel.add_query_gradient(&row, &row, 1.0, &mut to);
            assert_eq!((to, kernel.score(&row, &row)), ([0.0; 6], 3.0));
        }
    }
}
