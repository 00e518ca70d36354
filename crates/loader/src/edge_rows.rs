//! Feature rows of the edges of a batch, from any tier: in memory, mapped or on disk.

#![forbid(unsafe_code)]

use graphmill_core::{Error, Matrix, NodeId, Result, memory};

use crate::{Feature, Traffic};

/// Gathers the rows of the edges at `positions` of a relation's graph into `out` (`E x K`), in
/// their order. `scratch` is reused from batch to batch.
///
/// # Errors
/// A position has no row or exceeds 32 bits, or the tier cannot be read.
pub fn gather_edges(
    table: &dyn Feature,
    positions: &[u64],
    scratch: &mut Vec<NodeId>,
    out: &mut Matrix,
) -> Result<Traffic> {
    let rows = table.num_rows();
    let fits = |&position: &u64| (position as usize) < rows && position <= u64::from(NodeId::MAX);
    if let Some(position) = positions.iter().find(|position| !fits(position)) {
        return Err(Error::invalid(format!(
            "features of edges: edge {position} of a table with {rows} rows, of which the first {} can be \
             read; pass a row for each edge of the graph",
            rows.min(NodeId::MAX as usize)
        )));
    }
    scratch.clear();
    memory::demand_extend(scratch, positions.iter().map(|&position| position as NodeId));
    table.gather(scratch, out)
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Buffer, FeatureData, Features};

    use super::*;
    use crate::feature::Host;

    #[test]
    fn rows_follow_their_edges_in_memory_and_mapped() {
        let values: Vec<f32> = (0..20).map(|x| x as f32).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("features");
        std::fs::write(&path, bytemuck::cast_slice(&values)).unwrap();
        let mapped = Buffer::map(&std::fs::File::open(&path).unwrap(), &path, 0, 20).unwrap();
        for data in [values.clone().into(), mapped] {
            let table = Host::new(&Features { dim: 2, data: FeatureData::F32(data) });
            let (mut scratch, mut out) = (vec![7], Matrix::default());
            gather_edges(&table, &[3, 0, 3], &mut scratch, &mut out).unwrap();
            assert_eq!(out.view().host(), [6.0, 7.0, 0.0, 1.0, 6.0, 7.0]);
            let error = gather_edges(&table, &[1, 10], &mut scratch, &mut out).unwrap_err().to_string();
            assert!(error.contains("edge 10 of a table with 10 rows"), "{error}");
        }
    }
}
