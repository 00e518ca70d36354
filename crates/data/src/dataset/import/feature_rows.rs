//! Streaming of feature rows from a source into a scratch, with validation; never all in memory.

use graphmill_core::{Features, Result, location::Location, progress::Unit, search::position};

use crate::{
    external::{Rows, Scratch},
    npy::NpyFile,
    npz::Npz,
};

/// Consumer of whole rows.
pub(super) type Each<'a> = &'a mut dyn FnMut(&[f32]) -> Result<()>;

/// Writer of validated features.
pub(super) struct Sink<'a> {
    at: &'a Location<'a>,
    scratch: &'a Scratch,
    nodes: usize,
    dim: usize,
    /// Rows received, including those that an earlier process has already written.
    count: usize,
    /// `None` if rows are empty.
    rows: Option<Rows<f32>>,
}

impl<'a> Sink<'a> {
    /// Creates a writer for an array of this shape, which must be `[nodes, features]`.
    pub(super) fn new(scratch: &'a Scratch, shape: &[usize], nodes: usize, at: &'a Location) -> Result<Self> {
        let dim = match *shape {
            [rows, dim] if rows == nodes => dim,
            _ => return Err(at.error(format!("shape [{nodes}, features] expected, {shape:?} found"))),
        };
        scratch.stage(&format!("features of {}", file_name(at)), Some(nodes as u64), Unit::Rows);
        let rows = if dim > 0 { Some(scratch.rows::<f32>("features", dim)?) } else { None };
        Ok(Self { at, scratch, nodes, dim, count: 0, rows })
    }

    /// Adds whole rows.
    ///
    /// # Errors
    /// A value is not finite, the rows exceed the nodes, or the scratch cannot be written.
    pub(super) fn extend(&mut self, piece: &[f32]) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        if let Some(i) = position(piece, |x| !x.is_finite()) {
            return Err(self.at.error(format!(
                "feature {} of node {} is {}: features are finite numbers",
                i % self.dim,
                self.count + i / self.dim,
                piece[i]
            )));
        }
        self.count += piece.len() / self.dim;
        if self.count > self.nodes {
            let message =
                format!("more than {} rows of features, but there are {} nodes", self.nodes, self.nodes);
            return Err(self.at.error(message));
        }
        rows.extend(piece)?;
        self.scratch.done(self.count as u64);
        Ok(())
    }

    /// Returns the features of all nodes.
    ///
    /// # Errors
    /// The rows are fewer than the nodes, or the scratch cannot be read.
    pub(super) fn finish(self) -> Result<Features> {
        let Some(rows) = self.rows else { return Ok(Features::default()) };
        if self.count != self.nodes {
            let message = format!("{} rows of features, but there are {} nodes", self.count, self.nodes);
            return Err(self.at.error(message));
        }
        Ok(Features::f32(self.dim, rows.finish()?))
    }
}

/// Reads `nodes` rows of features from an array of this shape, whose rows `source` emits.
///
/// # Errors
/// The shape differs, a value is not finite, or `source` fails.
pub(super) fn stream(
    scratch: &Scratch,
    shape: &[usize],
    nodes: usize,
    at: &Location,
    source: impl FnOnce(Each) -> Result<()>,
) -> Result<Features> {
    let mut sink = Sink::new(scratch, shape, nodes, at)?;
    source(&mut |piece| sink.extend(piece))?;
    sink.finish()
}

/// Reads the rows of an `.npy` file.
pub(super) fn from_npy(array: &NpyFile, nodes: usize, scratch: &Scratch) -> Result<Features> {
    let at = Location::new(array.path(), "features");
    stream(scratch, &array.shape, nodes, &at, |each| array.for_each_rows(each))
}

/// Reads the rows of the member `name` of an archive.
pub(super) fn from_npz(npz: &mut Npz, name: &str, nodes: usize, scratch: &Scratch) -> Result<Features> {
    let (path, shape) = (npz.path().to_path_buf(), npz.header(name)?.shape);
    let at = Location::new(&path, format!("member {name}.npy"));
    stream(scratch, &shape, nodes, &at, |each| npz.for_each_rows(name, each))
}

/// Bytes of the features in an array of this shape.
pub(super) fn bytes(shape: &[usize]) -> u64 {
    shape.iter().fold(4, |bytes: u64, &axis| bytes.saturating_mul(axis as u64))
}

/// File name in progress messages.
pub(super) fn file_name(at: &Location) -> String {
    at.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use graphmill_core::features::FeatureData;

    use super::*;

    #[test]
    fn rows_are_validated_while_streaming() {
        let at = Location::new(Path::new("a"), "features");
        let run = |shape: &[usize], pieces: &[&[f32]]| {
            let source = |each: Each| pieces.iter().try_for_each(|piece| each(piece));
            stream(&Scratch::in_memory(), shape, 3, &at, source).map_err(|e| e.to_string())
        };
        let features = run(&[3, 2], &[&[1., 2., 3., 4.], &[5., 6.]]).unwrap();
        let FeatureData::F32(data) = &features.data else { panic!() };
        assert_eq!((features.dim, &data[..]), (2, &[1., 2., 3., 4., 5., 6.][..]));
        assert_eq!(run(&[3, 0], &[]).unwrap().dim, 0);
        assert!(run(&[2, 2], &[]).unwrap_err().contains("a: features: shape [3, features] expected, [2, 2]"));
        assert!(run(&[3], &[]).unwrap_err().contains("shape"));
        assert!(run(&[3, 1], &[&[1.]]).unwrap_err().contains("1 rows of features, but there are 3 nodes"));
        assert!(run(&[3, 1], &[&[1.; 4]]).unwrap_err().contains("more than 3 rows"));
        let error = run(&[3, 2], &[&[1., 2.], &[3., f32::INFINITY]]).unwrap_err();
        assert!(error.contains("feature 1 of node 1 is inf"), "{error}");
    }
}
