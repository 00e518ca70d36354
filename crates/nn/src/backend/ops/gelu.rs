//! The Gaussian error linear unit, whose gradient needs its input.

use super::{Operation, shape};
use crate::{View, ViewMut};

/// `out = x P(X <= x)` with `X` standard normal (Hendrycks and Gimpel, *Gaussian Error Linear
/// Units*, 2016), elementwise.
#[derive(Debug)]
pub struct GeluForward<'a> {
    /// Rows, `R x F`.
    pub x: View<'a>,
    /// Result, `R x F`.
    pub out: ViewMut<'a>,
}

impl GeluForward<'_> {
    /// Computes the operation in f64, for backends without a kernel.
    pub fn on_host(self) {
        let x = self.x.host();
        self.out.host().iter_mut().zip(x).for_each(|(out, &x)| *out = gelu(x));
    }
}

impl Operation for GeluForward<'_> {
    fn check(&self) {
        shape::same(self.x, self.out.as_view());
    }
}

/// Gradient of [`GeluForward`], in place.
#[derive(Debug)]
pub struct GeluBackward<'a> {
    /// Input of the forward pass, `R x F`.
    pub x: View<'a>,
    /// Gradient of the result, `R x F`; becomes that of `x`.
    pub grad: ViewMut<'a>,
}

impl GeluBackward<'_> {
    /// Computes the operation in f64, for backends without a kernel.
    pub fn on_host(self) {
        let x = self.x.host();
        self.grad.host().iter_mut().zip(x).for_each(|(grad, &x)| *grad *= slope(x));
    }
}

impl Operation for GeluBackward<'_> {
    fn check(&self) {
        shape::same(self.x, self.grad.as_view());
    }
}

/// The unit at `x`.
pub fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (x * normal_cdf(x)) as f32
}

/// Derivative of the unit at `x`.
pub fn slope(x: f32) -> f32 {
    let x = f64::from(x);
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (normal_cdf(x) + x * density) as f32
}

/// `P(X <= x)` of a standard normal `X`, to 1e-7: Abramowitz and Stegun, *Handbook of mathematical
/// functions*, 26.2.17.
fn normal_cdf(x: f64) -> f64 {
    const B: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let tail = series * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_slopes_are_those_of_the_definition() {
        // from tables of the normal distribution
        for (x, value) in
            [(0.0, 0.0), (1.0, 0.841_345), (-1.0, -0.158_655), (2.0, 1.954_5), (-3.0, -0.004_05)]
        {
            assert!((gelu(x) - value).abs() < 1e-6, "{x}: {}", gelu(x));
        }
        for x in [-4.0f32, -1.3, -0.2, 0.0, 0.7, 2.5] {
            let h = 1e-2;
            let difference = (gelu(x + h) - gelu(x - h)) / (2.0 * h);
            assert!((slope(x) - difference).abs() < 1e-4, "{x}: {} {difference}", slope(x));
        }
    }
}
