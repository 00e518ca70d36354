//! Sparse matrix of `scipy.sparse.save_npz`: `format`, `shape` and `data` with `indptr` and
//! `indices` (CSR, CSC) or `row` and `col` (COO).
//!
//! The entry `(i, j)` is an edge from `i` to `j` and its value the weight, as in Python's
//! `Dataset.from_scipy`: duplicate entries are summed, entries of value 0 are not edges, and
//! weights that are all 1 are left out. Values of type bool are not weights.
//!
//! # Deviations
//! With `undirected`, a matrix of ones has no weights from the beginning, so that edges listed both
//! ways stay one edge each way; its duplicate entries are one edge and not summed.

use graphmill_core::{
    NodeId, Result, csc::is_no_weight, location::Location, progress::Unit, search::position,
};

use super::{
    ImportOptions, Raw, WeightColumn,
    adjacency::{self, Matrix},
    claims,
    edges::weights::no_weight,
    feature_rows::file_name,
    labels,
};
use crate::{
    external::{Edges, Needs, Scratch},
    npy::{CHUNK_LEN, Kind},
    npz::Npz,
};

/// Returns true for an archive of a sparse matrix of SciPy.
pub(super) fn is_matrix(npz: &Npz) -> bool {
    ["format", "shape", "data"].iter().all(|name| npz.contains(name))
}

/// Reads the matrix.
pub(super) fn read(npz: &mut Npz, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let path = npz.path().to_path_buf();
    let at = |array: &str| Location::new(&path, format!("member {array}.npy"));
    let format = npz.text("format")?;
    let by_column = format == "csc";
    if !["csr", "csc", "coo"].contains(&format.as_str()) {
        let why = match format.as_str() {
            "bsr" => "its values are dense blocks, whose zeros are stored",
            "dia" => "its values are dense diagonals, whose zeros are stored",
            _ => "it is not known",
        };
        return Err(at("format").error(format!(
            "the format '{}' is not an adjacency, because {why}; csr, csc or coo expected: save \
             matrix.tocsr()",
            format.escape_debug()
        )));
    }
    let mut edges = scratch.maybe_weighted_edges(
        options.edge_options(false),
        options.weights != WeightColumn::None && has_weights(npz, options)?,
    );
    let num_nodes = match format.as_str() {
        "coo" => read_pairs(npz, &mut edges, scratch)?,
        _ => {
            let matrix = Matrix { prefix: "", by_column, drops_zeros: true };
            adjacency::read(npz, matrix, 0, &mut edges, scratch)?
        }
    };
    scratch.note(
        "a matrix of SciPy has edges only, no features and labels: learn its links by `graphmill train \
         --task link`, or add features and labels by `graphmill import tables` or `import edges \
         --features X.npy --labels Y.csv`",
    );
    let labels = labels::unknown(num_nodes)?;
    Ok(Raw { num_nodes, edges, omit_unit_weights: true, labels, ..Raw::default() })
}

/// Returns true if the values may be weights: they are not of type bool, and, with `undirected`,
/// not all 0 or 1.
fn has_weights(npz: &mut Npz, options: &ImportOptions) -> Result<bool> {
    if npz.header("data")?.dtype.kind == Kind::Bool {
        return Ok(false);
    }
    if !options.undirected {
        return Ok(true);
    }
    let mut values = npz.pieces::<f32>("data")?;
    loop {
        let piece = values.next(CHUNK_LEN)?;
        let found = piece.iter().any(|&value| value != 0.0 && value != 1.0);
        if piece.is_empty() || found {
            return Ok(found);
        }
    }
}

/// Adds the entries of a matrix in `row`, `col` and `data`. Returns the number of rows.
fn read_pairs(npz: &mut Npz, edges: &mut Edges, scratch: &Scratch) -> Result<usize> {
    let path = npz.path().to_path_buf();
    let at = |array: &str| Location::new(&path, format!("member {array}.npy"));
    let rows = adjacency::num_rows(npz, "")?;
    let entries = npz.header("data")?.len();
    claims::nodes(rows, entries as u64, &at("shape"))?;
    for name in ["row", "col"] {
        let found = npz.header(name)?.len();
        if found != entries {
            return Err(at(name).error(format!("{found} numbers for the {entries} values of data")));
        }
    }
    scratch.expect(&Needs {
        nodes: rows as u64,
        edges: edges.directions() * entries as u64,
        features: 0,
        weighted: edges.is_weighted(),
        estimated: false,
    })?;
    if edges.take_up_all() {
        return Ok(rows);
    }
    scratch.stage(&format!("edges of {}", file_name(&at("row"))), Some(entries as u64), Unit::Edges);
    // Members lie one behind the other in the archive, so each has a separate reader.
    let (mut second, mut third) = (Npz::open(&path)?, Npz::open(&path)?);
    let mut sources = npz.pieces::<NodeId>("row")?;
    let mut destinations = second.pieces::<NodeId>("col")?;
    let mut values = third.pieces::<f32>("data")?;
    let mut done = 0;
    loop {
        let (src, dst) = (sources.next(CHUNK_LEN)?, destinations.next(CHUNK_LEN)?);
        let weight = values.next(CHUNK_LEN)?;
        if src.is_empty() {
            return Ok(rows);
        }
        for (name, ids) in [("row", src), ("col", dst)] {
            if let Some(k) = position(ids, |&id| id as usize >= rows) {
                let (k, id) = (done + k, ids[k]);
                return Err(at(name).error(format!("entry {k} is {id}, but the matrix is {rows} x {rows}")));
            }
        }
        if edges.is_weighted()
            && let Some(k) = position(weight, is_no_weight)
        {
            return Err(at("data").error(format!("element {}: {}", done + k, no_weight(weight[k]))));
        }
        adjacency::extend(edges, src, dst, weight, true)?;
        done += src.len();
        scratch.done(done as u64);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Graph;

    use super::*;
    use crate::{
        dataset::import::import,
        npz::testing::{archive, member, member_of},
    };

    type Members = Vec<(String, Vec<u8>)>;

    /// Archive as `scipy.sparse.save_npz` writes it, without its arrays of entries.
    fn matrix(format: &str, data: &[f64], shape: [i64; 2]) -> Members {
        vec![
            member_of("format", "|S3", &[], format.as_bytes()),
            member("shape", &[2], &shape),
            member("data", &[data.len()], data),
            member_of("_is_array", "|b1", &[], &[1]),
        ]
    }

    /// The matrix `[[0, 2, 1], [0, 0, 0], [1, 0, 0]]`, whose entry `(0, 1)` is stored as 1.5 + 0.5
    /// and `(2, 1)` as 0.
    fn stored(format: &str) -> Members {
        let ids = |name: &str, ids: &[i32]| member(name, &[ids.len()], ids);
        let (data, mut arrays) = match format {
            "csr" => {
                ([1.5, 1., 0.5, 1., 0.], vec![ids("indices", &[1, 2, 1, 0, 1]), ids("indptr", &[0, 3, 3, 5])])
            }
            "csc" => {
                ([1., 1.5, 0.5, 0., 1.], vec![ids("indices", &[2, 0, 0, 2, 0]), ids("indptr", &[0, 1, 4, 5])])
            }
            _ => ([0., 1.5, 1., 1., 0.5], vec![ids("row", &[2, 0, 0, 2, 0]), ids("col", &[1, 1, 2, 0, 1])]),
        };
        arrays.extend(matrix(format, &data, [3, 3]));
        arrays
    }

    fn run(members: &Members, options: &ImportOptions) -> Result<(Graph, String), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("matrix.npz");
        std::fs::write(&path, archive(members, true)).unwrap();
        let imported = import("npz", path, options).map_err(|error| error.to_string())?;
        assert_eq!((imported.dataset.name.as_str(), imported.dataset.features.dim), ("matrix", 0));
        Ok((imported.dataset.graph, imported.report.to_string()))
    }

    #[test]
    fn every_format_gives_edges_from_rows_to_columns() {
        for format in ["csr", "csc", "coo"] {
            let (graph, report) = run(&stored(format), &ImportOptions::default()).unwrap();
            assert_eq!((graph.indptr(), graph.indices()), (&[0, 1, 2, 3][..], &[2, 0, 0][..]), "{format}");
            assert_eq!(graph.edge_weight(), Some(&[1., 2., 1.][..]), "{format}");
            assert!(report.contains("summed: 1 (") && report.contains("dropped: 1"), "{format}: {report}");
            let none = ImportOptions { weights: WeightColumn::None, ..ImportOptions::default() };
            let (graph, _) = run(&stored(format), &none).unwrap();
            assert_eq!((graph.indices(), graph.edge_weight()), (&[2, 0, 0][..], None), "{format}");
        }
    }

    #[test]
    fn ones_are_no_weights_and_their_duplicates_are_summed() {
        let with = |rows: &[i32], columns: &[i32]| {
            let mut members = matrix("coo", &vec![1.; rows.len()], [2, 2]);
            members.extend([member("row", &[rows.len()], rows), member("col", &[rows.len()], columns)]);
            members
        };
        let plain = ImportOptions::default();
        let undirected = ImportOptions { undirected: true, ..ImportOptions::default() };
        assert_eq!(run(&with(&[0, 1], &[1, 0]), &plain).unwrap().0.edge_weight(), None);
        assert_eq!(run(&with(&[0, 1], &[1, 0]), &undirected).unwrap().0.edge_weight(), None);
        assert_eq!(run(&with(&[0, 0], &[1, 1]), &plain).unwrap().0.edge_weight(), Some(&[2.][..]));
        // An edge exists or not.
        let mut members = with(&[0, 0, 1], &[1, 1, 1]);
        members[2] = member_of("data", "|b1", &[3], &[1, 1, 0]);
        let (graph, _) = run(&members, &plain).unwrap();
        assert_eq!((graph.indices(), graph.edge_weight()), (&[0][..], None));
    }

    #[test]
    fn other_matrices_are_rejected_with_a_reason() {
        let fails = |members: Members, says: &str| {
            let error = run(&members, &ImportOptions::default()).unwrap_err();
            assert!(error.contains(says) && error.contains("matrix.npz"), "{error}");
        };
        fails(matrix("bsr", &[], [2, 2]), "'bsr' is not an adjacency, because its values are dense blocks");
        fails(matrix("dia", &[], [2, 2]), "save matrix.tocsr()");
        let coo = |data: &[f64], row: &[i32], shape| {
            let mut members = matrix("coo", data, shape);
            members
                .extend([member("row", &[row.len()], row), member("col", &[row.len()], &vec![0; row.len()])]);
            members
        };
        fails(coo(&[1.], &[0], [2, 3]), "shape.npy: the adjacency is 2 x 3, not square");
        fails(coo(&[1.], &[0], [1 << 30; 2]), "shape.npy: 1073741824 nodes, but there are only 1 edges");
        fails(coo(&[1.], &[0, 1], [2, 2]), "row.npy: 2 numbers for the 1 values");
        fails(coo(&[1.], &[2], [2, 2]), "row.npy: entry 0 is 2, but the matrix is 2 x 2");
        fails(coo(&[1., -1.], &[0, 1], [2, 2]), "data.npy: element 1: the edge weighs -1");
        fails(matrix("coo", &[1.], [2, 2]), "row.npy: no such member");
    }
}
