//! Edges of a NumPy array.

use std::path::Path;

use graphmill_core::{Result, csc::is_no_weight, location::Location, progress::Unit};

use super::{
    super::weights::{Weights, no_weight},
    Sink,
    id::{Id, outside},
};
use crate::{external::Scratch, npy};

/// Edges of an array that are processed at once.
const CHUNK_LEN: usize = 1 << 20;

/// Reads edges from an array `[E, 2]` or, as PyG writes them, `[2, E]`; weights from one of `[E]`.
pub(super) fn read_array<T: Id>(
    path: &Path,
    limit: u128,
    weights: &Weights,
    name: &str,
    scratch: &Scratch,
    sink: &mut Sink<'_, T>,
) -> Result<()> {
    let mut array = npy::open(path)?;
    let (edges, by_pairs) = match array.shape[..] {
        [edges, 2] if !array.fortran_order => (edges, true),
        [2, edges] if !array.fortran_order => (edges, false),
        [edges, 2] => (edges, false), // in Fortran order its columns are contiguous
        [2, edges] => (edges, true),
        _ => {
            let message = format!("shape [edges, 2] or [2, edges] expected, {:?} found", array.shape);
            return Err(Location::new(path, "header").error(message));
        }
    };
    let mut weights = match weights {
        Weights::File(path) => {
            let array = npy::open(path)?;
            if array.shape[..] != [edges] && array.shape[..] != [edges, 1] {
                let message = format!("shape [{edges}] expected, a weight per edge; {:?} found", array.shape);
                return Err(Location::new(path, "header").error(message));
            }
            Some((array, path))
        }
        _ => None,
    };
    scratch.stage(&format!("reading {name}"), Some(edges as u64), Unit::Edges);
    for start in (0..edges).step_by(CHUNK_LEN) {
        let count = CHUNK_LEN.min(edges - start);
        let (from, to): (Vec<T>, Vec<T>) = if by_pairs {
            let pairs = array.values::<T>(start * 2..(start + count) * 2)?;
            pairs.chunks_exact(2).map(|edge| (edge[0], edge[1])).unzip()
        } else {
            (array.values(start..start + count)?, array.values(edges + start..edges + start + count)?)
        };
        if let Some(e) = from.iter().zip(&to).position(|(&u, &v)| u128::from(u.max(v).into()) >= limit) {
            let message = outside(from[e], to[e], limit);
            return Err(Location::new(path, format!("edge {}", start + e)).error(message));
        }
        let weight = match &mut weights {
            Some((array, path)) => {
                let weight = array.values::<f32>(start..start + count)?;
                if let Some(e) = weight.iter().position(is_no_weight) {
                    let at = Location::new(path, format!("element {}", start + e));
                    return Err(at.error(no_weight(weight[e])));
                }
                weight
            }
            None => Vec::new(),
        };
        sink(&from, &to, &weight)?;
        scratch.done((start + count) as u64);
    }
    Ok(())
}
