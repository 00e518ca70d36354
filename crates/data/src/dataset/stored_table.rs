//! Location of the feature rows in a dataset directory, for readers that bypass the mapping.

use std::path::{Path, PathBuf};

use graphmill_core::{Error, Result, matrix::TableType};
use half::f16;

use super::{
    manifest::{self, Manifest},
    native::{FEATURES, FEATURES_INDICES, FEATURES_INDPTR, FEATURES_VALUES},
};
use crate::{
    npy::{self, Dtype, Element},
    signed::SignedManifest,
    typed::{self, StoredFeatures},
};

/// Table of dense rows in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTable {
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the first row, in bytes.
    pub offset: u64,
    /// Number of rows, `V`.
    pub rows: usize,
    /// Length of a row, `F`.
    pub dim: usize,
    /// Type of the values.
    pub kind: TableType,
}

impl StoredTable {
    /// Locates the feature rows of the dataset in `dir`. Reads the manifest and the array's header,
    /// and no row.
    ///
    /// # Errors
    /// The directory holds no dataset, the dataset has no features or sparse ones, or the file
    /// disagrees with the manifest.
    pub fn features(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open(dir.as_ref(), features_of(dir.as_ref())?)
    }

    /// Locates the feature rows of node type number `t` of the dataset in `dir`.
    ///
    /// # Errors
    /// As [`StoredTable::features`].
    pub fn features_of_type(dir: impl AsRef<Path>, t: usize) -> Result<Self> {
        let dir = dir.as_ref();
        let of = if typed::is_typed(dir) { typed::stored_features(dir, t)? } else { features_of(dir)? };
        Self::open(dir, of)
    }

    /// Opens the file of these rows.
    fn open(dir: &Path, features: StoredFeatures) -> Result<Self> {
        let StoredFeatures { path, entry, is_sparse, shape } = features;
        let wrong = |message: &str| Error::format(dir.join(manifest::FILE_NAME), "files", message);
        let Some(entry) = entry else {
            return Err(wrong(if is_sparse {
                "the features are stored sparse and are read in memory only; keep features in host memory"
            } else {
                "the dataset has no features to read from a file"
            }));
        };
        let array = npy::open(dir.join(path))?;
        let kind = match array.dtype {
            dtype if dtype == f32::DTYPE => Some(TableType::F32),
            dtype if dtype == f16::DTYPE => Some(TableType::F16),
            _ => None,
        };
        let agrees = array.shape == entry.shape && array.dtype.to_string() == entry.dtype;
        match kind {
            Some(kind) if agrees && array.shape == shape && !array.fortran_order => Ok(Self {
                path: array.path().to_path_buf(),
                offset: array.offset() as u64,
                rows: shape[0],
                dim: shape[1],
                kind,
            }),
            _ => Err(Error::format(
                array.path(),
                "header",
                format!(
                    "shape {:?} of {} found, the manifest says {:?} of {} and counts require {shape:?} of \
                     <f4 or <f2; \
                     restore the file or import the data again",
                    array.shape, array.dtype, entry.shape, entry.dtype
                ),
            )),
        }
    }
}

/// Files of the features of the dataset in `dir`.
fn features_of(dir: &Path) -> Result<StoredFeatures> {
    if typed::is_typed(dir) {
        return typed::stored_features(dir, 0);
    }
    let manifest = Manifest::read(dir)?;
    Ok(StoredFeatures {
        path: FEATURES.into(),
        entry: manifest.files.get(FEATURES).cloned(),
        is_sparse: manifest.files.contains_key(FEATURES_INDPTR),
        shape: [manifest.nodes, manifest.feature_dim],
    })
}

/// The stored values of sparse feature rows in two files: 4 bytes each, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSparse {
    /// Path of the file of columns, and offset of the first one in bytes.
    pub columns: (PathBuf, u64),
    /// Path of the file of values, and offset of the first one in bytes.
    pub values: (PathBuf, u64),
    /// Number of stored values.
    pub stored: usize,
}

impl StoredSparse {
    /// Locates the sparse feature rows of the dataset in `dir`. Reads the manifest and the arrays'
    /// headers, and no row.
    ///
    /// # Errors
    /// The directory holds no dataset, its features are not sparse, or a file has another type.
    pub fn features(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let StoredFeatures { path, is_sparse, .. } = features_of(dir)?;
        if !is_sparse {
            let message = "the dataset has no sparse features to read from files";
            return Err(Error::format(dir.join(manifest::FILE_NAME), "files", message));
        }
        let file = |name: &str, dtype: Dtype| -> Result<((PathBuf, u64), usize)> {
            let array = npy::open(dir.join(&path).with_file_name(name))?;
            match array.shape[..] {
                [stored] if array.dtype == dtype => {
                    Ok(((array.path().to_path_buf(), array.offset() as u64), stored))
                }
                _ => Err(Error::format(
                    array.path(),
                    "header",
                    format!(
                        "has shape {:?} and type {}, not one row of {dtype}; restore the file or import the \
                         data again",
                        array.shape, array.dtype
                    ),
                )),
            }
        };
        let (columns, stored) = file(FEATURES_INDICES, u32::DTYPE)?;
        let (values, of_values) = file(FEATURES_VALUES, f32::DTYPE)?;
        if stored != of_values {
            let message = format!("has {of_values} values for {stored} columns; import the data again");
            return Err(Error::format(values.0, "header", message));
        }
        Ok(Self { columns, values, stored })
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Features, Graph, Labels, SparseRows, features::FeatureData};

    use super::*;
    use crate::Dataset;

    fn save(features: Features, dir: &Path) {
        let dataset = Dataset {
            graph: Graph::new(vec![0, 0, 1].into(), vec![0].into()).unwrap(),
            features,
            labels: Labels::Single { class: vec![0, 0].into(), classes: 1 },
            ..Dataset::default()
        };
        dataset.save_replacing(dir).unwrap();
    }

    #[test]
    fn rows_lie_at_the_reported_offset() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        for (features, kind) in [
            (Features::f32(3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), TableType::F32),
            (
                Features {
                    dim: 3,
                    data: FeatureData::F16([1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32).to_vec().into()),
                },
                TableType::F16,
            ),
        ] {
            save(features, &dir);
            let table = StoredTable::features(&dir).unwrap();
            assert_eq!((table.rows, table.dim, table.kind), (2, 3, kind));
            let bytes = std::fs::read(&table.path).unwrap();
            let row = &bytes[table.offset as usize + 3 * kind.width()..][..kind.width()];
            let four = if kind == TableType::F32 {
                4f32.to_le_bytes().to_vec()
            } else {
                f16::from_f32(4.0).to_le_bytes().to_vec()
            };
            assert_eq!(row, four);
        }
        let path = dir.join(FEATURES);
        let short = std::fs::read(&path).unwrap();
        std::fs::write(&path, &short[..short.len() - 1]).unwrap();
        assert!(StoredTable::features(&dir).unwrap_err().to_string().contains("truncated"));
        npy::write(&path, &[1.0f32; 4], &[2, 2]).unwrap();
        assert!(StoredTable::features(&dir).unwrap_err().to_string().contains("the manifest says"));
    }

    #[test]
    fn datasets_without_dense_rows_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        save(Features::csr(SparseRows::from_dense(2, &[0.0, 1.0, 0.0, 0.0]).unwrap()), &dir);
        assert!(StoredTable::features(&dir).unwrap_err().to_string().contains("sparse"));
        let StoredSparse { columns, values, stored } = StoredSparse::features(&dir).unwrap();
        let bytes = |(path, offset): (PathBuf, u64)| {
            std::fs::read(path).unwrap()[offset as usize..][..4 * stored].to_vec()
        };
        assert_eq!((bytes(columns), bytes(values)), (vec![1, 0, 0, 0], 1f32.to_le_bytes().to_vec()));
        save(Features::default(), &dir);
        assert!(StoredTable::features(&dir).unwrap_err().to_string().contains("no features"));
        assert!(
            StoredTable::features(root.path()).unwrap_err().to_string().contains("not a Graphmill dataset")
        );
    }
}
