//! Creation of a typed dataset within a memory budget, in a scratch directory beside its
//! destination.

use std::path::Path;

use graphmill_core::Result;

use super::TypedDataset;
use crate::{
    dataset::{Work, work},
    external::Scratch,
};

/// Creates the dataset directory `dst` through `make`, which gets a scratch for columns beyond
/// memory; `identity` describes everything the result depends on. The scratch directory is
/// `dst.importing`: a killed process leaves it, and the same work resumes there; after an error it
/// is removed. `dst` appears in one step.
///
/// Large columns are written once: [`Scratch::rows`], [`Scratch::column`],
/// [`EdgeSorter`](super::EdgeSorter) and [`TextRows`](super::TextRows) return mapped files, which
/// become those of the dataset.
///
/// ```
/// use graphmill_data::{dataset::Work, typed::{self, EdgeColumns, EdgeSorter, TypedBuilder}};
///
/// let directory = tempfile::tempdir().unwrap();
/// let dst = directory.path().join("shop");
/// typed::create(Work::default(), &dst, "shop, version 7", |scratch| {
///     let mut rows = scratch.rows::<f32>("user-features", 2)?;
///     rows.extend(&[0.0, 1.0])?; // any number of rows at a time
///     rows.extend(&[2.0, 3.0, 4.0, 5.0])?;
///     let mut edges = EdgeSorter::<f32>::new(scratch, "follows", [3, 3], EdgeColumns::default())?;
///     edges.extend(&[2, 0], &[1, 1], &[], &[], &[])?;
///     let mut builder = TypedBuilder::new("shop");
///     builder.node_type("user", rows.len()).features(2, rows.finish()?);
///     builder.edge_type("user", "follows", "user").sorted(edges.finish()?);
///     builder.build()
/// })?;
/// assert_eq!(typed::open(&dst, typed::Verify::All)?.edges[0].in_neighbors(1), [2, 0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// # Errors
/// Errors of `make`; `dst` is not empty; the disk is too small; the progress of `work` cancels it.
pub fn create(
    work: Work,
    dst: &Path,
    identity: &str,
    make: impl FnOnce(&Scratch) -> Result<TypedDataset>,
) -> Result<TypedDataset> {
    let replace = work.replace;
    work::run_saved(
        work,
        dst,
        ".importing",
        || Ok(identity.into()),
        make,
        |data, scratch| data.save_by_way_of(scratch, dst, replace),
    )
}
