//! Features from arrays: the checks every importer needs.

use crate::{Buffer, Features, Result, place::At, search::position};

/// `nodes x dim` features out of an array of this shape.
///
/// # Errors
/// The shape is another, or a value is not finite.
pub(super) fn from_array(
    data: impl Into<Buffer<f32>>,
    shape: &[usize],
    nodes: usize,
    at: &At,
) -> Result<Features> {
    let data = data.into();
    let dim = match *shape {
        [rows, dim] if rows == nodes => dim,
        _ => return Err(at.error(format!("shape [{nodes}, features] expected, {shape:?} found"))),
    };
    // what a scratch has written is checked
    let unchecked: &[f32] = if data.written().is_some() { &[] } else { &data };
    if let Some(i) = position(unchecked, |x| !x.is_finite()) {
        return Err(at.error(format!(
            "feature {} of node {} is {}: features are finite numbers",
            i % dim,
            i / dim,
            data[i]
        )));
    }
    Ok(Features::f32(dim, data))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn features_are_checked() {
        let at = At::new(Path::new("a"), "features");
        assert_eq!(from_array(vec![1.0; 6], &[3, 2], 3, &at).unwrap().dim, 2);
        let fails = |data: Vec<f32>, shape: &[usize], why: &str| {
            let error = from_array(data, shape, 3, &at).unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("a: features"), "{error}");
        };
        fails(vec![1.0; 4], &[2, 2], "shape [3, features] expected, [2, 2]");
        fails(vec![1.0; 3], &[3], "shape");
        fails(vec![1.0, 1.0, 1.0, f32::NAN, 1.0, 1.0], &[3, 2], "feature 1 of node 1 is NaN");
    }
}
