//! Checks of outputs before they are written or returned.

use rayon::prelude::*;

use crate::{Error, Result};

/// Values that a thread checks at once.
const CHUNK: usize = 1 << 16;

/// Checks that all values of rows of `cols` values are finite.
///
/// # Errors
/// A value is NaN or infinite; `name` names its row.
pub(crate) fn check_outputs(values: &[f32], cols: usize, name: impl FnOnce(usize) -> String) -> Result<()> {
    let is_bad = |chunk: &[f32]| chunk.iter().fold(false, |any, x| any | !x.is_finite());
    let first = if values.len() <= CHUNK {
        is_bad(values).then_some(0)
    } else {
        values.par_chunks(CHUNK).position_first(is_bad).map(|chunk| chunk * CHUNK)
    };
    let found = first.and_then(|first| Some(first + values[first..].iter().position(|x| !x.is_finite())?));
    match found {
        None => Ok(()),
        Some(at) => {
            let row = at / cols.max(1);
            Err(Error::OutputNotFinite { row, name: name(row), value: values[at] })
        }
    }
}

/// Name of a row that has no key yet.
pub(crate) fn numbered(row: usize) -> String {
    format!("row {row}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_that_is_not_finite_is_named() {
        for (len, bad, value) in
            [(6, 3, f32::NAN), (6, 0, f32::INFINITY), (3 * CHUNK, 2 * CHUNK + 5, f32::NEG_INFINITY)]
        {
            let mut values = vec![f32::MAX; len];
            check_outputs(&values, 3, numbered).unwrap();
            (values[bad], values[len - 1]) = (value, f32::NAN);
            let error = check_outputs(&values, 3, |row| format!("node {row}")).unwrap_err();
            assert!(error.to_string().contains(&format!("for node {} are not finite ({value})", bad / 3)));
            let named = error.with_row_name(|row| format!("key-{row}")).to_string();
            assert!(named.contains(&format!("for key-{} are", bad / 3)), "{named}");
        }
    }
}
