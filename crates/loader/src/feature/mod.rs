//! Feature tiers: node ids to feature rows, with counters. Tiers nest.

pub mod cached;
mod device_ids;
pub mod disk;
pub mod host;
pub mod link;
mod rounded;
mod scatter;
mod sparse_disk;
mod stream;
mod traffic;
mod widen;

use graphmill_core::{Block, Matrix, NodeId, Result, matrix::TableType};
use rayon::prelude::*;

pub use device_ids::DeviceIds;
pub use disk::{Disk, DiskOptions};
pub use host::Host;
pub use link::{Access, Link, LinkOptions, LinkTraffic, Linked};
pub use rounded::Rounded;
pub use sparse_disk::SparseDisk;
pub use traffic::{TierTraffic, Traffic};
pub use widen::widen_sparse;

/// Positions of the rows read in a result of `R x F`.
#[derive(Clone, Copy, Debug)]
pub enum OutputRows<'p> {
    /// The `i`-th row read goes to row `i`.
    InOrder,
    /// The `i`-th row read goes to row `at[i]`: strictly ascending, one for each row read.
    At(&'p [u32]),
}

/// Work that a read runs while it waits for its rows. It may write rows of the result that are not
/// read.
pub type OverlappedWork<'w> = dyn FnMut(&mut [f32]) -> Result<Traffic> + 'w;

/// No work during a read.
///
/// # Errors
/// Never.
pub fn no_work(_: &mut [f32]) -> Result<Traffic> {
    Ok(Traffic::default())
}

/// Cache slots of a batch's rows, looked up before the rows are read (FGNN marks them in the Sample
/// stage, section 5.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Identity of the cache: caches with the same rows in the same slots have the same number.
    cache: Option<u64>,
    /// Slot of each row, or [`MISS`](crate::policy::MISS).
    slots: Vec<u32>,
}

impl Marks {
    /// Number of marks.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if there are no marks.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes all marks.
    pub fn clear(&mut self) {
        self.cache = None;
        self.slots.clear();
    }
}

/// A table of feature rows in any memory. Every tier returns the same bytes.
///
/// ```
/// use graphmill_core::{NodeId, Result};
/// use graphmill_loader::{Feature, Traffic, feature::{Capabilities, OutputRows}};
///
/// /// Rows that are computed when they are read: the node's id and its square.
/// struct Powers;
///
/// impl Feature for Powers {
///     fn dim(&self) -> usize {
///         2
///     }
///     fn num_rows(&self) -> usize {
///         100
///     }
///     fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
///         for (i, &v) in ids.iter().enumerate() {
///             let row = match places {
///                 OutputRows::InOrder => i,
///                 OutputRows::At(rows) => rows[i] as usize,
///             };
///             out[2 * row..][..2].copy_from_slice(&[v as f32, (v * v) as f32]);
///         }
///         Ok(Traffic::default())
///     }
///     fn row_bytes(&self) -> u64 {
///         0
///     }
///     fn capabilities(&self) -> Capabilities<'_> {
///         Capabilities::default()
///     }
/// }
///
/// let mut rows = [0.0; 4];
/// Powers.read(&[3, 9], &mut rows)?;
/// assert_eq!(rows, [3.0, 9.0, 9.0, 81.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// Pointers to tiers (`Arc`, `Box`, `&`) deliberately do not implement it: a call through one
/// dereferences to the tier, so no forwarding method can be missing.
pub trait Feature: Send + Sync {
    /// Width of a row (`F`).
    fn dim(&self) -> usize;

    /// Number of rows (`V`).
    fn num_rows(&self) -> usize;

    /// Copies the rows of `ids` (each below `V`) to their `places` in `out` (`R x F`), leaves its
    /// other rows unchanged, and returns the traffic.
    ///
    /// # Errors
    /// A tier cannot be read; the contents of `out` are then undefined.
    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic>;

    /// Copies the rows of `ids` (each below `V`) to `out` (`len x F`) and returns the traffic.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn read(&self, ids: &[NodeId], out: &mut [f32]) -> Result<Traffic> {
        self.read_to(ids, OutputRows::InOrder, out)
    }

    /// Sets `out` to the rows of `ids` (each below `V`), sparse if they are stored so, and returns
    /// the traffic.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        out.resize(ids.len(), self.dim());
        self.read(ids, out.view_mut().host())
    }

    /// Size of a row in storage, in bytes; of sparse rows, the mean.
    fn row_bytes(&self) -> u64;

    /// Further capabilities of the tier. A tier around another decides which of the inner tier's
    /// capabilities it exposes.
    fn capabilities(&self) -> Capabilities<'_>;
}

/// Capabilities of a tier beyond [`Feature`]; none by default.
#[derive(Clone, Copy, Default)]
pub struct Capabilities<'f> {
    /// Other work can run while a read waits.
    pub overlapped: Option<&'f dyn OverlappedFeature>,
    /// The slots of a batch's rows can be looked up before the rows are read.
    pub marked: Option<&'f dyn MarkedFeature>,
    /// Rows can be read where a cache holds them.
    pub slotted: Option<&'f dyn SlottedFeature>,
    /// Rows can be read into a device's memory.
    pub device: Option<&'f dyn DeviceFeature>,
    /// Type of 16 bits that represents all values exactly, because they are stored in it.
    pub half: Option<TableType>,
}

impl Capabilities<'_> {
    /// Capabilities of rows that are stored in values of type `kind`.
    pub fn stored_in(kind: TableType) -> Self {
        Self { half: (kind != TableType::F32).then_some(kind), ..Self::default() }
    }
}

/// A tier whose reads wait, so that other work can run meanwhile.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::{Features, matrix::TableType};
/// use graphmill_loader::{
///     Feature,
///     feature::{Host, OutputRows, cached::{CacheLayout, Level, Pinned, Placement}, no_work},
/// };
///
/// let host = Arc::new(Host::new(&Features::f32(1, vec![0.0, 10.0, 20.0])));
/// let layout = CacheLayout::new(&[2], 1, 1, Placement::Shard);
/// let cache = Pinned::new(layout, TableType::F32, host, Level::Host)?;
/// let tier = cache.capabilities().overlapped.expect("a cache passes work on to the next tier");
/// let mut rows = [0.0; 3];
/// let mut work = |rows: &mut [f32]| {
///     rows[2] = -1.0;
///     no_work(rows)
/// };
/// tier.read_overlapped(&[1, 2], OutputRows::At(&[0, 1]), &mut rows, &mut work)?;
/// assert_eq!(rows, [10.0, 20.0, -1.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait OverlappedFeature: Feature {
    /// Reads rows as [`Feature::read_to`] and calls `work` once with the same `out`, while it waits
    /// for rows if it does. Returns the traffic of both. A tier in front of another passes `work`
    /// on to it.
    ///
    /// # Errors
    /// As [`Feature::read_to`], and those of `work`.
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic>;
}

/// A cache whose slots can be looked up before its rows are read.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::{Features, Matrix, matrix::TableType};
/// use graphmill_loader::{
///     Feature,
///     feature::{Host, Marks, cached::{CacheLayout, Level, Pinned, Placement}},
/// };
///
/// let host = Arc::new(Host::new(&Features::f32(1, vec![0.0, 10.0, 20.0])));
/// let layout = CacheLayout::new(&[2], 1, 1, Placement::Shard);
/// let cache = Pinned::new(layout, TableType::F32, host, Level::Host)?;
/// let tier = cache.capabilities().marked.expect("the slots of pinned rows do not change");
/// let (ids, mut marks, mut rows) = ([1, 2], Marks::default(), Matrix::default());
/// tier.mark(&ids, &mut marks);
/// tier.gather_marked(&ids, &marks, &mut rows)?;
/// assert_eq!(rows.view().host(), [10.0, 20.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait MarkedFeature: Feature {
    /// Looks up the slots of the rows of `ids` (each below `V`), for
    /// [`MarkedFeature::gather_marked`].
    fn mark(&self, ids: &[NodeId], marks: &mut Marks);

    /// Gathers rows as [`Feature::gather`], with the marks of these `ids`; marks of another cache
    /// are ignored.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather_marked(&self, ids: &[NodeId], marks: &Marks, out: &mut Matrix) -> Result<Traffic>;
}

/// A static cache in host memory, whose rows layers read where they lie.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::{Features, Matrix, matrix::TableType};
/// use graphmill_loader::{
///     Feature,
///     feature::{Host, cached::{CacheLayout, Level, Pinned, Placement}},
/// };
///
/// let host = Arc::new(Host::new(&Features::f32(1, vec![0.0, 10.0, 20.0])));
/// let layout = CacheLayout::new(&[2], 1, 1, Placement::Shard);
/// let cache = Pinned::new(layout, TableType::F32, host, Level::Host)?;
/// let tier = cache.capabilities().slotted.expect("static rows of f32 do not move");
/// let (mut slots, mut rows) = (Vec::new(), Matrix::default());
/// tier.read_slots(&[1, 2, 0], &mut slots, &mut rows)?;
/// let rows = rows.view().slots().expect("cached rows, and rows of this read");
/// assert_eq!((rows.cached, rows.staged), (&[20.0][..], &[10.0, 0.0][..]));
/// assert_eq!(slots, [1, 0, 2]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait SlottedFeature: Feature {
    /// Sets `out` to the cached rows, without a copy, followed by the rows of `ids` (distinct, each
    /// below `V`) that the cache or its reader's device lacks, and `slots` to the row of each id in
    /// `out`. Returns the traffic, the same as that of [`Feature::gather`].
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn read_slots(&self, ids: &[NodeId], slots: &mut Vec<u32>, out: &mut Matrix) -> Result<Traffic>;
}

/// A tier that reads rows into a device's memory.
///
/// ```
/// use graphmill_core::Features;
/// use graphmill_loader::{Feature, feature::Host};
///
/// // tiers on devices have the capability, tiers on the host do not
/// let host = Host::new(&Features::f32(1, vec![0.0, 10.0]));
/// assert!(host.capabilities().device.is_none());
/// ```
pub trait DeviceFeature: Feature {
    /// Gathers rows as [`Feature::gather`], of ids that a device has as well, one u32 each.
    ///
    /// # Errors
    /// As [`Feature::read_to`].
    fn gather_on_device(&self, ids: &[NodeId], on_device: &DeviceIds, out: &mut Matrix) -> Result<Traffic>;

    /// Copies blocks to the device before their use there.
    ///
    /// # Errors
    /// The device runs out of memory.
    fn place_blocks(&self, blocks: &[Block]) -> Result<()>;
}

/// Calls [`OverlappedFeature::read_overlapped`] of any tier; without the capability, `work` runs
/// after the read.
///
/// # Errors
/// As [`Feature::read_to`], and those of `work`.
pub fn read_overlapped(
    feature: &dyn Feature,
    ids: &[NodeId],
    places: OutputRows,
    out: &mut [f32],
    work: &mut OverlappedWork,
) -> Result<Traffic> {
    if let Some(feature) = feature.capabilities().overlapped {
        return feature.read_overlapped(ids, places, out, work);
    }
    let mut traffic = feature.read_to(ids, places, out)?;
    traffic += work(out)?;
    Ok(traffic)
}

/// Runs `work` on runs of a request in parallel. `work` receives some of `ids`, their positions
/// with the first row of its part of `out`, and that part. Each row of `out` is in at most one
/// part.
pub(crate) fn in_runs(
    ids: &[NodeId],
    places: OutputRows,
    dim: usize,
    out: &mut [f32],
    run: usize,
    work: &(impl Fn(&[NodeId], Option<(&[u32], u32)>, &mut [f32]) + Sync),
) {
    let OutputRows::At(at) = places else {
        assert_eq!(out.len(), ids.len() * dim, "the result has {} rows of {dim}", ids.len());
        if dim > 0 {
            ids.par_chunks(run)
                .zip(out.par_chunks_mut(run * dim))
                .for_each(|(ids, out)| work(ids, None, out));
        }
        return;
    };
    assert_eq!(at.len(), ids.len(), "each row has a position");
    split(ids, at, 0, dim, out, run, work);
}

/// As [`in_runs`], for rows with positions in a part `out` that begins at row `first`: halves it
/// until it is no longer than a run.
fn split(
    ids: &[NodeId],
    at: &[u32],
    first: u32,
    dim: usize,
    out: &mut [f32],
    run: usize,
    work: &(impl Fn(&[NodeId], Option<(&[u32], u32)>, &mut [f32]) + Sync),
) {
    if ids.len() <= run {
        return work(ids, Some((at, first)), out);
    }
    let half = ids.len() / 2;
    let middle = at[half];
    let (before, behind) = out.split_at_mut((middle - first) as usize * dim);
    rayon::join(
        || split(&ids[..half], &at[..half], first, dim, before, run, work),
        || split(&ids[half..], &at[half..], middle, dim, behind, run, work),
    );
}
