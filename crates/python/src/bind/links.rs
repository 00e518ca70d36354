//! Negatives and rank metrics as functions.

use graphmill_loader::BatchKey;
use graphmill_nn::link::rank::{self, Query};
use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::prelude::*;

use super::{array, error};
use crate::typed::links::{Given, Negatives};

/// Negatives of the positives `src[i]` to `dst[i]`: sources and destinations.
#[pyfunction]
#[pyo3(signature = (src, dst, known, *, sizes, same_type, amount, together, method, seed))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
pub(super) fn negatives<'py>(
    py: Python<'py>,
    src: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    known: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    sizes: (usize, usize),
    same_type: bool,
    amount: f64,
    together: bool,
    method: &str,
    seed: u64,
) -> PyResult<[Bound<'py, PyArray1<i64>>; 2]> {
    let src = array::nodes("edge_index[0]", src, sizes.0)?;
    let dst = array::nodes("edge_index[1]", dst, sizes.1)?;
    let known = (
        array::nodes("known edges[0]", &known.0, sizes.0)?,
        array::nodes("known edges[1]", &known.1, sizes.1)?,
    );
    let drawn = py.detach(|| {
        let ends = (sizes.0, sizes.1, same_type);
        let negatives =
            Negatives::new(method, ends, (&known.0, &known.1), (amount, together), Given::default())?;
        let positives: Vec<(u32, u32)> = src.into_iter().zip(dst).collect();
        negatives.draw(BatchKey { seed, epoch: 0, batch: 0 }, &positives, &[])
    });
    let drawn = drawn.map_err(error::value)?;
    let column =
        |end: fn(&(u32, u32)) -> u32| -> Vec<i64> { drawn.iter().map(|pair| end(pair).into()).collect() };
    Ok([column(|pair| pair.0).into_pyarray(py), column(|pair| pair.1).into_pyarray(py)])
}

/// Value of a rank metric over queries: query `q` has the candidates `starts[q]..starts[q + 1]`,
/// whose relevant ones are true. `None` if no query defines it.
#[pyfunction]
pub(super) fn rank_metric(
    py: Python<'_>,
    name: &str,
    scores: &Bound<'_, PyArray1<f32>>,
    relevant: &Bound<'_, PyArray1<bool>>,
    starts: Vec<usize>,
    k: usize,
) -> PyResult<Option<f64>> {
    let metric = rank::TABLE.find(name).map_err(error::graph)?.make;
    let (scores, relevant) =
        (scores.try_readonly().map_err(error::value)?, relevant.try_readonly().map_err(error::value)?);
    let scores = scores.as_slice().map_err(|_| array::not_contiguous("scores"))?;
    let relevant = relevant.as_slice().map_err(|_| array::not_contiguous("labels"))?;
    if !starts.is_sorted()
        || scores.len() != relevant.len()
        || starts.last().is_some_and(|&end| end > scores.len())
    {
        return Err(error::value(format!(
            "{} scores for {} labels, or unsorted queries",
            scores.len(),
            relevant.len()
        )));
    }
    Ok(py.detach(|| {
        let places: Vec<Vec<u32>> = starts
            .windows(2)
            .map(|ends| {
                (0..).zip(&relevant[ends[0]..ends[1]]).filter(|(_, is)| **is).map(|(i, _)| i).collect()
            })
            .collect();
        let queries = starts.windows(2).zip(&places);
        let queries: Vec<Query> =
            queries.map(|(ends, relevant)| Query { scores: &scores[ends[0]..ends[1]], relevant }).collect();
        metric.score(&queries, k)
    }))
}
