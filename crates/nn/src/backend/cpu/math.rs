//! Exponential, logarithm, sigmoid and hyperbolic tangent of vectors, accurate to about one unit in
//! the last place.

use super::simd::Simd;

/// 1.5 * 2^23: adding it rounds a small number to an integer and leaves the integer in the low
/// bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with so few bits that its small multiples are exact (Cody and
/// Waite, 1980).
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = (std::f64::consts::LN_2 - 0.693_359_375) as f32;

/// `(q, p)` with `e^x = p + p q`, where `p` is a power of two and `e^r - 1 = q` for the remainder
/// `|r| <= ln(2) / 2`. The argument is clamped to [-87, 88].
#[inline(always)]
fn exp_parts<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let x = s.min(s.splat(88.0), s.max(s.splat(-87.0), x));
    let shifted = s.mul_add(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(shifted, s.splat(ROUND));
    let r = s.mul_add(n, s.splat(-LN2_HIGH), x);
    let r = s.mul_add(n, s.splat(-LN2_LOW), r);
    // series of e^r - 1 up to r^7; the remainder is below 6e-9 of r
    let mut q = s.splat(1.0 / 5040.0);
    for inverse in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        q = s.mul_add(q, r, s.splat(inverse));
    }
    let q = s.mul_add(s.mul(q, r), r, r);
    // the low bits of `shifted` are n: move them into the exponent
    let p = s.float(s.add_u(s.shl(s.bits(shifted), 23), s.splat_u(127 << 23)));
    (q, p)
}

/// e^x: 0 below -87 (where f32 loses digits), e^88 above 88, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let (q, p) = exp_parts(s, x);
    s.select(s.gt(s.splat(-87.0), x), s.splat(0.0), s.mul_add(p, q, p))
}

/// e^x - 1, accurate for small `x`.
#[inline(always)]
pub(crate) fn exp_m1<S: Simd>(s: S, x: S::F) -> S::F {
    let (q, p) = exp_parts(s, x);
    s.mul_add(p, q, s.sub(p, s.splat(1.0)))
}

/// 1 / (1 + e^-x): 0 below -88, where f32 loses digits.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let m = exp_m1(s, s.add(x, x));
    s.div(m, s.add(m, s.splat(2.0)))
}

/// ln x of positive normal `x`.
#[inline(always)]
pub(crate) fn ln<S: Simd>(s: S, x: S::F) -> S::F {
    // x = m 2^e with m in [sqrt(1/2), sqrt(2))
    let offset = s.splat_u(0x3f35_04f3);
    let shifted = s.sub_u(s.bits(x), offset);
    let m = s.float(s.add_u(s.and(shifted, s.splat_u(0x007f_ffff)), offset));
    // the exponent, plus 2^8 to be positive, moves into the low bits of a large float
    let e = s.shr(s.add_u(shifted, s.splat_u(256 << 23)), 23);
    let e = s.sub(s.float(s.add_u(s.and(e, s.splat_u(511)), s.splat_u(0x4b00_0000))), s.splat(8_388_608.0));
    let e = s.sub(e, s.splat(256.0));
    // ln m = 2 artanh(t), t = (m - 1) / (m + 1), |t| < 0.172
    let f = s.sub(m, s.splat(1.0));
    let t = s.div(f, s.add(m, s.splat(1.0)));
    let square = s.mul(t, t);
    let mut series = s.splat(2.0 / 11.0);
    for c in [2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0] {
        series = s.mul_add(series, square, s.splat(c));
    }
    // 2 t = f - f t exactly, and f has no rounding error
    let low = s.mul_add(s.mul(series, square), t, s.mul(e, s.splat(LN2_LOW)));
    let small = s.sub(low, s.mul(f, t));
    s.mul_add(e, s.splat(LN2_HIGH), s.add(small, f))
}

/// ln(1 + y) for `y` in [0, 1], accurate for small `y`.
#[inline(always)]
pub(crate) fn ln_1p<S: Simd>(s: S, y: S::F) -> S::F {
    let u = s.add(y, s.splat(1.0));
    // error of rounding 1 + y, divided by the derivative of ln
    let lost = s.sub(y, s.sub(u, s.splat(1.0)));
    s.add(ln(s, u), s.div(lost, u))
}

#[cfg(test)]
mod tests {
    use crate::backend::cpu::level::{Isa, Level, kernel, with_level};

    kernel! {
        fn apply[](s: S, which: u8, x: &mut [f32]) {
            let mut c = 0;
            while c < x.len() {
                let v = s.load(x, c);
                let v = match which {
                    0 => super::exp(s, v),
                    1 => super::exp_m1(s, v),
                    2 => super::ln(s, v),
                    3 => super::ln_1p(s, v),
                    4 => super::sigmoid(s, v),
                    _ => super::tanh(s, v),
                };
                s.store(x, c, v);
                c += S::LANES;
            }
        }
    }

    /// Largest relative error on `x`, with the argument at which it occurs.
    fn worst(which: u8, exact: fn(f64) -> f64, x: &[f32]) -> f64 {
        let mut y = x.to_vec();
        apply(Isa::current(), which, &mut y);
        let error = |(&x, &y): (&f32, &f32)| {
            let exact = exact(f64::from(x));
            (f64::from(y) - exact).abs() / exact.abs().max(1e-37)
        };
        x.iter().zip(&y).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn relative_errors_are_at_most_two_units_in_the_last_place() {
        let grid: Vec<f32> = (0..200_003).map(|i| i as f32 / 200_003.0).collect();
        let on = |low: f32, high: f32| grid.iter().map(|t| low + (high - low) * t).collect::<Vec<_>>();
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            with_level(level, || {
                assert!(worst(0, f64::exp, &on(-86.9, 87.9)) < 1.3e-7);
                assert!(worst(0, f64::exp, &on(-1.0, 1.0)) < 1.3e-7);
                assert!(worst(1, f64::exp_m1, &on(-20.0, 1e-3)) < 2.5e-7);
                assert!(worst(1, f64::exp_m1, &on(-1e-6, -1e-9)) < 1.3e-7);
                assert!(worst(2, f64::ln, &on(1e-30, 1e-3)) < 1.3e-7);
                assert!(worst(2, f64::ln, &on(0.5, 1e4)) < 2.5e-7);
                assert!(worst(3, f64::ln_1p, &on(0.0, 1.0)) < 2.5e-7);
                assert!(worst(3, f64::ln_1p, &on(1e-12, 1e-6)) < 1.3e-7);
                let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                assert!(worst(4, sigmoid, &on(-80.0, 80.0)) < 2.5e-7);
                assert!(worst(5, f64::tanh, &on(-20.0, 20.0)) < 3.5e-7);
                assert!(worst(5, f64::tanh, &on(1e-9, 1e-3)) < 2.5e-7);
            });
        }
    }

    #[test]
    fn infinities_and_nan_are_handled() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            with_level(level, || {
                let mut x = [0.0, f32::NEG_INFINITY, -1e30, f32::INFINITY, f32::NAN];
                apply(Isa::current(), 0, &mut x);
                assert_eq!(x[..3], [1.0, 0.0, 0.0]);
                assert!(x[3] > 1e38 && x[3].is_finite() && x[4].is_nan());
                let mut x = [0.0, f32::NEG_INFINITY];
                apply(Isa::current(), 1, &mut x);
                assert_eq!(x, [0.0, -1.0]);
                let mut x = [1.0];
                apply(Isa::current(), 2, &mut x);
                assert_eq!(x, [0.0]);
                for (which, ends) in [(4, [0.5, 0.0, 1.0]), (5, [0.0, -1.0, 1.0])] {
                    let mut x = [0.0, -1e30, 1e30, f32::NAN];
                    apply(Isa::current(), which, &mut x);
                    assert!(x[..3].iter().zip(ends).all(|(x, end)| (x - end).abs() < 1e-37), "{x:?}");
                    assert!(x[3].is_nan());
                }
            });
        }
    }
}
