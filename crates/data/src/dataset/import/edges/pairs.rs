//! Sets of classes as a separate list: one line `node,class` for every class of a node, as in the
//! social-computing datasets (BlogCatalog, Flickr, YouTube: `group-edges.csv`).

use std::path::Path;

use graphmill_core::{Labels, Result, location::Location, memory};

use super::{
    super::{ImportReport, claims},
    first_id::below,
    ids::Ids,
    text::{table, whole},
};

/// Reads the classes of every node. Classes are numbered from `first` like nodes, or with compact
/// ids by ascending number.
///
/// # Errors
/// The table does not have two columns of whole numbers, a node does not exist, or the class
/// numbers leave wide gaps.
pub(super) fn read(path: &Path, ids: &Ids, first: u64, report: &mut ImportReport) -> Result<Labels> {
    let at = Location::new(path, "labels");
    let mut table = table(path, "a whole number", whole::<u64>)?;
    if table.columns != 2 {
        return Err(
            at.error(format!("a node and a class per line expected, {} columns found", table.columns))
        );
    }
    below(&mut table.data, first, &at)?;
    let mut known: Vec<u64> = table.data.chunks_exact(2).map(|pair| pair[1]).collect();
    known.sort_unstable();
    known.dedup();
    let compact = matches!(ids, Ids::Compact(_));
    let largest = known[known.len() - 1]; // a table is never empty
    let classes = if compact { known.len() as u64 } else { largest.saturating_add(1) };
    // Some classes may be empty, but not most of them.
    if classes > 2 * known.len() as u64 + 1024 {
        return Err(at.error(format!(
            "the largest class is {}, but only {} are in use: number them from {first} on, or pass \
             compact-ids",
            largest.saturating_add(first),
            known.len()
        )));
    }
    let classes = classes as usize;
    claims::dense(ids.len(), classes, table.rows, &at)?;
    let mut member: Vec<u8> = at.locate(memory::zeroed(ids.len().saturating_mul(classes)))?;
    let mut repeated = 0;
    for (row, pair) in table.data.chunks_exact(2).enumerate() {
        let Some(v) = ids.number(pair[0]) else {
            return Err(at.error(format!("row {row} names node {}, which does not exist", pair[0] + first)));
        };
        let class = if compact { known.partition_point(|&other| other < pair[1]) } else { pair[1] as usize };
        let member = &mut member[v as usize * classes + class];
        repeated += u64::from(std::mem::replace(member, 1));
    }
    report.count("repeated lines of a node and a class", repeated);
    Ok(Labels::Multi { member: member.into(), classes })
}
