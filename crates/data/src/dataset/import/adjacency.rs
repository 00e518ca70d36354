//! Edges from a CSR adjacency in an `.npz` archive. Its row starts are held in memory; columns and
//! values are read in chunks.

use graphmill_core::{
    NodeId, Result, csc::is_no_weight, location::Location, progress::Unit, search::position,
};

use super::{
    ImportOptions, WeightColumn, csr::check_row_starts, edges::weights::no_weight, feature_rows::file_name,
};
use crate::{
    external::{Edges, Needs, Scratch},
    npy::{CHUNK_LEN, Kind},
    npz::Npz,
};

/// Creates the collection for the edges of a matrix in `{prefix}data`: its values are weights,
/// unless all are 1 or weights are disabled. Reads all values once.
///
/// # Errors
/// The values are damaged.
pub(super) fn edges(
    npz: &mut Npz,
    prefix: &str,
    options: &ImportOptions,
    scratch: &Scratch,
) -> Result<Edges> {
    let data = format!("{prefix}data");
    let mut weighted = false;
    if options.weights != WeightColumn::None && npz.header(&data)?.dtype.kind != Kind::Bool {
        let mut values = npz.pieces::<f32>(&data)?;
        loop {
            let piece = values.next(CHUNK_LEN)?;
            weighted |= piece.iter().any(|&value| value != 1.0);
            if piece.is_empty() || weighted {
                break;
            }
        }
    }
    Ok(scratch.maybe_weighted_edges(options.edge_options(false), weighted))
}

/// Compressed sparse matrix in an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a> {
    /// Prefix of the names of its arrays.
    pub(super) prefix: &'a str,
    /// True for compressed columns instead of rows.
    pub(super) by_column: bool,
    /// True if entries of value 0 are not edges.
    pub(super) drops_zeros: bool,
}

impl<'a> Matrix<'a> {
    /// Matrix of compressed rows, whose stored entries are all edges.
    pub(super) fn of_rows(prefix: &'a str) -> Self {
        Self { prefix, by_column: false, drops_zeros: false }
    }
}

/// Number of rows of the square matrix with the shape `{prefix}shape`.
///
/// # Errors
/// The shape is damaged, or not that of a square matrix.
pub(super) fn num_rows(npz: &mut Npz, prefix: &str) -> Result<usize> {
    let path = npz.path().to_path_buf();
    let at = |array: &str| Location::new(&path, format!("member {prefix}{array}.npy"));
    let shape = npz.read_as::<u64>(&format!("{prefix}shape"))?.data;
    let &[rows, columns] = &shape[..] else {
        return Err(at("shape").error(format!("two numbers expected, {shape:?} found")));
    };
    if rows != columns {
        return Err(at("shape").error(format!(
            "the adjacency is {rows} x {columns}, not square; `import tables` reads edges between two node \
             types"
        )));
    }
    let rows = usize::try_from(rows).ok().filter(|&rows| rows <= NodeId::MAX as usize);
    rows.ok_or_else(|| at("shape").error("more nodes than 32-bit ids can number"))
}

/// Adds edges; if `drops_zeros`, only those whose `value` is not 0. The values are weights if the
/// edges are weighted.
///
/// # Errors
/// As for [`Edges::extend_weighted`].
pub(super) fn extend(
    edges: &mut Edges,
    src: &[NodeId],
    dst: &[NodeId],
    value: &[f32],
    drops_zeros: bool,
) -> Result<()> {
    let weighted = edges.is_weighted();
    if !drops_zeros || position(value, |&value| value == 0.0).is_none() {
        return edges.extend_weighted(src, dst, if weighted { value } else { &[] });
    }
    let kept = || (0..value.len()).filter(|&k| value[k] != 0.0);
    let weight: Vec<f32> = if weighted { kept().map(|k| value[k]).collect() } else { Vec::new() };
    let (src, dst): (Vec<_>, Vec<_>) = kept().map(|k| (src[k], dst[k])).unzip();
    edges.count_dropped((value.len() - src.len()) as u64);
    edges.extend_weighted(&src, &dst, &weight)
}

/// Adds an edge `i -> j` for every entry of the square matrix in `{prefix}indptr`,
/// `{prefix}indices`, `{prefix}shape` and `{prefix}data` (required); its value is the edge's weight
/// if `edges` are weighted and ignored otherwise. Returns the number of rows. `features`: the bytes
/// of the features that will follow.
///
/// # Errors
/// The arrays are damaged or inconsistent, or the matrix is not square.
pub(super) fn read(
    npz: &mut Npz,
    matrix: Matrix,
    features: u64,
    edges: &mut Edges,
    scratch: &Scratch,
) -> Result<usize> {
    let Matrix { prefix, by_column, drops_zeros } = matrix;
    let path = npz.path().to_path_buf();
    let at = |array: &str| Location::new(&path, format!("member {prefix}{array}.npy"));
    let rows = num_rows(npz, prefix)?;
    let entries = npz.header(&format!("{prefix}indices"))?.len();
    let values = npz.header(&format!("{prefix}data"))?.len();
    if entries != values {
        let message = format!("{values} values for the {entries} column numbers of {prefix}indices");
        return Err(at("data").error(message));
    }
    scratch.expect(&Needs {
        nodes: rows as u64,
        edges: edges.directions() * entries as u64,
        features,
        weighted: edges.is_weighted(),
        estimated: false,
    })?;
    let indptr = npz.read_as::<u64>(&format!("{prefix}indptr"))?.data;
    check_row_starts(&indptr, rows, entries, &at("indptr"))?;
    if edges.take_up_all() {
        return Ok(rows);
    }
    scratch.stage(&format!("edges of {}", file_name(&at("indices"))), Some(entries as u64), Unit::Edges);
    // Values lie before or behind the columns in the archive, so they have a separate reader.
    let mut second = Npz::open(&path)?;
    let data = (edges.is_weighted() || drops_zeros).then(|| format!("{prefix}data"));
    let mut values = data.map(|data| second.pieces::<f32>(&data)).transpose()?;
    let mut columns = npz.pieces::<NodeId>(&format!("{prefix}indices"))?;
    let (mut src, mut row, mut done) = (Vec::with_capacity(CHUNK_LEN.min(entries)), 0, 0);
    loop {
        let dst = columns.next(CHUNK_LEN)?;
        let weight = match &mut values {
            Some(values) => values.next(CHUNK_LEN)?,
            None => &[],
        };
        if dst.is_empty() {
            return Ok(rows);
        }
        if let Some(k) = position(dst, |&j| j as usize >= rows) {
            let (k, j) = (done + k, dst[k]);
            return Err(
                at("indices").error(format!("entry {k} is in column {j}, but there are {rows} columns"))
            );
        }
        if edges.is_weighted()
            && let Some(k) = position(weight, is_no_weight)
        {
            return Err(at("data").error(format!("element {}: {}", done + k, no_weight(weight[k]))));
        }
        src.clear();
        let end = done + dst.len();
        while done < end {
            // Row starts are ascending and end at the number of entries, so some row contains this
            // one.
            while indptr[row + 1] as usize <= done {
                row += 1;
            }
            let run = (indptr[row + 1] as usize).min(end) - done;
            src.resize(src.len() + run, row as NodeId);
            done += run;
        }
        let (from, to) = if by_column { (dst, &src[..]) } else { (&src[..], dst) };
        extend(edges, from, to, weight, drops_zeros)?;
        scratch.done(done as u64);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::EdgeOptions;

    use super::*;
    use crate::npz::testing::{archive, member};

    fn run(indptr: &[i64], indices: &[i32], shape: [i64; 2]) -> Result<graphmill_core::Graph, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let members = [
            member("m_indptr", &[indptr.len()], indptr),
            member("m_indices", &[indices.len()], indices),
            member("m_data", &[indices.len()], &vec![0u8; indices.len()]),
            member("m_shape", &[2], &shape),
        ];
        std::fs::write(&path, archive(&members, true)).unwrap();
        let mut npz = Npz::open(&path).unwrap();
        let scratch = Scratch::in_memory();
        let mut edges = scratch.edges(EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED });
        let nodes = read(&mut npz, Matrix::of_rows("m_"), 0, &mut edges, &scratch);
        nodes.and_then(|nodes| edges.build(nodes)).map_err(|e| e.to_string())
    }

    #[test]
    fn entries_become_edges_from_their_row() {
        let graph = run(&[0, 2, 2, 4], &[0, 2, 1, 1], [3, 3]).unwrap();
        assert_eq!((graph.indptr(), graph.indices()), (&[0, 1, 3, 4][..], &[0, 2, 2, 0][..]));
        // Chunks end within rows; empty rows at the beginning, in the middle and at the end.
        let n = 1000;
        let degree = 2 * CHUNK_LEN / n + 3;
        let rows = |i: usize| if i.is_multiple_of(3) { 0 } else { degree };
        let mut indptr = vec![0i64];
        (0..n).for_each(|i| indptr.push(indptr[i] + rows(i) as i64));
        let indices: Vec<i32> = (0..indptr[n] as usize).map(|k| (k * 7 % n) as i32).collect();
        let graph = run(&indptr, &indices, [n as i64; 2]).unwrap();
        let mut expected: Vec<(u32, u32)> = Vec::new();
        for i in 0..n {
            let run = indptr[i] as usize..indptr[i + 1] as usize;
            expected.extend(indices[run].iter().map(|&j| (j as u32, i as u32)));
        }
        expected.sort_unstable();
        let found = (0..n as u32).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (v, u)));
        assert!(found.eq(expected));
        assert_eq!(run(&[0], &[], [0, 0]).unwrap().num_nodes(), 0);
    }

    #[test]
    fn inconsistent_arrays_are_rejected() {
        let fails = |indptr: &[i64], indices: &[i32], shape: [i64; 2], why: &str| {
            let error = run(indptr, indices, shape).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        fails(&[0, 1], &[0], [1, 2], "m_shape.npy: the adjacency is 1 x 2, not square");
        fails(&[0, 1], &[0], [1 << 40, 1 << 40], "m_shape.npy: more nodes");
        fails(&[0, 1], &[1], [1, 1], "m_indices.npy: entry 0 is in column 1");
        fails(&[0, 1], &[-1], [1, 1], "m_indices.npy: element 0 is -1");
        fails(&[0, 2], &[0], [1, 1], "m_indptr.npy: row starts run from 0 to 2");
        fails(&[0, 1], &[0], [2, 2], "m_indptr.npy: 2 row starts");
        fails(&[0, 2, 1, 2], &[0, 0], [3, 3], "decrease after row 1");
    }
}
