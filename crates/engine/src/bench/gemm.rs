//! Dense products of a training step: GFLOP/s.
//!
//! `M x K x N` is the product of `M` rows of width `K` and a weight of `K x N`; a weight gradient
//! reduces over the rows instead. `F` is the feature width, `H` the hidden width, `C` the number of
//! classes. Limit: f32 fused multiply-adds on registers, also for products in bf16, which may
//! exceed it with the processor's bf16 instructions; on an NVIDIA device, square products of the
//! same precision by the vendor's library.

use graphmill_core::Matrix;
use graphmill_nn::backend::{Backend, Cpu, Precision, Side, ops::Gemm};

use super::measure::{Bench, CLASSES, DIM, Limit, random};
use crate::{Result, accelerator::Arithmetic};

/// Number of rows of a product.
const ROWS: usize = 100_000;

/// Measures all cases.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let positive = |given: usize, otherwise: usize| if given > 0 { given } else { otherwise };
    let features = bench.options.dim.unwrap_or(positive(bench.data.features.dim, DIM));
    let hidden = bench.options.train.hidden;
    let classes = positive(bench.data.labels.classes(), CLASSES);
    let shapes = [(features, hidden), (hidden, hidden), (hidden, classes)];
    if let Some(gpu) = bench.computers.clone().gpus().first() {
        let kinds = [("", Arithmetic::F32), ("tf32 ", Arithmetic::Tf32), ("bf16 ", Arithmetic::Bf16)];
        for (name, arithmetic) in kinds {
            let of = "square products";
            let limit = bench.machine.products(arithmetic)?.map(|value| Limit { value, of, row: None });
            let backend = gpu.with_arithmetic(arithmetic);
            measure(bench, name, &*backend, &shapes, limit);
        }
        gpu.check()?;
        return Ok(());
    }
    let precisions = [("", Precision::F32), ("tf32 ", Precision::Tf32), ("bf16 ", Precision::Bf16)];
    for (name, precision) in precisions.into_iter().filter(|(_, precision)| precision.is_native()) {
        let of = "f32 fused multiply-adds";
        let limit = Limit { value: bench.machine.peak(), of, row: None };
        measure(bench, name, &Cpu { precision }, &shapes, Some(limit));
    }
    Ok(())
}

/// Measures products of rows with weights, and weight gradients.
fn measure(
    bench: &mut Bench,
    name: &str,
    backend: &dyn Backend,
    shapes: &[(usize, usize)],
    limit: Option<Limit>,
) {
    for &(k, n) in shapes {
        let (x, w, mut y) = (random(ROWS, k), random(k, n), Matrix::zeros(ROWS, n));
        let work = 2e-9 * (ROWS * k * n) as f64;
        let times = bench.time(|| {
            Gemm { a: (x.view(), Side::Plain), b: (w.view(), Side::Plain), beta: 0.0, c: y.view_mut() }
                .run(backend);
        });
        bench.rate(format!("{name}{ROWS} x {k} x {n}"), "GFLOP/s", work, &times, limit);
        let mut gradient = Matrix::zeros(k, n);
        let times = bench.time(|| {
            Gemm {
                a: (x.view(), Side::Transposed),
                b: (y.view(), Side::Plain),
                beta: 0.0,
                c: gradient.view_mut(),
            }
            .run(backend);
        });
        let case = format!("{name}{k} x {ROWS} x {n}, weight gradient");
        bench.rate(case, "GFLOP/s", work, &times, limit);
    }
}
